"""What the logs of a run hold, read from their ends: step lines, the last lines, and what the run was set up to do. Judges
nothing, and reads no log whole."""
import functools
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Set, Tuple

from ..health import growth, lines, signatures
from ..host.files import read_head
from ..stacks import load_health
from ..vitals import Outline, Target, Track

# So many step lines are read for the report; for a page with curves, that many.
REPORT_POINTS = 64
PAGE_POINTS = 2000
_PAGE_BYTES = 1 << 27
_HEAD_BYTES = 1 << 18
# Of each log's end, for what lines tell; of one that ended more, for its first error may lie before much noise.
_TEXT_BYTES = 1 << 18
_ENDED_BYTES = 1 << 21
_OTHER_BYTES = 1 << 19  # of the other logs, of which there may be many
_LOGS = 24
_FIRST_BYTES = 1 << 20


class Evidence(NamedTuple):
    """What was read of a run's logs; a watch keeps it and adds what was appended."""

    outline: Outline
    tracks: Dict[str, Track]
    texts: Dict[str, signatures.Text]
    files: Dict[str, lines.LogFile]


def list_wanted(health: Any) -> Tuple[str, ...]:
    """The keys of all metrics that a stack's tables speak of; a parser need not keep others."""
    keys: Set[str] = {metric.key for metric in health.METRICS}
    for table in (health.SIGNATURES, health.GATES):
        keys.update(rule.key for one in table for rule in one.rules if rule.test != "lines")
    return tuple(sorted(keys))


def tell_target(target: Target) -> Dict[str, Any]:
    """What a stack's functions take of a run."""
    record = target.record or {}
    main = next(iter(target.logs.values()), "")
    return {"train_log": main, "vllm_log": target.logs.get("vllm", ""), "launch_log": target.launch_log,
            "run_dir": target.run_dir, "before": tuple(record.get("before") or ()), "root": target.root, "host": target.host,
            "logs": dict(target.logs)}


def read_evidence(target: Target, limit_points: int = REPORT_POINTS) -> Evidence:
    """Reads a run's logs from their ends, `limit_points` step lines of each."""
    health = load_health(target.stack)
    files = stat_logs(target)
    tracks = {source: read_one_track(health, source, log, limit_points)
              for source, log in list_sources(health, files).items()}
    size = _ENDED_BYTES if target.state == "over" else _TEXT_BYTES
    texts: Dict[str, signatures.Text] = {}
    seen: Set[Tuple[int, int]] = set()
    for name in _pick_logs(files, health.SOURCES):
        if files[name].identity not in seen:
            seen.add(files[name].identity)
            limit = size if name in health.SOURCES or name == "launch" else min(size, _OTHER_BYTES)
            data, offset, line = lines.read_end(files[name].path, limit, files[name].size)
            texts[name] = signatures.Text(name, files[name].path, data, offset, line)
    return Evidence(read_outline(target, files), tracks, texts, files)


def stat_logs(target: Target) -> Dict[str, lines.LogFile]:
    """The logs of a run that are there, by name."""
    paths = dict(target.logs)
    if target.launch_log:
        paths.setdefault("launch", target.launch_log)
    found = ((name, lines.stat_log(path)) for name, path in paths.items())
    return {name: log for name, log in found if log}


def list_sources(health: Any, files: Dict[str, lines.LogFile]) -> Dict[str, lines.LogFile]:
    """The logs that tell steps; the launch log holds what the main one does, where that is not there."""
    found = {source: files[source] for source in health.SOURCES if source in files}
    if not found and "launch" in files:
        found[health.SOURCES[0]] = files["launch"]
    return found


def read_one_track(health: Any, source: str, log: lines.LogFile, limit_points: int) -> Track:
    """The step lines of one log, up to the size that it had when it was looked at."""
    parse = functools.partial(health.parse_step, source, wanted=list_wanted(health))
    if limit_points > REPORT_POINTS:
        return lines.read_track(log.path, health.STEP_MARKS[source], parse, limit_points, log.size, _PAGE_BYTES, _PAGE_BYTES)
    return lines.read_track(log.path, health.STEP_MARKS[source], parse, limit_points, log.size)


def mask(evidence: Evidence, secrets: Tuple[str, ...]) -> Evidence:
    """The same without these values in the ends of its logs: as many stars, so that each place stays where it is. Before anything
    is quoted, for half of a secret is one too."""
    hidden = [secret.encode("utf-8", "surrogateescape") for secret in secrets]
    texts = {}
    for name, text in evidence.texts.items():
        data = text.data
        for secret in hidden:
            data = data.replace(secret, b"*" * len(secret))
        texts[name] = text._replace(data=data) if hidden else text
    return evidence._replace(texts=texts)


def read_outline(target: Target, files: Dict[str, lines.LogFile]) -> Outline:
    """What the run was set up to do, out of the beginning of its launch log, or of its main one."""
    head = read_head(target.launch_log, _HEAD_BYTES) if target.launch_log else b""
    if not head and files:
        head = read_head(next(iter(files.values())).path, _HEAD_BYTES)
    outline: Outline = load_health(target.stack).read_outline(target.kind, head.decode("utf-8", "replace"), tell_target(target))
    return outline


def _pick_logs(files: Dict[str, lines.LogFile], sources: Iterable[str]) -> List[str]:
    """The logs whose ends are read: those that tell steps and the launch, then the last written ones."""
    first = [name for name in tuple(sources) + ("launch",) if name in files]
    others = sorted((name for name in files if name not in first), key=lambda name: -files[name].modified_seconds)
    return first + others[:max(0, _LOGS - len(first))]


def read_first_step(health: Any, source: str, path: str) -> Optional[int]:
    """The last step that the first megabyte of a log tells, for a log in which none stands near the end."""
    head = read_head(path, _FIRST_BYTES)
    points = growth.parse_grown(tuple((0, line) for line in head.split(b"\n")[:-1]), health.STEP_MARKS[source],
                               functools.partial(health.parse_step, source, wanted=()))
    return points[-1].step if points else None
