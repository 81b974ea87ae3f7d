"""Config files as tables: TOML, JSON and YAML, each by a real parser. Owns where a parser is found; has none of its own.

TOML is read by this Python's tomllib. A Python before 3.11 has none and no Python has YAML: these files are read by an
interpreter that the caller names, one process for all of them. Nothing in a file is run, and nothing is written.
"""
import json
import os
import stat
import sys
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .. import child
from ..values import Outcome

MAX_FILE_BYTES = 1 << 20
MAX_DEPTH = 100
_MAX_INTEGER_DIGITS = 300
_INTEGER_LIMIT = 10 ** _MAX_INTEGER_DIGITS
_MAX_ANSWER_BYTES = 64 << 20
# One string of the environment is at most 128 KiB (execve(2), MAX_ARG_STRLEN), and a path's JSON longer than the path.
_MAX_PATHS_BYTES = 64 << 10
_MARK = b"@@rlrun-tables@@ "
_VARIABLE = "RLRUN_TABLES"
_KINDS = {".toml": "toml", ".json": "json", ".yaml": "yaml", ".yml": "yaml"}
_PARSERS = {"toml": ("TOML", "tomllib, tomli"), "yaml": ("YAML", "yaml")}
# For Python 3.6 and later. The paths are in its environment, not in its command line: there are runners that kill by a
# word in anybody's. A line an answer, at once: what one file does to a parser is not to take the others' answers away.
# The working directory is off the path: a json.py may lie there. YAML's references can make a table without an end out
# of a short file, so the answer is written piece by piece, by the encoder that is no C, up to a limit.
_PROGRAM = """
import sys
sys.path[:] = sys.path[1:] if sys.path[:1] == [""] else sys.path
import json, os
parsers = {}
try:
    import tomllib
    parsers["toml"] = tomllib.loads
except Exception:
    try:
        import tomli
        parsers["toml"] = tomli.loads
    except Exception:
        pass
def find_yaml():
    try:
        import yaml
        parsers["yaml"] = yaml.safe_load
    except Exception:
        pass
def parse(kind, path):
    if kind not in parsers:
        return "unparsed", "null"
    try:
        with open(path.encode("latin-1"), "rb") as file:
            text = file.read(%(limit)d).decode("utf-8")
        pieces, size = [], 0
        for piece in json.JSONEncoder(default=str).iterencode(parsers[kind](text)):
            pieces.append(piece)
            size += len(piece)
            if size > 4 * %(limit)d:
                raise ValueError("its references make it too large")
        return "table", "".join(pieces)
    except RecursionError:
        return "error", json.dumps("nested too deeply")
    except Exception as error:
        mark = getattr(error, "problem_mark", None)
        words = getattr(error, "problem", None) or str(error) or type(error).__name__
        where = " (at line %%d, column %%d)" %% (mark.line + 1, mark.column + 1) if mark else ""
        return "error", json.dumps(words + where)
asked = json.loads(os.environ.pop("%(variable)s"))
if any(kind == "yaml" for kind, path in asked):
    find_yaml()
sys.stdout.flush()
for place, (kind, path) in enumerate(asked):
    line = ('\\n%(mark)s[%%d, "%%s", %%s]\\n' %% ((place,) + parse(kind, path))).encode("ascii")
    while line:
        line = line[os.write(1, line):]
""" % {"variable": _VARIABLE, "mark": _MARK.decode(), "limit": MAX_FILE_BYTES}


class Table(NamedTuple):
    """What a config file holds, or why that can't be told; `data` is None exactly where `error` is not ""."""

    data: Optional[Dict[str, Any]]
    error: str  # the parser's words, or the system's
    is_unparsed: bool  # no parser was to be had, it gave no answer, or the file is too much for it: another may read it


def read_tables(paths: Sequence[str], python: str = "", timeout_seconds: float = 60) -> Dict[str, Table]:
    """The Table of each file, by its path as given; the ending .toml, .json, .yaml or .yml says what it is.

    `python`: the interpreter that is asked for what this one can't parse ("" for none), within `timeout_seconds` for
    all files. Dates become strings, and so do integers of more than 300 digits; other values are what JSON knows,
    inf and nan among the floats. Never raises for a file. What is refused: more than 1 MiB, nesting of more than 100,
    what is no regular file (reading a pipe would wait), a file whose top is no table.
    """
    found: Dict[str, Table] = {}
    left: List[Tuple[str, str]] = []
    toml = _find_tomllib()
    for path in dict.fromkeys(paths):
        kind = _KINDS.get(os.path.splitext(path)[1], "")
        text, error = _read_text(path) if kind else ("", "not a .toml, .json, .yaml or .yml file")
        if error:
            found[path] = _fail(error, error.startswith("more than"))
        elif kind == "json":
            found[path] = _parse(lambda text: json.loads(text, parse_int=_read_integer), text)
        elif kind == "toml" and toml:
            found[path] = _parse(toml.loads, text)
        elif not python:
            found[path] = _fail("no %s parser: Python %d.%d has none, and no other interpreter was found" % (
                (_PARSERS[kind][0],) + sys.version_info[:2]), True)
        else:
            left.append((kind, path))
    found.update(_ask(python, left, time.monotonic() + timeout_seconds))
    return {path: found[path] for path in paths}


def merge(tables: Sequence[Dict[str, Any]]) -> Dict[str, Any]:
    """One table out of several, left to right: a table goes into a table, anything else takes the other's place whole.

    Lists are replaced, not joined. What it is given stays as it is. Source: pydantic_config/cli.py, _deep_merge, which
    is how several `@ FILE` become one config.
    """
    merged: Dict[str, Any] = {}
    for table in tables:
        for name, value in table.items():
            if isinstance(value, dict):
                known = merged.get(name)
                merged[name] = merge([known, value] if isinstance(known, dict) else [value])
            else:
                merged[name] = value
    return merged


def dig(data: Any, *names: str, default: Any = None) -> Any:
    """The value under nested names; `default` where a name is missing or what should hold it is no table."""
    for name in names:
        if not isinstance(data, dict) or name not in data:
            return default
        data = data[name]
    return data


def _find_tomllib() -> Any:
    """This Python's tomllib or None. Looking for a module inside a package imports the package; to vermin, which holds
    this file to 3.6 and understands no condition, an import statement would be one too many."""
    import importlib.util
    if sys.version_info < (3, 11):  # what has that name there is somebody else's
        return None
    try:
        importlib.util.find_spec("tomllib._parser")
    except ImportError:
        return None
    return sys.modules.get("tomllib")


def _read_text(path: str) -> Tuple[str, str]:
    """The text of a file, or why it can't be had."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return "", "not a regular file"
        # Not to wait where it has become a pipe meanwhile.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            return "", "more than %d MiB" % (MAX_FILE_BYTES >> 20)
        return data.decode("utf-8"), ""
    except UnicodeDecodeError:
        return "", "not UTF-8"
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path
        return "", "can't be read: %s" % (getattr(error, "strerror", "") or error)


def _parse(parse: Any, text: str) -> Table:
    try:
        return _accept(parse(text))
    except RecursionError:
        return _fail("nested too deeply", True)
    except ValueError as error:  # JSONDecodeError and TOMLDecodeError are such
        return _fail(str(error))


def _accept(data: Any) -> Table:
    if not isinstance(data, dict):
        return _fail("no table at its top")
    try:
        return Table(_clean(data, MAX_DEPTH), "", False)
    except ValueError as error:
        return _fail(str(error), "nested" in str(error))


def _fail(error: str, is_unparsed: bool = False) -> Table:
    return Table(None, " ".join(_clean_text(error).split()), is_unparsed)


def _clean(value: Any, depth: int) -> Any:
    """The same value in types that JSON has, with nothing in it that could not be printed later."""
    if not depth:
        raise ValueError("nested more than %d deep" % MAX_DEPTH)
    if isinstance(value, dict):
        return {_clean_text(str(name)): _clean(held, depth - 1) for name, held in value.items()}
    if isinstance(value, list):
        return [_clean(held, depth - 1) for held in value]
    if isinstance(value, str):
        return _clean_text(value)
    if value is None or isinstance(value, (bool, float)):
        return value
    if isinstance(value, int):  # str() of one with more than 4300 digits raises, in Pythons since 2022
        return value if abs(value) < _INTEGER_LIMIT else hex(value)
    return str(value)  # a date or time of TOML's


def _clean_text(text: str) -> str:
    """Half of a surrogate pair, which JSON and YAML can spell, is no character: writing it would raise."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _read_integer(digits: str) -> Any:
    return int(digits) if len(digits) <= _MAX_INTEGER_DIGITS else digits


def _ask(python: str, files: Sequence[Tuple[str, str]], deadline: float) -> Dict[str, Table]:
    found: Dict[str, Table] = {}
    for batch in _split(files):
        asked = [(kind, os.fsencode(path).decode("latin-1")) for kind, path in batch]
        env = dict(os.environ, **{_VARIABLE: json.dumps(asked)})
        outcome = child.run([python, "-B", "-c", _PROGRAM], max(0.0, deadline - time.monotonic()), env=env,
                            max_output_bytes=_MAX_ANSWER_BYTES)
        answers = _read_answers(outcome)
        for place, (kind, path) in enumerate(batch):
            found[path] = _judge(answers.get(place), kind, python, outcome)
    return found


def _split(files: Sequence[Tuple[str, str]]) -> List[List[Tuple[str, str]]]:
    batches: List[List[Tuple[str, str]]] = []
    room = 0
    for kind, path in files:
        size = len(json.dumps((kind, os.fsencode(path).decode("latin-1")))) + 2
        if size > room or not batches:
            batches.append([])
            room = _MAX_PATHS_BYTES
        batches[-1].append((kind, path))
        room -= size
    return batches


def _read_answers(outcome: Outcome) -> Dict[int, Tuple[str, Any]]:
    answers: Dict[int, Tuple[str, Any]] = {}
    for line in outcome.output.split(b"\n"):
        if line.startswith(_MARK):
            try:
                place, state, held = json.loads(line[len(_MARK):].decode("ascii"), parse_int=_read_integer)
                answers[int(place)] = (str(state), held)
            except (ValueError, TypeError, RecursionError):  # cut off, or another program's
                continue
    return answers


def _judge(answer: Optional[Tuple[str, Any]], kind: str, python: str, outcome: Outcome) -> Table:
    if answer is None:
        return _fail("%s gave no answer: %s" % (python, child.describe(outcome)), True)
    state, held = answer
    if state == "table":
        return _accept(held)
    if state == "error":
        return _fail(str(held), "nested" in str(held))
    return _fail("no %s parser in %s (%s)" % (_PARSERS[kind][0], python, _PARSERS[kind][1]), True)
