"""The board beside the launch: would it show this run?"""
import os

from ..values import Board, Plan


def pick_served(board: Board) -> str:
    """The served directory to link into, "" where none can be written."""
    return next((folder for folder in board.served if os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)), "")


def describe(plan: Plan, board: Board, is_visible: bool) -> str:
    """One line for the report: which board, what it serves, whether it will show this run."""
    if not plan.train_log:
        return "unknown: the runner did not tell its log"
    if not board.pid:
        return "none running → this run would not be visible"
    port = "port %d" % board.port if board.port else "port unknown"
    served = " ".join(board.served) or "an unknown directory"
    return "pid %d, %s, serving %s → this run would %sbe visible" % (board.pid, port, served, "" if is_visible else "not ")
