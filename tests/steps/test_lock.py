"""The lock where it can't be had at all."""
import errno
import socket

import pytest

from rlrun.errors import MACHINE, OperatorError
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
