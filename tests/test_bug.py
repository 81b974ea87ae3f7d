"""A bug in the rlrun that ships, planted into a copy of it: exit 70, a line, a report that can be sent."""
import json
import os
import stat
import sys
import zipfile

import pytest

RAISING = '''
import os
raise RuntimeError("planted; https://bob:hunter2hunter2@host said " + os.environ["MY_TOKEN"] + " of " + os.environ["PLAIN"][:0])
'''
SECRETS = ("operators-own-secret-6666", "hunter2", "topsecretvalue99")
ARGS = ["run", "x", "--confirm", "3f9c2a71", "--runner", "uv --api-key topsecretvalue99", "--", "--api-key", "topsecretvalue99"]


@pytest.fixture
def broken(pyz, tmp_path, clean_env):
    """The pyz with a run module that raises, in an environment that holds a secret."""
    clean_env.update(MY_TOKEN=SECRETS[0], PLAIN="not-to-be-told-either", TMPDIR=str(tmp_path / "tmp"), LC_ALL="C")
    (tmp_path / "tmp").mkdir()
    target = tmp_path / "broken.pyz"
    with zipfile.ZipFile(pyz) as old, zipfile.ZipFile(str(target), "w") as new:
        for name in old.namelist():
            new.writestr(name, RAISING if name == "rlrun/commands/run.py" else old.read(name))
    return str(target)


def read_reports(folder):
    return [(path, path.read_text(encoding="utf-8")) for path in folder.glob("rlrun-bug-*")]


def test_a_planted_bug_leaves_a_line_and_a_report(broken, run_pyz, tmp_path, edge_python):
    done = run_pyz(ARGS, path=broken, python=edge_python)
    (path, text), = read_reports(tmp_path / "tmp")
    assert (done.returncode, done.stdout) == (70, "") and done.stderr.startswith("rlrun: a bug in rlrun: RuntimeError: planted")
    assert done.stderr.split("\n")[1:] == ["  Please send this report: %s" % path, ""]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    lines = text.split("\n")
    assert lines[0].startswith("rlrun run x --confirm 3f9c2a71 --runner") and lines[1].startswith("rlrun 0.")
    assert "commit " in lines[1] and lines[2].startswith("Python 3.") and lines[3].startswith("Linux ")
    assert "Traceback (most recent call last):" in text and "commands/run.py" in text and "RuntimeError: planted" in text
    for secret in SECRETS + ("not-to-be-told-either",):
        assert secret not in text + done.stderr
    told = json.loads(run_pyz(ARGS[:2] + ["--json"], path=broken, python=edge_python).stdout)
    assert (told["exit"], told["reason"], told["launched"]) == (70, "bug", False) and "rlrun-bug-" in told["hint"]
    done = run_pyz(["run", "x", "--quiet-unless-failed"], path=broken, python=edge_python)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (70, "", 1)
    assert done.stderr.startswith("rlrun: not launched (exit 70): a bug in rlrun: RuntimeError: planted")
    last = max(read_reports(tmp_path / "tmp"), key=lambda one: one[0].stat().st_mtime_ns)[0]
    assert str(last) in done.stderr and SECRETS[0] not in done.stderr


def test_the_report_lands_where_there_is_room(broken, run_pyz, boxed, tmp_path, clean_env, has_box):
    """Without the folder for temporary files in HOME, then in the working directory; on a full disk nowhere, and no half one."""
    def report(cwd):
        done = run_pyz(ARGS, path=broken, cwd=cwd)
        assert done.returncode == 70 and done.stderr.count("\n") == 2
        return done.stderr.split("report: ")[1].strip()

    (tmp_path / "here").mkdir()
    clean_env.update(TMPDIR=str(tmp_path / "none"))
    path = report(tmp_path / "here")
    assert os.path.dirname(path) == clean_env["HOME"] and os.path.isfile(path)
    clean_env["HOME"] = str(tmp_path / "no-home")
    path = report(tmp_path / "here")
    assert os.path.dirname(path) == str(tmp_path / "here") and os.path.isfile(path)
    if not has_box:
        pytest.skip("the rest mounts a full disk: needs root and unshare")
    clean_env.update(TMPDIR="/mnt", HOME="/mnt")
    done = boxed(["sh", "-c", "mount -t tmpfs -o size=4k tmpfs /mnt && cd /mnt && { head -c 9000 /dev/zero >x 2>/dev/null; "
                              '"$0" "$1" run x; echo "exit $?"; echo rlrun-bug-*; }', sys.executable, broken])
    assert done.stderr.endswith("no report could be written\n") and done.stderr.count("\n") == 2
    assert done.stdout == "exit 70\nrlrun-bug-*\n"
