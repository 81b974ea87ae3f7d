"""What a live run has laid claim to, out of records made for it; the run that lives is this test's own process."""
import json
import os

import pytest
from steps.made import make_machine, make_plan, make_process

from rlrun.host import procs, slurm
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


def test_jobs_that_were_handed_in_for_the_same_directory(tmp_path, monkeypatch):
    """Slurm is asked only of those whose directory is this one's, and only once it is there."""
    asked = []

    def answer(jobs, environ, seconds):
        asked.append(list(jobs))
        return {"7": slurm.Job(*["7", "PENDING"] + [""] * (len(slurm.Job._fields) - 2)), "8": slurm.Job(
            *["8", "COMPLETED"] + [""] * (len(slurm.Job._fields) - 2))}, "squeue hung"
    monkeypatch.setattr(slurm, "read_jobs", answer)
    folder = tmp_path / "outputs" / "mine"
    add_record(tmp_path, exit_status=0, facts={"jobs": ["7", "8", "9"]})
    add_record(tmp_path, "20260802-130000-rl-other", exit_status=0, own_dirs=["/elsewhere"], facts={"jobs": ["5"]})
    plan = plan_at(tmp_path, is_submission=True, own_dirs=(str(folder),))
    assert claims.judge_claims(plan, make_machine()) == [] and asked == []
    folder.mkdir(parents=True)
    running, unknown = claims.judge_claims(plan, make_machine())
    assert asked == [["7", "8", "9"]]
    assert (running.name, running.status) == ("job:running", "blocks") and "job 7 was handed in" in running.detail
    assert (unknown.name, unknown.status) == ("slurm:unknown", "advisory") and "job 9, " in unknown.detail
