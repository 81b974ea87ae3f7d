"""The yes without a terminal: the digest that names one exact plan, the line that is printed, and all that refuses (S15, C9)."""

import json
import os
import shlex
import shutil
import subprocess

import pytest
from checkouts import add_config, build_checkout

from . import box as b

MODULES = "TEMPLATE_MODULES=(runtime/process.env backend/k8s.env harbor/common.env verl/common.env)\n"
CRON = {"SHELL": "/bin/sh", "LOGNAME": "root"}


@pytest.fixture
def git_root(tmp_path):
    return build_checkout(tmp_path / "lego", git=True)


def last_line(done):
    return done.err.rstrip().splitlines()[-1].strip()


# --- no terminal: exit 3, and a line to paste


def play_no_terminal(box, config, words, cwd, stdins):
    facts = {}
    for name, stdin in (("devnull", subprocess.DEVNULL), ("pipe", subprocess.PIPE)):
        if name in stdins:
            facts[name] = b.rlrun(box, "run", config, *words, env=b.LONG, cwd=cwd, stdin=stdin)
    if "closed" in stdins:
        line = " ".join(shlex.quote(word) for word in [box.python, box.pyz, "run", config] + words)
        facts["closed"] = b.shell(box, line + " <&-", env=b.LONG, cwd=cwd)
    facts["json"] = b.rlrun(box, "run", config, "--json", *words, env=b.LONG, cwd=cwd)
    facts["before"] = b.count_traces(box)
    facts["pasted"] = b.shell(box, last_line(facts["devnull"]), env=b.LONG, cwd=cwd)
    facts["after"] = b.count_traces(box)
    return facts


@pytest.mark.parametrize("case", ["in the checkout", "--root elsewhere", "config's path elsewhere", "--kind"])
def test_S15_without_a_terminal_the_printed_line_launches_when_pasted(play, tmp_path, case):
    root = build_checkout(tmp_path / "a check out")
    absolute = os.path.join(root, "scripts/train/configs/demo.env")
    shutil.copyfile(absolute, os.path.join(root, "odd.env"))
    config, words, cwd = {
        "in the checkout": ("demo", [], root),
        "--root elsewhere": ("demo", ["--root", root], str(tmp_path)),
        "config's path elsewhere": (absolute, [], str(tmp_path)),
        "--kind": ("odd.env", ["--kind", "train"], root),
    }[case]
    stdins = ("devnull", "pipe", "closed") if case == "in the checkout" else ("devnull",)
    facts = play(play_no_terminal, root, config=config, words=words, cwd=cwd, stdins=stdins)
    for name in stdins:
        code, out, err = facts[name]
        assert code == 3 and "nobody can be asked here; nothing was launched" in err, name
    shown = json.loads(facts["json"][1])
    assert (shown["launched"], shown["reason"], shown["exit"]) == (False, "not-confirmed", 3)
    assert shown["line"] == facts["devnull"][2].rstrip().splitlines()[-1].strip() and shown["digest"] in shown["line"]
    assert facts["before"] == b.NOTHING
    code, out, err = facts["pasted"]
    assert code == 0 and "Launched (background)" in out, err
    assert facts["after"]["records"] == facts["after"]["launch_logs"] == 1


# --- what the digest is made of


def play_same_plan(box):
    first = b.check(box, "volatile")["digest"]
    bare = dict(HOME=box.env["HOME"], PATH=box.env["PATH"], LC_ALL="C", **CRON)
    elsewhere = box._replace(env=bare)
    kept = os.path.join(box.folder, "kept")
    os.mkdir(kept)
    return {
        "first": first,
        "again": b.check(box, "volatile")["digest"],
        "operator": b.check(
            box,
            "volatile",
            env={
                "EDITOR": "vim",
                "LS_COLORS": "x" * 500,
                "TERM": "xterm",
                "SSH_TTY": "/dev/pts/9",
                "OLDPWD": "/",
                "FOO_TOKEN": "abcd1234efgh",
            },
        )["digest"],
        "cron": b.check(elsewhere, "volatile")["digest"],
        "folder": b.check(
            box,
            "volatile",
            cwd=os.path.join(box.root, "logs")
            if os.path.isdir(os.path.join(box.root, "logs"))
            else os.path.join(box.root, "scripts/train"),
        )["digest"],
        "root": b.check(box, "volatile", "--root", box.root, cwd=kept)["digest"],
        "path": b.check(box, os.path.join(box.root, "scripts/train/configs/volatile.env"), cwd=kept)["digest"],
        "secret": [b.check(box, "demo", env={"WANDB_API_KEY": key})["digest"] for key in ("k" * 20, "j" * 20)],
    }


def test_name_place_and_an_unrelated_environment_do_not_change_the_digest(play, git_root):
    facts = play(play_same_plan, git_root)
    same = {name: facts[name] for name in ("again", "operator", "cron", "folder", "root", "path")}
    assert same == dict.fromkeys(same, facts["first"])
    assert len(facts["first"]) == 8 and int(facts["first"], 16) >= 0
    assert facts["secret"][0] == facts["secret"][1]


def play_other_plans(box):
    steps = []
    config, template = (
        os.path.join(box.root, "scripts", path) for path in ("train/configs/demo.env", "templates/verl/common.env")
    )
    digest = b.check(box, "demo")["digest"]

    def try_it(name, env=None):
        nonlocal digest
        done = b.rlrun(box, "run", "demo", "--confirm", digest, "--board", "leave", "--json", env=env)
        now = b.check(box, "demo", env=env)["digest"]
        steps.append(
            {"name": name, "code": done.code, "err": done.err, "told": json.loads(done.out), "old": digest, "new": now}
        )
        if env is None:
            digest = now

    try_it("environment", {"TRAIN_BSZ": "16"})
    try_it("default of the config", {"TOY_STEPS": "77"})
    b.add_to_file(config, "# one more line\n")
    try_it("config")
    b.add_to_file(template, "# one more line\n")
    try_it("template")
    git(box, "commit", "-qam", "a change")
    try_it("commit")
    b.add_to_file(os.path.join(box.root, "src/verl_patch/config/lego_rl_sync.yaml"), "# dirty\n")
    try_it("dirty file")
    b.add_to_file(os.path.join(box.root, "src/verl_patch/config/lego_rl_sync.yaml"), "# dirtier\n")
    try_it("the dirty file's content")
    return {
        "steps": steps,
        "traces": b.count_traces(box),
        "wrong": b.rlrun(box, "run", "demo", "--confirm", "00000000", "--board", "leave"),
        "no_digest": b.rlrun(box, "run", "demo", "--confirm", "yes", "--board", "leave"),
        "upper": b.rlrun(box, "run", "demo", "--confirm", digest.upper(), "--board", "leave"),
    }


def git(box, *words):
    done = b.run(
        ["git", "-c", "user.name=Toy", "-c", "user.email=toy@example.invalid", "-c", "core.hooksPath=/dev/null"] + list(words),
        box.env,
        box.root,
    )
    assert done.code == 0, done.err


def test_what_makes_another_plan_refuses_and_says_what_changed(play, git_root):
    facts = play(play_other_plans, git_root)
    assert [step["name"] for step in facts["steps"]] == [
        "environment",
        "default of the config",
        "config",
        "template",
        "commit",
        "dirty file",
        "the dirty file's content",
    ]
    for step in facts["steps"]:
        assert step["code"] == 3 and step["told"]["reason"] == "digest" and step["told"]["launched"] is False, step["name"]
        assert step["new"] != step["old"] and step["new"] in step["err"] and step["old"] in step["err"], step["name"]
        assert "nothing was launched" in step["err"], step["name"]
    told = {step["name"]: step["err"] for step in facts["steps"]}
    assert "demo.env (written" in told["config"] and "common.env (written" in told["template"]
    assert "lego_rl_sync.yaml (written" in told["dirty file"]
    assert facts["traces"] == b.NOTHING
    assert facts["wrong"][0] == 3 and "00000000" in facts["wrong"][2]
    assert facts["no_digest"][0] == 2 and "eight hex digits" in facts["no_digest"][2]
    assert facts["upper"][0] == 0


# --- launched already, missing answers


def play_again(box):
    digest = b.check(box, "pinned", env=b.SHORT)["digest"]
    first = b.rlrun(box, "run", "pinned", "--confirm", digest, "--board", "leave", "--foreground", env=b.SHORT)
    words = ("run", "pinned", "--confirm", digest)
    return {
        "digest": digest,
        "first": first,
        "plain": b.rlrun(box, *words, "--board", "leave", env=b.SHORT),
        "again": b.rlrun(box, *words, "--again", "--board", "leave", env=b.SHORT),
        "both_missing": b.rlrun(box, *words, "--again", env=b.SHORT),
        "json": b.rlrun(box, *words, "--again", "--json", env=b.SHORT),
        "records": b.count_records(box),
        "kept": b.rlrun(box, *words, "--again", "--board", "leave", "--old-log", "keep", "--foreground", env=b.SHORT),
        "rows": b.list_runs(box),
        "earlier": sorted(
            name
            for _, _, names in os.walk(os.path.join(box.root, "logs/rlrun"))
            for name in names
            if name.startswith("earlier-")
        ),
        "changed": b.rlrun(box, *words, "--board", "leave", "--old-log", "lose", env=dict(b.SHORT, TOY_STEPS="9")),
    }


def test_a_digest_launches_once_and_missing_answers_name_their_option(play, root):
    facts = play(play_again, root)
    assert facts["first"][0] == 0, facts["first"][2]
    code, out, err = facts["plain"]
    assert code == 3 and "was launched already" in err and "--again" in err
    code, out, err = facts["again"]
    assert code == 3 and "--old-log keep|lose" in err and "--board" not in err.partition("unanswered:")[2].partition(";")[0]
    code, out, err = facts["both_missing"]
    assert code == 3 and "--board leave" in err and "--old-log keep|lose" in err
    assert json.loads(facts["json"][1])["reason"] == "unanswered"
    assert facts["records"] == 1
    assert facts["kept"][0] == 0 and [row["state"] for row in facts["rows"]] == ["ended 0", "ended 0"]
    assert facts["earlier"] == ["earlier-pinned.log"]
    code, out, err = facts["changed"]
    assert code == 3 and "since that plan was launched" in err and "environment TOY_STEPS changed" in err


# --- cron, resume


def play_cron(box):
    digest = b.check(box, "uber", env=b.SHORT)["digest"]  # the operator, in a UTF-8 locale
    script = os.path.join(box.folder, "job.sh")
    with open(script, "w") as out:
        out.write(
            "#!/bin/sh\ncd '%s' && '%s' '%s' run uber --confirm %s --board leave --foreground\n"
            % (box.root, box.python, box.pyz, digest)
        )
    bare = dict({"HOME": box.env["HOME"], "PATH": "/usr/bin:/bin", "PYTHONIOENCODING": "ascii"}, **CRON, **b.SHORT)
    return {
        "done": b.run(["/bin/sh", script], dict(bare, LC_ALL="C"), "/"),
        "rows": b.list_runs(box),
        "traces": b.count_traces(box),
    }


def test_E1_E3_cron_with_ascii_streams_and_a_name_with_an_umlaut(play, root, edge_python):
    add_config(root, "train", "uber", "PROJECT_NAME=toy\nEXP_NAME=über—lauf\nTRAINER_LOGGER=\"two words—'quoted'\"\n" + MODULES)
    facts = play(play_cron, root, python=edge_python, ships=True)
    code, out, err = facts["done"]
    assert "Traceback" not in err and (out + err).isascii()
    if code == 5:  # 3.6 without the distributions' locale coercion can name no such path: said, and nothing launched
        assert "/3.6." in edge_python and "LC_ALL=C.UTF-8" in err and facts["traces"] == b.NOTHING
        return
    assert code == 0, err
    assert "exp_name:" in out and facts["rows"][0]["experiment"] == "über—lauf"


def play_resume(box):
    env = dict(b.SHORT, TOY_SAVE_EVERY="1")
    first = b.launch(box, "checkpoints", "--board", "leave", "--foreground", env=env)
    return {
        "first": first["code"],
        "second": b.rlrun(box, "run", "checkpoints", env=env),
        "check": b.check(box, "checkpoints", env=env),
    }


def test_C9_a_silent_resume_is_said_before_the_yes(play, root):
    facts = play(play_resume, root)
    assert facts["first"] == 0
    code, out, err = facts["second"]
    assert code == 3 and "will resume from step 2 (%s" % os.path.join(root, "checkpoints/toy/checkpoints") in err
    assert "resume:silent" in facts["check"]["warnings"]


def play_pyz_without_run_bit(box):
    plain = os.path.join(box.folder, "my rlrun.pyz")
    shutil.copyfile(box.pyz, plain)
    refused = b.run([box.python, plain, "run", "demo"], b.make_env(box, b.LONG), box.root)
    return {"line": last_line(refused), "pasted": b.shell(box, last_line(refused), env=b.LONG)}


def test_the_line_works_for_a_pyz_that_is_not_executable_and_has_a_space(play, root):
    facts = play(play_pyz_without_run_bit, root)
    assert facts["line"].startswith("python3 '") and facts["pasted"][0] == 0
