"""What ends a launch besides us: fake /proc, /etc, /run, /var and /usr made from dicts, a fake squeue on PATH."""
import os
import pwd
import resource
import subprocess
import sys

import pytest

from rlrun.host import session

USER = next(entry for entry in pwd.getpwall() if entry.pw_uid not in (0, os.getuid()))
MANAGER = "run/user/%d/systemd/private" % USER.pw_uid
LINGERS = "var/lib/systemd/linger/" + USER.pw_name
SESSION = "0::/user.slice/user-%d.slice/session-3.scope\n" % USER.pw_uid
KILLS = "[Login]\nKillUserProcesses=yes\n"


def make_tree(root, files):
    for name, text in files.items():
        path = root / name
        os.makedirs(str(path.parent), exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())


def make_program(folder, name, body):
    make_tree(folder, {name: "#!/bin/sh\n" + body})
    (folder / name).chmod(0o755)
    return {"PATH": "%s:%s" % (folder, os.environ["PATH"])}


def make_squeue(folder, body):
    return make_program(folder, "squeue", body)


@pytest.fixture
def find(tmp_path):
    """Gives find_session_ends over a machine made from a dict of files."""
    def find_in(files, environ=None, needed=None):
        make_tree(tmp_path, files)
        roots = {name + "_root": str(tmp_path / name) for name in ("proc", "etc", "run", "var", "usr")}
        environ = environ or make_program(tmp_path / "systemd", "systemd-run", "exit 1\n")
        return tuple(map(session.say_end, session.find_ends(environ=environ, uid=USER.pw_uid, needed_seconds=needed, **roots)))
    return find_in


def test_S9_a_drop_in_kills_the_login_session(find):
    found = find({"etc/systemd/logind.conf.d/x.conf": KILLS, "proc/self/cgroup": SESSION})
    assert len(found) == 1
    assert "KillExcludeUsers" in found[0] and "--scope" not in found[0]  # no systemd here that could make one


@pytest.mark.parametrize("files", [{MANAGER: ""}, {"run/systemd/system/x": ""}])
def test_S9_a_scope_is_offered_with_what_it_needs(find, files):
    found = find(dict(files, **{"etc/systemd/logind.conf": KILLS, "proc/self/cgroup": SESSION}))
    assert len(found) == 1 and "`loginctl enable-linger %s`, then launch with --scope" % USER.pw_name in found[0]


def test_S9_version_1_cgroups(find):
    lines = "2:memory:/\n1:name=systemd:/user.slice/user-%d.slice/session-c2.scope\n" % USER.pw_uid
    assert find({"etc/systemd/logind.conf": KILLS, "proc/self/cgroup": lines})


def test_S9_lingering_alone_does_not_save_the_session_scope(find):
    found = find({"etc/systemd/logind.conf": KILLS, "proc/self/cgroup": SESSION, LINGERS: "", MANAGER: ""})
    assert len(found) == 1
    assert "enable-linger" not in found[0] and found[0].endswith("; launch with --scope")


@pytest.mark.parametrize("text", [
    "[Login]\n#KillUserProcesses=yes\n", "[Login]\n; KillUserProcesses=yes\n", "[Login]\nKillUserProcesses=no\n",
    "[Login]\nKillUserProcesses=yes\nKillUserProcesses=no\n", "[Other]\nKillUserProcesses=yes\n", "",
    "[Login]\nKillUserProcesses=perhaps\n", KILLS + "KillExcludeUsers=root %s\n" % USER.pw_name,
    KILLS + "KillOnlyUsers=somebody\n"])
def test_S9_silent_where_nothing_kills(find, text):
    assert find({"etc/systemd/logind.conf": text, "proc/self/cgroup": SESSION}) == ()


def test_S9_listed_users_are_killed_whatever_the_default(find):
    text = "[Login]\nKillOnlyUsers=a b\nKillOnlyUsers=%s\n" % USER.pw_name
    assert find({"etc/systemd/logind.conf": text, "proc/self/cgroup": SESSION})


@pytest.mark.parametrize("text, count", [(KILLS, 0), (KILLS + "KillExcludeUsers=a\n", 1)])
def test_S9_root_is_spared_by_default(find, text, count):
    cgroup = "0::/user.slice/user-0.slice/session-3.scope\n"
    assert len(find({"etc/systemd/logind.conf": text, "proc/self/cgroup": cgroup})) == count


@pytest.mark.parametrize("files, count", [
    ({"usr/lib/systemd/logind.conf": KILLS}, 1),
    ({"usr/lib/systemd/logind.conf": KILLS, "etc/systemd/logind.conf": "[Login]\n"}, 0),  # only the first main file
    ({"usr/lib/systemd/logind.conf.d/90-z.conf": KILLS, "etc/systemd/logind.conf": "[Login]\nKillUserProcesses=no"}, 1),
    ({"usr/lib/systemd/logind.conf.d/50-a.conf": KILLS, "run/systemd/logind.conf.d/50-a.conf": ""}, 0),  # masked
    ({"run/systemd/logind.conf.d/50-a.conf": KILLS, "etc/systemd/logind.conf.d/40-b.conf": "[Login]\n"
      "KillUserProcesses=no\n"}, 1),  # by name, whichever folder
    ({"etc/systemd/logind.conf.d/x.conf.bak": KILLS}, 0)])
def test_S9_order_of_the_files(find, files, count):
    assert len(find(dict(files, **{"proc/self/cgroup": SESSION}))) == count


@pytest.mark.parametrize("answer, files, count", [
    ("echo b true", {}, 1), ("echo b false", {}, 0), ("echo b true", {"etc/systemd/logind.conf": "[Login]\n"}, 1),
    ("echo 'Access denied' >&2; echo b true; exit 1", {}, 0), ("echo true", {}, 0), (None, {}, 0),
    ("echo b true", {"etc/systemd/logind.conf": "[Login]\nKillUserProcesses=no\n"}, 0),
    ("echo b true", {"etc/systemd/logind.conf": "[Login]\nKillExcludeUsers=%s\n" % USER.pw_name}, 0)])
def test_S9_what_no_file_tells_logind_is_asked_for(find, tmp_path, monkeypatch, answer, files, count):
    """What systemd was compiled with differs by distribution."""
    log = tmp_path / "asked"
    programs = {"busctl": 'echo "$*" >>%s\n%s\n' % (log, answer)} if answer else {}
    (tmp_path / "bin").mkdir()
    for name, body in programs.items():
        make_program(tmp_path / "bin", name, body)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    machine = dict(files, **{"proc/self/cgroup": SESSION})
    assert find(machine) == () and not log.exists()  # no bus here
    assert len(find(dict(machine, **{"run/dbus/system_bus_socket": ""}))) == count
    is_told = "KillUserProcesses" in str(files) or "Exclude" in str(files) or answer is None
    assert log.exists() != is_told
    if not is_told:
        assert log.read_text() == ("get-property org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager "
                                   "KillUserProcesses\n")


@pytest.mark.parametrize("lingers", [False, True])
def test_the_user_manager_ends_with_the_last_logout(find, lingers):
    path = "0::/user.slice/user-{0}.slice/user@{0}.service/app.slice/run-r1.scope\n".format(USER.pw_uid)
    linger = {"var/lib/systemd/linger/" + USER.pw_name: ""} if lingers else {}
    found = find(dict(linger, **{"proc/self/cgroup": path, "etc/systemd/logind.conf": KILLS}))
    assert len(found) == (0 if lingers else 1)
    assert lingers or "enable-linger %s" % USER.pw_name in found[0]


def test_L21_time_left_of_a_slurm_job(find, tmp_path):
    environ = make_squeue(tmp_path / "bin", 'echo "$@" >"%s/args"; echo 20:00\n' % tmp_path)
    found = find({}, dict(environ, SLURM_JOB_ID="123"))
    assert len(found) == 1
    assert "Slurm job 123" in found[0] and "20:00 left" in found[0]
    assert (tmp_path / "args").read_text() == "-h -j 123 -o %L\n"


@pytest.mark.parametrize("path", ["/slurm/uid_1000/job_77/step_0", "/system.slice/slurmstepd.scope/job_77/step_0/user"])
def test_L21_a_job_known_by_its_cgroup(find, tmp_path, path):
    environ = make_squeue(tmp_path / "bin", "echo broken >&2; exit 1\n")
    found = find({"proc/self/cgroup": "0::%s\n" % path}, environ)
    assert len(found) == 1
    assert "job 77" in found[0] and "unknown (squeue: ended 1)" in found[0]


def test_L21_no_squeue_at_all(find, tmp_path):
    found = find({}, {"PATH": str(tmp_path), "SLURM_JOB_ID": "5"})
    assert "job 5" in found[0] and "could not start" in found[0]


@pytest.mark.parametrize("told, needed, words, cure", [
    ("1-02:00:00", 9 * 3600, "1-02:00:00 left (the run needs roughly 9 h, by a guess)", "make sure that the run fits"),
    ("20:00", 9 * 3600, "20:00 left (20 min), which is TOO LITTLE: the run needs roughly 9 h, by a guess", "ask for more time"),
    ("INVALID", 60, "INVALID left; when", "make sure that the run fits"), ("20:00", None, "20:00 left; when", "make sure")])
def test_L21_the_time_left_against_the_estimate(find, tmp_path, told, needed, words, cure):
    found = find({}, dict(make_squeue(tmp_path / "bin", "echo %s\n" % told), SLURM_JOB_ID="5"), needed)
    assert len(found) == 1 and words in found[0] and "; " + cure in found[0]


def test_L21_no_time_limit(find, tmp_path):
    found = find({}, dict(make_squeue(tmp_path / "bin", "echo UNLIMITED\n"), SLURM_JOB_ID="5"))
    assert "no time limit" in found[0]


@pytest.mark.parametrize("body", ["echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1\n", "exit 0\n"])
def test_E9_a_job_that_is_over_ends_nothing(find, tmp_path, body):
    assert find({}, dict(make_squeue(tmp_path / "bin", body), SLURM_JOB_ID="123")) == ()


def stat_line(pid, parent):
    return "%d (a) b) S %d 1 1 0 -1\n" % (pid, parent)


@pytest.mark.parametrize("cmdline", [b"bash\0", b"/bin/bash\0-l\0", b"-zsh\0", b"sh\0-i\0", b"bash\0--rcfile\0x\0"])
def test_a_container_that_ends_with_its_first_shell(find, cmdline):
    found = find({"proc/1/cmdline": cmdline})
    assert len(found) == 1
    assert "pid 1" in found[0]


@pytest.mark.parametrize("cmdline", [b"sh\0-c\0sleep infinity\0", b"bash\0entry.sh\0", b"sleep\0infinity\0", b"",
                                     b"/sbin/init\0", b"bash\0-lc\0x\0"])
def test_a_container_that_ends_with_nobodys_shell(find, cmdline):
    assert find({"proc/1/cmdline": cmdline, "proc/self/stat": stat_line(9, 8), "proc/8/stat": stat_line(8, 0)}) == ()


def test_a_container_whose_first_script_started_us(find):
    assert find({"proc/1/cmdline": b"bash\0entry.sh\0", "proc/self/stat": stat_line(9, 8), "proc/8/stat":
                 stat_line(8, 1)})


def test_a_shell_as_init_of_the_machine_itself_is_no_container(find, tmp_path):
    make_tree(tmp_path, {"proc/self/ns/x": ""})
    os.symlink("pid:[4026531836]", str(tmp_path / "proc/self/ns/pid"))
    assert find({"proc/1/cmdline": b"bash\0"}) == ()


def test_a_circle_of_parents_ends(find):
    assert find({"proc/1/cmdline": b"sh\0x\0", "proc/self/stat": stat_line(9, 8), "proc/8/stat": stat_line(8, 8)}) == ()


def test_a_real_container_with_a_first_shell():
    if os.geteuid() != 0 or subprocess.call(["unshare", "-p", "-f", "true"], stderr=subprocess.DEVNULL) != 0:
        pytest.skip("needs root and unshare -p")
    program = "from rlrun.host import session; print(len(session.find_session_ends(environ={})))"
    out = subprocess.check_output(["unshare", "-p", "-f", "--mount-proc", "sh", "-c", '"$0" -c "$1"; true',
                                   sys.executable, program], universal_newlines=True)
    assert out.strip() == "1"


def read_limits_below(setup, sys_root):
    """find_limits as a child process sees it after `setup` in its shell."""
    program = ("from rlrun.host import session\n"
               "for fact in session.find_limits(%r): print(fact.level, fact.name, fact.detail)" % str(sys_root))
    out = subprocess.check_output(["sh", "-c", setup + ' && exec "$0" -c "$1"', sys.executable, program],
                                  universal_newlines=True)
    return out.splitlines()


def test_D7_nofile_1024(tmp_path):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < 4096:
        pytest.skip("the hard limit of this machine is below 4096 already")
    line = read_limits_below("ulimit -Sn 1024 && ulimit -Hn 4096", tmp_path)[0]
    assert line.startswith("WARN limit:nofile soft 1024, hard 4096: a launch raises its own to the hard one; ")
    assert "65536" in line and "root" in line


@pytest.mark.parametrize("soft, hard, level, words", [
    (1024, 1048576, "OK", "a launch raises its own"), (65536, 65536, "OK", "soft 65536"), (1024, 4096, "WARN", "by root"),
    (1024, resource.RLIM_INFINITY, "OK", "a launch raises its own"),
    (resource.RLIM_INFINITY, resource.RLIM_INFINITY, "OK", "unlimited")])
def test_D7_levels(monkeypatch, soft, hard, level, words):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, hard))
    fact = session.find_limits()[0]
    assert fact.level == level and words in fact.detail


def test_memlock_matters_where_there_is_an_rdma_device(tmp_path):
    setup = "ulimit -l 64"
    assert read_limits_below(setup, tmp_path)[1].startswith("INFO limit:memlock 64 KiB")
    (tmp_path / "class" / "infiniband" / "mlx5_0").mkdir(parents=True)
    assert read_limits_below(setup, tmp_path)[1].startswith("WARN limit:memlock 64 KiB")
