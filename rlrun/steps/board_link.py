"""The one link that makes a run visible on a board: never over something that is there, never dangling. Runs in the keeper."""
import errno
import http.client
import json
import os
import re
import time
from typing import Any, Callable, Dict, NamedTuple, Optional, Set

from ..host.files import read_head
from ..stacks import load_stack
from . import record

_VERIFY_SECONDS = 300.0
_HEAD_BYTES = 1 << 20
# what a file's name may hold without a quote in any shell
_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]+")


class LinkOrder(NamedTuple):
    """The link that was asked for. `record`: the folder that is to tell of it as soon as it is there, "" for none."""

    stack: str
    served: str
    port: Optional[int]
    launch_log: str
    root: str
    record: str = ""


def make_link(order: LinkOrder, is_over: Callable[[], bool]) -> Dict[str, Any]:
    """Waits for the run's log to exist, links it, and asks the board whether it shows. Runs in the keeper.

    Returns the object of link.json: state "verified", "unverified", "failed" or "never", path, target, reason.
    """
    while True:
        ended = is_over()  # asked first: a log that came before the end counts
        target = _find_log(order)
        if target and os.path.isfile(target):
            break
        if ended:
            return {"state": "never", "reason": "the run ended before its log existed", "by": "keeper"}
        time.sleep(0.5)
    try:
        path = _create_link(order, target)
    except OSError as error:
        return {"state": "failed", "target": target, "reason": "%s: %s" % (order.served, error.strerror), "by": "keeper"}
    result = {"path": path, "target": target, "by": "keeper", "time_seconds": time.time(), "state": "unverified",
              "reason": "not asked yet"}
    if order.record:
        try:
            record.write_json(order.record, "link.json", result)  # the keeper may be killed while it asks
        except OSError:
            pass  # the keeper writes it again in the end, and waits for room
    result.update(_verify(order.port, os.path.splitext(os.path.basename(path))[0], is_over))
    return result


def _find_log(order: LinkOrder) -> str:
    text = read_head(order.launch_log, _HEAD_BYTES).decode("utf-8", "replace")
    log = str(load_stack(order.stack).read_back(text, "", "", (), ())["train_log"])
    return os.path.realpath(os.path.join(order.root, log)) if log else ""


def _create_link(order: LinkOrder, target: str) -> str:
    stack = load_stack(order.stack)
    stem = _UNSAFE.sub("_", os.path.splitext(os.path.basename(target))[0]) or "run"
    if not stack.is_board_name(stem + ".log"):
        stem = "run_" + stem + "_"
    for number in range(1, 100):
        path = os.path.join(order.served, "%s%s.log" % (stem, "" if number == 1 else "-%d" % number))
        try:
            os.symlink(target, path)
            return path
        except FileExistsError:
            if os.path.islink(path) and os.readlink(path) == target:
                return path
    raise FileExistsError(errno.EEXIST, "no free name for %s" % stem)


def _verify(port: Optional[int], name: str, is_over: Callable[[], bool]) -> Dict[str, Any]:
    if not port:
        return {"state": "unverified", "reason": "the board's port is unknown"}
    deadline = time.monotonic() + _VERIFY_SECONDS
    reason = ""
    while time.monotonic() < deadline:
        ended = is_over()
        try:
            if name in list_board_runs(port, deadline - time.monotonic()):
                return {"state": "verified", "reason": ""}
            reason = "the board does not list it"
        except (OSError, ValueError, OverflowError, RecursionError, http.client.HTTPException) as error:
            reason = "the board on port %d: %s" % (port, error)
        if ended:
            break
        time.sleep(2)
    return {"state": "unverified", "reason": reason}


def list_board_runs(port: int, timeout_seconds: float) -> Set[str]:
    """The names that a board shows (GET /api/runs on this machine). Raises OSError, HTTPException or ValueError where it
    gives no list."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=max(1.0, timeout_seconds))
    try:
        connection.request("GET", "/api/runs")
        response = connection.getresponse()
        body = response.read(16 << 20)
        if response.status != 200:
            raise ValueError("answered %d" % response.status)
        value = json.loads(body.decode("utf-8", "replace"))
    finally:
        connection.close()
    rows = value.get("runs") if isinstance(value, dict) else value
    if not isinstance(rows, list):
        raise ValueError("answered with no list of runs")
    return {str(row[key]) for row in rows if isinstance(row, dict) for key in ("id", "name", "run_id") if key in row}
