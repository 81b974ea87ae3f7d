"""A run by its files alone: which training system wrote them, and which logs belong together. By what they say, not by names."""
import functools
import os
import re
from typing import Any, Dict, Sequence, Tuple

from ..errors import USAGE, OperatorError
from ..health import lines
from ..host.files import read_head
from ..stacks import STACKS, load_health, load_recognisers
from ..vitals import Target

# A log that was written so lately may grow, whoever writes it.
GROWING_SECONDS = 120.0
_NEWEST = 64
_CLAIM_BYTES = 1 << 18
_CLAIM_STEPS = 8


def from_files(path: str, now_seconds: float) -> Target:
    """The Target of a run of which nothing but its files is known here: no record, no process. OperatorError (exit 2) for what
    is no log of a run."""
    above = _find_around(path)
    around = above if above or not os.path.isdir(path) else path
    best: Tuple[int, str, str, Dict[str, str]] = (-1, "", "", {})
    for stack in STACKS:
        health = load_health(stack)
        run_dir, logs = around, health.list_logs("", {"run_dir": around}) if around else {}
        if not os.path.isdir(path) and os.path.realpath(path) not in [os.path.realpath(one) for one in logs.values()]:
            run_dir, logs = "", _claim_log(health, path)
        if any(lines.stat_log(one) for one in logs.values()):
            steps = sum(_count_steps(health, source, logs[source]) for source in health.SOURCES if source in logs)
            best = max(best, (steps, stack, run_dir, logs), key=lambda one: one[0])
            if steps >= _CLAIM_STEPS:
                break
    _, stack, run_dir, logs = best
    if best[0] <= 0:
        stack, guessed = _guess_log(path)
        logs = guessed if guessed and (best[0] < 0 or stack != best[1]) else logs
        stack, run_dir = (stack, run_dir) if logs is guessed else (best[1], best[2])
        if not logs:
            raise OperatorError("%s holds no log of a run" % path, "Name a run's directory, or one of its logs.", USAGE, "no-run")
    changed = max((one.modified_seconds for one in map(lines.stat_log, logs.values()) if one), default=0.0)
    grows = now_seconds - changed < GROWING_SECONDS
    note = "no process of it is here, and its log was written just now: it runs on another node or out of sight, or has just " \
        "ended" if grows else \
        "no process of it is here, and rlrun has no record of it: whether it lives elsewhere can't be told"
    name = os.path.basename(run_dir.rstrip("/")) if run_dir else os.path.splitext(os.path.basename(path))[0]
    return Target("", name, stack, "", "", "elsewhere" if grows else "unknown", logs, "", run_dir, "", "", (), None, None, (),
                  (note,))


def _find_around(path: str) -> str:
    """The run directory of `<run>/logs/<attempt>` or of a log in it, whose logs belong together; "" for what lies elsewhere."""
    inner = path if os.path.isdir(path) else os.path.dirname(path)
    for folder in (inner, os.path.dirname(inner)):
        if os.path.basename(os.path.dirname(folder)) == "logs":
            return os.path.dirname(os.path.dirname(folder))
    return ""


def _claim_log(health: Any, path: str) -> Dict[str, str]:
    """{source: path} where the log holds step lines of this stack: the source that its name says, else the one of which it
    holds most. Beside a log that bears its source's name lie the others of that run."""
    stem = os.path.splitext(os.path.basename(path))[0]
    count, _, _, source = max((min(1, _count_steps(health, one, path)), one == stem, _count_known(health, one, path), one)
                              for one in health.SOURCES)
    if not count:
        return {}
    if source != stem:
        return {source: path}
    beside = {one: os.path.join(os.path.dirname(path), one + os.path.splitext(path)[1]) for one in health.SOURCES}
    return {one: other for one, other in beside.items() if one == source or _count_steps(health, one, other)}


def _count_known(health: Any, source: str, path: str) -> int:
    """How many of a source's own metrics the last step line of a log tells."""
    parse = functools.partial(health.parse_step, source, wanted=None)
    points = lines.read_track(path, health.STEP_MARKS[source], parse, 1).points
    own = {metric.key for metric in health.METRICS if (metric.source or health.SOURCES[0]) == source}
    return sum(1 for point in points for key in point.values if key in own)


def _count_steps(health: Any, source: str, path: str) -> int:
    """How many step lines of a source stand at the end of a log, up to _CLAIM_STEPS."""
    mark = health.STEP_MARKS[source]
    data, _, _ = lines.read_end(path, _CLAIM_BYTES)
    found = [one for one in data.replace(b"\r", b"\n").split(b"\n") if mark in one][-_CLAIM_STEPS:]
    return sum(1 for one in found if health.parse_step(source, one.decode("utf-8", "replace"), ()))


def _guess_log(path: str) -> Tuple[str, Dict[str, str]]:
    """(stack, logs) of a file or a folder by what its logs say: the newest one that holds steps, else the newest that a board
    would show, else none. A file must hold the words of a start, or of an end."""
    if not os.path.isdir(path):
        text = read_head(path, _CLAIM_BYTES) + lines.read_end(path, _CLAIM_BYTES)[0]
        for stack in STACKS:
            health = load_health(stack)
            if any(re.search(one, text) for one in [pattern for pattern, _ in health.STAGES] + list(health.FINISHED)):
                return stack, {health.SOURCES[0]: path}
        return "", {}
    paths = [os.path.join(folder, name) for folder in (path, os.path.join(path, "logs")) for name in _list_names(folder)
             if name.endswith((".log", ".out"))]
    logs = sorted((log for log in map(lines.stat_log, paths) if log), key=lambda log: -log.modified_seconds)[:_NEWEST]
    for log in logs:
        for stack in STACKS:
            claimed = _claim_log(load_health(stack), log.path)
            if claimed:
                return stack, claimed
    for log in logs:
        for stack, module in load_recognisers().items():
            if module.is_board_name(os.path.basename(log.path)):
                return stack, {load_health(stack).SOURCES[0]: log.path}
    return "", {}


def _list_names(folder: str) -> Sequence[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return ()
