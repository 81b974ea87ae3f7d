"""`rlrun check`: the whole judgement of one config on this machine. Changes nothing, and saves the plan where that is asked
for."""
import argparse
import time
from typing import Any, Dict, Optional, Tuple

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
    parser.add_argument("--save", default=None, metavar="FILE", help="save the plan that the digest names for a launch later: in "
                        "FILE, and rlrun's own copy in logs/rlrun/plans/; what moved until then is told")
    parser.add_argument("--valid-for", type=_parse_validity, default=None, metavar="TIME", help="how long the saved plan may be "
                        "launched: 12h, 90m (default: until something of it changes)")
    parser.add_argument("--node-of", default="", metavar="DIGEST", help="as another node of the run that this plan is of: the "
                        "line that `rlrun nodes CONFIG --check` prints begins with it")


def _parse_validity(word: str) -> float:
    """Seconds out of `12h`, for argparse."""
    from ..text.durations import parse_duration
    try:
        seconds = parse_duration(word)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error))
    if not seconds:
        raise argparse.ArgumentTypeError("nothing can be launched within %r" % word)
    return seconds


def run(options: Any, terminal: term.Terminal, overrides: Tuple[str, ...]) -> int:
    """Prints the report. Exit 0 where nothing blocks, 1 otherwise."""
    if options.node_of:
        from . import node_of
        return node_of.run(options, terminal, overrides)
    where = shared.read_where(options, overrides)
    _check_options(options)
    request = shared.find_request(where, terminal)
    environ = survey.read_operator_environment()
    if options.structure_only:
        return _check_structure(request, environ, options.dry_run_timeout, terminal)
    found = surveying.survey_with_progress(request, environ, options.dry_run_timeout, terminal, _import_report)
    secrets = surveying.collect_secrets(found, environ)
    failure: Optional[OperatorError] = None
    saved: Optional[Dict[str, Any]] = None
    if options.save:
        try:
            saved = _save(found, options, secrets, terminal)
        except OperatorError as error:  # the report is worth having all the same
            failure = error
    code = BLOCKED if found.verdict.blocking else OK
    if terminal.is_json:
        import json

        from ..steps import shapes
        shape = shapes.shape_check(found, secrets)
        if options.save:
            shape["saved"] = saved
        if failure:
            failure.shape = shape
            raise failure
        term.print_result(terminal, json.dumps(shape, sort_keys=True))
        return code
    from . import checked
    if terminal.is_quiet:
        lines = checked.summarise(found, terminal)
        if not found.preflight.died and not found.preflight.skipped:
            lines.insert(1, "plan %s" % found.fingerprint.digest)
    else:
        plan_file = saved["file"] if saved and not saved["kept"] else ""
        lines = checked.render(found, terminal, secrets) + checked.render_end(found, where, secrets, plan_file)
    term.print_result(terminal, "\n".join(lines))
    if failure:
        raise failure
    return code


def _check_options(options: Any) -> None:
    """OperatorError for what can't go together, or be saved to: known before the check, which takes a while."""
    if options.save == "":
        raise OperatorError("--save needs the name of a file", "For example: --save plan.json", USAGE, "usage")
    if options.valid_for is not None and not options.save:
        raise OperatorError("--valid-for is about a plan that is saved", "Say where: --save FILE", USAGE, "usage")
    if options.save and options.structure_only:
        raise OperatorError("--structure-only gives no plan that could be saved", "Leave one of them away.", USAGE, "usage")
    if options.save:
        from ..steps import saved_plan
        saved_plan.refuse_target(options.save)


def _save(found: survey.Survey, options: Any, secrets: Tuple[str, ...], terminal: term.Terminal) -> Optional[Dict[str, Any]]:
    """Saves the plan and says where; what --json tells of that, None where there is nothing that could be launched later."""
    from ..steps import saved_plan
    from ..text.durations import format_elapsed
    from ..text.shell import escape_controls
    from . import checked
    digest = found.fingerprint.digest
    if found.verdict.blocking and not checked.can_be_launched_later(found):
        term.print_error(terminal, "not saved: time alone does not lift what blocks (%s)" % ", ".join(found.verdict.blocking))
        return None
    now = time.time()
    written = saved_plan.save(found, options.save, options.valid_for, secrets, now)
    until = None if options.valid_for is None else now + options.valid_for
    term.print_note(terminal, "plan %s is saved in %s, good %s" % (
        digest, escape_controls(written.path), "until something of it changes" if until is None else "for %s, until %s UTC"
        % (format_elapsed(options.valid_for), time.strftime("%Y-%m-%d %H:%M", time.gmtime(until)))))
    if not written.kept:
        term.print_note(terminal, "the checkout's own copy could not be written (%s): launch it with `run --plan %s`" % (
            written.reason, escape_controls(written.path)))
    return {"file": written.path, "kept": written.kept or None, "valid_seconds": options.valid_for,
            "until_seconds": until, "reason": written.reason or None}


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
