"""The operator's answers: what is a yes, what is asked, and the line that answers it all."""
import shlex

import pytest
from steps.made import make_plan

from rlrun.errors import OperatorError
from rlrun.steps import confirm
from rlrun.values import Board, Choices

NONE = Choices("", False, "", "", "")
NO_BOARD = Board(0, None, (), 0)


@pytest.mark.parametrize("line", ["y", "Y", "yes", "YES", " yes ", "Yes\t"])
def test_yes(line):
    assert confirm.read_yes(line, False) is True and confirm.read_yes(line, True) is True


@pytest.mark.parametrize("line", ["", " ", "n", "no", "NO", None])
def test_no(line):
    assert confirm.read_yes(line, False) is False


@pytest.mark.parametrize("line", ["yep", "yes please", "j", "1", "true", "ok", "ye", "y y", "\u0443", "yy", "Launch"])
def test_neither_is_asked_once_more_and_then_no(line):
    assert confirm.read_yes(line, False) is None and confirm.read_yes(line, True) is False


@pytest.mark.parametrize(
    "line, mode",
    [
        ("", "background"),
        ("b", "background"),
        ("[B]", "background"),
        ("F", "foreground"),
        ("foreground", "foreground"),
        ("x", None),
        (None, confirm.STOP),
    ],
)
def test_mode(line, mode):
    assert confirm.read_mode(line) == mode


@pytest.mark.parametrize("word", ["3f9c2a71", " 3F9C2A71\n"])
def test_digest_is_read(word):
    assert confirm.check_digest(word) == "3f9c2a71"


@pytest.mark.parametrize("word", ["", "3f9c2a7", "3f9c2a711", "yes", "3f9c2a7g", "3f9c2a71\x00", "\uff13f9c2a71"])
def test_no_digest(word):
    with pytest.raises(OperatorError) as caught:
        confirm.check_digest(word)
    assert caught.value.code == 2


def test_no_question_where_the_board_shows_it_and_nothing_is_overwritten():
    assert confirm.find_questions(make_plan(), NO_BOARD, True, NONE) == []


def test_board_question_without_a_board():
    (question,) = confirm.find_questions(make_plan(), NO_BOARD, False, NONE)
    assert question.name == "board" and set(question.answers.values()) == {"leave", confirm.STOP}
    assert "no board runs" in "\n".join(question.text) and "/c/logs/e.log" in "\n".join(question.text)


def test_board_question_with_a_board(tmp_path):
    (question,) = confirm.find_questions(make_plan(root=str(tmp_path)), Board(7, 8090, (str(tmp_path),), 0), False, NONE)
    assert question.answers == {"1": "link", "2": "leave", "3": confirm.STOP} and "pid=7, port=8090" in "\n".join(question.text)
    assert confirm.read_choice(question, " [1] ") == "link" and confirm.read_choice(question, "Leave") == "leave"
    assert confirm.read_choice(question, "") is None and confirm.read_choice(question, "4") is None
    assert confirm.read_choice(question, None) == confirm.STOP


def test_answers_given_on_the_command_line_are_not_asked_for():
    assert confirm.find_questions(make_plan(), NO_BOARD, False, NONE._replace(board="leave")) == []


def test_link_without_a_board_is_refused():
    with pytest.raises(OperatorError) as caught:
        confirm.find_questions(make_plan(), NO_BOARD, False, NONE._replace(board="link"))
    assert caught.value.code == 3 and "--board leave" in caught.value.hint


def test_old_log_question(tmp_path):
    (tmp_path / "e.log").write_text("step:1\n")
    plan = make_plan(train_log=str(tmp_path / "e.log"))
    (question,) = confirm.find_questions(plan, NO_BOARD, True, NONE)
    assert question.option == "--old-log keep|lose" and set(question.answers.values()) == {"keep", "lose", confirm.STOP}
    # A log that is there is there, whatever is thought of the name.
    assert len(confirm.find_questions(plan._replace(name_is_volatile=True), NO_BOARD, True, NONE)) == 1
    (tmp_path / "e.log").write_text("")
    assert confirm.find_questions(plan, NO_BOARD, True, NONE) == []


def test_line_that_answers_everything(tmp_path):
    (tmp_path / "e.log").write_text("step:1\n")
    plan = make_plan(train_log=str(tmp_path / "e.log"), overrides=("a b=c", "$x"))
    questions = confirm.find_questions(plan, NO_BOARD, False, NONE)
    line = confirm.describe_confirm_line(plan, "3f9c2a71", questions, NONE, ["two words.env"], "/opt/rlrun.pyz")
    assert shlex.split(line) == [
        "/opt/rlrun.pyz",
        "run",
        "two words.env",
        "--confirm",
        "3f9c2a71",
        "--board",
        "leave",
        "--old-log",
        "keep",
        "--",
        "a b=c",
        "$x",
    ]


def test_refusals_have_their_exit_code():
    plan = make_plan()
    question = confirm.find_questions(plan, NO_BOARD, False, NONE)
    assert (
        confirm.refuse_unanswered(question, "the line").code == 3
        and "the line" in confirm.refuse_unanswered(question, "the line").hint
    )
    assert confirm.refuse_again({"digest": "x", "id": "y"}, 5.0).code == 3
