"""How each node of a job is, as its agent writes it into the record: `nodes/NNNN.json`, NNNN being the node's number in the job.
Every value that is read has the type that it was written with, whoever wrote the file."""
import os
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ..host.files import make_folder
from ..text.redact import redact
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
    return _keep_own_log(folder, _read_one(records.read_json(os.path.join(folder, FOLDER), "%04d.json" % node) or {}, node))


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
            state = _keep_own_log(folder, _read_one(records.read_json(os.path.join(folder, FOLDER), name) or {}, int(number)))
            found += [state] if state else []
    # Of one job the last start; of several, as when it was handed in anew by hand, the last one: by the clocks of its nodes.
    latest = {job: max(one.time_seconds for one in found if one.job == job) for job in {one.job for one in found}}
    job = max(latest, key=lambda name: (latest[name], name)) if latest else ""
    restart = max([one.restart for one in found if one.job == job] or [0])
    return tuple(sorted((one for one in found if (one.job, one.restart) == (job, restart)), key=lambda one: one.node))


def _keep_own_log(folder: str, state: Optional[NodeState]) -> Optional[NodeState]:
    """The state without a log that does not lie where the agents make theirs: <checkout>/logs."""
    logs = os.path.dirname(os.path.dirname(os.path.normpath(folder)))
    is_own = state is None or os.path.dirname(os.path.normpath(state.log)) == logs
    return state if is_own or state is None else state._replace(log="")


def _read_one(data: Dict[str, Any], number: int) -> Optional[NodeState]:
    def text(name: str) -> str:
        return data[name] if isinstance(data.get(name), str) and "\0" not in data[name] else ""
    if text("phase") not in PHASES:
        return None
    restart, seconds = data.get("restart"), data.get("time_seconds")
    blocking = tuple({key: redact(str(one.get(key) or "")) for key in ("name", "detail", "fix")}
                     for one in _read_list(data.get("blocking")) if isinstance(one, dict))
    return NodeState(number, text("host"), text("job"), restart if isinstance(restart, int) else 0, text("address"),
                     "head" if number == 0 else "worker", text("phase"), blocking,
                     tuple(str(one) for one in _read_list(data.get("warnings"))), _read_flat(data.get("runner")),
                     _read_flat(data.get("agent")), text("log"), _read_flat(data.get("exit")),
                     float(seconds) if isinstance(seconds, (int, float)) and 0 < seconds < time.time() + 86400.0 else 0.0)


def _read_list(value: Any) -> List[Any]:
    return value[:100] if isinstance(value, list) else []


def _read_flat(value: Any) -> Optional[Dict[str, Any]]:
    if not isinstance(value, dict):
        return None
    return {name: one for name, one in value.items() if isinstance(one, (int, str)) or one is None}


def describe_nodes(states: Tuple[NodeState, ...], total: int) -> str:
    """In words, how the nodes of a job are: `2 of 2 checked`, `1 of 2 joined; n2 blocked (gpu:foreign  pid 5 …)`. Those that are
    blocked by the same stand together."""
    if not states:
        return "none of %d has begun" % total
    counts = []
    for phase in PHASES:
        number = sum(1 for one in states if one.phase == phase)
        if number and phase != "blocked":
            counts.append("%d of %d %s" % (number, total, phase))
    groups: Dict[str, List[str]] = {}
    for one in states:
        if one.phase == "blocked":
            groups.setdefault(_tell_blocking(one), []).append(one.host or "node %d" % one.node)
    blocked = ["%s%s blocked (%s)" % (", ".join(names[:4]), " and %d more" % (len(names) - 4) if len(names) > 4 else "", why)
               for why, names in groups.items()]
    others = sum(len(names) for names in list(groups.values())[4:])
    missing = total - len(states)
    return "; ".join([", ".join(counts)] * bool(counts) + blocked[:4] + (["%d more blocked" % others] if others else []) + (
        ["%d not begun" % missing] if missing > 0 else []))


def _tell_blocking(one: NodeState) -> str:
    told = [("%s  %s" % (check["name"], check["detail"])).strip() for check in one.blocking[:2]]
    return "; ".join(told + (["and %d more" % (len(one.blocking) - 2)] if len(one.blocking) > 2 else [])) or "why is not told"
