"""How a job of several nodes ended: by what its nodes and its own log tell, where Slurm says no more than FAILED."""
import pytest
from steps.made_runs import look, make_target, steps, write_log

from rlrun.steps import job_ended, jobs
from rlrun.steps.job_nodes import NodeState

SRUN = "srun: error: n2: task 1: Exited with exit code 3\n"
STEP = "slurmstepd: error: *** STEP 5.1 ON n1 CANCELLED AT 2026-04-20T09:09:37 ***\n"
JOB = "slurmstepd: error: *** JOB 5 ON n1 CANCELLED AT 2026-04-20T09:09:37 ***\n"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.27 GiB.\n"
MOVED = {"name": "plan:moved", "detail": "this is not the plan that was confirmed", "fix": ""}
HOLDER = {"name": "gpu:foreign", "detail": "pid 7", "fix": ""}
BLOCKED = "2026-04-20T09:09:37Z n1: BLOCKED; no runner is started on any node\nn1:   plan:moved  this is not the plan\n"
RUNNER = {"pid": 7, "start_ticks": 8, "pgid": 7}


def node(number, phase, status=None, signal=None, told="", **given):
    ended = None if status is None and signal is None else {"status": status, "signal": signal, "told": told}
    return NodeState(number, "n%d" % (number + 1), "5", 0, "", "worker" if number else "head", phase, exit=ended, **given)


def look_at(tmp_path, states, state="FAILED", log="", train="", **told):
    """(the status, what `runs` says)"""
    paths = {"5": write_log(tmp_path / "job_5.log", log, 60)}
    record = {"batch": {}, "node_states": tuple(states), "jobs": ["5"], "facts": {"job_logs": paths}, "record": str(tmp_path),
              "job_told": {"5": dict({"state": state, "exit_code": 130, "signal": None, "source": "scontrol"}, **told)}}
    logs = {"train": write_log(tmp_path / "e.log", steps(12) + train, 60), "job 5": paths["5"]}
    found, code = look(make_target(logs, "over", jobs=(("5", state),), record=record))
    assert code in (0, 4)
    return found, jobs.tell_states(record)


STOPS = {"told to stop": ("stopped, as told", "job 5 stopped (as told)"),
         "the time limit was near": ("ended before the time limit (1 min)", "job 5 stopped (near its time limit of 1 min)")}


@pytest.mark.parametrize("why", sorted(STOPS))
@pytest.mark.parametrize("state, status", [("FAILED", 130), ("COMPLETED", 0), ("unknown", 130)])
def test_a_stop_in_good_order_is_no_failure(tmp_path, why, state, status):
    states = [node(0, "ended", status, told=why), node(1, "joined", 0)]
    found, column = look_at(tmp_path, states, state, SRUN + STEP, time_limit="1:00")
    words, short = STOPS[why]
    assert (found.ending.how, found.ending.first_error, column) == ("ended early", None, short)
    assert found.conclusion == words + " at step 12 of 100" and found.errors == ()


@pytest.mark.parametrize("said, words", [
    ("told to stop", "stopped, as told"), ("the time limit is near", "ended before the time")])
def test_a_stop_before_a_runner_lived_stands_in_the_jobs_log_alone(tmp_path, said, words):
    begun = "2026-04-20T09:09:30Z job 5 on n[1-2], head n1 10.0.0.1\n"
    told = "2026-04-20T09:09:37Z %s: ending\n" % said
    states = [node(0, "checking"), node(1, "checking")]
    assert look_at(tmp_path, states, log=begun + told)[0].conclusion.startswith(words)
    assert words not in look_at(tmp_path, states, log=begun + told + begun)[0].conclusion, "another attempt was told"


def test_one_that_did_all_its_steps_is_well_whatever_it_was_told_at_the_end(tmp_path):
    record_state = [node(0, "ended", 0, told="told to stop")]
    found, _ = look_at(tmp_path, record_state, "COMPLETED", train=steps(100, first=13))
    assert found.ending.how == "ended well"


def test_what_blocks_is_the_conclusion_and_the_first_error(tmp_path):
    found, column = look_at(tmp_path, [node(one, "blocked", blocking=(MOVED, HOLDER, HOLDER)) for one in (0, 1)],
                            log="x\n" + BLOCKED + SRUN)
    assert found.conclusion == ("blocked on n1, n2: plan:moved  this is not the plan that was confirmed, and 2 more findings "
                                "there; no runner was started")
    assert (found.ending.how, column) == ("failed", "job 5 blocked (n1, n2: plan:moved)")
    error = found.ending.first_error
    assert error.log.endswith("job_5.log") and error.line == 3 and error.text.startswith("plan:moved  this is")
    assert "and 1 more" in jobs.tell_nodes({"batch": {}, "nodes": 2, "node_states": (
        node(0, "blocked", blocking=(MOVED, HOLDER, HOLDER)),)})


def test_nodes_that_are_blocked_by_different_things(tmp_path):
    states = [node(0, "ended", 143, told="the step was ended", runner=RUNNER), node(1, "blocked", blocking=(HOLDER,)),
              node(2, "blocked", blocking=(MOVED,)), node(3, "blocked")]
    found, column = look_at(tmp_path, states)
    assert found.conclusion == ("blocked on n2: gpu:foreign  pid 7; on n3: plan:moved  this is not the plan that was confirmed; "
                                "on n4: why is not told"), "a runner had been started"
    assert found.ending.first_error.log.endswith("nodes/0001.json") and column == "job 5 blocked (n2: gpu:foreign)"
    assert job_ended.is_blocked({"node_states": states}, "5") and not job_ended.is_blocked({"node_states": states}, "6")


@pytest.mark.parametrize("states, words, short", [
    ([node(0, "ended", 143, told="the step was ended"), node(1, "ended", 3)],
     ("n2 (worker) ended 3", "; n1 (head) was ended by it"), "n2 ended 3"),
    ([node(0, "ended", None, "SIGKILL"), node(1, "joined", 0)], ("n1 (head) was killed by SIGKILL", ""),
     "n1 was killed by SIGKILL"),
    ([node(0, "ended", 3), node(1, "ended", 1)], ("n1 (head) ended 3, n2 (worker) ended 1", ""), "n1 ended 3")])
def test_whose_failure_it_was(tmp_path, states, words, short):
    words, then = words
    found, column = look_at(tmp_path, states, log=SRUN + STEP)
    assert found.conclusion == words + then and column == "job 5 failed (%s)" % short
    assert found.ending.first_error is None and found.ending.how in ("failed", "killed")
    found, _ = look_at(tmp_path, states, log=SRUN + STEP, train=OOM)
    assert found.conclusion.startswith(words + ": out of memory on the GPU") and found.conclusion.endswith(then)
    assert "CUDA" in found.ending.first_error.text


@pytest.mark.parametrize("states, state, words", [
    ((), "FAILED", "Slurm: job 5 FAILED: exit code 130"), ([node(0, "running")], "FAILED", "Slurm: job 5 FAILED: exit code 130"),
    ([node(0, "ended", 143, told="the step was ended")], "FAILED", "Slurm: job 5 FAILED: exit code 130"),
    ([node(0, "ended", 130, told="told to stop")], "CANCELLED", "Slurm: job 5 CANCELLED: Slurm does not tell by whom"),
    ([node(0, "ended", 130, told="told to stop")._replace(job="4")], "FAILED", "Slurm: job 5 FAILED: exit code 130")])
def test_slurm_has_the_word_where_the_nodes_tell_less(tmp_path, states, state, words):
    found, _ = look_at(tmp_path, states, state, SRUN + JOB)
    assert found.conclusion == words and found.ending.first_error is None and not found.errors
    assert found.recommendations[0] == "scontrol show job 5"


def test_a_job_that_was_blocked_is_over_where_slurm_has_forgotten_it():
    record = {"jobs": ["5"], "job_states": {}, "batch": {}, "node_states": (node(0, "blocked"), node(1, "checked"))}
    assert jobs.judge_jobs(record) == "over"
    assert jobs.judge_jobs(dict(record, node_states=(node(0, "checking"), node(1, "blocked")))) == "unknown"
