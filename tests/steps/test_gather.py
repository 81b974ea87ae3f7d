"""What is read of a run's logs: from their ends, each file once, none that is no file."""
import os

import pytest
from steps import made_runs
from steps.made_runs import make_target, prime_step, steps, write_log

from rlrun.stacks import load_health
from rlrun.steps import gather


def test_a_log_that_stands_for_two_is_read_once(tmp_path):
    launch = write_log(tmp_path / "launch.log", steps(3))
    found = gather.read_evidence(make_target({"train": launch, "launch": launch}, launch_log=launch))
    assert list(found.texts) == ["train"] and len(found.tracks["train"].points) == 3
    link = str(tmp_path / "link.log")
    os.link(launch, link)
    assert len(gather.read_evidence(make_target({"train": launch, "vllm": link})).texts) == 1


def test_the_launch_log_stands_in_where_no_other_is_there(tmp_path):
    launch = write_log(tmp_path / "launch.log", steps(3))
    found = gather.read_evidence(make_target({"train": str(tmp_path / "gone.log")}, launch_log=launch))
    assert [point.step for point in found.tracks["train"].points] == [1, 2, 3] and found.tracks["train"].path == launch


def test_only_the_last_steps_are_kept_and_of_a_page_more(tmp_path):
    log = write_log(tmp_path / "e.log", steps(100))
    target = make_target({"train": log})
    assert len(gather.read_evidence(target).tracks["train"].points) == gather.REPORT_POINTS == 64
    assert len(gather.read_evidence(target, gather.PAGE_POINTS).tracks["train"].points) == 100


@pytest.mark.parametrize("stack", ["lego", "prime"])
def test_what_the_tables_speak_of_is_wanted(stack):
    health = load_health(stack)
    wanted = gather.list_wanted(health)
    assert {metric.key for metric in health.METRICS} <= set(wanted)
    assert not [key for key in wanted if "\\" in key or " " in key], "the patterns of lines are no keys"


def test_a_log_of_many_files_costs_no_more_than_some(tmp_path):
    logs = {"train": write_log(tmp_path / "e.log", steps(3), 900)}
    for number in range(60):
        logs["env %d" % number] = write_log(tmp_path / ("env_%d.log" % number), "x\n", number)
    found = gather.read_evidence(make_target(logs, "over"))
    assert "train" in found.texts and "env 0" in found.texts and "env 59" not in found.texts and len(found.texts) <= 24


def test_the_end_of_a_log_that_is_over_is_read_further_back(tmp_path):
    log = write_log(tmp_path / "e.log", b"x" * 99 + b"\n" + (b"y" * 99 + b"\n") * 10000)
    assert len(gather.read_evidence(make_target({"train": log})).texts["train"].data) <= 1 << 18
    assert gather.read_evidence(make_target({"train": log}, "over")).texts["train"].data.startswith(b"x")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("nowhere", path), lambda path: None,
                                  lambda path: os.symlink("/dev/zero", path)],
                         ids=["fifo", "folder", "dangling", "absent", "zero"])
@pytest.mark.parametrize("stack", ["lego", "prime"])
def test_what_is_no_file_is_no_log(tmp_path, make, stack):
    path = str(tmp_path / "x.log")
    make(path)
    with made_runs.fail_where_it_waits():
        for name in ("train", "vllm", "launch", "trainer", "orchestrator", "metrics"):
            target = make_target({name: path}, "over", launch_log=path, stack=stack, run_dir=str(tmp_path), root=str(tmp_path))
            found = gather.read_evidence(target)
            assert found.files == {} and found.texts == {} and found.outline.total is None
            told = gather.tell_target(target)
            assert load_health(stack).find_checkpoint(found.outline, told) is None
            load_health(stack).list_logs("train", dict(told, train_log=path, launch_log=path))


def test_the_first_steps_of_a_log_by_its_beginning(tmp_path):
    health = load_health("prime")
    log = write_log(tmp_path / "trainer.log", "".join(map(prime_step, range(1, 6))) + prime_step(6)[:-1])
    assert gather.read_first_step(health, "trainer", log) == 5, "a line without its end is none yet"
    assert gather.read_first_step(health, "trainer", str(tmp_path / "gone")) is None


def test_a_run_directory_of_pipes_is_not_waited_for(tmp_path):
    """Its trainer's log, its config, its monitor's file: whatever lies there."""
    health = load_health("prime")
    run = tmp_path / "run"
    for name in ("logs/attempt_1/trainer.log", "logs/attempt_1/orchestrator.log", "configs/rl.json", "configs/trainer.json",
                 "configs/sft.json", "configs/orchestrator.json", "metrics.jsonl", "logs/evals.log"):
        os.makedirs(os.path.dirname(str(run / name)), exist_ok=True)
        os.mkfifo(str(run / name))
    with made_runs.fail_where_it_waits():
        for kind in ("", "rl", "sft"):
            assert health.read_outline(kind, b"", {"run_dir": str(run)}).total is None
            logs = health.list_logs(kind, {"run_dir": str(run)})
            assert gather.read_evidence(make_target(logs, "over", kind, "prime", run_dir=str(run))).texts == {}
