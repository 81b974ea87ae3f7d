"""Does something take as long as its input is? By comparing sizes with each other, and not by a figure of time."""
import functools
import re
import time

_SIZES = (1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18)
_TIMES = 9  # what four times the input may cost: four times where it is linear, sixteen where it is quadratic
_FREE = 40  # less than so many plain scans of the input is of no concern
# What is hardly more than four times as long from the third size to the fourth has so small a square or cubic part that the fifth
# can't be _TIMES as long: for (4 + 64x) / (1 + x) < 4.25 the next is (4 + 64 * 16x) / (1 + 16x) < 8.
_SURE = 4.25


@functools.lru_cache(maxsize=None)
def _measure_scan(size):
    text = "a" * size
    return min(_measure(lambda: re.findall("a", text)) for _ in range(5))


def _measure(run):
    start = time.process_time()
    run()
    return time.process_time() - start


def assert_linear(run, make):
    """`run` takes what `make(size)` gives, up to 256 KiB. Ends at the first size that shows it to be worse."""
    before = None
    for size in _SIZES:
        value = make(size)
        spent = _measure(lambda value=value: run(value))
        if spent > _FREE * _measure_scan(size) and before is not None and spent > _TIMES * before:
            spent = min(spent, _measure(lambda value=value: run(value)))
            assert spent <= _TIMES * before, "%d characters take %.1f times as long as a quarter of them: %r" % (
                size, spent / before, value[:60])
        if size == _SIZES[-2] and before is not None and spent < _SURE * before:
            return
        before = spent
