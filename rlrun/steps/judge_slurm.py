"""Step 2 for a run of any stack that is handed to Slurm: can it be handed in, can it ever start, and when; is its time enough?

What sbatch is sure to refuse blocks. `--test-only` refuses more than that: a job for nodes that are drained now, or for more of
them than there are, is taken, and waits (seen with Slurm 22.05, EnforcePartLimits=NO).
"""
import os
import re
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from ..host import slurm, slurm_partition, slurm_queue
from ..text.durations import format_elapsed
from ..text.shell import escape_controls, quote_words
from ..values import Check, Plan
from . import slurm_job

_ASK_SECONDS = 10.0
_SOON_SECONDS = 3600.0
_CONFIGURATION = "Requested node configuration is not available"
# B:USR1@120   USR1   R:10@300: which signal, and how many seconds before the time limit; 60 where that is not said
_SIGNAL = re.compile(r"(?:[A-Z]*:)?\w+(?:@(\d{1,6}))?\Z")
_SIGNAL_SECONDS = 60
_SLACK_SECONDS = 30  # slurmctld looks every so often, and sends it that much early (slurm.conf(5), PERIODIC_TIMEOUT)


def list_scripts(plan: Plan) -> Tuple[Tuple[str, str], ...]:
    """(path, text) of a plan's batch scripts: rlrun's own, else those that the runner's dry run wrote (`plan.own.scripts`)."""
    if plan.batch is not None:
        # The record's folder is made at the launch; Slurm looks at no path here.
        folder = os.path.join(plan.root, "logs", "rlrun", "new")
        return (("job.sbatch", slurm_job.fill_script(plan, folder, "new")),)
    return tuple(getattr(plan.own, "scripts", ()))


def judge_submission(plan: Plan, environ: Mapping[str, str], estimate_seconds: Optional[float] = None) -> List[Check]:
    """Can this plan be handed in, and what becomes of it then? `environ`: the operator's, which sbatch heeds (SBATCH_*).
    `estimate_seconds`: how long the run may take, a guess; None for unknown. Nothing for a plan that is no submission."""
    if not plan.is_submission:
        return []
    env = {name: value for name, value in environ.items() if name not in plan.drop_env}
    env["PATH"] = slurm_partition.find_path(environ, plan.path_first)
    if not slurm.find_sbatch(env):
        return [Check("live", "slurm:absent", "blocks", "this run is handed to Slurm, and there is no sbatch on PATH",
                      "Start it on a login node of the cluster; or run it here: leave --slurm and [slurm] away.")]
    words = quote_words(plan.argv) if plan.batch is not None else plan.launch_command or "sbatch"
    checks = [Check("live", "slurm:sbatch", "pass", "%s, at the launch" % words)]
    scripts = list_scripts(plan)
    for path, text in scripts:
        named = "%s: " % os.path.basename(path) if len(scripts) > 1 else ""
        told = slurm_partition.ask_submission(text, env, plan.root, _ASK_SECONDS)
        checks += _judge_one(named, slurm.read_directives(text, env), told, estimate_seconds)
    if not scripts and plan.block:
        checks.append(Check("live", "slurm:unknown", "advisory", "there is no batch script yet by which Slurm could be asked",
                            "Look whether the job can be handed in: sinfo"))
    return checks


def _judge_one(named: str, options: Dict[str, str], told: slurm_partition.Told, estimate_seconds: Optional[float]) -> List[Check]:
    test = told.test
    if test is None or slurm_partition.is_of_controller(test.failure):
        why = told.reason if test is None else "sbatch --test-only: %s" % test.failure
        return [Check("live", "slurm:unknown", "advisory", "%swhether and when this job could start Slurm does not tell (%s)" % (
            named, escape_controls(why)), "Look whether the job can be handed in: sinfo")]
    names = [one for one in options.get("partition", "").split(",") if one] or [
        one.name for one in told.partitions if one.is_default]
    wanted = [one for one in told.partitions if one.name in names]
    checks = _judge_limits(named, options, wanted, told.enforced) + _judge_estimate(named, options, wanted, estimate_seconds)
    checks += _judge_signal(named, options, wanted)
    if test.start:
        checks.append(_judge_start(named, test, wanted, options))
    else:
        checks.append(_judge_failure(named, test, wanted, told, checks))
    return checks


def _judge_start(named: str, test: slurm_partition.Forecast, wanted: Sequence[slurm_partition.Partition],
                 options: Dict[str, str]) -> Check:
    closed = [one for one in wanted if one.state and one.state not in ("UP", "DRAIN", "INACTIVE")]
    if closed and len(closed) == len(wanted):  # --test-only does not look at that
        return Check("live", "slurm:start", "advisory", "%spartition %s is %s: it takes the job, and starts none" % (
            named, closed[0].name, closed[0].state), "Ask whoever runs the cluster, or take another partition: sinfo")
    where = "%s%s" % (test.nodes, " in partition %s" % test.partition if test.partition else "")
    words = "%sSlurm would start it on %s at %s" % (named, where, test.start.replace("T", " "))
    wait = slurm_queue.find_wait(test.start)
    if "hold" in options:
        return Check("live", "slurm:start", "advisory", "%sit is held (--hold), and starts once somebody lets it go" % named,
                     "Then: scontrol release JOB")
    if options.get("dependency"):  # --test-only does not look at that
        return Check("live", "slurm:start", "advisory", "%swhen it starts can't be told: not before --dependency=%s is met" % (
            named, escape_controls(options["dependency"])), "See that what it waits for is known: scontrol show job JOB")
    if not slurm_queue.is_foreseeable(test.start):
        return Check("live", "slurm:start", "advisory", "%swhen it starts on %s is not foreseeable: what is before it has no "
                     "time limit" % (named, where), "Look who runs there, and until when: squeue -o '%i %u %T %L %N'")
    if wait is None:
        return Check("live", "slurm:start", "advisory", words + "; how far off that is can't be told")
    if options.get("begin") and wait > 60:
        is_far = wait > _SOON_SECONDS
        return Check("live", "slurm:start", "advisory" if is_far else "pass", "%s, in %s: not before --begin=%s" % (
            words, format_elapsed(wait), escape_controls(options["begin"])), "It waits until then." if is_far else "")
    if wait > _SOON_SECONDS:
        return Check("live", "slurm:start", "advisory", "%s, in %s, by the time limits of what is before it" % (
            words, format_elapsed(wait)), "It waits until then. Fewer nodes or less time may start earlier.")
    return Check("live", "slurm:start", "pass", words + ("" if wait > 60 else ", that is at once"))


def _judge_failure(named: str, test: slurm_partition.Forecast, wanted: Sequence[slurm_partition.Partition],
                   told: slurm_partition.Told, found: Sequence[Check]) -> Check:
    words = escape_controls(test.failure) or "it did not say why"
    if test.failure == _CONFIGURATION or not test.failure:
        away = ["%d %s" % (count, state) for one in wanted for state, count in told.unusable.get(one.name, ())]
        if away:
            return Check("live", "slurm:start", "advisory", "%snot with the nodes that are up now (%s): %s" % (
                named, words, ", ".join(away)), "It waits until they are back: sinfo -R tells why they are not.")
        over = next((one for one in found if one.name == "slurm:limit"), None)
        return Check("live", "slurm:refused", "blocks", "%sit could never start: %s%s" % (
            named, words, "; see slurm:limit" if over else ""), "Ask for what the partition has: scontrol show partition; sinfo")
    return Check("live", "slurm:refused", "blocks", "%ssbatch would refuse it: %s" % (named, words),
                 "Mend what it names: %s" % _advise(test.failure))


def _advise(failure: str) -> str:
    if "partition" in failure.lower() and "account" not in failure.lower():
        return "sinfo lists the partitions."
    if "account" in failure.lower() or "qos" in failure.lower():
        return "sacctmgr show assoc user=$USER lists accounts and QOS."
    if "gres" in failure.lower() or "feature" in failure.lower() or "node" in failure.lower():
        return "sinfo -N -o '%N %G %f' lists nodes with their GPUs and features."
    return "see the option in sbatch(1)."


def _judge_limits(named: str, options: Dict[str, str], wanted: Sequence[slurm_partition.Partition],
                  enforced: bool) -> List[Check]:
    """What is asked for beyond the limits of every partition that is asked for: it would wait and never start, or be refused."""
    over: Dict[str, List[str]] = {}
    asked = slurm_partition.parse_time(options.get("time", ""))
    nodes = slurm_partition.parse_node_count(options.get("nodes", ""))
    for one in wanted:
        most = slurm_partition.parse_time(one.max_time)
        if asked is not None and most is not None and asked > most:
            over.setdefault(one.name, []).append("--time=%s, and partition %s allows %s" % (
                options["time"], one.name, one.max_time))
        for what, limit in (("allows", one.max_nodes), ("has", one.total_nodes)):
            if nodes is not None and limit.isdecimal() and nodes > int(limit):
                over.setdefault(one.name, []).append("%d nodes, and partition %s %s %s" % (nodes, one.name, what, limit))
                break
        for option, allowed in (("account", one.accounts), ("qos", one.qos)):
            if options.get(option) and allowed not in ("", "ALL") and options[option] not in allowed.split(","):
                over.setdefault(one.name, []).append("--%s=%s, and partition %s takes %s" % (
                    option, options[option], one.name, allowed))
    if not over or len(over) < len(wanted):
        return []
    words = "; ".join(words for each in over.values() for words in each)
    then = "sbatch refuses that here" if enforced else "Slurm takes the job, and holds it back for that"
    fix = "Ask for less, or for another partition: sinfo -o '%P %l %D'"
    return [Check("live", "slurm:refused" if enforced else "slurm:limit", "blocks" if enforced else "advisory",
                  "%sasks for %s: %s" % (named, words, then), fix)]


def _judge_estimate(named: str, options: Dict[str, str], wanted: Sequence[slurm_partition.Partition],
                    estimate_seconds: Optional[float]) -> List[Check]:
    """The time that the job gets against what the run may take."""
    words, seconds = "--time=%s" % options.get("time", ""), slurm_partition.parse_time(options.get("time", ""))
    if not seconds:  # also 0, which asks for what the partition gives
        texts = [(one.default_time or one.max_time, one.name) for one in wanted]
        if not texts or any(slurm_partition.parse_time(text) is None for text, _ in texts):
            return []
        text, name = texts[0]
        seconds = slurm_partition.parse_time(text)
        words = "no --time, and partition %s gives it %s" % (name, text)
        if estimate_seconds is None:
            return [Check("live", "slurm:limit", "advisory", "%s%s: Slurm ends it then, whatever it is at" % (named, words),
                          "Say how long it may take: --time=…")]
    if estimate_seconds is None or not seconds or estimate_seconds <= seconds:
        return []
    return [Check("live", "slurm:limit", "advisory", "%s%s, and an earlier run of this config took %s (a guess for this one)" % (
        named, words, format_elapsed(estimate_seconds)), "Ask for more time, or launch so that it resumes from a checkpoint.")]


def _judge_signal(named: str, options: Dict[str, str], wanted: Sequence[slurm_partition.Partition]) -> List[Check]:
    """Is the job told to end, so long before its time limit, as soon as it has begun?"""
    match = _SIGNAL.match(options.get("signal", ""))
    seconds, words = slurm_partition.parse_time(options.get("time", "")), "--time=%s" % options.get("time", "")
    if not seconds and wanted:
        text = wanted[0].default_time or wanted[0].max_time
        seconds, words = slurm_partition.parse_time(text), "the time that partition %s gives, %s" % (wanted[0].name, text)
    if not match or not seconds:
        return []
    before, whole = int(match.group(1) or _SIGNAL_SECONDS), -(-seconds // 60) * 60  # Slurm's limits are whole minutes
    if whole > before + _SLACK_SECONDS:
        return []
    return [Check("live", "slurm:limit", "advisory", "%s%s: --signal=%s tells the job to end %d s before that, as soon as it "
                  "begins" % (named, words, escape_controls(options["signal"]), before),
                  "Ask for more time (--time), or to be told later (--signal).")]
