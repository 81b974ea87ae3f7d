"""What systemd's settings end: made control groups and a fake systemctl that answers with made properties."""
import os
import time

import pytest

from rlrun.host import cgroups, managers, units
from rlrun.host.managers import Manager

READY = Manager("ready", True, "/run/user/1000", 1000, "u", "", "")
NONE = Manager("absent", True, "", 1000, "u", "no", "no")
ROOT = Manager("ready", False, "", 0, "root", "", "")
SERVICE = "/system.slice/nightly.service"
USER_SERVICE = "/user.slice/user-1000.slice/user@1000.service/app.slice/nightly.service"
OOMD = "Id=systemd-oomd.service\nActiveState=active\n"


@pytest.fixture
def explain(tmp_path):
    """explain(path, told, ...) -> the ends; `told` is what systemctl prints, its calls are in the file calls."""
    def ask(path, told, manager=READY, needed=None, body="", is_booted=True, pids=(900, 812)):
        (tmp_path / "bin").mkdir()
        (tmp_path / "told").write_text(told)
        program = tmp_path / "bin" / "systemctl"
        program.write_text("#!/bin/sh\necho \"$XDG_RUNTIME_DIR $*\" >>'%s/calls'\n%s\ncat '%s/told'\n" % (
            tmp_path, body, tmp_path))
        program.chmod(0o755)
        if is_booted:
            (tmp_path / "run/systemd/system").mkdir(parents=True)
        for number, pid in enumerate(pids):
            (tmp_path / "proc" / str(pid)).mkdir(parents=True)
            (tmp_path / "proc" / str(pid) / "stat").write_text("%d (x) S %d 1 1 0 -1\n" % (pid, (pids + (0,))[number + 1]))
        os.symlink("900", str(tmp_path / "proc" / "self"))
        return units.explain_units(path, manager, {"PATH": "%s:/usr/bin:/bin" % (tmp_path / "bin")}, str(tmp_path / "proc"),
                                   str(tmp_path / "run"), needed)
    return ask


def read_calls(tmp_path):
    return (tmp_path / "calls").read_text().splitlines() if (tmp_path / "calls").exists() else []


def tell(name, **settings):
    return "Id=%s\n" % name + "".join("%s=%s\n" % pair for pair in settings.items())


@pytest.mark.parametrize("mode, main, words", [
    ("control-group", 812, "as soon as its main process (pid 812, which started this rlrun) ends (KillMode=control-group)"),
    ("control-group", 900, "as soon as its main process (pid 900, this rlrun) ends"),
    ("mixed", 41, "when it is stopped or restarted, and when its main process ends (KillMode=mixed)"),
    ("control-group", 0, "when it is stopped or restarted"), ("process", 812, ""), ("none", 812, ""), ("", 812, "")])
def test_a_service_takes_the_run_along_unless_only_its_main_process_is_killed(explain, mode, main, words):
    found = explain(SERVICE, tell("system.slice") + "\n" + tell("nightly.service", KillMode=mode, MainPID=main, Type="oneshot"))
    assert [words in end.words and end.words.startswith("systemd ends all of nightly.service") for end in found] == [True] * bool(
        words)
    assert not found or (found[0].cure == "launch with --scope, or set KillMode=process in the unit" and found[0].by_scope)


def test_one_call_asks_about_all_units(explain, tmp_path):
    explain("/a.slice/a-b.slice/x.service/sub/y.scope", "")
    (call,) = read_calls(tmp_path)
    assert call.endswith(" -- a.slice a-b.slice x.service y.scope -.slice systemd-oomd.service") and "KillMode" in call


def test_a_users_service_is_asked_of_the_users_manager(explain, tmp_path):
    found = explain(USER_SERVICE, tell("nightly.service", KillMode="control-group", MainPID="5"))
    system, user = sorted(read_calls(tmp_path), key=lambda call: "--user" in call)
    assert user.startswith("/run/user/1000 --user show") and user.endswith(" -- app.slice nightly.service")
    assert system.split(" -- ")[1].split()[:3] == ["user.slice", "user-1000.slice", "user@1000.service"]
    assert len(found) == 1


@pytest.mark.parametrize("path, manager", [("/", READY), ("", READY), ("/docker/4f", READY), (SERVICE, READY)])
def test_nothing_is_asked_where_there_is_nobody_to_ask(explain, tmp_path, path, manager):
    assert explain(path, tell("nightly.service", KillMode="mixed"), manager, is_booted=path != SERVICE) == []
    assert read_calls(tmp_path) == []


@pytest.mark.parametrize("body", ["exit 1", "exec sleep 60", "kill -9 $$"])
def test_a_systemctl_that_does_not_answer_is_silence(explain, monkeypatch, body):
    monkeypatch.setattr(units, "_SECONDS", 0.3)
    assert explain(SERVICE, tell("nightly.service", KillMode="mixed"), body=body) == []


def test_no_systemctl_is_silence(tmp_path):
    (tmp_path / "systemd/system").mkdir(parents=True)
    assert units.explain_units(SERVICE, READY, {"PATH": str(tmp_path)}, run_root=str(tmp_path)) == []


@pytest.mark.parametrize("manager, cure", [
    (NONE, "set KillMode=process in the unit"),
    (READY._replace(state="linger"), "`loginctl enable-linger u`, then launch with --scope, or")])
def test_a_scope_is_offered_only_where_it_can_be_had(explain, manager, cure):
    (end,) = explain(SERVICE, tell("nightly.service", KillMode="mixed", MainPID="1"), manager)
    assert end.cure.startswith(cure)


def started(seconds_ago):
    return str(int((time.clock_gettime(time.CLOCK_MONOTONIC) - seconds_ago) * 1e6))


@pytest.mark.parametrize("settings, needed, words", [
    (dict(RuntimeMaxUSec="2h", ActiveEnterTimestampMonotonic="now"), 86400, "2 h after its start (RuntimeMaxSec), the run "
     "included: 2 h left (2 h), which is TOO LITTLE: the run needs roughly 1 d"),
    (dict(RuntimeMaxUSec="2h 30min", ActiveEnterTimestampMonotonic="0"), 60, "2 h 30 min after its start (RuntimeMaxSec), the "
     "run included: time left unknown"),
    (dict(RuntimeMaxUSec="1min", ExecMainStartTimestampMonotonic="1"), None, "the run included: 0 s left"),
    (dict(RuntimeMaxUSec="infinity"), 60, None), (dict(RuntimeMaxUSec="2h", KillMode="process"), 60, None),
    (dict(RuntimeMaxUSec="2h", Type="oneshot"), 60, None), (dict(), 60, None)])
def test_a_longest_run_time(explain, settings, needed, words):
    if settings.get("ActiveEnterTimestampMonotonic") == "now":
        settings = dict(settings, ActiveEnterTimestampMonotonic=started(-10))
    path = "/user.slice/user-1000.slice/session-3.scope"
    found = explain(path, tell("session-3.scope", **dict(dict(KillMode="control-group"), **settings)), needed=needed)
    assert len(found) == (words is not None) and all(words in end.words and end.by_scope for end in found)


@pytest.mark.parametrize("told, words", [
    (tell("user-1000.slice", ManagedOOMMemoryPressure="kill") + "\n" + OOMD, "ManagedOOMMemoryPressure=kill on user-1000.slice"),
    (tell("-.slice", ManagedOOMSwap="kill") + "\n" + OOMD, "ManagedOOMSwap=kill on -.slice"),
    (tell("user-1000.slice", ManagedOOMSwap="auto") + "\n" + OOMD, ""), (OOMD, ""),
    (tell("user-1000.slice", ManagedOOMSwap="kill") + "\n" + OOMD.replace("=active", "=inactive"), "")])
def test_oomd_where_it_runs_and_manages_what_we_are_in(explain, told, words):
    found = explain("/user.slice/user-1000.slice/session-3.scope", told)
    assert [words in end.words for end in found] == [True] * bool(words)
    assert not found or ("session-3.scope" in found[0].words and "ManagedOOMPreference=omit" in found[0].cure)


@pytest.mark.parametrize("text, seconds", [("1h 30min", 5400), ("2w 1d 5s", 1296005), ("1min 30.5s", 90.5), ("500ms", 0.5),
                                           ("infinity", None), ("", None), ("12", None), ("1month 1us", 2629800.000001)])
def test_spans(text, seconds):
    assert units.parse_span(text) == pytest.approx(seconds) if seconds else units.parse_span(text) is None


def test_units_of_a_path():
    found = cgroups.list_units("/user.slice/user-7.slice/user@7.service/app.slice/app-x\\x2dy.scope/child")
    assert [(unit.name, unit.kind, unit.is_user) for unit in found] == [
        ("user.slice", "slice", False), ("user-7.slice", "slice", False), ("user@7.service", "service", False),
        ("app.slice", "slice", True), ("app-x\\x2dy.scope", "scope", True)]
    assert cgroups.list_units("/x/-n; rm.service/--help") == ()


@pytest.mark.parametrize("socket, linger, booted, uid, state, is_user, words", [
    (True, True, True, 1000, "ready", True, ""), (True, False, True, 1000, "linger", True, "enable-linger 1000"),
    (False, False, True, 1000, "linger", True, "enable-linger 1000"),
    (False, True, True, 1000, "absent", True, "user@1000.service"),
    (False, False, False, 1000, "absent", True, "without --scope"), (False, False, True, 0, "ready", False, ""),
    (True, True, True, 0, "ready", True, ""), (True, False, True, 0, "ready", False, ""),
    (True, False, False, 0, "linger", True, "enable-linger root"), (True, True, False, 1000, "ready", True, "")])
def test_which_manager_makes_a_scope(tmp_path, monkeypatch, socket, linger, booted, uid, state, is_user, words):
    monkeypatch.setattr(managers, "find_user_name", lambda uid: "root" if uid == 0 else str(uid))
    (tmp_path / "systemd-run").write_text("#!/bin/sh\n")
    (tmp_path / "systemd-run").chmod(0o755)
    made = [("run/user/%d/systemd/private" % uid, socket), ("run/systemd/system", booted),
            ("var/lib/systemd/linger/%s" % ("root" if uid == 0 else uid), linger)]
    for name, is_made in made:
        if is_made:
            (tmp_path / name).mkdir(parents=True)
    found = managers.find_manager({"PATH": str(tmp_path)}, str(tmp_path / "run"), str(tmp_path / "var"), uid)
    assert (found.state, found.is_user) == (state, is_user) and words in found.cure
    assert bool(found.runtime_dir) == socket and bool(found.reason) == (state != "ready")
    assert managers.find_manager({"PATH": "/nonexistent"}, str(tmp_path / "run"), str(tmp_path / "var"), uid).state == "absent"


def test_a_runtime_folder_that_is_another_users_is_not_taken(tmp_path):
    (tmp_path / "mine/systemd/private").mkdir(parents=True)
    environ = {"XDG_RUNTIME_DIR": str(tmp_path / "mine")}
    assert managers.find_manager(environ, str(tmp_path), str(tmp_path), os.getuid()).runtime_dir == str(tmp_path / "mine")
    assert managers.find_manager(environ, str(tmp_path), str(tmp_path), os.getuid() + 1).runtime_dir == ""
