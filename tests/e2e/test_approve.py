"""Approve now, launch later: `check --save`, and what `run --confirm` says of a plan that moved, expired or was launched."""
import json
import os
import stat
from pathlib import Path

from checkouts import add_config, add_prime_config, build_checkout, build_prime_checkout

from . import box as b
from .test_run_confirm import CRON, git

CONFIG = "scripts/train/configs/first.env"
FIRST = "PROJECT_NAME=toy\nEXP_NAME=pinned-first\nTRAIN_BSZ=8\nTRAINER_LOGGER=\"über den Daumen\"\nWANDB_API_KEY=%s\n" \
        "TEMPLATE_MODULES=(runtime/process.env backend/k8s.env harbor/common.env verl/common.env)\n"
KEYS = "not-a-real-wandb-key-1111", "not-a-real-wandb-key-2222"
LEAVE = ("--board", "leave", "-q")


def save(box, *words, **given):
    """Checks and saves; the saved plan."""
    path = os.path.join(box.folder, "plan.json")
    done = b.rlrun(box, "check", *words[:1], "--save", path, *words[1:], **given)
    assert done.code == 0, done
    with open(path) as file:
        return json.load(file)


def kept(box):
    folder = os.path.join(box.root, "logs", "rlrun", "plans")
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


def count_launches(box):
    logs = os.path.join(box.root, "logs")
    return len([name for name in os.listdir(logs) if name.startswith("launch_")]) if os.path.isdir(logs) else 0


# --- another plan by now


def play_moved(box):
    checked = b.rlrun(box, "check", "first", "--save", "plan.json", "--valid-for", "12h", cwd=box.folder + "/lego")
    path = os.path.join(box.root, "plan.json")
    plan = json.loads(b.read(path))
    with open(os.path.join(box.root, CONFIG), "w", encoding="utf-8") as file:
        file.write((FIRST % KEYS[1]).replace("TRAIN_BSZ=8", "TRAIN_BSZ=16").replace("über", "unter"))
    git(box, "commit", "-qam", "a change")
    b.add_to_file(os.path.join(box.root, "README"), "more\n")
    elsewhere = b.make_env(box, dict(CRON, LC_ALL="C", PYTHONIOENCODING="ascii", TEMPERATURE="0.5"))
    elsewhere.pop("LANG", None)
    told = b.run([box.python, box.pyz, "run", "first", "--confirm", plan["digest"], *LEAVE], elsewhere, box.root)
    own = [os.path.join(box.root, "logs/rlrun/plans", name) for name in kept(box)]
    mode = stat.S_IMODE(os.stat(own[0]).st_mode)
    os.unlink(own[0])
    other = b.rlrun(box, "run", "first", "--confirm", plan["digest"], "--plan", path, "--json", *LEAVE)
    os.unlink(os.path.join(box.root, CONFIG))
    return {"checked": checked, "plan": plan, "mode": [stat.S_IMODE(os.stat(path).st_mode), mode], "own": own, "told": told,
            "json": json.loads(other.out), "gone": b.rlrun(box, "run", "first", "--confirm", plan["digest"], *LEAVE),
            "text": b.read(path), "launches": count_launches(box)}


def test_what_moved_is_told_field_by_field_and_nothing_is_launched(play, tmp_path, edge_python):
    root = build_checkout(tmp_path / "lego", git=True)
    add_config(root, "train", "first", FIRST % KEYS[0])
    b_git = b.Box(str(root), "", "", dict(os.environ), str(tmp_path))
    git(b_git, "add", "-A")
    git(b_git, "commit", "-qm", "first")
    facts = play(play_moved, root, python=edge_python)
    code, out, err = facts["checked"]
    assert code == 0 and "is saved in %s/plan.json, good for 12h 00m, until " % root in err and "Launch: " in out
    assert facts["mode"] == [0o600, 0o600] and not [key for key in KEYS if key in facts["text"]]
    plan = facts["plan"]
    assert facts["own"] == ["%s/logs/rlrun/plans/%s-%d.json" % (root, plan["digest"], os.geteuid())]
    assert "über den Daumen" in plan["texts"][str(Path(root, CONFIG))]
    code, out, err = facts["told"]
    assert code == 3 and err.startswith("rlrun: the plan is ") and err.isascii() and not out
    lines = [line.strip() for line in err.split("\n")]
    assert "%s: TRAIN_BSZ=8 -> TRAIN_BSZ=16" % CONFIG in lines and "environment TEMPERATURE changed: 1.0 -> 0.5" in lines
    assert '%s: TRAINER_LOGGER="\\xfcber den Daumen" -> TRAINER_LOGGER="unter den Daumen"' % CONFIG in lines
    assert "modified file README is new" in lines and any(line.startswith("commit changed: ") for line in lines)
    assert not [line for line in lines if line.startswith(("environment TRAIN_BSZ", "launch command", "argv"))], err
    shown = facts["json"]
    assert (shown["exit"], shown["reason"], shown["launched"]) == (3, "digest", False)
    assert {"field": CONFIG, "old": "TRAIN_BSZ=8", "new": "TRAIN_BSZ=16", "change": "changed"} in shown["moved"]
    assert not [key for key in KEYS if key in json.dumps(shown) + err]
    assert facts["gone"][0] == 2 and "Traceback" not in facts["gone"][2] and facts["launches"] == 0


# --- expired, launched already, blocked meanwhile


def play_life(box):
    facts = {}
    plan = save(box, "pinned", "--valid-for", "2d", env=b.LONG)
    words = ("run", "pinned", "--confirm", plan["digest"])
    facts["short"] = b.rlrun(box, *words, "--valid-for", "0.01s", *LEAVE, env=b.LONG)
    path = os.path.join(box.root, "logs/rlrun/plans", kept(box)[0])
    with open(path, "w") as file:
        json.dump(dict(plan, time_seconds=plan["time_seconds"] - 3 * 86400), file)
    facts["old"] = b.rlrun(box, *words, "--json", *LEAVE, env=b.LONG)
    save(box, "pinned", "--valid-for", "2d", env=b.LONG)  # renewed
    facts["launched"] = b.rlrun(box, *words, "--plan", os.path.join(box.folder, "plan.json"), *LEAVE, env=b.LONG)
    later = os.path.join(box.folder, "later.json")
    facts["busy"] = b.rlrun(box, "check", "demo_eval", "--save", later, env=b.LONG)
    facts["later"] = json.loads(b.read(later) or "{}")
    facts["busy_json"] = json.loads(b.rlrun(box, "check", "demo_eval", "--json", "--save", later, env=b.LONG).out)["saved"]
    facts["never"] = b.rlrun(box, "check", "broken", "--save", os.path.join(box.folder, "never.json"), env=b.LONG)
    facts["never_json"] = json.loads(b.rlrun(box, "check", "broken", "--json", "--save", os.path.join(box.folder, "never.json"),
                                             env=b.LONG).out)
    facts["never_there"] = os.path.exists(os.path.join(box.folder, "never.json"))
    b.end_runs()
    facts["again"] = b.rlrun(box, *words, "--old-log", "lose", *LEAVE, env=b.LONG)
    facts["launches"] = count_launches(box)
    facts["listed"] = len(b.list_runs(box))
    return facts


def test_an_approval_expires_is_renewed_and_is_used_up(play, root):
    add_config(root, "train", "broken", "PROJECT_NAME=toy\nEXP_NAME=x\nTEMPLATE_MODULES=(runtime/missing.env)\n")
    facts = play(play_life, root)
    assert facts["short"][0] == 3 and " ago, for 0s; nothing was launched" in facts["short"][2]
    old = json.loads(facts["old"][1])
    assert (old["exit"], old["reason"]) == (3, "expired") and "was approved 3d 0h ago, for 2d 0h" in old["error"]
    assert facts["launched"][0] == 0, facts["launched"]
    code, out, err = facts["busy"]
    assert code == 1 and "✗ NO" in out and "is saved in" in err
    line = out.rstrip().split("\n")[-1]
    assert line.startswith("Launch as soon as the machine is free: ")
    assert " --wait-free 6h --confirm %s" % facts["later"]["digest"] in line
    assert facts["busy_json"]["file"].endswith("later.json") and facts["busy_json"]["valid_seconds"] is None
    assert facts["never"][0] == 1 and "not saved: " in facts["never"][2] and "preflight:died" in facts["never"][2]
    assert facts["never_json"]["saved"] is None and not facts["never_there"]
    assert facts["again"][0] == 3 and "was launched already" in facts["again"][2]
    assert facts["launches"] == facts["listed"] == 1


# --- prime-rl: several configs, secrets among the overrides


def play_prime(box):
    words = ("reverse-text/rl", "mine")
    secret = ("--env-vars.WANDB_API_KEY", KEYS[0], "--env-vars.DB_PASSWORD=not-a-real-password-3333")
    path = os.path.join(box.folder, "plan.json")
    done = b.rlrun(box, "check", *words, "--json", "--save", path, "--", "--max-steps", "3", *secret)
    found = json.loads(done.out)
    text = b.read(found["saved"]["kept"])

    def run(*overrides):
        return b.rlrun(box, "run", *words, "--json", "--confirm", found["digest"], "--", *overrides)
    other = ("--max-steps", "5") + secret
    b_facts = {"saved": found["saved"], "text": text, "overrides": run(*other),
               "secret": run("--max-steps", "3", "--env-vars.WANDB_API_KEY", KEYS[1], secret[2])}
    with open(os.path.join(box.root, "configs", "debug", "mine.toml"), "a") as file:
        file.write("[trainer]\noptim.lr = 1e-5\n")
    b_facts["file"] = run("--max-steps", "3", *secret)
    return b_facts


def test_prime_overrides_and_several_configs(play, tmp_path):
    root = build_prime_checkout(tmp_path / "prime")
    add_prime_config(root, "mine", "[orchestrator]\nbatch_size = 64\n")
    facts = play(play_prime, root)
    everything = json.dumps(facts)
    assert not [word for word in KEYS + ("password-3333",) if word in everything.replace("--confirm", "")]
    moved = {name: json.loads(facts[name][1])["moved"] for name in ("overrides", "secret", "file")}
    assert {"field": "overrides", "old": "--max-steps 3", "new": "--max-steps 5", "change": "changed"} in moved["overrides"]
    assert [move["field"] for move in moved["overrides"]].count("argv") == 0
    assert moved["secret"] == [{"field": "overrides", "old": None, "new": None, "change": "changed"}]
    assert {"field": "configs/debug/mine.toml [trainer]", "old": None, "new": "optim.lr = 1e-5", "change": "new"} in moved["file"]


# --- where it can't be saved


def play_refusals(box):
    checked = {}
    foreign = os.path.join(box.folder, "foreign")
    b.add_to_file(foreign, "mine\n")
    link, fifo = os.path.join(box.folder, "link"), os.path.join(box.folder, "fifo")
    os.symlink(os.path.join(box.root, CONFIG), link)
    os.mkfifo(fifo)
    for name, words in (("foreign", ["--save", foreign]), ("link", ["--save", link, "--json"]), ("fifo", ["--save", fifo, "-q"]),
                        ("missing", ["--save", os.path.join(box.folder, "no", "x")]), ("empty", ["--save", ""]),
                        ("valid", ["--valid-for", "12h"]), ("zero", ["--save", "x", "--valid-for", "0"]),
                        ("structure", ["--save", "x", "--structure-only"])):
        checked[name] = b.rlrun(box, "check", "first", *words)
    facts = {"checked": checked, "foreign": b.read(foreign), "kept": kept(box)}
    digest = b.check(box, "first")["digest"]
    facts["plans"] = {path: b.rlrun(box, "run", "first", "--confirm", digest, "--plan", path, *LEAVE)
                      for path in (foreign, fifo, box.folder, os.path.join(box.folder, "none"))}
    # A checkout that this user can't write to, and the working directory of the saved file.
    os.makedirs(os.path.join(box.root, "logs"))
    os.chmod(box.folder, 0o777)
    for folder in Path(box.folder).parents:
        os.chmod(str(folder), os.stat(str(folder)).st_mode | 0o011)
    nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    pyz = os.path.join(box.folder, "rlrun.pyz")
    with open(box.pyz, "rb") as source, open(pyz, "wb") as copy:
        copy.write(source.read())
    facts["nobody"] = b.run(nobody + ["/usr/bin/python3", pyz, "check", "first", "--root", box.root, "--save", "plan.json"],
                            b.make_env(box, {"HOME": box.folder}), box.folder)
    facts["saved"] = os.path.exists(os.path.join(box.folder, "plan.json"))
    return facts


def test_what_can_not_be_saved_or_read_is_refused_in_words(play, root, pyz):
    add_config(root, "train", "first", FIRST % KEYS[0])
    facts = play(play_refusals, root, python="/usr/bin/python3")
    codes = {name: done[0] for name, done in facts["checked"].items()}
    assert codes == {"foreign": 2, "link": 2, "fifo": 2, "missing": 5, "empty": 2, "valid": 2, "zero": 2, "structure": 2}
    assert not [done for done in facts["checked"].values() if "Traceback" in done[2] or "SAFE TO RUN" in done[1]]
    assert json.loads(facts["checked"]["link"][1])["reason"] == "save" and facts["foreign"] == "mine\n" and facts["kept"] == []
    for path, (code, _, err) in facts["plans"].items():
        assert code == 2 and path in err and "nothing was launched" in err, err
    code, out, err = facts["nobody"]
    assert code == 0 and facts["saved"], err
    assert "own copy could not be written (Permission denied): launch it with `run --plan" in err
    assert "--plan %s" % os.path.join(os.path.dirname(str(root)), "plan.json") in out.rstrip().split("\n")[-1]
