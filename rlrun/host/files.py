"""Files that others write: opened and read without waiting for any of them, and never more than asked for. And folders that
several people may have to write to."""
import errno
import os
import stat


def make_folder(path: str) -> None:
    """Makes a folder and those above it that are missing. Who may write to the one above it may write to it too: in a checkout
    that a team shares, the first who launches would otherwise lock the others out. OSError where it can't be made."""
    missing = []
    while path and not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for one in reversed(missing):
        try:
            os.mkdir(one)
        except FileExistsError:
            if not os.path.isdir(one):
                raise
            continue  # somebody else was quicker
        above = stat.S_IMODE(os.stat(os.path.dirname(one) or ".").st_mode)
        if above & 0o022:
            shared = above & 0o2022 | (stat.S_ISVTX if above & 0o002 or above & stat.S_ISVTX else 0)
            try:
                os.chmod(one, stat.S_IMODE(os.stat(one).st_mode) | shared)
            except OSError:
                pass  # a file system without modes


def open_file(path: str) -> int:
    """A descriptor for reading. OSError also for what is no file: a pipe that lies there would keep us waiting."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not os.path.isfile("/dev/fd/%d" % fd):
            raise OSError(errno.EINVAL, "not a file", path)
    except BaseException:
        os.close(fd)
        raise
    return fd


def read_head(path: str, limit_bytes: int) -> bytes:
    """The first bytes of a file, b"" where it can't be read."""
    try:
        with os.fdopen(open_file(path), "rb") as file:
            return file.read(limit_bytes)
    except (OSError, ValueError):
        return b""
