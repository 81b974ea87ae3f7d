"""The options that several commands share, and what every command does first: find checkout and config."""
import argparse
import os
import sys
from typing import Any, List, NamedTuple, Tuple

from ..errors import USAGE, OperatorError
from ..steps import orient
from ..text import terminal as term
from ..text.shell import escape_controls, quote_words
from ..values import Checkout, Config, Plan, Request


class Where(NamedTuple):
    """What the operator pointed at."""

    word: str
    root: str
    kind: str
    overrides: Tuple[str, ...]


def add_where(parser: argparse.ArgumentParser, has_config: bool = True) -> None:
    """Adds CONFIG, --root and --kind."""
    if has_config:
        parser.add_argument("config", nargs="*", metavar="CONFIG", help="a path or a bare name, with or without its suffix")
    parser.add_argument("--root", default="", metavar="DIR", help="the checkout (else around the working directory, else "
                                                                 "around the config)")
    parser.add_argument("--kind", default="", metavar="KIND", help="the kind of run, where path and config do not tell")


def read_where(options: Any, overrides: Tuple[str, ...]) -> Where:
    """The value of these options. Raises OperatorError (exit 2) for several configs where one is meant."""
    words = list(getattr(options, "config", []) or [])
    if len(words) > 1:
        raise OperatorError("one config, not %d: %s" % (len(words), " ".join(words)),
                            "A path with spaces needs quotes.", USAGE, "usage")
    return Where(words[0] if words else "", options.root, options.kind, overrides)


def find_request(where: Where, terminal: term.Terminal) -> Request:
    """Step 0 for a command: at a terminal an absent or ambiguous config is asked for, elsewhere it is listed (exit 2)."""
    checkout = orient.find_checkout(where.root, where.word)
    config, ambiguity = orient.find_config(checkout, where.word, where.kind)
    if ambiguity:
        lines = list_candidates(ambiguity.candidates)
        if not terminal.is_interactive or not ambiguity.candidates:
            raise OperatorError("\n".join([ambiguity.message] + lines), "Name one of them." if lines else
                                "Write one: the checkout has none.", USAGE, "config")
        term.print_error(terminal, "\n".join([ambiguity.message] + lines))
        config = _choose(checkout, ambiguity.candidates, where.kind, terminal)
    assert config is not None
    return orient.make_request(checkout, config, where.overrides)


def _choose(checkout: Checkout, candidates: Tuple[Config, ...], kind: str, terminal: term.Terminal) -> Config:
    for _ in range(2):
        line = term.ask(terminal, "Which one? [1-%d] " % len(candidates))
        if line is None or not line.strip():
            break
        word = line.strip()
        if word in [str(number) for number in range(1, len(candidates) + 1)]:
            config, _ = orient.find_config(checkout, candidates[int(word) - 1].path, kind)
            if config:
                return config
    raise OperatorError("no config was chosen", "Name one on the command line.", USAGE, "config")


def list_candidates(candidates: Tuple[Config, ...]) -> List[str]:
    """Numbered lines."""
    return ["  %2d. %-6s %s" % (number, config.kind, escape_controls(config.shown))
            for number, config in enumerate(candidates, 1)]


def name_config(where: Where, plan: Plan) -> List[str]:
    """The words that mean this config again, for a line that is pasted where this one was typed."""
    word = plan.config_shown
    if where.root or word.startswith("-") or not _is_inside(plan.root):
        word = plan.config
    return [word] + (["--root", where.root] if where.root else []) + (["--kind", where.kind] if where.kind else [])


def _is_inside(root: str) -> bool:
    try:
        return (os.path.realpath(os.getcwd()) + "/").startswith(os.path.realpath(root).rstrip("/") + "/")
    except OSError:  # the working directory is gone
        return False


def name_program() -> str:
    """How this rlrun can be started again, as words for a shell: for lines that an operator pastes."""
    started = sys.argv[0] if sys.argv else ""
    try:
        path = os.path.abspath(started)
    except OSError:  # the working directory is gone, and so the shell's; from there the path is right as it was typed
        path = started
    if not started or not os.path.isfile(path) or started.endswith("__main__.py"):
        return "rlrun"
    return quote_words([path]) if os.access(path, os.X_OK) else quote_words(["python3", path])
