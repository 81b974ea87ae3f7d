"""One launch at a time on this machine: an abstract Unix socket, which the kernel drops with its last holder."""
import errno
import os
import socket
import struct
import time
from typing import NamedTuple, Optional, Tuple

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
                raise _refuse_taken(_read_holder())
        time.sleep(_POLL_SECONDS)


def _refuse(error: OSError) -> OperatorError:
    return OperatorError("can't take the lock that keeps launches apart: %s; nothing was launched"
                         % os.strerror(error.errno or 0), "This shell may open no Unix socket, or no more files (ulimit -n).",
                         MACHINE, "lock")


def _refuse_taken(holder: Optional[Tuple[int, int]]) -> OperatorError:
    """Exit 1: by whom the name is taken. Any program may take it, and of one that does not listen the kernel tells nothing."""
    if holder and holder[0]:
        return OperatorError("another rlrun is launching on this machine right now: pid %d (%s); nothing was launched" % (
            holder[0], procs.user_name(holder[1])), "Look again when it is through: rlrun runs", BLOCKED, "job:running")
    who = " (a process of %s's that can't be seen here)" % procs.user_name(holder[1]) if holder else ""
    return OperatorError("the lock that keeps launches apart is taken on this machine, and by whom can't be told%s: it may be no "
                         "rlrun at all; nothing was launched" % who,
                         "Have root of the machine find the process, and ask its user: ss -xap | grep rlrun.launch", BLOCKED,
                         "job:running")


def _read_holder() -> Optional[Tuple[int, int]]:
    """(pid, uid) of who listens there; pid 0 where that is another table's. None where nobody answers."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(1)
            client.connect(_NAME)
            data = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            pid, uid, _ = struct.unpack("3i", data)
            return int(pid), int(uid)
    except OSError:
        return None


def release(lock: Lock) -> None:
    """Lets go in this process; a keeper that has the socket too holds on until its runner runs."""
    lock.socket.close()


def fileno(lock: Lock) -> int:
    """The descriptor, for the keeper."""
    return lock.socket.fileno()
