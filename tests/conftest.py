"""What the tests share: the built pyz, the Pythons of this machine, a bare environment, fake programs, a box.

Fixtures, each a value or a function:

    pyz                             path of rlrun.pyz, built once per test worker from the tree as it is
    run_pyz(args, ...)              runs it, gives the CompletedProcess with text; see the function for the options
    each_python                     the test runs once under every Python >= 3.6 found here, and gets its path
    each_builder                    the same from 3.8 on, what build.py promises
    python2                         a Python 2.7, or the test is skipped
    clean_env                       the environment of this test as a dict: HOME (an empty folder), PATH, LC_ALL; change
                                    it, `run_pyz` and `boxed` take it unless they are given another
    fake_bin                        a folder, first on clean_env's PATH
    fake_program(name, script)      writes an executable script into it; without a first line of its own it gets bash's
    boxed(argv, ...)                runs any command in a process table of its own, where that can be had, so that neither
                                    other tests' processes nor the machine's are seen or killed
    has_box                         whether it can be had here (root, and unshare works)

A test waits for a condition, never for a time, and asserts no time either.
"""
import functools
import glob
import os
import subprocess
import sys
from pathlib import Path
from typing import Callable, Dict, List, Optional, Sequence, Tuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_SECONDS = 120

# Its own process table and shared memory: the runners that are under test kill by name and clear /dev/shm.
_BOX = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"]
_IN_BOX = 'mount -t tmpfs tmpfs /dev/shm && exec "$@"'
# A network of its own has its own ports and abstract sockets; its loopback is down at first.
_LOOPBACK_UP = ("import fcntl, socket, struct; fcntl.ioctl(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0x8914, "
                "struct.pack('16sh14x', b'lo', 0x41))")

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@functools.lru_cache(maxsize=None)
def find_pythons(lowest: Tuple[int, int] = (3, 6)) -> List[str]:
    """Every Python of at least this version found here, one a version."""
    candidates = sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin/python3"))) + ["/usr/bin/python3", sys.executable]
    found: Dict[str, str] = {}
    for path in candidates:
        try:
            shown = subprocess.run([path, "-I", "-c", "import sys; print('%d.%d.%d' % sys.version_info[:3])"],
                                   stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, check=True).stdout.decode().strip()
        except (OSError, subprocess.CalledProcessError):
            continue
        if tuple(int(part) for part in shown.split(".")) >= lowest:
            found.setdefault(shown, path)
    return [found[version] for version in sorted(found, key=lambda version: [int(part) for part in version.split(".")])]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for name, lowest in (("each_python", (3, 6)), ("each_builder", (3, 8))):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, find_pythons(lowest), ids=lambda path: path.replace(os.path.expanduser("~"), "~"))


@pytest.fixture(scope="session")
def python2() -> str:
    for path in glob.glob(os.path.expanduser("~/.pyenv/versions/2.7*/bin/python2.7")) + ["/usr/bin/python2.7"]:
        if os.access(path, os.X_OK):
            return path
    pytest.skip("no Python 2.7 here")


@pytest.fixture(scope="session")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> str:
    target = tmp_path_factory.mktemp("dist") / "rlrun.pyz"  # each worker its own: dist/ may be built meanwhile
    subprocess.run([sys.executable, str(ROOT / "build.py"), str(target)], stdout=subprocess.DEVNULL, check=True)
    return str(target)


@pytest.fixture
def clean_env(tmp_path: Path) -> Dict[str, str]:
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    return {"HOME": str(home), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}


@pytest.fixture
def fake_bin(tmp_path: Path, clean_env: Dict[str, str]) -> Path:
    folder = tmp_path / "fake-bin"
    folder.mkdir(exist_ok=True)
    clean_env["PATH"] = "%s:%s" % (folder, clean_env["PATH"])
    return folder


@pytest.fixture
def fake_program(fake_bin: Path) -> Callable[[str, str], str]:
    def write(name: str, script: str) -> str:
        path = fake_bin / name
        path.write_text(script if script.startswith("#!") else "#!/usr/bin/env bash\n" + script, encoding="utf-8")
        path.chmod(0o755)
        return str(path)
    return write


@functools.lru_cache(maxsize=None)
def _can_box() -> bool:
    if os.geteuid() != 0:
        return False
    try:
        return subprocess.run(_BOX + ["sh", "-c", _IN_BOX, "box", "true"], stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


@pytest.fixture(scope="session")
def has_box() -> bool:
    return _can_box()


@pytest.fixture
def boxed(clean_env: Dict[str, str]) -> Run:
    def run(argv: Sequence[str], *, env: Optional[Dict[str, str]] = None, cwd: Optional[object] = None,
            input: Optional[str] = None, timeout: float = TIMEOUT_SECONDS,
            own_network: bool = False) -> "subprocess.CompletedProcess[str]":
        """All that the command started ends with it: the box is gone, and with it its process table."""
        words = [str(word) for word in argv]
        if _can_box():
            script = "%s -I -c \"%s\" && %s" % (sys.executable, _LOOPBACK_UP, _IN_BOX) if own_network else _IN_BOX
            words = _BOX + (["--net"] if own_network else []) + ["sh", "-c", script, "box"] + words
        return _run(words, clean_env if env is None else env, cwd, input, timeout)
    return run


@pytest.fixture
def run_pyz(pyz: str, clean_env: Dict[str, str], boxed: Run) -> Run:
    def run(args: Sequence[object], *, python: str = sys.executable, env: Optional[Dict[str, str]] = None,
            cwd: Optional[object] = None, input: Optional[str] = None, timeout: float = TIMEOUT_SECONDS,
            is_boxed: bool = False, path: str = pyz) -> "subprocess.CompletedProcess[str]":
        """`python rlrun.pyz args`. Without `input` stdin is empty. What was launched outlives it, unless `is_boxed`."""
        argv = [python, path] + [str(word) for word in args]
        if is_boxed:
            return boxed(argv, env=env, cwd=cwd, input=input, timeout=timeout)
        return _run(argv, clean_env if env is None else env, cwd, input, timeout)
    return run


def _run(argv: Sequence[str], env: Dict[str, str], cwd: Optional[object], input: Optional[str],
         timeout: float) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        list(argv), env=env, cwd=None if cwd is None else str(cwd), timeout=timeout, encoding="utf-8", errors="replace",
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, input=input,
        **({"stdin": subprocess.DEVNULL} if input is None else {}))  # type: ignore[call-overload]
