"""What is told of jobs: by fake programs with the words of Slurm 22.05.8, fast, slow and absent ones."""
import pytest

from rlrun.stacks import load_recognisers
from rlrun.steps import jobs
from rlrun.steps.job_nodes import NodeState
from rlrun.text import slurm_words
from rlrun.vitals import Target


def make_record(*ids, **given):
    return dict({"jobs": list(ids), "launch_log": "", "is_submission": True, "groups": [], "record": "/r"}, **given)


def make_target(record):
    pairs = tuple((job, (record["job_told"].get(job) or {}).get("state") or "unknown") for job in record["jobs"])
    return Target("id", "name", "lego", "train", "/root", "live", {}, "", "", "me", "h", (), None, None,
                  record=record, jobs=pairs)


ENDS = [
    ("COMPLETED|0:0", "job 5 COMPLETED"), ("FAILED|3:0", "job 5 FAILED: exit code 3"), ("FAILED|0:9", "job 5 FAILED: signal 9"),
    ("TIMEOUT|0:0", "job 5 TIMEOUT: its time limit of 1h 00m was reached"),
    ("NODE_FAIL|0:0", "job 5 NODE_FAIL: a node of it failed (of n[1-2])"),
    ("PREEMPTED|0:0", "job 5 PREEMPTED: another job took its nodes (of n[1-2])"),
    ("OUT_OF_MEMORY|0:125", "job 5 OUT_OF_MEMORY: a process of it used more memory than the job was given"),
    ("CANCELLED by 0|0:0", "job 5 CANCELLED by root"), ("CANCELLED|0:0", "job 5 CANCELLED: Slurm does not tell by whom"),
    ("DEADLINE|0:0", "job 5 DEADLINE: its deadline came"),
    ("BOOT_FAIL|0:0", "job 5 BOOT_FAIL: its nodes did not come up (of n[1-2])")]


@pytest.mark.parametrize("end, words", ENDS)
def test_how_it_ended_by_the_accounts(slurm, end, words):
    slurm(sacct="echo '5|5|%s|00:20:00|01:00:00|n[1-2]'\n" % end)
    record = make_record("5")
    assert jobs.ask_slurm([record]) == "" and record["live_jobs"] == []
    assert jobs.tell_jobs(make_target(record)) == words


def test_one_that_waits(slurm):
    slurm(squeue="case \"$*\" in *RestartCnt*) echo '5 1' ;; *-t*) printf '4|4|gpu|9\\n5|5|gpu|8\\n' ;; "
                 "*) echo '5|5|PENDING||0:00|1:00:00|BeginTime|gpu|8|2026-11-30T07:00:00|1:00:00' ;; esac\n")
    record = make_record("5")
    assert jobs.ask_slurm([record], True) == ""
    target = make_target(record)
    assert jobs.is_waiting(target) and jobs.tell_jobs(target) == (
        "job 5 PENDING: its earliest start has not come yet (BeginTime); number 2 of 2 that wait in partition gpu; Slurm "
        "expects it to start %s; it was put back into the queue once" % slurm_words.describe_moment("2026-11-30T07:00:00"))
    assert jobs.tell_states(record) == "job 5 pending (BeginTime)"
    assert "expects" not in jobs.tell_jobs(target, True)
    short = make_record("5")
    jobs.ask_slurm([short])
    assert short["job_told"]["5"]["place"] is None, "a list of many asks for no places"


@pytest.mark.parametrize("state, stop", [("PENDING", "scancel 5"), ("RUNNING", "scancel --batch --signal=INT 5")])
def test_the_command_that_stops_it(slurm, state, stop):
    slurm(squeue="echo '5|5|%s|n1|0:20|1:00:00|None|gpu|8|2026-11-30T07:00:00|40:00'\n" % state)
    record = make_record("4", "5", gentle_stop=True)
    record["jobs"].remove("4")
    jobs.ask_slurm([record])
    facts = jobs.find_stop_facts(record)
    assert facts["gentle"] and facts["pending"] is (state == "PENDING") and facts["jobs"] == ["5"]
    assert load_recognisers()["lego"].describe_stop(0, facts) == stop
    assert load_recognisers()["prime"].describe_stop(0, facts) == "scancel 5"


def test_of_a_state_that_is_not_known_both_commands_are_told(slurm):
    slurm(squeue="exit 1\n")
    record = make_record("5", gentle_stop=True)
    jobs.ask_slurm([record])
    facts = jobs.find_stop_facts(record)
    assert facts["pending"] is None
    assert load_recognisers()["lego"].describe_stop(0, facts) == "scancel --batch --signal=INT 5  # while it waits: scancel 5"
    assert load_recognisers()["prime"].describe_stop(0, facts) == "scancel 5"
    assert jobs.find_stop_facts(dict(record, live_jobs=[]))["pending"] is False


def test_a_start_that_is_not_foreseeable_is_not_told(slurm):
    slurm(squeue="echo '5|5|PENDING||0:00|1:00:00|Resources|gpu|8|6109-12-23T09:48:16|1:00:00'\n")
    record = make_record("5")
    jobs.ask_slurm([record])
    assert record["job_told"]["5"]["start"] is None and "6109" not in jobs.tell_jobs(make_target(record))


def test_a_job_that_is_over_is_not_stopped(slurm):
    slurm(squeue="echo '5|5|RUNNING|n1|0:20|1:00:00|None'\n", sacct="echo '6|6|COMPLETED|0:0|00:20:00|01:00:00|n2'\n")
    record = make_record("5", "6")
    jobs.ask_slurm([record])
    assert jobs.find_stop_facts(record)["jobs"] == ["5"] and not jobs.is_waiting(make_target(record))


@pytest.mark.parametrize("squeue", ["exec sleep 100\n", "echo 'error: Unable to contact slurm controller' >&2; exit 1\n"])
def test_a_slurm_that_hangs_or_is_away_is_said_and_nothing_is_made_up(slurm, monkeypatch, squeue):
    monkeypatch.setattr(jobs, "_ASK_SECONDS", 0.4)
    slurm(squeue=squeue, sacct=squeue, scontrol=squeue)
    record = make_record("5", job_told={"5": {"state": "RUNNING"}}, job_states={"5": "RUNNING"})
    reason = jobs.ask_slurm([record], True)
    assert "squeue: " in reason and "sacct: " in reason
    assert record["job_states"] == {} and record["job_told"] == {} and record["live_jobs"] == ["5"]
    assert jobs.tell_jobs(make_target(record)).startswith("job 5 unknown: Slurm does not answer (squeue: ")
    assert jobs.find_stop_facts(record)["pending"] is None


def make_node(number, phase, **given):
    role = "worker" if number else "head"
    return NodeState(number, "n%d" % (number + 1), "5", 0, "10.0.0.1", role, phase, log="/l/%d.log" % number, **given)


def test_nodes_and_logs_of_a_job_whose_script_is_ours():
    states = (make_node(0, "ended", exit={"status": 3, "signal": None}), make_node(1, "joined"))
    record = make_record("5", batch={}, node_states=states, nodes=2, facts={"job_logs": {"5": "/r/job_5.log", "6": "/x"}})
    assert jobs.list_job_logs(record) == {"node n1": "/l/0.log", "node n2": "/l/1.log", "job 5": "/r/job_5.log"}
    assert list(jobs.list_job_logs(dict(record, submit_log="/l/launch.log")).items())[-1] == ("submit", "/l/launch.log")
    assert jobs.find_head_exit(record) == {"status": 3, "signal": None}
    assert [one["phase"] for one in jobs.shape_nodes(record)] == ["ended", "joined"]
    assert "joined" in jobs.tell_nodes(record)
    other = make_record("5", facts={"job_logs": {"5": "/r/job_5.log"}})
    assert jobs.list_job_logs(other) == {} and jobs.tell_nodes(other) == "" and jobs.find_head_exit(other) is None
    begun = make_record("5", batch={}, node_states=(make_node(0, "running"),))
    assert jobs.find_head_exit(begun) is None
