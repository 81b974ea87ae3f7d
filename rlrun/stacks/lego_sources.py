"""Lego-RL: what a config's text says before anything runs it: the names that it sets, the files that it reads in.

A config is bash, and only the runner may run it. What is read here is never shown as a value; it tells which of the
runner's resolved values belong to the config, and which differ at every run.
"""
import os
import re
from typing import Dict, Iterable, List, NamedTuple, Set, Tuple

# export EXP_NAME=x   (at the start of a line or after a `;`)
_ASSIGNMENT = re.compile(r"(?:^|;|&&)[ \t]*(?:export[ \t]+|declare[ \t]+(?:-\w+[ \t]+)?)?([A-Za-z_][A-Za-z0-9_]*)\+?=([^\n]*)",
                         re.M)
# : "${EXP_NAME:=x}"
_DEFAULT = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*):?=([^\n]*)")
# EXP_NAME="${EXP_NAME:-x}"
_SELF_DEFAULT = re.compile(r"^[\"']?\$\{([A-Za-z_][A-Za-z0-9_]*):?-")
# source "${REPO_ROOT}/scripts/lib/site.env"
_SOURCE = re.compile(r"(?:^|;|&&|\|\||\bthen|\bdo)[ \t]*(?:source|\.)[ \t]+(\"[^\"\n]*\"|'[^'\n]*'|[^\s;&|#]+)", re.M)
_REFERENCE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")
# $(dirname "${BASH_SOURCE[0]}")
_OWN_FOLDER = re.compile(r"\$\(\s*dirname\s+[\"']?\$\{?BASH_SOURCE(?:\[0\])?\}?[\"']?\s*\)")
# What gives another value at every run: a date, a random number, a process id
_CHANGING = re.compile(
    r"\$\(\s*date\b|`\s*date\b|\$\{?S?RANDOM\b|\$\{?EPOCH(?:SECONDS|REALTIME)\b|\$\$|\$\{?BASHPID\b|\$\{?SECONDS\b"
    r"|\$\(\s*(?:uuidgen|mktemp|shuf)\b|/dev/u?random|openssl\s+rand|printf\s+['\"]%\([^)]*\)T|/random/uuid|uuid4|time\.time")
_MAX_DEPTH = 6
_MAX_BYTES = 1 << 20


class Sources(NamedTuple):
    """What the texts say. `files` is every file read, the config first; `unread` the words that name one in vain."""

    files: Tuple[str, ...]
    unread: Tuple[str, ...]
    set_names: Tuple[str, ...]
    changing: Tuple[str, ...]


def read_text(path: str) -> str:
    """A file's text, bad bytes replaced; OSError where it can't be read. Never more than 1 MiB."""
    with open(path, "rb") as file:
        return file.read(_MAX_BYTES).decode("utf-8", "replace")


def find_names(text: str) -> Set[str]:
    """The names that a config's text sets, comments aside."""
    bare = _drop_comments(text)
    return {match.group(1) for match in _ASSIGNMENT.finditer(bare)} | {m.group(1) for m in _DEFAULT.finditer(bare)}


def read_sources(config: str, templates: Iterable[str], environment: Dict[str, str], root: str,
                 inherited: Iterable[str]) -> Sources:
    """What config and templates set, and which of it changes at every run.

    `environment` (the runner's resolved one) fills in the variables in the path of a sourced file; `inherited` are the
    names that the caller's environment has already, whose defaults therefore do not apply.
    """
    files: List[str] = []
    unread: List[str] = []
    texts: List[str] = []
    for path in [config] + list(templates):
        _follow(path, environment, root, files, unread, texts, 0)
    names: List[str] = []
    pinned = set(inherited)
    changing: Set[str] = set()
    for text in texts:
        for name, value, is_default in _find_assignments(text):
            if name not in names:
                names.append(name)
            if is_default and name in pinned:
                continue
            pinned.add(name)
            changing.discard(name)  # the last word counts
            if _CHANGING.search(value) or any(word in changing for word in _REFERENCE.findall(value) if word != name):
                changing.add(name)
    return Sources(tuple(files), tuple(unread), tuple(sorted(names)), tuple(sorted(changing)))


def _drop_comments(text: str) -> str:
    return re.sub(r"(?m)(^|[ \t])#.*$", r"\1", text)


def _find_assignments(text: str) -> List[Tuple[str, str, bool]]:
    found = []
    bare = _drop_comments(text)
    for match in _ASSIGNMENT.finditer(bare):
        own = _SELF_DEFAULT.match(match.group(2))
        found.append((match.start(), match.group(1), match.group(2), bool(own and own.group(1) == match.group(1))))
    for match in _DEFAULT.finditer(bare):
        found.append((match.start(), match.group(1), match.group(2), True))
    return [(name, value, is_default) for _, name, value, is_default in sorted(found)]


def _follow(path: str, environment: Dict[str, str], root: str, files: List[str], unread: List[str],
            texts: List[str], depth: int) -> None:
    if path in files or depth > _MAX_DEPTH:
        return
    try:
        text = read_text(path)
    except OSError:
        unread.append(path)
        return
    files.append(path)
    for match in _SOURCE.finditer(_drop_comments(text)):
        word = match.group(1)
        target = _expand(word, os.path.dirname(path), environment)
        if not target:
            unread.append(word)
            continue
        target = os.path.normpath(os.path.join(root, target))
        if os.path.exists(target):  # one that is not there is one that the config tests for first
            _follow(target, environment, root, files, unread, texts, depth + 1)
    texts.append(text)


def _expand(word: str, folder: str, environment: Dict[str, str]) -> str:
    """The path that a word of `source` names, "" where only bash could tell."""
    if word[:1] == "'":
        return word.strip("'")
    word = _OWN_FOLDER.sub(lambda _: folder, word.strip('"'))

    def fill(match):  # type: ignore
        return environment.get(match.group(1), match.group(0))
    word = re.sub(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?", fill, word)
    return "" if "$" in word or "`" in word else word
