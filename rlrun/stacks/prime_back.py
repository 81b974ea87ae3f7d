"""prime-rl after the start: what its launcher says, what lies in the run's directory, which processes are there."""
import json
import os
import re
import shlex
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ..host import procs, slurm
from ..text.shell import strip_colour
from ..values import Process
from . import prime_export, prime_rundir
from .prime_live import name_tree

# 20:13:58   ERROR Trainer failed with exit code 1
_ERROR = re.compile(r"^\S+\s+(?:ERROR|CRITICAL)\s+(.+)$")
# Error: Train env server math failed with exit code 1
_FAILED = re.compile(r"(?:Error: )?(.+) failed with exit code -?\d+$")
# Dashboard · http://host:7788
_DASHBOARD = re.compile(r"Dashboard\s+\S\s+(https?://\S+)")
_DAEMON = "~/.cache/prime-rl/dashboard/daemon.json"
# 12:00:01 SUCCESS Step 12 |   3.21s | Loss 0.0123; also 200ms, 3m 4s, 2h, 1d 4h (format_time in utils/logger.py, utils/utils.py)
_STEP_LINE = re.compile(r"\bStep\s+\d+\s+\|\s*((?:\d+(?:\.\d+)?(?:ms|[dhms])[ ]?)+)\s*(?:\||$)", re.M)
_TIME = re.compile(r"(\d+(?:\.\d+)?)(ms|[dhms])")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
# What must be there before a run counts as up.
_PARTS = {"rl": ("orchestrator", "trainer"), "sft": ("trainer",), "inference": ("inference",), "evals": ("evals",)}
_MAX_ERRORS = 12


def read_back(text: str, kind: str, run_dir: str, before: Sequence[str], tree: Sequence[Process]) -> Dict[str, Any]:
    """What launch log, run directory and processes tell; see the agreement."""
    plain = strip_colour(text)
    rows: List[Tuple[str, str]] = []
    facts: Dict[str, Any] = {}
    jobs = slurm.parse_submitted(plain)
    attempt = prime_rundir.find_new_attempt(run_dir, tuple(before)) if run_dir and not jobs else ""
    if run_dir and not jobs and kind in ("rl", "sft"):
        logs = prime_rundir.list_logs(attempt) if attempt else {}
        rows += [("logs", attempt or "no log folder yet")] if attempt or tree else []
        rows += [(name + " log", path) for name, path in logs.items() if not name.startswith("env")]
        facts.update(attempt=os.path.basename(attempt) or None, logs=logs)
    labels: Dict[str, List[int]] = {}
    for label, pid in name_tree(tree, procs.read_cwd):
        labels.setdefault(label, []).append(pid)
    if labels:
        rows.append(("processes", "  ".join("%s=%s" % (label, ",".join(map(str, pids[:8])) + ("…" if len(pids) > 8 else ""))
                                             for label, pids in labels.items())))
    facts["pids"] = labels
    facts["groups"] = _find_groups(tree, labels)
    if kind in _PARTS:
        facts["is_up"] = all(part in labels for part in _PARTS[kind])
    elif kind == prime_export.KIND:
        facts["is_up"] = bool(tree)
    url = _find_dashboard(plain, kind)
    if url:
        is_told = _DASHBOARD.search(plain) is not None
        rows.append(("dashboard", url if is_told else "%s  (your daemon's; the run itself has told none)" % url))
        facts["dashboard"] = url
    if jobs:
        more, shown = _describe_jobs(jobs, run_dir, bool(tree))
        rows += shown
        facts.update(more)
    errors = [match.group(1).strip() for match in map(_ERROR.match, plain.split("\n")) if match]
    facts["failed_log"] = _find_failed_log(errors, facts.get("logs", {}))
    return {"experiment": "", "train_log": facts.get("logs", {}).get("trainer", ""), "vllm_log": facts.get("logs", {}).get(
        "inference", ""), "trials": "", "verdict": "", "fatal": errors[:_MAX_ERRORS], "rows": rows, "facts": facts}


def _find_groups(tree: Sequence[Process], labels: Dict[str, List[int]]) -> List[int]:
    """The groups that launcher, server or evals lead below the runner: a `uv` that gives its child a group of its own, and
    ends without a word to it, would leave it behind (S5)."""
    leaders = {pid for label in ("launcher", "inference", "evals") for pid in labels.get(label, [])}
    above = {process.pid for process in tree}
    return [one.pid for one in tree if one.pid in leaders and one.pgid == one.pid and one.ppid in above]


def _find_failed_log(errors: Sequence[str], logs: Dict[str, str]) -> Optional[str]:
    """The log of the part that, as the launcher says, has failed: its last words are there, and not in the launch log."""
    failed = [match.group(1).lower() for match in map(_FAILED.match, errors) if match]
    for name, path in logs.items():
        split, _, rest = name[4:].partition(" ") if name.startswith("env ") else ("", "", "")
        if ("%s env server %s" % (split, rest) if split else name).lower() in failed:
            return path
    return None


def _find_dashboard(text: str, kind: str) -> str:
    """The dashboard's address: the banner's, else that of the user's daemon, where one lives."""
    match = _DASHBOARD.search(text)
    if match or kind not in ("rl", "sft"):
        return match.group(1) if match else ""
    try:
        with open(os.path.expanduser(_DAEMON), "rb") as file:
            told = json.loads(file.read(1 << 16).decode("utf-8", "replace"))
    except (OSError, ValueError):
        return ""
    url, pid = (told.get("url"), told.get("pid")) if isinstance(told, dict) else (None, None)
    if isinstance(pid, int) and procs.read_identity(pid) is None:
        return ""
    return url if isinstance(url, str) else ""


def _describe_jobs(ids: Tuple[str, ...], run_dir: str, is_handing_in: bool) -> Tuple[Dict[str, Any], List[Tuple[str, str]]]:
    """What Slurm tells of the jobs. Not while the launcher lives: this is asked many times a second."""
    environ = dict(os.environ)
    found, reason = slurm.read_jobs(ids, environ) if not is_handing_in else ({}, "it is still being handed in")
    rows: List[Tuple[str, str]] = []
    states: Dict[str, Any] = {}
    logs: Dict[str, Any] = {}
    for one in ids:
        job = found.get(one)
        states[one] = job.state if job else None
        words = "%s %s" % (one, job.state if job else "state unknown%s" % (": " + reason if reason else ""))
        reason_words = " (%s)" % job.reason if job and job.reason not in ("", "None") else ""
        rows.append(("job", words + reason_words))
        # Who does not know the job is not asked once more: it may have taken its whole time for it.
        path = find_job_log(run_dir, one) or (slurm.read_output_path(one, environ) if job else "") or guess_job_log(run_dir, one)
        logs[one] = path or None
        rows.append(("job log", path + ("" if os.path.isfile(path) else "  (not there before the job starts)")
                     if path else "unknown"))
    return {"jobs": list(ids), "job_states": states, "job_logs": logs}, rows


def find_job_log(run_dir: str, job: str) -> str:
    """The log of a job where it is there, in either layout."""
    for folder in (os.path.join(run_dir, "launcher", "logs"), run_dir):
        path = os.path.join(folder, "job_%s.log" % job)
        if run_dir and os.path.isfile(path):
            return path
    return ""


def guess_job_log(run_dir: str, job: str) -> str:
    """Where a job will log, by the batch script that lies in the run's directory; "" where none tells. A script may name it
    from where it was submitted: then by the end that both paths have in common."""
    for folder in (os.path.join(run_dir, "launcher"), run_dir) if run_dir else ():
        for name in prime_rundir.list_names(folder):
            if name.endswith(".sbatch"):
                try:
                    with open(os.path.join(folder, name), "rb") as file:
                        asked = slurm.read_directives(file.read(1 << 16).decode("utf-8", "replace"), dict(os.environ))
                except OSError:
                    continue
                path = slurm.expand_output(asked.get("output", ""), job, asked.get("job-name", ""))
                wheres = [place for place in (folder, os.path.join(folder, "logs"))
                          if ("%s/" % place).endswith("/%s/" % os.path.dirname(path))]
                if os.path.isabs(path) or wheres:
                    return path if os.path.isabs(path) else os.path.join(wheres[0], os.path.basename(path))
    return ""


def describe_server(url: str, models: Sequence[str]) -> List[str]:
    """The lines that try a server: the seed's smoke checks, with the real host, port and model."""
    body = json.dumps({"model": models[0] if models else "MODEL", "max_tokens": 50,
                       "messages": [{"role": "user", "content": "Hi"}]}, sort_keys=True)
    return ["curl %s/health" % url, "curl %s/v1/models" % url,
            "curl %s/v1/chat/completions -H 'Content-Type: application/json' -d %s" % (url, shlex.quote(body))]


def explain_end(text: str) -> str:
    """A word on an end that the log does not explain."""
    if "FileExistsError" in text:
        return "The run directory was used meanwhile: rlrun explain run:exists"
    return ""


def read_step_seconds(text: str) -> List[float]:
    """The seconds of each step that a trainer's or orchestrator's log tells of, in order, as exactly as it tells them: 1d 4h
    holds no minutes."""
    seconds = [sum(float(number) * _UNITS[unit] for number, unit in _TIME.findall(match.group(1)))
               for match in _STEP_LINE.finditer(strip_colour(text))]
    return [value for value in seconds if 0 < value < 1e7]
