"""Slurm, asked by its own programs, each with a time limit. Owns their formats; submits, cancels and changes nothing.

squeue knows what waits or runs, sacct what ended where accounting is on, and scontrol what ended in the last minutes
(MinJobAge). All formats are as Slurm 22.05 prints them.
"""
import os
import re
import shlex
import shutil
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .. import child
from ..values import Outcome

TIMEOUT_SECONDS = 10.0  # of each program; without its controller squeue tries for 18 s
_QUEUE_FORMAT = "%i|%A|%T|%N|%M|%l|%r"
_ACCOUNT_FORMAT = "JobID,JobIDRaw,State,ExitCode,Elapsed,Timelimit,NodeList"
# 12   4_2 (a task of an array)   11+1 (a part of a heterogeneous job)
_ID = re.compile(r"(\d{1,18})(?:_(\d{1,18})|\+(\d{1,18}))?\Z")
_UNKNOWN_ID = b"Invalid job id specified"
# Source: slurm.h, enum job_states: all from JOB_COMPLETE on (IS_JOB_FINISHED); REVOKED: it lives on in another cluster.
_OVER = ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
         "TIMEOUT")
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
_DIRECTIVE = re.compile(r"#SBATCH\s+(.*)")
# %j   %4j (with zeros in front)   %%
_SYMBOL = re.compile(r"%(\d{0,2})([A-Za-z%])")
# What sbatch(1) calls its one-letter options.
_LONG_NAMES = {
    "A": "account", "a": "array", "b": "begin", "C": "constraint", "c": "cpus-per-task", "D": "chdir", "d": "dependency",
    "e": "error", "G": "gpus", "H": "hold", "i": "input", "J": "job-name", "k": "no-kill", "L": "licenses", "M": "clusters",
    "m": "distribution", "N": "nodes", "n": "ntasks", "O": "overcommit", "o": "output", "p": "partition", "Q": "quiet",
    "q": "qos", "s": "oversubscribe", "t": "time", "v": "verbose", "W": "wait", "w": "nodelist", "x": "exclude"}
# Those that take no word after them, one with an optional value among them: it comes behind a `=` only.
_SWITCHES = frozenset(
    "contiguous exclusive get-user-env hold ignore-pbs nice no-kill no-requeue overcommit oversubscribe parsable propagate "
    "quiet reboot requeue spread-job test-only use-min-nodes verbose wait".split())
# Source: sbatch(1), input environment variables; those that decide where a job runs, with what, and where it logs.
_VARIABLES = {name: name.lower().replace("_", "-") for name in (
    "ACCOUNT CLUSTERS CONSTRAINT CPUS_PER_GPU DISTRIBUTION ERROR EXCLUSIVE EXPORT GPUS GPUS_PER_NODE GPUS_PER_TASK GRES "
    "JOB_NAME MEM_PER_CPU MEM_PER_GPU OUTPUT PARTITION QOS RESERVATION SIGNAL WAIT").split()}
_VARIABLES.update(ARRAY_INX="array", MEM_PER_NODE="mem", TIMELIMIT="time")


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
    the first. Every program gets `timeout_seconds`. The words are "" where all ids were found and squeue worked; that
    accounting is off matters only to who is missing.
    """
    asked = [one for one in dict.fromkeys(ids) if _ID.match(one)]
    if not asked:
        return {}, "; ".join("%r is no job id" % one for one in dict.fromkeys(ids))
    # A user's SQUEUE_STATES or SACCT_FORMAT would change the answers.
    env = {name: value for name, value in environ.items() if not name.startswith(("SQUEUE_", "SACCT_"))}
    queue = _ask_squeue(asked, env, timeout_seconds)
    found = _select(asked, queue.rows)
    failures = [queue.failure]
    left = [one for one in asked if one not in found]
    if left:
        answer = _ask_sacct(left, env, timeout_seconds)
        found.update(_select(left, answer.rows))
        failures.append(answer.failure)
        # What has left the queue and is not over for sacct either: its data base is late.
        left = [one for one in left if one not in found or not is_over(found[one].state)]
    if left and not queue.failure:  # both ask the same controller
        answer = _ask_scontrol(left, env, timeout_seconds)
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
        if os.path.realpath(fields[7].strip()).startswith(wanted):
            found.append(_make_queued(fields[:7]))
    return tuple(found)


def read_output_path(job_id: str, environ: Mapping[str, str], timeout_seconds: float = TIMEOUT_SECONDS) -> str:
    """The path that the controller has for a job's output, absolute and with its id; "" where it does not tell."""
    if not _ID.match(job_id):
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


def read_directives(text: str, environ: Optional[Mapping[str, str]] = None) -> Dict[str, str]:
    """The #SBATCH options of a batch script by their long names, in order; a later one wins, a switch has "".

    Read as sbatch reads them: at the start of a line, up to the first line that is no comment, with quotes, several in
    a line; a # ends the line, in the middle of a word too. Of a heterogeneous job it is those of the first part.
    The SBATCH_* variables of `environ` win over them, as they do for sbatch; options on its command line would over both.
    """
    found: Dict[str, str] = {}
    _collect_directives(text, found)
    for name, option in _VARIABLES.items():
        if environ and environ.get("SBATCH_" + name):
            found[option] = environ["SBATCH_" + name]
    return found


def _collect_directives(text: str, found: Dict[str, str]) -> None:
    for line in text.split("\n"):
        if line.strip() and not line.lstrip().startswith("#"):
            break
        match = _DIRECTIVE.match(line)
        if not match:
            continue
        try:
            words = shlex.split(match.group(1), comments=True)
        except ValueError:  # a quote that is not closed; sbatch refuses the script
            continue
        if words[:1] in (["hetjob"], ["packjob"]):
            break
        _collect_options(words, found)


def expand_output(pattern: str, job_id: str, job_name: str) -> str:
    """The path that an --output pattern names for a job, as far as it can be told; "" is sbatch's default pattern.

    %j %A %a %x %% are replaced, what depends on the node or the user stays as it is; so does %j of an array's task,
    which has a number that its id doesn't show. Source: sbatch(1), filename pattern; a backslash turns them all off.
    """
    match = _ID.match(job_id)
    base, task, part = match.groups() if match else (None, None, None)
    if not pattern:
        pattern = "slurm-%A_%a.out" if task else "slurm-%j.out"
    if "\\" in pattern:
        return re.sub(r"\\(.)", r"\1", pattern)
    own = base if not task and part in (None, "0") else None
    known = {"j": own, "A": base, "a": task, "x": job_name or None, "%": "%"}

    def expand(symbol: "re.Match[str]") -> str:
        value = known.get(symbol.group(2))
        if value is None:
            return symbol.group(0)
        return value.zfill(min(int(symbol.group(1) or 0), 10)) if symbol.group(2) in "jAa" else value
    return _SYMBOL.sub(expand, pattern)


def _collect_options(words: Sequence[str], found: Dict[str, str]) -> None:
    left = list(words)

    def take_value() -> str:
        return left.pop(0) if left and not left[0].startswith("-") else ""
    while left:
        word = left.pop(0)
        if word.startswith("--"):
            name, sign, value = word[2:].partition("=")
            found[name] = value if sign or name in _SWITCHES else take_value()
        elif word.startswith("-"):
            letters = word[1:]
            while letters:  # -HJ name, -N2
                name, letters = _LONG_NAMES.get(letters[0], letters[0]), letters[1:]
                if name in _SWITCHES:
                    found[name] = ""
                else:
                    found[name], letters = letters or take_value(), ""


def _ask_squeue(ids: Sequence[str], env: Dict[str, str], timeout_seconds: float) -> _Answer:
    argv = ["squeue", "-h", "-r", "-o", _QUEUE_FORMAT]
    outcome = child.run(argv + ["-j", ",".join(ids)], timeout_seconds, env=env)
    if _is_unknown(outcome):
        if len(ids) == 1:
            return _Answer([], "")
        outcome = child.run(argv, timeout_seconds, env=env)
    rows = []
    for fields in _split_rows(outcome, 7):
        rows.append(_row(_make_queued(fields), fields[1]))
    return _Answer(rows, _describe_failure(outcome, env))


def _make_queued(fields: Sequence[str]) -> Job:
    shown, _, state, nodes, elapsed, limit, reason = map(_read_word, fields)
    return Job(shown, _read_state(state), reason, nodes, None, None, elapsed, limit, "squeue")


def _ask_sacct(ids: Sequence[str], env: Dict[str, str], timeout_seconds: float) -> _Answer:
    outcome = child.run(["sacct", "-n", "-P", "-X", "-j", ",".join(ids), "-o", _ACCOUNT_FORMAT], timeout_seconds, env=env)
    rows = []
    for fields in _split_rows(outcome, 7):
        shown, raw, state, exits, elapsed, limit, nodes = map(_read_word, fields)
        code, number = _read_exit(exits, state)
        rows.append(_row(Job(shown, _read_state(state), "", nodes, code, number, elapsed, limit, "sacct"), raw))
    return _Answer(rows, _describe_failure(outcome, env))


def _ask_scontrol(ids: Sequence[str], env: Dict[str, str], timeout_seconds: float) -> _Answer:
    rows: List[_Row] = []
    newest = sorted(ids, key=lambda one: int(re.split(r"[_+]", one)[0]), reverse=True)
    for one in newest[:_SHOW_LIMIT]:  # it takes a single id
        outcome = child.run(["scontrol", "show", "job", "-o", one], timeout_seconds, env=env)
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
    rows = [line.split("|", count - 1) for line in _decode(outcome.output).split("\n")]
    return [row for row in rows if len(row) == count and row[0][:1].isdigit()]


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
