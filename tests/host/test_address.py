"""Addresses: fake `hostname` and `getent` first on PATH, fake /proc/net made from dicts."""
import os
import socket

import pytest

from rlrun.host import address

HEADER = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
DEFAULT = "eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
ETH0 = "eth0\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\n"
DOCKER0 = "docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
IF_INET6 = "fd000000000000000000000000000005 02 40 00 80     eth0\n"


def make_tree(root, files):
    for name, text in files.items():
        path = root / name
        os.makedirs(str(path.parent), exist_ok=True)
        path.write_text(text)
    return str(root)


def make_program(folder, name, body):
    make_tree(folder, {name: "#!/bin/sh\n" + body})
    (folder / name).chmod(0o755)
    return {"PATH": "%s:%s" % (folder, os.environ["PATH"])}


def judge(first="10.0.0.5", default_route="10.0.0.5", head="", nodes=2, resolves="10.0.0.5", interface=""):
    return address.judge_addresses(first, default_route, head, nodes, resolves, interface)


def test_N5_addresses_as_hostname_prints_them(tmp_path):
    environ = make_program(tmp_path, "hostname", '[ "$1" = -I ] && echo "172.17.0.1 10.0.0.5 fd00::5 "\n')
    assert address.read_addresses(environ) == ("172.17.0.1", "10.0.0.5", "fd00::5")


@pytest.mark.parametrize("body", ["echo 'invalid option' >&2; exit 1\n", "echo\n", "echo no addresses here\n"])
def test_no_addresses_where_hostname_fails(tmp_path, body):
    assert address.read_addresses(make_program(tmp_path, "hostname", body)) == ()


def test_no_addresses_without_hostname(tmp_path):
    assert address.read_addresses({"PATH": str(tmp_path)}) == ()


def test_resolve_takes_the_first_line_of_getent(tmp_path):
    environ = make_program(tmp_path, "getent", '[ "$1 $2" = "hosts node1" ] || exit 2\necho "127.0.1.1  node1 n"\n'
                           'echo "10.0.0.5 node1"\n')
    assert address.resolve("node1", environ) == "127.0.1.1"
    assert address.resolve("node2", environ) == ""
    assert address.resolve("", environ) == ""


def test_resolve_by_the_real_getent():
    assert address.is_loopback(address.resolve("localhost"))


def test_default_route_address_is_one_of_this_host():
    found = address.read_default_route_address()
    if not found:
        pytest.skip("this machine has no default route")
    family = socket.AF_INET6 if ":" in found else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind((found, 0))  # only an address of this host can be bound


@pytest.mark.parametrize("route, route_v6", [
    (HEADER, ""), ("", ""), (HEADER + ETH0, ""),
    (HEADER + DEFAULT.replace("\t0003\t", "\t0201\t"), "")])  # a default route that rejects
def test_no_default_route(tmp_path, route, route_v6):
    root = make_tree(tmp_path, {"net/route": route, "net/ipv6_route": route_v6})
    assert address.read_default_route_address(root) == ""


def test_default_route_of_ipv6_where_ipv4_has_none(tmp_path, monkeypatch):
    zero = "0" * 32
    lines = ["%s 00 %s 00 %s ffffffff 00000001 00000000 00200200       lo\n" % (zero, zero, zero),
             "%s 00 %s 00 fe80%s 00000400 00000001 00000000 00000003     eth0\n" % (zero, zero, "0" * 28)]
    asked = []
    monkeypatch.setattr(address, "_read_source_address", lambda family, outside: asked.append(family) or "fd00::5")
    root = make_tree(tmp_path, {"net/route": HEADER, "net/ipv6_route": lines[0]})
    assert address.read_default_route_address(root) == "" and asked == []
    make_tree(tmp_path, {"net/ipv6_route": "".join(lines)})
    assert address.read_default_route_address(root) == "fd00::5" and asked == [socket.AF_INET6]


def test_the_address_asked_for_is_in_no_network_of_this_host(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(address, "_read_source_address", lambda family, outside: asked.append(outside) or "x")
    own = "eth1\t006433C6\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"  # 198.51.100.0/24
    address.read_default_route_address(make_tree(tmp_path, {"net/route": HEADER + DEFAULT + own}))
    assert asked == ["203.0.113.1"]


@pytest.mark.parametrize("wanted, expected", [
    ("172.17.0.1", "docker0"), ("10.0.0.5", "eth0"), ("192.168.1.1", ""), ("fd00::5", "eth0"), ("fd00::6", ""),
    ("rubbish", ""), ("", "")])
def test_interface_of_an_address(tmp_path, wanted, expected):
    root = make_tree(tmp_path, {"net/route": HEADER + DEFAULT + ETH0 + DOCKER0, "net/if_inet6": IF_INET6})
    assert address.read_interface(wanted, root) == expected


def test_all_well_says_nothing():
    assert judge() == ()
    assert judge(head="node1", resolves="10.0.0.9") == ()  # a worker: the head is elsewhere


def test_N5_the_first_address_is_the_docker_bridge():
    (sentence, fix), = judge(first="172.17.0.1", resolves="172.17.0.1")
    assert "172.17.0.1" in sentence and "Docker" in sentence
    assert "hostname -I" in fix
    (sentence, _), = judge(first="192.168.122.1", resolves="x", interface="virbr0")
    assert "virbr0" in sentence


def test_N5_the_first_address_is_not_that_of_the_default_route():
    (sentence, fix), = judge(first="10.9.0.1", resolves="10.9.0.1")
    assert "the runner will use 10.9.0.1" in sentence and "10.0.0.5" in sentence


@pytest.mark.parametrize("first", ["172.17.0.1", "10.9.0.1", "127.0.0.1", "169.254.3.4"])
def test_one_node_does_not_care_what_others_reach(first):
    assert judge(first=first, nodes=1, resolves=first) == ()


@pytest.mark.parametrize("first, word", [("127.0.0.1", "loopback"), ("::1", "loopback"), ("169.254.3.4", "link-local")])
def test_addresses_of_no_use_to_others(first, word):
    (sentence, fix), = judge(first=first, resolves=first)
    assert word in sentence and fix


@pytest.mark.parametrize("nodes", [1, 2])
def test_no_address_at_all(nodes):
    (sentence, fix), = judge(first="", resolves="", nodes=nodes)
    assert "no address" in sentence and fix


@pytest.mark.parametrize("nodes", [1, 2])
def test_N9_ipv6_first(nodes):
    (sentence, _), = judge(first="fd00::5", resolves="fd00::5", nodes=nodes)
    assert "brackets" in sentence


def test_N9_bare_ipv6_head():
    (sentence, fix), = judge(head="fd00::5", resolves="fd00::5")
    assert "fd00::5" in sentence and "brackets" in sentence and fix


@pytest.mark.parametrize("head, resolves", [("node1", "127.0.1.1"), ("localhost", "::1"), ("127.0.0.1", "127.0.0.1")])
def test_N7_head_resolves_to_loopback(head, resolves):
    (sentence, fix), = judge(head=head, resolves=resolves)
    assert head in sentence and "loopback" in sentence and "other nodes reach" in fix


def test_a_single_node_whose_head_is_another_address_would_be_a_worker():
    (sentence, fix), = judge(head="node1", resolves="127.0.1.1", nodes=1)
    assert "worker" in sentence and "10.0.0.5" in fix


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("head", ["", "10.0.0.5"])
def test_the_first_address_without_an_entry_is_fatal_to_the_runner(nodes, head):
    (sentence, fix), = judge(head=head, nodes=nodes, resolves="")
    assert "getent hosts 10.0.0.5" in sentence and "exit 2" in sentence
    assert fix.endswith(": 10.0.0.5 %s" % address.read_short_host_name())


def test_a_head_that_does_not_resolve():
    (sentence, fix), = judge(head="node1", resolves="")
    assert "getent hosts node1" in sentence and "node1" in fix


@pytest.mark.parametrize("text, expected", [("127.0.1.1", True), ("::1", True), ("::ffff:127.0.0.1", True),
                                            ("localhost", True), ("10.0.0.5", False), ("node1", False), ("", False)])
def test_is_loopback(text, expected):
    assert address.is_loopback(text) is expected


def test_short_host_name(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "node1.cluster.example")
    assert address.read_short_host_name() == "node1"


NAMES = ("lo", "eth0", "eth1", "ib0", "docker0")


@pytest.mark.parametrize("variable, value, fits", [
    ("NCCL_SOCKET_IFNAME", "", True), ("NCCL_SOCKET_IFNAME", "eth0", True), ("NCCL_SOCKET_IFNAME", "eth", True),
    ("NCCL_SOCKET_IFNAME", "ib,eth", True), ("NCCL_SOCKET_IFNAME", "=eth0,eth1", True), ("NCCL_SOCKET_IFNAME", "=eth", None),
    ("NCCL_SOCKET_IFNAME", "^lo,docker", True), ("NCCL_SOCKET_IFNAME", "^eth", False), ("NCCL_SOCKET_IFNAME", "^=eth", True),
    ("NCCL_SOCKET_IFNAME", "^=eth0", False), ("NCCL_SOCKET_IFNAME", "ib0", False), ("NCCL_SOCKET_IFNAME", "bond0", None),
    ("GLOO_SOCKET_IFNAME", "eth0", True), ("GLOO_SOCKET_IFNAME", "ib0,eth0", True), ("GLOO_SOCKET_IFNAME", "eth", None),
    ("GLOO_SOCKET_IFNAME", "ib0", False)])
def test_the_interface_that_is_named_for_sockets(variable, value, fits):
    found = address.judge_socket_names({variable: value}, "10.0.0.5", "eth0", NAMES)
    if fits:
        assert found == ()
    else:
        (sentence, fix), = found
        assert sentence.startswith("%s=%s " % (variable, value)) and "set %s=eth0" % variable in fix
        assert ("names no interface" in sentence) == (fits is None)


def test_an_interface_that_is_not_known_is_not_judged():
    assert address.judge_socket_names({"NCCL_SOCKET_IFNAME": "ib0"}, "10.0.0.5", "", NAMES) == ()
    assert address.judge_socket_names({"NCCL_SOCKET_IFNAME": "ib0"}, "10.0.0.5", "eth0", ()) == ()
    (_, fix), = address.judge_socket_names({"GLOO_SOCKET_IFNAME": "bond0"}, "10.0.0.5", "", NAMES)
    assert "set GLOO_SOCKET_IFNAME to the one" in fix
    assert "lo" in address.read_interface_names()


def test_a_port_is_open_refused_or_out_of_reach():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        assert address.probe_port("127.0.0.1", port)[0] == "refused"
        listener.listen(1)
        assert address.probe_port("127.0.0.1", port) == ("open", "")
        while True:  # the queue of one who accepts nobody fills up
            how, words = address.probe_port("127.0.0.1", port, 0.2)
            if how != "open":
                break
        assert (how, words) == ("unreachable", "no answer within 0.2 s")
    assert address.probe_port("no-such-host.invalid", 1) == ("unreachable", "`getent hosts no-such-host.invalid` finds nothing")
