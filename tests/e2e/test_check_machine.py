"""`check` on a machine where something lives: jobs (P), the sweep, GPUs (G), ports (N), Ray (R), disks, limits, session."""
import json
import resource
from typing import Any, Dict, List, Sequence, Tuple

import pytest
from checkouts import write_fake_program, write_nvidia_smi
from e2e.scene import Scene, details, fixes

MODULE = "verl.trainer.main_ppo"
ASYNC_MODULE = "verl.experimental.fully_async_policy.fully_async_main"

# A checkout of somebody's in which a launch lives on: its runner sleeps in bash itself and starts nothing.
OTHER = r"""
other=/srv/other
mountpoint -q /srv || mount -t tmpfs tmpfs /srv
mkdir -p $other/scripts/lib $other/scripts/train $other/scripts/eval $other/scripts/infer
touch $other/scripts/lib/preflight.sh
mkfifo /srv/never
for kind in train eval infer; do
    printf '#!/usr/bin/env bash\n# knows --dry-run\nread -r _ </srv/never\n' >$other/scripts/$kind/$kind.sh
    chmod 755 $other/scripts/$kind/$kind.sh
done
chmod -R a+rX /srv
"""


def act(**spec: Any) -> str:
    """The line of a scene that starts an actor of these looks."""
    return "act '%s'\n" % json.dumps(spec).replace("'", "'\\''")


def start(words: str, shows: str) -> str:
    """The lines of a scene that start a real program and wait until its command line shows a word."""
    return "%s </dev/null >/dev/null 2>&1 &\nawait has_argv $! '%s'\n" % (words, shows)


def share(table: Dict[str, str], size: int = 10, alone: Sequence[str] = ()) -> List[List[str]]:
    """The names of a table in groups that live on one machine together: a check costs more than what it looks at."""
    names = [name for name in sorted(table) if name not in alone]
    return [names[first:first + size] for first in range(0, len(names), size)] + [[name] for name in alone]


# ---- is a run in flight?

def test_quiet_machine(scene: Scene) -> None:
    found = scene.check()
    assert (found.exit, found.blocking) == (0, [])
    assert details(found, "job:none") == "none" and "job:orphan" not in found.warnings


BYSTANDERS: Dict[str, str] = {
    "P1_tail_of_a_log": 'touch "$SCENE/verl.trainer.main_ppo.log"\n'
    + start('tail -f "$SCENE/verl.trainer.main_ppo.log"', "main_ppo.log"),
    "P1_tail_of_the_runner": start('tail -F "$ROOT/scripts/train/train.sh"', "train.sh"),
    "grep": start("grep -r -- 'python3 -m verl.trainer.main_ppo' /dev/stdin <(sleep 600)", "main_ppo"),
    "P3_text_of_bash": start(
        "bash -c ': python3 -m verl.trainer.main_ppo scripts/train/train.sh; read -r _ < <(sleep 600); true'", "main_ppo"
    ),
    "P3_remote_pgrep": act(argv=["sshd: alice@notty"])
    + act(argv=["bash", "-c", "pgrep -f 'scripts/train/train.sh|main_ppo' && echo RUNNING"]),
    "P3_login_shell": act(argv=["-bash", "-lc", "cd /x && bash scripts/train/train.sh --dry-run y; sleep 9"]),
    "text_of_python": start("python3 -c 'import time; time.sleep(600)' -m verl.trainer.main_ppo", "main_ppo"),
    "script_that_takes_it_as_argument": "echo 'import time; time.sleep(600)' >$SCENE/wait.py\n"
    + start("python3 $SCENE/wait.py -m verl.trainer.main_ppo scripts/train/train.sh", "main_ppo"),
    "bash_script_that_takes_it_as_argument": 'echo "read -r _ < <(sleep 600)" >$SCENE/wait.sh\n'
    + start("bash $SCENE/wait.sh bash scripts/train/train.sh", "train.sh"),
    "vim": act(argv=["vim", "scripts/train/train.sh"], comm="vim") + act(argv=["vim", "-R", "/x/verl/trainer/main_ppo.py"]),
    "emacs_and_nano": act(argv=["emacs", "-nw", "scripts/eval/eval.sh"]) + act(argv=["nano", "/x/scripts/infer/infer.sh"]),
    "less": act(argv=["less", "+F", "logs/scripts/train/train.sh"], comm="less"),
    "watch": act(argv=["watch", "-n", "5", "pgrep", "-af", "fully_async_main"], comm="watch"),
    "tmux": act(argv=["tmux", "new", "-s", "run", "bash scripts/train/train.sh configs/x.env"], comm="tmux: server"),
    "ssh": act(argv=["ssh", "node7", "cd /x && nohup setsid bash scripts/train/train.sh configs/x.env &"], comm="ssh"),
    "rsync_and_scp": act(argv=["rsync", "-a", "scripts/train/train.sh", "node7:/x/scripts/train/train.sh"]),
    "git": act(argv=["git", "log", "-p", "--", "scripts/train/train.sh"]),
    "docker_client": act(argv=["docker", "exec", "-it", "box", "bash", "scripts/train/train.sh", "x.env"]),
    "editor_server": act(argv=["node", "/opt/pyright/langserver.js", "verl/trainer/main_ppo.py"]),
    "linter_of_the_trainer": act(argv=["python3", "-m", "pylint", "verl/trainer/main_ppo.py"]),
    "debugger_help": act(argv=["python3", "-m", "pydoc", "verl.trainer.main_ppo"]),
    "another_module": act(argv=["python3", "-m", "verl.trainer.main_ppo_eval"]),
    "runner_of_another_project": "mkdir -p $SCENE/train; echo 'read -r _ < <(sleep 600)' >$SCENE/train/train.sh\n"
    + start("bash $SCENE/train/train.sh", "train.sh")
    + "cd $SCENE\n"
    + start("bash train/train.sh x", "train.sh x")
    + 'cd "$ROOT"\n',
    "runner_of_another_project_of_the_same_layout": "mkdir -p $SCENE/scripts/train\n"
    + "echo 'read -r _ < <(sleep 600)' >$SCENE/scripts/train/train.sh\n"
    + start("bash $SCENE/scripts/train/train.sh x", "train.sh x"),
    "another_runner": act(argv=["bash", "/x/scripts/train/pretrain.sh"]) + act(argv=["bash", "scripts/train/train.sh.bak"]),
    "P5_tail_of_a_trainer": act(argv=["tail", "-F", "/x/outputs/logs/PRL::Trainer/trainer.log"]),
    "title_that_only_mentions_it": act(title="sshd: PRL::Trainer [priv]") + act(title="tmux: bash scripts/train/train.sh"),
    "P11_zombie_worker": act(argv=["sleep", "600"], zombie={"comm": "VLLM::EngineCor", "argv": ["VLLM::EngineCore_DP0"]}),
    "P11_zombie_trainer": act(argv=["sleep", "600"], zombie={"comm": "python3", "argv": ["python3", "-m", MODULE]}),
    "P11_zombie_of_prime": act(argv=["sleep", "600"], zombie={"comm": "PRL::Trainer", "title": "PRL::Trainer"}),
    "P13_odd_names": act(comm="a) b) S 1 (c", argv=["sleep", "1"])
    + act(comm=") ", argv=["sleep", "1"])
    + act(comm="x\n(y", argv=["sleep", "1"]),
    "not_utf8": r"""bash -c $'exec -a "caf\xe9 \xff" sleep 600' & await has_argv $! 600""" + "\n",
    "empty_command_line": act(comm="python3", title=""),
    "idle_ray_worker": act(title="ray::IDLE"),
    "rl_of_another_program": act(argv=["python3", "/opt/v/bin/rl"]) + act(argv=["python3", "/opt/v/bin/rl", "--fast"])
    + act(argv=["rl"]) + act(argv=["python3", "wrapper.py", "rl", "@", "rl.toml"]),
    "words_of_prime": act(argv=["vim", "rl.toml"]) + act(argv=["bash", "-c", "uv run rl @ rl.toml; sleep 9"])
    + act(argv=["tail", "-F", "prime_rl.trainer.rl.train"]) + act(argv=["ssh", "node7", "uv", "run", "rl", "@", "rl.toml"]),
    "other_commands_of_uv": act(argv=["uv", "run", "pytest", "@", "rl.toml"]) + act(argv=["uv", "pip", "install", "rl"])
    + act(argv=["uv", "add", "rl", "@", "rl.toml"]) + act(argv=["uv", "run", "--with", "rl", "pytest", "@", "rl.toml"]),
    "dry_run_of_prime": act(argv=["uv", "run", "rl", "@", "rl.toml", "--dry-run"])
    + act(argv=["/v/bin/python3", "/v/bin/rl", "@", "rl.toml", "--dry-run", "--output-dir", "/tmp/x"]),
    "syntax_check_of_the_runner": act(argv=["bash", "-n", "/x/scripts/train/train.sh"]),
    "help_of_the_runner": act(argv=["bash", "/x/scripts/train/train.sh", "--help"]),
}


@pytest.mark.parametrize("names", share(BYSTANDERS), ids=lambda names: names[0] + "_and_so_on")
def test_bystander_is_no_run(scene: Scene, names: List[str]) -> None:
    found = scene.check(before="".join('cd "$ROOT"\n' + BYSTANDERS[name] for name in names) + 'cd "$ROOT"\n')
    assert "job:running" not in found.blocking, details(found, "job:running")
    assert "job:orphan" not in found.warnings, details(found, "job:orphan")


def test_P3_own_ancestors_are_no_run(scene: Scene) -> None:
    """A shell that waits for rlrun and has the words in its text; a runner that calls rlrun itself."""
    found = scene.run([], command=(
        """bash -c 'echo fully_async_main verl.trainer.main_ppo scripts/train/train.sh >/dev/null; "$PYTHON" "$PYZ" """
        """check pinned --json; code=$?; true; exit $code'"""))
    assert (found.exit, found.blocking) == (0, [])
    assert "sweep:own" in found.warnings  # but the launch would kill that shell


def test_own_ancestor_that_is_a_runner(scene: Scene) -> None:
    found = scene.run([], before=OTHER, command=(
        r"""printf '"$PYTHON" "$PYZ" check pinned --json; code=$?; exit $code' >$other/scripts/train/train.sh; """
        r"""bash $other/scripts/train/train.sh; exit $?"""))
    assert (found.exit, found.blocking) == (0, [])


PACKAGE = r"""
mkdir -p /srv/run/verl/trainer /srv/run/verl/experimental/fully_async_policy
for file in trainer/main_ppo.py experimental/fully_async_policy/fully_async_main.py; do
    echo 'import time; time.sleep(600)' >/srv/run/verl/$file
done
cd /srv/run
"""

RUNS: Dict[str, str] = {
    "module": PACKAGE + start("python3 -m verl.trainer.main_ppo a=b", "a=b"),
    "module_with_options_before": PACKAGE + start("python3 -u -X dev -W ignore -m verl.trainer.main_ppo a=b", "a=b"),
    "module_glued_to_its_option": PACKAGE + start("python3 -Bum verl.trainer.main_ppo", "main_ppo"),
    "async_module": PACKAGE + start("python3 -m %s" % ASYNC_MODULE, "fully_async_main"),
    "script_by_path": PACKAGE + start("python3 -O /srv/run/verl/trainer/main_ppo.py", "main_ppo"),
    "script_from_its_folder": PACKAGE + "cd verl/trainer\n" + start("python3 main_ppo.py", "main_ppo"),
    "trainer_by_another_name": PACKAGE
    + "ln -s /usr/bin/python3 /srv/run/python3.99\n"
    + start("/srv/run/python3.99 -m verl.trainer.main_ppo", "main_ppo"),
    "P9_title_in_one_string": act(title="python3 -m verl.trainer.main_ppo a=b" + " " * 40),
    "P9_title_with_a_path": act(title="/opt/venv/bin/python3.11 -u -m %s trainer.nnodes=1" % ASYNC_MODULE),
    "P5_new_prefix": act(title="PRL::Trainer"),
    "P5_old_prefix": act(title="PRIME-RL::Orchestrator"),
    "P5_launcher": act(argv=["PRL::Launcher"], comm="PRL::Launcher"),
    "P5_ranks": act(title="PRL::Trainer[rank0]"),
    "P5_before_the_title": act(argv=["/v/bin/python3", "/v/bin/rl", "@", "rl.toml"]),
    "P5_uv": act(argv=["uv", "run", "--no-sync", "--env-file", "x.env", "-p", "3.12", "rl", "@", "rl.toml"]),
    "P5_torchrun": act(argv=["/v/bin/python3", "/v/bin/torchrun", "--nproc-per-node", "8", "-m", "prime_rl.trainer.rl.train"]),
    "P5_rank": act(argv=["/v/bin/python3", "-u", "-m", "prime_rl.trainer.rl.train", "@", "trainer.json"]),
    "P7_short_name_only": act(comm="PRIME-RL::Train", title=""),
    "runner_absolute": start("bash $other/scripts/train/train.sh x.env", "x.env"),
    "runner_relative": "cd $other\n" + start("bash scripts/train/train.sh x.env", "x.env"),
    "runner_from_its_folder": "cd $other/scripts/train\n" + start("bash train.sh x.env", "x.env"),
    "runner_from_its_folder_with_dot": "cd $other/scripts/train\n" + start("bash ./train.sh x.env", "x.env"),
    "runner_from_beside": "cd $other/scripts/eval\n" + start("bash ../train/train.sh x.env", "x.env"),
    "runner_from_scripts": "cd $other/scripts\n" + start("bash ./eval/eval.sh x.env", "x.env"),
    "runner_by_its_first_line": "cd $other\n" + start("./scripts/infer/infer.sh x.env", "x.env"),
    "runner_through_a_linked_checkout": "ln -s $other /srv/link\n"
    + start("bash /srv/link/scripts/train/train.sh x.env", "x.env"),
    "runner_through_a_link_of_another_name": "ln -s $other/scripts/train/train.sh /srv/go\n"
    + start("bash /srv/go x.env", "x.env"),
    "runner_traced": "cd $other\n" + start("bash -x scripts/train/train.sh x.env 2>/dev/null", "x.env"),
    "runner_with_shell_options": "cd $other\n" + start("bash --norc -eu -o pipefail scripts/train/train.sh x.env", "x.env"),
    "runner_by_sh": "cd $other\n" + start("sh scripts/eval/eval.sh x.env", "x.env"),
    "runner_by_full_path_of_bash": "cd $other\n" + start("/bin/bash -- scripts/train/train.sh x.env", "x.env"),
    "runner_below_timeout": "cd $other\n" + start("timeout 600 bash scripts/train/train.sh timed.env", "timed.env")
    + "await pgrep -f '^bash scripts/train/train.sh timed.env' >/dev/null\n",
    "runner_below_setsid": "cd $other\nnohup setsid bash scripts/train/train.sh away.env >/dev/null 2>&1 </dev/null &\n"
    "await pgrep -f '^bash scripts/train/train.sh away.env' >/dev/null\n",
    "runner_stopped": "cd $other\n" + start("bash scripts/train/train.sh x.env", "x.env") + "kill -STOP $!\n",
    "runner_whose_checkout_is_gone": "cd $other\n" + start("bash scripts/train/train.sh x.env", "x.env")
    + "await test -e /proc/$!/fd/255\ncd /\nrm -r $other\n",  # bash has opened its script
    "runner_of_another_user": "cd $other\n" + start("$NOBODY bash scripts/train/train.sh x.env", "x.env"),
    "runner_with_DRY_RUN_that_the_script_resets": "cd $other\n"
    + start("env DRY_RUN=1 bash scripts/train/train.sh x.env", "x.env"),
    "runner_that_only_has_a_flag_in_its_config_name": "cd $other\n"
    + start("bash scripts/train/train.sh my--dry-run.env", "my--dry"),
    "runner_in_a_container": "cd $other\nunshare --pid --fork --mount-proc bash scripts/train/train.sh boxed.env </dev/null &\n"
    "await pgrep -f '^bash scripts/train/train.sh boxed.env' >/dev/null\n",
}


# Which processes a table's entry has started, for the test: its name, the pid and the pids below it.
STARTED = r"""echo "started %s" "$!" $(pgrep -P "$!") >&2""" + "\n"


@pytest.mark.parametrize("names", share(RUNS, alone=["runner_whose_checkout_is_gone"]), ids=lambda names: names[0] + "_and_so_on")
def test_run_in_flight_blocks(scene: Scene, names: List[str]) -> None:
    found = scene.check(before=OTHER + "".join('cd "$ROOT"\n' + RUNS[name] + STARTED % name for name in names) + 'cd "$ROOT"\n')
    assert found.exit == 1 and found.shape["verdict"] == "NO"
    assert "job:running" in found.blocking, found.shape["checks"]
    told = [(check["detail"], check["fix"]) for check in found.shape["checks"] if check["name"] == "job:running"]
    started = {words[1]: words[2:] for words in map(str.split, found.err.splitlines()) if words[:1] == ["started"]}
    assert sorted(started) == names, found.err
    for name in names:  # each is a run by itself
        runs = [run for run in told if run[0].startswith(tuple("pid %s (" % pid for pid in started[name]))]
        assert len(runs) == 1 and "kill -" in runs[0][1], "%s %s among %s" % (name, started[name], told)
    assert len(told) == len(names), told


def test_run_is_told_with_pid_user_and_command(scene: Scene) -> None:
    found = scene.check(before=OTHER + RUNS["runner_of_another_user"] + 'cd "$ROOT"; echo "$!" >&2\n')
    pid = found.err.split()[0]
    told = details(found, "job:running")
    assert "pid %s (nobody)" % pid in told and "bash scripts/train/train.sh x.env" in told and "lego train runner" in told


def test_run_hinders_every_kind(scene: Scene) -> None:
    """Whatever lives, the launch takes the whole box."""
    for config, lives in (("demo_eval", RUNS["module"]), ("demo_infer", RUNS["P5_new_prefix"]),
                          ("pinned", RUNS["runner_from_scripts"])):
        assert "job:running" in scene.check(config, before="umount /srv 2>/dev/null\n" + OTHER + lives + '\ncd "$ROOT"').blocking


REHEARSALS: Dict[str, str] = {
    "flag": "bash scripts/train/train.sh --dry-run x.env",
    "flag_preflight_only": "bash -x scripts/train/train.sh --preflight-only x.env",
    "flag_structure_only": "bash scripts/train/train.sh --structure-only x.env",
    "environment": "env PREFLIGHT_ONLY=1 bash scripts/train/train.sh x.env",
    "environment_of_an_old_runner": "env DRY_RUN=1 bash $old/scripts/eval/eval.sh x.env",
}
OLD = r"""
old=/srv/old
mkdir -p $old/scripts/eval
printf 'if [ "${DRY_RUN:-0}" = 1 ]; then read -r _ </srv/never; fi\n' >$old/scripts/eval/eval.sh
"""


@pytest.mark.parametrize("name", sorted(REHEARSALS))
def test_dry_run_in_flight_is_no_run(scene: Scene, name: str) -> None:
    found = scene.check(before=OTHER + OLD + "cd $other\n" + start(REHEARSALS[name], "x.env") + 'cd "$ROOT"')
    assert (found.exit, found.blocking) == (0, [])


def test_real_dry_run_in_flight_is_no_run(scene: Scene) -> None:
    found = scene.check(before=start("bash scripts/train/train.sh --dry-run scripts/train/configs/hang.env", "hang.env"))
    assert (found.exit, found.blocking) == (0, [])


def test_P7_worker_without_a_runner_is_an_orphan(scene: Scene) -> None:
    found = scene.check("demo_infer", before=act(comm="VLLM::EngineCor", argv=["VLLM::EngineCore_DP0"]))
    assert found.blocking == [] and "job:orphan" in found.warnings
    assert "VLLM::EngineCore_DP0" in details(found, "job:orphan")


def test_P7_worker_by_its_short_name_alone(scene: Scene) -> None:
    found = scene.check("demo_infer", before=act(comm="VLLM::EngineCor", title=""))
    assert found.blocking == [] and "[VLLM::EngineCor]" in details(found, "job:orphan")


@pytest.mark.parametrize("words", [["/opt/venv/bin/python3", "/opt/venv/bin/vllm", "serve", "m"], ["vllm", "serve", "m"],
                                   ["VLLM::Worker_TP0"], ["ray::WorkerDict.update_actor"]])
def test_bare_serving_job_is_no_run_of_ours(scene: Scene, words: List[str]) -> None:
    found = scene.check("demo_infer", before=act(argv=words))
    assert found.blocking == [] and "job:orphan" in found.warnings


def test_P13_tree_of_a_process_with_parentheses_in_its_name(scene: Scene) -> None:
    """Runner and trainer are one run of two processes, and the trainer's GPU memory is the run's."""
    write_nvidia_smi(str(scene.fakes), [gpu(0, used=30000)], [])
    before = act(argv=["bash", "scripts/train/train.sh", "x.env"], comm="x) S 1 (y",
                 child={"argv": ["python3", "-m", MODULE], "comm": "a) b) Z 1 ("})
    found = scene.check(before=before)
    assert details(found, "job:running").count("\n") == 0 and "2 processes" in details(found, "job:running")


def test_hidepid_is_said(scene: Scene) -> None:
    found = scene.check(before="mount -o remount,hidepid=2 /proc\nsettle\n" + act(argv=["python3", "-m", MODULE]),
                        prefix="$NOBODY")
    assert (found.exit, found.blocking) == (0, []) and "job:hidden" in found.warnings
    assert "hidepid" in details(found, "job:hidden")


def test_hidepid_hides_nothing_from_root(scene: Scene) -> None:
    found = scene.check(before="mount -o remount,hidepid=2 /proc\nsettle\nAS=($NOBODY)\n" + act(argv=["python3", "-m", MODULE]))
    assert "job:running" in found.blocking and "job:hidden" not in found.warnings


def test_root_s_run_is_seen_by_another_user(scene: Scene) -> None:
    found = scene.check(before="settle\n" + act(argv=["bash", "/x/scripts/train/train.sh", "y.env"]), prefix="$NOBODY")
    assert "job:running" in found.blocking and "(root)" in details(found, "job:running")


SERVES = ("settle\nAS=($NOBODY)\n" + act(argv=["/opt/bin/vllm", "serve", "m", "--api-key", "topsecretvalue99"], comm="vllm")
          + act(argv=["python3", "-m", MODULE, "wandb.api_key=topsecretvalue99"]))


@pytest.mark.parametrize(
    "words",
    [
        ["check", "pinned"],
        ["check", "pinned", "--json"],
        ["run", "pinned"],
        ["run", "pinned", "--json"],
        ["probe"],
        ["probe", "--json"],
    ],
    ids=" ".join,
)
def test_no_secret_of_other_processes_is_shown(scene: Scene, words: List[str]) -> None:
    found = scene.run(words, before=SERVES)
    assert MODULE in found.out + found.err and "topsecret" not in found.out + found.err
    assert words[0] == "run" or "--api-key <redacted>" in found.out


def test_a_proc_of_pids_only_has_no_port_table(scene: Scene) -> None:
    found = scene.check(
        before=listen("127.0.0.1", 6379) + "mount -t proc -o subset=pid proc /proc && test ! -e /proc/net || exit 98\n"
    )
    assert found.blocking == [] and "port:unknown" in found.warnings and "6379 8265" in details(found, "port:unknown")
    assert details(found, "port:free") == ""


def test_no_proc_at_all_is_said_and_not_called_hidepid(scene: Scene) -> None:
    found = scene.run(
        [], before="mount -t tmpfs tmpfs /proc", command='"$PYTHON" "$PYZ" check pinned --json; "$PYTHON" "$PYZ" probe >&2'
    )
    assert "/proc is not mounted" in details(found, "job:hidden") and "hidepid" not in found.out + found.err
    assert "port:unknown" in found.warnings and "/proc is not mounted" in found.err


def test_control_characters_of_other_processes_are_escaped(scene: Scene) -> None:
    found = scene.run(["check", "pinned"], before=act(argv=["python3", "-m", MODULE, "\x1b]0;gotcha\x07\r\x1b[2J\u202eabc"]))
    assert found.exit == 1 and "main_ppo" in found.out
    assert not set("\x1b\x07\r\u202e") & set(found.out) and "\\x1b" in found.out


# ---- the sweep

def test_S13_cluster_of_ray_blocks(scene: Scene) -> None:
    for argv in (["/opt/ray/core/src/ray/raylet/raylet", "--x"], ["/opt/ray/core/src/ray/gcs/gcs_server", "--log_dir=/tmp/s"]):
        found = scene.check(before=act(argv=argv, comm="raylet"))
        assert "job:running" in found.blocking and "Ray" in details(found, "job:running") and "ray:up" in found.warnings


def test_S13_cluster_of_another_user_blocks_twice(scene: Scene) -> None:
    found = scene.check(before="settle\nAS=($NOBODY)\n" + act(argv=["/opt/ray/raylet", "--session=other"]))
    assert {"job:running", "sweep:foreign"} <= set(found.blocking) and "nobody" in details(found, "sweep:foreign")


def test_G13_cluster_counts_whatever_the_gpus(scene: Scene) -> None:
    found = scene.check(before=act(argv=["/opt/ray/raylet"]), env={"CUDA_VISIBLE_DEVICES": "1"})
    assert "job:running" in found.blocking


def test_sweep_of_my_own_process_warns(scene: Scene) -> None:
    found = scene.check(before='touch "$SCENE/x_vllm.log"\n' + start('tail -f "$SCENE/x_vllm.log"', "x_vllm.log") + 'echo $! >&2')
    assert found.blocking == [] and "sweep:own" in found.warnings
    swept = found.shape["plan"]["sweep"]["processes"]
    assert [one["pid"] for one in swept] == [int(found.err.split()[0])]
    assert "x_vllm.log" in swept[0]["command"] and swept[0]["user"] == "root" and swept[0]["foreign"] is False


def test_sweep_of_somebody_elses_process_blocks(scene: Scene) -> None:
    found = scene.check(before="settle\n" + start("$NOBODY tail -f /dev/null --pid 1 notes-on-vllm.txt /dev/null", "notes-on"))
    assert found.blocking == ["sweep:foreign"] and "nobody" in details(found, "sweep:foreign")


def test_sweep_as_a_user_reaches_only_ones_own(scene: Scene) -> None:
    found = scene.check(before="settle\n" + act(argv=["tail", "x_vllm.log"]) + "AS=($NOBODY)\n" + act(argv=["vim", "vllm.py"]),
                        prefix="$NOBODY")
    assert found.blocking == []
    assert [one["command"] for one in found.shape["plan"]["sweep"]["processes"]] == ["vim vllm.py"]


def test_sweep_spares_this_command_and_zombies(scene: Scene) -> None:
    found = scene.check(before=act(argv=["sleep", "1"], zombie={"argv": ["vllm", "serve"], "comm": "vllm"}) +
                        'mkdir "$SCENE/vllm-cfgs" && cp scripts/train/configs/pinned.env "$SCENE/vllm-cfgs/x.env"',
                        config="pinned", args=["--dry-run-timeout", "299", "--kind", "train"])
    assert found.shape["plan"]["sweep"]["processes"] == []


def test_sweep_of_eval_is_by_its_own_rule(scene: Scene) -> None:
    lives = "settle\nAS=($NOBODY)\n" + act(argv=["tail", "-f", "x_vllm.log"])
    assert scene.check("demo_eval", before=lives).blocking == []
    found = scene.check("demo_eval", before=lives + act(argv=["/opt/bin/vllm", "serve", "m"]))
    assert found.blocking == ["sweep:foreign"]
    assert scene.check("demo_infer", before=lives + act(argv=["/opt/bin/vllm", "serve", "m"])).blocking == []


def test_sweep_lists_paths_with_sizes(scene: Scene) -> None:
    found = scene.check(before="settle\nmkdir -p /tmp/ray/session_1\nhead -c 300000 /dev/zero >/tmp/ray/session_1/log\n"
                               "head -c 70000 /dev/zero >/dev/shm/vllm_x\ntouch /dev/shm/mine /dev/shm/sem.a\n"
                               'mkdir -p logs; echo old >logs/pinned_vllm.log')
    paths = {one["path"]: one for one in found.shape["plan"]["sweep"]["paths"]}
    assert set(paths) == {"/tmp/ray/session_1", "/dev/shm/vllm_x", "/dev/shm/sem.a", "/srv/checkout/logs/pinned_vllm.log"}
    assert paths["/tmp/ray/session_1"]["bytes"] >= 300000 and paths["/dev/shm/vllm_x"]["bytes"] >= 70000
    assert found.blocking == [] and "sweep:paths" in found.warnings


def test_sweep_of_many_processes_is_summed_up(scene: Scene) -> None:
    found = scene.check(before="settle\nfor i in $(seq 20); do (exec -a vllm-$i sleep 600) & await has_argv $! vllm-; done\n")
    assert found.blocking == [] and len(found.shape["plan"]["sweep"]["processes"]) == 20
    assert "8 more" in details(found, "sweep:own")


# ---- GPUs

def gpu(index: int, **cells: Any) -> Dict[str, Any]:
    return dict({"index": index, "uuid": "GPU-%d" % index, "bus_id": "00000000:%02X:00.0" % (index + 1), "name": "NVIDIA H100",
                 "used": 4, "total": 81559, "util": 0, "ecc": 0}, **cells)


def gpus(count: int, **cells: Any) -> List[Dict[str, Any]]:
    return [gpu(index, **cells) for index in range(count)]


def test_gpus_idle(scene: Scene) -> None:
    write_nvidia_smi(str(scene.fakes), gpus(8))
    found = scene.check()
    assert found.blocking == [] and details(found, "gpu:idle").startswith("8 GPUs")
    assert not [name for name in found.warnings if name.startswith("gpu:")]


def test_gpus_absent(scene: Scene) -> None:
    found = scene.check()
    assert found.blocking == [] and "no nvidia-smi" in details(found, "gpu:unknown")


def test_G1_memory_without_processes_is_foreign(scene: Scene) -> None:
    write_nvidia_smi(str(scene.fakes), [gpu(0, used=61000)] + gpus(8)[1:])
    found = scene.check()
    assert found.blocking == ["gpu:foreign"]
    assert "GPU 0" in details(found, "gpu:foreign") and "not visible" in details(found, "gpu:foreign")
    assert "59.6 GiB" in details(found, "gpu:foreign")


def test_G1_threshold(scene: Scene) -> None:
    write_nvidia_smi(str(scene.fakes), [gpu(0, used=2001)] + gpus(8, used=2000)[1:])
    told = details(scene.check(), "gpu:foreign")
    assert "GPU 0" in told and not [index for index in range(1, 8) if "GPU %d" % index in told] and told.count("\n") == 0


def test_G1_memory_beyond_the_known_holders(scene: Scene) -> None:
    """A run of mine holds 5 GiB, the rest is another container's."""
    write_nvidia_smi(str(scene.fakes), [gpu(0, used=61000)], [{"uuid": "GPU-0", "pid": 999999, "used": 5000, "name": "x"}])
    told = details(scene.check(env={"NGPUS_PER_NODE": "1"}), "gpu:foreign")
    assert "999999" in told and "another container" in told


@pytest.mark.parametrize(
    "cells, is_unknown",
    [
        ([("used", "[N/A]")], True),
        ([("used", "")], True),
        # tests/host/test_gpus.py has each word in each column
        ([("total", "[N/A]"), ("util", "[Not Supported]"), ("ecc", "N/A"), ("name", "[Unknown Error]"), ("bus_id", "")], False),
    ],
)
def test_G3_what_is_not_told_is_unknown(scene: Scene, cells: List[Tuple[str, str]], is_unknown: bool) -> None:
    write_nvidia_smi(str(scene.fakes), [gpu(index, **{column: word}) for index, (column, word) in enumerate(cells)]
                     + gpus(8)[len(cells):])
    found = scene.check()
    assert (found.exit, found.blocking) == (0, [])
    assert ("gpu:unknown" in found.warnings) == is_unknown


def test_G3_holder_with_untold_memory_is_foreign(scene: Scene) -> None:
    write_nvidia_smi(str(scene.fakes), gpus(8, used=70000), [
        {"uuid": "GPU-3", "pid": 999999, "used": "[N/A]", "name": "[Insufficient Permissions]"}])
    found = scene.check()
    assert "gpu:foreign" in found.blocking and "pid 999999" in details(found, "gpu:foreign")
    assert "unknown memory" in details(found, "gpu:foreign") and "GPU 3" in details(found, "gpu:foreign")


def test_G3_holder_with_untold_pid_is_not_passed_over(scene: Scene) -> None:
    write_nvidia_smi(str(scene.fakes), gpus(8), [{"uuid": "GPU-3", "pid": "[N/A]", "used": 500, "name": "[N/A]"}])
    assert "gpu:unknown" in scene.check().warnings


def test_G3_mig_holder_by_another_uuid_is_foreign(scene: Scene) -> None:
    write_nvidia_smi(str(scene.fakes), gpus(8), [{"uuid": "MIG-41b3", "pid": 999999, "used": 9000, "name": "python3"}])
    found = scene.check()
    assert found.blocking == ["gpu:foreign"] and "can't be told" in details(found, "gpu:foreign")


def test_G5_hang_is_bounded_and_leaves_nothing(scene: Scene) -> None:
    """It ignores SIGTERM and has a child that holds its stdout."""
    write_fake_program(str(scene.fakes), "nvidia-smi", "trap '' TERM\nsleep 601 &\nwhile :; do sleep 601; done\n")
    found = scene.run(
        [], command='"$PYTHON" "$PYZ" check pinned --json; code=$?; cat /proc/[0-9]*/cmdline | tr "\\0" " " >&2; exit $code'
    )
    assert (found.exit, found.blocking) == (0, []) and "gpu:unknown" in found.warnings
    assert "20 s" in details(found, "gpu:unknown") and "sleep 601" not in found.err and "nvidia-smi" not in found.err


def test_G7_lost_gpu_shifts_no_index(scene: Scene) -> None:
    write_nvidia_smi(str(scene.fakes), [gpu(0), gpu(2, used=61000), gpu(3)], exit_code=15, extra_stdout=(
        "Unable to determine the device handle for GPU 0000:02:00.0: Unknown Error\n"))
    found = scene.check(env={"NGPUS_PER_NODE": "4"})
    assert "0000:02:00.0" in details(found, "gpu:lost") and "GPU 2:" in details(found, "gpu:foreign")
    assert "gpu:count" in found.warnings


def test_G9_mixed_models_without_an_order(scene: Scene) -> None:
    write_nvidia_smi(str(scene.fakes), [gpu(0, name="NVIDIA A100"), gpu(1, used=40000)])
    found = scene.check(env={"NGPUS_PER_NODE": "1"})
    assert "gpu:order" in found.warnings and found.blocking == ["gpu:foreign"]  # any of the two may be taken
    found = scene.check(env={"NGPUS_PER_NODE": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    assert "gpu:order" not in found.warnings and found.blocking == []


@pytest.mark.parametrize("count", [1, 8])
def test_G11_rows_with_crlf_and_blank_lines(scene: Scene, count: int) -> None:
    rows = "".join(r"%d, GPU-%d, 00000000:0%d:00.0, H100, with a comma, 16380, 81559, 0, 0\r\n\r\n" % (i, i, i + 1)
                   for i in range(count))
    write_fake_program(str(scene.fakes), "nvidia-smi",
                       'case "$*" in *query-gpu*) printf \'\\r\\n%s\' ;; esac\n' % rows)
    found = scene.check(env={"NGPUS_PER_NODE": str(count)})
    assert details(found, "gpu:foreign").count("16.0 GiB") == count and "gpu:count" not in found.warnings


def test_gpu_count_short_of_the_plan(scene: Scene) -> None:
    write_nvidia_smi(str(scene.fakes), gpus(4))
    found = scene.check()
    assert found.blocking == [] and "8 GPUs" in details(found, "gpu:count") and "4" in details(found, "gpu:count")


def test_gpu_ecc(scene: Scene) -> None:
    write_nvidia_smi(str(scene.fakes), gpus(7) + [gpu(7, ecc=3)])
    assert "GPU 7 has 3" in details(scene.check(), "gpu:ecc")


VISIBLE = [
    # CUDA_VISIBLE_DEVICES, how many GPUs the plan takes, the held one, is it in the way?
    ("2,3", "2", 0, False), ("2,3", "2", 3, True), ("3", "1", 2, False), ("GPU-5", "1", 5, True), ("GPU-5", "1", 4, False),
    ("7,6,5,4", "2", 5, False), ("7,6,5,4", "2", 6, True), ("0,1,-1,2", "4", 2, False), (" 1 , 2", "2", 2, True),
]


@pytest.mark.parametrize("visible, count, held, blocks", VISIBLE)
def test_gpus_that_the_launch_takes(scene: Scene, visible: str, count: str, held: int, blocks: bool) -> None:
    write_nvidia_smi(str(scene.fakes), [gpu(index, used=50000 if index == held else 4) for index in range(8)])
    found = scene.check(env={"CUDA_VISIBLE_DEVICES": visible, "NGPUS_PER_NODE": count})
    assert ("gpu:foreign" in found.blocking) == blocks


def test_gpus_of_an_empty_list(scene: Scene) -> None:
    write_nvidia_smi(str(scene.fakes), gpus(8, used=50000))
    for word in ("", "foo", "-1"):
        found = scene.check(env={"CUDA_VISIBLE_DEVICES": word})
        assert found.blocking == ["gpu:foreign"] and "names none of these GPUs" in details(found, "gpu:order"), word


def test_G3_index_that_is_not_told(scene: Scene) -> None:
    write_nvidia_smi(str(scene.fakes), [gpu(0), dict(gpu(1, used=61000), index="[N/A]")])
    found = scene.check(env={"CUDA_VISIBLE_DEVICES": "0", "NGPUS_PER_NODE": "1"})
    assert found.blocking == ["gpu:foreign"] and "GPU ?: 59.6 GiB" in details(found, "gpu:foreign")
    facts = scene.run(["probe"]).out
    assert "0:4 MiB" in facts and "?:59.6 GiB" in facts and "-1:" not in facts


def test_G7_lines_beside_the_rows_do_not_vanish(scene: Scene) -> None:
    write_nvidia_smi(str(scene.fakes), gpus(8), exit_code=15, extra_stdout=(
        "GPU 00000000:03:00.0: GPU requires reset\nWARNING: infoROM is corrupted at gpu 0000:00:1E.0\n"))
    found = scene.check()
    assert "00000000:03:00.0: GPU requires reset" in details(found, "gpu:lost") and found.blocking == []
    assert "infoROM" in details(found, "gpu:unknown") and "reset" not in details(found, "gpu:unknown")
    facts = scene.run(["probe"]).out
    assert "requires reset" in facts and "infoROM" in facts


def test_gpus_of_a_mig_device_are_all_judged(scene: Scene) -> None:
    write_nvidia_smi(str(scene.fakes), gpus(8))
    assert "gpu:order" in scene.check(env={"CUDA_VISIBLE_DEVICES": "MIG-41b3", "NGPUS_PER_NODE": "1"}).warnings


HOLDS = (
    'printf \'#!/bin/sh\\ncase "$*" in *query-gpu*) echo "0, GPU-0, 0:1, H100, 50000, 81559, 0, 0" ;; '
    '*) echo "GPU-0, %s, 50000, python3" ;; esac\\n\' "$!" >"$FAKES/nvidia-smi"; chmod +x "$FAKES/nvidia-smi"; echo $! >&2\n'
)


def test_gpu_holder_of_another_user(scene: Scene) -> None:
    found = scene.check(before="settle\nAS=($NOBODY)\n" + act(argv=["python3", "serve_model.py"]) + "FAKES=/srv/fakes\n" + HOLDS,
                        env={"NGPUS_PER_NODE": "1"})
    told = details(found, "gpu:foreign")
    assert found.blocking == ["gpu:foreign"] and "pid %s (nobody)" % found.err.split()[0] in told
    assert "serve_model.py" in told and "48.8 GiB on GPU 0" in told and "nobody" in fixes(found, "gpu:foreign")


def test_gpu_holder_in_the_run_s_own_tree(scene: Scene) -> None:
    found = scene.check(before=act(argv=["python3", "-m", MODULE]) + HOLDS, env={"NGPUS_PER_NODE": "1"})
    assert found.blocking == ["job:running"] and "gpu:mine" in found.warnings


def test_gpu_holder_that_is_a_worker_without_a_run(scene: Scene) -> None:
    found = scene.check("demo_infer", before=act(argv=["VLLM::Worker_TP0"]) + HOLDS, env={"GEN_TP": "1"})
    assert found.blocking == ["gpu:foreign"] and "job:orphan" in found.warnings


LIES = {
    "garbage": "echo 'hello, world'",
    "nothing": "exit 0",
    "driver_is_gone": "echo \"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\"; exit 9",
    "killed": "kill -9 $$",
    "not_utf8": r"printf '\xff\xfe\n'; exit 3",
    "flood": "head -c 20000000 /dev/zero",
    "header_after_all": "echo 'index, uuid, pci.bus_id, name, memory.used, memory.total, utilization.gpu, ecc'",
    "no_interpreter": "#!/no/such/interpreter",
}


@pytest.mark.parametrize("name", sorted(LIES))
def test_nvidia_smi_that_fails_or_lies(scene: Scene, name: str) -> None:
    write_fake_program(str(scene.fakes), "nvidia-smi", LIES[name])
    found = scene.check()
    assert (found.exit, found.blocking) == (0, []) and "gpu:unknown" in found.warnings
    assert "gpu:idle" not in [check["name"] for check in found.shape["checks"]]


def test_processes_query_that_fails_is_not_idle(scene: Scene) -> None:
    write_fake_program(str(scene.fakes), "nvidia-smi", 'case "$*" in *query-gpu*) for i in 0 1 2 3 4 5 6 7; do '
                       'echo "$i, GPU-$i, 0:$i, H100, 4, 81559, 0, 0"; done ;; *) echo "Unknown Error"; exit 1 ;; esac')
    found = scene.check()
    assert "gpu:unknown" in found.warnings and details(found, "gpu:idle") == ""


# ---- ports

def listen(host: str, port: int) -> str:
    return act(argv=["python3", "serves.py"], listen=[[host, port]])


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_N1_listener_on_any_family_is_a_conflict(scene: Scene, host: str) -> None:
    found = scene.check(before=listen(host, 6379) + "echo $! >&2")
    assert found.blocking == ["port:conflict"]
    told = details(found, "port:conflict")
    assert told.startswith("6379 (ray)") and "pid %s (root)" % found.err.split()[0] in told and host in told


def test_port_of_the_dashboard_and_of_nobody(scene: Scene) -> None:
    assert scene.check(before=listen("127.0.0.1", 8265)).blocking == ["port:conflict"]
    assert scene.check(before=listen("127.0.0.1", 8000) + listen("127.0.0.1", 26379)).blocking == []


def test_ports_of_the_other_kinds(scene: Scene) -> None:
    assert scene.check("demo_eval", before=listen("127.0.0.1", 6379)).blocking == []
    assert scene.check("demo_eval", before=listen("127.0.0.1", 8000)).blocking == ["port:conflict"]
    assert scene.check("demo_infer", before=listen("::", 8011)).blocking == ["port:conflict"]


def test_port_that_the_environment_moves(scene: Scene) -> None:
    assert scene.check(before=listen("127.0.0.1", 6379), env={"RAY_PORT": "6400"}).blocking == []
    assert scene.check(before=listen("127.0.0.1", 6400), env={"RAY_PORT": "6400"}).blocking == ["port:conflict"]


# The server closes first, so that its side is the one that lingers.
LINGERS = r"""
"$PYTHON" -c '
import socket
server = socket.socket(); server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("127.0.0.1", 6379)); server.listen(5)
for _ in range(3):
    client = socket.create_connection(("127.0.0.1", 6379)); side, _ = server.accept(); side.close(); client.recv(1)
    client.close()
'
"""


def test_N3_time_wait_alone_is_free(scene: Scene) -> None:
    found = scene.check(before=LINGERS)
    assert found.blocking == [] and "TIME_WAIT" in details(found, "port:free")


def test_N3_listener_behind_time_wait_rows(scene: Scene) -> None:
    found = scene.check(before=LINGERS + listen("127.0.0.1", 6379) + "echo $! >&2")
    assert found.blocking == ["port:conflict"] and "pid %s " % found.err.split()[0] in details(found, "port:conflict")


def test_udp_and_outgoing_connections_are_no_listeners(scene: Scene) -> None:
    found = scene.check(before=listen("127.0.0.1", 7000) + r"""
"$PYTHON" -c '
import socket, time
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); udp.bind(("127.0.0.1", 8265))
out = socket.socket(); out.bind(("127.0.0.1", 6379)); out.connect(("127.0.0.1", 7000))
open("'$SCENE'/connected", "w").close(); time.sleep(600)' &
await test -e $SCENE/connected
""")
    assert found.blocking == []


def test_port_held_by_another_user(scene: Scene) -> None:
    found = scene.check(before="settle\nAS=($NOBODY)\n" + listen("127.0.0.1", 6379))
    assert found.blocking == ["port:conflict"] and "(nobody)" in details(found, "port:conflict")


def test_port_whose_holder_can_not_be_seen(scene: Scene) -> None:
    """Another user's descriptors are closed to us; the table still tells the uid. Never `pid 0`."""
    found = scene.check(before="settle\n" + listen("127.0.0.1", 6379), prefix="$NOBODY")
    told = details(found, "port:conflict")
    assert found.blocking == ["port:conflict"] and "root" in told and "can't be seen" in told and "pid" not in told


def test_port_of_the_run_in_flight(scene: Scene) -> None:
    found = scene.check(before=act(argv=["python3", "-m", MODULE], listen=[["127.0.0.1", 6379]]))
    assert found.blocking == ["job:running"] and "port:mine" in found.warnings


def test_worker_node_binds_no_port(scene: Scene) -> None:
    write_fake_program(str(scene.fakes), "hostname", 'echo "10.0.0.5 "')
    assert scene.check("worker_exits", before=listen("0.0.0.0", 6379)).blocking == []


# ---- addresses: what the runner will take

def address_programs(scene: Scene, first: str, hosts: str = "") -> None:
    write_fake_program(str(scene.fakes), "hostname", 'case "$1" in -I) echo "%s" ;; -s) echo node1 ;; esac' % first)
    write_fake_program(str(scene.fakes), "getent", 'case "$2" in %s *) exit 2 ;; esac' % hosts)


def test_N5_first_address_is_the_bridge(scene: Scene) -> None:
    address_programs(scene, "172.17.0.1 10.0.0.5 fd00::5", '172.17.0.1) echo "172.17.0.1 node1" ;;')
    found = scene.check("two_nodes", before="ip addr add 10.0.0.5/24 dev lo && ip route add default dev lo src 10.0.0.5")
    assert found.blocking == [] and "host:address" in found.warnings and "172.17.0.1" in details(found, "host:address")


def test_N5_first_address_is_not_the_default_route_s(scene: Scene) -> None:
    address_programs(scene, "192.168.9.1 10.0.0.5", '192.168.9.1) echo "192.168.9.1 node1" ;;')
    found = scene.check("two_nodes", before="ip addr add 10.0.0.5/24 dev lo && ip route add default dev lo src 10.0.0.5")
    assert "192.168.9.1" in details(found, "host:address") and "10.0.0.5" in details(found, "host:address")


def test_N5_silence_where_all_is_well(scene: Scene) -> None:
    address_programs(scene, "10.0.0.5 172.17.0.1", '10.0.0.5) echo "10.0.0.5 node1" ;;')
    found = scene.check("two_nodes", before="ip addr add 10.0.0.5/24 dev lo && ip route add default dev lo src 10.0.0.5")
    assert "host:address" not in found.warnings


def test_N7_head_resolves_to_loopback(scene: Scene) -> None:
    address_programs(scene, "10.0.0.5", 'node1) echo "127.0.1.1 node1" ;; 10.0.0.5) echo "10.0.0.5 node1" ;;')
    found = scene.check("two_nodes", env={"MASTER_ADDR": "node1"})
    assert "loopback" in details(found, "host:address") and "127.0.1.1" in details(found, "host:address")


def test_N9_bare_ipv6_head(scene: Scene) -> None:
    address_programs(scene, "10.0.0.5", 'fd00::5) echo "fd00::5 node1" ;; 10.0.0.5) echo "10.0.0.5 node1" ;;')
    found = scene.check("two_nodes", env={"MASTER_ADDR": "fd00::5"})
    assert "fd00::5" in details(found, "host:address") and "brackets" in details(found, "host:address")


def test_address_that_getent_does_not_find(scene: Scene) -> None:
    """The runner would die of it without a word."""
    address_programs(scene, "10.0.0.5")
    assert "getent" in details(scene.check(), "host:address")


# ---- Ray's folder, disks, shared memory, limits

def test_R1_ray_s_folder_belongs_to_another(scene: Scene) -> None:
    found = scene.check(before="settle\nmkdir -m 755 /tmp/ray\n", prefix="$NOBODY")
    assert "root" in details(found, "ray:owner") and "755" in details(found, "ray:owner") and found.blocking == []


def test_R1_folder_that_the_config_names(scene: Scene) -> None:
    found = scene.check(before="settle\nmkdir -m 700 /srv/r\n", prefix="$NOBODY", env={"RAY_TMPDIR": "/srv/r"})
    assert "/srv/r" in details(found, "ray:owner")


def test_D1_small_shared_memory(scene: Scene) -> None:
    found = scene.check(before="mount -o remount,size=64m /dev/shm")
    assert "64 MiB" in details(found, "shm:small") and "37.3 GiB" in details(found, "shm:small") and found.blocking == []


def test_shared_memory_left_dirty(scene: Scene) -> None:
    found = scene.check(before="mount -o remount,size=10m /dev/shm; head -c 8000000 /dev/zero >/dev/shm/mine",
                        env={"RAY_OBJECT_STORE_MEMORY": "1000000"})
    assert "shm:dirty" in found.warnings


FOLDER = 'settle\nmkdir /srv/full && mount -t tmpfs -o size=1m%s tmpfs /srv/full\n'


def test_D3_full_disk_at_the_log(scene: Scene) -> None:
    found = scene.check(
        before=FOLDER % "" + "head -c 2000000 /dev/zero >/srv/full/x 2>/dev/null", env={"HARBOR_LOG_DIR": "/srv/full/l"}
    )
    assert "/srv/full" in details(found, "disk:unwritable") and "no space left" in details(found, "disk:unwritable")
    assert "disk:low" in found.warnings and found.blocking == []


def test_D3_read_only_disk_at_the_log(scene: Scene) -> None:
    found = scene.check(before=FOLDER % ",ro", env={"HARBOR_LOG_DIR": "/srv/full/l"})
    assert "read-only" in details(found, "disk:unwritable")


def test_D3_no_permission_at_the_log(scene: Scene) -> None:
    found = scene.check(before="settle\nmkdir -m 755 /srv/roots", prefix="$NOBODY", env={"HARBOR_LOG_DIR": "/srv/roots/logs"})
    told = details(found, "disk:unwritable")
    assert "/srv/roots" in told and "root" in told and "755" in told and "permission denied" in told


def test_inodes_used_up_at_the_log(scene: Scene) -> None:
    found = scene.check(before=FOLDER % ",nr_inodes=100" + "for i in $(seq 200); do : >/srv/full/$i; done 2>/dev/null",
                        env={"HARBOR_LOG_DIR": "/srv/full/l"})
    assert "inodes" in details(found, "disk:inodes") and "disk:unwritable" in found.warnings


def test_probe_leaves_nothing(scene: Scene) -> None:
    found = scene.run([], before=FOLDER % "", env={"HARBOR_LOG_DIR": "/srv/full/l"}, command=(
        '"$PYTHON" "$PYZ" check pinned --json; code=$?; ls -A /srv/full >&2; exit $code'))
    assert (found.exit, found.err) == (0, "")


def test_D7_few_open_files(scene: Scene) -> None:
    found = scene.check(before="ulimit -Sn 1024")
    assert "soft 1024" in details(found, "limit:nofile") and "raises its own" in details(found, "limit:nofile")
    assert [one["status"] for one in found.shape["checks"] if one["name"] == "limit:nofile"] == [
        "pass" if resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= 65536 else "advisory"]
    low = scene.check(before="ulimit -Hn 4096")
    assert "hard limit must be raised by root" in details(low, "limit:nofile") and "limit:nofile" in low.warnings


def test_S9_slurm_time_limit(scene: Scene) -> None:
    write_fake_program(str(scene.fakes), "squeue", "echo 20:00")
    found = scene.check(env={"SLURM_JOB_ID": "77"})
    assert "77" in details(found, "session:ends") and "20:00" in details(found, "session:ends")


def test_S9_first_process_of_the_container_is_a_shell(scene: Scene) -> None:
    assert "shell" in details(scene.check(), "session:ends")  # so it is in this box


def test_E9_variables_of_an_enclosing_job(scene: Scene) -> None:
    found = scene.check(
        env={
            "SLURM_NTASKS": "1",
            "SLURM_NODELIST": "n[1-2]",
            "RANK": "0",
            "WORLD_SIZE": "8",
            "MASTER_PORT": "29500",
            "RAY_ADDRESS": "10.0.0.1:6379",
            "LOCAL_RANK": "",
        }
    )
    told = details(found, "env:inherited")
    assert found.blocking == [] and "LOCAL_RANK" not in told
    for name in ("SLURM_*", "RANK", "WORLD_SIZE", "MASTER_PORT", "RAY_ADDRESS"):
        assert name in told


def test_switch_that_would_make_the_launch_a_dry_run(scene: Scene) -> None:
    assert "DRY_RUN" in details(scene.check(env={"DRY_RUN": "1"}), "env:inherited")
    assert "PREFLIGHT_ONLY" in details(scene.check(env={"PREFLIGHT_ONLY": "1"}), "env:inherited")


# ---- the board

def test_board_that_would_show_the_run(scene: Scene) -> None:
    board = start('"$PYTHON" webui/server.py --port 8090 --log-dir "$ROOT/logs"', "server.py") + "echo $! >&2\n"
    found = scene.check(before="settle\nmkdir logs\n" + board)
    served = ["/srv/checkout/logs"]
    assert found.shape["board"] == {"pid": int(found.err.split()[0]), "port": 8090, "served": served, "visible": True}


def test_board_that_serves_another_folder(scene: Scene) -> None:
    board = start('"$PYTHON" server.py --log-dir ../logs --extra-log-dir=/srv/more', "server.py")
    found = scene.check("off_repo_log", before="settle\nmkdir logs /srv/more; cd webui\n" + board + 'cd "$ROOT"')
    assert found.shape["board"]["served"] == ["/srv/checkout/logs", "/srv/more"] and found.shape["board"]["visible"] is False
    assert found.shape["board"]["port"] == 8080


def test_no_board(scene: Scene) -> None:
    assert scene.check().shape["board"] == {"pid": None, "port": None, "served": [], "visible": False}
