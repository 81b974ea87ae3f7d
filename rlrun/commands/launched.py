"""After the launch: what the run itself says, in the seed's report. What was not read yet is said to be missing."""
import functools
import json
import os
import signal
import sys
import time
from typing import Any, Dict, List, Optional, Tuple

from ..errors import NOT_REACHED, OK, RUN_ENDED, OperatorError
from ..health import tail
from ..host import procs
from ..stacks import load_health, load_stack
from ..steps import jobs, keeper, launch, nodes, readback, records, shapes, survey
from ..text import report
from ..text import terminal as term
from ..text.durations import format_elapsed
from ..text.redact import redact
from ..text.shell import escape_controls, strip_colour
from ..values import Launch, Plan, Readback
from ..vitals import Joining
from .options import name_program

SERVER_SECONDS = 600.0
_JOB_SECONDS, _JOB_LOOK_SECONDS = 6.0, 0.5  # a job that fails at once is seen to
_TAIL_LINES = 15
_LINE_LENGTH = 240  # a step line alone has thousands of characters
_FOREGROUND_POLL_SECONDS = 0.1


def follow(found: survey.Survey, started: Launch, mode: str, board: str, written: Dict[str, Any], secrets: Tuple[str, ...],
           terminal: term.Terminal, server_seconds: float = SERVER_SECONDS) -> int:
    """Waits as the mode says, completes the record, prints the report. A Ctrl-C while waiting ends only the waiting.
    `server_seconds`: how long a server may take until it answers.

    The signals that the launch holds back are let in here. From now on none of them may end in "nothing was launched",
    so they are only noted, and looked for where something is waited for.
    """
    came = _collect_signals()
    keeper.heed_signals()
    plan = found.plan
    server = None
    is_interrupted = False
    try:
        if mode == "foreground":
            _stream(started, plan, came, secrets, terminal)
            back, settled = readback.read_back(started, plan), True
        else:
            limit = server_seconds if plan.is_submission else readback.WAIT_SECONDS
            term.print_note(terminal, "launched (pid %d); reading back what it says, %d s at most; Ctrl-C leaves it running …"
                            % (started.runner.pid, limit))
            back, settled = readback.wait(started, plan, limit, functools.partial(_sleep_unless, came))
            if plan.server_url and settled:
                server = readback.wait_for_server(started, plan, server_seconds, functools.partial(term.print_note, terminal),
                                                  functools.partial(_sleep_unless, came))
                back = readback.read_back(started, plan)
    except KeyboardInterrupt:
        back, settled, is_interrupted = readback.read_back(started, plan), True, True
    back = _ask_jobs(_hide_secrets(back, secrets), started, plan)
    waits, has_joined = _look_at_nodes(back, started, plan, written, secrets)
    link = _read_link(started, board)
    written.update(experiment=back.experiment or written["experiment"], train_log=back.train_log or written["train_log"],
                   vllm_log=back.vllm_log, trials=back.trials, verdict=back.verdict, fatal=list(back.fatal),
                   trainer=list(back.trainer_pids), link=link, facts=back.facts)
    launch.save(started.record, written)
    code = OK if has_joined or is_interrupted and not back.exit else _pick_code(mode, plan, back, settled, server)
    if terminal.is_json:
        shape = _shape(found, started, back, link, code, written, server, secrets)
        shape.update(joined=has_joined, joining=_shape_joining(waits))
        text = json.dumps(shape, sort_keys=True)
    else:
        lines = _render(found, started, back, link, written, mode, server, has_joined, waits)
        lines += _render_end(found, started, back, secrets) if code == RUN_ENDED else []
        lines += _render_after(found, written, server) if code != RUN_ENDED and (not back.exit or plan.is_short) else []
        text = "\n".join(lines)
    try:
        term.print_result(terminal, text)
    except OperatorError as error:  # a report that can't be written does not undo the launch
        term.print_error(terminal, "rlrun: %s" % error.message)
    return code


def _hide_secrets(back: Readback, secrets: Tuple[str, ...]) -> Readback:
    """What is quoted out of the launch log, in which the runner prints secrets: for the report and for the record."""
    return back._replace(fatal=tuple(redact(line, secrets) for line in back.fatal), verdict=redact(back.verdict, secrets))


def _ask_jobs(back: Readback, started: Launch, plan: Plan) -> Readback:
    """What Slurm says of a job that was handed in just now: it may wait, run, or have failed by now."""
    handed_in = list(back.facts.get("jobs") or ())
    if not plan.is_submission or not handed_in:
        return back
    ends = time.monotonic() + _JOB_SECONDS
    while True:
        found = dict(records.read_record(started.record) or {}, jobs=handed_in, launch_log=started.launch_log)
        jobs.ask_slurm([found], True)
        told = dict(found.get("job_told") or {})
        if not _is_starting(told, started) or time.monotonic() >= ends:
            break
        time.sleep(_JOB_LOOK_SECONDS)
    rows = tuple((label, jobs.tell_states(found) if label == "job" and told else value) for label, value in back.rows) \
        if plan.batch is not None else back.rows
    from ..steps import job_nodes
    facts = dict(back.facts, job_told=told, nodes=jobs.shape_nodes(dict(found, node_states=job_nodes.read_nodes(started.record))),
                 pending=jobs.find_stop_facts(found)["pending"])
    logs = facts.get("job_logs")
    if _has_failed(back._replace(facts=facts)) and isinstance(logs, dict):
        facts["failed_log"] = logs.get(handed_in[0])
    return back._replace(rows=rows, facts=facts)


def _is_starting(told: Dict[str, Any], started: Launch) -> bool:
    """May the next look find another state? Slurm has not yet said why a job waits, or no node of a job of ours has a runner."""
    if any(one["state"] == "PENDING" and not one["reason"] for one in told.values()):
        return True
    from ..steps import job_nodes
    states = job_nodes.read_nodes(started.record)
    has_begun = any(one.phase not in ("checking", "checked") for one in states)
    return any(one["state"] in ("RUNNING", "CONFIGURING") for one in told.values()) and not has_begun


def _has_failed(back: Readback) -> bool:
    if not back.facts.get("job_told"):
        return False
    from ..host import slurm
    return any(slurm.is_over(one["state"]) and one["state"] != "COMPLETED" for one in (back.facts.get("job_told") or {}).values())


def _look_at_nodes(back: Readback, started: Launch, plan: Plan, written: Dict[str, Any],
                   secrets: Tuple[str, ...]) -> Tuple[Optional[Joining], bool]:
    """Of a run on several nodes: who has joined, where its head waits; and was this a worker whose part is done?"""
    if plan.topology.nodes < 2 or plan.is_submission:
        return None, False
    from ..steps import joining
    waits = joining.look_launch(plan, str(written["digest"]), started, back, float(written["time_seconds"]), secrets)
    is_good = bool(back.exit) and (back.exit or {}).get("status") == 0
    return waits, is_good and joining.has_joined(plan.stack, started.launch_log)


def _shape_joining(waits: Optional[Joining]) -> Any:
    if waits is None:
        return None
    from ..steps import joining
    return joining.shape(waits)


def _pick_code(mode: str, plan: Plan, back: Readback, settled: bool, server: Optional[readback.Server]) -> int:
    if back.exit and (mode == "foreground" or plan.is_short):
        is_handed_in = bool(back.facts.get("jobs")) and not _has_failed(back)
        is_done = back.exit.get("status") == 0 and (not plan.is_submission or is_handed_in)
        return OK if is_done else RUN_ENDED
    if not settled or back.exit:
        return RUN_ENDED
    return NOT_REACHED if plan.is_submission or (server is not None and not server.is_up) else OK


def _read_link(started: Launch, board: str) -> Any:
    if board != "link":
        return None
    found = records.read_record(started.record) or {}
    return found.get("link_result") or {"state": "pending", "by": "keeper", "reason": "made once the log exists"}


def stop_line(started: Launch, plan: Plan, facts: Dict[str, Any]) -> str:
    """The command that stops the run, as its stack knows it; `facts`: what was read back of it."""
    return str(load_stack(plan.stack).describe_stop(started.pgid, facts))


def _shape(found: survey.Survey, started: Launch, back: Readback, link: Any, code: int, written: Dict[str, Any],
           server: Optional[readback.Server], secrets: Tuple[str, ...]) -> Dict[str, Any]:
    """check's object, and what only a launch has."""
    commands = nodes.make_commands(found.plan, str(written["time"]))
    shape = shapes.shape_check(found, secrets)
    shape.update({
        "command": written["command"], "launched": True, "exit": code, "experiment": back.experiment or None,
        "launch_log": started.launch_log, "train_log": back.train_log or None, "vllm_log": back.vllm_log or None,
        "trials": back.trials or None, "record": started.record, "mode": written["mode"],
        "runner": {"pid": started.runner.pid, "pgid": started.pgid, "keeper": started.keeper_pid},
        "trainer": back.trainer_pids[0] if back.trainer_pids else None, "preflight": back.verdict or None,
        "fatal": list(back.fatal), "ended": back.exit, "stop": stop_line(started, found.plan, back.facts), "link": link,
        "survival": written["survival"], "limits": written["limits"],
        "facts": back.facts, "server": {"url": server.url, "up": server.is_up, "models": list(server.models),
                                        "words": server.words} if server else None, "nodes": {
            "others": commands.others, "command": commands.command or None, "warning": commands.warning or None,
            "doubts": list(commands.doubts)}})
    return shape


def _render(found: survey.Survey, started: Launch, back: Readback, link: Any, written: Dict[str, Any],
            mode: str, server: Optional[readback.Server], has_joined: bool, waits: Optional[Joining]) -> List[str]:
    """The seed's report: at most 15 lines, and what else the stack could read."""
    plan = found.plan
    pairs = [("kind / config", "%s · %s" % (plan.kind, " + ".join((plan.config_shown,) + plan.more_configs))),
             _name_run(plan, back),
             ("launch log", os.path.relpath(started.launch_log, plan.root))]
    if plan.has_board:
        pairs += [("train log" if plan.kind == "train" else plan.kind + " log", back.train_log or "not told yet"),
                  ("vllm log", back.vllm_log or "not told yet"), ("trials", back.trials or "not told yet"),
                  ("board", _describe_board(found, link)),
                  ("pids", "runner=%d  trainer=%s" % (started.runner.pid, _name_trainer(plan.kind, back)))]
    else:
        pairs += ([] if plan.is_submission and back.exit else [("pids", "runner=%d" % started.runner.pid)]) + list(back.rows)
    if server:
        pairs.append(("health", "%s/health: %s after %d s" % (server.url, server.words, server.seconds)))
        pairs += [("models", ", ".join(server.models) or "none told")] if server.is_up else []
    is_handed_in = plan.is_submission and bool(back.facts.get("jobs"))
    pairs += [("detached", written["survival"]["verified"]["words"])]
    stage = "it answers" if server and server.is_up else plan.stage
    stage = describe_exit(back.exit) if back.exit and not is_handed_in else stage
    if is_handed_in and plan.batch is not None:
        from ..steps import job_nodes
        states = job_nodes.read_nodes(started.record)
        stage = job_nodes.describe_nodes(states, plan.topology.nodes) if states else stage
    stage = "joined: its runner has ended 0; the head drives the run, and tells its steps" if has_joined else stage
    if waits:
        from ..text import joined
        stage = joined.tell_stage(waits)
        pairs.append(("nodes", " · ".join(joined.describe(waits))))
    pairs += [("stage", stage),
              ("record", os.path.relpath(started.record, plan.root))]
    name = os.path.basename(started.record)
    if is_handed_in:
        pairs.append(("next", "%s status %s    # follows the job" % (name_program(), name)))
    if not back.exit:
        pairs.append(("watch", "tail -F %s" % started.launch_log))
        has_steps = plan.kind in load_health(plan.stack).STEP_KINDS
        pairs.append(("next", "%s gate %s    # waits for the first step and judges it" % (name_program(), name) if has_steps else
                      "%s status %s" % (name_program(), name)))
    if not back.exit or is_handed_in and not _has_failed(back):
        pairs.append(("stop", stop_line(started, plan, back.facts)))
    submitted = "Submitted, and it has failed" if _has_failed(back) else "Submitted"
    head = submitted if is_handed_in else "Not submitted" if plan.is_submission and back.exit else "Launched (%s)" % mode
    return [head] + report.render_pairs(pairs)


def _name_run(plan: Plan, back: Readback) -> Tuple[str, str]:
    if plan.batch is not None:
        return "exp_name", "told by its log once it runs" if plan.name_is_volatile else plan.experiment or "not told"
    if not plan.has_board:
        return "run", plan.run_dir or "no directory of its own"
    return "exp_name", back.experiment or "starting — check the log in 30s"


def _name_trainer(kind: str, back: Readback) -> str:
    if back.trainer_pids:
        return str(back.trainer_pids[0])
    return "none in this kind" if kind != "train" else "ended" if back.exit else "starting"


def _describe_board(found: survey.Survey, link: Any) -> str:
    if link is None:
        return report.describe_board(found.plan, found.board, found.is_visible)
    words = {"verified": "linked and shown as %s", "unverified": "linked as %s, not verified", "pending": "the link comes when "
             "the log exists%s", "failed": "no link%s", "never": "no link%s"}[str(link.get("state"))]
    name = os.path.splitext(os.path.basename(str(link.get("path", ""))))[0]
    return words % name + (": %s" % link["reason"] if link.get("reason") and link["state"] != "pending" else "")


def _render_after(found: survey.Survey, written: Dict[str, Any], server: Optional[readback.Server]) -> List[str]:
    lines: List[str] = []
    if found.plan.is_submission and not written["facts"].get("jobs"):
        lines += ["", "It has not handed the job in yet, and is still at it: see its log."]
    if server and not server.is_up:
        lines += ["", "It has not answered within %d s, and is still alive; look at its log. Ask again:" % server.seconds]
    if server:
        lines += [""] if server.is_up else []
        lines += ["  %s" % line for line in load_stack(found.plan.stack).describe_server(server.url, server.models)]
    if found.plan.gates:
        lines += ["", "Check these at the first step (~20–40 minutes in):"] + ["  • %s" % gate for gate in found.plan.gates]
    if found.plan.topology.nodes > 1 and not found.plan.is_submission:
        lines += [""] + list(nodes.describe(nodes.make_commands(found.plan, str(written["time"])), True))
    return lines


def _render_end(found: survey.Survey, started: Launch, back: Readback, secrets: Tuple[str, ...]) -> List[str]:
    lines = [""]
    has_failed = _has_failed(back)
    if has_failed:
        lines.append("The job that was handed in has failed by now; nothing is retried.")
    elif back.exit:
        lines.append("The run has ended: %s" % describe_exit(back.exit))
    elif not back.launch_log_bytes:
        lines.append("The run has said nothing for %d s (the launch log is empty), and is still alive: pid %d."
                     % (readback.WAIT_SECONDS, started.runner.pid))
    lines += ["  %s" % escape_controls(line) for line in back.fatal]
    last: Tuple[str, ...] = ()
    for path in [started.launch_log] + [str(one) for one in (back.facts.get("failed_log"),) if one]:
        end = tail.read_last_lines(path, _TAIL_LINES)
        lines.append("The end of %s:" % path if end else "%s is empty." % path)
        lines += ["  | " + _shorten(escape_controls(redact(strip_colour(line), secrets))) for line in end]
        last += end
    if has_failed:
        return lines + ["Mend the cause, then hand it in again."]
    if back.exit and back.exit.get("status") == 0 and "host:worker" in found.verdict.warnings:
        return lines + ["It ended 0, as on every node that is not the head, and its log does not say that it joined."]
    if back.exit and back.exit.get("status") == 0:
        return lines + ["It ended 0 within the first minute; its log tells whether that was success. Nothing is retried."]
    hint = load_stack(found.plan.stack).explain_end("\n".join(last)) if back.exit else ""
    return lines + ([hint] if hint else []) + ["Nothing is retried. Mend the cause, then launch again."]


def _shorten(line: str) -> str:
    return line if len(line) <= _LINE_LENGTH else line[:_LINE_LENGTH - 1] + "…"


def describe_exit(ended: Dict[str, Any]) -> str:
    """`ended 2 after 8s`, `killed by SIGKILL after 3h 05m`."""
    if ended.get("reason"):
        return str(ended["reason"])
    words = "killed by %s" % ended["signal"] if ended.get("signal") else "ended %s" % ended.get("status")
    return "%s after %s" % (words, format_elapsed(float(str(ended.get("duration_seconds") or 0))))


def _stream(started: Launch, plan: Plan, came: List[int], secrets: Tuple[str, ...], terminal: term.Terminal) -> None:
    """Foreground: the launch log as it grows, to the terminal, until the run ends. Ctrl-C goes to the run's group; a closed
    window or a SIGTERM ends only the showing, for the run outlives rlrun in this mode too."""
    term.print_note(terminal, "launched (pid %d) in the foreground; Ctrl-C stops the run, %s too" % (started.runner.pid,
                                                                                                   stop_line(started, plan, {})))
    offset = 0
    pending = b""
    while not set(came) - {signal.SIGINT}:
        if came:
            came.clear()
            _interrupt_run(started, plan)
        is_over = readback.read_exit(started) is not None
        data, offset = tail.read_new(started.launch_log, offset)
        whole, newline, pending = (pending + data).rpartition(b"\n")
        if is_over and not data:
            whole, pending = pending, b""
        if whole or newline:
            _write((whole + newline).decode("utf-8", "replace"), secrets, terminal)
        if is_over and not data:
            return
        if not data:
            time.sleep(_FOREGROUND_POLL_SECONDS)


def _collect_signals() -> List[int]:
    """From here on these signals only leave their number in the list that is returned; one that is ignored stays so."""
    came: List[int] = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, frame: came.append(number))
    return came


def _sleep_unless(came: List[int], seconds: float) -> None:
    if not came:
        time.sleep(seconds)
    if came:
        raise KeyboardInterrupt()


def _interrupt_run(started: Launch, plan: Plan) -> None:
    try:
        if procs.is_alive(started.runner):
            os.killpg(started.pgid, getattr(signal, "SIG" + load_stack(plan.stack).STOP_SIGNAL))
    except OSError:
        pass


def _write(text: str, secrets: Tuple[str, ...], terminal: term.Terminal) -> None:
    text = redact(text, secrets)
    if terminal.is_json or sys.stdout is None:
        term.print_error(terminal, text)
    else:
        term.print_result(terminal, text)
