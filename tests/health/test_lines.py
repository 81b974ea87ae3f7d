"""A log's lines, from its end backwards or as they come, against a plain reading of the whole file."""
import os
import re
import resource
import signal
import subprocess
import sys
import textwrap

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rlrun.health import growth, lines
from rlrun.vitals import Point, Track

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
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
    for piece in re.findall(rb"[^\n\r\0]*[\n\r\0]", data):
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


@given(data=logs, chunk_bytes=st.sampled_from([1, 2, 3, 5, 7, 16, 61, 256, 4096, 1 << 18]), is_sparse=st.booleans())
@example(data=b"bar\rstep:1 - a:1\r\nstep:2 - a:2", chunk_bytes=1, is_sparse=False)
@example(data=b"\0" * 9000 + b"step:1 - a:1\n", chunk_bytes=4096, is_sparse=True)
@example(data=b"step:1 - a:1" + b"\0" * 9000 + b"step:2 - a:1\n" + b"\0" * 9000, chunk_bytes=256, is_sparse=True)
@example(data=b"step:9 - a:1\nvstep:9 - a:1\nvstep:0 - a:1\nstep:1 - a:1\n", chunk_bytes=256, is_sparse=False)
@example(data=b"step:1 - a:0\nstep:0 - a:0\nvstep:1 - a:0\nstep:0 - a:0\n", chunk_bytes=256, is_sparse=False)
def test_backwards_is_as_a_plain_reading(tmp_path_factory, data, chunk_bytes, is_sparse):
    path = write(tmp_path_factory.getbasetemp() / "log", data, is_sparse)
    track = read(path, chunk_bytes=chunk_bytes)
    assert track == make_track(path, read_plainly(data))
    check_places(path, track)


@given(data=logs, cut=st.integers(0, 2000), limit=st.integers(1, 12))
def test_size_and_limit_are_heeded(tmp_path_factory, data, cut, limit):
    path = write(tmp_path_factory.getbasetemp() / "log", data)
    cut = min(cut, len(data))
    points = read_plainly(data[:cut])
    track = read(path, limit, size_bytes=cut, chunk_bytes=64)
    expected = make_track(path, points[-limit:])
    assert (track.points, track.earlier, track.missing) == (expected.points, expected.earlier, expected.missing)
    # It may be called cut where it is not known to be whole, never the reverse.
    assert track.is_whole or len(points) >= limit
    if len(points) < limit:
        assert track.is_whole


@pytest.mark.parametrize("shift", range(40))
def test_a_chunk_may_begin_at_every_byte_of_a_line(tmp_path, shift):
    data = b"noise\r\nstep:1 - a:1\r\nbar\rstep:2 - a:2\nstep:3 - a:3\n" + b"." * shift + b"\n"
    path = write(tmp_path / "log", data)
    for chunk_bytes in (11, 16, 40):
        assert read(path, chunk_bytes=chunk_bytes) == make_track(path, read_plainly(data))


def test_default_chunks_meet_within_a_step_line(tmp_path):
    for shift in range(-8, 30):
        after = b"step:2 - a:2\n" + b"z" * (lines.CHUNK_BYTES - 20 - shift) + b"\n"
        data = b"step:1 - a:1\n" + after
        path = write(tmp_path / "log", data)
        assert read(path) == make_track(path, read_plainly(data))


def test_a_line_may_be_as_long_as_it_may_and_no_longer(tmp_path):
    head = b"step:1 - a:1 "
    for longer, steps in ((0, [1, 2]), (1, [2])):
        line = head + b"x" * (lines.LINE_BYTES - len(head) + longer)
        for chunk_bytes in (1 << 12, 1 << 18, 1 << 22, (lines.LINE_BYTES + 14) // 2):  # the last one begins where the line does
            path = write(tmp_path / "log", b"first\n" + line + b"\nstep:2 - a:1\n")
            assert [point.step for point in read(path, chunk_bytes=chunk_bytes).points] == steps


def test_long_lines_are_passed_over(tmp_path):
    """A real one of 64 MB with marks in it, longer than what is read at once, and step lines on both sides."""
    path = str(tmp_path / "log")
    with open(path, "wb") as file:
        file.write(b"step:1 - a:1\n")
        for _ in range(64):
            file.write(b"step:7 - a:1 " * 80659)
        file.write(b"\nstep:2 - a:2\n")
    track = read(path, search_bytes=1 << 28, history_bytes=1 << 28)
    assert [point.step for point in track.points] == [1, 2] and track.is_whole
    check_places(path, track)
    assert [point.step for point in read(path).points] == [2] and not read(path).is_whole
    assert growth.find_last_end(path, os.path.getsize(path)) == os.path.getsize(path)


def test_budgets_are_bytes_from_the_end_and_beyond_the_last_step_line(tmp_path):
    noise_line = b"n" * 999 + b"\n"
    data = b"step:1 - a:1\n" + noise_line * 40 + b"step:2 - a:1\nstep:3 - a:1\n" + noise_line * 40
    path = write(tmp_path / "log", data)
    small = {"chunk_bytes": 1000}
    assert read(path, search_bytes=38000, **small) == Track(path, (), False)
    near = read(path, search_bytes=41000, history_bytes=2000, **small)
    assert [point.step for point in near.points] == [2, 3] and not near.is_whole
    assert [point.step for point in read(path, search_bytes=41000, history_bytes=42000, **small).points] == [1, 2, 3]


def test_restarts_duplicates_and_gaps(tmp_path):
    steps = [5, 6, 7, 3, 4, 4, 9, 1, 2, 2, 2, 6, 7]
    path = write(tmp_path / "log", b"".join(b"step:%d - a:%d\n" % (step, place) for place, step in enumerate(steps)))
    track = read(path)
    assert track.earlier == ((5, 7), (3, 9))
    assert [(point.step, point.values["a"]) for point in track.points] == [(1, 7), (2, 10), (6, 11), (7, 12)]
    assert track.missing == 3 and track.is_whole
    assert read(path, 4).points == track.points[-3:] and not read(path, 4).is_whole  # a line told twice counts twice
    assert read(path, 6) == track._replace(is_whole=False, earlier=())
    assert read(path, 8).earlier == ((4, 9),) and read(path, 8).is_whole


def test_a_validation_belongs_to_the_segment_of_its_steps(tmp_path):
    """L1: step 0 with a validation only; and the last validation of a run that was started anew is not the new one's."""
    path = write(tmp_path / "log", b"step:9 - a:1\nstep:10 - a:1\nvstep:10 - a:1\nvstep:0 - a:2\nstep:1 - a:3\n")
    assert [(point.step, point.is_training) for point in read(path).points] == [(0, False), (1, True)]
    only = write(tmp_path / "only", b"vstep:0 - a:2\n")
    assert [point.is_training for point in read(only).points] == [False] and read(only).missing == 0


@pytest.fixture
def sparse_log(tmp_path):
    """L7: 10 GB, all of it a hole but for two ends; removed at once, for backups and disks that fill holes."""
    path = str(tmp_path / "log")
    with open(path, "wb") as file:
        file.write(b"step:1 - a:1\nstep:2 - a:1\nhalf")
        file.seek(10 << 30)
        file.write(b"step:3 - a:1\n" + b"noise\n" * 9 + b"step:4 - a:1\nhalf of step:5 - a:1")
    yield path
    os.remove(path)


def test_L7_a_hole_is_passed_over(sparse_log):
    track = read(sparse_log)
    assert [point.step for point in track.points] == [1, 2, 3, 4] and track.is_whole
    assert [point.offset for point in track.points] == [0, 13, 10 << 30, (10 << 30) + 13 + 54]
    check_places(sparse_log, track)
    data, offset, number = lines.read_end(sparse_log, 1 << 18)
    assert (offset, number) == (10 << 30, None) and data.startswith(b"step:3 - a:1\nnoise")
    assert growth.find_last_end(sparse_log, os.path.getsize(sparse_log)) == (10 << 30) + 13 + 54 + 13


MEASURED = textwrap.dedent("""
    import os, re, resource, sys
    from rlrun.health import lines
    from rlrun.vitals import Point
    def parse(text):
        found = re.search(r"step:(\\d+) - a", text)
        return Point(int(found.group(1)), {}, (), None, 0) if found else None
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    path = sys.argv[1]
    track = lines.read_track(path, b"step:", parse, 64)
    lines.read_end(path, 1 << 18)
    follow = growth.start_follow(path, growth.find_last_end(path, os.path.getsize(path)))
    for start in (follow, growth.start_follow(path, 0)):
        for _ in range(40):
            start = growth.read_grown(start, 1 << 20).follow
    print([point.step for point in track.points], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
""")


def measure(path):
    """(steps, KiB that reading took beyond the start) of a log, in a process of its own that can't have more than 1 GB."""
    done = subprocess.run([sys.executable, "-c", MEASURED, path], env={"PYTHONPATH": ROOT}, stdout=subprocess.PIPE, check=True,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)), timeout=120)
    steps, _, grown = done.stdout.decode().rpartition(" ")
    return steps, int(grown)


def test_memory_is_bounded_whatever_the_size(tmp_path, sparse_log):
    assert measure(sparse_log)[0] == "[1, 2, 3, 4]"
    assert measure(sparse_log)[1] < 24 << 10
    one_line = str(tmp_path / "one")  # a line of 1 GB, mostly a hole, without an end; and 100 MB of bars without one
    with open(one_line, "wb") as file:
        file.write(b"step:1 - a:1\nstep:2")
        file.seek(1 << 30)
        for _ in range(100):
            file.write(b"\r 3%| | 3/100 [00" * 61681)
    steps, grown = measure(one_line)
    assert steps == "[]" and grown < 24 << 10  # they lie too far back to be looked for


def test_a_sparse_log_costs_what_its_data_costs(sparse_log):
    """By the bytes that were read, not by time."""
    read_bytes = []
    fd = lines.open_log(sparse_log)
    try:
        for count, _, _ in lines._find_backwards(fd, os.path.getsize(sparse_log), MARK, 1 << 18):
            read_bytes.append(count)
    finally:
        os.close(fd)
    assert max(read_bytes) < 1 << 17


def test_a_log_that_shrinks_while_it_is_read(tmp_path):
    path = write(tmp_path / "log", b"".join(b"step:%d - a:1\n" % step for step in range(1000)))

    def parse_and_cut(text):
        os.truncate(path, 100)
        return parse(text)
    track = lines.read_track(path, MARK, parse_and_cut, 10 ** 6, chunk_bytes=1000)
    steps = [point.step for point in track.points]
    assert steps == list(range(steps[0], 1000)) and not track.is_whole


def make_fifo(path):
    os.mkfifo(path)


@pytest.mark.parametrize("make", [make_fifo, os.mkdir, lambda path: os.symlink("nowhere", path),
                                  lambda path: os.symlink(path, path),
                                  lambda path: None, lambda path: os.symlink("/dev/zero", path),
                                  lambda path: os.symlink("/dev/tty", path)],
                         ids=["fifo", "directory", "dangling", "circle", "absent", "zero", "tty"])
def test_what_is_no_file_neither_hangs_nor_raises(tmp_path, make):
    path = str(tmp_path / "log")
    make(path)
    signal.alarm(60)  # ends the test where something waits
    try:
        assert_unreadable(path)
    finally:
        signal.alarm(0)


def assert_unreadable(path):
    assert lines.stat_log(path) is None
    assert read(path) == Track(path, (), True)
    assert lines.read_line_at(path, 0) == b""
    assert lines.count_line(path, 10) is None
    assert lines.read_end(path, 100) == (b"", 0, None)
    assert growth.find_last_end(path, 100) == 0
    follow = growth.start_follow(path, 50)
    assert follow == growth.Follow(path, (0, 0), 0, b"")
    assert growth.read_grown(follow) == growth.Grown(follow, (), "absent")
    with pytest.raises((OSError, ValueError)):
        lines.open_log(path)


def test_a_path_with_a_nul_and_one_too_long():
    assert_unreadable("/x\0y")
    assert_unreadable("/" + "x" * 5000)


def test_a_log_of_somebody_elses(tmp_path):
    if os.geteuid():
        pytest.skip("only root can become somebody else")
    path = write(tmp_path / "log", b"step:1 - a:1\n")
    os.chmod(path, 0o600)
    code = ("import os, sys; from rlrun.health import growth as l; p = sys.argv[1]; f = l.start_follow(p, 3)\n"
            "os.setgid(65534); os.setuid(65534)\n"
            "print(l.read_track(p, b's', None, 9).points, l.read_end(p, 9), l.count_line(p, 1), l.read_line_at(p, 0),"
            " l.find_last_end(p, 9), l.read_grown(f).event, l.read_grown(f).lines)")
    done = subprocess.run([sys.executable, "-c", code, path], env={"PYTHONPATH": ROOT}, stdout=subprocess.PIPE, check=True)
    assert done.stdout.decode() == "() (b'', 0, None) None b'' 0 absent ()\n"


def grow(path, data, cuts, limit_bytes=1 << 22, start=None):
    """What a follower makes of a log that is written in pieces: (points, text, Follow)."""
    follow = start or growth.start_follow(path, 0)
    points, text = [], []
    for begin, end in zip([0] + cuts, cuts + [len(data)]):
        with open(path, "ab") as file:
            file.write(data[begin:end])
        while True:
            grown = growth.read_grown(follow, limit_bytes)
            assert grown.event == ""
            points += growth.parse_grown(grown.lines, MARK, parse)
            text += grown.lines
            is_done = grown.follow.offset == follow.offset
            follow = grown.follow
            if is_done:
                break
    return points, text, follow


@given(data=logs, cuts=st.lists(st.integers(0, 1500), max_size=12), limit_bytes=st.sampled_from([1, 7, 64, 5000, 1 << 22]))
@example(data=b"step:9 - a:1\nvstep:9 - a:1\nvstep:0 - a:1\nstep:1 - a:1\n", cuts=[30], limit_bytes=64)
def test_growth_in_any_pieces_is_as_one_reading(tmp_path_factory, data, cuts, limit_bytes):
    path = write(tmp_path_factory.getbasetemp() / "log", b"")
    points, text, follow = grow(path, data, sorted(min(cut, len(data)) for cut in cuts), max(limit_bytes, len(data) // 400))
    whole = data[:data.rfind(b"\n") + 1]
    assert points == read_plainly(whole)
    assert b"".join(line + b"\n" for _, line in text).replace(b"\0", b"") == whole.replace(b"\0", b"")
    for offset, line in text:
        assert data[offset:offset + len(line)] == line
    expected = make_track(path, read_plainly(whole))
    assert lines.extend_track(Track(path, (), True), points, 10 ** 6) == expected._replace(earlier=expected.earlier[-16:])


@given(data=logs, at=st.integers(0, 1500), limit_bytes=st.sampled_from([64, 1 << 22]))
def test_from_the_end_on_nothing_is_lost_or_told_twice(tmp_path_factory, data, at, limit_bytes):
    """What `status` read of a log, and what was appended since, is what it would read now."""
    data += b"\n"
    at = min(at, len(data))
    path = write(tmp_path_factory.getbasetemp() / "log", data)
    track = read(path, size_bytes=at)
    follow = growth.start_follow(path, growth.find_last_end(path, at))
    assert data[:follow.offset] == data[:data.rfind(b"\n", 0, at) + 1]
    points, text, _ = grow(path, b"", [], max(limit_bytes, len(data) // 400), start=follow)
    expected = read(path)
    assert lines.extend_track(track, points, 10 ** 6)._replace(earlier=()) == expected._replace(earlier=())
    assert lines.extend_track(track, points, 10 ** 6).earlier[-16:] == expected.earlier[-16:]
    assert len(text) == data.count(b"\n", follow.offset)


def test_what_was_read_already_is_not_told_twice(tmp_path):
    """A line end that is a carriage return is one to the reading of the end, but none to go on from."""
    data = b"step:1 - a:1\nvstep:1 - a:1\rstep:2 - a:1\rvstep:2 - a:1\rstep:3 - a:1\r"
    path = write(tmp_path / "log", data)
    track = read(path)
    follow = growth.start_follow(path, growth.find_last_end(path, len(data)))
    points, _, _ = grow(path, b"\nstep:4 - a:1\n", [], start=follow)
    assert [point.step for point in points] == [1, 2, 2, 3, 4]
    assert lines.extend_track(track, points, 99) == read(path)
    assert [point.step for point in read(path).points] == [1, 1, 2, 2, 3, 4] and read(path).earlier == ()


def test_the_newer_of_two_equal_steps_counts_both_ways(tmp_path):
    """A run that went back to its last checkpoint does a step again."""
    path = write(tmp_path / "log", b"step:1 - a:1\nstep:2 - a:2\n")
    track = read(path)
    points, _, _ = grow(path, b"step:2 - a:3\nstep:3 - a:4\n", [], start=growth.start_follow(path, os.path.getsize(path)))
    assert lines.extend_track(track, points, 99) == read(path)
    assert [point.values["a"] for point in read(path).points] == [1, 3, 4]


def test_extend_keeps_to_the_limit_and_tells_segments():
    points = [Point(step, {}, (), None, place) for place, step in enumerate([1, 2, 3, 4, 5, 2, 3, 1, 7])]
    track = lines.extend_track(Track("/x", (), True), points[:5], 3)
    assert [point.step for point in track.points] == [3, 4, 5] and not track.is_whole and track.missing == 0
    track = lines.extend_track(track, points[5:], 3)
    assert track.earlier == ((3, 5), (2, 3))
    assert [point.step for point in track.points] == [1, 7] and track.is_whole and track.missing == 5
    many = [Point(-step, {}, (), None, 100 + step) for step in range(40)]
    assert len(lines.extend_track(track, many, 3).earlier) <= 16


def test_count_missing_heeds_training_steps_alone():
    made = [Point(step, {}, (), None, 0, is_training=step != 9) for step in (1, 9, 2, 6)]
    assert lines.count_missing(made) == 3
    assert lines.count_missing([]) == lines.count_missing(made[1:2]) == 0


@pytest.mark.parametrize("size", [1 << 19, lines.LINE_BYTES - 13, lines.LINE_BYTES, lines.LINE_BYTES * 3])
@pytest.mark.parametrize("filler", [b"x", b"\r 3%| | 3/100", b"\0"], ids=["text", "bars", "NULs"])
@pytest.mark.parametrize("limit_bytes", [1 << 17, 1 << 20, 1 << 22])
def test_L5_long_lines_that_grow(tmp_path, size, filler, limit_bytes):
    """Bars without a line end, a line that is none, written NULs: what comes after them is found at its place."""
    long = filler * (size // len(filler))
    data = b"step:1 - a:1\n" + long + b"\rstep:2 - a:1\nstep:3 - a:1\n" + long + b"\nstep:4 - a:1\n"
    path = write(tmp_path / "log", b"")
    points, text, follow = grow(path, data, [20, size // 2, size + 13], limit_bytes)
    assert [(point.step, point.offset) for point in points] == [(one.step, one.offset) for one in read_plainly(data)]
    assert len(points) == 4
    assert len(text) == data.count(b"\n"), "who counts lines must not miss one"
    assert follow.offset == len(data) and len(follow.pending) <= lines.LINE_BYTES
    for offset, line in text:
        assert data[offset:offset + len(line)] == line
    assert read(path).points == tuple(points)


def test_what_waits_for_its_end_is_bounded(tmp_path):
    path = write(tmp_path / "log", b"x" * (lines.LINE_BYTES * 9))
    _, text, follow = grow(path, b"", [], 1 << 18)
    assert text == [] and len(follow.pending) <= lines.LINE_BYTES and follow.is_skipping


def test_truncation(tmp_path):
    path = write(tmp_path / "log", b"step:1 - a:1\nstep:2 - a:1\nhalf")
    _, _, follow = grow(path, b"", [])
    write(path, b"step:1 - a:5\n")
    grown = growth.read_grown(follow)
    assert grown.event == "truncated" and grown.lines == ((0, b"step:1 - a:5"),)
    assert growth.read_grown(grown.follow).event == ""


def test_replacement_and_absence(tmp_path):
    path = write(tmp_path / "log", b"step:1 - a:1\nha")
    _, _, follow = grow(path, b"", [])
    os.rename(path, path + ".1")
    gone = growth.read_grown(follow)
    assert gone == growth.Grown(follow, (), "absent")
    write(path, b"step:1 - a:1\nstep:9 - a:1\nand more than before\n")
    grown = growth.read_grown(gone.follow)
    assert grown.event == "replaced" and [line for _, line in grown.lines][1] == b"step:9 - a:1" and grown.follow.pending == b""
    late = str(tmp_path / "late")
    follow = growth.start_follow(late, 700)
    write(late, b"step:1 - a:1\n")
    assert growth.read_grown(follow).lines == ((0, b"step:1 - a:1"),) and growth.read_grown(follow).event == ""


@pytest.mark.parametrize("old_place", [5000, 9 << 20])
@pytest.mark.parametrize("is_seen", [True, False], ids=["seen", "between looks"])
def test_L7_a_writer_that_goes_on_at_its_old_place(tmp_path, old_place, is_seen):
    """copytruncate under a writer without O_APPEND, noticed while the log was empty or not."""
    path = write(tmp_path / "log", b"step:1 - a:1\n" + b"x" * (old_place - 14) + b"\n")
    _, _, follow = grow(path, b"", [])
    os.truncate(path, 0)
    if is_seen:
        grown = growth.read_grown(follow)
        assert grown.event == "truncated"
        follow = grown.follow
    with open(path, "r+b") as file:
        file.seek(old_place)
        file.write(b"bar\rstep:2 - a:1\nstep:3 - a:1\n")
    points, text, _ = grow(path, b"", [], start=follow)
    assert [(point.step, point.offset) for point in points] == [(2, old_place + 4), (3, old_place + 17)]
    assert tuple(points) == read(path).points
    assert text[0] == (old_place, b"bar\rstep:2 - a:1")
    data, offset, _ = lines.read_end(path, 1 << 18)
    assert (offset, data) == (old_place, b"bar\rstep:2 - a:1\nstep:3 - a:1\n")


@pytest.mark.parametrize("is_seen", [True, False], ids=["seen", "between looks"])
def test_a_hole_up_to_the_end_is_waited_out(tmp_path, is_seen):
    path = write(tmp_path / "log", b"")
    points, _, follow = grow(path, b"step:1 - a:1\n" + b"x" * (lines.LINE_BYTES * 2 - 13), [])
    assert [point.step for point in points] == [1] and follow.is_skipping
    os.truncate(path, 20 << 20)
    if is_seen:
        _, _, follow = grow(path, b"", [], start=follow)
        assert follow.offset == 20 << 20
    points, _, _ = grow(path, b"step:2 - a:1\n", [], start=follow)
    assert [(point.step, point.offset) for point in points] == [(2, 20 << 20)]
    assert [point.step for point in read(path).points] == [1, 2]


@given(data=logs)
def test_lines_are_counted_as_grep_counts_them(tmp_path_factory, data):
    path = write(tmp_path_factory.getbasetemp() / "log", data)
    env = {"LC_ALL": "C", "PATH": "/usr/bin:/bin"}
    found = subprocess.run(["grep", "-anb", "", path], stdout=subprocess.PIPE, env=env).stdout
    places = [line.split(b":", 2)[:2] for line in found.split(b"\n") if re.match(rb"\d+:\d+:", line)]
    for number, offset in places[::5]:
        assert lines.count_line(path, int(offset)) == int(number)


def test_lines_are_not_counted_far_in(tmp_path):
    path = write(tmp_path / "log", b"x\n" * (lines.COUNT_BYTES // 2 + 2))
    assert lines.count_line(path, lines.COUNT_BYTES) == lines.COUNT_BYTES // 2 + 1
    assert lines.count_line(path, lines.COUNT_BYTES + 2) is None


@given(data=logs, limit_bytes=st.integers(1, 3000), cut=st.integers(0, 3000))
def test_the_end_is_told_with_its_place_and_number(tmp_path_factory, data, limit_bytes, cut):
    path = write(tmp_path_factory.getbasetemp() / "log", data)
    size = min(cut, len(data))
    end, offset, number = lines.read_end(path, limit_bytes, size)
    assert data[offset:size] == end and len(end) <= limit_bytes
    assert number == data.count(b"\n", 0, offset) + 1
    if b"\n" in data[max(0, size - limit_bytes):size] and b"\0" not in data:
        assert offset == 0 or data[offset - 1:offset] == b"\n"
    if size <= limit_bytes:
        assert end == data[:size].lstrip(b"\0")


def test_the_end_before_a_hole_and_after_it(tmp_path):
    """Sizes that fall before, into and behind a hole in the middle."""
    data = b"one\ntwo\n" + b"\0" * (1 << 20) + b"three\nfour\n"
    path = write(tmp_path / "log", data, is_sparse=True)
    assert lines.read_end(path, 100, 8) == (b"one\ntwo\n", 0, 1)
    assert lines.read_end(path, 1 << 21)[0].replace(b"\0", b"") == b"one\ntwo\nthree\nfour\n"
    assert lines.read_end(path, 1 << 18)[0] == b"three\nfour\n" and lines.read_end(path, 1 << 18)[2] == 3
    inside = lines.read_end(path, 100, 1 << 19)
    assert inside == (b"", 1 << 19, 3)
    assert lines.read_end(path, 6)[0] == b"four\n"


def test_find_last_end(tmp_path):
    path = write(tmp_path / "log", b"one\ntwo\nhalf")
    assert [growth.find_last_end(path, size) for size in (0, 3, 4, 7, 8, 12)] == [0, 0, 4, 4, 8, 8]


def test_stat_log(tmp_path):
    path = write(tmp_path / "log", b"12345")
    os.utime(path, (2e9, 2e9))  # a clock that is ahead
    log = lines.stat_log(path)
    assert (log.path, log.size, log.modified_seconds, log.identity[1]) == (path, 5, 2e9, os.stat(path).st_ino)


@pytest.mark.parametrize("line,shown", [(b"", b""), (b"a", b"a"), (b"a\rb", b"b"), (b"a\rb\r", b"b"), (b"a\r  \r", b"a"),
                                        (b"\r\r", b""), (b" 3%\r 4%\r\r", b" 4%")])
def test_fold_returns(line, shown):
    assert growth.fold_returns(line) == shown
