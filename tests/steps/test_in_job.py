"""The agent of one node of a job: which runner it starts and how, what it hands on, what its exit tells. In each test the pyz
runs as a batch script would call it, on a record that is made here."""
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from rlrun.commands import node as node_command
from rlrun.steps import in_job_check, survey
from rlrun.steps.in_job import Task
from rlrun.values import Check, Fingerprint, Git, Topology, Verdict

from .made import make_plan

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GIT = Git("a" * 40, "main", (), "", "")


class Node:
    """A record, and the environment of one node of its job."""

    def __init__(self, tmp_path, pyz, clean_env):
        self.root, self.pyz, self.env = tmp_path / "root", pyz, clean_env
        self.folder = self.root / "logs" / "rlrun" / "r"
        (self.folder / "nodes").mkdir(parents=True)
        (self.root / "logs" / "launch_x.log").write_text("")
        os.chmod(str(self.root / "logs" / "launch_x.log"), 0o640)

    def start(self, runner, node=0, restart=0, part="run", env=None, **more):
        record = dict(schema=1, state="launched", root=str(self.root), stack="lego", kind="train", time="20260802-131455",
                      parts={}, launch_log=str(self.root / "logs" / "launch_x.log"), train_log="", config="x.env",
                      batch={"runner_argv": ["sh", "-c", runner], "stop_signal": "INT", "drop_env": ["DRY_RUN"]})
        (self.folder / "record.json").write_text(json.dumps(dict(record, **more)))
        full = dict(self.env, RLRUN_RECORD=str(self.folder), RLRUN_PYZ=self.pyz, SLURM_NODEID=str(node), SLURM_JOB_ID="12",
                    SLURM_JOB_NUM_NODES="2", SLURMD_NODENAME="n%d" % (node + 1), DRY_RUN="1")
        full.update(env or {}, **({"SLURM_RESTART_COUNT": str(restart)} if restart else {}))
        return subprocess.Popen([sys.executable, self.pyz, "node", part], env=full, cwd="/", stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def run(self, runner, **given):
        popen = self.start(runner, **given)
        out = popen.communicate(timeout=60)[0].decode()
        return popen.returncode, out

    def read(self, node=0):
        return json.loads((self.folder / "nodes" / ("%04d.json" % node)).read_text())

    def wait_for_phase(self, phase, node=0):
        path = self.folder / "nodes" / ("%04d.json" % node)
        until(lambda: path.exists() and self.read(node)["phase"] == phase)


def until(condition):
    ends = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.02)


@pytest.fixture
def node(tmp_path, pyz, clean_env):
    return Node(tmp_path, pyz, clean_env)


def test_the_heads_runner_is_started_as_a_launch_does_and_its_code_is_the_nodes(node):
    code, out = node.run("echo \"$PYTHONUNBUFFERED ${DRY_RUN-none} ${RLRUN_RECORD-none} $SLURM_JOB_ID $PWD\"; ls /proc/self/fd; "
                         "grep SigIgn /proc/self/status; echo SECRET_TOKEN=hf_abcdefghijklmnopqrstuvwxyz; exit 3")
    told = node.read()
    assert code == 3 and told["phase"] == "ended" and told["exit"] == {"status": 3, "signal": None, "told": ""}
    assert told["role"] == "head" and told["host"] == "n1" and told["job"] == "12"
    assert told["log"] == str(node.root / "logs" / "launch_20260802-131455_n1.log")
    lines = open(told["log"]).read().split("\n")
    assert lines[0] == "1 none none 12 %s" % node.root
    assert lines[1:4] == ["0", "1", "2"] and int(lines[5].split()[-1], 16) & 0x7fffffff == 0  # 32 and 33 are the C library's
    assert os.stat(told["log"]).st_mode & 0o777 == 0o640
    assert "the head's runner ended 3 after" in out and "n1:   | " in out and "hf_abcdef" not in out
    assert (node.folder / "nodes" / "head-12-0.code").read_text() == "3\n"
    assert node.run("kill -KILL $$")[0] == 137 and node.read()["exit"]["signal"] == "SIGKILL"
    assert node.read()["log"].endswith("_n1-2.log")


@pytest.mark.parametrize("number, told", [(signal.SIGINT, "told to stop"), (signal.SIGUSR1, "the time limit was near")])
def test_what_the_batch_script_says_reaches_all_of_the_runners_group_and_its_code_is_told(node, number, told):
    head = node.start("trap 'echo saved; exit 130' INT; sh -c 'trap \"echo too; exit\" INT; touch ready; while :; do sleep 0.1; "
                      "done'")
    until(lambda: (node.root / "ready").exists())
    pid = int((node.folder / "nodes" / "head-12-0.pid").read_text())
    assert pid == head.pid and node.read()["phase"] == "running"
    assert b"node" not in open("/proc/%d/cmdline" % pid, "rb").read().replace(b"rlrun: node", b"")
    os.kill(pid, number)
    out = head.communicate(timeout=60)[0].decode()
    assert head.returncode == 130 and told in out and "  | " not in out
    assert node.read()["exit"] == {"status": 130, "signal": None, "told": told}
    assert sorted(open(node.read()["log"]).read().split()) == ["saved", "too"]


def test_a_worker_stays_until_the_head_has_ended_and_fails_where_its_runner_does(node):
    worker = node.start("exit 0", node=1)
    node.wait_for_phase("joined", 1)
    assert worker.poll() is None
    assert node.run("exit 5")[0] == 5  # the head
    assert worker.wait(60) == 0 and b"joined" in worker.stdout.read()
    code, out = node.run("echo no cluster; exit 7", node=1)
    assert code == 7 and "n2:   | no cluster" in out and node.read(1)["phase"] == "ended"


def test_a_step_that_is_ended_is_no_fault_of_the_node(node):
    worker = node.start("trap 'exit 9' INT; touch ready; while :; do sleep 0.1; done", node=1)
    until(lambda: (node.root / "ready").exists())
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 0 and node.read(1)["exit"] == {"status": 9, "signal": None, "told": "the step was ended"}
    worker.stdout.close()


def test_a_second_start_keeps_the_log_that_the_runner_truncates(node):
    log = node.root / "logs" / "e.log"
    log.write_text("step:1\n")
    code, out = node.run("echo anew > %s" % log, restart=1, train_log=str(log))
    kept = node.folder / "earlier-1-e.log"
    assert code == 0 and kept.read_text() == "step:1\n" and str(kept) in out and log.read_text() == "anew\n"
    node.run("exit 1", node=1, restart=2, train_log=str(log))  # only the head's runner writes it
    assert not list(node.folder.glob("earlier-2-*"))


def test_what_can_not_be_started_is_told_in_words(node):
    code, out = node.run("exit 0", batch={"runner_argv": ["no-such-program"], "stop_signal": "INT"})
    assert code == 5 and "n1: no no-such-program on PATH" in out and node.read()["phase"] == "blocked"
    os.rename(str(node.root / "logs" / "launch_x.log"), str(node.root / "x"))
    (node.folder / "nodes" / "head-12-0.pid").mkdir()
    code, out = node.run("touch started")
    assert code == 5 and "can't write" in out and not (node.root / "started").exists() and "Traceback" not in out
    code, out = node.run("exit 0", batch=None)
    assert code == 5 and "is no record of a job" in out
    code, out = node.run("exit 0", env={"SLURM_NODEID": ""})
    assert code == 2 and "--slurm" in out


def test_a_node_that_hangs_ends_all_the_same(tmp_path):
    code = ("import time; from rlrun.steps import in_job_check\n"
            "in_job_check.end_when_late(0.05, lambda: print('late', flush=True))\nwhile True: time.sleep(9)")
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT, timeout=60)
    assert (done.returncode, done.stdout) == (1, b"late\n")


def make_found(task_parts, parts, git=GIT, **given):
    plan = make_plan(**given)
    verdict = Verdict((), (), ())
    found = survey.Survey(None, plan, None, None, None, None, verdict, git, Fingerprint("d", parts), None, True)
    record = {"batch": {}, "parts": task_parts, "config": "scripts/a b.env", "launch_command": given.get("then", "run it")}
    return Task("/r", record, 0, 2, "n1", "12", 0), found


RUNNER = "bash scripts/train/train.sh scripts/train/configs/x.env"
PARTS = {"file /nowhere/x": "absent", "commit": "a" * 40, "dirty files": " ", "launch command": "c", "runner": RUNNER,
         "block": "b"}


@pytest.mark.parametrize("change, word", [
    ({"file /nowhere/x": "1" * 64}, "/nowhere/x"), ({"commit": "b" * 40}, "the commit"), ({"dirty files": "x 1"}, "differs"),
    ({"file /nowhere/new": "2" * 64}, "/nowhere/new"), ({"launch command": "d"}, "the launch command (now it"),
    ({"block": "anything"}, "")])
def test_what_moved_since_is_named(change, word):
    task, found = make_found(PARTS, dict(PARTS, **change))
    task.record["launch_command"] = "run this"
    checks = in_job_check.judge_moved(task, found, ())
    assert [(one.name, one.status) for one in checks] == ([("plan:moved", "blocks")] if word else [])
    assert not word or (word in checks[0].detail and "'scripts/a b.env' --slurm" in checks[0].fix)


def test_what_moved_is_told_with_its_old_value_and_the_line_that_hands_it_in_anew():
    task, found = make_found(PARTS, dict(PARTS, **{"launch command": "d"}), launch_command="run save_freq=7 lr=1 --new")
    task.record.update(launch_command="run save_freq=5 lr=1", batch={"again": "/x/rlrun check x --slurm --srun=--mpi=none"})
    check, = in_job_check.judge_moved(task, found, ())
    assert "the launch command (save_freq=5 \u2192 save_freq=7, --new)" in check.detail
    assert check.fix.endswith("hand it in again: /x/rlrun check x --slurm --srun=--mpi=none")


def make_unseen(number, size="58.6 GiB"):
    return Check("live", "gpu:foreign", "blocks", "GPU %d: %s in use by a process that is not visible here" % (number, size),
                 "Find out on the host who holds GPU %d (nvidia-smi there), and wait or ask." % number)


def test_gpus_of_which_the_same_is_said_are_one_row():
    pids = [Check("live", "gpu:foreign", "blocks", "pid %d (eve), 9 GiB on GPU %d" % (pid, pid), "Wait.") for pid in range(5)]
    other = Check("live", "disk:full", "blocks", "no room", "")
    found = in_job_check.fold_gpus([pids[0]] + [make_unseen(number) for number in range(1, 8)] + [other])
    assert found[0] == pids[0] and found[2:] == [other]
    assert found[1].detail == "GPUs 1-7: 58.6 GiB each in use by a process that is not visible here"
    assert "who holds GPUs 1-7 (" in found[1].fix
    two = in_job_check.fold_gpus([make_unseen(1), make_unseen(3, "9.0 GiB")])
    assert len(two) == 1 and two[0].detail.startswith("GPUs 1,3: 58.6 GiB, 9.0 GiB in use")
    assert in_job_check.fold_gpus([make_unseen(1)]) == [make_unseen(1)]
    lines = node_command._list_blocking(pids + [other])
    assert lines[1:] == ["  gpu:foreign  pid 0 (eve), 9 GiB on GPU 0", "    Wait.", "  gpu:foreign  pid 1 (eve), 9 GiB on GPU 1",
                         "    Wait.", "  gpu:foreign  \u2026 and 3 more", "  disk:full  no room"]
    assert len(node_command._list_blocking(pids[:3])) == 7


def test_what_a_node_can_not_tell_is_no_change():
    task, found = make_found(PARTS, dict(PARTS, commit="no git", **{"dirty files": " "}), git=Git("", "", (), "", "no git"))
    assert [(one.name, one.status) for one in in_job_check.judge_moved(task, found, ())] == [("git:unknown", "advisory")]
    task, found = make_found(PARTS, dict(PARTS, **{"launch command": "d"}), launch_command="run it=10.0.0.1",
                             topology=Topology(2, "10.0.0.1", "MASTER_ADDR", 6379, ""))
    task.record["launch_command"] = "run it=203.0.113.254"
    assert in_job_check.judge_moved(task, found, ()) == []  # nobody knew the head's address then
    task, found = make_found(PARTS, {"commit": "a" * 40, "dirty files": " "}, launch_command="")
    assert in_job_check.judge_moved(task, found, ()) == []  # the runner refused, and named neither its files nor its command
