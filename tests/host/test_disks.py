"""Disks: room, the write probe, what a launch would delete. Real file systems where the kernel lets us make one."""
import errno
import os
import stat
import subprocess
import sys

import pytest

from rlrun.host import disks
from rlrun.values import Disk

TEBI = 1 << 40


def run_on_tmpfs(folder, options, program):
    """Runs a Python program in a mount namespace of its own in which `folder` is a tmpfs; skips where that can't be."""
    if os.geteuid() != 0 or subprocess.call(["unshare", "-m", "true"], stderr=subprocess.DEVNULL) != 0:
        pytest.skip("needs root and unshare -m to mount a tmpfs")
    script = 'mount -t tmpfs -o "$1" tmpfs "$2" && shift 2 && exec "$@"'
    start = "import os, sys; folder = sys.argv[1]\nfrom rlrun.host import disks\n"
    return subprocess.check_output(["unshare", "-m", "sh", "-c", script, "sh", options, str(folder), sys.executable,
                                    "-c", start + program, str(folder)], universal_newlines=True)


def make_statvfs(blocks, free, available, files=0, files_available=0):
    """statvfs of 4 KiB blocks."""
    return os.statvfs_result((4096, 4096, blocks, free, available, files, files_available, files_available, 0, 255))


def make_disk(total_bytes, free_bytes, used_percent, inodes=None):
    return Disk("/x", total_bytes, free_bytes, used_percent, inodes)


def test_read_disk_agrees_with_df(tmp_path):
    line = subprocess.check_output(["df", "-B1", "-P", str(tmp_path)], universal_newlines=True).splitlines()[1].split()
    disk = disks.read_disk(str(tmp_path))
    assert disk.total_bytes == int(line[1])
    assert abs(disk.used_percent - int(line[4].rstrip("%"))) <= 1  # others write meanwhile


def test_read_disk_rounds_up_and_leaves_the_reserve_out(monkeypatch):
    monkeypatch.setattr(os, "statvfs", lambda path: make_statvfs(1000, 150, 100, 1000, 15))
    assert disks.read_disk("/") == Disk("/", 4096000, 409600, 90, 1)  # 850 / 950 = 89.5 %


def test_read_disk_with_the_reserve_eaten(monkeypatch):
    monkeypatch.setattr(os, "statvfs", lambda path: make_statvfs(1000, 10, (1 << 64) - 40))
    disk = disks.read_disk("/")
    assert (disk.free_bytes, disk.used_percent, disk.inodes_free_percent) == (0, 100, None)


def test_read_disk_of_a_file_system_without_blocks_is_unknown():
    assert disks.read_disk("/proc/self") is None


def test_read_disk_climbs_to_what_exists_and_follows_a_dangling_link(tmp_path):
    os.symlink("/proc/none/such", str(tmp_path / "link"))
    assert disks.read_disk(str(tmp_path / "a" / "b")) is not None
    assert disks.read_disk(str(tmp_path / "link")) is None  # judged where it leads to: /proc


@pytest.mark.parametrize("used, free_gib, expected", [
    (84, 10, False), (85, 499, True), (85, 500, False), (99, 1, True)])
def test_is_low_needs_percent_and_bytes(used, free_gib, expected):
    assert disks.is_low(make_disk(10 * TEBI, free_gib << 30, used)) is expected


def test_D5_96_percent_with_400_gb_free_is_nearly_full():
    assert disks.is_nearly_full_percent(make_disk(10 * TEBI, 400 << 30, 96))
    assert not disks.is_nearly_full_percent(make_disk(10 * TEBI, 500 << 30, 95))


def test_is_short_of_inodes_only_where_they_are_counted():
    assert disks.is_short_of_inodes(make_disk(1, 1, 1, 1))
    assert not disks.is_short_of_inodes(make_disk(1, 1, 1, 2))
    assert not disks.is_short_of_inodes(make_disk(1, 1, 1, None))


def test_D1_shm_of_64_mb(tmp_path):
    assert run_on_tmpfs(tmp_path, "size=64m", "print(disks.read_shm(folder).total_bytes)").strip() == str(64 << 20)


def test_read_shm_does_not_climb(tmp_path):
    assert disks.read_shm(str(tmp_path / "shm")) is None


def test_probe_write_leaves_nothing(tmp_path):
    probe = disks.probe_write(str(tmp_path / "new" / "deep"))
    assert (probe.is_writable, probe.reason, probe.probed) == (True, "", str(tmp_path))
    assert os.listdir(str(tmp_path)) == []


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_D3_quota_exceeded_is_named_and_the_probe_file_removed(tmp_path, monkeypatch, call):
    seen = []

    def refuse(*args):
        seen.extend(os.listdir(str(tmp_path)))
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(os, call, refuse)
    probe = disks.probe_write(str(tmp_path))
    monkeypatch.undo()
    assert (probe.is_writable, probe.reason) == (False, "quota exceeded")
    assert len(seen) == 1 and seen[0].startswith(".rlrun-probe-%d-" % os.getpid())
    assert os.listdir(str(tmp_path)) == []


def test_an_interrupt_leaves_no_probe_file(tmp_path, monkeypatch):
    def interrupt(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        disks.probe_write(str(tmp_path))
    assert os.listdir(str(tmp_path)) == []


def test_probe_write_on_a_full_disk(tmp_path):
    fill = "open(folder + '/big', 'wb').write(b'x' * (1 << 20))\n"
    out = run_on_tmpfs(tmp_path, "size=1m", fill + "probe = disks.probe_write(folder)\nprint(probe.is_writable, "
                       "probe.reason, os.listdir(folder), disks.read_disk(folder).used_percent)")
    assert out.strip() == "False no space left ['big'] 100"


def test_probe_write_without_inodes(tmp_path):
    fill = "open(folder + '/a', 'w'); open(folder + '/b', 'w')\n"
    out = run_on_tmpfs(tmp_path, "size=1m,nr_inodes=3", fill + "print(disks.probe_write(folder).reason, "
                       "disks.is_short_of_inodes(disks.read_disk(folder)))")
    assert out.strip() == "no space left True"


def test_probe_write_on_a_read_only_file_system(tmp_path):
    assert run_on_tmpfs(tmp_path, "ro", "print(disks.probe_write(folder).reason)").strip() == "read-only file system"


def test_probe_write_below_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    probe = disks.probe_write(str(tmp_path / "file" / "logs"))
    assert (probe.is_writable, probe.reason, probe.probed) == (False, "not a directory", str(tmp_path / "file"))


def test_probe_write_without_permission(tmp_path):
    program = ("import os, sys; from rlrun.host import disks\n"
               "os.geteuid() or os.setuid(65534)\nprint(disks.probe_write(sys.argv[1]).reason)")
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    for parent in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        parent.chmod(0o755)
    out = subprocess.check_output([sys.executable, "-c", program, str(folder)], universal_newlines=True)
    assert out.strip() == "permission denied"


def fail_stale(monkeypatch, name, times):
    """Makes os.`name` fail with ESTALE so many times."""
    real, left = getattr(os, name), [times]

    def wrapper(*args, **kwargs):
        if left[0]:
            left[0] -= 1
            raise OSError(errno.ESTALE, "Stale file handle")
        return real(*args, **kwargs)

    monkeypatch.setattr(os, name, wrapper)


@pytest.mark.parametrize("name", ["stat", "statvfs"])
def test_D11_stale_handle_is_retried(tmp_path, monkeypatch, name):
    fail_stale(monkeypatch, name, 2)
    assert disks.read_disk(str(tmp_path)) is not None


@pytest.mark.parametrize("name", ["stat", "open", "fsync"])
def test_D11_a_probe_is_retried_and_then_told(tmp_path, monkeypatch, name):
    fail_stale(monkeypatch, name, 2)
    assert disks.probe_write(str(tmp_path)).is_writable
    fail_stale(monkeypatch, name, 1000)
    probe = disks.probe_write(str(tmp_path))
    monkeypatch.undo()
    assert (probe.is_writable, probe.reason) == (False, "stale NFS handle")
    assert os.listdir(str(tmp_path)) == []


def test_read_paths_as_the_shell_matches(tmp_path):
    for name in ("vllm-a", "vllm-b", ".hidden", "other"):
        (tmp_path / name).write_bytes(b"x" * 5000)
    found = disks.read_paths([str(tmp_path / "vllm*"), str(tmp_path / "*"), str(tmp_path / "none*")])
    assert [os.path.basename(row.path) for row in found] == ["other", "vllm-a", "vllm-b"]
    assert all(row.is_exact and row.size_bytes >= 4096 and row.user for row in found)


def test_read_paths_measures_below_and_follows_no_link(tmp_path):
    inner = tmp_path / "top" / "inner"
    inner.mkdir(parents=True)
    (inner / "file").write_bytes(b"x" * 100000)
    (tmp_path / "outside").write_bytes(b"x" * 5000000)
    os.symlink(str(tmp_path / "outside"), str(inner / "link"))
    os.symlink("..", str(inner / "circle"))
    os.symlink("/none", str(tmp_path / "top-dangling"))
    rows = disks.read_paths([str(tmp_path / "top*")])
    assert len(rows) == 2
    assert 100000 <= rows[0].size_bytes < 1000000 and rows[0].is_exact


def test_a_sparse_file_counts_what_it_takes(tmp_path):
    with open(str(tmp_path / "plasma"), "wb") as stream:
        stream.truncate(1 << 30)
    assert disks.read_paths([str(tmp_path / "plasma")])[0].size_bytes < 1 << 20


def test_the_walk_is_bounded_over_all_matches_but_none_is_left_out(tmp_path):
    for folder in ("a", "b", "c"):
        (tmp_path / folder).mkdir()
        for number in range(10):
            (tmp_path / folder / str(number)).write_bytes(b"x")
    (tmp_path / "d").write_bytes(b"x")
    rows = disks.read_paths([str(tmp_path / "*")], max_entries=15)
    assert [row.is_exact for row in rows] == [True, False, False, True]


def test_vanishing_entries_are_tolerated(tmp_path, monkeypatch):
    (tmp_path / "top" / "gone").mkdir(parents=True)
    (tmp_path / "top" / "file").write_bytes(b"x")
    real = os.scandir

    def scan(path):
        if str(path).endswith("gone"):
            raise FileNotFoundError(errno.ENOENT, "", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scan)
    monkeypatch.setattr(disks.glob, "glob", lambda pattern: [str(tmp_path / "top"), str(tmp_path / "vanished")])
    rows = disks.read_paths(["x"])
    assert [(os.path.basename(row.path), row.is_exact) for row in rows] == [("top", True)]


def test_an_unreadable_folder_is_not_exact(tmp_path, monkeypatch):
    def scan(path):
        raise PermissionError(errno.EACCES, "", path)

    (tmp_path / "top").mkdir()
    monkeypatch.setattr(os, "scandir", scan)
    assert not disks.read_paths([str(tmp_path / "top")])[0].is_exact


def test_R1_owner_and_mode(tmp_path):
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray").chmod(0o2750)
    user, mode = disks.read_owner(str(tmp_path / "ray"))
    assert stat.S_IMODE(mode) == 0o2750
    assert user == subprocess.check_output(["id", "-un"], universal_newlines=True).strip()
    assert disks.read_owner(str(tmp_path / "none")) is None


def test_an_owner_without_a_name_is_a_number(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root to give a file away")
    os.chown(str(tmp_path), 54321, -1)
    assert disks.read_owner(str(tmp_path))[0] == "54321"
