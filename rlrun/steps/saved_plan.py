"""A plan that was approved, as `check --save` leaves it: written, found and read. No secret is in it, and no hash of one alone.
Whose word it is and whether it still counts, approval.py judges."""
import json
import math
import os
import re
import stat
import tempfile
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .. import about
from ..errors import MACHINE, USAGE, OperatorError
from ..host import procs
from ..host.files import make_folder, open_file
from ..text.redact import redact_config, redact_words
from . import digest, record, records
from .moves import Content
from .survey import Survey

SCHEMA = 1
_KIND = "approved plan"  # what the file says that it is
_PART_CHARACTERS = 64 << 10
TEXT_BYTES = 64 << 10
_FILE_BYTES = 8 << 20
_OTHERS = 20  # copies of other users that are read for one digest
_DIRTY_FILES = 200
_DIRTY_BYTES = 16 << 20
# 3f9c2a71-1000.json
_NAME = re.compile(r"([0-9a-f]{8})-[0-9]+\.json\Z")
_DIGEST = re.compile(r"[0-9a-f]{8}\Z")


class SavedPlan(NamedTuple):
    """A plan that was read. `uid` is the file's owner. `valid_seconds`: from the check's time on, None without a limit."""

    path: str
    uid: int
    digest: str
    time_seconds: float
    valid_seconds: Optional[float]
    user: str
    host: str
    content: Content


class Saved(NamedTuple):
    """Where a plan was saved: the file that was asked for, and rlrun's own record, "" where that could not be written, for the
    reason."""

    path: str
    kept: str
    reason: str


def make_content(found: Survey, secrets: Tuple[str, ...]) -> Content:
    """The plan as it can be compared. A file's text is in it where it is still the one that the digest is of."""
    texts = {}
    for path in found.plan.sources:
        text = _read_source(path, found.fingerprint.parts.get("file %s" % path, ""), secrets)
        if text is not None:
            texts[path] = text
    dirty = {name: _hash_dirty(os.path.join(found.plan.root, name)) if number < _DIRTY_FILES else ""
             for number, name in enumerate(found.git.dirty)}
    return join_content(Content(digest.shorten_parts(found.fingerprint.parts, secrets, _PART_CHARACTERS), texts, dirty))


def _read_source(path: str, expected: str, secrets: Tuple[str, ...]) -> Optional[str]:
    import hashlib
    try:
        with os.fdopen(open_file(path), "rb") as file:
            data = file.read(TEXT_BYTES + 1)
    except OSError:
        return None
    if len(data) > TEXT_BYTES or hashlib.sha256(data).hexdigest() != expected:
        return None
    return redact_config(data.decode("utf-8", "surrogateescape"), secrets)


def _hash_dirty(path: str) -> str:
    try:
        is_small = os.lstat(path).st_size <= _DIRTY_BYTES
    except OSError:
        return "absent"
    return digest.hash_file(path) if is_small else ""


def join_content(content: Content) -> Content:
    dirty = content.dirty
    return Content({_join(name): _join(text) for name, text in content.parts.items()},
                   {_join(path): _join(text) for path, text in content.texts.items()},
                   None if dirty is None else {_join(name): one for name, one in dirty.items()})


def _join(text: str) -> str:
    """The same text for the same bytes: a path is escaped bytes in the C locale of an old Python, and letters elsewhere."""
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half a letter, from a file that somebody wrote by hand
        return text.encode("utf-8", "replace").decode("utf-8")


def refuse_target(path: str) -> None:
    """OperatorError for a file that a plan can't be saved to: exit 2 where something else is there, exit 5 where nobody could
    write. Before the check, which takes a while; and again before writing."""
    try:
        if os.path.lexists(path) or path.endswith("/"):
            if not stat.S_ISREG(os.stat(path).st_mode):
                raise OperatorError("%s is there, and is no file" % path, "Name another file: --save FILE", USAGE, "save")
            try:
                read_plan(path)
            except ValueError:
                raise OperatorError("%s is there, and is no plan that rlrun saved" % path, "Name another: --save FILE", USAGE,
                                    "save")
        folder = os.path.dirname(os.path.realpath(path))
        os.stat(folder)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(13, os.strerror(13))
    except OSError as error:
        raise _refuse_write(path, error)


def _refuse_write(path: str, error: OSError) -> OperatorError:
    return OperatorError("can't write %s: %s" % (path, os.strerror(error.errno or 0)),
                         "Name a file in a folder that you may write to: --save FILE", MACHINE, "save")


def save(found: Survey, path: str, valid_seconds: Optional[float], secrets: Tuple[str, ...], now_seconds: float) -> Saved:
    """Writes the plan, whole or not at all, for its user alone: to `path`, and as rlrun's own record beside the launches'.
    OperatorError where `path` can't be written, and nothing is."""
    text = json.dumps(_shape(found, valid_seconds, secrets, now_seconds), indent=1) + "\n"
    target = os.path.realpath(path)
    is_new = not os.path.lexists(target)  # before it is looked at: what comes after this is not written over
    refuse_target(path)
    try:
        _write(target, text, is_new)
    except FileExistsError:
        raise OperatorError("%s came while the plan was being saved, and was left as it is" % path,
                            "Look at it, or name another: --save FILE", USAGE, "save")
    except OSError as error:
        raise _refuse_write(path, error)
    kept = _name_own(found.plan.root, found.fingerprint.digest, os.geteuid())
    try:
        make_folder(os.path.dirname(kept))
        if os.path.islink(os.path.dirname(kept)):
            raise ValueError("%s is a link" % os.path.join(records.FOLDER, records.PLANS))
        is_new = not os.path.lexists(kept)
        if not is_new:
            if not stat.S_ISREG(os.lstat(kept).st_mode):
                raise ValueError("it is no file")
            read_plan(kept)  # never over what is none of ours
        _write(kept, text, is_new)
    except (OSError, ValueError) as error:
        return Saved(target, "", os.strerror(error.errno or 0) if isinstance(error, OSError) else str(error))
    return Saved(target, kept, "")


def _write(path: str, text: str, is_new: bool) -> None:
    """Whole or not at all, for this user alone. FileExistsError where `is_new` and something is there by now: a rename would
    replace it."""
    fd, temporary = tempfile.mkstemp(".tmp", dir=os.path.dirname(path))
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(text.encode("utf-8", "surrogateescape"))
        if is_new:
            _take_name(temporary, path)
        else:
            os.rename(temporary, path)
    finally:
        try:
            os.unlink(temporary)
        except OSError:  # it was renamed
            pass


def _take_name(temporary: str, path: str) -> None:
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links: the name is taken by an empty file of our own
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        os.rename(temporary, path)


def _find_folder(root: str) -> str:
    return os.path.join(root, records.FOLDER, records.PLANS)


def _name_own(root: str, value: str, uid: int) -> str:
    return os.path.join(_find_folder(root), "%s-%d.json" % (value, uid))


def _shape(found: Survey, valid_seconds: Optional[float], secrets: Tuple[str, ...], now_seconds: float) -> Dict[str, Any]:
    plan = found.plan
    content = make_content(found, secrets)
    return {"schema": SCHEMA, "rlrun_file": _KIND, "digest": found.fingerprint.digest, "time": record.make_stamp(now_seconds),
            "time_seconds": now_seconds, "valid_seconds": valid_seconds, "user": procs.user_name(os.geteuid()),
            "uid": os.geteuid(), "host": os.uname().nodename,
            "rlrun": {"version": about.VERSION, "commit": about.read_commit() or None},
            "root": plan.root, "stack": plan.stack, "kind": plan.kind, "config": plan.config_shown,
            "configs": [plan.config_shown] + list(plan.more_configs), "overrides": list(redact_words(plan.overrides, secrets)),
            "parts": content.parts, "texts": content.texts, "modified": content.dirty}


def find_plans(root: str, value: str) -> List[SavedPlan]:
    """The plans of this digest that were saved in a checkout and can be read, whoever saved them, the newest first: this user's
    and root's, which count, and some of the others'. A link is none, and nothing is looked for behind one."""
    folder = _find_folder(root)
    if os.path.islink(folder):
        return []
    paths = [_name_own(root, value, uid) for uid in (os.geteuid(), 0)]
    try:
        names = [name for name in os.listdir(folder) if name.startswith(value + "-") and _NAME.match(name)]
    except OSError:
        names = []
    paths += [path for path in (os.path.join(folder, name) for name in sorted(names)) if path not in paths][:_OTHERS]
    found = []
    for path in dict.fromkeys(paths):
        try:
            plan = None if os.path.islink(path) else read_plan(path)
        except (OSError, ValueError):
            continue
        if plan and plan.digest == value:
            found.append(plan)
    return sorted(found, key=lambda plan: -plan.time_seconds)


def find_unreadable(root: str, value: str) -> Tuple[str, str]:
    """(path, why) of a copy that counts, this user's or else root's, and can't be read, so that until when is not known. ("", "")
    where there is none, or this user's can be read. That root's copies are closed to others is no fault: they are saved so."""
    if os.path.islink(_find_folder(root)):
        return "", ""
    for uid in dict.fromkeys((os.geteuid(), 0)):
        path = _name_own(root, value, uid)
        try:
            if os.lstat(path).st_uid not in (os.geteuid(), 0):
                continue  # another user's, who may write there what he likes
        except OSError:
            continue
        try:
            plan = None if os.path.islink(path) else read_plan(path)
        except OSError as error:
            if uid != os.geteuid() and isinstance(error, PermissionError):
                continue
            return path, os.strerror(error.errno or 0)
        except ValueError as error:
            return path, str(error)
        if plan is None or plan.digest != value:
            return path, "it is of plan %s" % plan.digest if plan else "it is a link"
        if uid == os.geteuid():
            break
    return "", ""


def read_plan(path: str) -> SavedPlan:
    """A saved plan. OSError where it can't be read, or is no file; ValueError, with words, where it is no such plan. Whoever
    wrote it, each value has the type that it was written with."""
    with os.fdopen(open_file(path), "rb") as file:
        status = os.fstat(file.fileno())
        data = file.read(_FILE_BYTES + 1)
    if len(data) > _FILE_BYTES:
        raise ValueError("it is too large for a plan")
    try:
        value = json.loads(data.decode("utf-8"), parse_int=records.parse_int)
    except (ValueError, RecursionError):
        raise ValueError("it is no plan that rlrun saved")
    if not isinstance(value, dict) or value.get("rlrun_file") != _KIND:
        raise ValueError("it is no plan that rlrun saved")
    if value.get("schema") != SCHEMA:
        raise ValueError("another rlrun wrote it, in a form that this one does not know")
    name, parts = value.get("digest"), _read_texts(value.get("parts"))
    time_seconds, valid_seconds = _read_seconds(value.get("time_seconds")), _read_seconds(value.get("valid_seconds"))
    if not isinstance(name, str) or not _DIGEST.match(name) or not parts or time_seconds is None \
            or valid_seconds is None and value.get("valid_seconds") is not None:
        raise ValueError("it is broken: save the plan anew")
    texts = {path: text for path, text in (_read_texts(value.get("texts")) or {}).items() if len(text) <= TEXT_BYTES}
    content = Content(parts, texts, _read_texts(value.get("modified")))
    user, host = [value[key] if isinstance(value.get(key), str) else "" for key in ("user", "host")]
    return SavedPlan(path, status.st_uid, name, time_seconds, valid_seconds, user, host,
                     join_content(content))


def _read_texts(value: Any) -> Optional[Dict[str, str]]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        return None
    return {name: text if len(text) < _PART_CHARACTERS * 2 else digest.hash_text(_join(text)) for name, text in value.items()}


def _read_seconds(value: Any) -> Optional[float]:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < 1e15 and math.isfinite(value) else None
