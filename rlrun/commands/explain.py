"""`rlrun explain`: what a check or an exit code means, why it matters, what to do. The words are in rlrun/explain.txt."""
import argparse
import json
import pkgutil
from typing import Any, Dict, List, NamedTuple, Tuple

from ..errors import OK, USAGE, OperatorError
from ..text import terminal as term
from ..text.report import ROWS

_PARAGRAPHS = ("means", "matters", "do")
_GROUPS = (("blocks", "Blocking: a launch is refused"), ("advisory", "Advisory: told before the yes"),
           ("pass", "Passed"), ("fact", "Facts that only `rlrun probe` tells"), ("health", "Signs that `rlrun status` knows"),
           ("gate", "Gates of the first step (`rlrun gate`)"), ("exit", "Exit codes"))
_WIDTH = 100


class Entry(NamedTuple):
    """One explanation; `matters` and `do` are empty where there is nothing to say. Paragraphs keep their lines."""

    name: str
    status: str
    means: Tuple[str, ...]
    matters: Tuple[str, ...]
    do: Tuple[str, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `explain`."""
    parser.add_argument("name", nargs="?", default="", metavar="NAME", help="a check (gpu:foreign), a group (gpu) or an exit "
                                                                           "code (3); without it, the list")


def run(options: Any, terminal: term.Terminal, overrides: Tuple[str, ...]) -> int:
    """Prints one explanation, those of a group, or the list. Exit 2 for a name that is none."""
    entries = read_entries()
    if not options.name:
        _print(terminal, {"names": [entry.name for entry in entries]}, _render_list(entries, terminal))
        return OK
    found = find_entries(entries, options.name)
    if not found:
        raise OperatorError("no check and no exit code is called %r" % options.name, _suggest(entries, options.name),
                            USAGE, "name")
    shape = _shape(found[0])
    if len(found) > 1:
        shape = {"name": options.name, "names": [entry.name for entry in found], "entries": list(map(_shape, found))}
    _print(terminal, shape, "\n\n".join(_render(entry, terminal) for entry in found))
    return OK


def read_entries() -> List[Entry]:
    """All explanations, in the order of the file."""
    return parse_entries((pkgutil.get_data("rlrun", "explain.txt") or b"").decode("utf-8"))


def parse_entries(text: str) -> List[Entry]:
    """Takes the file's text. Raises ValueError with the line for what is no part of a block."""
    blocks: List[Tuple[str, str, Dict[str, List[str]]]] = []
    label = ""
    for number, line in enumerate(text.splitlines(), 1):
        first, _, rest = line.partition(" ")
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith("["):  # [gpu:foreign] blocks
            blocks.append((first.strip("[]"), rest, {name: [] for name in _PARAGRAPHS}))
            label = ""
            continue
        if first.endswith(":") and first[:-1] in _PARAGRAPHS:  # means: A GPU that …
            label = first[:-1]
        elif first or not label:
            raise ValueError("explain.txt line %d is neither a paragraph nor its continuation" % number)
        if not blocks:
            raise ValueError("explain.txt line %d is in no block" % number)
        blocks[-1][2][label].append(rest.strip())
    return [Entry(name, status, *(tuple(lines[label]) for label in _PARAGRAPHS)) for name, status, lines in blocks]


def find_entries(entries: List[Entry], word: str) -> List[Entry]:
    """The explanations that a word means: an exit code, a check, a check with a port, path or module of its own, or a
    group; by its name or by the label of its row in a report."""
    wanted = word.strip().rstrip(":").lower()
    topic, colon, rest = wanted.partition(":")
    wanted = {row: name for name, row in ROWS.items()}.get(topic, topic) + colon + rest
    if wanted.isdecimal():
        wanted = "exit:%s" % (wanted.lstrip("0") or "0")
    exact = [entry for entry in entries if entry.name.lower() == wanted]
    group = [entry for entry in entries if entry.name.lower().startswith(wanted + ":")]
    if exact or group:
        return exact + group
    topic, _, rest = wanted.partition(":")
    stand_in = "N" if rest.isdecimal() else "PATH" if rest.startswith("/") else "MODULE" if rest else ""
    return [entry for entry in entries if stand_in and entry.name == "%s:%s" % (topic, stand_in)]


def _suggest(entries: List[Entry], word: str) -> str:
    import difflib
    names = [entry.name for entry in entries]
    wanted = word.strip().lower()
    close = difflib.get_close_matches(wanted, names, 3, 0.6)
    close += [name for name in names if wanted and wanted in name and name not in close][:3]
    by_tail = {name.partition(":")[2]: name for name in names}
    close += [by_tail[tail] for tail in difflib.get_close_matches(wanted.rpartition(":")[2], list(by_tail), 2, 0.7)
              if tail and by_tail[tail] not in close]
    return "Did you mean: %s?" % ", ".join(close) if close else "`rlrun explain` lists all names."


def _print(terminal: term.Terminal, shape: Dict[str, Any], text: str) -> None:
    if terminal.is_json:
        text = json.dumps(dict(shape, schema=1, command="explain"), sort_keys=True)
    term.print_result(terminal, text)


def _shape(entry: Entry) -> Dict[str, Any]:
    return {"name": entry.name, "status": entry.status, "means": " ".join(entry.means),
            "matters": " ".join(entry.matters) or None, "do": " ".join(entry.do) or None}


def _render(entry: Entry, terminal: term.Terminal) -> str:
    lines = ["%s — %s" % (term.paint(terminal, entry.name, "bold"), _describe_status(entry.status))]
    for label in _PARAGRAPHS:
        for number, line in enumerate(getattr(entry, label)):
            lines.append("  %-9s%s" % (label if number == 0 else "", line))
    return "\n".join(lines)


def _describe_status(status: str) -> str:
    words = {"fact": "a fact of `rlrun probe`", "exit": "an exit code", "pass": "passed", "gate": "a gate of the first step",
             "health": "a sign that `rlrun status` knows"}
    return words.get(status, status)


def _render_list(entries: List[Entry], terminal: term.Terminal) -> str:
    lines: List[str] = []
    for status, title in _GROUPS:
        members = [entry for entry in entries if entry.status == status]
        lines.append(term.paint(terminal, title, "bold"))
        if status == "exit":
            lines += ["  %-9s%s" % (entry.name.partition(":")[2] if number == 0 else "", line)
                      for entry in members for number, line in enumerate(entry.means)]
        else:
            lines += _fill([entry.name for entry in members])
        lines.append("")
    return "\n".join(lines + ["`rlrun explain NAME` explains one of them, `rlrun explain gpu` all of a group."])


def _fill(words: List[str]) -> List[str]:
    lines = [""]
    for word in words:
        if len(lines[-1]) + len(word) + 2 > _WIDTH:
            lines.append("")
        lines[-1] += "  " + word
    return lines
