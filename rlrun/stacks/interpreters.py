"""What a command line runs: the script of an interpreter, the module of `-m`. By word, never by substring."""
import os
import re
from typing import NamedTuple, Sequence, Tuple

# bash, dash, sh, zsh, ksh, with a version or a login shell's dash in front
_SHELL = re.compile(r"^-?(ba|da|z|k|a|)sh[0-9.]*$")
# python, python3, python3.11, pypy3, ray's `python3.10-dbg`
_PYTHON = re.compile(r"^(python|pypy)[0-9.]*(-dbg|t|d)?$")
_SHELL_OPTIONS_WITH_VALUE = ("-o", "+o", "-O", "+O", "--rcfile", "--init-file")
_PYTHON_OPTIONS_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
# Options with which a shell only reads its script, or not even that.
_SHELL_OPTIONS_WITHOUT_RUN = ("--help", "--version", "--dump-strings", "--dump-po-strings")
# Of `uv` and `uv run` (0.13): all that take the next word; an unknown one is taken for a switch.
_UV_OPTIONS_WITH_VALUE = frozenset(
    "--extra --no-extra --group --no-group --only-group --no-editable-package --env-file --with --with-editable "
    "--with-requirements --package --python-platform --index --default-index --index-url --extra-index-url --find-links "
    "--index-strategy --keyring-provider --upgrade-package --upgrade-group --resolution --prerelease --prerelease-package "
    "--fork-strategy --exclude-newer --exclude-newer-package --no-sources-package --reinstall-package --link-mode "
    "--config-setting --config-settings-package --no-build-isolation-package --no-build-package --no-binary-package "
    "--cache-dir --refresh-package --python --color --allow-insecure-host --directory --project --config-file "
    "-w -i -f -P -C -p".split())
# Of torchrun: all that take no value (torch/distributed/run.py); -m says that what it runs is a module.
_TORCHRUN_SWITCHES = ("-m", "--module", "--standalone", "--no-python", "--no_python", "--run-path", "--run_path",
                      "--use-env", "--use_env")
_TORCHRUN_MODULES = ("torch.distributed.run", "torch.distributed.launch")


class Run(NamedTuple):
    """What an interpreter runs: `language` is "shell", "python" or "" (not an interpreter, or `-c` text, or a prompt);
    of `read_launched` also "command"."""

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
        if word in _SHELL_OPTIONS_WITHOUT_RUN or (word.startswith("-") and "noexec" in argv[place + 1:place + 2]):
            return NOTHING
        if word in _SHELL_OPTIONS_WITH_VALUE:
            place += 2
            continue
        if not word.startswith(("-", "+")):
            break
        if not word.startswith("--") and word.startswith("-") and ("c" in word or "s" in word or "n" in word):
            return NOTHING  # -n: the script is only read
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


def read_launched(argv: Sequence[str]) -> Run:
    """What these words run in the end, where `uv run` or torchrun stands in front. A command that uv takes from the
    environment (`uv run rl @ x.toml`) has language "command" and its name as the script."""
    words = tuple(argv)
    is_command = False
    if words and os.path.basename(words[0]) == "uv":
        words, run = _read_uv(words[1:])
        if run.module:
            return _skip_torchrun(run)
        is_command = bool(words)
    run = read_run(words)
    if is_command and not run.language and not _is_interpreter(words[0]):
        run = Run("command", words[0], "", words[1:])
    return _skip_torchrun(run)


def _is_interpreter(word: str) -> bool:
    name = os.path.basename(word)
    return bool(_SHELL.match(name) or _PYTHON.match(name))


def _read_uv(words: Sequence[str]) -> Tuple[Tuple[str, ...], Run]:
    """(the words of the command, NOTHING) of what follows `uv`, or ((), what its own -m runs)."""
    has_run = False
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        if word == "--":
            break
        if has_run and word in ("-m", "--module") and place < len(words):
            return (), Run("python", "", words[place], tuple(words[place + 1:]))
        if word in _UV_OPTIONS_WITH_VALUE:
            place += 1
        elif not word.startswith("-"):
            if has_run:
                place -= 1
                break
            if word != "run":
                return (), NOTHING
            has_run = True
    return (tuple(words[place:]) if has_run else ()), NOTHING


def _skip_torchrun(run: Run) -> Run:
    """What torchrun starts on each rank, if this is torchrun; else the same."""
    if os.path.basename(run.script) != "torchrun" and run.module not in _TORCHRUN_MODULES:
        return run
    words = tuple(run.arguments)
    is_module = False
    place = 0
    while place < len(words) and words[place].startswith("-"):
        is_module = is_module or words[place] in ("-m", "--module")
        has_value = words[place] not in _TORCHRUN_SWITCHES and "=" not in words[place]
        place += 1
        if has_value and place < len(words) and not words[place].startswith("-"):
            place += 1
    if place >= len(words):
        return NOTHING
    rest = words[place + 1:]
    return Run("python", "", words[place], rest) if is_module else Run("python", words[place], "", rest)
