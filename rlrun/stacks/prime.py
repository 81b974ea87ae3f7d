"""prime-rl: the one place that knows it. The agreement that this module keeps stands in stacks/__init__.py.

Read off the public repository (August 2026) and the seed, which tells of a newer state; which of the two a checkout is,
what lies on the disk tells. prime_config.py reads configs before the runner has, prime_runner.py is how commands start,
prime_dry.py what a dry run left, prime_plan.py what the runner resolved, prime_rundir.py a run's directory, prime_judge.py
judges, prime_back.py reads back, prime_live.py tells processes, prime_export.py converts checkpoints.
"""
import glob
import hashlib
import os
import re
import shlex
from typing import Any, Dict, List, Optional, Tuple

from ..errors import MACHINE, USAGE, OperatorError
from ..host import slurm, tables
from ..values import Config, Plan, Preflight, Request, SweepRule
from . import DryRunOrder, DryRunResult, prime_config, prime_dry, prime_export, prime_plan, prime_rundir, prime_runner
from .prime_back import (describe_server, explain_end, read_back,  # noqa: F401  (the agreement)
                         read_step_seconds)
from .prime_export import find_export  # noqa: F401  (the agreement)
from .prime_judge import Own, judge_config, judge_live  # noqa: F401  (the agreement)
from .prime_live import KEEP_ENVIRON, REHEARSAL
from .prime_live import (STOP_SIGNAL, TITLE, classify, describe_stop, find_root, is_board_name, is_checkout,  # noqa: F401  (agreed)
                         is_rehearsal, name_tree, read_boards)

KINDS = prime_config.KINDS
DEMO_ENVIRON = "TOY_STEP_SEC=5"
DEMO = ("check reverse-text/rl", "run reverse-text/rl -- --max-steps 3", "gate", "status", "runs")
TAKES_OVERRIDES = True
TAKES_RUNNER = True
TAKES_WHOLE_BOX = False
SLURM_WORDS = {kind: ("--slurm",) for kind in ("rl", "sft", "inference")}
SLURM_HINT = "For example: [slurm] partition = \"gpu\" in the config, or -- --slurm.partition gpu"
_CONFIG_CLASSES = {"rl": ("prime_rl.configs.rl", "RLConfig"), "sft": ("prime_rl.configs.sft", "SFTConfig"),
                   "inference": ("prime_rl.configs.inference", "InferenceConfig"),
                   "evals": ("prime_rl.configs.evals", "EvalsConfig")}
# prime-rl's own loading of a config, by its own code, written out whole. The dry run leaves out what its parts need not
# know, among it how many GPUs go where; evals has no dry run at all.
_RESOLVE = """
import sys
sys.path[:] = sys.path[1:] if sys.path[:1] == [""] else sys.path
import json
target = sys.argv[1]
sys.argv = sys.argv[2:]
from prime_rl.utils.config import cli
from %s import %s as Config
text = json.dumps(cli(Config).model_dump(mode="json"))
with open(target, "w") as file:
    file.write(text)
"""
_PLAIN_NAME = re.compile(r"[^/\s\0]+\Z")
_PYTHON_NAMES = ("PATH", "PYTHONPATH", "VIRTUAL_ENV", "HOME", "LANG", "LD_LIBRARY_PATH")


def list_configs(root: str) -> List[Config]:
    """The configs under examples/ and configs/ whose kind can be told."""
    return [config for config in _list_all(root) if config.kind]


def _list_all(root: str) -> List[Config]:
    return prime_config.list_configs(root, prime_config.find_python(root, dict(os.environ)))


def match_config(root: str, word: str) -> List[Config]:
    """The configs that a bare name means: `reverse-text/rl` matches the end of the path, with or without its suffix. Also
    one that does not tell its kind."""
    return [config for config in _list_all(root)
            if ("/" + config.shown).endswith("/" + word) or ("/" + os.path.splitext(config.shown)[0]).endswith("/" + word)]


def infer_kind(root: str, path: str) -> str:
    """The kind of a config: by what it sets, else by its name. "" where neither tells, and for JSON and YAML, which are left
    to the runner. Raises OperatorError (exit 2) where it speaks of several kinds."""
    if not path.endswith(".toml"):
        return ""
    table = tables.read_tables([path], prime_config.find_python(root, dict(os.environ)))[path]
    kinds = prime_config.tell_kinds(table.data or {}, path)
    if table.error and not kinds:
        raise OperatorError("%s can't be read: %s" % (path, table.error), "Mend it first." if not table.is_unparsed else
                            "Say its kind: --kind %s" % "|".join(KINDS), USAGE, "config")
    if len(kinds) > 1:
        raise OperatorError("%s speaks of several kinds: %s" % (path, ", ".join(kinds)), "Say which: --kind %s" % "|".join(kinds),
                            USAGE, "kind")
    return kinds[0] if kinds else ""


def has_structure_check(kind: str) -> bool:
    """None: the dry run is the structure check, and looks at no machine."""
    return False


def plan_dry_run(request: Request, environ: Dict[str, str], structure_only: bool, scratch: str) -> DryRunOrder:
    """The runner's own dry run, in `scratch`. It does the work on its run directory before it looks at --dry-run, so it is
    given another one, and neither --clean nor --resume: what these would delete is worked out by reading."""
    root, kind = request.checkout.root, request.config.kind
    if kind == prime_export.KIND:
        return prime_export.plan_check(request, environ)
    runner = prime_runner.choose(root, kind, environ, request.runner)
    python = prime_config.find_python(root, environ)
    raw = prime_config.read_raw(request, python)
    _refuse_words(raw)
    env = dict(environ, NEVER_CLEAN="1", UV_NO_SYNC="1", **{REHEARSAL: "1", KEEP_ENVIRON: "1"})
    if runner.path_first:
        env["PATH"] = runner.path_first + os.pathsep + env.get("PATH", os.defpath)
    modules = {prime_config.name_module(one): one for one in prime_config.list_environments(raw.data)}
    wanted = tuple(name for name in modules if not prime_config.is_built_in(root, prime_config.find_venv(root, environ), name))
    name = _name_run(kind, raw, scratch)
    resolve = (python, "-B", "-c", _RESOLVE % _CONFIG_CLASSES[kind], os.path.join(scratch, "resolved.json"), kind) + \
        _config_words(request) + request.overrides + _name_words(kind, raw, name)
    # evals has no dry run. And where a file can't be read here, though prime-rl may, it is not known what a dry run would
    # write to. Then the config is loaded, and that is all.
    if kind == "evals" or raw.error:
        return DryRunOrder(resolve, env, {}, (), python, wanted)
    words = prime_config.strip_options(request.overrides, prime_config.UNSAFE)
    words += ("--dry-run", "--output-dir", os.path.join(scratch, "outputs"))
    if kind != "inference":
        words += ("--no-clean", "--no-resume", "--run.name", name)
        words += ("--run.dir", name) if tables.dig(raw.data, "run", "dir") else ()
        words += ("--ckpt.output-dir", os.path.join(scratch, "checkpoints")) if tables.dig(raw.data, "ckpt", "output_dir") else ()
        for part in ("trainer", "orchestrator"):  # as a resolved config has them
            words += ("--%s.output-dir" % part, os.path.join(scratch, "outputs", name)) if tables.dig(
                raw.data, part, "output_dir") else ()
        words += ("--trainer.ckpt.output-dir", os.path.join(scratch, "checkpoints")) if tables.dig(
            raw.data, "trainer", "ckpt", "output_dir") else ()
    return DryRunOrder(runner.argv + _config_words(request) + words, env, {}, (resolve,), python, wanted)


def _refuse_words(raw: prime_config.Raw) -> None:
    """What can't be launched, or not checked without harm. OperatorError (exit 2; 5 where this machine lacks a parser)."""
    if raw.is_unparsed:
        raise OperatorError("a config can't be read here, so it can't be known what a check of it would touch: %s" % raw.error,
                            "Write it as TOML, or install the parser into the checkout's environment.", MACHINE, "config")
    # `--dry-run false` too: a live run with that word would be taken for a rehearsal.
    if any(one.get("dry_run") not in (None, False) for one in (raw.data, raw.options)):
        raise OperatorError("--dry-run would keep the run from starting", "Leave it away: `rlrun check` is the dry run.", USAGE,
                            "overrides")
    for option in ("name", "dir"):
        name = tables.dig(raw.data, "run", option)
        if name is True:
            raise OperatorError("--run.%s needs a name behind it" % option, "For example: --run.%s first-try" % option, USAGE,
                                "run-name")
        if name is not None and (not isinstance(name, str) or not _PLAIN_NAME.match(name) or name in (".", "..")):
            raise OperatorError("run.%s is a directory's name, and %r is none: no slash, no space" % (option, name),
                                "Take letters, digits, dots and dashes.", USAGE, "run-name")


def _name_run(kind: str, raw: prime_config.Raw, scratch: str) -> str:
    """The run's name: the operator's, else one in prime-rl's pattern, random like its own."""
    given = tables.dig(raw.data, "run", "name")
    return given if isinstance(given, str) and given else prime_config.make_run_name(kind, raw.data, scratch[-8:])


def _name_words(kind: str, raw: prime_config.Raw, name: str) -> Tuple[str, ...]:
    return ("--run.name", name) if kind in ("rl", "sft") and not tables.dig(raw.data, "run", "name") else ()


def _config_words(request: Request) -> Tuple[str, ...]:
    shown = (config.shown for config in (request.config,) + request.more)
    return tuple(word for one in shown for word in ("@", "./" + one if one.startswith("-") else one))


def read_dry_run(request: Request, result: DryRunResult, environ: Dict[str, str], now_stamp: str) -> Tuple[Plan, Preflight]:
    """The plan out of what the dry run wrote and what prime-rl's own config code resolved."""
    if request.config.kind == prime_export.KIND:
        return prime_export.read_check(request, result, environ)
    kind, root = request.config.kind, request.checkout.root
    raw = prime_config.read_raw(request, prime_config.find_python(root, environ))
    name = _name_run(kind, raw, result.scratch)
    written = os.path.join(result.scratch, "outputs", name) if kind != "inference" else os.path.join(result.scratch, "outputs")
    preflight = prime_dry.read_preflight(kind, result, written, raw.error)
    data = {} if preflight.died or preflight.skipped else prime_dry.read_resolved(result.scratch, written, raw)
    scripts = [] if preflight.died else prime_dry.read_scripts(kind, written, result.scratch + "/outputs")
    return _make_plan(request, environ, raw, data, name, scripts), preflight


def _make_plan(request: Request, environ: Dict[str, str], raw: prime_config.Raw, data: Dict[str, Any], name: str,
               scripts: List[Tuple[str, str]]) -> Plan:
    kind, root = request.config.kind, request.checkout.root
    runner = prime_runner.choose(root, kind, environ, request.runner)
    known = data or raw.data
    output_dir = _locate(root, str(known.get("output_dir") or "outputs"))
    has_run_dir = kind in ("rl", "sft")
    name = str(tables.dig(data, "run", "name") or name)
    run_dir = os.path.join(output_dir, str(tables.dig(known, "run", "dir") or name)) if has_run_dir else ""
    ckpt_dir = tables.dig(known, "ckpt", "output_dir")
    ckpt_dir = _locate(root, ckpt_dir) if ckpt_dir and isinstance(ckpt_dir, str) else run_dir
    run = prime_rundir.read_run_dir(run_dir, ckpt_dir) if has_run_dir else None
    resume = _read_resume(known.get("resume"), run, root)
    cleans = has_run_dir and bool(known.get("clean")) and not resume.is_asked and not environ.get("NEVER_CLEAN")
    # What is there now is what a yes is given to; what comes meanwhile is refused (prime_judge.py).
    doomed = [one for one in dict.fromkeys((run_dir, ckpt_dir)) if cleans and os.path.lexists(one)]
    if doomed and run:  # the earlier attempts go with it: the new one is the first again
        run = run._replace(attempts=())
    is_submission = bool(scripts) or bool(known.get("slurm"))
    counts = prime_plan.count_gpus(kind, data) if data else (None, None)
    name_words = _name_words(kind, raw, name)
    argv = runner.argv + _config_words(request) + request.overrides
    real = run_dir or output_dir
    scripts = [(os.path.join(real, shown), text.replace("\0/" + name, real).replace("\0", output_dir)) for shown, text in scripts]
    rows = [("config", " + ".join(config.shown for config in (request.config,) + request.more))]
    rows += [("overrides", " ".join(shlex.quote(word) for word in request.overrides))] if request.overrides else []
    rows += [("run", name), ("directory", run_dir)] if has_run_dir else []
    rows += prime_plan.make_rows(kind, data, resume, run) if data else []
    ports = () if is_submission else prime_plan.list_ports(kind, data)
    rows += _make_job_rows(scripts, environ) if is_submission else _make_place_rows(kind, data, counts, ports, environ)
    rows += [("output", output_dir)] if not has_run_dir else []
    note = _note_log(kind, known, run, run_dir, is_submission)
    rows += [("logs", note.replace(run_dir + "/", "") if run_dir else note), ("runner", " ".join(runner.argv))]
    environment = {key: value for key, value in environ.items() if key in _PYTHON_NAMES or key.startswith("CUDA_")}
    for place in ((), ("trainer",), ("orchestrator",), ("inference",)):
        named = tables.dig(data, *(place + ("env_vars",)))
        environment.update({key: str(value) for key, value in named.items()} if isinstance(named, dict) else {})
    environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # what its launchers set for all that they start
    modules = {prime_config.name_module(one): prime_config.describe_install(root, one)
               for one in prime_config.list_environments(raw.data)
               if not prime_config.is_built_in(root, prime_config.find_venv(root, environ), prime_config.name_module(one))}
    goes_back = kind == "rl" or (bool(known.get("eval")) and not environ.get("NEVER_CLEAN"))  # sft: where it has online evals
    deleted = tuple(doomed) or (prime_rundir.find_past(run, resume.step) if run and resume.is_asked and goes_back else ())
    return Plan(
        stack="prime", kind=kind, root=root, config=request.config.path, config_shown=request.config.shown,
        sources=raw.sources, unread_sources=(), overrides=request.overrides,
        project=str(tables.dig(data, "monitors", "wandb", "project") or ""), experiment=name if has_run_dir else "",
        name_is_volatile=False, block=prime_plan.render_block(kind, rows) if data else "",
        second_look=_pick_second_look(kind, data, counts, environ, is_submission, resume, deleted) if data else (), train_log="",
        vllm_log="", trials="", checkpoints=run.checkpoints if run else "", resume_mode="",
        python=prime_config.find_python(root, environ), argv=argv + name_words, drop_env=(),
        launch_command=" && ".join("sbatch %s" % shlex.quote(path) for path, _ in scripts), environment=environment,
        set_names=(), volatile_names=(), topology=prime_plan.read_topology(kind, data),
        gpu_count=0 if is_submission else None if None in counts else sum(one or 0 for one in counts), takes_whole_box=False,
        ports=ports, modules=tuple(modules),
        soft_modules=_SOFT_MODULES[kind],
        venv=prime_config.find_venv(root, environ), ray_dir="", shm_bytes=1 << 30,
        sweep=SweepRule((), tuple(map(_name_deleted, deleted)), _describe_deletes(cleans, resume), True),
        write_dirs=tuple(dict.fromkeys(one for one in (os.path.join(root, "logs"), real, ckpt_dir) if one)),
        prints_secrets=False,
        gates=(), stage=_STAGES["submission" if is_submission else kind],
        more_configs=tuple(config.shown for config in request.more), import_fixes=modules, has_board=False,
        log_note=note if data else "", run_dir=run_dir, before=run.attempts if run else (), shows_environment=False,
        is_name_generated=bool(name_words),
        from_environ=tuple("%s=%s" % (one, environ[one]) for one in ("CUDA_VISIBLE_DEVICES",) if one in environ),
        argv_again=argv, path_first=runner.path_first, is_submission=is_submission, is_short=is_submission or kind == "evals",
        own_dirs=tuple(dict.fromkeys(one for one in (run_dir, ckpt_dir) if one)),
        more_parts={"script %s" % os.path.basename(path): _hash_script(text, name) for path, text in scripts},
        secrets=prime_config.find_secrets(raw.data, data), typed_name=os.path.basename(run_dir) if doomed else "",
        server_url=prime_plan.find_server_url(data) if kind == "inference" and not is_submission else "",
        own=Own(data, run, resume, cleans, prime_plan.find_client_url(kind, data), runner.words, output_dir, tuple(doomed),
                tuple(scripts)))


_SOFT_MODULES = {"rl": ("torch", "vllm", "verifiers"), "sft": ("torch",), "inference": ("vllm",), "evals": ("verifiers",)}
_STAGES = {"rl": "inference loads the weights and captures graphs; the first step follows when the trainer is up",
           "sft": "the trainer loads the weights", "inference": "vLLM loads the weights; /health answers when it is up",
           "evals": "the environments start, then every source runs once",
           "submission": "Slurm starts it when its nodes are free"}


def _read_resume(asked: Any, run: Optional[prime_rundir.RunDir], root: str) -> prime_plan.Resume:
    if asked in (None, False) or run is None:
        return prime_plan.Resume(False, None, "")
    folder = tables.dig(asked, "dir")
    if folder:
        path = _locate(root, str(folder))
        match = re.search(r"step_(\d+)$", path)
        return prime_plan.Resume(True, int(match.group(1)) if match else None, path)
    step = tables.dig(asked, "step")
    step = int(step) if str(step).isdecimal() else run.steps[-1] if run.steps else None
    return prime_plan.Resume(True, step, os.path.join(run.checkpoints, "step_%d" % step) if step is not None else "")


def _hash_script(text: str, name: str) -> str:
    return hashlib.sha256(text.replace(name, "<name>").encode("utf-8", "surrogateescape")).hexdigest()


def _locate(root: str, path: str) -> str:
    """Where a path of the config leads, for a process that works in `root`. Behind a link `..` is not the folder before it;
    a link at its end stays one."""
    path = os.path.join(root, path)
    if ".." not in path.split(os.sep):
        return os.path.normpath(path)
    head, name = os.path.split(path.rstrip(os.sep))
    return os.path.join(os.path.realpath(head), name) if name not in ("", ".", "..") else os.path.realpath(path)


def _describe_deletes(cleans: bool, resume: prime_plan.Resume) -> str:
    if cleans:
        return "--clean deletes the directory of the run of this name, checkpoints and all, before it starts"
    if resume.is_asked:
        return "--resume deletes the rollouts and broadcasts past the step that it continues from"
    return ""


def _name_deleted(path: str) -> str:
    """A path as a glob that means it alone, by the folder that it really lies in: a link to another changes what is deleted."""
    return glob.escape(os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)))


def _make_job_rows(scripts: List[Tuple[str, str]], environ: Dict[str, str]) -> List[Tuple[str, str]]:
    """What is asked of Slurm, a job a script."""
    rows = []
    for path, text in scripts:
        asked = slurm.read_directives(text, environ)
        shown = "  ".join(key + ("=" + value if value else "") for key, value in asked.items() if key not in ("output", "error"))
        rows += [("Slurm", shown or "unknown"), ("script", path + "  (written at the launch)"),
                 ("job log", asked.get("output", "unknown"))]
        if re.search(r"^\s*pkill -9 -f ", text, re.M):  # the templates for several nodes
            rows.append(("sweep", "the script kills (pkill -9) what looks like prime-rl, torchrun or vllm on each node"))
    return rows or [("Slurm", "unknown: the dry run wrote no script")]


def _make_place_rows(kind: str, data: Dict[str, Any], counts: Tuple[Optional[int], Optional[int]], ports: Any,
                     environ: Dict[str, str]) -> List[Tuple[str, str]]:
    """The GPUs and ports of this machine that it takes."""
    rows = [("GPUs", prime_plan.show_gpus(kind, counts, environ.get("CUDA_VISIBLE_DEVICES")))] if data else []
    return rows + [("ports", " · ".join("%s %d" % (port.purpose, port.number) for port in ports))] if ports else rows


def _note_log(kind: str, data: Dict[str, Any], run: Optional[prime_rundir.RunDir], run_dir: str, is_submission: bool) -> str:
    if run is None:
        return "the launch log" if not is_submission else "the job log"
    parts = ["trainer"] + (["orchestrator"] if kind == "rl" else ["evals"] if data.get("eval") else [])
    parts += ["inference"] if data.get("inference") else []
    return "%s/logs/latest/%s.log  (attempt %d)" % (run_dir, "{%s}" % ",".join(parts) if len(parts) > 1 else parts[0],
                                                             1 + max([int(name[8:]) for name in run.attempts] or [0]))


def _pick_second_look(kind: str, data: Dict[str, Any], counts: Tuple[Optional[int], Optional[int]], environ: Dict[str, str],
                      is_submission: bool, resume: prime_plan.Resume, deleted: Tuple[str, ...]) -> Tuple[Tuple[str, str], ...]:
    rows = dict(prime_plan.make_rows(kind, data, resume, None))
    look = [(name, rows[name]) for name in ("environments", "data", "model", "batch", "schedule", "resume") if name in rows]
    where = "Slurm" if is_submission else prime_plan.show_gpus(kind, counts, environ.get("CUDA_VISIBLE_DEVICES"))
    return tuple(look + ([("GPUs", where)]))


def refuse_requeue(plan: Plan) -> str:
    """Nothing: its launcher writes the batch script."""
    return ""


def name_environment(root: str) -> Tuple[str, Tuple[str, ...]]:
    """The virtual environment of a checkout, and the modules that its runs need."""
    return prime_config.find_venv(root, dict(os.environ)), ("prime_rl", "torch", "vllm", "verifiers")



def describe_node_command(plan: Plan, head: str, launch_log: str) -> str:
    """None: Slurm starts the other nodes."""
    return ""
