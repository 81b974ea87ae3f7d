"""The judgement of a submission: what blocks, and what is only told. Slurm's words are those that 22.05.8 printed."""
import time

import pytest
from steps.made import make_plan

from rlrun.host.slurm_partition import Forecast, Partition, Told
from rlrun.steps import judge_slurm

SCRIPT = "#!/bin/bash\n#SBATCH --nodes=2 --partition=gpu\n%s\n"
GPU = Partition("gpu", "UP", "1-00:00:00", "", "UNLIMITED", "2", "ALL", "ALL", "ALL", True)
CONFIGURATION = "Requested node configuration is not available"


class Own:
    scripts = (("/o/rl.sbatch", SCRIPT % ""),)


def stamp(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + seconds))


@pytest.fixture
def judge(fake_program, clean_env, monkeypatch):
    """judge(test, partition, options, …) -> {name: check}, of a plan whose script has these options."""
    fake_program("sbatch", "exit 0\n")

    def run(test=None, partition=GPU, options="", unusable=None, enforced=False, estimate=None, environ=None, reason=""):
        own = Own()
        own.scripts = (("/o/rl.sbatch", SCRIPT % ("#SBATCH " + options if options else "")),)
        told = Told(test, (partition,), unusable or {}, enforced, reason)
        monkeypatch.setattr(judge_slurm.slurm_partition, "ask_submission", lambda *given: told)
        plan = make_plan(is_submission=True, own=own, launch_command="sbatch /o/rl.sbatch", block="x")
        found = judge_slurm.judge_submission(plan, dict(clean_env, **(environ or {})), estimate)
        return {check.name: check for check in found}
    return run


def test_one_that_starts_at_once(judge):
    found = judge(Forecast(stamp(0), "n[1-2]", "gpu", ""), options="--time=60")
    assert [(one.name, one.status) for one in found.values()] == [("slurm:sbatch", "pass"), ("slurm:start", "pass")]
    assert "on n[1-2] in partition gpu at 20" in found["slurm:start"].detail and "at once" in found["slurm:start"].detail


@pytest.mark.parametrize("start, status", [(600, "pass"), (8000, "advisory")])
def test_one_that_waits(judge, start, status):
    found = judge(Forecast(stamp(start), "n1", "gpu", ""), options="--time=60")["slurm:start"]
    assert found.status == status and "at once" not in found.detail


@pytest.mark.parametrize("odd", ["Unknown", "N/A", "9999-99-99T99:99:99"])
def test_a_time_that_is_none(judge, odd):
    assert judge(Forecast(odd, "n1", "gpu", ""), options="--time=60")["slurm:start"].status == "advisory"


@pytest.mark.parametrize("failure", ["Invalid partition name specified", "Invalid feature specification",
                                     "Invalid account or account/partition combination specified"])
def test_what_sbatch_is_sure_to_refuse_blocks(judge, failure):
    found = judge(Forecast("", "", "", failure), options="--time=60")["slurm:refused"]
    assert found.status == "blocks" and failure in found.detail and found.fix


def test_more_nodes_than_there_are_block(judge):
    found = judge(Forecast("", "", "", CONFIGURATION), options="--nodes=3 --time=60")
    assert found["slurm:refused"].status == "blocks" and "3 nodes, and partition gpu has 2" in found["slurm:limit"].detail


def test_nodes_that_are_away_do_not_block_for_they_come_back(judge):
    found = judge(Forecast("", "", "", CONFIGURATION), unusable={"gpu": (("drained", 1),)}, options="--time=60")
    assert "slurm:refused" not in found and found["slurm:start"].status == "advisory"
    assert "1 drained" in found["slurm:start"].detail


@pytest.mark.parametrize("enforced, name, status", [(False, "slurm:limit", "advisory"), (True, "slurm:refused", "blocks")])
def test_a_limit_of_the_partition(judge, enforced, name, status):
    found = judge(Forecast(stamp(0), "n1", "gpu", ""), options="--time=2-00", enforced=enforced)[name]
    assert found.status == status and "--time=2-00, and partition gpu allows 1-00:00:00" in found.detail


def test_accounts_and_variables(judge):
    only = GPU._replace(accounts="rl,ops")
    start = Forecast(stamp(0), "n1", "gpu", "")
    assert "--account=me" in judge(start, only, "--time=60", environ={"SBATCH_ACCOUNT": "me"})["slurm:limit"].detail
    assert "slurm:limit" not in judge(start, only, "--time=60 --account=ops")


def test_a_partition_that_is_down(judge):
    found = judge(Forecast(stamp(0), "n1", "gpu", ""), GPU._replace(state="DOWN"), "--time=60")["slurm:start"]
    assert found.status == "advisory" and "DOWN" in found.detail


def test_the_time_against_the_estimate(judge):
    start = Forecast(stamp(0), "n1", "gpu", "")
    assert "an earlier run of this config took" in judge(start, options="--time=60", estimate=7200)["slurm:limit"].detail
    assert "slurm:limit" not in judge(start, options="--time=60", estimate=3000)
    assert "gives it 1-00:00:00" in judge(start)["slurm:limit"].detail, "nobody said a time"
    assert "slurm:limit" not in judge(start, GPU._replace(max_time="UNLIMITED"), estimate=1e9)


@pytest.mark.parametrize("test, reason", [
    (None, "sbatch: no end within 10 s"), (Forecast("", "", "", "Unable to contact slurm controller (connect failure)"), "")])
def test_a_controller_that_is_away(judge, test, reason):
    found = judge(test, reason=reason)
    assert list(found) == ["slurm:sbatch", "slurm:unknown"] and found["slurm:unknown"].status == "advisory"


def test_no_sbatch_and_no_submission(clean_env, tmp_path):
    clean_env["PATH"] = str(tmp_path)
    [found] = judge_slurm.judge_submission(make_plan(is_submission=True, own=Own()), clean_env)
    assert (found.name, found.status) == ("slurm:absent", "blocks")
    assert judge_slurm.judge_submission(make_plan(), clean_env) == []


def test_a_start_that_slurm_can_not_reckon(judge):
    """--test-only looks at no dependency and no hold, and takes a job without a time limit for one of a year."""
    start = Forecast(stamp(0), "n1", "gpu", "")
    for options, words in (("--dependency=afterok:9", "can't be told: not before --dependency=afterok:9"), ("--hold", "held")):
        found = judge(start, options="--time=60 " + options)["slurm:start"]
        assert found.status == "advisory" and words in found.detail and "at once" not in found.detail
    for far in ("6109-12-23T09:48:16", stamp(364.9 * 86400)):
        found = judge(Forecast(far, "n1", "gpu", ""), options="--time=60")["slurm:start"]
        assert found.status == "advisory" and "not foreseeable: what is before it has no time limit" in found.detail
        assert far[:10] not in found.detail


@pytest.mark.parametrize("wait, status", [(7200, "advisory"), (600, "pass")])
def test_a_start_that_was_asked_for(judge, wait, status):
    found = judge(Forecast(stamp(wait + 5), "n1", "gpu", ""), options="--time=60 --begin=now+2hours")["slurm:start"]
    assert found.status == status and "not before --begin=now+2hours" in found.detail
    assert "time limits" not in found.detail and "Fewer" not in found.fix


@pytest.mark.parametrize("options, is_told", [
    ("--time=0:10 --signal=B:USR1@120", True), ("--time=2 --signal=B:USR1@120", True), ("--time=3 --signal=B:USR1@120", False),
    ("--time=1 --signal=USR1", True), ("--time=1 --signal=B:USR1@30", True), ("--time=1 --signal=B:USR1@20", False),
    ("--time=1", False), ("--signal=B:USR1@86400", True)])
def test_a_signal_before_the_limit_that_comes_at_the_start(judge, options, is_told):
    found = judge(Forecast(stamp(0), "n1", "gpu", ""), options=options, estimate=1).get("slurm:limit")
    assert (found is not None) is is_told
    if is_told:
        assert found.status == "advisory" and "as soon as it begins" in found.detail and "--signal=" in found.detail
