"""`rlrun probe`: the facts about this machine, one a line, without a judgement on any launch."""
import argparse
import json
from typing import Any, Tuple

from ..errors import OK
from ..steps import facts, shapes
from ..text import terminal as term
from ..text.shell import escape_controls


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `probe`."""
    parser.add_argument("--root", default="", metavar="DIR", help="the checkout whose disk and logs are told too")


def run(options: Any, terminal: term.Terminal, overrides: Tuple[str, ...]) -> int:
    """Prints `LEVEL name detail` lines. Always exit 0: a probe is not a verdict."""
    found = facts.read_facts(options.root)
    if terminal.is_json:
        term.print_result(terminal, json.dumps(shapes.shape_facts(found), sort_keys=True))
    else:
        term.print_result(terminal, "\n".join("%-5s %-16s %s" % (fact.level, fact.name, escape_controls(fact.detail))
                                              for fact in found))
    return OK
