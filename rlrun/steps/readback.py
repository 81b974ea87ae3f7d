"""Step 6, after the start: what the run itself says. Read from its own log and its own tree, up to a minute."""
import json
import os
import time
from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

from ..host import procs
from ..host.files import read_head
from ..stacks import STACKS, load_stack
from ..values import Launch, Plan, Readback
from . import guard

WAIT_SECONDS = 60.0
# How long a run is watched once its trainer lives: an import error shows by then.
_SETTLE_SECONDS = 2.0
_POLL_SECONDS = 0.2
_TELL_SECONDS = 10.0
_HEAD_BYTES = 1 << 20


class Server(NamedTuple):
    """What a server said of itself; `is_up` is False where it has not answered within the time."""

    url: str
    is_up: bool
    words: str  # the answer, or what was met instead
    models: Tuple[str, ...]
    seconds: float


def read_back(launch: Launch, plan: Plan) -> Readback:
    """What log, process tree and record say at this moment; nothing is waited for, nothing composed."""
    text = read_head(launch.launch_log, _HEAD_BYTES).decode("utf-8", "replace")
    processes = procs.read_processes()
    tree = procs.find_descendants(processes, [launch.runner.pid]) if launch.runner.pid in processes else set()
    told: Dict[str, Any]
    if plan.batch is not None:
        from . import slurm_job
        told = slurm_job.read_back(text, launch.record)
    else:
        told = load_stack(plan.stack).read_back(text, plan.kind, plan.run_dir, plan.before,
                                                [processes[pid] for pid in sorted(tree)])
    try:
        size = os.stat(launch.launch_log).st_size
    except OSError:
        size = 0
    pids = told["facts"].get("pids")  # by label, where the stack tells the real ones from what stands in front of them
    trainers = guard.find_trainers(processes, tree) if pids is None else tuple(pids.get("trainer", ()))
    known = plan.experiment if plan.run_dir and not plan.name_is_volatile else ""
    return Readback(told["experiment"] or known, _absolute(plan, told["train_log"]), _absolute(plan, told["vllm_log"]),
                    _absolute(plan, told["trials"]), told["verdict"], tuple(told["fatal"]),
                    trainers, read_exit(launch), size,
                    tuple(tuple(row) for row in told["rows"]), told["facts"])


def complete(record: Dict[str, Any]) -> Dict[str, Any]:
    """A record with the name and the logs that the run told, where rlrun was ended before it could write them down."""
    is_told = record.get("experiment") and (record["jobs"] or not record.get("is_submission")) and (
        not record["run_dir"] or record["train_log"] or record["jobs"])
    is_told = is_told and not isinstance(record.get("batch"), dict)
    if is_told or not record.get("launch_log") or record.get("stack") not in STACKS:
        return record
    if isinstance(record.get("batch"), dict):
        return _complete_job(record)
    text = read_head(str(record["launch_log"]), _HEAD_BYTES).decode("utf-8", "replace")
    told = load_stack(str(record["stack"])).read_back(text, record["kind"], record["run_dir"], tuple(record["before"]), ())
    root = str(record.get("root") or "/")
    return dict(record, experiment=told["experiment"] or record["experiment"], jobs=told["facts"].get("jobs") or record["jobs"],
                train_log=os.path.normpath(os.path.join(root, told["train_log"])) if told["train_log"] else "")


def _complete_job(record: Dict[str, Any]) -> Dict[str, Any]:
    """The record of a job whose script rlrun wrote: its name and logs are what the runner on its head tells, once it runs. What
    sbatch said stays in `submit_log`."""
    from . import job_nodes, slurm_job
    submit_log = record.get("submit_log") or str(record["launch_log"])
    told = slurm_job.read_back(read_head(submit_log, _HEAD_BYTES).decode("utf-8", "replace"), record["record"])
    facts = record["facts"] if isinstance(record.get("facts"), dict) else {}
    states = job_nodes.read_nodes(record["record"])
    record = dict(record, jobs=record["jobs"] or told["facts"]["jobs"], submit_log=submit_log, node_states=states,
                  facts=dict(facts, job_logs=facts.get("job_logs") or told["facts"]["job_logs"], gentle=True))
    head = next((one for one in states if one.role == "head" and one.log), None)
    if head is None:  # no runner has begun: what sbatch said is no run's log
        return dict(record, launch_log="")
    text = read_head(head.log, _HEAD_BYTES).decode("utf-8", "replace")
    said = load_stack(str(record["stack"])).read_back(text, record["kind"], "", (), ())
    root = str(record.get("root") or "/")
    paths = {name: os.path.normpath(os.path.join(root, said[name])) if said[name] else "" for name in (
        "train_log", "vllm_log", "trials")}
    return dict(record, launch_log=head.log, experiment=said["experiment"] or record["experiment"], **paths)


def _absolute(plan: Plan, path: str) -> str:
    return os.path.normpath(os.path.join(plan.root, path)) if path else ""


def read_exit(launch: Launch) -> Optional[Dict[str, object]]:
    """exit.json where the run has ended; an end that the keeper can't tell (it is gone too) is told as such."""
    path = os.path.join(launch.record, "exit.json")
    for _ in range(2):
        try:
            with open(path, "rb") as file:
                value = json.loads(file.read().decode("utf-8", "replace"))
                return value if isinstance(value, dict) else None
        except (OSError, ValueError):
            if procs.is_alive(launch.runner):
                return None
        if _has_keeper(launch):
            return None  # it is about to write it
    return {"status": None, "signal": None, "reason": "the runner is gone and nobody recorded how it ended"}


def _has_keeper(launch: Launch) -> bool:
    identity = procs.read_identity(launch.keeper_pid)
    process = procs.read_processes().get(launch.keeper_pid) if identity else None
    return bool(process and not procs.is_dead(process))


def wait(launch: Launch, plan: Plan, limit_seconds: float = WAIT_SECONDS,
         sleep: Callable[[float], None] = time.sleep) -> Tuple[Readback, bool]:
    """Polls until the run has told its name and works, has ended, or the time is up.

    Returns what was read and whether the run settled. KeyboardInterrupt passes through.
    """
    deadline = time.monotonic() + limit_seconds
    working_since: Optional[float] = None
    while True:
        is_over = read_exit(launch) is not None  # asked first: what is read after the end is all that there is
        found = read_back(launch, plan)
        now = time.monotonic()
        if is_over and found.exit:
            return found, plan.is_short and found.exit.get("status") == 0
        if not ((found.experiment or not plan.has_board) and _is_working(launch, plan, found)):
            working_since = None
        elif working_since is None:
            working_since = now
        elif now - working_since >= _SETTLE_SECONDS:
            return found, True
        if now >= deadline:
            return found, found.launch_log_bytes > 0
        sleep(_POLL_SECONDS)


def wait_for_server(launch: Launch, plan: Plan, limit_seconds: float, tell: Callable[[str], None],
                    sleep: Callable[[float], None] = time.sleep) -> Server:
    """Asks /health of the plan's server until it answers 200, the run has ended, or the time is up; then its models. `tell`
    is given a word on the progress now and then. KeyboardInterrupt passes through."""
    from ..host import web
    started = time.monotonic()
    told = -_TELL_SECONDS  # at once, for it may take minutes
    while True:
        answer = web.ask(plan.server_url + "/health", 5)
        seconds = time.monotonic() - started
        words = "%d" % answer.status if answer.how == "answered" else "%s (%s)" % (answer.how, answer.reason)
        if answer.how == "answered" and answer.status == 200:
            return Server(plan.server_url, True, words, web.read_models(plan.server_url + "/v1")[1], seconds)
        if seconds >= limit_seconds or read_exit(launch):
            return Server(plan.server_url, False, words, (), seconds)
        if seconds - told >= _TELL_SECONDS:
            told = seconds
            tell("waiting for %s/health: %s, %d s of %d" % (plan.server_url, words, seconds, limit_seconds))
        sleep(_POLL_SECONDS * 5)


def _is_working(launch: Launch, plan: Plan, found: Readback) -> bool:
    """Does the tree hold a trainer, or a worker where the kind has none? A stack that knows more says so itself."""
    if "is_up" in found.facts:
        return bool(found.facts["is_up"])
    if found.trainer_pids:
        return True
    processes = procs.read_processes()
    tree = procs.find_descendants(processes, [launch.runner.pid])
    return guard.has_worker(processes, tree)
