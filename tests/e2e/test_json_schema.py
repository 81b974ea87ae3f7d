"""`--json`: schema 1, stable keys, one object, the same facts as the text; also on every exit other than 0."""
import json
import subprocess
from typing import Any, Dict, List

import pytest
from e2e.scene import Scene

CHECK_KEYS = {
    "schema",
    "command",
    "verdict",
    "digest",
    "stack",
    "kind",
    "config",
    "root",
    "blocking",
    "warnings",
    "checks",
    "plan",
    "board",
}
PLAN_KEYS = {
    "experiment",
    "name_is_volatile",
    "train_log",
    "vllm_log",
    "trials",
    "launch_command",
    "nodes",
    "gpus",
    "ports",
    "sweep",
}


def read(done: "subprocess.CompletedProcess[str]") -> Dict[str, Any]:
    """The one object on stdout; it is one line, and nothing else is there."""
    assert done.stdout.count("\n") == 1, done.stdout
    shape = json.loads(done.stdout)
    assert isinstance(shape, dict) and shape["schema"] == 1
    return shape


@pytest.mark.parametrize("config", ["pinned", "fatal", "died_early", "demo_eval", "demo_infer", "two_nodes", "bash_error"])
def test_check(scene: Scene, config: str) -> None:
    found = scene.check(config)
    shape = found.shape
    assert (
        CHECK_KEYS <= set(shape)
        and PLAN_KEYS <= set(shape["plan"])
        and set(shape["board"]) == {"pid", "port", "served", "visible"}
    )
    assert (shape["schema"], shape["command"], shape["stack"]) == (1, "check", "lego")
    assert set(shape["plan"]["sweep"]) >= {"processes", "paths"}
    assert shape["verdict"] == ("NO" if shape["blocking"] else "YES") and found.exit == (1 if shape["blocking"] else 0)
    for check in shape["checks"]:
        assert {"layer", "name", "status", "detail"} <= set(check)
        assert check["layer"] in ("preflight", "live") and check["status"] in ("pass", "advisory", "blocks", "skipped")
    by_status = {status: [one["name"] for one in shape["checks"] if one["status"] == status] for status in ("blocks", "advisory")}
    assert list(dict.fromkeys(by_status["blocks"])) == shape["blocking"]
    assert list(dict.fromkeys(by_status["advisory"])) == shape["warnings"]


def test_check_says_what_the_text_says(scene: Scene) -> None:
    shape, text = scene.check("warns").shape, scene.run(["check", "warns"]).out
    assert "plan %s" % shape["digest"] in text and shape["plan"]["train_log"] in text
    for check in shape["checks"]:
        told = check["detail"].replace("scene-0.sh", "scene-1.sh")  # what each of the two was started by
        assert told in text or "free" in told  # room on a disk changes meanwhile


def test_unknown_values_are_null(scene: Scene) -> None:
    plan = scene.check("died_early").shape["plan"]
    assert plan["experiment"] is None and plan["train_log"] is None and plan["gpus"] is None and plan["ports"] == []


def test_only_blocking_names_block(scene: Scene) -> None:
    """The design's list, and nothing else."""
    known = {
        "preflight:fatal",
        "preflight:died",
        "job:running",
        "gpu:foreign",
        "port:conflict",
        "import:missing",
        "sweep:foreign",
    }
    for config in ("fatal", "died_early", "hang"):
        assert set(scene.check(config, args=["--dry-run-timeout", "0.5"] if config == "hang" else []).blocking) <= known


@pytest.mark.parametrize(
    "args, code, reason",
    [
        (["check", "nothing-like-it"], 2, "config"),
        (["check", "--bogus"], 2, "usage"),
        (["check", "pinned", "--kind", "x"], 2, None),
        (["check", "pinned", "--root", "/"], 5, "no-checkout"),
        (["nodes", "died_early"], 1, "preflight:died"),
        (["bogus"], 2, "usage"),
        (["runs", "no-such-id"], 2, "id"),
        (["explain", "no-such-name"], 2, None),
        (["check", "pinned", "--", "a=b"], 2, "overrides"),
        (["configs", "--root", "/nowhere"], 5, "no-checkout"),
        (["runs", "--root", "/nowhere"], 5, "no-checkout"),
        (["run", "nothing-like-it"], 2, "config"),
        (["run", "pinned", "--confirm", "xyz"], 2, "digest"),
    ],
)
def test_errors(run_pyz, shared_checkout: str, args: List[str], code: int, reason: str) -> None:
    words = args[:args.index("--")] + ["--json"] + args[args.index("--"):] if "--" in args else args + ["--json"]
    done = run_pyz(words, cwd=shared_checkout)
    shape = read(done)
    assert done.returncode == code == shape["exit"] and shape["error"] and shape["command"] == args[0]
    assert reason is None or shape["reason"] == reason
    assert done.stderr.startswith("rlrun: ")
    if args[0] == "run":
        assert shape["launched"] is False


def test_interrupted(scene: Scene) -> None:
    found = scene.run([], command='"$PYTHON" "$PYZ" check hang --json & pid=$!; await has_argv $pid check; '
                                  'await eval \'pgrep -f configs/hang.env >/dev/null\'; kill -TERM $pid; wait $pid')
    assert found.exit == 130 and found.shape["exit"] == 130 and found.shape["reason"] == "interrupted"


def test_probe(scene: Scene) -> None:
    shape = scene.run(["probe", "--json"]).shape
    assert shape["schema"] == 1 and shape["command"] == "probe"
    for fact in shape["facts"]:
        assert set(fact) == {"level", "name", "detail"} and fact["level"] in ("OK", "WARN", "INFO")
    assert {"job:none", "ray:down"} <= {fact["name"] for fact in shape["facts"]}


def test_configs(run_pyz, shared_checkout: str) -> None:
    shape = read(run_pyz(["configs", "--json"], cwd=shared_checkout))
    assert (
        shape["root"] == shared_checkout
        and {
            "kind": "train",
            "config": "scripts/train/configs/pinned.env",
            "path": shared_checkout + "/scripts/train/configs/pinned.env",
        }
        in shape["configs"]
    )


def test_runs(run_pyz, shared_checkout: str) -> None:
    assert read(run_pyz(["runs", "--json"], cwd=shared_checkout))["runs"] == []


def test_nodes(scene: Scene) -> None:
    shape = scene.run(["nodes", "pinned", "--json"]).shape
    assert (shape["schema"], shape["nodes"], shape["others"], shape["line"]) == (1, 1, 0, None)


def test_version_and_demo_and_explain(run_pyz, tmp_path) -> None:
    shape = read(run_pyz(["version", "--json"]))
    assert len(shape["sha256"]) == 64 and shape["version"] and shape["python"]
    shape = read(run_pyz(["demo", tmp_path / "toy", "--json"]))
    assert shape["root"] == str(tmp_path / "toy") and shape["try"]
    assert read(run_pyz(["explain", "gpu:foreign", "--json"]))["command"] == "explain"


def test_json_is_ascii_and_without_control_characters(scene: Scene) -> None:
    found = scene.run(["check", "pinned", "--json", "--color", "always"], before=(
        'bash -c $\'exec -a "vllm \\xff \\e[31m" sleep 600\' & await has_argv $! 600\n'))
    assert all(32 <= ord(letter) < 127 for letter in found.out.rstrip("\n")) and found.shape["plan"]["sweep"]["processes"]
