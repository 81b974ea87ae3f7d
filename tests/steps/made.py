"""Values made for tests: a plan, a machine, a process, each right in all that the test does not name."""
from rlrun.values import Gpu, GpuReading, Machine, Plan, Process, SweepRule, Topology


def make_plan(**given):
    values = dict(
        stack="lego",
        kind="train",
        root="/c",
        config="/c/scripts/train/configs/x.env",
        config_shown="scripts/train/configs/x.env",
        sources=(),
        unread_sources=(),
        overrides=(),
        project="p",
        experiment="e",
        name_is_volatile=False,
        block="the block",
        second_look=(),
        train_log="/c/logs/e.log",
        vllm_log="/c/logs/e_vllm.log",
        trials="/c/t",
        checkpoints="/c/checkpoints/p/e",
        resume_mode="auto",
        python="/usr/bin/python3",
        argv=("bash", "scripts/train/train.sh", "scripts/train/configs/x.env"),
        drop_env=(),
        launch_command="run it",
        environment={},
        set_names=(),
        volatile_names=(),
        topology=Topology(1, "", "MASTER_ADDR", 6379, ""),
        gpu_count=8,
        takes_whole_box=True,
        ports=(),
        modules=(),
        soft_modules=(),
        venv="",
        ray_dir="/tmp/ray",
        shm_bytes=1 << 30,
        sweep=SweepRule((), (), "nothing", True),
        write_dirs=(),
        prints_secrets=False,
        gates=(),
        stage="",
    )
    values.update(given)
    return Plan(**values)


def make_machine(processes=(), **given):
    values = dict(processes={one.pid: one for one in processes}, is_partial=False, runs=(), clusters=(), orphans=(),
                  gpus=GpuReading("ok", "", (), (), ()), listeners=(), waiting_ports=(), boards=())
    values.update(given)
    return Machine(**values)


def make_process(pid, *argv, ppid=1, uid=0, state="S", start=100, comm="x", pgid=None):
    return Process(pid, ppid, pgid or pid, pid, uid, state, start, 60.0, comm, tuple(argv))


def make_gpu(index, used=4, name="H100", ecc=0):
    return Gpu(index, "GPU-%d" % index, "0:%d" % index, name, used, 81559, 0, ecc)
