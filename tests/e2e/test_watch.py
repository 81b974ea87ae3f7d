"""`rlrun watch` through the pyz: redrawn at a terminal, appended elsewhere; it ends with the run, and leaving it never touches
the run."""
import fcntl
import os
import re
import signal
import struct
import subprocess
import termios

import pytest
from checkouts import add_config, add_prime_config, build_prime_checkout

from . import box as b
from . import vitals as v

HOME, CLEAR, REST = "\x1b[H", "\x1b[2J", "\x1b[K"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
LEFT = "left; the run goes on: nothing was sent to it"


@pytest.fixture
def named(root):
    add_config(root, "train", "named", v.NAMED)
    return root


def start_watch(box, *words, env=None, stdout=subprocess.PIPE):
    return subprocess.Popen([box.python, box.pyz, "watch", "--every", "1s"] + list(words), env=b.make_env(box, env), cwd=box.root,
                            stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, start_new_session=True)


def set_size(fd, lines, columns):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


def open_watch(box, lines, columns, *words):
    """At a terminal of this size that can be redrawn."""
    def before():
        set_size(1, lines, columns)
    argv = ["env", "TERM=xterm", box.python, box.pyz, "watch", "--every", "1s"] + list(words)
    return b.open_terminal(argv, b.make_env(box), box.root, before)


# --- elsewhere than at a terminal

def play_blocks(box):
    """Into a file; a log that is replaced and cut off meanwhile; the run's end."""
    out = os.path.join(box.folder, "w.out")
    run = v.start_lego(box, "one", out=os.path.join(box.folder, "one.out"))
    log = v.find_log(box, "one")
    v.await_step(log, 1)
    watch = start_watch(box, stdout=open(out, "wb"))
    b.wait_for(lambda: b.read(out).count("\n=== ") >= 1, "two looks")  # the first begins the file
    facts = {"grown": b.read(out)}
    tee = v.find_in_tree(run.pid, "tee")
    os.kill(tee, signal.SIGSTOP)
    os.truncate(log, 0)
    os.kill(tee, signal.SIGCONT)
    count = b.read(out).count("=== ")
    b.wait_for(lambda: b.read(out).count("=== ") >= count + 2, "a look at the log that was cut off")
    facts["truncated"] = b.read(out).split("=== ")[-1]
    os.kill(tee, signal.SIGSTOP)
    text = b.read(log)
    os.rename(log, log + ".old")
    b.add_to_file(log, text.strip("\0")[-3000:] + "\n")
    count = b.read(out).count("=== ")
    b.wait_for(lambda: b.read(out).count("=== ") >= count + 2, "a look at the log that was replaced")
    facts["replaced"] = b.read(out).split("=== ")[-1]
    v.end(run)
    facts["code"] = watch.wait(b.LIMIT_SECONDS)
    facts["err"] = watch.stderr.read().decode()
    facts["last"] = b.read(out).split("=== ")[-1]
    return facts


def test_elsewhere_blocks_are_appended_through_truncation_and_replacement(play, named):
    facts = play(play_blocks, named)
    assert facts["grown"].startswith("=== ") and "\x1b" not in facts["grown"]
    first, second = [block for block in facts["grown"].split("=== ") if block][:2]
    steps = [int(block.split("  stage    step ")[1].split(" ")[0]) for block in (first, second)]
    assert steps[1] > steps[0] >= 1 and "step %d of 100000" % steps[0] in first
    for name in ("truncated", "replaced"):
        assert all(words in facts[name] for words in ("rlrun status — one ", "healthy", "  stage    step ")), facts[name]
    assert facts["err"] == "" and "Traceback" not in facts["last"]
    assert facts["code"] in (0, 4), facts["last"]  # nobody recorded how it ended


# --- at a terminal

def play_screen(box):
    run = v.start_lego(box, "one", out=os.path.join(box.folder, "one.out"), env={"TOY_SICK": "pearson"})
    v.await_step(v.find_log(box, "one"), 2)
    wide = open_watch(box, 60, 200)
    facts = {"first": b.expect(wide, "Ctrl-C leaves, and the run goes on")}
    facts["second"] = b.expect(wide, "Ctrl-C leaves, and the run goes on")
    for name, lines, columns in (("narrow", 60, 80), ("small", 12, 50)):
        set_size(wide.fd, lines, columns)
        b.expect(wide, HOME)
        facts[name] = b.expect(wide, "\x1b[J")
    facts["status"] = b.finish(b.open_rlrun(box, "status", before=lambda: set_size(1, 60, 80)))
    b.send(wide, "\x03")
    facts["left"] = b.finish(wide)
    facts["lives"] = [b.is_alive(pid) for pid in v.list_tree(run.pid)]
    closed = open_watch(box, 24, 80)
    b.expect(closed, HOME)
    os.close(closed.fd)
    b.wait_for(lambda: b.reap(closed.pid), "the end of the watch whose window was closed")
    stopped = start_watch(box)
    os.read(stopped.stdout.fileno(), 4)
    stopped.stdout.close()  # `rlrun watch | head -1`
    facts["piped"] = [stopped.wait(b.LIMIT_SECONDS), stopped.stderr.read().decode()]
    before = v.count_steps(v.find_log(box, "one"))
    v.await_step(v.find_log(box, "one"), before + 1, "after all have left")
    facts["usage"] = [b.rlrun(box, "watch", *words) for words in (["--every", "often"], ["--json"])]
    v.end(run)
    return facts


def test_at_a_terminal_it_redraws_fits_the_window_and_is_left_without_a_trace(play, named):
    facts = play(play_screen, named)
    first, second = facts["first"], facts["second"]
    assert first.startswith(CLEAR + HOME + "rlrun status — one") and first.count(CLEAR) == 1 and CLEAR not in second
    assert HOME in second and REST + "\r" in second
    # what is not as it should be is seen in the lowest window too, and no line is wider than its window
    for name, height, width in (("narrow", 60, 80), ("small", 12, 50), ("status", 999, 80)):
        shown = facts[name][1] if name == "status" else facts[name].split(HOME)[-1].replace("\x1b[J", "")
        lines = _COLOUR.sub("", shown.replace(REST, "").replace("\r", "")).rstrip("\n").split("\n")
        assert len(lines) <= height and all(len(line) <= width for line in lines), (name, lines)
        for words in ("✗ recommend stopping", "pearson_corr=0.75", "r3:misaligned"):
            assert words in "\n".join(lines), (name, words, lines)
        assert ("lines more" in shown) == (name == "small"), (name, lines)
    code, rest = facts["left"]
    assert code == 0 and LEFT in rest and all(facts["lives"]) and len(facts["lives"]) >= 4
    assert facts["piped"] == [0, ""] or (facts["piped"][0] == 0 and LEFT in facts["piped"][1])
    assert all(code == 2 and err.startswith("rlrun: ") for code, _, err in facts["usage"]), facts["usage"]


# --- the end of a run that was recorded

def play_end(box, config, knobs, options):
    """Frozen until the watch has had its first look, so that it lives then."""
    launched = b.launch_words(box, config, options=options, env=dict(knobs, TOY_STEPS="30"))
    v.freeze(launched["runner"]["pid"])
    watch = start_watch(box)
    first = os.read(watch.stdout.fileno(), 65536).decode()
    v.thaw(launched["runner"]["pid"])
    out, err = watch.communicate(timeout=b.LIMIT_SECONDS)
    return {"code": watch.returncode, "out": first + out.decode(), "err": err.decode(), "status": b.rlrun(box, "status").code,
            "name": launched["experiment"]}


def judge_end(facts, code, words):
    assert (facts["code"], facts["status"], facts["err"]) == (code, code, "")
    blocks = facts["out"].split("=== ")
    assert words in blocks[-1] and words not in blocks[1] and "rlrun status — " + facts["name"] in blocks[-1], facts["out"]


def test_it_ends_with_a_run_that_ends_well(play, root):
    judge_end(play(play_end, root, config="demo", knobs=v.STEADY, options=["--board", "leave"]), 0, "✓ ended well — ")


def test_it_ends_with_a_run_that_fails(play, tmp_path):
    root = build_prime_checkout(tmp_path / "prime")
    add_prime_config(root, "steady", v.RL)
    knobs = dict(v.STEADY_RL, TOY_SICK="oom", TOY_SICK_AT="25")
    judge_end(play(play_end, root, config="steady", knobs=knobs, options=[]), 4, "✗ failed — out of memory on the GPU")
