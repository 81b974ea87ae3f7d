"""`run --wait-free`: real runs, GPU holders and listeners in the way, waiters in a queue, and all that ends a wait. Nothing that
did not launch leaves a trace."""
import json
import os
import pty
import signal
import subprocess
import sys

import pytest
from checkouts import add_prime_config, build_prime_checkout, write_nvidia_smi

from . import box as b
from .test_prime_beside import OTHER_PORTS
from .test_prime_launch import HELD, QUICK, list_run

LOOK = ("--look-every", "0.2s")
GPUS = [{"index": number, "uuid": "GPU-%d" % number, "used": 0, "total": 81559} for number in range(4)]
# A process of the user nobody with a place in the queue that is older than anybody's here.
EARLIER = """
import os, socket, sys, time
os.setuid(65534)
one = socket.socket(socket.AF_UNIX)
one.bind("\\0rlrun.wait.%020d.1.box" % (time.clock_gettime(7) * 1e9))
one.listen(64)
print("in", flush=True)
sys.stdin.read()
"""
LISTENER = """
import socket, sys
one = socket.socket()
one.bind(("127.0.0.1", 6379))
one.listen(8)
print("in", flush=True)
sys.stdin.read()
"""


def start(script):
    one = subprocess.Popen([sys.executable, "-I", "-S", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert one.stdout.readline() == b"in\n"
    return one


def begin(box, name, env=None, digest="", mark=""):
    """A waiting rlrun, and the file with what it says."""
    digest = digest or b.check(box, name, env=env)["digest"]
    path = os.path.join(box.folder, "told-%s%s" % (digest, mark))
    argv = [box.python, box.pyz, "run", name, "--confirm", digest, "--board", "leave", "--foreground", "--wait-free", "1h"]
    with open(path, "wb") as told:
        one = subprocess.Popen(argv + list(LOOK), cwd=box.root, env=b.make_env(box, env), stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=told)
    return one, path


def says(waiter, words, count=1):
    b.wait_for(lambda: b.read(waiter[1]).count(words) >= count or waiter[0].poll() is not None, words)
    return b.read(waiter[1])


def list_lines(waiter):
    return [line for line in b.read(waiter[1]).splitlines() if line.startswith("waiting (")]


def count_places():
    return b.read("/proc/net/unix").count("@rlrun.wait.")


def find_check(found, name):
    return "\n".join(one["detail"] for one in found["checks"] if one["name"] == name)


# --- the queue

def play_queue(box):
    live = b.launch(box, "demo", env=b.LONG)
    pinned = b.check(box, "pinned", env=b.LONG)["digest"]
    one = begin(box, "pinned", env=b.LONG, digest=pinned)
    says(one, "waiting (")
    two = begin(box, "checkpoints", env=b.SHORT)
    says(two, "behind pid")
    three = begin(box, "first_run", env=b.SHORT)
    says(three, "behind pid")
    twin = begin(box, "pinned", env=b.LONG, digest=pinned, mark="twin")  # the same plan as the first one's
    says(twin, "behind pid")
    facts = {"pids": [live["runner"]["pid"]] + [waiter[0].pid for waiter in (one, two, three)]}
    facts["three"] = find_check(b.check(box, "demo"), "job:waiting")
    facts["titles"] = [b.read("/proc/%d/cmdline" % waiter[0].pid).strip("\0") for waiter in (one, two, three)]
    two[0].kill()
    two[0].wait()
    facts["two"] = find_check(b.check(box, "demo"), "job:waiting")
    facts["lines"] = list_lines(three)
    os.kill(one[0].pid, signal.SIGSTOP)
    b.shell(box, live["stop"], cwd="/")
    b.wait_for(lambda: not list_run(live["runner"]["pid"]), "the end of the run")
    facts["codes"] = [three[0].wait(90)]
    b.wait_for(lambda: b.count_records(box) == 3, "the launch of the twin")
    os.kill(one[0].pid, signal.SIGCONT)
    facts["codes"].append(one[0].wait(90))  # what it waits for is its own plan's run
    facts["told"] = [list_lines(three), b.read(one[1])]
    b.end_runs()
    twin[0].wait(90)
    facts["rows"] = [[row["config"].split("/")[-1], row["runner"]["pid"]] for row in b.list_runs(box)]
    facts["none"] = find_check(b.check(box, "demo"), "job:waiting")
    facts["places"] = count_places()
    return facts


def test_waiters_launch_in_the_order_in_which_they_came(play, root):
    facts = play(play_queue, root)
    live, one, two, three = facts["pids"]
    assert facts["three"].startswith("4 rlruns wait for this machine: pid %d (root) since " % one)
    assert "pid %d (root)" % two in facts["three"] and "pid %d (root)" % three in facts["three"]
    assert facts["two"].startswith("3 rlruns wait") and "pid %d " % two not in facts["two"]
    assert facts["titles"] == ["rlrun: waiting"] * 3
    # What has not changed is not told again.
    (line,) = facts["lines"]
    assert line.startswith("waiting (up to 1h): the run of pid %d (root) since " % live)
    assert "; behind pid %d (root), who waits since " % one in line
    # Who is stopped is passed over; and a plan that was launched meanwhile is not waited for any longer.
    assert facts["codes"] == [0, 1], facts["told"]
    assert [row[0] for row in facts["rows"]] == ["pinned.env", "first_run.env", "demo.env"]
    passed = "going past pid %d (root), who waits since " % one
    assert "free now; it must be so for 3 looks in a row; " + passed in facts["told"][0][-1]
    assert facts["told"][0][-1].endswith(" and is stopped")
    said = facts["told"][1].replace("\n", " ")
    assert "was launched already" in said and "that run lives: " in said and "nothing was launched" in said, said
    assert (facts["none"], facts["places"]) == ("", 0)


# --- GPUs and ports; what ends a wait, and what never begins one

def replace_smi(fakes, *given):
    """In one step: the waiting rlrun may be about to ask."""
    write_nvidia_smi(fakes + ".new", *given)
    os.rename(os.path.join(fakes + ".new", "nvidia-smi"), os.path.join(fakes, "nvidia-smi"))


def play_interrupts(box):
    """A Ctrl-C, SIGTERM, a window that is closed, one that is gone without a word."""
    facts = {}
    digest = b.check(box, "demo", env=b.SHORT)["digest"]
    words = ("run", "demo", "--confirm", digest, "--board", "leave", "--wait-free", "1h") + LOOK
    for how in ("SIGINT", "SIGTERM"):
        waiter = begin(box, "demo", env=b.SHORT, digest=digest)
        says(waiter, "waiting (")
        waiter[0].send_signal(getattr(signal, how))
        facts[how] = [waiter[0].wait(60), b.read(waiter[1]).splitlines()[-1]]
    session = b.open_rlrun(box, *words, env=b.SHORT)
    b.expect(session, "waiting (")
    os.close(session.fd)
    facts["window"] = b.wait_for(lambda: b.reap(session.pid), "the end")[0]
    for is_ignored in (False, True):
        told = os.path.join(box.folder, "told-%s" % is_ignored)
        pid, fd = pty.fork()
        if pid == 0:  # the session's leader, which gets the hangup; rlrun is not in the terminal's foreground, and gets none
            os.chdir(box.root)
            child = os.fork()
            if child == 0:
                os.setpgid(0, 0)
                signal.signal(signal.SIGHUP, signal.SIG_IGN if is_ignored else signal.SIG_DFL)
                out = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                for number, path in ((0, os.open(os.devnull, os.O_RDONLY)), (1, out), (2, out)):
                    os.dup2(path, number)
                os.execve(box.python, [box.python, box.pyz] + list(words), b.make_env(box, b.SHORT))
            os.write(1, b"%d\n" % child)
            signal.pause()
        child = int(b.expect(b.Session(pid, fd, bytearray()), "\n"))
        b.wait_for(lambda told=told: "waiting (" in b.read(told), "the wait")
        os.close(fd)
        b.wait_for(lambda pid=pid: b.reap(pid), "the end of the session's leader")
        if is_ignored:
            before = b.read("/proc/%d/stat" % child).split()[13:15]
            b.wait_for(lambda child=child, before=before: b.read("/proc/%d/stat" % child).split()[13:15] != before, "a look")
            facts["nohup"] = b.is_alive(child)
            os.kill(child, signal.SIGTERM)
        b.wait_for(lambda child=child: not b.is_alive(child), "the end")
        facts["gone %s" % is_ignored] = b.read(told).splitlines()[-1]
    return facts


def play_held(box, fakes):
    holder, listener = start("print('in', flush=True); import sys; sys.stdin.read()"), start(LISTENER)
    held = [dict(gpu, used=60000 if gpu["index"] < 2 else 0) for gpu in GPUS]
    replace_smi(fakes, held, [{"uuid": "GPU-%d" % number, "pid": holder.pid, "used": 60000, "name": "x"} for number in (0, 1)])
    facts = {"pids": [holder.pid, listener.pid], "interrupts": play_interrupts(box)}
    digest = b.check(box, "demo", env=b.SHORT)["digest"]
    words = ("--board", "leave", "--json", "--wait-free", "0.3s") + LOOK
    facts["late"] = b.rlrun(box, "run", "demo", "--confirm", digest, *words, env=b.SHORT)
    facts["other plan"] = b.rlrun(box, "run", "demo", "--confirm", "00000000", "--wait-free", "1h", *words[:3], env=b.SHORT)
    facts["nobody asked"] = b.rlrun(box, "run", "demo", "--wait-free", "1h", *words[:3], env=b.SHORT)
    facts["too often"] = b.rlrun(box, "run", "demo", "--wait-free", "1h", "--look-every", "0s", env=b.SHORT)
    facts["fatal"] = b.rlrun(box, "run", "fatal", "--wait-free", "1h", *words[:3], env=b.SHORT)
    facts["left"] = [b.count_traces(box), count_places()]
    earlier = start(EARLIER)
    waiter = begin(box, "demo", env=b.SHORT, digest=digest)
    said = says(waiter, "waiting (")
    facts["earlier"] = [earlier.pid, said[said.index("waiting ("):]]
    for number, one in enumerate((listener, earlier, holder), 2):
        if one is holder:
            replace_smi(fakes, GPUS, [])
        one.communicate()
        says(waiter, "waiting (", number)
    facts["code"] = waiter[0].wait(90)
    facts["lines"] = list_lines(waiter)
    facts["rows"] = len(b.list_runs(box))
    return facts


def test_what_is_held_by_whom_and_what_ends_the_wait(play, root, fake_bin):
    facts = play(play_held, root, fakes=str(fake_bin))
    holder, listener = facts["pids"]
    interrupts = facts["interrupts"]
    for how in ("SIGINT", "SIGTERM"):
        assert interrupts[how] == [130, "rlrun: interrupted; nothing was launched"], how
    assert interrupts["window"] == 130 and interrupts["gone False"] == "rlrun: interrupted; nothing was launched"
    assert interrupts["nohup"] is True  # hangups are ignored: it goes on without a terminal
    code, out, err = facts["late"]
    told = json.loads(out)
    assert (code, told["exit"], told["reason"], told["launched"]) == (6, 6, "wait-free", False), err
    assert [[one["name"], one["pids"], one["what"]] for one in told["held"]] == [
        ["gpu:foreign", [holder], "GPU 0,1"], ["port:conflict", [listener], "port 6379"]]
    assert "not free within" in err and "ask root" in err
    assert [facts[name][0] for name in ("other plan", "nobody asked", "fatal")] == [3, 3, 1]
    assert "waiting (" not in facts["fatal"][2] + facts["other plan"][2] + facts["nobody asked"][2]
    assert facts["too often"][0] == 2 and "0s is too often" in facts["too often"][2]
    assert facts["left"] == [b.NOTHING, 0]
    pid, said = facts["earlier"]
    assert "GPU 0,1 held by pid %d (root) since " % holder in said
    assert "; port 6379 held by pid %d (root) since " % listener in said
    assert "; behind pid %d (nobody), who waits since " % pid in said
    assert facts["code"] == 0 and facts["rows"] == 1
    assert [["port 6379" in line, "behind" in line, "GPU 0,1" in line, "free now" in line] for line in facts["lines"]] == [
        [True, True, True, False], [False, True, True, False], [False, False, True, False], [False, False, False, True]]


# --- prime-rl: whoever wants something else goes past

@pytest.fixture
def prime(tmp_path):
    found = build_prime_checkout(tmp_path / "prime")
    add_prime_config(found, "held", HELD)
    return found


def play_past(box, fakes):
    write_nvidia_smi(fakes, [dict(gpu, used=60000 if gpu["index"] < 1 else 0) for gpu in GPUS])
    one, two = (dict(QUICK, CUDA_VISIBLE_DEVICES=word) for word in ("0,1", "2,3"))
    first = begin(box, "held", env=one)
    facts = {"told": says(first, "waiting (")}
    checked = b.check(box, "held", "--", *OTHER_PORTS, env=two)
    words = ("--board", "leave", "--json", "--wait-free", "1h") + LOOK
    done = b.rlrun(box, "run", "held", "--confirm", checked["digest"], *(words + ("--",) + OTHER_PORTS), env=two)
    facts["second"] = [done.code, done.err, find_check(checked, "job:waiting")]
    behind = dict(QUICK, CUDA_VISIBLE_DEVICES="1,3")
    digest = b.check(box, "held", "--", *OTHER_PORTS, env=behind)["digest"]
    done = b.rlrun(box, "run", "held", "--confirm", digest, "--wait-free", "0.3s", *(words[:3] + LOOK + ("--",) + OTHER_PORTS),
                   env=behind)
    facts["third"] = [done.code, json.loads(done.out)["behind"]]
    facts["first"] = [first[0].pid, first[0].poll(), len(list_lines(first))]
    first[0].terminate()
    facts["end"] = [first[0].wait(60), len(b.list_runs(box)), count_places()]
    return facts


def test_who_wants_other_gpus_and_ports_goes_past(play, prime, fake_bin):
    facts = play(play_past, prime, fakes=str(fake_bin))
    assert "GPU 0: 58.6 GiB in use by a process that is not visible here" in facts["told"]
    pid, code, lines = facts["first"]
    assert facts["second"][0] == 0 and "waiting (" not in facts["second"][1], facts["second"][1]
    assert facts["second"][2].startswith("1 rlrun waits for this machine: pid %d (root) since " % pid)
    assert facts["third"] == [6, pid] and (code, lines) == (None, 1)
    assert facts["end"] == [130, 1, 0]
