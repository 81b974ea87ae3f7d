"""How a run ended and what went wrong first: recorded logs, each named after what went wrong, with a healthy twin."""
import random
import re
import time
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies

from rlrun import vitals
from rlrun.health import endings, faults, printed
from rlrun.health.endings import Found, LogText

RECORDED = Path(__file__).resolve().parent.parent / "recorded" / "endings"
STEPS = (re.compile(rb"step:\d+ - training/|SUCCESS.{0,40}Step \d+ \|"),)

# log -> kind, line, clock, the quote's beginning, is_consequence: of what pick_first_error picks
SICK = {
    "chained_exception": ("traceback", 14, "", "KeyError: 'multi_modal_inputs'", False),
    "gpu_out_of_memory": ("oom-gpu", 10, "", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.30 GiB", False),
    "memory_monitor": ("oom-host", 11, "", "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low", False),
    "finished_talk": ("oom-gpu", 13, "", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.30 GiB", False),
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
MONITOR = "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory."
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
    assert sick - set(SICK) == {"died_in_a_line", "ended_early", "ended_early_cause", "survived_by_steps", "error_line_then_gone"}
    shared = {"time_limit": "job_cancelled", "node_failure": "job_cancelled", "preempted": "job_cancelled",
              "ended_early_cause": "ended_early", "memory_monitor": "host_out_of_memory",
              "error_line_then_gone": "died_in_a_line", "survived_by_steps": "survived_then_disk_full"}
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


def test_hundreds_of_ranks_that_speak_at_once():
    ranks = range(700)
    rows = [b"Traceback (most recent call last):", b'  File "x.py", line 1', b"    f()", b"ValueError: x"]
    text = b"".join(b"(W pid=%d) %s\n" % (rank, row) for row in rows for rank in ranks)
    text = text.replace(b"(W pid=11) ValueError: x", b"(W pid=11) KeyError: 'one'")
    assert [one.quote.text for one in endings.find_errors(make(text))] == ["ValueError: x", "KeyError: 'one'"]


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
    (b"/var/spool/n1/job00006/slurm_script: line 99: uv: command not found", "error"),
    (b"srun: error: Unable to create step for job 5: Invalid generic resource (gres) specification", "error"),
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


@pytest.mark.parametrize("line, is_believed", [
    (b"(AgentLoopWorker pid=7) Training complete.", False),
    (b"\x1b[36m(AgentLoopWorker.run pid=7, ip=10.0.0.1)\x1b[0m Training complete.", False),
    (b"(RewardLoopWorker pid=7) 12:00:00 Evaluation completed.", False), (b"(FullyAsyncRollouter pid=7) Training done", False),
    (b"(run_env pid=7) Training finished!", False), (b"(vLLMHttpServer pid=7) Evaluation completed.", False),
    (b"{" + b"x" * 500 + b" Training complete.", False),
    (b"(TaskRunner pid=7) Training complete.", True), (b"(FullyAsyncTaskRunner pid=7, ip=10.0.0.1) Training complete.", True),
    (b"  9%|# | 1/9 [00:10<01:20, 1.00s/it]\rTraining complete.", True),
])
def test_what_a_task_prints_of_finishing_is_not_the_runs(line, is_believed):
    trouble = b"\nTraceback (most recent call last):\n  f()\nOSError: x\n"
    text = make(b"step 1\n" + line + trouble)
    assert (endings.find_finished(text) is not None) == is_believed
    assert bool(list_real(text)) != is_believed


def test_words_of_finishing_that_a_step_follows_are_void():
    trouble = b"Traceback (most recent call last):\n  f()\nOSError: x\n"
    words = b"step:4 - training/x:1\nTraining complete.\n"
    for text, is_void in ((make(words + trouble), False), (make(words + b"step:5 - training/x:1\n" + trouble), True)):
        assert (endings.find_finished(text, progress=STEPS) is None) == is_void
        assert (list_real(text, progress=STEPS) != []) == is_void
        assert (endings.pick_first_error([text], progress=STEPS) is not None) == is_void
        assert endings.find_finished(text) is not None
    # L15: the cause may lie a step or two back.
    text = make(words + trouble + b"step:5 - training/x:1\nstep:6 - training/x:1\n")
    assert endings.pick_first_error([text], progress=STEPS).is_survived
    # The bar may be glued before the line of the step that it has counted already.
    bar = [re.compile(rb"100%\|[^|]*\| 5/5 \[")]
    text = make(b"step:4 - training/x:1\n100%|###| 5/5 [00:10<00:00, 2.00s/it]step:5 - training/x:1\n" + trouble)
    assert endings.find_finished(text, bar, STEPS) is not None and not list_real(text, more=bar, progress=STEPS)


def test_no_words_of_finishing_are_believed_where_the_exit_gives_them_the_lie():
    for name in ("shutdown_noise_healthy", "finished_talk_healthy"):
        log = read(name)
        assert endings.find_finished(log, progress=STEPS) is not None and endings.find_finished(log, None, STEPS) is None
        for progress in ((), STEPS):
            assert endings.pick_first_error([log], progress=progress) is None
            assert endings.pick_first_error([log], None, progress).kind in ("killed", "oom-gpu")
        assert list_real(log, more=None) and not list_real(log)
    # Python's own noise stays noise.
    text = b"Exception ignored in: <function f>\nTraceback (most recent call last):\n  f()\nOSError: x\n"
    assert endings.pick_first_error([make(text)], None) is None


# Any content.

@pytest.mark.parametrize("message, text", [
    (rb'"bad C:\path"', "bad C:\\path"), (rb'"a \u12"', "a \\u12"), (rb'"a \"b\" c"', 'a "b" c'), (rb'"\ud800 x"', "\\ud800 x"),
    (rb'"bad C:\path', "{"), (b"7", "{"), (b"null", "{"), (b'["a"]', "{"), (b'{"a": "b"}', "{"), (b'""', "{"), (b'"  "', "{"),
    (b"[" * 1900, "{"), (b'{"message": ' * 150, "{"), (b'"' + b"\\" * 1900, "{"), (b'"\xff\x00\x01"', "\ufffd\\x01"),
])
def test_a_log_in_json_says_what_it_likes(message, text):
    line = b'{"timestamp": "2026-08-01T12:00:01.1+00:00", "level": "ERROR", "message": ' + message + b"}\n"
    one, = endings.find_errors(make(line))
    assert one.clock == "12:00:01" and one.quote.text.startswith(text)


def look_at(data, is_cut=False):
    text = make(data, offset=11, first_line=4)
    for more in ((), None):
        for one in endings.find_errors(text, 20, more, is_cut, STEPS):
            assert type(one) is Found and 11 <= one.quote.offset < 11 + len(data) and one.quote.text
        endings.find_finished(text, more, STEPS)
        first = endings.pick_first_error([text, make(data[::2])], more, STEPS)
        judge(1, error=first)
        judge(is_told=False, error=first)


def test_random_bytes_and_mutated_logs_are_borne():
    dice = random.Random(20260801)
    logs = [path.read_bytes() for path in sorted(RECORDED.glob("*.log"))]
    bits = [needle for needle in faults._NEEDLES] + [
        b"\n", b"\r", b"\0", b"\xff", b"\x1b[", b'"', b"\\", b"{", b"12:00:00", b"ERROR ", b"Training finished!", b"(A pid=1) ",
        "٣٣:٣٣:٣٣ ERROR ".encode(), b"99:99:99   ERROR ", b"9" * 5000, b"Traceback (most recent call last):\n", b"JOB ", b"Rank "]
    for _ in range(150):
        look_at(bytes(dice.getrandbits(8) for _ in range(dice.randrange(400))), dice.random() < 0.5)
        look_at(b"".join(dice.choice(bits) for _ in range(dice.randrange(60))))
        data = bytearray(dice.choice(logs))
        for _ in range(dice.randrange(1, 40)):
            at = dice.randrange(len(data) + 1)
            how = dice.randrange(4)
            if how == 0:
                data[at:at + dice.randrange(1, 30)] = b""
            elif how == 1:
                data[at:at] = dice.choice(bits)
            elif how == 2:
                data[at:at + 1] = bytes([dice.randrange(256)])
            else:
                other = dice.choice(logs)
                data[at:at] = other[dice.randrange(len(other)):][:300]
        look_at(bytes(data))


def fill(unit, size):
    return (unit * (size // len(unit) + 1))[:size]


def list_floods(size):
    heads = faults._NEEDLES + (
        b"ERROR x", b"2026-08-01 12:00:01", b"12:00:01", b"Training finished", b'{"timestamp": "', b"ERROR: x[repeated 1",
        b"[1it/s] Traceback (most recent call last)", b"Traceback (most recent call last):\nE",
        b'{"timestamp": "T12:00:00", "level": "ERROR", "message": "')
    units = (b" ", b"[", b"1", b":", b"a.", b"\\", b"T00:00:00", b"it/s[", b"\r", b"CUDA ", b"(a pid=", b"\x1b[0")
    for number, head in enumerate(heads):
        for unit in (units[number % len(units)], units[(number + 5) % len(units)]):
            yield head + fill(unit, size - len(head) - 1) + b"x"
            yield fill(head + fill(unit, 1900) + b"x\n", size)
            yield fill(head + unit, size)
    yield fill(b"ERROR x" + b" " * 1900 + b"x\n", size)
    yield fill(b'{"timestamp": "' + b"T00:00:00" * 200 + b"\n", size)
    yield fill(b"it/s" * 360 + b"Traceback (most recent call last):\n", size)
    yield fill(b"x" * 401 + b"ERROR\r", size)
    yield b"".join(b"(R pid=%d) Traceback (most recent call last):\n" % number for number in range(size // 46))
    yield fill("╭──── Traceback (most recent call last) ────╮\n".encode(), size)
    yield fill(b"Training finished", size)
    yield fill(b"Training finished\n", size)


def measure(data):
    text = make(data)
    begin = time.process_time()
    endings.find_errors(text, progress=STEPS)
    endings.find_finished(text, progress=STEPS)
    return time.process_time() - begin


def test_a_flood_costs_what_any_log_full_of_errors_costs():
    size = 256 * 1024
    plain = b"".join(b"12:00:01   ERROR could not save %d: [Errno 5] Input/output error\n" % n for n in range(size))[:size]
    allowed = 25 * max(measure(plain) for _ in range(3))  # what goes over the same bytes again costs far more
    for data in list_floods(size):
        assert measure(data) < allowed, (data[:60], data[-60:])


def test_a_printed_line_is_taken_apart():
    line = printed.read_line(b"x\n\x1b[36m(R pid=7, ip=10.0.0.1)\x1b[0m [rank3]: 12:00:01   ERROR  no\0 disk \rmore\n", 2)
    assert line == ("(R pid=7, ip=10.0.0.1)[rank3]:", "12:00:01", "ERROR", " no disk")
    assert printed.split_key(line.key) == (b"(R pid=7, ip=10.0.0.1)", b"[rank3]")
    assert len(printed.read_line(b"x" * 9999, 5).message) == printed.MAX_LINE_BYTES
    assert [printed.find_begin(b"ab\ncdef", 6, limit) for limit in (2, 3, 9)] == [-1, 3, 3]
    assert [printed.find_begin(b"abcdef", 4, limit) for limit in (3, 4, 9)] == [-1, 0, 0]


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
    (dict(signal="SIGKILL"), "killed",
     "SIGKILL: the kernel's out-of-memory killer, or somebody's kill -9; nothing that was read tells which"),
    (dict(signal="SIGKILL", error=found("error")), "killed",
     "SIGKILL: the kernel's out-of-memory killer, or somebody's kill -9; nothing that was read tells which"),
    (dict(signal="SIGKILL", error=found("oom-host", MONITOR)), "killed",
     "killed by Ray's memory monitor: the node ran low on memory (SIGKILL after it)"),
    (dict(status=1, error=found("oom-host", MONITOR)), "killed",
     "killed by Ray's memory monitor: the node ran low on memory (exit status 1)"),
    (dict(is_told=False, error=found("oom-host", MONITOR)), "killed",
     "killed by Ray's memory monitor: the node ran low on memory"),
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
    (dict(is_told=False, error=found("error")), "died without trace", "its log just stops: killed, perhaps by the kernel's "
     "out-of-memory killer, or the machine went down; the last known error, which need not be the cause, is quoted"),
    (dict(is_told=False, step=4, total=10, oom_kills=1, error=found("error")), "died without trace",
     "its log just stops: killed, perhaps by the kernel's out-of-memory killer (oom_kill 1 in this control group); "
     "the last known error, which need not be the cause, is quoted"),
    (dict(is_told=False, error=found(is_survived=True)), "died without trace",
     "its log just stops: killed, perhaps by the kernel's out-of-memory killer, or the machine went down"),
    (dict(is_told=False, step=10, total=10, error=found("error")), "ended",
     "did its last step, 10 of 10; its exit was not recorded"),
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
    assert judge(is_told=False, error=found("error")).first_error == found().quote


@pytest.mark.parametrize("options, first, other", [
    (dict(signal="SIGKILL"), "dmesg -T | grep -iE 'oom|killed process'", "journalctl -k"),
    (dict(is_told=False), "dmesg -T", "memory.events"),
    (dict(is_told=False, error=found("error")), "sed -n", "dmesg -T"),
    (dict(status=1, error=found("oom-host", MONITOR)), "free -h", "RAY_memory_usage_threshold"),
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
    ("finished_talk", dict(status=1), "failed"),
    ("finished_talk_healthy", dict(status=0, step=3, total=3), "ended well"),
    ("memory_monitor", dict(status=1, step=2, total=100), "killed"),
    ("error_line_then_gone", dict(is_told=False, step=2, total=100), "died without trace"),
    ("shutdown_noise_healthy", dict(status=1, step=100, total=100), "ended well"),
    ("death_signal_healthy", dict(status=0, step=100, total=100), "ended well"),
])
def test_a_log_and_its_exit(name, options, how):
    log = read(name)
    error = endings.pick_first_error([log], progress=STEPS)
    ending = judge(finished=endings.find_finished(log, progress=STEPS) is not None, error=error, **options)
    assert ending.how == how
    assert (ending.first_error is not None) == (
        name in ("worker_sigkill", "ended_early_cause", "exit_zero_traceback", "time_limit", "shutdown_noise", "finished_talk",
                 "memory_monitor", "error_line_then_gone"))


@pytest.mark.parametrize("hour, is_kept", [(12, False), (3, True)])
def test_a_time_of_day_counts_only_where_both_logs_go_by_one_clock(hour, is_kept):
    """A trainer whose lines bear another clock's time (a container in another zone, a stand-in) proves no error survived."""
    now = time.mktime((2026, 8, 2, 12, 10, 0, 0, 0, -1))
    steps = "".join("%02d:%02d:00 SUCCESS Step %d | 3.2s\n" % (hour, minute, minute) for minute in range(10))
    told = "12:05:00   ERROR Error: Trainer failed with exit code -9\n12:09:59    INFO bye\n"
    train = make(steps.encode(), name="trainer", path="/run/trainer.log", modified_seconds=now - 60)
    launch = make(told.encode(), name="launch", path="/run/launch.log", modified_seconds=now)
    first = endings.pick_first_error([train, launch], (), [re.compile(rb"\bStep \d+ +\|", re.M)])
    assert (first is not None) == is_kept
