"""What status, gate, watch and logs show of a log's words: no secret, of the environment or of the config, not in a stage and
not after the end; no terminal escape, neither of a log nor of a name."""
import glob
import json
import os
import signal
import subprocess

from checkouts import add_config

from . import box as b
from . import vitals as v

WORD = "correct-horse-99"  # only the config spells it out
LOGIN = "hunter2hunter2"
CONFIG = v.NAMED + "export DB_PASSWORD=%s\n" % WORD
STAGE = "[WORKER] waiting for head https://bob:%s@host/%s\x1b]0;pwned\x07\x1b[31mRED\n" % (LOGIN, WORD)
TAIL = ("(TaskRunner pid=3) Traceback (most recent call last):\n(TaskRunner pid=3)   File \"x.py\", line 1, in x\n"
        "(TaskRunner pid=3) ValueError: cannot log in as bob with %s at https://bob:%s@host/\n" % (WORD, LOGIN))


def look_at_all(box, page, *gate):
    """All that is shown of the run, each way."""
    shown = {"text": b.rlrun(box, "status"), "json": b.rlrun(box, "status", "--json", "--html", page),
             "logs": b.rlrun(box, "logs", "-n", "1000"), "logs json": b.rlrun(box, "logs", "--json"),
             "gate": b.rlrun(box, "gate", *gate), "gate json": b.rlrun(box, "gate", "--json", *gate)}
    return dict({name: list(done) for name, done in shown.items()}, page=[0, b.read(page), ""])


def play_secrets(box):
    env = dict(v.STEADY, TOY_BRINGUP_SEC="1000")
    words = ["run", "named", "--confirm", b.check(box, "named", env=env)["digest"], "--board", "leave"]
    launch = subprocess.Popen([box.python, box.pyz] + words, env=b.make_env(box, env), cwd=box.root, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    log = b.wait_for(lambda: [one for one in glob.glob(box.root + "/logs/launch_*.log") if "starting ray head" in b.read(one)],
                     "the stage")[0]
    b.add_to_file(log, STAGE)
    facts = {"stage": look_at_all(box, os.path.join(box.folder, "stage.html"), "--timeout", "1s")}
    watch = subprocess.Popen([box.python, box.pyz, "watch"], env=box.env, cwd=box.root, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    first = os.read(watch.stdout.fileno(), 65536)
    watch.send_signal(signal.SIGINT)
    facts["stage"]["watch"] = [0, (first + watch.communicate(timeout=b.LIMIT_SECONDS)[0]).decode(), ""]
    v.kill_all(b.find_processes("scripts/train/train.sh"))
    launch.wait(b.LIMIT_SECONDS)
    b.wait_for(lambda: not b.find_processes("rlrun: keeper"), "the keeper's end")
    b.add_to_file(log, TAIL)
    facts["over"] = look_at_all(box, os.path.join(box.folder, "over.html"))
    # a log whose own name would write to the terminal
    log = os.path.join(box.folder, "ev\x1b[31mil\x07.log")
    b.add_to_file(log, STAGE)
    facts["name"] = {"text": list(b.rlrun(box, "status", log)), "gate": list(b.rlrun(box, "gate", log, "--timeout", "1s"))}
    return facts


def test_no_secret_and_no_escape_in_any_form(play, root):
    add_config(root, "train", "named", CONFIG)
    facts = play(play_secrets, root)
    for when, shown in facts.items():
        for name, (_, out, err) in shown.items():
            told = out + err
            assert LOGIN not in told and "\x1b" not in told and "\x07" not in told, (when, name, told)
            assert when == "name" or WORD not in told, (when, name, told)  # there no config belongs to the log
            assert "Traceback" not in err and (name == "page" or out), (when, name, err)
    stage = facts["stage"]
    for name in ("text", "json", "gate", "page", "watch"):  # it is told, and not just left out
        assert "waiting for the head https://" in stage[name][1] + stage[name][2], (name, stage[name])
    assert [stage[name][0] for name in ("text", "json", "gate", "gate json")] == [0, 0, 6, 6]
    assert json.loads(stage["json"][1])["verdict"] == "no step yet" and "next: rlrun status " in stage["gate"][1]
    over = facts["over"]
    assert [over[name][0] for name in ("text", "json", "gate", "gate json")] == [4] * 4
    for name in ("text", "json", "logs", "logs json", "page"):
        assert "cannot log in as bob with " in over[name][1], (name, over[name])
    assert "ev" in facts["name"]["gate"][1] and "il" in facts["name"]["gate"][1]
