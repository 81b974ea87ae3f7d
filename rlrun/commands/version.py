"""`rlrun version`: which rlrun this is. Imports next to nothing."""
import sys
from typing import Any, Tuple

from .. import about
from ..text import terminal as term


def add_arguments(parser: Any) -> None:
    """None of its own."""


def run(options: Any, terminal: term.Terminal, overrides: Tuple[str, ...]) -> int:
    """Prints version, commit, the file's sha256 and the Python that runs it."""
    commit, digest = about.read_commit(), about.hash_archive()
    python = "%d.%d.%d" % sys.version_info[:3]
    if terminal.is_json:
        import json
        term.print_result(terminal, json.dumps({
            "schema": 1, "command": "version", "version": about.VERSION, "commit": commit, "sha256": digest, "python": python,
            "executable": sys.executable}, sort_keys=True))
    else:
        term.print_result(terminal, "rlrun %s\ncommit %s\nsha256 %s\nPython %s (%s)" % (
            about.VERSION, commit or "unknown", digest or "unknown: not run from one file", python, sys.executable))
    return 0
