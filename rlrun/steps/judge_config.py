"""Step 2, the config and what it leads to: placeholders, line ends, whose file it is, old logs, names, resume, secrets."""
import os
import pwd
import re
import stat
from typing import Dict, List, Sequence, Tuple

from ..host import procs
from ..text import redact
from ..text.secret_names import is_secret_name
from ..text.shell import escape_controls
from ..values import Check, Git, Plan

# MODEL_PATH=CHANGEME, K8S_KUBECONFIG=/path/to/kubeconfig, HARBOR_NYDUS_MIRROR=YOUR_REGISTRY:5000
_PLACEHOLDER = re.compile(r"CHANGE_?ME|/path/to/|\bYOUR_[A-Z]")
# Files that are read as data: a carriage return or a byte order mark does them no harm, or their parser says so.
_DATA_ENDS = (".toml", ".yaml", ".yml", ".json")
_BOM = b"\xef\xbb\xbf"
_CHECKPOINT_MARK = "latest_checkpointed_iteration.txt"


def judge_files(plan: Plan) -> List[Check]:
    """The bytes of the config and of what it reads in: CRLF, a byte order mark, placeholders; all advisory."""
    checks: List[Check] = []
    for path in plan.sources:
        try:
            with open(path, "rb") as file:
                data = file.read(1 << 20)
        except OSError:
            continue
        checks += _judge_bytes(os.path.relpath(path, plan.root) if path.startswith(plan.root + "/") else path, data,
                               is_config=path == plan.config)
    for word in plan.unread_sources:
        checks.append(Check("live", "config:source", "advisory", "a file that the config reads in could not be followed: %s"
                            % escape_controls(word), "A change in it does not change the digest."))
    return checks + judge_owners(plan.sources)


def _judge_bytes(shown: str, data: bytes, is_config: bool) -> List[Check]:
    checks = []
    lines = data.split(b"\n")
    is_shell = not shown.endswith(_DATA_ENDS)
    bad = [number for number, line in enumerate(lines, 1) if line.endswith(b"\r")]
    if bad and is_shell:
        first = escape_controls(lines[bad[0] - 1].decode("utf-8", "replace"))
        checks.append(Check("live", "config:crlf", "advisory", "%s line %d ends in CR (%d lines do): %s"
                            % (shown, bad[0], len(bad), first), "Remove it: sed -i 's/\\r$//' %s" % shown))
    if data.startswith(_BOM) and is_shell:
        checks.append(Check("live", "config:bom", "advisory", "%s begins with a byte order mark, which bash takes for a command"
                            % shown, "Remove it: sed -i '1s/^\\xef\\xbb\\xbf//' %s" % shown))
    if is_config:
        for number, line in enumerate(lines, 1):
            text = line.decode("utf-8", "replace").strip()
            if not text.startswith("#") and _PLACEHOLDER.search(text.split(" #")[0]):
                checks.append(Check("live", "config:placeholder", "advisory", "%s line %d: %s"
                                    % (shown, number, redact.redact(escape_controls(text))), "Put the real value in."))
    return checks


def judge_owners(paths: Sequence[str]) -> List[Check]:
    """A config is code: whoever can write it, a file that it reads in, or their folder, runs commands as this user."""
    foreign: List[str] = []
    seen = set()
    for path in paths:
        for one in (path, os.path.dirname(path)):
            if one in seen:
                continue
            seen.add(one)
            words = _describe_foreign(one)
            if words:
                foreign.append("%s %s" % (one, words))
    if not foreign:
        return []
    more = " (and %d more)" % (len(foreign) - 2) if len(foreign) > 2 else ""
    return [Check("live", "config:foreign", "advisory", "a config is code, and somebody else can change it: %s%s"
                  % ("; ".join(foreign[:2]), more), "Copy it to a folder of your own, or read it before you say yes.")]


def _describe_foreign(path: str) -> str:
    try:
        found = os.stat(path)
    except OSError:
        return ""
    is_sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
    if found.st_uid not in (os.geteuid(), 0):
        return "belongs to %s" % procs.user_name(found.st_uid)
    if found.st_mode & stat.S_IWOTH and not is_sticky:
        return "is writable by everybody"
    if found.st_mode & stat.S_IWGRP and not is_sticky and not _is_own_group(found.st_gid):
        return "is writable by group %d" % found.st_gid
    return ""


def _is_own_group(gid: int) -> bool:
    """Is it the private group that distributions give each user? (gid and name as the user's own)"""
    try:
        user = pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return gid == user.pw_gid == user.pw_uid


def judge_outcome(plan: Plan) -> List[Check]:
    """What the launch would find there already: an earlier log, a checkpoint to continue from; and names that change."""
    checks = []
    if plan.name_is_volatile:
        checks.append(Check("live", "name:volatile", "advisory", "the name %s is made anew at each start; the run will have "
                            "another one" % plan.experiment, "Pin it in the config where you want to resume or compare."))
    size = old_log_size(plan)
    if size:
        checks.append(Check("live", "log:overwrite", "advisory", "%s holds %d bytes of an earlier run, and the launch "
                            "truncates it" % (plan.train_log, size), "--old-log keep copies it into the record first."))
    step = read_resume_step(plan)
    if step and plan.resume_mode != "disable":
        checks.append(Check("live", "resume:silent", "advisory", "a checkpoint is there under this name: the run will continue "
                            "from step %s (%s)" % (step, plan.checkpoints), "For a fresh run, take another name."))
    return checks


def old_log_size(plan: Plan) -> int:
    """Bytes of an earlier run's log that the launch would truncate; 0 where there is none."""
    if not plan.train_log:
        return 0
    try:
        return os.stat(plan.train_log).st_size
    except OSError:
        return 0


def read_resume_step(plan: Plan) -> str:
    """The step of the newest checkpoint under this run's name, "" where there is none."""
    if not plan.checkpoints:
        return ""
    try:
        with open(os.path.join(plan.checkpoints, _CHECKPOINT_MARK), "rb") as file:
            text = file.read(64).decode("ascii", "replace").strip()
    except OSError:
        return ""
    return text if text.isdecimal() else ""


def judge_git(git: Git) -> List[Check]:
    """A revision that is unknown, or known in part, is not in the digest: a change in the code goes unnoticed (C7)."""
    if not git.reason:
        return []
    return [Check("live", "git:unknown", "advisory", "the checkout's revision is unknown%s: %s" % (
        " in part" if git.commit else "", git.reason), "A change in the checkout's code does not change the digest.")]


def judge_secrets(plan: Plan) -> List[Check]:
    """Will the runner print secrets into the launch log?"""
    names = find_shown_secrets(plan.environment) if plan.shows_environment else ()
    if not names:
        return []
    return [Check("live", "secrets:in-log", "advisory", "the runner prints %s in clear; the launch log will be readable by you "
                  "alone (mode 0600)" % ", ".join(names), "Do not pass that log on as it is.")]


def needs_private_log(plan: Plan) -> bool:
    """Must nobody else be able to read the launch log?"""
    return plan.prints_secrets or (plan.shows_environment and bool(find_shown_secrets(plan.environment)))


def find_shown_secrets(environment: Dict[str, str]) -> Tuple[str, ...]:
    """The names of secrets whose values the runner's output shows."""
    return tuple(sorted(name for name, value in environment.items()
                        if is_secret_name(name) and redact.find_secrets({name: value})))
