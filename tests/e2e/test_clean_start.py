"""A clean start (E9, G13): what an enclosing job left is told, and dropped where that is asked for; limits; Python's output."""
import json
import os
import resource

from e2e import box as b

LEFT = {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "RANK": "3", "WORLD_SIZE": "8", "MASTER_PORT": "29500", "PMIX_RANK": "1",
        "RAY_ADDRESS": "127.0.0.1:1", "WANDB_RUN_ID": "abc123", "SLURM_CONF": "/etc/none.conf"}


def read_environ(pid):
    return dict(pair.split("=", 1) for pair in b.read("/proc/%d/environ" % pid).split("\0") if "=" in pair)


def drop_and_launch(box):
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    env = dict(LEFT, **b.LONG)
    told = b.check(box, "pinned", env=env)
    clean = b.check(box, "pinned", "--drop-env", env=env)
    text = b.rlrun(box, "check", "pinned", "--drop-env", env=env)
    line = [line for line in text.out.splitlines() if line.startswith("Launch: ")][0][len("Launch: "):]
    if not os.access(box.pyz, os.X_OK):
        line = line.replace("python3", box.python, 1)
    done = b.shell(box, "env =nameless %s --json" % line, env=env)  # a variable without a name can't be handed on
    found = json.loads(done.out)
    runner = read_environ(found["runner"]["pid"])
    limits = b.read("/proc/%d/limits" % found["runner"]["pid"])
    record = json.loads(b.read(os.path.join(found["record"], "record.json")))
    command = b.read(os.path.join(found["record"], "command.txt"))
    b.end_runs()
    plain = b.launch(box, "volatile", env=dict(b.LONG, PYTHONUNBUFFERED="0", RANK="3"))
    return {"told": told, "clean": clean, "line": line, "code": done.code, "found": found, "runner": runner, "limits": limits,
            "record": record, "command": command, "plain": read_environ(plain["runner"]["pid"]), "err": done.err}


def test_E9_a_clean_start(play, root):
    told = play(drop_and_launch, root)
    names = [check["detail"] for check in told["told"]["checks"] if check["name"] == "env:inherited"]
    assert len(names) == 1 and all(word in names[0] for word in ("RANK", "WORLD_SIZE", "PMIX_*", "SLURM_* (2 variables)",
                                                                  "RAY_ADDRESS (nothing answers there)"))
    assert told["told"]["plan"]["inherited"] and told["told"]["plan"]["dropped_env"] == []
    assert "env:inherited" not in told["clean"]["warnings"] and told["clean"]["digest"] != told["told"]["digest"]
    dropped = sorted(set(LEFT) - {"SLURM_CONF"})
    assert told["clean"]["plan"]["dropped_env"] == dropped == told["record"]["dropped_env"]
    assert "--drop-env" in told["line"] and told["code"] == 0, told["err"]
    assert not set(dropped) & set(told["runner"]) and told["runner"]["SLURM_CONF"] == "/etc/none.conf"
    assert all(" -u %s " % name in told["command"] for name in dropped)
    # Nothing of a variable's value is kept.
    assert "abc123" not in json.dumps(told["record"])
    # Python's output is unbuffered unless that is set, and open files are raised to the hard limit.
    assert told["runner"]["PYTHONUNBUFFERED"] == "1" and told["plain"]["PYTHONUNBUFFERED"] == "0"
    assert told["plain"]["RANK"] == "3"  # without --drop-env all is handed on
    soft, hard = [line.split()[3:5] for line in told["limits"].splitlines() if line.startswith("Max open files")][0]
    assert soft == hard and told["record"]["limits"] == {"open_files": int(hard), "open_files_here": 1024}
    assert any(check["name"] == "limit:nofile" and "raises its own to the hard one" in check["detail"]
               for check in told["told"]["checks"])
