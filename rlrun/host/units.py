"""What systemd's own settings end: a service whose main process ends, RuntimeMaxSec, systemd-oomd. Asks `systemctl show`.

Started only where the control group has a unit to ask about and that manager runs; what is not told is not guessed.
"""
import os
import re
import time
from typing import Dict, List, Mapping, Optional, Tuple

from .. import child
from .ancestors import read_ancestors
from .cgroups import Unit, list_units
from .ends import End, show_seconds, weigh_time
from .managers import Manager, describe_offer

_SECONDS = 2.0
_OOMD = "systemd-oomd.service"
_ROOT = "-.slice"
_PROPERTIES = ("Id", "ActiveState", "KillMode", "Type", "RuntimeMaxUSec", "MainPID", "ExecMainStartTimestampMonotonic",
               "ActiveEnterTimestampMonotonic", "ManagedOOMSwap", "ManagedOOMMemoryPressure")
# 1month 2w 3d 4h 5min 6s 7ms 8us
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(y|month|w|d|h|min|s|ms|us)\Z")
_SPAN_SECONDS = {"y": 31557600.0, "month": 2629800.0, "w": 604800.0, "d": 86400.0, "h": 3600.0, "min": 60.0, "s": 1.0,
                 "ms": 1e-3, "us": 1e-6}


def explain_units(path: str, manager: Manager, environ: Mapping[str, str], proc_root: str = "/proc", run_root: str = "/run",
                  needed_seconds: Optional[float] = None) -> List[End]:
    """The ends that lie in the units around this process: `path` is its control group. At most 2 s."""
    units = [unit for unit in list_units(path) if not unit.name.startswith("user@")]
    told = read_units(path, manager, environ, run_root)
    if not told:
        return []
    pids = [one.pid for one in read_ancestors(proc_root)]
    found: List[Optional[End]] = []
    for unit in units:
        settings = told.get((unit.name, unit.is_user), {})
        found.append(_explain_kill_mode(unit, settings, manager, pids))
        found.append(_explain_run_time(unit, settings, manager, needed_seconds))
    found.append(_explain_oomd(path, told))
    return [end for end in found if end]


def read_units(path: str, manager: Manager, environ: Mapping[str, str],
               run_root: str = "/run") -> Dict[Tuple[str, bool], Dict[str, str]]:
    """What the managers tell of the units on a control group's path, by (name, is of a user manager); {} where none does.

    One call a manager, side by side. systemd-oomd and the slice of all are asked about in the same call.
    """
    units = list_units(path)
    system = [unit.name for unit in units if not unit.is_user]
    user = [unit.name for unit in units if unit.is_user]
    env = dict(environ, LC_ALL="C")
    started: List[Tuple[bool, child.Running]] = []
    try:
        if system and os.path.isdir(os.path.join(run_root, "systemd/system")):
            started.append((False, child.start(_make_argv(False, system + [_ROOT, _OOMD]), env=env)))
        if user and manager.runtime_dir and "/user@%d.service/" % manager.uid in path + "/":
            started.append((True, child.start(_make_argv(True, user), env=dict(env, XDG_RUNTIME_DIR=manager.runtime_dir))))
        told: Dict[Tuple[str, bool], Dict[str, str]] = {}
        for is_user, running in started:
            outcome = child.finish(running, _SECONDS)
            if (outcome.how, outcome.code) == ("ended", 0):
                for settings in parse_show(outcome.output.decode("utf-8", "replace")):
                    told[(settings.get("Id", ""), is_user)] = settings
        return told
    except BaseException:
        for _, running in started:
            if running.popen is not None and running.popen.poll() is None:
                child.end_group(running.popen)
        raise


def parse_show(text: str) -> List[Dict[str, str]]:
    """The units of `systemctl show`: `Name=value` lines, an empty line between two units."""
    found: List[Dict[str, str]] = [{}]
    for line in text.splitlines():
        if not line and found[-1]:
            found.append({})
        name, equals, value = line.partition("=")
        if equals:
            found[-1][name] = value
    return [settings for settings in found if settings]


def parse_span(text: str) -> Optional[float]:
    """Seconds of a time as systemd prints it (`1h 30min`); None for `infinity` and what can't be read."""
    matches = [_SPAN.match(word) for word in text.split()]
    if not matches or not all(matches):
        return None
    return sum(float(match.group(1)) * _SPAN_SECONDS[match.group(2)] for match in matches if match)


def _make_argv(is_user: bool, names: List[str]) -> List[str]:
    return ["systemctl"] + (["--user"] if is_user else []) + ["show", "--no-pager", "-p", ",".join(_PROPERTIES), "--"] + names


def _ends_all(unit: Unit, settings: Mapping[str, str]) -> bool:
    # systemd.kill(5): `process` and `none` leave alone what is not the main process
    return unit.kind in ("service", "scope") and settings.get("KillMode") in ("control-group", "mixed")


def _explain_kill_mode(unit: Unit, settings: Mapping[str, str], manager: Manager, pids: List[int]) -> Optional[End]:
    if unit.kind != "service" or not _ends_all(unit, settings):
        return None
    main = settings.get("MainPID", "")
    if main.isdecimal() and int(main) in pids:
        when = "as soon as its main process (pid %s%s) ends" % (main, ", this rlrun" if int(main) == pids[0] else
                                                                 ", which started this rlrun")
    else:
        when = "when it is stopped or restarted, and when its main process ends"
    offer = describe_offer(manager)
    return End("systemd ends all of %s %s (KillMode=%s), the run included" % (unit.name, when, settings["KillMode"]),
               (offer + ", or " if offer else "") + "set KillMode=process in the unit", True)


def _explain_run_time(unit: Unit, settings: Mapping[str, str], manager: Manager,
                      needed_seconds: Optional[float]) -> Optional[End]:
    limit = parse_span(settings.get("RuntimeMaxUSec", ""))
    if limit is None or not _ends_all(unit, settings) or settings.get("Type") == "oneshot":  # systemd.service(5): no effect there
        return None
    start = settings.get("ExecMainStartTimestampMonotonic") or settings.get("ActiveEnterTimestampMonotonic") or ""
    left = None
    if start.isdecimal() and int(start):
        left = max(0.0, limit - (time.clock_gettime(time.CLOCK_MONOTONIC) - int(start) / 1e6))
    return End("systemd ends %s %s after its start (RuntimeMaxSec), the run included: %s%s" % (
        unit.name, show_seconds(limit), "time left unknown" if left is None else show_seconds(left) + " left",
        weigh_time(left, needed_seconds)), describe_offer(manager) or "make sure that the run fits", True)


def _explain_oomd(path: str, told: Mapping[Tuple[str, bool], Mapping[str, str]]) -> Optional[End]:
    if told.get((_OOMD, False), {}).get("ActiveState") != "active":
        return None
    units = list_units(path)
    asked = [(unit.name, unit.is_user) for unit in units]
    for key in [(_ROOT, False)] + asked:
        for name in ("ManagedOOMSwap", "ManagedOOMMemoryPressure"):
            if told.get(key, {}).get(name) == "kill":
                inner = units[-1]
                return End("systemd-oomd may end all of %s when memory is short (%s=kill on %s), the run included" % (
                    inner.name, name, key[0]), "have root spare it: `systemctl %sset-property --runtime %s "
                    "ManagedOOMPreference=omit`" % ("--user " if inner.is_user else "", inner.name), False)
    return None
