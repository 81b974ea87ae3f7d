"""Being told: which commands are taken, what a program gets and how it is bounded, what is told of a run by its logs, and that
nothing is imported for it after the fork."""
import json
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest
from steps.made_runs import prime_step, step, steps
from steps.test_find_run import GONE, make_record

from rlrun.errors import OperatorError
from rlrun.host import procs
from rlrun.steps import notify, records, tell

ROOT = Path(__file__).resolve().parent.parent.parent
RECORDED = ROOT / "tests" / "recorded"
SECRET = "q7Xp2mZr8sLw"
ENDED = {"status": 1, "signal": None, "duration_seconds": 125.0, "time_seconds": 1e9}


def make_order(tmp_path, argv, record="", **environ):
    return tell.Order(tuple(argv), dict({"PATH": "/usr/bin:/bin", "KEPT": str(tmp_path)}, **environ), str(tmp_path),
                      record or str(tmp_path / "record"), (SECRET,))


def make_event(**given):
    return tell.Event("gate", "passed", "demo (train): the gates are passed", "demo", "train", "/x.log")._replace(**given)


def read_kept(order):
    return records.read_notified(order.record)


@pytest.fixture(autouse=True)
def turn(monkeypatch):
    """Each test's own: whoever tells of the end keeps it."""
    monkeypatch.setattr(tell, "_TURN", threading.RLock())


# ---- the command

@pytest.fixture
def program(tmp_path):
    path = tmp_path / "a program"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_words_are_split_and_the_program_is_found_once(tmp_path, program, monkeypatch):
    environ = {"PATH": str(tmp_path)}
    monkeypatch.chdir(tmp_path)
    for words in ("'a program' x 'y z'", "'./a program' x 'y z'", '"%s" x "y z"' % program):
        assert notify.prepare(words, False, environ) == (program, "x", "y z")
    assert notify.prepare("'a program' '$x | y' \"it's; 5 > 3\" 50\\% a~b", False, environ)[1:] == (
        "$x | y", "it's; 5 > 3", "50%", "a~b")
    assert notify.prepare("a | b && c", True, environ) == ("/bin/sh", "-c", "a | b && c")


@pytest.mark.parametrize("command, is_shell, words", [
    ("", True, "--notify-shell goes with"), ("  ", False, "names no program"), ("'' x", False, "names no program"),
    ("a 'b", False, "no closing quotation"), ("no-such x", False, "no program no-such on PATH"),
    ("/no/such x", False, "there is no"), ("./data", False, "not executable"), ("'a program' | mail", False, "| means"),
    ("'a program' && x", False, "& means"),
    ("'a program' >x", False, "> means"), ("'a program' $X", False, "$ means"), ("'a program' \"$X\"", False, "$ means"),
    ("'a program' \"`x`\"", False, "` means"), ("~/x y", False, "~ means"), ("a; b", False, "; means"),
    ("a --token=q7Xp2mZr8sLw | b", False, "<redacted>")])
def test_what_can_not_be_meant_is_refused_before_the_launch(tmp_path, program, monkeypatch, command, is_shell, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").write_text("")
    with pytest.raises(OperatorError) as caught:
        notify.prepare(command, is_shell, {"PATH": str(tmp_path)})
    assert words in caught.value.message and caught.value.code == 2 and caught.value.hint and SECRET not in caught.value.message


# ---- one notification

def test_a_program_is_bounded_and_its_last_words_are_kept_without_a_secret(tmp_path):
    (tmp_path / "record").mkdir()
    order = make_order(tmp_path, ["/bin/sh", "-c", "sleep 1000 & echo $! >pid; echo x$HF_TOKEN; sleep 1000"], HF_TOKEN=SECRET)
    tell.send(order, make_event(), 0.5)
    line = "yes 0123456789 | head -c 100000; printf '\\033[1mlast\\007 %s\\n' " + SECRET
    loud = order._replace(argv=("/bin/sh", "-c", line))
    tell.send(loud, make_event(event="stalled"))
    tell.send(order._replace(argv=("/no/such",)), make_event(event="ended"))
    first, second, third = read_kept(order)
    assert (first["how"], first["sent"], first["output"]) == ("timeout", False, "x<redacted>"), first
    assert "no end within" in first["words"]
    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 30
    while procs.read_identity(pid) and not procs.is_dead(procs.read_processes()[pid]) and time.monotonic() < deadline:
        time.sleep(0.01)
    found = procs.read_processes().get(pid)
    assert found is None or procs.is_dead(found)
    assert second["sent"] and second["output"].endswith("89last\\x07 <redacted>") and len(second["output"]) <= 2048
    assert (third["how"], third["sent"]) == ("unstartable", False) and "No such file" in third["words"]
    text = "".join(path.read_text() for path in (tmp_path / "record").iterdir())
    assert SECRET not in text and [one["event"] for one in read_kept(order)] == ["gate", "stalled", "ended"]


def test_a_mailer_that_hands_over_to_a_child_and_ends_is_not_cut_short(tmp_path):
    """As mailx does with sendmail: the child holds the pipe, and the mail is written when its parent has ended well."""
    (tmp_path / "record").mkdir()
    os.mkfifo(str(tmp_path / "gate"))
    order = make_order(tmp_path, ["/bin/sh", "-c", "{ read x <gate; echo mail >mail; } & echo handed over"])
    tell.send(order, make_event())
    (entry,) = read_kept(order)
    assert (entry["how"], entry["code"], entry["output"]) == ("ended", 0, "handed over")
    gate = os.open(str(tmp_path / "gate"), os.O_RDWR)  # whether the child is there to read it or not
    os.write(gate, b"x\n")
    deadline = time.monotonic() + 10
    while not (tmp_path / "mail").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.close(gate)
    assert (tmp_path / "mail").exists()


def test_two_threads_lose_nothing_of_each_other_and_nothing_is_sent_behind_the_end(tmp_path):
    (tmp_path / "record").mkdir()
    order = make_order(tmp_path, ["/bin/sh", "-c", 'echo "$RLRUN_EVENT" >>order; [ "$RLRUN_EVENT" != gate ] || read x <go'])
    os.mkfifo(str(tmp_path / "go"))
    watch = threading.Thread(target=tell.send, args=(order, make_event()), daemon=True)
    watch.start()
    deadline = time.monotonic() + 30
    while not (tmp_path / "order").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    go = threading.Thread(target=lambda: open(str(tmp_path / "go"), "w").close(), daemon=True)
    go.start()
    assert tell.take_turn()  # as tell_end does
    assert [one["event"] for one in read_kept(order)] == ["gate"]
    late = threading.Thread(target=tell.send, args=(order, make_event(event="stalled")), daemon=True)
    late.start()
    late.join(0.3)
    tell.send(order, make_event(event="ended"))
    assert [one["event"] for one in read_kept(order)] == ["gate", "ended"] and late.is_alive()
    tell._TURN.release()
    late.join(30)
    assert (tmp_path / "order").read_text().split() == ["gate", "ended", "stalled"]


def test_a_record_that_can_not_be_written_is_no_reason_not_to_tell(tmp_path):
    order = make_order(tmp_path, ["/bin/sh", "-c", "cat >told"], record=str(tmp_path / "gone"))
    tell.send(order, make_event(words="a\nb \x1b[1m %s" % SECRET, step="3"))
    told = json.loads((tmp_path / "told").read_text())
    assert (told["words"], told["step"], told["status"], told["record"]) == ("a\\nb \\x1b[1m <redacted>", 3, None, order.record)


def test_words_reach_the_program_in_the_c_locale_of_the_oldest_python(tmp_path, edge_python):
    (tmp_path / "record").mkdir()
    script = ("import sys; sys.path.insert(0, sys.argv[1]); from rlrun.steps import tell; "
              "order = tell.Order(('/bin/sh', '-c', 'printf %s \"$RLRUN_WORDS\" >words'), {'PATH': '/usr/bin:/bin'}, "
              "sys.argv[2], sys.argv[2] + '/record', ()); "
              "tell.send(order, tell.Event('gate', 'passed', 'caf\\xe9 \\u2026 %s' % ('x' * 700), 'n', 'train', ''))")
    subprocess.run([edge_python, "-c", script, str(ROOT), str(tmp_path)], check=True, cwd="/",
                   env={"LC_ALL": "C", "PATH": "/usr/bin:/bin", "PYTHONCOERCECLOCALE": "0", "PYTHONDONTWRITEBYTECODE": "1"})
    words = (tmp_path / "words").read_bytes().decode("utf-8")
    assert words.startswith("caf\xe9 \u2026 xxx") and words.endswith(" \u2026") and len(words) == 600


@pytest.mark.parametrize("text", ["", "[]", "{\"events\": 3}", "{\"events\": [1, [], {}, {\"event\": 3}]}", "\0", "{" * 5000])
def test_an_odd_notify_json_tells_nothing(tmp_path, text):
    folder = make_record(tmp_path, notify=["x"])
    Path(folder, "notify.json").write_text(text)
    found = records.read_record(folder)
    assert found["notified"] == [] and records.list_untold(found) == []
    assert records.tell_notified(found, {}).endswith("its keeper is gone: nobody is told any more")


def test_of_whom_it_is_said_that_nobody_is_told_any_more(tmp_path):
    assert records.tell_notified(records.read_record(make_record(tmp_path, "20260802-1-train-y")), {}) == ""
    there = records.read_record(make_record(tmp_path, notify=["x"], host="n7", boot_id="another"))
    assert records.tell_notified(there, {}) == "nothing to tell yet"


# ---- what is told

def make_run(tmp_path, text, exit_told=None, **given):
    log = tmp_path / "logs" / "demo.log"
    log.parent.mkdir(exist_ok=True)
    log.write_bytes(text if isinstance(text, bytes) else text.encode())
    given.setdefault("train_log", str(log))
    record = make_record(tmp_path, exit=exit_told, **given)
    order = make_order(tmp_path, ["/bin/sh", "-c", 'cat >"$KEPT/$RLRUN_EVENT.json"'], record=record)
    return order


def read_json(tmp_path, event):
    path = tmp_path / (event + ".json")
    return json.loads(path.read_text()) if path.exists() else None


@pytest.mark.parametrize("name, status, signal, result, words", [
    ("gpu_out_of_memory.log", 1, None, "ended badly", "out of memory on the GPU"),
    ("exit_zero_traceback.log", 0, None, "ended badly", "though the exit status is 0"),
    ("exit_zero_traceback_healthy.log", 0, None, "ended", "whether it did all its steps is not known"),
    ("", None, "SIGKILL", "ended badly", "SIGKILL"), ("", 0, None, "ended", "whether it did all its steps is not known")])
def test_the_end_is_told_as_status_judges_it(tmp_path, name, status, signal, result, words):
    order = make_run(tmp_path, (RECORDED / "endings" / name).read_bytes() if name else b"nothing\n")
    notify.tell_end(order, dict(ENDED, status=status, signal=signal))  # exit.json could not be written
    told = read_json(tmp_path, "ended")
    assert (told["result"], told["status"], told["signal"], told["name"]) == (result, status, signal, "demo"), told
    assert any(one in told["words"] for one in words.split("|")) and ", after 2m" in told["words"], told
    assert "\n" not in told["words"] and ("first error: " in told["words"]) == (result == "ended badly" and bool(name))


def test_the_end_is_told_though_its_logs_or_its_record_can_not_be_judged(tmp_path, monkeypatch):
    order = make_run(tmp_path, b"x\n")

    def fail(*words):
        raise RuntimeError("a bug")
    with monkeypatch.context() as patch:
        patch.setattr(notify.gather, "read_evidence", fail)
        with pytest.raises(RuntimeError):
            notify.tell_end(order, ENDED)
    told = read_json(tmp_path, "ended")
    assert (told["result"], told["status"]) == ("ended badly", 1)
    assert "exit status 1; its logs could not be judged (RuntimeError)" in told["words"]
    shutil.rmtree(order.record)
    notify.tell_end(order, dict(ENDED, status=0))
    assert read_json(tmp_path, "ended")["result"] == "unknown"
    got = []
    other = threading.Thread(target=lambda: got.append(tell._TURN.acquire(blocking=False)))
    other.start()
    other.join()
    assert got == [False]  # the watch, in its thread, tells nothing any more


def test_what_was_handed_to_slurm_has_not_ended_well(tmp_path):
    log = tmp_path / "logs" / "launch.log"
    order = make_run(tmp_path, b"", stack="prime", kind="rl", is_submission=True, launch_log=str(log), train_log="",
                     experiment="")
    log.write_text("Submitted batch job 4242\n")
    notify.watch(order, lambda: False)  # nothing to wait for
    notify.tell_end(order, dict(ENDED, status=0))
    told = read_json(tmp_path, "ended")
    assert told["result"] == "unknown" and "Slurm as job 4242" in told["words"] and read_json(tmp_path, "gate") is None


def make_live(tmp_path, text, **given):
    """A run whose runner is this test."""
    own = procs.read_identity(os.getpid())
    runner = {"pid": own.pid, "start_ticks": own.start_ticks, "pgid": own.pid, "keeper": GONE}
    return make_run(tmp_path, text, runner=runner, **given)


def test_gate_and_stall_are_each_told_once(tmp_path, monkeypatch):
    monkeypatch.setattr(notify.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(notify, "_COST_TIMES", 0.0)
    log = tmp_path / "logs" / "demo.log"
    order = make_live(tmp_path, "(TaskRunner pid=7) Total training steps: 100\n")
    order = order._replace(argv=("/bin/sh", "-c", 'echo "$RLRUN_EVENT $RLRUN_RESULT $RLRUN_STEP $RLRUN_WORDS" >>"$KEPT/told"'))

    def write():
        with open(str(log), "a") as file:
            file.write(step(1, actor__lr="np.float64(0.0)") + step(2))

    def age():
        os.utime(str(log), (time.time() - 7200, time.time() - 7200))

    def told():
        return (tmp_path / "told").read_text().splitlines() if (tmp_path / "told").exists() else []

    def is_over():
        if not told():
            write() if log.stat().st_size < 100 else None
        elif len(told()) == 1:
            age()
        return False
    notify.watch(order, is_over)
    gate, stall = told()
    assert gate.startswith("gate failed 1 demo (train): gate:lr failed at step 1; gate:lr: "), gate
    assert stall.startswith("stalled stalled 2 demo (train): stalled for 2h 00m") and "its log stands still" in stall


def test_no_stall_is_told_of_a_run_that_ended_while_its_gate_was_told(tmp_path):
    """Else the keeper waits for two programs, one after the other, before it tells of the end."""
    order = make_live(tmp_path, "(TaskRunner pid=7) Total training steps: 100\n" + steps(3))
    os.utime(str(tmp_path / "logs" / "demo.log"), (time.time() - 7200, time.time() - 7200))
    notify.watch(order, lambda: (tmp_path / "gate.json").exists())
    assert read_json(tmp_path, "gate")["result"] == "passed" and read_json(tmp_path, "stalled") is None


@pytest.mark.parametrize("text, result, words", [
    (steps(3), "passed", "the gates are passed at step 1"), ("nothing\n", None, ""),
    (prime_step(1), "unknown", "not every gate can be judged at step 1: ")])
def test_of_a_run_that_is_over_what_its_gate_can_still_tell(tmp_path, text, result, words):
    given = {} if "TaskRunner" in text or result is None else {"stack": "prime", "kind": "rl", "run_dir": str(tmp_path / "run")}
    order = make_run(tmp_path, text, {"status": 1}, **given)
    if given:
        (tmp_path / "run" / "logs").mkdir(parents=True)
        (tmp_path / "run" / "logs" / "trainer.log").write_text(text)
    notify.watch(order, lambda: True)
    told = read_json(tmp_path, "gate")
    assert (told["result"] if told else None) == result and (told is None or words in told["words"]), told


# ---- after the fork

TRAPPED = """
import json, sys
sys.path.insert(0, sys.argv[1])
from rlrun.steps import notify, tell
orders = json.load(open(sys.argv[2]))
for stack in {one["stack"] for one in orders}:
    notify.import_all(stack)
class Trap:
    def find_spec(self, name, *rest):
        raise SystemExit("imported after the fork: " + name)
sys.meta_path[:] = [Trap()]
for one in orders:
    order = tell.Order(("/bin/true",), {}, "/", one["record"], ("q7X-p2 mZr8sLw",))
    notify.watch(order, lambda: True)
    notify.tell_end(order, one["result"])
"""


def test_nothing_is_imported_after_the_fork(tmp_path, edge_python):
    for stack, kind, name in (("lego", "train", "train"), ("prime", "rl", "trainer")):
        orders = []
        paths = sorted((RECORDED / "endings").glob("*.log"))[::2] + sorted((RECORDED / stack).glob("*.log"))[::4]
        for number, path in enumerate(paths):
            status = {0: 1, 1: 0, 2: None}[number % 3]
            folder = tmp_path / stack / str(number)
            (folder / "logs").mkdir(parents=True)
            shutil.copy(str(path), str(folder / "logs" / (name + ".log")))
            record = make_record(folder, "20260802-1", stack=stack, kind=kind, exit=None, experiment="" if number % 2 else "x",
                                 train_log=str(folder / "logs" / "train.log"), run_dir=str(folder), launch_log=str(path))
            orders.append({"stack": stack, "record": record, "result": dict(
                ENDED, status=status, signal="SIGKILL" if status is None else None)})
        (tmp_path / "orders").write_text(json.dumps(orders))
        done = subprocess.run([edge_python, "-c", TRAPPED, str(ROOT), str(tmp_path / "orders")], cwd="/", stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, env={"PATH": "/usr/bin:/bin", "LC_ALL": "C",
                                                             "PYTHONDONTWRITEBYTECODE": "1"})
        assert done.returncode == 0, done.stdout.decode()[-3000:]
        results = {entry["result"] for one in orders for entry in records.read_notified(one["record"])
                   if entry["event"] == "ended"}
        assert {"ended", "ended badly"} <= results and len(orders) > 20
