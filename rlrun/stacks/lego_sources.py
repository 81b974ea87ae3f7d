"""Lego-RL: what a config's text says before anything runs it: the names that it sets, the files that it reads in.

A config is bash, and only the runner may run it. What is read here is never shown as a value; it tells which of the
runner's resolved values belong to the config, and which differ at every run.
"""
import errno
import os
import re
import stat
from typing import Dict, Iterable, List, Match, NamedTuple, Optional, Set, Tuple

# where a command may begin: a line, after `;`, `&&`, `(`, `{`, `!`, `then`, …
_COMMAND = r"(?:^|[;()&|!]|(?<!\$)\{|\b(?:then|do|else|if|elif|while|until)\b)[ \t]*"
# export EXP_NAME=x
_ASSIGNMENT = re.compile(_COMMAND + r"(?:(?:export|declare|typeset|readonly|local)[ \t]+(?:-\w+[ \t]+)*)?"
                         r"([A-Za-z_][A-Za-z0-9_]*)\+?=", re.M)
# for f in a b
_LOOP = re.compile(_COMMAND + r"for[ \t]+([A-Za-z_][A-Za-z0-9_]*)\b", re.M)
#  B=y   (behind A=x)
_NEXT_ASSIGNMENT = re.compile(r"[ \t]+([A-Za-z_][A-Za-z0-9_]*)\+?=")
# : "${EXP_NAME:=x}"
_DEFAULT = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*):?=")
# EXP_NAME="${EXP_NAME:-x}"
_SELF_DEFAULT = re.compile(r"^[\"']?\$\{([A-Za-z_][A-Za-z0-9_]*):?-")
# source "${REPO_ROOT}/scripts/lib/site.env"
_SOURCE = re.compile(_COMMAND + r"(?:builtin[ \t]+)?(?:source|\.)[ \t]+(?:--[ \t]+)?", re.M)
_WORD_ENDS = " \t\n;&|)"
# 'a b'   "a $b"   a\ b
_PIECE = re.compile(r"'([^']*)'|\"((?:[^\"\\]|\\.)*)\"|((?:[^'\"\\]|\\.)+|['\"])")
# ${NAME}   ${NAME:-default}   $NAME
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::?-([^{}$`]*))?\}|\$([A-Za-z_][A-Za-z0-9_]*)")
_REFERENCE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")
# $(dirname "${BASH_SOURCE[0]}")
_OWN_FOLDER = re.compile(r"\$\(\s*dirname\s+[\"']?\$\{?BASH_SOURCE(?:\[0\])?\}?[\"']?\s*\)")
# $(cd /x/y && pwd)
_WHOLE_FOLDER = re.compile(r"\$\(\s*cd\s+[\"']?([^\"'$`()]+)[\"']?\s*&&\s*pwd(?:\s+-P)?\s*\)")
# What gives another value at every run: a date, a random number, a process id
_CHANGING = re.compile(
    r"(?:\$\(|`)\s*(?:\w+=\S*\s+|env\s+|command\s+|exec\s+)*(?:/\S*/)?date\b|\$\{?S?RANDOM\b|\$\{?EPOCH(?:SECONDS|REALTIME)\b|\$\$|\$\{?BASHPID\b|\$\{?SECONDS\b"
    r"|\$\(\s*(?:uuidgen|mktemp|shuf)\b|/dev/u?random|openssl\s+rand|printf\s+['\"]%\([^)]*\)T|/random/uuid|uuid4|time\.time")
_MAX_DEPTH = 6
_MAX_BYTES = 1 << 20


class Sources(NamedTuple):
    """What the texts say. `files` is every file that is read in, the config first, those that are not there (yet) too;
    `unread` the words that name one in vain."""

    files: Tuple[str, ...]
    unread: Tuple[str, ...]
    set_names: Tuple[str, ...]
    changing: Tuple[str, ...]


def read_text(path: str) -> str:
    """A file's text, bad bytes replaced; OSError where it can't be read. Never more than 1 MiB."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe or a terminal would be waited for
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
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
    known = dict(environment)
    for path in [config] + list(templates):
        _follow(path, known, root, files, unread, texts, 0)
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
    """Reads a file and what it sources. `texts` gets the pieces in the order in which bash would come to them."""
    if path in files or depth > _MAX_DEPTH:
        return
    try:
        text = read_text(path)
    except FileNotFoundError:
        files.append(path)  # one that the config tests for; should it come, that is a change
        return
    except OSError:
        unread.append(path)
        return
    files.append(path)
    bare = _drop_comments(text)
    moving = _find_moving(bare)
    done = 0
    for match in _SOURCE.finditer(bare):
        word = _read_word(bare, match.end(), _WORD_ENDS)
        texts.append(bare[done:match.start()])
        done = match.start()
        target = _expand(word, os.path.dirname(path), environment)
        if not target or moving & set(_REFERENCE.findall(word)):
            unread.append(word)
        if target:
            _follow(os.path.normpath(os.path.join(root, target)), environment, root, files, unread, texts, depth + 1)
    texts.append(bare[done:])


def _find_moving(bare: str) -> Set[str]:
    """The variables that have several values in the course of a text, of which the runner shows only the last."""
    seen: Set[str] = set()
    moving = set(_LOOP.findall(bare))
    for name, _, is_default in _find_assignments(bare):
        if name in seen and not is_default:
            moving.add(name)
        seen.add(name)
    return moving


def _expand(word: str, folder: str, environment: Dict[str, str]) -> str:
    """The path that a word of `source` names, "" where only bash could tell: quotes taken off piece by piece, `~` and the
    variables filled in that the runner showed."""
    word = _WHOLE_FOLDER.sub(r"\1", _OWN_FOLDER.sub(lambda _: folder, word))
    pieces: List[str] = []
    for match in _PIECE.finditer(word):
        single, double, plain = match.groups()
        if single is not None:
            pieces.append(single)
            continue
        text = _fill(double if double is not None else plain, environment)
        if "$" in text or "`" in text or (plain is not None and set("*?[]{}<>()\"'") & set(text)):
            return ""
        if plain is not None and not pieces and (text == "~" or text.startswith("~/")):
            text = environment.get("HOME", "~") + text[1:]
        pieces.append(text.replace("\\", ""))
    return "".join(pieces)


def _fill(text: str, environment: Dict[str, str]) -> str:
    def look_up(match: Match[str]) -> str:
        name, default = match.group(1) or match.group(3), match.group(2)
        return environment.get(name) or (match.group(0) if default is None else default)
    return _VARIABLE.sub(look_up, text)
