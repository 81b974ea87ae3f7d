"""`--scope`: rlrun starts itself anew in a systemd scope of its own, before anything else, so that keeper and runner are in it.

The process stays the same, terminal and all: systemd-run makes the scope with its own pid and then becomes the program.
What must be set for that is taken out again before the run could inherit it.
"""
import json
import os
import sys
import time
from typing import Dict, List, MutableMapping, NamedTuple, Optional, Tuple

from .. import child
from ..errors import MACHINE, OperatorError
from ..host import cgroups, managers
from ..text.shell import escape_controls, quote_words

MARKER = "RLRUN_ENTERED_SCOPE"
_PROBE_SECONDS = 20.0
# systemd-run sets INVOCATION_ID for what it starts (run.c, start_transient_scope), and enter() may set the other one.
_CHANGED = ("XDG_RUNTIME_DIR", "INVOCATION_ID")


class Entered(NamedTuple):
    """That this rlrun was started anew in a scope: its unit, and the control group that was left ("" unknown)."""

    unit: str
    left: str


def enter(argv: List[str], environ: Dict[str, str], program: List[str], run_root: str = "/run", var_root: str = "/var") -> None:
    """Becomes `program argv` in a scope of its own; does not return. `program`: the Python and the pyz, as they were started.

    Raises OperatorError (exit 5, `session:scope`) where there is no systemd-run, no manager that can be reached, no lingering,
    or where the manager makes no scope: then nothing was launched. Options are those that systemd 239 knows.
    """
    manager = managers.find_manager(environ, run_root, var_root)
    if manager.state != "ready":
        raise _refuse(manager.reason, manager.cure)
    changed = dict(environ)
    if manager.is_user:
        changed["XDG_RUNTIME_DIR"] = manager.runtime_dir
    unit = "rlrun-%s-%d" % (time.strftime("%Y%m%d-%H%M%S", time.gmtime()), os.getpid())
    head = ["systemd-run"] + (["--user"] if manager.is_user else []) + ["--scope", "--quiet", "--collect"]
    # Else systemd-run describes the unit by our whole command line, and whoever asks systemd reads the overrides in it.
    head += ["--description=rlrun"]
    head += _find_literal(head, program + argv, unit + "-probe1", changed)
    refused = _probe(head, unit + "-probe2", changed)
    if refused:
        raise _refuse(refused, "Try it: %s -- true" % quote_words(head))
    changed[MARKER] = json.dumps({
        "pid": os.getpid(), "unit": unit + ".scope", "left": cgroups.pick_path(cgroups.read_paths()),
        "names": sorted(environ), "old": {name: environ[name] for name in _CHANGED if name in environ}})
    for stream in (sys.stdout, sys.stderr):
        if stream:
            stream.flush()
    try:
        os.execvpe(head[0], head + ["--unit=" + unit, "--"] + program + argv, changed)
    except OSError as error:
        raise _refuse("systemd-run could not be started: %s" % os.strerror(error.errno or 0), "Launch without --scope.")


def take_marker(environ: MutableMapping[str, str]) -> Tuple[Optional[Entered], bool]:
    """What `enter` left for the rlrun that it became, and whether there was a marker at all; the environment is put back to what
    it was before.

    (None, True): one that is not this process's own. Then a systemd-run that starts another process instead of becoming it
    would be asked again and again.
    """
    text = environ.pop(MARKER, "")
    if not text:
        return None, False
    try:
        told = json.loads(text)
        if told.get("pid") != os.getpid():
            return None, True
        names, old = set(told["names"]), dict(told["old"])
        entered = Entered(str(told["unit"]), str(told["left"]))
    except (ValueError, KeyError, TypeError, AttributeError):  # not ours
        return None, True
    for name in [name for name in environ if name not in names]:
        del environ[name]
    environ.update(old)
    return entered, True


def refuse_another() -> OperatorError:
    """Exit 5: the marker is another process's, so that the scope is not this one's."""
    return _refuse("systemd-run started another process instead of becoming it, or %s was inherited" % MARKER,
                   "env -u %s rlrun … ; if that does not help, launch without --scope." % MARKER)


def _find_literal(head: List[str], words: List[str], unit: str, environ: Dict[str, str]) -> List[str]:
    """The option that keeps systemd-run from reading `${NAME}` in our words (from 254 on; an older one neither knows nor needs
    it), asked for only where there is such a word."""
    option = ["--expand-environment=no"]
    return option if any("$" in word for word in words) and not _probe(head + option, unit, environ) else []


def _probe(head: List[str], unit: str, environ: Dict[str, str]) -> str:
    """Makes a scope for a program that ends at once, the one way to know whether the manager would: why not, "" if it did."""
    outcome = child.run(head + ["--unit=" + unit, "--", "true"], _PROBE_SECONDS, env=environ)
    if (outcome.how, outcome.code) == ("ended", 0):
        return ""
    words = (outcome.errors or outcome.output).decode("utf-8", "replace").strip()
    return "systemd-run made no scope (%s)%s" % (child.describe(outcome), ": " + escape_controls(words, "\n") if words else "")


def _refuse(reason: str, cure: str) -> OperatorError:
    return OperatorError("no scope of its own for the run: %s; nothing was launched" % reason, cure, MACHINE, "session:scope")
