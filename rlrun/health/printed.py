"""One line as a process printed it: who printed it, when, at which level, what it says. Pure functions on bytes.

The bytes are anybody's: cut in a line, coloured, no UTF-8, megabytes without an end. No content makes these functions raise, and
none makes them slow: of a line only the beginning is read, and no pattern goes over the same bytes again and again.
"""
import json
import re
from typing import NamedTuple, Optional, Tuple

from ..text import shell


class Line(NamedTuple):
    """A line, read: without its tags, time and level, colours and NULs."""

    key: str  # who printed it: "(Runner pid=7, ip=10.0.0.1)[rank3]:"
    clock: str  # HH:MM:SS, "" where it bears none
    level: str  # "" where it bears none
    message: str


MAX_LINE_BYTES = 2000
BAD_LEVELS = ("ERROR", "CRITICAL", "FATAL")

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

# {"timestamp": "2026-08-01T12:00:01.123+00:00", "level": "ERROR", "message": …: a log in JSON, not a sample of the data
_JSON = re.compile(r'\{"timestamp": "[^"T]{0,40}T(\d\d:\d\d:\d\d)[^"]{0,40}", "level": "(ERROR|CRITICAL)", ')
# "message": "bad \"path\""
_JSON_MESSAGE = re.compile(r'"message": ("(?:[^"\\]|\\.)*")')

# (AgentLoopWorker pid=7)   (RewardLoopWorker pid=7, ip=10.0.0.1)   (FullyAsyncRollouter pid=7)
_TALKER = re.compile(rb"(?i)\(\w{0,60}?(?:Worker|Loop|Agent|Rollout|Server|Env|Tracker)[^()\n]{0,120}pid=\d")
_TALKER_BYTES = 200


def read_line(data: bytes, start: int) -> Line:
    """The line that begins at `start`, up to its end, a carriage return or MAX_LINE_BYTES."""
    return split_line(read_text(data, start))


def read_text(data: bytes, start: int) -> str:
    """As read_line, not yet taken apart: without colour and NULs."""
    end = data.find(b"\n", start, start + MAX_LINE_BYTES)
    raw = data[start:end if end >= 0 else start + MAX_LINE_BYTES].lstrip(b"\0")
    raw = raw.split(b"\r", 1)[0] if b"\r" in raw else raw
    return shell.strip_colour(raw.decode("utf-8", "replace").replace("\0", ""))


def find_begin(data: bytes, place: int, limit_bytes: int) -> int:
    """Where the line begins in which this byte lies; -1 where that is more than `limit_bytes` before it."""
    since = max(0, place - limit_bytes - 1)
    begin = max(data.rfind(b"\n", since, place), data.rfind(b"\r", since, place)) + 1
    return begin if begin or place <= limit_bytes else -1


def split_line(text: str) -> Line:
    """Takes a line apart: at most four tags, times and levels in front of what it says."""
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
    return Line(key, clock, level, text.rstrip())


def split_key(key: str) -> Tuple[bytes, ...]:
    """The tags of a Line's key as they stand in the log: a line that lacks one of them is another printer's."""
    return tuple(tag.encode("utf-8", "replace") for tag in re.findall(r"\([^()]*\)|\[[^\[\]]*\]", key))


def parse_json_line(text: str) -> Optional[Tuple[str, str]]:
    """(clock, message) of a log line in JSON of level ERROR or worse; None for any other text.

    The line may be cut, and its message may be no string or no JSON: then the message is the text as it stands there.
    """
    head = _JSON.match(text)
    if head is None:
        return None
    found = _JSON_MESSAGE.search(text, head.end())
    if found is None:
        return head.group(1), text
    try:
        message = str(json.loads(found.group(1), strict=False))
    except (ValueError, RecursionError):  # bad C:\path: a backslash that JSON does not know
        message = found.group(1)[1:-1]
    return head.group(1), message if message.strip() else text


def is_talk(data: bytes, place: int) -> bool:
    """Did a worker, an agent, a grader or a server print the line in which this byte lies? What it says may be a task's."""
    begin = find_begin(data, place, MAX_LINE_BYTES)
    return begin >= 0 and _TALKER.search(data, begin, min(place, begin + _TALKER_BYTES)) is not None
