"""Stands in for a live process of any looks: `python3 -I -S actor.py READY SPEC PADDING`. Run by scene.py, inside a box.

SPEC is base64 of a JSON object:
    argv    the words that /proc/PID/cmdline shows
    title   instead of argv: one string, as setproctitle leaves it
    comm    the kernel's short name
    listen  [[host, port], …] sockets that listen
    zombie  an actor as a child that has ended and is never reaped, with this object as its looks
    child   the same, alive
PADDING makes room: the looks are written over the memory that holds the arguments. READY is made once all is as it says.
"""
import base64
import ctypes
import json
import os
import signal
import socket
import sys
import time

PR_SET_NAME = 15


def dress(spec: dict) -> None:
    if "comm" in spec:
        ctypes.CDLL(None).prctl(PR_SET_NAME, spec["comm"].encode(), 0, 0, 0)
    if "argv" not in spec and "title" not in spec:
        return
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end, proc(5)
    looks = spec["title"].encode() if "title" in spec else b"".join(word.encode() + b"\0" for word in spec["argv"])
    assert len(looks) < end - start
    ctypes.memmove(start, looks + b"\0" * (end - start - len(looks)), end - start)


def act(spec: dict, ready: str) -> None:
    signal.alarm(600)  # where there is no box
    sockets = []
    for host, port in spec.get("listen", ()):
        listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if listener.family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((host, port))
        listener.listen(5)
        sockets.append(listener)
    for name in ("zombie", "child"):
        if name in spec:
            told, tell = os.pipe()
            pid = os.fork()
            if pid == 0:
                dress(spec[name])
                os.write(tell, b"x")
                while name == "child":
                    time.sleep(600)
                os._exit(0)
            os.read(told, 1)
            while name == "zombie":
                with open("/proc/%d/stat" % pid, "rb") as file:
                    if file.read().rpartition(b")")[2].split()[0] == b"Z":
                        break
    dress(spec)
    with open(ready, "w") as file:
        file.write("%d\n" % os.getpid())
    while True:
        time.sleep(600)


if __name__ == "__main__":
    act(json.loads(base64.b64decode(sys.argv[2]).decode()), sys.argv[1])
