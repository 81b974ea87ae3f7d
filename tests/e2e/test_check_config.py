"""`check` and what a config leads to: the runner's verdict, the plan, the digest, names, secrets, advisories."""
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Callable

import pytest
from checkouts import add_config, build_checkout
from e2e.scene import Scene, details

TAIL = "TEMPLATE_MODULES=(runtime/process.env backend/k8s.env harbor/common.env verl/common.env)\n"
BODY = "PROJECT_NAME=toy\nEXP_NAME=mine\n" + TAIL


@pytest.fixture
def checkout(tmp_path: Path) -> str:
    return build_checkout(tmp_path / "checkout", git=True)


@pytest.fixture
def digest(scene: Scene, checkout: str) -> Callable[..., str]:
    def read(config: str = "pinned", **options: Any) -> str:
        return str(scene.check(config, root=checkout, **options).shape["digest"])
    return read


def git(checkout: str, *words: str) -> None:
    subprocess.check_call(
        ["git", "-c", "user.name=x", "-c", "user.email=x@x", "-C", checkout] + list(words), stdout=subprocess.DEVNULL
    )


# ---- the runner's verdict

def test_report_in_its_order(scene: Scene) -> None:
    out = scene.run(["check", "warns"]).out
    places = [
        out.index(word)
        for word in (
            "rlrun check — train · warns.env",
            "SAFE TO RUN: ✓ YES — 0 blocking",
            "✓ preflight   8 ok · 3 warn",
            "ENABLE_R3=False on a MoE",
            "✓ job",
            "✓ ports",
            "✓ sweep",
            "═ run configuration (train) ═",
            "Log         ",
            "Board       ",
            "Next steps",
            "Launch: ",
        )
    ]
    assert places == sorted(places)


def test_block_is_verbatim(scene: Scene) -> None:
    said = subprocess.run(["bash", "scripts/train/train.sh", "--dry-run", "scripts/train/configs/pinned.env"], cwd=scene.root,
                          env=dict(scene.env, PYTHONDONTWRITEBYTECODE="1"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          check=True).stdout.decode()
    block = said[said.index("═════"):]
    block = block[:block.index("\n\n")]
    assert block in scene.run(["check", "pinned"]).out
    assert scene.check("pinned").shape["configuration"] == block


def test_preflight_lines_are_verbatim(scene: Scene) -> None:
    told = details(scene.check("warns"), "preflight:warn").split("\n")
    assert told == ["ENABLE_R3=False on a MoE: the rollout's routing will not be replayed",
                    "NYDUS_MIRROR empty: a pod without egress can't pull the validation images",
                    "LR_SCHEDULER=cosine with an unknown number of steps may decay to 0"]


@pytest.mark.parametrize("config, words", [("fatal", "tool_parser=hermes"), ("dense_r3", "no routing to replay"),
                                           ("placeholder", "CHANGEME")])
def test_fatal_blocks(scene: Scene, config: str, words: str) -> None:
    found = scene.check(config)
    assert (found.exit, found.blocking) == (1, ["preflight:fatal"]) and words in details(found, "preflight:fatal")


@pytest.mark.parametrize("kind", ["eval", "infer"])
def test_thin_kinds_say_so(scene: Scene, kind: str) -> None:
    found = scene.check("demo_" + kind)
    assert (found.exit, found.blocking) == (0, []) and "no preflight rules" in details(found, "preflight:thin")
    out = scene.run(["check", "demo_" + kind]).out
    assert "%s runs have no preflight of their own" % kind in out and "=== Launching Harbor %s ===" % kind in out


def test_quiet_is_the_verdict_and_what_blocks(scene: Scene) -> None:
    verdict, plan = scene.run(["check", "pinned", "-q"]).out.splitlines()
    assert verdict.startswith("SAFE TO RUN: ✓ YES") and len(plan) == len("plan 3f9c2a71")
    out = scene.run(["check", "fatal", "-q"]).out
    assert out.startswith("SAFE TO RUN: ✗ NO") and "hermes" in out and "run configuration" not in out


@pytest.mark.parametrize("choice, coloured", [("always", True), ("never", False), ("auto", False)])
def test_colour(scene: Scene, choice: str, coloured: bool) -> None:
    assert ("\x1b[" in scene.run(["check", "pinned", "--color", choice]).out) == coloured


def test_structure_only(scene: Scene, checkout: str) -> None:
    shutil.rmtree(checkout + "/data")
    assert scene.check("pinned", root=checkout).blocking == ["preflight:fatal"]
    found = scene.run(["check", "pinned", "--structure-only"], root=checkout)
    assert found.exit == 0 and "no verdict for a launch, no digest" in found.out and "2 skipped" in found.out
    assert "SAFE TO RUN" not in found.out and "plan " not in found.out and "Launch:" not in found.out
    found = scene.run(["check", "fatal", "--structure-only", "--json"], root=checkout)
    assert found.exit == 1 and found.shape["verdict"] is None and found.shape["digest"] is None
    assert found.shape["structure"] == "unsound"
    assert not os.path.exists(checkout + "/logs")


def test_structure_only_of_another_kind(scene: Scene) -> None:
    found = scene.run(["check", "demo_eval", "--structure-only"])
    assert found.exit == 2 and "eval" in found.err


# ---- the plan

def test_plan_of_a_training_run(scene: Scene) -> None:
    plan = scene.check("pinned").shape["plan"]
    root = scene.root
    assert (plan["experiment"], plan["project"], plan["nodes"], plan["gpus"], plan["ports"]) == (
        "pinned",
        "toy",
        1,
        8,
        [6379, 8265],
    )
    assert (plan["train_log"], plan["vllm_log"]) == (root + "/logs/pinned.log", root + "/logs/pinned_vllm.log")
    assert plan["trials"] == root + "/harbor_trials/toy/pinned" and "verl.trainer.main_ppo" in plan["launch_command"]
    assert plan["sources"][0] == root + "/scripts/train/configs/pinned.env" and len(plan["sources"]) == 5


def test_plan_of_the_other_kinds(scene: Scene) -> None:
    plan = scene.check("demo_eval").shape["plan"]
    assert plan["ports"] == [8000] and "harbor run" in plan["launch_command"] and plan["trials"] == scene.root + "/harbor_trials"
    plan = scene.check("demo_infer").shape["plan"]
    assert plan["ports"] == [8011] and "eval_swerebench_filtered.py" in plan["launch_command"]
    assert plan["trials"] == scene.root + "/results"


def test_plan_of_two_nodes(scene: Scene) -> None:
    found = scene.run(["check", "two_nodes"])
    assert "multi-node" in found.out and " nodes scripts/train/configs/two_nodes.env" in found.out
    assert scene.check("two_nodes").shape["plan"]["nodes"] == 2


def test_log_outside_of_the_logs_folder(scene: Scene) -> None:
    plan = scene.check("off_repo_log").shape["plan"]
    assert plan["train_log"].startswith(scene.root + "/trials/toy/off_repo_log-")


# ---- names

@pytest.mark.parametrize(
    "line, volatile",
    [
        # tests/stacks/test_lego_sources.py has many more
        ("EXP_NAME=a-$RANDOM", True),
        ("T=$(date +%F)\nEXP_NAME=a-$T", True),
        ("EXP_NAME=a-$(uuidgen 2>/dev/null || echo x)", True),
        ("printf -v EXP_NAME 'a-%(%s)T' -1", False),
        ("EXP_NAME=plain", False),
        ("EXP_NAME='$(date)'", False),
        ("NOTE=$(date)\nEXP_NAME=b", False),
        ("EXP_NAME=x-$(date +%s)\nEXP_NAME=b", False),
        ("EXP_NAME=${EXP_NAME:-b}", False),
    ],
)
def test_volatile_names(scene: Scene, checkout: str, line: str, volatile: bool) -> None:
    add_config(checkout, "train", "mine", "PROJECT_NAME=toy\nEXP_NAME=first\n%s\n%s" % (line, TAIL))
    found = scene.check("mine", root=checkout)
    if "printf -v" not in line and "'$(date)'" not in line:
        assert found.shape["plan"]["name_is_volatile"] == volatile and ("name:volatile" in found.warnings) == volatile
    assert found.exit == 0, found.out


def test_volatile_name_that_the_environment_pins(scene: Scene, checkout: str) -> None:
    add_config(checkout, "train", "mine", 'PROJECT_NAME=toy\n: "${EXP_NAME:=a-$(date +%%s)}"\n%s' % TAIL)
    assert scene.check("mine", root=checkout).shape["plan"]["name_is_volatile"] is True
    plan = scene.check("mine", root=checkout, env={"EXP_NAME": "given"}).shape["plan"]
    assert (plan["experiment"], plan["name_is_volatile"]) == ("given", False)


# ---- the digest

def test_digest_names_a_plan(digest) -> None:
    value = digest()
    assert len(value) == 8 and not set(value) - set("0123456789abcdef") and digest() == value


@pytest.mark.parametrize("config", ["demo", "volatile", "off_repo_log", "demo_eval", "demo_infer"])
def test_digest_survives_a_volatile_name(digest, config: str) -> None:
    """The clock goes on by a second between the two."""
    assert digest(config) == digest(config, before='now=$(date +%s); later() { [ "$(date +%s)" != "$now" ]; }; await later')


def test_digest_does_not_know_the_machine(digest, scene: Scene) -> None:
    assert (
        digest()
        == digest(before="""act '{"argv": ["python3", "-m", "verl.trainer.main_ppo"]}'""")
        == digest(env={"TERM": "xterm"})
    )


def test_digest_changes_with_the_config_s_bytes(digest, checkout: str) -> None:
    first = digest()
    with open(checkout + "/scripts/train/configs/pinned.env", "a") as file:
        file.write("# a comment\n")
    assert digest() != first


def test_digest_changes_with_a_template(digest, checkout: str) -> None:
    first = digest()
    with open(checkout + "/scripts/templates/harbor/common.env", "a") as file:
        file.write("# a comment\n")
    assert digest() != first


def test_digest_changes_with_a_sourced_file(digest, checkout: str, tmp_path: Path) -> None:
    (tmp_path / "site.env").write_text("SITE=1\n")
    add_config(checkout, "train", "mine", 'source "%s/site.env"\n%s' % (tmp_path, BODY))
    first = digest("mine")
    (tmp_path / "site.env").write_text("SITE=2\n")
    assert digest("mine") != first


def test_digest_changes_with_the_environment_that_counts(digest) -> None:
    first = digest()
    assert digest(env={"TRAIN_BSZ": "16"}) != first  # a name that a template sets
    assert digest(env={"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"}) != first
    assert digest(env={"SOMETHING_ELSE": "1"}) == first


def test_digest_changes_with_commit_and_dirty_files(digest, checkout: str) -> None:
    first = digest()
    with open(checkout + "/webui/server.py", "a") as file:
        file.write("# dirty\n")
    dirty = digest()
    with open(checkout + "/webui/server.py", "a") as file:
        file.write("# dirtier\n")
    dirtier = digest()
    git(checkout, "commit", "-qam", "x")
    assert len({first, dirty, dirtier, digest()}) == 4


def test_digest_of_a_secret_is_whether_it_is_set(digest) -> None:
    assert digest(env={"WANDB_API_KEY": "a" * 20}) == digest(env={"WANDB_API_KEY": "b" * 20}) != digest()


def test_no_digest_where_the_dry_run_died(scene: Scene) -> None:
    found = scene.check("died_early")
    assert found.shape["digest"] is None or found.shape["verdict"] == "NO"
    assert "Launch:" not in scene.run(["check", "died_early"]).out


# ---- secrets

SECRETS = ("not-a-real-wandb-key-1111", "not-a-real-password-2222", "hf_not_a_real_token_3333", "not-a-real-github-token-4444",
           "not-a-real-openai-key-5555")


@pytest.mark.parametrize(
    "args",
    [
        ["check", "secret"],
        ["check", "secret", "--json"],
        ["check", "secret_eval"],
        ["check", "secret_eval", "--json"],
        ["nodes", "secret"],
        ["check", "secret", "--structure-only"],
    ],
)
def test_no_secret_is_shown(scene: Scene, args: list) -> None:
    found = scene.run(args)
    assert found.exit == 0, found.err
    assert not [value for value in SECRETS if value in found.out + found.err]


def test_no_secret_is_shown_of_a_dry_run_that_died(scene: Scene, checkout: str) -> None:
    add_config(checkout, "train", "mine", "HF_TOKEN=hf_not_a_real_token_3333\necho \"my token is $HF_TOKEN\"\nset -x\n"
                                          "DB_PASSWORD=not-a-real-password-2222\nexit 3\n" + BODY)
    for args in (["check", "mine"], ["check", "mine", "--json"]):
        found = scene.run(args, root=checkout)
        assert found.exit == 1 and not [value for value in SECRETS if value in found.out + found.err], found.out


def test_secret_of_the_operator_s_environment(scene: Scene, checkout: str) -> None:
    add_config(checkout, "train", "mine", BODY.replace("=mine", "=run-of-$MY_TOKEN"))
    found = scene.run(["check", "mine"], root=checkout, env={"MY_TOKEN": "Zk81-very-secret-xYz"})
    assert "Zk81-very-secret-xYz" not in found.out + found.err


@pytest.mark.parametrize("args", [["check"], ["check", "--json"], ["check", "-q"], ["check", "--structure-only"], ["run"],
                                  ["check", "--structure-only", "--json"], ["run", "--json"], ["nodes"]], ids=" ".join)
def test_no_secret_in_the_runner_s_warnings_and_refusals(scene: Scene, checkout: str, args: list) -> None:
    add_config(checkout, "train", "mine", "MODEL_PATH=https://bob:hunter2hunter2@models/$MY_TOKEN\n" + BODY)
    found = scene.run(args[:1] + ["mine"] + args[1:], root=checkout, env={"MY_TOKEN": "Zk81-very-secret-xYz"})
    if args[0] != "nodes" and "-q" not in args:
        assert "no rule for the model" in found.out + found.err, found.err
    assert found.exit in (0, 1) and not [word for word in ("hunter2", "Zk81") if word in found.out + found.err]


def test_no_secret_in_what_is_worth_a_second_look(scene: Scene, checkout: str) -> None:
    folder = Path(checkout, "https:/bob:hunter2hunter2@data")
    folder.mkdir(parents=True)
    (folder / "x.parquet").write_text("")
    add_config(checkout, "train", "mine", "TRAIN_FILES=https://bob:hunter2hunter2@data/x.parquet\n" + BODY)
    found = scene.run(["run", "mine"], root=checkout)
    assert found.exit == 3 and "is this the one you meant?" in found.err and "hunter2" not in found.out + found.err


def test_secrets_in_the_launch_log_are_announced(scene: Scene) -> None:
    told = details(scene.check("secret"), "secrets:in-log")
    assert "HF_TOKEN" in told and "0600" in told
    assert "WANDB_API_KEY" in details(scene.check("secret_eval"), "secrets:in-log")


# ---- advisories

def test_kv_heads(scene: Scene) -> None:
    assert "GEN_TP=3" in details(scene.check("kv_heads"), "tp:kv-heads")
    assert "tp:kv-heads" not in scene.check("pinned").warnings


def test_wandb_key(scene: Scene) -> None:
    assert "wandb:key" in scene.check("pinned").warnings
    assert "wandb:key" not in scene.check("pinned", env={"WANDB_API_KEY": "x" * 40}).warnings
    assert "wandb:key" not in scene.check("pinned", env={"WANDB_MODE": "offline"}).warnings
    Path(scene.env["HOME"], ".netrc").write_text("machine api.wandb.ai login user password x\n")
    assert "wandb:key" not in scene.check("pinned").warnings


def test_virtual_environment(scene: Scene, checkout: str) -> None:
    assert "falls back" in details(scene.check("pinned", root=checkout), "venv:fallback")
    os.makedirs(checkout + "/.venv/bin")
    os.symlink("/usr/bin/python3", checkout + "/.venv/bin/python3")
    Path(checkout, ".venv/bin/activate").write_text("")
    found = scene.check("pinned", root=checkout)
    assert found.exit == 0


def test_source_that_only_bash_could_follow(scene: Scene, checkout: str, tmp_path: Path) -> None:
    (tmp_path / "site.env").write_text("SITE=1\n")
    add_config(checkout, "train", "mine", 'source "$(echo %s/site.env)"\n%s' % (tmp_path, BODY))
    assert "config:source" in scene.check("mine", root=checkout).warnings
    add_config(checkout, "train", "mine", '[ ! -f /no/such.env ] || source /no/such.env\n%s' % BODY)
    assert "config:source" not in scene.check("mine", root=checkout).warnings


def test_old_runner_that_knows_only_the_variable(scene: Scene, checkout: str) -> None:
    path = Path(checkout, "scripts/eval/eval.sh")
    path.write_text(path.read_text().replace('if [ "${1:-}" = --dry-run ]; then\n    DRY_RUN=1\n    shift\nfi\n', "").replace(
        "DRY_RUN=0\n", "DRY_RUN=${DRY_RUN:-0}\n").replace("[--dry-run] ", ""))
    found = scene.check("demo_eval", root=checkout)
    assert found.blocking == [] and found.shape["plan"]["experiment"].startswith("demo_eval-")
