"""Steps 1 and 2 on one node of a Slurm job: is it fit for the run, and is this still the plan that was confirmed? Judges what a
survey of the node found, and starts nothing."""
import os
import re
import shlex
import threading
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from ..text import hostlist
from ..text.durations import format_elapsed
from ..text.redact import redact
from ..text.shell import quote_words
from ..values import Check, Checkout, Config, Git, Plan, Request
from . import digest, survey
from .in_job import Task

# What a task of a job is bound to meet, or what the operator was told when the job was handed in.
_EXPECTED = ("env:inherited", "session:ends", "session:stands", "host:worker", "name:volatile", "log:overwrite", "resume:silent")
_SAME_PARTS = ("launch command", "runner")
_GIT_PARTS = {"commit": "the commit", "dirty files": "what differs from the commit"}
# GPU 3: 12.1 GiB in use by a process that is not visible here (another container's?)
_GPU_ROW = re.compile(r"GPU ([0-9]+): (\S+ \S+) (in use by .*)", re.S)
_SHOWN_WORDS = 3
_WORD_WIDTH = 80


def make_request(task: Task) -> Request:
    """What the operator asked for when the job was handed in, as a run of this node."""
    found = task.record
    dropped: Optional[Dict[str, str]] = {} if "--drop-env" in found["parts"] else None
    return Request(Checkout(found["stack"], found["root"]), Config(found["config_path"], found["config"], found["kind"]), (),
                   dropped=dropped)


def judge(task: Task, found: survey.Survey, secrets: Tuple[str, ...]) -> Tuple[List[Check], Tuple[str, ...]]:
    """(what blocks, without a secret; the names of what is worth a warning) of a node's survey."""
    checks = list(found.verdict.checks) + judge_moved(task, found, secrets)
    blocking = [one._replace(detail=redact(one.detail, secrets), fix=redact(one.fix, secrets))
                for one in checks if one.status == "blocks"]
    names = [one.name for one in checks if one.status == "advisory" and one.name not in _EXPECTED]
    return fold_gpus(blocking), tuple(name for place, name in enumerate(names) if name not in names[:place])


def fold_gpus(blocking: Sequence[Check]) -> List[Check]:
    """The same with one check for all GPUs of which the same is said: `GPUs 1-7: 8.8 GiB each in use by …`."""
    rows = [(one, _GPU_ROW.match(one.detail)) for one in blocking]
    groups: Dict[Tuple[str, str], List[Tuple[str, str]]] = {}
    for one, row in rows:
        if row:
            groups.setdefault((one.name, row.group(3)), []).append((row.group(1), row.group(2)))
    folded = []
    for one, row in rows:
        same = groups.pop((one.name, row.group(3)), []) if row else [("", "")]
        if not row or len(same) == 1:
            folded.append(one)
        elif same:
            gpus = "GPUs " + hostlist.fold([number for number, _ in same]).strip("[]")
            sizes = list(dict.fromkeys(size for _, size in same))
            size = sizes[0] + " each" if len(sizes) == 1 else ", ".join(sizes)
            folded.append(one._replace(detail="%s: %s %s" % (gpus, size, row.group(3)),
                                       fix=one.fix.replace("GPU " + row.group(1), gpus)))
    return folded


def judge_moved(task: Task, found: survey.Survey, secrets: Tuple[str, ...]) -> List[Check]:
    """What is not as it was when the plan was confirmed: a job may have waited for days. A commit that this node can't read is a
    warning: the files that are launched are compared by their bytes as well."""
    then = task.record["parts"]
    now = digest.shorten_parts(dict(found.fingerprint.parts, runner=quote_words(found.plan.argv)), secrets)
    files = [name for name in sorted(set(then) | set(now)) if name.startswith("file ")]
    # A dry run that died has not named all of them.
    moved = [name[5:] for name in files if then.get(name) != (now.get(name) or digest.hash_file(name[5:]))]
    if found.plan.launch_command:  # it tells none where it refuses
        moved += [_tell_words(name, task, found.plan, secrets) for name in _SAME_PARTS if then.get(name) != now.get(name)]
    checks = []
    if found.git.commit:
        moved += [words for name, words in _GIT_PARTS.items() if then.get(name) != now.get(name)]
    elif _is_commit(then.get("commit", "")):
        checks = [Check("live", "git:unknown", "advisory", _tell_git(found.git))]
    moved = [one for one in moved if one]
    if moved:
        more = ", and %d more" % (len(moved) - 5) if len(moved) > 5 else ""
        checks.append(Check("live", "plan:moved", "blocks", "this is not the plan that was confirmed; what changed since: %s"
                            % (", ".join(moved[:5]) + more),
                            "Put it back, or check it and hand it in again: %s" % (
                                task.record["batch"].get("again") or "rlrun check %s --slurm, and with the options that it had"
                                % shlex.quote(task.record["config"]))))
    return checks


def _is_commit(text: str) -> bool:
    return len(text) >= 40 and not set(text) - set("0123456789abcdef")


def _tell_git(git: Git) -> str:
    return "whether the checkout is at the commit that was confirmed could not be read: %s" % git.reason


def _tell_words(name: str, task: Task, plan: Plan, secrets: Tuple[str, ...]) -> str:
    """In words, how the launch command differs; "" where it does not but for the head's address, which nobody knew then."""
    if name != "launch command":
        return "the %s" % name
    then = _split(task.record["launch_command"])
    now = _split(redact(digest.drop_volatile(plan.launch_command, digest.find_volatile(plan)), secrets))
    new = [word for word in now if word not in then and not (plan.topology.head and plan.topology.head in word)]
    gone = [word for word in then if word not in now]
    if not new and len(now) == len(then):
        return ""
    shown = ", ".join(_tell_word(word, gone) for word in (new or gone)[:_SHOWN_WORDS])
    return "the launch command (%s%s)" % ("" if new and _find_old(new[0], gone) else "now " if new else "without ",
                                          shown or "in another order")


def _find_old(word: str, gone: List[str]) -> str:
    """The word that set the same before, of those that are gone: that of `name=5` for `name=7`; "" where none did."""
    name, is_set, _ = word.partition("=")
    same = [one for one in gone if one.startswith(name + "=")] if is_set and name else []
    return same[0] if len(same) == 1 else ""


def _tell_word(word: str, gone: List[str]) -> str:
    """`name=5 → name=7`, or the word alone."""
    old = "" if word in gone else _find_old(word, gone)
    return "%s \u2192 %s" % (_shorten(old), _shorten(word)) if old else _shorten(word)


def _split(command: str) -> List[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


def _shorten(word: str) -> str:
    return word if len(word) <= _WORD_WIDTH else word[:_WORD_WIDTH - 1] + "\u2026"


def judge_late(task: Task, seconds: float) -> Check:
    """What to say of a node whose check has not answered."""
    return Check("live", "node:hangs", "blocks", "no answer within %s: something hangs on this node, a file system or a driver"
                 % format_elapsed(seconds), "Look at it, or leave it out: --sbatch=--exclude=%s" % task.host)


def shape(blocking: Sequence[Check]) -> Tuple[Dict[str, str], ...]:
    """What blocks, as a node's state tells it."""
    return tuple({"name": one.name, "detail": one.detail, "fix": one.fix} for one in blocking)


def end_when_late(seconds: float, say: Callable[[], None]) -> threading.Timer:
    """Ends this process with 1 after so many seconds unless the timer that is returned is cancelled: what hangs in the kernel (a
    file system whose server is gone, a driver) ends at no signal that it could get first. `say` is called before, and has 5 s."""
    def end() -> None:
        telling = threading.Thread(target=say, daemon=True)
        telling.start()
        telling.join(5)
        os._exit(1)
    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    return timer
