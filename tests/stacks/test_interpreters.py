"""What a command line runs."""
import pytest

from rlrun.stacks.interpreters import read_run

SCRIPTS = [
    # words, language, script, arguments
    ("bash a.sh x y", "shell", "a.sh", ("x", "y")),
    ("/bin/bash -x a.sh", "shell", "a.sh", ()),
    ("-bash a.sh", "shell", "a.sh", ()),
    ("bash --norc -eu -o pipefail a.sh x", "shell", "a.sh", ("x",)),
    ("bash -o pipefail -O extglob +x a.sh", "shell", "a.sh", ()),
    ("bash --rcfile r a.sh", "shell", "a.sh", ()),
    ("bash -- a.sh -c", "shell", "a.sh", ("-c",)),
    ("sh a.sh", "shell", "a.sh", ()),
    ("bash5.2 a.sh", "shell", "a.sh", ()),
    ("zsh a.sh", "shell", "a.sh", ()),
    ("dash a.sh", "shell", "a.sh", ()),
    ("bash a.sh -c text", "shell", "a.sh", ("-c", "text")),
    ("bash -euxo pipefail a.sh", "shell", "a.sh", ()),
    ("python3 a.py x", "python", "a.py", ("x",)),
    ("/v/bin/python3.11 -u a.py", "python", "a.py", ()),
    ("python a.py -m b", "python", "a.py", ("-m", "b")),
    ("python3.10-dbg -X dev -W ignore a.py", "python", "a.py", ()),
    ("python3.13t a.py", "python", "a.py", ()),
    ("python3 -- a.py", "python", "a.py", ()),
    ("pypy3 -OO a.py", "python", "a.py", ()),
    ("python3 -Wignore -Xdev a.py", "python", "a.py", ()),
    ("python3 --check-hash-based-pycs always a.py", "python", "a.py", ()),
    ("python3 -bb -I a.py", "python", "a.py", ()),
]
MODULES = [
    ("python3 -m a.b x", "a.b", ("x",)),
    ("python3 -ma.b x", "a.b", ("x",)),
    ("python3 -um a.b", "a.b", ()),
    ("python3 -u -X dev -m a.b --x -m y", "a.b", ("--x", "-m", "y")),
    ("python3 -W ignore -m a", "a", ()),
    ("python3 -m", "", ()),
]
NOTHING = [
    "",
    "bash",
    "bash -i",
    "bash -c a.sh",
    "bash -lc a.sh",
    "bash -xc a.sh b",
    "sh -s a.sh",
    "-bash",
    "python3",
    "python3 -",
    "python3 -c a.py",
    "python3 -ic a.py",
    "python3 -uc x -m y",
    "vim a.sh",
    "env bash a.sh",
    "timeout 5 bash a.sh",
    "pythonista a.py",
    "fish a.sh",
    "bashful a.sh",
    "mypython a.py",
    "sudo python3 a.py",
    "ssh bash a.sh",
    "bash -o pipefail",
    "bash -n a.sh",
    "bash -xn a.sh x",
    "bash -o noexec a.sh",
    "bash -euo noexec a.sh",
    "bash --help a.sh",
    "bash --dump-strings a.sh",
    "zsh -n a.sh",
]


@pytest.mark.parametrize("words, language, script, arguments", SCRIPTS, ids=[row[0] for row in SCRIPTS])
def test_scripts(words, language, script, arguments):
    run = read_run(words.split())
    assert (run.language, run.script, run.module, tuple(run.arguments)) == (language, script, "", arguments)


@pytest.mark.parametrize("words, module, arguments", MODULES, ids=[row[0] for row in MODULES])
def test_modules(words, module, arguments):
    run = read_run(words.split())
    assert (run.module, run.script, tuple(run.arguments)) == (module, "", arguments)


@pytest.mark.parametrize("words", NOTHING)
def test_nothing(words):
    run = read_run(words.split())
    assert (run.script, run.module) == ("", "")
