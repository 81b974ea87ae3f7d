"""Lego-RL on a live machine: which process is what, what a launch sweeps away, which boards run."""
import glob
import os
import re
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

from ..host import procs
from ..text.shell import quote_words
from ..values import Board, Process, Role, SweepRule
from .interpreters import read_run

TITLE = "Lego-RL"
# bash waits for its pipeline and heeds none that is sent to it alone, so the group gets it.
STOP_SIGNAL = "INT"
ReadCwd = Callable[[int], Optional[str]]

# scripts/train/train.sh
_RUNNER = re.compile(r"(?:^|/)scripts/(train|eval|infer)/\1\.sh$")
# train/train.sh
_RUNNER_PART = re.compile(r"(train|eval|infer)/\1\.sh$")
_RUNNER_NAMES = ("train.sh", "eval.sh", "infer.sh")
_TRAINER_MODULES = ("verl.experimental.fully_async_policy.fully_async_main", "verl.trainer.main_ppo")
_TRAINER_SCRIPTS = ("verl/experimental/fully_async_policy/fully_async_main.py", "verl/trainer/main_ppo.py")
# Titles that workers give themselves: VLLM::Worker_TP0, VLLM::EngineCore_DP0, EngineCore_0, ray::WorkerDict.update
_WORKER_TITLE = re.compile(r"^(?:VLLM::|EngineCore|ray::(?!IDLE))")
# The kernel's short name, cut to 15 bytes
_WORKER_SHORT = re.compile(r"^(?:VLLM::|EngineCore|ray::)")
_CLUSTER_PROGRAMS = ("raylet", "gcs_server")
# 8090
_PORT = re.compile(r"[0-9]{1,5}\Z")
# The file by which a checkout is known.
_MARK = os.path.join("scripts", "lib", "preflight.sh")
_HARBOR_SCRIPT = "eval_swerebench_filtered.py"

# lib/ray.sh, cleanup_ray_and_shm: pgrep -f of these, then kill -9, sparing the script and its direct parent; and
# `ray stop --force`, which ends every Ray process.
_TRAIN_PATTERN = "VLLM|vllm|EngineCore|raylet|gcs_server|FullyAsync|WorkerDict|fully_async_main|fully_async_policy"
_RAY_STOP_PATTERN = r"^ray::|/ray/dashboard/|/ray/_private/|/ray/autoscaler/_private/|ray-dashboard"
_TRAIN_GLOBS = ("/tmp/ray/*",) + tuple("/dev/shm/" + name for name in (
    "vllm*", "psm_*", "plasma*", "cuda.shm.*", "nccl-*", "torch_*", "sem.*"))


def is_checkout(directory: str) -> bool:
    """Is this directory the root of a Lego-RL checkout?"""
    return os.path.isfile(os.path.join(directory, _MARK))


def make_sweep_rule(kind: str, vllm_log: str) -> SweepRule:
    """What a launch of this kind kills and deletes, by the runner's own rules (facts: lib/ray.sh, eval/lib/vllm.sh)."""
    if kind == "train":
        logs = (glob.escape(vllm_log),) if vllm_log else ()
        return SweepRule((_TRAIN_PATTERN, _RAY_STOP_PATTERN), _TRAIN_GLOBS + logs,
                         "ray stop --force, then kill -9 of every process whose command line contains vllm, VLLM, "
                         "EngineCore, raylet, gcs_server, FullyAsync, WorkerDict or fully_async_*", True)
    if kind == "eval":
        return SweepRule(("vllm serve",), (), 'pkill -9 -f "vllm serve", at its start and again at its end', False)
    return SweepRule((), (), "nothing", True)


def classify(process: Process, read_cwd: ReadCwd) -> Optional[Role]:
    """The Role of a live process, or None. By what its interpreter runs or by the title that it gave itself."""
    run = read_run(process.argv)
    if run.language == "shell":
        kind, _ = _find_runner(run.script, process.pid, read_cwd)
        return Role("lego", "runner", kind) if kind else None
    if run.language == "python":
        if run.module in _TRAINER_MODULES or _is_trainer_script(run.script, process.pid, read_cwd):
            return Role("lego", "trainer", "train")
        if os.path.basename(run.script) == _HARBOR_SCRIPT:
            return Role("lego", "worker", "infer")
        if os.path.basename(run.script) == "vllm" and "serve" in run.arguments[:1]:
            return Role("lego", "worker", "")
        if os.path.basename(run.script) == "harbor" and "run" in run.arguments[:1]:
            return Role("lego", "worker", "eval")
    first = process.argv[0] if process.argv else ""
    program = os.path.basename(first.split(" ")[0])  # a title may carry its options in the first word
    if program in _CLUSTER_PROGRAMS or (not first and process.comm in _CLUSTER_PROGRAMS):
        return Role("lego", "cluster", "")
    if program == "vllm" and "serve" in process.argv[1:2]:
        return Role("lego", "worker", "")
    if _WORKER_TITLE.match(first) or (not first and _WORKER_SHORT.match(process.comm)):
        return Role("lego", "worker", "")
    return None


def _is_trainer_script(script: str, pid: int, read_cwd: ReadCwd) -> bool:
    if os.path.basename(script) not in ("main_ppo.py", "fully_async_main.py"):
        return False
    return script.endswith(_TRAINER_SCRIPTS) or _resolve(script, pid, read_cwd).endswith(_TRAINER_SCRIPTS)


def _find_runner(script: str, pid: int, read_cwd: ReadCwd) -> Tuple[str, str]:
    """(kind, the runner's whole path), two empty words where this is none. A part of a path, and a link, are followed."""
    path = _resolve(script, pid, read_cwd)
    if not os.path.isabs(path):
        # Another user's, whose working directory is hidden: only the words can be judged, and our own must not stand in.
        match = _RUNNER.search(path) or _RUNNER_PART.match(path)
        return (match.group(1), "") if match else ("", "")
    match = _RUNNER.search(path)
    if not match and (os.path.basename(path) in _RUNNER_NAMES or os.path.islink(path)):
        path = os.path.realpath(path)
        match = _RUNNER.search(path)
    return (match.group(1), path) if match and not _is_another_project(path) else ("", "")


def _is_another_project(runner: str) -> bool:
    """Is this script's folder to be seen, and not part of a checkout? A path that can't be read (it is gone, or in another
    container) is believed by its looks."""
    if not os.path.exists(runner):
        return False
    try:
        os.stat(os.path.join(_find_top(runner), _MARK))
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        pass
    return False


def _find_top(runner: str) -> str:
    """The checkout of `<checkout>/scripts/<kind>/<kind>.sh`."""
    return os.path.dirname(os.path.dirname(os.path.dirname(runner)))


def _resolve(script: str, pid: int, read_cwd: ReadCwd) -> str:
    """The script's whole path; as it is written where the working directory can't be read."""
    if os.path.isabs(script):
        return script
    return os.path.normpath(os.path.join(read_cwd(pid) or "", script))


def find_root(process: Process, read_cwd: ReadCwd) -> str:
    """The checkout that a runner works in, "" where it can't be told."""
    script = read_run(process.argv).script
    kind, path = _find_runner(script, process.pid, read_cwd) if script else ("", "")
    if not kind:
        return read_cwd(process.pid) or ""
    return _find_top(path) if path else ""


def is_rehearsal(process: Process, environ: Optional[Dict[str, str]]) -> bool:
    """Is this runner only checking? Its own words say so, or its environment where the script heeds that."""
    if any(word in ("--dry-run", "--preflight-only", "--structure-only") for word in process.argv):
        return True
    for word in read_run(process.argv).arguments:  # the script's own, for to bash -h is another thing
        if word in ("--help", "-h"):
            return True
        if not word.startswith("-"):
            break
    if not environ:
        return False
    # A runner that knows --dry-run resets DRY_RUN at its start, so there the variable says nothing.
    if environ.get("PREFLIGHT_ONLY") == "1" or environ.get("PF_STRUCTURE_ONLY") == "1":
        return True
    return environ.get("DRY_RUN") == "1" and not _knows_dry_run_flag(process, environ)


def _knows_dry_run_flag(process: Process, environ: Dict[str, str]) -> bool:
    script = read_run(process.argv).script
    try:
        with open(os.path.join(environ.get("PWD", "/"), script), "rb") as file:
            return b"--dry-run" in file.read(65536)
    except OSError:
        return True


def name_tree(processes: Iterable[Process], read_cwd: ReadCwd) -> List[Tuple[str, int]]:
    """[(label, pid)] of a run's runner, trainer and vLLM workers, in this order; what a runner forks of itself is no second
    one."""
    table = {process.pid: process for process in processes}
    labels: Dict[int, str] = {}
    for pid, process in table.items():
        role = None if procs.is_dead(process) else classify(process, read_cwd)
        if role and role.role != "cluster":
            labels[pid] = role.role
    rows = [(label, pid) for pid, label in labels.items()
            if label == "worker" or not any(labels.get(above) == label for above in procs.find_ancestors(table, pid))]
    return sorted(rows, key=lambda row: (("runner", "trainer", "worker").index(row[0]), row[1]))


def read_boards(processes: Dict[int, Process], read_cwd: ReadCwd) -> List[Board]:
    """The boards that run now: `python … server.py --log-dir DIR [--extra-log-dir DIR]…` of a `webui` folder."""
    boards = []
    for process in processes.values():
        if procs.is_dead(process):
            continue
        run = read_run(process.argv)
        if run.language != "python" or os.path.basename(run.script) != "server.py":
            continue
        cwd = read_cwd(process.pid) or ""  # hidden: then what is relative to it is unknown, for ours is another
        script = os.path.join(cwd, run.script)
        options = _read_options(list(run.arguments))
        if os.path.basename(os.path.dirname(script)) != "webui" and "--log-dir" not in options:
            continue
        served = [os.path.join(cwd, folder)
                  for name in ("--log-dir", "--extra-log-dir") for folder in options.get(name, ()) if folder]
        if not options.get("--log-dir"):  # its own default
            served.append(os.path.join(os.path.dirname(script), "..", "logs"))
        port = (options.get("--port") or ["8080"])[-1]
        boards.append(Board(process.pid, int(port) if _PORT.match(port) else None,
                            tuple(os.path.realpath(folder) for folder in served if os.path.isabs(folder)), process.uid))
    return sorted(boards)


def _read_options(words: List[str]) -> Dict[str, List[str]]:
    options: Dict[str, List[str]] = {}
    place = 0
    while place < len(words):
        name, equals, value = words[place].partition("=")
        place += 1
        if not name.startswith("--"):
            continue
        if not equals:
            while place < len(words) and not words[place].startswith("--"):
                options.setdefault(name, []).append(words[place])
                place += 1
            options.setdefault(name, [])
        else:
            options.setdefault(name, []).append(value)
    return options


def is_board_name(file_name: str) -> bool:
    """Would the board show a log of this name? (webui/server.py: LOG_EXTENSIONS, SKIP_SUFFIXES, SKIP_PREFIXES)"""
    return (file_name.endswith((".log", ".out")) and not file_name.startswith(("launch_", "."))
            and not file_name.endswith(("_vllm.log", "_train_gpu_wandb.log", "_server.out")))


def describe_stop(pgid: int, facts: Dict[str, object]) -> str:
    """The whole group gets it: see STOP_SIGNAL. A job that runs is told through its batch script, which tells the head's runner
    (--batch: else Slurm would signal every process of it); one that waits is taken out of the queue. Which of them it is may be
    unknown ("pending" is None): then both are told, the second in a comment for the shell."""
    jobs: Any = facts.get("jobs")
    if jobs:
        names, is_pending = [str(job) for job in jobs], facts.get("pending")
        waiting, running = (quote_words(["scancel"] + words + names) for words in ([], ["--batch", "--signal=" + STOP_SIGNAL]))
        if "pending" in facts and is_pending is None:
            return "%s  # while it waits: %s" % (running, waiting)
        return waiting if is_pending else running
    return "kill -%s -- -%d" % (STOP_SIGNAL, pgid)
