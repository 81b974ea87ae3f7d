"""What a live run has laid claim to and may not hold yet: its directory, its ports, its GPUs. Told by its record, not by a
process, which for its first seconds, behind a wrapper of the operator's, may look like anything."""
import os
from typing import Dict, List, NamedTuple, Tuple

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
    """Jobs that were handed in for the directories of this plan, by their records: do they live?"""
    mine = {os.path.realpath(path) for path in plan.own_dirs if os.path.lexists(path)}
    jobs = [job for one in (records.list_records(plan.root, _RECORDS) if mine else []) for job in one["jobs"]
            if mine & {os.path.realpath(str(path)) for path in one["own_dirs"]}]
    if not jobs:
        return []
    from ..host import slurm
    found, reason = slurm.read_jobs(jobs, dict(os.environ), _ASK_SECONDS)
    checks = [Check("live", "job:running", "blocks", "Slurm job %s was handed in for this directory, and is %s" % (
        job, found[job].state), "Let it finish, or scancel %s, then look again." % job)
        for job in jobs if job in found and not slurm.is_over(found[job].state)]
    unknown = [job for job in jobs if job not in found]
    if unknown and reason:
        checks.append(Check("live", "slurm:unknown", "advisory", "whether job %s, which was handed in for this directory, still "
                            "lives could not be told: %s" % (" ".join(unknown[-4:]), reason),
                            "Ask Slurm yourself: squeue -j %s" % ",".join(unknown[-4:])))
    return checks


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
