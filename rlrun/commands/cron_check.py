"""The check of a plan in the environment that cron will have: another rlrun, started there, is asked."""
import json
import os
import shutil
import tempfile
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .. import child
from ..errors import MACHINE, OperatorError
from ..steps import crontab, judge, moves, saved_plan, survey
from ..text.durations import write_duration
from ..text.redact import redact
from ..values import Check, Verdict

_REPORT_SECONDS = 60.0  # what a check needs beside the runner's own
_LOCALE = "LC_ALL=C.UTF-8"
TIMEOUT = "%.12g"


class Cron(NamedTuple):
    """What the check in cron's environment found. `moves`: how its plan differs from that of this shell; `saved`: the checkout's
    own copy of it, "" where there is none, for the reason `unsaved`; `until_seconds`: when that approval ends."""

    digest: str
    checks: Tuple[Check, ...]
    verdict: Verdict
    saved: str
    unsaved: str
    until_seconds: Optional[float]
    moves: Tuple[str, ...]


def check_as_cron(job: crontab.Job, found: survey.Survey, options: Any, secrets: Tuple[str, ...]) -> Tuple[Cron, crontab.Job]:
    """The plan as cron will find it, kept by `check --save` so that a difference can be told then. A Python that can name no
    such path in the C locale gets a locale."""
    shape, content = ask_check(job, found, options)
    if shape.get("reason") == "locale":
        job = job._replace(assignments=job.assignments + (_LOCALE,))
        shape, content = ask_check(job, found, options)
    if "checks" not in shape or not shape.get("digest"):
        raise OperatorError("in cron's environment: %s" % redact(str(shape.get("error") or "the check told no plan"), secrets),
                            str(shape.get("hint") or "Try it: env -i HOME=\"$HOME\" PATH=%s rlrun check …" % crontab.CRON_PATH),
                            int(shape.get("exit") or MACHINE), str(shape.get("reason") or "cron"))
    checks = tuple(Check(one["layer"], one["name"], one["status"], one["detail"], one["fix"] or "") for one in shape["checks"])
    moved: List[str] = []
    if shape["digest"] != found.fingerprint.digest:
        moved = moves.describe(moves.compare(saved_plan.make_content(found, secrets), content)) if content else ["unknown: %s" % (
            shape.get("error") or "it was not saved")]
    saved = shape.get("saved") or {}
    return Cron(shape["digest"], checks, judge.make_verdict(checks), str(saved.get("kept") or ""), str(saved.get("reason") or ""),
                saved.get("until_seconds"), tuple(moved)), job


def ask_check(job: crontab.Job, found: survey.Survey, options: Any) -> Tuple[Dict[str, Any], Optional[moves.Content]]:
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
        words += ["--dry-run-timeout", TIMEOUT % options.dry_run_timeout]
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
