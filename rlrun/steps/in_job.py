"""One node's part of a Slurm job: the runner, started and kept until it ends, and how the node is, written down.

Called on each node by the batch script (slurm_job.py), in the environment that Slurm gives a task. Ends nothing but its own
runner's group, by the stop signal that the job hands on to it.
"""
import errno
import os
import shutil
import signal
import time
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from .. import child
from ..errors import INTERRUPTED, MACHINE, USAGE, OperatorError
from ..host import address, procs
from ..text.redact import find_secrets, redact
from . import job_nodes, keeper, launch, preflight, record, records
from .job_nodes import NodeState

_LOOK_SECONDS = 2.0  # at the head's state, by a node that has joined
_HEED_SECONDS = 0.1
_SPARE_BYTES = 1 << 30
_OURS = ("RLRUN_RECORD", "RLRUN_PYTHON", "RLRUN_PYZ")
# What each signal that comes means: the batch script sends the first two, Slurm or srun the last one, to all of a step.
_MEANINGS = {signal.SIGUSR1: "the time limit was near", signal.SIGINT: "told to stop", signal.SIGTERM: "the step was ended"}


class Task(NamedTuple):
    """Where this process is: the record's folder and what it holds, and the place in the job."""

    folder: str
    record: Dict[str, Any]
    node: int
    total: int
    host: str
    job: str
    restart: int


class Ended(NamedTuple):
    """How a runner ended; `code` as a shell has it. `told`: why it had been told to end, "" where it had not; `is_step`: all of
    the step was, and so whatever ended in it is not this node's fault."""

    code: int
    status: Optional[int]
    signal: str
    told: str
    is_step: bool


def read_task(environ: Mapping[str, str]) -> Task:
    """The task that the environment names. OperatorError: exit 2 where this is no job's, exit 5 where its record is gone."""
    folder = environ.get("RLRUN_RECORD", "")
    numbers = {name: environ.get("SLURM_" + name, "") for name in ("NODEID", "JOB_NUM_NODES", "JOB_ID")}
    if not folder or not all(word.isdecimal() and len(word) < 18 for word in numbers.values()):
        raise OperatorError("this is no task of a job that rlrun handed in", "The batch script calls it, on each node: rlrun run "
                            "CONFIG --slurm", USAGE, "usage")
    found = records.read_record(folder)
    if not found or not isinstance(found.get("batch"), dict) or not found["root"]:
        raise OperatorError("%s is no record of a job, or can't be read on this node" % folder, "The checkout must lie on a file "
                            "system that all nodes of the job share.", MACHINE, "record")
    restart = environ.get("SLURM_RESTART_COUNT", "")
    return Task(folder, found, int(numbers["NODEID"]), int(numbers["JOB_NUM_NODES"]),
                environ.get("SLURMD_NODENAME") or address.read_short_host_name(), numbers["JOB_ID"],
                int(restart) if restart.isdecimal() and len(restart) < 6 else 0)


def make_state(task: Task, phase: str, **more: Any) -> NodeState:
    """How this node is now: what it told before of this start, and what is new. Asks `hostname -I` once."""
    before = job_nodes.read_node(task.folder, task.node)
    if before is None or (before.host, before.job, before.restart) != (task.host, task.job, task.restart):
        addresses = address.read_addresses()
        before = NodeState(task.node, task.host, task.job, task.restart, addresses[0] if addresses else "",
                           "worker" if task.node else "head", phase)
    identity = procs.read_identity(os.getpid())
    agent = {"pid": os.getpid(), "start_ticks": identity.start_ticks if identity else 0}
    return before._replace(phase=phase, agent=agent, time_seconds=time.time(), **more)


def make_blocking(error: OperatorError) -> Tuple[Dict[str, str], ...]:
    """What keeps a node out, as its state tells it."""
    secrets = find_secrets(os.environ)
    return ({"name": error.reason, "detail": redact(error.message, secrets), "fix": redact(error.hint, secrets)},)


def tell(task: Task, state: NodeState) -> str:
    """Writes how this node is. A full disk or a quota ends no run: then nobody can see it from outside, for the reason that is
    returned."""
    try:
        job_nodes.write_node(task.folder, state._replace(time_seconds=time.time()))
    except OSError as error:
        return os.strerror(error.errno or 0)
    return ""


def keep_earlier_log(task: Task) -> str:
    """Before a second start on the head: a copy of the training log, which the runner truncates, in the record; its path, ""
    where there is none. OperatorError (exit 5) where it can't be had: then nothing is started."""
    log = task.record["train_log"]
    if not task.restart or task.node or not log or not os.path.isfile(log):
        return ""
    target = os.path.join(task.folder, "earlier-%d-%s" % (task.restart, os.path.basename(log)))
    if os.path.lexists(target):  # of a job that was handed in anew by hand
        target = os.path.join(task.folder, "earlier-%s-%d-%s" % (task.job, task.restart, os.path.basename(log)))
    try:
        room = os.statvfs(task.folder)
        if room.f_bavail * room.f_frsize < os.stat(log).st_size + _SPARE_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), target)
        shutil.copy2(log, target)
    except OSError as error:
        raise record.refuse_write(error, task.folder)
    return target


def is_private(log: str) -> bool:
    """May nobody else read this log? Then nothing of it goes into one that others may read."""
    try:
        return not os.stat(log).st_mode & 0o044
    except OSError:
        return True


def open_log(task: Task) -> Tuple[str, int]:
    """This node's own launch log, new, as private as that of the launch. OperatorError (exit 5) where it can't be made."""
    folder, stamp = os.path.join(task.record["root"], "logs"), task.record["time"] or record.make_stamp(time.time())
    try:
        mode = os.stat(task.record["launch_log"]).st_mode & 0o666
    except OSError:
        mode = 0o600
    try:
        for number in range(1, 1000):
            path = os.path.join(folder, "launch_%s_%s%s.log" % (stamp, task.host, "" if number == 1 else "-%d" % number))
            try:
                return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, mode)
            except FileExistsError:
                continue
        raise FileExistsError(errno.EEXIST, "too many logs", folder)
    except OSError as error:
        raise record.refuse_write(error, folder)


class Agent(NamedTuple):
    """What the signals of a running agent need: the stop signal, the group of its runner once there is one, what came."""

    signal: int
    pgid: List[int]
    came: List[int]


def heed_signals(stop_signal: str) -> Agent:
    """From here on INT and USR1 (from the batch script) stop the runner in good order, TERM (Slurm or srun end the step) too."""
    agent = Agent(getattr(signal, "SIG" + stop_signal, signal.SIGINT), [], [])

    def stop(number: int, frame: Any) -> None:
        agent.came.append(number)
        _hand_on(agent)
    for number in _MEANINGS:
        signal.signal(number, stop)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    return agent


def _hand_on(agent: Agent) -> None:
    for pgid in agent.pgid:
        try:
            os.killpg(pgid, agent.signal)
        except OSError:  # it has ended meanwhile
            pass


def is_step_ended(agent: Agent) -> bool:
    """Was all of the step told to end?"""
    return signal.SIGTERM in agent.came


def describe_told(agent: Agent) -> str:
    """Why this node was told to stop, by what came first; "" where it was not."""
    return _MEANINGS[signal.Signals(agent.came[0])] if agent.came else ""


def start_runner(task: Task, agent: Agent, environ: Dict[str, str]) -> Tuple[NodeState, int]:
    """Starts the runner; the node's state then, and the runner's pid. OperatorError where it is not started: exit 5 where it
    can't be, exit 130 where the job was told to stop before."""
    told = task.record["batch"].get("runner_argv")
    argv = tuple(str(word) for word in told) if isinstance(told, list) else ()
    env = launch.make_runner_environment(environ, task.record["batch"].get("drop_env") or (), _OURS)
    if not argv:
        raise OperatorError("%s names no runner" % task.folder, "Hand the job in anew.", MACHINE, "record")
    executable = preflight.find_program(argv[0], env)
    path, log_fd = open_log(task)
    state = make_state(task, "running", log=path)
    if not task.node:  # first: the batch script, when it is told to stop, looks here for whom to tell
        _write_head(task, "pid", os.getpid())
    if agent.came:
        os.close(log_fd)
        raise OperatorError("%s before its runner was started" % describe_told(agent), "", INTERRUPTED, "interrupted")

    def prepare() -> None:
        """In the process that becomes the runner: no run lives that no record tells of."""
        keeper.raise_open_files()
        job_nodes.write_node(task.folder, _add_runner(state, os.getpid()))
    pid, code = child.exec_detached(argv, task.record["root"], env, log_fd, executable, prepare)
    os.close(log_fd)
    if pid < 0:
        raise OperatorError("the runner could not start: %s" % os.strerror(code), "Tried: %s in %s; its record is %s" % (
            " ".join(argv), task.record["root"], task.folder), MACHINE, "runner")
    agent.pgid.append(pid)
    if agent.came:  # told before there was anybody to tell
        _hand_on(agent)
    return _add_runner(state, pid), pid


def _add_runner(state: NodeState, pid: int) -> NodeState:
    identity = procs.read_identity(pid)
    return state._replace(runner={"pid": pid, "start_ticks": identity.start_ticks if identity else 0, "pgid": pid})


def _write_head(task: Task, name: str, number: int) -> None:
    """A number for the batch script, which reads no JSON. OperatorError (exit 5) where it can't be written."""
    path = os.path.join(task.folder, job_nodes.FOLDER, "head-%s-%d.%s" % (task.job, task.restart, name))
    try:
        record.write_file(path, "%d\n" % number)
    except OSError as error:
        raise record.refuse_write(error, task.folder)


def wait_for_runner(task: Task, agent: Agent, state: NodeState, pid: int) -> Tuple[NodeState, Ended]:
    """Waits for the runner's end and writes it down: `joined` for a worker whose runner ended with 0, else `ended`. What is
    left of the group of one that was killed gets the stop signal."""
    how = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    if how is None or how.si_code != os.CLD_EXITED:  # killed: what it ran is nobody's now, and not every Slurm clears that away
        _hand_on(agent)
    agent.pgid.clear()  # before its number can be another's
    _, status = os.waitpid(pid, 0)
    name = child.signal_name(os.WTERMSIG(status)) if os.WIFSIGNALED(status) else ""
    code = 128 + os.WTERMSIG(status) if name else os.WEXITSTATUS(status)
    ended = Ended(code, None if name else code, name, describe_told(agent), is_step_ended(agent))
    has_joined = task.node > 0 and code == 0
    if not ended.is_step and not has_joined:
        try:  # what the job ends with, whatever becomes of the other tasks
            _write_head(task, "failed" if task.node else "code", code)
        except OperatorError:  # then srun tells it
            pass
    state = state._replace(phase="joined" if has_joined else "ended",
                           exit={"status": ended.status, "signal": name or None, "told": ended.told})
    tell(task, state)
    return state, ended


def stay(task: Task, agent: Agent) -> None:
    """A worker that has joined stays, or Slurm would clear its part of the cluster away: until the head's runner has ended, or
    this node is told to end."""
    while True:
        head = job_nodes.read_node(task.folder, 0)
        if head and (head.job, head.restart, head.phase) == (task.job, task.restart, "ended"):
            return
        ends = time.monotonic() + _LOOK_SECONDS
        while time.monotonic() < ends:
            if agent.came:
                return
            time.sleep(_HEED_SECONDS)
