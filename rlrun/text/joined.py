"""How the nodes of a run are finding each other, in words: a Joining in, lines out. Judges nothing and reads nothing."""
from typing import Sequence, Tuple

from ..vitals import Joining
from .shell import escape_controls

_SHOWN = 8
JOINED = "has joined"  # what steps/joining says of a node whose log tells that


def describe(joining: Joining) -> Tuple[str, ...]:
    """Lines: how many of how many, who is missing, how long the head still waits."""
    joined = "%d of %d nodes joined" % (joining.joined, joining.nodes) if joining.joined is not None else \
        "how many of %d nodes joined is unknown" % joining.nodes
    members = ": " + _cut(joining.members) if joining.members else ""
    lines = ["%s, %s%s" % (joined, joining.told_by, members) if joining.joined is not None else
             "%s: %s" % (joined, joining.told_by)]
    states = dict(joining.others)
    if joining.missing:
        told = [one + (" (its log: %s)" % states[one] if one in states else "") for one in joining.missing]
        lines.append("missing: " + _cut(told))
    elif joining.joined is not None and joining.joined < joining.nodes:
        lines.append("missing: %d, of which nothing is known here" % (joining.nodes - joining.joined))
    rest = [pair for pair in joining.others if pair[0] not in joining.missing and (joining.joined is None or pair[1] != JOINED)]
    if rest:
        lines.append("by their logs: " + _cut(["%s %s" % pair for pair in rest]))
    if joining.joined is None or joining.joined < joining.nodes:
        lines.append(tell_left(joining))
    return tuple(escape_controls(line) for line in lines if line)


def tell_left(joining: Joining) -> str:
    """How long the head still waits, in words; why that can't be told, where it can't."""
    if joining.left_seconds is None:
        return "how long the head still waits is unknown: %s" % joining.left_from
    if joining.left_seconds <= 0:
        return "the head may give up at any moment: %s" % joining.left_from
    return "the head waits %d s more at least: %s" % (joining.left_seconds, joining.left_from)


def tell_stage(joining: Joining) -> str:
    """The stage of a start, in one phrase."""
    if joining.joined is None:
        return "waiting for all %d nodes to join (how many have: unknown, %s)" % (joining.nodes, joining.told_by)
    if joining.joined >= joining.nodes:
        return "all %d nodes joined; the head goes on at its next look" % joining.nodes
    who = "; missing: %s" % _cut(joining.missing) if joining.missing else ""
    return "waiting for nodes, %d of %d joined%s" % (joining.joined, joining.nodes, who)


def _cut(words: Sequence[str]) -> str:
    shown = ", ".join(words[:_SHOWN])
    return shown + (" and %d more" % (len(words) - _SHOWN) if len(words) > _SHOWN else "")
