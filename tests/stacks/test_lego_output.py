"""What a runner prints, taken apart: whole, cut short, with odd values; and the seconds of steps."""
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlrun.stacks.lego_output import parse_output, read_step_seconds

WHOLE = """[config] /c/x.env
[python] /v/bin/python3 (Python 3.11.7)
[verl]   /c/stubs/verl/__init__.py
=== Launching Harbor verl training ===
project:       p
experiment:    e: with a colon
templates:     a.env b.env
train log:     /c/logs/two words.log
vLLM log:      /c/logs/e_vllm.log
=== Final Environment ===
A=1=2
EMPTY=
EXP_NAME=e
LAST=x
\u2550\u2550\u2550\u2550 run configuration (train) \u2550\u2550\u2550\u2550
  config       /c/x.env
  model        /m  [moe]
               served=s
  data         train=a
\u2550\u2550\u2550\u2550\u2550\u2550\u2550

\u2500\u2500\u2500\u2500 preflight config check \u2500\u2500\u2500\u2500
  \x1b[32m\u2713 OK   \x1b[0m  fine
  \x1b[33m\u26a0 WARN \x1b[0m  NYDUS_MIRROR empty: x
  \x1b[31m\u2717 FATAL\x1b[0m  bad: y
  \x1b[36m\u2298 SKIP \x1b[0m  left out
\u2500\u2500\u2500\u2500\u2500\u2500\u2500
\x1b[32m[preflight] nothing fatal (1 WARN).\x1b[0m
=== Launch Command ===
python3 -m verl.trainer.main_ppo a=b\\ c\x20
[dry-run] not launching
"""


def test_whole():
    found = parse_output(WHOLE)
    assert found.heads == {"config": "/c/x.env", "python": "/v/bin/python3 (Python 3.11.7)", "verl": "/c/stubs/verl/__init__.py"}
    assert found.summary["experiment"] == "e: with a colon" and found.summary["train log"] == "/c/logs/two words.log"
    assert found.environment == {"A": "1=2", "EMPTY": "", "EXP_NAME": "e", "LAST": "x"}
    assert found.block.startswith("\u2550\u2550\u2550\u2550 run configuration (train)") and found.block.endswith("\u2550")
    assert found.rows["model"] == ("/m  [moe]", "served=s") and found.rows["data"] == ("train=a",)
    assert [line.level for line in found.preflight] == ["OK", "WARN", "FATAL", "SKIP"]
    assert found.preflight[1].text == "NYDUS_MIRROR empty: x" and found.fatal == ("\u2717 FATAL  bad: y",)
    assert found.preflight_summary == "[preflight] nothing fatal (1 WARN)." and found.says_not_launching
    assert found.commands == {"Launch": "python3 -m verl.trainer.main_ppo a=b\\ c"}


def test_line_ends_of_another_system():
    assert parse_output(WHOLE.replace("\n", "\r\n")) == parse_output(WHOLE)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(WHOLE)))
def test_cut_anywhere(place):
    found = parse_output(WHOLE[:place])
    assert set(found.summary) <= {"project", "experiment", "templates", "train log", "vLLM log"}
    assert found.says_not_launching == (place >= WHOLE.index("[dry-run]") + len("[dry-run] not launching"))


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.sampled_from("=\u2550\u2500\u2713\u2717 \n[]AB:_\x1b\r\0fatalOK"), max_size=200))
def test_anything(text):
    parse_output(text)
    read_step_seconds(text)


@pytest.mark.parametrize(
    "line",
    [
        "  \u2717 FATAL  not the preflight's",
        "[FATAL] no",
        "[python] /evil (Python 9)",
        "=== Launch Command ===",
        "[dry-run] not launching",
    ],
)
def test_a_value_with_newlines_speaks_for_nobody(line):
    """The environment is printed as it is: a value's second line may look like the runner's own."""
    text = WHOLE.replace("EMPTY=\n", "EMPTY=\n%s\n" % line)
    found, clean = parse_output(text), parse_output(WHOLE)
    if not line.startswith(("===", "[dry-run]")):
        assert (found.heads, found.preflight, found.fatal) == (clean.heads, clean.preflight, clean.fatal)


def test_a_name_that_comes_twice_is_unknown():
    found = parse_output(WHOLE.replace("LAST=x", "EXP_NAME=other\nLAST=x"))
    assert "EXP_NAME" not in found.environment and found.environment["LAST"] == "x"
    assert parse_output(WHOLE.replace("LAST=x", "EXP_NAME=e\nLAST=x")).environment["EXP_NAME"] == "e"


def test_nothing_at_all():
    found = parse_output("")
    assert (found.summary, found.environment, found.block, found.preflight, found.commands) == ({}, {}, "", (), {})


@pytest.mark.parametrize("line, seconds", [
    ("step:12 - training/global_step:12 - timing_s/step:212.5", [212.5]),
    ("(TaskRunner pid=1, ip=10.0.0.1) step:1 - a:np.float64(1e-06) - timing_s/step:np.float64(3.5) - z:1", [3.5]),
    ("\x1b[36m(TaskRunner pid=9)\x1b[0m step:2 - timing_s/step:7", [7.0]),
    ("Training:  3%|x | 3/100 [00:10\rstep:3 - timing_s/step:4.0", [4.0]),
    ("step:0 - val-core/x:0.1", []), ("step:4 - timing_s/step:nan", []), ("step:4 - timing_s/step:0.0", []),
    ("timing_s/step:5", []), ("step:1 - timing_s/step:1.0\nstep:2 - timing_s/step:2.0", [1.0, 2.0]),
    ("mystep:1 - timing_s/step:1.0", []), ("step:1 - timing_s/step:1.2.3", [])])
def test_step_seconds(line, seconds):
    assert read_step_seconds(line) == seconds
