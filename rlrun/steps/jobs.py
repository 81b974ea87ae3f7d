"""What Slurm says of the launches that were handed to it: asked by its own programs, all at once, and how it is told.

All questions of a look share one deadline: a Slurm that is slow or away costs a few seconds, and what it does not tell is
unknown, whatever was known before.
"""
import os
import re
import time
from typing import Any, Dict, List, Optional, Tuple

from ..host import procs
from ..host.files import read_head
from ..vitals import Target

_LOG_BYTES = 1 << 20
_ASK_SECONDS, _ALL_SECONDS = 8.0, 9.5
_LEAST_SECONDS = 1.0
# 40   0:24   00:00:24   1-02:03:04
_ELAPSED = re.compile(r"(?:(\d{1,5})-)?(?:(\d{1,5}):)?(\d{1,5}):(\d\d)\Z")
_FAILED = ("FAILED", "OUT_OF_MEMORY", "NODE_FAIL")


def ask_slurm(records: List[Dict[str, Any]], is_detailed: bool = False) -> str:
    """Puts into each record what Slurm says of its jobs: one question for all. Returns in words what it can't say.

    The jobs are those that the launch log names too: rlrun may have been gone when sbatch answered. "job_told" holds, by its id,
    all that is known of a job: `is_detailed` asks for its place in the queue and how often it was put back, too. "slurm_silence"
    says in words why Slurm did not answer, "" where it did: a job that it does not know any more is something else.
    """
    for one in records:
        one["is_asked"] = True
    submissions = [one for one in records if one["jobs"] or one.get("is_submission")]
    if not submissions:
        return ""
    from ..host import slurm
    began = time.monotonic()
    for one in submissions:
        log = one.get("submit_log") or one["launch_log"]
        text = read_head(log, _LOG_BYTES).decode("utf-8", "replace") if log else ""
        one["jobs"] = list(dict.fromkeys(one["jobs"] + list(slurm.parse_submitted(text))))
    found, reason = slurm.read_jobs([job for one in submissions for job in one["jobs"]], dict(os.environ), _ASK_SECONDS)
    live = [job for job in found.values() if not slurm.is_over(job.state) and job.source == "squeue"]
    places: Dict[str, Any] = {}
    if is_detailed and live:
        from ..host import slurm_queue
        places = slurm_queue.read_places(live, dict(os.environ), max(_LEAST_SECONDS, _ALL_SECONDS + began - time.monotonic()))
    silence = reason.split("; ")[0] if reason.startswith("squeue") else ""
    for one in submissions:
        one["slurm_silence"] = silence if any(job not in found for job in one["jobs"]) else ""
        one["job_states"] = {job: found[job].state for job in one["jobs"] if job in found}
        one["live_jobs"] = [job for job in one["jobs"] if job not in found or not slurm.is_over(found[job].state)]
        one["job_told"] = {job: _tell_facts(found[job], places.get(found[job].id)) for job in one["jobs"] if job in found}
    return reason


def _tell_facts(job: Any, place: Any) -> Dict[str, Any]:
    """All that is known of a job, as `--json` shows it; null is what Slurm did not tell."""
    return {"state": job.state, "reason": job.reason or None, "nodes": job.nodes or None, "exit_code": job.exit_code,
            "signal": job.signal, "elapsed": job.elapsed or None, "time_limit": job.time_limit or None, "left": job.left or None,
            "partition": job.partition or None, "start": _tell_start(job.start), "source": job.source,
            "by": procs.user_name(job.by) if job.by is not None else None, "place": place.place if place else None,
            "of": place.waiting or None if place else None, "restarts": place.restarts if place else None}


def _tell_start(stamp: str) -> Optional[str]:
    """When a job began, or is expected to; None where that is reckoned with a job that has no time limit."""
    from ..host import slurm_queue
    return stamp if stamp and slurm_queue.is_foreseeable(stamp) else None


def find_stop_facts(record: Dict[str, Any]) -> Dict[str, Any]:
    """What a stack's describe_stop is told of a recorded launch: the jobs that are not over, whether all of them still wait
    (None: that is known of none), and whether the batch script ends its run in good order when it is told to."""
    told = record.get("job_told") or {}
    live = [job for job in record["jobs"] if job in (record.get("live_jobs") or ())]
    states = {(told.get(job) or {}).get("state") for job in live}
    return {"jobs": live, "groups": record.get("groups") or [], "gentle": record.get("gentle_stop") is True,
            "pending": None if states == {None} else states == {"PENDING"}}


def tell_jobs(target: Target, is_short: bool = False) -> str:
    """How the jobs of a run are: `job 12 PENDING: waits for free nodes (Resources); number 2 of 3 …`. `is_short`: without what
    changes at every look."""
    told = (target.record or {}).get("job_told") or {}
    silence = tell_silence(target.record or {})
    found = []
    for job, state in target.jobs:
        from ..text import slurm_words
        words = slurm_words.describe_job(told.get(job) or {}, is_short) or (silence if state == "unknown" else "")
        glue = " " if words.startswith(("by ", "on ", "for ")) else ": "
        found.append("job %s %s%s" % (job, state, glue + words if words else ""))
    return "; ".join(found)


def tell_silence(record: Dict[str, Any]) -> str:
    """`Slurm does not answer (squeue: no end within 8 s)`; "" where it told of every job, or does not know one any more."""
    return "Slurm does not answer (%s)" % record["slurm_silence"] if record.get("slurm_silence") else ""


def tell_states(record: Dict[str, Any]) -> str:
    """The same in few words, for a column; "" for a launch without jobs."""
    from . import job_ended
    return ", ".join("job %s %s" % (job, job_ended.describe_state(record, job)) for job in record["jobs"])


def read_seconds(text: Any) -> Optional[float]:
    """Seconds of a time as Slurm prints it, [days-][hours:]minutes:seconds; None for anything else."""
    match = _ELAPSED.match(text) if isinstance(text, str) else None
    if not match:
        return None
    days, hours, minutes, seconds = (int(word or 0) for word in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def find_elapsed(record: Dict[str, Any]) -> Optional[float]:
    """Seconds that a run's jobs have run, by Slurm's clock: the longest of them. None where none has begun, or Slurm does not
    tell."""
    told = [one for one in (record.get("job_told") or {}).values() if one.get("state") != "PENDING"]
    return max((seconds for seconds in (read_seconds(one.get("elapsed")) for one in told) if seconds), default=None)


def find_start(record: Dict[str, Any], now_seconds: float) -> Optional[float]:
    """When a run's job began, in seconds since 1970; of one that waits or is over, when it was handed in."""
    handed = record["time_seconds"] if record["time_seconds"] == record["time_seconds"] else None
    is_live = any(job in (record.get("job_states") or {}) for job in record.get("live_jobs") or ())
    elapsed = find_elapsed(record) if is_live else None
    return handed if elapsed is None else now_seconds - elapsed


def find_end(record: Dict[str, Any]) -> Dict[str, Any]:
    """How a run's jobs ended, in the form of a record's exit.json: status, signal, duration_seconds; None is what neither Slurm
    nor the head's agent tells. What stands in the record itself is sbatch's."""
    told = record.get("job_told") or {}
    status, signal = _find_exit(told)
    if status is None and not signal:
        head = find_head_exit(record) or {}
        is_done = bool(record["jobs"]) and all((told.get(job) or {}).get("state") == "COMPLETED" for job in record["jobs"])
        status, signal = (0, "") if is_done else (None, "") if told else (head.get("status"), head.get("signal") or "")
    return {"status": status, "signal": signal or None, "duration_seconds": find_elapsed(record), "max_rss_kib": None,
            "time_seconds": None}


def find_exit(target: Target) -> Tuple[Any, str]:
    """(exit status, signal's name) of the first job of a run that failed, as far as Slurm tells it."""
    return _find_exit((target.record or {}).get("job_told") or {})


def _find_exit(told: Dict[str, Any]) -> Tuple[Any, str]:
    import signal
    for one in told.values():
        if one["state"] in _FAILED and (one["exit_code"] or one["signal"]):
            try:
                return one["exit_code"], signal.Signals(one["signal"]).name if one["signal"] else ""
            except ValueError:
                return one["exit_code"], "signal %d" % one["signal"]
    return None, ""


def find_head_exit(record: Dict[str, Any]) -> Optional[Dict[str, Any]]:
    """How the runner on a job's head ended, as the agent there wrote it down: {"status", "signal"}; None where it did not."""
    head = next((one for one in record.get("node_states") or () if one.role == "head" and one.phase == "ended"), None)
    ended = head.exit if head and isinstance(record.get("batch"), dict) else None
    status, signal = (ended or {}).get("status"), (ended or {}).get("signal")
    if not isinstance(status, int) and not isinstance(signal, str):
        return None
    return {"status": status if isinstance(status, int) else None, "signal": signal if isinstance(signal, str) else None}


def judge_jobs(record: Dict[str, Any]) -> str:
    """Of a run that was handed to Slurm: "live" while one of its jobs is not over, "unknown" where Slurm does not know them."""
    from .job_ended import is_blocked
    known = [job for job in record["jobs"] if record["job_states"].get(job)]
    if any(job in known for job in record.get("live_jobs") or ()):
        return "live"
    return "over" if len(known) == len(record["jobs"]) or find_head_exit(record) or any(
        is_blocked(record, job) for job in record["jobs"]) else "unknown"


def note_jobs(record: Dict[str, Any]) -> List[str]:
    """What is to be known of jobs that run: where, since when, how much of their time is left, and how each node is."""
    notes = []
    for job in record["jobs"]:
        told = (record.get("job_told") or {}).get(job) or {}
        if told.get("state") in ("RUNNING", "COMPLETING", "SUSPENDED"):
            from ..text import slurm_words
            notes.append("job %s: %s" % (job, slurm_words.describe_job(told) or told["state"]))
        elif not told and tell_silence(record):
            notes.append("job %s: %s" % (job, tell_silence(record)))
    nodes = tell_nodes(record)
    return notes + (["its nodes: %s" % nodes] if nodes else [])


def is_waiting(target: Target) -> bool:
    """Do all jobs of a run wait in the queue?"""
    return bool(target.jobs) and all(state == "PENDING" for _, state in target.jobs)


def list_job_logs(record: Dict[str, Any]) -> Dict[str, str]:
    """{name: path} of what a job whose script rlrun wrote logs beside the run's own logs: `job 12`, the batch script's and what
    rlrun on its nodes says; `node n1`, the runner's on each node; `submit`, what sbatch said. Empty for any other launch."""
    if not isinstance(record.get("batch"), dict):
        return {}
    logs = {}
    for one in record.get("node_states") or ():
        if one.log:
            logs["node %s" % (one.host or one.node)] = one.log
    facts = record["facts"] if isinstance(record.get("facts"), dict) else {}
    paths = facts.get("job_logs")
    if isinstance(paths, dict):
        logs.update({"job %s" % job: str(paths[job]) for job in record["jobs"] if paths.get(job)})
    if record.get("submit_log"):
        logs["submit"] = record["submit_log"]
    return logs


def tell_runner(record: Dict[str, Any]) -> str:
    """Where the runner of a run that Slurm has is: on its head's node, as the agent there tells it."""
    head = next((one for one in record.get("node_states") or () if one.role == "head" and one.runner), None)
    pid = (head.runner or {}).get("pid") if head else None
    return "pid %s on %s, the head" % (pid, head.host or "node 0") if head and pid else "in the job, on its nodes"


def shape_nodes(record: Dict[str, Any]) -> List[Dict[str, Any]]:
    """The nodes of a job as `--json` tells them."""
    return [{"node": one.node, "host": one.host or None, "role": one.role, "phase": one.phase, "restart": one.restart,
             "address": one.address or None, "blocking": [dict(check) for check in one.blocking], "warnings": list(one.warnings),
             "log": one.log or None, "exit": one.exit} for one in record.get("node_states") or ()]


def tell_nodes(record: Dict[str, Any]) -> str:
    """In words, how the nodes of a job are; "" for a launch that has none that tell."""
    if not isinstance(record.get("batch"), dict) or not record.get("node_states"):
        return ""
    from . import job_nodes
    total = record.get("nodes")
    return job_nodes.describe_nodes(record["node_states"], total if isinstance(total, int) and total > 0 else 1)
