"""Logs made for tests, and a plain reading of the whole file to hold the quick ones against."""
import re

from hypothesis import strategies as st

from rlrun.health import lines
from rlrun.vitals import Point, Track

MARK = b"step:"
# step:12 - a:1      v for a validation alone
STEP = re.compile(r"(v?)step:(\d{1,9}) - a:(-?\d{1,6})(?:\Z| )")


def parse(text):
    found = STEP.search(text)
    if not found:
        return None
    return Point(int(found.group(2)), {"a": float(found.group(3))}, (), None, 0, is_training=not found.group(1))


def read_plainly(data):
    """[Point] of a whole log, oldest first: what ends with a line end and is no longer than a line may be. What a NUL ends
    was cut off by a hole."""
    points = []
    place = 0
    for piece in re.findall(rb"\0+|[^\n\r\0]*[\n\r\0]", data):
        body = piece[:-1]
        if piece[-1:] != b"\0" and MARK in body and len(body) <= lines.LINE_BYTES:
            point = parse(body.decode("utf-8", "replace"))
            if point:
                points.append(point._replace(offset=place))
        place += len(piece)
    return points


def make_track(path, points):
    """The Track of such points, by going forward: where training steps fall back, a segment begins."""
    segments = [[]]
    for point in points:
        training = [one for one in segments[-1] if one.is_training]
        if point.is_training and training and point.step < training[-1].step:
            at = segments[-1].index(training[-1]) + 1
            ahead = segments[-1][at:]
            del segments[-1][at:]
            while ahead and ahead[0].step > point.step:
                ahead.pop(0)
            segments.append(ahead)
        elif point.is_training and training and point.step == training[-1].step:
            segments[-1].remove(training[-1])
        segments[-1].append(point)
    steps = [[one.step for one in segment if one.is_training] for segment in segments]
    missing = max(steps[-1]) - min(steps[-1]) + 1 - len(set(steps[-1])) if steps[-1] else 0
    return Track(path, tuple(segments[-1]), True, tuple((one[0], one[-1]) for one in steps[:-1]), missing)


def write(path, data, is_sparse=False):
    """Writes a log; `is_sparse`: long runs of NULs become holes."""
    with open(str(path), "wb") as file:
        for piece in re.split(rb"(\0{4096,})", data) if is_sparse else [data]:
            if is_sparse and len(piece) >= 4096 and not piece.strip(b"\0"):
                file.seek(len(piece), 1)
            else:
                file.write(piece)
        file.truncate()
    return str(path)


def read(path, limit_points=10 ** 6, **options):
    return lines.read_track(path, MARK, parse, limit_points, **options)


def check_places(path, track):
    """Each point's line is found again by its offset."""
    for point in track.points:
        again = parse(lines.read_line_at(path, point.offset).decode("utf-8", "replace"))
        assert again._replace(offset=point.offset) == point


# A step line, noise of all kinds, and what may lie between and around them.
step_lines = st.builds(
    lambda v, step, a, more: b"%sstep:%d - a:%d%s" % (v, step, a, more), st.sampled_from([b"", b"", b"", b"v"]),
    st.integers(0, 12), st.integers(-9, 9), st.sampled_from([b"", b" - b:0.5", b" - \xff\xfe:\xe2\x96"]))
noise = st.sampled_from([
    b"", b"x", b"step", b"step:", b"step:step:", b"global_step:7", b"  3%|\xe2\x96\x8e | 3/100 [00:10", b"\xff\xfe\xe2\x96",
    b"\x1b[32mok\x1b[0m", b"step:9 - ", b"st\0ep:3 - a:1", b"step:8 - a:1\0", b"\0\0\0", b"\0" * 9000, b"y" * 300,
    b"(p pid=1, ip=1.2.3.4) "])
ends = st.sampled_from([b"\n", b"\n", b"\n", b"\r\n", b"\r", b"", b"\n\n", b"\0"])
logs = st.lists(st.tuples(st.one_of(step_lines, noise), ends), max_size=40).map(lambda pairs: b"".join(map(b"".join, pairs)))
