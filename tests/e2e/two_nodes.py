"""Two machines out of one, for a scenario inside its box: n1 and n2, each with its own network (10.77.0.1 and 10.77.0.2, no
default route), host name, process table, /tmp and /dev/shm. All other files are shared, the checkout and the record too.

    with two_nodes.start() as pair:
        pair.run("n1", ["hostname", "-I"]).out == "10.77.0.1 \\n"
        worker = pair.spawn("n2", ["sh", "-c", "sleep 1"], env=box.env, cwd=box.root, stdout=subprocess.PIPE)

The box itself is 10.77.0.254 and reaches both. What the box mounts before, both have; what it mounts later, neither. A signal to
what `spawn` gives reaches nobody in the node: `pair.signal` does. All that runs in them ends with them.
"""
import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence

from . import box as b

ADDRESSES = {"n1": "10.77.0.1", "n2": "10.77.0.2"}
_BOX_ADDRESS = "10.77.0.254"
# /usr/sbin is not on every user's PATH.
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_PROGRAMS = ("ip", "nsenter", "unshare", "mount", "hostname", "getent")
_NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid")


class Pair(NamedTuple):
    """The two; `inits` are their first processes, as the box counts them."""

    addresses: Dict[str, str]
    inits: Dict[str, int]

    def enter(self, node: str, argv: Sequence[str], cwd: str = "/") -> List[str]:
        """The command line that runs this one there."""
        # the folder is looked up there: nsenter's own --wd is the box's, and it would keep the box's /tmp
        return ["nsenter", "--target", str(self.inits[node])] + list(_NAMESPACES) + [
            "sh", "-c", 'cd "$1" && shift && exec "$@"', "enter", cwd] + list(argv)

    def run(self, node: str, argv: Sequence[str], env: Optional[Dict[str, str]] = None, cwd: str = "/",
            stdin: Any = subprocess.DEVNULL, seconds: float = 90) -> b.Done:
        """Runs a program there to its end."""
        with self.spawn(node, argv, env, cwd, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as popen:
            out, err = popen.communicate(timeout=seconds)
        return b.Done(popen.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))

    def spawn(self, node: str, argv: Sequence[str], env: Optional[Dict[str, str]] = None, cwd: str = "/",
              stdin: Any = subprocess.DEVNULL, **named: Any) -> "subprocess.Popen[bytes]":
        """Starts one there; its code is what it ended with, as here."""
        # `env` decides what nsenter's shell sees too; only nsenter itself is found on a PATH of ours
        words = self.enter(node, argv, cwd)
        words[0] = shutil.which("nsenter", path=PATH) or words[0]
        return subprocess.Popen(words, env={"PATH": PATH} if env is None else env, stdin=stdin, **named)

    def signal(self, node: str, pid: int, number: int) -> None:
        """Sends a signal to a process (or, negative, a group) by the number that it has there."""
        done = self.run(node, ["sh", "-c", 'kill -"$0" "$1"', str(int(number)), str(pid)])
        assert done.code == 0, done.err

    def shell(self, node: str, line: str, env: Optional[Dict[str, str]] = None, cwd: str = "/", seconds: float = 90) -> b.Done:
        """A line as an operator of that machine would paste it, in a plain sh."""
        return self.run(node, ["sh", "-c", line], env, cwd, seconds=seconds)


def find_missing() -> List[str]:
    """Which programs that it needs are not on this machine."""
    return [name for name in _PROGRAMS if not shutil.which(name, path=PATH)]


@contextlib.contextmanager
def start(shared: Sequence[str] = ()) -> Iterator[Pair]:
    """Starts both, ends both. Only inside a box: it mounts. `shared`: what lies below /tmp and both shall see, besides the
    test's own folder."""
    hosts = "127.0.0.1 localhost\n%s" % "".join("%s %s\n" % (ADDRESSES[node], node) for node in sorted(ADDRESSES))
    told = os.path.abspath(sys.argv[-1])  # the file that tells the box what to play
    kept = sorted({path for path in map(_find_kept, [told, __file__, sys.executable, *shared]) if path})
    popens = {}
    try:
        for node in sorted(ADDRESSES):
            popens[node] = subprocess.Popen(
                [shutil.which("unshare", path=PATH) or "unshare"] + list(_NAMESPACES) + [
                    "--fork", "--kill-child", "--mount-proc", sys.executable, "-S", "-m", "e2e.two_nodes"],
                env=dict(os.environ, PATH=PATH), stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
            _ip("link", "add", "to-" + node, "type", "veth", "peer", "name", "eth0", "netns", str(_read_init(popens[node])))
            stdin = popens[node].stdin
            assert stdin
            # by this way, for what a node's processes have in their command lines is looked at
            stdin.write(json.dumps([node, hosts, kept]).encode())
            stdin.close()  # its network is there: it goes on
        _ip("link", "add", "nodes", "type", "bridge")
        _ip("addr", "add", _BOX_ADDRESS + "/24", "dev", "nodes")
        for node in ADDRESSES:
            _ip("link", "set", "to-" + node, "master", "nodes", "up")
        _ip("link", "set", "nodes", "up")
        for node, popen in popens.items():
            assert popen.stdout and popen.stdout.readline() == b"ready\n", "%s did not come up" % node
        yield Pair(dict(ADDRESSES), {node: _find_child(popen.pid) for node, popen in popens.items()})
    finally:
        for popen in popens.values():
            popen.kill()  # and with it, by --kill-child, the node's first process and all of its table
        for popen in popens.values():
            popen.wait()
        for node in popens:
            subprocess.call(["ip", "link", "del", "to-" + node], env={"PATH": PATH}, stderr=subprocess.DEVNULL)
        subprocess.call(["ip", "link", "del", "nodes"], env={"PATH": PATH}, stderr=subprocess.DEVNULL)


def _find_kept(path: str) -> str:
    """The folder right below /tmp that holds this, "" where it does not lie there."""
    parts = os.path.realpath(path).split("/")
    return "/".join(parts[:3]) if parts[1:2] == ["tmp"] and len(parts) > 2 else ""


def _read_init(popen: "subprocess.Popen[bytes]") -> int:
    # unshare says nothing: its child is there, in the new namespaces, once that says so
    assert popen.stdout and popen.stdout.readline() == b"here\n", "no node: unshare failed"
    return _find_child(popen.pid)


def _find_child(pid: int) -> int:
    return int(b.read("/proc/%d/task/%d/children" % (pid, pid)).split()[0])


def _ip(*words: str) -> None:
    subprocess.check_call(["ip"] + list(words), env={"PATH": PATH})


def main() -> None:
    """The first process of a node: sets it up, then takes away whatever ends."""
    print("here", flush=True)
    node, hosts, kept = json.loads(sys.stdin.read())
    for words in (["hostname", node], ["ip", "link", "set", "lo", "up"], ["ip", "link", "set", "eth0", "up"],
                  ["ip", "addr", "add", ADDRESSES[node] + "/24", "dev", "eth0"]):
        subprocess.check_call(words)
    _mount_tmp(kept)
    subprocess.check_call(["mount", "-t", "tmpfs", "tmpfs", "/dev/shm"])
    with open("/tmp/.hosts", "w") as out:
        out.write(hosts)
    subprocess.check_call(["mount", "--bind", "/tmp/.hosts", "/etc/hosts"])
    print("ready", flush=True)
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(null, number)
    ctypes.CDLL(None).prctl(15, b"init", 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    while True:
        try:
            os.wait()
        except ChildProcessError:
            signal.sigwait([signal.SIGCHLD])


def _mount_tmp(kept: Sequence[str]) -> None:
    """An empty /tmp, but for these folders of the old one."""
    subprocess.check_call(["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/mnt"])
    for path in kept:
        new = "/mnt/" + os.path.relpath(path, "/tmp")
        if os.path.isdir(path):
            os.mkdir(new)
            subprocess.check_call(["mount", "--rbind", path, new])
    subprocess.check_call(["mount", "--move", "/mnt", "/tmp"])


if __name__ == "__main__":
    main()
