"""Who waits in Slurm's queue, and in which place. Asked by squeue, with a time limit; changes nothing.

Formats as Slurm 22.05 prints them. Where jobs of others are hidden (PrivateData), they are not counted.
"""
import re
import time
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .. import child
from ..values import Outcome
from .slurm import Job, is_over
from .slurm_script import JOB_ID

# 40|40|gpu|4294901724: id, number, partitions, priority
_FORMAT = "%i|%A|%P|%Q"
_RESTARTS = "JobID:24,RestartCnt:12"
_LIVE_FORMAT = "%i|%A|%T"
# Without a time limit Slurm reckons with a year (and with centuries behind two of them): such a start is no forecast.
_FAR_SECONDS = 300 * 86400.0
# 2026-11-30T06:45:01
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\Z")


class Place(NamedTuple):
    """Where a job stands. `place`: 1 is the first; None where it does not wait, or squeue did not tell. `restarts`: how often
    Slurm has put it back into the queue; None: not told."""

    place: Optional[int]
    waiting: int  # that wait in its partition, itself among them
    restarts: Optional[int]


def read_places(jobs: Sequence[Job], env: Mapping[str, str], timeout_seconds: float) -> Dict[str, Place]:
    """The Place of each job that is not over, by its id; both questions side by side, within `timeout_seconds`. Empty where
    nothing could be told: it adds to what is known already, and is missed by nobody."""
    environ = {name: value for name, value in env.items() if not name.startswith("SQUEUE_")}
    ids = [job.id for job in jobs if JOB_ID.match(job.id)]
    if not ids:
        return {}
    deadline = time.monotonic() + timeout_seconds
    restarting = child.start(["squeue", "-h", "-O", _RESTARTS, "-j", ",".join(ids)], env=environ)
    try:
        is_waiting = any(job.state == "PENDING" for job in jobs)
        queue = child.run(["squeue", "-h", "-r", "-t", "PENDING", "-o", _FORMAT], timeout_seconds, env=environ) \
            if is_waiting else None
        outcome = child.finish(restarting, max(deadline, time.monotonic() + 0.3) - restarting.started)
    except BaseException:
        if restarting.popen is not None:
            child.end_group(restarting.popen)
        raise
    rows = parse_queue(_decode(queue)) if queue is not None else []
    restarts = parse_restarts(_decode(outcome))
    return {job.id: _find_place(job, rows, restarts.get(job.id)) for job in jobs}


def read_live(ids: Sequence[str], env: Mapping[str, str], timeout_seconds: float) -> Tuple[Dict[str, str], str]:
    """({id: state} of those jobs that are not over, "" or in words why that could not be told). One question to squeue, which
    lists all that are not over: whom it leaves out, is."""
    asked = [one for one in ids if JOB_ID.match(one)]
    if not asked:
        return {}, ""
    environ = {name: value for name, value in env.items() if not name.startswith("SQUEUE_")}
    outcome = child.run(["squeue", "-h", "--all", "-o", _LIVE_FORMAT], timeout_seconds, env=environ)
    if outcome.how != "ended" or outcome.code != 0:
        lines = [line.strip() for line in outcome.errors.decode("utf-8", "replace").split("\n") if line.strip()]
        return {}, "squeue: %s" % (lines[-1] if outcome.how == "ended" and lines else child.describe(outcome))
    states: Dict[str, str] = {}
    for line in _decode(outcome).split("\n"):
        words = [word.strip() for word in line.split("|")]
        for name in (words[:2] + [re.split(r"[_+]", words[0])[0]]) if len(words) >= 3 else ():
            if states.get(name, "PENDING") == "PENDING":  # of an array a part that runs tells more than one that waits
                states[name] = words[2].split(" ")[0]
    return {one: states[one] for one in asked if one in states and not is_over(states[one])}, ""


def find_wait(stamp: str) -> Optional[float]:
    """Seconds until a time of this machine's as Slurm writes it; None where it is none, or can't be reckoned."""
    if not _STAMP.match(stamp):
        return None
    try:
        return time.mktime(time.strptime(stamp, "%Y-%m-%dT%H:%M:%S")) - time.time()
    except (ValueError, OverflowError):
        return None


def is_foreseeable(stamp: str) -> bool:
    """Is this start a forecast? Not where it comes from a job without a time limit that is before it."""
    wait = find_wait(stamp)
    return wait is None or wait < _FAR_SECONDS


def parse_queue(text: str) -> List[Tuple[str, int, Tuple[str, ...], int]]:
    """(id, number, partitions, priority) of each job that waits, out of `squeue -o "%i|%A|%P|%Q"`."""
    found = []
    for line in text.split("\n"):
        words = [word.strip() for word in line.split("|")]
        if len(words) == 4 and words[1].isdecimal() and words[3].isdecimal() and len(words[1] + words[3]) < 40:
            found.append((words[0], int(words[1]), tuple(words[2].split(",")), int(words[3])))
    return found


def parse_restarts(text: str) -> Dict[str, int]:
    """{id: how often it was started again}, out of `squeue -O JobID,RestartCnt`."""
    rows = [line.split() for line in text.split("\n")]
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdecimal() and len(row[1]) < 10}


def _find_place(job: Job, rows: Sequence[Tuple[str, int, Tuple[str, ...], int]], restarts: Optional[int]) -> Place:
    own = next((row for row in rows if row[0] == job.id), None)
    if job.state != "PENDING" or own is None:
        return Place(None, 0, restarts)
    same = [row for row in rows if set(row[2]) & set(own[2])]
    before = sum(1 for row in same if (-row[3], row[1]) < (-own[3], own[1]))  # of equal priority the older one first
    return Place(before + 1, len(same), restarts)


def _decode(outcome: Outcome) -> str:
    return outcome.output.decode("utf-8", "replace") if outcome.how == "ended" and outcome.code == 0 else ""
