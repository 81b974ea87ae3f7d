"""`rlrun schedule`: the crontab line that launches a plan later, checked as cron will run it. Prints it; installs nothing."""
import argparse
import json
import os
import shutil
import time
from typing import Any, Dict, List, NamedTuple, Tuple

from ..errors import MACHINE, OK, OperatorError
from ..steps import cron_time, crontab, survey
from ..text import report
from ..text import terminal as term
from ..text.durations import write_duration
from ..text.redact import find_secrets, redact
from ..text.shell import escape_controls
from ..values import Choices
from . import checked, cron_refusals, surveying
from . import options as shared
from .cron_check import TIMEOUT, Cron, check_as_cron
from .unattended import parse_time


class _Lines(NamedTuple):
    """What is to be pasted. `at`: "" where no line for at can be had, for the reason `no_at`; `until`: when the approval ends,
    "" if never; `failed` and `failed_line` list what failed, in a shell and in a crontab."""

    comment: str
    line: str
    at: str
    no_at: str
    until: str
    failed: str
    failed_line: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `schedule`: when, and those of `run` that answer what cron can't be asked."""
    shared.add_where(parser)
    surveying.add_timeout(parser)
    parser.add_argument("--at", required=True, metavar="TIME", help="02:00: the next time that it comes; or '2026-12-01 02:00'; "
                        "by the machine's own zone, as cron has it")
    parser.add_argument("--daily", action="store_true", help="every day at that time, the same plan again and again")
    parser.add_argument("--again", action="store_true", help="a plan that was launched already")
    parser.add_argument("--board", choices=("link", "leave"), default="", help="where the board would not show this run")
    parser.add_argument("--old-log", choices=("keep", "lose"), default="", help="where the launch truncates an earlier run's log")
    parser.add_argument("--wait-free", type=parse_time, default=None, metavar="TIME", help="from then on, wait so long for a "
                        "free machine: 6h")
    parser.add_argument("--valid-for", type=_parse_validity, default=None, metavar="TIME", help="how long this approval is good "
                        "for, from now on (default: for ever)")
    parser.add_argument("--scope", action="store_true", help="launch in a scope of its own (systemd-run)")
    parser.add_argument("--notify", default=None, metavar="COMMAND", help="run COMMAND at gate, stall and end of the run")
    parser.add_argument("--notify-shell", action="store_true", help="COMMAND is a line for sh, not words")


def _parse_validity(word: str) -> float:
    """Seconds out of `12h`, for argparse, in the words of `check`."""
    seconds = parse_time(word)
    if not seconds:
        raise argparse.ArgumentTypeError("nothing can be launched within %r" % word)
    return seconds


def run(options: Any, terminal: term.Terminal, overrides: Tuple[str, ...]) -> int:
    """Prints comment and line to stdout, all else to stderr. Exit 0 with a line; 1 where what blocks does not pass with time."""
    now = time.time()
    when = cron_time.find_time(options.at, now, options.daily)
    cron_refusals.refuse_short(options, when, now)
    where = shared.read_where(options, overrides)._replace(command="schedule")
    request = shared.find_request(where, terminal)
    crontab.refuse_unwritable(request.checkout.root)
    entries = crontab.list_path(os.environ.get("PATH", crontab.CRON_PATH)) or crontab.list_path(crontab.CRON_PATH)
    _settle(options, ":".join(entries), find_secrets(os.environ))  # before the checks, which take a while
    environ = survey.read_operator_environment()
    found = surveying.survey_with_progress(request, environ, options.dry_run_timeout, terminal, lambda: None)
    secrets = surveying.collect_secrets(found, environ)
    cron_refusals.refuse_secrets(options, found, secrets)
    cron_refusals.refuse_lasting(found.verdict, "")
    choices = Choices("", options.again or options.daily, "background", options.board, options.old_log)
    cron_refusals.refuse_questions(found, choices, options.daily)
    job, notes = _make_job(options, found, where, when, entries, secrets)
    cron, job = check_as_cron(job, found, options, secrets)
    cron_refusals.refuse_lasting(cron.verdict, " in cron's environment")
    cron_refusals.refuse_launched(found, cron, choices)
    cron_refusals.refuse_unsaved(found, cron, options)
    job = crontab.fill_digest(job, cron.digest)
    lines = _make_lines(found, cron, when, job, "TZ" in environ, secrets)
    if not term.can_print("\n".join((lines.comment, lines.line, lines.at, lines.failed))):
        raise OperatorError("the line has letters that this output can't take", "Set LC_ALL=C.UTF-8, and ask again.", MACHINE,
                            "locale")
    notes += _list_notes(found, cron, when, job, lines, options)
    if terminal.is_json:
        term.print_result(terminal, json.dumps(_shape(found, cron, when, job, lines, notes, options, secrets), sort_keys=True))
        return OK
    term.print_note(terminal, "\n".join(_render(found, cron, when, lines, notes, terminal, secrets, now)))
    term.print_result(terminal, "%s\n%s" % (lines.comment, lines.line))
    return OK


def _settle(options: Any, path: str, secrets: Tuple[str, ...]) -> str:
    """The words of --notify for the line; what --notify and --scope would be refused for in cron's environment is refused now.
    `path`: its PATH."""
    home, user = crontab.find_home()
    environ = crontab.make_environ(crontab.Job("", path, (), "", "", ()), home, user, crontab.read_pam_environ())
    if options.scope:
        cron_refusals.refuse_scope(environ)
    return cron_refusals.settle_notify(options, environ, secrets)


def _make_lines(found: survey.Survey, cron: Cron, when: cron_time.When, job: crontab.Job, has_zone: bool,
                secrets: Tuple[str, ...]) -> _Lines:
    """All that is to be pasted; refused where it is too long for cron. `has_zone`: TZ is set here."""
    plan = found.plan
    until = "" if cron.until_seconds is None else cron_time.format_time(cron.until_seconds)
    line = crontab.make_crontab_line(when, crontab.make_command(job))
    comment = crontab.make_comment(when, cron.digest, plan.kind, (plan.config_shown,) + plan.more_configs, until)
    home, user = crontab.find_home()
    pam = crontab.read_pam_environ()
    environ, no_at = crontab.make_at_environ(crontab.make_environ(job, home, user, pam), pam, secrets)
    at = "" if no_at else crontab.make_at_line(when, job, environ, has_zone)
    return _Lines(comment, line, at, no_at, until, *crontab.make_failed_lines(job))


def _make_job(options: Any, found: survey.Survey, where: shared.Where, when: cron_time.When, entries: Tuple[str, ...],
              secrets: Tuple[str, ...]) -> Tuple[crontab.Job, List[str]]:
    """What cron is to run, with a digest to fill in, and what was done to PATH, of these entries; refused where no crontab can
    hold its words. Whether it is too long in the end is seen when the digest is known: the hint has it then."""
    plan, notes, timeout = found.plan, [], TIMEOUT % options.dry_run_timeout
    notify = _settle(options, ":".join(entries), secrets)
    words = ["run"] + _list_config(where, found) + ["--confirm", ""]
    words += ["--again"] if options.again or options.daily else []
    words += ["--scope"] if options.scope else []
    for option, value in (("--board", options.board), ("--old-log", options.old_log), ("--notify", notify),
                          ("--wait-free", "" if options.wait_free is None else write_duration(options.wait_free)),
                          ("--dry-run-timeout", timeout if timeout != TIMEOUT % surveying.DRY_RUN_SECONDS else "")):
        words += [option, value] if value else []
    words += (["--notify-shell"] if options.notify_shell else []) + ["--quiet-unless-failed"]
    words += ["--"] + list(plan.overrides) if plan.overrides else []
    job = crontab.Job(plan.root, ":".join(entries), crontab.list_assignments(plan, os.environ), crontab.find_python(),
                      os.path.abspath(shared.list_program()[-1]), tuple(words))
    crontab.refuse_words(job)
    try:
        crontab.make_crontab_line(when, crontab.make_command(crontab.fill_digest(job, "0" * 8)))
    except OperatorError:
        job = job._replace(path=":".join(crontab.shorten_path(entries, plan.python)))
        _settle(options, job.path, secrets)
        notes.append("PATH is shorter in it than here, or the line would be too long for cron: %s" % job.path)
    return job, notes


def _list_config(where: shared.Where, found: survey.Survey) -> List[str]:
    """The words that name config, kind and runner, from the checkout's own folder."""
    words = [os.path.join(found.plan.root, word) if word.startswith("-") else word
             for word in (found.plan.config_shown,) + found.plan.more_configs]
    for option, value in (("--kind", where.kind), ("--runner", where.runner)):
        words += [option, value] if value else []
    return words + (["--drop-env"] if where.drop_env else []) + shared.name_slurm(where, found.plan)


def _list_notes(found: survey.Survey, cron: Cron, when: cron_time.When, job: crontab.Job, lines: _Lines,
                options: Any) -> List[str]:
    """What the operator should know of this line, beside what it does."""
    notes = list(when.notes)
    for path in (job.program, job.python):
        weak = crontab.find_weak(path)
        if weak:
            notes.append("%s: cron would run whatever lies at %s then; keep it in a folder of your own" % (weak, path))
    if cron.moves:
        notes.append("cron's environment gives another plan than this shell (%s here, %s there), and the line is for cron's: %s"
                     % (found.fingerprint.digest, cron.digest, "; ".join(one.strip() for one in cron.moves[:8])))
    known = {one.name for one in found.verdict.checks}
    notes += ["in cron's environment alone: %s  %s" % (one.name, one.detail) for one in cron.checks
              if one.status == "advisory" and one.name not in known]
    if found.plan.has_board and found.plan.train_log and not options.board:
        notes.append("the board would show it now; if it does not then, nothing is launched: --board leave answers for that")
    if cron.verdict.blocking and options.wait_free is None:
        notes.append("what is in the way now (%s) may be there then too, and nothing would be launched (exit 1): --wait-free 6h "
                     "waits for that" % ", ".join(cron.verdict.blocking))
    if lines.until and when.is_daily:
        notes.append("--valid-for ends it: from %s on every launch is refused (exit 3), until it is scheduled anew" % lines.until)
    if not cron.saved:
        notes.append("the plan could not be kept in the checkout (%s); if it differs then, what moved is not told"
                     % (cron.unsaved or "why is not known"))
    return notes


def _shape(found: survey.Survey, cron: Cron, when: cron_time.When, job: crontab.Job, lines: _Lines, notes: List[str],
           options: Any, secrets: Tuple[str, ...]) -> Dict[str, Any]:
    plan = found.plan
    return {"schema": 1, "command": "schedule", "stack": plan.stack, "kind": plan.kind, "config": plan.config_shown,
            "configs": [plan.config_shown] + list(plan.more_configs), "root": plan.root, "digest": cron.digest,
            "digest_here": found.fingerprint.digest, "moved": list(cron.moves),
            "verdict": "NO" if cron.verdict.blocking else "YES", "blocking": list(cron.verdict.blocking),
            "warnings": list(cron.verdict.warnings), "saved": cron.saved or None, "at": "%04d-%02d-%02dT%02d:%02d" % when[:5],
            "at_seconds": int(when.seconds), "daily": when.is_daily, "zone": when.zone,
            "valid_seconds": options.valid_for, "until_seconds": cron.until_seconds,
            "comment": lines.comment, "line": lines.line, "at_line": lines.at or None, "failed_command": lines.failed,
            "failed_line": lines.failed_line, "path": job.path, "python": job.python, "program": job.program,
            "notes": [redact(note, secrets) for note in notes]}


def _render(found: survey.Survey, cron: Cron, when: cron_time.When, ready: _Lines, notes: List[str], terminal: term.Terminal,
            secrets: Tuple[str, ...], now_seconds: float) -> List[str]:
    plan = found.plan
    lines = [report.render_title("schedule", plan, cron.digest), ""]
    lines += checked.summarise(found._replace(verdict=cron.verdict), terminal)
    lines.append("(as of now, in cron's environment; the machine is judged anew at the launch, and a NO then launches nothing)")
    lines += ["", report.render_block(plan, secrets)] if plan.block else []
    lines += ["", "When        %s" % cron_time.describe_time(when, now_seconds),
              "Launches    plan %s and no other: if it has changed by then, nothing is launched" % cron.digest]
    lines += ["Good until  %s; then nothing is launched any more" % ready.until] if ready.until else []
    lines += ["Install     crontab -e, and put both lines there; nothing was installed%s" % (
                  "" if when.is_daily else ". Take them out again after it: they launch in %d alone" % when.year),
              "Or by at    %s" % (ready.at or "no line can be had: %s" % escape_controls(ready.no_at)),
              "Told        nothing where it was launched; else one line, which cron mails if this node has a mailer (%s)"
              % ("it has one" if shutil.which("sendmail", path="/usr/sbin:/usr/lib:/usr/bin") else "none is here"),
              "Kept        %s" % os.path.join(plan.root, "logs", "rlrun", "unattended.log"),
              "Next day    %s" % ready.failed, "By cron     %s" % ready.failed_line]
    if notes:
        lines += ["", "Note"] + ["  \u2022 %s" % escape_controls(redact(note, secrets)) for note in notes]
    return lines + [""]
