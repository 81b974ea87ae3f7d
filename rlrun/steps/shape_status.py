"""Schema 1 of a run's Status: every number that the report and the page show. No secret is in it."""
import math
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ..text.redact import redact
from ..vitals import Ending, Finding, GateResult, Quote, Reading, Status, Target, Track
from . import joining

_CURVES = 16
SCHEMA = 1


def shape_status(status: Status, title: str, stop: str, code: int, secrets: Tuple[str, ...]) -> Dict[str, Any]:
    """The object of `status --json`, which `--html` is made from too."""
    target, outline = status.target, status.outline
    record = target.record or {}
    started = target.started_seconds
    elapsed: Optional[float] = None
    if started is not None:
        ended = (target.exit or {}).get("duration_seconds")
        is_waiting = bool(target.jobs) and all(state == "PENDING" for _, state in target.jobs)
        elapsed = float(ended) if isinstance(ended, (int, float)) else None if is_waiting else status.now_seconds - started
    pids: Dict[str, List[int]] = {}
    for label, pid in target.pids:
        pids.setdefault(label, []).append(pid)
    epoch = next((one.value for one in status.readings if one.key.endswith("/epoch")), None)
    return {
        "schema": SCHEMA, "command": "status", "exit": code,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(status.now_seconds)),
        "verdict": status.verdict, "conclusion": redact(status.conclusion, secrets),
        "run": {"id": target.id or None, "name": target.name, "stack": title, "kind": target.kind, "root": target.root or None,
                "state": target.state, "user": target.user or None, "host": target.host or None, "started_seconds": started,
                "elapsed_seconds": elapsed, "pids": pids, "logs": dict(target.logs), "launch_log": target.launch_log or None,
                "run_dir": target.run_dir or None, "siblings": list(target.siblings), "jobs": dict(target.jobs),
                "config": record.get("config") or None, "digest": record.get("digest") or None,
                "record": record.get("record") or None, "stop": stop or None},
        "progress": {
            "step": status.step, "total": outline.total, "total_from": outline.total_from or None, "epoch": shape_number(epoch),
            "epochs": outline.epochs, "stage": status.stage or None, "seconds_per_step": shape_number(status.seconds_per_step),
            "first_step_seconds": shape_number(status.first_step_seconds), "left_seconds": shape_number(status.left_seconds),
            "left_from": status.left_from or None, "idle_seconds": status.idle_seconds,
            "checkpoint": {"step": status.checkpoint.step, "path": status.checkpoint.path,
                           "incomplete": list(status.checkpoint.incomplete)} if status.checkpoint else None,
            "segments": _shape_segments(status.tracks), "joining": joining.shape(status.joining),
            "missing_steps": sum(track.missing for track in status.tracks.values())},
        "metrics": [_shape_reading(one) for one in status.readings],
        "curves": _shape_curves(status.readings, status.tracks),
        "findings": [_shape_finding(one, secrets) for one in status.findings],
        "ending": shape_ending(status.ending, secrets) if status.ending else None,
        "errors": [shape_quote(one, secrets) for one in status.errors],
        "recommendations": [redact(one, secrets) for one in status.recommendations], "notes": list(status.notes),
        "configuration": redact(outline.block, secrets) if outline.block else None}


def _shape_segments(tracks: Dict[str, Track]) -> List[Dict[str, int]]:
    """Where the steps of a log fell back: what came before, and the present segment; else nothing."""
    for track in tracks.values():
        steps = [point.step for point in track.points if point.is_training]
        if track.earlier and steps:
            return [{"first": first, "last": last} for first, last in track.earlier + ((steps[0], steps[-1]),)]
    return []


def shape_number(value: Optional[float]) -> Any:
    """A number as JSON has it; nan, inf and -inf, which it does not have, as words."""
    return value if value is None or math.isfinite(value) else repr(value)


def shape_quote(quote: Quote, secrets: Tuple[str, ...]) -> Dict[str, Any]:
    """A place in a log."""
    return {"log": quote.log, "line": quote.line, "offset": quote.offset, "text": redact(quote.text, secrets)}


def _shape_reading(one: Reading) -> Dict[str, Any]:
    return {"key": one.key, "label": one.label, "row": one.row, "source": one.source, "value": shape_number(one.value),
            "step": one.step, "rounded": one.is_rounded, "mark": one.mark, "words": one.words,
            "trend": [shape_number(value) for value in one.trend]}


def _shape_curves(readings: Sequence[Reading], tracks: Dict[str, Track]) -> List[Dict[str, Any]]:
    """The whole history that was read of each metric with more than its last value."""
    curves = []
    for one in readings:
        track = tracks.get(one.source)
        points = [[point.step, shape_number(point.values[one.key])] for point in track.points
                  if one.key in point.values] if track else []
        if points and not one.key.endswith("/epoch"):
            curves.append({"key": one.key, "label": one.label, "source": one.source, "points": points})
    return curves[:_CURVES]


def _shape_finding(one: Finding, secrets: Tuple[str, ...]) -> Dict[str, Any]:
    return {"name": one.name, "severity": one.severity, "words": one.words, "advice": list(one.advice),
            "quotes": [shape_quote(quote, secrets) for quote in one.quotes]}


def shape_ending(one: Ending, secrets: Tuple[str, ...]) -> Dict[str, Any]:
    """How a run ended."""
    return {"how": one.how, "words": redact(one.words, secrets), "status": one.status, "signal": one.signal or None,
            "first_error": shape_quote(one.first_error, secrets) if one.first_error else None, "advice": list(one.advice)}


def shape_gate(one: GateResult, secrets: Tuple[str, ...]) -> Dict[str, Any]:
    """One gate of `gate --json`."""
    return {"name": one.name, "state": one.state, "words": one.words or None,
            "quote": shape_quote(one.quote, secrets) if one.quote else None}


def shape_candidate(target: Target) -> Dict[str, Any]:
    """One of several runs that may be meant."""
    return {"id": target.id or None, "name": target.name, "kind": target.kind, "state": target.state, "root": target.root or None,
            "user": target.user or None, "pids": [pid for _, pid in target.pids], "started_seconds": target.started_seconds,
            "jobs": dict(target.jobs)}
