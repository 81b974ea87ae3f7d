"""prime-rl's logs: step lines, what they mean, where they lie. The recorded ones are named after what went wrong."""
import json
import math
import os
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlrun.health import signatures
from rlrun.health.signatures import Evidence, Text, find_nonfinite, find_signatures, judge_gates, read_metrics
from rlrun.stacks import prime_health as health
from rlrun.vitals import Checkpoint, Outline, Point, Quote, Track
from steps.made import make_process

RECORDED = Path(__file__).resolve().parent.parent / "recorded" / "prime"
RL, SFT = ("rl", "training", "rollouts"), ("sft", "training")
CASES = sorted(path.name for path in RECORDED.iterdir())
# What each recorded run is claimed to have; a name with `healthy` has nothing, and so have those that fail a gate alone.
CLAIMED = {"kl_mismatch_grows": "kl:mismatch", "entropy_collapse": "entropy:collapse", "grad_spike": "grad:spike",
           "reward_zero": "reward:zero", "rollout_errors": "rollout:errors", "rollout_truncated": "rollout:truncated",
           "batch_empty": "batch:empty", "batch_empty_zero_output": "batch:empty", "env_worker_dying": "env:dying",
           "env_server_died": "env:died", "weights_broadcast_failed": "weights:broadcast",
           "weights_broadcast_skipped": "weights:broadcast", "inference_timeouts": "inference:timeouts",
           "inference_unready": "inference:unready", "ckpt_errors": "ckpt:errors", "trainer_waits": "wait:orchestrator",
           "orchestrator_waits": "wait:trainer", "kl_high": "kl:high", "env_failing": "env:failing",
           "part_failed": "part:failed"}
GATES_OF = {"gate_loss_nan": ["gate:trainer", "gate:grad"], "gate_grad_inf": ["gate:grad"],
            "gate_reward_nan": ["gate:orchestrator"], "gate_all_failed": ["gate:errors"]}


def read_case(case):
    """{name: (path, bytes)} of a recorded run's logs, named as list_logs names them."""
    found = {}
    for path in sorted((RECORDED / case).iterdir()):
        name = path.name.partition(".")[0]
        name = name.replace("env_train_", "env train ")
        found[name] = (str(path), path.read_bytes())
        if name == "metrics":
            found["metrics orchestrator"] = found[name]
    return found


def make_evidence(case, wanted=None):
    logs = read_case(case)
    tracks = {}
    for source in health.SOURCES:
        if source in logs:
            path, data = logs[source]
            points, offset = [], 0
            for line in data.split(b"\n"):
                point = health.parse_step(source, line.decode(), wanted) if health.STEP_MARKS[source] in line else None
                if point:
                    points.append(point._replace(offset=offset))
                offset += len(line) + 1
            tracks[source] = Track(path, tuple(points), True)

    def quote(path, offset, key):
        line = Path(path).read_bytes()[offset:].split(b"\n")[0].decode()
        return Quote(path, offset, None, health.quote_metric(line, key))
    texts = {name: Text(name, path, data, 0, 1) for name, (path, data) in logs.items()}
    return Evidence(tracks, texts, health.SOURCES[0], quote)


@pytest.mark.parametrize("case", CASES)
def test_a_recorded_run_is_claimed_to_have_what_it_has_and_nothing_else(case):
    flags = SFT if case.startswith("sft") else RL
    found = find_signatures(health.SIGNATURES, make_evidence(case), flags)
    assert [one.name for one in found] == ([CLAIMED[case]] if case in CLAIMED else [])
    assert case in CLAIMED or case in GATES_OF or case.endswith("_healthy")
    for one in found:
        assert one.quotes and all(quote.text and quote.log.startswith(str(RECORDED)) for quote in one.quotes)
        assert 1 <= len(one.advice) <= 3 and "\n" not in one.words


def test_every_signature_and_every_healthy_twin_is_recorded():
    assert set(CLAIMED.values()) == {one.name for one in health.SIGNATURES}
    assert set(CLAIMED) | set(GATES_OF) <= set(CASES)
    assert len([case for case in CASES if case.endswith("_healthy")]) >= len({one.name for one in health.SIGNATURES})


def test_signatures_stand_gravest_first_and_claim_nothing_of_empty_logs():
    ranks = ["stop", "risk", "note"]
    order = [ranks.index(one.severity) for one in health.SIGNATURES]
    assert order == sorted(order)
    assert find_signatures(health.SIGNATURES, Evidence({}, {}, "trainer", None), RL) == ()


def test_what_only_rollouts_can_have_is_not_claimed_of_sft():
    assert find_signatures(health.SIGNATURES, make_evidence("reward_zero"), SFT) == ()


@pytest.mark.parametrize("table", [[rule for one in health.SIGNATURES for rule in one.rules],
                                   [rule for one in health.GATES for rule in one.rules]])
def test_rules_are_those_of_the_engine(table):
    for rule in table:
        assert rule.test in signatures.TESTS or rule.test in ("lines", "quiet")
        assert rule.source in health.SOURCES + ("*", "env *", "launch")
        if rule.test == "lines":
            re.compile(rule.key.encode())
    for metric in health.METRICS:
        assert metric.source in health.SOURCES and metric.row in ("progress", "stability", "performance", "eval")
        assert all(test == "" or test in signatures.TESTS for test, _, _, _ in metric.bands)
        assert all(mark in ("pass", "advisory", "blocks") for _, _, mark, _ in metric.bands)


@pytest.mark.parametrize("case", sorted(GATES_OF) + ["gate_passes_healthy", "gate_no_grad_healthy", "finished_healthy",
                                                     "json_logging_healthy"])
def test_gates(case):
    results = judge_gates(health.GATES, make_evidence(case), RL, 1)
    assert [one.name for one in results] == ["gate:trainer", "gate:grad", "gate:orchestrator", "gate:errors"]
    assert [one.name for one in results if one.state == "failed"] == GATES_OF.get(case, [])
    assert all(one.quote and one.quote.text for one in results if one.state in ("passed", "failed"))
    skipped = [one.name for one in results if one.state == "skipped"]
    assert skipped == (["gate:grad"] if case == "gate_no_grad_healthy" else [])
    assert not [one for one in results if one.state == "unknown"]


def test_gates_of_sft_are_the_trainers():
    results = judge_gates(health.GATES, make_evidence("sft_healthy"), SFT, 1)
    assert [one.state for one in results] == ["passed", "passed", "skipped", "skipped"]
    assert "not rollouts" in results[2].words
    assert {one.state for one in judge_gates(health.GATES, make_evidence("sft_healthy"), (), 1)} == {"skipped"}


def test_a_gate_waits_for_a_step_line():
    results = judge_gates(health.GATES, make_evidence("inference_slow_start_healthy"), RL, 1)
    assert {one.state for one in results} == {"unknown"}


def test_a_nan_is_found_where_it_came_first():
    found = find_nonfinite(make_evidence("gate_loss_nan"))
    assert found.severity == "stop" and "step 1" in found.words and found.quotes[0].text.startswith("Step 1 ")
    assert all(find_nonfinite(make_evidence(case)) is None for case in CASES if case.endswith("_healthy"))


def test_readings_of_a_healthy_run_are_fine():
    readings = read_metrics(health.METRICS, make_evidence("finished_healthy"))
    assert [one for one in readings if one.mark not in ("pass", "skipped")] == []
    shown = {(one.source, one.key): one.value for one in readings}
    assert shown["orchestrator", "reward/mean"] == 0.5123 and shown["trainer", "mismatch_kl/all/mean"] == 0.0008
    assert shown["orchestrator", "eval/aime25/reward/mean"] == 0.3125
    assert shown["trainer", "time/step"] == 42.1 and shown["orchestrator", "time/step"] == 43.0
    assert [row for row in dict.fromkeys(one.row for one in readings)] == ["progress", "stability", "performance", "eval"]


@pytest.mark.parametrize("case, key, mark", [
    ("kl_mismatch_grows", "mismatch_kl/all/mean", "advisory"),
    ("kl_mismatch_one_peak_healthy", "mismatch_kl/all/mean", "advisory"),
    ("rollout_errors", "has_error/mean", "blocks"), ("reward_zero", "reward/mean", "advisory"),
    ("grad_spike", "optim/grad_norm", "advisory"), ("gate_loss_nan", "loss/mean", "blocks"),
    ("trainer_waits", "time/wait_for_batch/share", "advisory"), ("orchestrator_waits", "time/wait_for_policy/share", "advisory"),
    ("finished_healthy", "optim/grad_norm", "pass")])
def test_bands(case, key, mark):
    assert [one.mark for one in read_metrics(health.METRICS, make_evidence(case)) if one.key == key] == [mark]


# The lines themselves

TRAINER = ("[trainer0]:\x1b[2m12:00:01\x1b[0m \x1b[32m\x1b[1mSUCCESS\x1b[0m \x1b[32m\x1b[1m\x1b[22mStep 12 |    3.2s | "
           "Loss -0.0000 | Entropy 0.4567 | Mismatch KL 0.0008 | Grad. Norm 0.1234 | LR 3.00e-06 | Throughput 12345 tokens/s | "
           "MFU 31.2% | Peak Mem. 61.2 GiB | Max Vio 0.0100 | Routing Conf. 0.8000\x1b[0m\x1b[0m")
TRAINER_VALUES = {"loss/mean": 0.0, "entropy/all/mean": 0.4567, "mismatch_kl/all/mean": 0.0008, "optim/grad_norm": 0.1234,
                  "optim/lr": 3e-06, "perf/throughput": 12345.0, "perf/mfu": 31.2, "perf/peak_memory": 61.2,
                  "max_vio/mean": 0.01, "routing_confidence/mean": 0.8, "time/step": 3.2}


def test_a_trainers_line():
    assert health.parse_step("trainer", TRAINER, None) == Point(12, TRAINER_VALUES, ("loss/mean",), 3.2, 0, "12:00:01", True)


def test_an_orchestrators_line():
    line = ("12:00:01 SUCCESS Step 7 |  3m 4s | Reward 0.5123 | Trainable 120/128 (93.8%) | Turns 3.2 | Branches 1.0 | "
            "Max Off-Policy 3 | Error 1.5% | Cancelled 0.0% | Truncation 6.0%")
    point = health.parse_step("orchestrator", line, None)
    assert point.values == {"reward/mean": 0.5123, "is_trainable/mean": 0.9375, "num_turns/mean": 3.2, "num_branches/mean": 1.0,
                            "off_policy/max": 3.0, "has_error/mean": 0.015, "cancelled/mean": 0.0, "is_truncated/mean": 0.06,
                            "time/step": 184.0}
    assert (point.step, point.seconds, point.rounded, point.is_training) == (7, 184.0, ("cancelled/mean",), True)


def test_an_evaluation_is_no_training_step():
    line = ("12:00:01 SUCCESS Evaluated aime 25 (Step 10) | Policy v9 |   1m 4s | Reward 0.0000 | Turns 1.0 | Branches 1.0 | "
            "Error 0.5% | Truncation 25.0%")
    for source in ("orchestrator", "evals"):
        point = health.parse_step(source, line, None)
        assert point.values == {"eval/aime 25/policy_version": 9.0, "eval/aime 25/reward/mean": 0.0,
                                "eval/aime 25/num_turns/mean": 1.0, "eval/aime 25/num_branches/mean": 1.0,
                                "eval/aime 25/has_error/mean": 0.005, "eval/aime 25/is_truncated/mean": 0.25}
        assert (point.step, point.seconds, point.rounded, point.is_training) == (10, None, ("eval/aime 25/reward/mean",), False)
    assert health.parse_step("trainer", line, None) is None


def test_lines_of_sft():
    point = health.parse_step("trainer", "12:00:01 SUCCESS Step 3 |   900ms | Loss 1.7500 | LR 0.00e+00 | "
                              "Throughput 5 tokens/s | MFU 0.0% | Peak Mem. 61.2/79.1 GiB (77.4%)", None)
    assert point.values == {"loss/mean": 1.75, "optim/lr": 0.0, "perf/throughput": 5.0, "perf/mfu": 0.0, "perf/peak_memory": 61.2,
                            "time/step": 0.9}
    assert point.rounded == ("perf/mfu",)  # a learning rate of 0.00e+00 is 0
    point = health.parse_step("trainer", "12:00:01 SUCCESS Validation | Step 3 | Loss 1.2345", None)
    assert (point.step, point.values, point.is_training) == (3, {"val/loss": 1.2345}, False)


def test_lines_of_before_spring_2026():
    point = health.parse_step("trainer", "12:00:01 SUCCESS Step 3 | Time: 3.21s | Loss: 0.0100 | Entropy: 0.4000 | "
                              "Mismatch KL: 0.0008 | Grad. Norm: nan | LR: 1.00e-06", None)
    assert math.isnan(point.values.pop("optim/grad_norm"))
    assert point.values == {"loss/mean": 0.01, "entropy/all/mean": 0.4, "mismatch_kl/all/mean": 0.0008, "optim/lr": 1e-06,
                            "time/step": 3.21} and point.seconds == 3.21


@pytest.mark.parametrize("frame", [
    "%s", "%s\r", "%s\r\n", "  %s  ", "[rank0]: %s", "Training:  3%%|\u258e         | 3/100 [00:10<05:23,  3.33s/it]\r%s",
    "Training:  3%%|\u258e         | 3/100 [00:10<05:23,  3.33s/it]%s", "100%%|\u2588\u2588| 3/3 [00:10%s", "%s [train.py::648]"])
def test_what_stands_around_a_line(frame):
    line = frame % TRAINER[len("[trainer0]:"):]
    point = health.parse_step("trainer", line, None)
    assert (point.step, point.values, point.clock) == (12, TRAINER_VALUES, "12:00:01")


def as_json(message, level="SUCCESS", prefix=""):
    return prefix + json.dumps({"timestamp": "2026-08-21T12:00:01.123456+00:00", "level": level, "message": message, "line": 1})


def test_a_line_of_json_logging():
    plain = re.sub("\x1b\\[[0-9;]*m", "", TRAINER).partition("SUCCESS ")[2]
    for prefix in ("", "[trainer0]:"):
        point = health.parse_step("trainer", as_json(plain + "\n\t\t \u2570\u2500 math | Loss 9.0", prefix=prefix), None)
        assert (point.step, point.values, point.clock) == (12, TRAINER_VALUES, "12:00:01")
    assert health.parse_step("trainer", as_json(plain, "INFO"), None) is None


@pytest.mark.parametrize("value, number, is_rounded", [
    ("0.0000", 0.0, True), ("-0.000", 0.0, True), ("0.00", 0.0, True), ("0.0", 0.0, False), ("0", 0.0, False),
    ("0.00e+00", 0.0, False), ("np.float64(0.0)", 0.0, False), ("np.float32(1e-06)", 1e-06, False), ("np.int64(3)", 3.0, False),
    ("tensor(0.5, device='cuda:0')", 0.5, False), ("inf", math.inf, False), ("-inf", -math.inf, False), ("1e-06", 1e-06, False),
    ("12.5%", 12.5, False), ("None", None, False), ("", None, False), ("x", None, False), ("1.2.3", None, False)])
def test_values(value, number, is_rounded):
    point = health.parse_step("trainer", "12:00:01 SUCCESS Step 1 | 1.0s | Loss %s | LR 1.00e-06" % value, None)
    assert point.values.get("loss/mean") == number and point.values["optim/lr"] == 1e-06
    assert ("loss/mean" in point.rounded) is is_rounded


@pytest.mark.parametrize("line", [
    "12:00:01    INFO Step 12 | 3.2s | Loss 0.1", "12:00:01 SUCCESS The agent wrote: 12:00:01 SUCCESS Step 12 | 3.2s | Loss 0.1",
    "Step 12 | 3.2s | Loss 0.1", "12:00:01   DEBUG Micro Step 1/4 | Loss 0.1000 | Entropy 0.4",
    "a 12:00:01 SUCCESS Step 12 | Loss 1",
    '{"role": "assistant", "content": "12:00:01 SUCCESS Step 12 | 3.2s | Loss 0.1"}', "12:00:01 SUCCESS Step x | Loss 1", "",
    "12:00:01 WARNING Step 7: empty train batch after 128 finalized episodes (consecutive empty batches: 1/10)",
    "\t\t \u2570\u2500 math | Ratio 60.2% | Reward 0.5", '{"timestamp": "x", "level": "SUCCESS", "message": ', '{"timestamp": 3}',
    "12:00:01 SUCCESS Orchestrator step loop done in 5m 4s"])
@pytest.mark.parametrize("source", health.SOURCES)
def test_what_is_no_step_line(source, line):
    assert health.parse_step(source, line, None) is None


def test_only_what_is_wanted():
    point = health.parse_step("trainer", TRAINER, ("optim/*", "loss/mean", "none/*"))
    assert point.values == {"loss/mean": 0.0, "optim/grad_norm": 0.1234, "optim/lr": 3e-06} and point.seconds == 3.2
    assert health.parse_step("trainer", TRAINER, ()).values == {} and health.parse_step("trainer", TRAINER, ()).rounded == ()


ROW = {"step": 7, "time": 1787313601.5, "time/step": 40.0, "time/wait_for_batch": 30.0, "time/load_data": 0.1}


def test_lines_of_the_monitors_file():
    point = health.parse_step("metrics", json.dumps(ROW), None)
    assert point.values == {"time/step": 40.0, "time/wait_for_batch": 30.0, "time/load_data": 0.1,
                            "time/wait_for_batch/share": 0.75}
    assert (point.step, point.seconds, point.clock, point.is_training) == (7, 40.0, "", True)
    own = dict(ROW, **{"time/wait_for_policy": 10.0})
    del own["time/wait_for_batch"]
    assert health.parse_step("metrics orchestrator", json.dumps(own), None).values["time/wait_for_policy/share"] == 0.25
    assert health.parse_step("metrics", json.dumps(own), None) is None
    for row in (dict(ROW, step="7"), dict(ROW, step=-1), dict(ROW, step=1.5), dict(ROW, **{"time/wait_for_batch": "x"}), [1]):
        assert health.parse_step("metrics", json.dumps(row), None) is None
    assert "time/wait_for_batch/share" not in health.parse_step("metrics", json.dumps(dict(ROW, **{"time/step": 0})), None).values
    for text in ('{"step": 7, "time/wait_for_batch": 3', '{"a": ' * 100000, '{"step": NaN, "time/wait_for_batch": 1}'):
        assert health.parse_step("metrics", text, None) is None


def test_each_step_of_the_monitors_file_is_told_once_and_in_order():
    evidence = make_evidence("trainer_waits")
    assert [point.step for point in evidence.tracks["metrics"].points] == [1, 2, 3, 4, 5, 6, 7]
    assert [point.step for point in evidence.tracks["metrics orchestrator"].points] == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("case", CASES)
def test_every_step_line_has_its_mark(case):
    for name, (_, data) in read_case(case).items():
        for line in data.split(b"\n") if name in health.SOURCES else ():
            is_step = health.parse_step(name, line.decode(), None) is not None
            assert not is_step or health.STEP_MARKS[name] in line
            # Of the monitor's rows each source takes its own, and both are progress.
            assert name.startswith("metrics") or is_step is any(re.search(one, line) for one in health.PROGRESS)
            assert not is_step or any(re.search(one, line) for one in health.PROGRESS)


@settings(max_examples=200)
@given(st.sampled_from(health.SOURCES), st.text(max_size=80), st.sampled_from([
    "%s", "12:00:01 SUCCESS Step 1 | %s", "12:00:01 SUCCESS Step 1 | 1s | Loss %s | LR 1",
    "12:00:01 SUCCESS Evaluated %s (Step 1) |",
    '{"timestamp": "%s"}', '{"step": 1, "time/wait_for_batch": %s}', TRAINER + "%s", "Step %s |"]))
def test_no_text_breaks_it(source, text, frame):
    line = frame.replace("%s", text)
    point = health.parse_step(source, line, None)
    assert point is None or isinstance(point, Point)
    for key in ("", "loss/mean", "eval/x/reward/mean", "time/wait_for_batch/share"):
        assert isinstance(health.quote_metric(line, key), str)


@pytest.mark.parametrize("line, key, words", [
    (TRAINER, "mismatch_kl/all/mean", "Step 12 | \u2026 | Mismatch KL 0.0008"), (TRAINER, "time/step", "Step 12 | 3.2s"),
    (TRAINER, "optim/lr", "Step 12 | \u2026 | LR 3.00e-06"),
    (TRAINER, "", "Step 12 | 3.2s | Loss -0.0000 | Entropy 0.4567"),
    (TRAINER, "no/such", "Step 12 | 3.2s | Loss -0.0000 | Entropy 0.4567"),
    ("12:00:01 SUCCESS Evaluated aime (Step 10) | Policy v9 | 1m 4s | Reward 0.5", "eval/aime/reward/mean",
     "Evaluated aime (Step 10) | \u2026 | Reward 0.5"),
    ("12:00:01 SUCCESS Validation | Step 3 | Loss 1.2345", "val/loss", "Validation | Step 3 | Loss 1.2345"),
    (as_json("Step 4 | 1.0s | Reward 0.5"), "reward/mean", "Step 4 | \u2026 | Reward 0.5"),
    (json.dumps(ROW), "time/wait_for_batch/share", '"step": 7, \u2026 "time/wait_for_batch": 30.0, \u2026 "time/step": 40.0'),
    (json.dumps(ROW), "time/load_data", '"step": 7, \u2026 "time/load_data": 0.1')])
def test_quotes(line, key, words):
    assert health.quote_metric(line, key) == words


# Stages and ends

def find_stage(case):
    """The last of the stages that the logs of a recorded run have reached."""
    data = b"\n".join(data for _, data in read_case(case).values())
    last = [(words, re.search(pattern, data)) for pattern, words in health.STAGES]
    words, match = [(words, match) for words, match in last if match][-1]
    return words.format(*(group.decode() for group in match.groups()))


def test_stages():
    assert find_stage("inference_slow_start_healthy") == "the training loop has begun" or find_stage(
        "inference_slow_start_healthy") == "the first weights go to inference"
    assert find_stage("gate_passes_healthy") == "waiting for the first batch: 64/128 (50.0%)"
    for pattern, words in health.STAGES:
        assert re.compile(pattern).groups >= words.count("{0}") and len(words) < 70


@pytest.mark.parametrize("line, words", [
    (b"Loading safetensors checkpoint shards:  75% Completed | 3/4 [00:01<00:00]", "vLLM loads weights: 75 %"),
    (b"Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  40%|####      | 27/67 [00:02]",
     "vLLM captures CUDA graphs: 40 %"),
    (b"INFO 08-21 [gpu_model_runner.py:2653] Starting to load model Qwen/Qwen3-0.6B...", "vLLM loads Qwen/Qwen3-0.6B"),
    (b"INFO:     Application startup complete.", "inference serves"),
    (b"SUCCESS Submitted batch job 4711", "job 4711 is submitted"),
    (b"Starting train env server reverse-text at tcp://127.0.0.1:5000", "the environment server reverse-text starts")])
def test_a_stages_line(line, words):
    found = [text.format(*(group.decode() for group in match.groups())) for pattern, text in health.STAGES
             for match in [re.search(pattern, line)] if match]
    assert found == [words]


def is_finished(data):
    return any(re.search(pattern, data) for pattern in health.FINISHED)


def test_ends():
    for case, names in (("finished_healthy", {"trainer", "orchestrator", "launch"}), ("sft_healthy", {"trainer", "evals"}),
                        ("json_logging_healthy", {"trainer", "orchestrator"}), ("gate_passes_healthy", set())):
        assert {name for name, (_, data) in read_case(case).items() if is_finished(data)} == names
    assert not is_finished(b"12:00:01 WARNING Orchestrator cleanup complete (forced).")
    assert not is_finished(b"12:00:01 WARNING Trace failed in group x \xe2\x80\x94 TaskError: Training finished!")


# Where the logs lie

def touch(path, text="x\n", seconds=None):
    os.makedirs(os.path.dirname(str(path)), exist_ok=True)
    with open(str(path), "w") as out:
        out.write(text)
    if seconds is not None:
        os.utime(str(path), (seconds, seconds))
    return str(path)


def make_attempt(run, number, latest=True, seconds=None):
    attempt = run / "logs" / ("attempt_%d" % number)
    for name in ("trainer", "orchestrator", "inference", "envs/train/math"):
        touch(attempt / (name + ".log"))
    if seconds is not None:
        os.utime(str(attempt), (seconds, seconds))
    if latest:
        link = run / "logs" / "latest"
        if os.path.lexists(str(link)):
            os.unlink(str(link))
        os.symlink("attempt_%d" % number, str(link))
    return str(attempt)


@pytest.fixture
def run(tmp_path):
    return tmp_path / "outputs" / "math--x"


def test_L17_the_logs_of_the_attempt_that_the_launch_made(run):
    first = make_attempt(run, 1)
    second = make_attempt(run, 2)
    logs = health.list_logs("rl", {"run_dir": str(run), "before": ["attempt_1"], "launch_log": "/c/logs/launch_1.log"})
    assert list(logs.items()) == [
        ("trainer", second + "/trainer.log"), ("orchestrator", second + "/orchestrator.log"),
        ("inference", second + "/inference.log"), ("launch", "/c/logs/launch_1.log"),
        ("env train math", second + "/envs/train/math.log")]
    # A later launch's is not this one's, an earlier one's neither.
    assert health.list_logs("rl", {"run_dir": str(run), "before": []})["trainer"] == first + "/trainer.log"
    assert health.list_logs("rl", {"run_dir": str(run), "before": ["attempt_1", "attempt_2"]}) == {}
    # A job that was queued again goes on in another attempt.
    assert health.list_logs("rl", {"run_dir": str(run), "before": [], "job_logs": {"7": "/j/job_7.log"}}) == dict(
        health.list_logs("rl", {"run_dir": str(run), "before": ["attempt_1"]}), **{"job 7": "/j/job_7.log"})
    told = {"run_dir": str(run), "before": [], "train_log": second + "/trainer.log"}
    assert health.list_logs("rl", told)["trainer"] == second + "/trainer.log"


def test_a_run_without_a_record_follows_latest(run):
    first, third = make_attempt(run, 1), make_attempt(run, 3)
    assert health.list_logs("rl", {"run_dir": str(run)})["trainer"] == third + "/trainer.log"
    os.unlink(str(run / "logs" / "latest"))
    assert health.list_logs("rl", {"run_dir": str(run)})["trainer"] == third + "/trainer.log"
    os.symlink("attempt_1", str(run / "logs" / "latest"))
    assert health.list_logs("rl", {"run_dir": str(run)})["trainer"] == first + "/trainer.log"


def test_the_layout_without_attempts(run):
    path = touch(run / "logs" / "trainer.log")
    assert health.list_logs("rl", {"run_dir": str(run), "before": []}) == {"trainer": path}
    assert health.list_logs("rl", {"run_dir": str(run)}) == {"trainer": path}
    assert health.list_logs("rl", {"run_dir": str(run / "none")}) == health.list_logs("rl", {}) == {}


def test_logs_of_several_nodes(run):
    attempt = make_attempt(run, 1)
    for part in ("trainer", "inference"):
        for node in (0, 1, 10):
            touch("%s/%s/node_%d.log" % (attempt, part, node))
        os.unlink("%s/%s.log" % (attempt, part))
        os.symlink("%s/node_0.log" % part, "%s/%s.log" % (attempt, part))
    router = touch(attempt + "/inference/router.log")
    logs = health.list_logs("rl", {"run_dir": str(run), "job_logs": ["/j/job_12.log"]})
    assert list(logs) == ["trainer", "orchestrator", "inference", "env train math", "trainer node 1", "trainer node 10",
                          "inference node 1", "inference node 10", "router", "job 12"]
    assert logs["router"] == router and logs["trainer node 10"] == attempt + "/trainer/node_10.log"


def test_the_monitors_file_belongs_to_an_attempt_that_wrote_to_it(run):
    make_attempt(run, 1, seconds=2000)
    path = touch(run / "metrics.jsonl", seconds=1000)
    evals = touch(run / "logs" / "evals.log", seconds=1000)
    assert not {"metrics", "metrics orchestrator", "evals"} & set(health.list_logs("rl", {"run_dir": str(run)}))
    os.utime(path, (3000, 3000))
    os.utime(evals, (3000, 3000))
    logs = health.list_logs("rl", {"run_dir": str(run)})
    assert logs["metrics"] == logs["metrics orchestrator"] == path and logs["evals"] == evals
    assert health.list_logs("", {"run_dir": str(run)}) == logs
    # A later attempt goes on in the same file.
    make_attempt(run, 2, seconds=3000)
    assert "metrics" not in health.list_logs("rl", {"run_dir": str(run), "before": []})
    assert "metrics" in health.list_logs("rl", {"run_dir": str(run), "before": ["attempt_1"]})
    for name in ("trainer", "orchestrator"):
        os.unlink(str(run / "logs" / "attempt_2" / (name + ".log")))
    os.utime(path, None)
    assert "metrics orchestrator" not in health.list_logs("sft", {"run_dir": str(run)})


def test_servers_and_evaluations_print_where_they_were_started():
    assert health.list_logs("inference", {"launch_log": "/l"}) == {"inference": "/l", "launch": "/l"}
    assert health.list_logs("evals", {"launch_log": "/l"}) == {"evals": "/l", "launch": "/l"}


@pytest.mark.parametrize("place", ["logs/attempt_2/trainer/torchrun/a/attempt_0/0/stdout.log", "logs/attempt_2/orchestrator.log",
                                   "logs/attempt_2/envs/train/math.log"])
def test_a_run_is_traced_by_what_its_parts_write(run, place, tmp_path):
    launch = touch(tmp_path / "out.txt")
    parts = {7: ("PRIME-RL::Launcher", launch), 8: ("PRIME-RL::Orchestrator", "%s/%s" % (run, place)), 9: ("sleep", "/dev/null")}
    tree = [make_process(pid, title) for pid, (title, _) in parts.items()]
    told = health.trace_run(tree, lambda pid, number: parts[pid][1], lambda pid: str(tmp_path))
    assert told == {"run_dir": str(run), "train_log": "%s/logs/attempt_2/trainer.log" % run, "launch_log": launch}


def test_a_run_is_traced_by_words(run, tmp_path):
    os.makedirs(str(run))
    for words in (("--output-dir", "outputs", "--run.name", "math--x"), ("--run.name=math--x",), ("--run.dir", "math--x")):
        tree = [make_process(7, "uv", "run", "rl", "@", "rl.toml", *words)]
        told = health.trace_run(tree, lambda pid, number: "/dev/pts/0", lambda pid: str(tmp_path))
        assert told == {"run_dir": str(run)}
    config = "%s/configs/orchestrator.json" % run
    by_config = [make_process(7, "python3", "-m", "prime_rl.orchestrator.orchestrator", "@", config)]
    assert health.trace_run(by_config, lambda pid, number: None, lambda pid: str(tmp_path)) == {"run_dir": str(run)}
    nowhere = [make_process(7, "uv", "run", "rl", "@", "rl.toml", "--run.name", "other")]
    assert health.trace_run(nowhere, lambda pid, number: None, lambda pid: str(tmp_path)) == {}
    assert health.trace_run([], lambda pid, number: None, lambda pid: None) == {}


# What a run was set up to do

def test_the_outline_of_rl(run):
    touch(run / "configs" / "trainer.json", json.dumps({
        "max_steps": 50, "ckpt": {"interval": 10, "output_dir": None}, "data": {}}))
    touch(run / "configs" / "orchestrator.json", json.dumps({"max_steps": 50, "eval": {"interval": 25}}))
    outline = health.read_outline("rl", b"", {"run_dir": str(run)})
    assert outline == Outline(total=50, total_from=str(run / "configs" / "trainer.json"), flags=RL,
                              checkpoints=str(run / "checkpoints"), save_every=10, test_every=25)
    # The log of the attempt knows better than a config that another dry run has rewritten.
    attempt = make_attempt(run, 1)
    touch(attempt + "/trainer.log", "12:00:01 INFO Starting training loop (max_steps=40)\n")
    assert health.read_outline("rl", "", {"run_dir": str(run)})[:2] == (40, attempt + "/trainer.log")
    touch(attempt + "/trainer.log", "12:00:01 INFO Starting training loop (max_steps=infinite)\n")
    assert health.read_outline("rl", "", {"run_dir": str(run)})[:2] == (None, attempt + "/trainer.log")


def test_the_outline_of_an_attempts_own_config(run):
    for number, steps in ((1, 10), (2, 20)):
        make_attempt(run, number)
        touch(run / "configs" / ("attempt_%d" % number) / "resolved" / "rl.json", json.dumps({
            "max_steps": steps, "trainer": {"ckpt": {"interval": 5, "output_dir": "/ckpt"}, "data": {"fake": {"batch_size": 2}}},
            "deployment": {"type": "multi_node", "num_train_nodes": 2, "num_infer_nodes": 1}}))
    outline = health.read_outline("rl", "", {"run_dir": str(run), "before": []})
    assert (outline.total, outline.nodes, outline.checkpoints, outline.save_every) == (10, 3, "/ckpt/checkpoints", 5)
    assert outline.flags == ("rl", "training")  # fake data: there is no orchestrator
    assert health.read_outline("", "", {"run_dir": str(run), "before": []}) == outline  # of files alone
    assert health.read_outline("rl", "", {"run_dir": str(run), "before": ["attempt_1"]}).total == 20


def test_the_outline_of_sft_and_of_what_trains_nothing(run):
    touch(run / "configs" / "sft.json", json.dumps({"max_steps": 30, "ckpt": None, "eval": {"interval": 7}}))
    assert health.read_outline("sft", "", {"run_dir": str(run)}) == Outline(
        total=30, total_from=str(run / "configs" / "sft.json"), flags=SFT, checkpoints=str(run / "checkpoints"), test_every=7)
    assert health.read_outline("", "", {"run_dir": str(run)}).flags == SFT
    head = "x\n12:00:01    INFO Starting training loop (max_steps=12)\n"
    assert health.read_outline("sft", head, {"launch_log": "/l"})[:2] == (12, "/l")
    assert health.read_outline("inference", head.encode()[:3], {}) == health.read_outline("evals", "", {}) == Outline()
    touch(run / "configs" / "sft.json", '{"max_steps": ')
    assert health.read_outline("sft", "", {"run_dir": str(run)}).total is None


def save(run, step, trainer=(".metadata", "__0_0.distcp"), orchestrator=True):
    for name in trainer:
        touch(run / "checkpoints" / ("step_%d" % step) / "trainer" / name)
    if orchestrator:
        touch(run / "checkpoints" / ("step_%d" % step) / "orchestrator" / "progress.pt")
    return str(run / "checkpoints" / ("step_%d" % step))


def test_the_newest_checkpoint_that_is_complete(run):
    outline = Outline(checkpoints=str(run / "checkpoints"))
    assert health.find_checkpoint(outline, {}) is None and health.find_checkpoint(Outline(), {}) is None
    unfinished = save(run, 10, ("__0_0.distcp",))
    assert health.find_checkpoint(outline, {}) is None
    nine = save(run, 9)
    assert health.find_checkpoint(outline, {}) == Checkpoint(9, nine, (unfinished,))
    ten = save(run, 10)
    assert health.find_checkpoint(outline, {}) == Checkpoint(10, ten, ())
    lone = save(run, 11, orchestrator=False)  # the others have an orchestrator's part
    again = save(run, 12, (".metadata", ".metadata.tmp", "__0_0.distcp"))
    empty = save(run, 13, (".metadata",))
    assert health.find_checkpoint(outline, {}) == Checkpoint(10, ten, (lone, again, empty))


def test_checkpoints_of_sft_and_of_the_older_layout(run):
    outline = Outline(checkpoints=str(run / "checkpoints"))
    four = save(run, 4, orchestrator=False)
    assert health.find_checkpoint(outline, {}) == Checkpoint(4, four, ())
    for name in (".metadata", "__0_0.distcp"):
        touch(run / "checkpoints" / "step_5" / name)
    assert health.find_checkpoint(outline, {}).step == 5


def test_a_run_has_one_directory():
    assert health.find_siblings({"run_dir": "/o/x"}, 4) == ()
