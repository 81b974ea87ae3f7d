"""What failed lately: what `status` calls failed, wherever it ran and whoever knows its system, and what can't be looked at."""
import errno
import os
import sys
import time

import pytest
from steps.made_runs import steps
from steps.test_find_run import GONE, make_record

from rlrun.commands import failed
from rlrun.errors import MACHINE, OperatorError
from rlrun.host import procs
from rlrun.steps import find_failed, records
from rlrun.text import terminal

DAY = 86400.0
HOUR = 3600.0
THERE = {"host": "node7", "boot_id": "another"}
OUT_OF_MEMORY = "RuntimeError: CUDA out of memory\n"


def find(root, window_seconds=DAY):
    found, reason = find_failed.find_failed(str(root), window_seconds, lambda target: ())
    assert reason == ""
    return {one.row.id: one for one in found}


def write(path, text, age_seconds=0.0):
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    os.utime(str(path), (time.time() - age_seconds,) * 2)
    return str(path)


@pytest.mark.parametrize("text, age_hours, launched_hours, words", [
    (steps(3) + OUT_OF_MEMORY, 19, 20, "CUDA out of memory"), (steps(3) + OUT_OF_MEMORY, 19, 40, "CUDA out of memory"),
    (steps(3) + OUT_OF_MEMORY, 30, 40, ""), (steps(3), 19, 20, ""), (steps(100), 19, 20, ""), (steps(3), 0, 1, "")])
def test_another_nodes_failure_is_listed_as_status_knows_it(tmp_path, text, age_hours, launched_hours, words):
    log = write(tmp_path / "logs" / "demo.log", text, age_hours * HOUR)
    make_record(tmp_path, "far", exit=None, time_seconds=time.time() - launched_hours * HOUR, train_log=log, **THERE)
    found = find(tmp_path)
    assert list(found) == (["far"] if words else [])
    if words:
        assert words in found["far"].first_error.text and found["far"].row.state == "elsewhere (node7)"
        assert found["far"].log == log and found["far"].ended_seconds is None


def test_a_record_that_holds_garbage_is_listed_at_once_and_not_for_ever(tmp_path):
    folder = make_record(tmp_path, "garbage", exit=None)
    for text in ("{\"stack\": \"le", "[1]", ""):
        with open(os.path.join(folder, "record.json"), "w") as file:
            file.write(text)
        assert find(tmp_path, 600.0)["garbage"].words == "its record can't be read"
    for path in (os.path.join(folder, "record.json"), folder):
        os.utime(path, (time.time() - 700,) * 2)
    assert not find(tmp_path, 600.0)
    os.unlink(os.path.join(folder, "record.json"))  # may be about to be written
    assert not find(tmp_path, 600.0)
    os.utime(folder, (time.time() - 700,) * 2)
    assert list(find(tmp_path, 600.0)) == ["garbage"]


def test_a_record_that_may_not_be_read_is_listed_with_its_owner(tmp_path, monkeypatch):
    folder = make_record(tmp_path, "private", exit=None)
    real = os.open

    def refuse(path, *words, **named):
        if str(path) == os.path.join(folder, "record.json"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, *words, **named)
    monkeypatch.setattr(os, "open", refuse)
    assert "permission denied: it is " in find(tmp_path)["private"].words


@pytest.mark.parametrize("given, words", [
    ({"exit": {"status": 3, "signal": None, "time_seconds": "now"}}, "ended 3; "),
    ({"exit": {"status": 137, "signal": "SIGKILL", "time_seconds": "now"}}, "killed by SIGKILL; "),
    ({"exit": {"status": None, "signal": None, "time_seconds": "now"}}, "ended None; "),
    ({"exit": {"status": 0, "signal": None, "time_seconds": "now"}}, ""),
    ({"exit": {"status": 3, "signal": None, "time_seconds": 1e9}}, ""),
    ({"exit": None}, "lost: nobody recorded its end; "), ({"exit": None, "time_seconds": 1e9}, ""),
    ({"exit": None, "runner": {"pid": os.getpid(), "start_ticks": 0}}, "lost"), (dict(THERE, exit=None), ""),
    ({"exit": None, "runner": None, "time_seconds": "now"}, ""), ({"exit": None, "runner": None}, "it did not start"),
    ({"exit": None, "stack": "", "runner": None}, "it did not start")])
def test_an_unknown_systems_launch_is_listed_by_its_end(tmp_path, given, words):
    now = time.time()
    told = dict({"stack": "other", "time_seconds": now - 2 * HOUR}, **given)
    if told["time_seconds"] == "now":
        told["time_seconds"] = now
    if told["exit"] and told["exit"]["time_seconds"] == "now":
        told["exit"] = dict(told["exit"], time_seconds=now, duration_seconds=5.0)
    make_record(tmp_path, "other", **told)
    found = find(tmp_path)
    assert list(found) == (["other"] if words else [])
    if words:
        assert found["other"].words.startswith(words)
        assert "of a training system that this rlrun does not know" in found["other"].words


def test_the_next_step_is_one_that_works(tmp_path, monkeypatch, capsys):
    now = time.time()
    for name, stack in (("known", "lego"), ("other", "other")):
        make_record(tmp_path, name, stack=stack, exit={"status": 3, "time_seconds": now})
    program = tmp_path / "rlrun.pyz"
    program.write_text("")
    monkeypatch.setattr("sys.argv", [str(program)])
    for mode, words in ((0o755, str(program)), (0o644, "%s %s" % (sys.executable, program))):
        program.chmod(mode)
        assert failed.list_failed(str(tmp_path), DAY, terminal.make_terminal("never", False, False)) == 0
        told = capsys.readouterr().out
        for name, verb in (("known", "status"), ("other", "runs")):
            assert "next:   %s %s %s --root %s\n" % (words, verb, name, tmp_path) in told, told


def test_launches_that_can_not_be_listed_are_no_empty_list(tmp_path, monkeypatch):
    assert find(tmp_path) == {}
    (tmp_path / "logs").mkdir()
    folder = tmp_path / "logs" / "rlrun"
    os.symlink("rlrun", str(folder))  # a loop
    with pytest.raises(OperatorError, match="symbolic links") as caught:
        find(tmp_path)
    assert caught.value.code == MACHINE and str(folder) in caught.value.message
    assert "it is %s's, mode " % procs.user_name(os.geteuid()) in caught.value.hint
    folder.unlink()
    make_record(tmp_path, exit=None, time_seconds=1e9)
    assert find(tmp_path) == {}
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(OperatorError, match="Permission denied"):
        find(tmp_path)


def test_who_is_being_told_since_when(tmp_path):
    folder = make_record(tmp_path, notify=["x"], exit=None, **THERE)
    told = write(tmp_path / "logs" / "rlrun" / os.path.basename(folder) / "notify-gate.json", "{}")
    began = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(os.stat(told).st_mtime))
    assert records.tell_notified(records.read_record(folder), {}) == "gate: being told since " + began
    os.utime(told, (1e9, 1e9))
    words = records.tell_notified(records.read_record(folder), {})
    assert words == "gate: was being told since 2001-09-09 01:46:40 UTC, and what came of it is not recorded"
    with open(os.path.join(folder, "notify.json"), "w") as file:
        file.write("{\"events\": [{\"event\": \"gate\", \"sent\": true}]}")
    assert records.tell_notified(records.read_record(folder), {}) == "gate: sent"
    here = make_record(tmp_path, "20260803-1-train-x", notify=["x"], exit=None, runner={"pid": GONE, "start_ticks": 1})
    write(tmp_path / "logs" / "rlrun" / os.path.basename(here) / "notify-gate.json", "{}")
    words = records.tell_notified(records.read_record(here), {})
    assert words.startswith("gate: was being told since ") and words.endswith("its keeper is gone: nobody is told any more")
