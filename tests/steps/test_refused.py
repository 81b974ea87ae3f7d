"""What nobody looked at and launched nothing: told from the log that it leaves, and from what lives."""
import os
import time

import pytest
from steps.test_find_run import GONE, make_record

from rlrun.host import procs
from rlrun.steps import refused

DAY = 86400.0
ERROR = "rlrun: %s\n  Do that.\n"
BLOCKED = "Preflight failed — fix it\n\n  ✓ job         none\n  ✗ gpu         gpu:foreign  pid 7 (bob)\n" \
          "  ✗             port:conflict\n"


def stamp(age_seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - age_seconds))


def head(pid, age_seconds=60.0, words="run night --confirm 3f9c2a71"):
    return "--- %s rlrun 0.1.0, pid %d: rlrun %s\n" % (stamp(age_seconds), pid, words)


def close(pid, code, age_seconds=50.0):
    return "--- %s pid %d: exit %d\n\n" % (stamp(age_seconds), pid, code)


def write(root, text, name="unattended.log"):
    folder = root / "logs" / "rlrun"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return str(folder / name)


def find(root, window_seconds=DAY, secrets=()):
    return refused.find_refused(str(root), window_seconds, secrets)[0]


def tell(root):
    return [(one.said.pid, one.said.code, one.said.reason) for one in find(root)]


def test_each_that_launched_nothing_is_told_with_its_own_words(tmp_path):
    assert refused.find_refused(str(tmp_path), DAY, ()) == ((), ())
    log = write(tmp_path, head(1) + "said\n" + close(1, 0) + head(2) + close(2, 4) + head(3) + BLOCKED + close(3, 1, 40)
                + head(4, words="run night --confirm 3f9c2a71 --api-key s3cr3tvalue") + "rlrun: odd words of a runner\n"
                + ERROR % "the plan is \x1b[2J s3cr3tvalue" + close(4, 3, 30)
                + head(5) + "rlrun: A run is in flight:\n  pids:   pid 404\n" + close(5, 1, 20)
                + head(6, DAY + 90) + ERROR % "old" + close(6, 3, DAY + 60)
                + "junk\n--- x pid 3: exit 5\n--- 2026-99-99T00:00:00Z pid 9: exit 5\n")
    own = write(tmp_path, head(8) + ERROR % ("x" * 500) + close(8, 70, 10), "unattended-1000.log")
    found = find(tmp_path, secrets=("s3cr3tvalue",))
    assert [(one.said.pid, one.said.code, one.said.reason) for one in found[1:]] == [
        (5, 1, "A run is in flight: pids: pid 404"), (4, 3, "the plan is \\x1b[2J <redacted>"),
        (3, 1, "gpu:foreign  pid 7 (bob)")]
    assert len(found[0].said.reason) == 300 and [one.log for one in found] == [own, log, log, log]
    assert found[2].said.command == "rlrun run night --confirm 3f9c2a71 --api-key <redacted>"
    assert {one.user for one in found} == {procs.user_name(os.geteuid())}
    assert [one.said.pid for one in find(tmp_path, 25.0)] == [8, 5]


def test_words_of_launches_that_wrote_in_turns_are_not_mixed_up(tmp_path):
    """A waits, B comes and is refused: B's words are B's. What two said at once is nobody's. Whose beginning was cut off may have
    said what was said since."""
    write(tmp_path, head(1) + "waiting\n" + head(2) + "waits on\n" + ERROR % "b" + close(2, 3, 9) + ERROR % "a" + close(1, 6, 8))
    assert tell(tmp_path) == [(1, 6, "a"), (2, 3, "b")]
    write(tmp_path, head(1) + head(2) + ERROR % "b" + BLOCKED + close(2, 3, 9) + close(1, 1, 8))
    assert tell(tmp_path) == [(1, 1, ""), (2, 3, "")]
    write(tmp_path, head(1) + ERROR % "x" + close(2, 3, 9) + BLOCKED + close(1, 1, 8))
    assert tell(tmp_path) == [(1, 1, "gpu:foreign  pid 7 (bob)"), (2, 3, "x")]


@pytest.mark.parametrize("age_hours, words, is_told", [
    (1, "", True), (25, "", False), (25, " --wait-free 6h", True), (31, " --wait-free 6h", False),
    (25, " --wait-free soon", False)])
def test_one_that_ended_without_a_word_is_told_while_it_may_be_news(tmp_path, age_hours, words, is_told):
    write(tmp_path, head(GONE, age_hours * 3600.0, "run night" + words) + "waiting\n")
    assert [(one.said.pid, one.said.code) for one in find(tmp_path)] == ([(GONE, None)] if is_told else [])


def test_one_that_lives_is_not_told_and_one_whose_pid_is_anothers_is(tmp_path):
    own = os.getpid()
    age = procs.read_processes()[own].elapsed_seconds
    write(tmp_path, head(own, age))
    assert tell(tmp_path) == []
    write(tmp_path, head(own, age + 100))
    assert tell(tmp_path) == [(own, None, "")]
    write(tmp_path, head(own, age + 100) + head(own, age))
    assert [one.said.was_followed for one in find(tmp_path)] == [True]


@pytest.mark.parametrize("code", [5, 6, 70, None])
def test_what_has_a_record_was_launched_whatever_came_after(tmp_path, code):
    now = time.time()
    write(tmp_path, head(GONE) + ERROR % "why" + (close(GONE, code) if code else ""))
    make_record(tmp_path, "20260802-1-train-a", time_seconds=now - 3600)  # an earlier launch of the plan
    make_record(tmp_path, "20260802-2-train-b", time_seconds=now - 55, digest="00000000")
    make_record(tmp_path, "20260802-3-train-c", time_seconds=now - 55, runner=None)  # came to nothing
    assert [one.said.code for one in find(tmp_path)] == [code]
    make_record(tmp_path, "20260802-4-train-d", time_seconds=now - 55)
    assert find(tmp_path) == ()


def test_only_the_end_of_a_file_is_read_and_nothing_else(tmp_path, monkeypatch):
    log = write(tmp_path, head(1) + "x" * 500 + "\n" + ERROR % "why" + close(1, 3), "unattended-7.log")
    monkeypatch.setattr(refused, "LIMIT_BYTES", 200)
    said = find(tmp_path)[0].said
    assert (said.started_seconds, said.command, said.code, said.reason) == (None, "", 3, "why")
    folder = tmp_path / "logs" / "rlrun"
    (tmp_path / "else").write_text(head(2) + close(2, 3))
    os.symlink(str(tmp_path / "else"), str(folder / "unattended.log"))
    os.mkfifo(str(folder / "unattended-8.log"))  # who opened it and waited would never come back
    (folder / "unattended-9.log").mkdir()
    (folder / "unattended-x.log").write_text(head(2) + close(2, 3))
    assert [one.log for one in find(tmp_path)] == [log]

    def refuse(path, *words, **named):
        raise PermissionError(13, "Permission denied")
    monkeypatch.setattr(os, "open", refuse)
    assert refused.find_refused(str(tmp_path), DAY, ())[0] == () and log in refused.find_refused(str(tmp_path), DAY, ())[1]


def test_a_launch_that_waits_on_another_node_is_not_over(tmp_path):
    write(tmp_path, head(999999).replace("0.1.0, pid", "0.1.0 on n7, pid") + "waiting (up to 6h): …\n" + head(999998).replace(
        "0.1.0, pid", "0.1.0 on %s, pid" % os.uname().nodename) + "waiting (up to 6h): …\n")
    assert [one.said.pid for one in find(tmp_path)] == [999998]
