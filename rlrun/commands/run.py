"""`rlrun run`: check, confirm, launch, report. Everything that decides is in steps/; here it is asked and told."""
import argparse
import functools
import json
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from ..errors import BLOCKED, BUG, INTERRUPTED, MACHINE, NOT_CONFIRMED, OperatorError
from ..host import standing
from ..stacks import load_health, load_stack
from ..steps import (approval, claims, confirm, estimate, guard, judge, judge_config, judge_machine, launch, lock, record, shapes,
                     survey, survival)
from ..steps.board import pick_served
from ..steps.guard import describe_stop
from ..steps.judge_machine import describe_process
from ..text import report
from ..text import terminal as term
from ..text.redact import redact, redact_words
from ..values import Choices, Launch, LiveRun, Plan, Request, Verdict
from . import asking, checked, launched, surveying, unattended
from . import options as shared

_LOCK_SECONDS = 60.0
_LOCK_LOOK_SECONDS = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `run`. Each question has one that answers it."""
    shared.add_where(parser)
    surveying.add_timeout(parser)
    parser.add_argument("--confirm", default=None, metavar="DIGEST",
                        help="launch if the plan still has this digest (check prints it)")
    parser.add_argument("--again", action="store_true", help="launch a confirmed plan that was launched already")
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--background", action="store_true", help="detach, report, and return (the default)")
    modes.add_argument("--foreground", action="store_true", help="stay until the run ends; Ctrl-C goes to the run")
    parser.add_argument("--board", choices=("link", "leave"), default="", help="where the board would not show this run: link "
                                                                              "its log into what the board serves, or leave it")
    parser.add_argument("--old-log", choices=("keep", "lose"), default="",
                        help="where the launch truncates an earlier run's log: keep a copy in the record, or lose it")
    unattended.add_arguments(parser)
    parser.add_argument("--server-timeout", type=surveying.parse_seconds, default=launched.SERVER_SECONDS, metavar="SECONDS",
                        help="how long an inference server may take until /health answers (default: 600)")


def run(options: Any, terminal: term.Terminal, overrides: Tuple[str, ...]) -> int:
    """One launch. Exit codes as the design has them; 130 only before the launch."""
    scope = unattended.enter_scope(options.scope)
    where = shared.read_where(options, overrides)
    choices = unattended.read_choices(options, read_choices(options))._replace(scope=scope)
    request = shared.find_request(where, terminal)
    if choices.plan_file:
        approval.read_plan_file(choices)  # a bad file is told at once
    return launch_request(request, where, choices, options.dry_run_timeout, terminal)


def read_choices(options: Any) -> Choices:
    """The answers that the command line gives. OperatorError (exit 2) for a digest that is none."""
    return Choices(confirm.check_digest(options.confirm) if options.confirm is not None else "", options.again,
                   "foreground" if options.foreground else "background" if options.background else "",
                   options.board, options.old_log, options.server_timeout)


def launch_request(request: Request, where: shared.Where, choices: Choices, timeout_seconds: float,
                   terminal: term.Terminal) -> int:
    """Check, confirm, launch, report: for whatever a stack can plan."""
    if load_stack(request.checkout.stack).TAKES_WHOLE_BOX and choices.wait_seconds is None and not request.slurm:
        _refuse_live_runs(request.checkout.root, guard.read_runs(), terminal)
    environ = survey.read_operator_environment()
    look = functools.partial(surveying.survey_with_progress, request, environ, timeout_seconds, terminal)
    found = look(lambda: None)
    secrets = surveying.collect_secrets(found, environ)
    _import_rest(found, choices)
    leave: Callable[[], None] = lambda: None
    try:
        if choices.wait_seconds is not None:
            found, leave = unattended.wait_until_free(found, look, where, choices, environ, secrets, terminal)
            secrets = surveying.collect_secrets(found, environ)  # the config may be another one by now
        if found.verdict.blocking:
            return _refuse_verdict(found, where, terminal, secrets)
        return _go_on(found, where, choices, environ, secrets, terminal, leave)
    except OperatorError as error:  # the same facts as a check's, whatever came of it
        error.shape = dict(dict(shapes.shape_check(found, secrets), command=where.command, launched=False), **error.shape)
        raise
    finally:
        leave()


def _import_rest(found: survey.Survey, choices: Choices) -> None:
    """Now, not after the question: the pyz may be replaced meanwhile."""
    from ..text import bug  # noqa: F401
    load_health(found.plan.stack)  # for the report
    if found.board.pid or choices.wait_seconds is not None:  # one may be there after the wait
        from ..steps import board_link  # noqa: F401
    if found.plan.is_submission:
        from ..host import slurm_queue  # noqa: F401
        from ..steps import job_nodes, slurm_job  # noqa: F401
        from ..text import slurm_words  # noqa: F401
    elif found.plan.topology.nodes > 1:
        from ..host import ray  # noqa: F401
        from ..steps import joining  # noqa: F401
    if found.plan.server_url:
        from ..host import web  # noqa: F401
    if choices.notify:
        from ..steps import notify
        notify.import_all(found.plan.stack)


def _go_on(found: survey.Survey, where: shared.Where, choices: Choices, environ: Dict[str, str], secrets: Tuple[str, ...],
           terminal: term.Terminal, leave: Callable[[], None]) -> int:
    """Steps 3 to 7: show, confirm, launch, report."""
    plan = "\n".join(checked.render(found, terminal, secrets, where.command) + [""] + _look(found))
    if not choices.confirm:
        term.tell(terminal, plan)  # what the yes is given to is shown, also with -q
    elif not terminal.is_json:
        term.print_note(terminal, plan)
    answers = asking.confirm_launch(found, where, choices, secrets, terminal)
    return _launch(found, choices, answers, environ, secrets, terminal, where, leave)


def _refuse_live_runs(root: str, runs: Tuple[LiveRun, ...], terminal: term.Terminal) -> None:
    """Step 1, with the seed's words, before anything slow."""
    if not runs:
        return
    lines = ["A run is already in flight; refusing to start another:"]
    lines += ["  %s   %s" % ("pids:" if number == 0 else "     ", describe_process(one.top)) for number, one in enumerate(runs)]
    log = guard.find_newest_log([one.root for one in runs if one.root] + [root])
    lines.append("  log:    %s" % (log or "none found under logs/"))
    stops = " or ".join(dict.fromkeys(describe_stop(one) for one in runs[:3]))
    lines.append("Let it finish, or stop it yourself (%s), then run this again." % stops)
    error = OperatorError("\n".join(lines), "", BLOCKED, "job:running")
    error.shape = {"verdict": "NO", "blocking": ["job:running"], "warnings": [], "digest": None, "root": root, "runs": [
        {"pid": one.top.pid, "pgid": one.top.pgid, "stack": one.stack, "kind": one.kind, "role": one.role,
         "elapsed_seconds": int(one.top.elapsed_seconds), "root": one.root or None, "pids": list(one.pids)} for one in runs]}
    raise error


def _refuse_verdict(found: survey.Survey, where: shared.Where, terminal: term.Terminal, secrets: Tuple[str, ...]) -> int:
    if terminal.is_json:
        shape = shapes.shape_check(found, secrets)
        first = next((check.fix for check in found.verdict.checks if check.status == "blocks" and check.fix), "")
        shape.update(command=where.command, launched=False, reason="blocked", exit=BLOCKED, hint=first or None,
                     error="the verdict is NO: %s" % ", ".join(found.verdict.blocking))
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


def _launch(found: survey.Survey, choices: Choices, answers: asking.Answers, environ: Dict[str, str], secrets: Tuple[str, ...],
            terminal: term.Terminal, where: shared.Where, leave: Callable[[], None]) -> int:
    plan = found.plan
    here = standing.read_standing()
    held = _take_lock(found, terminal)
    try:
        _look_again(found, choices, answers, environ, secrets, terminal)
        paths = record.create(plan, time.time(), judge_config.needs_private_log(plan))
        if plan.batch is not None:
            from ..steps import slurm_job
            plan = slurm_job.write(plan, paths, found.fingerprint)
        written = record.write_plan(paths, plan, found.git, found.fingerprint, secrets, {
            "command": where.command, "mode": answers.mode, "board": answers.board or None, "old_log": answers.old_log or None,
            "link": None, "ports": [port.number for port in plan.ports], "gpus": list(claims.name_gpus(plan)),
            "own_dirs": list(plan.own_dirs), "verdict_warnings": list(found.verdict.warnings),
            "survival": survival.describe(here, tuple(one.detail for one in found.verdict.checks if one.name == "session:ends"),
                                          secrets),
            "notify": list(redact_words(choices.notify, secrets)) or None, **_describe_batch(plan, where, secrets)})
        if answers.old_log == "keep":
            written["kept_log"] = launch.keep_old_log(plan, paths.record)
            _look_again(found, choices, answers, environ, secrets, terminal)  # a copy may have taken a while
        watch, after = unattended.order_notify(found, choices, environ, secrets, paths)
        started = launch.launch(plan, paths, held, environ, written, _order_link(found, answers, paths), watch, after)
    except KeyboardInterrupt:
        raise OperatorError("interrupted; nothing was launched", "", INTERRUPTED, "interrupted")
    finally:
        lock.release(held)
        leave()
    try:
        launch.note_started(started, written)
        written["survival"]["verified"] = survival.verify(started, here, choices.scope)
        return launched.follow(found, started, answers.mode, answers.board, written, secrets, terminal, choices.server_seconds)
    except Exception as failure:  # whatever it is, the run lives, and must not be denied
        raise _admit_launch(redact(str(failure), secrets), type(failure).__name__, plan, started)


def _describe_batch(plan: Plan, where: shared.Where, secrets: Tuple[str, ...]) -> Dict[str, Any]:
    """What only the record of a job has whose script rlrun wrote."""
    if plan.batch is None:
        return {}
    stack = load_stack(plan.stack)
    again = shared.name_again("check", where._replace(root=plan.root), plan, secrets)
    from ..steps import slurm_job
    return {"batch": slurm_job.describe(plan.batch, stack.STOP_SIGNAL, again), "gentle_stop": True}


def _take_lock(found: survey.Survey, terminal: term.Terminal) -> lock.Lock:
    """The lock, waited for; whoever has launched meanwhile what keeps this launch out is named, not the next one in line."""
    ends = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            return lock.acquire(_LOCK_LOOK_SECONDS)
        except OperatorError as error:
            if error.code != BLOCKED or time.monotonic() >= ends:
                raise
        _refuse_live_runs(found.plan.root, tuple(one for one in guard.read_runs()
                                                 if judge_machine.is_excluded_by(found.plan, one)), terminal)


def _look_again(found: survey.Survey, choices: Choices, answers: asking.Answers, environ: Dict[str, str],
                secrets: Tuple[str, ...], terminal: term.Terminal) -> None:
    """The second look, under the lock: whatever is not as it was shown ends it."""
    again = survey.look_again(found, environ)
    _refuse_live_runs(found.plan.root, tuple(one for one in again.machine.runs
                                             if judge_machine.is_excluded_by(found.plan, one)), terminal)
    approval.refuse_launched(found, choices)
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


def _refuse_race(found: survey.Survey, answers: asking.Answers) -> None:
    """An earlier run's log may have appeared since the question."""
    if not answers.old_log and judge_config.old_log_size(found.plan):
        raise OperatorError("%s appeared meanwhile, and the launch would truncate it; nothing was launched"
                            % found.plan.train_log, "Run this again, and answer for it.", NOT_CONFIRMED, "log:overwrite")


def _order_link(found: survey.Survey, answers: asking.Answers, paths: record.Paths) -> Optional[Any]:
    if answers.board != "link":
        return None
    served = pick_served(found.board, found.plan.root)
    if not served:
        raise OperatorError("no directory that the board serves can be written any more", "Answer --board leave.", MACHINE,
                            "board")
    from ..steps import board_link
    return functools.partial(board_link.make_link, board_link.LinkOrder(found.plan.stack, served, found.board.port,
                                                                       paths.launch_log, found.plan.root, paths.record))
