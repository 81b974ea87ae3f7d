"""`rlrun nodes`: the command for each other node of a run. Prints it; goes nowhere."""
import argparse
import json
import time
from typing import Any, Tuple

from ..errors import BLOCKED, MACHINE, OK, OperatorError
from ..steps import nodes, preflight, record, survey
from ..text import terminal as term
from ..text.redact import find_secrets
from . import options as shared
from . import surveying


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `nodes`."""
    shared.add_where(parser)
    surveying.add_timeout(parser)


def run(options: Any, terminal: term.Terminal, overrides: Tuple[str, ...]) -> int:
    """Resolves the plan by the runner's dry run and prints the block. Exit 5 where no usable address is known."""
    where = shared.read_where(options, overrides)
    request = shared.find_request(where, terminal)
    environ = survey.read_operator_environment()
    plan, said, _ = preflight.finish_dry_run(preflight.start_dry_run(request, environ), options.dry_run_timeout)
    if said.died or said.skipped:
        raise OperatorError("the plan is unknown: %s" % (said.skipped or said.summary), "This tells more: %s" % shared.name_again(
            "check", where, plan, find_secrets(environ)), BLOCKED, "preflight:died" if said.died else "preflight:skipped")
    commands = nodes.make_commands(plan, record.make_stamp(time.time()))
    if terminal.is_json:
        term.print_result(terminal, json.dumps({
            "schema": 1, "command": "nodes", "kind": plan.kind, "config": plan.config_shown, "root": plan.root,
            "nodes": plan.topology.nodes, "others": commands.others, "head": commands.head or None,
            "line": commands.command or None, "warning": commands.warning or None,
            "doubts": list(commands.doubts)}, sort_keys=True))
    else:
        term.print_result(terminal, "\n".join(nodes.describe(commands, False)))
    return MACHINE if commands.warning else OK
