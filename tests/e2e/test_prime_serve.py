"""prime-rl's other kinds: a server that is waited for, evals that need one, sft with and without."""
import json
import os
import signal

import pytest
from checkouts import add_prime_config, build_prime_checkout

from . import box as b
from .test_prime_launch import QUESTION, QUICK, SOURCES, hold, list_names, list_run, show, stop

URL = "http://localhost:8321"
SERVER = "[server]\nport = 8321\n[vllm]\nmodel = \"toy/Tiny\"\n"
EVALS = """
model = "toy/Tiny"
[eval.client]
base_url = "http://localhost:8321/v1"
""" + SOURCES % {"table": "eval"}
SFT = '[model]\nname = "toy/Tiny"\n[data]\nname = "toy/text"\n[ckpt]\n'
ONLINE = SFT + "[eval]" + SOURCES % {"table": "eval"} + """
[inference]
[deployment]
num_train_gpus = 1
num_infer_gpus = 1
"""
LOADING = dict(QUICK, TOY_LOAD_SEC="300")
GOING = dict(QUICK, TOY_STEPS="100000", TOY_STEP_SEC="0.1")


@pytest.fixture
def root(tmp_path):
    found = build_prime_checkout(tmp_path / "prime")
    for name, text in (("serve-infer", SERVER), ("held-evals", EVALS), ("plain-sft", SFT), ("online-sft", ONLINE)):
        add_prime_config(found, name, text)
    return found


# --- inference

def play_server(box):
    env = dict(QUICK, TOY_LOAD_SEC="1.5")
    digest = b.check(box, "serve-infer", env=env)["digest"]
    done = b.rlrun(box, "run", "serve-infer", "--confirm", digest, env=env)
    lines = [line.strip() for line in done.out.splitlines() if line.startswith("  curl ")]
    facts = {"done": done, "pasted": [b.shell(box, line.replace("curl ", "curl -s -w '\\n%{http_code}' ", 1)) for line in lines],
             "lines": lines, "row": b.list_runs(box)[0]}
    facts["record"] = json.loads(b.read(os.path.join(facts["row"]["record"], "record.json")))
    facts["title"] = b.read("/proc/%d/cmdline" % facts["row"]["runner"]["pid"]).strip("\0")
    second = b.rlrun(box, "run", "serve-infer", "--json", env=env)
    facts["second"] = [second.code, json.loads(second.out)["blocking"]]
    b.shell(box, b.find_stop_line(done.out), cwd="/")
    return dict(facts, ended=b.wait_for_end(box), left=list_run(facts["row"]["runner"]["pid"]))


def test_a_server_is_waited_for_and_tried_by_the_printed_lines(play, root):
    facts = play(play_server, root)
    code, out, err = facts["done"]
    assert code == 0, err
    assert " %s/health: 200 after " % URL in out
    assert "models:" in out and "toy/Tiny" in out and "no directory of its own" in out
    assert facts["lines"][:2] == ["curl %s/health" % URL, "curl %s/v1/models" % URL] and len(facts["lines"]) == 3
    for code, text, error in facts["pasted"]:
        assert code == 0 and text.endswith("\n200"), (text, error)
    assert '"iH"' in facts["pasted"][2][1]  # the toy's model reverses what it is told
    pid = facts["row"]["runner"]["pid"]
    assert facts["record"]["facts"]["pids"] == {"inference": [pid]} and facts["title"] == "PRIME-RL::Inference"
    assert facts["second"] == [1, ["port:conflict", "gpu:foreign"]]  # bound, and laid claim to
    assert facts["row"]["state"] == "running" and facts["ended"] == "killed by SIGTERM" and facts["left"] == []


def open_waiting(box, *words):
    """A server that does not come up, at the moment when rlrun waits for it."""
    session = b.open_rlrun(box, "run", "serve-infer", "--background", *words, env=LOADING)
    b.expect(session, QUESTION)
    b.send(session, "y\n")
    b.expect(session, "waiting for %s/health: 503, 0 s of 600" % URL)
    return session


def play_slow(box):
    session = open_waiting(box)
    b.send(session, "\x03")
    code, text = b.finish(session)
    facts = {"Ctrl-C": [code, show(text), b.list_runs(box)[0]["state"]]}
    b.shell(box, b.find_stop_line(text), cwd="/")
    b.wait_for_end(box)
    digest = b.check(box, "serve-infer", env=LOADING)["digest"]
    words = ("--again", "--confirm", digest, "--server-timeout", "1")
    done = b.rlrun(box, "run", "serve-infer", *words, "--json", env=LOADING)
    told = json.loads(done.out)
    facts["late"] = [done.code, told["exit"], told["launched"], told["server"]["up"], b.list_runs(box)[0]["state"]]
    stop(box, told)
    done = b.rlrun(box, "run", "serve-infer", *words, env=LOADING)
    facts["text"] = [done.code, done.out, b.list_runs(box)[0]["state"]]
    b.shell(box, b.find_stop_line(done.out), cwd="/")
    b.wait_for_end(box)
    session = open_waiting(box)
    os.kill(b.list_runs(box)[0]["runner"]["pid"], signal.SIGKILL)
    code, text = b.finish(session)
    facts["died"] = [code, show(text), b.list_runs(box)[0]["state"]]
    return facts


def test_a_server_that_does_not_come_up_is_left_running_and_told(play, root):
    facts = play(play_slow, root)
    code, text, state = facts["Ctrl-C"]
    assert (code, state) == (0, "running") and "Launched (background)" in text and "kill -s TERM -- -" in text
    assert facts["late"] == [6, 6, True, False, "running"]
    code, text, state = facts["text"]
    assert (code, state) == (6, "running") and "It has not answered within 1 s, and is still alive" in text
    assert "curl %s/health" % URL in text
    code, text, state = facts["died"]
    assert (code, state) == (4, "killed by SIGKILL") and "The run has ended: killed by SIGKILL after " in text
    assert "| " in text and "Starting router on" in text and "curl" not in text.partition("The run has ended")[2]


# --- evals

def play_evals(box):
    facts = {"down": b.rlrun(box, "run", "held-evals", "--json", env=QUICK), "records": b.count_records(box)}
    server = b.launch_words(box, "serve-infer", env=QUICK)
    found = facts["found"] = b.launch_words(box, "held-evals", env=QUICK)
    facts["title"] = b.read("/proc/%d/cmdline" % found["facts"]["pids"]["evals"][0]).strip("\0")
    facts["states"] = [row["state"] for row in b.list_runs(box)]
    held = hold()
    facts["ended"] = b.wait_for_end(box)
    held.close()
    facts["log"] = b.read(found["launch_log"])
    facts["server"] = [server["code"], stop(box, server)["state"]]
    again = b.rlrun(box, "run", "held-evals", "--json", "--again", "--confirm", found["digest"], env=QUICK)
    facts["again"] = [again.code, json.loads(again.out)["blocking"], b.count_records(box)]
    return facts


def test_evals_are_launched_only_where_their_server_answers(play, root):
    facts = play(play_evals, root)
    told = json.loads(facts["down"][1])
    assert (facts["down"][0], told["blocking"], facts["records"]) == (1, ["server:down"], 0)
    assert "no server at http://localhost:8321/v1" in facts["down"][2]
    found = facts["found"]
    assert found["code"] == 0 and found["checked"]["blocking"] == [], found["stderr"]
    assert set(found["facts"]["pids"]) == {"evals", "env server"} and facts["title"] == "PRIME-RL::Evals"
    assert facts["states"] == ["running", "running"] and facts["ended"] == "ended 0" and "Evals finished!" in facts["log"]
    assert facts["server"][0] == 0 and facts["again"] == [1, ["server:down"], 2]


# --- sft

def play_sft(box):
    facts = {}
    for name in ("plain", "online"):
        found = b.launch_words(box, name + "-sft", env=GOING)
        facts[name] = dict(found, state=stop(box, found)["state"], log=b.read(found["train_log"]))
    facts["end"] = b.rlrun(box, "run", "plain-sft", "--confirm", facts["plain"]["digest"], "--again", "--foreground", env=QUICK)
    facts["names"] = list_names(os.path.join(b.list_runs(box)[0]["run_dir"], "checkpoints"))
    return facts


def test_sft_with_and_without_a_server_of_its_own(play, root):
    facts = play(play_sft, root)
    for name, parts in (("plain", {"launcher", "trainer"}),
                        ("online", {"launcher", "trainer", "inference", "env server", "evals"})):
        found = facts[name]
        assert found["code"] == 0, found["stderr"]
        assert set(found["facts"]["pids"]) == parts and [found["trainer"]] == found["facts"]["pids"]["trainer"]
        assert found["train_log"] == os.path.join(found["plan"]["run_dir"], "logs/attempt_1/trainer.log")
        assert "Step 1 | " in found["log"] and found["state"] == "ended 1"
    assert facts["online"]["facts"]["logs"]["evals"].endswith("/logs/attempt_1/evals.log")
    code, out, err = facts["end"]
    assert code == 0 and "SFT training finished!" in out and facts["names"] == ["step_2"], err
