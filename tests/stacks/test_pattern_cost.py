"""What a log may hold to make a pattern go back and forth over it: near misses of each, repeated. The patterns are taken from the
stacks' tables, so a new one is tried too."""
import re
import warnings

import pytest
from text.made_costs import assert_linear

from rlrun.stacks import STACKS, load_health

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    try:
        from re import _parser as sre_parse  # Python 3.11 and newer
    except ImportError:
        import sre_parse


def list_patterns():
    found = {}
    for stack in STACKS:
        health = load_health(stack)
        tables = {"stages": [one for one, _ in health.STAGES], "finished": health.FINISHED, "progress": health.PROGRESS,
                  "stopped": [one for one, _ in health.STOPPED],
                  "lines": [rule.key.encode() for one in health.SIGNATURES + health.GATES for rule in one.rules
                            if rule.test == "lines"]}
        for name, patterns in tables.items():
            for number, pattern in enumerate(patterns):
                found["%s %s %d" % (stack, name, number)] = pattern
    return found


PATTERNS = list_patterns()


def pick_character(of):
    """One character of a set, a letter or a digit where it has one."""
    def is_in(character):
        place, negate = ord(character), False
        has = False
        for code, value in of:
            name = str(code)
            negate = negate or name == "NEGATE"
            has = has or (name == "LITERAL" and value == place) or (name == "RANGE" and value[0] <= place <= value[1]) or (
                name == "CATEGORY" and bool(re.match({"CATEGORY_DIGIT": r"\d", "CATEGORY_SPACE": r"\s", "CATEGORY_WORD": r"\w",
                                                     "CATEGORY_NOT_SPACE": r"\S", "CATEGORY_NOT_DIGIT": r"\D"}[str(value)],
                                                    character)))
        return has != negate
    return next(one for one in "a1T -./,:[|\x1b" + "".join(map(chr, range(32, 127))) if is_in(one))


def make_samples(parsed):
    """Texts that a pattern matches, each as the pieces that its repeats make; of repeats few and more, of branches each."""
    samples = [[""]]
    for code, value in parsed:
        name = str(code)
        if name in ("LITERAL", "NOT_LITERAL"):
            options = [[chr(value) if name == "LITERAL" else "a"]]
        elif name in ("ANY", "IN"):
            options = [["a" if name == "ANY" else pick_character(value)]]
        elif name == "BRANCH":
            options = [one for branch in value[1] for one in make_samples(branch)[:3]]
        elif name == "SUBPATTERN":
            options = make_samples(value[-1])
        elif name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            least, most, inner = value
            inner_sample = make_samples(inner)[0]
            options = [["\0"] + inner_sample * max(least, min(most, 2)) + ["\0"]]  # marks where one may cut
        elif name == "GROUPREF":
            options = [["1"]]
        elif name in ("AT", "ASSERT", "ASSERT_NOT"):
            continue
        else:
            raise AssertionError("a part of a pattern that this test does not know: %s" % name)
        samples = [sample + option for sample in samples for option in options][:16]
    return samples


def list_near_misses(pattern):
    """Beginnings of what it matches, cut at each of its repeats and before its last character."""
    found = set()
    for sample in make_samples(sre_parse.parse(pattern.decode("utf-8"))):
        text = "".join(sample)
        whole = text.replace("\0", "")
        found.update({whole[:-1], whole[:-1] + "\n", whole})
        found.update(text[:place].replace("\0", "") for place in [one.start() for one in re.finditer("\0", text)])
    return sorted(one for one in found if one.strip())


@pytest.mark.parametrize("name", sorted(PATTERNS))
def test_no_log_makes_a_pattern_linger(name):
    pattern = re.compile(PATTERNS[name], re.M if "finished" in name else 0)

    def run(data):
        for _ in pattern.finditer(data):
            pass
    pieces = [one.encode("utf-8") for one in list_near_misses(PATTERNS[name])]
    assert pieces
    for piece in pieces[:12]:
        assert_linear(run, lambda size, piece=piece: (piece * (size // len(piece) + 1))[:size])
        # Once its beginning, and then what a repeat may go on with.
        assert_linear(run, lambda size, piece=piece: piece + (piece[-1:] * size)[:size])


def test_the_samples_are_matched():
    """Else the near misses would be none."""
    unmatched = [name for name, pattern in PATTERNS.items() if not any(
        re.search(pattern, "\n{}\n".format("".join(sample).replace("\0", "")).encode("utf-8"))
        for sample in make_samples(sre_parse.parse(pattern.decode("utf-8"))))]
    assert len(unmatched) <= len(PATTERNS) // 10, unmatched


@pytest.mark.parametrize("pattern", [rb"Trace failed in group [^\n]*(?:[Tt]imed out|Timeout)", rb"(?:a+)+b", rb"x(?![^\0]*?y)"])
def test_a_pattern_that_lingers_is_found_out(pattern):
    """The sick twins: what once stood there."""
    compiled = re.compile(pattern)
    with pytest.raises(AssertionError, match="times as long"):
        for piece in ("Trace failed in group ", "x"):
            data = piece.encode()
            assert_linear(lambda text: list(compiled.finditer(text)), lambda size, data=data: (data * size)[:size])
        assert_linear(lambda text: list(compiled.finditer(text)), lambda size: b"a" * min(size // 1024, 22))
