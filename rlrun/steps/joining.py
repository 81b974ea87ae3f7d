"""Whether the nodes of a run have found each other: how many have joined its head, who is missing, how long the head still waits;
and whether a node's runner that has ended has done its part by joining. Asks no cluster but the run's own; writes nothing."""
import os
import re
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ..health.tail import read_tail
from ..host.files import read_head
from ..stacks import STACKS, load_health
from ..text.durations import format_elapsed
from ..text.joined import JOINED
from ..text.redact import redact
from ..values import Launch, Plan, Readback
from ..vitals import Joining, JoinTold, Target
from . import records
from .gather import Evidence

_HEAD_BYTES = 1 << 18
_END_BYTES = 1 << 12
_LOGS = 1024
_HOST = re.compile(r"[A-Za-z0-9._-]{1,255}\Z")
# logs/launch_20261130-070001.log, and of another node logs/launch_20261130-070001_n2.log
_LAUNCH_LOG = re.compile(r"launch_([0-9]{8}-[0-9]{6})(?:_(.+))?\.log\Z")
_OTHERS = {"begun": "has begun", "waiting": "waits for the head", "started": "is joining", "joined": JOINED}


class Other(NamedTuple):
    """Another node of the run, by its launch log."""

    host: str
    address: str
    state: str


def look(target: Target, evidence: Evidence, now_seconds: float, secrets: Tuple[str, ...] = ()) -> Optional[Joining]:
    """Joining of a live run on several nodes whose head waits for the others; None for every other run, also once its trainer
    lives: then all have joined, and its cluster is left alone. Takes ray.ASK_SECONDS at most. `secrets`: values that are taken
    out of what is quoted."""
    has_begun = any(label == "trainer" for label, _ in target.pids) or any(track.points for track in evidence.tracks.values())
    if target.state != "live" or has_begun:
        return None
    path = target.launch_log or next(iter(target.logs.values()), "")
    digest = str((target.record or {}).get("digest") or "")
    return _look(target.stack, path, evidence.outline.nodes, list_hosts(target.root, digest), target.started_seconds,
                 bool(target.jobs), now_seconds, secrets)


def look_launch(plan: Plan, digest: str, started: Launch, back: Readback, began_seconds: float,
                secrets: Tuple[str, ...] = ()) -> Optional[Joining]:
    """The same of what was launched just now, for the report of the launch: None where it has ended or its trainer lives."""
    if back.exit or back.trainer_pids or plan.is_submission:
        return None
    return _look(plan.stack, started.launch_log, plan.topology.nodes, list_hosts(plan.root, digest), began_seconds, False,
                 time.time(), secrets)


def _look(stack: str, path: str, nodes: int, hosts: Tuple[str, ...], began_seconds: Optional[float], is_job: bool,
          now_seconds: float, secrets: Tuple[str, ...]) -> Optional[Joining]:
    told = read_log(stack, path) if nodes > 1 else None
    if told is None or told.role != "head" or told.state not in ("waiting", "started"):
        return None
    from ..host import ray
    answer = ray.RayAnswer(None, (), "its head is starting") if told.state == "waiting" else \
        ray.ask_nodes(told.address, told.python, dict(os.environ))
    # Of a job each node tells of itself.
    others = () if is_job else list_others(stack, path, told, began_seconds)
    left, left_from = estimate_left(told, path, now_seconds)
    return Joining(
        nodes, answer.alive, tuple(_show_node(one) for one in answer.nodes), find_missing(hosts, others, answer.nodes),
        tuple((one.host, _OTHERS[one.state]) for one in others), redact(answer.words, secrets), left, left_from)


def read_log(stack: str, path: str) -> Optional[JoinTold]:
    """What a node's launch log tells of joining; None where it does not, or its training system knows no joining."""
    read = getattr(load_health(stack), "read_joining", None)
    if read is None or not path:
        return None
    found: Optional[JoinTold] = read(read_head(path, _HEAD_BYTES).decode("utf-8", "replace"))
    return found


def list_others(stack: str, path: str, told: JoinTold, began_seconds: Optional[float]) -> Tuple[Other, ...]:
    """The other nodes whose launch logs lie beside the head's and name its address: who began at all, and how far each came. A
    host that began again is told by its newest log. `began_seconds`: of the head's launch; what bears another stamp and was last
    written before is of an earlier run."""
    folder, mine = os.path.split(path)
    own = _LAUNCH_LOG.match(mine)
    try:
        names = sorted(name for name in os.listdir(folder) if _LAUNCH_LOG.match(name) and name != mine)[-_LOGS:]
    except OSError:
        return ()
    found: Dict[str, Other] = {}
    for name in names:
        other_path, match = os.path.join(folder, name), _LAUNCH_LOG.match(name)
        if match is None or not (own and match.group(1) == own.group(1) or _is_newer(other_path, began_seconds)):
            continue
        other = read_log(stack, other_path)
        if other is not None and other.role == "worker" and other.address == told.address:
            found[other.local] = Other(match.group(2) or other.local, other.local, other.state)
    return tuple(found.values())


def _is_newer(path: str, than_seconds: Optional[float]) -> bool:
    try:
        return than_seconds is not None and os.stat(path).st_mtime >= than_seconds
    except OSError:
        return False


def list_hosts(root: str, digest: str) -> Tuple[str, ...]:
    """The hosts of a plan that `nodes --hosts` was told, () where nobody told any."""
    if not root or not re.match(r"[0-9a-f]{8}\Z", digest):
        return ()
    value = (records.read_json(os.path.join(root, records.FOLDER, records.NODES), digest + ".json") or {}).get("hosts")
    return tuple(one for one in value if isinstance(one, str) and _HOST.match(one)) if isinstance(value, list) else ()


def find_missing(hosts: Sequence[str], others: Sequence[Other], nodes: Sequence[Any]) -> Tuple[str, ...]:
    """The hosts that belong to the run and are none of the cluster's `nodes`: of those that were named, else of those that have a
    launch log. None where no node is told: then who is there is not known."""
    if not nodes:
        return ()
    there = {one.address for one in nodes}
    names = {one.host for one in nodes if one.host}
    shorts = {name.partition(".")[0] for name in names}
    addresses = {one.host: one.address for one in others}
    missing = []
    for host in list(hosts) or list(addresses):
        is_number = not host.strip("0123456789.")
        is_there = host in there or host in names or addresses.get(host) in there or (
            not is_number and host.partition(".")[0] in shorts)
        if not is_there:
            missing.append(host)
    return tuple(missing)


def estimate_left(told: JoinTold, path: str, now_seconds: float) -> Tuple[Optional[float], str]:
    """(seconds that the head still waits at least, what that rests on). It says nothing while it looks, so its log's age is the
    time that has passed; a look takes its pause, and the time of the question that is not known."""
    if told.state != "started":
        return None, "the head has not begun to look"
    try:
        idle = now_seconds - os.stat(path).st_mtime
    except OSError:
        return None, "its launch log can't be read"
    if idle < -5:
        return None, "the launch log's time is ahead of this machine's clock"
    whole = float(told.looks * told.pause_seconds)
    words = "it looks %d times, %d s apart and the time that each look takes; its log is silent for %s" % (
        told.looks, told.pause_seconds, format_elapsed(max(0.0, idle)))
    return max(0.0, whole - max(0.0, idle)), words


def _show_node(one: Any) -> str:
    return "%s (%s)" % (one.address, one.host) if one.host and one.host != one.address else one.address


def has_joined(stack: str, launch_log: str) -> bool:
    """Does a launch log end as that of a worker that has joined the others?"""
    judge = getattr(load_health(stack), "has_joined", None)
    return bool(judge and launch_log and judge(read_tail(launch_log, _END_BYTES).decode("utf-8", "replace")))


def is_joined(record: Dict[str, Any]) -> bool:
    """Has the runner of a recorded launch ended 0 after it had joined another node's head? Its log is read only where the run is
    one of several nodes and ended 0."""
    ended, nodes = record.get("exit") or {}, record.get("nodes")
    if ended.get("status") != 0 or ended.get("signal") or record.get("jobs") or record.get("stack") not in STACKS:
        return False
    return isinstance(nodes, int) and nodes > 1 and has_joined(record["stack"], record["launch_log"])


def tell_state(record: Dict[str, Any], state: str) -> str:
    """The state of `runs`, with "joined" in the place of "ended 0" for a worker that has joined."""
    return "joined" if state == "ended 0" and is_joined(record) else state


def is_worker(target: Target) -> bool:
    """Is this run a worker's part of one on several nodes? Then the head alone tells its steps."""
    told = read_log(target.stack, target.launch_log or next(iter(target.logs.values()), ""))
    return told is not None and told.role == "worker"


def shape(joining: Optional[Joining]) -> Optional[Dict[str, Any]]:
    """The object of --json, None where nobody waits."""
    if joining is None:
        return None
    others: List[Dict[str, str]] = [{"host": host, "state": state} for host, state in joining.others]
    return {"nodes": joining.nodes, "joined": joining.joined, "members": list(joining.members), "missing": list(joining.missing),
            "others": others, "told_by": joining.told_by, "left_seconds": joining.left_seconds, "left_from": joining.left_from}
