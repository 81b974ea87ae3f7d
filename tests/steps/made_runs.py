"""Runs made for tests, of real files: a log with step lines, its age, and the Target that a record or a process would give."""
import contextlib
import os
import signal
import time

from rlrun.commands import status as status_command
from rlrun.steps import examine, gather
from rlrun.vitals import Target

# Written times are set by this; no test waits. In UTC it is 12:00:00.
NOW = 1785931200.0 // 86400 * 86400 + 43200
MAIN = {"lego": "train", "prime": "trainer"}


def step(number, seconds=60, **values):
    """A step line of Lego-RL as it is in a healthy run; `values`: keys with `__` for `/`."""
    told = {"training/global_step": number, "actor/lr": "np.float64(1e-06)", "actor/grad_norm": "0.3", "actor/pg_loss": "-0.002",
            "critic/rewards/mean": "0.3125", "num_turns/mean": "30.5", "training/rollout_actor_probs_pearson_corr": "0.999",
            "timing_s/step": seconds}
    told.update({key.replace("__", "/"): value for key, value in values.items()})
    return "(TaskRunner pid=7) step:%d - %s\n" % (number, " - ".join("%s:%s" % pair for pair in told.items()))


def steps(last, first=1, seconds=60, total=100, **values):
    """The step lines of a run, behind the line that tells how many there will be."""
    lines = [step(number, seconds, **values) for number in range(first, last + 1)]
    return ("(TaskRunner pid=7) Total training steps: %d\n" % total if total else "") + "".join(lines)


def prime_step(number, clock="", **values):
    """A step line of prime-rl's trainer; without a clock of its own, 42 s after the one before, the 100th at 12:00:00."""
    told = {"Loss": "0.0021", "Entropy": "0.4567", "Mismatch KL": "0.0008", "Grad. Norm": "0.1234", "LR": "3.00e-06"}
    told.update(values)
    clock = clock or time.strftime("%H:%M:%S", time.gmtime(NOW - 42 * (100 - number)))
    return "%s SUCCESS Step %d | 42.0s | %s\n" % (clock, number, " | ".join("%s %s" % pair for pair in told.items()))


def write_log(path, text, age_seconds=0.0):
    """A log that was last written so long before NOW."""
    os.makedirs(os.path.dirname(str(path)), exist_ok=True)
    with open(str(path), "wb") as file:
        file.write(text if isinstance(text, bytes) else text.encode("utf-8"))
    os.utime(str(path), (NOW - age_seconds, NOW - age_seconds))
    return str(path)


def make_target(logs, state="live", kind="train", stack="lego", **given):
    """The Target of a run with these logs; a live one is this process."""
    pids = (("trainer", os.getpid()),) if state == "live" else ()
    target = Target("", "demo", stack, kind, "", state, dict(logs), "", "", "", "", pids, NOW - 7200, None)
    return target._replace(**given)


def look(target, now_seconds=NOW):
    """The Status of a run, and the exit code that `status` gives for it."""
    found = examine.examine(target, gather.read_evidence(target), now_seconds, status_command.collect_secrets(target))
    return found, status_command.pick_code(found)


def look_at(folder, text, age_seconds=0.0, state="live", **given):
    """The same of a run with one log."""
    stack = given.get("stack", "lego")
    log = write_log(os.path.join(str(folder), "demo.log"), text, age_seconds)
    return look(make_target({MAIN[stack]: log}, state, **given))


@contextlib.contextmanager
def fail_where_it_waits(seconds=30):
    """A test that waits for a pipe's other end fails."""
    def fail(*words):
        raise AssertionError("it waits for ever")
    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
