"""How prime-rl's commands are started on this node."""
import os

import pytest

from rlrun.errors import OperatorError
from rlrun.stacks import prime_runner
from rlrun.stacks.prime_runner import choose, find_entry


def make(path):
    os.makedirs(os.path.dirname(str(path)), exist_ok=True)
    with open(str(path), "w") as out:
        out.write("#!/bin/sh\n")
    os.chmod(str(path), 0o755)
    return str(path)


@pytest.fixture
def root(tmp_path):
    for name in ("python", "rl", "sft", "inference", "evals"):
        make(tmp_path / "c" / ".venv/bin" / name)
    return str(tmp_path / "c")


@pytest.fixture
def environ(tmp_path):
    return {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path / "home")}


def fail(*arguments):
    with pytest.raises(OperatorError) as caught:
        choose(*arguments)
    assert caught.value.code == 5
    return caught.value


@pytest.mark.parametrize("kind", ["rl", "sft", "inference", "evals"])
def test_where_uv_is(root, environ, tmp_path, kind):
    own = root + "/.venv/bin"
    found = choose(root, kind, environ, ())
    assert (found.argv, found.path_first) == ((own + "/" + kind,), own) and "no uv" in found.words
    make(tmp_path / "home/.cargo/bin/uv")
    found = choose(root, kind, environ, ())
    assert (found.argv, found.path_first) == (("uv", "run", "--no-sync", kind), str(tmp_path / "home/.cargo/bin"))
    make(tmp_path / "home/.local/bin/uv")
    found = choose(root, kind, environ, ())
    assert found.path_first == str(tmp_path / "home/.local/bin") and "not on PATH" in found.words
    make(tmp_path / "bin/uv")
    found = choose(root, kind, environ, ())
    assert (found.argv, found.path_first) == (("uv", "run", "--no-sync", kind), "")


def test_uv_that_cant_be_run_is_none(root, environ, tmp_path):
    os.chmod(make(tmp_path / "bin/uv"), 0o644)
    os.chmod(make(tmp_path / "home/.local/bin/uv"), 0o644)
    assert choose(root, "rl", environ, ()).argv == (root + "/.venv/bin/rl",)


def test_without_home_or_path(root, environ, tmp_path, monkeypatch):
    make(tmp_path / "home/.local/bin/uv")
    monkeypatch.setattr(os, "defpath", str(tmp_path / "nothing"))
    assert choose(root, "rl", {"HOME": environ["HOME"]}, ()).path_first == str(tmp_path / "home/.local/bin")
    monkeypatch.setenv("HOME", environ["HOME"])  # what expanduser goes by; without it, the user's own
    for home in ({}, {"HOME": ""}):
        assert choose(root, "rl", dict(home, PATH=""), ()).path_first == str(tmp_path / "home/.local/bin")


@pytest.mark.parametrize("word", ["env/x", "../venv", "{tmp}/elsewhere"])
def test_another_environment(root, environ, tmp_path, word):
    environ["UV_PROJECT_ENVIRONMENT"] = word = word.format(tmp=tmp_path)
    venv = os.path.normpath(os.path.join(root, word))
    assert venv in fail(root, "rl", environ, ()).message
    make(venv + "/bin/python")
    assert "no command rl" in fail(root, "rl", environ, ()).message
    make(venv + "/bin/rl")
    assert choose(root, "rl", environ, ()).argv == (venv + "/bin/rl",)


def test_an_environment_that_is_not_whole(root, environ, tmp_path):
    os.remove(root + "/.venv/bin/sft")
    error = fail(root, "sft", environ, ())
    assert error.reason == "runner" and "uv sync" in error.hint
    os.chmod(root + "/.venv/bin/python", 0o644)
    if not os.access(root + "/.venv/bin/python", os.X_OK):
        assert fail(root, "rl", environ, ("uv", "run")).reason == "no-venv"
    os.remove(root + "/.venv/bin/python")
    error = fail(root, "rl", environ, ("uv", "run"))
    assert error.reason == "no-venv" and "cd %s && uv sync" % root in error.hint
    assert "'" in fail(str(tmp_path / "a b"), "rl", environ, ()).hint


def test_the_name_of_evals(root):
    venv = root + "/.venv"
    assert find_entry(venv, "evals") == "evals" and find_entry(venv, "rl") == "rl"
    make(venv + "/bin/eval")
    assert find_entry(venv, "evals") == "evals"
    os.remove(venv + "/bin/evals")
    assert find_entry(venv, "evals") == "eval" and choose(root, "evals", {"PATH": ""}, ()).argv[0].endswith(("/eval", "eval"))
    os.remove(venv + "/bin/eval")
    assert find_entry(venv, "evals") == "evals"


@pytest.mark.parametrize("asked, argv, path_first", [
    ("uv run", ("uv", "run", "rl"), ""), ("uv run rl", ("uv", "run", "rl"), ""),
    ("uv run --no-sync", ("uv", "run", "--no-sync", "rl"), ""),
    (".venv/bin/rl", ("{root}/.venv/bin/rl",), "{root}/.venv/bin"),
    ("{root}/.venv/bin/rl", ("{root}/.venv/bin/rl",), "{root}/.venv/bin"),
    ("~/bin/my-uv run", ("{home}/bin/my-uv", "run", "rl"), ""),
    ("uv run {root}/.venv/bin/rl", ("uv", "run", "{root}/.venv/bin/rl"), ""),
    ("{root}/.venv/bin/python -m torch", ("{root}/.venv/bin/python", "-m", "torch", "rl"), "")])
def test_what_the_operator_asks_for(root, environ, tmp_path, monkeypatch, asked, argv, path_first):
    make(tmp_path / "bin/uv")
    make(tmp_path / "home/bin/my-uv")
    monkeypatch.setenv("HOME", environ["HOME"])
    monkeypatch.chdir(str(tmp_path))
    names = {"root": root, "home": environ["HOME"]}
    found = choose(root, "rl", environ, tuple(asked.format(**names).split()))
    assert found.argv == tuple(word.format(**names) for word in argv) and found.path_first == path_first.format(**names)
    assert found.words == asked.format(**names) + ", as --runner says"


def test_what_is_beside_us_comes_before_what_is_in_the_checkout(root, environ, tmp_path, monkeypatch):
    monkeypatch.chdir(str(tmp_path))
    assert choose(root, "rl", environ, (".venv/bin/rl",)).argv == (root + "/.venv/bin/rl",)
    make(tmp_path / "tools/uv")
    make(root + "/tools/uv")
    assert choose(root, "rl", environ, ("tools/uv", "run")).argv[0] == str(tmp_path / "tools/uv")


@pytest.mark.parametrize("asked, reason", [("nope run", "no-nope"), ("./nope", "runner"), ("/dev/null", "runner"),
    ("/none/rl", "runner")])
def test_a_runner_that_is_not_there(root, environ, asked, reason):
    error = fail(root, "rl", environ, tuple(asked.split()))
    assert error.reason == reason and asked.split()[0] in error.message
    assert prime_runner.choose(root, "rl", environ, ()).argv  # without it, it would go
