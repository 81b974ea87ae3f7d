"""How a run is doing: its logs read from their ends, its numbers judged, its end explained. Read-only; nothing is waited for."""
import functools
import os
import re
from typing import Any, List, Optional, Tuple

from ..health import growth, lines, metrics, signatures
from ..host import procs
from ..stacks import load_health
from ..text.shell import quote_words
from ..vitals import Checkpoint, Ending, Finding, Joining, Outline, Point, Quote, Reading, Status, Target, Track
from . import ended, find_run, gather
from .gather import Evidence, tell_target
from .jobs import is_waiting, tell_jobs

HEALTHY, AT_RISK, STOP, NO_STEP, ENDED, UNKNOWN = (
    "healthy", "at risk", "recommend stopping", "no step yet", "ended", "unknown")
_RECOMMENDATIONS = 3
_STUCK = {"T": "is stopped (state T)", "t": "is held by a debugger (state t)",
          "D": "waits in the kernel (state D), and may not be killable"}
_DAY_SECONDS = 86400
# 12:00:01, coloured or not, at a line's beginning
_CLOCK = re.compile(br"(?:^|\n)(?:\x1b\[[0-9;]*m)*([0-2]\d:[0-5]\d:[0-6]\d)\b")
# Another machine's clock may differ by so much before it is worth a word.
_SKEW_SECONDS = 5.0


def examine(target: Target, evidence: Evidence, now_seconds: float, secrets: Tuple[str, ...] = (),
            joining: Optional[Joining] = None) -> Status:
    """The Status of a run by what was read of it. `secrets`: values that no quote may show, not even by half. `joining`: what
    joining.look found, for whoever has the time to ask."""
    evidence = gather.mask(evidence, secrets)
    health = load_health(target.stack)
    outline = evidence.outline
    main = next((source for source in health.SOURCES if _list_training(evidence.tracks.get(source))), health.SOURCES[0])
    proof = signatures.Evidence(evidence.tracks, evidence.texts, health.SOURCES[0], functools.partial(quote_metric, health,
                                                                                                      evidence))
    points = _list_training(evidence.tracks.get(main))
    main_track = evidence.tracks.get(main)
    pace = metrics.measure_pace(points)
    if main_track and not main_track.is_whole:
        pace = pace._replace(first=None)  # it lies before what was read
    step = points[-1].step if points else None
    idle = _measure_idle(evidence, health.SOURCES, now_seconds)
    notes = list(target.notes) + _note_logs(evidence, health.SOURCES, idle, target)
    findings = list(signatures.find_signatures(health.SIGNATURES, proof, outline.flags))
    nonfinite = signatures.find_nonfinite(proof)
    findings += [nonfinite] if nonfinite else []
    findings += _find_slow(main_track, points, proof, health.STEP_SECONDS)
    is_here = target.state == "live" and bool(target.pids)
    findings += _find_stall(evidence, target, health, main, points, pace, idle, now_seconds) if is_here else []
    limit = metrics.find_stall_limit(pace, not points or _is_long_now(outline, points[-1].step))
    is_fresh = idle is not None and idle <= limit
    hidden = _tell_hidden(evidence, health.SOURCES)
    ending = ended.judge_ending(target, evidence, health, step, outline, is_fresh, hidden) if target.state != "live" else None
    errors = ended.find_errors(evidence, target)
    left = metrics.estimate_left(step, outline.total, pace) if ending is None else None
    rests_on = "" if left is None else "the median of the last %d steps × %d to go" % (
        pace.steps, (outline.total or 0) - (step or 0))
    stage = "" if points else _tell_stage(health, evidence, main)
    if joining is not None and not points:
        from ..text.joined import tell_stage
        stage = tell_stage(joining)
    findings = [_fill(one, target, evidence, step) for one in findings]
    findings.sort(key=lambda one: ("stop", "risk", "note").index(one.severity))
    readings = signatures.read_metrics(health.METRICS, proof, outline.flags)
    verdict, conclusion = _conclude(target, findings, ending, step, stage, idle, is_fresh, bool(evidence.tracks), readings,
                                    hidden, ended.find_last_word(evidence, errors) if target.state != "live" else None)
    if target.state != "live" or verdict == UNKNOWN or any(one.name == "run:stalled" for one in findings):
        left, rests_on = None, ""
    notes += _note_limit(target, left)
    checkpoint = health.find_checkpoint(outline, tell_target(target))
    readings += _tell_absent(health, evidence, points, outline) if points else ()
    return Status(
        target, verdict, conclusion, step, outline, stage, pace.usual, pace.first, left, rests_on, idle, checkpoint, readings,
        tuple(findings), ending, errors,
        _recommend(target, verdict, findings, ending, checkpoint), tuple(notes), evidence.tracks, now_seconds, joining)


def _tell_hidden(evidence: Evidence, sources: Tuple[str, ...]) -> str:
    """In words, which of the logs that tell steps we may not read."""
    for name in sources + ("launch",):
        log = evidence.files.get(name)
        if log and not os.access(log.path, os.R_OK):
            found = os.stat(log.path)
            return "its %s log can't be read: permission denied (%s's, mode %o): %s" % (
                name, procs.user_name(found.st_uid), found.st_mode & 0o7777, log.path)
    return ""


def _fill(finding: Finding, target: Target, evidence: Evidence, step: Optional[int]) -> Finding:
    """The advice with the run's own places in it: `{log}`, `{run_dir}`, `{run}`, `{step}`. What needs a directory that is not
    known is left out."""
    log = next((evidence.files[name].path for name in target.logs if name in evidence.files), target.launch_log)
    places = {"{run_dir}/logs/latest/%s.log" % name: one.path for name, one in evidence.files.items()}
    places.update({"{log}": log or "LOG", "{run}": target.id or log or target.name, "{step}": "*" if step is None else str(step)})
    if target.run_dir:
        places["{run_dir}"] = target.run_dir
    advice = []
    for words in finding.advice:
        for name, path in places.items():
            words = words.replace(name, path if path == "*" else quote_words([path]))
        advice += [words] if "{run_dir}" not in words else []
    return finding._replace(advice=tuple(advice))


def _tell_absent(health: Any, evidence: Evidence, points: List[Point], outline: Outline) -> Tuple[Reading, ...]:
    """A Reading without a value for the families of metrics (`val/*`) of which the logs tell none yet."""
    keys = [metric.key for metric in health.METRICS if metric.key.endswith("*")]
    told = {key for key in keys for track in evidence.tracks.values() for point in track.points
            if any(one.startswith(key[:-1]) for one in point.values)}
    rows = {metric.row: metric.key for metric in reversed(health.METRICS) if metric.key in keys}
    heard = {metric.row for metric in health.METRICS if metric.key in told}
    silent = {row: key for row, key in rows.items() if row not in heard}
    every = outline.test_every
    words = "test_freq=%d not reached yet" % every if every and every > 0 and points[-1].step < every else "none told so far"
    return tuple(Reading(key, key, row, "", None, None, False, (), "skipped", words) for row, key in silent.items())


def _list_training(track: Optional[Track]) -> List[Point]:
    return [point for point in track.points if point.is_training] if track else []


def _measure_idle(evidence: Evidence, sources: Tuple[str, ...], now_seconds: float) -> Optional[float]:
    """Seconds since the last write to a log that tells steps, else to any; negative where the file's clock is ahead."""
    logs = [evidence.files[name] for name in sources if name in evidence.files] or list(evidence.files.values())
    return now_seconds - max(log.modified_seconds for log in logs) if logs else None


def _note_limit(target: Target, left: Optional[float]) -> List[str]:
    """L21: will Slurm end the run before its last step, by the pace so far?"""
    if left is None or not target.jobs:
        return []
    from ..text import slurm_words
    from ..text.durations import format_elapsed
    for job, told in ((target.record or {}).get("job_told") or {}).items():
        room = slurm_words.read_seconds(str(told.get("left") or ""))
        if told.get("state") == "RUNNING" and room is not None and room < left:
            return ["the time limit of job %s comes before the last step, by the pace so far: %s left of it, and about %s to go"
                    % (job, format_elapsed(room), format_elapsed(left))]
    return []


def _note_logs(evidence: Evidence, sources: Tuple[str, ...], idle: Optional[float], target: Target) -> List[str]:
    notes = []
    if idle is not None and idle < -_SKEW_SECONDS:
        notes.append("the log's time is %d s ahead of this machine's clock: ages are not exact" % -idle)
    for name in sources:
        track = evidence.tracks.get(name)
        if track and track.earlier:
            shown = ", ".join("%d to %d" % pair for pair in track.earlier[-3:])
            notes.append("the steps in the %s log fell back: a restart lies in it; before it: steps %s" % (name, shown))
        if track and track.missing and not track.path.endswith(".jsonl"):
            notes.append("%d steps are missing in the %s log: left out by its own folding, or lost" % (track.missing, name))
        hole = lines.measure_holes(track.path) if track else 0
        if hole:
            notes.append("the %s log was truncated from outside while it was written: %d bytes of it are a hole" % (name, hole))
    if not evidence.files and target.logs:
        notes.append("no log of it is there yet: %s" % next(iter(target.logs.values())))
    return notes


def quote_metric(health: Any, evidence: Evidence, path: str, offset: int, key: str) -> Quote:
    """The place of a metric: log, line (counted where that is cheap), and the part of the line that tells step and value."""
    from ..text.shell import escape_controls, strip_colour
    text = strip_colour(lines.read_line_at(path, offset).decode("utf-8", "replace"))
    return Quote(path, offset, lines.count_line(path, offset), escape_controls(health.quote_metric(text, key)))


def _tell_stage(health: Any, evidence: Evidence, main: str) -> str:
    """What is known before the first step that was read: a validation, that steps lie too far back, else how far the start is."""
    track = evidence.tracks.get(main)
    if track and track.points:
        return "validated at step %d; no training step yet" % track.points[-1].step
    if track and not track.is_whole:
        first = gather.read_first_step(health, main, track.path)
        return "no step in the last %d MiB of its log%s" % (lines.SEARCH_BYTES >> 20, "" if first is None else
                                                             "; its beginning tells of step %d" % first)
    return find_stage(health, evidence)


def find_stage(health: Any, evidence: Evidence) -> str:
    """How far a start has come, by the last stage of which a log speaks; "" where none does."""
    found = ""
    for pattern, words in health.STAGES:
        compiled = re.compile(pattern)
        last = None
        for text in evidence.texts.values():
            for match in compiled.finditer(text.data):
                last = match
        if last is not None:
            groups = [(group or b"").decode("utf-8", "replace").strip() for group in last.groups()]
            found = words.format(*groups, nodes=evidence.outline.nodes)
    return found


def _find_slow(track: Optional[Track], points: List[Point], proof: signatures.Evidence, key: str) -> List[Finding]:
    ratio = metrics.find_slowdown(points)
    if ratio is None or track is None:
        return []
    return [Finding("step:slow", "risk", "steps take %.1f times as long as before" % ratio,
                    (proof.quote(track.path, points[-1].offset, key),),
                    ("rlrun status {run} --json    # compare nodes and replicas of its block with what is alive",
                     "nvidia-smi    # clocks, and who else is on the GPUs"))]


def _find_stall(evidence: Evidence, target: Target, health: Any, main: str, points: List[Point], pace: metrics.Pace,
                idle: Optional[float], now_seconds: float) -> List[Finding]:
    """A live run whose log stands still: the log's age against what its steps take, and where the log's lines bear the time of
    day, the age of its last step too."""
    if idle is None or (target.kind and target.kind not in health.STEP_KINDS):
        return []  # an idle server writes nothing
    track = evidence.tracks.get(main)
    limit = metrics.find_stall_limit(pace, not points or _is_long_now(evidence.outline, points[-1].step))
    text = evidence.texts.get(main)
    age = read_step_age(points[-1], text.data, now_seconds - evidence.files[main].modified_seconds) \
        if points and text and main in evidence.files else None
    is_silent = idle > limit
    if not is_silent and not (age is not None and age > 2 * limit and pace.usual):
        return []
    from ..text.durations import format_elapsed
    silent = idle if is_silent else age or 0.0
    usual = " (usual step: %s)" % format_elapsed(pace.usual) if pace.usual and pace.usual >= 1 else (
        " (usual step: %.1f s)" % pace.usual if pace.usual else "")
    words = "stalled for %s%s: the process lives, and %s" % (
        format_elapsed(silent), usual, "its log stands still" if is_silent else "no step comes")
    quotes = _quote_last(evidence, main)
    if track and points:
        quotes = (quote_metric(health, evidence, track.path, points[-1].offset, ""),)
    pid = next((pid for label, pid in target.pids if label == "trainer"), target.pids[0][1] if target.pids else 0)
    process = procs.read_processes().get(pid)
    if process and process.state in _STUCK:
        words += "; pid %d %s" % (pid, _STUCK[process.state])
    first = ("kill -CONT %d    # it was stopped by a signal" % pid,) if process and process.state == "T" else ()
    return [Finding("run:stalled", "stop" if points else "risk", words, quotes,
                    first + ("py-spy dump --pid %d    # where it waits, if py-spy is there" % pid,
                     "nvidia-smi    # 0 % on every GPU: nothing is computed"))]


def _quote_last(evidence: Evidence, main: str) -> Tuple[Quote, ...]:
    from ..text.redact import redact
    from ..text.shell import escape_controls, strip_colour
    text = evidence.texts.get(main) or next(iter(evidence.texts.values()), None)
    if text is None or not text.data.strip():
        return ()
    data = text.data.rstrip(b"\r\n")
    begin = data.rfind(b"\n") + 1
    line = None if text.first_line is None else text.first_line + data.count(b"\n", 0, begin)
    words = redact(strip_colour(growth.fold_returns(data[begin:])[:2000].decode("utf-8", "replace")))
    return (Quote(text.path, text.offset + begin, line, escape_controls(words)[:240]),)


def _is_long_now(outline: Outline, step: int) -> bool:
    """Is this step followed by a validation or a checkpoint, which takes longer than a step?"""
    return any(every and every > 0 and step % every == 0 for every in (outline.test_every, outline.save_every))


def read_step_age(point: Point, data: bytes, idle_seconds: float) -> Optional[float]:
    """Seconds since a step line, where its log's lines bear the time of day: by how much the last of them is later, and how
    long ago the log was written. Clock and time zone of the node that wrote it do not matter. None where it bears none."""
    clocks = _CLOCK.findall(data)
    if not point.clock or not clocks:
        return None
    try:
        last, then = (_read_clock(word) for word in (clocks[-1].decode("ascii"), point.clock))
    except ValueError:
        return None
    # The shorter way round: lines of threads come out of order, and clocks are set back.
    between = (last - then + _DAY_SECONDS // 2) % _DAY_SECONDS - _DAY_SECONDS // 2
    return max(0.0, idle_seconds) + max(0, between)


def _read_clock(word: str) -> int:
    hours, minutes, seconds = word.split(":")
    return int(hours) * 3600 + int(minutes) * 60 + int(seconds)


def _conclude(target: Target, findings: List[Finding], ending: Optional[Ending], step: Optional[int], stage: str,
              idle: Optional[float], is_fresh: bool, has_log: bool, readings: Tuple[Reading, ...],
              hidden: str, last_word: Optional[Quote]) -> Tuple[str, str]:
    """(verdict, one line). `is_fresh`: the log is not older than a live run's may be."""
    from ..text.durations import format_age
    written = "log last written %s" % format_age(max(0.0, idle)) if idle is not None else "no log to read"
    if ending is not None:
        return ENDED, ending.words
    grave = [one for one in findings if one.severity != "note"]
    if grave:
        more = "; and %d more" % (len(grave) - 1) if len(grave) > 1 else ""
        verdict = STOP if grave[0].severity == "stop" else AT_RISK
        if target.state == "live" or is_fresh:
            return verdict, grave[0].words.rstrip(".") + more
    if hidden and step is None:
        return UNKNOWN, hidden
    if target.state != "live" and is_fresh and last_word is not None:
        return UNKNOWN, "its log ends with an error, and no process of it is here: %s" % last_word.text
    if target.state in ("unknown", "elsewhere") and not is_fresh:
        where = "its processes are on %s" % target.host if target.host and target.state == "elsewhere" else \
            tell_jobs(target) if target.jobs else "whether it lives can't be told from here"
        return UNKNOWN, "%s; %s%s" % (written, where, "; its last numbers: %s" % grave[0].words if grave else "")
    if target.jobs and step is None and target.state == "live":
        return NO_STEP, "; ".join([tell_jobs(target)] + ([stage] if stage and not is_waiting(target) else []))
    if target.jobs and step is None and target.state == "unknown":
        return UNKNOWN, "; ".join([tell_jobs(target), stage or written])
    if step is None and target.kind and target.kind not in load_health(target.stack).STEP_KINDS:
        return HEALTHY, "it lives, and no error is known; a run of this kind tells no steps; %s" % written
    if step is None and (not has_log or stage.startswith("no step in the last")):
        return UNKNOWN, "%s; %s" % (stage or "no log to read", written)
    if step is None:
        return NO_STEP, stage or "it lives; %s" % written
    bad = [one for one in readings if one.mark == "blocks"]
    if bad:
        return AT_RISK, "%s: %s; %s" % (bad[0].key, bad[0].words or "out of its usual range", written)
    if findings:
        return HEALTHY, "nothing grave; noted: %s; %s" % (", ".join(one.name for one in findings), written)
    return HEALTHY, "%sno known signature matched; %s%s" % (
        ("", written, "") if target.state == "live" else
        ("by its log alone: ", written, "; " + tell_jobs(target)) if target.jobs and target.state == "unknown" else
        ("by its numbers alone: ", written, "; no process of it is here: it runs on another node, or has just ended"))


def _recommend(target: Target, verdict: str, findings: List[Finding], ending: Optional[Ending],
               checkpoint: Optional[Checkpoint]) -> Tuple[str, ...]:
    """At most three, cheapest first: what to run, or whom to ask; to stop the run comes last, and is its owner's to do."""
    found: List[str] = []
    if ending is not None:
        return tuple(dict.fromkeys(ending.advice))[:_RECOMMENDATIONS]
    graves = [one for one in findings if one.severity != "note"]
    for place in range(_RECOMMENDATIONS):
        found += [one.advice[place] for one in graves if place < len(one.advice)]
    found = list(dict.fromkeys(found))
    stop = find_run.find_stop(target)
    if verdict == STOP and stop:
        kept = "the newest complete checkpoint is of step %d" % checkpoint.step if checkpoint else "no checkpoint is on disk"
        found = found[:_RECOMMENDATIONS - 1] + ["%s    # %s to stop it; %s" % (
            stop, "yours" if target.user == procs.user_name(os.geteuid()) else "ask %s" % target.user, kept)]
    return tuple(found[:_RECOMMENDATIONS])


def count_trials(target: Target, outline: Outline) -> Optional[int]:
    """How many trials lie in the run's directory and in those of its siblings; None where none is told."""
    folders = [outline.trials] if outline.trials else []
    folders += [os.path.dirname(one) if os.path.basename(one) == "logs" else one for one in target.siblings]
    total: Optional[int] = None
    for folder in folders:
        try:
            with os.scandir(folder) as entries:
                total = (total or 0) + sum(1 for entry in entries if entry.is_dir() and not entry.name.startswith(("logs", ".")))
        except OSError:
            continue
    return total
