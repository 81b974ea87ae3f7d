"""Step 2, what the machine offers the run: imports, virtual environment, Ray's folder, disks, shared memory, limits."""
import os
from typing import Dict, List, Optional, Tuple

from .. import child
from ..host import address, disks, inherited, memory, python_env, session, standing
from ..text.durations import format_bytes
from ..values import Check, Disk, Plan

_SHM = "/dev/shm"



def judge_imports(plan: Plan, asked: Optional[child.Running]) -> List[Check]:
    """Can the runner's own Python find what the run needs? `asked`: what `ask_imports` started."""
    names = plan.modules + plan.soft_modules
    if asked is None:
        return [Check("live", "import:unknown", "skipped", "the runner named no Python")]
    found = python_env.finish_finding(asked, names)
    if found is None:
        return [Check("live", "import:unknown", "advisory", "%s gave no answer about its modules" % plan.python,
                      "Try it: %s -c 'import %s'" % (plan.python, names[0]))]
    missing = [name for name in plan.modules if not found.get(name)]
    degraded = [name for name in plan.soft_modules if not found.get(name)]
    checks = [Check("live", "import:missing", "blocks", "%s can't be imported by %s; the runner exits on this"
                    % (name, plan.python), plan.import_fixes.get(name)
                    or "Install %s into that environment, or name another in the config." % name)
              for name in missing]
    if degraded:
        checks.append(Check("live", "import:degraded", "advisory", "%s can't find: %s" % (plan.python, ", ".join(degraded)),
                            "The run will fail where it needs them, unless something else provides them."))
    if not checks:
        checks.append(Check("live", "import:ok", "pass", ", ".join(names)))
    return checks


def judge_venv(plan: Plan) -> List[Check]:
    """Is the Python that the runner picked that of the environment which the config names?"""
    if not plan.venv or not plan.python:
        return []
    python, venv = (os.path.normpath(os.path.join(plan.root, path)) for path in (plan.python, plan.venv))
    if python.startswith(venv.rstrip("/") + "/"):
        return [Check("live", "venv:ok", "pass", plan.venv)]
    return [Check("live", "venv:fallback", "advisory", "no usable Python in %s: the runner falls back to %s"
                  % (plan.venv, plan.python), "Make the environment, or correct its path in the config.")]


def judge_ray(plan: Plan, clusters: Tuple[object, ...]) -> List[Check]:
    """Is Ray down, and can its folder be written?"""
    if not plan.ray_dir:
        return []
    if clusters:
        return [Check("live", "ray:up", "advisory", "%d Ray daemons are alive: a leftover cluster, or somebody's work"
                      % len(clusters), "See job:running.")]
    if os.path.isdir(plan.ray_dir) and not os.access(plan.ray_dir, os.W_OK | os.X_OK):
        owner = disks.read_owner(plan.ray_dir)
        words = "belongs to %s, mode %o" % owner if owner else "can't be read"
        return [Check("live", "ray:owner", "advisory", "%s is not writable: it %s" % (plan.ray_dir, words),
                      "Ask its owner to remove it, or set RAY_TMPDIR to a folder of your own.")]
    return [Check("live", "ray:down", "pass", "no Ray daemon")]


def judge_disks(plan: Plan) -> List[Check]:
    """Room and permission where the launch will write: percent, bytes, inodes, and a small file written and removed."""
    checks: List[Check] = []
    seen: Dict[Tuple[int, int], Disk] = {}
    ray = disks.read_disk(plan.ray_dir) if plan.ray_dir else None
    for path in ("/", plan.root) + plan.write_dirs:
        disk = disks.read_disk(path)
        if disk and (disk.total_bytes, disk.free_bytes) not in seen:
            seen[(disk.total_bytes, disk.free_bytes)] = disk
            # On the disk that Ray's folder is on, its stricter rule holds, whichever path it was met by.
            checks += _judge_disk(disk, is_ray=ray is not None and ray.total_bytes == disk.total_bytes)
    probed = set()
    for path in plan.write_dirs + (os.path.join(plan.root, "logs", "rlrun"),):
        probe = disks.probe_write(path)
        if probe.probed in probed:
            continue
        probed.add(probe.probed)
        if not probe.is_writable:
            owner = disks.read_owner(probe.probed)
            words = " (%s, mode %o)" % owner if owner else ""
            checks.append(Check("live", "disk:unwritable", "advisory", "can't write to %s%s, where the launch will write: %s"
                                % (probe.probed, words, probe.reason), "Free it, or point the config elsewhere."))
    if not checks:
        checks.append(Check("live", "disk:ok", "pass", ", ".join(
            "%s %d %% (%s free)" % (disk.path, disk.used_percent, format_bytes(disk.free_bytes)) for disk in seen.values())))
    return checks


def _judge_disk(disk: Disk, is_ray: bool) -> List[Check]:
    words = "%s is %d %% full, %s free of %s" % (disk.path, disk.used_percent, format_bytes(disk.free_bytes),
                                                format_bytes(disk.total_bytes))
    if disks.is_low(disk):
        return [Check("live", "disk:low", "advisory", words, "Free space: logs stop and pods are evicted on a full disk.")]
    if is_ray and disks.is_nearly_full_percent(disk):
        return [Check("live", "disk:low", "advisory", words + "; above 95 % Ray stops spilling, however much is free",
                      "Set RAY_TMPDIR to another disk.")]
    if disks.is_short_of_inodes(disk):
        return [Check("live", "disk:inodes", "advisory", "%s has %d %% of its inodes left" % (
            disk.path, disk.inodes_free_percent or 0), "Remove small files: a full table looks like a full disk.")]
    return []


def judge_memory(plan: Plan) -> List[Check]:
    """Shared memory and the memory limit against what the launch asks for."""
    checks = []
    shm = disks.read_shm(_SHM)
    if shm and shm.total_bytes < plan.shm_bytes:
        checks.append(Check("live", "shm:small", "advisory", "%s has %s, the launch asks for %s" % (
            _SHM, format_bytes(shm.total_bytes), format_bytes(plan.shm_bytes)),
            "In a container: --shm-size or --ipc=host; on a host: mount -o remount,size=… %s" % _SHM))
    elif shm and shm.used_percent >= 50:
        checks.append(Check("live", "shm:dirty", "advisory", "%s is %d %% full: leftover segments; only worrying if a live "
                            "run owns them" % (_SHM, shm.used_percent)))
    elif shm:
        checks.append(Check("live", "shm:ok", "pass", "%s %d %% of %s" % (_SHM, shm.used_percent,
                                                                         format_bytes(shm.total_bytes))))
    limit, source = memory.read_memory_limit_bytes()
    if limit is not None and limit < plan.shm_bytes:
        checks.append(Check("live", "memory:limit", "advisory", "%s of memory (%s), the launch asks for %s of shared memory"
                            % (format_bytes(limit), source, format_bytes(plan.shm_bytes)), "Raise the limit, or ask for less."))
    return checks


def judge_limits() -> List[Check]:
    """Open files, locked memory: what is too low, and what the launch raises."""
    return [Check("live", fact.name, "advisory", fact.detail, "rlrun explain %s" % fact.name) if fact.level == "WARN" else
            Check("live", fact.name, "pass", fact.detail)
            for fact in session.find_limits() if fact.level == "WARN" or "raises" in fact.detail]


def judge_session(environ: Dict[str, str], needed_seconds: Optional[float] = None) -> List[Check]:
    """Where this launch stands, and what ends it besides its own end. `needed_seconds`: an estimate of the run's length."""
    checks = [Check("live", "session:stands", "pass", standing.read_standing().words)]
    for end in session.find_ends(environ=environ, needed_seconds=needed_seconds):
        fix = "%s (rlrun explain session:scope)" % end.cure if "--scope" in end.cure else ""
        checks.append(Check("live", "session:ends", "advisory", session.say_end(end), fix))
    return checks


def judge_inherited(environ: Dict[str, str], plan: Plan) -> List[Check]:
    """What the run would take over from an enclosing job or an earlier launcher, and what it does not."""
    checks = []
    if plan.inherited:
        is_ray_alone = len(plan.inherited) == 1 and plan.inherited[0].startswith("RAY_ADDRESS") and inherited.NOBODY not in \
            plan.inherited[0]
        checks.append(Check("live", "env:inherited", "advisory", "the run would inherit %s" % ", ".join(plan.inherited),
                            "Is that meant? Else: env -u RAY_ADDRESS rlrun …" if is_ray_alone else
                            "--drop-env leaves them out (rlrun explain env:inherited tells by which rule), or start from a clean "
                            "shell."))
    if plan.dropped:
        checks.append(Check("live", "env:dropped", "pass", "not handed on: %s" % inherited.describe_dropped(plan.dropped)))
    switches = [name for name in plan.drop_env if not name.startswith(("SBATCH_", "SLURM_"))
                and environ.get(name) not in (None, "", "0")]
    if switches:
        checks.append(Check("live", "env:inherited", "advisory", "%s is set here and would keep the run from launching; it "
                            "is not handed on" % ", ".join(switches)))
    return checks


def judge_address(plan: Plan, first_address: str) -> List[Check]:
    """The address that the runner will take for this node, where other nodes or the runner itself depend on it."""
    head = plan.topology.head
    if plan.is_submission or (plan.topology.nodes < 2 and not plan.ray_dir):
        return []
    default = address.read_default_route_address()
    resolves = address.resolve(head or first_address) if head or first_address else ""
    pairs = address.judge_addresses(first_address, default, head, plan.topology.nodes, resolves,
                                    address.read_interface(first_address))
    checks = [Check("live", "host:address", "advisory", words, fix) for words, fix in pairs]
    if is_head_node(plan, (first_address,) if first_address else ()) is False:
        checks.append(Check("live", "host:worker", "advisory", "this node is not the head (%s): its runner joins there and ends "
                            "with 0; the head alone drives the run and writes its log" % head,
                            "Launch on the head too; to launch the head here, set %s to this node's address, or leave it unset."
                            % plan.topology.head_variable))
    return checks


def is_head_node(plan: Plan, addresses: Tuple[str, ...]) -> Optional[bool]:
    """Does this node drive the run? None where that can't be told."""
    head = plan.topology.head
    if not head:
        return True
    if not addresses:
        return None
    return head == addresses[0] or address.resolve(head) == addresses[0] or head == address.read_short_host_name()
