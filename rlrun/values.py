"""The values that the steps hand on: NamedTuples, no behaviour, nothing imported from above."""
from typing import Any, Dict, NamedTuple, Optional, Tuple


class Outcome(NamedTuple):
    """How a program went. `how` is "ended", "killed", "timeout", "overflow" (printed too much) or "unstartable"."""

    argv: Tuple[str, ...]
    how: str
    code: int  # exit status where it ended, signal number where it was killed, errno where it could not start
    output: bytes  # stdout, with stderr merged in where the caller asked for that
    errors: bytes  # stderr where it was kept apart
    seconds: float


class Process(NamedTuple):
    """One row of the process table. `argv` is split also where the process rewrote its title into one string."""

    pid: int
    ppid: int
    pgid: int
    sid: int
    uid: int
    state: str  # one letter of /proc/PID/stat; Z and X are dead
    start_ticks: int  # since boot, in clock ticks: with pid and boot id the identity
    elapsed_seconds: float
    comm: str  # at most 15 bytes
    argv: Tuple[str, ...]


class Gpu(NamedTuple):
    """One GPU as nvidia-smi shows it; None is what it could not tell."""

    index: int  # type: ignore[assignment]  # -1: not told
    uuid: str
    bus_id: str
    name: str
    used_mib: Optional[int]
    total_mib: Optional[int]
    utilization_percent: Optional[int]
    ecc_errors: Optional[int]  # uncorrected, volatile


class GpuHolder(NamedTuple):
    """A process that holds memory of a GPU; `pid` is as nvidia-smi printed it and may be of another pid namespace."""

    pid: int
    gpu_uuid: str
    used_mib: Optional[int]
    name: str


class GpuReading(NamedTuple):
    """What nvidia-smi said. `state`: "ok", "absent" (no nvidia-smi), "failed", "timeout"; `reason` in words."""

    state: str
    reason: str
    gpus: Tuple[Gpu, ...]
    holders: Tuple[GpuHolder, ...]
    lost: Tuple[str, ...]  # lines that name a GPU which fell off the bus or needs a reset
    unread: Tuple[str, ...] = ()  # lines beside the rows that are neither a row nor known to mean nothing


class Listener(NamedTuple):
    """A listening TCP socket."""

    port: int
    address: str
    inode: int
    uid: int


class Disk(NamedTuple):
    """The file system below `path`, in bytes; inodes_free is None where it does not count them."""

    path: str
    total_bytes: int
    free_bytes: int  # for ordinary users
    used_percent: int
    inodes_free_percent: Optional[int]


class WriteProbe(NamedTuple):
    """Whether a small file could be written at `path` (or at its nearest existing parent, `probed`)."""

    path: str
    probed: str
    is_writable: bool
    reason: str


class PathSize(NamedTuple):
    """Something on disk that a launch would delete; `is_exact` is False where counting stopped early."""

    path: str
    size_bytes: int
    user: str
    is_exact: bool


class Fact(NamedTuple):
    """Something read. `level` is OK, WARN or INFO."""

    level: str
    name: str
    detail: str


class Check(NamedTuple):
    """A judged fact. `status` is "pass", "advisory", "blocks" or "skipped"; `layer` "preflight" or "live"."""

    layer: str
    name: str
    status: str
    detail: str
    fix: str = ""  # the next step, where there is one


class Checkout(NamedTuple):
    """A clone of a training system; `stack` names the entry of stacks.STACKS."""

    stack: str
    root: str


class Config(NamedTuple):
    """A config file: `path` absolute, `shown` relative to the checkout where it lies in it."""

    path: str
    shown: str
    kind: str


class Request(NamedTuple):
    """What the operator asked for, once orient has resolved it."""

    checkout: Checkout
    config: Config
    overrides: Tuple[str, ...]
    more: Tuple[Config, ...] = ()  # further configs, which the runner merges over the first one, left to right
    runner: Tuple[str, ...] = ()  # what the operator wants the runner to be started with, empty: the stack's own choice
    dropped: Optional[Dict[str, str]] = None  # what --drop-env took out of the environment; None: it was not asked for
    slurm: Any = None  # what --slurm and its options ask for: steps/slurm_job.py, Asked


class PreflightLine(NamedTuple):
    """One line of the runner's own check: `level` is OK, WARN, FATAL or SKIP, `text` verbatim without colour."""

    level: str
    text: str


class Preflight(NamedTuple):
    """What the runner said about its config. `died` is True where it ended without a verdict of its own."""

    lines: Tuple[PreflightLine, ...]
    died: bool
    is_thin: bool  # this kind of run has no preflight rules
    last_words: str  # the tail of the output where it died
    summary: str  # the runner's closing line
    skipped: str = ""  # why nothing was run
    cause: str = ""  # what the stack knows about last words like these, and what to do about it:
    cure: str = ""


class Port(NamedTuple):
    """A TCP port that the launch binds, and what for."""

    number: int
    purpose: str


class Role(NamedTuple):
    """What a live process is to a stack: `role` is "runner", "trainer", "worker" or "cluster"."""

    stack: str
    role: str
    kind: str  # train, eval, …; empty where the process does not tell


class SweepRule(NamedTuple):
    """What a launch destroys by rule: processes whose joined command line matches, paths by glob."""

    process_patterns: Tuple[str, ...]  # regular expressions, searched in the command line joined by spaces
    path_globs: Tuple[str, ...]
    words: str  # the rule, for people
    spares_runner: bool  # the runner itself is exempt, whatever its command line contains


class Topology(NamedTuple):
    """How many nodes, and what the other nodes need. `head` is empty where the runner takes its own address."""

    nodes: int
    head: str
    head_variable: str  # the environment variable that names the head
    port: int
    note: str  # what waits for whom


class Plan(NamedTuple):
    """All that a launch would do, as the runner's dry run resolved it. Empty strings are what it did not tell."""

    stack: str
    kind: str
    root: str
    config: str  # absolute
    config_shown: str
    sources: Tuple[str, ...]  # files that the config reads in
    unread_sources: Tuple[str, ...]  # words that name such a file but could not be resolved
    overrides: Tuple[str, ...]
    project: str
    experiment: str
    name_is_volatile: bool
    block: str  # the run configuration, verbatim
    second_look: Tuple[Tuple[str, str], ...]  # label and value of what decides whether the run is worth its hours
    train_log: str  # the log that the board would show
    vllm_log: str
    trials: str
    checkpoints: str  # directory of this run's checkpoints
    resume_mode: str
    python: str  # the interpreter that the runner named
    argv: Tuple[str, ...]  # what rlrun starts, in `root`
    drop_env: Tuple[str, ...]  # names that must not reach the launch
    launch_command: str  # what the runner would start in the end, its own line
    environment: Dict[str, str]  # the whole resolved environment; secrets stay in memory
    set_names: Tuple[str, ...]  # the names that config and templates set
    volatile_names: Tuple[str, ...]  # of these, those whose value differs at every run
    topology: Topology
    gpu_count: Optional[int]  # of this node; None: unknown
    takes_whole_box: bool
    ports: Tuple[Port, ...]
    modules: Tuple[str, ...]  # that the runner's Python must find
    soft_modules: Tuple[str, ...]  # that it should find
    venv: str  # the virtual environment that the config names
    ray_dir: str  # where Ray keeps its sessions; empty where the launch starts no Ray
    shm_bytes: int  # of shared memory that the launch asks for
    sweep: SweepRule
    write_dirs: Tuple[str, ...]  # where the launch will write
    prints_secrets: bool  # into the launch log
    gates: Tuple[str, ...]  # what to look at when the first step comes
    stage: str  # what happens first, for the report
    more_configs: Tuple[str, ...] = ()  # as config_shown, merged over the first one from left to right
    import_fixes: Dict[str, str] = {}  # what to do about a module that is not found, by its name
    has_board: bool = True  # does this stack have a board that serves folders of logs?
    log_note: str = ""  # where a stack without one logs, for the report
    run_dir: str = ""  # the directory that all of this run is written to
    before: Tuple[str, ...] = ()  # the names of earlier attempts in it
    shows_environment: bool = True  # into the runner's log
    is_name_generated: bool = False  # rlrun made the name, for this plan alone; it is out of the digest, and is kept
    argv_again: Tuple[str, ...] = ()  # argv without such a name
    from_environ: Tuple[str, ...] = ()  # NAME=value of the operator's own environment that decides the plan
    path_first: str = ""  # a folder that the launch needs first on PATH
    is_submission: bool = False  # the runner only hands the run to a batch system: nothing is taken of this machine
    is_short: bool = False  # the runner is done soon, and an end with 0 is success
    own_dirs: Tuple[str, ...] = ()  # directories that no other run may be at
    more_parts: Dict[str, str] = {}  # of the digest
    secrets: Tuple[str, ...] = ()  # values that the stack knows
    typed_name: str = ""  # the directory whose name the operator must type beyond the yes, since the launch deletes it
    server_url: str = ""  # of a server: where it answers once it is up
    own: Any = None  # what the stack itself read, for itself
    dropped: Dict[str, str] = {}  # of the operator's environment, what --drop-env keeps from the run
    inherited: Tuple[str, ...] = ()  # what an enclosing job or an earlier launcher left in it, and the run would take over
    batch: Any = None  # the batch script that rlrun itself writes: steps/slurm_job.py, Batch


class Board(NamedTuple):
    """A running board: the directories that it serves, absolute."""

    pid: int
    port: Optional[int]
    served: Tuple[str, ...]
    uid: int


class SweptProcess(NamedTuple):
    """A live process that the launch would kill."""

    process: Process
    user: str
    is_foreign: bool


class Sweep(NamedTuple):
    """What this launch would destroy on this machine now."""

    processes: Tuple[SweptProcess, ...]
    paths: Tuple[PathSize, ...]


class LiveRun(NamedTuple):
    """A live run: its top process and all that belongs to it."""

    stack: str
    kind: str
    role: str
    top: Process
    pids: Tuple[int, ...]
    root: str  # its checkout, empty where that can't be read


class Machine(NamedTuple):
    """What was read off the machine at one moment."""

    processes: Dict[int, Process]
    is_partial: bool  # other users' processes are hidden
    runs: Tuple[LiveRun, ...]
    clusters: Tuple[Process, ...]  # live Ray daemons outside any run
    orphans: Tuple[Process, ...]  # workers without a run above them
    gpus: GpuReading
    listeners: Tuple[Listener, ...]
    waiting_ports: Tuple[int, ...]  # TIME_WAIT
    boards: Tuple[Board, ...]


class Git(NamedTuple):
    """The checkout's revision; `reason` says why where it is unknown."""
    commit: str
    branch: str
    dirty: Tuple[str, ...]
    dirty_digest: str
    reason: str


class Fingerprint(NamedTuple):
    """A plan's digest and the parts that it was made of, for telling what changed."""

    digest: str
    parts: Dict[str, str]


class Verdict(NamedTuple):
    """The judgement: YES only if nothing blocks."""

    checks: Tuple[Check, ...]
    blocking: Tuple[str, ...]
    warnings: Tuple[str, ...]


class Identity(NamedTuple):
    """A process for good: a bare pid is never believed."""

    pid: int
    start_ticks: int
    boot_id: str


class Launch(NamedTuple):
    """A runner that was started."""
    record: str
    launch_log: str
    runner: Identity
    pgid: int
    keeper_pid: int


class Readback(NamedTuple):
    """What the run itself said so far; empty is "not yet"."""

    experiment: str
    train_log: str
    vllm_log: str
    trials: str
    verdict: str
    fatal: Tuple[str, ...]
    trainer_pids: Tuple[int, ...]
    exit: Optional[Dict[str, object]]  # exit.json where the run has ended
    launch_log_bytes: int
    rows: Tuple[Tuple[str, str], ...] = ()  # label and value of what else the stack could read
    facts: Dict[str, Any] = {}  # the same for `--json` and the record


class Choices(NamedTuple):
    """The operator's answers; empty is "not answered"."""
    confirm: str
    again: bool
    mode: str  # background, foreground
    board: str  # link, leave
    old_log: str  # keep, lose
    server_seconds: float = 600.0  # how long a server may take until it answers
    plan_file: str = ""  # the saved plan that the digest is of
    valid_seconds: Optional[float] = None  # how old the approval may be
    wait_seconds: Optional[float] = None  # how long to wait for a free machine
    look_seconds: float = 30.0  # between two whole looks while waiting
    notify: Tuple[str, ...] = ()  # the program that is told of the run's gate, stall and end
    unattended: Tuple[str, ...] = ()  # the options of commands/unattended.py as they were given, for a line that is pasted
    scope: Any = None  # what steps/scope.py tells of the scope that this rlrun is in, where it was asked for


class RunRow(NamedTuple):
    """One recorded launch, as `runs` lists it."""
    id: str
    state: str
    exit: Optional[int]
    age_seconds: float
    kind: str
    config: str
    experiment: str
    user: str
    record: str
    data: Dict[str, Any]
