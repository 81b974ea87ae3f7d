"""`rlrun watch`: status, redrawn in place; plain blocks where no terminal is. Reads only what was appended, and leaves the
run alone."""
import argparse
import shutil
import signal
import sys
import time
from typing import Any, List, Tuple

from ..errors import OK, USAGE, OperatorError
from ..steps import examine, grow
from ..text import terminal as term
from ..text import vitals_report
from ..text.durations import parse_duration
from . import status as status_command

_EVERY = "10s"
_LEAST_SECONDS = 1.0
_SLICE_SECONDS = 0.25


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `watch`."""
    status_command.add_run_arguments(parser)
    parser.add_argument("--every", default=_EVERY, metavar="TIME", help="how often to look; default: %s" % _EVERY)


def run(options: Any, terminal: term.Terminal, overrides: Tuple[str, ...]) -> int:
    """Until the run ends (exit as `status`), or the operator leaves (Ctrl-C, a closed window: exit 0)."""
    try:
        every = max(_LEAST_SECONDS, parse_duration(options.every))
    except ValueError as error:
        raise OperatorError("--every: %s" % error, "rlrun watch --every 30s", USAGE, "usage")
    if terminal.is_json:
        raise OperatorError("watch has no --json", "rlrun status --json, as often as you like.", USAGE, "usage")
    target = status_command.pick_target(options.run, options.root, terminal, "watch")
    is_drawn = term.is_screen()
    resized: List[int] = []
    if is_drawn:
        signal.signal(signal.SIGWINCH, lambda number, frame: resized.append(number))
    growing = grow.start(target)
    is_first = True
    try:
        while True:
            secrets = status_command.collect_secrets(growing.target)
            status = status_command.hide_secrets(examine.examine(growing.target, growing.evidence, time.time(), secrets))
            _show(status, terminal, is_drawn, is_first, every)
            is_first = False
            if growing.target.state == "over":
                return status_command.pick_code(status)
            if not _sleep(every, resized, terminal):
                return _leave(growing.target, terminal)
            growing = grow.update(growing, grow.refresh(growing.target))
    except KeyboardInterrupt:
        return _leave(growing.target, terminal)


def _sleep(seconds: float, resized: List[int], terminal: term.Terminal) -> bool:
    """False where nobody reads any more. A changed window ends it early."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not resized:
        if sys.stdout is None or term.is_reader_gone():
            return False
        time.sleep(min(_SLICE_SECONDS, max(0.0, deadline - time.monotonic())))
    del resized[:]
    return True


def _show(status: Any, terminal: term.Terminal, is_drawn: bool, is_first: bool, every: float) -> None:
    title, extra = status_command.load_title(status.target.stack), status_command.find_rows(status)
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(status.now_seconds))
    if not is_drawn:
        lines = vitals_report.render_status(terminal, status, title, extra)
        term.print_result(terminal, "\n".join(([] if is_first else [""]) + ["=== %s" % stamp] + lines))
        return
    size = shutil.get_terminal_size((80, 24))
    lines = vitals_report.render_status(terminal, status, title, extra, size.columns, max(2, size.lines - 2))
    lines += ["", ("%s, every %d s; Ctrl-C leaves, and the run goes on" % (stamp, every))[:size.columns]]
    # Home, then each line with its rest cleared, then what is below: nothing flickers.
    first = "\x1b[2J" if is_first else ""
    body = "\x1b[K\r\n".join(lines[-size.lines:])
    term.print_screen(terminal, "%s\x1b[H%s\x1b[K\x1b[J" % (first, body))


def _leave(target: Any, terminal: term.Terminal) -> int:
    term.print_note(terminal, "\nleft; the run goes on: nothing was sent to it" if target.state == "live" else "\nleft")
    return OK
