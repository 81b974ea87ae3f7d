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


@pytest.mark.parametrize("text,seconds", [
    ("90", 90), ("45s", 45), ("90m", 5400), ("6h", 21600), ("1h30m", 5400), ("1.5h", 5400), ("2d", 172800), ("1d2h3m4s", 93784),
    (" 6H\n", 21600), ("0", 0), ("0s", 0), ("1m30", 90), ("0.5s", 0.5), ("999999d", 999999 * 86400.0), ("1h0m", 3600)])
def test_parse_duration(text, seconds):
    assert durations.parse_duration(text) == seconds


@pytest.mark.parametrize("text", [
    "", " ", "h", "s", "-5", "-5m", "+5", "1h 30m", "30m1h", "1h1h", "1.h", ".5h", "1e3", "nan", "inf", "infinity", "1_000",
    "5 m", "1w", "5min", "1h30m!", "\u0665", "\uff15m", "0x10", "1,5h", "1h\n30m", "5\0", "None"])
def test_what_is_no_duration(text):
    with pytest.raises(ValueError) as error:
        durations.parse_duration(text)
    assert "not a duration" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["99999999h", "1000000d", "1h1234567m", "9" * 400, "1234567890.5s"])
def test_what_is_too_long_is_called_so(text):
    with pytest.raises(ValueError, match="too long a time: %s" % text[:20]) as error:
        durations.parse_duration(text)
    assert len(str(error.value)) < 120


@pytest.mark.parametrize("seconds, words", [(21600, "6h"), (5400, "90m"), (90, "90s"), (0.2, "1s"), (86400, "24h"), (59.6, "1m")])
def test_a_duration_is_written_as_it_is_read(seconds, words):
    assert durations.write_duration(seconds) == words and durations.parse_duration(words) == max(1, round(seconds))
