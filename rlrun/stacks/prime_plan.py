"""prime-rl: the plan, out of the config as prime-rl's own code has resolved it. Values in, values out.

What is not in the resolved config is unknown; nothing is put in from here. Ports and GPU shares follow the launchers
(prime_rl/entrypoints, August 2026): inference takes the first GPUs, the trainer the next.
"""
import re
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple
from urllib.parse import urlsplit

from ..host.tables import dig
from ..text.shell import escape_controls
from ..values import Port, Topology
from .prime_rundir import RunDir

WIDTH = 70
_UNDECODED = "".join(map(chr, range(0xdc80, 0xdd00)))
# vllm-router's own metrics (prime_rl/entrypoints/inference.py, start_router)
_ROUTER_METRICS_OFFSET = 21000


class Resume(NamedTuple):
    """What a launch continues from. `step` is None where there is no checkpoint to continue from."""

    is_asked: bool
    step: Optional[int]
    source: str  # directory of the checkpoint, "" where there is none


def _count(value: Any) -> Optional[int]:
    """A whole number, also one that is still a command line's word; None for anything else."""
    if isinstance(value, str) and re.match(r"[0-9]{1,9}\Z", value):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def count_gpus(kind: str, data: Dict[str, Any]) -> Tuple[Optional[int], Optional[int]]:
    """(GPUs for inference, GPUs for the trainer) of one local run; None is not told."""
    if kind == "evals":
        return 0, 0
    if kind == "inference":
        size, copies, local = (_count(dig(data, "vllm", name)) for name in (
            "tensor_parallel_size", "data_parallel_size", "data_parallel_size_local"))
        copies = copies if local is None else local
        return (None if size is None or copies is None else size * copies), 0
    infer = _count(dig(data, "deployment", "num_infer_gpus", default=0 if kind == "sft" else None))
    train = _count(dig(data, "deployment", "num_train_gpus"))
    return (infer if data.get("inference") else 0), train


def read_topology(kind: str, data: Dict[str, Any]) -> Topology:
    """How many nodes; Slurm starts them all."""
    place = data.get("deployment")
    count = 1
    if dig(place, "type") == "multi_node" and kind in ("rl", "sft"):
        replicas = _count(dig(place, "num_infer_replicas")) or 1
        count = (_count(dig(place, "num_train_nodes")) or 0) + (_count(dig(place, "num_infer_nodes")) or 0) * replicas
    elif kind == "inference" and dig(place, "type") == "multi_node":
        count = _count(dig(place, "num_nodes")) or 1
    elif kind == "inference" and dig(place, "type") == "disaggregated":
        count = sum((_count(dig(place, "%s_nodes_per_replica" % one)) or 1) * (_count(dig(place, "num_%s_replicas" % one)) or 1)
                    for one in ("prefill", "decode"))
    return Topology(max(1, count), "", "", 0, "One Slurm job takes them all.")


def list_ports(kind: str, data: Dict[str, Any]) -> Tuple[Port, ...]:
    """The ports that a local run binds on this machine, as far as the config fixes them. The trainer's own rendezvous takes
    a free one at the start."""
    found: List[Tuple[Any, str]] = []
    inference = data if kind == "inference" else data.get("inference")
    if isinstance(inference, dict) and kind != "evals":
        port = _count(dig(inference, "server", "port"))
        if inference.get("router"):
            found += [(port, "router"), (inference.get("backend_port"), "engine")]
            found.append((None if port is None else port + _ROUTER_METRICS_OFFSET, "router metrics"))
        else:
            found.append((port, "engine"))
        if (_count(dig(inference, "vllm", "data_parallel_size")) or 1) > 1:
            found.append((dig(inference, "vllm", "data_parallel_rpc_port"), "data-parallel RPC"))
    found += [(port, "env server %s" % name) for name, port in list_env_servers(kind, data)]
    if kind in ("rl", "sft"):
        trainer = data.get("trainer") if kind == "rl" else data
        broadcast = dig(trainer, "weight_broadcast")
        if dig(broadcast, "type") == "nccl" and dig(broadcast, "host") in ("localhost", "127.0.0.1", "0.0.0.0"):
            found.append((dig(broadcast, "port"), "weight broadcast"))
        if dig(trainer, "rollout_transport", "type") == "zmq":
            found.append((dig(trainer, "rollout_transport", "port"), "rollout transport"))
        if dig(trainer, "metrics_server"):
            found.append((dig(trainer, "metrics_server", "port"), "trainer metrics"))
    ports: Dict[int, Port] = {}
    for value, purpose in found:
        number = _count(value)
        if number is not None and 0 < number < 65536:
            ports.setdefault(number, Port(number, purpose))
    return tuple(ports.values())


def list_env_servers(kind: str, data: Dict[str, Any]) -> List[Tuple[str, int]]:
    """(name, port) of the env servers that the launcher starts: base + place in the order train, then eval; a source that
    names its own address is another's (EnvConfig.serve.address)."""
    holder = data.get("orchestrator") if kind == "rl" else data.get("eval")
    base = _count(dig(holder, "env_server_base_port"))
    places = (("train", "source"), ("eval", "source")) if kind == "rl" else (("source",),)
    listed = [dig(holder, *place) for place in places]
    sources = [source for one in listed if isinstance(one, list) for source in one if isinstance(source, dict)]
    found = []
    for number, source in enumerate(sources):
        address = dig(source, "serve", "address")
        if address is None and base is not None:
            found.append((name_source(source), base + number))
    return found


def name_source(source: Dict[str, Any]) -> str:
    """The name of an environment's source."""
    return str(source.get("name") or dig(source, "env", "taskset", "id") or dig(source, "env", "id") or "?")


def name_sources(sources: Any) -> str:
    """The names of sources, comma-separated, "" for none."""
    return ", ".join(name_source(source) for source in sources if isinstance(source, dict)) if isinstance(sources, list) else ""


def find_server_url(data: Dict[str, Any]) -> str:
    """Where an inference server answers people on this machine."""
    port = _count(dig(data, "server", "port"))
    host = dig(data, "server", "host")
    host = "localhost" if host in (None, "0.0.0.0", "::", "") else str(host)
    return "http://%s:%d" % ("[%s]" % host if ":" in host else host, port) if port is not None else ""


def find_client_url(kind: str, data: Dict[str, Any]) -> str:
    """The server that evals, or an rl run without inference of its own, ask."""
    place = ("eval", "client", "base_url") if kind == "evals" else ("orchestrator", "model", "client", "base_url")
    return str(dig(data, *place, default="") or "")


def is_local_url(url: str) -> bool:
    """Does it name this machine by a loopback name?"""
    try:
        return urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")
    except ValueError:
        return False


def show_gpus(kind: str, counts: Tuple[Optional[int], Optional[int]], visible: Optional[str]) -> str:
    """`inference GPU 0 · trainer GPU 1`, of the GPUs that CUDA_VISIBLE_DEVICES names, else of this machine's first."""
    names = [word.strip() for word in visible.split(",") if word.strip()] if visible is not None else None
    parts, start = [], 0
    for word, count in zip(("inference", "trainer"), counts):
        if count is None:
            parts.append("%s GPUs unknown" % word)
            continue
        if count:
            last = start + count - 1
            shown = ",".join(names[start:start + count]) if names is not None else "%d-%d" % (start, last) if count > 2 else \
                ",".join(map(str, range(start, last + 1)))
            parts.append("%s GPU %s" % (word, shown or "none left"))
        start += count
    return " · ".join(parts) or "none"


def render_block(kind: str, rows: Sequence[Tuple[str, str]]) -> str:
    """The run configuration, in the look that Lego-RL prints its own in."""
    head = " run configuration (%s) " % kind
    side = (WIDTH - len(head)) // 2
    lines = ["═" * side + head + "═" * (WIDTH - len(head) - side)]
    # A config may be anybody's. Bytes that an old Python's C locale did not decode stay: the digest is one in every locale.
    lines += ["  %-12s %s" % (label, escape_controls(value, _UNDECODED)) for label, value in rows]
    return "\n".join(lines + ["═" * WIDTH])


def make_rows(kind: str, data: Dict[str, Any], resume: Resume, run: Optional[RunDir]) -> List[Tuple[str, str]]:
    """What decides a run, label and value, out of the resolved config."""
    rows: List[Tuple[str, str]] = []
    trainer = data.get("trainer") if kind == "rl" else data
    if kind == "inference":
        rows.append(("model", str(dig(data, "vllm", "model", default="unknown"))))
        rows.append(("parallel", "tensor %s × data %s" % (dig(data, "vllm", "tensor_parallel_size", default="?"),
                                                         dig(data, "vllm", "data_parallel_size", default="?"))))
        rows.append(("context", "max_model_len=%s" % _show(dig(data, "vllm", "max_model_len"), "the model's own")))
        return rows
    if kind == "evals":
        rows.append(("model", _show(data.get("model"), "unknown")))
        rows.append(("environments", name_sources(dig(data, "eval", "source")) or "unknown"))
        rows.append(("scale", "num_examples=%s  group_size=%s" % (dig(data, "eval", "num_examples", default="?"),
                                                                 dig(data, "eval", "group_size", default="?"))))
        rows.append(("server", find_client_url(kind, data) or "unknown"))
        rows.append(("online", "no: once, against what is served" if not data.get("online") else "follows %s" % dig(
            data, "online", "broadcasts_dir", default="?")))
        return rows
    rows.append(("model", str(dig(trainer, "model", "name", default="unknown")) + _show_lora(dig(trainer, "model", "lora"))))
    if kind == "rl":
        rows += _make_rl_rows(data)
    else:
        rows.append(("data", "%s  batch=%s" % (_show(dig(data, "data", "name"), dig(data, "data", "type", default="unknown")),
                                              dig(data, "data", "batch_size", default="?"))))
        rows.append(("context", "seq_len=%s" % dig(data, "data", "seq_len", default="?")))
        if data.get("eval"):
            rows.append(("eval", "%s every %s steps" % (name_sources(dig(data, "eval", "source")), dig(data, "eval", "interval",
                                                                                                     default="?"))))
    rows.append(("schedule", "max_steps=%s" % _show(dig(trainer, "max_steps"), "none: it runs until it is stopped")))
    rows.append(("optimizer", "%s  lr=%s  %s" % (dig(trainer, "optim", "type", default="?"), dig(
        trainer, "optim", "lr", default="?"), dig(trainer, "scheduler", "type", default=""))))
    broadcast = dig(trainer, "weight_broadcast")
    if broadcast:
        rows.append(("broadcast", "%s%s" % (dig(broadcast, "type", default="?"), " on %s:%s" % (
            dig(broadcast, "host"), dig(broadcast, "port")) if dig(broadcast, "port") else "")))
    rows.append(("checkpoints", _show_checkpoints(dig(trainer, "ckpt"), run)))
    rows.append(("resume", _show_resume(resume)))
    wandb = dig(data, "monitors", "wandb") or dig(trainer, "monitors", "wandb")
    rows.append(("wandb", "%s / %s%s" % (_show(dig(wandb, "project"), "?"), _show(dig(wandb, "name"), "?"), "  offline"
                                         if dig(wandb, "offline") else "") if wandb else "off"))
    return rows


def _make_rl_rows(data: Dict[str, Any]) -> List[Tuple[str, str]]:
    orchestrator = data.get("orchestrator")
    train, evals = (name_sources(dig(orchestrator, split, "source")) for split in ("train", "eval"))
    size, group = dig(orchestrator, "batch_size"), dig(orchestrator, "group_size")
    batch = "unknown"
    if isinstance(size, int) and isinstance(group, int) and group > 0 and size % group == 0:
        batch = "%d rollouts/step = %d prompts × %d" % (size, size // group, group)
    elif size or dig(orchestrator, "token_batch_size"):
        batch = "batch_size=%s  token_batch_size=%s  group_size=%s" % (size, dig(orchestrator, "token_batch_size"), group)
    sampling = dig(orchestrator, "train", "sampling")
    return [("environments", (train or "none") + ("  eval: %s every %s steps" % (evals, dig(orchestrator, "eval", "interval",
                                                                                         default="?")) if evals else "")),
            ("algorithm", str(dig(orchestrator, "algo", "type", default="unknown"))),
            ("batch", batch),
            ("context", "seq_len=%s  max_completion_tokens=%s  temperature=%s" % (
                dig(orchestrator, "seq_len", default="?"), _show(dig(sampling, "max_completion_tokens"), "none"),
                _show(dig(sampling, "temperature"), "default")))]


def _show(value: Any, stand_in: Any) -> str:
    return str(stand_in) if value is None or value == "" or isinstance(value, (dict, list)) else str(value)


def _show_lora(lora: Any) -> str:
    return "  LoRA rank=%s" % dig(lora, "rank", default="?") if lora else ""


def _show_checkpoints(ckpt: Any, run: Optional[RunDir]) -> str:
    if not ckpt:
        return "none are saved"
    every = dig(ckpt, "interval")
    keep = dig(ckpt, "keep_last")
    elsewhere = "  in %s" % run.checkpoints if run and not run.checkpoints.startswith(run.path + "/") else ""
    return "%s%s%s" % ("every %s steps" % every if every else "at the end", ", the last %s kept" % keep if keep else "",
                       elsewhere)


def _show_resume(resume: Resume) -> str:
    if not resume.is_asked:
        return "no: from the beginning"
    if resume.step is None:
        return "asked for, and there is no checkpoint: from the beginning"
    return "from step %d  %s" % (resume.step, resume.source)
