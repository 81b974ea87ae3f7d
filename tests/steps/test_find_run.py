"""Which run is meant, and what is never done to find that out: nobody else's code is run, nothing hangs, Slurm is asked once."""
import json
import os
import subprocess
import time
import types

import pytest
from checkouts import build_checkout, write_fake_program
from steps.made import make_process
from steps import made_runs
from steps.made_runs import steps, write_log

from rlrun.errors import MACHINE, USAGE, OperatorError
from rlrun.host import procs
from rlrun.steps import find_run
from rlrun.values import LiveRun

CONFIGS = os.path.join("scripts", "train", "configs")
GONE = 4200000  # above every pid that there can be


def make_scene(root="", runs=(), processes=()):
    found = {one.pid: one for one in processes}
    found.update({run.top.pid: run.top for run in runs})
    return find_run.Scene(str(root), found, tuple(runs), time.time())


def make_run(pid, root, stack="lego"):
    top = make_process(pid, "bash", "scripts/train/train.sh", "c.env")
    return LiveRun(stack, "train", "runner", top, (pid,), str(root))


def make_record(root, name="20260802-1-train-x", **given):
    """A record's folder; by default of a run that has ended long ago."""
    folder = os.path.join(str(root), "logs", "rlrun", name)
    os.makedirs(folder)
    record = {"schema": 1, "id": name, "stack": "lego", "kind": "train", "root": str(root), "config": "c.env",
              "digest": "3f9c2a71", "experiment": "demo",
              "train_log": os.path.join(str(root), "logs", "demo.log"), "launch_log": "",
              "user": "wei",
              "host": os.uname().nodename, "boot_id": procs.read_boot_id(), "pid_namespace": procs.read_pid_namespace(),
              "time_seconds": 1e9, "runner": {"pid": GONE, "start_ticks": 50, "pgid": GONE, "keeper": GONE + 1}}
    exit_told = given.pop("exit", {"status": 0, "signal": None})
    record.update(given)
    for file, value in (("record.json", record), ("exit.json", exit_told)):
        if value is not None:
            with open(os.path.join(folder, file), "w", encoding="utf-8") as out:
                json.dump(value, out)
    return folder


# ---- whose run is meant

def test_inside_a_checkout_its_own_live_run_is_meant(tmp_path):
    own, other = make_run(GONE, tmp_path / "a"), make_run(GONE + 1, tmp_path / "b")
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    for is_own in (False, True):
        found = find_run.find_run("", make_scene(tmp_path / "a", [other, own]), is_own)
        assert found.target.root == str(tmp_path / "a")
        assert any("1 more run on this machine, of another checkout lives" in note or "1 more run" in note
                   for note in found.target.notes)
    os.symlink(str(tmp_path / "a"), str(tmp_path / "link"))
    assert find_run.find_run("", make_scene(tmp_path / "link", [other, own]), True).target.root == str(tmp_path / "a")
    several = find_run.find_run("", make_scene("", [own, other]))
    assert several.target is None and len(several.candidates) == 2


def test_a_gate_never_takes_another_checkouts_run(tmp_path):
    other = make_run(GONE, tmp_path / "b")
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    scene = make_scene(tmp_path / "a", [other])
    assert find_run.find_run("", scene).target.root == str(tmp_path / "b"), "status may show it"
    with pytest.raises(OperatorError) as caught:
        find_run.find_run("", scene, True)
    assert caught.value.code == MACHINE
    make_record(tmp_path / "a")
    found = find_run.find_run("", scene, True).target
    assert (found.id, found.state) == ("20260802-1-train-x", "over") and "the last launch" in found.notes[0]


def test_what_a_killed_runner_left_behind_is_its_records(tmp_path):
    """S5: the launcher is gone, and its subshell lives on in its group; that is no run of its own."""
    make_record(tmp_path, exit=None)
    left = make_process(GONE + 5, "bash", "scripts/train/train.sh", "c.env", pgid=GONE, start=60)
    older = make_process(GONE + 6, "sleep", "9", pgid=GONE, start=40)
    run = LiveRun("lego", "train", "runner", left, (left.pid,), str(tmp_path))
    scene = make_scene(tmp_path, [run], [older])
    assert find_run.list_live(scene) == ()
    found = find_run.find_run("", scene).target
    assert (found.id, found.state, found.pids) == ("20260802-1-train-x", "over", (("left behind", left.pid),))
    assert any("1 of its processes live on: kill -s TERM %d" % left.pid in note for note in found.notes)


@pytest.mark.parametrize("exit_told", [{"status": 0, "signal": None}, None])
def test_two_containers_of_one_kernel(tmp_path, exit_told):
    """Each has pids of its own: the other one's record means other processes, though pid, group and boot are the same."""
    mine = procs.read_identity(os.getpid())
    make_record(tmp_path, exit=exit_told, pid_namespace="pid:[1]", runner={
        "pid": mine.pid, "start_ticks": mine.start_ticks, "pgid": os.getpgid(0), "keeper": os.getppid()})
    found = find_run.find_run("demo", find_run.read_scene(str(tmp_path))).target
    assert found.state == ("over" if exit_told else "elsewhere") and found.pids == ()
    assert not any("kill" in note for note in found.notes)


def test_a_record_of_this_container_is_live(tmp_path):
    mine = procs.read_identity(os.getpid())
    make_record(tmp_path, exit=None, runner={"pid": mine.pid, "start_ticks": mine.start_ticks, "pgid": mine.pid})
    found = find_run.find_run("demo", find_run.read_scene(str(tmp_path))).target
    assert (found.state, found.pids) == ("live", (("runner", mine.pid),))


def test_the_end_is_waited_for_where_its_keeper_is_about_to_tell_it(tmp_path, monkeypatch):
    folder = make_record(tmp_path, exit=None)
    looks = []

    def write_meanwhile(seconds):
        looks.append(seconds)
        if len(looks) == 2:
            with open(os.path.join(folder, "exit.json"), "w", encoding="utf-8") as out:
                json.dump({"status": 7, "signal": None}, out)
    monkeypatch.setattr(find_run, "time", types.SimpleNamespace(sleep=write_meanwhile, time=time.time))
    keeper = make_process(GONE + 1, "rlrun:", "keeper")
    found = find_run.find_run("demo", make_scene(tmp_path, (), [keeper])).target
    assert (found.state, found.exit["status"], len(looks)) == ("over", 7, 2)
    del looks[:]
    os.remove(os.path.join(folder, "exit.json"))
    assert find_run.find_run("demo", make_scene(tmp_path)).target.exit is None and looks == [], "no keeper, no wait"


def test_slurm_is_asked_once_for_all_records(tmp_path, monkeypatch):
    calls = tmp_path / "calls"
    for name in ("squeue", "sacct"):
        write_fake_program(tmp_path / "bin", name, 'echo "$0" >> %s\n' % calls)
    monkeypatch.setenv("PATH", "%s:%s" % (tmp_path / "bin", os.environ["PATH"]))
    for number in range(20):
        make_record(tmp_path, "20260802-%02d-train-x" % number, exit=None, runner=None, facts={"jobs": [str(700 + number)]})
    for word in ("demo", "", str(write_log(tmp_path / "other.log", steps(9)))):
        if calls.exists():
            calls.unlink()
        find_run.find_run(word, make_scene(tmp_path))
        assert 1 <= len(calls.read_text().split()) <= 4, word


# ---- what may be typed

@pytest.mark.parametrize("word", ["9" * 5000, "9" * 10, "0" * 5000 + "1", "٣٣٣", "x" * 5000, "a\0b", "-1", "1e999", "nowhere"])
def test_a_word_that_means_nothing(tmp_path, word):
    scene = make_scene(tmp_path, (), [make_process(333, "sleep", "9")])
    with pytest.raises(OperatorError) as caught:
        find_run.find_run(word, scene)
    assert caught.value.code == USAGE


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("/dev/zero", path),
                                  lambda path: os.symlink("/dev/tty", path), os.mkdir,
                                  lambda path: write_log(path, ""), lambda path: write_log(path, "localhost\n"),
                                  lambda path: write_log(path, b"\0" * 9000)],
                         ids=["fifo", "zero", "tty", "folder", "empty", "hostname", "NULs"])
def test_what_is_no_log_of_a_run(tmp_path, make):
    path = str(tmp_path / "x.log")
    make(path)
    with made_runs.fail_where_it_waits():
        with pytest.raises(OperatorError) as caught:
            find_run.find_run(path, make_scene(tmp_path))
    assert caught.value.code == USAGE


def test_a_folder_with_a_pipe_among_its_logs(tmp_path):
    os.mkfifo(str(tmp_path / "a.log"))
    log = write_log(tmp_path / "b.log", steps(9))
    with made_runs.fail_where_it_waits():
        assert find_run.find_run(str(tmp_path), make_scene()).target.logs == {"train": log}


# ---- nobody else's code is run

HOLD = """
case " $* " in *" --dry-run "*) echo "$*" >> "%s";; *) read -r line; exit 0;; esac
"""


@pytest.fixture
def hand_started(tmp_path):
    """A live run whose output goes to no file, so that only its config could tell where its log is: (checkout, LiveRun, the file
    that its runner's dry run would write)."""
    root, marker = build_checkout(tmp_path / "checkout"), tmp_path / "was run"
    script = os.path.join(root, "scripts", "train", "train.sh")
    with open(script, encoding="utf-8") as file:
        first, _, rest = file.read().partition("\n")
    with open(script, "w", encoding="utf-8") as file:
        file.write(first + HOLD % marker + rest)
    os.rename(os.path.join(root, CONFIGS, "pinned.env"), os.path.join(root, CONFIGS, "mine.env"))
    for folder, _, names in os.walk(root):
        for name in [""] + names:
            path = os.path.join(folder, name)
            os.chmod(path, os.stat(path).st_mode & ~0o022)
    child = subprocess.Popen(["bash", "scripts/train/train.sh", "scripts/train/configs/mine.env"], cwd=root,
                             stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while "scripts/train/train.sh" not in procs.read_processes()[child.pid].argv:
            assert time.monotonic() < deadline and child.poll() is None
        top = procs.read_processes()[child.pid]
        yield root, LiveRun("lego", "train", "runner", top, (child.pid,), root), marker
    finally:
        child.kill()
        child.wait()


def look_for_logs(run):
    return find_run.from_live(run, make_scene("", [run]))


def test_the_log_of_ones_own_run_is_planned_by_its_dry_run(hand_started):
    root, run, marker = hand_started
    found = look_for_logs(run)
    assert "--dry-run" in marker.read_text()
    assert found.logs["train"].startswith(root) and any("is the one that its config plans" in note for note in found.notes)
    os.remove(str(marker))
    again = find_run.from_live(run, make_scene("", [run]), found)
    assert again.logs == found.logs and not marker.exists(), "it is planned once, and not at each look"


SCRIPTS = os.path.join("scripts", "train")
FOREIGN = {
    "the config is another user's": lambda root: os.chown(os.path.join(root, SCRIPTS, "configs", "mine.env"), 65534, 65534),
    "the config may be written by all": lambda root: os.chmod(os.path.join(root, SCRIPTS, "configs", "mine.env"), 0o666),
    "the config may be written by its group": lambda root: os.chmod(os.path.join(root, SCRIPTS, "configs", "mine.env"), 0o664),
    "the runner is another user's": lambda root: os.chown(os.path.join(root, SCRIPTS, "train.sh"), 65534, 65534),
    "the runner may be written by all": lambda root: os.chmod(os.path.join(root, SCRIPTS, "train.sh"), 0o777),
    "what the runner loads may be written": lambda root: os.chmod(os.path.join(root, "scripts", "lib", "preflight.sh"), 0o666),
    "their folder may be written": lambda root: os.chmod(os.path.join(root, SCRIPTS, "configs"), 0o777),
    "the checkout is another user's": lambda root: os.chown(root, 65534, 65534),
}


@pytest.mark.parametrize("name", sorted(FOREIGN))
def test_no_code_is_run_that_is_not_ones_own(hand_started, name):
    if os.geteuid() and "another user" in name:
        pytest.skip("only root can give a file away")
    root, run, marker = hand_started
    FOREIGN[name](root)
    found = look_for_logs(run)
    assert not marker.exists(), "it was run"
    assert found.logs == {} and any("no log of it was found" in note for note in found.notes)


def test_another_users_run_is_not_planned_whoever_owns_its_files(hand_started):
    """Root would run it as root."""
    _, run, marker = hand_started
    found = look_for_logs(run._replace(top=run.top._replace(uid=65534)))
    assert not marker.exists() and found.logs == {}


def test_a_config_outside_of_the_runners_folder_is_looked_at_too(hand_started):
    root, run, marker = hand_started
    folder = os.path.join(os.path.dirname(root), "configs")
    os.mkdir(folder, 0o755)
    config = os.path.join(folder, "mine.env")
    os.rename(os.path.join(root, SCRIPTS, "configs", "mine.env"), config)
    told = {"config": config, "root": root, "kind": "train"}
    os.chmod(config, 0o666)
    assert find_run._plan_logs(told, run) == {} and not marker.exists()


def test_what_could_not_be_planned_is_not_tried_at_each_look(hand_started):
    """Its name has a time in it, so no dry run can tell it; a watch asks every few seconds."""
    root, run, marker = hand_started
    config = os.path.join(root, CONFIGS, "mine.env")
    os.replace(os.path.join(root, CONFIGS, "volatile.env"), config)
    first = look_for_logs(run)
    assert first.logs == {} and marker.exists()
    os.remove(str(marker))
    find_run.from_live(run, make_scene("", [run]), first)
    assert not marker.exists()


def test_processes_of_a_job_are_the_jobs(tmp_path, monkeypatch):
    """On a node of it they are seen too; a job without a directory of its own is no run of whatever lies in this folder."""
    def make(name, **given):
        return find_run.Target(given.pop("id", ""), name, "lego", "train", str(tmp_path), "live", {}, given.pop("launch_log", ""),
                               "", "me", "h", given.pop("pids", ()), None, None, **given)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(find_run.procs, "read_environ", lambda pid: {"SLURM_JOB_ID": "5"} if pid == 7 else {})
    job = make("job", id="r", jobs=(("5", "RUNNING"),))
    own = make("own", pids=(("runner", 7),))
    other = make("other", pids=(("runner", 8),), launch_log=str(tmp_path / "x.log"))
    assert find_run._merge_jobs([own, other], [job]) == [other, job._replace(pids=own.pids)]
