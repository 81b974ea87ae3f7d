"""A real Slurm, for a scenario inside its box: two nodes, n1 and n2, with eight pretended GPUs each, on this machine.

    with slurm.start() as cluster:
        b.check(box, "debug/slurm", env=cluster.env)

    with slurm.start_on_two() as (cluster, pair):       each node a machine of its own (two_nodes.py), the box a login node
        b.check(box, "two_nodes", "--slurm", env=cluster.env)

Its files lie in memory that only the box sees, its ports are the box's own, and it has a munge of its own. The job of one
node takes it whole. Accounting is off, as where nobody has set it up; a job that ended is remembered until the end.
"""
import contextlib
import fcntl
import os
import shutil
import socket
import stat
import struct
import subprocess
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple

from . import box as b
from . import two_nodes

# /usr/sbin is not on every user's PATH.
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_DAEMONS = ("munged", "slurmctld", "slurmd")
_PROGRAMS = _DAEMONS + ("sbatch", "squeue", "scontrol", "scancel", "sinfo")
_SIOCSIFADDR = 0x8916
_FOLDER = "/srv"  # short: a socket's path has at most 107 bytes
_CONF = """\
ClusterName=box
SlurmctldHost={host}({address})
SlurmctldPort=16817
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire={seconds}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
ReturnToService=2
KillWait=1
MinJobAge=3600
GresTypes=gpu
{nodes}PartitionName=cluster Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
PartitionName=gpu Nodes=n1,n2 MaxTime=INFINITE State=UP
"""
_NODE = "NodeName={name} NodeHostname={host} NodeAddr={address} Port={port} CPUs=1 Gres=gpu:8\n"


class Cluster(NamedTuple):
    """A running one. `env`: what its programs need on top of the operator's environment."""

    folder: str
    env: Dict[str, str]
    daemons: Dict[str, "subprocess.Popen[bytes]"]


def find_missing() -> List[str]:
    """Which of its programs are not on this machine."""
    return [name for name in _PROGRAMS if not shutil.which(name, path=_PATH)]


@contextlib.contextmanager
def start() -> Iterator[Cluster]:
    """Starts it, waits until both nodes are idle, ends it. Only inside a box: it mounts, and its ports are fixed."""
    subprocess.check_call(["mount", "-t", "tmpfs", "tmpfs", _FOLDER])
    _add_address("127.0.0.2")
    host = socket.gethostname().partition(".")[0]
    cluster = _write_files(host, "127.0.0.1", {"n1": (host, "127.0.0.1"), "n2": (host, "127.0.0.1")})
    try:
        _start_daemons(cluster, lambda node, argv: argv)
        yield cluster
    finally:
        for daemon in reversed(list(cluster.daemons.values())):
            daemon.terminate()
        for daemon in cluster.daemons.values():
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()


@contextlib.contextmanager
def start_on_two() -> Iterator[Tuple[Cluster, two_nodes.Pair]]:
    """The same on two machines, the controller on n1. The box is a login node: it hands jobs in, and none runs there."""
    subprocess.check_call(["mount", "-t", "tmpfs", "tmpfs", _FOLDER])  # before there are nodes, which see it too
    addresses = two_nodes.ADDRESSES
    cluster = _write_files("n1", addresses["n1"], {node: (node, addresses[node]) for node in addresses}, 10)
    try:
        with two_nodes.start() as pair:
            _start_daemons(cluster, pair.enter)
            yield cluster, pair
    finally:
        for daemon in cluster.daemons.values():  # what they were in the nodes is gone with them
            daemon.kill()
            daemon.wait()


def _write_files(host: str, address: str, nodes: Dict[str, Tuple[str, str]], seconds: int = 120) -> Cluster:
    """`seconds`: how long a job that is requeued waits, for so long lives what lets it in; 120 unless a site says otherwise."""
    for name in ("munge", "state", "log", "spool-n1", "spool-n2"):
        os.mkdir("%s/%s" % (_FOLDER, name), 0o755)
    _write("munge/key", os.urandom(64), 0o600)
    lines = "".join(_NODE.format(name=name, host=nodes[name][0], address=nodes[name][1], port=16821 + place)
                    for place, name in enumerate(sorted(nodes)))
    _write("slurm.conf", _CONF.format(host=host, address=address, nodes=lines, seconds=seconds, folder=_FOLDER).encode())
    _write("gres.conf", b"AutoDetect=off\nNodeName=n[1-2] Name=gpu File=%s/gpu[0-7]\n" % _FOLDER.encode())
    # They look for control groups, and use none here. The older ones have no word for "none", and v1 does not look.
    _write("cgroup.conf", b"CgroupPlugin=%s\n" % (b"disabled" if _read_version() >= 23 else b"cgroup/v1"))
    for number in range(8):
        os.mknod("%s/gpu%d" % (_FOLDER, number), 0o666 | stat.S_IFCHR, os.makedev(1, 3))  # as /dev/null
    return Cluster(_FOLDER, {"SLURM_CONF": _FOLDER + "/slurm.conf"}, {})


def _start_daemons(cluster: Cluster, enter: Callable[[str, Sequence[str]], Sequence[str]]) -> None:
    """`enter`: the command line that runs another one on a node."""
    socket_path = _FOLDER + "/munge/socket"
    _spawn(cluster, "munged", ["munged", "--foreground", "--socket=" + socket_path] + [
        "--%s-file=%s/munge/%s" % (name, _FOLDER, name) for name in ("key", "pid", "log", "seed")])
    _await(cluster, lambda: os.path.exists(socket_path), "munged's socket")
    _spawn(cluster, "slurmctld", enter("n1", ["slurmctld", "-D", "-c"]))
    for node in ("n1", "n2"):
        _spawn(cluster, node, enter(node, ["slurmd", "-D", "-N", node]))
    _await(cluster, lambda: ask(cluster, "sinfo", "-h", "-N", "-p", "gpu", "-o", "%T").split() == ["idle"] * 2,
           "two idle nodes")


def ask(cluster: Cluster, *words: str) -> str:
    """What one of its programs prints, whether it works or not."""
    return b.run(words, dict(cluster.env, PATH=_PATH), _FOLDER, seconds=20).out


def tell_state(cluster: Cluster, job: str) -> str:
    """The state of a job in the controller's word, "" where it knows none."""
    for word in ask(cluster, "scontrol", "show", "job", "-o", job).split():
        if word.startswith("JobState="):
            return word[9:]
    return ""


def wait_for_state(cluster: Cluster, job: str, *states: str) -> str:
    """Waits until a job has one of these states."""
    return str(_await(cluster, lambda: next((state for state in states if tell_state(cluster, job) == state), ""),
                      "job %s: %s" % (job, " or ".join(states))))


def _read_version() -> int:
    # slurm-wlm 22.05.8
    told = b.run(["slurmd", "-V"], {"PATH": _PATH}, _FOLDER).out
    return int(told.split()[-1].split(".")[0])


def _add_address(address: str) -> None:
    """Gives the loopback a second address: with 127.0.0.1 alone getaddrinfo(3) says that this machine has no IPv4
    (AI_ADDRCONFIG), and Slurm finds nothing to listen on."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFADDR, struct.pack("16sHH4s8x", b"lo:1", socket.AF_INET, 0, socket.inet_aton(address)))


def _spawn(cluster: Cluster, name: str, argv: Sequence[str]) -> None:
    with open("%s/log/%s" % (_FOLDER, name), "wb") as log:
        cluster.daemons[name] = subprocess.Popen(
            list(argv), env=dict(cluster.env, PATH=_PATH), cwd=_FOLDER, stdin=subprocess.DEVNULL, stdout=log,
            stderr=subprocess.STDOUT)


def _await(cluster: Cluster, condition: Any, what: str) -> Any:
    try:
        return b.wait_for(condition, what, 30)
    except AssertionError as error:
        logs = ["%s (%s):\n%s" % (name, daemon.poll(), b.read("%s/log/%s" % (_FOLDER, name))[-1500:])
                for name, daemon in cluster.daemons.items()]
        raise AssertionError("\n".join([str(error)] + logs))


def _write(name: str, data: bytes, mode: int = 0o644) -> None:
    with open(os.open("%s/%s" % (_FOLDER, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
