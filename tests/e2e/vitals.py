"""Inside the box, for status, gate and watch: runs that somebody started by hand, looks at them, places in logs read back.

Asserts nothing but that a scene could be set. `look` gives what a test needs of both forms of a report.
"""
import json
import os
import re
import signal
import subprocess
import time

from . import box as b

MODULES = "TEMPLATE_MODULES=(runtime/process.env backend/k8s.env harbor/common.env verl/common.env)\n"
# A config that carries its name from outside, so that one file gives many runs.
NAMED = "PROJECT_NAME=toy\nEXP_NAME=${RUN_NAME:-named}\n" + MODULES
# A run that takes steps until it is stopped.
STEADY = {"TOY_BRINGUP_SEC": "0.05", "TOY_STEPS": "100000", "TOY_STEP_SEC": "0.1"}
# prime-rl: environment, its own file of metrics, checkpoints.
RL = """
max_steps = 100000
[model]
name = "toy/Tiny"
[orchestrator]
batch_size = 8
[[orchestrator.train.source]]
env.taskset.id = "reverse-text"
[trainer]
[monitors.file]
[inference]
"""
STEADY_RL = {"TOY_STEPS": "100000", "TOY_STEP_SEC": "0.1", "TOY_LOAD_SEC": "0.05"}
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def look(box, *words, **options):
    """`status` in both forms: {"code", "text", "err", "shape", "shape_code"}."""
    text = b.rlrun(box, "status", *words, **options)
    shown = b.rlrun(box, "status", "--json", *words, **options)
    return {"code": text.code, "text": text.out, "err": text.err, "shape": json.loads(shown.out or "{}"),
            "shape_code": shown.code}


def look_shape(box, *words, **options):
    """The object of `status --json`, its exit code under "code"."""
    done = b.rlrun(box, "status", "--json", *words, **options)
    return dict(json.loads(done.out or "{}"), code=done.code, stderr=done.err)


def start_lego(box, name, number=0, out="", cwd="/", env=None, config="named", **options):
    """`bash …/train.sh …/config >out` by hand, from elsewhere, in a session of its own; gives the Popen of the runner."""
    script = os.path.join(box.root, "scripts/train/train.sh")
    path = os.path.join(box.root, "scripts/train/configs", config + ".env")
    given = b.make_env(box, STEADY, {"RUN_NAME": name}, env)
    if out:
        options.update(stdout=open(out, "ab"), stderr=subprocess.STDOUT)
    options.setdefault("stdout", subprocess.DEVNULL)
    options.setdefault("stderr", subprocess.DEVNULL)
    return subprocess.Popen(["bash", script, path], env=given, cwd=cwd, stdin=subprocess.DEVNULL, start_new_session=True,
                            **options)


def list_ports(number):
    """The overrides by which so many prime-rl runs live beside each other."""
    router, servers = 8000 + number, 5000 + 10 * number
    return ["--inference.server.port", str(router), "--inference.backend-port", str(router + 200),
            "--orchestrator.env-server-base-port", str(servers), "--orchestrator.model.client.base-url",
            "http://localhost:%d/v1" % router]


def start_prime(box, name, number=0, out="", env=None, config="steady", **options):
    """`.venv/bin/rl @ config --run.name name` by hand; gives the launcher's Popen."""
    words = [os.path.join(box.root, ".venv/bin/rl"), "@", "configs/debug/%s.toml" % config, "--run.name", name]
    if out:
        options.update(stdout=open(out, "ab"), stderr=subprocess.STDOUT)
    options.setdefault("stdout", subprocess.DEVNULL)
    options.setdefault("stderr", subprocess.DEVNULL)
    return subprocess.Popen(words + list_ports(number), env=b.make_env(box, STEADY_RL, env), cwd=box.root,
                            stdin=subprocess.DEVNULL, start_new_session=True, **options)


def find_log(box, name):
    """The log in which a run of this name, of either system, tells its steps."""
    lego = os.path.join(box.root, "logs", name + ".log")
    return lego if os.path.isdir(os.path.join(box.root, "scripts")) else os.path.join(
        box.root, "outputs", name, "logs/latest/trainer.log")


def count_steps(path):
    """The number of the last training step that a log tells, 0 before the first."""
    text = _COLOUR.sub("", b.read(path))
    found = re.findall(r"step:(\d+) - training|SUCCESS Step (\d+) +\|[^\n]*\n", text)
    return max([int(one or other) for one, other in found] or [0])


def await_step(path, step, what=""):
    """Waits until a log tells of that step."""
    b.wait_for(lambda: count_steps(path) >= step, "step %d in %s %s" % (step, path, what))


def list_tree(pid):
    """A process and all below it, the oldest first."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        fields = b.read("/proc/%s/stat" % name).rpartition(")")[2].split()
        if fields and fields[0] not in "ZX":
            parents[int(name)] = int(fields[1])
    found = [pid]
    for one in found:
        found += sorted(child for child, parent in parents.items() if parent == one)
    return found


def find_in_tree(pid, word):
    """The process of a tree that has this in its command line: the last, for a shell may name what it starts."""
    found = [one for one in list_tree(pid) if word in b.read("/proc/%d/cmdline" % one).replace("\0", " ")]
    return found[-1] if found else 0


def freeze(pid):
    """Stops all of a tree, as it is, so that it lives and writes nothing more."""
    for one in list_tree(pid):
        try:
            os.kill(one, signal.SIGSTOP)
        except OSError:
            continue


def thaw(pid):
    """Lets a frozen tree go on."""
    for one in list_tree(pid):
        os.kill(one, signal.SIGCONT)


def end(*popens):
    """Ends what start_lego or start_prime started, all at once: nobody has time to write of the other's end."""
    for popen in popens:
        kill_tree(popen.pid)
        popen.wait()


def kill_tree(pid):
    """SIGKILL for a process and all below it."""
    freeze(pid)
    kill_all(list_tree(pid))


def kill_all(pids):
    """SIGKILL; one that has ended with another is passed over."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            continue


def age(paths, seconds):
    """Sets files back in time, as if nothing had been written since."""
    then = time.time() - seconds
    for path in paths:
        os.utime(path, (then, then))


def check_quote(quote):
    """What is wrong with a quote: the line of the file does not begin at its offset, is not the line of its number, or does
    not hold the words; "" where all is right. (In a test, outside of the box.)"""
    with open(quote["log"], "rb") as file:
        data = file.read()
    line_at = data[quote["offset"]:].split(b"\n")[0]
    if quote["line"] is None:
        return "no line number in a small log"
    lines = data.split(b"\n")
    line = lines[quote["line"] - 1] if quote["line"] <= len(lines) else b""
    if not line_at or not line.endswith(line_at):
        return "line %d is not the one at byte %d: %r" % (quote["line"], quote["offset"], line[:200])
    plain = " ".join(_COLOUR.sub("", line.decode("utf-8", "replace")).split())
    for part in re.split(r"[ |,]*…[ |]*", quote["text"]):
        if " ".join(part.split()) not in plain:
            return "%r is not in line %d: %r" % (part, quote["line"], plain[:300])
    return ""
