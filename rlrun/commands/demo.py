"""`rlrun demo`: unpacks the toy checkout that this file carries, and names three commands to try."""
import argparse
import errno
import json
import os
import pkgutil
import tempfile
from typing import Any, List, Tuple

from ..errors import MACHINE, OK, USAGE, OperatorError
from ..text import terminal as term
from ..text.shell import quote_words
from . import options as shared

_FOLDER = "demo_checkout"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `demo`."""
    parser.add_argument("dir", nargs="?", default="", metavar="DIR",
                        help="a folder that does not exist yet, or is empty (default: a new temporary one)")


def run(options: Any, terminal: term.Terminal, overrides: Tuple[str, ...]) -> int:
    """Unpacks and prints. Writes over nothing."""
    entries = _read_index()
    target = options.dir or "a new temporary folder"
    try:
        target = os.path.abspath(options.dir) if options.dir else tempfile.mkdtemp(prefix="rlrun-demo-")
        if os.path.isdir(target) and os.listdir(target):
            raise OperatorError("%s is not empty" % target, "Name a folder that does not exist yet.", USAGE, "demo")
        for mode, path in entries:
            _unpack(target, path, mode)
    except OSError as error:
        raise OperatorError("can't unpack to %s: %s" % (target, os.strerror(error.errno or errno.EIO)),
                            "Name another folder: rlrun demo DIR", MACHINE, "demo")
    program = shared.name_program()
    commands = ["cd %s" % quote_words([target]), "%s check demo" % program, "%s run demo --board leave" % program,
                "%s runs" % program]
    if terminal.is_json:
        term.print_result(terminal, json.dumps({"schema": 1, "command": "demo", "root": target, "try": commands}, sort_keys=True))
    else:
        lines = ["A toy checkout is in %s. It needs no GPU and touches nothing outside of it." % target, commands[0], "",
                 "  %s    # is it safe? nothing is changed" % commands[1], "  %s    # launch it" % commands[2],
                 "  %s    # how did it end?" % commands[3]]
        term.print_result(terminal, "\n".join(lines))
    return OK


def _read_index() -> List[Tuple[int, str]]:
    try:
        data = pkgutil.get_data("rlrun", "%s/INDEX" % _FOLDER)
    except OSError:
        data = None
    if not data:
        raise OperatorError("this rlrun carries no toy checkout", "Build it with `python3 build.py`: the pyz has one.",
                            MACHINE, "demo")
    entries = []
    for line in data.decode("utf-8").splitlines():
        mode, _, path = line.partition(" ")
        if path:
            entries.append((int(mode, 8), path))
    return entries


def _unpack(target: str, path: str, mode: int) -> None:
    full = os.path.join(target, path)
    os.makedirs(os.path.dirname(full), exist_ok=True)
    fd = os.open(full, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(fd, "wb") as file:
        file.write(pkgutil.get_data("rlrun", "%s/%s" % (_FOLDER, path)) or b"")
