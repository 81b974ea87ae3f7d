"""The gates of a run: its first step judged, as far as its logs tell it. Waits for nothing."""
from typing import Any, NamedTuple, Optional, Tuple

from ..errors import BLOCKED, OK, USAGE, OperatorError
from ..health import signatures
from ..stacks import load_health
from ..vitals import GateResult
from . import examine, grow


class Judged(NamedTuple):
    """How the gates stand: `code` is None while they are waited for."""

    code: Optional[int]
    step: Optional[int]
    results: Tuple[GateResult, ...]


def has_gates(stack: str, kind: str) -> bool:
    """Whether runs of this kind tell steps that gates can be judged by; a kind that is not known may."""
    health = load_health(stack)
    return bool(health.GATES) and (not kind or kind in health.STEP_KINDS)


def judge(growing: grow.Growing, step: int) -> Judged:
    """The gates on the first step that is told at or after `step`; undecided while one of them waits for a line. OperatorError
    (exit 2) where none is of concern to the run."""
    health = load_health(growing.target.stack)
    evidence = growing.evidence
    first = [point.step for track in evidence.tracks.values() for point in track.points
             if point.is_training and point.step >= step]
    if not first:
        return Judged(None, None, ())

    def quote(path: str, offset: int, key: str) -> Any:
        return examine.quote_metric(health, evidence, path, offset, key)
    at = min(first)
    proof = signatures.Evidence(evidence.tracks, evidence.texts, health.SOURCES[0], quote)
    results = signatures.judge_gates(health.GATES, proof, evidence.outline.flags, max(at, step))
    states = [one.state for one in results]
    if set(states) == {"skipped"}:
        raise OperatorError("no gate is of concern to this run: %s" % "; ".join(sorted({one.words for one in results})),
                            "rlrun status says how it is; name its directory where a log alone was named.", USAGE, "no-gate")
    if "failed" in states:
        return Judged(BLOCKED, at, results)
    return Judged(OK if "passed" in states and "unknown" not in states else None, at, results)


def conclude(judged: Judged) -> str:
    """One line on gates that were judged, and on those that could not be: "" before a step was told."""
    if judged.step is None:
        return ""
    if judged.code == OK:
        return "the gates are passed at step %d" % judged.step
    if judged.code == BLOCKED:
        return "%s failed at step %d" % (", ".join(one.name for one in judged.results if one.state == "failed"), judged.step)
    waits = [one.words or one.name for one in judged.results if one.state == "unknown"]
    return "not every gate can be judged at step %d%s" % (judged.step, ": " + "; ".join(waits) if waits else "")
