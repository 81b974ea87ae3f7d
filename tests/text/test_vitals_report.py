"""How a run is doing, in words: made-up Status values, from healthy to hostile."""
import io
import re
import sys
import unicodedata

import pytest

from rlrun.text import terminal as term
from rlrun.text import vitals_report as report
from rlrun.vitals import Checkpoint, Ending, Finding, GateResult, Outline, Quote, Reading, Status, Target

PLAIN = term.Terminal(color=False, is_quiet=False, is_json=False, is_interactive=False)
COLOUR = PLAIN._replace(color=True)
NAN, INF = float("nan"), float("inf")
NASTY = "a\x00\x1b[31mred\x1b]0;t\x07\r\n\tb\x85\u202e\u2028\ud800\x7f" + "\U000e0041"
NOW = 1000000.0


def make_target(**changes):
    return Target("20261128T210412Z-train-c", "qwen3-30b", "lego", "train", "/home/wei/src", "live",
                  {"train": "/t/logs/e.log", "vllm": "/t/logs/e_vllm.log"}, "/c/logs/launch_1.log", "", "wei", "gpu-07",
                  (("runner", 41), ("trainer", 52)), NOW - 7500, None, record={"digest": "3f9c2a71"})._replace(**changes)


def make_reading(key="critic/rewards/mean", row="reward", value=0.3125, trend=(0.1, 0.2, 0.25, 0.3125), mark="pass",
                 words="not zero", is_rounded=False):
    return Reading(key, key, row, "train", value, 12, is_rounded, tuple(trend), mark, words)


def make_status(**changes):
    readings = (make_reading(), make_reading("actor/lr", "grads", 1e-6, [1e-6] * 4),
                make_reading("training/epoch", "more", 0.5, ()))
    return Status(
        make_target(), "healthy", "no known signature matched; log last written just now", 12, Outline(120, "its log", 10), "",
        275.0, 900.0, 29700.0, "the median of the last 10 steps × 108 to go", 3.0, Checkpoint(10, "/ckpt/global_step_10", ()),
        readings, (), None, (), (), (), {}, NOW)._replace(**changes)


def render(status, terminal=PLAIN, title="Lego-RL", extra=()):
    return report.render_status(terminal, status, title, extra)


def find_line(lines, words):
    return next(line for line in lines if words in line)


def test_a_healthy_run():
    lines = render(make_status(), extra=(("gpus", "GPU 0-7"), ("stop", "kill -INT -- -41"), ("watch", "rlrun watch")))
    assert lines[0].startswith("rlrun status — qwen3-30b  ") and lines[0].endswith("Lego-RL train · plan 3f9c2a71")
    assert len(lines[0]) == 78
    assert lines[2] == "✓ healthy — no known signature matched; log last written just now"
    stage = find_line(lines, "step 12 of 120")
    for words in ("(epoch 0.5 of 10)", "running 2h 05m", "~4.6 min/step (first 15.0 min)", "log last written just now"):
        assert words in stage
    assert re.search(r"███░{27} 10 %  about 8h 15m left: the median of the last 10 steps × 108 to go", "\n".join(lines))
    assert "runner=41  trainer=52  user=wei  GPU 0-7" in find_line(lines, "procs")
    assert re.search(r"reward +✓ critic/rewards/mean=0\.3125 +last 4: ▁▄▆█ rising  not zero", find_line(lines, "critic/"))
    assert "▄▄▄▄ flat" in find_line(lines, "actor/lr=1e-06")
    assert "epoch=" not in "\n".join(lines), "the epoch stands beside the step"
    assert "step 10, /ckpt/global_step_10" in find_line(lines, "ckpt")
    assert lines[lines.index("Diagnosis") + 1] == "  no known signature matched"
    assert "Last errors" not in lines and "Recommendations" not in lines
    assert lines[-4:] == ["log:        /t/logs/e.log", "launch log: /c/logs/launch_1.log", "watch:      rlrun watch",
                          "stop:       kill -INT -- -41"]


def make_sick():
    quotes = (Quote("/t/logs/e.log", 4711, 1234, "step:12 - actor/lr:0.0"), Quote("/t/logs/e.log", 10 ** 10, None, "step:11 …"))
    return make_status(
        verdict="recommend stopping", conclusion="The learning rate is 0; and 2 more", readings=(
            make_reading("actor/lr", "grads", 0.0, [0.0] * 4, "blocks", "0: the model is frozen"),
            make_reading("actor/grad_norm", "grads", NAN, [1, NAN, INF, NAN], "blocks", "not a finite number"),
            make_reading("critic/rewards/mean", "reward", 0.0, [0.0], "skipped", "printed as 0, perhaps by rounding", True)),
        findings=(Finding("lr:frozen", "stop", "The learning rate is 0.", quotes, ("a", "b")),
                  Finding("reward:zero", "risk", "Zero.", (), ()), Finding("wait:trainer", "note", "Waits.", (), ())),
        errors=tuple(Quote("/t/logs/e.log", number, number, "Error %d" % number) for number in range(9)),
        recommendations=("rlrun explain lr:frozen", "Ask its owner"), notes=("the clock is ahead",))


def test_a_sick_run():
    lines = render(make_sick())
    assert lines[2] == "✗ recommend stopping — The learning rate is 0; and 2 more"
    assert find_line(lines, "actor/lr=0").startswith("  grads    ✗ actor/lr=0 ")
    grad, reward = find_line(lines, "grad_norm=nan"), find_line(lines, "critic/")
    assert "last 4: ▄×××" in grad and grad.startswith(" " * 11)
    assert "critic/rewards/mean=0 (rounded)" in reward and "last 1" not in reward
    at = lines.index("Diagnosis")
    assert lines[at + 1:at + 6] == [
        "  lr:frozen  The learning rate is 0.", "      /t/logs/e.log:1234  step:12 - actor/lr:0.0",
        "      /t/logs/e.log byte 10000000000  step:11 …", "  reward:zero  Zero.", "  wait:trainer  Waits."]
    assert [line for line in lines if "Error" in line] == ["  /t/logs/e.log:%d  Error %d" % (one, one) for one in (6, 7, 8)]
    assert "  1. rlrun explain lr:frozen" in lines and "  2. Ask its owner" in lines and "Note: the clock is ahead" in lines


@pytest.mark.parametrize("how,head", [("ended well", "✓ ended well"), ("ended early", "✗ ended early"), ("killed", "✗ killed"),
                                      ("failed", "✗ failed"), ("died without trace", "✗ died without trace"),
                                      ("ended", "· over")])
def test_endings(how, head):
    error = Quote("/t/logs/e.log", 5, 6, "ValueError: x")
    target = make_target(state="over", pids=(), exit={"duration_seconds": 3700.0})
    ending = Ending(how, "exit status 1", 1, "", None if how == "ended well" else error)
    lines = render(make_status(target=target, verdict="ended", conclusion="exit status 1", ending=ending, errors=(error,)))
    assert lines[2].startswith(head + " — exit status 1")
    assert "ran 1h 01m, launched 2h 05m ago" in find_line(lines, "stage")
    assert "none left" in find_line(lines, "procs") and "about" not in "\n".join(lines)
    assert ("Last errors" in lines) == (how != "ended well")
    assert ("  the first error: /t/logs/e.log:6  ValueError: x" in lines) == (how != "ended well")


def test_next_to_nothing_is_known():
    target = Target("", "", "", "", "", "unknown", {}, "", "", "", "", (), None, None)
    status = Status(target, "unknown", "no log to read", None, Outline(), "", None, None, None, "", None, None, (), (), None, (),
                    (), (), {}, NOW)
    lines = render(status, title="")
    assert lines[0].rstrip() == "rlrun status — a run without a name"
    assert "no step yet" in find_line(lines, "stage") and "none that can be seen here" in find_line(lines, "procs")
    assert "  no known signature matched (no step was read)" in lines
    assert not any("None" in line for line in lines), "a value that is not there is no word"


def test_before_the_first_step():
    lines = render(make_status(step=None, stage="Ray head starting", readings=(), checkpoint=None, seconds_per_step=None,
                               first_step_seconds=None, verdict="no step yet", conclusion="Ray head starting", left_seconds=None))
    assert "Ray head starting · running 2h 05m" in find_line(lines, "stage")
    assert not any("%" in line or "█" in line or "ckpt" in line for line in lines)


def test_a_total_that_is_not_known():
    lines = render(make_status(outline=Outline(None, "a run without an end", 10), left_seconds=None, readings=()))
    assert find_line(lines, "of how many").strip().startswith("of how many: a run without an end")
    assert "10 epochs planned" in "\n".join(lines) and "░" not in "\n".join(lines)
    assert "of how many: not told" in "\n".join(render(make_status(outline=Outline(), left_seconds=None)))


@pytest.mark.parametrize("step,total,shown", [(0, 120, "0 %"), (120, 120, "100 %"), (119, 120, "99 %"), (1, 10 ** 6, "0 %"),
                                              (30, 100, "30 %")])
def test_percents(step, total, shown):
    line = find_line(render(make_status(step=step, outline=Outline(total))), " %")
    assert re.search(r"[█░]{30} (\d+ %)", line).group(1) == shown
    assert ("░" not in line) == (step >= total)


@pytest.mark.parametrize("step,total,shown", [(29, 100, "29 %"), (57, 100, "57 %"), (58, 200, "29 %")])
def test_percents_are_not_a_float_too_low(step, total, shown):
    assert shown in find_line(render(make_status(step=step, outline=Outline(total))), " %")


def test_more_steps_than_there_were_to_be():
    line = find_line(render(make_status(step=130, outline=Outline(120), left_seconds=None)), " %")
    assert "100 %" in line and "108" not in line


def test_a_clock_that_is_ahead_is_no_promise():
    """The log's time, or the start, lies in the future by another machine's clock."""
    text = "\n".join(render(make_status(idle_seconds=-300.0, target=make_target(started_seconds=NOW + 600))))
    assert "last written in 5m" not in text and "running 0s" in text


@pytest.mark.parametrize("changes", [
    dict(seconds_per_step=1e7, first_step_seconds=1e-9, left_seconds=1e300, idle_seconds=1e12),
    dict(left_seconds=INF, idle_seconds=NAN, now_seconds=1e18), dict(step=10 ** 30, outline=Outline(10 ** 30 + 1)),
    dict(readings=tuple(make_reading(value=value, trend=[value] * 5) for value in (NAN, INF, -INF, 1.7e308, 5e-324, -0.0, 1e15))),
    dict(readings=(make_reading(value=None, trend=()), make_reading(value=None, trend=(), words=""))),
    dict(readings=(make_reading("a/epoch", value=NAN), make_reading("b/epoch", value=None))),
    dict(target=make_target(exit={"duration_seconds": None})),
    dict(target=make_target(exit={"duration_seconds": "x"}, state="over")),
    dict(target=make_target(exit={"duration_seconds": INF}, state="over")), dict(target=make_target(record={"digest": None})),
    dict(target=make_target(pids=tuple(("worker", pid) for pid in range(5000)), siblings=("/a",))),
    dict(target=make_target(siblings=("/a", "/b"), jobs=(("12", "RUNNING"),), name="x" * 500)),
])
def test_odd_values_are_words_all_the_same(changes):
    lines = render(make_status(**changes))
    assert all(isinstance(line, str) and "\n" not in line for line in lines)
    assert max(map(len, lines)) < 700


def test_many_processes_and_other_nodes():
    pids = tuple(("env worker", pid) for pid in range(20))
    target = make_target(pids=pids, siblings=("/a", "/b"), jobs=(("12", "RUNNING"),))
    line = find_line(render(make_status(target=target)), "procs")
    for words in ("env-worker=0,1,2,3,4,5,6,7…", "job 12 RUNNING", "2 sibling directories of its other nodes"):
        assert words in line
    one = render(make_status(target=target._replace(siblings=("/a",))))
    assert "1 sibling directory of its other nodes" in find_line(one, "procs")


def test_a_row_of_many_metrics_is_cut_and_says_so():
    readings = tuple(make_reading("val-core/%d" % number, "val") for number in range(20))
    lines = render(make_status(readings=readings))
    assert len([line for line in lines if "val-core/" in line]) == 8 and any("and 12 more" in line for line in lines)
    assert len([line for line in lines if line.startswith("  val ")]) == 1


def test_one_key_in_two_logs_says_which_log():
    both = (make_reading("loss/mean"), make_reading("loss/mean")._replace(source="orchestrator"), make_reading("reward/mean"))
    text = "\n".join(render(make_status(readings=both)))
    assert "train loss/mean=0.3125" in text and "orchestrator loss/mean=0.3125" in text and "train reward/mean" not in text


def test_a_metric_that_is_not_told_has_no_value():
    lines = render(make_status(readings=(make_reading(value=None, trend=(), mark="skipped", words="not told by this run"),)))
    assert find_line(lines, "critic/").split() == "reward · critic/rewards/mean not told by this run".split()


def test_a_checkpoint_that_is_being_written():
    checkpoint = Checkpoint(10, "/ckpt/global_step_10", ("/ckpt/global_step_20", "/ckpt/global_step_30"))
    assert "not complete: global_step_20, global_step_30" in find_line(render(make_status(checkpoint=checkpoint)), "ckpt")
    assert "where they would be is not told" in find_line(render(make_status(checkpoint=None)), "ckpt")
    told = make_status(checkpoint=None)
    told = told._replace(outline=told.outline._replace(checkpoints="/ckpt/demo\x1b[0m"))
    assert find_line(render(told), "ckpt").endswith("none in /ckpt/demo\\x1b[0m")


def make_nasty():
    """All that comes from logs, processes, records and other users."""
    quote = Quote(NASTY, 5, 6, NASTY)
    target = make_target(id=NASTY, name=NASTY, root=NASTY, logs={"train": NASTY}, launch_log="/l" + NASTY, run_dir=NASTY,
                         host=NASTY, pids=((NASTY, 4),), jobs=((NASTY, NASTY),))
    return make_status(
        target=target, conclusion=NASTY, stage=NASTY, checkpoint=Checkpoint(1, NASTY, (NASTY,)),
        outline=Outline(120, NASTY), readings=(make_reading(key=NASTY, words=NASTY),),
        findings=(Finding("x:y", "stop", NASTY, (quote,), (NASTY,)),), errors=(quote,), recommendations=(NASTY,), notes=(NASTY,))


def find_controls(text):
    return [character for character in text if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")]


NASTY_STATUSES = [make_nasty(), make_nasty()._replace(step=None), make_nasty()._replace(outline=Outline(None, NASTY)),
                  make_nasty()._replace(ending=Ending("failed", NASTY, 1, NASTY, Quote(NASTY, 1, None, NASTY)))]


@pytest.mark.parametrize("status", NASTY_STATUSES, ids=["running", "no step", "no total", "ended"])
def test_no_line_has_a_control_character(status):
    for line in render(status, extra=(("gpus", NASTY), ("trials", NASTY), ("watch", NASTY), ("stop", NASTY))):
        assert find_controls(line) == [], line


@pytest.mark.parametrize("changes", [dict(kind=NASTY), dict(record={"digest": NASTY}), dict(user=NASTY, kind=NASTY)])
def test_what_a_record_says_has_no_control_character(changes):
    target = make_target(**changes)
    for line in render(make_status(target=target)) + report.render_candidates([target], NOW):
        assert find_controls(line) == [], line


def test_no_gate_and_no_candidate_has_a_control_character():
    states = ("passed", "failed", "skipped", "unknown")
    gates = [GateResult("gate:x", state, NASTY, Quote(NASTY, 1, 2, NASTY)) for state in states]
    targets = [make_nasty().target, make_nasty().target._replace(pids=(), id="", root="")]
    lines = report.render_gates(PLAIN, gates) + report.render_candidates(targets, NOW)
    assert len(lines) == 10
    for line in lines:
        assert find_controls(line) == [], line


def test_colour_is_the_reports_own():
    for status in (make_status(), make_sick(), make_nasty()):
        coloured = "\n".join(render(status, COLOUR))
        assert "\x1b[" in coloured
        assert re.sub(r"\x1b\[\d+m", "", coloured) == "\n".join(render(status))


def print_to(lines, encoding, monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding, errors="strict"))
    term.print_result(PLAIN, "\n".join(lines))
    return raw.getvalue().decode(encoding)


@pytest.mark.parametrize("status", [make_status(), make_sick(), make_nasty()], ids=["healthy", "sick", "nasty"])
def test_E3_ascii_stand_ins(status, monkeypatch):
    shown = print_to(render(status), "ascii", monkeypatch).splitlines()
    assert shown[0].startswith("rlrun status - ")
    assert len(shown) == len(render(status))
    assert not re.search(r"\\u|\\x[89a-f]", "\n".join(shown)) or status.conclusion == NASTY, "a glyph without a stand-in"


def test_E3_trends_and_bars_stay_readable_in_ascii(monkeypatch):
    shown = print_to(render(make_sick()), "ascii", monkeypatch)
    assert "grads    x actor/lr=0" in shown and "last 4: =xxx" in shown and "last 4: ==== flat" in shown
    healthy = print_to(render(make_status()), "ascii", monkeypatch)
    assert "last 4: _=*# rising" in healthy and "###..........................." in healthy and "+ healthy - " in healthy


def test_gates():
    results = (GateResult("gate:lr", "failed", "the learning rate is 0", Quote("/x/e.log", 1, 7, "step:1 - actor/lr:0.0")),
               GateResult("gate:r3", "skipped", "r3 is off", None), GateResult("gate:turns", "passed", "", None),
               GateResult("gate:grad", "unknown", "no step line yet", None))
    lines = report.render_gates(PLAIN, results)
    assert [re.sub(" +", " ", line) for line in lines] == [
        " ✗ gate:lr failed: the learning rate is 0", " /x/e.log:7 step:1 - actor/lr:0.0", " · gate:r3 skipped: r3 is off",
        " ✓ gate:turns passed", " · gate:grad unknown: no step line yet"]
    assert report.render_gates(PLAIN, ()) == []


def test_candidates():
    one = make_target()
    targets = [one, one._replace(id="", root="", run_dir="/runs/x", started_seconds=None, state="elsewhere", pids=()),
               one._replace(id="", root="", started_seconds=NOW - 5 * 86400)]
    lines = report.render_candidates(targets, NOW)
    assert lines[0] == "   1. 20261128T210412Z-train-c  train pid 41 (wei), /home/wei/src, started 2h 05m ago"
    assert lines[1].startswith("   2. qwen3-30b  train elsewhere, /runs/x, ") and lines[1].endswith("start unknown")
    assert "no checkout" in lines[2] and lines[2].startswith("   3. qwen3-30b") and "started 5d 0h ago" in lines[2]
    assert report.render_candidates([], NOW) == []


def test_candidates_do_not_say_started_age_unknown():
    line, = report.render_candidates([make_target(started_seconds=None)], NOW)
    assert "started age unknown" not in line


def test_a_number_is_not_rounded_onto_a_limit():
    """`pearson=0.99 … below 0.99` would contradict itself."""
    line = find_line(render(make_status(readings=(make_reading("pearson", value=0.98999, words="below 0.99"),))), "pearson=")
    assert "pearson=0.98999 " in line


@pytest.mark.parametrize("columns", [200, 120, 100, 80, 60, 50, 30])
def test_lines_fit_the_window(columns):
    for status in (make_status(), make_sick()):
        wide, fitted = render(status), report.render_status(PLAIN, status, "Lego-RL", (), columns)
        assert max(map(len, fitted)) <= columns or max(len(word) for line in wide for word in line.split()) > columns
        assert sorted("".join(fitted).replace(" ", "")) == sorted("".join(wide).replace(" ", "")) or columns < 120
        for word in ("critic/rewards/mean", status.verdict.split()[0], "log:"):
            assert any(word in line for line in fitted), "nothing is cut off"


def test_a_low_window_shows_first_what_is_not_as_it_should_be():
    status = make_sick()
    short = report.render_status(PLAIN, status, "Lego-RL", (), 100, 18)
    assert len(short) <= 18 and status.conclusion in short[1] + short[2]
    text = "\n".join(short)
    for finding in status.findings:
        assert finding.name in text
    assert "Diagnosis" in text and "Recommendations" in text and "✓" not in text
    assert re.search(r"\d+ more metrics? (is|are) as they should be", text) or not any(
        one.mark in ("pass", "skipped") for one in status.readings)
    lowest = report.render_status(PLAIN, status, "Lego-RL", (), 100, 5)
    assert len(lowest) == 5 and re.match(r"… \d+ lines more", lowest[-1])
    assert report.render_status(PLAIN, status, "Lego-RL", (), 100, 500) == report.render_status(PLAIN, status, "Lego-RL", (), 100)


def test_a_value_that_is_no_number_has_no_trend():
    line = find_line(render(make_status(readings=(make_reading(value=NAN, trend=[0.1, 0.2, 0.3, NAN]),))), "critic/")
    assert "last 4: " in line and not re.search("rising|falling|flat", line)


def test_whose_processes_they_are():
    assert "user=wei" in find_line(render(make_status()), "procs")
    over = make_status(target=make_target(state="over", pids=()))
    assert "user=" not in find_line(render(over), "procs") and "none left" in find_line(render(over), "procs")
