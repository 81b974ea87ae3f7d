"""Trends and numbers in a few letters: sparklines, a progress bar, metrics as people read them. Reads nothing."""
import math
from typing import Sequence

from .glyphs import SPARKS, TIMES

_BAR_WIDTH = 30
FULL = "\u2588"
EMPTY = "\u2591"


def draw_spark(values: Sequence[float]) -> str:
    """One letter a value, the lowest the lowest block; a NaN or infinite one as a cross. All alike are drawn in the middle."""
    finite = [value for value in values if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    letters = []
    for value in values:
        if not math.isfinite(value):
            letters.append(TIMES)
        elif high - low <= 1e-12 * max(abs(high), abs(low)):
            letters.append(SPARKS[3])
        else:
            part = (value - low) / (high - low) if high - low < math.inf else (value / 2 - low / 2) / (high / 2 - low / 2)
            letters.append(SPARKS[min(7, int(part * 8))])
    return "".join(letters)


def name_trend(values: Sequence[float]) -> str:
    """`rising`, `falling` or `flat`, by the halves of the values; "" for fewer than four, and where one is not finite."""
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < 4 or len(finite) < len(values):
        return ""
    half = len(finite) // 2
    before, after = sum(finite[:half]) / half, sum(finite[-half:]) / half
    scale = max(abs(before), abs(after))
    if not math.isfinite(scale) or abs(after - before) <= 0.05 * scale:
        return "flat"
    return "rising" if after > before else "falling"


def draw_bar(part: float, width: int = _BAR_WIDTH) -> str:
    """A progress bar of `width` letters for a part between 0 and 1; an empty one for a part that is no number."""
    full = int(max(0.0, min(1.0, 0.0 if math.isnan(part) else part)) * width)
    return FULL * full + EMPTY * (width - full)


def format_number(value: float) -> str:
    """`0.3125`, `1e-06`, `5120`, `nan`: four digits that count; six just below 1, where what is missing counts (`0.99899`)."""
    if not math.isfinite(value):
        return repr(value)
    if value == int(value) and abs(value) < 1e7:
        return "%d" % value
    return ("%.6g" if 0.9 <= abs(value) < 1 else "%.4g") % value


def format_pace(seconds: float) -> str:
    """`0.8 s`, `42 s`, `3.5 min`, `1.2 h`."""
    if seconds < 10:
        return "%.2g s" % seconds if seconds < 1 else "%.1f s" % seconds
    if seconds < 120:
        return "%.0f s" % seconds
    return "%.1f min" % (seconds / 60) if seconds < 5400 else "%.1f h" % (seconds / 3600)
