"""One launch at a time on this machine: an abstract Unix socket, which the kernel drops with its last holder."""
import errno
import os
import socket
import struct
import time
from typing import NamedTuple, Optional

from ..errors import BLOCKED, MACHINE, OperatorError
from ..host import procs

_NAME = "\0rlrun.launch"
_POLL_SECONDS = 0.1


class Lock(NamedTuple):
    """A held lock; it ends with `release` or with the process. The socket is not inherited by a program."""

    socket: "socket.socket"


def acquire(timeout_seconds: float) -> Lock:
    """Takes the lock, waiting a little for another launch to get through. Raises OperatorError (exit 1) naming the holder."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        try:
            held = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as error:
            raise _refuse(error)
        try:
            held.bind(_NAME)
            held.listen(16)
            return Lock(held)
        except OSError as error:
            held.close()
            if error.errno != errno.EADDRINUSE:
                raise _refuse(error)
            if time.monotonic() >= deadline:
                raise OperatorError("another rlrun is launching on this machine right now: %s" % (_describe_holder()
                                    or "it can't be seen"), "Look again when it is through: rlrun runs", BLOCKED, "job:running")
        time.sleep(_POLL_SECONDS)


def _refuse(error: OSError) -> OperatorError:
    return OperatorError("can't take the lock that keeps launches apart: %s; nothing was launched"
                         % os.strerror(error.errno or 0), "This shell may open no Unix socket, or no more files (ulimit -n).",
                         MACHINE, "lock")


def _describe_holder() -> str:
    pid = _read_holder()
    if not pid:
        return ""
    process = procs.read_processes().get(pid)
    return "pid %d (%s)" % (pid, procs.user_name(process.uid)) if process else "pid %d" % pid


def _read_holder() -> Optional[int]:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(1)
            client.connect(_NAME)
            data = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            return int(struct.unpack("3i", data)[0])
    except OSError:
        return None


def release(lock: Lock) -> None:
    """Lets go in this process; a keeper that has the socket too holds on until its runner runs."""
    lock.socket.close()


def fileno(lock: Lock) -> int:
    """The descriptor, for the keeper."""
    return lock.socket.fileno()
