"""What Slurm says of a job before it is handed in: the partition's limits, and whether and when it could start. Asked by
`sbatch --test-only`, scontrol and sinfo, each with a time limit; nothing is handed in.

Formats as Slurm 22.05 prints them, `--test-only` also as the older ones do.
"""
import os
import re
import tempfile
from typing import Dict, List, Mapping, NamedTuple, Optional, Tuple

from .. import child
from ..values import Outcome

# sbatch: Job 3 to start at 2026-11-30T06:45:01 using 2 processors on nodes n[1-2] in partition gpu    (older: … on n[1-2])
_STARTS = re.compile(r"Job \d+ to start at (?P<start>\S+) using \d+ processors on (?:nodes )?(?P<nodes>\S+)"
                     r"(?: in partition (?P<partition>\S+))?")
# allocation failure: Invalid partition name specified     sbatch: error: Batch job submission failed: …     sbatch: error: …
_FAILURES = (re.compile(r"allocation failure: (.+)"),
             re.compile(r"(?:sbatch: )?(?:error|fatal): (?:Batch job submission failed: )?(.+)"))
_ADVICE = re.compile(r"\s*Try .*--help")
# 1-02:03:04   2-12   12:30   90   UNLIMITED
_DAYS = re.compile(r"(?:(?P<days>\d{1,6})-)?(?P<clock>\d{1,9}(?::\d{1,2}){0,2})\Z")
# Nodes that take no job now, whatever waits. Source: sinfo(1), NODE STATE CODES; with a flag behind it: down*, drained$.
_UNUSABLE = ("down", "drain", "drained", "draining", "fail", "failing", "error", "maint", "unknown", "no_respond", "reboot",
             "inval", "future", "blocked")


class Partition(NamedTuple):
    """A partition's limits in Slurm's own words; "" for none, and what was not told."""

    name: str
    state: str  # UP, DOWN (takes jobs, starts none), DRAIN (starts those that it has), INACTIVE (neither)
    max_time: str  # UNLIMITED, 2-00:00:00
    default_time: str
    max_nodes: str  # UNLIMITED, 4
    total_nodes: str
    accounts: str  # those that it takes, ALL
    qos: str
    groups: str
    is_default: bool


class Forecast(NamedTuple):
    """What `sbatch --test-only` said. `start`: as Slurm writes it, in this machine's time; `failure`: its words, else ""."""

    start: str
    nodes: str
    partition: str
    failure: str


class Told(NamedTuple):
    """All that was told of a script. `unusable`: (state, nodes) of a partition's nodes that take no job now; `reason`: what could
    not be told, in words."""

    test: Optional[Forecast]
    partitions: Tuple[Partition, ...]
    unusable: Dict[str, Tuple[Tuple[str, int], ...]]
    enforced: bool  # sbatch itself refuses what is over a partition's limit (EnforcePartLimits)
    reason: str


def ask_submission(script: str, env: Mapping[str, str], folder: str, timeout_seconds: float) -> Told:
    """What would become of this batch script, handed in from `folder` with this environment: three programs side by side, each
    for `timeout_seconds` at most."""
    environ = {name: value for name, value in env.items() if not name.startswith("SINFO_") and name not in (
        "SBATCH_WAIT", "SBATCH_DEBUG")}
    argvs = (["scontrol", "show", "partition", "-o"], ["sinfo", "-h", "-N", "-o", "%R|%T|%N"], ["scontrol", "show", "config"])
    with tempfile.TemporaryFile() as file:
        file.write(script.encode("utf-8", "surrogateescape"))
        file.seek(0)
        started = [child.start(["sbatch", "--test-only"], env=environ, cwd=folder, stdin=file.fileno(), merge=True)]
    outcomes: List[Outcome] = []
    try:
        started += [child.start(argv, env=environ) for argv in argvs]
        for one in started:
            outcomes.append(child.finish(one, timeout_seconds))
    except BaseException:
        for one in started[len(outcomes):]:
            if one.popen is not None:
                child.end_group(one.popen)
        raise
    tested, shown, nodes, config = outcomes
    failures = ["%s: %s" % (one.argv[0], child.describe(one)) for one in (tested, shown)
                if one.how != "ended" or one.code != 0 and one is not tested]
    return Told(parse_test(_decode(tested)) if tested.how == "ended" else None, parse_partitions(_decode(shown)),
                parse_nodes(_decode(nodes)), _is_enforced(_decode(config)), "; ".join(failures))


def parse_test(text: str) -> Forecast:
    """A Forecast out of what `sbatch --test-only` printed."""
    match = _STARTS.search(text)
    if match:
        return Forecast(match.group("start"), match.group("nodes"), match.group("partition") or "", "")
    for pattern in _FAILURES:
        found = pattern.findall(text)
        if found:
            return Forecast("", "", "", str(found[-1]).strip())
    # sbatch: unrecognized option '--bogus'       Try "sbatch --help" for more information
    lines = [line.strip() for line in text.split("\n") if line.strip() and not _ADVICE.match(line)]
    return Forecast("", "", "", re.sub(r"^sbatch: ", "", lines[-1]) if lines else "")


def parse_partitions(text: str) -> Tuple[Partition, ...]:
    """The Partitions of `scontrol show partition -o`."""
    found = []
    for line in text.split("\n"):
        words = dict(word.partition("=")[::2] for word in line.split())
        if not words.get("PartitionName"):
            continue

        def tell(name: str, words: Dict[str, str] = words) -> str:
            return "" if words.get(name, "") in ("NONE", "N/A", "(null)") else words.get(name, "")
        found.append(Partition(words["PartitionName"], tell("State"), tell("MaxTime"), tell("DefaultTime"), tell("MaxNodes"),
                               tell("TotalNodes"), tell("AllowAccounts"), tell("AllowQos"), tell("AllowGroups"),
                               words.get("Default") == "YES"))
    return tuple(found)


def parse_nodes(text: str) -> Dict[str, Tuple[Tuple[str, int], ...]]:
    """{partition: ((state, how many nodes), …)} of those that take no job now, out of `sinfo -N -o "%R|%T|%N"`."""
    counts: Dict[str, Dict[str, int]] = {}
    for line in text.split("\n"):
        fields = line.strip().split("|")
        state = re.sub(r"[^a-z_]", "", fields[1].lower()) if len(fields) == 3 else ""
        if state in _UNUSABLE:
            counts.setdefault(fields[0], {})[state] = counts.setdefault(fields[0], {}).get(state, 0) + 1
    return {name: tuple(sorted(states.items())) for name, states in counts.items()}


def parse_time(text: str) -> Optional[float]:
    """Seconds of a time limit as sbatch and Slurm write it: minutes, minutes:seconds, hours:minutes:seconds, days-hours[:…]. None
    for none, UNLIMITED, and what is no time."""
    match = _DAYS.match(text.strip())
    if not match:
        return None
    parts = [int(word) for word in match.group("clock").split(":")]
    if match.group("days") is not None:
        hours, minutes, seconds = (parts + [0, 0])[:3]
        return float(int(match.group("days")) * 86400 + hours * 3600 + minutes * 60 + seconds)
    if len(parts) == 3:
        return float(parts[0] * 3600 + parts[1] * 60 + parts[2])
    return float(parts[0] * 60 + (parts[1] if len(parts) == 2 else 0))


def parse_node_count(text: str) -> Optional[int]:
    """The least number of nodes of `--nodes`: 2, 2-4. None where it does not tell."""
    word = text.split(",")[0].partition("-")[0].strip()
    return int(word) if word.isdecimal() and len(word) < 9 else None


def count_gpus(options: Mapping[str, str], nodes: int) -> Optional[Tuple[str, int]]:
    """(the option as it stands, GPUs of a node) of what a job with one task a node asks for by number; None where it asks for
    none, in a way of the site's own, or by socket."""
    for name in ("gpus-per-node", "gpus-per-task", "gres", "gpus"):
        counts = [_count_gpu(word, name == "gres") for word in options.get(name, "").split(",")]
        known = [count for count in counts if count is not None]
        if known:
            total = sum(known)
            return "--%s=%s" % (name, options[name]), total if name != "gpus" else total // max(1, nodes)
    return None


def _count_gpu(word: str, is_gres: bool) -> Optional[int]:
    # 4   h100:4   and of --gres: gpu   gpu:4   gpu:h100:4(S:0-1)
    parts = re.sub(r"\(.*", "", word.strip()).split(":")
    if is_gres:
        if parts[0] not in ("gpu", "gres/gpu"):
            return None
        parts = parts[1:] or ["1"]
    if parts[-1].isdecimal() and len(parts[-1]) < 7:
        return int(parts[-1])
    return 1 if len(parts) == 1 and parts[0] and re.match(r"[A-Za-z][\w.-]*\Z", parts[0]) else None


def is_of_controller(text: str) -> bool:
    """Does this failure tell of the controller, and not of the job?"""
    return any(words in text for words in (
        "Unable to contact slurm controller", "Socket timed out", "Zero Bytes were transmitted", "configuration source",
        "Protocol authentication error", "Slurm temporarily unable", "Connection refused", "Unable to establish"))


def _is_enforced(text: str) -> bool:
    # EnforcePartLimits       = NO
    match = re.search(r"^EnforcePartLimits\s*=\s*(\S+)", text, re.M)
    return bool(match) and match.group(1).upper() not in ("NO", "0") if match else False


def _decode(outcome: Outcome) -> str:
    return outcome.output.decode("utf-8", "replace") if outcome.how in ("ended", "killed") else ""


def find_path(environ: Mapping[str, str], first: str) -> str:
    """The PATH of a launch that needs the folder `first` in front, "" for none."""
    path = environ.get("PATH", os.defpath)
    return first + os.pathsep + path if first else path
