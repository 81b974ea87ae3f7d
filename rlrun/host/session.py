"""What ends or starves this launch besides us: limits, a logout, systemd, Slurm, a container's first shell.

Reads /proc, systemd's settings and the environment, and asks `squeue` and `systemctl`. It says what it found and what
to do, as sentences; it changes no limit and no setting.
"""
import os
import resource
from typing import Mapping, Optional, Tuple

from ..values import Fact
from . import cgroups, ends, logind, managers, units

NOFILE_NEEDED = 65536  # Ray's own advice; a worker's sockets and files pass 1024 within minutes (D7)
# NCCL pins 4 MiB a channel and peer (NCCL_BUFFSIZE), 16 channels and more: 64 MiB is gone with the first peer. The
# defaults (64 KiB, since Linux 5.16 8 MiB) lie below it; who raised the limit at all mostly has made it unlimited.
MEMLOCK_NEEDED_BYTES = 64 << 20


def find_limits(sys_root: str = "/sys") -> Tuple[Fact, ...]:
    """`limit:nofile` (WARN where even the hard one is below 65536: the launch raises its own to that) and `limit:memlock` of this
    process, which the launch inherits.

    `limit:memlock` is WARN below 64 MiB where the machine has an RDMA device, INFO where it has none: only the
    registration of memory with such a device counts against it.
    """
    return (_judge_nofile(*resource.getrlimit(resource.RLIMIT_NOFILE)),
            _judge_memlock(resource.getrlimit(resource.RLIMIT_MEMLOCK)[0], _has_rdma_device(sys_root)))


def find_session_ends(proc_root: str = "/proc", etc_root: str = "/etc", run_root: str = "/run", var_root: str = "/var",
                      environ: Optional[Mapping[str, str]] = None, usr_root: str = "/usr",
                      needed_seconds: Optional[float] = None) -> Tuple[str, ...]:
    """Sentences, each naming something that would end the run and what to do; none where nothing was found.

    `environ` is this process's unless given; `squeue` is asked for at most 5 s where there is a Slurm job, `systemctl` for at
    most 2 s where there is a unit to ask about. `needed_seconds`: how long the run will take, by an estimate, if there is one.
    """
    return tuple(say_end(end) for end in find_ends(proc_root, etc_root, run_root, var_root, environ, usr_root, needed_seconds))


def find_ends(proc_root: str = "/proc", etc_root: str = "/etc", run_root: str = "/run", var_root: str = "/var",
              environ: Optional[Mapping[str, str]] = None, usr_root: str = "/usr", needed_seconds: Optional[float] = None,
              uid: int = -1) -> Tuple[ends.End, ...]:
    """The same as values, with what to do apart, and whether a scope of the run's own would be spared; uid -1 is our own."""
    environment = dict(os.environ if environ is None else environ)
    paths = cgroups.read_paths("self", proc_root)
    manager = managers.find_manager(environment, run_root, var_root, uid)
    found = [logind.explain_login(paths, manager, etc_root, run_root, usr_root, var_root)]
    found += units.explain_units(cgroups.pick_path(paths), manager, environment, proc_root, run_root, needed_seconds)
    found += [ends.explain_slurm(paths, environment, needed_seconds), ends.explain_first_shell(proc_root)]
    return tuple(end for end in found if end)


def say_end(end: ends.End) -> str:
    """One sentence: what ends the run, and what to do."""
    return "%s; %s" % (end.words, end.cure)


def _judge_nofile(soft: int, hard: int) -> Fact:
    detail = "soft %s, hard %s" % (_show_limit(soft), _show_limit(hard))
    if _reaches(hard, soft) and soft != hard:
        detail += ": a launch raises its own to the hard one"
    if _reaches(hard, NOFILE_NEEDED):
        return Fact("OK", "limit:nofile", detail)
    return Fact("WARN", "limit:nofile", detail + "; Ray and vLLM need %d open files, and the hard limit must be raised by root "
                "(limits.conf, LimitNOFILE=, docker --ulimit nofile=)" % NOFILE_NEEDED)


def _reaches(limit: int, needed: int) -> bool:
    return limit == resource.RLIM_INFINITY or (needed != resource.RLIM_INFINITY and limit >= needed)


def _judge_memlock(soft: int, has_rdma: bool) -> Fact:
    detail = "unlimited" if soft == resource.RLIM_INFINITY else "%d KiB" % (soft // 1024)
    if soft == resource.RLIM_INFINITY or soft >= MEMLOCK_NEEDED_BYTES:
        return Fact("OK", "limit:memlock", detail)
    if not has_rdma:
        return Fact("INFO", "limit:memlock", detail + "; no RDMA device here that would need more")
    return Fact("WARN", "limit:memlock", detail + "; registering memory with InfiniBand or RoCE needs it unlimited: "
                "`ulimit -l unlimited` before the launch where the hard limit allows it, else limits.conf or "
                "docker --ulimit memlock=-1")


def _show_limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else str(value)


def _has_rdma_device(sys_root: str) -> bool:
    try:
        return bool(os.listdir(os.path.join(sys_root, "class/infiniband")))
    except OSError:
        return False
