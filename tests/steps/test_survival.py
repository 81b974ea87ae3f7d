"""What the record says of a launch's standing, and whether a runner has left: made /proc folders, and a real child."""
import os
import subprocess

import pytest

from rlrun.host import procs
from rlrun.host.ends import End
from rlrun.host.standing import Standing, read_standing
from rlrun.steps import judge_host, survival
from rlrun.steps.scope import Entered
from rlrun.values import Identity, Launch

LEFT = "/user.slice/user-7.slice/session-3.scope"
SCOPE = "/user.slice/user-7.slice/user@7.service/app.slice/rlrun-20260802-131455-42.scope"
STANDING = Standing("tmux server", "tmux server (pid 8) in login session scope 3", LEFT, 42, 40, True, (8, 40))
ENTERED = Entered("rlrun-20260802-131455-42.scope", LEFT)


def make_launch(pid, start_ticks):
    return Launch("/record", "/log", Identity(pid, start_ticks, "boot"), pid, 4)


def make_runner(root, sid=77, tty=0, state="S", cgroup=SCOPE, start=500):
    (root / "77").mkdir()
    (root / "77/stat").write_text("77 (a) b) %s 4 77 %d %d -1 %s %d 0\n" % (state, sid, tty, "0 " * 12 + "0", start))
    (root / "77/cmdline").write_text("")
    if cgroup:
        (root / "77/cgroup").write_text("3:memory:/\n0::%s\n" % cgroup)
    return str(root)


def test_the_record_tells_place_ends_and_scope():
    assert survival.describe(STANDING, ("logind ends \x1b[1m it", "hunter2 x"), ("hunter2",)) == {
        "stands": "tmux server", "words": STANDING.words, "ends": ["logind ends \\x1b[1m it", "<redacted> x"], "scope": None}
    assert survival.describe(STANDING._replace(cgroup=SCOPE), ())["scope"] == ENTERED.unit
    assert survival.describe(STANDING._replace(cgroup="/user.slice/run-1.scope"), ())["scope"] is None


@pytest.mark.parametrize("runner, entered, found, words", [
    ({}, ENTERED, (True, True, True), "own session, no terminal, scope rlrun-20260802-131455-42.scope"),
    ({}, None, (True, True, None), "own session, no terminal"),
    ({"cgroup": LEFT}, ENTERED, (True, True, False), "own session, no terminal, NOT in a scope of its own, though --scope was "
     "given: it is in %s, and ends with that" % LEFT),
    ({"cgroup": ""}, ENTERED, (True, True, None), "own session, no terminal, scope unknown: its control group could not be read"),
    ({"sid": 40}, None, (False, True, None), "STILL in the session that it was launched from (40), no terminal"),
    ({"sid": 8, "tty": 34816}, None, (False, False, None), "STILL in the session that it was launched from (8), STILL on a "
     "terminal"),
    ({"state": "Z"}, ENTERED, (None, None, None), "not verified: the runner had ended already"),
    ({"start": 501}, None, (None, None, None), "not verified: the runner had ended already")])
def test_the_runner_is_looked_at_and_not_believed(tmp_path, runner, entered, found, words):
    told = survival.verify(make_launch(77, 500), STANDING, entered, make_runner(tmp_path, **runner))
    assert (told["session"], told["terminal"], told["cgroup"], told["words"]) == found + (words,)


def test_one_that_is_gone(tmp_path):
    assert survival.verify(make_launch(77, 500), STANDING, None, str(tmp_path))["words"].startswith("not verified")


@pytest.mark.parametrize("is_apart", [True, False])
def test_a_real_one(is_apart):
    with subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL, start_new_session=is_apart) as popen:
        try:
            identity = procs.read_identity(popen.pid)
            told = survival.verify(make_launch(popen.pid, identity.start_ticks), read_standing(), None)
            assert (told["session"], told["cgroup"]) == (is_apart, None)
            assert told["terminal"] or not is_apart or os.isatty(2)
        finally:
            popen.kill()


def test_the_check_tells_the_place_and_offers_a_scope_only_where_one_helps(monkeypatch):
    ends = (End("logind ends it", "launch with --scope", True), End("Slurm ends it", "ask for more time", False))
    monkeypatch.setattr(judge_host.session, "find_ends", lambda **given: ends if given["needed_seconds"] == 7 else ())
    first, *rest = judge_host.judge_session({}, 7)
    assert (first.name, first.status, first.detail) == ("session:stands", "pass", read_standing().words)
    assert [(check.name, check.status, check.detail, check.fix) for check in rest] == [
        ("session:ends", "advisory", "logind ends it; launch with --scope", "launch with --scope (rlrun explain session:scope)"),
        ("session:ends", "advisory", "Slurm ends it; ask for more time", "")]
