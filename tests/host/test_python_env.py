"""What an interpreter finds: real interpreters, a fake one for the faults."""
import os
import sys

import pytest

from rlrun.host import python_env


def make_tree(root, files):
    for name, text in files.items():
        path = root / name
        os.makedirs(str(path.parent), exist_ok=True)
        path.write_text(text)
    return str(root)


def make_program(path, body):
    path.write_text("#!/bin/sh\n" + body)
    path.chmod(0o755)
    return str(path)


def with_pythonpath(folder):
    return dict(os.environ, PYTHONPATH=str(folder))


def find(names, cwd, env=None):
    return python_env.find_modules(sys.executable, names, cwd=str(cwd), env=env)


def test_modules_of_all_kinds(tmp_path):
    make_tree(tmp_path, {"lib/verl/__init__.py": "raise SystemExit('imported')", "lib/single.py": "",
                         "lib/space/x.py": ""})
    names = ["verl", "single", "space", "missing", "sys", "verl.trainer"]
    found = find(names, tmp_path, with_pythonpath(tmp_path / "lib"))
    lib = str(tmp_path / "lib")
    assert found == {"verl": lib + "/verl/__init__.py", "single": lib + "/single.py", "space": lib + "/space",
                     "missing": "", "sys": "built-in", "verl.trainer": lib + "/verl/__init__.py"}


def test_the_working_directory_is_on_the_path_as_for_the_trainer(tmp_path):
    make_tree(tmp_path, {"verl/__init__.py": ""})
    assert os.path.samefile(find(["verl"], tmp_path)["verl"], str(tmp_path / "verl/__init__.py"))


def test_E5_modules_in_the_working_directory_do_not_break_the_question(tmp_path):
    make_tree(tmp_path, {name + ".py": "raise RuntimeError" for name in ("json", "signal", "types", "contextlib")})
    assert find(["json", "nope"], tmp_path)["nope"] == ""


def test_noise_of_sitecustomize_is_no_answer(tmp_path):
    make_tree(tmp_path, {"sitecustomize.py": "import atexit, sys\nsys.stdout.write('{\"verl\": \"no\"} ')\n"
                                             "atexit.register(print, 'bye')\n", "verl.py": ""})
    assert find(["verl"], "/", with_pythonpath(tmp_path)) == {"verl": str(tmp_path / "verl.py")}


def test_asking_leaves_no_compiled_file_behind(tmp_path):
    make_tree(tmp_path, {"sitecustomize.py": "import helper", "helper.py": "", "verl.py": ""})
    env = with_pythonpath(tmp_path)
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    find(["verl"], tmp_path, env)
    assert sorted(os.listdir(str(tmp_path))) == ["helper.py", "sitecustomize.py", "verl.py"]


def test_no_name_is_in_the_command_line(tmp_path):
    """A runner's sweep kills by `vllm` in anybody's command line, and another rlrun reads them for that."""
    python = make_program(tmp_path / "python", "tr '\\0' ' ' </proc/$$/cmdline\n")
    asked = python_env.start_finding(python, ["vllm", "ray"], cwd=str(tmp_path))
    assert asked.popen and b"python" in asked.popen.stdout.read()
    assert python_env.finish_finding(asked, ["vllm"]) is None
    assert "vllm" not in " ".join(asked.argv) and "ray" not in " ".join(asked.argv).replace(str(tmp_path), "")


def test_a_finder_that_raises_means_not_found(tmp_path):
    make_tree(tmp_path, {"sitecustomize.py": (
        "import sys\nclass Finder:\n    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'vllm': raise RuntimeError(name)\nsys.meta_path.insert(0, Finder())\n"), "verl.py": ""})
    found = find(["vllm", "verl"], tmp_path, with_pythonpath(tmp_path))
    assert found["vllm"] == "" and found["verl"]


def test_paths_that_are_not_ascii(tmp_path):
    make_tree(tmp_path, {"prüfung/verl.py": ""})
    env = dict(with_pythonpath(tmp_path / "prüfung"), LC_ALL="C", PYTHONIOENCODING="ascii")
    assert find(["verl"], "/", env)["verl"].endswith("/verl.py")


@pytest.mark.parametrize("body", ["exit 1\n", "echo hello\n", "echo '@@rlrun-modules@@ {broken'\n", "kill -9 $$\n"])
def test_no_answer_is_none(tmp_path, body):
    assert python_env.find_modules(make_program(tmp_path / "python", body), ["x"], cwd=str(tmp_path)) is None


def test_an_interpreter_that_is_not_there_or_hangs(tmp_path):
    assert python_env.find_modules(str(tmp_path / "none"), ["x"]) is None
    hangs = make_program(tmp_path / "python", "exec sleep 100\n")
    assert python_env.find_modules(hangs, ["x"], timeout_seconds=0.2) is None


def test_version():
    assert python_env.read_version(sys.executable) == ".".join(map(str, sys.version_info[:3]))


@pytest.mark.parametrize("body, expected", [("echo 'Python 3.13.0rc2+'\n", "3.13.0rc2+"), ("echo Python 2.7.18 >&2\n",
                                            "2.7.18"), ("echo no\n", ""), ("exit 3\n", "")])
def test_version_as_printed(tmp_path, body, expected):
    assert python_env.read_version(make_program(tmp_path / "python", body)) == expected
