"""Lists of hosts as Slurm writes them: `n[001-512]`, `a[1-3,7],b`, `r[1-2]n[01-16]`. Text in, names out and back; asks nobody.

Expanding keeps zeros, order and repetitions, as `scontrol show hostnames` does; a suffix behind the brackets, which Slurm 22.05
refuses, is taken too. Folding does what `scontrol show hostlist` does: only neighbours in the list become a range.
"""
import itertools
import re
from typing import List, Sequence, Tuple

MAX_HOSTS = 1 << 16  # Slurm's own limit of a range (MAX_RANGE in its hostlist.c)
_MAX_DIGITS = 18
# n1   gpu-003.cluster.example   10.0.0.5
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?\Z")
# fd00::5
_IPV6 = re.compile(r"[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*\Z")
# n   [001-512,7]   -ib
_PIECE = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
# 7   001-512
_RANGE = re.compile(r"([0-9]{1,%d})(?:-([0-9]{1,%d}))?\Z" % (_MAX_DIGITS, _MAX_DIGITS))
# r1n and 07 of r1n07
_NUMBERED = re.compile(r"(.*?)([0-9]{1,%d})\Z" % _MAX_DIGITS, re.S)
# slots=8, as MPI's files of hosts have it behind a name
_SETTING = re.compile(r"[A-Za-z_-]+=\S*\Z")


def expand(text: str) -> Tuple[str, ...]:
    """The hosts of a list, in its order. ValueError in words where it is none, or has more than 65,536."""
    found: List[str] = []
    for word in _split(text):
        found += _expand_word(word, MAX_HOSTS - len(found))
    return tuple(found)


def parse_file(text: str) -> Tuple[str, ...]:
    """The hosts of a file: a host or a list a line, `#` begins a comment, and words such as MPI's `slots=8` tell no host.
    ValueError names the line."""
    found: List[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = [word for word in line.partition("#")[0].split() if not _SETTING.match(word)]
        try:
            found += expand(" ".join(words))
            if len(found) > MAX_HOSTS:
                raise ValueError("more than %d hosts" % MAX_HOSTS)
        except ValueError as error:
            raise ValueError("line %d: %s" % (number, error))
    return tuple(found)


def fold(hosts: Sequence[str]) -> str:
    """The list that means these hosts in this order, as short as Slurm makes it: `n[01-03,07],b`."""
    return ",".join(_fold(hosts))


def fold_for_people(hosts: Sequence[str]) -> str:
    """The same, and shorter where all end with one domain: `n[01-03].x.example`, which `expand` takes, and Slurm does not."""
    domain = "." + hosts[0].partition(".")[2] if hosts else "."
    if domain == "." or not re.search("[A-Za-z]", domain) or not all(host.endswith(domain) for host in hosts):
        return fold(hosts)
    return ",".join(one + domain for one in _fold([host[:-len(domain)] for host in hosts]))


def _fold(hosts: Sequence[str]) -> List[str]:
    groups: List[Tuple[str, List[List[str]]]] = []  # a prefix and its ranges, each [low] or [low, high]; or a name and none
    for host in hosts:
        match = _NUMBERED.match(host)
        if not match or ":" in host:
            groups.append((host, []))
            continue
        prefix, digits = match.groups()
        if not groups or groups[-1][0] != prefix or not groups[-1][1]:
            groups.append((prefix, [[digits]]))
            continue
        last = groups[-1][1][-1]
        if _follows(last, digits):
            last[1:] = [digits]
        else:
            groups[-1][1].append([digits])
    return [_write(prefix, ranges) for prefix, ranges in groups]


def _follows(last: List[str], digits: str) -> bool:
    """Is `digits` what comes after a range? Its zeros are those of the range's first number."""
    return "%0*d" % (len(last[0]), int(last[-1]) + 1) == digits


def _write(prefix: str, ranges: List[List[str]]) -> str:
    if not ranges:
        return prefix
    if len(ranges) == 1 and len(ranges[0]) == 1:
        return prefix + ranges[0][0]
    return "%s[%s]" % (prefix, ",".join("-".join(one) for one in ranges))


def _split(text: str) -> List[str]:
    """The words of a list: at commas and blanks, but for those within brackets."""
    words, word, depth = [], "", 0
    for letter in text:
        depth += {"[": 1, "]": -1}.get(letter, 0)
        if depth not in (0, 1):
            raise ValueError("brackets that don't match in %r" % _shorten(text))
        if depth == 0 and (letter == "," or letter.isspace()):
            words.append(word)
            word = ""
        else:
            word += letter
    if depth:
        raise ValueError("a bracket that is not closed in %r" % _shorten(text))
    return [one for one in words + [word] if one]


def _expand_word(word: str, limit: int) -> List[str]:
    parts: List[List[str]] = []
    count = 1
    for match in _PIECE.finditer(word):
        numbers = match.group(1) is not None
        parts.append(_expand_ranges(match.group(1), word) if numbers else [match.group(2)])
        count *= len(parts[-1])
        if count > limit:
            raise ValueError("more than %d hosts in %r" % (MAX_HOSTS, _shorten(word)))
    hosts = ["".join(one) for one in itertools.product(*parts)]
    # All of them are made of the same letters: one tells for all.
    if not _NAME.match(hosts[0]) and not _IPV6.match(hosts[0]):
        raise ValueError("%r is no host's name" % _shorten(hosts[0]))
    return hosts


def _expand_ranges(text: str, word: str) -> List[str]:
    found: List[str] = []
    for one in text.split(","):
        match = _RANGE.match(one)
        if not match:
            raise ValueError("%r is no range of numbers in %r" % (_shorten(one), _shorten(word)))
        low, high = int(match.group(1)), int(match.group(2) or match.group(1))
        if high < low:
            raise ValueError("the range %s runs backwards in %r" % (one, _shorten(word)))
        if high - low >= MAX_HOSTS - len(found):
            raise ValueError("more than %d hosts in %r" % (MAX_HOSTS, _shorten(word)))
        found += ["%0*d" % (len(match.group(1)), number) for number in range(low, high + 1)]
    return found


def _shorten(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."
