"""The record of a launch: what was started, with what, and how it ended. Written here and by the keeper, never deleted."""
import errno
import json
import math
import os
import re
import stat
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .. import about
from ..errors import MACHINE, OperatorError
from ..host import procs
from ..text import redact
from ..text.shell import quote_assignment, quote_words
from ..values import Fingerprint, Git, Identity, Plan, Process, RunRow
from . import judge_config
from .digest import drop_volatile, find_volatile, hash_file, shorten_parts

SCHEMA = 1
_FOLDER = os.path.join("logs", "rlrun")
# what a folder's name may hold without a quote in any shell
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
# The time of a record that does not tell it: what is reckoned with it is unknown too, and is shown so.
UNKNOWN_SECONDS = float("nan")
# What a record holds as text.
_TEXTS = ("id", "state", "digest", "stack", "kind", "root", "config", "config_sha256", "project", "experiment", "launch_log",
          "train_log", "run_dir", "launch_command", "user", "host", "boot_id", "time", "mode")
# And as a list.
_LISTS = ("argv", "trainer", "verdict_warnings", "before", "ports", "gpus", "own_dirs")


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
    try:
        os.makedirs(os.path.join(plan.root, _FOLDER), exist_ok=True)
        record = _create_new(lambda suffix: _make_folder(os.path.join(plan.root, _FOLDER, name + suffix)))
        log, fd = _create_new(lambda suffix: _open_new(
            os.path.join(plan.root, "logs", "launch_%s%s.log" % (stamp, suffix)), 0o600 if is_private else 0o644))
    except OSError as error:
        raise refuse_write(error, os.path.join(plan.root, "logs"))
    return Paths(record, log, fd, stamp)


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
    drops = "".join(" -u " + name for name in plan.drop_env)
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
        "uid": os.geteuid(), "host": os.uname().nodename, "boot_id": procs.read_boot_id(), "time": paths.stamp,
        "time_seconds": time.time(), "rlrun": {"version": about.VERSION, "commit": about.read_commit() or None},
        "nodes": plan.topology.nodes, "python": plan.python, "run_dir": plan.run_dir,
        "before": list(plan.before), "more_configs": list(plan.more_configs), "is_submission": plan.is_submission,
        "parts": shorten_parts(print_.parts, secrets), "runner": None}
    record.update(extra)
    try:
        write_file(os.path.join(paths.record, "command.txt"), redact.redact(describe_command(plan), secrets) + "\n")
        write_file(os.path.join(paths.record, "configuration.txt"), redact.redact(plan.block, secrets) + "\n")
        write_file(os.path.join(paths.record, "git.txt"), redact.redact(describe_git(git), secrets))
        configs = (plan.config,) + tuple(os.path.join(plan.root, path) for path in plan.more_configs)
        for number, path in enumerate(configs, 1):
            with open(path, "rb") as file:
                text = file.read(1 << 20).decode("utf-8", "surrogateescape")
            name = "config%s%s" % ("" if number == 1 else "-%d" % number, os.path.splitext(path)[1])
            write_file(os.path.join(paths.record, name), redact.redact_config(text, secrets), 0o600)
        write_json(paths.record, "record.json", record)
    except OSError as error:
        raise refuse_write(error, paths.record)
    return record


def describe_git(git: Git) -> str:
    """The text of git.txt."""
    if not git.commit:
        return "commit unknown (%s)\n" % git.reason
    lines = ["commit %s" % git.commit, "branch %s" % git.branch] + ["modified %s" % name for name in git.dirty]
    return "\n".join(lines) + "\n"


def list_records(root: str, limit: int = 0) -> List[Dict[str, Any]]:
    """All records of a checkout (the `limit` newest by name, where it is given), newest first, each with what the keeper
    wrote beside it under "keeper", "exit", "link". A record that can't be read is told as such, not left out."""
    folder = os.path.join(root, _FOLDER)
    try:
        names = sorted(os.listdir(folder), reverse=True)
    except OSError:
        return []
    names = names[:limit] if limit else names
    records = [record for record in (read_record(os.path.join(folder, name)) for name in names) if record]
    return sorted(records, key=_age_order)


def _age_order(record: Dict[str, Any]) -> Tuple[bool, float]:
    seconds = float(record["time_seconds"])
    return math.isnan(seconds), 0.0 if math.isnan(seconds) else -seconds  # of one second: by name, as they come


def read_record(folder: str) -> Optional[Dict[str, Any]]:
    """One record as list_records gives it; None where `folder` is no folder."""
    if not os.path.isdir(folder):
        return None
    record = _read_json(folder, "record.json") or {"schema": SCHEMA, "state": "unreadable"}
    for key, name in (("keeper", "keeper.json"), ("exit", "exit.json"), ("link_result", "link.json")):
        record[key] = _read_flat(_read_json(folder, name))
    # From here on each has the type that it was written with, whoever wrote the file; what has not is not known.
    for name in _TEXTS:
        record[name] = _read_text(record.get(name))
    time_seconds = _read_number(record.get("time_seconds"))
    record.update(id=record["id"] or os.path.basename(folder), record=folder,
                  time_seconds=UNKNOWN_SECONDS if time_seconds is None else time_seconds,
                  runner=_read_process(record.get("runner")), keeper=_read_process(record["keeper"]),
                  parts={name: str(text) for name, text in (_read_flat(record.get("parts")) or {}).items()},
                  **{name: _read_list(record.get(name)) for name in _LISTS})
    facts = record.get("facts")
    jobs = facts.get("jobs") if isinstance(facts, dict) else None
    record["jobs"] = [str(one) for one in _read_list(jobs)]
    groups = facts.get("groups") if isinstance(facts, dict) else None
    record["groups"] = [one for one in map(_read_whole, _read_list(groups)) if one and one > 1]
    record["job_states"] = {}
    record["left"] = []
    ended = record["exit"]
    if ended:
        ended.update(status=_read_whole(ended.get("status")), signal=_read_text(ended.get("signal")) or None,
                     duration_seconds=_read_number(ended.get("duration_seconds")),
                     max_rss_kib=_read_whole(ended.get("max_rss_kib")))
    return record


def _read_flat(value: Any) -> Optional[Dict[str, Any]]:
    """An object without what is nested in it."""
    if not isinstance(value, dict):
        return None
    return {name: one for name, one in value.items() if not isinstance(one, (dict, list))}


def _read_list(value: Any) -> List[Any]:
    return [one for one in value if not isinstance(one, (dict, list))] if isinstance(value, list) else []


def _read_text(value: Any) -> str:
    return value if isinstance(value, str) and "\0" not in value else ""  # no path has a NUL in it


def _read_number(value: Any) -> Optional[float]:
    return value if isinstance(value, (int, float)) and abs(value) < 1e15 else None


def _read_whole(value: Any) -> Optional[int]:
    return value if isinstance(value, int) and abs(value) < 1 << 62 else None


def _read_process(value: Any) -> Optional[Dict[str, Any]]:
    """What runner or keeper.json tell of the processes; None without a pid, as where none was started."""
    value = _read_flat(value)
    if value is None:
        return None
    numbers = {name: _read_whole(value.get(name)) for name in ("pid", "start_ticks", "pgid", "keeper")}
    return dict(value, **numbers) if (numbers["pid"] or 0) > 0 and numbers["start_ticks"] is not None else None


def _read_json(folder: str, name: str) -> Optional[Dict[str, Any]]:
    try:
        value = json.loads(read_file(os.path.join(folder, name)).decode("utf-8", "replace"), parse_constant=_drop_word,
                           parse_float=_parse_float)
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _drop_word(word: str) -> None:
    """NaN and Infinity, which JSON does not have and json.dumps would hand on."""


def _parse_float(word: str) -> Optional[float]:
    value = float(word)
    return value if math.isfinite(value) else None  # 1e999


def read_file(path: str, limit_bytes: int = 1 << 20) -> bytes:
    """A file of a record. OSError also for what is no file: reading a pipe that lies there would wait for ever."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not a file", path)
        return file.read(limit_bytes)


def make_row(record: Dict[str, Any], now_seconds: float) -> RunRow:
    """One line of `runs`: the state is judged by identity (pid, start, boot), never by the pid alone (P15)."""
    state, code = judge_state(record)
    age = now_seconds - record["time_seconds"]
    return RunRow(record["id"], state, code, 0.0 if age < 0 else age, record["kind"], record["config"], record["experiment"],
                  record["user"], record["record"], record)


def judge_state(record: Dict[str, Any]) -> Tuple[str, Optional[int]]:
    """(state, exit status): running, ended n, killed by s, lost, elsewhere, not started, unreadable; of a run that was handed
    to Slurm its jobs' states, as far as `job_states` tells them."""
    ended = record.get("exit")
    if record.get("jobs"):
        told = record.get("job_states") or {}
        return " ".join("job %s %s" % (one, str(told.get(one) or "unknown").lower()) for one in record["jobs"]), None
    if ended:
        if ended.get("signal"):
            return "killed by %s" % ended["signal"], ended.get("status")
        return "ended %s" % ended.get("status"), ended.get("status")
    if record.get("state") == "unreadable":
        return "unreadable", None
    identity = read_identity(record)
    if not identity:
        return "not started", None
    if procs.is_alive(identity):
        return "running", None
    # Another machine's, or another container's on this one: then the boot is the same, and its pids mean nothing here.
    return ("elsewhere (%s)" % record["host"] if record["host"] != os.uname().nodename else "lost"), None


def find_left(record: Dict[str, Any], processes: Dict[int, Process]) -> Tuple[int, ...]:
    """The processes that live on in the groups of a run whose runner has ended: what a launcher leaves behind that was killed
    (S5). A group's number is not given to another while one of it lives; that it is the run's, boot and start tell."""
    runner = record["runner"] or record["keeper"]
    if not record["exit"] or not runner or record["boot_id"] != procs.read_boot_id():
        return ()
    groups = {runner["pgid"] or runner["pid"]} | set(record["groups"])
    return tuple(sorted(one.pid for one in processes.values() if one.pgid in groups and not procs.is_dead(one)
                        and one.start_ticks >= runner["start_ticks"]))


def read_identity(record: Dict[str, Any]) -> Optional[Identity]:
    """The identity of a record's runner, None where it never started."""
    runner = record["runner"] or record["keeper"]
    return Identity(runner["pid"], runner["start_ticks"], record["boot_id"]) if runner else None


def find_launched(root: str, digest: str) -> Optional[Dict[str, Any]]:
    """The newest record of a plan that was launched already."""
    for record in list_records(root):
        if record["digest"] == digest and read_identity(record):
            return record
    return None
