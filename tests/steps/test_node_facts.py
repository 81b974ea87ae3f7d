"""What must be the same on every node: written, read whoever wrote it, and judged."""
import json
import os

import pytest
from steps.made import make_gpu, make_plan

from rlrun.errors import OperatorError
from rlrun.host.clock import Offset
from rlrun.steps import judge_node, node_facts
from rlrun.steps.judge_node import Reach
from rlrun.values import Git, GpuReading, Port, Topology

GIT = Git("a" * 40, "main", (), "", "")
READING = GpuReading("ok", "", (make_gpu(0), make_gpu(1)), (), ())
FACTS = node_facts.NodeFacts(
    "3f9c2a71", "n1", "a" * 40, "", "", {"c.env": "1", "run.sh": "2"}, "/v/bin/python3", "3.12.1",
    {"ray": "2.9.0", "torch": "2.4.0"}, "535.104.05", ("H100", "H100"), "", "10.0.0.1", "MASTER_ADDR", 6379, 8265, 1000.0, "",
    None, "1", ("n1", "n2"))
OPEN = Reach("open", "")
ON_SERVER = {"server": "filer:/x", "offset": Offset(-0.01, 0.01)}


BY_WEB = Offset(-1.0, 0.1)


def judge(reach=OPEN, web=BY_WEB, head=FACTS, **own):
    checks = judge_node.judge(head, FACTS._replace(host="n2", time_seconds=1030.0)._replace(**own), reach, web)
    return {check.name: check for check in checks if check.status != "pass"}, next(
        (check.detail for check in checks if check.name == "node:same"), "")


def test_all_is_the_same():
    found, same = judge()
    assert found == {} and same == ("as on the head n1: commit aaaaaaaaaaaa, config and 1 file that go with it, Python 3.12.1, "
                                    "2 packages, driver 535.104.05, 2 GPUs (2 H100), clock within 1.0 s, by the head's dashboard")


@pytest.mark.parametrize("own, name, words", [
    ({"commit": "b" * 40}, "node:commit", "commit bbbbbbbbbbbb here, aaaaaaaaaaaa on the head n1"),
    ({"dirty": "1"}, "node:commit", "modified here alone"),
    ({"files": {"c.env": "9", "run.sh": "2"}}, "node:config", "c.env (other bytes)"),
    ({"files": {"c.env": "absent", "run.sh": "2"}}, "node:config", "c.env (absent here)"),
    ({"files": {"run.sh": "2"}}, "node:config", "c.env (not read here)"),
    ({"python_version": "3.11.9"}, "node:python", "/v/bin/python3 (3.11.9) here, /v/bin/python3 (3.12.1) on the head"),
    ({"python": "/usr/bin/python3"}, "node:python", "/usr/bin/python3 (3.12.1) here"),
    ({"packages": {"ray": "2.10.0", "vllm": "0.6"}}, "node:packages",
     "3 of the runner's packages differ from the head's: ray 2.10.0 here, 2.9.0 there, torch absent here, 2.4.0 there, "
     "vllm 0.6 here, absent there"),
    ({"driver": "550.1"}, "node:driver", "550.1 here, 535.104.05 on the head"),
    ({"gpus": ("H100",)}, "node:gpus", "1 GPU (1 H100) here, 2 GPUs (2 H100) on the head"),
    ({"gpus": ("A100", "H100")}, "node:gpus", "2 GPUs (1 A100, 1 H100) here"),
    ({"time_seconds": 997.5}, "node:clock", "2s or more behind the head's"),
])
def test_a_difference_blocks_and_is_named(own, name, words):
    found, same = judge(**own)
    assert list(found) == [name] and found[name].status == "blocks" and words in found[name].detail and found[name].fix
    assert len(same.split(", ")) in (6, 7)


def test_at_most_ten_packages_are_named():
    packages = {"p%03d" % number: "1" for number in range(300)}
    detail = judge(packages=packages)[0]["node:packages"].detail
    assert detail.startswith("302 of") and detail.endswith("and 292 more") and detail.count(" here") == 10


@pytest.mark.parametrize("own, name", [
    ({"commit": "", "git_reason": "not a git repository", "dirty": None}, "node:commit"), ({"dirty": None}, "node:commit"),
    ({"python_version": ""}, "node:python"), ({"packages": None}, "node:packages"), ({"driver": ""}, "node:driver"),
    ({"gpus": None, "gpu_reason": "no nvidia-smi"}, "node:gpus")])
def test_what_is_unknown_is_no_pass_and_no_difference(own, name):
    for given in ({"head": FACTS._replace(**own)}, own, dict(own, head=FACTS._replace(**own))):
        found, same = judge(**given)
        assert list(found) == [name] and found[name].status == "advisory" and "not compared" in found[name].detail


@pytest.mark.parametrize("own, head, web, status, words", [
    ({}, {}, None, "advisory", "neither a file server of both nor an answer"),
    ({}, ON_SERVER, None, "advisory", "neither"),
    (dict(ON_SERVER, server="other:/x"), ON_SERVER, None, "advisory", "neither"),
    (dict(ON_SERVER, offset=None), ON_SERVER, None, "advisory", "neither"),
    (dict(ON_SERVER, offset=Offset(3.0, 3.01)), ON_SERVER, None, "blocks", "3.0 s or more ahead of the head's, by the file"),
    (dict(ON_SERVER, offset=Offset(-3.1, -3.0)), ON_SERVER, None, "blocks", "3.0 s or more behind the head's, by the file"),
    (ON_SERVER, ON_SERVER, Offset(5.0, 6.0), "blocks", "5.0 s or more ahead of the head's, by the head's dashboard"),
    ({}, {}, Offset(1.5, 2.5), "advisory", "may differ by 2.5 s"),
    (ON_SERVER, ON_SERVER, Offset(1.5, 2.5), "pass", "clock within 0.1 s, by the file server of both"),
    ({}, {}, Offset(-1.0, 0.0), "pass", "clock within 1.0 s"),
])
def test_the_clock_is_told_by_what_there_is(own, head, web, status, words):
    found, same = judge(web=web, head=FACTS._replace(**head), **own)
    if status == "pass":
        assert found == {} and words in same
    else:
        assert list(found) == ["node:clock"] and found["node:clock"].status == status and words in found["node:clock"].detail
        assert "clock" not in same


@pytest.mark.parametrize("reach, status, words", [
    (Reach("refused", "connection refused"), "advisory", "does not listen at 10.0.0.1:6379 yet"),
    (Reach("unreachable", "no route to host"), "blocks", "10.0.0.1:6379: no route to host"),
    (Reach("", ""), "advisory", "not tried")])
def test_the_head_is_reached_or_not(reach, status, words):
    found, _ = judge(reach=reach)
    assert list(found) == ["node:unreachable"] and found["node:unreachable"].status == status
    assert words in found["node:unreachable"].detail


def test_gathered_written_and_read(tmp_path):
    venv, root = tmp_path / "site", tmp_path / "c"
    for name in ("ray-2.9.0.dist-info", "PyYAML-5.4.1-py3.6.egg-info", "My.Odd_Name-1.0+cu12.dist-info", "broken.dist-info"):
        (venv / name).mkdir(parents=True)
    (root / "logs").mkdir(parents=True)
    config = root / "c.env"
    config.write_text("A=1\n")
    plan = make_plan(root=str(root), sources=(str(config), "/etc/nothing-like-it"), argv=("bash", "c.env"),
                     environment={"PYTHONPATH": str(venv), "PATH": os.environ["PATH"], "API_KEY": "sk-secret"},
                     topology=Topology(2, "", "MASTER_ADDR", 6379, ""), ports=(Port(6379, "ray"), Port(8265, "ray dashboard")))
    facts = node_facts.finish(node_facts.start(plan, READING), plan, GIT, READING, "3f9c2a71", "10.0.0.1", ("n1", "n2"))
    assert {"ray": "2.9.0", "pyyaml": "5.4.1", "my-odd-name": "1.0+cu12"}.items() <= (facts.packages or {}).items()
    assert facts.python_version.startswith("3.") and set(facts.files) == {"c.env", "/etc/nothing-like-it"}
    assert (facts.gpus, facts.port, facts.dashboard, facts.dirty) == (("H100", "H100"), 6379, 8265, "")
    node_facts.prepare(str(root))
    path = node_facts.write(str(root), facts)
    assert node_facts.write(str(root), facts) == path == str(root / "logs/rlrun/nodes/3f9c2a71.json")
    assert os.stat(path).st_mode & 0o777 == 0o600 and "sk-secret" not in open(path).read()
    assert node_facts.read(str(root), "3f9c2a71") == facts and os.listdir(os.path.dirname(path)) == ["3f9c2a71.json"]
    from rlrun.steps import records
    assert records.list_names(str(root)) == []  # it is no launch


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "[" * 100000, json.dumps({"schema": 1, "rlrun_file": "approved plan"}),
                                  '{"schema": 1, "rlrun_file": "facts of a run\'s head", "time_seconds": "x"}',
                                  '{"schema": 1, "rlrun_file": "facts of a run\'s head", "time_seconds": %s}' % ("9" * 5000)])
def test_garbage_is_no_facts(text, tmp_path):
    (tmp_path / "logs/rlrun/nodes").mkdir(parents=True)
    (tmp_path / "logs/rlrun/nodes/3f9c2a71.json").write_text(text)
    with pytest.raises(OperatorError, match="does not hold the facts") as told:
        node_facts.read(str(tmp_path), "3f9c2a71")
    assert told.value.code == 5 and "nodes CONFIG --check" in told.value.hint


def test_values_of_other_types_are_unknown():
    shape = {"schema": 1, "rlrun_file": "facts of a run's head", "time_seconds": 5, "digest": 7, "files": [],
             "packages": {"a": 1, "b": "2"}, "gpus": [1, {}], "port": True, "dashboard": 1 << 40, "offset": ["a", 1],
             "hosts": "n1", "dirty": 0}
    found = node_facts.parse(json.dumps(shape))
    assert found and (found.digest, found.files, found.packages, found.gpus, found.port, found.dashboard, found.offset,
                      found.hosts, found.dirty) == ("", {}, {"b": "2"}, None, 0, 0, None, (), None)


def test_what_can_not_be_written_or_read_says_what_to_do(tmp_path):
    for word in ("", "xyz", "../../x", "3f9c2a7"):
        with pytest.raises(OperatorError) as told:
            node_facts.read(str(tmp_path), word)
        assert told.value.code == 2
    with pytest.raises(OperatorError, match="are not here") as told:
        node_facts.read(str(tmp_path), "3f9c2a71")
    assert told.value.code == 5
    folder = tmp_path / "logs/rlrun"
    folder.mkdir(parents=True)
    (folder / "nodes").symlink_to(tmp_path)
    with pytest.raises(OperatorError, match="it is a link") as told:
        node_facts.prepare(str(tmp_path))
    (folder / "nodes").unlink()
    (folder / "nodes/3f9c2a71.json").mkdir(parents=True)
    with pytest.raises(OperatorError, match="something else is there"):
        node_facts.write(str(tmp_path), FACTS)
    with pytest.raises(OperatorError, match="Is a directory"):
        node_facts.read(str(tmp_path), "3f9c2a71")
