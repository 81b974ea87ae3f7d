"""What keeps a prime-rl run from being launched: bad configs and words, missing packages, a busy machine, a used run directory,
an absent server or sbatch. Each is said in words, and nothing is launched or deleted."""
import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest
from checkouts import add_prime_config, build_prime_checkout, write_fake_program, write_nvidia_smi
from e2e.scene import FAKE_UV, Found, Scene, details, fixes
from e2e.test_check_machine import OTHER, act, start

Run = Callable[..., "subprocess.CompletedProcess[str]"]
RL = "examples/basic/reverse-text/rl.toml"


def make(root: str, *paths: str, size: int = 10) -> None:
    for path in paths:
        os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
        Path(root, path).write_text("x" * size)


def refuse(done: "subprocess.CompletedProcess[str]", code: int, *words: str) -> None:
    """Exit code, a message on stderr with these words, nothing on stdout."""
    assert done.returncode == code and done.stdout == "", done.stderr
    assert done.stderr.startswith("rlrun: ") and "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


def says(found: Found, *names: str) -> None:
    """These block, and no others."""
    assert (found.exit, found.blocking) == (1 if names else 0, list(names)), found.shape["checks"]


# ---- the config

def test_config_that_is_none(run_pyz: Run, shared_prime: str) -> None:
    refuse(run_pyz(["check", "examples/basic/reverse-text"], cwd=shared_prime), 2, "is a directory")
    refuse(run_pyz(["check", "reverse-text/rll"], cwd=shared_prime), 2, "no config reverse-text/rll", "1. ", RL)
    refuse(run_pyz(["check"], cwd=shared_prime), 2, "no config was named", RL, "configs/debug/two-gpus.toml")
    refuse(run_pyz(["check", RL, "gone.toml"], cwd=shared_prime), 2, "no config gone.toml")
    refuse(run_pyz(["check", "configs/debug/syntax.toml"], cwd=shared_prime), 2, "syntax.toml can't be read", "(at line 2, ")
    refuse(run_pyz(["check", RL, "--kind", "train"], cwd=shared_prime), 2, "no kind 'train'", "rl, sft, inference, evals")


def test_config_that_is_empty(run_pyz: Run, tmp_path: Path) -> None:
    root = build_prime_checkout(tmp_path / "checkout")
    add_prime_config(root, "void-rl", " \n")
    refuse(run_pyz(["check", "void-rl"], cwd=root), 2, "void-rl.toml is empty")


@pytest.mark.parametrize("words", [["wrong-key"], ["broken-rl"], ["reverse-text/rl", "--", "--max-steps", "many"], [
    "reverse-text/rl", "--", "--max-stepz", "3"], ["reverse-text/rl", "--", "@", "gone.toml"]], ids=" ".join)
def test_config_error_is_quoted_whole(prime: Scene, words: List[str]) -> None:
    """The box is the runner's own, character for character."""
    config = RL if "--" in words else "configs/debug/%s.toml" % words[0]
    argv = [prime.root + "/.venv/bin/rl", "@", config] + words[2:] + ["--dry-run", "--output-dir", str(prime.folder)]
    said = subprocess.run(argv, cwd=prime.root, env=prime.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    box = said.stderr.decode().strip("\n")
    assert said.returncode == 1 and box.startswith("╭─ Config file error ──")
    place = words.index("--") if "--" in words else len(words)
    found = prime.run(["check"] + words[:place] + ["--json"] + words[place:])
    says(found, "preflight:died")
    assert found.shape["last_words"] == box and "ended 1" in details(found, "preflight:died")
    plain = " ".join(box.replace("│", " ").split())
    assert {"wrong-key": "--trainer.optim.adamw.lrr Extra inputs are not permitted", "broken-rl": "(at line 3, column 9)",
            "many": "--max-steps Input should be a valid integer", "3": "--max-stepz Extra inputs",
            "gone.toml": "Config file not found: gone.toml"}[words[-1]] in plain
    assert found.shape["configuration"] == "" and found.shape["plan"]["sweep"]["paths"] == []


def test_config_error_in_the_text(run_pyz: Run, shared_prime: str) -> None:
    done = run_pyz(["check", "wrong-key"], cwd=shared_prime)
    assert done.returncode == 1 and "SAFE TO RUN: ✗ NO" in done.stdout and "plan " not in done.stdout.split("\n")[0]
    assert "Last words of the runner's own check:\n  | ╭─ Config file error ─" in done.stdout
    assert "run configuration" not in done.stdout and "Launch:" not in done.stdout


@pytest.mark.parametrize("words", [
    ["--run.name", "a/b"], ["--run.name", "two words"], ["--run.name=.."], ["--run.name", "a\nb"], ["--run.dir", "../x"], [
        "--run.dir=/srv/x"], ["--run", '{"name": "a/b"}'], ["--run.name", "7", "--run.dir", "a b"]], ids=" ".join)
def test_run_name_that_is_no_directory_s_name(run_pyz: Run, shared_prime: str, words: List[str]) -> None:
    refuse(run_pyz(["check", RL, "--"] + words, cwd=shared_prime), 2, "is a directory's name", "no slash, no space")


def test_run_dir_of_the_config_that_leads_out(run_pyz: Run, tmp_path: Path) -> None:
    root = build_prime_checkout(tmp_path / "checkout")
    for number, value in enumerate(("../x", str(tmp_path / "x"))):
        add_prime_config(root, "out%d" % number, "clean = true\n[run]\ndir = '%s'\n[trainer]\n[orchestrator]\n" % value)
        refuse(run_pyz(["check", "out%d" % number], cwd=root), 2, "run.dir is a directory's name", value)
    assert not (tmp_path / "x").exists() and not os.path.exists(root + "/outputs")


def test_dry_run_among_the_overrides(run_pyz: Run, shared_prime: str, tmp_path: Path) -> None:
    refuse(run_pyz(["check", RL, "--", "--dry-run"], cwd=shared_prime), 2, "--dry-run would keep the run from starting")
    root = build_prime_checkout(tmp_path / "checkout")
    add_prime_config(root, "dry", "dry_run = true\n[trainer]\n[orchestrator]\n")
    refuse(run_pyz(["check", "dry"], cwd=root), 2, "--dry-run would keep the run from starting")


# ---- packages, runner

def test_missing_environment(own: Scene) -> None:
    """What is missing is named with what installs it, by the folder where it lies; the runner is not even asked."""
    write_fake_program(own.fakes, "uv", FAKE_UV)
    source = "[[orchestrator.%s.source]]\nenv.taskset.id = '%s'\n"
    add_prime_config(own.root, "ids", "[orchestrator]\n" + source % ("train", "someone/Word-Game@1") + source % (
        "train", "will/wordle") + "[orchestrator.eval]\n" + source % ("eval", "gsm-9") + "[trainer]\n[inference]\n")
    seen = own.folder / "seen"
    first, second = own.check_all([["missing-env"], ["ids"]], env={"UV_SEEN": str(seen)})
    says(first, "import:missing")
    assert details(first, "import:missing").startswith("wordle can't be imported by %s/.venv/bin/python" % own.root)
    assert fixes(first, "import:missing") == ("It lies in deps/prime-envs/environments/wordle: uv sync --all-extras --package "
                                              "prime-rl --package wordle")
    assert details(first, "preflight:skipped") == "not run: wordle can't be imported" and not seen.exists()
    says(second, "import:missing")
    assert [line.split()[0] for line in details(second, "import:missing").split("\n")] == ["word_game", "wordle", "gsm_9"]
    assert re.findall(r"--package prime-rl --package (\S+)", fixes(second, "import:missing")) == ["Word-Game", "wordle", "gsm-9"]
    assert first.shape["configuration"] == "" and first.shape["plan"]["ports"] == []


def test_runner_that_can_not_be(run_pyz: Run, tmp_path: Path) -> None:
    root = build_prime_checkout(tmp_path / "checkout")
    refuse(run_pyz(["check", RL, "--runner", "nonsense run"], cwd=root), 5, "no nonsense on PATH", "PATH is ")
    refuse(run_pyz(["check", RL, "--runner", "./nonsense"], cwd=root), 5, "./nonsense can't be started")
    refuse(run_pyz(["check", RL, "--runner", "'uv"], cwd=root), 2, "is no command line")
    os.unlink(root + "/.venv/bin/sft")
    refuse(run_pyz(["check", "sft"], cwd=root), 5, "has no command sft", "uv sync --all-extras")
    shutil.rmtree(root + "/.venv")
    refuse(run_pyz(["check", RL], cwd=root), 5, "no environment: no %s/.venv/bin/python" % root, "cd %s && uv sync" % root)


FAILS = "echo 'error: Failed to fetch: `https://pypi.org/simple/torch/`' >&2; exit 2\n"
HANGS = "trap '' TERM\nsleep 987 &\nwait\nsleep 987\n"


def test_C11_uv_that_can_not_fetch(prime: Scene) -> None:
    write_fake_program(prime.fakes, "uv", FAILS)
    found = prime.check(RL)
    says(found, "preflight:died")
    assert details(found, "preflight:died") == "the runner's own check ended 2: uv could not fetch packages"
    assert "--runner .venv/bin/rl" in fixes(found, "preflight:died") and "pypi.org/simple/torch" in found.shape["last_words"]


def test_C11_uv_that_hangs(prime: Scene) -> None:
    write_fake_program(prime.fakes, "uv", HANGS)
    temporary = prime.folder / "temporary"
    temporary.mkdir()
    found = prime.run([], env={"TMPDIR": str(temporary)}, command=(
        '"$PYTHON" "$PYZ" check %s --json --dry-run-timeout 1; code=$?; cat /proc/[0-9]*/cmdline | tr "\\0" " " >&2; '
        'exit $code' % RL))
    says(found, "preflight:died")
    assert "took longer than its limit" in details(found, "preflight:died") and "sleep 987" not in found.err
    assert "--dry-run-timeout" in fixes(found, "preflight:died") and list(temporary.iterdir()) == []


# ---- the machine: GPUs

def gpus(count: int, *used: int) -> List[Dict[str, Any]]:
    return [{"index": number, "uuid": "GPU-%d" % number, "bus_id": "0:%d" % number, "name": "H100", "total": 81559, "util": 0,
             "used": 50000 if number in used else 4, "ecc": 0} for number in range(count)]


def test_only_the_gpus_that_the_run_takes_count(prime: Scene) -> None:
    """GPUs 0 and 5 are somebody else's; the run takes two."""
    write_nvidia_smi(prime.fakes, gpus(8, 0, 5), [{"uuid": "GPU-0", "pid": 999999, "used": 49000, "name": "python3"}])
    names = ["", "2,3", "2,5", "GPU-2,GPU-3", "GPU-3,GPU-5", "3,2,0"]
    found = prime.check_all([[("CUDA_VISIBLE_DEVICES=" + name) if name else "X=", RL] for name in names] + [
        ["CUDA_VISIBLE_DEVICES=0", "evals", "--", "--eval.client.base-url", "http://localhost:1/v1"], [
            "CUDA_VISIBLE_DEVICES=3", RL]])
    for number, blocks in enumerate((True, False, True, False, True, False)):
        says(found[number], *(["gpu:foreign"] if blocks else []))
    assert "pid 999999" in details(found[0], "gpu:foreign") and "GPU 0" in details(found[0], "gpu:foreign")
    assert "GPU 5: 48.8 GiB in use" in details(found[2], "gpu:foreign") and "GPU 5" in details(found[4], "gpu:foreign")
    assert "inference GPU 2 · trainer GPU 3" in found[1].shape["configuration"]
    assert "inference GPU 3 · trainer GPU 2" in found[5].shape["configuration"] and "gpu:uuid" not in found[1].warnings
    assert fixes(found[3], "gpu:uuid").endswith("CUDA_VISIBLE_DEVICES=2,3") and "gpu:uuid" in found[4].warnings
    says(found[6], "server:down")
    assert details(found[6], "gpu:none") == "this run takes none"
    says(found[7], "gpu:few")
    assert "takes 2 GPUs, CUDA_VISIBLE_DEVICES=3 shows 1" in details(found[7], "gpu:few")


def test_fewer_gpus_than_asked(prime: Scene) -> None:
    write_nvidia_smi(prime.fakes, gpus(3))
    one, other = prime.check_all([["two-gpus"], [RL]])
    says(one, "gpu:few")
    assert "takes 4 GPUs, this machine has 3" in details(one, "gpu:few")
    says(other)


# ---- the machine: ports

LISTENED = {8000: "router", 8100: "engine", 13345: "data-parallel RPC", 5001: "env server alphabet-sort",
            5002: "env server reverse-text-eval", 29501: "weight broadcast", 5555: "rollout transport", 29000: "router metrics"}


def listen(*ports: int) -> str:
    return "".join(act(argv=["python3", "serves-%d.py" % port], listen=[["127.0.0.1", port]]) for port in ports)


def test_ports_that_somebody_listens_on(prime: Scene) -> None:
    moved = ["two-gpus", "--"] + shlex.split(
        "--inference.server.port 8001 --orchestrator.model.client.base-url http://localhost:8001/v1 "
        "--inference.backend-port 8101 --orchestrator.env-server-base-port 5010 --weight-broadcast.port 29502 "
        "--rollout-transport.port 5556 --inference.vllm.data-parallel-rpc-port 13346")
    found, other, submits, third = prime.check_all([["two-gpus"], moved, ["slurm"], ["infer"]], before=listen(*LISTENED))
    says(found, "port:conflict")
    told = details(found, "port:conflict").split("\n")
    assert sorted((int(line.split()[0]), re.findall(r"\((.*?)\)", line)[0]) for line in told) == sorted(LISTENED.items())
    for line in told:
        assert re.search(r"pid \d+ \(root\), .*serves-%s\.py" % line.split()[0], line), line
    assert "8101 29001 13346 5010 5011 5012 29502 5556" in details(other, "port:free")
    assert other.blocking == [] and submits.blocking == ([] if shutil.which("sbatch", path="/usr/bin:/bin") else ["slurm:absent"])
    assert details(third, "port:conflict").count("\n") == 2


def test_N3_time_wait_is_no_listener(prime: Scene) -> None:
    found = prime.check(RL, before=r"""
"$PYTHON" -c '
import socket
server = socket.socket(); server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("127.0.0.1", 8000)); server.listen(5)
client = socket.create_connection(("127.0.0.1", 8000)); side, _ = server.accept(); side.close(); client.recv(1); client.close()'
""")
    says(found)
    assert "8000: closed connections in TIME_WAIT" in details(found, "port:free")


# ---- the machine: runs

def launch(words: str, shows: str, env: str = "", place: str = "$ROOT") -> str:
    """Lines that start a real run of the toy in a session of its own and wait until all its parts live, by its log's words."""
    return r"""
(cd "%s" && %s TOY_STEPS=100000 TOY_LOAD_SEC=0 TOY_STEP_SEC=1 exec setsid .venv/bin/rl %s) </dev/null >"$SCENE/log-%s" 2>&1 &
await grep -q "Startup complete" "$SCENE/log-%s"
await grep -q "%s" "$SCENE/log-%s"
""" % (place, env, words, shows, shows, "Step 1 ", shows)


ELSEWHERE = ("--inference.server.port 8010 --orchestrator.model.client.base-url http://localhost:8010/v1 "
             "--inference.backend-port 8110 --orchestrator.env-server-base-port 5100 --weight-broadcast.port 29601 "
             "--rollout-transport.port 5655")


def test_P5_live_run_of_prime_beside_this_one(own: Scene) -> None:
    """On other GPUs and ports it goes on; on the same ports, or in the same directory, it is in the way."""
    write_nvidia_smi(own.fakes, gpus(8))
    before = launch("@ %s --run.name mine %s" % (RL, ELSEWHERE), "one", "CUDA_VISIBLE_DEVICES=4,5")
    mine = [RL, "--", "--run.name", "mine"]
    lines = [[RL], [RL, "--"] + shlex.split(ELSEWHERE), mine, mine + ["--resume"], mine + ["--clean"]]
    beside, same, used, resumed, cleaned = own.check_all(lines, before=before)
    says(beside)
    assert "job:beside" in beside.warnings and "PRIME-RL::Launcher" in details(beside, "job:beside")
    says(same, "port:conflict")
    told = details(same, "port:conflict")
    assert "8010 (router)" in told and "8110 (engine)" in told and "5100 (env server reverse-text)" in told
    assert "PRIME-RL::Inference" in told and "PRIME-RL::EnvServer" in told
    says(used, "run:exists")
    says(resumed, "job:running")
    assert "write and delete beside it" in details(resumed, "job:running")
    says(cleaned, "job:running")
    assert "delete it under it" in details(cleaned, "job:running")
    assert "%s/outputs/mine" % own.root in details(cleaned, "job:running")


def test_P5_live_runs_of_prime_keep_lego_away(scene: Scene, shared_prime: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Both prefixes. A tail of a trainer's log is none (P1)."""
    root = build_prime_checkout(tmp_path_factory.mktemp("live") / "checkout")
    before = launch("@ " + RL, "one", place=root) + launch("@ %s %s" % (RL, ELSEWHERE), "two", "TOY_LAYOUT=new", root)
    found = scene.check(before=before)
    assert "job:running" in found.blocking
    told = details(found, "job:running")
    assert "PRIME-RL::Launcher" in told and "PRL::Launcher" in told and "tail" not in told and told.count("\n") == 1
    assert "kill -s TERM -- -" in fixes(found, "job:running")


def test_P1_tail_of_a_trainer_s_log_is_no_run(scene: Scene, shared_prime: str) -> None:
    tail = 'touch "$SCENE/trainer.log"\n' + start('tail -F "$SCENE/trainer.log"', "trainer.log")
    tail += act(argv=["tail", "-F", "outputs/x/logs/latest/PRL::Trainer/trainer.log"])
    says(scene.check(before=tail))
    found = scene._replace(root=shared_prime).check(RL, before=tail)
    says(found)
    assert details(found, "job:none") == "none"


def test_live_run_of_lego_keeps_prime_away(prime: Scene) -> None:
    before = OTHER + "cd $other\n" + start("bash scripts/train/train.sh x.env", "x.env") + 'cd "$ROOT"\n'
    local, submits = prime.check_all([[RL], ["slurm"]], before=before)
    says(local, "job:running")
    assert "lego train runner" in details(local, "job:running") and "stop it yourself (kill -" in fixes(local, "job:running")
    assert "job:running" not in submits.blocking


def test_dry_run_of_prime_is_no_run(scene: Scene, shared_prime: str) -> None:
    """Ours wears the titles of a real one while it is under way."""
    write_fake_program(scene.fakes, "uv", 'cd "$ROOT"; exec "$PYTHON" -B -c "\nimport sys, time\nsys.path[:0] = [\'%s/src\']\n'
                       'from prime_rl.process import set_title\nset_title(\'Launcher\')\nopen(sys.argv[1], \'w\').close()\n'
                       'time.sleep(600)" "$SCENE/titled"\n' % shared_prime)
    says(scene.check(before='(cd %s && exec "$PYTHON" "$PYZ" check %s --runner uv) </dev/null >/dev/null 2>&1 &\n'
                            'await test -e "$SCENE/titled"\n' % (shared_prime, RL)))


# ---- the run directory

def test_run_directory_of_an_earlier_run(own: Scene) -> None:
    make(own.root + "/outputs", "mine/logs/attempt_1/trainer.log", "mine/configs/rl.json", "only/configs/rl.json",
         "only/job_17.log", "only/rl.sbatch", "empty/configs/x", "../ckpts/checkpoints/step_3/trainer/.metadata")
    for step in (1, 4, 5, 12):
        for folder in ("rollouts", "broadcasts"):
            make(own.root, "outputs/mine/%s/step_%d/x" % (folder, step), size=70000)
    make(own.root, *["outputs/mine/checkpoints/step_%d/trainer/.metadata" % step for step in (2, 4)], size=300000)

    def name(*words: str) -> List[str]:
        return [RL, "--", "--run.name", *words]
    used, fresh, other, resumed, back, gone, none, cleaned, whole = own.check_all([
        name("mine"), name("only"), name("new", "--ckpt.output-dir", "ckpts"), name("mine", "--resume"),
        name("mine", "--resume.step", "2"), name("mine", "--resume.step", "3"), name("empty", "--resume"),
        name("mine", "--clean"), name("new", "--clean")])
    says(used, "run:exists")
    assert "%s/outputs/mine is used by an earlier run (broadcasts, checkpoints, logs, rollouts)" % own.root in details(
        used, "run:exists")
    assert fixes(used, "run:exists").startswith(
        "Continue it: -- --run.name mine --resume (from step 4). Or begin anew under another name: -- --run.name NAME. Or delete "
        "it: -- --run.name mine --clean")
    says(fresh)
    says(other, "run:exists")
    assert "ckpts/checkpoints holds an earlier run's checkpoints" in details(other, "run:exists")
    says(resumed)
    assert "  resume       from step 4  %s/outputs/mine/checkpoints/step_4\n" % own.root in resumed.shape["configuration"]
    sizes = {os.path.relpath(one["path"], own.root): one["bytes"] for one in resumed.shape["plan"]["sweep"]["paths"]}
    assert sorted(sizes) == ["outputs/mine/%s/step_%d" % (one, step) for one in ("broadcasts", "rollouts") for step in (12, 5)]
    assert all(70000 <= size < 90000 for size in sizes.values())
    assert "would delete 4 paths" in details(resumed, "sweep:paths")
    assert "--resume deletes" in resumed.shape["plan"]["sweep"]["rule"]
    says(back)
    assert len(back.shape["plan"]["sweep"]["paths"]) == 6 and "from step 2" in back.shape["configuration"]
    says(gone, "resume:missing")
    assert "step_3" in details(gone, "resume:missing") and fixes(gone, "resume:missing").endswith("there are: step_2, step_4")
    says(none)
    assert "there is no checkpoint in %s/outputs/empty/checkpoints" % own.root in details(none, "resume:none")
    says(cleaned)
    paths = cleaned.shape["plan"]["sweep"]["paths"]
    assert [one["path"] for one in paths] == [own.root + "/outputs/mine"] and paths[0]["bytes"] >= 600000 + 8 * 70000
    assert "--clean deletes the directory" in cleaned.shape["plan"]["sweep"]["rule"] and "sweep:paths" in cleaned.warnings
    says(whole)
    assert whole.shape["plan"]["sweep"]["paths"] == []


def test_run_directory_that_can_not_be_written(prime: Scene) -> None:
    before = "settle\nmkdir -m 1777 outputs more\nmkdir -m 755 outputs/mine outputs/mine/configs\n"
    foreign, top, full = prime.check_all([
        [RL, "--", "--run.name", "mine"], [RL, "--", "--output-dir", "/srv/scene/../roots/o"],
        [RL, "--", "--output-dir", "/srv/full", "--run.name", "x"]],
        before=before + "mkdir -m 755 /srv/roots /srv/full; mount -t tmpfs -o size=64k,mode=1777 tmpfs /srv/full\n"
        "head -c 100000 /dev/zero >/srv/full/x.bin 2>/dev/null\n", prefix="$NOBODY")
    says(foreign, "run:unwritable")
    assert "outputs/mine belongs to root, mode 755" in details(foreign, "run:unwritable")
    assert "permission denied" in details(foreign, "run:unwritable").lower()
    says(top, "run:unwritable")
    assert "/srv/roots belongs to root" in details(top, "run:unwritable")
    says(full, "run:unwritable")
    assert "no space left" in details(full, "run:unwritable").lower()


def test_run_directory_on_a_read_only_disk(prime: Scene) -> None:
    found = prime.check(RL, before="settle\nmkdir outputs && mount -t tmpfs -o ro tmpfs outputs\n")
    says(found, "run:unwritable")
    assert "read-only" in details(found, "run:unwritable").lower()


# ---- servers, Slurm, an enclosing job

def test_server_of_evals(own: Scene) -> None:
    """A real one of the toy's, on the port that the config names."""
    serve = ('TOY_LOAD_SEC=0 .venv/bin/inference @ examples/basic/reverse-text/infer.toml </dev/null >"$SCENE/log" 2>&1 &\n'
             'await grep -q "startup complete" "$SCENE/log"\n')
    up, other = own.check_all([["evals"], ["evals", "--", "--model", "toy/Other"]], before=serve)
    says(up)
    assert details(up, "server:up") == "http://localhost:8000/v1 answers: toy/Reverse-Text-0.6B"
    says(other)
    assert "toy/Reverse-Text-0.6B, and not toy/Other" in details(other, "server:model")


def test_server_that_is_down(prime: Scene) -> None:
    """evals ends without it; rl would wait for it, and says so."""
    evals, rl = prime.check_all([["evals"], ["external"]])
    says(evals, "server:down")
    assert details(evals, "server:down").startswith("no server at http://localhost:8000/v1: refused")
    says(rl)
    assert {"server:down", "server:external"} <= set(rl.warnings) and "8000" not in details(rl, "port:free")


def test_slurm_that_is_absent(prime: Scene) -> None:
    hide = 'for place in $(type -ap sbatch); do mount --bind /dev/null "$place"; done; hash -r\n'
    asked, told, local = prime.check_all([[RL, "--", "--slurm"], ["slurm"], [RL]], before=hide)
    for found in (asked, told):
        says(found, "slurm:absent")
        assert "no sbatch on PATH" in details(found, "slurm:absent") and "\n  Slurm  " in found.shape["configuration"]
    says(local)


def test_E9_variables_of_an_enclosing_job(prime: Scene) -> None:
    found = prime.check(RL, env={"SLURM_JOB_ID": "7", "SLURM_NTASKS": "1", "RANK": "0", "WORLD_SIZE": "8",
                                 "MASTER_PORT": "29500"})
    assert found.blocking == []
    for name in ("SLURM_*", "RANK", "WORLD_SIZE", "MASTER_PORT"):
        assert name in details(found, "env:inherited")


def test_json_of_a_refusal(run_pyz: Run, shared_prime: str) -> None:
    done = run_pyz(["check", RL, "--json", "--", "--run.name", "a b"], cwd=shared_prime)
    shape = json.loads(done.stdout)
    assert (shape["exit"], shape["reason"], shape["schema"], done.returncode) == (2, "run-name", 1, 2)
