"""A run on two nodes as one job of a real Slurm, each node a machine of its own (e2e/two_nodes.py): from the check to whatever
ends it. One cluster for all of it, since it takes a while to come up; the jobs follow each other, since each takes both nodes.
"""
import glob
import json
import os
import re
import signal
import subprocess

import pytest

from . import box as b
from . import slurm, two_nodes

CONFIG = """\
PROJECT_NAME=toy
EXP_NAME=two
TRAINING_MODE=async
NNODES=2
N_NODES_TRAIN=1
N_NODES_ROLLOUT=1
TRAINER_SAVE_FREQ=1
TEMPLATE_MODULES=(runtime/process.env backend/k8s.env harbor/common.env verl/common.env)
if [ "$DRY_RUN" != 1 ]; then
    [ "${FAIL_NODE:-}" != "$SLURM_NODEID" ] || { echo "no cluster here" >&2; exit "$FAIL_CODE"; }
    trap 'echo saved >"$REPO_ROOT/saved-$SLURM_JOB_ID-$SLURM_NODEID"; exit 130' INT
fi
"""
QUICK = {"TOY_BRINGUP_SEC": "0.1", "TOY_STEPS": "2", "TOY_STEP_SEC": "0.05"}
LONG = {"TOY_BRINGUP_SEC": "0.1", "TOY_STEPS": "100000", "TOY_STEP_SEC": "0.2"}
ENDS = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
MISSING = slurm.find_missing() + two_nodes.find_missing()

pytestmark = pytest.mark.skipif(bool(MISSING), reason="no Slurm or no iproute2 here: %s is missing" % ", ".join(MISSING))


class Jobs:
    """The jobs of this scenario: each is handed in as an operator would, by its digest."""

    def __init__(self, box, cluster, pair):
        self.box, self.cluster, self.pair = box, cluster, pair
        self.digests = {}

    def hand_in(self, *words, env, more=None):
        """The record's folder and the job's id. `more`: what is no part of the plan."""
        words = ("--slurm",) + words
        env = dict(self.cluster.env, **env)
        key = (words, tuple(sorted(env.items())))
        if key not in self.digests:
            self.digests[key] = b.check(self.box, "two", *words, env=env)["digest"]
        done = b.rlrun(self.box, "run", "two", "--json", "--again", "--old-log", "lose", "--confirm", self.digests[key], *words,
                       env=dict(env, **(more or {})))
        told = json.loads(done.out or "{}")
        assert told.get("launched") and done.code in (0, 4), done.err + done.out  # 4: it has failed by the first look
        return told["record"], told["facts"]["jobs"][0]

    def nodes(self, record):
        found = [json.loads(b.read(path)) for path in sorted(glob.glob(os.path.join(record, "nodes", "[0-9]*.json")))]
        return {one["host"]: one for one in found}

    def wait_for_phase(self, record, node, phase, restart=0):
        def look():
            one = self.nodes(record).get(node, {})
            return one if (one.get("phase"), one.get("restart")) == (phase, restart) else None
        return b.wait_for(look, "%s %s; %s" % (node, phase, self.log(record)))

    def wait_for_step(self, record):
        """Waits until the head trains and the worker has joined."""
        self.wait_for_phase(record, "n2", "joined")
        log = self.wait_for_phase(record, "n1", "running")["log"]
        b.wait_for(lambda: "step:1 " in b.read(log), "the first step")

    def log(self, record):
        return "".join(b.read(path) for path in glob.glob(os.path.join(record, "job_*.log")))

    def finish(self, record, job):
        """What is to be known of a job that has ended; nothing of it lives on either node then."""
        b.wait_for(lambda: " ends with " in self.log(record) or " CANCELLED AT " in self.log(record), "the end of job " + job)
        state = slurm.wait_for_state(self.cluster, job, *ENDS)
        shown = slurm.ask(self.cluster, "scontrol", "show", "job", "-o", job)
        b.wait_for(lambda: not find_left(), "both nodes being free")
        return {"state": state, "code": re.search(r" ExitCode=(\S+)", shown).group(1), "log": self.log(record),
                "nodes": self.nodes(record)}


def find_left():
    """What lives of a run, on whichever node: the box sees both."""
    return [pid for word in ("train.sh", "fully_async", "rlrun: node") for pid in b.find_processes(word)]


def life(box):
    with open(os.path.join(box.root, "scripts", "train", "configs", "two.env"), "w") as out:
        out.write(CONFIG)
    with slurm.start_on_two() as (cluster, pair):
        jobs = Jobs(box, cluster, pair)
        return {one.__name__: one(jobs) for one in (
            let_it_end, fail_a_worker, fail_the_head, block_it, stop_it, near_its_limit, requeue_it, cancel_it)}


def let_it_end(jobs):
    record, job = jobs.hand_in(env=QUICK)
    return jobs.finish(record, job)


def fail_a_worker(jobs):
    record, job = jobs.hand_in(env=QUICK, more={"FAIL_NODE": "1", "FAIL_CODE": "7"})
    return jobs.finish(record, job)


def fail_the_head(jobs):
    record, job = jobs.hand_in(env=QUICK, more={"FAIL_NODE": "0", "FAIL_CODE": "3"})
    return jobs.finish(record, job)


def block_it(jobs):
    """The config is edited while the job waits, and another run lives on n2 by then."""
    record, job = jobs.hand_in("--sbatch=--hold", env=QUICK)
    config = os.path.join(jobs.box.root, "scripts", "train", "configs", "two.env")
    b.add_to_file(config, "# a word more\n")
    other = jobs.pair.spawn("n2", ["bash", "scripts/train/train.sh", "scripts/train/configs/pinned.env"],
                            dict(jobs.box.env, **LONG), jobs.box.root, start_new_session=True,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    b.wait_for(lambda: b.find_processes("main_ppo"), "the other run")
    slurm.ask(jobs.cluster, "scontrol", "release", job)
    b.wait_for(lambda: " ends with " in jobs.log(record), "the end of job " + job)
    is_alive = other.poll() is None
    jobs.pair.run("n2", ["pkill", "-f", "train.sh|main_ppo"])
    other.wait()
    with open(config, "w") as out:
        out.write(CONFIG)
    told = jobs.finish(record, job)
    done = b.rlrun(jobs.box, "status", os.path.basename(record), env=jobs.cluster.env)
    return dict(told, status=done.out, is_alive=is_alive)


def stop_it(jobs):
    record, job = jobs.hand_in(env=LONG)
    jobs.wait_for_step(record)
    agents, named = len(b.find_processes("rlrun: node")), b.find_processes(record)
    stop = json.loads(b.rlrun(jobs.box, "status", os.path.basename(record), "--json", env=jobs.cluster.env).out)["run"]["stop"]
    done = b.shell(jobs.box, stop, env=jobs.cluster.env)
    assert done.code == 0, done.err
    return dict(jobs.finish(record, job), stop=stop, job=job, agents=agents, named=named,
                saved=b.read("%s/saved-%s-0" % (jobs.box.root, job)))


def near_its_limit(jobs):
    record, job = jobs.hand_in("--sbatch=--time=1", env=LONG)
    return dict(jobs.finish(record, job), saved=b.read("%s/saved-%s-0" % (jobs.box.root, job)))


def requeue_it(jobs):
    """Slurm starts it again; then its head's runner is killed."""
    record, job = jobs.hand_in("--requeue", env=LONG)
    jobs.wait_for_step(record)
    slurm.ask(jobs.cluster, "scontrol", "requeue", job)
    head = jobs.wait_for_phase(record, "n1", "running", 1)
    jobs.wait_for_phase(record, "n2", "joined", 1)
    jobs.pair.signal("n1", head["runner"]["pid"], signal.SIGKILL)
    kept = glob.glob(os.path.join(record, "earlier-*"))
    return dict(jobs.finish(record, job), kept=[(os.path.basename(path), "step:1 " in b.read(path)) for path in kept])


def cancel_it(jobs):
    record, job = jobs.hand_in(env=LONG)
    jobs.wait_for_phase(record, "n2", "joined")
    slurm.ask(jobs.cluster, "scancel", job)
    return jobs.finish(record, job)


def test_one_job_for_two_nodes(play, root):
    told = play(life, root, timeout=300)
    for name, one in told.items():
        assert "Traceback" not in one["log"], name
    one = told["let_it_end"]
    assert (one["state"], one["code"]) == ("COMPLETED", "0:0")
    assert {node: (state["phase"], state["role"], state["address"]) for node, state in one["nodes"].items()} == {
        "n1": ("ended", "head", "10.77.0.1"), "n2": ("joined", "worker", "10.77.0.2")}
    for words in ("on n[1-2], head n1 10.77.0.1", "n1: fit for this run", "n2: fit for this run", "n1: the head's runner is pid ",
                  "n2: joined", "n1: the head's runner ended 0", " ends with 0\n"):
        assert words in one["log"]
    assert "step:2 " in b.read(one["nodes"]["n1"]["log"]) and "[WORKER] joined" in b.read(one["nodes"]["n2"]["log"])
    one = told["fail_a_worker"]
    assert (one["state"], one["code"]) == ("FAILED", "7:0"), one["log"]
    assert "n2:   | no cluster here" in one["log"]
    assert one["nodes"]["n2"]["exit"] == {"status": 7, "signal": None, "told": ""}
    one = told["fail_the_head"]
    assert (one["state"], one["code"]) == ("FAILED", "3:0") and "n1: the head's runner ended 3" in one["log"]
    check_blocked(told["block_it"])
    one = told["stop_it"]
    check_stopped(one, "told to stop")
    assert one["stop"] == "scancel --batch --signal=INT " + one["job"]
    assert one["agents"] == 2 and one["named"] == []  # the worker stays; a sweep by words finds no path
    check_stopped(told["near_its_limit"], "the time limit was near")
    assert "the time limit is near: ending" in told["near_its_limit"]["log"]
    one = told["requeue_it"]
    assert (one["state"], one["code"]) == ("FAILED", "137:0") and one["kept"] == [["earlier-1-two.log", True]]
    assert {state["restart"] for state in one["nodes"].values()} == {1}
    assert one["nodes"]["n1"]["exit"]["signal"] == "SIGKILL" and one["log"].count("n2: joined") == 2
    one = told["cancel_it"]
    assert one["state"] == "CANCELLED" and one["nodes"]["n1"]["exit"]["told"] == "the step was ended"


def check_blocked(one):
    assert (one["state"], one["code"]) == ("FAILED", "1:0") and one["is_alive"]
    assert {node: [check["name"] for check in state["blocking"]] for node, state in one["nodes"].items()} == {
        "n1": ["plan:moved"], "n2": ["job:running", "plan:moved"]}
    assert "runner is pid" not in one["log"] and "no runner was started" in one["log"]
    assert re.search(r"hand it in again: \S+ check \S+/two\.env --root \S+ --slurm --sbatch=--hold\n", one["log"])
    assert "n2 blocked (job:running" in one["status"] and "two.env" in one["status"]


def check_stopped(one, words):
    assert (one["state"], one["code"], one["saved"]) == ("FAILED", "130:0", "saved\n"), one["log"]
    assert one["nodes"]["n1"]["exit"] == {"status": 130, "signal": None, "told": words}
    assert one["nodes"]["n2"]["phase"] == "joined"
