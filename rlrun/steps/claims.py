"""What a live run has laid claim to and may not hold yet: its ports are bound, and its GPUs filled, minutes after its start."""
from typing import List, NamedTuple, Tuple

from ..values import Check, Machine, Plan
from . import record
from .judge_machine import is_excluded_by


class Claim(NamedTuple):
    """What the record of a live run says that it takes of this machine."""

    id: str
    pid: int
    ports: Tuple[int, ...]
    gpus: Tuple[str, ...]


def name_gpus(plan: Plan) -> Tuple[str, ...]:
    """The GPUs that a plan takes, as CUDA_VISIBLE_DEVICES names them, else the first ones by number; none where their number
    is unknown."""
    if not plan.gpu_count:
        return ()
    visible = plan.environment.get("CUDA_VISIBLE_DEVICES")
    names = [str(number) for number in range(plan.gpu_count)] if visible is None else [
        word.strip() for word in visible.split(",") if word.strip()]
    return tuple(names[:plan.gpu_count])


def list_claims(plan: Plan, machine: Machine) -> List[Claim]:
    """The claims of recorded runs that live, in this checkout and in those of the machine's live runs; not of runs that block
    anyway."""
    claims = []
    beside = [run for run in machine.runs if not is_excluded_by(plan, run)]
    for root in sorted({plan.root} | {run.root for run in beside if run.root}) if beside else ():
        for one in record.list_records(root):
            identity = record.read_identity(one)
            if identity and not one["exit"] and record.judge_state(one)[0] == "running":
                claims.append(Claim(one["id"], identity.pid, tuple(one["ports"]), tuple(map(str, one["gpus"]))))
    return claims


def judge_claims(plan: Plan, machine: Machine) -> List[Check]:
    """Does a live run want what this launch wants, before it has got it?"""
    if plan.is_submission:
        return []
    checks = []
    listening = {row.port for row in machine.listeners}
    gpus = name_gpus(plan)
    for claim in list_claims(plan, machine):
        ports = [port for port in plan.ports if port.number in claim.ports and port.number not in listening]
        if ports:
            checks.append(Check("live", "port:conflict", "blocks", "%s will be bound by the run that pid %d began (%s)" % (
                ", ".join("%d (%s)" % (port.number, port.purpose) for port in ports), claim.pid, claim.id),
                "Wait until that run is over, or move this run's ports in the config."))
        same = [name for name in gpus if name in claim.gpus]
        if same:
            checks.append(Check("live", "gpu:foreign", "blocks", "GPU %s is taken by the run that pid %d began (%s)" % (
                ",".join(same), claim.pid, claim.id), "Wait until that run is over, or show this one other GPUs: "
                "CUDA_VISIBLE_DEVICES."))
    return checks
