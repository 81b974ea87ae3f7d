"""The cells of the survival table, played: each a real start, a real end, and a look at process table and record. Asserts
nothing.

The toy of a cell waits for files: the runner for `go` before it starts its trainer, so that rlrun reads back until then; the
trainer for `release`, while it leaves a byte in `progress` at every turn.
"""
import contextlib
import json
import os
import shutil
import signal
import subprocess
from typing import Any, Dict, List, Sequence

from checkouts import add_config

from . import box as b
from .surroundings import (NOBODY, Started, await_, clear, end, fill, is_other_user, mount_small_disk, name_filler, start)
from .survival import Cell

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
DRIVER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "driver.py")
_TITLE = "rlrun: launching"
_RUNNER = "scripts/train/train.sh"
# Where rlrun is left to report in its own time.
_AT_EASE = ("terminal, answers typed", "rlrun … | cat", "x=$(rlrun …)")


def add_toy(root: str) -> None:
    """Makes a toy checkout one whose runs wait for files."""
    add_config(root, "train", CONFIG, _CONFIG_TEXT + MODULES)
    with open(os.path.join(root, "stubs/verl/trainer/main_ppo.py"), "w") as out:
        out.write(_TRAINER)


def settle(box: b.Box, uid: int = 0) -> b.Box:
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


def play_cells(box: b.Box, cells: Sequence[Sequence[Any]]) -> List[Dict[str, Any]]:
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


def _play(box: b.Box, cell: Cell, number: int) -> Dict[str, Any]:
    for name in ("go", "release", "progress", "hung-up"):
        if os.path.exists(os.path.join(box.root, name)):
            os.unlink(os.path.join(box.root, name))
    files = {name: os.path.join(box.folder, "%s-%d" % (name, number)) for name in ("job", "out", "code", "pyz", "reports")}
    shutil.copy(box.pyz, files["pyz"])
    env = b.make_env(box, {"SURVIVE_HANGUP": cell.hangup} if cell.hangup else {})
    digest_of(box, env)
    if "disk" not in cell.end:
        return _play_launch(box, cell, env, files)
    with mount_small_disk(box):
        return _play_launch(box, cell, env, files) if cell.when == "up" else _play_full(box, cell, env, files)


def _play_launch(box: b.Box, cell: Cell, env: Dict[str, str], files: Dict[str, str]) -> Dict[str, Any]:
    known = set(list_ids(box))
    started = start(box, cell, env, files, _words(box, files), digest_of(box, env))
    launching = 0
    if cell.when == "back":
        launching = await_(started, find_reading_back, "rlrun reading back")
    else:
        _touch(box, "go")
        if cell.start not in _AT_EASE:
            _hurry(await_(started, find_reading_back, "rlrun reading back"))
        await_(started, lambda: b.read(files["code"]).strip(), "rlrun's report")
    is_full = "disk" in cell.end  # then its own tee may end it in any moment: looked at before
    runs, rows = _read_runs(box, known) if is_full else ([], [])
    started = end(cell, box, started, launching, files)
    _touch(box, "go")
    _wait_for_progress(box, started, is_full)
    if launching and cell.code in (0, None) and b.is_alive(launching):
        _hurry(launching)
    if not is_full:
        runs, rows = _read_runs(box, known)
    else:
        os.unlink(name_filler(box))  # the keeper waits for room, 10 s at a time
    if cell.code is not None:
        await_(started, lambda: b.read(files["code"]).strip(), "rlrun's exit code")
    _touch(box, "release")
    clear(started)
    return _conclude(box, cell, {"runs": runs, "told": [(row["state"], row["runner"]["pid"]) for row in rows],
                                 "out": b.read(files["out"])[-2000:] + b.read(files["out"] + ".shell")[-2000:]}, files, known)


def _read_runs(box: b.Box, known: Any) -> Any:
    """The runners that live, and the launches of this cell as they are told."""
    return find_runners(), [row for row in b.list_runs(box) if row["id"] not in known]


def _hurry(launching: int) -> None:
    """Has rlrun report at once, where it would look on for a few seconds."""
    with contextlib.suppress(OSError):
        os.kill(launching, signal.SIGTERM)


def find_runners() -> List[int]:
    """The runners, without the copies that their shell makes of itself."""
    sessions = b.list_sessions()
    return [pid for pid in b.find_processes(_RUNNER) if sessions.get(pid) == pid]


def _conclude(box: b.Box, cell: Cell, facts: Dict[str, Any], files: Dict[str, str], known: Any) -> Dict[str, Any]:
    """Waits until nothing of it moves any more, and reads the records."""
    b.wait_for(lambda: not b.find_processes("rlrun: ") and not b.find_processes(_RUNNER), "the end of the run")
    states = [row["state"] for row in b.list_runs(box) if row["id"] not in known]
    return dict(facts, cell=list(cell), states=states, code=b.read(files["code"]).strip(),
                hung_up=os.path.exists(os.path.join(box.root, "hung-up")))


def _touch(box: b.Box, name: str) -> None:
    open(os.path.join(box.root, name), "w").close()


def list_ids(box: b.Box) -> List[str]:
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


def _wait_for_progress(box: b.Box, started: Started, may_end: bool) -> None:
    """Until the trainer has gone a few turns further than it is now, or could not."""
    path = os.path.join(box.root, "progress")
    size = os.path.getsize(path) if os.path.exists(path) else 0
    await_(started, lambda: os.path.exists(path) and os.path.getsize(path) > size + 3 or may_end and not find_runners(),
           "the run going on")


def _words(box: b.Box, files: Dict[str, str]) -> List[str]:
    return [box.python, files["pyz"], "run", CONFIG, "--again", "--board", "leave"]


def digest_of(box: b.Box, env: Dict[str, str]) -> str:
    """The plan's digest, asked for once in a box: its name is made anew at each launch, and is not in it."""
    path = os.path.join(box.folder, "digest")
    if not b.read(path):
        done = b.run([box.python, box.pyz, "check", CONFIG, "--json"], env, box.root)
        with open(path, "w") as out:
            out.write(json.loads(done.out)["digest"])
    return b.read(path)


def _play_full(box: b.Box, cell: Cell, env: Dict[str, str], files: Dict[str, str]) -> Dict[str, Any]:
    """A disk of its own under the logs: full already (`before`), or filled once the record is written (`between`)."""
    words = _words(box, files)[1:] + ["--confirm", digest_of(box, env)]
    if cell.when == "before":
        fill(name_filler(box))
        done = b.run([box.python] + words, env, box.root)
        code = done.code
    else:
        with open(files["job"], "w") as out:
            out.write("0:steps/keeper.py:start#1 fill %s\n" % name_filler(box))
        done = b.run([box.python, DRIVER, words[0], files["job"], files["reports"]] + words[1:], env, box.root)
        code = int(b.read(files["reports"]).split()[-1])
    b.add_to_file(files["code"], "%d" % code)
    return _conclude(box, cell, {"runs": find_runners(), "told": [], "out": done.err[-2000:]}, files, set())
