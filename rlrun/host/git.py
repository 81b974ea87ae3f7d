"""The checkout's revision by git: commit, branch, and what differs from the commit. Never writes, also not the index.

`git diff` refreshes and rewrites the index even with GIT_OPTIONAL_LOCKS=0 (seen with 2.39), unless
diff.autoRefreshIndex is off; then it lists files that were only touched, and those are taken out here.
A launch never depends on git: whatever fails becomes a reason.
"""
import errno
import hashlib
import os
import shlex
import time
from typing import Dict, List, NamedTuple, Tuple

from .. import child
from ..values import Git, Outcome

_MAX_DIFF_BYTES = 64 << 20
_CONFIG = (
    "core.fsmonitor=false",  # would run, or start, a program that the repository names
    "core.hooksPath=/dev/null",
    "diff.autoRefreshIndex=false",
    "status.aheadBehind=false",  # walks history for a number that nobody asked for
    "status.renames=false",
)
_STATUS = ("status", "--porcelain=v2", "--branch", "-z", "--untracked-files=no")
_DIFF = ("diff", "--patch", "--unified=0", "--full-index", "--no-renames", "--no-color", "--no-ext-diff",
         "--no-textconv", "--submodule=short", "--src-prefix=a/", "--dst-prefix=b/", "HEAD", "--")
# What a hook or another git around us leaves behind, and what would lead to another repository or program.
_DROPPED_NAMES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "GIT_PREFIX",
                  "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_EXTERNAL_DIFF", "GIT_DIFF_OPTS")


class GitHandle(NamedTuple):
    """The two git processes that `start_git` started; to be handed to `finish_git`."""

    root: str
    status: child.Running
    diff: child.Running


def start_git(root: str) -> GitHandle:
    """Starts the two git processes that read the revision of `root`, and waits for neither."""
    place = os.path.realpath(root)
    prefix = ["git", "--no-pager", "-C", place]
    for setting in _CONFIG:
        prefix += ["-c", setting]
    environment = _make_environment(place)
    return GitHandle(place, child.start(prefix + list(_STATUS), env=environment),
                     child.start(prefix + list(_DIFF), env=environment))


def finish_git(handle: GitHandle, timeout_seconds: float = 10) -> Git:
    """Waits for git, at most `timeout_seconds` from now on, and gives the revision.

    `branch` is "detached" without one; `dirty` are the tracked files that differ from HEAD, relative to the root;
    `dirty_digest` is the sha256 over their diff, empty where none differs. Where the commit is unknown, `commit` is
    empty and `reason` says why; with a commit, `reason` is set only where the diff could not be read.
    """
    deadline = time.monotonic() + timeout_seconds
    status, diff = [child.finish(running, deadline - running.started, _MAX_DIFF_BYTES)
                    for running in (handle.status, handle.diff)]
    reason = _explain_failure(status, handle.root)
    if reason:
        return Git("", "", (), "", reason)
    commit, branch, dirty = _parse_status(status.output)
    if not commit:
        return Git("", branch, (), "", "no commit yet")
    if not dirty:
        return Git(commit, branch, (), "", "")
    reason = _explain_failure(diff, handle.root)
    if reason:
        return Git(commit, branch, dirty, "", "the diff could not be read: %s" % reason)
    return Git(commit, branch, dirty, _digest_diff(diff.output), "")


def _make_environment(root: str) -> Dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name not in _DROPPED_NAMES}
    environment.update({
        "LC_ALL": "C",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_LAZY_FETCH": "1",  # a partial clone would fetch, over the network and into .git
        "GIT_CEILING_DIRECTORIES": os.path.dirname(root),  # an outer repository is not this checkout's
    })
    return environment


def _explain_failure(outcome: Outcome, root: str) -> str:
    if outcome.how == "unstartable" and outcome.code == errno.ENOENT:
        return "git is not on PATH"
    if outcome.how != "ended":
        return "git: %s" % child.describe(outcome)
    errors = outcome.errors.decode("utf-8", "replace")
    if outcome.code == 0:
        # A folder whose name contains a colon can't be a ceiling.
        return "" if os.path.lexists(os.path.join(root, ".git")) else _explain_absence(root)
    if "dubious ownership" in errors or "unsafe repository" in errors:  # the latter: git 2.35.2
        return ("git refuses it for dubious ownership: it belongs to another user; to allow it: "
                "git config --global --add safe.directory %s" % shlex.quote(root))
    if "not a git repository" in errors:
        return _explain_absence(root)
    last = [line.strip() for line in errors.splitlines() if line.strip()][-1:]
    return "git %s%s" % (child.describe(outcome), ": " + last[0] if last else "")


def _explain_absence(root: str) -> str:
    place = root
    while place != os.path.dirname(place):
        place = os.path.dirname(place)
        if os.path.lexists(os.path.join(place, ".git")):
            return "not a repository of its own (it lies inside %s)" % place
    return "not a git repository"


def _parse_status(output: bytes) -> Tuple[str, str, Tuple[str, ...]]:
    commit, branch = "", ""
    dirty: List[str] = []
    fields = iter(output.decode("utf-8", "replace").split("\0"))
    for field in fields:
        # "# branch.oid 8c1f…" or "# branch.oid (initial)"; "# branch.head main" or "# branch.head (detached)"
        if field.startswith("# branch.oid "):
            commit = "" if field.endswith("(initial)") else field[13:]
        elif field.startswith("# branch.head "):
            branch = "detached" if field == "# branch.head (detached)" else field[14:]
        # 1 .M N... 100644 100644 100644 7898192… 7898192… a file
        elif field.startswith("1 "):
            dirty.append(field.split(" ", 8)[8])
        # 2 R. N... 100644 100644 100644 7898192… 7898192… R100 new name, and the old name in a field of its own
        elif field.startswith("2 "):
            dirty.append(field.split(" ", 9)[9])
            dirty.append(next(fields, ""))
        # u UU N... 100644 100644 100644 100644 7898192… 7898192… 7898192… a file
        elif field.startswith("u "):
            dirty.append(field.split(" ", 10)[10])
    return commit, branch, tuple(sorted(dirty))


def _digest_diff(diff: bytes) -> str:
    # A line of content begins with one of " +-\\@", so only a header matches. A section of one line is a file that was
    # touched and is the same.
    sections = (b"\n" + diff).split(b"\ndiff --git ")[1:]
    return hashlib.sha256(b"\0".join(section for section in sections if b"\n" in section.strip(b"\n"))).hexdigest()
