"""Which rlrun this is: version, commit, the file's own sha256. Imports next to nothing."""
from typing import Any

VERSION = "0.1.0"


def read_commit() -> str:
    """The commit that the archive was built from, "" where none was written into it, or where it was replaced meanwhile:
    then the place where the commit stood holds anything."""
    import pkgutil
    try:
        text = (pkgutil.get_data("rlrun", "BUILD") or b"").decode("ascii").strip()
    except (OSError, ImportError, ValueError, EOFError):
        return ""
    return text if len(text) < 64 and text.replace("+dirty", "").isalnum() else ""


def hash_archive() -> str:
    """sha256 of the file that runs, as it is on disk now; "" where it runs from a folder."""
    loader: Any = globals().get("__loader__")
    archive = getattr(loader, "archive", "")
    if not archive:
        return ""
    import hashlib
    try:
        with open(archive, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return ""
