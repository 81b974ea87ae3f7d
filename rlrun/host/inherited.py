"""What an enclosing job or an earlier launcher has left in the environment, and a training run would believe (E9, G13).

The rule by which `--drop-env` drops is this module's, and `rlrun explain env:inherited` prints it. Values are read only to see
whether they are empty, and where RAY_ADDRESS leads to.
"""
import re
import socket
from typing import Callable, Dict, Mapping, NamedTuple, Optional, Tuple

from . import address

# What torch.distributed's launcher sets for each process (torch/distributed/elastic/agent). MASTER_ADDR goes with them: alone it
# is set by people, for runs on several nodes.
_SINGLE_NAMES = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "ROLE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
                 "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "MASTER_PORT")
_WITH_THEM = "MASTER_ADDR"
_FAMILIES = ("PMI_", "PMIX_", "OMPI_COMM_WORLD_", "MV2_COMM_WORLD_", "MPI_LOCAL", "PALS_", "TORCHELASTIC_")
# SLURM_CONF and the like only tell the client commands where the cluster is; these say "you are a task of a job".
_SLURM_TELLING = ("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_NTASKS", "SLURM_PROCID")
_SLURM_KEPT = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_CONF_SERVER", "SLURM_JWT", "SLURM_TIME_FORMAT")
# An earlier run's identity on the boards that people watch.
_IDENTITIES = ("PRL_RUN_ID", "PRL_RUN_NAME", "WANDB_RUN_ID", "WANDB_SHARED_MODE")
_RAY = "RAY_ADDRESS"
# ray://10.0.0.1:10001   10.0.0.1:6379   [::1]:6379
_ADDRESS = re.compile(r"(?:ray://)?\[?([^\s/\]]+?)\]?:(\d{1,5})/?\Z")
_CONNECT_SECONDS = 1.0
NOBODY = "nothing answers there"


class Inherited(NamedTuple):
    """What was found. `dropped`: the names that the rule drops; `words`: the same for people, families as one; `ray`: what is
    known of where RAY_ADDRESS leads, "" where it is not set."""

    dropped: Tuple[str, ...]
    words: Tuple[str, ...]
    ray: str


def find_inherited(environ: Mapping[str, str], answers: Optional[Callable[[str], Optional[bool]]] = None) -> Inherited:
    """Sample of `words`: ("RANK", "SLURM_* (12 variables, job 123)"). An empty value counts as not set.

    `answers`: whether something listens where RAY_ADDRESS leads, None where that can't be told; it is asked within a second.
    """
    names = sorted(name for name, value in environ.items() if value)
    dropped = [name for name in _SINGLE_NAMES if name in names]
    dropped += [_WITH_THEM] if dropped and _WITH_THEM in names else []
    words = list(dropped)
    for family in _FAMILIES:
        members = [name for name in names if name.startswith(family)]
        if members:
            dropped += members
            words.append("%s* (%s)" % (family, _count_variables(len(members))))
    if any(name in names for name in _SLURM_TELLING):
        members = [name for name in names if name.startswith("SLURM_") and name not in _SLURM_KEPT]
        dropped += members
        job = environ.get("SLURM_JOB_ID") or environ.get("SLURM_JOBID")
        words.append("SLURM_* (%s%s)" % (_count_variables(len(members)), ", job " + job if job else ""))
    ray = ""
    if environ.get(_RAY):
        is_there = (answers or answers_at)(environ[_RAY])
        ray = "whether anything answers there is not known" if is_there is None else "something answers there: the run would " \
            "join that cluster" if is_there else NOBODY
        if is_there is False:
            dropped.append(_RAY)
        words.append("%s (%s)" % (_RAY, ray))
    identities = [name for name in _IDENTITIES if name in names]
    return Inherited(tuple(dropped + identities), tuple(words + identities), ray)


def drop(environ: Dict[str, str]) -> Tuple[Dict[str, str], Dict[str, str]]:
    """(the environment without what the rule drops, what was dropped)."""
    names = find_inherited(environ).dropped
    return ({name: value for name, value in environ.items() if name not in names},
            {name: environ[name] for name in names})


def describe_dropped(dropped: Mapping[str, str]) -> str:
    """`RANK, SLURM_* (12 variables, job 123)`."""
    words = find_inherited(dropped, lambda word: False).words  # only one that answers nowhere is dropped
    return ", ".join(words)


def answers_at(word: str) -> Optional[bool]:
    """Does something listen at this Ray address? None for `auto`, `local` and what is no host and port, and for a name that
    can't be looked up."""
    match = _ADDRESS.match(word.strip())
    if not match or not 0 < int(match.group(2)) < 65536:
        return None
    host = match.group(1)
    if not re.match(r"[0-9.]+\Z|[0-9a-fA-F:]+\Z", host):
        host = "127.0.0.1" if host == "localhost" else address.resolve(host)
        if not host:
            return None
    try:
        socket.create_connection((host, int(match.group(2))), _CONNECT_SECONDS).close()
        return True
    except (OSError, UnicodeError, ValueError):
        return False


def _count_variables(count: int) -> str:
    return "1 variable" if count == 1 else "%d variables" % count
