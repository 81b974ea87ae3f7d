"""What moved between two plans, field by field, as people know the fields: a line of a config, a variable, a word of the
command. Compares what is free of secrets already; a field with a secret's name gives no value here. Reads nothing."""
import os
import re
from typing import Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from ..text.entries import Entry, diff, group_words, read_labels, read_lines, read_list, read_value
from ..text.redact import MARK, is_secret_name
from ..text.shell import escape_controls

FILE_LINES = 12  # of one file, in words
_ALL_LINES = 40
_MANY_CHARACTERS = 160
_COMMANDS = ("overrides", "argv", "launch command", "block")  # the block is text, the others lists of words
_FIRST = ("kind", "root", "gpus")
_BATCH = ("Slurm options", "batch script")
_LAST = ("commit", "dirty files", "deleted paths")

_HASH = re.compile(r"(?:sha256:)?[0-9a-f]{16,64}\Z")
_DARK = "sha256:"  # as digest.hash_text begins
_COMMIT = re.compile(r"[0-9a-f]{40,64}\Z")


class Content(NamedTuple):
    """A plan as it can be compared: the digest's parts, the texts of its files by path, and the modified files with a hash of
    each, "" where none is known; None where not even their names are."""

    parts: Dict[str, str]
    texts: Dict[str, str]
    dirty: Optional[Dict[str, str]]


class Move(NamedTuple):
    """One field that moved. `change` is "changed", "new" or "gone"; a value that is None is not to be shown, or is not there.
    `group`: the file whose line it is."""

    field: str
    old: Optional[str]
    new: Optional[str]
    change: str
    words: str
    group: str = ""


def compare(old: Content, new: Content) -> Tuple[Move, ...]:
    """All that moved, the files first. What only repeats a file's line or a variable (the block, the command) is left out:
    one move is told once."""
    root = new.parts.get("root", "")
    old = _follow_root(old, root)
    names = [name for name in sorted(set(old.parts) | set(new.parts)) if old.parts.get(name) != new.parts.get(name)]
    files = [name[5:] for name in names if name.startswith("file ")]
    variables = [name for name in names if name.startswith("environment ")]
    commands = [name for name in _COMMANDS if name in names]

    def compare_values(which: Sequence[str]) -> List[Move]:
        return [_compare_value(name, old.parts.get(name), new.parts.get(name)) for name in which if name in names]
    found = compare_values(_FIRST)
    told: Set[Tuple[str, str, str]] = set()  # key, old and new value
    for path in files:
        found += _compare_file(path, root, old, new, told)
    for name in variables:
        found += _compare_variable(name, old.parts.get(name), new.parts.get(name), told)
    dark = [name for name in commands if _is_dark(old.parts.get(name)) or _is_dark(new.parts.get(name))]
    found += _compare_commands([name for name in commands if name not in dark], old, new,
                               {(before, after) for _, before, after in told})
    if "overrides" in dark:
        found.append(_hide("overrides"))
    elif dark and not found:  # else that is what changed it
        found.append(_hide(dark[-1])._replace(words="the run configuration changed"))
    found += [move for name in _BATCH if name in names for move in _compare_batch(name, old.parts.get(name), new.parts.get(name))]
    found += compare_values([name for name in names if name not in _FIRST + _COMMANDS + _LAST + _BATCH + tuple(variables)
                             and not name.startswith("file ")])
    found += compare_values(("commit",))
    if "dirty files" in names:
        found += _compare_dirty(old.dirty, new.dirty, set(files), root, "commit" in names)
    if "deleted paths" in names:
        before, after = [side.parts.get("deleted paths") for side in (old, new)]
        is_dark = _is_dark(before) or _is_dark(after)
        found += [_hide("deleted paths")] if is_dark else _compare_lists("deleted paths", before or "", after or "")
    return tuple(found) or _compare_secrets(old, new)


def describe(moves: Sequence[Move]) -> List[str]:
    """The moves as lines, twelve at most of one file."""
    lines: List[str] = []
    counts: Dict[str, int] = {}
    for move in moves:
        counts[move.group] = counts.get(move.group, 0) + 1
        if not move.group or counts[move.group] <= FILE_LINES:
            lines.append(move.words)
        elif counts[move.group] == FILE_LINES + 1:
            more = sum(1 for one in moves if one.group == move.group) - FILE_LINES
            lines.append("%s: … and %d more" % (escape_controls(move.group), more))
    if len(lines) > _ALL_LINES:
        lines[_ALL_LINES:] = ["… and %d more (--json has them all)" % (len(lines) - _ALL_LINES)]
    return lines


def shape(moves: Sequence[Move]) -> List[Dict[str, Optional[str]]]:
    """The same for `--json`."""
    return [{"field": move.field, "old": move.old, "new": move.new, "change": move.change} for move in moves]


def _follow_root(old: Content, root: str) -> Content:
    """A checkout that was copied elsewhere: its paths moved with it, and that is one move."""
    before = old.parts.get("root", "")
    if len(before) < 2 or not root or before == root:
        return old
    place = re.compile(re.escape(before) + r"(?![\w.-])")

    def follow(text: str) -> str:
        return place.sub(lambda _: root, text)
    parts = {follow(name): text if name == "root" else follow(text) for name, text in old.parts.items()}
    return old._replace(parts=parts, texts={follow(path): text for path, text in old.texts.items()})


def _make_move(field: str, old: Optional[str], new: Optional[str], group: str = "", label: str = "") -> Move:
    """A move with its sentence. `group`: of a file, whose line is shown as it is."""
    change = "new" if old is None else "gone" if new is None else "changed"
    label = escape_controls(label or field)
    before, after = _shorten(old or "", new or "")
    if change == "changed":
        words = "%s%s: %s → %s" % (label, "" if group else " changed", before, after)
    elif group:
        words = "%s: %s line %s" % (label, "a new" if change == "new" else "without the", after if change == "new" else before)
    else:
        words = "%s is %s: %s" % (label, change, after if change == "new" else before)
    return Move(field, old, new, change, words, group)


def _hide(field: str, change: str = "changed", note: str = "", group: str = "") -> Move:
    words = {"changed": "%s changed", "new": "%s is new", "gone": "%s is gone"}[change] % escape_controls(field)
    return Move(field, None, None, change, words + note, group)


def _shorten(old: str, new: str) -> Tuple[str, str]:
    """Both as they are shown: of long ones the part where they differ."""
    cut = 0
    if max(len(old), len(new)) > _MANY_CHARACTERS:
        same = len(os.path.commonprefix([old, new]))
        cut = max(0, same - 30) if old and new else 0
    return _show(old, cut), _show(new, cut)


def _show(text: str, cut: int) -> str:
    text = ("…" if cut else "") + text[cut:cut + _MANY_CHARACTERS] + ("…" if len(text) > cut + _MANY_CHARACTERS else "")
    return escape_controls(text) if text.strip() else "(empty)"


def _is_dark(text: Optional[str]) -> bool:
    """Is of this part nothing known but a hash of it, as a record keeps a long one, or not even that?"""
    return text is None or text.startswith(_DARK)


def _change(old: Optional[str], new: Optional[str]) -> str:
    return "new" if old is None else "gone" if new is None else "changed"


def _compare_value(name: str, old: Optional[str], new: Optional[str]) -> Move:
    if name == "commit" and not any(value and value.startswith(_DARK) for value in (old, new)):
        old, new = [value and (value[:12] if _COMMIT.match(value) else value) for value in (old, new)]
    elif any(value and _HASH.match(value) for value in (old, new)):
        return _hide(name, _change(old, new))
    return _make_move(name, old, new)


def _compare_variable(name: str, old: Optional[str], new: Optional[str], told: Set[Tuple[str, str, str]]) -> List[Move]:
    """A variable; nothing where a file's line has told the same. Adds it to `told`."""
    if is_secret_name(name[12:]):  # only whether it is set is in the digest
        is_switched = {old, new} == {"set", "empty"}
        return [_hide(name, _change(old, new), ": it was %s, and is %s now" % (old, new) if is_switched else "")]
    said = (name[12:], old or "", new or "")
    if old is None or new is None or said not in told:
        told.add(said)
        return [_compare_value(name, old, new)]
    return []


def _compare_file(path: str, root: str, old: Content, new: Content, told: Set[Tuple[str, str, str]]) -> List[Move]:
    """The lines of one file. Adds to `told` what its `KEY=value` lines say, as (key, old, new)."""
    shown = path[len(root) + 1:] if root and path.startswith(root + "/") else path
    before, after = [side.parts.get("file " + path) for side in (old, new)]
    if before is None or after is None or after in ("absent", "unreadable"):
        return [_hide("file " + shown, _change(before, after), ": it is %s now" % after if before and after else "", shown)]
    if path not in old.texts or path not in new.texts:
        return [_hide("file " + shown, group=shown)]
    if old.texts[path] == new.texts[path]:
        return [_hide(shown, note=" in a secret value", group=shown)]
    moves = []
    for key, was, now in diff(read_lines(old.texts[path]), read_lines(new.texts[path])):
        section, _, name = key.rpartition("\n")
        field = " ".join(word for word in (shown, section) if word)
        if is_secret_name(name.strip("\"'")):
            moves.append(_hide("%s: %s" % (field, name), _change(was, now), group=shown))
            continue
        if name and was is not None and now is not None:
            told.add((name, read_value(was), read_value(now)))
        if was is not None and now is not None and was.split() == now.split():
            moves.append(_hide("%s: the white space of %s" % (field, was.strip()[:80] or "a line"), group=shown))
        else:
            moves.append(_make_move(field, was and (was.strip() or was), now and (now.strip(" \t") or now), shown))
    return moves or [_hide(shown, note=": its lines are in another order, or end in another way", group=shown)]


def _compare_commands(names: Sequence[str], old: Content, new: Content, pairs: Set[Tuple[str, str]]) -> List[Move]:
    """What was asked for and what it resolved to, each without what only repeats an earlier change of a value (`pairs`)."""
    found: List[Move] = []
    for name in names:
        compare_one = _compare_block if name == "block" else _compare_words
        said = {(move.old, move.new) for move in found if move.field == "overrides"}
        moves = [move for move in compare_one(name, old.parts.get(name), new.parts.get(name))
                 if (move.old, move.new) not in said and not _is_told(move, pairs)]
        if name == "overrides":
            pairs = pairs | {(read_value(move.old), read_value(move.new)) for move in moves if move.old and move.new}
        found += moves
    return found


def _compare_words(name: str, old: Optional[str], new: Optional[str]) -> List[Move]:
    """A command by its words; an option and its value are one."""
    before, after = read_list(old), read_list(new)
    if before is None or after is None:
        return [_compare_value(name, old, new)]
    moves = [_hide("%s: %s" % (name, key), _change(was, now)) if is_secret_name(key) else _make_move(name, was, now)
             for key, was, now in diff(group_words(before), group_words(after))]
    return moves or [_hide(name, note=": its words are in another order")]


def _compare_block(name: str, old: Optional[str], new: Optional[str]) -> List[Move]:
    """The run configuration by its labels."""
    moves = [_make_move("%s: %s" % (name, key) if key else name, was, now)
             for key, was, now in diff(read_labels(old or ""), read_labels(new or ""))
             if key or re.search(r"\w", (was or "") + (now or ""))]  # a ruled line says nothing
    return moves or [_hide(name)]


def _compare_batch(name: str, old: Optional[str], new: Optional[str]) -> List[Move]:
    """What a job asks of Slurm, option by option, and its script line by line, without the lines that ask for it again."""
    if _is_dark(old) or _is_dark(new):
        return [_hide(name, _change(old, new))] if old is None or new is None or name == _BATCH[1] else []
    sides = [[Entry("", word) for word in re.split(r"  |\n", side or "") if word and not word.startswith("#")]
             for side in (old, new)]
    return [_make_move("Slurm option" if name == _BATCH[0] else name, was, now) for _, was, now in diff(*sides)]


def _is_told(move: Move, pairs: Set[Tuple[str, str]]) -> bool:
    """Does a move say nothing but what was told: does it differ as a whole, or each word of it that does, by just that?"""
    if move.old is None or move.new is None:
        return False

    def is_same(was: str, now: str) -> bool:
        return was == now or any(_replace_value(was, before, after) == now for before, after in pairs)
    words, others = move.old.split(), move.new.split()
    return is_same(move.old, move.new) or len(words) == len(others) and all(map(is_same, words, others))


def _replace_value(word: str, before: str, after: str) -> str:
    if not before or before not in word:
        return word
    return re.sub(r"(?<![\w.])%s(?![\w.])" % re.escape(before), lambda _: after, word)


def _compare_dirty(old: Optional[Dict[str, str]], new: Optional[Dict[str, str]], told: Set[str], root: str,
                   is_other_commit: bool) -> List[Move]:
    """The modified files, without those whose lines were told."""
    if old is None or new is None:
        return [_hide("modified files")]
    names = sorted(set(old) | set(new))
    rest = [name for name in names if os.path.join(root, name) not in told]
    moves = [_hide("modified file " + name, "new") for name in rest if name not in old]
    moves += [_hide("modified file " + name, "gone", " (it is not modified any more)") for name in rest if name not in new]
    both = [name for name in rest if name in old and name in new]
    moves += [_hide("modified file " + name) for name in both if old[name] and new[name] and old[name] != new[name]]
    if moves or len(rest) < len(names):
        return moves
    unknown = [name for name in both if not (old[name] and new[name])]
    if unknown:
        return [_hide("modified files", note=" in one or more of: %s" % escape_controls(" ".join(unknown[:12])))]
    return [] if is_other_commit else [_hide("modified files", note=" in their mode or their state")]


def _compare_lists(name: str, old: str, new: str) -> List[Move]:
    return [_make_move(name, was, now) for _, was, now in
            diff([Entry("", word) for word in old.split()], [Entry("", word) for word in new.split()])] or [_hide(name)]


def _compare_secrets(old: Content, new: Content) -> Tuple[Move, ...]:
    """Nothing that is kept differs: then it is a value that is not kept."""
    names = [name for name in _COMMANDS if MARK in old.parts.get(name, "") and MARK in new.parts.get(name, "")]
    names += sorted(name for name in new.parts if name.startswith("environment ") and MARK in new.parts[name])
    return (_hide(names[0], note=" in a secret value"),) if names else ()
