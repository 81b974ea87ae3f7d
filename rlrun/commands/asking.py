"""The questions before a launch, and the options that answer them. What an answer means is steps/confirm's."""
import time
from typing import List, NamedTuple, Tuple

from ..errors import NOT_CONFIRMED, OperatorError
from ..steps import approval, confirm, judge_config, records, survey
from ..text import terminal as term
from ..text.shell import escape_controls
from ..values import Choices
from . import options as shared


class Answers(NamedTuple):
    """What the operator has answered; empty is "was not asked"."""

    mode: str
    board: str
    old_log: str


def confirm_launch(found: survey.Survey, where: shared.Where, choices: Choices, secrets: Tuple[str, ...],
                   terminal: term.Terminal) -> Answers:
    """Asks all that is not answered. OperatorError (exit 3) where the answer is no, or nobody can be asked; nothing is launched
    then."""
    plan = found.plan
    questions = check_answers(found, where, choices, secrets, terminal)
    given = {"board": choices.board, "old-log": choices.old_log}
    term.forget_typed()  # an answer that was typed before the plan was shown is none
    for question in questions:
        given[question.name] = _ask_choice(question, terminal)
    if not choices.confirm:
        _ask_yes(found, terminal)
        _ask_name(found, terminal)
    mode = choices.mode or ("background" if choices.confirm or plan.is_submission else _ask_mode(terminal))
    board = "" if found.is_visible else given["board"]
    return Answers(mode, board, given["old-log"] if judge_config.old_log_size(plan) else "")


def check_answers(found: survey.Survey, where: shared.Where, choices: Choices, secrets: Tuple[str, ...],
                  terminal: term.Terminal) -> List[confirm.Question]:
    """What must still be asked. OperatorError (exit 3) where that can't be, or where the digest that was given is another
    plan's: it is known before any waiting."""
    plan = found.plan
    questions = confirm.find_questions(plan, found.board, found.is_visible, choices)
    if choices.confirm:
        look = shared.name_again("export" if where.again else "check", where, plan, secrets)
        approval.check_confirmed(found, choices, look, secrets, time.time())
    earlier = records.find_launched(plan.root, found.fingerprint.digest)
    is_again = choices.again or earlier is not None
    line = confirm.describe_confirm_line(plan, found.fingerprint.digest, questions, choices._replace(again=is_again),
                                         shared.name_config(where, plan), shared.name_program(), where.command, secrets)
    if not terminal.is_interactive:
        if not choices.confirm:
            known = "; this very plan was launched before: %s" % earlier["id"] if earlier else ""
            error = OperatorError("not confirmed: nobody can be asked here; nothing was launched%s" % known,
                                  "If the plan above is right:\n  %s" % line, NOT_CONFIRMED, "not-confirmed")
            error.shape = {"digest": found.fingerprint.digest, "line": line}
            raise error
        if questions:
            raise confirm.refuse_unanswered(questions, line)
    return questions


def _ask_choice(question: confirm.Question, terminal: term.Terminal) -> str:
    term.tell(terminal, "\n" + "\n".join(escape_controls(line) for line in question.text))
    for _ in range(3):
        answer = confirm.read_choice(question, term.ask(terminal, "Which one? "))
        if answer == confirm.STOP:
            break
        if answer:
            return answer
    raise OperatorError("stopped; nothing was launched", "On the command line: %s" % question.option, NOT_CONFIRMED, "stopped")


def _ask_yes(found: survey.Survey, terminal: term.Terminal) -> None:
    earlier = records.find_launched(found.plan.root, found.fingerprint.digest)
    if earlier:
        term.tell(terminal, "\nThis very plan was launched before: %s" % earlier.get("id"))
    for is_second in (False, True):
        answer = confirm.read_yes(term.ask(terminal, "\nLaunch with this configuration? [y/N] "), is_second)
        if answer:
            return
        if answer is False:
            break
    raise OperatorError("not launched", "Edit the config, then run this again.", NOT_CONFIRMED, "answered-no")


def _ask_name(found: survey.Survey, terminal: term.Terminal) -> None:
    """A launch that deletes a directory takes more than a yes: its name. A digest says as much: it names the paths."""
    plan = found.plan
    if not plan.typed_name:
        return
    line = term.ask(terminal, "\nThis launch deletes %s and all that is in %s.\nType the run's name, %s, to go on: " % (
        escape_controls(" and ".join(path.path for path in found.sweep.paths) or plan.run_dir),
        "it" if len(found.sweep.paths) < 2 else "them", escape_controls(plan.typed_name)))
    if line is None or line.strip() != plan.typed_name:
        raise OperatorError("not launched: the directory's name was not typed, and nothing was deleted",
                            "Leave away what deletes it, or take another name for the run.", NOT_CONFIRMED, "answered-no")


def _ask_mode(terminal: term.Terminal) -> str:
    for _ in range(3):
        mode = confirm.read_mode(term.ask(terminal, "Launch mode? [B]ackground (default) / [F]oreground "))
        if mode == confirm.STOP:
            break
        if mode:
            return mode
    raise OperatorError("no launch mode was chosen; nothing was launched", "On the command line: --background or --foreground",
                        NOT_CONFIRMED, "stopped")
