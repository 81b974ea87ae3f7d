"""The reports in words: values in, lines out. Judges nothing and reads nothing."""
import os
from typing import List, Sequence, Tuple

from ..values import Board, Check, Git, Plan, Preflight, Verdict
from .redact import redact
from .shell import escape_controls
from .terminal import Terminal, paint

_GLYPHS = {"pass": ("✓", "green"), "advisory": ("⚠", "yellow"), "blocks": ("✗", "red"), "skipped": ("·", "dim")}
# The row in which a check's name is shown, where it is not the word before the colon.
ROWS = {"port": "ports", "import": "imports", "memory": "memory"}
_WIDTH = 78


def render_title(command: str, plan: Plan, digest: str) -> str:
    """`rlrun check — train · demo.env        plan 3f9c2a71`."""
    left = "rlrun %s — %s · %s" % (command, plan.kind, escape_controls(os.path.basename(plan.config)))
    right = "plan %s" % digest if digest else ""
    return (left + " " * max(2, _WIDTH - len(left) - len(right)) + right).rstrip()


def render_verdict(terminal: Terminal, verdict: Verdict, blocks: int, warnings: int) -> str:
    """`SAFE TO RUN: ✗ NO — 1 blocking · 2 warnings`."""
    answer = paint(terminal, "✗ NO", "red") if verdict.blocking else paint(terminal, "✓ YES", "green")
    return "SAFE TO RUN: %s — %d blocking · %d warning%s" % (answer, blocks, warnings, "" if warnings == 1 else "s")


def render_checks(terminal: Terminal, checks: Sequence[Check]) -> List[str]:
    """The table: one row a check, the row's word once."""
    lines: List[str] = []
    last = ""
    rows = [ROWS.get(check.name.split(":")[0], check.name.split(":")[0]) for check in checks]
    for _, check in sorted(zip(rows, checks), key=lambda pair: rows.index(pair[0])):  # rows of one word together
        glyph, style = _GLYPHS[check.status]
        mark = paint(terminal, glyph, style)
        if check.layer == "preflight" and check.name in ("preflight:warn", "preflight:fatal") and last == "preflight":
            lines.append("    %s             %s" % (mark, escape_controls(check.detail)))
            continue
        row = ROWS.get(check.name.split(":")[0], check.name.split(":")[0])
        label = row if row != last else ""
        last = row
        name = check.name + "  " if check.status != "pass" and not (check.layer == "preflight" and "·" in check.detail) else ""
        lines.append("  %s %-11s %s%s" % (mark, label, name, escape_controls(check.detail)))
    return lines


def render_steps(checks: Sequence[Check]) -> List[str]:
    """`Next steps`, numbered, what blocks before what warns, each once."""
    steps: List[str] = []
    for status in ("blocks", "advisory"):
        for check in checks:
            if check.status == status and check.fix:
                text = escape_controls("%s: %s" % (check.name, check.fix))
                if text not in steps:
                    steps.append(text)
    return ["Next steps"] + ["  %d. %s" % (number, text) for number, text in enumerate(steps, 1)] if steps else []


def render_block(plan: Plan, secrets: Tuple[str, ...]) -> str:
    """The run configuration, character for character; a secret in it aside."""
    return redact(plan.block, secrets)


def render_last_words(preflight: Preflight, secrets: Tuple[str, ...]) -> List[str]:
    """The tail of a dry run that died."""
    if not preflight.died:
        return []
    text = redact(preflight.last_words, secrets) or "(it printed nothing)"
    return ["Last words of the runner's own check:"] + ["  | " + escape_controls(line) for line in text.split("\n")]


def describe_git(git: Git) -> str:
    """`1a2b3c4d5e6f on main, 2 files modified`, or why it is unknown."""
    if not git.commit:
        return "unknown: %s" % git.reason
    return "%s on %s%s" % (git.commit[:12], git.branch, ", %d file%s modified" % (
        len(git.dirty), "" if len(git.dirty) == 1 else "s") if git.dirty else "")


def describe_board(plan: Plan, board: Board, is_visible: bool) -> str:
    """One line: which board, what it serves, whether it will show this run."""
    if not plan.train_log:
        return "unknown: the runner did not tell its log"
    if not board.pid:
        return "none running → this run would not be visible"
    port = "http://%s:%d" % (os.uname().nodename, board.port) if board.port else "port unknown"
    served = " ".join(board.served) or "an unknown directory"
    return "pid %d, %s, serving %s → this run would %sbe visible" % (board.pid, port, served, "" if is_visible else "not ")


def render_look(rows: Sequence[Tuple[str, str]]) -> List[str]:
    """`Worth double-checking before this run:` and its rows."""
    lines = ["Worth double-checking before this run:"]
    for label, value in rows:
        first, *rest = value.split("\n")
        lines.append("  • %-10s %s" % (label, escape_controls(first)))
        lines += ["    %-10s %s" % ("", escape_controls(line)) for line in rest]
    return lines


def render_table(rows: Sequence[Sequence[str]]) -> List[str]:
    """Columns as wide as they need to be, two spaces apart."""
    if not rows:
        return []
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def render_pairs(pairs: Sequence[Tuple[str, str]], indent: str = "  ") -> List[str]:
    """`  name:   value` lines, the values in one column."""
    width = max(len(name) for name, _ in pairs) + 2 if pairs else 0
    return ["%s%s%s" % (indent, (name + ":").ljust(width), escape_controls(value)) for name, value in pairs]
