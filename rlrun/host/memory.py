"""How much memory this process may use: the host's, or the limit of a control group that it sits in.

Reads /proc/meminfo, /proc/self/cgroup and the cgroup files; judges nothing, writes nothing.
"""
import os
from typing import Iterator, List, Optional, Tuple

_NO_LIMIT_BYTES = 1 << 60  # cgroup v1 writes "no limit" as the largest multiple of a page: 9223372036854771712


def read_memory_limit_bytes(proc_root: str = "/proc", cgroup_root: str = "/sys/fs/cgroup") -> Tuple[Optional[int], str]:
    """The smallest of the host's MemTotal and all memory limits above this process, in bytes, and where it was read.

    In a container /proc/meminfo is the host's (D9). A limit of `max`, or v1's huge number, is no limit. Gives None and
    the reason where not even MemTotal can be read.
    """
    found: List[Tuple[int, str]] = []
    total_bytes = _read_total_bytes(proc_root)
    if total_bytes is not None:
        found.append((total_bytes, "MemTotal of this host"))
    for folder, file_name, words in _list_limit_files(proc_root, cgroup_root):
        limit_bytes = _read_limit_bytes(os.path.join(folder, file_name))
        if limit_bytes is not None:
            found.append((limit_bytes, words))
    if not found:
        return None, "no MemTotal in %s/meminfo and no cgroup limit" % proc_root
    return min(found, key=lambda pair: pair[0])  # of equals the first: the host's


def _list_limit_files(proc_root: str, cgroup_root: str) -> Iterator[Tuple[str, str, str]]:
    # The path in /proc/self/cgroup is the host's where there is no cgroup namespace, and then only the mount's root,
    # which is this container's own group, is there. The way up ends in it, so both kinds are covered.
    for line in read_text(os.path.join(proc_root, "self/cgroup")).splitlines():
        # 4:memory:/docker/1edf9f1d    or, version 2,    0::/user.slice/session-3.scope
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            for mount in (cgroup_root, os.path.join(cgroup_root, "unified")):
                for folder, shown in _list_upwards(mount, path):
                    yield folder, "memory.max", "cgroup v2 memory.max of %s" % shown
        elif "memory" in controllers.split(","):
            for mount in sorted({os.path.join(cgroup_root, name) for name in ("memory", controllers)}):
                for folder, shown in _list_upwards(mount, path):
                    yield folder, "memory.limit_in_bytes", "cgroup v1 memory.limit_in_bytes of %s" % shown


def _list_upwards(mount: str, path: str) -> Iterator[Tuple[str, str]]:
    names = [name for name in path.split("/") if name not in ("", ".", "..")]
    for count in range(len(names), -1, -1):
        yield os.path.join(mount, *names[:count]), "/" + "/".join(names[:count])


def _read_limit_bytes(path: str) -> Optional[int]:
    text = read_text(path).strip()
    if not text.isdecimal() or int(text) >= _NO_LIMIT_BYTES:  # "max", or no such file
        return None
    return int(text)


def _read_total_bytes(proc_root: str) -> Optional[int]:
    for line in read_text(os.path.join(proc_root, "meminfo")).splitlines():
        # MemTotal:       49367304 kB
        words = line.split()
        if len(words) >= 2 and words[0] == "MemTotal:" and words[1].isdecimal():
            return int(words[1]) * 1024
    return None


def read_text(path: str) -> str:
    """A small file of the kernel's, "" where it can't be read."""
    try:
        with open(path, "rb") as stream:
            return stream.read().decode("utf-8", "replace")
    except OSError:
        return ""
