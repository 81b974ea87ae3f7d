import json, os, pty, subprocess, time, signal, sys
import pytest
from checkouts import add_config, add_prime_config, build_prime_checkout
from . import box as b
from . import vitals as v

def play_x(box, kind):
    facts = {}
    out = os.path.join(box.folder, "s.out")
    script = "cd /; nohup %sbash %s/scripts/train/train.sh %s/scripts/train/configs/named.env > %s 2>&1 &\n sleep 1000 & wait" % (kind, box.root, box.root, out)
    p = subprocess.Popen(["bash", "-c", script], env=b.make_env(box, v.STEADY, {"RUN_NAME": "bg"}), cwd="/", stdin=subprocess.DEVNULL, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    v.await_step(v.find_log(box, "bg"), 2)
    facts["bg"] = v.look(box)
    stop = facts["bg"]["shape"]["run"]["stop"]
    tree = v.list_tree(p.pid)
    facts["stopdone"] = (stop, b.shell(box, stop, cwd="/"))
    time.sleep(1)
    facts["bgalive"] = [(q, b.read("/proc/%d/cmdline" % q).replace("\0"," ")[:80], b.is_alive(q)) for q in tree]
    return facts

@pytest.mark.parametrize("kind", ["", "setsid "])
def test_hand(play, root, kind):
    add_config(root, "train", "named", v.NAMED)
    f = play(play_x, root, kind=kind)
    print(f["stopdone"]); print(f["bgalive"])
    assert 0
