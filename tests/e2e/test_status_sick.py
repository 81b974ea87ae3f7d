import json
import pytest
from checkouts import add_config, add_prime_config, build_prime_checkout
from . import box as b
from . import vitals as v

LEGO = {"healthy": ("", 12), "pearson": ("r3:misaligned", 12), "lr": ("lr:frozen", 12), "reward": ("reward:zero", 12),
        "val": ("val:fake-zero", 12), "starve": ("grad:starved", 12), "avalanche": ("env:avalanche", 7),
        "collapse": ("tools:collapse", 12), "nan": ("metric:nan", 12), "slow": ("step:slow", 12), "restart": ("", 12)}

def play_lego(box, words):
    runs = {}
    for w in words:
        env = {"TOY_SICK": w, "TOY_TEST_FREQ": "2"} if w!="healthy" else {"TOY_TEST_FREQ":"2"}
        runs[w] = v.start_lego(box, "toy-"+w, env=env, out=box.folder+"/%s.out"%w)
    pend = dict(runs)
    def stop():
        for w in list(pend):
            if v.count_steps(v.find_log(box, "toy-"+w)) >= words[w][1]:
                v.freeze(runs[w].pid); del pend[w]
        return not pend
    b.wait_for(stop, "all")
    return {w: v.look(box, v.find_log(box, "toy-"+w)) for w in words}

def test_lego(play, root):
    add_config(root, "train", "named", v.NAMED)
    f = play(play_lego, root, words=LEGO)
    for w, x in f.items():
        s = x["shape"]
        print("=====", w, x["code"], s["verdict"], s["conclusion"], s["progress"]["step"], [(k["name"], k["quotes"]) for k in s["findings"]], s["notes"], s["errors"])
        for k in s["findings"]:
            for q in k["quotes"]: print("   Q", v.check_quote(q))
    print(f["pearson"]["text"])
    assert 0
