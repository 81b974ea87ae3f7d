"""What must be the same on every node of a run, as it is on this one: gathered, written on the head to
logs/rlrun/nodes/<digest>.json, and read on the others. Judges nothing; judge_node.py does. No secret is in it."""
import json
import os
import re
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .. import about, child
from ..errors import MACHINE, USAGE, OperatorError
from ..host import clock, gpus, packages, procs
from ..host.files import make_folder
from ..text.shell import quote_words
from ..values import Git, GpuReading, Plan
from . import digest, record, records

SCHEMA = 1
_KIND = "facts of a run's head"
_FILE_BYTES = 4 << 20
_DIGEST = re.compile(r"[0-9a-f]{8}\Z")
# What decides which packages an interpreter finds.
_PYTHON_NAMES = ("PATH", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "HOME", "LANG", "LD_LIBRARY_PATH")
_NVIDIA_SECONDS, _PYTHON_SECONDS = 20.0, 60.0
_DASHBOARD = "ray dashboard"  # what a plan calls the port whose HTTP tells the head's time


class NodeFacts(NamedTuple):
    """One node of a run. "" or None is what could not be read there."""

    digest: str
    host: str
    commit: str
    git_reason: str  # why the commit, or what differs from it, is not known
    dirty: Optional[str]  # a hash over what differs from the commit, "" where nothing does
    files: Dict[str, str]  # sha256 by path, relative to the checkout where it lies in it
    python: str
    python_version: str
    packages: Optional[Dict[str, str]]  # version by name
    driver: str
    gpus: Optional[Tuple[str, ...]]  # the names of all of this node, sorted
    gpu_reason: str
    head: str
    head_variable: str
    port: int
    dashboard: int  # 0: there is none
    time_seconds: float
    server: str  # the file server of the checkout, where that puts the times on files
    offset: Optional[clock.Offset]  # this clock against that server's
    rlrun: str
    hosts: Tuple[str, ...]


class Pending(NamedTuple):
    """Programs that were asked and not waited for."""

    driver: Optional[child.Running]
    packages: Optional[child.Running]


def start(plan: Plan, reading: GpuReading) -> Pending:
    """Asks nvidia-smi for the driver and the runner's Python for its packages, both at once. `reading`: where nvidia-smi hung or
    is absent, it is not asked again."""
    driver = None if reading.state in ("absent", "timeout") else gpus.start_driver()
    try:
        env = {name: plan.environment[name] for name in _PYTHON_NAMES if name in plan.environment}
        return Pending(driver, packages.start_listing(plan.python, plan.root, env) if plan.python else None)
    except BaseException:
        cancel(Pending(driver, None))
        raise


def cancel(pending: Pending) -> None:
    """Ends what nobody will wait for."""
    for running in pending:
        if running is not None and running.popen is not None and running.popen.poll() is None:
            child.end_group(running.popen)


def finish(pending: Pending, plan: Plan, git: Git, reading: GpuReading, name: str, head: str,
           hosts: Tuple[str, ...] = ()) -> NodeFacts:
    """This node's facts: waits for the two programs, a minute at most. `name`: the plan's digest on the head, `reading`: the
    GPUs, `head`: the address that the others join."""
    try:
        driver = gpus.finish_driver(pending.driver, _NVIDIA_SECONDS) if pending.driver else ""
        installed = packages.finish_listing(pending.packages, _PYTHON_SECONDS) if pending.packages else None
    except BaseException:
        cancel(pending)
        raise
    folder = find_folder(plan.root)
    server = clock.read_file_server(folder)
    is_whole = not git.dirty or bool(git.dirty_digest)
    return NodeFacts(
        name, os.uname().nodename, git.commit, git.reason, git.dirty_digest if git.commit and is_whole else None,
        {_shorten(path, plan.root): value for path, value in digest.hash_sources(plan).items()}, plan.python,
        installed.version if installed else "", installed.packages if installed else None, driver,
        tuple(sorted(gpu.name or "?" for gpu in reading.gpus)) if reading.gpus else None, reading.reason, head,
        plan.topology.head_variable, find_port(plan), next((port.number for port in plan.ports if port.purpose == _DASHBOARD), 0),
        time.time(), server, clock.measure_file_server(folder) if server else None, about.VERSION, hosts)


def find_port(plan: Plan) -> int:
    """The port of the head that the other nodes join by, 0 where the plan does not tell it."""
    others = [port.number for port in plan.ports if "master" in port.purpose]
    return plan.topology.port or (others + [0])[0]


def _shorten(path: str, root: str) -> str:
    return os.path.relpath(path, root) if path.startswith(root.rstrip("/") + "/") else path


def find_folder(root: str) -> str:
    """Where the facts of a checkout's heads lie."""
    return os.path.join(root, records.FOLDER, records.NODES)


def find_path(root: str, name: str) -> str:
    """The file of one plan's head. OperatorError (exit 2) where `name` is no digest."""
    if not _DIGEST.match(name):
        raise OperatorError("%r is no digest" % name, "It is the eight hex digits in the line that `rlrun nodes CONFIG --check` "
                            "prints on the head.", USAGE, "digest")
    return os.path.join(find_folder(root), name + ".json")


def prepare(root: str) -> None:
    """Makes the folder, before the clock is measured in it. OperatorError (exit 5) where that can't be done."""
    folder = find_folder(root)
    try:
        make_folder(folder)
        if os.path.islink(folder):
            raise OSError(17, "it is a link", folder)
    except OSError as error:
        raise _refuse_write(folder, error)


def write(root: str, facts: NodeFacts) -> str:
    """Writes the head's facts, whole or not at all, for its user alone; gives the path. OperatorError (exit 5) where that can't
    be done."""
    path = find_path(root, facts.digest)
    shape: Dict[str, Any] = dict(facts._asdict(), schema=SCHEMA, rlrun_file=_KIND)
    try:
        if os.path.lexists(path) and (os.path.islink(path) or not os.path.isfile(path)):
            raise OSError(17, "something else is there", path)
        record.write_file(path, json.dumps(shape, indent=1, sort_keys=True) + "\n", 0o600)
    except OSError as error:
        raise _refuse_write(path, error)
    return path


def _refuse_write(path: str, error: OSError) -> OperatorError:
    words = error.strerror or os.strerror(error.errno or 0)
    return OperatorError("can't write %s: %s" % (path, words), "The other nodes are checked against it. Look at it: ls -ld %s"
                         % quote_words([path]), MACHINE, "node-facts")


def read(root: str, name: str) -> NodeFacts:
    """The head's facts, as they were written for this plan. OperatorError: exit 2 where `name` is no digest, exit 5 where there
    are none, or what is there is none."""
    path = find_path(root, name)
    hint = "On the head: rlrun nodes CONFIG --check. It writes that file; where this node does not share the checkout, copy it " \
        "to the same place here."
    try:
        data = records.read_file(path, _FILE_BYTES)
    except FileNotFoundError:
        raise OperatorError("the facts of plan %s's head are not here: no %s" % (name, path), hint, MACHINE, "node-facts")
    except OSError as error:
        owner = _describe_owner(path)
        raise OperatorError("can't read %s%s: %s" % (path, owner, error.strerror or os.strerror(error.errno or 0)),
                            "Check it as the user who wrote it, or let the head write it anew as this one. " + hint, MACHINE,
                            "node-facts")
    facts = parse(data.decode("utf-8", "replace"))
    if facts is None or facts.digest != name:
        raise OperatorError("%s does not hold the facts of plan %s's head" % (path, name), hint, MACHINE, "node-facts")
    return facts


def _describe_owner(path: str) -> str:
    try:
        return " (%s's)" % procs.user_name(os.lstat(path).st_uid)
    except OSError:
        return ""


def parse(text: str) -> Optional[NodeFacts]:
    """The facts out of a file's text, each of its type whoever wrote it; None where it holds none."""
    try:
        found = json.loads(text, parse_int=records.parse_int)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.get("rlrun_file") != _KIND or found.get("schema") != SCHEMA:
        return None

    def word(name: str) -> str:
        value = found.get(name)
        return value if isinstance(value, str) and "\0" not in value else ""

    def number(name: str) -> int:
        value = found.get(name)
        return value if type(value) is int and 0 <= value < 65536 else 0
    seconds = found.get("time_seconds")
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < 1e11:
        return None
    dirty = found.get("dirty")
    names = _read_words(found.get("gpus"))
    return NodeFacts(
        word("digest"), word("host"), word("commit"), word("git_reason"), dirty if isinstance(dirty, str) else None,
        _read_pairs(found.get("files")) or {}, word("python"), word("python_version"), _read_pairs(found.get("packages")),
        word("driver"), tuple(names) or None, word("gpu_reason"), word("head"), word("head_variable"), number("port"),
        number("dashboard"), float(seconds), word("server"), _read_offset(found.get("offset")), word("rlrun"),
        tuple(_read_words(found.get("hosts"))))


def _read_words(value: Any) -> List[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _read_pairs(value: Any) -> Optional[Dict[str, str]]:
    return {name: one for name, one in value.items() if isinstance(one, str)} if isinstance(value, dict) else None


def _read_offset(value: Any) -> Optional[clock.Offset]:
    if not isinstance(value, list) or len(value) != 2 or not all(type(one) in (int, float) and abs(one) < 1e11 for one in value):
        return None
    return clock.Offset(float(value[0]), float(value[1]))
