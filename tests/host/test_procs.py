"""The process table: odd rows from a folder made of a dict, the rest from real processes."""
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Sequence, Union

import pytest

from rlrun.host import procs
from rlrun.values import Identity, Process

BOOT = "11111111-2222-3333-4444-555555555555"
PRCTL = "import ctypes, sys; libc = ctypes.CDLL(None); "
READY = "; print('ready', flush=True); sys.stdin.read()"


def stat_row(pid: int, comm: str = "python3", state: str = "S", ppid: int = 1, start: int = 500) -> str:
    numbers = "%d %d 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 %d 9000 100" % (pid, pid, start)
    return "%d (%s) %s %d %s 18446744073709551615\n" % (pid, comm, state, ppid, numbers)


def fill_root(root: str, files: Dict[str, Union[str, bytes]]) -> str:
    """Writes a folder that stands for /proc: path -> content, a link where the content starts with "-> "."""
    files = dict({"uptime": "1000.00 1.00\n", "sys/kernel/random/boot_id": BOOT + "\n"}, **files)
    for name, content in files.items():
        path = os.path.join(root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if isinstance(content, str) and content.startswith("-> "):
            os.symlink(content[3:], path)
            continue
        with open(path, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
    return root


@contextmanager
def python_process(code: str, **options: Any) -> Iterator["subprocess.Popen[bytes]"]:
    """A Python that runs `code`, says so, and lives until the test is done with it."""
    popen = subprocess.Popen([sys.executable, "-c", code + READY], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             **options)
    try:
        assert popen.stdout and popen.stdout.readline() == b"ready\n"
        yield popen
    finally:
        popen.kill()
        popen.communicate()


def make_process(pid: int, ppid: int, argv: Sequence[str] = (), state: str = "S") -> Process:
    return Process(pid, ppid, pid, pid, 0, state, 0, 0.0, "comm", tuple(argv))


# ---- the table

def test_own_row_is_right() -> None:
    own = procs.read_processes()[os.getpid()]
    assert (own.ppid, own.pgid, own.sid, own.uid) == (os.getppid(), os.getpgrp(), os.getsid(0), os.geteuid())
    with open("/proc/self/cmdline") as file:
        assert own.argv == tuple(file.read().rstrip("\0").split("\0"))
    assert own.elapsed_seconds > 0


def test_argv_is_kept_word_for_word() -> None:
    words = ["-c", "import sys; sys.stdin.read()  # x", "", "größe=1", "two words", "line\nbreak"]
    popen = subprocess.Popen([sys.executable] + words, stdin=subprocess.PIPE)
    try:
        assert procs.read_processes()[popen.pid].argv == (sys.executable,) + tuple(words)
    finally:
        popen.communicate()


def test_argv_longer_than_one_read() -> None:
    words = ["x" * 1000] * 100
    popen = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"] + words, stdin=subprocess.PIPE)
    try:
        assert procs.read_processes()[popen.pid].argv[3:] == tuple(words)
    finally:
        popen.communicate()


def test_P7_comm_is_truncated_and_argv_is_not(tmp_path: Path) -> None:
    root = fill_root(str(tmp_path), {"7/stat": stat_row(7, comm="VLLM::EngineCor"),
                                     "7/cmdline": b"VLLM::EngineCore_DP0\0\0\0\0"})
    process = procs.read_processes(root)[7]
    assert (process.comm, process.argv) == ("VLLM::EngineCor", ("VLLM::EngineCore_DP0",))


@pytest.mark.parametrize("raw", [
    b"python3 -m verl.trainer.main_ppo a=b",  # as long as the old argv: no NUL at all
    b"python3 -m verl.trainer.main_ppo a=b\0",
    b"python3 -m verl.trainer.main_ppo a=b" + b"\0" * 300,
    b"python3 -m verl.trainer.main_ppo a=b" + b" " * 40 + b"\0",
    b"python3 -m verl.trainer.main_ppo a=b   \0 \0\0",
    b"python3\0-m\0verl.trainer.main_ppo\0a=b\0",
])
def test_P9_both_forms_of_a_command_line(tmp_path: Path, raw: bytes) -> None:
    root = fill_root(str(tmp_path), {"9/stat": stat_row(9), "9/cmdline": raw, "9/exe": "-> /usr/bin/python3.9"})
    assert procs.read_processes(root)[9].argv == ("python3", "-m", "verl.trainer.main_ppo", "a=b")


def test_P9_a_real_process_that_rewrote_its_title() -> None:
    # bash's `exec -a` leaves the same picture as a title: one string that is not the path of the program.
    popen = subprocess.Popen(["bash", "-c", "exec -a 'PRL::Trainer -m x' cat"], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE)
    try:
        assert popen.stdin and popen.stdout
        popen.stdin.write(b"up\n")
        popen.stdin.flush()
        assert popen.stdout.readline() == b"up\n"
        assert procs.read_processes()[popen.pid].argv == ("PRL::Trainer", "-m", "x")
    finally:
        popen.communicate()


def test_P9_a_program_path_with_a_space_stays_one_word(tmp_path: Path) -> None:
    root = fill_root(str(tmp_path), {"9/stat": stat_row(9), "9/cmdline": b"/opt/my tools/run it\0",
                                     "9/exe": "-> /opt/my tools/run it"})
    assert procs.read_processes(root)[9].argv == ("/opt/my tools/run it",)


def test_P11_a_zombie_is_in_the_table_and_dead() -> None:
    popen = subprocess.Popen(["true"])
    try:
        os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOWAIT)
        zombie = procs.read_processes()[popen.pid]
        assert (zombie.state, zombie.argv, procs.join_command(zombie)) == ("Z", (), "[true]")
        assert procs.is_dead(zombie)
        identity = procs.read_identity(popen.pid)
        assert identity is not None and not procs.is_alive(identity)
    finally:
        popen.wait()
    assert procs.read_identity(popen.pid) != identity


@pytest.mark.parametrize("comm", ["tmux: server", "a) b", "x) S 1 (y", ")))", "((", "", "x) Z 7 7 7"])
def test_P13_parentheses_in_comm(tmp_path: Path, comm: str) -> None:
    root = fill_root(str(tmp_path), {"13/stat": stat_row(13, comm=comm, state="R", ppid=4, start=777),
                                     "13/cmdline": b""})
    process = procs.read_processes(root)[13]
    assert (process.comm, process.state, process.ppid, process.pgid, process.start_ticks) == (comm, "R", 4, 13, 777)


def test_P13_parentheses_in_the_comm_of_a_real_parent() -> None:
    code = PRCTL + "libc.prctl(15, b'x) S 1 (y', 0, 0, 0); import subprocess; subprocess.Popen(['cat'])"
    with python_process(code) as popen:
        while True:  # the child is there before it has become cat
            processes = procs.read_processes()
            children = procs.find_descendants(processes, [popen.pid]) - {popen.pid}
            if [processes[pid].argv for pid in children] == [("cat",)]:
                break
            assert popen.poll() is None
        parent = processes[popen.pid]
        assert (parent.comm, parent.ppid) == ("x) S 1 (y", os.getpid())


def test_P19_the_state_of_a_stuck_process_is_told(tmp_path: Path) -> None:
    root = fill_root(str(tmp_path), {"19/stat": stat_row(19, state="D"), "19/cmdline": b"VLLM::EngineCore\0"})
    process = procs.read_processes(root)[19]
    assert process.state == "D" and not procs.is_dead(process)


def test_half_a_row_and_a_vanished_process_are_left_out(tmp_path: Path) -> None:
    root = fill_root(str(tmp_path), {"3/stat": "", "4/stat": "4 (x) S 1", "5/cmdline": b"x\0", "6/stat": stat_row(6),
                                     "self/stat": stat_row(1), "12x/stat": stat_row(12)})
    assert list(procs.read_processes(root)) == [6]
    assert procs.read_processes(root)[6].argv == ()
    assert procs.read_processes(root + "/nowhere") == {}


def test_elapsed_counts_from_boot_and_is_never_negative(tmp_path: Path) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    root = fill_root(str(tmp_path), {"1/stat": stat_row(1, start=400 * ticks),
                                     "2/stat": stat_row(2, start=9999 * ticks)})
    processes = procs.read_processes(root)
    assert (processes[1].elapsed_seconds, processes[2].elapsed_seconds) == (600.0, 0.0)


def test_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    root = fill_root(str(tmp_path), {"1/stat": stat_row(1).encode().replace(b"python3", b"\xff\xfe"),
                                     "1/cmdline": b"a\xff\0b\0"})
    assert procs.read_processes(root)[1].argv == ("a\ufffd", "b")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_uid_of_a_process_that_changed_it_and_is_not_dumpable() -> None:
    code = PRCTL + "import os; os.setresuid(12345, 54321, 12345); libc.prctl(4, 0, 0, 0, 0); " \
                   "assert libc.prctl(3, 0, 0, 0, 0) == 0"
    with python_process(code) as popen:
        assert os.stat("/proc/%d/stat" % popen.pid).st_uid == 0  # what makes the question worth asking
        assert procs.read_processes()[popen.pid].uid == 54321


# ---- one process

def test_environ_and_cwd_of_a_real_process(tmp_path: Path) -> None:
    env = {"A": "1", "EMPTY": "", "EQUALS": "a=b", "GRÖSSE": "ß"}
    with python_process("import sys", env=env, cwd=str(tmp_path)) as popen:
        environ = procs.read_environ(popen.pid)
        assert environ is not None and {name: environ.get(name) for name in env} == env
        assert procs.read_cwd(popen.pid) == os.path.realpath(str(tmp_path))


def test_environ_of_a_title_that_overran_it_and_of_a_name_given_twice(tmp_path: Path) -> None:
    root = fill_root(str(tmp_path), {"1/environ": b"of a title\0A=first\0A=second\0=x\0", "2/environ": b""})
    assert procs.read_environ(1, root) == {"A": "first"}
    assert procs.read_environ(2, root) == {}


def test_a_process_that_is_gone_tells_nothing(tmp_path: Path) -> None:
    root = fill_root(str(tmp_path), {})
    assert procs.read_environ(77, root) is None
    assert procs.read_cwd(77, root) is None
    assert procs.read_identity(77, root) is None


def test_P15_identity_is_pid_start_and_boot() -> None:
    with python_process("import sys") as popen:
        identity = procs.read_identity(popen.pid)
        assert identity is not None and procs.is_alive(identity)
        assert not procs.is_alive(identity._replace(start_ticks=identity.start_ticks - 1))
        assert not procs.is_alive(identity._replace(boot_id="another"))
        assert not procs.is_alive(identity._replace(pid=os.getpid()))
    assert not procs.is_alive(identity)


@pytest.mark.parametrize("state, alive", [("S", True), ("D", True), ("T", True), ("Z", False), ("X", False)])
def test_P11_alive_by_state(tmp_path: Path, state: str, alive: bool) -> None:
    root = fill_root(str(tmp_path), {"5/stat": stat_row(5, state=state, start=50)})
    assert procs.is_alive(Identity(5, 50, BOOT), root) is alive


def test_identity_where_the_kernel_has_no_boot_id(tmp_path: Path) -> None:
    root = fill_root(str(tmp_path), {"5/stat": stat_row(5, start=50)})
    os.unlink(root + "/sys/kernel/random/boot_id")
    assert procs.read_identity(5, root) == Identity(5, 50, "")
    assert procs.is_alive(Identity(5, 50, ""), root)


# ---- kinship

def test_ancestors_are_nearest_first() -> None:
    processes = {pid: make_process(pid, ppid) for pid, ppid in ((1, 0), (5, 1), (9, 5), (7, 1))}
    assert procs.find_ancestors(processes, 9) == [5, 1]
    assert procs.find_ancestors(processes, 1) == []
    assert procs.find_ancestors(processes, 404) == []
    assert procs.find_ancestors(procs.read_processes(), os.getpid())[0] == os.getppid()


def test_kinship_survives_loops() -> None:
    # The rows are read one after the other: a pid that was reused meanwhile can close a circle.
    processes = {pid: make_process(pid, ppid) for pid, ppid in ((2, 4), (3, 2), (4, 3), (8, 8))}
    assert procs.find_ancestors(processes, 2) == [4, 3]
    assert procs.find_ancestors(processes, 8) == []
    assert procs.find_descendants(processes, [2]) == {2, 3, 4}
    assert procs.find_descendants(processes, [8]) == {8}


def test_descendants_include_the_given() -> None:
    processes = {pid: make_process(pid, ppid) for pid, ppid in ((1, 0), (5, 1), (9, 5), (7, 1))}
    assert procs.find_descendants(processes, [5, 404]) == {5, 9, 404}
    assert procs.find_descendants(processes, []) == set()


# ---- what is hidden

def test_table_is_whole_where_pid_1_can_be_read() -> None:
    assert procs.is_table_partial() is not os.path.exists("/proc/1/stat")


@pytest.fixture
def as_owner_of_pid_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """A container whose pid 1 is our own, with the given options of /proc; we are user 4321 in group 99."""
    def make(options: str) -> str:
        root = fill_root(str(tmp_path), {
            "1/stat": stat_row(1), "self/mountinfo":
                "21 1 0:20 / / rw - ext4 /dev/sda rw\n24 21 0:22 / /proc rw,nosuid shared:5 - proc proc %s\n"
                "25 24 0:23 / /proc/sys/fs/binfmt_misc rw - binfmt_misc none rw\n" % options})
        real_stat = os.stat
        monkeypatch.setattr(os, "geteuid", lambda: 4321)
        monkeypatch.setattr(os, "getegid", lambda: 4321)
        monkeypatch.setattr(os, "getgroups", lambda: [99])
        monkeypatch.setattr(os, "stat", lambda path, **more: _with_uid(real_stat(path, **more), 4321))
        return root
    return make


def _with_uid(result: os.stat_result, uid: int) -> os.stat_result:
    fields = list(result)
    fields[4] = uid
    return os.stat_result(fields)


@pytest.mark.parametrize("options, partial", [
    ("rw", False), ("rw,hidepid=0", False), ("rw,hidepid=off", False),
    ("rw,hidepid=1", True), ("rw,hidepid=2", True), ("rw,hidepid=invisible", True), ("rw,hidepid=noaccess", True),
    ("rw,gid=99,hidepid=2", False), ("rw,gid=98,hidepid=2", True),
    ("rw,gid=99,hidepid=4", True), ("rw,gid=99,hidepid=ptraceable", True),
])
def test_hidepid_where_pid_1_proves_nothing(
        as_owner_of_pid_1: Callable[[str], str], options: str, partial: bool) -> None:
    assert procs.is_table_partial(as_owner_of_pid_1(options)) is partial


def test_table_is_partial_where_pid_1_is_hidden(tmp_path: Path) -> None:
    assert procs.is_table_partial(fill_root(str(tmp_path), {"5/stat": stat_row(5)}))


def test_table_is_whole_where_a_foreign_pid_1_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = fill_root(str(tmp_path), {"1/stat": stat_row(1),
                                     "self/mountinfo": "24 21 0:22 / /proc rw - proc proc rw,gid=99,hidepid=2\n"})
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(root + "/1").st_uid + 1)
    assert not procs.is_table_partial(root)


# ---- words

def test_user_name() -> None:
    assert procs.user_name(0) == "root"
    assert procs.user_name(3999999999) == "3999999999"
    assert procs.user_name(-1) and procs.user_name(1 << 40) == str(1 << 40)


def test_join_command_is_what_pgrep_searches() -> None:
    assert procs.join_command(make_process(1, 0, ["bash", "-c", "a b"])) == "bash -c a b"
    assert procs.join_command(make_process(1, 0)) == "[comm]"


@pytest.mark.skipif(not shutil.which("pgrep"), reason="no pgrep here")
def test_the_table_agrees_with_pgrep() -> None:
    with python_process("import sys") as popen:
        pgrep = subprocess.run(["pgrep", "-P", str(os.getpid()), "-f", "import sys"], stdout=subprocess.PIPE)
        ours = [pid for pid, row in procs.read_processes().items()
                if row.ppid == os.getpid() and "import sys" in procs.join_command(row)]
        assert [int(pid) for pid in pgrep.stdout.split()] == ours == [popen.pid]
