"""Step 6: the launch. Detached for good: nothing that ends rlrun, its terminal or its keeper ends the run."""
import os
import shutil
from typing import Any, Callable, Dict, Iterable, Optional

from ..errors import MACHINE, OperatorError
from ..host import procs
from ..values import Identity, Launch, Plan
from . import keeper, lock, preflight, record, records

_TITLE = b"rlrun: launching"
_SPARE_BYTES = 1 << 30


def keep_old_log(plan: Plan, folder: str) -> str:
    """Copies the earlier run's log into the record, since the launch truncates it. Returns the copy's path.

    Raises OperatorError (exit 5) where there is no room: then nothing is launched.
    """
    target = os.path.join(folder, "earlier-" + os.path.basename(plan.train_log))
    try:
        needed = os.stat(plan.train_log).st_size
        room = os.statvfs(folder)
        if room.f_bavail * room.f_frsize < needed + _SPARE_BYTES:
            raise OperatorError("no room for a copy of %s (%d MiB) in %s" % (plan.train_log, needed >> 20, folder),
                                "Copy it elsewhere yourself and answer --old-log lose, or pin another name in the config.",
                                MACHINE, "log:overwrite")
        shutil.copy2(plan.train_log, target)
    except OSError as error:
        raise record.refuse_write(error, folder)
    return target


def make_environment(plan: Plan, environ: Dict[str, str]) -> Dict[str, str]:
    """The run's environment: the operator's, without the switches that would keep the runner from launching and what --drop-env
    leaves out, with the folder first on PATH that the runner takes its programs from, and with Python's output unbuffered: of
    what is buffered when a trainer is killed, its last words, no log would tell."""
    env = make_runner_environment(environ, plan.drop_env, plan.dropped)
    if plan.path_first:
        env["PATH"] = plan.path_first + os.pathsep + env.get("PATH", os.defpath)
    return env


def make_runner_environment(environ: Dict[str, str], *dropped: Iterable[str]) -> Dict[str, str]:
    """The environment of any runner: without these names, and with Python's output unbuffered."""
    names = {name for some in dropped for name in some}
    env = {name: value for name, value in environ.items() if name and name not in names}  # no name: can't be handed on (`env =x`)
    env.setdefault("PYTHONUNBUFFERED", "1")
    return env


def launch(plan: Plan, paths: record.Paths, held: lock.Lock, environ: Dict[str, str], written: Dict[str, Any],
           link: Optional[Callable[[Callable[[], bool]], Dict[str, Any]]],
           watch: Optional[Callable[[Callable[[], bool]], None]] = None,
           after: Optional[Callable[[Dict[str, Any]], None]] = None) -> Launch:
    """Starts keeper and runner. Raises OperatorError (exit 5) where the runner can't start.

    The lock goes over to the keeper, which lets it go once the runner runs. Signals are held back when this returns: the
    caller heeds them once it can tell of the launch. `link`, `watch`, `after`: see keeper.Job.
    """
    env = make_environment(plan, environ)
    executable = preflight.find_program(plan.argv[0], env)
    keeper.hide_command_line(_TITLE)  # the runner's sweep reads command lines, and ours names the config
    answer = keeper.start(keeper.Job(executable, plan.argv, plan.root, env, paths.record, paths.log_fd,
                                     lock.fileno(held), link, watch, after))
    lock.release(held)
    os.close(paths.log_fd)
    if "pid" not in answer:  # a keeper that was killed in this very moment may have started the runner all the same
        answer = dict((records.read_record(paths.record) or {}).get("keeper") or {}, **answer)
    if "pid" not in answer:
        keeper.heed_signals()
        if not answer.get("errno"):
            raise OperatorError("the keeper ended before it could tell whether the runner started", "Look before you launch "
                                "again: rlrun runs, rlrun probe", MACHINE, "runner")
        raise OperatorError("the runner could not start: %s" % os.strerror(int(answer.get("errno") or 0)),
                            "Tried: %s in %s; its record is %s" % (" ".join(plan.argv), plan.root, paths.record), MACHINE,
                            "runner")
    identity = Identity(int(answer["pid"]), int(answer["start_ticks"]), procs.read_boot_id())
    return Launch(paths.record, paths.launch_log, identity, int(answer["pgid"]), int(answer["keeper"]))


def note_started(started: Launch, written: Dict[str, Any]) -> None:
    """Completes the record: the runner, and what it got of the machine's limits."""
    runner = started.runner
    written.update(state="launched", runner={"pid": runner.pid, "start_ticks": runner.start_ticks, "pgid": started.pgid,
                                             "keeper": started.keeper_pid},
                   limits={"open_files": procs.read_open_files_limit(runner.pid),
                           "open_files_here": procs.read_open_files_limit(os.getpid())})
    save(started.record, written)


def save(folder: str, written: Dict[str, Any]) -> None:
    """Writes record.json again with what is known now. A full disk must not hide a run that lives: keeper.json has it."""
    try:
        record.write_json(folder, "record.json", written)
    except OSError:
        pass
