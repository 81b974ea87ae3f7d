"""`rlrun node check|run`: a Slurm job's part on one node, called by the job's batch script. What it prints is the job's log."""
import argparse
import os
from typing import Any, Tuple

from ..errors import BLOCKED, OK, OperatorError
from ..steps import in_job, keeper, survey
from ..text import terminal as term
from ..text.redact import redact
from ..text.shell import escape_controls
from . import surveying

_TITLE = b"rlrun: node"
# What a task of a job is bound to meet.
_EXPECTED = ("env:inherited", "session:ends", "session:stands", "host:worker", "name:volatile", "log:overwrite", "resume:silent")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `node`."""
    parser.add_argument("part", choices=("check", "run"), help="steps 1 and 2 on this node; or the runner, until it ends")
    surveying.add_timeout(parser)


def run(options: Any, terminal: term.Terminal, overrides: Tuple[str, ...]) -> int:
    """Exit 0: fit for the run; the run ended well, or was told to end. 1: blocked. Else the runner's own code (128 and the number
    of a signal)."""
    task = in_job.read_task(os.environ)
    keeper.hide_command_line(_TITLE)  # the runner's sweep reads command lines
    if options.part == "check":
        return _check(task, options.dry_run_timeout, terminal)
    try:
        return _run(task, terminal)
    except OperatorError as error:
        in_job.tell(task, in_job.make_state(task, "blocked", blocking=({"name": error.reason, "detail": error.message,
                                                                        "fix": error.hint},)))
        raise OperatorError("%s: %s" % (task.host, error.message), error.hint, error.code, error.reason)


def _check(task: in_job.Task, timeout_seconds: float, terminal: term.Terminal) -> int:
    in_job.tell(task, in_job.make_state(task, "checking"))
    request = in_job.make_request(task)
    if request.dropped is not None:
        _drop_environment(task)
    environ = survey.read_operator_environment()
    try:
        found = surveying.survey_with_progress(request, environ, timeout_seconds, terminal, lambda: None)
    except OperatorError as error:
        state = in_job.make_state(task, "blocked", blocking=({"name": error.reason, "detail": error.message, "fix": error.hint},))
        in_job.tell(task, state)
        raise OperatorError("%s: %s" % (task.host, error.message), error.hint, error.code, error.reason)
    secrets = surveying.collect_secrets(found, environ)
    checks = list(found.verdict.checks) + in_job.judge_moved(task, found, secrets)
    blocking = [one for one in checks if one.status == "blocks"]
    warnings = tuple(dict.fromkeys(one.name for one in checks if one.status == "advisory" and one.name not in _EXPECTED))
    in_job.tell(task, in_job.make_state(task, "blocked" if blocking else "checked", warnings=warnings, blocking=tuple(
        {"name": one.name, "detail": redact(one.detail, secrets), "fix": redact(one.fix, secrets)} for one in blocking)))
    lines = ["%s: %s" % (task.host, "BLOCKED, nothing is started on any node" if blocking else "fit for this run%s" % (
        "; warnings: " + ", ".join(warnings) if warnings else ""))]
    for one in blocking:
        lines += ["%s:   %s  %s" % (task.host, one.name, redact(one.detail, secrets))]
        lines += ["%s:     %s" % (task.host, redact(one.fix, secrets))] if one.fix else []
    term.print_result(terminal, escape_controls("\n".join(lines), "\n"))
    return BLOCKED if blocking else OK


def _drop_environment(task: in_job.Task) -> None:
    """--drop-env: of what Slurm gives a task, too; the head's address is the job's own."""
    from ..host import inherited
    for name in set(inherited.drop(dict(os.environ))[1]) - {str(task.record["batch"].get("head_variable"))}:
        del os.environ[name]


def _run(task: in_job.Task, terminal: term.Terminal) -> int:
    agent = in_job.heed_signals(task)
    if in_job.make_request(task).dropped is not None:
        _drop_environment(task)
    kept = in_job.keep_earlier_log(task)
    if kept:
        _say(terminal, task, "started again; the earlier log is kept: %s" % kept)
    state, pid = in_job.start_runner(task, agent, dict(os.environ))
    _say(terminal, task, "%s's runner is pid %d, its log %s" % (state.role, pid, state.log))
    state, ended = in_job.wait_for_runner(task, agent, state, pid)
    how = "killed by %s" % ended.signal if ended.signal else "ended %s" % ended.status
    _say(terminal, task, "%s's runner %s%s" % (state.role, how, ", told to stop" if agent.stops or agent.ends else ""))
    if state.phase == "joined":
        _say(terminal, task, "joined; stays until the head's runner ends")
        in_job.stay(task, agent)
        return OK
    return OK if ended.is_told else ended.code


def _say(terminal: term.Terminal, task: in_job.Task, words: str) -> None:
    term.print_result(terminal, escape_controls("%s: %s" % (task.host, words)))
