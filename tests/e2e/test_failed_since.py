"""`runs --failed-since`: what failed lately and why, nothing at all where nothing did; and a run that is another node's: what
answers from the files says where its processes are."""
import json
import os
import re
import shutil
import subprocess
import time

import pytest
from checkouts import add_config

from . import box as b
from . import vitals as v

SECRET = "q7Xp2mZr8sLw"


def change(folder, name, **given):
    """One of a record's files, with other values."""
    path = os.path.join(folder, name)
    value = dict(json.loads(b.read(path) or "{}"), **given)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file)


def copy_record(record, name, drop=()):
    folder = os.path.join(os.path.dirname(record), name)
    shutil.copytree(record, folder)
    for one in drop:
        os.unlink(os.path.join(folder, one))
    return folder


def play_failed(box):
    facts = {"none": b.rlrun(box, "runs", "--failed-since", "24h")}
    made = {}
    for config, env in (("demo", {}), ("fails_late", {"HF_TOKEN": SECRET}), ("exit_zero_error", {})):
        made[config] = b.launch(box, config, env=dict(b.SHORT, **env))["record"]
        b.wait_for(lambda record=made[config]: b.read(os.path.join(record, "exit.json")), "the end")
        if config == "demo":
            facts["well"] = [b.rlrun(box, "runs", "--failed-since", "24h", *words) for words in ([], ["--json"])]
        b.wait_for_the_next_second()
    b.wait_for(lambda: not b.find_processes("rlrun: keeper"), "the keepers' end")
    facts["two"] = b.rlrun(box, "runs", "--failed-since", "24h")
    moved = box._replace(pyz=os.path.join(box.folder, "a copy", "rlrun.pyz"))  # not executable
    os.mkdir(os.path.dirname(moved.pyz))
    shutil.copyfile(box.pyz, moved.pyz)
    line = re.search("next: +(.*)", b.rlrun(moved, "runs", "--failed-since", "24h").out).group(1)
    facts["pasted"] = b.run(["/bin/sh", "-c", line], {"PATH": "/nowhere"}, "/")
    facts["refused"] = b.rlrun(box, "run", "demo", "--confirm", "00000000", "--board", "leave", "--quiet-unless-failed")
    # Copies: on another host; of a machine that went down; long ago; never started; about to start.
    now = time.time()
    far = copy_record(made["fails_late"], "20990101-000001-train-far")
    change(far, "record.json", id=os.path.basename(far), host="n7", boot_id="another", user="wei")
    b.add_to_file(os.path.join(box.folder, "cut.log"), "Total training steps: 90\n")
    for name, logs in (("20990101-000002-train-lost", dict.fromkeys(("train_log", "launch_log"), box.folder + "/cut.log")),
                       ("20990101-000006-train-done", {})):
        lost = copy_record(made["demo"], name, ["exit.json"])
        change(lost, "record.json", id=name, time_seconds=now - 60, **logs)
    old = copy_record(made["fails_late"], "20200101-000003-train-old")
    change(old, "exit.json", time_seconds=now - 90000, duration_seconds=5000)
    os.unlink(os.path.join(old, "record.json"))
    os.mkfifo(os.path.join(old, "record.json"))  # who opened it would be told so
    for name, age in (("20990101-000004-train-never", 1000), ("20990101-000005-train-soon", 2)):
        never = copy_record(made["demo"], name, ["exit.json", "keeper.json"])
        change(never, "record.json", id=name, runner=None, time_seconds=now - age)
    facts["more"] = b.rlrun(box, "runs", "--failed-since", "1d", "--json")
    facts["text"] = b.rlrun(box, "runs", "--failed-since", "1d")
    facts["short"] = b.rlrun(box, "runs", "--failed-since", "0.001s", "--json")
    facts["bad"] = [b.rlrun(box, "runs", *words) for words in (
        ["--failed-since", "soon"], ["--failed-since", "0"], ["--failed-since", "99999999h"],
        ["demo", "--failed-since", "1d"], ["--failed-since", "1d", "--html", "x"])]
    records = os.path.join(box.root, "logs", "rlrun")
    os.rename(records, records + "-")
    os.symlink("rlrun", records)  # a loop: there is something, and it can't be looked at
    facts["hidden"] = [b.rlrun(box, "runs", *words) for words in ([], ["--failed-since", "1d", "--json"])]
    facts["made"] = made
    return facts


def test_what_failed_is_listed_with_its_first_error_and_nothing_else(play, root):
    facts = play(play_failed, root)
    assert facts["none"] == facts["well"][0] == [0, "", ""]
    assert json.loads(facts["well"][1][1])["runs"] == [] and facts["well"][1][2] == ""
    code, out, err = facts["two"]
    blocks = out.split("\n\n")
    assert (code, err, len(blocks)) == (0, "", 2), out
    for block, config in ((blocks[1], "fails_late"), (blocks[0], "exit_zero_error")):
        record = facts["made"][config]
        head = block.split("\n")[0]
        assert head.startswith("train \u00b7 %s.env \u00b7 " % config) and " on " in head and " \u00b7 ended 20" in head, head
        assert "record: " in block and record in block and "first error: " in block, block
        assert re.search(r"next: +.*quick-\w+\.pyz status %s --root %s$" % (os.path.basename(record), root), block, re.M), block
    assert facts["pasted"][0] == 4 and "exit_zero_error" in facts["pasted"][1], facts["pasted"]
    assert "toy failure" in blocks[1] and "exit status is 0" in blocks[0], out

    shape = json.loads(facts["more"][1])
    assert (shape["schema"], shape["command"], shape["failed_since_seconds"], shape["root"]) == (1, "runs", 86400.0, str(root))
    found = {one["id"].rpartition("-")[2]: one for one in shape["runs"]}
    assert set(found) == {"fails_late", "exit_zero_error", "far", "lost", "never"}, sorted(found)
    assert (found["far"]["host"], found["far"]["state"], found["far"]["user"]) == ("n7", "ended 1", "wei")
    assert found["far"]["first_error"]["text"] == found["fails_late"]["first_error"]["text"]
    assert (found["lost"]["state"], found["lost"]["ended_seconds"]) == ("lost", None)
    assert "its log just stops" in found["lost"]["how"]
    assert found["never"]["how"].startswith("it did not start")
    assert "wei on n7" in facts["text"][1] and "its end was not recorded" in facts["text"][1]
    assert json.loads(facts["short"][1])["runs"] == json.loads(facts["short"][1])["refused"] == []
    one, = shape["refused"]
    assert (facts["refused"][0], one["exit"], one["log"]) == (3, 3, str(root) + "/logs/rlrun/unattended.log")
    assert one["error"].startswith("the plan is ") and one["error"].split(";")[0] in facts["refused"][2]
    last = facts["text"][1].split("\n\n")[-1]
    assert last.startswith("not launched \u00b7 exit 3 \u00b7 by ") and one["error"] in last and one["log"] in last
    assert "rlrun run demo --confirm 00000000 " in last
    for code, out, err in facts["hidden"]:
        assert code == 5 and "can't be looked at: %s/logs/rlrun: " % root in err and "it is " in err and (
            not out or json.loads(out)["reason"] == "records"), (out, err)
    assert "nothing can have failed within '0'" in facts["bad"][1][2] and "too long" in facts["bad"][2][2]
    for code, out, err in facts["bad"]:
        assert (code, out) == (2, "") and "--failed-since" in err, err
    assert SECRET not in json.dumps(facts)


# --- another node: the same files, another name, boot and table of processes

@pytest.fixture
def named(root):
    add_config(root, "train", "named", v.NAMED)
    return root


def look_from(box, host, lines):
    """What these command lines of rlrun say on a node of that name."""
    script = 'hostname "$0" && echo 11111111-2222-3333-4444-555555555555 >"$1" && ' \
             'mount --bind "$1" /proc/sys/kernel/random/boot_id || exit 99\nshift\n' \
             'for words in "$@"; do "%s" "%s" $words >"$OUT" 2>"$OUT.err" </dev/null; echo "$?" >>"$OUT"; cat "$OUT"; ' \
             'echo "=== err"; cat "$OUT.err"; echo "=== next"; done' % (box.python, box.pyz)
    done = subprocess.run(
        ["unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "bash", "-c", script, host,
         os.path.join(box.folder, "boot_id")] + lines, cwd=box.root, env=dict(box.env, OUT=os.path.join(box.folder, "said")),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    found = []
    for text in done.stdout.decode().split("=== next\n")[:-1]:
        out, _, err = text.partition("=== err\n")
        said, _, code = out.rstrip("\n").rpartition("\n")
        found.append([int(code), said, err])
    return dict(zip(lines, found)) if len(found) == len(lines) else {"failed": done.stdout.decode()}


LINES = ["status", "status --json", "gate --timeout 20s", "logs -n 3", "runs", "runs first", "runs --failed-since 1d"]


def play_nodes(box):
    found = b.launch(box, "named", env=dict(v.STEADY, RUN_NAME="first"))
    v.await_step(found["train_log"], 1)
    facts = {"here": os.uname().nodename, "group": found["runner"]["pgid"], "run": os.path.basename(found["record"])}
    facts["live"] = look_from(box, "other-node", [one.replace("first", facts["run"]) for one in LINES])
    v.kill_tree(found["runner"]["pid"])
    b.wait_for(lambda: not b.find_processes("rlrun: keeper"), "the keeper's end")
    facts["over"] = look_from(box, "other-node", ["status", "watch", "logs -f", "gate --step 90000", "runs --failed-since 1d"])
    return facts


def test_from_another_node_all_answer_and_say_where_it_is(play, named):
    facts = play(play_nodes, named)
    here, run, live = facts["here"], facts["run"], facts["live"]
    stop = "on %s: kill -INT -- -%d" % (here, facts["group"])
    note = "launched on %s: its processes can't be seen from here, only its files" % here
    assert "failed" not in live, live
    code, out, err = live["status"]
    assert code == 0 and note in out and stop in out and "lost" not in out, out
    shape = json.loads(live["status --json"][1])
    assert (shape["run"]["state"], shape["run"]["host"], shape["run"]["stop"]) == ("elsewhere", here, stop)
    code, out, err = live["gate --timeout 20s"]
    assert code == 0 and "the gates are passed" in out and note in err, (out, err)
    code, out, err = live["logs -n 3"]
    assert code == 0 and "step:" in out and note in err, (out, err)
    assert "elsewhere (%s)" % here in live["runs"][1] and "lost" not in live["runs"][1]
    one = live["runs " + run]
    assert one[0] == 0 and "elsewhere (%s)" % here in one[1] and stop in one[1], one
    assert live["runs --failed-since 1d"] == [0, "", ""]
    over = facts["over"]
    assert "failed" not in over, over
    for words in ("status", "watch", "gate --step 90000"):
        assert over[words][0] == 4 and "SIGKILL" in over[words][1], (words, over[words])
    assert over["logs -f"][0] == 0 and "--- the run is over (killed by SIGKILL)" in over["logs -f"][2], over["logs -f"]
    assert "on %s" % here in over["runs --failed-since 1d"][1], over
