"""The processes above this one, nearest first, read from /proc one by one: a whole table would cost more. Judges nothing."""
import posixpath
import re
from typing import List, NamedTuple, Optional, Set, Tuple

from .memory import read_text

_MOST = 64  # the table may change below us; a circle must not hold us
_INTERPRETER = re.compile(r"(python[\d.]*|node|nodejs|bun|java|perl|ruby|sh|bash|dash|ash|zsh|ksh)\Z")


class Ancestor(NamedTuple):
    """One process; the first of a chain is this one itself. What could not be read is 0 or empty."""

    pid: int
    ppid: int
    sid: int
    tty: int  # the number of its terminal, 0 for none
    comm: str
    argv: Tuple[str, ...]


def read_ancestors(proc_root: str = "/proc") -> Tuple[Ancestor, ...]:
    """This process and those above it, up to the one whose parent is outside of the table (ppid 0), or as far as it shows."""
    found: List[Ancestor] = []
    seen: Set[int] = set()
    name = "self"
    while len(found) < _MOST:
        one = read_ancestor(name, proc_root)
        if not one or one.pid in seen:
            break
        seen.add(one.pid)
        found.append(one)
        name = str(one.ppid)
    return tuple(found)


def read_ancestor(name: str, proc_root: str = "/proc") -> Optional[Ancestor]:
    """One row, by pid or "self"; None where it can't be read. A zombie has one too, with an empty command line."""
    # 4711 (a) b) S 1 4711 4711 34816 …
    head, closing, rest = read_text("%s/%s/stat" % (proc_root, name)).rpartition(")")
    pid, _, comm = head.partition(" (")
    fields = rest.split()
    if not closing or len(fields) < 5 or not pid.isdecimal() or not fields[1].isdecimal():
        return None
    text = read_text("%s/%s/cmdline" % (proc_root, name)).rstrip("\0")
    argv = tuple(text.split("\0")) if "\0" in text else tuple(text.split())  # one string: a title that it gave itself
    return Ancestor(int(pid), int(fields[1]), int(fields[3]), int(fields[4]), comm, argv)


def name_program(one: Ancestor) -> str:
    """What runs: the program's own name, without folder and a login shell's dash; of an interpreter the script or module.

    Samples: `tmux`, `sshd:` (a title), `jupyter-lab` for `python3 /usr/bin/jupyter-lab`, `bash` for `-bash`.
    """
    script = find_script(one)
    return posixpath.basename(script or (one.argv[0] if one.argv else one.comm)).lstrip("-")


def find_script(one: Ancestor) -> str:
    """The script's path, or the module of `-m`, that an interpreter runs; "" where it is none, or runs words (`-c`)."""
    words = list(one.argv)
    if not words or not _INTERPRETER.match(posixpath.basename(words.pop(0)).lstrip("-")):
        return ""
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word == "-m" and words:
            return words[0]
        if not word.startswith("--") and word[-1] in "ce":  # bash -lc WORDS, perl -e WORDS
            return ""
    return words[0] if words else ""
