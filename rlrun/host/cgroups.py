"""Which control group a process sits in, and which of systemd's units that is. Reads /proc/PID/cgroup; judges nothing."""
import os
import re
from typing import List, NamedTuple, Tuple

from .memory import read_text

# /user.slice/user-1000.slice/session-3.scope
LOGIN_SCOPE = re.compile(r"/session-(c?\d+)\.scope(/|$)")
# /user.slice/user-1000.slice/user@1000.service/app.slice/run-r8f3a.scope
USER_MANAGER = re.compile(r"/user@(\d+)\.service(/|$)")
USER_SLICE = re.compile(r"/user-(\d+)\.slice(/|$)")
# /slurm/uid_1000/job_123/step_0    /system.slice/slurmstepd.scope/job_123/step_0/user/task_0
SLURM_JOB = re.compile(r"/job_(\d+)(?:/step_(\w+))?(/|$)")
_UNIT = re.compile(r"[A-Za-z0-9:_.@\\-]+\.(service|scope|slice)\Z")


class Unit(NamedTuple):
    """A unit on the way to a control group, and which manager's it is."""

    name: str
    kind: str  # service, scope, slice
    is_user: bool  # the user manager's, not the system's


def read_paths(pid: str = "self", proc_root: str = "/proc") -> Tuple[str, ...]:
    """All paths of a process, systemd's own hierarchy first, () where they can't be read."""
    named: List[str] = []
    rest: List[str] = []
    # 0::/user.slice/user-1000.slice/session-3.scope    or, version 1,    1:name=systemd:/user.slice/…
    for line in read_text(os.path.join(proc_root, pid, "cgroup")).splitlines():
        number, _, tail = line.partition(":")
        controllers, colon, path = tail.partition(":")
        if colon:
            (named if controllers == "name=systemd" or number == "0" and not controllers else rest).append(path)
    # Beside version 1, version 2 may be mounted and unused, or the other way round: the longer of both is the used one.
    return tuple(sorted(named, key=len, reverse=True) + rest)


def pick_path(paths: Tuple[str, ...]) -> str:
    """The path that systemd counts by, "" where there is none."""
    return paths[0] if paths else ""


def list_units(path: str) -> Tuple[Unit, ...]:
    """The units on the way to a control group, outermost first; the slice of all (`-.slice`) is not among them."""
    found: List[Unit] = []
    is_user = False
    for name in path.split("/"):
        match = _UNIT.match(name)
        if match:
            found.append(Unit(name, match.group(1), is_user))
        is_user = is_user or bool(USER_MANAGER.match("/" + name))
    return tuple(found)
