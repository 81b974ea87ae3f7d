"""After a prime-rl launch: what a killed launcher leaves can be ended (S5); the lines that keep what decided a plan."""
import json
import os
import re
import signal

import pytest
from checkouts import add_prime_config, build_prime_checkout
from e2e.scene import Scene
from e2e.test_prime_launch import HELD, QUICK, list_run

from . import box as b


@pytest.fixture
def root(tmp_path):
    found = build_prime_checkout(tmp_path / "prime")
    add_prime_config(found, "held", HELD)
    return found


def play_left(box):
    env = dict(QUICK, CUDA_VISIBLE_DEVICES="6,7")
    found = b.launch_words(box, "held", env=env)
    pids = found["facts"]["pids"]
    told = b.rlrun(box, "runs", os.path.basename(found["record"])).out
    line = b.read(os.path.join(found["record"], "command.txt"))
    os.kill(pids["launcher"][0], signal.SIGKILL)
    b.wait_for(lambda: "killed" in b.list_runs(box)[0]["state"], "the launcher's end")
    row = b.list_runs(box)[0]
    shown = b.rlrun(box, "runs", row["id"]).out
    done = b.shell(box, re.search(r"^  stop: +(.*)$", shown, re.M).group(1), cwd="/")
    b.wait_for(lambda: not list_run(found["runner"]["pid"]), "the end of what was left")
    return {"told": told, "line": line, "row": row, "shown": shown, "code": done.code, "state": b.list_runs(box)[0]["state"],
            "pids": pids, "stop": found["stop"]}


def test_S5_what_a_killed_launcher_leaves_is_told_and_can_be_ended(play, root):
    facts = play(play_left, root)
    assert facts["stop"] in facts["told"] and "left behind" not in facts["told"]
    left = facts["row"]["left"]
    assert {pid for label, pids in facts["pids"].items() for pid in pids if label != "launcher"} <= set(left)
    assert facts["row"]["state"] == "killed by SIGKILL, %d of it live" % len(left)
    assert "left behind:" in facts["shown"] and facts["code"] == 0 and facts["state"] == "killed by SIGKILL"
    assert " CUDA_VISIBLE_DEVICES=6,7 " in facts["line"] and "--run.name" not in facts["line"]


def test_lines_to_paste_keep_the_variables_that_decide_the_plan(prime: Scene):
    found = prime.run(["check", "reverse-text/rl", "--", "--max-steps", "7"],
                      env={"CUDA_VISIBLE_DEVICES": "4,5"})
    launch = re.search(r"^Launch: (.*)$", found.out, re.M)
    again = re.search(r"^Re-check: (.*)$", found.out, re.M)
    line = (launch or again).group(1)
    assert line.startswith("CUDA_VISIBLE_DEVICES=4,5 ") and line.endswith(" -- --max-steps 7")


def test_a_plan_that_is_unknown_has_no_number_of_nodes(prime: Scene):
    found = prime.run(["nodes", "missing-env", "--", "--max-steps", "7"])
    assert found.exit == 1 and "the plan is unknown: not run: wordle" in found.err and " -- --max-steps 7" in found.err
    check = prime.run(["check", "missing-env", "--json"])
    assert json.loads(check.out)["plan"]["nodes"] is None
