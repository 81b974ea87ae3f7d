"""Lego-RL: how one of its runs is doing: which log is which, what the run was set up to do, checkpoints, the other nodes'
directories. Step lines and what they mean stand in lego_signs. Loaded by `status` without the rest, so it imports little.

Formats: scripts/{train,eval,infer} of the public repository, and verl's trainers (August 2026).
"""
import calendar
import os
import re
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from ..host.files import read_head
from ..text.shell import strip_colour
from ..values import Process
from ..vitals import Checkpoint, Outline
from .lego_joining import has_joined, read_joining  # noqa: F401  (the agreement)
from .lego_signs import (FINISHED, GATES, METRICS, SIGNATURES, STAGES, STEP_SECONDS, STOPPED,  # noqa: F401  (the agreement)
                         parse_step, quote_metric)

STEP_KINDS = ("train",)
# step:12 - training/global_step:12 - …
PROGRESS = (br"\bstep:\d+ - ",)
SOURCES = ("train",)
STEP_MARKS = {"train": b"step:"}

# ...-20260629-102114: the stamp of a name that a config made with $(date …)
_STAMPED = re.compile(r"(.+)-(\d{8})-(\d{6})\Z")
# Names of one launch's nodes may lie so far apart; the board pairs them by the same (webui/server.py, _expand_sibling_exp_dirs).
_SIBLING_SECONDS = 600.0
_OTHER_LOGS = ("_vllm.log", "_train_gpu_wandb.log", "_server.out")
# The trainer's log gets what the launch log gets, at the same moment; one that is older is an earlier run's.
_STALE_SECONDS = 5.0
_HEAD_BYTES = 1 << 20
_TAIL_BYTES = 1 << 17

Told = Dict[str, Any]


def list_logs(kind: str, told: Told) -> Dict[str, str]:
    """{name: path}, the one with the step lines first: "train" (of other kinds "eval", "infer"), "launch", "vllm". Until the
    trainer's own log is there the launch log stands for it, and so the same path may come twice: it gets the same lines and
    more. A trainer's log that stopped before the launch log goes on is an earlier run's of the same name (`tee` truncates it
    only when the trainer starts), and the launch log stands for that too."""
    own, launch = told.get("train_log") or "", told.get("launch_log") or ""
    vllm = told.get("vllm_log") or ""
    own = own or _find_trainer_log(told.get("run_dir") or "")
    if not vllm and own.endswith(".log") and _is_file(own[:-4] + "_vllm.log"):
        vllm = own[:-4] + "_vllm.log"
    main = own
    if launch and _is_file(launch) and (not own or _is_older(own, launch) and not _is_part(own, launch)):
        main = launch
    logs = {kind if kind in ("eval", "infer") else "train": main, "launch": launch, "vllm": vllm}
    return {name: path for name, path in logs.items() if path}


def _find_trainer_log(run_dir: str) -> str:
    """The log that bears the name of a run's directory: in it, in its `logs`, or in the checkout's `logs` where the directory is
    the default of trials or checkpoints (<checkout>/harbor_trials/<project>/<experiment>); "" where there is none."""
    folder = os.path.normpath(run_dir) if run_dir else ""
    if os.path.basename(folder) == "logs":
        folder = os.path.dirname(folder)
    name = os.path.basename(folder) + ".log"
    root = os.path.dirname(os.path.dirname(os.path.dirname(folder)))
    places = [os.path.join(folder, name), os.path.join(folder, "logs", name), os.path.join(root, "logs", name)]
    return next((path for path in places if folder and _is_file(path)), "")


def _is_older(path: str, than: str) -> bool:
    """Is this log missing, or was it last written clearly before the other one?"""
    try:
        return not _is_file(path) or os.stat(path).st_mtime + _STALE_SECONDS < os.stat(than).st_mtime
    except OSError:
        return False


def _is_part(path: str, of: str) -> bool:
    """Is the last whole line of a log among the last ones of the other, which gets the same lines and more?"""
    last = [line for line in _read_tail(path).split(b"\n")[:-1] if line.strip()][-1:]
    return bool(last) and last[0] in _read_tail(of)


def _read_tail(path: str) -> bytes:
    if not _is_file(path):
        return b""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
            return file.read(_TAIL_BYTES)
    except OSError:
        return b""


def trace_run(tree: Sequence[Process], read_fd: Callable[[int, int], Optional[str]],
              read_cwd: Callable[[int], Optional[str]]) -> Told:
    """What the live processes of a run that nobody recorded tell of it: {"train_log", "vllm_log", "launch_log", "config", "root",
    "kind", "trials", "nodes"}, as far as they do. `tree`: the runner and what lives below it."""
    from . import lego_live
    from .interpreters import read_run
    roles = [(process, lego_live.classify(process, read_cwd)) for process in tree]
    runner = next((process for process, role in roles if role and role.role == "runner"), None)
    trainer = next((process for process, role in roles if role and role.role == "trainer"), None)
    found: Told = {}
    if runner:
        role = lego_live.classify(runner, read_cwd)
        words = [word for word in read_run(runner.argv).arguments if not word.startswith("-")]
        found = {"kind": role.kind if role else "", "root": lego_live.find_root(runner, read_cwd),
                 "config": _join(read_cwd(runner.pid) or "", words[0] if words else ""),
                 "launch_log": _as_file(read_fd(runner.pid, 1)) or _as_file(read_fd(runner.pid, 2))}
    elif trainer:
        found = {"kind": "train", "root": read_cwd(trainer.pid) or ""}
    for process in tree:
        if process.argv and os.path.basename(process.argv[0]) == "tee" and "train_log" not in found:
            # tee /x/logs/e.log /dev/fd/63: the first file that it opens gets descriptor 3.
            files = [word for word in process.argv[1:] if not word.startswith(("-", "/dev/"))]
            log = _as_file(read_fd(process.pid, 3)) or _join(read_cwd(process.pid) or "", files[0] if files else "")
            if files and os.path.basename(log) == os.path.basename(files[0]):
                found["train_log"] = log
    if found.get("launch_log"):
        from .lego_output import parse_output
        output = parse_output(_cut_setup(_read_head(found["launch_log"])))
        summary, env = output.summary, output.environment
        found["trials"] = _join(found.get("root", ""), env.get("HARBOR_TRIALS_DIR", ""))
        found["nodes"] = _read_count(env.get("NNODES", ""))
        for name, labels in (("train_log", ("train log", "eval log", "infer log")), ("vllm_log", ("vLLM log",))):
            told = next((summary[label] for label in labels if label in summary), "")
            if told and not found.get(name):
                found[name] = _join(found.get("root", ""), told)
    return {name: value for name, value in found.items() if value}


def _as_file(link: Optional[str]) -> str:
    """The path of a descriptor that is open on a file, "" for a pipe, a terminal, a deleted file or none."""
    is_file = link and link.startswith("/") and not link.startswith("/dev/") and not link.endswith(" (deleted)")
    return link if link and is_file else ""


def _read_head(path: str) -> str:
    return read_head(path, _HEAD_BYTES).decode("utf-8", "replace")


def _is_file(path: str) -> bool:
    try:
        return os.path.isfile(path)
    except ValueError:  # a NUL in it, up to Python 3.7
        return False


# === Launch Command ===   (=== Harbor Command === of eval, === Infer Command === of infer): the last thing before the start
_COMMAND_HEAD = re.compile(r"^=== (?:Launch|Harbor|Infer) Command ===\r?\n[^\n]*", re.M)
# Total training steps: 120
_TOTAL = re.compile(r"Total training steps: (\d{1,9})\b")
# total_train_steps: 120   total_train_steps 120
_TOTAL_ASYNC = re.compile(r"\btotal_train_steps:? (\d{1,9})\b")
# Training Progress:   3%|▎         | 3/100 [
_TOTAL_BAR = re.compile(r"Training Progress: +\d{1,3}%\|[^|\n]{0,300}\| *\d+/(\d{1,9}) \[")
# 'enable_rollout_routing_replay': True   of the resolved configuration that the trainer prints
_SHOWN = r"'%s': ('[^'\n]*'|[\w.-]+)"


def _cut_setup(text: str) -> str:
    """What the runner itself printed, up to its launch command; all of it where that is not there."""
    match = _COMMAND_HEAD.search(text)
    return text[:match.end()] if match else text


class _Setup(NamedTuple):
    """What is read of a runner's own output, where there is none."""

    environment: Dict[str, str]
    commands: Dict[str, str]
    block: str
    summary_text: str


_NO_SETUP = _Setup({}, {}, "", "")


def read_outline(kind: str, head: Union[bytes, str], told: Told) -> Outline:
    """Outline of a run, out of the beginning of its launch log, or of its trainer's log where that is all there is."""
    text = head.decode("utf-8", "replace") if isinstance(head, bytes) else head
    setup = _cut_setup(text)
    output: Any = _NO_SETUP  # a trainer's log alone has nothing of the runner's
    if "=== " in setup:
        from .lego_output import parse_output
        output = parse_output(setup)
    env = output.environment
    words = _read_words(next((output.commands[name] for name in ("Launch", "Harbor", "Infer") if name in output.commands), ""))
    shown = strip_colour(text) if len(text) > len(setup) or not env else _read_trainer(kind, told)

    def value(word: str, *names: str) -> str:
        """By the launch command, else the runner's environment, else the configuration that the trainer printed."""
        of_env = next((env[name] for name in names if env.get(name)), "")
        match = None if words.get(word) or of_env else re.search(_SHOWN % re.escape(word.rpartition(".")[2]), shown)
        return words.get(word) or of_env or (match.group(1).strip("'") if match else "")
    trials = {"eval": env.get("EVAL_JOBS_DIR"), "infer": env.get("RESULTS_DIR")}.get(kind) or env.get("HARBOR_TRIALS_DIR", "")
    base = env.get("PWD") or env.get("REPO_ROOT") or told.get("root") or ""  # the trainer works where the runner was started
    block = output.block or output.summary_text
    if kind in ("eval", "infer"):
        nodes = _read_count(env.get("VLLM_NNODES", "")) if kind == "infer" else None
        return Outline(nodes=nodes or 1, trials=_join(base, trials), block=block)
    project, experiment = value("trainer.project_name", "PROJECT_NAME"), value("trainer.experiment_name", "EXP_NAME")
    checkpoints = value("trainer.default_local_dir")
    if not checkpoints and project and experiment:
        checkpoints = os.path.join("checkpoints", project, experiment)
    r3 = value("actor_rollout_ref.rollout.enable_rollout_routing_replay", "ENABLE_R3").lower()
    flags = ("r3",) if r3 in ("1", "true", "yes", "on") else ("r3:off",) if r3 else ()  # a trainer's log alone may not tell
    is_async = ("fully_async" in output.commands.get("Launch", "") or env.get("TRAINING_MODE") == "async"
                or "[ASYNC MAIN]" in shown or "(FullyAsync" in shown)
    total, total_from = _read_total(shown, words, is_async)
    if total is None and len(text) > len(setup) and env:
        # What was given ends before the trainer tells it.
        total, total_from = _read_total(_read_trainer(kind, told), words, is_async)
    return Outline(
        total, total_from, epochs=_read_count(value("trainer.total_epochs", "TOTAL_EPOCHS")),
        nodes=_read_count(env.get("NNODES", "")) or 1, flags=flags, checkpoints=_join(base, checkpoints),
        trials=_join(base, trials), block=block, save_every=_read_count(value("trainer.save_freq", "TRAINER_SAVE_FREQ")),
        test_every=_read_count(value("trainer.test_freq", "TRAINER_TEST_FREQ")))


def _read_trainer(kind: str, told: Told) -> str:
    """The beginning of the log that the trainer writes to, without colour."""
    return strip_colour(_read_head(next(iter(list_logs(kind, told).values()), "")))


def _read_total(shown: str, words: Dict[str, str], is_async: bool) -> Tuple[Optional[int], str]:
    """(steps of the run, where they were read). A fully asynchronous trainer numbers its step lines by the versions of the
    parameters, and total_train_steps counts these; `Total training steps` is the rollouter's there, and counts samples."""
    for pattern, where in ((_TOTAL_ASYNC, "total_train_steps") if is_async else (_TOTAL, "Total training steps"),
                           (_TOTAL_BAR, "the progress bar")):
        found = pattern.findall(shown)
        if found and int(found[-1]) > 0:
            return int(found[-1]), where + " in its log"
    if is_async:
        return None, "a fully asynchronous run: the trainer has not told its total yet, and rollout steps are another unit"
    total = _read_count(words.get("trainer.total_training_steps", ""))
    return (total, "trainer.total_training_steps of its launch command") if total else (None, "")


def _read_words(command: str) -> Dict[str, str]:
    """key=value of a launch command; the last one counts."""
    import shlex
    try:
        parts = shlex.split(command)
    except ValueError:
        parts = command.split()
    pairs = [word.lstrip("+~").partition("=") for word in parts]
    return {key: text.strip("'\"") for key, equals, text in pairs if equals and text not in ("null", "None")}


def _read_count(text: str) -> Optional[int]:
    """A number above 0; None for all else (-1 is how a frequency is switched off)."""
    return int(text) if re.match(r"[0-9]{1,9}\Z", text) and int(text) > 0 else None


def _join(base: str, path: str) -> str:
    return os.path.normpath(os.path.join(base, path)) if path and (base or os.path.isabs(path)) else ""


def find_checkpoint(outline: Outline, told: Told) -> Optional[Checkpoint]:
    """The newest complete checkpoint, None where there is none. latest_checkpointed_iteration.txt is written after a
    checkpoint is whole, so what it names and what is below is complete, and what is above is not. Of an old one that was
    removed to keep few, verl leaves the directory, with its data.pt or empty."""
    folder = outline.checkpoints
    try:
        names = os.listdir(folder) if folder else []
        word = _read_latest(os.path.join(folder, "latest_checkpointed_iteration.txt"))
    except OSError:
        return None
    latest = _read_count(word)
    steps = sorted(int(name[12:]) for name in names if re.match(r"global_step_[0-9]{1,9}\Z", name))
    path = os.path.join(folder.replace("%", "%%"), "global_step_%d")
    complete = [step for step in steps if latest and (step == latest or (step < latest and _holds_weights(path % step)))]
    if not complete:
        return None
    return Checkpoint(complete[-1], path % complete[-1], tuple(path % step for step in steps if latest and step > latest))


def _read_latest(path: str) -> str:
    """What the file says; it is written anew in place, and for a moment is empty."""
    for _ in range(5):
        with open(path, "rb") as file:
            word = file.read(64).decode("ascii", "replace").strip()
        if word:
            break
        time.sleep(0.01)
    return word


def _holds_weights(folder: str) -> bool:
    try:
        return bool(set(os.listdir(folder)) - {"data.pt"})
    except OSError:
        return False


class _Stamp(NamedTuple):
    stem: str
    seconds: float


def find_siblings(told: Told, nodes: int) -> Tuple[str, ...]:
    """The directories that the same launch made on its other nodes: each node makes a name of its own, which differs in the
    stamp. At most nodes - 1, the nearest ones, no more than ten minutes away, none with a trainer's log of its own, and none
    that lies nearer to a directory that has one."""
    mine = _find_run_dir(told)
    stamp = _read_stamp(os.path.basename(mine))
    if nodes < 2 or not mine or stamp is None:
        return ()
    parent = os.path.dirname(mine)
    try:
        names = sorted(os.listdir(parent))
    except OSError:
        return ()
    shared = os.path.dirname(told.get("train_log") or "")
    others: List[Tuple[float, str]] = []
    heads: List[float] = []
    for name in names:
        path, other = os.path.join(parent, name), _read_stamp(name)
        if other is None or other.stem != stamp.stem or path == mine or not os.path.isdir(path):
            continue
        if _has_trainer_log(path, name, shared):
            heads.append(other.seconds)
        else:
            others.append((other.seconds, path))
    near = [(abs(seconds - stamp.seconds), path) for seconds, path in others
            if all(abs(seconds - stamp.seconds) < abs(seconds - head) for head in heads)]
    return tuple(path for away, path in sorted(near)[:nodes - 1] if away <= _SIBLING_SECONDS)


def _find_run_dir(told: Told) -> str:
    """The directory that bears the run's name: its own one, its trials', or the one that its logs lie in."""
    log = told.get("train_log") or ""
    name = os.path.splitext(os.path.basename(log))[0]
    above = os.path.dirname(log)
    candidates = [told.get("run_dir") or "", above, os.path.dirname(above), told.get("trials") or ""]
    found = [one.rstrip("/") for one in candidates if one and _read_stamp(os.path.basename(one.rstrip("/")))]
    return next((one for one in found if os.path.basename(one) == name), found[0] if found else "")


def _read_stamp(name: str) -> Optional[_Stamp]:
    match = _STAMPED.match(name)
    if not match:
        return None
    try:
        return _Stamp(match.group(1), float(calendar.timegm(time.strptime(match.group(2) + match.group(3), "%Y%m%d%H%M%S"))))
    except ValueError:
        return None


def _has_trainer_log(path: str, name: str, shared: str) -> bool:
    """Does this run directory have a log of a trainer, in itself, in its `logs`, or under its name where ours lies?"""
    if shared and _is_file(os.path.join(shared, name + ".log")):
        return True
    for folder in (path, os.path.join(path, "logs")):
        try:
            entries = os.listdir(folder)
        except OSError:
            continue
        if any(entry.endswith((".log", ".out")) and not entry.endswith(_OTHER_LOGS) and not entry.startswith("launch_")
               for entry in entries):
            return True
    return False
