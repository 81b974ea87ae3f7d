"""Step 2, the verdict: every check in the order of the report. YES only if nothing blocks."""
import os
from typing import Dict, Iterable, List, Optional, Sequence, Tuple

from .. import child
from ..host import address
from ..stacks import load_stack
from ..text.redact import redact
from ..values import Board, Check, Git, Machine, Plan, Preflight, Sweep, Verdict
from . import claims, estimate, judge_config, judge_host, judge_machine, waiters


def judge_preflight(preflight: Preflight) -> List[Check]:
    """The runner's own verdict: counts in one row, one more for each of its warnings and refusals, verbatim."""
    counts = {level: sum(1 for line in preflight.lines if line.level == level) for level in ("OK", "WARN", "FATAL", "SKIP")}
    words = "%d ok · %d warn · %d fatal" % (counts["OK"], counts["WARN"], counts["FATAL"])
    if counts["SKIP"]:
        words += " · %d skipped" % counts["SKIP"]
    checks = []
    if preflight.died:
        checks.append(Check("preflight", "preflight:died", "blocks",
                            preflight.summary + (": " + preflight.cause if preflight.cause else ""),
                            preflight.cure or "See its last words; mend the config and check again."))
    elif preflight.skipped:
        checks.append(Check("preflight", "preflight:skipped", "skipped", preflight.skipped))
    elif preflight.is_thin:
        checks.append(Check("preflight", "preflight:thin", "pass", "the config resolves; this kind has no preflight rules, so "
                            "none were applied"))
    else:
        checks.append(Check("preflight", "preflight:fatal" if counts["FATAL"] else "preflight:ok",
                            "blocks" if counts["FATAL"] else "pass", words))
    for line in preflight.lines:
        if line.level == "WARN":
            checks.append(Check("preflight", "preflight:warn", "advisory", line.text))
        elif line.level == "FATAL":
            checks.append(Check("preflight", "preflight:fatal", "blocks", line.text, line.text))
    return checks


def judge_all(plan: Plan, preflight: Preflight, machine: Machine, sweep: Sweep, environ: Dict[str, str],
              git: Git, asked: Optional[child.Running]) -> Verdict:
    """The whole judgement of one plan on this machine. `asked`: what preflight.ask_imports started for it."""
    addresses = address.read_addresses()
    checks = judge_preflight(preflight)
    checks += judge_live(plan, machine, sweep, addresses)
    rest: List[Check] = []
    if not preflight.died and not preflight.skipped:
        rest += judge_host.judge_venv(plan) + judge_host.judge_ray(plan, machine.clusters)
        rest += judge_host.judge_address(plan, addresses[0] if addresses else "")
    rest += ([] if plan.is_submission else judge_host.judge_memory(plan)) + judge_host.judge_disks(plan)
    if plan.batch is not None:
        from . import slurm_job
        rest += slurm_job.judge_batch(plan, environ)
    if plan.is_submission:
        from . import judge_slurm
        rest += judge_slurm.judge_submission(plan, environ, estimate.estimate_run(plan))
    rest += judge_config.judge_files(plan) + judge_config.judge_outcome(plan)
    rest += load_stack(plan.stack).judge_config(plan)
    rest += judge_config.judge_secrets(plan) + judge_config.judge_git(git)
    # A job that was handed in lives in an environment of its batch system's, but for the variables that go with it.
    rest += [] if plan.is_submission else _judge_session(plan, environ) + judge_host.judge_limits()
    rest += judge_host.judge_inherited(environ, plan)
    if not preflight.died:  # last, for its answer takes longest, and yet before what it decides about
        checks += judge_host.judge_imports(plan, asked)
    return make_verdict(checks + rest)


def _judge_session(plan: Plan, environ: Dict[str, str]) -> List[Check]:
    return judge_host.judge_session(dict(environ, **plan.dropped), estimate.estimate_run(plan))


def judge_live(plan: Plan, machine: Machine, sweep: Sweep, addresses: Tuple[str, ...]) -> List[Check]:
    """The part that time changes; judged again, alone, between the yes and the launch."""
    is_head = judge_host.is_head_node(plan, addresses) is not False
    own: List[Check] = load_stack(plan.stack).judge_live(plan, machine)
    return (judge_machine.judge_jobs(plan, machine) + judge_machine.judge_gpus(plan, machine)
            + judge_machine.judge_ports(plan, machine, is_head) + judge_machine.judge_sweep(plan, sweep)
            + claims.judge_claims(plan, machine) + own
            + ([] if plan.is_submission else waiters.judge_waiting(waiters.list_waiting())))


def make_verdict(checks: Iterable[Check]) -> Verdict:
    """Sums checks up: the names that block and those that warn, each once, in order."""
    checks = tuple(checks)
    blocking = _unique(check.name for check in checks if check.status == "blocks")
    warnings = _unique(check.name for check in checks if check.status == "advisory")
    return Verdict(checks, blocking, warnings)


def _unique(names: Iterable[str]) -> Tuple[str, ...]:
    found: List[str] = []
    for name in names:
        if name not in found:
            found.append(name)
    return tuple(found)


def hide_secrets(verdict: Verdict, secrets: Sequence[str]) -> Verdict:
    """The verdict without a secret in what it quotes: a runner's warning may hold the address that it could not reach,
    password and all. `secrets`: the values that are known; what looks like one goes in any case."""
    return verdict._replace(checks=tuple(check._replace(detail=redact(check.detail, secrets), fix=redact(check.fix, secrets))
                                         for check in verdict.checks))


def count(verdict: Verdict, status: str) -> int:
    """How many checks have this status. Of a preflight's refusals the lines count, not the row that sums them up."""
    fatal_lines = sum(1 for check in verdict.checks if check.name == "preflight:fatal" and check.status == "blocks")
    total = sum(1 for check in verdict.checks if check.status == status)
    return total - 1 if status == "blocks" and fatal_lines > 1 else total


def find_serving_board(plan: Plan, boards: Tuple[Board, ...]) -> "Tuple[Board, bool]":
    """The board that concerns this plan, and whether the run would be visible on it. A board with pid 0 is none; a stack
    without boards leaves nothing to ask."""
    if not plan.has_board:
        return Board(0, None, (), 0), True
    folder = os.path.realpath(os.path.dirname(plan.train_log)) if plan.train_log else ""
    shows = load_stack(plan.stack).is_board_name(os.path.basename(plan.train_log))
    for board in boards:
        if folder in board.served and shows:
            return board, True
    return (boards[0] if boards else Board(0, None, (), 0)), False
