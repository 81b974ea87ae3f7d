"""What a launch survives: each way of starting, each way of ending what started it, and rlrun killed at every stage.

Each cell of the table is a real start and a real end. Its outcome is read from process table and record: one run that goes on,
ends by itself and is told so, or none and no record that claims one. SURVIVAL_TABLE=FILE keeps the outcomes (see survival.py).
"""
import shutil

import pytest

from . import cells, kills, survival
from .survival import Cell

# A row and a column for each; not their whole product, which would take minutes.
CELLS = {
    "terminal": [
        Cell("terminal, answers typed", "terminal closed", "up", hangup="own"),
        Cell("terminal, answers typed", "SIGHUP to the foreground group", "back"),
        Cell("terminal, answers typed", "Ctrl-C", "back"),
        Cell("terminal, --confirm", "terminal closed", "back", None),
        Cell("terminal, --confirm", "SIGHUP to the shell's group", "up", hangup="default"),
        Cell("terminal, --confirm", "shell SIGKILLed", "back", None),
        Cell("terminal, --confirm", "rlrun SIGTERMed", "back"),
    ],
    "job": [
        Cell("nohup … &", "terminal closed", "back", hangup="default"),
        Cell("nohup … &", "shell exits", "up"),
        Cell("setsid", "terminal closed", "back"),
        Cell("setsid", "SIGHUP to the shell's group", "up", hangup="own"),
        Cell("( … & ), then exit", "shell exits", "back"),
        Cell("( … & ), then exit", "rlrun SIGKILLed", "back", 137),
    ],
    "no terminal": [
        Cell("rlrun … | cat", "nothing, it returns", "up"),
        Cell("rlrun … | cat", "rlrun SIGKILLed", "back", 137),
        Cell("x=$(rlrun …)", "nothing, it returns", "up"),
        Cell("x=$(rlrun …)", "rlrun SIGTERMed", "back"),
        Cell("bash -c, no terminal", "SIGHUP to the foreground group", "back", None),
        Cell("bash -c, no terminal", "shell SIGKILLed", "back", 0),
        Cell("bash -c, no terminal", "Ctrl-C", "back", None),
    ],
    "keeper and pyz": [
        Cell("bash -c, no terminal", "keeper SIGKILLed", "back", 0, state="lost"),
        Cell("bash -c, no terminal", "keeper SIGKILLed", "up", 0, state="lost"),
        Cell("bash -c, no terminal", "pyz deleted", "back"),
        Cell("rlrun … | cat", "pyz replaced by garbage", "back"),
        Cell("x=$(rlrun …)", "pyz replaced by garbage", "up"),
    ],
    "server": [
        Cell("tmux", "tmux server SIGKILLed", "back", None),
        Cell("tmux", "tmux kill-server", "up", hangup="own"),
        Cell("script -qc", "terminal closed", "back", None),
        Cell("script -qc", "shell SIGKILLed", "up", hangup="default"),
    ],
    "user and disk": [
        Cell("su, another user", "terminal closed", "back", None, hangup="default"),
        Cell("su, another user", "shell SIGKILLed", "up"),
        Cell("setpriv, another user", "SIGHUP to the foreground group", "back", None),
        Cell("bash -c, no terminal", "disk full already", "before", 5, 0, ""),
        Cell("bash -c, no terminal", "disk full once the record is written", "between", 5, 0, "not started"),
        Cell("bash -c, no terminal", "disk filled under the log", "up", 0, state="ended 1"),
    ],
}
NEEDED = {"tmux": "tmux", "script -qc": "script", "su, another user": "su", "setpriv, another user": "setpriv"}


def play_cells(box, played):
    return cells.play_cells(box, played)


@pytest.mark.parametrize("group", sorted(CELLS))
def test_one_run_with_a_true_record_or_none(play, root, group):
    cells.add_toy(root)
    played = [cell for cell in CELLS[group] if shutil.which(NEEDED.get(cell.start, "sh"), path="/usr/sbin:/usr/bin:/bin")]
    told = play(play_cells, root, played=played, timeout=300)
    assert len(told) == len(played)
    for facts in told:
        cell = Cell(*facts["cell"])
        is_one = len(facts["runs"]) == 1 and facts["told"] == [["running", facts["runs"][0]]] and len(facts["states"]) == 1
        is_none = facts["runs"] == facts["told"] == [] and not set(facts["states"]) - {"not started", "unreadable"}
        outcome = "one run, on its own to its end" if is_one else "none" if is_none else "neither one nor none"
        code = int(facts["code"]) if facts["code"] else None
        survival.add_outcome(cell.start, survival.describe_end(cell), outcome, code, len(facts["runs"]), facts["states"])
        assert is_one if cell.runs else is_none, facts
        assert cell.code is None or code == cell.code, facts
        assert not cell.state or facts["states"] == [cell.state], facts
        assert not facts["hung_up"], facts


# --- killed at every stage


def play_kills(box, role, more):
    return kills.play_kills(box, role, more)


@pytest.mark.parametrize("role, more", [(0, 8), (1, 6), (2, 0)], ids=kills.ROLES)
def test_killed_at_any_place_it_leaves_a_run_and_its_record_or_none(play, root, role, more):
    kills.add_toy(root)
    facts = play(play_kills, root, role=role, more=more, timeout=300)
    killed = facts["kills"]
    for one in killed:
        assert not kills.find_faults(one), one
    assert sum(1 for one in killed if one["is_killed"]) > len(killed) - 4
    assert {one["runs"] for one in killed} == ({0} if role == 2 else {0, 1})
    assert {row["id"]: row["state"] for one in killed for row in one["ended"]}.items() <= facts["shown"].items()
    for one in killed:
        if "second" in one:
            code, out, err = one["second"]
            assert code == 1 and str(one["pids"][0]) in err, err
    states = sorted({row["state"] for one in killed for row in one["ended"]})
    survival.add_outcome("bash -c, no terminal", "the %s SIGKILLed, at each of %d places of its %d" % (
        {0: "launching rlrun", 1: "keeper", 2: "process that becomes the runner"}[role], len(killed), facts["places"]),
        "one run, on its own to its end (%d), or none (%d)" % (sum(one["runs"] for one in killed), sum(
            1 for one in killed if not one["runs"])), None, max(one["runs"] for one in killed), states)


def play_keeper_killed(box):
    return kills.play_keeper_killed(box)


def test_a_keeper_killed_in_the_midst_of_its_start_leaves_the_lock_to_the_runner(play, root):
    """Between the fork of the runner and its exec nobody would see a run yet: the lock keeps the next launch out."""
    kills.add_toy(root)
    for place, one in play(play_keeper_killed, root).items():
        assert one["is_held"], place
        assert (one["runs"], one["status"], not kills.find_faults(one)) == (1, 0, True), one
