"""The record of a launch: what was started, with what, and how it ended. Written here and by the keeper, never deleted."""
import errno
import json
import os
import re
import time
from typing import Any, Dict, NamedTuple, Tuple

from .. import about
from ..errors import MACHINE, OperatorError
from ..host import procs
from ..host.files import make_folder
from ..text import redact
from ..text.shell import quote_assignment, quote_words
from ..values import Fingerprint, Git, Plan
from . import judge_config
from .digest import drop_volatile, find_volatile, hash_file, shorten_parts
from .records import FOLDER, SCHEMA

# what a folder's name may hold without a quote in any shell
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class Paths(NamedTuple):
    """Where a launch leaves its traces: the record's folder, and the launch log, open for appending."""

    record: str
    launch_log: str
    log_fd: int
    stamp: str


def make_stamp(seconds: float) -> str:
    """`20260802-131455`, UTC, as launch logs are named."""
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime(seconds))


def create(plan: Plan, now_seconds: float, is_private: bool) -> Paths:
    """Makes the record's folder and the launch log, both new: nothing is ever written over. OperatorError (exit 5)
    where that can't be done: no room, no permission, a quota."""
    stamp = make_stamp(now_seconds)
    name = "%s-%s-%s" % (stamp, plan.kind, _UNSAFE.sub("_", os.path.splitext(os.path.basename(plan.config))[0])[:80])
    record = ""
    try:
        make_folder(os.path.join(plan.root, FOLDER))
        record = _create_new(lambda suffix: _make_folder(os.path.join(plan.root, FOLDER, name + suffix)))
        # At once, for whoever finds it if rlrun is killed before it has written the rest: nothing was started.
        write_json(record, "record.json", {
            "schema": SCHEMA, "id": os.path.basename(record), "state": "launching", "stack": plan.stack, "kind": plan.kind,
            "root": plan.root, "config": plan.config_shown, "user": procs.user_name(os.geteuid()), "host": os.uname().nodename,
            "boot_id": procs.read_boot_id(), "time": stamp, "time_seconds": now_seconds})
        log, fd = _create_new(lambda suffix: _open_new(
            os.path.join(plan.root, "logs", "launch_%s%s.log" % (stamp, suffix)), 0o600 if is_private else 0o644))
    except OSError as error:
        _drop_empty(record)
        raise refuse_write(error, os.path.join(plan.root, "logs"))
    return Paths(record, log, fd, stamp)


def _drop_empty(folder: str) -> None:
    """The folder that was made just now and could hold nothing: it would be told as a record that can't be read."""
    try:
        os.rmdir(folder)
    except OSError:  # something is in it, or there is none
        pass


def refuse_write(error: OSError, where: str) -> OperatorError:
    """What an operator can do about a record or log that could not be written."""
    hints = {errno.ENOSPC: "Free space there; nothing was launched.",
             errno.EDQUOT: "Your quota is used up there: remove something, or ask for more; nothing was launched.",
             errno.EROFS: "It is mounted read-only: have it mounted for writing, or use another checkout; nothing was "
                          "launched.",
             errno.EACCES: "You may not write there: ask the checkout's owner, or use a checkout of your own; nothing was "
                           "launched."}
    hint = hints.get(error.errno or 0, "Nothing was launched. Look at it: ls -ld %s" % quote_words([where]))
    return OperatorError("can't write %s: %s" % (error.filename or where, os.strerror(error.errno or 0)), hint, MACHINE, "record")


def _make_folder(path: str) -> str:
    os.mkdir(path, 0o755)
    return path


def _open_new(path: str, mode: int) -> Tuple[str, int]:
    return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, mode)


def _create_new(make):  # type: ignore
    for number in range(1, 1000):
        try:
            return make("" if number == 1 else "-%d" % number)
        except FileExistsError:
            continue
    raise OSError(errno.EEXIST, "too many launches in one second")


def write_file(path: str, text: str, mode: int = 0o644) -> None:
    """Writes a file whole or not at all: to a temporary name beside it, then renamed."""
    temporary = "%s.%d.tmp" % (path, os.getpid())
    data = text.encode("utf-8", "surrogateescape")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        try:
            while data:
                data = data[os.write(fd, data):]
        finally:
            os.close(fd)  # a quota, or a server, may tell only here
        os.rename(temporary, path)
    except BaseException:
        try:
            os.unlink(temporary)  # it would be in the way of every later try
        except OSError:
            pass
        raise


def write_json(folder: str, name: str, value: Dict[str, Any]) -> None:
    """Writes one object of a record."""
    write_file(os.path.join(folder, name), json.dumps(value, indent=2, sort_keys=True) + "\n")


def describe_command(plan: Plan) -> str:
    """One shell-safe line that launches this again by hand, detached as rlrun does it. A log that will hold secrets is made
    first, for its user alone; the run itself keeps the umask that it is started with."""
    drops = "".join(" -u " + name for name in plan.drop_env + tuple(sorted(plan.dropped)))
    drops += ' PYTHONUNBUFFERED="${PYTHONUNBUFFERED-1}"'
    drops += ' PATH=%s:"$PATH"' % quote_words([plan.path_first]) if plan.path_first else ""
    drops += "".join(" " + quote_assignment(word) for word in plan.from_environ)
    private = '(umask 077; : >> "$log") && ' if judge_config.needs_private_log(plan) else ""
    log = "log=logs/launch_$(date -u +%Y%m%d-%H%M%S).log"
    # The braces: of a whole list in the background a shell would stay behind, and hold what it was started with.
    return 'cd %s && %s && %s{ setsid env%s %s < /dev/null >> "$log" 2>&1 & }' % (
        quote_words([plan.root]), log, private, drops, quote_words(plan.argv_again or plan.argv))


def write_plan(paths: Paths, plan: Plan, git: Git, print_: Fingerprint, secrets: Tuple[str, ...],
               extra: Dict[str, Any]) -> Dict[str, Any]:
    """Writes all of a record that is known before the launch, without a secret. Returns the object of record.json."""
    record: Dict[str, Any] = {
        "schema": SCHEMA, "id": os.path.basename(paths.record), "state": "launching", "digest": print_.digest,
        "stack": plan.stack, "kind": plan.kind, "root": plan.root, "config": plan.config_shown,
        "config_path": plan.config, "config_sha256": hash_file(plan.config),
        "overrides": list(redact.redact_words(plan.overrides, secrets)), "argv": list(redact.redact_words(plan.argv, secrets)),
        "launch_command": redact.redact(drop_volatile(plan.launch_command, find_volatile(plan)), secrets),
        "project": plan.project, "experiment": "" if plan.name_is_volatile else plan.experiment,
        "name_is_volatile": plan.name_is_volatile, "launch_log": paths.launch_log,
        "train_log": "" if plan.name_is_volatile else plan.train_log, "user": procs.user_name(os.geteuid()),
        "uid": os.geteuid(), "host": os.uname().nodename, "boot_id": procs.read_boot_id(),
        "pid_namespace": procs.read_pid_namespace(), "time": paths.stamp,
        "time_seconds": time.time(), "rlrun": {"version": about.VERSION, "commit": about.read_commit() or None},
        "nodes": plan.topology.nodes, "python": plan.python, "run_dir": plan.run_dir,
        "before": list(plan.before), "more_configs": list(plan.more_configs), "is_submission": plan.is_submission,
        "parts": shorten_parts(print_.parts, secrets), "runner": None, "dropped_env": sorted(plan.dropped)}
    record.update(extra)
    try:
        write_json(paths.record, "record.json", record)  # first: it tells more than the rest
        write_file(os.path.join(paths.record, "command.txt"), redact.redact(describe_command(plan), secrets) + "\n")
        write_file(os.path.join(paths.record, "configuration.txt"), redact.redact(plan.block, secrets) + "\n")
        write_file(os.path.join(paths.record, "git.txt"), redact.redact(describe_git(git), secrets))
        configs = (plan.config,) + tuple(os.path.join(plan.root, path) for path in plan.more_configs)
        for number, path in enumerate(configs, 1):
            with open(path, "rb") as file:
                text = file.read(1 << 20).decode("utf-8", "surrogateescape")
            name = "config%s%s" % ("" if number == 1 else "-%d" % number, os.path.splitext(path)[1])
            write_file(os.path.join(paths.record, name), redact.redact_config(text, secrets), 0o600)
    except OSError as error:
        raise refuse_write(error, paths.record)
    return record


def describe_git(git: Git) -> str:
    """The text of git.txt."""
    if not git.commit:
        return "commit unknown (%s)\n" % git.reason
    lines = ["commit %s" % git.commit, "branch %s" % git.branch] + ["modified %s" % name for name in git.dirty]
    return "\n".join(lines) + "\n"
