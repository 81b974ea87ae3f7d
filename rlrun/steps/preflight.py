"""Step 2, first half: the runner checks its own config, once, and changes nothing."""
import os
import shutil
import time
from typing import Dict, List, NamedTuple, Optional, Tuple

from .. import child
from ..errors import MACHINE, OperatorError
from ..host import python_env
from ..stacks import DryRunOrder, DryRunResult, load_stack
from ..values import Outcome, Plan, Preflight, Request

# What decides which modules an interpreter finds.
_PYTHON_NAMES = ("PATH", "PYTHONPATH", "VIRTUAL_ENV", "HOME", "LANG", "LD_LIBRARY_PATH")


class DryRun(NamedTuple):
    """A dry run that was started; `command` is what to show for it, `running` is None where nothing is run."""

    request: Request
    running: Optional[child.Running]
    beside: Tuple[child.Running, ...]
    missing: Tuple[str, ...]
    command: Tuple[str, ...]
    environ: Dict[str, str]
    scratch: str  # the folder that it may write to


def start_dry_run(request: Request, environ: Dict[str, str], structure_only: bool = False) -> DryRun:
    """Starts the runner's own check in the checkout. Raises OperatorError (exit 5) where it can't. Where a module is missing
    that the check itself needs, nothing is started."""
    scratch = os.path.join(os.environ.get("TMPDIR") or "/tmp", "rlrun-check-%d-%s" % (os.getpid(), os.urandom(6).hex()))
    root = request.checkout.root
    order = load_stack(request.checkout.stack).plan_dry_run(request, environ, structure_only, scratch)
    program = find_program(order.argv[0], order.env) if order.argv else ""
    # Bytecode would be the one thing that a check leaves behind in the checkout.
    env = dict(order.env, PYTHONDONTWRITEBYTECODE=order.env.get("PYTHONDONTWRITEBYTECODE") or "1")
    missing = _find_missing(order, root, env)
    _make_scratch(scratch, order.files)
    env.update({name: os.path.join(scratch, name) for name in order.files})
    started: List[child.Running] = []
    try:
        if program and not missing:
            started.append(child.start((program,) + tuple(order.argv[1:]), cwd=root, env=env, merge=True))
            for argv in order.beside:
                started.append(child.start(argv, cwd=root, env=env, merge=True))
    except BaseException:
        _end(started, scratch)
        raise
    return DryRun(request, started[0] if started else None, tuple(started[1:]), missing, tuple(order.argv), environ, scratch)


def _find_missing(order: DryRunOrder, root: str, env: Dict[str, str]) -> Tuple[str, ...]:
    if not order.modules or not order.python:
        return ()
    found = python_env.find_modules(order.python, order.modules, cwd=root, env=env)
    return tuple(name for name in order.modules if found is not None and not found.get(name))


def _make_scratch(scratch: str, files: Dict[str, str]) -> None:
    try:
        os.mkdir(scratch, 0o700)
        for name, text in files.items():
            with open(os.path.join(scratch, name), "w", encoding="utf-8", errors="surrogateescape") as file:
                file.write(text)
    except OSError as error:
        shutil.rmtree(scratch, ignore_errors=True)
        raise OperatorError("can't write a scratch file for the check: %s" % os.strerror(error.errno or 0),
                            "Free some room in %s, or name another folder in TMPDIR." % (os.environ.get("TMPDIR") or "/tmp"),
                            MACHINE, "scratch")


def is_running(dry_run: DryRun) -> bool:
    """Has it not ended yet?"""
    return dry_run.running is not None and dry_run.running.popen is not None and dry_run.running.popen.poll() is None


def drop_dry_run(dry_run: DryRun) -> None:
    """Ends a dry run that is not waited for any more, and removes its scratch files."""
    _end(([dry_run.running] if dry_run.running else []) + list(dry_run.beside), dry_run.scratch)


def _end(started: List[child.Running], scratch: str) -> None:
    for running in started:
        if running.popen is not None and running.popen.poll() is None:
            child.end_group(running.popen)
    shutil.rmtree(scratch, ignore_errors=True)


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
        outcome = child.finish(dry_run.running, timeout_seconds) if dry_run.running else \
            Outcome(dry_run.command, "ended", 0, b"", b"", 0.0)
        if outcome.how == "unstartable":
            raise OperatorError("can't start the runner's own check: %s" % os.strerror(outcome.code),
                                "Tried: %s" % " ".join(dry_run.command), MACHINE, "runner")
        beside = tuple(child.finish(running, timeout_seconds) for running in dry_run.beside)
        now = time.time()
        stamps = " ".join(sorted({time.strftime("%Y%m%d", clock(now + shift)) for clock in (time.gmtime, time.localtime)
                                  for shift in (0, -300)}))
        plan, preflight = load_stack(dry_run.request.checkout.stack).read_dry_run(
            dry_run.request, DryRunResult(outcome, beside, dry_run.scratch, dry_run.missing), dry_run.environ, stamps)
    finally:
        drop_dry_run(dry_run)
    if preflight.died:
        failed = next((one for one in (outcome,) + beside if one.how != "ended" or one.code), outcome)
        preflight = preflight._replace(summary="the runner's own check %s" % child.describe(failed))
    return plan, preflight, outcome


def ask_imports(plan: Plan) -> Optional[child.Running]:
    """Asks the runner's own Python for what the run needs, and does not wait. One process for all modules, with the
    runner's search path. None where there is nothing to ask, or nobody."""
    names = plan.modules + plan.soft_modules
    if not plan.python or not names:
        return None
    env = {name: value for name, value in plan.environment.items() if name in _PYTHON_NAMES}
    return python_env.start_finding(plan.python, names, cwd=plan.root, env=env)
