"""What the tests share: the built pyz, the Pythons of this machine, a bare environment, fake programs, a box.

Fixtures, each a value or a function:

    pyz                             path of rlrun.pyz, built once for all test workers from the tree as it is
    quick_pyz                       the same with its modules compiled beside their sources, for the Python of the tests: half of
                                    the time of most tests would go into that
    quicken(python)                 the same for another Python
    run_pyz(args, ...)              runs it, gives the CompletedProcess with text; see the function for the options
    each_python                     the test runs once under every Python >= 3.6 found here, and gets its path
    edge_python                     the same under the oldest and the newest alone: for what differs by version little
    edge_builder                    as edge_python, from 3.8 on, what build.py promises (the tests' own Python builds, too)
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
import fcntl
import functools
import glob
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Callable, Dict, List, Optional, Sequence, Tuple

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_SECONDS = 120

# Its own process table and shared memory: the runners that are under test kill by name and clear /dev/shm.
_BOX = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"]
_IN_BOX = 'mount -t tmpfs tmpfs /dev/shm && exec "$@"'
# A network of its own has its own ports and abstract sockets; its loopback is down at first. ip is the quicker way.
_IP = shutil.which("ip", path="/usr/sbin:/sbin:/usr/bin:/bin")
_LOOPBACK_UP = "%s link set lo up" % _IP if _IP else (
    "%s -I -S -c \"import fcntl, socket, struct; fcntl.ioctl(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0x8914, "
    "struct.pack('16sh14x', b'lo', 0x41))\"" % sys.executable)

# What waits long by itself comes first, so that the rest runs beside it and no worker is left alone with it in the end.
LONG_FIRST = (
    "test_one_job_for_two_nodes",
    "test_jobs_are_told_from_the_queue_to_their_end",
    "test_cron_launches_once_and_the_run_outlives_it",
    "test_a_run_that_says_nothing_for_a_minute_is_exit_4_and_left_alone",
    "test_G5_hang_is_bounded_and_leaves_nothing",
    "test_one_run_with_a_true_record_or_none",
    "test_the_end_is_recorded_even_where_the_disk_was_full",
    "test_runs_tells_how_each_launch_ended",
    "test_waiters_launch_in_the_order_in_which_they_came",
    "test_the_board_question_takes_1_2_or_3",
    "test_what_makes_another_plan_refuses_and_says_what_changed",
    "test_demo_ends_at_its_own_pace",
    "test_S3_S7_P17_a_whole_life_under_every_python",
    "test_core_under_every_python",
    "test_who_waits_and_who_gave_up",
    "test_two_nodes_join_by_a_real_ray",
)

# A busy machine is no failure.
hypothesis.settings.register_profile("any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("any machine")

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
    for name, lowest in (("each_python", (3, 6)), ("edge_python", (3, 6)), ("edge_builder", (3, 8))):
        if name in metafunc.fixturenames:
            found = find_pythons(lowest)
            if name.startswith("edge_"):
                found = found[:1] + found[1:][-1:]
            metafunc.parametrize(name, found, ids=lambda path: path.replace(os.path.expanduser("~"), "~"))


def pytest_collection_modifyitems(items: List[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONG_FIRST)}
    items.sort(key=lambda item: places.get(item.name.partition("[")[0], len(places)))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """For .ci/run: the tests that failed, which it runs once more alone."""
    path = os.environ.get("NOTE_FAILED_TESTS")
    if path and report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        with open(path, "a", encoding="utf-8") as out:
            out.write(report.nodeid + "\n")


@pytest.fixture(scope="session")
def python2() -> str:
    for path in glob.glob(os.path.expanduser("~/.pyenv/versions/2.7*/bin/python2.7")) + ["/usr/bin/python2.7"]:
        if os.access(path, os.X_OK):
            return path
    pytest.skip("no Python 2.7 here")


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all the workers of this run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "for-all-workers"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def pyz(shared_folder: Path) -> str:
    target = shared_folder / "rlrun.pyz"  # not dist/, which may be built meanwhile
    with open("%s.lock" % target, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            subprocess.run([sys.executable, str(ROOT / "build.py"), str(target)], stdout=subprocess.DEVNULL, check=True)
    return str(target)


@pytest.fixture(scope="session")
def quicken(pyz: str, shared_folder: Path) -> Callable[[str], str]:
    """quicken(python) -> rlrun.pyz with the bytecode of its modules for that Python, made once for all test workers."""
    def make(python: str) -> str:
        target = shared_folder / ("quick-%s.pyz" % hashlib.sha256(python.encode()).hexdigest()[:8])
        with open("%s.lock" % target, "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.exists():
                subprocess.run([python, "-W", "error", str(ROOT / "tests" / "quicken.py"), pyz, str(target)], check=True)
        return str(target)
    return functools.lru_cache(maxsize=None)(make)


@pytest.fixture(scope="session")
def quick_pyz(quicken: Callable[[str], str]) -> str:
    return quicken(sys.executable)


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
            script = "%s && %s" % (_LOOPBACK_UP, _IN_BOX) if own_network else _IN_BOX
            words = _BOX + (["--net"] if own_network else []) + ["sh", "-c", script, "box"] + words
        return _run(words, clean_env if env is None else env, cwd, input, timeout)
    return run


@pytest.fixture
def run_pyz(quicken: Callable[[str], str], clean_env: Dict[str, str], boxed: Run) -> Run:
    def run(args: Sequence[object], *, python: str = sys.executable, env: Optional[Dict[str, str]] = None,
            cwd: Optional[object] = None, input: Optional[str] = None, timeout: float = TIMEOUT_SECONDS,
            is_boxed: bool = False, path: str = "") -> "subprocess.CompletedProcess[str]":
        """`python rlrun.pyz args`, compiled for that Python. Without `input` stdin is empty. What was launched outlives it,
        unless `is_boxed`."""
        argv = [python, path or quicken(python)] + [str(word) for word in args]
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
