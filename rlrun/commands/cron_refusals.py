"""What `schedule` refuses before it prints a line: whatever the launch would be sure to be refused for, or could ask nobody."""
import os
import shlex
from typing import Any, Dict, Tuple

from ..errors import BLOCKED, MACHINE, NOT_CONFIRMED, USAGE, OperatorError
from ..host import managers, standing
from ..steps import confirm, cron_time, records, saved_plan, survey, tell, wait_free
from ..text.durations import format_elapsed
from ..text.redact import redact, redact_words
from ..text.shell import escape_controls, quote_words
from ..text.unattended import is_count
from ..values import Choices, Verdict
from .cron_check import Cron


def refuse_short(options: Any, when: cron_time.When, now_seconds: float) -> None:
    """OperatorError (exit 2) for an approval that ends before the launch."""
    if options.valid_for is not None and now_seconds + options.valid_for < when.seconds:
        raise OperatorError("--valid-for %s ends before the launch, which is in %s" % (
            format_elapsed(options.valid_for), format_elapsed(when.seconds - now_seconds)), "Make it longer, or leave it away.",
            USAGE, "time")


def settle_notify(options: Any, environ: Dict[str, str], secrets: Tuple[str, ...]) -> str:
    """The words of --notify as the line is to have them, "" without any. OperatorError, as the launch would raise it in cron's
    `environ`; and for a secret. A program that is named from this folder is named by its whole path: cron starts elsewhere."""
    if options.notify is None and not options.notify_shell:
        return ""
    typed = str(options.notify or "")
    if redact(typed, secrets) != typed:
        raise OperatorError("--notify holds a secret, and a crontab would keep it (an address that anybody may write to is one)",
                            "Put it into a script of your own that only you can read (chmod 700), and name that: --notify SCRIPT",
                            USAGE, "secret")
    argv = tell.prepare(typed, options.notify_shell, environ)
    word = "" if options.notify_shell else shlex.split(typed)[0]
    return quote_words(argv) if "/" in word and not word.startswith("/") else typed


def refuse_scope(environ: Dict[str, str]) -> None:
    """OperatorError (exit 5) where `run --scope` would be refused in cron's `environ`, or where here is a Slurm job, which that
    launch would not be of."""
    if standing.is_in_slurm(standing.read_standing()):
        raise OperatorError("--scope: here is a Slurm job, and cron's launch would be outside of it, its accounts and its end",
                            "Submit the run as a job of its own: sbatch --begin", MACHINE, "session:scope")
    manager = managers.find_manager(environ)
    if manager.state != "ready":
        raise OperatorError("--scope: cron's launch would get no scope of its own: %s" % manager.reason, manager.cure, MACHINE,
                            "session:scope")


def refuse_secrets(options: Any, found: survey.Survey, secrets: Tuple[str, ...]) -> None:
    """OperatorError (exit 2): a crontab keeps what is in it, mails it, and cron shows it in the process table."""
    typed = tuple(found.plan.overrides)
    if redact_words(typed, secrets) != typed:
        raise OperatorError("what was typed holds a secret, and a crontab would keep it",
                            "Put it where the run reads it by itself: into the config, or a file that only you can read.", USAGE,
                            "secret")


def refuse_lasting(verdict: Verdict, where: str) -> None:
    """OperatorError (exit 1) where it is blocked, and not by what will have passed. `where`: words for which environment."""
    lasting = wait_free.list_lasting(verdict)
    if not lasting:
        return
    rows = [one for one in lasting if one.name != "preflight:fatal" or not is_count(one.detail)] or lasting
    fix = rows[0].fix if rows[0].fix != rows[0].detail else ""
    error = OperatorError("nothing to schedule%s: %s" % (where, "; ".join("%s  %s" % (one.name, one.detail) for one in rows)),
                          fix or "Mend it, then ask again.", BLOCKED, rows[0].name)
    error.shape = {"verdict": "NO", "blocking": list(verdict.blocking), "line": None}
    raise error


def refuse_questions(found: survey.Survey, choices: Choices, is_daily: bool) -> None:
    """OperatorError (exit 3): what `run` would ask, cron can't be asked. A name that is the same every day finds its own log
    there the second time."""
    plan = found.plan
    options = [one.option for one in confirm.find_questions(plan, found.board, found.is_visible, choices)]
    if is_daily and plan.train_log and not plan.name_is_volatile and not choices.old_log:
        options.append("--old-log keep|lose")
    if options:
        raise OperatorError("cron can't be asked, and this is unanswered: %s" % ", ".join(dict.fromkeys(options)),
                            "Give the answer here; it goes into the line.", NOT_CONFIRMED, "unanswered")


def refuse_launched(found: survey.Survey, cron: Cron, choices: Choices) -> None:
    """OperatorError (exit 3) for a plan that was launched already."""
    earlier = None if choices.again else records.find_launched(found.plan.root, cron.digest)
    if earlier:
        raise OperatorError("plan %s was launched already (%s); cron's launch would be refused" % (
            cron.digest, escape_controls(earlier["id"])), "To launch it once more: --again", NOT_CONFIRMED, "again")


def refuse_unsaved(found: survey.Survey, cron: Cron, options: Any) -> None:
    """OperatorError: how long an approval is good for is in the saved plan alone (exit 5), and one that is there and can't be
    read is no leave to launch (exit 3)."""
    path, reason = saved_plan.find_unreadable(found.plan.root, cron.digest)
    if path:
        raise OperatorError("plan %s was saved in %s, which can't be read (%s); cron's launch would be refused" % (
            cron.digest, escape_controls(path), escape_controls(reason)), "Move it away, then ask again.", NOT_CONFIRMED,
            "undated")
    if options.valid_for is not None and not cron.saved:
        raise OperatorError("--valid-for %s would be lost: the plan could not be kept in the checkout (%s)" % (
            format_elapsed(options.valid_for), escape_controls(cron.unsaved) or "why is not known"),
            "Leave it away; or have %s made a folder that you can write to." % escape_controls(
                os.path.join(found.plan.root, records.FOLDER, records.PLANS)), MACHINE, "save")
