"""Drives rlrun.pyz up to the launch, and does something to it at one exact place from there on.

    python driver.py PYZ ORDERS REPORTS WORDS…

rlrun runs with WORDS as it would by itself, up to the moment at which the yes was given (`_launch` in commands/run.py). There
it is copied (fork) for each line of ORDERS, and each copy goes on from there as rlrun; the line tells what happens to it:

    0:steps/keeper.py:start#1 kill            rlrun itself (0) ends by SIGKILL where it calls this function first
    1:steps/record.py:write_file>write#2 kill the keeper (1) before its second call of os.write in there; `<write`: after it
    2:child.py:exec_detached>execve#1 kill    the process that becomes the runner (2) before its exec
    0:steps/keeper.py:start#1 fill FILE       there FILE is made as long as its disk has room
    1:child.py:exec_detached<fork#1 stop      it stops (SIGSTOP) until it is told to go on; so `stopped N` is reported
    - trace FILE                              nothing; all events go to FILE, a line each, as the orders name them

An event is a call of a function of the pyz; in the modules that launch, also the call and the return of what is written in C,
so that there is one on both sides of every call of the system. For each line two lines are added to REPORTS: `pid N`, and when
that copy has ended `status N`; and `killed N` before a kill. Imports nothing of the tests.
"""
import os
import runpy
import signal
import sys

_CLOSE = tuple("/rlrun/" + name for name in (
    "child.py", "steps/keeper.py", "steps/launch.py", "steps/record.py", "steps/lock.py", "commands/run.py",
    "commands/launched.py"))
_GATE = ("_launch", "/rlrun/commands/run.py")


def main(pyz, orders, reports, words):
    now = {"pid": os.getpid(), "role": 0, "seen": None, "where": "", "what": ("trace", os.devnull), "reports": reports}

    def watch(frame, event, made):
        code = frame.f_code
        path = code.co_filename
        if ".pyz/rlrun/" not in path or event not in ("call", "c_call", "c_return"):
            return
        if event != "call" and not path.endswith(_CLOSE):
            return
        if now["seen"] is None:
            if code.co_name != _GATE[0] or not path.endswith(_GATE[1]):
                return
            serve(now, orders, reports)
        if os.getpid() != now["pid"]:  # a copy of a copy: the keeper, and what becomes the runner
            now.update(pid=os.getpid(), role=now["role"] + 1, seen={})
        name = "%s:%s" % (path.rpartition("/rlrun/")[2], code.co_name)
        if event != "call":
            name += "%s%s" % (">" if event == "c_call" else "<", getattr(made, "__name__", "?"))
        now["seen"][name] = now["seen"].get(name, 0) + 1
        act(now, "%d:%s#%d" % (now["role"], name, now["seen"][name]))

    sys.argv = [pyz] + words
    sys.setprofile(watch)
    runpy.run_path(pyz, run_name="__main__")


def serve(now, orders, reports):
    """Returns in copies alone: one for each order."""
    with open(orders) as lines:
        while True:
            line = lines.readline()
            if not line:
                os._exit(0)
            where, _, what = line.strip().partition(" ")
            pid = os.fork()
            if pid == 0:
                now.update(pid=os.getpid(), seen={}, where=where, what=tuple(what.split(" ", 1)))
                return
            report(reports, "pid %d" % pid)
            status = os.waitpid(pid, 0)[1]
            report(reports, "status %d" % (-os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)))


def report(path, text):
    with open(path, "a") as out:
        out.write(text + "\n")


def act(now, name):
    if now["what"][0] == "trace":
        report(now["what"][1], name)
    elif now["where"] == name:
        now["where"] = ""
        if now["what"][0] == "stop":
            report(now["reports"], "stopped %d" % os.getpid())
            os.kill(os.getpid(), signal.SIGSTOP)
            return
        if now["what"][0] == "kill":
            report(now["reports"], "killed %d" % os.getpid())
            os.kill(os.getpid(), signal.SIGKILL)
        with open(now["what"][1], "wb", 0) as out:
            try:
                while True:
                    out.write(b"x" * 4096)
            except OSError:
                pass


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
