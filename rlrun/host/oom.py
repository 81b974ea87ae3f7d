"""How often the kernel's out-of-memory killer struck in a control group. Reads /proc and the cgroup files; judges nothing."""
import os
from typing import Iterator, Optional, Union

from .memory import read_text


def read_oom_kills(pid: Union[int, str] = "self", root: str = "/") -> Optional[int]:
    """Processes that the kernel killed for want of memory in the control group of a process, since the group was made.

    Version 2: `oom_kill` of memory.events, which counts the groups below it too. Version 1: `oom_kill` of
    memory.oom_control (kernel 4.13 and newer), of that group alone. None where neither can be read (the root group has no
    such file, an older kernel has no such line).
    What it proves: more than 0, and something of this group was killed, at some time, perhaps of an earlier run. What it does
    not: that it was this run, which may stand in another group (another login session, a scope or job of its own); 0 says
    nothing about another group, and a kill that was not the kernel's (`kill -9`, Ray's memory monitor) is not counted.
    https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
    """
    for path in _list_files(str(pid), root):
        for line in read_text(path).splitlines():
            # oom_kill 3
            name, _, count = line.partition(" ")
            if name == "oom_kill" and count.strip().isdecimal():
                return int(count)
    return None


def _list_files(pid: str, root: str) -> Iterator[str]:
    for line in read_text(os.path.join(root, "proc", pid, "cgroup")).splitlines():
        # 4:memory:/docker/1edf9f1d    or, version 2,    0::/user.slice/session-3.scope
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            mounts, file_name = ("", "unified"), "memory.events"
        elif "memory" in controllers.split(","):
            mounts, file_name = ("memory", controllers), "memory.oom_control"
        else:
            continue
        for mount in mounts:
            yield os.path.join(_find_group(os.path.join(root, "sys/fs/cgroup", mount), path), file_name)


def _find_group(mount: str, path: str) -> str:
    # Without a cgroup namespace the path is the host's while the mount's root is this container's own group. Only these
    # two are its own; a parent between them would count other people's processes.
    folder = os.path.join(mount, *[name for name in path.split("/") if name not in ("", ".", "..")])
    return folder if os.path.isdir(folder) else mount
