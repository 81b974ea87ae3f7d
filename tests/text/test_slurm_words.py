import time

import pytest

from rlrun.text import slurm_words


@pytest.fixture
def utc(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


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
     "2026-11-30 07:00:00 UTC; it was put back into the queue once"),
    ({"state": "PENDING"}, "why it waits is not told; when it starts Slurm does not tell yet"),
    (RUNS, "on n[1-2] for 21s with 39s left of 1 min"), (dict(RUNS, time_limit="UNLIMITED", restarts=2),
     "on n[1-2] for 21s without a time limit; it was put back into the queue 2 times"),
    ({"state": "FAILED", "exit_code": 3}, "exit code 3"), ({"state": "FAILED", "signal": 9}, "signal 9"),
    ({"state": "TIMEOUT", "time_limit": "00:01:00"}, "its time limit of 1 min was reached"),
    ({"state": "NODE_FAIL", "nodes": "n[1-2]"}, "a node of it failed (of n[1-2])"),
    ({"state": "PREEMPTED"}, "another job took its nodes"),
    ({"state": "OUT_OF_MEMORY"}, "a process of it used more memory than the job was given"),
    ({"state": "DEADLINE"}, "its deadline came"),
    ({"state": "BOOT_FAIL"}, "its nodes did not come up"), ({"state": "CANCELLED", "by": "bob"}, "by bob"),
    ({"state": "CANCELLED"}, "Slurm does not tell by whom"),
    ({"state": "COMPLETED", "nodes": "n1"}, ""), ({}, "")])
def test_jobs(told, words, utc):
    assert slurm_words.describe_job(told) == words


@pytest.mark.parametrize("text, words", [
    ("0:56", "56s"), ("0:00", "0s"), ("1:00", "1 min"), ("00:59:30", "59 min 30s"), ("02:00:00", "2h 00m"),
    ("1-02:03:04", "1d 2h"), ("90:00", "1h 30m"), ("0-00:00:07", "7s"),
    ("UNLIMITED", "UNLIMITED"), ("Partition_Limit", "Partition_Limit"), ("", "")])
def test_lengths_of_time(text, words):
    assert slurm_words.describe_time(text) == words


def test_a_moment_has_its_zone(utc, monkeypatch):
    assert slurm_words.describe_moment("2026-11-30T07:00:00") == "2026-11-30 07:00:00 UTC"
    monkeypatch.setenv("TZ", "CET-1")
    time.tzset()
    assert slurm_words.describe_moment("2026-11-30T07:00:00") == "2026-11-30 07:00:00 CET"
    assert slurm_words.describe_moment("soon") == "soon" and slurm_words.describe_moment("9999999-01-01T00:00:00")[:3] == "999"


def test_what_changes_at_every_look_is_left_out():
    assert "expects" not in slurm_words.describe_job(WAITS, True) and slurm_words.describe_job(RUNS, True) == "on n[1-2]"


@pytest.mark.parametrize("told, words", [
    (WAITS, "pending (Resources)"), ({"state": "FAILED", "exit_code": 3}, "failed (exit code 3)"), ({}, "unknown"),
    ({"state": "PENDING", "reason": "ReqNodeNotAvail, UnavailableNodes:n2"}, "pending (ReqNodeNotAvail)"),
    ({"state": "CANCELLED", "by": "bob"}, "cancelled (by bob)"), ({"state": "CANCELLED"}, "cancelled"), (RUNS, "running"),
    ({"state": "TIMEOUT"}, "timeout")])
def test_states(told, words):
    assert slurm_words.describe_state(told) == words
