"""Clocks of others: mounts made from text, HTTP servers on loopback."""
import email.utils
import socket
import threading
import time

import pytest

from rlrun.host import clock

MOUNTS = r"""22 1 8:1 / / rw - ext4 /dev/sda1 rw
30 22 0:40 / /data rw,noatime shared:1 - nfs4 filer:/export\040a rw,vers=4.2
31 30 0:41 / /data/local rw - xfs /dev/sdb rw
32 22 0:42 / /my\040files rw - nfs old:/x rw
33 22 0:43 / /over rw - nfs filer:/below rw
34 33 0:44 / /over rw - tmpfs tmpfs rw
a broken line
"""


def test_the_file_server_of_a_folder(tmp_path):
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mountinfo").write_text(MOUNTS)
    found = {path: clock.read_file_server(path, str(tmp_path)) for path in (
        "/data", "/data/c/logs", "/data/local/c", "/database", "/my files/c", "/over/c", "/")}
    assert found == {"/data": "filer:/export a", "/data/c/logs": "filer:/export a", "/data/local/c": "", "/database": "",
                     "/my files/c": "old:/x", "/over/c": "", "/": ""}
    assert clock.read_file_server("/data", str(tmp_path / "none")) == ""


def test_a_file_is_measured_and_removed(tmp_path):
    offset = clock.measure_file_server(str(tmp_path))
    assert offset and offset.low <= offset.high and abs(offset.low) < 2.0 and list(tmp_path.iterdir()) == []
    assert clock.measure_file_server(str(tmp_path / "none")) is None


@pytest.fixture
def serve():
    """serve(answer) -> the port at which the first who comes gets it."""
    listeners = []

    def start(answer):
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        listeners.append(listener)

        def talk():
            try:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(4096)
                    if answer is None:
                        connection.recv(4096)  # says nothing until the other side goes
                    else:
                        connection.sendall(answer)
            except OSError:
                pass
        threading.Thread(target=talk, daemon=True).start()
        return listener.getsockname()[1]
    yield start
    for listener in listeners:
        listener.close()


@pytest.mark.parametrize("shift", [0, 100, -100])
def test_the_date_of_an_answer(serve, shift):
    date = email.utils.formatdate(time.time() + shift, usegmt=True)
    offset = clock.measure_http("127.0.0.1", serve(b"HTTP/1.1 200 OK\r\ndate: %s\r\n\r\n" % date.encode()))
    assert offset and offset.low - 1 < -shift < offset.high + 1 and offset.high - offset.low >= 1.0


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nDate: soon\r\n\r\n", b"SSH-2.0\r\n",
                                    b"\xff" * 40000, None])
def test_no_date(serve, answer):
    assert clock.measure_http("127.0.0.1", serve(answer), timeout_seconds=0.3) is None


def test_nobody_there():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        assert clock.measure_http("127.0.0.1", probe.getsockname()[1]) is None


def test_two_clocks_by_a_third():
    assert clock.subtract(clock.Offset(2.0, 2.5), clock.Offset(-1.0, 0.5)) == clock.Offset(1.5, 3.5)
