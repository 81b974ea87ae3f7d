"""A launch of prime-rl's rl: the directory and the processes that it reports are the real ones, nobody else's run is
touched, and the stop line ends all of it (S1, S5, L17, E1, P5, P17)."""
import json
import os
import signal
import socket

import pytest
from checkouts import add_prime_config, build_prime_checkout, write_fake_program

from . import box as b
from .scene import hash_tree

QUESTION = "Launch with this configuration? [y/N] "
MODE = "Launch mode? [B]ackground (default) / [F]oreground "
NAME = ", to go on: "
# Two environments, of which one is served by somebody else: until the scenario does, the run lives and makes no step.
SOURCES = """
[[%(table)s.source]]
env.taskset.id = "reverse-text"
[[%(table)s.source]]
name = "held"
env.taskset.id = "alphabet-sort"
serve.address = "tcp://127.0.0.1:7000"
"""
HELD = """
[model]
name = "toy/Tiny"
[orchestrator]
batch_size = 8
""" + SOURCES % {"table": "orchestrator.train"} + """
[trainer]
[ckpt]
interval = 1
[inference]
"""
QUICK = {"TOY_STEPS": "2", "TOY_STEP_SEC": "0.05", "TOY_LOAD_SEC": "0.05"}
# What the real uv shows and does: its own words, a child in the same group, signals handed on, the child's exit code.
UV = """#!%s -ISE
import os, signal, subprocess, sys
words = sys.argv[3:]
assert sys.argv[1:3] == ["run", "--no-sync"], sys.argv
program = os.path.join(".venv", "bin", words[0])
if %r == "exec":
    os.execv(program, [program] + words[1:])
with open("/proc/self/stat", "rb") as file:
    start, end = map(int, file.read().rpartition(b")")[2].split()[45:47])
with open("/proc/self/mem", "r+b", buffering=0) as memory:
    memory.seek(start)
    memory.write(b"\\0".join([b"uv"] + [os.fsencode(word) for word in sys.argv[1:]]).ljust(end - start, b"\\0"))
child = subprocess.Popen([program] + words[1:], preexec_fn=os.setpgrp if %r == "own group" else None)
if %r == "parent":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: child.send_signal(number))
code = child.wait()
sys.exit(code if code >= 0 else 128 - code)
"""


@pytest.fixture
def root(tmp_path):
    found = build_prime_checkout(tmp_path / "a [1] prime")
    add_prime_config(found, "held", HELD)
    return found


def hold():
    """Serves the environment that the run waits for."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", 7000))
    listener.listen(64)
    return listener


def stop(box, found):
    """Pastes the stop line, waits until nothing of the run is left, gives what runs says then."""
    done = b.shell(box, found["stop"], cwd="/")
    assert done.code == 0, done
    b.wait_for(lambda: not list_run(found["runner"]["pid"]), "the end of the whole run")
    b.wait_for(lambda: not b.is_alive(found["runner"]["keeper"]), "the keeper's end")
    return next(row for row in b.list_runs(box) if row["record"] == found["record"])


def list_run(session):
    """The live processes of a run's session."""
    return sorted(pid for pid, sid in b.list_sessions().items() if sid == session)


def list_names(folder):
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


def list_runs_made(box):
    return list_names(os.path.join(box.root, "outputs"))


def read_titles(pids):
    return {label: [b.read("/proc/%d/cmdline" % pid).strip("\0") for pid in found] for label, found in pids.items()}


def show(text):
    return text.replace("\r\n", "\n")


# --- what is reported is what is there

def play_life(box, layout):
    env = dict(QUICK, TOY_LAYOUT=layout, TOY_DASHBOARD="http://localhost:7788")
    if layout != "new":  # no banner: the daemon's file tells
        folder = os.path.join(box.env["HOME"], ".cache/prime-rl/dashboard")
        os.makedirs(folder)
        b.add_to_file(os.path.join(folder, "daemon.json"), json.dumps({"url": "http://localhost:7799", "pid": os.getpid()}))
    digest = b.check(box, "held", env=env)["digest"]
    done = b.rlrun(box, "run", "held", "--confirm", digest, env=env)
    row = b.list_runs(box)[0]
    record = json.loads(b.read(os.path.join(row["record"], "record.json")))
    facts = {"done": done, "row": row, "record": record, "made": list_runs_made(box), "runner": b.describe_process(
        row["runner"]["pid"]), "titles": read_titles(record["facts"]["pids"]), "session": list_run(row["runner"]["pid"])}
    facts["logs"] = {name: os.path.isfile(path) for name, path in record["facts"]["logs"].items()}
    held = hold()
    facts["ended"] = b.wait_for_end(box)
    held.close()
    facts["exit"] = json.loads(b.read(os.path.join(row["record"], "exit.json")))
    return facts


@pytest.mark.parametrize("layout", ["old", "new"])
def test_L17_P5_a_run_in_the_background_is_reported_as_it_is(play, root, layout):
    facts = play(play_life, root, layout=layout)
    code, out, err = facts["done"]
    assert code == 0, err
    (name,) = facts["made"]
    run_dir = os.path.join(root, "outputs", name)
    assert name.startswith("reverse-text+held--tiny--")
    assert "\n  run          %s\n" % name in err and "\n  directory    %s\n" % run_dir in err  # shown before the launch
    row, record = facts["row"], facts["record"]
    assert (row["state"], row["experiment"], row["run_dir"], row["kind"]) == ("running", name, run_dir, "rl")
    assert (facts["ended"], facts["exit"]["status"]) == ("ended 0", 0)
    lines = dict(line.strip().split(":", 1) for line in out.splitlines()[1:])
    shown = {key: value.strip() for key, value in lines.items()}
    attempt = os.path.join(run_dir, "logs/attempt_1")
    assert out.startswith("Launched (background)\n") and shown["kind / config"] == "rl · configs/debug/held.toml"
    assert (shown["run"], shown["logs"]) == (run_dir, attempt)
    for part in ("trainer", "orchestrator", "inference"):
        assert shown[part + " log"] == os.path.join(attempt, part + ".log")
    assert set(facts["logs"]) == {"trainer", "orchestrator", "inference", "env train reverse-text"} and all(
        facts["logs"].values())
    assert row["train_log"] == os.path.join(attempt, "trainer.log") and record["facts"]["attempt"] == "attempt_1"
    prefix = "PRL" if layout == "new" else "PRIME-RL"
    assert facts["titles"] == {label: ["%s::%s" % (prefix, title)] for label, title in (
        ("launcher", "Launcher"), ("inference", "Inference"), ("orchestrator", "Orchestrator"), ("env server", "EnvServer"),
        ("trainer", "Trainer"))}
    pids = {label: found[0] for label, found in record["facts"]["pids"].items()}
    assert sorted(shown["processes"].split("  ")) == sorted("%s=%d" % pair for pair in pids.items())
    assert set(pids.values()) <= set(facts["session"]) and pids["launcher"] == row["runner"]["pid"]
    assert shown["pids"] == "runner=%d" % row["runner"]["pid"]
    assert shown["dashboard"] == ("http://localhost:7788" if layout == "new" else
                                  "http://localhost:7799  (your daemon's; the run itself has told none)")
    assert shown["stop"] == "kill -s TERM -- -%d" % row["runner"]["pgid"]
    runner = facts["runner"]
    assert runner["fds"] == {"0": "/dev/null", "1": row["launch_log"], "2": row["launch_log"]}
    assert (runner["sid"], runner["pgid"], runner["tty"], runner["cwd"]) == (runner["pid"], runner["pid"], 0, root)
    assert record["trainer"] == [pids["trainer"]]  # and neither torchrun nor the orchestrator
    assert record["argv"][-2:] == ["--run.name", name]


# --- uv above it; the stop line

def play_uv(box):
    found = b.launch_words(box, "held", env=QUICK)
    return {"found": found, "titles": read_titles(found["facts"]["pids"]),
            "runner": b.read("/proc/%d/cmdline" % found["runner"]["pid"]), "row": stop(box, found),
            "left": b.find_processes("RL::"), "workers": b.find_processes("Verifiers::"), "record": json.loads(
                b.read(os.path.join(found["record"], "exit.json")))}


@pytest.mark.parametrize("way", ["exec", "parent", "own group", "home", "none"])
def test_S5_E1_uv_is_no_part_of_the_run_and_the_stop_line_ends_all(play, root, fake_program, clean_env, way):
    script = UV % ("/usr/bin/python3", way, way, way if way != "home" else "parent")
    if way == "home":
        write_fake_program(os.path.join(clean_env["HOME"], ".local/bin"), "uv", script)
    elif way != "none":
        fake_program("uv", script)
    server = os.path.join(root, ".venv/bin/env-server")
    text = b.read(server)
    with open(server, "w") as out:  # prime-rl's env servers have been seen to shrug at a Ctrl-C
        out.write(text.replace("main()", "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); main()"))
    facts = play(play_uv, root)
    found = facts["found"]
    assert found["code"] == 0, found["stderr"]
    pid, pids = found["runner"]["pid"], found["facts"]["pids"]
    is_above = way in ("parent", "own group", "home")
    assert (facts["runner"].split("\0")[0] == "uv") == is_above
    assert (pid in sum(pids.values(), [])) == (not is_above)
    assert {label: len(found) for label, found in pids.items()} == dict.fromkeys(
        ("launcher", "inference", "orchestrator", "env server", "trainer"), 1)
    assert facts["titles"]["launcher"] == ["PRIME-RL::Launcher"] and facts["titles"]["trainer"] == ["PRIME-RL::Trainer"]
    groups = " -%d" % pids["launcher"][0] if way == "own group" else ""
    assert found["stop"] == "kill -s TERM -- -%d%s" % (pid, groups)
    assert facts["left"] == facts["workers"] == []
    # uv's own signal comes second; where it is late, it meets a launcher that has done its work and heeds none any more
    states = ("killed by SIGTERM",) if way == "own group" else ("ended 1", "ended 143") if is_above else ("ended 1",)
    assert facts["row"]["state"] in states
    assert facts["record"]["signal"] == ("SIGTERM" if way == "own group" else None)


# --- the questions

def answer(box, dialogue, *words):
    """Plays (prompt, what is typed) pairs; the exit code, all text, and what is there afterwards."""
    session = b.open_rlrun(box, "run", *words, env=QUICK)
    text = ""
    for prompt, typed in dialogue:
        text += b.expect(session, prompt)
        if callable(typed):
            typed = typed()
        b.send(session, typed)
    code, rest = b.finish(session)
    return {"code": code, "text": show(text + rest), "records": b.count_records(box), "made": list_runs_made(box)}


def play_questions(box):
    facts = {"no": answer(box, [(QUESTION, "n\n")], "held"), "quit": answer(box, [(QUESTION, "y\n"), (MODE, "\x04")], "held")}
    facts["yes"] = answer(box, [(QUESTION, "y\n"), (MODE, "\n")], "held")
    facts["rows"] = b.list_runs(box)
    return facts


def test_a_yes_at_the_terminal_launches_and_a_no_leaves_nothing(play, root):
    facts = play(play_questions, root)
    for name in ("no", "quit"):
        assert (facts[name]["code"], facts[name]["records"], facts[name]["made"]) == (3, 0, []), name
    yes = facts["yes"]
    assert yes["code"] == 0 and "Launched (background)" in yes["text"] and "to go on" not in yes["text"]
    assert yes["made"] == [facts["rows"][0]["experiment"]] and facts["rows"][0]["state"] == "running"


def add_old_run(root, name="old"):
    """What an earlier run left: a checkpoint, and rollouts and broadcasts past it."""
    folder = os.path.join(root, "outputs", name)
    for path in ("checkpoints/step_2/trainer/.metadata", "rollouts/step_2/x", "rollouts/step_3/x", "broadcasts/step_3/STABLE",
                 "logs/attempt_1/trainer.log"):
        os.makedirs(os.path.dirname(os.path.join(folder, path)))
        b.add_to_file(os.path.join(folder, path), "old\n")
    os.symlink("attempt_1", os.path.join(folder, "logs/latest"))
    return folder


def play_clean(box):
    words = ("held", "--", "--run.name", "old", "--clean")
    folder = os.path.join(box.root, "outputs/old")
    before = hash_tree(folder)
    facts = {name: answer(box, [(QUESTION, "y\n"), (NAME, typed)], *words)
             for name, typed in (("wrong", "other\n"), ("a yes", "yes\n"), ("end", "\x04"), ("no name", "\n"))}
    facts["untouched"] = hash_tree(folder) == before
    facts["right"] = answer(box, [(QUESTION, "y\n"), (NAME, "old\n"), (MODE, "b\n")], *words)
    facts["left"] = [path for path in before if os.path.lexists(path) and b.read(path) == "old\n"]
    facts["row"] = b.list_runs(box)[0]
    os.killpg(facts["row"]["runner"]["pgid"], signal.SIGTERM)
    b.wait_for_end(box)
    found = b.launch_words(box, *words, options=["--again"], env=QUICK)
    return dict(facts, digest=found, live=b.rlrun(box, "check", *words[:1], "--json", *words[1:], env=QUICK))


def test_clean_deletes_only_what_was_named(play, root):
    folder = add_old_run(root)
    facts = play(play_clean, root)
    for name in ("wrong", "a yes", "end", "no name"):
        told = facts[name]
        assert (told["code"], told["records"]) == (3, 0) and "nothing was deleted" in told["text"], name
        assert "This launch deletes %s and all that is in it." % folder in told["text"]
    assert facts["untouched"]
    right = facts["right"]
    assert right["code"] == 0 and right["made"] == ["old"] and facts["left"] == [] and facts["row"]["run_dir"] == folder
    assert os.path.join(folder, "logs/attempt_1/trainer.log") in right["text"]  # the first again
    assert "sweep:paths" in right["text"] and right["text"].index(folder) < right["text"].index("Launch with")
    digest = facts["digest"]
    assert (digest["code"], digest["launched"]) == (0, True), digest["stderr"]
    live = json.loads(facts["live"][1])
    assert facts["live"][0] == 1 and "job:running" in live["blocking"]  # and it would be deleted under it


def play_clean_digest(box):
    words = ("held", "--", "--run.name", "old", "--clean", "--ckpt.output-dir", os.path.join(box.folder, "ckpt"))
    digests = [b.check(box, "held", *words[1:], env=QUICK)["digest"]]
    add_old_run(box.root)
    digests.append(b.check(box, "held", *words[1:], env=QUICK)["digest"])
    os.makedirs(os.path.join(box.folder, "ckpt/checkpoints/step_1"))
    done = b.rlrun(box, "run", "held", "--confirm", digests[-1], *words[1:], env=QUICK)
    digests.append(b.check(box, "held", *words[1:], env=QUICK)["digest"])
    facts = {"left": list_names(os.path.join(box.root, "outputs/old"))}
    os.rename(os.path.join(box.root, "outputs"), os.path.join(box.root, "one"))
    os.symlink("one", os.path.join(box.root, "outputs"))
    digests.append(b.check(box, "held", *words[1:], env=QUICK)["digest"])
    os.symlink("two", os.path.join(box.root, "other"))
    os.makedirs(os.path.join(box.root, "two/old/checkpoints/step_9"))
    os.rename(os.path.join(box.root, "other"), os.path.join(box.root, "outputs"))
    digests.append(b.check(box, "held", *words[1:], env=QUICK)["digest"])
    done = b.rlrun(box, "run", "held", "--confirm", digests[-2], *words[1:], env=QUICK)
    session = b.open_rlrun(box, "run", *words, env=QUICK)
    b.expect(session, QUESTION)
    b.send(session, "y\n")
    asked = show(b.expect(session, NAME))
    b.send(session, "\n")
    return dict(facts, ended=b.finish(session)[0], asked=asked, linked=[done.code, list_names(os.path.join(
        box.root, "two/old/checkpoints"))], **{"digests": digests, "done": done, "records": b.count_records(box)})


def test_a_digest_names_the_directories_that_it_deletes(play, root):
    facts = play(play_clean_digest, root)
    assert len(set(facts["digests"])) == 5 and facts["linked"] == [3, ["step_9"]]
    assert "This launch deletes " in facts["asked"] and "/two/old" in facts["asked"] and "/ckpt and all" in facts["asked"]
    assert (facts["done"][0], facts["records"]) == (3, 0) and "checkpoints" in facts["left"]


# --- the directory of an earlier run

def play_again(box):
    words = ("held", "--", "--run.name", "old")
    before = hash_tree(box.root)
    facts = {"exists": b.rlrun(box, "run", "held", "--json", *words[1:], env=QUICK)}
    facts["untouched"] = hash_tree(box.root) == before
    resumed = facts["resumed"] = b.launch_words(box, *words, "--resume", env=QUICK)
    folder = os.path.join(box.root, "outputs/old")
    facts["names"] = {name: list_names(os.path.join(folder, name)) for name in ("rollouts", "broadcasts", "checkpoints", "logs")}
    facts["living"] = [json.loads(b.rlrun(box, "run", "held", "--json", *words[1:], option, env=QUICK).out)
                       for option in ("--resume", "--clean")]
    facts["still"] = b.list_runs(box)[0]["state"]
    held = hold()
    facts["ended"] = b.wait_for_end(box)
    held.close()
    facts["log"] = b.read(resumed["train_log"])
    third = b.launch_words(box, *words, "--resume", env=QUICK)
    return dict(facts, third=third["facts"]["attempt"], code=third["code"])


def test_L17_a_used_directory_is_refused_and_resumed_in_a_new_attempt(play, root):
    folder = add_old_run(root)
    facts = play(play_again, root)
    told = json.loads(facts["exists"][1])
    assert (facts["exists"][0], told["blocking"], told["launched"]) == (1, ["run:exists"], False) and facts["untouched"]
    assert all(way in facts["exists"][2] for way in ("--resume (from step 2)", "--run.name NAME", "--clean"))
    resumed = facts["resumed"]
    assert resumed["code"] == 0, resumed["stderr"]
    deleted = {os.path.relpath(path["path"], folder) for path in resumed["checked"]["plan"]["sweep"]["paths"]}
    assert deleted == {"rollouts/step_3", "broadcasts/step_3"}
    assert facts["names"] == {"rollouts": ["step_2"], "broadcasts": [], "checkpoints": ["step_2"],
                              "logs": ["attempt_1", "attempt_2", "latest"]}
    assert resumed["facts"]["attempt"] == "attempt_2"
    assert resumed["train_log"] == os.path.join(folder, "logs/attempt_2/trainer.log")
    assert {path.split("/logs/")[1].split("/")[0] for path in resumed["facts"]["logs"].values()} == {"attempt_2"}
    for one in facts["living"]:
        assert "job:running" in one["blocking"] and one["launched"] is False
    assert (facts["still"], facts["ended"]) == ("running", "ended 0") and "Step 4 | " in facts["log"]
    assert (facts["third"], facts["code"]) == ("attempt_3", 0)


def play_races(box):
    taken = socket.socket()

    def take_port():
        taken.bind(("127.0.0.1", 8100))
        taken.listen(1)
        return "y\n"

    def use_directory():
        os.makedirs(os.path.join(box.root, "outputs/new/rollouts"))
        return "y\n"

    facts = {"port:conflict": answer(box, [(QUESTION, take_port), (MODE, "\n")], "held", "--", "--run.name", "new")}
    taken.close()
    facts["run:exists"] = answer(box, [(QUESTION, use_directory), (MODE, "\n")], "held", "--", "--run.name", "new")
    return facts


def test_what_comes_between_the_yes_and_the_launch_ends_it(play, root):
    facts = play(play_races, root)
    for name, told in facts.items():
        assert (told["code"], told["records"]) == (1, 0), told["text"]
        assert "the machine changed while you were asked; nothing was launched" in told["text"] and name in told["text"]
    assert facts["port:conflict"]["made"] == [] and facts["run:exists"]["made"] == ["new"]
