"""prime-rl: converting a checkpoint. Which source, which tool, what it would refuse, what it needs, what it leaves behind.

Source: the seed's section on exporting, and the converters themselves (tools/convert_*.py, August 2026): they refuse LoRA
and what is not complete, take the model's config from beside the checkpoint, and write over whatever is in their target.
Those that read a trainer's checkpoint take one GPU for each rank; the other two use one where there is one.
"""
import os
import re
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ..errors import USAGE, OperatorError
from ..host import disks, procs, tables
from ..text.durations import format_bytes
from ..text.shell import quote_words
from ..values import (Check, Checkout, Config, Plan, Preflight, PreflightLine, Request, SweepRule,
                      Topology)
from . import DryRunOrder, DryRunResult, prime_config, prime_dcp, prime_plan, prime_rundir, prime_runner
from .prime_live import find_of_run

KIND = "export"
FORMATS = ("bf16", "fp8")
_OUTPUTS = "outputs"
_RUN_CONFIGS = ("trainer.json", "sft.json")
_INDEX = "model.safetensors.index.json"
# (what is read, what is written): the tool's name, the ending of its target, the tools that it imports
_TOOLS = {("dcp", "bf16"): ("dcp_to_bf16", "/weights", ()),
          ("dcp", "fp8"): ("dcp_to_fp8", "/weights-FP8", ("bf16_to_fp8", "dcp_to_bf16")),
          ("bf16", "fp8"): ("bf16_to_fp8", "-FP8", ()), ("fp8", "bf16"): ("fp8_to_bf16", "-BF16", ("bf16_to_fp8",))}
# Where they lie: since August 2026, and for a while before.
_PLACES = ("tools/convert_%s.py", "tools/converters/%s.py")
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
# outputs/my-run/checkpoints/step_40, and trainer below it
_STEP_DIR = re.compile(r"(.+)/checkpoints/step_(\d{1,12})(?:/trainer)?\Z")
_PYTHON_NAMES = ("PATH", "PYTHONPATH", "VIRTUAL_ENV", "HOME", "LANG", "LD_LIBRARY_PATH")
_TIGHT_BYTES = 10 << 30
_MANY = 20


class Room(NamedTuple):
    """What the result takes on disk, in bytes: at least, and likely; and what that was reckoned from."""

    least: int
    likely: int
    words: str


class Export(NamedTuple):
    """A conversion: Plan.own of this kind."""

    source: str  # the directory that the tool is given
    read: str  # dcp, bf16, fp8
    written: str
    step: Optional[int]
    run_dir: str  # "" for a directory of weights
    target: str
    tool: str  # relative to the checkout
    missing: Tuple[str, ...]  # tools that this checkout does not have
    ranks: int
    room: Room
    lora: str  # why it is an adapter, "" where it is none
    keeps: bool  # the run deletes older checkpoints


def find_export(checkout: Checkout, word: str, run_dirs: Sequence[str], step: Optional[int], to: str,
                ranks: int) -> Tuple[Config, Tuple[str, ...], str]:
    """What `rlrun export` means: (config, overrides of the Request, RUN by its whole path). From the third on the overrides
    are the command's own options. `run_dirs`: the directories of the recorded launches that the word names.

    Raises OperatorError (exit 2) where it names nothing that can be converted, or several.
    """
    folder = _find_folder(checkout.root, word, run_dirs)
    match = _STEP_DIR.match(folder)
    if match and not os.path.isfile(os.path.join(folder, "config.json")):
        if step is not None and step != int(match.group(2)):
            raise OperatorError("%s is step %s, not %d" % (folder, match.group(2), step), "Leave --step away, or name the run.",
                                USAGE, "step")
        folder, step = match.group(1), int(match.group(2))
    if os.path.isfile(os.path.join(folder, "config.json")) and any(name.endswith(".safetensors") or name == _INDEX
                                                                   for name in prime_rundir.list_names(folder)):
        return _find_weights(checkout.root, folder, step, to, ranks)
    return _find_checkpoint(checkout.root, folder, step, to or "bf16", ranks)


def _find_folder(root: str, word: str, run_dirs: Sequence[str]) -> str:
    if word:
        named = [os.path.abspath(word)] if os.path.isabs(word) or os.path.isdir(word) else []
        named += [] if named else [os.path.join(root, word), os.path.join(root, _OUTPUTS, word)]
        found = [path for path in named if os.path.isdir(path)][:1] or sorted({path for path in run_dirs if path})
        if len(found) == 1:
            return os.path.normpath(found[0])
        if found:
            raise OperatorError("%s means several runs:\n%s" % (word, "\n".join("  " + path for path in found[:_MANY])),
                                "Name one by its directory.", USAGE, "run")
    runs = [name for name in prime_rundir.list_names(os.path.join(root, _OUTPUTS))
            if prime_rundir.list_steps(os.path.join(root, _OUTPUTS, name, "checkpoints"))]
    listing = "\n".join("  " + name for name in runs[:_MANY]) or "  none"
    raise OperatorError("%s; with checkpoints in %s there are:\n%s" % (
        "no run is named %s" % word if word else "no run was named", os.path.join(root, _OUTPUTS), listing),
        "Name one of them, a run's directory, or an id of `rlrun runs`.", USAGE, "run")


def _find_checkpoint(root: str, run_dir: str, step: Optional[int], to: str, ranks: int) -> Tuple[Config, Tuple[str, ...], str]:
    path = _find_config(run_dir)
    if not path:
        raise OperatorError("%s is no run's directory and no directory of weights: it holds neither configs/ with %s nor "
                            "config.json with *.safetensors" % (run_dir, " or ".join(_RUN_CONFIGS)), "Name the directory that a "
                            "run was written to.", USAGE, "run")
    checkpoints = _find_checkpoints(root, run_dir, path)
    steps = prime_rundir.list_steps(checkpoints)
    if not steps:
        raise OperatorError("no checkpoint in %s" % checkpoints, "A run saves some only with --ckpt, or [ckpt] in its config.",
                            USAGE, "step")
    if step is None:
        whole = (one for one in reversed(steps) if not prime_dcp.read_shards(_name_step(checkpoints, one)).faults)
        step = next(whole, steps[-1])
    elif step not in steps:
        raise OperatorError("no step %d in %s; there are: %s" % (step, checkpoints, " ".join(map(str, steps[-_MANY:]))),
                            "Leave --step away for the newest complete one.", USAGE, "step")
    words = ("--from", _name_step(checkpoints, step), "--step", str(step), "--to", to)
    return _make_config(root, path), words + (("--ranks", str(ranks)) if ranks > 1 else ()), run_dir


def _find_weights(root: str, folder: str, step: Optional[int], to: str, ranks: int) -> Tuple[Config, Tuple[str, ...], str]:
    for name, is_given in (("--step", step is not None), ("--ranks", ranks > 1)):
        if is_given:
            raise OperatorError("%s is for a run's checkpoint, and %s is a directory of weights" % (name, folder),
                                "Leave it away.", USAGE, "usage")
    config = _read_json(os.path.join(folder, "config.json"))
    if not config:
        raise OperatorError("%s can't be read" % os.path.join(folder, "config.json"), "It tells what they are.", USAGE, "run")
    quantized = tables.dig(config, "quantization_config", default=None)
    method = str(tables.dig(quantized, "quant_method")) if quantized else ""
    if method not in ("", "fp8") or tables.dig(quantized, "scale_fmt") == "ue8m0":
        words = "with ue8m0 scales" if method == "fp8" else "with %s" % method
        raise OperatorError("%s is quantized %s, and no tool converts that" % (folder, words),
                            "They convert between bf16 and fp8 with blocks of plain float scales.", USAGE, "format")
    read = method or "bf16"
    if to == read:
        shown = read if method else str(config.get("dtype") or config.get("torch_dtype") or "not quantized")
        raise OperatorError("%s is %s already" % (folder, shown), "Its other format is --to %s." % _other(read), USAGE, "format")
    return _make_config(root, os.path.join(folder, "config.json")), ("--from", folder, "--to", _other(read)), folder


def _other(name: str) -> str:
    return FORMATS[1 - FORMATS.index(name)]


def _name_step(checkpoints: str, step: int) -> str:
    return os.path.join(checkpoints, "step_%d" % step)


def _make_config(root: str, path: str) -> Config:
    is_inside = path.startswith(root.rstrip("/") + "/")
    return Config(path, os.path.relpath(path, root) if is_inside else path, KIND)


def _find_config(run_dir: str) -> str:
    """The resolved config that the converters read, "" where there is none. Three layouts: configs/latest/resolved,
    configs/resolved, configs."""
    base = os.path.join(run_dir, "configs")
    paths = [os.path.join(folder, name) for folder in (prime_rundir.find_configs(run_dir), os.path.join(base, "resolved"), base)
             for name in _RUN_CONFIGS]
    return next((path for path in paths if os.path.isfile(path)), "")


def _find_checkpoints(root: str, run_dir: str, config: str) -> str:
    """Where the run keeps its checkpoints: ckpt.output_dir where it is set."""
    other = tables.dig(_read_json(config), "ckpt", "output_dir")
    folder = os.path.normpath(os.path.join(root, other)) if isinstance(other, str) and other else run_dir
    return os.path.join(folder, "checkpoints")


def _read_json(path: str) -> Dict[str, Any]:
    return tables.read_tables([path])[path].data or {}


def plan_check(request: Request, environ: Dict[str, str]) -> DryRunOrder:
    """Nothing is run: the tools have no dry run, and all that they would refuse can be read. OperatorError (exit 5) where
    the checkout has no environment."""
    prime_runner.choose(request.checkout.root, "python", environ, request.runner)
    return DryRunOrder((), environ, {})


def read_check(request: Request, result: DryRunResult, environ: Dict[str, str]) -> Tuple[Plan, Preflight]:
    """The plan, out of the overrides that find_export made and of what lies on the disk."""
    root = request.checkout.root
    export = _read_export(request)
    program = "torchrun" if export.ranks > 1 else "python"
    runner = prime_runner.choose(root, program, environ, request.runner)
    argv = runner.argv + (("--nproc-per-node", str(export.ranks)) if export.ranks > 1 else ()) + (export.tool, export.source)
    name = os.path.basename(export.run_dir or export.source) + ("/step_%d" % export.step if export.step is not None else "")
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    has_none = visible is not None and visible.strip() in ("", "-1", "NoDevFiles")
    gpus = export.ranks if export.read == "dcp" else 0 if has_none else 1
    rows = _make_rows(export, runner, _show_gpus(export, gpus, visible))
    environment = {key: value for key, value in environ.items() if key in _PYTHON_NAMES or key.startswith("CUDA_")}
    summary = "the source and its config were read; the tools have no dry run"
    return Plan(
        stack="prime", kind=KIND, root=root, config=request.config.path, config_shown=request.config.shown,
        sources=(request.config.path,), unread_sources=(), overrides=request.overrides, project="", experiment=name,
        name_is_volatile=False, block=prime_plan.render_block(KIND, rows),
        second_look=_pick_second_look(export), train_log="", vllm_log="", trials="",
        checkpoints="", resume_mode="", python=prime_config.find_python(root, environ), argv=argv, drop_env=(),
        launch_command="", environment=environment, set_names=(), volatile_names=(), topology=Topology(1, "", "", 0, ""),
        gpu_count=gpus, takes_whole_box=False, ports=(), modules=(), soft_modules=("torch", "safetensors"),
        venv=prime_config.find_venv(root, environ), ray_dir="", shm_bytes=1 << 30 if export.ranks > 1 else 0,
        sweep=SweepRule((), (), "", True), write_dirs=(os.path.join(root, "logs"), export.target), prints_secrets=False, gates=(),
        stage="the weights are read, then written to %s" % export.target, has_board=False, log_note="the launch log",
        run_dir=export.run_dir or export.source, shows_environment=False, path_first=runner.path_first, is_short=True,
        own=export), Preflight((PreflightLine("OK", summary),), False, False, "", summary)


def _read_export(request: Request) -> Export:
    options, _ = prime_config.read_options(request.overrides)
    root, source, written = request.checkout.root, str(options["from"]), str(options["to"])
    config = _read_json(request.config.path)
    if "step" in options:
        shards = prime_dcp.read_shards(source)
        read, run_dir, step = "dcp", _find_run_dir(request.config.path), int(options["step"])
        room = _measure_checkpoint(shards, written)
        lora = "model.lora is set in %s" % request.config.path if tables.dig(config, "model", "lora") else \
            "the checkpoint holds %s" % shards.lora if shards.lora else ""
    else:
        read, run_dir, step = _other(written), "", None
        room = _measure_weights(source, config, written)
        lora = "adapter_config.json lies in it" if os.path.exists(os.path.join(source, "adapter_config.json")) else ""
    name, ending, needed = _TOOLS[(read, written)]
    tool = _find_tool(root, name)
    missing = tuple(one for one in (tool,) + tuple(_find_tool(root, other) for other in needed)
                    if not os.path.isfile(os.path.join(root, one)))
    target = (source if read == "dcp" else os.path.realpath(source)) + ending
    keeps = any(tables.dig(config, "ckpt", one) is not None for one in ("keep_last", "keep_interval"))
    return Export(source, read, written, step, run_dir, target, tool, missing, int(options.get("ranks", 1)), room, lora, keeps)


def _find_run_dir(config: str) -> str:
    """The run's directory of a config in it: what is above `configs`."""
    return config[:config.rindex("/configs/")]


def _find_tool(root: str, name: str) -> str:
    paths = [place % name for place in _PLACES]
    return next((path for path in paths if os.path.isfile(os.path.join(root, path))), paths[0])


def _measure_checkpoint(shards: prime_dcp.Shards, written: str) -> Room:
    if shards.weights is None:
        share = 6 if written == "bf16" else 11
        return Room(shards.size_bytes // 16, shards.size_bytes // share, "an estimate: %s of the checkpoint's %s, as AdamW in "
                    "fp32 leaves it; %s" % ("a sixth" if share == 6 else "an eleventh", format_bytes(shards.size_bytes),
                                            shards.unread or "its index tells of no weights"))
    least = shards.weights - shards.head
    words = "%.2f billion numbers of two bytes" % (shards.weights / 1e9)
    if written == "bf16":
        return Room(2 * least, 2 * shards.weights, words)
    likely = shards.weights + shards.kept
    return Room(least, likely + likely // 50, words.replace("two bytes", "one byte, norms and embeddings of two"))


def _measure_weights(folder: str, config: Dict[str, Any], written: str) -> Room:
    names = [name for name in prime_rundir.list_names(folder) if name.endswith(".safetensors")]
    size = sum(os.stat(os.path.join(folder, name)).st_size for name in names if os.path.exists(os.path.join(folder, name)))
    if written == "bf16":
        return Room(size * 9 // 10, size * 2, "an estimate: twice the %s of the source" % format_bytes(size))
    dtype = str(config.get("dtype") or config.get("torch_dtype"))
    width = _BYTES.get(dtype, 2)
    return Room(size // 5, size * 11 // (10 * width), "an estimate, from the %s of the source in %s" % (
        format_bytes(size), dtype if dtype in _BYTES else "what is taken for bf16"))


def _show_gpus(export: Export, count: int, visible: Optional[str]) -> str:
    words = [word.strip() for word in visible.split(",")] if visible is not None else [str(one) for one in range(count)]
    shown = "GPU %s" % ",".join(words[:count]) if count else "none: CUDA_VISIBLE_DEVICES leaves none, the CPU does it"
    if export.read == "dcp":
        return shown + "  (one for each rank; others: CUDA_VISIBLE_DEVICES=7 rlrun export …)"
    return shown + ("  (where there is one; without: CUDA_VISIBLE_DEVICES= rlrun export …)" if count else "")


def _make_rows(export: Export, runner: prime_runner.Runner, gpus: str) -> List[Tuple[str, str]]:
    rows = [("run", export.run_dir)] if export.run_dir else []
    rows += [("step", str(export.step))] if export.step is not None else []
    kind = {"dcp": "the trainer's checkpoint", "bf16": "weights, not quantized", "fp8": "weights in blockwise fp8"}
    # As everything is started here: a plain `uv run` would bring the environment in line first.
    serve = runner.argv[:-1] + (os.path.join(os.path.dirname(runner.argv[-1]), "inference"), "--vllm.model", export.target)
    rows += [("from", "%s  (%s)" % (export.source, kind[export.read])),
             ("to", "%s  (%s)" % (export.target, {"bf16": "bf16", "fp8": "blockwise fp8"}[export.written])),
             ("tool", "%s%s" % (export.tool, "  %d ranks" % export.ranks if export.ranks > 1 else "")),
             ("GPUs", gpus), ("runner", " ".join(runner.argv)),
             ("serve", quote_words(serve))]
    return rows


def _pick_second_look(export: Export) -> Tuple[Tuple[str, str], ...]:
    """What may differ at the next look, and so is not in the block: that is in the digest."""
    look = [("room", "%s  (%s)" % (format_bytes(export.room.likely), export.room.words))]
    if export.step is not None:
        newer = [one for one in prime_rundir.list_steps(os.path.dirname(export.source)) if one > export.step]
        look.insert(0, ("step", "%d, %s" % (export.step, "and there is newer: %s" % " ".join(map(str, newer[-_MANY:])) if newer
                                            else "the newest")))
    return tuple(look + [("result", export.target)])


def judge_live(plan: Plan) -> List[Check]:
    """Source, tool, target and room as they are at this moment: what the tool would refuse, or spoil."""
    export: Export = plan.own
    writer = _find_writer(export)
    checks = [Check("live", "export:incomplete", "blocks", words + (", and the run lives (pid %d)" % writer if writer else ""),
                    "Wait until it is saved." if writer else "Take another step, or another copy: the tool would end here.")
              for words in _find_faults(export)[:4]]
    if export.lora:
        checks.append(Check("live", "export:lora", "blocks", "a LoRA adapter: %s; the tools convert whole models" % export.lora,
                            "Serve the base model with the adapter, or merge the two elsewhere first."))
    checks += [Check("live", "export:tool", "blocks", "this checkout has no %s" % name,
                     "Update the checkout; or convert with one that has it: --root DIR") for name in export.missing]
    if _is_taken(export.target):
        checks.append(Check("live", "export:target", "blocks", "%s is there already: of an earlier export, of one that was cut "
                            "off, or of one under way; the tool would write over it" % export.target, "Use it as it is, or move "
                            "it away: mv %s" % quote_words([export.target, export.target + ".old"])))
    checks += _judge_room(export)
    if writer and export.keeps and export.read == "dcp":
        checks.append(Check("live", "export:live", "advisory", "the run lives (pid %d) and deletes its older checkpoints: this "
                            "step may go while it is read, and the result with it" % writer, "Move %s elsewhere when it is done."
                            % export.target))
    return checks if any(check.status == "blocks" for check in checks) else checks + [
        Check("live", "export:ok", "pass", "complete, target free, %s needed" % format_bytes(export.room.likely))]


def _is_taken(path: str) -> bool:
    """Is something there that a tool would write over? An empty directory is free."""
    return os.path.lexists(path) and (not os.path.isdir(path) or bool(prime_rundir.list_names(path)))


def _find_writer(export: Export) -> int:
    """A live process of the run that the checkpoint is of, 0 where there is none."""
    if not export.run_dir:
        return 0
    return (find_of_run(procs.read_processes(), export.run_dir, procs.read_fd, procs.read_cwd) or (0,))[0]


def _find_faults(export: Export) -> List[str]:
    if export.read == "dcp":
        faults = list(prime_dcp.read_shards(export.source).faults)
        beside = os.path.dirname(os.path.dirname(export.source))
        if not _find_config(beside):
            faults.append("the tool reads the run's config from beside the checkpoints, and %s/configs has none" % beside)
        return faults
    index = _read_json(os.path.join(export.source, _INDEX)).get("weight_map")
    names = set(index.values()) if isinstance(index, dict) else {"model.safetensors"}
    faults = ["%s is missing" % name for name in sorted(map(str, names)) if not os.path.isfile(os.path.join(export.source, name))]
    # What save_state_dict_parallel writes before it has all shards
    return faults + ["%s: it is being written, or was cut off" % name for name in prime_rundir.list_names(export.source)
                     if re.match(r"tmp-rank\d+", name) or name.endswith((".incomplete", ".part"))]


def _judge_room(export: Export) -> List[Check]:
    disk = disks.read_disk(export.target)
    if disk is None:
        return []
    words = "%s free where %s would lie, %s needed (%s)" % (
        format_bytes(disk.free_bytes), export.target, format_bytes(export.room.likely), export.room.words)
    if disk.free_bytes < export.room.least:
        return [Check("live", "export:room", "blocks", words, "Free some room there: it would end half done.")]
    if disk.free_bytes < export.room.likely + min(_TIGHT_BYTES, export.room.likely // 2):
        return [Check("live", "export:room", "advisory", words, "Free some room there first.")]
    return []


def judge_config(plan: Plan) -> List[Check]:
    """What whoever serves the result must know."""
    export: Export = plan.own
    if export.written != "fp8":
        return []
    return [Check("live", "export:sm120", "advisory", "on SM120 GPUs (RTX PRO 6000) vLLM 0.26 picks a kernel for such weights "
                  "that makes answers worse and says nothing", "Serve it there with VLLM_DISABLED_KERNELS="
                  "CutlassFp8BlockScaledMMKernel,MarlinFP8ScaledMMLinearKernel: the Triton kernel takes their place.")]
