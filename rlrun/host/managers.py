"""Which of systemd's managers would make a scope for this user, and whether that scope would last. Reads; starts nothing."""
import os
import pwd
import shlex
import shutil
from typing import Mapping, NamedTuple


class Manager(NamedTuple):
    """What a scope of one's own needs. `state`: "ready", "linger" (lingering is off), "absent" (it can't be had)."""

    state: str
    is_user: bool  # `systemd-run --user`, else the system's manager
    runtime_dir: str  # the XDG_RUNTIME_DIR that reaches the user's manager, "" where none does
    uid: int
    user: str
    reason: str  # why it is not ready
    cure: str


def find_manager(environ: Mapping[str, str], run_root: str = "/run", var_root: str = "/var", uid: int = -1) -> Manager:
    """The manager for `--scope`: the user's own where it lingers, else for root the system's; -1 is this process's user.

    A user manager without lingering ends with the last logout, and its scopes with it (`loginctl enable-linger`,
    user@.service); the system's manager ends with the machine.
    """
    uid = os.geteuid() if uid < 0 else uid
    user = find_user_name(uid)
    is_booted = os.path.isdir(os.path.join(run_root, "systemd/system"))  # sd_booted(3)
    runtime_dir = _find_runtime_dir(environ, run_root, uid)
    lingers = is_lingering(user, var_root)
    if not shutil.which("systemd-run", path=environ.get("PATH", os.defpath)):
        return Manager("absent", True, runtime_dir, uid, user, "there is no systemd-run on PATH",
                       "Add its folder to PATH, or launch without --scope.")
    if runtime_dir and lingers:
        return Manager("ready", True, runtime_dir, uid, user, "", "")
    if uid == 0 and is_booted:
        return Manager("ready", False, runtime_dir, uid, user, "", "")
    linger = "loginctl enable-linger %s" % shlex.quote(user)
    if runtime_dir:
        return Manager("linger", True, runtime_dir, uid, user, "lingering is off for %s, so the scope would end with the last "
                       "logout" % user, "Turn it on, then run this again: %s" % linger)
    where = os.path.join(run_root, "user", str(uid))
    if not is_booted:
        return Manager("absent", True, "", uid, user, "systemd does not run here, and %s has no user manager (%s)"
                       % (user, where), "Launch without --scope.")
    reason = "no systemd user manager of %s's can be reached (%s)" % (user, where)
    if lingers:
        return Manager("absent", True, "", uid, user, reason, "Have root start it: systemctl start user@%d.service" % uid)
    return Manager("linger", True, "", uid, user, reason, "This starts one and keeps it; then run this again: %s" % linger)


def is_lingering(user: str, var_root: str = "/var") -> bool:
    """Does this user's manager stay without a session? logind keeps it as a file (logind-user.c, user_check_linger_file)."""
    return os.path.lexists(os.path.join(var_root, "lib/systemd/linger", user))


def describe_offer(manager: Manager) -> str:
    """What to type so that the run gets a scope of its own; "" where that can't be had."""
    if manager.state == "ready":
        return "launch with --scope"
    if manager.state == "linger":
        return "`loginctl enable-linger %s`, then launch with --scope" % shlex.quote(manager.user)
    return ""


def find_user_name(uid: int) -> str:
    """The login name, or the number where there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):  # a number that is no uid, out of a path
        return str(uid)


def _find_runtime_dir(environ: Mapping[str, str], run_root: str, uid: int) -> str:
    """The folder with the manager's socket. The variable is missing under cron, and after `su` it is another user's."""
    given = environ.get("XDG_RUNTIME_DIR", "")
    for folder in ([given] if given and _is_owned(given, uid) else []) + [os.path.join(run_root, "user", str(uid))]:
        if any(os.path.exists(os.path.join(folder, name)) for name in ("systemd/private", "bus")):
            return folder
    return ""


def _is_owned(path: str, uid: int) -> bool:
    try:
        return os.stat(path).st_uid == uid
    except OSError:
        return False
