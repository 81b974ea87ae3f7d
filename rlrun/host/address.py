"""This host's addresses, as a runner would take them, and what is wrong with them. Sends no packet, changes nothing.

The runner takes the first word of `hostname -I` as its own address, asks `getent hosts` for the head's, and is the head
where the two are equal (Lego-RL, scripts/train/lib/ray.sh). The same two programs are asked here.
"""
import errno
import ipaddress
import os
import socket
from typing import Dict, List, Mapping, Optional, Tuple, Union

from .. import child

_TIMEOUT_SECONDS = 5
_ROUTE_UP, _ROUTE_REJECT = 0x1, 0x200  # linux/route.h
# Documentation addresses (RFC 5737, RFC 3849): of no host, so the route to them is the default one.
_OUTSIDE_V4 = ("198.51.100.1", "203.0.113.1", "192.0.2.1")
_OUTSIDE_V6 = "2001:db8::1"
_DOCKER_NETWORK = ipaddress.IPv4Network("172.17.0.0/16")
_BRIDGE_PREFIXES = ("docker", "br-", "virbr", "cni", "flannel", "podman", "lxcbr", "lxdbr", "cali")
_Address = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]


def read_addresses(environ: Optional[Mapping[str, str]] = None) -> Tuple[str, ...]:
    """The addresses that `hostname -I` prints, in its order, because the runner takes the first; () where it fails."""
    outcome = child.run(["hostname", "-I"], _TIMEOUT_SECONDS, env=_copy_environment(environ))
    if (outcome.how, outcome.code) != ("ended", 0):
        return ()
    return tuple(word for word in outcome.output.decode("utf-8", "replace").split() if _parse_address(word))


def read_default_route_address(proc_root: str = "/proc") -> str:
    """The address with which this host reaches the world: of IPv4 where it has a default route, else of IPv6, or "".

    The kernel is asked by connecting a UDP socket, which looks up the route and sends nothing.
    """
    routes = _read_routes(proc_root)
    if any(not network.prefixlen for network, _ in routes):
        specific = [network for network, _ in routes if network.prefixlen]
        for outside in _OUTSIDE_V4:
            if not any(ipaddress.IPv4Address(outside) in network for network in specific):
                return _read_source_address(socket.AF_INET, outside)
    return _read_source_address(socket.AF_INET6, _OUTSIDE_V6) if _has_default_route_v6(proc_root) else ""


def read_interface(address: str, proc_root: str = "/proc") -> str:
    """The name of the interface that has `address`, or whose own network it is in; "" where that can't be told."""
    parsed = _parse_address(address)
    if isinstance(parsed, ipaddress.IPv4Address):
        found = [(network.prefixlen, name) for network, name in _read_routes(proc_root)
                 if network.prefixlen and parsed in network]
        return max(found)[1] if found else ""
    for line in _read_lines(os.path.join(proc_root, "net/if_inet6")):
        # fd000000000000000000000000000002 02 40 00 80     eth0
        fields = line.split()
        if parsed and len(fields) == 6 and _is_hex(fields[0]) and int(fields[0], 16) == int(parsed):
            return fields[5]
    return ""


def resolve(name: str, environ: Optional[Mapping[str, str]] = None) -> str:
    """The first address that `getent hosts NAME` prints, as the runner asks; "" where it finds none."""
    if not name or name.startswith("-"):
        return ""
    outcome = child.run(["getent", "hosts", name], _TIMEOUT_SECONDS, env=_copy_environment(environ))
    words = outcome.output.decode("utf-8", "replace").split()
    return words[0] if (outcome.how, outcome.code) == ("ended", 0) and words else ""


def judge_addresses(first: str, default_route: str, head: str, nodes: int, resolves: str,
                    interface: str = "", own: Tuple[str, ...] = ()) -> Tuple[Tuple[str, str], ...]:
    """What is wrong with the addresses of this launch: pairs of a sentence and what to do, none where all is well.

    `first` is the first of `read_addresses`; `head` the configured head ("" where the runner takes `first`);
    `resolves` what `resolve(head or first)` gave; `interface` that of `first`, `own` all of
    `read_addresses`, where known. What concerns only other
    nodes is told only where there are more than one.
    """
    found: List[Tuple[str, str]] = []
    if not first:
        found.append(("this host has no address: `hostname -I` printed none, and the runner needs one",
                      "bring a network interface up, or install a `hostname` that knows -I"))
    found += _judge_first(first, default_route, nodes, interface)
    found += _judge_head(first, head, nodes, resolves)
    if (head or first) and not resolves:
        found.append(_explain_unresolved(head or first, own or (first,)))
    return tuple(found)


def judge_head_here(head: str, target: str, own: Tuple[str, ...], interface: str) -> Tuple[Tuple[str, str], ...]:
    """Would a head that is set make the node that is asked the head? Pairs as those of `judge_addresses`. `target`: what `head`
    resolves to; `own`: `read_addresses`; `interface`: that of `target`. The runner compares `target` with the first one."""
    parsed = _parse_address(target)
    shown = head if target == head else "%s (%s)" % (head, target)
    if not parsed or not own or target == own[0]:
        return ()
    if interface.startswith(_BRIDGE_PREFIXES) or parsed in _DOCKER_NETWORK:
        where = "interface %s" % interface if interface.startswith(_BRIDGE_PREFIXES) else "Docker's own network"
        return (("the head %s is an address of %s: other nodes can't reach it" % (shown, where),
                 "set the head to %s, the first address of `hostname -I` here, if they reach that" % own[0]),)
    if target in own:
        return (("the head %s is this node's, but the first address of `hostname -I` is %s, with which the runner compares it: "
                 "this node would be a worker, and no node the head" % (shown, own[0]),
                 "set the head to %s, or make %s the first one" % (own[0], target)),)
    return (("the head %s is none of this node's addresses (%s): `rlrun run` here would start a worker, and the head only on the "
             "node that has it" % (shown, " ".join(own)),
             "ask on that node, or set the head to %s for this one to be it" % own[0]),)


def is_loopback(address: str) -> bool:
    """Whether an address, or the name `localhost`, means this host only."""
    parsed = _parse_address(address)
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped:
        return parsed.ipv4_mapped.is_loopback
    name = address.lower().rstrip(".")
    return parsed.is_loopback if parsed else name in ("localhost", "ip6-localhost", "localhost.localdomain") or name.endswith(
        ".localhost")


def read_interface_names() -> Tuple[str, ...]:
    """The network interfaces of this host, in the kernel's order; () where they can't be read."""
    try:
        return tuple(name for _, name in socket.if_nameindex())
    except OSError:
        return ()


def judge_socket_names(environ: Mapping[str, str], address: str, interface: str,
                       names: Tuple[str, ...]) -> Tuple[Tuple[str, str], ...]:
    """What NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME leave out: pairs as those of `judge_addresses`. `address`: the head's;
    `interface`: that address's, `names`: all of this host, where known.

    NCCL (NCCL_SOCKET_IFNAME in its user guide; src/misc/socket.cc) takes a comma list of prefixes, `=` before it makes them whole
    names, `^` makes it a list of what is left out. Gloo takes whole names alone (torch, ProcessGroupGloo.cpp).
    """
    found: List[Tuple[str, str]] = []
    for variable, select in (("NCCL_SOCKET_IFNAME", _select_by_nccl), ("GLOO_SOCKET_IFNAME", _select_by_gloo)):
        value = environ.get(variable, "")
        chosen = select(value, names)
        if not value or not names or interface in chosen:
            continue
        if not chosen:
            fix = "set %s=%s" % (variable, interface) if interface else "set %s to the one that the other nodes reach" % variable
            found.append(("%s=%s names no interface of this node, which has %s" % (variable, value, ", ".join(names)),
                          fix + ", or leave it unset"))
        elif interface:
            found.append(("%s=%s means %s, and the head's address %s is on %s" % (
                variable, value, ", ".join(chosen), address, interface),
                "set %s=%s, if the nodes don't reach each other by %s" % (variable, interface, chosen[0])))
    return tuple(found)


def _select_by_nccl(value: str, names: Tuple[str, ...]) -> Tuple[str, ...]:
    is_excluding = value.startswith("^")
    value = value[1:] if is_excluding else value
    is_exact = value.startswith("=")
    words = [word.partition(":")[0] for word in value[1 if is_exact else 0:].split(",") if word]
    return tuple(name for name in names if is_excluding != any(
        name == word if is_exact else name.startswith(word) for word in words))


def _select_by_gloo(value: str, names: Tuple[str, ...]) -> Tuple[str, ...]:
    return tuple(name for name in names if name in value.split(","))


def probe_port(address: str, port: int, timeout_seconds: float = _TIMEOUT_SECONDS) -> Tuple[str, str]:
    """Does something listen at a host's address? "open", "refused" (the host answers, and nothing listens there) or
    "unreachable", and why in words. `address` may be a name, which getent is asked for."""
    target = address if _parse_address(address) else resolve(address)
    if not target:
        return "unreachable", "`getent hosts %s` finds nothing" % address
    try:
        with socket.create_connection((target, port), timeout=timeout_seconds):
            return "open", ""
    except socket.timeout:
        return "unreachable", "no answer within %g s" % timeout_seconds
    except OSError as error:
        how = "refused" if error.errno == errno.ECONNREFUSED else "unreachable"
        return how, (error.strerror or str(error)).lower()


def read_short_host_name() -> str:
    """This host's name up to the first dot, as `hostname -s` prints it, without asking a name server."""
    return socket.gethostname().partition(".")[0]


def _judge_first(first: str, default_route: str, nodes: int, interface: str) -> List[Tuple[str, str]]:
    parsed = _parse_address(first)
    if not parsed:
        return []
    fix = "make the address that the other nodes can reach the first one of `hostname -I`; to set MASTER_ADDR alone does not " \
        "help, since the runner compares it with that first address"
    if isinstance(parsed, ipaddress.IPv6Address) and not is_loopback(first):
        return [("the first address of this host is IPv6 (%s): the runner writes host:port without brackets" % first,
                 "put an IPv4 address on the interface: `hostname -I` lists it first")]
    if nodes < 2:
        return []
    if is_loopback(first):
        return [("the first address of this host is loopback (%s): other nodes would reach themselves" % first, fix)]
    if interface.startswith(_BRIDGE_PREFIXES) or parsed in _DOCKER_NETWORK:
        where = "interface %s" % interface if interface.startswith(_BRIDGE_PREFIXES) else "Docker's own network"
        return [("the first address of this host, %s, is that of %s: other nodes can't reach it" % (first, where),
                 fix + " (take the bridge down, or start the container with --network host)")]
    if parsed.is_link_local:
        return [("the first address of this host, %s, is link-local: it holds on one cable only" % first, fix)]
    if default_route and first != default_route:
        return [("the runner will use %s, the first address of `hostname -I`, but the default route is by %s"
                 % (first, default_route), "check that the other nodes reach %s; if not, %s" % (first, fix))]
    return []


def _judge_head(first: str, head: str, nodes: int, resolves: str) -> List[Tuple[str, str]]:
    found: List[Tuple[str, str]] = []
    if not head:
        return found
    if isinstance(_parse_address(head), ipaddress.IPv6Address):
        found.append(("the head is a bare IPv6 address (%s), and the runner writes host:port without brackets" % head,
                      "use the head's IPv4 address, or a host name that resolves to it"))
    target = resolves or head
    if nodes > 1 and is_loopback(target):
        found.append(("the head %s resolves to loopback (%s): each node would wait for itself" % (head, target)
                      if target != head else "the head %s is loopback: each node would wait for itself" % head,
                      "set the head to the address that the other nodes reach%s"
                      % (", or give %s that address in /etc/hosts" % head if target != head else "")))
    elif nodes == 1 and first and resolves and resolves != first:
        # start_ray_node: IP_LOCAL differs from IP_HEAD, so it joins, and a worker exits 0 without training.
        found.append(("the head %s is %s, not this host's first address %s: the runner would take this host for a "
                      "worker and wait for a head elsewhere" % (head, resolves, first),
                      "leave the head unset, or set it to %s" % first))
    return found


def _explain_unresolved(target: str, own: Tuple[str, ...]) -> Tuple[str, str]:
    sentence = ("`getent hosts %s` finds nothing: the runner dies of that without a message, exit 2, after it has "
                "stopped ray and cleared /dev/shm" % target)
    if target in own:
        return sentence, "add this line to /etc/hosts: %s %s" % (target, read_short_host_name())
    if _parse_address(target):
        return sentence, "add a line to /etc/hosts on every node: %s and the name of the host that has it" % target
    return sentence, "add a line with the address of %s to /etc/hosts on every node" % target


def _read_routes(proc_root: str) -> List[Tuple[ipaddress.IPv4Network, str]]:
    found: List[Tuple[ipaddress.IPv4Network, str]] = []
    for line in _read_lines(os.path.join(proc_root, "net/route")):
        # eth0	000200C0	00000000	0001	0	0	0	00FFFFFF	0	0	0   (host byte order)
        fields = line.split()
        if len(fields) < 8 or not all(map(_is_hex, (fields[1], fields[3], fields[7]))):
            continue
        flags = int(fields[3], 16)
        if flags & _ROUTE_UP and not flags & _ROUTE_REJECT:
            prefix = bin(int(fields[7], 16)).count("1")
            address = int.from_bytes(bytes.fromhex(fields[1])[::-1], "big")
            found.append((ipaddress.IPv4Network((address, prefix), strict=False), fields[0]))
    return found


def _has_default_route_v6(proc_root: str) -> bool:
    for line in _read_lines(os.path.join(proc_root, "net/ipv6_route")):
        # 000…000 00 000…000 00 fd000000000000000000000000000001 00000400 00000001 00000000 00000003     eth0
        fields = line.split()
        if len(fields) == 10 and not fields[0].strip("0") and fields[1] == "00" and _is_hex(fields[8]):
            flags = int(fields[8], 16)
            if flags & _ROUTE_UP and not flags & _ROUTE_REJECT and fields[9] != "lo":
                return True
    return False


def _read_source_address(family: int, outside: str) -> str:
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((outside, 9))
            return str(probe.getsockname()[0]).partition("%")[0]
    except OSError:
        return ""


def _parse_address(text: str) -> Optional[_Address]:
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None


def _is_hex(text: str) -> bool:
    return bool(text) and len(text) % 2 == 0 and all(character in "0123456789abcdefABCDEF" for character in text)


def _copy_environment(environ: Optional[Mapping[str, str]]) -> Optional[Dict[str, str]]:
    return None if environ is None else dict(environ)


def _read_lines(path: str) -> List[str]:
    try:
        with open(path, "rb") as stream:
            return stream.read().decode("ascii", "replace").splitlines()
    except OSError:
        return []
