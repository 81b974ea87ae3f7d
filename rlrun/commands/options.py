"""The options that several commands share, and what every command does first: find checkout and config."""
import argparse
import os
import sys
from typing import Any, List, NamedTuple, Tuple

from ..errors import USAGE, OperatorError
from ..host import files
from ..stacks import load_stack
from ..steps import orient
from ..text import terminal as term
from ..text.redact import redact_words
from ..text.shell import escape_controls, quote_assignment, quote_words
from ..values import Checkout, Config, Plan, Request


_UNATTENDED = os.path.join("logs", "rlrun", "unattended.log")


class Where(NamedTuple):
    """What the operator pointed at; `words` name configs. `again`: the words that mean the same plan again, where they are
    not those of a config."""

    words: Tuple[str, ...]
    root: str
    kind: str
    overrides: Tuple[str, ...]
    runner: str = ""
    command: str = "run"
    again: Tuple[str, ...] = ()
    drop_env: bool = False
    slurm: Any = None  # the options of --slurm, None where it is not asked for


class _Slurm(NamedTuple):
    """--sbatch, --srun, --requeue."""

    sbatch: Tuple[str, ...]
    srun: Tuple[str, ...]
    requeue: bool


def add_where(parser: argparse.ArgumentParser, has_config: bool = True) -> None:
    """Adds CONFIG, --root and --kind, and --runner where a config is launched."""
    if has_config:
        parser.add_argument("config", nargs="*", metavar="CONFIG", help="a path or a bare name, with or without its suffix; "
                            "several (prime-rl) are merged from left to right, overrides follow after --")
    parser.add_argument("--root", default="", metavar="DIR", help="the checkout (else around the working directory, else "
                                                                 "around the config)")
    parser.add_argument("--kind", default="", metavar="KIND", help="the kind of run, where path and config do not tell")
    if has_config:
        parser.add_argument("--runner", default="", metavar="WORDS", help="what the runner is started with (prime-rl; default: "
                            "uv run --no-sync, or .venv/bin where there is no uv)")
        parser.add_argument("--drop-env", action="store_true", help="leave out what an enclosing job or an earlier launcher left "
                            "in the environment (rlrun explain env:inherited tells by which rule)")
        parser.add_argument("--slurm", action="store_true", help="hand it to Slurm: one job for all its nodes")
        parser.add_argument("--sbatch", action="append", default=[], metavar="OPTION", help="an #SBATCH option of the job, after "
                            "those of the site's rlrun.ini: --sbatch=--partition=gpu; repeatable")
        parser.add_argument("--srun", action="append", default=[], metavar="OPTION", help="an option of srun within the job: "
                            "--srun=--mpi=none; repeatable")
        parser.add_argument("--requeue", action="store_true", help="let Slurm start the job again after a node failed or it was "
                            "preempted; only where the run would resume from its newest checkpoint")


def read_where(options: Any, overrides: Tuple[str, ...]) -> Where:
    """The value of these options. `@ rl.toml`, as prime-rl has it, is `rl.toml`."""
    words = [word[1:] if word.startswith("@") and not os.path.lexists(word) else word
             for word in getattr(options, "config", []) or [] if word != "@"]
    return Where(tuple(words), options.root, options.kind, overrides, getattr(options, "runner", ""),
                 drop_env=getattr(options, "drop_env", False), slurm=_read_slurm(options))


def _read_slurm(options: Any) -> Any:
    """The options of --slurm. OperatorError (exit 2) where one of them stands without it."""
    given = [name for name in ("sbatch", "srun", "requeue") if getattr(options, name, None)]
    if not getattr(options, "slurm", False):
        if given:
            raise OperatorError("--%s is about a job of Slurm's" % given[0], "Say --slurm too, or leave it away.", USAGE, "usage")
        return None
    return _Slurm(tuple(options.sbatch), tuple(options.srun), options.requeue)


def _ask_slurm(request: Request, where: Where) -> Request:
    """The request with what --slurm asks for: words for a launcher that hands runs in itself, or options of our script."""
    kind, stack = request.config.kind, load_stack(request.checkout.stack)
    words = stack.SLURM_WORDS.get(kind)
    asked = where.slurm
    if words is None:
        raise OperatorError("%s %s runs can't be handed to Slurm" % (stack.TITLE, kind), "Leave --slurm away.", USAGE, "usage")
    if words:
        if asked.sbatch or asked.srun or asked.requeue:
            raise OperatorError("%s writes its own batch script; its options go into the config, or behind --" % stack.TITLE,
                                stack.SLURM_HINT, USAGE, "usage")
        has_them = any(one.split("=")[0] in words for one in request.overrides)
        return request if has_them else request._replace(overrides=request.overrides + words)
    from ..steps import slurm_site
    return request._replace(slurm=slurm_site.read_asked(asked.sbatch, asked.srun, asked.requeue, request.checkout.root,
                                                        (list_program()[0], list_program()[1])))


def keep_output(terminal: term.Terminal, root: str) -> None:
    """From here on what an unattended launch says is kept in this checkout."""
    if terminal.kept is not None:
        path = os.path.join(root, _UNATTENDED)
        try:
            files.make_folder(os.path.dirname(path))
        except OSError:
            pass  # it is told when the file can't be written
        term.keep_output(terminal, path)


def find_request(where: Where, terminal: term.Terminal) -> Request:
    """Step 0 for a command: at a terminal an absent or ambiguous config is asked for, elsewhere it is listed (exit 2)."""
    checkout = orient.find_checkout(where.root, where.words[0] if where.words else "")
    keep_output(terminal, checkout.root)
    orient.refuse_several(checkout, where.words)
    configs = [_find_one(checkout, word, where.kind, terminal) for word in where.words or ("",)]
    request = orient.make_request(checkout, configs, where.overrides, where.kind, where.runner)
    request = _ask_slurm(request, where) if where.slurm else request
    if not where.drop_env:
        return request
    from ..host import inherited
    dropped = inherited.drop(dict(os.environ))[1]
    for name in dropped:  # nothing that is started or read from here on shall find it
        del os.environ[name]
    return request._replace(dropped=dropped)


def _find_one(checkout: Checkout, word: str, kind: str, terminal: term.Terminal) -> Config:
    config, ambiguity = orient.find_config(checkout, word, kind)
    if ambiguity:
        lines = list_candidates(ambiguity.candidates)
        if not terminal.is_interactive or not ambiguity.candidates:
            raise OperatorError("\n".join([ambiguity.message] + lines), "Name one of them." if lines else
                                "Write one: the checkout has none.", USAGE, "config")
        term.print_error(terminal, "\n".join([ambiguity.message] + lines))
        config = _choose(checkout, ambiguity.candidates, kind, terminal)
    assert config is not None
    return config


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
    width = max([6] + [len(config.kind) for config in candidates])
    return ["  %2d. %s %s" % (number, (config.kind or "?").ljust(width), escape_controls(config.shown))
            for number, config in enumerate(candidates, 1)]


def name_config(where: Where, plan: Plan) -> List[str]:
    """The words that mean this config again, for a line that is pasted where this one was typed."""
    if where.again:
        return list(where.again)
    words = [plan.config_shown] + list(plan.more_configs)
    if where.root or not _is_inside(plan.root):
        words = [os.path.join(plan.root, word) for word in words]
    words = [os.path.join(plan.root, word) if word.startswith("-") else word for word in words]
    for option, value in (("--root", where.root), ("--kind", where.kind), ("--runner", where.runner)):
        words += [option, value] if value else []
    return words + (["--drop-env"] if where.drop_env else []) + name_slurm(where, plan)


def name_slurm(where: Where, plan: Plan) -> List[str]:
    """--slurm and its options, to be typed again; a launcher of the training system's own has them among the overrides."""
    if where.slurm is None or plan.batch is None:
        return []
    words = ["--sbatch=" + one for one in where.slurm.sbatch] + ["--srun=" + one for one in where.slurm.srun]
    return ["--slurm"] + words + (["--requeue"] if where.slurm.requeue else [])


def name_again(command: str, where: Where, plan: Plan, secrets: Tuple[str, ...]) -> str:
    """The line of another command for the same plan: with the variables that decide it, the config's words and the
    overrides, shell-safe, without a secret."""
    before = "".join(quote_assignment(word) + " " for word in plan.from_environ)
    rest = " -- " + quote_words(redact_words(plan.overrides, secrets)) if plan.overrides and not where.again else ""
    return "%s%s %s %s%s" % (before, name_program(), command, quote_words(name_config(where, plan)), rest)


def _is_inside(root: str) -> bool:
    try:
        return (os.path.realpath(os.getcwd()) + "/").startswith(os.path.realpath(root).rstrip("/") + "/")
    except OSError:  # the working directory is gone
        return False


def list_program() -> List[str]:
    """The words that start this rlrun again with the same Python, from anywhere."""
    return [sys.executable or "python3", os.path.abspath(sys.argv[0])]


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
