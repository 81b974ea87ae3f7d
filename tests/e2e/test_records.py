"""What a launch leaves on disk: files, modes, no secret, the end, the states that `runs` shows (P15, L19, D3)."""

import json
import os
import signal
import stat
import subprocess

import pytest
from checkouts import add_config, build_checkout

from . import box as b

MODULES = "TEMPLATE_MODULES=(runtime/process.env backend/k8s.env harbor/common.env verl/common.env)\n"
SECRETS = (
    "not-a-real-wandb-key-1111",
    "not-a-real-password-2222",
    "hf_not_a_real_token_3333",
    "not-a-real-github-token-4444",
    "not-a-real-openai-key-5555",
    "operators-own-secret-6666",
)


def read_files(folder):
    return {
        name: {"mode": stat.S_IMODE(os.lstat(os.path.join(folder, name)).st_mode), "text": b.read(os.path.join(folder, name))}
        for name in sorted(os.listdir(folder))
    }


# --- the files


def play_record(box):
    found = b.launch(box, "demo", "--board", "leave", "--foreground", env=b.SHORT)
    row = b.list_runs(box)[0]
    command = b.read(os.path.join(found["record"], "command.txt"))
    again = b.run(["bash", "-c", command], b.make_env(box, b.SHORT), "/")
    folder = os.path.join(box.root, "logs")
    b.wait_for(lambda: sum(b.read(os.path.join(folder, name)).count("toy trainer: done") for name in os.listdir(folder)
                           if name.startswith("launch_")) == 2, "the end of the launch by hand")
    b.wait_for(lambda: not b.find_processes("scripts/train/train.sh"), "its end")
    logs = sorted(name for name in os.listdir(os.path.join(box.root, "logs")) if name.startswith("launch_"))
    return {
        "found": found,
        "row": row,
        "files": read_files(found["record"]),
        "command": command,
        "again": again,
        "folder": stat.S_IMODE(os.stat(found["record"]).st_mode),
        "log": stat.S_IMODE(os.stat(found["launch_log"]).st_mode),
        "by_hand": "toy trainer: done" in b.read(os.path.join(box.root, "logs", logs[-1])),
        "shown": b.rlrun(box, "runs", row["id"]),
        "missing": b.rlrun(box, "runs", "nonsense"),
        "commit": b.run(["git", "rev-parse", "HEAD"], box.env, box.root).out.strip(),
    }


def test_a_record_holds_what_is_needed_to_read_it_three_weeks_later(play, tmp_path):
    root = build_checkout(tmp_path / "lego", git=True)
    facts = play(play_record, root)
    files, found = facts["files"], facts["found"]
    assert set(files) == {
        "record.json",
        "command.txt",
        "configuration.txt",
        "config.env",
        "git.txt",
        "keeper.json",
        "exit.json",
    }
    assert facts["folder"] == 0o755 and files["config.env"]["mode"] == 0o600 and files["record.json"]["mode"] == 0o644
    record, ended = (json.loads(files[name]["text"]) for name in ("record.json", "exit.json"))
    assert (record["schema"], record["kind"], record["config"], record["digest"]) == (
        1,
        "train",
        "scripts/train/configs/demo.env",
        found["digest"],
    )
    assert record["experiment"] == found["experiment"] and record["runner"]["pid"] == found["runner"]["pid"]
    assert record["argv"] == ["bash", "scripts/train/train.sh", "scripts/train/configs/demo.env"]
    assert (ended["status"], ended["signal"]) == (0, None) and ended["duration_seconds"] > 0 and ended["max_rss_kib"] > 0
    assert "run configuration (train)" in files["configuration.txt"]["text"]
    assert "commit %s" % facts["commit"] in files["git.txt"]["text"]
    assert files["config.env"]["text"] == open(os.path.join(root, "scripts/train/configs/demo.env")).read()
    assert facts["again"][0] == 0 and facts["by_hand"], facts["command"]
    assert facts["row"]["state"] == "ended 0" and facts["row"]["exit"] == 0 and facts["row"]["user"] == "root"
    code, out, err = facts["shown"]
    assert code == 0 and "ended 0" in out and "setsid" in out and facts["commit"] in out and "peak memory" in out
    assert facts["missing"][0] == 2 and facts["row"]["id"] in facts["missing"][2]


# --- secrets


def play_secrets(box, config):
    env = dict(b.SHORT, MY_OWN_TOKEN="operators-own-secret-6666")
    shown = [b.rlrun(box, "check", config, env=env), b.rlrun(box, "run", config, env=env)]
    digest = b.check(box, config, env=env)["digest"]
    shown.append(b.rlrun(box, "run", config, "--confirm", digest, "--board", "leave", env=env))
    words = ("run", config, "--confirm", digest, "--again", "--board", "leave", "--old-log", "lose", "--foreground")
    shown.append(b.rlrun(box, *words, env=env))
    shown.append(b.rlrun(box, *words, "--json", env=env))
    rows = b.list_runs(box)
    b.wait_for(lambda: not b.find_processes("rlrun: keeper"), "the keepers' end")
    shown += [
        b.rlrun(box, "runs", rows[0]["id"]),
        b.rlrun(box, "runs", rows[0]["id"], "--json"),
        b.rlrun(box, "runs", "--json"),
    ]
    return {
        "shown": shown,
        "records": [read_files(row["record"]) for row in rows],
        "logs": [{"mode": stat.S_IMODE(os.stat(row["launch_log"]).st_mode), "text": b.read(row["launch_log"])} for row in rows],
    }


@pytest.mark.parametrize("config", ["secret", "secret_eval"])
def test_no_secret_in_a_record_nor_on_the_screen(play, root, config):
    facts = play(play_secrets, root, config=config)
    for number, (code, out, err) in enumerate(facts["shown"]):
        assert code in (0, 3, 4), err
        for secret in SECRETS:
            assert secret not in out + err, "%s in output %d" % (secret, number)
    assert len(facts["records"]) == 3
    for files in facts["records"]:
        for name, file in files.items():
            for secret in SECRETS:
                assert secret not in file["text"], "%s in %s" % (secret, name)
        assert "PROJECT_NAME=toy" in files["config.env"]["text"]
    for log in facts["logs"]:  # the runner prints them there, so nobody else may read it
        assert SECRETS[2] in log["text"] and log["mode"] == 0o600


def play_fatal(box):
    env = {"MY_TOKEN": SECRETS[5]}
    digest = b.check(box, "refuses", env=env)["digest"]
    words = ("run", "refuses", "--confirm", digest, "--again", "--board", "leave")
    shown = [b.rlrun(box, *words, env=env), b.rlrun(box, *words, "--json", env=env)]
    shown += [b.rlrun(box, *words, "--foreground", "--old-log", "lose", env=env)]
    return {"shown": shown, "records": [read_files(row["record"]) for row in b.list_runs(box)]}


def test_no_secret_of_the_launch_log_s_last_words(play, root):
    add_config(root, "train", "refuses", "PROJECT_NAME=toy\nEXP_NAME=refuses\n" + MODULES + (
        '[ "$DRY_RUN" = 1 ] || die "no answer of https://bob:hunter2hunter2@models" "the token was $MY_TOKEN"\n'))
    facts = play(play_fatal, root)
    for code, out, err in facts["shown"]:
        assert code == 4 and "no answer of https://" in out, out + err
        assert "hunter2" not in out + err and SECRETS[5] not in out + err
    for files in facts["records"]:
        assert "no answer of" in files["record.json"]["text"]
        assert not [name for name in files if "hunter2" in files[name]["text"] or SECRETS[5] in files[name]["text"]
                    and not name.startswith("config.")]


# --- how it ended


def play_states(box):
    facts = {}

    def end(name, number, *, spare_keeper=True):
        found = b.launch(box, "demo", "--board", "leave", "--again", env=dict(b.LONG, TOY_NOTE=name))
        if not spare_keeper:
            os.kill(found["runner"]["keeper"], signal.SIGKILL)
        if spare_keeper and number == signal.SIGKILL:
            os.kill(found["runner"]["pid"], number)
        os.killpg(found["runner"]["pgid"], number)
        b.wait_for(lambda: not b.list_group(found["runner"]["pgid"]) and not b.is_alive(found["runner"]["keeper"]), "the end")
        facts[name] = b.list_runs(box)[0]
        facts[name]["files"] = sorted(os.listdir(found["record"]))
        b.wait_for_the_next_second()

    end("SIGKILL", signal.SIGKILL)
    end("SIGTERM", signal.SIGTERM)
    end("both", signal.SIGKILL, spare_keeper=False)
    failed = b.launch(box, "fails_late", "--board", "leave", "--foreground", env=b.SHORT)
    facts["n"] = dict(b.list_runs(box)[0], code=failed["code"])
    return dict(facts, text=b.rlrun(box, "runs").out, order=[row["id"] for row in b.list_runs(box)])


def test_runs_tells_how_each_launch_ended(play, root):
    facts = play(play_states, root)
    assert facts["SIGKILL"]["state"] == "killed by SIGKILL" and facts["SIGKILL"]["exit"] is None
    assert facts["SIGTERM"]["state"] in ("killed by SIGTERM", "ended 143")
    assert facts["both"]["state"] == "lost" and "exit.json" not in facts["both"]["files"]
    assert (facts["n"]["state"], facts["n"]["exit"], facts["n"]["code"]) == ("ended 1", 1, 4)
    assert facts["order"] == sorted(facts["order"], reverse=True)
    lines = facts["text"].splitlines()
    assert lines[0].split() == ["STATE", "AGE", "KIND", "CONFIG", "NAME", "USER", "ID"] and len(lines) == 5
    assert [line.split("  ")[0] for line in lines[1:]] == [facts[name]["state"] for name in ("n", "both", "SIGTERM", "SIGKILL")]


def play_stale(box):
    found = b.launch(box, "demo", "--board", "leave", env=b.LONG)
    os.kill(found["runner"]["keeper"], signal.SIGKILL)
    os.killpg(found["runner"]["pgid"], signal.SIGKILL)
    b.wait_for(lambda: not b.list_group(found["runner"]["pgid"]), "the end")
    # Another process has the pid now, as far as the record can tell.
    bystander = subprocess.Popen(["sleep", "999"])
    path = os.path.join(found["record"], "record.json")
    record = json.loads(b.read(path))
    states = {}
    for name, runner, boot in (("start", {"start_ticks": 1}, record["boot_id"]), ("boot", {}, "another-boot")):
        ticks = int(b.read("/proc/%d/stat" % bystander.pid).rpartition(")")[2].split()[19])
        changed = dict(
            record, boot_id=boot, runner=dict(record["runner"], pid=bystander.pid, pgid=bystander.pid, start_ticks=ticks)
        )
        changed["runner"].update(runner)
        with open(path, "w") as out:
            json.dump(changed, out)
        states[name] = b.list_runs(box)[0]["state"]
    b.wait_for_the_next_second()
    again = b.launch(box, "demo", "--board", "leave", "--again", env=b.LONG)
    return {"states": states, "again": again["code"], "stderr": again["stderr"], "alive": bystander.poll() is None}


def test_P15_a_stale_pid_in_a_record_neither_refuses_nor_is_signalled(play, root):
    facts = play(play_stale, root)
    assert facts["states"] == {"start": "lost", "boot": "lost"}
    assert facts["again"] == 0 and facts["alive"], facts["stderr"]


def play_same_second(box):
    digest = b.check(box, "silent_exit")["digest"]
    codes = [
        b.rlrun(box, "run", "silent_exit", "--confirm", digest, "--again", "--board", "leave", "--foreground", "-q").code
        for _ in range(3)
    ]
    rows = b.list_runs(box)
    # The clock stands still: the records of one second.
    clock = (
        "import sys, time; sys.path.insert(0, sys.argv[1]); from rlrun.steps import record; from rlrun import values\n"
        "plan = values.Plan(*['' for _ in values.Plan._fields])._replace(root=sys.argv[2], kind='train', config='/x/a.env')\n"
        "for _ in range(3): made = record.create(plan, 1e9, False); print(made.record, made.launch_log)\n"
    )
    made = b.run([box.python, "-c", clock, box.pyz, box.root], box.env, box.root)
    return {"codes": codes, "logs": [b.read(row["launch_log"]) for row in rows], "made": made.out.split(), "err": made.err}


def test_L19_launches_within_a_second_have_different_names_and_keep_their_logs(play, root):
    facts = play(play_same_second, root)
    assert facts["codes"] == [4, 4, 4]
    assert len(facts["logs"]) == 3 and all("[shm] after cleanup:" in text for text in facts["logs"])
    assert len(set(facts["made"])) == 6, facts["err"]


def play_broken_records(box):
    found = b.launch(box, "demo", "--board", "leave", "--foreground", env=b.SHORT)
    folder = os.path.join(box.root, "logs/rlrun")
    for name, text in (
        ("20990101-000000-train-half", '{"schema": 1, "id": "20'),
        ("20980101-000000-train-list", "[]"),
        ("20970101-000000-train-odd", '{"schema": 1, "time_seconds": "x\\u001b[31m", "runner": {"pid": "many"}, "exit": 7}'),
        ("20960101-000000-train-bytes", "\udcff\udcfe"),
    ):
        os.mkdir(os.path.join(folder, name))
        with open(os.path.join(folder, name, "record.json"), "wb") as out:
            out.write(text.encode("utf-8", "surrogateescape"))
    os.mkdir(os.path.join(folder, "20950101-000000-train-empty"))
    b.wait_for_the_next_second()
    with open(os.path.join(folder, "a file"), "w"):
        pass
    return {
        "text": b.rlrun(box, "runs"),
        "json": b.rlrun(box, "runs", "--json"),
        "id": found["record"].rpartition("/")[2],
        "one": b.rlrun(box, "runs", "train-half"),
        "again": b.launch(box, "demo", "--board", "leave", "--again", "--foreground", env=b.SHORT)["code"],
    }


def test_records_that_are_broken_are_told_as_such(play, root):
    facts = play(play_broken_records, root)
    code, out, err = facts["text"]
    assert code == 0 and out.count("unreadable") >= 3 and facts["id"] in out and "\x1b" not in out, err
    assert facts["json"][0] == 0 and facts["one"][0] == 0 and facts["again"] == 0


# --- where nothing can be written


def play_no_room(box, how):
    logs = os.path.join(box.root, "logs")
    os.makedirs(logs, exist_ok=True)
    prefix = []
    if how == "full":
        subprocess.check_call(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", logs])
        subprocess.call(["dd", "if=/dev/zero", "of=" + os.path.join(logs, "filler")], stderr=subprocess.DEVNULL)
    elif how == "inodes":
        subprocess.check_call(["mount", "-t", "tmpfs", "-o", "nr_inodes=3", "tmpfs", logs])
    elif how == "read-only":
        subprocess.check_call(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", logs])
    else:  # like a quota: the write itself fails
        prefix = ["bash", "-c", 'ulimit -f 0; exec "$@"', "limited"]
    digest = b.check(box, "off_repo_log", env=b.SHORT)["digest"]
    argv = prefix + [box.python, box.pyz, "run", "off_repo_log", "--confirm", digest, "--board", "leave", "--json"]
    done = b.run(argv, b.make_env(box, b.SHORT), box.root)
    return {
        "done": done,
        "runners": b.find_processes("scripts/train/train.sh"),
        "keepers": b.find_processes("rlrun: keeper"),
        "trials": os.path.isdir(os.path.join(box.root, "trials")),
        "runs": b.rlrun(box, "runs", "--json"),
    }


@pytest.mark.parametrize(
    "how,words",
    [
        ("full", "No space left"),
        ("inodes", "No space left"),
        ("read-only", "Read-only file system"),
        ("quota", "File too large"),
    ],
)
def test_D3_where_the_record_can_not_be_written_nothing_is_launched(play, root, how, words):
    facts = play(play_no_room, root, how=how)
    code, out, err = facts["done"]
    assert code == 5 and words in err and "Traceback" not in err, err
    told = json.loads(out)
    assert (told["launched"], told["exit"]) == (False, 5) and told["reason"] == ("scratch" if how == "quota" else "record")
    assert facts["runners"] == facts["keepers"] == [] and not facts["trials"]
    assert facts["runs"][0] == 0 and all(
        row["state"] in ("not started", "unreadable") for row in json.loads(facts["runs"][1])["runs"]
    )


def play_full_later(box):
    """The disk fills up while the run lives: it goes on, and its end is written once there is room again."""
    logs = os.path.join(box.root, "logs")
    os.makedirs(logs, exist_ok=True)
    subprocess.check_call(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", logs])
    told = os.path.join(box.folder, "told")
    notify = "sh -c 'printf %%s \"$RLRUN_EVENT $RLRUN_SIGNAL\" >%s'" % told
    found = b.launch(box, "off_repo_log", "--board", "leave", "--notify", notify, env=b.LONG)
    filler = os.path.join(logs, "filler")
    subprocess.call(["dd", "if=/dev/zero", "of=" + filler], stderr=subprocess.DEVNULL)
    os.killpg(found["runner"]["pgid"], signal.SIGKILL)
    b.wait_for(lambda: not b.list_group(found["runner"]["pgid"]), "the end of the run")
    before = b.list_runs(box)[0]["state"]
    b.wait_for(lambda: b.read(told) == "ended SIGKILL", "the notice of the end, though nothing can be recorded")
    keeper = b.is_alive(found["runner"]["keeper"])
    os.unlink(filler)
    b.wait_for(lambda: not b.is_alive(found["runner"]["keeper"]), "the keeper's end")
    return {"code": found["code"], "before": before, "keeper": keeper, "after": b.list_runs(box)[0]["state"]}


def test_the_end_is_recorded_even_where_the_disk_was_full(play, root):
    facts = play(play_full_later, root)
    assert facts["code"] == 0 and facts["keeper"]
    assert facts["after"] == "killed by SIGKILL"


def play_others_checkout(box):
    """A shared checkout: root's, readable for all; a user of no rights launches in it."""
    shared = "/srv/shared"
    subprocess.check_call(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/srv"])
    subprocess.check_call(["cp", "-r", box.root, shared])
    subprocess.check_call(["cp", box.pyz, "/srv/rlrun.pyz"])
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
    env = b.make_env(box, b.SHORT, {"HOME": "/"})
    facts = {}
    for name in ("denied", "allowed"):
        if name == "allowed":
            os.makedirs(os.path.join(shared, "logs"))
            os.chmod(os.path.join(shared, "logs"), 0o1777)
        checked = b.run(nobody + [PYTHON, "/srv/rlrun.pyz", "check", "off_repo_log", "--json"], env, shared)
        facts[name] = b.run(
            nobody
            + [
                PYTHON,
                "/srv/rlrun.pyz",
                "run",
                "off_repo_log",
                "--confirm",
                json.loads(checked.out)["digest"],
                "--board",
                "leave",
            ],
            env,
            shared,
        )
    os.chmod("/srv/shared", 0o777)
    return dict(facts, rows=b.list_runs(box._replace(root=shared, pyz="/srv/rlrun.pyz")))


PYTHON = "/usr/bin/python3"


@pytest.mark.skipif(not os.access(PYTHON, os.X_OK), reason="needs a Python that every user can run")
def test_another_users_checkout_is_refused_or_recorded_under_the_launchers_name(play, root):
    facts = play(play_others_checkout, root)
    code, out, err = facts["denied"]
    assert code == 5 and "Permission denied" in err and "ask the checkout's owner" in err
    code, out, err = facts["allowed"]
    assert [row["user"] for row in facts["rows"]] == ["nobody"] and code == 4, (
        err
    )  # trials/ can't be written: the run itself says so
    assert "Permission denied" in out


def play_run_that_prints(box):
    return b.launch(box, "loud", "--board", "leave", "--foreground", env=b.SHORT)["code"], b.list_runs(box)[0]["experiment"]


def test_a_log_that_is_not_utf_8_is_read_back(play, root):
    add_config(root, "train", "loud", "PROJECT_NAME=toy\nEXP_NAME=loud\nprintf '\\xff\\xfe\\x1b[31m\\n'\n" + MODULES)
    assert play(play_run_that_prints, root) == [0, "loud"]
