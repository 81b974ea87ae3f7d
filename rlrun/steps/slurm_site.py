"""What a Slurm job is asked for beyond the plan: the site's file `rlrun.ini`, and the words of --sbatch and --srun. Reads
files, changes nothing."""
import configparser
import errno
import os
import re
import shlex
from typing import List, NamedTuple, Sequence, Tuple

from ..errors import MACHINE, USAGE, OperatorError
from ..host import slurm
from ..text.redact import find_secrets, redact
from . import records

FILE = "rlrun.ini"
_SECTION, _KEYS = "slurm", ("sbatch", "srun")
_MAX_BYTES = 1 << 16
# B:USR1@600   RB:TERM@60
_SIGNAL = re.compile(r"(?:B|RB|BR):(?:(?:SIG)?(?:USR1|INT|TERM)|10|2|15)(?:@\d{1,6})?\Z")
# What the plan, the record or another option decides, and why it can't be had here.
_ONE_TASK = "the plan tells how many nodes, and each has one task"
_LOG = "the job's log lies in the record"
_READ = "rlrun reads the job's id"
_TAKEN = {
    "nodes": _ONE_TASK, "ntasks": _ONE_TASK, "ntasks-per-node": _ONE_TASK, "ntasks-per-core": _ONE_TASK,
    "ntasks-per-socket": _ONE_TASK, "ntasks-per-gpu": _ONE_TASK, "output": _LOG, "error": _LOG,
    "open-mode": "a job that is started again goes on in its log", "array": "one launch is one job",
    "clusters": "a job is looked for on this cluster only", "chdir": "the runner works in the checkout",
    "export": "each node gets what the runner needs; --drop-env leaves out what it must not get",
    "wrap": "the script is the one that is shown", "test-only": "`rlrun check` is the test", "parsable": _READ, "quiet": _READ,
    "wait": "rlrun returns once the job is handed in", "no-requeue": "that is so unless --requeue is given",
    "requeue": "say --requeue to rlrun, which sees whether the run would resume"}


class Asked(NamedTuple):
    """What the operator and the site ask of Slurm. `sbatch`, `srun`: (where it stands, the words of a line)."""

    sbatch: Tuple[Tuple[str, str], ...]
    srun: Tuple[Tuple[str, str], ...]
    requeue: bool
    files: Tuple[str, ...]  # the site's files that were read
    program: Tuple[str, str]  # this Python, and the file of this rlrun


def read_asked(sbatch: Sequence[str], srun: Sequence[str], requeue: bool, root: str, program: Tuple[str, str]) -> Asked:
    """All that is asked for, in the order in which a later one wins: the file beside rlrun, the one in the checkout, the command
    line. OperatorError (exit 2) for what can't be had, or is no option; exit 5 where a file can't be read."""
    lines: List[Tuple[str, str, str]] = []
    files: List[str] = []
    for folder in (os.path.dirname(os.path.abspath(program[1])), root):
        path = os.path.join(folder, FILE)
        if path not in files and os.path.lexists(path):
            files.append(path)
            lines += read_file(path)
    lines += [("sbatch", "--sbatch", word) for word in sbatch] + [("srun", "--srun", word) for word in srun]
    for key, where, line in lines:
        _refuse_line(key, where, line)
    return Asked(tuple((where, line) for key, where, line in lines if key == "sbatch"),
                 tuple((where, line) for key, where, line in lines if key == "srun"), requeue, tuple(files), program)


def read_file(path: str) -> List[Tuple[str, str, str]]:
    """(key, path, line) of each option in a site's file:

        [slurm]
        sbatch = --partition=gpu
            --account=rl
        srun = --mpi=none
    """
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes=("#", ";"), strict=True)
    try:
        data = records.read_file(path, _MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
        parser.read_string(data.decode("utf-8"), path)
    except OSError as error:
        raise OperatorError("can't read %s: %s" % (path, os.strerror(error.errno or 0)), "It is the site's file for Slurm: mend "
                            "its mode, or take it away.", MACHINE, "site-file")
    except (configparser.Error, UnicodeDecodeError) as error:
        raise OperatorError("%s can't be read: %s" % (path, str(error).split("\n")[0]), "Write it as: [slurm], and below it "
                            "sbatch = --partition=gpu", USAGE, "site-file")
    unknown = [name for name in parser.sections() if name != _SECTION]
    keys = list(parser[_SECTION]) if parser.has_section(_SECTION) else []
    unknown += ["%s in [%s]" % (key, _SECTION) for key in keys if key not in _KEYS]
    if unknown:
        raise OperatorError("%s has what nobody reads: %s" % (path, ", ".join(unknown)), "It may have the section [%s] with the "
                            "keys %s." % (_SECTION, " and ".join(_KEYS)), USAGE, "site-file")
    return [(key, path, line.strip()) for key in keys for line in parser[_SECTION][key].split("\n") if line.strip()]


def _refuse_line(key: str, where: str, line: str) -> None:
    """OperatorError (exit 2) for a line that is no option, or that asks for what is not to be had."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        words, problem = [], str(error)
    else:
        problem = _find_problem(words)
    if problem or "\n" in line or "\r" in line or "\0" in line:
        raise OperatorError("%s: %r is no option of %s: %s" % (where, line, key, problem or "it has more than one line"),
                            "For example: --%s=--partition=gpu" % key if key == "sbatch" else "For example: --srun=--mpi=none",
                            USAGE, "usage")
    if redact(line, find_secrets(os.environ)) != line:
        raise OperatorError("%s: an option of %s looks like a secret, and would stand in script and record" % (where, key),
                            "Leave it away; the job gets your environment as it is.", USAGE, "usage")
    for short, value in slurm.read_directives("#SBATCH " + line).items():
        # getopt takes any beginning of a name
        name = next((one for one in sorted(list(_TAKEN) + ["signal"]) if one.startswith(short)), short)
        if name == "signal" and not _SIGNAL.match(value):
            raise OperatorError("%s: --signal=%s would go to every process of the job, the trainer too" % (where, value),
                                "Let it go to the script alone, which tells the head's runner: --signal=B:USR1@600",
                                USAGE, "usage")
        if name in _TAKEN:
            raise OperatorError("%s: --%s can't be asked for: %s" % (where, name, _TAKEN[name]),
                                "Leave it away.", USAGE, "usage")


def _find_problem(words: Sequence[str]) -> str:
    """Why these are not one option with its value; "" where they are. A bare word behind would be the program that srun runs."""
    if not words or not words[0].startswith("-") or not words[0].strip("-"):
        return "an option begins with a dash"
    has_value = "=" in words[0] or (not words[0].startswith("--") and len(words[0]) > 2)
    if len(words) > (1 if has_value else 2) or any(word.startswith("-") for word in words[1:]):
        return "it is more than one option with its value"
    return ""
