"""The lock where it can't be had, at all or for now."""
import errno
import os
import socket

import pytest

from rlrun.errors import BLOCKED, MACHINE, OperatorError
from rlrun.host import procs
from rlrun.steps import lock


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES, errno.EAFNOSUPPORT])
@pytest.mark.parametrize("call", ["socket", "bind"])
def test_a_lock_that_can_not_be_had_is_this_machine_s_fault_and_told_at_once(monkeypatch, number, call):
    class Refused(socket.socket):
        def __init__(self, *words):
            if call == "socket":
                raise OSError(number, "no")
            super().__init__(*words)

        def bind(self, address):
            raise OSError(number, "no")
    monkeypatch.setattr(socket, "socket", Refused)
    with pytest.raises(OperatorError) as caught:
        lock.acquire(600)
    assert caught.value.code == MACHINE and caught.value.reason == "lock" and "nothing was launched" in caught.value.message


@pytest.mark.parametrize("how", ["silent", "elsewhere", "listening"])
def test_by_whom_it_is_taken_or_how_that_is_found_out(monkeypatch, how):
    """Any program may take the name: one that does not listen is not told by the kernel, and may be no rlrun."""
    monkeypatch.setattr(lock, "_NAME", "\0rlrun-test-%d.launch" % os.getpid())
    with socket.socket(socket.AF_UNIX) as taken:
        taken.bind(lock._NAME)
        if how == "listening":
            taken.listen(1)
        if how == "elsewhere":  # another table's process, as the kernel tells of it
            monkeypatch.setattr(lock, "_read_holder", lambda: (0, os.getuid()))
        with pytest.raises(OperatorError) as caught:
            lock.acquire(0)
    error, user = caught.value, procs.user_name(os.getuid())
    assert (error.code, error.reason) == (BLOCKED, "job:running") and "nothing was launched" in error.message
    if how == "listening":
        assert "another rlrun is launching on this machine right now: pid %d (%s);" % (os.getpid(), user) in error.message
        return
    assert "it may be no rlrun at all" in error.message and "ss -xap | grep rlrun.launch" in error.hint
    assert ("a process of %s's that can't be seen here" % user in error.message) == (how == "elsewhere")
