"""How a run ended, and the first thing that went wrong in its logs. Pure functions; what lines say is faults.py's."""
import re
import signal as signals
import time
from typing import List, Optional, Pattern, Sequence, Tuple

from .. import vitals
from ..text import shell
from .faults import FINISHED, Found, LogText, find_errors, find_finished

__all__ = ["FINISHED", "Found", "LogText", "find_errors", "find_finished", "is_echo", "judge_end", "pick_first_error"]

_BATCH = ("time-limit", "preempted", "cancelled", "node")  # the batch system ended it
_KILLERS = ("killed", "oom-host")
_CRASHES = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE", "SIGSYS", "SIGTRAP")
_HALF_DAY_SECONDS = 12 * 3600
_SKEW_SECONDS = 600  # so much may lie between two logs' clocks: lines without a time, a node that is off
_QUEUED_STEPS = 3  # an asynchronous trainer goes on with what is queued after its other half has died

_WORDS = {
    "traceback": "an exception ended it",
    "oom-gpu": "out of memory on the GPU",
    "oom-host": "out of memory on the host: a process of it was killed",
    "nccl": "an NCCL operation failed",
    "killed": "a process of it was killed, perhaps by the kernel's out-of-memory killer",
    "crash": "a process of it crashed in native code",
    "time-limit": "the batch job's time limit",
    "cancelled": "the batch job was cancelled",
    "preempted": "the batch job was preempted",
    "node": "a node of the batch job failed",
    "disk": "no space left on a disk, or over quota",
    "nan": "a value that is not finite",
    "error": "its log tells an error",
}
# ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.
# 2 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed …
_MONITOR = re.compile(r"due to the node running low on memory|killed due to memory pressure")
_MONITOR_WORDS = "killed by Ray's memory monitor: the node ran low on memory"
_SEEK_KILLER = ("dmesg -T | grep -iE 'oom|killed process'", "journalctl -k --since '-1 day' | grep -i oom",
                "find /sys/fs/cgroup -name memory.events -exec grep -H 'oom_kill [1-9]' {} +")
# [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, …     [PG ID 0 … Rank 1] …
_WATCHDOG = re.compile(r"\[[^\]]*Rank (\d+)\].*Watchdog caught.*OpType=(\w+)")
# *** JOB 494583 ON n1 CANCELLED AT …     *** STEP 494583.0 ON …
_JOB = re.compile(r"\b(?:JOB|STEP) (\d+)")
# srun: error: n2: task 1: Exited with exit code 3     slurmstepd: error: *** JOB 6 ON n1 CANCELLED AT 2026-04-20T09:09:37 ***
_ECHO = re.compile(r".{0,40}srun: error: \S+: tasks? \S+: Exited with |.{0,40}\*\*\* (?:JOB|STEP) .*CANCELLED AT \S+ \*\*\*")


def is_echo(found: Found) -> bool:
    """Is this no more than Slurm's own word that a task has ended, or that somebody cancelled it: no error of anybody's?"""
    return bool(_ECHO.match(found.quote.text))


def pick_first_error(logs: Sequence[LogText], more: Optional[Sequence[Pattern[bytes]]] = (),
                     progress: Sequence[Pattern[bytes]] = ()) -> Optional[Found]:
    """The earliest cause in the logs of one run; None where they tell of none (or of the noise of a shutdown alone).

    What no other failure caused comes before its consequences, the rest before mere lines of level ERROR. Of several logs the
    earlier time of day counts where both tell one (less than half a day lies between them: midnight may), else the order in
    which the logs were given. `more`: as find_errors takes it, None where no words of finishing are to be believed.
    `progress`: what a step's line looks like (bytes, MULTILINE).
    What was followed by steps, in its own log or by the time of day, did not end the run: it is told only where nothing
    else is there and it lies within the last three steps, and then as `is_survived`.
    """
    if not progress:
        return _choose([find_errors(log, 200, more) for log in logs])
    last = _choose(_find_after(logs, more, progress, 1))
    if last is not None and not last.is_consequence and last.kind != "error":
        return last
    queued = _choose(_find_after(logs, more, progress, _QUEUED_STEPS))
    if queued is not None and not queued.is_consequence and queued.kind != "error":
        return queued._replace(is_survived=True)
    return last


def judge_end(exit_status: Optional[int], signal: str, is_told: bool, step: Optional[int], total: Optional[int],
              has_finished_words: bool, found: Optional[Found], oom_kills: Optional[int], kind_is_short: bool) -> vitals.Ending:
    """How a run ended, from what was recorded of its exit and what its logs say.

    `exit_status` and `signal` ("SIGKILL" or "") as recorded; 128+n and -n count as signal n. `is_told`: whether an exit was
    recorded at all, else the process is just gone. `step` of `total`: as far as they are known. `has_finished_words`:
    find_finished found some, and the exit does not give them the lie. `oom_kills`: host.oom's count, None for unknown.
    `kind_is_short`: a kind that has no steps, of which exit 0 is all that can be asked. The exit status alone is not believed: a
    pipe into tee hides it (S11). Where the process is just gone, a mere line of level ERROR proves no cause: it is quoted.
    """
    status = exit_status
    signal = signal or _name_signal(status)
    is_told = is_told and (status is not None or bool(signal))
    if found is not None and found.is_noise:
        found = None
    is_cause = found is not None and not found.is_consequence and not found.is_survived
    is_short_of = step is not None and total is not None and step < total
    is_complete = step is not None and total is not None and step >= total
    how, words = "", ""
    if has_finished_words and not is_short_of and not (is_cause and found is not None and found.kind != "error"):
        # The exit after it is the shutdown's, which may go wrong: verl-project/verl#1299.
        how = "ended well"
        words = "its log says that it finished" + _tell_exit(status, signal, "; the %s after it is the shutdown's")
        found = None
    elif found is not None and found.kind in _BATCH and (is_cause or found.kind == "cancelled" and not found.is_survived):
        how, words = "killed", _WORDS[found.kind]
    elif signal == "SIGKILL":
        how, words = _judge_kill(found, oom_kills)
    elif signal in _CRASHES:
        how, words = "failed", "crashed in native code (%s)" % signal
    elif signal:
        how, words = "killed", "stopped by %s" % signal
        if found is not None and is_cause and found.kind != "error":
            how, words = _judge_found(found, " (%s after it)" % signal, oom_kills)
    elif found is not None and is_cause and (found.kind != "error" or status) and not (found.kind == "error" and is_complete):
        if status == 0:
            how, words = _judge_found(found, ", though the exit status is 0", oom_kills)
        else:
            how, words = _judge_found(found, _tell_exit(status, signal, " (%s)"), oom_kills)
    elif status:
        how, words = "failed", "exit status %d; %s" % (status, _tell_found(found))
    elif is_told:
        how, words = _judge_zero(step, total, has_finished_words, kind_is_short)
    else:
        how, words = _judge_untold(step, total, has_finished_words, kind_is_short, found, oom_kills)
    return vitals.Ending(how, words, status, signal, None if found is None else found.quote, _advise(how, signal, found))


def _judge_kill(found: Optional[Found], oom_kills: Optional[int]) -> Tuple[str, str]:
    if found is not None and found.kind == "oom-gpu" and not found.is_survived:
        return "failed", "out of memory on the GPU (SIGKILL after it)"
    if found is not None and found.kind == "oom-host" and _MONITOR.search(found.quote.text):
        return "killed", _MONITOR_WORDS + " (SIGKILL after it)"
    if found is not None and found.kind == "oom-host":
        return "killed", "SIGKILL by the kernel's out-of-memory killer%s" % _tell_kills(oom_kills)
    if oom_kills:  # which process each of them ended, the count does not tell
        return "killed", "SIGKILL, most likely by the kernel's out-of-memory killer%s" % _tell_kills(oom_kills)
    if found is not None and not found.is_consequence and found.kind not in ("error", "killed") and not found.is_survived:
        return "killed", "SIGKILL, after an error in its log"
    if oom_kills == 0:
        return "killed", "SIGKILL: somebody's kill -9, or the kernel's out-of-memory killer in another control group"
    return "killed", "SIGKILL: the kernel's out-of-memory killer, or somebody's kill -9; nothing that was read tells which"


def _judge_found(found: Found, end: str, oom_kills: Optional[int]) -> Tuple[str, str]:
    if found.kind == "killed" and oom_kills:
        return "killed", "a process of it was killed, most likely by the kernel's out-of-memory killer%s%s" % (
            _tell_kills(oom_kills), end)
    words = _WORDS.get(found.kind, _WORDS["error"])
    watchdog = _WATCHDOG.search(found.quote.text) if found.kind == "nccl" else None
    if watchdog is not None:
        words = "NCCL timed out: %s, first on rank %s" % (watchdog.group(2), watchdog.group(1))
    if found.kind == "oom-host" and _MONITOR.search(found.quote.text):
        words = _MONITOR_WORDS
    return "killed" if found.kind in _KILLERS else "failed", words + end


def _judge_zero(step: Optional[int], total: Optional[int], has_finished_words: bool, kind_is_short: bool) -> Tuple[str, str]:
    if step is not None and total is not None:
        if step >= total:
            return "ended well", "step %d of %d, exit status 0" % (step, total)
        said = "said that it finished" if has_finished_words else "exit status 0"
        return "ended early", "%s at step %d of %d" % (said, step, total)
    if kind_is_short:
        return "ended well", "exit status 0"
    return "ended", "exit status 0; whether it did all its steps is not known"


def _judge_untold(step: Optional[int], total: Optional[int], has_finished_words: bool, kind_is_short: bool,
                  found: Optional[Found], oom_kills: Optional[int]) -> Tuple[str, str]:
    if has_finished_words:
        return "ended early", "its log says that it finished, at step %s of %s" % (step, total)
    if step is not None and total is not None and step >= total:
        return "ended", "did its last step, %d of %d; its exit was not recorded" % (step, total)
    if found is not None and found.is_consequence:
        if found.kind == "killed" or re.search("KeyboardInterrupt|got signal|SignalException", found.quote.text):
            return "killed", "its log says that it was told to stop, not by whom; its exit was not recorded"
        return "failed", "its log shows only what followed from a failure; its exit was not recorded"
    if kind_is_short:
        return "ended", "its process is gone; its exit was not recorded"
    words = "its log just stops: killed, perhaps by the kernel's out-of-memory killer"
    words += _tell_kills(oom_kills) if oom_kills else ", or the machine went down"
    is_quoted = found is not None and not found.is_survived
    return "died without trace", words + ("; the last known error, which need not be the cause, is quoted" if is_quoted else "")


def _tell_found(found: Optional[Found]) -> str:
    if found is None:
        return "no error in its logs"
    if found.is_survived:
        return "the last error in its logs was followed by steps"
    return "its log shows only what followed from a failure" if found.is_consequence else "its log tells an error"


def _tell_exit(status: Optional[int], signal: str, form: str) -> str:
    if signal:
        return form % signal
    return form % ("exit status %d" % status) if status else ""


def _tell_kills(oom_kills: Optional[int]) -> str:
    return " (oom_kill %d in this control group)" % oom_kills if oom_kills else ""


def _name_signal(status: Optional[int]) -> str:
    if status is None or not (status < 0 or 128 < status <= 192):
        return ""
    try:
        return signals.Signals(-status if status < 0 else status - 128).name
    except ValueError:
        return ""


def _advise(how: str, signal: str, found: Optional[Found]) -> Tuple[str, ...]:
    # Cheapest first, at most three.
    kind = "" if found is None else found.kind
    if how in ("ended well", "ended"):
        return ()
    show = () if found is None else (_show_place(found.quote),)
    if kind in _BATCH and found is not None:
        job = _JOB.search(found.quote.text)
        return ("sacct -j %s --format=JobID,State,ExitCode,Elapsed,Timelimit,End" % (job.group(1) if job else "JOB"),
                {"time-limit": "ask for more time (--time), or launch again and resume from the newest checkpoint",
                 "node": "sinfo -R -N"}.get(kind, "ask whoever cancelled it, or the batch system's administrator"))
    if kind == "oom-host" and found is not None and _MONITOR.search(found.quote.text):
        return ("free -h", *show,
                "fewer or smaller workers on that node: Ray kills above RAY_memory_usage_threshold, 0.95 unless set")
    if how == "died without trace":
        return (*show, *_SEEK_KILLER)[:3]
    if kind in _KILLERS or (signal == "SIGKILL" and how == "killed"):
        return _SEEK_KILLER
    if kind == "oom-gpu":
        return ("nvidia-smi", *show, "smaller micro-batches, a shorter context, or a smaller share of the GPU for inference")
    if kind in ("nccl", "crash"):
        return (*show, "dmesg -T | grep -iE 'xid|nvrm|segfault'",
                "look at that rank's own log: what stopped it may stand there, earlier")
    if kind == "disk":
        return ("df -h; df -i", *show)
    return show


def _show_place(quote: vitals.Quote) -> str:
    path = shell.quote_words([quote.log])
    if quote.line is not None:
        return "sed -n '%d,%dp' %s" % (max(1, quote.line - 30), quote.line + 5, path)
    return "tail -c +%d %s | head -c 8000" % (max(1, quote.offset - 4000), path)


def _choose(by_log: Sequence[Sequence[Found]]) -> Optional[Found]:
    # A log is in order of time, so only the first of each rank counts; the choice between logs is by the clock.
    best: Optional[Found] = None
    for found in by_log:
        own = sorted((one for one in found if not one.is_noise), key=_rank)
        if own and (best is None or _is_before(own[0], best)):
            best = own[0]
    return best


def _rank(found: Found) -> int:
    return 3 if is_echo(found) and found.is_consequence else 2 if found.is_consequence else 1 if found.kind == "error" else 0


def _is_before(one: Found, other: Found) -> bool:
    if _rank(one) != _rank(other):
        return _rank(one) < _rank(other)
    return bool(one.clock and other.clock) and _count_seconds(one.clock, other.clock) > 0


def _count_seconds(one: str, other: str) -> int:
    """From a time of day to another: of both ways round the clock the shorter."""
    a, b = (sum(int(part) * unit for part, unit in zip(clock.split(":"), (3600, 60, 1))) for clock in (one, other))
    seconds = (b - a) % (2 * _HALF_DAY_SECONDS)
    return seconds if seconds < _HALF_DAY_SECONDS else seconds - 2 * _HALF_DAY_SECONDS


def _find_after(logs: Sequence[LogText], more: Optional[Sequence[Pattern[bytes]]], progress: Sequence[Pattern[bytes]],
                steps: int) -> List[Tuple[Found, ...]]:
    cuts = [_cut_at_step(log, progress, steps) for log in logs]
    by_log = [find_errors(log, 200, more) if cut is None else find_errors(cut[0], 200, more, False, progress)
              for log, cut in zip(logs, cuts)]
    since, lag = "", None  # type: str, Optional[int]
    for log, cut in zip(logs, cuts):
        if cut is not None and cut[1] and (not since or _count_seconds(since, cut[1]) > 0):
            since, lag = cut[1], _read_lag(log)
    # Logs without steps, an environment's or a server's, are held against the time of the last one: where both go by one clock.
    return [found if cut is not None or not since or not _is_one_clock(lag, _read_lag(log)) else tuple(
        one for one in found if not one.clock or _count_seconds(since, one.clock) >= 0)
        for log, found, cut in zip(logs, by_log, cuts)]


# 12:00:01, coloured or not, at a line's beginning
_CLOCK = re.compile(br"(?:^|\n)(?:\x1b\[[0-9;]*m|\[[a-z]+\d+\]:)*([0-2]\d:[0-5]\d:[0-6]\d)\b")


def _read_lag(log: LogText) -> Optional[int]:
    """By how much the file's own time is later than the last time of day that its lines bear; None where they bear none."""
    clocks = _CLOCK.findall(log.data)
    now = time.strftime("%H:%M:%S", time.localtime(log.modified_seconds))
    return _count_seconds(clocks[-1].decode("ascii"), now) if clocks and log.modified_seconds else None


def _is_one_clock(one: Optional[int], other: Optional[int]) -> bool:
    return one is None or other is None or abs(one - other) <= _SKEW_SECONDS


def _cut_at_step(log: LogText, progress: Sequence[Pattern[bytes]], steps: int) -> Optional[Tuple[LogText, str]]:
    # What follows the last step's line, or the one before it …, and the time of day that this line bears.
    found = sorted(one.start() for pattern in progress for one in pattern.finditer(log.data))[-steps:]
    if not found:
        return None
    end = log.data.find(b"\n", found[0])
    end = len(log.data) if end < 0 else end + 1
    glued = log.data.find(b".sh: line ", found[0], end)
    if glued >= 0:  # the shell's last word on a process that had half written the line
        end = glued - min(glued - found[0], 200)
    begin = log.data.rfind(b"\n", 0, found[0]) + 1
    clock = re.search(br"(?<![\d:])\d\d:\d\d:\d\d(?![\d:])", log.data[begin:min(end, begin + 120)])
    line = None if log.first_line is None else log.first_line + log.data.count(b"\n", 0, end)
    cut = log._replace(data=log.data[end:], offset=log.offset + end, first_line=line)
    return cut, "" if clock is None else clock.group().decode("ascii")
