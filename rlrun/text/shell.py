"""Words for a shell and for a terminal: quoting, and making foreign text harmless. Runs nothing."""
import re
import shlex
from typing import Sequence

from .glyphs import escape_character

# Words that a shell would not take as a program's name though they need no quotes elsewhere.
_RESERVED = frozenset(
    "case coproc do done elif else esac fi for function if in select then time until while".split())

# \x1b[1;32m   \x1b[K   \x1b]0;title\x07   \x1b(B
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"
    r"|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)"
    r"|\x1b[()][0-9A-Za-z]"
    r"|\x1b[=>78c-oM]")

# C0, DEL and C1; what turns or hides text: bidi marks, zero-width signs, line separators, tags; undecodable bytes
_CONTROLS = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]")


def quote_words(argv: Sequence[str]) -> str:
    """Takes an argv; gives the line that makes any POSIX shell run just that. A newline in a word stays, in quotes."""
    words = [shlex.quote(word) for word in argv]
    # `A=b` in front would be an assignment, `time` a keyword.
    if words and words[0] == argv[0] and ("=" in argv[0] or argv[0] in _RESERVED):
        words[0] = "'%s'" % argv[0]
    return " ".join(words)


def quote_assignment(word: str) -> str:
    """`NAME=value` as it stands before a command, for any POSIX shell."""
    name, _, value = word.partition("=")
    return "%s=%s" % (name, shlex.quote(value))


def escape_controls(text: str, keep: str = "") -> str:
    """Takes text from another user's process or file; gives it with every control character shown as `\\x1b`, `\\r`, ….

    Characters in `keep` (say, a newline) are left. A backslash that was there stays as it is.
    """
    return _CONTROLS.sub(
        lambda found: found.group() if found.group() in keep else escape_character(found.group()), text)


def strip_colour(text: str) -> str:
    """Takes what a program wrote for a terminal; gives it without colour and other escape sequences."""
    return _ESCAPES.sub("", text) if "\x1b" in text else text
