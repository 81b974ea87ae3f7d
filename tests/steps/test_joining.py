"""Nodes that wait for each other: what their logs tell, who is missing, how long the head waits, what a worker's exit 0 means."""
import json
import os

import pytest

from rlrun.host.ray import RayNode
from rlrun.stacks import load_health
from rlrun.steps import joining
from rlrun.text.joined import describe, tell_stage
from rlrun.vitals import Joining

SETUP = "[config] /x/a.env\n[python] /x/my venv/bin/python3 (Python 3.11.7)\nRAY_PORT=6380\n[shm] after cleanup:\n"
HEAD = SETUP + "HEAD=10.0.0.1  MASTER_ADDR=n1  LOCAL=10.0.0.1  NNODES=3\n"
WORKER = SETUP + "HEAD=10.0.0.1  MASTER_ADDR=n1  LOCAL=10.0.0.2  NNODES=3\n"
STARTED = "2026-11-30 07:15:44,781\tSUCC scripts.py:1251 -- Ray runtime started.\n"
JOINED = "[WORKER] joined; head drives training. exiting worker script.\n"
GAVE_UP = "[FATAL] only 1/3 nodes joined the ray cluster after 300s.\n"
read = load_health("lego").read_joining


@pytest.mark.parametrize("text, role, state", [
    (HEAD, "head", "begun"), (HEAD.replace("  MASTER_ADDR=n1", ""), "head", "begun"),
    (HEAD + "[HEAD] starting ray head\n", "head", "waiting"),
    (HEAD + "[HEAD] starting ray head\n" + STARTED, "head", "started"),
    (HEAD + STARTED + "Node status\nActive:\n 1 node_a\n", "head", "joined"),
    (HEAD + STARTED + GAVE_UP + "Active:\n 1 node_a\n", "head", "failed"),  # it shows the status then, too
    (WORKER, "worker", "begun"), (WORKER + "[WORKER] waiting for head 10.0.0.1:6380\n", "worker", "waiting"),
    (WORKER + "[WORKER] waiting for head 10.0.0.1:6380\n" + STARTED, "worker", "started"),
    (WORKER + STARTED + JOINED, "worker", "joined"), (JOINED + WORKER, "worker", "begun")])
def test_how_far_a_node_has_come(text, role, state):
    told = read(text)
    assert (told.role, told.state, told.address, told.nodes) == (role, state, "10.0.0.1:6380", 3)
    assert told.python == "/x/my venv/bin/python3" and told.local == ("10.0.0.1" if role == "head" else "10.0.0.2")


@pytest.mark.parametrize("text", [
    "", SETUP, "HEAD=  MASTER_ADDR=  LOCAL=  NNODES=\n", "a HEAD=1  MASTER_ADDR=1  LOCAL=1  NNODES=2\n"])
def test_before_it_tells_its_addresses_nothing_is_known(text):
    assert read(text) is None


@pytest.mark.parametrize("text, is_joined", [
    (WORKER + JOINED, True), (WORKER + JOINED + "\nlogout\n", True), (WORKER + JOINED.strip() + "\r\n", True), ("", False),
    (WORKER + STARTED, False), (WORKER + JOINED + "a\nb\nc\n", False), (WORKER + "he said: " + JOINED, False)])
def test_the_last_words_of_a_worker(text, is_joined, tmp_path):
    log = tmp_path / "launch.log"
    log.write_text("x" * 10000 + "\n" + text)
    assert joining.has_joined("lego", str(log)) is is_joined
    record = {"exit": {"status": 0, "signal": None}, "nodes": 3, "stack": "lego", "launch_log": str(log), "jobs": []}
    assert joining.tell_state(record, "ended 0") == ("joined" if is_joined else "ended 0")
    for change in ({"exit": {"status": 1, "signal": None}}, {"exit": {"status": None, "signal": "SIGKILL"}}, {"exit": None},
                   {"nodes": 1}, {"nodes": "3"}, {"jobs": ["7"]}, {"stack": "other"}, {"stack": "prime"}, {"launch_log": ""}):
        assert not joining.is_joined(dict(record, **change)), change


def test_the_other_nodes_are_known_by_their_logs(tmp_path):
    told = read(HEAD + STARTED)
    began = 1000.0

    def write(name, text, seconds):
        (tmp_path / name).write_text(text)
        os.utime(str(tmp_path / name), (seconds, seconds))
    write("launch_20261130-070000.log", HEAD + STARTED, began)
    write("launch_20261130-070000_n2.log", WORKER, began - 50)  # pasted a moment before the head was launched
    write("launch_20261130-065900_n3.log", WORKER.replace("0.2", "0.3") + JOINED, began + 5)
    write("launch_20261130-060000_n4.log", WORKER.replace("0.2", "0.4") + JOINED, began - 500)  # of an earlier run
    write("launch_20261130-070000_n5.log", WORKER.replace("HEAD=10.0.0.1", "HEAD=10.0.0.9"), began)  # another head's
    write("launch_20261130-070000_n6.log", "", began)
    write("demo_n7.log", WORKER, began)
    (tmp_path / "launch_20261130-070000_n8.log").mkdir()
    found = joining.list_others("lego", str(tmp_path / "launch_20261130-070000.log"), told, began)
    assert sorted(found) == [("n2", "10.0.0.2", "begun"), ("n3", "10.0.0.3", "joined")]
    assert joining.list_others("lego", "/nowhere/launch_20261130-070000.log", told, None) == ()


def test_who_is_missing():
    nodes = (RayNode("10.0.0.1", "n1.cluster"), RayNode("10.0.0.2", ""))
    others = (joining.Other("n2", "10.0.0.2", "joined"), joining.Other("n3", "10.0.0.3", "begun"))
    assert joining.find_missing(("n1", "n2", "n3", "n4"), others, nodes) == ("n3", "n4")
    assert joining.find_missing(("10.0.0.1", "10.0.0.4"), (), nodes) == ("10.0.0.4",)
    assert joining.find_missing((), others, nodes) == ("n3",)
    assert joining.find_missing(("n1", "n2"), others, ()) == ()  # nobody told who is there


def test_the_hosts_that_nodes_was_told(tmp_path):
    folder = tmp_path / "logs" / "rlrun" / "nodes"
    folder.mkdir(parents=True)
    (folder / "0123abcd.json").write_text(json.dumps({"hosts": ["n1", 7, "n2", "a b", "\x1b[1m", ["n3"]]}))
    (folder / "0000aaaa.json").write_text("[")
    assert joining.list_hosts(str(tmp_path), "0123abcd") == ("n1", "n2")
    for digest in ("0000aaaa", "ffffffff", "", "../x"):
        assert joining.list_hosts(str(tmp_path), digest) == ()


def test_how_long_the_head_waits_is_a_lower_limit(tmp_path):
    log = tmp_path / "launch.log"
    log.write_text(HEAD + STARTED)
    os.utime(str(log), (1000, 1000))
    told = read(HEAD + STARTED)
    left, words = joining.estimate_left(told, str(log), 1060.0)
    assert left == 240.0 and "60 times, 5 s apart" in words and "silent for 1m" in words
    assert joining.estimate_left(told, str(log), 9999.0)[0] == 0.0
    assert joining.estimate_left(told, str(log), 900.0)[0] is None  # the file server's clock is ahead
    assert joining.estimate_left(told, str(tmp_path / "none"), 1060.0)[0] is None
    assert joining.estimate_left(read(HEAD), str(log), 1060.0)[0] is None  # it does not look yet


def test_what_is_said():
    found = Joining(12, 1, ("10.0.0.1 (n1)",), tuple("n%d" % number for number in range(2, 13)), (("n2", "waits for the head"),
                    ("n\x1b9", "has begun")), "as Ray at 10.0.0.1:6380 tells", 240.4, "it looks")
    assert describe(found) == (
        "1 of 12 nodes joined, as Ray at 10.0.0.1:6380 tells: 10.0.0.1 (n1)",
        "missing: n2 (its log: waits for the head), n3, n4, n5, n6, n7, n8, n9 and 3 more",
        "by their logs: n\\x1b9 has begun", "the head waits 240 s more at least: it looks")
    assert tell_stage(found) == "waiting for nodes, 1 of 12 joined; missing: n2, n3, n4, n5, n6, n7, n8, n9 and 3 more"
    unknown = found._replace(joined=None, members=(), missing=(), others=(), told_by="no answer", left_seconds=None)
    assert describe(unknown) == ("how many of 12 nodes joined is unknown: no answer",
                                 "how long the head still waits is unknown: it looks")
    assert tell_stage(unknown) == "waiting for all 12 nodes to join (how many have: unknown, no answer)"
    done = found._replace(joined=12, missing=(), others=())
    assert len(describe(done)) == 1 and tell_stage(done) == "all 12 nodes joined; the head goes on at its next look"
    late = found._replace(left_seconds=0.0)
    assert describe(late)[-1] == "the head may give up at any moment: it looks"
    assert joining.shape(found)["left_seconds"] == 240.4 and joining.shape(None) is None
