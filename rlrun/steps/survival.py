"""Will it survive? Where a launch stands and what ends it, for the record; and afterwards, whether the run has really left.

Reads the runner's own rows in /proc; judges no health, prints nothing.
"""
import os
import re
from typing import Any, Dict, List, Optional, Sequence

from ..host import cgroups
from ..host.ancestors import Ancestor, read_ancestor
from ..host.memory import read_text
from ..host.procs import read_identity
from ..host.standing import Standing
from ..text.redact import redact
from ..text.shell import escape_controls
from ..values import Launch
from .scope import Entered

# rlrun-20260802-131455-4711.scope
_OWN_SCOPE = re.compile(r"rlrun-\d{8}-\d{6}-\d+\.scope\Z")


def describe(standing: Standing, ends: Sequence[str], secrets: Sequence[str] = ()) -> Dict[str, Any]:
    """The record's `survival`: `stands` (a place), `words`, `ends` (sentences, as session.find_session_ends has them), `scope`
    (the unit that `--scope` made around this process, None without)."""
    names = [unit.name for unit in cgroups.list_units(standing.cgroup) if _OWN_SCOPE.match(unit.name)]
    return {"stands": standing.place, "words": escape_controls(redact(standing.words, secrets)),
            "ends": [escape_controls(redact(words, secrets)) for words in ends], "scope": names[-1] if names else None}


def verify(started: Launch, standing: Standing, entered: Optional[Entered], proc_root: str = "/proc") -> Dict[str, Any]:
    """Whether the runner has left, by its own rows: `session` (neither ours nor one above us), `terminal` (it has none),
    `cgroup` (in the scope that --scope made; None without --scope), and `words`, one line for the report.

    None is "could not be read"; that the runner had ended already is said. `standing` was read before the launch.
    """
    pid = started.runner.pid
    identity = read_identity(pid, proc_root)
    row = read_ancestor(str(pid), proc_root)
    paths = cgroups.read_paths(str(pid), proc_root)
    if not row or not identity or identity.start_ticks != started.runner.start_ticks or not _lives(pid, proc_root):
        return {"session": None, "terminal": None, "cgroup": None, "words": "not verified: the runner had ended already"}
    found = {"session": row.sid not in standing.session_ids + (standing.session_id,), "terminal": row.tty == 0,
             "cgroup": _is_in_scope(paths, entered)}
    return dict(found, words=_say(found, row, paths, entered))


def _lives(pid: int, proc_root: str) -> bool:
    return read_text(os.path.join(proc_root, str(pid), "stat")).rpartition(")")[2].split()[:1] not in ([], ["Z"], ["X"])


def _is_in_scope(paths: Sequence[str], entered: Optional[Entered]) -> Optional[bool]:
    if not entered or not paths:
        return None
    return any(entered.unit in path.split("/") and path != entered.left for path in paths)


def _say(found: Dict[str, Any], row: Ancestor, paths: Sequence[str], entered: Optional[Entered]) -> str:
    words: List[str] = ["own session" if found["session"] else "STILL in the session that it was launched from (%d)" % row.sid,
                        "no terminal" if found["terminal"] else "STILL on a terminal"]
    if entered and found["cgroup"]:
        words.append("scope %s" % entered.unit)
    elif entered and found["cgroup"] is None:
        words.append("scope unknown: its control group could not be read")
    elif entered:
        words.append("NOT in a scope of its own, though --scope was given: it is in %s, and ends with that"
                     % (escape_controls(cgroups.pick_path(tuple(paths))) or "/"))
    return ", ".join(words)
