"""`run --notify`: told of the gate, the first stall and the end, each once, whatever becomes of the pyz and of the program; and
what failed to tell is in the record."""
import json
import os
import shutil
import signal
import subprocess

from . import box as b
from . import vitals as v

# Keeps what it was told, and how it stands.
PROGRAM = """#!/bin/sh
{ env; echo "PWD_IS $(pwd)"; echo "ARGS $*"; echo "GROUP $$ $(ps -o pgid= -p $$)"; } >"$KEPT/$RLRUN_EVENT.env"
cat >"$KEPT/$RLRUN_EVENT.json"
echo "$RLRUN_EVENT" >>"$KEPT/events"
echo kept
"""
SECRET = "q7Xp2mZr8sLw"


def write_program(box, text=PROGRAM):
    path = os.path.join(box.folder, "told", "tell.sh")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    b.add_to_file(path, text)
    os.chmod(path, 0o755)
    return path


def read_told(folder, event):
    lines = b.read(os.path.join(folder, event + ".env")).split("\n")
    found = {line.partition("=")[0]: line.partition("=")[2] for line in lines if line.startswith(("RLRUN_", "WITH_", "HF_"))}
    return {"env": found, "lines": lines, "json": json.loads(b.read(os.path.join(folder, event + ".json")) or "{}")}


def list_events(folder):
    return b.read(os.path.join(folder, "events")).split()


# --- all three; the pyz is gone before the first of them

def play_told(box):
    program = write_program(box)
    folder = os.path.dirname(program)
    pyz = shutil.copy(box.pyz, os.path.join(folder, "own.pyz"))
    env = dict(v.STEADY, TOY_BRINGUP_SEC="2", TOY_SICK="stall", TOY_SICK_AT="4", KEPT=folder, WITH_IT="yes", HF_TOKEN=SECRET)
    own = box._replace(pyz=pyz)
    notify = "%s --mode 'two words' --token %s" % (program, SECRET)
    digest = b.check(own, "demo", env=env)["digest"]
    popen = subprocess.Popen(
        [own.python, pyz, "run", "demo", "--json", "--confirm", digest, "--board", "leave", "--notify", notify],
        env=b.make_env(own, env), cwd=own.root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    b.wait_for(lambda: b.find_processes("rlrun: keeper"), "the keeper")
    os.unlink(pyz)
    facts = {"early": list_events(folder)}
    found = json.loads(popen.communicate(timeout=b.LIMIT_SECONDS)[0].decode())
    b.wait_for(lambda: "gate" in list_events(folder), "the gate")
    log = found["train_log"]
    v.await_step(log, 3)
    b.wait_for(lambda: b.find_processes("main_ppo"), "a trainer that stands still")
    v.age([log, found["launch_log"]], 7200)
    b.wait_for(lambda: "stalled" in list_events(folder), "the stall")
    facts["live"] = [b.rlrun(box, "runs", found["record"].split("/")[-1]), b.rlrun(box, "status", "--json")]
    os.killpg(found["runner"]["pgid"], signal.SIGINT)
    b.wait_for(lambda: "ended" in list_events(folder), "the end")
    b.wait_for(lambda: not b.find_processes("rlrun: keeper"), "the keeper's end")
    facts.update(events=list_events(folder), told={name: read_told(folder, name) for name in ("gate", "stalled", "ended")})
    facts["found"] = {name: found[name] for name in ("record", "train_log", "runner", "experiment")}
    record = found["record"]
    facts["files"] = {name: [os.stat(os.path.join(record, name)).st_mode & 0o777, b.read(os.path.join(record, name))]
                      for name in os.listdir(record)}
    facts["over"] = b.rlrun(box, "runs", record.split("/")[-1])
    facts["host"] = os.uname().nodename
    return facts


def test_gate_stall_and_end_are_told_once_though_the_pyz_is_gone(play, root):
    from conftest import find_pythons  # here, for a scenario's box need not load it
    facts = play(play_told, root, python=find_pythons()[0])
    assert (facts["early"], facts["events"]) == ([], ["gate", "stalled", "ended"])
    record, log = facts["found"]["record"], facts["found"]["train_log"]
    results = {"gate": "passed", "stalled": "stalled", "ended": "ended badly"}
    for event, result in results.items():
        told = facts["told"][event]
        env, shape = told["env"], told["json"]
        assert (env["RLRUN_EVENT"], env["RLRUN_RESULT"], env["RLRUN_KIND"]) == (event, result, "train"), env
        assert (env["RLRUN_NAME"], env["RLRUN_HOST"]) == (facts["found"]["experiment"], facts["host"])
        assert (env["RLRUN_ID"], env["RLRUN_ROOT"]) == (os.path.basename(record), str(root))
        assert (env["RLRUN_RECORD"], env["RLRUN_LOG"]) == (record, log)
        assert "%s (train)" % env["RLRUN_NAME"] in env["RLRUN_WORDS"] and SECRET not in env["RLRUN_WORDS"]
        for name in "event result words id name kind host root record log status signal step".split():
            value = shape[name]
            assert env["RLRUN_" + name.upper()] == ("" if value is None else str(value)), name
        kept = facts["files"]["notify-%s.json" % event]
        assert shape["schema"] == 1 and kept == [0o600, json.dumps(shape, sort_keys=True) + "\n"]
        # the operator's own environment, the checkout, a group of its own
        assert (env["WITH_IT"], env["HF_TOKEN"]) == ("yes", SECRET) and "PWD_IS %s" % root in told["lines"]
        assert "ARGS --mode two words --token %s" % SECRET in told["lines"]
        pid, group = next(line for line in told["lines"] if line.startswith("GROUP")).split()[1:]
        assert pid == group
    words = {event: facts["told"][event]["env"] for event in results}
    assert words["gate"]["RLRUN_STEP"] == "1" and "the gates are passed at step 1" in words["gate"]["RLRUN_WORDS"]
    assert words["stalled"]["RLRUN_STEP"] == "3" and "stalled for 2h 00m" in words["stalled"]["RLRUN_WORDS"]
    assert words["gate"]["RLRUN_STATUS"] == words["gate"]["RLRUN_SIGNAL"] == ""
    assert words["ended"]["RLRUN_STATUS"] or words["ended"]["RLRUN_SIGNAL"]

    code, out, _ = facts["live"][0]
    assert code == 0 and "gate: sent \u00b7 stalled: sent\n" in out and "keeper is gone" not in out, out
    assert json.loads(facts["live"][1][1])["notes"] == []
    assert "gate: sent \u00b7 stalled: sent \u00b7 ended: sent\n" in facts["over"][1]
    kept = json.loads(facts["files"]["notify.json"][1])
    assert [(one["event"], one["sent"], one["how"], one["code"], one["output"]) for one in kept["events"]] == [
        (event, True, "ended", 0, "kept") for event in results]
    assert "keeper-bug.txt" not in facts["files"]
    assert SECRET not in json.dumps({name: text for name, (_, text) in facts["files"].items()})


# --- a program that fails; another build stands where the pyz was

def play_failing(box):
    pyz = shutil.copy(box.pyz, os.path.join(box.folder, "own.pyz"))
    own = box._replace(pyz=pyz)
    env = dict(b.SHORT, HF_TOKEN=SECRET)
    facts = {}
    for config, line in (("demo", 'cat >/dev/null; echo "no mail with $HF_TOKEN"; exit 3'),
                         ("exit_zero_error", "cat >/dev/null")):
        found = b.launch(own, config, "--board", "leave", "--notify-shell", "--notify", line, env=env)
        with open(pyz, "r+b") as file:  # in its place, as `cp` does it
            file.truncate(1000)
            file.write(b"another build" * 100)
        b.wait_for(lambda: not b.find_processes("rlrun: keeper"), "the keeper's end")
        run = os.path.basename(found["record"])
        facts[config] = {"code": found["code"], "kept": json.loads(b.read(os.path.join(found["record"], "notify.json"))),
                         "files": os.listdir(found["record"]), "exit": b.read(os.path.join(found["record"], "exit.json")),
                         "runs": b.rlrun(box, "runs", run), "status": v.look(box, run), "all": b.rlrun(box, "runs"),
                         "json": b.rlrun(box, "runs", run, "--json")}
        shutil.copy(box.pyz, pyz)
        b.wait_for_the_next_second()
    return facts


def test_what_failed_to_tell_is_told_by_runs_and_status(play, root):
    facts = play(play_failing, root)
    bad = facts["demo"]
    assert [(one["event"], one["result"], one["sent"], one["code"]) for one in bad["kept"]["events"]] == [
        ("gate", "passed", False, 3), ("ended", "ended well", False, 3)]
    failed = "FAILED (ended 3): no mail with <redacted>"
    assert "gate: %s \u00b7 ended: %s\n" % (failed, failed) in bad["runs"][1], bad["runs"][1]
    assert "the program of --notify failed (ended 3): no mail with <redacted>; it was to tell: ended" in bad["status"]["text"]
    assert bad["status"]["code"] == 0  # the run is as it is
    shape = json.loads(bad["json"][1])
    assert shape["notify"]["argv"][:2] == ["/bin/sh", "-c"] and len(shape["notify"]["events"]) == 2
    assert "FAILED" not in bad["all"][1] and SECRET not in json.dumps(facts)
    # S11: exit 0, and a traceback in the log
    sick = facts["exit_zero_error"]
    assert json.loads(sick["exit"])["status"] == 0 and "keeper-bug.txt" not in sick["files"] + bad["files"]
    ended = sick["kept"]["events"][-1]
    assert (ended["event"], ended["result"], ended["sent"]) == ("ended", "ended badly", True), sick["kept"]
    assert "ended: sent\n" in sick["runs"][1]


# --- the keeper is killed; and what is refused before anything is launched

def play_unkept(box):
    program = write_program(box)
    facts = {"refused": []}
    digest = b.check(box, "demo", env=v.STEADY)["digest"]
    for words in (["--notify", program + " | mail"], ["--notify", "no-such-program x"], ["--notify-shell"]):
        done = b.rlrun(box, "run", "demo", "--confirm", digest, "--board", "leave", *words, env=v.STEADY)
        facts["refused"].append([done.code, done.err, b.count_traces(box)])
    env = dict(v.STEADY, KEPT=os.path.dirname(program), TOY_STEP_SEC="1000")
    found = b.launch(box, "demo", "--background", "--board", "leave", "--notify", program, env=env)
    run = os.path.basename(found["record"])
    facts["before"] = b.rlrun(box, "runs", run)
    os.kill(b.find_processes("rlrun: keeper")[0], signal.SIGKILL)
    b.wait_for(lambda: not b.find_processes("rlrun: keeper"), "the keeper's end")
    facts["after"] = b.rlrun(box, "runs", run)
    b.end_runs()
    facts["events"] = list_events(os.path.dirname(program))
    return facts


def test_a_killed_keeper_tells_nobody_and_that_is_said(play, root):
    facts = play(play_unkept, root)
    for (code, err, traces), words in zip(facts["refused"], ("--notify-shell", "on PATH", "--notify")):
        assert (code, traces) == (2, b.NOTHING) and words in err, err
    assert "nothing to tell yet\n" in facts["before"][1], facts["before"]
    assert "its keeper is gone: nobody is told any more\n" in facts["after"][1] and facts["events"] == []
