"""`status`, `gate` and `watch` where others are about: another checkout's run, another user's, another container's, and runs of
which nothing is left but their logs (S5, P11, P15)."""
import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
from checkouts import add_config, build_checkout

from . import box as b
from . import vitals as v

NOBODY = 65534
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
DEAD = ("nccl", "trace", "kill", "early")
SAID = {"early": "the trainer was told to end, as its log says at step 5 of 8", "kill": "killed"}


@pytest.fixture
def named(root):
    add_config(root, "train", "named", v.NAMED)
    return root


# --- another checkout's run lives beside one's own

def play_beside(box, other):
    found = b.launch(box, "named", env=dict(v.STEADY, RUN_NAME="mine"))
    theirs = v.start_lego(box._replace(root=other), "theirs", out=os.path.join(box.folder, "theirs.out"))
    for root, name in ((box.root, "mine"), (other, "theirs")):
        v.await_step(v.find_log(box._replace(root=root), name), 1)
    facts = {"bare": v.look(box), "gate": b.rlrun(box, "gate"), "elsewhere": b.rlrun(box, "status", cwd="/")}
    os.kill(v.find_in_tree(found["runner"]["pid"], "main_ppo"), signal.SIGKILL)
    # At once: its keeper may not have written yet how it ended.
    facts["dead gate"] = [b.rlrun(box, "gate", "--step", "90000"), b.rlrun(box, "gate", "--json")]
    facts["dead"] = v.look(box, "mine")
    facts["chain"] = b.shell(box, '%s %s gate || echo MAIL' % (box.python, box.pyz))
    facts["theirs live"] = b.is_alive(theirs.pid)
    v.end(theirs)
    return facts


def test_gate_and_status_mean_the_own_checkouts_run_dead_or_alive(play, named, tmp_path):
    other = build_checkout(tmp_path / "another")
    add_config(other, "train", "named", v.NAMED)
    facts = play(play_beside, named, other=other)
    shape = facts["bare"]["shape"]
    assert (shape["run"]["name"], shape["verdict"], facts["bare"]["code"]) == ("mine", "healthy", 0), facts["bare"]["err"]
    assert "1 more run lives on this machine, of another checkout" in shape["notes"]
    assert facts["gate"][0] == 0 and facts["gate"][1].startswith("mine: the gates are passed"), facts["gate"]
    assert facts["elsewhere"][0] == 2 and "several runs are live here:" in facts["elsewhere"][2]

    assert facts["theirs live"]
    for code, out, err in facts["dead gate"]:
        assert code == 4 and "mine" in out and "theirs" not in out + err, (code, out, err)
    code, out, err = facts["chain"]
    assert code == 0 and out.startswith("mine: ") and out.endswith("MAIL\n") and "theirs" not in out + err, (out, err)
    # by whom the signal came was not told
    ending = facts["dead"]["shape"]["ending"]
    assert (ending["how"], ending["signal"], facts["dead"]["code"]) == ("killed", "SIGKILL", 4)
    assert "most likely" not in facts["dead"]["text"], ending


# --- a gate and a watch that were there before the trainer's log

def play_early(box):
    out, log = os.path.join(box.folder, "early.out"), v.find_log(box, "early")
    run = v.start_lego(box, "early", out=out, env={"TOY_BRINGUP_SEC": "0.7"})
    b.wait_for(lambda: "starting ray head" in b.read(out), "the stage")
    v.freeze(run.pid)
    facts = {"is early": not os.path.exists(log), "title": b.rlrun(box, "status").out.split("\n")[0]}
    gate, watch = (subprocess.Popen(
        [box.python, box.pyz] + words, env=box.env, cwd=box.root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE) for words in (["gate", "--timeout", "60s"], ["watch", "--every", "1s"]))
    facts["gate told"] = os.read(gate.stderr.fileno(), 65536).decode()
    seen = os.read(watch.stdout.fileno(), 65536).decode()
    facts["watch told"] = seen
    v.thaw(run.pid)
    out, err = gate.communicate(timeout=b.LIMIT_SECONDS)
    facts["gate"] = [gate.returncode, out.decode(), err.decode()]
    while "  stage    step " not in seen and seen.count("=== ") < 30:
        seen += os.read(watch.stdout.fileno(), 65536).decode()
    watch.send_signal(signal.SIGINT)
    watch.communicate(timeout=b.LIMIT_SECONDS)
    facts["watch"] = seen
    v.end(run)
    return facts


def test_what_was_started_before_the_trainers_log_sees_its_first_step(play, named):
    facts = play(play_early, named)
    assert facts["is early"] and facts["title"].startswith("rlrun status — early "), facts["title"]
    assert "early: " in facts["gate told"] and " of 1m)" in facts["gate told"] and "step 1" not in facts["gate told"]
    assert "no step yet" in facts["watch told"] and "  stage    step " not in facts["watch told"]
    assert facts["gate"][0] == 0 and "the gates are passed at step 1" in facts["gate"][1], facts["gate"]
    assert "  stage    step " in facts["watch"] and "healthy" in facts["watch"].split("=== ")[-1], facts["watch"]


# --- started by hand, and dead: only its logs are left, as fresh as they are

def play_dead(box):
    runs = {word: v.start_lego(box, "dead-" + word, out=os.path.join(box.folder, word + ".out"), env={
        "TOY_SICK": word, "TOY_SICK_AT": "6", "TOY_STEPS": "8"}) for word in DEAD + ("",)}
    for run in runs.values():
        run.wait()
    b.wait_for(lambda: not b.find_processes("main_ppo") and not b.find_processes("tee"), "all of their processes' end")
    return {word: {"log": v.look(box, v.find_log(box, "dead-" + word)), "out": v.look(box, os.path.join(
        box.folder, word + ".out"))} for word in runs}


def test_a_bare_log_of_a_run_that_died_is_never_healthy(play, named):
    facts = play(play_dead, named)
    for word in DEAD:
        for name, found in facts[word].items():
            where = (word, name, found["text"])
            shape = found["shape"]
            assert shape["verdict"] in ("unknown", "ended") and shape["run"]["state"] != "live", where
            assert found["code"] == found["shape_code"] == {"unknown": 1, "ended": 4}[shape["verdict"]], where
            assert shape["progress"]["left_seconds"] is None and shape["progress"]["step"] == 5, where
            assert word not in SAID or SAID[word] in shape["conclusion"], where
    for found in facts[""].values():
        assert (found["shape"]["verdict"], found["shape"]["ending"]["how"], found["code"]) == ("ended", "ended well", 0)


# --- another user's checkout: nothing of it is run; a log that is not ours to read

# A runner that says so where it is started for a dry run.
TRAP = """#!/usr/bin/env bash
case " $* " in *" --dry-run "*) id -u >>ROOT/marker; exit 1 ;; esac
sleep 1000 & wait
"""


def play_trap(box):
    subprocess.check_call(["mount", "-t", "tmpfs", "tmpfs", "/srv"])
    facts = {}
    for name, user in (("theirs", NOBODY), ("own", 0)):
        root = "/srv/" + name
        shutil.copytree(box.root, root)
        script = root + "/scripts/train/train.sh"
        os.remove(script)
        b.add_to_file(script, TRAP.replace("ROOT", root))
        subprocess.check_call(["chown", "-R", "%d:%d" % (user, user), root])
        subprocess.check_call(["chmod", "-R", "u+rwX,go=rX", root])
        run = subprocess.Popen(["bash", script, root + "/scripts/train/configs/named.env"], cwd="/", stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
                               preexec_fn=lambda user=user: os.setuid(user))
        b.wait_for(lambda pid=run.pid: v.find_in_tree(pid, "sleep"), "%s runner" % name)
        facts[name] = {"look": v.look(box, str(run.pid)), "bare": b.rlrun(box, "status", cwd="/")}
        facts[name]["marker"] = b.read(root + "/marker")
        v.end(run)
    return facts


def test_nothing_of_another_users_checkout_is_run(play, named):
    facts = play(play_trap, named)
    assert set(facts["own"]["marker"].split()) == {"0"}  # the trap works
    theirs = facts["theirs"]
    assert theirs["marker"] == "", theirs
    assert (theirs["look"]["shape"]["run"]["state"], theirs["look"]["shape"]["run"]["user"]) == ("live", "nobody")
    assert theirs["bare"][0] == theirs["look"]["code"] and "no log of it was found" in theirs["bare"][1]


# --- another container: the same machine, boot and files, other pids

# In a table of pids of its own, a process with the pid, group and session of the run's runner.
DOUBLE = """
for pid in %d; do echo $((pid - 1)) >/proc/sys/kernel/ns_last_pid; python3 -c 'import os, time; os.setsid(); time.sleep(1000)' &
echo "double $!"; done
until [ "$(ps -o pgid= -p $! | tr -d ' ')" = $! ]; do sleep 0.05; done
"""


def look_from_another(box, pid):
    """(the pid of the double, status, runs, gate) as a second container sees them."""
    words = '"%s" "%s"' % (box.python, box.pyz)
    script = DOUBLE % pid + "for words in 'status --json' 'runs --json' 'gate --json --timeout 1s'; do\n%s $words; done" % words
    done = subprocess.run(["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "bash", "-c", script],
                          env=box.env, cwd=box.root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    double, *shapes = done.stdout.decode().strip().split("\n")
    return {"double": int(double.split()[1]), "shapes": list(map(json.loads, shapes)), "err": done.stderr.decode()}


def play_containers(box):
    found = b.launch(box, "named", env=dict(v.STEADY, RUN_NAME="first"))
    v.await_step(found["train_log"], 1)
    pid = found["runner"]["pid"]
    facts = {"pid": pid, "here": v.look_shape(box), "live": look_from_another(box, pid)}
    v.kill_tree(pid)
    b.wait_for(lambda: not b.find_processes("rlrun: keeper"), "the keeper's end")
    facts["over"] = look_from_another(box, pid)
    return facts


def test_P15_a_record_of_another_container_claims_no_process_of_this_one(play, named):
    facts = play(play_containers, named)
    assert facts["here"]["run"]["state"] == "live"
    for name in ("live", "over"):
        found = facts[name]
        assert found["double"] == facts["pid"] and len(found["shapes"]) == 3, found
        status, runs, gate = found["shapes"]
        run = status["run"]
        assert (name, run["name"], run["pids"], run["stop"]) == (name, "first", {}, None)
        assert "live on" not in str(status["notes"]) and not runs["runs"][0]["left"], status["notes"]
        state = "elsewhere" if name == "live" else "over"
        assert (name, run["state"]) == (name, state) and runs["runs"][0]["state"].startswith(
            "elsewhere" if name == "live" else "killed"), runs
        assert gate["run"]["state"] == state and gate["exit"] == (0 if name == "live" else 4), gate
