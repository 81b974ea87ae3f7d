"""rlrun/__main__.py by itself: in an archive with a stand-in for cli that tells what it found."""
import ast
import json
import os
import subprocess
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOOR = (ROOT / "rlrun" / "__main__.py").read_text(encoding="utf-8")
SHADOWS = ("argparse", "json", "signal", "logging", "platform", "shlex", "tempfile", "zlib", "select", "rlrun")

CLI = '''
import argparse, json, logging, os, platform, shlex, select, signal, sys, tempfile, zlib
def main(argv):
    report = {"argv": argv, "path": sys.path, "files": [m.__file__ for m in (argparse, json, logging, platform, signal)],
              "pythonpath": os.environ.get("PYTHONPATH"), "streams": [s is None for s in (sys.stdin, sys.stdout, sys.stderr)],
              "open": sorted(n for n in range(3) if os.path.exists("/proc/self/fd/%d" % n)), "python": sys.version_info[:2]}
    with open(os.environ["REPORT"], "w") as out:
        out.write(json.dumps(report))
    return 7
'''


@pytest.fixture
def door(tmp_path, clean_env):
    """Starts the archive with a Python; gives what the stand-in reported."""
    archive = tmp_path / "door.pyz"
    with open(str(archive), "wb") as out:
        out.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(out, "w") as entries:
            entries.writestr("__main__.py", DOOR)
            entries.writestr("rlrun/__init__.py", "")
            entries.writestr("rlrun/cli.py", CLI)
    clean_env["REPORT"] = str(tmp_path / "report.json")

    def start(python, *options, cwd=None, shell="exec \"$@\""):
        done = subprocess.run(["/bin/sh", "-c", shell, "sh", python] + list(options) + [str(archive), "a", "b c"],
                              env=clean_env, cwd=None if cwd is None else str(cwd), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert (done.returncode, done.stdout, done.stderr) == (7, b"", b"")
        return json.loads((tmp_path / "report.json").read_text())
    return start


@pytest.fixture
def shadows(tmp_path):
    folder = tmp_path / "shadows"
    folder.mkdir()
    for name in SHADOWS:
        (folder / (name + ".py")).write_text("raise RuntimeError('%s of another')\n" % name)
    return folder


@pytest.mark.parametrize("version", [(3, 0), (3, 3), (3, 5)])
def test_the_door_can_be_read_by_an_old_python_3(version):
    """ast knows these versions no more than the installed Python does; what it can't refuse, the words below do."""
    ast.parse(DOOR, feature_version=version)
    tree = ast.parse(DOOR)
    too_new = (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr, ast.AsyncFunctionDef, ast.Nonlocal, ast.Starred)
    assert not [node for node in ast.walk(tree) if isinstance(node, too_new)]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            assert node.returns is None and not node.args.kwonlyargs
            assert not [argument for argument in node.args.args if argument.annotation]
    DOOR.encode("ascii")  # Python 2 reads nothing else without a coding line


def test_python_2_is_turned_away_in_one_line(python2, pyz):
    done = subprocess.run([python2, pyz, "version"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == 5 and done.stdout == b""
    line, = done.stderr.decode().splitlines()
    assert "2.7." in line and "3.6" in line and "/usr/bin/python3" in line


def test_arguments_and_exit_code(door, each_python):
    report = door(each_python)
    assert report["argv"] == ["a", "b c"] and not any(report["streams"])


def test_shadows_on_pythonpath(door, each_python, shadows, clean_env):
    """E5: ours come from the library, and the run still inherits the operator's variable."""
    clean_env["PYTHONPATH"] = "%s::relative" % shadows
    report = door(each_python, cwd=shadows)
    assert report["pythonpath"] == clean_env["PYTHONPATH"]
    assert not [path for path in report["files"] + report["path"] if str(shadows) in path or not path.startswith("/")]
    assert not [path for path in report["path"] if "-packages" in path]


def test_shadows_that_a_sitecustomize_has_imported(door, each_python, tmp_path, clean_env):
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "json.py").write_text("")
    (folder / "sitecustomize.py").write_text("import json\n")
    clean_env["PYTHONPATH"] = str(folder)
    assert str(folder) not in " ".join(door(each_python)["files"])


@pytest.mark.parametrize("variable", ["PYTHONSAFEPATH", "PYTHONNOUSERSITE", "PYTHONDONTWRITEBYTECODE"])
def test_pythons_own_switches(door, edge_python, variable, clean_env):
    clean_env[variable] = "1"
    door(edge_python)


@pytest.mark.parametrize("options", [["-I"], ["-E"], ["-s"], ["-S"], ["-B"], ["-OO"], ["-W", "error"]])
def test_pythons_own_options(door, edge_python, options):
    door(edge_python, *options)


def test_several_of_them_at_once(door, each_python, clean_env):
    clean_env.update(PYTHONSAFEPATH="1", PYTHONNOUSERSITE="1", PYTHONDONTWRITEBYTECODE="1")
    door(each_python)
    door(each_python, "-I", "-B", "-W", "error")
    door(each_python, "-E", "-s", "-S", "-OO")


def test_python_home(door, each_python, clean_env):
    clean_env["PYTHONHOME"] = subprocess.run([each_python, "-c", "import sys; print(sys.base_prefix)"], check=True,
                                             stdout=subprocess.PIPE).stdout.decode().strip()
    door(each_python)


def test_a_working_directory_that_is_gone(door, each_python, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    door(each_python, cwd=gone, shell='rmdir "$PWD" && exec "$@"')


def test_all_streams_closed(door, each_python):
    report = door(each_python, shell='exec "$@" <&- >&- 2>&-')
    assert all(report["streams"]) and report["open"] == [0, 1, 2]


@pytest.mark.parametrize("closing,number", [("<&-", 0), (">&-", 1), ("2>&-", 2)])
def test_closed_streams_are_not_taken_by_the_next_file(door, edge_python, closing, number):
    report = door(edge_python, shell='exec "$@" %s' % closing)
    assert report["streams"][number] and report["open"] == [0, 1, 2]


@pytest.mark.parametrize("words", [["-m", "rlrun"], ["rlrun"], ["rlrun/__main__.py"]])
def test_a_source_checkout(edge_python, tmp_path, clean_env, shadows, words):
    package = shadows / "rlrun"
    package.mkdir()
    (shadows / "rlrun.py").unlink()
    for name, text in (("__init__", ""), ("__main__", DOOR), ("cli", CLI)):
        (package / (name + ".py")).write_text(text)
    clean_env.update(REPORT=str(tmp_path / "report.json"), PYTHONDONTWRITEBYTECODE="1")
    done = subprocess.run([edge_python] + words, cwd=str(shadows), env=clean_env, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (7, b"")
    assert str(shadows) not in " ".join(json.loads((tmp_path / "report.json").read_text())["files"])


def test_a_relative_archive_survives_a_change_of_directory(each_python, tmp_path, clean_env, door):
    assert os.path.isabs(door(each_python)["path"][-1])
    done = subprocess.run([each_python, "door.pyz"], cwd=str(tmp_path), env=clean_env)
    assert done.returncode == 7
    assert json.loads((tmp_path / "report.json").read_text())["path"][-1] == str(tmp_path / "door.pyz")
