"""What `run` does where nobody sits at the terminal: how old an approval may be, waiting for a free machine, telling somebody."""
import argparse
import functools
import os
import sys
from typing import Any, Callable, Dict, Optional, Tuple

from ..errors import MACHINE, USAGE, OperatorError
from ..host import standing
from ..steps import approval, record, survey
from ..text import terminal as term
from ..text.durations import parse_duration, write_duration
from ..text.redact import redact
from ..text.shell import escape_controls
from ..values import Choices
from . import asking
from . import options as shared

Watch = Callable[[Callable[[], bool]], None]
Look = Callable[[Callable[[], None]], survey.Survey]
After = Callable[[Dict[str, Any]], None]
_LEAST_LOOK_SECONDS = 0.2  # more often, it would be felt by the runs that are waited for


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `run` that are for cron and scripts."""
    group = parser.add_argument_group("unattended")
    group.add_argument("--plan", default="", metavar="FILE", help="the plan that the digest is of, as `check --save` keeps it: "
                       "what moved since is told from it")
    group.add_argument("--valid-for", type=parse_time, default=None, metavar="TIME", help="refuse an approval that is older, 12h "
                       "say, counted from `check --save`")
    group.add_argument("--wait-free", type=parse_time, default=None, metavar="TIME", help="wait so long, 6h say, until what only "
                       "time can lift is gone: a live run, a held GPU, a port; then go on as without")
    group.add_argument("--look-every", type=parse_look, default=30.0, metavar="TIME", help="while waiting (default: 30s, least "
                       "0.2s), less often where looks are dear")
    group.add_argument("--scope", action="store_true", help="in a scope of its own (systemd-run), where the end of the "
                       "login session does not reach")
    group.add_argument("--notify", default=None, metavar="COMMAND", help="run COMMAND at the first step's gate, at the first "
                       "stall, and when the run ends: told by RLRUN_* in its environment and by JSON on its input")
    group.add_argument("--notify-shell", action="store_true", help="COMMAND is a line for sh, not words")
    group.add_argument("--quiet-unless-failed", action="store_true", help="print nothing where it was launched, else one line; "
                       "all of it is kept in logs/rlrun/unattended.log")


def parse_time(word: str) -> float:
    """Seconds out of `90s`, `6h`, for argparse."""
    try:
        return parse_duration(word)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error))


def parse_look(word: str) -> float:
    """Seconds out of `30s`, for argparse; not less than a look may cost."""
    seconds = parse_time(word)
    if seconds < _LEAST_LOOK_SECONDS:
        raise argparse.ArgumentTypeError("%s is too often: looking would take the processor that the runs need; give 0.2s or more"
                                         % word)
    return seconds


def read_choices(options: Any, choices: Choices) -> Choices:
    """The choices, with what these options add. OperatorError (exit 2) for what can't be meant."""
    if (options.plan or options.valid_for is not None) and not options.confirm:
        raise OperatorError("--plan and --valid-for are about a digest that was approved", "Give it: --confirm DIGEST", USAGE,
                            "usage")
    words: Tuple[str, ...] = ()
    if options.notify is not None or options.notify_shell:
        from ..steps import notify
        words = notify.prepare(options.notify or "", options.notify_shell, dict(os.environ))
    return choices._replace(plan_file=options.plan, valid_seconds=options.valid_for, wait_seconds=options.wait_free,
                            look_seconds=options.look_every, notify=words, unattended=_list_words(options))


def _list_words(options: Any) -> Tuple[str, ...]:
    """These options again, for a line that is to do the same."""
    times = (("--valid-for", options.valid_for), ("--wait-free", options.wait_free))
    words = ["--plan", os.path.abspath(options.plan)] if options.plan else []
    words += [word for name, seconds in times if seconds is not None for word in (name, write_duration(seconds))]
    words += ["--notify", options.notify] if options.notify else []
    return tuple(words + ["--" + name.replace("_", "-") for name in ("scope", "notify_shell", "quiet_unless_failed")
                          if getattr(options, name)])


def enter_scope(is_asked_for: bool) -> Any:
    """Goes into a scope of its own where that is asked for, by starting this rlrun again in it; gives what is known of the scope
    once that is so, None where none was asked for. OperatorError (exit 5) where there can be none."""
    from ..steps import scope
    entered, was_marked = scope.take_marker(os.environ)
    if is_asked_for and entered is None:
        if was_marked:
            raise scope.refuse_another()
        if standing.is_in_slurm(standing.read_standing()):
            raise OperatorError("--scope would take the run out of its Slurm job, and so off what Slurm accounts for and ends",
                                "Leave --scope away, or submit the run as a job of its own.", MACHINE, "session:scope")
        scope.enter(sys.argv[1:], dict(os.environ), shared.list_program())
    return entered


def wait_until_free(found: survey.Survey, look: Look, where: shared.Where, choices: Choices, environ: Dict[str, str],
                    secrets: Tuple[str, ...], terminal: term.Terminal) -> Tuple[survey.Survey, Callable[[], None]]:
    """The survey of a machine that is free, and what leaves the queue. What can be refused before the wait is refused now."""
    from ..steps import wait_free, waiters
    ends = waiters.read_clock() + (choices.wait_seconds or 0.0)
    ticket: Optional[waiters.Ticket] = None
    try:
        while not wait_free.list_lasting(found.verdict):
            asking.check_answers(found, where, choices, secrets, terminal)
            # The place in the queue is kept where somebody else was quicker in between.
            ticket = wait_free.wait(found, environ, max(0.0, ends - waiters.read_clock()), choices.look_seconds,
                                    functools.partial(_tell_waiting, terminal, secrets), ticket,
                                    functools.partial(approval.refuse_launched, found, choices))
            if not ticket.has_waited:
                break
            found = look(lambda: None)
            if not found.verdict.blocking or waiters.read_clock() >= ends:
                break
    except BaseException:
        if ticket is not None:
            waiters.leave(ticket)
        raise
    return found, functools.partial(waiters.leave, ticket) if ticket is not None else lambda: None


def _tell_waiting(terminal: term.Terminal, secrets: Tuple[str, ...], words: str) -> None:
    term.print_note(terminal, escape_controls(redact(words, secrets)))


def order_notify(found: survey.Survey, choices: Choices, environ: Dict[str, str], secrets: Tuple[str, ...],
                 paths: record.Paths) -> Tuple[Optional[Watch], Optional[After]]:
    """What the keeper calls beside the run and after it, where somebody is to be told."""
    if not choices.notify:
        return None, None
    from ..steps import notify
    order = notify.Order(choices.notify, environ, found.plan.root, paths.record, secrets)
    return functools.partial(notify.watch, order), functools.partial(notify.tell_end, order)
