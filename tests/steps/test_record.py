"""The record: written whole or not at all, and read whatever lies there."""
import errno
import json
import os
import subprocess
import time

import pytest
from steps.made import make_plan

from rlrun.commands import runs
from rlrun.host import procs
from rlrun.steps import estimate, record, records, shapes
from rlrun.text import terminal as term
from rlrun.values import Fingerprint, Git

GOOD = {"schema": 1, "id": "good", "digest": "3f9c2a71", "kind": "train", "project": "p", "time_seconds": 5.0, "boot_id": "b",
        "host": "h", "runner": {"pid": 5, "start_ticks": 7, "pgid": 5}}


def write(folder, text, name="record.json"):
    os.makedirs(str(folder), exist_ok=True)
    with open(os.path.join(str(folder), name), "wb") as out:
        out.write(text if isinstance(text, bytes) else json.dumps(text).encode())
    return str(folder)


# ---- writing

@pytest.mark.parametrize("call", ["write", "close", "rename"])
def test_what_could_not_be_written_is_not_in_the_way_of_the_next_try(tmp_path, monkeypatch, call):
    real = getattr(os, call)

    def fail(*words):
        if call == "close":
            real(*words)
        raise OSError(errno.EDQUOT, "quota")
    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(OSError, match="quota"):
            record.write_json(str(tmp_path), "exit.json", {})
    assert os.listdir(str(tmp_path)) == []
    record.write_json(str(tmp_path), "exit.json", {"status": 0})
    assert os.listdir(str(tmp_path)) == ["exit.json"]


@pytest.mark.parametrize("given, mode", [({"prints_secrets": True}, 0o600), ({"environment": {"A_TOKEN": "x1y2z3a4b5"}}, 0o600),
                                         ({}, 0o644)])
def test_the_line_by_hand_keeps_a_log_with_secrets_to_its_user(tmp_path, given, mode):
    (tmp_path / "logs").mkdir()
    plan = make_plan(root=str(tmp_path), argv=("sh", "-c", "echo said; touch made"), drop_env=("DRY_RUN",), **given)
    line = record.describe_command(plan)
    assert "\n" not in line
    subprocess.run(["sh", "-c", "umask 022; " + line], cwd="/", check=True)
    deadline = time.monotonic() + 60
    while not (tmp_path / "made").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    log, = (tmp_path / "logs").iterdir()
    assert log.stat().st_mode & 0o777 == mode and log.read_text() == "said\n"
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o644  # the run's own files are as the launch makes them


# ---- reading

ODD = {
    "parts": dict(GOOD, parts=None),
    "infinite_pid": json.dumps(dict(GOOD, runner={"pid": 0})).replace(
        '"pid": 0', '"pid": Infinity, "start_ticks": 1e999').encode(),
    "pid_of_text": dict(GOOD, runner={"pid": "many", "start_ticks": []}),
    "negative_pid": dict(GOOD, runner={"pid": -1, "start_ticks": 7, "pgid": -1}),
    "huge": json.dumps(dict(GOOD, time_seconds=0, runner={"pid": 0, "start_ticks": 0})).replace(": 0", ": " + "9" * 400).encode(),
    "deep": b'{"id": "deep", "parts": ' + b"[" * 100000 + b"]" * 100000 + b"}",
    "less_deep": b'{"id": "less_deep", "argv": ' + b"[" * 700 + b"]" * 700 + b"}",
    "nul": dict(GOOD, train_log="/x\0y", launch_log="a\0b"),
    "no_time": {name: value for name, value in GOOD.items() if name != "time_seconds"},
    "nan": json.dumps(dict(GOOD, time_seconds=float("nan"), trainer=[float("inf")], argv={"a": 1})).encode(),
    "kinds": {name: [1] for name in GOOD},
    "numbers": {name: 7 for name in GOOD},
    "surrogate": b'{"id": "\\ud800", "experiment": "\\udfff\\u001b[31m"}',
    "list": b"[]",
    "half": b'{"id": "x',
}


@pytest.mark.parametrize("name", sorted(ODD))
@pytest.mark.parametrize("file", ["record.json", "exit.json", "link.json", "keeper.json"])
def test_an_odd_record_is_no_crash(tmp_path, capsys, name, file):
    folder = write(tmp_path / "logs/rlrun/20990101-x", ODD[name], file)
    if file != "record.json":
        write(folder, GOOD)
    found, = records.list_records(str(tmp_path))
    row = records.make_row(found, time.time())
    records.find_launched(str(tmp_path), "3f9c2a71")
    estimate.estimate_step(make_plan(root=str(tmp_path)))

    def refuse(word):
        raise AssertionError(word)
    json.loads(json.dumps(shapes.shape_row(row)), parse_constant=refuse)
    for is_json in (False, True):
        runs._show(row, term.Terminal(False, False, is_json, False))
        shown = capsys.readouterr().out
        assert "\x1b" not in shown and (not is_json or json.loads(shown, parse_constant=refuse))


def test_a_number_of_more_digits_than_ours_have_is_not_read(tmp_path):
    """An old Python takes the square of their count."""
    found = records.read_record(write(tmp_path / "a", dict(GOOD, nodes=10 ** 20, gpus=[-10 ** 19], time_seconds=10 ** 14)))
    assert (found["id"], found["nodes"], found["gpus"], found["time_seconds"]) == ("good", None, [None], 10 ** 14)
    assert records.read_record(write(tmp_path / "b", dict(GOOD, nodes=10 ** 19)))["nodes"] == 10 ** 19


@pytest.mark.parametrize("how", ["pipe", "folder", "link", "device"])
def test_only_files_are_read(tmp_path, how, capsys):
    folder = tmp_path / "logs/rlrun/20990101-x"
    folder.mkdir(parents=True)
    for name in ("record.json", "exit.json", "keeper.json", "link.json", "command.txt", "git.txt"):
        if how == "pipe":
            os.mkfifo(str(folder / name))
        elif how == "folder":
            (folder / name).mkdir()
        else:
            os.symlink("/dev/zero" if how == "device" else name, str(folder / name))
    found, = records.list_records(str(tmp_path))
    row = records.make_row(found, 7.0)
    runs._show(row, term.Terminal(False, False, False, False))
    assert row.state == "unreadable" and row.id == "20990101-x" and "unknown" in capsys.readouterr().out


def test_a_log_that_is_a_pipe_gives_no_estimate(tmp_path):
    os.mkfifo(str(tmp_path / "e.log"))
    write(tmp_path / "logs/rlrun/1", dict(GOOD, train_log=str(tmp_path / "e.log")))
    assert "unknown" in estimate.estimate_step(make_plan(root=str(tmp_path)))


def test_a_record_without_a_time_is_of_unknown_age(tmp_path):
    write(tmp_path / "logs/rlrun/1", ODD["no_time"])
    row = records.make_row(records.list_records(str(tmp_path))[0], 7.0)
    assert shapes.shape_row(row)["age_seconds"] is None and not row.age_seconds >= 0


# ---- how it is

def test_whose_run_it_is(tmp_path, monkeypatch):
    """Of two containers of one kernel, each with a host name and pids of its own, neither knows of the other's."""
    monkeypatch.setattr(procs, "read_boot_id", lambda root="/proc": "b")
    identity = procs.read_identity(os.getpid())
    here = {"pid": os.getpid(), "start_ticks": identity.start_ticks}
    states = {}
    for name, given in (("mine", {"runner": here, "host": os.uname().nodename}), ("renamed", {"runner": here, "host": "other"}),
                        ("gone", {"host": os.uname().nodename}), ("container", {"host": "other"}),
                        ("machine", {"host": "other", "boot_id": "another"})):
        folder = write(tmp_path / name, dict(GOOD, **given))
        states[name] = records.judge_state(records.read_record(folder))[0]
    assert states == {"mine": "running", "renamed": "running", "gone": "lost", "container": "elsewhere (other)",
                      "machine": "elsewhere (other)"}


@pytest.mark.parametrize("namespace, state", [("pid:[1]", "elsewhere"), ("", "running"), (None, "running"), (7, "running")])
def test_two_containers_of_one_boot(tmp_path, namespace, state):
    """Both have the boot, and each may have a process of that pid and start; only the table of pids tells them apart (P15)."""
    mine = procs.read_identity(os.getpid())
    runner = {"pid": mine.pid, "start_ticks": mine.start_ticks, "pgid": os.getpgid(0)}
    given = dict(GOOD, host=os.uname().nodename, boot_id=mine.boot_id, runner=runner, pid_namespace=namespace)
    found = records.read_record(write(tmp_path / "a", given))
    assert records.judge_state(found)[0].split()[0] == state
    ended = dict(found, exit={"status": 0, "signal": None})
    assert (os.getpid() in records.find_left(ended, procs.read_processes())) == (state == "running")
    assert records.judge_state(ended)[0] == "ended 0"


def test_a_launch_notes_its_table_of_pids(tmp_path):
    paths = record.Paths(str(tmp_path), str(tmp_path / "launch.log"), -1, "20260802-131455")
    config = tmp_path / "x.env"
    config.write_text("A=1\n")
    plan = make_plan(root=str(tmp_path), config=str(config))
    print_ = Fingerprint("3f9c2a71", {})
    written = record.write_plan(paths, plan, Git("", "", (), "", "no git"), print_, (), {})
    own = os.readlink("/proc/self/ns/pid")
    assert written["pid_namespace"] == own and not records.is_elsewhere(records.read_record(str(tmp_path)))


def test_what_lies_beside_the_records_is_none(tmp_path):
    folder = tmp_path / "logs" / "rlrun"
    for name in ("20260802-131455-train-a.log", "20260802-131456-train-unattended.log", "plans"):
        (folder / name).mkdir(parents=True)
    for name in ("unattended.log", "unattended-1000.log"):
        (folder / name).write_text("")
    assert [one["id"] for one in records.list_records(str(tmp_path))] == [
        "20260802-131456-train-unattended.log", "20260802-131455-train-a.log"]
