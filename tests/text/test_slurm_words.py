import pytest

from rlrun.text import slurm_words


@pytest.mark.parametrize("reason, words", [
    ("Resources", "waits for free nodes"), ("Priority", "others of higher priority"),
    ("QOSMaxJobsPerUserLimit", "as many jobs as the QOS"),
    ("ReqNodeNotAvail, UnavailableNodes:n2", "down, drained or reserved"), ("AssocGrpCpuLimit", "its account as a whole"),
    ("BeginTime", "earliest start"), ("JobHeldUser", "held by its user"), ("DependencyNeverSatisfied", "it will never start"),
    ("Dependency", "waits for another job ("), ("PartitionConfig", "may never start"), ("QOSGrpGRES", "the QOS as a whole")])
def test_reasons(reason, words):
    found = slurm_words.describe_reason(reason)
    assert words in found and found.endswith("(%s)" % reason)


def test_a_reason_that_nobody_knows_is_told_as_it_is():
    assert slurm_words.describe_reason("NewInSlurm99") == "NewInSlurm99" and slurm_words.describe_reason("") == ""


WAITS = {"state": "PENDING", "reason": "Resources", "place": 2, "of": 3, "partition": "gpu",
         "start": "2026-11-30T07:00:00", "restarts": 1}
RUNS = {"state": "RUNNING", "nodes": "n[1-2]", "elapsed": "0:21", "left": "0:39", "time_limit": "1:00"}


@pytest.mark.parametrize("told, words", [
    (WAITS, "waits for free nodes (Resources); number 2 of 3 that wait in partition gpu; Slurm expects it to start "
     "2026-11-30 07:00:00; it was put back into the queue once"),
    ({"state": "PENDING"}, "why it waits is not told; when it starts Slurm does not tell yet"),
    (RUNS, "on n[1-2] for 0:21 with 0:39 left of 1:00"), (dict(RUNS, time_limit="UNLIMITED", restarts=2),
     "on n[1-2] for 0:21 without a time limit; it was put back into the queue 2 times"),
    ({"state": "FAILED", "exit_code": 3}, "exit code 3"), ({"state": "FAILED", "signal": 9}, "signal 9"),
    ({"state": "TIMEOUT", "time_limit": "00:01:00"}, "its time limit of 00:01:00 was reached"),
    ({"state": "NODE_FAIL", "nodes": "n[1-2]"}, "a node of it failed (of n[1-2])"),
    ({"state": "PREEMPTED"}, "another job took its nodes"),
    ({"state": "OUT_OF_MEMORY"}, "a process of it used more memory than the job was given"),
    ({"state": "DEADLINE"}, "its deadline came"),
    ({"state": "BOOT_FAIL"}, "its nodes did not come up"), ({"state": "CANCELLED", "by": "bob"}, "by bob"),
    ({"state": "CANCELLED"}, ""),
    ({"state": "COMPLETED", "nodes": "n1"}, ""), ({}, "")])
def test_jobs(told, words):
    assert slurm_words.describe_job(told) == words


def test_what_changes_at_every_look_is_left_out():
    assert "expects" not in slurm_words.describe_job(WAITS, True) and slurm_words.describe_job(RUNS, True) == "on n[1-2]"


@pytest.mark.parametrize("told, words", [
    (WAITS, "pending (Resources)"), ({"state": "FAILED", "exit_code": 3}, "failed (exit code 3)"), ({}, "unknown"),
    ({"state": "PENDING", "reason": "ReqNodeNotAvail, UnavailableNodes:n2"}, "pending (ReqNodeNotAvail)"),
    ({"state": "CANCELLED", "by": "bob"}, "cancelled (by bob)"), (RUNS, "running"), ({"state": "TIMEOUT"}, "timeout")])
def test_states(told, words):
    assert slurm_words.describe_state(told) == words
