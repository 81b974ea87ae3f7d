"""When cron will start something: what a time means on this machine, and what is odd about it. By the machine's own zone."""
import os
import re
import time
from typing import Callable, List, NamedTuple, Tuple, TypeVar

from ..errors import USAGE, OperatorError
from ..text.durations import format_elapsed

# glibc's words for "the machine's own zone", whatever TZ says: cron does not read a user's TZ (crontab(5), LIMITATIONS).
MACHINE_ZONE = ":/etc/localtime"
# 02:00   2026-12-01 02:00   2026-12-01T02:00
_WHEN = re.compile(r"(?:([0-9]{4})-([0-9]{2})-([0-9]{2})[ T])?([0-9]{1,2}):([0-9]{2})\Z")
_DAY_SECONDS = 86400
_YEAR_DAYS = 366
_GAP_DAYS = 370  # in which every zone that puts its clocks forward does so

_Value = TypeVar("_Value")


class When(NamedTuple):
    """The next time, by the machine's clock and zone. `zone` is its name for people, `notes` what is odd about the time."""

    year: int
    month: int
    day: int
    hour: int
    minute: int
    seconds: float  # since 1970
    is_daily: bool
    zone: str
    notes: Tuple[str, ...]


def find_time(text: str, now_seconds: float, is_daily: bool, zone: str = MACHINE_ZONE) -> When:
    """What `02:00` or `2026-12-01 02:00` means on this machine; without a date the next time that it comes. OperatorError
    (exit 2) for what is no time, is past or more than a year away, or does not exist on that day (the clocks are put forward).
    """
    found = _WHEN.match(text.strip())
    if not found:
        raise _refuse("--at takes 02:00, or '2026-12-01 02:00', not %r" % text)
    hour, minute = int(found.group(4)), int(found.group(5))
    if hour > 23 or minute > 59:
        raise _refuse("--at %s: a day has no such time" % text)
    if found.group(1) and is_daily:
        raise _refuse("--daily goes with a time alone, not with a date: --at %02d:%02d" % (hour, minute))
    if found.group(1):
        day = tuple(int(one) for one in found.groups()[:3])
        return _call_in_zone(zone, lambda: _make_dated(text, day, hour, minute, now_seconds))
    return _call_in_zone(zone, lambda: _make_next(hour, minute, now_seconds, is_daily))


def format_time(seconds: float, zone: str = MACHINE_ZONE) -> str:
    """`2026-12-01 02:00`, by the machine's zone. `seconds`: since 1970."""
    return _call_in_zone(zone, lambda: time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds)))


def _call_in_zone(zone: str, call: Callable[[], _Value]) -> _Value:
    before = os.environ.get("TZ")
    os.environ["TZ"] = zone
    time.tzset()
    try:
        return call()
    finally:
        if before is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = before
        time.tzset()


def _refuse(message: str, hint: str = "rlrun schedule --help") -> OperatorError:
    return OperatorError(message, hint, USAGE, "time")


def _make_dated(text: str, day: Tuple[int, ...], hour: int, minute: int, now_seconds: float) -> When:
    moments = _list_moments(day, hour, minute)
    if not moments:
        words = _describe_gap(day, hour, minute) if _list_moments(day, 12, 0) else "--at %s: there is no such day" % text
        raise _refuse(words, "Take another time.")
    if moments[-1] <= now_seconds:
        raise _refuse("%s is past: it is %s here" % (text, time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(now_seconds))),
                      "Take a time to come; cron goes by the machine's zone, whatever TZ says.")
    if moments[0] - now_seconds > _YEAR_DAYS * _DAY_SECONDS:
        raise _refuse("%s is more than a year away, and a crontab line has no year: cron would start it each year before" % text,
                      "Schedule it when less than a year is left.")
    return _make_when(day, hour, minute, moments, now_seconds, False)


def _make_next(hour: int, minute: int, now_seconds: float, is_daily: bool) -> When:
    """The first day on which that time is still to come; one on which it does not exist is refused, or, daily, left out."""
    for days in range(3):
        day = _shift_day(now_seconds, days)
        moments = _list_moments(day, hour, minute)
        if not moments and not is_daily and _is_to_come(day, hour, minute, now_seconds):
            raise _refuse(_describe_gap(day, hour, minute),
                          "Take another time, or name another day: --at 'YYYY-MM-DD %02d:%02d'" % (hour, minute))
        if moments and moments[0] > now_seconds:
            return _make_when(day, hour, minute, moments, now_seconds, is_daily)
    raise _refuse("no %02d:%02d within three days" % (hour, minute), "Take another time.")


def _shift_day(now_seconds: float, days: int) -> Tuple[int, int, int]:
    """Year, month and day so many days from now."""
    noon = time.localtime(now_seconds)
    shifted = time.localtime(time.mktime((noon[0], noon[1], noon[2] + days, 12, 0, 0, 0, 0, -1)))
    return shifted[0], shifted[1], shifted[2]


def _is_to_come(day: Tuple[int, int, int], hour: int, minute: int, now_seconds: float) -> bool:
    return time.mktime(day + (hour, minute, 0, 0, 0, -1)) > now_seconds


def _describe_gap(day: Tuple[int, ...], hour: int, minute: int) -> str:
    return "%04d-%02d-%02d has no %02d:%02d here: the clocks are put forward then" % (day + (hour, minute))


def _list_moments(day: Tuple[int, ...], hour: int, minute: int) -> List[float]:
    """When the clocks show that: never on a day that has no such time, twice where they are put back."""
    found = set()
    for is_summer in (0, 1, -1):
        try:
            seconds = time.mktime((day[0], day[1], day[2], hour, minute, 0, 0, 0, is_summer))
        except (OverflowError, ValueError):
            continue
        if tuple(time.localtime(seconds)[:5]) == tuple(day) + (hour, minute):
            found.add(seconds)
    return sorted(found)


def _make_when(day: Tuple[int, ...], hour: int, minute: int, moments: List[float], now_seconds: float, is_daily: bool) -> When:
    coming = [one for one in moments if one > now_seconds]
    notes = ["%02d:%02d comes twice on %04d-%02d-%02d: the clocks are put back; most crons take the first"
             % ((hour, minute) + tuple(day))] if len(moments) > 1 else []
    notes += _list_gaps(hour, minute, now_seconds) if is_daily else []
    return When(day[0], day[1], day[2], hour, minute, coming[0], is_daily, _name_zone(coming[0]), tuple(notes))


def _list_gaps(hour: int, minute: int, now_seconds: float) -> List[str]:
    """A note on the next day without that time, if one comes within about a year."""
    for days in range(_GAP_DAYS):
        day = _shift_day(now_seconds, days)
        if not _list_moments(day, hour, minute) and _is_to_come(day, hour, minute, now_seconds):
            return ["%s; some crons launch right after, others not at all that day" % _describe_gap(day, hour, minute)]
    return []


def _name_zone(seconds: float) -> str:
    """`Europe/Berlin, CET, UTC+0100`, the name where /etc/localtime is a link to it."""
    words = time.strftime("%Z, UTC%z", time.localtime(seconds))
    try:
        target = os.readlink("/etc/localtime") if os.environ.get("TZ") == MACHINE_ZONE else ""
    except OSError:
        target = ""
    _, found, name = target.partition("zoneinfo/")
    return "%s, %s" % (name, words) if found and name else words


def describe_time(when: When, now_seconds: float) -> str:
    """`2026-12-01 02:00 (Europe/Berlin, CET, UTC+0100), in 9h 41m`; `every day at 02:00 (…), first in 9h 41m`."""
    clock, left = "%02d:%02d" % (when.hour, when.minute), format_elapsed(when.seconds - now_seconds)
    if when.is_daily:
        return "every day at %s (%s), first in %s" % (clock, when.zone, left)
    return "%04d-%02d-%02d %s (%s), in %s" % (when[:3] + (clock, when.zone, left))
