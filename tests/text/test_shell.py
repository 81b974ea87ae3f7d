import os
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlrun.text import shell

WORDS = st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(words=WORDS)
def test_quoted_words_come_back_from_a_plain_shell(words):
    line = "printf '%s\\0' " + shell.quote_words(["x"] + words)
    done = subprocess.run(["sh", "-c", line], stdout=subprocess.PIPE, check=True)
    assert done.stdout == b"".join(os.fsencode(word) + b"\0" for word in ["x"] + words)


@pytest.mark.parametrize("name", ["A=b", "time", "if", "a b", "~", "$HOME", "!", "{"])
def test_the_first_word_is_a_program_whatever_it_looks_like(name, tmp_path):
    program = tmp_path / name
    program.write_text("#!/bin/sh\nprintf ran\n")
    program.chmod(0o755)
    done = subprocess.run(["sh", "-c", shell.quote_words([name, "x"])], stdout=subprocess.PIPE,
                          env={"PATH": "%s:/usr/bin:/bin" % tmp_path})
    assert done.stdout == b"ran"


def test_a_plain_command_stays_readable():
    assert shell.quote_words(["kill", "-INT", "--", "-4711"]) == "kill -INT -- -4711"
    assert shell.quote_words([]) == ""


@pytest.mark.parametrize("text,shown", [
    ("a\x1b[31mb", "a\\x1b[31mb"), ("x\r\ny\tz", "x\\r\\ny\\tz"), ("\x7f\x9b", "\\x7f\\x9b"), ("a\u202eb", "a\\u202eb"),
    ("\u200b", "\\u200b"), ("caf\udce9", "caf\\xe9"), ("\U000e0041", "\\U000e0041"), ("Läuf ✓ \\n", "Läuf ✓ \\n")])
def test_control_characters_are_shown_not_obeyed(text, shown):
    assert shell.escape_controls(text) == shown


def test_controls_that_are_to_stay_stay():
    assert shell.escape_controls("a\nb\x1b", keep="\n") == "a\nb\\x1b"


@given(text=st.text())
def test_nothing_a_terminal_would_obey_is_left(text):
    assert not any(ord(sign) < 32 or 127 <= ord(sign) < 160 for sign in shell.escape_controls(text))


@pytest.mark.parametrize("text,plain", [
    ("\x1b[1;32m✓ OK\x1b[0m  x", "✓ OK  x"), ("\x1b[K", ""), ("\x1b]0;title\x07a", "a"), ("\x1b]8;;u\x1b\\l", "l"),
    ("\x1b(Bx", "x"), ("\x1b[38;5;196mred", "red"), ("no colour [0m", "no colour [0m"), ("a\x1b", "a\x1b")])
def test_strip_colour(text, plain):
    assert shell.strip_colour(text) == plain
