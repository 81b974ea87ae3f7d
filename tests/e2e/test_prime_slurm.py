"""Runs that prime-rl hands to Slurm, on a real one (e2e/slurm.py): checked, submitted, read back, asked for later.

Every job waits for the file `go` before it starts its run, so that a scenario sees each of its states.
"""

import json
import os
import signal
import subprocess
import sys

import pytest
from checkouts import add_prime_config, build_checkout, build_prime_checkout, write_fake_program, write_nvidia_smi

from . import box as b
from . import slurm
from .scene import hash_tree

LAYOUTS = ("", "new")
HELD = """\
max_steps = 3
[orchestrator]
[[orchestrator.train.source]]
env.taskset.id = "reverse-text"
[trainer]
[inference]
[ckpt]
interval = 1
[slurm]
job_name = "toy-held"
partition = "gpu"
time = "02:00:00"
pre_run_command = "until [ -e %s ]; do sleep 0.05; done"
"""
QUICK = {"TOY_STEPS": "1", "TOY_STEP_SEC": "0.05", "TOY_LOAD_SEC": "0.05"}

pytestmark = pytest.mark.skipif(
    bool(slurm.find_missing()), reason="no Slurm here (Debian: slurmctld slurmd slurm-client munge): %s is missing"
    % ", ".join(slurm.find_missing()))


@pytest.fixture
def root(tmp_path):
    """A toy checkout of prime-rl whose configs/debug/held.toml is submitted and waits."""
    path = build_prime_checkout(tmp_path / "prime")
    add_prime_config(path, "held", HELD % (tmp_path / "go"))
    return path


def let_go(box):
    b.add_to_file(os.path.join(box.folder, "go"), "")


def occupy(cluster):
    """A job on both nodes; gives its id."""
    told = slurm.ask(cluster, "sbatch", "--parsable", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 600")
    slurm.wait_for_state(cluster, told.strip(), "RUNNING")
    return told.strip()


def submit(box, config, *overrides, env=None):
    """Checks, confirms by digest, submits; the object of `run --json`, its exit code under "code"."""
    found = b.check(box, config, "--", *overrides, env=env)
    done = b.rlrun(box, "run", config, "--json", "--confirm", found["digest"], "--", *overrides, env=env)
    return dict(json.loads(done.out), code=done.code, stderr=done.err)


def list_states(box, env=None):
    """What `runs` says of each launch, the newest first."""
    done = b.rlrun(box, "runs", "--json", env=env)
    assert done.code == 0, done.err
    return [row["state"] for row in json.loads(done.out)["runs"]]


def show_run(box, number=0, env=None):
    """`runs ID` of a launch; 0 is the newest."""
    return b.rlrun(box, "runs", b.list_runs(box)[number]["id"], env=env).out


def ask_status(box, *words, env=None):
    """The object of `status --json`, with its exit code as "code"."""
    done = b.rlrun(box, "status", "--json", *words, env=env)
    return dict(json.loads(done.out), code=done.code, stderr=done.err)


def find_row(text, label):
    """The value of a row in a report."""
    return next((line.split(":", 1)[1].strip() for line in text.splitlines() if line.strip().startswith(label + ":")), "")


# --- check: what is asked of Slurm is shown, and this machine does not matter


def play_check(box, beside_others):
    with slurm.start() as cluster:
        box.env.update(cluster.env)
        facts = {}
        if beside_others:
            lego = box._replace(root=build_checkout(os.path.join(box.folder, "lego")))
            b.launch(lego, "demo", env=b.LONG)
            write_nvidia_smi(os.path.join(box.folder, "fake-bin"), gpus=[{"uuid": "GPU-0", "used": 70000, "total": 80000}],
                             holders=[{"uuid": "GPU-0", "pid": os.getpid(), "used": 70000, "name": "python3"}])
            subprocess.Popen([sys.executable, "-m", "http.server", "8000"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
            b.wait_for(lambda: b.shell(box, "</dev/tcp/127.0.0.1/8000").code == 0, "a server on port 8000")
            facts["here"] = b.check(box, "reverse-text/rl")["blocking"]
        before = hash_tree(box.root)
        facts["found"] = b.check(box, "debug/held")
        named = b.rlrun(box, "check", "reverse-text/rl", "--", "--slurm", "--run.name", "abc")
        return dict(facts, named=[named.code, named.out], same=before == hash_tree(box.root),
                    queue=slurm.ask(cluster, "squeue", "-h"))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_check(play, root, layout, fake_bin):
    told = play(play_check, root, env={"TOY_LAYOUT": layout}, beside_others=not layout)
    if not layout:
        assert {"job:running", "gpu:foreign", "port:conflict"} <= set(told["here"]), "what a local run would be blocked by"
    found = told["found"]
    assert (found["verdict"], found["blocking"]) == ("YES", [])
    plan = found["plan"]
    assert plan["submission"] and plan["ports"] == [] and plan["gpus"] == 0
    folder = plan["run_dir"] + ("/launcher" if layout else "")
    assert plan["launch_command"] == "sbatch %s/rl.sbatch" % folder
    code, text = told["named"]
    assert code == 0, text
    folder = os.path.join(root, "outputs", "abc") + ("/launcher" if layout else "")
    assert "\n  Slurm        job-name=prime-rl  nodes=1  gres=gpu:8  partition=cluster\n" in text
    assert "\n  script       %s/rl.sbatch  (written at the launch)\n" % folder in text
    assert "\n  job log      %s/job_%%j.log\n" % (folder + ("/logs" if layout else "")) in text
    assert told["same"] and told["queue"] == ""


# --- the whole life of a submission


def play_life(box):
    with slurm.start() as cluster:
        box.env.update(cluster.env)
        other = occupy(cluster)
        found = submit(box, "debug/held", "--run.name", "life", env=dict(QUICK, TOY_STEPS="3"))
        facts = {"found": found, "pending": list_states(box), "record": b.read(os.path.join(found["record"], "record.json"))}
        facts["status"] = [ask_status(box)]
        job = found["facts"]["jobs"][0]
        facts["truth"] = slurm.ask(cluster, "squeue", "-h", "-o", "%i %P %l %j").splitlines()
        slurm.ask(cluster, "scancel", other)
        slurm.wait_for_state(cluster, job, "RUNNING")
        facts["running"] = list_states(box)
        facts["status"].append(ask_status(box))
        facts["shown"] = show_run(box)
        let_go(box)
        facts["gate"] = b.rlrun(box, "gate", "--timeout", "60s")
        facts["end"] = slurm.wait_for_state(cluster, job, "COMPLETED", "FAILED")
        facts["completed"] = list_states(box)
        facts["status"].append(ask_status(box, "life"))
        facts["shown_later"] = show_run(box)
        facts["json"] = json.loads(b.rlrun(box, "runs", "--json").out)["runs"][0]
        facts["job_log"] = b.read(found["facts"]["job_logs"][job])
        facts["blind"] = b.rlrun(box, "runs", env={"PATH": "/nowhere"})
        facts["status"].append(ask_status(box, "life", env={"PATH": "/nowhere"}))
        return facts


@pytest.mark.parametrize("layout", LAYOUTS)
def test_life(play, root, layout):
    told = play(play_life, root, env={"TOY_LAYOUT": layout})
    found = told["found"]
    assert (found["code"], found["exit"], found["launched"]) == (0, 0, True), found["stderr"]
    [job] = found["facts"]["jobs"]
    assert job + " gpu 2:00:00 toy-held" in told["truth"]
    assert found["facts"]["job_states"] == {job: "PENDING"} and found["stop"] == "scancel " + job
    log = "%s/outputs/life/%sjob_%s.log" % (root, "launcher/logs/" if layout else "", job)
    assert found["facts"]["job_logs"] == {job: log}
    record = json.loads(told["record"])
    assert record["facts"]["jobs"] == [job] and record["is_submission"] and record["run_dir"] == root + "/outputs/life"
    assert told["pending"] == ["job %s pending" % job] and told["running"] == ["job %s running" % job]
    assert find_row(told["shown"], "stop") == "scancel " + job and find_row(told["shown"], "job log") == log
    assert told["end"] == "COMPLETED" and told["completed"] == ["job %s completed" % job]
    assert told["json"]["jobs"] == {job: "COMPLETED"} and find_row(told["shown_later"], "stop") == ""
    assert "Training finished!" in told["job_log"]
    code, out, err = told["blind"]
    assert code == 0 and "job %s unknown" % job in out and "squeue is not on the PATH" in err
    pending, running, over, blind = told["status"]
    assert [one["code"] for one in told["status"]] == [0, 0, 0, 0], "its log says that it finished, also where Slurm says nothing"
    assert (pending["verdict"], pending["run"]["jobs"]) == ("no step yet", {job: "PENDING"})
    assert pending["run"]["stop"] == "scancel " + job
    assert "job %s PENDING" % job in pending["conclusion"]
    assert (running["run"]["state"], running["run"]["jobs"], running["run"]["pids"]) == ("live", {job: "RUNNING"}, {})
    assert (over["verdict"], over["ending"]["how"], over["progress"]["step"]) == ("ended", "ended well", 3)
    assert over["run"]["stop"] is None and over["run"]["logs"]["trainer"].startswith(root + "/outputs/life/logs/")
    assert blind["run"]["state"] == "unknown" and blind["run"]["jobs"] == {job: "unknown"}
    code, out, _ = told["gate"]
    assert code == 0 and "the gates are passed at step 1" in out, told["gate"]


def play_ends(box):
    with slurm.start() as cluster:
        box.env.update(cluster.env)
        failed = submit(box, "debug/held", "--run.name", "failed", env=dict(QUICK, TOY_FAIL="trainer"))
        let_go(box)
        slurm.wait_for_state(cluster, failed["facts"]["jobs"][0], "FAILED")
        os.unlink(os.path.join(box.folder, "go"))
        config = b.check(box, "debug/held", "--", "--run.name", "cancelled")
        done = b.rlrun(box, "run", "debug/held", "--confirm", config["digest"], "--", "--run.name", "cancelled")
        running = list_states(box)[0]
        stop = b.find_stop_line(done.out)
        stopped = b.shell(box, stop)
        slurm.wait_for_state(cluster, stop.split()[-1], "CANCELLED")
        return {"ids": [failed["facts"]["jobs"][0], stop.split()[-1]], "states": list_states(box), "running": running,
                "report": done.out, "stopped": stopped.code, "stop": stop,
                "shown": show_run(box), "status": [ask_status(box, name) for name in ("failed", "cancelled")],
                "since": b.rlrun(box, "runs", "--failed-since", "1d")}


def test_failed_and_cancelled(play, root):
    told = play(play_ends, root)
    first, second = told["ids"]  # a number is used up by each `sbatch --test-only`
    assert told["report"].startswith("Submitted\n") and told["stop"] == "scancel " + second, told["report"]
    assert told["stopped"] == 0
    assert told["running"] in ("job %s pending" % second, "job %s running" % second)
    assert told["states"] == ["job %s cancelled" % second, "job %s failed" % first]
    assert [(one["code"], one["verdict"], one["ending"]["how"]) for one in told["status"]] == [
        (4, "ended", "failed"), (4, "ended", "killed")]
    for one, words in zip(told["status"], ("job %s FAILED: exit code 1" % first, "job %s CANCELLED" % second)):
        assert words in one["ending"]["words"]
    assert find_row(told["shown"], "stop") == ""
    code, out, err = told["since"]  # by their jobs: sbatch itself has ended 0
    assert (code, err, out.count("\n  how: ")) == (0, "", 2), out
    assert "Slurm: job %s FAILED" % first in out and "Slurm: job %s CANCELLED" % second in out, out


# --- what sbatch refuses, is not there, or keeps waiting for


def play_refusals(box):
    with slurm.start() as cluster:
        box.env.update(cluster.env)
        facts = {"ahead": b.check(box, "debug/held", "--", "--slurm.partition", "nowhere")}
        # Its partition is closed in the very moment: after the last look, before the launch.
        fakes = os.path.join(box.folder, "closing")
        write_fake_program(fakes, "sbatch", 'case "$*" in *--test-only*) exec /usr/bin/sbatch "$@" ;; esac\n'
                           'exec /usr/bin/sbatch --partition=nowhere "$@"\n')
        closing = {"PATH": "%s:%s" % (fakes, box.env["PATH"])}
        facts["partition"] = submit(box, "debug/held", env=closing)
        facts["partition_text"] = b.rlrun(box, "run", "debug/held", "--again", "--confirm", facts["partition"]["digest"],
                                          env=closing)
        facts["states"] = list_states(box)
        facts["queue"] = slurm.ask(cluster, "squeue", "-h", "-t", "all")
        subprocess.check_call(["mount", "--bind", os.devnull, "/usr/bin/sbatch"])  # only in this box
        before = b.count_records(box)
        facts["absent"] = b.rlrun(box, "run", "debug/held", "--json")
        session = b.open_rlrun(box, "run", "debug/held")
        facts["asked"] = b.finish(session)
        facts["records"] = b.count_records(box) - before
        return facts


def test_refusals(play, root):
    told = play(play_refusals, root)
    assert told["ahead"]["blocking"] == ["slurm:refused"], "what sbatch is sure to refuse is told before"
    assert "Invalid partition name" in next(one["detail"] for one in told["ahead"]["checks"] if one["name"] == "slurm:refused")
    refused = told["partition"]
    assert (refused["code"], refused["facts"].get("jobs")) == (4, None)
    assert any("invalid partition specified: nowhere" in line for line in refused["fatal"]), refused["fatal"]
    code, out, _ = told["partition_text"]
    assert code == 4 and "invalid partition specified: nowhere" in out and "Submitted\n" not in out and "scancel" not in out
    assert told["states"] == ["ended 1", "ended 1"] and told["queue"] == ""
    code, out, _ = told["absent"]
    assert code == 1 and json.loads(out)["blocking"] == ["slurm:absent"] and json.loads(out)["launched"] is False
    code, text = told["asked"]
    assert code == 1 and "slurm:absent" in text and "[y/N]" not in text
    assert told["records"] == 0


def start_run(box, *words, env):
    """`run --json` by digest, not waited for."""
    found = b.check(box, *words, env=env)
    argv = [box.python, box.pyz, "run", words[0], "--json", "--confirm", found["digest"]] + list(words[1:])
    return subprocess.Popen(argv, env=b.make_env(box, env), cwd=box.root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL)


def wait_for_running(cluster, count):
    """Waits until so many jobs run; the id of the newest."""
    return b.wait_for(lambda: (lambda ids: len(ids) == count and str(max(map(int, ids))))(
        slurm.ask(cluster, "squeue", "-h", "-t", "RUNNING", "-o", "%i").split()), "%d jobs that run" % count)


def play_slow(box):
    fakes, path = os.path.join(box.folder, "slow"), box.env["PATH"]
    with slurm.start() as cluster:
        box.env.update(cluster.env)
        write_fake_program(fakes + "-squeue", "squeue", "exec sleep 600\n")
        write_fake_program(fakes, "sbatch", 'case "$*" in *--test-only*) exec /usr/bin/sbatch "$@" ;; esac\n'
                           'until [ -e "$0.go" ]; do sleep 0.05; done; exec /usr/bin/sbatch "$@"\n')
        deaf = start_run(box, "debug/held", "--", "--run.name", "deaf", env={"PATH": "%s-squeue:%s" % (fakes, path)})
        one = wait_for_running(cluster, 1)
        waiting = start_run(box, "debug/held", env={"PATH": "%s:%s" % (fakes, path)})
        b.wait_for(lambda: b.find_processes("%s/sbatch" % fakes), "an sbatch that waits")
        waiting.send_signal(signal.SIGINT)  # the operator does not wait for it
        out = waiting.communicate()[0]
        facts = {"left": [waiting.returncode, json.loads(out.decode())], "still": list_states(box)}
        b.add_to_file(os.path.join(fakes, "sbatch.go"), "")
        two = wait_for_running(cluster, 2)
        b.wait_for(lambda: not b.is_alive(facts["left"][1]["runner"]["pid"]), "the runner's end")
        facts.update(later=[list_states(box), show_run(box)], ids=[one, two])
        cluster.daemons["slurmctld"].kill()
        facts["down"] = b.rlrun(box, "runs")
        facts["deaf"] = [json.loads(deaf.communicate()[0].decode()), deaf.returncode]
        return facts


def test_slow_programs(play, root):
    told = play(play_slow, root)
    code, left = told["left"]
    one, two = told["ids"]
    assert code == 0 and left["launched"] and left["facts"].get("jobs") is None
    assert left["stop"] == "kill -s TERM -- -%d" % left["runner"]["pgid"]
    assert told["still"] == ["running", "job %s running" % one]
    states, shown = told["later"]
    assert states == ["job %s running" % two, "job %s running" % one], "rlrun was gone when sbatch answered"
    assert find_row(shown, "stop") == "scancel " + two
    found, code = told["deaf"]
    assert code == 0 and found["facts"]["jobs"] == [one] and found["stop"] == "scancel " + one, \
        "a squeue that hangs is not waited for"
    assert found["facts"]["job_states"] == {one: None}
    code, out, err = told["down"]
    assert code == 0 and "job %s unknown" % one in out and "squeue: " in err


# --- a run that lives on in a job


def play_resume(box):
    with slurm.start() as cluster:
        box.env.update(cluster.env)
        other = occupy(cluster)
        first = submit(box, "debug/held", "--run.name", "one", env=QUICK)
        job = first["facts"]["jobs"][0]
        waits = {word: b.check(box, "debug/held", "--", "--run.name", "one", *([word] if word else []))
                 for word in ("", "--resume", "--clean")}
        slurm.ask(cluster, "scancel", other)
        log = first["facts"]["job_logs"][job]
        b.wait_for(lambda: os.path.exists(log), "the job's log")
        facts = {"waits": {word: found["blocking"] for word, found in waits.items()},
                 "live": b.check(box, "debug/held", "--", "--run.name", "one", "--resume")}
        let_go(box)
        slurm.wait_for_state(cluster, job, "COMPLETED")
        facts["used"] = b.check(box, "debug/held", "--", "--run.name", "one")
        second = submit(box, "debug/held", "--run.name", "one", "--resume", env=dict(QUICK, TOY_STEPS="2"))
        facts["end"] = slurm.wait_for_state(cluster, second["facts"]["jobs"][0], "COMPLETED", "FAILED")
        facts["second"], facts["states"] = second, list_states(box)
        facts["ids"] = [job, second["facts"]["jobs"][0]]
        facts["log"] = b.read(second["facts"]["job_logs"][second["facts"]["jobs"][0]])
        return facts


@pytest.mark.parametrize("layout", LAYOUTS[1:])
def test_resume(play, root, layout):
    told = play(play_resume, root, env={"TOY_LAYOUT": layout})
    assert told["waits"] == dict.fromkeys(["", "--resume", "--clean"], ["job:running"]), "a job that waits has no log yet"
    assert told["live"]["blocking"] == ["job:running"]
    words = [one["detail"] + one["fix"] for one in told["live"]["checks"] if one["name"] == "job:running"]
    first, second = told["ids"]
    assert any("Slurm job %s of this run is RUNNING" % first in one and "scancel %s" % first in one for one in words), words
    assert told["used"]["blocking"] == ["run:exists"]
    assert told["second"]["code"] == 0 and told["end"] == "COMPLETED"
    assert told["states"] == ["job %s completed" % second, "job %s completed" % first]
    assert "Resuming from step 1" in told["log"]


# --- the other kinds, and several nodes


def play_kinds(box):
    with slurm.start() as cluster:
        box.env.update(cluster.env)
        env = dict(QUICK, TOY_LOAD_SEC="0.1")
        sft = submit(box, "reverse-text/sft", "--slurm", "--run.name", "sft", env=env)
        facts = {"sft": sft, "sft_end": slurm.wait_for_state(cluster, sft["facts"]["jobs"][0], "COMPLETED", "FAILED")}
        infer = submit(box, "reverse-text/infer", "--slurm", "--output-dir", "served", env=env)
        job = infer["facts"]["jobs"][0]
        slurm.wait_for_state(cluster, job, "RUNNING")
        b.wait_for(lambda: "startup complete" in b.read(infer["facts"]["job_logs"][job]), "a server that is up")
        facts["infer"], facts["states"] = infer, list_states(box)
        b.shell(box, infer["stop"])
        slurm.wait_for_state(cluster, job, "CANCELLED")
        add_prime_config(box.root, "nodes", HELD.replace("[slurm]", "[deployment]\ntype = 'multi_node'\nnum_train_nodes = 1\n"
                                                         "num_infer_nodes = 1\n[slurm]") % "/dev/null")
        nodes = submit(box, "debug/nodes", env=env)
        job = nodes["facts"]["jobs"][0]
        slurm.wait_for_state(cluster, job, "RUNNING")
        facts["nodes"], facts["count"] = nodes, slurm.ask(cluster, "squeue", "-h", "-o", "%D %N").strip()
        b.shell(box, nodes["stop"])
        slurm.wait_for_state(cluster, job, "CANCELLED")
        return facts


@pytest.mark.parametrize("layout", LAYOUTS[:1])
def test_kinds(play, root, layout):
    told = play(play_kinds, root, env={"TOY_LAYOUT": layout})
    sft, infer, nodes = told["sft"], told["infer"], told["nodes"]
    [first], [second] = sft["facts"]["jobs"], infer["facts"]["jobs"]
    assert (sft["code"], told["sft_end"]) == (0, "COMPLETED")
    inner = "launcher/" if layout else ""
    assert sft["plan"]["launch_command"] == "sbatch %s/outputs/sft/%ssft.sbatch" % (root, inner)
    assert (infer["code"], infer["server"]) == (0, None)
    assert infer["plan"]["launch_command"] == "sbatch %s/served/%sinference.sbatch" % (root, inner)
    assert infer["facts"]["job_logs"] == {second: "%s/served/%sjob_%s.log" % (
        root, inner + "logs/" if inner else "", second)}
    assert told["states"] == ["job %s running" % second, "job %s completed" % first]
    assert nodes["code"] == 0 and nodes["plan"]["nodes"] == 2 and "nodes=2" in nodes["configuration"]
    assert told["count"] == "2 n[1-2]"
    assert nodes["nodes"]["command"] is None, "Slurm starts the other node"


# --- inside another job


def play_inside(box):
    with slurm.start() as cluster:
        box.env.update(cluster.env)
        words = ["salloc", "--quiet", "--nodes=1", box.python, box.pyz, "check", "debug/held", "--json"]
        inside = b.run(words, box.env, box.root)
        env = {"SBATCH_PARTITION": "cluster", "SBATCH_TIMELIMIT": "7", "SBATCH_JOB_NAME": "mine"}
        other = submit(box, "debug/held", env=env)
        truth = slurm.ask(cluster, "squeue", "-h", "-j", other["facts"]["jobs"][0], "-o", "%P %l %j").strip()
        return {"inside": json.loads(inside.out), "outside": b.check(box, "debug/held"), "other": other, "truth": truth}


def test_inside_a_job(play, root):
    told = play(play_inside, root)
    assert told["inside"]["verdict"] == "YES" and "env:inherited" in told["inside"]["warnings"]
    [words] = [one["detail"] for one in told["inside"]["checks"] if one["name"] == "env:inherited"]
    assert "SLURM_* (" in words and "job 1)" in words
    assert "env:inherited" not in told["outside"]["warnings"]
    assert told["inside"]["digest"] == told["outside"]["digest"]
    assert told["truth"] == "cluster 7:00 mine", "sbatch lets SBATCH_* win over the script"
    assert "\n  Slurm        job-name=mine  nodes=1  gres=gpu:8  partition=cluster  time=7\n" in told["other"]["configuration"]
    assert told["other"]["digest"] != told["outside"]["digest"]
