"""The values that tell how a run is doing: NamedTuples, no behaviour. A stack fills the tables, health/ judges by them."""
from typing import Any, Dict, NamedTuple, Optional, Tuple


class Quote(NamedTuple):
    """A place in a log, which a judgement rests on."""

    log: str  # path
    offset: int  # the byte at which its line begins
    line: Optional[int]  # from 1; None where the log is too big to count
    text: str  # the line's decisive part, without colour, controls escaped


class Point(NamedTuple):
    """One step line, as its log tells it."""

    step: int
    values: Dict[str, float]  # by the log's own keys; nan and inf are kept
    rounded: Tuple[str, ...]  # keys whose 0 may be a small number that was rounded away (0.000)
    seconds: Optional[float]  # that the step took
    offset: int  # of its line
    clock: str = ""  # the time of day that its line bears, "" for none
    is_training: bool = True  # False: a validation alone, or a line that tells of no training step


class Track(NamedTuple):
    """The step lines of one log, oldest first: of its last segment, which begins where the steps fell back."""

    path: str
    points: Tuple[Point, ...]
    is_whole: bool  # nothing of the segment lies before what was read
    earlier: Tuple[Tuple[int, int], ...] = ()  # first and last step of the segments before it, as far as they were read
    missing: int = 0  # steps that are not there between the first and the last


class Rule(NamedTuple):
    """A condition on the latest values of one metric. `test` is a name in health.signatures.TESTS, which says what `limit`
    and `steps` mean to it. A key that ends with `*` means every key that begins so, any of which may hold."""

    key: str
    test: str
    limit: float = 0.0
    steps: int = 1
    source: str = ""  # the log that tells it, "" for the first of the stack's sources
    # Of a metric: another key, up to whose last step alone the values count. Of lines: "after:N", those that come after the
    # N-th last step line.
    at: str = ""


class Signature(NamedTuple):
    """A known way to fail: claimed only where every rule holds. `needs`: flags of the outline without which it can't be."""

    name: str  # as `explain` knows it
    severity: str  # "stop", "risk" or "note"
    rules: Tuple[Rule, ...]
    words: str  # what it means, one line
    advice: Tuple[str, ...]  # what to do, cheapest first; each a line to run or a person to ask
    needs: Tuple[str, ...] = ()


class Metric(NamedTuple):
    """What is known about one metric. `bands`: (test, limit, mark, words), of which the first that holds is the reading;
    mark is "pass", "advisory" or "blocks"; a test of "" always holds. `row`: the line of the report that it stands in."""

    key: str
    row: str
    bands: Tuple[Tuple[str, float, str, str], ...] = ()
    source: str = ""
    label: str = ""  # a shorter name for the report; the key is kept where it is ""
    needs: Tuple[str, ...] = ()  # flags of the outline without which it is shown and not judged


class Gate(NamedTuple):
    """A condition on the first step: passed where every rule holds. `needs`: flags of the outline without which it is
    skipped; `is_required`: whether a metric that is not there fails it."""

    name: str
    rules: Tuple[Rule, ...]
    words: str  # what it means where it fails
    needs: Tuple[str, ...] = ()
    is_required: bool = True


class Outline(NamedTuple):
    """What a run was set up to do, as it told itself; None and "" are what it did not tell."""

    total: Optional[int] = None  # steps of the whole run, in the unit of its step lines
    total_from: str = ""  # where that was read
    epochs: Optional[int] = None
    nodes: int = 1
    flags: Tuple[str, ...] = ()  # what is switched on and matters to a judgement: "r3"
    checkpoints: str = ""  # the directory that holds them
    trials: str = ""
    block: str = ""  # the run configuration, verbatim
    save_every: Optional[int] = None
    test_every: Optional[int] = None


class Checkpoint(NamedTuple):
    """The newest complete checkpoint on disk, and the directories that are not complete (being written, or cut off)."""

    step: int
    path: str
    incomplete: Tuple[str, ...]


class Reading(NamedTuple):
    """A metric as it is now: the latest value, those before it for the trend, and what that means."""

    key: str
    label: str
    row: str
    source: str
    value: Optional[float]
    step: Optional[int]
    is_rounded: bool
    trend: Tuple[float, ...]
    mark: str  # pass, advisory, blocks, or skipped where nothing is known
    words: str


class Finding(NamedTuple):
    """A signature that matched, with what it rests on."""

    name: str
    severity: str
    words: str
    quotes: Tuple[Quote, ...]
    advice: Tuple[str, ...]


class GateResult(NamedTuple):
    """How one gate went: "passed", "failed", "skipped" (it does not apply) or "unknown" (not told yet)."""

    name: str
    state: str
    words: str
    quote: Optional[Quote]


class Ending(NamedTuple):
    """How a run ended. `how`: "ended well", "ended early", "failed", "killed", "died without trace", "ended", "joined" (of a
    worker's runner, which has nothing more to do)."""

    how: str
    words: str
    status: Optional[int]
    signal: str
    first_error: Optional[Quote]
    advice: Tuple[str, ...] = ()


class JoinTold(NamedTuple):
    """What a node's own launch log tells of joining the others. `state`: of the head "begun", "waiting" (its cluster is being
    started), "started" (it looks whether all have joined), "joined", "failed"; of a worker "begun", "waiting" (for the head),
    "started", "joined"."""

    role: str  # head or worker
    address: str  # of the head, host:port; "" where it is not told
    local: str
    nodes: int
    python: str  # the runner's interpreter
    state: str
    looks: int  # so many times the head looks before it gives up, with a pause behind each look
    pause_seconds: int


class Joining(NamedTuple):
    """How many of a run's nodes have joined its head, while it waits for them. `joined` is None where that could not be had, and
    then `told_by` says why."""

    nodes: int
    joined: Optional[int]
    members: Tuple[str, ...]  # `10.0.0.1 (n1)`, as far as they are told
    missing: Tuple[str, ...]  # hosts that are known to belong to it and have not joined
    others: Tuple[Tuple[str, str], ...]  # host and what its launch log beside the head's tells
    told_by: str
    left_seconds: Optional[float]  # until the head gives up, at least; None where it can't be told
    left_from: str  # what that rests on


class Target(NamedTuple):
    """The run that is looked at. `state`: "over", "elsewhere" (another node's or container's), "unknown" or "live"."""

    id: str  # of its record, "" for one that was not started by rlrun
    name: str
    stack: str
    kind: str
    root: str
    state: str
    logs: Dict[str, str]  # by what they are, the stack's own names; the first is the one that tells the steps
    launch_log: str
    run_dir: str
    user: str
    host: str
    pids: Tuple[Tuple[str, int], ...]  # label and pid of the live processes that matter
    started_seconds: Optional[float]  # since the epoch
    exit: Optional[Dict[str, Any]]  # exit.json where the run has ended
    siblings: Tuple[str, ...] = ()  # directories of the same run that other nodes made
    notes: Tuple[str, ...] = ()  # what the operator must know about how it was found
    record: Optional[Dict[str, Any]] = None
    jobs: Tuple[Tuple[str, str], ...] = ()  # Slurm's: id and state
    group: int = 0  # its process group, for the stop command
    stop: str = ""  # the stop command of a run that was not launched by rlrun


class Status(NamedTuple):
    """All that is known about a run now."""

    target: Target
    verdict: str  # healthy, at risk, recommend stopping, no step yet, ended, unknown
    conclusion: str  # one line
    step: Optional[int]
    outline: Outline
    stage: str
    seconds_per_step: Optional[float]  # median of the last ten
    first_step_seconds: Optional[float]
    left_seconds: Optional[float]
    left_from: str  # what the estimate rests on
    idle_seconds: Optional[float]  # since the last write
    checkpoint: Optional[Checkpoint]
    readings: Tuple[Reading, ...]
    findings: Tuple[Finding, ...]
    ending: Optional[Ending]
    errors: Tuple[Quote, ...]  # the last ones
    recommendations: Tuple[str, ...]
    notes: Tuple[str, ...]
    tracks: Dict[str, Track]
    now_seconds: float
    joining: Optional[Joining] = None  # while the head waits for the other nodes
