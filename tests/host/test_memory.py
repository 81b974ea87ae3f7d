"""The memory limit: fake /proc and /sys/fs/cgroup made from dicts."""
import os

import pytest

from rlrun.host import memory

GIB = 1 << 30
MEMINFO = {"meminfo": "MemTotal:       %d kB\nMemFree:  1 kB\n" % (512 * GIB // 1024)}
V1_NO_LIMIT = "9223372036854771712\n"


def make_tree(root, files):
    for name, text in files.items():
        path = root / name
        os.makedirs(str(path.parent), exist_ok=True)
        path.write_text(text)
    return str(root)


def read(tmp_path, proc, cgroup):
    return memory.read_memory_limit_bytes(make_tree(tmp_path / "proc", proc), make_tree(tmp_path / "cgroup", cgroup))


def with_cgroup(text):
    return dict(MEMINFO, **{"self/cgroup": text})


def test_D9_v2_limit_in_a_container(tmp_path):
    limit, source = read(tmp_path, with_cgroup("0::/\n"), {"memory.max": "%d\n" % (32 * GIB)})
    assert limit == 32 * GIB
    assert "memory.max" in source


def test_D9_v2_limit_of_a_parent(tmp_path):
    limit, source = read(tmp_path, with_cgroup("0::/kubepods/pod1/ctr\n"), {
        "kubepods/pod1/ctr/memory.max": "max\n", "kubepods/pod1/memory.max": "%d\n" % (64 * GIB)})
    assert limit == 64 * GIB
    assert source.endswith(" of /kubepods/pod1")


@pytest.mark.parametrize("name", ["memory/docker/abc/memory.limit_in_bytes", "memory/memory.limit_in_bytes"])
def test_D9_v1_limit_on_the_host_and_in_a_container_without_a_namespace(tmp_path, name):
    limit, source = read(tmp_path, with_cgroup("5:cpu:/docker/abc\n4:memory:/docker/abc\n0::/\n"),
                         {name: "%d\n" % (16 * GIB)})
    assert limit == 16 * GIB
    assert "v1" in source


def test_D9_v1_controllers_mounted_together(tmp_path):
    cgroup = {"cpu,memory/a/memory.limit_in_bytes": "%d\n" % GIB}
    assert read(tmp_path, with_cgroup("4:cpu,memory:/a\n"), cgroup)[0] == GIB


@pytest.mark.parametrize("files", [
    {"memory.max": "max\n"}, {"memory/memory.limit_in_bytes": V1_NO_LIMIT}, {"memory.max": "rubbish"}, {},
    {"memory.max": "%d\n" % (1024 * GIB)}])
def test_D9_no_limit_gives_the_host(tmp_path, files):
    assert read(tmp_path, with_cgroup("4:memory:/\n0::/\n"), files) == (512 * GIB, "MemTotal of this host")


def test_unknown_is_said(tmp_path):
    limit, source = read(tmp_path, {}, {"memory/memory.limit_in_bytes": V1_NO_LIMIT})
    assert limit is None
    assert "no MemTotal" in source


def test_this_machine():
    limit, source = memory.read_memory_limit_bytes()
    assert limit and 0 < limit <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert source
