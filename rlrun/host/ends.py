"""What ends a run that nothing is wrong with: the sentence of each end, and those of Slurm and of a container's first shell.

Reads /proc, and asks `squeue` for the time left.
"""
import os
import posixpath
from typing import Dict, List, NamedTuple, Optional, Tuple

from .. import child
from .ancestors import read_ancestors
from .cgroups import SLURM_JOB
from .memory import read_text

_SQUEUE_SECONDS = 5
_INITIAL_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO in the kernel's proc_ns.h
SHELLS = ("sh", "bash", "dash", "ash", "zsh", "fish", "ksh", "mksh", "csh", "tcsh")
_SHELL_OPTIONS_WITH_VALUE = ("--rcfile", "--init-file", "-o", "+o", "-O", "+O")


class End(NamedTuple):
    """Something that would end the run, and what to do; `by_scope`: a scope of the run's own would be spared."""

    words: str
    cure: str
    by_scope: bool


def explain_slurm(cgroups: Tuple[str, ...], environment: Dict[str, str], needed_seconds: Optional[float]) -> Optional[End]:
    """The end of the Slurm job that this process is in, if it is; `squeue` has 5 s for its answer.

    `needed_seconds`: how long the run will take, by an estimate, if there is one.
    """
    jobs = [match.group(1) for match in map(SLURM_JOB.search, cgroups) if match]
    job = jobs[0] if jobs else environment.get("SLURM_JOB_ID") or environment.get("SLURM_JOBID") or ""
    is_inside = bool(jobs) or any("/slurm/" in path for path in cgroups)
    if not job.isdecimal():
        return End("this shell is in a Slurm job; when it ends, Slurm ends the run with it",
                   "make sure that the run fits, or submit it as a job of its own", False) if is_inside else None
    outcome = child.run(["squeue", "-h", "-j", job, "-o", "%L"], _SQUEUE_SECONDS, env=environment)
    left = outcome.output.decode("utf-8", "replace").strip() if (outcome.how, outcome.code) == ("ended", 0) else ""
    has_gone = outcome.how == "ended" and (outcome.code == 0 or b"Invalid job id" in outcome.errors) and not left
    if has_gone and not is_inside:
        return None  # only the variable is left of that job
    left = left.splitlines()[0] if left else ""
    shown = "time left unknown (squeue: %s)" % child.describe(outcome)
    if left:
        shown = "no time limit" if left == "UNLIMITED" else "%s left" % left
    seconds = parse_slurm_time(left)
    is_short = seconds is not None and needed_seconds is not None and seconds < needed_seconds
    return End("this shell is in Slurm job %s, %s%s; when the job ends, Slurm ends the run with it" % (
        job, shown, weigh_time(seconds, needed_seconds)), "%s, or submit it as a job of its own" % (
        "ask for more time" if is_short else "make sure that the run fits"), False)


def weigh_time(left_seconds: Optional[float], needed_seconds: Optional[float]) -> str:
    """What to say behind a time left about the run's own need, an estimate; "" where either is unknown."""
    if needed_seconds is None or left_seconds is None:
        return ""
    needed = "the run needs roughly %s, by a guess" % show_seconds(needed_seconds)
    if left_seconds < needed_seconds:
        return " (%s), which is TOO LITTLE: %s" % (show_seconds(left_seconds), needed)
    return " (%s)" % needed


def parse_slurm_time(text: str) -> Optional[float]:
    """Seconds of `squeue -o %L`: `1-02:03:04`, `2:03:04`, `20:00`; None for words (UNLIMITED, INVALID, NOT_SET)."""
    days, dash, clock = text.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdecimal() for part in parts) or (dash and not days.isdecimal()) or len(parts) > 3:
        return None
    seconds = 0
    for part in parts:
        seconds = seconds * 60 + int(part)
    return float(seconds + (int(days) * 86400 if dash else 0))


def show_seconds(seconds: float) -> str:
    """`45 s`, `12 min`, `3 h 5 min`, `2 d 4 h`: two units at most."""
    whole = max(0, int(seconds))
    if whole < 60:
        return "%d s" % whole
    for size, name, lesser_size, lesser in ((86400, "d", 3600, "h"), (3600, "h", 60, "min")):
        if whole >= size:
            rest = whole % size // lesser_size
            return "%d %s" % (whole // size, name) + (" %d %s" % (rest, lesser) if rest else "")
    return "%d min" % (whole // 60)


def explain_first_shell(proc_root: str) -> Optional[End]:
    """The end of a container whose first process is a shell that somebody leaves, or that started this process."""
    argv = read_text(os.path.join(proc_root, "1/cmdline")).rstrip("\0").split("\0")
    shell = posixpath.basename(argv[0]).lstrip("-")
    if shell not in SHELLS or is_initial_pid_namespace(proc_root):
        return None
    # `sh -c "sleep infinity"`, as pods have it, ends with nobody's logout, unless we were started from it.
    if not _is_interactive(argv) and not any(1 in (one.pid, one.ppid) for one in read_ancestors(proc_root)):
        return None
    return End("the first process of this container is a shell (pid 1: %s): when it exits, the container ends, and the run "
               "with it" % shell, "leave that shell open, or start the container with `sleep infinity` and enter it by exec",
               False)


def is_initial_pid_namespace(proc_root: str = "/proc") -> bool:
    """Is this the machine's own table of processes? False also where that is hidden."""
    try:
        return os.readlink(os.path.join(proc_root, "self/ns/pid")) == _INITIAL_PID_NAMESPACE
    except OSError:
        return False


def _is_interactive(argv: List[str]) -> bool:
    words = iter(argv[1:])
    for word in words:
        if word in _SHELL_OPTIONS_WITH_VALUE:
            next(words, "")
        elif not word.startswith(("-", "+")) or (word.startswith("-") and word[1:2] != "-" and "c" in word):
            return False
    return True
