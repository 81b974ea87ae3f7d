"""Step 0: which checkout, which config, which kind; and the question at a terminal."""
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable, Dict, List, Tuple

import pytest
from checkouts import add_config, build_checkout

BODY = (
    "PROJECT_NAME=toy\nEXP_NAME=mine\nTEMPLATE_MODULES=(runtime/process.env backend/k8s.env harbor/common.env verl/common.env)\n"
)


@pytest.fixture
def checkout(tmp_path: Path) -> str:
    return build_checkout(tmp_path / "checkout")


def title(done: "subprocess.CompletedProcess[str]") -> str:
    return done.stdout.split("\n")[0]


@pytest.mark.parametrize("word", ["pinned", "pinned.env", "configs/pinned", "train/configs/pinned.env",
                                  "scripts/train/configs/pinned.env", "./scripts/train/configs/../configs/pinned.env"])
def test_one_config_by_many_words(run_pyz, shared_checkout: str, word: str) -> None:
    done = run_pyz(["check", word], cwd=shared_checkout)
    assert "train · pinned.env" in title(done), done.stderr


def test_every_kind_and_folder(run_pyz, shared_checkout: str) -> None:
    for word, words in (("demo_eval", "eval · demo_eval.env"), ("demo_infer", "infer · demo_infer.env"),
                        ("first_run", "train · first_run.env")):
        assert words in title(run_pyz(["check", word], cwd=shared_checkout))


def test_templates_folder_of_older_checkouts(run_pyz, checkout: str) -> None:
    os.makedirs(checkout + "/scripts/eval/templates")
    Path(checkout, "scripts/eval/templates/old.env").write_text(
        Path(checkout, "scripts/eval/configs/demo_eval.env").read_text())
    assert "eval · old.env" in title(run_pyz(["check", "old"], cwd=checkout))
    assert "scripts/eval/templates/old.env" in run_pyz(["configs"], cwd=checkout).stdout


@pytest.mark.parametrize("inside", ["scripts", "scripts/train/configs", "model/Toy-Dense"])
def test_root_from_below(run_pyz, shared_checkout: str, inside: str) -> None:
    assert "pinned.env" in title(run_pyz(["check", "pinned"], cwd=os.path.join(shared_checkout, inside)))


def test_root_from_the_config(run_pyz, shared_checkout: str, tmp_path: Path) -> None:
    done = run_pyz(["check", shared_checkout + "/scripts/train/configs/pinned.env", "--json"], cwd=tmp_path)
    assert '"root": "%s"' % shared_checkout in done.stdout


def test_root_option_wins_over_the_working_directory(run_pyz, shared_checkout: str, checkout: str) -> None:
    done = run_pyz(["check", "pinned", "--root", checkout, "--json"], cwd=shared_checkout)
    assert '"root": "%s"' % checkout in done.stdout


def test_root_option_relative_and_through_a_link(run_pyz, checkout: str, tmp_path: Path) -> None:
    os.symlink(checkout, str(tmp_path / "link"))
    for root in ("link", "link/", "checkout/../link/."):
        assert '"root": "%s"' % checkout in run_pyz(["configs", "--root", root, "--json"], cwd=tmp_path).stdout


def test_word_that_is_a_file_here_and_a_name_there(run_pyz, checkout: str) -> None:
    """A path that exists is the path."""
    Path(checkout, "pinned").write_text("TRAINING_MODE=sync\n" + BODY)
    done = run_pyz(["check", "pinned", "--json"], cwd=checkout)
    assert '"config": "pinned"' in done.stdout


def test_name_of_a_folder_here_is_still_a_name(run_pyz, checkout: str) -> None:
    os.mkdir(checkout + "/pinned")
    assert "train · pinned.env" in title(run_pyz(["check", "pinned"], cwd=checkout))


def test_config_outside_of_the_checkout(run_pyz, checkout: str, tmp_path: Path) -> None:
    (tmp_path / "mine.env").write_text("TRAINING_MODE=sync\n" + BODY)
    done = run_pyz(["check", "../mine.env", "--json"], cwd=checkout)
    assert '"config": "%s/mine.env"' % tmp_path in done.stdout and '"kind": "train"' in done.stdout


def test_similar_names_are_listed_first(run_pyz, shared_checkout: str) -> None:
    done = run_pyz(["check", "two_node"], cwd=shared_checkout)
    assert done.returncode == 2 and "two_nodes.env" in done.stderr and "bad_utf8" not in done.stderr


def test_unlike_names_list_all(run_pyz, shared_checkout: str) -> None:
    done = run_pyz(["check", "zzzzzzzz", "--kind", "eval"], cwd=shared_checkout)
    assert done.returncode == 2 and "demo_eval.env" in done.stderr and "train" not in done.stderr


def test_ambiguous_within_one_kind(run_pyz, checkout: str) -> None:
    Path(checkout, "scripts/train/examples/pinned.env").write_text(BODY)
    done = run_pyz(["check", "pinned"], cwd=checkout)
    assert done.returncode == 2 and "1. train" in done.stderr and "2. train" in done.stderr and done.stdout == ""
    assert "examples/pinned.env" in done.stderr
    assert "pinned.env" in title(run_pyz(["check", "examples/pinned"], cwd=checkout))


@pytest.mark.parametrize("line, kind", [("TRAINING_MODE=sync", "train"), ("export N_NODES_ROLLOUT=1", "train"), (
    ': "${TRAIN_MODE:=sync}"', "train")])
def test_kind_by_each_name(run_pyz, checkout: str, tmp_path: Path, line: str, kind: str) -> None:
    (tmp_path / "mine.env").write_text("%s\n%s" % (line, BODY))
    assert '"kind": "%s"' % kind in run_pyz(["check", tmp_path / "mine.env", "--json"], cwd=checkout).stdout


def test_kind_by_path_wins_over_names(run_pyz, checkout: str) -> None:
    add_config(checkout, "train", "mine", "DATASET_PATH=/x\n" + BODY)
    assert '"kind": "train"' in run_pyz(["check", "mine", "--json"], cwd=checkout).stdout


# ---- at a terminal

def converse(argv: List[str], cwd: str, env: Dict[str, str], answers: List[Tuple[str, bytes]]) -> Tuple[int, str]:
    """Runs it on a pseudo terminal of its own; each answer is typed once its words have been shown."""
    pid, fd = pty.fork()
    if pid == 0:
        try:
            os.chdir(cwd)
            os.execve(argv[0], argv, env)
        finally:
            os._exit(127)
    shown, waiting = b"", list(answers)
    mark = 0
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if waiting and waiting[0][0].encode() in shown[mark:]:
            mark = len(shown)
            os.write(fd, waiting.pop(0)[1])
        ready = select.select([fd], [], [], 0.1)[0]
        if ready:
            try:
                chunk = os.read(fd, 65536)
            except OSError:
                break
            if not chunk:
                break
            shown += chunk
    status = os.waitpid(pid, 0)[1]
    os.close(fd)
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status), shown.decode("utf-8", "replace")


@pytest.fixture
def talk(pyz: str, clean_env: Dict[str, str], checkout: str) -> Callable[..., Tuple[int, str]]:
    Path(checkout, "scripts/train/examples/pinned.env").write_text(BODY)
    env = dict(clean_env, TERM="dumb")
    return lambda words, answers: converse([sys.executable, pyz] + words, checkout, env, answers)


def test_question_is_answered_by_a_number(talk) -> None:
    code, shown = talk(["check", "pinned"], [("Which one? [1-2]", b"2\r")])
    assert code in (0, 1) and "check — train · pinned.env" in shown and "mine" in shown


def test_question_is_asked_twice_and_no_more(talk) -> None:
    code, shown = talk(["check", "pinned"], [("Which one?", b"7\r"), ("Which one?", b"x\r")])
    assert code == 2 and "no config was chosen" in shown and shown.count("Which one?") == 2


def test_a_digit_that_is_no_number_is_no_answer(talk) -> None:
    code, shown = talk(["check", "pinned"], [("Which one?", "²\r".encode()), ("Which one?", b"9" * 5000 + b"\r")])
    assert code == 2 and "no config was chosen" in shown and "a bug" not in shown


@pytest.mark.parametrize("key", [b"\r", b"\x04"])
def test_question_is_not_answered(talk, key: bytes) -> None:
    code, shown = talk(["check", "pinned"], [("Which one?", key)])
    assert code == 2 and "no config was chosen" in shown and "SAFE TO RUN" not in shown


def test_question_is_interrupted(talk) -> None:
    code, shown = talk(["check", "pinned"], [("Which one?", b"\x03")])
    assert code == 130 and "interrupted" in shown and "Traceback" not in shown


def test_question_for_an_absent_config(talk) -> None:
    code, shown = talk(["check"], [("Which one?", b"1\r")])
    assert code in (0, 1) and "check — train" in shown


def test_json_goes_with_a_question_on_stderr_only(run_pyz, checkout: str) -> None:
    Path(checkout, "scripts/train/examples/pinned.env").write_text(BODY)
    done = run_pyz(["check", "pinned", "--json"], cwd=checkout, input="1\n")
    assert done.returncode == 2 and '"exit": 2' in done.stdout and "Which one?" not in done.stdout + done.stderr
