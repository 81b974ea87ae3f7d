"""`rlrun run`: check, confirm, launch, report. Everything that decides is in steps/; here it is asked and told."""
import argparse
import functools
import json
import os
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ..errors import BLOCKED, BUG, INTERRUPTED, MACHINE, NOT_CONFIRMED, OperatorError
from ..stacks import load_stack
from ..steps import (claims, confirm, estimate, guard, judge, judge_config, judge_machine, launch, lock, record, records, shapes,
                     survey)
from ..steps.board import pick_served
from ..steps.guard import describe_stop
from ..steps.judge_machine import describe_process
from ..text import report
from ..text import terminal as term
from ..text.durations import format_age
from ..text.redact import redact
from ..text.shell import escape_controls
from ..values import Choices, Launch, LiveRun, Plan, Request, Verdict
from . import checked, launched, surveying
from . import options as shared

_LOCK_SECONDS = 30.0
_RECENT_SECONDS = 86400.0


class _Answers(NamedTuple):
    mode: str
    board: str
    old_log: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `run`. Each question has one that answers it."""
    shared.add_where(parser)
    surveying.add_timeout(parser)
    parser.add_argument("--confirm", default="", metavar="DIGEST",
                        help="launch if the plan still has this digest (check prints it)")
    parser.add_argument("--again", action="store_true", help="launch a confirmed plan that was launched already")
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--background", action="store_true", help="detach, report, and return (the default)")
    modes.add_argument("--foreground", action="store_true", help="stay until the run ends; Ctrl-C goes to the run")
    parser.add_argument("--board", choices=("link", "leave"), default="", help="where the board would not show this run: link "
                                                                              "its log into what the board serves, or leave it")
    parser.add_argument("--old-log", choices=("keep", "lose"), default="",
                        help="where the launch truncates an earlier run's log: keep a copy in the record, or lose it")
    parser.add_argument("--server-timeout", type=surveying.parse_seconds, default=launched.SERVER_SECONDS, metavar="SECONDS",
                        help="how long an inference server may take until /health answers (default: 600)")


def run(options: Any, terminal: term.Terminal, overrides: Tuple[str, ...]) -> int:
    """One launch. Exit codes as the design has them; 130 only before the launch."""
    where = shared.read_where(options, overrides)
    choices = read_choices(options)
    return launch_request(shared.find_request(where, terminal), where, choices, options.dry_run_timeout, terminal)


def read_choices(options: Any) -> Choices:
    """The answers that the command line gives. OperatorError (exit 2) for a digest that is none."""
    return Choices(confirm.check_digest(options.confirm) if options.confirm else "", options.again,
                   "foreground" if options.foreground else "background" if options.background else "",
                   options.board, options.old_log, options.server_timeout)


def launch_request(request: Request, where: shared.Where, choices: Choices, timeout_seconds: float,
                   terminal: term.Terminal) -> int:
    """Check, confirm, launch, report: for whatever a stack can plan."""
    if load_stack(request.checkout.stack).TAKES_WHOLE_BOX:
        _refuse_live_runs(request.checkout.root, guard.read_runs(), terminal)
    environ = survey.read_operator_environment()
    found = surveying.survey_with_progress(request, environ, timeout_seconds, terminal, lambda: None)
    secrets = surveying.collect_secrets(found, environ)
    _import_rest(found)
    if found.verdict.blocking:
        return _refuse_verdict(found, where, terminal, secrets)
    try:
        return _go_on(found, where, choices, environ, secrets, terminal)
    except OperatorError as error:  # the same facts as a check's, whatever came of it
        error.shape = dict(shapes.shape_check(found, secrets), command=where.command, launched=False, **error.shape)
        raise


def _import_rest(found: survey.Survey) -> None:
    """Now, not after the question: the pyz may be replaced meanwhile."""
    if found.board.pid:
        from ..steps import board_link  # noqa: F401
    if found.plan.server_url:
        from ..host import web  # noqa: F401


def _go_on(found: survey.Survey, where: shared.Where, choices: Choices, environ: Dict[str, str], secrets: Tuple[str, ...],
           terminal: term.Terminal) -> int:
    """Steps 3 to 7: show, confirm, launch, report."""
    plan = "\n".join(checked.render(found, terminal, secrets, where.command) + [""] + _look(found))
    if not choices.confirm:
        term.tell(terminal, plan)  # what the yes is given to is shown, also with -q
    elif not terminal.is_json:
        term.print_note(terminal, plan)
    answers = _confirm(found, where, choices, secrets, terminal)
    return _launch(found, choices, answers, environ, secrets, terminal, where.command)


def _refuse_live_runs(root: str, runs: Tuple[LiveRun, ...], terminal: term.Terminal) -> None:
    """Step 1, with the seed's words, before anything slow."""
    if not runs:
        return
    lines = ["A run is already in flight; refusing to start another:"]
    lines += ["  %s   %s" % ("pids:" if number == 0 else "     ", describe_process(one.top)) for number, one in enumerate(runs)]
    log = guard.find_newest_log([one.root for one in runs if one.root] + [root])
    lines.append("  log:    %s" % (log or "none found under logs/"))
    stops = " or ".join(describe_stop(one) for one in runs[:3])
    lines.append("Let it finish, or stop it yourself (%s), then run this again." % stops)
    error = OperatorError("\n".join(lines), "", BLOCKED, "job:running")
    error.shape = {"verdict": "NO", "blocking": ["job:running"], "warnings": [], "digest": None, "root": root, "runs": [
        {"pid": one.top.pid, "pgid": one.top.pgid, "stack": one.stack, "kind": one.kind, "role": one.role,
         "elapsed_seconds": int(one.top.elapsed_seconds), "root": one.root or None, "pids": list(one.pids)} for one in runs]}
    raise error


def _refuse_verdict(found: survey.Survey, where: shared.Where, terminal: term.Terminal, secrets: Tuple[str, ...]) -> int:
    if terminal.is_json:
        shape = shapes.shape_check(found, secrets)
        shape.update(command=where.command, launched=False, reason="blocked")
        term.print_result(terminal, json.dumps(shape, sort_keys=True))
    lines = ["Preflight failed — fix the items below before `rlrun %s`." % where.command, ""]
    lines += checked.render(found, terminal, secrets, where.command)
    lines += report.render_steps(found.verdict.checks)
    term.print_error(terminal, "\n".join(lines))
    return BLOCKED


def _look(found: survey.Survey) -> List[str]:
    plan = found.plan
    step = judge_config.read_resume_step(plan)
    resume = ""
    if plan.resume_mode:
        resume = "will resume from step %s (%s)" % (step, plan.checkpoints) if step and plan.resume_mode != "disable" else \
            "%s: %s" % (plan.resume_mode, "a new name at each start, so from the beginning" if plan.name_is_volatile
                        else "no checkpoint under this name")
    guess = estimate.estimate_step(plan)
    rows: List[Tuple[str, str]] = []
    for label, value in plan.second_look:
        if label == "data":
            value += "   ← is this the one you meant?"
        rows.append((label, value + ("   ← " + guess if label == "scale" and guess else "")))
    if resume:
        rows.append(("resume", resume))
    if plan.has_board:
        name = plan.experiment or "unknown"
        rows.append(("naming", "project=%s  exp=%s%s" % (plan.project or "unknown", name, "   (made anew at the launch)"
                                                         if plan.name_is_volatile else "")))
        rows.append(("logs", "%s\nboard: %s" % (plan.train_log or "unknown",
                                               report.describe_board(plan, found.board, found.is_visible))))
    if plan.gates:
        rows.append(("first step", plan.gates[0]))
    rows += _look_at_sweep(found)
    return report.render_look(rows)


def _look_at_sweep(found: survey.Survey) -> List[Tuple[str, str]]:
    sweep = found.sweep
    if not found.plan.sweep.words:
        return []
    if not sweep.processes and not sweep.paths:
        return [("sweep", "nothing here to kill or delete now; the rule: %s" % found.plan.sweep.words)]
    lines = ["by the rule: %s" % found.plan.sweep.words]
    lines += ["kills  %s" % describe_process(one.process) for one in sweep.processes]
    lines += ["deletes  %s  (%d bytes%s, %s)" % (path.path, path.size_bytes, "" if path.is_exact else " at least", path.user)
              for path in sweep.paths[:20]]
    if len(sweep.paths) > 20:
        lines.append("… and %d more paths (rlrun check --json lists them)" % (len(sweep.paths) - 20))
    return [("sweep", "\n".join(lines))]


def _confirm(found: survey.Survey, where: shared.Where, choices: Choices, secrets: Tuple[str, ...],
             terminal: term.Terminal) -> _Answers:
    plan = found.plan
    questions = confirm.find_questions(plan, found.board, found.is_visible, choices)
    if choices.confirm:
        _check_confirmed(found, where, choices, secrets)
    is_again = choices.again or bool(records.find_launched(plan.root, found.fingerprint.digest))
    line = confirm.describe_confirm_line(plan, found.fingerprint.digest, questions, choices._replace(again=is_again),
                                         shared.name_config(where, plan), shared.name_program(), where.command, secrets)
    if not terminal.is_interactive:
        if not choices.confirm:
            error = OperatorError("not confirmed: nobody can be asked here; nothing was launched",
                                  "If the plan above is right:\n  %s" % line, NOT_CONFIRMED, "not-confirmed")
            error.shape = {"digest": found.fingerprint.digest, "line": line}
            raise error
        if questions:
            raise confirm.refuse_unanswered(questions, line)
    given = {"board": choices.board, "old-log": choices.old_log}
    term.forget_typed()  # an answer that was typed before the plan was shown is none
    for question in questions:
        given[question.name] = _ask_choice(question, terminal)
    if not choices.confirm:
        _ask_yes(found, terminal)
        _ask_name(found, terminal)
    mode = choices.mode or ("background" if choices.confirm else _ask_mode(terminal))
    board = "" if found.is_visible else given["board"]
    return _Answers(mode, board, given["old-log"] if judge_config.old_log_size(plan) else "")


def _check_confirmed(found: survey.Survey, where: shared.Where, choices: Choices, secrets: Tuple[str, ...]) -> None:
    if found.fingerprint.digest != choices.confirm:
        earlier = records.find_launched(found.plan.root, choices.confirm)
        look = shared.name_again("export" if where.again else "check", where, found.plan, secrets)
        raise confirm.refuse_other_plan(choices.confirm, look, found.fingerprint, earlier, _list_recent(found), secrets)
    _refuse_again(found, choices)


def _refuse_again(found: survey.Survey, choices: Choices) -> None:
    """A digest is the yes to one launch. Looked at twice: another rlrun may have launched it while this one waited."""
    earlier = records.find_launched(found.plan.root, choices.confirm) if choices.confirm and not choices.again else None
    if earlier:
        raise confirm.refuse_again(earlier, time.time() - earlier["time_seconds"])


def _list_recent(found: survey.Survey) -> Tuple[str, ...]:
    """The files of the plan that were written within a day, newest first."""
    times = []
    for path in found.plan.sources + tuple(os.path.join(found.plan.root, name) for name in found.git.dirty):
        try:
            times.append((time.time() - os.stat(path).st_mtime, path))
        except OSError:
            continue
    return tuple("%s (written %s)" % (path, format_age(age)) for age, path in sorted(times) if age < _RECENT_SECONDS)[:5]


def _ask_choice(question: confirm.Question, terminal: term.Terminal) -> str:
    term.tell(terminal, "\n" + "\n".join(escape_controls(line) for line in question.text))
    for _ in range(3):
        answer = confirm.read_choice(question, term.ask(terminal, "Which one? "))
        if answer == confirm.STOP:
            break
        if answer:
            return answer
    raise OperatorError("stopped; nothing was launched", "On the command line: %s" % question.option, NOT_CONFIRMED, "stopped")


def _ask_yes(found: survey.Survey, terminal: term.Terminal) -> None:
    earlier = records.find_launched(found.plan.root, found.fingerprint.digest)
    if earlier:
        term.tell(terminal, "\nThis very plan was launched before: %s" % earlier.get("id"))
    for is_second in (False, True):
        answer = confirm.read_yes(term.ask(terminal, "\nLaunch with this configuration? [y/N] "), is_second)
        if answer:
            return
        if answer is False:
            break
    raise OperatorError("not launched", "Edit the config, then run this again.", NOT_CONFIRMED, "answered-no")


def _ask_name(found: survey.Survey, terminal: term.Terminal) -> None:
    """A launch that deletes a directory takes more than a yes: its name. A digest says as much: it names the paths."""
    plan = found.plan
    if not plan.typed_name:
        return
    line = term.ask(terminal, "\nThis launch deletes %s and all that is in %s.\nType the run's name, %s, to go on: " % (
        escape_controls(" and ".join(path.path for path in found.sweep.paths) or plan.run_dir),
        "it" if len(found.sweep.paths) < 2 else "them", escape_controls(plan.typed_name)))
    if line is None or line.strip() != plan.typed_name:
        raise OperatorError("not launched: the directory's name was not typed, and nothing was deleted",
                            "Leave away what deletes it, or take another name for the run.", NOT_CONFIRMED, "answered-no")


def _ask_mode(terminal: term.Terminal) -> str:
    for _ in range(3):
        mode = confirm.read_mode(term.ask(terminal, "Launch mode? [B]ackground (default) / [F]oreground "))
        if mode == confirm.STOP:
            break
        if mode:
            return mode
    raise OperatorError("no launch mode was chosen; nothing was launched", "On the command line: --background or --foreground",
                        NOT_CONFIRMED, "stopped")


def _launch(found: survey.Survey, choices: Choices, answers: _Answers, environ: Dict[str, str], secrets: Tuple[str, ...],
            terminal: term.Terminal, command: str) -> int:
    plan = found.plan
    held = lock.acquire(_LOCK_SECONDS)
    try:
        _look_again(found, choices, answers, environ, secrets, terminal)
        paths = record.create(plan, time.time(), judge_config.needs_private_log(plan))
        written = record.write_plan(paths, plan, found.git, found.fingerprint, secrets, {
            "command": command, "mode": answers.mode, "board": answers.board or None, "old_log": answers.old_log or None,
            "link": None, "ports": [port.number for port in plan.ports], "gpus": list(claims.name_gpus(plan)),
            "own_dirs": list(plan.own_dirs), "verdict_warnings": list(found.verdict.warnings)})
        if answers.old_log == "keep":
            written["kept_log"] = launch.keep_old_log(plan, paths.record)
            _look_again(found, choices, answers, environ, secrets, terminal)  # a copy may have taken a while
        started = launch.launch(plan, paths, held, environ, written, _order_link(found, answers, paths))
    except KeyboardInterrupt:
        raise OperatorError("interrupted; nothing was launched", "", INTERRUPTED, "interrupted")
    finally:
        lock.release(held)
    try:
        return launched.follow(found, started, answers.mode, answers.board, written, secrets, terminal, choices.server_seconds)
    except Exception as failure:  # whatever it is, the run lives, and must not be denied
        raise _admit_launch(redact(str(failure), secrets), type(failure).__name__, plan, started)


def _look_again(found: survey.Survey, choices: Choices, answers: _Answers, environ: Dict[str, str],
                secrets: Tuple[str, ...], terminal: term.Terminal) -> None:
    """The second look, under the lock: whatever is not as it was shown ends it."""
    again = survey.look_again(found, environ)
    _refuse_live_runs(found.plan.root, tuple(one for one in again.machine.runs
                                             if judge_machine.is_excluded_by(found.plan, one)), terminal)
    _refuse_again(found, choices)
    if again.verdict.blocking:
        raise _refuse_second_look(judge.hide_secrets(again.verdict, secrets))
    if again.changed:
        raise OperatorError("the plan changed while it was being confirmed: %s; nothing was launched" % ", ".join(again.changed),
                            "Check it again.", NOT_CONFIRMED, "digest")
    shown = {(one.process.pid, one.process.start_ticks) for one in found.sweep.processes}
    new = [one.process for one in again.sweep.processes if (one.process.pid, one.process.start_ticks) not in shown]
    if new and not choices.confirm:
        raise OperatorError("the launch would kill what was not there when you were asked: %s; nothing was launched"
                            % "; ".join(describe_process(one) for one in new), "Run this again.", NOT_CONFIRMED, "sweep:own")
    _refuse_race(found, answers)


def _admit_launch(failure: str, kind: str, plan: Plan, started: Launch) -> OperatorError:
    error = OperatorError("launched (pid %d), but the report failed: %s: %s" % (started.runner.pid, kind, failure),
                          "The run lives; `rlrun runs` shows it. Please report this.", BUG, "bug")
    error.shape = {"launched": True, "record": started.record, "launch_log": started.launch_log,
                   "runner": {"pid": started.runner.pid, "pgid": started.pgid}, "stop": launched.stop_line(started, plan, {})}
    return error


def _refuse_second_look(verdict: Verdict) -> OperatorError:
    rows = [one for one in verdict.checks if one.status == "blocks"]
    error = OperatorError("the machine changed while you were asked; nothing was launched:\n" + "\n".join(
        "  %s  %s" % (one.name, one.detail) for one in rows), rows[0].fix, BLOCKED, rows[0].name)
    error.shape = {"verdict": "NO", "blocking": list(verdict.blocking)}
    return error


def _refuse_race(found: survey.Survey, answers: _Answers) -> None:
    """An earlier run's log may have appeared since the question."""
    if not answers.old_log and judge_config.old_log_size(found.plan):
        raise OperatorError("%s appeared meanwhile, and the launch would truncate it; nothing was launched"
                            % found.plan.train_log, "Run this again, and answer for it.", NOT_CONFIRMED, "log:overwrite")


def _order_link(found: survey.Survey, answers: _Answers, paths: record.Paths) -> Optional[Any]:
    if answers.board != "link":
        return None
    served = pick_served(found.board, found.plan.root)
    if not served:
        raise OperatorError("no directory that the board serves can be written any more", "Answer --board leave.", MACHINE,
                            "board")
    from ..steps import board_link
    return functools.partial(board_link.make_link, board_link.LinkOrder(found.plan.stack, served, found.board.port,
                                                                       paths.launch_log, found.plan.root, paths.record))


