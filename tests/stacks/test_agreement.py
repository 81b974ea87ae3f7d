"""The agreement of stacks/__init__.py, held against every stack: one set of tests, the toy checkout of each."""
import ast
import inspect
import json
import os
import re
import shlex
import sys
from pathlib import Path

import pytest
from checkouts import build_checkout, build_prime_checkout

from rlrun import child, stacks
from rlrun.commands import explain
from rlrun.errors import OperatorError
from rlrun.stacks import STACKS, DryRunResult, load_health, load_recognisers, load_stack
from rlrun.steps.shapes import shape_plan
from rlrun.values import Check, Checkout, Config, Machine, Outcome, Plan, Port, Process, Request, Role, Sweep
from steps.made import make_machine, make_process

BUILDERS = {"lego": build_checkout, "prime": build_prime_checkout}
# One config of each kind; the name of a run is known ahead where it has one.
CONFIGS = {"lego": {"train": "demo", "eval": "demo_eval", "infer": "demo_infer"},
           "prime": {"rl": "reverse-text/rl", "sft": "reverse-text/sft", "inference": "reverse-text/infer",
                     "evals": "reverse-text/evals"}}
NAMED = {("lego", "train"), ("lego", "eval"), ("lego", "infer"), ("prime", "rl"), ("prime", "sft")}
CASES = [(stack, kind) for stack in sorted(STACKS) for kind in CONFIGS[stack]]
KEYS = {"experiment", "train_log", "vllm_log", "trials", "verdict", "fatal", "rows", "facts"}
STATUSES = {"pass", "advisory", "blocks", "skipped"}
ENTRY = re.compile(r"^  (?: |(?P<mark>[*+])) (?P<name>[A-Za-z_]+)(?P<arguments>\([a-z_, ]*\))?"
                   r"(?: {2,}(?P<optional>only where )?\S.*)?$")


def read_agreement():
    """[(name, its parameters or None for a constant, "*" live, "+" health or "")] as the docstring has them, without what
    only some stacks have."""
    table = stacks.__doc__.partition("\n\n    ")[2]
    found = []
    for line in ("    " + table).splitlines():
        if line[:4] not in ("    ", "  * ", "  + ") or not line[4:5].strip():
            continue  # what an entry above goes on with
        match = ENTRY.match(line)
        assert match, line
        if not match.group("optional"):
            words = match.group("arguments")
            found.append((match.group("name"), None if words is None else words[1:-1].replace(",", " ").split(),
                          match.group("mark") or ""))
    return found


AGREED = read_agreement()


@pytest.fixture(scope="module")
def roots(tmp_path_factory):
    """A toy checkout of each stack."""
    return {stack: build(tmp_path_factory.mktemp("agreed") / ("a %s" % stack)) for stack, build in BUILDERS.items()}


@pytest.fixture(scope="module")
def environ(tmp_path_factory):
    return {"HOME": str(tmp_path_factory.mktemp("home")), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8",
            "TOY_PYTHON": sys.executable}


class Checked:
    """What came of one dry run."""

    def __init__(self, root, stack, kind, environ, scratch):
        module = load_stack(stack)
        found, = module.match_config(root, CONFIGS[stack][kind])
        self.request = Request(Checkout(stack, root), found, ())
        self.before = snapshot(root)
        self.order = module.plan_dry_run(self.request, environ, False, scratch)
        os.mkdir(scratch)
        for name, text in self.order.files.items():
            Path(scratch, name).write_text(text)
        self.env = dict(self.order.env, PYTHONDONTWRITEBYTECODE="1", **{name: os.path.join(scratch, name)
                                                                      for name in self.order.files})
        started = [child.start(argv, cwd=root, env=self.env, merge=True) for argv in (self.order.argv,) + self.order.beside]
        outcome, *beside = [child.finish(one, 60) for one in started]
        self.scratch, self.outcome = scratch, outcome
        self.plan, self.preflight = module.read_dry_run(
            self.request, DryRunResult(outcome, tuple(beside), scratch, ()), environ, "20260801 20260802")
        self.after = snapshot(root)


def snapshot(root):
    return sorted((path.relative_to(root).as_posix(), path.stat().st_mtime_ns) for path in Path(root).rglob("*"))


@pytest.fixture(scope="module")
def checked(roots, environ, tmp_path_factory):
    """Gives the Checked of a stack and a kind; each is made once."""
    made = {}

    def get(stack, kind):
        if (stack, kind) not in made:
            scratch = str(tmp_path_factory.mktemp("scratch") / "rlrun-check-7-00c0ffee00c0")
            made[stack, kind] = Checked(roots[stack], stack, kind, environ, scratch)
        return made[stack, kind]
    return get


each_stack = pytest.mark.parametrize("stack", sorted(STACKS))
each_case = pytest.mark.parametrize("stack, kind", CASES)


def test_the_text_was_understood():
    names = [name for name, _, _ in AGREED]
    assert len(names) == len(set(names)) > 25
    assert {"TITLE", "is_checkout", "plan_dry_run", "describe_node_command", "read_step_seconds"} <= set(names)
    assert [name for name, words, _ in AGREED if name.isupper() is not (words is None)] == []
    assert set(STACKS) == set(BUILDERS) == set(CONFIGS)


@each_stack
@pytest.mark.parametrize("name, words, mark", AGREED, ids=[entry[0] for entry in AGREED])
def test_every_name_is_there_with_its_parameters(stack, name, words, mark):
    places = {"": (load_stack(stack),), "*": (load_stack(stack), load_recognisers()[stack]), "+": (load_health(stack),)}
    for module in places[mark]:
        held = getattr(module, name)
        if words is None:
            assert not callable(held)
        else:
            assert list(inspect.signature(held).parameters) == words
    if mark == "*":
        assert getattr(load_stack(stack), name) == getattr(load_recognisers()[stack], name)


def test_nothing_else_is_asked_of_a_stack():
    """What the steps and commands use of `load_stack(…)` or of a recogniser stands in the table."""
    used = set()
    for path in sorted(Path(stacks.__file__).resolve().parent.parent.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if path.parent.name == "stacks" or not re.search("load_stack|load_health", text):
            continue
        tree = ast.parse(text)
        names = {node.targets[0].id for node in ast.walk(tree) if isinstance(node, ast.Assign)
                 and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Call)
                 and getattr(node.value.func, "id", "") in ("load_stack", "load_health")}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                holder = node.value
                called = getattr(getattr(holder, "func", None), "id", "")
                if called in ("load_stack", "load_health") or (isinstance(holder, ast.Name) and holder.id in names):
                    used.add(node.attr)
    assert len(used) > 15 and used <= {name for name, _, _ in AGREED}


@each_stack
def test_constants(stack):
    module = load_stack(stack)
    assert module.TITLE and module.KINDS and len(set(module.KINDS)) == len(module.KINDS)
    assert set(CONFIGS[stack]) == set(module.KINDS)
    assert all(isinstance(held, bool) for held in (module.TAKES_OVERRIDES, module.TAKES_RUNNER, module.TAKES_WHOLE_BOX))
    assert module.STOP_SIGNAL in ("INT", "TERM") and all(isinstance(words, str) for words in module.DEMO)
    assert all(module.has_structure_check(kind) in (True, False) for kind in module.KINDS)


@each_stack
def test_checkouts(stack, roots, tmp_path):
    live = load_recognisers()[stack]
    assert live.is_checkout(roots[stack]) is True
    others = [root for other, root in roots.items() if other != stack]
    for directory in [str(tmp_path), str(tmp_path / "none"), os.path.join(roots[stack], "src"),
        os.path.dirname(roots[stack])] + others:
        assert live.is_checkout(directory) is False


@each_stack
def test_configs(stack, roots):
    module, root = load_stack(stack), roots[stack]
    configs = module.list_configs(root)
    assert configs == module.list_configs(root) and len(configs) > 3
    assert len({config.path for config in configs}) == len(configs)
    folders = list(dict.fromkeys(os.path.dirname(config.path) for config in configs))
    assert [config.path for config in configs] == sorted(
        (config.path for config in configs), key=lambda path: (folders.index(os.path.dirname(path)), path))
    for config in configs:
        assert isinstance(config, Config) and os.path.isabs(config.path) and os.path.isfile(config.path)
        assert config.kind in module.KINDS and os.path.join(root, config.shown) == config.path


@each_stack
def test_a_config_is_found_by_its_own_name(stack, roots):
    module, root = load_stack(stack), roots[stack]
    for config in module.list_configs(root):
        name = os.path.basename(config.path)
        longer = "/".join(config.shown.split("/")[-3:])
        for word in (name, os.path.splitext(name)[0], longer, os.path.splitext(longer)[0]):
            assert config in module.match_config(root, word)
        assert config not in module.match_config(root, name[1:])
    assert module.match_config(root, "no such config") == []


@each_stack
def test_kinds_of_configs(stack, roots):
    module, root = load_stack(stack), roots[stack]
    for config in module.list_configs(root):
        try:
            told = module.infer_kind(root, config.path)
        except OperatorError as error:
            assert error.code == 2 and "--kind" in error.hint
            continue
        assert told in (config.kind, "")
    assert {module.infer_kind(root, module.match_config(root,
        word)[0].path) for word in CONFIGS[stack].values()} == set(module.KINDS)


@each_case
def test_a_dry_run_makes_a_plan(checked, stack, kind):
    found = checked(stack, kind)
    plan = found.plan
    assert not found.preflight.died and not found.preflight.skipped, found.preflight.last_words
    assert isinstance(plan, Plan) and (plan.stack, plan.kind) == (stack, kind)
    assert (plan.root, plan.config, plan.config_shown) == (found.request.checkout.root,) + tuple(found.request.config[:2])
    assert plan.block and all(isinstance(row, tuple) and len(row) == 2 and all(row) for row in plan.second_look)
    assert plan.argv and all(isinstance(word, str) and word for word in plan.argv) and plan.argv_again[:1] in ((), plan.argv[:1])
    assert plan.config in plan.sources or stack == "lego"  # there the digest adds it
    assert bool(plan.experiment) is ((stack, kind) in NAMED)
    assert plan.gpu_count is None or plan.gpu_count >= 0
    assert all(isinstance(port, Port) and 0 < port.number < 65536 and port.purpose for port in plan.ports)
    assert len({port.number for port in plan.ports}) == len(plan.ports)
    assert plan.takes_whole_box is load_stack(stack).TAKES_WHOLE_BOX
    assert plan.topology.nodes == 1 and plan.stage
    assert set(plan.import_fixes) <= set(plan.modules + plan.soft_modules)


@each_case
def test_the_paths_of_a_plan_are_whole(checked, stack, kind):
    plan = checked(stack, kind).plan
    assert plan.write_dirs and plan.python
    for path in plan.write_dirs + plan.sources + plan.sweep.path_globs + (plan.root, plan.config, plan.python):
        assert os.path.isabs(path)
    for path in (plan.train_log, plan.vllm_log, plan.trials, plan.checkpoints, plan.run_dir, plan.venv, plan.ray_dir,
        plan.path_first):
        assert path == "" or os.path.isabs(path)


@each_case
def test_nothing_of_the_scratch_folder_is_in_a_plan(checked, stack, kind):
    found = checked(stack, kind)
    assert found.scratch not in repr(found.plan) and found.scratch not in repr(found.preflight.lines)


@each_case
def test_a_plan_can_be_printed(checked, stack, kind):
    plan = checked(stack, kind).plan
    shape = json.loads(json.dumps(shape_plan(plan, Sweep((), ()), ())))
    assert shape["argv"] == list(plan.argv) and shape["experiment"] == (plan.experiment or None)
    json.dumps(plan._replace(own=None))


@each_case
def test_a_check_leaves_the_checkout_as_it_is(checked, stack, kind):
    found = checked(stack, kind)
    assert found.before == found.after


@each_case
def test_a_dry_run_is_known_as_a_rehearsal(checked, stack, kind):
    found, live = checked(stack, kind), load_recognisers()[stack]
    words = (found.order.argv,) + found.order.beside
    assert all(live.is_rehearsal(make_process(7, *argv), found.env) is True for argv in words)
    assert live.is_rehearsal(make_process(7, *found.plan.argv), {"PATH": "/usr/bin"}) is False
    # A script is shown behind its interpreter.
    process = make_process(7, *((("python3",) if "/" in found.plan.argv[0] else ()) + found.plan.argv))
    assert live.classify(process, lambda pid: found.plan.root) == Role(stack, "runner", kind)
    assert live.find_root(process, lambda pid: found.plan.root) == found.plan.root


@each_case
def test_judgements_are_explained(checked, stack, kind):
    module, plan = load_stack(stack), checked(stack, kind).plan
    known = {entry.name: entry for entry in explain.read_entries()}
    machine = make_machine([make_process(9, "sleep", "1")])
    assert isinstance(machine, Machine)
    advice, live = module.judge_config(plan), module.judge_live(plan, machine)
    for check in advice + live:
        assert isinstance(check, Check) and check.status in STATUSES and check.layer == "live"
        assert check.name in known and check.detail
        assert check.status != "blocks" or (check.fix and known[check.name].status == "blocks")
    assert all(check.status in ("advisory", "pass") for check in advice)


@each_stack
@pytest.mark.parametrize("argv", [
    (), ("",), ("bash",), ("sleep", "1"), ("python3", "-m", "http.server"), ("vim", "train.sh"), ("less", "rl.toml"),
    ("tail", "-F", "outputs/x/logs/trainer.log"), ("ssh", "node2", "uv run rl @ rl.toml"), ("tmux", "new", "train.sh"),
    ("python3", "rlrun.pyz", "run", "rl.toml"), ("grep", "-r", "prime_rl.trainer.rl.train"), ("git", "log", "@", "x.toml"),
    ("watch", "rlrun status"), ("python3", "-c", "import verl, prime_rl"), ("uv", "pip", "install", "rl"), ("-bash",)])
def test_other_programs_are_nobodys(stack, argv, tmp_path):
    live = load_recognisers()[stack]
    process = Process(7, 1, 7, 7, 0, "S", 5, 1.0, "x", argv)
    for cwd in (str(tmp_path), None):
        assert live.classify(process, lambda pid, cwd=cwd: cwd) is None
    assert live.read_boards({7: process}, lambda pid: str(tmp_path)) == []


@each_case
def test_an_empty_log_tells_nothing_and_all_keys(monkeypatch, tmp_path, stack, kind):
    monkeypatch.setenv("HOME", str(tmp_path))
    for run_dir in ("", str(tmp_path / "none"), str(tmp_path)):
        told = load_stack(stack).read_back("", kind, run_dir, (), ())
        assert set(told) == KEYS and not told["fatal"] and told["experiment"] == told["train_log"] == told["verdict"] == ""
        assert all(len(row) == 2 and all(isinstance(word, str) for word in row) for row in told["rows"])
        json.dumps(told)


@each_stack
@pytest.mark.parametrize("facts", [{}, {"jobs": []}, {"jobs": ["12", "13"]}, {"jobs": ["1; touch x"]},
    {"pids": {"trainer": [5]}}])
def test_a_stop_command_is_safe_to_paste(stack, facts):
    command = load_stack(stack).describe_stop(4711, facts)
    words = shlex.split(command)
    assert not set(";&|<>$`\n") & set(command.replace("'1; touch x'", ""))
    name = load_stack(stack).STOP_SIGNAL
    assert words[0] == "scancel" or words in (["kill", "-" + name, "--", "-4711"], ["kill", "-s", name, "--", "-4711"])


@each_stack
def test_words_about_a_text(stack):
    module = load_stack(stack)
    assert module.explain_end("") == "" and module.read_step_seconds("") == []
    assert module.is_board_name("") is False and isinstance(module.is_board_name("x.log"), bool)
    assert all(isinstance(line, str) for line in module.describe_server("http://n:8000", ("m",)))


@each_case
def test_the_line_for_another_node(checked, stack, kind):
    line = load_stack(stack).describe_node_command(checked(stack, kind).plan, "10.0.0.1", "logs/launch_x")
    assert "\n" not in line and (line == "" or shlex.split(line)[:2] == ["cd", checked(stack, kind).plan.root])


@each_stack
def test_the_environment(stack, roots):
    venv, modules = load_stack(stack).name_environment(roots[stack])
    assert os.path.isabs(venv) and modules and all(re.match(r"\w+\Z", name) for name in modules)


@each_case
@pytest.mark.parametrize("how, code, output", [
    ("ended", 1, b""), ("ended", 0, b""), ("killed", 9, b"x"), ("timeout", 0, b"\xff\xfe"), ("overflow", 0, b"a\n" * 9)])
def test_a_dry_run_that_said_nothing_has_died(checked, tmp_path, environ, stack, kind, how, code, output):
    outcome = Outcome(("x",), how, code, output, b"", 1.0)
    plan, preflight = load_stack(stack).read_dry_run(checked(stack, kind).request, DryRunResult(
        outcome, (), str(tmp_path), ()), environ, "20260801")
    assert preflight.died and plan.argv and plan.block == "" and plan.config == checked(stack, kind).plan.config
