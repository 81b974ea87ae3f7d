"""Lego-RL: the one place that knows it. The agreement that this module keeps stands in stacks/__init__.py.

Read off the public repository (August 2026): layout, dry run, launch. What it prints is taken apart in
lego_output.py, what a config's text says in lego_sources.py, what lives on the machine in lego_live.py.
"""
import os
import re
import shlex
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from ..errors import MACHINE, USAGE, OperatorError
from ..values import Check, Config, Machine, Outcome, Plan, Port, Preflight, Process, Request, Topology
from . import DryRunOrder, DryRunResult, lego_live, lego_sources
from .lego_advice import judge_config  # noqa: F401  (the agreement)
from .lego_live import (STOP_SIGNAL, TITLE, classify, describe_stop, find_root, is_board_name, is_checkout,  # noqa: F401  (agreed)
                        is_rehearsal, name_tree, read_boards)
from .lego_output import Output, parse_output, read_step_seconds  # noqa: F401  (the agreement)

KINDS = ("train", "eval", "infer")
DEMO_ENVIRON = ""
DEMO = ("check demo", "run demo --board leave", "gate", "status", "runs")
TAKES_OVERRIDES = False
TAKES_RUNNER = False
TAKES_WHOLE_BOX = True
SLURM_HINT = ""
SLURM_WORDS = {"train": (), "eval": (), "infer": ()}
# Stands for the address of a job's first node while nobody knows it (RFC 5737: of no host).
_JOB_HEAD = "203.0.113.254"
_FOLDERS = ("configs", "examples", "templates")
_SWITCHES = ("DRY_RUN", "PREFLIGHT_ONLY", "PF_STRUCTURE_ONLY")
# The names by which a config outside of scripts/<kind>/ tells its kind.
_KIND_NAMES = {"train": {"TRAINING_MODE", "TRAIN_MODE", "N_NODES_ROLLOUT"}, "eval": {"DATASET_PATH", "DATASET_NAME"},
               "infer": {"RESULTS_DIR", "OUTPUT_INDEX"}}
# 20260802-131455, as names carry it
_STAMP = re.compile(r"20\d{6}[-_T]?\d{4,6}")
# 40000000000
_NUMBER = re.compile(r"[0-9]{1,15}\Z")
# bind=0.0.0.0:8000 api=…
_BIND = re.compile(r"\bbind=\S*?:([0-9]{1,5})\b")
# 8 prompts × 4 resp = 32 trials/step  mini=8
_TRIALS = re.compile(r"= (\d+ trials/step)")


# Looks up the first of these names that the resolved environment has a value for.
Value = Callable[..., str]


def list_configs(root: str) -> List[Config]:
    """The configs that people launch: configs/, examples/ and templates/ of each kind, without `_template.env`."""
    found = []
    for kind in KINDS:
        for folder in _FOLDERS:
            path = os.path.join(root, "scripts", kind, folder)
            try:
                names = sorted(os.listdir(path))
            except OSError:
                continue
            for name in names:
                full = os.path.join(path, name)
                if name.endswith(".env") and not name.startswith(("_", ".")) and os.path.isfile(full):
                    found.append(Config(full, os.path.relpath(full, root), kind))
    return found


def match_config(root: str, word: str) -> List[Config]:
    """The configs that a bare name means, with or without `.env`; a name with folders matches the end of the path."""
    wanted = word if word.endswith(".env") else word + ".env"
    return [config for config in list_configs(root)
            if os.path.basename(config.path) == wanted or config.shown.endswith("/" + wanted)]


def infer_kind(root: str, path: str) -> str:
    """The kind of a config: by its path, else by the names that it sets. "" where neither tells.

    Raises OperatorError (exit 2) where its names speak of several kinds.
    """
    for candidate in (path, os.path.realpath(path)):
        words = os.path.relpath(candidate, os.path.realpath(root)).split(os.sep)
        if candidate == path:
            words = os.path.relpath(candidate, root).split(os.sep)
        if len(words) > 2 and words[0] == "scripts" and words[1] in KINDS:
            return words[1]
    names = lego_sources.find_names(lego_sources.read_text(path))
    kinds = [kind for kind in KINDS if names & _KIND_NAMES[kind]]
    if len(kinds) > 1:
        raise OperatorError("%s sets names of several kinds: %s" % (path, ", ".join(
            "%s (%s)" % (kind, sorted(names & _KIND_NAMES[kind])[0]) for kind in kinds)),
            "Say which: --kind %s" % "|".join(kinds), USAGE, "kind")
    return kinds[0] if kinds else ""


def has_structure_check(kind: str) -> bool:
    """Only the train runner can check a config's structure alone."""
    return kind == "train"


# A runner turns --dry-run into a variable, sources the config, and then asks the variable: a config that sets it would
# make a check launch. Before each command of the runner, and of all that it sources, this sets it again; a config that
# makes it read-only ends the check. The operator's own BASH_ENV comes first and is what the runner sees.
_GUARD = """%s
set -o functrace
trap 'DRY_RUN=1; [ "$DRY_RUN" = 1 ] || kill -9 $$' DEBUG
"""


def plan_dry_run(request: Request, environ: Dict[str, str], structure_only: bool, scratch: str) -> DryRunOrder:
    """The runner's own check. Older runners know only the variable DRY_RUN, newer ones
    reset it and know only the flag: which one this is, its text tells. One that knows neither would launch, so it is not
    run."""
    kind = request.config.kind
    runner = os.path.join(request.checkout.root, _runner(kind))
    try:
        text = lego_sources.read_text(runner)
    except OSError as error:
        raise OperatorError("this checkout has no runner for %s: %s (%s)" % (kind, runner, error.strerror),
                            "Is the checkout whole? `git -C %s status` tells." % shlex.quote(request.checkout.root),
                            MACHINE, "runner")
    flag = "--structure-only" if structure_only else "--dry-run"
    own = environ.get("BASH_ENV", "")
    files = {"BASH_ENV": _GUARD % ("BASH_ENV=%s; [ ! -r \"$BASH_ENV\" ] || . \"$BASH_ENV\"" % shlex.quote(own) if own
                                   else "unset BASH_ENV")}
    env = {name: value for name, value in environ.items() if name not in _SWITCHES}
    if request.slurm:  # a config that does not take it over names a head of its own
        env.update(MASTER_ADDR=_JOB_HEAD, VLLM_HEAD_HOST=_JOB_HEAD)
    if flag in text and "--dry-run" in text:
        # Also for the structure: without --dry-run that makes the log's folder.
        flags = ("--dry-run", flag) if structure_only else (flag,)
        return DryRunOrder(("bash", _runner(kind)) + flags + (_config_word(request),), dict(env, DRY_RUN="1"), files)
    if not structure_only and "DRY_RUN:-" in text:
        return DryRunOrder(("bash", _runner(kind), _config_word(request)), dict(env, DRY_RUN="1"), files)
    raise OperatorError("%s knows no %s, so nothing can be checked without launching" % (runner, flag),
                        "Update the checkout; rlrun never launches what it could not check.", MACHINE, "runner")


def _runner(kind: str) -> str:
    return "scripts/%s/%s.sh" % (kind, kind)


def _config_word(request: Request) -> str:
    shown = request.config.shown
    return "./" + shown if shown.startswith("-") else shown


def read_dry_run(request: Request, result: DryRunResult, environ: Dict[str, str],
                 now_stamp: str) -> Tuple[Plan, Preflight]:
    """The plan and the runner's own verdict, out of what the dry run printed. `now_stamp`: YYYYmmdd of today, UTC and
    local, by which a date in a name is told."""
    output = parse_output(result.outcome.output.decode("utf-8", "replace"))
    if request.slurm:
        output = output._replace(environment={name: value for name, value in output.environment.items() if value != _JOB_HEAD})
    preflight = _read_preflight(request.config.kind, result.outcome, output)
    return _make_plan(request, output, environ, now_stamp), preflight


def _read_preflight(kind: str, outcome: Outcome, output: Output) -> Preflight:
    has_fatal = any(line.level == "FATAL" for line in output.preflight)
    is_whole = outcome.how == "ended" and outcome.code == 0 and output.says_not_launching
    tail = [line for line in output.lines if line.strip()][-12:]
    return Preflight(output.preflight, not is_whole and not has_fatal, kind != "train" and not output.preflight,
                     "" if is_whole else "\n".join(tail), output.preflight_summary)


def _make_plan(request: Request, output: Output, environ: Dict[str, str], now_stamp: str) -> Plan:
    kind, root = request.config.kind, request.checkout.root
    env = output.environment

    def value(*names: str) -> str:
        return next((env[name] for name in names if env.get(name)), "")
    sources = lego_sources.read_sources(
        request.config.path, _template_paths(output, value("TEMPLATE_ROOT") or os.path.join(root, "scripts/templates")),
        env, root, [name for name, text in environ.items() if text])
    experiment = output.summary.get("experiment") or value("EXP_NAME")
    project = output.summary.get("project") or value("PROJECT_NAME")
    def inside(path: str) -> str:
        return os.path.normpath(os.path.join(root, path)) if path else ""  # the runner works in the checkout
    train_log = (output.summary.get("train log") or output.summary.get("eval log") or output.summary.get("infer log")
                 or value("TRAIN_LOG", "EVAL_LOG", "INFER_LOG"))
    vllm_log = output.summary.get("vLLM log") or value("VLLM_LOG")
    trials = value("EVAL_JOBS_DIR") if kind == "eval" else value("RESULTS_DIR") if kind == "infer" else ""
    trials = trials or value("HARBOR_TRIALS_DIR")
    command = next((output.commands[name] for name in ("Launch", "Harbor", "Infer") if name in output.commands), "")
    words = _split(command)
    checkpoints = _find_word(words, "trainer.default_local_dir")
    if kind == "train" and not checkpoints and project and experiment:
        checkpoints = os.path.join("checkpoints", project, experiment)  # the trainer's own default
    topology = _read_topology(kind, value)
    python = output.heads.get("python", "").rpartition(" (")[0] or value("PYTHON_BIN")
    gpus = _count_gpus(kind, output, value)
    return Plan(
        stack="lego", kind=kind, root=root, config=request.config.path, config_shown=request.config.shown,
        sources=sources.files, unread_sources=sources.unread, overrides=(), project=project, experiment=experiment,
        name_is_volatile=_is_volatile(experiment, sources, environ, now_stamp, request.config.path),
        block=output.block or output.summary_text, second_look=_pick_second_look(kind, output, value),
        train_log=inside(train_log), vllm_log=inside(vllm_log), trials=inside(trials),
        checkpoints=os.path.join(root, checkpoints) if checkpoints else "",
        resume_mode=(_find_word(words, "trainer.resume_mode") or value("RESUME_MODE") or "auto") if kind == "train" else "",
        python=python, argv=("bash", _runner(kind), _config_word(request)), drop_env=_SWITCHES,
        launch_command=command, environment=env, set_names=sources.set_names, volatile_names=sources.changing,
        topology=topology, gpu_count=gpus, takes_whole_box=True,
        ports=_pick_ports(kind, output, value, topology),
        modules=("veomni",) if kind == "train" and value("MODEL_ENGINE", "ENGINE").lower() == "veomni" else (),
        soft_modules={"train": ("verl", "ray", "vllm", "wandb"), "eval": ("harbor", "vllm"), "infer": ("vllm",)}[kind],
        venv=value("VENV_PATH"), ray_dir=(value("RAY_TMPDIR") or "/tmp/ray") if kind == "train" else "",
        shm_bytes=(_read_number(value("RAY_OBJECT_STORE_MEMORY")) if kind == "train" else 0) or 1 << 30,
        sweep=lego_live.make_sweep_rule(kind, inside(vllm_log)),
        write_dirs=_pick_write_dirs(kind, root, train_log, trials, checkpoints, value), prints_secrets=kind != "train",
        gates=_pick_gates(kind, value), stage=_STAGES[kind])


_STAGES = {"train": "sweep, Ray, vLLM loading weights + cuda-graph capture; ~10-20 min before step 1",
           "eval": "vLLM loading weights; the trials start when it answers",
           "infer": "vLLM loading weights; the trials start when it answers"}


def _template_paths(output: Output, template_root: str) -> List[str]:
    return [os.path.join(template_root, word) for word in output.summary.get("templates", "").split()]


def _split(command: str) -> List[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


def _find_word(words: List[str], name: str) -> str:
    found = ""
    for word in words:  # the last one counts
        key, equals, text = word.partition("=")
        if equals and key.lstrip("+~") == name:
            found = text
    return found.strip("'\"")


def _is_volatile(experiment: str, sources: lego_sources.Sources, environ: Dict[str, str], now_stamp: str,
                 config: str) -> bool:
    if {"EXP_NAME", "TRAINER_EXPERIMENT_NAME", "EXP_TAG"} & set(sources.changing):
        return True
    stamp = _STAMP.search(experiment)
    if not stamp or not any(stamp.group(0).startswith(day) for day in now_stamp.split()):
        return False
    if stamp.group(0) in environ.get("EXP_NAME", ""):
        return False
    try:  # a date of today that the config does not spell out was made by the runner
        return stamp.group(0) not in lego_sources.read_text(config)
    except OSError:
        return True


def _count_gpus(kind: str, output: Output, value: Value) -> Optional[int]:
    """GPUs of this node: what Ray is given, or what vLLM spreads over (tensor times data parallel)."""
    word = value("NGPUS_PER_NODE") if kind == "train" else value("GEN_TP")
    size = _read_number(word)
    if size is None:
        return None
    copies = [1]
    words = _split(output.commands.get("vLLM", ""))
    for place, one in enumerate(words):
        name, _, text = one.partition("=")
        if name in ("--data-parallel-size", "-dp") and kind != "train":
            text = text or (words[place + 1] if place + 1 < len(words) else "")
            copies.append(_read_number(text) or 1)
    return size * copies[-1]


def _read_number(text: str) -> Optional[int]:
    return int(text) if _NUMBER.match(text) else None


def _read_topology(kind: str, value: Value) -> Topology:
    nodes = value("NNODES") if kind == "train" else value("VLLM_NNODES") if kind == "infer" else "1"
    count = max(1, _read_number(nodes) or 1)
    if kind == "infer":
        return Topology(count, value("VLLM_HEAD_HOST") if count > 1 else "", "VLLM_HEAD_HOST", 0,
                        "Rank 0 serves the API; the others run headless shards of it.")
    port = value("RAY_PORT")
    return Topology(count, value("MASTER_ADDR") if kind == "train" else "", "MASTER_ADDR", _read_number(port) or 0,
                    "The head node waits for all %d nodes to join before training starts; a worker that\n"
                    "never came up shows as the head spinning in its ray status poll." % count)


def _pick_ports(kind: str, output: Output, value: Value, topology: Topology) -> Tuple[Port, ...]:
    if kind == "train":
        wanted = [("RAY_PORT", "ray"), ("RAY_DASHBOARD_PORT", "ray dashboard")]
    else:
        wanted = [("VLLM_PORT", "vllm")]
        if topology.nodes > 1:
            wanted += [("VLLM_MASTER_PORT", "vllm master"), ("VLLM_DP_RPC_PORT", "vllm data-parallel RPC")]
    ports = [Port(_read_number(value(name)) or 0, purpose) for name, purpose in wanted if _read_number(value(name))]
    match = _BIND.search(output.summary.get("vLLM serve", ""))
    if match and kind != "train" and int(match.group(1)) not in [port.number for port in ports]:
        ports.append(Port(int(match.group(1)), "vllm"))
    return tuple(ports)


def _pick_write_dirs(kind: str, root: str, train_log: str, trials: str, checkpoints: str, value: Value) -> Tuple[str, ...]:
    folders = [os.path.join(root, "logs"), os.path.dirname(train_log), trials]
    if checkpoints:
        folders.append(os.path.join(root, checkpoints))
    if kind == "eval" and value("JOB_CFG"):
        folders.append(os.path.dirname(value("JOB_CFG")))
    if kind == "infer" and value("OUTPUT_INDEX"):
        folders.append(os.path.dirname(value("OUTPUT_INDEX")))
    if kind == "train":
        folders.append(value("RAY_TMPDIR") or "/tmp/ray")
    seen: List[str] = []
    for folder in folders:
        path = os.path.normpath(os.path.join(root, folder)) if folder else ""
        if path and path not in seen:
            seen.append(path)
    return tuple(seen)


def _pick_second_look(kind: str, output: Output, value: Value) -> Tuple[Tuple[str, str], ...]:
    rows, summary = output.rows, output.summary
    look: List[Tuple[str, str]] = []
    if kind == "train":
        trials = _TRIALS.search(" ".join(rows.get("batch", ())))
        scale = [" ".join(rows.get("topology", ("unknown",))[:1])] + ([trials.group(1)] if trials else [])
        look += [("data", "  ".join(rows.get("data", ("unknown",)))),
                 ("scale", ", ".join(scale + ["epochs=%s" % (value("TOTAL_EPOCHS", "TRAINER_TOTAL_EPOCHS") or "?")]))]
    elif kind == "eval":
        look += [("data", "%s  n_tasks=%s" % (summary.get("dataset", "unknown"), summary.get("n_tasks", "?")))]
    else:
        look += [("data", "index=%s  instances=%s" % (summary.get("index", "unknown"), summary.get("instances", "?"))),
                 ("results", "%s  output index=%s" % (summary.get("results", "?"), summary.get("output index", "?")))]
    if kind != "train":
        look.append(("scale", "concurrent=%s  vLLM %s" % (summary.get("concurrent", "?"), summary.get("vLLM topo", "?"))))
    return tuple(look)


def _pick_gates(kind: str, value: Value) -> Tuple[str, ...]:
    if kind != "train":
        return ()
    r3 = value("ENABLE_R3").lower() in ("1", "true")
    return ((("R3 on → pearson ≈ 0.999 in the log. Clearly below: the routing replay is misaligned and the gradients "
              "are already garbage; stop and investigate.",) if r3 else ())
            + ("lr is not 0 (fully-async + cosine collapses to 0).",
               "First-step reward / num_turns are not zero: all zeros usually means that the environment images can't "
               "be pulled, not a model problem."))


def name_environment(root: str) -> Tuple[str, Tuple[str, ...]]:
    """The virtual environment that configs name by default, and the modules that a training run looks for in it."""
    return os.path.join(root, ".venv"), ("veomni", "verl", "ray", "vllm", "wandb")


def judge_live(plan: Plan, machine: Machine) -> List[Check]:
    """Nothing: what time changes of such a run, every stack has."""
    return []


def describe_server(url: str, models: Sequence[str]) -> List[str]:
    """None: no run of it is a server alone."""
    return []


def read_back(text: str, kind: str, run_dir: str, before: Sequence[str], tree: Sequence[Process]) -> Dict[str, object]:
    """What the beginning of a launch log tells of the run: its real name, its logs, the preflight's verdict, FATALs."""
    output = parse_output(text)
    env = output.environment
    return {"experiment": output.summary.get("experiment", ""),
            "train_log": next((output.summary[name] for name in ("train log", "eval log", "infer log")
                               if name in output.summary), ""),
            "vllm_log": output.summary.get("vLLM log", ""),
            "trials": env.get("EVAL_JOBS_DIR") or env.get("RESULTS_DIR") or env.get("HARBOR_TRIALS_DIR", ""),
            "verdict": output.preflight_summary, "fatal": list(output.fatal), "rows": [], "facts": {}}


def explain_end(text: str) -> str:
    """A word on an end that the log does not explain: the runner dies silently where `getent hosts` does not know the
    node's own address, right after it has cleared shared memory (facts: lib/ray.sh under pipefail)."""
    lines = [line for line in text.split("\n") if line.strip()]
    marks = [number for number, line in enumerate(lines) if line.startswith("[shm] after cleanup")]
    if marks and all(line.startswith(("Filesystem", "tmpfs", "shm", "none")) for line in lines[marks[-1] + 1:]):
        return "It ended right after it had cleared shared memory, without a word: rlrun explain host:address"
    return ""


def refuse_requeue(plan: Plan) -> str:
    """Why a run of this plan that is started anew would not go on from its newest checkpoint, "" where it would."""
    if plan.kind != "train":
        return "a run of kind %s writes no checkpoints" % plan.kind
    if plan.name_is_volatile:
        return "its name is made anew at each start, and its checkpoints lie under its name (EXP_NAME)"
    if plan.resume_mode == "disable":
        return "resume_mode=disable"
    words = _split(plan.launch_command)
    every = _find_word(words, "trainer.save_freq") or plan.environment.get("TRAINER_SAVE_FREQ", "")
    return "" if (_read_number(every) or 0) > 0 else "it saves no checkpoints (save_freq=%s)" % (every or "not told")


def describe_node_command(plan: Plan, head: str, launch_log: str) -> str:
    """The line for each other node, copy-ready for a plain sh. `head`: the address that they join; `launch_log`:
    the log's path relative to the checkout, without `_<host>.log`."""
    setsid = "nohup setsid bash %s %s" % (plan.argv[1], shlex.quote(plan.argv[2]))
    return "cd %s && mkdir -p logs && %s=%s %s > %s_$(hostname -s).log 2>&1 < /dev/null &" % (
        shlex.quote(plan.root), plan.topology.head_variable, shlex.quote(head), setsid, shlex.quote(launch_log))
