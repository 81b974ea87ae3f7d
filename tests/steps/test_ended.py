"""How a run ended, by its record and by its logs' own words, which need not tell the same."""
import re

import pytest
from steps.made_runs import MAIN, look, look_at, make_target, prime_step, step, steps, write_log

from rlrun.health import faults
from rlrun.steps import ended, gather

GOOD, DONE = steps(12), steps(12, total=12)
TALK = "(AgentLoopWorker pid=7) Training complete.\n"
OOM = ('Traceback (most recent call last):\n  File "/x/y.py", line 3, in main\n    go()\n'
       "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.27 GiB.\n")
BAR = "Training Progress: %s|█████████▉| %s [9:10:11<00:00, 275.09s/it]\n"
ERROR = "ERROR: could not upload to wandb, retry\n"
HOST_OOM = "(raylet) 2 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons\n"
STOPPED = "[FullyAsyncTrainer] Detected termination signal (None), stopping sample collection\n"


def told(status=None, signal=None):
    return {"status": status, "signal": signal}


# the log, exit.json; then how, words, whether an error is quoted, exit of `status`
TABLE = {
    "all steps, exit 0": (DONE, told(0), "ended well", "step 12 of 12", False, 0),
    "too few steps, exit 0": (GOOD, told(0), "ended early", "at step 12 of 100", False, 4),
    "S11: an exception, exit 0 of tee": (GOOD + OOM, told(0), "failed", "out of memory on the GPU, though", True, 4),
    "said that it finished": (DONE + "('Final validation metrics: '\n", told(0), "ended well", "says that it finished", False, 0),
    "said that it finished, and the shutdown went wrong": (
        DONE + "('Final validation metrics: '\n", told(1), "ended well", "exit status 1 after it is the shutdown's", False, 0),
    "a worker's words of finishing before the real error": (
        steps(5) + TALK + OOM, told(1), "failed", "out of memory on the GPU", True, 4),
    "the same where the total is not known": (
        steps(5, total=0) + TALK + OOM, told(1), "failed", "out of memory on the GPU", True, 4),
    "words of finishing alone, and exit 1": (steps(5) + "Training complete.\n", told(1), "failed", "exit status 1", False, 4),
    "a bar that is rounded up to 100 %": (
        steps(997, first=990, total=1000) + BAR % ("100%", "997/1000") + OOM, told(1), "failed", "out of memory on the", True, 4),
    "a bar at its end": (steps(1000, first=990, total=1000) + BAR % ("100%", "1000/1000"), told(0), "ended well", "", False, 0),
    "exit 1 without an error": (GOOD, told(1), "failed", "exit status 1; no error in its logs", False, 4),
    "SIGTERM": (GOOD, told(143, "SIGTERM"), "killed", "stopped by SIGTERM", False, 4),
    "SIGTERM as 143 alone": (GOOD, told(143), "killed", "stopped by SIGTERM", False, 4),
    "SIGKILL": (GOOD, told(137, "SIGKILL"), "killed", "^SIGKILL", False, 4),
    "SIGSEGV": (GOOD, told(139, "SIGSEGV"), "failed", "crashed in native code", False, 4),
    "L11: the log just stops": (GOOD + "half of a li", None, "died without trace", "its log just stops", False, 4),
    "L11: a mere error proves no cause": (GOOD + ERROR, None, "died without trace", "need not be the cause", True, 4),
    "L11: a worker was killed": (GOOD + HOST_OOM, None, "killed", "memory", True, 4),
    "its last step is done, no exit told": (DONE, None, "ended", "12 of 12", False, 0),
    "L15: told to end, exit 0": (GOOD + STOPPED, told(0), "ended early", "at step 12 of 100", True, 4),
    "no step at all, exit 0": ("[config] /x/demo.env\n", told(0), "ended", "exit status 0", False, 0),
    "not even a log": ("", told(0), "ended", "exit status 0", False, 0),
}


@pytest.mark.parametrize("name", sorted(TABLE))
def test_endings(tmp_path, name):
    text, exit_told, how, words, has_quote, code = TABLE[name]
    found, exit_code = look_at(tmp_path, text, 3600, "over", exit=exit_told)
    assert (found.ending.how, exit_code) == (how, code), found.ending
    assert re.search(words, found.conclusion), found.conclusion
    assert (found.ending.first_error is not None) == has_quote, found.ending.first_error
    assert found.verdict == "ended" and found.left_seconds is None
    assert "\n" not in found.conclusion and not re.search(r"\bJOB\b|\{\w", " ".join(found.recommendations))


@pytest.mark.parametrize("kind,how,code", [("eval", "ended well", 0), ("infer", "ended well", 0), ("train", "ended", 0)])
def test_a_kind_without_steps_is_asked_for_no_more_than_exit_0(tmp_path, kind, how, code):
    found, exit_code = look_at(tmp_path, "[vLLM] ready after 120s\n", 60, "over", kind=kind, exit=told(0))
    assert (found.ending.how, exit_code) == (how, code)


@pytest.mark.parametrize("line,words", [
    ("12:00:09 WARNING Received SIGTERM, terminating all processes...\n", "stopped by SIGTERM"),
    ("Received interrupt signal, terminating all processes...\n", "stopped by SIGINT")])
@pytest.mark.parametrize("exit_told", [told(1), None])
def test_a_launcher_that_was_stopped_has_not_failed(tmp_path, line, words, exit_told):
    """prime-rl's launcher ends its parts, and exits with 1."""
    trainer = "".join(map(prime_step, range(90, 101))) + "12:00:10 WARNING Received 15 death signal, shutting down workers\n"
    logs = {"trainer": write_log(tmp_path / "trainer.log", trainer, 60)}
    launch = write_log(tmp_path / "launch.log", line, 60)
    found, code = look(make_target(logs, "over", "rl", "prime", exit=exit_told, launch_log=launch))
    assert (found.ending.how, code) == ("killed", 4) and words in found.conclusion
    assert found.ending.first_error.log == launch
    assert not any("oom" in one for one in found.recommendations)


@pytest.mark.parametrize("states,how,words", [
    ({"7": "COMPLETED"}, "ended early", "12 of 100"), ({"7": "TIMEOUT"}, "failed", "job 7 TIMEOUT"),
    ({"7": "CANCELLED"}, "killed", "job 7 CANCELLED"),
    ({"7": "COMPLETED", "8": "OUT_OF_MEMORY"}, "failed", "job 8 OUT_OF_MEMORY")])
def test_slurm_tells_how_its_jobs_ended(tmp_path, states, how, words):
    found, code = look_at(tmp_path, GOOD, 60, "over", jobs=tuple(states.items()))
    assert (found.ending.how, code) == (how, 4) and words in found.conclusion


def test_nothing_is_said_of_the_end_of_a_live_run(tmp_path):
    found, _ = look_at(tmp_path, GOOD + OOM, 5, "live")
    assert found.ending is None and found.verdict != "ended"
    assert any("out of memory" in quote.text for quote in found.errors), "and yet the error is shown"


def test_a_log_that_is_gone_again_is_no_crash(tmp_path):
    """Texts may be kept of a log that was removed since: at a relaunch the runner removes what it will write."""
    logs = {"train": write_log(tmp_path / "e.log", GOOD + OOM, 60), "vllm": write_log(tmp_path / "e_vllm.log", OOM, 60)}
    target = make_target(logs, "over", exit=told(1))
    evidence = gather.read_evidence(target)
    without = evidence._replace(files={"train": evidence.files["train"]})
    assert {quote.log for quote in ended.find_errors(without, target)} == {logs["train"]}


def test_the_words_that_are_looked_for_first_are_in_all_that_counts():
    """Where none of them stands, the rules are not even loaded."""
    missing = [one for one in faults._NEEDLES + (faults._HEADER,) if not any(mark in one for mark in ended.ERROR_MARKS)]
    assert missing == []


@pytest.mark.parametrize("stack,text", [
    ("lego", "('Final validation metrics: '\n"), ("lego", BAR % ("100%", "12/12")),
    ("lego", "=== DONE: solved=4 / scored=9 ===\n"),
    ("lego", "=== Inference complete ===\n"), ("prime", "12:00:09 SUCCESS RL trainer finished!\n"),
    ("prime", "12:00:09 SUCCESS Evals finished!\n")])
def test_each_way_to_say_that_it_finished_counts_in_a_bare_log(tmp_path, stack, text):
    before = DONE if stack == "lego" else "Starting training loop (max_steps=100)\n" + "".join(map(prime_step, range(90, 101)))
    log = write_log(tmp_path / "x.log", before + text, 7200)
    found, code = look(make_target({MAIN[stack]: log}, "unknown", "", stack))
    assert (found.verdict, found.ending.how, code) == ("ended", "ended well", 0), found.conclusion


def test_words_of_finishing_with_steps_behind_them_are_somebody_elses(tmp_path):
    found, _ = look_at(tmp_path, steps(6) + "Training finished.\n" + step(7), 60, "over", exit=told(0))
    assert (found.ending.how, found.step) == ("ended early", 7)
