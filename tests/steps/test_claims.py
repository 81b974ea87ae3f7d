"""What a live run has laid claim to, out of records made for it; the run that lives is this test's own process."""
import json
import os

import pytest
from steps.made import make_machine, make_plan, make_process

from rlrun.host import procs, slurm_queue
from rlrun.steps import claims
from rlrun.values import Listener, LiveRun, Port

PORTS = (Port(8000, "router"), Port(8100, "engine"))


def add_record(root, name="20260802-120000-rl-x", pid=None, exit_status=None, **given):
    """A record as `run` leaves it, of this process or another."""
    own = procs.read_identity(os.getpid())
    told = {"schema": 1, "id": name, "state": "running", "stack": "prime", "kind": "rl", "root": str(root),
            "boot_id": own.boot_id, "host": os.uname().nodename, "time_seconds": 1.0, "ports": [8000], "gpus": ["0", "1"],
            "own_dirs": [str(root) + "/outputs/mine"], "runner": {
                "pid": pid or os.getpid(), "start_ticks": own.start_ticks, "pgid": os.getpid(), "keeper": os.getppid()}}
    told.update(given)
    folder = os.path.join(str(root), "logs", "rlrun", name)
    os.makedirs(folder)
    for file_name, value in (("record.json", told), ("exit.json", {"status": exit_status})):
        if value is told or exit_status is not None:
            with open(os.path.join(folder, file_name), "w") as out:
                json.dump(value, out)
    return name


def plan_at(root, **given):
    values = dict(stack="prime", kind="rl", root=str(root), takes_whole_box=False, gpu_count=2, ports=PORTS)
    return make_plan(**dict(values, **given))


def run_at(root, pid, stack="prime"):
    top = make_process(pid, "x")
    return LiveRun(stack, "rl", "runner", top, (pid,), str(root))


def names(checks):
    return [check.name for check in checks]


@pytest.mark.parametrize("count, visible, expected", [
    (2, None, ("0", "1")), (2, "4, 5,6", ("4", "5")), (4, "4,5", ("4", "5")), (2, "", ()), (2, " , ", ()), (0, None, ()),
    (None, "0,1", ()), (2, "GPU-8f1c,MIG-1", ("GPU-8f1c", "MIG-1"))])
def test_the_gpus_of_a_plan(count, visible, expected):
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert claims.name_gpus(make_plan(gpu_count=count, environment=environment)) == expected


def test_a_plan_of_thousands_of_millions_of_gpus_is_no_list_of_them():
    assert claims.name_gpus(make_plan(gpu_count=2 * 10 ** 9)) == tuple(map(str, range(1024)))
    assert len(claims.name_gpus(make_plan(gpu_count=10 ** 18, environment={"CUDA_VISIBLE_DEVICES": "1," * 5000}))) == 1024


def test_a_live_run_blocks_what_it_has_laid_claim_to(tmp_path):
    name = add_record(tmp_path)
    plan = plan_at(tmp_path, own_dirs=(str(tmp_path / "outputs" / "mine"), "/ck"))
    checks = claims.judge_claims(plan, make_machine())
    who = "the run that pid %d began (%s)" % (os.getpid(), name)
    assert [(check.name, check.status, check.detail) for check in checks] == [
        ("job:running", "blocks", "%s/outputs/mine is written to by %s" % (tmp_path, who)),
        ("port:conflict", "blocks", "8000 (router) will be bound by " + who),
        ("gpu:foreign", "blocks", "GPU 0,1 is taken by " + who)]
    assert "rlrun runs %s" % name in checks[0].fix and "CUDA_VISIBLE_DEVICES" in checks[2].fix


@pytest.mark.parametrize("given, expected", [
    ({}, []), ({"ports": PORTS}, ["port:conflict"]), ({"gpu_count": 3}, ["gpu:foreign"]), ({"gpu_count": None}, []),
    ({"gpu_count": 3, "environment": {"CUDA_VISIBLE_DEVICES": "2,1"}}, ["gpu:foreign"]),
    ({"own_dirs": ("ROOT/outputs/mine",)}, ["job:running"]), ({"own_dirs": ("ROOT/outputs/mine2", "ROOT/outputs/min")}, [])])
def test_only_what_both_want_is_in_the_way(tmp_path, given, expected):
    add_record(tmp_path)
    given = dict(given, own_dirs=tuple(path.replace("ROOT", str(tmp_path)) for path in given.get("own_dirs", ())))
    plan = plan_at(tmp_path, **dict({"ports": (), "environment": {"CUDA_VISIBLE_DEVICES": "2,3"}}, **given))
    if "gpu_count" in given and "environment" not in given:
        plan = plan._replace(environment={})
    assert names(claims.judge_claims(plan, make_machine())) == expected


def test_a_directory_is_the_same_by_every_link_that_leads_to_it(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "outputs").symlink_to("real")
    add_record(tmp_path)
    for path in ("real/mine", "outputs/mine", "outputs/../real/mine"):
        (check,) = claims.judge_claims(plan_at(tmp_path, own_dirs=(str(tmp_path / path),), ports=(), gpu_count=0), make_machine())
        assert check.name == "job:running" and check.detail.startswith(str(tmp_path / path))


def test_of_a_submission_only_the_directory_counts(tmp_path):
    add_record(tmp_path)
    plan = plan_at(tmp_path, is_submission=True, own_dirs=(str(tmp_path / "outputs" / "mine"),))
    assert names(claims.judge_claims(plan, make_machine())) == ["job:running"]
    assert claims.judge_claims(plan._replace(own_dirs=()), make_machine()) == []


def test_a_port_that_somebody_listens_on_already_is_told_elsewhere(tmp_path):
    add_record(tmp_path, ports=[8000, 8100, "8001", None], gpus=[])
    machine = make_machine(listeners=(Listener(8000, "0.0.0.0", 1, 0),))
    (check,) = claims.judge_claims(plan_at(tmp_path), machine)
    assert check.name == "port:conflict" and check.detail.startswith("8100 (engine) will be bound")


@pytest.mark.parametrize("given", [
    {"exit_status": 0}, {"pid": 999999999}, {"boot_id": "another"}, {"runner": None}, {"runner": {"pid": 1, "start_ticks": 1}},
    {"runner": "x"}, {"own_dirs": "x", "ports": {}, "gpus": 7}], ids=str)
def test_runs_that_do_not_live_and_records_that_tell_nothing(tmp_path, given):
    add_record(tmp_path, **given)
    (tmp_path / "logs" / "rlrun" / "broken").mkdir()
    (tmp_path / "logs" / "rlrun" / "broken" / "record.json").write_text("{")
    assert claims.judge_claims(plan_at(tmp_path, own_dirs=(str(tmp_path / "outputs" / "mine"),)), make_machine()) == []


def test_a_record_of_an_older_rlrun_has_no_directories(tmp_path):
    add_record(tmp_path, own_dirs=None)
    (claim,) = claims.list_claims(plan_at(tmp_path), make_machine())
    assert (claim.pid, claim.ports, claim.gpus, claim.directories) == (os.getpid(), (8000,), ("0", "1"), ())


def test_other_checkouts_count_where_a_run_of_theirs_is_seen(tmp_path):
    other = tmp_path / "other"
    name = add_record(other)
    plan = plan_at(tmp_path / "this")
    assert claims.list_claims(plan, make_machine()) == []
    (claim,) = claims.list_claims(plan, make_machine(runs=(run_at(other, 7), run_at(other, 8), run_at("", 9))))
    assert (claim.id, claim.directories) == (name, (os.path.realpath(str(other / "outputs" / "mine")),))


def test_a_run_that_blocks_anyway_is_no_second_reason(tmp_path):
    add_record(tmp_path)
    lego = make_machine(runs=(run_at(tmp_path, os.getpid(), "lego"),))
    assert claims.list_claims(plan_at(tmp_path), lego) == []
    prime = make_machine(runs=(run_at(tmp_path, os.getpid()),))
    assert claims.list_claims(plan_at(tmp_path, takes_whole_box=True), prime) == []
    assert len(claims.list_claims(plan_at(tmp_path), prime)) == 1


def test_only_the_newest_records_are_read(tmp_path):
    add_record(tmp_path, "20260101-000000-rl-old")
    for number in range(64):
        (tmp_path / "logs" / "rlrun" / ("20260802-1200%02d-rl-x" % number)).mkdir()
    assert claims.list_claims(plan_at(tmp_path), make_machine()) == []
    add_record(tmp_path, "20260802-130000-rl-new")
    assert [claim.id for claim in claims.list_claims(plan_at(tmp_path), make_machine())] == ["20260802-130000-rl-new"]


@pytest.fixture
def squeue(monkeypatch):
    """squeue(states, reason) -> the list of questions that were asked."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    asked = []

    def answer(states, reason=""):
        def read_live(ids, env, seconds):
            asked.append(list(ids))
            return {one: states[one] for one in ids if one in states}, reason
        monkeypatch.setattr(slurm_queue, "read_live", read_live)
        return asked
    return answer


def test_jobs_that_were_handed_in_for_the_same_directory(tmp_path, squeue):
    """Slurm is asked only of those whose directory is this one's, and only once it is there."""
    asked = squeue({"7": "PENDING"})
    folder = tmp_path / "outputs" / "mine"
    add_record(tmp_path, exit_status=0, facts={"jobs": ["7", "8", "9"]})
    add_record(tmp_path, "20260802-130000-rl-other", exit_status=0, own_dirs=["/elsewhere"], facts={"jobs": ["5"]})
    plan = plan_at(tmp_path, is_submission=True, own_dirs=(str(folder),))
    assert claims.judge_claims(plan, make_machine()) == [] and asked == []
    folder.mkdir(parents=True)
    (running,) = claims.judge_claims(plan, make_machine())
    assert asked == [["7", "8", "9"]]
    assert (running.name, running.status) == ("job:running", "blocks") and "job 7 was handed in" in running.detail
    assert "scancel 7," in running.fix
    squeue({}, "squeue hung")
    (unknown,) = claims.judge_claims(plan, make_machine())
    assert (unknown.name, unknown.status) == ("slurm:unknown", "advisory") and "job 7 8 9, " in unknown.detail
    assert "for this directory" in unknown.detail and "squeue hung" in unknown.detail


def add_job(root, job, name, **given):
    values = dict(exit_status=0, stack="lego", kind="train", own_dirs=[], ports=[], gpus=[], facts={"jobs": [job]}, batch={},
                  project="p", experiment="pin", config_path="/c/x.env", gentle_stop=True)
    return add_record(root, name, **dict(values, **given))


def plan_of_a_job(root, **given):
    return plan_at(root, **dict(dict(stack="lego", kind="train", project="p", experiment="pin", name_is_volatile=False, ports=(),
                                     config="/c/x.env", is_submission=True, own_dirs=()), **given))


@pytest.mark.parametrize("state, stop", [("PENDING", "scancel 4"), ("RUNNING", "scancel --batch --signal=INT 4")])
def test_a_job_of_the_same_name_blocks_with_what_stops_it(tmp_path, squeue, state, stop):
    asked = squeue({"4": state})
    add_job(tmp_path, "3", "20260802-110000-train-x")
    add_job(tmp_path, "4", "20260802-120000-train-x")
    add_job(tmp_path, "5", "20260802-130000-train-y", experiment="another")
    (found,) = claims.judge_claims(plan_of_a_job(tmp_path), make_machine())
    assert asked == [["4", "3"]], "one question, and of no other name"
    assert (found.name, found.status) == ("job:running", "blocks") and "job 4 of this name (pin) is " + state in found.detail
    assert "stop it: %s, then" % stop in found.fix
    assert names(claims.judge_claims(plan_of_a_job(tmp_path, is_submission=False), make_machine())) == ["job:running"]
    squeue({}, "squeue: no end within 5 s")
    (unknown,) = claims.judge_claims(plan_of_a_job(tmp_path), make_machine())
    assert unknown.name == "slurm:unknown" and "for this name" in unknown.detail and "no end within 5 s" in unknown.detail


@pytest.mark.parametrize("given", [
    {"project": "q"}, {"experiment": "pin2"}, {"kind": "eval"}, {"stack": "prime"}, {"batch": None}])
def test_a_job_of_another_name_or_kind_is_not_asked_for(tmp_path, squeue, given):
    asked = squeue({"4": "RUNNING"})
    add_job(tmp_path, "4", "20260802-120000-train-x", **given)
    assert claims.judge_claims(plan_of_a_job(tmp_path), make_machine()) == [] and asked == []


def test_the_same_log_is_the_same_name(tmp_path, squeue):
    squeue({"4": "RUNNING"})
    add_job(tmp_path, "4", "20260802-120000-train-x", experiment="", train_log="/l/pin.log")
    assert names(claims.judge_claims(plan_of_a_job(tmp_path, train_log="/l/pin.log"), make_machine())) == ["job:running"]


def test_a_job_whose_name_is_made_anew_is_told_and_blocks_nothing(tmp_path, squeue):
    squeue({"4": "RUNNING", "5": "RUNNING"})
    name = add_job(tmp_path, "4", "20260802-120000-train-x", experiment="", name_is_volatile=True)
    add_job(tmp_path, "5", "20260802-130000-train-y", experiment="", name_is_volatile=True, config_path="/c/y.env")
    plan = plan_of_a_job(tmp_path, name_is_volatile=True, experiment="x_20260802")
    (found,) = claims.judge_claims(plan, make_machine())
    assert (found.name, found.status) == ("job:beside", "advisory") and "job 4 of this config is RUNNING" in found.detail
    assert name in found.detail and "scancel --batch --signal=INT 4" in found.fix
    assert claims.judge_claims(plan._replace(is_submission=False), make_machine()) == []


def test_a_job_is_not_in_its_own_way(tmp_path, squeue, monkeypatch):
    asked = squeue({"4": "RUNNING"})
    add_job(tmp_path, "4", "20260802-120000-train-x")
    monkeypatch.setenv("SLURM_JOB_ID", "4")
    assert claims.judge_claims(plan_of_a_job(tmp_path, is_submission=False), make_machine()) == [] and asked == []
