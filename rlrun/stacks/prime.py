"""prime-rl, as far as its live processes go: a run of it on this box keeps any launch that takes the whole box away.

It owns what tells a prime-rl process. It is in the table of recognised stacks, not in that of stacks to launch.
"""
import os
import re
from typing import Callable, Dict, Optional

from ..values import Process, Role
from .interpreters import Run, read_launched

# The titles that its processes give themselves; the prefix was PRIME-RL:: until August 2026 and is PRL:: since.
# PRIME-RL::Trainer
_TITLE = re.compile(r"^(?:PRIME-RL|PRL)::(\w+)")
# Verifiers::EnvWorker0
_WORKER_TITLE = re.compile(r"^Verifiers::Env")
# The kernel's short name is cut to 15 bytes: PRIME-RL::Launc
_SHORT = re.compile(r"^(?:PRIME-RL|PRL)::(\w{1,})$")
_ROLES = {"Launcher": ("runner", ""), "SFT": ("runner", "sft"), "SFTTrainer": ("trainer", "sft"),
          "Evals": ("runner", "evals"), "Trainer": ("trainer", ""), "Orchestrator": ("trainer", "rl"),
          "Inference": ("worker", ""), "EnvServer": ("worker", "")}
# A module or command of it: the role and the kind. It is these words that show until the process has set its title,
# which comes after its imports: half a minute and more.
_COMMANDS = {"rl": ("runner", "rl"), "sft": ("runner", "sft"), "inference": ("runner", "inference"),
             "eval": ("runner", "evals"), "evals": ("runner", "evals"), "trainer": ("trainer", "rl"),
             "orchestrator": ("trainer", "rl"), "env-server": ("worker", "")}
_MODULES = dict({"prime_rl.entrypoints.%s" % name.replace("-", "_"): role for name, role in _COMMANDS.items()}, **{
    "prime_rl.trainer.rl.train": ("trainer", "rl"), "prime_rl.trainer.sft.train": ("trainer", "sft"),
    "prime_rl.orchestrator.orchestrator": ("trainer", "rl"), "prime_rl.evals.evals": ("runner", "evals")})
_CONFIG_ENDS = (".toml", ".yaml", ".yml", ".json")


def classify(process: Process, read_cwd: Callable[[int], Optional[str]]) -> Optional[Role]:
    """The Role of a live process in a prime-rl run, or None. By title or by the entry point that it runs."""
    first = process.argv[0] if process.argv else process.comm
    match = _TITLE.match(first)
    if not match and not process.argv:
        match = _SHORT.match(process.comm)
    if match:
        known = next((role for name, role in _ROLES.items() if name.startswith(match.group(1)[:5])), None)
        return Role("prime", *known) if known else None
    if _WORKER_TITLE.match(first):
        return Role("prime", "worker", "")
    run = read_launched(process.argv)
    known = _MODULES.get(run.module) if run.language == "python" else None
    if known:
        return Role("prime", *known)
    known = _COMMANDS.get(os.path.basename(run.script)) if run.language in ("python", "command") else None
    if known and (_names_config(run) or _is_checkout_program(run, read_cwd(process.pid))):
        return Role("prime", *known)
    return None


def _names_config(run: Run) -> bool:
    """`@ x.toml` among the arguments: `rl` and `eval` are too short to believe, but nobody else's take these."""
    for word, following in zip(run.arguments, tuple(run.arguments[1:]) + ("",)):
        name = following if word == "@" else word[1:] if word.startswith("@") else ""
        if name.endswith(_CONFIG_ENDS):
            return True
    return False


def _is_checkout_program(run: Run, cwd: Optional[str]) -> bool:
    """Is this `<checkout>/.venv/bin/<command>`, or what `uv run` takes from there?"""
    if run.language == "command" and "/" not in run.script:
        return bool(cwd) and _is_checkout(cwd or "")
    folder = os.path.dirname(run.script)
    return os.path.basename(folder) == "bin" and _is_checkout(os.path.dirname(os.path.dirname(folder)))


def _is_checkout(root: str) -> bool:
    return os.path.isdir(os.path.join(root, "src", "prime_rl", "entrypoints"))


def is_rehearsal(process: Process, environ: Optional[Dict[str, str]]) -> bool:
    """Is it a dry run? Its own words say so."""
    words = process.argv
    return "--dry-run" in words or "--help" in words or "-h" in read_launched(words).arguments


def find_root(process: Process, read_cwd: Callable[[int], Optional[str]]) -> str:
    """The checkout that a launcher works in: its working directory, where that can be read."""
    return read_cwd(process.pid) or ""
