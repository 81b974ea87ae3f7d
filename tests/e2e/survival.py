"""The survival table: ways of starting a launch, ways of ending what started it, and what is left then.

With SURVIVAL_TABLE=FILE the tests (test_survival.py, test_cron.py) add a line of JSON for each outcome to FILE, and

    python tests/e2e/survival.py FILE

prints the table of them, as `make survival` does: no row of it is written by hand. Imports nothing of the tests.
"""
import json
import os
import sys
from typing import NamedTuple, Optional, Sequence

# By name: has it a terminal, and the line that its shell is given. {job} is a script that runs rlrun and keeps its exit code.
STARTS = {
    "terminal, answers typed": (True, ""),
    "terminal, --confirm": (True, "{job}"),
    "rlrun … | cat": (False, "{job} 2>&1 | cat >{out}"),
    "x=$(rlrun …)": (False, "x=$({job} 2>&1); printf '%s' \"$x\" >{out}"),
    "bash -c, no terminal": (False, "{job}; true"),
    "script -qc": (True, "script -qc {job} /dev/null"),
    "tmux": (False, "tmux -S {folder}/tmux -f /dev/null new-session -d sleep 1000 \\; new-window {job}"),
    "su, another user": (True, "su -s /bin/bash nobody -c 'HOME={home} {job}'"),
    "setpriv, another user": (False, "setpriv --reuid={nobody} --regid={nobody} --clear-groups -- env HOME={home} {job}; true"),
    "nohup … &": (True, "nohup {job} >{out} 2>&1 </dev/null &"),
    "setsid": (True, "setsid {job} >{out} 2>&1 </dev/null"),
    "( … & ), then exit": (False, "({job} >{out} 2>&1 &)"),
}
# Played by test_cron.py; its outcomes come into the same file, under these names.
ELSEWHERE = ("cron", "at")


class Cell(NamedTuple):
    """One cell: how it is started, what ends its surroundings and when (`back`: while rlrun reads back, `up`: when it has
    reported; `before` the record, and `between` it and the start), and what is to be left. `code`: rlrun's, None where nobody can
    tell."""

    start: str
    end: str
    when: str = "up"
    code: Optional[int] = 0
    runs: int = 1
    state: str = "ended 0"
    hangup: str = ""  # what the trainer does about SIGHUP: nothing, "own", "default"


def add_outcome(start: str, end: str, outcome: str, code: Optional[int], runs: int, states: Sequence[str]) -> None:
    """One line more in the file that SURVIVAL_TABLE names, if it does; written at once, so that several may write."""
    path = os.environ.get("SURVIVAL_TABLE")
    if not path:
        return
    line = json.dumps({"start": start, "end": end, "outcome": outcome, "code": code, "runs": runs, "states": list(states)})
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(fd, line.encode() + b"\n")
    finally:
        os.close(fd)


def describe_end(cell: Cell) -> str:
    """The column: what ended, and when."""
    when = {"back": ", while rlrun reads back", "up": ", after its report"}.get(cell.when, "")
    return cell.end + when + {
        "own": "; a trainer with a SIGHUP handler of its own", "default": "; a trainer that sets SIGHUP to its default"}.get(
            cell.hangup, "")


def render_table(lines: Sequence[str]) -> str:
    """Markdown: a row for each outcome, in the order of the ways of starting."""
    order = list(STARTS) + list(ELSEWHERE)
    rows = [json.loads(line) for line in lines if line.strip()]
    rows.sort(key=lambda row: (order.index(row["start"]) if row["start"] in order else len(order), row["end"]))
    table = ["| started by | what ended | outcome | exit of rlrun | record |", "| --- | --- | --- | --- | --- |"]
    rows += [{"start": start, "end": "", "outcome": "not played", "code": None, "states": ["-"]} for start in order
             if start not in {row["start"] for row in rows}]
    for row in rows:
        code = "-" if row["code"] is None else row["code"]
        table.append("| %s | %s | %s | %s | %s |" % (row["start"].replace("|", "\\|"), row["end"], row["outcome"], code,
                                                   ", ".join(row["states"]) or "none"))
    return "\n".join(table)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as told:
        print(render_table(list(told)))
