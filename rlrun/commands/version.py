"""`rlrun version`: which rlrun this is. Imports next to nothing."""
import sys
from typing import Any, Tuple

from ..text import terminal as term

VERSION = "0.1.0"


def add_arguments(parser: Any) -> None:
    """None of its own."""


def run(options: Any, terminal: term.Terminal, overrides: Tuple[str, ...]) -> int:
    """Prints version, commit, the file's sha256 and the Python that runs it."""
    commit, digest = _read_commit(), _hash_archive()
    python = "%d.%d.%d" % sys.version_info[:3]
    if terminal.is_json:
        import json
        term.print_result(terminal, json.dumps({
            "schema": 1, "command": "version", "version": VERSION, "commit": commit, "sha256": digest, "python": python,
            "executable": sys.executable}, sort_keys=True))
    else:
        term.print_result(terminal, "rlrun %s\ncommit %s\nsha256 %s\nPython %s (%s)" % (
            VERSION, commit or "unknown", digest or "unknown: not run from one file", python, sys.executable))
    return 0


def _read_commit() -> str:
    import pkgutil
    try:
        data = pkgutil.get_data("rlrun", "BUILD")
    except OSError:
        return ""
    return data.decode("ascii", "replace").strip() if data else ""


def _hash_archive() -> str:
    """sha256 of the file that runs, as it is on disk now; "" where it runs from a folder."""
    archive = getattr(globals().get("__loader__"), "archive", "")
    if not archive:
        return ""
    import hashlib
    try:
        with open(archive, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return ""
