"""The operator's terminal: the only writer to stdout and stderr and the only reader of stdin. Judges no answer.

Output is flushed at once, fits the stream's encoding, and a stream that went away is silenced: a report that nobody
reads any more (`| head`, a closed window) must not change what the command does or how it exits.
"""
import errno
import os
import sys
from typing import Any, NamedTuple, Optional

from ..errors import MACHINE, OperatorError

# glyphs, shell and unattended are imported where a text needs them: `version` starts in half the time without.

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}
_GONE = (errno.EPIPE, errno.EIO, errno.ECONNRESET, errno.EBADF)  # EIO: the window was closed


class Terminal(NamedTuple):
    """How to talk to the operator. `is_interactive`: a question can be asked and its answer read. `kept`: nothing is shown,
    all goes there (an unattended.Kept)."""

    color: bool
    is_quiet: bool
    is_json: bool
    is_interactive: bool
    kept: Any = None


def make_terminal(color_choice: str, is_quiet: bool, is_json: bool, kept: Any = None) -> Terminal:
    """Takes `auto`, `always` or `never` and the options; gives the Terminal. Reads NO_COLOR, TERM and the streams; with
    `kept` there is nobody to ask, and no colour."""
    if kept is not None:
        return Terminal(False, is_quiet, is_json, False, kept)
    color = color_choice == "always"
    if color_choice == "auto":
        color = not os.environ.get("NO_COLOR") and os.environ.get("TERM") not in (None, "", "dumb") \
            and _is_terminal(sys.stdout)
    return Terminal(color and not is_json, is_quiet, is_json, _is_foreground())


def keep_output(terminal: Terminal, path: str) -> None:
    """With `--quiet-unless-failed`: from here on all that is said goes to this file, what was said before first; else nothing.
    A file that can't be written is told when the command ends."""
    if terminal.kept is not None:
        from .unattended import open_log
        open_log(terminal.kept, path)


def _is_kept(terminal: Terminal, text: str) -> bool:
    if terminal.kept is None:
        return False
    from .unattended import keep
    keep(terminal.kept, text)
    return True


def print_result(terminal: Terminal, text: str) -> None:
    """Writes what was asked for, a line or more, to stdout; also with `-q`."""
    if _is_kept(terminal, text):
        return
    _write(sys.stdout, text if text.endswith("\n") else text + "\n")


def print_note(terminal: Terminal, text: str) -> None:
    """Writes progress and prose to stderr; nothing with `-q`."""
    if not terminal.is_quiet and not _is_kept(terminal, text):
        _write(sys.stderr, _fit_colour(text if text.endswith("\n") else text + "\n"))


def print_error(terminal: Terminal, text: str) -> None:
    """Writes why the command failed to stderr; also with `-q`."""
    if _is_kept(terminal, text):
        return
    _write(sys.stderr, _fit_colour(text if text.endswith("\n") else text + "\n"))


def is_screen() -> bool:
    """Can stdout be redrawn in place?"""
    return _is_terminal(sys.stdout) and os.environ.get("TERM") not in (None, "", "dumb")


def measure_columns() -> int:
    """The width of the terminal on stdout, 0 where it is none."""
    if not _is_terminal(sys.stdout):
        return 0
    import shutil
    return shutil.get_terminal_size((80, 24)).columns


def print_screen(terminal: Terminal, text: str) -> None:
    """Writes what redraws a terminal, as it is."""
    if terminal.kept is None:
        _write(sys.stdout, text)


def can_print(text: str) -> bool:
    """Does stdout's encoding take every letter of it? Elsewhere a letter gets a stand-in, which a line to paste must not."""
    return _fit(text, sys.stdout) == text


def is_reader_gone() -> bool:
    """Has whoever reads stdout gone away (a closed window, `| head`)? Found out without writing a byte."""
    import select
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(event & (select.POLLERR | select.POLLHUP | select.POLLNVAL) for _, event in poll.poll(0))
    except (OSError, ValueError, AttributeError):
        return True


def tell(terminal: Terminal, text: str) -> None:
    """Writes what a question is about to where `ask` will ask it; also with `-q`. Where nobody can be asked, to stderr."""
    if _is_kept(terminal, text):
        return
    text = text if text.endswith("\n") else text + "\n"
    if terminal.is_interactive and not _is_terminal(sys.stderr):
        from .shell import strip_colour
        if _write_to_tty(strip_colour(text)):
            return
    _write(sys.stderr, _fit_colour(text))


def forget_typed() -> None:
    """Drops what was typed and not read yet, where stdin is a terminal."""
    if _is_foreground():
        import termios
        try:
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
        except (OSError, ValueError, termios.error):
            pass


def paint(terminal: Terminal, text: str, style: str) -> str:
    """Takes text and `bold`, `dim`, `red`, `green` or `yellow`; gives it with the escape codes, or as it is."""
    return "\x1b[%sm%s\x1b[0m" % (_STYLES[style], text) if terminal.color and text else text


def ask(terminal: Terminal, question: str) -> Optional[str]:
    """Writes the question and gives the line that was typed, without its end; None at the end of input (Ctrl-D).

    The question goes to stderr where that is a terminal, else to the terminal itself: a question that vanishes in
    `2>log` would leave the operator before a silent screen. A line without Enter is no answer. Ctrl-C passes through.
    """
    if sys.stdin is None or terminal.kept is not None:
        return None
    if _is_terminal(sys.stderr) or not _write_to_tty(_strip(question)):
        _write(sys.stderr, question)
    try:
        raw: bytes = sys.stdin.buffer.readline()  # bytes: what is typed may be no UTF-8
    except (OSError, ValueError):  # EIO: moved to the background meanwhile, or the window is gone
        raw = b""
    line = raw.decode("utf-8", "replace")
    if not line.endswith("\n"):
        _write(sys.stderr, "\n")
        return None
    return line.rstrip("\r\n")


def _is_terminal(stream: Any) -> bool:
    try:
        return stream is not None and bool(stream.isatty())
    except (OSError, ValueError):
        return False


def _is_foreground() -> bool:
    """Whether stdin is a terminal and ours to read. A background job would be stopped by its first read, and a process
    that left the terminal's session (setsid) would take the input that is meant for the shell."""
    if not _is_terminal(sys.stdin):
        return False
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False


def _fit_colour(text: str) -> str:
    """Colour that was chosen for a terminal on stdout has no place in `2>file`."""
    is_chosen_for_stdout_only = _is_terminal(sys.stdout) and not _is_terminal(sys.stderr)
    return _strip(text) if is_chosen_for_stdout_only else text


def _strip(text: str) -> str:
    if "\x1b" not in text:
        return text
    from .shell import strip_colour
    return strip_colour(text)


def _fit(text: str, stream: Any) -> str:
    encoding = getattr(stream, "encoding", None) or "ascii"
    try:
        text.encode(encoding)
    except (LookupError, ValueError):
        from .glyphs import to_stream_text
        return to_stream_text(text, encoding)
    return text


def _write_to_tty(text: str) -> bool:
    try:
        with open("/dev/tty", "wb", buffering=0) as tty:
            tty.write(_fit(text, sys.stdin).encode("utf-8"))
    except OSError:
        return False
    return True


def _write(stream: Any, text: str) -> None:
    if stream is None:  # closed when we were started
        return
    try:
        stream.write(_fit(text, stream))
        stream.flush()
    except ValueError:  # closed since
        return
    except OSError as error:
        _silence(stream)
        if error.errno not in _GONE and stream is sys.stdout:
            raise OperatorError("the output could not be written: %s" % error.strerror, "Free some room where it goes to.",
                                MACHINE, "output")


def _silence(stream: Any) -> None:
    """Points the stream's descriptor to nowhere, or the interpreter would fail once more over what is left in it."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        pass
