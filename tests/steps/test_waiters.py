"""The queue of waiting rlruns: order, who counts as waiting, who goes past whom. Real sockets, by a name of its own."""
import os
import signal
import socket
import subprocess
import sys

import pytest
from steps.made import make_plan

from rlrun.errors import MACHINE, OperatorError
from rlrun.steps import waiters
from rlrun.values import Port, SweepRule

# Listens with an old time, and is gone; its child lives, and has the socket.
ORPHAN = """
import os, socket, sys
one = socket.socket(socket.AF_UNIX)
one.bind("\\0%s%020d.1.box" % (sys.argv[1], 5))
one.listen(8)
if os.fork():
    os._exit(0)
print("in", flush=True)
sys.stdin.read()
"""
# Is there first, and comes into the queue only when it is told to, with an old time.
LATE = """
import socket, sys
print("in", flush=True)
sys.stdin.readline()
one = socket.socket(socket.AF_UNIX)
one.bind("\\0%s%020d.1.box" % (sys.argv[1], 5))
one.listen(8)
print("in", flush=True)
sys.stdin.read()
"""
OTHER = """
import sys
sys.path.insert(0, sys.argv[1])
from rlrun.steps import waiters
waiters._PREFIX = sys.argv[2]
ticket = waiters.enter(sys.argv[3])
print("in", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def prefix(monkeypatch):
    name = "rlrun-test-%d.wait." % os.getpid()
    monkeypatch.setattr(waiters, "_PREFIX", name)
    return name


@pytest.fixture
def start(prefix):
    """start(want) -> another process that waits."""
    started = []

    def run(want, script=""):
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        words = [script, prefix] if script else [OTHER, root, prefix, want]
        one = subprocess.Popen([sys.executable, "-I", "-c"] + words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(one)
        assert one.stdout.readline() == b"in\n"
        return one
    yield run
    for one in started:
        one.kill()
        one.communicate()


def listen(name):
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    one.bind("\0" + name)
    one.listen(1)
    return one


def test_first_come_first_served_and_whoever_is_killed_is_gone(start):
    first, second = start("box"), start("g0,1")
    mine = waiters.enter("g1")
    waiting = waiters.list_waiting()
    assert [(one.pid, one.uid, one.want) for one in waiting] == [
        (first.pid, os.getuid(), "box"), (second.pid, os.getuid(), "g0,1"), (os.getpid(), os.getuid(), "g1")]
    assert waiters.find_front(mine, waiting).pid == first.pid
    (check,) = waiters.judge_waiting(waiting)
    assert (check.name, check.status) == ("job:waiting", "advisory")
    assert check.detail.startswith("2 rlruns wait for this machine: pid %d (" % first.pid)
    assert "pid %d " % os.getpid() not in check.detail
    first.kill()
    first.wait()
    waiting = waiters.list_waiting()
    assert waiters.find_front(mine, waiting).pid == second.pid
    second.kill()
    second.wait()
    waiting = waiters.list_waiting()
    assert waiters.find_front(mine, waiting) is None and waiters.judge_waiting(waiting) == []
    waiters.leave(mine)
    assert waiters.list_waiting() == ()


def test_a_program_that_is_started_does_not_keep_the_place():
    mine = waiters.enter("box")
    script = "print('in', flush=True); input()"
    child = subprocess.Popen([sys.executable, "-I", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False)
    assert child.stdout.readline() == b"in\n"
    waiters.leave(mine)
    assert waiters.list_waiting() == ()
    child.communicate(b"\n")


def test_a_stopped_waiter_is_passed_over_until_it_goes_on(start):
    first, mine = start("box"), waiters.enter("box")
    assert waiters.find_front(mine, waiters.list_waiting()).pid == first.pid
    os.kill(first.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, first.pid, os.WSTOPPED)
    waiting = waiters.list_waiting()
    assert waiters.find_front(mine, waiting) is None
    (passed,) = waiters.list_before(mine, waiting)
    assert (passed.pid, passed.why) == (first.pid, waiters.STOPPED)
    assert waiters.describe_passed(passed).startswith("pid %d (" % first.pid)
    assert waiters.describe_passed(passed).endswith(" and is stopped")
    assert ", stopped)" in waiters.judge_waiting(waiting)[0].detail
    os.kill(first.pid, signal.SIGCONT)
    os.waitid(os.P_PID, first.pid, os.WCONTINUED)
    assert waiters.find_front(mine, waiters.list_waiting()).pid == first.pid
    waiters.leave(mine)


def test_who_does_not_answer_is_in_nobody_s_way_whatever_time_he_claims(prefix, monkeypatch):
    squatter = listen("%s%020d.1.box" % (prefix, 5))
    asked = [socket.socket(socket.AF_UNIX) for _ in range(8)]
    for one in asked:  # its queue is full
        one.setblocking(False)
        one.connect_ex("\0%s%020d.1.box" % (prefix, 5))
    monkeypatch.setattr(waiters, "_BACKLOG", 2)
    mine = waiters.enter("box")
    for _ in range(8):  # and so is ours, for want of a look
        waiting = waiters.list_waiting()
    assert [(one.pid, one.uid, one.why) for one in waiting] == [(0, -1, waiters.SILENT)] * 2
    assert waiters.find_front(mine, waiting) is None
    assert [one.since_seconds for one in waiters.list_before(mine, waiting)] == [5e-9]
    assert "does not answer, since when is not known" in waiters.judge_waiting(waiting)[0].detail
    waiters.drain(mine)
    assert os.getpid() in [one.pid for one in waiters.list_waiting()]
    monkeypatch.setattr(waiters, "_ask_holder", lambda name: (0, 0))  # as the kernel tells of another table's process
    waiting = waiters.list_waiting()
    assert waiters.find_front(mine, waiting) is None and waiting[0].why == waiters.UNSEEN
    assert waiters.describe_passed(waiting[0]) == "a process that can't be seen here (root)"
    for one in asked + [squatter]:
        one.close()
    waiters.leave(mine)


def test_a_place_of_one_that_is_gone_is_nobody_s(start):
    orphan, mine = start("", ORPHAN), waiters.enter("box")
    os.waitid(os.P_PID, orphan.pid, os.WEXITED | os.WNOWAIT)
    for _ in range(2):  # as a zombie, and without a row
        waiting = waiters.list_waiting()
        assert [(one.pid, one.why) for one in waiters.list_before(mine, waiting)] == [(orphan.pid, waiters.GONE)]
        assert waiters.find_front(mine, waiting) is None
        orphan.wait()
    waiters.leave(mine)


def test_who_shows_only_when_our_place_is_settled_came_later_whatever_he_says(start):
    first, late = start("box"), start("", LATE)
    mine = waiters.note_rivals(waiters.enter("box"))
    late.stdin.write(b"\n")
    late.stdin.flush()
    assert late.stdout.readline() == b"in\n"
    waiting = waiters.list_waiting()
    (squatter,) = [one for one in waiting if one.pid == late.pid]
    assert squatter.since_seconds < mine.since_seconds and squatter.why == ""
    assert [one.pid for one in waiters.list_before(mine, waiting)] == [first.pid]
    assert waiters.note_rivals(mine) is mine
    waiters.leave(mine)


def test_a_name_alone_is_no_waiter(prefix, tmp_path, monkeypatch):
    early = "%s%020d.1.box" % (prefix, 5)
    datagram = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    datagram.bind("\0" + early)
    silent = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    silent.bind("\0%s%020d.1.box" % (prefix, 6))
    monkeypatch.chdir(tmp_path)
    on_disk = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    on_disk.bind("@%s%020d.1.box" % (prefix, 7))  # /proc/net/unix shows it as it does an abstract one
    on_disk.listen(1)
    others = [listen(prefix + "no-number"), listen("%s%020d.1.UP/" % (prefix, 8))]
    assert waiters.list_waiting() == ()
    for one in [datagram, silent, on_disk] + others:
        one.close()


def test_neither_pid_nor_age_is_believed_to_the_name(prefix):
    squatter = listen("%s%020d.1.later" % (prefix, 5))
    (one,) = waiters.list_waiting()
    began = waiters.procs.read_identity(os.getpid()).start_ticks / os.sysconf("SC_CLK_TCK")
    assert one.pid == os.getpid() and one.since_seconds == pytest.approx(began)
    squatter.close()


def test_unreadable_table_is_nobody(tmp_path):
    assert waiters.list_waiting(str(tmp_path)) == ()


@pytest.mark.parametrize("call", ["bind", "listen"])
def test_a_place_that_can_not_be_had_is_told(monkeypatch, call):
    def refuse(*words):
        raise OSError(1, "no")
    monkeypatch.setattr(waiters.socket, "socket", type("Refused", (socket.socket,), {call: refuse}))
    with pytest.raises(OperatorError) as caught:
        waiters.enter("box")
    assert caught.value.code == MACHINE and "nothing was launched" in caught.value.message


def test_who_took_the_time_too_early_takes_it_anew(monkeypatch):
    """Else somebody later could have looked in between, and have seen nobody before him."""
    times = iter([100.0, 105.0, 106.0, 106.001])
    monkeypatch.setattr(waiters, "read_clock", lambda: next(times))
    mine = waiters.enter("box")
    assert mine.since_seconds == 106.0
    assert mine.socket.getsockname().startswith(("\0%s%020d." % (waiters._PREFIX, 106 * 10**9)).encode())
    waiters.leave(mine)


def plan(**given):
    return make_plan(**dict(dict(takes_whole_box=False, gpu_count=2, environment={}), **given))


@pytest.mark.parametrize("given, want", [
    (dict(), "g0,1"), (dict(environment={"CUDA_VISIBLE_DEVICES": "4, 6,7"}), "g4,6"), (dict(gpu_count=0), "g"),
    (dict(gpu_count=0, ports=(Port(8000, "x"), Port(81, "y"))), "gp8000,81"), (dict(ports=(Port(8000, "x"),)), "g0,1p8000"),
    (dict(gpu_count=None), "box"), (dict(takes_whole_box=True), "box"),
    (dict(environment={"CUDA_VISIBLE_DEVICES": "GPU-1f,2"}), "box"), (dict(environment={"CUDA_VISIBLE_DEVICES": "3"}), "box"),
    (dict(sweep=SweepRule(("x",), (), "", True)), "box"),
    (dict(gpu_count=90), "box"), (dict(is_submission=True, takes_whole_box=True), "n")])
def test_what_a_plan_wants_fits_a_name(given, want):
    assert waiters.name_want(plan(**given)) == want


def test_the_longest_want_fits_a_socket_s_name(prefix):
    want = waiters.name_want(plan(gpu_count=16, ports=(Port(29501, "x"),)))
    assert want.startswith("g0,1,") and len("\0rlrun.wait.%020d.%d.%s" % (0, 4194304, want)) < 107


@pytest.mark.parametrize("one, other, overlaps", [
    ("box", "box", True), ("box", "g0", True), ("box", "g", True), ("box", "n", False), ("n", "n", False), ("g0,1", "g1,2", True),
    ("g0,1", "g10", False), ("g0p8000", "g1p8000", True), ("g0p8000", "g1p8001", False), ("g", "g", False), ("gp1", "g1", False),
    ("news", "g0", True), ("", "g0", True)])
def test_who_is_in_whose_way(one, other, overlaps):
    assert waiters.is_overlapping(one, other) is waiters.is_overlapping(other, one) is overlaps
