"""prime-rl on a live machine: which process is what, and whose. The recognition by words alone is in test_lego_live.py."""
import os
import subprocess
import sys

import pytest

from rlrun.host import procs
from rlrun.stacks import prime_live
from rlrun.values import Process

PY = "/c/.venv/bin/python"


def process(argv, pid=7, ppid=1, comm="x", state="S"):
    words = tuple(argv.split() if isinstance(argv, str) else argv)
    return Process(pid, ppid, pid, pid, 0, state, 5, 1.0, comm, words)


def role(argv, cwd=None, comm="x"):
    found = prime_live.classify(process(argv, comm=comm), lambda pid: cwd)
    return (found.role, found.kind) if found else None


def table(*rows):
    """{pid: Process} of (pid, ppid, words) or (pid, ppid, words, state)."""
    return {row[0]: process(row[2], row[0], row[1], state=row[3] if len(row) > 3 else "S") for row in rows}


def name(*rows):
    return prime_live.name_tree(table(*rows).values(), lambda pid: None)


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / "c/src/prime_rl/entrypoints").mkdir(parents=True)
    (tmp_path / "c/configs").mkdir()
    return str(tmp_path / "c")


@pytest.mark.parametrize("prefix", ["PRIME-RL", "PRL"])
@pytest.mark.parametrize("title, found", [
    ("Launcher", ("runner", "rl")), ("SFT", ("runner", "sft")), ("Evals", ("runner", "evals")),
    ("Inference", ("runner", "inference")), ("EnvServer", ("worker", "")), ("EnvServer3", ("worker", "")),
    ("Orchestrator", ("trainer", "rl")),
    ("Trainer", ("trainer", "")), ("SFTTrainer", ("trainer", "sft")), ("Trainer[rank0]", ("trainer", "")),
    ("Dashboard", None), ("Dash", None), ("Train", None), ("E", None), ("", None)])
def test_P5_titles_and_P7_what_the_kernel_leaves_of_them(prefix, title, found):
    whole = "%s::%s" % (prefix, title)
    assert role([whole]) == found
    assert role([whole, "x"]) == found  # with more behind it
    assert role("vim", comm=whole[:15]) is None and role(["x" + whole]) is None
    cut = role([], comm=whole[:15])
    assert cut == found or len(whole) < 15 or whole == "PRIME-RL::Train"


@pytest.mark.parametrize("comm, found", [
    ("PRIME-RL::Train", ("trainer", "")), ("PRIME-RL::SFTTr", ("trainer", "sft")), ("PRIME-RL::Orche", ("trainer", "rl")),
    ("PRL::Orchestrat", ("trainer", "rl")), ("PRIME-RL::Dashb", None), ("PRL::Dashboard", None), ("PRIME-RL::Trai", None),
    ("PRL::Orchestra", None), ("Verifiers::EnvW", ("worker", "")), ("Verifiers::EnvS", ("worker", "")),
    ("vllm::router", ("worker", "")), ("pt_elastic", None), ("VLLM::EngineCor", None)])
def test_P7_short_names(comm, found):
    assert role([], comm=comm) == found
    assert role("sleep 1", comm=comm) is None


def test_P7_is_cut():
    assert prime_live.is_cut("PRIME-RL::Launc", "PRIME-RL::Launcher")
    assert not prime_live.is_cut("PRIME-RL::Laun", "PRIME-RL::Launcher")
    assert not prime_live.is_cut("PRIME-RL::Dashb", "PRIME-RL::Launcher")


@pytest.mark.parametrize("argv, found", [
    ("vllm-router --policy x", ("worker", "")), ("/c/.venv/bin/vllm-router --port 8000", ("worker", "")),
    ("python /c/.venv/bin/vllm-router --port 8000", ("worker", "")), ("vllm::router", ("worker", "")),
    ("uv run vllm-router", ("worker", "")), ("Verifiers::EnvServer", ("worker", "")), ("Verifiers::EnvWorker12", ("worker", "")),
    ("VLLM::EngineCore", None), ("VLLM::EngineCore_DP0", None), ("python -m pydoc vllm-router", None), ("vim vllm-router", None),
    ("vllm-router-exporter", None), ("python src/prime_rl/trainer/rl/train.py @ t.toml", ("trainer", "rl")),
    ("uv run torchrun --nproc-per-node 8 src/prime_rl/trainer/sft/train.py @ t.toml", ("trainer", "sft")),
    ("python /c/src/prime_rl/entrypoints/rl.py", ("runner", "rl")), ("python rl.py", None),
    ("python xprime_rl/entrypoints/rl.py", None), ("vim src/prime_rl/entrypoints/rl.py", None)])
def test_workers_and_files_of_modules(argv, found):
    assert role(argv) == found


def test_a_file_of_a_module_from_its_own_folder():
    assert role("python train.py @ t.toml", cwd="/c/src/prime_rl/trainer/rl") == ("trainer", "rl")
    assert role("python train.py @ t.toml", cwd="/c/src/other/trainer/rl") is None


@pytest.mark.parametrize("argv", [
    "tail -F /o/x/logs/attempt_1/trainer.log", ["sh", "-c", "tail -F '/o/x/logs/attempt_1/orchestrator.log'"],
    "less +F PRL::Trainer", "grep -r prime_rl.trainer.rl.train /c", "vim /o/x/configs/trainer.json", "watch rl @ rl.toml",
    "tmux new uv run rl @ rl.toml", ["bash", "-c", "uv run rl @ rl.toml; true"]])
def test_P1_P3_P5_what_only_looks_is_none(argv):
    assert role(argv, cwd="/c") is None


def test_a_command_without_a_config_is_believed_in_a_checkout_only(checkout, monkeypatch):
    assert role("python .venv/bin/rl --model.name m", cwd=checkout) == ("runner", "rl")
    assert role("python .venv/bin/rl --model.name m", cwd="/") is None
    assert role(["python", checkout + "/.venv/bin/rl"], cwd="/") == ("runner", "rl")
    assert role(["uv", "--project", checkout, "run", "rl"], cwd="/") == ("runner", "rl")
    assert role(["uv", "run", "--project=c", "sft"], cwd=os.path.dirname(checkout)) == ("runner", "sft")
    assert role("uv --project /other run rl", cwd=checkout) is None
    monkeypatch.chdir(checkout)  # rlrun stands in one; another user's working directory is hidden
    assert role("python .venv/bin/rl --model.name m") is None and role("uv run rl") is None


@pytest.mark.parametrize("text, found", [
    ('[project]\nname = "prime-rl"\n', True), ("name='prime-rl'", True), ('name = "prime-rl-configs"', False),
    ('# name = "prime-rl"', False), (None, False)])
def test_checkouts(checkout, text, found):
    if text is not None:
        with open(checkout + "/pyproject.toml", "w") as file:
            file.write(text)
    assert prime_live.is_checkout(checkout) is found
    assert not prime_live.is_checkout(os.path.dirname(checkout)) and not prime_live.is_checkout("")


def test_roots(checkout):
    def root(argv, cwd=None):
        return prime_live.find_root(process(argv), lambda pid: cwd)

    assert root("python .venv/bin/rl @ a.toml", checkout) == checkout
    assert root(["python", checkout + "/.venv/bin/rl", "@", "a.toml"], "/") == checkout
    assert root([checkout + "/.venv/bin/python", "-m", "prime_rl.entrypoints.rl"], "/") == checkout
    assert root([checkout + "/.venv/bin/python", checkout + "/.venv/bin/torchrun", "-m", "prime_rl.trainer.rl.train"]) == checkout
    assert root(["uv", "--project", checkout, "run", "rl", "@", "a.toml"], "/") == checkout
    assert root("uv run rl @ a.toml", checkout) == checkout
    assert root("PRL::Launcher", checkout) == checkout
    for cwd in (checkout + "/src", checkout + "/configs", os.path.dirname(checkout), checkout + " (deleted)", None):
        assert root("PRL::Launcher", cwd) == "" and root("uv run rl @ a.toml", cwd) == ""
        assert root("/v/bin/python /v/bin/rl @ a.toml", cwd) == ""


@pytest.mark.parametrize("argv, environ, found", [
    ("uv run rl @ a.toml --dry-run", None, True), ("python /c/.venv/bin/rl --help", {}, True), ("uv run sft -h", None, True),
    ("PRIME-RL::Launcher", {prime_live.REHEARSAL: "1"}, True), ("PRIME-RL::Launcher", {prime_live.REHEARSAL: "0"}, False),
    ("PRIME-RL::Launcher", {}, False), ("PRIME-RL::Launcher", None, False), ("uv run rl @ a.toml", {"DRY_RUN": "1"}, False)])
def test_rehearsals(argv, environ, found):
    assert prime_live.is_rehearsal(process(argv), environ) is found


# As seen on the real launcher: uv, what the launcher starts, torchrun with two ranks.
TORCHRUN = [PY, "/c/.venv/bin/torchrun", "--role=trainer", "--log-dir=/o/x/logs/attempt_1/trainer/torchrun",
            "--nproc-per-node=2", "-m", "prime_rl.trainer.rl.train", "@", "/o/x/configs/trainer.json"]
RANK = [PY, "-u", "-m", "prime_rl.trainer.rl.train", "@", "/o/x/configs/trainer.json"]
RUN = (
    (11, 1, "uv run rl @ rl.toml --output-dir /o --run.name x"), (15, 11, "PRIME-RL::Launcher"), (21, 15, "PRIME-RL::Inference"),
    (23, 15, "PRIME-RL::EnvServer"), (24, 15, "PRIME-RL::EnvServer"), (25, 15, "PRIME-RL::Orchestrator"), (27, 15, TORCHRUN),
    (29, 15, ["/bin/sh", "-c", "tail -F '/o/x/logs/attempt_1/orchestrator.log'"]),
    (30, 29, "tail -F /o/x/logs/attempt_1/orchestrator.log"), (31, 21, "vllm::router"), (32, 21, "VLLM::EngineCore"),
    (33, 23, "Verifiers::EnvWorker0"), (35, 27, "PRIME-RL::Trainer"), (36, 27, "PRIME-RL::Trainer"))
NAMED = [("launcher", 15), ("inference", 21), ("router", 31), ("orchestrator", 25), ("env server", 23), ("env server", 24),
         ("trainer", 35), ("trainer", 36)]


def test_S5_the_real_processes_of_a_tree():
    assert name(*RUN) == NAMED
    assert name(*(RUN[::-1])) == NAMED
    assert name(*((pid, ppid, [w.replace("PRIME-RL::", "PRL::") for w in (words.split() if isinstance(words, str) else words)])
                  for pid, ppid, words in RUN)) == NAMED


def test_a_tree_before_the_titles():
    rows = [(11, 1, "uv run rl @ rl.toml")]
    assert name(*rows) == []
    rows += [(15, 11, [PY, "/c/.venv/bin/rl", "@", "rl.toml"])]
    assert name(*rows) == [("launcher", 15)]
    rows += [(27, 15, TORCHRUN), (21, 15, [PY, "/c/.venv/bin/inference", "@", "/o/x/configs/inference.json"])]
    assert name(*rows) == [("launcher", 15), ("inference", 21)]
    rows += [(35, 27, RANK), (36, 27, RANK)]
    assert name(*rows) == [("launcher", 15), ("inference", 21), ("trainer", 35), ("trainer", 36)]


def test_a_forked_child_with_its_parents_title_is_no_row():
    rows = RUN + ((40, 35, "PRIME-RL::Trainer"), (41, 36, "PRIME-RL::Trainer"), (42, 41, "PRIME-RL::Trainer"),
                  (43, 15, "PRIME-RL::Launcher"), (44, 25, "PRIME-RL::Orchestrator"), (45, 23, "Verifiers::EnvServer"))
    assert name(*rows) == NAMED


def test_the_dead_are_no_rows():
    rows = [(15, 1, "PRL::Launcher"), (35, 15, "PRL::Trainer", "Z"), (36, 35, "PRL::Trainer"), (37, 15, "PRL::Dashboard")]
    assert name(*rows) == [("launcher", 15), ("trainer", 36)]


@pytest.mark.parametrize("rows, named", [
    # sft with evals; inference and evals alone; the state of spring 2026: env servers below the orchestrator
    ([(2, 1, "uv run sft @ a.toml"), (3, 2, "PRL::SFT"), (4, 3, "PRL::Evals"), (5, 3, TORCHRUN), (6, 5, "PRL::SFTTrainer")],
     [("launcher", 3), ("trainer", 6), ("evals", 4)]),
    ([(2, 1, "uv run inference @ a.toml"), (3, 2, "PRL::Inference"), (4, 3, ["vllm-router", "--port", "8000"])],
     [("inference", 3), ("router", 4)]),
    ([(2, 1, "uv run eval @ a.toml"), (3, 2, "PRL::Evals")], [("evals", 3)]),
    ([(2, 1, "PRIME-RL::Launcher"), (3, 2, "PRIME-RL::Orchestrator"), (4, 3, "Verifiers::EnvServer"),
      (5, 4, "Verifiers::EnvWorker0")], [("launcher", 2), ("orchestrator", 3), ("env server", 4)]),
])
def test_trees_of_other_kinds(rows, named):
    assert name(*rows) == named


class Machine:
    """A process table with descriptors and working directories, and the run directory <folder>/o/x."""

    def __init__(self, folder):
        self.folder = os.path.realpath(str(folder))
        self.run = self.folder + "/o/x"
        self.other = self.folder + "/o/xy"
        os.makedirs(self.run + "/configs")
        os.makedirs(self.other)
        self.processes = {}
        self.fds = {}
        self.cwds = {}

    def add(self, pid, ppid, words, out=None, cwd=None, number=1, state="S"):
        words = [word.format(run=self.run, other=self.other, o=self.folder + "/o") for word in
                 (words.split() if isinstance(words, str) else words)]
        self.processes[pid] = process(words, pid, ppid, state=state)
        if out:
            self.fds[pid, number] = out.format(run=self.run, other=self.other)
        self.cwds[pid] = cwd or self.folder
        return self

    def find(self, run=None):
        return prime_live.find_of_run(self.processes, run or self.run, lambda pid, number: self.fds.get((pid, number)),
                                      self.cwds.get)


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_a_whole_run_by_its_output_and_the_launchers_above(machine):
    for pid, ppid, words in RUN:
        below = {21: "inference", 31: "inference", 32: "inference", 23: "envs/train/a", 33: "envs/train/a", 24: "envs/train/b",
                 25: "orchestrator", 27: "trainer", 35: "trainer", 36: "trainer"}.get(pid)
        machine.add(pid, ppid, "uv run rl @ no.toml" if pid == 11 else words,
                    "{run}/logs/attempt_1/%s.log" % below if below else machine.folder + "/launch.log")
    machine.add(50, 1, "tail -F {run}/logs/trainer.log", "{run}/copy").add(51, 1, "vim {run}/configs/trainer.json")
    machine.add(52, 1, "python -m http.server", "{run}/web.log").add(53, 1, "PRL::Dashboard", "{run}/dashboard.log")
    assert machine.find() == (11, 15, 21, 23, 24, 25, 27, 31, 33, 35, 36)
    assert machine.find(machine.other) == ()


@pytest.mark.parametrize("out, number, found", [
    ("{run}/logs/a.log", 1, True), ("{run}/logs/a.log", 2, True), ("{run}/logs/a.log (deleted)", 1, True),
    ("{run}/logs/a.log", 0, False), ("{other}/a.log", 1, False), ("pipe:[77]", 1, False), ("/dev/null", 1, False),
    (None, 1, False)])
def test_output(machine, out, number, found):
    assert machine.add(5, 1, "PRL::Trainer", out, number=number).find() == ((5,) if found else ())


def test_the_dead_and_the_rehearsing_are_not_of_a_run(machine):
    machine.add(5, 1, "PRL::Trainer", "{run}/a.log", state="Z").add(6, 1, "uv run rl @ {run}/configs/rl.json --dry-run")
    assert machine.find() == ()


@pytest.mark.parametrize("words, found", [
    ([PY, "-m", "prime_rl.trainer.rl.train", "@", "{run}/configs/trainer.json"], True),
    ([PY, "-m", "prime_rl.trainer.rl.train", "@", "o/x/configs/trainer.json"], True),
    ([PY, "-m", "prime_rl.trainer.rl.train", "@", "{other}/configs/trainer.json"], False),
    ([PY, "-m", "prime_rl.trainer.rl.train", "@", "{o}/x/../xy/configs/trainer.json"], False),
    ("uv run env-server @ {run}/configs/envs/train/a.json", True), ("uv run rl @ {run}/configs/rl.json", True),
    ("uv run torchrun --log-dir={run}/logs -m prime_rl.trainer.rl.train @ {run}/configs/trainer.json", True),
    ("uv run inference @ i.toml --output-dir {run}", True), ("uv run inference @ i.toml --output_dir={run}/inference", True),
    ("uv run inference @ i.toml --output-dir {o}", False), ("uv run inference @ i.toml --output-dir", False),
    # what only reads there
    ("uv run inference @ i.toml --vllm.model {run}/weights/step_10", False),
    ("uv run rl @ rl.toml --run.name y --model.name {run}/weights/step_10", False),
    ("uv run rl @ {run}/configs/rl.json --run.name y", False), ("uv run rl @ rl.toml --output-dir {run}", False),
    # by name
    ("uv run rl @ rl.toml --output-dir {o} --run.name x", True), ("uv run sft @ rl.toml --run.name=x --output-dir=o", True),
    ("uv run rl @ rl.toml --output-dir {o} --run.name z --run.dir x", True),
    ("uv run rl @ rl.toml --output-dir {o} --run.name x --run.dir z", False),
    ("uv run rl @ rl.toml --output-dir {o}/p --run.name x", False), ("uv run rl @ rl.toml --output-dir {o} --run.name xy", False),
    ("uv run rl @ rl.toml --output-dir {o}", False), ("uv run rl @ rl.toml --run.name x", True),
    ("uv run rl @ rl.toml --run.name y", False), ("rl --run.name x", False), ("vim @ rl.toml --run.name x", False)])
def test_words(machine, words, found):
    assert machine.add(5, 1, words).find() == ((5,) if found else ())


def test_a_name_without_an_output_folder_is_of_the_default_one_unless_the_config_may_say_otherwise(machine):
    config = os.path.join(machine.folder, "rl.toml")
    machine.add(5, 1, "uv run rl @ rl.toml --run.name x")
    assert machine.find() == (5,)  # the config is not there: who knows
    with open(config, "w") as file:
        file.write("max_steps = 5\n")
    os.makedirs(machine.folder + "/outputs")
    assert machine.find() == () and machine.find(machine.folder + "/outputs/x") == (5,)
    machine.cwds[5] = None
    assert machine.find() == (5,)
    machine.cwds[5] = machine.folder
    with open(config, "a") as file:
        file.write('output_dir = "o"\n')
    assert machine.find() == (5,) and machine.find(machine.folder + "/outputs/y") == ()


def test_links_on_both_sides(machine):
    os.symlink(machine.folder + "/o", machine.folder + "/link")
    os.symlink(machine.run, machine.folder + "/alias")
    machine.add(5, 1, "PRL::Trainer", "{run}/a.log").add(6, 1, "uv run rl @ rl.toml --output-dir link --run.name x")
    machine.add(7, 1, "uv run env-server @ link/x/configs/e.json").add(8, 1, "uv run rl @ rl.toml --run.name alias")
    assert machine.find(machine.folder + "/link/x") == (5, 6, 7) and machine.find(machine.run + "/") == (5, 6, 7)
    assert machine.find(machine.folder + "/alias") == (5, 6, 7, 8)


def test_the_launcher_of_another_run_is_not_taken_with_it(machine):
    machine.add(2, 1, "PRL::Launcher").add(3, 2, "PRL::Trainer", "{other}/a.log")
    machine.add(4, 1, "PRL::Launcher").add(5, 4, ["bash", "x.sh"]).add(6, 5, "PRL::Trainer", "{run}/a.log")
    assert machine.find() == (4, 6) and machine.find(machine.other) == (2, 3)


def test_descriptors(tmp_path):
    with open(str(tmp_path / "out"), "w") as file:
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=file)
    try:
        assert procs.read_fd(child.pid, 1) == os.path.realpath(str(tmp_path / "out"))
        assert procs.read_fd(child.pid, 0).startswith("pipe:[") and procs.read_fd(child.pid, 99) is None
        assert procs.read_fd(child.pid, 1, str(tmp_path)) is None
    finally:
        child.communicate(b"\n")
