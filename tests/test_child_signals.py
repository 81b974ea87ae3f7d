"""An interrupt while a program is being started: no program is left behind that nobody knows of."""
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# The program interrupts its starter as soon as it runs, often before Popen has returned.
STARTER = """
import signal, sys
from rlrun import child

def interrupt(number, frame):
    raise KeyboardInterrupt()

for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, interrupt)
running = None
try:
    running = child.start(["bash", "-c", "echo $$ >" + sys.argv[2] + "; kill -" + sys.argv[1] + " $PPID; sleep 600"])
    child.finish(running, 60)
except KeyboardInterrupt:
    print("interrupted")
"""


def is_group_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    return True


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP"])
def test_nothing_is_left_behind(tmp_path: Path, name: str) -> None:
    for number in range(4):
        told = tmp_path / ("pid-%d" % number)
        done = subprocess.run([sys.executable, "-c", STARTER, name, str(told)], env=dict(os.environ, PYTHONPATH=str(ROOT)),
                              stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=60, check=True)
        assert done.stdout == b"interrupted\n"
        group = int(told.read_text())
        deadline = time.monotonic() + 30
        while is_group_alive(group):  # an ended one may not have been reaped yet
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.mark.parametrize("name", ["INT", "TERM"])
def test_none_is_lost_where_the_program_can_not_start(name: str) -> None:
    """The signal arrives in the middle of starts that fail, one after the other."""
    code = STARTER.partition("running = None")[0] + (
        "import os, threading; threading.Timer(0.1, os.kill, (os.getpid(), signal.SIG" + name + ")).start()\n"
        "try:\n    while True:\n        child.start(['/no/such/program'])\nexcept KeyboardInterrupt:\n    print('interrupted')\n")
    for _ in range(4):
        done = subprocess.run([sys.executable, "-c", code], env=dict(os.environ, PYTHONPATH=str(ROOT)), stdout=subprocess.PIPE,
                              stdin=subprocess.DEVNULL, timeout=60, check=True)
        assert done.stdout == b"interrupted\n"


def test_ignored_signals_stay_ignored_for_the_program() -> None:
    code = ("import signal; from rlrun import child; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
            "print(child.run(['bash', '-c', 'trap'], 30).how, signal.getsignal(signal.SIGHUP) == signal.SIG_IGN, "
            "signal.getsignal(signal.SIGINT) is signal.default_int_handler)")
    done = subprocess.run([sys.executable, "-c", code], env=dict(os.environ, PYTHONPATH=str(ROOT)), stdout=subprocess.PIPE,
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), check=True)
    assert done.stdout == b"ended True True\n"
