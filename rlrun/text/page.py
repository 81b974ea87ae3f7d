"""The HTML pages: how one run is doing, and the index of runs. Takes the objects that `--json` prints; writes no file."""
import math
import os
import time
from typing import Any, Dict, List, Optional, Tuple

from .curves import Curve, describe_odd, draw_curve, draw_spark, find_highest, find_lowest, find_span, read_curve
from .durations import format_age, format_elapsed
from .sparks import format_pace
from .markup import (draw_mark, escape, format_number, format_utc, parse_utc, read_number, render_block, render_cell, render_code,
                     render_document, render_head_cell, render_list, render_pairs, render_section, render_table)

# What each word of the object looks like. What is not here is calm: no colour is given to what is not understood.
_VERDICT_TONES = {"healthy": "good", "at risk": "warn", "recommend stopping": "bad"}
_ENDING_TONES = {"ended well": "good", "joined": "good", "ended early": "warn", "failed": "bad", "killed": "bad",
                 "died without trace": "bad"}
_MARKS = {"pass": ("good", "ok"), "advisory": ("warn", "warning"), "blocks": ("bad", "bad"), "skipped": ("calm", "not judged")}
_SEVERITIES = {"stop": "bad", "risk": "warn", "note": "calm"}
_STATES = {"live": "running", "over": "over", "elsewhere": "on another machine", "unknown": "no process here"}
# Beginnings of a state of `runs`; in a job's state the words are Slurm's.
_BAD_STATES = ("killed", "blocked", "failed", "timeout", "out_of_me", "node_fail", "boot_fail", "deadline", "cancelled",
               "preempted")
_ODD_STATES = ("lost", "unreadable")


def render_status_page(shape: Dict[str, Any], version: str) -> str:
    """Takes the object of `status --json` and rlrun's version; gives one HTML page that needs nothing beside it.

    It can be encoded as UTF-8, whatever the object holds. Parts that the object does not tell are left out.
    """
    run = _part(shape, "run")
    name = run.get("name") or "a run without a name"
    verdict = str(shape.get("verdict") or "unknown")
    parts = [_render_verdict(shape, verdict), _render_advice(shape), _render_ending(shape), _render_progress(shape),
             _render_findings(shape, verdict), _render_metrics(shape), _render_curves(shape),
             render_section("errors", "Last errors in the logs", "".join(map(_render_quote, _list(shape, "errors")))),
             render_section("notes", "Notes", render_list(_list(shape, "notes"), "ul")), _render_configuration(shape),
             _render_places(run)]
    header = _render_header(run, name, parse_utc(shape.get("time")))
    return render_document("%s: %s" % (name, verdict), header, "".join(parts),
                           _render_footer(shape.get("time"), version))


def render_runs_page(shape: Dict[str, Any], version: str) -> str:
    """Takes the object of `runs --json` and rlrun's version; gives its index as such a page. The ages are those of the
    object's own `time`; where it has none, the page is said to be made now."""
    rows = _list(shape, "runs")
    root = shape.get("root")
    header = '<p class="eyebrow">Launches recorded in %s</p><h1>Runs</h1>' % (render_code(root) or "an unknown checkout")
    body = '<p class="muted">No launch is recorded here.</p>'
    if rows:
        caption = "%d %s, the newest first" % (len(rows), "launch" if len(rows) == 1 else "launches")
        body = render_table(caption, ("Name", "State", "Age", "Kind", "Config", "User", "Logs"),
                            [("", [_render_run(row) for row in sorted(rows, key=_read_age)])], "runs")
    stamp = shape.get("time") or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return render_document("Runs of %s" % (root or "an unknown checkout"), header,
                           '<section class="card" aria-label="Runs">%s</section>\n' % body, _render_footer(stamp, version))


def _part(shape: Dict[str, Any], key: str) -> Dict[str, Any]:
    return shape.get(key) or {}


def _list(shape: Dict[str, Any], key: str) -> List[Any]:
    return shape.get(key) or []


def _render_header(run: Dict[str, Any], name: str, now_seconds: Optional[float]) -> str:
    kind = " · ".join(escape(word) for word in (run.get("kind"), run.get("stack")) if word)
    started = read_number(run.get("started_seconds"))
    launched = "" if started is None else escape(format_utc(started))
    # By the page's own time: what has elapsed of a run that is over may be how long it took.
    if started is not None and now_seconds is not None:
        launched += "<small>%s</small>" % escape(format_age(now_seconds - started))
    facts = [("State", escape(_STATES.get(str(run.get("state")), "not known"))), ("Host", render_code(run.get("host"))),
             ("User", render_code(run.get("user"))), ("Launched", launched), ("Config", render_code(run.get("config"))),
             ("Plan digest", render_code(run.get("digest")))]
    return '<p class="eyebrow">%s</p><h1>%s</h1>%s' % (kind, escape(name), render_pairs(facts, "facts"))


def _render_footer(stamp: Any, version: str) -> str:
    seconds = parse_utc(stamp)
    made = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds)) if seconds is not None else stamp or "an unknown time"
    return "<p>Made at %s by rlrun %s. It shows that moment and does not renew itself.</p>" % (escape(made), escape(version))


def _render_verdict(shape: Dict[str, Any], verdict: str) -> str:
    tone = _VERDICT_TONES.get(verdict, "calm")
    if verdict == "ended":
        tone = _ENDING_TONES.get(str(_part(shape, "ending").get("how")), "calm")
    conclusion = shape.get("conclusion")
    return render_section("verdict", draw_mark(tone) + escape(verdict[:1].upper() + verdict[1:]),
                          "<p>%s</p>" % escape(conclusion) if conclusion else " ", "card verdict " + tone)


def _render_advice(shape: Dict[str, Any]) -> str:
    return render_section("advice", "Recommendations", render_list(_list(shape, "recommendations"), "ol"))


def _render_ending(shape: Dict[str, Any]) -> str:
    ending = shape.get("ending")
    if not ending:
        return ""
    tone = _ENDING_TONES.get(str(ending.get("how")), "calm")
    facts = [("How", draw_mark(tone) + escape(ending.get("how"))), ("Exit status", escape(ending.get("status"))),
             ("Signal", escape(ending.get("signal")))]
    body = render_pairs(facts, "facts")
    if ending.get("words"):
        body = "<p>%s</p>" % escape(ending["words"]) + body
    if ending.get("first_error"):
        body += '<h3>The first error</h3>' + _render_quote(ending["first_error"])
    return render_section("ending", "How it ended", body, "card stacked")


def _render_progress(shape: Dict[str, Any]) -> str:
    progress = _part(shape, "progress")
    step, total = read_number(progress.get("step")), read_number(progress.get("total"))
    bar, done = "", "no step yet" if step is None else "%s" % format_number(step)
    if total:
        share = min(1.0, max(0.0, (step or 0.0) / total))
        done += " of %s<small>%.1f %%</small>" % (format_number(total), 100 * share)
        bar = ('<svg class="bar" role="progressbar" aria-label="Steps done" aria-valuemin="0" aria-valuemax="%s" '
               'aria-valuenow="%s"><rect width="%.2f%%" height="100%%"/></svg>' % (
                   format_number(total), format_number(share * total), 100 * share))
        if progress.get("total_from"):
            done += "<small>the total from %s</small>" % escape(progress["total_from"])
    facts = [("Step", done), ("Stage", escape(progress.get("stage"))), ("Epoch", _tell_epoch(progress)),
             ("Time per step", _tell_pace(progress)), ("Left", _tell_left(progress, parse_utc(shape.get("time")))),
             ("Last write", _tell(progress.get("idle_seconds"), format_age)), ("Checkpoint", _tell_checkpoint(progress)),
             ("The log holds", _tell_segments(progress))]
    return render_section("progress", "Progress", bar + render_pairs(facts, "facts"))


def _tell(seconds: Any, formatter: Any) -> str:
    number = read_number(seconds)
    return "" if number is None else escape(formatter(number))


def _tell_epoch(progress: Dict[str, Any]) -> str:
    epoch, epochs = read_number(progress.get("epoch")), read_number(progress.get("epochs"))
    told = "" if epoch is None else format_number(epoch, 3)
    return told + ("" if epochs is None else "%s of %s" % ("" if told else "unknown", format_number(epochs)))


def _tell_pace(progress: Dict[str, Any]) -> str:
    pace, first = _tell(progress.get("seconds_per_step"), format_pace), _tell(progress.get("first_step_seconds"), format_pace)
    return (pace or "unknown" if first else pace) + ("<small>the first took %s</small>" % first if first else "")


def _tell_left(progress: Dict[str, Any], now_seconds: Optional[float]) -> str:
    left = read_number(progress.get("left_seconds"))
    if left is None:
        return ""
    told = "about " + escape(format_elapsed(left))
    if now_seconds is not None and math.isfinite(left):
        told += "<small>until %s</small>" % escape(format_utc(now_seconds + left))
    return told + ("<small>an estimate: %s</small>" % escape(progress["left_from"]) if progress.get("left_from") else "")


def _tell_checkpoint(progress: Dict[str, Any]) -> str:
    found = progress.get("checkpoint")
    if not found:
        return ""
    told = "step %s<small>%s</small>" % (escape(found.get("step")), render_code(found.get("path")))
    return told + "".join("<small>not complete: %s</small>" % render_code(path) for path in _list(found, "incomplete"))


def _tell_segments(progress: Dict[str, Any]) -> str:
    segments = _list(progress, "segments")
    told = ["steps %s to %s" % (escape(one.get("first")), escape(one.get("last"))) for one in segments]
    words = "%s<small>%d segments: the steps fell back</small>" % (", ".join(told), len(told)) if len(told) > 1 else ""
    missing = progress.get("missing_steps")
    if missing:
        words += "%s<small>%s of the steps between are missing</small>" % ("" if words else ", ".join(told), escape(missing))
    return words


def _render_quote(quote: Dict[str, Any]) -> str:
    place = "%s, byte %s" % (quote.get("log"), quote.get("offset"))
    if quote.get("line") is not None:
        place = "%s:%s" % (quote.get("log"), quote["line"])
    return '<figure class="quote"><blockquote><code>%s</code></blockquote><figcaption>%s</figcaption></figure>' % (
        escape(quote.get("text")), render_code(place))


def _render_findings(shape: Dict[str, Any], verdict: str) -> str:
    parts = []
    for one in _list(shape, "findings"):
        severity = str(one.get("severity"))
        parts.append('<article class="finding"><h3>%s<span class="%s">%s</span> %s</h3><p>%s</p>%s%s</article>' % (
            draw_mark(_SEVERITIES.get(severity, "calm")), _SEVERITIES.get(severity, "calm"), escape(severity),
            render_code(one.get("name")), escape(one.get("words")), "".join(map(_render_quote, _list(one, "quotes"))),
            render_list(_list(one, "advice"), "ul")))
    if not parts and verdict not in ("no step yet", "unknown"):
        parts = ['<p class="muted">No known signature matched.</p>']
    return render_section("findings", "Findings", "\n".join(parts))


def _render_metrics(shape: Dict[str, Any]) -> str:
    groups: List[Tuple[str, List[str]]] = []
    has_sources = len({one.get("source") for one in _list(shape, "metrics")}) > 1
    for metric in _list(shape, "metrics"):
        title = str(metric.get("row") or "")
        if not groups or groups[-1][0] != title:
            groups.append((title, []))
        groups[-1][1].append(_render_metric(metric, has_sources))
    table = render_table("The latest value of each metric, and how it went over the last steps",
                         ("Metric", "Value", "Trend", "Judged", "Meaning"), groups, "metrics") if groups else ""
    return render_section("metrics", "Metrics", table)


def _render_metric(metric: Dict[str, Any], has_sources: bool) -> str:
    tone, word = _MARKS.get(str(metric.get("mark")), _MARKS["skipped"])
    step, about = metric.get("step"), _tell_about(metric, has_sources)
    value = read_number(metric.get("value"))
    told = format_number(value)
    if value is None or not math.isfinite(value):
        told = '<span class="%s">%s</span>' % ("muted" if value is None else "bad", told)
    if value is not None and step is not None:
        told += "<small>at step %s%s</small>" % (escape(step), ", rounded in the log" if metric.get("rounded") else "")
    trend = [number for number in map(read_number, _list(metric, "trend")) if number is not None]
    words = "%s, last %d values, from %s to %s" % (metric.get("key"), len(trend), format_number(trend[0]),
                                                    format_number(trend[-1])) if trend else ""
    return "".join((render_head_cell(render_code(metric.get("key")) + ("<small>%s</small>" % about if about else "")),
                    render_cell(told, "number value"), render_cell(draw_spark(trend, words)),
                    render_cell('<span class="%s">%s%s</span>' % (tone, draw_mark(tone), word), "state"),
                    render_cell(escape(metric.get("words")), "words")))


def _tell_about(one: Dict[str, Any], has_sources: bool) -> str:
    """What stands beside the key: a shorter name where there is one, the source where there are several."""
    told = (one.get("label") if one.get("label") != one.get("key") else "", one.get("source") if has_sources else "")
    return " · ".join(escape(word) for word in told if word)


def _render_curves(shape: Dict[str, Any]) -> str:
    marks = {(one.get("key"), one.get("source")): str(one.get("mark")) for one in _list(shape, "metrics")}
    curves = [(one, read_curve(one)) for one in _list(shape, "curves")]
    span = find_span([curve for _, curve in curves])
    if span is None:
        return ""
    has_sources = len({one.get("source") for one, _ in curves}) > 1
    figures = [_render_curve(one, curve, span, marks.get((one.get("key"), one.get("source")), ""), has_sources)
               for one, curve in curves if curve.numbers or curve.odd]
    key = ('<p class="key"><span><svg viewBox="0 0 10 10"><circle class="last" cx="5" cy="5" r="3.5"/></svg> last</span>'
           '<span><svg viewBox="0 0 10 10"><circle class="ring" cx="5" cy="5" r="3.5"/></svg> lowest and highest</span>')
    if any(curve.odd for _, curve in curves):
        key += '<span><svg viewBox="0 0 10 10"><path class="odd" d="M2 2l6 6m0 -6l-6 6"/></svg> NaN</span>'
        key += '<span><svg viewBox="0 0 10 10"><path class="odd" d="M1 8l4 -6l4 6z"/></svg> inf</span>'
    return render_section("curves", "Curves", key + "</p>" + '<div class="curves">%s</div>' % "\n".join(figures))


def _render_curve(shape: Dict[str, Any], curve: Curve, span: Tuple[int, int], mark: str,
                  has_sources: bool) -> str:
    stats = ""
    numbers = curve.numbers
    if numbers:
        stats = "last <b>%s</b>" % format_number(numbers[-1][1], 4)
    if len(numbers) > 1:
        low, high = find_lowest(curve), find_highest(curve)
        stats += " · constant" if low[1] == high[1] else " · min <b>%s</b> at %d · max <b>%s</b> at %d" % (
            format_number(low[1], 4), low[0], format_number(high[1], 4), high[0])
    elif numbers:
        stats += " at step %d, the only value" % numbers[0][0]
    odd = describe_odd(curve)
    if odd:
        stats += '%s<span class="bad">%s</span>' % ("<br>" if stats else "", odd)
    tone, word = _MARKS.get(mark, ("", ""))
    flag = ' <span class="%s">%s%s</span>' % (tone, draw_mark(tone), word) if tone in ("warn", "bad") else ""
    return '<figure class="curve"><figcaption><code>%s</code>%s%s<div>%s</div></figcaption>%s</figure>' % (
        escape(curve.key), _tell_about(shape, has_sources), flag, stats, draw_curve(curve, span))


def _render_configuration(shape: Dict[str, Any]) -> str:
    block = shape.get("configuration")
    return render_section("configuration", "Configuration", render_block(str(block), "Configuration") if block else "")


def _render_places(run: Dict[str, Any]) -> str:
    pids = ["%s %s" % (escape(label), " ".join(escape(pid) for pid in found)) for label, found in _part(run, "pids").items()]
    jobs = ["%s %s" % (escape(job), escape(state)) for job, state in _part(run, "jobs").items()]
    pairs = [("%s log" % which, render_code(path)) for which, path in _part(run, "logs").items()]
    pairs += [("Launch log", render_code(run.get("launch_log"))), ("Run directory", render_code(run.get("run_dir"))),
              ("Checkout", render_code(run.get("root"))), ("Record", render_code(run.get("record"))),
              ("Record's id", render_code(run.get("id"))), ("Processes", " · ".join(pids)), ("Slurm jobs", " · ".join(jobs)),
              ("Other nodes'", "<br>".join(render_code(one) for one in _list(run, "siblings")))]
    body = render_pairs(pairs, "places")
    if run.get("stop"):
        body += "<p>To stop the run (rlrun never does):</p>" + render_block(str(run["stop"]), "Command that stops the run")
    return render_section("places", "Logs and processes", body)


def _read_age(row: Dict[str, Any]) -> float:
    age = read_number(row.get("age_seconds"))
    return math.inf if age is None or math.isnan(age) else age


def _find_state_tone(state: str) -> str:
    words = state.lower().split()
    if any(word.startswith(_BAD_STATES) for word in words):
        return "bad"
    if state == "ended 0" or words[-1:] == ["completed"]:
        return "good"
    if words[:1] == ["ended"]:
        return "bad"
    return "warn" if state.startswith(_ODD_STATES) else "calm"


def _render_run(row: Dict[str, Any]) -> str:
    tone = _find_state_tone(str(row.get("state")))
    age = read_number(row.get("age_seconds"))
    config = str(row.get("config") or "")
    left = "<small>%d of it live</small>" % len(row["left"]) if row.get("left") else ""
    logs = "".join("<small>%s log %s</small>" % (which, render_code(row[which + "_log"])) for which in ("train", "launch")
                   if row.get(which + "_log"))
    return "".join((
        render_head_cell("%s<small>%s</small>" % (escape(row.get("experiment") or "name not told"), render_code(row.get("id")))),
        render_cell('<span class="%s">%s%s</span>%s' % (tone, draw_mark(tone), escape(row.get("state")), left)),
        render_cell(escape("unknown" if age is None else format_age(age)), "number"), render_cell(escape(row.get("kind"))),
        render_cell(render_code(os.path.basename(config))), render_cell(render_code(row.get("user"))),
        render_cell(logs, "logs")))
