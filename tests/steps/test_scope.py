"""`--scope` in a process of its own: a fake systemd-run, made /run and /var, and what the rlrun that it becomes finds."""
import json
import os
import pwd
import subprocess
import sys

import pytest

from rlrun.commands import unattended
from rlrun.errors import OperatorError
from rlrun.host import standing
from rlrun.steps import scope

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
USER = pwd.getpwuid(os.getuid()).pw_name
# What systemd-run does: it sets a variable, makes the scope, and becomes the program.
FAKE = """#!/bin/sh
echo "$XDG_RUNTIME_DIR $*" >>"$0.calls"
%s
while [ "$1" != -- ]; do shift; done
shift
INVOCATION_ID=new SOMETHING=new exec "$@"
"""
FIRST = """
import json, os, sys
sys.path.insert(0, %r)
from rlrun.errors import OperatorError
from rlrun.steps import scope
try:
    words = ["run", "a b", *os.environ.get("WORDS", "").split(), "--scope"]
    scope.enter(words, dict(os.environ), [sys.executable, SECOND], *sys.argv[1:])
except OperatorError as error:
    print(json.dumps({"message": error.message, "hint": error.hint, "code": error.code, "reason": error.reason}))
"""
SECOND = """
import json, os, sys
sys.path[0] = %r
from rlrun.steps import scope
had = scope.MARKER in os.environ
entered, was_marked = scope.take_marker(os.environ)
print(json.dumps({"had": had, "entered": entered, "env": dict(os.environ), "argv": sys.argv[1:], "pid": os.getpid(),
                  "again": scope.take_marker(os.environ), "was_marked": was_marked}))
"""


@pytest.fixture
def enter(tmp_path):
    """enter(fake=, lingers=, manager=, environ=) -> (what was printed, its pid, the calls of systemd-run)."""
    def start(fake=FAKE % "", lingers=True, manager=True, environ=None):
        (tmp_path / "bin").mkdir()
        if fake:
            (tmp_path / "bin/systemd-run").write_text(fake)
            (tmp_path / "bin/systemd-run").chmod(0o755)
        socket = "run/user/%d/systemd/private" % os.getuid()
        for name, is_made in ((socket, manager), ("var/lib/systemd/linger/" + USER, lingers)):
            if is_made:
                (tmp_path / name).mkdir(parents=True)
        (tmp_path / "second.py").write_text(SECOND % ROOT)
        os.symlink("/bin/true", str(tmp_path / "bin/true"))  # the only programs on PATH
        program = (FIRST % ROOT).replace("SECOND", repr(str(tmp_path / "second.py")))
        environ = dict(environ or {}, PATH=str(tmp_path / "bin"), LC_ALL="C.UTF-8")
        popen = subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "run"), str(tmp_path / "var")], env=environ,
                                 stdout=subprocess.PIPE, universal_newlines=True)
        told = json.loads(popen.communicate()[0])
        calls = tmp_path / "bin/systemd-run.calls"
        return told, popen.pid, calls.read_text().splitlines() if calls.exists() else [], environ
    return start


@pytest.mark.parametrize("given", [{"A": "1"}, {"XDG_RUNTIME_DIR": "/run/user/4711", "INVOCATION_ID": "old", "ODD": "\udcff"}])
def test_the_same_process_goes_on_in_the_scope_with_the_environment_that_it_had(enter, tmp_path, given):
    told, pid, calls, environ = enter(environ=given)
    assert told["had"] and told["pid"] == pid and told["argv"] == ["run", "a b", "--scope"]
    assert told["env"] == environ and told["again"] == [None, False] and told["was_marked"]
    probe, real = calls
    assert all(" --description=rlrun " in call.partition(" -- ")[0] for call in calls)  # else it is the whole command line
    head = "%s/run/user/%d --user --scope --quiet --collect --description=rlrun --unit=rlrun-" % (tmp_path, os.getuid())
    assert probe.startswith(head)
    assert probe.endswith("-probe2 -- true")
    unit, left = told["entered"]
    assert "--unit=%s -- " % unit[:-len(".scope")] in real and unit.endswith("-%d.scope" % pid) and left


@pytest.mark.parametrize("fake, has_option", [
    ("", True), ('case "$*" in *--expand*) echo "unrecognized option" >&2; exit 1;; esac', False)])
def test_a_dollar_in_our_words_stays_one(enter, fake, has_option):
    told, _, calls, _ = enter(fake=FAKE % fake, environ={"WORDS": "a=${HOME}"})
    assert told["argv"] == ["run", "a b", "a=${HOME}", "--scope"]
    assert ("--expand-environment=no" in calls[-1]) == has_option and len(calls) == 3
    units = {word for call in calls for word in call.split() if word.startswith("--unit=")}
    assert len(units) == 3  # the manager may not have let go of the first when the next is asked for


@pytest.mark.parametrize("change, words, hint", [
    (dict(fake=""), "no systemd-run on PATH", "without --scope"),
    (dict(lingers=False), "lingering is off for " + USER, "loginctl enable-linger " + USER),
    (dict(manager=False), "user manager", "without --scope"),
    (dict(fake=FAKE % "echo 'Failed to \033[1mstart' >&2; exit 1"), "made no scope (ended 1): Failed to \\x1b[1mstart",
     "Try it: systemd-run --user --scope"),
    (dict(fake="#!/nonexistent/sh\n"), "made no scope (could not start", "Try it: systemd-run")])
def test_what_is_missing_is_exit_5_and_says_what_to_do(enter, change, words, hint):
    told = enter(**change)[0]
    assert (told["code"], told["reason"]) == (5, "session:scope")
    assert words in told["message"] and "nothing was launched" in told["message"] and hint in told["hint"]


@pytest.mark.parametrize("text", ["", "x", "[]", "{}", "7", '{"pid": OWN}', '{"pid": 1, "names": [], "old": {}}'])
def test_a_marker_that_is_not_this_process_own_is_removed_and_nothing_else(text):
    environ = {"A": "1", "PATH": "/bin"}
    assert scope.take_marker(dict(environ)) == (None, False)
    marked = dict(environ, **{scope.MARKER: text.replace("OWN", str(os.getpid()))})
    assert scope.take_marker(marked) == (None, text != "") and marked == environ


def test_a_systemd_run_that_starts_another_process_is_not_asked_again(monkeypatch):
    """Else each rlrun would start the next one."""
    monkeypatch.setenv(scope.MARKER, json.dumps({"pid": 1, "unit": "x", "left": "/", "names": [], "old": {}}))
    monkeypatch.setattr(scope, "enter", lambda *words: pytest.fail("it is asked again"))
    with pytest.raises(OperatorError) as caught:
        unattended.enter_scope(True)
    assert (caught.value.code, caught.value.reason) == (5, "session:scope") and scope.MARKER in caught.value.hint
    assert unattended.enter_scope(False) is None and scope.MARKER not in os.environ


@pytest.mark.parametrize("cgroup, is_refused", [
    ("0::/slurm/uid_1000/job_77/step_0", True), ("0::/system.slice/TheSlurm.service", False)])
def test_a_slurm_job_is_not_left_and_a_unit_that_is_only_called_so_is_none(monkeypatch, tmp_path, cgroup, is_refused):
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text(cgroup + "\n")
    found = standing.read_standing(str(tmp_path))
    assert "Slurm" in found.words
    monkeypatch.setattr(standing, "read_standing", lambda: found)
    entered = []
    monkeypatch.setattr(scope, "enter", lambda *words: entered.append(words))
    if is_refused:
        with pytest.raises(OperatorError, match="out of its Slurm job"):
            unattended.enter_scope(True)
    else:
        unattended.enter_scope(True)
    assert bool(entered) != is_refused
