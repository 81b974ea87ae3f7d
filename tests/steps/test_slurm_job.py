"""The batch script of a job and what the site asks for: what is written, what is refused, what goes into the digest."""
import os
import subprocess

import pytest

from rlrun.errors import OperatorError
from rlrun.host import slurm
from rlrun.steps import judge_machine, slurm_job, slurm_site
from rlrun.values import Sweep, Topology

from .made import make_plan

PROGRAM = ("/usr/bin/python3", "/opt/rlrun.pyz")


def ask(tmp_path, sbatch=(), srun=(), requeue=False, program=PROGRAM):
    return slurm_site.read_asked(sbatch, srun, requeue, str(tmp_path), program)


def make_job(tmp_path, environ=None, asked=None, **given):
    plan = make_plan(root=str(tmp_path), topology=Topology(3, "", "MASTER_ADDR", 6379, ""), **given)
    return slurm_job.make_plan(plan, asked or ask(tmp_path), environ or {})


def test_the_plan_decides_nodes_and_gpus(tmp_path):
    job = make_job(tmp_path)
    assert {"nodes": "3", "gres": "gpu:8", "exclusive": "", "mem": "0", "no-requeue": "", "signal": "B:USR1@120"}.items() \
        <= job.batch.options.items()
    assert job.is_submission and job.ports == () and job.gpu_count == 0 and not job.sweep.process_patterns
    assert job.batch.runner == ("bash", "scripts/train/train.sh", "scripts/train/configs/x.env")
    assert "--nodes=3 --ntasks=3" in job.batch.script and "read -r MASTER_ADDR _" in job.batch.script


def test_a_later_option_wins_and_the_site_may_ask_for_gpus_and_memory_in_its_own_way(tmp_path):
    (tmp_path / "rlrun.ini").write_text("[slurm]\nsbatch = --partition=old\n  --gpus-per-node=h100:8\n  --mem=900G\n"
                                        "srun = --mpi=none\n")
    job = make_job(tmp_path, asked=ask(tmp_path, ["--partition=new", '--comment="a b"'], ["--gres=none"]))
    options = job.batch.options
    assert [options[name] for name in ("partition", "gpus-per-node", "mem", "comment")] == ["new", "h100:8", "900G", "a b"]
    assert "gres" not in options
    assert "--ntasks-per-node=1 --mpi=none --gres=none)" in job.batch.script
    assert job.batch.files == (str(tmp_path / "rlrun.ini"),)
    assert make_job(tmp_path, {"SBATCH_PARTITION": "leaked"}).batch.options["partition"] == "leaked"


def test_the_file_beside_rlrun_comes_before_that_in_the_checkout(tmp_path):
    beside = tmp_path / "bin"
    beside.mkdir()
    (beside / "rlrun.ini").write_text("[slurm]\nsbatch = --account=all\n  --qos=low\n")
    (tmp_path / "rlrun.ini").write_text("[slurm]\nsbatch = --account=rl\n")
    asked = ask(tmp_path, program=("/usr/bin/python3", str(beside / "rlrun.pyz")))
    assert [line for _, line in asked.sbatch] == ["--account=all", "--qos=low", "--account=rl"]


@pytest.mark.parametrize("text", [
    "[slurm]\nsbtach = --partition=x\n", "[other]\na = b\n", "sbatch = x\n", "[slurm]\nsbatch = -p x\nsbatch = y\n",
    "[slurm]\nsbatch = partition=x\n", "[slurm]\nsbatch = --nodes=4\n", "[slurm]\nsbatch = --x='\n"])
def test_a_site_file_that_says_something_else_is_refused(tmp_path, text):
    (tmp_path / "rlrun.ini").write_text(text)
    with pytest.raises(OperatorError) as caught:
        ask(tmp_path)
    assert caught.value.code == 2 and caught.value.hint and str(tmp_path / "rlrun.ini") in caught.value.message


@pytest.mark.parametrize("line", ["--array=0-3", "-N2", "-N 2", "-o /x", "--wrap=ls", "--requeue", "-p a\n#SBATCH -N9", "-",
                                  "--qos=x --ntasks=3", "--export=NONE", "#", ""])
def test_what_the_plan_decides_can_not_be_asked_for(tmp_path, line):
    with pytest.raises(OperatorError) as caught:
        ask(tmp_path, [line])
    assert caught.value.code == 2 and caught.value.hint


def test_the_script_is_part_of_the_digest(tmp_path):
    parts = [make_job(tmp_path, asked=ask(tmp_path, words)).more_parts for words in (["--time=1:00"], ["--time=2:00"])]
    assert parts[0]["batch script"] != parts[1]["batch script"]
    assert parts[0] == make_job(tmp_path, asked=ask(tmp_path, ["--time=1:00"])).more_parts


def test_a_written_script_is_sound_and_names_its_record(tmp_path):
    folder = tmp_path / "a 100% record"
    folder.mkdir()
    job = make_job(tmp_path, asked=ask(tmp_path, ["--time=1:00"]), config_shown="scripts/a\nb.env")
    script = slurm_job.fill_script(job, str(folder), "3f9c2a71")
    assert "<record>" not in script and "<digest>" not in script and "3f9c2a71" in script
    path = folder / "job.sbatch"
    path.write_text(script)
    assert subprocess.run(["bash", "-n", str(path)], check=False).returncode == 0
    asked = slurm.read_directives(script)
    assert asked["output"] == str(folder).replace("%", "%%") + "/job_%j.log" and asked["time"] == "1:00"
    told = subprocess.run(["bash", "-c", script[script.index("export RLRUN_RECORD"):].split("\n")[0] + '; echo "$RLRUN_RECORD"'],
                          stdout=subprocess.PIPE, check=True).stdout.decode()
    assert told.strip() == str(folder)


@pytest.mark.parametrize("given, word", [
    ({}, ""), ({"name_is_volatile": True}, "EXP_NAME"), ({"resume_mode": "disable"}, "resume_mode"),
    ({"launch_command": "x trainer.save_freq=-1"}, "save_freq"), ({"launch_command": "x"}, "save_freq"),
    ({"kind": "eval"}, "eval")])
def test_a_second_start_has_to_resume(tmp_path, given, word):
    given = dict({"launch_command": "x trainer.save_freq=5"}, **given)
    job = make_job(tmp_path, asked=ask(tmp_path, requeue=True), **given)
    checks = slurm_job.judge_batch(job, {})
    assert [check.name for check in checks] == (["slurm:requeue"] if word else [])
    assert not word or word in checks[0].detail
    assert ("requeue" in job.batch.options) and "no-requeue" not in job.batch.options


def test_a_head_that_the_config_names_is_none_of_the_jobs(tmp_path):
    plan = make_plan(root=str(tmp_path), topology=Topology(2, "10.0.0.1", "MASTER_ADDR", 6379, ""))
    checks = slurm_job.judge_batch(slurm_job.make_plan(plan, ask(tmp_path), {}), {})
    assert [(check.name, check.status) for check in checks] == [("slurm:head", "blocks")] and "10.0.0.1" in checks[0].detail


def test_what_sbatch_says_is_read(tmp_path):
    told = slurm_job.read_back("Submitted batch job 12\n", str(tmp_path))
    assert told["facts"]["jobs"] == ["12"] and told["facts"]["job_logs"] == {"12": os.path.join(str(tmp_path), "job_12.log")}
    failed = slurm_job.read_back("sbatch: error: invalid partition specified: x\nsbatch: error: Batch failed\n", "/r")
    assert failed["facts"]["jobs"] == [] and failed["fatal"][0] == "sbatch: error: invalid partition specified: x"


def test_a_variable_that_is_about_another_job_is_not_handed_on(tmp_path):
    environ = {"SBATCH_OUTPUT": "/elsewhere", "SBATCH_ARRAY_INX": "0-9", "SBATCH_PARTITION": "gpu"}
    job = make_job(tmp_path, environ)
    assert job.batch.options["output"].endswith("job_%j.log") and job.batch.options["partition"] == "gpu"
    assert {"SBATCH_OUTPUT", "SBATCH_ARRAY_INX"} <= set(job.drop_env) and "SBATCH_PARTITION" not in job.drop_env
    checks = slurm_job.judge_batch(job, environ)
    assert [check.name for check in checks] == ["slurm:shadow"] and "SBATCH_ARRAY_INX, SBATCH_OUTPUT" in checks[0].detail


def test_an_option_of_srun_is_words_and_no_line_for_the_shell(tmp_path):
    script = make_job(tmp_path, asked=ask(tmp_path, srun=['--comment="$(touch x)"'])).batch.script
    assert "'--comment=$(touch x)'" in script


def test_a_site_file_that_somebody_else_can_change_is_told(tmp_path):
    (tmp_path / "rlrun.ini").write_text("[slurm]\nsrun = --mpi=none\n")
    os.chmod(str(tmp_path / "rlrun.ini"), 0o666)
    assert [check.name for check in slurm_job.judge_batch(make_job(tmp_path), {})] == ["config:foreign"]


@pytest.mark.parametrize("sbatch, environ, words", [
    (["--gres=gpu:4"], {}, "--gres=gpu:4 gives 4 GPUs of each node, and the plan takes 8"),
    (["--gpus=h100:12"], {}, "--gpus=h100:12 gives 4 GPUs"),
    ([], {"SBATCH_GPUS_PER_NODE": "1"}, "--gpus-per-node=1 gives 1 GPU of"),
    (["--gres=gpu:8"], {}, ""), (["--gpus-per-node=h100:8"], {}, ""), (["--gres=none"], {}, ""), ([], {}, "")])
def test_fewer_gpus_than_the_plan_takes_block(tmp_path, sbatch, environ, words):
    checks = slurm_job.judge_batch(make_job(tmp_path, environ, ask(tmp_path, sbatch)), {})
    assert [(check.name, check.status) for check in checks] == ([("slurm:gpus", "blocks")] if words else [])
    assert all(words in check.detail and check.fix for check in checks)


@pytest.mark.parametrize("line", ["--mpi=none true", "--mpi none true", "--comment=a --qos=b", "-p gpu x", "--outp=/x",
                                  "--test-onl", "--ntask=3", "--signal=INT@10", "--signal=USR1", "--sig=TERM",
                                  "--comment=HF_TOKEN=hf_" + "a1B2" * 9])
def test_a_line_is_one_option_and_no_way_around_the_plan(tmp_path, line):
    for given in ({"sbatch": [line]}, {"srun": [line]}):
        with pytest.raises(OperatorError) as caught:
            ask(tmp_path, **given)
        assert caught.value.code == 2 and caught.value.hint


@pytest.mark.parametrize("line", ["--signal=B:USR1@600", "--signal=RB:TERM@60", "-p gpu", "-pgpu", "--partition gpu",
                                  "--exclude=n[1-2]"])
def test_an_option_with_its_value_is_taken(tmp_path, line):
    assert [one for _, one in ask(tmp_path, [line]).sbatch] == [line]


def test_a_site_file_that_is_none_or_too_large_is_refused(tmp_path):
    os.mkfifo(str(tmp_path / "rlrun.ini"))
    with pytest.raises(OperatorError) as caught:
        ask(tmp_path)
    assert caught.value.code == 5
    os.unlink(str(tmp_path / "rlrun.ini"))
    (tmp_path / "rlrun.ini").write_text("# x\n" * 20000 + "[slurm]\nsbatch = --partition=y\n")
    with pytest.raises(OperatorError):
        ask(tmp_path)


def test_of_slurms_own_variables_none_reaches_the_job_unseen(tmp_path):
    environ = {"SLURM_STDOUTMODE": "/x", "SLURM_RESTART_COUNT": "2", "SLURM_CONF": "/c", "SBATCH_CONTAINER": "/y",
               "SBATCH_ACCOUNT": "rl", "SLURM_JOB_ID": "5"}
    job = make_job(tmp_path, environ, drop_env=("DRY_RUN",))
    assert set(job.drop_env) == {"DRY_RUN", "SLURM_STDOUTMODE", "SLURM_RESTART_COUNT", "SBATCH_CONTAINER", "SLURM_JOB_ID"}
    assert job.batch.drop_env == ("DRY_RUN",), "on the nodes Slurm's own are needed"


def test_a_path_that_sbatch_would_take_for_another_is_refused(tmp_path):
    plan = make_plan(root="/a\\b", topology=Topology(2, "", "MASTER_ADDR", 6379, ""))
    assert "slurm:path" in [check.name for check in slurm_job.judge_batch(slurm_job.make_plan(plan, ask(tmp_path), {}), {})]


FAKE_SRUN = """#!/bin/bash
case "$*" in
*"node check"*) echo checked; [ "$WHEN" != between ] || kill -TERM "$PPID" ;;
*) echo run; echo $$ >"$RLRUN_RECORD/nodes/head-7-0.pid"; echo alone ;;
esac
"""


@pytest.mark.parametrize("when, says", [("between", "no runner was started"), ("never", "alone")])
def test_a_stop_that_comes_as_the_check_ends_is_not_lost(tmp_path, when, says):
    job = make_job(tmp_path)
    folder = tmp_path / "record"
    (folder / "nodes").mkdir(parents=True)
    path = folder / "job.sbatch"
    path.write_text(slurm_job.fill_script(job, str(folder), "3f9c2a71"))
    for name, text in (("srun", FAKE_SRUN), ("hostname", "#!/bin/sh\necho 10.0.0.1\n")):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)
    env = {"PATH": "%s:/usr/bin:/bin" % (tmp_path / "bin"), "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-3]", "WHEN": when}
    done = subprocess.run(["bash", str(path)], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False)
    text = done.stdout.decode()
    assert "checked" in text and says in text, text
    assert (done.returncode, "\nrun\n" in text) == ((130, False) if when == "between" else (0, True)), text


def test_what_a_job_sweeps_is_not_told_as_nothing(tmp_path):
    checks = judge_machine.judge_sweep(make_job(tmp_path), Sweep((), ()))
    assert [check.name for check in checks] == ["sweep:none"] and "each node of the job" in checks[0].detail
