"""Where a launch stands: made /proc folders of a control group and the processes above, and a real container."""
import os

import pytest

from rlrun.host import ancestors, standing

SESSION = "/user.slice/user-1000.slice/session-3.scope"
MANAGER = "/user.slice/user-99999.slice/user@99999.service"
SHELL = ("bash", "-bash")
VSCODE = "/home/u/.vscode-server/cli/servers/Stable-1/server/"


def make_proc(root, above, cgroup="", tty=0, is_machine=True, top=0):
    """/proc of a process 900 whose parents are `above`, nearest first, each a tuple of comm and argv; pids 100, 99, …"""
    rows = [("python3", "python3", "rlrun.pyz", "run")] + list(above)
    pids = [900] + [101 - number for number in range(1, len(rows))]
    for number, (pid, (comm, *argv)) in enumerate(zip(pids, rows)):
        folder = root / str(pid)
        folder.mkdir(parents=True)
        parent = pids[number + 1] if number + 1 < len(pids) else top
        terminal = tty if number == 0 else 0
        (folder / "stat").write_text("%d (%s) S %d %d %d %d -1 0\n" % (pid, comm, parent, pid, 50 + number, terminal))
        (folder / "cmdline").write_text("\0".join(argv) + "\0" if len(argv) > 1 else "".join(argv))
    os.symlink("900", str(root / "self"))
    (root / "900" / "cgroup").write_text("0::%s\n" % cgroup if cgroup else "")
    (root / "900" / "ns").mkdir()
    os.symlink("pid:[4026531836]" if is_machine else "pid:[4026532999]", str(root / "900" / "ns" / "pid"))
    return str(root)


@pytest.mark.parametrize("above, cgroup, place, words", [
    ([SHELL, ("sshd", "sshd: u@pts/0")], SESSION, "login session scope", "login session scope 3, without"),
    ([SHELL, ("tmux: server", "tmux", "new", "-s", "x"), ("systemd", "/sbin/init", "x")], SESSION, "tmux server",
     "tmux server (pid 99) in login session scope 3, without"),
    ([SHELL, ("tmux: server", "/opt/tmux-3.4", "new")], MANAGER + "/tmux-spawn-1f.scope", "tmux server",
     "tmux server (pid 99) in 99999's systemd user manager (tmux-spawn-1f.scope)"),
    ([SHELL, ("screen", "SCREEN", "-S", "x")], SESSION, "screen", "screen (pid 99) in login session scope 3"),
    ([SHELL, ("zellij", "/usr/bin/zellij", "--server", "/run/x")], SESSION, "zellij server", "zellij server (pid 99) in"),
    ([SHELL], MANAGER + "/app.slice/run-r1.scope", "systemd user manager", "99999's systemd user manager (run-r1.scope)"),
    ([("systemd", "/lib/systemd/systemd", "--user")], MANAGER + "/app.slice/nightly.service", "systemd service",
     "systemd service nightly.service of 99999's systemd user manager"),
    ([("sh", "sh", "-c", "x")], "/system.slice/nightly.service", "systemd service", "systemd service nightly.service"),
    ([SHELL], "/system.slice/rlrun-1.scope", "systemd scope", "systemd scope rlrun-1.scope"),
    ([("sh", "/bin/sh", "-c", "rlrun"), ("cron", "/usr/sbin/CRON", "-f"), ("cron", "/usr/sbin/cron", "-f")],
     "/system.slice/cron.service", "cron", "cron (pid 99) in systemd service cron.service"),
    ([("sh", "/bin/sh", "-c", "rlrun"), ("crond", "/usr/sbin/crond", "-n")], SESSION.replace("-3", "-c4"), "cron",
     "cron (pid 99) in login session scope c4"),
    ([("sh", "sh", "x"), ("atd", "/usr/sbin/atd", "-f")], "/system.slice/atd.service", "at", "atd (pid 99) in systemd service"),
    ([SHELL, ("sshd", "sshd: u@pts/0")], "/", "ssh without a session", "sshd (pid 99), without"),
    ([SHELL, ("slurmstepd", "slurmstepd: [77.0]")], "/system.slice/slurmstepd.scope/job_77/step_0/user/task_0", "Slurm step",
     "step 0 of Slurm job 77, without"),
    ([SHELL, ("node", VSCODE + "node", VSCODE + "out/bootstrap-fork", "--type=ptyHost"), ("sshd", "sshd: u@notty")], SESSION,
     "IDE's or agent's terminal", "VS Code's server (pid 99) in login session scope 3"),
    ([SHELL, ("node", "/usr/bin/node", "--max-old-space-size=1", VSCODE + "out/server-main.js")], "/",
     "IDE's or agent's terminal", "VS Code's server (pid 99), without"),
    ([SHELL, ("jupyter-lab", "/opt/v/bin/python3.11", "/opt/v/bin/jupyter-lab", "--no-browser")], "/system.slice/j.service",
     "IDE's or agent's terminal", "jupyter-lab (pid 99) in systemd service j.service"),
    ([SHELL, ("python3", "python3", "-m", "ipykernel_launcher", "-f", "x")], "/", "IDE's or agent's terminal",
     "ipykernel_launcher (pid 99)"),
    ([SHELL, ("node", "node", "/usr/local/bin/codex")], SESSION, "IDE's or agent's terminal", "codex (pid 99) in login session"),
    ([SHELL, ("tmux: server", "tmux", "new"), ("code", "/usr/share/code/code", "x")], SESSION, "tmux server",
     "tmux server (pid 99) in code (pid 98) in login session scope 3"),
    ([SHELL], "/", "plain shell", "bash (pid 100), without a terminal"),
    ([("runsvdir", "runsvdir", "/etc")], "/", "unknown", "unknown: nothing above this process tells")])
def test_places(tmp_path, above, cgroup, place, words):
    found = standing.read_standing(make_proc(tmp_path / "proc", above, cgroup))
    assert (found.place, found.words[:len(words)]) == (place, words)
    assert found.cgroup == cgroup and found.pid == 900 and found.session_id == 50


@pytest.mark.parametrize("argv", [
    ("vim", "vim", "tmux.conf"), ("bash", "bash", "run.sh", "tmux"), ("bash", "bash", "-c", "tmux ls; sshd"),
    ("tail", "tail", "-f", "/var/log/cron"), ("python3", "python3", "x.py", "/home/u/.vscode-server/x"),
    ("node", "node", "-e", "/home/u/.vscode-server/x")])
def test_a_word_in_a_command_line_is_no_place(tmp_path, argv):
    assert standing.read_standing(make_proc(tmp_path / "proc", [argv], "/")).place in ("unknown", "plain shell")


@pytest.mark.parametrize("rows, words", [
    ([SHELL, ("entry", "entry", "x")], "container, entered from outside (pid 99: entry), with a terminal"),
    ([SHELL, ("tmux: server", "tmux", "new")], "tmux server (pid 99) in container, entered from outside (pid 99: tmux)")])
def test_a_container_that_was_entered(tmp_path, rows, words):
    found = standing.read_standing(make_proc(tmp_path / "proc", rows, "/docker/4f", tty=34816, is_machine=False))
    assert found.words.startswith(words) and found.has_terminal


def test_a_container_by_its_first_process(tmp_path):
    root = make_proc(tmp_path / "proc", [SHELL], "/system.slice/docker-4f.scope", is_machine=False, top=1)
    os.mkdir(root + "/1")
    with open(root + "/1/stat", "w") as out:
        out.write("1 (sleep) S 0 1 1 0 -1 0\n")
    found = standing.read_standing(root)
    assert (found.place, found.words) == ("container", "container (pid 1: sleep), without a terminal")
    assert found.session_ids == (1, 50, 51)


def test_what_can_not_be_read_is_unknown(tmp_path):
    found = standing.read_standing(str(tmp_path))
    assert (found.place, found.cgroup, found.has_terminal, found.session_ids) == ("unknown", "", False, ())


def test_version_1_and_a_title_with_a_terminal(tmp_path):
    root = make_proc(tmp_path / "proc", [("x", "x", "y")], tty=34816)
    with open(root + "/900/cgroup", "w") as out:
        out.write("4:memory:/other.service\n1:name=systemd:%s\n0::/\n" % SESSION)
    found = standing.read_standing(root)
    assert (found.words, found.cgroup) == ("login session scope 3, with a terminal", SESSION)


def test_the_real_ones_above_this_process():
    chain = ancestors.read_ancestors()
    assert chain[0].pid == os.getpid() and chain[0].sid == os.getsid(0) and chain[1].pid == os.getppid()
    assert chain[-1].ppid == 0
