"""Sparklines, bars and numbers in a few letters."""
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlrun.text import glyphs, sparks

NAN, INF = float("nan"), float("inf")
numbers = st.lists(st.floats(), max_size=30)


@pytest.mark.parametrize("values,shown", [
    ([], ""), ([0.5], "▄"), ([0, 0, 0], "▄▄▄"), ([1e-6] * 3, "▄▄▄"), ([0, 1], "▁█"), ([1, 0], "█▁"),
    (range(8), "▁▂▃▄▅▆▇█"), ([-3, -2, -1], "▁▅█"), ([NAN, 1, INF, 2, -INF], "×▁×█×"), ([NAN], "×"),
    ([0.9990, 0.9991], "▁█"), ([-1.7e308, 1.7e308, 0], "▁█▅"), ([5e-324, 0], "█▁"),
])
def test_draw_spark(values, shown):
    assert sparks.draw_spark(values) == shown


@given(values=numbers)
def test_a_spark_has_a_letter_a_value_and_keeps_their_order(values):
    shown = sparks.draw_spark(values)
    assert len(shown) == len(values)
    assert all((letter == glyphs.TIMES) != math.isfinite(value) for letter, value in zip(shown, values))
    ordered = sorted((value, glyphs.SPARKS.index(letter)) for value, letter in zip(values, shown) if math.isfinite(value))
    assert [place for _, place in ordered] == sorted(place for _, place in ordered)
    assert glyphs.to_stream_text(shown, "ascii").isascii()
    assert len(glyphs.to_stream_text(shown, "ascii")) == len(values)


@pytest.mark.parametrize("values,word", [
    ([], ""), ([1, 2, 3], ""), ([1, NAN, 2, INF, 3], ""), ([1, 2, 3, 4], "rising"), ([4, 3, 2, 1], "falling"),
    ([1, 1, 1, 1], "flat"),
    ([0, 0, 0, 0], "flat"), ([1, 1.01, 1, 1.01], "flat"), ([-4, -3, -2, -1], "rising"), ([-1, -2, -3, -4], "falling"),
    ([0, 0, 0, 1], "rising"), ([NAN, 1, 2, 3, 4, NAN], ""), ([1, 2, 3, 4, INF], ""),
    ([1, 9, 9, 9, 1], "flat"), ([1.7e308] * 4, "flat"),
    ([-1, -1, 1, 1], "rising"),
])
def test_name_trend(values, word):
    assert sparks.name_trend(values) == word


@given(values=numbers)
def test_a_trend_turned_round_is_the_other_one(values):
    turned = {"rising": "falling", "falling": "rising"}
    word = sparks.name_trend(values)
    assert sparks.name_trend(values[::-1]) == turned.get(word, word)


@pytest.mark.parametrize("part,full", [(0, 0), (0.5, 15), (1, 30), (0.999, 29), (1.7, 30), (-1, 0), (NAN, 0), (INF, 30),
    (-INF, 0)])
def test_draw_bar(part, full):
    assert sparks.draw_bar(part) == "█" * full + "░" * (30 - full)
    assert len(sparks.draw_bar(part, 7)) == 7
    assert set(glyphs.to_stream_text(sparks.draw_bar(part), "ascii")) <= {"#", "."}


@pytest.mark.parametrize("value,shown", [
    (0.3125, "0.3125"), (1e-06, "1e-06"), (5120.0, "5120"), (NAN, "nan"), (INF, "inf"), (-INF, "-inf"), (0.0, "0"), (-0.0, "0"),
    (0.5123456, "0.5123"), (-2.0, "-2"), (9999999.0, "9999999"), (1e7, "1e+07"), (1.7e308, "1.7e+308"), (5e-324, "4.941e-324"),
    (123456.789, "1.235e+05"), (0.98999, "0.98999"), (0.99996, "0.99996"), (-0.98999, "-0.98999"), (0.9, "0.9"), (0.9999999, "1"),
])
def test_format_number(value, shown):
    assert sparks.format_number(value) == shown


@given(value=st.floats())
def test_a_number_is_short_and_near(value):
    shown = sparks.format_number(value)
    assert len(shown) <= 11
    assert math.isnan(value) if shown == "nan" else value == float(shown) or math.isclose(float(shown), value, rel_tol=1e-3) or (
        math.isinf(float(shown)) or abs(value) < 1e-300)


@pytest.mark.parametrize("seconds,shown", [
    (0.8, "0.8 s"), (0.012, "0.012 s"), (3.21, "3.2 s"), (42, "42 s"), (119, "119 s"), (210, "3.5 min"), (4320, "72.0 min"),
    (5399, "90.0 min"), (86400, "24.0 h")])
def test_format_pace(seconds, shown):
    assert sparks.format_pace(seconds) == shown
