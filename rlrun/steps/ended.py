"""How a run ended, and the first real error of its logs: by its record, by Slurm, by the logs' own words."""
import re
from typing import Any, Iterable, List, Optional, Tuple

from ..health.signatures import quote_match
from ..stacks import load_health
from ..text.shell import quote_words
from ..vitals import Ending, Outline, Quote, Target
from .gather import Evidence

_ERRORS = 200
# What every line of health.faults.FINISHED, and the stacks' words of a stop, have in them.
_ENDS = re.compile(
    rb"(?:raining|rainer|vals?|valuation) (?:is |has |was )?(?:finished|complete|done)|ermination signal|Received ")
_FATAL_KINDS = ("time-limit", "cancelled", "preempted", "node", "oom-host", "killed", "crash")
_LAST_BYTES = 8192
_FAILED = "failed with exit code"
# The words of an Ending that are no failure.
GOOD_ENDS = ("ended well", "ended", "joined")
# One of them is in every line that health.faults takes for an error: where none is there it need not be loaded.
ERROR_MARKS = (b"ERROR", b"FATAL", b"CRITICAL", b"ut of memory", b"illed", b"slurmstepd", b"srun: error", b"CANCELLED",
               b"Watchdog", b"death signal", b"exitcode: ", b"SYSTEM_ERROR", b"Fatal Python", b" received at time", b".sh: line ",
               b"slurm_script: line ", b"srun: fatal", b"left on device", b"quota exceeded", b"terminate called", b"Traceback")


def _gather(evidence: Evidence) -> List[Any]:
    from ..health import endings
    return [endings.LogText(text.name, text.path, text.data, text.offset, text.first_line,
                            evidence.files[text.name].modified_seconds) for text in evidence.texts.values()
            if text.name in evidence.files]


def judge_ending(target: Target, evidence: Evidence, health: Any, step: Optional[int], outline: Outline, is_fresh: bool,
                 hidden: str) -> Optional[Ending]:
    """How it ended; None where nothing says that it did: another node's run, or a log without a process. `is_fresh`: its log is
    no older than a live run's may be. `hidden`: why its log can't be read, "" where it can."""
    if hidden and target.state == "over" and not target.jobs:
        return _judge_unread(target, hidden) if target.exit else None
    joined = _judge_joined(target, evidence, health)
    if joined is not None:
        return joined
    is_complete = step is not None and outline.total is not None and step >= outline.total
    if target.state != "over" and not is_complete and not _has_mark(evidence, ERROR_MARKS) and not any(
            re.search(pattern, text.data) for pattern in (_ENDS,) + tuple(health.FINISHED) for text in evidence.texts.values()):
        return None
    from ..health import endings
    texts = _gather(evidence)
    status, signal = (target.exit or {}).get("status"), str((target.exit or {}).get("signal") or "")
    # Words of finishing may be anybody's: an exit status speaks louder, unless all steps were done.
    patterns = _compile_all(health.FINISHED) if is_complete or not (status or signal) else None
    progress = _compile_all(health.PROGRESS)
    finished = patterns is not None and any(
        endings.find_finished(text, patterns, () if is_complete else progress) for text in texts)
    found = endings.pick_first_error(texts, patterns, progress)
    if status and (found is None or found.is_consequence):
        # A launcher shows a part's steps on after it has told that another one failed.
        told = endings.pick_first_error(texts, patterns)
        found = told if told is not None and (told.kind in _FATAL_KINDS or _FAILED in told.quote.text) else found
    if target.state == "elsewhere" and is_fresh and not is_complete and outline.total is not None:
        finished = False
    is_known = target.state == "over" and not target.jobs
    if not is_known and target.jobs and target.state == "over":
        return _judge_job(target, found, finished, step, outline)
    stopped = _find_stopped(health, texts) if found is None or found.is_consequence else None
    is_through = is_complete and not is_fresh
    if not is_known and not finished and not stopped and not is_through and not _is_fatal(found, texts, is_fresh):
        return None
    is_told = status is not None or bool(signal)
    is_short = bool(target.kind) and target.kind not in health.STEP_KINDS
    oom_kills = None
    if is_known and (signal == "SIGKILL" or not is_told):
        from ..host import oom
        oom_kills = oom.read_oom_kills()
    if stopped and status and not signal:
        return Ending("killed", "%s, as its log says (exit status %s)" % (stopped[0], status), status, "", stopped[1])
    if stopped and not is_told and not finished:
        how = "ended early" if step is not None and outline.total and step < outline.total else "killed"
        return Ending(how, "%s, as its log says%s" % (stopped[0], _tell_step(step, outline)), None, "", stopped[1])
    ending = endings.judge_end(status, signal, is_told, step, outline.total, finished, found, oom_kills, is_short)
    if ending.how == "ended early" and ending.first_error is None:
        name = target.id or next(iter(target.logs.values()), "")
        return ending._replace(first_error=stopped[1] if stopped else None,
                               advice=ending.advice or ("rlrun logs %s -n 60" % quote_words([name]),))
    return ending


def _judge_joined(target: Target, evidence: Evidence, health: Any) -> Optional[Ending]:
    """The end of a worker's runner that has joined the head: it ends with 0, and all that it was to do is done. Any other status
    is judged as every run's."""
    judge = getattr(health, "has_joined", None)
    exit_told = target.exit or {}
    if judge is None or target.jobs or exit_told.get("signal") or exit_told.get("status") not in (0, None):
        return None
    text = evidence.texts.get("launch") or next(iter(evidence.texts.values()), None)
    if text is None or not judge(text.data[-_LAST_BYTES:].decode("utf-8", "replace")):
        return None
    words = "its node has joined; the head drives the run, and tells its steps"
    return Ending("joined", words, exit_told.get("status"), "", None)


def _tell_step(step: Optional[int], outline: Outline) -> str:
    return "" if step is None else " at step %d%s" % (step, " of %d" % outline.total if outline.total else "")


def _judge_unread(target: Target, hidden: str) -> Ending:
    """By the record alone."""
    status, signal = (target.exit or {}).get("status"), str((target.exit or {}).get("signal") or "")
    words = "killed by %s" % signal if signal else "its exit was not recorded" if status is None else "exit status %s" % status
    return Ending("killed" if signal else "failed" if status else "ended", "%s; %s" % (words, hidden), status, signal, None)


def _is_fatal(found: Any, texts: List[Any], is_fresh: bool) -> bool:
    """Does a log end with this, where no process tells? A limit, a kill, a node that is gone always do; an exception where next
    to nothing follows it and the log stands still: a run survives many of them."""
    if found is None or found.is_survived or found.is_noise:
        return False
    ends = {text.path: text.offset + len(text.data) for text in texts}
    is_last = ends.get(found.quote.log, 0) - found.quote.offset <= _LAST_BYTES
    return found.kind in _FATAL_KINDS or (found.kind != "error" and is_last and not is_fresh)


def name_result(ending: Optional[Ending]) -> str:
    """In a word: `ended well`, `ended` (with 0, and whether all its steps were done is not known), `joined` (a worker's runner
    that has nothing more to do), `ended badly`, or `unknown` where neither exit nor log tell."""
    if ending is None or (ending.how == "ended" and ending.status is None):
        return "unknown"
    return ending.how if ending.how in GOOD_ENDS else "ended badly"


def find_last_word(evidence: Evidence, errors: Tuple[Quote, ...]) -> Optional[Quote]:
    """The last error that a log tells, where next to nothing follows it."""
    ends = {text.path: text.offset + len(text.data) for text in evidence.texts.values()}
    return next((one for one in reversed(errors) if ends.get(one.log, 0) - one.offset <= _LAST_BYTES), None)


def _find_stopped(health: Any, texts: List[Any]) -> Optional[Tuple[str, Quote]]:
    """(words, place) of the line by which a log says that somebody stopped the run."""
    for pattern, words in health.STOPPED:
        for text in texts:
            match = re.search(pattern, text.data)
            if match:
                return words, quote_match(text, match.start(), match.end())
    return None


def _has_mark(evidence: Evidence, marks: Tuple[bytes, ...]) -> bool:
    return any(mark in text.data for text in evidence.texts.values() for mark in marks)


def _compile_all(patterns: Iterable[Any]) -> List[Any]:
    return [re.compile(one, re.M) if isinstance(one, bytes) else one for one in patterns]


def _judge_job(target: Target, found: Any, finished: bool, step: Optional[int], outline: Outline) -> Ending:
    """By Slurm's own words on its jobs: the worst of them."""
    from ..health import endings
    from . import job_ended, jobs
    states = [state for _, state in target.jobs]
    worst = next((state for state in states if state not in ("COMPLETED", "unknown")), states[0])
    job = target.jobs[states.index(worst)][0]
    found = None if found is not None and endings.is_echo(found) else found
    by_nodes = job_ended.judge(target.record or {}, job, found, finished, step, outline.total)
    if by_nodes is not None:
        return by_nodes
    if worst in ("COMPLETED", "unknown"):
        is_done = worst == "COMPLETED"
        told = jobs.find_head_exit(target.record or {}) if not is_done else None
        if told:  # Slurm has forgotten it, and the agent on its head wrote down how the runner ended
            return endings.judge_end(told["status"], told["signal"] or "", True, step, outline.total, finished, found, None,
                                     False)
        return endings.judge_end(0 if is_done else None, "", is_done, step, outline.total, finished, found, None, False)
    words = "Slurm: %s" % jobs.tell_jobs(target)
    status, signal = jobs.find_exit(target)
    return Ending("failed" if worst not in ("CANCELLED",) else "killed", words, status, signal, found.quote if found else None,
                  (_name_question(target, job),))


def _name_question(target: Target, job: str) -> str:
    """The command that shows all that Slurm knows of a job: what it was read from, since accounting may be off."""
    told = ((target.record or {}).get("job_told") or {}).get(job) or {}
    if told.get("source") in ("squeue", "scontrol"):
        return "scontrol show job %s" % job
    return "sacct -j %s -o JobID,State,ExitCode,Elapsed,Reason,NodeList" % job


def find_errors(evidence: Evidence, target: Target) -> Tuple[Quote, ...]:
    """The last errors that the logs tell, shutdown noise aside."""
    if not _has_mark(evidence, ERROR_MARKS):
        return ()
    from ..health import endings
    health = load_health(target.stack)
    patterns, progress = _compile_all(health.FINISHED), _compile_all(health.PROGRESS)
    found: List[Quote] = []
    for text in _gather(evidence):
        found += [one.quote for one in endings.find_errors(text, _ERRORS, patterns, progress=progress)
                  if not one.is_noise and not endings.is_echo(one)][-5:]
    # The launch log repeats what the main one holds: each text once, where it was told first.
    return tuple({quote.text: quote for quote in reversed(found)}.values())[::-1][-8:]
