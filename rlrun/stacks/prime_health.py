"""prime-rl: where its logs lie, what a run was set up to do, its checkpoints. Reads files; starts and changes nothing.

What a line and a number mean stands in prime_signs.py, whose names are the agreement's too.
Sources: prime_rl of August 2026: utils/pathing.py, templates/*.sbatch.j2, monitors/file.py, {trainer,orchestrator}/ckpt.py.
"""
import os
import re
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from ..host.files import read_head
from ..values import Process
from ..vitals import Checkpoint, Outline
from . import prime_rundir
from .interpreters import read_launched
from .prime_live import name_tree
from .prime_signs import (GATES, METRICS, PROGRESS, SIGNATURES, SOURCES, STEP_KINDS, STEP_MARKS, STEP_SECONDS, load_object,
                          parse_step, quote_metric)

__all__ = ("FINISHED", "GATES", "METRICS", "PROGRESS", "SIGNATURES", "SOURCES", "STAGES", "STEP_KINDS", "STEP_MARKS",
           "STEP_SECONDS", "STOPPED", "find_checkpoint", "find_siblings", "list_logs", "parse_step", "quote_metric",
           "read_outline", "trace_run")

# Inference, environments, orchestrator and trainer start side by side: what says most about what is still to come stands last.
STAGES: Tuple[Tuple[bytes, str], ...] = (
    (rb"Wrote (?:sub)?configs? to ", "the launcher has resolved the config"),
    (rb"Submitted batch job (\d+)", "job {0} is submitted"),
    (rb"Starting inference on GPU\(s\) ([\d ]*\d)", "inference starts on GPU {0}"),
    (rb"Starting (?:train|eval) env server (\S+)", "the environment server {0} starts"),
    (rb"Starting orchestrator process", "the orchestrator starts"),
    (rb"Starting trainer on GPU\(s\) ([\d ]*\d)", "the trainer starts on GPU {0}"),
    (rb"Starting SFT trainer with (\d+) GPU", "the trainer starts on {0} GPUs"),
    (rb"Startup complete\.", "all parts are started"),
    (rb"EnvServerPool up: ", "an environment server is up"),
    (rb"Starting (?:RL|SFT) trainer in ", "the trainer sets itself up"),
    (rb"Initializing model \(", "the trainer loads the model"),
    (rb"Initializing optimizer \(", "the trainer has the model and makes the optimizer"),
    (rb"Train environment\(s\) ready", "the environments are ready"),
    (rb"Waiting for (?:policy )?inference pool to be ready", "the orchestrator waits for inference"),
    (rb"Starting to load model (\S+?)\.{3}", "vLLM loads {0}"),
    (rb"Loading safetensors checkpoint shards: +(\d+)%", "vLLM loads weights: {0} %"),
    (rb"torch\.compile takes ([\d.]+) s", "vLLM has compiled, in {0} s"),
    (rb"Capturing CUDA graphs?[^\n\r]{0,60}?(\d+)%", "vLLM captures CUDA graphs: {0} %"),
    (rb"Application startup complete", "inference serves"),
    (rb"(?:Policy inference|Inference) pool ready", "the orchestrator has reached inference"),
    (rb"Initializing weight broadcast \(", "trainer and inference connect for the weights"),
    (rb"Starting training loop \(", "the training loop has begun"),
    (rb"Broadcasting startup policy weights", "the first weights go to inference"),
    (rb"Starting orchestrator loop \(|Waiting for training batch to arrive", "waiting for the first batch"),
    (rb"Train batch (\d+/\d+ \([\d.]+%\))", "waiting for the first batch: {0}"),
)

# 12:00:01 WARNING Received SIGTERM, terminating all processes...     Received interrupt signal, terminating all processes...
STOPPED: Tuple[Tuple[bytes, str], ...] = (
    (rb"Received SIGTERM, terminating all processes", "stopped by SIGTERM"),
    (rb"Received interrupt signal, terminating all processes", "stopped by SIGINT"))
# 12:00:01 SUCCESS RL trainer finished! (colours, or the quotes of JSON, between)
FINISHED: Tuple[bytes, ...] = tuple(rb"SUCCESS[^\n]{0,40}?" + words for words in (
    rb"RL trainer finished!", rb"SFT trainer finished!", rb"(?:SFT training|Training) finished!", rb"Orchestrator finished\.",
    rb"Evals finished!"))

# What the logs of a part are called below an attempt's folder.
_PART = r"(?:trainer|orchestrator|inference|evals|envs)"
# /o/run/logs/attempt_2/trainer/torchrun/x/attempt_0/0/stdout.log; /o/run/logs/orchestrator.log
_LOG_PLACE = re.compile(r"(.+)/logs/(?:(attempt_\d{1,9})/)?" + _PART + r"(?:\.log|/.+)\Z")
# trainer/node_3.log
_NODE = re.compile(r"node_(\d{1,9})\.log\Z")
# Starting training loop (max_steps=500)
_LOOP = re.compile(r"Starting (?:training|orchestrator) loop \(max_steps=(\d{1,12}|infinite)\)")
_HEAD_BYTES = 262144
_CONFIG_BYTES = 8 << 20
_METRICS_FILE = "metrics.jsonl"


def list_logs(kind: str, told: Dict[str, Any]) -> Dict[str, str]:
    """The logs of a run by what they are, in both layouts and for several nodes; only those that are there, or are told.

    Which attempt: the one of the trainer's log where that is told. Else the first that was not there `before` (a later one is
    another launch's; of a Slurm job the last, which a requeue made), and none of those that were. Without `before`,
    `logs/latest` or the newest.
    """
    run_dir, launch = str(told.get("run_dir") or ""), str(told.get("launch_log") or "")
    logs: Dict[str, str] = {}
    attempt = _find_attempt(run_dir, told) if run_dir else ""
    if attempt:
        logs = prime_rundir.list_logs(attempt)
        # An eval job of Slurm logs beside the attempts; so does the monitor's file, which goes on over all of them.
        for name, path in (("evals", os.path.join(run_dir, "logs", "evals.log")),
                           ("metrics", os.path.join(run_dir, _METRICS_FILE))):
            if name not in logs and _is_written_by(path, attempt):
                logs[name] = path
        if "metrics" in logs and (kind == "rl" or "orchestrator" in logs):
            logs["metrics orchestrator"] = logs["metrics"]
        logs.update(_list_node_logs(attempt, logs))
    own = {"inference": "inference", "evals": "evals"}.get(kind, "")
    if own and launch:  # these two print to where they were started
        logs.setdefault(own, launch)
    if launch:
        logs["launch"] = launch
    jobs = told.get("job_logs")
    rows = list(jobs.items()) if isinstance(jobs, dict) else [(os.path.basename(str(path))[:-4].replace("job_", ""), path)
                                                              for path in jobs or ()]
    logs.update({"job %s" % job: str(path) for job, path in rows if path})
    order = ("trainer", "orchestrator", "evals", "inference", "launch", "metrics", "metrics orchestrator")
    first = [name for name in order if name in logs]
    return {name: logs[name] for name in first + [name for name in logs if name not in first]}


def _find_attempt(run_dir: str, told: Dict[str, Any]) -> str:
    place = _LOG_PLACE.match(str(told.get("train_log") or ""))
    if place and os.path.isdir(run_dir) and os.path.realpath(place.group(1)) == os.path.realpath(run_dir):
        return os.path.join(run_dir, "logs", place.group(2) or "").rstrip("/")
    names = prime_rundir.list_attempts(run_dir)
    before = told.get("before")
    if before is not None:
        new = [name for name in names if name not in before]
        if new or names:
            return os.path.join(run_dir, "logs", new[-1 if told.get("job_logs") else 0]) if new else ""
    else:
        latest = os.path.realpath(os.path.join(run_dir, "logs", "latest"))
        if os.path.basename(latest) in names:
            return os.path.join(run_dir, "logs", os.path.basename(latest))
        if names:
            return os.path.join(run_dir, "logs", names[-1])
    older = os.path.join(run_dir, "logs")  # before there were attempts
    return older if any(os.path.isfile(os.path.join(older, name + ".log")) for name in SOURCES[:2]) else ""


def _is_written_by(path: str, attempt: str) -> bool:
    """Was the file written after this attempt's folder got its logs, and before a later one did (L17)?"""
    own = os.path.basename(attempt)
    names = prime_rundir.list_attempts(os.path.dirname(os.path.dirname(attempt)))
    later = names[names.index(own) + 1:][:1] if own in names else ()
    try:
        written = os.stat(path).st_mtime
        return os.path.isfile(path) and written >= os.stat(attempt).st_mtime and not any(
            written >= os.stat(os.path.join(os.path.dirname(attempt), name)).st_mtime for name in later)
    except OSError:
        return False


def _list_node_logs(attempt: str, known: Dict[str, str]) -> Dict[str, str]:
    """{"trainer node 1": path}: what other nodes wrote; node 0's is the component's own log, by a link."""
    shown = {os.path.realpath(path) for path in known.values()}
    found = {}
    for part in ("trainer", "inference"):
        folder = os.path.join(attempt, part)
        matches = [match for match in map(_NODE.match, prime_rundir.list_names(folder)) if match]
        for number, name in sorted((int(match.group(1)), match.group(0)) for match in matches):
            path = os.path.join(folder, name)
            if os.path.realpath(path) not in shown:
                found["%s node %d" % (part, number)] = path
    router = os.path.join(attempt, "inference", "router.log")
    return dict(found, router=router) if os.path.isfile(router) else found


def trace_run(tree: Sequence[Process], read_fd: Callable[[int, int], Optional[str]],
              read_cwd: Callable[[int], Optional[str]]) -> Dict[str, Any]:
    """What is known of a run that nobody recorded, as list_logs takes it: {"run_dir", "train_log", "launch_log"} as far as its
    live processes tell. A part's output leads below the run's directory; a launcher's words name it until its title is set."""
    told: Dict[str, Any] = {}
    for label, pid in name_tree(tree, read_cwd):
        path = read_fd(pid, 1) or ""
        place = _LOG_PLACE.match(path)
        if place and "run_dir" not in told:
            told["run_dir"] = place.group(1)
            told["train_log"] = os.path.join(place.group(1), "logs", place.group(2) or "", "trainer.log")
        elif not place and label in ("launcher", "inference", "evals") and os.path.isfile(path):
            told.setdefault("launch_log", path)
    if "run_dir" not in told:
        named = [path for process in tree for path in _name_run_dirs(process, read_cwd) if os.path.isdir(path)]
        told.update({"run_dir": named[0]} if named else {})
    return told


def _name_run_dirs(process: Process, read_cwd: Callable[[int], Optional[str]]) -> List[str]:
    """The directories that a launcher's words may mean: `--output-dir O --run.name N`, or that of `@ RUN/configs/x.json`."""
    words = read_launched(process.argv).arguments
    options: Dict[str, str] = {}
    configs = []
    for word, following in zip(words, tuple(words[1:]) + ("",)):
        option, equals, value = word.partition("=")
        options[option.replace("_", "-")] = value if equals else following
        if word.startswith("@"):
            configs.append(word[1:] or following)
    run = options.get("--run.dir") or options.get("--run.name")
    paths = [os.path.join(options.get("--output-dir") or "outputs", run)] if run else []
    paths += [path.partition("/configs/")[0] for path in configs if path.endswith(".json") and "/configs/" in path]
    base = read_cwd(process.pid)
    whole = [os.path.normpath(os.path.join(base, path)) if base else path for path in paths]
    return [path for path in whole if os.path.isabs(path)]


def find_siblings(told: Dict[str, Any], nodes: int) -> Tuple[str, ...]:
    """None: all nodes of a run write into its one directory."""
    return ()


def read_outline(kind: str, head: Any, told: Dict[str, Any]) -> Outline:
    """What the run was set up to do. The steps are those that its own log names as the loop begins; before that, the resolved
    config's (which another dry run of this name may have rewritten since). `head`: text or bytes. A `kind` of "" is told by what
    lies there."""
    run_dir = str(told.get("run_dir") or "")
    logs = list_logs(kind, told)
    kind = kind or _infer_kind(run_dir, logs)
    data, path = _read_config(kind, run_dir, logs.get("trainer") or logs.get("orchestrator") or "")
    trainer = data.get("trainer") if isinstance(data.get("trainer"), dict) else data
    ckpt = _dig(data, "ckpt") or _dig(trainer, "ckpt") or {}
    total, told_by = _find_total(head, logs)
    if not told_by:
        limit = data.get("max_steps") if data.get("max_steps") is not None else _dig(trainer, "max_steps")
        total = limit if isinstance(limit, int) and limit > 0 else None
        told_by = path if total else ""
    folder = _dig(ckpt, "output_dir")
    base = folder if isinstance(folder, str) and os.path.isabs(folder) else run_dir
    fake = kind == "rl" and bool(_dig(trainer, "data", "fake"))
    flags = {"rl": ("rl", "training") + (() if fake else ("rollouts",)), "sft": ("sft", "training")}.get(kind, ())
    if not kind and told.get("logs"):  # bare logs, without the configs that would tell
        flags = tuple(flag for flag, name in (("training", "trainer"), ("rollouts", "orchestrator")) if name in told["logs"])
    return Outline(total=total, total_from=told_by, nodes=_count_nodes(data), flags=flags,
                   checkpoints=os.path.join(base, "checkpoints") if base else "", save_every=_read_whole(_dig(ckpt, "interval")),
                   test_every=_read_whole(_dig(data, "orchestrator", "eval", "interval") or _dig(data, "eval", "interval")))


def _infer_kind(run_dir: str, logs: Dict[str, str]) -> str:
    folder = prime_rundir.find_configs(run_dir) if run_dir else ""
    if "orchestrator" in logs or any(os.path.isfile(os.path.join(folder, name)) for name in ("rl.json", "orchestrator.json")):
        return "rl"
    return "sft" if folder and os.path.isfile(os.path.join(folder, "sft.json")) else ""


def _find_total(head: Any, logs: Dict[str, str]) -> Tuple[Optional[int], str]:
    """(steps, the log that says so): None and a log for a run without an end, None and "" where none tells."""
    text = head.decode("utf-8", "replace") if isinstance(head, bytes) else str(head or "")
    for path in [logs.get("trainer", ""), logs.get("orchestrator", "")]:
        match = _LOOP.search(_read_file(path, _HEAD_BYTES)) if path else None
        if match:
            return (None if match.group(1) == "infinite" else int(match.group(1))), path
    match = _LOOP.search(text)
    return (None if not match or match.group(1) == "infinite" else int(match.group(1))), logs.get("launch", "") if match else ""


def _read_config(kind: str, run_dir: str, log: str) -> Tuple[Dict[str, Any], str]:
    """The resolved config of a run and its path: of its own attempt where the layout keeps them apart."""
    if not run_dir or kind not in ("rl", "sft"):
        return {}, ""
    place = _LOG_PLACE.match(log)
    own = os.path.join(run_dir, "configs", place.group(2) or "", "resolved") if place else ""
    folder = own if own and os.path.isdir(own) else prime_rundir.find_configs(run_dir)
    for name in ("rl.json", "trainer.json") if kind == "rl" else ("sft.json",):
        path = os.path.join(folder, name)
        data = load_object(_read_file(path, _CONFIG_BYTES))
        if not data:
            continue
        if name == "trainer.json":
            data = dict(data, orchestrator=load_object(_read_file(os.path.join(folder, "orchestrator.json"), _CONFIG_BYTES)))
        return data, path
    return {}, ""


def _read_file(path: str, limit_bytes: int) -> str:
    return read_head(path, limit_bytes).decode("utf-8", "replace")


def _dig(data: Any, *names: str) -> Any:
    for name in names:
        data = data.get(name) if isinstance(data, dict) else None
    return data


def _read_whole(value: Any) -> Optional[int]:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _count_nodes(data: Dict[str, Any]) -> int:
    counts = [_read_whole(_dig(data, "deployment", name)) for name in ("num_nodes", "num_train_nodes", "num_infer_nodes")]
    return max(1, sum(count or 0 for count in counts)) if _dig(data, "deployment", "type") == "multi_node" else 1


def find_checkpoint(outline: Outline, told: Dict[str, Any]) -> Optional[Checkpoint]:
    """The newest checkpoint that is complete: the trainer's index, which a save writes last, and where the run's checkpoints
    have an orchestrator's part (rl), that too. None where there is none at all."""
    steps = prime_rundir.list_steps(outline.checkpoints) if outline.checkpoints else ()
    folders = {step: os.path.join(outline.checkpoints, "step_%d" % step) for step in steps}
    needs_progress = any(os.path.exists(_name_progress(path)) for path in folders.values())
    whole = [step for step in steps if _is_saved(folders[step]) and (
        not needs_progress or os.path.exists(_name_progress(folders[step])))]
    broken = tuple(folders[step] for step in steps if step not in whole)
    return Checkpoint(whole[-1], folders[whole[-1]], broken) if whole else None


def _name_progress(folder: str) -> str:
    return os.path.join(folder, "orchestrator", "progress.pt")


def _is_saved(folder: str) -> bool:
    """Has a save into this folder ended? As prime_dcp.read_shards tells it, without reading the index."""
    inner = os.path.join(folder, "trainer")
    names = prime_rundir.list_names(inner if os.path.isdir(inner) else folder)
    return ".metadata" in names and ".metadata.tmp" not in names and any(name.endswith(".distcp") for name in names)
