"""What prime-rl is sure to refuse, told ahead of time; and what leads to an evening lost."""
import json
import os
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from rlrun.commands import explain
from rlrun.stacks import prime_judge
from rlrun.stacks.prime_judge import Own, judge_config, judge_live
from rlrun.stacks.prime_plan import Resume
from rlrun.stacks.prime_rundir import read_run_dir
from rlrun.values import GpuReading
from steps.made import make_gpu, make_machine, make_plan, make_process

NOT = Resume(False, None, "")
RL = {"inference": {"server": {"port": 8000}}, "trainer": {"ckpt": {"interval": 5}}}
KNOWN = {entry.name: entry.status for entry in explain.read_entries()}
MACHINE = make_machine()


@pytest.fixture(autouse=True)
def environ(tmp_path, monkeypatch):
    for name in ("WANDB_API_KEY", "WANDB_MODE", "NETRC", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return monkeypatch


@pytest.fixture
def run_dir(tmp_path):
    return str(tmp_path / "outputs" / "x")


def write(path, text="", mode=0o644):
    os.makedirs(os.path.dirname(str(path)), exist_ok=True)
    with open(str(path), "w") as out:
        out.write(text)
    os.chmod(str(path), mode)
    return str(path)


def make(kind="rl", data=RL, run_dir="", ckpt_dir="", resume=NOT, cleans=False, url="", **more):
    run = read_run_dir(run_dir, ckpt_dir or run_dir) if run_dir else None
    return make_plan(**dict(dict(stack="prime", kind=kind, takes_whole_box=False, run_dir=run_dir, gpu_count=None,
                                 own=Own(data, run, resume, cleans, url, "uv run --no-sync", os.path.dirname(run_dir), tuple(
                                     path for path in (run_dir, ckpt_dir) if cleans and os.path.lexists(path)))), **more))


def judge(plan, machine=MACHINE):
    """{name: check}, each with a known name and status."""
    checks = judge_live(plan, machine)
    for check in checks:
        assert check.name in KNOWN and check.detail
        assert check.status != "blocks" or (check.fix and KNOWN[check.name] == "blocks")
    assert len({check.name for check in checks}) == len(checks)
    return {check.name: check for check in checks}


def test_a_new_directory_passes(run_dir):
    assert judge(make(run_dir=run_dir)) == {}
    write(run_dir + "/configs/trainer.json")
    write(run_dir + "/job_5.log")
    assert judge(make(run_dir=run_dir)) == {} == judge(make(kind="inference"))
    assert judge(make(run_dir=run_dir, ckpt_dir=run_dir + "-ckpt")) == {}


def test_a_used_directory_is_refused_with_the_three_ways_out(run_dir):
    for name in ("logs", "rollouts", "weights", "broadcasts", "a\x1b[31m"):
        os.makedirs("%s/%s" % (run_dir, name))
    found = judge(make(run_dir=run_dir))["run:exists"]
    assert found.status == "blocks" and run_dir in found.detail and "\x1b" not in found.detail and "\u2026" in found.detail
    assert all(word in found.fix for word in ("--resume (there is no checkpoint yet)", "--run.name NAME", "--clean"))
    os.makedirs(run_dir + "/checkpoints/step_10")
    os.makedirs(run_dir + "/checkpoints/step_9")
    assert "--resume (from step 10)" in judge(make(run_dir=run_dir))["run:exists"].fix


def test_checkpoints_elsewhere_are_refused_too(run_dir, tmp_path):
    elsewhere = str(tmp_path / "ckpt")
    os.makedirs(elsewhere + "/checkpoints")
    assert judge(make(run_dir=run_dir, ckpt_dir=elsewhere)) == {}
    write(elsewhere + "/checkpoints/note.txt")  # anything in it will do (pathing.py, has_checkpoints)
    assert elsewhere in judge(make(run_dir=run_dir, ckpt_dir=elsewhere))["run:exists"].detail
    os.makedirs(elsewhere + "/checkpoints/step_3")
    assert "from step 3" in judge(make(run_dir=run_dir, ckpt_dir=elsewhere))["run:exists"].fix
    assert judge(make(run_dir=run_dir, ckpt_dir=elsewhere, cleans=True)) == {}


def test_a_resume_from_what_is_not_whole_or_over(run_dir):
    for step in (10, 20):
        os.makedirs("%s/checkpoints/step_%d/trainer" % (run_dir, step))
    write(run_dir + "/checkpoints/step_10/trainer/.metadata")
    resume = Resume(True, 20, run_dir + "/checkpoints/step_20")
    data = dict(RL, max_steps=20)
    found = judge(make(run_dir=run_dir, resume=resume, data=data))
    assert found["resume:unfinished"].fix == "Take an older one: --resume.step 10"
    assert "nothing is left" in found["resume:done"].detail
    assert judge(make(run_dir=run_dir, resume=Resume(True, 10, run_dir + "/checkpoints/step_10"), data=data)) == {}


def test_the_commands_that_the_launcher_starts(tmp_path):
    for name in ("torchrun", "orchestrator", "env-server"):
        write(tmp_path / "v/bin" / name, "#!/bin/sh\n", 0o755)
    found = judge(make(venv=str(tmp_path / "v")))["runner:part"]
    assert found.status == "blocks" and "no command inference," in found.detail
    assert judge(make(venv=str(tmp_path / "v"), data={"orchestrator": {}, "trainer": {}})) == {}


@pytest.mark.parametrize("word, name, status", [
    ("8,9", "gpu:few", "blocks"), ("0,0", "gpu:few", "blocks"), ("a,b", "gpu:uuid", "advisory"), ("0,1", "", "")])
def test_gpus_that_are_not_there(word, name, status):
    machine = make_machine(gpus=GPUS)
    found = judge(make(gpu_count=2, environment={"CUDA_VISIBLE_DEVICES": word}), machine)
    assert [(one.name, one.status) for one in found.values() if one.name.startswith("gpu:")] == ([(name, status)] if name else [])


def test_clean_refuses_what_it_can_not_delete_whole(run_dir, tmp_path):
    """It deletes the run's directory first, and then fails at the link."""
    (tmp_path / "big").mkdir()
    os.symlink(str(tmp_path / "big"), str(tmp_path / "ckpt"))
    assert "is a link" in judge(make(run_dir=run_dir, ckpt_dir=str(tmp_path / "ckpt"), cleans=True))["run:clean"].detail
    write(run_dir, "a file")
    assert "is no directory" in judge(make(run_dir=run_dir, cleans=True))["run:clean"].detail
    os.unlink(run_dir)
    plan = make(run_dir=run_dir, cleans=True)
    assert judge(plan) == {}
    os.makedirs(run_dir)  # between the yes and the launch
    assert "was not there when this plan was made" in judge(plan)["run:clean"].detail
    assert judge(make(run_dir=run_dir, cleans=True)) == {}
    outside = plan._replace(own=plan.own._replace(output_dir=str(tmp_path / "other"), doomed=(run_dir,)))
    assert "does not lie in the output directory" in judge(outside)["run:clean"].detail


def test_what_happened_since_the_plan_was_made_counts(run_dir):
    plan = make(run_dir=run_dir)
    os.makedirs(run_dir + "/logs")
    assert "run:exists" in judge(plan)


def test_resuming(run_dir, tmp_path):
    os.makedirs(run_dir + "/checkpoints/step_10")
    os.makedirs(run_dir + "/logs")
    assert judge(make(run_dir=run_dir, resume=Resume(True, 10, run_dir + "/checkpoints/step_10"))) == {}
    found = judge(make(run_dir=run_dir, resume=Resume(True, 5, run_dir + "/checkpoints/step_5")))
    assert list(found) == ["resume:missing"] and "step_5" in found["resume:missing"].detail
    assert found["resume:missing"].fix.endswith(" there are: step_10")
    found = judge(make(run_dir=run_dir, resume=Resume(True, None, "")))
    assert [check.status for check in found.values()] == ["advisory"] and "resume:none" in found
    assert "none" in judge(make(run_dir=str(tmp_path / "new"), resume=Resume(True, 5, "/none/step_5")))["resume:missing"].fix


@pytest.mark.parametrize("words, blocks", [
    ("uv run rl @ rl.toml --output-dir {outputs} --run.name x", True),
    ("python -m prime_rl.trainer.rl.train @ {run}/configs/trainer.json", True),
    ("uv run rl @ rl.toml --output-dir {outputs} --run.name y", False), ("vim {run}/configs/trainer.json", False),
    ("uv run rl @ rl.toml --output-dir {outputs} --run.name x --dry-run", False)])
def test_a_run_that_lives_there(run_dir, words, blocks):
    os.makedirs(run_dir + "/checkpoints/step_1")
    os.makedirs(run_dir + "/logs")
    argv = words.format(outputs=os.path.dirname(run_dir), run=run_dir).split()
    machine = make_machine([make_process(4000077, *argv)])
    for more, word in ((dict(cleans=True), "delete it under it"),
        (dict(resume=Resume(True, 1, run_dir + "/checkpoints/step_1")), "beside")):
        found = judge(make(run_dir=run_dir, **more), machine)
        assert ("job:running" in found) is blocks
        assert not blocks or (word in found["job:running"].detail and "4000077" in found["job:running"].detail)
    assert list(judge(make(run_dir=run_dir), machine)) == ["run:exists"]


@pytest.mark.parametrize("state, blocks", [("RUNNING", True), ("PENDING", True), ("COMPLETING", True), ("COMPLETED", False),
    ("FAILED", False)])
def test_a_job_of_the_run_that_is_not_over(run_dir, tmp_path, state, blocks):
    write(run_dir + "/job_41.log")
    write(tmp_path / "bin/squeue", "#!/bin/sh\necho '41|41|%s|n1|0:05|1:00|None'\n" % state, 0o755)
    found = judge(make(run_dir=run_dir, cleans=True))
    assert ("job:running" in found) is blocks
    assert not blocks or ("41" in found["job:running"].detail and "scancel 41" in found["job:running"].fix)
    assert judge(make(run_dir=run_dir)) == {}  # a launch into it is prime-rl's to refuse, and a job log alone is none


def test_a_directory_that_cant_be_written(run_dir):
    write(os.path.dirname(run_dir), "a file")
    found = judge(make(run_dir=run_dir))["run:unwritable"]
    assert found.status == "blocks" and run_dir in found.detail and "--output-dir" in found.fix


def test_a_submission_takes_nothing_here(tmp_path):
    found = judge(make(is_submission=True, launch_command="sbatch /o/x/rl.sbatch", gpu_count=0,
                       environment={"CUDA_VISIBLE_DEVICES": "GPU-1"}))
    assert found == {}, "whether Slurm takes it is judged for all stacks in one place"


GPUS = GpuReading("ok", "", tuple(make_gpu(index) for index in range(2)), (), ())


@pytest.mark.parametrize("kind, data, visible, count, names", [
    ("rl", RL, "0,1", 2, []), ("rl", RL, "0", 2, ["gpu:few"]), ("rl", RL, "", 1, ["gpu:few"]), ("rl", RL, "", 0, []),
    ("rl", RL, "0, 1,,", 2, []),
    ("rl", RL, None, 2, []), ("rl", RL, None, 3, ["gpu:few"]), ("rl", RL, None, None, []), ("rl", RL, "0", None, []),
    ("rl", RL, "GPU-1,GPU-0", 2, ["gpu:uuid"]), ("rl", RL, "MIG-x", 2, ["gpu:few", "gpu:uuid"]),
    ("rl", RL, "gpu-0,1", 2, ["gpu:uuid"]),
    ("sft", {"inference": {}}, "0", 2, []), ("sft", {"inference": {"a": 1}}, "0", 2, ["gpu:few"]), ("sft", {}, None, 3, []),
    ("sft", {}, "GPU-1", 1, ["gpu:uuid"]), ("inference", {}, "GPU-1", 2, []), ("evals", {}, "GPU-1", 0, [])])
def test_gpus(kind, data, visible, count, names):
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    found = judge(make(kind, data, gpu_count=count, environment=environment), make_machine(gpus=GPUS))
    assert sorted(found) == names
    assert "gpu:few" not in found or found["gpu:few"].status == "blocks"
    if visible == "GPU-1,GPU-0":
        assert found["gpu:uuid"].status == "advisory" and "CUDA_VISIBLE_DEVICES=1,0" in found["gpu:uuid"].fix


def test_gpus_that_nobody_counted():
    for state in ("absent", "failed", "timeout"):
        assert judge(make(gpu_count=8), make_machine(gpus=GpuReading(state, "", (), (), ()))) == {}


@pytest.fixture
def server():
    """Its address; it serves one model."""
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body = json.dumps({"data": [{"id": "o/M"}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words):
            pass
    made = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield "http://127.0.0.1:%d/v1" % made.server_port
    made.shutdown()
    thread.join()
    made.server_close()


def test_a_server_that_answers(server):
    found = judge(make("evals", {"model": "o/M"}, url=server))
    assert list(found) == ["server:up"] and found["server:up"].status == "pass" and "o/M" in found["server:up"].detail
    found = judge(make("evals", {"model": "other"}, url=server))
    assert list(found) == ["server:model"]
    assert found["server:model"].status == "advisory" and "other" in found["server:model"].detail
    assert list(judge(make("rl", {"model": {"name": "other"}}, url=server))) == ["server:up"]


def test_a_server_that_does_not():
    with socket.socket() as one:  # bound and not listening: refused
        one.bind(("127.0.0.1", 0))
        url = "http://127.0.0.1:%d/v1" % one.getsockname()[1]
        found = judge(make("evals", {"model": "m"}, url=url))["server:down"]
        assert found.status == "blocks" and url in found.detail and "an inference config" in found.fix
        assert judge(make("rl", {"trainer": {}}, url=url))["server:down"].status == "advisory"
        assert judge(make("rl", RL, url=url)) == {} == judge(make("rl", {}, url=url)) == judge(make("sft", {}, url=url))
        assert judge(make("evals", {}, url="")) == {}
        assert "server:down" not in judge(make("rl", {"trainer": {}}, url=url, is_submission=True))


def advice(plan):
    checks = judge_config(plan)
    assert all(check.name in KNOWN and check.status in ("advisory", "pass") for check in checks)
    return [check.name for check in checks]


WANDB = {"monitors": {"wandb": {"project": "p"}}}


@pytest.mark.parametrize("kind, data, names", [
    ("rl", RL, []), ("rl", {}, []), ("rl", dict(RL, trainer={"ckpt": None}), ["ckpt:none"]),
    ("rl", dict(RL, trainer={"ckpt": {}}), ["ckpt:none"]),
    ("rl", {"trainer": {"ckpt": {"x": 1}}, "inference": None}, ["server:external"]), ("sft", {"model": {}}, ["ckpt:none"]),
    ("sft", {"ckpt": {"x": 1}}, []), ("rl", dict(RL, **WANDB), ["wandb:key"]), ("sft", dict(WANDB, ckpt={"x": 1}), ["wandb:key"]),
    ("rl", dict(RL, trainer=dict(WANDB, ckpt={"x": 1})), ["wandb:key"]),
    ("rl", dict(RL, monitors={"wandb": {"offline": True}}), []),
    ("rl", dict(RL, monitors={"wandb": None}), []), ("rl", dict(RL, monitors=None), []), ("inference", dict(WANDB), []),
    ("evals", {}, []),
    # where prime-rl's own code could not be asked, a bare --monitors.wandb is only a word
    ("rl", dict(RL, monitors={"wandb": True}), ["wandb:key"]), ("rl", dict(RL, monitors=True), []),
    ("rl", {"trainer": True, "inference": {"a": 1}, "monitors": {"wandb": "x"}}, ["wandb:key"])])
def test_what_a_config_says(kind, data, names):
    assert advice(make(kind, data)) == ["runner:words"] + names


@pytest.mark.parametrize("name, value", [("WANDB_API_KEY", "k"), ("WANDB_MODE", "offline"), ("WANDB_MODE", "disabled"),
    ("NETRC", "{tmp}/n"),
                                         ("HOME", "{tmp}/h")])
def test_a_key_of_wandb(environ, tmp_path, name, value):
    for place in ("n", "h/.netrc"):
        write(tmp_path / place, "machine api.wandb.ai login user password secret\n")
    assert "wandb:key" in advice(make("rl", dict(RL, **WANDB)))
    environ.setenv(name, value.format(tmp=tmp_path))
    assert "wandb:key" not in advice(make("rl", dict(RL, **WANDB)))


def test_a_key_of_another_machine_is_none(environ, tmp_path):
    environ.setenv("NETRC", write(tmp_path / "netrc", "machine github.com login user password secret\n"))
    found, = [check for check in judge_config(make("rl", dict(RL, **WANDB))) if check.name == "wandb:key"]
    assert found.status == "advisory" and str(tmp_path / "netrc") in found.detail and "secret" not in found.detail
    assert prime_judge.judge_config(make("evals", {}))[0].detail == "uv run --no-sync"
