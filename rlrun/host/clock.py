"""How this host's clock stands to another's, as far as that can be told without a daemon: by the times that a file server puts on
files, and by the Date of an HTTP answer. Writes one file of its own into the folder that it is given, and removes it."""
import email.utils
import os
import socket
import time
from typing import List, NamedTuple, Optional, Tuple

_SERVED = ("nfs", "nfs4")  # those whose server puts the times on files; Lustre's and Ceph's clients do it themselves
_SLOW_SECONDS = 1.0
_MAX_ANSWER_BYTES = 1 << 14


class Offset(NamedTuple):
    """How many seconds this clock is ahead of another: between `low` and `high`."""

    low: float
    high: float


def read_file_server(folder: str, proc_root: str = "/proc") -> str:
    """The `server:/export` that a folder lies on, "" where it is on no NFS: by the last mount of the longest path above it."""
    path = os.path.realpath(folder)
    best, server = "", ""
    try:
        with open(os.path.join(proc_root, "self/mountinfo"), "rb") as file:
            lines = os.fsdecode(file.read()).splitlines()
    except OSError:
        return ""
    for line in lines:
        # 36 35 98:0 /mnt1 /mnt/data rw,noatime master:1 - nfs4 filer:/export rw,vers=4.2
        before, _, after = line.partition(" - ")
        fields, tail = before.split(" "), after.split(" ")
        if len(fields) < 5 or len(tail) < 2:
            continue
        place = _unescape(fields[4])
        if (path == place or path.startswith(place.rstrip("/") + "/")) and len(place) >= len(best):
            best, server = place, _unescape(tail[1]) if tail[0] in _SERVED else ""
    return server


def measure_file_server(folder: str) -> Optional[Offset]:
    """This clock against that of a folder's file server: a file is written there, and its time looked at. None where that can't
    be done, or takes so long that it tells nothing."""
    path = os.path.join(folder, ".clock-%d-%s" % (os.getpid(), os.urandom(6).hex()))
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            before = time.time()
            try:
                os.write(fd, b".")
                os.fsync(fd)
            finally:
                os.close(fd)
            stamp = os.stat(path).st_mtime
            after = time.time()
        finally:
            os.unlink(path)
    except OSError:
        return None
    return Offset(before - stamp, after - stamp) if 0 <= after - before <= _SLOW_SECONDS else None


def measure_http(address: str, port: int, timeout_seconds: float = 3.0) -> Optional[Offset]:
    """This clock against that of an HTTP server, by the Date of its answer, which tells whole seconds. None where it gives none
    in time. `address`: of numbers, for a name server may be slow."""
    deadline = time.monotonic() + timeout_seconds
    answer: List[bytes] = []
    before = time.time()
    try:
        with socket.create_connection((address, port), timeout=timeout_seconds) as connection:
            connection.sendall(b"HEAD / HTTP/1.0\r\nHost: %s\r\nUser-Agent: rlrun\r\n\r\n" % address.encode("ascii", "replace"))
            while b"\r\n\r\n" not in b"".join(answer) and sum(map(len, answer)) < _MAX_ANSWER_BYTES:
                connection.settimeout(max(0.01, deadline - time.monotonic()))
                chunk = connection.recv(4096)
                if not chunk or time.monotonic() > deadline:
                    break
                answer.append(chunk)
    except (OSError, ValueError):
        return None
    after = time.time()
    date = _parse_date(b"".join(answer).decode("ascii", "replace"))
    # It was that second, or up to one later.
    return None if date is None or not 0 <= after - before <= timeout_seconds else Offset(before - date - 1.0, after - date)


def subtract(own: Offset, other: Offset) -> Offset:
    """How far this clock is ahead of another host's, where both were measured against the same third one."""
    return Offset(own.low - other.high, own.high - other.low)


def _parse_date(text: str) -> Optional[float]:
    # HTTP/1.1 200 OK\r\nDate: Mon, 30 Nov 2026 06:49:42 GMT\r\n
    if not text.startswith("HTTP/"):
        return None
    for line in text.split("\r\n"):
        name, _, value = line.partition(":")
        if name.strip().lower() == "date":
            try:
                return email.utils.parsedate_to_datetime(value.strip()).timestamp()
            except (TypeError, ValueError, OverflowError, IndexError):
                return None
    return None


def _unescape(text: str) -> str:
    """A path of mountinfo: \\040 is a space."""
    parts = text.split("\\")
    shown: Tuple[str, ...] = tuple(chr(int(part[:3], 8)) + part[3:] if part[:3].isdigit() and len(part) >= 3 and set(
        part[:3]) <= set("01234567") else "\\" + part for part in parts[1:])
    return parts[0] + "".join(shown)
