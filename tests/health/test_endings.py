"""How a run ended and what went wrong first: recorded logs, each named after what went wrong, with a healthy twin."""
import re
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies

from rlrun import vitals
from rlrun.health import endings
from rlrun.health.endings import Found, LogText

RECORDED = Path(__file__).resolve().parent.parent / "recorded" / "endings"
STEPS = (re.compile(rb"step:\d+ - training/|SUCCESS.{0,40}Step \d+ \|"),)

# log -> kind, line, clock, the quote's beginning, is_consequence: of what pick_first_error picks
SICK = {
    "chained_exception": ("traceback", 14, "", "KeyError: 'multi_modal_inputs'", False),
    "gpu_out_of_memory": ("oom-gpu", 10, "", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.30 GiB", False),
    "host_out_of_memory": ("oom-host", 6, "12:11:21", "2 Workers (tasks / actors) killed due to memory pressure (OOM)", False),
    "slurm_oom_kill": ("oom-host", 6, "", "slurmstepd: error: Detected 1 oom_kill event in StepId=11300781.0.", False),
    "worker_sigkill": ("killed", 7, "", "A worker died or was killed while executing a task by an unexpected system error. … "
                       "Worker exit type: SYSTEM_ERROR", False),
    "shell_killed": ("killed", 6, "", "scripts/run.sh: line 412: 27001 Killed", False),
    "nccl_timeout": ("nccl", 6, "12:20:05", "[Rank 5] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=808", False),
    "time_limit": ("time-limit", 13, "12:09:37", "slurmstepd: error: *** JOB 494583 ON n1 CANCELLED AT", False),
    "node_failure": ("node", 13, "12:09:37", "slurmstepd: error: *** JOB 494583 ON n1 CANCELLED AT", False),
    "preempted": ("preempted", 13, "12:09:37", "slurmstepd: error: *** JOB 494583 ON n1 CANCELLED AT", False),
    "job_cancelled": ("cancelled", 13, "12:09:37", "slurmstepd: error: *** JOB 494583 ON n1 CANCELLED AT", False),
    "death_signal.trainer": ("killed", 4, "00:00:04", "Received 15 death signal, shutting down workers", True),
    "death_signal.orchestrator": ("traceback", 13, "23:59:59", "ValueError: no trainable rollouts in 3 batches", False),
    "death_signal.launch": ("error", 2, "00:00:03", "Error: Process 'orchestrator' failed with exit code 1", True),
    "shutdown_noise": ("traceback", 9, "", "AssertionError", False),
    "survived_then_disk_full": ("disk", 20, "", "OSError: [Errno 28] No space left on device: '/data/ckpt/step_7/m.pt'", False),
    "segfault": ("crash", 6, "", "Fatal Python error: Segmentation fault", False),
    "engine_died": ("oom-gpu", 7, "12:03:01", "ValueError: Free memory on device (3.1/79.1 GiB) on startup", False),
    "exit_zero_traceback": ("traceback", 9, "", "ModuleNotFoundError: No module named 'flash_attn'", False),
    "nul_hole_and_bars": ("traceback", 10, "", "ZeroDivisionError: division by zero", False),
    "json_log": ("error", 2, "12:00:02", 'Fatal error in "orchestrate"', False),
    "exception_group": ("traceback", 10, "", "LookupError: no env", False),
}
HEALTHY = sorted(path.stem for path in RECORDED.glob("*_healthy.log"))


def read(name, **changed):
    path = RECORDED / (name + ".log")
    return LogText(name, str(path), path.read_bytes(), 0, 1, 0.0)._replace(**changed)


def make(data, **changed):
    return LogText("x", "/logs/x.log", data, 0, 1, 0.0)._replace(**changed)


def found(kind="traceback", text="ValueError: x", line=7, is_consequence=False, is_noise=False, is_survived=False):
    return Found(vitals.Quote("/logs/a b.log", 900, line, text), kind, "", is_consequence, is_noise, is_survived)


def judge(status=None, signal="", is_told=True, step=None, total=None, finished=False, error=None, oom_kills=None,
          is_short=False):
    ending = endings.judge_end(status, signal, is_told, step, total, finished, error, oom_kills, is_short)
    assert type(ending) is vitals.Ending
    assert len(ending.advice) <= 3
    return ending


def list_real(text, **options):
    return [one for one in endings.find_errors(text, **options) if not one.is_noise]


# The logs.

def test_each_sick_log_has_a_healthy_twin_and_is_expected_of():
    names = {path.stem for path in RECORDED.glob("*.log")}
    sick = {name for name in names if not name.endswith("_healthy")}
    assert sick - set(SICK) == {"died_in_a_line", "ended_early", "ended_early_cause", "survived_by_steps"}
    shared = {"time_limit": "job_cancelled", "node_failure": "job_cancelled", "preempted": "job_cancelled",
              "ended_early_cause": "ended_early", "survived_by_steps": "survived_then_disk_full"}
    for name in sick:
        assert shared.get(name, name.split(".")[0]) + "_healthy" in names


# Where the steps' lines are not known, what was survived is the first.
@pytest.mark.parametrize("name, progress", [(name, progress) for name in sorted(SICK) for progress in ((), STEPS)
                                            if progress or name != "survived_then_disk_full"])
def test_first_error(name, progress):
    kind, line, clock, text, is_consequence = SICK[name]
    log = read(name)
    first = endings.pick_first_error([log], progress=progress)
    assert type(first) is Found
    assert (first.kind, first.quote.line, first.clock, first.is_consequence) == (kind, line, clock, is_consequence)
    assert first.quote.text.startswith(text) and len(first.quote.text) <= 240
    assert first.quote.log == log.path and not first.is_survived
    # The place is true: there, in that line, the decisive words stand.
    assert log.data.count(b"\n", 0, first.quote.offset) + 1 == line
    assert text[:12].encode() in log.data[first.quote.offset:first.quote.offset + 300].replace(b'\\"', b'"')


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_twin_triggers_nothing(name):
    assert list_real(read(name)) == []
    assert endings.pick_first_error([read(name)]) is None
    assert endings.pick_first_error([read(name)], progress=STEPS) is None


def test_L13_the_earliest_error_is_in_a_sibling_and_midnight_lies_between():
    logs = [read("death_signal." + name) for name in ("launch", "trainer", "orchestrator")]
    for order in (logs, logs[::-1]):
        first = endings.pick_first_error(order, progress=STEPS)
        assert first.quote.log.endswith("death_signal.orchestrator.log") and first.kind == "traceback"


def test_of_two_causes_the_clock_decides_and_without_one_the_order():
    late = make(b"23:59:58   ERROR one thing\nTraceback (most recent call last):\n  f()\nOSError: late\n", path="/a")
    early = make(b"23:50:00   ERROR one thing\nTraceback (most recent call last):\n  f()\nOSError: early\n", path="/b")
    after = make(b"00:00:10   ERROR one thing\nTraceback (most recent call last):\n  f()\nOSError: after\n", path="/c")
    timeless = make(b"Traceback (most recent call last):\n  f()\nOSError: timeless\n", path="/d")
    assert endings.pick_first_error([late, early]).quote.log == "/b"
    assert endings.pick_first_error([after, late]).quote.log == "/a"
    assert endings.pick_first_error([timeless, early]).quote.log == "/d"
    assert endings.pick_first_error([late, timeless]).quote.log == "/a"


def test_a_traceback_before_an_earlier_line_of_level_error():
    text = b"12:00:00   ERROR Could not reach the board\nTraceback (most recent call last):\n  f()\nOSError: x\n"
    assert endings.pick_first_error([make(text)]).kind == "traceback"
    assert endings.pick_first_error([make(b"12:00:00   ERROR Could not reach the board\n")]).kind == "error"


def test_nccl_is_named_once_with_first_rank_and_operation():
    errors = endings.find_errors(read("nccl_timeout"))
    assert [one.kind for one in errors] == ["nccl", "crash", "crash", "killed"]
    ending = judge(1, step=3, total=9, error=errors[0])
    assert (ending.how, ending.words) == ("failed", "NCCL timed out: _ALLGATHER_BASE, first on rank 5 (exit status 1)")


def test_ranks_say_the_same_once():
    kinds = [one.kind for one in endings.find_errors(read("gpu_out_of_memory"))]
    assert kinds == ["oom-gpu", "nccl"]
    assert len(endings.find_errors(make(b"".join(
        b"[rank%d]: Traceback (most recent call last):\n[rank%d]:   File \"x\", line 1\n[rank%d]: ValueError: rank %d at 0x%x\n"
        % (n, n, n, n, n) for n in range(8))))) == 1


def test_mixed_ranks_are_told_apart():
    text = (b"[rank0]: Traceback (most recent call last):\n[rank1]: Traceback (most recent call last):\n"
            b"[rank0]:   File \"x\", line 1\n[rank1]:   File \"x\", line 1\n"
            b"[rank1]: KeyError: 'one'\n[rank0]: ValueError: zero\n")
    assert [one.quote.text for one in endings.find_errors(make(text))] == ["KeyError: 'one'", "ValueError: zero"]


def test_survived_by_steps():
    log = read("survived_by_steps")
    assert [one.kind for one in endings.find_errors(log)] == ["traceback"]
    assert endings.pick_first_error([log], progress=STEPS) is None
    # L15: what a step or two followed may have ended it after all.
    cause = endings.pick_first_error([read("ended_early_cause")], progress=STEPS)
    assert cause.is_survived and cause.quote.text == "KeyError: 'raw_prompt_ids'"


def test_an_error_of_a_log_without_steps_is_held_against_the_last_step():
    steps = make(b"12:30:00 SUCCESS Step 8 | 3.2s\n" * 3, path="/trainer")
    server = make(b"12:00:00   ERROR x y\nTraceback (most recent call last):\n  f()\nOSError: handled\n", path="/server")
    assert endings.pick_first_error([steps, server], progress=STEPS) is None
    died = server._replace(data=server.data.replace(b"12:00:00", b"12:30:02"))
    assert endings.pick_first_error([steps, died], progress=STEPS).quote.log == "/server"


def test_the_place_counts_from_where_the_text_begins():
    whole = read("chained_exception")
    cut = 700
    text = whole._replace(data=whole.data[cut:], offset=cut, first_line=whole.data.count(b"\n", 0, cut) + 1)
    for progress in ((), STEPS):
        first = endings.pick_first_error([text], progress=progress)
        assert first.quote == endings.pick_first_error([whole]).quote
    assert endings.find_errors(text._replace(first_line=None))[0].quote.line is None


def test_a_cut_first_line_is_not_believed():
    assert endings.find_errors(make(b"Killed\nall is well\n", offset=70, first_line=None)) == ()
    assert endings.find_errors(make(b"Killed\nall is well\n"))[0].kind == "killed"


def test_rays_message_is_cut_to_its_decisive_part():
    text = endings.find_errors(read("worker_sigkill"))[0].quote.text
    assert "Worker exit type: SYSTEM_ERROR" in text and "ffffffff" not in text


def test_controls_and_colour_are_made_harmless():
    text = b"Traceback (most recent call last):\n  f()\n\x1b[31mValueError: a\x07b\xff \xe2\x80\xae\x1b[0m\n"
    assert endings.find_errors(make(text))[0].quote.text == "ValueError: a\\x07b\ufffd \\u202e"


@pytest.mark.parametrize("line", [
    b"ERROR 0.0%", b"ERRORS: 0", b"12:00:00   ERROR rate 0.2", b"0 errors, 3 FATAL ones avoided",
    b"https://x.org/ERROR: none at all", b"  ERROR: of another line's", b"Killed 3 stale processes",
    b"INFO: ERROR handler installed", b"12:00:00    INFO ERROR: is a word", b'{"level": "ERROR", "text": "of a data set"}',
    b"step:3 - val/ERROR: x y z:0.1", b"x" * 500 + b" ERROR: too far into its line",
    b"A worker died or was killed. Worker exit type: INTENDED_USER_EXIT", b"response: Traceback (most recent call last):",
    b"if out of memory, then lower the batch", b"12:00:00 WARNING CUDA out of memory, halving the batch", b"CANCELLED AT noon",
])
def test_words_that_are_no_error(line):
    assert endings.find_errors(make(b"a line\n" + line + b"\nanother\n")) == ()


@pytest.mark.parametrize("line, kind", [
    (b"[FATAL] config must define a name", "error"), (b"FATAL: no such device here", "error"),
    (b"2026-08-01 12:00:01,123 - trainer.main - ERROR - could not save", "error"),
    (b"[2026-08-01 12:00:01,123][ray.data][ERROR] - could not save", "error"),
    (b"ERROR:root:could not save", "error"), (b"Killed", "killed"), (b"MemoryError: Cannot allocate memory is no line", None),
    (b"E1130 12:13:49.388000 12 torch/elastic/api.py:882] failed (exitcode: -9) local_rank: 3 (pid: 1) of binary: p", "killed"),
    (b"E1130 12:13:49.388000 12 torch/elastic/api.py:882] failed (exitcode: 1) local_rank: 3 (pid: 1) of binary: p", "error"),
    (b"tee: /x/a.log: Disk quota exceeded", "disk"), (b"scripts/run.sh: line 3: jq: command not found", "error"),
    (b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "oom-gpu"),
    (b"RuntimeError: CUDA error: out of memory", "oom-gpu"), (b"[12.5] Out of memory: Killed process 77 (python)", "oom-host"),
])
def test_single_lines(line, kind):
    assert [one.kind for one in endings.find_errors(make(b"a line\n" + line + b"\n"))] == ([kind] if kind else [])


def test_limit_drops_mere_error_lines_first():
    lines = b"".join(b"12:00:00   ERROR thing %s happened\n" % (b"x" * n) for n in range(1, 30))
    text = lines + b"Traceback (most recent call last):\n  f()\nKeyError: 1\n"
    kinds = [one.kind for one in endings.find_errors(make(text), limit=5)]
    assert kinds == ["error"] * 4 + ["traceback"]


@hypothesis.given(strategies.lists(strategies.sampled_from([
    b"Traceback (most recent call last):", b"\n", b"\r", b"\0", b"  File", b"ValueError: x", b"(A pid=1) ", b"[rank0]: ", b"\xff",
    b"12:00:00   ERROR word word", b"Killed", b"above exception", b"ray.exceptions.RayTaskError(X): y", b"Training finished!",
    b'{"timestamp": "T12:00:00", "level": "ERROR", "message": "a\\ud800"', b"*** JOB 1 CANCELLED AT T1 DUE TO TIME LIMIT",
    b"\x1b[3", b"{", b" Exception Group ", b"| ", b"step:1 - training/"]), max_size=40), strategies.integers(0, 5))
def test_any_bytes_are_borne_and_every_place_is_true(parts, limit):
    text = make(b"".join(parts), offset=11, first_line=4)
    errors = endings.find_errors(text, limit, is_cut=False)
    assert len(errors) <= limit and sorted(errors, key=lambda one: one.quote.offset) == list(errors)
    for one in errors:
        at = one.quote.offset - 11
        assert at == 0 or text.data[at - 1:at] in (b"\n", b"\r", b"\0")
        assert one.quote.line == 4 + text.data.count(b"\n", 0, at)
        assert one.quote.text and "\n" not in one.quote.text and "\x1b" not in one.quote.text
    endings.pick_first_error([text, text], progress=STEPS)
    endings.find_finished(text)


# Finishing.

def test_words_of_finishing():
    for line in (b"Training finished!", b"\x1b[2m12:00:07\x1b[0m SUCCESS RL trainer finished!\x1b[0m\x1b[0m",
                 b"Evals finished!\r", b"(TaskRunner pid=1) Training completed successfully."):
        assert endings.find_finished(make(b"x\n" + line + b"\nnoise\n")).line == 2, line
    for line in (b"Training finished step 3", b"weight transfer finished", b"when training is done, push it", b"unfinished"):
        assert endings.find_finished(make(b"x\n" + line + b"\n")) is None, line


def test_a_stacks_own_words_of_finishing_make_the_rest_noise():
    text = b"fit is over\nTraceback (most recent call last):\n  f()\nOSError: x\n"
    more = [re.compile(rb"^fit is over$", re.MULTILINE)]
    assert endings.find_finished(make(text), more).text == "fit is over"
    assert list_real(make(text)) and not list_real(make(text), more=more)


def test_an_earlier_attempts_words_of_finishing_are_not_this_ones():
    text = (b"Training finished!\n" + b"a line of the next attempt\n" * 20000
            + b"Traceback (most recent call last):\n f()\nKeyError: 1\n")
    assert endings.find_finished(make(text)) is None
    assert len(list_real(make(text))) == 1


# The judgement.

@pytest.mark.parametrize("options, how, words", [
    (dict(status=0, step=10, total=10), "ended well", "step 10 of 10, exit status 0"),
    (dict(status=0, step=4, total=10), "ended early", "exit status 0 at step 4 of 10"),
    (dict(status=0, step=4, total=10, finished=True), "ended early", "said that it finished at step 4 of 10"),
    (dict(status=0, finished=True), "ended well", "its log says that it finished"),
    (dict(status=0, is_short=True), "ended well", "exit status 0"),
    (dict(status=0, step=4), "ended", "exit status 0; whether it did all its steps is not known"),
    (dict(status=0, step=4, total=10, error=found()), "failed", "an exception ended it, though the exit status is 0"),
    (dict(status=0, step=10, total=10, error=found()), "failed", "an exception ended it, though the exit status is 0"),
    (dict(status=0, step=10, total=10, error=found("error")), "ended well", "step 10 of 10, exit status 0"),
    (dict(status=0, step=10, total=10, error=found(is_survived=True)), "ended well", "step 10 of 10, exit status 0"),
    (dict(status=0, step=4, total=10, error=found(is_survived=True)), "ended early", "exit status 0 at step 4 of 10"),
    (dict(status=1, error=found()), "failed", "an exception ended it (exit status 1)"),
    (dict(status=1, error=found("error")), "failed", "its log tells an error (exit status 1)"),
    (dict(status=1), "failed", "exit status 1; no error in its logs"),
    (dict(status=1, error=found(is_noise=True)), "failed", "exit status 1; no error in its logs"),
    (dict(status=1, error=found(is_consequence=True)), "failed",
     "exit status 1; its log shows only what followed from a failure"),
    (dict(status=1, error=found("oom-gpu")), "failed", "out of memory on the GPU (exit status 1)"),
    (dict(status=1, finished=True, step=10, total=10), "ended well",
     "its log says that it finished; the exit status 1 after it is the shutdown's"),
    (dict(status=1, finished=True, error=found()), "failed", "an exception ended it (exit status 1)"),
    (dict(signal="SIGINT"), "killed", "stopped by SIGINT"),
    (dict(status=130), "killed", "stopped by SIGINT"),
    (dict(status=143, error=found("killed", is_consequence=True)), "killed", "stopped by SIGTERM"),
    (dict(status=-15), "killed", "stopped by SIGTERM"),
    (dict(signal="SIGTERM", error=found("error")), "killed", "stopped by SIGTERM"),
    (dict(signal="SIGTERM", error=found()), "failed", "an exception ended it (SIGTERM after it)"),
    (dict(signal="SIGTERM", finished=True), "ended well",
     "its log says that it finished; the SIGTERM after it is the shutdown's"),
    (dict(status=139), "failed", "crashed in native code (SIGSEGV)"),
    (dict(signal="SIGKILL"), "killed", "SIGKILL, most likely by the kernel's out-of-memory killer"),
    (dict(status=137, oom_kills=2), "killed",
     "SIGKILL, most likely by the kernel's out-of-memory killer (oom_kill 2 in this control group)"),
    (dict(status=137, oom_kills=0), "killed",
     "SIGKILL: somebody's kill -9, or the kernel's out-of-memory killer in another control group"),
    (dict(status=137, error=found("oom-gpu")), "failed", "out of memory on the GPU (SIGKILL after it)"),
    (dict(status=137, error=found("oom-host")), "killed", "SIGKILL by the kernel's out-of-memory killer"),
    (dict(status=137, error=found()), "killed", "SIGKILL, after an error in its log"),
    (dict(status=1, error=found("killed")), "killed",
     "a process of it was killed, perhaps by the kernel's out-of-memory killer (exit status 1)"),
    (dict(status=1, error=found("killed"), oom_kills=1), "killed",
     "a process of it was killed, most likely by the kernel's out-of-memory killer (oom_kill 1 in this control group) "
     "(exit status 1)"),
    (dict(signal="SIGTERM", error=found("time-limit")), "killed", "the batch job's time limit"),
    (dict(is_told=False, step=4, total=10), "died without trace", "its log just stops: killed, perhaps by the kernel's "
     "out-of-memory killer, or the machine went down"),
    (dict(is_told=False, step=4, total=10, oom_kills=3), "died without trace",
     "its log just stops: killed, perhaps by the kernel's out-of-memory killer (oom_kill 3 in this control group)"),
    (dict(is_told=True), "died without trace", "its log just stops: killed, perhaps by the kernel's out-of-memory killer, or "
     "the machine went down"),
    (dict(is_told=False, error=found()), "failed", "an exception ended it"),
    (dict(is_told=False, error=found("error")), "failed", "its log tells an error"),
    (dict(is_told=False, error=found("killed", is_consequence=True)), "killed",
     "its log says that it was told to stop, not by whom; its exit was not recorded"),
    (dict(is_told=False, finished=True), "ended well", "its log says that it finished"),
    (dict(is_told=False, step=10, total=10), "ended", "did its last step, 10 of 10; its exit was not recorded"),
    (dict(is_told=False, is_short=True), "ended", "its process is gone; its exit was not recorded"),
])
def test_judgement(options, how, words):
    ending = judge(**options)
    assert (ending.how, ending.words) == (how, words)


def test_the_recorded_exit_and_the_place_are_handed_on():
    ending = judge(137, error=found("oom-gpu"))
    assert (ending.status, ending.signal, ending.first_error) == (137, "SIGKILL", found().quote)
    assert judge(0, finished=True, error=found(is_noise=True)).first_error is None


@pytest.mark.parametrize("options, first, other", [
    (dict(signal="SIGKILL"), "dmesg -T | grep -iE 'oom|killed process'", "journalctl -k"),
    (dict(is_told=False), "dmesg -T", "memory.events"),
    (dict(status=1, error=found("time-limit", "*** JOB 494583 ON n1 CANCELLED AT")), "sacct -j 494583 ", "--time"),
    (dict(status=1, error=found("oom-gpu")), "nvidia-smi", "smaller micro-batches"),
    (dict(status=1, error=found("disk")), "df -h", "sed -n"),
    (dict(status=1, error=found("nccl")), "sed -n", "xid"),
    (dict(status=1, error=found(line=40)), "sed -n '10,45p' '/logs/a b.log'", ""),
    (dict(status=1, error=found(line=None)), "tail -c +1 '/logs/a b.log' | head -c 8000", ""),
])
def test_advice(options, first, other):
    advice = judge(**options).advice
    assert advice[0].startswith(first) and other in " ".join(advice)


@pytest.mark.parametrize("options", [dict(status=0, finished=True), dict(status=0, step=3, total=3), dict(status=0, step=3)])
def test_no_advice_where_nothing_went_wrong(options):
    assert judge(**options).advice == ()


# Log and exit together.

@pytest.mark.parametrize("name, options, how", [
    ("died_in_a_line", dict(is_told=False, step=2, total=100), "died without trace"),  # L11
    ("died_in_a_line_healthy", dict(is_told=False, step=100, total=100), "ended well"),
    ("worker_sigkill", dict(status=1, step=2, total=100), "killed"),  # L11
    ("ended_early", dict(status=0, step=2, total=100), "ended early"),  # L15
    ("ended_early_cause", dict(status=0, step=2, total=100), "ended early"),  # L15
    ("ended_early_healthy", dict(status=0, step=100, total=100), "ended well"),
    ("exit_zero_traceback", dict(status=0, step=1, total=100), "failed"),  # S11
    ("exit_zero_traceback_healthy", dict(status=0, step=100, total=100), "ended well"),
    ("time_limit", dict(signal="SIGTERM", step=1, total=100), "killed"),  # L21
    ("shutdown_noise", dict(status=0, step=99, total=100), "failed"),
    ("shutdown_noise_healthy", dict(status=1, step=100, total=100), "ended well"),
    ("death_signal_healthy", dict(status=0, step=100, total=100), "ended well"),
])
def test_a_log_and_its_exit(name, options, how):
    log = read(name)
    error = endings.pick_first_error([log], progress=STEPS)
    ending = judge(finished=endings.find_finished(log) is not None, error=error, **options)
    assert ending.how == how
    assert (ending.first_error is not None) == (
        name in ("worker_sigkill", "ended_early_cause", "exit_zero_traceback", "time_limit", "shutdown_noise"))
