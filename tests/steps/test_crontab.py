import calendar
import os
import pwd
import subprocess
import time
from types import SimpleNamespace

import pytest
from steps.made import make_plan

from rlrun import child
from rlrun.commands import cron_check, cron_refusals
from rlrun.errors import OperatorError
from rlrun.host import managers, standing
from rlrun.steps import cron_time, crontab, judge
from rlrun.steps.crontab import Job
from rlrun.values import Preflight, PreflightLine

BERLIN = "CET-1CEST,M3.5.0,M10.5.0/3"
JOB = Job("/srv/my run", "/usr/bin:/bin", ("CUDA_VISIBLE_DEVICES=0,1",), "/usr/bin/python3", "/opt/rlrun.pyz",
          ("run", "a.env", "--confirm", "3f9c2a71"))


def utc(*fields):
    return calendar.timegm(fields + (0,) * (9 - len(fields)))


NOW = utc(2026, 11, 30, 16, 19)  # 17:19 in Berlin


@pytest.mark.parametrize("text,now,is_daily,day,at", [
    ("02:00", NOW, False, (2026, 12, 1, 2, 0), utc(2026, 12, 1, 1, 0)),
    ("2:00", NOW, True, (2026, 12, 1, 2, 0), utc(2026, 12, 1, 1, 0)),
    ("17:20", NOW, False, (2026, 11, 30, 17, 20), utc(2026, 11, 30, 16, 20)),
    ("17:19", NOW, False, (2026, 12, 1, 17, 19), utc(2026, 12, 1, 16, 19)),  # this minute has begun: cron is past it
    ("00:00", utc(2026, 12, 31, 22, 59), False, (2027, 1, 1, 0, 0), utc(2026, 12, 31, 23, 0)),
    ("2028-02-29T05:07", utc(2027, 3, 1), False, (2028, 2, 29, 5, 7), utc(2028, 2, 29, 4, 7)),
    ("2026-07-01 02:00", utc(2026, 1, 1), False, (2026, 7, 1, 2, 0), utc(2026, 7, 1, 0, 0)),
    ("02:30", utc(2026, 3, 28, 22), True, (2026, 3, 30, 2, 30), utc(2026, 3, 30, 0, 30))])  # daily: the 29th has none
def test_when_a_time_comes(text, now, is_daily, day, at):
    when = cron_time.find_time(text, now, is_daily, BERLIN)
    assert (when[:5], when.seconds) == (day, at)
    assert [" has no 02:" in note for note in when.notes] == [True] * is_daily
    assert when.zone in ("CET, UTC+0100", "CEST, UTC+0200")


@pytest.mark.parametrize("text,now,is_daily,said", [
    ("2026-03-29 02:30", utc(2026, 3, 1), False, "2026-03-29 has no 02:30 here: the clocks are put forward"),
    ("02:30", utc(2026, 3, 28, 22), False, "2026-03-29 has no 02:30 here"),
    ("2026-11-30 17:19", NOW, False, "is past: it is 2026-11-30 17:19 CET here"), ("2020-01-01 00:00", NOW, False, "is past"),
    ("2026-02-30 02:00", utc(2026, 1, 1), False, "no such day"), ("2026-13-01 02:00", NOW, False, "no such day"),
    ("24:00", NOW, False, "no such time"), ("02:60", NOW, False, "no such time"), ("2am", NOW, False, "--at takes"),
    ("", NOW, False, "--at takes"), ("02:00:00", NOW, False, "--at takes"), ("-1:00", NOW, False, "--at takes"),
    ("99999-01-01 02:00", NOW, False, "--at takes"), ("\u0660\u0662:\u0660\u0660", NOW, False, "--at takes"),
    ("9999-12-31 23:59", NOW, False, "more than a year away, and a crontab line has no year"),
    ("2027-12-02 02:00", NOW, False, "more than a year away"), ("2026-12-01 02:00", NOW, True, "--daily goes with a time alone")])
def test_what_is_no_time_is_refused(text, now, is_daily, said):
    with pytest.raises(OperatorError, match=said) as caught:
        cron_time.find_time(text, now, is_daily, BERLIN)
    assert caught.value.code == 2 and caught.value.hint


def test_every_day_says_which_day_has_no_such_time():
    when = cron_time.find_time("02:30", NOW, True, BERLIN)
    assert when.notes == ("2027-03-28 has no 02:30 here: the clocks are put forward then; some crons launch right after, others "
                          "not at all that day",)
    assert cron_time.find_time("02:30", utc(2026, 3, 29, 4), True, BERLIN).notes[0].startswith("2027-03-28"), "today's is past"
    assert cron_time.find_time("03:30", NOW, True, BERLIN).notes == cron_time.find_time("02:30", NOW, True, "UTC0").notes == ()


def test_a_time_that_comes_twice_is_said():
    when = cron_time.find_time("2026-10-25 02:30", utc(2026, 10, 1), False, BERLIN)
    assert when.seconds == utc(2026, 10, 25, 0, 30) and "comes twice" in when.notes[0]
    later = cron_time.find_time("2026-10-25 02:30", utc(2026, 10, 25, 1, 0), False, BERLIN)
    assert later.seconds == utc(2026, 10, 25, 1, 30), "the first of them is past"


@pytest.mark.parametrize("own", [None, "Asia/Tokyo"])
def test_TZ_of_this_shell_does_not_count_and_stays(monkeypatch, own):
    monkeypatch.delenv("TZ", raising=False)
    if own:
        monkeypatch.setenv("TZ", own)
    time.tzset()
    before = time.tzname
    assert cron_time.find_time("02:00", NOW, False, BERLIN).seconds == utc(2026, 12, 1, 1, 0)
    with pytest.raises(OperatorError):
        cron_time.find_time("nonsense", NOW, False, BERLIN)
    assert os.environ.get("TZ") == own and time.tzname == before


def test_the_time_in_words():
    when = cron_time.find_time("02:00", NOW, False, BERLIN)
    assert cron_time.describe_time(when, NOW) == "2026-12-01 02:00 (CET, UTC+0100), in 8h 41m"
    assert cron_time.describe_time(when._replace(is_daily=True), NOW) == "every day at 02:00 (CET, UTC+0100), first in 8h 41m"


def test_PATH_holds_what_is_there_and_absolute_once(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").write_text("")
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    path = ":".join(["", ".", "bin", a, str(tmp_path / "gone"), b, a, str(tmp_path / "file"), "~/bin"])
    assert crontab.list_path(path) == (a, b)


def test_a_short_PATH_keeps_what_is_found_first(tmp_path):
    folders = [tmp_path / name for name in ("empty", "early", "late", "venv")]
    for folder in folders:
        folder.mkdir()
    for folder in folders[1:3]:
        (folder / "uv").write_text("#!/bin/sh\n")
        (folder / "uv").chmod(0o755)
    entries = [str(folder) for folder in folders] + ["/usr/bin"]
    assert crontab.shorten_path(entries, str(tmp_path / "venv" / "python3")) == (str(folders[1]), str(folders[3]), "/usr/bin")


def unescape_as_debian(text):
    """do_command.c of Debian's cron 3.0pl1: a backslash before % or another is taken away; a bare % would end the command."""
    out, escaped = "", False
    for letter in text:
        if escaped:
            out = out[:-1] + letter if letter in "%\\" else out + letter
            escaped = False
            continue
        assert letter != "%", "the command ends here"
        escaped = letter == "\\"
        out += letter
    return out


def unescape_plainly(text):
    """As crontab(5) has it: only the backslash before a % is taken away."""
    return text.replace("\\%", "%")


@pytest.mark.parametrize("unescape", [unescape_as_debian, unescape_plainly])
@pytest.mark.parametrize("word", ["50%", "a\\%b", "a\\\\%b", "\\\\\\", "%%", "it's 5% \\'%'", "$(date +%F) `x` $HOME",
                                  "über—lauf", "a b;c&d|e>f", "%d\\n", "\\", "*", "~", "#", "", "-n"])
def test_every_word_reaches_the_program_through_cron_and_sh(word, unescape):
    job = JOB._replace(root="/", python="/usr/bin/printf", program="<%s>", words=(word,), assignments=("A=" + word,))
    escaped = crontab.escape_for_cron(crontab.make_command(job))
    shown = subprocess.run(["/bin/sh", "-c", unescape(escaped)], stdout=subprocess.PIPE, encoding="utf-8").stdout
    assert shown == "<%s>" % word


def test_the_lines():
    when = cron_time.find_time("02:05", NOW, False, BERLIN)
    command = crontab.make_command(JOB)
    assert command == ("cd '/srv/my run' && PATH=/usr/bin:/bin CUDA_VISIBLE_DEVICES=0,1 /usr/bin/python3 /opt/rlrun.pyz run "
                       "a.env --confirm 3f9c2a71")
    assert crontab.make_crontab_line(when, command) == '5 2 1 12 * [ "$(date +\\%Y)" = 2026 ] && ' + command
    assert crontab.make_crontab_line(when._replace(is_daily=True), command) == "5 2 * * * " + command
    comment = crontab.make_comment(when, "3f9c2a71", "train", ("a\nb.env", "c.toml"))
    assert comment == "# rlrun: plan 3f9c2a71, train, a\\nb.env + c.toml; 2026-12-01 02:05 (CET, UTC+0100)"


def test_the_lines_tell_until_when_and_what_lists_the_failures():
    when = cron_time.find_time("02:05", NOW, True, BERLIN)
    until = cron_time.format_time(utc(2026, 12, 1, 11, 0, 59), BERLIN)
    assert crontab.make_comment(when, "3f9c2a71", "train", ("b.env",), until).endswith(", UTC+0100), good until 2026-12-01 12:00")
    job = JOB._replace(root="/srv/my 5% run", assignments=("A=1", "LC_ALL=C.UTF-8"))
    command, line = crontab.make_failed_lines(job)
    assert command == "LC_ALL=C.UTF-8 /usr/bin/python3 /opt/rlrun.pyz runs --root '/srv/my 5% run' --failed-since 24h"
    assert line.startswith("7 8 * * * ") and unescape_as_debian(line[10:]) == command


@pytest.mark.parametrize("value,is_secret", [("7 seven", False), ("sk-ant-0123456789abcdefgh", True), ("known value 1", True)])
def test_the_line_for_at_has_what_the_machine_adds_or_there_is_none(value, is_secret):
    pam = {"TOY_STEPS": value, "PATH": "/etc/bin"}
    environ = crontab.make_environ(JOB, "/home/alice", "alice", pam)
    found, why = crontab.make_at_environ(environ, pam, ("known value 1",))
    assert (found, why.partition(",")[0]) == (({}, "/etc/environment sets TOY_STEPS") if is_secret else (environ, ""))
    when = cron_time.find_time("02:05", NOW, False, BERLIN)
    assert is_secret or "TOY_STEPS=7 seven" in crontab.make_at_line(when, JOB, found, False)


@pytest.mark.parametrize("what", ["free", "file", "logs", "records"])
def test_a_checkout_that_no_launch_can_write_to_is_refused(tmp_path, monkeypatch, what):
    logs, records = tmp_path / "logs", tmp_path / "logs" / "rlrun"
    closed = {"logs": logs, "records": records}.get(what)
    if what == "file":
        logs.write_text("")
    else:
        records.mkdir(parents=True)
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: real(path, mode) and path != str(closed))
    if what == "free":
        crontab.refuse_unwritable(str(tmp_path))
        crontab.refuse_unwritable(str(tmp_path / "none" / "below"))
        monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=0, f_blocks=9, f_bavail=0, f_bfree=0, f_files=0))
    with pytest.raises(OperatorError) as caught:
        crontab.refuse_unwritable(str(tmp_path))
    assert caught.value.code == 5 and caught.value.hint
    path, words = {"free": (records, "No space left"), "file": (logs, "Not a directory"), "logs": (logs, "Permission denied"),
                   "records": (records, "Permission denied")}[what]
    assert "could not write %s: %s" % (path, words) in caught.value.message
    assert "(it belongs to %s)" % pwd.getpwuid(os.geteuid()).pw_name in caught.value.message


def test_notify_is_judged_and_named_for_cron(tmp_path, monkeypatch):
    told = tmp_path / "told me"
    told.write_text("#!/bin/sh\n")
    told.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    environ = {"PATH": "/usr/bin:/bin", "HOME": "/"}

    def settle(notify, is_shell=False):
        return cron_refusals.settle_notify(SimpleNamespace(notify=notify, notify_shell=is_shell), environ, ())
    assert settle(None) == "" and settle("true a") == "true a" and settle("a | b", True) == "a | b"
    assert settle("'./told me' '$A'") == "'%s' '$A'" % told, "cron starts elsewhere"
    for notify, is_shell in (("", False), ("nosuch", False), ("true | true", False), (None, True), ("./none", False)):
        with pytest.raises(OperatorError) as caught:
            settle(notify, is_shell)
        assert (caught.value.code, caught.value.reason) == (2, "notify:command"), notify


@pytest.mark.parametrize("state,is_slurm,words", [("ready", False, ""), ("linger", False, "cron's launch would get no scope"),
                                                  ("ready", True, "here is a Slurm job")])
def test_a_scope_that_cron_would_not_get_is_refused(monkeypatch, state, is_slurm, words):
    monkeypatch.setattr(standing, "is_in_slurm", lambda one: is_slurm)
    monkeypatch.setattr(managers, "find_manager", lambda environ: managers.Manager(state, True, "", 7, "eve", "why", "cure"))
    if not words:
        return cron_refusals.refuse_scope({})
    with pytest.raises(OperatorError, match=words) as caught:
        cron_refusals.refuse_scope({})
    assert (caught.value.code, caught.value.reason) == (5, "session:scope") and caught.value.hint


def test_what_lasts_is_told_by_the_line_that_is_fatal():
    said = Preflight((PreflightLine("OK", "fine"), PreflightLine("FATAL", "tool_parser=x is none")), False, False, "", "")
    with pytest.raises(OperatorError) as caught:
        cron_refusals.refuse_lasting(judge.make_verdict(judge.judge_preflight(said)), " here")
    assert caught.value.message == "nothing to schedule here: preflight:fatal  tool_parser=x is none"
    assert (caught.value.code, caught.value.reason, caught.value.hint) == (1, "preflight:fatal", "Mend it, then ask again.")


def test_a_saved_plan_that_can_not_be_read_is_told_now(tmp_path):
    cron = SimpleNamespace(digest="3f9c2a71", saved="", unsaved="it is no plan that rlrun saved")
    found, options = SimpleNamespace(plan=make_plan(root=str(tmp_path))), SimpleNamespace(valid_for=None)
    cron_refusals.refuse_unsaved(found, cron, options)
    path = tmp_path / "logs" / "rlrun" / "plans" / ("3f9c2a71-%d.json" % os.geteuid())
    path.parent.mkdir(parents=True)
    path.write_text("{")
    with pytest.raises(OperatorError, match="which can't be read \\(it is no plan .*; cron's launch would be refused") as caught:
        cron_refusals.refuse_unsaved(found, cron, options)
    assert (caught.value.code, caught.value.reason) == (3, "undated")


def test_a_dated_line_launches_in_its_year_alone():
    when = cron_time.find_time("02:05", NOW, False, BERLIN)
    now = time.localtime().tm_year
    for year in (now, now + 1):
        line = crontab.make_crontab_line(when._replace(year=year), "echo launched")
        command = unescape_as_debian(line.split(" ", 5)[5])
        shown = subprocess.run(["/bin/sh", "-c", command], stdout=subprocess.PIPE).stdout
        assert shown == (b"launched\n" if year == now else b"")


def test_a_line_that_cron_would_not_take_is_refused():
    when = cron_time.find_time("02:05", NOW, True, BERLIN)
    crontab.make_crontab_line(when, "x" * 998)
    for command in ("x" * 999, "%" * 500, "ü" * 500):
        with pytest.raises(OperatorError, match="cron takes 998") as caught:
            crontab.make_crontab_line(when, command)
        assert "script" in caught.value.hint and command in caught.value.hint


@pytest.mark.parametrize("field,value", [("root", "/srv/a\nb"), ("words", ("run", "a\rb")), ("path", "/bin:/x\x1b"),
                                         ("program", "/opt/\udce9.pyz"), ("assignments", ("A=\x00",))])
def test_what_a_crontab_can_not_hold_is_refused(field, value):
    with pytest.raises(OperatorError, match="can't hold this word") as caught:
        crontab.refuse_words(JOB._replace(**{field: value}))
    assert caught.value.code == 2 and "\n" not in caught.value.message
    crontab.refuse_words(JOB)


def test_the_line_for_at_runs_in_crons_environment(tmp_path):
    job = JOB._replace(root=str(tmp_path), python="/usr/bin/env", program="PLAIN=1", words=("sh", "-c", "env; pwd; echo 50%"))
    when = cron_time.find_time("02:05", NOW, False, BERLIN)
    line = crontab.make_at_line(when, job, crontab.make_environ(job, "/home/alice", "alice", {}), True)
    printed, _, end = line.rpartition(" | ")
    assert end == "env -u TZ at -t 202612010205"
    assert crontab.make_at_line(when, job, {}, False).endswith(" | at -t 202612010205")
    done = subprocess.run(["/bin/sh", "-c", printed + " | sh"], stdout=subprocess.PIPE, encoding="utf-8",
                          env={"PATH": "/usr/bin:/bin", "SECRET": "x", "LANG": "C"})
    lines = set(done.stdout.split("\n")) - {"PWD=" + str(tmp_path), "_=/usr/bin/env", "SHLVL=1", "SHLVL=0"}
    assert lines == {"HOME=/home/alice", "LOGNAME=alice", "SHELL=/bin/sh", "PATH=/usr/bin:/bin", "CUDA_VISIBLE_DEVICES=0,1",
                     "PLAIN=1", str(tmp_path), "50%", ""}


def test_the_environment_of_cron(tmp_path):
    (tmp_path / "cron").write_text("")
    (tmp_path / "environment").write_text('# a comment\nPATH="/etc/bin"\nexport A=b c\nQ=\'two words\'\nnonsense\n=x\n')
    pam = crontab.read_pam_environ(str(tmp_path / "environment"), (str(tmp_path / "cron"),))
    assert pam == {"PATH": "/etc/bin", "A": "b", "Q": "two words"}
    assert crontab.read_pam_environ(str(tmp_path / "environment"), (str(tmp_path / "none"),)) == {}
    assert crontab.read_pam_environ(str(tmp_path / "none"), (str(tmp_path / "cron"),)) == {}
    assert crontab.make_environ(JOB, "/home/alice", "alice", pam) == {
        "A": "b", "Q": "two words", "PATH": JOB.path, "HOME": "/home/alice", "LOGNAME": "alice", "SHELL": "/bin/sh",
        "CUDA_VISIBLE_DEVICES": "0,1"}


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), ValueError("filedescriptor out of range in select()")])
def test_a_check_that_can_not_be_run_is_told_and_leaves_nothing(tmp_path, monkeypatch, error):
    def run(*words, **given):
        raise error
    monkeypatch.setattr(child, "run", run)
    monkeypatch.setattr(cron_check.tempfile, "tempdir", str(tmp_path))
    options = SimpleNamespace(dry_run_timeout=1.0, valid_for=None)
    shape, content = cron_check.ask_check(JOB, SimpleNamespace(plan=make_plan()), options)
    assert shape["error"] == "the check could not be run: %s" % error and content is None and os.listdir(str(tmp_path)) == []


def test_who_else_could_put_another_file_there(tmp_path):
    weak = {}
    for name, mode in (("all", 0o777), ("sticky", 0o1777), ("group", 0o775), ("own", 0o755)):
        folder = tmp_path / name
        folder.mkdir()
        if name == "group":
            if os.geteuid() == 0:
                os.chown(str(folder), -1, 65534)
        folder.chmod(mode)
        (folder / "rlrun.pyz").write_text("")
        weak[name] = crontab.find_weak(str(folder / "rlrun.pyz"), str(tmp_path))
    assert weak["all"] == "%s/all can be written to by everybody" % tmp_path
    assert weak["sticky"] == "%s/sticky can be written to by everybody" % tmp_path, "/tmp is swept, and then anybody's"
    assert weak["own"] == "" and ("by group" in weak["group"] or os.geteuid() != 0)
    (tmp_path / "own" / "link").symlink_to(tmp_path / "all" / "rlrun.pyz")
    assert crontab.find_weak(str(tmp_path / "own" / "link"), str(tmp_path)) == weak["all"]
    (tmp_path / "own" / "rlrun.pyz").chmod(0o666)
    assert crontab.find_weak(str(tmp_path / "own" / "rlrun.pyz"), str(tmp_path)).startswith(str(tmp_path / "own" / "rlrun.pyz"))
    assert crontab.find_weak("/usr/bin/env") == ""


def test_where_slurm_is_found_is_in_the_line_of_a_job_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    job = make_plan(is_submission=True, from_environ=("CUDA_VISIBLE_DEVICES=0",))
    assert crontab.list_assignments(job, {"SLURM_CONF": "/etc/my/slurm.conf", "SLURM_JOB_ID": "7", "SBATCH_QOS": "x"}) == (
        "CUDA_VISIBLE_DEVICES=0", "SLURM_CONF=/etc/my/slurm.conf")
    assert crontab.list_assignments(job, {"SLURM_CONF": "s.conf"})[1] == "SLURM_CONF=%s/s.conf" % tmp_path
    assert crontab.list_assignments(job, {"SLURM_CONF": ""}) == ("CUDA_VISIBLE_DEVICES=0",)
    assert crontab.list_assignments(job._replace(is_submission=False), {"SLURM_CONF": "/x"}) == ("CUDA_VISIBLE_DEVICES=0",)
    line = crontab.make_failed_lines(JOB._replace(assignments=("SLURM_CONF=/x y", "LC_ALL=C.UTF-8", "A=b")))[0]
    assert line.startswith("SLURM_CONF='/x y' LC_ALL=C.UTF-8 ") and "A=b" not in line
