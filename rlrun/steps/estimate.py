"""How long a step may take: a guess, and said to be one, from earlier logs of the same project or not at all."""
import glob
import os
import stat
from typing import List, Optional, Tuple

from ..health import tail
from ..stacks import load_stack
from ..values import Plan
from . import records

_LOGS = 5
_RECORDS = 200  # the newest: a guess need not read thousands
_TAIL_BYTES = 1 << 18


def find_project_logs(plan: Plan) -> Tuple[str, ...]:
    """Earlier training logs of this project, newest first: those of recorded launches, and those that lie where this
    run's would lie if it had another name."""
    paths = {one["train_log"] for one in records.list_records(plan.root, _RECORDS)
             if one["project"] == plan.project and one["kind"] == plan.kind and one["train_log"]}
    if plan.project and plan.experiment and plan.experiment in plan.train_log and \
            "/%s/" % plan.project in plan.train_log.split(plan.experiment)[0] + "/":
        pattern = "*".join(glob.escape(part) for part in plan.train_log.split(plan.experiment))
        paths |= set(glob.glob(pattern))
    found = []
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode):  # reading a pipe would wait for ever
            found.append((status.st_mtime, path))
    return tuple(path for _, path in sorted(found, reverse=True)[:_LOGS])


def estimate_run(plan: Plan) -> Optional[float]:
    """How long the whole run may take, in seconds: a guess, the longest of the recorded runs of this very config that ended 0;
    None where there is none."""
    lasted = [one["exit"]["duration_seconds"] for one in records.list_records(plan.root, _RECORDS)
              if one["kind"] == plan.kind and one["config"] == plan.config_shown and one["exit"]
              and one["exit"]["status"] == 0 and one["exit"]["duration_seconds"]
              and not one.get("is_submission")]  # what handed a job in was done at once
    return max(lasted) if lasted else None


def estimate_step(plan: Plan) -> str:
    """`roughly 0.9 hours/step (a guess: the median of 41 steps in 3 earlier logs …)`, or why it is unknown."""
    if plan.kind != "train":
        return ""
    seconds: List[float] = []
    logs = 0
    read = load_stack(plan.stack).read_step_seconds
    for path in find_project_logs(plan):
        steps = read(tail.read_tail(path, _TAIL_BYTES).decode("utf-8", "replace"))
        logs += 1 if steps else 0
        seconds += steps
    if not seconds:
        return "hours/step unknown: no earlier log of project %s" % (plan.project or "?")
    return "roughly %s/step (a guess: the median of %d steps in %d earlier log%s of this project)" % (
        _show_length(sorted(seconds)[len(seconds) // 2]), len(seconds), logs, "" if logs == 1 else "s")


def _show_length(seconds: float) -> str:
    """`0.9 hours`, `12 minutes`, `1 s`: in the unit in which it is a number that people read."""
    amount, unit = (seconds / 3600, "hours") if seconds >= 1800 else (seconds / 60, "minutes") if seconds >= 120 else (
        max(seconds, 0.01), "s")
    return "%s %s" % ("%.2g" % amount if amount < 10 else "%.0f" % amount, unit)
