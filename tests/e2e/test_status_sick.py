"""Every way in which the toys fall sick, through real processes: what status says of it, and that its quotes stand where it
says (L3, L9, L11, L15); their healthy twins get no finding at all."""
import os

from checkouts import add_config, add_prime_config, build_prime_checkout

from . import box as b
from . import vitals as v

AT_RISK, STOP, HEALTHY = "at risk", "recommend stopping", "healthy"
# word: (finding, verdict, sick from step, looked at at step, what its quotes have to show)
LEGO = {
    "healthy": ("", HEALTHY, 0, 12, ()),
    "pearson": ("r3:misaligned", STOP, 1, 3, ("pearson_corr:0.75",)),
    "lr": ("lr:frozen", STOP, 1, 3, ("actor/lr:np.float64(0.0)",)),
    "reward": ("reward:zero", AT_RISK, 1, 6, ("critic/rewards/mean:0.0",)),
    "val": ("val:fake-zero", AT_RISK, 0, 6, ("val-core/unknown/reward/mean@1:np.float64(0.0)", "critic/rewards/mean:0.2")),
    "starve": ("grad:starved", AT_RISK, 9, 12, ("actor/grad_norm:np.float64(0.029)", "response_length/mean:41800.0")),
    "avalanche": ("env:avalanche", AT_RISK, 4, 7, ("env_setup_failed:np.int64(30)", "critic/rewards/mean:0.0")),
    "collapse": ("tools:collapse", AT_RISK, 4, 11, ("num_turns/mean:np.float64(1.0", "critic/rewards/mean:0.0")),
    "nan": ("metric:nan", STOP, 4, 6, ("step:4 … actor/grad_norm:nan",)),
    "slow": ("step:slow", AT_RISK, 9, 14, ("step:1",)),
    "restart": ("", HEALTHY, 4, 6, ()),
}
PRIME = {
    "healthy": ("", HEALTHY, 0, 12, ()),
    "kl": ("kl:mismatch", AT_RISK, 4, 12, ("Mismatch KL ",)),
    "entropy": ("entropy:collapse", AT_RISK, 7, 12, ("Entropy 0.0", "Reward 0.4")),
    "grad": ("grad:spike", AT_RISK, 6, 7, ("Grad. Norm 19.0",)),
    "nan": ("metric:nan", STOP, 4, 5, ("Step 4 | … | ", " nan")),
    "errors": ("rollout:errors", AT_RISK, 3, 6, ("Error 85.0%",)),
    "truncated": ("rollout:truncated", AT_RISK, 1, 4, ("Truncation 90.0%",)),
    "wait_orchestrator": ("wait:orchestrator", HEALTHY, 1, 5, ('"time/wait_for_batch": 55.0', '"time/step": 62.0')),
    "wait_trainer": ("wait:trainer", HEALTHY, 1, 5, ('"time/wait_for_policy": 88.0', '"time/step": 95.0')),
}
# What an avalanche leaves of each batch, and what a mismatch is that has climbed so far, are findings too.
BESIDE = {"avalanche": ["traj:invalid"], "kl": ["kl:high"]}


def make_sick(word, at):
    """The knobs of one way to be sick."""
    return dict({"TOY_TEST_FREQ": "2"}, **({} if word == "healthy" else {"TOY_SICK": word, "TOY_SICK_AT": str(at)}),
                **({"TOY_STEP_SEC": "0.3"} if word == "avalanche" else {}))  # it climbs for few steps only


def play_all(box, sick, start):
    """All of them beside each other, each frozen at its step and looked at."""
    waiting = {word: getattr(v, start)(box, "toy-" + word, number, out=os.path.join(box.folder, word + ".out"), env=dict(
        make_sick(word, row[2]), **({"TOY_SHOW": "Reward=0.4"} if word == "entropy" else {})))
        for number, (word, row) in enumerate(sick.items())}
    logs = {word: v.find_log(box, "toy-" + word) for word in sick}

    def freeze_due():
        for word in [word for word in waiting if v.count_steps(logs[word]) >= sick[word][3]]:
            v.freeze(waiting.pop(word).pid)
        return not waiting

    b.wait_for(freeze_due, "the last step of each")
    return {word: v.look(box, logs[word]) for word in sick}


def judge_all(facts, sick):
    for word, (name, verdict, _, step, tokens) in sick.items():
        found, shape = facts[word], facts[word]["shape"]
        assert (word, shape["verdict"]) == (word, verdict), (shape["conclusion"], shape["findings"])
        code = 0 if verdict == HEALTHY else 1
        assert (word, found["code"], found["shape_code"], shape["exit"]) == (word, code, code, code)
        assert (word, shape["run"]["name"], shape["run"]["state"]) == (word, "toy-" + word, "live")
        assert shape["progress"]["step"] >= step, word
        names = [one["name"] for one in shape["findings"]]
        assert (word, names) == (word, [name] * bool(name) + BESIDE.get(word, []))
        quotes = [quote for one in shape["findings"] for quote in one["quotes"]]
        assert (word, [v.check_quote(quote) for quote in quotes]) == (word, [""] * len(quotes))
        own = [quote["text"] for one in shape["findings"] if one["name"] == name for quote in one["quotes"]]
        assert all(any(token in text for text in own) for token in tokens), (word, own)
        assert len(shape["recommendations"]) <= 3 and bool(shape["recommendations"]) == bool(code), word
        assert ("no known signature matched" in found["text"]) == (not name), word
        for one in shape["findings"]:
            assert one["name"] in found["text"] and one["words"] in found["text"], word
        assert all("%s:%d  %s" % (quote["log"], quote["line"], quote["text"]) in found["text"] for quote in quotes), word
        assert not shape["errors"] and shape["ending"] is None, word


def test_every_sickness_of_lego_rl_in_its_numbers(play, root):
    add_config(root, "train", "named", v.NAMED)
    facts = play(play_all, root, sick=LEGO, start="start_lego")
    judge_all(facts, LEGO)
    progress = facts["restart"]["shape"]["progress"]
    assert progress["segments"] == [{"first": 1, "last": 3}, {"first": 2, "last": progress["step"]}]
    assert "a restart lies in it; before it: steps 1 to 3" in facts["restart"]["text"]
    assert facts["healthy"]["shape"]["progress"]["segments"] == []


def test_every_sickness_of_prime_rl_in_its_numbers(play, tmp_path):
    root = build_prime_checkout(tmp_path / "prime")
    add_prime_config(root, "steady", v.RL)
    judge_all(play(play_all, root, sick=PRIME, start="start_prime"), PRIME)
