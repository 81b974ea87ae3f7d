"""The keeper: the runner's direct parent, detached, that waits for its end and writes how it went.

It is forked, never started anew: the pyz may be replaced under it, so it imports nothing after the fork. Nothing that
happens to it touches the runner.
"""
import functools
import json
import os
import resource
import signal
import threading
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from .. import child
from ..host import procs
from ..text.redact import redact
from . import record

_TITLE = b"rlrun: keeper"
_JOIN_SECONDS = 90.0  # a notification that is under way has a minute
_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGTSTP, signal.SIGPIPE)


class Job(NamedTuple):
    """What a keeper is to do. `link` and `watch` are called in threads, with a function that tells whether the run is over;
    `after` when it is, with what exit.json holds."""

    executable: str
    argv: Tuple[str, ...]
    root: str
    environ: Dict[str, str]
    record: str
    log_fd: int
    lock_fd: int
    link: Optional[Callable[[Callable[[], bool]], Dict[str, Any]]]
    watch: Optional[Callable[[Callable[[], bool]], None]] = None
    after: Optional[Callable[[Dict[str, Any]], None]] = None


def start(job: Job) -> Dict[str, Any]:
    """Forks the keeper, which starts the runner. Returns {"pid", "start_ticks", "pgid", "keeper"} of it, or {"errno"}.

    The lock is let go by the keeper once the runner runs, so that no other launch can slip in between. Signals are held
    back from here on (the keeper can not yet ignore them, and rlrun must not say any more that nothing was launched)
    until `heed_signals`.
    """
    told, tell = os.pipe()
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        pid = os.fork()
    except OSError as error:  # no more processes, no more memory
        os.close(told)
        os.close(tell)
        return {"errno": error.errno or 0}
    if pid == 0:
        try:
            os.close(told)
            _keep(job, tell)
        except BaseException:  # the runner goes on, and whoever looks at its record finds this
            _note_bug(job.record)
        finally:
            os._exit(0)
    os.close(tell)
    data = b""
    while True:
        chunk = os.read(told, 4096)
        if not chunk:
            break
        data += chunk
    os.close(told)
    try:
        answer: Dict[str, Any] = json.loads(data.decode("ascii"))
    except ValueError:
        answer = {"errno": 0}
    answer["keeper"] = pid
    return answer


def heed_signals() -> None:
    """Lets in the signals that `start` holds back, in rlrun; one that came meanwhile comes now."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


def _keep(job: Job, tell: int) -> None:
    os.setsid()
    for number in _SIGNALS:
        signal.signal(number, _pass_over)  # not SIG_IGN, which a program that is told of the run would inherit
    heed_signals()
    hide_command_line(_TITLE)
    _let_go_of_files([job.log_fd, job.lock_fd, tell])
    started = time.time()
    try:
        pid, code = child.exec_detached(job.argv, job.root, job.environ, job.log_fd, job.executable,
                                        functools.partial(_prepare_runner, job.record, os.getpid()))
    except OSError as error:
        pid, code = -1, error.errno or 0
    if pid < 0:
        _write_once(job.record, "keeper.json", {"errno": code})  # rlrun is told as well
        os.write(tell, json.dumps({"errno": code}).encode("ascii"))
        return
    identity = procs.read_identity(pid)
    answer = {"pid": pid, "start_ticks": identity.start_ticks if identity else 0, "pgid": pid, "keeper": os.getpid()}
    try:
        os.write(tell, json.dumps(answer).encode("ascii"))
    except OSError:
        pass  # rlrun has been killed meanwhile
    for fd in (tell, job.lock_fd, job.log_fd):
        os.close(fd)
    _wait(job, pid, started)


def _pass_over(number: int, frame: Any) -> None:
    """Nothing that is meant for a terminal's processes ends a keeper."""


def _prepare_runner(folder: str, keeper_pid: int) -> None:
    """In the process that becomes the runner: the record names it before it runs, so that whoever is killed in between, keeper
    or rlrun, no run lives that no record tells of. Where that can't be written, it does not run."""
    identity = procs.read_identity(os.getpid())
    record.write_json(folder, "keeper.json", {"pid": os.getpid(), "start_ticks": identity.start_ticks if identity else 0,
                                              "pgid": os.getpid(), "keeper": keeper_pid})
    raise_open_files()


def raise_open_files() -> None:
    """Raises this process's limit of open files to the hard one."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # beyond what the kernel lets anybody have; the record tells what it is
        pass


def _note_bug(folder: str) -> None:
    try:
        import traceback
        record.write_file(os.path.join(folder, "keeper-bug.txt"), redact(traceback.format_exc()))
    except BaseException:
        pass


def _wait(job: Job, pid: int, started: float) -> None:
    is_over = threading.Event()
    threads = []
    for work, failed in ((_link, "link.json"), (_watch, "")):
        if (job.link if failed else job.watch) is None:
            continue
        thread = threading.Thread(target=work, args=(job, is_over), daemon=True)
        try:
            thread.start()
            threads.append(thread)
        except RuntimeError as error:  # no more threads: the run matters more than its link
            if failed:
                _write_stubbornly(job.record, failed, {"state": "failed", "reason": str(error), "by": "keeper"})
    _, status, usage = os.wait4(pid, 0)
    ended = time.time()
    is_over.set()
    killed = os.WIFSIGNALED(status)
    result = {"schema": record.SCHEMA, "status": None if killed else os.WEXITSTATUS(status),
              "signal": child.signal_name(os.WTERMSIG(status)) if killed else None, "time_seconds": ended,
              "duration_seconds": round(ended - started, 3), "max_rss_kib": usage.ru_maxrss}
    is_written = _write_once(job.record, "exit.json", result)
    for thread in threads:
        thread.join(_JOIN_SECONDS)
    if job.after:  # also where the disk is full: somebody has to know
        try:
            job.after(result)
        except BaseException:
            _note_bug(job.record)
    if not is_written:
        _write_stubbornly(job.record, "exit.json", result)


def _link(job: Job, is_over: "threading.Event") -> None:
    try:
        result = job.link(is_over.is_set) if job.link else {}
    except Exception as error:
        result = {"state": "failed", "reason": "%s: %s" % (type(error).__name__, error)}
    _write_stubbornly(job.record, "link.json", result)


def _watch(job: Job, is_over: "threading.Event") -> None:
    try:
        if job.watch:
            job.watch(is_over.is_set)
    except BaseException:
        _note_bug(job.record)


def _write_once(folder: str, name: str, value: Dict[str, Any]) -> bool:
    try:
        record.write_json(folder, name, value)
    except OSError:
        return False
    return True


def _write_stubbornly(folder: str, name: str, value: Dict[str, Any]) -> None:
    """A disk that is full now may have room in a while; the exit status is worth waiting for."""
    for _ in range(360):
        if _write_once(folder, name, value):
            return
        time.sleep(10)


def _let_go_of_files(keep: List[int]) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        if number > 2 and number not in keep:
            try:
                os.close(number)
            except OSError:
                pass
    os.chdir("/")


def hide_command_line(title: bytes) -> bool:
    """Overwrites this process's command line, as /proc shows it, by `title`.

    A runner's sweep kills by words in command lines, and the config's path may hold such a word: what rlrun was
    started with must not be what ends it. The memory is this process's own (arg_start and arg_end in /proc/self/stat).
    """
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        start, end = int(fields[45]), int(fields[46])
        if not 0 < start < end:
            return False
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            memory.write(title[:end - start - 1].ljust(end - start, b"\0"))
    except (OSError, ValueError, IndexError, OverflowError):
        return False
    with open("/proc/self/cmdline", "rb") as file:
        return file.read().rstrip(b"\0") == title[:end - start - 1]
