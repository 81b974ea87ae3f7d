"""prime-rl on a live machine: which process is what, which belong to one run, which are a run's real ones.

Owns what tells a prime-rl process: the titles that they set, and until then (titles come after the imports: seconds, for
the trainer half a minute) the commands and modules that they run. `uv run` and torchrun stand in front of some.
A title overwrites words and environment alike: then only the title, the descriptors and the working directory are left.
"""
import os
import re
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

from ..host import procs
from ..text.shell import quote_words
from ..values import Board, Process, Role
from .interpreters import Run, read_launched, read_run

ReadCwd = Callable[[int], Optional[str]]
ReadFd = Callable[[int, int], Optional[str]]

# Set to "1" for a dry run of ours, together with KEEP_ENVIRON, without which nobody can see it.
REHEARSAL = "RLRUN_DRY_RUN"
# Not empty: setproctitle leaves /proc/PID/environ as it is (its README, SPT_NOENV).
KEEP_ENVIRON = "SPT_NOENV"

TITLE = "prime-rl"
# Not INT: where uv stands above the launcher it passes its own on, and the second one breaks the cleaning up off (S5).
STOP_SIGNAL = "TERM"
LABELS = ("launcher", "inference", "router", "orchestrator", "env server", "trainer", "evals")


class _Part(NamedTuple):
    role: str
    kind: str
    label: str  # one of LABELS, "" for what is no row of its own


class _RunDir(NamedTuple):
    path: str  # resolved
    names: Tuple[str, ...]  # its own and, of a link, that of what it leads to


# PRIME-RL::Trainer, PRL::Trainer[rank0], PRL::EnvServer0; the prefix was PRIME-RL until August 2026 and is PRL since.
_TITLE = re.compile(r"(PRIME-RL|PRL)::([A-Za-z]+)")
_PREFIXES = ("PRIME-RL::", "PRL::")
# set_proc_title in src/prime_rl. There is a PRL::Dashboard too, one daemon per user: no part of any run.
_TITLES = {"Launcher": _Part("runner", "rl", "launcher"), "SFT": _Part("runner", "sft", "launcher"),
           "Evals": _Part("runner", "evals", "evals"), "Inference": _Part("runner", "inference", "inference"),
           "Orchestrator": _Part("trainer", "rl", "orchestrator"), "EnvServer": _Part("worker", "", "env server"),
           "Trainer": _Part("trainer", "", "trainer"), "SFTTrainer": _Part("trainer", "sft", "trainer")}
_ENV_SERVER = _Part("worker", "", "env server")
_ENV_WORKER = _Part("worker", "", "")
_ROUTER = _Part("worker", "", "router")
# The kernel's short name holds 15 bytes: PRIME-RL::Launc
_SHORT_BYTES = 15
# pyproject.toml, [project.scripts]; `eval` is the newer name of `evals`.
_COMMANDS = {"rl": _Part("runner", "rl", "launcher"), "sft": _Part("runner", "sft", "launcher"),
             "inference": _Part("runner", "inference", "inference"), "eval": _Part("runner", "evals", "evals"),
             "evals": _Part("runner", "evals", "evals"), "trainer": _Part("trainer", "rl", "trainer"),
             "orchestrator": _Part("trainer", "rl", "orchestrator"), "env-server": _ENV_SERVER}
_MODULES = dict({"prime_rl.entrypoints.%s" % name.replace("-", "_"): part for name, part in _COMMANDS.items()}, **{
    "prime_rl.trainer.rl.train": _Part("trainer", "rl", "trainer"),
    "prime_rl.trainer.sft.train": _Part("trainer", "sft", "trainer"),
    "prime_rl.orchestrator.orchestrator": _Part("trainer", "rl", "orchestrator"),
    "prime_rl.evals.evals": _Part("runner", "evals", "evals")})
# src/prime_rl/trainer/rl/train.py
_MODULE_FILE = re.compile(r"(?:^|/)(prime_rl/[\w/]+)\.py$")
_ROUTER_PROGRAM = "vllm-router"
_ROUTER_TITLE = "vllm::router"
_CONFIG_ENDS = (".toml", ".yaml", ".yml", ".json")
# The folder by which a checkout is known.
_MARK = os.path.join("src", "prime_rl", "entrypoints")
_OUTPUT_OPTION = ("--output-dir",)
_DEFAULT_OUTPUT = "outputs"  # RLConfig.output_dir, SFTConfig.output_dir
_CONFIG_BYTES = 262144


def is_checkout(directory: str) -> bool:
    """Is this directory the root of a prime-rl checkout?"""
    if not _is_checkout(directory):
        return False
    try:
        with open(os.path.join(directory, "pyproject.toml"), "rb") as file:
            return re.search(br'^name\s*=\s*["\']prime-rl["\']', file.read(1 << 16), re.M) is not None
    except OSError:
        return False


def read_boards(processes: Dict[int, Process], read_cwd: ReadCwd) -> List[Board]:
    """None: its dashboard is told of every run, and finds them by itself."""
    return []


def classify(process: Process, read_cwd: ReadCwd) -> Optional[Role]:
    """The Role of a live process in a prime-rl run, or None. By title or by the entry point that it runs, or has run by
    uv or torchrun."""
    part = _find_part(process, read_launched(process.argv), read_cwd)
    return Role("prime", part.role, part.kind) if part else None


def _find_part(process: Process, run: Run, read_cwd: ReadCwd) -> Optional[_Part]:
    return _read_title(process) or _read_command(process, run, read_cwd)


def _read_title(process: Process) -> Optional[_Part]:
    first = process.argv[0] if process.argv else process.comm
    if first == _ROUTER_TITLE:
        return _ROUTER
    if first.startswith("Verifiers::EnvS"):
        return _ENV_SERVER
    if first.startswith("Verifiers::EnvW"):
        return _ENV_WORKER
    match = _TITLE.match(first)
    known = _TITLES.get(match.group(2)) if match else None
    if known or process.argv:
        return known
    return next((part for name, part in _TITLES.items() for prefix in _PREFIXES if is_cut(first, prefix + name)), None)


def is_cut(shown: str, whole: str) -> bool:
    """Is `shown` what the kernel's short name leaves of `whole`?"""
    return len(shown.encode("utf-8", "replace")) == _SHORT_BYTES and whole.startswith(shown)


def _read_command(process: Process, run: Run, read_cwd: ReadCwd) -> Optional[_Part]:
    name = os.path.basename(run.script)
    if _ROUTER_PROGRAM in (name, os.path.basename(process.argv[0]) if process.argv else ""):
        return _ROUTER
    if run.language == "python":
        known = _MODULES.get(run.module or _find_module(run.script, process.pid, read_cwd))
        if known:
            return known
    known = _COMMANDS.get(name) if run.language in ("python", "command") else None
    if known and (_list_configs(run.arguments) or _find_checkout(process, run, read_cwd)):
        return known
    return None


def _find_module(script: str, pid: int, read_cwd: ReadCwd) -> str:
    """prime_rl.trainer.rl.train of `src/prime_rl/trainer/rl/train.py`, "" where it is no such file."""
    if not script.endswith(".py"):
        return ""
    match = _MODULE_FILE.search(_resolve(script, read_cwd(pid)))
    return match.group(1).replace("/", ".") if match else ""


def _list_configs(words: Sequence[str]) -> List[str]:
    """The files of `@ x.toml`: `rl` and `eval` are too short to believe, but nobody else's take these."""
    names = [following if word == "@" else word[1:]
             for word, following in zip(words, tuple(words[1:]) + ("",)) if word.startswith("@")]
    return [name for name in names if name.endswith(_CONFIG_ENDS)]


def _find_checkout(process: Process, run: Run, read_cwd: ReadCwd) -> str:
    """The checkout whose own command this is, "" where that can't be told: `<checkout>/.venv/bin/<command>`, what `uv run`
    takes from its project or from where it stands."""
    cwd = read_cwd(process.pid)
    if run.language == "command" and "/" not in run.script:
        places = [_resolve(_read_project(process.argv, run), cwd)]
    else:
        places = [_find_top(_resolve(run.script, cwd))]
    return next((place for place in places if _is_checkout(place)), "")


def _read_project(argv: Sequence[str], run: Run) -> str:
    """What `uv --project DIR run …` names; "." where it names none."""
    before = list(argv[1:len(argv) - len(run.arguments)])
    values = _read_options(before, ("--project",))
    return values[-1] if values else "."


def _find_top(program: str) -> str:
    """<checkout> of `<checkout>/.venv/bin/<command>`, "" where it is no such path."""
    folder = os.path.dirname(program)
    if os.path.basename(folder) != "bin" or not os.path.isabs(program):
        return ""
    return os.path.dirname(os.path.dirname(folder))


def _is_checkout(root: str) -> bool:
    return os.path.isabs(root) and os.path.isdir(os.path.join(root, _MARK))


def _resolve(path: str, cwd: Optional[str]) -> str:
    """The whole path; as it is written where the working directory can't be read, for ours must not stand in."""
    return os.path.normpath(os.path.join(cwd, path) if cwd else path) if path else ""


def is_rehearsal(process: Process, environ: Optional[Dict[str, str]]) -> bool:
    """Is it a dry run? Its own words say so, or where its title has taken them the mark that rlrun gives to its own."""
    words = process.argv
    if "--dry-run" in words or "--help" in words or "-h" in read_launched(words).arguments:
        return True
    return environ is not None and environ.get(REHEARSAL) == "1"


def find_root(process: Process, read_cwd: ReadCwd) -> str:
    """The checkout that a process works in, "" where it can't be told: the one that its program or its interpreter lies in,
    else its working directory if that is one. No folder above is tried: what stands in a checkout's subfolder may be
    another project."""
    run = read_launched(process.argv)
    found = _find_checkout(process, run, read_cwd)
    if found:
        return found
    cwd = read_cwd(process.pid)
    interpreter = _find_top(_resolve(process.argv[0], cwd)) if run.language == "python" else ""
    return next((place for place in (interpreter, cwd or "") if _is_checkout(place)), "")


def name_tree(processes: Iterable[Process], read_cwd: ReadCwd) -> List[Tuple[str, int]]:
    """[(label, pid)] of the real processes of one run's tree, in the order of LABELS, then by pid.

    uv and torchrun are not among them, also while nothing is below them yet. A forked child bears its parent's title (a data
    loader, or one that is just being started): of several with one label on a line only the top one counts.
    """
    table = {process.pid: process for process in processes}
    labels: Dict[int, str] = {}
    for pid, process in table.items():
        part = None if procs.is_dead(process) else _find_part(process, read_run(process.argv), read_cwd)
        if part and part.label:
            labels[pid] = part.label
    rows = [(label, pid) for pid, label in labels.items()
            if not any(labels.get(above) == label for above in procs.find_ancestors(table, pid))]
    return sorted(rows, key=lambda row: (LABELS.index(row[0]), row[1]))


def find_of_run(processes: Dict[int, Process], run_dir: str, read_fd: ReadFd, read_cwd: ReadCwd) -> Tuple[int, ...]:
    """The pids of the live prime-rl processes whose run directory this is, ascending, and of the launchers above them.

    A component is known by its output, which its launcher puts below the run directory, or until its title is set by its
    config there; a launcher by `--run.name` (RLConfig.run_dir: output_dir / run.dir, which defaults to run.name).
    A launcher that has set its title and started nothing yet can't be told. What only reads there (an editor, tail, a
    server of the run's weights) is not of the run.
    """
    path = os.path.realpath(run_dir)
    own = _RunDir(path, (os.path.basename(run_dir.rstrip("/")), os.path.basename(path)))
    roles: Dict[int, Role] = {}
    for pid, process in processes.items():
        role = None if procs.is_dead(process) else classify(process, read_cwd)
        if role and not is_rehearsal(process, None):
            roles[pid] = role
    found: Set[int] = set()
    for pid in roles:
        if _writes_below(pid, own, read_fd) or _is_named(processes[pid], own, read_cwd):
            found.add(pid)
    for pid in tuple(found):
        found.update(above for above in procs.find_ancestors(processes, pid)
                     if above in roles and roles[above].role == "runner")
    return tuple(sorted(found))


def _writes_below(pid: int, own: _RunDir, read_fd: ReadFd) -> bool:
    return any(_is_below(read_fd(pid, number) or "", own) for number in (1, 2))


def _is_below(path: str, own: _RunDir) -> bool:
    return os.path.isabs(path) and (os.path.realpath(path) + "/").startswith(own.path.rstrip("/") + "/")


def _is_named(process: Process, own: _RunDir, read_cwd: ReadCwd) -> bool:
    """Do the words say that this is its run directory? Its name does, or a config in it, or that of a component which
    writes there; not any path: the weights that a process reads may be another run's."""
    run = read_launched(process.argv)
    words = run.arguments
    cwd = read_cwd(process.pid)
    paths = [_resolve(name, cwd) for name in _list_configs(words)]
    names = _read_options(words, ("--run.dir",)) or _read_options(words, ("--run.name",))
    if names:  # it decides alone: the config may be another run's, launched again under this name
        return _is_directory_of(words, names[-1], paths, own, cwd)
    part = _read_command(process, run, read_cwd)
    if part and part.label != "launcher":  # a launcher's is the folder above the run directory
        paths += [_resolve(folder, cwd) for folder in _read_options(words, _OUTPUT_OPTION)]
    return any(_is_below(path, own) for path in paths)


def _is_directory_of(words: Sequence[str], name: str, configs: Sequence[str], own: _RunDir, cwd: Optional[str]) -> bool:
    """Is `own` the directory of the run of this name? Where nobody tells the folder above it, the name alone decides."""
    folders = _read_options(words, _OUTPUT_OPTION)
    is_told = bool(folders) or not any(_may_set_output(path) for path in configs)
    path = _resolve(os.path.join(folders[-1] if folders else _DEFAULT_OUTPUT, name), cwd)
    if is_told and os.path.isabs(path):
        return os.path.realpath(path) == own.path
    return os.path.basename(path) in own.names


def _may_set_output(config: str) -> bool:
    """Does the config name the output folder? It is not parsed: a mention will do, and so will a file that can't be read."""
    try:
        with open(config, "rb") as file:
            return b"output_dir" in file.read(_CONFIG_BYTES)
    except OSError:
        return True


def _read_options(words: Sequence[str], names: Sequence[str]) -> List[str]:
    """The values of these options, written `--a-b v`, `--a_b v` or `--a-b=v`."""
    values = []
    for word, following in zip(words, tuple(words[1:]) + ("",)):
        name, equals, value = word.partition("=")
        if name.replace("_", "-") in names and (value or following):
            values.append(value if equals else following)
    return values


def describe_stop(pgid: int, facts: Dict[str, Any]) -> str:
    """A job is cancelled; a local run's group gets SIGTERM, at which the launcher ends all that it started; and so does the
    launcher's, where it leads one of its own. (-s: a plain sh knows no -TERM before `--`.)"""
    jobs = facts.get("jobs")
    groups = " ".join("-%d" % one for one in [pgid] + list(facts.get("groups") or ()))
    return quote_words(["scancel"] + [str(job) for job in jobs]) if jobs else "kill -s %s -- %s" % (STOP_SIGNAL, groups)


def is_board_name(file_name: str) -> bool:
    """No log of it goes to a board."""
    return False
