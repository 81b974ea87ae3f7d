"""`rlrun configs`: the configs of this checkout, by kind."""
import argparse
import json
from typing import Any, Tuple

from ..errors import OK
from ..steps import orient
from ..text import report
from ..text import terminal as term
from ..text.shell import escape_controls
from . import options as shared


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `configs`."""
    shared.add_where(parser, has_config=False)


def run(options: Any, terminal: term.Terminal, overrides: Tuple[str, ...]) -> int:
    """Lists them. Always exit 0: an empty list is a list."""
    checkout = orient.find_checkout(options.root, "")
    configs = orient.list_all(checkout, options.kind)
    if terminal.is_json:
        term.print_result(terminal, json.dumps({"schema": 1, "command": "configs", "stack": checkout.stack, "root": checkout.root,
                                                "configs": [{"kind": one.kind, "config": one.shown, "path": one.path}
                                                            for one in configs]}, sort_keys=True))
    elif configs:
        term.print_result(terminal, "\n".join(report.render_table([(one.kind, escape_controls(one.shown))
                                                                             for one in configs])))
    else:
        term.print_note(terminal, "no configs in %s" % checkout.root)
    return OK
