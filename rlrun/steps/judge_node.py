"""Is this node fit to join a run: is all that must be equal on its nodes here what it is on the head? Facts in, checks out."""
from typing import Dict, List, NamedTuple, Optional, Tuple

from ..host import address, clock
from ..text.durations import format_elapsed
from ..values import Check
from .node_facts import NodeFacts

MAX_CLOCK_SECONDS = 2.0
_MAX_NAMED = 10
_SYNC = "Set both clocks by the same time server (timedatectl, chronyc tracking)."


class Reach(NamedTuple):
    """What came of a connection to the head's port: `how` as address.probe_port has it, "" where no port is known."""

    how: str
    words: str


def read_reach(head: NodeFacts) -> Reach:
    """Connects to the port that the head's runner will be joined by, for five seconds at most."""
    if not head.head or not head.port:
        return Reach("", "")
    return Reach(*address.probe_port(head.head, head.port))


def read_web_offset(head: NodeFacts) -> Optional[clock.Offset]:
    """This clock against the head's, by what its dashboard answers; None where that is not up."""
    target = address.resolve(head.head) if head.head and head.dashboard else ""
    return clock.measure_http(target, head.dashboard) if target else None


def judge(head: NodeFacts, own: NodeFacts, reach: Reach, web: Optional[clock.Offset]) -> List[Check]:
    """The checks of one node against the head: a row for all that is equal, one more for each that is not or is not known.
    `web`: what `read_web_offset` gave."""
    same: List[str] = []
    checks = _judge_commit(head, own, same) + _judge_files(head, own, same) + _judge_python(head, own, same)
    checks += _judge_packages(head, own, same) + _judge_gpus(head, own, same) + _judge_clock(head, own, web, same)
    checks += _judge_reach(head, reach)
    rows = [Check("live", "node:same", "pass", "as on the head %s: %s" % (head.host, ", ".join(same)))] if same else []
    return rows + checks


def _say(value: str) -> str:
    return value or "unknown"


def _judge_commit(head: NodeFacts, own: NodeFacts, same: List[str]) -> List[Check]:
    fix = "Bring this checkout to the head's commit and files (git status and git diff tell), or share one checkout."
    if not head.commit or not own.commit:
        if not head.commit and not own.commit:
            words = "neither node's is known (%s)" % _say(own.git_reason or head.git_reason)
        else:
            whose, reason = ("the head's", head.git_reason) if not head.commit else ("this node's", own.git_reason)
            words = "%s is not known (%s)" % (whose, reason)
        return [Check("live", "node:commit", "advisory", "the commits were not compared: %s" % words,
                      "Compare them yourself; the bytes of config and runner were compared.")]
    if head.commit != own.commit:
        return [Check("live", "node:commit", "blocks", "commit %s here, %s on the head %s" % (own.commit[:12], head.commit[:12],
                                                                                           head.host), fix)]
    if head.dirty is None or own.dirty is None:
        return [Check("live", "node:commit", "advisory", "the modified files were not compared: %s" % _say(
            own.git_reason or head.git_reason), "Compare them yourself: git diff | sha256sum")]
    if head.dirty != own.dirty:
        words = ("files are modified on the head alone" if not own.dirty else "files are modified here alone" if not head.dirty
                 else "other files are modified, or in another way")
        return [Check("live", "node:commit", "blocks", "commit %s on both, but %s" % (own.commit[:12], words), fix)]
    same.append("commit %s%s" % (own.commit[:12], " and its modified files" if own.dirty else ""))
    return []


def _judge_files(head: NodeFacts, own: NodeFacts, same: List[str]) -> List[Check]:
    moved = _find_different(head.files, own.files)
    if not head.files:
        return [Check("live", "node:config", "advisory", "the head told no config: not compared", "Let it write its facts anew.")]
    if moved:
        told = ["%s (%s)" % (name, "not read there" if name not in head.files else "not read here" if name not in own.files
                             else "absent here" if own.files[name] == "absent" else "other bytes") for name in moved]
        return [Check("live", "node:config", "blocks", "not as on the head %s: %s" % (head.host, _list_some(told)),
                      "Copy them from the head, or share one checkout. Had the head's changed since, let it write its facts "
                      "anew: rlrun nodes CONFIG --check")]
    same.append("config and %d file%s that go with it" % (len(own.files) - 1, "" if len(own.files) == 2 else "s")
                if len(own.files) > 1 else "config")
    return []


def _judge_python(head: NodeFacts, own: NodeFacts, same: List[str]) -> List[Check]:
    if not head.python_version or not own.python_version:
        where, python = ("on the head", head.python) if not head.python_version else ("here", own.python)
        return [Check("live", "node:python", "advisory", "the runner's Pythons were not compared: %s tells no version %s" % (
            python or "the runner names none, which", where), "Try it there: python3 --version")]
    if (head.python, head.python_version) != (own.python, own.python_version):
        return [Check("live", "node:python", "blocks", "the runner's Python is %s (%s) here, %s (%s) on the head %s" % (
            own.python, own.python_version, head.python, head.python_version, head.host),
            "Make the same environment at the same path here; Ray refuses nodes of another Python version.")]
    same.append("Python %s" % own.python_version)
    return []


def _judge_packages(head: NodeFacts, own: NodeFacts, same: List[str]) -> List[Check]:
    if head.packages is None or own.packages is None:
        return [Check("live", "node:packages", "advisory", "the packages were not compared: %s Python listed none" % (
            "the head's" if head.packages is None else "this node's"), "Compare them yourself: uv pip freeze, or pip freeze")]
    moved = _find_different(head.packages, own.packages)
    if moved:
        told = ["%s %s here, %s there" % (name, own.packages.get(name, "absent"), head.packages.get(name, "absent"))
                for name in moved]
        return [Check("live", "node:packages", "blocks", "%d of the runner's packages differ%s from the head's: %s" % (
            len(moved), "s" if len(moved) == 1 else "", _list_some(told)),
            "Install the same here, from the same lock file, or share one environment.")]
    same.append("%d packages" % len(own.packages))
    return []


def _judge_gpus(head: NodeFacts, own: NodeFacts, same: List[str]) -> List[Check]:
    checks = []
    if not head.driver or not own.driver:
        checks.append(Check("live", "node:driver", "advisory", "the NVIDIA drivers were not compared: nvidia-smi told none %s" % (
            "on either node" if not head.driver and not own.driver else "on the head" if not head.driver else "here"),
            "Try it: nvidia-smi --query-gpu=driver_version --format=csv"))
    elif head.driver != own.driver:
        checks.append(Check("live", "node:driver", "blocks", "NVIDIA driver %s here, %s on the head %s" % (
            own.driver, head.driver, head.host), "Have the same driver installed on both, or take another node."))
    else:
        same.append("driver %s" % own.driver)
    if head.gpus is None or own.gpus is None:
        reason = own.gpu_reason if own.gpus is None else head.gpu_reason
        checks.append(Check("live", "node:gpus", "advisory", "the GPUs were not compared: %s are not known%s" % (
            "this node's" if own.gpus is None else "the head's", " (%s)" % reason if reason else ""), "See gpu:unknown."))
    elif head.gpus != own.gpus:
        checks.append(Check("live", "node:gpus", "blocks", "%s here, %s on the head %s" % (_count(own.gpus), _count(head.gpus),
                                                                                         head.host),
                            "Take a node like the head, or see what became of a GPU: rlrun probe"))
    else:
        same.append(_count(own.gpus))
    return checks


def _judge_clock(head: NodeFacts, own: NodeFacts, web: Optional[clock.Offset], same: List[str]) -> List[Check]:
    """This clock against the head's: by the time at which its facts were written, the file server of both, its dashboard."""
    behind = head.time_seconds - own.time_seconds
    if behind > MAX_CLOCK_SECONDS:
        return [Check("live", "node:clock", "blocks", "this node's clock is %s or more behind the head's: %s wrote its facts "
                      "later than it is here" % (format_elapsed(behind), head.host), _SYNC)]
    measured: List[Tuple[clock.Offset, str]] = []
    if head.server and head.server == own.server and head.offset and own.offset:
        measured.append((clock.subtract(own.offset, head.offset), "the file server of both"))
    if web:
        measured.append((web, "the head's dashboard"))
    for offset, how in measured:
        if offset.low > MAX_CLOCK_SECONDS or offset.high < -MAX_CLOCK_SECONDS:
            ahead = offset.low > 0
            return [Check("live", "node:clock", "blocks", "this node's clock is %.1f s or more %s the head's, by %s" % (
                offset.low if ahead else -offset.high, "ahead of" if ahead else "behind", how), _SYNC)]
    for offset, how in measured:
        if max(abs(offset.low), abs(offset.high)) <= MAX_CLOCK_SECONDS:
            same.append("clock within %.1f s, by %s" % (max(0.1, abs(offset.low), abs(offset.high)), how))
            return []
    words = "they may differ by %.1f s (by %s, which tells no more)" % (
        max(abs(measured[0][0].low), abs(measured[0][0].high)), measured[0][1]) if measured else \
        "there is neither a file server of both nor an answer of the head's dashboard to tell by"
    return [Check("live", "node:clock", "advisory", "the clocks were not compared: %s" % words,
                  "Compare them yourself: date +%s.%N on both. NCCL, Ray and logs want them within 2 s.")]


def _judge_reach(head: NodeFacts, reach: Reach) -> List[Check]:
    place = "%s:%d" % (head.head, head.port)
    if not reach.how:
        return [Check("live", "node:unreachable", "advisory", "the port by which the head is joined is not known: not tried")]
    if reach.how == "open":
        return [Check("live", "node:reachable", "pass", "the head listens at %s" % place)]
    if reach.how == "refused":
        return [Check("live", "node:unreachable", "advisory", "the head can be reached, and does not listen at %s yet" % place,
                      "Launch the head as well: its runner waits a few minutes for the others, and they for it.")]
    return [Check("live", "node:unreachable", "blocks", "the head can't be reached at %s: %s" % (place, reach.words),
                  "Is it the address that this node reaches (%s on the head), is the head up, does a firewall lie between?" % (
                      head.head_variable or "hostname -I"))]


def _find_different(one: Dict[str, str], other: Dict[str, str]) -> List[str]:
    return sorted(name for name in set(one) | set(other) if one.get(name) != other.get(name))


def _list_some(words: List[str]) -> str:
    return ", ".join(words[:_MAX_NAMED]) + (" and %d more" % (len(words) - _MAX_NAMED) if len(words) > _MAX_NAMED else "")


def _count(names: Tuple[str, ...]) -> str:
    """`8 GPUs: 8 NVIDIA H100`."""
    kinds = ", ".join("%d %s" % (names.count(name), name) for name in sorted(set(names)))
    return "%d GPU%s (%s)" % (len(names), "" if len(names) == 1 else "s", kinds)
