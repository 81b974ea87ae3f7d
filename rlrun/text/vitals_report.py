"""How a run is doing, in words: a Status in, lines out, in the form of the seed's report. Judges nothing and reads nothing."""
import math
import os
from typing import Dict, List, Optional, Sequence, Tuple

from ..vitals import GateResult, Quote, Reading, Status, Target
from .durations import format_age, format_elapsed
from .glyphs import ADVISORY, BLOCKS, DASH, PASS, SKIPPED
from .shell import escape_controls, strip_colour
from .sparks import draw_bar, draw_spark, format_number, format_pace, name_trend
from .terminal import Terminal, paint

_VERDICTS = {"healthy": (PASS, "green"), "at risk": (ADVISORY, "yellow"), "recommend stopping": (BLOCKS, "red"),
             "no step yet": (SKIPPED, "dim"), "ended": (SKIPPED, "bold"), "unknown": (SKIPPED, "yellow")}
_MARKS = {"pass": (PASS, "green"), "advisory": (ADVISORY, "yellow"), "blocks": (BLOCKS, "red"), "skipped": (SKIPPED, "dim")}
_GATES = {"passed": (PASS, "green"), "failed": (BLOCKS, "red"), "skipped": (SKIPPED, "dim"), "unknown": (SKIPPED, "dim")}
_WIDTH = 78
_LABEL = "  %-9s"
_READINGS_A_ROW = 8
_PIDS = 8
# So many steps a sparkline has, and in a window that is not so wide.
_TREND_STEPS, _TREND_NARROW, _WIDE = 20, 10, 120


def render_status(terminal: Terminal, status: Status, title: str, extra: Sequence[Tuple[str, str]] = (), columns: int = 0,
                  rows: int = 0) -> List[str]:
    """The whole report. `title`: the stack's own name; `extra`: rows that the caller knows (GPUs in use, the stop command).
    `columns`, `rows`: of the window, 0 for none: lines are broken to fit; in a low one what is as it should be goes first."""
    lines = _fit(_render_all(terminal, status, title, dict(extra), columns, False), columns)
    if rows and len(lines) > rows:
        lines = _fit(_render_all(terminal, status, title, dict(extra), columns, True), columns)
    if rows and len(lines) > rows:
        least = _render_least(terminal, status, columns)[:max(1, rows - 1)]
        more = "… %d lines more: a higher window, or rlrun status" % max(1, len(lines) - len(least))
        return least + [more[:columns] if columns else more]
    return lines


def _render_all(terminal: Terminal, status: Status, title: str, extra: Dict[str, str], columns: int, is_short: bool) -> List[str]:
    target = status.target
    gap = [] if is_short else [""]
    lines = [render_head(target, title)] + gap + [render_verdict(terminal, status)] + gap
    lines += _render_progress(status) + _render_joining(status)
    lines += [] if is_short else _render_procs(status, extra)
    lines += render_readings(terminal, status, columns, is_short)
    lines += [] if is_short else _render_checkpoint(status)
    lines += gap + ["Diagnosis"] + _render_findings(terminal, status)
    if status.errors and not is_short and (status.ending is None or status.ending.how != "ended well"):
        lines += ["", "Last errors"] + ["  " + show_quote(quote) for quote in status.errors[-3:]]
    if status.recommendations:
        lines += gap + ["Recommendations"]
        lines += ["  %d. %s" % (number, escape_controls(text)) for number, text in enumerate(status.recommendations, 1)]
    if not is_short:
        lines += ([""] if status.notes else []) + ["Note: %s" % escape_controls(note) for note in status.notes]
        lines += [""] + _render_places(target, extra)
    return lines


def _render_least(terminal: Terminal, status: Status, columns: int) -> List[str]:
    """What must be seen in the smallest window, a line each: verdict, step, what is not as it should be, what it means."""
    cut = columns or _WIDTH
    lines = [render_head(status.target, "")[:cut].rstrip()] + _fit([render_verdict(terminal, status)], columns)[:2]
    total = " of %d" % status.outline.total if status.outline.total else ""
    lines += ["  step %d%s" % (status.step, total)] if status.step is not None else []
    bad = [one for one in status.readings if one.mark in ("advisory", "blocks")]
    for one in sorted(bad, key=lambda one: one.mark != "blocks"):
        glyph, style = _MARKS[one.mark]
        value = escape_controls(_show_value(one._replace(label="")))
        lines.append("  %s %s" % (paint(terminal, glyph, style), _tail(value, cut - 4)))
    lines += [escape_controls("  %s  %s" % (one.name, one.words))[:cut] for one in status.findings]
    return lines + [escape_controls("  %d. %s" % (number, text))[:cut] for number, text in enumerate(status.recommendations, 1)]


def _tail(text: str, width: int) -> str:
    """The end of a text, which tells the value: `…pearson_corr=0.75`."""
    return text if len(text) <= width else "…" + text[1 - width:]


def _fit(lines: List[str], columns: int) -> List[str]:
    """Lines that are wider than the window, broken at spaces; colour is given up in these."""
    if not columns:
        return lines
    fitted: List[str] = []
    for line in lines:
        plain = strip_colour(line)
        if len(plain) <= columns:
            fitted.append(line)
            continue
        import textwrap
        indent = " " * min(len(plain) - len(plain.lstrip()) + 4, columns // 3)
        fitted += textwrap.wrap(plain, max(20, columns), subsequent_indent=indent, break_on_hyphens=False) or [""]
    return fitted


def render_head(target: Target, title: str) -> str:
    """`rlrun status — my-run            Lego-RL train · plan 3f9c2a71`."""
    left = "rlrun status %s %s" % (DASH, escape_controls(target.name or "a run without a name"))
    digest = str((target.record or {}).get("digest") or "")
    right = escape_controls(" ".join(word for word in (title, target.kind) if word) + (" · plan %s" % digest if digest else ""))
    return (left + " " * max(2, _WIDTH - len(left) - len(right)) + right).rstrip()


def render_verdict(terminal: Terminal, status: Status) -> str:
    """`✗ recommend stopping — one line`."""
    glyph, style = _VERDICTS[status.verdict]
    words = status.verdict
    if status.ending is not None:
        words = "over" if status.ending.how == "ended" else status.ending.how
        bad = status.ending.how not in ("ended well", "ended", "joined")
        good = status.ending.how in ("ended well", "joined")
        glyph, style = (BLOCKS, "red") if bad else (PASS, "green") if good else (glyph, style)
    return "%s %s %s" % (paint(terminal, "%s %s" % (glyph, words), style), DASH, escape_controls(status.conclusion))


def _render_progress(status: Status) -> List[str]:
    outline = status.outline
    parts = []
    if status.step is not None:
        total = " of %d" % outline.total if outline.total else ""
        epoch = _find_epoch(status)
        parts.append("step %d%s%s" % (status.step, total, epoch))
    elif status.stage:
        parts.append(status.stage)
    else:
        parts.append("no step yet" if status.ending is None else "no step was told")
    started = status.target.started_seconds
    if started is not None:
        ended = (status.target.exit or {}).get("duration_seconds")
        running = status.now_seconds - started
        is_waiting = _is_waiting(status.target)
        is_running = status.target.state in ("elsewhere", "live") and status.verdict != "unknown"
        parts.append("waiting %s" % format_elapsed(running) if is_waiting else
                     "running %s" % format_elapsed(running) if is_running else
                     "ran %s, launched %s" % (format_elapsed(float(ended)), format_age(running))
                     if isinstance(ended, (int, float)) else "launched %s" % format_age(running))
    if status.seconds_per_step is not None:
        first = " (first %s)" % format_pace(status.first_step_seconds) if status.first_step_seconds is not None else ""
        parts.append("~%s/step%s" % (format_pace(status.seconds_per_step), first))
    if status.idle_seconds is not None and not _is_waiting(status.target):
        parts.append("log last written %s" % format_age(max(0.0, status.idle_seconds)))  # a note tells of a clock that is ahead
    lines = [_LABEL % "stage" + escape_controls(" · ".join(parts))]
    if status.step is not None and outline.total:
        percent = min(100, 100 * status.step // outline.total)
        left = ""
        if status.left_seconds is not None and status.ending is None:
            left = "  about %s left: %s" % (format_elapsed(status.left_seconds), status.left_from)
        lines.append(_LABEL % "" + "%s %d %%%s" % (draw_bar(percent / 100.0), percent, escape_controls(left)))
    elif status.step is not None:
        epochs = "; %d epoch%s planned" % (outline.epochs, "" if outline.epochs == 1 else "s") if outline.epochs else ""
        lines.append(_LABEL % "" + escape_controls("of how many: %s%s" % (outline.total_from or "not told", epochs)))
    return lines


def _is_waiting(target: Target) -> bool:
    return bool(target.jobs) and all(state == "PENDING" for _, state in target.jobs)


def _render_joining(status: Status) -> List[str]:
    if status.joining is None or status.ending is not None:
        return []
    from .joined import describe
    return [_LABEL % ("" if place else "nodes") + line for place, line in enumerate(describe(status.joining))]


def _find_epoch(status: Status) -> str:
    for reading in status.readings:
        if reading.key.endswith("/epoch") and reading.value is not None and math.isfinite(reading.value):
            of = " of %d" % status.outline.epochs if status.outline.epochs else ""
            return " (epoch %s%s)" % (format_number(reading.value), of)
    return ""


def _render_procs(status: Status, extra: Dict[str, str]) -> List[str]:
    by_label: Dict[str, List[int]] = {}
    for label, pid in status.target.pids:
        by_label.setdefault(label, []).append(pid)
    words = ["%s=%s%s" % (label.replace(" ", "-"), ",".join(map(str, pids[:_PIDS])), "…" if len(pids) > _PIDS else "")
             for label, pids in by_label.items()]
    words += ["job %s %s" % pair for pair in status.target.jobs]
    words += ["user=%s" % status.target.user] if words and status.target.user else []
    if extra.get("gpus"):
        words.append(extra["gpus"])
    if not words:
        words = ["none that can be seen here" if status.target.state in ("elsewhere", "unknown") else "none left"]
    if len(status.target.siblings):
        words.append("%d sibling director%s of its other nodes" % (
            len(status.target.siblings), "y" if len(status.target.siblings) == 1 else "ies"))
    return [_LABEL % "procs" + escape_controls("  ".join(words))]


def render_readings(terminal: Terminal, status: Status, columns: int = 0, is_short: bool = False) -> List[str]:
    """A line a metric, in the rows of the stack's table: mark, key=value, the trend of the last steps, what it means.
    `is_short`: those only that are not as they should be."""
    lines: List[str] = []
    rows: Dict[str, List[Reading]] = {}
    shown = [one for one in status.readings if not one.key.endswith("/epoch")]
    bad = [one for one in shown if one.mark in ("advisory", "blocks")]
    keys = [one.key for one in shown]
    for reading in bad if is_short else shown:  # of one key in two logs each says which it is
        is_double = keys.count(reading.key) > 1
        rows.setdefault(reading.row, []).append(reading._replace(label="%s " % reading.source if is_double else ""))
    width = max([len(_show_value(one)) for readings in rows.values() for one in readings] or [0])
    label = "  %%-%ds" % max([9] + [len(row) + 1 for row in rows])
    trend_steps = _TREND_NARROW if columns and columns < _WIDE else _TREND_STEPS
    for row, readings in rows.items():
        for place, reading in enumerate(readings[:_READINGS_A_ROW]):
            glyph, style = _MARKS[reading.mark]
            trend = _show_trend(reading.trend[-trend_steps:])
            words = "  %s" % escape_controls(reading.words) if reading.words else ""
            value = escape_controls(_show_value(reading)).ljust(width if trend or words else 0)
            head = label % (row if place == 0 else "")
            if columns and words and len(head) + 2 + len(value) + len(trend) + len(words) > columns:
                lines.append(head + "%s %s%s" % (paint(terminal, glyph, style), value, trend))
                lines.append(label % "" + words)
            else:
                lines.append(head + "%s %s%s%s" % (paint(terminal, glyph, style), value, trend, words))
        if len(readings) > _READINGS_A_ROW:
            lines.append(label % "" + "  and %d more: --json" % (len(readings) - _READINGS_A_ROW))
    if is_short and len(shown) > len(bad):
        lines.append(label % "" + "%d more metric%s as they should be, or not judged" % (
            len(shown) - len(bad), " is" if len(shown) - len(bad) == 1 else "s are"))
    return lines


def _show_trend(values: Sequence[float]) -> str:
    if len(values) < 2:
        return ""
    word = name_trend(values)
    return "  last %d: %s%s" % (len(values), draw_spark(values), " " + word if word else "")


def _show_value(reading: Reading) -> str:
    """`key=value`, behind the name of its log where two tell the same key."""
    if reading.value is None:
        return "%s%s" % (reading.label, reading.key)
    return "%s%s=%s%s" % (reading.label, reading.key, format_number(reading.value), " (rounded)" if reading.is_rounded else "")


def _render_checkpoint(status: Status) -> List[str]:
    if status.checkpoint is None:
        where = "none in %s" % status.outline.checkpoints if status.outline.checkpoints else "where they would be is not told"
        return [_LABEL % "ckpt" + escape_controls(where)] if status.step is not None else []
    half = "; not complete: %s" % ", ".join(os.path.basename(one) for one in status.checkpoint.incomplete) \
        if status.checkpoint.incomplete else ""
    return [_LABEL % "ckpt" + escape_controls("step %d, %s%s" % (status.checkpoint.step, status.checkpoint.path, half))]


def _render_findings(terminal: Terminal, status: Status) -> List[str]:
    lines: List[str] = []
    if status.ending is not None and status.ending.first_error is not None:
        lines.append("  the first error: %s" % show_quote(status.ending.first_error))
    for finding in status.findings:
        style = "red" if finding.severity == "stop" else "yellow" if finding.severity == "risk" else "dim"
        lines.append("  %s  %s" % (paint(terminal, finding.name, style), escape_controls(finding.words)))
        lines += ["      " + show_quote(quote) for quote in finding.quotes]
    return lines or ["  no known signature matched" + (" (no step was read)" if status.step is None else "")]


def show_quote(quote: Quote) -> str:
    """`/x/e.log:1234  actor/lr:0.0`; by the byte where lines were not counted."""
    place = "%s:%d" % (quote.log, quote.line) if quote.line is not None else "%s byte %d" % (quote.log, quote.offset)
    return escape_controls("%s  %s" % (place, quote.text))


def _render_places(target: Target, extra: Dict[str, str]) -> List[str]:
    pairs = [("log", next(iter(target.logs.values()), "") or target.launch_log)]
    if target.launch_log and target.launch_log != pairs[0][1]:
        pairs.append(("launch log", target.launch_log))
    pairs += [("job log", path) for name, path in target.logs.items() if name.startswith("job ") and path != pairs[0][1]]
    pairs += [("run dir", target.run_dir)] if target.run_dir else []
    pairs += [(name, extra[name]) for name in ("trials", "watch", "stop") if extra.get(name)]
    width = max(len(name) for name, _ in pairs) + 2
    return ["%s%s" % ((name + ":").ljust(width), escape_controls(value)) for name, value in pairs if value]


def render_gates(terminal: Terminal, results: Sequence[GateResult]) -> List[str]:
    """A line a gate, with the place that it was judged by."""
    lines = []
    for one in results:
        glyph, style = _GATES[one.state]
        words = "%s %-18s %s" % (paint(terminal, glyph, style), one.name, one.state)
        lines.append("  " + words + (": %s" % escape_controls(one.words) if one.words else ""))
        if one.quote is not None:
            lines.append("      " + show_quote(one.quote))
    return lines


def render_candidates(targets: Sequence[Target], now_seconds: float) -> List[str]:
    """Numbered lines of the runs that may be meant."""
    lines = []
    for number, one in enumerate(targets, 1):
        pid: Optional[int] = one.pids[0][1] if one.pids else None
        age = "started %s" % format_age(now_seconds - one.started_seconds) if one.started_seconds is not None else "start unknown"
        who = "pid %d (%s)" % (pid, one.user) if pid else one.state
        if one.jobs:
            who = "%s%s" % (", ".join("job %s %s" % pair for pair in one.jobs), " (%s)" % one.user if one.user else "")
            who = "%s, %s" % (one.name, who) if one.id and one.name != one.id else who
            age = age.replace("started", "handed in", 1) if _is_waiting(one) else age
        lines.append(escape_controls("  %2d. %s  %s %s, %s, %s" % (
            number, one.id or one.name, one.kind, who, one.root or one.run_dir or "no checkout", age)))
    return lines
