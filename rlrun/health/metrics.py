"""Numbers out of step lines: how long a step takes, what is left, whether it stands still or has become slow. No file is read."""
import math
import statistics
from typing import List, NamedTuple, Optional, Sequence

from ..vitals import Point

RECENT_STEPS = 10
# Nothing written for so long is a finding while the process lives, whatever a step takes (the skill's 30 minutes)…
STALL_SECONDS = 1800.0
# …and where steps are short, so many of them, but no less than this.
STALL_STEPS = 5.0
STALL_AT_LEAST_SECONDS = 600.0
# A step that is longer than half an hour by itself may take so many times its usual length.
STALL_LONG_STEPS = 3.0
SLOW_RATIO = 2.0
_SLOW_STEPS = 5


class Pace(NamedTuple):
    """Seconds a step: median of the last ten, of the first; None where no step told."""

    usual: Optional[float]
    first: Optional[float]
    longest: Optional[float]
    steps: int


def measure_pace(points: Sequence[Point]) -> Pace:
    """Out of what the step lines tell of themselves; what is no time is passed over."""
    seconds = list_seconds(points)
    if not seconds:
        return Pace(None, None, None, 0)
    recent = seconds[-RECENT_STEPS:]
    return Pace(statistics.median(recent), seconds[0], max(seconds), len(recent))


def list_seconds(points: Sequence[Point]) -> List[float]:
    """The seconds of the training steps that told them."""
    return [point.seconds for point in points
            if point.is_training and point.seconds is not None and math.isfinite(point.seconds) and 0 < point.seconds < 1e7]


def find_stall_limit(pace: Pace, may_be_long: bool) -> float:
    """After how many silent seconds a live run counts as stalled. `may_be_long`: the last thing it told of is a step that is
    followed by a validation or a checkpoint, or no step at all yet."""
    if pace.usual is None or pace.longest is None:
        return STALL_SECONDS
    long_limit = max(STALL_SECONDS, STALL_LONG_STEPS * pace.usual)
    if may_be_long:
        return long_limit
    return min(long_limit, max(STALL_AT_LEAST_SECONDS, STALL_STEPS * pace.usual))


def find_slowdown(points: Sequence[Point]) -> Optional[float]:
    """By what factor the last five steps are slower than the run's usual ones before them, where that is sharp; else None. Usual
    is the lower quartile of the medians of five in a row: a run that has been slow for long is still told, and one whose
    steps differ much is not."""
    seconds = list_seconds(points)
    before, now = seconds[:-_SLOW_STEPS], seconds[-_SLOW_STEPS:]
    if len(before) < _SLOW_STEPS or len(now) < _SLOW_STEPS:
        return None
    medians = sorted(statistics.median(before[place:place + _SLOW_STEPS]) for place in range(len(before) - _SLOW_STEPS + 1))
    usual = medians[len(medians) // 4]
    ratio = statistics.median(now) / usual
    return ratio if ratio >= SLOW_RATIO and min(now) > usual else None


def estimate_left(step: Optional[int], total: Optional[int], pace: Pace) -> Optional[float]:
    """Seconds until the last step, None where step, total or pace are unknown."""
    if step is None or total is None or pace.usual is None or total < step:
        return None
    return (total - step) * pace.usual
