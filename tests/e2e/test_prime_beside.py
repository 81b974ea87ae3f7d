"""prime-rl beside other runs, its failures, the foreground, a terminal that is gone, and the same launch from the record."""
import json
import os
import shlex
import signal

import pytest
from checkouts import add_prime_config, build_checkout, build_prime_checkout, write_nvidia_smi

from . import box as b
from .scene import hash_tree
from .test_prime_launch import HELD, MODE, QUESTION, QUICK, hold, list_run, list_runs_made, show, stop

# All that a second run beside the first has to have of its own.
OTHER_PORTS = ("--inference.server.port", "8001", "--inference.backend-port", "8101", "--orchestrator.env-server-base-port",
               "5100", "--orchestrator.model.client.base-url", "http://localhost:8001/v1", "--weight-broadcast.port", "29502",
               "--rollout-transport.port", "5556")


@pytest.fixture
def root(tmp_path):
    found = build_prime_checkout(tmp_path / "prime")
    add_prime_config(found, "held", HELD)
    return found


# --- two runs on one machine

def play_beside(box, fakes):
    gpus = [{"index": number, "uuid": "GPU-%d" % number, "used": 0, "total": 81559} for number in range(4)]
    write_nvidia_smi(fakes, gpus)
    one, two = (dict(QUICK, CUDA_VISIBLE_DEVICES=word) for word in ("0,1", "2,3"))
    first = b.launch_words(box, "held", env=one)
    holders = [{"uuid": "GPU-%d" % number, "pid": first["facts"]["pids"][label][0], "used": 60000, "name": "python"}
               for number, label in enumerate(("inference", "trainer"))]
    write_nvidia_smi(fakes, [dict(gpu, used=60000 if gpu["index"] < 2 else 0) for gpu in gpus], holders)
    facts = {"first": first, "same ports": b.check(box, "held", env=two), "same GPUs": b.check(box, "held", "--", *OTHER_PORTS,
                                                                                           env=one)}
    refused = b.rlrun(box, "run", "held", "--json", "--confirm", facts["same ports"]["digest"], env=two)
    facts["refused"] = [refused.code, json.loads(refused.out)["launched"], len(list_runs_made(box))]
    facts["second"] = b.launch_words(box, "held", "--", *OTHER_PORTS, env=two)
    facts["states"] = [row["state"] for row in b.list_runs(box)]
    facts["stopped"] = stop(box, facts["second"])["state"]
    facts["after"] = [row["state"] for row in b.list_runs(box)]
    return facts


def test_two_runs_live_side_by_side_on_other_gpus_and_ports(play, root, fake_bin):
    facts = play(play_beside, root, fakes=str(fake_bin))
    first, second = facts["first"], facts["second"]
    assert first["code"] == 0 and second["code"] == 0, second["stderr"]
    assert set(facts["same ports"]["blocking"]) == {"port:conflict"} and facts["refused"] == [1, False, 1]
    assert set(facts["same GPUs"]["blocking"]) == {"gpu:foreign"}
    assert "job:beside" in second["checked"]["warnings"] and second["checked"]["blocking"] == []
    assert not set(sum(first["facts"]["pids"].values(), [])) & set(sum(second["facts"]["pids"].values(), []))
    assert facts["states"] == ["running", "running"] and (facts["stopped"], facts["after"][1]) == ("ended 1", "running")


def play_lego(box, lego):
    """Lego-RL takes the whole machine: it waits for a prime-rl run, and a prime-rl run waits for it."""
    other = box._replace(root=lego)
    found = b.launch_words(box, "held", env=QUICK)
    facts = {"lego": b.rlrun(other, "run", "demo", "--json", "--board", "leave", env=b.LONG), "records": b.count_records(other)}
    stop(box, found)
    facts["live"] = b.launch(other, "demo", env=b.LONG)["code"]
    facts["prime"] = b.rlrun(box, "run", "held", "--json", env=QUICK)
    facts["made"] = len(list_runs_made(box))
    return facts


def test_S13_lego_rl_and_prime_rl_wait_for_each_other(play, root, tmp_path):
    facts = play(play_lego, root, lego=build_checkout(tmp_path / "lego"))
    told = json.loads(facts["lego"][1])
    assert (facts["lego"][0], told["blocking"], facts["records"]) == (1, ["job:running"], 0)
    assert told["runs"][0]["stack"] == "prime" and "PRIME-RL::Launcher" in facts["lego"][2]
    told = json.loads(facts["prime"][1])
    assert facts["live"] == 0 and facts["prime"][0] == 1 and "job:running" in told["blocking"] and facts["made"] == 1
    assert "lego train runner" in facts["prime"][2]


# --- an early end

def play_failures(box):
    facts = {}
    for part in ("trainer", "orchestrator", "inference", "env-server"):
        held = hold()
        found = b.launch_words(box, "held", env=dict(QUICK, TOY_FAIL=part), options=["--again"])
        held.close()
        b.wait_for_end(box)
        text = b.rlrun(box, "runs", os.path.basename(found["record"])).out
        facts[part] = {"code": found["code"], "found": found, "runs": text, "left": list_run(found["runner"]["pid"])}
    digest = b.check(box, "held", env=dict(QUICK, TOY_FAIL="trainer"))["digest"]
    held = hold()
    facts["text"] = b.rlrun(box, "run", "held", "--again", "--confirm", digest, env=dict(QUICK, TOY_FAIL="trainer"))
    held.close()
    many = ("--", "--deployment.gpus-per-node", "16", "--deployment.num-train-gpus", "8", "--deployment.num-infer-gpus", "8")
    checked = b.check(box, "held", *many, env=QUICK)
    facts["GPUs"] = b.rlrun(box, "run", "held", "--confirm", checked["digest"], *many, env=QUICK)
    return facts


def test_a_run_that_ends_within_the_minute_is_told_with_its_cause(play, root):
    facts = play(play_failures, root)
    for part, words in (("trainer", "Trainer"), ("orchestrator", "Orchestrator"), ("inference", "Inference"),
                        ("env-server", "Train env server reverse-text")):
        found = facts[part]["found"]
        assert (facts[part]["code"], found["exit"], found["ended"]["status"]) == (4, 4, 1), part
        assert found["fatal"][0] == "Error: %s failed with exit code 1" % words, part
        assert b.read(found["facts"]["failed_log"]).count("RuntimeError: toy failure of %s at step 1" % part) == 1
        assert "ended 1" in facts[part]["runs"] and facts[part]["left"] == []
    code, out, err = facts["text"]
    shown = out[out.index("The run has ended: ended 1 after"):]
    assert code == 4 and "  Error: Trainer failed with exit code 1\n" in shown
    assert "RuntimeError: toy failure of trainer at step 1\n" in shown and "logs/attempt_1/trainer.log:" in shown
    assert "Nothing is retried." in shown and "stop:" not in out
    code, out, err = facts["GPUs"]
    assert code == 4 and "Requested 16 GPUs via deployment settings, but only 8" in out, out


# --- what is asked for once more

def play_record(box):
    extra = os.path.join("configs", "debug", "extra.toml")
    found = b.launch_words(box, "held", extra, "--", "--max-steps", "7", env=QUICK)
    facts = {"found": found, "names": sorted(os.listdir(found["record"]))}
    facts["texts"] = {name: b.read(os.path.join(found["record"], name))
                      for name in ("config.toml", "config-2.toml", "command.txt", "configuration.txt")}
    facts["record"] = json.loads(b.read(os.path.join(found["record"], "record.json")))
    stop(box, found)
    facts["again"] = b.shell(box, facts["texts"]["command.txt"], env=QUICK, cwd="/")
    facts["launcher"] = b.wait_for(lambda: b.find_processes("PRIME-RL::Trainer") and b.find_processes("PRIME-RL::Launcher"),
                                   "the pasted launch")
    facts["made"] = list_runs_made(box)
    new = next(name for name in facts["made"] if name != found["experiment"])
    facts["steps"] = json.loads(b.read(os.path.join(box.root, "outputs", new, "configs/trainer.json")))["max_steps"]
    return facts


def test_a_record_keeps_all_configs_and_launches_again_under_another_name(play, root):
    extra = "seq_len = 1024\n[orchestrator]\nbatch_size = 16\n"
    add_prime_config(root, "extra", extra)
    facts = play(play_record, root)
    found, texts = facts["found"], facts["texts"]
    assert found["code"] == 0, found["stderr"]
    assert found["configs"] == ["configs/debug/held.toml", "configs/debug/extra.toml"]
    assert found["overrides"] == ["--max-steps", "7"]
    assert (texts["config.toml"], texts["config-2.toml"]) == (HELD, extra)
    assert "batch        16 rollouts/step" in texts["configuration.txt"] and "max_steps=7" in texts["configuration.txt"]
    assert facts["record"]["argv"][-6:-2] == ["@", "configs/debug/extra.toml", "--max-steps", "7"]
    assert "--run.name" not in texts["command.txt"] and facts["again"][0] == 0
    assert len(facts["made"]) == 2 and facts["steps"] == 7 and len(facts["launcher"]) == 1


# --- terminals

def play_hangup(box):
    shell = b.open_terminal(["bash", "--norc", "-i"], b.make_env(box, QUICK), box.root)
    b.send(shell, "%s run held --background\n" % shlex.join([box.python, box.pyz]))
    b.expect(shell, QUESTION)
    b.send(shell, "y\n")
    b.expect(shell, "stop: ")
    b.expect(shell, "\n")
    row = b.list_runs(box)[0]
    before = list_run(row["runner"]["pid"])
    os.killpg(shell.pid, signal.SIGHUP)
    os.close(shell.fd)  # the window is gone
    b.wait_for(lambda: b.reap(shell.pid), "the end of the shell")
    facts = {"same": list_run(row["runner"]["pid"]) == before, "parts": len(before), "state": b.list_runs(box)[0]["state"]}
    held = hold()
    facts["ended"] = b.wait_for_end(box)
    held.close()
    return facts


def test_S1_the_run_survives_the_terminal(play, root):
    facts = play(play_hangup, root)
    assert facts["same"] and facts["parts"] >= 7 and (facts["state"], facts["ended"]) == ("running", "ended 0")


def play_foreground(box):
    digest = b.check(box, "held", env=QUICK)["digest"]
    held = hold()
    facts = {"end": b.rlrun(box, "run", "held", "--confirm", digest, "--foreground", env=QUICK)}
    held.close()
    session = b.open_rlrun(box, "run", "held", env=QUICK)
    b.expect(session, QUESTION)
    b.send(session, "y\n")
    b.expect(session, MODE)
    b.send(session, "f\n")
    b.expect(session, "Starting orchestrator in ")
    row = b.list_runs(box)[0]
    b.wait_for(lambda: b.find_processes("PRIME-RL::Trainer"), "the trainer")
    b.send(session, "\x03")
    code, text = b.finish(session)
    return dict(facts, code=code, text=show(text), left=list_run(row["runner"]["pid"]), row=b.list_runs(box)[0],
                log=b.read(row["launch_log"]))


def test_the_foreground_shows_the_run_and_ctrl_c_ends_it_in_good_order(play, root):
    facts = play(play_foreground, root)
    code, out, err = facts["end"]
    assert code == 0, err
    assert "Step 2 | " in out.partition("Launched (foreground)")[0] and "Training finished!" in out
    assert out.rstrip().splitlines()[-1].startswith("  record:") and "stage:" in out and "ended 0 after" in out
    assert facts["left"] == [] and facts["row"]["state"] == "ended 1" and facts["code"] == 4
    assert "Received SIGTERM, terminating all processes" in facts["text"] and "Received interrupt" not in facts["log"]


# --- once through; test_prime_check.py checks under every Python, test_run_launch.py runs under every one

def play_tour(box):
    env = dict(QUICK, TOY_PYTHON=box.python)
    text = b.rlrun(box, "check", "held", env=env)
    line = text.out.rstrip().splitlines()[-1].replace("Launch: ", "")
    before = hash_tree(os.path.join(box.root, "configs"))
    done = b.shell(box, "%s %s" % (box.python, line), env=env)
    row = b.list_runs(box)[0]
    stopped = b.shell(box, b.find_stop_line(done.out), cwd="/")
    b.wait_for(lambda: not list_run(row["runner"]["pid"]), "the end of the whole run")
    return {"check": text, "done": done, "row": row, "stopped": stopped, "ended": b.wait_for_end(box),
            "same": before == hash_tree(os.path.join(box.root, "configs"))}


def test_check_run_runs_and_stop_under_the_oldest_and_the_newest_python(play, root, edge_python):
    facts = play(play_tour, root, python=edge_python)
    assert facts["check"][0] == 0 and "SAFE TO RUN: ✓ YES" in facts["check"][1], facts["check"]
    assert facts["done"][0] == 0 and "trainer=" in facts["done"][1], facts["done"]
    assert (facts["row"]["state"], facts["stopped"][0], facts["ended"], facts["same"]) == ("running", 0, "ended 1", True)
