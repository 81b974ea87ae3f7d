"""The linters as tests. They are in tests/requirements.txt, so they are never skipped."""
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LINTERS = {
    "ruff": ["-m", "ruff", "check", "--config", "tests/ruff.toml", "--no-cache", "."],
    "mypy": ["-m", "mypy", "--config-file", "tests/mypy.ini"],
    # An annotation in quotes is never evaluated, so what stands in it need not exist in 3.6.
    "vermin": ["-c", "from vermin.main import main; main()", "-t=3.6-", "--no-tips", "--violations",
               "--no-eval-annotations", "--no-parse-comments", "rlrun"],
}


@pytest.mark.parametrize("name", sorted(LINTERS))
def test_linter(name, tmp_path):
    env = dict(os.environ, MYPY_CACHE_DIR=str(tmp_path / "mypy"))  # several workers, one cache: it would break
    done = subprocess.run([sys.executable] + LINTERS[name], cwd=str(ROOT), env=env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout.decode("utf-8", "replace")


def test_vermin_would_notice(tmp_path):
    """Its exit code is 0 where it understood nothing."""
    (tmp_path / "new.py").write_text("import dataclasses\nif (n := 1):\n    pass\n")
    done = subprocess.run([sys.executable] + LINTERS["vermin"][:-1] + [str(tmp_path)], stdout=subprocess.PIPE)
    assert done.returncode == 1 and b"3.8" in done.stdout


def test_no_shell_script_is_broken():
    scripts = [path for path in (ROOT / "tests" / "demo.sh", ROOT / ".ci" / "run") if path.exists()]
    for path in scripts:
        assert subprocess.run(["bash", "-n", str(path)]).returncode == 0, path
        assert os.access(str(path), os.X_OK), path
