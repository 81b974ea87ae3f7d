"""The ends of a log in bytes: of files alone, and without waiting for anything."""
import os
import signal

import pytest

from rlrun.health import tail
from rlrun.host.files import read_head


def write(path, data):
    path.write_bytes(data)
    return str(path)


def test_head_and_tail(tmp_path):
    path = write(tmp_path / "log", b"first\nmiddle\n\0\0last\n")
    assert read_head(path, 6) == b"first\n" and tail.read_tail(path, 7) == b"last\n"
    assert read_head(path, 1 << 20) == b"first\nmiddle\n\0\0last\n"
    assert tail.read_tail(path, 1 << 20) == b"first\nmiddle\nlast\n"
    assert read_head(path, 0) == tail.read_tail(path, 0) == b""


def test_the_last_lines(tmp_path):
    path = write(tmp_path / "log", b"one\n\n 3%\r 4%\r\ntwo \xff\n   \nhalf")
    assert tail.read_last_lines(path, 3) == (" 4%", "two \ufffd", "half")
    assert tail.read_last_lines(path, 9) == ("one", " 4%", "two \ufffd", "half")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("nowhere", path),
                                  lambda path: os.symlink("/dev/zero", path), lambda path: None,
                                  lambda path: os.symlink("/dev/tty", path)],
                         ids=["fifo", "directory", "dangling", "zero", "absent", "tty"])
def test_what_is_no_file_neither_hangs_nor_raises(tmp_path, make):
    path = str(tmp_path / "log")
    make(path)
    signal.alarm(60)  # ends the test where something waits
    try:
        assert read_head(path, 99) == tail.read_tail(path, 99) == b""
        assert tail.read_last_lines(path, 9) == ()
    finally:
        signal.alarm(0)


def test_a_pipe_that_somebody_writes_to_loses_nothing(tmp_path):
    path = str(tmp_path / "log")
    os.mkfifo(path)
    fd = os.open(path, os.O_RDWR)
    try:
        os.write(fd, b"for somebody else")
        assert read_head(path, 99) == tail.read_tail(path, 99) == b""
        assert os.read(fd, 99) == b"for somebody else"
    finally:
        os.close(fd)


@pytest.mark.parametrize("path", ["/x\0y", "/" + "x" * 5000, ""])
def test_what_is_no_path(path):
    assert read_head(path, 9) == tail.read_tail(path, 9) == b""


def test_what_was_appended(tmp_path):
    path = write(tmp_path / "log", b"12345")
    assert tail.read_new(path, 3) == (b"45", 5) and tail.read_new(path, 5) == (b"", 5)
    assert tail.read_new(path, 9) == (b"12345", 5), "it got shorter: from the beginning"
    assert tail.read_new(path, 0, 2) == (b"12", 2)
    assert tail.read_new(str(tmp_path / "gone"), 7) == (b"", 7)
