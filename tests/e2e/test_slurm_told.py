"""What the other commands tell of a job, on a real Slurm (e2e/slurm.py): from the queue to its end, and how to stop it.

All of it plays in one cluster: a job that waits behind another, one that is put back, one that reaches its time limit, and a
Lego-RL job whose script rlrun wrote.
"""
import json
import os

import pytest
from checkouts import add_prime_config, build_checkout, build_prime_checkout, write_fake_program

from rlrun.text import slurm_words

from . import box as b
from . import slurm
from .test_prime_slurm import HELD, QUICK, ask_status, find_row, show_run, submit

pytestmark = pytest.mark.skipif(
    bool(slurm.find_missing()), reason="no Slurm here: %s is missing" % ", ".join(slurm.find_missing()))

LIMITED = {"TOY_BRINGUP_SEC": "0.1", "TOY_STEPS": "100000", "TOY_STEP_SEC": "0.2"}


@pytest.fixture
def root(tmp_path):
    path = build_prime_checkout(tmp_path / "prime")
    add_prime_config(path, "held", HELD % (tmp_path / "go"))
    return path


def fill(cluster, *options):
    """A job of nobody's; its id."""
    words = ("--output=/dev/null", "--exclusive", "--partition=gpu", "--wrap=sleep 600") + options
    return slurm.ask(cluster, "sbatch", "--parsable", *words).strip()


def play_told(box):
    lego = box._replace(root=build_checkout(os.path.join(box.folder, "lego")))
    with slurm.start() as cluster:
        box.env.update(cluster.env)
        facts = {"now": b.check(box, "debug/held")}
        other = fill(cluster, "--nodes=2", "--time=300")
        slurm.wait_for_state(cluster, other, "RUNNING")
        first = fill(cluster, "--time=300")
        facts["later"] = b.check(box, "debug/held", "--", "--slurm.time", "00:10:00")
        waits = submit(box, "debug/held", "--run.name", "waits", env=QUICK)["facts"]["jobs"][0]
        b.wait_for(lambda: slurm.ask(cluster, "squeue", "-h", "-j", waits, "-o", "%r").strip() not in ("", "None"),
                   "a reason")
        facts.update(
            waits=waits, status=ask_status(box, "waits"), runs=b.rlrun(box, "runs"), shown=show_run(box),
            gate=b.rlrun(box, "gate", "waits", "--timeout", "0.1s"), logs=b.rlrun(box, "logs", "waits"))
        facts["stopped"] = b.shell(box, facts["status"]["run"]["stop"]).code
        slurm.wait_for_state(cluster, waits, "CANCELLED")
        # Where accounting is on, it says by whom.
        fakes = os.path.join(box.folder, "sacct")
        write_fake_program(fakes, "sacct", "echo '%s|%s|CANCELLED by 0|0:0|00:00:00|02:00:00|None assigned'\n" % (waits, waits))
        write_fake_program(fakes, "squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1\n")
        facts["cancelled"] = ask_status(box, "waits", env={"PATH": "%s:%s" % (fakes, box.env["PATH"])})
        slurm.ask(cluster, "scancel", other, first)
        # One that reaches its time limit: Slurm looks for that now and then, so it is asked for at the end.
        late = submit(box, "debug/held", "--run.name", "late", env=QUICK)["facts"]["jobs"][0]
        slurm.wait_for_state(cluster, late, "RUNNING")
        slurm.ask(cluster, "scontrol", "update", "jobid=" + late, "endtime=now+1")
        facts["lego"] = play_lego(lego, cluster)
        facts["late"] = slurm.wait_for_state(cluster, late, "TIMEOUT", "COMPLETED", "FAILED")
        facts["timeout"] = ask_status(box, "late")
        return facts


def play_lego(box, cluster):
    words = ("--slurm", "--sbatch=--partition=gpu", "--sbatch=--time=30", "--sbatch=--gres=gpu:8", "--srun=--gres=none")
    found = b.check(box, "demo", *words, env=LIMITED)
    hold = fill(cluster)
    slurm.wait_for_state(cluster, hold, "RUNNING")
    done = b.rlrun(box, "run", "demo", "--json", "--confirm", found["digest"], *words, env=LIMITED)
    launched = json.loads(done.out)
    job = launched["facts"]["jobs"][0]
    facts = {"found": found, "launched": launched, "job": job, "pending": ask_status(box)}
    slurm.ask(cluster, "scancel", hold)
    slurm.wait_for_state(cluster, job, "RUNNING")
    b.wait_for(lambda: (ask_status(box)["progress"]["step"] or 0) >= 1, "a first step")
    facts["running"] = ask_status(box)
    node = "node " + facts["running"]["run"]["nodes"][0]["host"]
    facts["logs"] = [b.rlrun(box, "logs", "-n", "200", "--which", *name.split()) for name in ("job", node)]
    facts["stop"] = b.shell(box, facts["running"]["run"]["stop"])
    facts["end"] = slurm.wait_for_state(cluster, job, "COMPLETED", "FAILED", "CANCELLED")
    facts["over"] = ask_status(box, "demo")
    facts["shown"] = show_run(box)
    return facts


def find_check(found, name):
    return next(one for one in found["checks"] if one["name"] == name)


def test_jobs_are_told_from_the_queue_to_their_end(play, root):
    told = play(play_told, root)
    assert find_check(told["now"], "slurm:start")["status"] == "pass"
    later = find_check(told["later"], "slurm:start")
    assert later["status"] == "advisory" and " in partition gpu at 20" in later["detail"] and told["later"]["verdict"] == "YES"
    waits, status = told["waits"], told["status"]
    reason = status["run"]["job_details"][waits]["reason"]  # Priority or Resources, as Slurm's last look found it
    place = "; number 2 of 2 that wait in partition gpu"
    words = "job %s PENDING: %s%s" % (waits, slurm_words.describe_reason(reason), place)
    assert words in status["conclusion"] and status["run"]["job_details"][waits]["place"] == 2, status["conclusion"]
    assert status["run"]["stop"] == "scancel " + waits and find_row(told["shown"], "stop") == "scancel " + waits
    assert "job %s pending (" % waits in told["runs"][1]
    assert "number 2 of 2" in find_row(told["shown"], "state")
    code, _, err = told["gate"]
    assert code == 6 and place in err and "expects" not in err, err
    code, out, err = told["logs"]
    assert code == 0 and place in err and "Submitted batch job %s" % waits in out
    assert told["stopped"] == 0
    assert "job %s CANCELLED by root" % waits in told["cancelled"]["ending"]["words"], told["cancelled"]
    assert told["late"] == "TIMEOUT"
    assert "its time limit of " in told["timeout"]["ending"]["words"] and told["timeout"]["code"] == 4

    lego = told["lego"]
    job, pending, running, over = lego["job"], lego["pending"], lego["running"], lego["over"]
    assert lego["found"]["verdict"] == "YES", lego["found"]["checks"]
    assert "job %s PENDING: waits for free nodes (Resources)" % job in pending["conclusion"], pending["conclusion"]
    assert pending["run"]["stop"] == "scancel " + job and pending["run"]["nodes"] == []
    assert running["run"]["jobs"] == {job: "RUNNING"} and [one["phase"] for one in running["run"]["nodes"]] == ["running"]
    assert any(note.startswith("job %s: on n" % job) and "left of 30 min" in note for note in running["notes"]), running["notes"]
    assert running["run"]["stop"] == "scancel --batch --signal=INT " + job
    assert " head " in lego["logs"][0][1], lego["logs"]
    assert "toy" in lego["logs"][1][1], lego["logs"][1]
    assert lego["stop"][0] == 0 and lego["end"] in ("FAILED", "COMPLETED"), "in good order, and not cleared away by Slurm"
    assert over["ending"] is not None and over["run"]["stop"] is None
    assert "job %s" % job in find_row(lego["shown"], "state")
