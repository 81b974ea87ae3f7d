"""TCP ports of this network namespace: who listens, what lingers, who owns a socket. Read from /proc; binds nothing.

`root` stands for /proc. `root/net` is what /proc/net is a link to, /proc/self/net: the namespace of this process. A
listener of another namespace (a container with a network of its own) does not show there, and can't clash either.
"""
import os
import re
import socket
import struct
from typing import Dict, Iterable, Iterator, List, Tuple

from ..values import Listener
from . import procs

# include/net/tcp_states.h
_TIME_WAIT = "06"
_LISTEN = "0A"
_MAPPED = b"\0" * 10 + b"\xff\xff"  # an IPv4 address in IPv6 clothes (RFC 4291, 2.5.5.2)
# socket:[4026531]
_SOCKET = re.compile(r"socket:\[(\d+)\]$")


def read_listeners(root: str = "/proc") -> Tuple[Listener, ...]:
    """The listening TCP sockets, IPv4 and IPv6; an IPv4 address mapped into IPv6 is given as the IPv4 address.

    Only the state LISTEN counts: a row in TIME_WAIT has inode 0 and no owner, and stands before the live one at times. The
    kernel may write a row twice where sockets come and go while it is read; each counts once.
    """
    listeners: Dict[Listener, None] = {}
    for fields in _read_rows(root, _LISTEN):
        address, _, port = fields[1].partition(":")
        try:
            listeners[Listener(port=int(port, 16), address=_decode_address(address), inode=int(fields[9]),
                               uid=int(fields[7]))] = None
        except (ValueError, OSError, struct.error):
            continue
    return tuple(listeners)


def read_waiting(root: str = "/proc") -> Tuple[int, ...]:
    """The local ports in TIME_WAIT, ascending: not in use, but for a minute a bind without SO_REUSEADDR may fail."""
    ports = set()
    for fields in _read_rows(root, _TIME_WAIT):
        try:
            ports.add(int(fields[1].partition(":")[2], 16))
        except ValueError:
            continue
    return tuple(sorted(ports))


def has_port_table(root: str = "/proc") -> bool:
    """Whether the table can be read at all; where it can't (a /proc of pids only), no listener proves nothing."""
    return any(os.access(path, os.R_OK) for path in _table_paths(root))


def find_owners(inodes: Iterable[int], root: str = "/proc") -> Dict[int, int]:
    """The pid that holds each socket inode; an inode whose holder is hidden from us or gone is missing.

    Of several that share one (a server and the workers it forked) it is the lowest pid, as a rule the parent.
    """
    wanted = {inode for inode in inodes if inode}
    owners: Dict[int, int] = {}
    for pid in procs.list_pids(root) if wanted else ():
        for inode in _read_socket_inodes("%s/%d/fd" % (root, pid)):
            if inode in wanted:
                wanted.remove(inode)
                owners[inode] = pid
        if not wanted:
            break
    return owners


def _read_socket_inodes(folder: str) -> Iterator[int]:
    try:
        names = os.listdir(folder)
    except OSError:  # gone, or another user's
        return
    for name in names:
        try:
            match = _SOCKET.match(os.readlink(folder + "/" + name))
        except OSError:
            continue
        if match:
            yield int(match.group(1))


def _table_paths(root: str) -> Tuple[str, ...]:
    return root + "/net/tcp", root + "/net/tcp6"


def _read_rows(root: str, state: str) -> Iterator[List[str]]:
    #    0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000  0 4026531 1 …
    for path in _table_paths(root):
        try:
            with open(path, encoding="ascii", errors="replace") as lines:
                for line in lines:
                    fields = line.split(None, 10)
                    if len(fields) >= 10 and fields[3] == state:
                        yield fields
        except OSError:  # tcp6 is absent where IPv6 is switched off
            continue


def _decode_address(digits: str) -> str:
    # Each 32-bit word is printed as a number of this machine's byte order: 0100007F is 127.0.0.1 on x86.
    words = [int(digits[start:start + 8], 16) for start in range(0, len(digits), 8)]
    packed = struct.pack("=%dI" % len(words), *words)
    if packed.startswith(_MAPPED):
        packed = packed[len(_MAPPED):]
    return socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)
