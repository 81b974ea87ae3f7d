import json
import pytest
from checkouts import add_config, add_prime_config, build_prime_checkout
from . import box as b
from . import vitals as v

PRIME = {"healthy": ("", 12, 0), "kl": ("kl:mismatch", 12, 4), "entropy": ("entropy:collapse", 12, 6), "grad": ("grad:spike", 12, 10), "nan": ("metric:nan", 6, 4),
  "errors": ("rollout:errors", 7, 4), "truncated": ("rollout:truncated", 5, 1), "wait_orchestrator": ("wait:orchestrator", 6, 1), "wait_trainer": ("wait:trainer", 6, 1)}

def play_prime(box, words):
    import time
    runs = {}
    t=time.time()
    for n, w in enumerate(words):
        env = {"TOY_SICK": w, "TOY_SICK_AT": str(words[w][2])} if w!="healthy" else {}
        runs[w] = v.start_prime(box, "toy-"+w, n, env=env, out=box.folder+"/%s.out"%w)
    pend = dict(runs)
    def stop():
        for w in list(pend):
            if v.count_steps(v.find_log(box, "toy-"+w)) >= words[w][1]:
                v.freeze(runs[w].pid); del pend[w]
        return not pend
    b.wait_for(stop, "all", 20)
    t2=time.time()
    r = {w: v.look(box, v.find_log(box, "toy-"+w)) for w in words}
    print(t2-t, time.time()-t2)
    return r

def test_prime(play, tmp_path):
    root = build_prime_checkout(tmp_path/"prime")
    add_prime_config(root, "steady", v.RL)
    f = play(play_prime, root, words=PRIME)
    for w, x in f.items():
        s = x["shape"]
        print("=====", w, x["code"], s["verdict"], s["conclusion"], s["progress"]["step"], [(k["name"], k["quotes"]) for k in s["findings"]], s["notes"], s["errors"])
        for k in s["findings"]:
            for q in k["quotes"]: print("   Q", v.check_quote(q))
    print(f["kl"]["text"])
    print(f["wait_trainer"]["text"])
    assert 0
