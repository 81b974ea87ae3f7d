"""Step 3: the operator's answers. What is asked, what an answer means, what a missing one costs; nothing is printed here."""
import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ..errors import NOT_CONFIRMED, USAGE, OperatorError
from ..stacks import load_stack
from ..text.durations import format_age, format_bytes
from ..text.redact import redact_words
from ..text.shell import escape_controls, quote_assignment, quote_words
from ..values import Board, Choices, Plan
from . import judge_config
from .board import pick_served

# 3f9c2a71
_DIGEST = re.compile(r"[0-9a-f]{8}\Z")
STOP = "stop"


class Question(NamedTuple):
    """A question with numbered answers. `option` answers it on the command line; `answers` maps what is typed."""

    name: str
    text: Tuple[str, ...]
    option: str
    answers: Dict[str, str]


def find_questions(plan: Plan, board: Board, is_visible: bool, choices: Choices) -> List[Question]:
    """What must be answered before the yes: the board, where it would not show the run, and an earlier run's log."""
    questions = []
    if plan.train_log and plan.has_board and not is_visible and not choices.board:
        questions.append(_ask_board(plan, board))
    if choices.board == "link" and not plan.has_board:
        raise OperatorError("--board link: %s has no board to link into" % load_stack(plan.stack).TITLE, "Leave it away.", USAGE,
                            "board")
    if choices.board == "link" and not is_visible and not pick_served(board, plan.root):
        raise OperatorError("--board link: %s" % ("no board runs on this machine" if not board.pid else
                                                 "no directory that the board serves can be written: %s"
                                                 % " ".join(board.served)),
                            "--board leave launches without; or start the board first.", NOT_CONFIRMED, "board")
    size = judge_config.old_log_size(plan)
    if size and not choices.old_log:
        questions.append(Question("old-log", (
            "The launch truncates the log of an earlier run (%s):" % format_bytes(size), "  %s" % plan.train_log, "",
            "  [1] keep a copy of it in this launch's record",
            "  [2] lose it", "  [3] stop and pin another name in the config"),
            "--old-log keep|lose", {"1": "keep", "2": "lose", "3": STOP}))
    return questions


def _ask_board(plan: Plan, board: Board) -> Question:
    log = "This config writes its training log to\n  %s" % plan.train_log
    answers = {"2": "leave", "3": STOP}
    lines: List[str] = []
    if board.pid:
        lines += ["but the board (pid=%d, port=%s) is serving" % (board.pid, board.port or "unknown"),
                  "  %s" % (" ".join(board.served) or "unknown"),
                  "It shows one level of that directory, so this run will never appear on it",
                  "(training itself is unaffected)."]
    else:
        lines.append("and no board runs on this machine (training itself is unaffected).")
    served = pick_served(board, plan.root)
    if served:
        answers["1"] = "link"
        lines += ["", "  [1] link it into %s once the log exists (no restart of the board; recommended)" % served]
    lines += ([] if served else [""]) + ["  [2] leave it", "  [3] stop, and change the config or start a board first"]
    return Question("board", tuple(log.split("\n") + lines), "--board %s" % ("link|leave" if served else "leave"), answers)


def read_choice(question: Question, line: Optional[str]) -> Optional[str]:
    """What a typed line means: an answer, "stop" at the end of input, None where it must be asked again."""
    if line is None:
        return STOP
    word = line.strip().strip("[]").lower()
    return question.answers.get(word) or (word if word in question.answers.values() else None)


def read_yes(line: Optional[str], is_second: bool) -> Optional[bool]:
    """Only y and yes are yes; Enter, n, the end of input and a second word that is neither are no; None asks again."""
    word = "" if line is None else line.strip().lower()
    if word in ("y", "yes"):
        return True
    if word in ("", "n", "no") or is_second:
        return False
    return None


def read_mode(line: Optional[str]) -> Optional[str]:
    """Enter and b are background, f is foreground; None asks again. The end of input stops."""
    if line is None:
        return STOP
    word = line.strip().strip("[]").lower()
    if word in ("", "b", "background"):
        return "background"
    return "foreground" if word in ("f", "foreground") else None


def check_digest(word: str) -> str:
    """The digest as it is compared. Raises OperatorError (exit 2) for what can't be one."""
    if not _DIGEST.match(word.strip().lower()):
        raise OperatorError("--confirm takes the eight hex digits that `rlrun check` prints, not %r" % word,
                            "rlrun check CONFIG prints them.", USAGE, "digest")
    return word.strip().lower()


def refuse_again(earlier: Dict[str, Any], age_seconds: float) -> OperatorError:
    """This very plan was launched already, and the yes was given for one launch."""
    return OperatorError("plan %s was launched already, %s (%s); nothing was launched"
                         % (earlier.get("digest"), format_age(age_seconds), escape_controls(str(earlier.get("id")))),
                         "To launch it once more: --again", NOT_CONFIRMED, "again")


def refuse_unanswered(questions: List[Question], line: str) -> OperatorError:
    """No terminal to ask at, and answers are missing."""
    return OperatorError("nobody can be asked here, and %s unanswered: %s; nothing was launched" % (
        "a question is" if len(questions) == 1 else "questions are", ", ".join(one.option for one in questions)),
        "Give the answer on the command line: %s" % line, NOT_CONFIRMED, "unanswered")


def describe_confirm_line(plan: Plan, value: str, questions: List[Question], choices: Choices, config_words: List[str],
                          program: str, command: str = "run", secrets: Tuple[str, ...] = ()) -> str:
    """The exact line that launches this plan where nobody can be asked; `config_words` name the config, `program` is how
    rlrun is started, shell-safe; a secret among the overrides is not in it."""
    words = [command] + config_words + ["--confirm", value]
    if choices.again:
        words.append("--again")
    if choices.mode == "foreground":
        words.append("--foreground")
    given = {"board": choices.board, "old-log": choices.old_log}
    for question in questions:
        given[question.name] = "link" if "link" in question.answers.values() else \
            "keep" if question.name == "old-log" else "leave"
    for name in ("board", "old-log"):
        if given[name]:
            words += ["--" + name, given[name]]
    words += redact_words(choices.unattended, secrets)
    shown = redact_words(plan.overrides, secrets)  # a key that was typed is not shown: it has to be typed again
    rest = " -- " + quote_words(shown) if plan.overrides and command == "run" else ""
    before = "".join(quote_assignment(word) + " " for word in plan.from_environ)
    return before + program + " " + quote_words(words) + rest
