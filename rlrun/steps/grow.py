"""A run that is watched: its evidence is read once, and then only what was appended is. Also: is it still the same run?"""
import functools
from typing import Dict, List, NamedTuple, Tuple

from ..health import growth, lines, signatures
from ..stacks import load_health
from ..vitals import Target, Track
from . import find_files, find_run, gather, records

_TEXT_BYTES = 1 << 18
_ROUNDS = 64
_LEAP_BYTES = 1 << 24


class Growing(NamedTuple):
    """The evidence of a run, and how far each of its logs was read."""

    target: Target
    evidence: gather.Evidence
    follows: Dict[str, growth.Follow]
    limit_points: int


def start(target: Target, limit_points: int = gather.REPORT_POINTS) -> Growing:
    """Reads a run's logs from their ends, as `status` does."""
    evidence = gather.read_evidence(target, limit_points)
    follows = {name: growth.start_follow(log.path, growth.find_last_end(log.path, log.size))
               for name, log in evidence.files.items() if _is_needed(name, evidence)}
    return Growing(target, evidence, follows, limit_points)


def _is_needed(name: str, evidence: gather.Evidence) -> bool:
    return name in evidence.texts or name in evidence.tracks


def refresh(target: Target) -> Target:
    """The same run as it is now: its record or its process read anew, logs that appeared since among them."""
    scene = find_run.read_scene(target.root)
    if target.record:
        record = records.read_record(str(target.record["record"]))
        return find_run.from_record(record, scene) if record else target
    if target.state == "live":
        tops = {pid for _, pid in target.pids}
        for run in scene.runs:
            if run.top.pid in tops or tops & set(run.pids):
                found = find_run.from_live(run, scene, target)
                if abs((found.started_seconds or 0) - (target.started_seconds or 0)) < 5:
                    return found._replace(logs=dict(target.logs, **found.logs))
        return target._replace(state="over", pids=())
    files = gather.stat_logs(target)
    changed = max((one.modified_seconds for one in files.values()), default=0.0)
    grows = scene.now_seconds - changed < find_files.GROWING_SECONDS
    return target._replace(state="elsewhere" if grows and target.state == "unknown" else target.state)


def update(growing: Growing, target: Target) -> Growing:
    """Reads what was appended to the logs since; a log that is new, was truncated or replaced is read from its end."""
    health = load_health(target.stack)
    before = growing.evidence
    files = gather.stat_logs(target)
    places = {name: log.path for name, log in before.files.items()}
    if {name: log.path for name, log in files.items()} != places or target.state != growing.target.state:
        return start(target, growing.limit_points)  # a log has come, or another one stands for it now
    tracks, texts, follows = dict(before.tracks), dict(before.texts), dict(growing.follows)
    sources = [(source, log.path) for source, log in gather.list_sources(health, files).items()]  # two may share a log
    wanted = gather.list_wanted(health)
    for name, follow in growing.follows.items():
        if name in files and files[name].size - follow.offset > _LEAP_BYTES:
            return start(target, growing.limit_points)  # as much as a first look reads: from the end it is quicker
        for _ in range(_ROUNDS):
            grown = growth.read_grown(follow)
            if grown.event in ("truncated", "replaced"):
                return start(target, growing.limit_points)
            is_done = grown.follow.offset == follow.offset
            follow = grown.follow
            for source in [one for one, path in sources if path == follow.path]:
                parse = functools.partial(health.parse_step, source, wanted=wanted)
                points = growth.parse_grown(grown.lines, health.STEP_MARKS[source], parse)
                tracks[source] = lines.extend_track(tracks.get(source, Track(follow.path, (), False)), points,
                                                    growing.limit_points)
            if grown.lines and name in texts:
                texts[name] = _append(texts[name], list(grown.lines))
            if is_done:
                break
        follows[name] = follow
    outline = before.outline
    if outline.total is None:
        outline = gather.read_outline(target, files)
    return Growing(target, gather.Evidence(outline, tracks, texts, files), follows, growing.limit_points)


def _append(text: signatures.Text, came: List[Tuple[int, bytes]]) -> signatures.Text:
    data = text.data[:text.data.rfind(b"\n") + 1] + b"".join(line + b"\n" for _, line in came)
    cut = data.find(b"\n", len(data) - _TEXT_BYTES) + 1 if len(data) > _TEXT_BYTES else 0
    first_line = None if text.first_line is None else text.first_line + data.count(b"\n", 0, cut)
    # By the bytes of the file, not of what is kept of it: NULs were dropped.
    offset = came[-1][0] + len(came[-1][1]) + 1 - (len(data) - cut)
    return text._replace(data=data[cut:], offset=max(0, offset), first_line=first_line)
