"""Lego-RL: what a config's text says before anything runs it: the names that it sets, the files that it reads in.

A config is bash, and only the runner may run it. What is read here is never shown as a value; it tells which of the
runner's resolved values belong to the config, and which differ at every run.
"""
import os
import re
from typing import Dict, Iterable, List, Match, NamedTuple, Optional, Set, Tuple

# export EXP_NAME=x   (at the start of a line or of a command)
_ASSIGNMENT = re.compile(r"(?:^|[;()]|&&|\|\||(?<!\$)\{|\bthen\b|\bdo\b|\belse\b)[ \t]*"
                         r"(?:(?:export|declare|typeset|readonly|local)[ \t]+(?:-\w+[ \t]+)*)?([A-Za-z_][A-Za-z0-9_]*)\+?=", re.M)
#  B=y   (behind A=x)
_NEXT_ASSIGNMENT = re.compile(r"[ \t]+([A-Za-z_][A-Za-z0-9_]*)\+?=")
# : "${EXP_NAME:=x}"
_DEFAULT = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*):?=")
# EXP_NAME="${EXP_NAME:-x}"
_SELF_DEFAULT = re.compile(r"^[\"']?\$\{([A-Za-z_][A-Za-z0-9_]*):?-")
# source "${REPO_ROOT}/scripts/lib/site.env"
_SOURCE = re.compile(r"(?:^|;|&&|\|\||\bthen|\bdo)[ \t]*(?:source|\.)[ \t]+", re.M)
_WORD_ENDS = " \t\n;&|)"
_REFERENCE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")
# $(dirname "${BASH_SOURCE[0]}")
_OWN_FOLDER = re.compile(r"\$\(\s*dirname\s+[\"']?\$\{?BASH_SOURCE(?:\[0\])?\}?[\"']?\s*\)")
# $(cd /x/y && pwd)
_WHOLE_FOLDER = re.compile(r"\$\(\s*cd\s+[\"']?([^\"'$`()]+)[\"']?\s*&&\s*pwd(?:\s+-P)?\s*\)")
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
    return {name for name, _, _ in _find_assignments(bare)}


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
            is_changing = bool(_CHANGING.search(value)) or any(word in changing for word in _REFERENCE.findall(value))
            changing.discard(name)  # the last word counts
            if is_changing:
                changing.add(name)
    return Sources(tuple(files), tuple(unread), tuple(sorted(names)), tuple(sorted(changing)))


def _drop_comments(text: str) -> str:
    return re.sub(r"(?m)(^|[ \t])#.*$", r"\1", text)


def _find_assignments(text: str) -> List[Tuple[str, str, bool]]:
    """(name, value as it is written, whether that is only a default), in the order of the text."""
    found: List[Tuple[int, str, str, bool]] = []
    bare = _drop_comments(text)
    for first in _ASSIGNMENT.finditer(bare):
        match: Optional[Match[str]] = first
        while match:
            name, value = match.group(1), _read_word(bare, match.end(), _WORD_ENDS)
            own = _SELF_DEFAULT.match(value)
            found.append((match.start(1), name, value, bool(own and own.group(1) == name)))
            match = _NEXT_ASSIGNMENT.match(bare, match.end() + len(value))
    for default in _DEFAULT.finditer(bare):
        found.append((default.start(), default.group(1), _read_word(bare, default.end(), "}\n"), True))
    return [(name, value, is_default) for _, name, value, is_default in sorted(found)]


def _read_word(text: str, start: int, ends: str) -> str:
    """What stands from `start` to the first of `ends` that is neither quoted nor nested; to the end of the line at most."""
    closers: List[str] = []
    place = start
    while place < len(text) and text[place] != "\n":
        sign, closer = text[place], closers[-1] if closers else ""
        if sign == "\\" and closer != "'":
            place += 1
        elif closer and sign == closer:
            closers.pop()
        elif closer == "'":
            pass
        elif text[place:place + 2] in ("$(", "${"):
            closers.append(")" if text[place + 1] == "(" else "}")
            place += 1
        elif sign in "\"`" or (sign == "'" and closer != '"'):
            closers.append(sign)
        elif sign == "(" and (place == start or closer == ")"):
            closers.append(")")
        elif not closers and sign in ends:
            break
        place += 1
    return text[start:place]


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
    bare = _drop_comments(text)
    for match in _SOURCE.finditer(bare):
        word = _read_word(bare, match.end(), _WORD_ENDS)
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
    word = re.sub(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?", fill, _WHOLE_FOLDER.sub(r"\1", word))
    return "" if "$" in word or "`" in word else word
