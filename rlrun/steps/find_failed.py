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
from . import examine, find_run, gather, hidden, jobs, readback, records
from .ended import name_result

# A launch that has no runner yet may be about to start: it is told of later, and as much longer.
_START_SECONDS = 600.0
# What hands a run to Slurm is over sooner, and its own end says nothing about the job's.
_SUBMIT_SECONDS = 900.0
_NOT_STARTED = "it did not start: no process of it is recorded"

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
    that a run's quotes may hold. Whose end nobody recorded counts by its launch and by the last write to its logs.
    OperatorError (exit 5) where the launches can't be listed."""
    now = time.time()
    hidden.refuse_hidden(root)
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
    if record["state"] == "unreadable":
        return _judge_unread(record, scene.now_seconds, since)
    if record["stack"] not in STACKS:
        return _judge_unknown(record, scene.now_seconds, since)
    target = find_run.from_record(record, scene)
    record = target.record or record
    row = records.make_row(record, scene.now_seconds)
    if target.state == "live":
        return None
    ended_seconds = (target.exit or {}).get("time_seconds") if not target.jobs else None
    written = max((log.modified_seconds for log in gather.stat_logs(target).values()), default=-math.inf)
    if not _is_within(row, ended_seconds, written, since):
        return None
    if row.state == "not started":
        return Failed(row, _NOT_STARTED, None, None, target.launch_log)
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


def _is_within(row: RunRow, ended_seconds: Optional[float], written: float, since: float) -> bool:
    """`ended_seconds`: as it was recorded; `written`: when its logs were, last."""
    if ended_seconds is not None:
        return ended_seconds >= since
    launched = row.data["time_seconds"]
    if row.state == "not started":
        return bool(since <= launched + _START_SECONDS <= launched + row.age_seconds)
    return bool(launched >= since or written >= since)


def _judge_unknown(record: Dict[str, Any], now: float, since: float) -> Optional[Failed]:
    """By its end alone, for whose logs there is nobody to read them."""
    row = records.make_row(record, now)
    ended = record["exit"] or {}
    ended_seconds = ended.get("time_seconds") if not record["jobs"] else None
    if not _is_within(row, ended_seconds, _read_time(record["launch_log"]), since):
        return None
    if record["jobs"]:
        from ..host import slurm
        is_bad = any(slurm.is_over(state) and state != "COMPLETED" for state in record["job_states"].values())
    else:
        is_bad = row.state in ("lost", "not started") or bool(record["exit"]) and ended.get("status") != 0
    if not is_bad:
        return None
    words = {"not started": _NOT_STARTED, "lost": "lost: nobody recorded its end"}.get(row.state, row.state)
    return Failed(row, "%s; of a training system that this rlrun does not know%s" % (
        words, " (%s)" % record["stack"] if record["stack"] else ""), ended_seconds, None, record["launch_log"])


def _judge_unread(record: Dict[str, Any], now: float, since: float) -> Optional[Failed]:
    """Of a record that can't be read no more than the time of its files is known, and whether its keeper wrote how it ended. One
    that is not there may be about to be written."""
    ended = record["exit"] or {}
    why = hidden.describe_hidden(record["record"])
    path = os.path.join(record["record"], "record.json")
    made = max(_read_time(record["record"]), _read_time(path))
    made = ended["time_seconds"] if ended.get("time_seconds") is not None else made
    wait = 0.0 if why or ended or os.path.lexists(path) else _START_SECONDS
    if made < since if not wait else not since <= made + wait <= now:
        return None
    row = records.make_row(record, now)
    told = "; %s" % row.state if ended else ""
    return Failed(row, "its record can't be read%s%s" % (" (%s)" % why if why else "", told),
                  ended.get("time_seconds"), None, "")


def _read_time(path: str) -> float:
    """When it was last written, -inf where it is not there."""
    try:
        return os.stat(path).st_mtime
    except (OSError, ValueError):
        return -math.inf
