"""Jobs, GPUs, ports and the sweep, judged on machines made for it."""
import os
import signal
import subprocess
import sys

import pytest
from steps.made import make_gpu, make_machine, make_plan, make_process

from rlrun.steps import guard, judge_machine, shapes
from rlrun.values import GpuHolder, GpuReading, Listener, LiveRun, Port, Sweep, SweepRule, SweptProcess


def names(checks):
    return [(check.name, check.status) for check in checks]


def test_P19_state_is_said():
    words = judge_machine.describe_process(make_process(41877, "VLLM::Worker_TP0", state="D"))
    assert words.startswith("pid 41877 (root), up 1m, in state D: it may not be killable: VLLM::Worker_TP0")


def test_long_and_foul_command_lines():
    words = judge_machine.describe_process(make_process(7, "x" * 500, "\x1b[2J"))
    assert len(words) < 170 and "\x1b" not in words
    assert "[comm]" in judge_machine.describe_process(make_process(7, comm="comm"))


@pytest.mark.parametrize("words", [
    ["vllm", "serve", "m", "--api-key", "topsecretvalue99"], ["vllm", "serve", "--api-key=topsecretvalue99"],
    ["vllm serve m --api-key topsecretvalue99"], ["env", "HF_TOKEN=topsecretvalue99", "x"],
    ["sh", "-c", "curl https://bob:topsecretvalue99@host/"], ["x" * 90, "--api-key", "topsecretvalue99"]])
def test_secrets_of_other_processes_are_not_shown(words):
    process = make_process(7, *words)
    swept = SweptProcess(process, "alice", True)
    shown = [judge_machine.describe_process(process), judge_machine.show_command(process)]
    shown += [check.detail for check in judge_machine.judge_sweep(make_plan(), Sweep((swept,), ()))]
    shown.append(str(shapes.shape_plan(make_plan(), Sweep((swept,), ()), ())))
    holders = (GpuHolder(99, "GPU-0", 9000, " ".join(words)),)
    machine = make_machine(gpus=GpuReading("ok", "", (make_gpu(0, 9000),), holders, ()))
    shown += [check.detail for check in judge_machine.judge_gpus(make_plan(gpu_count=1), machine)]
    assert not [text for text in shown if "topsecret" in text] and judge_machine.show_command(process).count("<redacted>") == 1


def test_a_table_that_is_not_there_is_not_called_hidepid():
    (check,) = judge_machine.judge_jobs(make_plan(), make_machine(is_partial=True))
    assert check.name == "job:hidden" and "/proc is not mounted" in check.detail and "hidepid" not in check.detail
    (check,) = judge_machine.judge_jobs(make_plan(), make_machine([make_process(5, "x")], is_partial=True))
    assert "hidepid" in check.detail


def run_of(*processes):
    return LiveRun("lego", "train", "runner", processes[0], tuple(one.pid for one in processes), "/c")


def test_stop_command_takes_the_group_only_where_it_is_the_run_s():
    own = make_process(999999, "bash")
    assert guard.describe_stop(run_of(own)) == "kill -INT -- -999999"
    other = make_process(999999, "bash", pgid=5)
    assert "-- -" not in guard.describe_stop(run_of(other)) and "999999" in judge_machine.describe_stop(run_of(other))


def test_a_run_of_a_job_that_rlrun_handed_in_is_stopped_as_a_job():
    code = "import subprocess, sys; print(subprocess.Popen(['sleep', '60'], stdout=2).pid, flush=True); sys.stdin.read()"
    for environ, stop in (({"SLURM_JOB_ID": "4", "RLRUN_RECORD": "/r"}, "scancel --batch --signal=INT 4"),
                          ({"SLURM_JOB_ID": "4"}, "kill -INT"), ({"SLURM_JOB_ID": "4; x", "RLRUN_RECORD": "/r"}, "kill -INT")):
        agent = subprocess.Popen([sys.executable, "-c", code], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        pid = int(agent.stdout.readline())
        try:
            process = make_process(pid, "bash")._replace(ppid=agent.pid)
            assert guard.describe_stop(run_of(process)).startswith(stop)
        finally:
            os.kill(pid, signal.SIGKILL)
            agent.communicate()


def test_G1_threshold_counts_what_no_holder_accounts_for():
    for used, held, blocks in ((2000, 0, False), (2001, 0, True), (7000, 5000, False), (7001, 5000, True)):
        holders = (GpuHolder(5, "GPU-0", held, "x"),) if held else ()
        machine = make_machine([make_process(5, "mine")], gpus=GpuReading("ok", "", (make_gpu(0, used),), holders, ()),
                               runs=(run_of(make_process(5, "mine")),))
        checks = judge_machine.judge_gpus(make_plan(gpu_count=1), machine)
        assert any(check.status == "blocks" for check in checks) == blocks


def test_G7_what_a_failing_nvidia_smi_told_counts():
    machine = make_machine(gpus=GpuReading("failed", "why", (make_gpu(0, 61000),), (), ()))
    assert names(judge_machine.judge_gpus(make_plan(gpu_count=1), machine)) == [
        ("gpu:unknown", "advisory"),
        ("gpu:foreign", "blocks"),
    ]


@pytest.mark.parametrize("state", ["absent", "failed", "timeout"])
def test_unknown_gpus_never_block(state):
    machine = make_machine(gpus=GpuReading(state, "why", (), (), ()))
    assert names(judge_machine.judge_gpus(make_plan(), machine)) == [("gpu:unknown", "advisory")]


UNTOLD = make_gpu(0)._replace(index=-1, uuid="GPU-untold")


@pytest.mark.parametrize("visible, count", [(None, 1), (None, 8), ("0", 1), ("1,0", 2), ("GPU-1", 1), ("", 1), ("foo", 2)])
@pytest.mark.parametrize("used, name", [(2000, ""), (2001, "gpu:foreign"), (None, "gpu:unknown")])
def test_G3_a_gpu_without_an_index_is_judged_whatever_the_selection(visible, count, used, name):
    rows = (make_gpu(0), make_gpu(1), UNTOLD._replace(used_mib=used))
    plan = make_plan(gpu_count=count, environment={} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
    checks = judge_machine.judge_gpus(plan, make_machine(gpus=GpuReading("ok", "", rows, (), ())))
    found = [check for check in checks if check.name in ("gpu:foreign", "gpu:unknown")]
    assert [check.name for check in found] == ([name] if name else [])
    assert all("GPU ?" in check.detail and "GPU -1" not in check.detail + check.fix for check in found)


def test_G3_a_gpu_without_an_index_does_not_stand_for_one_that_is_missing():
    plan = make_plan(gpu_count=2, environment={"CUDA_VISIBLE_DEVICES": "0"})
    machine = make_machine(gpus=GpuReading("ok", "", (make_gpu(0), UNTOLD), (), ()))
    assert ("gpu:count", "advisory") in names(judge_machine.judge_gpus(plan, machine))


def test_G3_a_holder_of_a_gpu_without_an_index():
    machine = make_machine(gpus=GpuReading("ok", "", (make_gpu(0), UNTOLD), (GpuHolder(9, "GPU-untold", 9000, "x"),), ()))
    (check,) = judge_machine.judge_gpus(make_plan(gpu_count=1), machine)
    assert check.name == "gpu:foreign" and "8.8 GiB on GPU ?" in check.detail


def test_G3_a_holder_without_a_uuid_accounts_for_no_gpu():
    rows = (make_gpu(0, 9000)._replace(uuid=""), make_gpu(1, 9000)._replace(uuid=""))
    machine = make_machine([make_process(5, "mine")], gpus=GpuReading("ok", "", rows, (GpuHolder(5, "", 9000, "x"),), ()),
                           runs=(run_of(make_process(5, "mine")),))
    told = names(judge_machine.judge_gpus(make_plan(gpu_count=2), machine))
    assert told == [("gpu:mine", "advisory"), ("gpu:foreign", "blocks"), ("gpu:foreign", "blocks")]


def test_G3_lines_that_are_no_row_are_quoted():
    lines = ("WARNING: \x1b[2J" + "x" * 500,) + tuple("line %d" % number for number in range(20))
    machine = make_machine(gpus=GpuReading("ok", "", (make_gpu(0),), (), (), lines))
    checks = judge_machine.judge_gpus(make_plan(gpu_count=1), machine)
    assert {(check.name, check.status) for check in checks} == {("gpu:unknown", "advisory")} and checks[0].fix
    assert "no GPU: WARNING: \\x1b[2Jxxx" in checks[0].detail and len(checks[0].detail) < 170
    assert "line 3" in checks[4].detail and "more lines" in checks[-1].detail and len(checks) < 15


def test_G7_a_lost_gpu_is_named_where_no_other_answers():
    machine = make_machine(gpus=GpuReading("failed", "why", (), (), ("GPU 0000:03:00.0: GPU requires reset",)))
    assert names(judge_machine.judge_gpus(make_plan(), machine)) == [("gpu:unknown", "advisory"), ("gpu:lost", "advisory")]


@pytest.mark.parametrize("word", ["foo", "", "-1", "9", "0,0", "GPU-x", "GPU-x" * 99])
def test_G9_a_selection_of_no_gpu_judges_all(word):
    machine = make_machine(gpus=GpuReading("ok", "", (make_gpu(0), make_gpu(1, 9000)), (), ()))
    checks = judge_machine.judge_gpus(make_plan(gpu_count=1, environment={"CUDA_VISIBLE_DEVICES": word}), machine)
    assert names(checks) == [("gpu:order", "advisory"), ("gpu:foreign", "blocks")]
    assert "CUDA_VISIBLE_DEVICES=%s" % (word[:100] or "''") in checks[0].detail and len(checks[0].detail) < 250
    assert "names none of these GPUs" in checks[0].detail and "all 2 were judged" in checks[0].detail


def test_several_gpus_of_one_finding_are_one_line():
    rows = tuple(make_gpu(index, ecc=3) for index in range(8))
    (check, _) = judge_machine.judge_gpus(make_plan(), make_machine(gpus=GpuReading("ok", "", rows, (), ())))
    assert (check.name, check.detail) == ("gpu:ecc", "GPU 0-7 have uncorrected memory errors (3, 3, 3, 3, 3, 3, 3, 3)")
    rows = tuple(make_gpu(index, ecc=index % 2 * index) for index in range(6)) + (UNTOLD._replace(ecc_errors=9),)
    (check, _) = judge_machine.judge_gpus(make_plan(gpu_count=6), make_machine(gpus=GpuReading("ok", "", rows, (), ())))
    assert check.detail == "GPU 1,3,5,? have uncorrected memory errors (1, 3, 5, 9)"
    (check, _) = judge_machine.judge_gpus(make_plan(gpu_count=2), make_machine(gpus=GpuReading("ok", "", rows[:2], (), ())))
    assert check.detail == "GPU 1 has 1 uncorrected memory errors"
    rows = tuple(make_gpu(index, None) for index in range(8))
    (check,) = judge_machine.judge_gpus(make_plan(), make_machine(gpus=GpuReading("ok", "", rows, (), ())))
    assert (check.name, check.detail) == ("gpu:unknown", "GPU 0-7 do not tell how much memory is in use")


def test_a_holder_without_a_name():
    machine = make_machine(gpus=GpuReading("ok", "", (make_gpu(0),), (GpuHolder(9, "GPU-0", None, ""),), ()))
    (check,) = judge_machine.judge_gpus(make_plan(gpu_count=1), machine)
    assert check.detail == "pid 9, which is not visible here: name not told, unknown memory on GPU 0"


def test_holders_of_other_gpus_do_not_count():
    machine = make_machine(gpus=GpuReading("ok", "", (make_gpu(0), make_gpu(1, 9000)), (GpuHolder(9, "GPU-1", 9000, "x"),), ()))
    assert names(judge_machine.judge_gpus(make_plan(gpu_count=1), machine)) == [("gpu:idle", "pass")]


def test_one_holder_of_many_gpus_is_one_line():
    holders = tuple(GpuHolder(9, "GPU-%d" % index, 1024, "x") for index in range(8))
    machine = make_machine(gpus=GpuReading("ok", "", tuple(make_gpu(index, 1024) for index in range(8)), holders, ()))
    (check,) = judge_machine.judge_gpus(make_plan(), machine)
    assert "8.0 GiB on GPU 0-7" in check.detail and check.name == "gpu:foreign"


@pytest.mark.parametrize(
    "indices, words",
    [([0], "GPU 0"), ([0, 1], "GPU 0,1"), ([2, 1, 0], "GPU 0-2"), ([0, 2, 3], "GPU 0,2,3"), ([], "a GPU that can't be told"),
     ([-1], "GPU ?"), ([2, -1, 0, 1], "GPU 0-2,?")],
)
def test_gpu_names(indices, words):
    assert judge_machine._name_gpus(indices) == words


def listener(port, address="0.0.0.0", inode=0, uid=0):
    return Listener(port, address, inode, uid)


def test_ports():
    plan = make_plan(ports=(Port(6379, "ray"), Port(8265, "ray dashboard")))
    assert names(judge_machine.judge_ports(plan, make_machine())) == [("port:free", "pass")]
    machine = make_machine(listeners=(listener(6379, uid=65534), listener(8000)))
    (check,) = judge_machine.judge_ports(plan, machine)
    assert check.name == "port:conflict" and "nobody" in check.detail and "pid" not in check.detail
    assert names(judge_machine.judge_ports(plan, machine, is_head=False)) == [("port:free", "pass")]


def test_N3_time_wait_is_a_note():
    plan = make_plan(ports=(Port(6379, "ray"),))
    (check,) = judge_machine.judge_ports(plan, make_machine(waiting_ports=(22, 6379)))
    assert check.status == "pass" and "6379: closed connections in TIME_WAIT" in check.detail


def test_unknown_ports_are_skipped():
    assert names(judge_machine.judge_ports(make_plan(block=""), make_machine())) == [("port:free", "skipped")]


def test_ports_without_a_table_are_unknown(monkeypatch):
    monkeypatch.setattr(judge_machine.ports, "has_port_table", lambda: False)
    plan = make_plan(ports=(Port(6379, "ray"), Port(8265, "ray dashboard")))
    (check,) = judge_machine.judge_ports(plan, make_machine())
    assert (check.name, check.status) == ("port:unknown", "advisory") and "6379 8265" in check.detail and check.fix
    assert names(judge_machine.judge_ports(plan, make_machine(), is_head=False)) == [("port:free", "pass")]


RULE = SweepRule(("vllm|raylet",), (), "rule", True)


def test_sweep_reaches_all_users_only_as_root():
    machine = make_machine(
        [
            make_process(5, "vllm", uid=1000),
            make_process(6, "tail", "x_vllm.log", uid=os.geteuid()),
            make_process(7, "vim"),
            make_process(8, "vllm", state="Z"),
            make_process(os.getpid(), "python3", "rlrun.pyz", "vllm.env"),
        ]
    )
    swept = judge_machine.find_swept(make_plan(sweep=RULE), machine)
    expected = [(5, True), (6, False)] if os.geteuid() == 0 else [(6, False)]
    assert [(one.process.pid, one.is_foreign) for one in swept] == expected


def test_sweep_blocks_for_foreign_processes_only():
    own, other = (SweptProcess(make_process(5, "vllm"), "me", False), SweptProcess(make_process(6, "vllm"), "alice", True))
    assert names(judge_machine.judge_sweep(make_plan(), Sweep((own,), ()))) == [("sweep:own", "advisory")]
    assert names(judge_machine.judge_sweep(make_plan(), Sweep((own, other), ()))) == [
        ("sweep:own", "advisory"),
        ("sweep:foreign", "blocks"),
    ]
    assert names(judge_machine.judge_sweep(make_plan(), Sweep((), ()))) == [("sweep:none", "pass")]


def test_sweep_blocks_for_a_foreign_one_far_down_the_list():
    many = tuple(SweptProcess(make_process(pid, "vllm"), "me", False) for pid in range(10, 40))
    checks = judge_machine.judge_sweep(make_plan(), Sweep(many + (SweptProcess(make_process(99, "vllm"), "alice", True),), ()))
    assert checks[-1].name == "sweep:foreign" and "1 of them" in checks[-1].detail


def test_sweep_that_would_match_the_runner_itself():
    rule = SweepRule(("vllm serve",), (), "rule", False)
    plan = make_plan(sweep=rule, argv=("bash", "scripts/eval/eval.sh", "my vllm serve.env"))
    assert names(judge_machine.judge_sweep(plan, Sweep((), ()))) == [("sweep:self", "advisory")]


def test_cluster_that_the_launch_would_end_blocks():
    raylet = make_process(9, "/r/raylet", uid=os.geteuid())
    machine = make_machine([raylet], clusters=(raylet,))
    assert names(judge_machine.judge_jobs(make_plan(sweep=RULE), machine)) == [("job:running", "blocks")]
    assert names(judge_machine.judge_jobs(make_plan(), machine)) == [("job:none", "pass")]
