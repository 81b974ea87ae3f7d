"""A run that Slurm has, as status, runs, logs and gate see it: while it waits, runs, is over, and while Slurm does not answer."""
import json
import os
import time

import pytest

from rlrun.commands import runs
from rlrun.errors import MACHINE, USAGE, OperatorError
from rlrun.host import procs
from rlrun.steps import examine, find_run, follow_logs, gather, job_nodes, jobs, readback, records, shape_status
from rlrun.text import terminal, vitals_report
from rlrun.values import LiveRun

from .made import make_process
from .made_runs import steps

AWAY = "echo 'error: Unable to contact slurm controller' >&2; exit 1\n"
WAITS = "echo '5|5|PENDING||0:00|1:00:00|Resources|gpu|8||1:00:00'\n"
RUNS = "echo '5|5|RUNNING|n[1-2]|2:30|1:00:00|None|gpu|8|2026-11-30T07:00:00|57:30'\n"
SILENT = "Slurm does not answer (squeue: Unable to contact slurm controller)"
BANNER = "=== Launching Harbor verl training ===\nexperiment:    demo\n"
PLAIN = terminal.Terminal(False, False, False, False)


@pytest.fixture
def root(tmp_path):
    """A checkout with the record of a launch whose batch script rlrun wrote; sbatch has ended long ago, with 0."""
    folder = tmp_path / "logs" / "rlrun" / "20261130-1-train-x"
    folder.mkdir(parents=True)
    (tmp_path / "logs" / "launch.log").write_text("Submitted batch job 5\n")
    record = {"schema": 1, "id": folder.name, "stack": "lego", "kind": "train", "root": str(tmp_path), "config": "c.env",
              "digest": "3f9c2a71", "experiment": "", "launch_log": str(tmp_path / "logs" / "launch.log"), "user": "wei",
              "host": os.uname().nodename, "boot_id": procs.read_boot_id(), "pid_namespace": procs.read_pid_namespace(),
              "time_seconds": time.time() - 100, "is_submission": True, "batch": {}, "gentle_stop": True, "nodes": 2,
              "runner": {"pid": 4200000, "start_ticks": 50, "pgid": 4200000, "keeper": 4200001}}
    (folder / "record.json").write_text(json.dumps(record))
    (folder / "exit.json").write_text(json.dumps({"status": 0, "signal": None, "duration_seconds": 0.1, "max_rss_kib": 18432}))
    return tmp_path


def begin(root, phase="running", **given):
    """The nodes have begun; the head's runner has told its name and three steps."""
    text = BANNER + steps(3)
    folder = root / "logs" / "rlrun" / "20261130-1-train-x"
    for number in (0, 1):
        log = root / "logs" / ("n%d.log" % (number + 1))
        log.write_text(text)
        job_nodes.write_node(str(folder), job_nodes.NodeState(
            number, "n%d" % (number + 1), "5", 0, "10.0.0.1", "worker" if number else "head", phase,
            runner={"pid": 70, "start_ticks": 1, "pgid": 70}, log=str(log), time_seconds=time.time(), **given))


def look(root, live=()):
    """(Target, Status, the report's lines) of the checkout's run."""
    scene = find_run.Scene(str(root), {one.top.pid: one.top for one in live}, tuple(live), time.time(), {})
    target = find_run.find_run("", scene).target
    status = examine.examine(target, gather.read_evidence(target), time.time())
    return target, status, "\n".join(vitals_report.render_status(PLAIN, status, "Lego-RL"))


def read_one(root):
    """The record as `runs` has it."""
    one, = records.list_records(str(root))
    jobs.ask_slurm([one])
    return readback.complete(one)


def test_while_it_waits(slurm, root):
    slurm(WAITS)
    target, status, text = look(root)
    assert "waiting 1m" in text and "running" not in text and "last written" not in text
    assert shape_status.shape_status(status, "", "", 0, ())["run"]["elapsed_seconds"] is None
    assert target.exit is None and find_run.find_stop(target) == "scancel 5"
    logs = follow_logs.list_logs(target)
    assert "train" not in logs and "launch" not in logs and follow_logs.pick_default(logs) == "submit"
    with pytest.raises(OperatorError) as caught:
        raise follow_logs.refuse_missing({"job 5": str(root / "none")}, "job 5", True)
    assert "begins when its job starts" in str(caught.value) and caught.value.code == MACHINE
    line, = vitals_report.render_candidates([target], time.time())
    assert "job 5 PENDING (wei)" in line and "handed in 1m ago" in line
    assert shape_status.shape_candidate(target)["jobs"] == {"5": "PENDING"}


def test_while_it_runs_the_time_is_slurms(slurm, root):
    slurm(RUNS)
    begin(root)
    target, _, text = look(root)
    assert "running 2m" in text and "job log:" in text and target.exit is None
    line, = vitals_report.render_candidates([target], time.time())
    assert "job 5 RUNNING (wei)" in line and "started 2m ago" in line


def test_a_node_that_is_not_there_is_answered_by_those_that_are():
    logs = {"train": "/t", "node n1": "/1", "node n2": "/2"}
    with pytest.raises(OperatorError) as caught:
        follow_logs.pick_log(logs, "node n9")
    assert "its nodes are n1, n2" in str(caught.value) and caught.value.code == USAGE
    with pytest.raises(OperatorError) as caught:
        follow_logs.pick_log({"job 5": "/j"}, "node")
    assert "none of its nodes has one yet" in str(caught.value)


def test_how_it_ended_is_never_sbatchs(slurm, root, capsys, monkeypatch):
    slurm(sacct="echo '5|5|FAILED|3:0|00:20:00|01:00:00|n[1-2]'\n")
    begin(root, "ended", exit={"status": 3, "signal": None})
    target, _, text = look(root)
    assert target.exit["status"] == 3 and target.exit["duration_seconds"] == 1200.0 and "ran 20m" in text
    one = read_one(root)
    assert jobs.find_end(one)["duration_seconds"] == 1200.0 and one["launch_log"] == str(root / "logs" / "n1.log")
    monkeypatch.setattr(runs.orient, "find_checkout", lambda *_: type("Checkout", (), {"root": str(root)}))
    runs.run(type("Options", (), {"id": "train-x", "root": str(root), "failed_since": None, "html": ""}), PLAIN, ())
    shown = capsys.readouterr().out
    assert one["experiment"] == "demo" and "demo" in shown
    assert "20m" in shown and "peak memory" not in shown and "4200000" not in shown and "pid 70 on n1, the head" in shown
    assert all(name in shown for name in ("node n1 log:", "node n2 log:", "submit log:", "nodes:"))


@pytest.mark.parametrize("told, end", [
    ({"state": "COMPLETED", "elapsed": "1-00:00:10"}, (0, None, 86410.0)),
    ({"state": "CANCELLED", "elapsed": "00:00:00"}, (None, None, None)),
    ({"state": "FAILED", "exit_code": None, "signal": 9, "elapsed": "0:24"}, (None, "SIGKILL", 24.0))])
def test_the_end_by_slurm(told, end):
    told = dict({"exit_code": None, "signal": None}, **told)
    found = jobs.find_end({"jobs": ["5"], "job_told": {"5": told}})
    assert (found["status"], found["signal"], found["duration_seconds"]) == end
    assert jobs.read_seconds("UNLIMITED") is None and jobs.read_seconds(None) is None


# ---- a Slurm that does not answer

def test_before_it_tells_anything_nothing_is_claimed(slurm, root):
    slurm(AWAY, AWAY, AWAY)
    target, status, text = look(root)
    assert target.state == "unknown" and status.verdict == examine.UNKNOWN
    assert SILENT in status.conclusion and "it lives" not in text
    assert not any("nothing is live here" in note for note in target.notes) and any(SILENT in note for note in target.notes)
    assert find_run.find_stop(target).startswith("scancel ")


def test_its_log_is_judged_alone(slurm, root):
    slurm(AWAY, AWAY, AWAY)
    begin(root)
    target, status, _ = look(root)
    assert status.step == 3 and "by its log alone" in status.conclusion and SILENT in status.conclusion
    old = time.time() - 90000
    for name in ("n1.log", "n2.log"):
        os.utime(str(root / "logs" / name), (old, old))
    _, status, _ = look(root)
    assert status.verdict == examine.UNKNOWN and SILENT in status.conclusion


def test_its_processes_here_are_one_run_and_it_lives(slurm, root, monkeypatch):
    slurm(AWAY, AWAY, AWAY)
    begin(root)
    monkeypatch.setattr(procs, "read_environ", lambda pid: {"SLURM_JOB_ID": "5"})
    live = [LiveRun("lego", "train", "runner", make_process(pid, "bash", "scripts/train/train.sh", "c.env"), (pid,), str(root))
            for pid in (4200010, 4200011)]
    target, _, _ = look(root, live)
    assert target.id and target.state == "live" and {4200010, 4200011} <= {pid for _, pid in target.pids}


def test_it_is_asked_once_a_look(slurm, root, tmp_path):
    slurm("echo x >> %s\n" % (tmp_path / "asked") + AWAY, AWAY, AWAY)
    look(root)
    assert (tmp_path / "asked").read_text() == "x\n"
