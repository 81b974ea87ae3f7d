"""A Ray cluster is asked for its nodes: what its answers mean, and what is said where none can be had. A real one is asked in
e2e/test_ray_nodes."""
import os
import socket

import pytest

from rlrun.host import ray

STATUS = """\
======== Autoscaler status: 2026-11-30 07:07:39.444829 ========
GCS request time: 0.005726s

Node status
---------------------------------------------------------------
Active:
 1 node_7b43449a8b6965c37413adf71e3307532c3776e03467c5faba93ee03
 1 node_dbacfdd275d71d2c26635b0f0a7e5d6ecc878d6e6b329ec248750a6d
Pending:
 (no pending nodes)
Recent failures:
 node_0000000000000000000000000000000000000000000000000000dead: NodeTerminated (ip: 10.0.0.3)

Resources
---------------------------------------------------------------
Node: 7b43449a8b6965c37413adf71e3307532c3776e03467c5faba93ee03 (node_7b43449a8b6965c37413adf71e3307532c3776e03467c5faba93ee03)
"""


@pytest.mark.parametrize("text, count", [
    (STATUS, 2), ("No cluster status. It may take a few seconds for the Ray internal services to start up.\n", None), ("", None),
    ("Active:\nPending:\n 1 node_a\n", None), ("Active:\n 1 node_a\n", 1)])
def test_only_active_nodes_are_counted(text, count):
    assert ray.count_nodes(text) == count


@pytest.mark.parametrize("text, nodes", [
    ('warning\nnodes [["10.0.0.2", "n2"], ["10.0.0.1", "None"], ["10.0.0.2", "n2"]]\n',
     (ray.RayNode("10.0.0.1", ""), ray.RayNode("10.0.0.2", "n2"))),
    ("nodes []\n", ()), ("", None), ("nodes {}", None), ("nodes [", None), ('nodes [1, ["a"], ["b", 2], [["c"], "d"]]', ())])
def test_the_answer_is_read_whoever_printed_it(text, nodes):
    assert ray.parse_nodes(text) == nodes


@pytest.mark.parametrize("address", ["", "auto", "10.0.0.1", "10.0.0.1:", "-x:6379 y", "ray://10.0.0.1:6379"])
def test_without_an_address_nobody_is_asked(address, tmp_path):
    asked = tmp_path / "asked"
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\ntouch '%s'\n" % asked)
    program.chmod(0o755)
    assert ray.ask_nodes(address, str(program), dict(os.environ)) == ray.RayAnswer(None, (), "the head's address is not known")
    assert not asked.exists()


def ask(tmp_path, python="exit 1", program=""):
    """Asks a port that is there, with these scripts for the interpreter and the `ray` beside it."""
    for name, text in (("python", python), ("ray", program)):
        if text:
            (tmp_path / name).write_text("#!/bin/sh\n%s\n" % text)
            (tmp_path / name).chmod(0o755)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(5)
        env = {"PATH": "/usr/bin:/bin", "RAY_ADDRESS": "10.9.9.9:1", "SEEN": str(tmp_path / "seen")}
        address = "127.0.0.1:%d" % listener.getsockname()[1]
        return ray.ask_nodes(address, str(tmp_path / "python"), env, 3.0), address


def test_the_interpreter_tells_the_nodes_of_that_address_alone(tmp_path):
    answer, address = ask(tmp_path, 'echo "$3 $RAY_ADDRESS $PWD" >"$SEEN"; echo \'nodes [["10.0.0.1", "n1"]]\'')
    assert answer == ray.RayAnswer(1, (ray.RayNode("10.0.0.1", "n1"),), "as Ray at %s tells" % address)
    assert (tmp_path / "seen").read_text() == "%s  /\n" % address  # no other cluster, and no folder with a `ray` in it


def test_ray_status_is_the_second_to_be_asked(tmp_path):
    answer, address = ask(tmp_path, "exit 1", 'echo "$*" >"$SEEN"; echo "Active:"; echo " 1 node_a"; echo "Pending:"')
    assert answer == ray.RayAnswer(1, (), "as ray status --address=%s tells" % address)
    assert (tmp_path / "seen").read_text() == "status --address=%s\n" % address


def test_what_hangs_or_fails_is_said(tmp_path):
    answer, _ = ask(tmp_path, "sleep 1000", "echo never")
    assert answer.alive is None and answer.words.startswith("%s: no end within 3 s" % (tmp_path / "python"))
    answer, _ = ask(tmp_path, "echo no module >&2; exit 1", "echo not here >&2; exit 3")
    assert answer == ray.RayAnswer(None, (), "%s status: ended 3 (not here)" % (tmp_path / "ray"))


def test_a_port_that_nobody_holds_is_said_at_once(tmp_path):
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # held, and nobody listens
        answer = ray.ask_nodes("127.0.0.1:%d" % bound.getsockname()[1], "", {})
    assert answer.alive is None and answer.words.endswith("does not answer: connection refused")
