"""The stop command that the report prints: it really stops everything, however rlrun was started (S3)."""

import json
import os
import shlex

import pytest

from . import box as b

QUESTION = "Launch with this configuration? [y/N] "


def play_stop(box, way, kind):
    config = {"train": "demo", "eval": "demo_eval", "infer": "demo_infer"}[kind]
    command = shlex.join([box.python, box.pyz, "run", config, "--board", "leave", "--background"])
    out = os.path.join(box.folder, "report.txt")
    if way == "terminal":
        shell = b.open_terminal(["bash", "--norc", "-i"], b.make_env(box, b.LONG), box.root)
        b.send(shell, command + "\n")
        b.expect(shell, QUESTION)
        b.send(shell, "y\n")
        text = b.expect(shell, "stop: ") + b.expect(shell, "\n")
    else:
        env = b.LONG if way == "script" else dict(b.LONG, LC_ALL="C")
        base = box if way == "script" else box._replace(env={"HOME": box.env["HOME"], "PATH": "/usr/bin:/bin"})
        digest = b.check(base, config, env=env)["digest"]
        script = os.path.join(box.folder, "start.sh")
        with open(script, "w") as file:
            # A background job of a script has SIGINT ignored, and hands that on to all that it starts.
            file.write(
                "cd %s\nnohup setsid %s --confirm %s > %s 2>&1 &\nwait $!\n"
                % (shlex.quote(box.root), command, digest, shlex.quote(out))
                if way == "script"
                else "#!/bin/sh\ncd %s && %s --confirm %s > %s 2>&1\n"
                % (shlex.quote(box.root), command, digest, shlex.quote(out))
            )
        done = b.run(["bash" if way == "script" else "/bin/sh", script], b.make_env(base, env), "/")
        assert done.code == 0, done.err + b.read(out)
        text = b.read(out)
    row = b.list_runs(box)[0]
    pgid = row["runner"]["pgid"]
    group, names = b.list_group(pgid), sorted({b.read("/proc/%d/comm" % pid).strip() for pid in b.list_group(pgid)})
    log = row["train_log"]
    b.wait_for(lambda: os.path.getsize(log) > 0, "the log of the run")
    stopped = b.run(["bash", "-c", b.find_stop_line(text)], box.env, "/")
    b.wait_for(lambda: not b.list_group(pgid), "the end of the whole group")
    b.wait_for(lambda: not b.is_alive(row["runner"]["keeper"]), "the end of the keeper")
    return {
        "line": b.find_stop_line(text),
        "group": len(group),
        "names": names,
        "stopped": stopped,
        "before": row,
        "after": b.list_runs(box)[0],
        "log": b.read(log) + b.read(row["launch_log"]),
        "left": [pid for pid, session in b.list_sessions().items() if session == pgid],
        "exit": json.loads(b.read(os.path.join(row["record"], "exit.json"))),
    }


@pytest.mark.parametrize(
    "way,kind", [("terminal", "train"), ("script", "train"), ("cron", "train"), ("cron", "eval"), ("terminal", "infer")]
)
def test_S3_the_printed_stop_command_stops_all_of_it(play, root, way, kind):
    facts = play(play_stop, root, way=way, kind=kind)
    assert facts["line"] == "kill -INT -- -%d" % facts["before"]["runner"]["pgid"]
    assert facts["group"] >= 4 and {"bash", "tee"} <= set(facts["names"])  # the runner, its trainer, tee, the substitution
    assert facts["stopped"][0] == 0 and facts["left"] == []
    assert facts["before"]["state"] == "running"
    assert facts["after"]["state"] in ("ended 130", "killed by SIGINT")
    assert (facts["exit"]["status"], facts["exit"]["signal"]) in ((130, None), (None, "SIGINT"))
