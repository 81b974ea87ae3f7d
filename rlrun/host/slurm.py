"""Slurm, asked by its own programs, each with a time limit. Owns their formats; submits, cancels and changes nothing.

squeue knows what waits or runs, sacct what ended where accounting is on, and scontrol what ended in the last minutes
(MinJobAge). All formats are as Slurm 22.05 prints them.
"""
import os
import re
import shutil
import time
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .. import child
from ..values import Outcome
from .slurm_script import JOB_ID, expand_output, is_told, read_directives  # noqa: F401  (for those who ask Slurm)

__all__ = ["expand_output", "read_directives"]  # by this name for all who ask Slurm

TIMEOUT_SECONDS = 10.0  # for all of a question; without its controller squeue alone tries for 18 s
# A squeue that takes longer is not waited for alone: sacct is asked beside it.
_PATIENCE_SECONDS = 1.5
_POLL_SECONDS = 0.01
# So long each of the programs has at least, also where others took all the time that there was.
_LEAST_SECONDS = 0.3
_QUEUE_FORMAT = "%i|%A|%T|%N|%M|%l|%r"
_MORE_FORMAT = "|%P|%Q|%S|%L"
_ACCOUNT_FORMAT = "JobID,JobIDRaw,State,ExitCode,Elapsed,Timelimit,NodeList"
_UNKNOWN_ID = b"Invalid job id specified"
# Source: slurm.h, enum job_states: all from JOB_COMPLETE on (IS_JOB_FINISHED); REVOKED: it lives on in another cluster.
_OVER = ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
         "TIMEOUT")
# CANCELLED by 1000
_CANCELLED_BY = re.compile(r"CANCELLED by (\d{1,10})\Z")
_NOTHING = ("(null)", "None", "None assigned", "N/A")
# JobId=9 ArrayJobId=4 ArrayTaskId=1 ArrayTaskThrottle=1 JobName=wrap UserId=root(0) GroupId=root(0) … JobState=FAILED
# Reason=None Dependency=(null) … ExitCode=0:15 RunTime=00:00:24 TimeLimit=UNLIMITED … ReqNodeList=(null) … NodeList=n1 …
_SHOWN = re.compile(
    r"JobId=(?P<raw>\d+) (?:ArrayJobId=(?P<array>\d+) (?:ArrayTaskId=(?P<task>\S+) )?)?(?:ArrayTaskThrottle=\S+ )?"
    r"(?:HetJobId=(?P<het>\d+) HetJobOffset=(?P<offset>\d+) )?JobName=.*? UserId=.*?\(\d+\) GroupId=.*? "
    r"JobState=(?P<state>\S+) Reason=(?P<reason>.*?) Dependency=.*? ExitCode=(?P<exit>\d+:\d+) RunTime=(?P<elapsed>\S+) "
    r"TimeLimit=(?P<limit>\S+) (?:.*? NodeList=(?P<nodes>\S*))?")
# … StdErr=/x/job_9.log StdIn=/dev/null StdOut=/x/job_9.log Power= TresPerNode=gres:gpu:8
_STDOUT = re.compile(r" StdOut=(/.*?)(?: [A-Z]\w*=.*)?$")
# So many jobs it is asked for one by one, the newest: it remembers none for long.
_SHOW_LIMIT = 50
# Submitted batch job 12 on cluster x
_SUBMITTED = re.compile(r"\bSubmitted batch job (\d{1,18})\b")
_COLOR = re.compile(r"\x1b\[[0-9;:]*[A-Za-z]")


class Job(NamedTuple):
    """One job as Slurm tells it, in its words; "" is what it did not tell."""

    id: str  # as Slurm prints it: 12, 4_2 for a task of an array, 11+1 for a part of a heterogeneous job
    state: str  # PENDING, RUNNING, COMPLETING, COMPLETED, FAILED, CANCELLED, TIMEOUT, OUT_OF_MEMORY, NODE_FAIL, …
    reason: str  # why it waits or failed: Resources, Priority, NonZeroExitCode, …
    nodes: str  # n[1-2]; "" before it has some
    exit_code: Optional[int]  # None until it is over, and where a signal ended it; may be 0 for TIMEOUT and CANCELLED
    signal: Optional[int]  # None until it is over, and where it ended by itself
    elapsed: str  # 0:24 or 00:00:24
    time_limit: str  # UNLIMITED, 1:00, 00:01:00, Partition_Limit
    source: str  # "squeue", "sacct" or "scontrol"
    partition: str = ""  # gpu, or gpu,cpu while it waits for either
    priority: Optional[int] = None
    start: str = ""  # 2026-11-30T06:45:04, this machine's time: when it began or, while it waits, is expected to
    left: str = ""  # 5:00, UNLIMITED: of its time limit
    by: Optional[int] = None  # the uid of who cancelled it


class _Row(NamedTuple):
    names: Tuple[str, ...]  # the ids that this job answers to
    job: Job


class _Answer(NamedTuple):
    rows: List[_Row]
    failure: str  # in words; "" where the program worked


def find_sbatch(environ: Mapping[str, str]) -> str:
    """The path of sbatch as a program with this environment would find it; "" where there is none."""
    return shutil.which("sbatch", path=environ.get("PATH", os.defpath)) or ""


def read_jobs(ids: Sequence[str], environ: Mapping[str, str],
              timeout_seconds: float = TIMEOUT_SECONDS) -> Tuple[Dict[str, Job], str]:
    """The Job of each id, and in words what failed on the way; an id that nobody knows is left out.

    The id of an array or a heterogeneous job gives one of its parts: one that is not over, else one that failed, else
    the first. All takes at most `timeout_seconds`, and little more than that in the worst case. The words are "" where all ids
    were found and squeue worked; that accounting is off matters only to who is missing.
    """
    asked = [one for one in dict.fromkeys(ids) if JOB_ID.match(one)]
    if not asked:
        return {}, "; ".join("%r is no job id" % one for one in dict.fromkeys(ids))
    # A user's SQUEUE_STATES or SACCT_FORMAT would change the answers.
    env = {name: value for name, value in environ.items() if not name.startswith(("SQUEUE_", "SACCT_"))}
    deadline = time.monotonic() + timeout_seconds
    queue, accounts = _ask_squeue(asked, env, deadline)
    found = _select(asked, queue.rows)
    failures = [queue.failure]
    left = [one for one in asked if one not in found]
    if accounts is not None and not left:
        child.finish(accounts, 0.0)
    elif left:
        answer = _read_accounts(accounts or _start_sacct(left, env), env, deadline)
        found.update(_select(left, answer.rows))
        failures.append(answer.failure)
        # What has left the queue and is not over for sacct either: its data base is late.
        left = [one for one in left if one not in found or not is_over(found[one].state)]
    if left and not queue.failure:  # both ask the same controller
        answer = _ask_scontrol(left, env, deadline)
        found.update(_select(left, answer.rows))
        failures.append(answer.failure)
    failures += ["%r is no job id" % one for one in dict.fromkeys(ids) if one not in asked]
    is_complete = all(one in found for one in ids)
    return found, queue.failure if is_complete else "; ".join(words for words in failures if words)


def find_jobs_in(folder: str, environ: Mapping[str, str], timeout_seconds: float = TIMEOUT_SECONDS) -> Tuple[Job, ...]:
    """This user's jobs that wait or run with a batch script below `folder`: a job that waits has no log yet to know it by.
    None also where squeue can't be asked."""
    env = {name: value for name, value in environ.items() if not name.startswith("SQUEUE_")}
    outcome = child.run(["squeue", "-h", "-r", "-u", str(os.geteuid()), "-o", _QUEUE_FORMAT + "|%o"], timeout_seconds, env=env)
    wanted = os.path.realpath(folder) + os.sep
    found = []
    for fields in _split_rows(outcome, 8):
        if os.path.realpath("|".join(fields[7:]).strip()).startswith(wanted):
            found.append(_make_queued(fields[:7]))
    return tuple(found)


def read_output_path(job_id: str, environ: Mapping[str, str], timeout_seconds: float = TIMEOUT_SECONDS) -> str:
    """The path that the controller has for a job's output, absolute and with its id; "" where it does not tell."""
    if not JOB_ID.match(job_id):
        return ""
    outcome = child.run(["scontrol", "show", "job", "-o", job_id], timeout_seconds, env=dict(environ))
    match = _STDOUT.search(_decode(outcome.output).split("\n")[0].rstrip())
    return match.group(1) if match else ""


def is_over(state: str) -> bool:
    """Has a job of this state ended for good? A COMPLETING one has not: it still holds its nodes."""
    return _read_state(state) in _OVER


def parse_submitted(text: str) -> Tuple[str, ...]:
    """The job ids that sbatch printed somewhere in a runner's output, each once, in order."""
    return tuple(dict.fromkeys(_SUBMITTED.findall(_COLOR.sub("", text))))


def _finish(running: child.Running, deadline: float) -> Outcome:
    """Waits for a program up to a time of the monotonic clock."""
    return child.finish(running, max(deadline, time.monotonic() + _LEAST_SECONDS) - running.started)


def _ask_squeue(ids: Sequence[str], env: Dict[str, str], deadline: float) -> Tuple[_Answer, Optional[child.Running]]:
    """What squeue says, and the sacct that was started beside it because it took its time."""
    argv = ["squeue", "-h", "-r", "-o", _QUEUE_FORMAT + _MORE_FORMAT]
    running = child.start(argv + ["-j", ",".join(ids)], env=env)
    accounts: Optional[child.Running] = None
    try:
        if not _is_quick(running, deadline):
            accounts = _start_sacct(ids, env)
        outcome = _finish(running, deadline)
        if _is_unknown(outcome):
            if len(ids) == 1:
                return _Answer([], ""), accounts
            outcome = _finish(child.start(argv, env=env), deadline)
    except BaseException:
        for one in (running, accounts):
            if one is not None and one.popen is not None:
                child.end_group(one.popen)
        raise
    rows = [_row(_make_queued(fields), fields[1]) for fields in _split_rows(outcome, 7)]
    return _Answer(rows, _describe_failure(outcome, env)), accounts


def _is_quick(running: child.Running, deadline: float) -> bool:
    if running.popen is None:
        return True
    now = time.monotonic()
    until = now + min(_PATIENCE_SECONDS, max(0.0, deadline - now) / 4)
    while running.popen.poll() is None:  # for ever where it prints more than a pipe takes; then there is somewhat more to do
        if time.monotonic() >= until:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _make_queued(fields: Sequence[str]) -> Job:
    shown, _, state, nodes, elapsed, limit, reason = map(_read_word, fields[:7])
    partition, priority, start, left = map(_read_word, fields[7:11]) if len(fields) >= 11 else ("",) * 4
    return Job(shown, _read_state(state), reason, nodes, None, None, elapsed, limit, "squeue", partition,
               int(priority) if priority.isdecimal() and len(priority) < 16 else None, start, left)


def _start_sacct(ids: Sequence[str], env: Dict[str, str]) -> child.Running:
    return child.start(["sacct", "-n", "-P", "-X", "-j", ",".join(ids), "-o", _ACCOUNT_FORMAT], env=env)


def _read_accounts(running: child.Running, env: Dict[str, str], deadline: float) -> _Answer:
    outcome = _finish(running, deadline)
    rows = []
    for fields in _split_rows(outcome, 7):
        shown, raw, state, exits, elapsed, limit, nodes = map(_read_word, fields[:7])
        code, number = _read_exit(exits, state)
        by = _CANCELLED_BY.match(state)
        rows.append(_row(Job(shown, _read_state(state), "", nodes, code, number, elapsed, limit, "sacct",
                             by=int(by.group(1)) if by else None), raw))
    return _Answer(rows, _describe_failure(outcome, env))


def _ask_scontrol(ids: Sequence[str], env: Dict[str, str], deadline: float) -> _Answer:
    rows: List[_Row] = []
    newest = sorted(ids, key=lambda one: int(re.split(r"[_+]", one)[0]), reverse=True)
    for place, one in enumerate(newest[:_SHOW_LIMIT]):  # it takes a single id
        if place and time.monotonic() > deadline:
            return _Answer(rows, "scontrol: time was left for %d of %d jobs" % (place, len(newest)))
        outcome = _finish(child.start(["scontrol", "show", "job", "-o", one], env=env), deadline)
        failure = "" if _is_unknown(outcome) else _describe_failure(outcome, env)
        if failure:
            return _Answer(rows, failure)
        rows += [row for row in map(_parse_shown, _decode(outcome.output).split("\n")) if row]
    return _Answer(rows, "" if len(ids) <= _SHOW_LIMIT else "scontrol: only the newest %d were asked for" % _SHOW_LIMIT)


def _parse_shown(line: str) -> Optional[_Row]:
    match = _SHOWN.match(line)
    if not match:
        return None
    shown = match.group("raw")
    if match.group("task"):
        task = match.group("task")
        shown = "%s_%s" % (match.group("array"), task if task.isdigit() else "[%s]" % task)
    elif match.group("het"):
        shown = "%s+%s" % match.group("het", "offset")
    state = _read_state(match.group("state"))
    code, number = _read_exit(match.group("exit"), state)
    return _row(Job(shown, state, _read_word(match.group("reason")), _read_word(match.group("nodes") or ""), code, number,
                    match.group("elapsed"), match.group("limit"), "scontrol"), match.group("raw"))


def _row(job: Job, raw: str) -> _Row:
    return _Row((job.id, re.split(r"[_+]", job.id)[0], raw), job)


def _select(ids: Sequence[str], rows: Sequence[_Row]) -> Dict[str, Job]:
    found = {}
    for one in ids:
        jobs = [row.job for row in rows if row.job.id == one] or [row.job for row in rows if one in row.names]
        if jobs:  # min() takes the first of equals
            found[one] = min(jobs, key=lambda job: (is_over(job.state), job.state == "COMPLETED"))
    return found


def _split_rows(outcome: Outcome, count: int) -> List[List[str]]:
    rows = [line.split("|") for line in _decode(outcome.output).split("\n")]
    return [row for row in rows if len(row) >= count and row[0][:1].isdigit()]


def _read_word(text: str) -> str:
    text = text.strip()
    return "" if text in _NOTHING else text


def _read_state(text: str) -> str:
    """CANCELLED for `CANCELLED by 1000` and `CANCELLED+`, OUT_OF_MEMORY for `OUT_OF_ME+`: a column that was too narrow."""
    word = text.split()[0] if text.split() else ""
    if not word.endswith("+"):
        return word
    return next((state for state in _OVER if state.startswith(word[:-1])), word[:-1])


def _read_exit(text: str, state: str) -> Tuple[Optional[int], Optional[int]]:
    # 3:0   0:15, ended by a signal
    match = re.match(r"(\d{1,9}):(\d{1,9})\Z", text)
    if not match or not is_over(state):
        return None, None
    code, number = int(match.group(1)), int(match.group(2))
    return (None, number) if number else (code, None)


def _is_unknown(outcome: Outcome) -> bool:
    return outcome.how == "ended" and outcome.code != 0 and _UNKNOWN_ID in outcome.errors


def _describe_failure(outcome: Outcome, env: Mapping[str, str]) -> str:
    program = outcome.argv[0]
    if outcome.how == "ended" and outcome.code == 0:
        return ""
    if outcome.how == "unstartable" and not shutil.which(program, path=env.get("PATH", os.defpath)):
        return "%s is not on the PATH" % program
    lines = [line.strip() for line in _decode(outcome.errors).split("\n") if line.strip()]
    if outcome.how != "ended" or not lines:
        return "%s: %s" % (program, child.describe(outcome))
    # slurm_load_jobs error: Unable to contact slurm controller (connect failure)
    return "%s: %s" % (program, re.sub(r"^(?:\w+: )?(?:\w+ )?error: ", "", lines[-1]))


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "replace")
