"""What stands around a launch: a shell, its terminal, a server of terminals; started here, and ended in many ways. Asserts
nothing."""
import contextlib
import os
import shlex
import signal
import subprocess
from typing import Any, Callable, Dict, Iterator, NamedTuple, Sequence

from . import box as b
from .survival import STARTS, Cell

NOBODY = 65534
QUESTION = "Launch with this configuration? [y/N] "
MODE = "Launch mode? [B]ackground (default) / [F]oreground "
_KEEPER = "rlrun: keeper"


class Started(NamedTuple):
    """What stands around a launch that is under way. `pid`: the shell, `session`: its terminal, if it has one."""

    pid: int
    session: Any
    popen: Any


def is_other_user(start: str) -> bool:
    return "another user" in start


def await_(started: Started, condition: Callable[[], Any], what: str) -> Any:
    """As box.wait_for; meanwhile what the terminal shows is read, or whoever writes to it would wait."""
    def look() -> Any:
        if started.session:
            b._read_rest(started.session)
        return condition()
    try:
        return b.wait_for(look, what)
    except AssertionError as failure:
        seen = started.session.seen[-3000:].decode("utf-8", "replace") if started.session else ""
        raise AssertionError("%s; its terminal: %s" % (failure, seen))


def start(box: b.Box, cell: Cell, env: Dict[str, str], files: Dict[str, str], words: Sequence[str], digest: str) -> Started:
    """Starts `words`, a command line of rlrun, in the way of the cell; the yes is typed, or given as the digest."""
    has_terminal, line = STARTS[cell.start]
    words = list(words) + (["--confirm", digest] if line else [])
    with open(files["job"], "w") as out:
        out.write("#!/bin/bash\ncd %s\n%s\necho $? >%s\n" % (shlex.quote(box.root), " ".join(map(shlex.quote, words)),
                                                          shlex.quote(files["code"])))
    os.chmod(files["job"], 0o755)
    line = line.format(job=files["job"], out=files["out"], folder=box.folder, home=box.env["HOME"], nobody=NOBODY)
    if not has_terminal:
        popen = subprocess.Popen(["bash", "-c", line], env=env, cwd=box.root, stdin=subprocess.DEVNULL,
                                 stdout=open(files["out"] + ".shell", "wb"), stderr=subprocess.STDOUT, start_new_session=True)
        return Started(popen.pid, None, popen)
    session = b.open_terminal(["bash", "-l"], env, box.root)
    b.send(session, line + "\n" if line else " ".join(map(shlex.quote, words)) + "; echo $? >%s\n" % files["code"])
    if not line:
        b.expect(session, QUESTION)
        b.send(session, "yes\n")
        b.expect(session, MODE)
        b.send(session, "b\n")
    return Started(session.pid, session, None)


def end(cell: Cell, box: b.Box, started: Started, launching: int, files: Dict[str, str]) -> Started:
    """Does what the cell is about, and waits until it is done. Gives what stands around the launch now."""
    session = started.session
    if cell.end == "terminal closed":
        os.close(session.fd)
        started = started._replace(session=None)
        _wait_shell(started)
    elif cell.end == "SIGHUP to the shell's group":
        os.killpg(started.pid, signal.SIGHUP)
        _wait_shell(started)
    elif cell.end == "SIGHUP to the foreground group":
        os.killpg(os.tcgetpgrp(session.fd) if session else started.pid, signal.SIGHUP)
    elif cell.end == "shell SIGKILLed":
        os.kill(started.pid, signal.SIGKILL)
        _wait_shell(started)
    elif cell.end == "shell exits":
        if session:
            b.send(session, "exit\n")
        _wait_shell(started)
    elif cell.end == "Ctrl-C":
        if session:
            b.send(session, "\x03")
        else:
            os.killpg(os.getpgid(launching), signal.SIGINT)
    elif cell.end in ("rlrun SIGTERMed", "rlrun SIGKILLed"):
        os.kill(launching, signal.SIGTERM if "TERM" in cell.end else signal.SIGKILL)
    elif cell.end == "keeper SIGKILLed":
        for pid in b.find_processes(_KEEPER):
            os.kill(pid, signal.SIGKILL)
        b.wait_for(lambda: not b.find_processes(_KEEPER), "the keeper's end")
    elif cell.end == "pyz deleted":
        os.unlink(files["pyz"])
    elif cell.end == "pyz replaced by garbage":
        with open(files["pyz"], "r+b") as out:
            out.write(b"\0" * os.path.getsize(files["pyz"]))
    elif cell.end == "disk filled under the log":
        fill(name_filler(box))
    elif cell.end in ("tmux kill-server", "tmux server SIGKILLed"):
        server = [pid for pid in b.find_processes("tmux -S " + box.folder) if b.read_state(pid)]
        if "SIGKILL" in cell.end:
            os.kill(server[0], signal.SIGKILL)
        else:
            subprocess.check_call(["tmux", "-S", box.folder + "/tmux", "kill-server"])
        b.wait_for(lambda: not b.is_alive(server[0]), "the end of tmux")
    elif cell.end == "nothing, it returns":
        _wait_shell(started)
    else:
        raise AssertionError(cell.end)
    return started


def _wait_shell(started: Started) -> None:
    if started.popen:
        started.popen.wait(b.LIMIT_SECONDS)
    else:
        await_(started, lambda: not b.is_alive(started.pid), "the end of the shell")


def clear(started: Started) -> None:
    """Takes away what is left of the surroundings."""
    if started.popen:
        started.popen.kill()
        started.popen.wait()
        return
    with contextlib.suppress(OSError):
        os.kill(started.pid, signal.SIGKILL)
        os.waitpid(started.pid, 0)
    if started.session:
        os.close(started.session.fd)


@contextlib.contextmanager
def mount_small_disk(box: b.Box) -> Iterator[None]:
    """A disk of its own under the logs."""
    folder = os.path.join(box.root, "logs")
    os.makedirs(folder, exist_ok=True)
    subprocess.check_call(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder])
    try:
        yield
    finally:
        subprocess.check_call(["umount", "--lazy", folder])


def name_filler(box: b.Box) -> str:
    """The file that fills it."""
    return os.path.join(box.root, "logs", "filler")


def fill(path: str) -> None:
    with open(path, "wb", 0) as out:
        with contextlib.suppress(OSError):
            while True:
                out.write(b"x" * 4096)
