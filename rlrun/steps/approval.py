"""Is the plan the one that was approved, is the approval still good, and was it used up? What was approved is known by its
digest; a saved plan, or else the record of an earlier launch, tells what moved since. Writes nothing."""
import os
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ..errors import BLOCKED, NOT_CONFIRMED, USAGE, OperatorError
from ..text.durations import format_age, format_elapsed
from ..text.redact import redact_config
from ..text.shell import escape_controls, quote_words
from ..values import Choices
from . import confirm, digest, moves, records, saved_plan
from .saved_plan import SavedPlan
from .survey import Survey

_RECENT_SECONDS = 86400.0
_BRIEF_CHARACTERS = 110  # of a move, in a line that is to be short
_CLOCK_SECONDS = 300.0  # by which another machine's clock may be ahead


class _Earlier(NamedTuple):
    """The plan that was confirmed, as far as it is known; `words`: from where, for people."""

    content: moves.Content
    words: str


def check_confirmed(found: Survey, choices: Choices, look: str, secrets: Tuple[str, ...], now_seconds: float) -> None:
    """OperatorError where the digest that was given does not allow this launch: another plan by now (exit 3, with what moved),
    launched already (3, or 1 where that run lives), approved too long ago (3), a --plan FILE that is of no use (2). `look`: the
    words that show the plan again; `secrets` are taken out of all that is shown."""
    given = read_plan_file(choices) if choices.plan_file else None
    if found.fingerprint.digest != choices.confirm:
        raise _refuse_other_plan(found, choices, given, look, secrets, now_seconds)
    refuse_launched(found, choices)
    _refuse_expired(found, choices, given, look, now_seconds)


def read_plan_file(choices: Choices) -> SavedPlan:
    """The plan of --plan FILE. OperatorError (exit 2) where it can't be read, is none, or is another than --confirm names."""
    path = choices.plan_file
    try:
        plan = saved_plan.read_plan(path)
    except OSError as error:
        is_file = os.path.isfile(path) or not os.path.lexists(path)
        raise _refuse_file(path, os.strerror(error.errno or 0) if is_file else "it is no file")
    except ValueError as error:
        raise _refuse_file(path, str(error))
    if plan.digest != choices.confirm:
        raise OperatorError("%s is of plan %s, not of %s; nothing was launched" % (
            escape_controls(path), plan.digest, choices.confirm),
                            "Name the plan that was saved with that digest, or give its own: --confirm %s" % plan.digest, USAGE,
                            "plan")
    return plan


def _refuse_file(path: str, why: str) -> OperatorError:
    return OperatorError("can't take %s for a plan: %s; nothing was launched" % (escape_controls(path), why),
                         "--plan takes what `rlrun check CONFIG --save FILE` wrote; without it, the checkout's own copy counts.",
                         USAGE, "plan")


def refuse_launched(found: Survey, choices: Choices) -> None:
    """A digest is the yes to one launch. Looked at twice: another rlrun may have launched it while this one waited.
    OperatorError: exit 1 where that run lives, else exit 3."""
    if not choices.confirm or choices.again:
        return
    launched = [one for one in records.list_records(found.plan.root)
                if one["digest"] == choices.confirm and records.read_identity(one)]
    living = [one for one in launched if records.judge_state(one)[0] == "running"]
    if living:
        raise _refuse_living(living[0], time.time())
    if launched:
        raise confirm.refuse_again(launched[0], time.time() - launched[0]["time_seconds"])


def _refuse_living(record: Dict[str, Any], now_seconds: float) -> OperatorError:
    identity = records.read_identity(record)
    assert identity is not None
    name, user = escape_controls(record["id"]), escape_controls(record["user"])
    error = OperatorError("plan %s was launched already, %s, and that run lives: %s (pid %d, %s); nothing was launched" % (
        record["digest"], format_age(now_seconds - record["time_seconds"]), name, identity.pid, user or "user unknown"),
        "rlrun status %s shows it. One plan is launched once." % quote_words([name]), BLOCKED,
        "job:running")
    error.shape = {"earlier": {"id": record["id"], "pid": identity.pid, "user": record["user"] or None}}
    return error


def _refuse_expired(found: Survey, choices: Choices, given: Optional[SavedPlan], look: str, now_seconds: float) -> None:
    """By the plan that --plan names, else by the newest that this user or root has saved: another's may say what it likes."""
    approved = given
    if approved is None:
        _refuse_unreadable(found, choices, look)
        approved = next((one for one in saved_plan.find_plans(found.plan.root, choices.confirm)
                         if one.uid in (os.geteuid(), 0)), None)
    renew = "Look at it again and save it anew: %s, with --save FILE and --valid-for TIME" % look
    if approved is None:
        if choices.valid_seconds is not None:
            raise OperatorError("when plan %s was approved is not known, so --valid-for can't be judged; nothing was launched"
                                % choices.confirm, renew, NOT_CONFIRMED, "undated")
        return
    limits = [one for one in (approved.valid_seconds, choices.valid_seconds) if one is not None]
    age = now_seconds - approved.time_seconds
    if limits and age < -_CLOCK_SECONDS:
        raise OperatorError("plan %s says that it was approved in the future (in %s, by the clock of %s); nothing was launched"
                            % (choices.confirm, format_elapsed(-age), escape_controls(approved.host) or "an unknown machine"),
                            "Set the clocks right (date), then: %s" % renew, NOT_CONFIRMED, "clock")
    if limits and age > min(limits):
        error = OperatorError("plan %s was approved %s ago, for %s; nothing was launched" % (
            choices.confirm, format_elapsed(age), format_elapsed(min(limits))), renew, NOT_CONFIRMED, "expired")
        error.shape = {"approved_seconds_ago": int(age), "valid_seconds": min(limits)}
        raise error


def _refuse_unreadable(found: Survey, choices: Choices, look: str) -> None:
    """Until when it was approved is not known, and it may be over."""
    path, reason = saved_plan.find_unreadable(found.plan.root, choices.confirm)
    if path:
        raise OperatorError("plan %s was saved in %s, which can't be read (%s); nothing was launched" % (
            choices.confirm, escape_controls(path), escape_controls(reason)),
            "Move it away, then look at the plan again and save it anew: %s, with --save FILE" % look, NOT_CONFIRMED, "undated")


def _refuse_other_plan(found: Survey, choices: Choices, given: Optional[SavedPlan], look: str, secrets: Tuple[str, ...],
                       now_seconds: float) -> OperatorError:
    """The plan is not the one that was confirmed: what is known of the difference, and how to go on."""
    new = saved_plan.make_content(found, secrets)
    earlier = _find_earlier(found, choices.confirm, given, new, now_seconds)
    lines: List[str] = []
    moved: Optional[Tuple[moves.Move, ...]] = None
    brief = "what changed is not recorded"
    if earlier:
        moved = moves.compare(_hide_secrets(earlier.content, new, secrets), new)
        lines = moves.describe(moved) or ["nothing that is kept"]
        brief = _shorten(lines[0]) + ("; and %d more" % (len(lines) - 1) if len(lines) > 1 else "")
        what = "What changed, since that plan was %s:" % earlier.words
        what += " " + lines[0] if len(lines) == 1 else "".join("\n    " + line for line in lines)
    else:
        recent = _list_recent(found, now_seconds)
        what = "What changed is not recorded (check --save FILE does that); " + (
            "its files that were written last: %s" % "; ".join(recent) if recent else
            "none of its files is newer than a day: look at environment and revision")
    now = found.fingerprint.digest
    error = OperatorError("the plan is %s now, not %s; nothing was launched. %s" % (now, choices.confirm, what),
                          "Look at it again (%s) and confirm %s if it is right." % (look, now), NOT_CONFIRMED, "digest")
    error.shape = {"moved": None if moved is None else moves.shape(moved)}
    error.brief = "the plan is %s now, not %s: %s" % (now, choices.confirm, brief)
    return error


def _shorten(text: str) -> str:
    return text if len(text) <= _BRIEF_CHARACTERS else text[:_BRIEF_CHARACTERS - 1] + "…"


def _find_earlier(found: Survey, value: str, given: Optional[SavedPlan], new: moves.Content,
                  now_seconds: float) -> Optional[_Earlier]:
    """The plan file that was given; one that was saved here, this user's or root's first; the newest launch of that digest."""
    saved = [given] if given else sorted(saved_plan.find_plans(found.plan.root, value),
                                         key=lambda plan: plan.uid not in (os.geteuid(), 0))
    if saved:
        plan = saved[0]
        return _Earlier(plan.content, "checked (%s by %s; %s)" % (
            format_age(now_seconds - plan.time_seconds), escape_controls(plan.user) or "an unknown user",
            escape_controls(plan.path)))
    record = records.find_launched(found.plan.root, value)
    return _Earlier(_read_record(record, new), "launched (%s)" % escape_controls(record["id"])) if record else None


def _read_record(record: Dict[str, Any], new: moves.Content) -> moves.Content:
    """What the record of a launch keeps of a plan: its parts, the configs' copies, the modified files' names."""
    texts = {}
    more = record.get("more_configs")
    paths = [record["config_path"]]
    paths += [os.path.join(record["root"], str(one)) for one in more] if isinstance(more, list) else []
    for number, path in enumerate(paths, 1):
        name = "config%s%s" % ("" if number == 1 else "-%d" % number, os.path.splitext(path)[1])
        try:
            texts[path] = records.read_file(os.path.join(record["record"], name), saved_plan.TEXT_BYTES).decode(
                "utf-8", "surrogateescape")
        except (OSError, ValueError):  # a name that is none, from a record that somebody wrote by hand
            continue
    try:
        told = records.read_file(os.path.join(record["record"], "git.txt")).decode("utf-8", "surrogateescape")
        dirty: Optional[Dict[str, str]] = {line[9:]: "" for line in told.split("\n") if line.startswith("modified ")}
    except OSError:
        dirty = None
    return saved_plan.join_content(moves.Content(record["parts"], texts, dirty))


def _hide_secrets(old: moves.Content, new: moves.Content, secrets: Tuple[str, ...]) -> moves.Content:
    """An earlier plan without what is known to be a secret by now; and a part of which only a hash was kept as it is now, if
    that is its hash. What did not move is not looked at: it is not shown."""
    parts = {}
    for name, text in old.parts.items():
        now = new.parts.get(name)
        if text != now and now is not None and text.startswith("sha256:") and text == digest.hash_text(now):
            text = now
        parts[name] = text if text == now else digest.redact_part(name, text, secrets)
    texts = {path: redact_config(text, secrets) for path, text in old.texts.items()
             if path in new.texts and old.parts.get("file " + path) != new.parts.get("file " + path)}
    return old._replace(parts=parts, texts=texts)


def _list_recent(found: Survey, now_seconds: float) -> Tuple[str, ...]:
    """The files of the plan that were written within a day, newest first."""
    times = []
    for path in found.plan.sources + tuple(os.path.join(found.plan.root, name) for name in found.git.dirty):
        try:
            times.append((now_seconds - os.stat(path).st_mtime, path))
        except OSError:
            continue
    return tuple("%s (written %s)" % (escape_controls(path), format_age(age))
                 for age, path in sorted(times) if age < _RECENT_SECONDS)[:5]
