"""`rlrun check`: the whole judgement of one config on this machine. Changes nothing."""
import argparse
import json
import sys
import threading
from typing import Any, Dict, List, Tuple

from ..errors import BLOCKED, OK, USAGE, OperatorError
from ..stacks import load_stack
from ..steps import confirm, preflight, shapes, survey
from ..text import report
from ..text import terminal as term
from ..text.redact import find_secrets, redact
from ..text.shell import quote_words
from ..values import Choices, Request
from . import options as shared

_PROGRESS_SECONDS = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `check`."""
    shared.add_where(parser)
    add_timeout(parser)
    parser.add_argument("--structure-only", action="store_true", help="the config's structure alone, where the runner can "
                                                                     "check that; gives no verdict for a launch")


def add_timeout(parser: argparse.ArgumentParser) -> None:
    """--dry-run-timeout, of all commands that let the runner check its config."""
    parser.add_argument("--dry-run-timeout", type=_parse_seconds, default=300.0, metavar="SECONDS",
                        help="limit of the runner's own check (default: 300)")


def _parse_seconds(word: str) -> float:
    seconds = float(word)
    if not 0 < seconds < 1e7:  # also what is not a number
        raise ValueError(word)
    return seconds


def run(options: Any, terminal: term.Terminal, overrides: Tuple[str, ...]) -> int:
    """Prints the report. Exit 0 where nothing blocks, 1 otherwise."""
    where = shared.read_where(options, overrides)
    request = shared.find_request(where, terminal)
    environ = survey.read_operator_environment()
    if options.structure_only:
        return _check_structure(request, environ, options.dry_run_timeout, terminal)
    found = survey_with_progress(request, environ, options.dry_run_timeout, terminal)
    secrets = collect_secrets(found, environ)
    if terminal.is_json:
        term.print_result(terminal, json.dumps(shapes.shape_check(found, secrets), sort_keys=True))
    elif terminal.is_quiet:
        term.print_result(terminal, "\n".join(_summarise(found, terminal)))
    else:
        term.print_result(terminal, "\n".join(render(found, terminal, secrets) + _render_end(found, where)))
    return BLOCKED if found.verdict.blocking else OK


def survey_with_progress(request: Request, environ: Dict[str, str], timeout_seconds: float,
                         terminal: term.Terminal) -> survey.Survey:
    """The survey, no secret in what is shown of it; at a terminal a line says after two seconds what is waited for."""
    timer = threading.Timer(_PROGRESS_SECONDS, term.print_note, (terminal, "the runner checks its config (Ctrl-C ends that) …"))
    timer.daemon = True
    if sys.stderr is not None and sys.stderr.isatty():
        timer.start()
    try:
        return _hide_secrets(survey.survey(request, environ, timeout_seconds), environ)
    finally:
        timer.cancel()


def _hide_secrets(found: survey.Survey, environ: Dict[str, str]) -> survey.Survey:
    """Here and not where it is printed: there are many places that print a check."""
    from ..steps import judge
    secrets = collect_secrets(found, environ)
    look = tuple((label, redact(value, secrets)) for label, value in found.plan.second_look)
    return found._replace(verdict=judge.hide_secrets(found.verdict, secrets), plan=found.plan._replace(second_look=look))


def collect_secrets(found: survey.Survey, environ: Dict[str, str]) -> Tuple[str, ...]:
    """All values that must not be shown: of this environment, of the resolved one, and what the config spells out."""
    values = set(find_secrets(environ)) | set(find_secrets(found.plan.environment)) | set(survey.find_source_secrets(found.plan))
    return tuple(sorted(values, key=lambda value: (-len(value), value)))


def _summarise(found: survey.Survey, terminal: term.Terminal) -> List[str]:
    lines = [_render_verdict(found, terminal)]
    return lines + report.render_checks(terminal, [check for check in found.verdict.checks if check.status == "blocks"])


def _render_verdict(found: survey.Survey, terminal: term.Terminal) -> str:
    from ..steps import judge  # the survey has loaded it, while the runner checked its config
    return report.render_verdict(terminal, found.verdict, judge.count(found.verdict, "blocks"),
                                 judge.count(found.verdict, "advisory"))


def render(found: survey.Survey, terminal: term.Terminal, secrets: Tuple[str, ...], command: str = "check") -> List[str]:
    """The report as lines, up to the board."""
    plan = found.plan
    digest = "" if found.preflight.died else found.fingerprint.digest
    lines = [report.render_title(command, plan, digest), "", _render_verdict(found, terminal), ""]
    lines += report.render_checks(terminal, found.verdict.checks)
    if found.preflight.is_thin:
        lines += ["", "(%s runs have no preflight of their own: the rules that a train config must pass were not applied.)"
                  % plan.kind]
    if plan.topology.nodes > 1:
        lines += ["", "(multi-node: this covers this node only; run `rlrun check` once on every other node too.)"]
    lines += [""] + report.render_last_words(found.preflight, secrets)
    if plan.block:
        lines += [report.render_block(plan, secrets), ""]
    lines.append("Log         %s" % (redact(plan.train_log, secrets) or "unknown: the runner did not tell it"))
    lines.append("Commit      %s" % report.describe_git(found.git))
    lines.append("Board       %s" % report.describe_board(plan, found.board, found.is_visible))
    return lines


def _render_end(found: survey.Survey, where: shared.Where) -> List[str]:
    lines = report.render_steps(found.verdict.checks)
    if found.plan.topology.nodes > 1:
        lines.append("Other nodes: rlrun nodes %s" % quote_words(shared.name_config(where, found.plan)))
    if found.verdict.blocking:
        lines.append("Re-check: rlrun check %s" % quote_words(shared.name_config(where, found.plan)))
    else:
        choices = Choices("", False, "", "", "")
        questions = confirm.find_questions(found.plan, found.board, found.is_visible, choices)
        lines.append("Launch: %s" % confirm.describe_confirm_line(found.plan, found.fingerprint.digest, questions, choices,
                                                                  shared.name_config(where, found.plan), shared.name_program()))
    return lines


def _check_structure(request: Request, environ: Dict[str, str], timeout_seconds: float, terminal: term.Terminal) -> int:
    from ..steps import judge
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
            "structure": "sound" if is_sound else "unsound", "note": words,
            "checks": [{"layer": one.layer, "name": one.name, "status": one.status, "detail": one.detail} for one in checks]},
            sort_keys=True))
    else:
        lines = [report.render_title("check --structure-only", plan, ""), "",
                 "STRUCTURE: %s" % ("✓ sound" if is_sound else "✗ unsound"), "(%s)" % words, ""]
        lines += report.render_checks(terminal, checks) + [""] + report.render_last_words(said, secrets)
        term.print_result(terminal, "\n".join(lines + ([report.render_block(plan, secrets)] if plan.block else [])))
    return OK if is_sound else BLOCKED
