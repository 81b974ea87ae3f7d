"""`rlrun gate` through the pyz: passed, failed, ended first, not reached; what it waits for, and what must not fail it (L1)."""
import json
import os
import subprocess

import pytest
from checkouts import add_config, add_prime_config, build_prime_checkout

from . import box as b
from . import vitals as v

GATES = ["gate:r3", "gate:lr", "gate:reward", "gate:turns", "gate:finite"]
KEYS = {"schema", "command", "exit", "reached", "step", "gates", "conclusion", "run", "ending"}


@pytest.fixture
def named(root):
    add_config(root, "train", "named", v.NAMED)
    return root


def start_gate(box, *words):
    return subprocess.Popen([box.python, box.pyz, "gate"] + list(words), env=box.env, cwd=box.root, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def finish_gate(popen):
    out, err = popen.communicate(timeout=b.LIMIT_SECONDS)
    return [popen.returncode, out.decode(), err.decode()]


# --- Lego-RL: launched, then gated, as in `rlrun run … && rlrun gate`

def play_lego(box):
    env = dict(v.STEADY, TOY_BRINGUP_SEC="1", TOY_TEST_FREQ="2")
    digest = b.check(box, "demo", env=env)["digest"]
    chain = '%s %s run demo --confirm %s --board leave && %s %s gate && echo MAILED || echo NOT MAILED' % (
        (box.python, box.pyz, digest) + (box.python, box.pyz))
    facts = {"chain": b.shell(box, chain, env=env)}
    facts["json"] = b.rlrun(box, "gate", "--json")
    facts["later"] = b.rlrun(box, "gate", "--json", "--step", "4")
    facts["far"] = b.rlrun(box, "gate", "--json", "--step", "90000", "--timeout", "1s")
    facts["bad"] = [b.rlrun(box, "gate", *words) for words in (["--timeout", "soon"], ["--step", "-1"], ["--step", "x"])]
    return facts


def test_L1_a_healthy_launch_of_lego_rl_passes_though_it_began_with_a_validation(play, root):
    facts = play(play_lego, root)
    code, out, err = facts["chain"]
    assert code == 0 and out.endswith("MAILED\n") and "NOT MAILED" not in out, (out, err)
    assert out.startswith("Launched (background)\n") and ": the gates are passed at step 1\n" in out
    for name in GATES:
        assert out.count("✓ %s " % name) == 1 and out.count(name) == 1, name
    code, out, _ = facts["json"]
    shape = json.loads(out)
    assert set(shape) == KEYS and (shape["schema"], shape["command"], shape["exit"], code) == (1, "gate", 0, 0)
    assert (shape["reached"], shape["step"], shape["ending"], shape["run"]["state"]) == (True, 1, None, "live")
    assert [(one["name"], one["state"], one["words"]) for one in shape["gates"]] == [(name, "passed", None) for name in GATES]
    for one in shape["gates"]:
        assert not v.check_quote(one["quote"]) and one["quote"]["text"].startswith("step:1 …"), one
    later = json.loads(facts["later"][1])
    assert (facts["later"][0], later["step"]) == (0, 4)
    assert all(one["quote"]["text"].startswith("step:4 …") for one in later["gates"])
    far = json.loads(facts["far"][1])
    assert (facts["far"][0], far["exit"], far["reached"], far["step"], far["gates"]) == (6, 6, False, None, [])
    assert far["conclusion"].startswith("at step ") and " of 100000 after 1s; " in far["conclusion"], far["conclusion"]
    for code, out, err in facts["bad"]:
        assert (code, out) == (2, "") and err.startswith(("rlrun: ", "usage: ")), err


def play_sick(box):
    runs = {word: v.start_lego(box, "toy-" + word, env={"TOY_SICK": word, "TOY_SICK_AT": "1"}, out="%s/%s.out" % (
        box.folder, word)) for word in ("pearson", "lr", "reward", "nan")}
    for word in runs:
        v.await_step(v.find_log(box, "toy-" + word), 1)
    facts = {word: [b.rlrun(box, "gate", "toy-" + word), b.rlrun(box, "gate", "toy-" + word, "--json")] for word in runs}
    v.end(*runs.values())
    return facts


def test_a_sick_first_step_fails_its_gate_alone(play, named):
    facts = play(play_sick, named)
    for word, failed, token in (("pearson", ["gate:r3"], "pearson_corr:0.75"), ("lr", ["gate:lr"], "actor/lr:np.float64(0.0)"),
                                ("reward", ["gate:reward", "gate:turns"], "critic/rewards/mean:0.0"),
                                ("nan", ["gate:finite"], "actor/grad_norm:nan")):
        (code, out, _), (json_code, shown, _) = facts[word]
        shape = json.loads(shown)
        bad = [one for one in shape["gates"] if one["state"] == "failed"]
        assert (word, code, json_code, [one["name"] for one in bad]) == (word, 1, 1, failed)
        assert shape["conclusion"] == "%s failed at step 1" % ", ".join(failed) and shape["conclusion"] in out
        assert token in bad[0]["quote"]["text"] and not v.check_quote(bad[0]["quote"]), bad[0]
        assert "%s:%d  %s" % (bad[0]["quote"]["log"], bad[0]["quote"]["line"], bad[0]["quote"]["text"]) in out
        assert bad[0]["words"] and bad[0]["words"] in out and "next: rlrun status " in out


# --- it waits: for a step, past a validation, past numbers that were rounded; a log that is written while it waits

VALIDATION = "step:0 - val-core/unknown/reward/mean@1:0.0 - val-aux/num_turns/mean:0.0\n"
STEP = ("step:%d - training/global_step:%d - actor/lr:%s - actor/grad_norm:0.31 - critic/rewards/mean:%s - num_turns/mean:31.5 - "
        "training/rollout_actor_probs_pearson_corr:0.9991 - timing_s/step:0.1\n")


def play_written(box):
    """A log that nobody here writes but the scenario, named by its path."""
    facts = {}
    for name, lines in (("rounded", [VALIDATION, STEP % (1, 1, "0.000", "0.00")]), ("true", [STEP % (1, 1, "0.0", "0.3")]),
                        ("later", [STEP % (1, 1, "0.0", "0.3"), STEP % (2, 2, "1e-06", "0.3")])):
        log = os.path.join(box.folder, name + ".log")
        b.add_to_file(log, "(TaskRunner pid=12) TaskRunner hostname: n1, PID: 12\n" + "".join(lines[:-1]))
        gate = start_gate(box, log, "--json", *(["--step", "2"] if name == "later" else []))
        told = os.read(gate.stderr.fileno(), 65536).decode()  # it says what it waits for
        waits = gate.poll() is None
        b.add_to_file(log, lines[-1][:40])
        b.add_to_file(log, lines[-1][40:])
        facts[name] = finish_gate(gate) + [told, waits]
    return facts


def test_L1_a_validation_alone_is_waited_past_and_a_rounded_zero_is_none(play, root):
    facts = play(play_written, root)
    for name, code in (("rounded", 0), ("true", 1), ("later", 0)):
        found, out, _, told, waits = facts[name]
        shape = json.loads(out)
        assert (name, found, waits) == (name, code, True), out
        assert told.startswith("%s: " % name) and " of 1h 00m)" in told, told
        assert shape["step"] == (2 if name == "later" else 1), name
    assert [one["name"] for one in json.loads(facts["true"][1])["gates"] if one["state"] == "failed"] == ["gate:lr"]


# --- the run ends first; a Ctrl-C

def play_ended(box):
    facts = {}
    for word, env in (("oom", {"TOY_SICK": "oom", "TOY_SICK_AT": "1"}), ("done", {"TOY_STEPS": "1"})):
        b.launch(box, "demo", env=dict(v.STEADY, **env))
        facts[word] = [b.rlrun(box, "gate", "--timeout", "30s"), b.rlrun(box, "gate", "--json", "--timeout", "30s")]
        b.wait_for_end(box)
    run = v.start_lego(box, "slow", env={"TOY_BRINGUP_SEC": "1000"}, out=os.path.join(box.folder, "slow.out"))
    b.wait_for(lambda: "starting ray head" in b.read(os.path.join(box.folder, "slow.out")), "the stage")
    session = b.open_rlrun(box, "gate")
    facts["waits"] = b.expect(session, "slow")
    b.send(session, "\x03")
    facts["left"] = b.finish(session)
    facts["lives"] = b.is_alive(run.pid)
    v.end(run)
    return facts


def test_a_run_that_ends_first_and_a_gate_that_is_left(play, named):
    facts = play(play_ended, named)
    (code, out, _), (json_code, shown, _) = facts["oom"]
    shape = json.loads(shown)
    assert (code, json_code, shape["exit"], shape["reached"], shape["step"]) == (4, 4, 4, False, None)
    assert "the run ended before the gate: out of memory on the GPU" in out and "torch.OutOfMemoryError" in out
    assert shape["ending"]["how"] == "failed" and not v.check_quote(shape["ending"]["first_error"])
    assert [one[0] for one in facts["done"]] == [0, 0]  # it had passed before it ended
    assert facts["left"][0] == 130 and facts["lives"]


# --- prime-rl: trainer and orchestrator, both

def play_prime(box):
    facts = {}
    run = v.start_prime(box, "one", out=os.path.join(box.folder, "one.out"), env={"TOY_LOAD_SEC": "1"})
    b.wait_for(lambda: os.path.exists(os.path.join(box.root, "outputs/one/logs/attempt_1/orchestrator.log")), "its logs")
    facts["passed"] = [b.rlrun(box, "gate"), b.rlrun(box, "gate", "--json")]
    v.end(run)
    # of two logs one has a step already
    logs = os.path.join(box.root, "outputs/one/logs/attempt_1")
    lines = {name: [line for line in b.read(os.path.join(logs, name + ".log")).split("\n") if "Step 1 |" in line][0]
             for name in ("trainer", "orchestrator")}
    for kind in ("waits", "nan", "errors"):
        folder = os.path.join(box.root, "outputs", kind)
        os.makedirs(os.path.join(folder, "logs/attempt_1"))
        os.symlink("attempt_1", os.path.join(folder, "logs/latest"))
        os.makedirs(os.path.join(folder, "configs"))
        for name in ("trainer.json", "orchestrator.json"):
            b.add_to_file(os.path.join(folder, "configs", name), b.read(os.path.join(box.root, "outputs/one/configs", name)))
        trainer, orchestrator = (os.path.join(folder, "logs/attempt_1", name + ".log") for name in ("trainer", "orchestrator"))
        b.add_to_file(trainer, lines["trainer"].replace("Loss 0.5000", "Loss nan" if kind == "nan" else "Loss 0.5") + "\n")
        b.add_to_file(orchestrator, "\n")
        gate = start_gate(box, folder, "--json")
        told = os.read(gate.stderr.fileno(), 65536).decode() if kind != "nan" else ""
        share = "100.0" if kind == "errors" else "0.0"
        b.add_to_file(orchestrator, lines["orchestrator"].replace("Error 0.0%", "Error %s%%" % share) + "\n")
        facts[kind] = finish_gate(gate) + [told]
    return facts


def test_prime_rl_is_waited_for_until_both_have_stepped(play, tmp_path):
    root = build_prime_checkout(tmp_path / "prime")
    add_prime_config(root, "steady", v.RL)
    facts = play(play_prime, root)
    (code, out, err), (json_code, shown, _) = facts["passed"]
    shape = json.loads(shown)
    assert (code, json_code) == (0, 0) and "the gates are passed at step 1" in out, out + err
    names = ["gate:trainer", "gate:orchestrator", "gate:errors", "gate:grad"]
    assert sorted(one["name"] for one in shape["gates"]) == sorted(names)
    assert all(one["state"] == "passed" and not v.check_quote(one["quote"]) for one in shape["gates"]), shape["gates"]
    code, out, _, told = facts["waits"]
    assert code == 0 and "no step line of orchestrator yet" in told, told
    code, out, _, _ = facts["nan"]
    assert code == 1 and [one["name"] for one in json.loads(out)["gates"] if one["state"] == "failed"] == ["gate:trainer"]
    code, out, _, _ = facts["errors"]
    assert code == 1 and [one["name"] for one in json.loads(out)["gates"] if one["state"] == "failed"] == ["gate:errors"]
