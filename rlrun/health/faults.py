"""What went wrong, by the words of a log: tracebacks, killers, time limits, lines of level ERROR. Pure functions on bytes.

The bytes may be the end of a huge log: cut in a line, with lines of megabytes, NULs, progress bars, colours, bytes that are
no UTF-8, several processes' lines mixed. Literals are searched for first; only lines that hold one are looked at closer, and
of those only the beginning, because a message says what it is at its beginning: metric names (`has_error`), a sample of
the data or a model's answer further on in a line are none. A text that an agent printed with real line ends can't be told
from a log's own; pick_first_error (endings.py) lets what was followed by further steps count less.
"""
import json
import re
from typing import Dict, Iterator, List, NamedTuple, Optional, Pattern, Sequence, Set, Tuple

from .. import vitals
from ..text import shell


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


class _Line(NamedTuple):
    key: str  # who printed it: "(Runner pid=7, ip=10.0.0.1) [rank3]:"
    clock: str
    level: str  # "" where it bears none
    message: str


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
    b"left on device", b"quota exceeded", b"terminate called")
_HEADER = b"Traceback (most recent call last)"
_MAX_STARTS = 2000  # lines looked at for one literal; a flood repeats itself
_MAX_BEFORE, _MAX_BEFORE_HEADER = 400, 1500  # bytes of a line before the literal: tags and time, and a progress bar
_MAX_LINE = 2000
_MAX_TEXT = 240

# (Runner pid=123, ip=10.0.0.1)    (EngineCore_DP0 pid=80)    (pid=7)    [rank3]:    [trainer0]:      |   (exception group)
_TAG = re.compile(r"\((?:[\w.<>:-]{1,80} )?pid=\d+(?:, ip=[^()\s]{1,45})?\) ?|\([a-z_]{3,20}(?:, ip=[^()\s]{1,45})?\) ?"
                  r"|\[[A-Za-z]{3,12}\d{1,5}\]: ?| {2,8}\| ?")
_LEVELS = "TRACE|DEBUG|INFO|SUCCESS|NOTICE|WARNING|WARN|ERROR|CRITICAL|FATAL"
_STAMPS = tuple(re.compile(pattern) for pattern in (
    # ERROR 08-01 12:00:01 [core.py:390]
    r"(?P<level>%s) \d\d-\d\d (?P<clock>\d\d:\d\d:\d\d)(?:\.\d+)? (?:\[[^\]]{1,60}\] ?)?" % _LEVELS,
    # 12:13:46   ERROR
    r"(?P<clock>\d\d:\d\d:\d\d)(?:\.\d+)?\s+(?P<level>%s)\s" % _LEVELS,
    # [2026-08-01 12:00:01,123 E 1 1] (server) node.cc:30:
    r"\[\d{4}-\d\d-\d\d (?P<clock>\d\d:\d\d:\d\d),\d+ (?P<letter>[IWEFC]) \d+ \d+\] (?:\([a-z_]+\) )?(?:[\w.]+:\d+: )?",
    # 2026-08-01 12:00:01,123 - name - ERROR - …    [2026-08-01 12:00:01,123][ray][ERROR] - …    2026-… ERROR worker.py:1 -- …
    r"\[?\d{4}-\d\d-\d\d[ T](?P<clock>\d\d:\d\d:\d\d)[.,\dZ+:]*\]?(?:[\s|\-\[(]{1,4}[\w./:]{0,40}[\])]?){0,4}?"
    r"[\s|\-\[]{1,4}(?P<level>%s)\b[\])]?[\s:|\-]*" % _LEVELS,
    # 2026-08-01 12:00:01,123      [2026-08-01T12:00:01]
    r"\[?\d{4}-\d\d-\d\d[ T](?P<clock>\d\d:\d\d:\d\d)[.,\dZ+]*\]?[\s:|\-]*",
    # [E321 02:07:08.408271257 ProcessGroupNCCL.cpp:607]    E1130 12:13:49.388000 124326 file.py:723]
    r"\[?(?P<letter>[IWEFC])\d{3,4} (?P<clock>\d\d:\d\d:\d\d)\.\d+ (?:\d+ )?[\w./-]+:\d+\] ?",
    # [E ProcessGroupNCCL.cpp:821]
    r"\[(?P<letter>[IWEFC]) [\w./-]+:\d+\] ?",
    # ERROR: …    [FATAL] …    ERROR:root:…
    r"\[?(?P<level>%s)(?:\]:?|:(?:[\w.]+:)?)\s?" % _LEVELS))
_OF_LETTER = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "FATAL", "C": "CRITICAL"}
_BAD = ("ERROR", "CRITICAL", "FATAL")
_SENTENCE = re.compile(r"(?!(?i:rate|ratio|count|code)s?\b)(?:[^\W\d_].{5,}|\[)")
# {"timestamp": "2026-08-01T12:00:01.123+00:00", "level": "ERROR", "message": …: a log in JSON, not a sample of the data
_JSON = re.compile(r'\{"timestamp": "[^"]*T(\d\d:\d\d:\d\d)[^"]*", "level": "(ERROR|CRITICAL)", ')

# What lines without a traceback say, and whether that is a consequence. None for the kind: by the words, as an exception.
_Told = Tuple[Pattern[str], Optional[str], bool]
_LINES: Tuple[_Told, ...] = tuple((re.compile(pattern), kind, flag) for pattern, kind, flag in (
    # [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, …) ran for 600013 milliseconds
    (r"\[[^\]]*Rank \d+\] .*Watchdog caught ", "nccl", False),
    # slurmstepd: error: *** JOB 494583 ON n1 CANCELLED AT 2026-04-20T09:09:37 DUE TO TIME LIMIT ***
    (r".{0,80}CANCELLED AT \S+ DUE TO TIME LIMIT", "time-limit", False),
    (r".{0,80}CANCELLED AT \S+ DUE TO NODE FAILURE|.{0,40}srun: error: Node failure", "node", False),
    (r".{0,80}CANCELLED AT \S+ DUE TO PREEMPTION", "preempted", False),
    (r".{0,40}\*\*\* (?:JOB|STEP) .*CANCELLED", "cancelled", False),
    # slurmstepd: error: Detected 1 oom_kill event in StepId=1.0.    srun: error: n1: task 0: Out Of Memory
    (r"slurmstepd.*oom[-_]kill event|srun: error: .*Out Of Memory$|.{0,40}Out of memory: Killed process", "oom-host", False),
    # 2 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed …
    (r"[1-9]\d* Workers? .{0,30}killed due to memory pressure", "oom-host", False),
    # A worker died or was killed while executing a task by an unexpected system error. … Worker exit type: SYSTEM_ERROR …
    (r"(?:A worker died or was killed|The actor is dead).*Worker exit type: SYSTEM_ERROR", "killed", False),
    # Killed     scripts/x.sh: line 12: 12345 Killed      python …     x.sh: line 12: 12345 Segmentation fault (core dumped) …
    (r"Killed\s*$|\S+: line \d+: +\d+ Killed\b", "killed", False),
    (r"\S+: line \d+: +\d+ (?:Segmentation fault|Aborted|Bus error|Illegal instruction)\b", "crash", False),
    (r"\S+: line \d+: .*: (?:command not found|unbound variable|No such file or directory|Permission denied)$", "error", False),
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
    # ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.    MemoryError
    (r"running low on memory|(?<![A-Za-z])MemoryError|Cannot allocate memory|killed by signal: Killed", "oom-host"),
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
_FRAME = tuple(" \t>│╭╰└┃┏┗+")  # of a traceback, plain or decorated


def find_finished(text: LogText, more: Sequence[Pattern[bytes]] = ()) -> Optional[vitals.Quote]:
    """The last line that says that the run finished, by FINISHED and a stack's own patterns (bytes, MULTILINE); None for none.

    Only the last 256 KiB are looked at: what an earlier attempt said before this one's steps is not this one's end.
    """
    begin = max(0, len(text.data) - _SHUTDOWN_BYTES)
    ends = [found.start() for pattern in more for found in pattern.finditer(text.data, begin)]
    ends += [found.start() for pattern in FINISHED for found in pattern.finditer(text.data, begin)
             if not _is_talk(text.data, found.start())]
    if not ends:
        return None
    start = max(text.data.rfind(b"\n", 0, max(ends)), text.data.rfind(b"\r", 0, max(ends))) + 1
    return _quote(text, start, _read_line(text.data, start).message)


# (AgentLoopWorker pid=7)   (RewardLoopWorker pid=7, ip=…)   (FullyAsyncRollouter pid=7): what a task or its grader prints is no end
_TALK = re.compile(rb"\(\w*(?:Worker|Loop|Agent|Rollout|Server|Env|Tracker)\w*[. ][^()\n]{0,80}pid=\d+")


def _is_talk(data: bytes, place: int) -> bool:
    start = max(data.rfind(b"\n", 0, place), data.rfind(b"\r", 0, place)) + 1
    return _TALK.search(data, start, min(place, start + 200)) is not None


def find_errors(text: LogText, limit: int = 20, more: Sequence[Pattern[bytes]] = (),
                is_cut: Optional[bool] = None, is_trusting: bool = True) -> Tuple[Found, ...]:
    """What went wrong by this log, in order of appearance; what many ranks say, or what is said again, counts once, the first.

    Beyond `limit` lines of level ERROR give way to the rest, then later ones to earlier ones. `more`: as in find_finished;
    what follows the words of finishing is noise. The first line is left out where it may be cut (`is_cut`, by default: where
    the text does not begin with the log). `is_trusting`: False where
    the exit status gives the words of finishing the lie. Of a chain of exceptions the first counts, of an exception that was carried over
    from another process that one.
    """
    data = text.data
    finished = find_finished(text, more) if is_trusting else None
    noise_from = len(data) if finished is None else finished.offset - text.offset
    taken: Set[int] = {0} if (text.offset > 0 if is_cut is None else is_cut) else set()
    found: Dict[Tuple[str, ...], Tuple[int, Found]] = {}

    def add(start: int, line: _Line, kind: str, is_consequence: bool, is_noise: bool) -> None:
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
        if before and before[0][1].level in _BAD:
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
    for start in sorted({one for needle in _NEEDLES for one in _list_starts(data, needle, _MAX_BEFORE)} - taken):
        told = _judge_line(_read_line(data, start))
        if told is not None:
            add(start, told[0], told[1], told[2], False)
    kept = sorted(found.values(), key=lambda pair: (pair[1].kind == "error", pair[0]))[:limit]
    return _number_lines(text, sorted(kept, key=lambda pair: pair[0]))


def _list_starts(data: bytes, needle: bytes, most_before: int) -> Iterator[int]:
    # Where the lines begin that hold a literal early. \r and NUL begin one too: a bar, the hole that a truncation left (L5, L7).
    begin, count, hit = 0, 0, data.find(needle)
    while hit >= 0 and count < _MAX_STARTS:
        start = max(data.rfind(mark, begin, hit) for mark in (b"\n", b"\r", b"\0")) + 1 or begin
        if hit - start <= most_before:
            count += 1
            yield start
        end = data.find(b"\n", hit)
        end = len(data) if end < 0 else end
        bar = data.find(b"\r", hit, end)
        begin = (end if bar < 0 else bar) + 1
        hit = data.find(needle, begin)


def _end_line(data: bytes, start: int) -> int:
    end = data.find(b"\n", start)
    return len(data) if end < 0 else end


def _read_line(data: bytes, start: int) -> _Line:
    raw = data[start:min(start + _MAX_LINE, _end_line(data, start))].lstrip(b"\0")
    raw = raw.split(b"\r", 1)[0] if b"\r" in raw else raw
    return _split_line(shell.strip_colour(raw.decode("utf-8", "replace").replace("\0", "")))


def _split_line(text: str) -> _Line:
    key, clock, level = "", "", ""
    for _ in range(4):
        tag = _TAG.match(text)
        if tag is not None and tag.end():
            key, text = key + tag.group().strip(), text[tag.end():]
            continue
        stamp = next((one for one in (pattern.match(text) for pattern in _STAMPS) if one is not None), None)
        if stamp is None or level:
            break
        groups = stamp.groupdict()
        clock = clock or groups.get("clock") or ""
        level = groups.get("level") or _OF_LETTER.get(groups.get("letter") or "", "")
        text = text[stamp.end():]
    return _Line(key, clock, level, text.rstrip())


def _read_header(data: bytes, start: int) -> Optional[_Line]:
    # Nothing may follow on its line, and before it only tags, a level, or a progress bar: the words inside a sample of the
    # data, a JSON string or a source line in another traceback are no header.
    raw = data[start:min(start + _MAX_LINE, _end_line(data, start))]
    line = _split_line(shell.strip_colour(raw.split(b"\r", 1)[0].decode("utf-8", "replace")))
    before, _, after = line.message.partition(_HEADER.decode("ascii"))
    after = re.sub(r"\[repeated \d+x across cluster\]", "", after)
    if after.strip(" :─╮━┓\t") or before.strip(" ╭─┏━+") not in ("", "Exception Group") and not re.search(
            r"(?:it/s|s/it|\?it)[^\]]*\]\s*$", before) and not (line.level in _BAD and before.endswith(": ")):
        return None
    return None if "Exception Group" in before else line


def _read_lines_before(data: bytes, start: int, key: str) -> List[Tuple[int, _Line]]:
    # The nearest first; of the same printer alone, else another rank's words would be taken for its own. Lines without a
    # tag may be anybody's: only the nearest count.
    found: List[Tuple[int, _Line]] = []
    end = start - 1
    for _ in range(12 if key else 2):
        if end <= 0 or start - end > 4096:
            break
        begin = max(data.rfind(b"\n", max(0, end - 4096), end), data.rfind(b"\r", max(0, end - 4096), end)) + 1
        line = _read_line(data, begin)
        if line.key == key and line.message.strip():
            found.append((begin, line))
        end = begin - 1
    return found


def _read_exception(data: bytes, start: int, header: _Line) -> Optional[Tuple[int, _Line]]:
    # The line after the frames; lines of other printers between them are stepped over.
    carried: Optional[Tuple[int, _Line]] = None
    likely: Optional[Tuple[int, _Line]] = None
    begin, others = _end_line(data, start) + 1, 0
    for _ in range(600):
        if begin >= len(data) or begin - start > 256 * 1024 or others > 15:
            break
        at = begin
        begin = _end_line(data, begin) + 1
        if not header.key and data[at:at + 2] == b"  " and data[at:at + 4].strip() != b"|":
            continue  # most lines of a traceback are frames
        line = _read_line(data, at)
        message = line.message
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
            after = _read_line(data, begin).message.strip() if message.endswith(":") else ""
            return at, line._replace(message=("%s %s" % (message, after)).strip())
        if likely is None and _LIKE_EXCEPTION.match(message) and not line.level:
            likely = at, line
        others += 1
    return carried or likely


def _judge_line(line: _Line) -> Optional[Tuple[_Line, str, bool]]:
    message = line.message
    if not message or message[0] in _FRAME or message.startswith(_HEADER.decode("ascii")):  # of a traceback, or continued
        return None
    told = _JSON.match(message)
    if told is not None:
        line = line._replace(clock=told.group(1), message=_read_json_message(message))
        return line, _name_kind(line.message, "error"), bool(_CONSEQUENCE.match(line.message))
    if line.level and line.level not in _BAD and not message.startswith("Received "):  # a death signal is told as a warning
        return None
    for pattern, kind, is_consequence in _LINES:
        if pattern.match(message):
            # CANCELLED AT 2026-04-20T09:09:37 DUE TO TIME LIMIT
            at = None if line.clock else re.search(r"CANCELLED AT \S*T(\d\d:\d\d:\d\d)", message)
            line = line if at is None else line._replace(clock=at.group(1))
            return line, kind or _name_kind(message, "error"), is_consequence
    # After the level a sentence: not "ERROR 0.0%", "ERRORS: 0", "ERROR rate", a table's head.
    if line.level in _BAD and _SENTENCE.match(message):
        return line, _name_kind(message, "error"), bool(_CONSEQUENCE.match(message))
    return None


def _read_json_message(text: str) -> str:
    # The line may be cut: what is there of its message, up to the quote that ends it.
    found = re.search(r'"message": ("(?:[^"\\]|\\.)*")', text)
    return str(json.loads(found.group(1), strict=False)) if found is not None else text


def _name_kind(message: str, otherwise: str) -> str:
    return next((kind for pattern, kind in _KINDS if pattern.search(message[:600])), otherwise)


def _name_sameness(kind: str, message: str, is_consequence: bool) -> Tuple[str, ...]:
    # NCCL's watchdogs, the killer and Slurm speak for every rank, process and step: named once.
    if kind in ("nccl", "oom-gpu", "oom-host", "killed", "time-limit", "cancelled", "preempted", "node", "disk"):
        return kind, str(is_consequence)
    # Ranks differ in numbers and addresses.
    return kind, re.sub(r"0x[0-9a-f]+|\d+", "#", message[:160])


def _cut(message: str) -> str:
    message = re.sub(r"\s*\[repeated \d+x across cluster\].*$", "", message)
    exit_type = message.find("Worker exit type:")
    if exit_type > 120:  # the decisive part of a line of a thousand characters stands behind ids
        message = "%s … %s" % (message[:message.find(". ") + 1 or 100], message[exit_type:])
    message = shell.escape_controls(message.strip())
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
