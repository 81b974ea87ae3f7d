"""Lego-RL: what its runners print, taken apart. Pure: text in, values out.

The formats were read off the public repository's scripts/{train,eval,infer} (August 2026).
"""
import re
from typing import Dict, List, NamedTuple, Tuple

from ..values import PreflightLine

# ESC[33m
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# [python] /x/.venv/bin/python3 (Python 3.11.7)
_HEAD = re.compile(r"^\[(config|python|verl|vllm|harbor)\]\s+(.*)$")
# === Launching Harbor verl training ===
_LAUNCHING = re.compile(r"^=== Launching .* ===$")
# train log:     /x/logs/e.log
_SUMMARY = re.compile(r"^([A-Za-z][A-Za-z0-9_/ -]{0,18}):[ ]+(.*)$")
_ENVIRONMENT = "=== Final Environment ==="
# NAME=value
_ASSIGNED = re.compile(r"^([A-Za-z_][A-Za-z0-9_]*)=(.*)$")
# ═══════ run configuration (train) ═══════
_BLOCK_HEAD = re.compile(r"^═+ run configuration \((\w+)\) ═+$")
_BLOCK_END = re.compile(r"^═+$")
# two spaces, a name padded to 12, a space, a value; an empty name continues the row above
_ROW = re.compile(r"^  (.{12}) (.*)$")
# ✗ FATAL  model looks like …
_VERDICT_LINE = re.compile(r"^\s*(?:✓|⚠|✗|⊘) (OK|WARN|FATAL|SKIP)\s+(.*)$")
# [preflight] all fatal checks passed (1 WARN).
_PREFLIGHT = re.compile(r"^\[preflight\] .*$")
# === Launch Command ===
_COMMAND = re.compile(r"^=== (\w+) Command ===$")
_RULE = re.compile(r"^─{3,}.*─{3,}$")
# [FATAL] only 1/2 nodes joined the ray cluster after 300s.
_FATAL_LINE = re.compile(r"^\s*(?:✗ FATAL\s|\[FATAL\]).*$")


class Output(NamedTuple):
    """A runner's output. Dictionaries hold the last word on a name; a name that came twice with two values is left out."""

    heads: Dict[str, str]
    summary: Dict[str, str]
    summary_text: str
    environment: Dict[str, str]
    block: str
    rows: Dict[str, Tuple[str, ...]]
    preflight: Tuple[PreflightLine, ...]
    preflight_summary: str
    commands: Dict[str, str]
    fatal: Tuple[str, ...]
    says_not_launching: bool
    lines: Tuple[str, ...]


def parse_output(text: str) -> Output:
    """Takes apart what a runner printed, dry or for real; whatever is missing stays empty."""
    lines = _COLOUR.sub("", text).replace("\r\n", "\n").split("\n")
    heads: Dict[str, str] = {}
    commands: Dict[str, str] = {}
    preflight: List[PreflightLine] = []
    fatal: List[str] = []
    closing = ""
    environment_at = _find(lines, lambda line: line == _ENVIRONMENT)
    block_at = _find(lines, _BLOCK_HEAD.match)
    after = _end_of_environment(lines, environment_at)
    for number, line in enumerate(lines):
        if 0 <= environment_at <= number < after:
            continue  # values of other people's variables are not the runner's words
        match = _HEAD.match(line)
        if match:
            heads.setdefault(match.group(1), match.group(2))
        match = _VERDICT_LINE.match(line)
        if match:
            preflight.append(PreflightLine(match.group(1), match.group(2)))
        if _PREFLIGHT.match(line):
            closing = line
        if _FATAL_LINE.match(line):
            fatal.append(line.strip())
        match = _COMMAND.match(line)
        if match and number + 1 < len(lines):
            commands[match.group(1)] = lines[number + 1].strip()
    summary, summary_text = _read_summary(lines, environment_at if environment_at >= 0 else len(lines))
    block, rows = _read_block(lines, block_at)
    return Output(heads, summary, summary_text, _read_environment(lines, environment_at, after), block, rows,
                  tuple(preflight), closing, commands, tuple(fatal),
                  "[dry-run] not launching" in lines or any(line.startswith("[structure-only]") for line in lines),
                  tuple(lines))


def _find(lines, is_it):  # type: ignore
    return next((number for number, line in enumerate(lines) if is_it(line)), -1)


def _end_of_environment(lines: List[str], start: int) -> int:
    if start < 0:
        return -1
    for number in range(start + 1, len(lines)):
        line = lines[number]
        if _BLOCK_HEAD.match(line) or _COMMAND.match(line) or (_RULE.match(line) and "preflight" in line):
            return number
    return len(lines)


def _read_environment(lines: List[str], start: int, end: int) -> Dict[str, str]:
    """The names and values. The runner sorts by line, so the second line of a value may stand anywhere, even look like
    another name's: a name that comes twice with two values is unknown."""
    found: Dict[str, str] = {}
    doubtful = set()
    for line in lines[start + 1:end] if start >= 0 else ():
        match = _ASSIGNED.match(line)
        if match:
            name, value = match.groups()
            if found.get(name, value) != value:
                doubtful.add(name)
            found[name] = value
    return {name: value for name, value in found.items() if name not in doubtful}


def _read_summary(lines: List[str], end: int) -> Tuple[Dict[str, str], str]:
    start = _find(lines, _LAUNCHING.match)
    if start < 0:
        return {}, ""
    summary: Dict[str, str] = {}
    last = start
    for number in range(start + 1, min(end, len(lines))):
        match = _SUMMARY.match(lines[number])
        if not match:
            break
        summary[match.group(1)] = match.group(2)
        last = number
    return summary, "\n".join(lines[start:last + 1])


def _read_block(lines: List[str], start: int) -> Tuple[str, Dict[str, Tuple[str, ...]]]:
    if start < 0:
        return "", {}
    end = next((number for number in range(start + 1, len(lines)) if _BLOCK_END.match(lines[number])), -1)
    if end < 0:
        return "", {}
    rows: Dict[str, Tuple[str, ...]] = {}
    name = ""
    for line in lines[start + 1:end]:
        match = _ROW.match(line)
        if not match:
            continue
        name = match.group(1).strip() or name
        rows[name] = rows.get(name, ()) + (match.group(2),)
    return "\n".join(lines[start:end + 1]), rows


# step:12 - training/global_step:12 - … - timing_s/step:212.5
_STEP_SECONDS = re.compile(r"\bstep:(\d+) - [^\n]*?\btiming_s/step:(?:np\.float\d*\()?([0-9.eE+-]+)")


def read_step_seconds(text: str) -> List[float]:
    """The seconds of each step that a log's text tells of, in order; a step that tells none is passed over."""
    seconds = []
    for match in _STEP_SECONDS.finditer(text.replace("\r", "\n")):
        try:
            seconds.append(float(match.group(2)))
        except ValueError:
            continue
    return [value for value in seconds if 0 < value < 1e7]
