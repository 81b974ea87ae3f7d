"""One notification: the operator's program is run, with what happened in its environment and on its input, and what came of it is
written into the record. Tried once: a program that fails may have told already. Decides nothing; notify.py does."""
import json
import os
import re
import shlex
import shutil
import threading
import time
from typing import Any, Dict, NamedTuple, Tuple

from .. import child
from ..errors import MACHINE, USAGE, OperatorError
from ..text.redact import find_secrets, redact, redact_words
from ..text.shell import escape_controls, strip_colour
from ..values import Outcome
from . import record, records

LIMIT_SECONDS = 60.0
# Of its output, the end is kept.
_TAIL_CHARACTERS = 2048
_SEEN_BYTES = 1 << 16
# One at a time: of the keeper's two threads, whichever is told last must not lose what the other wrote. Made before the fork.
_TURN = threading.RLock()
_TURN_SECONDS = 2 * LIMIT_SECONDS  # what stands still for longer than its own limit is not waited for
_WORDS_LENGTH = 600
_HINT = "--notify '/path/of/program words'; a line for sh: --notify-shell --notify 'echo \"$RLRUN_WORDS\" | mail me'"
# \x   '…'   "…"   what a shell would not take as it is: a | b, a && b, a > b, $A, `a`, ~/a
_SHELL = re.compile(r"""\\.|'[^']*'|"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[|&;<>()$`\n]|(?:(?<=\s)|\A)~)""", re.S)
_ACTIVE = re.compile(r"(?:[^\\$`]|\\.)*([$`])", re.S)


class Order(NamedTuple):
    """What a keeper notifies by. `record`: the folder; `secrets`: values that nothing told may hold."""

    argv: Tuple[str, ...]
    environ: Dict[str, str]
    root: str
    record: str
    secrets: Tuple[str, ...]


class Event(NamedTuple):
    """What there is to tell. `event`: gate, stalled or ended; `result`: passed, failed, stalled, ended well, ended, ended
    badly or unknown; the rest of a run as its record has it, "" where that is not known."""

    event: str
    result: str
    words: str
    name: str
    kind: str
    log: str
    step: str = ""
    status: str = ""
    signal: str = ""


def prepare(command: str, is_shell: bool, environ: Dict[str, str]) -> Tuple[str, ...]:
    """The words that will be run. OperatorError (exit 2): none, quotes that do not end, a program that is not there or can't be
    run (exit 5: no /bin/sh), or words that only a shell understands where none is asked for."""
    if not command.strip():
        words = "--notify-shell goes with --notify" if is_shell else "--notify names no program"
        raise OperatorError(words, _HINT, USAGE, "notify:command")
    if is_shell:
        if not os.access("/bin/sh", os.X_OK):
            raise OperatorError("--notify-shell: there is no /bin/sh", "Leave it out.", MACHINE, "notify:command")
        return "/bin/sh", "-c", command
    shown = redact(command, find_secrets(environ))
    try:
        argv = shlex.split(command)
    except ValueError as error:
        raise OperatorError("--notify: %s in %s" % (str(error).lower(), shown), "Close the quotes. " + _HINT, USAGE,
                            "notify:command")
    sign = find_shell_sign(command)
    if sign:
        raise OperatorError("--notify: %s means something to a shell only, and none runs this: %s" % (sign, shown),
                            "Write the whole path." if sign == "~" else "Is a shell meant? Add --notify-shell. If not, put it in "
                            "single quotes.", USAGE, "notify:command")
    if not argv or not argv[0]:
        raise OperatorError("--notify names no program", _HINT, USAGE, "notify:command")
    return (_find_program(argv[0], environ),) + tuple(argv[1:])


def find_shell_sign(command: str) -> str:
    """The first sign by which a shell would do more than split the words, "" where none is; what is quoted counts as a shell
    takes it."""
    for found in _SHELL.finditer(command):
        if found.group("bare"):
            return found.group("bare").replace("\n", "a line end")
        active = _ACTIVE.match(found.group("quoted") or "")
        if active:
            return active.group(1)
    return ""


def _find_program(word: str, environ: Dict[str, str]) -> str:
    path = os.path.abspath(word) if "/" in word else shutil.which(word, path=environ.get("PATH", os.defpath)) or ""
    if not path:
        raise OperatorError("--notify: no program %s on PATH" % word, "Name it by its path; PATH is %s" % (
            environ.get("PATH") or "not set"), USAGE, "notify:command")
    if not os.path.isfile(path):
        raise OperatorError("--notify: there is no %s" % path, "Name a program that is there.", USAGE, "notify:command")
    if not os.access(path, os.X_OK):
        raise OperatorError("--notify: %s can't be run: it is not executable" % path,
                            "chmod +x it, or name its interpreter first.", USAGE, "notify:command")
    return os.path.abspath(path)


def take_turn() -> bool:
    """Lets no other thread send any more, once what it is sending is through (a minute at most). For the thread that sends the
    last: a program that was started behind it would have nobody who ends it at its limit."""
    return _TURN.acquire(timeout=_TURN_SECONDS)


def send(order: Order, event: Event, limit_seconds: float = LIMIT_SECONDS) -> None:
    """Runs the program, once, and writes into notify.json what came of it. Never raises for what a program or a disk does. What
    a program that has ended left behind lives on: a mailer hands over to one that does the work."""
    has_turn = take_turn()
    if not has_turn and event.event != "ended":  # the end is being told
        return
    try:
        _send(order, event, limit_seconds)
    finally:
        if has_turn:
            _TURN.release()


def _send(order: Order, event: Event, limit_seconds: float) -> None:
    told = shape_event(order, event)
    text = json.dumps(told, sort_keys=True) + "\n"
    fd = _open_input(order.record, "notify-%s.json" % event.event, text)
    try:
        environ = dict(order.environ, **{name: _encode(value) for name, value in make_environment(told).items()})
        outcome = child.run(order.argv, limit_seconds, cwd=order.root, env=environ, merge=True, stdin=fd,
                            spare_group=True)
    finally:
        os.close(fd)
    _note(order, event, outcome)


def shape_event(order: Order, event: Event) -> Dict[str, Any]:
    """The object that the program reads, schema 1; null is what is not known."""
    found = records.read_record(order.record) or {}

    def clean(text: Any) -> Any:
        return escape_controls(redact(str(text), order.secrets)) if text else None
    return {"schema": 1, "event": event.event, "result": event.result, "words": shorten(str(clean(event.words))),
            "id": clean(found.get("id") or os.path.basename(order.record)), "name": clean(event.name), "kind": clean(event.kind),
            "host": clean(found.get("host") or os.uname().nodename), "root": redact(order.root, order.secrets),
            "record": redact(order.record, order.secrets), "log": redact(event.log, order.secrets) or None,
            "status": int(event.status) if event.status else None, "signal": event.signal or None,
            "step": int(event.step) if event.step else None, "time_seconds": time.time()}


def shorten(words: str) -> str:
    """One line of bearable length."""
    return words if len(words) <= _WORDS_LENGTH else words[:_WORDS_LENGTH - 2] + " \u2026"


def make_environment(told: Dict[str, Any]) -> Dict[str, str]:
    """RLRUN_EVENT, RLRUN_RESULT, …: what the object tells, as text; "" for null."""
    return {"RLRUN_" + name.upper(): "" if value is None else str(value) for name, value in told.items()
            if name not in ("schema", "time_seconds")}


def _encode(value: str) -> str:
    """Text that reaches the program as UTF-8 also where this Python's own encoding is ASCII (3.6 in the C locale)."""
    return os.fsdecode(value.replace("\0", "").encode("utf-8", "surrogateescape"))


def _open_input(folder: str, name: str, text: str) -> int:
    """The file that the program reads; a pipe with the same in it where none can be written: a full disk is to be told of too."""
    path = os.path.join(folder, name)
    try:
        record.write_file(path, text, 0o600)
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        told, tell = os.pipe()
        os.set_blocking(tell, False)
        try:
            os.write(tell, text.encode("utf-8", "surrogateescape"))
        except OSError:
            pass
        os.close(tell)
        return told


def _note(order: Order, event: Event, outcome: Outcome) -> None:
    output = strip_colour(outcome.output[-_SEEN_BYTES:].decode("utf-8", "replace"))
    tail = escape_controls(redact(output, order.secrets), "\n\t").strip()[-_TAIL_CHARACTERS:]
    entry = {"event": event.event, "result": event.result, "time_seconds": time.time(), "how": outcome.how, "code": outcome.code,
             "argv": list(redact_words(order.argv, order.secrets)), "words": child.describe(outcome),
             "seconds": round(outcome.seconds, 3), "output": tail, "sent": outcome.how == "ended" and outcome.code == 0}
    earlier = records.read_notified(order.record)
    try:
        record.write_json(order.record, "notify.json", {"schema": record.SCHEMA, "events": earlier + [entry]})
    except OSError:
        pass  # no room: what was told is told all the same
