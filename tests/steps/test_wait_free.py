"""Waiting for a free machine: what time can lift and what not, what is told, and when. Values made for it; the checks are those
that the judges really make, so that their words and what is read out of them stay together."""
import itertools
import os
import signal
import types

import pytest
from steps.made import make_gpu, make_machine, make_plan, make_process

from rlrun.errors import BLOCKED, NOT_REACHED, OperatorError
from rlrun.host import procs
from rlrun.steps import judge, judge_machine, wait_free, waiters
from rlrun.values import Check, GpuHolder, GpuReading, Listener, LiveRun, Port, Sweep, SweepRule, SweptProcess

FREE = make_machine()
NOBODY = 65534


_NUMBERS = itertools.count()


@pytest.fixture(autouse=True)
def prefix(monkeypatch):
    """A queue of this test's own: what a failed one left in its queue is in nobody's way."""
    monkeypatch.setattr(waiters, "_PREFIX", "rlrun-test-%d-%d.free." % (os.getpid(), next(_NUMBERS)))


def judge_all(plan, machine, *swept):
    checks = judge_machine.judge_jobs(plan, machine) + judge_machine.judge_gpus(plan, machine)
    checks += judge_machine.judge_ports(plan, machine) + judge_machine.judge_sweep(plan, Sweep(swept, ()))
    return judge.make_verdict(checks)


def make_run(*processes):
    return LiveRun("lego", "train", "runner", processes[0], tuple(one.pid for one in processes), "/c")


def hold(*checks, machine=FREE):
    return wait_free.list_holds(judge.make_verdict(checks), machine)


def make_look(*holds, front=None, passed=()):
    return wait_free.Look(tuple(holds), (), front, passed)


def read(hold):
    return hold.name, hold.pids, hold.what


def test_each_block_that_a_judge_makes_is_told_by_whom_it_is_held():
    run, holder = make_process(7, "bash", "train.sh"), make_process(8, "VLLM on GPU 5")
    other, swept = make_process(9, "x", uid=NOBODY), make_process(10, "tail", uid=NOBODY)
    reading = GpuReading("ok", "", tuple(make_gpu(n, 9000 if n < 3 else 4) for n in range(4)),
                         (GpuHolder(8, "GPU-0", 8999, "v"), GpuHolder(8, "GPU-1", 8999, "v")), ())
    machine = make_machine([run, holder, other, swept], runs=(make_run(run),), clusters=(other,), gpus=reading)
    plan = make_plan(gpu_count=4, sweep=SweepRule(("^x",), (), "x", True))
    verdict = judge_all(plan, machine, SweptProcess(swept, "nobody", True))
    assert wait_free.list_lasting(verdict) == ()
    holds = wait_free.list_holds(verdict, machine)
    assert [read(one) for one in holds] == [
        ("job:running", (7,), ""), ("job:running", (9,), ""), ("gpu:foreign", (8,), "GPU 0,1"), ("gpu:foreign", (), "GPU 2"),
        ("sweep:foreign", (10,), "")]
    words = wait_free.describe(make_look(*holds))
    assert words.startswith("the run of pid 7 (root) since ") and "; GPU 0,1 held by pid 8 (root) since " in words
    assert "VLLM" not in words and "; and 1 more" in words
    assert "GPU 2: 8.8 GiB in use by a process that is not visible here" in words
    assert holds[4].words.startswith("pid 10 (") and holds[4].owners == (procs.user_name(NOBODY),)


def test_ports_and_claims_and_jobs_elsewhere(monkeypatch):
    monkeypatch.setattr(judge_machine.ports, "find_owners", lambda inodes: {5: 9})
    machine = make_machine([make_process(9, "redis", uid=NOBODY)], listeners=(Listener(6379, "0.0.0.0", 5, NOBODY),
                                                                             Listener(80, "::", 6, NOBODY)))
    plan = make_plan(ports=(Port(6379, "Ray"), Port(80, "web")), gpu_count=0)
    holds = wait_free.list_holds(judge_all(plan, machine), machine)
    assert [read(one) for one in holds] == [("port:conflict", (9,), "port 6379"), ("port:conflict", (), "port 80")]
    assert holds[0].words.startswith("port 6379 held by pid 9 (") and "that can't be seen" in holds[1].words
    # As claims.py and the stacks word them.
    holds = hold(Check("live", "port:conflict", "blocks", "8000 (server) will be bound by the run that pid 9 began (id)"),
                 Check("live", "gpu:foreign", "blocks", "GPU 0,1 is taken by the run that pid 9 began (id)"),
                 Check("live", "job:running", "blocks", "/d/pid 3 is written to by the run that pid 9 began (id)"),
                 Check("live", "job:running", "blocks", "a run lives in /d (pids 9 10), and this launch would write beside it"),
                 Check("live", "job:running", "blocks", "Slurm job 12 of this run is RUNNING"), machine=machine)
    assert [read(one) for one in holds] == [
        ("port:conflict", (9,), "port 8000"), ("gpu:foreign", (9,), "GPU 0,1"), ("job:running", (9,), ""),
        ("job:running", (9, 10), ""), ("job:running", (), "")]
    assert holds[3].words.endswith(" and 1 more") and holds[4].words == "Slurm job 12 of this run is RUNNING"


def test_what_time_can_not_lift():
    checks = [Check("live", name, "blocks", "x") for name in ("job:running", "run:exists", "gpu:foreign", "import:missing")]
    verdict = judge.make_verdict(checks + [Check("live", "venv:none", "advisory", "x")])
    assert [check.name for check in wait_free.list_lasting(verdict)] == ["run:exists", "import:missing"]


def test_what_could_be_told_before_and_can_not_now_is_not_gone():
    unknown = Check("live", "gpu:unknown", "advisory", "nvidia-smi: no end within 20 s")
    verdict = judge.make_verdict([unknown])
    (one,) = wait_free.list_holds(verdict, FREE)
    assert (one.name, one.words) == ("gpu:unknown", unknown.detail)
    assert wait_free.list_holds(verdict, FREE, ("gpu:unknown",)) == ()


def test_three_looks_in_a_row():
    free, held, behind = make_look(), make_look(wait_free.Hold("job:running", (1,), "", "x", ())), make_look(
        front=waiters.Waiter(5, 0, 1.0, "box"))
    counts, count = [], 0
    for look in (free, free, held, free, behind, free):
        count = wait_free.count_free(count, look)
        counts.append(count)
    assert counts == [1, 2, 0, 1, 2, 3]


def test_a_change_is_told_by_block_and_pids_and_who_is_in_front():
    def make(name="gpu:foreign", pids=(5,), what="GPU 0", words="w", front=None):
        return wait_free.make_key(make_look(wait_free.Hold(name, pids, what, words, ()), front=front))
    first = make()
    assert first == make(words="older by now") == make(what="GPU 0,1")
    others = {make(pids=(6,)), make(name="job:running"), make(pids=()), make(pids=(), what="GPU 1"),
              wait_free.make_key(make_look()), make(front=waiters.Waiter(5, 0, 1.0, "box")),
              make(front=waiters.Waiter(5, 0, 2.0, "box")),
              wait_free.make_key(make_look(passed=(waiters.Waiter(5, 0, 1.0, "box", 9, waiters.STOPPED),)))}
    assert len(others) == 8 and first not in others


def test_secrets_in_what_is_quoted_are_hidden():
    gone = GpuReading("ok", "", (make_gpu(0, 9000),), (GpuHolder(99, "GPU-0", 9000, "x --api-key topsecretvalue99"),), ())
    machine = make_machine(gpus=gone)
    verdict = judge.hide_secrets(judge_all(make_plan(gpu_count=1), machine), ("9.8",))
    (one,) = wait_free.list_holds(verdict, machine)
    assert one.pids == (99,) and one.what == "GPU 0" and "topsecret" not in str(one) and "not visible here" in one.words


@pytest.mark.parametrize("look, cost, spent, least, usual", [
    (30.0, 0.0, 0.0, 0.0, 30.0), (30.0, 0.1, 9.0, 25.0, 30.0), (30.0, 0.2, 0.0, 50.0, 50.0), (30.0, 5.0, 9.0, 180.0, 180.0),
    # who asks for looks very often has them for a while, and then as often as they are cheap
    (0.2, 0.05, 2.9, 1.2, 1.2), (0.2, 0.05, 3.1, 12.5, 12.5), (0.2, 5.0, 3.1, 180.0, 180.0), (0.2, 0.0001, 3.1, 0.025, 0.2)])
def test_a_dear_look_is_rarer(look, cost, spent, least, usual):
    assert wait_free.make_pause(look, cost, spent) == pytest.approx((least, usual))


def test_the_time_is_up():
    held = wait_free.Hold("gpu:foreign", (5,), "GPU 0", "GPU 0 held by pid 5 (alice\x1b) since 23:14 (up 1h 00m)", ("alice",))
    error = wait_free.refuse_late(make_look(held, front=waiters.Waiter(7, 0, 1.0, "box")), "6h")
    assert (error.code, error.reason) == (NOT_REACHED, "wait-free")
    assert error.message.startswith("not free within 6h: GPU 0 held by ") and "\x1b" not in error.message
    assert "behind pid 7 (root), who waits since" in error.message and "ask alice, root." in error.hint
    assert error.shape["held"][0]["pids"] == [5] and error.shape["behind"] == 7
    error = wait_free.refuse_late(make_look(), "6h")
    assert "not for 3 in a row" in error.message and "who uses this machine" in error.hint


# --- the wait itself, on looks that are made for it

def make_survey(verdict, machine=FREE):
    return types.SimpleNamespace(verdict=verdict, machine=machine, plan=make_plan(config="/none"))


@pytest.fixture
def machines(monkeypatch):
    """A function that takes what each whole look will see, in turn; a clock that only sleeping moves; what was asked of it."""
    clock = types.SimpleNamespace(now=1000.0, looks=0, naps=0)

    def sleep(seconds):
        clock.now += seconds
        clock.naps += 1
        if clock.naps > 5000:
            raise AssertionError("it never ends")
    monkeypatch.setattr(waiters, "read_clock", lambda: clock.now)
    monkeypatch.setattr(wait_free, "time", types.SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(wait_free.address, "read_addresses", lambda: ())
    monkeypatch.setattr(wait_free.keeper, "hide_command_line", lambda title: True)
    monkeypatch.setattr(wait_free.guard, "read_runs", lambda: ())
    monkeypatch.setattr(wait_free, "_read_cpu_seconds", lambda: 0.0)
    monkeypatch.setattr(wait_free, "_read_terminal", lambda: 6)
    monkeypatch.setattr(wait_free.gpus, "start_query", lambda: None)
    monkeypatch.setattr(wait_free.gpus, "cancel_query", lambda query: None)

    def play(*seen):
        rest = list(seen)

        def look(query):
            clock.looks += 1
            return rest.pop(0) if len(rest) > 1 else rest[0]
        monkeypatch.setattr(wait_free.guard, "read_machine", look)
        return clock
    return play


def make_busy(pid=7, *words):
    run = make_process(pid, *(words or ("bash", "train.sh")))
    return make_machine([run], runs=(make_run(run),))


def live(machine):
    return judge.make_verdict(judge_machine.judge_jobs(make_plan(), machine))


def go(survey, limit=3600.0, every=30.0, **given):
    told = []
    return told, wait_free.wait(survey, {}, limit, every, told.append, **given)


def test_a_free_machine_is_not_waited_for(machines):
    clock = machines(FREE)
    told, ticket = go(make_survey(live(FREE)))
    assert (told, ticket.has_waited, clock.looks) == ([], False, 0) and clock.now < 1001
    assert [one.pid for one in waiters.list_waiting()] == [os.getpid()]
    waiters.leave(ticket)
    assert waiters.list_waiting() == ()


def test_a_run_ends_another_begins_and_ends(machines):
    busy = make_busy()
    clock = machines(busy, busy, FREE, FREE, make_busy(8), FREE, FREE, FREE)
    told, ticket = go(make_survey(live(busy), busy))
    assert ticket.has_waited and clock.looks == 8
    assert [line.partition("): ")[2].partition(" since")[0] for line in told] == [
        "the run of pid 7 (root)", "free now; it must be so for 3 looks in a row", "the run of pid 8 (root)",
        "free now; it must be so for 3 looks in a row"]
    assert told[0].startswith("waiting (up to 1h): ") and told[1].startswith("waiting (") and " of 1h left): " in told[1]
    waiters.leave(ticket)


def test_a_free_machine_is_waited_for_behind_somebody(machines, monkeypatch):
    """However long it has been free: he launches first, and leaves."""
    clock = machines(FREE)
    monkeypatch.setattr(waiters, "list_waiting", lambda: (waiters.Waiter(7, 0, 5.0, "box"),) if clock.looks < 8 else ())
    told, ticket = go(make_survey(live(FREE)))
    assert ticket.has_waited and clock.looks == 9  # the row of free looks was long enough by then
    assert len(told) == 1 and "): behind pid 7 (root), who waits since " in told[0]
    waiters.leave(ticket)


def test_who_launches_nothing_now_is_passed_over_and_that_is_said(machines, monkeypatch):
    clock = machines(FREE)
    stopped = waiters.Waiter(7, 0, 5.0, "box", 1, waiters.STOPPED)
    crowd = tuple(waiters.Waiter(0, -1, 6.0, "box", number, waiters.SILENT) for number in range(2, 6))
    monkeypatch.setattr(waiters, "list_waiting", lambda: (stopped,) + crowd)
    told, ticket = go(make_survey(live(FREE)))
    assert not ticket.has_waited and clock.looks == 0
    (line,) = told
    assert line.startswith("not waiting: going past pid 7 (root), who waits since ") and line.endswith(", and 1 more")
    assert "and is stopped; past somebody who does not answer; past " in line
    waiters.leave(ticket)
    ahead = waiters.Waiter(8, 0, 7.0, "box", 9)
    monkeypatch.setattr(waiters, "list_waiting", lambda: (stopped,) + ((ahead,) if clock.looks < 1 else ()))
    busy = make_busy()
    told, ticket = go(make_survey(live(busy), busy))
    assert ticket.has_waited and len(told) == 3 and "behind pid 8 (root), who waits since " in told[0]
    assert "; going past pid 7 (root), who waits since " in told[2] and "free now" in told[2]
    waiters.leave(ticket)


def test_a_plan_that_was_launched_meanwhile_is_not_waited_for_any_longer(machines, monkeypatch, tmp_path):
    """Asked when somebody has begun a run, or a record, and not at every look."""
    busy, other = make_busy(7), make_busy(8)
    clock = machines(busy, busy, busy, other, other, busy)
    asked = []

    def refuse():
        asked.append(clock.looks)
        if clock.looks == 6:
            raise OperatorError("it lives", "", BLOCKED, "job:running")
    with pytest.raises(OperatorError, match="it lives"):
        go(make_survey(live(busy), busy), refuse=refuse)
    assert asked == [1, 4, 6] and waiters.list_waiting() == ()
    stamp = wait_free._read_stamp(str(tmp_path))
    (tmp_path / "logs" / "rlrun").mkdir(parents=True)
    assert wait_free._read_stamp(str(tmp_path)) != stamp


def test_somebody_began_between_the_survey_and_the_queue(machines, monkeypatch):
    machines(FREE)
    monkeypatch.setattr(wait_free.guard, "read_runs", lambda: make_busy().runs)
    told, ticket = go(make_survey(live(FREE)))
    assert ticket.has_waited and len(told) == 1
    waiters.leave(ticket)


def test_the_place_of_an_earlier_wait_is_kept(machines):
    machines(FREE)
    first = waiters.enter("box")
    told, ticket = go(make_survey(live(FREE)), ticket=first)
    assert ticket.socket is first.socket and len(waiters.list_waiting()) == 1
    waiters.leave(ticket)


def test_time_is_up_with_a_last_look_and_without_a_place(machines):
    busy = make_busy()
    clock = machines(busy)
    with pytest.raises(OperatorError) as caught:
        go(make_survey(live(busy), busy), limit=100.0)
    assert caught.value.code == NOT_REACHED and "the run of pid 7 (root)" in caught.value.message
    assert clock.now >= 1100 and clock.looks >= 4 and waiters.list_waiting() == ()


@pytest.mark.parametrize("is_at_once", [True, False])
def test_what_time_can_not_lift_ends_the_wait(machines, monkeypatch, is_at_once):
    busy = make_busy()
    clock = machines(busy)
    lasting = Check("live", "run:exists", "blocks", "/d is used", "Take another name.")
    monkeypatch.setattr(judge, "judge_live", lambda *words: [lasting])
    with pytest.raises(OperatorError) as caught:
        go(make_survey(judge.make_verdict([lasting]) if is_at_once else live(busy), busy))
    assert (caught.value.code, caught.value.reason, caught.value.hint) == (BLOCKED, "run:exists", "Take another name.")
    assert clock.looks == (0 if is_at_once else 1) and waiters.list_waiting() == ()


def test_a_look_that_is_interrupted_leaves_no_query_and_no_place(machines, monkeypatch):
    busy = make_busy()
    machines(busy)
    ended = []

    def interrupt(query):
        raise KeyboardInterrupt()
    monkeypatch.setattr(wait_free.guard, "read_machine", interrupt)
    monkeypatch.setattr(wait_free.gpus, "start_query", lambda: "query")
    monkeypatch.setattr(wait_free.gpus, "cancel_query", ended.append)
    with pytest.raises(KeyboardInterrupt):
        go(make_survey(live(busy), busy))
    assert ended == ["query"] and waiters.list_waiting() == ()


@pytest.mark.parametrize("is_ignored", [True, False])
def test_a_terminal_that_is_gone_ends_the_wait_unless_hangups_are_ignored(machines, monkeypatch, is_ignored):
    busy = make_busy()
    clock = machines(busy)
    monkeypatch.setattr(wait_free, "_read_terminal", lambda: 0 if clock.looks < 2 else 6)
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN if is_ignored else signal.SIG_DFL)
    try:
        with pytest.raises(OperatorError if is_ignored else KeyboardInterrupt):
            go(make_survey(live(busy), busy))
    finally:
        signal.signal(signal.SIGHUP, previous)
    assert (clock.looks > 2) is is_ignored


def test_between_whole_looks_only_what_is_in_the_way_is_asked_for(machines, monkeypatch):
    """It lives: a look every 30 s. It is gone: a look at once, as long as looks are cheap."""
    own = procs.read_identity(os.getpid())
    busy = make_busy()
    process = busy.runs[0].top._replace(pid=own.pid, start_ticks=own.start_ticks)
    busy = make_machine([process], runs=(make_run(process),))
    clock = machines(busy, busy, FREE)
    told, ticket = go(make_survey(live(busy), busy))
    assert clock.looks == 5 and 1149 < clock.now < 1152
    waiters.leave(ticket)
    for cost, whole in ((0.0, 5 + 5 + 30 + 30), (0.1, 5 + 25 + 30 + 30)):  # a look that takes 0.1 s is not made again within 25 s
        clock.now, clock.looks = 1000.0, 0
        used = iter(range(100))
        monkeypatch.setattr(wait_free, "_read_cpu_seconds", lambda cost=cost, used=used: next(used) * cost)
        gone = make_busy(process.pid)
        assert not procs.is_alive(own._replace(start_ticks=gone.runs[0].top.start_ticks))
        machines(gone, FREE)
        told, ticket = go(make_survey(live(gone), gone))
        waiters.leave(ticket)
        assert clock.looks == 4 and clock.now - 1000 == pytest.approx(whole, abs=1), (cost, clock)
