"""A log as it grows, in any pieces, cut, truncated or replaced: against a plain reading of the whole file."""
import os

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rlrun.health import growth, lines
from rlrun.vitals import Track

from health.made_logs import MARK, logs, make_track, parse, read, read_plainly, write


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


@pytest.mark.parametrize("size", [1 << 19, lines.LINE_BYTES - 13, lines.LINE_BYTES, lines.LINE_BYTES * 3])
@pytest.mark.parametrize("filler", [b"x", b"\r 3%| | 3/100", b"\0"], ids=["text", "bars", "NULs"])
def test_L5_long_lines_that_grow(tmp_path, size, filler):
    """Bars without a line end, a line that is none, written NULs: what comes after them is found at its place."""
    long = filler * (size // len(filler))
    data = b"step:1 - a:1\n" + long + b"\rstep:2 - a:1\nstep:3 - a:1\n" + long + b"\nstep:4 - a:1\n"
    expected = [(one.step, one.offset) for one in read_plainly(data)]
    assert len(expected) == 4
    for limit_bytes in (1 << 17, 1 << 20, 1 << 22):
        path = write(tmp_path / "log", b"")
        points, text, follow = grow(path, data, [20, size // 2, size + 13], limit_bytes)
        assert [(point.step, point.offset) for point in points] == expected, limit_bytes
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


def test_find_last_end(tmp_path):
    path = write(tmp_path / "log", b"one\ntwo\nhalf")
    assert [growth.find_last_end(path, size) for size in (0, 3, 4, 7, 8, 12)] == [0, 0, 4, 4, 8, 8]


@pytest.mark.parametrize("line,shown", [(b"", b""), (b"a", b"a"), (b"a\rb", b"b"), (b"a\rb\r", b"b"), (b"a\r  \r", b"a"),
                                        (b"\r\r", b""), (b" 3%\r 4%\r\r", b" 4%")])
def test_fold_returns(line, shown):
    assert growth.fold_returns(line) == shown
