"""prime-rl, as far as its live processes go: a run of it on this box keeps any launch that takes the whole box away.

It owns what tells a prime-rl process. It is in the table of recognised stacks, not in that of stacks to launch.
"""
import os
import re
from typing import Callable, Dict, Optional

from ..values import Process, Role
from .interpreters import read_run

# The titles that its processes give themselves; the prefix was PRIME-RL:: until August 2026 and is PRL:: since.
# PRIME-RL::Trainer
_TITLE = re.compile(r"^(?:PRIME-RL|PRL)::(\w+)")
# Verifiers::EnvWorker0
_WORKER_TITLE = re.compile(r"^Verifiers::Env")
# The kernel's short name is cut to 15 bytes: PRIME-RL::Launc
_SHORT = re.compile(r"^(?:PRIME-RL|PRL)::(\w{1,})$")
_ROLES = {"Launcher": "runner", "Trainer": "trainer", "Orchestrator": "trainer", "Inference": "worker",
          "EnvServer": "worker"}
_MODULES = {"prime_rl.entrypoints.rl": "rl", "prime_rl.entrypoints.sft": "sft",
            "prime_rl.entrypoints.inference": "inference"}
_COMMANDS = {"rl": "rl", "sft": "sft", "inference": "inference", "eval": "evals", "evals": "evals"}


def classify(process: Process, read_cwd: Callable[[int], Optional[str]]) -> Optional[Role]:
    """The Role of a live process in a prime-rl run, or None. By title or by the entry point that it runs."""
    first = process.argv[0] if process.argv else process.comm
    match = _TITLE.match(first)
    if not match and not process.argv:
        match = _SHORT.match(process.comm)
    if match:
        role = next((role for name, role in _ROLES.items() if name.startswith(match.group(1)[:5])), "")
        return Role("prime", role, "rl" if match.group(1) == "Orchestrator" else "") if role else None
    if _WORKER_TITLE.match(first):
        return Role("prime", "worker", "")
    run = read_run(process.argv)
    if run.module in _MODULES:
        return Role("prime", "runner", _MODULES[run.module])
    kind = _COMMANDS.get(os.path.basename(run.script)) if run.language == "python" else None
    if kind and _is_checkout_program(run.script):
        return Role("prime", "runner", kind)
    return None


def _is_checkout_program(script: str) -> bool:
    """Is this `<checkout>/.venv/bin/<command>`? `rl` and `eval` are too short to believe anywhere else."""
    folder = os.path.dirname(script)
    root = os.path.dirname(os.path.dirname(folder))
    return os.path.basename(folder) == "bin" and os.path.isdir(os.path.join(root, "src", "prime_rl", "entrypoints"))


def is_rehearsal(process: Process, environ: Optional[Dict[str, str]]) -> bool:
    """Is it a dry run? Its own words say so."""
    return "--dry-run" in process.argv or "--help" in process.argv


def find_root(process: Process, read_cwd: Callable[[int], Optional[str]]) -> str:
    """The checkout that a launcher works in: its working directory, where that can be read."""
    return read_cwd(process.pid) or ""
