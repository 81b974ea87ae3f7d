"""What a live run has laid claim to and may not hold yet: its directory, its ports, its GPUs. Told by its record, not by a
process, which for its first seconds, behind a wrapper of the operator's, may look like anything."""
import os
from typing import Any, Dict, List, NamedTuple, Set, Tuple

from ..stacks import load_stack
from ..text.shell import escape_controls
from ..values import Check, Machine, Plan
from . import records
from .judge_machine import is_excluded_by

_RECORDS = 64  # the newest of a checkout; a run that lives longer than 64 launches after it holds what it takes
_MAX_GPUS = 1024
_ASK_SECONDS = 5.0


class Claim(NamedTuple):
    """What the record of a live run says that it takes."""

    id: str
    pid: int
    ports: Tuple[int, ...]
    gpus: Tuple[str, ...]
    directories: Tuple[str, ...]


def name_gpus(plan: Plan) -> Tuple[str, ...]:
    """The GPUs that a plan takes, as CUDA_VISIBLE_DEVICES names them, else the first ones by number; none where their number
    is unknown."""
    if not plan.gpu_count:
        return ()
    visible = plan.environment.get("CUDA_VISIBLE_DEVICES")
    count = min(plan.gpu_count, _MAX_GPUS)
    names = [str(number) for number in range(count)] if visible is None else [
        word.strip() for word in visible.split(",") if word.strip()]
    return tuple(names[:count])


def list_claims(plan: Plan, machine: Machine) -> List[Claim]:
    """The claims of recorded runs that live, in this checkout and in those of the machine's live runs; not of runs that block
    anyway."""
    known = {pid for run in machine.runs if is_excluded_by(plan, run) for pid in run.pids}
    roots = {plan.root} | {run.root for run in machine.runs if run.root}
    claims: Dict[int, Claim] = {}
    for root in sorted(roots):
        for one in records.list_records(root, _RECORDS):
            identity = records.read_identity(one)
            if identity and identity.pid not in known and not one["exit"] and records.judge_state(one)[0] == "running":
                claims[identity.pid] = Claim(one["id"], identity.pid, tuple(one["ports"]), tuple(map(str, one["gpus"])),
                                             tuple(os.path.realpath(str(path)) for path in one["own_dirs"]))
    return list(claims.values())


def judge_jobs_of(plan: Plan) -> List[Check]:
    """Jobs that were handed in for a directory of this plan, or for its name, by the records of its checkout: do they live? A job
    of the same config whose name is made anew at each start is told, and blocks nothing. One question to Slurm, where there is
    such a job at all; none from inside one, which was judged when it was handed in."""
    mine = {os.path.realpath(path) for path in plan.own_dirs if os.path.lexists(path)}
    found: Dict[str, Tuple[str, Dict[str, Any]]] = {}
    for one in records.list_records(plan.root, _RECORDS):
        why = _find_claim(plan, one, mine) if one["jobs"] else ""
        if why:
            found.update((job, (why, one)) for job in one["jobs"] if job not in found)
    if not found or os.environ.get("SLURM_JOB_ID", "") in found:
        return []
    from ..host import slurm_queue
    states, reason = slurm_queue.read_live(list(found), dict(os.environ), _ASK_SECONDS)
    checks = [_judge_job(plan, job, states[job], *found[job]) for job in found if job in states]
    unknown = [job for job in found if found[job][0] != "config"] if reason else []
    if unknown:
        what = "directory" if all(found[job][0] == "directory" for job in unknown) else "name"
        checks.append(Check("live", "slurm:unknown", "advisory", "whether job %s, which was handed in for this %s, still "
                            "lives could not be told: %s" % (" ".join(unknown[:4]), what, escape_controls(reason)),
                            "Ask Slurm yourself: squeue -j %s" % ",".join(unknown[:4])))
    return checks


def _find_claim(plan: Plan, one: Dict[str, Any], mine: Set[str]) -> str:
    """By what a recorded job is at what this plan writes: "directory", "name", "config"; "" where it is not."""
    if mine & {os.path.realpath(str(path)) for path in one["own_dirs"]}:
        return "directory"
    if one["stack"] != plan.stack or one["kind"] != plan.kind or not isinstance(one.get("batch"), dict):
        return ""
    if plan.name_is_volatile:
        is_same = one.get("name_is_volatile") is True and one["config_path"] == plan.config
        return "config" if is_same and plan.is_submission else ""
    is_same = bool(plan.experiment) and (one["project"], one["experiment"]) == (plan.project, plan.experiment)
    return "name" if is_same or plan.train_log and one["train_log"] == plan.train_log else ""


def _judge_job(plan: Plan, job: str, state: str, why: str, one: Dict[str, Any]) -> Check:
    stop = load_stack(plan.stack).describe_stop(0, {
        "jobs": [job], "pending": state == "PENDING", "gentle": one.get("gentle_stop") is True})
    state = escape_controls(state)
    if why == "config":
        return Check("live", "job:beside", "advisory", "Slurm job %s of this config is %s (%s); its name is another one" % (
            job, state, escape_controls(one["id"])), "See that two of it are wanted; what stops that one: %s" % stop)
    if why == "directory":
        words, fix = "was handed in for this directory, and is %s" % state, ""
    else:
        words = "of this name (%s) is %s: it writes the same log and checkpoints" % (escape_controls(plan.experiment), state)
        fix = "; or give this run a name of its own"
    return Check("live", "job:running", "blocks", "Slurm job %s %s" % (job, words),
                 "Let it finish, or stop it: %s, then look again%s." % (stop, fix))


def judge_claims(plan: Plan, machine: Machine) -> List[Check]:
    """Does a live run want what this launch wants, before it has got it?"""
    checks = judge_jobs_of(plan)
    listening = {row.port for row in machine.listeners}
    for claim in list_claims(plan, machine):
        who = "the run that pid %d began (%s)" % (claim.pid, claim.id)
        same = [path for path in plan.own_dirs if os.path.realpath(path) in claim.directories or (plan.sweep.path_globs and any(
            one.startswith(os.path.realpath(path) + os.sep) for one in claim.directories))]  # what is deleted goes whole
        if same:
            checks.append(Check("live", "job:running", "blocks", "%s is written to by %s" % (same[0], who),
                                "Let it finish, or stop it (rlrun runs %s tells how), then look again." % claim.id))
        if plan.is_submission:
            continue
        ports = [port for port in plan.ports if port.number in claim.ports and port.number not in listening]
        if ports:
            checks.append(Check("live", "port:conflict", "blocks", "%s will be bound by %s" % (
                ", ".join("%d (%s)" % (port.number, port.purpose) for port in ports), who),
                "Wait until that run is over, or move this run's ports in the config."))
        gpus = [name for name in name_gpus(plan) if name in claim.gpus]
        if gpus:
            checks.append(Check("live", "gpu:foreign", "blocks", "GPU %s is taken by %s" % (",".join(gpus), who),
                                "Wait until that run is over, or show this one other GPUs: CUDA_VISIBLE_DEVICES."))
    return checks
