"""The facts of `probe`: what is read off this machine, each OK, WARN or INFO. Judges no launch."""
import os
import shutil
import time
from typing import List, Optional

from ..errors import OperatorError
from ..host import address, disks, gpus, inherited, memory, ports, procs, python_env, session
from ..stacks import load_stack
from ..text.durations import format_age, format_bytes, format_elapsed, format_mib
from ..text.redact import find_secrets, redact
from ..values import Checkout, Disk, Fact, Machine
from . import guard, orient
from .judge_machine import describe_hidden, describe_holder_name, describe_process


def read_facts(root_option: str) -> List[Fact]:
    """All facts, in a fixed order of topics."""
    checkout = _find_checkout(root_option)
    machine = guard.read_machine()
    facts = [_host_fact()]
    facts += _job_facts(machine) + _ray_facts(machine) + _gpu_facts(machine) + _port_facts(machine)
    facts += _disk_facts(checkout) + _memory_facts() + _python_facts(checkout)
    facts += [fact for fact in session.find_limits()]
    facts += [Fact("WARN", "session:ends", words) for words in session.find_session_ends(environ=dict(os.environ))]
    left = inherited.find_inherited(os.environ).words
    facts += [Fact("WARN", "env:inherited", ", ".join(left))] if left else []
    facts += [Fact("INFO", "board", "pid=%d port=%s serving %s" % (board.pid, board.port or "?", " ".join(board.served) or "?"))
              for board in machine.boards]
    secrets = find_secrets(os.environ)  # a driver's message or another's command line may hold one
    return [fact._replace(detail=redact(fact.detail, secrets)) for fact in facts + _log_facts(checkout)]


def _find_checkout(root_option: str) -> Optional[Checkout]:
    try:
        return orient.find_checkout(root_option, "")
    except OperatorError:
        if root_option:
            raise
        return None


def _host_fact() -> Fact:
    addresses = address.read_addresses()
    uptime = "unknown"
    try:
        with open("/proc/uptime", "rb") as file:
            uptime = format_elapsed(float(file.read().split()[0]))
    except (OSError, ValueError, IndexError):
        pass
    return Fact("INFO", "host", "%s %s uptime=%s" % (address.read_short_host_name(), addresses[0] if addresses else "no address",
                                                    uptime))


def _job_facts(machine: Machine) -> List[Fact]:
    facts = [Fact("WARN", "job:%s" % run.role, "%s, %d processes, %s %s" % (describe_process(run.top), len(run.pids), run.stack,
                                                                            run.kind)) for run in machine.runs]
    facts += [Fact("WARN", "job:orphan", describe_process(process)) for process in machine.orphans]
    if machine.is_partial:
        facts.append(Fact("WARN", "job:hidden", describe_hidden(machine)))
    return facts or [Fact("OK", "job:none", "no runner, trainer or worker on this machine")]


def _ray_facts(machine: Machine) -> List[Fact]:
    if machine.clusters:
        return [Fact("WARN", "ray:up", describe_process(process)) for process in machine.clusters]
    return [Fact("OK", "ray:down", "no Ray daemon outside a run")]


def _gpu_facts(machine: Machine) -> List[Fact]:
    reading = machine.gpus
    facts: List[Fact] = []
    if reading.state != "ok":
        facts.append(Fact("INFO" if reading.state == "absent" else "WARN", "gpu:%s" % reading.state, reading.reason))
    facts += [Fact("WARN", "gpu:lost", line) for line in reading.lost]
    if reading.state != "ok" and not reading.gpus:
        return facts
    facts += [Fact("WARN", "gpu:unknown", "a line that is no GPU: %s" % line) for line in reading.unread]
    index = {gpu.uuid: gpus.show_index(gpu) for gpu in reading.gpus if gpu.uuid}
    for holder in reading.holders:
        process = machine.processes.get(holder.pid)
        who = describe_process(process) if process else "pid %d, not visible here: %s" % (
            holder.pid, describe_holder_name(holder))
        facts.append(Fact("WARN", "gpu:busy", "GPU %s: %s, %s" % (index.get(holder.gpu_uuid, "?"),
                                                                  format_mib(holder.used_mib), who)))
    facts += [Fact("WARN", "gpu:ecc", "GPU %s: %d uncorrected errors" % (gpus.show_index(gpu), gpu.ecc_errors))
              for gpu in reading.gpus if gpu.ecc_errors]
    if gpus.is_mixed(reading.gpus):
        facts.append(Fact("WARN", "gpu:order", "different models: CUDA's order may differ from nvidia-smi's"))
    if not reading.holders and reading.state == "ok":
        facts.append(Fact("OK", "gpu:idle", "%d GPU(s), no process holds memory" % len(reading.gpus)))
    facts.append(Fact("INFO", "gpu:mem", " ".join("%s:%s/%s" % (
        gpus.show_index(gpu), format_mib(gpu.used_mib), format_mib(gpu.total_mib)) for gpu in reading.gpus)))
    return facts


def _port_facts(machine: Machine) -> List[Fact]:
    owners = ports.find_owners({row.inode for row in machine.listeners})
    facts = []
    for row in sorted(machine.listeners, key=lambda one: (one.port, one.address)):
        process = machine.processes.get(owners.get(row.inode, 0))
        who = describe_process(process) if process else "a process of %s's that can't be seen" % procs.user_name(row.uid)
        facts.append(Fact("INFO", "port:%d" % row.port, "%s held by %s" % (row.address, who)))
    if not ports.has_port_table():
        return [Fact("WARN", "port:unknown", "this machine shows no table of sockets")]
    return facts + [Fact("OK", "port:scanned", "%d listening sockets" % len(machine.listeners))]


def _disk_facts(checkout: Optional[Checkout]) -> List[Fact]:
    facts = []
    for path in ["/"] + ([checkout.root] if checkout else []):
        disk = disks.read_disk(path)
        if disk:
            facts.append(Fact("WARN" if disks.is_low(disk) or disks.is_short_of_inodes(disk) else "OK", "disk:%s" % path,
                              _describe(disk)))
    return facts


def _describe(disk: Disk) -> str:
    inodes = "" if disk.inodes_free_percent is None else ", %d %% of inodes free" % disk.inodes_free_percent
    return "%d %% of %s (available %s%s)" % (disk.used_percent, format_bytes(disk.total_bytes),
                                             format_bytes(disk.free_bytes), inodes)


def _memory_facts() -> List[Fact]:
    shm = disks.read_shm()
    facts = [Fact("WARN" if shm.used_percent >= 50 else "OK", "shm", _describe(shm))] if shm else []
    limit, source = memory.read_memory_limit_bytes()
    return facts + [Fact("INFO", "memory", "%s (%s)" % (format_bytes(limit) if limit is not None else "no limit known", source))]


def _python_facts(checkout: Optional[Checkout]) -> List[Fact]:
    if not checkout:
        return []
    venv, modules = load_stack(checkout.stack).name_environment(checkout.root)
    python = os.path.join(venv, "bin", "python3")
    if os.access(python, os.X_OK):
        facts = [Fact("OK", "venv", "%s (%s)" % (venv, python_env.read_version(python) or "version unknown"))]
    else:
        fallback = shutil.which("python3") or ""
        facts = [Fact("WARN", "venv", "no %s: the runner falls back to %s" % (python, fallback or "nothing"))]
        python = fallback
    found = python_env.find_modules(python, modules, cwd=checkout.root) if python else None
    if found is None:
        return facts + [Fact("WARN", "import:unknown", "%s gave no answer" % (python or "no python3"))]
    return facts + [Fact("OK", "import:%s" % name, found[name]) if found.get(name) else
                    Fact("WARN", "import:%s" % name, "not importable by %s" % python) for name in modules]


def _log_facts(checkout: Optional[Checkout]) -> List[Fact]:
    if not checkout:
        return [Fact("INFO", "checkout", "none around the working directory")]
    newest = guard.find_newest_log([checkout.root])
    facts = [Fact("INFO", "checkout", "%s at %s" % (checkout.stack, checkout.root))]
    if not newest:
        return facts + [Fact("INFO", "log:newest", "no logs/*.log yet")]
    try:
        found = os.stat(newest)
    except OSError:
        return facts
    return facts + [Fact("INFO", "log:newest", "%s size=%s written %s" % (newest, format_bytes(found.st_size),
                                                                        format_age(time.time() - found.st_mtime)))]
