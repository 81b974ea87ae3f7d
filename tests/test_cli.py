"""A bug in rlrun: one line and a report, whatever else fails, and no secret in either."""
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = """
import sys
sys.path.insert(0, %r)
from rlrun import cli
def fail(argv, kept):
    raise RuntimeError("https://bob:hunter2hunter2@host said operators-own-secret-6666")
cli._run = fail
%s
sys.exit(cli.main(["check", "--api-key", "topsecretvalue99"]))
"""
BREAKS = {
    "nothing": "",
    "the_source": "import linecache\ndef gone(*words): raise EOFError()\nlinecache.updatecache = linecache.getlines = gone",
    "the_report": "import tempfile\ndef full(*words, **named): raise OSError(28, 'full')\ntempfile.mkstemp = full",
    "the_redaction": "sys.modules['rlrun.text.redact'] = None",
}


@pytest.mark.parametrize("name", sorted(BREAKS))
def test_a_bug_is_told_in_a_line_without_a_secret(name, tmp_path, clean_env):
    clean_env.update(MY_TOKEN="operators-own-secret-6666", TMPDIR=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", PROGRAM % (str(ROOT), BREAKS[name])], env=clean_env, cwd="/",
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
    reports = [path.read_text() for path in tmp_path.glob("rlrun-bug-*")]
    assert done.returncode == 70 and done.stderr.startswith("rlrun: a bug in rlrun: ") and "RuntimeError" in done.stderr
    assert done.stderr.count("\n") == 2 and done.stdout == ""
    assert len(reports) == (1 if name in ("nothing", "the_source") else 0)
    for text in [done.stderr] + reports:
        assert not [word for word in ("hunter2", "operators-own", "topsecret") if word in text]
    assert all("in fail" in text for text in reports)
