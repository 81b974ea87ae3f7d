"""The launch itself: detached for good, alone on the machine, judged twice, told truthfully (S1, S3, S7, S11, P17)."""

import json
import os
import shlex
import signal
import socket
import subprocess

import pytest
from checkouts import add_config, build_checkout, write_fake_program

from . import box as b

MODULES = "TEMPLATE_MODULES=(runtime/process.env backend/k8s.env harbor/common.env verl/common.env)\n"
QUESTION = "Launch with this configuration? [y/N] "


def describe_launch(found):
    return {
        "runner": b.describe_process(found["runner"]["pid"]),
        "keeper": b.describe_process(found["runner"]["keeper"]),
        "trainer": b.describe_process(found["trainer"]),
        "lock_free": b.is_lock_free(),
    }


def mask(*numbers):
    return sum(1 << number - 1 for number in numbers)


# --- the core: check, refuse, launch, list, stop, under every Python


def play_whole_life(box):
    env = dict(b.LONG, OPERATORS_OWN="kept", PYTHONPATH="/nowhere/in/particular")
    checked = b.check(box, "demo", env=env)
    refused = b.rlrun(box, "run", "demo", env=env)
    line = refused.err.strip().splitlines()[-1].strip()
    before = b.count_traces(box)
    launched = b.rlrun(box, *shlex.split(line)[1:], "--json", env=env)
    found = json.loads(launched.out)
    facts = describe_launch(found)
    facts["environ"] = [
        row
        for row in b.read("/proc/%d/environ" % found["runner"]["pid"]).split("\0")
        if row.startswith(("OPERATORS_OWN=", "PYTHONPATH="))
    ]
    facts["pipeline"] = len(b.list_group(found["runner"]["pgid"]))
    second = b.rlrun(box, "run", "demo", "--confirm", checked["digest"], "--board", "leave", "--json", env=env)
    running = b.list_runs(box)
    stopped = b.shell(box, found["stop"])
    b.wait_for(lambda: not b.list_group(found["runner"]["pgid"]), "the end of the run")
    b.wait_for(lambda: not b.is_alive(found["runner"]["keeper"]), "the end of the keeper")
    return dict(
        facts,
        checked=checked,
        refused=refused,
        line=line,
        before=before,
        found=found,
        code=launched.code,
        second=dict(json.loads(second.out), code=second.code),
        running=running,
        stopped=stopped.code,
        ended=b.list_runs(box),
        text=b.rlrun(box, "runs").out,
        left=b.find_processes(found["experiment"]),
        one=json.loads(b.rlrun(box, "runs", found["record"].rpartition("/")[2], "--json").out),
    )


def test_S3_S7_P17_a_whole_life_under_every_python(play, root, each_python):
    facts = play(play_whole_life, root, python=each_python)
    assert facts["checked"]["verdict"] == "YES"
    assert facts["refused"][0] == 3 and "--confirm %s" % facts["checked"]["digest"] in facts["line"]
    assert facts["before"] == b.NOTHING

    found = facts["found"]
    assert (facts["code"], found["launched"], found["exit"], found["schema"]) == (0, True, 0, 1)
    assert found["experiment"].startswith("demo-") and found["train_log"].endswith(found["experiment"] + ".log")
    runner = facts["runner"]
    assert runner["fds"] == {
        "0": "/dev/null",
        "1": found["launch_log"],
        "2": found["launch_log"],
        **({"255": runner["fds"]["255"]} if "255" in runner["fds"] else {}),
    }
    assert runner["fds"].get("255", "train.sh").endswith("train.sh")  # bash's own: the script that it reads
    assert (runner["sid"], runner["pgid"], runner["tty"]) == (runner["pid"], runner["pid"], 0)
    # bash ignores SIGQUIT while it waits and blocks SIGCHLD now and then; what it was started with, the trainer shows
    assert not runner["ignored"] & mask(signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE, signal.SIGTSTP)
    assert runner["ppid"] == facts["keeper"]["pid"] and runner["cwd"] == str(root)
    assert sorted(facts["environ"]) == ["OPERATORS_OWN=kept", "PYTHONPATH=/nowhere/in/particular"]

    keeper = facts["keeper"]
    assert keeper["cmdline"] == "rlrun: keeper" and keeper["cwd"] == "/"
    assert set(keeper["fds"].values()) == {"/dev/null"} and len(keeper["fds"]) == 3 + ("3" in keeper["fds"])
    assert keeper["sid"] == keeper["pid"] and keeper["tty"] == 0

    trainer = facts["trainer"]
    assert "-m verl.trainer.main_ppo" in trainer["cmdline"] and trainer["pgid"] == runner["pgid"]
    ignored = trainer["ignored"] & ~(3 << 31)  # 32 and 33 are the C library's own: a posix_spawn (make's) leaves them ignored
    assert ignored == mask(signal.SIGPIPE, signal.SIGXFSZ) and not trainer["blocked"]  # Python's own two
    assert trainer["caught"] & mask(signal.SIGINT) and set(trainer["fds"]) == {"0", "1", "2"}
    assert facts["lock_free"] and facts["pipeline"] >= 3

    assert (facts["second"]["code"], facts["second"]["launched"], facts["second"]["reason"]) == (1, False, "job:running")
    assert facts["second"]["runs"][0]["pid"] == runner["pid"]
    assert [row["state"] for row in facts["running"]] == ["running"]
    assert facts["stopped"] == 0 and facts["left"] == []
    assert facts["ended"][0]["state"] in ("ended 130", "killed by SIGINT") and "demo.env" in facts["text"]
    assert facts["one"]["id"] == facts["ended"][0]["id"] and facts["one"]["argv"][-1] == "scripts/train/configs/demo.env"


# --- what it survives


def play_hangup(box):
    terminal = b.open_terminal(["bash", "--norc", "-i"], b.make_env(box, b.LONG), box.root)
    b.send(terminal, "%s run demo --board leave --background\n" % shlex.join([box.python, box.pyz]))
    b.expect(terminal, QUESTION)
    b.send(terminal, "y\n")
    told = b.expect(terminal, "stop: ") + b.expect(terminal, "\n")
    run = b.list_runs(box)[0]
    os.killpg(terminal.pid, signal.SIGHUP)
    os.close(terminal.fd)  # the window is gone
    shell_ended = b.wait_for(lambda: b.reap(terminal.pid), "the end of the shell")
    log = b.wait_for(lambda: run["train_log"] or b.list_runs(box)[0]["train_log"], "the train log's name")
    size = os.path.getsize(log)
    b.wait_for(lambda: os.path.getsize(log) > size + 2000, "the run going on")
    return {"told": told, "ended": shell_ended, "row": b.list_runs(box)[0]}


def test_S1_the_run_survives_hangup_and_the_closed_terminal(play, root):
    facts = play(play_hangup, root)
    assert "Launched (background)" in facts["told"]
    assert facts["row"]["state"] == "running"


def play_sigkill(box):
    env = dict(b.LONG, TOY_BRINGUP_SEC="300")
    digest = b.check(box, "demo", env=env)["digest"]
    starter = subprocess.Popen(
        [box.python, box.pyz, "run", "demo", "--confirm", digest, "--board", "leave"],
        cwd=box.root,
        env=b.make_env(box, env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    b.wait_for(
        lambda: b.find_processes("rlrun: keeper") and b.list_runs(box) and b.list_runs(box)[0]["state"] == "running",
        "the launch",
    )
    starter.kill()
    starter.wait()
    (keeper,) = b.find_processes("rlrun: keeper")
    after_rlrun = b.list_runs(box)[0]
    os.kill(keeper, signal.SIGKILL)
    b.wait_for(lambda: not b.is_alive(keeper), "the keeper's end")
    after_keeper = b.list_runs(box)[0]
    runner = b.find_processes("scripts/train/train.sh")
    again = b.rlrun(box, "run", "demo", "--confirm", digest, "--again", "--board", "leave", env=env)
    os.killpg(runner[0], signal.SIGKILL)
    b.wait_for(lambda: not b.list_group(runner[0]), "the runner's end")
    return {
        "after_rlrun": after_rlrun,
        "after_keeper": after_keeper,
        "runner": runner,
        "again": again,
        "lost": b.list_runs(box)[0],
        "text": b.rlrun(box, "runs").out,
    }


def test_the_run_survives_the_end_of_rlrun_and_of_the_keeper(play, root):
    facts = play(play_sigkill, root)
    assert facts["after_rlrun"]["state"] == facts["after_keeper"]["state"] == "running"
    assert len(facts["runner"]) == 1
    assert facts["again"][0] == 1 and "A run is already in flight" in facts["again"][2]
    assert facts["lost"]["state"] == "lost" and facts["text"].splitlines()[1].startswith("lost")


def play_sweep(box, config):
    # What the real runner does to the whole host, by one word; the direct parent alone is spared.
    runner = os.path.join(box.root, "scripts/train/train.sh")
    text = b.read(runner)
    with open(runner, "w") as out:
        out.write(
            text.replace(
                '    echo "[shm] before cleanup:"\n',
                '    echo "[shm] before cleanup:"\n'
                "    for pid in $(pgrep -f vllm-cfgs | grep -vx -e $$ -e $PPID); do kill -9 $pid 2>/dev/null || true; done\n",
            )
        )
    decoy = subprocess.Popen(
        ["sleep", "1000"],
        executable=write_fake_program(os.path.join(box.folder, "vllm-cfgs"), "bystander", 'exec -a "$0" sleep 1000\n'),
    )
    found = b.launch(box, config, env=b.LONG)
    return {
        "code": found["code"],
        "stderr": found["stderr"],
        "decoy": decoy.wait(),
        "keeper": b.is_alive(found["runner"]["keeper"]),
        "runner": b.is_alive(found["runner"]["pid"]),
        "argv": b.describe_process(found["runner"]["pid"])["cmdline"],
        "trainer": found["trainer"],
        "shown": found["config"],
    }


def test_a_sweep_by_a_word_in_the_configs_folder_ends_neither_rlrun_nor_keeper(play, root, tmp_path):
    folder = tmp_path / "vllm-cfgs"
    folder.mkdir()
    config = folder / "swept.env"
    config.write_text("PROJECT_NAME=toy\nEXP_NAME=swept\nTRAINING_MODE=sync\n" + MODULES)
    facts = play(play_sweep, root, config=str(config))
    assert facts["decoy"] == -signal.SIGKILL, "the sweep did not sweep"
    assert facts["code"] == 0, facts["stderr"]
    assert facts["keeper"] and facts["runner"] and facts["trainer"]
    assert "vllm-cfgs/swept.env" in facts["argv"]


def play_replaced(box):
    own = os.path.join(box.folder, "mine.pyz")
    with open(box.pyz, "rb") as source, open(own, "wb") as out:
        out.write(source.read())
    served = os.path.join(box.folder, "served")
    os.mkdir(served)
    b.start_board(box, served)
    box = box._replace(pyz=own)
    found = b.launch(box, "off_repo_log", "--board", "link", env=dict(b.LONG, TOY_BRINGUP_SEC="3"))
    with open(own, "wb") as out:
        out.write(b"not a zip any more")
    os.unlink(own)
    result = b.wait_for(lambda: b.read_link(found["record"]), "the keeper's link")
    os.killpg(found["runner"]["pgid"], signal.SIGINT)
    return {
        "link": result,
        "exit": json.loads(b.wait_for(lambda: b.read(os.path.join(found["record"], "exit.json")), "exit.json")),
    }


def test_the_keeper_needs_nothing_of_a_pyz_that_is_replaced(play, root):
    facts = play(play_replaced, root, ships=True)
    assert facts["link"]["state"] == "verified"
    assert facts["exit"]["schema"] == 1


def play_replaced_at_the_question(box):
    own = os.path.join(box.folder, "mine.pyz")
    facts = {}
    for name, words in (("background", ()), ("foreground", ("--foreground",))):
        with open(box.pyz, "rb") as source, open(own, "wb") as out:
            out.write(source.read())
        session = b.open_rlrun(box._replace(pyz=own), "run", "off_repo_log", "--board", "leave", *words, env=b.SHORT)
        b.expect(session, QUESTION)
        with open(own, "r+b") as out:  # the same file, other bytes: nothing of it can be imported any more
            out.write(b"\0" * os.path.getsize(own))
        b.send(session, "y\n" if words else "y\n\n")
        facts[name] = b.finish(session)
        b.wait_for_the_next_second()
    return facts


def test_a_pyz_that_is_replaced_at_the_question_still_launches_and_reports(play, root):
    facts = play(play_replaced_at_the_question, root, ships=True)
    for name, code in (("background", 4), ("foreground", 0)):
        assert facts[name][0] == code and "Launched (%s)" % name in facts[name][1] and "ended 0" in facts[name][1], facts[name][
            1
        ]


# --- one at a time


def play_two_at_once(box, other):
    boxes = (box, box._replace(root=other))
    digests = [b.check(one, "demo", env=b.LONG)["digest"] for one in boxes]
    started = [
        subprocess.Popen(
            [box.python, box.pyz, "run", "demo", "--confirm", digest, "--board", "leave", "--json"],
            cwd=one.root,
            env=b.make_env(box, b.LONG),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for one, digest in zip(boxes, digests)
    ]
    told = [one.communicate(timeout=90) for one in started]
    return {
        "codes": [one.returncode for one in started],
        "out": [json.loads(out.decode()) for out, _ in told],
        "err": [err.decode() for _, err in told],
        "keepers": len(b.find_processes("rlrun: keeper")),
        "records": [b.count_records(one) for one in boxes],
    }


def test_of_two_launches_at_once_one_launches_and_the_other_names_it(play, root, tmp_path):
    facts = play(play_two_at_once, root, other=build_checkout(tmp_path / "other"))
    assert sorted(facts["codes"]) == [0, 1] and facts["keepers"] == 1
    winner, loser = (facts["codes"].index(code) for code in (0, 1))
    assert facts["out"][loser]["launched"] is False
    assert str(facts["out"][winner]["runner"]["pid"]) in facts["err"][loser]
    assert facts["records"][winner] == 1 and facts["records"][loser] == 0


def play_held_lock(box):
    digest = b.check(box, "silent_exit")["digest"]
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    holder.bind(b.LOCK)
    holder.listen(4)
    named = b.run(
        [
            box.python,
            "-c",
            "import sys; sys.path.insert(0, sys.argv[1])\nfrom rlrun import errors\n"
            "from rlrun.steps import lock\ntry: lock.acquire(0.2)\nexcept errors.OperatorError as error: "
            "print(error.code, error.message)",
            box.pyz,
        ],
        box.env,
        box.root,
    )
    started = []
    for number in range(2):
        err = open(os.path.join(box.folder, "err%d" % number), "wb")
        started.append(
            subprocess.Popen(
                [box.python, box.pyz, "run", "silent_exit", "--confirm", digest, "--board", "leave"],
                cwd=box.root,
                env=b.make_env(box, {"PYTHONUNBUFFERED": "1"}),
                stdin=subprocess.DEVNULL,
                stdout=err,
                stderr=err,
            )
        )
    b.wait_for(
        lambda: all(
            is_polling(one.pid) and "double-checking" in b.read(os.path.join(box.folder, "err%d" % number))
            for number, one in enumerate(started)
        ),
        "both before the lock",
    )
    before = b.count_traces(box)
    os.kill(started[1].pid, signal.SIGSTOP)  # until the first one's run is over
    holder.close()
    codes = [started[0].wait(90)]
    os.kill(started[1].pid, signal.SIGCONT)
    codes.append(started[1].wait(90))
    return {
        "me": os.getpid(),
        "named": named,
        "before": before,
        "codes": codes,
        "records": b.count_records(box),
        "err": [b.read(os.path.join(box.folder, "err%d" % number))[-3000:] for number in range(2)],
    }


def is_polling(pid):
    """Asleep in a timed wait, with no child: between two looks at the lock."""
    where = b.read("/proc/%d/wchan" % pid)
    return b.read("/proc/%d/task/%d/children" % (pid, pid)) == "" and ("sleep" in where or "select" in where)


def test_a_confirmed_plan_launches_once_even_where_two_wait_for_the_lock(play, root):
    """The yes was for one launch: what the first one was is looked at again under the lock."""
    facts = play(play_held_lock, root)
    assert facts["named"][1].startswith("1 another rlrun is launching") and "pid %d" % facts["me"] in facts["named"][1]
    assert facts["before"] == b.NOTHING, "it did not wait for the lock"
    assert facts["codes"] == [4, 3] and facts["records"] == 1, facts["err"]
    assert "was launched already" in facts["err"][1] and "--again" in facts["err"][1]


def play_orphan(box):
    found = b.launch(box, "orphan", env=b.LONG)
    (orphan,) = b.wait_for(lambda: b.find_processes("sleep 4242"), "the daemon of the run")
    os.killpg(found["runner"]["pgid"], signal.SIGKILL)
    b.wait_for(lambda: not b.is_alive(found["runner"]["keeper"]), "the keeper's end")
    facts = b.describe_process(orphan)
    free = b.is_lock_free()
    again = b.launch(box, "orphan", "--board", "leave", "--again", env=b.LONG)
    return {
        "orphan": facts,
        "alive": b.is_alive(orphan),
        "free": free,
        "again": again["code"],
        "stderr": again["stderr"],
        "states": [row["state"] for row in b.list_runs(box)],
    }


def test_P17_an_orphan_daemon_of_the_run_holds_nothing_of_ours(play, root):
    add_config(
        root,
        "train",
        "orphan",
        'PROJECT_NAME=toy\nEXP_NAME=orphan-$(date +%s%N)\n[ "$DRY_RUN" = 1 ] || setsid sleep 4242 &\n' + MODULES,
    )
    facts = play(play_orphan, root)
    assert set(facts["orphan"]["fds"]) <= {"0", "1", "2"} and facts["alive"]
    assert facts["free"] and facts["again"] == 0, facts["stderr"]
    assert facts["states"] == ["running", "killed by SIGKILL"]


# --- the second look


def play_second_look(box, other, smi):
    said = {}
    session = b.open_rlrun(box, "run", "demo", "--board", "leave", "--background", env=b.SHORT)
    b.expect(session, QUESTION)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", 6379))
        listener.listen(1)
        b.add_to_file(smi, "GPU-toy-0, 4242, 70000 MiB, python3\n")
        b.send(session, "y\n")
        said["machine"] = b.finish(session)
    os.unlink(smi)

    session = b.open_rlrun(box, "run", "demo", "--board", "leave", "--background", env=b.SHORT)
    b.expect(session, QUESTION)
    run = subprocess.Popen(
        ["bash", "scripts/train/train.sh", "scripts/train/configs/demo.env"],
        cwd=other,
        env=b.make_env(box, b.LONG),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    b.wait_for(lambda: b.find_processes("scripts/train/train.sh"), "the other run")
    b.send(session, "yes\n")
    said["run"] = b.finish(session) + (run.pid,)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()

    for name, path in (
        ("config", "scripts/train/configs/demo.env"),
        ("template", "scripts/templates/verl/common.env"),
        ("runner", "scripts/train/train.sh"),
    ):
        session = b.open_rlrun(box, "run", "demo", "--board", "leave", "--background", env=b.SHORT)
        b.expect(session, QUESTION)
        b.add_to_file(os.path.join(box.root, path), "# a word more\n")
        b.send(session, "y\n")
        said[name] = b.finish(session)
    return dict(said, traces=b.count_traces(box))


def test_what_appears_between_question_and_yes_blocks(play, tmp_path, fake_program):
    root = build_checkout(tmp_path / "lego", git=True)
    smi = tmp_path / "smi-holders"
    fake_program(
        "nvidia-smi",
        """
query=$*
case "$query" in
    *--query-gpu=*) for n in 0 1 2 3 4 5 6 7; do
        line=""; fields=${query#*--query-gpu=}; fields=${fields%% *}
        for field in ${fields//,/ }; do
            case $field in index) v=$n ;; uuid) v=GPU-toy-$n ;; memory.used) v="0 MiB" ;; memory.total) v="80000 MiB" ;;
                name) v="Toy GPU" ;; pci.bus_id) v=00000000:0$n:00.0 ;; utilization.gpu) v="0 %%" ;; *) v="0" ;; esac
            line="$line${line:+, }$v"
        done; echo "$line"; done ;;
    *--query-compute-apps=*) cat %s 2>/dev/null || true ;;
esac
"""
        % shlex.quote(str(smi)),
    )
    facts = play(play_second_look, root, other=build_checkout(tmp_path / "other"), smi=str(smi))
    code, text = facts["machine"]
    assert (
        code == 1 and "port:conflict" in text and "gpu:foreign" in text and "the machine changed while you were asked" in text
    )
    code, text, pid = facts["run"]
    assert code == 1 and "A run is already in flight" in text and str(pid) in text
    for name in ("config", "template", "runner"):
        code, text = facts[name]
        assert code == 3 and "changed" in text and "nothing was launched" in text, text
    assert (
        "demo.env" in facts["config"][1] and "common.env" in facts["template"][1] and "other files of it" in facts["runner"][1]
    )
    assert facts["traces"] == b.NOTHING


# --- how it ends within the first minute


def play_early_ends(box):
    facts = {}
    for name in ("silent_exit", "fatal_late", "exit_zero_error", "long_line"):
        digest = b.check(box, name, env=b.SHORT)["digest"]
        facts[name] = b.rlrun(box, "run", name, "--confirm", digest, "--board", "leave", "-q", env=b.SHORT)
    return dict(facts, states={row["config"].rpartition("/")[2]: row["state"] for row in b.list_runs(box)})


def test_S11_an_end_within_the_first_minute_is_exit_4_whatever_the_status(play, root):
    add_config(
        root,
        "train",
        "fatal_late",
        '[ "$DRY_RUN" = 1 ] || TOOL_CALL_PARSER=hermes\nPROJECT_NAME=toy\nEXP_NAME=fatal_late\n' + MODULES,
    )
    add_config(
        root,
        "train",
        "long_line",
        'if [ "$DRY_RUN" != 1 ]; then printf "start%.0s" {1..200}; echo; exit 1; fi\n'
        "PROJECT_NAME=toy\nEXP_NAME=long_line\n" + MODULES,
    )
    facts = play(play_early_ends, root)
    code, out, err = facts["silent_exit"]
    assert code == 4 and "ended 2 after" in out and "[shm] after cleanup:" in out and "Mend the cause" in out
    code, out, err = facts["fatal_late"]
    assert code == 4 and "ended 1" in out and "tool_parser=hermes can't read" in out
    code, out, err = facts["exit_zero_error"]
    assert code == 4 and "ended 0" in out and "RuntimeError: toy failure after step 1" in out
    assert "its log tells whether that was success" in out and "Mend the cause" not in out
    code, out, err = facts["long_line"]
    lines = [line for line in out.splitlines() if "startstart" in line]
    assert code == 4 and len(lines) == 1 and lines[0].endswith("…") and len(lines[0]) < 250
    assert facts["states"] == {
        "silent_exit.env": "ended 2",
        "fatal_late.env": "ended 1",
        "exit_zero_error.env": "ended 0",
        "long_line.env": "ended 1",
    }


def play_empty_log(box):
    digest = b.check(box, "empty_log")["digest"]
    done = b.rlrun(box, "run", "empty_log", "--confirm", digest, "--board", "leave")
    return {"done": done, "row": b.list_runs(box)[0], "alive": len(b.find_processes("scripts/train/train.sh"))}


def test_a_run_that_says_nothing_for_a_minute_is_exit_4_and_left_alone(play, root):
    facts = play(play_empty_log, root)
    code, out, err = facts["done"]
    assert code == 4 and "has said nothing for 60 s" in out and "still alive" in out and "is empty." in out
    assert facts["row"]["state"] == "running" and facts["alive"] == 1


def play_interrupted_wait(box):
    facts = {}
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        env = dict(b.LONG, TOY_BRINGUP_SEC="300")
        digest = b.check(box, "slow_bringup", env=env)["digest"]
        path = os.path.join(box.folder, "out" + name)
        with open(path, "wb") as out:
            waiting = subprocess.Popen(
                [box.python, box.pyz, "run", "slow_bringup", "--confirm", digest, "--board", "leave", "--again"],
                cwd=box.root,
                env=b.make_env(box, env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        b.wait_for(lambda: "reading back" in b.read(path), "the launch")  # noqa: B023
        b.wait_for(lambda: "starting ray head" in b.read(newest_log(box)), "the bring-up")
        waiting.send_signal(getattr(signal, name))
        code = waiting.wait(90)
        (runner,) = b.find_processes("scripts/train/train.sh")
        facts[name] = {"code": code, "text": b.read(path), "alive": b.is_alive(runner)}
        os.killpg(runner, signal.SIGKILL)
        b.wait_for(lambda: not b.find_processes("rlrun: keeper"), "the keeper's end")
    return facts


def newest_log(box):
    folder = os.path.join(box.root, "logs")
    names = sorted(name for name in os.listdir(folder) if name.startswith("launch_"))
    return os.path.join(folder, max(names, key=lambda name: os.path.getmtime(os.path.join(folder, name)))) if names else ""


def test_an_interrupted_wait_reports_what_is_known_and_leaves_the_run(play, root):
    for name, facts in play(play_interrupted_wait, root).items():
        report = facts["text"].partition("Launched (background)")[2]
        assert (facts["code"], facts["alive"]) == (0, True), name
        assert "trainer=starting" in report and "exp_name:      slow_bringup-" in report and "stop: " in report


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_the_very_moment_of_the_launch_never_denies_it(play, root, number):
    facts = play(play_signal_at_launch, root, ships=True, number=int(number), timeout=300)
    assert facts["code"] == 0 and "Launched (background)" in facts["text"], facts["text"]
    assert facts["state"] == "running" and facts["recorded"]


def play_signal_at_launch(box, number):
    digest = b.check(box, "demo", env=b.LONG)["digest"]
    path = os.path.join(box.folder, "out")
    for _ in range(MOMENTS):
        with open(path, "wb") as out:
            launching = subprocess.Popen(
                [box.python, box.pyz, "run", "demo", "--confirm", digest, "--board", "leave", "--again"],
                cwd=box.root,
                env=b.make_env(box, b.LONG, {"PYTHONUNBUFFERED": "1"}),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        b.wait_for(lambda: "double-checking" in b.read(path) or launching.poll() is not None, "the first look")  # noqa: B023
        if catch_the_moment(launching, path, number):
            break
        launching.kill()  # it was missed: that run is ended, and the next one watched
        launching.wait()
        b.end_runs()
    else:
        raise AssertionError("the moment of the launch was missed %d times; the last time it said:\n%s" % (MOMENTS, b.read(path)))
    launching.send_signal(number)
    code = launching.wait(90)
    row = b.list_runs(box)[0]
    record = json.loads(b.read(os.path.join(box.root, "logs/rlrun", row["id"], "record.json")))
    return {"code": code, "text": b.read(path), "state": row["state"], "recorded": record.get("runner") is not None}


MOMENTS = 30


def set_niceness(value):
    try:
        os.setpriority(os.PRIO_PROCESS, 0, value)
    except OSError:  # root, but without CAP_SYS_NICE: then it takes more attempts
        pass


def catch_the_moment(launching, path, number):
    """Whether it is seen holding this signal back, as it does while the keeper starts. False once that is over: on a busy
    machine this process may not have run meanwhile."""
    set_niceness(-10)
    try:
        while launching.poll() is None and "reading back" not in b.read(path):
            # subprocess, elsewhere, holds back all of them for a moment
            held = b.read("/proc/%d/status" % launching.pid).partition("SigBlk:\t")[2][:16]
            if held and int(held, 16) & mask(number, signal.SIGUSR1) == mask(number):
                return True
        return False
    finally:
        set_niceness(0)
