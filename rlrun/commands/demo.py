"""`rlrun demo`: unpacks the toy checkout that this file carries, and names three commands to try."""
import argparse
import errno
import json
import os
import pkgutil
import tempfile
from typing import Any, Dict, Tuple

from ..errors import MACHINE, OK, USAGE, OperatorError
from ..stacks import STACKS, load_stack
from ..text import terminal as term
from ..text.shell import quote_words
from . import options as shared

_FILE = "demo_%s"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `demo`."""
    parser.add_argument("dir", nargs="?", default="", metavar="DIR",
                        help="a folder that does not exist yet, or is empty (default: a new temporary one)")
    titles = [load_stack(name).TITLE for name in STACKS]
    parser.add_argument("--stack", default=titles[0], metavar="SYSTEM", help="whose toy: %s" % " or ".join(titles))


def run(options: Any, terminal: term.Terminal, overrides: Tuple[str, ...]) -> int:
    """Unpacks and prints. Writes over nothing."""
    stack = _find_stack(options.stack)
    tree = _read_tree(stack)
    target = options.dir or "a new temporary folder"
    try:
        target = os.path.abspath(options.dir) if options.dir else tempfile.mkdtemp(prefix="rlrun-demo-")
        if os.path.isdir(target) and os.listdir(target):
            raise OperatorError("%s is not empty" % target, "Name a folder that does not exist yet.", USAGE, "demo")
        for path, (is_program, text) in sorted(tree.items()):
            _unpack(target, path, 0o755 if is_program else 0o644, text)
    except OSError as error:
        raise OperatorError("can't unpack to %s: %s" % (target, os.strerror(error.errno or errno.EIO)),
                            "Name another folder: rlrun demo DIR", MACHINE, "demo")
    program = shared.name_program()
    longer = load_stack(stack).DEMO_ENVIRON
    commands = ["cd %s%s" % (quote_words([target]), " && export " + longer if longer else "")]
    commands += ["%s %s" % (program, words) for words in load_stack(stack).DEMO]
    if terminal.is_json:
        shape = {"schema": 1, "command": "demo", "stack": stack, "root": target, "try": commands}
        term.print_result(terminal, json.dumps(shape, sort_keys=True))
    else:
        lines = ["A toy checkout is in %s. It needs no GPU and touches nothing outside of it." % target, commands[0], "",
                 "  %s    # is it safe? nothing is changed" % commands[1], "  %s    # launch it" % commands[2],
                 "  %s    # waits for the first step and judges it" % commands[3]]
        term.print_result(terminal, "\n".join(lines))
    return OK


def _find_stack(word: str) -> str:
    """The stack that a word means: its title or its short name."""
    found = [name for name in STACKS if word.lower() in (name, load_stack(name).TITLE.lower())]
    if not found:
        titles = ", ".join(load_stack(name).TITLE for name in STACKS)
        raise OperatorError("no toy checkout of %s" % word, "There are: %s" % titles, USAGE, "demo")
    return found[0]


def _read_tree(stack: str) -> Dict[str, Tuple[bool, str]]:
    """{path: (is it a program, text)} of a toy checkout."""
    try:
        import bz2
    except ImportError:
        raise OperatorError("this Python was built without bz2, and the toy checkout is packed with it",
                            "Try another python3.", MACHINE, "demo")
    try:
        data = pkgutil.get_data("rlrun", _FILE % stack)
    except OSError:
        data = None
    if not data:
        raise OperatorError("this rlrun carries no toy checkout", "Build it with `python3 build.py`: the pyz has one.",
                            MACHINE, "demo")
    found = json.loads(bz2.decompress(data).decode("ascii"))
    return {path: (is_program, text) for path, (is_program, text) in found.items()}


def _unpack(target: str, path: str, mode: int, text: str) -> None:
    full = os.path.join(target, path)
    os.makedirs(os.path.dirname(full), exist_ok=True)
    fd = os.open(full, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(fd, "wb") as file:
        file.write(text.encode("utf-8"))
