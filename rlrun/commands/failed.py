"""`rlrun runs --failed-since`: the morning mail. What failed lately and why, and what nobody looked at and launched nothing;
nothing at all where there is neither."""
import json
import os
import time
from typing import Any, Dict, List

from ..errors import OK
from ..stacks import STACKS
from ..steps import find_failed, refused, shapes
from ..steps.shape_status import shape_quote
from ..text import report
from ..text import terminal as term
from ..text.redact import find_secrets
from ..text.shell import escape_controls, quote_words
from . import options as shared
from .status import collect_secrets

_MOST_REFUSED = 20  # are told one by one


def list_failed(root: str, window_seconds: float, terminal: term.Terminal) -> int:
    """Prints it. OperatorError (exit 5) where the launches can't be looked at."""
    now = time.time()
    found, reason = find_failed.find_failed(root, window_seconds, collect_secrets)
    turned_away, hidden = refused.find_refused(root, window_seconds, find_secrets(os.environ))
    if terminal.is_json:
        shown = [dict(shapes.shape_row(one.row), how=one.words, ended_seconds=one.ended_seconds, log=one.log or None,
                      first_error=shape_quote(one.first_error, ()) if one.first_error else None) for one in found]
        term.print_result(terminal, json.dumps({
            "schema": 1, "command": "runs", "root": root, "failed_since_seconds": window_seconds, "runs": shown,
            "refused": [_shape_refused(one) for one in turned_away], "unread_logs": list(hidden),
            "reason": reason or None, "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))}, sort_keys=True))
        return OK
    blocks = ["\n".join(_describe_failed(one, root)) for one in found]
    blocks += ["\n".join(_describe_refused(one)) for one in turned_away[:_MOST_REFUSED]]
    if turned_away[_MOST_REFUSED:]:
        logs = sorted({one.log for one in turned_away[_MOST_REFUSED:]})
        blocks.append(escape_controls("\u2026 and %d earlier launches that launched nothing: %s" % (
            len(turned_away) - _MOST_REFUSED, " ".join(logs))))
    if blocks:
        term.print_result(terminal, "\n\n".join(blocks))
        if reason:
            term.print_note(terminal, "Slurm does not tell of every job: %s" % reason)
    return OK


def _format_time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds)) if seconds == seconds else "at an unknown time"


def _describe_failed(one: find_failed.Failed, root: str) -> List[str]:
    row, error = one.row, one.first_error
    when = _format_time(row.data["time_seconds"] if one.ended_seconds is None else one.ended_seconds)
    when = ("launched %s, its end was not recorded" if one.ended_seconds is None else "ended %s") % when
    verb = "status" if row.data["stack"] in STACKS else "runs"  # the other one knows nothing of it
    pairs = [("how", one.words)]
    if error is not None:
        pairs.append(("first error", "%s:%s  %s" % (error.log, error.line if error.line is not None else "byte %d" % error.offset,
                                                    error.text)))
    pairs += [("log", one.log or "unknown"), ("record", row.record),
              ("next", "%s %s" % (_name_program(), quote_words([verb, row.id, "--root", root])))]
    head = "%s \u00b7 %s \u00b7 %s \u00b7 %s on %s \u00b7 %s" % (
        row.kind or "unknown kind", os.path.basename(row.config) or "unknown config", row.experiment or "no name told",
        row.user or "unknown", row.data["host"] or "unknown", when)
    return [escape_controls(head)] + report.render_pairs(pairs)


def _name_program() -> str:
    """As other hints do; but this one is pasted from a mail, where PATH may be another than cron's."""
    words = shared.name_program()
    return quote_words(shared.list_program()) if words.startswith("python3 ") else words


def _describe_refused(one: refused.Refused) -> List[str]:
    said = one.said
    is_silent = said.code is None
    started = "started %s" % _format_time(said.started_seconds) if said.started_seconds is not None else "its start is not told"
    when = started if said.ended_seconds is None else _format_time(said.ended_seconds)
    why = "it ended without a word: no process %d of it is left on %s" % (said.pid, os.uname().nodename) if is_silent else \
        said.reason or "its log tells"
    code = "no exit code" if is_silent else "exit %s" % said.code
    head = "not launched \u00b7 %s \u00b7 by %s \u00b7 %s" % (code, one.user, when)
    return [escape_controls(head)] + report.render_pairs([
        ("why", why), ("command", said.command or "further up in its log than was read"), ("log", one.log)])


def _shape_refused(one: refused.Refused) -> Dict[str, Any]:
    said = one.said
    return {"pid": said.pid, "started_seconds": said.started_seconds, "ended_seconds": said.ended_seconds, "exit": said.code,
            "command": said.command or None, "error": said.reason or None, "log": one.log, "user": one.user}
