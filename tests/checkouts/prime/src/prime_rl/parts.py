"""What the launchers start: inference, env servers, orchestrator, trainer, evals. Each leaves what the real one leaves."""
import json
import os
import shlex
import signal
import socket
import sys
import threading
import time

from prime_rl import process, sickness
from prime_rl.process import LOAD_SEC, STEP_SEC, fail_if_asked, say, say_step, set_title, wait_for, write

QUALITY = (("Turns", "1.0"), ("Branches", "1.0"))
RATES = (("Error", "0.0%"), ("Truncation", "0.0%"))


def read_config():
    """The JSON that the launcher wrote for this process."""
    with open(sys.argv[sys.argv.index("@") + 1]) as file:
        return json.load(file)


def add_metrics(folder, monitors, step, **values):
    if monitors["file"]:
        bad = [name for name in sorted(values) if values[name] != values[name]]
        if bad:
            say("Dropping %d non-finite value(s) from %s: %s" % (len(bad), monitors["file"]["path"], ", ".join(bad)), "WARNING")
        with open(os.path.join(folder, monitors["file"]["path"]), "a") as file:
            kept = {name: value for name, value in values.items() if name not in bad}
            file.write(json.dumps(dict(kept, step=step, time=time.time())) + "\n")


def trainer(kind):
    config = read_config()
    set_title("Trainer" if kind == "rl" else "SFTTrainer")
    folder = config["output_dir"] if kind == "rl" else "%s/%s" % (config["output_dir"], config["run"]["dir"])
    ckpt = config["ckpt"] or {}
    base, lr = ckpt.get("output_dir") or folder, config["optim"]["lr"]
    has_rollouts = kind == "rl" and not config["data"]["fake"]
    step = first = process.find_resume_step(config["resume"], base) or 0
    say("Starting %s trainer in %s" % (kind.upper(), folder))

    def save():
        say("Saving checkpoint at step %d" % step)
        for name in ("__0_0.distcp", ".metadata"):
            write("%s/checkpoints/step_%d/trainer/%s" % (base, step, name), "toy\n")

    for step in process.list_steps(first, config["max_steps"]):
        fail_if_asked("trainer", step)
        if sickness.fall_trainer(step):
            step -= 1
            break
        started = time.monotonic()
        if has_rollouts:
            wait_for("%s/rollouts/step_%d/train/effective/traces.jsonl" % (folder, step), 1e9)
        else:
            time.sleep(STEP_SEC)
        if os.environ.get("LOCAL_RANK", "0") != "0":
            continue
        entropy, kl, grad, seconds, waited = sickness.list_trainer_values(step)
        seconds = seconds or time.monotonic() - started
        loss = 0.5 / step if grad == grad else grad
        rl_only = (("Entropy", "%.4f" % entropy), ("Mismatch KL", "%.4f" % kl)) if kind == "rl" else ()
        say_step("Step %d" % step, seconds, ("Loss", "%.4f" % loss), *rl_only + (
            ("Grad. Norm", "%.4f" % grad), ("LR", "%.2e" % lr), ("Throughput", "12345 tokens/s"), ("MFU", "31.2%"),
            ("Peak Mem.", "61.2 GiB" if kind == "rl" else "61.2/79.1 GiB (77.4%)")))
        add_metrics(folder, config["monitors"], step, **{
            "loss/mean": loss, "optim/lr": lr, "optim/grad_norm": grad, "entropy/all/mean": entropy,
            "mismatch_kl/all/mean": kl, "time/step": seconds, "time/wait_for_batch": waited})
        if has_rollouts or config.get("eval"):
            write("%s/broadcasts/step_%d/STABLE" % (folder, step))
        if ckpt.get("interval") and step % ckpt["interval"] == 0:
            save()
    if config["ckpt"] and os.environ.get("LOCAL_RANK", "0") == "0":
        say("Writing final checkpoint")
        save()
    say("%s trainer finished!" % kind.upper(), "SUCCESS")


def orchestrator():
    from prime_rl.configs.kinds import name_source
    config = read_config()
    set_title("Orchestrator")
    train, evals = config["train"]["source"], (config["eval"] or {}).get("source", [])
    folder, client, size = config["output_dir"], config["model"]["client"], config["batch_size"] or 128
    say("Starting orchestrator in %s" % folder)
    for place, source in enumerate(train + evals):
        wait_for(source["serve"]["address"] or "tcp://127.0.0.1:%d" % (config["env_server_base_port"] + place))
    say("Train environment(s) ready", "SUCCESS")
    wait_for(client["base_url"].rsplit("/v1", 1)[0] + "/health", client["wait_for_ready_timeout"])
    say("Policy inference pool ready", "SUCCESS")

    def evaluate(step):
        for source in evals:
            if step % source["interval"] == 0:
                say_step("Evaluated %s (Step %d) | Policy v%d" % (name_source(source), step, step), STEP_SEC,
                         ("Reward", "0.5000"), *QUALITY + RATES)

    first = process.find_resume_step(config["resume"], folder) or 0
    if not first:
        evaluate(0)
    for step in process.list_steps(first, config["max_steps"]):
        fail_if_asked("orchestrator", step)
        if sickness.fall_orchestrator(step, name_source(train[0]), size, client["base_url"].rsplit("/v1", 1)[0], folder):
            break
        time.sleep(STEP_SEC)
        reward = min(0.1 * step, 0.9)
        seconds, waited, error, truncation = sickness.list_orchestrator_values(step)
        write("%s/rollouts/step_%d/train/effective/traces.jsonl" % (folder, step), json.dumps({"reward": reward}) + "\n")
        add_metrics(folder, config["monitors"], step, **{
            "reward/all/mean": reward, "time/step": seconds, "time/wait_for_policy": waited})
        lines = ["\u2570\u2500 %s | Ratio %.1f%% | Reward %.4f" % (name_source(source), 100 / len(train), reward)
                 for source in train] if len(train) > 1 else []
        say_step("Step %d" % step, seconds, ("Reward", "%.4f" % reward), ("Trainable", "%d/%d (100.0%%)" % (size, size)),
                 *QUALITY + (("Max Off-Policy", "1"), ("Error", error), ("Cancelled", "0.0%"),
                             ("Truncation", "\n\t\t ".join([truncation] + lines))))
        evaluate(step)
    say("Orchestrator finished.", "SUCCESS")


def env_server():
    config = read_config()
    set_title("EnvServer")
    fail_if_asked("env-server")
    host, port = config["serve"]["address"].split("://")[1].rsplit(":", 1)
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, int(port)))
    parent, workers = os.getpid(), []

    def start_worker():
        workers.append(os.fork())
        if not workers[-1]:
            listener.close()
            set_title("Verifiers::EnvWorker0")
            while os.getppid() == parent:
                time.sleep(0.2)
            os._exit(0)

    start_worker()
    if sickness.find_start("envdie"):
        signal.signal(signal.SIGALRM, lambda *_: sickness.end_worker(workers[0], start_worker))
        signal.setitimer(signal.ITIMER_REAL, LOAD_SEC + sickness.find_start("envdie") * STEP_SEC)
    listener.listen(16)
    say("Serving at %s" % config["serve"]["address"])
    while True:
        listener.accept()[0].close()


def inference():
    from prime_rl.configs.kinds import InferenceConfig
    from prime_rl.utils.config import cli
    set_title("Inference")
    config = cli(InferenceConfig)
    if config.slurm:
        from prime_rl import launcher
        folder = launcher.make_config_dir(config.output_dir)
        write(folder + "/inference.json", config.model_dump(exclude=("slurm", "dry_run")))
        say("Wrote config to %s/inference.json" % folder)
        launcher.submit(config, "inference", config.output_dir, config.deployment.data.get("num_nodes", 1),
                        ".venv/bin/inference @ " + shlex.quote(os.path.abspath(folder) + "/inference.json"),
                        [("Job", "launcher/logs/" * process.IS_NEW + "job_*.log"), ("Inference", "logs/latest/inference.log")])
    elif config.dry_run:
        say("Dry run complete. To start inference locally, remove --dry-run from your command.", "SUCCESS")
    else:
        serve(config)


def serve(config):
    from http.server import BaseHTTPRequestHandler
    from socketserver import TCPServer, ThreadingMixIn
    started, model = time.monotonic(), config.vllm.model
    pages = {"/health": {}, "/v1/models": {"object": "list", "data": [{"id": model, "object": "model"}]}}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            is_loaded = time.monotonic() - started >= LOAD_SEC
            self.answer((200 if is_loaded else 503) if self.path in pages else 404, pages.get(self.path))

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"] or 0)).decode()
            message = (json.loads(body or "{}").get("messages") or [{}])[-1]
            self.answer(200 if self.path == "/v1/chat/completions" else 404, {
                "object": "chat.completion", "model": model, "choices": [{"index": 0, "finish_reason": "stop", "message": {
                    "role": "assistant", "content": str(message.get("content", ""))[::-1]}}]})

        def answer(self, status, body):
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *words):
            pass

    class Server(ThreadingMixIn, TCPServer):
        allow_reuse_address = daemon_threads = True

    host, port = config.server.host or "0.0.0.0", config.server.port
    say("Starting router on http://%s:%d/v1 (engine on port %d)" % (host, port, config.backend_port))
    for number in [port] + [config.backend_port] * bool(config.router):
        threading.Thread(target=Server((host, number), Handler).serve_forever, daemon=True).start()
    time.sleep(LOAD_SEC)
    fail_if_asked("inference")
    say("Application startup complete.", "SUCCESS")
    while True:
        time.sleep(60)


def evals():
    from prime_rl.configs.kinds import EvalsConfig, name_source
    from prime_rl.launcher import list_servers, write_servers
    from prime_rl.utils.config import cli
    set_title("Evals")
    config = cli(EvalsConfig)
    online, client, folder = config.online, config.eval.client, config.output_dir
    if online:
        wait_for(client.base_url + "/models", client.wait_for_ready_timeout)
    status, body = process.ask(client.base_url + "/models")
    if status != 200:
        raise ConnectionError("No inference server answers at %s (status %d)" % (client.base_url, status))
    if not client.skip_model_check and config.model not in [model["id"] for model in json.loads(body)["data"]]:
        raise ValueError("Model '%s' was not found at %s" % (config.model, client.base_url))
    servers = list_servers(config.data["eval"], [("eval", config.eval.source)])
    write_servers(folder + "/configs", servers)
    children = [process.start(["env-server", "@", "%s/configs/envs/eval/%s.json" % (folder, name)],
                              "%s/logs/envs/eval/%s.log" % (folder, name)) for _, name, _, _ in servers]
    try:
        for address in [server[2] for server in servers] + [source["serve"]["address"] for source in config.eval.source]:
            wait_for(address or "/", 60)
        last = list(process.list_steps(online.resume_step or 0, online.max_steps))[-1:] if online else []
        for step in [0] + last:
            if step:
                wait_for("%s/step_%d/STABLE" % (online.broadcasts_dir, step))
            for source in config.eval.source:
                fail_if_asked("evals")
                time.sleep(STEP_SEC)
                name = name_source(source)
                write("%s/rollouts/step_%d/eval/effective/traces.jsonl" % (folder, step),
                      json.dumps({"env_name": name, "reward": 0.5}) + "\n")
                add_metrics(folder, config.data["monitors"], step, **{"eval/%s/all/reward/mean" % name: 0.5})
                say_step("Evaluated %s (Step %d)" % (name, step), STEP_SEC, ("Reward", "0.5000"), *QUALITY + RATES)
        say("Evals finished!", "SUCCESS")
    finally:
        process.stop(children)
