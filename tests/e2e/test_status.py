"""`rlrun status` on a run that rlrun launched: the numbers, every way to name it, the page, and that looking changes nothing,
tells no secret and needs no more than Python 3.6 in a bare environment (S5, P11)."""
import json
import os
import re
import signal
import socket
import subprocess

import pytest
from checkouts import add_config, add_prime_config, build_prime_checkout

from . import box as b
from . import vitals as v
from .scene import hash_tree

SHAPE = {"schema", "command", "exit", "time", "verdict", "conclusion", "run", "progress", "metrics", "curves", "findings",
         "ending", "errors", "recommendations", "notes", "configuration"}
RUN = {"id", "name", "stack", "kind", "root", "state", "user", "host", "started_seconds", "elapsed_seconds", "pids", "logs",
       "launch_log", "run_dir", "siblings", "jobs", "config", "digest", "record", "stop"}
PROGRESS = {"step", "total", "total_from", "epoch", "epochs", "stage", "seconds_per_step", "first_step_seconds", "left_seconds",
            "left_from", "idle_seconds", "checkpoint", "segments", "missing_steps", "joining"}
METRIC = {"key", "label", "row", "source", "value", "step", "rounded", "mark", "words", "trend"}
TOKEN = "hf_" + "AbCdEfGh" * 4
MARKUP = "<script>alert(1)</script>"


@pytest.fixture
def prime_root(tmp_path):
    root = build_prime_checkout(tmp_path / "prime")
    add_prime_config(root, "steady", v.RL + "[ckpt]\ninterval = 1\n")
    return root


def launch(box, is_prime, **env):
    if is_prime:
        return b.launch_words(box, "steady", env=dict(v.STEADY_RL, **env), options=["--again"])
    return b.launch_words(box, "demo", env=dict(v.STEADY, TOY_SAVE_EVERY="1", **env), options=["--again", "--board", "leave"])


def stop(box, line, group):
    done = b.shell(box, line, cwd="/")
    b.wait_for(lambda: not b.list_group(group), "the end of the run")
    b.wait_for(lambda: not b.find_processes("rlrun: keeper"), "the keeper's end")
    return done.code


# --- its whole life: launched, looked at in every way, stopped by the line that status prints

def play_life(box, is_prime):
    found = launch(box, is_prime)
    v.await_step(found["train_log"], 3)
    facts = {"found": found, "text": b.rlrun(box, "status"), "shape": v.look_shape(box), "other root": v.look_shape(
        box, "--root", box.root, cwd="/")}
    ident = os.path.basename(found["record"])
    words = {"id": ident, "part": ident[4:-2], "experiment": found["experiment"], "log": found["train_log"],
             "launch log": found["launch_log"], "record": found["record"], "runner": str(found["runner"]["pid"]),
             "trainer": str((found["trainer"] if isinstance(found["trainer"], list) else [found["trainer"]])[0])}
    if is_prime:
        words["directory"] = os.path.join(box.root, "outputs", found["experiment"])
    facts["named"] = {name: v.look_shape(box, word) for name, word in words.items()}
    facts["stop"] = stop(box, facts["shape"]["run"]["stop"], found["runner"]["pgid"])
    facts["over"] = v.look(box)
    facts["over named"] = v.look_shape(box, ident)
    return facts


def judge_life(facts, root, kind, title, how):
    found, shape = facts["found"], facts["shape"]
    assert (found["code"], shape["code"], shape["exit"], shape["schema"]) == (0, 0, 0, 1), found["stderr"]
    assert set(shape) - {"code", "stderr"} == SHAPE and set(shape["run"]) == RUN and set(shape["progress"]) == PROGRESS
    assert shape["metrics"] and all(set(one) == METRIC for one in shape["metrics"])
    run, progress = shape["run"], shape["progress"]
    assert (run["id"], run["name"], run["stack"], run["kind"], run["root"]) == (
        os.path.basename(found["record"]), found["experiment"], title, kind, root)
    assert (run["state"], run["user"], run["host"], run["record"], run["digest"]) == (
        "live", "root", socket.gethostname(), found["record"], found["digest"])
    assert run["launch_log"] == found["launch_log"] and found["train_log"] in run["logs"].values()
    assert run["stop"] == found["stop"] and 0 < run["elapsed_seconds"] < 600
    assert shape["verdict"] == "healthy" and shape["findings"] == shape["recommendations"] == shape["errors"] == []
    assert progress["step"] >= 3 and progress["total"] == 100000 and 0.05 < progress["seconds_per_step"] < 5
    assert progress["left_seconds"] == pytest.approx(progress["seconds_per_step"] * (100000 - progress["step"]))
    assert 1 <= progress["checkpoint"]["step"] <= progress["step"] + 1 and os.path.isdir(progress["checkpoint"]["path"])
    assert (progress["missing_steps"], progress["segments"], progress["stage"]) == (0, [], None)
    for curve in shape["curves"]:
        steps = [step for step, _ in curve["points"]]
        assert steps == sorted(steps) and steps[-1] <= progress["step"] + 1, curve["key"]

    code, text, err = facts["text"]
    assert (code, err) == (0, "")
    first, _, verdict = text.splitlines()[:3]
    assert first.startswith("rlrun status — %s " % found["experiment"]) and first.endswith(
        "%s %s · plan %s" % (title, kind, found["digest"]))
    assert verdict.startswith("✓ healthy — no known signature matched; log last written ")
    assert re.search(r"^  stage    step \d+ of 100000 .*· ~0\.\d+ s/step \(first 0\.\d+ s\)", text, re.M), text
    assert "\nstop: " in text and text.rstrip().endswith(run["stop"]) and "about " in text and "Note: " not in text
    assert "\nDiagnosis\n  no known signature matched\n" in text
    for one in shape["metrics"]:
        assert one["key"] in text or one["key"] == "training/epoch", one

    others = dict(facts["named"], root=facts["other root"])
    for name, one in others.items():
        assert (name, one["code"], one["run"]["record"], one["run"]["state"]) == (name, 0, found["record"], "live")
        assert one["run"]["pids"] == run["pids"] and one["run"]["logs"] == run["logs"], name

    assert facts["stop"] == 0
    over = facts["over"]
    assert (over["code"], over["shape"]["exit"]) == (4, 4)
    assert (over["shape"]["verdict"], over["shape"]["run"]["state"]) == ("ended", "over")
    ending = over["shape"]["ending"]
    assert ending["how"] == "killed" and how in ending["words"] and "oom" not in str(over["shape"]["recommendations"]), ending
    assert "Note: nothing is live here; this is the last launch of this checkout\n" in over["text"]
    assert "\nstop:" not in over["text"] and over["shape"]["run"]["pids"] == {}
    assert facts["over named"]["code"] == 4 and facts["over named"]["notes"] == []
    step = over["shape"]["progress"]["step"]
    assert step >= progress["step"] and over["shape"]["progress"]["left_seconds"] is None


def test_the_life_of_a_run_of_lego_rl(play, root):
    judge_life(play(play_life, root, is_prime=False), root, "train", "Lego-RL", "SIGINT")


def test_the_life_of_a_run_of_prime_rl(play, prime_root):
    facts = play(play_life, prime_root, is_prime=True)
    judge_life(facts, prime_root, "rl", "prime-rl", "SIGTERM")


# --- looking changes nothing; a bare environment, the oldest Python and the newest; the page

def play_bare(box):
    """`env -i HOME=… PATH=/usr/bin:/bin LC_ALL=C`, with the file as it ships."""
    found = launch(box, False)
    v.await_step(found["train_log"], 2)
    v.freeze(found["runner"]["pid"])
    bare = box._replace(env={"HOME": box.env["HOME"], "PATH": "/usr/bin:/bin", "LC_ALL": "C", "PYTHONIOENCODING": "ascii"})
    before = hash_tree(box.root)
    facts = {"status": b.rlrun(bare, "status"), "json": b.rlrun(bare, "status", "--json"), "gate": b.rlrun(bare, "gate")}
    watch = subprocess.Popen([bare.python, bare.pyz, "watch"], env=bare.env, cwd=bare.root, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    first = os.read(watch.stdout.fileno(), 65536)
    watch.send_signal(signal.SIGINT)
    out, err = watch.communicate(timeout=b.LIMIT_SECONDS)
    facts["watch"] = [watch.returncode, (first + out).decode(), err.decode()]
    facts["unread"] = b.run(["bash", "-c", "%s %s status | head -1" % (bare.python, bare.pyz)], bare.env, bare.root)
    facts["changed"] = hash_tree(box.root) != before
    page = os.path.join(box.folder, "page.html")
    facts["html"] = [b.rlrun(bare, "status", "--html", page), b.rlrun(bare, "status", "--html", page)]
    facts["page"] = b.read(page)
    facts["changed by the page"] = hash_tree(box.root) != before
    return facts


def test_in_a_bare_environment_under_old_and_new_python_nothing_changes(play, root, edge_python):
    facts = play(play_bare, root, python=edge_python, ships=True)
    for name in ("status", "json", "gate", "watch"):
        code, out, err = facts[name]
        assert (name, code) == (name, 0), err
        assert (out + err).isascii() and "Traceback" not in out + err, (out, err)
    assert "rlrun status - demo" in facts["status"][1] and "healthy" in facts["status"][1]
    assert re.search(r"critic/rewards/mean=0\.\d+ +last \d+: [ -~]+ +not zero", facts["status"][1]), facts["status"][1]
    assert "the gates are passed at step 1" in facts["gate"][1] and facts["watch"][1].startswith("=== ")
    assert json.loads(facts["json"][1])["verdict"] == "healthy"
    assert facts["unread"][0] == 0 and "Traceback" not in facts["unread"][2] and facts["unread"][1].count("\n") == 1
    assert not facts["changed"] and not facts["changed by the page"]
    assert [one[0] for one in facts["html"]] == [0, 0]  # over a page of its own, again
    assert facts["page"].startswith("<!DOCTYPE html>") and "<svg" in facts["page"] and "demo-" in facts["page"]


# --- --html where it must not write; strings that are no text of ours

def play_page(box):
    log = os.path.join(box.folder, "evil.log")
    run = v.start_lego(box, "evil", out=os.path.join(box.folder, "evil.out"), env={"HF_TOKEN": TOKEN, "TOY_SICK": "trace",
                                                                                 "TOY_SICK_AT": "3"})
    run.wait()
    log = v.find_log(box, "evil")
    tail = "(TaskRunner pid=3) Traceback (most recent call last):\n(TaskRunner pid=3)   File \"x.py\", line 1, in x\n" \
           "(TaskRunner pid=3) ValueError: %s HF_TOKEN=%s \x1b]0;title\x07 %s\n" % (MARKUP, TOKEN, "bell")
    b.add_to_file(log, tail)
    page, other = os.path.join(box.folder, "p.html"), os.path.join(box.folder, "other.html")
    b.add_to_file(other, "<!DOCTYPE html><p>mine</p>")
    facts = {"text": b.rlrun(box, "status", log), "json": b.rlrun(box, "status", log, "--json"),
             "html": b.rlrun(box, "status", log, "--html", page), "page": b.read(page)}
    facts["other"] = b.rlrun(box, "status", log, "--html", other)
    facts["kept"] = b.read(other)
    facts["folder"] = b.rlrun(box, "status", log, "--html", box.folder)
    pipe = os.path.join(box.folder, "pipe")  # nobody reads or writes it: to open it would wait for ever
    os.mkfifo(pipe)
    facts["pipe"] = b.rlrun(box, "status", log, "--html", pipe)
    facts["pipe's run"] = b.rlrun(box, "status", pipe)
    facts["nowhere"] = b.rlrun(box, "status", log, "--html", "/proc/p.html")
    facts["absent"] = b.rlrun(box, "status", log, "--html", os.path.join(box.folder, "no/such/p.html"))
    facts["both"] = b.rlrun(box, "status", log, "--json", "--html", page)
    return facts


def test_a_page_overwrites_nothing_and_no_form_shows_a_secret_or_runs_a_script(play, root):
    add_config(root, "train", "named", v.NAMED)
    facts = play(play_page, root)
    for name in ("text", "json", "html", "page"):
        shown = facts[name] if name == "page" else facts[name][1] + facts[name][2]
        assert TOKEN not in shown and "\x1b" not in shown and "\x07" not in shown, name
    assert "ValueError" in facts["text"][1] and MARKUP in facts["text"][1]
    assert "ValueError" in facts["page"] and MARKUP not in facts["page"] and "&lt;script&gt;alert(1)" in facts["page"]
    assert facts["html"][0] == facts["text"][0] and "the page is at " in facts["html"][2]
    assert facts["both"][0] == facts["text"][0] and json.loads(facts["both"][1])["command"] == "status"
    assert facts["other"][0] == 2 and "is no page of rlrun's" in facts["other"][2]
    assert facts["kept"] == "<!DOCTYPE html><p>mine</p>"
    assert facts["pipe's run"][0] == 2 and facts["pipe's run"][1] == "" and "pipe holds no log of a run" in facts["pipe's run"][2]
    for name in ("folder", "pipe", "nowhere", "absent"):
        code, out, err = facts[name]
        assert (name, code) == (name, 2 if name in ("folder", "pipe") else 5), err
        assert err.startswith("rlrun: ") and "Traceback" not in err and out == "", name


# --- what is left of a run, a zombie under a keeper, another machine's record

def play_left(box):
    found = launch(box, False)
    runner, log = found["runner"]["pid"], found["train_log"]
    v.await_step(log, 2)
    os.kill(found["runner"]["keeper"], signal.SIGSTOP)
    b.wait_for(lambda: b.read_state(found["runner"]["keeper"]) == "T", "the keeper's halt")  # else it may still reap
    os.kill(runner, signal.SIGKILL)
    b.wait_for(lambda: b.read_state(runner) == "Z", "the zombie")
    facts = {"runner": runner, "zombie": v.look_shape(box, found["experiment"])}
    os.kill(found["runner"]["keeper"], signal.SIGCONT)
    b.wait_for(lambda: not b.is_alive(found["runner"]["keeper"]), "the keeper's end")
    facts["left"] = {"pids": b.list_group(runner), "named": v.look(box, found["experiment"]), "bare": v.look(box),
                     "gate": b.rlrun(box, "gate", "--step", "90000", "--timeout", "5s")}
    v.kill_all(b.list_group(runner))
    path = os.path.join(found["record"], "record.json")
    record = dict(json.loads(b.read(path)), host="gpu17", boot_id="another")
    os.remove(path)
    os.remove(os.path.join(found["record"], "exit.json"))
    b.add_to_file(path, json.dumps(record))
    facts["elsewhere"] = v.look(box)
    v.age([log, found["launch_log"]], 9000)
    facts["silent"] = v.look(box)
    return facts


def test_S5_P11_zombies_leavings_and_records_of_other_machines(play, root):
    facts = play(play_left, root)
    shape = facts["zombie"]
    assert shape["run"]["state"] == "over" and shape["verdict"] == "ended"
    assert any("its runner (pid %d) is a zombie" % facts["runner"] in note for note in shape["notes"]), shape["notes"]
    left = facts["left"]
    line = "%d of its processes live on: kill -s TERM %s" % (len(left["pids"]), " ".join(map(str, left["pids"])))
    assert len(left["pids"]) >= 3
    for name in ("named", "bare"):
        shape = left[name]["shape"]
        assert (name, left[name]["code"], shape["run"]["state"], shape["ending"]["signal"]) == (name, 4, "over", "SIGKILL")
        assert any(line in note for note in shape["notes"]), shape["notes"]
    assert left["gate"][0] == 4, left["gate"]
    for name in ("elsewhere", "silent"):
        shape = facts[name]["shape"]
        assert (name, shape["run"]["state"], shape["run"]["host"], shape["ending"], facts[name]["code"]) == (
            name, "elsewhere", "gpu17", None, int(name == "silent"))
        assert "launched on gpu17: its processes can't be seen from here, only its files" in shape["notes"]
    assert facts["silent"]["shape"]["verdict"] == "unknown" and "log last written 2h 30m ago" in facts["silent"]["text"]
