"""The yes goes to one exact plan that was shown: no check launches, nothing that comes after the question is overlooked."""
import json
import os
import signal
import subprocess
import sys

import pytest
from checkouts import add_config, build_checkout

from . import box as b

QUESTION = "Launch with this configuration? [y/N] "
MODE = "Launch mode? [B]ackground (default) / [F]oreground "
CONFIG = """PROJECT_NAME=toy
EXP_NAME=%s
TEMPLATE_MODULES=(runtime/process.env backend/k8s.env harbor/common.env verl/common.env)
"""


# --- a check is a check, whatever the config says


UNDOING = ["DRY_RUN=0", "export DRY_RUN=0 PREFLIGHT_ONLY=0", "readonly DRY_RUN=0", "unset DRY_RUN; DRY_RUN=0", "source dry.site",
           "f() { DRY_RUN=0; }; f"]


@pytest.mark.parametrize("words, line", [(["check"], line) for line in UNDOING]
                         + [(words, line) for words in (["check", "--structure-only"], ["nodes"]) for line in UNDOING[1:3]])
def test_a_config_that_undoes_the_dry_run_does_not_launch(run_pyz, tmp_path, line, words):
    root = build_checkout(tmp_path / "lego")
    with open(os.path.join(root, "dry.site"), "w") as site:
        site.write("DRY_RUN=0\n")
    add_config(root, "train", "undone.env", CONFIG % "undone" + line + "\n")
    done = run_pyz(words + ["undone"], cwd=root, is_boxed=True)
    assert done.returncode in (0, 1) and "Traceback" not in done.stderr
    assert not os.path.exists(os.path.join(root, "logs")) and "step:1" not in done.stdout
    if "readonly" not in line:
        assert "preflight:died" not in done.stdout


def test_the_operators_own_bash_env_is_kept(run_pyz, tmp_path, clean_env):
    root = build_checkout(tmp_path / "lego")
    (tmp_path / "own rc").write_text("export PROJECT_FROM_RC=rc\n")
    add_config(root, "train", "own.env", CONFIG.replace("=toy", "=${PROJECT_FROM_RC}") % "own")
    clean_env["BASH_ENV"] = str(tmp_path / "own rc")
    found = json.loads(run_pyz(["check", "own", "--json"], cwd=root, is_boxed=True).stdout)
    assert found["plan"]["project"] == "rc"
    assert not [name for name in os.listdir("/tmp") if name.startswith("rlrun-check-%d-" % os.getpid())]


# --- what comes between the question and the yes


def play_between(box, config, change):
    session = b.open_rlrun(box, "run", config, "--board", "leave", env=b.LONG)
    b.expect(session, QUESTION)
    helper = None
    if change == "source":
        with open(os.path.join(box.root, "late.site"), "w") as site:
            site.write("PROJECT_NAME=hijacked\n")
    else:
        helper = subprocess.Popen(["bash", "-c", "exec -a 'tail -f x_vllm.log' sleep 600"])
        b.wait_for(lambda: b.find_processes("x_vllm.log"), "the process that a sweep would take")
    b.send(session, "y\n")
    b.expect(session, "\n")
    try:
        b.expect(session, MODE)
        b.send(session, "\n")
    except AssertionError:
        pass
    code, text = b.finish(session)
    if helper:
        helper.kill()
    return {"code": code, "text": text, "traces": b.count_traces(box)}


def test_a_source_that_comes_after_the_question_is_a_change(play, root):
    add_config(root, "train", "late.env", CONFIG % "late" + "if [ -f late.site ]; then source late.site; fi\n")
    facts = play(play_between, root, config="late", change="source")
    assert facts["code"] == 3 and "late.site" in facts["text"] and facts["traces"] == b.NOTHING


def test_what_the_sweep_would_newly_kill_ends_it(play, root):
    facts = play(play_between, root, config="demo", change="vllm")
    assert facts["code"] == 3 and "x_vllm.log" in facts["text"] and facts["traces"] == b.NOTHING


def play_typed_ahead(box):
    session = b.open_rlrun(box, "run", "hang", "--board", "leave", env=dict(b.LONG, TOY_HANG_SEC="3"))
    os.write(session.fd, b"y\n\n")  # nothing was shown yet
    b.expect(session, QUESTION)
    before = b.count_traces(box)
    b.send(session, "n\n")
    code, text = b.finish(session)
    return {"code": code, "text": text, "before": before, "after": b.count_traces(box)}


def test_a_yes_that_was_typed_before_the_plan_is_none(play, root):
    facts = play(play_typed_ahead, root)
    assert facts["code"] == 3 and facts["before"] == facts["after"] == b.NOTHING


def play_quiet(box):
    session = b.open_rlrun(box, "run", "demo", "--board", "leave", "-q", env=b.LONG)
    shown = b.expect(session, QUESTION)
    b.send(session, "n\n")
    return {"shown": shown, "code": b.finish(session)[0]}


def test_the_plan_is_shown_with_its_question_also_when_quiet(play, root):
    facts = play(play_quiet, root)
    assert "run configuration (train)" in facts["shown"] and "sweep" in facts["shown"] and facts["code"] == 3


# --- what the digest and the old log go by


def play_from_a_folder(box):
    b.launch(box, "relative", env=b.SHORT)
    assert b.wait_for_end(box) == "ended 0"
    found = {}
    for cwd in (box.root, os.path.join(box.root, "scripts", "train")):
        found[cwd] = b.check(box, "relative", env=b.SHORT, cwd=cwd)
    return list(found.values())


def test_a_relative_log_is_the_checkouts_wherever_one_stands(play, root):
    add_config(root, "train", "relative.env", "HARBOR_LOG_DIR=mylogs\n" + CONFIG % "relative")
    at_root, below = play(play_from_a_folder, root)
    assert "log:overwrite" in at_root["warnings"] and "log:overwrite" in below["warnings"]
    assert at_root["plan"]["train_log"] == below["plan"]["train_log"] == os.path.join(root, "mylogs", "relative.log")
    assert at_root["digest"] == below["digest"]


def play_links(box, link):
    return [b.check(box, "demo")["digest"], b.check(box, os.path.join(link, "scripts/train/configs/demo.env"))["digest"],
            b.check(box, "demo", cwd=link)["digest"]]


def test_C5_one_plan_has_one_digest_whichever_way_it_is_reached(play, root, tmp_path):
    os.symlink(root, str(tmp_path / "link"))
    assert len(set(play(play_links, root, link=str(tmp_path / "link")))) == 1


def play_runner_edit(box):
    before = b.check(box, "demo")["digest"]
    with open(os.path.join(box.root, "scripts/train/train.sh"), "a") as runner:
        runner.write("# another runner\n")
    return [before, b.check(box, "demo")["digest"]]


def test_without_git_the_runners_script_counts(play, root):
    before, after = play(play_runner_edit, root)
    assert before != after


# --- the launch is not denied, its end not lost


def play_no_sigchld(box):
    """Some launchers leave SIGCHLD ignored; then no exit status can be read."""
    digest = b.check(box, "demo", env=b.SHORT)["digest"]
    words = [box.python, box.pyz, "run", "demo", "--confirm", digest, "--board", "leave", "--json"]
    popen = subprocess.Popen(words, env=b.make_env(box, b.SHORT), cwd=box.root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, restore_signals=False,
                             preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    popen.communicate()
    b.wait_for_end(box)
    return b.wait_for(lambda: [row["state"] for row in b.list_runs(box) if row["state"] != "lost"], "the keeper's word")


def test_an_ignored_SIGCHLD_loses_no_exit_status(play, root):
    assert play(play_no_sigchld, root) == ["ended 0"]


# --- judgement by the kind


def play_eval_port(box):
    script = "import socket, time; s = socket.socket(); s.bind(('127.0.0.1', 8000)); s.listen(1); " \
             "print(1, flush=True); time.sleep(600)"
    server = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert server.stdout is not None
    server.stdout.readline()
    found = b.check(box, "demo_eval", env={"MASTER_ADDR": "10.9.9.9"})
    server.kill()
    return found


def test_an_inherited_master_address_hides_no_port_of_an_eval(play, root):
    found = play(play_eval_port, root)
    assert "port:conflict" in found["blocking"]
