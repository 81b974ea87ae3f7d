"""The board beside the launch: would it show this run?"""
import os

from ..values import Board


def pick_served(board: Board, root: str) -> str:
    """The served directory to link into, "" where none can be written. The checkout's own logs/ counts before it is
    there: the launch makes it."""
    own = os.path.realpath(os.path.join(root, "logs"))
    return next((folder for folder in board.served if os.access(folder, os.W_OK | os.X_OK)
                 or (folder == own and not os.path.exists(own))), "")
