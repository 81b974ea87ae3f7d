"""`rlrun logs`: the log that matters, its last lines or all that comes. Reads only; leaving it never touches the run."""
import argparse
import json
import os
import shutil
import sys
import time
from typing import Any, List, NamedTuple, Optional, Tuple

from ..errors import OK, USAGE, OperatorError
from ..stacks import load_health
from ..steps import follow_logs, follow_run, jobs
from ..steps.shape_status import shape_candidate
from ..text import terminal as term
from ..text.redact import redact
from ..text.shell import escape_controls
from ..vitals import Target
from .status import add_run_arguments, collect_secrets, pick_target

_LINES = 40
_POLL_SECONDS = 0.5
# A progress bar that is rewritten for ever: how often it is shown in place, and where it takes a new line each time.
_BAR_SECONDS = 1.0
_BAR_LINE_SECONDS = 15.0
# `--json` holds so much text at most.
_JSON_BYTES = 1 << 24
_CLEAR = "\r\x1b[K"


class Shown(NamedTuple):
    """What the terminal shows at its end: a bar that the next line takes the place of, and when it was shown."""

    bar: str = ""
    is_in_place: bool = False
    bar_seconds: float = 0.0
    key_lines: int = 0  # of a private key that may follow


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `logs`."""
    add_run_arguments(parser)
    parser.add_argument("--which", nargs="+", default=[], metavar="NAME",
                        help="launch, train, vllm, trainer, orchestrator, inference, env NAME, ...: any that the run has; "
                             "default: the main one if it is there, else the launch log")
    parser.add_argument("-n", "--lines", type=int, default=None, metavar="N", help="the last N lines (default: %d)" % _LINES)
    parser.add_argument("--since", type=int, default=None, metavar="STEP", help="from the line of this step on")
    parser.add_argument("-f", "--follow", action="store_true",
                        help="go on as it grows, also over rotation and the next attempt, until the run is over")


def run(options: Any, terminal: term.Terminal, overrides: Tuple[str, ...]) -> int:
    """Prints the lines. Exit 0: shown, or followed until the run was over or Ctrl-C; 2: no such log or step; 5: not there."""
    _refuse_options(options)
    which, word = follow_logs.split_which(options.which, options.run)
    target = pick_target(word, options.root, terminal)
    for note in target.notes + ((jobs.tell_jobs(target),) if jobs.is_waiting(target) else ()):
        term.print_note(terminal, escape_controls(note))
    logs = follow_logs.list_logs(target)
    if jobs.is_waiting(target) and not options.which:
        term.print_note(terminal, "it waits: its logs begin when its job starts")
    which = which or follow_logs.find_path(logs, word)
    name = _pick_name(which, logs, target, options.follow, terminal)
    stream = follow_logs.open_stream(name, logs.get(name, ""))
    if stream.fd < 0 and not options.follow or logs.get(name) and stream.fd < 0 and os.path.exists(logs[name]):
        raise follow_logs.refuse_missing(logs, name, jobs.is_waiting(target))
    secrets = collect_secrets(target)
    stream = _move_to_start(stream, target, options, terminal)
    if terminal.is_json:
        return _print_json(stream, target, secrets, terminal)
    if stream.path:
        term.print_note(terminal, escape_controls("==> %s log of %s: %s" % (name, target.name, stream.path)))
    if options.follow:
        return _follow(stream, target, not which, secrets, terminal)
    return _print_all(stream, secrets, terminal)


def _refuse_options(options: Any) -> None:
    if options.follow and options.json:
        raise OperatorError("--follow and --json do not go together: --json prints one object", "Leave one of them out.", USAGE,
                            "usage")
    if options.since is not None and options.lines is not None:
        raise OperatorError("--since and --lines do not go together", "Leave one of them out.", USAGE, "usage")
    for name, value in (("--lines", options.lines), ("--since", options.since)):
        if value is not None and value < 0:
            raise OperatorError("%s takes a number from 0 on, not %d" % (name, value), "", USAGE, "usage")


def _pick_name(which: str, logs: Any, target: Target, is_following: bool, terminal: term.Terminal) -> str:
    if which:
        # One that only comes later has its name already, where the stack tells it.
        if is_following and target.state in ("elsewhere", "live") and which not in logs \
                and which in load_health(target.stack).SOURCES:
            term.print_note(terminal, "the %s log is not there yet: waiting for it" % which)
            return which
        return follow_logs.pick_log(logs, which)
    if not logs:
        raise OperatorError("no log of this run was found", "; ".join(target.notes), 5, "log")
    if target.state == "over":
        ending = follow_logs.find_ending(target, time.time())
        name = follow_logs.find_error_log(logs, ending)
        error = ending.first_error if ending else None
        if name and error:
            place = "%s:%s" % (error.log, error.line if error.line is not None else "byte %d" % error.offset)
            term.print_note(terminal, "first error: %s: %s" % (
                escape_controls(place), escape_controls(redact(error.text, collect_secrets(target)))))
            return name
    return follow_logs.pick_default(logs)


def _move_to_start(stream: follow_logs.Stream, target: Target, options: Any, terminal: term.Terminal) -> follow_logs.Stream:
    """The stream from the step or from the last lines on; of a log that is not there yet all that will come."""
    if options.since is not None:
        if stream.fd < 0:
            raise OperatorError("the %s log is not there yet: no step can be found in it" % stream.name, "", USAGE, "step")
        offset, words = follow_logs.find_step(stream.path, load_health(target.stack), stream.name, options.since)
        if offset is None:
            raise OperatorError("no line of step %d in %s: it holds %s" % (options.since, stream.path, words),
                                "Name one of its steps: --since STEP", USAGE, "step")
        return follow_logs.move_stream(stream, offset)
    if stream.fd < 0:
        return stream
    count = _LINES if options.lines is None else options.lines
    offset, is_all = follow_logs.find_tail(stream.fd, count)
    if not is_all:
        term.print_note(terminal, "its last lines are too long to show %d of them" % count)
    return follow_logs.move_stream(stream, offset)


def _read_up_to(stream: follow_logs.Stream, end: int) -> Tuple[follow_logs.Stream, Tuple[bytes, ...], bool]:
    """(stream, lines, whether there is more) of the log up to the size that it had."""
    batch = follow_logs.read_batch(stream, max(1, end - stream.offset))
    is_more = batch.is_more and batch.stream.offset < end and not batch.event
    return batch.stream, batch.lines if is_more else batch.lines + follow_logs.take_rest(batch.stream), is_more


def _print_all(stream: follow_logs.Stream, secrets: Tuple[str, ...], terminal: term.Terminal) -> int:
    end, is_more, mark = follow_logs.measure(stream), True, _find_output()
    shown = Shown(key_lines=follow_logs.find_key(stream.fd, stream.offset))
    while is_more and stream.offset < end and not _is_gone(mark):
        stream, found, is_more = _read_up_to(stream, end)
        shown = _print_lines(found, shown, secrets, terminal)
    follow_logs.close_stream(stream)
    return OK


def _print_json(stream: follow_logs.Stream, target: Target, secrets: Tuple[str, ...], terminal: term.Terminal) -> int:
    end, is_more, size = follow_logs.measure(stream), True, 0
    key_lines = follow_logs.find_key(stream.fd, stream.offset)
    kept: List[str] = []
    while is_more and stream.offset < end and size < _JSON_BYTES:
        stream, found, is_more = _read_up_to(stream, end)
        texts, key_lines = follow_logs.clean_lines(found, secrets, False, key_lines)
        kept += texts
        size += sum(map(len, texts))
    follow_logs.close_stream(stream)
    term.print_result(terminal, json.dumps({
        "schema": 1, "command": "logs", "exit": OK, "run": shape_candidate(target), "log": stream.name, "path": stream.path,
        "lines": kept, "is_cut": is_more and stream.offset < end,
        "logs": follow_logs.describe_logs(follow_logs.list_logs(target))}, sort_keys=True))
    return OK


def _print_lines(found: Tuple[bytes, ...], shown: Shown, secrets: Tuple[str, ...], terminal: term.Terminal) -> Shown:
    if not found:
        return shown
    texts, key_lines = follow_logs.clean_lines(found, secrets, terminal.color, shown.key_lines)
    term.print_result(terminal, (_CLEAR if shown.is_in_place else "") + "\n".join(texts) + "\n")
    return Shown(bar_seconds=shown.bar_seconds, key_lines=key_lines)


def _show_bar(stream: follow_logs.Stream, shown: Shown, secrets: Tuple[str, ...], terminal: term.Terminal) -> Shown:
    """Shows a bar that has no line end yet, now and then: in its place where the terminal can; nothing where there is none."""
    raw, now, is_screen = follow_logs.find_bar(stream), time.monotonic(), term.is_screen()
    if not raw or not sys.stdout.isatty() or now - shown.bar_seconds < (_BAR_SECONDS if is_screen else _BAR_LINE_SECONDS):
        return shown
    texts, _ = follow_logs.clean_lines((raw,), secrets, False, shown.key_lines)
    bar = texts[0].expandtabs()[:max(20, shutil.get_terminal_size().columns - 1)]
    if bar == shown.bar:
        return shown
    if is_screen:
        term.print_screen(terminal, _CLEAR + bar)
    else:
        term.print_result(terminal, bar)
    return shown._replace(bar=bar, is_in_place=is_screen, bar_seconds=now)


def _note(terminal: term.Terminal, text: str, shown: Shown) -> Shown:
    """A word on stderr, which goes below a bar."""
    if shown.is_in_place:
        term.print_screen(terminal, "\n")
        shown = shown._replace(is_in_place=False, bar="")
    term.print_note(terminal, escape_controls(text))
    return shown


def _follow(stream: follow_logs.Stream, target: Target, is_default: bool, secrets: Tuple[str, ...],
            terminal: term.Terminal) -> int:
    """Shows what comes until the run is over, the reader goes, or Ctrl-C."""
    seen = follow_run.make_sight(target, stream)
    mark = _find_output()
    shown = Shown(key_lines=follow_logs.find_key(stream.fd, stream.offset) if stream.fd >= 0 else 0)
    if stream.path and stream.fd < 0:
        shown = _note(terminal, "it is not there yet: waiting for it", shown)
    is_last = False
    try:
        while not _is_gone(mark):
            batch = follow_logs.read_batch(stream)
            stream = batch.stream
            shown = _print_lines(batch.lines, shown, secrets, terminal)
            if batch.event:
                shown = _note(terminal, "--- it was %s and begins anew: %s ---" % (batch.event, stream.path), shown)
            if batch.is_more and not (is_last and seen.is_leftover):
                continue
            before, seen = seen, follow_run.look_again(seen, time.monotonic())
            is_new = seen is not before or seen.is_over
            other = follow_run.find_other(seen, stream, is_default) if is_new else None
            if other is not None:
                shown = _print_lines(follow_logs.take_rest(stream), shown, secrets, terminal)
                follow_logs.close_stream(stream)
                stream, seen, is_last = follow_logs.open_stream(other.name, other.path), other.sight, False
                shown = _note(terminal, "--- %s begins: %s ---" % (other.words, other.path), shown)
                continue
            if seen.is_over and is_last:
                shown = _print_lines(follow_logs.take_rest(stream), shown, secrets, terminal)
                _note(terminal, _tell_end(seen.target, secrets), shown)
                return OK
            is_last = seen.is_over  # once more: what it wrote last may just be on its way
            shown = _show_bar(stream, shown, secrets, terminal)
            time.sleep(_POLL_SECONDS)
    except KeyboardInterrupt:
        _note(terminal, "left: the run was not touched%s" % (", it goes on" if seen.target.state == "live" else ""), shown)
    finally:
        follow_logs.close_stream(stream)
    return OK


def _tell_end(target: Target, secrets: Tuple[str, ...]) -> str:
    ending = follow_logs.find_ending(target, time.time())
    ended = target.exit or {}
    code = "killed by %s" % ended["signal"] if ended.get("signal") else \
        "exit %s" % ended["status"] if ended.get("status") is not None else "its exit was not recorded"
    words = redact(ending.words, secrets) if ending else ""
    return "--- the run is over (%s)%s ---" % (code, ": " + words if words else "")


def _find_output() -> Optional[Tuple[int, int]]:
    """What stdout is connected to; None where it is closed."""
    try:
        found = os.fstat(sys.stdout.fileno())
    except (AttributeError, OSError, ValueError):
        return None
    return found.st_dev, found.st_ino


def _is_gone(mark: Optional[Tuple[int, int]]) -> bool:
    """Does nobody read the output any more? Once a write to it has failed, stdout points to nowhere, which looks well."""
    return mark is None or _find_output() != mark or term.is_reader_gone()
