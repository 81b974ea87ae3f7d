"""A log as it grows: the lines that came since the last look, whatever cuts, truncates or replaces it. Judges none."""
import os
from typing import List, NamedTuple, Tuple

from ..vitals import Point
from ..host.files import open_file
from .lines import CHUNK_BYTES, LINE_BYTES, Parse, find_line_begin, find_line_end, read_at, stat_log


class Follow(NamedTuple):
    """How far a growing log was read. `pending`: what came after the last line end."""

    path: str
    identity: Tuple[int, int]
    offset: int
    pending: bytes
    is_skipping: bool = False  # within a line that is too long


class Grown(NamedTuple):
    """What came since the last look: [(byte at which it begins, line)], without the NULs of a hole before it. `event`:
    "truncated" or "replaced" where the log began anew, "absent" where it is not there (any more), else ""."""

    follow: Follow
    lines: Tuple[Tuple[int, bytes], ...]
    event: str


def start_follow(path: str, offset: int) -> Follow:
    """A Follow of a log from this byte on."""
    log = stat_log(path)
    return Follow(path, log.identity if log else (0, 0), offset if log else 0, b"")


def find_last_end(path: str, size_bytes: int) -> int:
    """The byte after the last line end before `size_bytes`: where to go on reading whole lines. Not further back than
    LINE_BYTES: of a longer line the rest is left out."""
    begin = max(0, size_bytes - LINE_BYTES)
    data = read_at(path, begin, size_bytes - begin)
    if data is None:
        return 0
    end = data.rfind(b"\n")
    return begin + end + 1 if end >= 0 or not begin else size_bytes


def read_grown(follow: Follow, limit_bytes: int = 1 << 22) -> Grown:
    """The lines that came since. A log that got shorter, or is another file now, is read from its beginning."""
    log = stat_log(follow.path)
    if log is None:
        return Grown(follow, (), "absent")
    event = ""
    if follow.identity != (0, 0) and log.identity != follow.identity:
        event = "replaced"
    elif log.size < follow.offset:
        event = "truncated"
    if event:
        follow = Follow(follow.path, log.identity, 0, b"")
    follow = follow._replace(identity=log.identity)
    try:
        fd = open_file(follow.path)
    except OSError:
        return Grown(follow, (), "absent")
    try:
        data = os.pread(fd, limit_bytes, follow.offset)
        if len(data) >= CHUNK_BYTES and not data.strip(b"\0"):  # a writer goes on at its old place after a truncation
            try:
                place = os.lseek(fd, follow.offset, os.SEEK_DATA)
            except OSError:
                place = follow.offset + len(data)
            follow, data = follow._replace(offset=place, pending=b"", is_skipping=False), os.pread(fd, limit_bytes, place)
    except OSError:
        return Grown(follow, (), event)
    finally:
        os.close(fd)
    end = follow.offset - len(follow.pending) - 1
    *lines, pending = (follow.pending + data).split(b"\n")
    found: List[Tuple[int, bytes]] = []
    is_skipping = follow.is_skipping
    for line in lines:
        end += 1 + len(line)
        if is_skipping:  # the rest of a line that was too long: it is told as an empty one, for who counts lines
            rest = find_line_end(line) + 1
            line, is_skipping = line[rest:] if rest else b"", False
        line = line.lstrip(b"\0")
        found.append((end - len(line), line))
    if is_skipping and find_line_end(pending) >= 0:
        pending, is_skipping = pending[find_line_end(pending) + 1:], False
    if len(pending) > LINE_BYTES:
        # A bar that rewrites its line without end, or a line that is none: only its last state is kept.
        pending = pending[find_line_begin(pending, len(pending)):]
    if len(pending) > LINE_BYTES:
        pending, is_skipping = b"", True
    return Grown(Follow(follow.path, follow.identity, follow.offset + len(data), pending, is_skipping), tuple(found), event)


def fold_returns(line: bytes) -> bytes:
    """What is left to see of a line that a progress bar has rewritten: its last state that is not blank."""
    states = [state for state in line.split(b"\r") if state.strip()]
    return states[-1] if states else b""


def parse_grown(lines: Tuple[Tuple[int, bytes], ...], mark: bytes, parse: Parse) -> List[Point]:
    """The points of lines that came; a step line may stand behind a progress bar's carriage return, or behind a hole."""
    points = []
    for offset, line in lines:
        place = offset
        for part in line.split(b"\r") if mark in line else ():
            begin = part.rfind(b"\0") + 1
            is_one = part.find(mark, begin) >= 0 and len(part) - begin <= LINE_BYTES
            point = parse(part[begin:].decode("utf-8", "replace")) if is_one else None
            if point is not None:
                points.append(point._replace(offset=place + begin))
            place += len(part) + 1
    return points
