"""`rlrun logs`: the log that matters, its last lines, from a step on, and all that comes (L5, L7, L17)."""

import json
import os
import pty
import resource
import signal
import subprocess
import sys
from typing import NamedTuple

import pytest

from . import box as b

TRAINER = "\x1b[32m12:00:%02d\x1b[0m  SUCCESS  Step %d |   3.21s | Loss 0.0123 | Entropy 0.4567 | LR 3.00e-06\n"
SECRET = "not-a-real-password-7777"


class Follower(NamedTuple):
    """`rlrun logs -f` under way; what it wrote goes to files."""

    process: "subprocess.Popen[bytes]"
    out: str
    err: str


def make_run(folder, steps=99, attempt=1):
    """A run directory with three logs, as a run of which nothing else is known."""
    logs = folder / "run" / "logs" / ("attempt_%d" % attempt)
    (logs / "envs" / "train").mkdir(parents=True)
    (logs / "trainer.log").write_text("".join(TRAINER % (step % 60, step) for step in range(1, steps + 1)))
    (logs / "orchestrator.log").write_text("".join("12:00:00  SUCCESS  Step %d | 3.30s | Reward 0.5\n" % step for step in (1, 2)))
    (logs / "envs" / "train" / "reverse-text.log").write_text("12:00:00  INFO  env of letters\n")
    return folder / "run", logs


def list_steps(text):
    return [int(line.split("Step ")[1].split()[0]) for line in text.splitlines() if "Step " in line]


@pytest.fixture
def follow(quick_pyz, clean_env, tmp_path):
    """follow(words…) -> Follower; whatever is left of them is ended with the test."""
    started = []

    def start(*words, out="", python=sys.executable, pyz=quick_pyz, env=None):
        follower = Follower(None, out or str(tmp_path / ("out%d" % len(started))), str(tmp_path / ("err%d" % len(started))))
        with open(follower.out, "ab") as to, open(follower.err, "ab") as errors:
            process = subprocess.Popen([python, pyz, "logs"] + [str(word) for word in words] + ["-f"], stdin=subprocess.DEVNULL,
                                       stdout=to, stderr=errors, env=dict(clean_env, **(env or {})), cwd=str(tmp_path))
        started.append(follower._replace(process=process))
        return started[-1]
    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait()


def wait_for_text(path, text):
    return b.wait_for(lambda: text in b.read(path), "%r in %r" % (text, b.read(path)[-2000:]))


def leave(follower):
    follower.process.send_signal(signal.SIGINT)
    assert follower.process.wait(60) == 0
    return b.read(follower.err)


# --- what there is


def test_the_main_log_and_its_path(run_pyz, tmp_path, edge_python):
    run, logs = make_run(tmp_path)
    done = run_pyz(["logs", run], python=edge_python)
    assert done.returncode == 0 and list_steps(done.stdout) == list(range(60, 100)) and "\x1b" not in done.stdout
    assert "trainer log of run: %s" % (logs / "trainer.log") in done.stderr
    done = run_pyz(["logs", logs / "orchestrator.log", "-n", "1", "-q"], python=edge_python)
    assert done.returncode == 0 and done.stderr == "" and list_steps(done.stdout) == [2]
    assert run_pyz(["logs", run, "-n", "0"], python=edge_python).stdout == ""


@pytest.mark.parametrize("words, expected", [
    (["RUN", "--which", "orchestrator"], "orchestrator"), (["--which", "orchestrator", "RUN"], "orchestrator"),
    (["RUN", "--which", "env", "reverse-text"], "reverse-text"), (["--which", "env train reverse-text", "RUN"], "reverse-text"),
    (["--which", "env", "reverse-text", "RUN"], "reverse-text")])
def test_which(run_pyz, tmp_path, words, expected):
    run, _ = make_run(tmp_path)
    done = run_pyz(["logs"] + [run if word == "RUN" else word for word in words])
    assert done.returncode == 0 and expected + ".log" in done.stderr
    assert done.stdout.count("\n") == {"orchestrator": 2, "reverse-text": 1}[expected]


@pytest.mark.parametrize("words, told", [
    (["--which", "vllm"], "no log called 'vllm'"), (["-f", "--json"], "do not go together"), (["-n", "-1"], "from 0 on"),
    (["-n", "x"], "invalid int"), (["--since", "3", "-n", "3"], "do not go together"),
    (["--since", "100"], "it holds steps 1 to 99"), (["--since", "1", "--which", "env", "reverse-text"], "tells no steps"),
    (["--which", "trainer", "a", "b"], "too many words")])
def test_what_is_refused(run_pyz, tmp_path, words, told):
    run, logs = make_run(tmp_path)
    done = run_pyz(["logs", run] + words)
    assert done.returncode == 2 and told in done.stdout + done.stderr, done.stderr
    if "vllm" in words:
        assert "trainer       " in done.stderr.replace("trainer ", "trainer  ") and str(logs / "orchestrator.log") in done.stderr
        shape = json.loads(run_pyz(["logs", run, "--json"] + words).stdout)
        assert shape["exit"] == 2 and sorted(shape["logs"]) == ["env train reverse-text", "orchestrator", "trainer"]


def test_from_a_step_on_and_as_json(run_pyz, tmp_path):
    run, logs = make_run(tmp_path)
    assert list_steps(run_pyz(["logs", run, "--since", "42"]).stdout) == list(range(42, 100))
    shape = json.loads(run_pyz(["logs", run, "--since", "98", "--json"]).stdout)
    assert (shape["schema"], shape["command"], shape["log"], shape["path"]) == (1, "logs", "trainer", str(logs / "trainer.log"))
    assert list_steps("\n".join(shape["lines"])) == [98, 99] and shape["run"]["name"] == "run" and not shape["is_cut"]
    assert shape["logs"]["trainer"] == {"path": shape["path"], "exists": True, "bytes": os.path.getsize(shape["path"])}


def test_a_log_that_can_not_be_read(run_pyz, tmp_path):
    run, logs = make_run(tmp_path)
    os.unlink(str(logs / "orchestrator.log"))
    os.mkfifo(str(logs / "orchestrator.log"))
    done = run_pyz(["logs", run, "--which", "orchestrator"])
    assert done.returncode == 2 and "no log called" in done.stderr  # what is no file is none of its logs
    (logs / "trainer.log").write_text("")
    done = run_pyz(["logs", run])
    assert done.returncode == 0 and done.stdout == ""


def test_what_a_log_may_hold(run_pyz, tmp_path, clean_env):
    run, logs = make_run(tmp_path)
    clean_env["DB_PASSWORD"] = SECRET
    bar = "".join("Training: %3d%%|\u2588\u258e | %d/100\r" % (number, number) for number in range(100))
    with open(str(logs / "trainer.log"), "wb") as out:
        out.write(b"\x1b[31mred\x1b[0m \x1b]0;title\x07\x07bell \xff\xfe\n" + bar.encode() + b"step:3 - x:1\n\0\0\0nuls\0\n"
                  + b"password " + SECRET.encode() + b"\n" + b"x" * (1 << 20) + b"\nlast, without an end")
    done = run_pyz(["logs", run])
    lines = done.stdout.split("\n")
    assert lines[:4] == ["red \\x07bell \ufffd\ufffd", "step:3 - x:1", "nuls", "password <redacted>"]
    assert lines[4].endswith("x\u2026 (line goes on)") and len(lines[4]) < 40000 and lines[5:] == ["last, without an end", ""]
    assert run_pyz(["logs", run, "--color", "always"]).stdout.startswith("\x1b[31mred\x1b[0m \\x07bell")
    for text in (run_pyz(["logs", run, "--json"]).stdout, done.stderr):
        assert SECRET not in text
    clean_env["LC_ALL"] = "C"
    done = run_pyz(["logs", run])
    assert done.returncode == 0 and "last, without an end" in done.stdout


def test_a_huge_log_in_little_memory(quick_pyz, clean_env, tmp_path):
    run, logs = make_run(tmp_path)
    with open(str(logs / "trainer.log"), "wb") as out:
        out.seek(10 << 30)
        for _ in range(300):
            out.write(b"y" * (1 << 20))
        out.write(b"\n" + (TRAINER % (0, 7)).encode() * 2)
    words = [[], ["--since", "7"], ["-n", "2", "--json"]]
    for extra in words:
        done = subprocess.run([sys.executable, quick_pyz, "logs", str(run)] + extra, env=clean_env, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=120,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (200 << 20, 200 << 20)))
        assert done.returncode == 0 and done.stdout.count(b"Step 7") == (1 if extra[:1] == ["--since"] else 2), done.stderr


# --- what comes


def test_it_survives_truncation_and_rotation(follow, tmp_path, edge_python, pyz):
    run, logs = make_run(tmp_path)
    log = str(logs / "trainer.log")
    follower = follow(run, "-n", "1", python=edge_python, pyz=pyz)
    wait_for_text(follower.out, "Step 99 ")
    b.add_to_file(log, "grown\nhal")
    wait_for_text(follower.out, "grown")
    with open(log, "r+") as out:  # copytruncate
        out.truncate(0)
        out.write("after truncation\n" * 2000)
    wait_for_text(follower.out, "hal\nafter truncation\n")
    wait_for_text(follower.err, "--- it was truncated and begins anew: %s ---" % log)
    with open(log, "a") as writer:
        os.rename(log, log + ".1")
        writer.write("the end of the renamed one\n")
        writer.flush()
        wait_for_text(follower.out, "the end of the renamed one")
        writer.write("and its last word\n")
    with open(log, "w") as out:
        out.write("the new one\n")
    wait_for_text(follower.out, "and its last word\nthe new one\n")
    wait_for_text(follower.err, "--- it was replaced and begins anew: %s ---" % log)
    assert "it goes on" not in leave(follower)  # nothing is known of it but its log
    assert b.read(follower.out).count("after truncation") == 2000


def test_it_waits_for_the_log_and_goes_on_with_the_next_attempt(follow, tmp_path):
    run, logs = make_run(tmp_path)
    follower = follow(run, "--which", "inference")
    assert follower.process.wait(60) == 2
    evals = follow(run, "--which", "evals")
    trainer = follow(run, "-n", "1")
    wait_for_text(trainer.out, "Step 99 ")
    wait_for_text(evals.err, "the evals log is not there yet")
    b.add_to_file(str(logs / "trainer.log"), "the last of the first")
    _, later = make_run(tmp_path, steps=3, attempt=2)
    os.symlink("attempt_2", str(run / "logs" / "latest"))
    wait_for_text(trainer.err, "--- attempt_2 begins: %s ---" % (later / "trainer.log"))
    wait_for_text(trainer.out, "Step 3 ")
    (later / "evals.log").write_text("evals began\n")
    wait_for_text(evals.out, "evals began\n")
    text = b.read(trainer.out)
    assert list_steps(text) == [99, 1, 2, 3] and "the last of the first\n" in text
    b.add_to_file(str(later / "trainer.log"), "still followed\n")
    wait_for_text(trainer.out, "still followed")
    assert leave(trainer).count("begins") == 1 and "left" in leave(evals)


def test_an_older_attempt_is_not_left_for_a_newer_one(follow, tmp_path):
    _, first = make_run(tmp_path, steps=2)
    make_run(tmp_path, steps=9, attempt=2)
    done = follow(first / "trainer.log")
    wait_for_text(done.out, "Step 2 ")
    make_run(tmp_path, steps=9, attempt=3)
    b.add_to_file(str(first / "trainer.log"), "more\n")
    wait_for_text(done.out, "more")
    assert "begins" not in leave(done) and "Step 9 " not in b.read(done.out)


def test_a_reader_that_leaves_ends_it_quietly(quick_pyz, clean_env, tmp_path):
    run, _ = make_run(tmp_path)
    words = "%s %s logs %s -f" % (sys.executable, quick_pyz, run)
    done = subprocess.run(["bash", "-c", "%s 2>err | head -1; echo ${PIPESTATUS[0]}; %s >&-; echo $?" % (words, words)],
                          env=clean_env, cwd=str(tmp_path), stdout=subprocess.PIPE, timeout=120)
    lines = done.stdout.decode().splitlines()
    assert list_steps(lines[0]) == [60] and lines[1:] == ["0", "0"]
    assert not [line for line in b.read(str(tmp_path / "err")).splitlines() if "no process of it" not in line
                and "trainer.log" not in line]


def test_a_bar_is_shown_now_and_then_at_a_terminal(quick_pyz, clean_env, tmp_path):
    run, logs = make_run(tmp_path, steps=1)
    master, slave = pty.openpty()
    process = subprocess.Popen([sys.executable, quick_pyz, "logs", str(run), "-f"], stdin=subprocess.DEVNULL, stdout=slave,
                               stderr=slave, env=dict(clean_env, TERM="xterm"), preexec_fn=os.setsid)
    os.close(slave)
    session = b.Session(process.pid, master, bytearray())
    try:
        assert "\x1b[32m12:00:01\x1b[0m" in b.expect(session, "LR 3.00e-06")
        b.add_to_file(str(logs / "trainer.log"), "".join("loading %d/9999\r" % number for number in range(10000)))
        told = b.expect(session, "\r\x1b[Kloading 9999/9999")
        assert told.count("loading") < 10
        b.add_to_file(str(logs / "trainer.log"), "loaded\n")
        b.expect(session, "\r\x1b[Kloaded\r\n")
        process.send_signal(signal.SIGINT)
        b.expect(session, "left")
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(master)


# --- a live run, to its end


def play_life(box):
    found = b.launch(box, "demo", env=dict(b.SHORT, TOY_STEPS="12", TOY_STEP_SEC="0.4", TOY_BRINGUP_SEC="2"))
    followed = b.rlrun(box, "logs", "-f", "-n", "100000")
    over = b.rlrun(box, "logs", "-f", os.path.basename(found["record"]))
    return {"launch": found, "followed": followed, "over": over, "shape": json.loads(b.rlrun(box, "logs", "--json").out)}


def test_a_live_run_is_followed_to_its_end(play, root):
    facts = play(play_life, root)
    _, out, err = facts["followed"]
    steps = [line.split("step:")[1].split(" ")[0] for line in out.splitlines() if "step:" in line and "global_step" in line]
    assert facts["followed"][0] == 0 and steps == [str(step) for step in range(1, 13)] and "toy trainer: done" in out, err
    assert "--- the run is over (exit 0)" in err and "\r" not in out
    assert facts["over"][0] == 0 and "the run is over (exit 0)" in facts["over"][2] and "toy trainer: done" in facts["over"][1]
    assert facts["shape"]["run"]["state"] == "over" and facts["shape"]["log"] == "train"


def play_failure(box):
    b.launch(box, "demo", env=dict(b.SHORT, TOY_STEPS="30", TOY_STEP_SEC="0.2", TOY_FAIL_AT="25"))
    followed = b.rlrun(box, "logs", "-f")
    return {"followed": followed, "after": b.rlrun(box, "logs", "-n", "3")}


def test_a_run_that_fails_is_followed_to_its_end(play, root):
    facts = play(play_failure, root)
    code, out, err = facts["followed"]
    assert code == 0 and "RuntimeError: toy failure after step 25" in out and "the run is over (exit 1)" in err
    assert facts["after"][0] == 0 and "first error: " in facts["after"][2] and "toy failure after step 25" in facts["after"][2]


def play_by_hand(box):
    command = ["bash", "scripts/train/train.sh", "scripts/train/configs/demo.env"]
    run = subprocess.Popen(command, cwd=box.root, env=b.make_env(box, b.LONG), stdin=subprocess.DEVNULL, start_new_session=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    folder = os.path.join(box.root, "logs")
    b.wait_for(lambda: any("step:2 " in b.read(os.path.join(folder, name)) for name in (
        os.listdir(folder) if os.path.isdir(folder) else ())), "its second step")
    out, err = os.path.join(box.folder, "out"), os.path.join(box.folder, "err")
    followers = []
    for place in (0, 1):
        with open(out + str(place), "wb") as to, open(err + str(place), "wb") as errors:
            followers.append(subprocess.Popen([box.python, box.pyz, "logs", "-f"], cwd=box.root, env=box.env, stdout=to,
                                              stderr=errors, stdin=subprocess.DEVNULL))
    for place in (0, 1):
        b.wait_for(lambda place=place: "step:4 " in b.read(out + str(place)), "what comes: %s" % b.read(err + str(place)))
    followers[0].send_signal(signal.SIGINT)
    left = followers[0].wait(60)
    alive = run.poll() is None
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    return {"left": left, "alive": alive, "err": b.read(err + "0"), "ended": followers[1].wait(60), "end": b.read(err + "1")}


def test_a_run_started_by_hand_is_left_alone_and_its_end_is_seen(play, root):
    facts = play(play_by_hand, root)
    assert facts["left"] == 0 and facts["alive"] and "left: the run was not touched, it goes on" in facts["err"]
    assert facts["ended"] == 0 and "--- the run is over (its exit was not recorded)" in facts["end"]
