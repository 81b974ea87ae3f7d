"""`probe`, `configs`, `nodes` (N5, N7, N9), `demo`, `explain`, `version`, and the help of each."""
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Dict

import pytest
from checkouts import add_config, build_checkout, write_fake_program, write_nvidia_smi
from e2e.scene import Scene

COMMANDS = ["check", "run", "status", "gate", "watch", "logs", "runs", "configs", "nodes", "probe", "export", "explain", "demo",
            "version"]


# ---- help

@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(run_pyz, tmp_path: Path, command: str) -> None:
    done = run_pyz([command, "--help"], cwd=tmp_path)
    assert done.returncode == 0 and done.stderr == ""
    assert re.search(r"^example:\n  rlrun (?:run .*&& rlrun )?%s\b" % command, done.stdout, re.M) and "--json" in done.stdout
    assert "--force" not in done.stdout and "--yes" not in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_unknown_option_is_exit_2(run_pyz, tmp_path: Path, command: str) -> None:
    done = run_pyz([command, "--no-such-option"], cwd=tmp_path)
    assert (
        done.returncode == 2
        and "--no-such-option" in done.stderr
        and "rlrun %s --help" % command in done.stderr
        and done.stdout == ""
    )


def test_overview_lists_commands_and_exit_codes(run_pyz) -> None:
    for words in (["--help"], ["-h"], ["help"]):
        done = run_pyz(words)
        assert done.returncode == 0 and all("rlrun %s" % command in done.stdout for command in COMMANDS)
        assert all(re.search(r"^ +%d  " % code, done.stdout, re.M) for code in (0, 1, 2, 3, 4, 5, 6, 70, 130))


# ---- probe

def test_probe_lines(scene: Scene) -> None:
    """LEVEL name detail, as the seed's probe has it."""
    found = scene.run(["probe"])
    assert found.exit == 0 and found.err == ""
    for line in found.out.rstrip("\n").split("\n"):
        assert re.match(r"(OK|WARN|INFO) +\S+ +\S", line), line
    assert re.search(r"^OK +job:none", found.out, re.M) and re.search(r"^INFO +host ", found.out, re.M)


def test_probe_tells_what_lives(scene: Scene) -> None:
    write_nvidia_smi(str(scene.fakes), [{"index": 0, "uuid": "GPU-0", "used": 50000, "total": 81559, "name": "H100", "ecc": 2}],
                     [{"uuid": "GPU-0", "pid": 999999, "used": 50000, "name": "python3"}])
    found = scene.run(
        ["probe"],
        before=(
            """act '{"argv": ["python3", "-m", "verl.trainer.main_ppo"], "listen": [["::1", 6379]]}'\n"""
            """act '{"argv": ["/opt/ray/raylet"]}'\nmkdir -p "$SCENE/l"\n"""
            """"$PYTHON" webui/server.py --port 8091 --log-dir "$SCENE/l" & await has_argv $! webui\n"""
        ),
    )
    assert found.exit == 0
    for pattern in (r"^WARN +job:trainer +pid \d+ \(root\)", r"^WARN +gpu:busy +GPU 0: 48.8 GiB, pid 999999, not visible",
                    r"^WARN +gpu:ecc", r"^INFO +port:6379 +::1 held by pid \d+", r"^INFO +board +pid=\d+ port=8091"):
        assert re.search(pattern, found.out, re.M), pattern + found.out


def test_probe_outside_of_a_checkout(scene: Scene) -> None:
    found = scene.run([], command='cd /; "$PYTHON" "$PYZ" probe')
    assert found.exit == 0 and re.search(r"^INFO +checkout +none", found.out, re.M)


def test_probe_of_a_root_that_is_none(run_pyz) -> None:
    assert run_pyz(["probe", "--root", "/"]).returncode == 5


def test_probe_escapes_control_characters(scene: Scene) -> None:
    found = scene.run(["probe"], before="""act '{"argv": ["ray::Worker\\u001b[2J\\rx\\ny"]}'""")
    assert "job:orphan" in found.out and not set("\x1b\r") & set(found.out)
    assert all(re.match(r"(OK|WARN|INFO) ", line) for line in found.out.rstrip("\n").split("\n"))


# ---- configs

def test_configs_are_listed_by_kind(run_pyz, shared_checkout: str) -> None:
    done = run_pyz(["configs"], cwd=shared_checkout)
    lines = done.stdout.rstrip("\n").split("\n")
    assert done.returncode == 0 and not any("_template" in line for line in lines)
    assert [line.split()[0] for line in lines] == sorted(
        (line.split()[0] for line in lines), key=["train", "eval", "infer"].index
    )
    only = run_pyz(["configs", "--kind", "infer"], cwd=shared_checkout).stdout
    assert only.split() == ["infer", "scripts/infer/configs/demo_infer.env"]


def test_configs_with_odd_names(run_pyz, tmp_path: Path) -> None:
    root = build_checkout(tmp_path / "checkout")
    for name in ("two words", "line\nbreak", "esc\x1b[31m", "not-utf8-\udcff", "größe"):
        add_config(root, "train", name, "X=1\n")
    done = run_pyz(["configs"], cwd=root)
    assert done.returncode == 0 and "\x1b" not in done.stdout
    assert all(line.split()[0] in ("train", "eval", "infer") for line in done.stdout.rstrip("\n").split("\n"))


def test_configs_of_an_empty_checkout(run_pyz, tmp_path: Path) -> None:
    (tmp_path / "scripts/lib").mkdir(parents=True)
    (tmp_path / "scripts/lib/preflight.sh").write_text("")
    done = run_pyz(["configs"], cwd=tmp_path)
    assert done.returncode == 0 and done.stdout == "" and "no configs" in done.stderr


# ---- nodes

def programs(scene: Scene, first: str, hosts: Dict[str, str]) -> None:
    write_fake_program(str(scene.fakes), "hostname", 'case "$1" in -I) echo "%s" ;; -s) echo "node one" ;; esac' % first)
    lines = "".join('%s) echo "%s node1" ;; ' % pair for pair in hosts.items())
    write_fake_program(str(scene.fakes), "getent", 'case "$2" in %s *) exit 2 ;; esac' % lines)


def node_line(out: str) -> str:
    return next(line.strip() for line in out.split("\n") if line.strip().startswith("cd "))


def test_nodes_block(scene: Scene) -> None:
    programs(scene, "10.0.0.5 172.17.0.1", {"10.0.0.5": "10.0.0.5"})
    found = scene.run(["nodes", "two_nodes"])
    assert found.exit == 0 and "run the command below once on every node" in found.out and "waits for all 2 nodes" in found.out
    line = node_line(found.out)
    assert line.startswith("cd %s && mkdir -p logs && MASTER_ADDR=10.0.0.5 nohup setsid bash scripts/train/train.sh "
                           "scripts/train/configs/two_nodes.env > logs/launch_" % scene.root)
    assert line.endswith("_$(hostname -s).log 2>&1 < /dev/null &")


def test_nodes_line_runs_in_a_plain_sh(scene: Scene, tmp_path: Path) -> None:
    """Pasted on a node whose checkout and config have spaces and quotes in their paths."""
    root = build_checkout(tmp_path / "it's a $HOME")
    text = Path(root, "scripts/train/configs/two_nodes.env").read_text()
    add_config(root, "train", 'odd "name" & more', text)
    programs(scene, "10.0.0.5", {"10.0.0.5": "10.0.0.5"})
    line = node_line(scene.run(["nodes", 'scripts/train/configs/odd "name" & more.env'], root=root).out)
    Path(root, "scripts/train/train.sh").write_text('printf "%s|" "$MASTER_ADDR" "$@" >got\n')
    subprocess.run(["sh", "-c", line + "\nwait"], check=True, env={"PATH": "/usr/bin:/bin"}, stdout=subprocess.DEVNULL)
    assert Path(root, "got").read_text() == '10.0.0.5|scripts/train/configs/odd "name" & more.env|'


@pytest.mark.parametrize("config", ["pinned", "demo_eval"])
def test_nodes_of_a_single_node(scene: Scene, config: str) -> None:
    found = scene.run(["nodes", config])
    assert found.exit == 0 and "one node" in found.out and "cd " not in found.out


def test_nodes_takes_the_configured_head(scene: Scene) -> None:
    programs(scene, "10.0.0.5", {"node7": "10.0.0.7"})
    assert "MASTER_ADDR=node7 " in node_line(scene.run(["nodes", "two_nodes"], env={"MASTER_ADDR": "node7"}).out)


@pytest.mark.parametrize("first, env, hosts, words", [
    ("127.0.0.1", {}, {"127.0.0.1": "127.0.0.1"}, "loopback"),
    ("", {}, {}, "unknown"),
    ("10.0.0.5", {"MASTER_ADDR": "node1"}, {"node1": "127.0.1.1"}, "loopback"),  # N7
    ("10.0.0.5", {"MASTER_ADDR": "localhost"}, {"localhost": "::1"}, "loopback"),
    ("10.0.0.5", {"MASTER_ADDR": "::1"}, {"::1": "::1"}, "loopback"),
    ("10.0.0.5", {"MASTER_ADDR": "fd00::5"}, {"fd00::5": "fd00::5"}, "brackets"),  # N9
    ("fd00::5", {}, {"fd00::5": "fd00::5"}, "brackets"),
], ids=["loopback", "none", "N7_name_of_loopback", "N7_localhost", "N7_loopback_v6", "N9_configured", "N9_own"])
def test_nodes_gives_no_useless_address(scene: Scene, first: str, env: Dict[str, str], hosts: Dict[str, str], words: str) -> None:
    programs(scene, first, hosts)
    found = scene.run(["nodes", "two_nodes"], env=env)
    assert found.exit == 5 and words in found.out and "MASTER_ADDR" in found.out and "nohup" not in found.out
    shape = scene.run(["nodes", "two_nodes", "--json"], env=env).shape
    assert shape["line"] is None and shape["warning"] and shape["others"] == 1


def test_N5_first_address_is_the_bridge_s(scene: Scene) -> None:
    programs(scene, "172.17.0.1 10.0.0.5", {"172.17.0.1": "172.17.0.1"})
    found = scene.run(["nodes", "two_nodes"], before="ip addr add 10.0.0.5/24 dev lo && ip route add default dev lo src 10.0.0.5")
    assert "172.17.0.1" in found.out and ("Docker" in found.out or "default route" in found.out)


def test_nodes_of_a_config_that_dies(scene: Scene) -> None:
    found = scene.run(["nodes", "died_early"])
    assert found.exit == 1 and " check scripts/train/configs/died_early.env" in found.err and found.out == ""


# ---- demo, version, explain

TOYS = {"lego-rl": ("scripts/train/train.sh", "demo"), "prime-rl": (".venv/bin/rl", "reverse-text/rl")}


@pytest.mark.parametrize("stack", TOYS)
def test_demo_unpacks_what_it_says(run_pyz, tmp_path: Path, stack: str) -> None:
    done = run_pyz(["demo", tmp_path / "toy", "--stack", stack])
    assert done.returncode == 0 and str(tmp_path / "toy") in done.stdout
    again = run_pyz(["demo", tmp_path / "toy"])
    assert again.returncode == 2 and "not empty" in again.stderr
    program, config = TOYS[stack]
    assert os.access(str(tmp_path / "toy" / program), os.X_OK)
    check = run_pyz(["check", config, "-q"], cwd=tmp_path / "toy", is_boxed=True)
    assert check.returncode == 0 and "YES" in check.stdout


def test_demo_of_an_unknown_system(run_pyz, tmp_path: Path) -> None:
    done = run_pyz(["demo", tmp_path / "toy", "--stack", "verl"])
    assert done.returncode == 2 and "There are: Lego-RL, prime-rl" in done.stderr and not (tmp_path / "toy").exists()


@pytest.mark.parametrize("stack", TOYS)
def test_demo_names_commands_that_can_be_pasted(run_pyz, tmp_path: Path, stack: str) -> None:
    done = run_pyz(["demo", "--stack", stack, tmp_path / "two words"])
    lines = [line.strip() for line in done.stdout.split("\n")]
    cd = next(line for line in lines if line.startswith("cd "))
    assert shlex.split(cd)[1] == str(tmp_path / "two words")
    check = next(line for line in lines if " check " in line).split("#")[0]
    ran = subprocess.run(
        ["bash", "-c", "%s && %s -q" % (cd, check)],
        env={"PATH": "%s:/usr/bin:/bin" % os.path.dirname(sys.executable)},
        stdout=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    )
    assert "SAFE TO RUN" in ran.stdout


@pytest.mark.parametrize("target, code", [("/proc/nope", 5), ("/dev/null", 5), ("/etc", 2)])
def test_demo_where_it_can_not(run_pyz, target: str, code: int) -> None:
    done = run_pyz(["demo", target])
    assert done.returncode == code and done.stderr.startswith("rlrun: ") and "Traceback" not in done.stderr


def test_demo_without_a_folder(run_pyz, clean_env: Dict[str, str], tmp_path: Path) -> None:
    clean_env["TMPDIR"] = str(tmp_path)
    done = run_pyz(["demo"])
    assert done.returncode == 0 and str(tmp_path) in done.stdout and len(list(tmp_path.glob("rlrun-demo-*"))) == 1


def test_demo_without_any_temporary_folder(scene: Scene) -> None:
    found = scene.run(["demo"], before="settle\nmount -o remount,ro /tmp; mount -t tmpfs -o ro tmpfs /var/tmp; cd /proc")
    assert found.exit == 5 and "can't unpack" in found.err and "a bug" not in found.err


def test_version(run_pyz) -> None:
    for words in (["version"], ["--version"]):
        done = run_pyz(words)
        assert done.returncode == 0 and re.search(r"\b[0-9a-f]{64}\b", done.stdout) and "Python" in done.stdout


@pytest.mark.parametrize(
    "name",
    [
        "preflight:fatal",
        "preflight:died",
        "job:running",
        "gpu:foreign",
        "port:conflict",
        "import:missing",
        "sweep:foreign",
        "0",
        "1",
        "2",
        "3",
        "4",
        "5",
        "6",
        "70",
        "130",
    ],
)
def test_explain_knows_what_blocks_and_every_exit(run_pyz, tmp_path: Path, name: str) -> None:
    done = run_pyz(["explain", name], cwd=tmp_path)
    assert done.returncode == 0 and len(done.stdout) > 80 and done.stderr == ""


def test_explain_knows_every_name_that_a_check_shows(scene: Scene, run_pyz) -> None:
    names = set()
    for config in ("pinned", "crlf", "secret", "kv_heads", "demo_eval", "fatal", "two_nodes", "demo"):
        names |= {check["name"] for check in scene.check(config).shape["checks"]}
    listed = json.loads(run_pyz(["explain", "--json"]).stdout)["names"]
    unknown = [name for name in sorted(names.difference(listed)) if run_pyz(["explain", name]).returncode != 0]
    assert len(names) > 20 and unknown == []


def test_explain_suggests(run_pyz) -> None:
    done = run_pyz(["explain", "gpu:foriegn"])
    assert done.returncode == 2 and "gpu:foreign" in done.stderr


# ---- runs, without any

def test_runs_of_a_checkout_without_records(run_pyz, shared_checkout: str) -> None:
    done = run_pyz(["runs"], cwd=shared_checkout)
    assert done.returncode == 0 and done.stdout == "" and "no launch is recorded" in done.stderr


def test_runs_is_not_upset_by_rubbish(run_pyz, tmp_path: Path) -> None:
    root = build_checkout(tmp_path / "checkout")
    folder = Path(root, "logs/rlrun")
    for name, content in (
        ("a", ""),
        ("b", "{"),
        ("c", "[]"),
        ("d", '{"schema": 99}'),
        ("e", "null"),
        ("f", '{"runner": 7, "exit": "x"}'),
    ):
        (folder / name).mkdir(parents=True)
        (folder / name / "record.json").write_text(content)
    (folder / "file").write_text("x")
    for name in ("pipe", "log"):
        (folder / name).mkdir()
    os.mkfifo(str(folder / "pipe/record.json"))
    os.mkfifo(str(folder / "e.log"))
    (folder / "log/record.json").write_text(json.dumps(
        {"project": "toy", "kind": "train", "train_log": str(folder / "e.log"), "parts": None, "runner": {"pid": 1e400}}))
    done = run_pyz(["run", "pinned"], cwd=root, is_boxed=True)
    assert done.returncode == 3 and "hours/step unknown" in done.stderr
    for words in (["runs"], ["runs", "--json"], ["runs", "d"], ["runs", "f", "--json"]):
        done = run_pyz(words, cwd=root)
        assert done.returncode in (0, 2) and "Traceback" not in done.stderr and "rlrun: a bug" not in done.stderr, done.stderr
