"""Curves as inline SVG: a chart with axes, and a sparkline. Numbers in, markup out; what is not there is not drawn."""
import math
import sys
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .markup import escape, format_number, read_number

# In units of the drawing, of which a screen shows about one a pixel.
_WIDTH, _HEIGHT = 360.0, 172.0
_TOP, _RIGHT, _BOTTOM = 10.0, 12.0, 22.0
_LETTER = 6.6  # width of a digit on the axes
# A curve of more points than four a column is thinned to the first, lowest, highest and last of each column.
_COLUMNS = 150
# The line is as wide: what is narrower can't be seen as a gap.
_VISIBLE_GAP = 2.0
_LARGEST = sys.float_info.max

Pair = Tuple[int, float]


class Curve(NamedTuple):
    """The points of one metric, by step: those that are numbers, and those that are not."""

    key: str
    numbers: Tuple[Pair, ...]
    pieces: Tuple[Tuple[Pair, ...], ...]  # the numbers again, cut where steps are missing
    odd: Tuple[Pair, ...]  # nan, inf, -inf


def read_curve(shape: Dict[str, Any]) -> Curve:
    """Takes one of `curves` of the JSON object. Points that tell no step or no value are left out."""
    pairs = []
    for step, value in shape.get("points") or []:
        number = read_number(value)
        if number is not None and isinstance(step, int) and abs(step) < 2 ** 53:
            pairs.append((step, number))
    pairs.sort(key=lambda pair: pair[0])
    # Some metrics are told at every tenth step: a gap is what is wider than half of all distances and half as much again.
    distances = sorted(after[0] - before[0] for before, after in zip(pairs, pairs[1:]))
    usual = distances[(len(distances) - 1) // 2] if distances else 1
    pieces: List[List[Pair]] = [[]]
    for index, pair in enumerate(pairs):
        if not math.isfinite(pair[1]) or (index and pair[0] - pairs[index - 1][0] > 1.5 * usual):
            pieces.append([])
        if math.isfinite(pair[1]):
            pieces[-1].append(pair)
    return Curve(str(shape.get("key")), tuple(pair for piece in pieces for pair in piece),
                 tuple(tuple(piece) for piece in pieces if piece),
                 tuple(pair for pair in pairs if not math.isfinite(pair[1])))


def find_span(curves: Sequence[Curve]) -> Optional[Tuple[int, int]]:
    """The first and last step of all curves, so that they share their axis; None where there is no point."""
    steps = [pair[0] for curve in curves for pair in curve.numbers + curve.odd]
    return (min(steps), max(steps)) if steps else None


def describe_odd(curve: Curve) -> str:
    """`NaN at 3 steps, first at step 12; inf at step 40`; "" where every value is a number."""
    words = []
    for name, test in (("NaN", math.isnan), ("inf", lambda value: value == math.inf), ("-inf", lambda value: value == -math.inf)):
        steps = [step for step, value in curve.odd if test(value)]
        if len(steps) == 1:
            words.append("%s at step %d" % (name, steps[0]))
        elif steps:
            words.append("%s at %d steps, first at step %d" % (name, len(steps), steps[0]))
    return "; ".join(words)


def find_ticks(low: float, high: float, count: int) -> List[float]:
    """Round numbers (1, 2 or 5 times a power of ten apart) from low to high, about `count` of them, never none."""
    span = high - low
    if not 1e-290 < span < math.inf:  # beyond what a power of ten can divide
        return [low, high] if low < high else [low]
    power = 10.0 ** math.floor(math.log10(span / count))
    step = min((factor * power for factor in (1, 2, 5, 10)), key=lambda one: abs(span / one - count))
    if low + step == low or high - step == high:  # nothing lies between them that a float can tell apart
        return [low, high]
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(int(first), int(last) + 1)] or [low]


def format_ticks(ticks: Sequence[float]) -> List[str]:
    """The words of an axis: with as many digits as tell them apart, scientific where they are very big or very small."""
    biggest = max(abs(tick) for tick in ticks)
    step = min((after - before for before, after in zip(ticks, ticks[1:])), default=biggest) or 1.0
    if not biggest or not math.isfinite(step):
        return [format_number(tick, 3) for tick in ticks]
    decimals = max(0, -_find_exponent(step)) if len(ticks) > 1 else 0
    if len(ticks) > 1 and 1e-3 <= biggest < 1e6 and decimals <= 9:
        return ["%.*f" % (decimals, tick if tick else 0.0) for tick in ticks]
    if len(ticks) < 2:
        return [format_number(tick) for tick in ticks]
    digits = min(16, max(0, _find_exponent(biggest) - _find_exponent(step)))
    return ["%.*e" % (digits, tick) if tick else "0" for tick in ticks]


def _find_exponent(value: float) -> int:
    """The power of ten that a number begins with; the rounding of 0.1 * 3 and the like is forgiven."""
    return int(math.floor(math.log10(abs(value)) + 1e-9))


def draw_curve(curve: Curve, span: Tuple[int, int]) -> str:
    """Takes a curve and the first and last step of the axis; gives the chart, "" for a curve without any point."""
    numbers = curve.numbers
    if not numbers and not curve.odd:
        return ""
    low, high = _find_range([value for _, value in numbers])
    values = [value for _, value in numbers]
    is_constant = bool(values) and min(values) == max(values)
    ticks = [] if not values else [values[0]] if is_constant else find_ticks(low, high, 4)
    words = format_ticks(ticks) if ticks else []
    # Room for the words of either axis: "step" stands before the first number below.
    left = max(max([len(word) for word in words] + [0]) * _LETTER + 10, (len(str(span[0])) / 2 + 5) * _LETTER)
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    first, last = span if span[0] < span[1] else (span[0] - 1, span[1] + 1)

    def place_x(step: int) -> float:
        return left + (right - left) * ((step - first) / (last - first))

    def place_y(value: float) -> float:
        return bottom - (bottom - _TOP) * _find_share(value, low, high)

    parts = ['<svg viewBox="0 0 %d %d" role="img"><title>%s</title>' % (_WIDTH, _HEIGHT, escape(_describe(curve)))]
    for tick, word in zip(ticks, words):
        y = place_y(tick)
        parts.append('<path class="grid" d="M%.1f %.1fH%.1f"/><text x="%.1f" y="%.1f" text-anchor="end">%s</text>' % (
            left, y, right, left - 6, y + 3.8, word))
    parts.append('<path class="axis" d="M%.1f %.1fH%.1f"/>' % (left, bottom, right))
    parts.extend(_draw_steps(span, place_x, right, bottom))
    line, dots = _draw_line(curve.pieces, place_x, place_y, (first, last), right - left)
    if line:
        parts.append('<path class="line" d="%s"/>' % line)
    if dots:
        parts.append('<path class="dots" d="%s"/>' % dots)
    if curve.odd:
        parts.append('<path class="odd" d="%s"/>' % _draw_odd(curve.odd, place_x, bottom))
    if len(numbers) > 1 and not is_constant:
        for pair in (find_lowest(curve), find_highest(curve)):
            parts.append('<circle class="ring" cx="%.1f" cy="%.1f" r="3.2"/>' % (place_x(pair[0]), place_y(pair[1])))
    if numbers:
        parts.append('<circle class="last" cx="%.1f" cy="%.1f" r="3.2"/>' % (place_x(numbers[-1][0]), place_y(numbers[-1][1])))
    return "".join(parts) + "</svg>"


def find_lowest(curve: Curve) -> Pair:
    """The first point of the lowest value. ValueError for a curve without numbers."""
    return min(curve.numbers, key=lambda pair: pair[1])


def find_highest(curve: Curve) -> Pair:
    """The first point of the highest value. ValueError for a curve without numbers."""
    return max(curve.numbers, key=lambda pair: pair[1])


def _find_range(values: Sequence[float]) -> Tuple[float, float]:
    """What the axis of values spans: a little more than they do, so that no line lies on the frame."""
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    if low == high:
        low, high = (low - abs(low) / 2, high + abs(high) / 2) if low else (-1.0, 1.0)
        return (low, high) if -math.inf < low < high < math.inf else (-1.0, 1.0) if abs(low) < 1 else (
            -_LARGEST, _LARGEST)
    pad = high * 0.06 - low * 0.06
    return max(low - pad, -_LARGEST), min(high + pad, _LARGEST)


def _find_share(value: float, low: float, high: float) -> float:
    """How far a value is on the way from low to high, 0 to 1; the middle where they can't be told apart."""
    span = high / 2 - low / 2  # halves: from one end of the floats to the other is a number still
    return (value / 2 - low / 2) / span if span else 0.5


def _describe(curve: Curve) -> str:
    """The chart in words, for those who do not see it."""
    numbers = curve.numbers
    words = [curve.key]
    if len(numbers) == 1:
        words.append("%s at step %d, the only value" % (format_number(numbers[0][1]), numbers[0][0]))
    elif numbers:
        words.append("%d values of steps %d to %d, from %s to %s, last %s" % (
            len(numbers), numbers[0][0], numbers[-1][0], format_number(find_lowest(curve)[1]),
            format_number(find_highest(curve)[1]), format_number(numbers[-1][1])))
    if curve.odd:
        words.append(describe_odd(curve))
    return "; ".join(words)


def _draw_steps(span: Tuple[int, int], place_x: Callable[[int], float], right: float, bottom: float) -> List[str]:
    """The axis of steps: whole round numbers, as many as have room."""
    size = max(len(str(step)) for step in span) * _LETTER
    ticks = sorted({int(round(tick)) for tick in find_ticks(span[0], span[1], max(2, min(6, int(280 / (size + 26)))))
                    if span[0] <= round(tick) <= span[1] and (abs(tick - round(tick)) < 1e-6 or span[0] == span[1])})
    parts = ['<text x="0" y="%.1f">step</text>' % (bottom + 16)]
    for tick in ticks or [span[0]]:
        x = place_x(tick)
        is_cut = x + size / 2 > right + _RIGHT  # it would reach beyond the drawing
        parts.append('<path class="axis" d="M%.1f %.1fv4"/><text x="%.1f" y="%.1f" text-anchor="%s">%d</text>' % (
            x, bottom, right + _RIGHT if is_cut else x, bottom + 16, "end" if is_cut else "middle", tick))
    return parts


def _draw_line(pieces: Sequence[Sequence[Pair]], place_x: Callable[[int], float], place_y: Callable[[float], float],
               span: Tuple[int, int], width: float) -> Tuple[str, str]:
    """The path of the line, broken where steps are missing, and the path of the points that have no neighbour."""
    is_thinned = sum(map(len, pieces)) > 4 * _COLUMNS
    kept = _thin(pieces, span) if is_thinned else [(index, pair) for index, piece in enumerate(pieces) for pair in piece]
    line: List[str] = []
    dots: List[str] = []
    run: List[str] = []
    before: Optional[Tuple[int, int]] = None
    for index, (step, value) in kept + [(-1, (0, 0.0))]:
        is_break = index < 0 or before is None or (index != before[0] and not (
            is_thinned and width * ((step - before[1]) / (span[1] - span[0])) < _VISIBLE_GAP))
        if is_break and run:
            if len(run) > 1:
                line.append("M" + "L".join(run))
            else:
                dots.append("M%sh0" % run[0])
            run = []
        if index >= 0:
            run.append("%.1f %.1f" % (place_x(step), place_y(value)))
            before = (index, step)
    return "".join(line), "".join(dots)


def _thin(pieces: Sequence[Sequence[Pair]], span: Tuple[int, int]) -> List[Tuple[int, Pair]]:
    """First, lowest, highest and last point of each column of the drawing, in order, each with the number of its piece."""
    columns: Dict[int, List[Tuple[int, Pair]]] = {}
    for index, piece in enumerate(pieces):
        for pair in piece:
            columns.setdefault(int(_COLUMNS * ((pair[0] - span[0]) / (span[1] - span[0]))), []).append((index, pair))
    kept: List[Tuple[int, Pair]] = []
    for column in sorted(columns):
        points = columns[column]
        chosen = {0, len(points) - 1, min(range(len(points)), key=lambda at: points[at][1][1]),
                  max(range(len(points)), key=lambda at: points[at][1][1])}
        kept.extend(points[at] for at in sorted(chosen))
    return kept


def _draw_odd(odd: Sequence[Pair], place_x: Callable[[int], float], bottom: float) -> str:
    """A cross at the bottom for NaN, an arrowhead at the top for inf, one at the bottom for -inf; one a place."""
    marks: Dict[str, None] = {}
    for step, value in odd:
        x = round(place_x(step))
        marks["M%d %.0fl5 5m0 -5l-5 5" % (x - 2, bottom - 6) if math.isnan(value) else "M%d %.0fl3 -5l3 5z" % (x - 3, _TOP + 3)
              if value > 0 else "M%d %.0fl3 5l3 -5z" % (x - 3, bottom - 6)] = None
    return "".join(marks)


def draw_spark(values: Sequence[float], words: str) -> str:
    """A small line without axes of the last values, oldest first; "" for fewer than two numbers. `words` say what it is."""
    numbers = [value for value in values if math.isfinite(value)]
    if len(numbers) < 2:
        return ""
    low, high = min(numbers), max(numbers)
    paths, pen = [], "M"
    x = y = 0.0
    for index, value in enumerate(values):
        if not math.isfinite(value):
            pen = "M"
            continue
        x = 4 + 112 * index / (len(values) - 1)
        y = 24 - 20 * _find_share(value, low, high)
        paths.append("%s%.1f %.1f%s" % (pen, x, y, "h0" if pen == "M" else ""))  # a point without neighbours is a dot
        pen = "L"
    return ('<svg class="spark" viewBox="0 0 120 28" role="img"><title>%s</title><path class="line" d="%s"/>'
            '<circle class="last" cx="%.1f" cy="%.1f" r="2.8"/></svg>' % (escape(words), "".join(paths), x, y))
