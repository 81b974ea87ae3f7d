"""`rlrun runs`: the launches recorded in this checkout, newest first; with an ID, one of them whole."""
import argparse
import json
import os
import time
from typing import Any, List, Tuple

from ..errors import OK, USAGE, OperatorError
from ..steps import orient, record, shapes
from ..text import report
from ..text import terminal as term
from ..text.durations import format_age, format_elapsed
from ..text.shell import escape_controls
from ..values import RunRow


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `runs`."""
    parser.add_argument("id", nargs="?", default="", metavar="ID", help="a record's id, or a part of it that is unique")
    parser.add_argument("--root", default="", metavar="DIR", help="the checkout (else around the working directory)")


def run(options: Any, terminal: term.Terminal, overrides: Tuple[str, ...]) -> int:
    """Lists, or shows one. Exit 0 also for an empty list; 2 for an id that names none or several."""
    checkout = orient.find_checkout(options.root, "")
    now = time.time()
    rows = [record.make_row(one, now) for one in record.list_records(checkout.root)]
    if options.id:
        return _show(_pick(rows, options.id), terminal)
    if terminal.is_json:
        term.print_result(terminal, json.dumps({"schema": 1, "command": "runs", "root": checkout.root,
                                                "runs": [shapes.shape_row(row) for row in rows]}, sort_keys=True))
    elif rows:
        table = [("STATE", "AGE", "KIND", "CONFIG", "NAME", "USER", "ID")]
        table += [(row.state, format_age(row.age_seconds), row.kind, os.path.basename(row.config), row.experiment or "not told",
                   row.user, row.id) for row in rows]
        term.print_result(terminal, escape_controls("\n".join(report.render_table(table)), "\n"))
    else:
        term.print_note(terminal, "no launch is recorded in %s" % checkout.root)
    return OK


def _pick(rows: List[RunRow], word: str) -> RunRow:
    found = [row for row in rows if row.id == word] or [row for row in rows if word in row.id]
    if len(found) != 1:
        listing = "\n".join("  %s" % row.id for row in (found or rows)[:20])
        raise OperatorError("%s\n%s" % ("%s is part of several ids:" % word if found else "no launch has the id %s; there are:"
                                        % word, listing or "  none"), "Name one.", USAGE, "id")
    return found[0]


def _show(row: RunRow, terminal: term.Terminal) -> int:
    data = row.data
    if terminal.is_json:
        shape = shapes.shape_row(row)
        shape.update(schema=1, command="runs", ended=data.get("exit"), link=data.get("link_result"), argv=data.get("argv"),
                     launch_command=data.get("launch_command"), trainer=data.get("trainer"), mode=data.get("mode"),
                     config_sha256=data.get("config_sha256"), warnings=data.get("verdict_warnings"))
        term.print_result(terminal, json.dumps(shape, sort_keys=True))
        return OK
    ended = data.get("exit") or {}
    runner = data.get("runner") or data.get("keeper") or {}
    pairs = [("state", row.state), ("launched", "%s UTC by %s on %s (%s)" % (data.get("time"), row.user, data.get("host"),
                                                                           format_age(row.age_seconds))),
             ("kind / config", "%s · %s" % (row.kind, row.config)), ("name", row.experiment or "not told"),
             ("plan", str(data.get("digest"))),
             ("runner", "pid %s, group %s" % (runner.get("pid"), runner.get("pgid") or runner.get("pid"))),
             ("launch log", str(data.get("launch_log"))), ("train log", str(data.get("train_log") or "not told")),
             ("record", row.record)]
    if ended:
        pairs.append(("lasted", format_elapsed(ended["duration_seconds"])))
        pairs.append(("peak memory", "%d MiB (the largest process that was waited for)" % (int(ended["max_rss_kib"]) >> 10)))
    link = data.get("link_result")
    if link:
        pairs.append(("board link", "%s %s %s" % (link.get("state"), link.get("path") or "", link.get("reason") or "")))
    if row.state == "running":
        pairs.append(("stop", "kill -INT -- -%s" % (runner.get("pgid") or runner.get("pid"))))
    lines = [row.id] + report.render_pairs(pairs)
    for name in ("command.txt", "git.txt"):
        try:
            with open(os.path.join(row.record, name), "rb") as file:
                lines += ["", name] + ["  " + escape_controls(line) for line in
                                       file.read(1 << 16).decode("utf-8", "replace").rstrip().split("\n")]
        except OSError:
            continue
    term.print_result(terminal, "\n".join(lines))
    return OK
