"""Lego-RL on several nodes: what a node's own launch log tells of joining. `status` loads it, so it imports little.
No file is read.

Source: scripts/train/lib/ray.sh of the public repository (resolve_ray_addresses, start_ray_node,
wait_for_ray_cluster_or_exit_worker), August 2026.
"""
import re
from typing import Optional

from ..vitals import JoinTold

# The head asks `ray status` 60 times, with a pause of 5 s behind each; it is silent meanwhile, and gives up after the last.
_LOOKS, _PAUSE_SECONDS = 60, 5
# HEAD=10.0.0.1  MASTER_ADDR=10.0.0.1  LOCAL=10.0.0.2  NNODES=2     (an older runner leaves MASTER_ADDR out)
_ADDRESSES = re.compile(r"^HEAD=(\S+)  (?:MASTER_ADDR=\S*  )?LOCAL=(\S*)  NNODES=(\d{1,6})\s*$", re.M)
# RAY_PORT=6379   of the environment that the runner lists
_PORT = re.compile(r"^RAY_PORT=(\d{1,5})\s*$", re.M)
# [python] /x/.venv/bin/python3 (Python 3.11.7)
_PYTHON = re.compile(r"^\[python\] (/[^\n]*?) \(Python [^\n()]*\)\s*$", re.M)
_GAVE_UP = re.compile(r"^\[FATAL\] only \d+/\d+ nodes joined", re.M)
_STARTED = re.compile(r"^[^\n]{0,60}[Rr]ay runtime started", re.M)
# Active:   of the `ray status` that the head prints once all have joined
_ALL_JOINED = re.compile(r"^Active:\s*$|TaskRunner hostname: |\[ASYNC MAIN\] Starting fully async", re.M)
_JOINED = "[WORKER] joined; head drives training."
_TAIL_LINES = 3


def read_joining(text: str) -> Optional[JoinTold]:
    """JoinTold out of the beginning of a node's launch log, None where it has not come so far as to tell its addresses."""
    matches = list(_ADDRESSES.finditer(text))
    if not matches:
        return None
    match = matches[-1]
    head, local, nodes = match.groups()
    rest = text[match.end():]
    port = next(iter(_PORT.findall(text)[-1:]), "")
    python = next(iter(_PYTHON.findall(text)[-1:]), "")
    role = "head" if local == head else "worker"
    state = "begun"
    if _GAVE_UP.search(rest):
        state = "failed"
    elif role == "worker":
        if _JOINED in rest:
            state = "joined"
        elif _STARTED.search(rest):
            state = "started"
        elif "[WORKER] waiting for head" in rest:
            state = "waiting"
    elif _ALL_JOINED.search(rest):
        state = "joined"
    elif _STARTED.search(rest):
        state = "started"
    elif "[HEAD] starting ray head" in rest:
        state = "waiting"
    return JoinTold(role, "%s:%s" % (head, port) if port else "", local, int(nodes), python, state, _LOOKS, _PAUSE_SECONDS)


def has_joined(text: str) -> bool:
    """Is this the end of the launch log of a worker that has joined? It is the last thing that its runner says before it exits
    with 0; shells and Ray may add a line."""
    lines = [line for line in text.replace("\r", "\n").split("\n") if line.strip()]
    return any(line.strip().startswith(_JOINED) for line in lines[-_TAIL_LINES:])
