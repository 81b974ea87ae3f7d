"""prime-rl: what it is sure to refuse, ahead of time, and what leads to an evening lost."""
import os
import re
import shutil
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ..host import disks, gpus, procs, slurm, web
from ..host.tables import dig
from ..text.shell import escape_controls
from ..values import Check, Machine, Plan
from . import prime_export
from .prime_live import find_of_run
from .prime_plan import Resume, is_local_url
from .prime_rundir import RunDir, list_names, read_run_dir

# GPU-8f1c… or MIG-…
_UUID = re.compile(r"^(GPU|MIG)-", re.I)
# 7
_INDEX = re.compile(r"[0-9]{1,9}\Z")
_MANY = 256
_ASK_SECONDS = 5
# What its launchers set for a run, and take over where it is set already.


class Own(NamedTuple):
    """What only this stack's judgement needs of a plan."""

    data: Dict[str, Any]  # the resolved config; empty where it is unknown
    run: Optional[RunDir]
    resume: Resume
    cleans: bool
    client_url: str
    runner_words: str
    output_dir: str = ""
    doomed: Tuple[str, ...] = ()  # what --clean would delete, as it was when the plan was made
    scripts: Tuple[Tuple[str, str], ...] = ()  # (path, text) of the batch scripts that the launch hands in


def judge_live(plan: Plan, machine: Machine) -> List[Check]:
    """Run directory, server, Slurm, as they are at this moment."""
    own = plan.own
    if plan.kind == prime_export.KIND:
        return prime_export.judge_live(plan)
    checks: List[Check] = []
    if own.run:
        checks += _judge_run_dir(plan, own, machine)
    checks += _judge_uv(plan)
    if not plan.is_submission:
        checks += _judge_gpu_names(plan, machine) + _judge_parts(plan)
    asks_another = plan.kind == "evals" or (plan.kind == "rl" and bool(own.data) and not own.data.get("inference"))
    if not plan.is_submission and own.client_url and asks_another:
        checks += _judge_server(plan, own.client_url)
    return checks


def _judge_run_dir(plan: Plan, own: Own, machine: Machine) -> List[Check]:
    run = read_run_dir(own.run.path, os.path.dirname(own.run.checkpoints)) if own.run else None
    if run is None:
        return []
    checks = _judge_writable(run.path)
    is_reused = own.resume.is_asked or own.cleans
    pids = find_of_run(machine.processes, run.path, procs.read_fd, procs.read_cwd)  # it may have written nothing yet
    for top in own.doomed:  # it, and what lies in it: it may be the folder of all runs
        for folder in [top] + [os.path.join(top, name) for name in list_names(top)[:_MANY]]:
            pids += find_of_run(machine.processes, folder, procs.read_fd, procs.read_cwd) if folder != run.path else ()
    pids = tuple(sorted(set(pids)))
    if pids and (is_reused or not run.artifacts):  # else that it is used says it
        harm = "delete it under it" if own.cleans else "write and delete beside it" if own.resume.is_asked else "write beside it"
        checks.append(Check("live", "job:running", "blocks", "a run lives in %s (pids %s), and this launch would %s" % (
            run.path, " ".join(map(str, pids[:8])), harm), "Let it finish, or stop it, then look again."))
    recent = sorted(run.jobs, key=int)[-8:]
    jobs, reason = slurm.read_jobs(recent, dict(os.environ), _ASK_SECONDS) if is_reused and recent else ({}, "")
    if reason:
        checks.append(Check("live", "slurm:unknown", "advisory", "whether a job of this run still lives could not be told: %s"
                            % reason, "Ask Slurm yourself: squeue -u $USER"))
    live = {job.id: job for job in jobs.values() if not slurm.is_over(job.state)}
    if os.path.isdir(run.path):  # a job that still waits has left no log to know it by
        live.update((job.id, job) for job in slurm.find_jobs_in(run.path, dict(os.environ), _ASK_SECONDS))
    for job in live.values():
        checks.append(Check("live", "job:running", "blocks", "Slurm job %s of this run is %s" % (job.id, job.state),
                            "Let it finish, or scancel %s, then look again." % job.id))
    checks += _judge_shape(own, run) if own.cleans else []
    if is_reused:
        if own.resume.is_asked and own.resume.step is None:
            checks.append(Check("live", "resume:none", "advisory", "--resume, and there is no checkpoint in %s: it would begin "
                                "at step 0" % run.checkpoints, "Is this the right --run.name?"))
        elif own.resume.is_asked and own.resume.source and not os.path.isdir(own.resume.source):
            checks.append(Check("live", "resume:missing", "blocks", "the checkpoint to resume from is not there: %s"
                                % own.resume.source, "In %s there are: %s" % (run.checkpoints, ", ".join(
                                    "step_%d" % step for step in run.steps) or "none")))
        elif own.resume.is_asked:
            checks += _judge_checkpoint(own, run)
        return checks
    used = run.artifacts if run.artifacts else ()
    if used:
        checks.append(Check("live", "run:exists", "blocks", "%s is used by an earlier run (%s%s), and prime-rl refuses it" % (
            run.path, ", ".join(escape_controls(name) for name in used[:4]), " …" if len(used) > 4 else ""), _ways_out(run)))
    elif os.path.dirname(run.checkpoints) != run.path and list_names(run.checkpoints):
        checks.append(Check("live", "run:exists", "blocks", "%s holds an earlier run's checkpoints, and prime-rl refuses it"
                            % run.checkpoints, "Take another --ckpt.output-dir: another name is no help there. Or continue "
                            "that run%s: -- --run.name NAME --resume." % (
                                " from step %d" % run.steps[-1] if run.steps else "")))
    return checks


def _judge_checkpoint(own: Own, run: RunDir) -> List[Check]:
    """Is the checkpoint that a resume takes whole, and is there anything left to train?"""
    step, trainer = own.resume.step, os.path.join(own.resume.source, "trainer")
    checks = []
    if os.path.isdir(trainer) and not os.path.exists(os.path.join(trainer, ".metadata")):
        older = [one for one in run.steps if step is not None and one < step and os.path.exists(
            os.path.join(run.checkpoints, "step_%d" % one, "trainer", ".metadata"))]
        checks.append(Check("live", "resume:unfinished", "advisory", "%s has no .metadata: its saving did not end" % trainer,
                            "Take an older one: --resume.step %d" % older[-1] if older else "No older one is whole."))
    limit = own.data.get("max_steps")
    if isinstance(limit, int) and step is not None and step >= limit:
        checks.append(Check("live", "resume:done", "advisory", "the checkpoint is of step %d, and max_steps is %d: nothing is "
                            "left to train" % (step, limit), "Raise --max-steps."))
    return checks


def _judge_shape(own: Own, run: RunDir) -> List[Check]:
    """What --clean refuses, some of it after it has begun to delete (validate_run_dir, shutil.rmtree)."""
    for path in dict.fromkeys((run.path, os.path.dirname(run.checkpoints))):
        if os.path.lexists(path) and path not in own.doomed:
            return [Check("live", "run:clean", "blocks", "%s was not there when this plan was made, and --clean would delete it"
                          % path, "Look at it, and check again.")]
        if os.path.islink(path):
            return [Check("live", "run:clean", "blocks", "%s is a link, and --clean can't delete a link; what it was to delete "
                          "before it would be gone" % path, "Delete it yourself, or take another --run.name.")]
        if os.path.lexists(path) and not os.path.isdir(path):
            return [Check("live", "run:clean", "blocks", "%s is no directory" % path, "Look what it is, and move it away.")]
    if own.output_dir and not os.path.realpath(run.path).startswith(os.path.realpath(own.output_dir).rstrip("/") + "/"):
        return [Check("live", "run:clean", "blocks", "%s does not lie in the output directory %s, and --clean refuses that" % (
            run.path, own.output_dir), "Name it by --run.name and --output-dir alone.")]
    return []


def _ways_out(run: RunDir) -> str:
    newest = " (from step %d)" % run.steps[-1] if run.steps else " (there is no checkpoint yet)"
    name = os.path.basename(run.path)
    return "Continue it: -- --run.name %s --resume%s. Or begin anew under another name: -- --run.name NAME. Or delete it: -- " \
        "--run.name %s --clean (what goes is listed, and its name must be typed)." % (name, newest, name)


def _judge_writable(path: str) -> List[Check]:
    probe = disks.probe_write(path)
    if probe.is_writable:
        return []
    owner = disks.read_owner(probe.probed)
    return [Check("live", "run:unwritable", "blocks", "the run can't be written to %s: %s%s" % (
        path, probe.reason, " (%s belongs to %s, mode %o)" % ((probe.probed,) + owner) if owner else ""),
        "Free it, or take another --output-dir.")]


def _judge_uv(plan: Plan) -> List[Check]:
    """A batch script for several nodes brings the environment in line by `uv sync` and starts every part by `uv run`: a job whose
    first node has no uv ends with 127 (seen). The nodes' own PATH is not known here; this one's goes with the job."""
    needs = [os.path.basename(path) for path, text in plan.own.scripts if re.search(r"^\s*uv (?:sync|run) ", text, re.M)]
    if not needs or shutil.which("uv", path=_path_of(plan)):
        return []
    return [Check("live", "slurm:uv", "advisory", "%s runs `uv` on the job's nodes, and there is none on PATH here, which the "
                  "job takes over" % ", ".join(needs), "Install uv where the nodes find it, or put its folder on PATH first.")]


def _path_of(plan: Plan) -> str:
    path = os.environ.get("PATH", os.defpath)
    return plan.path_first + os.pathsep + path if plan.path_first else path


def _judge_parts(plan: Plan) -> List[Check]:
    """Are the commands there that the launcher starts by name? It ends at the first that is not."""
    data = plan.own.data
    wanted = {"rl": ["orchestrator", "env-server", "torchrun"], "sft": ["torchrun"] + (
        ["evals", "env-server"] if data.get("eval") else [])}.get(plan.kind, [])
    wanted += ["inference"] if wanted and data.get("inference") else []
    path = os.path.join(plan.venv, "bin") + os.pathsep + _path_of(plan)
    missing = [name for name in wanted if data and plan.venv and not shutil.which(name, path=path)]
    return [Check("live", "runner:part", "blocks", "%s has no command %s, which the launcher starts" % (
        plan.venv, ", ".join(missing)), "Bring the environment up to date: uv sync --all-extras")] if missing else []


def _judge_gpu_names(plan: Plan, machine: Machine) -> List[Check]:
    word = plan.environment.get("CUDA_VISIBLE_DEVICES")
    names = [one.strip() for one in word.split(",") if one.strip()] if word is not None else []
    checks = []
    odd = [name for name in names if not _UUID.match(name) and not _INDEX.match(name)]
    if odd:
        shown = (escape_controls(word or ""), escape_controls(odd[0]))
        checks.append(Check("live", "gpu:uuid", "advisory", "CUDA_VISIBLE_DEVICES=%s: prime-rl reads numbers there, and %s is "
                            "none" % shown, "Name them by index; nvidia-smi -L shows them."))
    if plan.kind in ("rl", "sft") and any(_UUID.match(name) for name in names):
        checks.append(Check("live", "gpu:uuid", "advisory", "CUDA_VISIBLE_DEVICES=%s names GPUs by UUID; prime-rl reads numbers "
                            "and would end there" % word, _name_by_index(_find_indices(names, machine))))
    there = {str(gpu.index) for gpu in machine.gpus.gpus}
    absent = [name for name in names if machine.gpus.state == "ok" and name.isdigit() and name not in there]
    if absent or len(set(names)) < len(names):
        checks.append(Check("live", "gpu:few", "blocks", "CUDA_VISIBLE_DEVICES=%s: %s" % (word, "this machine has no GPU %s"
                            % absent[0] if absent else "one is named twice"), "Name GPUs that are there, each once."))
    counts = plan.kind == "rl" or (plan.kind == "sft" and bool(plan.own.data.get("inference")))  # plain sft leaves it to torchrun
    if counts and word is not None and plan.gpu_count is not None and len(names) < plan.gpu_count:
        checks.append(Check("live", "gpu:few", "blocks", "the plan takes %d GPUs, CUDA_VISIBLE_DEVICES=%s shows %d; prime-rl "
                            "refuses that" % (plan.gpu_count, word, len(names)), "Show it more, or lower "
                            "deployment.num_train_gpus and num_infer_gpus."))
    elif counts and word is None and plan.gpu_count and machine.gpus.state == "ok" and \
            len(machine.gpus.gpus) < plan.gpu_count:
        checks.append(Check("live", "gpu:few", "blocks", "the plan takes %d GPUs, this machine has %d; prime-rl refuses that"
                            % (plan.gpu_count, len(machine.gpus.gpus)), "Lower deployment.num_train_gpus and num_infer_gpus."))
    return checks


def _name_by_index(indices: List[str]) -> str:
    return "Name them by index: %s" % ("CUDA_VISIBLE_DEVICES=" + ",".join(indices) if indices else "nvidia-smi -L shows them")


def _find_indices(names: List[str], machine: Machine) -> List[str]:
    visible = gpus.select_visible(machine.gpus.gpus, ",".join(names))
    return [str(gpu.index) for gpu in visible or [] if gpu.index >= 0]


def _judge_server(plan: Plan, url: str) -> List[Check]:
    """Is the server there that this run asks and does not start? evals ends without it; rl would wait half an hour."""
    answer, models = web.read_models(url, timeout_seconds=_ASK_SECONDS)
    blocks = plan.kind == "evals"
    if answer.how == "failed":
        return [Check("live", "server:unknown", "advisory", "whether a server answers at %s could not be told: %s" % (
            url, answer.reason), "Ask it yourself before you say yes.")]
    if answer.how != "answered":
        return [Check("live", "server:down", "blocks" if blocks else "advisory", "no server at %s: %s%s" % (
            url, answer.how, " (%s)" % answer.reason if answer.reason else ""),
            "Start it (rlrun run %s), or correct base_url." % ("an inference config" if is_local_url(url) else "there"))]
    model = str(plan.own.data.get("model") or "") if plan.kind == "evals" else ""
    if models and model and model not in models:
        return [Check("live", "server:model", "advisory", "%s serves %s, and not %s" % (url, ", ".join(models[:4]), model),
                      "Correct `model`, or serve it.")]
    return [Check("live", "server:up", "pass", "%s answers%s" % (url, ": " + ", ".join(models[:4]) if models else ""))]


def judge_config(plan: Plan) -> List[Check]:
    """What is noticed of the config itself, all advisory."""
    if plan.kind == prime_export.KIND:
        return prime_export.judge_config(plan)
    own = plan.own
    checks: List[Check] = [Check("live", "runner:words", "pass", own.runner_words)]
    if plan.kind in ("rl", "sft") and own.data:
        trainer = own.data.get("trainer") if plan.kind == "rl" else own.data
        if isinstance(trainer, dict) and not trainer.get("ckpt"):
            checks.append(Check("live", "ckpt:none", "advisory", "no [ckpt]: no checkpoint is saved, not even at the end",
                                "Add [ckpt], with an interval, unless this is a trial."))
        checks += _judge_wandb(own.data, trainer)
    if plan.kind == "rl" and own.data and not own.data.get("inference"):
        checks.append(Check("live", "server:external", "advisory", "no [inference]: it asks a server that it does not start, "
                            "at %s" % (own.client_url or "an unknown address"), "See server:down."))
    return checks


def _judge_wandb(data: Dict[str, Any], trainer: Any) -> List[Check]:
    wandb = dig(data, "monitors", "wandb") or dig(trainer, "monitors", "wandb")
    if not wandb or dig(wandb, "offline") or os.environ.get("WANDB_MODE") in ("offline", "disabled", "dryrun") or \
            os.environ.get("WANDB_API_KEY"):
        return []
    netrc = os.environ.get("NETRC") or os.path.expanduser("~/.netrc")
    try:
        with open(netrc, "rb") as file:
            if b"wandb" in file.read(1 << 16):
                return []
    except OSError:
        pass
    return [Check("live", "wandb:key", "advisory", "W&B is on, and there is no WANDB_API_KEY and no login in %s" % netrc,
                  "wandb login, or set the key; --no-monitors.wandb runs without.")]
