"""An approval that was saved: what is in it, whose it is, how long it counts, and what can't be taken for one."""
import errno
import hashlib
import json
import os
import stat
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from steps.made import make_plan

from rlrun.errors import OperatorError
from rlrun.host import procs
from rlrun.steps import approval, digest, saved_plan
from rlrun.values import Choices, Fingerprint, Git

NOW = time.time()
HOUR = 3600.0
DIGEST = "3f9c2a71"
SECRET = "not-a-real-key-1111"


class Found(NamedTuple):
    """Of a survey what an approval looks at."""

    plan: Any
    git: Git
    fingerprint: Fingerprint


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "c" / "x.env"
    path.parent.mkdir()
    path.write_text("TRAIN_BATCH=64\nWANDB_API_KEY=%s\nNOTE=über\n" % SECRET, encoding="utf-8")
    return path


def find(config, digest=DIGEST, dirty=(), **parts):
    named = {"file %s" % config: hashlib.sha256(config.read_bytes()).hexdigest(), "root": str(config.parent)}
    plan = make_plan(root=str(config.parent), config=str(config), sources=(str(config),), overrides=("--api-key", SECRET))
    return Found(plan, Git("a" * 40, "main", tuple(dirty), "", ""), Fingerprint(digest, dict(named, **parts)))


def choose(digest=DIGEST, **given):
    return Choices(digest, False, "background", "", "")._replace(**given)


def save(found, path, valid=None, now=NOW):
    return saved_plan.save(found, str(path), valid, (SECRET,), now)


def judge(found, now=NOW, **given):
    """None where it may be launched, else the error."""
    try:
        approval.check_confirmed(found, choose(**given), "rlrun check x", (SECRET,), now)
    except OperatorError as error:
        return error
    return None


def refuse(call, *words):
    with pytest.raises(OperatorError) as caught:
        call(*words)
    return caught.value


def edit(path, **changes):
    path.write_text(json.dumps(dict(json.loads(path.read_text()), **changes)))


# --- what is saved


def test_a_saved_plan_holds_all_but_secrets_and_is_read_back(config, tmp_path):
    found = find(config, dirty=("x.env", "gone"), overrides=json.dumps(["--api-key", SECRET]), long="y" * 70000)
    saved = save(found, tmp_path / "plan.json", 12 * HOUR)
    assert saved.kept == str(config.parent / "logs/rlrun/plans" / ("%s-%d.json" % (DIGEST, os.geteuid()))) and not saved.reason
    for path in (saved.path, saved.kept):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        text = open(path).read()
        assert SECRET not in text and hashlib.sha256(SECRET.encode()).hexdigest()[:16] not in text
    shape = json.loads(text)
    assert (shape["schema"], shape["digest"], shape["valid_seconds"], shape["time_seconds"]) == (1, DIGEST, 12 * HOUR, NOW)
    assert shape["overrides"] == ["--api-key", "<redacted>"] and shape["parts"]["long"].startswith("sha256:")
    assert shape["texts"] == {str(config): "TRAIN_BATCH=64\nWANDB_API_KEY=<redacted>\nNOTE=über\n"}
    assert shape["modified"]["gone"] == "absent" and len(shape["modified"]["x.env"]) == 64
    plan = saved_plan.read_plan(saved.path)
    assert plan.content == saved_plan.make_content(found, (SECRET,)) and plan.valid_seconds == 12 * HOUR
    assert os.listdir(str(config.parent / "logs/rlrun/plans")) == [os.path.basename(saved.kept)]  # no temporary file


def test_a_text_that_is_not_of_this_digest_any_more_is_left_out(config):
    found = find(config)
    config.write_text("TRAIN_BATCH=1\n")
    assert saved_plan.make_content(found, ()).texts == {}
    config.write_text("A=1\n" * 20000)
    assert saved_plan.make_content(find(config), ()).texts == {}  # too long to be kept


def test_nothing_but_a_saved_plan_is_written_over(config, tmp_path):
    found, foreign, link = find(config), tmp_path / "foreign", tmp_path / "link"
    foreign.write_text("mine\n")
    link.symlink_to(foreign)
    (tmp_path / "later").write_text(json.dumps({"rlrun_file": "approved plan", "schema": 2}))
    for path in (foreign, link, config, tmp_path, "/dev/null", tmp_path / "later"):
        before = os.stat(str(path))
        assert refuse(save, found, path).code == 2
        assert os.stat(str(path))[:7] == before[:7]
    for path in (tmp_path / "missing" / "plan", "%s/new/" % tmp_path):
        assert refuse(save, found, path).code == 5
    assert foreign.read_text() == "mine\n" and not os.path.exists(str(config.parent / "logs"))
    link.unlink()
    link.symlink_to(tmp_path / "plan")
    save(found, tmp_path / "plan", HOUR)
    save(found, link, 2 * HOUR)  # renewed, through a link of the operator's own
    assert link.is_symlink() and saved_plan.read_plan(str(tmp_path / "plan")).valid_seconds == 2 * HOUR


@pytest.mark.parametrize("what", ["a file in the way", "another's file", "a link"])
def test_where_the_own_copy_can_not_be_written_the_file_is_and_the_reason_is_told(config, tmp_path, what):
    folder = config.parent / "logs/rlrun/plans"
    kept = folder / ("%s-%d.json" % (DIGEST, os.geteuid()))
    (folder.parent if what == "a file in the way" else folder).mkdir(parents=True)
    {"a file in the way": lambda: folder.write_text("x"), "another's file": lambda: kept.write_text("x"),
     "a link": lambda: kept.symlink_to(config)}[what]()
    saved = save(find(config), tmp_path / "plan.json")
    assert saved.kept == "" and saved.reason and saved_plan.read_plan(saved.path).digest == DIGEST
    assert "TRAIN_BATCH" in config.read_text()


@pytest.mark.parametrize("links", ["hard links", "no hard links"])
def test_what_comes_while_a_plan_is_saved_is_not_replaced(config, tmp_path, monkeypatch, links):
    path, kept = tmp_path / "plan.json", config.parent / "logs/rlrun/plans" / ("%s-%d.json" % (DIGEST, os.geteuid()))
    if links == "no hard links":
        monkeypatch.setattr(os, "link", lambda *words: refuse_call(errno.EPERM))
    real, coming = saved_plan.tempfile.mkstemp, []

    def come(*words, **given):
        for one in coming:
            if str(one.parent) == given["dir"]:
                one.write_text("mine\n")
        return real(*words, **given)
    monkeypatch.setattr(saved_plan.tempfile, "mkstemp", come)
    coming[:] = [path]
    error = refuse(save, find(config), path)
    assert (error.code, error.reason, path.read_text()) == (2, "save", "mine\n") and "left as it is" in error.message
    assert sorted(os.listdir(str(tmp_path))) == ["c", "plan.json"]
    coming[:] = [kept]
    saved = save(find(config), tmp_path / "other.json")
    assert saved.kept == "" and saved.reason == "File exists" and kept.read_text() == "mine\n"
    assert os.listdir(str(kept.parent)) == [kept.name] and saved_plan.read_plan(saved.path).digest == DIGEST
    kept.unlink()
    coming[:] = []
    for _ in range(2):  # made, and then renewed
        assert save(find(config), tmp_path / "other.json").kept == str(kept)
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600 and kept.stat().st_nlink == 1


def refuse_call(number):
    raise OSError(number, os.strerror(number))


def test_a_link_in_place_of_the_folder_of_plans_is_not_followed(config, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    kept = save(find(config), tmp_path / "plan.json").kept
    os.rename(kept, str(elsewhere / os.path.basename(kept)))
    os.rmdir(os.path.dirname(kept))
    os.symlink(str(elsewhere), os.path.dirname(kept))
    before = (elsewhere / os.path.basename(kept)).stat().st_mtime_ns
    saved = save(find(config), tmp_path / "plan.json")
    assert saved.kept == "" and saved.reason == "logs/rlrun/plans is a link"
    assert (elsewhere / os.path.basename(kept)).stat().st_mtime_ns == before
    assert saved_plan.find_plans(str(config.parent), DIGEST) == []


# --- how long it counts, and whose it is


def test_an_approval_counts_until_its_time_is_up(config, tmp_path):
    found = find(config)
    assert judge(found) is None  # nothing was saved, no limit is asked for
    assert judge(found, valid_seconds=HOUR).reason == "undated" and "--save" in judge(found, valid_seconds=HOUR).hint
    save(found, tmp_path / "plan.json", 12 * HOUR)
    assert judge(found, NOW + 12 * HOUR) is None
    late = judge(found, NOW + 13 * HOUR)
    assert (late.code, late.reason) == (3, "expired") and "was approved 13h 00m ago, for 12h 00m" in late.message
    assert judge(found, NOW + 2 * HOUR, valid_seconds=HOUR).reason == "expired"
    assert judge(found, NOW + 13 * HOUR, valid_seconds=99 * HOUR).reason == "expired"  # the smaller one counts
    save(found, tmp_path / "plan.json", 12 * HOUR, NOW + 12 * HOUR)
    assert judge(found, NOW + 13 * HOUR) is None  # renewed
    assert judge(found, NOW + 12 * HOUR - 200) is None
    ahead = judge(found, NOW + 11 * HOUR)
    assert (ahead.code, ahead.reason) == (3, "clock") and "in the future (in 1h 00m" in ahead.message
    assert judge(find(config, "0" * 8), NOW).reason == "digest"  # the other plan comes first


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")
def test_another_users_copy_tells_the_difference_and_nothing_about_time(config, tmp_path):
    found = find(config)
    copy = config.parent / "logs/rlrun/plans" / ("%s-4242.json" % DIGEST)
    os.rename(save(found, tmp_path / "plan.json", HOUR).kept, str(copy))
    os.unlink(str(tmp_path / "plan.json"))
    os.chown(str(copy), 4242, 4242)
    assert judge(found, NOW + 2 * HOUR) is None and judge(found, NOW, valid_seconds=HOUR).reason == "undated"
    config.write_text(config.read_text().replace("64", "128"))
    error = judge(find(config, "0" * 8))
    assert "x.env: TRAIN_BATCH=64 → TRAIN_BATCH=128" in error.message and "3f9c2a71-4242.json" in error.message
    assert judge(found, NOW + 2 * HOUR, plan_file=str(copy)).reason == "expired"  # it was named, and so it is believed


def test_copies_of_others_do_not_hide_the_own(config, tmp_path, monkeypatch):
    """It is read by its name, however many stand before it in the folder's order, and where that can't be listed."""
    found = find(config)
    if not os.geteuid():  # whose name is the first of all
        monkeypatch.setattr(os, "geteuid", lambda: 4242)
    kept = Path(save(found, tmp_path / "plan.json", HOUR).kept)
    for number in range(150):
        (kept.parent / ("%s-0%d.json" % (DIGEST, number))).write_text("{}")
    assert judge(found, NOW + 2 * HOUR).reason == "expired"
    monkeypatch.setattr(os, "listdir", lambda path: refuse_call(errno.EACCES))
    assert [plan.path for plan in saved_plan.find_plans(str(config.parent), DIGEST)] == [str(kept)]


def test_a_copy_that_counts_and_can_not_be_read_is_no_leave_to_launch(config, tmp_path, monkeypatch):
    """Until when it was good is not known."""
    found, kept = find(config), Path(save(find(config), tmp_path / "plan.json").kept)
    whole = kept.read_text()
    other = json.dumps(dict(json.loads(whole), digest="0" * 8))
    for text in ("", whole[:200], other):
        kept.write_text(text)
        error = judge(found)
        assert (error.code, error.reason) == (3, "undated") and "plan %s was saved in %s, which can't be read" % (
            DIGEST, kept) in error.message and "with --save FILE" in error.hint
        assert judge(found, plan_file=str(tmp_path / "plan.json")) is None  # what was given is what counts
    kept.write_text(whole)
    monkeypatch.setattr(saved_plan, "open_file", lambda path: refuse_call(errno.EACCES))
    assert "can't be read (Permission denied)" in judge(found).message
    monkeypatch.undo()
    kept.unlink()
    kept.symlink_to(config)
    assert "it is a link" in judge(found).message
    kept.unlink()
    if os.geteuid():
        return
    kept.write_text("")
    os.chown(str(kept), 4242, 4242)
    assert judge(found) is None  # another user's, who may write there what he likes
    os.chown(str(kept), 0, 0)
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    assert judge(found).reason == "undated"  # root's counts too…
    monkeypatch.setattr(saved_plan, "open_file", lambda path: refuse_call(errno.EACCES))
    assert judge(found) is None  # …but is closed to others as it was saved
    monkeypatch.undo()
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    os.chown(save(found, tmp_path / "own.json").kept, 4242, 4242)
    assert judge(found) is None  # the own one is there


# --- another plan


def test_what_moved_is_told_from_the_plan_that_was_given(config, tmp_path):
    saved = save(find(config, environment="x"), tmp_path / "plan.json")
    os.unlink(saved.kept)
    config.write_text(config.read_text().replace("64", "128").replace(SECRET, "not-a-real-key-2222"))
    found = find(config, "0" * 8)
    error = judge(found, plan_file=saved.path)
    assert (error.code, error.reason) == (3, "digest")
    assert error.message.startswith("the plan is 00000000 now, not 3f9c2a71; nothing was launched.")
    assert "x.env: TRAIN_BATCH=64 → TRAIN_BATCH=128" in error.message and saved.path in error.message
    assert "real-key" not in error.message + str(error.shape)
    assert {"field": "x.env", "old": "TRAIN_BATCH=64", "new": "TRAIN_BATCH=128", "change": "changed"} in error.shape["moved"]
    plain = judge(found)
    assert plain.brief == "the plan is 00000000 now, not 3f9c2a71: what changed is not recorded"
    assert "What changed is not recorded" in plain.message and "x.env (written" in plain.message and plain.shape["moved"] is None


def test_a_secret_in_a_plan_that_somebody_edited_is_not_shown(config, tmp_path):
    path = tmp_path / "plan.json"
    save(find(config), path)
    shape = json.loads(path.read_text())
    shape["parts"].update({"environment X": SECRET, "overrides": json.dumps(["--api-key=abcd1234efgh"])})
    edit(path, parts=shape["parts"], texts={str(config): "HF_TOKEN=hf_abcdefghijklmnop1234\nTRAIN_BATCH=\x1b[2J\n"})
    config.write_text("TRAIN_BATCH=9\n")
    error = judge(find(config, "0" * 8), plan_file=str(path))
    told = error.message + str(error.shape)
    assert not [word for word in (SECRET, "abcd1234efgh", "abcdefghijklmnop", "\x1b[") if word in error.message]
    assert SECRET not in told and "abcd1234efgh" not in told and "HF_TOKEN is gone" in told


def test_a_path_with_an_umlaut_is_the_same_in_every_locale(config, tmp_path):
    letters, as_bytes = "/c/über", os.fsencode("/c/über").decode("ascii", "surrogateescape")
    saved = save(find(config, **{"file " + letters: "1" * 64, "block": letters}), tmp_path / "plan.json")
    other = find(config, "0" * 8, **{"file " + as_bytes: "1" * 64, "block": as_bytes, "kind": "eval"})
    error = judge(other, plan_file=saved.path)
    assert [move["field"] for move in error.shape["moved"]] == ["kind"]


# --- launched already


def record(root, name, digest, pid, ended=True):
    folder = root / "logs/rlrun" / name
    folder.mkdir(parents=True)
    shown = {"schema": 1, "id": name, "digest": digest, "time_seconds": NOW, "user": "alice", "root": str(root),
             "boot_id": procs.read_boot_id(), "host": os.uname().nodename, "pid_namespace": procs.read_pid_namespace(),
             "runner": {"pid": pid, "pgid": pid, "start_ticks": procs.read_identity(pid).start_ticks}}
    (folder / "record.json").write_text(json.dumps(shown))
    if ended:
        (folder / "exit.json").write_text(json.dumps({"status": 0, "signal": None}))
    return folder


def test_a_launch_uses_the_approval_up_and_a_run_that_lives_blocks(config, tmp_path):
    found, root = find(config), config.parent
    save(found, tmp_path / "plan.json")  # plans/ is no record
    record(root, "20260101-000000-train-x", DIGEST, os.getpid())
    done = judge(found)
    assert (done.code, done.reason) == (3, "again") and judge(found, again=True) is None
    assert refuse(approval.refuse_launched, found, choose()).reason == "again"
    record(root, "20250101-000000-train-x", DIGEST, os.getpid(), ended=False)
    lives = judge(found)
    assert (lives.code, lives.reason) == (1, "job:running")
    assert "20250101-000000-train-x (pid %d, alice)" % os.getpid() in lives.message
    approval.refuse_launched(found, choose("0" * 8))
    approval.refuse_launched(found, choose(again=True))


def test_no_word_of_another_makes_a_line_of_its_own(config, tmp_path):
    """Whoever writes a plan or a record writes its user, host and name too."""
    found, path, evil = find(config), tmp_path / "a\nb.json", "x\nrlrun: all is well\x1b[2J"
    save(found, path)
    shape = json.loads(path.read_text())
    edit(path, user=evil, host=evil, time_seconds=NOW + 9 * HOUR, parts=dict(shape["parts"], **{evil: "1", "block": evil}))
    errors = [judge(found, plan_file=str(path), valid_seconds=HOUR), judge(found, digest="0" * 8, plan_file=str(path)),
              judge(found, plan_file=str(tmp_path / evil)), judge(find(config, "0" * 8), plan_file=str(path))]
    os.unlink(str(config.parent / "logs/rlrun/plans" / ("%s-%d.json" % (DIGEST, os.geteuid()))))
    folder = record(config.parent, "20260101-000000-train-x", DIGEST, os.getpid())
    edit(folder / "record.json", id=evil, user=evil)
    errors += [judge(found), judge(find(config, "0" * 8))]
    os.unlink(str(folder / "exit.json"))
    errors.append(judge(found))
    assert [error.reason for error in errors] == ["clock", "plan", "plan", "digest", "again", "digest", "job:running"]
    for error in errors:
        assert "x1b[2J" in error.message or "a\\nb" in error.message, error.message
        assert "\x1b" not in error.message + error.hint and not [
            line for line in (error.message + "\n" + error.hint).split("\n") if line.startswith(("rlrun", "b.json"))
            and not line.startswith("rlrun status '")]


@pytest.mark.parametrize("name", ["\\u0000", "\\ud800", "/x.\\u0000", "/x.\\ud800"])
def test_a_record_with_a_path_that_is_none_is_no_crash(config, name):
    folder = record(config.parent, "20260101-000000-train-x", DIGEST, os.getpid())
    text = json.dumps(dict(json.loads((folder / "record.json").read_text()), config_path="NAME", more_configs=["NAME"],
                           parts={"root": "NAME"}))
    (folder / "record.json").write_text(text.replace("NAME", name))
    assert judge(find(config, "0" * 8)).reason == "digest"


def test_the_record_of_a_launch_tells_what_it_keeps(config):
    folder = record(config.parent, "20260101-000000-train-x", DIGEST, os.getpid())
    parts = saved_plan.make_content(find(config, block="b" * 500, environment="x"), (SECRET,)).parts
    edit(folder / "record.json", parts=digest.shorten_parts(parts, (SECRET,)), config_path=str(config), more_configs=[7])
    (folder / "config.env").write_text(config.read_text().replace(SECRET, "<redacted>"))
    (folder / "git.txt").write_text("commit %s\nbranch main\nmodified a b\n" % ("a" * 40))
    config.write_text(config.read_text().replace("64", "128"))
    error = judge(find(config, "0" * 8, block="b" * 500, environment="x"))
    assert "since that plan was launched (20260101-000000-train-x): x.env: TRAIN_BATCH=64 → TRAIN_BATCH=128" in error.message
    assert len(error.shape["moved"]) == 1  # the block's hash is the same
    error = judge(find(config, "0" * 8, dirty=["a b", "c"], block="c" * 500, environment="y", **{"dirty files": "a b c 1"}))
    assert [move["field"] for move in error.shape["moved"]] == ["x.env", "environment", "modified file c"]  # the line explains it
    assert error.brief == "the plan is 00000000 now, not 3f9c2a71: x.env: TRAIN_BATCH=64 → TRAIN_BATCH=128; and 2 more"
    config.write_text("TRAIN_BATCH=%s\n" % ("9" * 500))
    error = judge(find(config, "0" * 8, block="c" * 500, environment="x"))
    assert "TRAIN_BATCH=64 → TRAIN_BATCH=999" in error.brief and len(error.brief) < 200 and error.brief.endswith("…; and 2 more")


# --- a file that is none


@pytest.mark.parametrize("text", [b"", b"\x00\xff\xfe" * 100, b"[" * 100000, b"{}", b"null", b'{"rlrun_file": "approved plan"}',
                                  b" " * (9 << 20), b'{"rlrun_file": "approved plan", "schema": 1, "digest": "3f9c2a71"}'],
                         ids=["empty", "binary", "nested", "object", "null", "schema", "huge", "bare"])
def test_what_is_no_plan_is_refused_in_words(config, tmp_path, text):
    path = tmp_path / "plan.json"
    path.write_bytes(text)
    error = judge(find(config), plan_file=str(path))
    assert (error.code, error.reason) == (2, "plan") and "nothing was launched" in error.message and error.hint


def test_wrong_types_are_refused_or_dropped(config, tmp_path):
    found, path = find(config), tmp_path / "plan.json"
    save(found, path)
    for changes in ({"schema": True and 2}, {"digest": 7}, {"digest": "no digest"}, {"parts": []}, {"parts": {"root": 1}},
                    {"time_seconds": "now"}, {"time_seconds": True}, {"time_seconds": None}, {"time_seconds": float("inf")},
                    {"valid_seconds": "12h"}, {"valid_seconds": float("nan")}, {"uid": 10 ** 20}):
        save(found, path)
        edit(path, **changes)
        assert judge(found, plan_file=str(path)).reason == "plan", changes
        path.unlink()
    save(found, path)
    edit(path, texts=7, modified=[1], user=None, host={}, more="\ud800")
    assert judge(found, plan_file=str(path)) is None
    error = judge(find(config, "0" * 8, kind="\ud800"), plan_file=str(path))
    assert error.reason == "digest" and error.shape["moved"]
    assert judge(found, digest="0" * 8, plan_file=str(path)).message.count(DIGEST) == 1


def test_what_is_no_file_is_not_waited_for(config, tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(str(fifo))
    for path in (fifo, tmp_path, tmp_path / "missing", "/dev/zero"):
        error = judge(find(config), plan_file=str(path))
        assert (error.code, error.reason) == (2, "plan") and str(path) in error.message
    folder = config.parent / "logs/rlrun/plans"
    folder.mkdir(parents=True)
    os.mkfifo(str(folder / (DIGEST + "-0.json")))
    (folder / (DIGEST + "-1.json")).mkdir()
    (folder / (DIGEST + "-2.json")).symlink_to(config)
    assert saved_plan.find_plans(str(config.parent), DIGEST) == []
