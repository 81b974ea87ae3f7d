"""`rlrun gate`: waits for the first step and judges it. Made for `rlrun run … && rlrun gate || mail`."""
import argparse
import json
import time
from typing import Any, Dict, List, Tuple

from ..errors import BLOCKED, NOT_REACHED, OK, RUN_ENDED, USAGE, OperatorError
from ..stacks import load_health
from ..steps import examine, grow, jobs, joining, judge_gate, shape_status
from ..steps.judge_gate import Judged
from ..text import terminal as term
from ..text import vitals_report
from ..text.durations import format_elapsed, parse_duration
from ..text.redact import redact
from ..text.shell import escape_controls, quote_words
from ..vitals import Status, Target
from . import status as status_command

_TIMEOUT = "60m"
_POLL_SECONDS = 1.0
_REFRESH_SECONDS = 3.0
_COST_TIMES = 20.0  # a look at all processes and records takes at most a twentieth of the time
_TELL_SECONDS = 300.0
_POINTS = 2000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `gate`."""
    status_command.add_run_arguments(parser)
    parser.add_argument("--timeout", default=_TIMEOUT, metavar="TIME", help="how long to wait: 90m, 2h; default: %s" % _TIMEOUT)
    parser.add_argument("--step", type=int, default=0, metavar="N", help="judge step N, or the first one told after it")


def run(options: Any, terminal: term.Terminal, overrides: Tuple[str, ...]) -> int:
    """Exit 0 passed, 1 failed, 4 the run ended first, 6 not reached in time. A Ctrl-C ends only the waiting (130)."""
    try:
        limit = parse_duration(options.timeout)
    except ValueError as error:
        raise OperatorError("--timeout: %s" % error, "rlrun gate --timeout 90m", USAGE, "usage")
    if options.step < 0:
        raise OperatorError("--step: a step is 0 or more", "rlrun gate --step 5", USAGE, "usage")
    target = status_command.pick_target(options.run, options.root, terminal, "gate")
    _refuse_worker(target)
    if not judge_gate.has_gates(target.stack, target.kind):
        raise OperatorError("a run of kind %s tells no steps, so there is no gate" % (target.kind or "unknown"),
                            "rlrun status %s says how it is." % (target.id or target.name), USAGE, "no-gate")
    for note in target.notes if target.record and target.state in ("elsewhere", "unknown") else ():
        term.print_note(terminal, escape_controls(note))
    started = time.monotonic()
    growing = grow.start(target, _POINTS)
    told, pause = "", _REFRESH_SECONDS
    told_at = refreshed_at = started
    while True:
        judged = judge_gate.judge(growing, options.step)
        now = time.monotonic()
        if growing.target.state == "over" and judged.step is None:
            _refuse_worker(growing.target)
        if growing.target.state == "over" and judged.code != BLOCKED and (judged.code is None or _has_ended_badly(growing)):
            return _finish(growing, judged._replace(code=RUN_ENDED), terminal)
        if judged.code is not None:
            return _finish(growing, judged, terminal)
        if now - started >= limit:
            return _finish(growing, judged._replace(code=NOT_REACHED), terminal, limit)
        words = _describe_wait(growing, judged)
        if words != told or now - told_at >= _TELL_SECONDS:
            told, told_at = words, now
            shown = redact(words, status_command.collect_secrets(growing.target))
            term.print_note(terminal, escape_controls("%s: %s (%s of %s)" % (
                growing.target.name, shown, format_elapsed(now - started), format_elapsed(limit))))
        time.sleep(min(_POLL_SECONDS, max(0.05, limit - (now - started))))
        if now - refreshed_at >= pause:
            target = grow.refresh(growing.target)
            refreshed_at = time.monotonic()
            pause = max(_REFRESH_SECONDS, _COST_TIMES * (refreshed_at - now))
        growing = grow.update(growing, target)


def _refuse_worker(target: Target) -> None:
    if joining.is_worker(target):
        raise OperatorError("this is a worker's part of a run on several nodes: it joins the head, and tells no steps",
                            "Ask on the head's node: rlrun gate; of this one: rlrun status %s" % (target.id or target.name),
                            USAGE, "no-gate")


def _has_ended_badly(growing: grow.Growing) -> bool:
    return status_command.pick_code(examine.examine(growing.target, growing.evidence, time.time())) == RUN_ENDED


def _describe_wait(growing: grow.Growing, judged: Judged) -> str:
    if judged.step is not None:
        return "; ".join(one.words for one in judged.results if one.state == "unknown") or "step %d" % judged.step
    last = [point.step for track in growing.evidence.tracks.values() for point in track.points if point.is_training]
    if last:
        return "at step %d" % max(last)
    states = jobs.tell_jobs(growing.target, True)  # without what changes at every look: it is told once a change
    if jobs.is_waiting(growing.target) or growing.target.state == "unknown" and states:
        return states
    return examine.find_stage(load_health(growing.target.stack), growing.evidence) or states or "no step yet"


def _finish(growing: grow.Growing, judged: Judged, terminal: term.Terminal, limit: float = 0.0) -> int:
    code = judged.code or OK
    secrets = status_command.collect_secrets(growing.target)
    found = status_command.hide_secrets(examine.examine(growing.target, growing.evidence, time.time(), secrets))
    if terminal.is_json:
        shape: Dict[str, Any] = {
            "schema": 1, "command": "gate", "exit": code, "reached": judged.step is not None, "step": judged.step,
            "gates": [shape_status.shape_gate(one, secrets) for one in judged.results],
            "conclusion": _conclude(found, judged, limit),
            "run": {"id": growing.target.id or None, "name": growing.target.name, "state": growing.target.state,
                    "host": growing.target.host or None},
            "ending": shape_status.shape_ending(found.ending, secrets) if found.ending else None}
        term.print_result(terminal, json.dumps(shape, sort_keys=True))
        return code
    lines: List[str] = [escape_controls("%s: %s" % (growing.target.name, _conclude(found, judged, limit)))]
    lines += vitals_report.render_gates(terminal, judged.results)
    if found.ending is not None and found.ending.first_error is not None:
        lines.append("  the first error: %s" % vitals_report.show_quote(found.ending.first_error))
    if code:
        target = growing.target
        again = target.id or next(iter(target.logs.values()), "") or str(target.pids[0][1] if target.pids else target.name)
        lines += [escape_controls("  next: rlrun status %s" % quote_words([again]))]
    term.print_result(terminal, "\n".join(lines))
    return code


def _conclude(found: Status, judged: Judged, limit: float) -> str:
    if judged.code in (OK, BLOCKED):
        return judge_gate.conclude(judged)
    if judged.code == RUN_ENDED:
        words = found.ending.words if found.ending else "how is not known"
        return "the run ended before the gate: %s" % words if judged.step is None else \
            "the run has ended, after step %d was told: %s" % (judged.step, words)
    where = "not every gate can be judged" if judged.step is not None else "no step" if found.step is None else \
        "at step %d%s" % (found.step, " of %d" % found.outline.total if found.outline.total else "")
    stage = "" if found.verdict == examine.UNKNOWN else found.stage
    return "%s after %s; %s" % (where, format_elapsed(limit), stage or found.conclusion)
