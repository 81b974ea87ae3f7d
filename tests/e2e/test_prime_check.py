"""`check` of prime-rl configs on the toy checkout: which config and kind, the plan, the digest, the runner; and that a check
changes nothing. What blocks is in test_prime_bad_input.py."""
import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest
from checkouts import add_prime_config, build_prime_checkout, write_fake_program, write_nvidia_smi
from e2e.scene import FAKE_UV, Scene, build_shared_prime, details, hash_tree

Run = Callable[..., "subprocess.CompletedProcess[str]"]
RL = "examples/basic/reverse-text/rl.toml"


@pytest.fixture
def check(run_pyz: Run, shared_prime: str) -> Callable[..., Dict[str, Any]]:
    """check(*words, …): the object of `check --json`, for tests to which the machine is no matter."""
    def read(*words: str, **options: Any) -> Dict[str, Any]:
        place = words.index("--") if "--" in words else len(words)
        options.setdefault("cwd", shared_prime)
        done = run_pyz(["check"] + list(words[:place]) + ["--json"] + list(words[place:]), **options)
        return dict(json.loads(done.stdout), code=done.returncode)
    return read


def title(done: "subprocess.CompletedProcess[str]") -> str:
    return done.stdout.split("\n")[0]


def rows(shape: Dict[str, Any]) -> Dict[str, str]:
    """The rows of the block, by label."""
    lines = shape["configuration"].split("\n")[1:-1]
    return {line[2:14].strip(): line[15:] for line in lines}


# ---- which config, which kind

@pytest.mark.parametrize("words", [["./examples/../" + RL], ["reverse-text/rl"], ["@", RL], ["@" + RL]], ids=" ".join)
def test_one_config_by_many_words(check, words: List[str]) -> None:
    found = check(*words)
    assert (found["kind"], found["config"], found["configs"]) == ("rl", RL, [RL])
    assert found["plan"]["argv"][-5:-1] == [found["plan"]["argv"][-5], "@", RL, "--run.name"]


def test_bare_name_that_means_several(run_pyz, shared_prime: str) -> None:
    done = run_pyz(["check", "rl"], cwd=shared_prime)
    assert done.returncode == 2 and done.stdout == "" and "rl means several configs" in done.stderr
    assert "1. rl     %s" % RL in done.stderr and "2. rl     configs/debug/rl.toml" in done.stderr


@pytest.mark.parametrize("config, kind", [("configs/debug/plain.toml", "sft"), ("configs/debug/both.toml", "rl"), (
    "configs/debug/fake.json", "sft"), ("configs/debug/small.yaml", "rl")])
def test_kind_that_the_option_tells(check, config: str, kind: str) -> None:
    found = check(config)
    assert found["code"] == 2 and found["reason"] == "kind" and "--kind" in found["hint"]
    if "both" in config:
        assert "several kinds: rl, inference" in found["error"] and found["hint"].endswith("--kind rl|inference")
        return
    found = check(config, "--kind", kind)
    assert (found["kind"], found["config"]) == (kind, config) and "preflight:died" not in found["blocking"]
    assert rows(found)["schedule"] == "max_steps=%d" % (3 if "plain" in config else 2)


def test_kind_that_contradicts_the_content(check) -> None:
    found = check(RL, "--kind", "sft")
    assert found["code"] == 2 and "is a config for rl, not for sft" in found["error"]


def test_two_kinds_at_once(check) -> None:
    found = check("reverse-text/rl", "infer")
    assert found["code"] == 2 and "rl.toml (rl)" in found["error"] and "infer.toml (inference)" in found["error"]


def test_configs_are_listed(run_pyz, shared_prime: str) -> None:
    done = run_pyz(["configs"], cwd=shared_prime)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert done.returncode == 0 and lines[:4] == [["evals", "examples/basic/reverse-text/evals.toml"], [
        "inference", "examples/basic/reverse-text/infer.toml"], ["rl", RL], ["sft", "examples/basic/reverse-text/sft.toml"]]
    names = [os.path.basename(path) for _, path in lines]
    assert "my-sft.toml" in names and "both.toml" in names and "plain.toml" not in names and "fake.json" not in names
    shape = json.loads(run_pyz(["configs", "--kind", "sft", "--json"], cwd=shared_prime).stdout)
    assert [one["config"] for one in shape["configs"]] == ["examples/basic/reverse-text/sft.toml", "configs/debug/my-sft.toml"]


def test_several_configs_are_merged_from_left_to_right(check) -> None:
    words = ["@", RL, "@", "configs/debug/big.toml", "@", "configs/debug/plain.toml"]
    found = check(*words)
    assert found["configs"] == words[1::2] and found["plan"]["argv"][1:7] == words
    shown = rows(found)
    assert shown["config"] == " + ".join(words[1::2]) and shown["schedule"] == "max_steps=3"
    assert shown["batch"] == "64 rollouts/step = 4 prompts × 16" and shown["model"] == "toy/Reverse-Text-0.6B"
    assert rows(check("big", "configs/debug/plain.toml", RL))["schedule"] == "max_steps=20"


def test_overrides_are_handed_on_untouched(prime: Scene) -> None:
    """In their order, with their quoting; the toy resolved them; the line to launch by holds them for a shell."""
    write_fake_program(prime.fakes, "uv", FAKE_UV)
    words = ["--max-steps", "7", "--monitors.wandb.name", "a b'c \"$HOME\" ü", "--no-inference", "--trainer.optim.lr=1e-4",
             "--orchestrator.train.sampling.temperature", "-0.5"]
    seen = prime.folder / "uv-seen"
    found = prime.run(["check", "reverse-text/rl", "--", *words], env={"UV_SEEN": str(seen)})
    shape = prime.run(["check", "reverse-text/rl", "--json", "--", *words]).shape
    assert shape["overrides"] == words
    assert shape["plan"]["argv"][:-2] == ["uv", "run", "--no-sync", "rl", "@", RL] + words
    assert shlex.split(seen.read_text())[:4 + 2 + len(words)] == ["run", "--no-sync", "rl", "@", RL] + words + ["--dry-run"]
    shown = rows(shape)
    assert shown["schedule"] == "max_steps=7" and shown["wandb"] == "reverse-text / a b'c \"$HOME\" ü"
    assert "lr=0.0001" in shown["optimizer"] and shown["context"].endswith("temperature=-0.5")
    launch = re.findall(r"^Launch: (.*)$", found.out, re.M)[0]
    assert shlex.split(launch)[1:] == ["run", RL, "--confirm", shape["digest"], "--"] + words


def test_environment_of_cron_and_from_outside(run_pyz, shared_prime: str, clean_env: Dict[str, str], tmp_path: Path) -> None:
    cron = {"HOME": clean_env["HOME"], "PATH": "/usr/bin:/bin", "SHELL": "/bin/sh"}
    done = run_pyz(["check", "reverse-text/rl", "--root", shared_prime], cwd=tmp_path, env=cron)
    assert title(done).startswith("rlrun check") and " rl.toml" in title(done)
    last = done.stdout.rstrip().split("\n")[-1]
    assert "%s/%s --root %s" % (shared_prime, RL, shared_prime) in last
    done = run_pyz(["check", os.path.join(shared_prime, RL), "--json"], cwd=tmp_path, env=cron)
    assert json.loads(done.stdout)["root"] == shared_prime


# ---- the plan and its block

def test_plan_and_block_of_rl(prime: Scene) -> None:
    write_nvidia_smi(prime.fakes, [{"index": one, "uuid": "GPU-%d" % one, "used": 4, "total": 81559} for one in range(8)])
    found = prime.check("two-gpus")
    assert found.exit == 0 and found.shape["verdict"] == "YES"
    plan, shown = found.shape["plan"], rows(found.shape)
    name = plan["experiment"]
    assert re.match(r"reverse-text\+alphabet-sort--[0-9a-f]{8}$", name)
    assert plan["run_dir"] == shown["directory"] == "%s/outputs/%s" % (prime.root, name) and plan["argv"][-1] == name
    assert (plan["gpus"], plan["nodes"], plan["name_is_volatile"]) == (4, 1, False)
    assert plan["ports"] == [8000, 8100, 29000, 13345, 5000, 5001, 5002, 29501, 5555]
    assert plan["sources"] == [prime.root + "/configs/debug/two-gpus.toml"] and plan["submission"] is False
    assert shown == dict(shown, **{
        "config": "configs/debug/two-gpus.toml", "run": name, "model": "Qwen/Qwen3-0.6B", "algorithm": "grpo",
        "environments": "reverse-text, alphabet-sort  eval: reverse-text-eval every 2 steps",
        "batch": "32 rollouts/step = 8 prompts × 4", "schedule": "max_steps=10", "optimizer": "adamw  lr=1e-06  constant",
        "context": "seq_len=2048  max_completion_tokens=none  temperature=1.0", "broadcast": "nccl on localhost:29501",
        "checkpoints": "every 1 steps", "resume": "no: from the beginning", "wandb": "off",
        "GPUs": "inference GPU 0,1 · trainer GPU 2,3", "runner": prime.root + "/.venv/bin/rl"})
    assert "env server reverse-text-eval 5002" in shown["ports"] and "data-parallel RPC 13345" in shown["ports"]
    assert details(found, "gpu:idle") == "4 GPUs, none held"


def test_block_in_the_text(run_pyz, shared_prime: str) -> None:
    done = run_pyz(["check", "reverse-text/rl"], cwd=shared_prime)
    head = "═" * 23 + " run configuration (rl) " + "═" * 23
    places = [done.stdout.index(word) for word in ("SAFE TO RUN: ", " preflight   1 ok", head, "  environments reverse-text\n",
                                                   "  GPUs         inference GPU 0 · trainer GPU 1\n", "\nLog         ",
                                                   "\nCommit      unknown: not a git repository", "\nNext steps")]
    assert places == sorted(places) and "Board" not in done.stdout
    assert "✓ runner      %s/.venv/bin/rl itself: there is no uv here" % shared_prime in done.stdout


@pytest.mark.parametrize("words", [["my-sft"], ["reverse-text/sft"]], ids=" ".join)
def test_plan_of_sft(check, words: List[str]) -> None:
    """The kind of one is told by its [data], of the other by its name."""
    found = check(*words)
    plan, shown = found["plan"], rows(found)
    assert (found["kind"], plan["argv"][0]) == ("sft", found["root"] + "/.venv/bin/sft")
    if words == ["my-sft"]:
        assert (plan["gpus"], plan["ports"], shown["GPUs"]) == (1, [], "trainer GPU 0") and "eval" not in shown
        assert shown["checkpoints"] == "none are saved" and "ckpt:none" in found["warnings"]
        assert shown["model"] == "toy/Tiny" and re.match(r"tiny--[0-9a-f]{8}$", shown["run"])
        return
    assert (plan["gpus"], plan["ports"]) == (2, [8000, 8100, 29000, 5000, 29501])
    assert shown["eval"] == "reverse-text every 25 steps" and shown["GPUs"] == "inference GPU 0 · trainer GPU 1"
    assert shown["data"] == "toy/reverse-wikipedia-paragraphs  batch=32" and shown["optimizer"].startswith("adamw  lr=2e-05")
    assert re.match(r"reverse-wikipedia-paragraphs--reverse-text-0.6b--[0-9a-f]{8}$", plan["experiment"])


def test_plan_of_inference(check) -> None:
    found = check("infer", "--", "--vllm.tensor-parallel-size", "2", "--server.port", "9000", "--backend-port=9100")
    plan, shown = found["plan"], rows(found)
    assert (found["kind"], plan["argv"][0]) == ("inference", found["root"] + "/.venv/bin/inference")
    assert (plan["gpus"], plan["ports"], plan["server"]) == (2, [9000, 9100, 30000], "http://localhost:9000")
    assert (plan["run_dir"], plan["experiment"], "run" in shown, "--run.name" in plan["argv"]) == (None, None, False, False)
    assert (shown["model"], shown["parallel"]) == ("toy/Reverse-Text-0.6B", "tensor 2 × data 1")
    assert (shown["context"], shown["GPUs"], shown["logs"]) == ("max_model_len=2048", "inference GPU 0,1", "the launch log")


def test_plan_of_evals(check) -> None:
    found = check("evals", "--", "--eval.group-size", "4")
    plan, shown = found["plan"], rows(found)
    assert (found["kind"], plan["argv"][0]) == ("evals", found["root"] + "/.venv/bin/evals")
    assert (plan["gpus"], plan["ports"], plan["run_dir"], plan["server"]) == (0, [5000], None, None)
    assert (shown["environments"], shown["server"]) == ("reverse-text", "http://localhost:8000/v1")
    assert shown["scale"] == "num_examples=8  group_size=4" and shown["GPUs"] == "none"


def test_plan_of_a_submission(check, fake_program) -> None:
    fake_program("sbatch", "exit 99\n")
    found = check("slurm")
    plan, shown = found["plan"], rows(found)
    assert (plan["submission"], plan["gpus"], plan["ports"]) == (True, 0, [])
    assert shown["Slurm"] == "job-name=toy-rl  nodes=1  gres=gpu:8  partition=gpu  time=01:00:00"
    assert shown["script"].split("  ")[0] == plan["run_dir"] + "/rl.sbatch" and "GPUs" not in shown
    assert shown["job log"] == plan["run_dir"] + "/job_%j.log"
    assert plan["launch_command"] == "sbatch " + shown["script"].split("  ")[0]
    shown = rows(check("slurm", env=dict(os.environ, TOY_LAYOUT="new")))
    assert shown["script"].split("  ")[0].endswith("/launcher/rl.sbatch")


def test_name_and_place_that_the_operator_gives(check, shared_prime: str) -> None:
    found = check("reverse-text/rl", "--", "--run.name", "mine", "--output-dir", "elsewhere/o", "--ckpt.output-dir=/ckpts",
                  "--ckpt.interval", "5", "--ckpt.keep-last", "2", "--no-monitors.wandb")
    plan, shown = found["plan"], rows(found)
    assert plan["experiment"] == "mine" and plan["run_dir"] == shared_prime + "/elsewhere/o/mine"
    assert plan["argv"].count("--run.name") == 1 and shown["wandb"] == "off"
    assert shown["checkpoints"] == "every 5 steps, the last 2 kept  in /ckpts/checkpoints"
    assert not os.path.exists(shared_prime + "/elsewhere") and not os.path.exists("/ckpts")


def test_no_secret_is_shown(run_pyz, tmp_path: Path) -> None:
    root = build_prime_checkout(tmp_path / "checkout")
    add_prime_config(root, "keys-rl", "[env_vars]\nHF_TOKEN = 'hf_not_a_real_token_3333'\n" + Path(root, RL).read_text())
    words = ["--env-vars.WANDB_API_KEY", "not-a-real-wandb-key-1111", "--env-vars.DB_PASSWORD=not-a-real-password-2222"]
    for args in (["check", "keys-rl"], ["check", "keys-rl", "--json"], ["run", "keys-rl"]):
        done = run_pyz(args + ["--"] + words, cwd=root)
        lines = [line for line in (done.stdout + done.stderr).split("\n") if "--confirm " not in line]  # that one is pasted
        assert not re.findall("wandb-key-1111|password-2222|token_3333", "\n".join(lines)), args
    assert "preflight:died" not in done.stdout


# ---- the runner

def test_runner_is_uv_on_the_path(check, fake_program, clean_env: Dict[str, str], tmp_path: Path) -> None:
    """C11: nothing is fetched."""
    fake_program("uv", FAKE_UV)
    clean_env["UV_SEEN"] = str(tmp_path / "seen")
    found = check("reverse-text/rl")
    assert found["plan"]["argv"][:4] == ["uv", "run", "--no-sync", "rl"] and rows(found)["runner"] == "uv run --no-sync rl"
    assert (tmp_path / "seen").read_text().startswith("run --no-sync rl @ ")


def test_E1_uv_that_is_not_on_the_path(check, clean_env: Dict[str, str], tmp_path: Path) -> None:
    write_fake_program(clean_env["HOME"] + "/.local/bin", "uv", FAKE_UV)
    found = check("reverse-text/rl", env={"HOME": clean_env["HOME"], "PATH": "/usr/bin:/bin", "SHELL": "/bin/sh",
                                          "UV_SEEN": str(tmp_path / "seen")})
    told = [one["detail"] for one in found["checks"] if one["name"] == "runner:words"][0]
    assert found["plan"]["argv"][:3] == ["uv", "run", "--no-sync"] and "%s/.local/bin" % clean_env["HOME"] in told
    assert (tmp_path / "seen").read_text().startswith("run --no-sync rl @ ") and "preflight:died" not in found["blocking"]


def test_runner_that_the_operator_names(check, fake_program, shared_prime: str) -> None:
    fake_program("uv", FAKE_UV)
    assert check("reverse-text/rl", "--runner", "uv run")["plan"]["argv"][:3] == ["uv", "run", "rl"]
    assert check("infer", "--runner", ".venv/bin/inference")["plan"]["argv"][0] == shared_prime + "/.venv/bin/inference"


# ---- the digest

def test_digest_names_a_plan(check, fake_program, clean_env: Dict[str, str], tmp_path: Path) -> None:
    """Neither the clock nor the scratch folder is in it, nor whether uv is on PATH (E1); what decides the run is."""
    (tmp_path / "other").mkdir()
    first = check("reverse-text/rl")["digest"]
    assert re.match("[0-9a-f]{8}$", first) and check("reverse-text/rl", env=dict(clean_env, TMPDIR=str(
        tmp_path / "other"), TERM="xterm"))["digest"] == first
    assert list((tmp_path / "other").iterdir()) == []
    changed = [check("reverse-text/rl", "--", "--max-steps", "7")["digest"],
               check("reverse-text/rl", env=dict(clean_env, CUDA_VISIBLE_DEVICES="2,3"))["digest"],
               check("reverse-text/rl", "configs/debug/plain.toml")["digest"]]
    write_fake_program(clean_env["HOME"] + "/.local/bin", "uv", FAKE_UV)
    cron = check("reverse-text/rl", env={"HOME": clean_env["HOME"], "PATH": "/usr/bin:/bin", "SHELL": "/bin/sh"})["digest"]
    login = check("reverse-text/rl", env=dict(clean_env, PATH="%s/.local/bin:/usr/bin:/bin" % clean_env["HOME"], USER="me"))
    assert login["digest"] == cron
    changed += [cron, check("reverse-text/rl", "--runner", "uv run", env=dict(clean_env, PATH="%s/.local/bin:/usr/bin:/bin" % (
        clean_env["HOME"])))["digest"]]
    assert len(set(changed + [first])) == len(changed) + 1


def test_digest_changes_with_the_bytes_of_each_file(check, tmp_path: Path) -> None:
    root = build_prime_checkout(tmp_path / "checkout")
    Path(root, "wandb.toml").write_text("project = 'a'\n")
    words = ["reverse-text/rl", "--", "--monitors.wandb", "@", "wandb.toml"]
    first = check(*words, cwd=root)
    assert first["plan"]["sources"] == [root + "/" + RL, root + "/wandb.toml"] and rows(first)["wandb"].startswith("a / ")
    Path(root, "wandb.toml").write_text("project = 'a'  # the same\n")
    second = check(*words, cwd=root)
    Path(root, RL).write_text("# a comment\n" + Path(root, RL).read_text())
    assert len({first["digest"], second["digest"], check(*words, cwd=root)["digest"]}) == 3
    assert first["configuration"].count("wandb") >= 2  # in the overrides too


# ---- a check changes nothing

USED = {"configs/trainer.json": "{}", "logs/attempt_1/trainer.log": "x", "checkpoints/step_2/trainer/.metadata": "x" * 5000,
        "checkpoints/step_4/trainer/.metadata": "x" * 5000}
USED.update({"%s/step_%d/STABLE" % (folder, step): "y" * 3000 for folder in ("rollouts", "broadcasts") for step in (1, 4, 5, 6)})


def add_run(root: str, name: str = "mine", files: Dict[str, str] = USED) -> str:
    folder = os.path.join(root, "outputs", name)
    for path, text in files.items():
        os.makedirs(os.path.dirname(os.path.join(folder, path)), exist_ok=True)
        Path(folder, path).write_text(text)
    return folder


MINE = ["reverse-text/rl", "--", "--run.name", "mine"]
# What is checked, and what its launch would delete.
STALE = ["outputs/mine/%s/step_%d" % (folder, step) for folder in ("broadcasts", "rollouts") for step in (5, 6)]
OLDER = ["outputs/mine/%s/step_4" % folder for folder in ("broadcasts", "rollouts")]
HARMLESS = [
    (MINE, []), (["cleans"], ["outputs/mine"]), (["resumes"], STALE),
    (["reverse-text/rl", "--", "--clean", "--run.name=mine"], ["outputs/mine"]), (MINE + ["--resume"], STALE),
    (MINE + ["--resume.step", "2"], STALE + OLDER), (["moved", "--", "--clean"], ["elsewhere/mine", "outputs/mine"]),
    (MINE + ["--clean", "--ckpt.output-dir", "ROOT/elsewhere/mine"], ["elsewhere/mine", "outputs/mine"]),
    (MINE + ["--ckpt.output_dir=ROOT/elsewhere/new", "--output-dir", "elsewhere"], []),
    (["reverse-text/rl", "--", "--run", '{"dir": "mine"}', "--clean"], ["outputs/mine"]),
    (["reverse-text/rl", "--", "--run", '{"dir": "ROOT/elsewhere/new"}'], None),
    (["reverse-text/rl", "--", "--ckpt", '{"output_dir": "ROOT/elsewhere/new"}'], []),
    (["reverse-text/sft", "--", "--run.name", "mine", "--clean"], ["outputs/mine"]),
    (["infer", "--", "--output-dir", "elsewhere"], []), (["slurm", "--", "--run.name", "mine", "--clean"], ["outputs/mine"]),
    (["wrong-key", "--", "--run.name", "mine", "--clean"], ["outputs/mine"]),
]


@pytest.mark.parametrize("layout, lines", [("old", HARMLESS), ("new", HARMLESS[1:5] + HARMLESS[7:9] + HARMLESS[-2:-1])])
def test_check_changes_nothing(scene: Scene, tmp_path_factory: pytest.TempPathFactory, layout: str, lines: List[Any]) -> None:
    """The dry run is not read-only: it cleans, resumes and writes before it looks at --dry-run."""
    root = build_shared_prime(tmp_path_factory.mktemp("own") / "checkout")
    add_run(root)
    add_run(root + "/elsewhere", "../mine")
    add_prime_config(root, "moved", Path(root, RL).read_text().replace("[ckpt]", "[run]\ndir = 'mine'\n[ckpt]\noutput_dir = '%s'"
                                                                      % (root + "/elsewhere/mine")))
    temporary = scene.folder / "temporary"
    temporary.mkdir()
    before = hash_tree(root)
    found = scene.check_all([[word.replace("ROOT", root) for word in words] for words, _ in lines], root=root,
                            env={"TOY_LAYOUT": layout, "TMPDIR": str(temporary)})
    after = hash_tree(root)
    assert after == before and list(temporary.iterdir()) == []
    for (words, deleted), one in zip(lines, found):
        if deleted is None:
            assert (one.exit, one.shape["reason"]) == (2, "run-name"), words
            continue
        assert ("preflight:died" in one.blocking) == (words[0] == "wrong-key"), (words, one.out)
        paths = sorted(os.path.relpath(path["path"], root) for path in one.shape["plan"]["sweep"]["paths"])
        assert paths == sorted(deleted), words


# ---- every Python

def test_tour(run_pyz, shared_prime: str, edge_python: str) -> None:
    """With tomllib and without, where the checkout's own Python reads TOML."""
    words = ["reverse-text/rl", "configs/debug/plain.toml", "--json", "--", "--run.name", "ü"]
    done = run_pyz(["check"] + words, cwd=shared_prime, python=edge_python)
    shape = json.loads(done.stdout)
    assert (shape["kind"], shape["plan"]["experiment"], shape["plan"]["gpus"]) == ("rl", "ü", 2), done.stderr
    assert rows(shape)["schedule"] == "max_steps=3" and "preflight:died" not in shape["blocking"]
    done = run_pyz(["check", "reverse-text/rl", "--", "--run.name", "a/b"], cwd=shared_prime, python=edge_python)
    assert done.returncode == 2 and "run.name is a directory's name, and 'a/b' is none" in done.stderr
