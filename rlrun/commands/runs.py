"""`rlrun runs`: the launches recorded in this checkout, newest first; with an ID, one of them whole."""
import argparse
import json
import os
import time
from typing import Any, List, Tuple

from ..errors import OK, USAGE, OperatorError
from ..stacks import STACKS, load_stack
from ..host import procs
from ..steps import jobs, joining, orient, readback, records, shapes
from ..text import report
from ..text import terminal as term
from ..text.durations import format_age, format_elapsed, parse_duration
from ..text.shell import escape_controls
from ..values import RunRow


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `runs`."""
    parser.add_argument("id", nargs="?", default="", metavar="ID", help="a record's id, or a part of it that is unique")
    parser.add_argument("--root", default="", metavar="DIR", help="the checkout (else around the working directory)")
    parser.add_argument("--failed-since", type=_parse_time, default=None, metavar="TIME", help="only what failed within the last "
                        "1d, say (or 1.5h, 90m), and why, and which unattended launches launched nothing; nothing at all where "
                        "nothing did, so that cron mails only what is wrong")
    parser.add_argument("--html", default="", metavar="FILE", help="write the list as one self-contained page to FILE")


def run(options: Any, terminal: term.Terminal, overrides: Tuple[str, ...]) -> int:
    """Lists, or shows one. Exit 0 also for an empty list; 2 for an id that names none or several."""
    if options.failed_since is not None and (options.id or options.html):
        raise OperatorError("--failed-since lists launches; it goes with neither an ID nor --html",
                            "rlrun runs --failed-since 24h, or with --json", USAGE, "usage")
    checkout = orient.find_checkout(options.root, "")
    now = time.time()
    if options.failed_since is not None:
        from .failed import list_failed
        return list_failed(checkout.root, options.failed_since, terminal)
    # What was handed to Slurm is asked for below, all at once.
    found = [one if one.get("is_submission") else readback.complete(one) for one in records.list_records(checkout.root)]
    if not found:
        from ..steps import hidden
        hidden.refuse_hidden(checkout.root)
    if options.id:  # only that one's jobs are asked for
        picked = _pick([records.make_row(one, now) for one in found], options.id)
        found = [one for one in found if one["record"] == picked.record]
    reason = jobs.ask_slurm(found, bool(options.id))
    found = [readback.complete(one) if one.get("is_submission") else one for one in found]
    if reason:
        term.print_note(terminal, "Slurm does not tell of every job: %s" % reason)
    is_needed = any(one["exit"] or options.id and one["notify"] for one in found)
    processes = procs.read_processes() if is_needed else {}
    for one in found:
        one["left"] = list(records.find_left(one, processes))
    rows = [_tell_left(_tell_joined(records.make_row(one, now))) for one in found]
    if options.id and options.html:
        raise OperatorError("--html shows the list, not one launch", "rlrun status %s --html FILE" % rows[0].id, USAGE, "usage")
    if options.id:
        return _show(rows[0], terminal, records.tell_notified(rows[0].data, processes))
    shape = {"schema": 1, "command": "runs", "root": checkout.root, "runs": [shapes.shape_row(row) for row in rows],
             "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))} if terminal.is_json or options.html else {}
    if options.html:
        from .. import about
        from ..text import page
        from .status import write_page
        write_page(options.html, page.render_runs_page(shape, about.VERSION), terminal)
    if terminal.is_json:
        term.print_result(terminal, json.dumps(shape, sort_keys=True))
    elif rows:
        table = [("STATE", "AGE", "KIND", "CONFIG", "NAME", "USER", "ID")]
        table += [(jobs.tell_states(row.data) if row.data.get("job_told") else row.state, format_age(row.age_seconds), row.kind,
                   os.path.basename(row.config), row.experiment or "not told", row.user, row.id) for row in rows]
        term.print_result(terminal, escape_controls("\n".join(report.render_table(table)), "\n"))
    else:
        term.print_note(terminal, "no launch is recorded in %s" % checkout.root)
    return OK


def _parse_time(word: str) -> float:
    """Seconds out of `24h`, for argparse."""
    try:
        seconds = parse_duration(word)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error))
    if not seconds:
        raise argparse.ArgumentTypeError("nothing can have failed within %r" % word)
    return seconds


def _tell_joined(row: RunRow) -> RunRow:
    return row._replace(state=joining.tell_state(row.data, row.state))


def _tell_left(row: RunRow) -> RunRow:
    left = row.data["left"]
    return row._replace(state="%s, %d of it live" % (row.state, len(left))) if left else row


def _pick(rows: List[RunRow], word: str) -> RunRow:
    found = [row for row in rows if row.id == word] or [row for row in rows if word in row.id]
    if len(found) != 1:
        listing = "\n".join("  %s" % row.id for row in (found or rows)[:20])
        raise OperatorError("%s\n%s" % ("%s is part of several ids:" % word if found else "no launch has the id %s; there are:"
                                        % word, listing or "  none"), "Name one.", USAGE, "id")
    return found[0]


def _tell_state(row: RunRow) -> str:
    """The state with all that Slurm tells of its jobs."""
    told = row.data.get("job_told") or {}
    from ..text.slurm_words import describe_job
    words = [(job, describe_job(told.get(job) or {})) for job in row.data["jobs"]]
    return "; ".join([row.state] + ["%s%s" % ("job %s: " % job if len(words) > 1 else "", one) for job, one in words if one])


def _show(row: RunRow, terminal: term.Terminal, notified: str = "") -> int:
    data = row.data
    if terminal.is_json:
        shape = shapes.shape_row(row)
        shape.update(schema=1, command="runs", ended=data["exit"] if not data["jobs"] else
                     None if data.get("live_jobs") else jobs.find_end(data), link=data["link_result"], argv=data["argv"],
                     launch_command=data["launch_command"] or None, trainer=data["trainer"], mode=data["mode"] or None,
                     config_sha256=data["config_sha256"] or None, warnings=data["verdict_warnings"],
                     notify={"argv": data["notify"], "events": data["notified"], "words": notified} if notified else None)
        term.print_result(terminal, json.dumps(shape, sort_keys=True))
        return OK
    # Of a run that Slurm has, the record's own end and process are sbatch's.
    ended = data["exit"] if not data["jobs"] else None if data.get("live_jobs") else jobs.find_end(data)
    runner = data["runner"] or data["keeper"] or {"pid": 0, "pgid": None}
    pid, group = runner["pid"], runner["pgid"] or runner["pid"]
    launched = "%s UTC by %s on %s (%s)" % (data["time"] or "unknown", row.user or "unknown", data["host"] or "unknown",
                                            format_age(row.age_seconds))
    pairs = [("state", _tell_state(row)), ("launched", launched),
             ("kind / config", "%s · %s" % (row.kind, row.config)), ("name", row.experiment or "not told"),
             ("plan", data["digest"] or "unknown"),
             ("runner", jobs.tell_runner(data) if data["jobs"] else
              "pid %d, group %d" % (pid, group) if pid else "none that is known"),
             ("launch log", data["launch_log"] or ("not begun" if data.get("submit_log") else "unknown")),
             ("train log", data["train_log"] or "not told"), ("record", row.record)]
    if ended:
        lasted, peak = ended["duration_seconds"], ended["max_rss_kib"]
        pairs.append(("lasted", "unknown" if lasted is None else format_elapsed(lasted)))
        if not data["jobs"]:
            pairs.append(("peak memory", "unknown" if peak is None else "%d MiB (the largest process that was waited for)"
                          % (peak >> 10)))
    link = data["link_result"]
    if link:
        pairs.append(("board link", "%s %s %s" % (link.get("state"), link.get("path") or "", link.get("reason") or "")))
    if notified:
        pairs.append(("notify", notified))
    if data["run_dir"]:
        pairs.append(("run dir", data["run_dir"]))
    nodes = jobs.tell_nodes(data)
    if nodes:
        pairs.append(("nodes", nodes))
    pairs += [("%s log" % name, path) for name, path in jobs.list_job_logs(data).items() if not name.startswith("job ")]
    if data["left"]:
        pairs.append(("left behind", "pids " + " ".join(map(str, data["left"][:20])) + (" …" if len(data["left"]) > 20 else "")))
    logs = data["facts"].get("job_logs") if isinstance(data.get("facts"), dict) else None
    for job in data["jobs"]:
        path = logs.get(job) if isinstance(logs, dict) else None
        pairs.append(("job log", path if isinstance(path, str) else "not told"))
    if data["left"]:  # nobody is there to end them in good order
        pairs.append(("stop", "kill -s TERM %s" % " ".join(map(str, data["left"]))))
    elif row.state == "running" or data.get("live_jobs") or records.is_other_host(data) and not ended:
        is_known = data["stack"] in STACKS
        stop = str(load_stack(data["stack"]).describe_stop(group, jobs.find_stop_facts(data))) if is_known else "unknown"
        is_there = records.is_other_host(data) and not data["jobs"]
        pairs.append(("stop", "on %s: %s" % (data["host"], stop) if is_there else stop))
    lines = [row.id] + report.render_pairs(pairs)
    for name in ("command.txt", "git.txt"):
        try:
            text = records.read_file(os.path.join(row.record, name), 1 << 16).decode("utf-8", "replace")
        except OSError:
            continue
        lines += ["", name] + ["  " + escape_controls(line) for line in text.rstrip().split("\n")]
    term.print_result(terminal, "\n".join(lines))
    return OK
