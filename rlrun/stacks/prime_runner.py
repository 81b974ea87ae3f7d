"""prime-rl: what its commands are started with on this node, so that checking and launching change no environment."""
import os
import shutil
from typing import Dict, NamedTuple, Tuple

from ..errors import MACHINE, OperatorError
from ..text.shell import quote_words
from .prime_config import find_python, find_venv

# Where uv's own installer puts it; cron's PATH has neither (E1).
_UV_FOLDERS = ("~/.local/bin", "~/.cargo/bin")


class Runner(NamedTuple):
    """How a command is started: its first words, the folder to put first on PATH, and why, in words."""

    argv: Tuple[str, ...]
    path_first: str
    words: str


def choose(root: str, kind: str, environ: Dict[str, str], asked: Tuple[str, ...]) -> Runner:
    """The start of the command for a kind. `asked`: what --runner says. OperatorError (exit 5) where this node has none.

    `uv run` alone would bring the environment in line with the lock file first: fetch, build, change what other runs use
    (C11). With --no-sync it is used as it is.
    """
    python, venv = find_python(root, environ), find_venv(root, environ)
    if not os.access(python, os.X_OK):
        raise OperatorError("this checkout has no environment: no %s" % python, "Make it, where there is a network: cd %s && uv "
                            "sync --all-extras" % quote_words([root]), MACHINE, "no-venv")
    program = find_entry(venv, kind)
    if asked:
        return _take_asked(root, program, asked, environ)
    if not os.access(os.path.join(venv, "bin", program), os.X_OK):
        raise OperatorError("the environment %s has no command %s" % (venv, program), "Bring it up to date: cd %s && uv sync "
                            "--all-extras" % quote_words([root]), MACHINE, "runner")
    if shutil.which("uv", path=environ.get("PATH", os.defpath)):
        return Runner(("uv", "run", "--no-sync", program), "", "uv run --no-sync: the environment as it is, nothing is fetched")
    path = _find_uv(environ)
    if path:
        return Runner(("uv", "run", "--no-sync", program), path, "uv run --no-sync, uv from %s (it is not on PATH): the "
                      "environment as it is, nothing is fetched" % path)
    folder = os.path.join(venv, "bin")
    return Runner((os.path.join(folder, program),), folder, "%s itself: there is no uv here" % os.path.join(folder, program))


def _find_uv(environ: Dict[str, str]) -> str:
    """The folder that uv lies in beside PATH, "" where there is none."""
    home = environ.get("HOME") or os.path.expanduser("~")
    folders = [folder.replace("~", home) for folder in _UV_FOLDERS]
    return next((folder for folder in folders if os.access(os.path.join(folder, "uv"), os.X_OK)), "")


def find_entry(venv: str, kind: str) -> str:
    """The name of a kind's command: that of evals is `eval` in some versions."""
    if kind == "evals" and not os.path.exists(os.path.join(venv, "bin", "evals")) and \
            os.path.exists(os.path.join(venv, "bin", "eval")):
        return "eval"
    return kind


def _take_asked(root: str, program: str, asked: Tuple[str, ...], environ: Dict[str, str]) -> Runner:
    first = asked[0]
    if "/" in first:  # the runner starts in the checkout, whatever this directory is
        beside = os.path.normpath(os.path.join(root, os.path.expanduser(first)))
        first = os.path.abspath(first) if os.path.exists(first) else beside
        if not os.access(first, os.X_OK):
            raise OperatorError("--runner: %s can't be started" % asked[0], "Name a program, or one on PATH.", MACHINE, "runner")
    elif first == "uv" and not shutil.which(first, path=environ.get("PATH", os.defpath)) and _find_uv(environ):
        return Runner(asked + (() if os.path.basename(asked[-1]) == program else (program,)), _find_uv(environ),
                      "%s, as --runner says" % " ".join(asked))
    elif not shutil.which(first, path=environ.get("PATH", os.defpath)):
        raise OperatorError("--runner: no %s on PATH" % first, "Name it by its whole path. PATH is %s"
                            % environ.get("PATH", "not set"), MACHINE, "no-%s" % first)
    argv = (first,) + asked[1:]
    if os.path.basename(argv[-1]) != program:
        argv += (program,)
    own = os.path.dirname(argv[0]) if os.path.basename(argv[0]) == program else ""
    return Runner(argv, own, "%s, as --runner says" % " ".join(asked))
