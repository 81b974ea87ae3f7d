"""`rlrun schedule`: the crontab line that launches a plan later, checked as cron will run it. Prints it; installs nothing."""
import argparse
import json
import os
import shutil
import tempfile
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .. import child
from ..errors import BLOCKED, MACHINE, NOT_CONFIRMED, OK, USAGE, OperatorError
from ..steps import confirm, crontab, judge, moves, records, saved_plan, survey, wait_free
from ..text import report
from ..text import terminal as term
from ..text.durations import format_elapsed, write_duration
from ..text.redact import redact, redact_words
from ..text.shell import escape_controls
from ..values import Check, Choices, Verdict
from . import checked, surveying
from . import options as shared
from .unattended import parse_time

_REPORT_SECONDS = 60.0  # what a check needs beside the runner's own
_LOCALE = "LC_ALL=C.UTF-8"
_TIMEOUT = "%.12g"


class _Cron(NamedTuple):
    """What the check in cron's environment found. `moves`: how its plan differs from that of this shell; `saved`: the checkout's
    own copy of it, "" where there is none, for the reason `unsaved`."""

    digest: str
    checks: Tuple[Check, ...]
    verdict: Verdict
    saved: str
    unsaved: str
    moves: Tuple[str, ...]


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
    parser.add_argument("--valid-for", type=parse_time, default=None, metavar="TIME", help="how long this approval is good for, "
                        "from now on (default: for ever)")
    parser.add_argument("--scope", action="store_true", help="launch in a scope of its own (systemd-run)")
    parser.add_argument("--notify", default="", metavar="COMMAND", help="run COMMAND at gate, stall and end of the run")
    parser.add_argument("--notify-shell", action="store_true", help="COMMAND is a line for sh, not words")


def run(options: Any, terminal: term.Terminal, overrides: Tuple[str, ...]) -> int:
    """Prints comment and line to stdout, all else to stderr. Exit 0 with a line; 1 where what blocks does not pass with time."""
    now = time.time()
    when = crontab.find_time(options.at, now, options.daily)
    if options.valid_for is not None and now + options.valid_for < when.seconds:
        raise OperatorError("--valid-for %s ends before the launch, which is in %s" % (
            format_elapsed(options.valid_for), format_elapsed(when.seconds - now)), "Make it longer, or leave it away.", USAGE,
            "time")
    where = shared.read_where(options, overrides)._replace(command="schedule")
    request = shared.find_request(where, terminal)
    environ = survey.read_operator_environment()
    found = surveying.survey_with_progress(request, environ, options.dry_run_timeout, terminal, lambda: None)
    secrets = surveying.collect_secrets(found, environ)
    _refuse_secrets(options, found, secrets)
    if wait_free.list_lasting(found.verdict):
        return _refuse_lasting(found.verdict, terminal, "")
    choices = Choices("", options.again or options.daily, "background", options.board, options.old_log)
    _refuse_questions(found, choices, options.daily)
    job, notes = _make_job(options, found, where, when)
    cron, job = _check_as_cron(job, found, options, secrets)
    if wait_free.list_lasting(cron.verdict):
        return _refuse_lasting(cron.verdict, terminal, " in cron's environment")
    _refuse_launched(found, cron, choices)
    _refuse_unsaved(found, cron, options)
    line = crontab.make_crontab_line(when, crontab.make_command(_confirm(job, cron.digest)))
    plan = found.plan
    comment = crontab.make_comment(when, cron.digest, plan.kind, (plan.config_shown,) + plan.more_configs)
    home, user = crontab.find_home()
    at_line = crontab.make_at_line(when, _confirm(job, cron.digest), crontab.make_environ(job, home, user, {}), "TZ" in environ)
    if not term.can_print("\n".join((comment, line, at_line))):
        raise OperatorError("the line has letters that this output can't take", "Set LC_ALL=C.UTF-8, and ask again.", MACHINE,
                            "locale")
    notes += _list_notes(found, cron, when, job, options)
    if terminal.is_json:
        term.print_result(terminal, json.dumps(_shape(found, cron, when, job, (comment, line, at_line), notes, secrets),
                                               sort_keys=True))
        return OK
    lines = _render(found, cron, when, at_line, notes, terminal, secrets, now)
    term.print_note(terminal, "\n".join(lines))
    term.print_result(terminal, "%s\n%s" % (comment, line))
    return OK


def _refuse_secrets(options: Any, found: survey.Survey, secrets: Tuple[str, ...]) -> None:
    """A crontab keeps what is in it, mails it, and cron shows it in the process table."""
    typed = tuple(found.plan.overrides)
    if redact_words(typed, secrets) != typed:
        raise OperatorError("what was typed holds a secret, and a crontab would keep it",
                            "Put it where the run reads it by itself: into the config, or a file that only you can read.", USAGE,
                            "secret")
    if redact(options.notify, secrets) != options.notify:
        raise OperatorError("--notify holds a secret, and a crontab would keep it (an address that anybody may write to is one)",
                            "Put it into a script of your own that only you can read (chmod 700), and name that: --notify SCRIPT",
                            USAGE, "secret")


def _refuse_lasting(verdict: Verdict, terminal: term.Terminal, where: str) -> int:
    """Blocked, and not by what will have passed."""
    lasting = wait_free.list_lasting(verdict)
    error = OperatorError("nothing to schedule%s: %s" % (where, "; ".join("%s  %s" % (one.name, one.detail) for one in lasting)),
                          lasting[0].fix or "Mend it, then ask again.", BLOCKED, lasting[0].name)
    error.shape = {"verdict": "NO", "blocking": list(verdict.blocking), "line": None}
    raise error


def _refuse_questions(found: survey.Survey, choices: Choices, is_daily: bool) -> None:
    """What `run` would ask, cron can't be asked. A name that is the same every day finds its own log there the second time."""
    plan = found.plan
    options = [one.option for one in confirm.find_questions(plan, found.board, found.is_visible, choices)]
    if is_daily and plan.train_log and not plan.name_is_volatile and not choices.old_log:
        options.append("--old-log keep|lose")
    if options:
        raise OperatorError("cron can't be asked, and this is unanswered: %s" % ", ".join(dict.fromkeys(options)),
                            "Give the answer here; it goes into the line.", NOT_CONFIRMED, "unanswered")


def _refuse_launched(found: survey.Survey, cron: _Cron, choices: Choices) -> None:
    earlier = None if choices.again else records.find_launched(found.plan.root, cron.digest)
    if earlier:
        raise OperatorError("plan %s was launched already (%s); cron's launch would be refused" % (
            cron.digest, escape_controls(earlier["id"])), "To launch it once more: --again", NOT_CONFIRMED, "again")


def _refuse_unsaved(found: survey.Survey, cron: _Cron, options: Any) -> None:
    """How long an approval is good for is in the saved plan alone."""
    if options.valid_for is not None and not cron.saved:
        raise OperatorError("--valid-for %s would be lost: the plan could not be kept in the checkout (%s)" % (
            format_elapsed(options.valid_for), escape_controls(cron.unsaved) or "why is not known"),
            "Leave it away; or have %s made a folder that you can write to." % escape_controls(
                os.path.join(found.plan.root, records.FOLDER, records.PLANS)), MACHINE, "save")


def _make_job(options: Any, found: survey.Survey, where: shared.Where, when: crontab.When) -> Tuple[crontab.Job, List[str]]:
    """What cron is to run, with a digest to fill in, and what was done to PATH; refused where no crontab can hold it."""
    plan, notes, timeout = found.plan, [], _TIMEOUT % options.dry_run_timeout
    words = ["run"] + _list_config(where, found) + ["--confirm", ""]
    words += ["--again"] if options.again or options.daily else []
    words += ["--scope"] if options.scope else []
    for option, value in (("--board", options.board), ("--old-log", options.old_log), ("--notify", options.notify),
                          ("--wait-free", "" if options.wait_free is None else write_duration(options.wait_free)),
                          ("--dry-run-timeout", timeout if timeout != _TIMEOUT % surveying.DRY_RUN_SECONDS else "")):
        words += [option, value] if value else []
    words += (["--notify-shell"] if options.notify_shell else []) + ["--quiet-unless-failed"]
    words += ["--"] + list(plan.overrides) if plan.overrides else []
    entries = crontab.list_path(os.environ.get("PATH", crontab.CRON_PATH)) or crontab.list_path(crontab.CRON_PATH)
    job = crontab.Job(plan.root, ":".join(entries), tuple(plan.from_environ), crontab.find_python(),
                      os.path.abspath(shared.list_program()[-1]), tuple(words))
    crontab.refuse_words(job)
    try:
        crontab.make_crontab_line(when, crontab.make_command(_confirm(job, "0" * 8)))
    except OperatorError:
        job = job._replace(path=":".join(crontab.shorten_path(entries, plan.python)))
        crontab.make_crontab_line(when, crontab.make_command(_confirm(job, "0" * 8)))
        notes.append("PATH is shorter in it than here, or the line would be too long for cron: %s" % job.path)
    return job, notes


def _list_config(where: shared.Where, found: survey.Survey) -> List[str]:
    """The words that name config, kind and runner, from the checkout's own folder."""
    words = [os.path.join(found.plan.root, word) if word.startswith("-") else word
             for word in (found.plan.config_shown,) + found.plan.more_configs]
    for option, value in (("--kind", where.kind), ("--runner", where.runner)):
        words += [option, value] if value else []
    return words + (["--drop-env"] if where.drop_env else [])


def _confirm(job: crontab.Job, value: str) -> crontab.Job:
    place = job.words.index("--confirm") + 1
    return job._replace(words=job.words[:place] + (value,) + job.words[place + 1:])


def _check_as_cron(job: crontab.Job, found: survey.Survey, options: Any, secrets: Tuple[str, ...]) -> Tuple[_Cron, crontab.Job]:
    """The plan as cron will find it, kept by `check --save` so that a difference can be told then. A Python that can name no
    such path in the C locale gets a locale."""
    shape, content = _ask_check(job, found, options)
    if shape.get("reason") == "locale":
        job = job._replace(assignments=job.assignments + (_LOCALE,))
        shape, content = _ask_check(job, found, options)
    if "checks" not in shape or not shape.get("digest"):
        raise OperatorError("in cron's environment: %s" % redact(str(shape.get("error") or "the check told no plan"), secrets),
                            str(shape.get("hint") or "Try it: env -i HOME=\"$HOME\" PATH=%s rlrun check …" % crontab.CRON_PATH),
                            int(shape.get("exit") or MACHINE), str(shape.get("reason") or "cron"))
    checks = tuple(Check(one["layer"], one["name"], one["status"], one["detail"], one["fix"] or "") for one in shape["checks"])
    moved: List[str] = []
    if shape["digest"] != found.fingerprint.digest:
        moved = moves.describe(moves.compare(saved_plan.make_content(found, secrets), content)) if content else ["unknown: %s" % (
            shape.get("error") or "it was not saved")]
    kept, unsaved = [str((shape.get("saved") or {}).get(name) or "") for name in ("kept", "reason")]
    return _Cron(shape["digest"], checks, judge.make_verdict(checks), kept, unsaved, tuple(moved)), job


def _ask_check(job: crontab.Job, found: survey.Survey, options: Any) -> Tuple[Dict[str, Any], Optional[moves.Content]]:
    """The object of `check --json` in cron's environment, and the plan that it saved."""
    try:
        folder = tempfile.mkdtemp(prefix="rlrun-schedule-")
    except OSError as error:
        raise OperatorError("no temporary folder could be made: %s" % error.strerror, "Free some room, or set TMPDIR.", MACHINE,
                            "tmp")
    shape: Dict[str, Any] = {}
    try:
        saved = os.path.join(folder, "plan.json")
        place = job.words.index("--confirm")
        words = [job.python, job.program, "check"] + list(job.words[1:place]) + ["--json", "--save", saved]
        words += ["--dry-run-timeout", _TIMEOUT % options.dry_run_timeout]
        words += ["--valid-for", write_duration(options.valid_for)] if options.valid_for is not None else []
        words += ["--"] + list(found.plan.overrides) if found.plan.overrides else []
        home, user = crontab.find_home()
        outcome = child.run(words, options.dry_run_timeout + _REPORT_SECONDS, cwd=job.root,
                            env=crontab.make_environ(job, home, user, crontab.read_pam_environ()))
        shape = _read_object(outcome.output)
        if not shape:
            shape = {"error": "the check %s: %s" % (child.describe(outcome), outcome.errors.decode("utf-8", "replace")[-500:])}
        return shape, saved_plan.read_plan(saved).content
    except (OSError, ValueError) as error:  # nothing was saved, and why is in the shape
        return shape or {"error": "the check could not be run: %s" % error}, None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _read_object(data: bytes) -> Dict[str, Any]:
    try:
        found = json.loads(data.decode("utf-8", "replace"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _list_notes(found: survey.Survey, cron: _Cron, when: crontab.When, job: crontab.Job, options: Any) -> List[str]:
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
    if not cron.saved:
        notes.append("the plan could not be kept in the checkout (%s); if it differs then, what moved is not told"
                     % (cron.unsaved or "why is not known"))
    return notes


def _shape(found: survey.Survey, cron: _Cron, when: crontab.When, job: crontab.Job, lines: Tuple[str, str, str], notes: List[str],
           secrets: Tuple[str, ...]) -> Dict[str, Any]:
    plan = found.plan
    return {"schema": 1, "command": "schedule", "stack": plan.stack, "kind": plan.kind, "config": plan.config_shown,
            "configs": [plan.config_shown] + list(plan.more_configs), "root": plan.root, "digest": cron.digest,
            "digest_here": found.fingerprint.digest, "moved": list(cron.moves),
            "verdict": "NO" if cron.verdict.blocking else "YES", "blocking": list(cron.verdict.blocking),
            "warnings": list(cron.verdict.warnings), "saved": cron.saved or None, "at": "%04d-%02d-%02dT%02d:%02d" % when[:5],
            "at_seconds": int(when.seconds), "daily": when.is_daily, "zone": when.zone,
            "comment": lines[0], "line": lines[1], "at_line": lines[2], "path": job.path, "python": job.python,
            "program": job.program, "notes": [redact(note, secrets) for note in notes]}


def _render(found: survey.Survey, cron: _Cron, when: crontab.When, at_line: str, notes: List[str], terminal: term.Terminal,
            secrets: Tuple[str, ...], now_seconds: float) -> List[str]:
    plan = found.plan
    lines = [report.render_title("schedule", plan, cron.digest), ""]
    lines += checked.summarise(found._replace(verdict=cron.verdict), terminal)
    lines.append("(as of now, in cron's environment; the machine is judged anew at the launch, and a NO then launches nothing)")
    lines += ["", report.render_block(plan, secrets)] if plan.block else []
    lines += ["", "When        %s" % crontab.describe_time(when, now_seconds),
              "Launches    plan %s and no other: if it has changed by then, nothing is launched" % cron.digest,
              "Install     crontab -e, and put both lines there; nothing was installed%s" % (
                  "" if when.is_daily else ". Take them out again after it: they launch in %d alone" % when.year),
              "Or by at    %s" % at_line,
              "Told        nothing where it was launched; else one line, which cron mails if this node has a mailer (%s)"
              % ("it has one" if shutil.which("sendmail", path="/usr/sbin:/usr/lib:/usr/bin") else "none is here"),
              "Kept        %s" % os.path.join(plan.root, "logs", "rlrun", "unattended.log"),
              "Next day    %s runs --failed-since 24h" % shared.name_program()]
    if notes:
        lines += ["", "Note"] + ["  \u2022 %s" % escape_controls(redact(note, secrets)) for note in notes]
    return lines + [""]
