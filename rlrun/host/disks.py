"""File systems: how full they are, whether a small file can be written, what lies at a path and whose it is.

Owns statvfs and the walk over what a launch would delete. The one thing it writes is the probe file of `probe_write`,
which it removes again. It follows no link below a path that it measures, and it prints nothing.
"""
import errno
import glob
import os
import pwd
import stat
import time
from typing import Any, Callable, List, Optional, Sequence, Tuple, TypeVar

from ..values import Disk, PathSize, WriteProbe

GIB = 1 << 30
LOW_PERCENT = 85  # these two: scripts/lib/live_probe.sh of Lego-RL, where both must hold
LOW_FREE_GIB = 500
NEARLY_FULL_PERCENT = 95  # Ray's local_fs_capacity_threshold: above it, nothing is spilled any more (D5)
SHORT_OF_INODES_PERCENT = 2
_PROBE_BYTES = 4096
_STALE_TRIES = 4
_STALE_PAUSE_SECONDS = 0.05
_BLOCK_BYTES = 512  # the unit of st_blocks, whatever the file system's own is
_WORDS = {
    errno.EDQUOT: "quota exceeded",
    errno.ENOSPC: "no space left",
    errno.EROFS: "read-only file system",
    errno.EACCES: "permission denied",
    errno.ESTALE: "stale NFS handle",
    errno.ENOTDIR: "not a directory",
}
_Result = TypeVar("_Result")


def read_disk(path: str) -> Optional[Disk]:
    """The file system of `path`, or of its nearest existing parent; links are followed, dangling ones too.

    Gives None where it can't be asked, and where it does not count blocks (then nothing can be said of its room).
    """
    try:
        return _read_statvfs(path, _find_existing(path))
    except OSError:
        return None


def read_shm(path: str = "/dev/shm") -> Optional[Disk]:
    """The shared memory file system (D1); None where there is none: its parent would be another one."""
    try:
        return _read_statvfs(path, path)
    except OSError:
        return None


def is_low(disk: Disk) -> bool:
    """Whether Lego-RL's probe would warn: 85 % full and less than 500 GiB free (df rounds both up)."""
    free_gib = -(-disk.free_bytes // GIB)
    return disk.used_percent >= LOW_PERCENT and free_gib < LOW_FREE_GIB


def is_nearly_full_percent(disk: Disk) -> bool:
    """Whether more than 95 % are used, however many bytes that leaves: Ray then stops spilling (D5)."""
    return disk.used_percent > NEARLY_FULL_PERCENT


def is_short_of_inodes(disk: Disk) -> bool:
    """Whether less than 2 % of the inodes are free; False where the file system does not count them."""
    return disk.inodes_free_percent is not None and disk.inodes_free_percent < SHORT_OF_INODES_PERCENT


def probe_write(path: str) -> WriteProbe:
    """Whether 4 KiB can be written in directory `path`, or in its nearest existing parent (`probed`).

    A real write is the only way to see a quota (D3) or a root-squashing server. The file has a name of its own and is
    removed in every case. Raises nothing: `reason` says in words what failed.
    """
    probed = os.path.abspath(path)
    try:
        probed = _find_existing(path)
        if not stat.S_ISDIR(_retry_stale(os.stat, probed).st_mode):
            raise OSError(errno.ENOTDIR, "")
        _retry_stale(_write_and_remove, probed)
    except OSError as error:
        return WriteProbe(path, probed, False, _describe_error(error))
    return WriteProbe(path, probed, True, "")


def read_paths(globs: Sequence[str], max_entries: int = 20000) -> Tuple[PathSize, ...]:
    """What the globs match, sorted, each once, with the allocated bytes of all files in it, as `du` counts.

    As in the shell, `*` does not match hidden names. `max_entries` bounds the walk over all matches together; every
    match is given, with `is_exact` False where its counting stopped early or a folder could not be read.
    """
    matches = {match for pattern in globs for match in glob.glob(pattern)}
    budget = max_entries
    sizes: List[PathSize] = []
    for path in sorted(matches):
        try:
            status = os.lstat(path)
        except OSError:
            continue  # gone since the glob
        if stat.S_ISDIR(status.st_mode):
            size_bytes, is_exact, budget = _measure_tree(path, budget)
        else:
            size_bytes, is_exact = status.st_blocks * _BLOCK_BYTES, True
        sizes.append(PathSize(path, size_bytes, _read_user_name(status.st_uid), is_exact))
    return tuple(sizes)


def read_owner(path: str) -> Optional[Tuple[str, int]]:
    """User name (the number where it has none) and mode bits of what `path` leads to; None where it can't be read."""
    try:
        status = _retry_stale(os.stat, path)
    except OSError:
        return None
    return _read_user_name(status.st_uid), stat.S_IMODE(status.st_mode)


def _find_existing(path: str) -> str:
    # realpath first: of a dangling link, the place that it leads to is where `mkdir -p` and the write would go.
    place = os.path.realpath(path)
    while True:
        try:
            _retry_stale(os.stat, place)
            return place
        except (FileNotFoundError, NotADirectoryError):
            if place == os.path.dirname(place):
                raise
            place = os.path.dirname(place)


def _read_statvfs(path: str, place: str) -> Optional[Disk]:
    found = _retry_stale(os.statvfs, place)
    if not found.f_blocks:
        return None
    # More available than free is a negative number that the kernel hands on unsigned (root ate the reserve).
    available = found.f_bavail if found.f_bavail <= found.f_bfree else 0
    used = found.f_blocks - found.f_bfree
    inodes_percent: Optional[int] = None
    if found.f_files:
        inodes_percent = min(100, found.f_favail * 100 // found.f_files)
    return Disk(
        path=path,
        total_bytes=found.f_blocks * found.f_frsize,
        free_bytes=available * found.f_frsize,
        used_percent=-(-used * 100 // (used + available)) if used + available else 100,
        inodes_free_percent=inodes_percent,
    )


def _write_and_remove(folder: str) -> None:
    name = os.path.join(folder, ".rlrun-probe-%d-%s" % (os.getpid(), os.urandom(6).hex()))
    descriptor = -1
    is_ours = True
    try:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        left = b"\0" * _PROBE_BYTES
        while left:
            left = left[os.write(descriptor, left):]
        os.fsync(descriptor)  # NFS and delayed allocation tell of a full disk or quota only here
    except FileExistsError:
        is_ours = False
        raise
    finally:
        if descriptor >= 0:
            _try(os.close, descriptor)
        if is_ours:  # also where the open failed: an interrupt may have come between its end and the assignment
            _try(os.unlink, name)


def _try(action: Callable[[Any], None], subject: Any) -> None:
    try:
        action(subject)
    except OSError:
        pass


def _measure_tree(root: str, budget: int) -> Tuple[int, bool, int]:
    size_bytes, is_exact = 0, True
    folders = [root]
    while folders:
        if budget <= 0:
            return size_bytes, False, budget
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if budget <= 0:
                        return size_bytes, False, budget
                    budget -= 1
                    size_bytes += _measure_entry(entry, folders)
        except FileNotFoundError:
            continue  # a live run's files come and go
        except OSError:
            is_exact = False
    return size_bytes, is_exact, budget


def _measure_entry(entry: "os.DirEntry[str]", folders: List[str]) -> int:
    try:
        if entry.is_dir(follow_symlinks=False):
            folders.append(entry.path)
            return 0
        return entry.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES
    except FileNotFoundError:
        return 0


def _retry_stale(action: Callable[[str], _Result], path: str) -> _Result:
    # A server that replaced the file or came back: the next lookup by path gets a fresh handle (D11).
    for _ in range(_STALE_TRIES - 1):
        try:
            return action(path)
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
        time.sleep(_STALE_PAUSE_SECONDS)
    return action(path)


def _describe_error(error: OSError) -> str:
    number = error.errno or 0
    return _WORDS.get(number) or os.strerror(number).lower()


def _read_user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
