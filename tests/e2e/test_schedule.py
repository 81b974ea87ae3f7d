"""`rlrun schedule`: the line works as printed, in the environment that cron gives; what no line can hold or answer is refused.
And what a launch that nobody looks at says: nothing, or one line."""

import json
import os
import re
import stat
import time

from checkouts import add_config, add_prime_config, build_checkout, build_prime_checkout

from . import box as b

MODULES = "TEMPLATE_MODULES=(runtime/process.env backend/k8s.env harbor/common.env verl/common.env)\n"
LONG = ': "${TOY_BRINGUP_SEC:=0.1}" "${TOY_STEPS:=100000}" "${TOY_STEP_SEC:=0.2}"\n'
NAMED = "PROJECT_NAME=toy\nEXP_NAME=%s-$(date +%%Y%%m%%d-%%H%%M%%S)\n"
# What cron gives, the PATH of the line aside.
CRON = {"HOME": "/root", "LOGNAME": "root", "SHELL": "/bin/sh", "PATH": "/usr/bin:/bin"}


def read_command(printed):
    """The command of the crontab line, as cron hands it to the shell; and its five fields."""
    line = printed.rstrip("\n").split("\n")[-1].split(" ", 5)
    return line[5].replace("\\%", "%"), line[:5]


def run_as_cron(box, command):
    return b.run(["/bin/sh", "-c", command], CRON, "/root")


def read_log(box):
    path = os.path.join(box.root, "logs", "rlrun", "unattended.log")
    return b.read(path), oct(stat.S_IMODE(os.stat(path).st_mode)) if os.path.exists(path) else ""


def schedule(box, *words, env=None, cwd=""):
    return b.rlrun(box, "schedule", *words, env=env, cwd=cwd)


def play_line(box):
    facts = {"before": b.count_traces(box)["runners"]}
    words = ("night", "--at", "02:00", "--board", "leave", "--dry-run-timeout", "1234567")
    facts["printed"] = schedule(box, *words)
    command, facts["fields"] = read_command(facts["printed"].out)
    facts["tree"] = b.count_traces(box)
    facts["launched"] = run_as_cron(box, command)
    facts["log"], facts["mode"] = read_log(box)
    b.end_runs()
    facts["runs"] = b.list_runs(box)
    facts["refused"] = run_as_cron(box, command)
    facts["second_log"] = read_log(box)[0]
    facts["no_json"] = run_as_cron(box, command.replace("--quiet-unless-failed", "--quiet-unless-failed --json"))
    facts["json_log"] = read_log(box)[0]
    failed = re.search("(?m)^Next day    (.*)$", facts["printed"].err).group(1)
    facts["failed"] = b.run(["/bin/sh", "-c", failed], CRON, "/")
    facts["again"] = schedule(box, *words)
    b.add_to_file(os.path.join(box.root, "scripts/train/configs/night.env"), "TOY_STEPS=3\n")
    facts["moved"] = run_as_cron(box, command)
    os.rename(os.path.join(box.root, "logs", "rlrun", "unattended.log"), os.path.join(box.folder, "kept"))
    for name in ("unattended.log", "unattended-%d.log" % os.geteuid()):
        os.mkdir(os.path.join(box.root, "logs", "rlrun", name))
    facts["no_log"] = run_as_cron(box, command)
    facts["gone"] = run_as_cron(box, command.replace("configs/night.env", "configs/none.env"))
    facts["usage"] = run_as_cron(box, command.replace("--board leave", "--bord leave"))
    facts["end"] = b.count_traces(box)
    return facts


def test_the_line_launches_silently_once_and_then_says_one_line(play, tmp_path):
    root = build_checkout(tmp_path / "50% of a 'check out'")
    add_config(root, "train", "night", NAMED % "night" + LONG + MODULES)
    facts = play(play_line, root)
    code, out, err = facts["printed"]
    assert code == 0 and facts["tree"]["launch_logs"] == facts["tree"]["runners"] == 0
    assert [line[:1] for line in out.split("\n")] == ["#", "0", ""]
    digest = out.split("--confirm ")[1][:8]
    assert " --board leave --dry-run-timeout 1234567 --quiet-unless-failed" in out
    assert out.startswith("# rlrun: plan %s, train, scripts/train/configs/night.env; " % digest) and "50\\% of" in out
    minute, hour, day, month, weekday = facts["fields"]
    assert (minute, hour, weekday) == ("0", "2", "*") and 1 <= int(day) <= 31 and 1 <= int(month) <= 12
    for words in ("SAFE TO RUN: \u2713 YES", "run configuration (train)", "crontab -e", "| at -t ", "judged anew at the launch",
                  "unattended.log", "--failed-since 24h\nBy cron     7 8 * * * ", "can be written to by everybody: cron would"):
        assert words in err, words
    assert not [line for line in err.split("\n") if line.startswith("plan ")], "the plan is in the title, and is cron's"
    assert facts["launched"] == [0, "", ""], facts["launched"]
    assert facts["mode"] == "0o600" and "Launched (background)" in facts["log"] and facts["log"].startswith("--- 20")
    assert ": rlrun run scripts/train/configs/night.env --confirm %s --board leave" % digest in facts["log"].split("\n")[0]
    assert facts["log"].rstrip().endswith(": exit 0") and "plan %s" % digest in facts["log"]
    assert [one["state"] for one in facts["runs"]] == ["killed by SIGKILL"]
    where = " \u2014 all of it: %s/logs/rlrun/unattended.log\n" % root
    assert facts["refused"][:2] == [3, ""]
    assert facts["refused"][2].startswith("rlrun: not launched (exit 3): plan %s was launched already" % digest)
    assert facts["refused"][2].endswith(where) and facts["refused"][2].count("\n") == 1
    assert facts["second_log"].startswith(facts["log"]) and "To launch it once more: --again" in facts["second_log"]
    assert facts["no_json"][0] == 2 and facts["no_json"][2].count("\n") == 1 and facts["no_json"][1] == ""
    told = [line for line in facts["json_log"].split("\n") if line.startswith("{")]
    assert len(told) == 1 and json.loads(told[0])["reason"] == "usage" and json.loads(told[0])["launched"] is False
    code, out, err = facts["failed"]  # as printed, from anywhere
    assert code == 0 and "launched" in out and root in out, facts["failed"]
    assert facts["again"][0] == 3 and "--again" in facts["again"][2] and facts["again"][1] == ""
    assert facts["moved"][0] == 3 and facts["moved"][2].endswith(where)
    moved = " now, not %s: scripts/train/configs/night.env: a new line TOY_STEPS=3; and 1 more \u2014 " % digest
    assert moved in facts["moved"][2]
    assert re.match("rlrun: not launched \\(exit 3\\): the plan is [0-9a-f]{8} now, ", facts["moved"][2])
    assert facts["moved"][2].count("\n") == 1 and len(facts["moved"][2]) <= 301
    assert facts["no_log"][0] == 3
    assert "the rest is lost: %s/logs/rlrun/unattended.log: Is a directory" % root in facts["no_log"][2]
    assert facts["gone"][0] == 2 and facts["gone"][2].count("\n") == 1 and "exit 2" in facts["gone"][2]
    assert facts["usage"][0] == 2 and "--bord" in facts["usage"][2] and "the rest is lost: " in facts["usage"][2]
    assert facts["end"]["launch_logs"] == 1 and facts["end"]["runners"] == 0


def play_ends(box):
    """A blocked one, and one whose run ends at once."""
    command, _ = read_command(schedule(box, "fails", "--at", "02:00", "--board", "leave").out)
    facts = {"ended": run_as_cron(box, command)}
    b.wait_for(lambda: not b.find_processes("rlrun: keeper"), "the end of the run")
    b.wait_for_the_next_second()
    command, _ = read_command(schedule(box, "night", "--at", "02:00", "--board", "leave").out)
    b.launch(box, "pinned", env=b.LONG)
    facts["blocked"] = run_as_cron(box, command)
    facts["now"] = schedule(box, "night", "--at", "02:00", "--board", "leave")
    facts["log"] = read_log(box)[0]
    return facts


def test_a_run_that_ends_and_a_machine_that_is_taken_are_one_line(play, root):
    add_config(root, "train", "fails", NAMED % "fails" + ': "${TOY_SILENT_EXIT:=1}" "${TOY_BRINGUP_SEC:=0.1}"\n' + MODULES)
    add_config(root, "train", "night", NAMED % "night" + LONG + MODULES)
    facts = play(play_ends, root)
    code, out, err = facts["ended"]
    assert (code, out, err.count("\n")) == (4, "", 1) and err.startswith("rlrun: launched, and ended: ended 2 after "), err
    code, out, err = facts["blocked"]
    assert (code, out, err.count("\n")) == (1, "", 1), err
    assert err.startswith("rlrun: not launched (exit 1): A run is already in flight; refusing to start another: pids: pid "), err
    assert "Nothing is retried" in facts["log"] and "pids:   pid " in facts["log"]
    code, out, err = facts["now"]  # time lifts that
    assert code == 0 and "SAFE TO RUN: \u2717 NO" in err and "--wait-free" not in out
    assert "what is in the way now (job:running) may be there then too" in err and "--wait-free 6h waits for that" in err


def play_refusals(box):
    here = os.path.join(box.root, "scripts/train/configs")
    facts = {"questions": schedule(box, "night", "--at", "02:00"),
             "daily": schedule(box, "pinned", "--at", "02:00", "--daily", "--board", "leave"),
             "past": schedule(box, "night", "--at", "2020-01-01 02:00", "--board", "leave"),
             "short": schedule(box, "night", "--at", "02:00", "--board", "leave", "--valid-for", "1s"),
             "zero": schedule(box, "night", "--at", "02:00", "--valid-for", "0"),
             "no_scope": schedule(box, "night", "--at", "02:00", "--scope", env={"PATH": box.folder}),
             "no_notify": schedule(box, "night", "--at", "02:00", "--notify", "nosuch"),
             "shell": schedule(box, "night", "--at", "02:00", "--notify", "true | true"),
             "shell_alone": schedule(box, "night", "--at", "02:00", "--notify-shell"),
             "empty": schedule(box, "night", "--at", "02:00", "--notify", ""),
             "fatal": schedule(box, "fatal", "--at", "02:00", "--board", "leave", "--json"),
             "no_time": schedule(box, "night"),
             "secret": schedule(box, "night", "--at", "02:00", "--board", "leave", "--notify",
                                "curl -d up https://hooks.slack.com/services/T0/B0/0123456789abcdefgh")}
    plans = os.path.join(box.root, "logs", "rlrun", "plans")
    os.makedirs(os.path.dirname(plans))
    b.add_to_file(plans, "in the way\n")
    facts["unsaved"] = schedule(box, "night", "--at", "02:00", "--board", "leave", "--valid-for", "2d")
    os.rename(os.path.join(here, "night.env"), os.path.join(here, "a\nb.env"))
    facts["newline"] = schedule(box, os.path.join(here, "a\nb.env"), "--at", "02:00", "--board", "leave")
    facts["traces"] = b.count_traces(box)["launch_logs"]
    assert b.run(["sh", "-ec", 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0"', box.root], box.env, "/").code == 0
    facts["read_only"] = schedule(box, "pinned", "--at", "02:00", "--board", "leave")
    return facts


def test_what_cron_can_not_be_asked_or_given_is_refused(play, root):
    add_config(root, "train", "night", NAMED % "night" + LONG + MODULES)
    facts = play(play_refusals, root)
    for name, code, words in (
            ("questions", 3, "cron can't be asked, and this is unanswered: --board leave"), ("daily", 3, "--old-log keep|lose"),
            ("past", 2, "is past: it is 20"), ("short", 2, "--valid-for 1s ends before the launch"), ("no_time", 2, "--at"),
            ("newline", 2, "a crontab can't hold this word: scripts/train/configs/a\\nb.env"),
            ("zero", 2, "nothing can be launched within '0'"), ("empty", 2, "--notify names no program"),
            ("no_scope", 5, "--scope: cron's launch would get no scope of its own: there is no systemd-run on PATH"),
            ("no_notify", 2, "no program nosuch on PATH"), ("shell", 2, "Add --notify-shell"),
            ("shell_alone", 2, "--notify-shell goes with --notify"),
            ("read_only", 5, "a launch could not write %s/logs/rlrun: Read-only file system (it belongs to root)" % root),
            ("secret", 2, "name that: --notify SCRIPT"),
            ("unsaved", 5, "--valid-for 2d 0h would be lost: the plan could not be kept in the checkout (File exists)")):
        assert facts[name][0] == code and words in facts[name][2] and facts[name][1] == "", (name, facts[name])
    assert "0123456789abcdef" not in facts["secret"][2]
    told = json.loads(facts["fatal"][1])
    assert told["error"].startswith("nothing to schedule: preflight:fatal  ") and " ok \u00b7" not in told["error"]
    assert facts["fatal"][0] == told["exit"] == 1 and told["reason"] == "preflight:fatal" and told["line"] is None
    assert facts["traces"] == 0


def play_environment(box):
    folders = [os.path.join(box.folder, "x" * 60, str(number)) for number in range(16)]
    for folder in folders:
        os.makedirs(folder)
    long_path = ":".join(["/usr/bin"] + folders + ["/bin"])
    deep = os.path.join(box.folder, *["d" * 200] * 6)
    os.makedirs(os.path.dirname(deep))
    for path in (deep, os.path.join(box.root, "told")):
        os.symlink("/bin/true", path)
    added = os.path.join(box.folder, "environment")
    b.add_to_file(added, "TOY_STEP_SEC='0.3'\n")
    assert b.run(["sh", "-ec", """mount -t tmpfs tmpfs /etc/pam.d && : >/etc/pam.d/cron
                                  mount --bind "$0" /etc/environment""", added], box.env, "/").code == 0
    words = ("night", "--at", "02:00", "--board", "leave")
    facts = {"moves": schedule(box, *words, "--daily", "--json", "--valid-for", "30h", "--notify", "./told",
                               env={"TOY_STEPS": "7", "TZ": "Asia/Tokyo", "PATH": "relative:/usr/bin:/no/such:.:/bin:/usr/bin"}),
             "deep": schedule(box, *words, "--notify", deep),
             "check": b.check(box, "night", env=dict(CRON, PATH="/usr/bin:/bin", TOY_STEP_SEC="0.3"))["digest"]}
    b.add_to_file(added, "WANDB_API_KEY=not-a-real-key-1111\n")
    facts["long"] = schedule(box, *words, "--valid-for", "30h", env={"PATH": long_path, "TZ": "Asia/Tokyo"})
    facts["plans"] = os.listdir(os.path.join(box.root, "logs", "rlrun", "plans"))
    return facts


def test_the_plan_is_that_of_crons_environment(play, root):
    add_config(root, "train", "night", NAMED % "night" + LONG + MODULES)
    facts = play(play_environment, root)
    code, out, err = facts["moves"]
    told = json.loads(out)
    assert code == 0 and told["digest"] == facts["check"] != told["digest_here"]
    assert any("TOY_STEPS" in line and "7" in line and "100000" in line for line in told["moved"]), told["moved"]
    assert any("the line is for cron's" in note for note in told["notes"])
    assert told["path"] == "/usr/bin:/bin" and told["daily"] and told["line"].startswith("0 2 * * * cd ")
    assert " --confirm %s --again " % told["digest"] in told["line"]
    assert told["comment"].startswith("# rlrun: plan " + told["digest"])
    assert time.strftime("%H:%M", time.localtime(told["at_seconds"])) == "02:00", "by the machine's zone, not by TZ"
    assert " TOY_STEP_SEC=0.3 " in told["at_line"] and " --notify %s/told " % root in told["line"]
    until = told["comment"].partition(", good until ")[2]
    assert until == time.strftime("%Y-%m-%d %H:%M", time.localtime(told["until_seconds"])) and told["valid_seconds"] == 108000
    assert any("from %s on every launch is refused" % until in note for note in told["notes"]), told["notes"]
    assert "env -u TZ at -t" in told["at_line"] and told["saved"].endswith(".json") and os.path.isabs(told["python"])
    code, out, err = facts["long"]
    assert code == 0 and " PATH=/usr/bin:/bin " in out and "PATH is shorter in it than here" in err
    assert "Or by at    no line can be had: /etc/environment sets WANDB_API_KEY, which is a secret, " in err
    assert "not-a-real" not in out + err
    assert re.search(", good until (.*)", out).group(1) == re.search("Good until  (.*);", err).group(1)
    code, out, err = facts["deep"]
    assert "--confirm %s " % facts["check"] in err, "a line that can be used as it is"
    assert code == 2 and out == "" and "cron takes 998" in err and "script" in err
    assert [name[:8] for name in facts["plans"] if name.startswith(facts["check"])]


def play_prime(box):
    words = ("reverse-text/rl", "more", "--at", "2:05", "--kind", "rl", "--json", "--", "--max-steps", "3")
    return {"done": schedule(box, *words, env={"CUDA_VISIBLE_DEVICES": "0,1"}),
            "secret": schedule(box, "reverse-text/rl", "--at", "2:05", "--", "--wandb.api-key", "sk-ant-0123456789abcdefgh")}


def test_several_configs_and_overrides(play, tmp_path):
    root = build_prime_checkout(tmp_path / "prime")
    add_prime_config(root, "more", "max_steps = 5\n")
    facts = play(play_prime, root)
    told = json.loads(facts["done"][1])
    assert facts["done"][0] == 0, facts["done"]
    assert " CUDA_VISIBLE_DEVICES=0,1 " in told["line"] and "--kind rl " in told["line"]
    assert told["line"].endswith(" --quiet-unless-failed -- --max-steps 3") and told["digest"] == told["digest_here"]
    assert facts["secret"][0] == 2 and "holds a secret" in facts["secret"][2] and "0123456789abcdef" not in facts["secret"][2]


def play_umlaut(box, launches):
    done = schedule(box, "über", "--at", "02:00", "--board", "leave")
    return {"done": done, "launched": run_as_cron(box, read_command(done.out)[0]) if launches else None}


def test_E3_a_name_that_the_C_locale_can_not_hold(play, tmp_path, edge_python):
    root = build_checkout(tmp_path / "größe")
    add_config(root, "train", "über", NAMED % "über—lauf" + LONG + MODULES)
    is_old = "/3.6." in edge_python
    facts = play(play_umlaut, root, python=edge_python, ships=True, launches=is_old)
    assert facts["done"][0] == 0, facts["done"]
    assert ("LC_ALL=C.UTF-8" in facts["done"][1]) == is_old
    assert facts["launched"] == ([0, "", ""] if is_old else None)
