"""What a command line runs: the script of an interpreter, the module of `-m`. By word, never by substring."""
import os
import re
from typing import NamedTuple, Sequence

# bash, dash, sh, zsh, ksh, with a version or a login shell's dash in front
_SHELL = re.compile(r"^-?(ba|da|z|k|a|)sh[0-9.]*$")
# python, python3, python3.11, pypy3, ray's `python3.10-dbg`
_PYTHON = re.compile(r"^(python|pypy)[0-9.]*(-dbg|t|d)?$")
_SHELL_OPTIONS_WITH_VALUE = ("-o", "+o", "-O", "+O", "--rcfile", "--init-file")
_PYTHON_OPTIONS_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")


class Run(NamedTuple):
    """What an interpreter runs: `language` is "shell", "python" or "" (not an interpreter, or `-c` text, or a prompt)."""

    language: str
    script: str  # as written
    module: str  # of `-m`
    arguments: Sequence[str]


NOTHING = Run("", "", "", ())


def read_run(argv: Sequence[str]) -> Run:
    """What these words run. Text given with `-c` is never a script, whatever it mentions."""
    if not argv:
        return NOTHING
    name = os.path.basename(argv[0])
    if _SHELL.match(name):
        return _read_shell(argv)
    if _PYTHON.match(name):
        return _read_python(argv)
    return NOTHING


def _read_shell(argv: Sequence[str]) -> Run:
    place = 1
    while place < len(argv):
        word = argv[place]
        if word in ("--", "-"):
            place += 1
            break
        if word in _SHELL_OPTIONS_WITH_VALUE:
            place += 2
            continue
        if not word.startswith(("-", "+")):
            break
        if not word.startswith("--") and word.startswith("-") and ("c" in word or "s" in word):
            return NOTHING
        # -euo pipefail: an o in the cluster takes the next word
        place += 2 if not word.startswith("--") and ("o" in word or "O" in word) else 1
    if place >= len(argv):
        return NOTHING
    return Run("shell", argv[place], "", tuple(argv[place + 1:]))


def _read_python(argv: Sequence[str]) -> Run:
    place = 1
    while place < len(argv):
        word = argv[place]
        if word in _PYTHON_OPTIONS_WITH_VALUE:
            place += 2
            continue
        if word == "--":
            place += 1
            break
        if not word.startswith("-") or word == "-":
            break
        if word.startswith("--"):
            place += 1
            continue
        for position, letter in enumerate(word[1:], 1):  # -um module, -mmodule, -c text
            if letter == "c":
                return NOTHING
            if letter == "m":
                module = word[position + 1:] or (argv[place + 1] if place + 1 < len(argv) else "")
                rest = place + (1 if word[position + 1:] else 2)
                return Run("python", "", module, tuple(argv[rest:]))
            if letter in "WX":
                break
        place += 1
    if place >= len(argv) or argv[place] == "-":
        return NOTHING
    return Run("python", argv[place], "", tuple(argv[place + 1:]))
