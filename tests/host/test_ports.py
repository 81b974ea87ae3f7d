"""The port tables: real sockets where the machine has them, made-up tables for the rest."""
import os
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Dict, Tuple

import pytest

from rlrun.host import ports
from rlrun.values import Listener

HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def row(address: str, port: int, state: str, inode: int, uid: int = 1000) -> str:
    return "   0: %s:%04X 00000000:0000 %s 00000000:00000000 00:00000000 00000000  %4d        0 %d 1 00000000\n" % (
        address, port, state, uid, inode)


def make_root(root: Path, tables: Dict[str, str], sockets: Tuple[Tuple[int, int], ...] = ()) -> str:
    """A folder that stands for /proc: `tables` are the files below net, `sockets` are (pid, inode)."""
    (root / "net").mkdir()
    for name, rows in tables.items():
        (root / "net" / name).write_text(HEADER + rows)
    for pid, inode in sockets:
        folder = root / str(pid) / "fd"
        folder.mkdir(parents=True, exist_ok=True)
        number = len(list(folder.iterdir()))
        os.symlink("/dev/null", str(folder / str(number)))
        os.symlink("socket:[%d]" % inode, str(folder / str(number + 1)))
    return str(root)


def listen(family: int, address: str) -> socket.socket:
    sock = socket.socket(family)
    try:
        sock.bind((address, 0))
        sock.listen(8)
    except OSError as error:
        sock.close()
        pytest.skip("no such address here: %s" % error)
    return sock


def leave_waiting(server: socket.socket) -> None:
    """Makes a connection whose server side closed first: that side goes into TIME_WAIT."""
    with closing(socket.create_connection(server.getsockname()[:2])) as client:
        accepted, _ = server.accept()
        accepted.close()
        assert client.recv(1) == b""


def find_listeners(port: int) -> Tuple[Listener, ...]:
    return tuple(listener for listener in ports.read_listeners() if listener.port == port)


def find_own(sock: socket.socket) -> Tuple[Listener, ...]:
    """By its inode too: another program's IPv4 socket may have the port number of this IPv6 one."""
    inode = os.fstat(sock.fileno()).st_ino
    return tuple(listener for listener in find_listeners(sock.getsockname()[1]) if listener.inode == inode)


@pytest.mark.parametrize("family, address", [
    (socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::1"), (socket.AF_INET6, "::")])
def test_N1_a_real_listener_has_address_uid_and_pid(family: int, address: str) -> None:
    with closing(listen(family, address)) as sock:
        found, = find_own(sock)
        assert (found.address, found.uid) == (address, os.geteuid())
        assert ports.find_owners([found.inode]) == {found.inode: os.getpid()}


def test_N1_a_listener_mapped_into_ipv6_is_given_as_ipv4() -> None:
    with closing(listen(socket.AF_INET6, "::ffff:127.0.0.1")) as sock:
        assert [found.address for found in find_own(sock)] == ["127.0.0.1"]


def test_N1_the_owner_is_the_process_that_listens() -> None:
    code = "import socket, sys; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(1); " \
           "print(s.getsockname()[1], flush=True); sys.stdin.read()"
    popen = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert popen.stdout
        found, = find_listeners(int(popen.stdout.readline()))
        assert ports.find_owners([found.inode]) == {found.inode: popen.pid}
    finally:
        popen.communicate()


def test_N3_time_wait_beside_a_live_listener() -> None:
    with closing(listen(socket.AF_INET, "127.0.0.1")) as server:
        port = server.getsockname()[1]
        leave_waiting(server)
        assert port in ports.read_waiting()
        assert [found.inode for found in find_listeners(port)] == [os.fstat(server.fileno()).st_ino]


def test_N3_time_wait_alone_is_no_listener() -> None:
    with closing(listen(socket.AF_INET, "127.0.0.1")) as server:
        port = server.getsockname()[1]
        leave_waiting(server)
    assert port in ports.read_waiting()
    assert find_listeners(port) == ()


def test_N3_a_bound_or_connected_socket_is_no_listener() -> None:
    with closing(listen(socket.AF_INET, "127.0.0.1")) as server:
        with closing(socket.create_connection(server.getsockname())) as client:
            assert find_listeners(client.getsockname()[1]) == ()


def test_a_row_that_is_there_twice_counts_once(tmp_path: Path) -> None:
    again = row("0100007F", 8000, "0A", 7) + row("00000000", 9000, "0A", 8)
    found = ports.read_listeners(make_root(tmp_path, {"tcp": "head\n" + again + again}))
    assert [(one.port, one.inode) for one in found] == [(8000, 7), (9000, 8)]


def test_N3_the_first_row_of_a_port_does_not_hide_the_second(tmp_path: Path) -> None:
    root = make_root(tmp_path, {"tcp": row("0100007F", 8265, "06", 0, 0) + row("0100007F", 8265, "01", 7)
                                + row("00000000", 8265, "0A", 42)})
    assert ports.read_listeners(root) == (Listener(8265, "0.0.0.0", 42, 1000),)
    assert ports.read_waiting(root) == (8265,)


@pytest.mark.skipif(sys.byteorder != "little", reason="the kernel prints words in the machine's byte order")
@pytest.mark.parametrize("digits, address", [
    ("0100007F", "127.0.0.1"), ("0A01A8C0", "192.168.1.10"), ("00000000", "0.0.0.0"),
    ("00000000000000000000000001000000", "::1"), ("00000000000000000000000000000000", "::"),
    ("0000000000000000FFFF00000100007F", "127.0.0.1"), ("B80D01200000000000000000EFBEADDE", "2001:db8::dead:beef"),
])
def test_addresses_as_text(tmp_path: Path, digits: str, address: str) -> None:
    root = make_root(tmp_path, {"tcp6" if len(digits) > 8 else "tcp": row(digits, 29500, "0A", 1)})
    assert [found.address for found in ports.read_listeners(root)] == [address]


def test_rows_that_can_not_be_read_are_passed_over(tmp_path: Path) -> None:
    root = make_root(tmp_path, {"tcp": "\n   1: 01\n" + row("0100007F01", 80, "0A", 1) + row("XX00007F", 80, "0A", 2)
                                + row("", 80, "0A", 3) + row("0100007F", 81, "0A", 4)})
    assert [found.inode for found in ports.read_listeners(root)] == [4]


def test_tables_that_are_absent(tmp_path: Path) -> None:
    assert not ports.has_port_table(str(tmp_path))
    assert ports.read_listeners(str(tmp_path)) == () == ports.read_waiting(str(tmp_path))
    root = make_root(tmp_path, {"tcp": row("0100007F", 80, "0A", 4)})  # IPv6 switched off
    assert ports.has_port_table(root)
    assert len(ports.read_listeners(root)) == 1


def test_N3_no_owner_is_looked_up_for_inode_0(tmp_path: Path) -> None:
    assert ports.find_owners([0], make_root(tmp_path, {}, ((7, 0),))) == {}
    assert ports.find_owners([]) == {}


def test_a_shared_socket_belongs_to_the_lowest_pid(tmp_path: Path) -> None:
    root = make_root(tmp_path, {}, ((900, 42), (90, 42), (1000, 42), (900, 43)))
    assert ports.find_owners([42, 43, 44], root) == {42: 90, 43: 900}


def test_a_process_whose_descriptors_are_hidden_is_passed_over(tmp_path: Path) -> None:
    root = make_root(tmp_path, {}, ((5, 42),))
    (tmp_path / "4").mkdir()
    (tmp_path / "4" / "fd").write_text("a folder that can't be listed")
    assert ports.find_owners([42, 77], root) == {42: 5}
