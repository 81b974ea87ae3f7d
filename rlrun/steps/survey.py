"""Steps 1 and 2 in one: everything that `check` tells and that `run` decides by. Slow readings go side by side.

What judges is imported while the runner checks its config, which takes longer; not later: the pyz may be replaced while
an operator thinks, and then nothing more can be imported from it.
"""
import os
from typing import Callable, Dict, Iterable, NamedTuple, Optional, Set, Tuple

from .. import child
from ..values import Board, Fingerprint, Git, Machine, Outcome, Plan, Preflight, Request, Sweep, Verdict
from . import preflight


class Survey(NamedTuple):
    """What was found, and the judgement."""

    request: Request
    plan: Plan
    preflight: Preflight
    outcome: Outcome
    machine: Machine
    sweep: Sweep
    verdict: Verdict
    git: Git
    fingerprint: Fingerprint
    board: Board
    is_visible: bool


def survey(request: Request, environ: Dict[str, str], timeout_seconds: float, meanwhile: Callable[[], None]) -> Survey:
    """Lets the runner check its config, reads the machine, judges. nvidia-smi and git answer while the dry run runs, the
    runner's Python while the machine is read. `meanwhile` is called once all of them are under way."""
    query = asked = git_handle = dry_run = None
    try:
        dry_run = preflight.start_dry_run(request, environ)
        from ..host import git as host_git
        from ..host import gpus, inherited
        query = gpus.start_query()
        git_handle = host_git.start_git(request.checkout.root)
        loads = [_import_judges, meanwhile]
        while loads and preflight.is_running(dry_run):
            loads.pop(0)()
        plan, said, outcome = preflight.finish_dry_run(dry_run, timeout_seconds)
        if request.slurm:
            from . import slurm_job
            plan = slurm_job.make_plan(plan, request.slurm, environ)
        plan = plan._replace(dropped=request.dropped or {}, inherited=inherited.find_inherited(environ).words)
        if request.dropped is not None:  # a yes to a clean start is none to any other
            plan = plan._replace(more_parts=dict(plan.more_parts, **{"--drop-env": "given"}))
        asked = None if said.died else preflight.ask_imports(plan)
        for load in loads:  # a quick dry run: then while the runner's Python answers
            load()
        from . import digest, guard, judge, judge_machine
        git = host_git.finish_git(git_handle)
        machine = _leave_out(guard.read_machine(query), asked)
        sweep = judge_machine.find_sweep(plan, machine)
        verdict = judge.judge_all(plan, said, machine, sweep, environ, git, asked)
    except BaseException:
        if query:
            gpus.cancel_query(query)
        if dry_run:
            preflight.drop_dry_run(dry_run)
        for running in [asked] + [one for one in git_handle or () if isinstance(one, child.Running)]:
            if running and running.popen is not None and running.popen.poll() is None:
                child.end_group(running.popen)
        raise
    board, is_visible = judge.find_serving_board(plan, machine.boards)
    return Survey(request, plan, said, outcome, machine, sweep, verdict, git,
                  digest.make_fingerprint(plan, git, name_gpus(plan)), board, is_visible)


def _import_judges() -> None:
    from . import digest, guard, judge, judge_machine  # noqa: F401


def _leave_out(machine: Machine, asked: Optional[child.Running]) -> Machine:
    """The machine without the question that is under way: its command line names what a sweep kills by."""
    if asked is None or asked.popen is None:
        return machine
    return machine._replace(processes={pid: one for pid, one in machine.processes.items() if pid != asked.popen.pid})


def name_gpus(plan: Plan) -> Tuple[str, ...]:
    """The GPUs of a plan for its digest: how many of which, by the plan's own words; the machine's state is not in it."""
    visible = plan.environment.get("CUDA_VISIBLE_DEVICES", "all")
    return ("%s of %s" % ("unknown" if plan.gpu_count is None else plan.gpu_count, visible),)


class SecondLook(NamedTuple):
    """What the look between the yes and the launch found; `changed`: what of the plan is not as it was, in words."""

    verdict: Verdict
    machine: Machine
    sweep: Sweep
    changed: Tuple[str, ...]


def look_again(found: Survey, environ: Dict[str, str]) -> SecondLook:
    """The second look, under the lock: the live part judged anew, and what of the plan changed since."""
    from ..host import address
    from ..host import git as host_git
    from . import digest, guard, judge, judge_machine
    git_handle = host_git.start_git(found.plan.root)
    machine = guard.read_machine()
    sweep = judge_machine.find_sweep(found.plan, machine)
    verdict = judge.make_verdict(judge.judge_live(found.plan, machine, sweep, address.read_addresses()))
    changed = tuple(path for path, value in digest.hash_sources(found.plan).items()
                    if found.fingerprint.parts.get("file %s" % path) != value)
    git = host_git.finish_git(git_handle)
    if git.commit and found.git.commit and git[:1] + git[2:] != found.git[:1] + found.git[2:]:  # the branch's name is no matter
        changed += ("the checkout is at another commit, or other files of it are modified",)
    return SecondLook(verdict, machine, sweep, changed)


def read_operator_environment() -> Dict[str, str]:
    """The environment that the runner gets: the operator's own, untouched."""
    return dict(os.environ)


def find_source_secrets(plan: Plan) -> Tuple[str, ...]:
    """The secrets that config and templates spell out: a dry run that died has shown no environment to know them by."""
    return find_assigned(plan.sources)


def find_assigned(paths: Iterable[str]) -> Tuple[str, ...]:
    """The secrets that these files assign to a name of one."""
    from ..text import redact
    found: Set[str] = set()
    for path in paths:
        try:
            with open(path, "rb") as file:
                found.update(redact.find_assigned_secrets(file.read(1 << 20).decode("utf-8", "replace")))
        except OSError:
            continue
    return tuple(sorted(found))
