"""The one way to run a program: an argv list, no terminal, a time limit, an outcome. Nothing else starts processes.

A program runs in a process group of its own and the whole group is ended with it. Output is read until the program
ends, not until its pipe closes: something that it left behind may hold the pipe for hours.
"""
import errno
import os
import select
import signal
import subprocess
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .values import Outcome

MAX_OUTPUT_BYTES = 8 << 20
_POLL_SECONDS = 0.05
_READ_BYTES = 1 << 16


class Running(NamedTuple):
    """A program that was started and is to be collected with `finish`; `popen` is None where it could not start."""

    argv: Tuple[str, ...]
    popen: Optional["subprocess.Popen[bytes]"]
    failure: Optional[OSError]
    started: float


def start(argv: Sequence[str], *, cwd: Optional[str] = None, env: Optional[Dict[str, str]] = None,
          merge: bool = False, stdin: int = subprocess.DEVNULL) -> Running:
    """Starts a program without waiting. With `merge`, stderr goes into the same pipe as stdout, so order is kept. `stdin`: the
    descriptor of a file that it may read; a file and not a pipe, which would have to be filled meanwhile."""
    caught: List[int] = []
    popen: "Optional[subprocess.Popen[bytes]]" = None
    failure: Optional[OSError] = None
    previous = _hold_signals(caught)
    try:
        try:
            popen = subprocess.Popen(
                list(argv), cwd=cwd, env=env, stdin=stdin, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if merge else subprocess.PIPE, start_new_session=True)
        except (OSError, ValueError) as error:  # ValueError: a NUL byte in an argument
            failure = error if isinstance(error, OSError) else OSError(errno.EINVAL, str(error))
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
        for number in caught:
            previous[number](number, None)
        return Running(tuple(argv), popen, failure, time.monotonic())  # in here: an interrupt at this very word ends it too
    except BaseException:
        if popen:
            end_group(popen)
        raise


def _hold_signals(caught: List[int]) -> Dict[int, Callable[..., Any]]:
    """Collects what would interrupt this process, and gives the handlers to put back: an exception in the middle of a
    start would leave behind a program that nobody knows of."""
    previous: Dict[int, Callable[..., Any]] = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        handler = signal.getsignal(number)
        if callable(handler):  # an ignored one stays ignored, for the program too
            try:
                signal.signal(number, lambda number, frame: caught.append(number))
            except ValueError:  # not the main thread, which alone is interrupted
                break
            previous[number] = handler
    return previous


def finish(running: Running, timeout_seconds: float, max_output_bytes: int = MAX_OUTPUT_BYTES,
           spare_group: bool = False) -> Outcome:
    """Waits for a started program and gives its Outcome; ends its whole group at the limits and on any exception. With
    `spare_group` what a program that ended by itself left behind lives on: a mailer hands over to one that does the work."""
    popen = running.popen
    if popen is None:
        code = running.failure.errno or 0 if running.failure else 0
        return Outcome(running.argv, "unstartable", code, b"", b"", 0.0)
    try:
        how, output, errors, is_held = _collect(popen, running.started + timeout_seconds, max_output_bytes)
    except BaseException:
        end_group(popen)
        raise
    seconds = time.monotonic() - running.started  # without the time that it takes to end it
    if how:
        end_group(popen)
    elif is_held and not spare_group:
        _kill_group(popen.pid)  # what the program left behind in its own group
    for pipe in (popen.stdout, popen.stderr):
        if pipe:
            pipe.close()
    code = popen.returncode if popen.returncode is not None else 0
    if not how:
        how, code = ("killed", -code) if code < 0 else ("ended", code)
    return Outcome(running.argv, how, code, output, errors, seconds)


def run(argv: Sequence[str], timeout_seconds: float, *, cwd: Optional[str] = None,
        env: Optional[Dict[str, str]] = None, merge: bool = False,
        max_output_bytes: int = MAX_OUTPUT_BYTES, stdin: int = subprocess.DEVNULL, spare_group: bool = False) -> Outcome:
    """Runs a program to its end: `start` and `finish` in one."""
    return finish(start(argv, cwd=cwd, env=env, merge=merge, stdin=stdin), timeout_seconds, max_output_bytes, spare_group)


def _collect(popen: "subprocess.Popen[bytes]", deadline: float, limit: int) -> Tuple[str, bytes, bytes, bool]:
    pipes: Dict[int, List[bytes]] = {pipe.fileno(): [] for pipe in (popen.stdout, popen.stderr) if pipe}
    order = list(pipes)
    still_open = set(pipes)
    size = 0
    how = ""
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            how = "timeout"
            break
        has_ended = popen.poll() is not None
        # Once the program has ended, take what is in the pipes and wait for no more.
        wait = 0 if has_ended else min(left, _POLL_SECONDS)
        ready = select.select(list(still_open), [], [], wait)[0] if still_open else []
        if not still_open and not has_ended:
            try:
                popen.wait(left)
            except subprocess.TimeoutExpired:
                continue
        for fd in ready:
            chunk = os.read(fd, _READ_BYTES)
            if not chunk:
                still_open.discard(fd)
                continue
            pipes[fd].append(chunk)
            size += len(chunk)
        if size > limit:
            how = "overflow"
            break
        if has_ended and not ready:
            break
    output = b"".join(pipes[order[0]])
    errors = b"".join(pipes[order[1]]) if len(order) > 1 else b""
    return how, output, errors, bool(still_open)


def end_group(popen: "subprocess.Popen[bytes]") -> None:
    """Ends a program and its process group: SIGTERM, a short grace, SIGKILL. Never waits for one that can't be killed."""
    for number, grace in ((signal.SIGTERM, 0.5), (signal.SIGKILL, 2.0)):
        try:
            os.killpg(popen.pid, number)
        except OSError:
            pass
        try:
            popen.wait(grace)
        except subprocess.TimeoutExpired:
            continue
    _kill_group(popen.pid)  # what ignored SIGTERM and outlived its parent


def _kill_group(pgid: int) -> None:
    try:
        os.killpg(pgid, signal.SIGKILL)
    except OSError:
        pass


def exec_detached(argv: Sequence[str], cwd: str, env: Dict[str, str], log_fd: int, executable: str,
                  prepare: Callable[[], None] = lambda: None) -> Tuple[int, int]:
    """Starts a program in a session of its own, stdin from nowhere, output to `log_fd`, and nothing else inherited.

    Returns (pid, 0), or (-1, errno) where it could not start. Every signal gets its default disposition: bash can not
    undo an ignored SIGINT for its children, and then no `kill -INT` would ever stop the run. `prepare` is called in the new
    process, which is its session's leader by then; an OSError of it means that the program is not started. Imports nothing.
    """
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            prepare()
            nowhere = os.open(os.devnull, os.O_RDONLY)
            os.dup2(nowhere, 0)
            os.dup2(log_fd, 1)
            os.dup2(log_fd, 2)
            for name in os.listdir("/proc/self/fd"):  # the exec closes them: a lock among them is held until it is the program
                if int(name) > 2:
                    try:
                        os.set_inheritable(int(name), False)
                    except OSError:  # the listing's own
                        pass
            for number in range(1, signal.NSIG):
                try:
                    signal.signal(number, signal.SIG_DFL)
                except (OSError, ValueError):
                    pass
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.chdir(cwd)
            os.execve(executable, list(argv), env)
        except Exception as error:  # ValueError: a NUL, a name that is none
            os.write(tell, str(getattr(error, "errno", None) or errno.EINVAL).encode())
        finally:
            os._exit(127)
    os.close(tell)
    failure = b""
    while True:  # ends when the pipe closes at the exec
        chunk = os.read(told, 32)
        if not chunk:
            break
        failure += chunk
    os.close(told)
    if failure:
        os.waitpid(pid, 0)
        return -1, int(failure)
    return pid, 0


def describe(outcome: Outcome) -> str:
    """One phrase for how a program went: `ended 2`, `killed by SIGKILL`, `no answer within 20 s`, …"""
    if outcome.how == "ended":
        return "ended %d" % outcome.code
    if outcome.how == "killed":
        return "killed by %s" % signal_name(outcome.code)
    if outcome.how == "timeout":
        return "no end within %.0f s" % outcome.seconds
    if outcome.how == "overflow":
        return "printed more than %d MiB" % (MAX_OUTPUT_BYTES >> 20)
    return "could not start (%s)" % os.strerror(outcome.code)


def signal_name(number: int) -> str:
    """`SIGKILL` for 9; `signal 77` for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal %d" % number
