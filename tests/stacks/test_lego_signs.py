"""What the numbers of Lego-RL mean: signatures and gates on recorded logs, each with its healthy twin; step lines, stages."""
import math
import re
from pathlib import Path

import pytest

from rlrun.health import signatures as health
from rlrun.stacks import lego_health as lego
from rlrun.stacks import load_health
from rlrun.vitals import Quote, Track

RECORDED = Path(__file__).resolve().parent.parent / "recorded" / "lego"
SICK = {
    "r3_misaligned": "r3:misaligned", "lr_frozen": "lr:frozen", "grad_starved": "grad:starved", "env_avalanche": "env:avalanche",
    "val_fake_zero": "val:fake-zero", "tools_collapse": "tools:collapse", "reward_zero": "reward:zero",
    "traj_invalid": "traj:invalid", "response_clipped": "response:clipped", "r3_low": "r3:low", "reward_lost": "reward:lost",
    "env_avalanche_floor": "env:avalanche"}
TWINS = sorted(path.stem for path in RECORDED.glob("*_twin.log"))
GATED = sorted(path.stem for path in RECORDED.glob("gate_*.log"))


def parse(line, wanted=None):
    return lego.parse_step("train", line, wanted)


def read_evidence(name):
    """Evidence out of one recorded log, by whole lines, the offset of each with it."""
    path = str(RECORDED / (name + ".log"))
    data = Path(path).read_bytes()
    points, place = [], 0
    for line in data.split(b"\n")[:-1]:
        point = parse(line.decode("utf-8")) if lego.STEP_MARKS["train"] in line else None
        if point:
            points.append(point._replace(offset=place))
        place += len(line) + 1

    def quote(of_path, offset, key):
        line = data[offset:data.index(b"\n", offset)].decode("utf-8")
        return Quote(of_path, offset, data.count(b"\n", 0, offset) + 1, lego.quote_metric(line, key))
    texts = {"train": health.Text("train", path, data, 0, 1)}
    return health.Evidence({"train": Track(path, tuple(points), True)}, texts, "train", quote)


def find(name, flags=("r3",)):
    return health.find_signatures(lego.SIGNATURES, read_evidence(name), flags)


@pytest.mark.parametrize("name", sorted(SICK))
def test_each_way_to_fail_is_told_alone_and_quoted(name):
    findings = find(name)
    assert [one.name for one in findings] == [SICK[name]]
    assert findings[0].quotes
    for quote in findings[0].quotes:
        line = Path(quote.log).read_text(encoding="utf-8").split("\n")[quote.line - 1]
        assert "\x1b" not in quote.text and re.match(r"step:\d+ ", quote.text)
        assert quote.text.rpartition(" ")[2] in line
    assert 1 <= len(findings[0].advice) <= 3


@pytest.mark.parametrize("name", TWINS)
def test_no_healthy_twin_is_called_sick(name):
    assert find(name) == ()


def test_every_signature_has_a_log_and_a_twin():
    assert {one.name for one in lego.SIGNATURES} == set(SICK.values())
    assert {name + "_twin" for name in SICK} - {"env_avalanche_floor_twin"} <= set(TWINS)


def test_a_quote_tells_step_and_value():
    assert find("lr_frozen")[0].quotes[0].text == "step:4 … actor/lr:np.float64(0.0)"


def test_a_warm_up_begins_with_a_true_zero():
    evidence = read_evidence("lr_warmup_twin")
    track = evidence.tracks["train"]
    assert track.points[0].values["actor/lr"] == 0 and not track.points[0].rounded
    first = evidence._replace(tracks={"train": track._replace(points=track.points[:1])})
    assert health.find_signatures(lego.SIGNATURES, first, ()) == ()


def test_routing_replay_is_not_accused_where_it_is_off():
    assert find("r3_misaligned", flags=("r3:off",)) == ()
    assert [one.name for one in find("r3_misaligned", flags=())] == ["r3:misaligned"]  # a bare log does not tell whether it is on


def test_a_run_that_collapsed_steps_ago_is_still_told():
    evidence = read_evidence("tools_collapse")
    track = evidence.tracks["train"]
    last = track.points[-1]
    more = tuple(last._replace(step=last.step + n) for n in range(1, 4))
    later = evidence._replace(tracks={"train": track._replace(points=track.points + more)})
    assert [one.name for one in health.find_signatures(lego.SIGNATURES, later, ())] == ["tools:collapse"]


@pytest.mark.parametrize("name", GATED)
def test_gates(name):
    _, gate, outcome = name.split("_")
    results = health.judge_gates(lego.GATES, read_evidence(name), ("r3",), 1)
    states = {one.name: one.state for one in results}
    assert states.pop("gate:" + gate) == ("passed" if outcome == "passed" else "failed")
    assert set(states.values()) == {"passed"}
    shown = next(one for one in results if one.name == "gate:" + gate).quote
    assert shown.text.startswith("step:1 ")


def test_every_gate_has_a_log_that_passes_and_one_that_fails():
    names = {name.rpartition("_")[0] + ":" + name.rpartition("_")[2] for name in GATED}
    for gate in lego.GATES:
        assert {gate.name.replace(":", "_") + ":passed", gate.name.replace(":", "_") + ":failed"} <= names


def test_gates_wait_for_a_training_step_and_heed_the_flags():
    evidence = read_evidence("gate_r3_failed")
    first = evidence.tracks["train"]._replace(points=evidence.tracks["train"].points[:1])
    waiting = health.judge_gates(lego.GATES, evidence._replace(tracks={"train": first}), ("r3",), 1)
    assert {one.state for one in waiting} == {"unknown"}  # L1: step 0 has a validation only
    for flags, state in (((), "failed"), (("r3:off",), "skipped")):
        states = {one.name: one.state for one in health.judge_gates(lego.GATES, evidence, flags, 1)}
        assert states["gate:r3"] == state


def test_readings():
    readings = {one.key: one for one in health.read_metrics(lego.METRICS, read_evidence("fully_async_twin"))}
    assert readings["training/rollout_actor_probs_pearson_corr"].label == "pearson"
    assert readings["fully_async/processing_time/tp99"].value == 1911.2
    assert readings["fully_async/trainer/idle_ratio"].mark == "advisory"
    assert readings["val-core/swe/reward/mean@1"].step == 2
    assert {one.mark for key, one in readings.items() if not key.startswith("fully_async")} <= {"pass", "skipped"}
    assert {one.row for one in readings.values()} == {"reward", "grads", "traj", "val", "more"}
    frozen = {one.key: one for one in health.read_metrics(lego.METRICS, read_evidence("lr_frozen"))}["actor/lr"]
    rounded = {one.key: one for one in health.read_metrics(lego.METRICS, read_evidence("lr_frozen_twin"))}["actor/lr"]
    assert (frozen.mark, rounded.mark, rounded.is_rounded) == ("advisory", "skipped", True)


@pytest.mark.parametrize("name, mark", [
    ("r3_misaligned", "blocks"), ("traj_invalid", "blocks"), ("val_fake_zero", "advisory"), ("reward_zero", "advisory"),
    ("grad_starved", "advisory"), ("env_avalanche", "advisory"), ("response_clipped", "advisory"),
    ("tools_collapse", "advisory")])
def test_what_a_signature_rests_on_reads_badly_too(name, mark):
    evidence = read_evidence(name)
    rule = next(one for one in lego.SIGNATURES if one.name == SICK[name]).rules[0]
    readings = health.read_metrics(lego.METRICS, evidence)
    assert mark in [one.mark for one in readings if one.key == rule.key or one.key.startswith(rule.key.rstrip("*"))
                    and rule.key.endswith("*")]


def test_tables_fit_together():
    keys = [one.key for one in lego.METRICS]
    assert len(keys) == len(set(keys))
    rules = [rule for one in lego.SIGNATURES + lego.GATES for rule in one.rules]
    families = {"actor/*", "critic/*"}  # of the gate that asks whether all of them are finite
    assert {rule.key for rule in rules} - families <= set(keys)
    assert {rule.test for rule in rules if rule.key in families} == {"finite"}
    assert {rule.at for rule in rules} <= {""} | set(keys)
    tests = {rule.test for rule in rules} | {band[0] for one in lego.METRICS for band in one.bands if band[0]}
    assert tests <= set(health.TESTS) | {"quiet", "lines"}
    for metric in lego.METRICS:
        assert not metric.bands or metric.bands[-1][0] == "", metric.key  # each value has a reading
        assert {band[2] for band in metric.bands} <= {"pass", "advisory", "blocks", "skipped"}
    assert load_health("lego") is lego and lego.SOURCES[0] in lego.STEP_MARKS
    for one in lego.SIGNATURES:
        assert len(one.advice) <= 3 and one.severity in ("stop", "risk", "note") and "\n" not in one.words


# Step lines.
LINE = "step:3 - training/global_step:3 - actor/lr:1e-06 - timing_s/step:12.5"


@pytest.mark.parametrize("prefix", [
    "", "\x1b[36m(TaskRunner pid=1)\x1b[0m ", "(TaskRunner pid=1, ip=10.0.0.1) ", "\x1b[36m(main_task pid=9, ip=fd00::5)\x1b[0m ",
    "[rank0]: ", "[trainer0]:", "Training:  3%|▎ | 3/100 [00:10", "Training Progress:   3%|▎    | 3/100 [00:10<05:23,  3.33s/it]",
    "(TaskRunner pid=1) Training Progress:   3%|\ufffd\ufffd | 3/100 [00:10<?, ?it/s](TaskRunner pid=1) ", "x 1%|\rab\r  ", "  "])
@pytest.mark.parametrize("suffix", ["", "\r", " [repeated 3x across cluster]", "\x1b[0m\r\n",
                                    " [repeated 2x across cluster] (Ray deduplicates logs by default.)"])
def test_prefixes_and_suffixes(prefix, suffix):
    point = parse(prefix + LINE + suffix)
    assert (point.step, point.seconds, point.is_training) == (3, 12.5, True)
    assert point.values == {"training/global_step": 3.0, "actor/lr": 1e-06, "timing_s/step": 12.5}


@pytest.mark.parametrize("line", [
    "", "step:", "step:3", "step:3 - ", "training/" + LINE, "I saw " + LINE, '{"text": "%s"}' % LINE, "`%s`" % LINE, "x" + LINE,
    "step:12 - x:1 and so on", "the agent wrote step:12 - x:1", "step:-1 - a/b:1", "step:3 - see src/foo: it is broken",
    "(AgentLoopWorker pid=3) " + LINE, "(WorkerDict pid=3) " + LINE, "(vLLMHttpServer pid=3) " + LINE, "step:3 - a/b:",
    "(note) " + LINE, "(TaskRunner pid=x) " + LINE, "step:1 -a/b:1", "step:99999999999999999999 - a/b:1", "\x00\ud800step:"])
def test_no_step_line(line):
    assert parse(line) is None


@pytest.mark.parametrize("raw, value", [
    ("0.3", 0.3), ("np.float64(1e-06)", 1e-06), ("np.int64(4)", 4.0), ("np.float32(0.25)", 0.25), ("tensor(0.5)", 0.5),
    ("tensor(0.5, device='cuda:0')", 0.5), ("inf", math.inf), ("-inf", -math.inf), ("np.float64(-inf)", -math.inf),
    ("31.2%", 0.312),
    ("12345 tokens/s", 12345.0), ("-1.5", -1.5), ("1e999", math.inf), ("None", None), ("1e-", None), ("np.float64(1e", None),
    ("", None), ("abc", None), ("1e-06s", None), ("[0.5]", None), ("0.2 - 0.5", 0.2)])
def test_values(raw, value):
    point = parse("step:3 - training/global_step:3 - a/b:" + raw)
    assert point.values.get("a/b") == (value if value is None else pytest.approx(value))


def test_not_a_number_is_kept():
    assert math.isnan(parse("step:3 - training/global_step:3 - a/b:nan").values["a/b"])
    assert math.isnan(parse("step:3 - training/global_step:3 - a/b:np.float64(nan)").values["a/b"])


@pytest.mark.parametrize("raw, is_rounded", [
    ("0.00", True), ("0.000", True), ("-0.000", True), ("0", False), ("0.0", False), ("0.00e+00", False),
    ("np.float64(0.0)", False), ("0.001", False), ("0e0", False)])
def test_a_rounded_zero_is_told_from_a_true_one(raw, is_rounded):
    assert (parse("step:1 - actor/lr:" + raw).rounded == ("actor/lr",)) == is_rounded


def test_only_what_is_wanted_is_kept():
    line = "step:5 - x/y:1 - training/global_step:5 - val-core/a/b@1:0.5 - val-core/c:0.000 - timing_s/step:7 - actor/lr:0.1"
    point = parse(line, ("actor/lr", "val-core/*", "none/such"))
    assert point.values == {"actor/lr": 0.1, "val-core/a/b@1": 0.5, "val-core/c": 0.0}
    assert (point.rounded, point.seconds, point.is_training) == (("val-core/c",), 7.0, True)
    assert parse(line, ()).values == {} and parse(line, ()).is_training


def test_a_validation_and_what_follows_a_step_are_no_training_steps():  # L1
    for line in ("step:0 - val-core/swe/reward/mean@1:0.41", "step:3 - timing_s/param_sync:14.2",
                 "step:3 - rollouter/validate_time:9"):
        assert parse(line).is_training is False
    evidence = read_evidence("fully_async_twin")
    assert [(one.step, one.is_training) for one in evidence.tracks["train"].points] == [
        (1, True), (1, False), (2, True), (2, False), (3, True), (3, False), (2, False), (4, True), (4, False)]


def test_a_line_cut_in_the_middle_gives_what_is_whole():
    for end in range(len("step:3 - training/global_step:3 - "), len(LINE)):
        point = parse(LINE[:end])
        assert point.step == 3 and point.values.get("actor/lr", 1e-06) in (1e-06, 1.0)
    assert parse("step:5 - training/global_step:5 - actor/gra").values == {"training/global_step": 5.0}


def test_no_text_makes_it_fail_or_linger():
    # Each would take minutes if a pattern went back and forth over it; the run of the tests is the limit.
    for text in ("step:" * 100000, " " * 500000 + LINE, "[" * 200000 + LINE, "1%|" * 100000 + LINE, "(a pid=1) " * 50000 + LINE,
                 LINE + " - " * 100000, "step:1 - " + "a/b:1 - " * 50000, "step:1 - a/b:" + "np.float64(" * 50000,
                 "\r" * 500000 + LINE,
                 "step:1 - a/b:" + "9" * 100000 + "x", "a" * 500000 + ":" + LINE):
        parse(text)
        lego.quote_metric(text, "a/b")
    assert parse("\r" * 1000 + LINE).step == 3


def test_quotes():
    assert lego.quote_metric("\x1b[36m(TaskRunner pid=1)\x1b[0m " + LINE, "actor/lr") == "step:3 … actor/lr:1e-06"
    assert lego.quote_metric(LINE, "training/global_step") == "step:3 - training/global_step:3"
    assert lego.quote_metric(LINE, "") == LINE and lego.quote_metric(LINE, "no/such") == LINE
    assert lego.quote_metric("no step\x07 here", "a/b") == "no step\\x07 here"
    assert lego.quote_metric("step:3 - a/b:\x07" + "9" * 999, "a/b").startswith("step:3 - a/b:\\x07999")
    assert len(lego.quote_metric("x" * 9999, "")) < 200


# Before the first step, and at the end.
def find_stages(name):
    data = (RECORDED / (name + ".log")).read_bytes()
    found = []
    for pattern, words in lego.STAGES:
        matches = list(re.finditer(pattern, data))
        if matches:
            found.append(words.replace("{0}", (matches[-1].groups() or (b"",))[0].decode("utf-8")))
    return found


def test_stages_come_in_order():
    assert find_stages("launch_sync") == [
        "the runner reads its config and checks it", "sweep: clearing what earlier runs left", "Ray head starting",
        "Ray is up; waiting for {nodes} nodes in all: status asks how many joined",
        "all nodes joined; trainer starting", "trainer starting", "model weights loading, shard 9/20",
        "model weights loading, shard 9/20", "KV cache and memory profiling", "CUDA graph capture, 31/67"]
    assert find_stages("launch_async")[-1] == "rollouts starting"
    assert find_stages("launch_worker")[-1] == "worker joined; the head node drives the run"
    assert find_stages("launch_too_few_nodes")[-1] == "only 1/2 nodes joined: the runner gave up"
    assert find_stages("launch_eval")[-1] == "vLLM server starting"
    assert find_stages("lr_frozen")[-1] == "rollouts under way, 31/32 trials done"


@pytest.mark.parametrize("text, is_end", [
    ('(TaskRunner pid=1) ("Final validation metrics: {', True), ("=== DONE: solved=4 / scored=9  (/x) ===", True),
    ("Training Progress: 100%|███| 9/9 [", True), ("=== Inference complete ===", True),
    ("Training Progress:  99%|██ | 8/9 [", False),
    ("[ASYNC MAIN] Training completed or interrupted\ntotal time: 912.11 seconds", False)])  # L15: also where it ended early
def test_how_a_log_says_that_it_is_finished(text, is_end):
    assert any(re.search(one, text.encode("utf-8")) for one in lego.FINISHED) == is_end
