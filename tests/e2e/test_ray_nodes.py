"""Two nodes that join by Ray: whoever waits is shown whom it waits for. With a real Ray, each node a machine of its own, and with
a stand-in for what a real one does seldom."""
import glob
import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from . import box as b
from . import two_nodes

VENV = os.path.dirname(os.path.dirname(sys.executable))
HAS_RAY = os.access(os.path.join(VENV, "bin", "ray"), os.X_OK)


def find_logs(box, name):
    return sorted(glob.glob(os.path.join(box.root, "logs", name)))


def await_word(box, name, word):
    """The one launch log of this name, once it holds the word."""
    b.wait_for(lambda: any(word in b.read(path) for path in find_logs(box, name)), "%s in %s" % (word, name))
    path, = find_logs(box, name)
    return path


# --- with a real Ray

def play_real(box):
    env = dict(box.env, VENV_PATH=VENV, TOY_RAY="1", TOY_LOOK_SEC="1", TOY_STEPS="100000", TOY_STEP_SEC="0.2")
    facts = {}
    with two_nodes.start([VENV]) as pair:
        def ask(node, *words):
            done = pair.run(node, [box.python, box.pyz] + list(words), env, box.root)
            return {"code": done.code, "out": done.out, "err": done.err,
                    "shape": json.loads(done.out) if "--json" in words and done.out else {}}
        digest = ask("n1", "check", "two_nodes", "--json")["shape"]["digest"]
        facts["nodes"] = ask("n1", "nodes", "two_nodes", "--hosts", "n[1-2]", "--check", "--json")
        run = pair.spawn("n1", [box.python, box.pyz, "run", "two_nodes", "--json", "--confirm", digest, "--board", "leave"], env,
                         box.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        head_log = await_word(box, "launch_*.log", "Ray runtime started")
        facts["alone"] = ask("n1", "status", "--json")
        facts["alone text"] = ask("n1", "status")["out"]
        # as the block prints it, pasted in a plain sh; and now the two wait for each other
        line = ask("n1", "nodes", "two_nodes", "--json")["shape"]["line"]
        facts["line"] = line
        facts["pasted"] = pair.shell("n2", line, env)._asdict()
        worker_log = await_word(box, "launch_*_n2.log", "[WORKER] waiting for head")
        facts["worker waits"] = ask("n1", "status")["out"]
        await_word(box, "launch_*_n2.log", "[WORKER] joined")
        facts["worker"] = ask("n2", "status", worker_log, "--json")
        facts["gate of worker"] = ask("n2", "gate", worker_log)
        out, err = run.communicate(timeout=90)
        facts["run"] = {"code": run.returncode, "shape": json.loads(out.decode()), "err": err.decode()}
        b.wait_for(lambda: "step:1 - " in b.read(head_log), "the first step")
        facts["trains"] = ask("n1", "status", "--json")
    return facts


@pytest.mark.skipif(not HAS_RAY or bool(two_nodes.find_missing()), reason="no Ray beside this Python, or no iproute2")
def test_two_nodes_join_by_a_real_ray(play, root):
    facts = play(play_real, root)
    joining = facts["alone"]["shape"]["progress"]["joining"]
    assert (joining["nodes"], joining["joined"], joining["members"]) == (2, 1, ["10.77.0.1 (n1)"])
    assert joining["missing"] == ["n2"] and joining["others"] == []
    assert 0 < joining["left_seconds"] <= 300 and "60 times, 5 s apart" in joining["left_from"]
    assert facts["alone"]["code"] == 0 and facts["alone"]["shape"]["progress"]["stage"] == \
        "waiting for nodes, 1 of 2 joined; missing: n2"
    assert "1 of 2 nodes joined, as Ray at 10.77.0.1:6379 tells: 10.77.0.1 (n1)" in facts["alone text"]
    assert "missing: n2\n" in facts["alone text"] and " s more at least: " in facts["alone text"]
    assert facts["pasted"]["code"] == 0
    worker = facts["worker"]
    assert (worker["code"], worker["shape"]["ending"]["how"], worker["shape"]["progress"]["joining"]) == (0, "joined", None)
    assert facts["gate of worker"]["code"] == 2 and "tells no steps" in facts["gate of worker"]["err"]
    assert facts["run"]["code"] == 0, facts["run"]
    assert facts["trains"]["shape"]["progress"]["joining"] is None and facts["trains"]["shape"]["verdict"] == "healthy"


# --- with a stand-in: what it says lies in a file, and what it was asked is written to another

FAKE_RAY = r"""
printf '%s\n' "$*" >>"$FAKE/asked"
case "$1" in
    start) echo "Ray runtime started."; exit "$(cat "$FAKE/start-code" 2>/dev/null || echo 0)" ;;
    status)
        case "$*" in
            *--address=*) [ ! -e "$FAKE/hang" ] || sleep 1000 ;;
        esac
        cat "$FAKE/says" ;;
esac
"""
ONE_NODE = """\
======== Autoscaler status: 2026-11-30 07:07:39.444829 ========
Node status
---------------------------------------------------------------
Active:
 1 node_7b43449a8b6965c37413adf71e3307532c3776e03467c5faba93ee03
Pending:
 (no pending nodes)
Recent failures:
 (no failures)
"""


def play_fake(box):
    fake = os.path.join(box.folder, "fake")
    os.mkdir(fake)
    says, hang = os.path.join(fake, "says"), os.path.join(fake, "hang")
    b.add_to_file(says, ONE_NODE)
    # an interpreter without Ray
    env = dict(TOY_RAY="1", TOY_LOOK_SEC="1", FAKE=fake)
    facts = {}

    def look(*words):
        done = b.rlrun(box, "status", "--json", *words, env=env)
        return dict(json.loads(done.out), code=done.code)
    digest = b.check(box, "two_nodes", env=env)["digest"]
    run = subprocess.Popen([box.python, box.pyz, "run", "two_nodes", "--json", "--confirm", digest, "--board", "leave"],
                           env=b.make_env(box, env), cwd=box.root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL)
    await_word(box, "launch_*.log", "Ray runtime started")
    facts["refused"] = look()["progress"]["joining"]
    run.send_signal(signal.SIGINT)  # ends the waiting alone
    facts["launch"] = json.loads(run.communicate(timeout=60)[0].decode())
    with socket.socket() as listener:
        listener.bind(("0.0.0.0", 6379))
        listener.listen(50)
        facts["one"] = look()
        facts["text"] = b.rlrun(box, "status", env=env).out
        b.add_to_file(hang, "")
        facts["hangs"] = look()
        os.unlink(hang)
        b.end_runs()
        facts["asked"] = [line for line in b.read(os.path.join(fake, "asked")).splitlines() if line.startswith("status -")]
    # the runner gives up
    facts["gave up"] = b.launch(box, "two_nodes", "--board", "leave", "--again", env=dict(env, TOY_JOIN_SEC="1"))
    facts["after it gave up"] = look(os.path.basename(facts["gave up"]["record"]))
    # a worker joins, and another one does not
    b.wait_for_the_next_second()
    there = dict(env, MASTER_ADDR="203.0.113.77", TOY_TRY_SEC="0.01")
    facts["joins"] = b.launch(box, "two_nodes", "--board", "leave", "--again", env=there)
    facts["joined"] = look(os.path.basename(facts["joins"]["record"]))
    facts["gate"] = b.rlrun(box, "gate", os.path.basename(facts["joins"]["record"]))._asdict()
    b.wait_for_the_next_second()
    b.add_to_file(os.path.join(fake, "start-code"), "1")
    facts["fails"] = b.launch(box, "two_nodes", "--board", "leave", "--again", env=there)
    facts["failed"] = look(os.path.basename(facts["fails"]["record"]))
    facts["runs"] = {one["id"]: one["state"] for one in b.list_runs(box)}
    return facts


def test_who_waits_and_who_gave_up(play, root, fake_program):
    fake_program("ray", FAKE_RAY)
    facts = play(play_fake, root)
    assert facts["refused"]["joined"] is None and facts["refused"]["told_by"] == \
        "127.0.0.1:6379 does not answer: connection refused"
    assert facts["launch"]["exit"] == 0 and facts["launch"]["joining"]["told_by"] == facts["refused"]["told_by"]
    one = facts["one"]["progress"]["joining"]
    assert (one["joined"], one["members"], one["missing"]) == (1, [], []) and facts["one"]["code"] == 0
    assert one["told_by"] == "as ray status --address=127.0.0.1:6379 tells"
    assert "missing: 1, of which nothing is known here" in facts["text"] and " s more at least: " in facts["text"]
    hangs = facts["hangs"]["progress"]["joining"]
    assert hangs["joined"] is None and "no end within" in hangs["told_by"] and facts["hangs"]["code"] == 0
    assert set(facts["asked"]) == {"status --address=127.0.0.1:6379"}  # the run's own cluster, no other
    assert facts["gave up"]["code"] == 4 and "only 1/2 nodes joined" in " ".join(facts["gave up"]["fatal"])
    after = facts["after it gave up"]
    assert (after["code"], after["ending"]["how"], after["progress"]["joining"]) == (4, "failed", None)
    assert "only 1/2 nodes joined" in after["ending"]["first_error"]["text"]
    assert facts["joins"]["code"] == 0 and facts["joins"]["ended"]["status"] == 0 and facts["fails"]["code"] == 4
    assert (facts["joined"]["code"], facts["joined"]["ending"]["how"]) == (0, "joined")
    assert facts["gate"]["code"] == 2 and "tells no steps" in facts["gate"]["err"]
    assert (facts["failed"]["code"], facts["failed"]["ending"]["how"]) == (4, "failed")
    states = [facts["runs"][os.path.basename(facts[name]["record"])] for name in ("gave up", "joins", "fails")]
    assert states == ["ended 1", "joined", "ended 1"]
