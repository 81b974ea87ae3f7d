"""prime-rl: what came of a dry run. The verdict, the resolved config, the batch scripts, out of the scratch folder."""
import os
import re
from typing import Any, Dict, List, Tuple

from .. import child
from ..host import tables
from ..text.shell import strip_colour
from ..values import Outcome, Preflight, PreflightLine
from . import DryRunResult, prime_config, prime_rundir

# By kind; of an sft run with online evals on nodes of its own there are two.
_SCRIPTS = {"rl": ("rl.sbatch",), "sft": ("sft.sbatch", "eval.sbatch"), "inference": ("inference.sbatch",)}
# What a dry run is not given as it is written, and so what it writes does not tell.
_OWN = ("clean", "resume", "slurm", "output_dir", "run", "ckpt")
_DOUBT = "prime-rl's own code could not be asked for the whole config (%s): some values are unknown, and --clean and --resume " \
    "are unchecked"


def read_preflight(kind: str, result: DryRunResult, written: str, unread: str) -> Preflight:
    """prime-rl's verdict on its config. `written`: the scratch folder that stood for the run's directory; `unread`: why one of
    the files could not be read here, although prime-rl may."""
    if result.missing:
        words = "not run: %s can't be imported" % ", ".join(result.missing)
        return Preflight((), False, False, "", "", words)
    text = strip_colour(result.outcome.output.decode("utf-8", "replace"))
    # By what it leaves behind, not by its words: a log level hides these.
    is_done = os.path.isfile(os.path.join(result.scratch, "resolved.json"))
    if kind in ("rl", "sft") and not unread:
        is_done = any(name.endswith(".json") for name in prime_rundir.list_names(prime_rundir.find_configs(written)))
    elif kind == "inference" and not unread:
        is_done = is_done or "Dry run complete" in text
    is_whole = result.outcome.how == "ended" and result.outcome.code == 0 and is_done
    if is_whole and unread:
        return Preflight((), True, False, unread, "", "", "prime-rl reads this config, and here it can't be read, so it can't be "
                         "known what a dry run of it would touch", "Write it so that any parser of its format reads it.")
    doubts = []
    # The words that the dry run is not given are in the other one, which loads the config and no more: what it refuses, the
    # launch refuses. One that fails without the box of a config error tells of itself alone.
    for beside in result.beside if is_whole else ():
        words = strip_colour(beside.output.decode("utf-8", "replace"))
        if beside.how == "ended" and beside.code != 0 and "╭" in words:
            text, is_whole = words, False
        elif beside.how != "ended" or beside.code != 0:
            words = _DOUBT % child.describe(beside)
            doubts.append(PreflightLine("WARN", words))
    if is_whole:
        words = "its config loads" + ("; evals has no dry run" if kind == "evals" else "")
        return Preflight((PreflightLine("OK", words),) + tuple(doubts), False, False, "", words)
    lines = [line.rstrip() for line in text.split("\n") if line.strip()]
    box = next((number for number, line in enumerate(lines) if line.startswith("╭")), -1)
    cause, cure = _explain(text, result.outcome)
    return Preflight((), True, False, "\n".join(lines[box:][:60] if box >= 0 else lines[-20:]), "", "", cause, cure)


def _explain(text: str, outcome: Outcome) -> Tuple[str, str]:
    """What is known of last words like these, and what to do."""
    if re.search(r"Failed to (fetch|download)|error sending request|dns error|Could not connect", text, re.I):
        return "uv could not fetch packages", "Check without uv: --runner .venv/bin/rl (or the like); the environment must be " \
            "whole then (uv sync --all-extras, where there is a network)."
    if "lockfile" in text and "needs to be updated" in text:
        return "the lock file is out of date", "Where there is a network: uv lock && uv sync --all-extras"
    if "ModuleNotFoundError" in text or "ImportError" in text:
        return "a module is missing in the environment", "uv sync --all-extras, with --package prime-rl --package ENV for an " \
            "environment of its own."
    if outcome.how == "timeout":
        return "it took longer than its limit (a slow `uv` that resolves or fetches?)", "A higher --dry-run-timeout, or " \
            "without uv: --runner .venv/bin/rl (or the like)."
    return "", "Mend it, and check again: its last words name the option." if "╭" in text else "See its last words."


def _read_json(path: str) -> Dict[str, Any]:
    return tables.read_tables([path])[path].data or {}


def read_resolved(scratch: str, written: str, raw: prime_config.Raw) -> Dict[str, Any]:
    """The whole resolved config; where prime-rl's code could not be asked, what the dry run wrote, over what is written in
    the configs."""
    data = _read_json(os.path.join(scratch, "resolved.json"))
    if data:
        return data
    folder = prime_rundir.find_configs(written)
    for name in ("rl", "sft", "inference"):
        whole = _read_json(os.path.join(folder, name + ".json"))
        if whole and (name != "inference" or not os.path.exists(os.path.join(folder, "trainer.json"))):
            # The dry run's own directories are scratch; these stand as they are written.
            known = {name: one for name, one in whole.items() if name not in ("output_dir", "run", "clean", "resume", "ckpt")}
            ckpt = {name: one for name, one in (whole.get("ckpt") or {}).items() if name != "output_dir"} \
                if isinstance(whole.get("ckpt"), dict) else whole.get("ckpt")
            own: Dict[str, Any] = {name: raw.data[name] for name in _OWN if name in raw.data}
            return tables.merge([known, {"ckpt": ckpt}, own])
    parts = {name: _read_json(os.path.join(folder, name + ".json")) for name in ("trainer", "orchestrator", "inference")}
    return tables.merge([raw.data, {name: part for name, part in parts.items() if part}])


def read_scripts(kind: str, written: str, scratch: str) -> List[Tuple[str, str]]:
    """(path below the run's directory, text) of each batch script that the dry run wrote, none for a local run. A NUL stands
    for the scratch folder in the text."""
    found = []
    for name in _SCRIPTS.get(kind, ()):
        for shown in (os.path.join("launcher", name), name):
            try:
                with open(os.path.join(written, shown), "rb") as file:
                    found.append((shown, file.read(1 << 20).decode("utf-8", "replace").replace(scratch, "\0")))
                break
            except OSError:
                continue
    return found
