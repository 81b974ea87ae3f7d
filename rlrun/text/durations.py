"""Times and sizes in words. No clock is read here."""
import math
import re
from typing import Optional

# 2d   1h30m   1.5h   45s   90
_DURATION = (r"(?:([0-9]{1,6}(?:\.[0-9]+)?)d)?(?:([0-9]{1,6}(?:\.[0-9]+)?)h)?(?:([0-9]{1,6}(?:\.[0-9]+)?)m)?"
             r"(?:([0-9]{1,9}(?:\.[0-9]+)?)s?)?\Z")
_ANY_LENGTH = re.sub(r"\{1,[69]\}", "+", _DURATION)
_UNIT_SECONDS = (86400, 3600, 60, 1)
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def format_elapsed(seconds: float) -> str:
    """`45s`, `12m`, `2h 05m`, `3d 4h`: two units at most, rounded down. A clock that went back counts as 0s."""
    if not math.isfinite(seconds):
        return "unknown"
    whole = max(0, int(seconds))
    if whole < 60:
        return "%ds" % whole
    if whole < 3600:
        return "%dm" % (whole // 60)
    if whole < 86400:
        return "%dh %02dm" % (whole // 3600, whole % 3600 // 60)
    return "%dd %dh" % (whole // 86400, whole % 86400 // 3600)


def format_age(seconds: float) -> str:
    """`just now`, `12m ago`; `in 5m` where another machine's clock is ahead."""
    if not math.isfinite(seconds):
        return "unknown"
    if -60 < seconds < 5:
        return "just now"
    return "in " + format_elapsed(-seconds) if seconds < 0 else format_elapsed(seconds) + " ago"


def write_duration(seconds: float) -> str:
    """`6h`, `90m`, `45s`: as parse_duration takes it, in whole seconds, at least one."""
    whole = max(1, round(seconds))
    size, unit = next(pair for pair in ((3600, "h"), (60, "m"), (1, "s")) if whole % pair[0] == 0)
    return "%d%s" % (whole // size, unit)


def parse_duration(text: str) -> float:
    """Takes `6h`, `90m`, `45s`, `1h30m`, `1.5h`, `2d` or plain seconds; gives seconds. Raises ValueError otherwise."""
    word = text.strip().lower()
    found = re.match(_DURATION, word)
    if word and not found and re.match(_ANY_LENGTH, word):
        raise ValueError("too long a time: %s%s (at most 999999d, 999999h, 999999m or 999999999s)" % (
            word[:20], "\u2026" if word[20:] else ""))
    if not word or not found:
        raise ValueError("not a duration: %r (write 45s, 90m, 1.5h, 1h30m or 1d)" % text)
    return sum(float(number) * seconds for number, seconds in zip(found.groups(), _UNIT_SECONDS) if number)


def format_bytes(size: float) -> str:
    """`900 B`, `12 KiB`, `640 MiB`, `128.4 GiB`: one digit after the point from GiB on."""
    amount = float(size)
    for exponent, unit in enumerate(_BYTE_UNITS):
        shown = "%.1f" % amount if exponent >= 3 else "%.0f" % amount
        if abs(float(shown)) < 1024 or unit == _BYTE_UNITS[-1]:  # 1023.97 GiB rounds to a full TiB
            break
        amount /= 1024
    return "%s %s" % (shown, unit)


def format_mib(mib: Optional[float]) -> str:
    """A size given in MiB, as nvidia-smi does; `unknown` for None."""
    return "unknown" if mib is None else format_bytes(mib * 1024 * 1024)
