"""The line that cron runs: when, with which PATH, Python and file, and how crontab(5) and /bin/sh want it written.

Judges and composes; installs nothing. What a crontab can't hold is refused here, before anybody pastes it.
"""
import os
import pwd
import re
import shutil
import stat
import sys
import time
from typing import Dict, List, NamedTuple, Sequence, Tuple

from ..errors import MACHINE, USAGE, OperatorError
from ..host import procs
from ..text.durations import format_elapsed
from ..text.shell import escape_controls, quote_assignment, quote_words

# glibc's words for "the machine's own zone", whatever TZ says: cron does not read a user's TZ (crontab(5), LIMITATIONS).
MACHINE_ZONE = ":/etc/localtime"
# Debian's crontab refuses a longer command ("command too long"; cron.h: MAX_COMMAND 1000).
MAX_COMMAND_BYTES = 998
CRON_PATH = "/usr/bin:/bin"
# 02:00   2026-12-01 02:00   2026-12-01T02:00
_WHEN = re.compile(r"(?:(\d{4})-(\d\d)-(\d\d)[ T])?(\d{1,2}):(\d\d)\Z")
# What a launch may call by name, for a PATH that has to be short.
_PROGRAMS = ("bash", "sh", "env", "git", "python3", "python", "uv", "nvidia-smi", "sbatch", "squeue", "ray", "ip", "docker")
# PATH="/usr/local/bin:/usr/bin"   export LANG=de_DE.UTF-8
_PAM_LINE = re.compile(r"""\s*(?:export\s+)?([A-Za-z_]\w*)=(?:"([^"]*)"|'([^']*)'|([^#\s]*))""")


class When(NamedTuple):
    """The next time, by the machine's clock and zone. `zone` is its name for people, `notes` what is odd about the time."""

    year: int
    month: int
    day: int
    hour: int
    minute: int
    seconds: float  # since 1970
    is_daily: bool
    zone: str
    notes: Tuple[str, ...]


class Job(NamedTuple):
    """What cron is to start. `words`: rlrun's own, from `run` on; `assignments`: NAME=value; `path`: for PATH."""

    root: str
    path: str
    assignments: Tuple[str, ...]
    python: str
    program: str
    words: Tuple[str, ...]


def find_time(text: str, now_seconds: float, is_daily: bool, zone: str = MACHINE_ZONE) -> When:
    """What `02:00` or `2026-12-01 02:00` means on this machine; without a date the next time that it comes. OperatorError
    (exit 2) for what is no time, is past, or does not exist on that day (the clocks are put forward)."""
    found = _WHEN.match(text.strip())
    if not found:
        raise _refuse("--at takes 02:00, or '2026-12-01 02:00', not %r" % text)
    hour, minute = int(found.group(4)), int(found.group(5))
    if hour > 23 or minute > 59:
        raise _refuse("--at %s: a day has no such time" % text)
    if found.group(1) and is_daily:
        raise _refuse("--daily goes with a time alone, not with a date: --at %02d:%02d" % (hour, minute))
    before = os.environ.get("TZ")
    os.environ["TZ"] = zone
    time.tzset()
    try:
        if found.group(1):
            return _make_dated(text, tuple(int(one) for one in found.groups()[:3]), hour, minute, now_seconds)
        return _make_next(hour, minute, now_seconds, is_daily)
    finally:
        if before is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = before
        time.tzset()


def _refuse(message: str, hint: str = "rlrun schedule --help") -> OperatorError:
    return OperatorError(message, hint, USAGE, "time")


def _make_dated(text: str, day: Tuple[int, ...], hour: int, minute: int, now_seconds: float) -> When:
    moments = _list_moments(day, hour, minute)
    if not moments:
        words = _describe_gap(day, hour, minute) if _list_moments(day, 12, 0) else "--at %s: there is no such day" % text
        raise _refuse(words, "Take another time.")
    if moments[-1] <= now_seconds:
        raise _refuse("%s is past: it is %s here" % (text, time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(now_seconds))),
                      "Take a time to come; cron goes by the machine's zone, whatever TZ says.")
    return _make_when(day, hour, minute, moments, now_seconds, False)


def _make_next(hour: int, minute: int, now_seconds: float, is_daily: bool) -> When:
    """The first day on which that time is still to come; one on which it does not exist is refused, or, daily, left out."""
    noon = time.localtime(now_seconds)
    for days in range(3):
        shifted = time.localtime(time.mktime((noon[0], noon[1], noon[2] + days, 12, 0, 0, 0, 0, -1)))
        day = (shifted[0], shifted[1], shifted[2])
        moments = _list_moments(day, hour, minute)
        if not moments and not is_daily and time.mktime((day[0], day[1], day[2], hour, minute, 0, 0, 0, -1)) > now_seconds:
            raise _refuse(_describe_gap(day, hour, minute),
                          "Take another time, or name another day: --at 'YYYY-MM-DD %02d:%02d'" % (hour, minute))
        if moments and moments[0] > now_seconds:
            return _make_when(day, hour, minute, moments, now_seconds, is_daily)
    raise _refuse("no %02d:%02d within three days" % (hour, minute), "Take another time.")


def _describe_gap(day: Tuple[int, ...], hour: int, minute: int) -> str:
    return "%04d-%02d-%02d has no %02d:%02d here: the clocks are put forward then" % (day + (hour, minute))


def _list_moments(day: Tuple[int, ...], hour: int, minute: int) -> List[float]:
    """When the clocks show that: never on a day that has no such time, twice where they are put back."""
    found = set()
    for is_summer in (0, 1, -1):
        try:
            seconds = time.mktime((day[0], day[1], day[2], hour, minute, 0, 0, 0, is_summer))
        except (OverflowError, ValueError):
            continue
        if tuple(time.localtime(seconds)[:5]) == tuple(day) + (hour, minute):
            found.add(seconds)
    return sorted(found)


def _make_when(day: Tuple[int, ...], hour: int, minute: int, moments: List[float], now_seconds: float, is_daily: bool) -> When:
    coming = [one for one in moments if one > now_seconds]
    notes = ["%02d:%02d comes twice on %04d-%02d-%02d: the clocks are put back; most crons take the first"
             % ((hour, minute) + tuple(day))] if len(moments) > 1 else []
    return When(day[0], day[1], day[2], hour, minute, coming[0], is_daily, _name_zone(coming[0]), tuple(notes))


def _name_zone(seconds: float) -> str:
    """`Europe/Berlin, CET, UTC+0100`, the name where /etc/localtime is a link to it."""
    words = time.strftime("%Z, UTC%z", time.localtime(seconds))
    try:
        target = os.readlink("/etc/localtime") if os.environ.get("TZ") == MACHINE_ZONE else ""
    except OSError:
        target = ""
    _, found, name = target.partition("zoneinfo/")
    return "%s, %s" % (name, words) if found and name else words


def describe_time(when: When, now_seconds: float) -> str:
    """`2026-12-01 02:00 (Europe/Berlin, CET, UTC+0100), in 9h 41m`; `every day at 02:00 (…), first in 9h 41m`."""
    clock, left = "%02d:%02d" % (when.hour, when.minute), format_elapsed(when.seconds - now_seconds)
    if when.is_daily:
        return "every day at %s (%s), first in %s" % (clock, when.zone, left)
    return "%04d-%02d-%02d %s (%s), in %s" % (when[:3] + (clock, when.zone, left))


def list_path(text: str) -> Tuple[str, ...]:
    """The folders of a PATH that cron can use: absolute, there, and each once."""
    return tuple(dict.fromkeys(entry for entry in text.split(":") if entry.startswith("/") and os.path.isdir(entry)))


def shorten_path(entries: Sequence[str], python: str) -> Tuple[str, ...]:
    """Of a PATH that is too long for a crontab: the folders in which a program is found first that a launch may call, and that of
    the run's interpreter."""
    path = os.pathsep.join(entries)
    needed = {os.path.dirname(found) for found in (shutil.which(name, path=path) for name in _PROGRAMS) if found}
    needed |= {os.path.dirname(python), "/usr/bin", "/bin"}
    return tuple(entry for entry in entries if entry in needed)


def make_environ(job: Job, home: str, user: str, pam: Dict[str, str]) -> Dict[str, str]:
    """The environment in which cron will have started that job. `pam`: what /etc/environment adds on this machine."""
    environ = dict(pam, HOME=home, LOGNAME=user, SHELL="/bin/sh", PATH=job.path)
    environ.update((name, value) for name, _, value in (one.partition("=") for one in job.assignments))
    return environ


def read_pam_environ(path: str = "/etc/environment", services: Sequence[str] = ("/etc/pam.d/cron", "/etc/pam.d/crond")
                     ) -> Dict[str, str]:
    """What pam_env(8) gives to a cron job: the assignments in /etc/environment, where cron has a PAM service at all."""
    if not any(os.path.exists(one) for one in services):
        return {}
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read(1 << 16).split("\n")
    except OSError:
        return {}
    matches = [found for found in map(_PAM_LINE.match, lines) if found]
    return {found.group(1): next((one for one in found.groups()[1:] if one is not None), "") for found in matches}


def find_home() -> Tuple[str, str]:
    """Home and name of this user as cron takes them: by the user's entry, not by HOME. OperatorError (exit 5) without one."""
    try:
        entry = pwd.getpwuid(os.geteuid())
    except KeyError:
        raise OperatorError("user %d has no entry in the user database, and cron runs nothing for such a one" % os.geteuid(),
                            "Launch by hand, or from a scheduler of yours.", MACHINE, "user")
    return entry.pw_dir, entry.pw_name


def find_python() -> str:
    """The interpreter that will be there then: this one; that of a virtual environment is the one it was made from."""
    found = sys.executable
    if sys.prefix != sys.base_prefix:
        found = getattr(sys, "_base_executable", "") or os.path.realpath(found)
        found = os.path.realpath(found) if found == sys.executable else found
    if not found or not os.access(found, os.X_OK):
        raise OperatorError("this Python does not know where it lies", "Start rlrun by Python's whole path.", MACHINE, "python")
    return os.path.abspath(found)


def find_weak(path: str, top: str = "/") -> str:
    """Who else could put another file there, in words, "" where nobody could: cron would run whatever lies there then. Looks at
    the file and at every folder above it up to `top`, behind links too."""
    seen = {os.path.dirname(top)} if top != "/" else set()
    for one in (path, os.path.realpath(path)):
        while one not in seen:
            seen.add(one)
            words = _describe_weak(one)
            if words:
                return "%s %s" % (one, words)
            one = os.path.dirname(one)
    return ""


def _describe_weak(path: str) -> str:
    try:
        found = os.stat(path)
    except OSError:
        return ""
    if found.st_uid not in (os.geteuid(), 0):
        return "belongs to %s" % procs.user_name(found.st_uid)
    if found.st_mode & stat.S_IWOTH:
        return "can be written to by everybody"  # also with the sticky bit: /tmp is swept, and then anybody's
    if found.st_mode & stat.S_IWGRP and found.st_gid != found.st_uid and found.st_gid != 0:
        return "can be written to by group %d" % found.st_gid
    return ""


def refuse_words(job: Job) -> None:
    """OperatorError (exit 2) where a word has what a crontab can't hold: a newline, or a byte that is no text."""
    for word in (job.root, job.path, job.python, job.program) + job.assignments + job.words:
        if escape_controls(word) != word:
            raise OperatorError("a crontab can't hold this word: %s" % escape_controls(word),
                                "Write the command into a script, and the script's path into the crontab.", USAGE, "crontab")


def make_command(job: Job) -> str:
    """The job as one line for /bin/sh."""
    before = [quote_assignment("PATH=" + job.path)] + [quote_assignment(one) for one in job.assignments]
    return "cd %s && %s %s" % (quote_words([job.root]), " ".join(before), quote_words((job.python, job.program) + job.words))


def make_crontab_line(when: When, command: str) -> str:
    """The line as crontab(5) wants it. A dated one looks at the year too, which a crontab has no field for: it must not launch
    in a year what did not launch this time. OperatorError (exit 2) where it is too long."""
    if when.is_daily:
        fields = "%d %d * * *" % (when.minute, when.hour)
    else:
        fields = "%d %d %d %d *" % (when.minute, when.hour, when.day, when.month)
        command = '[ "$(date +%%Y)" = %d ] && %s' % (when.year, command)
    escaped = escape_for_cron(command)
    size = len(escaped.encode("utf-8", "surrogateescape"))
    if size > MAX_COMMAND_BYTES:
        raise OperatorError("the command has %d bytes, and cron takes %d" % (size, MAX_COMMAND_BYTES),
                            "Write what follows the five fields into a script, without the backslash before each %%, and the "
                            "script's path into the crontab:\n  %s %s" % (fields, escape_controls(command)), USAGE, "crontab")
    return "%s %s" % (fields, escaped)


def escape_for_cron(command: str) -> str:
    """A `%` ends cron's command, and cron takes the backslash before it away; Debian's takes one of two backslashes too. So that
    no backslash stands before another or before a `%`, the shell's quotes, in which all of them are, are closed between."""
    return re.sub(r"\\(?=[\\%])", r"\\''", command).replace("%", "\\%")


def make_comment(when: When, digest: str, kind: str, configs: Sequence[str]) -> str:
    """The line above it, which tells a reader of the crontab what it is."""
    clock = "%02d:%02d" % (when.hour, when.minute)
    date = "every day" if when.is_daily else "%04d-%02d-%02d" % when[:3]
    return "# rlrun: plan %s, %s, %s; %s %s (%s)" % (digest, kind, escape_controls(" + ".join(configs)), date, clock, when.zone)


def make_at_line(when: When, job: Job, environ: Dict[str, str], has_zone: bool) -> str:
    """The same for at(1), in the environment that cron would give and not in this shell's. `has_zone`: TZ is set here, by which
    at would understand the time."""
    clean = ["env", "-i"] + ["%s=%s" % (name, environ[name]) for name in sorted(environ)]
    command = "cd %s && %s" % (quote_words([job.root]), quote_words(clean + [job.python, job.program] + list(job.words)))
    return "printf '%%s\\n' %s | %sat -t %04d%02d%02d%02d%02d" % (
        (quote_words([command]), "env -u TZ " if has_zone else "") + when[:5])
