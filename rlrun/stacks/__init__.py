"""The training systems that rlrun knows, and the agreement that each keeps. Knows no training system itself.

A stack is one module in this package with these names, and one line in the tables below. All paths are absolute;
nothing here prints, asks, or starts a process.

    TITLE                                   the name that people use
    KINDS                                   the kinds of run, in the order in which help lists them
    TAKES_OVERRIDES                         whether words after `--` go to the runner
    is_checkout(directory)                  is this directory the root of a checkout?
    list_configs(root)                      [Config] that people may launch, sorted
    match_config(root, word)                [Config] that a bare name means
    infer_kind(root, path)                  the kind of a config, "" where it does not tell; OperatorError where it
                                            tells of two
    has_structure_check(kind)               whether the runner can check a config's structure alone
    plan_dry_run(request, environ, structure_only)
                                            (argv, environment, scratch) of the runner's own check; `scratch`: texts of
                                            files that it needs, by the variable that is to name each; OperatorError
                                            (exit 5) where the checkout has none
    read_dry_run(request, outcome, environ, now_stamp)
                                            (Plan, Preflight) out of what it printed; now_stamp: the days of now,
                                            `YYYYmmdd YYYYmmdd`, by which a date in a name is told
    judge_config(plan)                      [Check] that only this stack can judge, all advisory
    classify(process, read_cwd)             Role of a live process, or None
    is_rehearsal(process, environ)          is it a dry run? `environ` is None where it can't be read
    find_root(process, read_cwd)            the checkout that a runner works in, "" where it can't be told
    read_boards(processes, read_cwd)        [Board] that run now
    is_board_name(file_name)                would a board show a log of this name?
    read_back(text)                         {"experiment", "train_log", "vllm_log", "trials", "verdict", "fatal"} out
                                            of the beginning of a launch log
    explain_end(text)                       a word on an end that the log itself does not explain, "" where there is none
    describe_node_command(plan, head, log)  the line for each other node, copy-ready for sh
    name_environment(root)                  (virtual environment, modules) that a run of this checkout uses by default
    read_step_seconds(text)                 [seconds] that each step took, out of a log's text
"""
import importlib
from typing import Any, Dict

# A third training system is one line here.
STACKS: Dict[str, str] = {"lego": "rlrun.stacks.lego"}

# Training systems whose live runs are recognised; all of STACKS are.
RECOGNISED: Dict[str, str] = {"lego": "rlrun.stacks.lego", "prime": "rlrun.stacks.prime"}


def load_stack(name: str) -> Any:
    """The module of one stack. `name` is a key of the tables above."""
    return importlib.import_module(RECOGNISED[name])


def load_recognisers() -> Dict[str, Any]:
    """The modules that can tell what a live process is, by name."""
    return {name: importlib.import_module(path) for name, path in RECOGNISED.items()}
