"""The block for the other nodes: heads that are no use, hosts by name, a check in front. Fake `hostname` and `getent` on PATH."""
import os
import subprocess

import pytest
from steps.made import make_plan

from rlrun.errors import OperatorError
from rlrun.steps import nodes
from rlrun.values import Topology


@pytest.fixture
def host(tmp_path, monkeypatch):
    """host(first addresses, {name: address}): what `hostname -I` and `getent hosts` say."""
    def make(addresses="10.0.0.5", known=None):
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        entries = "".join("%s) echo '%s  %s';;\n" % (name, value, name) for name, value in (known or {}).items())
        for name, text in (("hostname", "echo '%s'" % addresses),
                           ("getent", 'shift; for one; do case "$one" in\n%s*) bad=2;; esac; done; exit ${bad:-0}' % entries)):
            (folder / name).write_text("#!/bin/sh\n" + text + "\n")
            (folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", "%s:%s" % (folder, os.environ["PATH"]))
    return make


def make(head="", count=2, hosts=(), environment=None):
    plan = make_plan(topology=Topology(count, head, "MASTER_ADDR", 6379, "the note"), environment=environment or {})
    return nodes.make_commands(plan, "S", {}, hosts)


@pytest.mark.parametrize("addresses, head, known, words", [
    ("", "", {}, "hostname -I` gave none"),
    ("127.0.0.1", "", {}, "loopback"),
    ("10.0.0.5", "localhost", {}, "loopback"),
    ("10.0.0.5", "a.localhost.", {}, "loopback"),
    ("10.0.0.5", "node1", {"node1": "127.0.1.1"}, "it resolves to 127.0.1.1"),
    ("10.0.0.5", "127.1", {"127.1": "127.0.0.1"}, "loopback"),
    ("10.0.0.5", "::ffff:127.0.0.1", {}, "loopback"),
    ("10.0.0.5", "0.0.0.0", {}, "no address that another node can reach"),
    ("10.0.0.5", "0", {"0": "0.0.0.0"}, "no address that another node can reach"),
    ("fd00::5 10.0.0.5", "", {}, "IPv6"),
    ("10.0.0.5", "[fd00::5]", {}, "IPv6"),
    ("10.0.0.5", "node6", {"node6": "fd00::6"}, "it resolves to fd00::6"),
    ("10.0.0.5", "x\x1b[2J", {}, "neither a host's name nor an address"),
    ("10.0.0.5", "-h", {}, "neither a host's name nor an address"),
])
def test_N7_N9_no_command_with_a_head_that_nobody_reaches(host, addresses, head, known, words):
    host(addresses, known)
    found = make(head)
    text = "\n".join(nodes.describe(found, False))
    assert found.command == "" and found.head == "" and words in found.warning and "MASTER_ADDR" in found.warning
    assert "nohup" not in text and "\x1b" not in text


def test_a_good_head(host):
    host(known={"10.0.0.5": "10.0.0.5"})
    found = make()
    assert (found.head, found.warning, found.others) == ("10.0.0.5", "", 1)
    assert "MASTER_ADDR=10.0.0.5 nohup setsid bash scripts/train/train.sh" in found.command
    assert any("nodes" not in line and "the 1 other node:" in line for line in nodes.describe(found, False))


def test_N5_doubts_are_told_with_the_command(host):
    host("172.17.0.1 10.0.0.5")
    text = "\n".join(nodes.describe(make(), False))
    assert "Docker" in text and "getent hosts 172.17.0.1` finds nothing" in text and "MASTER_ADDR=172.17.0.1 nohup" in text


def test_the_interface_that_nccl_is_told(host):
    host(known={"10.0.0.5": "10.0.0.5"})
    found = make(environment={"NCCL_SOCKET_IFNAME": "nosuch0"})
    assert any(doubt.startswith("NCCL_SOCKET_IFNAME=nosuch0 names no interface") for doubt in found.doubts)
    assert not any("IFNAME" in doubt for doubt in make(environment={"NCCL_SOCKET_IFNAME": "^nosuch0"}).doubts)


@pytest.mark.parametrize("hosts, head, known, others", [
    (("n1", "n2"), "n1", {}, ("n2",)),
    (("n1", "n2"), "n1.x.example", {}, ("n2",)),
    (("n1.x.example", "n2.x.example"), "n2", {}, ("n1.x.example",)),
    (("10.0.0.5", "10.0.0.6"), "", {}, ("10.0.0.6",)),
    (("n1", "n2"), "", {"n2": "10.0.0.5"}, ("n1",)),
    (("n1", "n2"), "head", {"head": "10.0.0.7", "n1": "10.0.0.7"}, ("n2",)),
    (("n1", "n2"), "10.0.0.7", {"10.0.0.7": "10.0.0.7 n2.x"}, ("n1",)),
])
def test_the_head_is_left_out_of_the_hosts(host, hosts, head, known, others):
    host(known=known)
    found = make(head, hosts=hosts)
    assert found.hosts == others and not any("named" in doubt for doubt in found.doubts)
    assert any(line == "  nodes %s:" % ", ".join(others) for line in nodes.describe(found, False))


def test_this_host_by_its_own_name(host):
    host()
    own = os.uname().nodename.partition(".")[0]
    assert make(hosts=("other", own + ".x.example")).hosts == ("other",)


def test_what_is_odd_about_the_hosts_is_said(host):
    host()
    found = make("n9", count=4, hosts=("n1", "n2"))
    assert found.hosts == ("n1", "n2") and found.command
    assert any("the head n9 is not among the hosts" in doubt for doubt in found.doubts)
    assert any("2 hosts are named beside the head, and this run takes 3" in doubt for doubt in found.doubts)
    assert not any("beside" in doubt for doubt in make("n9", count=3, hosts=("n1", "n2")).doubts)


def test_many_hosts_are_a_list(host):
    host()
    found = make("n0001", 1000, nodes.read_hosts("n[0001-1000]"))
    assert "  nodes n[0002-1000] (999):" in nodes.describe(found, True)
    odd = ["n%d-ib" % number for number in range(1, 1001)]
    assert "  nodes n2-ib, n3-ib, n4-ib, n5-ib, n6-ib, n7-ib, … (999):" in nodes.describe(make("n1-ib", 1000, odd), True)


def test_hosts_of_a_list_or_a_file(tmp_path):
    path = tmp_path / "hosts"
    path.write_text("# all\nn1 slots=8\n\nn[2-3],n2\n")
    assert nodes.read_hosts(str(path)) == ("n1", "n2", "n3") == nodes.read_hosts("n[1-3]")
    os.mkfifo(str(tmp_path / "pipe"))
    for word, words in ((str(tmp_path / "none"), "No such file"), (str(tmp_path / "pipe"), "not a file"), ("n[", "not closed"),
                        (" ", "names no host"), ("/dev/null", "not a file"), ("n[0-999999999]", "more than")):
        with pytest.raises(OperatorError) as told:
            nodes.read_hosts(word)
        assert told.value.code == 2 and words in told.value.message, told.value.message


@pytest.mark.parametrize("code, launched", [(0, True), (1, False)])
def test_the_check_decides_in_a_plain_shell(tmp_path, code, launched):
    """The launch is in the background only once the check has ended; the shell itself stays where it was."""
    commands = nodes.NodeCommands(1, "h", "cd %s && echo $$ > launched &" % tmp_path, "", "")
    line = nodes.put_check_before(commands, ["sh", "-c", "echo checked; exit %d" % code]).command
    done = subprocess.run(["sh", "-c", line + "\nwait; pwd"], cwd="/", stdout=subprocess.PIPE, check=True)
    assert done.stdout == b"checked\n/\n" and (tmp_path / "launched").exists() == launched


@pytest.mark.parametrize("addresses, head, known, words", [
    ("10.0.0.5", "other", {"other": "10.9.9.9"}, "the head other (10.9.9.9) is none of this node's addresses (10.0.0.5)"),
    ("10.0.0.5", "10.9.9.9", {"10.9.9.9": "10.9.9.9"}, "the head 10.9.9.9 is none of this node's addresses"),
    ("10.0.0.5 172.17.0.1", "172.17.0.1", {"172.17.0.1": "172.17.0.1"}, "the head 172.17.0.1 is an address of"),
    ("10.0.0.5 10.1.0.5", "10.1.0.5", {"10.1.0.5": "10.1.0.5"}, "no node the head; set the head to 10.0.0.5, or make 10.1.0.5"),
    ("10.0.0.5 10.1.0.5", "me", {"me": "10.0.0.5"}, ""),
])
def test_a_head_that_is_not_this_node_is_doubted(host, addresses, head, known, words):
    host(addresses, known)
    found = make(head)
    told = [doubt for doubt in found.doubts if doubt.startswith("the head ")]
    assert found.command and len(told) == bool(words) and words in "".join(told)


@pytest.mark.parametrize("addresses, head, says, not_", [
    ("fd00::5 10.0.0.5", "", "first one of `hostname -I` here, then ask again; to set MASTER_ADDR alone does not "
     "help", "Set MASTER"),
    ("", "", "first one of `hostname -I` here", "Set MASTER"),
    ("10.0.0.5", "fd00::9", "Set MASTER_ADDR to the first address of `hostname -I` here, 10.0.0.5", "not help"),
])
def test_what_mends_an_address_is_what_the_runner_compares(host, addresses, head, says, not_):
    host(addresses)
    assert says in make(head).warning and not_ not in make(head).warning


def test_the_line_for_etc_hosts_has_this_hosts_own_name(host):
    host("10.0.0.5 10.1.0.5")
    own = os.uname().nodename.partition(".")[0]
    assert any(doubt.endswith("add this line to /etc/hosts: 10.1.0.5 %s" % own) for doubt in make("10.1.0.5").doubts)
    told = [doubt for doubt in make("10.9.9.9").doubts if "getent" in doubt]
    assert len(told) == 1 and "this line" not in told[0] and "name of the host that has it" in told[0]


def test_no_hosts_are_a_fault():
    with pytest.raises(OperatorError) as caught:
        nodes.read_hosts("")
    assert caught.value.code == 2
