"""The command line: one table of commands, the only reader of argv, the one place where errors become exit codes."""
import signal
import sys
from typing import Any, Dict, List, NamedTuple, Tuple

from . import errors

EXIT_CODES = (
    (0, "launched; safe; healthy; the listing was made"),
    (1, "blocked: the verdict is NO, a run is in flight, a gate failed, a run is at risk"),
    (2, "the command line: unknown option, config absent or ambiguous"),
    (3, "not confirmed: answered no, no answer possible, or the plan is not the one that was confirmed"),
    (4, "launched, and the run ended or said nothing within the first minute; the run ended badly, or before the gate"),
    (5, "this machine: no checkout, no runner, no permission, disk full"),
    (6, "not reached in time"),
    (70, "a bug in rlrun: one line, and the path of a report to send"),
    (130, "interrupted before the launch"),
)


class Command(NamedTuple):
    """One command: its module has add_arguments(parser) and run(options, terminal, overrides) -> exit code."""

    name: str
    module: str
    words: str  # its arguments, for the overview
    summary: str
    example: str


COMMANDS = (
    Command("check", "rlrun.commands.check", "CONFIG", "safe to launch right now? report + digest; changes nothing",
            "rlrun check my_run"),
    Command("run", "rlrun.commands.run", "CONFIG", "check, confirm, launch, report",
            "rlrun run my_run --confirm 3f9c2a71 --board leave"),
    Command("schedule", "rlrun.commands.schedule", "CONFIG", "prints the crontab line that launches it later; installs nothing",
            "rlrun schedule my_run --at 02:00 --board leave"),
    Command("status", "rlrun.commands.status", "[RUN]", "which run, how far, healthy?", "rlrun status --html run.html"),
    Command("gate", "rlrun.commands.gate", "[RUN]", "wait for the first step and judge it",
            "rlrun run my_run --confirm 3f9c2a71 && rlrun gate || mail -s 'look at it' me"),
    Command("watch", "rlrun.commands.watch", "[RUN]", "status, redrawn", "rlrun watch --every 30s"),
    Command("logs", "rlrun.commands.logs", "[RUN]", "follow the log that matters", "rlrun logs --which trainer -f"),
    Command("runs", "rlrun.commands.runs", "[ID]", "the launches recorded in this checkout", "rlrun runs"),
    Command("configs", "rlrun.commands.configs", "", "the configs of this checkout", "rlrun configs --kind train"),
    Command("nodes", "rlrun.commands.nodes", "CONFIG", "the command for each other node; with --slurm, one job for all of them",
            "rlrun nodes my_run --check"),
    Command("probe", "rlrun.commands.probe", "", "the facts about this machine", "rlrun probe --json"),
    Command("export", "rlrun.commands.export", "RUN", "convert a checkpoint (prime-rl)", "rlrun export my-run --to fp8"),
    Command("explain", "rlrun.commands.explain", "NAME", "what a check or an exit code means, why it matters, what to do",
            "rlrun explain gpu:foreign"),
    Command("demo", "rlrun.commands.demo", "[DIR]", "practise on a toy checkout, on any machine", "rlrun demo /tmp/toy"),
    Command("version", "rlrun.commands.version", "", "version, commit, sha256 of this file, Python", "rlrun version"),
)

# Not for people: the batch script of a job calls it.
INNER = (
    Command("node", "rlrun.commands.node", "check|run", "the part of a Slurm job on one node; its batch script calls it",
            "RLRUN_RECORD=/x/logs/rlrun/ID rlrun node check"),
)


def main(argv: List[str]) -> int:
    """Runs one command line and gives its exit code. Nothing that an operator does ends in a traceback."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, as some launchers leave it, no exit status would be told
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
        signal.signal(signal.SIGHUP, _interrupt)
    if not _is_unattended(argv):
        return _run_caught(argv, None)
    from .text import unattended
    kept = unattended.hold()
    _head_log(argv, kept)
    return _close(argv, kept, _run_caught(argv, kept))


def _is_unattended(argv: List[str]) -> bool:
    """Before all else, since an error in the command line is told in that way too."""
    return argv[:1] == ["run"] and "--quiet-unless-failed" in _split_overrides(argv)[0]


def _run_caught(argv: List[str], kept: Any) -> int:
    """`kept`: where output goes that nobody looks at, None at a terminal."""
    try:
        return _run(argv, kept)
    except errors.OperatorError as error:
        return _fail(argv, error, kept)
    except KeyboardInterrupt:
        # One that is raised within eval, as namedtuple uses it, makes CPython from 3.8 on end by SIGINT although it was caught
        # (Python/pythonrun.c, unhandled_keyboard_interrupt); the next eval takes that back.
        eval("0")
        words = "interrupted; nothing was launched" if argv[:1] in (["run"], ["check"], ["export"]) else "interrupted"
        return _fail(argv, errors.OperatorError(words, "", errors.INTERRUPTED, "interrupted"), kept)
    except MemoryError:
        return _fail(argv, errors.OperatorError("no memory left for rlrun itself", "", errors.MACHINE, "memory"), kept)
    except UnicodeEncodeError:
        if sys.getfilesystemencoding() != "ascii":
            return _report_bug(argv, kept)
        return _fail(argv, errors.OperatorError(
            "a path has letters that this Python %d.%d can't name in the C locale" % sys.version_info[:2],
            "Set LC_ALL=C.UTF-8, or start it with Python 3.7 or newer.", errors.MACHINE, "locale"), kept)
    except Exception:
        return _report_bug(argv, kept)


def _close(argv: List[str], kept: Any, code: int) -> int:
    """The end of a launch that nobody looked at: silence, or one line."""
    import time

    from .text import unattended
    from .text.terminal import make_terminal, print_error
    if "path" not in kept.facts:  # it ended before a checkout was looked for
        words = _split_overrides(argv)[0]
        try:
            from .commands.options import keep_output
            from .steps import orient
            root = words[words.index("--root") + 1] if "--root" in words[:-1] else ""
            keep_output(make_terminal("never", False, False, kept), orient.find_checkout(root, "").root)
        except Exception:  # the line says that nothing is kept
            pass
    unattended.close_log(kept, code, time.time())
    if code != errors.OK:
        print_error(make_terminal("never", False, False), unattended.describe_failure(kept, code))
    return code


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt()


def _run(argv: List[str], kept: Any = None) -> int:
    words, overrides = _split_overrides(argv)
    if words[:1] in (["--help"], ["-h"], ["help"]) and len(words) == 1 or not words:
        return _print_overview(bool(words))
    if words[0] == "--version":
        words[0] = "version"
    command = next((one for one in COMMANDS + INNER if one.name == words[0]), None)
    if command is None:
        raise errors.OperatorError("no command %r" % words[0], _suggest(words[0]), errors.USAGE, "usage")
    options = _parse(command, words[1:])
    if kept is not None and options.json:
        raise errors.OperatorError("--json prints an object, and --quiet-unless-failed prints nothing", "Leave one of them away.",
                                   errors.USAGE, "usage")
    from .text.terminal import make_terminal
    terminal = make_terminal(options.color, options.quiet, options.json, kept)
    return int(_load(command).run(options, terminal, overrides))


def _head_log(argv: List[str], kept: Any) -> None:
    import os
    import time

    from . import about
    from .text import unattended
    from .text.redact import find_secrets, redact_words
    from .text.shell import quote_words
    words = quote_words(("rlrun",) + redact_words(argv, find_secrets(os.environ)))
    kept.facts["head"] = unattended.describe_head(words, about.VERSION, time.time())


def _split_overrides(argv: List[str]) -> Tuple[List[str], Tuple[str, ...]]:
    if "--" not in argv:
        return list(argv), ()
    place = argv.index("--")
    return list(argv[:place]), tuple(argv[place + 1:])


def _load(command: Command) -> Any:
    import importlib
    return importlib.import_module(command.module)


def _parse(command: Command, words: List[str]) -> Any:
    if not words and command.name == "version":
        return _Plain("auto", False, False)  # argparse would take longer than all the rest of it
    import argparse

    class Parser(argparse.ArgumentParser):  # argparse asks for a class to change how it fails
        def error(self, message: str) -> "Any":
            raise errors.OperatorError(message, "rlrun %s --help" % command.name, errors.USAGE, "usage")

        def _print_message(self, message: str, file: Any = None) -> None:
            from .text.terminal import make_terminal, print_result
            if message:
                print_result(make_terminal("never", False, False), message)

    extra: Dict[str, Any] = {"color": False} if sys.version_info >= (3, 14) else {}
    end = "" if command.summary.endswith("?") else "."
    parser = Parser(prog="rlrun " + command.name, description=_capital(command.summary) + end,
                    epilog="example:\n  " + command.example, allow_abbrev=False,
                    formatter_class=argparse.RawDescriptionHelpFormatter, **extra)
    _load(command).add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="one object with the same facts")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="default: auto; NO_COLOR counts")
    parser.add_argument("-q", "--quiet", action="store_true", help="results only")
    try:
        # Configs may stand on both sides of an option, which argparse alone takes for words that nobody asked for.
        options, rest = parser.parse_known_args(words)
        if rest and hasattr(options, "config") and not any(word.startswith("-") for word in rest):
            options.config, rest = list(options.config) + rest, []
        if rest:
            known = sorted(word for action in parser._actions for word in action.option_strings if len(word) > 2)
            parser.error("unrecognized arguments: %s%s" % (" ".join(rest), _suggest_option(rest[0], known)))
        return options
    except SystemExit as error:
        raise _Done(int(error.code or 0))


class _Plain(NamedTuple):
    color: str
    quiet: bool
    json: bool


class _Done(errors.OperatorError):
    """argparse has printed what was asked for."""

    def __init__(self, code: int) -> None:
        super().__init__("", "", code, "done")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _suggest(word: str) -> str:
    import difflib
    close = difflib.get_close_matches(word, [command.name for command in COMMANDS], 1)
    return "Did you mean `rlrun %s`?" % close[0] if close else "rlrun --help lists the commands."


def _suggest_option(word: str, known: List[str]) -> str:
    import difflib
    close = difflib.get_close_matches(word.partition("=")[0], known, 1) if word.startswith("--") else []
    return " (did you mean %s?)" % close[0] if close else ""


def _print_overview(is_asked_for: bool) -> int:
    from .text.terminal import make_terminal, print_error, print_result
    lines = ["rlrun launches a training run: it looks at the machine, lets the training system check its own config,",
             "shows what will happen, asks once, launches detached, and says where everything is.", ""]
    lines += ["  rlrun %-18s %s" % (("%s %s" % (command.name, command.words)).strip(), command.summary) for command in COMMANDS]
    lines += ["", "`rlrun COMMAND --help` shows options and an example. Exit codes:"]
    lines += ["  %3d  %s" % pair for pair in EXIT_CODES]
    terminal = make_terminal("never", False, False)
    (print_result if is_asked_for else print_error)(terminal, "\n".join(lines))
    return errors.OK if is_asked_for else errors.USAGE


def _fail(argv: List[str], error: errors.OperatorError, kept: Any = None) -> int:
    if isinstance(error, _Done):
        return error.code
    from .text.shell import escape_controls
    from .text.terminal import make_terminal, print_error, print_result
    words = _split_overrides(argv)[0]
    terminal = make_terminal("never", False, "--json" in words, kept)
    message, hint = (escape_controls(text, "\n") for text in (error.message, error.hint))
    if kept is not None:
        from .text.unattended import note_error
        note_error(kept, error)
    if terminal.is_json:
        import json
        shape = {"schema": 1, "command": words[0] if words else None, "error": error.message, "hint": error.hint or None,
                 "exit": error.code, "reason": error.reason}  # type: Dict[str, Any]
        if words[:1] in (["run"], ["export"]):
            shape["launched"] = False
        shape.update(getattr(error, "shape", {}))
        print_result(terminal, json.dumps(shape, sort_keys=True))
    print_error(terminal, "rlrun: %s%s" % (message, "\n  " + hint if hint else ""))
    return error.code


def _report_bug(argv: List[str], kept: Any = None) -> int:
    last = getattr(sys.exc_info()[0], "__name__", "unknown")
    path = ""
    try:
        from .text import bug
        last, path = bug.report(argv)
    except Exception:  # the file that rlrun lies in was replaced or cut, say
        pass
    return _fail(argv, errors.OperatorError("a bug in rlrun: %s" % last, "Please send this report: %s" % (
        path or "no report could be written"), errors.BUG, "bug"), kept)
