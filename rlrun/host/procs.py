"""The process table, read from /proc and nothing else. Owns what a process is; judges none and signals none.

Everything takes `root`, the folder that stands for /proc. A process that vanishes while it is read is left out.
"""
import os
import pwd
import signal
import time
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Set, Tuple, Union

from ..values import Identity, Process

_CHUNK_BYTES = 16384
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_CLOCK_BOOTTIME = 7  # linux/time.h; time.CLOCK_BOOTTIME came with 3.7
_DEAD_STATES = "ZXx"


class _Stat(NamedTuple):
    comm: str
    state: str
    ppid: int
    pgid: int
    sid: int
    start_ticks: int


def list_pids(root: str = "/proc") -> List[int]:
    """The pids that can be seen, ascending; empty where there is no such folder."""
    try:
        names = os.listdir(root)
    except OSError:
        return []
    return sorted(int(name) for name in names if name.isdecimal())


def read_processes(root: str = "/proc") -> Dict[int, Process]:
    """All processes that can be seen, by pid, zombies included; a kernel thread or a zombie has an empty argv.

    The uid is the effective one: the kernel gives the folder /proc/PID to it even where the process is not dumpable and
    the files inside are root's (fs/proc/base.c, task_dump_owner), so /proc/PID/status need not be read for it.
    """
    uptime = _read_uptime_seconds(root)
    processes = {}
    for pid in list_pids(root):
        folder = "%s/%d" % (root, pid)
        try:
            stat = _parse_stat(_read_bytes(folder + "/stat"))
            uid = os.stat(folder).st_uid
        except (OSError, ValueError):  # gone, hidden, or half a row of one that is going
            continue
        try:
            argv = _parse_argv(_read_bytes(folder + "/cmdline"), folder)
        except OSError:
            argv = ()
        processes[pid] = Process(
            pid=pid, ppid=stat.ppid, pgid=stat.pgid, sid=stat.sid, uid=uid, state=stat.state,
            start_ticks=stat.start_ticks, elapsed_seconds=max(0.0, uptime - stat.start_ticks / _TICKS_PER_SECOND),
            comm=stat.comm, argv=argv)
    return processes


def read_environ(pid: int, root: str = "/proc") -> Optional[Dict[str, str]]:
    """The environment that the process was started with; None where it may not be read or the process is gone.

    What it has changed since does not show. The values may be secrets: never print or store the whole.
    """
    try:
        data = _read_bytes("%s/%d/environ" % (root, pid))
    except OSError:
        return None
    environ: Dict[str, str] = {}
    for entry in data.decode("utf-8", "replace").split("\0"):
        name, equals, value = entry.partition("=")
        if name and equals:
            environ.setdefault(name, value)  # of a name that is there twice, getenv takes the first
    return environ


def read_cwd(pid: int, root: str = "/proc") -> Optional[str]:
    """The working directory, with the kernel's " (deleted)" behind it where that applies; None where it is hidden."""
    return _read_link("%s/%d/cwd" % (root, pid))


def read_fd(pid: int, number: int, root: str = "/proc") -> Optional[str]:
    """What the descriptor is open on, as the kernel words it (`pipe:[7]`, a path with " (deleted)" behind it); None where
    it is closed or hidden."""
    return _read_link("%s/%d/fd/%d" % (root, pid, number))


def ignores_interrupt(pid: int, root: str = "/proc") -> bool:
    """Does the process ignore SIGINT? One that a script started with `&` does, and so does all that it starts."""
    for line in _read_text("%s/%d/status" % (root, pid)).splitlines():
        if line.startswith("SigIgn:"):  # SigIgn:	0000000000000006
            return bool(int(line.split()[1], 16) & 1 << (signal.SIGINT - 1))
    return False


def read_open_files_limit(pid: int, root: str = "/proc") -> Union[int, str, None]:
    """The soft limit of open files of a process, or "unlimited"; None where it may not be read or the process is gone."""
    # Max open files            1024                 1048576              files
    for line in (_read_text("%s/%d/limits" % (root, pid))).splitlines():
        if line.startswith("Max open files"):
            word = line[len("Max open files"):].split()[0]
            return int(word) if word.isdecimal() else word
    return None


def read_boot_id(root: str = "/proc") -> str:
    """The kernel's id of this boot; empty where it does not tell."""
    return _read_text(root + "/sys/kernel/random/boot_id").strip()


def read_pid_namespace(root: str = "/proc") -> str:
    """What tells this table of pids from another one of this boot (a container's): `pid:[4026531836]`; "" where it is hidden."""
    return _read_link(root + "/self/ns/pid") or ""


def read_identity(pid: int, root: str = "/proc") -> Optional[Identity]:
    """What tells this process from a later one with its pid; None where it is gone or hidden. A zombie has one too."""
    stat = _read_stat(pid, root)
    return Identity(pid, stat.start_ticks, read_boot_id(root)) if stat else None


def is_alive(identity: Identity, root: str = "/proc") -> bool:
    """Whether exactly this process still runs: same pid, start and boot, and neither a zombie nor dead.

    False also where /proc hides the process from us.
    """
    stat = _read_stat(identity.pid, root)
    return (stat is not None and stat.start_ticks == identity.start_ticks and stat.state not in _DEAD_STATES
            and read_boot_id(root) == identity.boot_id)


def is_dead(process: Process) -> bool:
    """Whether only the row is left of it: a zombie, or one that is being removed."""
    return process.state in _DEAD_STATES


def find_ancestors(processes: Mapping[int, Process], pid: int) -> List[int]:
    """The pids above `pid`, nearest first, as far as the table shows them; `pid` itself is not among them."""
    ancestors: List[int] = []
    seen = {pid}
    process = processes.get(pid)
    while process and process.ppid in processes and process.ppid not in seen:
        seen.add(process.ppid)
        ancestors.append(process.ppid)
        process = processes[process.ppid]
    return ancestors


def find_descendants(processes: Mapping[int, Process], pids: Iterable[int]) -> Set[int]:
    """The given pids and all that is below them."""
    children: Dict[int, List[int]] = {}
    for process in processes.values():
        children.setdefault(process.ppid, []).append(process.pid)
    found = set(pids)
    waiting = list(found)
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found


def is_table_partial(root: str = "/proc") -> bool:
    """Whether processes of other users are hidden from us (hidepid, or a policy that has the same effect).

    Every pid namespace has a pid 1, so where its stat can't be read the table is not whole, whatever hides it. Where it
    can and is another user's, others are shown. Where it is ours (a container that runs as us) it proves nothing, and
    the mount options decide. Source: proc(5), hidepid and gid.
    """
    try:
        _read_bytes(root + "/1/stat")
        uid = os.stat(root + "/1").st_uid
    except OSError:
        return True
    if uid != os.geteuid() or uid == 0:
        return False
    options = _parse_proc_options(_read_text(root + "/self/mountinfo"))
    if options.get("hidepid", "0") in ("0", "off"):
        return False
    exempt = options.get("gid", "0")  # not told in mountinfo where it is 0
    is_exempt = exempt.isdecimal() and int(exempt) in {os.getegid(), *os.getgroups()}
    return not is_exempt or options["hidepid"] in ("4", "ptraceable")


def user_name(uid: int) -> str:
    """The login name, or the number as text where the user database has none (a container, another namespace)."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)


def join_command(process: Process) -> str:
    """The command line as `pgrep -f` searches it: argv joined with one space, or `[comm]` where there is no argv."""
    return " ".join(process.argv) or "[%s]" % process.comm


def _read_stat(pid: int, root: str) -> Optional[_Stat]:
    try:
        return _parse_stat(_read_bytes("%s/%d/stat" % (root, pid)))
    except (OSError, ValueError):
        return None


def _parse_stat(data: bytes) -> _Stat:
    # 4242 (x) S 1 (y) S 1 4242 4242 0 -1 4194304 …: the name may hold spaces and parentheses, what follows it may not.
    opening, closing = data.index(b"("), data.rindex(b")")
    fields = data[closing + 2:].split(b" ", 20)
    if len(fields) < 21:
        raise ValueError("a row of /proc/PID/stat has too few fields")
    return _Stat(data[opening + 1:closing].decode("utf-8", "replace"), fields[0].decode("ascii", "replace"),
                 int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def _parse_argv(data: bytes, folder: str) -> Tuple[str, ...]:
    text = data.decode("utf-8", "replace")
    if "\0" in text.rstrip("\0 "):
        return tuple(text.rstrip("\0").split("\0"))
    text = text.strip("\0 ")
    if " " not in text:
        return (text,) if text else ()
    # One string with spaces: a title that the process gave itself (setproctitle overwrites the NULs), unless it is the
    # path of its program and that path has a space in it.
    exe = _read_link(folder + "/exe")
    if exe and os.path.basename(exe) == os.path.basename(text):
        return (text,)
    return tuple(text.split())


def _parse_proc_options(mountinfo: str) -> Dict[str, str]:
    # 24 1 0:22 / /proc rw,nosuid,nodev - proc proc rw,gid=1001,hidepid=2
    options: Dict[str, str] = {}
    for line in mountinfo.splitlines():
        mount, _, source = line.partition(" - ")
        if mount.split()[4:5] == ["/proc"] and source.split()[:1] == ["proc"]:
            pairs = (option.partition("=") for option in source.split()[-1].split(","))
            options = {name: value for name, _, value in pairs}  # the last mount covers the ones before it
    return options


def _read_uptime_seconds(root: str) -> float:
    """Seconds since boot in the clock that start times count in."""
    if root == "/proc":
        # lxcfs puts the container's uptime into /proc/uptime and leaves the start times alone.
        try:
            return time.clock_gettime(_CLOCK_BOOTTIME)
        except OSError:
            pass
    try:
        return float(_read_text(root + "/uptime").split()[0])
    except (IndexError, ValueError):
        return 0.0


def _read_bytes(path: str) -> bytes:
    # Plain descriptors: a file object costs as much as the rest of a process's row.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = chunk = os.read(fd, _CHUNK_BYTES)
        while chunk:  # a short read is not the end: seq_file hands out a page at a time
            chunk = os.read(fd, _CHUNK_BYTES)
            data += chunk
        return data
    finally:
        os.close(fd)


def _read_text(path: str) -> str:
    try:
        return _read_bytes(path).decode("utf-8", "replace")
    except OSError:
        return ""


def _read_link(path: str) -> Optional[str]:
    # In the file system's own encoding: such a path is compared with others and opened, replacement would break that.
    try:
        return os.readlink(path)
    except OSError:
        return None
