"""The GPUs and who holds them, as nvidia-smi tells. Owns its output's quirks; judges nothing and resets nothing.

What nvidia-smi could not tell is None, never 0: unknown memory is not free memory.
"""
import os
import re
import shutil
import time
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from .. import child
from ..values import Gpu, GpuHolder, GpuReading, Outcome

_PROGRAM = "nvidia-smi"
_FORMAT = "--format=csv,noheader,nounits"
_PLAIN_FIELDS = "index,uuid,pci.bus_id,name,memory.used,memory.total"
_FIELDS = _PLAIN_FIELDS + ",utilization.gpu,ecc.errors.uncorrected.volatile.total"
_HOLDER_FIELDS = "gpu_uuid,pid,used_memory,process_name"
_GRACE_SECONDS = 1.0

# 61234   or, where "nounits" was not heard:   61234 MiB   97 %
_NUMBER = re.compile(r"(\d{1,18})(?:\.\d+)?\s*(MiB|GiB|%)?$")
# Unable to determine the device handle for GPU 0000:5E:00.0: Unknown Error
# GPU 00000000:03:00.0: GPU requires reset
_LOST_LINE = re.compile(
    r"unable to determine the device handle|gpu is lost|fallen off the bus|requires (?:a )?reset", re.IGNORECASE)
# 3, GPU-6f…, 00000000:5E:00.0, NVIDIA H100, [GPU is lost], …   or [GPU requires reset]
_LOST_FIELD = re.compile(r"\[[^\]]*(?:is lost|requires reset)[^\]]*\]", re.IGNORECASE)
# [N/A]   N/A   [Not Supported]   [Insufficient Permissions]   [Unknown Error]
_UNTOLD = re.compile(r"\[.*\]$|N/A$", re.IGNORECASE)
# 535.104.05
_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+){1,3}\Z")
# What the process query says where a GPU has no process.
_NO_HOLDER = re.compile(r"no (?:running )?(?:processes|devices) (?:were )?found", re.IGNORECASE)


class GpuQuery(NamedTuple):
    """Two queries under way, to be collected with `finish_query` or ended with `cancel_query`."""

    gpus: child.Running
    holders: child.Running
    env: Optional[Dict[str, str]]


def start_query(env: Optional[Dict[str, str]] = None) -> GpuQuery:
    """Starts both queries and does not wait; `env` replaces the environment, its PATH finds the program."""
    return GpuQuery(
        gpus=child.start(_gpu_argv(_FIELDS), env=env),
        holders=child.start([_PROGRAM, "--query-compute-apps=" + _HOLDER_FIELDS, _FORMAT], env=env),
        env=env)


def finish_query(query: GpuQuery, timeout_seconds: float = 20.0) -> GpuReading:
    """Waits for both queries until `timeout_seconds` after their start and gives what they said.

    The first call without persistence mode takes 10 s and more. What hangs is ended, with its process group. `state` is
    "ok" only where the holders were told too; in the other states `gpus` keeps what was told all the same.
    """
    # A caller that was busy for longer still gets what is in the pipes.
    deadline = max(query.gpus.started + timeout_seconds, time.monotonic() + _GRACE_SECONDS)
    if query.gpus.popen is None and _is_absent(query.env):
        cancel_query(query)
        return GpuReading("absent", "no %s on PATH" % _PROGRAM, (), (), ())
    try:
        outcome = _finish_by(query.gpus, deadline)
        is_plain = _is_field_rejected(outcome)
        if is_plain:  # an older driver
            outcome = _finish_by(child.start(_gpu_argv(_PLAIN_FIELDS), env=query.env), deadline)
        holders_outcome = _finish_by(query.holders, time.monotonic() if outcome.how == "timeout" else deadline)
    except BaseException:
        cancel_query(query)
        raise
    return _merge(outcome, holders_outcome, is_plain)


def start_driver(env: Optional[Dict[str, str]] = None) -> child.Running:
    """Asks nvidia-smi for the version of the driver, and does not wait."""
    return child.start([_PROGRAM, "--query-gpu=driver_version", _FORMAT], env=env)


def finish_driver(running: child.Running, timeout_seconds: float = 20.0) -> str:
    """The driver's version, `535.104.05`, `timeout_seconds` after the question at most; "" where nvidia-smi told none."""
    words = _split_lines(_decode(child.finish(running, timeout_seconds).output))
    return next((word for word in words if _VERSION.match(word)), "")


def cancel_query(query: GpuQuery) -> None:
    """Ends what still runs of a query that nobody will collect."""
    for running in (query.gpus, query.holders):
        if running.popen is not None and running.popen.poll() is None:
            child.finish(running, 0.0)


def parse_gpus(text: str, is_plain: bool = False) -> Tuple[Tuple[Gpu, ...], Tuple[str, ...]]:
    """The GPUs in the output of the GPU query, and the lines that tell of a lost one; indices are as printed.

    `is_plain`: the output has no columns for utilization and ECC errors. A row that hides its index gets -1.
    """
    lines = _split_lines(text)
    gpus = [gpu for gpu in (_parse_gpu(line, is_plain) for line in lines) if gpu]
    return tuple(gpus), tuple(line for line in lines if _is_lost_line(line))


def find_unread(text: str, is_plain: bool = False) -> Tuple[str, ...]:
    """The lines of the GPU query that are neither a row nor tell of a lost GPU: warnings, broken rows, what is new."""
    return tuple(line for line in _split_lines(text) if not _is_lost_line(line) and _parse_gpu(line, is_plain) is None)


def show_index(gpu: Gpu) -> str:
    """The index in words, `?` where nvidia-smi did not tell it."""
    return str(gpu.index) if gpu.index >= 0 else "?"


def parse_holders(text: str) -> Tuple[GpuHolder, ...]:
    """The processes in the output of the process query; one without a pid is left out (`finish_query` tells of it)."""
    return tuple(holder for holder in map(_parse_holder, _split_lines(text)) if holder)


def is_mixed(gpus: Sequence[Gpu]) -> bool:
    """Whether there is more than one model: then CUDA's own order (fastest first) need not be that of nvidia-smi."""
    return len({gpu.name for gpu in gpus if gpu.name}) > 1


def select_visible(gpus: Sequence[Gpu], visible: Optional[str]) -> Optional[List[Gpu]]:
    """The GPUs that a CUDA_VISIBLE_DEVICES of `visible` leaves, in its order.

    Gives None where that can't be judged: a MIG device, or an index beyond a GPU that is missing from `gpus`. `visible`
    None means all; an entry that names no GPU ends the list, one that comes twice empties it. Indices count as those of
    nvidia-smi do (CUDA_DEVICE_ORDER=PCI_BUS_ID). Source: CUDA programming guide, environment variables, and what
    torch/cuda/__init__.py makes of it in _parse_visible_devices.
    """
    if visible is None:
        return list(gpus)
    if "MIG-" in visible:
        return None
    words = [word.strip() for word in visible.split(",")]
    if words[0].startswith("GPU-"):
        return _collect_distinct([_find_by_uuid(gpus, word) for word in words])
    known = {gpu.index: gpu for gpu in gpus if gpu.index >= 0}
    found = [known.get(_parse_index(word)) for word in words]
    if None in found:
        words = words[:found.index(None) + 1]
    named = [_parse_index(word) for word in words if _parse_index(word) <= max(known, default=-1)]
    if any(index not in known for index in range(max(named, default=-1) + 1)):
        return None
    return _collect_distinct(found)


def _collect_distinct(found: Sequence[Optional[Gpu]]) -> List[Gpu]:
    chosen: List[Gpu] = []
    for gpu in found:
        if gpu is None:
            break
        if gpu in chosen:
            return []
        chosen.append(gpu)
    return chosen


def _find_by_uuid(gpus: Sequence[Gpu], prefix: str) -> Optional[Gpu]:
    matches = [gpu for gpu in gpus if prefix.startswith("GPU-") and gpu.uuid.startswith(prefix)]
    return matches[0] if len(matches) == 1 else None  # an ambiguous prefix is invalid


def _parse_index(word: str) -> int:
    """The index that an entry names or -1. CUDA reads like strtoul: "1gpu" is 1, "-1" and "all" are invalid."""
    # 7   +7   7gpu
    match = re.match(r"\+?(\d{1,18})", word)
    return int(match.group(1)) if match else -1


def _gpu_argv(fields: str) -> List[str]:
    return [_PROGRAM, "--query-gpu=" + fields, _FORMAT]


def _is_absent(env: Optional[Dict[str, str]]) -> bool:
    # Not by errno: a folder on PATH that we may not enter makes "permission denied" of a program that is nowhere.
    path = (os.environ if env is None else env).get("PATH", os.defpath)
    return shutil.which(_PROGRAM, path=path) is None


def _is_field_rejected(outcome: Outcome) -> bool:
    # Field "ecc.errors.uncorrected.volatile.total" is not a valid field to query.
    return outcome.how == "ended" and b"is not a valid field" in outcome.output + outcome.errors


def _finish_by(running: child.Running, deadline: float) -> Outcome:
    return child.finish(running, deadline - running.started)


def _merge(outcome: Outcome, holders_outcome: Outcome, is_plain: bool) -> GpuReading:
    gpus, lost = parse_gpus(_decode(outcome.output), is_plain)
    lost += parse_gpus(_decode(outcome.errors), is_plain)[1]
    holders = parse_holders(_decode(holders_outcome.output))
    unread: List[str] = []
    state, reason = _judge_gpus(outcome, bool(gpus))
    if state == "ok":  # otherwise the reason quotes what was said, and the last line may be cut off
        for data in (outcome.output, outcome.errors):
            unread += find_unread(_decode(data), is_plain)
        state, reason = _judge_holders(holders_outcome, bool(holders or lost))
        if state == "ok":
            unread += _find_unread_of_holders(holders_outcome)
    return GpuReading(state, reason, gpus, holders, lost, tuple(sorted(set(unread), key=unread.index)))


def _find_unread_of_holders(outcome: Outcome) -> List[str]:
    lines = _split_lines(_decode(outcome.output)) + _split_lines(_decode(outcome.errors))
    return [line for line in lines
            if _parse_holder(line) is None and not _is_lost_line(line) and not _NO_HOLDER.match(line)]


def _judge_gpus(outcome: Outcome, has_rows: bool) -> Tuple[str, str]:
    if outcome.how == "ended" and has_rows:  # 15 or 255: a GPU is lost; 14: its infoROM is corrupt
        return "ok", ""
    return _fail(outcome)


def _judge_holders(outcome: Outcome, has_rows: bool) -> Tuple[str, str]:
    """A failed process query must not look like idle GPUs, nor a row that hides its pid like no row."""
    rows = [line for line in _split_lines(_decode(outcome.output)) if line.count(",") >= 3]
    unread = [row for row in rows if _parse_holder(row) is None]
    if outcome.how == "ended" and unread:
        return "failed", "holders: " + unread[0]
    if outcome.how == "ended" and (has_rows or outcome.code == 0):
        return "ok", ""
    state, reason = _fail(outcome)
    return state, "holders: " + reason


def _fail(outcome: Outcome) -> Tuple[str, str]:
    how = "%s: %s" % (_PROGRAM, child.describe(outcome))
    if outcome.how != "ended":
        return ("timeout" if outcome.how == "timeout" else "failed"), how
    words = _split_lines(_decode(outcome.output)) + _split_lines(_decode(outcome.errors))
    return "failed", words[0] if words else how + " and printed nothing"


def _is_lost_line(line: str) -> bool:
    return bool(_LOST_LINE.search(line) or _LOST_FIELD.search(line))


def _parse_gpu(line: str, is_plain: bool) -> Optional[Gpu]:
    # 0, GPU-6f1c…, 00000000:07:00.0, NVIDIA H100 80GB HBM3, 61234, 81559, 97, 0: only the name may hold commas.
    fields = [field.strip() for field in line.split(",")]
    tail = 2 if is_plain or len(fields) == 6 else 4
    if len(fields) < 4 + tail:
        return None
    index = _parse_number(fields[0])
    numbers = [_parse_number(field) for field in fields[-tail:]] + [None, None]
    # Memory in use counts whatever its GPU is called; a header or a sentence with commas tells neither.
    if index is None and numbers[0] is None and not _UNTOLD.match(fields[0]):
        return None
    return Gpu(index=-1 if index is None else index, uuid=_parse_word(fields[1]), bus_id=_parse_word(fields[2]),
               name=_parse_word(", ".join(fields[3:-tail])), used_mib=numbers[0], total_mib=numbers[1],
               utilization_percent=numbers[2], ecc_errors=numbers[3])


def _parse_holder(line: str) -> Optional[GpuHolder]:
    # GPU-6f1c…, 41877, 61234, VLLM::Worker_TP0: the name comes last and may hold commas.
    fields = [field.strip() for field in line.split(",", 3)]
    pid = _parse_number(fields[1]) if len(fields) == 4 else None
    if pid is None:
        return None
    return GpuHolder(pid=pid, gpu_uuid=_parse_word(fields[0]), used_mib=_parse_number(fields[2]),
                     name=_parse_word(fields[3]))


def _parse_number(text: str) -> Optional[int]:
    match = _NUMBER.match(text)
    if not match:
        return None
    return int(match.group(1)) * (1024 if match.group(2) == "GiB" else 1)


def _parse_word(text: str) -> str:
    return "" if _UNTOLD.match(text) else text


def _split_lines(text: str) -> List[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "replace")
