"""The training systems that rlrun knows, and the agreement that each keeps. Knows no training system itself.

A stack is one module in this package with these names, and one line in the table below. What is marked with * stands in
`<module>_live` already, which is loaded for every stack, whatever is launched, and has to be quick; what is marked with +
stands in `<module>_health` alone, which `status` loads without the rest. All paths are absolute; nothing here prints or asks,
and no process is started but through host/.

    KINDS                                   the kinds of run, in the order in which help lists them
  * TITLE                                   the name that people use
    DEMO                                    the words of the commands by which its toy checkout is tried
    DEMO_ENVIRON                            a variable that makes the toy's run last as long as a look at it, "" for none
    TAKES_OVERRIDES                         whether several configs, and words after `--`, go to the runner
    TAKES_RUNNER                            whether --runner may say what the runner is started with
    TAKES_WHOLE_BOX                         whether a local run of it shares the machine with no other run
    SLURM_WORDS                             {kind: the words by which the runner hands the run to Slurm itself; () where rlrun
                                            writes the batch script}, a kind that is not in it can't be handed in
    SLURM_HINT                              how the runner is told what its job shall ask for, "" where rlrun writes the script
    refuse_requeue(plan)                    why a run in a job of rlrun's own that is started anew would not go on from its newest
                                            checkpoint, "" where it would
  * is_checkout(directory)                  is this directory the root of a checkout?
    list_configs(root)                      [Config] that people may launch, sorted
    match_config(root, word)                [Config] that a bare name means
    infer_kind(root, path)                  the kind of a config, "" where it does not tell; OperatorError where it
                                            tells of two
    has_structure_check(kind)               whether the runner can check a config's structure alone
    plan_dry_run(request, environ, structure_only, scratch)
                                            DryRunOrder of the runner's own check, which may write to `scratch` (a folder
                                            that is made for it) and nowhere else; OperatorError (exit 5) where the
                                            checkout has none, exit 2 where the words can't be launched
    read_dry_run(request, result, environ, now_stamp)
                                            (Plan, Preflight) out of what it printed and wrote; now_stamp: the days of
                                            now, `YYYYmmdd YYYYmmdd`, by which a date in a name is told
    judge_config(plan)                      [Check] that only this stack can judge, once, all advisory
    judge_live(plan, machine)               [Check] that only this stack can judge and that time changes; those that
                                            block are what the runner is sure to refuse by itself
  * classify(process, read_cwd)             Role of a live process, or None
  * is_rehearsal(process, environ)          is it a dry run? `environ` is None where it can't be read
  * find_root(process, read_cwd)            the checkout that a runner works in, "" where it can't be told
  * name_tree(processes, read_cwd)          [(label, pid)] of those processes of one run that people know by name
  * read_boards(processes, read_cwd)        [Board] that run now
  * is_board_name(file_name)                would a board show a log of this name?
    read_back(text, kind, run_dir, before, tree)
                                            {"experiment", "train_log", "vllm_log", "trials", "verdict", "fatal", "rows",
                                            "facts"} out of the beginning of a launch log, of what lies in `run_dir` (""
                                            where the stack knows none) and did not lie there `before`, and of the run's live
                                            processes
    explain_end(text)                       a word on an end that the log itself does not explain, "" where there is none
  * STOP_SIGNAL                             the name of the signal at which a run's group ends in good order
  * describe_stop(pgid, facts)              the command that stops a run, for its process group and what read_back told
    describe_server(url, models)            lines by which people try a server that is up
    describe_node_command(plan, head, launch_log)
                                            the line for each other node, copy-ready for sh
    name_environment(root)                  (virtual environment, modules) that a run of this checkout uses by default
    find_export                             only where the stack can convert checkpoints: see commands/export.py
    read_step_seconds(text)                 [seconds] that each step took, out of a log's text
  + STEP_KINDS                              the kinds of run that tell steps
  + SOURCES                                 the names of the logs that tell steps, the main one first
  + STEP_MARKS                              by source the bytes that each of its step lines has in it
  + STEP_SECONDS                            the key by which a step line tells how long the step took
  + PROGRESS                                patterns of bytes, one of which is in every step line: what an error was survived by
  + METRICS                                 (Metric, …) in the order in which they are shown
  + SIGNATURES                              (Signature, …) the ways to fail that are known, gravest first
  + GATES                                   (Gate, …) by which a first step is judged
  + STAGES                                  (pattern, words) of bytes that logs hold before the first step, in the order in
                                            which a start goes through them; `words` may hold {0}, the pattern's first group, and
                                            {nodes}, how many the run has
  + FINISHED                                patterns of bytes by which a log says that the run has finished
  + STOPPED                                 (pattern of bytes, words) by which a log says that somebody stopped the run
  + parse_step(source, line, wanted)        Point of a line's text (offset 0), None where it is no step line; `wanted`: the
                                            keys (`x/*`: all that begin so) to keep, None for all
  + quote_metric(line, key)                 the part of a step line's text that tells step and metric, as it stands there
  + list_logs(kind, told)                   {name: path} of a run's logs, the main one first; told: {"train_log", "vllm_log",
                                            "launch_log", "run_dir", "before", "host"} as far as they are known
  + trace_run(tree, read_fd, read_cwd)      the same dictionary, out of the live processes of a run that nobody recorded
  + read_outline(kind, head, told)          Outline of a run, out of the beginning of its launch log and its directory
  + find_checkpoint(outline, told)          Checkpoint, None where there is none
  + find_siblings(told, nodes)              the directories that the same run made on its other nodes
  + read_joining(text)                      only where nodes join one another: JoinTold out of a node's launch log, or None
  + has_joined(text)                        only where they do: is this the end of the launch log of a worker that has joined?
"""
import importlib
from typing import Any, Dict, NamedTuple, Tuple

from ..values import Outcome

# A third training system is one line here.
STACKS: Dict[str, str] = {"lego": "rlrun.stacks.lego", "prime": "rlrun.stacks.prime"}


class DryRunOrder(NamedTuple):
    """How the runner checks its own config. With an empty `argv` nothing is run: the stack reads all by itself."""

    argv: Tuple[str, ...]
    env: Dict[str, str]
    files: Dict[str, str]  # texts of files that it needs, by the variable that is to name each
    beside: Tuple[Tuple[str, ...], ...] = ()  # programs that answer while it runs, in the same environment
    python: str = ""  # the interpreter that must find `modules` before anything is run
    modules: Tuple[str, ...] = ()


class DryRunResult(NamedTuple):
    """What came of a DryRunOrder. `scratch`: the folder that it was given to write to; it is there until this is read."""

    outcome: Outcome
    beside: Tuple[Outcome, ...]
    scratch: str
    missing: Tuple[str, ...]  # modules that were not found: then nothing was run


def load_stack(name: str) -> Any:
    """The module of one stack. `name` is a key of STACKS."""
    return importlib.import_module(STACKS[name])


def load_health(name: str) -> Any:
    """The module of one stack that knows what its logs mean: `<stack>_health`."""
    return importlib.import_module(STACKS[name] + "_health")


def load_recognisers() -> Dict[str, Any]:
    """The modules that can tell what a live process is, by name: `<stack>_live`, which loads faster than the whole."""
    return {name: importlib.import_module(path + "_live") for name, path in STACKS.items()}
