"""Following a log: where its last lines begin, what came since, names of logs, lines that may be shown. Real files."""
import os
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlrun.errors import MACHINE, USAGE, OperatorError
from rlrun.stacks import load_health
from rlrun.steps import follow_logs as f
from rlrun.steps import follow_run
from rlrun.vitals import Target

LOGS = {"trainer": "/r/trainer.log", "orchestrator": "/r/o.log", "env train reverse-text": "/r/a.log",
        "env eval reverse-text": "/r/b.log", "env train wordle": "/r/c.log", "trainer node 1": "/r/n.log", "job 12": "/r/j.log"}
STEP = "12:00:05  SUCCESS  Step %d |   3.21s | Loss 0.0123 | Entropy 0.4567 | Grad. Norm 0.1234 | LR 3.00e-06\n"


def make_target(**given):
    values = dict(id="", name="r", stack="prime", kind="rl", root="", state="live", logs={}, launch_log="", run_dir="", user="",
                  host="", pids=(), started_seconds=None, exit=None)
    values.update(given)
    return Target(**values)


def write(path, data):
    path.write_bytes(data)
    return str(path)


def read_tail(path, count):
    """The last lines, as `logs -n` reads them."""
    stream = f.open_stream("x", path)
    stream = f.move_stream(stream, f.find_tail(stream.fd, count)[0])
    found, stream = drain(stream)
    f.close_stream(stream)
    return found + list(f.take_rest(stream))


def drain(stream):
    """(lines, stream) of all that there is; events stand between the lines."""
    found, is_more = [], True
    while is_more:
        batch = f.read_batch(stream)
        found += list(batch.lines) + ([batch.event] if batch.event else [])
        stream, is_more = batch.stream, batch.is_more
    return found, stream


# --- names


@pytest.mark.parametrize("words, run, expected", [
    ([], "", ("", "")),
    (["trainer"], "r", ("trainer", "r")),
    (["trainer", "r"], "", ("trainer", "r")),
    (["env", "wordle"], "", ("env wordle", "")),
    (["env wordle", "r"], "", ("env wordle", "r")),
    (["env", "wordle", "r"], "", ("env wordle", "r")),
    (["env", "train", "wordle"], "", ("env train wordle", "")),
    (["env", "train", "wordle", "r"], "", ("env train wordle", "r")),
    (["job", "12"], "r", ("job 12", "r")),
    (["trainer", "node", "1", "r"], "", ("trainer node 1", "r")),
])
def test_the_words_after_which_may_be_followed_by_the_run(words, run, expected):
    assert f.split_which(words, run) == expected


@pytest.mark.parametrize("words, run", [(["trainer", "a", "b"], ""), (["trainer", "a"], "b")])
def test_too_many_words_are_refused(words, run):
    with pytest.raises(OperatorError) as error:
        f.split_which(words, run)
    assert error.value.code == USAGE


@pytest.mark.parametrize("name, expected", [
    ("trainer", "trainer"), ("TRAINER", "trainer"), ("orch", "orchestrator"), ("env wordle", "env train wordle"),
    ("env eval reverse-text", "env eval reverse-text"), ("env eval reverse", "env eval reverse-text"), ("job 12", "job 12"),
    ("wordle", "env train wordle"), ("trainer node 1", "trainer node 1")])
def test_a_name_is_found(name, expected):
    assert f.pick_log(LOGS, name) == expected


@pytest.mark.parametrize("name, shown, hidden", [
    ("env reverse-text", ["/r/a.log", "/r/b.log"], ["/r/c.log"]), ("vllm", list(LOGS.values()), []),
    ("", list(LOGS.values()), [])])
def test_an_unknown_or_ambiguous_name_lists_the_logs(name, shown, hidden):
    with pytest.raises(OperatorError) as error:
        f.pick_log(LOGS, name)
    assert error.value.code == USAGE and error.value.message.count("(not there)") == len(shown)
    assert all(path in error.value.message for path in shown) and not any(path in error.value.message for path in hidden)
    assert set(error.value.shape["logs"]) == {one for one, path in LOGS.items() if path in shown}


def test_the_log_that_matters(tmp_path):
    logs = {name: str(tmp_path / name) for name in ("trainer", "orchestrator", "launch")}
    assert f.pick_default({}) == "" and f.pick_default(logs) == "trainer"
    write(tmp_path / "orchestrator", b"x")
    assert f.pick_default(logs) == "orchestrator"
    write(tmp_path / "launch", b"x")
    assert f.pick_default(logs) == "launch"
    write(tmp_path / "trainer", b"")
    assert f.pick_default(logs) == "trainer"
    assert f.describe_logs(dict(logs, gone="/nowhere"))["gone"] == {"path": "/nowhere", "exists": False, "bytes": None}
    assert f.list_logs(make_target(logs={"trainer": "/t"}, launch_log="/l")) == {"trainer": "/t", "launch": "/l"}


def test_why_a_log_is_not_shown(tmp_path):
    os.mkfifo(str(tmp_path / "pipe"))
    for name, words in (("gone", "is not there"), ("pipe", "can't be read"), ("", "can't be read")):
        error = f.refuse_missing({"trainer": str(tmp_path / name)}, "trainer")
        assert error.code == MACHINE and words in error.message, name


# --- the end of a log


@given(st.lists(st.sampled_from([b"", b"x", b"line of text", b"bar\rbar 2", "\u2588".encode()]), max_size=30), st.booleans(),
       st.integers(0, 40))
def test_the_last_lines_are_the_last_lines(tmp_path_factory, parts, has_end, count):
    path = write(tmp_path_factory.getbasetemp() / "tail.log", b"\n".join(parts) + (b"\n" if has_end else b""))
    if not has_end and parts and not parts[-1]:
        has_end, parts = True, parts[:-1]  # what is joined ends with a line's end, which the last part stands for
    expected = [b"bar 2" if part.startswith(b"bar") else part for part in parts][-count:] if count else []
    assert read_tail(path, count) == (expected or ([b""] if count and has_end and os.path.getsize(path) == 1 else []))


def test_lines_longer_than_a_piece(tmp_path):
    lines = [b"%d " % number + b"x" * 700000 for number in range(5)]
    found = read_tail(write(tmp_path / "log", b"\n".join(lines) + b"\n"), 3)
    assert [line[:2] for line in found] == [b"2 ", b"3 ", b"4 "] and {len(line) for line in found} == {len(found[0])}
    shown, _ = f.clean_lines(found, (), False)
    assert [line[:3] for line in shown] == ["2 x", "3 x", "4 x"]
    assert all(line.endswith("x" + f.GOES_ON) and len(line) == f.LINE_BYTES + 1 + len(f.GOES_ON) for line in shown)


def test_a_line_of_a_hundred_megabytes(tmp_path):
    path = write(tmp_path / "log", b"first\n")
    with open(path, "ab") as out:
        for _ in range(100):
            out.write(b"y" * (1 << 20))
        out.write(b"\nlast\n")
    stream = f.open_stream("x", path)
    assert f.find_tail(stream.fd, 1) == (os.path.getsize(path) - 5, True)
    assert f.find_tail(stream.fd, 2) == (os.path.getsize(path) - 5, False)  # not found within what is read
    lines, stream = drain(stream)
    assert [line[:5] for line in lines] == [b"first", b"yyyyy", b"last"] and max(map(len, lines)) < 40000
    with open(path, "ab") as out:
        out.write(b"z" * (70 << 20))
    offset, is_all = f.find_tail(stream.fd, 1)
    assert not is_all and os.path.getsize(path) - offset == f.LINE_BYTES
    f.close_stream(stream)


def test_a_hole_is_passed_over(tmp_path):
    path = tmp_path / "log"
    with open(str(path), "wb") as out:
        out.seek(3 << 30)
        out.write(b"one\ntwo\n\0\0three")
    assert read_tail(str(path), 40) == [b"one", b"two", b"three"] and read_tail(str(path), 1) == [b"three"]
    with open(str(path), "ab") as out:
        out.truncate((3 << 30) + (2 << 20))  # NULs behind it, as a crash of the machine leaves them
    assert read_tail(str(path), 40) == [b"one", b"two", b"three"]


# --- what comes


def test_lines_come_whole_and_bars_folded(tmp_path):
    path = tmp_path / "log"
    stream = f.open_stream("x", str(path))
    assert f.read_batch(stream).lines == () and f.measure(stream) == 0
    path.write_bytes(b"one\ntw")
    lines, stream = drain(stream)
    assert lines == [b"one"] and f.take_rest(stream) == (b"tw",) and f.find_bar(stream) == b""
    with open(str(path), "ab") as out:
        out.write(b"o\r\n\rbar 1\rbar 2\rba")
    lines, stream = drain(stream)
    assert lines == [b"two"] and f.find_bar(stream) == b"bar 2" and f.take_rest(stream) == (b"ba",)
    with open(str(path), "ab") as out:
        for number in range(200000):
            out.write(b"\rbar %d of many" % number)
    lines, stream = drain(stream)
    assert not lines and f.find_bar(stream) == b"bar 199998 of many" and len(stream.pending) < 100
    with open(str(path), "ab") as out:
        out.write(b"\rstep:3 - x:1\n")
    assert drain(stream)[0] == [b"step:3 - x:1"]
    f.close_stream(stream)


@pytest.mark.parametrize("after", [b"new\n", b"new that is longer than what was there before, by far and away\n" * 9],
                         ids=["shorter", "longer"])
def test_a_truncated_log_is_read_anew(tmp_path, after):
    path = write(tmp_path / "log", b"old line\nhal")
    stream = drain(f.open_stream("x", path))[1]
    with open(path, "r+b") as out:
        out.truncate(0)
        out.write(after)
    lines, stream = drain(stream)
    assert lines == [b"hal", "truncated"] + after.splitlines()
    f.close_stream(stream)


def test_a_writer_that_goes_on_behind_its_hole(tmp_path):
    path = write(tmp_path / "log", b"")
    with open(path, "r+b") as out:
        out.write(b"x" * 5000 + b"\n")
        out.flush()
        stream = drain(f.open_stream("x", path))[1]
        os.truncate(path, 0)
        out.write(b"after\n")
    assert drain(stream)[0] == ["truncated", b"after"]
    f.close_stream(stream)


def test_a_renamed_log_is_read_to_its_end_first(tmp_path):
    path = write(tmp_path / "log", b"one\n")
    with open(path, "ab") as out:
        stream = drain(f.open_stream("x", path))[1]
        os.rename(path, path + ".1")
        out.write(b"two\n")
        out.flush()
        write(tmp_path / "log", b"")  # as logrotate's `create`, before the writer takes notice
        lines, stream = drain(stream)
        assert lines == [b"two"]
        out.write(b"three\nfo")
        out.flush()
        lines, stream = drain(stream)
        assert lines == [b"three"]
    write(tmp_path / "log", b"new\n")
    os.unlink(path + ".1")
    lines, stream = drain(stream)
    assert lines == [b"fo", "replaced", b"new"]
    os.unlink(path)
    assert drain(stream)[0] == []
    f.close_stream(stream)


# --- what may be shown


def test_controls_bytes_and_colours():
    raw = (b"a\x1b[31mred\x1b[0m \x1b[2Kb\x1b]0;title\x07\tc\x07\xff\xe2\x80\xae", b"\x1b[1;32mgreen", b"")
    assert f.clean_lines(raw, (), False)[0] == ["ared b\tc\\x07\ufffd\\u202e", "green", ""]
    assert f.clean_lines(raw, (), True)[0] == ["a\x1b[31mred\x1b[0m b\tc\\x07\ufffd\\u202e", "\x1b[1;32mgreen\x1b[0m", ""]


SECRET = "hunter2hunter2-and-more"


@pytest.mark.parametrize("has_colour", [False, True])
def test_no_secret_is_shown(has_colour):
    raw = [b"token " + SECRET.encode(), b"\x1b[31m" + SECRET[:9].encode() + b"\x1b[0m" + SECRET[9:].encode(),
           b"WANDB_API_KEY=\x1b[1mabcdef0123456789\x1b[0m ok", b"x" * (f.LINE_BYTES - 5) + SECRET.encode() * 400,
           b"x" * (f.LINE_BYTES + 4096 - 5) + SECRET.encode() * 400]
    shown, _ = f.clean_lines([line[:f.LINE_BYTES + 4097] for line in raw], (SECRET,), has_colour)
    assert len(shown) == len(raw) and not any(SECRET[:5] in line or "abcdef" in line for line in shown)
    assert all("<redacted>" in line for line in shown[:3]) and all(line.endswith("x" + f.GOES_ON) for line in shown[3:])


def test_a_private_key_over_several_lines_and_looks(tmp_path):
    key = [b"(pid=1) -----BEGIN RSA PRIVATE KEY-----"] + [b"(pid=1) MIIEow%d" % number for number in range(40)] + [
        b"(pid=1) -----END RSA PRIVATE KEY-----", b"(pid=1) after"]
    shown, left = f.clean_lines(key[:20], (), False)
    more, left = f.clean_lines(key[20:], (), False, left)
    assert not any("MIIE" in line for line in shown + more) and more[-1] == "(pid=1) after" and left == 0
    path = write(tmp_path / "log", b"\n".join(key) + b"\n")
    stream = f.open_stream("x", path)
    assert f.find_key(stream.fd, f.find_tail(stream.fd, 10)[0]) and not f.find_key(stream.fd, f.find_tail(stream.fd, 1)[0])
    assert not f.find_key(stream.fd, 0)
    f.close_stream(stream)


# --- steps


def test_the_last_line_of_a_step_is_found(tmp_path):
    health = load_health("prime")
    head = b"noise\n" * 1000
    text = head + b"".join((STEP % step).encode() for step in list(range(1, 51)) + list(range(30, 41)))
    path = write(tmp_path / "trainer.log", text)
    for step in (1, 29, 35, 40, 50):
        offset, words = f.find_step(path, health, "trainer", step)
        assert offset == text.rindex((STEP % step).encode()) and words == "", step
    assert f.find_step(path, health, "launch", 35)[0] == text.rindex((STEP % 35).encode())
    assert f.find_step(path, health, "trainer", 51) == (None, "steps 1 to 50, then 30 to 40")
    assert f.find_step(write(tmp_path / "none.log", head), health, "trainer", 1) == (None, "no steps")
    with pytest.raises(OperatorError) as error:
        f.find_step(path, health, "inference", 1)
    assert error.value.code == USAGE and "tells no steps" in error.value.message


def test_a_training_step_rather_than_its_validation(tmp_path):
    health = load_health("lego")
    text = "step:0 - val-core/x/reward/mean@1:0.1\n" + "".join(
        "(T pid=1) step:%d - training/global_step:%d - actor/lr:1e-06\n(T pid=1) step:%d - val-core/x:0.2\n" % (n, n, n)
        for n in (1, 2, 3))
    path = write(tmp_path / "e.log", text.encode())
    assert f.find_step(path, health, "train", 2)[0] == text.index("(T pid=1) step:2 - training")
    assert f.find_step(path, health, "train", 0)[0] == 0


# --- the next attempt


def test_the_newest_attempt(tmp_path):
    target = make_target(run_dir=str(tmp_path))
    assert f.find_newest(target, "trainer") == "" and f.find_newest(make_target(), "trainer") == ""
    for number in (1, 2, 10):
        folder = tmp_path / "logs" / ("attempt_%d" % number)
        os.makedirs(str(folder))
        before = f.find_newest(target, "trainer")
        write(folder / "trainer.log", b"x")
        now = f.find_newest(target, "trainer")
        assert now == str(folder / "trainer.log") and not f.find_newest(target, "orchestrator")
        assert not f.find_newest(target, "launch")
        old = before or str(tmp_path / "logs" / "attempt_1" / "trainer.log")
        assert number == 1 or follow_run.name_place(old, now) == folder.name
    assert follow_run.name_place("/a/x.log", "/a/y.log") == "y.log"


def test_the_main_log_takes_the_launch_logs_place(tmp_path):
    launch, main = write(tmp_path / "launch.log", b"x"), str(tmp_path / "trainer.log")
    target = make_target(logs={"trainer": main, "launch": launch}, state="unknown")
    stream = f.open_stream("launch", launch)
    sight = follow_run.make_sight(target, stream)
    assert follow_run.find_other(sight, stream, True) is None
    write(tmp_path / "trainer.log", b"y")
    other = follow_run.find_other(sight, stream, True)
    assert (other.name, other.path, other.words) == ("trainer", main, "trainer")
    assert follow_run.find_other(sight, stream, False) is None  # it was asked for by name
    # One that stands in for the main log has all that it has.
    stand_in = sight._replace(target=make_target(logs={"train": main, "launch": launch}, stack="lego", state="unknown"))
    assert follow_run.find_other(stand_in, stream._replace(name="train"), True) is None
    f.close_stream(stream)


def test_a_run_whose_processes_are_gone_is_over(tmp_path):
    process = subprocess.Popen(["sleep", "600"])
    try:
        target = make_target(logs={"trainer": str(tmp_path / "t.log")}, pids=(("trainer", process.pid),))
        sight = follow_run.make_sight(target, f.open_stream("trainer", "/nowhere"))
        assert follow_run.look_again(sight, 0.0) is sight
    finally:
        process.kill()
        process.wait()
    sight = follow_run.look_again(sight, 0.0)
    assert sight.is_over and sight.target.state == "over"
    elsewhere = follow_run.make_sight(make_target(state="elsewhere"), f.open_stream("trainer", "/nowhere"))
    assert not follow_run.look_again(elsewhere, 1e12).is_over
