"""The digest: eight hex digits that name a plan. What time and the rest of the machine change is not in it."""
import hashlib
import json
import os
import re
import shlex
import stat
from typing import Any, Dict, List, Tuple

from ..text.entries import read_list
from ..text.redact import redact, redact_words
from ..text.secret_names import is_secret_name
from ..values import Fingerprint, Git, Plan

# $'\303\274ber'
_C_QUOTED = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.S)
# A value shorter than this is taken out only where it is a whole value: too many words contain a 7.
_MIN_SEARCHED = 4


def hash_file(path: str) -> str:
    """sha256 of a regular file's bytes, "absent" or "unreadable" where they can't be had."""
    digest = hashlib.sha256()
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe or a terminal would be waited for
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return "unreadable"
            for chunk in iter(lambda: file.read(1 << 16), b""):
                digest.update(chunk)
    except FileNotFoundError:
        return "absent"
    except OSError:
        return "unreadable"
    return digest.hexdigest()


def hash_text(text: str) -> str:
    """A short name for a long text."""
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def redact_part(name: str, text: str, secrets: Tuple[str, ...]) -> str:
    """One part of a plan without secrets. Where it is a list of words, an option's secret is a word of its own."""
    if name in ("overrides", "argv", "launch command"):
        words = read_list(text)
        if words is not None:
            return _dump(redact_words(words, secrets))
    return redact(text, secrets)


def shorten_parts(parts: Dict[str, str], secrets: Tuple[str, ...], limit: int = 400) -> Dict[str, str]:
    """A plan's parts as a record keeps them: without secrets, and from `limit` characters on by the hash of what is left."""
    short = {}
    for name, text in parts.items():
        text = redact_part(name, text, secrets)
        short[name] = text if len(text) < limit else hash_text(text)
    return short


def hash_sources(plan: Plan) -> Dict[str, str]:
    """sha256 of the config, of every file that it reads in, and of the runner's own script: a checkout without git has no
    commit to tell of a change in that."""
    argv = plan.batch.runner if plan.batch is not None else plan.argv
    scripts = (os.path.join(plan.root, word) for word in argv[1:])
    return {path: hash_file(path) for path in plan.sources + tuple(path for path in scripts if os.path.isfile(path))}


def make_fingerprint(plan: Plan, git: Git, gpus: Tuple[str, ...]) -> Fingerprint:
    """The digest of a plan: kind, files, overrides, block, command, the environment that config and templates set,
    revision, GPUs, and the paths that the launch deletes, all with the volatile values taken out. `gpus`: what this
    launch takes, by index."""
    volatile = find_volatile(plan)
    parts = {"kind": plan.kind, "overrides": _dump(plan.overrides), "argv": drop_volatile(_dump(plan.argv), volatile),
             "block": drop_volatile(plan.block, volatile),
             "launch command": _describe_command(plan.launch_command, volatile),
             "commit": git.commit or git.reason, "dirty files": " ".join(git.dirty) + " " + git.dirty_digest,
             "gpus": " ".join(gpus), "deleted paths": drop_volatile(" ".join(plan.sweep.path_globs), volatile),
             "root": plan.root}
    parts.update(plan.more_parts)
    for path, digest in hash_sources(plan).items():
        parts["file %s" % path] = digest
    for name in plan.set_names:
        value = plan.environment.get(name)
        if value is None or name in plan.volatile_names:
            continue
        parts["environment %s" % name] = _secret_state(value) if is_secret_name(name) else drop_volatile(value, volatile)
    text = _dump(sorted(parts.items()))
    return Fingerprint(hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:8], parts)


def _dump(value: Any) -> str:
    """JSON whose bytes are the same whether a path came in as text or, in the C locale of an old Python, as escaped bytes."""
    return json.dumps(value, ensure_ascii=False)


def _describe_command(command: str, volatile: List[Tuple[str, str]]) -> str:
    """The command's words: bash's %q leaves `über` as it is in a UTF-8 locale and writes `$'\\303\\274ber'` in cron's."""
    try:
        words = shlex.split(_C_QUOTED.sub(_decode_quoted, command))
    except ValueError:
        return drop_volatile(command, volatile)
    return json.dumps([drop_volatile(word, volatile) for word in words])


def _decode_quoted(match):  # type: ignore
    text = match.group(1).encode("utf-8", "surrogateescape").decode("unicode_escape")
    return shlex.quote(text.encode("latin-1", "replace").decode("utf-8", "replace"))


def _secret_state(value: str) -> str:
    return "set" if value else "empty"


def find_volatile(plan: Plan) -> List[Tuple[str, str]]:
    """(value, stand-in) of all that differs at every run, the longest first so that none hides in another."""
    found: Dict[str, str] = {}
    for name in plan.volatile_names:
        value = plan.environment.get(name, "")
        if value:
            found[value] = "<%s>" % name
    if (plan.name_is_volatile or plan.is_name_generated) and plan.experiment:
        found[plan.experiment] = "<name>"
    return sorted(found.items(), key=lambda pair: (-len(pair[0]), pair[0]))


def drop_volatile(text: str, volatile: List[Tuple[str, str]]) -> str:
    """`text` with each volatile value replaced by its stand-in."""
    for value, stand_in in volatile:
        if len(value) >= _MIN_SEARCHED and not value.isdigit():
            text = text.replace(value, stand_in)
        elif len(value) < _MIN_SEARCHED:  # a bare 4 may be anything: seed=77, and of one digit only SEED=4
            before = "=" if len(value) > 1 else stand_in.strip("<>") + "="
            text = re.sub(r"(?<=%s)%s(?![\w.-])" % (re.escape(before), re.escape(value)), stand_in, text)
        else:  # seed=12345
            text = re.sub(r"(?<![\w.-])%s(?![\w.-])" % re.escape(value), stand_in, text)
    return text
