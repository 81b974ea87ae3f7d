"""Processes: titles, log lines, starting and ending them, asking them; and torchrun."""
import json
import os
import signal
import socket
import subprocess
import sys
import time

IS_NEW = os.environ.get("TOY_LAYOUT") == "new"
STEP_SEC = float(os.environ.get("TOY_STEP_SEC") or 0.2)
LOAD_SEC = float(os.environ.get("TOY_LOAD_SEC") or 0.2)
SHOWN = dict(pair.split("=", 1) for pair in os.environ.get("TOY_SHOW", "").split(";") if pair)
BIN = os.path.abspath(__file__).rsplit("/src/", 1)[0] + "/.venv/bin"
COLORS = {"INFO": "", "SUCCESS": "\x1b[32m", "WARNING": "\x1b[33m", "ERROR": "\x1b[31m"}


def set_title(name):
    """Does what setproctitle does: command line and short name, and without SPT_NOENV the environment goes too."""
    title = (name if "::" in name else "%s::%s" % ("PRL" if IS_NEW else "PRIME-RL", name)).encode()
    for key, value in list(os.environ.items()):  # copies of their own, elsewhere
        os.environ[key] = value
    with open("/proc/self/stat", "rb") as file:
        start, end, _, env_end = map(int, file.read().rpartition(b")")[2].split()[45:49])
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(start)
        memory.write(title.ljust((end if os.environ.get("SPT_NOENV") else env_end) - start, b"\0"))
    with open("/proc/self/comm", "wb") as file:
        file.write(title[:15])
    os.environ["PATH"] = BIN + ":" + os.environ.get("PATH", os.defpath).replace(BIN + ":", "")


def say(words, level="INFO"):
    color, end = COLORS[level], "\x1b[0m"
    os.write(1, ("\x1b[2m%s%s %s\x1b[1m%7s%s %s\x1b[1m\x1b[22m%s%s%s\n" % (
        time.strftime("%H:%M:%S"), end, color, level, end, color, words, end, end)).encode("utf-8"))


def say_step(head, seconds, *pairs):
    """`Step 3 |   200ms | Loss 0.0123 | …`; TOY_SHOW has other values."""
    shown = "%.0fms" % (seconds * 1000) if seconds < 1 else "%.1fs" % seconds if seconds < 60 else "%dm %ds" % divmod(seconds, 60)
    say(" | ".join([head, shown.rjust(7)] + ["%s %s" % (name, SHOWN.get(name, value)) for name, value in pairs]), "SUCCESS")


def write(path, value=""):
    """A file with its folders: text or a value as JSON."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(value if isinstance(value, str) else json.dumps(value, indent=2))


def fail_if_asked(name, step=1):
    if os.environ.get("TOY_FAIL") == name and step == int(os.environ.get("TOY_FAIL_AT") or 1):
        raise RuntimeError("toy failure of %s at step %d" % (name, step))


def list_steps(first, max_steps):
    """The steps that a run does after `first`."""
    last = first + int(os.environ.get("TOY_STEPS") or (12 if os.environ.get("TOY_SICK") else 3))
    return range(first + 1, (min(last, max_steps) if max_steps else last) + 1)


def find_steps(folder):
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return sorted(int(name[5:]) for name in names if name.startswith("step_"))


def find_resume_step(resume, base):
    """The step to go on from; None without a resume or a checkpoint."""
    if resume and resume["dir"]:
        return int(resume["dir"].rsplit("_", 1)[1])
    return (resume["step"] or (find_steps(base + "/checkpoints") or [None])[-1]) if resume else None


def ask(url):
    """The status and the body that an http URL answers with, (0, "") where nobody does."""
    address, _, path = url.split("://", 1)[1].partition("/")
    host, _, port = address.partition(":")
    try:
        with socket.create_connection((host, int(port or 80)), 5) as link:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # no TIME_WAIT on the server's port
            if url.startswith("tcp:"):
                return 200, ""
            link.sendall(("GET /%s HTTP/1.0\r\nHost: %s\r\n\r\n" % (path, address)).encode())
            head, _, body = b"".join(iter(lambda: link.recv(65536), b"")).partition(b"\r\n\r\n")
        return int(head.split()[1]), body.decode()
    except OSError:
        return 0, ""


def wait_for(what, seconds=1800):
    """Waits until a URL answers or a file is there."""
    end = time.monotonic() + seconds
    while not (ask(what)[0] == 200 if "://" in what else os.path.exists(what)):
        if time.monotonic() > end:
            raise TimeoutError("%s: not ready after %d s" % (what, seconds))
        time.sleep(0.05)


def start(words, log="", **environ):
    """A process by its bare name, found on PATH."""
    if not log:
        return subprocess.Popen(words, env=dict(os.environ, **environ))
    write(log)
    with open(log, "w") as file:
        return subprocess.Popen(words, env=dict(os.environ, **environ), stdout=file, stderr=file)


def stop(processes):
    """Ends processes with all their descendants."""
    for process in processes:
        for number in (signal.SIGTERM, signal.SIGKILL):
            if process.poll() is None:
                _signal_tree(process.pid, number)
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    pass


def _signal_tree(pid, number):
    parents, found = {}, [pid]
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % name, "rb") as file:
                parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
        except OSError:
            pass
    for parent in found:
        found += [child for child in parents if parents[child] == parent]
    for child in found[1:] + [pid]:
        try:
            os.kill(child, number)
        except OSError:
            pass


def tell_failure(rank, process):
    """What torch.distributed.elastic says of a rank that failed."""
    code = process.returncode
    head = time.strftime("E%m%d %H:%M:%S.000000 ") + "%d torch/distributed/elastic/multiprocessing/api.py:984] " % os.getpid()
    told = "Signal %d (%s) received by PID %d" % (-code, signal.Signals(-code).name, process.pid) if code < 0 else \
        "To enable traceback see: the documentation"
    lines = ["", head + "failed (exitcode: %d) local_rank: %d (pid: %d) of binary: %s" % (
        code, rank, process.pid, sys.executable),
             "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", "=" * 60, "train.py FAILED",
             "  rank      : %d (local_rank: %d)" % (rank, rank), "  exitcode  : %d (pid: %d)" % (code, process.pid),
             "  error_file: <N/A>", "  traceback : " + told, "=" * 60, ""]
    os.write(1, "\n".join(lines).encode())


def torchrun():
    """Starts the ranks, hands on what the first of them says, and fails when one does."""
    words, options = sys.argv[1:], {}
    while words and words[0].startswith("--"):
        name, equals, value = words.pop(0)[2:].replace("_", "-").partition("=")
        options[name] = value if equals else words.pop(0)
    ranks = [subprocess.Popen(
        [sys.executable, "-B"] + words, env=dict(os.environ, LOCAL_RANK=str(rank)), stderr=subprocess.STDOUT,
        stdout=subprocess.DEVNULL if rank else subprocess.PIPE) for rank in range(int(options.get("nproc-per-node", 1)))]

    def end(*_):
        head = time.strftime("W%m%d %H:%M:%S.000000 ") + "%d torch/distributed/elastic/" % os.getpid()
        words = ["agent/server/api.py:723] Received 15 death signal, shutting down workers"] + [
            "multiprocessing/api.py:900] Sending process %d closing signal SIGTERM" % rank.pid for rank in ranks]
        os.write(1, "".join(head + line + "\n" for line in words).encode())
        stop(ranks)
        os._exit(1)

    signal.signal(signal.SIGTERM, end)
    for line in ranks[0].stdout:
        os.write(1, b"[%s0]:" % options.get("role", "default").encode() + line)
    for rank, process in enumerate(ranks):
        if process.wait():
            time.sleep(1 if process.returncode == -signal.SIGTERM else 0)  # whoever ends the ranks is about to end this too
            stop(ranks)
            tell_failure(rank, process)
            sys.exit(1)
