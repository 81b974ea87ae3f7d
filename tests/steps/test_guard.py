"""Is a run in flight? Trees, dry runs, Ray daemons and orphans, out of tables made for it."""
import os

import pytest
from steps.made import make_process

from rlrun.steps import guard

RUNNER = ("bash", "/c/scripts/train/train.sh", "x.env")
TRAINER = ("python3", "-m", "verl.trainer.main_ppo")


def find(*processes, own=2):
    table = {one.pid: one for one in (make_process(1, "init", ppid=0), make_process(2, "python3", "rlrun.pyz")) + processes}
    runs, clusters, orphans = guard.find_runs(table, own)
    return [(one.top.pid, one.role, one.pids) for one in runs], [one.pid for one in clusters], [one.pid for one in orphans]


def test_tree_of_one_run():
    runs, clusters, orphans = find(
        make_process(10, *RUNNER),
        make_process(11, *TRAINER, ppid=10),
        make_process(12, "tee", ppid=10),
        make_process(13, "ray::WorkerDict", ppid=11),
        make_process(14, "VLLM::Worker_TP0", ppid=13),
    )
    assert (runs, clusters, orphans) == ([(10, "runner", (10, 11, 12, 13, 14))], [], [])


def test_trainer_without_a_runner():
    assert find(make_process(11, *TRAINER))[0] == [(11, "trainer", (11,))]


def test_two_runs():
    assert [run[0] for run in find(make_process(10, *RUNNER), make_process(20, *TRAINER))[0]] == [10, 20]


def test_kind_of_the_run_is_that_of_its_runner():
    runs = guard.find_runs({10: make_process(10, "bash", "/c/scripts/eval/eval.sh"), 2: make_process(2, "x")}, 2)[0]
    assert (runs[0].kind, runs[0].root, runs[0].stack) == ("eval", "/c", "lego")


@pytest.mark.parametrize("state", ["Z", "X", "x"])
def test_P11_dead_processes(state):
    assert find(make_process(10, *RUNNER, state=state), make_process(11, "VLLM::Worker", state=state)) == ([], [], [])


@pytest.mark.parametrize("state", ["D", "T", "t", "R"])
def test_P19_stuck_and_stopped_processes_live(state):
    assert find(make_process(10, *RUNNER, state=state))[0]


def test_P3_ancestors_and_rlrun_itself():
    assert find(make_process(10, *RUNNER), make_process(11, *TRAINER, ppid=10), make_process(12, "x", ppid=11), own=12)[0] == []
    assert find(make_process(10, *RUNNER), make_process(12, "x", ppid=10), make_process(13, *TRAINER, ppid=10), own=12)[0] == [
        (13, "trainer", (13,))]


def test_kernel_threads_are_none():
    assert find(make_process(10, ppid=2, comm="raylet")) == ([], [], [])


def test_dry_run_and_what_it_started():
    assert (
        find(make_process(10, "bash", "/c/scripts/train/train.sh", "--dry-run", "x"), make_process(11, *TRAINER, ppid=10))[0]
        == []
    )


def test_ray_daemons_belong_to_the_run_before_them():
    raylet = make_process(20, "/r/raylet", start=200)
    runs, clusters, _ = find(
        make_process(10, *RUNNER, start=100), raylet, make_process(21, "ray::WorkerDict", ppid=20, start=210)
    )
    assert runs == [(10, "runner", (10, 20, 21))] and clusters == []


@pytest.mark.parametrize("raylet", [make_process(20, "/r/raylet", start=50), make_process(20, "/r/raylet", start=200, uid=1000)])
def test_ray_daemons_of_before_or_of_another_user_are_a_cluster(raylet):
    runs, clusters, _ = find(make_process(10, *RUNNER, start=100), raylet)
    assert runs == [(10, "runner", (10,))] and clusters == [20]


def test_ray_daemons_below_the_run_whatever_their_user():
    assert find(make_process(10, *RUNNER), make_process(20, "/r/raylet", ppid=10, uid=1000))[1] == []


def test_bare_vllm_is_an_orphan_and_no_run():
    assert find(make_process(30, "vllm", "serve", "m"), make_process(31, "VLLM::EngineCore", ppid=30)) == ([], [], [30, 31])


def test_circle_in_the_table():
    """Half a table: a parent that is a child of its child."""
    assert find(make_process(10, *RUNNER, ppid=11), make_process(11, *TRAINER, ppid=10)) is not None


def test_newest_log(tmp_path):
    assert guard.find_newest_log([str(tmp_path)]) == ""
    (tmp_path / "logs").mkdir()
    for number, name in enumerate(("a.log", "b.log", "c.txt")):
        (tmp_path / "logs" / name).write_text("x")
        os.utime(str(tmp_path / "logs" / name), (1000 + number, 1000 + number))
    os.symlink("/no/such", str(tmp_path / "logs/z.log"))
    assert guard.find_newest_log([str(tmp_path), "/no/such"]) == str(tmp_path / "logs/b.log")
