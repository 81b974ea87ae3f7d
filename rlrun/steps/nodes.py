"""Step 5: the command for each other node. Printed, never run: rlrun goes to no other node."""
import os
import re
import socket
from typing import List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from .. import child
from ..errors import USAGE, OperatorError
from ..host import address
from ..stacks import load_stack
from ..text import hostlist
from ..text.shell import escape_controls, quote_words
from ..values import Plan, Topology
from . import records

# What a host or an address is written with; anything else is neither, and would reach a terminal.
_HEAD = re.compile(r"[A-Za-z0-9:._%\[\]-]+\Z")
_GETENT_SECONDS = 0.8  # a name server that is slow for a thousand names is not waited for
_SPELLED_OUT = 6  # so many hosts are named one by one
_LIST_CHARACTERS = 1000


class NodeCommands(NamedTuple):
    """What the other nodes of a run need. `head` is empty where no usable address is known; then `warning` says why.
    `doubts`: what may be wrong with a head that looks usable, or with the hosts that were named. `hosts`: the others, by name."""

    others: int
    head: str
    command: str
    note: str
    warning: str
    doubts: Tuple[str, ...] = ()
    hosts: Tuple[str, ...] = ()


def make_commands(plan: Plan, stamp: str, environ: Optional[Mapping[str, str]] = None, hosts: Sequence[str] = ()) -> NodeCommands:
    """The block for the other nodes of a plan; `stamp` names their launch logs. Nothing to do for a single node. `environ`: the
    operator's own, where not this process's; `hosts`: all nodes, or all others, by name."""
    others = plan.topology.nodes - 1
    if others < 1:
        return NodeCommands(0, "", "", "this run takes one node", "")
    if plan.is_submission:
        return NodeCommands(0, "", "", "one job takes all %d nodes: nothing is to be started on them" % plan.topology.nodes, "")
    addresses = address.read_addresses()
    head = plan.topology.head or (addresses[0] if addresses else "")
    resolved = address.resolve(head) if head and _HEAD.match(head) else ""
    warning = _find_fault(head, resolved, plan.topology, addresses[0] if addresses else "")
    if warning:
        return NodeCommands(others, "", "", plan.topology.note, warning)
    command = load_stack(plan.stack).describe_node_command(plan, head, os.path.join("logs", "launch_" + stamp))
    first = addresses[0] if addresses else ""
    pairs = address.judge_addresses(first, address.read_default_route_address(), plan.topology.head, plan.topology.nodes,
                                    resolved, address.read_interface(first), addresses)
    target = resolved or head
    if plan.topology.head:
        pairs += address.judge_head_here(head, target, addresses, address.read_interface(target))
    pairs += address.judge_socket_names(dict(os.environ if environ is None else environ, **plan.environment), target,
                                        address.read_interface(target), address.read_interface_names())
    rest, doubts = _leave_out_head(tuple(hosts), plan.topology.nodes, head, resolved, target in addresses) if hosts else ((), ())
    return NodeCommands(others, head, command, plan.topology.note, "", tuple("%s; %s" % pair for pair in pairs) + doubts, rest)


def put_check_before(commands: NodeCommands, words: Sequence[str]) -> NodeCommands:
    """The same, launching on a node only where this command has ended with 0 there. It runs in the foreground: only the launch
    goes into the background."""
    return commands._replace(command="%s && { %s }" % (quote_words(words), commands.command))


def _find_fault(head: str, resolved: str, topology: Topology, first: str) -> str:
    variable = topology.head_variable
    if topology.head and first and ":" not in first and not address.is_loopback(first):
        fix = "Set %s to the first address of `hostname -I` here, %s, if the others reach it, then ask again." % (variable, first)
    else:
        fix = "Make an IPv4 address that the others reach the first one of `hostname -I` here, then ask again; to set %s alone " \
            "does not help, since the runner compares it with that first address." % variable
    if not head:
        return "this node's address is unknown (`hostname -I` gave none). %s" % fix
    if not _HEAD.match(head) or head.startswith("-"):
        return "the head %s is neither a host's name nor an address. %s" % (escape_controls(repr(head)), fix)
    if head in ("0.0.0.0", "::") or resolved in ("0.0.0.0", "::"):
        return "%s is no address that another node can reach. %s" % (head, fix)
    if address.is_loopback(head) or (resolved and address.is_loopback(resolved)):
        return "the head's address %s is a loopback address%s: no other node can reach it. %s" % (
            head, " (it resolves to %s)" % resolved if resolved and resolved != head else "", fix)
    if ":" in head or ":" in resolved:
        return "the head's address %s is IPv6%s, and the runner writes host:port without brackets. %s" % (
            head, "" if ":" in head else " (it resolves to %s)" % resolved, fix)
    return ""


def read_hosts(word: str) -> Tuple[str, ...]:
    """The hosts of --hosts: of a file that has this name, else of a list as Slurm writes them; each once. OperatorError (exit 2)
    for what names no hosts."""
    is_file = os.path.isfile(word) or "/" in word
    try:
        if is_file:
            found = hostlist.parse_file(records.read_file(word).decode("utf-8", "replace"))
        else:
            found = hostlist.expand(word)
        if not found:
            raise ValueError("it names no host")
    except (OSError, ValueError) as error:
        words = (error.strerror or "it can't be read") if isinstance(error, OSError) else str(error)
        raise OperatorError("--hosts %s: %s" % (word, words), "For example: --hosts 'n[001-004]', or a file with a host a line.",
                            USAGE, "hosts")
    return tuple(dict.fromkeys(found))


def _leave_out_head(hosts: Tuple[str, ...], nodes: int, head: str, resolved: str,
                    is_here: bool) -> Tuple[Tuple[str, ...], Tuple[str, ...]]:
    """The hosts without the head, and what is odd about them."""
    place = _find_head(hosts, head, resolved, is_here)
    rest = hosts if place is None else hosts[:place] + hosts[place + 1:]
    doubts = []
    if place is None:
        doubts.append("the head %s is not among the hosts that were named; each of them is taken for another node" % head)
    if len(rest) != nodes - 1:
        doubts.append("%d host%s named beside the head, and this run takes %d; name as many, or change the config"
                      % (len(rest), " is" if len(rest) == 1 else "s are", nodes - 1))
    return rest, tuple(doubts)


def _find_head(hosts: Tuple[str, ...], head: str, resolved: str, is_here: bool) -> Optional[int]:
    """The place of the head in a list: by name or address as they stand, by this host's own name where it is the head, at last by
    what getent says: of the head, and with one question of all of them."""
    names = {head, resolved} - {""}
    if is_here:
        names |= {socket.gethostname(), address.read_short_host_name()}
    place = _find_name(hosts, names)
    if place is None:
        place = _find_name(hosts, {word for line in _ask_getent((resolved or head,)) for word in line})
    if place is not None:
        return place
    same = {name for line in _ask_getent(tuple(host for host in hosts if not _is_number(host))) for name in line[1:]
            if line[0] == (resolved or head)}
    return _find_name(hosts, same)


def _find_name(hosts: Tuple[str, ...], names: Set[str]) -> Optional[int]:
    """The first host that is one of these as it stands, else the first whose name is one of theirs up to the first dot."""
    shorts = {name.partition(".")[0] for name in names if not _is_number(name)}
    exact = (place for place, host in enumerate(hosts) if host in names)
    close = (place for place, host in enumerate(hosts) if not _is_number(host) and host.partition(".")[0] in shorts)
    return next(exact, next(close, None))


def _is_number(name: str) -> bool:
    return ":" in name or not name.strip("0123456789.")


def _ask_getent(words: Tuple[str, ...]) -> List[List[str]]:
    """What getent says of names or addresses, in time: a line each for those that it knows, `10.0.0.5  n1.x n1`."""
    outcome = child.run(["getent", "hosts"] + list(words), _GETENT_SECONDS) if words else None
    return [line.split() for line in outcome.output.decode("utf-8", "replace").splitlines() if line.split()] if outcome else []


def describe(commands: NodeCommands, is_launched: bool) -> Tuple[str, ...]:
    """The block as lines: the seed's wording."""
    if not commands.others:
        return (commands.note,)
    if commands.warning:
        return ("Multi-node: no command can be given for the other %d node(s): %s" % (commands.others, commands.warning),)
    covered = "this machine is already covered\nby the launch just performed" if is_launched \
        else "not on this machine,\nwhich `rlrun run` covers"
    head = "Multi-node: run the command below once on every node (%s)" % covered
    return tuple(head.split("\n")) + ("  %s:" % _name_others(commands), "    " + commands.command) + tuple(
        commands.note.split("\n")) + tuple("⚠ " + escape_controls(doubt) for doubt in commands.doubts)


def _name_others(commands: NodeCommands) -> str:
    """`nodes n2, n3`, `nodes n[002-512] (511)`; how many there are, where they have no names."""
    hosts: List[str] = list(commands.hosts)
    if not hosts:
        return "the %d other node%s" % (commands.others, "" if commands.others == 1 else "s")
    if len(hosts) <= _SPELLED_OUT:
        return "nodes " + ", ".join(hosts)
    text = hostlist.fold_for_people(hosts)
    if len(text) > _LIST_CHARACTERS:
        text = ", ".join(hosts[:_SPELLED_OUT]) + ", …"
    return "nodes %s (%d)" % (text, len(hosts))
