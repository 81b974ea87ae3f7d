"""`rl` and `sft`: the run directory, the parts' configs, the children, SLURM."""
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from fnmatch import fnmatch

from prime_rl.configs.kinds import RLConfig, SFTConfig, name_source
from prime_rl.process import IS_NEW, find_resume_step, find_steps, say, set_title, start, stop, write
from prime_rl.utils.config import cli, join

COMMON = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
ARTIFACTS = ("configs", "launcher") if IS_NEW else ("configs", "rl.sbatch", "sft.sbatch", "job_*.log")
NOT_SERVED = ("deployment", "slurm", "output_dir", "dry_run")
NOT_RUN = ("slurm", "dry_run", "clean")
NODES = """export CONFIG_DIR=%s LOG_DIR=%s NUM_INFER_NODES=%d
mkdir -p "$LOG_DIR"
srun bash -c 'if [ "$SLURM_PROCID" -lt "$NUM_INFER_NODES" ]; then
    exec inference @ "$CONFIG_DIR/inference.json" >"$LOG_DIR/inference.log" 2>&1
fi
exec torchrun --role=trainer -m prime_rl.trainer.%s.train @ "$CONFIG_DIR/%s.json" >"$LOG_DIR/trainer.log" 2>&1'"""


def open_run(config):
    """The real one's rules, deletions and all, before anybody looks at dry_run."""
    os.environ.setdefault("PRL_RUN_ID", os.urandom(16).hex())
    os.environ["PRL_RUN_NAME"] = config.run.name
    run_dir, ckpt_dir = join(config.output_dir, config.run.dir), config.ckpt and config.ckpt.output_dir
    blocked = ""
    if not config.resume and config.clean and not os.environ.get("NEVER_CLEAN"):
        if os.path.relpath(os.path.realpath(run_dir), os.path.realpath(config.output_dir)).startswith(".."):
            raise ValueError("clean requires the run directory (%s) to remain under output_dir" % run_dir)
        for folder in filter(os.path.exists, filter(None, (run_dir, ckpt_dir))):
            say("Cleaning existing directory: %s" % folder, "WARNING")
            shutil.rmtree(folder)
    elif not config.resume:
        names = os.listdir(run_dir) if os.path.isdir(run_dir) else []
        if not all(any(fnmatch(name, pattern) for pattern in ARTIFACTS) for name in names):
            blocked = "Run directory '%s' already contains artifacts" % run_dir
        elif ckpt_dir and os.path.isdir(ckpt_dir + "/checkpoints") and os.listdir(ckpt_dir + "/checkpoints"):
            blocked = "Checkpoint directory '%s' already contains checkpoints" % ckpt_dir
    if blocked:
        raise FileExistsError(
            blocked + " from a previous run. To resume the latest step of the previous run, pass --resume (or --resume.step "
            "N). To delete the existing directory and start fresh, set clean=true or --clean via CLI. Otherwise use a unique "
            "run name (run.name or --run.name via CLI) or output_dir for this run.")
    for folder in filter(None, (run_dir, ckpt_dir)):
        os.makedirs(folder, exist_ok=True)
    return run_dir


def clean_future_steps(run_dir, step):
    for folder in (run_dir + "/rollouts", run_dir + "/broadcasts"):
        stale = [number for number in find_steps(folder) if number > step]
        if stale:
            say("Deleting %d step directories in %s (%s)" % (len(stale), folder, ",".join(map(str, stale))))
        for number in stale:
            shutil.rmtree("%s/step_%d" % (folder, number))


def make_attempt(folder):
    """A new attempt_<n> in it, and `latest` points there."""
    os.makedirs(folder, exist_ok=True)
    known = [int(name[8:]) for name in os.listdir(folder) if name.startswith("attempt_")]
    name = "attempt_%d" % (1 + max(known or [0]))
    os.mkdir("%s/%s" % (folder, name))
    os.symlink(name, "%s/.%s" % (folder, name))
    os.replace("%s/.%s" % (folder, name), folder + "/latest")
    return "%s/%s" % (folder, name)


def make_config_dir(run_dir):
    if not IS_NEW:
        return run_dir + "/configs"
    folder = make_attempt(run_dir + "/configs")
    write(folder + "/command.txt", "uv run %s\n" % " ".join(map(shlex.quote, [os.path.basename(sys.argv[0])] + sys.argv[1:])))
    return folder + "/resolved"


def list_servers(holder, splits):
    """(split, name, address, source) of each environment that the launcher serves."""
    found = []
    for split, sources in splits:
        for source in sources:
            address = "tcp://127.0.0.1:%d" % (holder["env_server_base_port"] + len(found))
            found.append((split, name_source(source), address, source))
    return [server for server in found if server[3]["serve"]["address"] is None]


def write_servers(folder, servers):
    for split, name, address, source in servers:
        write("%s/envs/%s/%s.json" % (folder, split, name), {
            "env": source["env"], "serve": dict(source["serve"], address=address), "log": {"level": "info"}})


def find_gpus(count):
    """The first `count` of the GPUs that this process may use."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    found = list(range(8))
    if visible is not None:
        found = [int(word) for word in visible.split(",") if word.strip()]
    elif shutil.which("nvidia-smi"):
        found = list(range(len(subprocess.check_output(["nvidia-smi", "-L"], env=os.environ).splitlines())))
    if count > len(found):
        raise ValueError("Requested %d GPUs via deployment settings, but only %d physical GPU(s) are available: %s" % (
            count, len(found), found))
    return found[:count]


def submit(config, kind, run_dir, nodes, command, logs):
    """Writes <kind>.sbatch and hands it to sbatch, or says how to."""
    slurm, is_sft = config.slurm, kind == "sft"
    path = join(run_dir, "launcher" * IS_NEW, kind + ".sbatch")
    job_log = join(run_dir, "launcher/logs" * IS_NEW, "job_%j.log")
    os.makedirs(os.path.dirname(job_log), exist_ok=True)
    head = [("job-name", slurm.job_name), ("nodes", nodes), ("gres", "gpu:%d" % config.deployment.gpus_per_node),
            ("partition", slurm.partition), ("account", slurm.account), ("time", slurm.time), ("nodelist", slurm.nodelist),
            ("exclude", slurm.exclude), ("output", job_log), ("error", job_log)]
    lines = ["#!/bin/bash"] + ["#SBATCH --%s=%s" % pair for pair in head if pair[1]] + [
        "set -e", "export PROJECT_DIR=" + shlex.quote(slurm.project_dir), 'cd "$PROJECT_DIR"',
        'export PATH="$PROJECT_DIR/.venv/bin:$PATH"', slurm.pre_run_command or "", command, ""]
    write(path, "\n".join(lines))
    say("Wrote SLURM script to %s" % path)
    logs = "Logs:" + "".join("\n  %-18stail -F %s/%s" % (name + ":", run_dir, log) for name, log in logs)
    if config.dry_run:
        return say("Dry run complete. To submit manually:\n\n  sbatch %s\n\n%s" % (path, logs), "SUCCESS")
    words = ["sbatch"] + ["--parsable"] * is_sft + [path]
    say("Submitting: %s" % " ".join(words))
    done = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, env=os.environ)
    out, err = done.communicate()
    if done.returncode:
        say("sbatch failed: %s" % err.strip(), "ERROR")
        sys.exit(1)
    if is_sft:
        say("Submitted batch job %s" % out.strip().split(";")[0], "SUCCESS")
    return say(logs if is_sft else "%s\n\n%s" % (out.strip(), logs), "SUCCESS")


def run_children(plans, awaited, shown, logs, last_words, has_dashboard):
    """Starts each of (name, announcement, words, log, environment) and stays until the awaited ones have ended."""
    children = {}

    def end(words, level="WARNING"):
        say(words, level)
        stop(list(children.values()))
        sys.exit(1)

    signal.signal(signal.SIGTERM, lambda *_: end("Received SIGTERM, terminating all processes..."))
    try:
        for name, announcement, words, log, environ in plans:
            say(announcement)
            children[name] = start(words, log, **environ)
        say("Startup complete. Showing %s logs..." % shown, "SUCCESS")
        url = os.environ.get("TOY_DASHBOARD")
        if IS_NEW and url and has_dashboard:
            write(os.path.expanduser("~/.cache/prime-rl/dashboard/daemon.json"), {"url": url})
            say("Dashboard \u00b7 %s" % url, "SUCCESS")
        watched = dict(children)
        children["tail"] = start(["sh", "-c", "tail -F %s" % shlex.quote("%s/%s.log" % (logs, shown))])
        while any(watched[name].poll() is None for name in awaited) or any(child.poll() for child in watched.values()):
            for name, child in watched.items():
                if child.poll():
                    say("Error: %s failed with exit code %d" % (name.capitalize(), child.returncode), "ERROR")
                    end("Terminating all processes...", "ERROR")
            time.sleep(0.05)
        say(last_words, "SUCCESS")
        stop(list(children.values()))
    except KeyboardInterrupt:
        end("Received interrupt signal, terminating all processes...")
    except Exception:
        stop(list(children.values()))
        raise


def run_local(config, kind, run_dir, folder, servers):
    place, inference, gpus = config.deployment, config.inference, []
    serving = place.num_infer_gpus if inference else 0
    if inference or kind == "rl":
        gpus = [str(gpu) for gpu in find_gpus(serving + place.num_train_gpus)]
        say("Using local->physical GPU mapping: {%s}" % ", ".join("%d: %s" % pair for pair in enumerate(gpus)))
    if kind == "rl" and inference and ":%d/" % inference.server.port not in config.orchestrator.model.client.base_url:
        raise ValueError("orchestrator.model.client.base_url (%s) does not match inference.server.port (%d)." % (
            config.orchestrator.model.client.base_url, inference.server.port))
    say("Starting %s run" % kind.upper())
    logs, plans = make_attempt(run_dir + "/logs"), []

    def plan(name, where, log, config_name, words, **extra):
        plans.append((name, "Starting %s %s" % (name, where), words + ["@", "%s/%s.json" % (folder, config_name)],
                      "%s/%s.log" % (logs, log), dict(COMMON, **dict(config.data["env_vars"], **extra))))

    if inference:
        plan("inference", "on GPU(s) " + " ".join(gpus[:serving]), "inference", "inference", ["inference"],
             CUDA_VISIBLE_DEVICES=",".join(gpus[:serving]), **inference.data["env_vars"])
    for split, name, address, _ in servers:
        path = "envs/%s/%s" % (split, name)
        plan("%s env server %s" % (split, name), "at " + address, path, path, ["env-server"])
    part = "orchestrator" if kind == "rl" else "evals"
    if kind == "rl" or config.eval:
        plan(part, "process", part, part, [part])
    plan("trainer", "on GPU(s) " + " ".join(gpus[serving:]), "trainer", "trainer" if kind == "rl" else "sft", [
        "torchrun", "--role=trainer", "--rdzv-endpoint=localhost:29555", "--rdzv-id=" + os.urandom(16).hex(),
        "--log-dir=%s/trainer/torchrun" % logs, "--local-ranks-filter=0", "--redirect=3", "--tee=3",
        "--nproc-per-node=%d" % place.num_train_gpus, "-m", "prime_rl.trainer.%s.train" % kind],
         **({"CUDA_VISIBLE_DEVICES": ",".join(gpus[serving:])} if gpus else {}))
    shown = "orchestrator" if kind == "rl" else "trainer"
    awaited = [name for name, *_ in plans if name in ("orchestrator", "trainer", "evals")]
    run_children(plans, awaited, shown, logs, "Training finished!" if kind == "rl" else "SFT training finished!",
                 config.data.get("dashboard"))


def rl():
    set_title("Launcher")
    config = cli(RLConfig)
    run_dir = open_run(config)
    step = find_resume_step(config.data["resume"], (config.ckpt and config.ckpt.output_dir) or run_dir)
    say("Training from scratch, cleaning any stale rollouts and broadcasts" if step is None else
        "Resuming from step %d, cleaning future rollouts and broadcasts" % step)
    clean_future_steps(run_dir, -1 if step is None else step)
    orchestrator = config.data["orchestrator"]
    servers = list_servers(orchestrator, [("train", orchestrator["train"]["source"]),
                                          ("eval", (orchestrator["eval"] or {}).get("source", []))])
    parts = {"trainer": config.data["trainer"], "orchestrator": orchestrator}
    launch(config, "rl", run_dir, parts, servers)


def sft():
    set_title("SFT")
    config = cli(SFTConfig)
    run_dir = open_run(config)
    parts, servers = {"sft": config.data}, []
    if config.eval:
        step = find_resume_step(config.data["resume"], (config.ckpt and config.ckpt.output_dir) or run_dir)
        if not config.dry_run and not os.environ.get("NEVER_CLEAN"):
            clean_future_steps(run_dir, -1 if step is None else step)
        servers = list_servers(config.data["eval"], [("eval", config.data["eval"]["source"])])
        evals = config.model_dump()["eval"]
        for source in evals["source"]:
            source["serve"]["address"] = next((own[2] for own in servers if own[1] == name_source(source)),
                                              source["serve"]["address"])
        parts["evals"] = {
            "model": config.model.name, "eval": evals, "output_dir": run_dir, "monitors": config.data["monitors"],
            "weight_broadcast": config.data["weight_broadcast"], "online": {
                "broadcasts_dir": run_dir + "/broadcasts", "max_steps": config.max_steps, "resume_step": step}}
    launch(config, "sft", run_dir, parts, servers)


def launch(config, kind, run_dir, parts, servers):
    folder, place = make_config_dir(run_dir), config.deployment
    is_one_job = config.slurm and place.type == "single_node"
    if config.inference:
        parts["inference"] = config.inference.model_dump(exclude=NOT_SERVED)
    if config.slurm and kind == "sft":
        parts["sft"] = config.model_dump(exclude=NOT_RUN)
    if is_one_job or IS_NEW and kind == "rl":
        parts = dict({} if is_one_job else parts, **{kind: config.model_dump(exclude=NOT_RUN)})
    for name, part in parts.items():
        write("%s/%s.json" % (folder, name), part)
    if not is_one_job:
        write_servers(folder, servers)
    is_one_file = is_one_job or kind == "sft"
    say("Wrote config to %s/%s.json" % (folder, kind) if is_one_file else "Wrote subconfigs to %s" % folder)
    if not config.slurm:
        if config.dry_run:
            return say("Dry run complete. To start an %s run locally, remove --dry-run from your command." % kind.upper(),
                       "SUCCESS")
        return run_local(config, kind, run_dir, folder, servers)
    nodes, command = 1, ".venv/bin/%s @ %s" % (kind, shlex.quote("%s/%s.json" % (os.path.abspath(folder), kind)))
    if not is_one_job:
        serving = (place.num_infer_nodes or 0) * (place.num_infer_replicas if kind == "rl" else 0)
        nodes = place.num_train_nodes + serving
        logs = os.path.abspath(run_dir) + "/logs/attempt_1"
        command = NODES % (shlex.quote(os.path.abspath(folder)), shlex.quote(logs), serving, kind,
                           "trainer" if kind == "rl" else "sft")
    logs = [("Trainer", "logs/latest/trainer.log")]
    if kind == "rl":
        logs += [(name.capitalize(), "logs/latest/%s.log" % name) for name in ("orchestrator", "inference")]
        logs += [("  " + name, "logs/latest/envs/%s/%s.log" % (split, name)) for split, name, _, _ in servers]
    return submit(config, kind, run_dir, nodes, command, logs)
