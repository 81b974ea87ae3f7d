"""The four kinds of config: their fields, what the parts take from the shared ones, what is refused."""
import importlib
import json
import os

from prime_rl.utils.config import BaseConfig, Invalid, Need, Opt, Union, dig, fill, join

TYPES = {"int": int, "str": str, "float": float, "list": list}


def table(words="", **inner):
    """Fields in short: `name=default`, `name:type` for one that may be None, `*` for any other."""
    fields = {}
    for word in words.split():
        name, equals, default = word.partition("=")
        if equals:
            try:
                fields[name] = json.loads(default)
            except ValueError:
                fields[name] = default
        else:
            name, _, kind = word.partition(":")
            fields[name] = Opt(TYPES[kind]) if kind else 1
    return dict(fields, **inner)


MONITORS = table(wandb=Opt(table("project=prime-rl name:str offline=false *")), file=Opt(table("path=metrics.jsonl"), on=True))
MODEL = table("name=Qwen/Qwen3-0.6B seq_len=2048 *", lora=Opt(table("rank=16 alpha=32.0 *")))
LOG, TOKENIZER, RESUME = table("level=info *"), table("name:str *"), Opt(table("step:int dir:str"))
CKPT = table("output_dir:str interval:int keep_last:int keep_interval:int")
OPTIM = table("lr=1e-6 weight_decay=0.01 max_norm=1.0 betas1=0.9 betas2=0.999")
TRAINING = table("max_steps:int env_vars={}", tokenizer=TOKENIZER, resume=RESUME, log=LOG, monitors=MONITORS, ckpt=Opt(CKPT),
                 scheduler=table("type=constant *"), optim=Union("adamw", adamw=OPTIM, muon=OPTIM, sgd=OPTIM, sign_sgd=OPTIM))
TRANSFER = table("host=localhost port=29501 timeout=1200")
BROADCAST = {"filesystem": {}, "nccl": table("inference_world_size=1", **TRANSFER)}
TRANSPORT = Union("zmq", zmq=table("host=localhost port=5555"), filesystem={})
CLIENT = table("wait_for_ready_timeout=1800 base_url=http://localhost:8000/v1 skip_model_check=false admin_base_url:list *")
SOURCE = table(
    "name:str", serve=table("address:str *"), env=table("id= *", taskset=table("id= *"), agent=table(
        "max_turns:int *", harness=Opt(table("id:str *")), runtime=table("type=prime *"))))
SAMPLING = table("temperature=1.0 max_completion_tokens:int extra_body={}")
_EVAL = table("num_examples=-1 group_size=1 interval=100", sampling=table(
    "temperature:float max_completion_tokens:int extra_body={} *"))
EVAL = table("skip_first_step=false retrigger_on_resume=false", source=[dict(SOURCE, **_EVAL)], **_EVAL)
EVALS = table("env_server_base_port=5000 concurrency={}", client=CLIENT, **EVAL)
LAUNCH = table("output_dir=outputs dry_run=false env_vars={}", slurm=Opt(table(
    "job_name=prime-rl project_dir=. template_path:str partition=cluster nodelist:str exclude:str account:str time:str "
    "pre_run_command:str")), **({"dashboard": True} if os.environ.get("TOY_LAYOUT") == "new" else {}))
NODES = dict(table("gpus_per_node=8 num_infer_nodes:int num_infer_replicas=1"), num_train_nodes=int)
RUN = table("clean=false max_steps:int", run=table("name:str dir:str"), resume=RESUME, deployment=Union(
    "single_node", single_node=table("gpus_per_node=8 num_train_gpus=1 num_infer_gpus=1"), multi_node=NODES), **LAUNCH)
INFERENCE = table(
    "backend_port:int", server=table("host:str port=8000 *"), log=LOG, weight_broadcast=table("type=filesystem"),
    router=Opt(table("type=vllm-router policy=consistent_hash"), on=True), deployment=Union(
        "single_node", single_node=table("gpus_per_node=8"), multi_node=table("gpus_per_node=8 num_nodes=2")),
    vllm=table("model=Qwen/Qwen3-0.6B max_model_len:int tensor_parallel_size=1 data_parallel_size=1 "
               "data_parallel_size_local:int data_parallel_rpc_port=13345 *"), **LAUNCH)
DATA = table("name:str batch_size=128 seq_len=128 seed=0 *")
SFT = dict(TRAINING, **dict(RUN, renderer={}, model=MODEL, eval=Opt(EVALS), inference=Opt(INFERENCE), data=Union(
    "sft", sft=DATA, fake=DATA), weight_broadcast=Opt(Union("nccl", **BROADCAST))))
TRAINER = dict(TRAINING, model=MODEL, data={"fake": Opt({"batch_size": 2})}, loss=table("type=default *"), output_dir="outputs",
               rollout_transport=TRANSPORT, weight_broadcast=Union("filesystem", **BROADCAST))
ORCHESTRATOR = table(
    "renderer={} env_vars={} output_dir=outputs env_server_base_port=5000 batch_size:int token_batch_size:int concurrency={} "
    "group_size=1 seq_len=2048 max_steps:int max_off_policy_steps=8", algo=table("type=grpo *"),
    model=table("name=Qwen/Qwen3-0.6B *", client=CLIENT), tokenizer=TOKENIZER, eval=Opt(EVAL), log=LOG, ckpt=Opt(CKPT),
    train={"source": [table("group_size=1 algo={}", sampling=SAMPLING, **SOURCE)], "sampling": SAMPLING}, resume=RESUME,
    monitors=dict(MONITORS, prime=Opt(table("name:str"))), weight_broadcast=TRAINER["weight_broadcast"],
    rollout_transport=TRANSPORT)
RL = table(
    "seq_len:int", trainer=Need(TRAINER), orchestrator=Need(ORCHESTRATOR), inference=Opt(INFERENCE), ckpt=Opt(CKPT),
    log=table("level:str *"), model=Opt(table("name=Qwen/Qwen3-0.6B *")), tokenizer=Opt(TOKENIZER),
    monitors=dict(MONITORS, file=Opt(table("path=metrics.jsonl"))), rollout_transport=Opt(TRANSPORT),
    weight_broadcast=Opt(Union("nccl", nccl=TRANSFER, filesystem={})), **RUN)
# Shared fields and the fields of the parts that they fill in.
SHARED = [("model.name", "trainer.model.name", "inference.vllm.model", "orchestrator.model.name"),
          ("ckpt.output_dir", "trainer.ckpt.output_dir"), ("slurm", "inference.slurm"),
          ("seq_len", "trainer.model.seq_len", "orchestrator.seq_len")]
SHARED += [(name, "trainer." + name, "orchestrator." + name) for name in (
    "max_steps", "rollout_transport", "resume", "ckpt.interval", "ckpt.keep_last", "monitors.wandb.project",
    "monitors.wandb.name")]


def hand_down(data, path, names):
    """What the sources of [...train] or [...eval] do not set themselves they take from it."""
    holder = dig(data, path)
    for source in dig(holder, "source") or ():
        for name in names:
            if isinstance(holder.get(name), dict):
                source[name] = dict(holder[name], **source.get(name, {}))
            elif name in holder:
                source.setdefault(name, holder[name])


def name_source(source):
    return source["name"] or source["env"]["taskset"]["id"] or source["env"]["id"]


def finish_paths(data):
    for holder in (data, data.get("ckpt") or {}):
        if holder.get("output_dir"):
            holder["output_dir"] = join(holder["output_dir"])
    for holder in (data, data.get("inference") or {}):
        if holder.get("slurm"):
            holder["slurm"]["project_dir"] = os.path.realpath(holder["slurm"]["project_dir"])
        if "backend_port" in holder:
            holder["backend_port"] = holder["backend_port"] or holder["server"]["port"] + 100


def check_sources(sources):
    """Every environment has to be installed."""
    for source in sources:
        taskset = source["env"]["taskset"]["id"] or source["env"]["id"]
        module = taskset.split("/")[-1].replace("-", "_")
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ModuleNotFoundError("taskset %r not found (tried to import %r)" % (taskset, module)) from error


def finish_run(data, model, client, *names):
    """What rl and sft have in common. Returns the trainer's [weight_broadcast]: NCCL where it can."""
    place, inference, run = data["deployment"], data["inference"], data["run"]
    if place["type"] == "single_node":
        train, infer = place["num_train_gpus"], place["num_infer_gpus"]
        if train + infer > place["gpus_per_node"]:
            raise Invalid("deployment.single-node", "Total GPU count (%d = %d train + %d infer) exceeds gpus_per_node (%d)." % (
                train + infer, train, infer, place["gpus_per_node"]))
    elif not data["slurm"]:
        raise Invalid("", "Must use SLURM for multi-node deployment.")
    elif place["num_infer_nodes"] is None:
        place["num_infer_nodes"] = dig(inference, "deployment.num_nodes", int(bool(inference)))
    run["name"] = run["name"] or "--".join(names + (model["name"].split("/")[-1], os.urandom(4).hex())).lower()
    run["dir"] = run["dir"] or run["name"]
    wandb = data["monitors"]["wandb"] or {}
    wandb["name"] = wandb.get("name") or run["name"]
    finish_paths(data)
    given, world = data["weight_broadcast"] or {}, 1
    kind = given.get("type") or ("filesystem" if model["lora"] or not inference else "nccl")
    if kind == "nccl" and model["lora"]:
        raise Invalid("", "LoRA training is not yet supported with in-memory weight broadcast.")
    if inference:
        vllm, gpus = inference["vllm"], place.get("num_infer_gpus") or place["gpus_per_node"]
        world = vllm["data_parallel_size"] * vllm["tensor_parallel_size"] if "trainer" in data else gpus
        if gpus % vllm["tensor_parallel_size"]:
            raise Invalid("", "Number of inference GPUs must be divisible by the tensor parallel size")
        vllm["data_parallel_size"] = gpus // vllm["tensor_parallel_size"]
        if place["type"] == "multi_node":
            vllm["data_parallel_size_local"] = vllm["data_parallel_size"]
            world = gpus * place["num_infer_nodes"] * place["num_infer_replicas"]
        inference["weight_broadcast"]["type"] = kind
        if place["type"] == "single_node" and inference["router"] and not client["admin_base_url"]:
            client["admin_base_url"] = ["http://%s:%d/v1" % (
                inference["server"]["host"] or "localhost", inference["backend_port"])]
    made = {name: given.get(name, value) for name, value in BROADCAST[kind].items()}
    return dict(made, type=kind, **({"inference_world_size": world} if kind == "nccl" else {}))


class InferenceConfig(BaseConfig):
    FIELDS = INFERENCE
    prepare = staticmethod(lambda data: None)

    @staticmethod
    def finish(data):
        finish_paths(data)
        if data["deployment"]["type"] == "multi_node" and not data["slurm"]:
            raise Invalid("", "Must use SLURM for multi-node / disaggregated deployment.")


class EvalsConfig(BaseConfig):
    FIELDS = {"model": MODEL["name"], "eval": Need(EVALS), "output_dir": "outputs", "log": LOG, "monitors": MONITORS,
              "online": Opt({"broadcasts_dir": Opt(str), "max_steps": Opt(int), "resume_step": Opt(int)}),
              "weight_broadcast": Opt(Union("filesystem", **BROADCAST))}

    @staticmethod
    def prepare(data):
        hand_down(data, "eval", _EVAL)

    @staticmethod
    def finish(data):
        if not data["eval"]["source"]:
            raise Invalid("eval", "EvalConfig must define at least one source.")
        check_sources(data["eval"]["source"])
        finish_paths(data)


class SFTConfig(BaseConfig):
    FIELDS = SFT

    @staticmethod
    def prepare(data):
        if dig(data, "model.name"):
            fill(data, "inference.vllm.model", data["model"]["name"])
        hand_down(data, "eval", _EVAL)

    @staticmethod
    def finish(data):
        inference, evals = data["inference"], data["eval"]
        if inference and not evals:
            raise Invalid("", "[inference] is only used for online evals \u2014 add an [eval] block or remove it.")
        data["tokenizer"]["name"] = data["tokenizer"]["name"] or data["model"]["name"]
        client = evals and evals["client"]
        if inference:
            client["base_url"] = "http://%s:%d/v1" % (
                inference["server"]["host"] or "localhost", inference["server"]["port"])
        broadcast = finish_run(data, data["model"], client, *filter(None, [(data["data"]["name"] or "").split("/")[-1]]))
        if evals:
            check_sources(evals["source"])
            data["weight_broadcast"] = broadcast


class RLConfig(BaseConfig):
    FIELDS = RL

    @staticmethod
    def prepare(data):
        for shared, *targets in SHARED:
            value = dig(data, shared)
            for target in targets if value is not None else ():
                if dig(data, target) not in (None, value):
                    raise Invalid("", "Shared config conflicts with matching sub-config field(s): [%r] is set, but [%r] is "
                                      "also set" % (shared, target))
                fill(data, target, value)
        for name in ("ckpt", "monitors.wandb", "monitors.file"):
            value = dig(data, name, "absent")
            for part in ("trainer", "orchestrator") if value != "absent" else ():
                fill(data, "%s.%s" % (part, name), value if value is None else {})
        for source in dig(data, "orchestrator.train.source") or ():
            source.setdefault("group_size", dig(data, "orchestrator.group_size", 1))
        hand_down(data, "orchestrator.train", ["sampling"])
        hand_down(data, "orchestrator.eval", _EVAL)

    @staticmethod
    def finish(data):
        trainer, orchestrator = data["trainer"], data["orchestrator"]
        sources = orchestrator["train"]["source"]
        check_sources(sources + (orchestrator["eval"] or {}).get("source", []))
        if not orchestrator["token_batch_size"]:
            orchestrator["batch_size"] = orchestrator["batch_size"] or 128
            if orchestrator["batch_size"] % orchestrator["group_size"]:
                raise Invalid("orchestrator", "Batch size must be divisible by the number of samples per problem")
        if trainer["model"]["seq_len"] < orchestrator["seq_len"]:
            raise Invalid("", "Trainer model seq_len (%d) must be >= orchestrator seq_len (%d)." % (
                trainer["model"]["seq_len"], orchestrator["seq_len"]))
        client = orchestrator["model"]["client"]
        broadcast = finish_run(data, trainer["model"], client, "+".join(dict.fromkeys(map(name_source, sources))) or "no-env")
        if data["deployment"].get("num_infer_nodes") == 0 and not trainer["data"]["fake"]:
            raise Invalid("", "Must use fake data (trainer.data.fake) when num_infer_nodes = 0.")
        for part in (trainer, orchestrator):
            part.update(output_dir=join(data["output_dir"], data["run"]["dir"]), weight_broadcast=dict(broadcast))
            part["tokenizer"]["name"] = part["tokenizer"]["name"] or part["model"]["name"]
        for part in (trainer, orchestrator):
            if part["monitors"]["wandb"]:
                part["monitors"]["wandb"]["name"] = part["monitors"]["wandb"]["name"] or data["run"]["name"]
        broadcast.pop("inference_world_size", None)
        data.update(weight_broadcast=broadcast, rollout_transport=data["rollout_transport"] or trainer["rollout_transport"])
