"""Judgement: what the numbers and lines of a run's logs mean, by the tables of its stack. Reads no file; claims nothing
without the evidence that a signature asks for."""
import math
import re
import statistics
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ..vitals import Finding, Gate, GateResult, Metric, Point, Quote, Reading, Rule, Signature, Track

TREND_STEPS = 20
_EARLIER_AT_LEAST = 3
_WINDOW = 5
_QUOTES_AT_MOST = 4


class Text(NamedTuple):
    """The end of a log: `offset` is the byte of the file at which `data` begins, `first_line` its number (None: not counted)."""

    name: str
    path: str
    data: bytes
    offset: int
    first_line: Optional[int]


class Evidence(NamedTuple):
    """What there is to judge by. `quote` gives the place of a metric in the line that begins at a byte of a log."""

    tracks: Dict[str, Track]
    texts: Dict[str, Text]
    main: str  # the source of rules that name none
    quote: Callable[[str, int, str], Quote]


class Value(NamedTuple):
    """A metric at one step."""

    key: str
    step: int
    number: float
    is_rounded: bool
    offset: int


def read_series(track: Track, key: str) -> List[Value]:
    """The values of one metric in the order of the log."""
    return [Value(key, point.step, point.values[key], key in point.rounded, point.offset)
            for point in track.points if key in point.values]


def match_keys(track: Track, key: str) -> List[str]:
    """The keys of a track that a rule's key means: itself, or all that begin as it does where it ends with `*`. A key that
    began only later counts too."""
    if not key.endswith("*"):
        return [key]
    found: Dict[str, None] = {}
    for point in track.points:
        for one in point.values:
            if one.startswith(key[:-1]):
                found[one] = None
    return sorted(found)


# What a rule's `test` says of the values: (values in order, limit, steps) -> the value that shows it, or None.
def _all_last(is_it: Callable[[Value, float], bool]) -> Callable[[List[Value], float, int], Optional[Value]]:
    def test(values: List[Value], limit: float, steps: int) -> Optional[Value]:
        last = values[-steps:]
        return last[-1] if len(last) == steps and all(is_it(one, limit) for one in last) else None
    return test


def _find_nonfinite(values: List[Value], limit: float, steps: int) -> Optional[Value]:
    return next((one for one in values if not math.isfinite(one.number)), None)


def _read_trend(values: List[Value], steps: int) -> Tuple[float, float, float]:
    """(slope, first, last) of the last so many finite values; three NaNs where there are fewer."""
    numbers = [one.number for one in values if math.isfinite(one.number)][-steps:]
    if len(numbers) < steps or steps < 2:
        return math.nan, math.nan, math.nan
    middle = (len(numbers) - 1) / 2.0
    slope = sum((place - middle) * number for place, number in enumerate(numbers))
    return slope, numbers[0], numbers[-1]


def _is_falling(values: List[Value], limit: float, steps: int) -> Optional[Value]:
    slope, first, last = _read_trend(values, steps)
    return values[-1] if slope < 0 and last <= first - (1 - limit) * abs(first) else None


def _is_climbing(values: List[Value], limit: float, steps: int) -> Optional[Value]:
    slope, first, last = _read_trend(values, steps)
    if slope > 0 and last > first and last >= limit:
        return values[-1]
    # It has climbed, and stays: well below the limit when it began, at it or above on all of the last steps.
    numbers = [one.number for one in values if math.isfinite(one.number)]
    begin, now = numbers[:-steps][:_EARLIER_AT_LEAST], numbers[-steps:]
    has_climbed = len(begin) == _EARLIER_AT_LEAST and limit > 0 and statistics.median(begin) <= limit / 2 and min(now) >= limit
    return values[-1] if has_climbed else None


def _read_change(values: List[Value], steps: int, pick: Callable[[List[float]], float]) -> float:
    """Median of the last `steps` values by the one that `pick` takes of the medians of earlier windows: what once was normal
    stays the measure when it has been otherwise for long. NaN where there are too few values, or that one is not above 0."""
    numbers = [one.number for one in values if math.isfinite(one.number)]
    before, now = numbers[:-steps], numbers[-steps:]
    if len(before) < _EARLIER_AT_LEAST or len(now) < steps:
        return math.nan
    width = min(_WINDOW, len(before))
    usual = pick([statistics.median(before[place:place + width]) for place in range(len(before) - width + 1)])
    return statistics.median(now) / usual if usual > 0 else math.nan


def _has_shrunk(values: List[Value], limit: float, steps: int) -> Optional[Value]:
    return values[-1] if values and _read_change(values, steps, max) <= limit else None


def _has_grown(values: List[Value], limit: float, steps: int) -> Optional[Value]:
    return values[-1] if values and _read_change(values, steps, min) >= limit else None


# below, above, at_least, at_most: each of the last `steps` values is; zero: each is 0, and not by rounding; zero_shown: also by
# rounding; always_zero: so many values at least, and every one that was read is 0; finite: none is NaN or infinite (of `x*`: of
# no such key); nonzero: none is that or 0. nonfinite: some value is NaN or infinite (the first one). falling: the last `steps`
# fall, to `limit` times the first of them or below (of one below 0, by as much as that); climbing: they rise to `limit` or
# above, or rose from half of it and stay. shrunk, grown: the median of the last `steps` is at most, at least `limit` times the
# highest, the lowest of earlier windows, which is above 0. quiet: as at_most, and holds where the metric is not told. lines: the
# key, a regular expression, is found in the ends of the source's log (`*`: of any log, `x*`: of those that begin so) on at least
# `limit` lines.
TESTS: Dict[str, Callable[[List[Value], float, int], Optional[Value]]] = {
    "below": _all_last(lambda one, limit: one.number < limit),
    "above": _all_last(lambda one, limit: one.number > limit),
    "at_least": _all_last(lambda one, limit: one.number >= limit),
    "at_most": _all_last(lambda one, limit: one.number <= limit),
    "zero": _all_last(lambda one, limit: one.number == 0 and not one.is_rounded),
    "zero_shown": _all_last(lambda one, limit: one.number == 0),
    "nonzero": _all_last(lambda one, limit: math.isfinite(one.number) and (one.number != 0 or one.is_rounded)),
    "finite": _all_last(lambda one, limit: math.isfinite(one.number)),
    "always_zero": lambda values, limit, steps: values[-1] if len(values) >= steps and all(
        one.number == 0 and not one.is_rounded for one in values) else None,
    "nonfinite": _find_nonfinite, "falling": _is_falling, "climbing": _is_climbing, "shrunk": _has_shrunk, "grown": _has_grown,
}


def find_signatures(signatures: Sequence[Signature], evidence: Evidence, flags: Sequence[str]) -> Tuple[Finding, ...]:
    """The signatures of which every rule holds, each with the places that show it."""
    found = []
    for one in signatures:
        if _find_unmet(one.needs, flags):
            continue
        quotes = _prove(one.rules, evidence)
        if quotes is not None:
            found.append(Finding(one.name, one.severity, one.words, tuple(quotes[:_QUOTES_AT_MOST]), one.advice))
    return tuple(found)


def _find_unmet(needs: Sequence[str], flags: Sequence[str]) -> List[str]:
    """In words, which flags are missing, and which that must not be are there (`!flag`)."""
    return ["not %s" % need if not need.startswith("!") else need[1:] for need in needs
            if (need.lstrip("!") in flags) == need.startswith("!")]


def _prove(rules: Sequence[Rule], evidence: Evidence) -> Optional[List[Quote]]:
    quotes: List[Quote] = []
    for rule in rules:
        shown = prove_rule(rule, evidence)
        if shown is None:
            return None
        quotes += [quote for quote in shown if quote not in quotes]
    return quotes


def prove_rule(rule: Rule, evidence: Evidence) -> Optional[List[Quote]]:
    """The places that show that a rule holds (none for what holds because nothing speaks against it), None where it does not."""
    if rule.test == "lines":
        return _find_lines(rule, evidence)
    track = evidence.tracks.get(rule.source or evidence.main)
    if rule.test == "quiet":
        keys = match_keys(track, rule.key) if track else []
        is_quiet = all(TESTS["at_most"](read_series(track, key), rule.limit, 1) for key in keys
                       if track and read_series(track, key)) if track else True
        return [] if is_quiet else None
    if not track:
        return None
    if rule.test == "finite" and rule.key.endswith("*"):
        return _prove_all_finite(track, rule, evidence)
    until = _find_last_step(track, rule.at) if rule.at else None
    for key in match_keys(track, rule.key):
        values = [one for one in read_series(track, key) if not rule.at or until is not None and one.step <= until]
        shown = TESTS[rule.test](values, rule.limit, rule.steps)
        if shown:
            return [evidence.quote(track.path, shown.offset, key)]
    return None


def _find_last_step(track: Track, key: str) -> Optional[int]:
    steps = [value.step for one in match_keys(track, key) for value in read_series(track, one)]
    return max(steps) if steps else None


def _prove_all_finite(track: Track, rule: Rule, evidence: Evidence) -> Optional[List[Quote]]:
    last = [point for point in track.points if point.is_training][-1:]
    bad = [key for point in last for key, number in point.values.items()
           if key.startswith(rule.key[:-1]) and not math.isfinite(number)]
    return None if bad or not last else []


def _find_lines(rule: Rule, evidence: Evidence) -> Optional[List[Quote]]:
    pattern = re.compile(rule.key.encode("utf-8"))
    source = rule.source or evidence.main
    count = 0
    last: Optional[Tuple[Text, int, int]] = None
    for name, text in evidence.texts.items():
        if source != "*" and name != source and not (source.endswith("*") and name.startswith(source[:-1])):
            continue
        counted = -1  # up to here
        begin = _find_begin(rule, evidence.tracks.get(name), text)
        until = _find_step_clock(evidence) if rule.at and name not in evidence.tracks else None
        for match in pattern.finditer(text.data, begin):
            if until is not None and _is_before(text.data, match.start(), until):
                continue
            last = text, match.start(), match.end()
            if match.start() > counted:
                count += 1
                end = text.data.find(b"\n", match.end())
                counted = end if end >= 0 else len(text.data)
    return [quote_match(*last)] if last and count >= max(1, rule.limit) else None


# 12:00:01, coloured or not, at a line's beginning
_CLOCK = re.compile(br"(?:\x1b\[[0-9;]*m)*([0-2]\d):([0-5]\d):([0-6]\d)\b")
_HALF_DAY = 43200


def _find_step_clock(evidence: Evidence) -> Optional[int]:
    """The time of day of the last step line of any log, in seconds; None where none bears one."""
    points = [track.points[-1] for track in evidence.tracks.values() if track.points and track.points[-1].is_training]
    match = next((found for found in (_CLOCK.match(point.clock.encode("utf-8")) for point in points) if found), None)
    return _count_seconds(match) if match else None


def _count_seconds(match: "re.Match[bytes]") -> int:
    hours, minutes, seconds = match.groups()
    return int(hours) * 3600 + int(minutes) * 60 + int(seconds)


def _is_before(data: bytes, place: int, until: int) -> bool:
    """Does the line bear a time of day before this one, by the shorter way round the clock?"""
    begin = max(data.rfind(b"\n", 0, place), data.rfind(b"\r", 0, place)) + 1
    match = _CLOCK.match(data, begin)
    return match is not None and (_count_seconds(match) - until + _HALF_DAY) % (2 * _HALF_DAY) < _HALF_DAY


def _find_begin(rule: Rule, track: Optional[Track], text: Text) -> int:
    """Where in a log's end the lines begin that a rule counts: `after:N`, behind the N-th last step line."""
    if not rule.at or track is None:
        return 0
    offsets = [point.offset for point in track.points if point.is_training][-int(rule.at.partition(":")[2]):]
    return max(0, offsets[0] + 1 - text.offset) if offsets else 0


def quote_match(text: Text, start: int, end: int) -> Quote:
    """The Quote of a match within the end of a log: its line without secrets, cut around the match."""
    from ..text.redact import redact
    from ..text.shell import escape_controls, strip_colour
    begin = max(text.data.rfind(b"\n", 0, start), text.data.rfind(b"\r", 0, start)) + 1
    newline = text.data.find(b"\n", end)
    stop = newline if newline >= 0 else len(text.data)
    line = None if text.first_line is None else text.first_line + text.data.count(b"\n", 0, begin)
    # Colours and characters are whole before it is cut.
    before, shown, after = (strip_colour(part.replace(b"\0", b"").decode("utf-8", "replace")) for part in (
        text.data[max(begin, start - 1000):start], text.data[start:end], text.data[end:min(stop, end + 1000)]))
    # Redacted whole, and cut then: half a key is still a secret.
    before, shown = redact(before + shown), redact(shown)
    before = before[:-len(shown)] if shown and before.endswith(shown) else before
    words = escape_controls((before[-100:] + shown + redact(shown + after)[len(shown):][:140]).strip("\r\n \t"))
    return Quote(text.path, text.offset + begin, line, words)


def read_metrics(metrics: Sequence[Metric], evidence: Evidence, flags: Sequence[str] = ()) -> Tuple[Reading, ...]:
    """Each metric that the logs tell, as it is now. One that they do not tell is left out."""
    readings = []
    for metric in metrics:
        source = metric.source or evidence.main
        track = evidence.tracks.get(source)
        for key in match_keys(track, metric.key) if track else ():
            values = read_series(track, key) if track else []
            if not values:
                continue
            mark, words = _read_bands(metric, values)
            if _find_unmet(metric.needs, flags):
                mark, words = "skipped", "not judged: %s" % ", ".join(_find_unmet(metric.needs, flags))
            last = values[-1]
            label = metric.label if metric.label and not metric.key.endswith("*") else key
            readings.append(Reading(key, label, metric.row, source, last.number, last.step, last.is_rounded,
                                    tuple(one.number for one in values[-TREND_STEPS:]), mark, words))
    return tuple(readings)


def _read_bands(metric: Metric, values: List[Value]) -> Tuple[str, str]:
    if not math.isfinite(values[-1].number):
        return "blocks" if _GRAVE.search(values[-1].key) else "advisory", "not a finite number"
    for test, limit, mark, words in metric.bands:
        if not test or TESTS[test](values, limit, 1):
            return mark, words
    return "skipped", ""


# actor/pg_loss   optim/grad_norm   mismatch_kl/all/mean   actor/entropy   optim/lr: what is no number there ruins the weights
_GRAVE = re.compile(r"loss|grad|(?:^|[/_])kl(?:[/_]|$)|entropy|/lr$|pearson")
# critic/rewards/mean   critic/advantages/mean: what the weights are made from
_BASE = re.compile(r"reward|score|advantage|return|value")


def find_nonfinite(evidence: Evidence) -> Optional[Finding]:
    """The first step at which a metric that decides about the weights was NaN or infinite; grave where it is a loss or the like,
    and still is at the last step. Another one (a share of none, a time) tells nothing."""
    best: Optional[Tuple[int, int, Value, Track]] = None  # rank, step
    for track in evidence.tracks.values():
        last = [point for point in track.points if point.is_training][-1:]
        keys = {key for point in track.points for key, number in point.values.items()
                if not math.isfinite(number) and (_GRAVE.search(key) or _BASE.search(key))
                and not key.startswith(("val", "eval"))}
        for key in sorted(keys):
            bad = _find_nonfinite(read_series(track, key), 0, 1)
            is_lasting = any(not math.isfinite(point.values.get(key, 0.0)) for point in last)
            rank = (0 if is_lasting else 2) + (0 if _GRAVE.search(key) else 1)
            if bad and (best is None or (rank, bad.step) < best[:2]):
                best = rank, bad.step, bad, track
    if best is None:
        return None
    rank, _, first, track = best
    since = "at step %d first" % first.step if track.is_whole or track.points[0].step < first.step else (
        "at step %d already, as far back as was read" % first.step)
    before = "Go back to a checkpoint from before step %d: what came since is trained on no number." % first.step \
        if first.step > 1 else "Launch it anew: it was so from the first step on."
    return Finding("metric:nan", "stop" if rank == 0 else "risk", "%s %s not a finite number (%r), %s" % (
        first.key, "is" if rank < 2 else "was", first.number, since), (evidence.quote(track.path, first.offset, first.key),),
        (before,) if rank < 2 else ("rlrun watch {run}    # does it come again?",))


def judge_gates(gates: Sequence[Gate], evidence: Evidence, flags: Sequence[str], step: int) -> Tuple[GateResult, ...]:
    """How each gate went, judged on the step lines up to `step` (the first that is told at or after it)."""
    upto = {source: _cut(track, step) for source, track in evidence.tracks.items()}
    past = evidence._replace(tracks=upto)
    results: Dict[str, GateResult] = {}
    for gate in gates:  # two of one name: for runs that differ in a flag, and only one of them is of concern
        result = _judge_gate(gate, past, flags, step)
        if gate.name not in results or results[gate.name].state == "skipped":
            results[gate.name] = result
    return tuple(results.values())


def _cut(track: Track, step: int) -> Track:
    points: List[Point] = []
    for point in track.points:
        points.append(point)
        if point.is_training and point.step >= step:
            break
    return track._replace(points=tuple(points))


def _judge_gate(gate: Gate, evidence: Evidence, flags: Sequence[str], step: int) -> GateResult:
    unmet = _find_unmet(gate.needs, flags)
    if unmet:
        return GateResult(gate.name, "skipped", "of no concern to this run (%s)" % ", ".join(unmet), None)
    quotes: List[Quote] = []
    for rule in gate.rules:
        source = rule.source or evidence.main
        track = evidence.tracks.get(source)
        keys = [key for key in match_keys(track, rule.key) if read_series(track, key)] if track and rule.test != "lines" else []
        if rule.test not in ("lines", "quiet"):
            steps = [point.step for point in track.points if point.is_training] if track else []
            if not track or not steps:
                return GateResult(gate.name, "unknown", "no step line of %s yet" % source, None)
            if max(steps) < step:
                return GateResult(gate.name, "unknown", "step %d of %s is not told yet" % (step, source), None)
            if not keys:
                place = evidence.quote(track.path, track.points[-1].offset, "")
                return GateResult(gate.name, "failed" if gate.is_required else "skipped", "%s is not told" % rule.key, place)
        shown = prove_rule(rule, evidence)
        if shown is None:
            last = read_series(track, keys[0])[-1] if track and keys else None
            words = gate.words if last is None or math.isfinite(last.number) else "%s is %r" % (last.key, last.number)
            place_at = evidence.quote(track.path, last.offset, last.key) if track and last else None
            return GateResult(gate.name, "failed", words, place_at)
        quotes += shown
    return GateResult(gate.name, "passed", "", quotes[0] if quotes else None)
