import pytest

from rlrun.text import durations


@pytest.mark.parametrize("seconds,shown", [
    (0, "0s"), (-5, "0s"), (45.9, "45s"), (59.99, "59s"), (60, "1m"), (3599, "59m"), (3600, "1h 00m"), (7500, "2h 05m"),
    (86399, "23h 59m"), (86400, "1d 0h"), (3 * 86400 + 4 * 3600, "3d 4h"), (float("nan"), "unknown"),
])
def test_format_elapsed(seconds, shown):
    assert durations.format_elapsed(seconds) == shown


@pytest.mark.parametrize("seconds,shown", [
    (1, "just now"), (-20, "just now"), (12 * 60, "12m ago"), (-300, "in 5m"), (float("inf"), "unknown")])
def test_format_age(seconds, shown):
    assert durations.format_age(seconds) == shown


@pytest.mark.parametrize("size,shown", [
    (0, "0 B"), (900, "900 B"), (12 * 1024, "12 KiB"), (640 * 2 ** 20, "640 MiB"), (128.4 * 2 ** 30, "128.4 GiB"),
    (1023.97 * 2 ** 30, "1.0 TiB"), (1023.9, "1 KiB"), (2 ** 90, "1073741824.0 EiB")])
def test_format_bytes(size, shown):
    assert durations.format_bytes(size) == shown


def test_format_mib():
    assert durations.format_mib(61000) == "59.6 GiB"
    assert durations.format_mib(0) == "0 B"
    assert durations.format_mib(None) == "unknown"
