"""The kernel's count of out-of-memory kills: a made-up /proc and /sys/fs/cgroup."""
import os

import pytest

from rlrun.host import oom

EVENTS = "low 0\nhigh 0\nmax 812\noom 3\noom_kill %d\noom_group_kill 1\n"
CONTROL = "oom_kill_disable 0\nunder_oom 0\noom_kill %d\n"


def read(tmp_path, files, pid="self"):
    for name, text in files.items():
        path = tmp_path / name
        os.makedirs(str(path.parent), exist_ok=True)
        path.write_text(text)
    return oom.read_oom_kills(pid, str(tmp_path))


def test_version_2(tmp_path):
    assert read(tmp_path, {"proc/self/cgroup": "0::/user.slice/session-3.scope\n",
                           "sys/fs/cgroup/user.slice/session-3.scope/memory.events": EVENTS % 2}) == 2


def test_of_a_pid_and_none_killed(tmp_path):
    assert read(tmp_path, {"proc/77/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.events": EVENTS % 0}, 77) == 0


def test_container_without_a_cgroup_namespace(tmp_path):
    assert read(tmp_path, {"proc/self/cgroup": "0::/kubepods/pod1/c\n", "sys/fs/cgroup/memory.events": EVENTS % 5}) == 5


def test_a_parents_count_is_other_peoples(tmp_path):
    assert read(tmp_path, {"proc/self/cgroup": "0::/pods/mine\n", "sys/fs/cgroup/pods/memory.events": EVENTS % 9,
                           "sys/fs/cgroup/pods/mine/cgroup.procs": "1\n"}) is None


@pytest.mark.parametrize("controllers", ["memory", "cpu,memory"])
def test_version_1(tmp_path, controllers):
    assert read(tmp_path, {"proc/self/cgroup": "5:cpuset:/x\n4:%s:/docker/1\n" % controllers,
                           "sys/fs/cgroup/memory/docker/1/memory.oom_control": CONTROL % 4}) == 4


def test_both_versions_mounted(tmp_path):
    assert read(tmp_path, {"proc/self/cgroup": "4:memory:/j\n0::/j\n", "sys/fs/cgroup/memory/j/memory.oom_control": CONTROL % 1,
                           "sys/fs/cgroup/unified/j/cgroup.procs": ""}) == 1


@pytest.mark.parametrize("files", [
    {},
    {"proc/self/cgroup": "0::/\n"},
    {"proc/self/cgroup": "garbage\n", "sys/fs/cgroup/memory.events": EVENTS % 1},
    {"proc/self/cgroup": "4:memory:/\n", "sys/fs/cgroup/memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\n"},
    {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.events": "oom_kill many\n"},
])
def test_unknown(tmp_path, files):
    assert read(tmp_path, files) is None
