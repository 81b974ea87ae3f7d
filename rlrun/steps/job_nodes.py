"""How each node of a job is, as its agent writes it into the record: `nodes/NNNN.json`, NNNN being the node's number in the job.
Every value that is read has the type that it was written with, whoever wrote the file."""
import os
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ..host.files import make_folder
from . import record, records

FOLDER = "nodes"
PHASES = ("checking", "blocked", "checked", "running", "joined", "ended")
_MAX_NODES = 10000


class NodeState(NamedTuple):
    """One node. `node`: its number in the job, 0 is the head; `phase`: one of PHASES."""

    node: int
    host: str
    job: str
    restart: int  # how often Slurm has started the job again before
    address: str
    role: str  # head, worker
    phase: str
    blocking: Tuple[Dict[str, str], ...] = ()  # name, detail, fix of each check that blocks
    warnings: Tuple[str, ...] = ()
    runner: Optional[Dict[str, Any]] = None  # pid, start_ticks, pgid
    agent: Optional[Dict[str, Any]] = None
    log: str = ""
    exit: Optional[Dict[str, Any]] = None  # status, signal; told: why it was told to end, "" where it was not
    time_seconds: float = 0.0


def write_node(folder: str, state: NodeState) -> None:
    """Writes one node's state into a record. OSError where that can't be done."""
    make_folder(os.path.join(folder, FOLDER))
    record.write_json(os.path.join(folder, FOLDER), "%04d.json" % state.node, dict(state._asdict(), schema=record.SCHEMA))


def read_node(folder: str, node: int) -> Optional[NodeState]:
    """What one node of a record's job has told; None where it has not, or that can't be read."""
    return _read_one(records.read_json(os.path.join(folder, FOLDER), "%04d.json" % node) or {}, node)


def read_nodes(folder: str) -> Tuple[NodeState, ...]:
    """All that the nodes of a record's job have told, by their number, of the start that was told of last; what can't be read is
    left out, and so is what is left of an earlier start."""
    try:
        names = sorted(os.listdir(os.path.join(folder, FOLDER)))
    except OSError:
        return ()
    found: List[NodeState] = []
    for name in names:
        number, dot, ending = name.partition(".")
        if ending == "json" and number.isdecimal() and len(number) < 9 and len(found) < _MAX_NODES:
            state = _read_one(records.read_json(os.path.join(folder, FOLDER), name) or {}, int(number))
            found += [state] if state else []
    newest = max(found, key=lambda one: one.time_seconds) if found else None
    return tuple(sorted((one for one in found if newest and (one.job, one.restart) == (newest.job, newest.restart)),
                        key=lambda one: one.node))


def _read_one(data: Dict[str, Any], number: int) -> Optional[NodeState]:
    def text(name: str) -> str:
        return data[name] if isinstance(data.get(name), str) and "\0" not in data[name] else ""
    if text("phase") not in PHASES:
        return None
    restart, seconds = data.get("restart"), data.get("time_seconds")
    blocking = tuple({key: str(one.get(key) or "") for key in ("name", "detail", "fix")}
                     for one in _read_list(data.get("blocking")) if isinstance(one, dict))
    return NodeState(number, text("host"), text("job"), restart if isinstance(restart, int) else 0, text("address"),
                     "head" if number == 0 else "worker", text("phase"), blocking,
                     tuple(str(one) for one in _read_list(data.get("warnings"))), _read_flat(data.get("runner")),
                     _read_flat(data.get("agent")), text("log"), _read_flat(data.get("exit")),
                     float(seconds) if isinstance(seconds, (int, float)) and abs(seconds) < 1e12 else 0.0)


def _read_list(value: Any) -> List[Any]:
    return value[:100] if isinstance(value, list) else []


def _read_flat(value: Any) -> Optional[Dict[str, Any]]:
    if not isinstance(value, dict):
        return None
    return {name: one for name, one in value.items() if isinstance(one, (int, str)) or one is None}


def describe_nodes(states: Tuple[NodeState, ...], total: int) -> str:
    """In words, how the nodes of a job are: `2 of 2 checked`, `1 of 2 joined; n2 blocked (gpu:foreign  pid 5 …)`."""
    if not states:
        return "none of %d has begun" % total
    counts = []
    for phase in PHASES:
        number = sum(1 for one in states if one.phase == phase)
        if number and phase != "blocked":
            counts.append("%d of %d %s" % (number, total, phase))
    blocked = ["%s blocked (%s)" % (one.host or "node %d" % one.node, "; ".join(
        ("%s  %s" % (check["name"], check["detail"])).strip() for check in one.blocking[:2]) or "why is not told")
        for one in states if one.phase == "blocked"]
    missing = total - len(states)
    return "; ".join([", ".join(counts)] * bool(counts) + blocked[:4] + (
        ["%d more blocked" % (len(blocked) - 4)] if len(blocked) > 4 else []) + (
        ["%d not begun" % missing] if missing > 0 else []))
