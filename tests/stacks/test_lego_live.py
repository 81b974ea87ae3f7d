"""Which live process is what to Lego-RL and to prime-rl."""
import os

import pytest

from rlrun.stacks import lego_live, prime
from rlrun.values import Process


def process(*argv, comm="x", pid=7, uid=0):
    return Process(pid, 1, pid, pid, uid, "S", 5, 1.0, comm, tuple(argv))


def role(*argv, cwd=None, comm="x", module=lego_live):
    found = module.classify(process(*argv, comm=comm), lambda pid: cwd)
    return (found.role, found.kind) if found else None


@pytest.mark.parametrize(
    "argv, cwd, found",
    [
        ("bash scripts/train/train.sh x", None, "train"),
        ("bash /c/scripts/eval/eval.sh x", None, "eval"),
        ("bash infer.sh x", "/c/scripts/infer", "infer"),
        ("bash ./train.sh", "/c/scripts/train", "train"),
        ("bash ../train/train.sh", "/c/scripts/eval", "train"),
        ("bash train/train.sh", "/c/scripts", "train"),
        ("bash train/train.sh", None, "train"),
        ("bash train/train.sh", "/other", None),
        ("bash train.sh", "/other/train", None),
        ("bash train.sh", None, None),
        ("bash scripts/train/eval.sh", "/c", None),
        ("bash scripts/train/train.sh.bak", "/c", None),
        ("bash xscripts/train/train.sh", "/c", None),
        ("bash -c scripts/train/train.sh", "/c", None),
        ("vim scripts/train/train.sh", "/c", None),
        ("bash scripts/train/train.sh", "/c (deleted)", "train"),
    ],
)
def test_runners(argv, cwd, found):
    assert role(*argv.split(), cwd=cwd) == (("runner", found) if found else None)


@pytest.mark.parametrize("argv", [
    "python3 -m verl.trainer.main_ppo a=b", "/v/bin/python -u -m verl.experimental.fully_async_policy.fully_async_main",
    "python3 /v/lib/verl/trainer/main_ppo.py", "python3 verl/experimental/fully_async_policy/fully_async_main.py"])
def test_trainers(argv):
    assert role(*argv.split()) == ("trainer", "train")


@pytest.mark.parametrize(
    "argv, kind",
    [
        ("VLLM::Worker_TP0", ""),
        ("VLLM::EngineCore_DP0", ""),
        ("EngineCore_0", ""),
        ("ray::WorkerDict.update", ""),
        ("vllm serve m", ""),
        ("/v/bin/vllm serve m", ""),
        ("python3 /v/bin/vllm serve m", ""),
        ("python3 /v/bin/harbor run --x", "eval"),
        ("python3 /c/utils/eval_swerebench_filtered.py --index i", "infer"),
    ],
)
def test_workers(argv, kind):
    assert role(*argv.split()) == ("worker", kind)


@pytest.mark.parametrize(
    "argv",
    [
        "ray::IDLE",
        "vllm bench",
        "python3 /v/bin/harbor view",
        "python3 -m http.server",
        "tail -f x_vllm.log",
        "rayleto",
        "python3 main_ppo.py",
        "/opt/vllm/serve",
    ],
)
def test_nothing(argv):
    assert role(*argv.split(), cwd="/") is None


@pytest.mark.parametrize("argv", [("/x/raylet", "--y"), ("gcs_server",), ("/opt/ray/gcs_server --log_dir=/tmp",)])
def test_clusters(argv):
    assert role(*argv) == ("cluster", "")


@pytest.mark.parametrize(
    "comm, found", [("VLLM::EngineCor", ("worker", "")), ("raylet", ("cluster", "")), ("bash", None), ("python3", None)]
)
def test_P7_short_name_counts_only_without_a_command_line(comm, found):
    assert role(comm=comm) == found
    assert role("sleep", "1", comm=comm) is None


@pytest.mark.parametrize(
    "argv, found",
    [
        (["PRL::Trainer"], "trainer"),
        (["PRIME-RL::Orchestrator"], "trainer"),
        (["PRL::Launcher"], "runner"),
        (["PRL::Inference"], "runner"),
        (["PRL::EnvServer"], "worker"),
        (["Verifiers::EnvWorker0"], "worker"),
        (["PRL::Trainer[rank0]"], "trainer"),
        (["tail", "-F", "PRL::Trainer/trainer.log"], None),
        (["xPRL::Trainer"], None),
        (["python3", "-m", "prime_rl.entrypoints.sft"], "runner"),
        (["python3", "/usr/bin/rl", "x"], None),
        (["PRL::Unheard"], None),
    ],
)
def test_P5_prime(argv, found):
    got = role(*argv, module=prime)
    assert (got[0] if got else None) == found


def test_prime_command_of_a_checkout(tmp_path):
    (tmp_path / "src/prime_rl/entrypoints").mkdir(parents=True)
    assert role("python3", str(tmp_path / ".venv/bin/rl"), module=prime) == ("runner", "rl")
    assert role("python3", "/usr/bin/rl", cwd=str(tmp_path), module=prime) is None
    inference = ("uv", "run", "inference", "--vllm.model", "m")
    assert role(*inference, cwd=str(tmp_path), module=prime) == ("runner", "inference")
    assert role(*inference, cwd="/", module=prime) is None and role(*inference, module=prime) is None


@pytest.mark.parametrize("argv, found", [
    ("/v/bin/python3 /v/bin/rl @ rl.toml", ("runner", "rl")),
    ("/v/bin/python3 /v/bin/sft @ a.toml --max-steps 5", ("runner", "sft")),
    ("/v/bin/python3 /v/bin/inference --x 1 @ a.yaml", ("runner", "inference")),
    ("/v/bin/python3 /v/bin/evals @ a.json", ("runner", "evals")),
    ("/v/bin/python3 /v/bin/rl @rl.toml", ("runner", "rl")),
    ("/v/bin/python3 /v/bin/orchestrator @ o.json", ("trainer", "rl")),
    ("/v/bin/python3 /v/bin/env-server @ e.json", ("worker", "")),
    ("uv run rl @ rl.toml", ("runner", "rl")),
    ("/root/.local/bin/uv run --no-sync --all-extras -p 3.12 --env-file x.env rl @ rl.toml", ("runner", "rl")),
    ("uv --project /c -q run --python=3.12 -p3.12 -- sft @ sft.toml", ("runner", "sft")),
    ("uv run --with rl evals @ e.toml", ("runner", "evals")),
    ("uv run python -m prime_rl.entrypoints.rl @ rl.toml", ("runner", "rl")),
    ("uv run -m prime_rl.entrypoints.sft @ x.toml", ("runner", "sft")),
    ("uv run python /c/.venv/bin/rl @ rl.toml", ("runner", "rl")),
    ("uv run torchrun --nnodes=2 -m prime_rl.trainer.rl.train @ t.json", ("trainer", "rl")),
    ("python /v/bin/torchrun --nproc-per-node 8 --standalone -m prime_rl.trainer.rl.train @ t.json", ("trainer", "rl")),
    ("python /v/bin/torchrun --role=trainer -m prime_rl.trainer.sft.train @ t.json", ("trainer", "sft")),
    ("python -m torch.distributed.run --nproc_per_node=8 -m prime_rl.trainer.rl.train @ t.json", ("trainer", "rl")),
    ("python -m prime_rl.trainer.rl.train", ("trainer", "rl")),
    ("python3.12 -u -m prime_rl.trainer.sft.train @ t.json", ("trainer", "sft")),
    ("python -m prime_rl.orchestrator.orchestrator @ o.json", ("trainer", "rl")),
    ("PRL::SFT", ("runner", "sft")), ("PRIME-RL::SFTTrainer", ("trainer", "sft")), ("PRIME-RL::Evals", ("runner", "evals")),
])
def test_P5_prime_before_it_sets_its_title(argv, found):
    assert role(*argv.split(), module=prime) == found
    assert not prime.is_rehearsal(process(*argv.split()), None)
    assert prime.is_rehearsal(process(*(argv.split() + ["--dry-run"])), None)


@pytest.mark.parametrize("argv", [
    "rl", "rl @ rl.toml", "python3 /usr/bin/rl", "python3 /usr/bin/rl --config rl.toml", "python3 /usr/bin/rl @", "vim rl.toml",
    "python3 /usr/bin/rl @ alice", "python3 /usr/bin/rl alice@x.toml", "vim @ rl.toml", "python3 wrapper.py rl @ rl.toml",
    "python3 -c rl @ rl.toml", "bash rl @ rl.toml", "uv run pytest", "uv run pytest rl @ rl.toml", "uv pip install rl", "uv run",
    "uv pip run rl @ rl.toml", "uv tool run rl @ rl.toml", "uv add rl @ rl.toml", "uv run rl", "uv run --env-file rl @ rl.toml",
    "uv run --with rl pytest @ rl.toml", "uv run vim rl.toml", "uv run bash -c rl @ rl.toml", "uv run -m pytest @ rl.toml", "uv",
    "uv run python -c rl @ rl.toml", "python /v/bin/torchrun train.py -m prime_rl.trainer.rl.train", "python /v/bin/torchrun",
    "python /v/bin/torchrun --nproc-per-node 8 -m other.train prime_rl.trainer.rl.train @ t.json", "uv run torchrun --help",
    "torchrun -m prime_rl.trainer.rl.train", "tail -F prime_rl.trainer.rl.train", "python -m pydoc prime_rl.trainer.rl.train",
    "python x.py -m prime_rl.trainer.rl.train", "ssh n uv run rl @ rl.toml", "PRL::Dashboard"])
def test_P5_what_only_has_the_words_of_prime_is_none(argv):
    assert role(*argv.split(), cwd="/", module=prime) is None


@pytest.mark.parametrize(
    "argv, cwd, root",
    [
        ("bash scripts/train/train.sh", "/c", "/c"),
        ("bash train.sh", "/c/scripts/train", "/c"),
        ("bash /d/scripts/eval/eval.sh", "/c", "/d"),
        ("bash scripts/train/train.sh", None, ""),
        ("python3 -m verl.trainer.main_ppo", "/c", "/c"),
        ("python3 -m verl.trainer.main_ppo", None, ""),
    ],
)
def test_root(argv, cwd, root):
    assert lego_live.find_root(process(*argv.split()), lambda pid: cwd) == root


def make_project(folder, is_checkout=True):
    (folder / "scripts/train").mkdir(parents=True)
    (folder / "scripts/train/train.sh").write_text("")
    (folder / "scripts/lib").mkdir()
    if is_checkout:
        (folder / "scripts/lib/preflight.sh").write_text("")
    return folder


@pytest.mark.parametrize("words", ["bash scripts/train/train.sh", "bash {}/scripts/train/train.sh", "bash go"])
def test_a_runner_of_another_project_is_none(tmp_path, words):
    """Its layout is the same; what tells a checkout is not there."""
    for name, found in (("ours", ("runner", "train")), ("theirs", None)):
        folder = make_project(tmp_path / name, is_checkout=name == "ours")
        os.symlink("scripts/train/train.sh", str(folder / "go"))
        assert role(*words.format(folder).split(), cwd=str(folder)) == found
        assert lego_live.find_root(process(*words.format(folder).split()), {7: str(folder)}.get) == str(folder)


def test_a_runner_beside_what_can_not_be_read_is_believed(tmp_path):
    folder = make_project(tmp_path / "c", is_checkout=False)
    os.symlink("preflight.sh", str(folder / "scripts/lib/preflight.sh"))  # a circle: not absent, and not to be read
    assert role("bash", "scripts/train/train.sh", cwd=str(folder)) == ("runner", "train")


def test_what_is_relative_to_a_hidden_directory_is_not_looked_for_in_ours(tmp_path, monkeypatch):
    """Another user's: rlrun itself stands in a checkout, and that must not make his train.sh a runner."""
    folder = make_project(tmp_path / "c")
    os.symlink("train.sh", str(folder / "scripts/train/go.sh"))
    monkeypatch.chdir(str(folder / "scripts/train"))
    assert role("bash", "train.sh") is None and role("bash", "go.sh") is None
    assert role("bash", "scripts/train/train.sh") == ("runner", "train")
    assert lego_live.find_root(process("bash", "scripts/train/train.sh"), lambda pid: None) == ""


def test_root_through_a_link_of_another_name(tmp_path):
    make_project(tmp_path / "c")
    os.symlink(str(tmp_path / "c/scripts/train/train.sh"), str(tmp_path / "go"))
    assert role("bash", "go", cwd=str(tmp_path)) == ("runner", "train")
    assert lego_live.find_root(process("bash", "go"), lambda pid: str(tmp_path)) == os.path.realpath(str(tmp_path / "c"))


@pytest.mark.parametrize(
    "argv, environ, script, found",
    [
        ("bash t.sh --dry-run x", None, "", True),
        ("bash t.sh --preflight-only x", {}, "", True),
        ("bash t.sh x", {"PREFLIGHT_ONLY": "1"}, "", True),
        ("bash t.sh x", {"PF_STRUCTURE_ONLY": "1"}, "", True),
        ("bash t.sh x", {"DRY_RUN": "1"}, "knows DRY_RUN alone", True),
        ("bash t.sh x", {"DRY_RUN": "1"}, "knows --dry-run", False),
        ("bash t.sh x", {"DRY_RUN": "0"}, "", False),
        ("bash t.sh x", None, "", False),
        ("bash t.sh x--dry-run", {}, "", False),
        ("bash t.sh --help", None, "", True),
        ("bash -x t.sh -h", None, "", True),
        ("bash -h t.sh x", None, "", False),
        ("bash t.sh x -h", None, "", False),
    ],
)
def test_rehearsals(tmp_path, argv, environ, script, found):
    (tmp_path / "t.sh").write_text(script)
    environ = None if environ is None else dict(environ, PWD=str(tmp_path))
    assert lego_live.is_rehearsal(process(*argv.split()), environ) == found


@pytest.mark.parametrize(
    "argv, cwd, port, served",
    [
        ("python3 webui/server.py", "/c", 8080, ("/c/logs",)),
        ("python3 server.py --port 8090 --log-dir /l", "/c/webui", 8090, ("/l",)),
        (
            "python3 -u /c/webui/server.py --port=1 --log-dir=l --extra-log-dir a b --extra-log-dir c",
            "/w",
            1,
            ("/w/l", "/w/a", "/w/b", "/w/c"),
        ),
        ("python3 /c/webui/server.py --port x", "/", None, ("/c/logs",)),
        ("python3 /c/webui/server.py --port \u00b2", "/", None, ("/c/logs",)),
        ("python3 /c/webui/server.py --port " + "9" * 5000, "/", None, ("/c/logs",)),
        ("python3 /c/webui/server.py --port", "/", 8080, ("/c/logs",)),
        ("python3 webui/server.py", None, 8080, ()),
        ("python3 webui/server.py --log-dir logs --extra-log-dir /l", None, 8080, ("/l",)),
    ],
)
def test_boards(argv, cwd, port, served):
    (board,) = lego_live.read_boards({7: process(*argv.split())}, lambda pid: cwd)
    assert (board.pid, board.port, board.served) == (7, port, served)


@pytest.mark.parametrize(
    "argv", ["python3 other/server.py", "vim webui/server.py", "python3 -m webui.server", "python3 server.py --port 1"]
)
def test_no_boards(argv):
    assert lego_live.read_boards({7: process(*argv.split())}, lambda pid: "/c") == []


@pytest.mark.parametrize(
    "name, shown",
    [
        ("a.log", True),
        ("a.out", True),
        ("a_vllm.log", False),
        ("launch_1.log", False),
        ("a.txt", False),
        (".a.log", False),
        ("a_train_gpu_wandb.log", False),
        ("a_server.out", False),
        ("", False),
    ],
)
def test_board_names(name, shown):
    assert lego_live.is_board_name(name) == shown
