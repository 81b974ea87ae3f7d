"""Texts as entries, each with a key where it has one: the lines of a config, the words of a command, the labels of a run
configuration; and which entries differ. Pure."""
import json
import re
from typing import Dict, List, NamedTuple, Optional, Tuple

# export TRAIN_BATCH="64"  # per step      lr = 1e-6
_KEYED = re.compile(r"""\s*(?:export\s+|declare\s+-x\s+)?(?P<key>[A-Za-z_][\w.-]*|"[^"\n]+"|'[^'\n]+')\s*\+?=(?P<value>.*)\Z""",
                    re.S)
# : "${TOY_STEPS:=6}"
_DEFAULTED = re.compile(r"""\s*:\s+"?\$\{(?P<key>[A-Za-z_]\w*):?=(?P<value>[^{}]*)\}"?\s*\Z""")
# [trainer.optim]   [[orchestrator.env]]
_SECTION = re.compile(r"\s*(\[{1,2}[^\[\]=]+\]{1,2})\s*(?:#.*)?\Z")
# A label of the block and its value; what belongs to it stands below, further in:   "  topology     1 nodes × 8 gpu"
_LABELLED = re.compile(r" {0,4}(\S+(?: \S+)*?) {2,}(\S.*)\Z")

Change = Tuple[str, Optional[str], Optional[str]]


class Entry(NamedTuple):
    """`text` as it stands, and the key that finds its like in another text, "" where it has none."""

    key: str
    text: str


def read_lines(text: str) -> List[Entry]:
    """The lines of a config that are not empty. A key is its `[section]`, a line end, and the name before the `=`."""
    entries = []
    section = ""
    for line in text.split("\n"):
        if not line.strip():
            continue
        heading = _SECTION.match(line)
        found = _DEFAULTED.match(line) or _KEYED.match(line)
        section = heading.group(1) if heading else section
        entries.append(Entry("%s\n%s" % (section, found.group("key")) if found and not heading else "", line))
    return entries


def read_value(text: str) -> str:
    """The bare value of `KEY="value"  # words`, of `--key value`, or the word itself."""
    found = _DEFAULTED.match(text) or _KEYED.match(text.lstrip("-"))
    value = (found.group("value") if found else text.partition(" ")[2] if text.startswith("-") else text).strip()
    if value.startswith(("'", '"')):
        return value[1:].partition(value[0])[0]
    return re.split(r"\s#", value)[0].strip()


def read_list(text: Optional[str]) -> Optional[List[str]]:
    """The words of a JSON list, None for anything else; none of no text."""
    try:
        words = json.loads(text) if text else []
    except (ValueError, RecursionError):
        return None
    return [str(word) for word in words] if isinstance(words, list) else None


def group_words(words: List[str]) -> List[Entry]:
    """The words of a command; an option and its value are one entry."""
    entries: List[Entry] = []
    for word in words:
        last = entries[-1] if entries else None
        if last and last.text == last.key and last.key.startswith("-") and not word.startswith("-"):
            entries[-1] = Entry(last.key, "%s %s" % (last.text, word))
        else:
            entries.append(Entry(word.partition("=")[0] if word.startswith("-") or "=" in word else "", word))
    return entries


def read_labels(text: str) -> List[Entry]:
    """A run configuration by its labels, each with all that stands below it, further in."""
    entries: List[Entry] = []
    for line in text.split("\n"):
        found = _LABELLED.match(line)
        if found:
            entries.append(Entry(found.group(1), found.group(2).strip()))
        elif line.startswith("     ") and entries and entries[-1].key:
            entries[-1] = Entry(entries[-1].key, "%s  %s" % (entries[-1].text, line.strip()))
        elif line.strip():
            entries.append(Entry("", line.strip()))
    return entries


def diff(old: List[Entry], new: List[Entry]) -> List[Change]:
    """(key, old text, new text) of the entries that differ: those with a key by key and place among their like, the others by
    being there. In time that grows with the number of entries: whoever writes a plan's file can't make this wait."""
    before, after = _count(old), _count(new)
    changes: List[Change] = []
    for place, entry in before.items():
        other = after.get(place)
        if other is None or other.text != entry.text:
            changes.append((entry.key, entry.text, None if other is None else other.text))
    changes += [(entry.key, None, entry.text) for place, entry in after.items() if place not in before]
    plain = [change for change in changes if not change[0]]
    if len(plain) == 2 and plain[0][2] is None and plain[1][1] is None:  # one is gone and one is new: that is one that changed
        return [change for change in changes if change[0]] + [("", plain[0][1], plain[1][2])]
    return changes


def _count(entries: List[Entry]) -> Dict[Tuple[str, str, int], Entry]:
    """The entries by what finds each in the other list: its key or, without one, its text, and its place among its like."""
    seen: Dict[Tuple[str, str], int] = {}
    found: Dict[Tuple[str, str, int], Entry] = {}
    for entry in entries:
        like = (entry.key, "" if entry.key else entry.text)
        seen[like] = seen.get(like, 0) + 1
        found[like + (seen[like],)] = entry
    return found
