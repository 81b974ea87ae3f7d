"""The record of a launch: what was started, with what, and how it ended. Written here and by the keeper, never deleted."""
import errno
import json
import os
import re
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .. import about
from ..errors import MACHINE, OperatorError
from ..host import procs
from ..text import redact
from ..text.shell import quote_words
from ..values import Git, Identity, Plan, RunRow
from .digest import Fingerprint, hash_file

SCHEMA = 1
_FOLDER = os.path.join("logs", "rlrun")
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
    hints = {errno.ENOSPC: "Free space there; nothing was launched.", errno.EDQUOT: "Your quota is used up there.",
             errno.EROFS: "It is mounted read-only.", errno.EACCES: "You may not write there. Whose checkout is it?"}
    return OperatorError("can't write %s: %s" % (error.filename or where, os.strerror(error.errno or 0)),
                         hints.get(error.errno or 0, "Nothing was launched."), MACHINE, "record")


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
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        data = text.encode("utf-8", "surrogateescape")
        while data:
            data = data[os.write(fd, data):]
    except OSError:
        os.unlink(temporary)
        raise
    finally:
        os.close(fd)
    os.rename(temporary, path)


def write_json(folder: str, name: str, value: Dict[str, Any]) -> None:
    """Writes one object of a record."""
    write_file(os.path.join(folder, name), json.dumps(value, indent=2, sort_keys=True) + "\n")


def describe_command(plan: Plan) -> str:
    """One shell-safe line that launches this again by hand, detached as rlrun does it."""
    drops = "".join(" -u " + name for name in plan.drop_env)
    return "cd %s && setsid env%s %s < /dev/null >> logs/launch_$(date -u +%%Y%%m%%d-%%H%%M%%S).log 2>&1 &" % (
        quote_words([plan.root]), drops, quote_words(plan.argv))


def write_plan(paths: Paths, plan: Plan, git: Git, print_: Fingerprint, secrets: Tuple[str, ...],
               extra: Dict[str, Any]) -> Dict[str, Any]:
    """Writes all of a record that is known before the launch, without a secret. Returns the object of record.json."""
    record = {
        "schema": SCHEMA, "id": os.path.basename(paths.record), "state": "launching", "digest": print_.digest,
        "stack": plan.stack, "kind": plan.kind, "root": plan.root, "config": plan.config_shown,
        "config_path": plan.config, "config_sha256": hash_file(plan.config), "overrides": list(plan.overrides),
        "argv": list(plan.argv), "launch_command": redact.redact(plan.launch_command, secrets),
        "project": plan.project, "experiment": "" if plan.name_is_volatile else plan.experiment,
        "name_is_volatile": plan.name_is_volatile, "launch_log": paths.launch_log,
        "train_log": "" if plan.name_is_volatile else plan.train_log, "user": procs.user_name(os.geteuid()),
        "uid": os.geteuid(), "host": os.uname().nodename, "boot_id": procs.read_boot_id(), "time": paths.stamp,
        "time_seconds": time.time(), "rlrun": {"version": about.VERSION, "commit": about.read_commit() or None},
        "nodes": plan.topology.nodes, "python": plan.python,
        "parts": {name: redact.redact(text, secrets) if len(text) < 400 else hash_text(text)
                  for name, text in print_.parts.items()}, "runner": None}  # type: Dict[str, Any]
    record.update(extra)
    try:
        write_file(os.path.join(paths.record, "command.txt"), redact.redact(describe_command(plan), secrets) + "\n")
        write_file(os.path.join(paths.record, "configuration.txt"), redact.redact(plan.block, secrets) + "\n")
        write_file(os.path.join(paths.record, "git.txt"), describe_git(git))
        with open(plan.config, "rb") as file:
            text = file.read(1 << 20).decode("utf-8", "surrogateescape")
        name = os.path.basename(plan.config)
        write_file(os.path.join(paths.record, "config" + os.path.splitext(name)[1]), redact.redact_config(text, secrets), 0o600)
        write_json(paths.record, "record.json", record)
    except OSError as error:
        raise refuse_write(error, paths.record)
    return record


def hash_text(text: str) -> str:
    """A short name for a long text."""
    import hashlib
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def describe_git(git: Git) -> str:
    """The text of git.txt."""
    if not git.commit:
        return "commit unknown (%s)\n" % git.reason
    lines = ["commit %s" % git.commit, "branch %s" % git.branch] + ["modified %s" % name for name in git.dirty]
    return "\n".join(lines) + "\n"


def list_records(root: str) -> List[Dict[str, Any]]:
    """All records of a checkout, newest first, each with what the keeper wrote beside it under "keeper", "exit", "link".
    A record that can't be read is told as such, not left out."""
    folder = os.path.join(root, _FOLDER)
    try:
        names = sorted(os.listdir(folder), reverse=True)
    except OSError:
        return []
    return [record for record in (read_record(os.path.join(folder, name)) for name in names) if record]


def read_record(folder: str) -> Optional[Dict[str, Any]]:
    """One record as list_records gives it; None where `folder` is no folder."""
    if not os.path.isdir(folder):
        return None
    record = _read_json(folder, "record.json") or {"schema": SCHEMA, "id": os.path.basename(folder), "state": "unreadable"}
    record["record"] = folder
    for key, name in (("keeper", "keeper.json"), ("exit", "exit.json"), ("link_result", "link.json")):
        record[key] = _read_json(folder, name)
    # What is counted with is a number, whoever wrote the file.
    record.update(id=str(record.get("id") or os.path.basename(folder)), time_seconds=_read_number(record.get("time_seconds")),
                  runner=record.get("runner") if isinstance(record.get("runner"), dict) else None)
    for name in ("duration_seconds", "max_rss_kib"):
        if record["exit"]:
            record["exit"][name] = _read_number(record["exit"].get(name))
    return record


def _read_number(value: Any) -> float:
    return value if isinstance(value, (int, float)) and abs(value) < 1e15 else 0  # neither NaN nor infinite


def _read_json(folder: str, name: str) -> Optional[Dict[str, Any]]:
    try:
        with open(os.path.join(folder, name), "rb") as file:
            value = json.loads(file.read(1 << 20).decode("utf-8", "replace"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def make_row(record: Dict[str, Any], now_seconds: float) -> RunRow:
    """One line of `runs`: the state is judged by identity (pid, start, boot), never by the pid alone (P15)."""
    state, code = judge_state(record)
    return RunRow(str(record.get("id", "")), state, code, max(0.0, now_seconds - float(record["time_seconds"])),
                  str(record.get("kind", "")), str(record.get("config", "")), str(record.get("experiment", "")),
                  str(record.get("user", "")), str(record.get("record", "")), record)


def judge_state(record: Dict[str, Any]) -> Tuple[str, Optional[int]]:
    """(state, exit status): running, ended n, killed by s, lost, elsewhere, not started, unreadable."""
    ended = record.get("exit")
    if ended:
        if ended.get("signal"):
            return "killed by %s" % ended["signal"], ended.get("status")
        return "ended %s" % ended.get("status"), ended.get("status")
    if record.get("state") == "unreadable":
        return "unreadable", None
    identity = read_identity(record)
    if not identity:
        return "not started", None
    if record.get("boot_id") != procs.read_boot_id() and record.get("host") != os.uname().nodename:
        return "elsewhere (%s)" % record.get("host"), None
    return ("running" if procs.is_alive(identity) else "lost"), None


def read_identity(record: Dict[str, Any]) -> Optional[Identity]:
    """The identity of a record's runner, None where it never started."""
    runner = record.get("runner") or record.get("keeper") or {}
    try:
        return Identity(int(runner["pid"]), int(runner["start_ticks"]), str(record.get("boot_id", "")))
    except (KeyError, TypeError, ValueError):
        return None


def find_launched(root: str, digest: str) -> Optional[Dict[str, Any]]:
    """The newest record of a plan that was launched already."""
    for record in list_records(root):
        if record.get("digest") == digest and read_identity(record):
            return record
    return None
