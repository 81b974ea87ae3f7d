"""The report of a check, for `check` and for `run`: a survey in, lines out."""
from typing import List, Tuple

from ..steps import confirm, judge, records, survey
from ..text import report
from ..text import terminal as term
from ..text.redact import redact
from ..text.shell import escape_controls
from ..values import Choices
from . import options as shared

_KEPT = "\n\t"  # in a line to paste, within quotes


def summarise(found: survey.Survey, terminal: term.Terminal) -> List[str]:
    """The verdict and what blocks."""
    lines = [_render_verdict(found, terminal)]
    return lines + report.render_checks(terminal, [check for check in found.verdict.checks if check.status == "blocks"])


def _render_verdict(found: survey.Survey, terminal: term.Terminal) -> str:
    return report.render_verdict(terminal, found.verdict, judge.count(found.verdict, "blocks"),
                                 judge.count(found.verdict, "advisory"))


def render(found: survey.Survey, terminal: term.Terminal, secrets: Tuple[str, ...], command: str = "check") -> List[str]:
    """The report as lines, up to the board."""
    plan = found.plan
    digest = "" if found.preflight.died or found.preflight.skipped else found.fingerprint.digest
    lines = [report.render_title(command, plan, digest), "", _render_verdict(found, terminal), ""]
    lines += report.render_checks(terminal, found.verdict.checks)
    if found.preflight.is_thin:
        lines += ["", "(%s runs have no preflight of their own: the rules that a train config must pass were not applied.)"
                  % plan.kind]
    if plan.topology.nodes > 1 and not plan.is_submission:
        lines += ["", "(multi-node: this covers this node only; run `rlrun check` once on every other node too.)"]
    lines += [""] + report.render_last_words(found.preflight, secrets)
    if plan.block:
        lines += [report.render_block(plan, secrets), ""]
    if plan.batch is not None:
        lines += ["Batch script (in the launch's record, logs/rlrun/<record>/):"]
        lines += ["  | " + escape_controls(redact(line, secrets)) for line in plan.batch.script.rstrip("\n").split("\n")] + [""]
    log = escape_controls(redact(plan.train_log or plan.log_note, secrets))
    lines.append("Log         %s" % (log or "unknown: the runner did not tell it"))
    if plan.batch is not None:
        lines.append("Job log     %s" % plan.log_note)
    lines.append("Commit      %s" % report.describe_git(found.git))
    if plan.has_board:
        lines.append("Board       %s" % report.describe_board(plan, found.board, found.is_visible))
    return lines


def render_end(found: survey.Survey, where: shared.Where, secrets: Tuple[str, ...], plan_file: str = "") -> List[str]:
    """What to do next, and the line that launches, now or as soon as the machine is free, or checks again. `plan_file`: where
    the plan was saved, if a launch would not find it by itself."""
    lines = report.render_steps(found.verdict.checks)
    if found.plan.topology.nodes > 1 and not found.plan.is_submission:
        lines.append("Other nodes: %s" % escape_controls(shared.name_again("nodes", where, found.plan, secrets), _KEPT))
    is_liftable = can_be_launched_later(found)
    if found.verdict.blocking:
        lines.append("Re-check: %s" % escape_controls(shared.name_again("check", where, found.plan, secrets), _KEPT))
    if not found.verdict.blocking or is_liftable:
        earlier = records.find_launched(found.plan.root, found.fingerprint.digest)
        if earlier:
            lines.append("This very plan was launched before: %s" % earlier.get("id"))
        choices = Choices("", bool(earlier), "", "", "")
        questions = confirm.find_questions(found.plan, found.board, found.is_visible, choices)
        words = shared.name_config(where, found.plan) + (["--wait-free", "6h"] if is_liftable else [])
        words += ["--plan", plan_file] if plan_file else []
        line = confirm.describe_confirm_line(found.plan, found.fingerprint.digest, questions, choices, words,
                                             shared.name_program(), secrets=secrets)
        label = "Launch as soon as the machine is free" if is_liftable else "Launch"
        lines.append("%s: %s" % (label, escape_controls(line, _KEPT)))
    return lines


def can_be_launched_later(found: survey.Survey) -> bool:
    """Is something in the way, and all of it such that time can lift it? Then a launch may wait for it (--wait-free)."""
    if not found.verdict.blocking:
        return False
    from ..steps import wait_free
    return not wait_free.list_lasting(found.verdict)
