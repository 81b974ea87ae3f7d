"""The board's link: only when it is asked for and the log is there, never over anything, verified or said not to be (L23)."""

import json
import os
import signal
import subprocess
import urllib.request

import pytest
from checkouts import add_config

from . import box as b

MODULES = "TEMPLATE_MODULES=(runtime/process.env backend/k8s.env harbor/common.env verl/common.env)\n"
PORT = 8090


def make_served(box, name="served"):
    path = os.path.join(box.folder, name)
    os.makedirs(path)
    return path


def list_shown(port=PORT):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    return [run["name"] for run in json.loads(opener.open("http://127.0.0.1:%d/api/runs" % port, timeout=30).read().decode())]


def wait_for_link(found):
    return b.wait_for(lambda: b.read_link(found["record"]), "link.json")


def stop(found):
    os.killpg(found["runner"]["pgid"], signal.SIGKILL)
    b.wait_for(lambda: not b.is_alive(found["runner"]["keeper"]), "the keeper's end")


# --- visible or not


def play_visible(box):
    logs = os.path.join(box.root, "logs")
    os.makedirs(logs)
    b.start_board(box, "logs")  # a relative path, as people start it
    checked = b.check(box, "demo", env=b.LONG)
    done = b.rlrun(box, "run", "demo", "--confirm", checked["digest"], env=b.LONG)
    row = b.list_runs(box)[0]
    shown = b.wait_for(lambda: row["experiment"] in list_shown() and list_shown(), "the run on the board")
    return {
        "checked": checked["board"],
        "done": done,
        "shown": shown,
        "links": [name for name in os.listdir(logs) if os.path.islink(os.path.join(logs, name))],
        "served": logs,
        "linkless": "link.json" not in os.listdir(row["record"]),
    }


def test_a_run_that_the_board_shows_is_not_asked_about(play, root):
    facts = play(play_visible, root)
    assert (
        facts["checked"]["visible"] is True
        and facts["checked"]["port"] == PORT
        and facts["checked"]["served"] == [facts["served"]]
    )
    assert facts["done"][0] == 0 and "→ this run would be visible" in facts["done"][1]
    assert len(facts["shown"]) == 1 and facts["links"] == [] and facts["linkless"]


def play_linked_later(box):
    served = make_served(box)
    b.start_board(box, served)
    checked = b.check(box, "off_repo_log", env=dict(b.LONG, TOY_BRINGUP_SEC="3"))
    starter = subprocess.Popen(
        [box.python, box.pyz, "run", "off_repo_log", "--confirm", checked["digest"], "--board", "link"],
        cwd=box.root,
        env=b.make_env(box, b.LONG, {"TOY_BRINGUP_SEC": "3"}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    b.wait_for(lambda: b.count_records(box) and b.list_runs(box)[0]["state"] == "running", "the launch")
    starter.kill()
    starter.wait()
    row = b.list_runs(box)[0]
    seen = set()

    def watch():  # at no moment is there a link without its log
        for name in os.listdir(served):
            seen.add(os.path.exists(os.path.join(served, name)))
        return b.read_link(row["record"])

    link = b.wait_for(watch, "link.json")
    shown = list_shown()
    return {
        "checked": checked["board"],
        "link": link,
        "seen": sorted(seen),
        "target": os.readlink(link["path"]),
        "shown": shown,
        "row": b.list_runs(box)[0],
        "text": b.rlrun(box, "runs", row["id"]).out,
        "names": os.listdir(served),
    }


def test_L23_the_keeper_links_once_the_log_exists_also_after_rlrun_has_gone(play, root):
    facts = play(play_linked_later, root)
    link = facts["link"]
    assert facts["checked"]["visible"] is False
    assert (link["state"], link["by"], facts["seen"]) == ("verified", "keeper", [True])
    assert (
        os.path.isabs(facts["target"])
        and facts["target"] == link["target"]
        and facts["target"].startswith(root + "/trials/toy/")
    )
    name = os.path.splitext(facts["names"][0])[0]
    assert facts["shown"] == [name] and link["path"].endswith("/%s.log" % name) and len(facts["names"]) == 1
    assert "board link" in facts["text"] and "verified" in facts["text"]


def play_pending(box):
    served = make_served(box)
    b.start_board(box, served)
    digest = b.check(box, "off_repo_log", env=dict(b.LONG, TOY_BRINGUP_SEC="300"))["digest"]
    path = os.path.join(box.folder, "out")
    with open(path, "wb") as out:
        waiting = subprocess.Popen(
            [box.python, box.pyz, "run", "off_repo_log", "--confirm", digest, "--board", "link", "--json"],
            cwd=box.root,
            env=b.make_env(box, b.LONG, {"TOY_BRINGUP_SEC": "300"}),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.DEVNULL,
        )
    b.wait_for(lambda: b.find_processes("sleep 300"), "the bring-up")
    waiting.send_signal(signal.SIGINT)
    waiting.wait(90)
    found = json.loads(b.read(path))
    names = os.listdir(served)
    os.killpg(found["runner"]["pgid"], signal.SIGINT)
    return {"found": found, "names": names, "link": wait_for_link(found), "after": os.listdir(served)}


def test_before_the_log_exists_the_link_is_pending_and_after_an_early_end_never(play, root):
    facts = play(play_pending, root)
    assert facts["found"]["link"]["state"] == "pending" and facts["names"] == []
    assert facts["link"]["state"] == "never" and "before its log existed" in facts["link"]["reason"] and facts["after"] == []


def play_never(box, config):
    served = make_served(box)
    b.start_board(box, served)
    found = b.launch(box, config, "--board", "link", env=b.SHORT)
    return {"code": found["code"], "link": wait_for_link(found), "names": os.listdir(served), "ended": found["ended"]}


@pytest.mark.parametrize("config", ["worker_exits", "silent_exit"])
def test_a_run_without_a_log_gets_no_link(play, root, config):
    add_config(
        root,
        "train",
        "worker_exits",
        "HARBOR_LOG_DIR=${REPO_ROOT}/trials/logs\n" + open(os.path.join(root, "scripts/train/configs/worker_exits.env")).read(),
    )
    add_config(
        root,
        "train",
        "silent_exit",
        "HARBOR_LOG_DIR=${REPO_ROOT}/trials/logs\n" + open(os.path.join(root, "scripts/train/configs/silent_exit.env")).read(),
    )
    facts = play(play_never, root, config=config)
    # A worker that has joined has done its part.
    assert facts["code"] == (0 if config == "worker_exits" else 4)
    assert facts["link"]["state"] == "never" and facts["names"] == []
    assert facts["ended"]["status"] == (0 if config == "worker_exits" else 2)


# --- never over anything


def play_taken_names(box):
    served = make_served(box)
    other = os.path.join(box.folder, "another.log")
    with open(other, "w") as out:
        out.write("another run's\n")
    with open(os.path.join(served, "taken.log"), "w") as out:
        out.write("a file\n")
    os.symlink(other, os.path.join(served, "taken-2.log"))
    os.symlink("/nowhere/at/all.log", os.path.join(served, "taken-3.log"))
    os.mkdir(os.path.join(served, "taken-4.log"))
    b.start_board(box, served)
    facts = {}
    found = b.launch(box, "taken", "--board", "link", env=b.SHORT)  # over soon, so the board is not asked for long
    facts["link"] = wait_for_link(found)
    b.wait_for(lambda: not b.is_alive(found["runner"]["keeper"]), "the end")
    again = b.launch(box, "taken", "--board", "link", "--again", "--old-log", "lose", env=b.SHORT)
    facts["again"] = wait_for_link(again)
    facts["names"] = {
        name: os.readlink(os.path.join(served, name)) if os.path.islink(os.path.join(served, name)) else "no link"
        for name in sorted(os.listdir(served))
    }
    return dict(facts, file=b.read(os.path.join(served, "taken.log")), other=b.read(other), foreign=other)


def test_L23_the_link_never_takes_the_place_of_anything(play, root):
    add_config(root, "train", "taken", "PROJECT_NAME=toy\nEXP_NAME=taken\nHARBOR_LOG_DIR=${REPO_ROOT}/trials/logs\n" + MODULES)
    facts = play(play_taken_names, root)
    target = os.path.join(root, "trials/logs/taken.log")
    assert facts["names"] == {
        "taken.log": "no link",
        "taken-2.log": facts["foreign"],
        "taken-3.log": "/nowhere/at/all.log",
        "taken-4.log": "no link",
        "taken-5.log": target,
    }
    assert facts["file"] == "a file\n" and facts["other"] == "another run's\n"
    # The toy's board, as older ones, fails whole over the dangling link that somebody else left there.
    assert facts["link"]["state"] == "unverified" and "answered 500" in facts["link"]["reason"]
    assert facts["again"]["path"] == facts["link"]["path"]


def play_odd_names(box, names):
    served = make_served(box)
    b.start_board(box, served)
    links = {}
    for name in names:
        config = add_config(
            box.root,
            "train",
            "odd",
            "PROJECT_NAME=toy\nEXP_NAME='%s'\nHARBOR_LOG_DIR=${REPO_ROOT}/trials/logs\n%s" % (name, MODULES),
        )
        found = b.launch(box, config, "--board", "link", env=b.LONG)
        links[name] = wait_for_link(found) if "record" in found else found
        stop(found)
    return {"links": links, "shown": list_shown()}


def test_a_linked_name_is_one_that_the_board_shows(play, root):
    names = ["launch_me", "über; lauf_vllm"]
    facts = play(play_odd_names, root, names=names)
    for name in names:
        link = facts["links"][name]
        shown = os.path.basename(link["path"])
        assert link["state"] == "verified" and link["target"].endswith("/%s.log" % name), link
        assert not shown.startswith("launch_") and not shown.endswith("_vllm.log") and shown.isascii() and " " not in shown
    assert len(facts["shown"]) == len(names)


# --- a board that does not answer


def play_board_gone(box):
    served = make_served(box)
    board = b.start_board(box, served)
    env = dict(b.SHORT, TOY_BRINGUP_SEC="3")
    digest = b.check(box, "off_repo_log", env=env)["digest"]
    path = os.path.join(box.folder, "out")
    with open(path, "wb") as out:
        starter = subprocess.Popen(
            [box.python, box.pyz, "run", "off_repo_log", "--confirm", digest, "--board", "link"],
            cwd=box.root,
            env=b.make_env(box, env),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    b.wait_for(lambda: b.find_processes("rlrun: keeper"), "the launch")
    os.kill(board, signal.SIGKILL)
    code = starter.wait(90)
    row = b.list_runs(box)[0]
    link = b.wait_for(lambda: b.read_link(row["record"]), "link.json")
    return {"code": code, "link": link, "exists": os.path.exists(link["path"]), "text": b.rlrun(box, "runs", row["id"]).out}


def test_a_board_that_has_gone_leaves_the_link_unverified_with_the_reason(play, root):
    facts = play(play_board_gone, root)
    assert facts["code"] == 4  # the run is over within the minute
    assert (
        facts["link"]["state"] == "unverified"
        and "port %d" % PORT in facts["link"]["reason"]
        and "refused" in facts["link"]["reason"]
    )
    assert facts["exists"] and "unverified" in facts["text"]


def play_link_refused(box):
    facts = {}
    facts["none"] = b.rlrun(box, "run", "off_repo_log", "--confirm", b.check(box, "off_repo_log")["digest"], "--board", "link")
    served = os.path.join(box.folder, "gone")
    os.mkdir(served)
    b.start_board(box, served)
    os.rmdir(served)
    facts["gone"] = b.rlrun(box, "run", "off_repo_log", "--confirm", b.check(box, "off_repo_log")["digest"], "--board", "link")
    return dict(facts, traces=b.count_traces(box))


def test_a_link_that_can_not_be_made_is_refused_before_the_launch(play, root):
    facts = play(play_link_refused, root)
    assert facts["none"][0] == 3 and "no board runs" in facts["none"][2]
    assert facts["gone"][0] == 3 and "can be written" in facts["gone"][2]
    assert facts["traces"] == b.NOTHING
