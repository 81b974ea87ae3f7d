"""What is installed for an interpreter, asked of that interpreter itself: one process, which lists folders and imports none."""
import json
import re
from typing import Dict, NamedTuple, Optional

from .. import child

_MARK = b"@@rlrun-packages@@ "
# For Python 3.6 and later. torch-2.4.0+cu121.dist-info   PyYAML-5.4.1-py3.6.egg-info
# The first on the path is the one that is imported.
_PROGRAM = r"""
import sys
kept = sys.path[:]
sys.path[:] = kept[1:] if kept[:1] == [""] else kept
import json, os, re
found = {}
for folder in kept:
    try:
        names = sorted(os.listdir(folder or "."))
    except OSError:
        continue
    for name in names:
        match = re.match(r"(.+?)-([0-9][^-]*)(?:-py[0-9.]+)?(?:-.*)?\.(?:dist|egg)-info$", name)
        if match:
            found.setdefault(re.sub(r"[-_.]+", "-", match.group(1)).lower(), match.group(2))
sys.stdout.flush()
os.write(1, ("\n%s" + json.dumps(["%%d.%%d.%%d" %% sys.version_info[:3], found]) + "\n").encode("ascii"))
""" % _MARK.decode()
_MAX_PACKAGES = 20000
_VERSION = re.compile(r"[0-9.]+\Z")


class Installed(NamedTuple):
    """The version of an interpreter, and what it finds: version by name, in the form in which names are compared (PEP 503)."""

    version: str
    packages: Dict[str, str]


def start_listing(python: str, cwd: str, env: Dict[str, str]) -> child.Running:
    """Asks an interpreter, started in `cwd` with `env`, and does not wait."""
    return child.start([python, "-B", "-c", _PROGRAM], cwd=cwd, env=env)


def finish_listing(running: child.Running, timeout_seconds: float = 60.0) -> Optional[Installed]:
    """Waits, `timeout_seconds` after the question at most, for what it told; None where it gave no answer."""
    outcome = child.finish(running, timeout_seconds)
    for line in reversed(outcome.output.splitlines()):
        if line.startswith(_MARK):
            try:
                version, found = json.loads(line[len(_MARK):].decode("ascii"))
            except (ValueError, TypeError):
                return None
            if not isinstance(found, dict) or len(found) > _MAX_PACKAGES or not _VERSION.match(str(version)):
                return None
            return Installed(str(version), {str(name): str(one) for name, one in found.items()})
    return None
