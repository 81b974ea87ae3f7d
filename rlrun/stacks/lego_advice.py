"""Lego-RL: what only one who knows it can say of a plan before it runs. All of it is advice."""
import json
import os
from typing import List

from ..values import Check, Plan


def judge_config(plan: Plan) -> List[Check]:
    """What only this stack can judge of a plan: vLLM's tensor parallelism against the model's heads. Advisory."""
    checks = []
    size, model = plan.environment.get("GEN_TP", ""), plan.environment.get("MODEL_PATH", "")
    heads = _read_kv_heads(model)
    if size.isdecimal() and int(size) > 0 and heads and heads % int(size) and int(size) % heads:
        checks.append(Check("live", "tp:kv-heads", "advisory",
                            "GEN_TP=%s and %d key-value heads in %s/config.json: neither divides the other"
                            % (size, heads, model), "Set GEN_TP to a divisor of %d." % heads))
    if plan.kind in ("train",) and "wandb" in plan.environment.get("TRAINER_LOGGER", ""):
        if not plan.environment.get("WANDB_API_KEY") and plan.environment.get("WANDB_MODE") not in ("offline", "disabled"):
            checks += _judge_wandb(plan)
    return checks


def _judge_wandb(plan: Plan) -> List[Check]:
    try:  # a key that `wandb login` left serves as well
        with open(os.path.join(plan.environment.get("HOME", "/"), ".netrc"), "rb") as file:
            if b"wandb" in file.read(65536):
                return []
    except OSError:
        pass
    return [Check("live", "wandb:key", "advisory", "the trainer logs to wandb, and neither WANDB_API_KEY nor ~/.netrc has a key",
                  "Export WANDB_API_KEY, or set WANDB_MODE=offline: wandb asks on a terminal that the run does not have.")]


def _read_kv_heads(model: str) -> int:
    try:
        with open(os.path.join(model, "config.json"), "rb") as file:
            config = json.loads(file.read(1 << 20).decode("utf-8", "replace"))
        for scope in (config, config.get("text_config") or {}, config.get("llm_config") or {}):
            if isinstance(scope.get("num_key_value_heads"), int):
                return int(scope["num_key_value_heads"])
    except (OSError, ValueError, AttributeError):
        pass
    return 0
