"""The output of a launch that nobody looks at (`--quiet-unless-failed`): kept in a file, and one line when it failed.

Until `open_log` names the file, what is said is held in memory; from then on each piece is appended as it comes, by a
descriptor that is closed again: the keeper is forked out of this process. Trouble with the file is told in the one line.
"""
import json
import os
import re
import stat
import time
from typing import Dict, List, NamedTuple

from ..errors import BUG, NOT_REACHED, RUN_ENDED, OperatorError
from .shell import escape_controls, strip_colour

LINE_CHARACTERS = 300  # a mail's subject and a pager show no more
_LEAST_REASON = 80
# The row of a check that blocks, as text/report.render_checks writes it:
#   ✗ gpu         gpu:foreign  pid 41877 (alice)  VLLM::Worker_TP0  128.4 GiB on GPU 0-7, up 3d 4h
_BLOCKING = re.compile(r"^  \u2717 (?:\S+\s+)?(\S.*)$", re.M)
# …of which this one only counts what the rows below it tell:
#   ✗ preflight   9 ok · 1 warn · 1 fatal
#     ✗             tool_parser=hermes is none that this model has
_COUNTS = re.compile(r"[0-9]+ ok · [0-9]+ warn · [0-9]+ fatal(?: · [0-9]+ skipped)?\Z")
_FATAL = re.compile(r"^    \u2717 +(\S.*)$", re.M)
# The report of a launch that ended: `The run has ended: ended 1 after 3s`, `The run has said nothing for 60 s …`
_ENDED = re.compile(r"^The run has (?:ended: )?(\S.*)$", re.M)


class Kept(NamedTuple):
    """What was said so far. `pieces`: not written yet; `facts`: "head" (the log's first line of this launch), "path" and
    "trouble" of the file, "row" (the first check that blocks), "end" (of the run), "error" and "is_launched" (of an error)."""

    pieces: List[str]
    facts: Dict[str, str]


def hold() -> Kept:
    """An empty one: all that is said goes into memory."""
    return Kept([], {})


def keep(kept: Kept, text: str) -> None:
    """Takes what would have been shown, and notes what the one line will need of it."""
    text = strip_colour(text if text.endswith("\n") else text + "\n")
    for name, pattern in (("row", _BLOCKING), ("end", _ENDED)):
        found = pattern.search(text)
        if found:
            fatal = _FATAL.search(text, found.end()) if is_count(found.group(1)) else None
            kept.facts.setdefault(name, "preflight:fatal  " + fatal.group(1) if fatal else found.group(1))
    if text.startswith("{"):
        _note_object(kept, text)
    if "path" in kept.facts:
        _append(kept, text)
    else:
        kept.pieces.append(text)


def is_count(words: str) -> bool:
    """Is this the detail of the check that sums a preflight up, and not one of its lines?"""
    return bool(_COUNTS.match(words.strip()))


def _note_object(kept: Kept, text: str) -> None:
    """The same, where `--json` says it."""
    try:
        told = json.loads(text)
        rows = ["%s  %s" % (one["name"], one["detail"]) for one in told.get("checks") or () if one["status"] == "blocks"]
        rows = [row for row in rows if not is_count(row.partition("  ")[2])] or rows
        ended = told.get("ended") or {}
        how = ended.get("reason") or (ended.get("signal") and "killed by %s" % ended["signal"]) or (
            "ended %s" % ended["status"] if "status" in ended else "")
    except (ValueError, TypeError, KeyError, AttributeError):
        return
    for name, value in (("row", rows[0] if rows else ""), ("end", how)):
        if value:
            kept.facts.setdefault(name, value)


def open_log(kept: Kept, path: str) -> None:
    """From here on all goes to this file (mode 0600; made with its folder where it is missing), what was said before first.
    Where that is no file of this user alone, his own lies beside it, by his number. Raises nothing."""
    if "path" in kept.facts:
        return
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    except OSError:
        pass  # the file says it better
    base, suffix = os.path.splitext(path)
    own = "%s-%d%s" % (base, os.geteuid(), suffix)
    troubles = []
    for one in (path, own):
        try:
            os.close(_open(one))
        except OSError as error:
            troubles.append(_describe_trouble(error))
            continue
        kept.facts["path"] = one
        break
    else:
        kept.facts["path"] = path
        kept.facts["trouble"] = troubles[0] + ("" if troubles[0] == troubles[1] else "; %s: %s" % (
            os.path.basename(own), troubles[1]))
    held = "".join(kept.pieces)
    del kept.pieces[:]
    _append(kept, "%s\n%s" % (kept.facts.get("head", "--- rlrun, pid %d" % os.getpid()), held))


def describe_head(words: str, version: str, now_seconds: float) -> str:
    """The log's first line of a launch. `words`: the command line, without secrets; `now_seconds`: since 1970, UTC."""
    return "--- %s rlrun %s on %s, pid %d: %s" % (_format_time(now_seconds), version, os.uname().nodename, os.getpid(),
                                                  escape_controls(words))


def close_log(kept: Kept, code: int, now_seconds: float) -> None:
    """The log's last line of this launch."""
    if "path" in kept.facts:
        _append(kept, "--- %s pid %d: exit %d\n\n" % (_format_time(now_seconds), os.getpid(), code))


def note_error(kept: Kept, error: OperatorError) -> None:
    """What the one line will say of an error; of a bug of ours also where its report is."""
    lines = error.message.split("\n")
    words = error.brief or lines[0]
    if words.endswith(":") and len(lines) > 1 and not error.brief:  # what is announced is the news: who holds it
        rows = [line for line in lines[1:] if not is_count(line.strip().partition("  ")[2])] or lines[1:]
        words += " " + " ".join(rows[0].split())
    kept.facts["error"] = "%s (%s)" % (words, error.hint) if error.code == BUG and error.hint else words
    kept.facts["is_launched"] = "yes" if error.shape.get("launched") else ""


def describe_failure(kept: Kept, code: int) -> str:
    """The one line for a mail: what came of it, why, and where all of it is. Without an error that says otherwise, the exit
    codes of a launch that ended (4) or is not reached in time (6) are those of one that was launched."""
    facts = kept.facts
    is_launched = bool(facts["is_launched"]) if "is_launched" in facts else code in (RUN_ENDED, NOT_REACHED)
    reason = facts.get("error") or facts.get("end" if is_launched else "row") or "no reason was told"
    head = "rlrun: launched, and %s: " % ("ended" if code == RUN_ENDED else "exit %d" % code) if is_launched else \
        "rlrun: not launched (exit %d): " % code
    if "path" not in facts:
        rest = "the checkout is not known, so nothing is kept"
    elif "trouble" in facts:
        rest = "the rest is lost: %s: %s" % (facts["path"], facts["trouble"])
    else:
        rest = "all of it: %s" % facts["path"]
    rest = " \u2014 %s" % escape_controls(rest)
    return head + shorten(escape_controls(reason.strip()), LINE_CHARACTERS - len(head) - len(rest)) + rest


def shorten(text: str, length: int) -> str:
    """At most this many characters, and some in any case; what is cut off is an ellipsis."""
    length = max(length, _LEAST_REASON)
    return text if len(text) <= length else text[:length - 1] + "\u2026"


def _format_time(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _open(path: str) -> int:
    """A descriptor for appending. OSError for what is not this user's alone: a link, by which another file would be written to,
    a file of another user, who could read it, a pipe or a device that lies there."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    found = os.fstat(fd)
    words = ("not a file" if not stat.S_ISREG(found.st_mode) else
             "it is another user's (%d)" % found.st_uid if found.st_uid != os.geteuid() else
             "it has another name too, by which it may be another file" if found.st_nlink > 1 else "")
    if words:
        os.close(fd)
        raise OSError(0, words)
    return fd


def _describe_trouble(error: OSError) -> str:
    return error.strerror or "not writable"


def _append(kept: Kept, text: str) -> None:
    try:
        fd = _open(kept.facts["path"])
        try:
            data = text.encode("utf-8", "backslashreplace")
            while data:
                data = data[os.write(fd, data):]
        finally:
            os.close(fd)
    except OSError as error:
        kept.facts.setdefault("trouble", _describe_trouble(error))
