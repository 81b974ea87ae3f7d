"""Step 2, first half: the runner checks its own config, once, and changes nothing."""
import os
import shutil
import time
from typing import Dict, NamedTuple, Optional, Tuple

from .. import child
from ..errors import MACHINE, OperatorError
from ..host import python_env
from ..stacks import load_stack
from ..values import Outcome, Plan, Preflight, Request

# What decides which modules an interpreter finds.
_PYTHON_NAMES = ("PATH", "PYTHONPATH", "VIRTUAL_ENV", "HOME", "LANG", "LD_LIBRARY_PATH")


class DryRun(NamedTuple):
    """A dry run that was started; `command` is what to show for it."""

    request: Request
    running: child.Running
    command: Tuple[str, ...]
    environ: Dict[str, str]
    scratch: str  # the folder of files made for it, "" where there are none


def start_dry_run(request: Request, environ: Dict[str, str], structure_only: bool = False) -> DryRun:
    """Starts the runner's own check in the checkout. Raises OperatorError (exit 5) where it can't."""
    argv, env, files = load_stack(request.checkout.stack).plan_dry_run(request, environ, structure_only)
    program = find_program(argv[0], env)
    # Bytecode would be the one thing that a check leaves behind in the checkout.
    env = dict(env, PYTHONDONTWRITEBYTECODE=env.get("PYTHONDONTWRITEBYTECODE") or "1")
    scratch = _write_scratch(files)
    env.update({name: os.path.join(scratch, name) for name in files})
    return DryRun(request, child.start((program,) + tuple(argv[1:]), cwd=request.checkout.root, env=env, merge=True),
                  tuple(argv), environ, scratch)


def _write_scratch(files: Dict[str, str]) -> str:
    if not files:
        return ""
    try:
        scratch = os.path.join(os.environ.get("TMPDIR") or "/tmp", "rlrun-check-%d-%s" % (os.getpid(), os.urandom(6).hex()))
        os.mkdir(scratch, 0o700)
        for name, text in files.items():
            with open(os.path.join(scratch, name), "w", encoding="utf-8", errors="surrogateescape") as file:
                file.write(text)
    except OSError as error:
        raise OperatorError("can't write a scratch file for the check: %s" % os.strerror(error.errno or 0),
                            "Free some room in %s, or name another folder in TMPDIR." % (os.environ.get("TMPDIR") or "/tmp"),
                            MACHINE, "scratch")
    return scratch


def is_running(dry_run: DryRun) -> bool:
    """Has it not ended yet?"""
    return dry_run.running.popen is not None and dry_run.running.popen.poll() is None


def drop_dry_run(dry_run: DryRun) -> None:
    """Ends a dry run that is not waited for any more, and removes its scratch files."""
    if dry_run.running.popen is not None and dry_run.running.popen.poll() is None:
        child.end_group(dry_run.running.popen)
    if dry_run.scratch:
        shutil.rmtree(dry_run.scratch, ignore_errors=True)


def find_program(name: str, environ: Dict[str, str]) -> str:
    """The absolute path of a program on the PATH of `environ`. Raises OperatorError (exit 5) where it has none."""
    path = shutil.which(name, path=environ.get("PATH", os.defpath))
    if not path:
        raise OperatorError("no %s on PATH" % name, "The runner is a %s program. PATH is %s"
                            % (name, environ.get("PATH", "not set")), MACHINE, "no-%s" % name)
    try:
        return os.path.abspath(path)
    except OSError:  # the working directory is gone
        return path


def finish_dry_run(dry_run: DryRun, timeout_seconds: float) -> Tuple[Plan, Preflight, Outcome]:
    """Waits for the dry run and reads plan and verdict out of what it printed."""
    try:
        outcome = child.finish(dry_run.running, timeout_seconds)
    finally:
        drop_dry_run(dry_run)
    if outcome.how == "unstartable":
        raise OperatorError("can't start the runner's own check: %s" % os.strerror(outcome.code),
                            "Tried: %s" % " ".join(dry_run.command), MACHINE, "runner")
    stack = load_stack(dry_run.request.checkout.stack)
    now = time.time()
    stamps = " ".join(sorted({time.strftime("%Y%m%d", clock(now + shift)) for clock in (time.gmtime, time.localtime)
                              for shift in (0, -300)}))
    plan, preflight = stack.read_dry_run(dry_run.request, outcome, dry_run.environ, stamps)
    if preflight.died:
        reason = "the runner's own check %s" % child.describe(outcome)
        preflight = preflight._replace(summary=reason)
    return plan, preflight, outcome


def ask_imports(plan: Plan) -> Optional[child.Running]:
    """Asks the runner's own Python for what the run needs, and does not wait. One process for all modules, with the
    runner's search path. None where there is nothing to ask, or nobody."""
    names = plan.modules + plan.soft_modules
    if not plan.python or not names:
        return None
    env = {name: value for name, value in plan.environment.items() if name in _PYTHON_NAMES}
    return python_env.start_finding(plan.python, names, cwd=plan.root, env=env)
