"""What stands in a batch script for Slurm, and what becomes of it: options, the job's output. Pure; asks nobody.

Source: sbatch(1), as Slurm 22.05 takes it.
"""
import re
import shlex
from typing import Dict, Mapping, Optional, Sequence

# 12   4_2 (a task of an array)   11+1 (a part of a heterogeneous job)
JOB_ID = re.compile(r"(\d{1,18})(?:_(\d{1,18})|\+(\d{1,18}))?\Z")
_DIRECTIVE = re.compile(r"#SBATCH\s+(.*)")
# %j   %4j (with zeros in front)   %%
_SYMBOL = re.compile(r"%(\d{0,2})([A-Za-z%])")
# What sbatch(1) calls its one-letter options.
_LONG_NAMES = {
    "A": "account", "a": "array", "b": "begin", "C": "constraint", "c": "cpus-per-task", "D": "chdir", "d": "dependency",
    "e": "error", "G": "gpus", "H": "hold", "i": "input", "J": "job-name", "k": "no-kill", "L": "licenses", "M": "clusters",
    "m": "distribution", "N": "nodes", "n": "ntasks", "O": "overcommit", "o": "output", "p": "partition", "Q": "quiet",
    "q": "qos", "s": "oversubscribe", "t": "time", "v": "verbose", "W": "wait", "w": "nodelist", "x": "exclude"}
# Those that take no word after them, one with an optional value among them: it comes behind a `=` only.
_SWITCHES = frozenset(
    "contiguous exclusive get-user-env hold ignore-pbs nice no-kill no-requeue overcommit oversubscribe parsable propagate "
    "quiet reboot requeue spread-job test-only use-min-nodes verbose wait".split())
# Source: sbatch(1), input environment variables; those that decide where a job runs, with what, and where it logs.
_VARIABLES = {name: name.lower().replace("_", "-") for name in (
    "ACCOUNT CLUSTERS CONSTRAINT CPUS_PER_GPU DISTRIBUTION ERROR EXCLUSIVE EXPORT GPUS GPUS_PER_NODE GPUS_PER_TASK GRES "
    "JOB_NAME MEM_PER_CPU MEM_PER_GPU OUTPUT PARTITION QOS RESERVATION SIGNAL WAIT").split()}
_VARIABLES.update(ARRAY_INX="array", MEM_PER_NODE="mem", TIMELIMIT="time")


def is_told(variable: str) -> bool:
    """Does read_directives heed this SBATCH_* variable?"""
    return variable.startswith("SBATCH_") and variable[7:] in _VARIABLES


def read_directives(text: str, environ: Optional[Mapping[str, str]] = None) -> Dict[str, str]:
    """The #SBATCH options of a batch script by their long names, in order; a later one wins, a switch has "".

    Read as sbatch reads them: at the start of a line, up to the first line that is no comment, with quotes, several in
    a line; a # ends the line, in the middle of a word too. Of a heterogeneous job it is those of the first part.
    The SBATCH_* variables of `environ` win over them, as they do for sbatch; options on its command line would over both.
    """
    found: Dict[str, str] = {}
    _collect_directives(text, found)
    for name, option in _VARIABLES.items():
        if environ and environ.get("SBATCH_" + name):
            found[option] = environ["SBATCH_" + name]
    return found


def _collect_directives(text: str, found: Dict[str, str]) -> None:
    for line in text.split("\n"):
        if line.strip() and not line.lstrip().startswith("#"):
            break
        match = _DIRECTIVE.match(line)
        if not match:
            continue
        try:
            words = shlex.split(match.group(1), comments=True)
        except ValueError:  # a quote that is not closed; sbatch refuses the script
            continue
        if words[:1] in (["hetjob"], ["packjob"]):
            break
        _collect_options(words, found)


def expand_output(pattern: str, job_id: str, job_name: str) -> str:
    """The path that an --output pattern names for a job, as far as it can be told; "" is sbatch's default pattern.

    %j %A %a %x %% are replaced, what depends on the node or the user stays as it is; so does %j of an array's task,
    which has a number that its id doesn't show. Source: sbatch(1), filename pattern; a backslash turns them all off.
    """
    match = JOB_ID.match(job_id)
    base, task, part = match.groups() if match else (None, None, None)
    if not pattern:
        pattern = "slurm-%A_%a.out" if task else "slurm-%j.out"
    if "\\" in pattern:
        return re.sub(r"\\(.)", r"\1", pattern)
    own = base if not task and part in (None, "0") else None
    known = {"j": own, "A": base, "a": task, "x": job_name or None, "%": "%"}

    def expand(symbol: "re.Match[str]") -> str:
        value = known.get(symbol.group(2))
        if value is None:
            return symbol.group(0)
        return value.zfill(min(int(symbol.group(1) or 0), 10)) if symbol.group(2) in "jAa" else value
    return _SYMBOL.sub(expand, pattern)


def _collect_options(words: Sequence[str], found: Dict[str, str]) -> None:
    left = list(words)

    def take_value() -> str:
        return left.pop(0) if left and not left[0].startswith("-") else ""
    while left:
        word = left.pop(0)
        if word.startswith("--"):
            name, sign, value = word[2:].partition("=")
            found[name] = value if sign or name in _SWITCHES else take_value()
        elif word.startswith("-"):
            letters = word[1:]
            while letters:  # -HJ name, -N2
                name, letters = _LONG_NAMES.get(letters[0], letters[0]), letters[1:]
                if name in _SWITCHES:
                    found[name] = ""
                else:
                    found[name], letters = letters or take_value(), ""
