"""What every command does that lets the runner check its config: the option, the waiting, the secrets. Imports little: the
sooner the dry run is under way, the sooner all is done."""
import argparse
import sys
import threading
from typing import Callable, Dict, Tuple

from ..steps import survey
from ..text import terminal as term
from ..values import Request

DRY_RUN_SECONDS = 300.0
_PROGRESS_SECONDS = 2.0


def add_timeout(parser: argparse.ArgumentParser) -> None:
    """--dry-run-timeout, of all commands that let the runner check its config."""
    parser.add_argument("--dry-run-timeout", type=parse_seconds, default=DRY_RUN_SECONDS, metavar="SECONDS",
                        help="limit of the runner's own check (default: %d)" % DRY_RUN_SECONDS)


def parse_seconds(word: str) -> float:
    """A number of seconds above 0, for argparse."""
    try:
        seconds = float(word)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e7:  # also nan
        raise argparse.ArgumentTypeError("%r is no number of seconds above 0" % word)
    return seconds


def survey_with_progress(request: Request, environ: Dict[str, str], timeout_seconds: float,
                         terminal: term.Terminal, meanwhile: Callable[[], None]) -> survey.Survey:
    """The survey, no secret in what is shown of it; at a terminal a line says after two seconds what is waited for.
    `meanwhile`: what can be done while the runner checks, such as importing what will be needed."""
    timer = threading.Timer(_PROGRESS_SECONDS, term.print_note, (terminal, "the runner checks its config (Ctrl-C ends that) …"))
    timer.daemon = True
    if sys.stderr is not None and sys.stderr.isatty():
        timer.start()
    try:
        return _hide_secrets(survey.survey(request, environ, timeout_seconds, meanwhile), environ)
    finally:
        timer.cancel()


def _hide_secrets(found: survey.Survey, environ: Dict[str, str]) -> survey.Survey:
    """Here and not where it is printed: there are many places that print a check."""
    from ..steps import judge
    from ..text.redact import redact
    secrets = collect_secrets(found, environ)
    look = tuple((label, redact(value, secrets)) for label, value in found.plan.second_look)
    return found._replace(verdict=judge.hide_secrets(found.verdict, secrets), plan=found.plan._replace(second_look=look))


def collect_secrets(found: survey.Survey, environ: Dict[str, str]) -> Tuple[str, ...]:
    """All values that must not be shown: of this environment, of the resolved one, and what the config spells out."""
    from ..text.redact import find_secrets
    values = set(found.plan.secrets) | set(find_secrets(environ)) | set(find_secrets(found.plan.environment))
    values |= set(survey.find_source_secrets(found.plan))
    return tuple(sorted(values, key=lambda value: (-len(value), value)))
