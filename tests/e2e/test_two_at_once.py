"""Launches that are started together, by two users, of the same and of other plans: exactly one runs, and the others name it."""
import json
import os
import shutil
import signal
import subprocess

from checkouts import add_prime_config, build_prime_checkout, write_nvidia_smi

from . import box as b
from . import cells, kills
from .surroundings import NOBODY
from .test_prime_launch import HELD, QUICK

# Who launches what: (checkout, user, config), in turn. The shared one is root's, and its group may write.
STARTERS = (("own", 0, kills.CONFIG), ("nobody", NOBODY, kills.CONFIG), ("shared", 0, kills.CONFIG),
            ("shared", NOBODY, kills.CONFIG), ("own", 0, "other"))


def settle(box):
    """The three checkouts where both users may look, by name."""
    first = cells.settle(box)
    boxes = {"own": first, "nobody": cells.settle(box, NOBODY)}
    root = "/srv/shared"
    shutil.copytree(box.root, root)
    subprocess.check_call(["chgrp", "-R", str(NOBODY), root])
    subprocess.check_call(["chmod", "-R", "g+rwXs", root])
    return dict(boxes, shared=first._replace(root=root))


def play_rush(box, size, rounds, seconds=0.0):
    """Rounds of launches, `size` of them started together, each round with digests of its own. With `seconds`, as many
    rounds as end within it."""
    boxes = settle(box)
    homes = {0: boxes["own"].env["HOME"], NOBODY: boxes["nobody"].env["HOME"]}
    told = []
    ends = b.time.monotonic() + seconds
    while len(told) < rounds and not (seconds and b.time.monotonic() > ends):
        for one in boxes.values():
            for config in (kills.CONFIG, "other"):
                b.add_to_file(os.path.join(one.root, "scripts/train/configs/%s.env" % config), "# round %d\n" % len(told))
        digests = {}
        for name, _, config in STARTERS:
            if (name, config) not in digests:
                digests[name, config] = b.check(boxes[name], config)["digest"]
        known = {name: set(cells.list_ids(one)) for name, one in boxes.items()}
        started = []
        for number in range(size):
            name, uid, config = STARTERS[number % len(STARTERS)]
            one = boxes[name]
            started.append(start(one, uid, dict(one.env, HOME=homes[uid]), number, [
                "run", config, "--confirm", digests[name, config], "--board", "leave", "--json"]))
        told.append(finish(started))
        told[-1]["launched"] = [row["id"] for name, one in boxes.items() for row in kills.read_rows(one, known[name])
                                if row["is_launched"]]
        end_runs(list(boxes.values()))
    return told


def start(box, uid, env, number, words):
    """One rlrun of that user's; what it says goes into a file."""
    path = "/srv/said-%d" % number

    def become():
        os.umask(0o002)
        if uid:
            cells.demote(uid)
    with open(path, "wb") as out, open(path + ".err", "wb") as err:
        return subprocess.Popen([box.python, box.pyz] + words, cwd=box.root, env=env, stdin=subprocess.DEVNULL, stdout=out,
                                stderr=err, preexec_fn=become), path


def finish(started):
    """Waits for all; the one that reads back is told to report at once."""
    asked = set()

    def look():
        pid = cells.find_reading_back()
        if pid and pid not in asked:
            asked.add(pid)
            os.kill(pid, signal.SIGTERM)
        return all(popen.poll() is not None for popen, _ in started)
    b.wait_for(look, "the end of all of them", 280)
    runners = cells.find_runners()
    said = []
    for popen, path in started:
        out, err = b.read(path), b.read(path + ".err")
        said.append({"code": popen.returncode, "reason": (json.loads(out) if out.startswith("{") else {}).get("reason"),
                     "names": bool(runners) and str(runners[0]) in err, "err": err[-1500:] if popen.returncode else ""})
    return {"said": said, "runners": runners}


def end_runs(boxes):
    paths = [os.path.join(one.root, "release") for one in boxes]
    for path in paths:
        open(path, "w").close()
    b.wait_for(lambda: not cells.find_runners() and not b.find_processes("rlrun: "), "the end of the run")
    for path in paths:
        os.unlink(path)


def find_faults(told):
    """What is not as it has to be in one round."""
    codes = [one["code"] for one in told["said"]]
    faults = [] if len(told["runners"]) == 1 and len(told["launched"]) == 1 else ["not one run"]
    faults += [] if sorted(codes) == [0] + [1] * (len(codes) - 1) else ["codes %s" % sorted(codes)]
    return faults + [one["err"] for one in told["said"] if one["code"] and not one["names"]]


def test_of_many_at_once_one_launches_and_each_other_names_it(play, root):
    kills.add_toy(root)
    shutil.copy(os.path.join(root, "scripts/train/configs/%s.env" % kills.CONFIG),
                os.path.join(root, "scripts/train/configs/other.env"))
    for told in play(play_rush, root, size=12, rounds=1, timeout=300):
        assert not find_faults(told), told


def play_prime_rush(box, size):
    words = ["run", "held", "--json", "--confirm", b.check(box, "held", env=QUICK)["digest"]]
    with open(os.path.join(box.root, "configs/debug/same.toml"), "w") as out:
        out.write(b.read(os.path.join(box.root, "configs/debug/held.toml")))
    other = ["run", "same", "--json", "--confirm", b.check(box, "same", env=QUICK)["digest"]]
    files = [os.path.join(box.folder, "said-%d" % number) for number in range(size)]
    started = []
    for number, path in enumerate(files):
        with open(path, "wb") as out, open(path + ".err", "wb") as err:
            started.append(subprocess.Popen([box.python, box.pyz] + (other if number % 3 == 2 else words), cwd=box.root,
                                            stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=b.make_env(box, QUICK)))
    b.wait_for(lambda: all(one.poll() is not None for one in started), "the end of all of them", 120)
    rows = b.list_runs(box)
    return {"codes": [one.returncode for one in started], "rows": rows, "err": [b.read(path + ".err") for path in files]}


def test_of_several_on_the_same_gpus_and_ports_one_launches(play, tmp_path, fake_bin):
    root = build_prime_checkout(tmp_path / "prime")
    add_prime_config(root, "held", HELD)
    write_nvidia_smi(fake_bin, [{"index": number, "uuid": "GPU-%d" % number, "used": 0, "total": 81559} for number in range(2)])
    facts = play(play_prime_rush, root, size=5)
    assert sorted(facts["codes"]) == [0, 1, 1, 1, 1], facts
    assert [row["state"] for row in facts["rows"]] == ["running"], facts
    pid = str(facts["rows"][0]["runner"]["pid"])
    assert all(pid in err for code, err in zip(facts["codes"], facts["err"]) if code), facts
