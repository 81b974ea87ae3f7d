"""Step 1: what lives on this machine, and whether a run is in flight. By what a process runs, never by a substring."""
import os
import re
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

from ..host import procs
from ..stacks import load_recognisers
from ..values import Board, LiveRun, Machine, Process, Role


class Classified(NamedTuple):
    """Live processes that a stack recognised, by pid."""

    roles: Dict[int, Role]
    recognisers: Dict[str, Any]


def read_machine(query: Optional[Any] = None, own_pid: int = 0) -> Machine:
    """Reads the machine at this moment. `query`: an nvidia-smi query that was started earlier; without one it is
    started here. `own_pid` (default: this process) and its ancestors never count as runs."""
    from ..host import gpus, ports
    if query is None:
        query = gpus.start_query()
    processes = procs.read_processes()
    runs, clusters, orphans = find_runs(processes, own_pid or os.getpid())
    return Machine(processes, procs.is_table_partial(), runs, clusters, orphans, gpus.finish_query(query),
                   ports.read_listeners(), ports.read_waiting(), find_boards(processes))


def read_runs() -> Tuple[LiveRun, ...]:
    """The runs that live on this machine now, of any stack and any user."""
    return find_runs(procs.read_processes(), os.getpid())[0]


def find_boards(processes: Dict[int, Process]) -> Tuple[Board, ...]:
    """The boards of all stacks that run now."""
    boards: List[Board] = []
    for module in load_recognisers().values():
        boards.extend(module.read_boards(processes, procs.read_cwd))
    return tuple(boards)


def find_runs(processes: Dict[int, Process],
              own_pid: int) -> Tuple[Tuple[LiveRun, ...], Tuple[Process, ...], Tuple[Process, ...]]:
    """(live runs, Ray daemons outside any run, workers outside any run), each sorted by pid."""
    own = {own_pid} | set(procs.find_ancestors(processes, own_pid))
    classified = _classify(processes, own)
    tops = _find_tops(processes, classified)
    trees = {pid: procs.find_descendants(processes, [pid]) for pid in tops}
    clusters = [pid for pid, role in classified.roles.items() if role.role == "cluster"]
    for pid in clusters:
        owner = _find_owner(processes, pid, classified, trees)
        if owner:
            trees[owner] = trees[owner] | procs.find_descendants(processes, [pid])
    taken: Set[int] = set()
    for tree in trees.values():
        taken |= tree
    runs = tuple(_make_run(processes[pid], classified, trees[pid]) for pid in sorted(tops))
    outside = tuple(processes[pid] for pid in sorted(clusters) if pid not in taken)
    orphans = tuple(processes[pid] for pid, role in sorted(classified.roles.items())
                    if role.role == "worker" and pid not in taken)
    return runs, outside, orphans


def _classify(processes: Dict[int, Process], own: Set[int]) -> Classified:
    recognisers = load_recognisers()
    roles: Dict[int, Role] = {}
    for pid, process in processes.items():
        if pid in own or procs.is_dead(process) or (not process.argv and process.ppid == 2):
            continue
        for module in recognisers.values():
            role = module.classify(process, procs.read_cwd)
            if role:
                roles[pid] = role
                break
    return Classified(roles, recognisers)


def _find_tops(processes: Dict[int, Process], classified: Classified) -> List[int]:
    """The top process of each run: a runner or trainer with none above it, and no dry run in the line."""
    leading = {pid for pid, role in classified.roles.items() if role.role in ("runner", "trainer")}
    tops = []
    for pid in leading:
        line = [pid] + [above for above in procs.find_ancestors(processes, pid) if above in leading]
        if any(_is_rehearsal(processes[one], classified) for one in line):
            continue
        if line[-1] == pid:
            tops.append(pid)
    return tops


def _is_rehearsal(process: Process, classified: Classified) -> bool:
    module = classified.recognisers[classified.roles[process.pid].stack]
    return bool(module.is_rehearsal(process, procs.read_environ(process.pid)))


def _find_owner(processes: Dict[int, Process], pid: int, classified: Classified,
                trees: Dict[int, Set[int]]) -> int:
    """The run that a Ray daemon belongs to: the one above it, else (it detaches) the newest run of the same user and
    stack that was there before it. 0 where there is none."""
    daemon = processes[pid]
    for top, tree in trees.items():
        if pid in tree:
            return top
    older = [top for top in trees if processes[top].uid == daemon.uid
             and classified.roles[top].stack == classified.roles[pid].stack
             and processes[top].start_ticks <= daemon.start_ticks]
    return max(older, key=lambda top: processes[top].start_ticks) if older else 0


def _make_run(top: Process, classified: Classified, tree: Set[int]) -> LiveRun:
    role = classified.roles[top.pid]
    root = classified.recognisers[role.stack].find_root(top, procs.read_cwd)
    kind = role.kind or next((classified.roles[pid].kind for pid in sorted(tree)
                              if pid in classified.roles and classified.roles[pid].kind), "")
    return LiveRun(role.stack, kind, role.role, top, tuple(sorted(tree)), root)


def find_trainers(processes: Dict[int, Process], tree: Set[int]) -> Tuple[int, ...]:
    """The trainers among these processes."""
    classified = _classify({pid: processes[pid] for pid in tree if pid in processes}, set())
    return tuple(sorted(pid for pid, role in classified.roles.items() if role.role == "trainer"))


def find_newest_log(roots: List[str]) -> str:
    """The most recently written `*.log` under these checkouts' logs/, "" where there is none."""
    newest, when = "", 0.0
    for root in roots:
        folder = os.path.join(root, "logs")
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            path = os.path.join(folder, name)
            try:
                changed = os.stat(path).st_mtime if name.endswith(".log") else 0.0
            except OSError:
                continue
            if changed > when:
                newest, when = path, changed
    return newest


def has_worker(processes: Dict[int, Process], tree: Set[int]) -> bool:
    """Is there a worker among these processes?"""
    classified = _classify({pid: processes[pid] for pid in tree if pid in processes}, set())
    return any(role.role == "worker" for role in classified.roles.values())


def describe_stop(run: LiveRun) -> str:
    """The command that stops a live run: its stack's signal to its group; to each process where the group is somebody
    else's too; SIGTERM where SIGINT is ignored (S3). On a node of a job that rlrun handed in: the job's, as a whole."""
    stack = load_recognisers()[run.stack]
    job = _find_own_job(run.top)
    if job:
        return str(stack.describe_stop(0, {"jobs": [job], "pending": False, "gentle": True}))
    name = stack.STOP_SIGNAL
    name = "TERM" if name == "INT" and procs.ignores_interrupt(run.top.pid) else name
    if run.top.pgid == run.top.pid:
        return "kill %s -- -%d" % ("-INT" if name == "INT" else "-s " + name, run.top.pgid)
    return "kill -%s %s" % (name, " ".join(str(pid) for pid in run.pids))


def _find_own_job(top: Process) -> str:
    """The Slurm job whose agent of ours started this process; "" where none did, or its environment can't be read. A run in a job
    of somebody's own script is stopped as any other: what that script would make of a signal is not known."""
    environ = procs.read_environ(top.ppid) or {} if top.ppid > 1 else {}
    job = environ.get("SLURM_JOB_ID", "")
    return job if environ.get("RLRUN_RECORD") and re.match(r"[0-9]{1,10}\Z", job) else ""
