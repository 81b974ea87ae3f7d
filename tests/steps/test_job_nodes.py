"""How the nodes of a job are: written, read back whoever wrote it, and told in words."""
import json

import pytest

from rlrun.steps import job_nodes
from rlrun.steps.job_nodes import NodeState


def make_state(node, phase, **given):
    values = dict(host="n%d" % (node + 1), job="12", restart=0, address="10.0.0.%d" % (node + 1),
                  role="worker" if node else "head", time_seconds=100.0 + node)
    values.update(given)
    return NodeState(node=node, phase=phase, **values)


def test_what_a_node_writes_is_read_back(tmp_path):
    full = make_state(0, "ended", blocking=({"name": "a", "detail": "b", "fix": "c"},), warnings=("gpu:unknown",),
                      log=str(tmp_path / "logs" / "l"),
                      runner={"pid": 7, "start_ticks": 8, "pgid": 7}, agent={"pid": 6, "start_ticks": 5},
                      exit={"status": 3, "signal": None, "told": ""})
    folder = tmp_path / "logs" / "rlrun" / "r"
    job_nodes.write_node(str(folder), full)
    job_nodes.write_node(str(folder), make_state(1, "joined", log="/etc/passwd"))
    assert job_nodes.read_nodes(str(folder)) == (full, make_state(1, "joined")), "a log is one of the checkout's, or none"
    assert job_nodes.read_node(str(folder), 0) == full and job_nodes.read_node(str(folder), 2) is None
    assert json.loads((folder / "nodes" / "0000.json").read_text())["schema"] == 1


def test_what_is_left_of_an_earlier_start_is_no_state_of_this_one(tmp_path):
    for state in (make_state(0, "ended"), make_state(1, "joined"), make_state(0, "checking", restart=1, time_seconds=200.0)):
        job_nodes.write_node(str(tmp_path), state)
    assert [(one.node, one.restart) for one in job_nodes.read_nodes(str(tmp_path))] == [(0, 1)]
    assert job_nodes.describe_nodes(job_nodes.read_nodes(str(tmp_path)), 2) == "1 of 2 checking; 1 not begun"


def test_a_clock_that_is_ahead_hides_no_node(tmp_path):
    for state in (make_state(1, "joined", time_seconds=9e9), make_state(0, "running", restart=1, time_seconds=200.0)):
        job_nodes.write_node(str(tmp_path), state)
    assert [(one.node, one.restart) for one in job_nodes.read_nodes(str(tmp_path))] == [(0, 1)]


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '{"phase": "new"}', '{"phase": 3}', "\0" * 90, '{"phase": {"a": 1}}'])
def test_garbage_is_left_out(tmp_path, text):
    job_nodes.write_node(str(tmp_path), make_state(0, "running"))
    for name in ("0001.json", "x.json", "0002.txt", "99999999999.json"):
        (tmp_path / "nodes" / name).write_text(text)
    (tmp_path / "nodes" / "0003.json").mkdir()
    assert [one.node for one in job_nodes.read_nodes(str(tmp_path))] == [0]


def test_a_value_of_another_type_is_not_known(tmp_path):
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes" / "0004.json").write_text(json.dumps({
        "phase": "blocked", "host": 7, "job": [], "restart": "x", "blocking": ["no", {"name": 3, "detail": None}],
        "warnings": "w", "runner": [1], "agent": {"pid": [2], "start_ticks": 3}, "log": "/a\0b", "exit": 5, "time_seconds": "now",
        "role": "head"}))
    told, = job_nodes.read_nodes(str(tmp_path))
    assert told == NodeState(4, "", "", 0, "", "worker", "blocked", ({"name": "3", "detail": "", "fix": ""},),
                             agent={"start_ticks": 3})
    assert job_nodes.describe_nodes((told,), 5) == "node 4 blocked (3); 4 not begun"


def test_the_nodes_in_words():
    describe = job_nodes.describe_nodes
    assert describe((), 2) == "none of 2 has begun"
    assert describe((make_state(0, "running"), make_state(1, "joined")), 2) == "1 of 2 running, 1 of 2 joined"
    blocked = make_state(1, "blocked", blocking=({"name": "gpu:foreign", "detail": "pid 5", "fix": ""},))
    assert describe((make_state(0, "checked"), blocked), 2) == "1 of 2 checked; n2 blocked (gpu:foreign  pid 5)"
    assert describe(tuple(make_state(node, "blocked") for node in range(6)), 6) == (
        "n1, n2, n3, n4 and 2 more blocked (why is not told)")
    assert describe(tuple(make_state(node, "blocked", blocking=({"name": str(node), "detail": "", "fix": ""},) * 3)
                          for node in range(6)), 7).endswith("n4 blocked (3; 3; and 1 more); 2 more blocked; 1 not begun")
