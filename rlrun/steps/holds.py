"""What is in the way of a launch that only time can lift, as the judges word it: who holds what since when. Judges nothing."""
import re
from typing import NamedTuple, Tuple

from ..host import procs
from ..text.durations import format_elapsed
from ..values import Check, Machine, Verdict
from . import waiters

# What ends by itself: runs, holders of GPUs and ports, other users' processes in the launch's way. No path ever blocks a sweep.
LIFTABLE = ("job:running", "gpu:foreign", "port:conflict", "sweep:foreign")
# What could be told at first and no longer can is not known to be gone.
UNKNOWN = ("gpu:unknown", "port:unknown", "job:hidden")
# pid 41877 (alice), up 3d 4h: …   6379 (Ray) on 0.0.0.0 is held by pid 7 (bob), …   the run that pid 5 began (…)
# a Ray cluster is alive, and this launch would end it: pid 8 (eve), …   a run lives in /d (pids 5 6), and …
_PIDS = re.compile(r"(?:^|would end it: |held by |the run that |would kill )pid ([0-9]+)|\(pids ([0-9 ]+)\), and ")
# …, 60.0 GiB on GPU 0-7   GPU 3: 12.1 GiB in use by …   GPU 0,1 is taken by …   6379 (Ray) on …
_GPUS = re.compile(r" on (GPU [0-9,?-]+)\Z|^(GPU [0-9,?-]+)(?::| is )")
_PORT = re.compile(r"([0-9]+) \(")


class Hold(NamedTuple):
    """Something in the way: `pids` of whoever must end, `what` is held, in `words`."""

    name: str
    pids: Tuple[int, ...]
    what: str
    words: str
    owners: Tuple[str, ...]


def list_holds(verdict: Verdict, machine: Machine, known: Tuple[str, ...] = ()) -> Tuple[Hold, ...]:
    """What is in the way by this verdict, in its order: what only time can lift, and what could be told before and can't be
    now. `known`: the names of what could not be told before either."""
    holds = []
    for check in verdict.checks:
        if check.status == "blocks" and check.name in LIFTABLE:
            holds.append(_make_hold(check, machine))
        elif check.name in UNKNOWN and check.name not in known:
            holds.append(Hold(check.name, (), "", check.detail, ()))
    return tuple(holds)


def _make_hold(check: Check, machine: Machine) -> Hold:
    match = _PIDS.search(check.detail)
    pids = tuple(int(word) for word in (match.group(1) or match.group(2)).split()) if match else ()
    seen = [machine.processes[pid] for pid in pids if pid in machine.processes]
    what = _name_what(check)
    owners = tuple(sorted({procs.user_name(process.uid) for process in seen}))
    if not seen:
        return Hold(check.name, pids, what, check.detail, owners)
    who = "pid %d (%s) since %s (up %s)%s" % (
        seen[0].pid, procs.user_name(seen[0].uid), waiters.describe_since(seen[0].elapsed_seconds),
        format_elapsed(seen[0].elapsed_seconds), " and %d more" % (len(pids) - 1) if len(pids) > 1 else "")
    words = {"job:running": "the run of %s" % who, "sweep:foreign": "%s, whom this launch would kill" % who}
    return Hold(check.name, pids, what, words.get(check.name, "%s held by %s" % (what, who)), owners)


def _name_what(check: Check) -> str:
    """`GPU 0-7`, `port 6379`, as the check's own words have it."""
    if check.name == "gpu:foreign":
        found = _GPUS.search(check.detail)
        return (found.group(1) or found.group(2)) if found else "a GPU that can't be told"
    found = _PORT.match(check.detail) if check.name == "port:conflict" else None
    return "port %s" % found.group(1) if found else ""
