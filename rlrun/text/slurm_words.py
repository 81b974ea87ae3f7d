"""What Slurm's words on a job mean, for people. Takes plain facts, gives words; asks nobody."""
import re
import time
from typing import Any, Dict, Optional

from .durations import format_elapsed

# 0:56   02:00:00   1-02:03:04
_LENGTH = re.compile(r"(?:(\d{1,6})-)?(?:(\d{1,6}):)?(\d{1,6}):(\d\d)\Z")
# Source: slurm.schedmd.com/job_reason_codes.html; by what a reason begins with, the longest one that fits.
_REASONS = (
    ("ReqNodeNotAvail", "a node that it needs is down, drained or reserved"),
    ("Reserved for maintenance", "its nodes are reserved for maintenance"),
    ("Resources", "waits for free nodes"),
    ("Priority", "others of higher priority are before it"),
    ("BeginTime", "its earliest start has not come yet"),
    ("DependencyNeverSatisfied", "waits for another job in vain: it will never start"),
    ("Dependency", "waits for another job"),
    ("JobHeldUser", "held by its user: scontrol release lets it go on"),
    ("JobHeldAdmin", "held by an administrator"),
    ("JobHoldMaxRequeue", "held: it was put back too often"),
    ("Licenses", "waits for a licence"),
    ("PartitionDown", "its partition starts no jobs now (down)"),
    ("PartitionInactive", "its partition takes no jobs now (inactive)"),
    ("PartitionNodeLimit", "more nodes than its partition allows: it may never start"),
    ("PartitionTimeLimit", "more time than its partition allows: it may never start"),
    ("PartitionConfig", "outside of what its partition allows: it may never start"),
    ("BadConstraints", "no node has what it asks for: it will never start"),
    ("NodeDown", "a node that it needs is down"),
    ("Reservation", "waits for its reservation"),
    ("ReservationDeleted", "its reservation is gone: it will never start"),
    ("InvalidAccount", "its account is not valid"),
    ("InvalidQOS", "its QOS is not valid"),
    ("Cleaning", "put back into the queue; its last start is still being cleared away"),
    ("JobLaunchFailure", "its start failed"),
    ("launch failed requeued held", "its start failed, and it is held"),
    ("QOSMaxJobsPerUser", "its user runs as many jobs as the QOS allows"),
    ("QOSMaxSubmitJob", "its user has as many jobs as the QOS allows"),
    ("QOSGrp", "the QOS as a whole is at its limit"),
    ("QOS", "the QOS does not allow more now"),
    ("AssocGrp", "its account as a whole is at its limit"),
    ("AssocMax", "its account does not allow so much"),
    ("Assoc", "its account does not allow more now"),
    ("MaxMemPerLimit", "more memory than is allowed"),
    ("Prolog", "its nodes are being prepared"),
    ("FrontEndDown", "no front end is up"))
_ENDS = {
    "TIMEOUT": "its time limit%(limit)s was reached", "NODE_FAIL": "a node of it failed%(nodes)s",
    "PREEMPTED": "another job took its nodes%(nodes)s",
    "OUT_OF_MEMORY": "a process of it used more memory than the job was given",
    "DEADLINE": "its deadline came", "BOOT_FAIL": "its nodes did not come up%(nodes)s",
    "REVOKED": "it goes on in another cluster"}


def describe_reason(reason: str) -> str:
    """`waits for free nodes (Resources)`: why a job waits, with Slurm's own word; that alone where its meaning is not known."""
    if not reason:
        return ""
    words = max(((len(name), words) for name, words in _REASONS if reason.startswith(name)), default=(0, ""))[1]
    return "%s (%s)" % (words, reason) if words else reason


def describe_job(told: Dict[str, Any], is_short: bool = False) -> str:
    """How one job is, after its state: why and where it waits and until when, since when it runs and what is left, how it ended.
    "" where there is no more than the state. `is_short`: without what changes at every look. `told`: the facts of
    steps/jobs.py."""
    state = told.get("state") or ""
    if state in ("PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"):
        return _describe_waiting(told, is_short)
    if state in _ENDS:
        return _ENDS[state] % {"limit": " of %s" % describe_time(told["time_limit"]) if told.get("time_limit") else "",
                               "nodes": " (of %s)" % told["nodes"] if told.get("nodes") else ""}
    if state == "CANCELLED":
        return "by %s" % told["by"] if told.get("by") else "Slurm does not tell by whom"
    if state == "FAILED":
        return "signal %d" % told["signal"] if told.get("signal") else "exit code %d" % told["exit_code"] \
            if told.get("exit_code") is not None else ""
    if state == "COMPLETED" or is_short:
        return "on %s" % told["nodes"] if told.get("nodes") and state != "COMPLETED" else ""
    words = ["on %s" % told["nodes"]] if told.get("nodes") else []
    words += ["for %s" % describe_time(told["elapsed"])] if told.get("elapsed") else []
    limit = told.get("time_limit")
    if limit == "UNLIMITED":
        words.append("without a time limit")
    elif limit and re.match(r"[\d:-]+\Z", told.get("left") or ""):
        words.append("with %s left of %s" % (describe_time(told["left"]), describe_time(limit)))
    return " ".join(words) + _describe_restarts(told)


def read_seconds(text: str) -> Optional[int]:
    """Seconds of a length of time as Slurm writes it; None for words (UNLIMITED, INVALID) and for none."""
    found = _LENGTH.match(text)
    if not found:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def describe_time(text: str) -> str:
    """A length of time as Slurm writes it, `0:56`, `1:00`, `02:00:00`, `1-02:03:04`, for people: `56s`, `1 min`, `2h 00m`,
    `1d 2h`; as it is where it is none."""
    length = read_seconds(text)
    if length is None:
        return text
    minutes, seconds = divmod(length, 60)
    if not 0 < minutes < 60:
        return format_elapsed(length)
    return "%d min" % minutes + (" %ds" % seconds if seconds else "")


def describe_moment(text: str) -> str:
    """`2026-11-30T07:00:00`, which Slurm's programs print in the zone of this process, as `2026-11-30 07:00:00 CET`."""
    try:
        there = time.strptime(text, "%Y-%m-%dT%H:%M:%S")
        return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(time.mktime(there)))
    except (ValueError, OverflowError, OSError):
        return text.replace("T", " ")


def _describe_waiting(told: Dict[str, Any], is_short: bool) -> str:
    words = [describe_reason(told.get("reason") or "")] if told.get("reason") else ["why it waits is not told"]
    if told.get("place") and told.get("of"):
        words.append("number %d of %d that wait in partition %s" % (
            told["place"], told["of"], told.get("partition") or "unknown"))
    if not is_short:
        words.append("Slurm expects it to start %s" % describe_moment(told["start"]) if told.get("start")
                     else "when it starts Slurm does not tell yet")
    return "; ".join(words) + _describe_restarts(told)


def _describe_restarts(told: Dict[str, Any]) -> str:
    count = told.get("restarts") or 0
    return "; it was put back into the queue %s" % ("once" if count == 1 else "%d times" % count) if count else ""


def describe_state(told: Dict[str, Any]) -> str:
    """A job's state and what goes with it in a word or two, for a column: `pending (Resources)`, `failed (exit code 3)`."""
    state = str(told.get("state") or "unknown").lower()
    if state == "pending":
        more = told.get("reason") or ""
    elif state == "failed" or (state == "cancelled" and told.get("by")):
        more = describe_job(told)
    else:
        more = ""
    return state + (" (%s)" % more.split(",")[0] if more else "")
