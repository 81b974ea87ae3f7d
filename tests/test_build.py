"""build.py, and the one file that it makes: the same bytes from the same tree, and it starts wherever it is put."""
import bz2
import functools
import hashlib
import importlib.util
import io
import json
import os
import shutil
import stat
import subprocess
import sys
import tokenize
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def leave_out(where, names):
    """What a copy leaves out: hidden folders at the top, and what is made."""
    return {name for name in names if name in ("dist", "__pycache__") or (name.startswith(".") and Path(where) == ROOT)}


@pytest.fixture
def tree(tmp_path):
    """A copy of what is shipped, without most of its modules: the time of a build is theirs."""
    return copy_tree(tmp_path / "a copy", {"commands", "health", "host", "stacks", "steps", "text"})


def copy_tree(copy, left_out=frozenset()):
    """The copy is a git repository of its own; its path has a space."""
    for name in ("rlrun", "tests/checkouts"):
        shutil.copytree(str(ROOT / name), str(copy / name), ignore=lambda folder, names: leave_out(folder, names) | (
            left_out.intersection(names) if folder == str(ROOT / "rlrun") else set()))
    shutil.copy(str(ROOT / "build.py"), str(copy))
    git(copy, "init", "-q")
    git(copy, "add", "-A")
    git(copy, "-c", "user.name=x", "-c", "user.email=x@example.invalid", "commit", "-q", "-m", "x")
    return copy


def git(where, *arguments):
    env = dict(os.environ, GIT_CONFIG_GLOBAL=os.devnull, GIT_CONFIG_NOSYSTEM="1")
    return subprocess.run(["git", "-C", str(where)] + list(arguments), check=True, env=env,
                          stdout=subprocess.PIPE).stdout.decode().strip()


def build(tree, target, python=sys.executable, umask="022", **env):
    environ = dict({"PATH": "/usr/bin:/bin", "HOME": str(tree)}, **env)
    done = subprocess.run(["/bin/sh", "-c", 'umask %s && exec "$@"' % umask, "sh", python, str(tree / "build.py"), str(target)],
                          cwd="/", env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr
    assert hashlib.sha256(target.read_bytes()).hexdigest() in done.stdout.decode("utf-8", "replace")
    return target.read_bytes()


def read_entry(archive, name):
    with zipfile.ZipFile(str(archive)) as entries:
        return entries.read(name)


def test_the_same_bytes_twice(tree, tmp_path):
    assert build(tree, tmp_path / "1.pyz") == build(tree, tmp_path / "2.pyz")


def test_the_same_bytes_from_every_python(pyz, tmp_path, edge_builder):
    """What the Python of the tests built from the checkout itself, others build from a copy of it."""
    commit = read_entry(pyz, "rlrun/BUILD").decode().strip()
    copy = copy_tree(tmp_path / "a copy")
    assert build(copy, tmp_path / "1.pyz", edge_builder, SOURCE_COMMIT=commit) == Path(pyz).read_bytes()


def test_the_same_bytes_from_another_place_umask_and_locale(tree, tmp_path):
    other = tmp_path / "elsewhere"
    subprocess.run(["/bin/sh", "-c", 'umask 077 && git clone -q "$1" "$2"', "sh", str(tree), str(other)], check=True)
    first = build(tree, tmp_path / "1.pyz", LC_ALL="C.UTF-8", TZ="Asia/Tokyo")
    for number, umask in enumerate(("000", "077", "027")):
        assert build(other, tmp_path / ("%d.pyz" % number), umask=umask, LC_ALL="C", SOURCE_DATE_EPOCH="1") == first
        assert stat.S_IMODE((tmp_path / ("%d.pyz" % number)).stat().st_mode) == 0o755


def test_the_same_bytes_without_git(tree, tmp_path):
    commit = git(tree, "rev-parse", "HEAD")
    first = build(tree, tmp_path / "1.pyz")
    assert read_entry(tmp_path / "1.pyz", "rlrun/BUILD").decode() == commit + "\n"
    (tree / "rlrun" / "__pycache__").mkdir()
    (tree / "rlrun" / "__pycache__" / "x.py").write_text("")
    shutil.rmtree(str(tree / ".git"))
    assert build(tree, tmp_path / "2.pyz", SOURCE_COMMIT=commit) == first
    build(tree, tmp_path / "3.pyz")
    assert read_entry(tmp_path / "3.pyz", "rlrun/BUILD") == b"unknown\n"


@pytest.mark.parametrize("path,is_shipped", [("rlrun/values.py", True), ("rlrun/added.py", True), ("scratch.py", False)])
def test_a_changed_tree_says_so(tree, tmp_path, path, is_shipped):
    with (tree / path).open("a") as out:
        out.write("# changed\n")
    build(tree, tmp_path / "1.pyz")
    assert read_entry(tmp_path / "1.pyz", "rlrun/BUILD").endswith(b"+dirty\n") == is_shipped


def test_what_is_in_it(tree, tmp_path):
    (tree / ".gitignore").write_text("*.txt\n")
    (tree / "rlrun" / "ignored.txt").write_text("")
    build(tree, tmp_path / "1.pyz")
    raw = (tmp_path / "1.pyz").read_bytes()
    assert raw.startswith(b"#!/usr/bin/env python3\nPK")
    with zipfile.ZipFile(str(tmp_path / "1.pyz")) as archive:
        assert archive.testzip() is None
        infos = archive.infolist()
        names = [info.filename for info in infos]
        assert names == sorted(names) and {"__main__.py", "rlrun/values.py", "rlrun/BUILD"} <= set(names)
        assert not [name for name in names if "ignored" in name or "__pycache__" in name]
        assert {info.compress_type for info in infos} == {zipfile.ZIP_STORED}
        assert {info.date_time for info in infos} == {(1980, 1, 1, 0, 0, 0)}
        assert {info.external_attr >> 16 for info in infos} == {0o100644}
        for name in ("lego", "prime"):
            packed = json.loads(bz2.decompress(archive.read("rlrun/demo_" + name)).decode("ascii"))
            assert packed and any(is_program for is_program, _ in packed.values())
            for path, (is_program, text) in packed.items():
                source = ROOT / "tests" / "checkouts" / name / path
                assert text.encode("utf-8") == source.read_bytes()
                assert is_program == bool(source.stat().st_mode & 0o100)


def test_a_failed_build_leaves_the_old_file(tree, tmp_path):
    target = tmp_path / "dist" / "1.pyz"
    target.parent.mkdir()
    first = build(tree, target)
    (tree / "rlrun" / "__main__.py").unlink()
    done = subprocess.run([sys.executable, str(tree / "build.py"), str(target)], stderr=subprocess.PIPE)
    assert done.returncode != 0
    assert target.read_bytes() == first and os.listdir(str(target.parent)) == ["1.pyz"]


# From here on it is the shipped file itself that runs.

@pytest.fixture
def run_pyz(run_pyz, pyz):
    return functools.partial(run_pyz, path=pyz)


def is_version(done, path):
    digest = hashlib.sha256(Path(str(path)).read_bytes()).hexdigest()
    return (done.returncode, done.stderr) == (0, "") and digest in done.stdout


def test_it_starts_under_every_python(run_pyz, pyz, each_python):
    assert is_version(run_pyz(["version"], python=each_python), pyz)


def test_version_as_json(run_pyz, pyz):
    report = json.loads(run_pyz(["version", "--json"]).stdout)
    assert report["schema"] == 1
    assert read_entry(pyz, "rlrun/BUILD").decode().strip() in report.values()


@pytest.mark.parametrize("name", ["rlrun", "rl run.pyz", "rlrun.pyz.old", "läuf.pyz", "-x", "a'b"])
def test_it_starts_under_any_name(run_pyz, pyz, tmp_path, name):
    """E7"""
    folder = tmp_path / "read only"
    folder.mkdir()
    path = folder / name
    shutil.copy(pyz, str(path))
    path.chmod(0o555)
    folder.chmod(0o555)
    try:
        assert is_version(run_pyz(["version"], path=str(path)), path)
        assert is_version(run_pyz(["version"], path="./" + name, cwd=folder), path)
    finally:
        folder.chmod(0o755)
    assert os.listdir(str(folder)) == [name]


def test_it_starts_as_a_program_and_through_a_link(pyz, tmp_path, fake_bin, clean_env):
    """E7, C5"""
    (fake_bin / "python3").symlink_to(sys.executable)
    (fake_bin / "rlrun").symlink_to(tmp_path / "link")
    (tmp_path / "link").symlink_to(pyz)
    done = subprocess.run(["rlrun", "version"], env=clean_env, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          encoding="utf-8", executable=str(fake_bin / "rlrun"))
    assert is_version(done, pyz)


def test_shadows_on_pythonpath_and_in_the_working_directory(run_pyz, pyz, each_python, tmp_path, clean_env):
    """E5"""
    folder = tmp_path / "shadows"
    folder.mkdir()
    for name in ("argparse", "json", "signal", "logging", "platform", "subprocess", "hashlib", "shlex", "rlrun"):
        (folder / (name + ".py")).write_text("raise RuntimeError\n")
    clean_env["PYTHONPATH"] = str(folder)
    for words in (["version"], ["check", "--help"]):
        done = run_pyz(words, python=each_python, cwd=folder)
        assert (done.returncode, done.stderr) == (0, ""), words


@pytest.mark.parametrize("closing", ["<&-", ">&-", "2>&-"])
def test_a_closed_stream(pyz, clean_env, edge_python, closing):
    start_with_closed_streams(pyz, clean_env, edge_python, closing)


def test_closed_streams(pyz, clean_env, each_python):
    start_with_closed_streams(pyz, clean_env, each_python, "<&- >&- 2>&-")


def start_with_closed_streams(pyz, clean_env, python, closing):
    for words in (["--help"], ["nonsense"]):
        done = subprocess.run(["/bin/sh", "-c", 'exec "$@" ' + closing, "sh", python, pyz] + words, env=clean_env,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert done.returncode == (2 if words == ["nonsense"] else 0), words
        assert b"Traceback" not in done.stderr and b"Exception" not in done.stderr


def test_a_reader_that_left(pyz, clean_env, each_python):
    """`rlrun --help | true`: silent, and the exit code is the command's."""
    for words in (["version"], ["explain"]):
        reading, writing = os.pipe()
        os.close(reading)
        done = subprocess.run([each_python, pyz] + words, env=clean_env, stdin=subprocess.DEVNULL, stdout=writing,
                              stderr=subprocess.PIPE)
        os.close(writing)
        assert (done.returncode, done.stderr) == (0, b""), words


# Comments and docstrings do not ship; everything else does, on the line where it was.

@pytest.fixture(scope="module")
def builder():
    spec = importlib.util.spec_from_file_location("build_for_test", str(ROOT / "build.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_module_is_stripped(builder):
    source = '''#!/usr/bin/python3
"""What it owns — in two
lines."""
import os  # why


class Empty:
    """Only words: `pass`."""


def inner():
    # type: () -> None
    """One.

    # Not a comment.
    """


def shared(): "not on a line of its own"; return 1


def text():
    """Goes."""  # so does this
    kept = """# stays
    \\"\\"\\"too\\"\\"\\" """  # goes
    return kept + "# stays", "läuft"  # goes


def wide(one, two):
    return (
        one, [
            # goes
            two])


async def later():
    """Goes."""
    return 1
'''
    stripped = builder.strip_source(source.encode("utf-8"), "x").decode("utf-8")
    assert stripped.count("\n") == source.count("\n")
    assert "goes" not in stripped.lower() and "Not a comment" not in stripped and "why" not in stripped
    assert stripped.count("# stays") == 2 and "läuft" in stripped and "not on a line of its own" in stripped
    lines = stripped.split("\n")
    assert lines[:4] == ["", "", "", "import os"] and lines[7] == " pass" and lines[12] == " pass"
    assert lines.index(' kept = """# stays') == source.split("\n").index('    kept = """# stays')
    assert '    """too""" """' in lines[lines.index(' kept = """# stays') + 1].replace("\\", "")
    assert lines.index("one, [") == lines.index(" return (") + 1 and "two])" in lines
    compile(stripped, "x", "exec")


def test_a_module_that_would_mean_another_is_refused(builder):
    with pytest.raises(ValueError, match="x.py would change"):
        builder.strip_source(b'def one():\n    """Goes."""\n    "would become the docstring"\n', "x.py")


@pytest.mark.parametrize("path", sorted((ROOT / "rlrun").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_but_comments_and_docstrings_is_missing(pyz, path):
    """build.py compared what it means (test_a_module_that_would_mean_another_is_refused)."""
    name = str(path.relative_to(ROOT))
    source, shipped = path.read_bytes(), read_entry(pyz, name)
    assert shipped.count(b"\n") == source.count(b"\n") and len(shipped) < len(source)
    assert tokenize.COMMENT not in [token.type for token in tokenize.tokenize(io.BytesIO(shipped).readline)]
    compile(shipped, name, "exec", dont_inherit=True)


def test_the_door_keeps_its_words(pyz):
    assert read_entry(pyz, "__main__.py") == read_entry(pyz, "rlrun/__main__.py")
    assert read_entry(pyz, "__main__.py").startswith(b'"""The door')
    assert b'"""' not in read_entry(pyz, "rlrun/errors.py")


def test_it_stays_small(pyz):
    assert os.stat(pyz).st_size < 1250000
