"""Waiting for a free machine: until all that time can lift has been gone for three looks in a row and nobody who came before
waits for the same. Between whole looks nothing is asked but whether what is in the way still lives."""
import errno
import math
import os
import resource
import signal
import time
from typing import Callable, Dict, NamedTuple, Optional, Tuple

from ..errors import BLOCKED, NOT_REACHED, OperatorError
from ..host import address, gpus, ports, procs  # noqa: F401  (ports: the pyz may be replaced during the wait)
from ..text.durations import format_elapsed
from ..text.redact import find_secrets
from ..text.shell import escape_controls
from ..values import Check, Identity, Machine, Plan, Sweep, Verdict
from . import guard, judge, judge_machine, keeper, records, survey, waiters
from .holds import LIFTABLE, UNKNOWN, Hold, list_holds

_LOOKS = 3
_CPU_SHARE = 0.004  # of one core, for whole looks
_STRETCH = 6.0  # a pause is at most so many times what was asked for: 3 minutes instead of 30 s…
_MOST_SECONDS = 180.0  # …and so long at least where looks that were asked for more often have taken so much of the processor
_FREELY_SECONDS = 3.0
_LEAST_SECONDS = 0.2
_MANY = 4
_TITLE = b"rlrun: waiting"


class Look(NamedTuple):
    """What one look found: what is in the way, which processes that rests on, who waits before us, whom we go past because he
    launches nothing now, and what would show that somebody has launched."""

    holds: Tuple[Hold, ...]
    living: Tuple[Identity, ...]
    front: Optional[waiters.Waiter]
    passed: Tuple[waiters.Waiter, ...] = ()
    launched: object = None


class _Wait(NamedTuple):
    """What all looks of one wait have in common."""

    plan: Plan
    addresses: Tuple[str, ...]
    secrets: Tuple[str, ...]
    known: Tuple[str, ...]  # what could not be told from the beginning
    boot_id: str


def list_lasting(verdict: Verdict) -> Tuple[Check, ...]:
    """The blocks that no waiting lifts."""
    return tuple(check for check in verdict.checks if check.status == "blocks" and check.name not in LIFTABLE)


def wait(found: survey.Survey, environ: Dict[str, str], limit_seconds: float, look_seconds: float,
         tell: Callable[[str], None], ticket: Optional[waiters.Ticket] = None,
         refuse: Callable[[], None] = lambda: None) -> waiters.Ticket:
    """Returns our place in the queue once the machine is free and we are the first; at once, without `has_waited`, where that
    is so from the beginning. The caller leaves it when the launch is over. `ticket`: the place from an earlier wait.

    `tell` is given a line whenever what is waited for changes; `refuse` is called whenever somebody may have launched, and raises
    where this plan was. Raises OperatorError (exit 6) when the time is up, exit 1 where
    something blocks that time can't lift, KeyboardInterrupt when the terminal is gone.
    """
    _refuse_lasting(found.verdict)
    plan = found.plan
    known = tuple(check.name for check in found.verdict.checks if check.name in UNKNOWN)
    common = _Wait(plan, (), _collect_secrets(plan, environ), known, procs.read_boot_id())
    place = ticket or waiters.enter(waiters.name_want(plan))
    try:
        place = _settle(place)
        look = _join(common, found.machine, judge.hide_secrets(found.verdict, common.secrets), place, waiters.list_waiting())
        if not look.holds and not look.front and _are_runs_as_before(found.machine):
            if look.passed:
                tell("not waiting: %s" % escape_controls(_describe_passed(look)))
            return place
        keeper.hide_command_line(_TITLE)  # another launch's sweep reads command lines, and ours names the config
        _wait_on(common._replace(addresses=address.read_addresses()), look, place, limit_seconds, look_seconds, tell,
                 refuse)
        return place._replace(has_waited=True)
    except BaseException:
        waiters.leave(place)
        raise


def _wait_on(common: _Wait, look: Look, place: waiters.Ticket, limit_seconds: float, look_seconds: float,
             tell: Callable[[str], None], refuse: Callable[[], None]) -> None:
    deadline = waiters.read_clock() + limit_seconds
    had_terminal = _read_terminal() == 0
    limit = _show_time(limit_seconds)
    free, told, cost = count_free(0, look), (), 0.0  # type: int, Tuple[object, ...], float
    began, launched, is_first = _read_cpu_seconds(), None, True  # type: float, object, bool
    while True:
        if make_key(look) != told:
            left = "up to %s" % limit if is_first else "%s of %s left" % (_show_time(deadline - waiters.read_clock()), limit)
            tell("waiting (%s): %s" % (left, describe(look)))
            told, is_first = make_key(look), False
        least, usual = make_pause(look_seconds, cost, _read_cpu_seconds() - began)
        now = waiters.read_clock()
        _rest(look, place, min(deadline, now + usual), now + least, look_seconds, had_terminal)
        spent = _read_cpu_seconds()
        look = _look(common, place)
        if look.launched != launched:
            refuse()
            launched = look.launched
        cost = _read_cpu_seconds() - spent
        free = count_free(free, look)
        if free >= _LOOKS and not look.front:
            return
        if waiters.read_clock() >= deadline:
            raise refuse_late(look, limit)


def count_free(before: int, look: Look) -> int:
    """How many looks in a row have found nothing in the way; who waits before us does not break the row."""
    return 0 if look.holds else before + 1


def make_pause(look_seconds: float, cost_seconds: float, spent_seconds: float = 0.0) -> Tuple[float, float]:
    """The seconds from one whole look to the next, (at least, usually): as asked for, longer where looks are dear, to a limit.
    `spent_seconds`: what all of them have cost so far; who looks very often may do so for a while only."""
    most = _STRETCH * look_seconds
    least = min(cost_seconds / _CPU_SHARE, max(most, _MOST_SECONDS) if spent_seconds > _FREELY_SECONDS else most)
    return least, max(look_seconds, least)


def _rest(look: Look, place: waiters.Ticket, until: float, earliest: float, look_seconds: float, had_terminal: bool) -> None:
    """Sleeps until the next whole look is due, or, not before `earliest`, something in the way is gone."""
    nap = max(_LEAST_SECONDS, look_seconds / _STRETCH)
    while True:
        waiters.drain(place)
        left = until - waiters.read_clock()
        if left <= 0:
            return
        time.sleep(min(nap, left))
        if had_terminal and _read_terminal() in (errno.ENXIO, errno.EIO) and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            raise KeyboardInterrupt()
        if waiters.read_clock() >= earliest and not all(procs.is_alive(one) for one in look.living):
            return


def _look(common: _Wait, place: waiters.Ticket) -> Look:
    """A whole look, in this order: whoever has left the queue by now has launched, and what he launched shows below."""
    waiting = waiters.list_waiting()
    query = gpus.start_query()
    try:
        machine = guard.read_machine(query)
    except BaseException:
        gpus.cancel_query(query)
        raise
    # What the launch would delete takes long to count, and never blocks.
    sweep = Sweep(judge_machine.find_swept(common.plan, machine), ())
    verdict = judge.make_verdict(judge.judge_live(common.plan, machine, sweep, common.addresses))
    verdict = judge.hide_secrets(verdict, common.secrets)
    _refuse_lasting(verdict)
    return _join(common, machine, verdict, place, waiting)


def _settle(place: waiters.Ticket) -> waiters.Ticket:
    left = place.since_seconds + waiters.SETTLE_SECONDS - waiters.read_clock()
    if left > 0:
        time.sleep(left)
    return waiters.note_rivals(place)


def _join(common: _Wait, machine: Machine, verdict: Verdict, place: waiters.Ticket, waiting: Tuple[waiters.Waiter, ...]) -> Look:
    front = waiters.find_front(place, waiting)
    holds = list_holds(verdict, machine, common.known)
    pids = {pid for hold in holds for pid in hold.pids} | ({front.pid} if front else set())
    living = tuple(Identity(pid, machine.processes[pid].start_ticks, common.boot_id) for pid in sorted(pids)
                   if pid in machine.processes and not procs.is_dead(machine.processes[pid]))
    passed = tuple(one for one in waiters.list_before(place, waiting) if one.why)
    runs = frozenset((run.top.pid, run.top.start_ticks) for run in machine.runs)
    return Look(holds, living, front, passed, (runs, _read_stamp(common.plan.root)))


def _read_stamp(root: str) -> int:
    """What changes when a record begins here, 0 where there is none: of a run that is short no look sees more."""
    try:
        return os.stat(os.path.join(root, records.FOLDER)).st_mtime_ns
    except OSError:
        return 0


def make_key(look: Look) -> Tuple[object, ...]:
    """What a change is told by: which blocks, whose, who is in front, and whom we go past; not ages and sizes."""
    return (tuple(sorted((hold.name, hold.pids, "" if hold.pids else hold.what) for hold in look.holds)),
            look.front.since_seconds if look.front else None, tuple((one.place, one.why) for one in look.passed[:_MANY]))


def describe(look: Look) -> str:
    """What is waited for, in one line."""
    words = [hold.words for hold in look.holds[:_MANY]]
    if len(look.holds) > _MANY:
        words.append("and %d more" % (len(look.holds) - _MANY))
    if look.front:
        age = waiters.read_clock() - look.front.since_seconds
        words.append("behind %s, who waits since %s" % (waiters.describe_waiter(look.front), waiters.describe_since(age)))
    words = words or ["free now; it must be so for %d looks in a row" % _LOOKS]
    return escape_controls("; ".join(words + ([_describe_passed(look)] if look.passed else [])))


def _describe_passed(look: Look) -> str:
    more = len(look.passed) - _MANY
    return "going past %s%s" % ("; past ".join(map(waiters.describe_passed, look.passed[:_MANY])),
                                ", and %d more" % more if more > 0 else "")


def refuse_late(look: Look, limit: str) -> OperatorError:
    """Exit 6: the time is up, and who is to be asked."""
    state = describe(look) if look.holds or look.front else "free at the last look, but not for %d in a row" % _LOOKS
    owners = {owner for hold in look.holds for owner in hold.owners}
    owners |= {procs.user_name(look.front.uid)} if look.front and look.front.uid >= 0 else set()
    whom = escape_controls(", ".join(sorted(owners))) or "who uses this machine"
    error = OperatorError("not free within %s: %s; nothing was launched" % (limit, state),
                          "Wait for longer (--wait-free), or ask %s." % whom, NOT_REACHED, "wait-free")
    error.shape = {"held": [{"name": hold.name, "pids": list(hold.pids), "what": hold.what or None, "detail": hold.words}
                            for hold in look.holds], "behind": look.front.pid if look.front else None}
    return error


def _refuse_lasting(verdict: Verdict) -> None:
    lasting = list_lasting(verdict)
    if lasting:
        raise OperatorError("waiting does not lift this; nothing was launched:\n" + "\n".join(
            "  %s  %s" % (one.name, one.detail) for one in lasting), lasting[0].fix, BLOCKED, lasting[0].name)


def _are_runs_as_before(machine: Machine) -> bool:
    """Has nobody begun a run between the survey and the place in the queue?"""
    before = {(run.top.pid, run.top.start_ticks) for run in machine.runs}
    return all((run.top.pid, run.top.start_ticks) in before for run in guard.read_runs())


def _collect_secrets(plan: Plan, environ: Dict[str, str]) -> Tuple[str, ...]:
    values = set(plan.secrets) | set(find_secrets(environ)) | set(find_secrets(plan.environment))
    return tuple(sorted(values | set(survey.find_source_secrets(plan)), key=lambda value: (-len(value), value)))


def _read_terminal() -> int:
    """0 where this session has a terminal, else the errno that tells why it can't be had."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno or -1
    return 0


def _read_cpu_seconds() -> float:
    """CPU time of this process and of the programs that it has waited for."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in usage)


def _show_time(seconds: float) -> str:
    return format_elapsed(math.ceil(max(0.0, seconds))).replace(" 00m", "")
