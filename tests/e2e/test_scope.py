"""`run --scope`: rlrun, keeper and run in a control group of their own, what is told of it, and what is refused."""
import json
import os
import shutil
import uuid

import pytest

from e2e import box as b

UID = os.getuid()
USER_MANAGER = "/run/user/%d/systemd/private" % UID
LINGER = "/var/lib/systemd/linger/root"
# What systemd-run does: it sets a variable, makes the scope out of its own process, and becomes the program.
FAKE = """#!/bin/sh
for word in "$@"; do
    case "$word" in --unit=*) unit="${word#--unit=}.scope";; --) break;; esac
done
if [ -n "$TOY_CGROUP" ]; then
    mkdir "$TOY_CGROUP/$unit" && echo $$ >"$TOY_CGROUP/$unit/cgroup.procs" || exit 1
fi
while [ "$1" != -- ]; do shift; done
shift
INVOCATION_ID=4f exec "$@"
"""


def make_cgroup():
    """A control group of this box's own, where systemd's hierarchy can be written; "" elsewhere."""
    for mount in ("/sys/fs/cgroup/systemd", "/sys/fs/cgroup"):
        path = os.path.join(mount, "rlrun-test-%s" % uuid.uuid4().hex)
        try:
            os.mkdir(path)
            with open(os.path.join(path, "cgroup.procs")):
                return path
        except OSError:
            continue
    return ""


def remove_cgroup(path):
    b.wait_for(lambda: not any(b.read(os.path.join(folder, "cgroup.procs")) for folder, _, _ in os.walk(path)), "empty groups")
    for folder, _, _ in os.walk(path, topdown=False):
        os.rmdir(folder)


def play_scope(box):
    for folder in ("/run", "/var/lib/systemd"):
        assert b.run(["mount", "-t", "tmpfs", "tmpfs", folder], box.env, "/").code == 0
    bin_folder = os.path.join(box.folder, "systemd")
    os.mkdir(bin_folder)
    with open(os.path.join(bin_folder, "systemd-run"), "w") as out:
        out.write(FAKE)
    os.chmod(os.path.join(bin_folder, "systemd-run"), 0o755)
    env = dict(b.LONG, PATH="%s:%s" % (bin_folder, box.env["PATH"]))
    words = ("run", "demo", "--scope", "--board", "leave")
    facts = {"no manager": b.rlrun(box, *words, env=env)}
    os.makedirs(USER_MANAGER)
    facts["no lingering"] = b.rlrun(box, *words, "--json", env=env)
    os.makedirs(LINGER)
    with open(os.path.join(bin_folder, "systemd-run"), "w") as out:  # starts the program as another process
        out.write(FAKE.replace('INVOCATION_ID=4f exec "$@"', '"$@"'))
    facts["another process"] = b.rlrun(box, *words, env=env)
    with open(os.path.join(bin_folder, "systemd-run"), "w") as out:
        out.write(FAKE)
    facts["traces"] = b.count_traces(box)
    digest = b.check(box, "demo", env=env)["digest"]
    group = make_cgroup()
    for name, where in (("moved", group), ("stayed", "")):
        facts[name] = b.rlrun(box, *words, "--confirm", digest, "--again", env=dict(env, TOY_CGROUP=where))
        facts[name + " record"] = record = json.loads(b.read(os.path.join(b.list_runs(box)[0]["record"], "record.json")))
        pids = (record["runner"]["pid"], record["runner"]["keeper"])
        facts[name + " groups"] = [b.read("/proc/%d/cgroup" % pid) for pid in pids]
        facts[name + " environ"] = sorted(entry.partition("=")[0] for entry in b.read("/proc/%d/environ" % pids[0]).split("\0"))
        b.end_runs()
    if group:
        remove_cgroup(group)
    return dict(facts, group=group)


def test_scope_holds_keeper_and_run_or_says_that_it_does_not(play, root):
    facts = play(play_scope, root)
    code, out, err = facts["no manager"]
    assert code == 5 and "nothing was launched" in err and "without --scope" in err
    code, out, err = facts["no lingering"]
    told = json.loads(out)
    assert (code, told["reason"], told["launched"]) == (5, "session:scope", False) and "loginctl enable-linger root" in err
    code, out, err = facts["another process"]
    assert code == 5 and "systemd-run started another process instead of becoming it" in err
    assert facts["traces"] == b.NOTHING

    code, out, err = facts["stayed"]
    survival = facts["stayed record"]["survival"]
    assert code == 0, err
    assert survival["verified"]["cgroup"] is False and survival["scope"] is None
    assert "NOT in a scope of its own, though --scope was given" in out
    assert survival["stands"] == "container" and "container" in survival["words"]
    for name in ("moved", "stayed"):
        assert not {"RLRUN_ENTERED_SCOPE", "XDG_RUNTIME_DIR", "INVOCATION_ID"} & set(facts[name + " environ"])
        assert "TOY_STEPS" in facts[name + " environ"]
        assert facts[name + " record"]["survival"]["verified"]["session"] is True
        assert facts[name + " record"]["survival"]["verified"]["terminal"] is True

    code, out, err = facts["moved"]
    assert code == 0, err
    if not facts["group"]:
        pytest.skip("no control group can be made here: only the fake that stays was played")
    survival = facts["moved record"]["survival"]
    assert survival["scope"].startswith("rlrun-") and survival["verified"]["cgroup"] is True
    assert all("/" + survival["scope"] in text for text in facts["moved groups"])
    assert "own session, no terminal, scope %s" % survival["scope"] in out


def play_tmux(box):
    told = os.path.join(box.folder, "told.txt")
    line = "'%s' '%s' check demo --json >'%s.part'; mv '%s.part' '%s'" % (box.python, box.pyz, told, told, told)
    env = b.make_env(box, b.LONG, {"TERM": "dumb", "TMUX_TMPDIR": box.folder})
    started = b.run(["tmux", "-L", "toy", "-f", "/dev/null", "new-session", "-d", "-c", box.root, line], env, box.root)
    assert started.code == 0, started.err
    pid = b.run(["tmux", "-L", "toy", "display-message", "-p", "#{pid}"], env, box.root).out.strip()
    return {"pid": pid, "check": json.loads(b.wait_for(lambda: b.read(told), "the check in tmux"))}


@pytest.mark.skipif(not shutil.which("tmux"), reason="no tmux here")
def test_a_tmux_server_is_what_it_stands_in(play, root):
    facts = play(play_tmux, root)
    (row,) = [check for check in facts["check"]["checks"] if check["name"] == "session:stands"]
    assert row["status"] == "pass" and row["detail"].startswith("tmux server (pid %s) in container (pid 1: " % facts["pid"])
    assert row["detail"].endswith("with a terminal")
