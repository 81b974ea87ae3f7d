"""`rlrun nodes`: the command for each other node of a run. Prints it; goes nowhere. With --check it writes what that command then
compares each node with."""
import argparse
import json
import os
import time
from typing import Any, Dict, Optional, Tuple

from ..errors import BLOCKED, MACHINE, OK, OperatorError
from ..host import git as host_git
from ..host import gpus
from ..steps import digest, node_facts, nodes, preflight, record, survey
from ..text import terminal as term
from ..text.redact import find_secrets, redact
from ..text.shell import escape_controls
from ..values import Plan, Request
from . import options as shared
from . import surveying


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `nodes`."""
    shared.add_where(parser)
    surveying.add_timeout(parser)
    parser.add_argument("--hosts", default=None, metavar="LIST|FILE", help="the nodes by name: a list as Slurm writes it, "
                        "n[001-004], or a file with a host a line")
    parser.add_argument("--check", action="store_true", help="let the printed command first compare its node with this "
                        "one (rlrun check --node-of); what it compares with is written to logs/rlrun/nodes/")


def run(options: Any, terminal: term.Terminal, overrides: Tuple[str, ...]) -> int:
    """Resolves the plan by the runner's dry run and prints the block. Exit 5 where no usable address is known."""
    where = shared.read_where(options, overrides)
    hosts = nodes.read_hosts(options.hosts) if options.hosts is not None else ()
    request = shared.find_request(where, terminal)
    environ = survey.read_operator_environment()
    started = _start(request.checkout.root) if options.check else None
    try:
        plan, said, _ = preflight.finish_dry_run(preflight.start_dry_run(request, environ), options.dry_run_timeout)
        if said.died or said.skipped:
            line = shared.name_again("check", where, plan, find_secrets(environ))
            raise OperatorError("the plan is unknown: %s" % (said.skipped or said.summary), "This tells more: %s" % line,
                                BLOCKED, "preflight:died" if said.died else "preflight:skipped")
        plan = _complete(plan, request, environ)
        if plan.batch is not None:
            return _print_job(plan, where, find_secrets(dict(environ, **plan.environment)), terminal)
        commands = nodes.make_commands(plan, record.make_stamp(time.time()), environ, hosts)
        facts = path = None
        if started and commands.command:
            facts = _gather(started, plan, commands.head, hosts)
            path = node_facts.write(plan.root, facts)
            commands = nodes.put_check_before(commands, _name_check(where, plan, facts.digest))
    finally:
        if started:
            _cancel(started)
    if terminal.is_json:
        shape: Dict[str, Any] = {
            "schema": 1, "command": "nodes", "kind": plan.kind, "config": plan.config_shown, "root": plan.root,
            "nodes": plan.topology.nodes, "others": commands.others, "head": commands.head or None,
            "line": commands.command or None, "warning": commands.warning or None, "doubts": list(commands.doubts),
            "hosts": list(commands.hosts) or None}
        if options.check:
            shape["check"] = {"digest": facts.digest, "facts": path} if facts else None
        term.print_result(terminal, json.dumps(shape, sort_keys=True))
    else:
        lines = nodes.describe(commands, False) + (_describe_check(path, facts) if facts and path else ())
        term.print_result(terminal, "\n".join(lines))
    return MACHINE if commands.warning else OK


def _print_job(plan: Plan, where: shared.Where, secrets: Tuple[str, ...], terminal: term.Terminal) -> int:
    """With --slurm one job takes all nodes: its batch script, and who hands it in."""
    script, count = redact(plan.batch.script, secrets), plan.topology.nodes
    taken = "its one node" if count == 1 else "all %d nodes" % count
    line = shared.name_again("run", where, plan, secrets)
    if terminal.is_json:
        term.print_result(terminal, json.dumps({
            "schema": 1, "command": "nodes", "kind": plan.kind, "config": plan.config_shown, "root": plan.root,
            "nodes": plan.topology.nodes, "others": 0, "head": None, "line": line, "warning": None, "doubts": [], "hosts": None,
            "script": script, "options": dict(plan.batch.options)}, sort_keys=True))
        return OK
    term.print_result(terminal, "\n".join(
        ["One job takes %s; nothing is to be started there by hand. Its batch script:" % taken]
        + ["  | " + escape_controls(one) for one in script.rstrip("\n").split("\n")]
        + ["It is handed in, after a check and a yes, by:", "    " + escape_controls(line, "\n\t")]))
    return OK


def _complete(plan: Plan, request: Request, environ: Dict[str, str]) -> Plan:
    """The plan with what the options ask for, so that its digest is that of `check`."""
    if request.slurm:
        from ..steps import slurm_job
        plan = slurm_job.make_plan(plan, request.slurm, environ)
    if request.dropped is not None:
        plan = plan._replace(more_parts=dict(plan.more_parts, **{"--drop-env": "given"}))
    return plan


def _start(root: str) -> Tuple[host_git.GitHandle, gpus.GpuQuery]:
    """What can be asked while the runner checks its config."""
    query = gpus.start_query()
    try:
        return host_git.start_git(root), query
    except BaseException:
        gpus.cancel_query(query)
        raise


def _cancel(started: Tuple[host_git.GitHandle, gpus.GpuQuery]) -> None:
    from .. import child
    gpus.cancel_query(started[1])
    for running in (started[0].status, started[0].diff):
        if running.popen is not None and running.popen.poll() is None:
            child.end_group(running.popen)


def _gather(started: Tuple[host_git.GitHandle, gpus.GpuQuery], plan: Plan, head: str,
            hosts: Tuple[str, ...]) -> node_facts.NodeFacts:
    git, reading = host_git.finish_git(started[0]), gpus.finish_query(started[1])
    name = digest.make_fingerprint(plan, git, survey.name_gpus(plan)).digest
    node_facts.prepare(plan.root)
    return node_facts.finish(node_facts.start(plan, reading), plan, git, reading, name, head, hosts)


def _name_check(where: shared.Where, plan: Plan, name: str) -> Tuple[str, ...]:
    """The words of the check on another node; whole paths, for nobody knows where it is typed."""
    words = shared.name_config(where._replace(root=plan.root), plan)
    return tuple(shared.list_program() + ["check", "--node-of", name] + words)


def _describe_check(path: str, facts: Optional[node_facts.NodeFacts]) -> Tuple[str, ...]:
    return ("It first compares its node with this one, as this one is now, and launches nothing there where they differ. Where",
            "the nodes don't share this checkout, copy this file to the same place there first:",
            "    " + escape_controls(os.path.normpath(path)))
