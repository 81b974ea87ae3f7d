"""`rlrun check`: the whole judgement of one config on this machine. Changes nothing."""
import argparse
from typing import Any, Dict, Tuple

from ..errors import BLOCKED, OK, USAGE, OperatorError
from ..stacks import load_stack
from ..steps import preflight, survey
from ..text import terminal as term
from ..values import Request
from . import options as shared
from . import surveying


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `check`."""
    shared.add_where(parser)
    surveying.add_timeout(parser)
    parser.add_argument("--structure-only", action="store_true", help="the config's structure alone, where the runner can "
                                                                     "check that; gives no verdict for a launch")


def run(options: Any, terminal: term.Terminal, overrides: Tuple[str, ...]) -> int:
    """Prints the report. Exit 0 where nothing blocks, 1 otherwise."""
    where = shared.read_where(options, overrides)
    request = shared.find_request(where, terminal)
    environ = survey.read_operator_environment()
    if options.structure_only:
        return _check_structure(request, environ, options.dry_run_timeout, terminal)
    found = surveying.survey_with_progress(request, environ, options.dry_run_timeout, terminal, _import_report)
    secrets = surveying.collect_secrets(found, environ)
    if terminal.is_json:
        import json

        from ..steps import shapes
        term.print_result(terminal, json.dumps(shapes.shape_check(found, secrets), sort_keys=True))
        return BLOCKED if found.verdict.blocking else OK
    from . import checked
    if terminal.is_quiet:
        lines = checked.summarise(found, terminal)
    else:
        lines = checked.render(found, terminal, secrets) + checked.render_end(found, where, secrets)
    term.print_result(terminal, "\n".join(lines))
    return BLOCKED if found.verdict.blocking else OK


def _import_report() -> None:
    from ..steps import shapes  # noqa: F401
    from . import checked  # noqa: F401


def _check_structure(request: Request, environ: Dict[str, str], timeout_seconds: float, terminal: term.Terminal) -> int:
    import json

    from ..steps import judge, shapes
    from ..text import report
    from ..text.redact import find_secrets
    stack = load_stack(request.checkout.stack)
    if not stack.has_structure_check(request.config.kind):
        raise OperatorError("the %s runner can't check a structure alone" % request.config.kind,
                            "Leave --structure-only away.", USAGE, "usage")
    plan, said, _ = preflight.finish_dry_run(preflight.start_dry_run(request, environ, structure_only=True), timeout_seconds)
    secrets = find_secrets(dict(environ, **plan.environment)) + survey.find_source_secrets(plan)
    checks = judge.hide_secrets(judge.make_verdict(judge.judge_preflight(said)), secrets).checks
    is_sound = not any(check.status == "blocks" for check in checks)
    words = "no verdict for a launch, no digest: the machine was not looked at, and nothing that must be on its disks"
    if terminal.is_json:
        term.print_result(terminal, json.dumps({
            "schema": shapes.SCHEMA, "command": "check", "structure_only": True, "verdict": None, "digest": None,
            "stack": plan.stack, "kind": plan.kind, "config": plan.config_shown, "root": plan.root,
            "blocking": ["preflight:" + name for name in ("died", "fatal") if any(one.name == "preflight:" + name and
                         one.status == "blocks" for one in checks)], "warnings": [], "plan": None, "board": None,
            "structure": "sound" if is_sound else "unsound", "note": words,
            "checks": [{"layer": one.layer, "name": one.name, "status": one.status, "detail": one.detail} for one in checks]},
            sort_keys=True))
    else:
        lines = [report.render_title("check --structure-only", plan, ""), "",
                 "STRUCTURE: %s" % ("✓ sound" if is_sound else "✗ unsound"), "(%s)" % words, ""]
        lines += report.render_checks(terminal, checks) + [""] + report.render_last_words(said, secrets)
        term.print_result(terminal, "\n".join(lines + ([report.render_block(plan, secrets)] if plan.block else [])))
    return OK if is_sound else BLOCKED
