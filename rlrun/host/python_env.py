"""What an interpreter would import, asked of that interpreter itself. Imports no module of the run, compiles nothing.

One process answers for all names. It is started with -B: a sitecustomize on the runner's PYTHONPATH would otherwise
leave a __pycache__ in the checkout. The names are in its environment, not in its command line: there are runners that
kill by such a name in anybody's command line.
"""
import json
import os
import re
from typing import Dict, Optional, Sequence

from .. import child

_MARK = b"@@rlrun-modules@@ "
_VARIABLE = "RLRUN_MODULES"
# For Python 3.6 and later. The working directory is off the path until json is imported: a json.py may lie there (E5).
_PROGRAM = """
import sys
kept = sys.path[:]
sys.path[:] = kept[1:] if kept[:1] == [""] else kept
import importlib.util, json, os
sys.path[:] = kept
found = {}
for name in os.environ.pop("%s", "").split():
    try:
        spec = importlib.util.find_spec(name.partition(".")[0])
        places = list(spec.submodule_search_locations or ()) if spec else []
        origin = spec.origin if spec and spec.origin != "namespace" else None
        found[name] = str(origin or (places or ["built-in"])[0]) if spec else ""
    except Exception:
        found[name] = ""
sys.stdout.flush()
os.write(1, ("\\n%s" + json.dumps(found) + "\\n").encode("ascii"))
""" % (_VARIABLE, _MARK.decode())
# Python 3.13.0rc2+
_VERSION = re.compile(br"^Python (\d+\.\d+\S*)", re.MULTILINE)


def find_modules(python: str, names: Sequence[str], cwd: Optional[str] = None, env: Optional[Dict[str, str]] = None,
                 timeout_seconds: float = 60) -> Optional[Dict[str, str]]:
    """Where `python`, started in `cwd` with `env`, would find each top-level module; "" where it would not.

    A package without __init__.py gives its folder, a built-in one the word "built-in". Of a dotted name the first part
    is looked up: for more, Python would have to import it. None where the interpreter gave no answer in time.
    """
    return finish_finding(start_finding(python, names, cwd, env), names, timeout_seconds)


def start_finding(python: str, names: Sequence[str], cwd: Optional[str] = None,
                  env: Optional[Dict[str, str]] = None) -> child.Running:
    """Asks as `find_modules` does and does not wait: an interpreter's own start takes longer than the answer."""
    environ = dict(os.environ if env is None else env, **{_VARIABLE: " ".join(names)})
    return child.start([python, "-B", "-c", _PROGRAM], cwd=cwd, env=environ)


def finish_finding(running: child.Running, names: Sequence[str],
                   timeout_seconds: float = 60) -> Optional[Dict[str, str]]:
    """Waits for the answer, `timeout_seconds` after the question at most, and gives what `find_modules` gives."""
    outcome = child.finish(running, timeout_seconds)
    for line in reversed(outcome.output.splitlines()):
        if line.startswith(_MARK):
            try:
                found = json.loads(line[len(_MARK):].decode("ascii"))
            except ValueError:  # also what is not ASCII
                return None
            return {name: str(found.get(name, "")) for name in names}
    return None


def read_version(python: str, timeout_seconds: float = 20) -> str:
    """The version of an interpreter, `3.11.7`; "" where it gives none."""
    match = _VERSION.search(child.run([python, "--version"], timeout_seconds, merge=True).output)
    return match.group(1).decode("ascii", "replace") if match else ""
