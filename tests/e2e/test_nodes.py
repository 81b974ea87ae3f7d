"""`nodes` on a head, and the line that it prints on another node: it launches there only where the node is fit to join."""
import json
import os
import subprocess

from . import box as b
from . import two_nodes

CONFIG = "scripts/train/configs/two_nodes.env"
# What nvidia-smi says, from the environment of the node.
NVIDIA = """#!/bin/sh
case "$*" in
*driver_version*) echo "$DRIVER" ;;
*compute-apps*) ;;
*) for one in $GPUS; do echo "$one, GPU-$one, 0:$one, H100, 4, 81559, 0, 0"; done ;;
esac
"""
# Listens where the head's runner would, and answers as its dashboard does; says so once it does.
HEAD = """
import http.server, socket, sys
ray = socket.socket()
ray.bind(("10.77.0.1", 6379))
ray.listen(9)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_HEAD(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *args):
        pass
web = http.server.HTTPServer(("10.77.0.1", 8265), Handler)
print("up", flush=True)
web.serve_forever()
"""
GIT = ("git", "-c", "user.name=x", "-c", "user.email=x@x", "-c", "init.defaultBranch=main", "-c", "commit.gpgsign=false")


def make_env(box):
    folder = os.path.join(box.folder, "fakes")
    os.mkdir(folder)
    with open(os.path.join(folder, "nvidia-smi"), "w") as file:
        file.write(NVIDIA)
    os.chmod(os.path.join(folder, "nvidia-smi"), 0o755)
    return b.make_env(box, b.SHORT, {"PATH": folder + ":" + box.env["PATH"], "DRIVER": "535.1", "GPUS": "0 1 2 3 4 5 6 7"})


def read_launch_log(box):
    """What the worker's runner wrote, once it is done."""
    folder = os.path.join(box.root, "logs")
    names = [name for name in os.listdir(folder) if name.endswith("_n2.log")]
    return b.read(os.path.join(folder, names[0])) if names else ""


def play_two_nodes(box):
    env = make_env(box)
    for words in (("init", "-q"), ("add", "scripts"), ("commit", "-q", "-m", "x")):
        assert b.run(GIT + words, env, box.root).code == 0
    program = [box.python, box.pyz]
    facts = {}

    def check(pair, more=None):
        done = pair.run("n2", ["sh", "-c", facts["line"].partition(" && {")[0] + " --json"], dict(env, **(more or {})), "/")
        return dict(json.loads(done.out), exit=done.code)
    with two_nodes.start() as pair:
        words = ["nodes", CONFIG, "--check", "--hosts", "n[1-2]"]
        facts["told"] = pair.run("n1", program + words, dict(env, NCCL_SOCKET_IFNAME="^eth", GLOO_SOCKET_IFNAME="eth0"), box.root)
        done = pair.run("n1", program + words + ["--json"], env, box.root)
        facts["nodes"] = json.loads(done.out)
        facts["line"] = facts["nodes"]["line"]
        facts["mode"] = os.stat(facts["nodes"]["check"]["facts"]).st_mode & 0o777
        facts["runs"] = b.list_runs(box)
        facts["digest"] = json.loads(pair.run("n1", program + ["check", CONFIG, "--json"], env, box.root).out)["digest"]
        # The head does not listen yet: the node is fit all the same, and its runner waits.
        facts["joined"] = pair.run("n2", ["sh", "-c", facts["line"] + "\nwait"], env, "/")
        facts["log"] = b.wait_for(lambda: read_launch_log(box), "the worker's launch log")
        head = pair.spawn("n1", [box.python, "-c", HEAD], env, stdout=subprocess.PIPE)
        assert head.stdout.readline() == b"up\n"
        facts["same"] = check(pair)
        os.makedirs(os.path.join(box.folder, "more", "zz-odd-9.9.dist-info"))
        b.add_to_file(os.path.join(box.root, CONFIG), "# later\n")
        other = {"DRIVER": "550.2", "GPUS": "0 1 2 3 4 5 6", "PYTHONPATH": os.path.join(box.folder, "more")}
        assert pair.run("n2", ["ip", "route", "add", "unreachable", "10.77.0.1"], dict(env, PATH=two_nodes.PATH)).code == 0
        facts["other"] = check(pair, other)
        line = facts["line"].replace("launch_", "launch_never_")
        facts["refused"] = pair.run("n2", ["sh", "-c", line + "\ncode=$?; wait; exit $code"], dict(env, **other), "/")
        facts["never"] = [name for name in os.listdir(os.path.join(box.root, "logs")) if "never" in name]
        facts["nothing"] = pair.run("n2", program + ["check", "--node-of", "00000000", CONFIG, "--json"], env, box.root)
    return facts


def test_a_node_joins_only_where_it_is_as_the_head(play, root):
    facts = play(play_two_nodes, root)
    code, text, _ = facts["told"]
    shape = facts["nodes"]
    assert code == 0 and "  nodes n2:\n" in text and "logs/rlrun/nodes/%s.json" % facts["digest"] in text
    assert "NCCL_SOCKET_IFNAME=^eth means lo" in text and "set NCCL_SOCKET_IFNAME=eth0" in text and "GLOO" not in text
    assert (shape["head"], shape["hosts"], shape["doubts"], shape["others"]) == ("10.77.0.1", ["n2"], [], 1)
    assert shape["check"]["digest"] == facts["digest"] and facts["mode"] == 0o600 and facts["runs"] == []
    assert facts["line"] in text or facts["line"].partition(" && {")[0] in text
    code, text, errors = facts["joined"]
    assert code == 0 and "SAFE TO RUN: \u2713 YES" in text, text + errors
    assert "node:unreachable  the head can be reached, and does not listen at 10.77.0.1:6379 yet" in text
    assert "[WORKER]" in facts["log"]

    same = facts["same"]
    details = {check["name"]: check["detail"] for check in same["checks"]}
    assert same["exit"] == 0 and not [name for name in same["warnings"] if name.startswith("node:")], same["warnings"]
    assert details["node:same"].startswith("as on the head n1: commit ") and all(word in details["node:same"] for word in (
        "config and 5 files", "Python 3.", "packages", "driver 535.1", "8 GPUs (8 H100)", "clock within", "dashboard"))
    assert details["node:reachable"] == "the head listens at 10.77.0.1:6379"
    assert (same["node_of"]["host"], same["node_of"]["head"], same["node_of"]["port"]) == ("n1", "10.77.0.1", 6379)
    assert same["plan"]["ports"] and "host:worker" in same["warnings"]  # the ordinary check, of a node that is not the head

    other = facts["other"]
    details = {check["name"]: check["detail"] for check in other["checks"]}
    names = ["node:commit", "node:config", "node:packages", "node:driver", "node:gpus", "node:unreachable"]
    assert other["exit"] == 1 and [name for name in other["blocking"] if name.startswith("node:")] == names, other["blocking"]
    assert "modified here alone" in details["node:commit"] and CONFIG + " (other bytes)" in details["node:config"]
    assert "zz-odd 9.9 here, absent there" in details["node:packages"] and "550.2 here, 535.1 on" in details["node:driver"]
    assert "7 GPUs (7 H100) here, 8 GPUs (8 H100) on the head n1" in details["node:gpus"]
    assert facts["refused"][0] == 1 and facts["never"] == [] and "\u2717 NO" in facts["refused"][1]
    code, text, _ = facts["nothing"]
    assert code == 5 and json.loads(text)["reason"] == "node-facts" and "nodes CONFIG --check" in json.loads(text)["hint"]
