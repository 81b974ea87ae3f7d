"""A bug of ours after the launch denies no run: it is admitted, with what stops it."""
import json
import os
import zipfile

import pytest

from . import box as b

PLANTED = b"\n\ndef %s(*words):\n    raise RuntimeError('planted')\n"


def plant(box, name, function):
    """A copy of the pyz in which a function of a module raises."""
    target = os.path.join(box.folder, "planted.pyz")
    with zipfile.ZipFile(box.pyz) as old, zipfile.ZipFile(target, "w") as new:
        for entry in old.namelist():
            new.writestr(entry, old.read(entry) + (PLANTED % function.encode() if entry == name else b""))
    return box._replace(pyz=target)


def play_bug(box, name, function):
    digest = b.check(box, "pinned", env=b.LONG)["digest"]
    broken = plant(box, name, function)
    done = b.rlrun(broken, "run", "pinned", "--json", "--confirm", digest, "--board", "leave", env=b.LONG)
    facts = {"done": done, "told": json.loads(done.out), "runs": b.list_runs(box)}
    b.shell(box, facts["told"].get("stop") or "false")
    b.wait_for_end(box)
    return facts


@pytest.mark.parametrize("name, function", [("rlrun/steps/survival.py", "verify"), ("rlrun/steps/readback.py", "wait")])
def test_a_bug_after_the_launch_is_no_denial(play, root, name, function):
    facts = play(play_bug, root, ships=True, name=name, function=function)
    told = facts["told"]
    words = "launched (pid %d), but the report failed: RuntimeError: planted" % told["runner"]["pid"]
    assert facts["done"][0] == 70 and words in facts["done"][2]
    assert told["launched"] is True and told["exit"] == 70 and told["record"] and told["digest"]
    assert [(one["state"], one["runner"]["pid"]) for one in facts["runs"]] == [("running", told["runner"]["pid"])]
