"""prime-rl: the directory that a run is written to. What lies in it, and what a launch would refuse, resume from or delete.

Reads and nothing else. Source: prime_rl/utils/pathing.py (validate_run_dir, clean_future_steps), August 2026; the newer
layout keeps attempts under configs/ and Slurm's files in launcher/.
"""
import fnmatch
import os
import re
from typing import Dict, List, NamedTuple, Optional, Tuple

# What the launcher itself writes before anything trains; all else is an earlier run's.
_LAUNCHER_FILES = ("configs", "launcher", "rl.sbatch", "sft.sbatch", "job_*.log")
_STEP = re.compile(r"step_(\d{1,12})\Z")
_ATTEMPT = re.compile(r"attempt_(\d{1,9})\Z")
_JOB_LOG = re.compile(r"job_(\d{1,12})\.log\Z")


class RunDir(NamedTuple):
    """What lies in a run directory. `checkpoints`: where its checkpoints are."""

    path: str
    artifacts: Tuple[str, ...]  # names of what an earlier run left
    checkpoints: str
    steps: Tuple[int, ...]  # of checkpoints, ascending
    attempts: Tuple[str, ...]  # names of log folders
    jobs: Tuple[str, ...]  # Slurm job ids, as log names tell


def read_run_dir(path: str, ckpt_dir: str) -> RunDir:
    """`path`: the run directory; `ckpt_dir`: the one that holds its checkpoints/, the same or another."""
    names = list_names(path)
    artifacts = tuple(name for name in names if not any(fnmatch.fnmatchcase(name, one) for one in _LAUNCHER_FILES))
    checkpoints = os.path.join(ckpt_dir, "checkpoints")
    logs = names + list_names(os.path.join(path, "launcher", "logs"))
    jobs = dict.fromkeys(match.group(1) for match in map(_JOB_LOG.match, logs) if match)
    return RunDir(path, artifacts, checkpoints, list_steps(checkpoints), list_attempts(path), tuple(jobs))


def list_names(path: str) -> List[str]:
    """The names in a directory, sorted; none where it is not there or can't be read."""
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


def list_steps(path: str) -> Tuple[int, ...]:
    """The N of all step_N in a directory, ascending."""
    return tuple(sorted(int(match.group(1)) for match in map(_STEP.match, list_names(path)) if match))


def list_attempts(run_dir: str) -> Tuple[str, ...]:
    """The attempt_N of a run's logs, in order."""
    names = [name for name in list_names(os.path.join(run_dir, "logs")) if _ATTEMPT.match(name)]
    return tuple(sorted(names, key=lambda name: int(name[8:])))


def find_new_attempt(run_dir: str, before: Tuple[str, ...]) -> str:
    """The newest log folder of a run that was not there before the launch, "" where there is none yet: `latest` points at
    an earlier one until the launcher has made its own (L17)."""
    new = [name for name in list_attempts(run_dir) if name not in before]
    return os.path.join(run_dir, "logs", new[-1]) if new else ""


def list_logs(attempt: str) -> Dict[str, str]:
    """The component logs in a log folder, by what they are: trainer, orchestrator, inference, evals, env train NAME."""
    logs = {name: os.path.join(attempt, name + ".log") for name in ("trainer", "orchestrator", "inference", "evals")}
    found = {name: path for name, path in logs.items() if os.path.isfile(path)}
    for split in ("train", "eval"):
        for name in list_names(os.path.join(attempt, "envs", split)):
            if name.endswith(".log"):
                found["env %s %s" % (split, name[:-4])] = os.path.join(attempt, "envs", split, name)
    return found


def find_past(run: RunDir, step: Optional[int]) -> Tuple[str, ...]:
    """What a resume deletes: rollouts and broadcasts past `step`; all of them where there is no checkpoint to resume from."""
    limit = -1 if step is None else step
    return tuple(os.path.join(run.path, folder, "step_%d" % one) for folder in ("rollouts", "broadcasts")
                 for one in list_steps(os.path.join(run.path, folder)) if one > limit)


def find_configs(run_dir: str) -> str:
    """The folder of the resolved configs that a launch or a dry run wrote: the newer layout's last attempt, or configs/."""
    base = os.path.join(run_dir, "configs")
    attempts = sorted((name for name in list_names(base) if _ATTEMPT.match(name)), key=lambda name: int(name[8:]))
    for folder in ["latest"] + attempts[::-1]:
        path = os.path.join(base, folder, "resolved")
        if os.path.isdir(path):
            return path
    return base
