"""Inside the box: starts rlrun with and without a terminal, waits for conditions, reads processes. Asserts nothing.

`python -m e2e.box TOLD` plays the scenario that the file TOLD names and prints what it returns. The first process is
no scenario but an init: signals reach it only where it asks for them, and orphans are its children.
"""

import fcntl
import importlib
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import termios
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

LIMIT_SECONDS = 60.0
LOCK = "\0rlrun.launch"
# A run that goes on until it is stopped, and one that is over soon.
LONG = {"TOY_BRINGUP_SEC": "0.1", "TOY_STEPS": "100000", "TOY_STEP_SEC": "0.2", "TOY_TRIALS": "100000", "TOY_TRIAL_SEC": "0.2"}
SHORT = {"TOY_BRINGUP_SEC": "0.1", "TOY_STEPS": "2", "TOY_STEP_SEC": "0.1", "TOY_TRIALS": "2", "TOY_TRIAL_SEC": "0.1"}
# the shell's own line in the report
_STOP = re.compile(r"^  stop: +(.*)$", re.M)


class Box(NamedTuple):
    """Where a scenario plays: the checkout, how rlrun is started, the operator's environment, a folder for files."""

    root: str
    python: str
    pyz: str
    env: Dict[str, str]
    folder: str


class Done(NamedTuple):
    """A program that has ended."""

    code: int
    out: str
    err: str


class Session(NamedTuple):
    """A program on a pseudo-terminal of its own; `seen` collects what it wrote."""

    pid: int
    fd: int
    seen: bytearray


def make_env(box: Box, *changes: Optional[Dict[str, str]]) -> Dict[str, str]:
    env = dict(box.env)
    for change in changes:
        env.update(change or {})
    return env


def run(argv: Sequence[str], env: Dict[str, str], cwd: str, stdin: Any = subprocess.DEVNULL, seconds: float = 90) -> Done:
    """Runs a program to its end, without a terminal."""
    popen = subprocess.Popen(list(argv), env=env, cwd=cwd, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = popen.communicate(timeout=seconds)
    return Done(popen.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))


def rlrun(box: Box, *words: str, env: Optional[Dict[str, str]] = None, cwd: str = "", stdin: Any = subprocess.DEVNULL) -> Done:
    """`python rlrun.pyz words` in the checkout, without a terminal; `env` on top of the box's."""
    return run([box.python, box.pyz] + list(words), make_env(box, env), cwd or box.root, stdin)


def shell(box: Box, line: str, env: Optional[Dict[str, str]] = None, cwd: str = "") -> Done:
    """A line as an operator would paste it."""
    return run(["bash", "-c", line], make_env(box, env), cwd or box.root)


def check(box: Box, config: str, *words: str, env: Optional[Dict[str, str]] = None, cwd: str = "") -> Dict[str, Any]:
    """The object of `check --json`."""
    done = rlrun(box, "check", config, "--json", *words, env=env, cwd=cwd)
    found = json.loads(done.out or "{}")
    if "digest" not in found:
        raise AssertionError("check failed: %s %s" % (done.out, done.err))
    return found


def launch(box: Box, config: str, *words: str, env: Optional[Dict[str, str]] = None) -> Dict[str, Any]:
    """Checks, confirms by digest, launches; the object of `run --json` with the exit code under "code"."""
    found = check(box, config, env=env)
    done = rlrun(box, "run", config, "--json", "--confirm", found["digest"], *(words or ("--board", "leave")), env=env)
    return dict(json.loads(done.out) if done.out else {}, code=done.code, stderr=done.err)


def launch_words(box: Box, *words: str, options: Sequence[str] = (), env: Optional[Dict[str, str]] = None) -> Dict[str, Any]:
    """The same for a stack that takes several configs, and overrides after `--`; what check said is under "checked"."""
    place = words.index("--") if "--" in words else len(words)
    configs, rest = words[:place], words[place:]
    checked = rlrun(box, "check", *configs, "--json", *rest, env=env)
    found = json.loads(checked.out or "{}")
    if "digest" not in found:
        raise AssertionError("check failed: %s %s" % (checked.out, checked.err))
    done = rlrun(box, "run", *configs, "--json", "--confirm", found["digest"], *options, *rest, env=env)
    return dict(json.loads(done.out) if done.out else {}, code=done.code, stderr=done.err, checked=found)


def read_link(folder: str) -> Optional[Dict[str, Any]]:
    """link.json of a record once it says the last word: it is there already while the board is asked."""
    text = read(os.path.join(folder, "link.json"))
    return json.loads(text) if text and "not asked yet" not in text else None


def list_runs(box: Box) -> List[Dict[str, Any]]:
    return json.loads(rlrun(box, "runs", "--json").out)["runs"]


def wait_for(condition: Callable[[], Any], what: str, seconds: float = LIMIT_SECONDS) -> Any:
    """Polls until the condition gives something true, and gives that."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError("waited in vain for: %s" % what)
        time.sleep(0.02)


def wait_for_end(box: Box, number: int = 0) -> str:
    """Waits for the end of a run, by its place among the newest; gives the state that `runs` tells then. It is asked again when
    neither runner nor keeper is left: each question is a start of rlrun."""
    process = list_runs(box)[number]["runner"] or {}
    wait_for(lambda: not any(is_alive(process[name]) for name in ("pid", "keeper") if process.get(name)), "the run's end")
    return str(wait_for(lambda: [row["state"] for row in list_runs(box)[number:number + 1] if row["state"] != "running"],
                        "the word of its end")[0])


def read(path: str, default: str = "") -> str:
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace")
    except OSError:
        return default


def read_state(pid: int) -> str:
    """The letter of the state, "" where there is no such process."""
    stat = read("/proc/%d/stat" % pid)  # once: the process may end between two looks
    return stat.rpartition(")")[2].split(" ")[1] if stat else ""


def is_alive(pid: int) -> bool:
    return read_state(pid) not in ("", "Z", "X")


def list_group(pgid: int) -> List[int]:
    """The live processes of a group."""
    found = []
    for name in os.listdir("/proc"):
        fields = read("/proc/%s/stat" % name).rpartition(")")[2].split() if name.isdigit() else []
        if fields and fields[0] not in "ZX" and int(fields[2]) == pgid:
            found.append(int(name))
    return sorted(found)


def find_processes(word: str) -> List[int]:
    """The live processes with this in their command line, this one aside."""
    return [
        int(name)
        for name in os.listdir("/proc")
        if name.isdigit()
        and int(name) != os.getpid()
        and word in read("/proc/%s/cmdline" % name).replace("\0", " ")
        and is_alive(int(name))
    ]


def list_sessions() -> Dict[int, int]:
    """Session by pid, of all live processes."""
    found = {}
    for name in os.listdir("/proc"):
        fields = read("/proc/%s/stat" % name).rpartition(")")[2].split() if name.isdigit() else []
        if fields and fields[0] not in "ZX":
            found[int(name)] = int(fields[3])
    return found


def describe_process(pid: int) -> Dict[str, Any]:
    """Descriptors, session, terminal, signals, command line of a live process."""
    fields = read("/proc/%d/stat" % pid).rpartition(")")[2].split()
    status = dict(line.split(":\t", 1) for line in read("/proc/%d/status" % pid).splitlines() if ":\t" in line)
    return {
        "fds": {name: os.readlink("/proc/%d/fd/%s" % (pid, name)) for name in sorted(os.listdir("/proc/%d/fd" % pid))},
        "pid": pid,
        "ppid": int(fields[1]),
        "pgid": int(fields[2]),
        "sid": int(fields[3]),
        "tty": int(fields[4]),
        "ignored": int(status["SigIgn"], 16),
        "blocked": int(status["SigBlk"], 16),
        "caught": int(status["SigCgt"], 16),
        "cmdline": read("/proc/%d/cmdline" % pid).replace("\0", " ").strip(),
        "cwd": os.readlink("/proc/%d/cwd" % pid),
    }


def find_stop_line(text: str) -> str:
    """The command after `stop:` in a report."""
    return _STOP.findall(text.replace("\r", ""))[-1].strip()


def count_records(box: Box) -> int:
    folder = os.path.join(box.root, "logs", "rlrun")
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return len([name for name in names if name[:1].isdigit()])  # beside them: saved plans, what unattended launches printed


def count_traces(box: Box) -> Dict[str, Any]:
    """What a launch would leave: records, launch logs, runners."""
    logs = os.listdir(os.path.join(box.root, "logs")) if os.path.isdir(os.path.join(box.root, "logs")) else []
    return {
        "records": count_records(box),
        "launch_logs": len([name for name in logs if name.startswith("launch_")]),
        "runners": len(find_processes("scripts/train/train.sh")),
    }


NOTHING = {"records": 0, "launch_logs": 0, "runners": 0}


def open_terminal(argv: Sequence[str], env: Dict[str, str], cwd: str, before: Optional[Callable[[], None]] = None) -> Session:
    """Starts a program as the leader of a session with a terminal; `before` runs in it first (to redirect, say)."""
    pid, fd = pty.fork()
    if pid == 0:
        try:
            os.chdir(cwd)
            if before:
                before()
            os.execvpe(argv[0], list(argv), dict(env, TERM="dumb"))
        finally:
            os._exit(126)
    return Session(pid, fd, bytearray())


def open_rlrun(
    box: Box, *words: str, env: Optional[Dict[str, str]] = None, before: Optional[Callable[[], None]] = None
) -> Session:
    return open_terminal([box.python, box.pyz] + list(words), make_env(box, env), box.root, before)


def expect(session: Session, text: str, seconds: float = LIMIT_SECONDS) -> str:
    """Reads until the text comes, after all that was expected before; gives what was read, the text included."""
    deadline = time.monotonic() + seconds
    wanted = text.encode("utf-8")
    while wanted not in session.seen:
        if not _read_more(session, deadline):
            raise AssertionError("%r never came; at the end:\n%s" % (text, session.seen[-3000:].decode("utf-8", "replace")))
    end = session.seen.index(wanted) + len(wanted)
    told = bytes(session.seen[:end]).decode("utf-8", "replace")
    del session.seen[:end]
    return told


def _read_more(session: Session, deadline: float) -> bool:
    if time.monotonic() > deadline:
        return False
    if select.select([session.fd], [], [], 0.1)[0]:
        try:
            data = os.read(session.fd, 65536)
        except OSError:  # EIO: nobody has the terminal open any more
            return False
        session.seen.extend(data)
        return bool(data)
    return True


def send(session: Session, text: str) -> None:
    os.write(session.fd, text.encode("utf-8"))


def finish(session: Session, seconds: float = LIMIT_SECONDS) -> Tuple[int, str]:
    """Reads to the end; gives the exit code (or -signal) and what had not been expected."""
    deadline = time.monotonic() + seconds
    while _read_more(session, deadline):
        if os.waitid(os.P_PID, session.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            _read_rest(session)
            break
    code = wait_for(lambda: reap(session.pid), "the end of %d" % session.pid, max(1.0, deadline - time.monotonic()))[0]
    os.close(session.fd)
    return code, session.seen.decode("utf-8", "replace").replace("\r\n", "\n")


def _read_rest(session: Session) -> None:
    while select.select([session.fd], [], [], 0)[0]:
        try:
            data = os.read(session.fd, 65536)
        except OSError:
            return
        if not data:
            return
        session.seen.extend(data)


def reap(pid: int) -> Optional[Tuple[int]]:
    found, status = os.waitpid(pid, os.WNOHANG)
    if not found:
        return None
    return (-os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status),)


def take_terminal(fd: int) -> None:
    """Makes a terminal this session's own."""
    fcntl.ioctl(fd, termios.TIOCSCTTY, 0)


def start_board(box: Box, folder: str, port: int = 8090) -> int:
    """The toy's board, serving; gives its pid."""
    board = subprocess.Popen(
        [sys.executable, os.path.join(box.root, "webui", "server.py"), "--port", str(port), "--log-dir", folder],
        env=make_env(box),
        cwd=box.root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert board.stdout and board.stdout.readline().startswith(b"board:")
    return board.pid


def add_to_file(path: str, text: str) -> None:
    with open(path, "a", encoding="utf-8") as out:
        out.write(text)


def wait_for_the_next_second() -> None:
    """A name that carries the time to the second is then a new one: no log of an earlier launch is in its way."""
    now = int(time.time())
    wait_for(lambda: int(time.time()) > now, "the next second")


def is_lock_free() -> bool:
    """Is no rlrun of the box in the middle of a launch?"""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(LOCK)
        except OSError:
            return False
    return True


def end_runs() -> None:
    """Ends every run of the box, so that the same config can be launched again."""
    for pid in find_processes("scripts/train/train.sh"):
        try:
            os.killpg(os.getpgid(pid), signal.SIGKILL)
        except OSError:  # ended with one before it
            pass
    wait_for(lambda: not find_processes("rlrun: keeper"), "the keeper's end")
    wait_for_the_next_second()


class _NoPytest:
    """Stands in for pytest in a scenario's module: to import that takes longer than to set a box up, and nothing is
    collected here."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *words: Any, **named: Any) -> Any:
        return words[0] if len(words) == 1 and callable(words[0]) else self


def main(path: str) -> int:
    with open(path, encoding="utf-8") as file:
        told = json.load(file)
    pid = os.fork()
    if pid:
        while True:  # an init: whatever ends below it is taken away
            found, status = os.wait()
            if found == pid:
                return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
    os.setsid()  # a terminal that the tests were started from is not the scenario's
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    sys.modules["pytest"] = _NoPytest()  # type: ignore[assignment]
    scenario = getattr(importlib.import_module(told["module"]), told["function"])
    facts = scenario(Box(**told["box"]), **told["given"])
    print("\n=== facts ===\n" + json.dumps(facts), flush=True)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
