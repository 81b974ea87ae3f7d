"""The foreground: the run's output on the terminal and in the same launch log, Ctrl-C to the run's group, its exit code."""

import json
import os
import signal
import subprocess

import pytest

from . import box as b

QUESTION = "Launch with this configuration? [y/N] "


def read_row(box):
    row = b.list_runs(box)[0]
    return dict(row, log=b.read(row["launch_log"]), ended=b.read(os.path.join(row["record"], "exit.json")))


def play_to_the_end(box):
    facts = {}
    for name in ("demo", "fails_late"):
        digest = b.check(box, name, env=b.SHORT)["digest"]
        done = b.rlrun(box, "run", name, "--confirm", digest, "--board", "leave", "--foreground", env=b.SHORT)
        facts[name] = {"done": done, "row": read_row(box)}
    b.wait_for_the_next_second()
    digest = b.check(box, "demo", env=b.SHORT)["digest"]
    facts["json"] = b.rlrun(
        box, "run", "demo", "--confirm", digest, "--again", "--board", "leave", "--foreground", "--json", env=b.SHORT
    )
    return facts


def test_the_output_is_shown_and_logged_and_the_exit_code_tells(play, root):
    facts = play(play_to_the_end, root)
    for name, code, state in (("demo", 0, "ended 0"), ("fails_late", 4, "ended 1")):
        done, row = facts[name]["done"], facts[name]["row"]
        assert done[0] == code and row["state"] == state, done[2]
        shown, _, report = done[1].partition("Launched (foreground)")
        lines = [line for line in row["log"].splitlines() if "step:" in line]
        assert lines and all(line in shown.splitlines() for line in lines), name
        assert "runner=%d" % row["runner"]["pid"] in report and "ended" in report
    assert "RuntimeError: toy failure" in facts["fails_late"]["done"][1]
    code, out, err = facts["json"]
    told = json.loads(out)  # one object and nothing else; the run's output goes to stderr
    assert (code, told["exit"], told["ended"]["status"], told["mode"]) == (0, 0, 0, "foreground") and "step:2 - " in err


def play_interrupt(box):
    session = b.open_rlrun(box, "run", "demo", "--board", "leave", "--foreground", env=b.LONG)
    b.expect(session, QUESTION)
    b.send(session, "y\n")
    b.expect(session, "step:2 - ")
    pgid = b.list_runs(box)[0]["runner"]["pgid"]
    before = len(b.list_group(pgid))
    b.send(session, "\x03")
    code, text = b.finish(session)
    return {"code": code, "text": text, "before": before, "after": b.list_group(pgid), "row": read_row(box)}


def test_ctrl_c_goes_to_the_runs_group_and_is_reported(play, root):
    facts = play(play_interrupt, root)
    assert facts["before"] >= 4 and facts["after"] == []
    assert facts["code"] == 4 and "Launched (foreground)" in facts["text"]
    assert facts["row"]["state"] in ("ended 130", "killed by SIGINT") and facts["row"]["ended"]


def play_left(box, how):
    session = b.open_rlrun(box, "run", "demo", "--board", "leave", "--foreground", env=b.LONG)
    b.expect(session, QUESTION)
    b.send(session, "y\n")
    b.expect(session, "step:2 - ")
    row = b.list_runs(box)[0]
    if how == "window":
        os.close(session.fd)
        code, text = b.wait_for(lambda: b.reap(session.pid), "the end of rlrun")[0], ""
    else:
        os.kill(session.pid, getattr(signal, how))
        code, text = b.finish(session)
    log = row["launch_log"]
    size = os.path.getsize(log)
    b.wait_for(lambda: os.path.getsize(log) > size + 2000, "the run going on")
    return {"code": code, "text": text, "state": b.list_runs(box)[0]["state"]}


@pytest.mark.parametrize("how", ["window", "SIGTERM", "SIGHUP", "SIGKILL"])
def test_the_run_outlives_the_foreground(play, root, how):
    facts = play(play_left, root, how=how)
    assert facts["state"] == "running"
    assert facts["code"] == (-signal.SIGKILL if how == "SIGKILL" else 0)
    assert how in ("window", "SIGKILL") or ("Launched (foreground)" in facts["text"] and "stop: " in facts["text"])


def play_reader_gone(box):
    digest = b.check(box, "demo", env=b.SHORT)["digest"]
    reader = subprocess.Popen(
        [
            "bash",
            "-c",
            'set -o pipefail; "$@" | head -1; exit ${PIPESTATUS[0]}',
            "bash",
            box.python,
            box.pyz,
            "run",
            "demo",
            "--confirm",
            digest,
            "--board",
            "leave",
            "--foreground",
        ],
        cwd=box.root,
        env=b.make_env(box, b.SHORT),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = reader.communicate(timeout=90)
    return {"code": reader.returncode, "out": out.decode(), "row": read_row(box)}


def test_a_reader_that_went_away_does_not_stop_the_run(play, root):
    facts = play(play_reader_gone, root)
    assert facts["code"] == 0 and len(facts["out"].splitlines()) == 1
    assert facts["row"]["state"] == "ended 0" and "toy trainer: done" in facts["row"]["log"]
