"""Pace, stalls, slowdown and what is left, out of made-up steps."""
import math

import pytest

from rlrun.health import metrics
from rlrun.vitals import Point

NAN, INF = float("nan"), float("inf")


def make_points(seconds, **changes):
    return [Point(step, {}, (), one, 0)._replace(**changes) for step, one in enumerate(seconds, 1)]


@pytest.mark.parametrize("seconds,usual,first,steps", [
    ([], None, None, 0),
    ([None, None], None, None, 0),
    ([NAN, INF, -INF, -3.0, 0.0, 1e9], None, None, 0),
    ([120.0], 120.0, 120.0, 1),
    ([900.0] + [120.0] * 3, 120.0, 900.0, 4),
    ([None, 900.0, NAN, 100.0, -1.0, 110.0], 110.0, 900.0, 3),
    ([999.0] * 30 + [100.0] * 10, 100.0, 999.0, 10),
    ([100.0] * 9 + [5000.0], 100.0, 100.0, 10),
    ([1e-3, 1e-3], 1e-3, 1e-3, 2),
])
def test_measure_pace(seconds, usual, first, steps):
    pace = metrics.measure_pace(make_points(seconds))
    assert (pace.usual, pace.first, pace.steps) == (usual, first, steps)
    assert pace.longest == (max(one for one in seconds if one and 0 < one < 1e7) if usual else None)


def test_a_validation_is_no_step():
    points = make_points([5.0], is_training=False) + make_points([60.0, 70.0])
    assert metrics.measure_pace(points).first == 60.0
    assert metrics.list_seconds(points) == [60.0, 70.0]


def judge_stall(usual, may_be_long, silent_seconds):
    pace = metrics.measure_pace(make_points([usual] * 12 if usual else []))
    return silent_seconds > metrics.find_stall_limit(pace, may_be_long)


@pytest.mark.parametrize("usual,may_be_long,silent_minutes,is_stalled", [
    (120, False, 40, True), (120, True, 40, True),  # L9: last step 40 min ago, usual 2 min
    (120, False, 3, False), (120, True, 3, False),  # …and 3 min after a validation or a save is none
    (120, True, 25, False), (120, False, 25, True),
    (1, False, 9, False), (1, False, 11, True), (1, True, 29, False), (1, True, 31, True),  # short steps: no alarm at once
    (600, False, 29, False), (600, False, 31, True),
    (1500, False, 70, False), (1500, False, 80, True),  # a step of 25 min may take three times as long
    (3600, False, 170, False), (3600, False, 190, True), (3600, True, 170, False), (3600, True, 190, True),
    (None, False, 29, False), (None, True, 29, False), (None, True, 31, True),  # before the first step
])
def test_L9_stall_limits(usual, may_be_long, silent_minutes, is_stalled):
    assert judge_stall(usual, may_be_long, silent_minutes * 60) is is_stalled


@pytest.mark.parametrize("may_be_long", [False, True])
def test_a_stall_is_never_called_within_what_steps_take(may_be_long):
    for usual in (0.01, 1, 30, 200, 359, 361, 599, 601, 1799, 1801, 9999, 86400):
        pace = metrics.measure_pace(make_points([usual] * 12))
        limit = metrics.find_stall_limit(pace, may_be_long)
        assert limit >= 2.9 * usual and limit >= metrics.STALL_AT_LEAST_SECONDS
        assert limit <= metrics.find_stall_limit(pace, True)


@pytest.mark.parametrize("seconds,ratio", [
    ([60] * 8 + [180] * 5, 3.0),
    ([60] * 5 + [120] * 5, 2.0),
    ([900] + [60] * 8 + [180] * 5, 3.0),  # a long first step hides nothing
    ([60] * 20 + [180] * 30, 3.0),  # slow for long, and still told
    ([60] * 8 + [110] * 5, None),
    ([60] * 8 + [180, 180, 60, 180, 180], None),  # one was as quick as ever
    ([60] * 8 + [60, 60, 900, 60, 60], None),  # a validation
    ([60] * 8 + [180] * 4, None), ([60] * 4 + [180] * 5, None), ([60] * 2, None), ([], None),
    ([NAN] * 20, None), ([None] * 8 + [60] * 5 + [None] + [200] * 5, 200 / 60.0),
    # Steps that differ much, each third one longer by a validation: no slowdown.
    ([450, 900, 2000, 700, 1500, 1900, 800, 1200, 2000, 600, 1556, 2146, 900, 1400, 2100], None),
])
def test_find_slowdown(seconds, ratio):
    found = metrics.find_slowdown(make_points(seconds))
    assert found is None if ratio is None else math.isclose(found, ratio)


@pytest.mark.parametrize("step,total,seconds,left", [
    (10, 100, [60.0], 5400.0), (100, 100, [60.0], 0.0), (0, 3, [2.0], 6.0), (101, 100, [60.0], None), (None, 100, [60.0], None),
    (10, None, [60.0], None), (10, 100, [], None), (10, 100, [NAN], None), (5, 10 ** 12, [1.0], 10.0 ** 12 - 5)])
def test_estimate_left(step, total, seconds, left):
    assert metrics.estimate_left(step, total, metrics.measure_pace(make_points(seconds))) == left
