"""Where this process stands: in whose session, server, service or container a launch from here begins. Judges nothing.

Told by the control group and by the processes above, which are known by their argv, as in procs, not by a word in it.
"""
import os
from typing import List, NamedTuple, Optional, Tuple

from . import cgroups
from .ancestors import Ancestor, find_script, name_program, read_ancestors
from .ends import SHELLS, is_initial_pid_namespace
from .managers import find_user_name

_TERMINAL = "IDE's or agent's terminal"
_NO_SESSION = "ssh without a session"
_SLURM = "Slurm step"
# Program (or title, or script of an interpreter) -> place, and what it is called.
_PROGRAMS = {
    "tmux": ("tmux server", "tmux server"), "tmux:": ("tmux server", "tmux server"), "SCREEN": ("screen", "screen"),
    "screen": ("screen", "screen"), "zellij": ("zellij server", "zellij server"), "cron": ("cron", "cron"),
    "CRON": ("cron", "cron"), "crond": ("cron", "cron"), "fcron": ("cron", "cron"), "anacron": ("cron", "anacron"),
    "atd": ("at", "atd"), "slurmstepd": (_SLURM, "slurmstepd"), "slurmstepd:": (_SLURM, "slurmstepd"),
    "sshd": (_NO_SESSION, "sshd"), "sshd:": (_NO_SESSION, "sshd"),
    "sshd-session": (_NO_SESSION, "sshd"), "sshd-session:": (_NO_SESSION, "sshd"),
    "dropbear": (_NO_SESSION, "dropbear")}
_EDITORS = ("code", "code-insiders", "code-server", "code-tunnel", "codium", "cursor", "windsurf", "zed", "zed-editor",
            "remote-dev-server", "remote-dev-server.sh", "jupyter", "jupyter-lab", "jupyter-labhub", "jupyter-notebook",
            "jupyter-server", "jupyterhub-singleuser", "jupyterlab", "notebook", "ipykernel_launcher",
            "aider", "claude", "codex", "copilot", "cursor-agent", "gemini", "goose", "opencode")
# A folder in the path of the program, or of the script that it runs: these servers bring a node or java of their own.
_EDITOR_FOLDERS = {
    ".vscode-server": "VS Code's server", ".vscode-server-insiders": "VS Code's server", ".vscode-remote": "VS Code's server",
    ".vscodium-server": "VSCodium's server", ".cursor-server": "Cursor's server", ".windsurf-server": "Windsurf's server",
    ".zed_server": "Zed's server", "JetBrains": "a JetBrains IDE", "RemoteDev": "a JetBrains IDE"}
# scopes that a container's engine makes: docker-4f….scope
_ENGINE_SCOPES = ("docker-", "libpod-", "crio-", "cri-containerd-", "nerdctl-", "lxc.", "machine-")


class Standing(NamedTuple):
    """Where a process stands. `place` is the nearest of what holds it, "unknown" where nothing could be told."""

    place: str
    words: str  # the whole chain: `tmux server (pid 812) in login session scope 3`
    cgroup: str  # the path that systemd counts by, "" where it can't be read
    pid: int
    session_id: int  # in the sense of setsid(2)
    has_terminal: bool
    session_ids: Tuple[int, ...]  # of this process and all above it
    places: Tuple[str, ...] = ()  # of the whole chain, nearest first


class _Holder(NamedTuple):
    place: str
    words: str


def read_standing(proc_root: str = "/proc") -> Standing:
    """Where this process stands: the nearest process above it that holds others, else its unit, else its container."""
    above = read_ancestors(proc_root)
    paths = cgroups.read_paths("self", proc_root)
    unit = find_unit(paths)
    chain: List[_Holder] = []
    for one in above[1:]:
        holder = _find_holder(one)
        if holder and holder.place not in [known.place for known in chain]:
            chain.append(holder)
    if unit:
        is_session = unit.place in ("login session scope", "systemd user manager", _SLURM)
        chain = [one for one in chain if one.place != unit.place and not (is_session and one.place == _NO_SESSION)] + [unit]
    container = _find_container(above, proc_root)
    chain += [container] if container else []
    own = above[0] if above else Ancestor(os.getpid(), 0, 0, 0, "", ())
    place, words = _say(chain, own, above)
    return Standing(place, words, cgroups.pick_path(paths), own.pid, own.sid, own.tty != 0,
                    tuple(sorted({one.sid for one in above})), tuple(one.place for one in chain))


def is_in_slurm(one: Standing) -> bool:
    """Does a Slurm job hold it, by its control group or by what is above it? A unit that is only called so is none."""
    return _SLURM in one.places


def find_unit(paths: Tuple[str, ...]) -> Optional[_Holder]:
    """What systemd or Slurm counts these control groups as."""
    for path in paths:
        job = cgroups.SLURM_JOB.search(path)
        if job:
            return _Holder(_SLURM, "%sof Slurm job %s" % ("step %s " % job.group(2) if job.group(2) else "", job.group(1)))
    for path in paths:
        login = cgroups.LOGIN_SCOPE.search(path)
        units = [unit for unit in cgroups.list_units(path) if unit.kind != "slice"]
        if login:
            return _Holder("login session scope", "login session scope %s" % login.group(1))
        manager = cgroups.USER_MANAGER.search(path)
        if manager:
            owner = "%s's systemd user manager" % find_user_name(int(manager.group(1)))
            if units[-1].is_user and units[-1].kind == "service":
                return _Holder("systemd service", "systemd service %s of %s" % (units[-1].name, owner))
            return _Holder("systemd user manager", owner + (" (%s)" % units[-1].name if units[-1].is_user else ""))
        if units and not units[-1].name.startswith(_ENGINE_SCOPES) and not units[-1].name == "init.scope":
            return _Holder("systemd %s" % units[-1].kind, "systemd %s %s" % (units[-1].kind, units[-1].name))
    return None


def _find_holder(one: Ancestor) -> Optional[_Holder]:
    name = name_program(one)
    known = _PROGRAMS.get("tmux" if one.comm == "tmux: server" else name)
    if known:
        return _Holder(known[0], "%s (pid %d)" % (known[1], one.pid))
    if name in _EDITORS:
        return _Holder(_TERMINAL, "%s (pid %d)" % (name, one.pid))
    for path in (one.argv[0] if one.argv else "", find_script(one)):
        for folder in os.path.dirname(path).split("/"):
            if folder in _EDITOR_FOLDERS:
                return _Holder(_TERMINAL, "%s (pid %d)" % (_EDITOR_FOLDERS[folder], one.pid))
    return None


def _find_container(above: Tuple[Ancestor, ...], proc_root: str) -> Optional[_Holder]:
    """A table of processes of its own. One that has no parent in it and is not its first came from outside."""
    if not above or is_initial_pid_namespace(proc_root) or above[-1].ppid != 0:
        return None
    top = above[-1]
    if top.pid == 1:
        return _Holder("container", "container (pid 1: %s)" % name_program(top))
    return _Holder("container", "container, entered from outside (pid %d: %s)" % (top.pid, name_program(top)))


def _say(chain: List[_Holder], own: Ancestor, above: Tuple[Ancestor, ...]) -> Tuple[str, str]:
    terminal = "with a terminal" if own.tty else "without a terminal"
    if chain:
        return chain[0].place, "%s, %s" % (" in ".join(one.words for one in chain), terminal)
    shells = [one for one in above[1:] if one.comm in SHELLS]
    if shells:
        return "plain shell", "%s (pid %d), %s" % (shells[0].comm, shells[0].pid, terminal)
    if own.tty:
        return "plain shell", "a terminal"
    return "unknown", "unknown: nothing above this process tells"
