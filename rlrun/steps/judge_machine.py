"""Step 2, the part that time changes: jobs, GPUs, ports, the sweep. Judged before the question and again under the lock."""
import os
import re
from typing import Dict, List, Optional, Sequence, Set, Tuple

from ..host import disks, gpus, ports, procs
from ..stacks import load_stack
from ..text.durations import format_bytes, format_elapsed, format_mib
from ..text.redact import redact, redact_words
from ..text.shell import escape_controls
from ..values import Check, Gpu, GpuHolder, LiveRun, Machine, Plan, Process, Sweep, SweptProcess
from .guard import describe_stop

# Below this a GPU counts as free: a driver and an idle context take some hundred MiB (eval's own wait uses it too).
FREE_GPU_MIB = 2000
_COMMAND_WIDTH = 110
_MANY = 12


def show_command(process: Process, secrets: Sequence[str] = ()) -> str:
    """A process's command line without the secrets in it: anybody's may hold a key, and a report is passed on."""
    return " ".join(redact_words(process.argv, secrets)) or procs.join_command(process)


def _shorten(text: str) -> str:
    """Foreign text for a line of the report: control characters escaped, and no longer than a command there."""
    shown = escape_controls(text)
    return shown if len(shown) <= _COMMAND_WIDTH else shown[:_COMMAND_WIDTH - 1] + "…"


def describe_process(process: Process) -> str:
    """`pid 41877 (alice), up 3d 4h: VLLM::Worker_TP0`, control characters escaped, a stuck state said."""
    command = _shorten(show_command(process))  # redacted whole: a secret that is cut in two is no longer known as one
    state = ", in state D: it may not be killable" if process.state == "D" else ""
    return "pid %d (%s), up %s%s: %s" % (process.pid, procs.user_name(process.uid),
                                         format_elapsed(process.elapsed_seconds), state, command)


def judge_jobs(plan: Plan, machine: Machine) -> List[Check]:
    """Is a run in flight? Any live run keeps out a launch that takes the whole box, and one that takes the box keeps out any
    launch; so does a live Ray cluster that the launch would sweep away: work may hang on it that this machine does not show."""
    if plan.is_submission:
        return [Check("live", "job:none", "pass", "what lives on this machine is no matter: Slurm picks the nodes")]
    checks = []
    for run in machine.runs:
        is_in_the_way = is_excluded_by(plan, run)
        words = "%s %s %s" % (run.stack, run.kind, run.role) if run.kind else "%s %s" % (run.stack, run.role)
        detail = "%s, %s, %d processes" % (describe_process(run.top), words, len(run.pids))
        if is_in_the_way:
            checks.append(Check("live", "job:running", "blocks", detail,
                                "Let it finish, or stop it yourself (%s), then look again." % describe_stop(run)))
        else:
            checks.append(Check("live", "job:beside", "advisory", "%s; it goes on beside this launch where neither takes the "
                                "other's GPUs and ports" % detail))
    swept = {one.process.pid for one in find_swept(plan, machine)}
    for process in machine.clusters:
        if process.pid in swept:
            checks.append(Check("live", "job:running", "blocks",
                                "a Ray cluster is alive, and this launch would end it: %s" % describe_process(process),
                                "If it is yours and idle, end it (ray stop); otherwise ask %s."
                                % procs.user_name(process.uid)))
    if machine.orphans:
        checks.append(Check("live", "job:orphan", "advisory", "no runner above: " + _name_some(machine.orphans),
                            "A leftover, or somebody's serving job: ask its user."))
    if machine.is_partial:
        fix = "Ask root to run `rlrun probe`, or the colleagues who share the box." if machine.processes else \
            "Mount it (as root: mount -t proc proc /proc), or look from where it is."
        checks.append(Check("live", "job:hidden", "advisory", describe_hidden(machine), fix))
    return checks if checks else [Check("live", "job:none", "pass", "none")]


def describe_hidden(machine: Machine) -> str:
    """Why the process table is not whole."""
    if not machine.processes:
        return "there is no process table here (/proc is not mounted): no run, worker or holder could be seen"
    return "this machine hides other users' processes (hidepid): judged by what is visible"


def _name_some(processes: Tuple[Process, ...]) -> str:
    shown = "; ".join(describe_process(process) for process in processes[:3])
    return shown + (" … and %d more" % (len(processes) - 3) if len(processes) > 3 else "")


def is_excluded_by(plan: Plan, run: LiveRun) -> bool:
    """Must this launch wait for that run? Where one of them takes the whole box; a run that is only submitted takes nothing."""
    return not plan.is_submission and (plan.takes_whole_box or bool(load_stack(run.stack).TAKES_WHOLE_BOX))


def _tree(plan: Plan, machine: Machine) -> Set[int]:
    """The processes of runs that block anyway: what they hold is told, and is no second reason."""
    return {pid for run in machine.runs if is_excluded_by(plan, run) for pid in run.pids}


def pick_gpus(plan: Plan, machine: Machine) -> Tuple[List[Gpu], str]:
    """The GPUs that this launch takes, and a word on why that is uncertain ("" where it is not).

    A selection of none is uncertain too: it would judge nothing and pass, and what the runner makes of it is not known.
    """
    reading = machine.gpus
    visible_word = plan.environment.get("CUDA_VISIBLE_DEVICES")
    visible = gpus.select_visible(reading.gpus, visible_word)
    if visible is None or (visible_word is not None and not visible and reading.gpus):
        shown = _shorten(visible_word or "''")
        return list(reading.gpus), "CUDA_VISIBLE_DEVICES=%s %s" % (
            shown, "can't be matched to these GPUs" if visible is None else "names none of these GPUs")
    if plan.gpu_count is None:
        return visible, ""
    if gpus.is_mixed(tuple(visible)) and plan.environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID" \
            and plan.gpu_count < len(visible):
        return visible, "different models and no CUDA_DEVICE_ORDER=PCI_BUS_ID: CUDA numbers the fastest first"
    return visible[:plan.gpu_count], ""


def judge_gpus(plan: Plan, machine: Machine) -> List[Check]:
    """Are the GPUs that this launch takes free, mine, or a foreign job's? What nvidia-smi could not tell is unknown."""
    if plan.is_submission or plan.gpu_count == 0:
        return [Check("live", "gpu:none", "skipped", "Slurm picks the GPUs" if plan.is_submission else "this run takes none")]
    reading = machine.gpus
    unknown = []
    if reading.state != "ok":
        unknown = [_make_unknown("the GPUs could not be judged%s: %s" % (
            " whole" if reading.gpus else "", reading.reason))]
    unknown += [_make_unknown("nvidia-smi printed a line that is no GPU: %s" % _shorten(line))
                for line in reading.unread[:_MANY]]
    if len(reading.unread) > _MANY:
        unknown.append(_make_unknown("… and %d more lines that are no GPU" % (len(reading.unread) - _MANY)))
    checks = [Check("live", "gpu:lost", "advisory", escape_controls(line),
                    "A GPU fell off the bus or hangs: reset it or drain the node.") for line in reading.lost]
    if reading.state != "ok" and not reading.gpus:  # what it did tell counts: memory in use is foreign whoever holds it
        return unknown + checks
    taken, doubt = pick_gpus(plan, machine)
    if doubt:
        checks.append(Check("live", "gpu:order", "advisory", doubt + "; all %d were judged" % len(taken),
                            "Set CUDA_DEVICE_ORDER=PCI_BUS_ID, and CUDA_VISIBLE_DEVICES by index."))
    if plan.gpu_count is not None and len(taken) < plan.gpu_count:
        checks.append(Check("live", "gpu:count", "advisory", "the plan takes %d GPUs, this machine shows %d"
                            % (plan.gpu_count, len(taken)), "Lower the config's GPU count, or take another node."))
    # A GPU that hides its index may be any of those that are taken.
    taken = taken + [gpu for gpu in reading.gpus if gpu.index < 0 and gpu not in taken]
    checks += _judge_ecc(taken)
    held = _judge_holders(plan, taken, machine)
    if not held and not unknown:
        held = [Check("live", "gpu:idle", "pass", "%d GPUs, none held" % len(taken))]
    return unknown + checks + held


def _make_unknown(words: str) -> Check:
    return Check("live", "gpu:unknown", "advisory", words, "Look yourself (nvidia-smi) before you say yes.")


def _judge_ecc(taken: List[Gpu]) -> List[Check]:
    sick = sorted((gpu for gpu in taken if gpu.ecc_errors), key=lambda gpu: (gpu.index < 0, gpu.index))
    if not sick:
        return []
    where = _name_gpus([gpu.index for gpu in sick])
    words = "%s has %d uncorrected memory errors" % (where, sick[0].ecc_errors or 0)
    if len(sick) > 1:
        counts = ", ".join(str(gpu.ecc_errors) for gpu in sick[:_MANY]) + (", …" if len(sick) > _MANY else "")
        words = "%s have uncorrected memory errors (%s)" % (where, counts)
    return [Check("live", "gpu:ecc", "advisory", words, "Reset %s or drain the node: such errors end runs."
                  % ("the GPU" if len(sick) == 1 else "these GPUs"))]


def describe_holder_name(holder: GpuHolder) -> str:
    """The name by which nvidia-smi calls a process that is not visible here; secrets in it are not shown."""
    return escape_controls(redact(holder.name)) or "name not told"


def _judge_holders(plan: Plan, taken: List[Gpu], machine: Machine) -> List[Check]:
    by_uuid = {gpu.uuid: gpu for gpu in machine.gpus.gpus if gpu.uuid}  # one that is not told may be any
    wanted = {gpu.uuid for gpu in taken}
    by_pid: Dict[int, List[GpuHolder]] = {}
    for holder in machine.gpus.holders:
        if holder.gpu_uuid in wanted or holder.gpu_uuid not in by_uuid:
            by_pid.setdefault(holder.pid, []).append(holder)
    tree = _tree(plan, machine)
    checks = []
    for pid, held in sorted(by_pid.items()):
        where = _name_gpus([by_uuid[one.gpu_uuid].index for one in held if one.gpu_uuid in by_uuid])
        sizes = [one.used_mib for one in held]
        size = format_mib(sum(one for one in sizes if one)) if None not in sizes else "unknown memory"
        process = machine.processes.get(pid)
        words = describe_process(process) if process else "pid %d, which is not visible here: %s" % (
            pid, describe_holder_name(held[0]))
        if pid in tree:
            checks.append(Check("live", "gpu:mine", "advisory", "%s, %s on %s" % (words, size, where),
                                "It belongs to the run that is in flight."))
            continue
        owner = procs.user_name(process.uid) if process else "its owner"
        checks.append(Check("live", "gpu:foreign", "blocks", "%s, %s on %s" % (words, size, where),
                            "%s is held by %s's process (pid %d). Wait, or ask %s." % (where, owner, pid, owner)))
    return checks + _judge_unseen(taken, machine)


def _judge_unseen(taken: List[Gpu], machine: Machine) -> List[Check]:
    """Memory in use that no holder accounts for: another container's process."""
    checks = []
    untold = []
    for gpu in taken:
        sizes = [holder.used_mib for holder in machine.gpus.holders if gpu.uuid and holder.gpu_uuid == gpu.uuid]
        if gpu.used_mib is None:
            if not sizes:
                untold.append(gpu.index)
            continue
        if None in sizes:
            continue
        unseen = gpu.used_mib - sum(size for size in sizes if size)
        if unseen > FREE_GPU_MIB:
            checks.append(Check(
                "live", "gpu:foreign", "blocks", "GPU %s: %s in use by a process that is not visible here (another "
                "container's?)" % (gpus.show_index(gpu), format_mib(unseen)),
                "Find out on the host who holds GPU %s (nvidia-smi there), and wait or ask." % gpus.show_index(gpu)))
    if untold:
        checks.append(_make_unknown("%s %s not tell how much memory is in use"
                                    % (_name_gpus(untold), "does" if len(untold) == 1 else "do")))
    return checks


def _name_gpus(indices: List[int]) -> str:
    """`GPU 0-7`, `GPU 0,2`, `GPU 0,?` with one whose index is not told (-1)."""
    if not indices:
        return "a GPU that can't be told"
    numbers = sorted({index for index in indices if index >= 0})
    words = [str(number) for number in numbers]
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        words = ["%d-%d" % (numbers[0], numbers[-1])]
    return "GPU " + ",".join(words + (["?"] if min(indices) < 0 else []))


def judge_ports(plan: Plan, machine: Machine, is_head: bool = True) -> List[Check]:
    """Are the ports that this plan binds free? Only sockets that listen hold a port."""
    wanted = plan.ports if is_head else ()
    if wanted and not machine.listeners and not ports.has_port_table():  # no row then means nothing
        return [Check("live", "port:unknown", "advisory", "%s: this machine shows no table of sockets (/proc/net/tcp)"
                      % " ".join(str(port.number) for port in wanted), "Look yourself (ss -ltn) before you say yes.")]
    busy = [(port, row) for port in wanted for row in machine.listeners if row.port == port.number]
    owners = ports.find_owners({row.inode for _, row in busy}) if busy else {}
    tree = _tree(plan, machine)
    checks: List[Check] = []
    for port in wanted:
        rows = [row for one, row in busy if one.number == port.number]
        if rows:
            pid = next((owners[row.inode] for row in rows if row.inode in owners), 0)
            checks.append(_judge_busy_port(port.number, port.purpose, pid, rows[0].uid, rows[0].address, machine, tree))
    free = [port.number for port in wanted if port.number not in {one.number for one, _ in busy}]
    if free and not checks:
        waiting = sorted(set(free) & set(machine.waiting_ports))
        note = " (%s: closed connections in TIME_WAIT; a bind without SO_REUSEADDR may fail for a minute)" % " ".join(
            map(str, waiting)) if waiting else ""
        checks.append(Check("live", "port:free", "pass", "%s free%s" % (" ".join(map(str, free)), note)))
    if not wanted and plan.is_submission:
        return [Check("live", "port:free", "skipped", "the job's node binds them, not this machine")]
    if not wanted:
        checks.append(Check("live", "port:free", "pass" if not plan.ports and plan.block or not is_head else "skipped",
                            "this node binds none" if not is_head else "none known of this plan"))
    return checks


def _judge_busy_port(number: int, purpose: str, pid: int, uid: int, address: str, machine: Machine,
                     tree: Set[int]) -> Check:
    process = machine.processes.get(pid)
    who = describe_process(process) if process else "a process of %s's that can't be seen" % procs.user_name(uid)
    detail = "%d (%s) on %s is held by %s" % (number, purpose, address, who)
    if pid in tree:
        return Check("live", "port:mine", "advisory", detail, "It belongs to the run that is in flight.")
    run = next((one for one in machine.runs if pid in one.pids), None)
    if run:
        return Check("live", "port:conflict", "blocks", detail, "It is a live run's: wait, or stop that run (%s), or move this "
                     "run's %s port in the config." % (describe_stop(run), purpose))
    return Check("live", "port:conflict", "blocks", detail,
                 "Stop what holds port %d (ask %s), or move this run's %s port in the config."
                 % (number, procs.user_name(process.uid if process else uid), purpose))


def find_swept(plan: Plan, machine: Machine) -> Tuple[SweptProcess, ...]:
    """The live processes that this launch would kill, by the runner's own patterns over the joined command line. Without
    root only the user's own can be killed, so only they are in it. rlrun itself hides its command line in time."""
    uid = os.geteuid()
    patterns = [re.compile(pattern) for pattern in plan.sweep.process_patterns]
    swept = []
    for process in machine.processes.values():
        if not process.argv or process.pid == os.getpid() or procs.is_dead(process) or (uid and process.uid != uid):
            continue
        command = " ".join(process.argv)
        if any(pattern.search(command) for pattern in patterns):
            swept.append(SweptProcess(process, procs.user_name(process.uid), process.uid != uid))
    return tuple(sorted(swept, key=lambda one: one.process.pid))


def find_sweep(plan: Plan, machine: Machine) -> Sweep:
    """All that this launch would destroy here now: processes, and paths with their sizes."""
    return Sweep(find_swept(plan, machine), disks.read_paths(plan.sweep.path_globs) if plan.sweep.path_globs else ())


def judge_sweep(plan: Plan, sweep: Sweep) -> List[Check]:
    """What the launch would destroy: another user's process blocks, one's own is a warning, paths are told."""
    checks = []
    for one in sweep.processes[:_MANY]:
        if one.is_foreign:
            checks.append(Check("live", "sweep:foreign", "blocks", "this launch would kill %s" % describe_process(one.process),
                                "It is %s's: wait, or ask %s to end it." % (one.user, one.user)))
        else:
            checks.append(Check("live", "sweep:own", "advisory", "this launch would kill %s" % describe_process(one.process),
                                "If you need it, end the launch here and rename or move what it works on."))
    foreign = [one for one in sweep.processes[_MANY:] if one.is_foreign]
    if len(sweep.processes) > _MANY:
        checks.append(Check("live", "sweep:foreign" if foreign else "sweep:own", "blocks" if foreign else "advisory",
                            "… and %d more processes, %d of them other users'"
                            % (len(sweep.processes) - _MANY, len(foreign)), "rlrun check --json lists them all."))
    if sweep.paths:
        total = sum(path.size_bytes for path in sweep.paths)
        named = ", ".join(escape_controls(path.path) for path in sweep.paths[:4]) + (" …" if len(sweep.paths) > 4 else "")
        checks.append(Check("live", "sweep:paths", "advisory", "this launch would delete %d path%s, %s%s: %s" % (
            len(sweep.paths), "" if len(sweep.paths) == 1 else "s",
            "" if all(path.is_exact for path in sweep.paths) else "at least ", format_bytes(total), named)))
    itself = _find_self_match(plan)
    if itself:
        checks.append(Check("live", "sweep:self", "advisory", "the sweep would match the runner's own command line (%s)"
                            % itself, "Rename the config or its folder: the launch would end itself."))
    here = "nothing to kill or delete"
    if plan.batch is not None:
        here = "nothing on this machine; each node of the job is judged there, before its runner starts"
    return checks if checks else [Check("live", "sweep:none", "pass", here)]


def _find_self_match(plan: Plan) -> Optional[str]:
    if plan.sweep.spares_runner:
        return None
    command = " ".join(plan.argv)
    for pattern in plan.sweep.process_patterns:
        match = re.search(pattern, command)
        if match:
            return match.group(0)
    return None
