"""rlrun, its keeper and the process that becomes the runner, ended by SIGKILL at one exact place each. Asserts nothing.

The real pyz is driven up to the launch once (driver.py) and goes on from there in one copy for each place: a launch without the
check before it. What each kill leaves is read from process table, lock and record.
"""
import os
import random
import signal
import subprocess
import sys
import time
from typing import Any, Dict, Iterable, List, NamedTuple, Sequence

from checkouts import add_config

from . import box as b
from . import cells

CONFIG = "killed"
ROLES = ("rlrun", "keeper", "runner")
# The toy's runner says its name, and waits for `release`.
_TEXT = """\
PROJECT_NAME=toy
EXP_NAME=killed-$(date +%s%N)
if [ "$DRY_RUN" != 1 ]; then while [ ! -e "$REPO_ROOT/release" ]; do sleep 0.02; done; exit 0; fi
"""
# Every function of these is a place, and both sides of these calls of the system in them.
_MODULES = ("steps/launch.py", "steps/keeper.py", "steps/record.py", "steps/lock.py", "child.py:exec_detached",
            "commands/launched.py:follow", "commands/launched.py:_collect")
_CALLS = ("fork", "execve", "setsid", "mkdir", "rename", "bind", "write", "wait4", "pthread_sigmask", "chdir")


class Driver(NamedTuple):
    """A driver that stands before the launch. `orders` is written to; what it tells is in the file `reports`."""

    popen: Any
    orders: Any
    reports: str


def add_toy(root: str) -> None:
    add_config(root, "train", CONFIG, _TEXT + cells.MODULES)


def start_driver(box: b.Box, digest: str) -> Driver:
    orders, reports = (os.path.join(box.folder, name) for name in ("orders", "reports"))
    os.mkfifo(orders)
    words = ["run", CONFIG, "--again", "--board", "leave", "--confirm", digest]
    popen = subprocess.Popen([box.python, cells.DRIVER, box.pyz, orders, reports] + words, cwd=box.root, env=b.make_env(box),
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return Driver(popen, open(orders, "w"), reports)


def order(box: b.Box, driver: Driver, line: str, second: Sequence[str] = ()) -> Dict[str, Any]:
    """Has one launch done with this order, and lets what it left come to its end. The records are read twice: when nothing is
    in motion any more, and at the end. Where a run lives then although something was killed, `second` is tried beside it."""
    release = os.path.join(box.root, "release")
    if os.path.exists(release):
        os.unlink(release)
    known = set(cells.list_ids(box))
    facts: Dict[str, Any] = {}
    at = len(b.read(driver.reports).splitlines())
    driver.orders.write(line + "\n")
    driver.orders.flush()
    told = lambda: dict(row.split() for row in b.read(driver.reports).splitlines()[at:])
    pid = int(b.wait_for(lambda: told().get("pid"), "the launch"))
    if line.endswith(" stop"):
        facts = _kill_keeper_of(int(b.wait_for(lambda: told().get("stopped"), line)))
    b.wait_for(lambda: told().get("status") or _interrupt(pid), "rlrun at its end or reading back: %s" % line)
    b.wait_for(lambda: told().get("status"), "the end of rlrun: %s" % line)
    b.wait_for(lambda: b.is_lock_free() and (cells.find_runners() or not b.find_processes("rlrun: ")), "rest after " + line)
    runners = cells.find_runners()
    facts.update({"order": line, "status": int(told()["status"]), "runs": len(runners), "pids": runners,
             "rested": read_rows(box, known), "keeper": bool(b.find_processes("rlrun: keeper")),
             "is_killed": "killed" in told()})
    if runners and facts["is_killed"] and second:
        facts["second"] = b.run(second, b.make_env(box), box.root)
    open(release, "w").close()
    b.wait_for(lambda: not cells.find_runners() and not b.find_processes("rlrun: "), "the end after " + line)
    return dict(facts, ended=read_rows(box, known), is_killed="killed" in told())


def _kill_keeper_of(pid: int) -> Dict[str, Any]:
    """What becomes the runner stands still, its keeper is killed, and it goes on. Was the lock still held then?"""
    keeper = b.describe_process(pid)["ppid"]
    os.kill(keeper, signal.SIGKILL)
    b.wait_for(lambda: not b.is_alive(keeper), "the keeper's end")
    is_held = not b.is_lock_free()
    os.kill(pid, signal.SIGCONT)
    return {"is_held": is_held}


def _interrupt(pid: int) -> bool:
    """Once this rlrun reads back, it is told to report at once."""
    if cells.find_reading_back() != pid:
        return False
    os.kill(pid, signal.SIGTERM)
    return True


def read_rows(box: b.Box, known: Iterable[str]) -> List[Dict[str, Any]]:
    """The records that are not known yet, as `runs` tells of them (it would take longer), with the pid that each names."""
    if box.pyz not in sys.path:
        sys.path.insert(0, box.pyz)
    from rlrun.steps import records
    rows = [records.make_row(record, time.time()) for record in records.list_records(box.root)]
    return [{"state": row.state, "pid": (row.data["runner"] or row.data["keeper"] or {}).get("pid"), "id": row.id,
             "is_launched": records.read_identity(row.data) is not None} for row in rows if row.id not in known]


def trace(box: b.Box, driver: Driver, role: int) -> List[str]:
    """All places, as driver.py names them, that one of the three comes by in a launch which nothing happens to."""
    path = os.path.join(box.folder, "trace")
    order(box, driver, "- trace " + path)
    return [line for line in b.read(path).splitlines() if line.startswith("%d:" % role)]


def pick(places: Sequence[str], more: int) -> List[str]:
    """The first of each function that launches, both sides of what the system is called for, and so many more, evenly."""
    chosen = [place for place in places if place.endswith("#1") and place[2:].startswith(_MODULES) and (
        not set("<>") & set(place) or place[:-2].replace("<", ">").rpartition(">")[2] in _CALLS)]
    return chosen + [places[len(places) * number // more] for number in range(more)]


def play_kills(box: b.Box, role: int, more: int) -> Dict[str, Any]:
    """The kills of one of the three, and once, while a run lives whose rlrun or keeper was killed, its plan a second time."""
    digest = b.check(box, CONFIG)["digest"]
    second = [box.python, box.pyz, "run", CONFIG, "--board", "leave", "--confirm", digest]
    driver = start_driver(box, digest)
    places = trace(box, driver, role)
    facts: List[Dict[str, Any]] = []
    for where in pick(places, more):
        facts.append(order(box, driver, where + " kill", () if any("second" in one for one in facts) else second))
    _stop(driver)
    return {"places": len(places), "kills": facts, "shown": {row["id"]: row["state"] for row in b.list_runs(box)}}


def play_keeper_killed(box: b.Box) -> Dict[str, Any]:
    """The keeper killed while its runner is about to be: after its fork, and just before its exec."""
    driver = start_driver(box, b.check(box, CONFIG)["digest"])
    facts = {place: order(box, driver, "2:child.py:exec_detached%s#1 stop" % place) for place in ("<fork", ">execve")}
    _stop(driver)
    return facts


def _stop(driver: Driver) -> None:
    driver.orders.close()
    driver.popen.wait(b.LIMIT_SECONDS)


def play_all(box: b.Box, role: int, seconds: float, seed: int) -> Dict[str, Any]:
    """Every place of one of the three, in an order of chance, as many as the time allows."""
    ends = time.monotonic() + seconds
    driver = start_driver(box, b.check(box, CONFIG)["digest"])
    places = trace(box, driver, role)
    facts = []
    for where in random.Random(seed).sample(places, len(places)):
        if time.monotonic() > ends:
            break
        facts.append(order(box, driver, where + " kill"))
    _stop(driver)
    return {"places": len(places), "kills": facts}


def find_faults(facts: Dict[str, Any]) -> List[str]:
    """What is not as it has to be after one kill: a run without a record that names it, a record without its run."""
    rested, ended = facts["rested"], facts["ended"]
    states = [row["state"] for row in rested]
    faults = []
    if facts["runs"] > 1 or len(rested) > 1:
        faults.append("more than one")
    if facts["runs"] == 1 and [(row["state"], row["pid"]) for row in rested] != [("running", facts["pids"][0])]:
        faults.append("a run that its record does not tell of")
    if facts["runs"] == 0 and "running" in states:
        faults.append("a record of a run that is none")
    if facts["runs"] == 1 and facts["keeper"] and facts["order"][:1] != "1" and [row["state"] for row in ended] != ["ended 0"]:
        faults.append("its end is not told")
    if [row["state"] for row in ended if row["state"] not in (
            "ended 0", "not started", "unreadable", "lost", "killed by SIGKILL")]:
        faults.append("an end that it did not have")
    return faults
