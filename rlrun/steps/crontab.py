"""The line that cron runs: with which PATH, Python and file, and how crontab(5) and /bin/sh want it written.

Judges and composes; installs nothing. What a crontab can't hold is refused here, before anybody pastes it.
"""
import errno
import os
import pwd
import re
import shutil
import stat
import sys
from typing import Dict, Mapping, NamedTuple, Sequence, Tuple

from ..errors import MACHINE, USAGE, OperatorError
from ..host import procs
from ..text.redact import redact_words
from ..text.shell import escape_controls, quote_assignment, quote_words
from ..values import Plan
from . import records
from .cron_time import When

# Debian's crontab refuses a longer command ("command too long"; cron.h: MAX_COMMAND 1000).
MAX_COMMAND_BYTES = 998
CRON_PATH = "/usr/bin:/bin"
_MORNING = "7 8 * * *"
# By which Slurm's programs find their cluster. Source: sbatch(1), environment variables.
_SLURM_NAMES = ("SLURM_CONF",)
# What a launch may call by name, for a PATH that has to be short.
_PROGRAMS = ("bash", "sh", "env", "git", "python3", "python", "uv", "nvidia-smi", "sbatch", "squeue", "ray", "ip", "docker")
# PATH="/usr/local/bin:/usr/bin"   export LANG=de_DE.UTF-8
_PAM_LINE = re.compile(r"""\s*(?:export\s+)?([A-Za-z_]\w*)=(?:"([^"]*)"|'([^']*)'|([^#\s]*))""")
_OBSTACLES = {errno.EACCES: "Have its owner let you write there, or use a checkout of your own.",
              errno.EROFS: "Have it mounted for writing, or use another checkout.",
              errno.ENOSPC: "Free some room there, then ask again."}


class Job(NamedTuple):
    """What cron is to start. `words`: rlrun's own, from `run` on; `assignments`: NAME=value; `path`: for PATH."""

    root: str
    path: str
    assignments: Tuple[str, ...]
    python: str
    program: str
    words: Tuple[str, ...]


def fill_digest(job: Job, value: str) -> Job:
    """The job with the digest that it confirms."""
    place = job.words.index("--confirm") + 1
    return job._replace(words=job.words[:place] + (value,) + job.words[place + 1:])


def list_assignments(plan: Plan, environ: Mapping[str, str]) -> Tuple[str, ...]:
    """NAME=value of the operator's environment that the launch needs: what decides the plan and, for one that is handed to Slurm,
    where its programs find the cluster."""
    slurm = ["%s=%s" % (name, os.path.abspath(environ[name])) for name in _SLURM_NAMES if environ.get(name)]
    return tuple(plan.from_environ) + tuple(slurm if plan.is_submission else ())


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


def make_at_environ(environ: Dict[str, str], pam: Dict[str, str], secrets: Sequence[str]) -> Tuple[Dict[str, str], str]:
    """What a line for at must hold to start in the same `environ` as cron, and "", or ({}, why no line can): at gives this
    shell's environment, and what `pam` adds may be a secret, which the line would show."""
    hidden = [name for name in sorted(pam) if redact_words(("%s=%s" % (name, environ[name]),), secrets)
              != ("%s=%s" % (name, environ[name]),)]
    odd = [name for name in sorted(pam) if escape_controls(environ[name]) != environ[name]]
    if hidden or odd:
        return {}, "/etc/environment sets %s, which is %s, and cron's launch has it too" % (
            " and ".join(hidden or odd), "a secret" if hidden else "no text")
    return environ, ""


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


def refuse_unwritable(root: str) -> None:
    """OperatorError (exit 5) where a launch in this checkout is sure to find no place for its log and record: a folder that this
    user can't write to, a file system that is read-only or full. Writes nothing."""
    for path in (os.path.join(root, records.FOLDER), os.path.join(root, "logs")):
        while not os.path.lexists(path):
            path = os.path.dirname(path)
        reason = _find_obstacle(path)
        if reason:
            hint = _OBSTACLES.get(reason) or "Look at it: ls -ld %s" % quote_words([path])
            raise OperatorError("nothing to schedule: a launch could not write %s: %s (%s)" % (
                escape_controls(path), os.strerror(reason), _describe_owner(path)), hint, MACHINE, "record")


def _find_obstacle(path: str) -> int:
    """The errno that making something in this folder would end with, 0 where none is to be seen."""
    try:
        if not os.path.isdir(path):
            return errno.ENOTDIR
        found = os.statvfs(path)
    except OSError as error:
        return error.errno or errno.EIO
    if not os.access(path, os.W_OK | os.X_OK):
        return errno.EROFS if found.f_flag & os.ST_RDONLY else errno.EACCES
    free = found.f_bavail if os.geteuid() else found.f_bfree
    return errno.ENOSPC if found.f_blocks and not free or found.f_files and not found.f_ffree else 0


def _describe_owner(path: str) -> str:
    try:
        return "it belongs to %s" % escape_controls(procs.user_name(os.lstat(path).st_uid))
    except OSError:
        return "its owner is not known"


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


def make_comment(when: When, digest: str, kind: str, configs: Sequence[str], until: str = "") -> str:
    """The line above it, which tells a reader of the crontab what it is. `until`: when the approval ends, "" if never."""
    clock = "%02d:%02d" % (when.hour, when.minute)
    date = "every day" if when.is_daily else "%04d-%02d-%02d" % when[:3]
    return "# rlrun: plan %s, %s, %s; %s %s (%s)%s" % (digest, kind, escape_controls(" + ".join(configs)), date, clock, when.zone,
                                                     ", good until %s" % until if until else "")


def make_failed_lines(job: Job) -> Tuple[str, str]:
    """What lists, from anywhere, the launches of that checkout that failed within a day: for a shell, and as a crontab line. The
    latter is shorter than the job's own, so cron takes it."""
    before = "".join(quote_assignment(one) + " " for one in job.assignments if one.startswith(("LC_",) + _SLURM_NAMES))
    command = before + quote_words((job.python, job.program, "runs", "--root", job.root, "--failed-since", "24h"))
    return command, "%s %s" % (_MORNING, escape_for_cron(command))


def make_at_line(when: When, job: Job, environ: Dict[str, str], has_zone: bool) -> str:
    """The same for at(1), in the environment that cron would give and not in this shell's. `has_zone`: TZ is set here, by which
    at would understand the time."""
    clean = ["env", "-i"] + ["%s=%s" % (name, environ[name]) for name in sorted(environ)]
    command = "cd %s && %s" % (quote_words([job.root]), quote_words(clean + [job.python, job.program] + list(job.words)))
    return "printf '%%s\\n' %s | %sat -t %04d%02d%02d%02d%02d" % (
        (quote_words([command]), "env -u TZ " if has_zone else "") + when[:5])
