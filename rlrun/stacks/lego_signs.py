"""Lego-RL: its step lines, what their metrics mean, the ways to fail that are known, the stages of its start. No file is read.

Readings, keys and evidence: the repository's status skill (Step 3 and 4), docs/troubleshooting and run-training/scaling.mdx,
August 2026. A limit that they do not name has its reason beside it. Step lines: verl's console
logger (`step:N - key:value - …`, utils/logger) behind the prefixes of Ray and torchrun.
"""
import math
import re
from typing import Dict, Iterable, List, Optional, Tuple

from ..text.shell import escape_controls, strip_colour
from ..vitals import Gate, Metric, Point, Rule, Signature

_PEARSON = "training/rollout_actor_probs_pearson_corr"
_REWARD = "critic/rewards/mean"
_GRAD = "actor/grad_norm"
_TURNS = "num_turns/mean"
_ENV_FAILED = "trajectory_filter/reason/env_setup_failed"
_TIMEOUT = "trajectory_filter/reason/timeout"
_INVALID = "trajectory_filter/invalid_ratio"
_LENGTH = "response_length/mean"
_CLIPPED = "response_length/clip_ratio"
# "Well below 0.99": a run that is misaligned was seen at 0.75, and between 0.98 and 0.99 the skill only says "not healthy".
_PEARSON_LOW = 0.98
# "An order below": the skill's own pair is 0.03 against 0.2 to 0.5.
_ORDER = 0.15
# Mean tokens of a "very long" response: the incidents had 54,000 to 58,000, their cure was 15,000; this lies between.
_LONG_TOKENS = 30000.0
# Trials of one step. A quarter of the smallest usual batch (32); of a big one it is little, but there a fall of the reward
# by a quarter within the same steps is no chance.
_MANY_FAILED = 8.0
# The skill calls less than 0.1 healthy, and speaks of most of the batch where it is not.
_INVALID_HIGH = 0.3
_CLIPPED_HIGH = 0.25
# [Trial] step=1 5/32 task=astropy outcome=success …: one line a trial (src/verl_patch/agent_loop/progress_tracker.py)
_COUNT_OUTCOMES = "grep -aoE 'outcome=[a-z_]+' {log} | sort | uniq -c"

METRICS: Tuple[Metric, ...] = (
    Metric(_REWARD, "reward", (
        ("always_zero", 0, "advisory", "0 on every step that was read: the infrastructure first, not the model"),
        ("zero", 0, "advisory", "0 in this step"),
        ("zero_shown", 0, "skipped", "printed as 0, perhaps by rounding"),
        ("", 0, "pass", "not zero"))),
    Metric(_GRAD, "grads", (
        ("zero", 0, "advisory", "0: nothing was learnt in this step"),
        ("shrunk", _ORDER, "advisory", "an order below this run's earlier steps"),
        ("grown", 10, "advisory", "an order above this run's earlier steps"),
        ("below", 0.05, "skipped", "small beside the usual 0.2 to 0.5; what counts are this run's own earlier steps"),
        ("", 0, "pass", "finite; 0.2 to 0.5 is usual"))),
    Metric("actor/lr", "grads", (
        ("zero", 0, "advisory", "0: the model is frozen, unless this is a warm-up's first step"),
        ("zero_shown", 0, "skipped", "printed as 0, perhaps by rounding"),
        ("", 0, "pass", "not zero"))),
    Metric(_PEARSON, "grads", (
        ("at_least", 0.99, "pass", "aligned (0.99 or more)"),
        ("at_least", _PEARSON_LOW, "advisory", "below 0.99"),
        ("", 0, "blocks", "well below 0.99: it trains on log-probabilities that were not the rollout's")), label="pearson",
        needs=("!r3:off",)),
    Metric(_TURNS, "traj", (
        ("zero", 0, "blocks", "0: no trial took a turn"),
        ("zero_shown", 0, "advisory", "printed as 0, perhaps by rounding"),
        ("at_most", 2, "advisory", "about 1: trials end without tool calls"),
        ("", 0, "pass", "tens are usual"))),
    Metric(_INVALID, "traj", (
        ("at_most", 0.1, "pass", "low"),
        ("below", _INVALID_HIGH, "advisory", "above 0.1: the batch is smaller than it is set to be"),
        ("", 0, "blocks", "high: much of the batch is dropped")), label="invalid_ratio"),
    Metric(_ENV_FAILED, "traj", (
        ("at_most", 2, "pass", "about none"),
        ("", 0, "advisory", "environments can't start: points at images, registry or a node")), label="env_setup_failed"),
    # How many timeouts are a small share depends on the trials of a step, which no step line tells.
    Metric(_TIMEOUT, "traj", (
        ("zero_shown", 0, "pass", "none"),
        ("", 0, "skipped", "trials that ran out of time; how large a share that is, no step line tells")), label="timeout"),
    Metric("val-core/*", "val", (
        ("zero", 0, "advisory", "0: with good training rewards this points at images or the grader"),
        ("zero_shown", 0, "skipped", "printed as 0, perhaps by rounding"),
        ("", 0, "pass", "not zero"))),
    Metric("val-aux/num_turns/mean", "val", (
        ("zero", 0, "advisory", "0: no validation trial took a turn, points at its images"),
        ("zero_shown", 0, "skipped", "printed as 0, perhaps by rounding"),
        ("", 0, "pass", "not zero"))),
    Metric("val-aux/num_turns/max", "val", (
        ("zero_shown", 0, "advisory", "0: no validation trial took a turn, points at its images"),
        ("", 0, "pass", "not zero"))),
    # One trial that failed makes it 0, so it is not judged.
    Metric("val-aux/num_turns/min", "val"),
    Metric(_LENGTH, "more", (
        ("above", _LONG_TOKENS, "skipped", "very long"),
        ("", 0, "pass", "tokens of a response"))),
    Metric(_CLIPPED, "more", (
        ("at_most", 0.1, "pass", "low"),
        ("below", _CLIPPED_HIGH, "advisory", "some responses reach the window's end and are cut"),
        ("", 0, "advisory", "high: responses reach the window's end and are cut"))),
    Metric("rollout_corr/kl", "more", (
        ("at_most", 0.003, "pass", "about 3e-4 is usual"),
        ("", 0, "advisory", "ten times the usual 3e-4: points at scaffold or routing"))),
    Metric("fully_async/processing_time/tp99", "more", (("", 0, "skipped", "seconds of the slowest samples (long tail)"),)),
    Metric("fully_async/count/dropped_stale_samples", "more", (
        ("at_most", 0, "pass", "none so far"),
        ("", 0, "skipped", "so far, too old to train on (staleness pressure)"))),
    Metric("fully_async/trainer/idle_ratio", "more", (
        ("at_most", 0.5, "pass", "of the step the trainer waits for rollouts"),
        ("", 0, "advisory", "the trainer mostly waits: more rollouts at once, or more nodes for them"))),
    Metric("fully_async/partial/partial_ratio", "more"),
    Metric("actor/entropy", "more"),
    Metric("actor/kl_coef", "more"),
    Metric("training/epoch", "more"),
)

SIGNATURES: Tuple[Signature, ...] = (
    Signature(
        "r3:misaligned", "stop", (Rule(_PEARSON, "below", _PEARSON_LOW, 2),),
        "Routing replay (R3) is misaligned: two steps and more were trained on corrupted log-probabilities.",
        ("rlrun explain r3:misaligned",
         "Ask who set up the environment: is the imported verl the fork with router replay for this engine?"), ("!r3:off",)),
    Signature(
        "r3:low", "risk", (Rule(_PEARSON, "below", 0.99, 3), Rule(_PEARSON, "at_least", _PEARSON_LOW)),
        "Rollout and trainer agree less than they should (pearson below 0.99 on three steps): routing replay may be misaligned.",
        ("rlrun explain r3:misaligned", "rlrun watch {run}    # does it fall on?"), ("!r3:off",)),
    # Two steps, for a warm-up begins with a true 0 at its first step (verl logs the rate that the step used).
    Signature(
        "lr:frozen", "stop", (Rule("actor/lr", "zero", 0, 2),),
        "The learning rate is 0, printed in full and not rounded, on two steps and more: the model is frozen.",
        ("rlrun explain lr:frozen",
         "Ask its owner what sets the schedule: LR_SCHEDULER=constant is what the runner forces.")),
    # 5 steps: a small batch of hard tasks may well earn nothing once or twice.
    Signature(
        "reward:zero", "risk", (Rule(_REWARD, "always_zero", 0, 5),),
        "The mean reward is 0 on every step that was read: points at environments or grader, not at the model.",
        (_COUNT_OUTCOMES, "rlrun explain reward:zero",
         "Ask who runs the sandboxes: did the grader of one trial run at all? Confirm on a node that runs trials.")),
    # Turns near 1 say why: then it is tools:collapse.
    Signature(
        "reward:lost", "risk", (Rule(_REWARD, "zero", 0, 5), Rule(_REWARD, "shrunk", 0.1, 5), Rule(_TURNS, "above", 5, 1)),
        "The mean reward was above 0 and is 0 on each of the last five steps.",
        (_COUNT_OUTCOMES,
         "Ask its owner to read some trials of the last step: do they fail, or is a right answer given no reward?")),
    Signature(
        "env:avalanche", "risk", (Rule(_ENV_FAILED, "climbing", _MANY_FAILED, 4), Rule(_REWARD, "shrunk", 0.75, 2)),
        "More environments fail to start from step to step, and the reward falls with them: points at image pulls, the registry "
        "or a node; confirm there.",
        ("rlrun explain env:avalanche",
         "Ask who runs the cluster: can its nodes pull the task images from the registry?")),
    # The last reading alone near 1, the median of three clearly down: a fall as well as a run that fell long ago. No turns at
    # all are another thing: then no trial began.
    Signature(
        "tools:collapse", "risk", (
            Rule(_TURNS, "shrunk", 0.5, 3), Rule(_TURNS, "at_most", 5), Rule(_TURNS, "above", 0.5),
            Rule(_REWARD, "shrunk", 0.75, 3), Rule(_INVALID, "quiet", 0.1), Rule(_ENV_FAILED, "quiet", _MANY_FAILED - 1)),
        "The turns of a trial fell toward 1 and the reward with them, while the filter's reasons are normal: the model stopped "
        "calling tools.",
        ("rlrun explain tools:collapse",
         "Ask its owner to read one trial of the last step: does it end without a tool call?",
         "Recommend to its owner: go back to a checkpoint from before the fall.")),
    Signature(
        "val:fake-zero", "risk", (
            Rule("val-core/*", "zero"), Rule("val-core/*", "quiet", 0), Rule("val-aux/num_turns/mean", "quiet", 0),
            Rule(_REWARD, "above", 0.05, 2, at="val-core/*")),
        "Validation is all zero while the training's rewards are not: points at the validation's images or its grader, not at "
        "the model; confirm on a node that runs trials.",
        ("rlrun explain val:fake-zero",
         "Ask who runs the cluster: can its nodes pull the images of the validation tasks?")),
    Signature(
        "traj:invalid", "risk", (Rule(_INVALID, "at_least", _INVALID_HIGH, 3),),
        "Three tenths and more of each of the last three batches were dropped: the batch that trains is far smaller than it is "
        "set to be.",
        (_COUNT_OUTCOMES, "rlrun explain traj:invalid",
         "Ask its owner: env_setup_failed and timeout tell which of the two it is.")),
    Signature(
        "grad:starved", "risk", (Rule(_GRAD, "shrunk", _ORDER, 3), Rule(_LENGTH, "above", _LONG_TOKENS, 3)),
        "The gradient's norm is an order below this run's earlier steps, with very long responses: too many tokens thin it out.",
        ("rlrun explain grad:starved",
         "Ask its owner about the next run: shorter responses, rollout_is=null. Nothing to mend while it runs.")),
    Signature(
        "response:clipped", "risk", (Rule(_CLIPPED, "at_least", _CLIPPED_HIGH, 3),),
        "A quarter and more of the responses of the last three steps reached the window's end and were cut.",
        ("rlrun explain response:clipped",
         "Ask its owner: does a long trial repeat itself, and is MAX_RESP what these tasks need?")),
)

_NOT_ALIGNED = "below 0.99 where about 0.999 is normal: routing replay is misaligned, the gradients are garbage already"
GATES: Tuple[Gate, ...] = (
    Gate("gate:r3", (Rule(_PEARSON, "at_least", 0.99),),
         _NOT_ALIGNED, ("r3",)),
    # Where a bare log does not tell whether R3 is on: judged if it tells the figure.
    Gate("gate:r3", (Rule(_PEARSON, "at_least", 0.99),), _NOT_ALIGNED, ("!r3", "!r3:off"), False),
    Gate("gate:lr", (Rule("actor/lr", "nonzero"),),
         "the learning rate is 0: the model is frozen (of a warm-up's first step it is not: --step 2 tells)"),
    Gate("gate:reward", (Rule(_REWARD, "nonzero"),),
         "the first reward is 0: mostly environments whose images can't be pulled, seldom the model"),
    Gate("gate:turns", (Rule(_TURNS, "nonzero"),),
         "no trial took a turn: mostly environments whose images can't be pulled"),
    Gate("gate:finite", (Rule(_GRAD, "finite"), Rule("actor/*", "finite"), Rule("critic/*", "finite")),
         "loss, gradient or reward is not a finite number"),
)

# In the order of a start. Sources: scripts/train/lib/ray.sh, scripts/{eval,infer}/lib/vllm.sh, scripts/lib/vllm_serve.sh, verl's
# ray_trainer and fully_async_main, vLLM's loader and model runner, src/verl_patch/agent_loop/progress_tracker.py.
STAGES: Tuple[Tuple[bytes, str], ...] = (
    # [config] /x/scripts/train/configs/demo.env
    (rb"(?m)^\[config\] /|^=== Launching Harbor ", "the runner reads its config and checks it"),
    # [shm] before cleanup:
    (rb"\[shm\] before cleanup", "sweep: clearing what earlier runs left"),
    # [HEAD] starting ray head
    (rb"\[HEAD\] starting ray head", "Ray head starting"),
    # [WORKER] waiting for head 10.0.0.1:6379
    (rb"\[WORKER\] waiting for head (\S+)", "waiting for the head {0} to answer"),
    # Ray runtime started.
    (rb"(?m)^[^\n]{0,12}[Rr]ay runtime started", "Ray is up; waiting for {nodes} nodes in all: status asks how many joined"),
    # [WORKER] joined; head drives training. exiting worker script.
    (rb"\[WORKER\] joined", "worker joined; the head node drives the run"),
    # Active:  (of `ray status`, which the head prints once all have joined)
    (rb"(?m)^Active:\s*$", "all nodes joined; trainer starting"),
    # [FATAL] only 1/2 nodes joined the ray cluster after 300s.
    (rb"\[FATAL\] only (\d+/\d+) nodes joined", "only {0} nodes joined: the runner gave up"),
    # (TaskRunner pid=12) TaskRunner hostname: n1, PID: 12     [ASYNC MAIN] Starting fully async PPO training...
    (rb"TaskRunner hostname: |\[ASYNC MAIN\] Starting fully async", "trainer starting"),
    # [vLLM] waiting for readiness (PID 7, …    [vLLM] waiting for endpoint to be ready (up to 600s)...
    (rb"\[vLLM\] waiting for ", "vLLM server starting"),
    # Loading checkpoint shards:  45%|####5     | 9/20 [00:10<…
    (rb"Loading checkpoint shards: +\d+%\|[^|\r\n]{0,200}\| *(\d+/\d+)", "model weights loading, shard {0}"),
    # Loading safetensors checkpoint shards:  45% Completed | 9/20 [00:10<…
    (rb"Loading (?:safetensors|pt) checkpoint shards: +\d+% Completed \| (\d+/\d+)", "model weights loading, shard {0}"),
    # Available KV cache memory: 35.20 GiB      GPU KV cache size: 1,048,576 tokens
    (rb"Available KV cache memory|KV cache size|[Mm]emory profiling takes", "KV cache and memory profiling"),
    # Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  45%|####5     | 31/67 [00:05<…
    (rb"Capturing CUDA graph[^:\r\n]{0,80}: +\d+%\|[^|\r\n]{0,200}\| *(\d+/\d+)", "CUDA graph capture, {0}"),
    # init engine (profile, create kv cache, warmup model) took 33.44 seconds
    (rb"init engine \(profile", "vLLM engines ready"),
    # [vLLM] ready (~120s)      [vLLM] ready after 120s
    (rb"\[vLLM\] ready\b", "vLLM server ready; trials under way"),
    # [vLLM] process died
    (rb"\[vLLM\] (process died|not ready within|failed to start)", "vLLM server: {0}"),
    # test_gen_batch meta info: {'eos_token_id': 1, …, 'validate': True, 'global_steps': 0}
    (rb"test_gen_batch meta info:[^\n]{0,2000}'validate': True", "validation before training"),
    # [ASYNC MAIN] Starting Rollouter and Trainer...
    (rb"\[ASYNC MAIN\] Starting Rollouter and Trainer", "rollouts starting"),
    # [Progress] === step 1 starting: target 32 trials ===
    (rb"\[Progress\] === step \d+ starting: target (\d+) trials", "rollouts under way, of {0} trials"),
    # [Trial] step=1 5/32 task=astropy outcome=success …
    (rb"\[Trial\] step=\d+ (\d+/\d+) task=", "rollouts under way, {0} trials done"),
)

# Of verl only what the last step alone prints: its "total time" and "Training completed or interrupted" also follow a fully
# asynchronous run that ended early.
FINISHED: Tuple[bytes, ...] = (
    # (TaskRunner pid=12) ('Final validation metrics: '    (TaskRunner pid=12) "Final validation metrics: {…
    rb"Final validation metrics: ",
    # Training Progress: 100%|██████████| 120/120 [9:10:11<00:00, 275.09s/it]
    rb"Training Progress: 100%\|[^\n\r|]{0,200}\| *(\d+)/\1 \[",
    # === DONE: solved=41 / scored=100  (/x/jobs/e) ===
    rb"(?m)^=== DONE: solved=",
    # === Inference complete ===
    rb"(?m)^=== Inference complete ===",
)

# [FullyAsyncTrainer] Detected termination signal (None), stopping sample collection     (a signal to bash its exit status tells)
STOPPED: Tuple[Tuple[bytes, str], ...] = ((rb"Detected termination signal", "the trainer was told to end"),)

# (TaskRunner pid=123) or (TaskRunner pid=123, ip=10.0.0.1)
_ACTOR = re.compile(r"\(([A-Za-z_][\w.:]*) pid=\d+(?:, ip=[^()\s]{1,64})?\)\s*")
# [rank0]:
_RANK = re.compile(r"\[[A-Za-z][\w.-]{0,20}\]:\s*")
# Training Progress:   3%|▎         | 3/100 [00:10<05:23,  3.33s/it]     also cut off: [00:10
_BAR = re.compile(r"(?:[^|%()\[\]\n]{0,60}:)?\s*\d{1,3}%\|[^|\n]{0,300}\|\s*\d+/[\d?]+\s*(?:\[[^\]\n]{0,200}\]?\s*)?")
# step:12 -
_STEP = re.compile(r"step:(\d{1,12}) - ")
# What these print is a model's or an agent's text, where a step line may be quoted whole; the trainer's own comes from others.
_TALKERS = re.compile(r"Worker|AgentLoop|Server|Rollouter|Progress")
# 0.00 or 0.000, where a small number may have been rounded away; 0.0 is how Python prints a true 0
_ROUNDED = re.compile(r"[-+]?0\.00+\Z")
# np.float64(1e-06)   tensor(0.3, device='cuda:0')
_WRAPPED = re.compile(r"(?:(?:np|numpy)\.(?:float|int|uint)\d+|(?:torch\.)?[Tt]ensor|(?:np\.)?array)\(\s*([^(),\[\]\s]+)\s*[,)]")
# 31.2%   12345 tokens/s
_WITH_UNIT = re.compile(r"([-+]?[0-9.]+(?:[eE][-+]?\d+)?)(?:\s?(%)|\s[A-Za-z][A-Za-z/]{0,14})\Z")
_GLOBAL_STEP, STEP_SECONDS = "training/global_step", "timing_s/step"
_QUOTED_CHARACTERS = 120
_OCCURRENCES = 4
_PREFIX_CHARACTERS = 4000


def parse_step(source: str, line: str, wanted: Optional[Iterable[str]]) -> Optional[Point]:
    """The Point (offset 0) of a step line, None for any other text. Not a training step where it tells no training/global_step:
    a validation alone, or what a fully asynchronous trainer adds to a step. Percents become fractions; a value that is none
    (None, cut) is left out; `wanted`: keys to keep, `x/*` for all that begin so; what is not finite is kept anyway."""
    found = _find_step(line)
    if found is None:
        return None
    step, rest = found
    keep = None if wanted is None else set(wanted)
    prefixes = tuple(key[:-1] for key in keep if key.endswith("*")) if keep else ()
    looked_at = set() if keep is None else keep | {_GLOBAL_STEP, STEP_SECONDS}
    values: Dict[str, float] = {}
    rounded: List[str] = []
    seconds: Optional[float] = None
    is_metrics, is_training = False, False
    for pair in rest.split(" - "):
        key, _, raw = pair.partition(":")
        # Lines have hundreds of pairs: most of them end here.
        if is_metrics and keep is not None and key not in looked_at and not key.startswith(prefixes) and \
                "nan" not in raw and "inf" not in raw:
            continue
        if not key or " " in key:
            continue
        number = _parse_number(raw)
        is_metrics = is_metrics or ("/" in key and (number is not None or raw.strip() == "None"))
        is_training = is_training or key == _GLOBAL_STEP
        if number is None:
            continue
        if key == STEP_SECONDS:
            seconds = number
        if keep is None or key in keep or key.startswith(prefixes) or not math.isfinite(number):
            values[key] = number
            if number == 0 and _ROUNDED.match(raw.strip()):
                rounded.append(key)
    return Point(step, values, tuple(rounded), seconds, 0, "", is_training) if is_metrics else None


def _find_step(line: str) -> Optional[Tuple[int, str]]:
    """(step, what follows) of a step line: where nothing but known prefixes stands before it."""
    if "step:" not in line or ".sh: line " in line:  # bash's word on a child that had half written the line
        return None
    for part in strip_colour(line).replace("\n", "\r").split("\r"):
        place = -1
        for _ in range(_OCCURRENCES):
            place = part.find("step:", place + 1)
            if place < 0:
                break
            match = _STEP.match(part, place)
            if match and _is_prefix(part[:place]):
                rest = part[match.end():]
                tail = rest.rfind(" [repeated ")  # 3x across cluster]
                rest = (rest if tail < 0 else rest[:tail]).rstrip()
                return int(match.group(1)), rest[:-2] if rest.endswith(" -") else rest
    return None


def _is_prefix(text: str) -> bool:
    """Is this what Ray, torchrun or a progress bar leaves in front of a line, of a process that prints step lines?"""
    if len(text) > _PREFIX_CHARACTERS:
        return False
    place = len(text) - len(text.lstrip())
    while place < len(text):
        match = _ACTOR.match(text, place)
        if match and _TALKERS.search(match.group(1)):
            return False
        match = match or _RANK.match(text, place) or _BAR.match(text, place)
        if not match or match.end() == place:
            return False
        place = match.end()
    return True


def _parse_number(raw: str) -> Optional[float]:
    try:
        return float(raw)
    except ValueError:
        pass
    raw = raw.strip()
    match = _WRAPPED.match(raw)
    scale = 1.0
    if match:
        raw = match.group(1)
    else:
        match = _WITH_UNIT.match(raw)
        if not match:
            return None
        raw, scale = match.group(1), 0.01 if match.group(2) else 1.0
    try:
        return float(raw) * scale
    except ValueError:
        return None


def quote_metric(line: str, key: str) -> str:
    """`step:12 … key:value` as they stand in a step line, controls escaped; the line's beginning where it is no step line or
    does not tell the key."""
    found = _find_step(line)
    if found is None:
        return escape_controls(strip_colour(line).strip()[:_QUOTED_CHARACTERS])
    step, rest = found
    pairs = rest.split(" - ")
    place = next((number for number, pair in enumerate(pairs) if pair.partition(":")[0] == key), -1)
    if place < 0:
        return escape_controls(("step:%d - %s" % (step, rest))[:_QUOTED_CHARACTERS])
    between = " - " if place == 0 else " … "
    return escape_controls("step:%d%s%s" % (step, between, pairs[place][:_QUOTED_CHARACTERS]))
