"""`rlrun export`: converts a checkpoint, by the same steps as a run: check, confirm, launch, report."""
import argparse
import re
from typing import Any, List, Tuple

from ..errors import USAGE, OperatorError
from ..stacks import load_stack
from ..steps import confirm, orient, records
from ..text import terminal as term
from ..values import Choices, Request
from . import options as shared
from . import run as runs

_NUMBER = re.compile(r"[0-9]{1,12}\Z")
_MAX_RANKS = 4096
_TIMEOUT_SECONDS = 300.0  # of the runner's own check, which this kind does not have


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `export`. The question has one that answers it."""
    parser.add_argument("run", nargs="?", default="", metavar="RUN", help="a run's directory or name, the id of a launch as "
                        "`rlrun runs` prints it or a part of it, or a directory of weights (config.json and *.safetensors)")
    parser.add_argument("--step", type=_parse_step, default=None, metavar="N", help="the checkpoint (default: the newest that is "
                        "complete)")
    parser.add_argument("--to", choices=("bf16", "fp8"), default="", help="the format (default: bf16; for a directory of weights "
                                                                          "the one that it does not have)")
    parser.add_argument("--ranks", type=_parse_ranks, default=1, metavar="N", help="how many processes convert a run's "
                        "checkpoint, each on a GPU of its own (default: 1)")
    parser.add_argument("--root", default="", metavar="DIR", help="the checkout (else around the working directory, else around "
                                                                 "RUN)")
    parser.add_argument("--confirm", default=None, metavar="DIGEST", help="launch if the plan still has this digest (without a "
                        "terminal it is printed)")
    parser.add_argument("--again", action="store_true", help="launch a confirmed plan that was launched already")
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--background", action="store_true", help="detach, report, and return (the default)")
    modes.add_argument("--foreground", action="store_true", help="stay until it ends; Ctrl-C goes to it")


def _parse_step(word: str) -> int:
    if not _NUMBER.match(word):
        raise argparse.ArgumentTypeError("%r is no step: a number, as in step_40" % word)
    return int(word)


def _parse_ranks(word: str) -> int:
    if not _NUMBER.match(word) or not 0 < int(word) <= _MAX_RANKS:
        raise argparse.ArgumentTypeError("%r is no number of processes from 1 on" % word)
    return int(word)


def run(options: Any, terminal: term.Terminal, overrides: Tuple[str, ...]) -> int:
    """One conversion. Exit codes as `run` has them."""
    if overrides:
        raise OperatorError("export takes no words after --: %s" % " ".join(overrides), "rlrun export --help", USAGE, "overrides")
    choices = Choices(confirm.check_digest(options.confirm) if options.confirm is not None else "", options.again,
                      "foreground" if options.foreground else "background" if options.background else "", "", "")
    checkout = orient.find_checkout(options.root, options.run)
    find_export = getattr(load_stack(checkout.stack), "find_export", None)
    if find_export is None:
        raise OperatorError("%s has no tools that convert checkpoints (the checkout is %s)"
                            % (load_stack(checkout.stack).TITLE, checkout.root), "Go to the checkout whose run it is, or name "
                            "it: --root DIR", USAGE, "stack")
    config, words, folder = find_export(checkout, options.run, _find_recorded(checkout.root, options.run), options.step,
                                        options.to, options.ranks)
    again = (folder,) + tuple(words[2:]) + ("--root", checkout.root)
    where = shared.Where((), options.root, "", (), "", "export", again)
    return runs.launch_request(Request(checkout, config, words), where, choices, _TIMEOUT_SECONDS, terminal)


def _find_recorded(root: str, word: str) -> List[str]:
    """The run directories of the launches that the word names: by id, by a run's name, else by a part of an id."""
    if not word:
        return []
    found = records.list_records(root)
    chosen = [one for one in found if word in (one["id"], one["experiment"])] or [one for one in found if word in one["id"]]
    return [one["run_dir"] for one in chosen if one["run_dir"]]
