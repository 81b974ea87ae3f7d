"""prime-rl after the start: the launch log, the run's directory, its processes, step times, commands to paste."""
import json
import os
import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlrun.host import procs
from rlrun.stacks import prime_back
from rlrun.stacks.prime_back import describe_server, read_back, read_step_seconds
from rlrun.stacks.prime_live import describe_stop
from rlrun.values import Process
from steps.made import make_process

DIM, OFF = "\x1b[2m", "\x1b[0m"


def line(level, text, clock="20:13:58", color="\x1b[1m\x1b[32m"):
    """As loguru prints it, colours and all: <dim>time</dim> <level>level</level> <level>message</level>."""
    return "%s%s%s %s%7s%s %s\x1b[22m%s%s" % (DIM, clock, OFF, color, level, OFF, color, text, OFF)


LOG = "\n".join([
    line("INFO", "Wrote subconfigs to /o/x/configs"), line("INFO", "Using local->physical GPU mapping: {0: 0, 1: 1}"),
    line("INFO", "Starting inference on GPU(s) 0"), line("WARNING", "No ERROR here: ERROR  x"),
    line("SUCCESS", "Startup complete. Showing orchestrator logs..."), line("SUCCESS", "Dashboard \u00b7 http://box:7788"),
    line("SUCCESS", "Step 1 |    3.2s | Reward 0.5123"), ""])


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))  # no squeue, no sacct
    return tmp_path / "home"


def write(path, text=""):
    os.makedirs(os.path.dirname(str(path)), exist_ok=True)
    with open(str(path), "w") as out:
        out.write(text)
    return str(path)


def test_a_launch_log_and_what_lies_in_the_run(tmp_path):
    run = str(tmp_path / "x")
    for attempt in ("attempt_9", "attempt_10"):
        for name in ("trainer", "orchestrator", "inference", "envs/train/a"):
            write("%s/logs/%s/%s.log" % (run, attempt, name))
    os.symlink("attempt_9", run + "/logs/latest")
    told = read_back(LOG, "rl", run, ("attempt_9",), ())
    new = run + "/logs/attempt_10/"
    assert dict(told["facts"], logs=0) == {"attempt": "attempt_10", "pids": {}, "groups": [], "is_up": False, "logs": 0,
                                           "dashboard": "http://box:7788", "failed_log": None}
    assert told["facts"]["logs"] == {name: new + path + ".log" for name, path in (
        ("trainer", "trainer"), ("orchestrator", "orchestrator"), ("inference", "inference"), ("env train a", "envs/train/a"))}
    assert told["rows"] == [("logs", new[:-1]), ("trainer log", new + "trainer.log"),
        ("orchestrator log", new + "orchestrator.log"),
                            ("inference log", new + "inference.log"), ("dashboard", "http://box:7788")]
    assert (told["train_log"], told["vllm_log"], told["fatal"]) == (new + "trainer.log", new + "inference.log", [])
    told = read_back("", "rl", run, ("attempt_9", "attempt_10"), ())
    assert told["rows"] == [] and told["facts"]["attempt"] is None and told["train_log"] == ""
    for kind in ("inference", "evals"):
        assert read_back("", kind, "", (), ())["rows"] == []


@pytest.mark.parametrize("text, fatal", [
    (line("ERROR", "Error: Trainer failed with exit code 1"), ["Error: Trainer failed with exit code 1"]),
    (line("CRITICAL", "x  y "), ["x  y"]), ("20:13:58   ERROR plain", ["plain"]), ("20:13:58 SUCCESS ERROR x", []),
    ("ERROR without a time", []), (line("WARNING", "ERROR"), []), ("  File \"x.py\", line 1, in ERROR", []),
    (line("ERROR", "one") + "\nTraceback:\n" + line("ERROR", "two"), ["one", "two"]),
    ("\n".join(line("ERROR", str(number)) for number in range(30)), [str(number) for number in range(12)])])
def test_errors_of_the_launcher(text, fatal):
    assert read_back(text, "rl", "", (), ())["fatal"] == fatal


@pytest.mark.parametrize("text, url", [
    ("Dashboard \u00b7 http://h:7788", "http://h:7788"), (line("SUCCESS", "Dashboard \u00b7 https://h/x?y=1"), "https://h/x?y=1"),
    ("Dashboard - http://h:1 (all runs)", "http://h:1"), ("Dashboard: http://h", None), ("no Dashboard", None)])
def test_the_dashboards_address(text, url):
    for kind in ("rl", "sft", "inference"):
        assert read_back(text, kind, "", (), ())["facts"].get("dashboard") == url


def test_the_dashboard_of_the_daemon(home):
    place = home / ".cache/prime-rl/dashboard/daemon.json"
    for text, url in (("", None), ("{", None), ("[]", None), ('{"url": 5}', None), ('{"url": ""}', None),
        ('{"url": "http://h:1"}', "http://h:1"),
                      ('{"url": "http://h:1", "pid": %d}' % os.getpid(), "http://h:1"),
                      ('{"url": "http://h:1", "pid": 4194399}', None),
                      ('{"url": "http://h:1", "pid": "x"}', "http://h:1")):
        write(place, text)
        for kind in ("rl", "sft"):
            assert read_back("", kind, "", (), ())["facts"].get("dashboard") == url
        assert "dashboard" not in read_back("", "evals", "", (), ())["facts"]
    assert read_back("Dashboard \u00b7 http://own", "rl", "", (), ())["facts"]["dashboard"] == "http://own"


def tree(*rows):
    return tuple(make_process(pid, *words.split(), ppid=ppid) for pid, ppid, words in rows)


@pytest.mark.parametrize("kind, titles, is_up", [
    ("rl", "Launcher Inference Orchestrator Trainer", True), ("rl", "Launcher Inference Orchestrator", False),
    ("rl", "Launcher", False),
    ("sft", "SFT SFTTrainer", True), ("sft", "SFT", False), ("evals", "Evals", True), ("inference", "Inference", True),
    ("inference", "", False)])
def test_the_real_processes(kind, titles, is_up):
    names = ["PRL::" + name for name in titles.split()]
    rows = tree((10, 1, "uv run x @ x.toml"), *((11 + place, 10 if not place else 11, name) for place, name in enumerate(names)))
    told = read_back("", kind, "", (), rows)
    assert told["facts"]["is_up"] is is_up and sum(len(pids) for pids in told["facts"]["pids"].values()) == len(names)
    assert ("processes" in dict(told["rows"])) is bool(names)
    json.dumps(told)


def test_many_ranks_are_shortened_for_people_only():
    rows = tree((2, 1, "PRL::Launcher"), *((number, 2, "PRL::Trainer") for number in range(10, 26)))
    told = read_back("", "rl", "", (), rows)
    assert dict(told["rows"])["processes"] == "launcher=2  trainer=10,11,12,13,14,15,16,17\u2026"
    assert told["facts"]["pids"] == {"launcher": [2], "trainer": list(range(10, 26))}
    assert isinstance(rows[0], Process) and procs.read_identity(4194399) is None


SUBMITTED = line("SUCCESS", "Submitted batch job 41") + "\n\nLogs:\n  Trainer: tail -F x\n" + line("SUCCESS",
    "Submitted batch job 42")


def test_submitted_jobs(tmp_path):
    run = str(tmp_path / "x")
    told = read_back(SUBMITTED, "sft", run, (), ())
    assert told["facts"]["jobs"] == ["41", "42"] and told["facts"]["job_states"] == {"41": None, "42": None}
    assert [label for label, _ in told["rows"]] == ["job", "job log"] * 2
    assert told["rows"][0][1].startswith("41 state unknown: ") and "squeue" in told["rows"][0][1]
    assert told["rows"][1][1] == "unknown" and told["facts"]["job_logs"] == {"41": None, "42": None}
    write(run + "/sft.sbatch", "#!/bin/bash\n#SBATCH --job-name=t\n#SBATCH --output=%s/job_%%j.log\nset -e\n" % run)
    told = read_back(SUBMITTED, "sft", run, (), ())
    assert told["rows"][1][1] == "%s/job_41.log  (not there before the job starts)" % run
    assert told["facts"]["job_logs"]["42"] == run + "/job_42.log"
    write(run + "/launcher/rl.sbatch", "#!/bin/bash\n#SBATCH --job-name=t\n#SBATCH --output=/l/%x_%j.log\nset -e\n")
    assert read_back(SUBMITTED, "sft", run, (), ())["facts"]["job_logs"]["41"] == "/l/t_41.log"
    write(run + "/job_41.log")
    write(run + "/launcher/logs/job_42.log")
    rows = read_back(SUBMITTED, "sft", run, (), ())["rows"]
    assert [value for label, value in rows if label == "job log"] == [run + "/job_41.log", run + "/launcher/logs/job_42.log"]


def test_states_of_jobs(tmp_path, home):
    squeue = write(tmp_path / "bin/squeue", "#!/bin/sh\n"
                   "printf '%s\\n' '41|41|PENDING||0:00|1:00|Resources' '42|42|RUNNING|n1|0:05|1:00|None'\n")
    os.chmod(squeue, 0o755)
    told = read_back(SUBMITTED, "rl", "", (), ())
    assert told["facts"]["job_states"] == {"41": "PENDING", "42": "RUNNING"}
    assert [value for label, value in told["rows"] if label == "job"] == ["41 PENDING (Resources)", "42 RUNNING"]


# The time formats of both format_time (prime_rl/utils/logger.py, utils/utils.py)
TIMES = [("200ms", 0.2), ("1000ms", 1.0), ("3.21s", 3.21), ("3.2s", 3.2), ("3s", 3), ("60.0s", 60), ("3m 4s", 184),
    ("59m 59s", 3599), ("3m", 180),
         ("1h 0m", 3600), ("2h 5m", 7500), ("2h", 7200), ("1d 4h", 100800), ("2d", 172800), ("1d 0h", 86400)]


@pytest.mark.parametrize("shown, seconds", TIMES)
@pytest.mark.parametrize("form", ["Step 12 | {:>7} | Loss 0.0123 | LR 3.00e-06", "20:13:58 SUCCESS Step 0 | {:>7} | Reward 0.5",
                                  "[trainer0]:20:13:58 SUCCESS Step 7 | {} |", "Step 3 | {}"])
def test_step_times(form, shown, seconds):
    assert read_step_seconds(form.format(shown)) == [pytest.approx(seconds)]
    assert read_step_seconds(line("SUCCESS", form.format(shown))) == [pytest.approx(seconds)]


@pytest.mark.parametrize("text", [
    "", "Evaluated env (Step 12) | Policy v3 |    3.2s | Reward 0.5", "Step 12", "Step 12 | Loss 0.1", "Step x | 3s | ",
    "Step 1 | 0ms |",
    "Step 1 | 3 |", "Step 1 | s |", "Step 1 | 3x |", "Step 1 | -3s |", "Step 1 | nan |", "Step 1 | 99999d 1h |",
    "Step 1 | 1.2.3s |",
    "\t\t \u2570\u2500 env | Ratio 50.0% | Reward 0.1", "Step 1 | " + "9" * 400 + "s |", "Stepping 1 | 3s |",
    "Step 1 | 3s and more |"])
def test_what_is_no_step_time(text):
    assert read_step_seconds(text) == []


def test_steps_in_order_with_lines_between():
    text = "\n".join([line("SUCCESS", "Step 1 |    3.2s | Reward 0.5"), "\t\t \u2570\u2500 a | Ratio 50.0%",
        line("INFO", "Saving"),
                      line("SUCCESS", "Evaluated a (Step 1) | Policy v1 |  9.0s | x"),
                      line("SUCCESS", "Step 2 |   900ms | Reward 0.6"),
                      line("SUCCESS", "Step 3 |  1m 2s | Reward 0.6")])
    assert read_step_seconds(text) == [pytest.approx(3.2), pytest.approx(0.9), 62.0]
    assert read_step_seconds(text.replace("\n", "\r\n")) == read_step_seconds(text)


def format_one(seconds):
    """As utils/logger.py has it."""
    if seconds < 1:
        return "%.0fms" % (seconds * 1000)
    if seconds < 60:
        return "%.1fs" % seconds
    for size, name, rest, other in ((3600, "m", 60, "s"), (86400, "h", 3600, "m"), (1e9, "d", 86400, "h")):
        if seconds < size:
            return "%d%s %d%s" % (seconds // rest, name, seconds % rest // (rest / 60 if name != "d" else 3600), other)
    raise AssertionError(seconds)


@settings(max_examples=60, deadline=None)
@given(st.floats(0.001, 8e6))
def test_every_time_is_read_as_exactly_as_it_is_told(seconds):
    found, = read_step_seconds("Step 1 | %7s | Loss 0.1" % format_one(seconds))
    exactness = 0.001 if seconds < 1 else 0.1 if seconds < 60 else 1 if seconds < 3600 else 60 if seconds < 86400 else 3600
    assert seconds - exactness <= found <= seconds + exactness


@settings(max_examples=60, deadline=None)
@given(st.text("Step 0129|.smhd\u0663\n", max_size=30))
def test_any_text_has_some_step_times(text):
    assert all(0 < seconds < 1e7 for seconds in read_step_seconds("Step 1 | " + text))


@pytest.mark.parametrize("words, name", [
    ("Error: Trainer failed with exit code 1", "trainer"), ("Orchestrator failed with exit code -9", "orchestrator"),
    ("Error: Train env server a failed with exit code 3", "envs/train/a"),
    ("Error: Eval env server a failed with exit code 3", ""),
    ("Error: Inference failed", ""), ("Error: x", "")])
def test_the_log_of_what_failed(tmp_path, words, name):
    for one in ("trainer", "orchestrator", "inference", "envs/train/a"):
        write("%s/logs/attempt_1/%s.log" % (tmp_path, one))
    found = read_back(line("ERROR", words), "rl", str(tmp_path), (), ())["facts"]["failed_log"]
    assert found == ("%s/logs/attempt_1/%s.log" % (tmp_path, name) if name else None)


def test_how_to_stop():
    assert describe_stop(7, {}) == describe_stop(7, {"jobs": []}) == "kill -s TERM -- -7"
    assert describe_stop(7, {"groups": [12, 15]}) == "kill -s TERM -- -7 -12 -15"
    assert describe_stop(7, {"jobs": ["41", 42], "groups": [12]}) == "scancel 41 42"
    assert shlex.split(describe_stop(7, {"jobs": ["1; rm x"]})) == ["scancel", "1; rm x"]


def test_how_to_try_a_server():
    lines = describe_server("http://h:8000", ("o/M's", "other"))
    assert lines[:2] == ["curl http://h:8000/health", "curl http://h:8000/v1/models"]
    words = shlex.split(lines[2])
    assert words[:4] == ["curl", "http://h:8000/v1/chat/completions", "-H", "Content-Type: application/json"]
    assert json.loads(words[-1])["model"] == "o/M's"
    assert json.loads(shlex.split(describe_server("http://h", ())[2])[-1])["model"] == "MODEL"


def test_ends():
    assert "run:exists" in prime_back.explain_end("Traceback\nFileExistsError: Run directory 'x'")
    assert prime_back.explain_end("x") == ""
