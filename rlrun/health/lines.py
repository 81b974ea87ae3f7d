"""A log's lines, from its end backwards or as they come: in bounded memory, whatever its size. Judges none.

A log may have 10 GB, lines of 1 GB, holes of NULs, carriage returns without newlines, half a last line. Nothing here reads it
whole to answer what its end answers.
"""
import errno
import os
from typing import Callable, Iterator, List, NamedTuple, Optional, Tuple

from ..host.files import open_file
from ..vitals import Point, Track

CHUNK_BYTES = 1 << 18
# What lies before a line end further away than this is no step line, and is passed over.
LINE_BYTES = 1 << 20
# So far back steps are looked for once one was found, and where none was.
HISTORY_BYTES = 1 << 24
SEARCH_BYTES = 1 << 26
# Up to here lines are counted, for "line 12" of a place; beyond it, the byte is told.
COUNT_BYTES = 1 << 22
_SEGMENTS = 256

Parse = Callable[[str], Optional[Point]]


class LogFile(NamedTuple):
    """A log as it is now. `modified_seconds`: since the epoch, by the file's own clock."""

    path: str
    size: int
    modified_seconds: float
    identity: Tuple[int, int]  # device and inode


def stat_log(path: str) -> Optional[LogFile]:
    """None where it is not there, can't be read, or is no file."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    if not os.path.isfile(path):
        return None
    return LogFile(path, found.st_size, found.st_mtime, (found.st_dev, found.st_ino))


def read_track(path: str, mark: bytes, parse: Parse, limit_points: int, size_bytes: Optional[int] = None,
               history_bytes: int = HISTORY_BYTES, search_bytes: int = SEARCH_BYTES, chunk_bytes: int = CHUNK_BYTES) -> Track:
    """The last `limit_points` step lines of a log, of its last segment: where the steps fell back, a restart lies between.

    `mark`: bytes that a step line holds; `parse` gives its Point. Read backwards, so many `chunk_bytes` at once, until there are
    enough, or `search_bytes` were read without one, or `history_bytes` beyond the last one. An unreadable log has no points.
    `size_bytes`: what comes after is left alone.
    """
    points: List[Point] = []
    earlier: List[Tuple[int, int]] = []
    is_whole = True
    try:
        fd = open_file(path)
    except (OSError, ValueError):
        return Track(path, (), True)
    try:
        size = _find_size(fd, size_bytes)
        last_step: Optional[int] = None
        current: Optional[List[int]] = None  # [first, last] of an earlier segment
        count, allowed_bytes = 0, search_bytes
        settled = 0  # points that a training step's line was found before: they are this segment's
        for read_bytes, offset, line in _find_backwards(fd, size, mark, chunk_bytes):
            if count >= limit_points or read_bytes > allowed_bytes:
                is_whole = current is not None
                break
            point = parse(line.decode("utf-8", "replace")) if line else None
            if point is None:
                continue
            if not count:
                allowed_bytes = read_bytes + history_bytes
            count += 1
            point = point._replace(offset=offset)
            if not point.is_training:
                if current is None:
                    points.append(point)
                continue
            if last_step is not None and point.step == last_step:
                settled = len(points)
                continue  # the same line once more, as where two streams were written into one file
            if last_step is not None and point.step > last_step:
                if current is not None:
                    earlier.append((current[0], current[1]))
                while current is None and len(points) > settled and points[-1].step > last_step:
                    points.pop()  # the last validation of the segment before
                current = [point.step, point.step]
            elif current is not None:
                current[0] = point.step
            if current is None:
                points.append(point)
                settled = len(points)
            last_step = point.step
        if current is not None:
            earlier.append((current[0], current[1]))
    except OSError:
        is_whole = False
    finally:
        os.close(fd)
    points.reverse()
    return Track(path, tuple(points), is_whole, tuple(reversed(earlier)), count_missing(points))


def count_missing(points: List[Point]) -> int:
    """How many training steps are not there between the first and the last that are."""
    steps = [point.step for point in points if point.is_training]
    return max(0, steps[-1] - steps[0] + 1 - len(steps)) if steps else 0


def extend_track(track: Track, points: List[Point], limit_points: int) -> Track:
    """A track with what was appended to its log since: as `read_track` would read it. What it holds already is passed over."""
    merged = list(track.points)
    earlier = list(track.earlier)
    is_whole = track.is_whole
    known = merged[-1].offset if merged else -1
    last = next((place for place in reversed(range(len(merged))) if merged[place].is_training), None)
    for point in points:
        if point.offset <= known:
            continue
        if point.is_training and last is not None:
            before = merged[last].step
            if point.step == before:
                del merged[last]  # the newer one counts
            elif point.step < before:
                earlier.append((next(one.step for one in merged if one.is_training), before))
                merged, is_whole = merged[last + 1:], True
                while merged and merged[0].step > point.step:
                    del merged[0]  # the last validation of the segment before
        merged.append(point)
        last = len(merged) - 1 if point.is_training else last
    if len(merged) > limit_points:
        merged, is_whole = merged[-limit_points:], False
    return Track(track.path, tuple(merged), is_whole, tuple(earlier[-16:]), count_missing(merged))


def _find_backwards(fd: int, size: int, mark: bytes, chunk_bytes: int) -> Iterator[Tuple[int, int, bytes]]:
    """(bytes read so far, offset, line) of the whole lines that hold the mark, the last one first; an empty line now and then,
    so that the caller can end it. A last line without its end is left out: it is still being written, or was cut. So was what
    stands before a NUL, for a hole begins there."""
    read_bytes = 0
    carry = b""  # of the line that goes on behind what is read next
    is_cut, is_skipping = True, False
    for position, chunk in _read_backwards(fd, size, chunk_bytes):
        read_bytes += len(chunk)
        data = chunk + carry
        begin = find_line_end(chunk) + 1
        if begin == 0 and position > 0:
            # No line end: all of it belongs to a line that begins further up.
            is_skipping = is_skipping or len(data) > LINE_BYTES + 1
            carry = b"" if is_skipping else data
            yield read_bytes, position, b""
            continue
        begin = begin if position > 0 else 0
        whole = data[begin:]
        if is_skipping or is_cut:  # its last line goes on in what was thrown away, or has no end yet
            whole = whole[:find_line_begin(whole, len(whole))]
            is_cut, is_skipping = False, False
        place = len(whole)
        while True:
            place = whole.rfind(mark, 0, place)
            if place < 0:
                break
            start, end = find_line_begin(whole, place), find_line_end(whole, place)
            if end - start <= LINE_BYTES and whole[end:end + 1] != b"\0":
                yield read_bytes, position + begin + start, whole[start:end]
            place = start
        carry = data[:begin]
        yield read_bytes, position, b""


def find_line_end(data: bytes, begin: int = 0) -> int:
    """Where the first line end or NUL from there on is, -1 where there is none."""
    found = data.find(b"\n", begin)
    for end in (b"\r", b"\0"):
        nearer = data.find(end, begin, found if found >= 0 else len(data))
        found = nearer if nearer >= 0 else found
    return found


def find_line_begin(data: bytes, end: int) -> int:
    """After the last line end or NUL before `end`."""
    begin = data.rfind(b"\n", 0, end) + 1
    for one in (b"\r", b"\0"):
        begin = max(begin, data.rfind(one, begin, end) + 1)
    return begin


def _read_backwards(fd: int, size: int, chunk_bytes: int) -> Iterator[Tuple[int, bytes]]:
    """(position, bytes) from the end to the beginning; of the holes that a truncation leaves (they are NULs) the last byte.
    OSError where the log becomes shorter meanwhile."""
    for begin, end in reversed(_list_segments(fd, size)):
        while end > begin:
            start = max(begin, end - chunk_bytes)
            chunk = os.pread(fd, end - start, start)
            if len(chunk) < end - start:
                raise OSError(errno.EIO, "became shorter while it was read")
            yield start, chunk
            end = start
        if begin:
            yield begin - 1, b"\0"


def _list_segments(fd: int, size: int) -> List[Tuple[int, int]]:
    """Where a file holds data, in order. Source: lseek(2), SEEK_DATA and SEEK_HOLE; a file system without them says that
    all of it is data."""
    segments: List[Tuple[int, int]] = []
    place = 0
    try:
        while place < size and len(segments) < _SEGMENTS:
            begin = os.lseek(fd, place, os.SEEK_DATA)
            if begin >= size:
                return segments
            place = os.lseek(fd, begin, os.SEEK_HOLE)
            segments.append((begin, min(place, size)))
        if place < size:
            segments.append((place, size))
    except OSError as error:
        if error.errno != errno.ENXIO:  # ENXIO: a hole up to the end
            return [(0, size)]
    return segments


def measure_holes(path: str) -> int:
    """How many bytes of a log are a hole in the file, which no writer has written."""
    try:
        fd = open_file(path)
    except (OSError, ValueError):
        return 0
    try:
        size = os.lseek(fd, 0, os.SEEK_END)
        return size - sum(end - begin for begin, end in _list_segments(fd, size))
    finally:
        os.close(fd)


def read_line_at(path: str, offset: int) -> bytes:
    """The line that begins at this byte, as far as LINE_BYTES, without its end; b"" where it can't be read."""
    data = (read_at(path, offset, LINE_BYTES) or b"").lstrip(b"\0")
    end = find_line_end(data)
    return data[:end if end >= 0 else len(data)]


def count_line(path: str, offset: int) -> Optional[int]:
    """The number, from 1, of the line in which this byte lies; None beyond COUNT_BYTES."""
    data = read_at(path, 0, offset) if offset <= COUNT_BYTES else None
    return None if data is None else data.count(b"\n") + 1


def read_at(path: str, offset: int, limit_bytes: int) -> Optional[bytes]:
    """None where it can't be read."""
    try:
        fd = open_file(path)
    except (OSError, ValueError):
        return None
    try:
        return os.pread(fd, limit_bytes, offset)
    except OSError:
        return None
    finally:
        os.close(fd)


def _find_size(fd: int, size_bytes: Optional[int]) -> int:
    size = os.lseek(fd, 0, os.SEEK_END)
    return size if size_bytes is None else min(size, size_bytes)


def read_end(path: str, limit_bytes: int, size_bytes: Optional[int] = None) -> Tuple[bytes, int, Optional[int]]:
    """(bytes, offset, number of the first line) of the end of a log, from a line's beginning on where one begins there. The hole
    of a truncation is left out where it lies in front; the number is None beyond COUNT_BYTES."""
    try:
        fd = open_file(path)
    except (OSError, ValueError):
        return b"", 0, None
    try:
        size = _find_size(fd, size_bytes)
        begin = max(0, size - limit_bytes)
        begin = next((max(begin, data_at) for data_at, end in _list_segments(fd, size) if end > begin), size)
        data = os.pread(fd, size - begin, begin)
        cut = len(data) - len(data.lstrip(b"\0"))
        if begin and not cut and os.pread(fd, 1, begin - 1) not in (b"\n", b"\0"):
            cut = data.find(b"\n") + 1
        data, begin = data[cut:], begin + cut
    except OSError:
        return b"", 0, None
    finally:
        os.close(fd)
    return data, begin, count_line(path, begin) if begin else 1
