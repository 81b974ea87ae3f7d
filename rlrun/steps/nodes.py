"""Step 5: the command for each other node. Printed, never run: rlrun goes to no other node."""
import os
from typing import NamedTuple, Tuple

from ..host import address
from ..stacks import load_stack
from ..values import Plan


class NodeCommands(NamedTuple):
    """What the other nodes of a run need. `head` is empty where no usable address is known; then `warning` says why.
    `doubts`: what may be wrong with a head that looks usable."""

    others: int
    head: str
    command: str
    note: str
    warning: str
    doubts: Tuple[str, ...] = ()


def make_commands(plan: Plan, stamp: str) -> NodeCommands:
    """The block for the other nodes of a plan; `stamp` names their launch logs. Nothing to do for a single node."""
    others = plan.topology.nodes - 1
    if others < 1:
        return NodeCommands(0, "", "", "this run takes one node", "")
    if plan.is_submission:
        return NodeCommands(0, "", "", "one job takes all %d nodes: nothing is to be started on them" % plan.topology.nodes, "")
    addresses = address.read_addresses()
    head = plan.topology.head or (addresses[0] if addresses else "")
    resolved = address.resolve(head) if head else ""
    warning = _find_fault(head, resolved, plan.topology.head_variable)
    if warning:
        return NodeCommands(others, "", "", plan.topology.note, warning)
    command = load_stack(plan.stack).describe_node_command(plan, head, os.path.join("logs", "launch_" + stamp))
    first = addresses[0] if addresses else ""
    pairs = address.judge_addresses(first, address.read_default_route_address(), plan.topology.head, plan.topology.nodes,
                                    resolved, address.read_interface(first))
    return NodeCommands(others, head, command, plan.topology.note, "", tuple("%s; %s" % pair for pair in pairs))


def _find_fault(head: str, resolved: str, variable: str) -> str:
    fix = "Set %s to an address of this node that the others reach, then ask again." % variable
    if not head:
        return "this node's address is unknown (`hostname -I` gave none). %s" % fix
    if head in ("0.0.0.0", "::"):
        return "%s is no address that another node can reach. %s" % (head, fix)
    if address.is_loopback(head) or (resolved and address.is_loopback(resolved)):
        return "the head's address %s is a loopback address%s: no other node can reach it. %s" % (
            head, " (it resolves to %s)" % resolved if resolved and resolved != head else "", fix)
    if ":" in head:
        return "the head's address %s is IPv6, and the runner writes host:port without brackets. Set %s to an IPv4 address " \
            "or a name." % (head, variable)
    return ""


def describe(commands: NodeCommands, is_launched: bool) -> Tuple[str, ...]:
    """The block as lines: the seed's wording."""
    if not commands.others:
        return (commands.note,)
    if commands.warning:
        return ("Multi-node: no command can be given for the other %d node(s): %s" % (commands.others, commands.warning),)
    covered = "this machine is already covered\nby the launch just performed" if is_launched \
        else "not on this machine,\nwhich `rlrun run` covers"
    head = "Multi-node: run the command below once on every node (%s)" % covered
    return tuple(head.split("\n")) + ("  the %d other node%s:" % (commands.others, "" if commands.others == 1 else "s"),
                                      "    " + commands.command) + tuple(commands.note.split("\n")) + tuple(
        "⚠ " + doubt for doubt in commands.doubts)
