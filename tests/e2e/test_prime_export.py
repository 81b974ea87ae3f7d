"""`rlrun export` on a toy checkout: a conversion goes through the steps of a run, and leaves a record (P9 of issue 3)."""
import json
import os
import shlex

import pytest
from checkouts import build_checkout, build_prime_checkout, write_nvidia_smi

from . import box as b

# A run whose trainer goes on, step by step.
GOING = {"TOY_STEPS": "100000", "TOY_STEP_SEC": "0.2", "TOY_LOAD_SEC": "0.1"}


def add_run(root, name="one", steps=(10, 20), lora=None):
    folder = os.path.join(root, "outputs", name)
    os.makedirs(os.path.join(folder, "configs"))
    with open(os.path.join(folder, "configs/trainer.json"), "w", encoding="utf-8") as out:
        json.dump({"model": {"name": "Qwen/Qwen3-0.6B", "lora": lora}, "ckpt": {"interval": 10}}, out)
    for step in steps:
        shards = os.path.join(folder, "checkpoints/step_%d/trainer" % step)
        os.makedirs(shards)
        for file in (".metadata", "__0_0.distcp"):
            b.add_to_file(os.path.join(shards, file), "x")
    return folder


@pytest.fixture
def root(tmp_path):
    found = build_prime_checkout(tmp_path / "a prime")
    add_run(found)
    return found


def last_line(text):
    return text.rstrip().splitlines()[-1].strip()


def list_target(box, name):
    folder = os.path.join(box.root, "outputs/one/checkpoints/step_20", name)
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


# --- from the printed line to the result

def play_pasted(box, words, target):
    first = b.rlrun(box, "export", *words)
    facts = {"first": first, "before": b.count_records(box), "target before": list_target(box, target)}
    facts["pasted"] = b.shell(box, last_line(first.err), cwd="/")
    facts["target"] = list_target(box, target)
    facts["runs"] = b.list_runs(box)
    facts["again"] = b.rlrun(box, "export", *words, "--confirm", shlex.split(last_line(first.err))[-1], "--json")
    facts["command"] = b.read(os.path.join(facts["runs"][0]["record"], "command.txt"))
    return facts


@pytest.mark.parametrize("to,target", [("bf16", "weights"), ("fp8", "weights-FP8")])
def test_the_printed_line_converts_when_pasted(play, root, to, target, edge_python):
    facts = play(play_pasted, root, words=["one", "--to", to], target=target, python=edge_python)
    code, out, err = facts["first"]
    assert (code, out, facts["before"], facts["target before"]) == (3, "", 0, [])
    assert "SAFE TO RUN: ✓ YES" in err and "run configuration (export)" in err and "step         20" in err
    assert "nobody can be asked here; nothing was launched" in err
    assert ("export:sm120" in err) == (to == "fp8")
    code, out, err = facts["pasted"]
    assert code == 0, err
    assert out.startswith("Launched (background)") and "ended 0 after" in out
    assert facts["target"] == ["config.json", "model.safetensors"]
    assert [(row["kind"], row["state"], row["exit"], row["experiment"]) for row in facts["runs"]] == [
        ("export", "ended 0", 0, "one/step_20")]
    assert "tools/convert_dcp_to_%s.py" % to in facts["command"]
    again = json.loads(facts["again"][1])
    assert (facts["again"][0], again["blocking"], again["launched"], again["command"]) == (1, ["export:target"], False, "export")


def play_chain(box):
    """bf16 → fp8 → bf16, each by what the one before has left, named by directory and by record."""
    facts = {}
    weights = os.path.join(box.root, "outputs/one/checkpoints/step_20/weights")
    for word in ("one", weights, weights + "-FP8"):
        asked = json.loads(b.rlrun(box, "export", word, "--json").out)
        done = b.rlrun(box, "export", word, "--json", "--confirm", asked["digest"])
        facts[word[-11:]] = [done.code, asked["warnings"], json.loads(done.out)]
    facts["names"] = sorted(os.listdir(os.path.dirname(weights)))
    with open(weights + "-FP8-BF16/config.json", encoding="utf-8") as file:
        facts["config"] = json.load(file)
    # The run by a part of a record's id, and by its name, from a folder elsewhere
    record = b.list_runs(box)[-1]["id"]
    facts["by record"] = json.loads(b.rlrun(box, "export", record, "--step", "10", "--json").out)["plan"]["argv"][-1]
    facts["elsewhere"] = b.rlrun(box, "export", "one", "--step", "10", "--root", box.root, cwd="/").code
    return facts


def test_weights_are_converted_there_and_back(play, root):
    facts = play(play_chain, root)
    for code, warnings, shape in (facts["one"], facts["_20/weights"], facts["weights-FP8"]):
        assert (code, shape["launched"], shape["exit"], shape["kind"]) == (0, True, 0, "export")
        assert shape["ended"]["status"] == 0 and shape["digest"] and shape["plan"]["submission"] is False
        assert ("export:sm120" in warnings) == (shape["plan"]["argv"][-2] == "tools/convert_bf16_to_fp8.py")
    assert facts["names"] == ["trainer", "weights", "weights-FP8", "weights-FP8-BF16"]
    assert "quantization_config" not in facts["config"]
    assert facts["by record"].endswith("outputs/one/checkpoints/step_10") and facts["elsewhere"] == 3


def play_terminal(box, answers):
    session = b.open_rlrun(box, "export", "one", "--step", "10")
    said = b.expect(session, "Launch with this configuration?")
    for answer, following in answers:
        b.send(session, answer + "\r")
        if following:
            b.expect(session, following)
    code, rest = b.finish(session)
    return {"code": code, "said": said, "rest": rest, "records": b.count_records(box),
            "made": os.path.isdir(os.path.join(box.root, "outputs/one/checkpoints/step_10/weights"))}


def test_at_a_terminal(play, root):
    no = play(play_terminal, root, answers=[("n", "")])
    assert (no["code"], no["records"], no["made"]) == (3, 0, False) and "10, and there is newer: 20" in no["said"]
    yes = play(play_terminal, root, answers=[("y", "Launch mode?"), ("f", "")])
    assert (yes["code"], yes["records"], yes["made"]) == (0, 1, True) and "Wrote " in yes["rest"]


# --- one that takes its time, and one that fails

def play_tool(box, text):
    with open(os.path.join(box.root, "tools/convert_dcp_to_bf16.py"), "w", encoding="utf-8") as out:
        out.write(text)
    asked = json.loads(b.rlrun(box, "export", "one", "--json").out)
    done = b.rlrun(box, "export", "one", "--confirm", asked["digest"])
    facts = {"done": done, "state": b.list_runs(box)[0]["state"]}
    if done.code == 0:
        facts["stopped"] = b.shell(box, b.find_stop_line(done.out)).code
        facts["state after"] = b.wait_for_end(box)
    return facts


def test_a_long_conversion_goes_on_and_its_stop_command_works(play, root):
    facts = play(play_tool, root, text="import time\nprint('reading', flush=True)\ntime.sleep(600)\n")
    code, out, _ = facts["done"]
    assert (code, facts["state"], facts["stopped"]) == (0, "running", 0)
    assert "the weights are read, then written to" in out and "tail -F" in out
    assert facts["state after"] in ("killed by SIGTERM", "killed by SIGINT")


def test_a_conversion_that_fails(play, root):
    facts = play(play_tool, root, text="raise ValueError('Missing key lm_head.weight')\n")
    code, out, _ = facts["done"]
    assert (code, facts["state"]) == (4, "ended 1")
    assert "Missing key lm_head.weight" in out and "Nothing is retried" in out


# --- refusals

def play_refusals(box, cases):
    found = {}
    for name, words in cases.items():
        done = b.rlrun(box, "export", "--json", *words)
        found[name] = [done.code, json.loads(done.out), done.err]
    found["records"] = b.count_records(box)
    return found


def test_what_is_refused(play, root):
    add_run(root, "adapter", lora={"rank": 8})
    for name in ("cut", "half"):
        add_run(root, name)
    os.unlink(os.path.join(root, "outputs/cut/checkpoints/step_20/trainer/__0_0.distcp"))
    os.makedirs(os.path.join(root, "outputs/half/checkpoints/step_20/weights"))
    b.add_to_file(os.path.join(root, "outputs/half/checkpoints/step_20/weights/x"), "x")
    os.unlink(os.path.join(root, "tools/convert_dcp_to_fp8.py"))
    facts = play(play_refusals, root, cases={
        "lora": ["adapter"], "cut": ["cut", "--step", "20"], "target": ["half"], "tool": ["one", "--to", "fp8"], "none": [],
        "nix": ["nix"], "step": ["one", "--step", "15"], "option": ["one", "--to", "int4"], "after": ["one", "--", "--x"],
        "digest": ["one", "--confirm", "xyz"], "other": ["one", "--confirm", "00000000"]})
    assert facts.pop("records") == 0
    for name, check in (("lora", "export:lora"), ("cut", "export:incomplete"), ("target", "export:target"),
                        ("tool", "export:tool")):
        code, shape, err = facts[name]
        assert (code, shape["blocking"], shape["verdict"], shape["command"]) == (1, [check], "NO", "export"), name
        assert shape["launched"] is False and "before `rlrun export`" in err and "Next steps" in err
    for name in ("none", "nix", "step", "option", "after", "digest"):
        code, shape, err = facts[name]
        assert (code, shape["command"], shape["exit"]) == (2, "export", 2) and shape["error"] in err, name
    assert "  one" in facts["none"][2] and "10 20" in facts["step"][2]
    assert facts["other"][0] == 3 and facts["other"][1]["launched"] is False


def test_a_checkout_without_such_tools(play, tmp_path):
    lego = build_checkout(tmp_path / "lego")
    code, shape, err = play(play_refusals, lego, cases={"x": ["one"]})["x"]
    assert code == 2 and "has no tools that convert checkpoints" in err and shape["launched"] is False


def play_held(box):
    shape = json.loads(b.rlrun(box, "export", "one", "--json").out)
    free = json.loads(b.rlrun(box, "export", "one", "--json", env={"CUDA_VISIBLE_DEVICES": "1"}).out)
    return [shape["blocking"], free["blocking"], free["plan"]["gpus"]]


def test_a_checkpoint_takes_a_gpu(play, root, fake_bin):
    gpus = [{"used": used, "total": 81559} for used in (61000, 0)]
    write_nvidia_smi(fake_bin, gpus, [{"uuid": "GPU-toy-0", "pid": 4194000, "used": 61000, "name": "vllm"}])
    assert play(play_held, root) == [["gpu:foreign"], [], 1]


def play_beside(box):
    """A live run that keeps its last checkpoints only."""
    words = [os.path.join(box.root, ".venv/bin/rl"), "@", "examples/basic/reverse-text/rl.toml", "--run.name", "live",
             "--ckpt.interval", "1", "--ckpt.keep-last", "2", "--max-steps", "100000"]
    env = dict(GOING, PATH=os.path.join(box.root, ".venv/bin") + ":" + box.env["PATH"])
    b.shell(box, "setsid %s >live.log 2>&1 </dev/null &" % " ".join(map(shlex.quote, words)), env=env)
    mark = os.path.join(box.root, "outputs/live/checkpoints/step_1/trainer/__0_0.distcp")
    b.wait_for(lambda: os.path.exists(mark), "a checkpoint; " + b.read(os.path.join(box.root, "live.log")))
    return json.loads(b.rlrun(box, "export", "live", "--step", "1", "--json").out)


def test_beside_the_run_itself(play, root):
    shape = play(play_beside, root)
    assert shape["verdict"] == "YES" and {"export:live", "job:beside"} <= set(shape["warnings"])
