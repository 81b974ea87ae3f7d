"""What logind and the user's manager do at a logout: logind.conf with its drop-ins, lingering. Reads systemd's settings, and
asks logind itself for what no file tells."""
import os
import shlex
from typing import Dict, List, NamedTuple, Optional, Tuple

from .. import child
from .cgroups import LOGIN_SCOPE, USER_MANAGER, USER_SLICE
from .ends import End
from .managers import Manager, describe_offer, find_user_name, is_lingering
from .memory import read_text

_TRUE_WORDS = ("1", "yes", "y", "true", "t", "on")  # systemd's parse_boolean
_FALSE_WORDS = ("0", "no", "n", "false", "f", "off")
# `loginctl show` has no such property; org.freedesktop.login1(5) has it, and systemd 239 already.
_ASK = ("busctl", "get-property", "org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager",
        "KillUserProcesses")
_ASK_SECONDS = 2.0


class _Logind(NamedTuple):
    kills: Optional[bool]  # None where no file tells: then it is as this systemd was compiled, which differs by distribution
    only_users: Tuple[str, ...]
    exclude_users: Tuple[str, ...]


def explain_login(cgroups: Tuple[str, ...], manager: Manager, etc_root: str, run_root: str, usr_root: str,
                  var_root: str) -> Optional[End]:
    """The end that a logout is, for what sits in a login session's scope or in a user's manager.

    `manager`: what a scope could be had from. A tmux server sits in the scope of the session that it was started from.
    """
    settings = _read_logind(etc_root, run_root, usr_root)
    for path in cgroups:
        inner = USER_MANAGER.search(path)
        scope = LOGIN_SCOPE.search(path)
        if not inner and not scope:
            continue
        owner = inner or USER_SLICE.search(path)
        user = find_user_name(int(owner.group(1)) if owner else os.getuid())
        if inner and not is_lingering(user, var_root):
            return End("this shell belongs to %s's systemd user manager, which ends everything in it after the last logout, the "
                       "run included" % user, "keep it: `loginctl enable-linger %s`" % shlex.quote(user), False)
        if scope and not inner and _is_killed(settings, user, run_root):
            # Lingering alone does not save what sits in the session's scope (session_stop_scope in logind-session.c),
            # but without it a scope of one's own ends with the user manager.
            return End("logind ends every process of this login session at logout (KillUserProcesses), the run included",
                       describe_offer(manager) or "have root add %s to KillExcludeUsers= in logind.conf" % user, True)
    return None


def _is_killed(settings: _Logind, user: str, run_root: str) -> bool:
    # The order is manager_shall_kill's in systemd's logind-core.c.
    if user in settings.exclude_users:
        return False
    if settings.only_users:
        return user in settings.only_users
    return _ask_logind(run_root) if settings.kills is None else settings.kills


def _ask_logind(run_root: str) -> bool:
    """KillUserProcesses as logind has it; False also where it does not answer: what is not known is not told."""
    if not os.path.exists(os.path.join(run_root, "dbus/system_bus_socket")):
        return False
    outcome = child.run(_ASK, _ASK_SECONDS)
    return (outcome.how, outcome.code, outcome.output.strip()) == ("ended", 0, b"b true")


def _read_logind(etc_root: str, run_root: str, usr_root: str) -> _Logind:
    kills: Optional[bool] = None
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
        for line in read_text(path).splitlines():
            line = line.strip()
            if line.startswith("["):
                section = line
            elif section == "[Login]" and "=" in line and line[0] not in "#;":
                key, _, value = line.partition("=")
                found.append((key.strip(), value.strip()))
    return found


def _list_names(folder: str) -> List[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
