"""One node's part of a Slurm job: is this still the plan that was confirmed, and the runner, started and kept until it ends.

Called on each node by the batch script (slurm_job.py), in the environment that Slurm gives a task. Ends nothing but its own
runner's group, by the stop signal that the job hands on to it.
"""
import os
import shutil
import signal
import time
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from .. import child
from ..errors import MACHINE, USAGE, OperatorError
from ..host import address, procs
from ..values import Check, Checkout, Config, Request
from . import digest, job_nodes, keeper, launch, record, records, survey
from .job_nodes import NodeState

_LOOK_SECONDS = 2.0  # at the head's state, by a node that has joined
_SAME_PARTS = ("commit", "dirty files", "launch command")


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
    """How a runner ended; `code` as a shell has it. `is_told`: the step was ended, and its runner with it."""

    code: int
    status: Optional[int]
    signal: str
    is_told: bool


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
    """How this node is now."""
    addresses = address.read_addresses()
    identity = procs.read_identity(os.getpid())
    agent = {"pid": os.getpid(), "start_ticks": identity.start_ticks if identity else 0}
    state = NodeState(task.node, task.host, task.job, task.restart, addresses[0] if addresses else "",
                      "worker" if task.node else "head", phase, agent=agent, time_seconds=time.time())
    return state._replace(**more)


def tell(task: Task, state: NodeState) -> None:
    """Writes how this node is. A full disk or a quota ends no run: then nobody can see it from outside."""
    try:
        job_nodes.write_node(task.folder, state._replace(time_seconds=time.time()))
    except OSError:
        pass


def make_request(task: Task) -> Request:
    """What the operator asked for when the job was handed in, as a run of this node."""
    found = task.record
    dropped: Optional[Dict[str, str]] = {} if "--drop-env" in found["parts"] else None
    return Request(Checkout(found["stack"], found["root"]), Config(found["config_path"], found["config"], found["kind"]), (),
                   dropped=dropped)


def judge_moved(task: Task, found: survey.Survey, secrets: Tuple[str, ...]) -> List[Check]:
    """What is not as it was when the plan was confirmed: a job may have waited for days."""
    then, now = task.record["parts"], digest.shorten_parts(found.fingerprint.parts, secrets)
    moved = [name for name in sorted(set(then) | set(now)) if (name.startswith("file ") or name in _SAME_PARTS)
             and then.get(name) != now.get(name)]
    names = [name[5:] if name.startswith("file ") else name for name in moved]
    if not moved:
        return []
    return [Check("live", "plan:moved", "blocks", "the plan is not the one that was confirmed: %s changed since"
                  % ", ".join(names[:5]), "Check it, and hand it in again: rlrun check %s --slurm" % found.plan.config_shown)]


def keep_earlier_log(task: Task) -> str:
    """Before a second start on the head: a copy of the training log, which the runner truncates, in the record; its path, ""
    where there is none. OperatorError (exit 5) where it can't be had: then nothing is started."""
    log = task.record["train_log"]
    if not task.restart or task.node or not log or not os.path.exists(log):
        return ""
    target = os.path.join(task.folder, "earlier-%d-%s" % (task.restart, os.path.basename(log)))
    try:
        shutil.copy2(log, target)
    except OSError as error:
        raise record.refuse_write(error, task.folder)
    return target


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
        raise FileExistsError(17, "too many logs", folder)
    except OSError as error:
        raise record.refuse_write(error, folder)


class Agent(NamedTuple):
    """What the signals of a running agent need: `pgid` of its runner, once there is one; how often it was told to stop, and
    whether the step itself is being ended."""

    signal: int
    pgid: List[int]
    stops: List[int]
    ends: List[int]


def heed_signals(task: Task) -> Agent:
    """From here on INT and USR1 (from the batch script) stop the runner in good order, TERM (Slurm or srun end the step) too."""
    name = task.record["batch"].get("stop_signal")
    agent = Agent(getattr(signal, "SIG" + str(name), signal.SIGINT), [], [], [])

    def stop(number: int, frame: Any) -> None:
        (agent.ends if number == signal.SIGTERM else agent.stops).append(number)
        _hand_on(agent)
    for number in (signal.SIGINT, signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, stop)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    return agent


def _hand_on(agent: Agent) -> None:
    for pgid in agent.pgid:
        try:
            os.killpg(pgid, agent.signal)
        except OSError:  # it has ended meanwhile
            pass


def start_runner(task: Task, agent: Agent, environ: Dict[str, str]) -> Tuple[NodeState, int]:
    """Starts the runner; the node's state then, and the runner's pid. OperatorError (exit 5) where it can't start."""
    argv = tuple(str(word) for word in task.record["batch"].get("runner_argv") or ())
    env = launch.make_runner_environment(environ, task.record["batch"].get("drop_env") or (), ())
    if not argv:
        raise OperatorError("%s names no runner" % task.folder, "Hand the job in again.", MACHINE, "record")
    from . import preflight
    executable = preflight.find_program(argv[0], env)
    path, log_fd = open_log(task)
    if not task.node:
        name = "head-%s-%d.pid" % (task.job, task.restart)
        try:  # first: the batch script, when it is told to stop, looks here for whom to tell
            record.write_file(os.path.join(task.folder, job_nodes.FOLDER, name), "%d\n" % os.getpid())
        except OSError as error:
            raise record.refuse_write(error, task.folder)
    pid, code = child.exec_detached(argv, task.record["root"], env, log_fd, executable, keeper.raise_open_files)
    os.close(log_fd)
    if pid < 0:
        raise OperatorError("the runner could not start: %s" % os.strerror(code), "Tried: %s in %s" % (
            " ".join(argv), task.record["root"]), MACHINE, "runner")
    agent.pgid.append(pid)
    if agent.stops or agent.ends:  # told before there was anybody to tell
        _hand_on(agent)
    identity = procs.read_identity(pid)
    runner = {"pid": pid, "start_ticks": identity.start_ticks if identity else 0, "pgid": pid}
    state = make_state(task, "running", log=path, runner=runner)
    tell(task, state)
    return state, pid


def wait_for_runner(task: Task, agent: Agent, state: NodeState, pid: int) -> Tuple[NodeState, Ended]:
    """Waits for the runner's end and writes it down: `joined` for a worker whose runner ended with 0, else `ended`."""
    _, status = os.waitpid(pid, 0)
    agent.pgid.clear()
    name = child.signal_name(os.WTERMSIG(status)) if os.WIFSIGNALED(status) else ""
    code = 128 + os.WTERMSIG(status) if name else os.WEXITSTATUS(status)
    ended = Ended(code, None if name else code, name, bool(agent.ends))
    has_joined = task.node > 0 and code == 0
    state = state._replace(phase="joined" if has_joined else "ended", exit={"status": ended.status, "signal": name or None})
    tell(task, state)
    if not task.node and not ended.is_told:
        try:  # what the job ends with, whatever becomes of the other tasks
            record.write_file(os.path.join(task.folder, job_nodes.FOLDER, "head-%s-%d.code" % (task.job, task.restart)),
                              "%d\n" % code)
        except OSError:
            pass
    return state, ended


def stay(task: Task, agent: Agent) -> None:
    """A worker that has joined stays, or Slurm would clear its part of the cluster away: until the head's runner has ended, or
    the step is ended."""
    while not agent.ends:
        head = next((one for one in job_nodes.read_nodes(task.folder, 1) if one.node == 0), None)
        if head and (head.job, head.restart, head.phase) == (task.job, task.restart, "ended"):
            return
        time.sleep(_LOOK_SECONDS)
