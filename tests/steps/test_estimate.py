"""How long a step may take, in words that people read."""
import pytest
from steps.made import make_plan

from rlrun.steps import estimate

LINE = "step:%d - training/global_step:%d - timing_s/step:%s\n"


@pytest.mark.parametrize("seconds, words", [
    ("0.25", "0.25 s"), ("1.0", "1 s"), ("1.02", "1 s"), ("45.3", "45 s"), ("119", "119 s"), ("150", "2.5 minutes"),
    ("359", "6 minutes"), ("720", "12 minutes"), ("3240", "0.9 hours"), ("9000", "2.5 hours"), ("432000", "120 hours"),
    ("0.0001", "0.01 s")])
def test_the_unit_is_one_that_people_read(tmp_path, monkeypatch, seconds, words):
    log = tmp_path / "old.log"
    log.write_text("".join(LINE % (step, step, seconds) for step in range(3)))
    monkeypatch.setattr(estimate, "find_project_logs", lambda plan: (str(log),))
    assert estimate.estimate_step(make_plan()) == \
        "roughly %s/step (a guess: the median of 3 steps in 1 earlier log of this project)" % words


def test_unknown(monkeypatch):
    monkeypatch.setattr(estimate, "find_project_logs", lambda plan: ())
    assert estimate.estimate_step(make_plan()) == "hours/step unknown: no earlier log of project p"
    assert estimate.estimate_step(make_plan(kind="eval")) == ""
