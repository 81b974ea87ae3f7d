"""`rlrun node check|run`: a Slurm job's part on one node, called by the job's batch script. What it prints is the job's log."""
import argparse
import os
import time
from typing import Any, List, Sequence, Tuple

from ..errors import BLOCKED, OK, OperatorError
from ..health import tail
from ..steps import in_job, keeper, survey
from ..text import terminal as term
from ..text.durations import format_elapsed
from ..text.redact import find_secrets, redact
from ..text.shell import escape_controls, strip_colour
from ..values import Check
from . import surveying

_TITLE = b"rlrun: node"
_REST_SECONDS = 60.0  # for what a check reads beside the runner's own
_TAIL_LINES = 8
_SAME_CHECKS = 2  # so many of one name are told whole; the rest is in the record, in this node's file
_LINE_WIDTH = 300


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `node`."""
    parser.add_argument("part", choices=("check", "run"), help="steps 1 and 2 on this node; or the runner, until it ends")
    surveying.add_timeout(parser)


def run(options: Any, terminal: term.Terminal, overrides: Tuple[str, ...]) -> int:
    """Exit 0: fit for the run; the run ended well, or the step was ended. 1: blocked. 5: the runner could not be started. Else
    the runner's own code (128 and the number of a signal)."""
    task = in_job.read_task(os.environ)
    agent = in_job.heed_signals(str(task.record["batch"].get("stop_signal"))) if options.part == "run" else None
    keeper.hide_command_line(_TITLE)  # the runner's sweep reads command lines
    try:
        return _check(task, options.dry_run_timeout, terminal) if agent is None else _run(task, agent, terminal)
    except OperatorError as error:
        if not (agent and agent.came):
            in_job.tell(task, in_job.make_state(task, "blocked", blocking=in_job.make_blocking(error)))
        is_ended = agent is not None and in_job.is_step_ended(agent)
        raise OperatorError("%s: %s" % (task.host, error.message), error.hint, OK if is_ended else error.code, error.reason)


def _check(task: in_job.Task, timeout_seconds: float, terminal: term.Terminal) -> int:
    from ..steps import in_job_check
    limit = timeout_seconds + _REST_SECONDS

    def give_up() -> None:
        late = in_job_check.judge_late(task, limit)
        _say(terminal, task, _list_blocking([late]))
        in_job.tell(task, in_job.make_state(task, "blocked", blocking=in_job_check.shape([late])))
    timer = in_job_check.end_when_late(limit, give_up)
    in_job.tell(task, in_job.make_state(task, "checking"))
    request = in_job_check.make_request(task)
    if request.dropped is not None:
        _drop_environment(task)
    environ = survey.read_operator_environment()
    found = surveying.survey_with_progress(request, environ, timeout_seconds, terminal, lambda: None)
    blocking, warnings = in_job_check.judge(task, found, surveying.collect_secrets(found, environ))
    timer.cancel()
    unwritten = in_job.tell(task, in_job.make_state(task, "blocked" if blocking else "checked", warnings=warnings,
                                                    blocking=in_job_check.shape(blocking)))
    lines = _list_blocking(blocking) if blocking else [
        "fit for this run%s" % ("; warnings: " + ", ".join(warnings) if warnings else "")]
    _say(terminal, task, lines + (["its state could not be written: %s" % unwritten] if unwritten else []))
    return BLOCKED if blocking else OK


def _list_blocking(blocking: Sequence[Check]) -> List[str]:
    lines = ["BLOCKED; no runner is started on any node"]
    names = [one.name for one in blocking]
    for place, one in enumerate(blocking):
        before = names[:place].count(one.name)
        if before < _SAME_CHECKS or names.count(one.name) == _SAME_CHECKS + 1:
            lines += ["  %s  %s" % (one.name, one.detail)] + (["    %s" % one.fix] if one.fix else [])
        elif before == _SAME_CHECKS:
            lines.append("  %s  \u2026 and %d more" % (one.name, names.count(one.name) - before))
    return lines


def _drop_environment(task: in_job.Task) -> None:
    """--drop-env: of what Slurm gives a task, too; the head's address is the job's own."""
    from ..host import inherited
    for name in set(inherited.drop(dict(os.environ))[1]) - {str(task.record["batch"].get("head_variable"))}:
        del os.environ[name]


def _run(task: in_job.Task, agent: in_job.Agent, terminal: term.Terminal) -> int:
    if "--drop-env" in task.record["parts"]:
        _drop_environment(task)
    kept = in_job.keep_earlier_log(task)
    if kept:
        _say(terminal, task, ["started again; the log so far is kept: %s" % kept])
    began = time.monotonic()
    state, pid = in_job.start_runner(task, agent, dict(os.environ))
    _say(terminal, task, ["the %s's runner is pid %d; its log: %s" % (state.role, pid, state.log)])
    state, ended = in_job.wait_for_runner(task, agent, state, pid)
    how = "was killed by %s" % ended.signal if ended.signal else "ended %s" % ended.status
    lines = ["the %s's runner %s after %s%s" % (state.role, how, format_elapsed(time.monotonic() - began),
                                                "; %s" % ended.told if ended.told else "")]
    if state.phase == "joined" and not ended.is_step:
        _say(terminal, task, ["joined: its runner ended 0; it stays until the head's has ended"])
        in_job.stay(task, agent)
        return OK
    if ended.code and not ended.told and not in_job.is_private(state.log):
        lines += _quote_end(task, state.log)
    _say(terminal, task, lines)
    return OK if ended.is_step else ended.code


def _quote_end(task: in_job.Task, log: str) -> List[str]:
    """The last lines of the runner's log, without a secret of the environment or of what the config spells out."""
    paths = [name[5:] for name in task.record["parts"] if name.startswith("file ")]
    secrets = find_secrets(os.environ) + survey.find_assigned(paths)
    found = [redact(strip_colour(line), secrets) for line in tail.read_last_lines(log, _TAIL_LINES)]
    return ["  | %s" % (line if len(line) <= _LINE_WIDTH else line[:_LINE_WIDTH - 1] + "\u2026") for line in found] or [
        "  its log is empty"]


def _say(terminal: term.Terminal, task: in_job.Task, lines: Sequence[str]) -> None:
    """Lines for the job's log, in one piece: all nodes write to it."""
    shown = ["%s: %s" % (task.host, escape_controls(line)) for line in lines]
    term.print_result(terminal, "\n".join([time.strftime("%Y-%m-%dT%H:%M:%SZ ", time.gmtime()) + shown[0]] + shown[1:]))
