"""The line that `schedule` prints, in a real crontab under Debian's cron, and its sibling under at: both in a box whose spool,
mailer and tables are its own. The machine's cron is neither seen nor touched."""

import glob
import os
import shutil
import signal
import subprocess

import pytest
from checkouts import add_config

from . import box as b
from . import survival

_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_MISSING = [name for name in ("cron", "crontab", "atd", "at") if not shutil.which(name, path=_PATH)]
NIGHT = """PROJECT_NAME=toy
EXP_NAME=night-$(date +%Y%m%d-%H%M%S)
: "${TOY_BRINGUP_SEC:=0.1}" "${TOY_STEPS:=2}" "${TOY_STEP_SEC:=0.05}"
TEMPLATE_MODULES=(runtime/process.env backend/k8s.env harbor/common.env verl/common.env)
"""
# At the end of the trainer of this checkout: it is held until the file `go` is there, and then ends by itself.
HOLD = """import atexit, os, time
def hold():
    while not os.path.exists(%r):
        time.sleep(0.05)
atexit.register(hold)
"""
# One file a mail: the headers, an empty line, the body.
SENDMAIL = """#!/bin/sh
file=$(mktemp %s/mail.XXXXXX) && cat >"$file.part" && mv "$file.part" "$file.whole"
"""

pytestmark = pytest.mark.skipif(
    bool(_MISSING), reason="no cron and at here (Debian: cron at): %s is missing" % ", ".join(_MISSING))


@pytest.fixture
def held_root(root, tmp_path):
    """A toy checkout with the config `night`, whose run waits in the end."""
    add_config(root, "train", "night", NIGHT)
    trainer = os.path.join(root, "stubs", "verl", "trainer", "main_ppo.py")
    text = b.read(trainer)
    with open(trainer, "w", encoding="utf-8") as out:
        out.write(HOLD % str(tmp_path / "go") + text)
    return root


def make_machine(box):
    """Spool, tables and mailer of the box's own, over those of the machine."""
    done = b.run(["sh", "-ec", """
        mount -t tmpfs tmpfs /run && mkdir -p /run/sbin && : >/run/none
        mount --bind /usr/sbin /run/sbin && mount -t tmpfs tmpfs /usr/sbin
        ln -s /run/sbin/* /usr/sbin/ && rm -f /usr/sbin/sendmail
        mount -t tmpfs tmpfs /var/spool/cron && cd /var/spool/cron
        mkdir -m 1730 crontabs && chgrp crontab crontabs && mkdir -m 1770 atjobs atspool && chown daemon:daemon atjobs atspool
        echo 0 >atjobs/.SEQ && chown daemon:daemon atjobs/.SEQ && chmod 600 atjobs/.SEQ
        mount -t tmpfs tmpfs /etc/cron.d && { [ ! -e /etc/crontab ] || mount --bind /run/none /etc/crontab; }
    """], {"PATH": _PATH}, "/")
    assert done.code == 0, done.err
    with open("/usr/sbin/sendmail", "w") as out:
        out.write(SENDMAIL % box.folder)
    os.chmod("/usr/sbin/sendmail", 0o755)


def start_daemon(box, *argv):
    with open(os.path.join(box.folder, argv[0] + ".log"), "ab") as log:
        return subprocess.Popen(argv, env={"PATH": _PATH}, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def stop_daemon(daemon):
    os.kill(daemon.pid, signal.SIGKILL)  # this one process, and none that it started
    daemon.wait()


def read_mails(box):
    """The bodies' lines of the mails that were sent, a list for each."""
    names = sorted(name for name in os.listdir(box.folder) if name.endswith(".whole"))
    return [b.read(os.path.join(box.folder, name)).rstrip("\n").partition("\n\n")[2].split("\n") for name in names]


def schedule(box):
    done = b.rlrun(box, "schedule", "night", "--at", "02:00", "--board", "leave")
    assert done.code == 0, done.err
    return done


def wait_for_record(box, name):
    """Waits for that file in the record of the launch, without a look at anything else: minutes go by. Gives the launch as `runs`
    does, and whether its runner lives."""
    b.wait_for(lambda: glob.glob(os.path.join(box.root, "logs", "rlrun", "2*", name)), name, 90)
    found = b.list_runs(box)[0]
    return dict(found, lives=b.is_alive(found["runner"]["pid"]))


def wait_for_rlrun():
    """Until it has reported; the keeper stays."""
    b.wait_for(lambda: not b.find_processes("--quiet-unless-failed") + b.find_processes("rlrun: launching"), "the end of rlrun")


def note_outcome(start, after, ended, runs):
    """A row of the table of tested survival: `after` the daemon's end, and when the run was over."""
    is_one = runs == 1 and after["lives"] and ended["id"] == after["id"] and ended["state"] == "ended 0"
    survival.add_outcome(start, "the daemon SIGKILLed, after rlrun's report", "one run, on its own to its end" if is_one else
                         "neither one nor none", None, runs, [ended["state"]])


def play_cron(box):
    make_machine(box)
    printed = schedule(box).out
    comment, line = printed.rstrip("\n").split("\n")
    table = os.path.join(box.folder, "table")
    with open(table, "w") as out:  # as it was printed, but for the five fields
        out.write("%s\n* * * * * %s\n" % (comment, line.split(" ", 5)[5]))
    facts = {"installed": b.run(["crontab", table], {"PATH": _PATH}, "/")}
    cron = start_daemon(box, "cron", "-f")
    facts["first"] = wait_for_record(box, "keeper.json")
    wait_for_rlrun()
    stop_daemon(cron)
    facts["after_cron"] = wait_for_record(box, "keeper.json")
    b.add_to_file(os.path.join(box.folder, "go"), "")
    facts["ended"] = wait_for_record(box, "exit.json")
    facts["mails_of_the_launch"] = read_mails(box)
    cron = start_daemon(box, "cron", "-f")
    facts["mails"] = b.wait_for(lambda: read_mails(box), "a mail", 90)
    stop_daemon(cron)
    facts["runs"] = b.list_runs(box)
    facts["log"] = b.read(os.path.join(box.root, "logs", "rlrun", "unattended.log"))
    facts["again"] = b.shell(box, line.split(" ", 5)[5].replace("\\%", "%"))
    return facts


def test_cron_launches_once_and_the_run_outlives_it(play, held_root):
    facts = play(play_cron, held_root, timeout=300)
    assert facts["installed"][0] == 0, facts["installed"]
    assert facts["first"]["state"] == "running" and facts["first"]["lives"]
    assert facts["after_cron"]["state"] == "running" and facts["after_cron"]["lives"]
    assert facts["ended"]["id"] == facts["first"]["id"] and facts["ended"]["state"] == "ended 0"
    assert facts["mails_of_the_launch"] == [], "a launch that went well is no mail"
    assert len(facts["mails"]) == 1 and len(facts["mails"][0]) == 1, facts["mails"]
    told = facts["mails"][0][0]
    assert told.startswith("rlrun: not launched (exit 3): plan ") and "was launched already" in told
    assert told.endswith("all of it: %s/logs/rlrun/unattended.log" % held_root)
    assert [one["id"] for one in facts["runs"]] == [facts["first"]["id"]]
    note_outcome("cron", facts["after_cron"], facts["ended"], len(facts["runs"]))
    assert "Launched (background)" in facts["log"] and facts["log"].count(": exit 0\n") == 1
    code, out, err = facts["again"]
    assert (code, out, err.count("\n")) == (3, "", 1) and "was launched already" in err


def play_at(box):
    make_machine(box)
    told = schedule(box).err
    line = [line for line in told.split("\n") if line.startswith("Or by at")][0][len("Or by at"):].strip()
    printed, _, end = line.rpartition(" | at -t ")
    atd = start_daemon(box, "atd", "-f")
    shell = {"PATH": _PATH, "TOY_STEPS": "9", "HOME": "/", "LC_ALL": "C"}
    submitted = b.run(["sh", "-c", printed + " | at now"], shell, box.folder)
    first = wait_for_record(box, "keeper.json")
    wait_for_rlrun()
    stop_daemon(atd)
    facts = {"end": end, "submitted": submitted, "first": first, "lives": b.is_alive(first["runner"]["pid"])}
    facts["mails"] = read_mails(box)
    b.add_to_file(os.path.join(box.folder, "go"), "")
    facts["ended"] = wait_for_record(box, "exit.json")
    return facts


def test_at_launches_in_crons_environment_and_the_run_outlives_it(play, held_root):
    """The shell that hands it in has another TOY_STEPS, which would be another plan."""
    facts = play(play_at, held_root)
    assert len(facts["end"]) == 12 and facts["end"].endswith("0200")
    assert facts["submitted"][0] == 0 and facts["first"]["lives"] and facts["lives"], facts["submitted"]
    assert facts["ended"]["state"] == "ended 0" and facts["mails"] == []
    note_outcome("at", facts["first"], facts["ended"], 1)
