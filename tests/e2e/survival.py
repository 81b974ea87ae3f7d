"""The survival table: ways of starting a launch, ways of ending what started it, and what is left then. Asserts nothing.

Inside a box `play_cells` plays its cells one after the other: each a real start, a real end, and a look at process table and
record. With SURVIVAL_TABLE=FILE the tests add a line of JSON for each outcome to FILE, and

    python tests/e2e/survival.py FILE

prints the table of them: no row of it is written by hand.

The toy of a cell waits for files: the runner for `go` before it starts its trainer, so that rlrun reads back until then; the
trainer for `release`, while it leaves a byte in `progress` at every turn.
"""
import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence

if __name__ != "__main__":
    from checkouts import add_config

    from . import box as b

MODULES = "TEMPLATE_MODULES=(runtime/process.env backend/k8s.env harbor/common.env verl/common.env)\n"
CONFIG = "survive"
_CONFIG_TEXT = """\
PROJECT_NAME=toy
EXP_NAME=survive-$(date +%s%N)
if [ "$DRY_RUN" != 1 ]; then while [ ! -e "$REPO_ROOT/go" ]; do sleep 0.05; done; fi
"""
_TRAINER = """\
import os, signal, sys, time
root = os.environ["REPO_ROOT"]
def fall(number, frame):
    open(os.path.join(root, "hung-up"), "w").close()
    sys.exit(129)
how = os.environ.get("SURVIVE_HANGUP", "")
if how:  # own: torchrun's agent ends itself so; default: undoes what a nohup in front would have done
    signal.signal(signal.SIGHUP, fall if how == "own" else signal.SIG_DFL)
print("toy trainer: waits", flush=True)
with open(os.path.join(root, "progress"), "ab", 0) as out:
    while not os.path.exists(os.path.join(root, "release")):
        out.write(b".")
        time.sleep(0.02)
        print("toy trainer: still here" + " and there" * 200, flush=True)
"""
NOBODY = 65534
QUESTION = "Launch with this configuration? [y/N] "
MODE = "Launch mode? [B]ackground (default) / [F]oreground "
DRIVER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "driver.py")
_TITLE = "rlrun: launching"
_KEEPER = "rlrun: keeper"
_RUNNER = "scripts/train/train.sh"


class Cell(NamedTuple):
    """One cell: how it is started, what ends its surroundings and when (`back`: while rlrun reads back, `up`: when it has
    reported, `before` and `between`: see play_full), and what is to be left. `code`: rlrun's, None where nobody can tell."""

    start: str
    end: str
    when: str = "up"
    code: Optional[int] = 0
    runs: int = 1
    state: str = "ended 0"
    hangup: str = ""  # what the trainer does about SIGHUP: nothing, "own", "default"


class Started(NamedTuple):
    """What stands around a launch that is under way. `pid`: the shell, `session`: its terminal, if it has one."""

    pid: int
    session: Any
    popen: Any


# By name: has it a terminal, and the line that its shell is given. {job} is a script that runs rlrun and keeps its exit code.
STARTS = {
    "terminal, answers typed": (True, ""),
    "terminal, --confirm": (True, "{job}"),
    "rlrun … | cat": (False, "{job} 2>&1 | cat >{out}"),
    "x=$(rlrun …)": (False, "x=$({job} 2>&1); printf '%s' \"$x\" >{out}"),
    "bash -c, no terminal": (False, "{job}; true"),
    "script -qc": (True, "script -qc {job} /dev/null"),
    "tmux": (False, "tmux -S {folder}/tmux -f /dev/null new-session -d sleep 1000 \\; new-window {job}"),
    "su, another user": (True, "su -s /bin/bash nobody -c 'HOME={home} {job}'"),
    "setpriv, another user": (False, "setpriv --reuid={nobody} --regid={nobody} --clear-groups -- env HOME={home} {job}; true"),
    "nohup … &": (True, "nohup {job} >{out} 2>&1 </dev/null &"),
    "setsid": (True, "setsid {job} >{out} 2>&1 </dev/null"),
    "( … & ), then exit": (False, "({job} >{out} 2>&1 &)"),
}
# Where rlrun is left to report in its own time.
_AT_EASE = ("terminal, answers typed", "rlrun … | cat", "x=$(rlrun …)")
# Played by test_cron.py; its outcomes come into the same file.
ELSEWHERE = ("cron", "at")


def is_other_user(start: str) -> bool:
    return "another user" in start


def add_toy(root: str) -> None:
    """Makes a toy checkout one whose runs wait for files."""
    add_config(root, "train", CONFIG, _CONFIG_TEXT + MODULES)
    with open(os.path.join(root, "stubs/verl/trainer/main_ppo.py"), "w") as out:
        out.write(_TRAINER)


def settle(box: "b.Box", uid: int = 0) -> "b.Box":
    """The same box with checkout and pyz where other users may look, the checkout owned by this one."""
    if not os.path.ismount("/srv"):
        subprocess.check_call(["mount", "-t", "tmpfs", "tmpfs", "/srv"])
        os.chmod("/srv", 0o755)
    folder = "/srv/%d" % uid
    os.makedirs(folder + "/home")
    shutil.copytree(box.root, folder + "/checkout", symlinks=True)
    shutil.copy(box.pyz, folder + "/tool.pyz")
    subprocess.check_call(["chown", "-R", "%d:%d" % (uid, uid), folder])
    subprocess.check_call(["chmod", "-R", "a+rX", folder])
    python = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else box.python
    return b.Box(folder + "/checkout", python, folder + "/tool.pyz", dict(box.env, HOME=folder + "/home"), folder)


def demote(uid: int) -> None:
    """For a child before its exec: from here on it is this user."""
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)


def play_cells(box: "b.Box", cells: Sequence[Sequence[Any]]) -> List[Dict[str, Any]]:
    """Plays these cells, one after the other; gives what came of each."""
    told = []
    boxes = {False: box._replace(pyz=os.path.join(box.folder, "tool.pyz"))}
    shutil.copy(box.pyz, boxes[False].pyz)
    for cell in [Cell(*one) for one in cells]:
        is_other = is_other_user(cell.start)
        if is_other and is_other not in boxes:
            boxes[is_other] = settle(box, NOBODY)
        told.append(_play(boxes[is_other], cell, len(told)))
    return told


def _play(box: "b.Box", cell: Cell, number: int) -> Dict[str, Any]:
    for name in ("go", "release", "progress", "hung-up"):
        if os.path.exists(os.path.join(box.root, name)):
            os.unlink(os.path.join(box.root, name))
    files = {name: os.path.join(box.folder, "%s-%d" % (name, number)) for name in ("job", "out", "code", "pyz", "reports")}
    shutil.copy(box.pyz, files["pyz"])
    env = b.make_env(box, {"SURVIVE_HANGUP": cell.hangup} if cell.hangup else {})
    digest_of(box, env)
    if "disk" not in cell.end:
        return _play_launch(box, cell, env, files)
    with _small_disk(box):
        return _play_launch(box, cell, env, files) if cell.when == "up" else _play_full(box, cell, env, files)


def _play_launch(box: "b.Box", cell: Cell, env: Dict[str, str], files: Dict[str, str]) -> Dict[str, Any]:
    known = set(list_ids(box))
    started = _start(box, cell, env, files)
    launching = 0
    if cell.when == "back":
        launching = _await(started, find_reading_back, "rlrun reading back")
    else:
        _touch(box, "go")
        if cell.start not in _AT_EASE:
            _hurry(_await(started, find_reading_back, "rlrun reading back"))
        _await(started, lambda: b.read(files["code"]).strip(), "rlrun's report")
    started = _end(cell, box, started, launching, files)
    _touch(box, "go")
    _wait_for_progress(box, started)
    if launching and cell.code == 0 and not b.read(files["code"]):
        _hurry(launching)
    runs = find_runners()
    states = [row["state"] for row in b.list_runs(box) if row["id"] not in known]
    if "disk" in cell.end:
        os.unlink(_filler(box))  # the keeper waits for room, 10 s at a time
    if cell.code is not None:
        _await(started, lambda: b.read(files["code"]).strip(), "rlrun's exit code")
    _touch(box, "release")
    _clear(started)
    return _conclude(box, cell, {"runs": len(runs), "alive": states, "out": b.read(files["out"] + (".shell" if not started.session and started.popen else ""))[-2000:]}, files, known)


def _hurry(launching: int) -> None:
    """Has rlrun report at once, where it would look on for a few seconds."""
    with contextlib.suppress(OSError):
        os.kill(launching, signal.SIGTERM)


def _await(started: "Started", condition: Callable[[], Any], what: str) -> Any:
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


def find_runners() -> List[int]:
    """The runners, without the copies that their shell makes of itself."""
    sessions = b.list_sessions()
    return [pid for pid in b.find_processes(_RUNNER) if sessions.get(pid) == pid]


def _conclude(box: "b.Box", cell: Cell, facts: Dict[str, Any], files: Dict[str, str], known: Any) -> Dict[str, Any]:
    """Waits until nothing of it moves any more, and reads the records."""
    b.wait_for(lambda: not b.find_processes("rlrun: ") and not b.find_processes(_RUNNER), "the end of the run")
    states = [row["state"] for row in b.list_runs(box) if row["id"] not in known]
    return dict(facts, cell=list(cell), states=states, code=b.read(files["code"]).strip(),
                hung_up=os.path.exists(os.path.join(box.root, "hung-up")))


def _touch(box: "b.Box", name: str) -> None:
    open(os.path.join(box.root, name), "w").close()


def list_ids(box: "b.Box") -> List[str]:
    folder = os.path.join(box.root, "logs/rlrun")
    return os.listdir(folder) if os.path.isdir(folder) else []


def find_reading_back() -> int:
    """The pid of the rlrun that has launched and waits for what the run says; 0 where there is none yet."""
    if b.find_processes(_RUNNER):
        for pid in b.find_processes(_TITLE):
            held = b.read("/proc/%d/status" % pid).partition("SigBlk:\t")[2][:16]
            if held and not int(held, 16):
                return pid
    return 0


def _wait_for_progress(box: "b.Box", started: Started) -> None:
    """Until the trainer has gone a few turns further than it is now."""
    path = os.path.join(box.root, "progress")
    size = os.path.getsize(path) if os.path.exists(path) else 0
    _await(started, lambda: os.path.exists(path) and os.path.getsize(path) > size + 3, "the run going on")


def _words(box: "b.Box", files: Dict[str, str]) -> List[str]:
    return [box.python, files["pyz"], "run", CONFIG, "--again", "--board", "leave"]


def digest_of(box: "b.Box", env: Dict[str, str]) -> str:
    """The plan's digest, asked for once in a box: its name is made anew at each launch, and is not in it."""
    path = os.path.join(box.folder, "digest")
    if not b.read(path):
        done = b.run([box.python, box.pyz, "check", CONFIG, "--json"], env, box.root)
        with open(path, "w") as out:
            out.write(json.loads(done.out)["digest"])
    return b.read(path)


def _start(box: "b.Box", cell: Cell, env: Dict[str, str], files: Dict[str, str]) -> Started:
    has_terminal, line = STARTS[cell.start]
    words = _words(box, files)
    if line:
        words += ["--confirm", digest_of(box, env)]
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


def _end(cell: Cell, box: "b.Box", started: Started, launching: int, files: Dict[str, str]) -> Started:
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
        _fill(_filler(box))
    elif cell.end in ("tmux kill-server", "tmux server SIGKILLed"):
        server = [pid for pid in b.find_processes("tmux -S " + box.folder) if b.read_state(pid)]
        if "SIGKILL" in cell.end:
            os.kill(server[0], signal.SIGKILL)
        else:
            subprocess.check_call(["tmux", "-S", box.folder + "/tmux", "kill-server"])
        b.wait_for(lambda: not b.is_alive(server[0]), "the end of tmux")
    elif cell.end != "none":
        raise AssertionError(cell.end)
    return started


def _wait_shell(started: Started) -> None:
    if started.popen:
        started.popen.wait(b.LIMIT_SECONDS)
    else:
        _await(started, lambda: not b.is_alive(started.pid), "the end of the shell")


def _clear(started: Started) -> None:
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


# --- a full disk


@contextlib.contextmanager
def _small_disk(box: "b.Box") -> Iterator[None]:
    folder = os.path.join(box.root, "logs")
    os.makedirs(folder, exist_ok=True)
    subprocess.check_call(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder])
    try:
        yield
    finally:
        subprocess.check_call(["umount", "--lazy", folder])


def _filler(box: "b.Box") -> str:
    return os.path.join(box.root, "logs", "filler")


def _fill(path: str) -> None:
    with open(path, "wb", 0) as out:
        with contextlib.suppress(OSError):
            while True:
                out.write(b"x" * 4096)


def _play_full(box: "b.Box", cell: Cell, env: Dict[str, str], files: Dict[str, str]) -> Dict[str, Any]:
    """A disk of its own under the logs: full already (`before`), or filled once the record is written (`between`)."""
    words = _words(box, files)[1:] + ["--confirm", digest_of(box, env)]
    if cell.when == "before":
        _fill(_filler(box))
        done = b.run([box.python] + words, env, box.root)
        code = done.code
    else:
        with open(files["job"], "w") as out:
            out.write("0:steps/keeper.py:start#1 fill %s\n" % _filler(box))
        done = b.run([box.python, DRIVER, words[0], files["job"], files["reports"]] + words[1:], env, box.root)
        code = int(b.read(files["reports"]).split()[-1])
    with open(files["code"], "w") as out:
        out.write("%d" % code)
    return _conclude(box, cell, {"runs": len(find_runners()), "alive": [], "out": done.err[-2000:]}, files, set())


# --- the table


def add_outcome(start: str, end: str, outcome: str, code: Optional[int], runs: int, states: Sequence[str]) -> None:
    """One line more in the file that SURVIVAL_TABLE names, if it does; written at once, so that several may write."""
    path = os.environ.get("SURVIVAL_TABLE")
    if not path:
        return
    line = json.dumps({"start": start, "end": end, "outcome": outcome, "code": code, "runs": runs, "states": list(states)})
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(fd, line.encode() + b"\n")
    finally:
        os.close(fd)


def describe_end(cell: Cell) -> str:
    """The column: what ended, and when."""
    when = {"back": ", while rlrun reads back", "up": "" if cell.end == "none" else ", after its report"}.get(cell.when, "")
    return {"none": "nothing"}.get(cell.end, cell.end) + when + {
        "own": "; trainer with a SIGHUP handler of its own", "default": "; trainer that sets SIGHUP to its default"}.get(cell.hangup, "")


def render_table(lines: Sequence[str]) -> str:
    """Markdown: a row for each outcome, in the order of the ways of starting."""
    order = list(STARTS) + list(ELSEWHERE)
    rows = [json.loads(line) for line in lines if line.strip()]
    rows.sort(key=lambda row: (order.index(row["start"]) if row["start"] in order else len(order), row["end"]))
    table = ["| started by | what ended | outcome | exit of rlrun | record |", "| --- | --- | --- | --- | --- |"]
    for row in rows:
        code = "-" if row["code"] is None else row["code"]
        table.append("| %s | %s | %s | %s | %s |" % (row["start"].replace("|", "\\|"), row["end"], row["outcome"], code,
                                                   ", ".join(row["states"]) or "none"))
    return "\n".join(table)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as told:
        print(render_table(list(told)))
