"""`rlrun check --node-of DIGEST`: is this node fit to join a run whose head wrote its facts (`rlrun nodes --check`)? The ordinary
check of this node as a worker, and the comparison. Changes nothing."""
import json
from typing import Any, Tuple

from ..errors import BLOCKED, OK, USAGE, OperatorError
from ..steps import judge, judge_node, node_facts, shapes, survey
from ..text import report
from ..text import terminal as term
from ..text.shell import escape_controls
from . import checked, surveying
from . import options as shared


def run(options: Any, terminal: term.Terminal, overrides: Tuple[str, ...]) -> int:
    """Prints the report. Exit 0 where nothing blocks, 1 otherwise; 5 where the head's facts are not here."""
    for name in ("save", "structure_only", "slurm"):
        if getattr(options, name, None):
            raise OperatorError("--%s is about a launch, and --node-of about a node that joins one" % name.replace("_", "-"),
                                "Leave one of them away.", USAGE, "usage")
    where = shared.read_where(options, overrides)
    request = shared.find_request(where, terminal)
    head = node_facts.read(request.checkout.root, options.node_of)
    environ = survey.read_operator_environment()
    if head.head_variable and head.head:
        environ[head.head_variable] = head.head  # as the printed line does for the runner
    found = surveying.survey_with_progress(request, environ, options.dry_run_timeout, terminal, lambda: None)
    secrets = surveying.collect_secrets(found, environ)
    if not found.preflight.died and not found.preflight.skipped:
        reading = found.machine.gpus
        own = node_facts.finish(node_facts.start(found.plan, reading), found.plan, found.git, reading, head.digest, head.head)
        checks = judge_node.judge(head, own, judge_node.read_reach(head), judge_node.read_web_offset(head))
        found = found._replace(verdict=judge.hide_secrets(judge.make_verdict(found.verdict.checks + tuple(checks)), secrets))
    if terminal.is_json:
        shape = shapes.shape_check(found, secrets)
        shape["node_of"] = {"digest": head.digest, "host": head.host, "head": head.head or None, "port": head.port or None,
                            "time_seconds": head.time_seconds, "facts": node_facts.find_path(found.plan.root, head.digest)}
        term.print_result(terminal, json.dumps(shape, sort_keys=True))
    else:
        lines = checked.summarise(found, terminal)
        if not terminal.is_quiet:
            lines = [report.render_title("check --node-of", found.plan, head.digest), "", lines[0], ""]
            lines += report.render_checks(terminal, found.verdict.checks) + report.render_last_words(found.preflight, secrets)
            lines += [""] + report.render_steps(found.verdict.checks)
            lines.append("Head        %s, %s" % (escape_controls(head.host) or "unknown", escape_controls(head.head)))
            lines.append("Re-check: %s" % escape_controls(shared.name_again("check", where, found.plan, secrets) + " --node-of %s"
                                                          % head.digest, "\n\t"))
        term.print_result(terminal, "\n".join(lines))
    return BLOCKED if found.verdict.blocking else OK
