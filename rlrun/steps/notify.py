"""Being told of a run: its gate, its first stall, its end. Runs in the keeper, beside the runner and after it; judges as `gate`
and `status` do, from the run's own record and logs, and hands what there is to tell to tell.py.

The keeper is a fork: whatever is needed here is imported by `import_all` before it, for the pyz may be deleted or replaced.
"""
import os
import time
from typing import Any, Callable, Dict, NamedTuple, Optional

from ..errors import BLOCKED, OK, OperatorError
from ..health import metrics
from ..host import procs
from ..stacks import STACKS, load_health, load_recognisers, load_stack
from ..text.durations import format_elapsed
from ..values import Process
from ..vitals import Target
from . import examine, find_run, gather, grow, judge_gate, readback, records, tell
from .ended import name_result
from .tell import Event, Order, prepare

__all__ = ["Event", "Order", "import_all", "prepare", "tell_end", "watch"]

# A look at a run is followed by a pause: longer with every look, but no longer than a few steps of the run take…
_FIRST_SECONDS = 0.5
_LONGER = 1.2
_MOST_SECONDS = 15.0
_STEPS = 5.0
_LEAST_SECONDS = 1.0
# …and by so many times the processor time that it took, so that all of them together take less than 0.4 % of one.
_COST_TIMES = 250.0
_SLICE_SECONDS = 0.5
# The run is over, and its end is to be told.
_LATE_SECONDS = 20.0
_GATE_POINTS = 2000


class Seen(NamedTuple):
    """What a watch knows: the evidence, what is still to be told, and since when no step has come (monotonic)."""

    growing: Optional[grow.Growing]
    wants_gate: bool
    wants_stall: bool
    last_step: Optional[int]
    since: float


def import_all(stack: str) -> None:
    """Imports what the keeper will need of rlrun and of Python, in functions too. `stack`: the run's."""
    import fnmatch  # noqa: F401  (what functions import, here and below)
    import shlex  # noqa: F401
    import traceback  # noqa: F401
    import urllib.parse  # noqa: F401

    from ..health import endings, faults  # noqa: F401
    from ..host import oom, slurm  # noqa: F401
    from ..text import redact, shell  # noqa: F401
    from . import find_files, jobs  # noqa: F401
    if stack in STACKS:
        load_stack(stack)
        load_health(stack)
    load_recognisers()


def watch(order: Order, is_over: Callable[[], bool]) -> None:
    """Tells of the gate and of the first stall, each once; returns when both are told, or the run is over. Where the run ends
    with its gate undecided, what can be said of it is told now; of a run without a step its end tells."""
    target = _find_target(order, {})
    if target is None or not judge_gate.has_gates(target.stack, target.kind) or (target.record or {}).get("is_submission"):
        return
    seen = Seen(None, True, True, None, time.monotonic())
    pause = _FIRST_SECONDS
    while seen.wants_gate or seen.wants_stall:
        started = _read_cpu_seconds()
        was_over = is_over()  # asked first: what a look finds after the end is all that there is
        seen = _look(order, seen, was_over, is_over)
        if was_over:
            return
        pause = min(_MOST_SECONDS, pause * _LONGER)
        _sleep(max(_fit_pause(pause, seen), (_read_cpu_seconds() - started) * _COST_TIMES), is_over)


def _read_cpu_seconds() -> float:
    """The processor time of this thread."""
    return time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID)


def _fit_pause(pause: float, seen: Seen) -> float:
    growing = seen.growing
    points = [point for track in growing.evidence.tracks.values() for point in track.points] if growing else []
    usual = metrics.measure_pace(points).usual
    return pause if usual is None else min(pause, max(_LEAST_SECONDS, usual * _STEPS))


def _sleep(seconds: float, is_over: Callable[[], bool]) -> None:
    ends = time.monotonic() + seconds
    while not is_over():
        left = ends - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(_SLICE_SECONDS, left))


def _find_target(order: Order, processes: Dict[int, Process], result: Optional[Dict[str, Any]] = None) -> Optional[Target]:
    """The run as its record tells it, without a look at all of the machine. `result`: how it ended, for a disk on which that
    could not be written. None where the record is gone or can't be read."""
    found = records.read_record(order.record)
    if not found or found["stack"] not in STACKS:
        return None
    if result is not None and not found["exit"]:
        found["exit"] = dict(result)
    return find_run.from_record(found, find_run.Scene(order.root, processes, (), time.time()))


def _look(order: Order, seen: Seen, was_over: bool, is_over: Callable[[], bool]) -> Seen:
    target = _find_target(order, {})
    if target is None:
        return seen
    limit = _GATE_POINTS if seen.wants_gate else gather.REPORT_POINTS
    growing = grow.start(target, limit) if seen.growing is None else grow.update(seen.growing, target)
    steps = [point.step for track in growing.evidence.tracks.values() for point in track.points if point.is_training]
    last = max(steps) if steps else None
    since = seen.since if last == seen.last_step else time.monotonic()
    seen = seen._replace(growing=growing, last_step=last, since=since)
    if seen.wants_gate:
        event = _judge_gate(growing, was_over)
        if event:
            tell.send(order, event, _LATE_SECONDS if was_over else tell.LIMIT_SECONDS)
            seen = seen._replace(wants_gate=False, growing=growing if was_over else grow.start(target))
    if seen.wants_stall and not is_over() and _is_still(seen):  # asked anew: to tell of the gate may have taken a minute
        event = _find_stall(order, growing)
        if event:
            tell.send(order, event)
            seen = seen._replace(wants_stall=False)
    return seen


def _make_event(target: Target, event: str, result: str, words: str, step: Optional[int] = None) -> Event:
    log = next((path for path in target.logs.values() if os.path.isfile(path)), "") or target.launch_log
    return Event(event, result, "%s %s" % (target.name, words), target.name, target.kind, log, "" if step is None else str(step))


def _judge_gate(growing: grow.Growing, was_over: bool) -> Optional[Event]:
    """The gates, once they are decided; None while they are waited for."""
    target = growing.target
    try:
        judged = judge_gate.judge(growing, 0)
    except OperatorError as error:
        return _make_event(target, "gate", "unknown", "has no gate: %s" % error.message)
    if judged.code is None and not (was_over and judged.step is not None):
        return None
    result = {OK: "passed", BLOCKED: "failed"}.get(-1 if judged.code is None else judged.code, "unknown")
    why = "; ".join("%s: %s" % (one.name, one.words) for one in judged.results if one.state == "failed" and one.words)
    words = "(%s): %s%s" % (target.kind, judge_gate.conclude(judged), "; " + why if why else "")
    return _make_event(target, "gate", result, words, judged.step)


def _is_still(seen: Seen) -> bool:
    """May it have stalled? Cheaply: no stall is one before its logs, or its steps, have stood still for that long."""
    if seen.growing is None:
        return False
    files = seen.growing.evidence.files
    health = load_health(seen.growing.target.stack)
    logs = [files[name] for name in health.SOURCES if name in files] or list(files.values())
    idle = time.time() - max(log.modified_seconds for log in logs) if logs else 0.0
    return max(idle, time.monotonic() - seen.since) >= metrics.STALL_AT_LEAST_SECONDS


def _find_stall(order: Order, growing: grow.Growing) -> Optional[Event]:
    status = examine.examine(growing.target, growing.evidence, time.time(), order.secrets)
    found = next((one for one in status.findings if one.name == "run:stalled"), None)
    if found is None:
        return None
    return _make_event(growing.target, "stalled", "stalled", "(%s): %s" % (growing.target.kind, found.words), status.step)


def tell_end(order: Order, result: Dict[str, Any]) -> None:
    """Tells how the run ended, by what the keeper saw (`result`: what exit.json holds) and by its logs: exit 0 alone is no
    success (S11). Where the logs can't be judged the end is told all the same, and then the failure raised. It is the last that
    is told: a watch in another thread tells nothing any more."""
    tell.take_turn()
    try:
        event = _judge_end(order, result)
    except Exception as error:
        plain = _describe_plain(order, result, "; its logs could not be judged (%s)" % type(error).__name__)
        tell.send(order, _add_exit(plain, result))
        raise
    tell.send(order, _add_exit(event, result))


def _add_exit(event: Event, result: Dict[str, Any]) -> Event:
    status, name = result.get("status"), result.get("signal")
    return event._replace(status="" if status is None else str(status), signal=str(name or ""))


def _describe_plain(order: Order, result: Dict[str, Any], more: str) -> Event:
    """By its exit alone."""
    status, name = result.get("status"), result.get("signal")
    words = "killed by %s" % name if name else "exit status %s" % status
    label = os.path.basename(order.record)
    verdict = "ended badly" if status or name else "unknown"
    return Event("ended", verdict, "%s has ended: %s%s" % (label, words, more), label, "", "")


def _judge_end(order: Order, result: Dict[str, Any]) -> Event:
    target = _find_target(order, procs.read_processes(), result)
    if target is None:
        return _describe_plain(order, result, "; its record can't be read")
    if (target.record or {}).get("is_submission") and result.get("status") == 0:
        return _describe_handed(target)
    status = examine.examine(target, gather.read_evidence(target), time.time(), order.secrets)
    ending = status.ending
    verdict = name_result(ending)
    lasted = result.get("duration_seconds")
    words = "(%s) %s: %s%s" % (target.kind, "has ended" if verdict == "unknown" else verdict,
                               ending.words if ending else "how is not known",
                               ", after %s" % format_elapsed(lasted) if isinstance(lasted, (int, float)) else "")
    left = [pid for label, pid in target.pids if label == "left behind"]
    words += "; %d of its processes live on" % len(left) if left else ""
    error = ending.first_error if ending else None
    if error is not None:
        words += "; first error: %s (%s:%s)" % (error.text, error.log, error.line if error.line is not None else error.offset)
    return _make_event(target, "ended", verdict, words, status.step)


def _describe_handed(target: Target) -> Event:
    jobs = " ".join(readback.complete(target.record or {}).get("jobs") or ())
    words = "(%s): handed to Slurm%s; of the job's end Slurm tells: sbatch --mail-type=END,FAIL" % (
        target.kind, " as job " + jobs if jobs else "")
    return _make_event(target, "ended", "unknown", words)
