"""Which run is meant: by a record's id, an experiment's name, a log, a run directory, a pid, or none of them. Reads records,
process table and logs' own words; two runs are never taken for one."""
import os
import time
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

from ..errors import MACHINE, USAGE, OperatorError
from ..host import procs
from ..stacks import STACKS, load_health, load_recognisers
from ..values import LiveRun, Process
from ..vitals import Target
from . import guard, records
from .jobs import ask_slurm, find_end, find_start, find_stop_facts, judge_jobs, list_job_logs, note_jobs, tell_silence

_NEWEST = 64
_PLAN_SECONDS = 30.0
_EXIT_SECONDS, _EXIT_LOOKS = 3.0, 30
_ASKED = ("is_asked", "jobs", "job_states", "live_jobs", "job_told", "slurm_silence")
_TOLD = ("train_log", "launch_log", "run_dir")


class Found(NamedTuple):
    """The run, or those that it may be. `message`: why it is not one."""

    target: Optional[Target]
    candidates: Tuple[Target, ...] = ()
    message: str = ""


class Scene(NamedTuple):
    """What lives now, and what this checkout has recorded."""

    root: str  # "" outside of a checkout
    processes: Dict[int, Process]
    runs: Tuple[LiveRun, ...]
    now_seconds: float
    asked: Optional[Dict[str, Dict[str, Any]]] = None  # records of which Slurm was asked, by their folders


def read_scene(root: str) -> Scene:
    """The machine at this moment, for the checkout at `root` ("" for none)."""
    processes = procs.read_processes()
    return Scene(root, processes, guard.find_runs(processes, os.getpid())[0], time.time(), {})


def find_run(word: str, scene: Scene, is_own: bool = False) -> Found:
    """The run that `word` means; without a word the live one of this checkout, else the live one of this machine, else the last
    one that was recorded here. `is_own`: never another checkout's. OperatorError: exit 2 where the word means none, exit 5 where
    there is no run at all."""
    if word:
        return _find_named(word, scene)
    live = list_live(scene)
    own = tuple(one for one in live if scene.root and one.root and os.path.realpath(one.root) == os.path.realpath(scene.root))
    if own and len(live) > len(own):
        note = "%d more run%s on this machine, of another checkout" % (
            len(live) - len(own), " lives" if len(live) - len(own) == 1 else "s live")
        own = tuple(one._replace(notes=one.notes + (note,)) for one in own)
    live = own if own or (is_own and scene.root) else live
    if len(live) == 1:
        return Found(live[0])
    if live:
        return Found(None, live, "several runs are live here:")
    for one in _list_records(scene, _NEWEST):
        if records.read_identity(one) or one["jobs"]:
            target = from_record(one, scene)
            is_silent = target.state == "unknown" and bool(tell_silence(target.record or {}))
            return Found(target if target.state == "live" or is_silent else target._replace(
                notes=("nothing is live here; this is the last launch of this checkout",) + target.notes))
    if not scene.root:
        raise OperatorError("no run is live on this machine, and this is no checkout",
                            "Name a log, a run directory or a pid; or the checkout: --root DIR", MACHINE, "no-run")
    raise OperatorError("no run is live on this machine, and none was recorded in %s" % scene.root,
                        "Launch one: rlrun run CONFIG; or name a log or a run directory.", MACHINE, "no-run")


def list_live(scene: Scene) -> Tuple[Target, ...]:
    """The runs that live on this machine, of any stack and user, and those of this checkout that Slurm runs; each with its
    record where rlrun launched it."""
    by_pid: Dict[int, Dict[str, Any]] = {}
    jobs: List[Dict[str, Any]] = []
    left: Set[int] = set()
    for root in sorted({scene.root} | {run.root for run in scene.runs if run.root}):
        for one in records.list_records(root, _NEWEST) if root else ():
            identity = records.read_identity(one)
            if identity and not one["exit"] and procs.is_alive(identity):
                by_pid[identity.pid] = one
            elif identity and not one["jobs"] and not one.get("is_submission"):
                left.update(_find_left(one, scene))
            elif root == scene.root and (one["jobs"] or one.get("is_submission")):
                jobs.append(one)
    found = []
    for run in scene.runs:
        if set(run.pids) & left:
            continue  # what a killed runner left behind (S5): its record tells
        own = next((by_pid[pid] for pid in (run.top.pid,) + run.pids if pid in by_pid), None)
        own = own or next((by_pid[pid] for pid in procs.find_ancestors(scene.processes, run.top.pid) if pid in by_pid), None)
        found.append(from_record(own, scene, run) if own else from_live(run, scene))
    known = {target.id for target in found}
    # A runner whose tree shows nothing that is known yet is live all the same.
    found += [from_record(one, scene) for one in by_pid.values() if one["id"] not in known and one["stack"] in STACKS]
    if jobs:
        ask_slurm(jobs, True)
        if scene.asked is not None:  # a Slurm that does not answer is not asked again in the same look
            scene.asked.update((one["record"], one) for one in jobs)
        found = _merge_jobs(found, [one for one in (from_record(one, scene) for one in jobs) if one.state == "live"])
    return tuple(found)


def _merge_jobs(found: List[Target], of_jobs: List[Target]) -> List[Target]:
    """A job that runs on this node is seen twice, by its record and by its processes: one run, known by directory or job."""
    merged = []
    for job in of_jobs:
        folder, ids = os.path.realpath(job.run_dir) if job.run_dir else "", {name for name, _ in job.jobs}
        here = [one for one in found if not one.id and (ids & _read_job(one) or bool(folder) and any(
            (os.path.realpath(path) + "/").startswith(folder + "/") for path in (one.run_dir, one.launch_log) if path))]
        merged.append(job._replace(pids=tuple(pair for one in here for pair in one.pids)))
        found = [one for one in found if one not in here]
    return found + merged


def _find_own(record: Dict[str, Any], scene: Scene) -> Tuple[LiveRun, ...]:
    """The live runs on this machine whose processes belong to one of the record's jobs."""
    return tuple(run for run in scene.runs if _read_job_of((run.top.pid,)) & set(record["jobs"]))


def _read_job(target: Target) -> Set[str]:
    """The Slurm job that a live run's processes belong to, by what Slurm set for them; empty where they can't be asked."""
    return _read_job_of(tuple(pid for _, pid in target.pids[:1]))


def _read_job_of(pids: Tuple[int, ...]) -> Set[str]:
    for pid in pids:
        environ = procs.read_environ(pid) or {}
        if environ.get("SLURM_JOB_ID"):
            return {environ["SLURM_JOB_ID"]}
    return set()


def _list_records(scene: Scene, limit: int = 0) -> List[Dict[str, Any]]:
    found = [one for one in records.list_records(scene.root, limit) if one["stack"] in STACKS] if scene.root else []
    return found


def _find_named(word: str, scene: Scene) -> Found:
    if word.isdecimal() and len(word) < 10 and int(word) in scene.processes:
        return _find_pid(int(word), scene)
    if os.path.exists(word):
        return Found(_find_path(os.path.abspath(word), scene))
    recorded = _list_records(scene)
    for is_it in (lambda one: one["id"] == word, lambda one: one["experiment"] == word, lambda one: word in one["id"],
                  lambda one: word in one["experiment"] or word in one["jobs"]):
        matching = [one for one in recorded if is_it(one)]
        if len(matching) == 1:
            return Found(from_record(matching[0], scene))
        if matching:
            ask_slurm(matching[:20], True)
            # One name, launched again: the live one is meant, if it is one.
            targets = tuple(from_record(one, scene) for one in matching[:20])
            live = [one for one in targets if one.state == "live"]
            return Found(live[0]) if len(live) == 1 else Found(None, targets, "%s is part of several:" % word)
    live_targets = [one for one in list_live(scene) if word in (one.name, one.id) or word in one.name]
    if len(live_targets) == 1:
        return Found(live_targets[0])
    if live_targets:
        return Found(None, tuple(live_targets), "%s is part of several:" % word)
    if word.isdecimal():
        raise OperatorError("no process has the pid %s, and no launch that id" % word, "rlrun runs lists the launches.", USAGE,
                            "no-run")
    raise OperatorError("no run is called %s: no id, no experiment, no log, no directory, no pid" % word,
                        "rlrun runs lists the launches%s." % ("" if scene.root else "; name the checkout with --root DIR"),
                        USAGE, "no-run")


def _find_pid(pid: int, scene: Scene) -> Found:
    line = [pid] + procs.find_ancestors(scene.processes, pid)
    for target in list_live(scene):
        owned = {one for _, one in target.pids}
        if any(one in owned for one in line) or any(pid in run.pids for run in scene.runs if run.top.pid in owned):
            return Found(target)
    for one in _list_records(scene):
        identity = records.read_identity(one)
        if identity and identity.pid == pid and records.judge_state(one)[0] == "running":
            return Found(from_record(one, scene))
    process = scene.processes[pid]
    words = "is a zombie: it has ended, and its parent has not taken notice" if procs.is_dead(process) else "belongs to no run"
    raise OperatorError("pid %d %s (%s)" % (pid, words, procs.join_command(process)[:80]),
                        "rlrun status names the live runs; rlrun runs the recorded ones.", USAGE, "no-run")


def _find_path(path: str, scene: Scene) -> Target:
    """By a record's folder, a log of a live or recorded run, its directory; else what the log itself tells."""
    real = os.path.realpath(path)
    folder = records.read_record(real) if os.path.isfile(os.path.join(real, "record.json")) else None
    if folder and folder["stack"] in STACKS:
        return from_record(folder, scene)
    known = list(list_live(scene))
    for target in known:
        if _is_of(target, real):
            return target
    for one in _list_records(scene):
        if real in [os.path.realpath(one[name]) for name in _TOLD if one[name]]:
            return from_record(one, scene)
    newest = _list_records(scene, _NEWEST)
    ask_slurm(newest)
    for one in newest:
        target = from_record(one, scene)
        if _is_of(target, real):
            return target
    from .find_files import from_files
    return from_files(path, scene.now_seconds)


def _is_of(target: Target, real: str) -> bool:
    paths = [os.path.realpath(one) for one in [target.run_dir, target.launch_log] + list(target.logs.values()) if one]
    return real in paths or (os.path.isdir(real) and any(os.path.dirname(one) == real for one in target.logs.values())
                             and real != os.path.join(os.path.realpath(target.root or "/"), "logs"))


def from_record(record: Dict[str, Any], scene: Scene, run: Optional[LiveRun] = None) -> Target:
    """The Target of a recorded launch; `run`: its processes, where they are known already."""
    if not record["experiment"] or not record["train_log"] or record.get("is_submission"):
        from .readback import complete
        record = complete(record)
    earlier = (scene.asked or {}).get(record["record"])
    if not record.get("is_asked") and earlier:
        record = dict(record, **{name: earlier[name] for name in _ASKED if name in earlier})
    if not record.get("is_asked"):
        ask_slurm([record], True)
    state, _ = records.judge_state(record)
    if state == "lost" and records.has_keeper(record, scene.processes):
        record = _await_exit(record)
        state, _ = records.judge_state(record)
    facts = record["facts"] if isinstance(record.get("facts"), dict) else {}
    texts = {name: record[name] for name in ("vllm_log", "trials") if isinstance(record.get(name), str)}
    told = dict({name: record.get(name) or "" for name in _TOLD}, **texts)
    told.update(before=tuple(record["before"]), root=record["root"], host=record["host"], job_logs=facts.get("job_logs"))
    health = load_health(record["stack"])
    run = run or next((one for one in scene.runs if (record["runner"] or {}).get("pid") in one.pids), None)
    notes: List[str] = []
    of_job: Tuple[LiveRun, ...] = ()
    where = "live" if state == "running" else "elsewhere" if state.startswith("elsewhere") else "over"
    if record["jobs"]:
        where = judge_jobs(record)
        of_job = _find_own(record, scene) if where == "unknown" and tell_silence(record) else ()
        where, run = ("live", of_job[0]) if of_job else (where, run)
        notes += note_jobs(record)
    notes += records.list_untold(record)
    if where == "elsewhere":
        notes.append("launched on %s: its processes can't be seen from here, only its files" % record["host"])
    identity = records.read_identity(record)
    if where == "over" and identity and identity.pid in scene.processes and procs.is_dead(scene.processes[identity.pid]) \
            and scene.processes[identity.pid].start_ticks == identity.start_ticks:
        notes.append("its runner (pid %d) is a zombie: it has ended, and its parent has not taken notice" % identity.pid)
    left = _find_left(record, scene) if where == "over" else ()
    if left:
        notes.append("its runner is gone, and %d of its processes live on: kill -s TERM %s" % (
            len(left), " ".join(map(str, left[:20]))))
    pids = tuple(("left behind", pid) for pid in left)
    if run and where == "live":
        pids = tuple(pair for one in of_job or (run,) for pair in _name_pids(one, scene))
    if state == "running" and identity and identity.pid not in [pid for _, pid in pids]:
        pids = (("runner", identity.pid),) + tuple(pair for pair in pids if pair[0] != "runner")
    runner = record["runner"] or record["keeper"] or {}
    logs = health.list_logs(record["kind"], told)
    logs.update(list_job_logs(record))
    return Target(record["id"], record["experiment"] or os.path.basename(record["run_dir"].rstrip("/")) or record["id"],
                  record["stack"], record["kind"], record["root"], where, logs,
                  record["launch_log"], record["run_dir"], record["user"], record["host"], pids,
                  scene.now_seconds - run.top.elapsed_seconds if of_job and run else find_start(record, scene.now_seconds),
                  record["exit"] if not record["jobs"] else find_end(record) if where == "over" else None,
                  tuple(health.find_siblings(told, _read_nodes(record))), tuple(notes), record,
                  tuple((job, str(record["job_states"].get(job) or "unknown")) for job in record["jobs"]),
                  runner.get("pgid") or runner.get("pid") or 0)


def _find_left(record: Dict[str, Any], scene: Scene) -> Tuple[int, ...]:
    """What lives on of a run whose runner is gone, also where nobody recorded its end."""
    return records.find_left(record if record["exit"] else dict(record, exit={"status": None}), scene.processes)


def _await_exit(record: Dict[str, Any]) -> Dict[str, Any]:
    """The record once its keeper has written how the run ended: the runner is gone, and it is about to."""
    for _ in range(_EXIT_LOOKS):
        found = records.read_record(record["record"])
        if found and found["exit"]:
            return dict(record, exit=found["exit"])
        time.sleep(_EXIT_SECONDS / _EXIT_LOOKS)
    return record


def _read_nodes(record: Dict[str, Any]) -> int:
    nodes = record.get("nodes")
    return nodes if isinstance(nodes, int) and 0 < nodes < 10000 else 1


def _name_pids(run: LiveRun, scene: Scene) -> Tuple[Tuple[str, int], ...]:
    tree = [scene.processes[pid] for pid in run.pids if pid in scene.processes]
    found = tuple(load_recognisers()[run.stack].name_tree(tree, procs.read_cwd))
    return found if run.top.pid in [pid for _, pid in found] else (("runner", run.top.pid),) + found


def from_live(run: LiveRun, scene: Scene, known: Optional[Target] = None) -> Target:
    """The Target of a run that somebody started without rlrun: its logs by its open files and its own words. `known`: what an
    earlier look found of it."""
    health = load_health(run.stack)
    tree = [scene.processes[pid] for pid in run.pids if pid in scene.processes]
    told = dict(health.trace_run(tree, procs.read_fd, procs.read_cwd))
    told.setdefault("root", run.root)
    logs = health.list_logs(run.kind, told)
    notes: List[str] = []
    if not logs and known is not None:
        logs = known.logs
    elif not logs:
        planned = _plan_logs(told, run)
        told.update(planned)
        logs = health.list_logs(run.kind, told)
        notes.append("its log is the one that its config plans; nothing that it has open says so" if logs else
                     "no log of it was found: its output goes to no file%s" % (
                         "" if run.top.uid == os.geteuid() or os.geteuid() == 0 else
                         ", or is hidden, for it is %s's" % procs.user_name(run.top.uid)))
    name = told.get("name") or _name_logs(logs, told) or "pid %d" % run.top.pid
    return Target("", name, run.stack, run.kind, run.root, "live", logs, told.get("launch_log") or "", told.get("run_dir") or "",
                  procs.user_name(run.top.uid), os.uname().nodename, _name_pids(run, scene),
                  scene.now_seconds - run.top.elapsed_seconds, None, tuple(health.find_siblings(told, told.get("nodes") or 1)),
                  ("not launched by rlrun",) + tuple(notes), None, (), run.top.pgid, guard.describe_stop(run))


def _plan_logs(told: Dict[str, Any], run: LiveRun) -> Dict[str, str]:
    """The log that the run's config plans, by the runner's own dry run; nothing where the name differs at every start."""
    config, root = told.get("config"), told.get("root") or run.root
    if not config or not root or not os.path.isfile(os.path.join(root, config)) or run.top.uid != os.geteuid():
        return {}
    # A config and its runner are code: only one's own is run, and only where nobody else can write to it.
    path = os.path.join(root, config)
    if not all(_is_own(one) for one in [root, os.path.dirname(path), path] + _list_files(root, "scripts")):
        return {}
    from . import orient, preflight
    try:
        checkout = orient.find_checkout(root, "")
        found, _ = orient.find_config(checkout, os.path.join(root, config), run.kind)
        if found is None:
            return {}
        request = orient.make_request(checkout, [found], (), run.kind)
        plan, _, _ = preflight.finish_dry_run(preflight.start_dry_run(request, dict(os.environ)), _PLAN_SECONDS)
    except OperatorError:
        return {}
    if plan.name_is_volatile:
        return {}
    return {"train_log": plan.train_log, "vllm_log": plan.vllm_log, "run_dir": plan.run_dir, "name": plan.experiment}


def _is_own(path: str) -> bool:
    try:
        found = os.stat(path)
    except OSError:
        return False
    return found.st_uid == os.geteuid() and not found.st_mode & 0o022


def _list_files(root: str, folder: str) -> List[str]:
    return [os.path.join(above, name) for above, folders, names in os.walk(os.path.join(root, folder))
            for name in folders + names]


def _name_logs(logs: Dict[str, str], told: Dict[str, Any]) -> str:
    if told.get("run_dir"):
        return os.path.basename(str(told["run_dir"]).rstrip("/"))
    if told.get("train_log"):
        return os.path.splitext(os.path.basename(str(told["train_log"])))[0]
    return next((os.path.splitext(os.path.basename(path))[0] for path in logs.values()), "")


def find_stop(target: Target) -> str:
    """The command that stops a live run, as its stack knows it; where it lives on another machine, `on HOST: COMMAND`."""
    is_there = target.state == "elsewhere" and bool(target.record) and records.is_other_host(target.record or {})
    is_silent = target.state == "unknown" and bool(tell_silence(target.record or {}))
    if target.state != "live" and not is_there and not is_silent:
        return ""
    if target.stop:
        return target.stop
    if not target.group and not target.jobs:
        return ""
    facts = find_stop_facts(target.record) if target.record else {}
    stop = str(load_recognisers()[target.stack].describe_stop(target.group, facts))
    return "on %s: %s" % (target.host, stop) if is_there else stop
