import json
import os
import stat

import pytest

from rlrun.errors import BUG, NOT_CONFIRMED, NOT_REACHED, OperatorError
from rlrun.steps import judge
from rlrun.text import report, terminal, unattended
from rlrun.values import Preflight, PreflightLine

REPORT = """\
rlrun run — train · demo.env                                     plan 64506789
  ✓ job         none
  \x1b[31m✗\x1b[0m gpu         gpu:foreign  pid 41877 (alice)  128.4 GiB on GPU 0-7
  ✗             gpu:foreign  pid 41999 (bob)
"""


def make(path=None):
    """A terminal that keeps, and what it keeps."""
    kept = unattended.hold()
    kept.facts["head"] = unattended.describe_head("rlrun run demo", "0.1.0", 0.0)
    held = terminal.make_terminal("always", False, True, kept)
    if path:
        terminal.keep_output(held, str(path))
    return held, kept


def test_nothing_is_shown_and_all_of_it_is_kept_in_order(tmp_path, capsys):
    path = tmp_path / "logs" / "rlrun" / "unattended.log"
    held, kept = make()
    assert not held.is_interactive and not held.color and held.is_json
    terminal.print_note(held, "before the checkout is known")
    terminal.keep_output(held, str(path))
    assert path.read_text().split("\n")[1] == "before the checkout is known"
    terminal.tell(held, REPORT)
    terminal.print_result(held, "result")
    terminal.print_error(held, "error")
    terminal.print_screen(held, "redrawn")
    assert terminal.ask(held, "go? ") is None
    terminal.keep_output(held, str(tmp_path / "another"))
    unattended.close_log(kept, 3, 60.0)
    assert capsys.readouterr() == ("", "")
    lines = path.read_text().split("\n")
    assert lines[0] == "--- 1970-01-01T00:00:00Z rlrun 0.1.0 on %s, pid %d: rlrun run demo" % (
        os.uname().nodename, os.getpid())
    assert lines[4] == "  ✗ gpu         gpu:foreign  pid 41877 (alice)  128.4 GiB on GPU 0-7"
    assert lines[6:8] == ["result", "error"]
    assert lines[8] == "--- 1970-01-01T00:01:00Z pid %d: exit 3" % os.getpid()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and not (tmp_path / "another").exists()
    make(path)
    assert path.read_text().startswith("\n".join(lines[:9])), "it goes on behind what was there"


def test_with_quiet_notes_are_not_kept_either():
    held, kept = make()
    terminal.print_note(held._replace(is_quiet=True), "a note")
    assert kept.pieces == []


def test_the_line_says_the_first_check_that_blocks(tmp_path):
    held, kept = make(tmp_path / "log")
    terminal.print_error(held, "Preflight failed\n" + REPORT)
    assert unattended.describe_failure(kept, 1) == (
        "rlrun: not launched (exit 1): gpu:foreign  pid 41877 (alice)  128.4 GiB on GPU 0-7 — all of it: %s/log" % tmp_path)


def test_the_line_quotes_what_is_fatal_and_not_how_much_is(tmp_path):
    said = Preflight((PreflightLine("WARN", "w"), PreflightLine("FATAL", "tool_parser=x is none"), PreflightLine("SKIP", "s")),
                     False, False, "", "")
    checks = judge.judge_preflight(said)
    told = json.dumps({"checks": [{"name": one.name, "status": one.status, "detail": one.detail} for one in checks]})
    for text in (" \n".join(report.render_checks(make()[0], checks)), told):
        held, kept = make(tmp_path / "log")
        terminal.print_error(held, text)
        assert unattended.describe_failure(kept, 1).startswith(
            "rlrun: not launched (exit 1): preflight:fatal  tool_parser=x is none"), text
    rows = ["  %s  %s" % (one.name, one.detail) for one in checks if one.status == "blocks"]
    unattended.note_error(kept, OperatorError("not lifted:\n" + "\n".join(rows), "", 1))
    assert "not lifted: preflight:fatal tool_parser=x is none \u2014" in unattended.describe_failure(kept, 1)


def test_the_line_of_an_error_with_a_brief_word_is_that():
    error = OperatorError("the plan is b now, not a; nothing was launched. What changed (3h ago):\n    x\n    y", "", 3)
    error.brief = "the plan is b now, not a: x:"
    kept = make()[1]
    unattended.note_error(kept, error)
    assert unattended.describe_failure(kept, 3).startswith("rlrun: not launched (exit 3): the plan is b now, not a: x: \u2014")


@pytest.mark.parametrize("code,shape,message,said", [
    (NOT_CONFIRMED, {}, "the plan is 627f2b18 now\nand more", "not launched (exit 3): the plan is 627f2b18 now — "),
    (1, {}, "A run is in flight; refusing:\n  pids:   pid 404 (root)\n  log: x",
     "not launched (exit 1): A run is in flight; refusing: pids: pid 404 (root) — "),
    (NOT_REACHED, {"launched": False}, "6h are over", "not launched (exit 6): 6h are over — "),
    (BUG, {}, "a bug in rlrun: X", "not launched (exit 70): a bug in rlrun: X (Send /tmp/r) — "),
    (BUG, {"launched": True}, "launched (pid 5), but", "launched, and exit 70: launched (pid 5), but (Send /tmp/r) — "),
    (5, {}, "evil \x1b[2Jname\r", "not launched (exit 5): evil \\x1b[2Jname — ")])
def test_the_line_of_an_error(tmp_path, code, shape, message, said):
    held, kept = make(tmp_path / "log")
    error = OperatorError(message, "Send /tmp/r", code)
    error.shape = shape
    unattended.note_error(kept, error)
    line = unattended.describe_failure(kept, code)
    assert line.startswith("rlrun: " + said) and line.endswith("all of it: %s/log" % tmp_path)


def test_the_line_of_a_run_that_ended_or_is_not_up(tmp_path):
    held, kept = make(tmp_path / "log")
    terminal.print_result(held, "Launched (background)\n  stage: x\n\nThe run has ended: ended 1 after 3s\n  FATAL")
    assert unattended.describe_failure(kept, 4).startswith("rlrun: launched, and ended: ended 1 after 3s — ")
    assert unattended.describe_failure(make()[1], 6).startswith("rlrun: launched, and exit 6: no reason was told — ")


def test_the_line_is_cut_in_its_reason_and_keeps_its_path(tmp_path):
    held, kept = make(tmp_path / "log")
    unattended.note_error(kept, OperatorError("x" * 5000, "", 1))
    line = unattended.describe_failure(kept, 1)
    assert len(line) == unattended.LINE_CHARACTERS and line.endswith("x… — all of it: %s/log" % tmp_path)


def test_what_can_not_be_kept_is_said(tmp_path):
    """No checkout; no folder for it; something in the way of both names."""
    assert "the checkout is not known" in unattended.describe_failure(make()[1], 2)
    (tmp_path / "target").write_text("")
    (tmp_path / "log").mkdir()
    (tmp_path / ("log-%d" % os.geteuid())).symlink_to(tmp_path / "target")
    for name, words in (("log", "Is a directory; log-%d: Too many levels of symbolic links" % os.geteuid()),
                        ("target/below", "Not a directory")):
        held, kept = make(tmp_path / name)
        terminal.print_error(held, "said")
        unattended.close_log(kept, 1, 0.0)
        assert unattended.describe_failure(kept, 1).endswith("the rest is lost: %s/%s: %s" % (tmp_path, name, words))
    assert (tmp_path / "target").read_text() == ""


@pytest.mark.parametrize("what", ["link", "dangling", "other name", "folder", "pipe", "another's"])
def test_what_is_no_file_of_this_user_alone_is_left_and_his_own_is_taken(tmp_path, what):
    path, target, own = tmp_path / "a.log", tmp_path / "target", tmp_path / ("a-%d.log" % os.geteuid())
    target.write_text("mine\n")
    if what == "another's" and os.geteuid():
        pytest.skip("gives a file to another user")
    {"link": lambda: path.symlink_to(target), "dangling": lambda: path.symlink_to(tmp_path / "none"),
     "other name": lambda: os.link(str(target), str(path)), "folder": path.mkdir, "pipe": lambda: os.mkfifo(str(path)),
     "another's": lambda: (path.write_text(""), os.chmod(str(path), 0o666), os.chown(str(path), 4242, 4242))}[what]()
    held, kept = make(path)
    terminal.print_error(held, "said")
    unattended.close_log(kept, 1, 0.0)
    assert "said\n" in own.read_text() and stat.S_IMODE(own.stat().st_mode) == 0o600
    assert unattended.describe_failure(kept, 1).endswith("all of it: %s" % own)
    assert target.read_text() == "mine\n" and not (tmp_path / "none").exists()
    assert what != "another's" or path.stat().st_size == 0


def test_a_log_that_is_exchanged_meanwhile_is_not_followed(tmp_path):
    path, target = tmp_path / "log", tmp_path / "target"
    target.write_text("")
    held, kept = make(path)
    path.unlink()
    os.link(str(target), str(path))
    terminal.print_error(held, "said")
    assert target.read_text() == "" and "the rest is lost: %s: it has another name" % path in unattended.describe_failure(kept, 1)


@pytest.mark.parametrize("code, told, said", [
    (1, {"checks": [{"name": "x", "status": "pass", "detail": "y"},
                    {"name": "gpu:foreign", "status": "blocks", "detail": "pid 7 (eve)"}]},
     "rlrun: not launched (exit 1): gpu:foreign  pid 7 (eve)"),
    (4, {"ended": {"status": None, "signal": "SIGKILL"}}, "rlrun: launched, and ended: killed by SIGKILL"),
    (4, {"ended": {"status": 2, "signal": None}}, "rlrun: launched, and ended: ended 2"),
    (4, {"ended": [1]}, "rlrun: launched, and ended: no reason was told"),
])
def test_the_line_of_an_object(tmp_path, code, told, said):
    kept = unattended.hold()
    unattended.keep(kept, json.dumps(told))
    unattended.open_log(kept, str(tmp_path / "unattended.log"))
    assert unattended.describe_failure(kept, code).startswith(said + " \u2014 ")
