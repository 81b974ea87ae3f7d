"""How runs end, and how they stand still: what status tells of runs that rlrun launched, from the recorded exit and the log's
first real error (L9, L11, L13, L15, S11, S5)."""
import os

import pytest
from checkouts import add_config, add_prime_config, build_prime_checkout

from . import box as b
from . import vitals as v

# word: (how, part of the words, part of the first error)
LEGO = {
    "oom": ("failed", "out of memory on the GPU (exit status 1)", "torch.OutOfMemoryError: CUDA out of memory. Tried"),
    "nccl": ("failed", "NCCL timed out: _REDUCE_SCATTER_BASE, first on rank 3 (exit status 1)", "[Rank 3] Watchdog caught"),
    "trace": ("failed", "an exception ended it (exit status 1)", "json.decoder.JSONDecodeError: Expecting value"),
    "kill": ("killed", "SIGKILL", " Killed "),  # the shell's word, behind the half line of the step
    "early": ("ended early", "at step 2 of 5", "Detected termination signal (None), stopping"),
    "": ("ended well", "its log says that it finished", None),
}
PRIME = {
    "oom": ("failed", "out of memory on the GPU (exit status 1)", "torch.OutOfMemoryError: CUDA out of memory. Tried"),
    "nccl": ("failed", "NCCL timed out: ALLREDUCE, first on rank 1 (exit status 1)", "[Rank 1] Watchdog caught"),
    "trace": ("failed", "(exit status 1)", "KeyError: 'reward'"),
    "kill": ("killed", "", "exitcode: -9"),
    "early": ("ended early", "at step 2 of 5", None),
    "broadcast": ("failed", "(exit status 1)", "httpx.HTTPStatusError: Server error '500"),
    "": ("ended well", "its log says that it finished", None),
}


def play_ends(box, words, config, knobs):
    """Each launched through rlrun, awaited and looked at without a name: the last launch is meant."""
    facts = {}
    for word in words:
        given = dict(knobs, TOY_SICK=word, TOY_SICK_AT="3")
        options = ["--again", "--board", "leave"] if "TOY_LOAD_SEC" not in knobs else ["--again"]
        launched = b.launch_words(box, config, options=options, env=given)
        b.wait_for_end(box)
        facts[word] = dict(v.look(box), launched=launched["record"], stop=launched["stop"])
    return facts


def judge_ends(facts, ends):
    for word, (how, words, error) in ends.items():
        found, shape = facts[word], facts[word]["shape"]
        ending = shape["ending"]
        code = 0 if how == "ended well" else 4
        assert (word, shape["run"]["record"]) == (word, found["launched"])
        assert (word, ending["how"], found["code"], found["shape_code"]) == (word, how, code, code), ending
        assert (word, shape["verdict"], shape["run"]["state"], shape["run"]["pids"]) == (word, "ended", "over", {})
        assert words in ending["words"] and ending["words"] == shape["conclusion"], (word, ending)
        assert "%s %s %s" % ("✓" if code == 0 else "✗", how, "— " + ending["words"]) in found["text"], (word, found["text"])
        assert shape["run"]["stop"] is None and "\nstop:" not in found["text"], word
        first = ending["first_error"]
        if error is None:
            assert (word, first, shape["errors"]) == (word, None, [])
        elif error:
            assert error in first["text"] and not v.check_quote(first), (word, first)
            assert "%s:%d  %s" % (first["log"], first["line"], first["text"]) in found["text"], word
        quotes = shape["errors"] + [quote for one in shape["findings"] for quote in one["quotes"]]
        assert (word, [v.check_quote(quote) for quote in quotes]) == (word, [""] * len(quotes))
        assert len(shape["recommendations"]) <= 3, word
        assert bool(shape["recommendations"]) == bool(code) or (how, error) == ("ended early", None), (word, shape)
        assert "nothing is live here; this is the last launch of this checkout" in found["text"], word


@pytest.mark.parametrize("words", [["oom", "kill", ""], ["nccl", "trace", "early"]], ids="-".join)
def test_how_runs_of_lego_rl_end(play, root, words):
    facts = play(play_ends, root, words=words, config="demo", knobs=dict(v.STEADY, TOY_STEPS="5"))
    judge_ends(facts, {word: LEGO[word] for word in words})
    for word in words:
        assert facts[word]["shape"]["findings"] == [], word
    if "kill" in words:  # by whom is not told: no counter of the kernel's killer rose
        assert facts["kill"]["shape"]["ending"]["signal"] == "SIGKILL" and "most likely" not in facts["kill"]["text"]


@pytest.fixture
def prime_root(tmp_path):
    root = build_prime_checkout(tmp_path / "prime")
    add_prime_config(root, "steady", v.RL)
    add_prime_config(root, "short", v.RL.replace("100000", "5"))
    return root


@pytest.mark.parametrize("words", [["oom", "kill", "early", "broadcast"], ["nccl", "trace", ""]], ids="-".join)
def test_how_runs_of_prime_rl_end(play, prime_root, words):
    facts = play(play_ends, prime_root, words=words, config="short", knobs=dict(v.STEADY_RL, TOY_STEPS="5"))
    judge_ends(facts, {word: PRIME[word] for word in words})
    if "kill" in words:
        assert [one["name"] for one in facts["broadcast"]["shape"]["findings"]] == ["part:failed", "weights:broadcast"]


# --- a run that stands still, and one whose environment's worker dies: both live

def play_live(box, words, config, knobs):
    """Looked at as they are; then with all logs aged by three hours, so that nobody has to wait."""
    facts = {}
    start = v.start_prime if config == "steady" else v.start_lego
    runs = {word: start(box, "toy-" + word, number, out=os.path.join(box.folder, word + ".out"),
                        env=dict(knobs, TOY_SICK=word, TOY_SICK_AT="4")) for number, word in enumerate(words)}
    if "empty" in words:
        log = os.path.join(box.root, "outputs/toy-empty/logs/attempt_1/orchestrator.log")
        b.wait_for(lambda: "consecutive empty batches: 4/10" in b.read(log), "some empty batches")
        v.freeze(runs["empty"].pid)  # before it ends itself
    if "envdie" in words:
        log = os.path.join(box.root, "outputs/toy-envdie/logs/attempt_1/envs/train/reverse-text.log")
        b.wait_for(lambda: "died, restarting" in b.read(log), "a new worker")
        v.await_step(v.find_log(box, "toy-envdie"), v.count_steps(v.find_log(box, "toy-envdie")) + 2)
    for word, run in runs.items():
        v.await_step(v.find_log(box, "toy-" + word), 3)
        fresh = v.look(box, str(run.pid))
        logs = list(fresh["shape"]["run"]["logs"].values())
        v.freeze(run.pid)
        v.age(logs, 3 * 3600)
        facts[word] = {"fresh": fresh, "aged": v.look(box, str(run.pid)), "pid": run.pid}
    return facts


def judge_stall(facts, trainer):
    assert facts["fresh"]["shape"]["verdict"] == "healthy" and facts["fresh"]["code"] == 0, facts["fresh"]["text"]
    shape, text = facts["aged"]["shape"], facts["aged"]["text"]
    (found,) = shape["findings"]
    assert (found["name"], found["severity"], shape["verdict"], facts["aged"]["code"]) == (
        "run:stalled", "stop", "recommend stopping", 1)
    assert "stalled for 3h 00m (usual step: 0." in found["words"]
    assert "the process lives, and its log stands still" in found["words"]
    assert 3 * 3600 <= shape["progress"]["idle_seconds"] < 3 * 3600 + 600 and "log last written 3h 00m ago" in text
    (quote,) = found["quotes"]
    assert not v.check_quote(quote) and quote["text"].lower().startswith(("step:3", "step 3")), quote
    pid = shape["run"]["pids"][trainer][0]
    assert "; pid %d is stopped (state T)" % pid in found["words"]
    assert shape["recommendations"][0].startswith("kill -CONT %d " % pid)
    assert shape["recommendations"][1].startswith("py-spy dump --pid %d " % pid)
    assert shape["run"]["state"] == "live" and "\nstop:" in text


def test_L9_a_run_of_lego_rl_that_stands_still(play, root):
    add_config(root, "train", "named", v.NAMED)
    judge_stall(play(play_live, root, words=["stall"], config="named", knobs={})["stall"], "trainer")


def test_L9_a_run_of_prime_rl_that_stands_still_has_empty_batches_or_an_environment_that_fails(play, prime_root):
    facts = play(play_live, prime_root, words=["stall", "envdie", "empty"], config="steady", knobs={"TOY_STEP_SEC": "0.2"})
    judge_stall(facts["stall"], "trainer")
    shape = facts["empty"]["fresh"]["shape"]
    (found,) = shape["findings"]
    assert (found["name"], shape["verdict"], facts["empty"]["fresh"]["code"]) == ("batch:empty", "recommend stopping", 1)
    assert not v.check_quote(found["quotes"][0]) and "(consecutive empty " in found["quotes"][0]["text"]
    # its worker was replaced, and steps have come since
    shape = facts["envdie"]["fresh"]["shape"]
    assert (shape["findings"], shape["verdict"], facts["envdie"]["fresh"]["code"]) == ([], "healthy", 0)
