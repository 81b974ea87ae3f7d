"""How a Lego-RL run is doing: which log is which, what it was set up to do, its checkpoints, the other nodes' directories."""
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rlrun.host import procs
from rlrun.stacks import lego_health as lego
from rlrun.values import Process
from rlrun.vitals import Outline

RECORDED = Path(__file__).resolve().parent.parent / "recorded" / "lego"


# Which log is which.
def write(path, text="x\n", age=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    if age is not None:
        os.utime(str(path), (1.7e9 - age, 1.7e9 - age))
    return str(path)


def test_logs(tmp_path):
    own, launch = str(tmp_path / "e.log"), write(tmp_path / "launch.log", "sweep\n", age=0)
    told = {"train_log": own, "launch_log": launch, "vllm_log": None}
    assert lego.list_logs("train", told) == {"train": launch, "launch": launch}  # the trainer has not begun
    write(tmp_path / "e.log", age=3600)
    write(tmp_path / "e_vllm.log")
    found = lego.list_logs("train", told)
    vllm = str(tmp_path / "e_vllm.log")
    assert list(found.items()) == [("train", launch), ("launch", launch), ("vllm", vllm)]  # e.log is an earlier run's
    write(tmp_path / "launch.log", "sweep\nx\ndone\n", age=0)
    write(tmp_path / "e.log", "x\n", age=3600)
    assert next(iter(lego.list_logs("train", told).items())) == ("train", own)  # both hold its last line: it only stands still
    write(tmp_path / "e.log", age=0)
    assert next(iter(lego.list_logs("train", told).items())) == ("train", own)
    assert next(iter(lego.list_logs("eval", told))) == "eval" and lego.list_logs("infer", told)["infer"] == own
    assert lego.list_logs("train", {"train_log": own, "launch_log": str(tmp_path / "gone")})["train"] == own
    assert lego.list_logs("train", {"launch_log": launch}) == {"train": launch, "launch": launch}
    assert lego.list_logs("train", {}) == {} and lego.list_logs("train", {"train_log": "a\0b"}) == {"train": "a\0b"}


@pytest.mark.parametrize("log", ["t/p/e/logs/e.log", "t/p/e/e.log", "logs/e.log"])
def test_logs_by_a_runs_directory(tmp_path, log):
    assert lego.list_logs("", {"run_dir": str(tmp_path / "t/p/e")}) == {}
    path = write(tmp_path / log)
    for folder in ("t/p/e", "t/p/e/", "t/p/e/logs"):
        assert lego.list_logs("", {"run_dir": str(tmp_path / folder)}) == {"train": path}
    write(tmp_path / "x/y/z/job_12.log")
    write(tmp_path / "x/y/z/logs/trainer.log")
    assert lego.list_logs("", {"run_dir": str(tmp_path / "x/y/z")}) == {}


def make(pid, *argv):
    return Process(pid, 1, pid, pid, 0, "S", 5, 1.0, "x", tuple(argv))


def trace(tree, fds=(), cwds=()):
    return lego.trace_run(tree, lambda pid, number: dict(fds).get((pid, number)), lambda pid: dict(cwds).get(pid))


def test_a_run_that_nobody_recorded_is_traced(tmp_path):
    root = tmp_path / "a checkout"
    write(root / "scripts/lib/preflight.sh")
    write(root / "scripts/train/train.sh")
    head = (RECORDED / "launch_sync.log").read_text(encoding="utf-8")
    out = write(root / "foo.out", head)
    runner = make(7, "bash", "scripts/train/train.sh", "scripts/train/configs/demo.env")
    known = {"kind": "train", "root": str(root), "config": str(root / "scripts/train/configs/demo.env"), "launch_log": out,
             "vllm_log": "/srv/lego/logs/demo_vllm.log", "trials": "/srv/trials/swe/demo", "nodes": 1}
    cwds = {7: str(root), 9: str(root)}
    assert trace([runner], {(7, 1): out}, cwds) == dict(known, train_log="/srv/lego/logs/demo.log")
    tee = make(9, "tee", "logs/e.log", "/dev/fd/63")
    assert trace([runner, tee], {(7, 1): out}, cwds)["train_log"] == str(root / "logs/e.log")
    assert trace([runner, tee], {(7, 1): out, (9, 3): "/real/logs/e.log"}, cwds)["train_log"] == "/real/logs/e.log"
    for link in ("pipe:[7]", "/dev/pts/3", "/x/gone.out (deleted)", None):
        assert trace([runner, tee], {(7, 1): link}, cwds) == {
            "kind": "train", "root": str(root), "config": known["config"], "train_log": str(root / "logs/e.log")}
    assert trace([runner], {(7, 1): "pipe:[7]", (7, 2): out}, cwds)["launch_log"] == out
    trainer = make(8, "python3", "-m", "verl.trainer.main_ppo")
    assert trace([trainer, tee], {}, {8: "/w", 9: "/w"}) == {"kind": "train", "root": "/w", "train_log": "/w/logs/e.log"}
    assert trace([], {}, {}) == {} and trace([make(3, "tee", "x.log")], {}, {}) == {}


def test_a_live_run_is_traced_by_its_real_descriptors(tmp_path):
    root = tmp_path / "c"
    write(root / "scripts/lib/preflight.sh")
    write(root / "scripts/train/train.sh", '{ cat; } 2>&1 | tee "$1.log" >(cat > /dev/null)\n')
    (root / "logs").mkdir()
    with open(str(root / "foo.out"), "wb") as out:
        run = subprocess.Popen(["bash", "scripts/train/train.sh", "logs/e"], cwd=str(root), stdin=subprocess.PIPE, stdout=out,
                               stderr=out)
    try:
        run.stdin.write(b"ready\n")
        run.stdin.flush()
        deadline = time.monotonic() + 60
        while not (root / "logs/e.log").is_file() or not (root / "logs/e.log").stat().st_size:
            assert run.poll() is None and time.monotonic() < deadline
        table = procs.read_processes()
        tree = [table[pid] for pid in sorted(procs.find_descendants(table, [run.pid])) if pid in table]
        found = lego.trace_run(tree, procs.read_fd, procs.read_cwd)
    finally:
        run.stdin.close()
        run.wait()
    assert found == {"kind": "train", "root": str(root), "config": str(root / "logs/e"), "launch_log": str(root / "foo.out"),
                     "train_log": str(root / "logs/e.log")}


# What the run was set up to do.
def outline(name, kind="train", **told):
    return lego.read_outline(kind, (RECORDED / (name + ".log")).read_bytes(), told)


def test_outline_of_a_synchronous_run():
    found = outline("launch_sync")
    assert found == Outline(
        120, "Total training steps in its log", 3, 1, ("r3",), "/srv/lego/checkpoints/swe/demo", "/srv/trials/swe/demo",
        found.block, 5, None)
    assert found.block.startswith("═") and "  schedule     save_freq=5" in found.block and found.block.endswith("═")


def test_total_of_a_fully_asynchronous_run_is_in_the_unit_of_its_step_lines():
    assert outline("launch_async")[:4] == (30, "total_train_steps in its log", 3, 3)
    untold = outline("launch_async_untold")
    assert untold.total is None and "asynchronous" in untold.total_from  # 7680 are samples


def test_outline_looks_into_the_trainers_log_and_believes_no_other(tmp_path):
    text = (RECORDED / "launch_sync.log").read_text(encoding="utf-8")
    head = text[:text.index("Stopped only")]
    own = write(tmp_path / "e.log", "x\rTraining Progress:   3%|▎   | 3/100 [00:10<05:23]\n", age=0)
    launch = write(tmp_path / "l.log", head, age=0)
    assert lego.read_outline("train", head, {"train_log": own, "launch_log": launch})[:2] == (100, "the progress bar in its log")
    write(tmp_path / "e.log", "Total training steps: 9\n", age=3600)
    assert lego.read_outline("train", head, {"train_log": own, "launch_log": launch}).total is None  # an earlier run's
    word = head.replace("trainer.save_freq=5", "trainer.save_freq=-1 trainer.total_training_steps=55")
    found = lego.read_outline("train", word, {})
    assert (found.total, found.save_every) == (55, None) and "launch command" in found.total_from


def test_outline_of_a_trainers_log_alone():
    text = ("\x1b[36m(TaskRunner pid=3)\x1b[0m  {'actor_rollout_ref': {'rollout': {'enable_rollout_routing_replay': True,\n"
            "(TaskRunner pid=3)  'trainer': {'default_local_dir': '/ck/a', 'save_freq': 20, 'total_epochs': 2}\n"
            "(TaskRunner pid=3) Total training steps: 44\n")
    assert lego.read_outline("train", text, {}) == Outline(
        44, "Total training steps in its log", 2, 1, ("r3",), "/ck/a", "", "", 20, None)
    assert lego.read_outline("train", "", {}) == Outline() and lego.read_outline("train", b"\xff\0", {}) == Outline()


def test_routing_replay_is_off_where_the_launch_command_says_so():
    text = (RECORDED / "launch_sync.log").read_text(encoding="utf-8")
    assert lego.read_outline("train", text.replace("routing_replay=True", "routing_replay=False"), {}).flags == ("r3:off",)
    assert lego.read_outline("train", text.replace("ENABLE_R3=True", "ENABLE_R3=False"), {}).flags == ("r3",)


def test_outline_of_an_eval():
    found = outline("launch_eval", "eval")
    assert found[:7] == (None, "", None, 1, (), "", "/srv/jobs") and found.block.startswith("=== Launching Harbor eval ===")


def test_checkpoints(tmp_path):
    folder = tmp_path / "100% done"
    found = Outline(checkpoints=str(folder))
    assert lego.find_checkpoint(found, {}) is None and lego.find_checkpoint(Outline(), {}) is None
    for step in (5, 10, 15, 20):
        write(folder / ("global_step_%d" % step) / "data.pt")
    for step in (5, 10, 20):
        (folder / ("global_step_%d" % step) / "actor").mkdir()
    write(folder / "global_step_x" / "actor" / "y")
    assert lego.find_checkpoint(found, {}) is None  # nothing says that one is whole
    tracker = folder / "latest_checkpointed_iteration.txt"
    for text, step in (("10\n", 10), ("15", 15), ("17", 10), ("5", 5), ("4", None), ("", None), ("-1", None), ("x", None)):
        tracker.write_text(text)
        checkpoint = lego.find_checkpoint(found, {})
        assert (checkpoint and checkpoint.step) == step, text
    tracker.write_text("10")
    checkpoint = lego.find_checkpoint(found, {})
    assert checkpoint.path == str(folder / "global_step_10")
    assert checkpoint.incomplete == (str(folder / "global_step_15"), str(folder / "global_step_20"))


# The other nodes' directories.
def build_run(trials, name, has_trainer=False):
    write(trials / name / "logs" / (name + "_train_gpu_wandb.log"))
    if has_trainer:
        write(trials / name / "logs" / (name + ".log"))
    return str(trials / name)


def test_siblings(tmp_path):
    build_run(tmp_path, "e-20260802-131455", True)
    told = {"train_log": str(tmp_path / "e-20260802-131455/logs/e-20260802-131455.log")}
    second = build_run(tmp_path, "e-20260802-131458")
    third = build_run(tmp_path, "e-20260802-131452")
    build_run(tmp_path, "other-20260802-131456")
    build_run(tmp_path, "e-20260802-142455")  # more than ten minutes away
    build_run(tmp_path, "e-20260802-139999")  # no time at all
    write(tmp_path / "e-20260802-131456")  # a file
    assert lego.find_siblings(told, 3) == (third, second) and lego.find_siblings(told, 9) == (third, second)
    assert lego.find_siblings(told, 1) == () and lego.find_siblings({}, 3) == ()
    assert lego.find_siblings({"train_log": "/x/demo.log"}, 3) == ()
    fourth = build_run(tmp_path, "e-20260802-131457")
    assert lego.find_siblings(told, 2) == (fourth,)
    write(tmp_path / "e-20260802-131457" / "logs" / "e-20260802-131457.log")  # a run of its own, with the second as its node
    assert lego.find_siblings(told, 4) == (third,)


def test_siblings_where_all_logs_lie_in_one_folder(tmp_path):
    logs, trials = tmp_path / "logs", tmp_path / "harbor_trials" / "p"
    names = ["e-20260802-131455", "e-20260802-131458", "e-20260802-131502"]
    for name in names:
        (trials / name / "step_0001").mkdir(parents=True)
    write(logs / (names[0] + ".log"))
    write(logs / (names[1] + "_train_gpu_wandb.log"))
    told = {"train_log": str(logs / (names[0] + ".log")), "trials": str(trials / names[0])}
    assert lego.find_siblings(told, 3) == tuple(str(trials / name) for name in names[1:])
    write(logs / (names[2] + ".log"))  # two launches within seconds are two runs
    assert lego.find_siblings(told, 3) == (str(trials / names[1]),)


def test_what_status_loads_is_little():
    code = "import json, sys, rlrun.stacks.lego_health; print(json.dumps(sorted(name for name in sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, cwd=str(RECORDED.parents[2]))
    loaded = json.loads(shown.stdout.decode("utf-8"))
    assert [name for name in loaded if name.startswith("rlrun.")] == [
        "rlrun.host", "rlrun.host.files", "rlrun.stacks", "rlrun.stacks.lego_health", "rlrun.stacks.lego_joining",
        "rlrun.stacks.lego_signs", "rlrun.text", "rlrun.text.glyphs", "rlrun.text.shell", "rlrun.values", "rlrun.vitals"]
    assert not {"subprocess", "socket", "asyncio"} & set(loaded)
