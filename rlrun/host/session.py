"""What ends or starves this launch besides us: limits, logind, Slurm, a container's first shell, left-over variables.

Reads /proc, systemd's settings and the environment, and asks `squeue` for the time left. It says what it found and what
to do, as sentences; it changes no limit and no setting.
"""
import os
import posixpath
import pwd
import re
import resource
import shlex
from typing import Dict, List, Mapping, NamedTuple, Optional, Tuple

from .. import child
from ..values import Fact

NOFILE_NEEDED = 65536  # Ray's own advice; a worker's sockets and files pass 1024 within minutes (D7)
# NCCL pins 4 MiB a channel and peer (NCCL_BUFFSIZE), 16 channels and more: 64 MiB is gone with the first peer. The
# defaults (64 KiB, since Linux 5.16 8 MiB) lie below it; who raised the limit at all mostly has made it unlimited.
MEMLOCK_NEEDED_BYTES = 64 << 20
_SQUEUE_SECONDS = 5
_INITIAL_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO in the kernel's proc_ns.h
_SHELLS = ("sh", "bash", "dash", "ash", "zsh", "fish", "ksh", "mksh", "csh", "tcsh")
_SHELL_OPTIONS_WITH_VALUE = ("--rcfile", "--init-file", "-o", "+o", "-O", "+O")
_TRUE_WORDS = ("1", "yes", "y", "true", "t", "on")  # systemd's parse_boolean
_FALSE_WORDS = ("0", "no", "n", "false", "f", "off")
# /user.slice/user-1000.slice/session-3.scope
_LOGIN_SCOPE = re.compile(r"/session-c?\d+\.scope(/|$)")
# /user.slice/user-1000.slice/user@1000.service/app.slice/run-r8f3a.scope
_USER_MANAGER = re.compile(r"/user@(\d+)\.service(/|$)")
_USER_SLICE = re.compile(r"/user-(\d+)\.slice(/|$)")
# /slurm/uid_1000/job_123/step_0    /system.slice/slurmstepd.scope/job_123/step_0/user/task_0
_SLURM_JOB = re.compile(r"/job_(\d+)(/|$)")
_SINGLE_NAMES = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_PORT",
                 "RAY_ADDRESS")
_FAMILIES = ("PMI_", "PMIX_", "OMPI_COMM_WORLD_", "TORCHELASTIC_")
# SLURM_CONF and the like only tell the client commands where the cluster is; these say "you are a task of a job".
_SLURM_TELLING = ("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID",
                  "SLURM_NODELIST", "SLURM_JOB_NODELIST", "SLURM_JOB_NAME", "SLURM_STEP_ID")


class _Logind(NamedTuple):
    kills: bool
    only_users: Tuple[str, ...]
    exclude_users: Tuple[str, ...]


def find_limits(sys_root: str = "/sys") -> Tuple[Fact, ...]:
    """`limit:nofile` (WARN below 65536) and `limit:memlock` of this process, which the launch inherits.

    `limit:memlock` is WARN below 64 MiB where the machine has an RDMA device, INFO where it has none: only the
    registration of memory with such a device counts against it.
    """
    return (_judge_nofile(*resource.getrlimit(resource.RLIMIT_NOFILE)),
            _judge_memlock(resource.getrlimit(resource.RLIMIT_MEMLOCK)[0], _has_rdma_device(sys_root)))


def find_session_ends(proc_root: str = "/proc", etc_root: str = "/etc", run_root: str = "/run", var_root: str = "/var",
                      environ: Optional[Mapping[str, str]] = None, usr_root: str = "/usr") -> Tuple[str, ...]:
    """Sentences, each naming something that would end the run and what to do; none where nothing was found.

    `environ` is this process's unless given; `squeue` is asked for at most 5 s where there is a Slurm job.
    """
    environment = dict(os.environ if environ is None else environ)
    cgroups = _read_cgroup_paths(proc_root)
    settings = _read_logind(etc_root, run_root, usr_root)
    found = [_explain_login(cgroups, settings, var_root), _explain_slurm(cgroups, environment),
             _explain_first_shell(proc_root)]
    return tuple(sentence for sentence in found if sentence)


def find_inherited(environ: Mapping[str, str]) -> Tuple[str, ...]:
    """Variables of an enclosing job or an earlier launcher that a training run would believe (E9), families as one.

    Sample: ("RANK", "SLURM_* (12 variables, job 123)"). An empty value counts as not set.
    """
    names = sorted(name for name, value in environ.items() if value)
    found = [name for name in _SINGLE_NAMES if name in names]
    for family in _FAMILIES:
        count = sum(name.startswith(family) for name in names)
        if count:
            found.append("%s* (%s)" % (family, _count_variables(count)))
    if any(name in names for name in _SLURM_TELLING):
        count = sum(name.startswith("SLURM_") for name in names)
        job = environ.get("SLURM_JOB_ID") or environ.get("SLURM_JOBID")
        found.append("SLURM_* (%s%s)" % (_count_variables(count), ", job " + job if job else ""))
    return tuple(found)


def _count_variables(count: int) -> str:
    return "1 variable" if count == 1 else "%d variables" % count


def _judge_nofile(soft: int, hard: int) -> Fact:
    detail = "soft %s, hard %s" % (_show_limit(soft), _show_limit(hard))
    if soft == resource.RLIM_INFINITY or soft >= NOFILE_NEEDED:
        return Fact("OK", "limit:nofile", detail)
    detail += "; Ray and vLLM need %d open files" % NOFILE_NEEDED
    if hard == resource.RLIM_INFINITY:
        hard = 1 << 20  # the kernel's fs.nr_open: bash can't raise it to "unlimited"
    if hard > soft:
        detail += "; raise it in this shell before the launch: ulimit -n %d" % hard
    if hard < NOFILE_NEEDED:
        detail += "; the hard limit must be raised by root (limits.conf, LimitNOFILE=, docker --ulimit nofile=)"
    return Fact("WARN", "limit:nofile", detail)


def _judge_memlock(soft: int, has_rdma: bool) -> Fact:
    detail = "unlimited" if soft == resource.RLIM_INFINITY else "%d KiB" % (soft // 1024)
    if soft == resource.RLIM_INFINITY or soft >= MEMLOCK_NEEDED_BYTES:
        return Fact("OK", "limit:memlock", detail)
    if not has_rdma:
        return Fact("INFO", "limit:memlock", detail + "; no RDMA device here that would need more")
    return Fact("WARN", "limit:memlock", detail + "; registering memory with InfiniBand or RoCE needs it unlimited: "
                "`ulimit -l unlimited` before the launch where the hard limit allows it, else limits.conf or "
                "docker --ulimit memlock=-1")


def _show_limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else str(value)


def _has_rdma_device(sys_root: str) -> bool:
    try:
        return bool(os.listdir(os.path.join(sys_root, "class/infiniband")))
    except OSError:
        return False


def _read_cgroup_paths(proc_root: str) -> Tuple[str, ...]:
    # 0::/user.slice/user-1000.slice/session-3.scope
    lines = _read_bytes(os.path.join(proc_root, "self/cgroup")).decode("utf-8", "replace").splitlines()
    return tuple(line.split(":", 2)[2] for line in lines if line.count(":") >= 2)


def _explain_login(cgroups: Tuple[str, ...], settings: _Logind, var_root: str) -> str:
    for path in cgroups:
        manager = _USER_MANAGER.search(path)
        scope = _LOGIN_SCOPE.search(path)
        if not manager and not scope:
            continue
        owner = manager or _USER_SLICE.search(path)
        user = _find_user_name(int(owner.group(1)) if owner else os.getuid())
        lingers = os.path.lexists(os.path.join(var_root, "lib/systemd/linger", user))
        linger = "loginctl enable-linger %s" % shlex.quote(user)
        if manager and not lingers:
            return ("this shell belongs to %s's systemd user manager, which ends everything in it after the last "
                    "logout, the run included; keep it: `%s`" % (user, linger))
        if scope and not manager and _is_killed(settings, user):
            # Lingering alone does not save what sits in the session's scope (session_stop_scope in logind-session.c),
            # but without it the scope of systemd-run ends with the user manager.
            return ("logind ends every process of this login session at logout (KillUserProcesses), the run included; "
                    "%sstart rlrun with `systemd-run --user --scope rlrun run …`"
                    % ("" if lingers else "`%s`, then " % linger))
    return ""


def _is_killed(settings: _Logind, user: str) -> bool:
    # The order is manager_shall_kill's in systemd's logind-core.c.
    if user in settings.exclude_users:
        return False
    return user in settings.only_users if settings.only_users else settings.kills


def _read_logind(etc_root: str, run_root: str, usr_root: str) -> _Logind:
    kills = False
    only_users: List[str] = []
    exclude_users: List[str] = []
    for key, value in _read_logind_lines(etc_root, run_root, usr_root):
        if key == "KillUserProcesses" and value.lower() in _TRUE_WORDS + _FALSE_WORDS:
            kills = value.lower() in _TRUE_WORDS
        elif key == "KillOnlyUsers":
            only_users = only_users + value.split() if value else []
        elif key == "KillExcludeUsers":
            exclude_users = exclude_users + value.split() if value else []
    return _Logind(kills, tuple(only_users), tuple(exclude_users or ["root"]))


def _read_logind_lines(etc_root: str, run_root: str, usr_root: str) -> List[Tuple[str, str]]:
    # logind.conf(5): the first main file alone, then all drop-ins by name, of equal names the first folder's.
    folders = [os.path.join(etc_root, "systemd"), os.path.join(run_root, "systemd"),
               os.path.join(usr_root, "local/lib/systemd"), os.path.join(usr_root, "lib/systemd")]
    mains = [os.path.join(folder, "logind.conf") for folder in folders]
    files = [main for main in mains if os.path.exists(main)][:1]
    drop_ins: Dict[str, str] = {}
    for folder in folders:
        for name in _list_names(os.path.join(folder, "logind.conf.d")):
            if name.endswith(".conf"):
                drop_ins.setdefault(name, os.path.join(folder, "logind.conf.d", name))
    files += [drop_ins[name] for name in sorted(drop_ins)]
    found: List[Tuple[str, str]] = []
    for path in files:
        section = ""
        for line in _read_bytes(path).decode("utf-8", "replace").splitlines():
            line = line.strip()
            if line.startswith("["):
                section = line
            elif section == "[Login]" and "=" in line and line[0] not in "#;":
                key, _, value = line.partition("=")
                found.append((key.strip(), value.strip()))
    return found


def _explain_slurm(cgroups: Tuple[str, ...], environment: Dict[str, str]) -> str:
    jobs = [match.group(1) for match in map(_SLURM_JOB.search, cgroups) if match]
    job = jobs[0] if jobs else environment.get("SLURM_JOB_ID") or environment.get("SLURM_JOBID") or ""
    is_inside = bool(jobs) or any("/slurm/" in path for path in cgroups)
    if not job.isdecimal():
        return "this shell is in a Slurm job; when it ends, Slurm ends the run with it" if is_inside else ""
    outcome = child.run(["squeue", "-h", "-j", job, "-o", "%L"], _SQUEUE_SECONDS, env=environment)
    left = outcome.output.decode("utf-8", "replace").strip() if (outcome.how, outcome.code) == ("ended", 0) else ""
    has_gone = outcome.how == "ended" and (outcome.code == 0 or b"Invalid job id" in outcome.errors) and not left
    if has_gone and not is_inside:
        return ""  # only the variable is left of that job
    if not left:
        left = "time left unknown (squeue: %s)" % child.describe(outcome)
    else:
        left = "no time limit" if left == "UNLIMITED" else "%s left" % left.splitlines()[0]
    return ("this shell is in Slurm job %s, %s; when the job ends, Slurm ends the run with it: make sure that the run "
            "fits, or submit it as a job of its own" % (job, left))


def _explain_first_shell(proc_root: str) -> str:
    argv = _read_bytes(os.path.join(proc_root, "1/cmdline")).decode("utf-8", "replace").rstrip("\0").split("\0")
    shell = posixpath.basename(argv[0]).lstrip("-")
    if shell not in _SHELLS or _is_initial_pid_namespace(proc_root):
        return ""
    # `sh -c "sleep infinity"`, as pods have it, ends with nobody's logout, unless we were started from it.
    if not _is_interactive(argv) and not _is_ancestor_first(proc_root):
        return ""
    return ("the first process of this container is a shell (pid 1: %s): when it exits, the container ends, and the "
            "run with it; leave that shell open, or start the container with `sleep infinity` and enter it by exec"
            % shell)


def _is_initial_pid_namespace(proc_root: str) -> bool:
    try:
        return os.readlink(os.path.join(proc_root, "self/ns/pid")) == _INITIAL_PID_NAMESPACE
    except OSError:
        return False


def _is_interactive(argv: List[str]) -> bool:
    words = iter(argv[1:])
    for word in words:
        if word in _SHELL_OPTIONS_WITH_VALUE:
            next(words, "")
        elif not word.startswith(("-", "+")) or (word.startswith("-") and word[1:2] != "-" and "c" in word):
            return False
    return True


def _is_ancestor_first(proc_root: str) -> bool:
    pid = "self"
    for _ in range(64):  # the table may change below us; a circle must not hold us
        # 4711 (a) b) S 1 4711 …
        fields = _read_bytes(os.path.join(proc_root, pid, "stat")).rpartition(b")")[2].split()
        pid = fields[1].decode() if len(fields) > 1 else ""
        if pid in ("", "0", "1"):
            return pid == "1"
    return False


def _find_user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):  # a number that is no uid, out of a path
        return str(uid)


def _list_names(folder: str) -> List[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _read_bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError:
        return b""
