"""The one exception that an operator sees, and the exit codes of the design. Caught once, in cli."""
from typing import Any, Dict

OK = 0
BLOCKED = 1
USAGE = 2
NOT_CONFIRMED = 3
RUN_ENDED = 4
MACHINE = 5
NOT_REACHED = 6
BUG = 70
INTERRUPTED = 130


class OperatorError(Exception):
    """What an operator can act on: what is wrong, what to do next, and the exit code (see the constants above).

    `reason` is the stable word for `--json` (a check name where one applies); `shape` holds more keys for it.
    `brief`: the message for a line that must be short, "" where its own first line is that.
    """

    def __init__(self, message, hint="", code=USAGE, reason=""):
        # type: (str, str, int, str) -> None
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code
        self.reason = reason or "error"
        self.brief = ""
        self.shape: Dict[str, Any] = {}
