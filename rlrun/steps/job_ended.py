"""How a job whose script rlrun wrote ended, by what its nodes wrote down: Slurm's FAILED tells an exit code, they tell why.

Slurm's own word stays where it says more than FAILED: cancelled, its time limit, a node that is gone.
"""
import os
import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ..host.files import read_head
from ..text import shell, slurm_words
from ..text.redact import redact
from ..vitals import Ending, Quote
from .job_nodes import FOLDER, NodeState

# As in_job.py writes them: told to end by the batch script.
_STOPPED, _LIMIT = "told to stop", "the time limit was near"
# What the batch script says when it is told, of one attempt; a stop that came before a runner lived is told nowhere else.
_SAID = ((b"Z told to stop: ending", _STOPPED), (b"Z the time limit is near: ending", _LIMIT))
_ATTEMPT = re.compile(rb"Z job \S+ on \S+, head ")
_LOG_BYTES = 1 << 20
_WIDTH = 200
_SHOWN = 4


class Why(NamedTuple):
    """Why a job ended. `kind`: blocked, stopped, failed; `words` are a conclusion's, `short` a column's."""

    kind: str
    words: str
    short: str
    nodes: Tuple[NodeState, ...]  # whose doing it was: none where somebody told the job to end
    then: str = ""  # what followed from it, to stand behind the words


def find_why(record: Dict[str, Any], job: str) -> Optional[Why]:
    """Why a job that is over ended, as its nodes tell it; None where they tell nothing that Slurm does not say better."""
    told = (record.get("job_told") or {}).get(job) or {}
    state = told.get("state") or "unknown"
    states = tuple(one for one in record.get("node_states") or () if one.job == job)
    if not isinstance(record.get("batch"), dict) or state not in ("FAILED", "COMPLETED", "unknown"):
        return None
    head = next((one for one in states if one.role == "head" and one.phase == "ended" and one.exit), None)
    if state == "unknown" and head is None and not is_blocked(record, job):
        return None
    blocked = tuple(one for one in states if one.phase == "blocked")
    if blocked and state != "COMPLETED":
        return _tell_blocked(blocked, any(one.runner for one in states))
    reason = str((head.exit or {}).get("told") or "") if head else _read_told(record, job) if state == "FAILED" else ""
    if reason == _STOPPED:
        return Why("stopped", "stopped, as told", "stopped (as told)", ())
    if reason == _LIMIT:
        limit = told.get("time_limit") or ""
        limit = "" if limit in ("", "UNLIMITED") else slurm_words.describe_time(limit)
        return Why("stopped", "ended before the time limit%s" % (" (%s)" % limit if limit else ""),
                   "stopped (near its time limit%s)" % (" of %s" % limit if limit else ""), ())
    return _tell_failed(states) if state != "COMPLETED" else None


def is_blocked(record: Dict[str, Any], job: str) -> bool:
    """Did a node keep a job from being run? Such a job ends, whatever Slurm remembers of it."""
    states = [one for one in record.get("node_states") or () if one.job == job]
    return any(one.phase == "blocked" for one in states) and not any(one.phase in ("running", "checking") for one in states)


def describe_state(record: Dict[str, Any], job: str) -> str:
    """A job's state in a word or two, for a column: by its nodes, else by Slurm."""
    why = find_why(record, job)
    return why.short if why else slurm_words.describe_state((record.get("job_told") or {}).get(job) or {})


def judge(record: Dict[str, Any], job: str, found: Any, finished: bool, step: Optional[int],
          total: Optional[int]) -> Optional[Ending]:
    """The ending of a job by its nodes; None where Slurm's words tell more. `found`: the first error of its logs, of
    health/faults.py."""
    why = find_why(record, job)
    is_complete = step is not None and total is not None and step >= total
    state = ((record.get("job_told") or {}).get(job) or {}).get("state") or "unknown"
    if why is None or (state == "COMPLETED" and is_complete):
        return None
    from ..health import endings
    log = _name_log(record, job)
    show = ("cat %s" % shell.quote_words([log]),) if log else ("scontrol show job %s" % job,)
    status, signal = _read_exit(next((one for one in record["node_states"] if one.job == job and one.role == "head"), None))
    if why.kind == "blocked":
        return Ending("failed", why.words, None, "", _quote_blocked(record, job, why.nodes[0]), show)
    if why.kind == "stopped":
        is_cause = found is not None and not found.is_consequence and not found.is_survived
        at = "" if step is None else " at step %d%s" % (step, " of %d" % total if total else "")
        return Ending("ended early", why.words + at, status, signal, found.quote if is_cause else None, show if is_cause else ())
    status, signal = _read_exit(why.nodes[0])
    ending = endings.judge_end(status, signal, True, step, total, finished and is_complete, found, None, False)
    if ending.how == "ended well":  # what went wrong after it is the shutdown's
        return ending if why.nodes[0].role == "head" else None
    is_cause = found is not None and not found.is_consequence and not found.is_survived and found.kind != "error"
    node_logs = tuple("tail -n 60 %s" % shell.quote_words([one.log]) for one in why.nodes[:1] if one.log)
    return ending._replace(words=why.words + (": " + ending.words if is_cause else "") + why.then,
                           advice=(ending.advice if is_cause else node_logs + show)[:3])


def _name(one: NodeState) -> str:
    return one.host or "node %d" % one.node


def _tell_blocked(blocked: Tuple[NodeState, ...], has_runner: bool) -> Why:
    groups: Dict[Tuple[str, ...], List[NodeState]] = {}
    for one in blocked:
        groups.setdefault(tuple(check["name"] for check in one.blocking), []).append(one)
    words, short = [], []
    for states in list(groups.values())[:_SHOWN]:
        names = ", ".join(_name(one) for one in states[:_SHOWN]) + (
            " and %d more" % (len(states) - _SHOWN) if len(states) > _SHOWN else "")
        checks = states[0].blocking
        more = ", and %d more findings there" % (len(checks) - 1) if len(checks) > 2 else ", and one more finding there" \
            if len(checks) == 2 else ""
        words.append("on %s: %s%s" % (names, _cut(_tell_check(checks[0])) if checks else "why is not told", more))
        short.append("%s: %s" % (names, checks[0]["name"] if checks else "why is not told"))
    more_groups = ["%d more ways" % (len(groups) - _SHOWN)] if len(groups) > _SHOWN else []
    return Why("blocked", "blocked %s%s" % ("; ".join(words + more_groups), "" if has_runner else "; no runner was started"),
               "blocked (%s)" % short[0], tuple(state for states in groups.values() for state in states))


def _tell_check(check: Dict[str, str]) -> str:
    return ("%s  %s" % (check["name"], check["detail"])).strip()


def _tell_failed(states: Tuple[NodeState, ...]) -> Optional[Why]:
    """Whose runner ended badly by itself, the head's first, for its code is the job's; and whom that ended."""
    ended = [one for one in states if one.phase == "ended" and _read_exit(one) != (None, "")]
    own = [one for one in ended if not (one.exit or {}).get("told") and _read_exit(one) != (0, "")]
    with_it = [one for one in ended if (one.exit or {}).get("told")]
    if not own:
        return None
    told = ["%s (%s) %s" % (_name(one), one.role, _tell_exit(one)) for one in own]
    words = ", ".join(told[:_SHOWN]) + (" and %d more" % (len(told) - _SHOWN) if len(told) > _SHOWN else "")
    then = ""
    if with_it:
        names = ["%s (%s)" % (_name(one), one.role) for one in with_it]
        then = "; %s %s ended by it" % (", ".join(names[:_SHOWN]) + (
            " and %d more" % (len(names) - _SHOWN) if len(names) > _SHOWN else ""), "was" if len(names) == 1 else "were")
    return Why("failed", words, "failed (%s %s)" % (_name(own[0]), _tell_exit(own[0])), tuple(own), then)


def _read_exit(one: Optional[NodeState]) -> Tuple[Optional[int], str]:
    told = (one.exit if one else None) or {}
    status, signal = told.get("status"), told.get("signal")
    return status if isinstance(status, int) else None, signal if isinstance(signal, str) else ""


def _tell_exit(one: NodeState) -> str:
    status, signal = _read_exit(one)
    return "was killed by %s" % signal if signal else "ended %s" % status


def _name_log(record: Dict[str, Any], job: str) -> str:
    facts = record.get("facts")
    paths = facts.get("job_logs") if isinstance(facts, dict) else None
    path = paths.get(job) if isinstance(paths, dict) else None
    return path if isinstance(path, str) else ""


def _read_told(record: Dict[str, Any], job: str) -> str:
    log = _name_log(record, job)
    data = read_head(log, _LOG_BYTES) if log else b""
    begins = [one.start() for one in _ATTEMPT.finditer(data)]
    data = data[begins[-1]:] if begins else data
    return next((meaning for said, meaning in _SAID if said in data), "")


def _quote_blocked(record: Dict[str, Any], job: str, node: NodeState) -> Quote:
    """Where it stands in the job's log what blocked a node; the node's own file where it does not."""
    check = node.blocking[0] if node.blocking else {"name": "", "detail": ""}
    text = _cut(_tell_check(check)) or "why is not told"
    log = _name_log(record, job)
    data = read_head(log, _LOG_BYTES) if log and check["name"] else b""
    found = list(re.finditer(b"(?m)^" + b": +".join(re.escape(one.encode("utf-8", "replace")) for one in (
        node.host, check["name"])) + b"  ", data))
    if not found:
        return Quote(os.path.join(record.get("record") or "", FOLDER, "%04d.json" % node.node), 0, None, text)
    begin = found[-1].start()
    return Quote(log, begin, data.count(b"\n", 0, begin) + 1, text)


def _cut(text: str) -> str:
    text = shell.escape_controls(redact(text))
    return text if len(text) <= _WIDTH else text[:_WIDTH - 1] + "\u2026"
