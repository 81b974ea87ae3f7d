"""A run's logs as a reader follows them: which one, from which byte on, what came since, and which one goes on in its place.

Reads only, and prints nothing. Whatever a log holds, memory stays bounded: it is read in pieces, backwards where its end is
asked for, and of a line without end only the beginning is kept.
"""
import errno
import functools
import os
import re
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ..errors import MACHINE, USAGE, OperatorError
from ..health import growth, lines
from ..host.files import open_file
from ..stacks import load_health
from ..text import redact, shell
from ..vitals import Ending, Point, Target

# A line is shown up to here. Its secrets are looked for a little further, so that none is cut in two and shown by half.
LINE_BYTES = 1 << 15
_MARGIN_BYTES = 1 << 12
_MOST_BYTES = LINE_BYTES + _MARGIN_BYTES
GOES_ON = "\u2026 (line goes on)"
# At once.
_CHUNK_BYTES = 1 << 19
# So far back the last lines are looked for; more where more lines are asked for than fit.
_TAIL_BYTES = 1 << 26
_LINE_GUESS_BYTES = 1024
# And a step.
SINCE_BYTES = 1 << 28
# By so many bytes before the place that was reached a log is known again after it was truncated and has grown past it.
_SEEN_BYTES = 64
_KEY_LINES = 100
_KEY_BYTES = 8192
_SHOWN_RANGES = 6

# -----BEGIN RSA PRIVATE KEY-----   whose other lines come later
_KEY_BEGINS = re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?!.*-----END )")
# \x1b[1;32m
_COLOUR = re.compile(r"(\x1b\[[0-9;:]*m)")


class Stream(NamedTuple):
    """A log that is being read. It stays open, so that the end of one that was renamed is read too."""

    name: str
    path: str
    fd: int  # -1 where it is not there
    identity: Tuple[int, int]  # device and inode
    offset: int  # up to where it was read
    pending: bytes = b""  # what came after the last line end
    is_skipping: bool = False  # within a line of which enough was shown
    seen: bytes = b""  # the bytes before `offset`


class Batch(NamedTuple):
    """What a look at a log brought: its lines, progress bars folded, not longer than clean_lines needs. `event`: "truncated" or
    "replaced" where the log begins anew after them. `is_more`: whether another look at once may help."""

    stream: Stream
    lines: Tuple[bytes, ...]
    event: str
    is_more: bool


def list_logs(target: Target) -> Dict[str, str]:
    """{name: path} of a run's logs, the main one first and the launch log among them."""
    logs = {name: path for place, (name, path) in enumerate(target.logs.items())
            if path not in list(target.logs.values())[:place] or name.startswith("node ")}  # two sources may share a log
    if target.launch_log:
        logs.setdefault("launch", target.launch_log)
    return logs


def describe_logs(logs: Dict[str, str]) -> Dict[str, Dict[str, Any]]:
    """{name: {"path", "exists", "bytes"}}, as `--json` tells them."""
    found = {name: lines.stat_log(path) for name, path in logs.items()}
    return {name: {"path": logs[name], "exists": log is not None, "bytes": log.size if log else None}
            for name, log in found.items()}


def split_which(words: Sequence[str], run: str) -> Tuple[str, str]:
    """(name of a log, RUN) of the words after --which, where a name may have several and RUN may follow: `env NAME`,
    `env train NAME`, `job ID`, `node HOST`, `trainer node N`, or one. OperatorError: exit 2 where too many words are left."""
    count = 1
    if words[:1] == ["job"]:
        count = 2 if words[1:2] and words[1].isdecimal() else 1  # `job RUN` means the only one
    elif words[:1] in (["env"], ["node"]):
        count = 3 if words[0] == "env" and len(words) > 2 and words[1] in ("train", "eval") else 2
    elif words[1:2] == ["node"]:
        count = 3
    name, rest = " ".join(words[:count]), list(words[count:])
    if len(rest) > 1 or rest and run:
        raise OperatorError("too many words after --which: %s" % " ".join(rest), "A log, and one RUN at most.", USAGE, "usage")
    return name, rest[0] if rest else run


def pick_log(logs: Dict[str, str], name: str) -> str:
    """The log of this name: as it is, else the one whose name begins so, has all its words, or parts of them. OperatorError:
    exit 2, with the names, where it means none or several."""
    wanted = name.lower().split()
    names = {one: one.lower().split() for one in logs}
    for is_it in (lambda words: words == wanted,
                  lambda words: bool(wanted) and " ".join(words).startswith(" ".join(wanted)),
                  lambda words: bool(wanted) and set(wanted) <= set(words),
                  lambda words: len(wanted) > 1 and words[0] == wanted[0] and all(any(part in one for one in words)
                                                                               for part in wanted)):
        found = [one for one, words in names.items() if is_it(words)]
        if len(found) == 1:
            return found[0]
        if found:
            raise _refuse("%r may be several logs:" % name, {one: logs[one] for one in found})
    hosts = ", ".join(one[len("node "):] for one in logs if one.startswith("node "))
    told = ("; its nodes are %s" % hosts if hosts else "; none of its nodes has one yet") if wanted[:1] == ["node"] else \
        ", but these:" if logs else ""
    raise _refuse("this run has no log called %r%s" % (name, told), logs)


def find_path(logs: Dict[str, str], path: str) -> str:
    """The name of the log that this file is, "" where it is none."""
    if not os.path.isfile(path):
        return ""
    return next((name for name, one in logs.items() if os.path.realpath(one) == os.path.realpath(path)), "")


def _refuse(message: str, logs: Dict[str, str], code: int = USAGE) -> OperatorError:
    error = OperatorError("\n".join([message] + render_logs(logs)), "rlrun logs RUN --which NAME", code, "log")
    error.shape = {"logs": describe_logs(logs)}
    return error


def render_logs(logs: Dict[str, str]) -> List[str]:
    """A line for each log: its name, its path, how big it is or that it is not there."""
    from ..text.durations import format_bytes
    width = max([len(name) for name in logs] + [0])
    return ["  %s  %s (%s)" % (name.ljust(width), one["path"], format_bytes(one["bytes"]) if one["exists"] else "not there")
            for name, one in describe_logs(logs).items()]


def pick_default(logs: Dict[str, str]) -> str:
    """The log that matters: the main one if it is there, else the launch log, else any; the main one where none is there. ""
    where the run has none."""
    order = list(logs)[:1] + ["launch"] + list(logs)[1:]
    return next((name for name in order if name in logs and lines.stat_log(logs[name])), next(iter(logs), ""))


def find_ending(target: Target, now_seconds: float) -> Optional[Ending]:
    """How a run ended; None where nothing tells."""
    from . import examine, gather
    return examine.examine(target, gather.read_evidence(target), now_seconds).ending


def find_error_log(logs: Dict[str, str], ending: Optional[Ending]) -> str:
    """The log in which the first error of a run lies that ended badly, "" where there is none."""
    error = ending.first_error if ending and ending.how not in ("ended well", "ended") else None
    return next((name for name, path in logs.items() if error and path == error.log), "")


def refuse_missing(logs: Dict[str, str], name: str, is_waiting: bool = False) -> OperatorError:
    """Why a log can't be shown: exit 5, with all the logs of the run. `is_waiting`: its job waits in Slurm's queue."""
    path = logs[name]
    try:
        os.close(open_file(path))
        words = "can't be read"  # it came just now
    except FileNotFoundError:
        words = "begins when its job starts" if is_waiting else "is not there"
    except (OSError, ValueError) as error:
        words = "can't be read (%s)" % (getattr(error, "strerror", None) or error)
    return _refuse("the %s log %s; the logs of this run:" % (name, words), logs, MACHINE)


def open_stream(name: str, path: str, offset: int = 0) -> Stream:
    """A Stream of a log from this byte on; one that waits for it where it is not there or can't be opened."""
    try:
        fd = open_file(path)
    except (OSError, ValueError):
        return Stream(name, path, -1, (0, 0), 0)
    found = os.fstat(fd)
    return move_stream(Stream(name, path, fd, (found.st_dev, found.st_ino), 0), offset)


def move_stream(stream: Stream, offset: int) -> Stream:
    """A Stream as if it had been read up to this byte. One that lies within a line shows the rest of it."""
    return stream._replace(offset=offset, pending=b"", is_skipping=False, seen=_read_seen(stream.fd, offset))


def close_stream(stream: Stream) -> None:
    """Closes the log."""
    if stream.fd >= 0:
        os.close(stream.fd)


def measure(stream: Stream) -> int:
    """How many bytes the log has now; 0 where it is not there."""
    try:
        return os.fstat(stream.fd).st_size if stream.fd >= 0 else 0
    except OSError:
        return 0


def _read_seen(fd: int, offset: int) -> bytes:
    try:
        return os.pread(fd, min(_SEEN_BYTES, offset), max(0, offset - _SEEN_BYTES)) if fd >= 0 else b""
    except OSError:
        return b""


def find_tail(fd: int, count: int) -> Tuple[int, bool]:
    """(byte at which the last `count` lines begin, whether they are all there). Not all: the lines are too long to look for more
    of them, or what lies before is a hole that a truncation left."""
    size = os.fstat(fd).st_size
    if count <= 0 or not size:
        return size, True
    left = count + (1 if os.pread(fd, 1, size - 1) == b"\n" else 0)
    position, start, has_text = size, -1, False
    floor = max(0, size - max(_TAIL_BYTES, count * _LINE_GUESS_BYTES))
    while position > floor:
        begin = max(floor, position - _CHUNK_BYTES)
        data = os.pread(fd, position - begin, begin)
        if has_text and not data.strip(b"\0"):
            return position, True  # nothing of the log is left before a hole
        has_text = has_text or bool(data.strip(b"\0"))
        breaks = data.count(b"\n")
        if breaks >= left:
            place = len(data)
            for _ in range(left):
                place = data.rfind(b"\n", 0, place)
            return begin + place + 1, True
        if breaks:
            left, start = left - breaks, begin + data.find(b"\n") + 1
        position = begin
    if floor == 0:
        return 0, True
    return (start if 0 <= start < size else max(0, size - LINE_BYTES)), False


def find_step(path: str, health: Any, name: str, step: int) -> Tuple[Optional[int], str]:
    """(byte at which the last line of this step begins, words on the steps that are there instead); the line of a training step
    rather than one of a validation alone. OperatorError: exit 2 for a log that tells no steps."""
    sources = [name] if name in health.SOURCES else list(health.SOURCES) if name == "launch" else []
    if not sources:
        raise OperatorError("the %s log tells no steps" % name, "--since goes with --which %s" % ", ".join(health.SOURCES),
                            USAGE, "log")
    seen: List[List[int]] = []  # ranges of steps, from the end backwards
    for source in sources:
        for is_training in (True, False):
            seen = []
            parse = functools.partial(_parse_wanted, health, source, step, is_training, seen)
            track = lines.read_track(path, health.STEP_MARKS[source], parse, 1, search_bytes=SINCE_BYTES)
            if track.points:
                return track.points[-1].offset, ""
        if seen:
            break
    ranges = ["%d" % low if low == high else "%d to %d" % (low, high) for low, high in seen[:_SHOWN_RANGES][::-1]]
    log = lines.stat_log(path)
    is_part = log is not None and log.size > SINCE_BYTES
    return None, "%s%s%s" % ("no steps" if not ranges else "steps " + ", then ".join(ranges),
                             ", and more before" if len(seen) > _SHOWN_RANGES else "",
                             " (of its last %d MiB, which were read)" % (SINCE_BYTES >> 20) if is_part else "")


def _parse_wanted(health: Any, source: str, step: int, is_training: bool, seen: List[List[int]], text: str) -> Optional[Point]:
    """The Point of a line of the step that is looked for; each other step is only noted, in the range that it continues."""
    point: Optional[Point] = health.parse_step(source, text, ())
    if point is None:
        return None
    if seen and seen[-1][0] - 1 <= point.step <= seen[-1][0]:
        seen[-1][0] = point.step
    else:
        seen.append([point.step, point.step])
    return point if point.step == step and (point.is_training or not is_training) else None


def read_batch(stream: Stream, limit_bytes: int = _CHUNK_BYTES) -> Batch:
    """What came since the last look. A log that began anew is read from its beginning, one that was renamed to its end first;
    an empty file in its place is none yet: who still writes to the renamed one is listened to."""
    if stream.fd < 0:
        stream = open_stream(stream.name, stream.path)
        if stream.fd < 0:
            return Batch(stream, (), "", False)
    now = lines.stat_log(stream.path)
    is_replaced = now is not None and now.identity != stream.identity and now.size > 0
    try:
        if measure(stream) < stream.offset or _read_seen(stream.fd, stream.offset) != stream.seen:
            return Batch(move_stream(stream, 0), take_rest(stream), "truncated", True)
        size = measure(stream)
        data = os.pread(stream.fd, min(limit_bytes, _CHUNK_BYTES), stream.offset)
    except OSError:  # a network file system that lost it
        data, size, is_replaced = b"", 0, True
    if not data:
        fresh = open_stream(stream.name, stream.path) if is_replaced else stream
        if fresh.fd < 0 or fresh is stream:
            return Batch(stream, (), "", False)
        close_stream(stream)
        return Batch(fresh, take_rest(stream), "replaced", True)
    if not data.strip(b"\0"):
        offset = _find_data(stream.fd, stream.offset, stream.offset + len(data), size)
        return Batch(stream._replace(offset=offset, seen=_read_seen(stream.fd, offset)), (), "", True)
    offset = stream.offset + len(data)
    # What stands around a hole is no one line.
    data = re.sub(rb"(?<=[^\n\0])\0+(?=[^\n\0])", b"\n", data).replace(b"\0", b"")
    found, pending, is_skipping = _split(stream, data)
    return Batch(stream._replace(offset=offset, pending=pending, is_skipping=is_skipping, seen=_read_seen(stream.fd, offset)),
                 found, "", True)


def _find_data(fd: int, offset: int, read_to: int, size: int) -> int:
    """Where to read on behind NULs, which are a hole, or stand in the file. Source: lseek(2), SEEK_DATA."""
    try:
        place = os.lseek(fd, offset, os.SEEK_DATA)
    except OSError as error:
        place = size if error.errno == errno.ENXIO else read_to  # nothing but a hole; or a file system that knows none
    return place if place > offset else read_to


def _split(stream: Stream, data: bytes) -> Tuple[Tuple[bytes, ...], bytes, bool]:
    """(lines, what has no end yet, whether the rest of that is to be passed over)."""
    if stream.is_skipping:
        _, end, data = data.partition(b"\n")
        if not end:
            return (), b"", True
    *whole, pending = (stream.pending + data).split(b"\n")
    found = [_cut(growth.fold_returns(line)) for line in whole]
    pending = _fold_pending(pending)
    is_long = len(pending) > _MOST_BYTES
    return tuple(found + ([_cut(growth.fold_returns(pending))] if is_long else [])), b"" if is_long else pending, is_long


def _cut(line: bytes) -> bytes:
    return line[:_MOST_BYTES + 1]


def _fold_pending(pending: bytes) -> bytes:
    """A line that has no end yet without the states that a progress bar has left behind."""
    done, turn, rest = pending.rpartition(b"\r")
    return growth.fold_returns(done) + turn + rest if turn else pending


def take_rest(stream: Stream) -> Tuple[bytes, ...]:
    """The last line of a log that has no end, where there is one."""
    rest = growth.fold_returns(stream.pending)
    return (_cut(rest),) if rest.strip() else ()


def find_bar(stream: Stream) -> bytes:
    """The last whole state of a progress bar that is rewritten at the end of the log; b"" where there is none. A state that is
    being written is left out: a secret could be in it by half."""
    return _cut(growth.fold_returns(stream.pending.rpartition(b"\r")[0]))


def find_key(fd: int, offset: int) -> int:
    """How many lines from this byte on may belong to a private key that begins before it."""
    before = os.pread(fd, min(offset, _KEY_BYTES), max(0, offset - _KEY_BYTES)).decode("utf-8", "replace")
    return _KEY_LINES if re.search(_KEY_BEGINS.pattern + r"(?![\s\S]*-----END )", before) else 0


def clean_lines(found: Sequence[bytes], secrets: Sequence[str], has_colour: bool, key_lines: int = 0) -> Tuple[List[str], int]:
    """(lines as they may be shown, key_lines for those that follow): no secret, no control character, colour only where it is
    wanted. A line whose colour stands where a secret is loses it."""
    decoded = [line.decode("utf-8", "replace") for line in found]
    plain = [shell.strip_colour(text) for text in decoded]
    for place, text in enumerate(plain):
        is_inside, key_lines = key_lines > 0, max(0, key_lines - 1)
        if is_inside:
            key_lines = 0 if "-----END " in text else key_lines
            plain[place] = decoded[place] = redact.MARK
        elif _KEY_BEGINS.search(text):
            key_lines = _KEY_LINES
    hidden = redact.redact("\n".join(plain), secrets).split("\n")
    if len(hidden) != len(plain):
        hidden = [redact.redact(text, secrets).replace("\n", " ") for text in plain]
    shown = []
    for line, text, kept, safe in zip(found, decoded, plain, hidden):
        if len(line) > _MOST_BYTES:
            shown.append(shell.escape_controls(safe[:-_MARGIN_BYTES], "\t") + GOES_ON)
        elif has_colour and safe == kept and "\x1b[" in text:
            shown.append(_keep_colour(text))
        else:
            shown.append(shell.escape_controls(safe, "\t"))
    return shown, key_lines


def _keep_colour(text: str) -> str:
    parts = _COLOUR.split(text)
    kept = "".join(part if place % 2 else shell.escape_controls(shell.strip_colour(part), "\t")
                   for place, part in enumerate(parts))
    return kept if len(parts) == 1 or parts[-2] in ("\x1b[0m", "\x1b[m") else kept + "\x1b[0m"


def find_newest(target: Target, name: str) -> str:
    """The log of this name in the newest attempt that lies in the run's directory, whoever started it; "" for none."""
    if not target.run_dir or name == "launch":
        return ""
    told = {"run_dir": target.run_dir, "root": target.root, "host": target.host}
    path = str(load_health(target.stack).list_logs(target.kind, told).get(name) or "")
    return path if path and lines.stat_log(path) else ""
