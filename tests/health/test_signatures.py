"""Judgement by tables, on made-up values: each test of a rule, lines, gates, bands, what is not finite."""
import math

import pytest

from rlrun.health import signatures as health
from rlrun.vitals import Gate, Metric, Point, Quote, Rule, Signature, Track

NAN, INF = float("nan"), float("inf")


class Rounded(float):
    """A 0 that may be a small number."""


R0 = Rounded(0)


def make_track(path="/x/train.log", **columns):
    """Steps from 1 on; None where a line does not tell the key. `_` in a keyword stands for `/`."""
    columns = {key.replace("_", "/"): values for key, values in columns.items()}
    points = []
    for place in range(max(map(len, columns.values()), default=0)):
        told = {key: values[place] for key, values in columns.items() if place < len(values) and values[place] is not None}
        points.append(Point(place + 1, {key: float(value) for key, value in told.items()},
                            tuple(key for key, value in told.items() if isinstance(value, Rounded)), None, 100 * (place + 1)))
    return Track(path, tuple(points), True)


def quote(path, offset, key):
    return Quote(path, offset, offset // 100, key)


def make_evidence(tracks=None, texts=(), main="train"):
    made = {text[0]: health.Text(text[0], "/x/%s.log" % text[0], text[1], *(text[2:] or (0, 1))) for text in texts}
    return health.Evidence(tracks or {}, made, main, quote)


def prove(rule, values, **more):
    return health.prove_rule(rule, make_evidence({"train": make_track(a=values, **more)}))


CASES = {  # test: [(limit, steps, values, the step that shows it, or None)]
    "below": [(0.5, 1, [0.4], 1), (0.5, 2, [0.9, 0.4, 0.3], 3), (0.5, 2, [0.4, 0.5], None), (0.5, 2, [0.4], None),
              (0.5, 1, [], None),
              (0.5, 1, [NAN], None), (0.5, 2, [0.4, NAN], None), (0.5, 1, [-INF], 1), (0, 1, [-1e-9], 1), (0, 1, [0], None)],
    "above": [(0.5, 1, [0.6], 1), (0.5, 2, [0.6, 0.5], None), (0.5, 1, [NAN], None), (0.5, 1, [INF], 1), (0.5, 3, [1, 1], None),
              (-1, 1, [-0.5], 1)],
    "at_least": [(0.99, 1, [0.99], 1), (0.99, 1, [0.98], None), (0.99, 1, [NAN], None), (1, 2, [1, None, 2], 3),
                 (1, 2, [0, 2], None)],
    "at_most": [(2, 1, [2], 1), (2, 1, [2.1], None), (2, 1, [NAN], None), (2, 2, [3, 1, 1], 3), (0, 1, [-3], 1)],
    "zero": [(0, 1, [0], 1), (0, 1, [-0.0], 1), (0, 1, [R0], None), (0, 2, [0, R0], None), (0, 2, [R0, 0, 0], 3),
             (0, 2, [0], None),
             (0, 1, [NAN], None), (0, 1, [1e-300], None), (0, 5, [0] * 50, 50), (0, 5, [0, 0, 0, 0, 1e-6], None),
             (0, 1, [], None)],
    "zero_shown": [(0, 1, [R0], 1), (0, 2, [0, R0], 2), (0, 1, [1e-6], None), (0, 1, [NAN], None), (0, 1, [], None)],
    "nonzero": [(0, 1, [1e-300], 1), (0, 1, [-2], 1), (0, 1, [R0], 1), (0, 1, [0], None), (0, 1, [], None), (0, 2, [0, 1], None),
                (0, 1, [NAN], None), (0, 1, [-INF], None)],
    "finite": [(0, 1, [0], 1), (0, 1, [NAN], None), (0, 1, [INF], None), (0, 1, [NAN, 1], 2), (0, 2, [NAN, 1], None),
               (0, 1, [], None)],
    "always_zero": [(0, 5, [0] * 5, 5), (0, 5, [0] * 4, None), (0, 5, [0.3] + [0] * 9, None), (0, 5, [0, 0, 0, 0, R0], None),
                    (0, 5, [0, None, 0, 0, 0, 0], 6), (0, 5, [0] * 5 + [NAN], None), (0, 1, [], None)],
    "nonfinite": [(0, 1, [1, NAN, INF, 1], 2), (0, 1, [1, -INF], 2), (0, 1, [1, 2], None), (0, 1, [], None), (0, 9, [NAN], 1)],
    "falling": [(0.75, 4, [0.4, 0.35, 0.3, 0.25], 4), (0.75, 4, [0.4, 0.39, 0.38, 0.37], None), (0.75, 4, [0.4, 0.3, 0.2], None),
                (0.75, 4, [0.1, 0.2, 0.3, 0.4], None), (0.75, 4, [1, 1, 1, 1], None), (0.75, 3, [9, 0.1, 0.4, 0.3, 0.2], 5),
                (0.75, 4, [NAN] * 9, None), (0.75, 4, [0.4, NAN, 0.35, 0.3, 0.25], 5), (0.75, 4, [0, 0, 0, 0], None),
                (0.75, 4, [-1, -1.1, -1.2, -1.3], 4), (0.75, 4, [-1, -1.01, -1.02, -1.03], None),
                (0.75, 4, [-1, -0.9, -0.8, -0.5], None),
                (0.75, 1, [0.4, 0.1], None), (0.75, 4, [], None)],
    "climbing": [(8, 4, [1, 3, 6, 9], 4), (8, 4, [1, 3, 5, 7], None), (8, 4, [9, 8, 7, 6], None), (8, 4, [9, 9, 9, 9], None),
                 (8, 4, [3, 6, 9], None), (8, 4, [NAN] * 6, None), (8, 4, [1, INF, 3, 6, 9], 5), (8, 4, [9, 3, 5, 8.5], None),
                 (8, 4, [], None),
                 # It rose and stays: from half of the limit, or less, by the first three.
                 (8, 4, [1, 1, 1, 9, 9, 9, 9], 7), (8, 4, [4, 4, 4, 30, 31, 30, 30], 7), (8, 4, [5, 5, 5, 9, 9, 9, 9], None),
                 (8, 4, [1, 1, 9, 9, 9, 9], None), (8, 4, [1, 1, 1, 9, 9, 7, 9], None),
                 (8, 4, [1, 1, 1] + [30] * 40 + [9] * 4, 47),
                 (0, 4, [-1, -1, -1, 0, 0, 0, 0], None)],
    "shrunk": [(0.15, 3, [0.3, 0.3, 0.3, 0.03, 0.03, 0.03], 6), (0.15, 3, [0.3, 0.3, 0.3, 0.1, 0.1, 0.1], None),
               (0.15, 3, [0.3, 0.3, 0.03, 0.03, 0.03], None), (0.15, 3, [0.3] * 9 + [0.03, 0.03, 0.3], 12),
               (0.15, 3, [0.3] * 9 + [0.03, 0.3, 0.3], None), (0.15, 3, [NAN] * 9, None), (0.15, 3, [0] * 9, None),
               (0.15, 3, [], None),
               # The best earlier window is the measure: long down is still down; one peak is no window.
               (0.15, 3, [0.3] * 5 + [0.03] * 40, 45), (0.15, 3, [0.03, 0.03, 3, 0.03, 0.03, 0.03, 0.03, 0.03], None),
               (0.15, 3, [-1, -1, -1, -0.1, -0.1, -0.1], None), (0.75, 3, [-1, -1, -1, 0.5, 0.5, 0.5], None),
               (0.75, 3, [1, 1, 1, -0.5, -0.5, -0.5], 6), (0.15, 3, [0.3, NAN, 0.3, INF, 0.3, 0.03, NAN, 0.03, 0.03], 9)],
    "grown": [(10, 3, [0.3, 0.3, 0.3, 4, 4, 4], 6), (10, 3, [0.3, 0.3, 0.3, 1, 1, 1], None), (10, 3, [0.3, 0.3, 4, 4, 4], None),
              (10, 3, [0.3] * 6 + [4, 0.3, 0.3], None), (10, 3, [-1, -1, -1, -20, -20, -20], None),
              (10, 3, [0, 0, 0, 1, 1, 1], None),
              (10, 3, [0.3] * 5 + [4] * 40, 45), (10, 3, [4, 4, 0.3, 4, 4, 4, 4, 4], None),
              (10, 3, [1e-308] * 3 + [1e308] * 3, 6), (10, 3, [], None), (10, 3, [INF] * 9, None)],
    "quiet": [(0.1, 1, [0.05], 0), (0.1, 1, [], 0), (0.1, 1, [0.9, 0.05], 0), (0.1, 1, [0.05, 0.9], None), (0.1, 1, [NAN], None)],
}


@pytest.mark.parametrize("test,limit,steps,values,shown", [(test,) + case for test, cases in CASES.items() for case in cases])
def test_rules(test, limit, steps, values, shown):
    found = prove(Rule("a", test, limit, steps), values)
    assert found == (None if shown is None else [quote("/x/train.log", 100 * shown, "a")] if shown else [])


def test_every_test_has_cases_that_hold_and_that_do_not():
    assert set(CASES) == set(health.TESTS) | {"quiet"}
    assert all({case[3] is None for case in cases} == {True, False} for cases in CASES.values())


def test_a_log_that_is_not_there_shows_nothing():
    for test in health.TESTS:
        assert health.prove_rule(Rule("a", test), make_evidence()) is None
        assert health.prove_rule(Rule("a", test, source="other"), make_evidence({"train": make_track(a=[0, NAN])})) is None
    assert health.prove_rule(Rule("a", "quiet"), make_evidence()) == []


def test_a_star_means_every_key_that_begins_so():
    columns = {"val_x": [None, 0, 0], "val_y": [0.5, 0.5, 0.5], "validity": [0, 0, 0]}
    assert health.match_keys(make_track(**columns), "val/*") == ["val/x", "val/y"]
    assert health.match_keys(make_track(**columns), "val/x") == ["val/x"]
    assert health.match_keys(make_track(), "val/*") == []
    found = prove(Rule("val/*", "zero", 0, 2), [], **columns)
    assert found == [quote("/x/train.log", 300, "val/x")]
    assert prove(Rule("val/*", "above", 0.9), [], **columns) is None
    assert prove(Rule("val/*", "quiet", 0), [], **columns) is None  # quiet where all are
    assert prove(Rule("val/*", "quiet", 0.5), [], **columns) == []
    assert prove(Rule("other/*", "quiet", 0), [], **columns) == []


def test_a_signature_needs_all_its_rules_and_quotes_each_place_once():
    rules = (Rule("a", "zero", 0, 2), Rule("b", "above", 1), Rule("c", "quiet", 0), Rule("a", "zero_shown"))
    one = Signature("x:y", "risk", rules, "words", ("do",))
    tracks = {"train": make_track(a=[1, 0, 0], b=[5])}
    found, = health.find_signatures([one], make_evidence(tracks), ())
    assert found == ("x:y", "risk", "words", (quote("/x/train.log", 300, "a"), quote("/x/train.log", 100, "b")), ("do",))
    assert health.find_signatures([one], make_evidence({"train": make_track(a=[1, 0, 0], b=[5], c=[1])}), ()) == ()
    assert health.find_signatures([one], make_evidence({"train": make_track(a=[1, 0, 0])}), ()) == ()
    assert health.find_signatures([one._replace(needs=("r3",))], make_evidence(tracks), ()) == ()
    assert health.find_signatures([one._replace(needs=("r3",))], make_evidence(tracks), ("r3", "x")) == (found,)
    many = one._replace(rules=tuple(Rule("k%d" % number, "finite") for number in range(9)))
    tracks = {"train": make_track(**{"k%d" % number: [1] for number in range(9)})}
    assert 1 <= len(health.find_signatures([many], make_evidence(tracks), ())[0].quotes) <= 4


LINES = b"ok\nTimeoutError: timed out\n\x1b[31mTimeoutError\x1b[0m\nok\n"


@pytest.mark.parametrize("key,limit,source,found", [
    ("Timeout", 1, "", ("train", 3)), ("Timeout", 2, "", ("train", 3)), ("Timeout|timed out", 3, "", None),
    ("nothing", 1, "", None),
    ("Timeout", 0, "", ("train", 3)), ("Timeout", 1, "env", None), ("died", 1, "env/*", ("env/b", 41)),
    ("died", 2, "env/*", ("env/b", 41)),
    ("died", 3, "env/*", None), ("died", 2, "*", ("env/b", 41)), ("Timeout|died", 4, "*", ("env/b", 41)),
    ("died", 1, "absent", None),
    ("(?m)ok$", 2, "", ("train", 4)), (r"[tT]imed[^\n]*", 1, "", ("train", 2)),
])
def test_lines(key, limit, source, found):
    evidence = make_evidence({}, [("train", LINES), ("env/a", b"it died"), ("env/b", b"\n\nit died\n", 900, 39), ("envy", b"")])
    shown = health.prove_rule(Rule(key, "lines", limit, source=source), evidence)
    assert (shown and (shown[0].log, shown[0].line)) == (found and ("/x/%s.log" % found[0], found[1]))


@pytest.mark.parametrize("data,match,offset,line,text", [
    (b"one\ntwo three\n", b"three", 1004, 8, "two three"),
    (b"one\ntwo", b"two", 1004, 8, "two"),
    (b"one", b"one", 1000, 7, "one"),
    (b"a\r\nbar 3%\rerror here\r\nb", b"error", 1010, 8, "error here"),
    (b"\0\0\0error\0 x\n", b"error", 1000, 7, "error x"),
    (b"\x1b[1;31merror\x1b[0m: \x1b]0;owned\x07x\x07\xff\n", b"error", 1000, 7, "error: x\\x07\ufffd"),
    ("é".encode() * 200 + b" error " + "ü".encode() * 200, b"error", 1000, 7, "é" * 99 + " error " + "ü" * 139),
    (b"x\x1b[31m" * 90 + b"error" + b"\x1b[32my" * 90, b"error", 1000, 7, "x" * 90 + "error" + "y" * 90),
])
def test_quote_match(data, match, offset, line, text):
    log = health.Text("train", "/x/e.log", data, 1000, 7)
    start = data.index(match)
    found = health.quote_match(log, start, start + len(match))
    assert found == Quote("/x/e.log", offset, line, text)
    assert health.quote_match(log._replace(first_line=None), start, start + len(match)) == found._replace(line=None)


def test_a_quote_of_a_line_without_an_end_is_short():
    data = b"y" * 10 ** 6 + b"error" + b"z" * 10 ** 6
    found = health.quote_match(health.Text("a", "/a", data, 0, 1), 10 ** 6, 10 ** 6 + 5)
    assert len(found.text) <= 300 and "error" in found.text and found.offset == 0


GATE = Gate("gate:x", (Rule("a", "at_least", 0.99),), "too low")


def judge(gate, step=1, flags=(), **columns):
    result, = health.judge_gates([gate], make_evidence({"train": make_track(**columns)}), flags, step)
    return result.state, result.words, result.quote and (result.quote.offset, result.quote.text)


def test_gates_are_judged_on_their_step():
    assert judge(GATE, a=[0.999, 0.1]) == ("passed", "", (100, "a"))
    assert judge(GATE, a=[0.5, 0.999]) == ("failed", "too low", (100, "a"))
    assert judge(GATE, step=2, a=[0.5, 0.999, 0.1]) == ("passed", "", (200, "a"))
    assert judge(GATE, a=[NAN]) == ("failed", "a is nan", (100, "a"))
    assert judge(GATE._replace(rules=GATE.rules + (Rule("b", "nonzero"),)), a=[1], b=[0]) == ("failed", "too low", (100, "b"))
    assert judge(GATE._replace(rules=GATE.rules + (Rule("b", "nonzero"),)), a=[1], b=[R0]) == ("passed", "", (100, "a"))
    assert judge(GATE._replace(rules=(Rule("b", "nonzero"),)), b=[NAN]) == ("failed", "b is nan", (100, "b"))
    assert judge(GATE._replace(rules=(Rule("v/*", "nonzero"),)), **{"v_x": [0], "v_y": [1]})[0] == "passed"


def test_a_gate_waits_for_a_training_step():
    assert judge(GATE) == ("unknown", "no step line of train yet", None)
    assert judge(GATE, step=5, a=[0.5, 0.5]) == ("unknown", "step 5 of train is not told yet", None)
    alone = Track("/x", (Point(0, {"a": 0.1}, (), None, 7, is_training=False),), True)
    result, = health.judge_gates([GATE], make_evidence({"train": alone}), (), 0)
    assert result.state == "unknown", "a validation before the training is no step"
    assert health.judge_gates([GATE], make_evidence(), (), 1)[0].state == "unknown"
    both = GATE._replace(rules=GATE.rules + (Rule("r", "finite", source="other"),))
    tracks = {"train": make_track(a=[1, 1, 1]), "other": make_track(r=[1])}
    assert [health.judge_gates([both], make_evidence(tracks), (), step)[0].state for step in (1, 2)] == ["passed", "unknown"]


def test_a_key_that_is_not_told():
    assert judge(GATE, b=[1]) == ("failed", "a is not told", (100, ""))
    assert judge(GATE._replace(is_required=False), b=[1]) == ("skipped", "a is not told", (100, ""))
    assert judge(GATE._replace(rules=(Rule("a", "quiet", 1),)), b=[1]) == ("passed", "", None)


def test_a_gate_that_does_not_apply():
    state, words, place = judge(GATE._replace(needs=("r3",)), a=[0.1])
    assert (state, place) == ("skipped", None) and "r3" in words
    assert judge(GATE._replace(needs=("r3",)), flags=("r3",), a=[0.1])[0] == "failed"


def test_a_gate_on_lines():
    gate = Gate("gate:l", (Rule("ready", "lines"),), "never ready")
    found = [health.judge_gates([gate], make_evidence({}, [("train", text)]), (), 1)[0] for text in (b"x\nready\n", b"x\n")]
    assert [(one.state, one.words) for one in found] == [("passed", ""), ("failed", "never ready")]
    assert found[0].quote.line == 2 and found[1].quote is None


METRICS = (Metric("a", "row", (("zero", 0, "blocks", "zero"), ("zero_shown", 0, "skipped", "perhaps"),
                               ("above", 10, "advisory", "high"), ("", 0, "pass", "fine")), label="short"),
           Metric("v/*", "val", (("zero", 0, "advisory", "zero"),), label="never used"),
           Metric("o", "more", source="other"))


@pytest.mark.parametrize("values,mark,words", [
    ([1], "pass", "fine"), ([1, 0], "blocks", "zero"), ([R0], "skipped", "perhaps"), ([11], "advisory", "high"),
    ([-1], "pass", "fine"),
    ([NAN], "advisory", "not a finite number"), ([1, INF], "advisory", "not a finite number"), ([NAN, 1], "pass", "fine")])
def test_bands(values, mark, words):
    reading, = health.read_metrics(METRICS, make_evidence({"train": make_track(a=values)}))
    assert (reading.mark, reading.words, reading.label, reading.row, reading.source) == (mark, words, "short", "row", "train")
    assert reading.step == len(values) and reading.is_rounded == isinstance(values[-1], Rounded)
    assert reading.value == float(values[-1]) or math.isnan(reading.value)


@pytest.mark.parametrize("key,mark", [
    ("actor/pg_loss", "blocks"), ("loss/mean", "blocks"), ("actor/grad_norm", "blocks"), ("rollout_corr/kl", "blocks"),
    ("mismatch_kl/all/mean", "blocks"), ("actor/entropy", "blocks"), ("optim/lr", "blocks"), ("x/probs_pearson_corr", "blocks"),
    ("critic/rewards/mean", "advisory"), ("fully_async/partial/partial_ratio", "advisory"), ("perf/klystron", "advisory"),
    ("perf/alrt", "advisory")])
def test_what_is_no_number_reads_badly_where_it_ruins_the_weights(key, mark):
    table = (Metric(key, "row", (("", 0, "pass", "fine"),)),)
    track = Track("/x", (Point(1, {key: NAN}, (), None, 0),), True)
    assert [one.mark for one in health.read_metrics(table, make_evidence({"train": track}))] == [mark]


def test_read_metrics():
    tracks = {"train": make_track(a=[None] + list(range(1, 60)), v_x=[0], v_y=[None, 2, None]),
              "other": make_track("/x/o", o=[3])}
    found = health.read_metrics(METRICS, make_evidence(tracks))
    assert [(one.key, one.label, one.step, one.mark, one.source) for one in found] == [
        ("a", "short", 60, "advisory", "train"), ("v/x", "v/x", 1, "advisory", "train"), ("v/y", "v/y", 2, "skipped", "train"),
        ("o", "o", 1, "skipped", "other")]
    assert found[0].trend == tuple(float(number) for number in range(40, 60)) and len(found[0].trend) == health.TREND_STEPS
    assert health.read_metrics(METRICS, make_evidence()) == ()
    assert health.read_metrics((), make_evidence(tracks)) == ()


def test_a_metric_that_does_not_apply_is_shown_and_not_judged():
    table = (METRICS[0]._replace(needs=("r3", "!r3:off")),)
    evidence = make_evidence({"train": make_track(a=[1, 0])})
    for flags, mark, words in ((("r3",), "blocks", "zero"), ((), "skipped", "not judged: not r3"),
                               (("r3", "r3:off"), "skipped", "not judged: r3:off"),
                               (("r3:off",), "skipped", "not judged: not r3, r3:off")):
        reading, = health.read_metrics(table, evidence, flags)
        assert (reading.mark, reading.words, reading.value) == (mark, words, 0.0)


def test_the_values_of_a_rule_may_count_up_to_another_keys_last_step():
    """A validation of step 0 is not held against the rewards of step 50."""
    rule = Rule("reward", "above", 0.05, 2, at="val/*")
    rewards = [0.01, 0.02, 0.3, 0.3, 0.3]
    assert prove(rule, [], reward=rewards, val_x=[None, 0]) is None
    assert prove(rule, [], reward=rewards, val_x=[None, None, None, 0]) == [quote("/x/train.log", 400, "reward")]
    late = prove(rule, [], reward=rewards, val_x=[None, None, 0], val_y=[None] * 4 + [0])
    assert late == [quote("/x/train.log", 500, "reward")]
    assert prove(rule, [], reward=rewards) is None, "no validation yet"


def test_all_keys_of_a_family_must_be_finite_at_the_last_training_step():
    rule = Rule("actor/*", "finite")
    good = {"actor_loss": [NAN, 1], "actor_lr": [1, 1], "critic_x": [1, NAN]}
    assert prove(rule, [], **good) == []
    assert prove(rule, [], **dict(good, actor_new=[1, INF])) is None
    assert prove(rule, []) is None, "no step yet"
    after = Point(1, {"actor/loss": NAN}, (), None, 9, is_training=False)
    alone = Track("/x", (Point(1, {"actor/loss": 1.0}, (), None, 0), after), True)
    assert health.prove_rule(rule, make_evidence({"train": alone})) == []
    gate = Gate("gate:finite", (Rule("actor/loss", "finite"), rule), "not finite")
    for loss, state in ((1, "passed"), (NAN, "failed")):
        result, = health.judge_gates([gate], make_evidence({"train": make_track(actor_loss=[1], actor_pg=[loss])}), (), 1)
        assert (result.state, result.quote.offset) == (state, 100)


def test_of_two_gates_of_one_name_the_one_that_applies_is_told():
    own, bare = GATE._replace(needs=("r3",)), GATE._replace(needs=("!r3", "!r3:off"), is_required=False)
    evidence = make_evidence({"train": make_track(a=[0.5])})
    for flags, state in ((("r3",), "failed"), ((), "failed"), (("r3:off",), "skipped")):
        for gates in ([own, bare], [bare, own]):
            assert [one.state for one in health.judge_gates(gates, evidence, flags, 1)] == [state]


AFTER = b"died 1\nstep 1\ndied 2\nstep 2\ndied 3\nstep 3\ndied 4\n"


@pytest.mark.parametrize("at,limit,found", [
    ("after:1", 1, 7), ("after:1", 2, None), ("after:2", 2, 7), ("after:2", 3, None), ("after:3", 3, 7), ("after:9", 3, 7),
    ("after:9", 4, None), ("", 4, 7)])
def test_lines_after_a_step_line(at, limit, found):
    points = tuple(Point(step, {}, (), None, 1000 + AFTER.index(b"step %d" % step)) for step in (1, 2, 3))
    ahead = Point(3, {}, (), None, 1000 + len(AFTER) - 1, is_training=False)  # a validation is no step
    evidence = make_evidence({"train": Track("/x/train.log", points + (ahead,), True)}, [("train", AFTER, 1000, 1)])
    shown = health.prove_rule(Rule("died", "lines", limit, at=at), evidence)
    assert (shown and shown[0].line) == found
    before = make_evidence({"train": Track("/x/train.log", points, True)}, [("train", b"died 9\n", 5000, 1)])
    assert health.prove_rule(Rule("died", "lines", 1, at="after:1"), before), "what was read begins behind the step lines"
    assert health.prove_rule(Rule("died", "lines", 1, at="after:1"), make_evidence({}, [("train", b"died\n")])), "no step yet"


def find_nonfinite(**columns):
    return health.find_nonfinite(make_evidence({"train": make_track(**columns)}))


def test_L3_what_is_not_finite_is_told_with_its_first_step():
    values = [1.0] * 9 + [NAN, INF, -INF] + [NAN] * 8
    found = find_nonfinite(actor_loss=values)
    assert (found.name, found.severity) == ("metric:nan", "stop")
    assert found.words == "actor/loss is not a finite number (nan), at step 10 first"
    assert found.quotes == (quote("/x/train.log", 1000, "actor/loss"),) and "step 10" in found.advice[0]
    once = find_nonfinite(actor_loss=values + [1.0])
    assert (once.severity, once.words) == ("risk", "actor/loss was not a finite number (nan), at step 10 first")
    assert health.find_nonfinite(make_evidence()) is None
    first = find_nonfinite(loss=[NAN])
    assert "step 1" not in first.advice[0], "there is no checkpoint from before the first step"


@pytest.mark.parametrize("key,severity", [
    ("actor/pg_loss", "stop"), ("actor/grad_norm", "stop"), ("actor/lr", "stop"), ("rollout_corr/kl", "stop"),
    ("critic/rewards/mean", "risk"), ("critic/advantages/max", "risk"), ("critic/returns/mean", "risk"),
    ("fully_async/partial/partial_ratio", None), ("timing_s/step", None), ("val-core/x/reward/mean@1", None),
    ("val/loss", None), ("eval/aime/reward/mean", None), ("num_turns/mean", None)])
def test_only_what_decides_about_the_weights_counts(key, severity):
    track = Track("/x", (Point(1, {key: 1.0}, (), None, 0), Point(2, {key: NAN}, (), None, 9)), True)
    found = health.find_nonfinite(make_evidence({"train": track}))
    assert (found and found.severity) == severity


def test_the_gravest_counts_and_words_quote_and_severity_are_of_the_same():
    tracks = {"train": make_track(actor_loss=[1, 1, INF], x_reward=[NAN, 1, 1]),
              "other": make_track("/x/o", grad_norm=[1, 1, 1, NAN])}
    found = health.find_nonfinite(make_evidence(tracks))
    assert (found.words, found.severity) == ("actor/loss is not a finite number (inf), at step 3 first", "stop")
    assert found.quotes == (quote("/x/train.log", 300, "actor/loss"),)
    lasting = find_nonfinite(actor_entropy=[NAN, 1, 1], x_loss=[1, NAN, NAN])
    assert lasting.words.startswith("x/loss is ") and lasting.severity == "stop"
    cut = make_track(a_loss=[NAN, 1])._replace(is_whole=False)
    found = health.find_nonfinite(make_evidence({"train": cut}))
    assert found.words == "a/loss was not a finite number (nan), at step 1 already, as far back as was read"
    later = make_track(a_loss=[1, NAN])._replace(is_whole=False)
    assert health.find_nonfinite(make_evidence({"train": later})).words.endswith("(nan), at step 2 first")
