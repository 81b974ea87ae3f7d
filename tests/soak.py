"""What takes too long for each day: `make soak`. Real launches in boxes, as in tests/e2e, more of them, bounded in time.

    SOAK_ROUNDS=20 SOAK_SIZE=50     launches that are started together, and how often
    SOAK_SECONDS=900                for those; as long again, shared among the three, for the kills at every place
    SOAK_SEED=1                     the order of the kills

    make soak                       both
    .venv/bin/python -m pytest -q -s tests/soak.py -k rush

Each prints what it counted; a fault fails it, with all that is known of it.
"""
import collections
import os
import shutil
import sys

import pytest

from e2e import kills
from e2e.conftest import play, root, scene, shared_checkout  # noqa: F401  (fixtures)
from e2e.test_two_at_once import find_faults, play_rush

ROUNDS, SIZE, SECONDS, SEED = (int(os.environ.get("SOAK_" + name) or default) for name, default in (
    ("ROUNDS", 20), ("SIZE", 50), ("SECONDS", 900), ("SEED", 1)))


def say(text):
    print("\n" + text, file=sys.stderr, flush=True)


def play_many(box, size, rounds, seconds):
    return play_rush(box, size, rounds, seconds)


def test_rush(play, root):  # noqa: F811
    kills.add_toy(root)
    folder = os.path.join(root, "scripts/train/configs/")
    shutil.copy("%s%s.env" % (folder, kills.CONFIG), folder + "other.env")
    rounds = play(play_many, root, size=SIZE, rounds=ROUNDS, seconds=SECONDS, timeout=SECONDS + 600)
    codes = collections.Counter(one["code"] for told in rounds for one in told["said"])
    reasons = collections.Counter(one["reason"] for told in rounds for one in told["said"] if one["code"])
    runs = collections.Counter(len(told["runners"]) for told in rounds)
    faults = [fault for told in rounds for fault in find_faults(told)]
    say("rush: %d rounds of %d; runs in a round: %s; exit codes: %s; reasons: %s; faults: %d" % (
        len(rounds), SIZE, dict(runs), dict(codes), dict(reasons), len(faults)))
    assert rounds and not faults, faults


def play_all_kills(box, role, seconds, seed):
    return kills.play_all(box, role, seconds, seed)


@pytest.mark.parametrize("role", range(3), ids=kills.ROLES)
def test_kills(play, root, role):  # noqa: F811
    kills.add_toy(root)
    facts = play(play_all_kills, root, role=role, seconds=SECONDS / 3, seed=SEED, timeout=SECONDS + 600)
    killed = [one for one in facts["kills"] if one["is_killed"]]
    outcomes = collections.Counter("%d run: %s" % (one["runs"], ", ".join(row["state"] for row in one["ended"]) or "no record")
                                   for one in killed)
    faults = [(kills.find_faults(one), one) for one in facts["kills"] if kills.find_faults(one)]
    say("%s: killed at %d of its %d places (%d orders); %s; faults: %d" % (
        kills.ROLES[role], len(killed), facts["places"], len(facts["kills"]), dict(outcomes), len(faults)))
    assert killed and not faults, faults[:5]
