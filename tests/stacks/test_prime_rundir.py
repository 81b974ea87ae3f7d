"""A run's directory of prime-rl: what an earlier run left, what a launch resumes from, deletes and logs to."""
import os

import pytest

from rlrun.stacks import prime_rundir
from rlrun.stacks.prime_rundir import RunDir, find_new_attempt, find_past, list_attempts, list_logs, list_steps, read_run_dir


@pytest.fixture
def run(tmp_path):
    return str(tmp_path / "outputs" / "x")


def make(run, *names):
    """Folders, and files where a name has a dot in its last part."""
    for name in names:
        path = os.path.join(run, name)
        if "." in os.path.basename(name).lstrip("."):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            open(path, "w").close()
        else:
            os.makedirs(path, exist_ok=True)


@pytest.mark.parametrize("names, artifacts", [
    ((), ()), (("configs/trainer.json",), ()), (("configs/attempt_1/resolved/rl.json", "configs/command.txt"), ()),
    (("rl.sbatch", "sft.sbatch", "job_12.log", "job_x.log"), ()), (("launcher/rl.sbatch", "launcher/logs/job_12.log"), ()),
    (("configs/rl.json", "rl.sbatch", "logs/attempt_1"), ("logs",)), (("checkpoints/step_1",), ("checkpoints",)),
    (("rollouts", "broadcasts", "weights"), ("broadcasts", "rollouts", "weights")), ((".trainer.done",), (".trainer.done",)),
    (("inference.sbatch",), ("inference.sbatch",)), (("job_1.log.old",), ("job_1.log.old",)), (("xjob_1.log",), ("xjob_1.log",)),
    (("metrics.jsonl",), ("metrics.jsonl",)), (("Configs",), ("Configs",))])
def test_artifacts(run, names, artifacts):
    make(run, *names)
    assert read_run_dir(run, run).artifacts == artifacts


def test_a_directory_that_is_not_there(run):
    assert read_run_dir(run, run) == RunDir(run, (), run + "/checkpoints", (), (), ())
    make(os.path.dirname(run), "x.file")
    file = os.path.dirname(run) + "/x.file"
    assert read_run_dir(file, file) == RunDir(file, (), file + "/checkpoints", (), (), ())


def test_all_that_lies_in_one(run, tmp_path):
    make(run, "checkpoints/step_10/trainer", "checkpoints/step_9", "checkpoints/step_x", "checkpoints/latest",
        "checkpoints/step_10.tmp",
         "logs/attempt_1", "logs/attempt_10", "logs/attempt_9", "logs/attempt_x", "job_7.log", "launcher/logs/job_12.log",
         "launcher/logs/job_7.log", "launcher/logs/job_12.err")
    os.symlink("attempt_10", run + "/logs/latest")
    found = read_run_dir(run, run)
    assert found.steps == (9, 10) and found.attempts == ("attempt_1", "attempt_9", "attempt_10")
    assert found.jobs == ("7", "12") and found.artifacts == ("checkpoints", "logs")
    elsewhere = str(tmp_path / "ckpts")
    make(elsewhere, "checkpoints/step_3")
    found = read_run_dir(run, elsewhere)
    assert found.checkpoints == elsewhere + "/checkpoints" and found.steps == (3,)


@pytest.mark.parametrize("names, steps", [
    ((), ()), (("step_2", "step_10", "step_1"), (1, 2, 10)), (("step_0", "step_007"), (0, 7)),
    (("step_", "step_-1", "step_1a", "Step_1", "xstep_1", "step_1 "), ()), (("step_" + "9" * 13,), ())])
def test_steps(run, names, steps):
    make(run, *names)
    assert list_steps(run) == steps


def test_a_new_attempt_is_one_that_was_not_there(run):
    assert find_new_attempt(run, ()) == ""
    make(run, "logs/attempt_9", "logs/latest_is_no_link")
    before = list_attempts(run)
    assert before == ("attempt_9",) and find_new_attempt(run, before) == ""  # `latest` would be the earlier one
    assert find_new_attempt(run, ()) == run + "/logs/attempt_9"
    make(run, "logs/attempt_10")
    assert find_new_attempt(run, before) == run + "/logs/attempt_10"
    make(run, "logs/attempt_11")
    assert find_new_attempt(run, before) == run + "/logs/attempt_11"
    assert find_new_attempt("", ()) == ""


def test_logs(run):
    attempt = run + "/logs/attempt_1"
    assert list_logs(attempt) == {}
    make(attempt, "trainer.log", "orchestrator.log", "evals.log", "inference.log/x", "trainer/torchrun", "other.log",
         "envs/train/a.log", "envs/train/b c.log", "envs/eval/a.log", "envs/eval/a.txt")
    assert list_logs(attempt) == {name: "%s/%s.log" % (attempt, path) for name, path in (
        ("trainer", "trainer"), ("orchestrator", "orchestrator"), ("evals", "evals"), ("env train a", "envs/train/a"),
        ("env train b c", "envs/train/b c"), ("env eval a", "envs/eval/a"))}
    assert list(list_logs(attempt))[0] == "trainer"


def test_what_a_resume_deletes(run, tmp_path):
    make(run, *["%s/step_%d" % (folder, step) for folder in ("rollouts", "broadcasts", "checkpoints") for step in (0, 9, 10, 11)])
    make(run, "rollouts/step_x", "rollouts/latest")
    found = read_run_dir(run, str(tmp_path))
    assert find_past(found, 10) == (run + "/rollouts/step_11", run + "/broadcasts/step_11")
    assert find_past(found, 11) == () and len(find_past(found, 8)) == 6
    assert len(find_past(found, None)) == 8 and run + "/rollouts/step_0" in find_past(found, None)
    assert not any("checkpoints" in path for path in find_past(found, None))
    assert find_past(read_run_dir(str(tmp_path / "none"), ""), None) == ()


def test_the_resolved_configs_of_both_layouts(run):
    assert prime_rundir.find_configs(run) == run + "/configs"
    make(run, "configs/trainer.json", "configs/envs/train/a.json")
    assert prime_rundir.find_configs(run) == run + "/configs"
    make(run, "configs/attempt_1/resolved", "configs/attempt_9/resolved", "configs/attempt_10/resolved", "configs/attempt_11")
    assert prime_rundir.find_configs(run) == run + "/configs/attempt_10/resolved"  # the last one that was written out
    os.symlink("attempt_9", run + "/configs/latest")
    assert prime_rundir.find_configs(run) == run + "/configs/latest/resolved"
    os.remove(run + "/configs/latest")
    os.symlink("gone", run + "/configs/latest")
    assert prime_rundir.find_configs(run) == run + "/configs/attempt_10/resolved"


def test_a_directory_that_cant_be_read_holds_nothing(run):
    make(run, "logs/attempt_1", "checkpoints/step_1")
    os.chmod(run, 0)
    try:
        if os.geteuid():  # root reads all
            assert read_run_dir(run, run) == RunDir(run, (), run + "/checkpoints", (), (), ())
        assert prime_rundir.list_names(run + "/no") == []
    finally:
        os.chmod(run, 0o755)
