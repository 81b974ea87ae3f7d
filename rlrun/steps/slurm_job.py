"""One Slurm job for all nodes of a run whose training system has no launcher for that: its batch script, out of the plan and what
the site asks for. The script is part of the plan, and so of the digest. Submits nothing.

Facts: sbatch(1), srun(1). The script runs on the first node of the job, which is the head. A signal of Slurm's goes to every
process of a step, trainer and all, so what is to end in good order is told by the script to the head's agent alone.
"""
import os
import re
import shlex
import shutil
import zipfile
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from ..errors import MACHINE, OperatorError
from ..host import slurm, slurm_partition
from ..stacks import load_stack
from ..text.shell import quote_words, strip_colour
from ..values import Check, Fingerprint, Plan, SweepRule
from . import judge_config, record
from .digest import hash_file
from .slurm_site import Asked

SCRIPT, COPY = "job.sbatch", "rlrun.pyz"
NODES = "nodes"  # the folder in the record in which each node tells how it is
RECORD, DIGEST = "<record>", "<digest>"
SIGNAL = "--signal=B:USR1@120"
_GPU_OPTIONS = {"gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket"}
# sbatch takes these before what the script says: they would be about some other job (sbatch(1), input environment variables).
_DROPPED = frozenset("SBATCH_" + name for name in (
    "ARRAY_INX", "CLUSTERS", "ERROR", "EXPORT", "INPUT", "NO_REQUEUE", "OPEN_MODE", "OUTPUT", "REQUEUE", "SIGNAL", "WAIT"))
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
# How long srun lets the other nodes live on once the head's runner has ended.
_WAIT_SECONDS = 10


def find_dropped(environ: Mapping[str, str]) -> Tuple[str, ...]:
    """The variables that must not reach sbatch and srun: those that are about another job, and all of Slurm's that are neither in
    the plan nor say where Slurm is: the agents' output, say, would go elsewhere (SLURM_STDOUTMODE)."""
    return tuple(sorted(name for name in environ if name in _DROPPED
                        or name.startswith("SBATCH_") and not slurm.is_told(name)
                        or name.startswith("SLURM_") and not name.startswith("SLURM_CONF")))


class Batch(NamedTuple):
    """A job's script, with `<record>` and `<digest>` in place of what is known at the launch only."""

    script: str
    options: Dict[str, str]  # as sbatch will take them, those of its own variables (SBATCH_*) too
    runner: Tuple[str, ...]  # what each node starts
    program: Tuple[str, str]
    files: Tuple[str, ...]
    requeue: bool
    head_variable: str
    drop_env: Tuple[str, ...]  # what the runner itself must not get
    program_sha256: str
    gpu_count: Optional[int] = None  # that the runner takes of each node


def make_plan(plan: Plan, asked: Asked, environ: Dict[str, str]) -> Plan:
    """The plan as a job for all its nodes: nothing of this machine is taken or swept."""
    script = _write_script(plan, asked)
    options = slurm.read_directives(script, {name: value for name, value in environ.items() if name not in _DROPPED})
    log = os.path.join(plan.root, record.FOLDER, "<record>", "job_<id>.log")
    board = "a job's log is linked by nobody: once it exists, ln -s it into a directory that the board serves"
    rows = [("Slurm", _show_options(options)), ("naming", "project=%s  exp=%s%s" % (
        plan.project or "unknown", plan.experiment or "unknown", "   (made anew on each node)" if plan.name_is_volatile else "")),
            ("logs", "%s\nboard: %s" % (plan.train_log or "unknown", board))] if plan.block else []
    if plan.sweep.words:
        rows.append(("sweep", "on every node of the job, before its runner starts: %s" % plan.sweep.words))
    return plan._replace(
        argv=("sbatch", "%s/%s" % (RECORD, SCRIPT)), is_submission=True, is_short=True, takes_whole_box=False, ports=(),
        gpu_count=0, sweep=SweepRule((), (), "", True), has_board=False, second_look=plan.second_look + tuple(rows),
        drop_env=plan.drop_env + find_dropped(environ), ray_dir="",
        log_note="%s, and logs/launch_<time>_<node>.log of each node" % log,
        stage="Slurm starts it when its nodes are free; each node is checked before its runner starts",
        more_parts=dict(plan.more_parts, **{"batch script": script, "Slurm options": _show_options(options),
                                            "runner": quote_words(plan.argv)}),
        batch=Batch(script, options, plan.argv, asked.program, asked.files, asked.requeue, plan.topology.head_variable,
                    plan.drop_env, hash_file(asked.program[1]), plan.gpu_count))


def _show_options(options: Dict[str, str]) -> str:
    return "  ".join(name + ("=" + value if value else "") for name, value in options.items() if name not in (
        "output", "open-mode", "job-name", "ntasks-per-node"))


def _write_script(plan: Plan, asked: Asked) -> str:
    title = load_stack(plan.stack).TITLE
    nodes = plan.topology.nodes
    wanted = slurm.read_directives("\n".join("#SBATCH " + line for _, line in asked.sbatch))
    name = _UNSAFE.sub("_", os.path.splitext(os.path.basename(plan.config))[0])[:60]
    lines = ["#!/usr/bin/env bash",
             "# %s %s on %d node%s: %s" % (title, plan.kind, nodes, "" if nodes == 1 else "s", _show(plan.config_shown)),
             "# Written by rlrun for plan %s. Handed in once, by: sbatch %s/%s" % (DIGEST, RECORD, SCRIPT),
             "#", "# From the plan: its nodes with all that is on them, one task each.",
             "#SBATCH --job-name=%s" % name, "#SBATCH --nodes=%d" % nodes, "#SBATCH --ntasks-per-node=1"]
    if plan.takes_whole_box:
        lines += ["#SBATCH --exclusive"] + ([] if {"mem", "mem-per-cpu", "mem-per-gpu"} & set(wanted) else ["#SBATCH --mem=0"])
    if plan.gpu_count and not _GPU_OPTIONS & set(wanted):
        lines.append("#SBATCH --gres=gpu:%d" % plan.gpu_count)
    lines += ["# What this script and rlrun on the nodes say, one attempt after the other.",
              "#SBATCH --output=%s/job_%%j.log" % RECORD, "#SBATCH --open-mode=append"]
    if asked.requeue:
        lines += ["# Started again after a node failed or it was preempted: it goes on from its newest checkpoint.",
                  "#SBATCH --requeue"]
    else:
        lines += ["# Never started a second time by itself.", "#SBATCH --no-requeue"]
    if "signal" not in wanted:
        lines += ["# So many seconds before the time limit this script is told, and tells the head's runner.",
                  "#SBATCH " + SIGNAL]
    last = ""
    for where, line in asked.sbatch:
        lines += ["# From %s." % _show(where)] if where != last else []
        lines.append("#SBATCH " + line)
        last = where
    return "\n".join(lines + _write_body(plan, asked)) + "\n"


def _write_body(plan: Plan, asked: Asked) -> List[str]:
    nodes, head = plan.topology.nodes, plan.topology.head_variable
    options = " ".join(shlex.quote(word) for _, line in asked.srun for word in shlex.split(line))
    return [
        "", "set -u", "cd %s || exit" % quote_words([plan.root]),
        "export SLURM_CPU_BIND=none  # a task gets all of its node",
        "# In the environment and in no command line: a runner that clears its node kills by words in command lines, and a",
        "# path may hold such a word.",
        "export RLRUN_RECORD=%s" % RECORD, "export RLRUN_PYTHON=%s" % quote_words(asked.program[:1]),
        "export RLRUN_PYZ=$RLRUN_RECORD/%s" % COPY,
        "# The head is this node, the first one of the job, by the address that its runner takes for its own.",
        "read -r %s _ < <(hostname -I) || { echo \"this node has no address: hostname -I printed none\" >&2; exit 1; }" % head,
        "export %s" % head,
        "each=(srun --export=ALL --nodes=%d --ntasks=%d --ntasks-per-node=1%s)" % (
            nodes, nodes, " " + options if options else ""),
        "head=$RLRUN_RECORD/%s/head-$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}.pid  # of the head's agent, once it lives" % NODES,
        "", "came=", "stopping=", "running=", "step=",
        "stop() {  # told to end: the head's runner is, in good order, so that it can write a checkpoint",
        "    came=1 stopping=1",
        "    echo \"$(date -u +%FT%TZ) $2: ending\"",
        "    [ -n \"$running\" ] || { kill -s TERM \"$step\" 2>/dev/null; return; }",
        "    for _ in {1..300}; do  # a minute: the head's agent has only just begun",
        "        [ ! -s \"$head\" ] && kill -0 \"$step\" 2>/dev/null || break",
        "        sleep 0.2",
        "    done",
        "    [ -s \"$head\" ] || kill -s TERM \"$step\" 2>/dev/null",
        "    [ ! -s \"$head\" ] || [ -s \"${head%.pid}.code\" ] || kill -s \"$1\" \"$(cat \"$head\")\" 2>/dev/null",
        "}",
        "await() {  # bash's own wait is over with each signal that comes",
        "    while came=; wait \"$step\"; code=$?; [ -n \"$came\" ]; do :; done",
        "    [ \"$code\" -ge 0 ] || code=130  # seen where the signal comes in the moment of the end",
        "}",
        "trap 'stop USR1 \"the time limit is near\"' USR1", "trap 'stop INT \"told to stop\"' INT TERM",
        "", "echo \"$(date -u +%%FT%%TZ) job $SLURM_JOB_ID on $SLURM_JOB_NODELIST, head $(hostname -s) $%s\"" % head,
        "# 1. Is each node fit for this run, and is it still the plan that was confirmed? One that is not ends the job, before",
        "#    a runner has started anywhere.",
        "\"${each[@]}\" --wait=0 --kill-on-bad-exit=0 sh -c 'exec \"$RLRUN_PYTHON\" \"$RLRUN_PYZ\" node check' &",
        "step=$!", "await",
        "if [ \"$code\" != 0 ] || [ -n \"$stopping\" ]; then",
        "    [ -z \"$stopping\" ] || code=130",
        "    echo \"$(date -u +%FT%TZ) ends with $code; no runner was started\"",
        "    exit \"$code\"",
        "fi",
        "# 2. The runner on each node. The others stay until the head's has ended, or Slurm would clear them away.",
        "step= running=1",
        "\"${each[@]}\" --kill-on-bad-exit=1 --wait=%d sh -c 'exec \"$RLRUN_PYTHON\" \"$RLRUN_PYZ\" node run' &" % _WAIT_SECONDS,
        "step=$!", "[ -z \"$stopping\" ] || stop INT \"told to stop\"  # that came between the two",
        "await",
        "# srun tells the highest code of all tasks, those that it ended too: what counts is the head's runner's, else that",
        "# of a worker's which failed by itself.",
        "for one in code failed; do",
        "    [ ! -s \"${head%.pid}.$one\" ] || { code=$(cat \"${head%.pid}.$one\"); break; }",
        "done",
        "echo \"$(date -u +%FT%TZ) ends with $code\"", "exit \"$code\""]


def _show(text: str) -> str:
    """A word for a comment: no line's end in it."""
    return re.sub(r"[\x00-\x1f\x7f]", "?", text)


def judge_batch(plan: Plan, environ: Mapping[str, str]) -> List[Check]:
    """What would make a job of this plan useless, told before it waits for hours: a head that is named already, and a second
    start that would not resume. Nothing for a plan that is no job of ours."""
    if plan.batch is None:
        return []
    checks = judge_config.judge_owners(plan.batch.files)
    shadow = [name for name in find_dropped(environ) if name.startswith("SBATCH_")]
    bad = "\\" in plan.root or any(ord(letter) < 32 for letter in plan.root)
    if bad:
        checks.append(Check("live", "slurm:path", "blocks", "the checkout's path has a backslash or a control character: sbatch "
                            "would write the job's log elsewhere", "Put the checkout at a plainer path, or a link to it."))
    if shadow:
        checks.append(Check("live", "slurm:shadow", "advisory", "%s: set here, and would count for more than the script; not "
                            "handed on" % ", ".join(shadow), "Unset it, or ask with --sbatch for what it was to say."))
    if plan.topology.head:
        checks.append(Check("live", "slurm:head", "blocks", "the config sets %s=%s, and Slurm picks the nodes: all of them would "
                            "wait for a head that is none of them" % (plan.topology.head_variable, plan.topology.head),
                            "Leave it unset there, or write %s=${%s:-…}: the job sets it to its first node's address." % (
                                (plan.topology.head_variable,) * 2)))
    asked = slurm_partition.count_gpus(plan.batch.options, plan.topology.nodes)
    if plan.batch.gpu_count and asked and asked[1] < plan.batch.gpu_count:
        checks.append(Check("live", "slurm:gpus", "blocks", "%s gives %d GPU%s of each node, and the plan takes %d" % (
            asked[0], asked[1], "" if asked[1] == 1 else "s", plan.batch.gpu_count),
            "Leave it away (the plan asks for its GPUs by itself), or ask for as many; or change the plan's number."))
    words = str(load_stack(plan.stack).refuse_requeue(plan)) if plan.batch.requeue else ""
    if words:
        checks.append(Check("live", "slurm:requeue", "blocks", "with --requeue Slurm may start it a second time, and it would "
                            "not resume: %s" % words, "Mend that in the config, or leave --requeue away."))
    return checks


def write(plan: Plan, paths: record.Paths, print_: Fingerprint) -> Plan:
    """Writes script and a copy of this rlrun into the record, so that a job which waits for days depends on nothing else of ours;
    the plan with the command that hands the job in. OperatorError (exit 5) where that can't be done: nothing was handed in."""
    folder, script = paths.record, fill_script(plan, paths.record, print_.digest)
    copy = os.path.join(folder, COPY)
    try:
        os.mkdir(os.path.join(folder, NODES), 0o755)
        record.write_file(os.path.join(folder, SCRIPT), script)
        shutil.copyfile(plan.batch.program[1], copy)
    except OSError as error:
        raise record.refuse_write(error, folder)
    if not zipfile.is_zipfile(copy) or hash_file(copy) != plan.batch.program_sha256:
        raise OperatorError("%s is no rlrun any more: a job would find nothing to run" % plan.batch.program[1],
                            "It was replaced a moment ago, or this rlrun does not run from its one file. Start the file itself.",
                            MACHINE, "program")
    return plan._replace(argv=("sbatch", os.path.join(folder, SCRIPT)))


def fill_script(plan: Plan, folder: str, digest: str) -> str:
    """The script as it is handed in. `folder`: the record's."""
    output = "#SBATCH --output=%s" % quote_words([folder.replace("%", "%%") + "/job_%j.log"])
    script = str(plan.batch.script).replace("#SBATCH --output=%s/job_%%j.log" % RECORD, output)
    return script.replace("=" + RECORD, "=" + quote_words([folder])).replace(RECORD, folder).replace(DIGEST, digest)


def read_back(text: str, folder: str) -> Dict[str, Any]:
    """What sbatch said at the launch, as a stack's read_back gives it. `folder`: the record's."""
    plain = strip_colour(text)
    jobs = slurm.parse_submitted(plain)
    logs = {job: os.path.join(folder, "job_%s.log" % job) for job in jobs}
    errors = [line for line in plain.split("\n") if line.startswith(("sbatch: error:", "sbatch: fatal:"))]
    rows = [("job", ", ".join(jobs)), ("job log", logs[jobs[0]]), ("nodes", os.path.join(folder, NODES))] if jobs else []
    return {"experiment": "", "train_log": "", "vllm_log": "", "trials": "", "verdict": "", "fatal": errors[:5],
            "rows": [("script", os.path.join(folder, SCRIPT))] + rows,
            "facts": {"jobs": list(jobs), "job_logs": logs, "gentle": True, "pids": {}, "is_up": False}}


def describe(batch: Batch, stop_signal: str, again: str) -> Dict[str, object]:
    """What the record keeps of a job, for the agents on its nodes and for whoever looks at it later. `again`: the line that
    checks the same plan anew."""
    return {"runner_argv": list(batch.runner), "stop_signal": stop_signal, "drop_env": list(batch.drop_env),
            "requeue": batch.requeue,
            "options": dict(batch.options), "site_files": list(batch.files), "script": SCRIPT,
            "head_variable": batch.head_variable, "again": again}
