"""`rlrun status`: which run, how far, how healthy, how it ended. Read-only: nothing is killed, written or waited for."""
import argparse
import json
import os
import stat
import time
from typing import Any, List, Optional, Tuple

from ..errors import BLOCKED, OK, RUN_ENDED, USAGE, OperatorError
from ..host import procs
from ..stacks import load_recognisers
from ..steps import ended, examine, find_run, gather, jobs, joining
from ..text import terminal as term
from ..text import vitals_report
from ..vitals import Status, Target


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `status`."""
    add_run_arguments(parser)
    parser.add_argument("--html", default="", metavar="FILE", help="write one self-contained page with curves to FILE")


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """What `status`, `gate`, `watch` and `logs` share: which run."""
    parser.add_argument("run", nargs="?", default="", metavar="RUN",
                        help="an id or a part of it, an experiment, a log, a run directory, a pid; default: the live run")
    parser.add_argument("--root", default="", metavar="DIR", help="the checkout (else around the working directory)")


def run(options: Any, terminal: term.Terminal, overrides: Tuple[str, ...]) -> int:
    """Prints the report. Exit 0: healthy, starting, or ended well; 1: at risk, worse or unknown; 4: ended badly; 2: several."""
    target = pick_target(options.run, options.root, terminal)
    query = _ask_gpus(target)
    is_all = bool(options.html) or terminal.is_json
    evidence = gather.read_evidence(target, gather.PAGE_POINTS if is_all else gather.REPORT_POINTS)
    secrets = collect_secrets(target)
    status = examine.examine(target, evidence, time.time(), secrets, joining.look(target, evidence, time.time(), secrets))
    code = pick_code(status)
    status = hide_secrets(status)
    if terminal.is_json or options.html:
        _print_shape(status, code, options.html, terminal)
    if not terminal.is_json:
        lines = vitals_report.render_status(terminal, status, load_title(target.stack), find_rows(status, query),
                                            term.measure_columns())
        term.print_result(terminal, "\n".join(lines))
    return code


def _print_shape(status: Status, code: int, html: str, terminal: term.Terminal) -> None:
    from ..steps import shape_status
    shape = shape_status.shape_status(status, load_title(status.target.stack), find_run.find_stop(status.target), code,
                                      collect_secrets(status.target))
    record = status.target.record or {}
    if status.target.jobs:
        shape["run"]["job_details"] = record.get("job_told") or {}
        shape["run"]["nodes"] = jobs.shape_nodes(record)
    if html:
        from .. import about
        from ..text import page
        write_page(html, page.render_status_page(shape, about.VERSION), terminal)
    if terminal.is_json:
        term.print_result(terminal, json.dumps(shape, sort_keys=True))


def write_page(path: str, text: str, terminal: term.Terminal) -> None:
    """Writes a page that was asked for, whole or not at all; over an earlier page of that name, never over anything else.
    Says where it is.
    OperatorError: exit 5 where it can't be written, exit 2 where the file is no page of ours."""
    from ..steps import record
    mark = b'<meta name="generator" content="rlrun">'  # text/markup.py writes it
    try:
        if os.path.lexists(path):
            if not stat.S_ISREG(os.stat(path).st_mode):
                raise OperatorError("%s is there, and is no file" % path, "Name another file.", USAGE, "html")
            with open(path, "rb") as file:
                head = file.read(4096)
            if mark not in head:
                raise OperatorError("%s is there, and is no page of rlrun's" % path, "Name another file.", USAGE, "html")
        record.write_file(os.path.realpath(path), text)
        term.print_note(terminal, "the page is at %s" % os.path.realpath(path))
    except OSError as error:
        raise OperatorError("can't write %s: %s" % (path, os.strerror(error.errno or 0)),
                            "Name a file in a folder that you may write to: --html FILE", 5, "html")


def pick_target(word: str, root_option: str, terminal: term.Terminal, command: str = "status") -> Target:
    """The run that is meant; several are listed: at a terminal with a question, elsewhere with exit 2. `command`: the one that
    asks, for the hint."""
    scene = find_run.read_scene(find_root(root_option))
    found = find_run.find_run(word, scene, command == "gate")
    if found.target is not None:
        return found.target
    rows = vitals_report.render_candidates(found.candidates, scene.now_seconds)
    if not terminal.is_interactive:
        from ..steps.shape_status import shape_candidate
        error = OperatorError("\n".join([found.message] + rows), "Name one: rlrun %s ID, or a pid." % command, USAGE, "several")
        error.shape = {"candidates": [shape_candidate(one) for one in found.candidates]}
        raise error
    term.print_error(terminal, "\n".join([found.message] + rows))
    for _ in range(2):
        line = term.ask(terminal, "Which one? [1-%d] " % len(rows))
        if line is None or not line.strip():
            break
        if line.strip().isdecimal() and 1 <= int(line) <= len(rows):
            return found.candidates[int(line) - 1]
    raise OperatorError("no run was chosen", "Name one on the command line.", USAGE, "several")


def find_root(root_option: str) -> str:
    """The checkout by --root or around the working directory, "" for none: a log can be read without one."""
    from ..steps import orient
    try:
        return orient.find_checkout(root_option, "").root
    except OperatorError:
        if root_option:
            raise
        return ""


def load_title(stack: str) -> str:
    """The name that people use for a training system."""
    return str(load_recognisers()[stack].TITLE)


def pick_code(status: Status) -> int:
    """0 healthy, starting or ended well; 1 at risk or worse, or nothing can be told; 4 ended badly."""
    if status.ending is not None:
        return OK if status.ending.how in ended.GOOD_ENDS else RUN_ENDED
    return BLOCKED if status.verdict in (examine.AT_RISK, examine.STOP, examine.UNKNOWN) else OK


def collect_secrets(target: Target) -> Tuple[str, ...]:
    """The secrets that this environment and, where it may be read, the run's own hold: for taking them out of quotes."""
    from ..host.files import read_head
    from ..text.redact import find_assigned_secrets, find_secrets
    environ = dict(os.environ)
    for _, pid in target.pids[:2]:
        environ.update(procs.read_environ(pid) or {})
    found = find_secrets(environ)
    record = target.record or {}
    paths = [record.get("config_path")] + [os.path.join(target.root, str(one)) for one in record.get("more_configs") or ()]
    for path in paths:  # what the config spells out; its copy in the record has it replaced
        if isinstance(path, str) and path:
            found += find_assigned_secrets(read_head(path, 1 << 20).decode("utf-8", "replace"))
    return tuple(sorted(set(found), key=lambda value: (-len(value), value)))


def hide_secrets(status: Status) -> Status:
    """The Status with all that logs have said freed of secrets."""
    quotes = list(status.errors) + [quote for one in status.findings for quote in one.quotes]
    if status.ending is None and not quotes and not status.stage:
        return status
    from ..text.redact import redact
    secrets = collect_secrets(status.target)

    def clean(quote: Any) -> Any:
        return quote._replace(text=redact(quote.text, secrets)) if quote is not None else None
    ending = status.ending
    if ending is not None:
        ending = ending._replace(words=redact(ending.words, secrets), first_error=clean(ending.first_error))
    findings = tuple(one._replace(words=redact(one.words, secrets), quotes=tuple(map(clean, one.quotes)))
                     for one in status.findings)
    return status._replace(
        conclusion=redact(status.conclusion, secrets), stage=redact(status.stage, secrets), ending=ending, findings=findings,
        errors=tuple(map(clean, status.errors)), notes=tuple(redact(note, secrets) for note in status.notes),
        recommendations=tuple(redact(words, secrets) for words in status.recommendations))


def _ask_gpus(target: Target) -> Optional[Any]:
    """nvidia-smi is asked while the logs are read; not at all where it is not there."""
    import shutil
    if target.state != "live" or not target.pids or not shutil.which("nvidia-smi"):
        return None
    from ..host import gpus
    return gpus.start_query()


def find_rows(status: Status, query: Optional[Any] = None) -> List[Tuple[str, str]]:
    """What the report shows beside the Status: GPUs in use (`query`: nvidia-smi, asked before), trials, the stop command."""
    target = status.target
    extra: List[Tuple[str, str]] = []
    if query is not None:
        from ..host import gpus
        reading = gpus.finish_query(query)
        used = [one for one in reading.gpus if (one.used_mib or 0) > 2000]
        busy = [one.utilization_percent for one in used if one.utilization_percent is not None]
        extra.append(("gpus", "GPUs in use: %d%s" % (len(used), " (%d %% busy)" % (sum(busy) / len(busy)) if busy else "")
                      if reading.state == "ok" else "GPUs unknown: nvidia-smi %s" % reading.state))
    count = examine.count_trials(target, status.outline)
    if count is not None:
        beside = " and its %d sibling directories" % len(target.siblings) if target.siblings else ""
        extra.append(("trials", "%d in %s%s" % (count, status.outline.trials or "its directory", beside)))
    stop = find_run.find_stop(target)
    is_ours = not target.user or target.user == procs.user_name(os.geteuid())
    if stop:
        extra.append(("stop", stop if is_ours else "%s's: ask %s (%s)" % (target.user, target.user, stop)))
    return extra
