"""A Ray cluster, asked which nodes it has: at one address that the caller knows, through an interpreter that has Ray. Starts and
stops nothing, and never looks for a cluster by itself (`auto` may find another user's)."""
import json
import os
import re
import shutil
import socket
import time
from typing import Dict, List, NamedTuple, Optional, Tuple

from .. import child

ASK_SECONDS = 10.0
_CONNECT_SECONDS = 3.0
# Without a head Ray's own clients try for 40 s, so the port is tried first.
_ADDRESS = re.compile(r"([A-Za-z0-9._-]+):([0-9]{1,5})\Z")
_MARK = "nodes "
# get_state_from_address is what `ray memory` and others stand on, under this name since Ray 1.12; its answer needs no dashboard.
_SCRIPT = """\
import json, sys
from ray._private.internal_api import get_state_from_address
found = [(str(n.get("NodeManagerAddress")), str(n.get("NodeManagerHostname"))) for n in
         get_state_from_address(sys.argv[1]).node_table() if n.get("Alive", n.get("alive"))]
print("nodes " + json.dumps(found))
"""
#  1 node_7b43449a8b6965c37413adf71e3307532c3776e03467c5faba93ee03
_COUNTED = re.compile(r"^\s*(?:\d+ )?node_\S+\s*$", re.M)
_TAIL_CHARACTERS = 200


class RayNode(NamedTuple):
    """A node that is alive in the cluster."""

    address: str
    host: str  # "" where it is not told


class RayAnswer(NamedTuple):
    """What a cluster said. `alive`, how many nodes are, is None where that could not be had, and then `words` says why; `nodes`
    may be empty where only their number was told. `words` of an answer: who told it."""

    alive: Optional[int]
    nodes: Tuple[RayNode, ...]
    words: str


def ask_nodes(address: str, python: str, environ: Dict[str, str], limit_seconds: float = ASK_SECONDS) -> RayAnswer:
    """The nodes of the cluster whose head is at `address` (host:port), by the Ray of this interpreter (its path), or by `ray
    status` of the program beside it or on PATH. Ends within the limit whatever hangs. Raises nothing."""
    started = time.monotonic()
    match = _ADDRESS.match(address)
    if not match:
        return RayAnswer(None, (), "the head's address is not known")
    refused = _try_port(match.group(1), int(match.group(2)), min(_CONNECT_SECONDS, limit_seconds))
    if refused:
        return RayAnswer(None, (), "%s does not answer: %s" % (address, refused))
    # Not the operator's folder, in which something may be called ray; and no other cluster than the one that is named.
    env = {name: value for name, value in environ.items() if name != "RAY_ADDRESS"}
    why = "no interpreter of the run is known"
    if python:
        outcome = child.run([python, "-c", _SCRIPT, address], limit_seconds - (time.monotonic() - started), cwd="/", env=env)
        nodes = parse_nodes(outcome.output.decode("utf-8", "replace")) if outcome.how == "ended" and outcome.code == 0 else None
        if nodes is not None:
            return RayAnswer(len(nodes), nodes, "as Ray at %s tells" % address)
        why = _tell(python, outcome.errors, child.describe(outcome))
    program = find_program(python, environ)
    left = limit_seconds - (time.monotonic() - started)
    if not program or left < 1:
        return RayAnswer(None, (), why)
    outcome = child.run([program, "status", "--address=" + address], left, cwd="/", env=env)
    count = count_nodes(outcome.output.decode("utf-8", "replace")) if outcome.how == "ended" and outcome.code == 0 else None
    if count is None:
        return RayAnswer(None, (), _tell("%s status" % program, outcome.errors, child.describe(outcome)))
    return RayAnswer(count, (), "as ray status --address=%s tells" % address)


def find_program(python: str, environ: Dict[str, str]) -> str:
    """The `ray` beside an interpreter, else the first on PATH, "" for none."""
    beside = os.path.join(os.path.dirname(python), "ray") if python else ""
    if beside and os.access(beside, os.X_OK):
        return beside
    return shutil.which("ray", path=environ.get("PATH", os.defpath)) or ""


def parse_nodes(text: str) -> Optional[Tuple[RayNode, ...]]:
    """The nodes out of what the question printed, each address once; None where no answer is in it."""
    line = next((one for one in reversed(text.splitlines()) if one.startswith(_MARK)), "")
    try:
        value = json.loads(line[len(_MARK):])
    except ValueError:
        return None
    if not isinstance(value, list):
        return None
    found: List[RayNode] = []
    for pair in value:
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(one, str) for one in pair):
            found.append(RayNode(pair[0], "" if pair[1] == "None" else pair[1]))
    return tuple(sorted(set(found)))


def count_nodes(text: str) -> Optional[int]:
    """How many nodes `ray status` shows as active; None where it tells no node at all (it says so in its first seconds). What
    it lists as pending or failed comes later, and is none of them."""
    begin = text.find("Active:")
    if begin < 0:
        return None
    end = text.find("Pending:", begin)
    return len(_COUNTED.findall(text[begin:end if end >= 0 else len(text)])) or None


def _try_port(host: str, port: int, limit_seconds: float) -> str:
    """Why nobody can be talked to there, "" where a connection is taken."""
    try:
        socket.create_connection((host, port), limit_seconds).close()
    except socket.timeout:
        return "no answer within %d s" % limit_seconds
    except (OSError, OverflowError, UnicodeError) as error:
        return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()
    return ""


def _tell(who: str, errors: bytes, how: str) -> str:
    last = [line.strip() for line in errors.decode("utf-8", "replace").splitlines() if line.strip()][-1:]
    return "%s: %s%s" % (who, how, " (%s)" % last[0][-_TAIL_CHARACTERS:] if last else "")
