"""The launches that nobody looked at and that launched nothing: they have no record, but what they said is kept in
logs/rlrun/unattended.log (see text/unattended.py). Reads the ends of these logs, and nothing through a link."""
import calendar
import errno
import os
import re
import stat
import time
from typing import Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from ..errors import BLOCKED, INTERRUPTED, NOT_CONFIRMED, OK, RUN_ENDED, USAGE
from ..host import procs
from ..text.durations import parse_duration
from ..text.redact import redact
from ..text.shell import escape_controls
from ..text.unattended import shorten
from . import records

LIMIT_BYTES = 4 << 20
_REASON_CHARACTERS = 300
_NEWEST = 200  # records
_SLACK_SECONDS = 5.0  # between the start of a process and its first line, whose time is in whole seconds
_AGES = 2.0 ** 33  # what is later than that is no time
_NEVER_LAUNCHED = (BLOCKED, USAGE, NOT_CONFIRMED, INTERRUPTED)
_TIME = r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z)"
# --- 2026-08-02T02:00:01Z rlrun 0.1.0, pid 4242: rlrun run night --confirm 3f9c2a71
_HEAD = re.compile(r"--- %s rlrun [^ ,]+(?: on ([^ ,]+))?, pid ([0-9]{1,9}): (.*)\Z" % _TIME)
# --- 2026-08-02T02:00:03Z pid 4242: exit 3
_CLOSE = re.compile(r"--- %s pid ([0-9]{1,9}): exit ([0-9]{1,3})\Z" % _TIME)
_ERROR = "rlrun: "
_BLOCKED = "Preflight failed"
#   ✗ gpu         gpu:foreign  pid 41877 (alice)  VLLM::Worker_TP0  128.4 GiB on GPU 0-7
_ROW = re.compile("  \u2717 (?:\\S+\\s+)?(\\S.*)\\Z")
_DIGEST = re.compile(r"(?<= --confirm[ =])([0-9a-f]{8})(?= |\Z)")
_WAIT = re.compile(r"(?<= --wait-free[ =])(\S+)")


class Said(NamedTuple):
    """What a log tells of one launch. `started_seconds` and `command` are None and "" where its beginning lies further up;
    `code` and `ended_seconds` are None where it has no end; `reason`: its own words, "" where they may be another's."""

    pid: int
    started_seconds: Optional[float]
    command: str
    host: str = ""
    ended_seconds: Optional[float] = None
    code: Optional[int] = None
    reason: str = ""
    was_followed: bool = False  # a later launch of the same pid: this one is over


class Refused(NamedTuple):
    """A launch that launched nothing; `log`: where the rest of it is; `user`: whose log that is."""

    said: Said
    log: str
    user: str


def find_refused(root: str, window_seconds: float, secrets: Sequence[str]) -> Tuple[Tuple[Refused, ...], Tuple[str, ...]]:
    """(what launched nothing and ended within the last `window_seconds`, newest first; the logs that this user may not read). One
    that ended without a word counts by its start and by how long it was to wait."""
    now = time.time()
    since = now - window_seconds
    found: List[Refused] = []
    hidden = []
    for path in _list_logs(root):
        try:
            text, uid = _read_end(path)
        except PermissionError:
            hidden.append(path)
            continue
        except OSError:
            continue
        found += [Refused(one, path, procs.user_name(uid)) for one in parse_log(text) if _is_within(one, since)
                  and (one.code is not None or one.was_followed or _is_gone(one, uid, now))]
    launched = _list_launched(root) if any(one.said.code not in _NEVER_LAUNCHED for one in found) else {}
    found = [one._replace(said=_clean(one.said, secrets)) for one in found if not _has_launched(one.said, launched)]
    return tuple(sorted(found, key=lambda one: -(_find_time(one.said)))), tuple(hidden)


def _list_logs(root: str) -> List[str]:
    try:
        names = os.listdir(os.path.join(root, records.FOLDER))
    except OSError:
        return []
    return [os.path.join(root, records.FOLDER, name) for name in sorted(names) if records.UNATTENDED.match(name)]


def _read_end(path: str) -> Tuple[str, int]:
    """(the last of it in whole lines, whose it is)"""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        told = os.fstat(fd)
        if not stat.S_ISREG(told.st_mode):
            raise OSError(errno.EINVAL, "not a file", path)
        place = max(0, told.st_size - LIMIT_BYTES)
        file.seek(place)
        data = file.read(LIMIT_BYTES)
    if place:
        data = data.partition(b"\n")[2]
    return data.replace(b"\0", b"").decode("utf-8", "replace"), told.st_uid


def parse_log(text: str) -> List[Said]:
    """The launches that did not end with 0, each once, in the order of their ends; those without an end last. Several may have
    written in turns, and no line but the first and the last bears a pid: a reason is one's own where nobody else was there, or
    where it is the only one since the last that came or went."""
    found: List[Said] = []
    running: Dict[int, Said] = {}
    alone: Dict[int, bool] = {}  # has nobody else been there since its start?
    lines: List[str] = []  # since the last that came or went
    own: Dict[int, List[str]] = {}  # since its start
    for line in text.split("\n"):
        head, close = _HEAD.match(line), _CLOSE.match(line)
        if head:
            pid = int(head.group(3))
            if pid in running:
                found.append(running.pop(pid)._replace(was_followed=True))
            for one in running:
                alone[one] = False
            alone[pid] = not running
            running[pid] = Said(pid, _parse_time(head.group(1)), head.group(4), head.group(2) or "")
            own[pid], lines = [], []
        elif close:
            pid, code = int(close.group(2)), int(close.group(3))
            if pid not in running:  # its beginning is not there: it has been here all the time
                alone = dict.fromkeys(alone, False)
            said = running.pop(pid, Said(pid, None, ""))
            if code != OK:
                reason = _find_reason(own[pid]) if alone.get(pid) else _find_only_reason(lines)
                found.append(said._replace(ended_seconds=_parse_time(close.group(1)), code=code, reason=reason))
            alone.pop(pid, None)
            own.pop(pid, None)
            lines = []
        else:
            lines.append(line)
            for one in running:
                if alone[one]:
                    own[one].append(line)
    return found + list(running.values())


def _parse_time(word: str) -> Optional[float]:
    try:
        return float(calendar.timegm(time.strptime(word, "%Y-%m-%dT%H:%M:%SZ")))
    except (ValueError, OverflowError):
        return None


def _find_reason(lines: List[str]) -> str:
    """The last error of a launch, else the first check that blocks."""
    for place in range(len(lines) - 1, -1, -1):
        if lines[place].startswith(_ERROR):
            words = lines[place][len(_ERROR):]
            # What is announced is the news: who holds it, what moved.
            return words + " " + " ".join(lines[place + 1].split()) if words.endswith(":") and place + 1 < len(lines) else words
    rows = [_ROW.match(line) for line in lines]
    return next((row.group(1) for row in rows if row), "")


def _find_only_reason(lines: List[str]) -> str:
    return _find_reason(lines) if sum(line.startswith((_ERROR, _BLOCKED)) for line in lines) == 1 else ""


def _find_time(said: Said) -> float:
    return said.ended_seconds or said.started_seconds or 0.0


def _is_within(said: Said, since: float) -> bool:
    waits = _WAIT.search(said.command) if said.code is None else None
    try:
        longer = parse_duration(waits.group(1)) if waits else 0.0
    except ValueError:
        longer = 0.0
    return since <= _find_time(said) + longer < _AGES


def _is_gone(said: Said, uid: int, now: float) -> bool:
    """Has it ended, though it did not say so? What may be hidden from us may live."""
    if said.host not in ("", os.uname().nodename):
        return False  # another node's, which only its last line tells of
    if procs.read_identity(said.pid) is None:
        return uid == os.geteuid() or not procs.is_table_partial()
    process = procs.read_processes().get(said.pid)
    if process is None or procs.is_dead(process):
        return True
    # Its pid may be another's by now.
    return now - process.elapsed_seconds > (said.started_seconds or 0.0) + _SLACK_SECONDS


def _list_launched(root: str) -> Dict[str, Set[float]]:
    """When each plan was launched, by its digest."""
    launched: Dict[str, Set[float]] = {}
    for one in records.list_records(root, _NEWEST):
        if one["digest"] and records.read_identity(one):
            launched.setdefault(one["digest"], set()).add(one["time_seconds"])
    return launched


def _has_launched(said: Said, launched: Dict[str, Set[float]]) -> bool:
    """Is there a record of what it launched? Then that tells how it went."""
    if said.code in _NEVER_LAUNCHED or said.code == RUN_ENDED:
        return said.code == RUN_ENDED
    digest = _DIGEST.search(said.command)
    starts = launched.get(digest.group(1), set()) if digest else set()
    return any((said.started_seconds or 0.0) - 1 <= one <= (said.ended_seconds or _AGES) + 1 for one in starts)


def _clean(said: Said, secrets: Sequence[str]) -> Said:
    reason, command = (shorten(escape_controls(redact(words.strip(), secrets)), _REASON_CHARACTERS)
                       for words in (said.reason, said.command))
    return said._replace(reason=reason, command=command)
