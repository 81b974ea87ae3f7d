"""The report of a bug in rlrun: versions, the command line and the traceback, without a secret and without the environment.

Called while the exception is under way. Any part of rlrun may be what is broken, so this leans on little of it.
"""
import os
import sys
import tempfile
import traceback
from typing import List, Tuple

from .. import about
from .redact import find_secrets, redact, redact_words


def report(argv: List[str]) -> Tuple[str, str]:
    """Writes the report of the exception under way. Gives its last line, and the report's path, "" where none could be written:
    the disk may be the cause."""
    secrets = find_secrets(os.environ)
    text = redact(_format_exception(), secrets)
    words = " ".join(redact_words(argv, secrets))
    return text.strip().split("\n")[-1], _write("rlrun %s\n%s\n\n%s" % (words, _describe_versions(), text))


def _describe_versions() -> str:
    machine = os.uname()  # without the node's name
    return "rlrun %s, commit %s\nPython %s\n%s %s %s" % (
        about.VERSION, about.read_commit() or "unknown", sys.version.replace("\n", " "), machine.sysname, machine.release,
        machine.machine)


def _write(text: str) -> str:
    """Into the folder for temporary files, else HOME, else here, for this user alone (mkstemp: mode 0600)."""
    for folder in (os.environ.get("TMPDIR") or "/tmp", os.path.expanduser("~"), "."):
        path = ""
        try:
            fd, path = tempfile.mkstemp(prefix="rlrun-bug-", suffix=".txt", dir=os.path.abspath(folder))
            with os.fdopen(fd, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
            return path
        except OSError:
            _drop(path)  # half a report, on a disk that is full
    return ""


def _drop(path: str) -> None:
    try:
        if path:
            os.unlink(path)
    except OSError:
        pass


def _format_exception() -> str:
    """The traceback; without the source's lines where the file that held them was replaced."""
    kind, value, trace = sys.exc_info()
    try:
        return "".join(traceback.format_exception(kind, value, trace))
    except Exception:
        frames = ["  %s:%d in %s\n" % (frame.f_code.co_filename, line, frame.f_code.co_name)
                  for frame, line in traceback.walk_tb(trace)]
        return "".join(frames + traceback.format_exception_only(kind, value))
