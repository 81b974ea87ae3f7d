"""Whether the run that is followed still lives, and which log goes on where another one ends. Looks now and then."""
import os
import time
from typing import NamedTuple, Optional, Tuple

from ..errors import OperatorError
from ..host import procs
from ..values import Identity
from ..vitals import Target
from . import find_run, follow_logs, grow, records
from .jobs import is_waiting

# How often the run is looked up again, at least; not more often than it costs a fiftieth of the time, and Slurm more seldom.
_LOOK_SECONDS = 5.0
_JOB_SECONDS = 30.0
_COST_TIMES = 50
_MOST_SECONDS = 300.0
# So long the keeper has to write down the end of a run whose processes are gone.
_RECORD_SECONDS = 3.0
_RECORD_POLL_SECONDS = 0.3


class Sight(NamedTuple):
    """What was last known about the run that is followed."""

    target: Target
    identities: Tuple[Identity, ...]  # of its processes that matter, while it lives here
    newest: str  # the log of the newest attempt in its directory, when the following began
    is_ahead: bool  # a later attempt is followed than the one that the record is of
    is_over: bool
    is_leftover: bool  # processes of it live on though it has ended: its log may grow for ever
    next_seconds: float  # of the monotonic clock: when it is looked up again
    gone_seconds: Optional[float]  # since when its processes are gone


class Other(NamedTuple):
    """The log that goes on; `words`: what begins there."""

    name: str
    path: str
    words: str
    sight: Sight


def make_sight(target: Target, stream: follow_logs.Stream) -> Sight:
    """The Sight of a run whose log begins to be followed."""
    return Sight(target, _read_identities(target), follow_logs.find_newest(target, stream.name), False, target.state == "over",
                 _has_left(target), time.monotonic() + _LOOK_SECONDS, None)


def _read_identities(target: Target) -> Tuple[Identity, ...]:
    if target.state != "live":
        return ()
    found = [procs.read_identity(pid) for _, pid in target.pids]
    recorded = records.read_identity(target.record) if target.record else None
    return tuple(one for one in ([recorded] if recorded else found) if one)


def _has_left(target: Target) -> bool:
    return target.state == "over" and bool(target.record) and bool(records.find_left(target.record or {}, procs.read_processes()))


def look_again(sight: Sight, now_seconds: float) -> Sight:
    """The Sight by now: every few seconds by all that can be known, in between by whether its processes live."""
    if sight.is_over:
        return sight
    is_gone = bool(sight.identities) and not any(procs.is_alive(one) for one in sight.identities)
    if now_seconds < sight.next_seconds and not (is_gone and sight.gone_seconds is None):
        return sight
    target = sight.target
    if target.record or target.state == "live":  # of any other nothing can be known but that its log grows
        target = grow.refresh(target)
    gone = (sight.gone_seconds if sight.gone_seconds is not None else now_seconds) if is_gone else None
    is_over = target.state == "over"
    is_told = bool(target.exit) or not target.record or bool(target.jobs)
    if is_over and not is_told and gone is not None and now_seconds - gone < _RECORD_SECONDS:
        return sight._replace(gone_seconds=gone, next_seconds=now_seconds + _RECORD_POLL_SECONDS)
    cost = time.monotonic() - now_seconds
    is_slow = bool(target.jobs) and not is_waiting(target)
    wait = max(_JOB_SECONDS if is_slow else _LOOK_SECONDS, min(cost * _COST_TIMES, _MOST_SECONDS))
    return sight._replace(target=target, is_over=is_over, is_leftover=_has_left(target), gone_seconds=None,
                          identities=_read_identities(target), next_seconds=now_seconds + wait)


def _find_live(target: Target) -> Optional[Target]:
    """The run that lives in this one's directory, where one does."""
    try:
        found = find_run.find_run(target.run_dir, find_run.read_scene(target.root)).target if target.run_dir else None
    except OperatorError:
        return None
    return found if found is not None and found.state == "live" else None


def find_other(sight: Sight, stream: follow_logs.Stream, is_default: bool) -> Optional[Other]:
    """The log that is to be read on: of the run's next attempt, or the main one that was not there before where the launch log
    stands in for it; None while this one is right."""
    newest = follow_logs.find_newest(sight.target, stream.name)
    was_newest = not sight.newest or _is_same(sight.newest, stream.path) or not stream.path
    if newest and was_newest and not _is_same(newest, stream.path) and not _is_same(newest, sight.newest):
        later = _find_live(sight.target)
        after = make_sight(later, stream) if later else sight._replace(is_ahead=True)
        return Other(stream.name, newest, name_place(stream.path, newest) if stream.path else stream.name,
                     after._replace(newest=newest))
    if sight.is_ahead:
        return None
    logs = follow_logs.list_logs(sight.target)
    name = next(iter(logs), "") if is_default and stream.name == "launch" else stream.name
    path = logs.get(name, "")
    # A log that stands in for another, as the launch log does, goes on to be read: it has all that the other one has.
    if not path or _is_same(path, stream.path) or stream.name == name and stream.path in logs.values() \
            or not os.path.isfile(path):
        return None
    words = name if name != stream.name or not stream.path else name_place(stream.path, path)
    return Other(name, path, words, sight._replace(newest=follow_logs.find_newest(sight.target, name)))


def _is_same(path: str, other: str) -> bool:
    return bool(path) and bool(other) and os.path.realpath(path) == os.path.realpath(other)


def name_place(old: str, new: str) -> str:
    """The folder or file by which a path differs from an earlier one, as `attempt_2`."""
    before = os.path.realpath(old).split(os.sep)
    parts = os.path.realpath(new).split(os.sep)
    return next((part for place, part in enumerate(parts) if before[place:place + 1] != [part]), parts[-1])
