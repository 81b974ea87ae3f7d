"""Proves the toy checkout of prime-rl: its configs, its dry runs, its runs, its refusals."""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from . import PRIME_TEMPLATE_DIR, add_prime_config, build_prime_checkout, list_prime_files, write_fake_program

MAX_BYTES = 84000
RL, SFT = "examples/basic/reverse-text/rl.toml", "examples/basic/reverse-text/sft.toml"
RESOLVE = ("import json, sys; from prime_rl.utils.config import cli; from prime_rl.configs.%s import %s as C; "
           "print(json.dumps(cli(C).model_dump(mode='json')))")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """For tests that write only elsewhere: one copy for all of them, at a path with a space."""
    return build_prime_checkout(tmp_path_factory.mktemp("toy") / "a check out")


def find_ports():
    """Three ports that are free now: router, engine, env servers."""
    sockets = [socket.socket() for _ in range(3)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    found = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return found


@pytest.fixture
def ports():
    return find_ports()


def make_environment(**extra):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TOY_", "PYTHON", "PYTEST_"))}
    return dict(kept, **dict({"TOY_PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": "0,1", "TOY_STEP_SEC": "0.05",
                              "TOY_LOAD_SEC": "0.1"}, **extra))


def run(root, *words, **extra):
    """(exit status, output without colours) of a program in .venv/bin."""
    done = subprocess.run([os.path.join(root, ".venv/bin", words[0])] + list(words[1:]), cwd=root, timeout=60,
                          env=make_environment(**extra), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    return done.returncode, re.sub("\x1b\\[[0-9;]*m", "", done.stdout.decode("utf-8"))


def resolve(root, kind, name, *words):
    status, output = run(root, "python", "-c", RESOLVE % (kind, name), *words)
    assert status == 0, output
    return json.loads(output)


def move_ports(ports):
    return ["--inference.server.port", str(ports[0]), "--inference.backend-port", str(ports[1]),
            "--orchestrator.env-server-base-port", str(ports[2]),
            "--orchestrator.model.client.base-url", "http://localhost:%d/v1" % ports[0]]


def read_json(*path):
    with open(os.path.join(*map(str, path))) as file:
        return json.load(file)


def read_log(*path):
    with open(os.path.join(*map(str, path)), encoding="utf-8") as file:
        return re.sub("\x1b\\[[0-9;]*m", "", file.read())


def list_tree(folder):
    return sorted(os.path.relpath(os.path.join(where, name), str(folder))
                  for where, _, names in os.walk(str(folder)) for name in names)


def list_descendants(pid):
    parents, titles = {}, {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % name, "rb") as file:
                parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
            with open("/proc/%s/cmdline" % name, "rb") as file:
                titles[int(name)] = file.read().rstrip(b"\0").decode("utf-8", "replace")
        except OSError:
            pass
    found = [pid]
    for parent in found:
        found += [child for child, its in parents.items() if its == parent]
    return {one: titles.get(one, "") for one in found[1:]}


def is_alive(pid):
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            return not file.read().rpartition(b")")[2].startswith(b" Z")
    except OSError:
        return False


def wait_until(is_true, seconds=20):
    end = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_size_and_run_bits():
    files = list_prime_files()
    assert sum(os.path.getsize(os.path.join(PRIME_TEMPLATE_DIR, name)) for name in files) < MAX_BYTES
    programs = [name for name in files if os.access(os.path.join(PRIME_TEMPLATE_DIR, name), os.X_OK)]
    assert programs == sorted(".venv/bin/" + name for name in (
        "env-server", "evals", "inference", "orchestrator", "python", "python3", "rl", "sft", "torchrun"))


def test_git_takes_the_whole_of_it():
    """.venv/ is ignored at the top only."""
    done = subprocess.run(["git", "check-ignore", ".venv/bin/rl", ".venv/lib/tomli.py"], cwd=PRIME_TEMPLATE_DIR,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert done.stdout == b""


def test_dry_run_writes_the_parts(checkout, tmp_path):
    status, output = run(checkout, "rl", "@", RL, "--dry-run", "--output-dir", str(tmp_path), "--run.name", "check")
    assert status == 0
    assert output.splitlines()[-1].endswith(
        "SUCCESS Dry run complete. To start an RL run locally, remove --dry-run from your command.")
    assert list_tree(tmp_path) == ["check/configs/envs/train/reverse-text.json", "check/configs/inference.json",
                                   "check/configs/orchestrator.json", "check/configs/trainer.json"]
    trainer = read_json(tmp_path, "check/configs/trainer.json")
    assert trainer["optim"] == {"type": "adamw", "lr": 3e-6, "weight_decay": 0.01, "max_norm": 1.0, "betas1": 0.9,
                                "betas2": 0.999}
    assert trainer["output_dir"] == str(tmp_path / "check") and trainer["max_steps"] == 20
    assert trainer["weight_broadcast"]["type"] == "nccl" and trainer["monitors"]["wandb"]["name"] == "check"
    assert read_json(tmp_path, "check/configs/envs/train/reverse-text.json")["serve"]["address"] == "tcp://127.0.0.1:5000"


def test_resolved_config(checkout):
    data = resolve(checkout, "rl", "RLConfig", "@", RL, "--max-steps", "50", "--trainer.optim.lr=1e-5",
                   "--orchestrator.batch_size", "32", "--no-monitors.wandb", "--resume.step", "3", "--clean", "--no-clean")
    assert (data["max_steps"], data["trainer"]["max_steps"], data["trainer"]["optim"]["lr"]) == (50, 50, 1e-5)
    assert (data["orchestrator"]["batch_size"], data["clean"], data["resume"]) == (32, False, {"step": 3, "dir": None})
    assert data["monitors"]["wandb"] is None and data["trainer"]["monitors"]["wandb"] is None
    assert data["orchestrator"]["train"]["source"][0]["group_size"] == 16
    assert data["deployment"] == {"type": "single_node", "gpus_per_node": 8, "num_train_gpus": 1, "num_infer_gpus": 1}
    assert data["inference"]["vllm"]["model"] == data["model"]["name"] == "toy/Reverse-Text-0.6B"
    assert re.match(r"reverse-text--reverse-text-0\.6b--[0-9a-f]{8}$", data["run"]["name"])
    assert resolve(checkout, "sft", "SFTConfig", "@", SFT)["eval"]["source"][0]["interval"] == 25
    data = resolve(checkout, "inference", "InferenceConfig", "--vllm.model", "x/y", "--vllm.max-num-seqs", "3")
    assert (data["backend_port"], data["vllm"]["max_num_seqs"], data["server"]["port"]) == (8100, "3", 8000)
    assert resolve(checkout, "evals", "EvalsConfig", "@", SFT.replace("sft", "evals"))["eval"]["num_examples"] == 8


def test_files_merge_left_to_right(checkout, tmp_path):
    (tmp_path / "wandb.toml").write_text('project = "another"\n')
    (tmp_path / "more.json").write_text('{"max_steps": 7, "run": {"name": "x"}}')
    data = resolve(checkout, "rl", "RLConfig", "@", RL, "@", str(tmp_path / "more.json"),
                   "--monitors.wandb", "@", str(tmp_path / "wandb.toml"), "--slurm")
    assert (data["max_steps"], data["run"]["dir"]) == (7, "x")
    assert data["orchestrator"]["monitors"]["wandb"]["project"] == "another"
    assert data["slurm"]["project_dir"] == os.path.realpath(checkout)
    assert resolve(checkout, "rl", "RLConfig", "@", "configs/debug/small.yaml")["trainer"]["optim"]["lr"] == 1e-5


@pytest.mark.parametrize("words, expected", [
    (["@", RL, "--bogus", "3"], ["Config file error", "1 validation error for RLConfig", "--bogus", "(got '3')"]),
    (["@", "configs/debug/wrong-key.toml"], ["2 validation errors", "--trainer.optim.adamw.lrr",
                                             "Extra inputs are not permitted (got 3)"]),
    (["@", RL, "--max-steps", "many"], ["3 validation errors", "--trainer.max-steps", "Input should be a valid integer"]),
    (["@", "configs/debug/syntax.toml"], ["Invalid TOML in configs/debug/syntax.toml", "line 2, column 9"]),
    (["@", "nowhere.toml"], ["Config file not found: nowhere.toml"]),
    (["@", RL, "stray"], ["Unrecognized arguments: stray"]),
    ([], ["2 validation errors", "--trainer", "Field required"]),
    (["@", "configs/debug/missing-env.toml"], ["ModuleNotFoundError: taskset 'wordle' not found (tried to import 'wordle')"]),
    (["@", RL, "--deployment.num-train-gpus", "9"], ["--deployment.single-node", "exceeds gpus_per_node"]),
    (["@", RL, "--deployment.type", "multi_node", "--deployment.num-train-nodes", "2"], ["<root>", "Must use SLURM"]),
])
def test_refused_configs(checkout, tmp_path, words, expected):
    status, output = run(checkout, "rl", *words + ["--dry-run", "--output-dir", str(tmp_path)])
    assert status == 1 and not list_tree(tmp_path)
    assert [word for word in expected if word not in output] == []


def test_its_own_parsers_read_what_it_holds(checkout):
    """.venv/lib/tomli.py as tomllib does; yaml.py is used by a test above."""
    names = [name for name in list_prime_files() if name.endswith(".toml") and "syntax" not in name]
    program = "import json, sys, tomli; print(json.dumps([tomli.loads(open(name).read()) for name in sys.argv[1:]]))"
    status, output = run(checkout, "python", "-c", program, *names)
    assert status == 0, output
    tomllib = pytest.importorskip("tomllib")
    for name, data in zip(names, json.loads(output)):
        with open(os.path.join(checkout, name), "rb") as file:
            assert tomllib.load(file) == data


@pytest.mark.parametrize("layout", ["old", "new"])
def test_a_run_to_its_end(checkout, tmp_path, ports, layout):
    words = ["rl", "@", RL, "--output-dir", str(tmp_path), "--run.name", "r"] + move_ports(ports)
    status, output = run(checkout, *words, TOY_LAYOUT=layout, HOME=str(tmp_path / "home"), TOY_DASHBOARD="http://localhost:7788")
    assert status == 0 and "Training finished!" in output
    folder = tmp_path / "r"
    assert os.readlink(str(folder / "logs" / "latest")) == "attempt_1"
    assert re.search(r"\d\d:\d\d:\d\d SUCCESS Step 3 \| +\d+ms \| Loss 0\.1667 \| .* LR 3\.00e-06", read_log(
        folder, "logs/latest/trainer.log"))
    assert " Step 3 |    50ms | Reward 0.3000 | Trainable 128/128" in read_log(folder, "logs/latest/orchestrator.log")
    assert sorted(os.listdir(str(folder / "checkpoints" / "step_3" / "trainer"))) == [".metadata", "__0_0.distcp"]
    assert sorted(os.listdir(str(folder / "rollouts"))) == ["step_1", "step_2", "step_3"]
    assert len(read_log(folder, "metrics.jsonl").splitlines()) == 6
    if layout == "new":
        assert "Dashboard \u00b7 http://localhost:7788" in output
        assert read_json(tmp_path, "home/.cache/prime-rl/dashboard/daemon.json") == {"url": "http://localhost:7788"}
        assert sorted(os.listdir(str(folder / "configs" / "latest" / "resolved"))) == [
            "envs", "inference.json", "orchestrator.json", "rl.json", "trainer.json"]
        assert read_log(folder, "configs/latest/command.txt").startswith("uv run rl @ " + RL)
    else:
        assert "Dashboard" not in output
    # and once more: refused, resumed, cleaned; each before it looks at --dry-run
    status, output = run(checkout, *words + ["--dry-run"], TOY_LAYOUT=layout)
    assert status == 1 and "FileExistsError: Run directory '%s' already contains artifacts" % folder in output
    assert run(checkout, *words + ["--dry-run", "--resume.step", "1"], TOY_LAYOUT=layout)[0] == 0
    assert os.listdir(str(folder / "rollouts")) == os.listdir(str(folder / "broadcasts")) == ["step_1"]
    assert run(checkout, *words + ["--dry-run", "--clean"], TOY_LAYOUT=layout, NEVER_CLEAN="1")[0] == 1
    assert run(checkout, *words + ["--dry-run", "--clean"], TOY_LAYOUT=layout)[0] == 0
    assert os.listdir(str(folder)) == ["configs"]


def end_group(process):
    """Ends what a test has started, whatever became of it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:
        pass
    process.wait()


def test_titles_and_the_end_by_a_signal(checkout, tmp_path, ports):
    process = subprocess.Popen(
        [os.path.join(checkout, ".venv/bin/rl"), "@", RL, "--output-dir", str(tmp_path), "--run.name", "r"] + move_ports(ports),
        cwd=checkout, env=make_environment(TOY_STEP_SEC="60"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, preexec_fn=os.setsid)
    try:
        wanted = {"PRIME-RL::Inference", "PRIME-RL::EnvServer", "Verifiers::EnvWorker0", "PRIME-RL::Orchestrator",
                  "PRIME-RL::Trainer"}
        wait_until(lambda: wanted <= set(list_descendants(process.pid).values()))
        children = list_descendants(process.pid)
        assert any("tail -F" in title or "tail\0-F" in title for title in children.values())
        with open("/proc/%d/cmdline" % process.pid, "rb") as file:
            assert file.read().rstrip(b"\0") == b"PRIME-RL::Launcher"
        with open("/proc/%d/comm" % process.pid) as file:
            assert file.read() == "PRIME-RL::Launc\n"
        url = "http://localhost:%d" % ports[0]
        wait_until(lambda: "inference pool ready" in read_log(tmp_path, "r/logs/latest/orchestrator.log"))
        assert json.load(urllib.request.urlopen(url + "/v1/models"))["data"][0]["id"] == "toy/Reverse-Text-0.6B"
        body = json.dumps({"messages": [{"role": "user", "content": "abc"}]}).encode()
        answer = json.load(urllib.request.urlopen(url + "/v1/chat/completions", body))
        assert answer["choices"][0]["message"]["content"] == "cba"
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=30)[0].decode("utf-8")
        assert process.returncode == 1 and "Received interrupt signal" in output
        wait_until(lambda: not any(is_alive(pid) for pid in children))
    finally:
        end_group(process)


@pytest.mark.parametrize("part", ["trainer", "orchestrator", "inference", "env-server"])
def test_a_part_that_fails(checkout, tmp_path, ports, part):
    status, output = run(checkout, "rl", "@", RL, "--output-dir", str(tmp_path), "--run.name", "r", *move_ports(ports),
                         TOY_FAIL=part)
    assert status == 1 and "failed with exit code 1" in output and "Terminating all processes" in output
    log = "envs/train/reverse-text" if part == "env-server" else part
    assert "RuntimeError: toy failure of %s" % part in read_log(tmp_path, "r/logs/latest/%s.log" % log)


PARTS = ("trainer", "orchestrator", "envs/train/reverse-text")
DEATH = "torch/distributed/elastic/agent/server/api.py:723] Received 15 death signal, shutting down workers"
STEP = r" Step %d \|.*%s"
# word: exit status, last step of the trainer, what a log says: (part, pattern of the log without colours)
SICK = {
    "kl": (0, 8, [("trainer", STEP % (3, r"Mismatch KL 0\.0008")), ("trainer", STEP % (8, r"Mismatch KL [1-9]"))]),
    "entropy": (0, 8, [("trainer", STEP % (3, r"Entropy 0\.4567")), ("trainer", STEP % (8, r"Entropy 0\.00"))]),
    "grad": (0, 8, [("trainer", STEP % (3, r"Norm 0\.1234")), ("trainer", STEP % (8, r"Norm \d\d\.\d{4}"))]),
    "nan": (0, 8, [("trainer", STEP % (3, r"Loss 0\.1667")), ("trainer", STEP % (4, "Loss nan .* KL nan .* Norm nan")),
                   ("trainer", r"WARNING Dropping \d non-finite value\(s\) from metrics\.jsonl: entropy/all/mean, ")]),
    "errors": (0, 8, [("orchestrator", STEP % (8, r"Error 85\.0% ")), ("orchestrator", "WARNING Trace failed in group ")]),
    "truncated": (0, 8, [("orchestrator", STEP % (1, r"Truncation 90\.0%"))]),
    "wait_orchestrator": (0, 8, [("trainer", STEP % (1, "1m 2s")), ("orchestrator", r"Train batch 3/128 \(2\.3%\); 12 infl")]),
    "wait_trainer": (0, 8, [("trainer", STEP % (8, "1m 35s")),
                            ("orchestrator", r"Holding batch 8 until the trainer publishes policy v6 \(currently v5\)")]),
    "envdie": (0, 8, [(PARTS[2], r"ERROR Env server failed\n(.*\n)+.*WARNING Worker 0 \(pid=\d+\) died, restarting"),
                      ("orchestrator", "WARNING Episode task failed in group "), ("orchestrator", r"Error 12\.5%")]),
    "empty": (1, 3, [("orchestrator", r"WARNING Step 4: empty train batch after 128 .*: 1/10\)\n(.*\n){10}.*cleanup complete"),
                     ("orchestrator", "RuntimeError: 10 consecutive empty train batches"), ("trainer", DEATH)]),
    "broadcast": (1, 3, [("orchestrator", r"in-flight to v3\n(.*\n)+.*httpx\.HTTPStatusError: .*/update_weights'"),
                         ("trainer", DEATH)]),
    "trace": (1, 3, [("orchestrator", r"ERROR Fatal error in run_orchestrator\nTraceback(.*\n)+KeyError"), ("trainer", DEATH)]),
    "oom": (1, 3, [("trainer", r"ERROR Fatal error in train\n(.*\n)+.*torch\.OutOfMemoryError: CUDA out of memory\.")]),
    "nccl": (1, 3, [("trainer", r"\[Rank 1\] Watchdog caught (.*\n)+.*\[Rank 0\] Watchdog (.*\n)+.*DistBackendError'\n(.*\n)*"
                     r".* failed \(exitcode: -6\) local_rank: 0 ")]),
    "kill": (1, 4, [("trainer", r"Step 4 \|   3\.2s \| Loss 0\.01\n.* failed \(exitcode: -9\) local_rank: 0 "),
                     ("trainer", r"Signal 9 \(SIGKILL\) received by PID \d+")]),
    "early": (0, 3, [("orchestrator", "INFO Pipeline drained, exiting main loop"), ("trainer", "SUCCESS RL trainer finished!")]),
}


def play(root, folder, ports, **extra):
    """Exit status and the log of each part, without colours."""
    status, _ = run(root, "rl", "@", RL, "--output-dir", str(folder), "--run.name", "r", *move_ports(ports),
                    **dict({"TOY_STEPS": "8"}, **extra))
    return status, {part: read_log(folder, "r/logs/latest/%s.log" % part) for part in PARTS}


def read_metrics(folder, key):
    rows = [json.loads(line) for line in read_log(folder, "r/metrics.jsonl").splitlines()]
    return [row[key] for row in rows if key in row]


@pytest.fixture(scope="module")
def healthy(checkout, tmp_path_factory):
    return play(checkout, tmp_path_factory.mktemp("healthy"), find_ports())


@pytest.mark.parametrize("word", sorted(SICK))
def test_sick_words(checkout, healthy, tmp_path, ports, word):
    expected, last, signs = SICK[word]
    status, logs = play(checkout, tmp_path, ports, TOY_SICK=word)
    assert status == expected
    assert re.findall(r" Step (\d+) \|", logs["trainer"]) == [str(step) for step in range(1, last + 1)]
    for part, pattern in signs:
        assert re.search(pattern, logs[part]), (part, pattern, logs[part])
    assert healthy[0] == 0 and not all(re.search(pattern, healthy[1][part]) for part, pattern in signs)
    if word in ("trace", "broadcast", "empty"):  # the cause is in one log, earlier, and only its consequence in the other
        assert not re.search("Traceback|Error", logs["trainer"])
    if word.startswith("wait_"):
        waited = [read_metrics(tmp_path, key) for key in ("time/wait_for_batch", "time/wait_for_policy")]
        assert [set(column) for column in waited] == ([{55.0}, {0.0}] if word == "wait_orchestrator" else [{0.0}, {88.0}])
    if word == "nan":
        assert len(read_metrics(tmp_path, "loss/mean")) == 3 and len(read_metrics(tmp_path, "optim/lr")) == 8


def test_sick_words_take_a_step_and_one_another(checkout, tmp_path, ports):
    status, logs = play(checkout, tmp_path, ports, TOY_SICK="grad,errors", TOY_SICK_AT="2", TOY_STEPS="")
    grads = re.findall(r"Norm (\S+)", logs["trainer"])
    assert status == 0 and len(grads) == 12 and grads[0] == "0.1234" and float(min(grads[1:], key=float)) > 9
    assert re.findall(r"\| Error (\S+)", logs["orchestrator"]) == ["0.0%"] + ["85.0%"] * 11


def test_a_stalled_run_lives_until_it_is_told_to_end(checkout, tmp_path, ports):
    process = subprocess.Popen(
        [os.path.join(checkout, ".venv/bin/rl"), "@", RL, "--output-dir", str(tmp_path), "--run.name", "r"] + move_ports(ports),
        cwd=checkout, env=make_environment(TOY_SICK="stall", TOY_STEPS="8"), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, preexec_fn=os.setsid)
    logs = [str(tmp_path / "r/logs/latest" / (part + ".log")) for part in PARTS[:2]]
    try:
        wait_until(lambda: all(os.path.exists(log) and " Step 3 |" in read_log(log) for log in logs))
        sizes = [os.path.getsize(log) for log in logs]
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)  # twenty of its steps
        assert [os.path.getsize(log) for log in logs] == sizes
        process.terminate()
        assert process.wait(30) == 1 and DEATH in read_log(logs[0])
    finally:
        end_group(process)


@pytest.mark.parametrize("visible, words", [
    ("0", "ValueError: Requested 2 GPUs via deployment settings, but only 1 physical GPU(s) are available: [0]"),
    ("GPU-1234", "ValueError: invalid literal for int()")])
def test_gpus_that_it_does_not_take(checkout, tmp_path, visible, words):
    status, output = run(checkout, "rl", "@", RL, "--output-dir", str(tmp_path), CUDA_VISIBLE_DEVICES=visible)
    assert status == 1 and words in output


def test_sft(checkout, tmp_path, ports):
    words = ["sft", "@", SFT, "--output-dir", str(tmp_path), "--run.name", "s", "--inference.server.port", str(ports[0]),
             "--inference.backend-port", str(ports[1]), "--eval.env-server-base-port", str(ports[2])]
    assert "To start an SFT run locally" in run(checkout, *words + ["--dry-run"])[1]
    assert list_tree(tmp_path) == ["s/configs/envs/eval/reverse-text.json", "s/configs/evals.json",
                                   "s/configs/inference.json", "s/configs/sft.json"]
    status, output = run(checkout, *words)
    assert status == 0 and "SFT training finished!" in output and "Step 3 |" in output
    assert "Evaluated reverse-text (Step 3) |" in read_log(tmp_path, "s/logs/latest/evals.log")
    words = ["sft", "@", "configs/debug/fake.json", "--output-dir", str(tmp_path), "--run.name", "f", "--ckpt.interval", "1"]
    assert run(checkout, *words)[0] == 0
    assert sorted(os.listdir(str(tmp_path / "f" / "checkpoints"))) == ["step_1", "step_2"]


def test_inference_and_evals(checkout, tmp_path, ports):
    server = ["--server.port", str(ports[0]), "--backend-port", str(ports[1])]
    words = ["inference", "@", SFT.replace("sft", "infer")] + server
    assert "To start inference locally" in run(checkout, *words + ["--dry-run"])[1]
    url = "http://localhost:%d" % ports[0]
    evals = ["evals", "@", SFT.replace("sft", "evals"), "--output-dir", str(tmp_path), "--eval.client.base-url", url + "/v1",
             "--eval.env-server-base-port", str(ports[2])]
    status, output = run(checkout, *evals)
    assert status == 1 and "ConnectionError: No inference server answers" in output
    process = subprocess.Popen([os.path.join(checkout, ".venv/bin", words[0])] + words[1:], cwd=checkout,
                               env=make_environment(TOY_LOAD_SEC="0.5"), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        seen = set()

        def is_healthy():
            try:
                seen.add(urllib.request.urlopen(url + "/health").status)
            except urllib.error.HTTPError as error:
                seen.add(error.code)
            except OSError:
                pass
            return 200 in seen
        wait_until(is_healthy)
        assert seen == {503, 200}
        status, output = run(checkout, *evals)
        assert status == 0 and "Evals finished!" in output, output
        assert "rollouts/step_0/eval/effective/traces.jsonl" in list_tree(tmp_path)
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("layout", ["old", "new"])
def test_slurm(checkout, tmp_path, layout):
    programs, calls = tmp_path / "bin", tmp_path / "calls"
    words = ["rl", "@", "configs/debug/slurm.toml", "--output-dir", str(tmp_path / "out"), "--run.name", "r"]
    script = tmp_path / "out" / "r" / ("launcher" if layout == "new" else "") / "rl.sbatch"
    status, output = run(checkout, *words + ["--dry-run"], TOY_LAYOUT=layout)
    assert status == 0 and "\n  sbatch %s\n\nLogs:\n" % script in output
    lines = read_log(script).splitlines()
    log = "launcher/logs/job_%j.log" if layout == "new" else "job_%j.log"
    assert "#SBATCH --output=%s/out/r/%s" % (tmp_path, log) in lines and "#SBATCH --time=01:00:00" in lines
    write_fake_program(programs, "sbatch", 'echo "$@" >>"%s"\n[ -z "$REFUSE" ] || { echo no such partition >&2; exit 1; }\n'
                       'case $1 in --parsable) echo "42;cluster" ;; *) echo Submitted batch job 42 ;; esac\n' % calls)
    path = "%s:%s" % (programs, os.environ["PATH"])
    status, output = run(checkout, *words, TOY_LAYOUT=layout, PATH=path)
    assert status == 0 and "SUCCESS Submitted batch job 42\n\nLogs:" in output
    status, output = run(checkout, *words, TOY_LAYOUT=layout, PATH=path, REFUSE="1")
    assert status == 1 and "ERROR sbatch failed: no such partition" in output
    words = ["sft", "@", "configs/debug/fake.json", "--output-dir", str(tmp_path / "out"), "--run.name", "s", "--slurm"]
    status, output = run(checkout, *words, TOY_LAYOUT=layout, PATH=path)
    assert status == 0 and "SUCCESS Submitted batch job 42\n" in output
    assert [line.split()[0] for line in read_log(calls).splitlines()] == [str(script), str(script), "--parsable"]
    # What the job itself runs: the config that was written is one that `@` takes.
    done = subprocess.run(["bash", "-c", "set -- --dry-run; eval \"$(tail -n 1 \"$0\") --dry-run\"", str(script)], cwd=checkout,
                          env=make_environment(TOY_LAYOUT=layout), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert b"Dry run complete" in done.stdout, done.stdout


def test_exports(checkout, tmp_path):
    step = tmp_path / "r" / "checkpoints" / "step_3"
    os.makedirs(str(step / "trainer"))
    (step / "trainer" / ".metadata").write_text("")
    run(checkout, "rl", "@", RL, "--dry-run", "--resume", "--output-dir", str(tmp_path), "--run.name", "r")
    for tool, folder, made in (("dcp_to_bf16", step, "weights"), ("dcp_to_fp8", step, "weights-FP8"),
                               ("bf16_to_fp8", step / "weights", "weights-FP8"),
                               ("fp8_to_bf16", step / "weights-FP8", "weights-FP8-BF16")):
        assert run(checkout, "python", "tools/convert_%s.py" % tool, str(folder)) == (0, "Wrote %s\n" % (step / made))
        assert ("quantization_config" in read_json(step, made, "config.json")) == made.endswith("FP8")
    shutil.rmtree(str(step / "weights"))
    run(checkout, "rl", "@", RL, "--dry-run", "--resume", "--output-dir", str(tmp_path), "--run.name", "r",
        "--trainer.model.lora", "--weight-broadcast.type", "filesystem")
    status, output = run(checkout, "python", "tools/convert_dcp_to_bf16.py", str(step))
    assert status == 1 and "LoRA" in output and not (step / "weights").exists()


def test_add_prime_config(tmp_path):
    root = build_prime_checkout(tmp_path / "toy")
    path = add_prime_config(root, "mine", "[vllm]\n")
    assert path == os.path.join(root, "configs", "debug", "mine.toml") and read_log(path) == "[vllm]\n"
