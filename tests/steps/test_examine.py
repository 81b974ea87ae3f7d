"""How a run is doing, over state, kind, the log's age and clock: verdict, conclusion and the exit code of `status`."""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from steps.made_runs import NOW, look, look_at, make_target, prime_step, step, steps, write_log

from rlrun.steps import examine
from rlrun.vitals import Point

HEALTHY, AT_RISK, STOP, NO_STEP, ENDED, UNKNOWN = (
    "healthy", "at risk", "recommend stopping", "no step yet", "ended", "unknown")
GOOD = steps(12)
SLOW = steps(12, seconds=600)
NO_STEPS = "[config] /x/demo.env\n[HEAD] starting ray head\n"
BARS = "".join("\rTraining Progress:  12%%|█▎  | 12/100 [00:%02d<05:23]" % second for second in range(60))
TRACE = 'Traceback (most recent call last):\n  File "/x/y.py", line 3, in main\n    go()\nValueError: boom\n'
LIMIT = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-08-02T11:59:59 DUE TO TIME LIMIT ***\n"
ERROR = "12:00:00 ERROR could not reach the tracker, will be tried again\n"
VALIDATION = "(TaskRunner pid=7) step:0 - val-core/swe/reward/mean@1:0.0 - val-aux/num_turns/mean:21.0\n"
TOLD = "{'test_freq': 4, 'save_freq': -1}\n".replace("{", "(TaskRunner pid=7) {'trainer': {")
CHATTER = "some words of an agent\n" * 1000
R3 = steps(12, training__rollout_actor_probs_pearson_corr="0.75")


# state, kind, age of the log in seconds, its text; then verdict, words of the conclusion, exit
TABLE = {
    "live": ("live", "train", 5, GOOD, HEALTHY, "^no known signature matched; log last written", 0),
    "live, within five steps and ten minutes": ("live", "train", 590, GOOD, HEALTHY, "no known signature", 0),
    "L9: live, stands still": ("live", "train", 660, GOOD, STOP, "stalled for 11m.*usual step: 1m.*stands still", 1),
    "live, long steps": ("live", "train", 1700, SLOW, HEALTHY, "no known signature", 0),
    "live, long steps, silent for more than they take": ("live", "train", 1860, SLOW, STOP, "stalled for 31m", 1),
    "L9: live, after a step with a validation": ("live", "train", 1500, TOLD + GOOD, HEALTHY, "no known signature", 0),
    "L9: live, a validation that never ends": ("live", "train", 1900, TOLD + GOOD, STOP, "stalled for 31m", 1),
    "live, starting": ("live", "train", 5, NO_STEPS, NO_STEP, "Ray head starting", 0),
    "live, starting in silence": ("live", "train", 1500, NO_STEPS, NO_STEP, "Ray head starting", 0),
    "live, a start that stands still": ("live", "train", 1900, NO_STEPS, AT_RISK, "stalled for 31m", 1),
    "L1: live, validated before the first step": (
        "live", "train", 5, VALIDATION, NO_STEP, "validated at step 0; no training step yet", 0),
    "L1: live, rounded": ("live", "train", 5, steps(12, actor__lr="0.000"), HEALTHY, "no known signature", 0),
    "L3: live, no number": ("live", "train", 5, GOOD + step(13, actor__pg_loss="np.float64(nan)"), STOP,
                            r"actor/pg_loss is not a finite number \(nan\), at step 13 first", 1),
    "L3: live, a share of none": ("live", "train", 5, GOOD + step(13, fully_async__partial__partial_ratio="nan"), HEALTHY,
                                  "no known signature", 0),
    "L5: live, behind bars": ("live", "train", 5, BARS + "\r" + GOOD.replace("\n", "\n" + BARS + "\r"), HEALTHY, "no known", 0),
    "live, an idle server": ("live", "eval", 7200, "[vLLM] ready after 120s\n", HEALTHY, "tells no steps", 0),
    "live, a long trial": ("live", "infer", 1900, "[vLLM] ready after 120s\n", HEALTHY, "tells no steps", 0),
    "live, no kind is known": ("live", "", 660, GOOD, STOP, "stalled", 1),
    "live, a true zero at a warm-up's first step": ("live", "train", 5, step(1, actor__lr="np.float64(0.0)"), HEALTHY, "", 0),
    "live, the clock of the log is ahead": ("live", "train", -90, GOOD, HEALTHY, "just now", 0),
    "elsewhere": ("elsewhere", "", 5, GOOD, HEALTHY, "^by its numbers alone.*no process of it is here", 0),
    "elsewhere, sick": ("elsewhere", "", 5, R3, STOP, "R3", 1),
    "elsewhere, silent": ("elsewhere", "", 660, GOOD, UNKNOWN, "whether it lives can't be told", 1),
    "unknown": ("unknown", "", 300, GOOD, HEALTHY, "^by its numbers alone", 0),
    "unknown, silent": ("unknown", "", 7200, GOOD, UNKNOWN, "2h.*whether it lives can't be told", 1),
    "unknown, silent and sick": ("unknown", "", 7200, R3, UNKNOWN, "its last numbers: Routing replay", 1),
    "unknown, silent, an error that ended nothing": ("unknown", "", 7200, GOOD + ERROR, UNKNOWN, "can't be told", 1),
    "unknown, steps of ten minutes, a mere error": ("unknown", "", 200, SLOW + ERROR, UNKNOWN, "ends with an error", 1),
    "unknown, an error that was followed by steps": ("unknown", "", 200, GOOD + ERROR + CHATTER + step(13), HEALTHY, "by its", 0),
    "fresh, ends with a traceback": ("elsewhere", "", 5, GOOD + TRACE, UNKNOWN, "ends with an error.*ValueError: boom", 1),
    "silent, ends with a traceback": ("unknown", "", 7200, GOOD + TRACE, ENDED, "an exception ended it", 4),
    "silent, a traceback long before its end": ("unknown", "", 7200, GOOD + TRACE + CHATTER, UNKNOWN, "can't be told", 1),
    "L21: fresh, the time limit": ("elsewhere", "", 5, GOOD + LIMIT, ENDED, "the batch job's time limit", 4),
    "L21: silent, the time limit": ("unknown", "", 7200, GOOD + LIMIT, ENDED, "the batch job's time limit", 4),
    "L15: told to end": ("unknown", "", 7200, GOOD + "[FullyAsyncTrainer] Detected termination signal (None), stopping\n", ENDED,
                         "the trainer was told to end.*at step 12 of 100", 4),
    "elsewhere, words of finishing, and it goes on": (
        "elsewhere", "", 5, steps(6) + "Training finished.\n" + step(7), HEALTHY, "by its numbers", 0),
    "unknown, its last step is done": ("unknown", "", 7200, steps(12, total=12), ENDED, "12 of 12", 0),
    "elsewhere, finished": ("elsewhere", "", 5, steps(12, total=12) + 'Final validation metrics: {\n', ENDED, "finished", 0),
    "empty": ("live", "train", 5, "", NO_STEP, "it lives; log last written", 0),
    "unknown, a folder's empty log": ("unknown", "", 7200, "", UNKNOWN, "can't be told", 1),
}


@pytest.mark.parametrize("name", sorted(TABLE))
def test_verdicts(tmp_path, name):
    state, kind, age, text, verdict, words, code = TABLE[name]
    found, exit_code = look_at(tmp_path, text, age, state, kind=kind)
    assert (found.verdict, exit_code) == (verdict, code), found.conclusion
    assert re.search(words, found.conclusion), found.conclusion
    assert found.left_seconds is None or state == "live", "nothing is left where nobody knows whether it lives"
    assert found.ending is None or verdict == ENDED
    assert "\x1b" not in found.conclusion and "\n" not in found.conclusion


def test_what_is_left_is_told_of_a_live_run_alone(tmp_path):
    assert look_at(tmp_path, GOOD, 5)[0].left_seconds == 88 * 60.0
    for state, age in (("live", 660), ("elsewhere", 5), ("unknown", 7200)):
        found, _ = look_at(tmp_path, GOOD, age, state)
        assert (found.left_seconds, found.left_from) == (None, "")


def test_where_a_run_is_that_went_silent_elsewhere(tmp_path):
    found, code = look_at(tmp_path, GOOD, 7200, "elsewhere", host="gpu-9")
    assert (found.verdict, code) == (UNKNOWN, 1) and "its processes are on gpu-9" in found.conclusion


def test_no_log_yet(tmp_path):
    found, code = look(make_target({"train": str(tmp_path / "gone.log")}))
    assert (found.verdict, code) == (UNKNOWN, 1) and "no log to read" in found.conclusion
    assert any("no log of it is there yet" in note for note in found.notes)


def test_L7_a_log_that_was_truncated_from_outside(tmp_path):
    log = write_log(tmp_path / "demo.log", GOOD)
    with open(log, "r+b") as file:
        file.seek(0, 2)
        file.seek(8 << 20, 1)
        file.write((step(13) + step(14)).encode())
    os.utime(log, (NOW, NOW))
    found, code = look(make_target({"train": log}))
    assert (found.verdict, found.step, code) == (HEALTHY, 14, 0)
    assert any("bytes of it are a hole" in note for note in found.notes)
    assert not any("hole" in note for note in look_at(tmp_path / "other", GOOD)[0].notes)


def test_a_log_whose_steps_lie_too_far_back(tmp_path):
    log = write_log(tmp_path / "demo.log", GOOD)
    with open(log, "r+b") as file:  # 70 MiB that are no line end, and no hole
        file.seek(0, 2)
        for _ in range(70):
            file.write(b"\r 3%" * (1 << 18))
    os.utime(log, (NOW, NOW))
    found, code = look(make_target({"train": log}))
    assert (found.verdict, found.step, code) == (UNKNOWN, None, 1)
    assert "no step in the last 64 MiB of its log; its beginning tells of step 12" in found.conclusion


CLOCKS = [  # clock of the last step, the last line's, age of the log: seconds since the step
    ("12:00:01", "12:00:31", 0, 30), ("12:00:01", "12:00:00", 0, 0), ("12:00:01", "12:00:00", 40, 40),
    ("23:59:50", "00:00:10", 5, 25),
    ("02:58:00", "02:10:00", 0, 0),  # the end of summer time
    ("01:59:00", "03:01:00", 0, 3720), ("12:00:00", "23:59:00", 0, 43140), ("12:00:01", "12:00:31", -9, 30),
    ("", "12:00:00", 0, None), ("12:00:00", "", 0, None), ("12:00:00", "12:00:60", 1, 61)]


@pytest.mark.parametrize("clock,last,idle,age", CLOCKS)
def test_the_age_of_a_step_by_its_logs_own_clock(clock, last, idle, age):
    data = b"noise\n" + (b"\x1b[2m%s\x1b[0m INFO x\n" % last.encode() if last else b"INFO x\n")
    assert examine.read_step_age(Point(1, {}, (), None, 0, clock), data, idle) == age


@pytest.mark.parametrize("last,age,verdict", [
    ("11:59:59", 2, HEALTHY),  # lines of threads come out of order
    ("11:10:00", 2, HEALTHY),  # the clock was set back
    ("12:30:00", 2, STOP), ("12:05:00", 2, HEALTHY)])
def test_a_log_that_goes_on_without_steps(tmp_path, last, age, verdict):
    text = "".join(prime_step(number) for number in range(88, 101)) + "%s    INFO waiting\n" % last
    found, code = look_at(tmp_path, text, age, stack="prime", kind="rl")
    assert (found.verdict, code) == (verdict, 0 if verdict == HEALTHY else 1), found.conclusion
    assert "no step comes" in found.conclusion or verdict == HEALTHY


@pytest.mark.parametrize("kind,verdict", [("rl", STOP), ("sft", STOP), ("inference", HEALTHY), ("evals", HEALTHY)])
def test_only_a_kind_that_tells_steps_can_stand_still(tmp_path, kind, verdict):
    text = "12:00:00 INFO Application startup complete\n" if verdict == HEALTHY else "".join(map(prime_step, range(90, 101)))
    log = write_log(tmp_path / "x.log", text, 7200)
    name = {"inference": "inference", "evals": "evals"}.get(kind, "trainer")
    found, code = look(make_target({name: log}, "live", kind, "prime"))
    assert (found.verdict, code) == (verdict, int(verdict == STOP)), found.conclusion


def test_P11_a_stopped_trainer_is_told_as_such(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"])
    try:
        _, state = os.waitpid(child.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(state)
        log = write_log(tmp_path / "demo.log", GOOD, 660)
        found, _ = look(make_target({"train": log}, pids=(("runner", os.getpid()), ("trainer", child.pid))))
    finally:
        child.kill()
        child.wait()
    assert "pid %d is stopped (state T)" % child.pid in found.conclusion
    assert found.recommendations[0].startswith("kill -CONT %d " % child.pid)


def test_L13_the_cause_stands_in_a_siblings_log(tmp_path):
    """The trainer's log shows SIGTERM; the orchestrator's has the exception, earlier."""
    trainer = "".join(map(prime_step, range(90, 101))) + "12:00:09 WARNING Received 15 death signal, shutting down workers\n"
    orchestrator = "12:00:05 ERROR Fatal error in run_orchestrator\n" + TRACE
    logs = {"trainer": write_log(tmp_path / "trainer.log", trainer, 60),
            "orchestrator": write_log(tmp_path / "orchestrator.log", orchestrator, 64)}
    found, code = look(make_target(logs, "over", "rl", "prime", exit={"status": 1, "signal": None}))
    assert code == 4 and found.ending.first_error.log == logs["orchestrator"]
    assert "ValueError: boom" in found.ending.first_error.text


def test_recommendations_are_lines_to_run(tmp_path):
    found, _ = look_at(tmp_path / "a b", steps(12, critic__rewards__mean="0.0"))
    assert found.verdict == AT_RISK
    assert found.recommendations[0] == "grep -aoE 'outcome=[a-z_]+' '%s' | sort | uniq -c" % (tmp_path / "a b" / "demo.log")
    assert not re.search(r"\{\w+\}|\bRUN\b|\bLOG\b", " ".join(found.recommendations))


@pytest.fixture
def public_path():
    """A folder that every user may enter; those of the tests may not be."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


READ_AS_NOBODY = """
import os, sys
from steps.made_runs import look, look_at, make_target
look_at(sys.argv[1] + ".d", sys.argv[1], 7200, "over")  # what is loaded late may lie where nobody may read
os.setgid(65534); os.setuid(65534)
found, code = look(make_target({"train": sys.argv[1]}, sys.argv[2], exit=eval(sys.argv[3])))
print(found.verdict, code, found.conclusion, sep="|")
"""


@pytest.mark.parametrize("state,exit_told,verdict,words,code", [
    ("live", None, UNKNOWN, "^its train log can't be read: permission denied", 1),
    ("elsewhere", None, UNKNOWN, "can't be read: permission denied", 1),
    ("over", {"status": 0, "signal": None}, ENDED, "^exit status 0; its train log can't be read", 0),
    ("over", {"status": 1, "signal": None}, ENDED, "^exit status 1; its train log can't be read", 4),
    ("over", {"status": 137, "signal": "SIGKILL"}, ENDED, "^killed by SIGKILL; its train log can't be read", 4),
    ("over", None, UNKNOWN, "its train log can't be read", 1)])
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_log_that_may_not_be_read_is_not_taken_for_an_empty_one(public_path, state, exit_told, verdict, words, code):
    log = write_log(public_path / "demo.log", GOOD, 5)
    os.chmod(log, 0o600)
    os.chown(log, 1, 1)
    paths = os.pathsep.join([os.path.dirname(os.path.dirname(os.path.abspath(__file__))), os.getcwd()])
    done = subprocess.run([sys.executable, "-c", READ_AS_NOBODY, log, state, repr(exit_told)], env={"PYTHONPATH": paths},
                          stdout=subprocess.PIPE, check=True)
    told, told_code, conclusion = done.stdout.decode().strip().split("|", 2)
    assert (told, int(told_code)) == (verdict, code), conclusion
    assert re.search(words, conclusion) and "mode 600" in conclusion and "daemon" in conclusion


@pytest.mark.parametrize("left, says", [("0:56", "56s left of it, and about 1h 28m to go"), ("2-00:00:00", ""),
                                        ("UNLIMITED", "")])
def test_a_job_that_ends_before_its_last_step_is_told(tmp_path, left, says):
    record = {"job_told": {"7": {"state": "RUNNING", "left": left}}, "jobs": ["7"]}
    found, code = look_at(tmp_path, GOOD, jobs=(("7", "RUNNING"),), record=record)
    notes = [note for note in found.notes if "time limit" in note]
    assert code == 0 and len(notes) == (1 if says else 0) and says in "".join(notes), found.notes
