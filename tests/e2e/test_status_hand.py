"""Runs that somebody started by hand, without rlrun: they are found by process table, open files and the runner's own words;
several are listed; what can't be told is not claimed (E1, P11, L17)."""
import json
import os
import shlex
import shutil
import subprocess
import sys

import pytest
from checkouts import add_config, add_prime_config, build_prime_checkout

from . import box as b
from . import vitals as v

NOBODY, SOMEBODY = 65534, 65533
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable


@pytest.fixture
def named(root):
    add_config(root, "train", "named", v.NAMED)
    return root


@pytest.fixture
def prime_root(tmp_path):
    root = build_prime_checkout(tmp_path / "prime")
    add_prime_config(root, "steady", v.RL)
    return root


# --- Lego-RL: output to a file, to a pipe, to a terminal; the cwd is elsewhere

def play_lego(box):
    facts = {"none": {name: [b.rlrun(box, *words) for words in ([name], [name, "--json"][:1 + (name != "watch")])]
                      for name in ("status", "gate", "watch")}, "nowhere": b.rlrun(box, "status", cwd="/")}
    out = os.path.join(box.folder, "foo.out")
    one = v.start_lego(box, "one", out=out)
    v.await_step(v.find_log(box, "one"), 2)
    facts["one"] = v.look(box)
    two = v.start_lego(box, "two", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    script = [os.path.join(box.root, "scripts/train", name) for name in ("train.sh", "configs/named.env")]
    three = b.open_terminal(["bash"] + script, b.make_env(box, v.STEADY, {"RUN_NAME": "three"}), "/")
    for name in ("two", "three"):
        v.await_step(v.find_log(box, name), 2)
    facts["pids"] = [one.pid, two.pid, three.pid]
    facts["several"] = [b.rlrun(box, "status"), b.rlrun(box, "status", "--json"), b.rlrun(box, "gate"), b.rlrun(box, "watch")]
    asked = b.open_rlrun(box, "status")
    b.expect(asked, "Which one? [1-3] ")
    b.send(asked, "2\n")
    facts["asked"] = b.finish(asked)
    asked = b.open_rlrun(box, "status")
    b.expect(asked, "Which one? [1-3] ")
    b.send(asked, "\n")
    facts["not asked"] = b.finish(asked)
    words = {"name": "two", "part": "tw", "log": v.find_log(box, "two"), "runner": str(two.pid), "tee": str(
        v.find_in_tree(two.pid, "tee")), "trainer": str(v.find_in_tree(two.pid, "main_ppo"))}
    facts["two"] = {name: v.look_shape(box, word, cwd="/") for name, word in words.items()}
    facts["out"] = v.look_shape(box, out, cwd="/")
    facts["three"] = v.look_shape(box, "three")
    facts["unknown"] = [b.rlrun(box, "status", word) for word in (
        "nothing-like-it", "99999999", str(os.getpid()), "/etc/hostname")]
    v.end(one, two)
    facts["three left"] = v.look_shape(box)["run"]["name"]
    v.kill_tree(three.pid)
    # no process any more: its log alone, as fresh as it is, then grown cold
    log = v.find_log(box, "one")
    facts["fresh"] = v.look(box, log, cwd="/")
    v.age([log], 9000)
    facts["cold"] = v.look(box, log, cwd="/")
    return facts


def test_runs_of_lego_rl_by_hand(play, named):
    facts = play(play_lego, named)
    for name, done in facts["none"].items():
        assert all(code == 5 and err.startswith("rlrun: no run is live on this machine, and none was recorded in %s\n" % named)
                   for code, _, err in done), (name, done)
        assert name == "watch" or json.loads(done[1][1])["reason"] == "no-run"
    code, out, err = facts["nowhere"]
    assert (code, out) == (5, "") and "this is no checkout" in err and "--root DIR" in err

    one, two, three = facts["pids"]
    shape = facts["one"]["shape"]
    run, logs = shape["run"], os.path.join(named, "logs")
    assert (shape["verdict"], facts["one"]["code"], facts["one"]["err"]) == ("healthy", 0, "")
    assert (run["name"], run["state"], run["id"], run["record"], run["user"]) == ("one", "live", None, None, "root")
    assert run["logs"] == {"train": logs + "/one.log", "vllm": logs + "/one_vllm.log", "launch": run["launch_log"]}
    assert run["launch_log"].endswith("/foo.out") and run["root"] == named and run["pids"]["runner"] == [one]
    assert shape["progress"]["total"] == 100000 and shape["progress"]["step"] >= 2 and shape["progress"]["epochs"] == 1
    assert shape["notes"] == ["not launched by rlrun"] and "Note: not launched by rlrun" in facts["one"]["text"]
    assert "run configuration (train)" in shape["configuration"]

    # several: never one of them silently
    (code, out, err), (json_code, shown, _), gate, watch = facts["several"]
    assert (code, json_code, gate[0], watch[0], out) == (2, 2, 2, 2, "") and "several runs are live here:" in err
    rows = [line.split() for line in err.splitlines()[1:4]]
    assert [(row[0], row[1], row[4]) for row in rows] == [
        ("1.", "one", str(one)), ("2.", "two", str(two)), ("3.", "three", str(three))]
    told = json.loads(shown)
    assert (told["reason"], told["exit"], told["schema"]) == ("several", 2, 1)
    assert [(row["name"], row["pids"][0], row["state"]) for row in told["candidates"]] == [
        ("one", one, "live"), ("two", two, "live"), ("three", three, "live")]
    assert facts["asked"][0] == 0 and "rlrun status — two " in facts["asked"][1]
    assert facts["not asked"][0] == 2 and "no run was chosen" in facts["not asked"][1]

    for name, shape in facts["two"].items():
        assert (name, shape["code"], shape["run"]["name"], shape["run"]["pids"]["runner"]) == (name, 0, "two", [two])
        assert shape["run"]["logs"] == {"train": logs + "/two.log", "vllm": logs + "/two_vllm.log"}, name
        assert shape["run"]["launch_log"] is None and shape["progress"]["step"] >= 2, name
    assert (facts["out"]["run"]["name"], facts["three"]["run"]["pids"]["runner"]) == ("one", [three])
    assert facts["three left"] == "three"
    wordless, far, own, foreign = facts["unknown"]
    assert [one[0] for one in facts["unknown"]] == [2, 2, 2, 2] and not any(one[1] for one in facts["unknown"])
    assert "no run is called nothing-like-it" in wordless[2] and "no process has the pid 99999999" in far[2]
    assert "belongs to no run" in own[2] and "/etc/hostname holds no log of a run" in foreign[2]

    # never "dead": nobody here can know
    for name, state in (("fresh", "elsewhere"), ("cold", "unknown")):
        shape = facts[name]["shape"]
        assert (name, shape["run"]["state"], shape["run"]["pids"], facts[name]["code"]) == (name, state, {}, int(name == "cold"))
        assert "dead" not in facts[name]["text"] and shape["ending"] is None and shape["progress"]["step"] >= 2
        assert shape["progress"]["left_seconds"] is None and "left" not in facts[name]["text"], facts[name]["text"]
    assert "by its numbers alone: " in facts["fresh"]["text"] and "no process of it is here: " in facts["fresh"]["text"]
    assert facts["cold"]["shape"]["verdict"] == "unknown" and "log last written 2h 30m ago" in facts["cold"]["text"]


# --- prime-rl: two beside each other, in both layouts of its directories

def play_prime(box):
    one = v.start_prime(box, "one", 0, out=os.path.join(box.folder, "rl.out"))
    v.await_step(v.find_log(box, "one"), 2)
    facts = {"one": v.look(box)}
    two = v.start_prime(box, "two", 1, stdout=subprocess.PIPE, env={"TOY_LAYOUT": "new"})
    v.await_step(v.find_log(box, "two"), 2)
    facts["pids"] = [one.pid, two.pid]
    facts["several"] = [b.rlrun(box, "status"), b.rlrun(box, "status", "--json", cwd="/")]
    folder = os.path.join(box.root, "outputs/two")
    words = {"name": "two", "directory": folder, "log": v.find_log(box, "two"), "orchestrator": os.path.join(
        folder, "logs/attempt_1/orchestrator.log"), "launcher": str(two.pid), "trainer": str(v.find_in_tree(two.pid, "Trainer"))}
    facts["two"] = {name: v.look_shape(box, word, cwd="/") for name, word in words.items()}
    v.end(one, two)
    facts["fresh"] = v.look(box, folder, cwd="/")
    v.age([os.path.join(folder, "logs/attempt_1", name + ".log") for name in ("trainer", "orchestrator", "inference")] + [
        os.path.join(folder, "logs/attempt_1/envs/train/reverse-text.log"), os.path.join(folder, "metrics.jsonl")], 9000)
    facts["cold"] = v.look(box, folder, cwd="/")
    return facts


def test_runs_of_prime_rl_by_hand(play, prime_root):
    facts = play(play_prime, prime_root)
    one, two = facts["pids"]
    shape, folder = facts["one"]["shape"], os.path.join(prime_root, "outputs/one")
    run = shape["run"]
    assert (shape["verdict"], facts["one"]["code"]) == ("healthy", 0), facts["one"]["text"]
    assert (run["name"], run["state"], run["kind"], run["run_dir"], run["root"]) == ("one", "live", "rl", folder, prime_root)
    assert run["logs"]["trainer"] == folder + "/logs/attempt_1/trainer.log" and run["launch_log"].endswith("/rl.out")
    assert set(run["logs"]) >= {"trainer", "orchestrator", "inference", "env train reverse-text", "metrics"}
    assert run["pids"]["launcher"] == [one] and {"trainer", "orchestrator", "inference", "env server"} <= set(run["pids"])
    assert shape["progress"]["total"] == 100000 and shape["progress"]["total_from"]
    code, out, err = facts["several"][0]
    assert (code, out) == (2, "") and "several runs are live here:\n   1. one  rl pid %d (root)" % one in err
    assert [row["name"] for row in json.loads(facts["several"][1][1])["candidates"]] == ["one", "two"]
    for name, shape in facts["two"].items():
        assert (name, shape["code"], shape["run"]["name"], shape["run"]["pids"]["launcher"]) == (name, 0, "two", [two])
        assert shape["progress"]["step"] >= 2 and shape["run"]["run_dir"] == os.path.join(prime_root, "outputs/two"), name
    for name, state in (("fresh", "elsewhere"), ("cold", "unknown")):
        shape = facts[name]["shape"]
        assert (name, shape["run"]["state"], shape["run"]["pids"], shape["run"]["name"]) == (name, state, {}, "two")
        assert "dead" not in facts[name]["text"] and shape["ending"] is None and facts[name]["code"] == int(name == "cold")
        assert shape["progress"]["total"] == 100000, name
    assert facts["cold"]["shape"]["verdict"] == "unknown"


# --- a zombie; the stop line; another user's run

def play_zombie(box):
    run = v.start_lego(box, "gone", out=os.path.join(box.folder, "gone.out"))
    v.await_step(v.find_log(box, "gone"), 1)
    v.kill_tree(run.pid)
    b.wait_for(lambda: b.read_state(run.pid) == "Z", "the zombie")
    return {"pid": run.pid, "named": b.rlrun(box, "status", str(run.pid)), "none": b.rlrun(box, "status"),
            "log": v.look_shape(box, v.find_log(box, "gone"))}


def test_P11_a_zombie_is_no_live_run(play, named):
    facts = play(play_zombie, named)
    code, out, err = facts["named"]
    assert (code, out) == (2, "") and "pid %d is a zombie: it has ended" % facts["pid"] in err
    assert facts["none"][0] == 5 and "no run is live" in facts["none"][2]
    assert facts["log"]["run"]["state"] != "live" and facts["log"]["run"]["pids"] == {}


def play_stop(box, line):
    """A script starts the run in its background; it and what else it started must outlive the run's stop line."""
    script = "%s & sleep 1000 & wait" % line.format(*map(shlex.quote, (
        box.root + "/scripts/train/train.sh", box.root + "/scripts/train/configs/named.env", box.folder + "/s.out")))
    starter = subprocess.Popen(["bash", "-c", script], env=b.make_env(box, v.STEADY, {"RUN_NAME": "behind"}), cwd="/",
                               stdin=subprocess.DEVNULL, start_new_session=True)
    v.await_step(v.find_log(box, "behind"), 1)
    found = v.look_shape(box)
    tree = v.list_tree(found["run"]["pids"]["runner"][0])
    done = b.shell(box, found["run"]["stop"], cwd="/")
    b.wait_for(lambda: not any(map(b.is_alive, tree)), "the end of the run by %s" % found["run"]["stop"], 15)
    facts = {"done": done, "starter": b.is_alive(starter.pid), "others": len(v.list_tree(starter.pid)), "run": found["run"]}
    v.end(starter)
    return facts


@pytest.mark.parametrize("line", ["nohup bash {} {} >{} 2>&1", "nohup setsid bash {} {} >{} 2>&1"], ids=["nohup", "setsid"])
def test_the_stop_line_of_a_run_that_ignores_SIGINT_ends_it_and_nothing_else(play, named, line):
    facts = play(play_stop, named, line=line)
    assert facts["done"][0] == 0 and facts["starter"] and facts["others"] == 2, facts


def play_foreign(box):
    """The checkout lies where everybody can read it; nobody runs it, and somebody else looks."""
    subprocess.check_call(["mount", "-t", "tmpfs", "tmpfs", "/srv"])
    os.chmod("/srv", 0o755)
    shutil.copytree(box.root, "/srv/checkout")
    shutil.copy(box.pyz, "/srv/tool.pyz")
    for name in ("logs", "home"):
        os.makedirs("/srv/checkout/" + name, exist_ok=True)
        os.chown("/srv/checkout/" + name, NOBODY, NOBODY)
    os.chmod("/srv/tool.pyz", 0o644)
    moved = box._replace(root="/srv/checkout", pyz="/srv/tool.pyz", python=PYTHON, env=dict(box.env, HOME="/srv/checkout/home"))
    run = v.start_lego(moved, "theirs", out="/srv/checkout/logs/theirs.out", preexec_fn=lambda: os.setuid(NOBODY))
    v.await_step("/srv/checkout/logs/theirs.log", 2)

    def look(*words):
        done = subprocess.run([PYTHON, "/srv/tool.pyz", "status"] + list(words), env=moved.env, cwd="/srv/checkout",
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              preexec_fn=lambda: os.setuid(SOMEBODY))
        return [done.returncode, done.stdout.decode(), done.stderr.decode()]
    facts = {"pid": run.pid, "text": look(), "json": look("--json"), "log": look("/srv/checkout/logs/theirs.log", "--json"),
             "root": v.look_shape(moved)}
    os.chmod("/srv/checkout/logs/theirs.log", 0o600)
    facts["closed"] = [look("/srv/checkout/logs/theirs.log"), look("/srv/checkout/logs/theirs.log", "--json")]
    v.end(run)
    return facts


def test_another_users_run_is_found_though_its_files_are_hidden(play, named):
    facts = play(play_foreign, named)
    code, text, err = facts["text"]
    assert (code, err) == (0, "") and "rlrun status — " in text and "runner=%d" % facts["pid"] in text, text
    found = json.loads(facts["json"][1])
    assert (found["run"]["state"], found["run"]["user"], found["run"]["pids"]["runner"]) == ("live", "nobody", [facts["pid"]])
    assert found["verdict"] in ("healthy", "unknown") and "/fd" not in text
    # what is told of its log is true: it is that run's, or it says that none was found
    assert set(found["run"]["logs"].values()) <= {"/srv/checkout/logs/theirs.log", "/srv/checkout/logs/theirs_vllm.log",
                                                  "/srv/checkout/logs/theirs.out"}
    assert found["run"]["logs"] or "no log of it was found" in text
    told = json.loads(facts["log"][1])
    assert told["progress"]["step"] >= 2 and facts["log"][0] == 0
    assert (facts["root"]["run"]["name"], facts["root"]["verdict"]) == ("theirs", "healthy")
    (code, text, err), (json_code, shown, _) = facts["closed"]
    told = json.loads(shown)
    assert (code, json_code, told["verdict"], told["progress"]["step"], err) == (1, 1, "unknown", None, ""), text
    assert "can't be read: permission denied (nobody's, mode 600)" in told["conclusion"] and told["conclusion"] in text
