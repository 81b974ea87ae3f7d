#!/usr/bin/env python3
"""What rlrun costs, as ratios within one run: `make bench`. A report, never a verdict: the exit code is always 0.

Medians of 9 rounds; in each round every command runs once, so that what else the machine does falls on all of them. Where
that can be had (root), all of it happens in a process table of its own, and ends with it.
"""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PYZ = os.path.join(ROOT, "dist", "rlrun.pyz")
TOY = os.path.join(ROOT, "tests", "checkouts", "lego")
CONFIG = "scripts/train/configs/demo.env"
ROUNDS = 9
PROCESSES = 3000
BOX = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"]
INSIDE = "RLRUN_BENCH_INSIDE"

# The process part of `probe`: table, runs and boards, as steps/guard.py reads them, timed in a process of its own.
PROCESS_PART = """
import sys, time
sys.path.insert(0, sys.argv[1])
from rlrun.steps import guard
from rlrun.host import procs
from rlrun import stacks
stacks.load_recognisers()
import os
started = time.perf_counter()
processes = procs.read_processes()
guard.find_runs(processes, os.getpid())
guard.find_boards(processes)
print(time.perf_counter() - started, len(processes))
"""

# The same facts as `rlrun probe` tells, as a shell script would collect them.
PIPELINE = r"""
table=$(mktemp); trap 'rm -f "$table"' EXIT
ps -eo pid=,ppid=,pgid=,user=,stat=,etimes=,args= >"$table"
awk '$7 ~ /(^|\/)bash$/ && $8 ~ /(train|eval|infer)\/(train|eval|infer)\.sh$/' "$table"
awk '{for (i = 8; i < NF; i++) if ($i == "-m" && $(i+1) ~ /fully_async_main$|main_ppo$/) print}' "$table"
grep -E ' (VLLM::|EngineCore|ray::)' "$table" | grep -v grep
grep -E '/(raylet|gcs_server)( |$)' "$table"
grep -E 'server\.py.*--log-dir' "$table"
command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=index,memory.used --format=csv,noheader
if command -v ss >/dev/null; then ss -ltnp; else awk '$4 == "0A"' /proc/net/tcp /proc/net/tcp6; fi
df -P / .; df -Pi / .; df -P /dev/shm
grep MemTotal /proc/meminfo; cat /sys/fs/cgroup/memory.max 2>/dev/null
hostname -s; hostname -I; cat /proc/uptime
ulimit -Sn; ulimit -Hn; ulimit -Sl
env | grep -E '^(SLURM_|RANK=|WORLD_SIZE=|RAY_ADDRESS=|MASTER_PORT=)'
ls -t logs/*.log 2>/dev/null | head -1
python3 -c 'import importlib.util as u; [u.find_spec(n) for n in ("verl", "ray", "vllm", "wandb", "veomni")]'
"""


class Row(NamedTuple):
    """One line of the report; `is_reached` is None where the issue sets no target."""

    what: str
    value: str
    target: str
    is_reached: Optional[bool]


def run_quietly(argv: Sequence[str], cwd: str) -> float:
    """Runs a command, output to nowhere; gives the seconds that it took."""
    started = time.perf_counter()
    subprocess.run(list(argv), cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - started


def median(numbers: Sequence[float]) -> float:
    """The middle one."""
    return sorted(numbers)[len(numbers) // 2]


def measure(actions: Dict[str, Callable[[], float]], rounds: int = ROUNDS) -> Dict[str, float]:
    """The median seconds of each action, all of them once in each round; a first round warms the caches and is dropped."""
    taken = {name: [] for name in actions}  # type: Dict[str, List[float]]
    for number in range(rounds + 1):
        for name, action in actions.items():
            seconds = action()
            if number:
                taken[name].append(seconds)
    return {name: median(numbers) for name, numbers in taken.items()}


def measure_memory(argv: Sequence[str], cwd: str) -> Tuple[int, int]:
    """Peak memory in KiB of a command itself (VmHWM, looked at until it ends), and of it and all that it waited for.

    wait4 alone would count the runner's own check, and what this process had in memory at the fork.
    """
    running = subprocess.Popen(list(argv), cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    peak = 0
    while True:
        try:
            with open("/proc/%d/status" % running.pid) as status:
                for line in status:
                    if line.startswith("VmHWM:"):
                        peak = max(peak, int(line.split()[1]))
        except OSError:
            pass
        pid, _, usage = os.wait4(running.pid, os.WNOHANG)
        if pid:
            running.returncode = 0
            return peak, usage.ru_maxrss
        time.sleep(0.002)


def spawn_sleeps(count: int) -> "subprocess.Popen[bytes]":
    """A shell with `count` sleeps below it, all in one process group that is its own."""
    script = 'i=0; while [ $i -lt "$1" ]; do sleep 3600 & i=$((i+1)); done; echo ready; wait'
    shell = subprocess.Popen(["sh", "-c", script, "sh", str(count)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, start_new_session=True)
    assert shell.stdout is not None
    shell.stdout.readline()
    return shell


def end_group(leader: "subprocess.Popen[bytes]") -> None:
    """Ends what `spawn_sleeps` started."""
    try:
        os.killpg(leader.pid, signal.SIGKILL)
    except OSError:
        pass
    leader.wait()
    if leader.stdout:
        leader.stdout.close()
    while os.getpid() == 1:  # in the box orphans are ours, and thousands of zombies would slow down what comes next
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            break


def rlrun(*words: str) -> List[str]:
    """The command line of the built file, under this interpreter."""
    return [sys.executable, PYZ] + list(words)


def bench_startup(toy: str) -> List[Row]:
    """Every command's start against the bare interpreter's."""
    commands = (("version",), ("--help",), ("configs",), ("runs",), ("explain",), ("probe",), ("check", "--help"))
    empty = os.path.join(os.path.dirname(toy), "empty.pyz")
    with zipfile.ZipFile(empty, "w") as archive:
        archive.writestr("__main__.py", "")
    actions = {"": lambda: run_quietly([sys.executable, "-c", "pass"], toy),
               "an archive with nothing in it": lambda: run_quietly([sys.executable, empty], toy)}
    for words in commands:
        actions["rlrun " + " ".join(words)] = lambda words=words: run_quietly(rlrun(*words), toy)  # type: ignore[misc]
    found = measure(actions)
    bare = found.pop("")
    rows = [Row("python3 -c pass", "%.1f ms" % (bare * 1000), "", None)]
    for name, seconds in found.items():
        ratio = seconds / bare
        target, is_reached = ("<= 1.5", ratio <= 1.5) if name == "rlrun version" else ("", None)
        rows.append(Row(name, "%.1f ms  %.2f x" % (seconds * 1000, ratio), target, is_reached))
    return rows


def bench_probe(toy: str) -> List[Row]:
    """`probe` and its process part on a large table, against pgrep and a shell pipeline."""
    def time_part() -> float:
        done = subprocess.run([sys.executable, "-I", "-c", PROCESS_PART, PYZ], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              check=True)
        return float(done.stdout.split()[0])

    sleeps = spawn_sleeps(PROCESSES)
    try:
        found = measure({
            "pgrep": lambda: run_quietly(["pgrep", "-af", "sleep"], toy), "part": time_part,
            "probe": lambda: run_quietly(rlrun("probe"), toy),
            "pipeline": lambda: run_quietly(["bash", "-c", PIPELINE], toy)})
    finally:
        end_group(sleeps)
    ratio = found["part"] / found["pgrep"]
    return [Row("pgrep -af sleep, %d processes" % PROCESSES, "%.0f ms" % (found["pgrep"] * 1000), "", None),
            Row("process part of probe", "%.0f ms  %.2f x pgrep" % (found["part"] * 1000, ratio), "<= 2", ratio <= 2),
            Row("rlrun probe, whole", "%.0f ms  %.2f x pgrep" % (
                found["probe"] * 1000, found["probe"] / found["pgrep"]), "", None),
            Row("shell pipeline, same facts", "%.0f ms; probe %.2f x of it" % (
                found["pipeline"] * 1000, found["probe"] / found["pipeline"]), "", None)]


def bench_check(toy: str) -> List[Row]:
    """`check` against the runner's dry run that it waits for."""
    found = measure({"dry run": lambda: run_quietly(["bash", "scripts/train/train.sh", "--dry-run", CONFIG], toy),
                     "check": lambda: run_quietly(rlrun("check", CONFIG), toy)})
    share, allowed = found["check"] - found["dry run"], 0.25 + 0.1 * found["dry run"]
    return [Row("dry run of the toy's runner", "%.0f ms" % (found["dry run"] * 1000), "", None),
            Row("rlrun check, beyond the dry run", "%.0f ms" % (share * 1000), "<= %.0f ms" % (allowed * 1000), share <= allowed)]


def bench_memory(toy: str) -> List[Row]:
    """Peak memory of `check` and of a `run` that launches, and the size of the file."""
    checked = measure_memory(rlrun("check", CONFIG), toy)
    rows = [_make_memory_row("rlrun check", checked)]
    digest = read_digest(toy)
    if digest:
        rows.append(_make_memory_row("rlrun run", measure_memory(
            rlrun("run", CONFIG, "--confirm", digest, "--board", "leave"), toy)))
        stop_runs(toy)
    else:
        rows.append(Row("peak memory of rlrun run", "not measured: something blocks a launch here", "< 30 MB", None))
    size = os.stat(PYZ).st_size
    return rows + [Row("size of rlrun.pyz", "%.0f KB" % (size / 1000), "< 400 KB", size < 400000)]


WAIT_PORT = 6379  # of the toy's plan
LEAST_LOOK_TICKS = 4  # a look at 3,000 processes takes more; what lies between two looks takes less
WAIT_LIMIT_SECONDS = 300.0


def bench_wait(toy: str) -> List[Row]:
    """The CPU time of a `run --wait-free` at its default pace on a large table: from the end of one whole look to the end of
    the next, its programs included."""
    sleeps = spawn_sleeps(PROCESSES)
    held = socket.socket()
    waiting = None
    try:
        try:
            held.bind(("127.0.0.1", WAIT_PORT))
            held.listen(1)
        except OSError:  # somebody else's is as good
            pass
        words = ("--confirm", read_digest(toy, True), "--again", "--board", "leave", "--wait-free", "1h")
        waiting = subprocess.Popen(rlrun("run", CONFIG, *words), cwd=toy, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE)
        assert waiting.stderr is not None
        line = waiting.stderr.readline()
        if not line.startswith(b"waiting ("):
            return [Row("run --wait-free", "not measured: %s" % line.decode("utf-8", "replace").strip(), "< 0.5 %", None)]
        await_look(waiting.pid)
        began, before = time.monotonic(), read_ticks(waiting.pid)
        await_look(waiting.pid)
        seconds = time.monotonic() - began
        share = (read_ticks(waiting.pid) - before) / os.sysconf("SC_CLK_TCK") / seconds
    finally:
        if waiting:
            waiting.send_signal(signal.SIGINT)
            waiting.communicate()
        held.close()
        end_group(sleeps)
    return [Row("run --wait-free, %d processes" % PROCESSES, "%.2f %% of one core, a look every %.0f s" % (share * 100, seconds),
                "< 0.5 %", share < 0.005)]


def read_ticks(pid: int) -> int:
    """utime, stime, cutime and cstime of a process, in clock ticks."""
    with open("/proc/%d/stat" % pid, "rb") as file:
        return sum(int(word) for word in file.read().rpartition(b")")[2].split()[11:15])


def await_look(pid: int) -> None:
    """Returns when the process has done some work and rests again."""
    ends = time.monotonic() + WAIT_LIMIT_SECONDS
    rested = last = read_ticks(pid)
    while time.monotonic() < ends:
        time.sleep(0.5)
        now = read_ticks(pid)
        if now == last and now - rested >= LEAST_LOOK_TICKS:
            return
        if now == last:
            rested = now
        last = now
    raise RuntimeError("no look within %.0f s" % WAIT_LIMIT_SECONDS)


LOG_SIZES = (("2 MB", 2 << 20), ("200 MB", 200 << 20), ("2 GB", 2 << 30))
LOG_ROUNDS = 5


def write_log(path: str, size: int) -> None:
    """A trainer's log of this size: a step line of some 3 KB after each 12 KB of what workers say meanwhile, as a run of
    several hundred trials a step prints it."""
    noise = b"(AgentLoopWorker pid=1234, ip=10.0.0.1) INFO 12:00:01 trial %d finished reward=0.0 elapsed=123s tokens=4096\n"
    metrics = b" - ".join(b"metric/name_%d/mean:0.123456" % number for number in range(90))
    line = (b"\x1b[36m(TaskRunner pid=123)\x1b[0m step:%d - training/global_step:%d - actor/lr:1e-06 - actor/grad_norm:0.31 - "
            b"critic/rewards/mean:0.2 - num_turns/mean:31.0 - timing_s/step:12.5 - " + metrics + b"\n")
    with open(path, "wb") as file:
        step = written = 0
        while written < size:
            step += 1
            written += file.write(b"".join([noise % (step * 100 + number) for number in range(100)]) + line % (step, step))


def bench_status(toy: str) -> List[Row]:
    """`status` on logs of three sizes against itself, and on the largest against a grep for its last step."""
    folder = os.path.dirname(toy)
    logs = {name: os.path.join(folder, "log_%d.log" % size) for name, size in LOG_SIZES}
    try:
        for name, size in LOG_SIZES:
            write_log(logs[name], size)
        largest = logs[LOG_SIZES[-1][0]]
        script = "grep -oE 'step:[0-9]+ ' %s | tail -1" % largest
        actions = {name: lambda path=path: run_quietly(rlrun("status", path), toy)  # type: ignore[misc]
                   for name, path in logs.items()}
        actions["grep"] = lambda: run_quietly(["bash", "-c", script], toy)
        actions[""] = lambda: run_quietly([sys.executable, "-c", "pass"], toy)
        found = measure(actions, LOG_ROUNDS)
        peak = measure_memory(rlrun("status", largest), toy)[0] * 1024 / 1e6
    finally:
        for path in logs.values():
            if os.path.exists(path):
                os.unlink(path)
    first, last = found[LOG_SIZES[0][0]], found[LOG_SIZES[-1][0]]
    rows = [Row("rlrun status, a log of %s" % name, "%.0f ms  %.2f x that of %s" % (
        found[name] * 1000, found[name] / first, LOG_SIZES[0][0]), "<= 1.3" if name == LOG_SIZES[-1][0] else "",
        last / first <= 1.3 if name == LOG_SIZES[-1][0] else None) for name, _ in LOG_SIZES]
    faster = found["grep"] / last
    rows.append(Row("grep for the last step in 2 GB", "%.0f ms; status is %.1f x as fast" % (found["grep"] * 1000, faster),
                    ">= 20", faster >= 20))
    rows.append(Row("status of 2 GB beyond Python's own start", "%.0f ms; the grep takes %.0f x that" % (
        (last - found[""]) * 1000, found["grep"] / max(last - found[""], 1e-6)), "", None))
    rows.append(Row("peak memory of rlrun status on 2 GB", "%.1f MB" % peak, "< 40 MB", peak < 40))
    return rows


RECORDS = 1000
HOSTS = (2, 1000)
RANKS = 4096


def bench_scale(toy: str) -> List[Row]:
    """A checkout with a thousand recorded launches, a list of a thousand hosts, a run with the logs of thousands of ranks: each
    against the same with few."""
    records, run = os.path.join(toy, "logs", "rlrun"), os.path.join(os.path.dirname(toy), "ranks")
    rounds = LOG_ROUNDS
    few = {"runs": lambda: run_quietly(rlrun("runs"), toy), "check": lambda: run_quietly(rlrun("check", CONFIG), toy)}
    before = measure(few, rounds)
    for number in range(RECORDS):
        folder = os.path.join(records, "20200101-%06d-train-demo" % number)
        os.makedirs(folder)
        seconds = 1577836800.0 + number
        for name, data in (
                ("record.json", {
                    "id": os.path.basename(folder), "digest": "%08x" % number, "kind": "train", "config": CONFIG, "stack": "lego",
                    "root": toy, "time_seconds": seconds, "state": "launched", "runner": {"pid": 1 << 22, "start_ticks": 1},
                    "boot_id": "x", "train_log": ""}),
                ("exit.json", {"status": 0, "duration_seconds": 60.0, "time_seconds": seconds + 60})):
            with open(os.path.join(folder, name), "w") as out:
                json.dump(data, out)
    after = measure(few, rounds)
    rows = [_make_scale_row("rlrun %s, %d recorded launches more" % (name, RECORDS), after[name], before[name]) for name in few]
    hosts = measure({count: lambda count=count: run_quietly(  # type: ignore[misc]
        rlrun("nodes", "two_nodes", "--hosts", "n[0001-%04d]" % count), toy) for count in HOSTS}, rounds)
    rows.append(_make_scale_row("rlrun nodes, %d hosts, against %d" % (HOSTS[1], HOSTS[0]), hosts[HOSTS[1]], hosts[HOSTS[0]]))
    found = {}
    for count in (1, RANKS):
        for rank in range(count):
            folder = os.path.join(run, "logs", "attempt_1", "trainer", "torchrun", "x", "attempt_0", str(rank))
            os.makedirs(folder, exist_ok=True)
            for name in ("stdout.log", "stderr.log"):
                with open(os.path.join(folder, name), "w") as out:
                    out.write("12:00:00  SUCCESS  Step 1 | Time: 3.30s | Loss: 0.1234\n" * 9)
        with open(os.path.join(run, "logs", "attempt_1", "trainer.log"), "w") as out:
            out.write("12:00:00  SUCCESS  Step 1 | Time: 3.30s | Loss: 0.1234\n" * 9)
        found[count] = measure({word: lambda word=word: run_quietly(rlrun(word, run), toy)  # type: ignore[misc]
                                for word in ("status", "logs")}, rounds)
    return rows + [_make_scale_row("rlrun %s, logs of %d ranks, against 1" % (word, RANKS), found[RANKS][word], found[1][word])
                   for word in ("status", "logs")]


def _make_scale_row(what: str, many: float, few: float) -> Row:
    return Row(what, "%.0f ms  %.2f x" % (many * 1000, many / few), "< 1 s more", many - few < 1)


def _make_memory_row(what: str, peaks: Tuple[int, int]) -> Row:
    own, whole = (kib * 1024 / 1e6 for kib in peaks)
    return Row("peak memory of %s" % what, "%.1f MB  (with its children's: %.1f)" % (own, whole), "< 30 MB", own < 30)


def read_digest(toy: str, is_blocked: bool = False) -> str:
    """The plan's digest, "" where a launch is blocked, unless that `is_blocked` is expected."""
    done = subprocess.run(rlrun("check", CONFIG, "--json"), cwd=toy, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL)
    report = json.loads(done.stdout.decode("utf-8"))
    return str(report["digest"]) if is_blocked or report.get("verdict") == "YES" else ""


def stop_runs(toy: str) -> None:
    """Ends the runs that this bench launched, by their own group; they would end by themselves in some seconds."""
    done = subprocess.run(rlrun("runs", "--json"), cwd=toy, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    for row in json.loads(done.stdout.decode("utf-8"))["runs"]:
        if row["state"] == "running":
            try:
                os.killpg(int(row["runner"]["pid"]), signal.SIGINT)
            except OSError:
                pass


def print_report(rows: Sequence[Row], load: float) -> None:
    """The table, at once: nothing of it disturbs what is measured. `load`: of this machine before the bench."""
    marks = {True: "reached", False: "MISSED", None: ""}
    widths = [max(len(row.what) for row in rows), max(len(row.value) for row in rows), max(len(row.target) for row in rows)]
    print("Python %d.%d.%d (%s), %d CPUs, load %.1f before, medians of %d" % (sys.version_info[:3] + (
        sys.executable, os.cpu_count() or 0, load, ROUNDS)))
    for row in rows:
        print("  ".join((row.what.ljust(widths[0]), row.value.ljust(widths[1]), row.target.ljust(widths[2]),
                         marks[row.is_reached])).rstrip())


def can_box() -> bool:
    """Whether a process table of its own can be had."""
    return os.geteuid() == 0 and shutil.which("unshare") is not None and subprocess.run(
        BOX + ["true"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def main() -> int:
    """Measures and prints. Needs dist/rlrun.pyz, which `make bench` has built."""
    if not os.environ.get(INSIDE) and can_box():
        subprocess.run(BOX + [sys.executable, os.path.abspath(__file__)], env=dict(os.environ, **{INSIDE: "1"}))
        return 0
    if not os.path.isfile(PYZ):
        print("no %s: run `make build` first" % PYZ)
        return 0
    load = os.getloadavg()[0]
    folder = tempfile.mkdtemp(prefix="rlrun-bench-")
    try:
        toy = os.path.join(folder, "toy")
        shutil.copytree(TOY, toy)
        rows = []  # type: List[Row]
        for part in (bench_startup, bench_probe, bench_check, bench_memory, bench_status, bench_wait, bench_scale):
            try:
                rows += part(toy)
            except Exception as error:  # a report of the rest is worth more than none
                rows.append(Row(part.__name__, "not measured: %s: %s" % (type(error).__name__, error), "", None))
        print_report(rows, load)
    finally:
        time.sleep(0.5)  # the run that was stopped writes its last record
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
