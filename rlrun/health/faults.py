"""What went wrong, by the words of a log: tracebacks, killers, time limits, lines of level ERROR. Pure functions on bytes.

The bytes may be the end of a huge log: cut in a line, with lines of megabytes, NULs, progress bars, colours, bytes that are
no UTF-8, several processes' lines mixed. Literals are searched for first; only lines that hold one are looked at closer, and
of those only the beginning, because a message says what it is at its beginning: metric names (`has_error`), a sample of
the data or a model's answer further on in a line are none. A text that an agent printed with real line ends can't be told
from a log's own; pick_first_error (endings.py) lets what was followed by further steps count less.
"""
import re
from typing import Dict, Iterator, List, NamedTuple, Optional, Pattern, Sequence, Set, Tuple

from .. import vitals
from ..text import shell
from .printed import BAD_LEVELS, Line, find_begin, is_talk, parse_json_line, read_line, read_text, split_key, split_line


class LogText(NamedTuple):
    """What was read of a log."""

    name: str
    path: str
    data: bytes
    offset: int  # the byte at which `data` begins in the file
    first_line: Optional[int]  # the number of the line at which `data` begins, 1 for a whole log; None where unknown
    modified_seconds: float  # since the epoch


class Found(NamedTuple):
    """One thing that went wrong, as a log tells it."""

    quote: vitals.Quote  # of a traceback the exception's line; a bar's rewritten line begins after its last \\r
    kind: str  # traceback, oom-gpu, oom-host, nccl, killed, crash, time-limit, cancelled, preempted, node, disk, nan, error
    clock: str  # HH:MM:SS, the line's own; a traceback's, if it bears none, is that of a line shortly before it; else ""
    is_consequence: bool  # of another's failure: a death signal, a closed connection, an actor that died
    is_noise: bool  # of the shutdown, or of Python's own while it ends
    is_survived: bool = False  # steps followed it (set by pick_first_error)


# How a log says that its run finished, at the end of a line: `12:00:05 SUCCESS Training finished!`, `RL trainer finished!`,
# `Evals finished!`, `Training completed successfully.`  A stack adds its own.
FINISHED: Tuple[Pattern[bytes], ...] = (re.compile(
    rb"\b(?:[Tt]raining|[Tt]rainer|[Ee]vals?|[Ee]valuation) (?:is |has |was )?(?:finished|completed?|done)"
    rb"(?: successfully)?[!.]?(?:\x1b\[[0-9;]*m|[ \t\r])*$", re.MULTILINE),)
_SHUTDOWN_BYTES = 256 * 1024  # words of finishing further from the end are an earlier attempt's

# Case matters. Each costs about half a millisecond in 2 MB, whereas one regex of them all costs more than the sum.
_NEEDLES = (
    b"ERROR", b"FATAL", b"CRITICAL", b"ut of memory", b"illed", b"slurmstepd", b"srun: error", b"CANCELLED",
    b"Watchdog caught", b"death signal", b"exitcode: ", b"SYSTEM_ERROR", b"Fatal Python", b" received at time", b".sh: line ",
    b"slurm_script: line ", b"srun: fatal",
    b"left on device", b"quota exceeded", b"terminate called")
_HEADER = b"Traceback (most recent call last)"
_MAX_STARTS = 2000  # lines looked at for one literal; a flood repeats itself
_MAX_BEFORE, _MAX_BEFORE_HEADER = 400, 1500  # bytes of a line before the literal: tags and time, and a progress bar
_MAX_FINISHED = 400  # bytes of a line before words of finishing: a tag, a time, a bar
_MAX_TRACE_BYTES = 256 * 1024
_MAX_TEXT = 240

# could not save     [Errno 5] …     after the level a sentence, no figure and no table's head
_SENTENCE = re.compile(r"(?!(?i:rate|ratio|count|code)s?\b)(?:[^\W\d_].{5,}|\[)")

# What lines without a traceback say, and whether that is a consequence. None for the kind: by the words, as an exception.
_Told = Tuple[Pattern[str], Optional[str], bool]
_LINES: Tuple[_Told, ...] = tuple((re.compile(pattern), kind, flag) for pattern, kind, flag in (
    # [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, …) ran for 600013 milliseconds
    (r"\[[^\]]*Rank \d+\] .*Watchdog caught ", "nccl", False),
    # slurmstepd: error: *** JOB 494583 ON n1 CANCELLED AT 2026-04-20T09:09:37 DUE TO TIME LIMIT ***
    (r".{0,80}CANCELLED AT \S+ DUE TO TIME LIMIT", "time-limit", False),
    (r".{0,80}CANCELLED AT \S+ DUE TO NODE FAILURE|.{0,40}srun: error: Node failure", "node", False),
    (r".{0,80}CANCELLED AT \S+ DUE TO PREEMPTION", "preempted", False),
    (r".{0,40}\*\*\* JOB .*CANCELLED", "cancelled", False),
    # slurmstepd: error: *** STEP 5.1 ON n1 CANCELLED AT 2026-04-20T09:09:37 ***: by scancel, or by srun after a task has failed
    (r".{0,40}\*\*\* STEP .*CANCELLED", "cancelled", True),
    # slurmstepd: error: Detected 1 oom_kill event in StepId=1.0.    srun: error: n1: task 0: Out Of Memory
    (r"slurmstepd.*oom[-_]kill event|srun: error: .*Out Of Memory$|.{0,40}Out of memory: Killed process", "oom-host", False),
    # srun: error: Unable to create step for job 5: Invalid generic resource (gres) specification
    (r".{0,40}srun: (?:error|fatal): (?:Unable to (?:create step|confirm|allocate|launch)|Invalid |Task launch .* failed)",
     "error", False),
    # srun: error: n1: task 0: Exited with exit code 1
    (r".{0,40}srun: error: \S+: tasks? \S+: Exited with ", "error", True),
    # 2 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed …
    (r"[1-9]\d* Workers? .{0,30}killed due to memory pressure", "oom-host", False),
    # A worker died or was killed while executing a task by an unexpected system error. … Worker exit type: SYSTEM_ERROR …
    (r"(?:A worker died or was killed|The actor is dead).*Worker exit type: SYSTEM_ERROR", "killed", False),
    # Killed     scripts/x.sh: line 12: 12345 Killed      python …     x.sh: line 12: 12345 Segmentation fault (core dumped) …
    (r"Killed\s*$|\S+: line \d+: +\d+ Killed\b", "killed", False),
    (r"\S+: line \d+: +\d+ (?:Segmentation fault|Aborted|Bus error|Illegal instruction)\b", "crash", False),
    (r"\S+: line \d+: .*: (?:command not found|unbound variable|No such file or directory|Permission denied)$", "error", False),
    # Error: Trainer failed with exit code -9
    (r"(?:Error: )?[A-Z][\w .-]{0,80} failed with exit code -9\b", "killed", False),
    # failed (exitcode: -9) local_rank: 3 (pid: 123) of binary: /usr/bin/python
    (r"failed \(exitcode: -9\)", "killed", False),
    (r"failed \(exitcode: -?\d+\)", "error", True),
    (r"Received \d+ death signal", "killed", True),
    # Fatal Python error: Segmentation fault     *** SIGSEGV received at time=1764810 on cpu 3 ***     terminate called after …
    (r"\*\*\* SIGTERM received at time", "killed", True),
    (r"Fatal Python error: |\*\*\* SIG[A-Z]+ received at time", "crash", False),
    (r"terminate called (?:after throwing|without an active)", "crash", True),
    # torch.OutOfMemoryError: CUDA out of memory. …   its traceback's beginning cut off     tee: /x: No space left on device
    (r"[\w.]+(?:Error|Exception): .*[Oo]ut of memory|(?:CUDA|HIP) (?:error: )?out of memory", None, False),
    (r"(?:[\w.]+Error|[\w./-]+): .*(?:No space left on device|Disk quota exceeded)$", "disk", False)))

# By its words: the kind of an exception, or of a line of level ERROR.
_KINDS = tuple((re.compile(pattern), kind) for pattern, kind in (
    # torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.    RuntimeError: CUDA error: out of memory
    (r"\b(?:CUDA|HIP|XPU|NPU)\b.{0,40}out of memory|CUBLAS_STATUS_ALLOC_FAILED|Free memory on device|for the cache blocks",
     "oom-gpu"),
    # ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.
    (r"running low on memory|Cannot allocate memory|killed by signal: Killed", "oom-host"),
    (r"No space left on device|Disk quota exceeded", "disk"),
    # torch.distributed.DistBackendError: NCCL error in: …
    (r"\bNCCL\b|DistBackendError|\bnccl[A-Z]\w*Error", "nccl"),
    # RuntimeError: loss is nan at step 12
    (r"(?i)(?<![a-z])nan(?![a-z])|(?:not|non)[- ]finite", "nan")))

_CONSEQUENCE = re.compile(
    # KeyboardInterrupt    ray.exceptions.ActorDiedError: The actor died …    ray.exceptions.RayTaskError(ActorDiedError): …
    r"(?:[\w.]+\(|[\w.]*\.)?(?:KeyboardInterrupt|SystemExit|CancelledError|TaskCancelledError|BrokenPipeError|Connection(?:Reset"
    r"|Aborted)Error|ChildFailedError|SignalException|CalledProcessError|ActorDiedError|ActorUnavailableError|RayActorError"
    r"|WorkerCrashedError|OwnerDiedError|NodeDiedError|Local\w+DiedError|ObjectLostError|EngineDeadError)\b"
    # … Connection closed by peer [10.0.0.2]:1234    Process 'trainer' failed with exit code 1    Terminating all processes...
    r"|.*(?i:connection (?:closed|reset) by (?:remote )?peer|peer closed connection|broken pipe|server disconnected"
    r"|remote process exited|ncclRemoteError|engine core initialization failed|got signal: (?:2|15)\b|death signal"
    r"|the actor (?:is dead|died)|terminating all processes|(?:failed|exited) with (?:exit )?(?:code|status) )")
# Lines right before a traceback that is never a reason to end.
_NOISE_BEFORE = re.compile(r"Exception ignored in|--- Logging error ---|Error in atexit|Error in sys\.excepthook")
_NOISE = re.compile(r"(?:[\w.]*\.)?(?:SystemExit: 0\s*$|GeneratorExit)")

# KeyError: 'x'    ray.exceptions.RayTaskError(ValueError): ray::f() (pid=1)     httpx.ReadTimeout     AssertionError
_EXCEPTION = re.compile(
    r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Warning|Timeout|Died|Iteration|Failed|Group)"
    r"(?:\(\w+\))?(?::|\s*$)|(?:[a-z_]\w*\.)+[A-Z]\w*(?:\(\w+\))?(?::|\s*$)")
_LIKE_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?::|\s*$)")
# KeyError: 1 [repeated 7x across cluster]
_REPEATED = re.compile(r"\[repeated \d+x across cluster\]")
_FRAME = tuple(" \t>│╭╰└┃┏┗+")  # of a traceback, plain or decorated


def find_finished(text: LogText, more: Optional[Sequence[Pattern[bytes]]] = (),
                  progress: Sequence[Pattern[bytes]] = ()) -> Optional[vitals.Quote]:
    """The last line that says that the run finished, by FINISHED and a stack's own patterns (bytes, MULTILINE); None for none.

    Only the last 256 KiB are looked at: what an earlier attempt said before this one's steps is not this one's end. FINISHED
    is what many a program prints: it is not believed where a worker, an agent or a grader said it, nor far into a line.
    A later line of a step (`progress`: bytes, MULTILINE) gives all of them the lie; with None for `more` none are believed.
    """
    if more is None:
        return None
    data, since = text.data, max(0, len(text.data) - _SHUTDOWN_BYTES)
    ends = [found.start() for pattern in more for found in pattern.finditer(data, since)]
    ends += [found.start() for pattern in FINISHED for found in pattern.finditer(data, since)
             if find_begin(data, found.start(), _MAX_FINISHED) >= 0 and not is_talk(data, found.start())]
    if not ends:
        return None
    place = max(ends)
    after = data.find(b"\n", place)
    # A step on the same line, behind a bar that shows the last step already, is that step.
    if after >= 0 and any(pattern.search(data, after) for pattern in progress):
        return None
    start = max(data.rfind(b"\n", 0, place), data.rfind(b"\r", 0, place)) + 1
    return _quote(text, start, read_line(data, start).message)


def find_errors(text: LogText, limit: int = 20, more: Optional[Sequence[Pattern[bytes]]] = (), is_cut: Optional[bool] = None,
                progress: Sequence[Pattern[bytes]] = ()) -> Tuple[Found, ...]:
    """What went wrong by this log, in order of appearance; what many ranks say, or what is said again, counts once, the first.

    Beyond `limit` lines of level ERROR give way to the rest, then later ones to earlier ones. `more`, `progress`: as in
    find_finished; what follows the words of finishing is noise. None for `more` where they are not to be believed, because the
    exit gives them the lie: then nothing is noise for where it stands. The first line is left out where it may be cut
    (`is_cut`, by default: where the text does not begin with the log). Of a chain of exceptions the first counts, of an
    exception that was carried over from another process that one.
    """
    data = text.data
    finished = find_finished(text, more, progress)
    noise_from = len(data) if finished is None else finished.offset - text.offset
    taken: Set[int] = {0} if (text.offset > 0 if is_cut is None else is_cut) else set()
    found: Dict[Tuple[str, ...], Tuple[int, Found]] = {}

    def add(start: int, line: Line, kind: str, is_consequence: bool, is_noise: bool) -> None:
        key = _name_sameness(kind, line.message, is_consequence)
        one = Found(vitals.Quote(text.path, text.offset + start, None, _cut(line.message)), kind, line.clock, is_consequence,
                    is_noise or start > noise_from)
        # Of the same the first, but for noise: what comes at the end too may have mattered before.
        if key not in echoes and (key not in found or (one.is_noise, start) < (found[key][1].is_noise, found[key][0])):
            found[key] = start, one

    ends: Dict[str, int] = {}  # by who printed it: where the last traceback ended
    echoes: Set[Tuple[str, ...]] = set()  # later links of chains, which come again where another process tells them on
    for start in _list_starts(data, _HEADER, _MAX_BEFORE_HEADER):
        header = _read_header(data, start)
        if header is None:
            continue
        taken.add(start)
        before = _read_lines_before(data, start, header.key)
        since = ends.get(header.key)
        if before and before[0][1].level in BAD_LEVELS:
            taken.add(before[0][0])  # the log line that the traceback belongs to
        read = _read_exception(data, start, header)
        if read is None:
            continue
        at, line = read
        is_repeated, ends[header.key] = at in taken, at
        # During handling of the above exception, another exception occurred:
        is_chained = since is not None and b"above exception" in data[max(since, start - 600):start]
        taken.add(at)
        kind, is_consequence = _name_kind(line.message, "traceback"), bool(_CONSEQUENCE.match(line.message))
        if is_chained:
            echoes.add(_name_sameness(kind, line.message, is_consequence))
        if is_chained or is_repeated:
            continue
        # A time some lines further up may be long ago: step lines bear none.
        clock = header.clock or line.clock or next((one.clock for _, one in before[:3] if one.clock), "")
        is_noise = bool(_NOISE.match(line.message)) or any(_NOISE_BEFORE.match(one.message) for _, one in before[:2])
        add(at, line._replace(clock=clock), kind, is_consequence, is_noise)
    starts = {one for needle in _NEEDLES for one in _list_starts(data, needle, _MAX_BEFORE)}
    starts.update(_list_glued(data))
    for start in sorted(starts - taken):
        told = _judge_line(read_line(data, start))
        if told is not None:
            add(start, told[0], told[1], told[2], False)
    kept = sorted(found.values(), key=lambda pair: (pair[1].kind == "error", pair[0]))[:limit]
    return _number_lines(text, sorted(kept, key=lambda pair: pair[0]))


# … - trainingscripts/train/train.sh: line 218:   193 Killed   : bash's word, glued to what its child had half written (L11)
_GLUED = re.compile(
    rb"[^\s:]{1,200}\.sh: line \d{1,6}: +\d{1,9} (?:Killed|Aborted|Segmentation fault|Bus error|Illegal instruction)\b")


def _list_glued(data: bytes) -> Iterator[int]:
    hit = data.find(b".sh: line ")
    count = 0
    while hit >= 0 and count < _MAX_STARTS:
        count += 1
        begin = max(data.rfind(mark, max(0, hit - 200), hit) for mark in (b" ", b"\t", b"\n", b"\r", b"\0")) + 1
        if _GLUED.match(data, begin or max(0, hit - 200)):
            yield begin or max(0, hit - 200)
        hit = data.find(b".sh: line ", hit + 1)


def _list_starts(data: bytes, needle: bytes, most_before: int) -> Iterator[int]:
    # Where the lines begin that hold a literal early. \r and NUL begin one too: a bar, the hole that a truncation left (L5, L7).
    begin, count, end, hit = 0, 0, -1, data.find(needle)
    while hit >= 0 and count < _MAX_STARTS:
        start = max(data.rfind(mark, begin, hit) for mark in (b"\n", b"\r", b"\0")) + 1 or begin
        if hit - start <= most_before:
            count += 1
            yield start
        if end < hit:  # a log of bars alone may hold megabytes without one
            end = data.find(b"\n", hit)
            end = len(data) if end < 0 else end
        bar = data.find(b"\r", hit, end)
        begin = (end if bar < 0 else bar) + 1
        hit = data.find(needle, begin)


def _read_header(data: bytes, start: int) -> Optional[Line]:
    # Nothing may follow on its line, and before it only tags, a level, or a progress bar: the words inside a sample of the
    # data, a JSON string or a source line in another traceback are no header.
    line = split_line(read_text(data, start))
    before, _, after = line.message.partition(_HEADER.decode("ascii"))
    after = _REPEATED.sub("", after)
    if after.strip(" :─╮━┓\t") or before.strip(" ╭─┏━+") not in ("", "Exception Group") and not _is_bar(before) and not (
            line.level in BAD_LEVELS and before.endswith(": ")):
        return None
    return None if "Exception Group" in before else line


def _is_bar(text: str) -> bool:
    # Training:  45%|███ | 54/120 [1:02:03<1:02:59, 275.09s/it, loss=0.3]
    body, bracket, after = text.rpartition("]")
    rate = body.rpartition("]")[2]
    return bool(bracket) and not after.strip() and any(unit in rate for unit in ("it/s", "s/it", "?it"))


def _end_line(data: bytes, start: int) -> int:
    end = data.find(b"\n", start, start + _MAX_TRACE_BYTES)
    return min(len(data), start + _MAX_TRACE_BYTES) if end < 0 else end


def _read_lines_before(data: bytes, start: int, key: str) -> List[Tuple[int, Line]]:
    # The nearest first; of the same printer alone, else another rank's words would be taken for its own. Lines without a
    # tag may be anybody's: only the nearest count.
    found: List[Tuple[int, Line]] = []
    end = start - 1
    for _ in range(12 if key else 2):
        if end <= 0 or start - end > 4096:
            break
        begin = max(data.rfind(b"\n", max(0, end - 4096), end), data.rfind(b"\r", max(0, end - 4096), end)) + 1
        line = read_line(data, begin)
        if line.key == key and line.message.strip():
            found.append((begin, line))
        end = begin - 1
    return found


def _read_exception(data: bytes, start: int, header: Line) -> Optional[Tuple[int, Line]]:
    # The line after the frames; lines of other printers between them are stepped over.
    carried: Optional[Tuple[int, Line]] = None
    likely: Optional[Tuple[int, Line]] = None
    begin, others, tags = _end_line(data, start) + 1, 0, split_key(header.key)
    for _ in range(600):
        if begin >= len(data) or begin - start > _MAX_TRACE_BYTES or others > 15:
            break
        at = begin
        if tags:  # hundreds of ranks may print theirs at once
            hit = data.find(tags[-1], at, start + _MAX_TRACE_BYTES)
            if hit < 0:
                break
            at = max(at, data.rfind(b"\n", at, hit) + 1)
        begin = _end_line(data, at) + 1
        if not header.key and data[at:at + 2] == b"  " and data[at:at + 4].strip() != b"|":
            continue  # most lines of a traceback are frames
        if any(data.find(tag, at, begin) < 0 for tag in tags[:-1]):
            continue
        line = read_line(data, at)
        message = line.message
        if line.key == header.key and message[:1] in ("╭", "┏") and _HEADER.decode("ascii") in message:
            break
        if line.key != header.key or message.startswith(_FRAME):
            continue
        if not message:
            if carried is not None:
                break
            continue
        if message.startswith(_HEADER.decode("ascii")):
            break
        if _EXCEPTION.match(message) and line.level not in ("INFO", "WARNING", "DEBUG", "SUCCESS"):
            # ray.exceptions.RayTaskError(ValueError): ray::f() (pid=1, ip=…)   goes on with the other process's frames
            if "TaskError(" in message[:80]:
                carried = at, line
                continue
            after = read_line(data, begin).message.strip() if message.endswith(":") else ""
            return at, line._replace(message=("%s %s" % (message, after)).strip())
        if likely is None and _LIKE_EXCEPTION.match(message) and not line.level:
            likely = at, line
        others += 1
    return carried or likely


def _judge_line(line: Line) -> Optional[Tuple[Line, str, bool]]:
    message = line.message
    if not message or message[0] in _FRAME or message.startswith(_HEADER.decode("ascii")):  # of a traceback, or continued
        return None
    told = parse_json_line(message)
    if told is not None:
        line = line._replace(clock=told[0], message=told[1])
        return line, _name_kind(line.message, "error"), bool(_CONSEQUENCE.match(line.message))
    if line.level and line.level not in BAD_LEVELS and not message.startswith("Received "):  # a death signal is told as a warning
        return None
    for pattern, kind, is_consequence in _LINES:
        if pattern.match(message):
            # CANCELLED AT 2026-04-20T09:09:37 DUE TO TIME LIMIT
            at = None if line.clock else re.search(r"CANCELLED AT \S*T(\d\d:\d\d:\d\d)", message)
            line = line if at is None else line._replace(clock=at.group(1))
            return line, kind or _name_kind(message, "error"), is_consequence
    # After the level a sentence: not "ERROR 0.0%", "ERRORS: 0", "ERROR rate", a table's head.
    if line.level in BAD_LEVELS and _SENTENCE.match(message):
        return line, _name_kind(message, "error"), bool(_CONSEQUENCE.match(message))
    return None


def _name_kind(message: str, otherwise: str) -> str:
    return next((kind for pattern, kind in _KINDS if pattern.search(message[:600])), otherwise)


def _name_sameness(kind: str, message: str, is_consequence: bool) -> Tuple[str, ...]:
    # NCCL's watchdogs, the killer and Slurm speak for every rank, process and step: named once.
    if kind in ("nccl", "oom-gpu", "oom-host", "killed", "time-limit", "cancelled", "preempted", "node", "disk"):
        return kind, str(is_consequence)
    # Ranks differ in numbers and addresses.
    return kind, re.sub(r"0x[0-9a-f]+|\d+", "#", message[:160])


def _cut(message: str) -> str:
    from ..text.redact import redact
    repeated = _REPEATED.search(message)
    message = message if repeated is None else message[:repeated.start()]
    exit_type = message.find("Worker exit type:")
    if exit_type > 120:  # the decisive part of a line of a thousand characters stands behind ids
        message = "%s … %s" % (message[:message.find(". ") + 1 or 100], message[exit_type:])
    message = shell.escape_controls(redact(message.strip()))  # whole, for half of a secret is one too
    return message if len(message) <= _MAX_TEXT else message[:_MAX_TEXT - 1] + "…"


def _quote(text: LogText, start: int, message: str) -> vitals.Quote:
    line = None if text.first_line is None else text.first_line + text.data.count(b"\n", 0, start)
    return vitals.Quote(text.path, text.offset + start, line, _cut(message))


def _number_lines(text: LogText, found: Sequence[Tuple[int, Found]]) -> Tuple[Found, ...]:
    if text.first_line is None:
        return tuple(one for _, one in found)
    numbered: List[Found] = []
    line, counted = text.first_line, 0
    for start, one in found:
        line, counted = line + text.data.count(b"\n", counted, start), start
        numbered.append(one._replace(quote=one.quote._replace(line=line)))
    return tuple(numbered)
