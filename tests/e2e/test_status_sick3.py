import json, time, os
import pytest
from checkouts import add_config, add_prime_config, build_prime_checkout
from . import box as b
from . import vitals as v

def play_ends(box, words, stack):
    found = {}
    for w in words:
        t = time.time()
        env = dict(v.STEADY if stack=="lego" else v.STEADY_RL, TOY_SICK=w, TOY_SICK_AT="3", TOY_STEPS="5")
        if stack == "lego":
            f = b.launch(box, "demo", env=env)
        else:
            f = b.launch_words(box, "steady", env=env)
        t1=time.time()
        b.wait_for(lambda: b.list_runs(box)[0]["state"] != "running", "end")
        t2=time.time()
        found[w] = dict(v.look(box), run=f["code"], t=[t1-t, t2-t1, time.time()-t2], sess=b.find_processes("PRIME-RL"), gate=b.rlrun(box,"gate"))
        if stack=="lego": b.end_runs()
    return found

@pytest.mark.parametrize("stack", ["lego", "prime"])
def test_ends(play, tmp_path, root, stack):
    words = ["oom","nccl","trace","kill","early"] + (["broadcast","empty"] if stack == "prime" else [])
    if stack == "prime":
        root = build_prime_checkout(tmp_path/"prime")
        add_prime_config(root, "steady", v.RL.replace("100000", "5"))
    f = play(play_ends, root, words=words, stack=stack)
    for w, x in f.items():
        s = x["shape"]
        print("=====", w, x["run"], x["t"], x["code"], s["verdict"], s["conclusion"], s["progress"]["step"], "ENDING", s["ending"], "FINDINGS", [(k["name"], k["quotes"]) for k in s["findings"]], s["notes"])
        for e in s["errors"]: print("    E", e)
        for r in s["recommendations"]: print("   R", r)
        for k in s["findings"]:
            for q in k["quotes"]: print("   Q", v.check_quote(q))
        for q in s["errors"] + ([s["ending"]["first_error"]] if s["ending"]["first_error"] else []):
            print("   Q", v.check_quote(q))
        print("   GATE", x["gate"])
    print(f["oom"]["text"])
    print(f["kill"]["text"])
    print(f["early"]["text"])
    assert 0
