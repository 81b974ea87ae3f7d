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
from rlrun.host.files import open_file
from rlrun.vitals import Point, Track

from health.made_logs import MARK, check_places, logs, make_track, parse, read, read_plainly, write

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


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
    from rlrun.health import growth, lines
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
    fd = open_file(sparse_log)
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
    assert lines.measure_holes(path) == 0
    assert growth.find_last_end(path, 100) == 0
    follow = growth.start_follow(path, 50)
    assert follow == growth.Follow(path, (0, 0), 0, b"")
    assert growth.read_grown(follow) == growth.Grown(follow, (), "absent")
    with pytest.raises((OSError, ValueError)):
        open_file(path)


def test_a_path_with_a_nul_and_one_too_long():
    assert_unreadable("/x\0y")
    assert_unreadable("/" + "x" * 5000)


def test_a_log_of_somebody_elses(tmp_path):
    if os.geteuid():
        pytest.skip("only root can become somebody else")
    path = write(tmp_path / "log", b"step:1 - a:1\n")
    os.chmod(path, 0o600)
    code = ("import os, sys; from rlrun.health import growth as g, lines as l; p = sys.argv[1]; f = g.start_follow(p, 3)\n"
            "os.setgid(65534); os.setuid(65534)\n"
            "print(l.read_track(p, b's', None, 9).points, l.read_end(p, 9), l.count_line(p, 1), l.read_line_at(p, 0),"
            " g.find_last_end(p, 9), g.read_grown(f).event, g.read_grown(f).lines, l.measure_holes(p))")
    done = subprocess.run([sys.executable, "-c", code, path], env={"PYTHONPATH": ROOT}, stdout=subprocess.PIPE, check=True)
    assert done.stdout.decode() == "() (b'', 0, None) None b'' 0 absent () 0\n"


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


def test_stat_log(tmp_path):
    path = write(tmp_path / "log", b"12345")
    os.utime(path, (2e9, 2e9))  # a clock that is ahead
    log = lines.stat_log(path)
    assert (log.path, log.size, log.modified_seconds, log.identity[1]) == (path, 5, 2e9, os.stat(path).st_ino)


def test_holes_are_measured(tmp_path, sparse_log):
    """Only what no writer wrote: NULs that somebody wrote are data."""
    assert lines.measure_holes(sparse_log) > (10 << 30) - (1 << 17)
    for data, is_sparse, least in ((b"a\n" * 9, False, 0), (b"", False, 0), (b"a\n" + b"\0" * (1 << 20) + b"b\n", True, 1 << 19),
                                   (b"a\n" + b"\0" * (1 << 20) + b"b\n", False, 0)):
        found = lines.measure_holes(write(tmp_path / "x", data, is_sparse))
        assert least <= found <= (1 << 20) * bool(least)
