"""Proves the toy checkout itself: its dry runs, its launches, its board, and the fake programs beside it."""
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from . import TEMPLATE_DIR, add_config, build_checkout, list_files, write_fake_program, write_nvidia_smi

MAX_BYTES = 60000
QUICK = {"TOY_BRINGUP_SEC": "0.1", "TOY_STEP_SEC": "0.05", "TOY_TRIAL_SEC": "0.05"}
SUMMARY_TRAIN = ["project", "experiment", "mode/engine", "templates", "train log", "vLLM log"]
SUMMARY_EVAL = [
    "project", "experiment", "templates", "model", "dataset", "n_tasks", "concurrent", "max retries", "temperature",
    "context", "tool parser", "vLLM topo", "vLLM serve", "eval log", "vLLM log", "job config"]
SUMMARY_INFER = [
    "project", "experiment", "templates", "model", "index", "instances", "results", "output index", "trials",
    "concurrent", "temperature", "tool parser", "vLLM topo", "vLLM serve", "infer log", "vLLM log"]
BLOCK_ROWS = [
    "config", "experiment", "axes", "model", "", "data", "", "topology", "batch", "context", "algorithm", "rollout", "",
    "schedule", "logs", ""]

# name: exit status, FATAL lines, WARN lines
TRAIN_CONFIGS = {
    "bad_utf8": (0, 0, 1), "bash_error": (1, 0, 0), "checkpoints": (0, 0, 1),
    "crlf": (0, 0, 1), "demo": (0, 0, 1), "dense_r3": (1, 1, 2),
    "died_early": (1, 0, 0), "empty_log": (0, 0, 1), "exit_zero_error": (0, 0, 1), "fails_late": (0, 0, 1),
    "fatal": (1, 1, 1), "flood": (0, 0, 1), "hang": (0, 0, 1), "holds_pipe": (0, 0, 1), "killed": (-9, 0, 0),
    "kv_heads": (0, 0, 1), "off_repo_log": (0, 0, 1), "pinned": (0, 0, 1), "placeholder": (1, 1, 3),
    "secret": (0, 0, 1), "sick": (0, 0, 1), "silent_exit": (0, 0, 1), "slow_bringup": (0, 0, 1),
    "spaces_value": (0, 0, 1), "two_nodes": (0, 0, 1), "volatile": (0, 0, 1), "warns": (0, 0, 3),
    "worker_exits": (0, 0, 1),
}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """For tests that write nothing: one copy for all of them, at a path with a space."""
    return build_checkout(tmp_path_factory.mktemp("toy") / "a check out")


@pytest.fixture
def fresh(tmp_path):
    return build_checkout(tmp_path / "lego")


def make_environment(**extra):
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("TOY_", "HARBOR_", "PYTHON", "PYTEST_", "MASTER_", "VLLM_"))}
    return dict(kept, **dict(QUICK, **extra))


def locate(root, kind, name):
    folder = os.path.join(root, "scripts", kind)
    return os.path.join(folder, kind + ".sh"), os.path.join(folder, "configs", name + ".env")


def start(root, kind, name, *options, **extra):
    runner, config = locate(root, kind, name)
    return subprocess.Popen(
        ["bash", runner] + list(options) + [config], cwd=root, env=make_environment(**extra),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        preexec_fn=lambda: (os.setsid(), signal.signal(signal.SIGINT, signal.SIG_DFL)))


def end_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:
        pass
    process.wait()


def collect(process, timeout=30):
    try:
        output = process.communicate(timeout=timeout)[0]
    finally:
        end_group(process)
    return process.returncode, output.decode("utf-8", "replace")


def run(root, kind, name, *options, **extra):
    return collect(start(root, kind, name, *options, **extra))


def dry_run(root, kind, name, **extra):
    return run(root, kind, name, "--dry-run", **extra)


def hash_tree(root):
    digest = hashlib.sha256()
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(folders + names):
            path = os.path.join(folder, name)
            facts = os.lstat(path)
            digest.update(("%s %o %d" % (path, facts.st_mode, facts.st_mtime_ns)).encode("utf-8", "surrogateescape"))
            if stat.S_ISREG(facts.st_mode):
                with open(path, "rb") as content:
                    digest.update(content.read())
    return digest.hexdigest()


def read_summary(text):
    """The labels between the headline and the environment."""
    inside = text.split("=== Launching Harbor", 1)[1].split("=== Final Environment ===")[0]
    return [line.split(":", 1)[0] for line in inside.splitlines()[1:]]


def read_environment(text, end):
    return text.split("=== Final Environment ===\n", 1)[1].split(end, 1)[0].splitlines()


def find_value(text, label):
    return re.search("^" + re.escape(label) + r": +(.*)$", text, re.M).group(1)


def wait_for(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("not reached within %d s" % seconds)


def find_free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def read_group(pgid):
    """Living members of a process group: pid -> command line."""
    members = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open("/proc/%s/stat" % name) as facts:
                fields = facts.read().rsplit(")", 1)[1].split()
            with open("/proc/%s/cmdline" % name, "rb") as words:
                command = words.read().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if int(fields[2]) == pgid and fields[0] not in "ZX":
            members[int(name)] = command
    return members


# --- the tree

def test_tree_is_small_and_complete():
    files = list_files()
    assert sum(os.path.getsize(os.path.join(TEMPLATE_DIR, path)) for path in files) < MAX_BYTES
    assert "scripts/lib/preflight.sh" in files
    assert not [path for path in files if "__pycache__" in path or path.startswith(("logs", "trials"))]


def test_every_config_is_listed_here_and_says_what_it_is_for():
    folder = os.path.join(TEMPLATE_DIR, "scripts", "train", "configs")
    assert {name[:-len(".env")] for name in os.listdir(folder)} == set(TRAIN_CONFIGS)
    for path in list_files():
        if path.endswith(".env"):
            with open(os.path.join(TEMPLATE_DIR, path)) as config:
                assert config.readline().startswith("# "), path


def test_copy_keeps_run_bits_and_git_commits_the_same(tmp_path):
    if not shutil.which("git"):
        pytest.skip("no git")
    roots = [build_checkout(tmp_path / name, git=True) for name in ("one", "two")]
    heads = {subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=root) for root in roots}
    assert len(heads) == 1
    assert subprocess.check_output(["git", "status", "--porcelain"], cwd=roots[0]) == b""
    assert os.access(os.path.join(roots[0], "scripts", "train", "train.sh"), os.X_OK)


# --- dry runs

@pytest.mark.parametrize("name", sorted(TRAIN_CONFIGS))
def test_dry_run_of_train(checkout, name):
    before = hash_tree(checkout)
    code, text = dry_run(checkout, "train", name, TOY_HANG_SEC="0.2", TOY_HOLD_SEC="1", TOY_FLOOD_MB="2")
    fatal, warn = text.count("✗ FATAL"), text.count("⚠ WARN")
    if name == "bash_error":
        code = min(code, 1)  # 1 or 2, as the version of bash has it
    assert (code, fatal, warn) == TRAIN_CONFIGS[name]
    assert ("[dry-run] not launching" in text) == (code == 0)
    assert ("=== Launch Command ===" in text) == (code == 0)
    assert hash_tree(checkout) == before


def test_sections_rows_and_labels_of_train(checkout):
    code, text = dry_run(checkout, "train", "demo")
    marks = ["[config] ", "[python] /", "[verl]   ", "=== Launching Harbor verl training ===",
             "=== Final Environment ===", "run configuration (train)", "─ preflight config check ─", "[preflight] ",
             "=== Launch Command ===", "[dry-run] not launching"]
    places = [text.index(mark) for mark in marks]
    assert places == sorted(places)
    assert read_summary(text) == SUMMARY_TRAIN
    block = re.search(r"^═+ run configuration \(train\) ═+\n(.*?)^═+$", text, re.M | re.S).group(1)
    assert [line[2:14].strip() for line in block.splitlines()] == BLOCK_ROWS
    assert all(line.startswith("  ") and line[14] == " " and line[15] != " " for line in block.splitlines())
    rows = read_environment(text, "\n\n═")
    assert rows == sorted(rows, key=lambda row: row.encode())
    assert {"NNODES=1", "RAY_PORT=6379", "GEN_TP=4", "DRY_RUN=1"} <= set(rows)


def test_verdict_lines_and_their_streams(checkout):
    runner, config = locate(checkout, "train", "warns")
    outcome = subprocess.Popen(["bash", runner, "--dry-run", config], env=make_environment(),
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, errors = (stream.decode() for stream in outcome.communicate())
    assert re.search("^  \x1b\\[32m✓ OK   \x1b\\[0m  .", out, re.M)
    assert re.search("^  \x1b\\[33m⚠ WARN \x1b\\[0m  .", errors, re.M)
    assert "OK" not in errors and "WARN \x1b" not in out
    code, text = dry_run(checkout, "train", "fatal")
    assert re.search("^  \x1b\\[31m✗ FATAL\x1b\\[0m  .", text, re.M)
    assert text.rstrip().splitlines()[-1].startswith("[FATAL] preflight failed")


def test_structure_only_skips_and_preflight_only_makes_the_log_folder(fresh):
    code, text = run(fresh, "train", "demo", "--structure-only")
    assert code == 0 and "\x1b[36m⊘ SKIP \x1b[0m  " in text
    assert os.path.isdir(os.path.join(fresh, "logs"))
    assert run(fresh, "train", "demo", "--preflight-only")[0] == 0


def test_launch_command_can_be_pasted(checkout):
    text = dry_run(checkout, "train", "spaces_value")[1]
    line = text.split("=== Launch Command ===\n")[1].splitlines()[0]
    printed = subprocess.check_output(["bash", "-c", "printf '%s\\0' " + line])
    words = printed.decode().split("\0")
    assert words[1:3] == ["-m", "verl.trainer.main_ppo"]
    assert "+trainer.note=two words, it's \"quoted\", a=b $HOME" in words
    assert "SECOND=looks like a name of its own" in text.splitlines()


def test_secrets_are_hidden_by_train_only_where_the_real_one_hides_them(checkout):
    text = dry_run(checkout, "train", "secret")[1]
    assert "WANDB_API_KEY=<redacted>" in text and "TOY_DB_PASSWORD=<redacted>" in text
    assert "1111" not in text and "2222" not in text
    assert "HF_TOKEN=hf_not_a_real_token_3333" in text and "OPENAI_KEY=not-a-real-openai-key-5555" in text
    text = dry_run(checkout, "eval", "secret_eval")[1]
    assert "WANDB_API_KEY=not-a-real-wandb-key-1111" in text


def test_crlf_is_on_one_line_only(checkout):
    with open(locate(checkout, "train", "crlf")[1], "rb") as config:
        lines = config.read().split(b"\n")
    assert [line for line in lines if line.endswith(b"\r")] == [b"EXP_NAME=crlf\r"]
    assert "exp=crlf\r" in dry_run(checkout, "train", "crlf")[1]


def test_early_deaths_say_why(checkout):
    assert "[FATAL] template module not found: " in dry_run(checkout, "train", "died_early")[1]
    assert "bash_error.env: line " in dry_run(checkout, "train", "bash_error")[1]
    code, text = dry_run(checkout, "train", "killed")
    assert (code, text) == (-signal.SIGKILL, "")


def test_bad_bytes_are_there(checkout):
    output = start(checkout, "train", "bad_utf8", "--dry-run").communicate()[0]
    with pytest.raises(UnicodeDecodeError):
        output.decode("utf-8")


def test_flood_is_fifty_megabytes(checkout):
    process = start(checkout, "train", "flood", "--dry-run")
    size = 0
    for chunk in iter(lambda: process.stdout.read(1 << 20), b""):
        size += len(chunk)
    process.stdout.close()
    assert process.wait() == 0 and size > 50 * 1000 * 1000


def test_hang_hangs(checkout):
    process = start(checkout, "train", "hang", "--dry-run")
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
    finally:
        end_group(process)
        process.stdout.close()


def test_held_pipe_stays_open_after_the_end(checkout):
    process = start(checkout, "train", "holds_pipe", "--dry-run")
    try:
        assert process.wait(10) == 0
        assert list(read_group(process.pid).values()) == ["sleep 60 "]
    finally:
        end_group(process)
        process.stdout.close()


def test_volatile_names_differ_and_pinned_does_not(checkout):
    names = [find_value(dry_run(checkout, "train", "volatile")[1], "experiment") for _ in range(2)]
    assert names[0] != names[1]
    assert find_value(dry_run(checkout, "train", "pinned")[1], "experiment") == "pinned"


@pytest.mark.parametrize("kind, labels, command", [
    ("eval", SUMMARY_EVAL, "=== Harbor Command ==="), ("infer", SUMMARY_INFER, "=== Infer Command ===")])
def test_dry_run_of_eval_and_infer(checkout, kind, labels, command):
    before = hash_tree(checkout)
    code, text = dry_run(checkout, kind, "demo_" + kind)
    assert code == 0 and hash_tree(checkout) == before
    marks = ["[config] ", "[python] /", "[vllm]   ", "=== Launching Harbor %s ===" % kind, "=== Final Environment ===",
             "=== vLLM Command ===", command, "[dry-run] not launching"]
    places = [text.index(mark) for mark in marks]
    assert places == sorted(places)
    assert read_summary(text) == labels
    assert "═" not in text and "preflight" not in text
    assert re.match(r"bind=127\.0\.0\.1:\d+ api=http://127\.0\.0\.1:\d+/v1$", find_value(text, "vLLM serve"))


def test_templates_and_example_work_as_they_are(checkout):
    runner = locate(checkout, "train", "demo")[0]
    example = os.path.join(checkout, "scripts", "train", "examples", "first_run.env")
    outcome = subprocess.Popen(["bash", runner, "--dry-run", example], env=make_environment(), stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT)
    assert "[dry-run] not launching" in outcome.communicate()[0].decode()
    template = os.path.join(checkout, "scripts", "train", "_template.env")
    outcome = subprocess.Popen(["bash", runner, "--dry-run", template], env=make_environment(), stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT)
    assert outcome.communicate()[0].decode().count("✗ FATAL") == 3 and outcome.returncode == 1


def test_operators_pythonpath_comes_first_and_a_real_verl_is_never_started(fresh, tmp_path):
    other = tmp_path / "other"
    (other / "verl").mkdir(parents=True)
    (other / "verl" / "__init__.py").write_text("")
    text = dry_run(fresh, "train", "demo", PYTHONPATH=str(other))[1]
    assert "[verl]   %s/verl/__init__.py" % other in text
    code, text = run(fresh, "train", "demo", PYTHONPATH=str(other))
    assert code == 1 and "not this checkout's stand-in" in text


# --- launches

def test_demo_ends_at_its_own_pace(fresh):
    environment = make_environment()
    for name in QUICK:
        environment.pop(name)
    runner, config = locate(fresh, "train", "demo")
    outcome = subprocess.Popen(["bash", runner, config], env=environment, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT)
    text = outcome.communicate()[0].decode()
    assert outcome.returncode == 0
    marks = ["=== Launch Command ===", "[shm] before cleanup:", "[shm] after cleanup:", "HEAD=",
             "[HEAD] starting ray head", " step:1 - "]
    places = [text.index(mark) for mark in marks]
    assert places == sorted(places)
    assert re.search(r"^HEAD=\S+  MASTER_ADDR=\S+  LOCAL=\S+  NNODES=1$", text, re.M)
    with open(find_value(text, "train log")) as log:
        steps = re.findall(
            "^\x1b\\[36m\\(TaskRunner pid=\\d+\\)\x1b\\[0m step:(\\d) - training/global_step:\\1 - .*"
            r"actor/lr:np\.float64\(1e-06\) - .*critic/rewards/mean:0\.\d+ - .*timing_s/step:1(?:\.0)?$", log.read(), re.M)
    assert steps == ["1", "2", "3", "4", "5", "6"]


@pytest.mark.parametrize("name, code, last", [
    ("two_nodes", 0, "toy trainer: done"),
    ("worker_exits", 0, "[WORKER] joined; head drives training. exiting worker script."),
    ("fails_late", 1, "RuntimeError: toy failure after step 1"),
    ("exit_zero_error", 0, "RuntimeError: toy failure after step 1"),
    ("off_repo_log", 0, "toy trainer: done"),
    ("crlf", 0, "toy trainer: done"),
    ("spaces_value", 0, "toy trainer: done"),
])
def test_launches_end_as_intended(fresh, name, code, last):
    outcome, text = run(fresh, "train", name)
    assert (outcome, text.rstrip().splitlines()[-1].endswith(last)) == (code, True)


def test_silent_exit_and_empty_log(fresh):
    code, text = run(fresh, "train", "silent_exit")
    assert code == 2 and "[shm] after cleanup:" in text and "HEAD=" not in text
    assert run(fresh, "train", "empty_log", TOY_SILENT_SEC="0.3") == (0, "")


def test_sick_numbers_and_checkpoints(fresh):
    text = run(fresh, "train", "sick", TOY_BAD="pearson,lr,reward,nan")[1]
    assert "actor/lr:np.float64(0.0)" in text and "critic/rewards/mean:0.0 " in text and "grad_norm:nan" in text
    assert "pearson_corr:0.75" in text
    assert run(fresh, "train", "checkpoints")[0] == 0
    folder = os.path.join(fresh, "checkpoints", "toy", "checkpoints")
    with open(os.path.join(folder, "latest_checkpointed_iteration.txt")) as latest:
        assert latest.read() == "3"


def test_interrupting_the_group_stops_the_whole_run(fresh):
    process = start(fresh, "train", "pinned", TOY_STEPS="1000", TOY_STEP_SEC="0.2")
    log = os.path.join(fresh, "logs", "pinned.log")
    try:
        wait_for(lambda: os.path.exists(log) and " step:1 " in open(log).read())
        os.kill(process.pid, signal.SIGINT)  # bash waits for its pipeline: no reaction
        time.sleep(0.5)
        assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(10) in (130, -signal.SIGINT)  # a shell shows both as 130
        wait_for(lambda: not read_group(process.pid))
    finally:
        end_group(process)
        process.stdout.close()


def test_interrupting_the_bring_up_stops_it_too(fresh):
    process = start(fresh, "train", "slow_bringup", TOY_BRINGUP_SEC="300")
    try:
        wait_for(lambda: any(words.startswith("sleep 300") for words in read_group(process.pid).values()))
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(10) in (130, -signal.SIGINT)
    finally:
        end_group(process)
        process.stdout.close()


def test_two_copies_run_side_by_side(tmp_path):
    roots = [build_checkout(tmp_path / ("copy %d of it" % number)) for number in (1, 2)]
    runs = [start(root, "train", "pinned") for root in roots]
    for root, process in zip(roots, runs):
        code, text = collect(process)
        assert code == 0 and find_value(text, "train log") == os.path.join(root, "logs", "pinned.log")
        with open(os.path.join(root, "logs", "pinned.log")) as log:
            assert log.read().count(" step:") == 3


def test_relaunch_truncates_the_earlier_log(fresh):
    log = os.path.join(fresh, "logs", "pinned.log")
    run(fresh, "train", "pinned")
    before = open(log).read()
    run(fresh, "train", "pinned", TOY_STEPS="1")
    assert len(open(log).read()) < len(before)


@pytest.mark.parametrize("kind", ["eval", "infer"])
def test_eval_and_infer_launch_and_leave_nothing_running(fresh, kind):
    port = find_free_port()
    process = start(fresh, kind, "demo_" + kind, VLLM_PORT=str(port))
    code = process.wait(30)
    text = process.stdout.read().decode()
    process.stdout.close()
    assert code == 0 and "[Preflight] vLLM port free: %d" % port in text
    with open(find_value(text, kind + " log")) as log:
        assert log.read().count("trial ") == 3
    assert read_group(process.pid) == {}


@pytest.mark.parametrize("kind", ["eval", "infer"])
def test_interrupting_eval_and_infer_ends_their_server(fresh, kind):
    port = find_free_port()
    process = start(fresh, kind, "demo_" + kind, VLLM_PORT=str(port), TOY_TRIALS="1000")
    try:
        wait_for(lambda: any("bin/harbor" in words or "eval_swerebench" in words
                             for words in read_group(process.pid).values()))
        servers = [words for words in read_group(process.pid).values() if "model_server" in words]
        # A server whose command line said so would be ended by every real runner on the host.
        assert len(servers) == 1 and "vllm serve" not in servers[0]
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(10) in (130, -signal.SIGINT)
        wait_for(lambda: not read_group(process.pid))
    finally:
        end_group(process)
        process.stdout.close()


@pytest.mark.parametrize("kind", ["eval", "infer"])
def test_a_taken_port_is_refused(fresh, kind):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen(1)
        port = holder.getsockname()[1]
        code, text = run(fresh, kind, "demo_" + kind, VLLM_PORT=str(port))
    assert code == 1 and "[FATAL] vLLM port already in use" in text


# --- the sick trainer

SKILL_KEYS = ["training/rollout_actor_probs_pearson_corr", "actor/lr", "actor/grad_norm", "critic/rewards/mean", "num_turns/mean",
              "trajectory_filter/reason/env_setup_failed", "trajectory_filter/reason/timeout", "trajectory_filter/invalid_ratio",
              "response_length/mean", "response_length/clip_ratio", "timing_s/step"]
VAL = "val-core/unknown/reward/mean@1"


def start_trainer(root, module="verl.trainer.main_ppo", **extra):
    knobs = {"TOY_STEPS": "8", "TOY_STEP_SEC": "0.01", "TOY_TEST_FREQ": "2", "PYTHONPATH": os.path.join(root, "stubs")}
    return subprocess.Popen([sys.executable, "-m", module], env=make_environment(**dict(knobs, **extra)), preexec_fn=os.setsid,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def play_trainer(root, **extra):
    """Exit status, its text, and the step lines as (step, {key: number}) in order, a validation alone among them."""
    code, text = collect(start_trainer(root, **extra))
    points = []
    for line in re.split("[\r\n]", text):
        match = re.match("\x1b\\[36m\\(\\w+ pid=\\d+\\)\x1b\\[0m step:(\\d+) - (.*)$", line)
        if match:
            pairs = re.findall(r"(?:^| - )([^: ]+):(?:np\.\w+\()?([-\w.]+)\)?(?= - |$)", match.group(2))
            points.append((int(match.group(1)), {key: float(value) for key, value in pairs}))
    return code, text, points


def read_column(points, key):
    return [values[key] for _, values in points if key in values]


@pytest.fixture(scope="module")
def healthy_trainer(checkout):
    return play_trainer(checkout)


# word: whether these columns look sick
SICK_NUMBERS = {
    "pearson": lambda column: min(column(SKILL_KEYS[0])) < 0.9,
    "lr": lambda column: column("actor/lr") == [0.0] * 8,
    "reward": lambda column: column("critic/rewards/mean") == column("num_turns/mean") == [0.0] * 8,
    "starve": lambda column: max(column("actor/grad_norm")[3:]) * 5 < min(column("actor/grad_norm")[:3])
    and column("response_length/mean")[-1] > 4 * column("response_length/mean")[0],
    "avalanche": lambda column: column(SKILL_KEYS[5])[2:6] == sorted(set(column(SKILL_KEYS[5])[2:6]))
    and column("critic/rewards/mean")[-1] < column("critic/rewards/mean")[2] / 3 and max(column(SKILL_KEYS[7])) > 0.9,
    "val": lambda column: set(column(VAL) + column("val-aux/num_turns/mean")) == {0.0}
    and min(column("critic/rewards/mean")) > 0.2,
    "collapse": lambda column: column("num_turns/mean")[-1] < 2 and column("critic/rewards/mean")[-1] < 0.05
    and max(column(SKILL_KEYS[5])) == 0,
    "nan": lambda column: [value != value for value in column("actor/grad_norm")] == [False] * 3 + [True] * 5,
    "slow": lambda column: column("timing_s/step") == [0.01] * 3 + [0.09] * 5,
}


def test_a_healthy_trainer_says_what_the_real_one_says(healthy_trainer):
    code, text, points = healthy_trainer
    assert code == 0 and "Total training steps: 8\n" in text and "Traceback" not in text
    assert [step for step, _ in points] == list(range(9))
    assert sorted(points[0][1]) == sorted([VAL] + ["val-aux/num_turns/" + name for name in ("min", "max", "mean")])
    for _, values in points[1:]:
        assert set(SKILL_KEYS) <= set(values)
    assert len(read_column(points, VAL)) == 5
    assert re.search("Progress:  37%\\|\u2588{3}\u258a {6}\\| 3/8 \\[00:00<00:00,  0\\.01s/it\\]\r.{,40} step:3 - ", text)


@pytest.mark.parametrize("word", sorted(SICK_NUMBERS))
def test_sick_words_that_show_in_the_numbers(checkout, healthy_trainer, word):
    code, _, points = play_trainer(checkout, TOY_SICK=word)
    assert code == 0 and SICK_NUMBERS[word](lambda key: read_column(points, key))
    assert not SICK_NUMBERS[word](lambda key: read_column(healthy_trainer[2], key))


@pytest.mark.parametrize("word, code, signs", [
    ("oom", 1, ["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate ", "[rank3]:[W", "(raylet)"]),
    ("nccl", 1, ["[Rank 3] Watchdog caught collective operation timeout", "[Rank 0] Watchdog", "SIGABRT", "ActorDiedError"]),
    ("trace", 1, ["AgentLoopWorker", "JSONDecodeError: Expecting value", "owner has died", "RayTaskError(JSONDecodeError)"]),
    ("early", 0, ["[FullyAsyncTrainer] Detected termination signal (None)"]),
    ("kill", -signal.SIGKILL, ["step:4 - training/global_step:4 - "]),
])
def test_sick_words_that_end_it(checkout, healthy_trainer, word, code, signs):
    ended, text, points = play_trainer(checkout, TOY_SICK=word, TOY_TEST_FREQ="0")
    assert ended == code and "toy trainer: done" not in text
    assert all("timing_s/step" in values for _, values in points[:3])
    places = [text.index(sign) for sign in signs]
    assert places == sorted(places)
    if word == "kill":
        assert "timing_s" not in points[3][1] and not text.endswith("\n") and "Traceback" not in text
    else:
        assert [step for step, _ in points] == [1, 2, 3]
        assert not any(sign in healthy_trainer[1] for sign in signs)


def test_sick_words_take_a_step_and_one_another(checkout):
    code, text, points = play_trainer(checkout, TOY_SICK="lr,restart", TOY_SICK_AT="5", TOY_TEST_FREQ="0")
    assert code == 0 and [step for step, _ in points] == [1, 2, 3, 4, 3, 4, 5, 6, 7, 8]
    assert [step for step, values in points if not values["actor/lr"]] == [5, 6, 7, 8]
    assert "Setting global step to 2\n" in text


def test_an_asynchronous_trainer_tells_its_validations_on_lines_of_their_own(checkout):
    points = play_trainer(checkout, module="verl.experimental.fully_async_policy.fully_async_main")[2]
    assert [step for step, values in points if VAL in values and len(values) == 4] == [0, 2, 4, 6, 8]
    assert len(read_column(points, "fully_async/count/dropped_stale_samples")) == 8


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_stalled_trainer_lives_until_it_is_told_to_end(checkout, number, code):
    process = start_trainer(checkout, TOY_SICK="stall", TOY_TEST_FREQ="0")
    try:
        lines = iter(process.stdout.readline, b"")
        next(line for line in lines if b" step:3 - " in line)
        next(line for line in lines if b"tokens/s" in line)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)  # fifty of its steps
        os.kill(process.pid, number)
        assert process.wait(10) == code and b" step:4 - " not in process.stdout.read()
    finally:
        end_group(process)
        process.stdout.close()


def test_a_sick_run_through_the_runner_is_long_enough_to_be_seen(fresh):
    code, text = run(fresh, "train", "pinned", TOY_SICK="kill", TOY_STEP_SEC="0.01")
    assert code == 137 and "/12 [" in text
    with open(os.path.join(fresh, "logs", "pinned.log"), encoding="utf-8") as log:
        assert "timing_s/step" not in log.read().split(" step:4 - ")[1]


# --- the board

def ask_board(port):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open("http://127.0.0.1:%d/api/runs" % port, timeout=5) as answer:
            return answer.getcode(), json.loads(answer.read().decode())
    except urllib.error.HTTPError as error:
        return error.code, None


def test_board_lists_skips_and_fails_on_a_dangling_link(fresh, tmp_path):
    logs, extra = os.path.join(fresh, "logs"), str(tmp_path / "extra")
    os.makedirs(logs)
    os.makedirs(extra)
    for name in ("a.log", "b.out", "a_vllm.log", "a_train_gpu_wandb.log", "x_server.out", "launch_1.log", "n.txt",
                 "old.log"):
        open(os.path.join(logs, name), "w").close()
    os.utime(os.path.join(logs, "old.log"), (0, 0))
    with open(os.path.join(extra, "long.log"), "w") as log:
        log.write("".join("step:%d - training/global_step:%d - x:1\n" % (step, step) for step in range(7)))
    os.utime(os.path.join(extra, "long.log"), (0, 0))
    port = find_free_port()
    board = subprocess.Popen(
        [sys.executable, "webui/server.py", "--port", str(port), "--log-dir", logs, "--extra-log-dir", extra],
        cwd=fresh, stdout=subprocess.PIPE)
    try:
        board.stdout.readline()
        code, runs = ask_board(port)
        assert code == 200 and [run["id"] for run in runs] == ["a", "b", "long"]
        os.symlink(os.path.join(logs, "nowhere"), os.path.join(logs, "c.log"))
        assert ask_board(port)[0] == 500
    finally:
        board.terminate()
        board.wait()
        board.stdout.close()


# --- the fake programs

def test_fake_nvidia_smi_answers_what_is_asked(tmp_path):
    gpus = [dict(index=0, uuid="GPU-a", bus_id="00000000:18:00.0", name="H200", used=61000, total=143771, util=97,
                 ecc=2),
            dict(index=1, uuid="GPU-b", used="[N/A]", total=143771)]
    program = write_nvidia_smi(tmp_path, gpus, [dict(uuid="GPU-a", pid=77, used=60990, name="VLLM::Worker_TP0")])

    def ask(*words):
        return subprocess.check_output([program] + list(words), env={"PATH": "/usr/bin:/bin"}).decode().splitlines()

    plain = "--format=csv,noheader,nounits"
    assert ask("--query-gpu=uuid,index,memory.used,pci.bus_id,ecc.errors.uncorrected.volatile.total", plain) == [
        "GPU-a, 0, 61000, 00000000:18:00.0, 2", "GPU-b, 1, [N/A], [N/A], [N/A]"]
    assert ask("--query-gpu=memory.used,utilization.gpu", "--format=csv") == [
        "memory.used, utilization.gpu", "61000 MiB, 97 %", "[N/A], [N/A]"]
    assert ask("--query-compute-apps=gpu_uuid,pid,used_memory,process_name", plain) == [
        "GPU-a, 77, 60990, VLLM::Worker_TP0"]
    assert ask("--list-gpus")[0] == "GPU 0: H200 (UUID: GPU-a)"


def test_fake_nvidia_smi_can_fail_and_say_more(tmp_path):
    program = write_nvidia_smi(tmp_path, exit_code=15, extra_stdout="it's lost\n")
    outcome = subprocess.Popen([program, "--query-gpu=index", "--format=csv,noheader"], stdout=subprocess.PIPE)
    assert outcome.communicate()[0] == b"it's lost\n" and outcome.returncode == 15


def test_fake_program_and_added_config(fresh, tmp_path):
    assert subprocess.check_output([write_fake_program(tmp_path / "bin", "df", "echo full\n")]) == b"full\n"
    path = add_config(fresh, "train", "mine", open(locate(fresh, "train", "pinned")[1]).read() + "# more\n")
    assert path == locate(fresh, "train", "mine")[1]
    assert dry_run(fresh, "train", "mine")[0] == 0
