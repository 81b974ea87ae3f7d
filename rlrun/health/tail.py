"""The ends of a log, in bytes: a log may be huge, have holes of NULs, or be cut while it is read. Reads only."""
import os
from typing import Tuple

from ..host.files import open_file


def read_tail(path: str, limit_bytes: int) -> bytes:
    """The last bytes of a file, NULs (a hole that a truncation left) dropped, b"" where it can't be read."""
    try:
        with os.fdopen(open_file(path), "rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - limit_bytes))
            return file.read(limit_bytes).replace(b"\0", b"")
    except (OSError, ValueError):
        return b""


def read_last_lines(path: str, count: int, limit_bytes: int = 65536) -> Tuple[str, ...]:
    """The last lines that are not blank, a progress bar's rewritten line shown as its last state."""
    text = read_tail(path, limit_bytes).decode("utf-8", "replace")
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]
    return tuple([line for line in lines if line.strip()][-count:])


def read_new(path: str, offset: int, limit_bytes: int = 1 << 20) -> Tuple[bytes, int]:
    """What was appended after `offset`, and the new offset; a file that got shorter is read from its beginning."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, 2)
            if size < offset:
                offset = 0
            file.seek(offset)
            data = file.read(limit_bytes)
            return data, offset + len(data)
    except OSError:
        return b"", offset
