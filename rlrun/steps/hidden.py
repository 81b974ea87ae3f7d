"""What of a checkout's records this user may not look at: that nothing is seen there tells nothing. Reads only."""
import errno
import os
import stat
from typing import Tuple

from ..errors import MACHINE, OperatorError
from ..host import procs
from . import records


def refuse_hidden(root: str) -> None:
    """OperatorError (exit 5) where a checkout's launches are there, or may be, and can't be listed; where there is no such folder
    nothing was launched, and nothing is raised."""
    folder = os.path.join(root, records.FOLDER)
    try:
        os.listdir(folder)
        if not os.access(folder, os.X_OK):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        at, whose = _find_owner(folder)
        raise OperatorError("the launches of %s can't be looked at: %s: %s" % (root, at, os.strerror(error.errno or 0)),
                            "Have it opened to you, or look as somebody who may: %s." % whose, MACHINE, "records")


def describe_hidden(folder: str) -> str:
    """Why a record can't be read, in words; "" where nothing keeps this user from it."""
    path = os.path.join(folder, "record.json")
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except PermissionError as error:
        return "%s: %s" % (os.strerror(error.errno or 0).lower(), _find_owner(path)[1])
    except OSError:
        pass
    return ""


def _find_owner(path: str) -> Tuple[str, str]:
    """(the path or what lies above it, whose that is): of the nearest that can be told of."""
    while True:
        try:
            found = os.lstat(path)
            return path, "it is %s's, mode %o" % (procs.user_name(found.st_uid), stat.S_IMODE(found.st_mode))
        except OSError:
            if path == os.path.dirname(path):
                return path, "whose it is can't be told"
            path = os.path.dirname(path)
