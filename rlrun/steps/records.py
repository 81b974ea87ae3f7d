"""The records of a checkout, read: what was launched, how it is and how it ended. Every value has the type that it was
written with, whoever wrote the file. Writes nothing; record.py does."""
import errno
import json
import math
import os
import re
import stat
import time
from typing import Any, Dict, List, Optional, Tuple

from ..host import procs
from ..values import Identity, Process, RunRow

SCHEMA = 1
FOLDER = os.path.join("logs", "rlrun")
UNATTENDED = re.compile(r"unattended(-[0-9]+)?\.log\Z")  # what text/unattended.py keeps there
_TELLING_SECONDS = 600.0  # several times what a program of --notify has
PLANS = "plans"  # beside the records: what was approved and not launched yet; see saved_plan.py
NODES = "nodes"  # and what a run's other nodes are compared with; see node_facts.py
# The time of a record that does not tell it: what is reckoned with it is unknown too, and is shown so.
UNKNOWN_SECONDS = float("nan")
_NUMBER_CHARACTERS = 20
# What a record holds as text.
_TEXTS = ("id", "state", "digest", "stack", "kind", "root", "config", "config_sha256", "project", "experiment", "launch_log",
          "train_log", "run_dir", "launch_command", "config_path", "user", "host", "boot_id", "pid_namespace", "time", "mode")
# And as a list.
_LISTS = ("argv", "trainer", "verdict_warnings", "before", "ports", "gpus", "own_dirs", "notify")


def list_records(root: str, limit: int = 0) -> List[Dict[str, Any]]:
    """All records of a checkout (the `limit` newest by name, where it is given), newest first, each with what the keeper
    wrote beside it under "keeper", "exit", "link". A record that can't be read is told as such, not left out."""
    folder = os.path.join(root, FOLDER)
    names = list_names(root)
    names = names[:limit] if limit else names
    records = [record for record in (read_record(os.path.join(folder, name)) for name in names) if record]
    return sorted(records, key=_age_order)


def list_names(root: str) -> List[str]:
    """The names of a checkout's records, the newest first."""
    try:
        names = os.listdir(os.path.join(root, FOLDER))
        return sorted((name for name in names if name not in (PLANS, NODES) and not UNATTENDED.match(name)), reverse=True)
    except OSError:
        return []


def read_exit(folder: str) -> Optional[Dict[str, Any]]:
    """What a record's keeper wrote of the end, without the rest of the record; None where it did not."""
    ended = _read_flat(read_json(folder, "exit.json"))
    if ended:
        ended.update(status=_read_whole(ended.get("status")), signal=_read_text(ended.get("signal")) or None,
                     duration_seconds=_read_number(ended.get("duration_seconds")),
                     max_rss_kib=_read_whole(ended.get("max_rss_kib")), time_seconds=_read_number(ended.get("time_seconds")))
    return ended


def _age_order(record: Dict[str, Any]) -> Tuple[bool, float]:
    seconds = float(record["time_seconds"])
    return math.isnan(seconds), 0.0 if math.isnan(seconds) else -seconds  # of one second: by name, as they come


def read_record(folder: str) -> Optional[Dict[str, Any]]:
    """One record as list_records gives it; None where `folder` is no folder."""
    if not os.path.isdir(folder):
        return None
    record = read_json(folder, "record.json") or {"schema": SCHEMA, "state": "unreadable"}
    for key, name in (("keeper", "keeper.json"), ("link_result", "link.json")):
        record[key] = _read_flat(read_json(folder, name))
    record["exit"] = read_exit(folder)
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
    record["notified"] = read_notified(folder)
    record["job_states"] = {}
    record["left"] = []
    return record


def read_notified(folder: str) -> List[Dict[str, Any]]:
    """What came of each notification: {"event", "result", "words", "output", "sent", "argv", …}, in their order; whose event is
    not told, is left out."""
    events = (read_json(folder, "notify.json") or {}).get("events")
    found = []
    for one in events if isinstance(events, list) else ():
        flat = _read_flat(one) or {}
        flat.update(argv=_read_list(one.get("argv")) if flat else [], sent=flat.get("sent") is True)
        flat.update({name: _read_text(flat.get(name)) for name in ("event", "result", "words", "output")})
        found += [flat] if flat["event"] else []
    return found


def has_keeper(record: Dict[str, Any], processes: Dict[int, Process]) -> bool:
    """Does the process live that is to write how the run ended? By its title, for its pid may be another's by now."""
    process = processes.get((record["runner"] or record["keeper"] or {}).get("keeper") or 0)
    return (process is not None and record["boot_id"] == procs.read_boot_id() and not is_elsewhere(record)
            and process.state not in "ZXTt" and process.argv[:1] == ("rlrun:",))


def tell_notified(record: Dict[str, Any], processes: Dict[int, Process]) -> str:
    """In words, what came of a run's notifications; "" where none were ordered."""
    told = ["%s: %s" % (one["event"], "sent" if one["sent"] else "FAILED (%s)%s" % _tell_failure(one))
            for one in record["notified"]]
    if not record["notify"] and not told:
        return ""
    is_ended = any(one["event"] == "ended" for one in record["notified"])
    is_gone = not is_ended and not is_elsewhere(record) and record["boot_id"] == procs.read_boot_id() and bool(
        record["runner"] or record["keeper"]) and not has_keeper(record, processes)
    told += _tell_begun(record, is_gone)
    if is_gone:
        told.append("its keeper is gone: nobody is told any more")
    return " \u00b7 ".join(told) or "nothing to tell yet"


def _tell_begun(record: Dict[str, Any], is_gone: bool) -> List[str]:
    """In words, which notifications were begun (see tell.py) and have no end that was recorded."""
    known, found = {one["event"] for one in record["notified"]}, []
    for event in ("gate", "stalled", "ended"):
        try:
            began = os.stat(os.path.join(record["record"], "notify-%s.json" % event)).st_mtime
        except OSError:
            continue
        if event not in known:
            is_over = is_gone or not -60 < time.time() - began < _TELLING_SECONDS
            found.append("%s: %s since %s UTC%s" % (
                event, "was being told" if is_over else "being told",
                time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(min(began, 2.0 ** 33))),
                ", and what came of it is not recorded" if is_over else ""))
    return found


def list_untold(record: Dict[str, Any]) -> List[str]:
    """A line for each notification that failed."""
    return ["the program of --notify failed (%s)%s; it was to tell: %s" % (_tell_failure(one) + (one["event"],))
            for one in record["notified"] if not one["sent"]]


def _tell_failure(one: Dict[str, Any]) -> Tuple[str, str]:
    return one["words"] or "how is not known", ": " + one["output"].split("\n")[-1] if one["output"] else ""


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


def read_json(folder: str, name: str) -> Optional[Dict[str, Any]]:
    """The object in a file of a record; None where there is none, or what is there is none."""
    try:
        value = json.loads(read_file(os.path.join(folder, name)).decode("utf-8", "replace"), parse_constant=_drop_word,
                           parse_float=_parse_float, parse_int=_parse_int)
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _drop_word(word: str) -> None:
    """NaN and Infinity, which JSON does not have and json.dumps would hand on."""


def parse_int(word: str) -> int:
    """A whole number out of JSON that others write. ValueError for more digits than any number of ours has: a Python before 3.11
    takes the square of their count to read them (CVE-2020-10735)."""
    if len(word) > _NUMBER_CHARACTERS:
        raise ValueError("a number of %d digits" % len(word))
    return int(word)


def _parse_int(word: str) -> Optional[int]:
    return int(word) if len(word) <= _NUMBER_CHARACTERS else None


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
    if procs.is_alive(identity) and not is_elsewhere(record):
        return "running", None
    # Another machine's, or another container's on this one: then the boot is the same, and its pids mean nothing here.
    is_other = record["host"] != os.uname().nodename or is_elsewhere(record) and record["boot_id"] == procs.read_boot_id()
    return ("elsewhere (%s)" % record["host"] if is_other else "lost"), None


def is_elsewhere(record: Dict[str, Any]) -> bool:
    """Was it launched in another table of pids (a container's), where its pids mean other processes?"""
    own = procs.read_pid_namespace()
    return bool(record["pid_namespace"] and own and record["pid_namespace"] != own)


def is_other_host(record: Dict[str, Any]) -> bool:
    """Was it launched on a machine of another name? Then its processes are there."""
    return bool(record["host"]) and record["host"] != os.uname().nodename


def find_left(record: Dict[str, Any], processes: Dict[int, Process]) -> Tuple[int, ...]:
    """The processes that live on in the groups of a run whose runner has ended: what a launcher leaves behind that was killed
    (S5). A group's number is not given to another while one of it lives; that it is the run's, boot and start tell."""
    runner = record["runner"] or record["keeper"]
    if not record["exit"] or not runner or record["boot_id"] != procs.read_boot_id() or is_elsewhere(record):
        return ()
    groups = {runner["pgid"] or runner["pid"]} | set(record["groups"])
    return tuple(sorted(one.pid for one in processes.values() if one.pgid in groups and not procs.is_dead(one)
                        and one.start_ticks >= runner["start_ticks"]))


def read_identity(record: Dict[str, Any]) -> Optional[Identity]:
    """The identity of a record's runner, None where it never started."""
    runner = record["runner"] or record["keeper"]
    return Identity(runner["pid"], runner["start_ticks"], record["boot_id"]) if runner else None


def find_launched(root: str, digest: str) -> Optional[Dict[str, Any]]:
    """The newest record of a plan that was launched already. Whose file holds the digest nowhere is not read whole."""
    folders = [os.path.join(root, FOLDER, name) for name in list_names(root)]
    found = [record for record in map(read_record, [one for one in folders if _holds(one, digest)]) if record]
    launched = [record for record in found if record["digest"] == digest and read_identity(record)]
    return min(launched, key=_age_order) if launched else None


def _holds(folder: str, digest: str) -> bool:
    try:
        return digest.encode("utf-8") in read_file(os.path.join(folder, "record.json"))
    except OSError:
        return False
