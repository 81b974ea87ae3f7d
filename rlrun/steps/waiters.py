"""Who waits for this machine, in order: each waiting rlrun listens on an abstract Unix socket whose name tells since when and
for what. No file, no daemon: the kernel drops the name with its process. Who it is, the kernel tells, not the name."""
import errno
import os
import re
import socket
import struct
import time
from typing import FrozenSet, List, NamedTuple, Optional, Set, Tuple

from ..errors import MACHINE, OperatorError
from ..host import procs
from ..host.memory import read_text
from ..text.durations import format_elapsed
from ..values import Check, Plan
from . import claims

_PREFIX = "rlrun.wait."
_MAX_NAME = 100  # struct sockaddr_un holds 108 bytes, unix(7)
_BACKLOG = 4096  # whoever asks stays in it until `drain`; the kernel lowers it to net.core.somaxconn
_CLOCK_BOOTTIME = 7  # linux/time.h; time.CLOCK_BOOTTIME came with 3.7
_NANO = 1000000000
# Whoever took a time has bound its name within the one; who looks once the other is over sees all that came before.
_BIND_SECONDS = 0.02
SETTLE_SECONDS = 0.05
_LISTENS = 0x10000  # __SO_ACCEPTCON, include/linux/net.h
_STREAM = 1
_ASK_SECONDS = 1.0
_MANY = 4
# 000000002d16589c: 00000002 00000000 00010000 0001 01 1664 @rlrun.wait.00000000086400123456.4242.g0,1p8000
_ROW = (r"[0-9a-f]+: [0-9A-F]+ [0-9A-F]+ ([0-9A-F]{8}) ([0-9A-F]{4}) [0-9A-F]{2} +([0-9]+) "
        r"@(%s([0-9]{20})\.[0-9]+\.([0-9a-z,]*))\Z")
# g0,1p8000,8100   g   gp8000
_SHARE = re.compile(r"g([0-9,]*)(?:p([0-9,]+))?\Z")
# Why a waiter launches nothing now.
SILENT = "does not answer"
UNSEEN = "can't be seen from here"
GONE = "is gone"  # a child of its has the socket
STOPPED = "is stopped"


class Ticket(NamedTuple):
    """A place in the queue; it ends with `leave` or with the process, and no program that is started inherits it."""

    socket: "socket.socket"
    since_seconds: float
    want: str
    has_waited: bool = False  # what was looked at before it is old by now
    rivals: Optional[FrozenSet[int]] = None  # the places that there were when ours was new, by number: whoever came before us


class Waiter(NamedTuple):
    """Somebody's place in it: `pid` 0 and `uid` -1 where that can't be told from here. `why` he launches nothing now, "" if he
    may: who is stopped has his turn when he goes on; who does not answer, or is not in this table of processes, is nobody that
    could be held to what his name says, and would be in everybody's way for ever."""

    pid: int
    uid: int
    since_seconds: float  # in the clock of `read_clock`
    want: str
    place: int = 0  # the socket's own number, which no other has while it is there
    why: str = ""


def read_clock() -> float:
    """Seconds since boot, the time that a machine sleeps included; the same for all processes of the machine."""
    try:
        return time.clock_gettime(_CLOCK_BOOTTIME)
    except OSError:
        return time.monotonic()


def name_want(plan: Plan) -> str:
    """What a launch of the plan takes, as a word: `n` nothing of this machine (a batch job), `g0,1p8000` GPUs and ports by
    number, `box` all of it: what takes or sweeps the box, and what can't be told by numbers."""
    if plan.is_submission:
        return "n"
    if plan.takes_whole_box or plan.sweep.process_patterns or plan.gpu_count is None:
        return "box"
    gpus = claims.name_gpus(plan)
    if len(gpus) != plan.gpu_count or not all(re.match(r"[0-9]{1,4}\Z", name) for name in gpus):
        return "box"
    ports = ",".join(str(port.number) for port in plan.ports)
    want = "g%s%s" % (",".join(gpus), "p" + ports if ports else "")
    return want if len(want) <= _MAX_NAME - len(_PREFIX) - 32 else "box"


def is_overlapping(one: str, other: str) -> bool:
    """Must the later of these two wait for the earlier? A word that is not known counts as the whole box."""
    if "n" in (one, other):
        return False
    shares = [_SHARE.match(word) for word in (one, other)]
    if not (shares[0] and shares[1]):
        return True
    return any(_split(shares[0].group(part)) & _split(shares[1].group(part)) for part in (1, 2))


def _split(numbers: Optional[str]) -> Set[int]:
    return {int(word) for word in (numbers or "").split(",") if word}


def enter(want: str) -> Ticket:
    """Takes the last place. Raises OperatorError (exit 5) where no such socket can be had."""
    while True:
        since = int(read_clock() * _NANO)
        place = None
        try:
            place = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            place.bind("\0%s%020d.%d.%s" % (_PREFIX, since, os.getpid(), want))
            place.listen(_BACKLOG)
            place.setblocking(False)
        except OSError as error:
            if place:
                place.close()
            if error.errno == errno.EADDRINUSE:
                continue
            raise OperatorError("can't take a place among those who wait for this machine: %s; nothing was launched"
                                % os.strerror(error.errno or 0), "This shell may open no Unix socket, or no more files "
                                "(ulimit -n).", MACHINE, "wait-free")
        if read_clock() - since / _NANO <= _BIND_SECONDS:
            return Ticket(place, since / _NANO, want)
        place.close()  # held up in between: somebody later may have looked and seen nobody before him


def leave(ticket: Ticket) -> None:
    """Gives the place up. May be called again."""
    ticket.socket.close()


def drain(ticket: Ticket) -> None:
    """Lets go of those who asked who waits here: else the kernel's queue for them is full one day."""
    for _ in range(_BACKLOG):
        try:
            ticket.socket.accept()[0].close()
        except OSError:
            return


def list_waiting(root: str = "/proc") -> Tuple[Waiter, ...]:
    """All that wait for this machine (of this network namespace, any user's), the earliest first; with our own place."""
    row = re.compile(_ROW % re.escape(_PREFIX))
    found = []
    try:
        with open(root + "/net/unix", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                match = row.match(line.rstrip("\n")) if _PREFIX in line else None
                if match and int(match.group(1), 16) & _LISTENS and int(match.group(2), 16) == _STREAM:
                    found.append((match.group(4), int(match.group(3)), int(match.group(5)) / _NANO, match.group(6)))
    except OSError:
        return ()
    waiting: List[Waiter] = []
    for name, place, since, want in found:
        holder = _ask_holder(name)
        if holder:
            why, began = (SILENT, 0.0) if holder[1] < 0 else _read_holder(holder[0])
            waiting.append(Waiter(holder[0], holder[1], max(since, began), want, place, why))
    return tuple(sorted(waiting, key=lambda one: (one.since_seconds, one.pid)))


def _ask_holder(name: str) -> Optional[Tuple[int, int]]:
    """(pid, uid) of who listens there; (0, -1) where the kernel can't say now, or may not; None where nobody does."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(_ASK_SECONDS)
            client.connect("\0" + name)
            pid, uid, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
            return int(pid), int(uid)
    except ConnectionRefusedError:
        return None
    except OSError:  # EAGAIN: stopped, and asked so often that the kernel keeps no more of it
        return 0, -1


def _read_holder(pid: int) -> Tuple[str, float]:
    """(why it launches nothing, when it began in the same clock: nobody has waited for longer than that). Of another user's
    that /proc hides (hidepid) neither is known, and 0.0 stands for its start."""
    row = read_text("/proc/%d/stat" % pid).rpartition(")")[2].split() if pid else []
    if not pid:
        return UNSEEN, 0.0
    if len(row) < 20:
        return ("" if procs.is_table_partial() else GONE), 0.0
    if row[0] in "ZXx":
        return GONE, 0.0
    return (STOPPED if row[0] == "T" else ""), int(row[19]) / os.sysconf("SC_CLK_TCK")


def note_rivals(ticket: Ticket) -> Ticket:
    """The place, with who is there already: whoever came before us is among them once SETTLE_SECONDS are over, and nobody who
    shows later has come before us, whatever his name says. Noted once."""
    return ticket if ticket.rivals is not None else ticket._replace(rivals=frozenset(one.place for one in list_waiting()))


def list_before(ticket: Ticket, waiting: Tuple[Waiter, ...]) -> Tuple[Waiter, ...]:
    """Those who wait for what we want too and came before us, the earliest first."""
    own = os.fstat(ticket.socket.fileno()).st_ino
    return tuple(one for one in waiting if (one.since_seconds, one.pid) < (ticket.since_seconds, os.getpid())
                 and one.pid != os.getpid() and one.place != own and is_overlapping(one.want, ticket.want)
                 and (ticket.rivals is None or one.place in ticket.rivals))


def find_front(ticket: Ticket, waiting: Tuple[Waiter, ...]) -> Optional[Waiter]:
    """The earliest of those before us who may launch."""
    return next((one for one in list_before(ticket, waiting) if not one.why), None)


def describe_waiter(one: Waiter) -> str:
    """`pid 123 (bob)`, as far as it is known."""
    if one.uid < 0:
        return "somebody who does not answer"
    return "%s (%s)" % ("pid %d" % one.pid if one.pid else "a process that can't be seen here", procs.user_name(one.uid))


def describe_passed(one: Waiter) -> str:
    """`pid 123 (bob), who waits since 02:14 and is stopped`; of whom no more is known than what he says, no time is told."""
    if one.why != STOPPED:
        return describe_waiter(one) + (", who is gone" if one.why == GONE else "")
    return "%s, who waits since %s and is stopped" % (describe_waiter(one), describe_since(read_clock() - one.since_seconds))


def describe_since(elapsed_seconds: float) -> str:
    """`02:14`, with the day where it is not today's."""
    began, now = time.localtime(time.time() - elapsed_seconds), time.localtime()
    return time.strftime("%H:%M" if began[:3] == now[:3] else "%Y-%m-%d %H:%M", began)


def judge_waiting(waiting: Tuple[Waiter, ...]) -> List[Check]:
    """Does somebody else wait for this machine? Nothing is said where nobody does."""
    others = [one for one in waiting if one.pid != os.getpid()]
    if not others:
        return []
    named = "; ".join(_describe_other(one, read_clock() - one.since_seconds) for one in others[:_MANY])
    return [Check("live", "job:waiting", "advisory", "%s for this machine: %s%s" % (
        "1 rlrun waits" if len(others) == 1 else "%d rlruns wait" % len(others), named, "; …" if len(others) > _MANY else ""),
        "They came first: `rlrun run … --wait-free 6h` waits behind those who want the same.")]


def _describe_other(one: Waiter, age_seconds: float) -> str:
    if one.why not in ("", STOPPED):
        return describe_waiter(one) + ", since when is not known"
    return "%s since %s (%s%s)" % (describe_waiter(one), describe_since(age_seconds), format_elapsed(age_seconds),
                                   ", stopped" if one.why else "")
