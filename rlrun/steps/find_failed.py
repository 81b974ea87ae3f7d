"""The launches of a checkout that failed lately: by what was recorded of their ends and, where that says 0 or nothing, by their
logs, as `status` does. Reads only; what ended before is not opened further than its exit.json."""
import math
import os
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from ..stacks import STACKS
from ..text.redact import redact
from ..values import RunRow
from ..vitals import Quote, Target
from . import examine, find_run, gather, jobs, readback, records
from .ended import name_result

# A launch that has no runner yet may be about to start: it is told of later, and as much longer.
_START_SECONDS = 600.0
# What hands a run to Slurm is over sooner, and its own end says nothing about the job's.
_SUBMIT_SECONDS = 900.0

Collect = Callable[[Target], Tuple[str, ...]]


class Failed(NamedTuple):
    """A launch that failed. `ended_seconds`: since the epoch, None where nobody recorded it; `log`: where to look."""

    row: RunRow
    words: str
    ended_seconds: Optional[float]
    first_error: Optional[Quote]
    log: str


def find_failed(root: str, window_seconds: float, collect: Collect) -> Tuple[Tuple[Failed, ...], str]:
    """(what failed within the last `window_seconds`, newest first; in words, what Slurm does not tell). `collect`: the secrets
    that a run's quotes may hold. Whose end nobody recorded counts by its launch and by the last write to its logs."""
    now = time.time()
    found = _list_candidates(root, now - window_seconds)
    reason = jobs.ask_slurm(found)
    scene = find_run.read_scene(root) if found else find_run.Scene(root, {}, (), now)
    judged = (_judge(one, scene, now - window_seconds, collect) for one in found)
    return tuple(one for one in judged if one is not None), reason


def _list_candidates(root: str, since: float) -> List[Dict[str, Any]]:
    found = []
    for name in records.list_names(root):
        folder = os.path.join(root, records.FOLDER, name)
        ended = records.read_exit(folder)
        is_before = ended is not None and ended.get("time_seconds") is not None and ended["time_seconds"] < since
        if is_before and ((ended or {}).get("duration_seconds") or 0.0) > _SUBMIT_SECONDS:
            continue
        record = records.read_record(folder)
        if record is not None and not (is_before and not record.get("is_submission") and not record["jobs"]):
            found.append(record if record.get("is_submission") else readback.complete(record))
    return sorted(found, key=lambda one: -one["time_seconds"] if one["time_seconds"] == one["time_seconds"] else 0.0)


def _judge(record: Dict[str, Any], scene: find_run.Scene, since: float, collect: Collect) -> Optional[Failed]:
    if record["stack"] not in STACKS:
        return _judge_unread(record, since)
    target = find_run.from_record(record, scene)
    record = target.record or record
    row = records.make_row(record, scene.now_seconds)
    if target.state != "over":
        return None  # it lives, or is another node's, or nobody knows
    ended_seconds = (target.exit or {}).get("time_seconds") if not target.jobs else None
    if ended_seconds < since if ended_seconds is not None else not _is_recent(row, target, since):
        return None
    if row.state == "not started":
        return Failed(row, "it did not start: no process of it is recorded", None, None, target.launch_log)
    secrets = collect(target)
    status = examine.examine(target, gather.read_evidence(target), scene.now_seconds, secrets)
    ending, told = status.ending, {} if target.jobs else target.exit or {}  # of a job, sbatch's own end tells nothing
    result = name_result(ending)
    is_bad = result == "ended badly" or bool(told.get("status") or told.get("signal"))
    if not is_bad and not (row.state == "lost" and result == "unknown"):
        return None
    error = ending.first_error if ending else None
    words = ending.words if ending else row.state
    log = error.log if error else next((path for path in target.logs.values() if os.path.isfile(path)), "") or target.launch_log
    return Failed(row, redact(words, secrets), ended_seconds,
                  error._replace(text=redact(error.text, secrets)) if error else None, log)


def _is_recent(row: RunRow, target: Target, since: float) -> bool:
    launched = row.data["time_seconds"]
    if row.state == "not started":
        return bool(since <= launched + _START_SECONDS <= launched + row.age_seconds)
    written = max((log.modified_seconds for log in gather.stat_logs(target).values()), default=-math.inf)
    return bool(launched >= since or written >= since)


def _judge_unread(record: Dict[str, Any], since: float) -> Optional[Failed]:
    """Of a record that can't be read no more than its folder's own time is known."""
    now = time.time()
    try:
        made = os.stat(record["record"]).st_mtime
    except OSError:
        return None
    if not since <= made + _START_SECONDS <= now or record["stack"]:
        return None
    return Failed(records.make_row(record, now), "its record can't be read", None, None, "")
