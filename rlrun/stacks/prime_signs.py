"""prime-rl: what a line of its logs tells, and what that means. Reads no file; prime_health.py knows where the logs lie.

Sources of formats, words and figures: prime_rl of August 2026 (trainer/{rl,sft}/train.py, orchestrator/, evals/evals.py,
utils/logger.py, utils/client.py, monitors/file.py, transports/weights), the environment servers of verifiers (v1 and before),
skills/training/monitor-run, docs/training.md, docs/development.md. What has no figure there got one here, which is said.

The console's labels get the names that the system's own metrics have, without scope and agent, which the console does not
tell: `Reward` is reward/mean. Shares printed in percent become fractions, as the metrics have them; MFU stays in percent.
metrics.jsonl has a line for each part of a step, from trainer and orchestrator, whose steps run apart: so it is two sources,
the trainer's lines ("metrics") and the orchestrator's, each known by the wait that it alone tells of.
"""
import json
import math
import re
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

from ..text.shell import strip_colour
from ..vitals import Gate, Metric, Point, Rule, Signature

STEP_KINDS = ("rl", "sft")
SOURCES = ("trainer", "orchestrator", "evals", "metrics", "metrics orchestrator")
_WAITS = {"metrics": "time/wait_for_batch", "metrics orchestrator": "time/wait_for_policy"}
STEP_MARKS = dict({name: b"Step " for name in SOURCES[:3]}, **{
    name: b'"%s"' % key.encode() for name, key in _WAITS.items()})
# SUCCESS Step 12 |   3.2s | …; SUCCESS Evaluated math (Step 12) | …; "level": "SUCCESS", "message": "Step 12 | …
PROGRESS: Tuple[bytes, ...] = (
    rb"SUCCESS[^\n]{0,100}?(?:Step \d+ +\||Evaluated [^\n]{1,200}? \(Step \d+\) +\||Validation +\|)",
    *(STEP_MARKS[name] for name in _WAITS))
_SHARE = "/share"  # of a wait in its step: ours, the file has the seconds
STEP_SECONDS = "time/step"

_KEYS = {"Loss": "loss/mean", "Entropy": "entropy/all/mean", "Mismatch KL": "mismatch_kl/all/mean",
         "Grad. Norm": "optim/grad_norm", "LR": "optim/lr", "Throughput": "perf/throughput", "MFU": "perf/mfu",
         "Peak Mem.": "perf/peak_memory",
         "Max Vio": "max_vio/mean", "Routing Conf.": "routing_confidence/mean", "Reward": "reward/mean",
         "Trainable": "is_trainable/mean", "Turns": "num_turns/mean", "Branches": "num_branches/mean",
         "Max Off-Policy": "off_policy/max", "Error": "has_error/mean", "Cancelled": "cancelled/mean",
         "Truncation": "is_truncated/mean", "Policy": "policy_version"}
_LABELS = {key: label for label, key in _KEYS.items()}
_FRACTIONS = ("has_error/mean", "cancelled/mean", "is_truncated/mean", "is_trainable/mean")

# [trainer0]:12:00:01 SUCCESS Step 12 |   3.21s | Loss …; [x] Evaluated math (Step 12) | …; Validation | Step 12 | Loss 1.2;
# a progress bar may stand before the time: Training:  3%|▎ | 3/100 [00:10<05:23, 3.3s/it]12:00:01 SUCCESS Step …
_FRAME = re.compile(r"(?:\[[A-Za-z]+\d*\]:? ?)?(?:[^|\n]{0,60}?\d+%\|[^|\n]{0,200}\|[^\n]{0,120}?)?(\d\d:\d\d:\d\d)\s+SUCCESS\s+"
                    r"(?:\[[^\]\s]{1,60}\] )?(?=Step |Evaluated |Validation )(.*)", re.S)
_TRAINING = re.compile(r"Step (\d{1,12})\s+\|")
_EVALUATED = re.compile(r"Evaluated (.{1,200}?) \(Step (\d{1,12})\)\s+\|")
_VALIDATION = re.compile(r"Validation\s+\|\s+Step (\d{1,12})\s+\|")
# 2026-08-21T12:00:01.123+00:00
_STAMP = re.compile(r"\d{4}-\d\d-\d\d[T ](\d\d:\d\d:\d\d)")
# 3.2s, 200ms, 3m 4s, 2h 5m, 1d 4h (format_time in utils/logger.py); Time: 3.21s
_TIME = re.compile(r"(?:Time: )?((?:\d+(?:\.\d+)?(?:ms|[dhms]) ?)+)\Z")
_TIME_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[dhms])")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
# 0.0123  -0.0000  3.00e-06  nan  -inf  31.2%  61.2/79.1  v12  12345  np.float64(0.1)  tensor(0.1,
_NUMBER = re.compile(r"(?:np\.\w+\(|tensor\(|v(?=\d))?([-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|nan|inf))(?:/(\d[\d.]*))?(%?)", re.I)
# 0.0000, but not 0.0 or 0.00e+00
_ROUNDED = re.compile(r"[-+]?0\.00+\Z")

# docs/development.md: a new model has to stay below this in 20 steps.
_KL_SOUND = 0.015
# Twice that, and what github.com/PrimeIntellect-ai/prime-rl/issues/2671 calls too large at a run's beginning.
_KL_HIGH = 0.03

METRICS: Tuple[Metric, ...] = (
    Metric("reward/mean", "progress", (("zero_shown", 0.0, "advisory", "no reward in this batch"), ("above", 0.0, "pass", "")),
           "orchestrator", "reward"),
    # The system warns at a tenth itself.
    Metric("is_trainable/mean", "progress", (
        ("at_most", 0.1, "advisory", "hardly any rollout carries a training signal: look at the tasks' difficulty"),
        ("", 0.0, "pass", "")), "orchestrator", "trainable"),
    Metric("num_turns/mean", "progress", (), "orchestrator", "turns"),
    Metric("is_truncated/mean", "progress", (("at_least", 0.5, "blocks", "half of the rollouts or more are cut off"),
                                             ("at_least", 0.2, "advisory", "a fifth or more is cut off"), ("", 0.0, "pass", "")),
           "orchestrator", "truncated"),
    Metric("has_error/mean", "progress", (("at_least", 0.5, "blocks", "half of the rollouts or more fail"),
                                          ("at_least", 0.1, "advisory", "a tenth or more fails"),
                                          ("above", 0.0, "pass", "a few are normal"), ("", 0.0, "pass", "")),
           "orchestrator", "errors"),
    Metric("cancelled/mean", "progress", (("at_least", 0.5, "advisory", "half or more are cancelled as too stale"),
                                          ("", 0.0, "pass", "")), "orchestrator", "cancelled"),
    Metric("loss/mean", "stability", (), "trainer", "loss"),
    Metric("entropy/all/mean", "stability", (("shrunk", 0.1, "advisory", "a tenth of what it was, or less"),
                                             ("", 0.0, "pass", "")), "trainer", "entropy"),
    Metric("mismatch_kl/all/mean", "stability", (
        ("at_least", _KL_HIGH, "advisory", "high: trainer and inference disagree on their tokens"),
        ("at_least", _KL_SOUND, "advisory", "above what a sound model shows (%g)" % _KL_SOUND), ("", 0.0, "pass", "")),
           "trainer", "mismatch KL"),
    Metric("optim/grad_norm", "stability", (("grown", 10.0, "advisory", "ten times what it was: a spike"), ("", 0.0, "pass", "")),
           "trainer", "grad norm"),
    Metric("optim/lr", "stability", (("zero", 0.0, "advisory", "0: nothing is learnt at this step"), ("", 0.0, "pass", "")),
           "trainer", "lr"),
    Metric("off_policy/max", "stability", (), "orchestrator", "off-policy max"),
    Metric("max_vio/mean", "stability", (), "trainer", "max violation"),
    Metric("time/step", "performance", (), "trainer", "trainer step s"),
    Metric("time/step", "performance", (), "orchestrator", "orchestrator step s"),
    Metric("time/wait_for_batch/share", "performance", (
        ("above", 0.5, "advisory", "the trainer waits for rollouts more than it works"), ("", 0.0, "pass", "")),
           "metrics", "trainer waits"),
    Metric("time/wait_for_policy/share", "performance", (
        ("above", 0.5, "advisory", "the orchestrator waits for weights more than it works"), ("", 0.0, "pass", "")),
           "metrics orchestrator", "orchestrator waits"),
    Metric("perf/throughput", "performance", (("shrunk", 0.5, "advisory", "half of what it was, or less"), ("", 0.0, "pass", "")),
           "trainer", "tokens/s"),
    Metric("perf/mfu", "performance", (), "trainer", "MFU %"),
    Metric("perf/peak_memory", "performance", (), "trainer", "peak GiB"),
    Metric("val/loss", "eval", (), "trainer", "validation loss"),
    Metric("eval/*", "eval", (), "orchestrator"),
    Metric("eval/*", "eval", (), "evals"),
)

SIGNATURES: Tuple[Signature, ...] = (
    # The launcher ends everything when a part ends: Train env server math failed with exit code 1
    Signature("env:died", "stop", (Rule(
        r"(?:Train|Eval) env server \S+ failed with exit code -?\d+|ERROR[^\n]{0,60}Env server failed"
        r"|env server at \S+ did not become healthy in", "lines", 1, source="*", at="after:1"),),
        "An environment server is gone or never came up: no rollout of its tasks comes any more",
        ("tail -n 40 {run_dir}/logs/latest/envs/*/*.log    # why: user code, memory, a missing package",
         "dmesg -T | grep -i oom    # whether the kernel killed it")),
    # 12:00:01   ERROR Error: Trainer failed with exit code -9: of what rl.py prints as it begins to end the rest
    Signature("part:failed", "stop", (Rule(
        r"Error: (?!Train env|Eval env)[A-Z][\w .-]{0,80} failed with exit code -?[1-9]", "lines", 1, source="launch"),),
        "A part of the run has failed, and the launcher ends the rest of it",
        ("rlrun logs {run} -n 60    # the log of that part has the reason",)),
    Signature("inference:unready", "stop", (Rule(
        r"Inference server is not ready after \d+ \(>\d+\) seconds", "lines", 1, source="*"),),
        "The inference server did not answer within its time, and the orchestrator gives up",
        ("tail -n 60 {run_dir}/logs/latest/inference.log    # out of memory, a port that is taken, a download?",)),
    # 12:00:01 WARNING Step 7: empty train batch after 128 finalized episodes (consecutive empty batches: 4/10)
    Signature("batch:empty", "stop", (Rule(
        r"(?:Step \d+: |No admitted )[^\n]{1,200}\(consecutive (?:empty batches|zero-output batch equivalents): (?:[3-9]|\d\d+)/",
        "lines", 1, source="orchestrator", at="after:1"),),
        "Three batches or more in a row held nothing to train on, and none came since; at its limit the run ends itself",
        ("grep -c 'Trace failed' {run_dir}/logs/latest/orchestrator.log    # do the rollouts fail?",
         "tail -n 3 {run_dir}/rollouts/step_{step}/train/all/traces.jsonl    # rewards all alike: too hard or too easy"),
        ("rollouts",)),
    Signature("rollout:errors", "risk", (Rule("has_error/mean", "at_least", 0.5, 3, "orchestrator"),),
        "Half of the rollouts or more failed in each of the last three steps",
        ("grep 'Trace failed' {run_dir}/logs/latest/orchestrator.log | tail    # which error it is",
         "grep -E 'WARNING|ERROR' {run_dir}/logs/latest/envs/train/*.log | tail"), ("rollouts",)),
    Signature("reward:zero", "risk", (Rule("reward/mean", "zero_shown", 0.0, 5, "orchestrator"),),
        "The mean reward was 0 in each of the last five steps: nothing can be learnt from that",
        ("tail -n 3 {run_dir}/rollouts/step_{step}/train/all/traces.jsonl    # is a right answer given no reward?",
         "Easier tasks, or a better start (SFT first)"), ("rollouts",)),
    # docs/training.md: a mean that is sustained and grows is the early warning. Hence a trend, a level, and no single peak.
    Signature("kl:mismatch", "risk", (
        Rule("mismatch_kl/all/mean", "climbing", _KL_HIGH, 10, "trainer"),
        Rule("mismatch_kl/all/mean", "grown", 2.0, 5, "trainer"),
        Rule("mismatch_kl/all/mean", "above", _KL_SOUND, 5, "trainer")),
        "Trainer and inference disagree on their tokens, more with every step: the early sign of a collapse",
        ("Compare entropy and reward since: where they fall too, go back to a checkpoint from before the rise",
         "Points at staleness (max_off_policy_steps) or unlike numerics in vLLM; confirm on its log"), ("!sft",)),
    # High from the start: no early sign, but weights, template or numerics that differ. The figure is ours.
    Signature("kl:high", "risk", (Rule("mismatch_kl/all/mean", "above", 0.1, 5, "trainer"),),
        "Mismatch KL is far above what is usual (0.001): trainer and inference give the same tokens other probabilities",
        ("rlrun explain kl:high", "Ask its owner: are weights, chat template and precision the same on both sides?"),
        ("!sft",)),
    #     ╰─ math | Ratio 50.0% | Reward 0.0000 | … | Error 100.0% | …
    Signature("env:failing", "risk", (Rule(
        r"╰─ [^|\n]{1,80}\|[^\n]{0,300}\| Error (?:9\d|100)(?:\.\d+)?%", "lines", 3, source="orchestrator",
        at="after:7"),),
        "Nearly all rollouts of one environment fail, while others go on",
        ("grep 'Trace failed' {run_dir}/logs/latest/orchestrator.log | tail    # which error it is",), ("rollouts",)),
    # The figures are ours. Entropy falls in a run that learns too; there the reward rises meanwhile.
    Signature("entropy:collapse", "risk", (
        Rule("entropy/all/mean", "shrunk", 0.2, 5, "trainer"), Rule("entropy/all/mean", "below", 0.1, 5, "trainer"),
        Rule("reward/mean", "shrunk", 1.0, 5, "orchestrator")),
        "Entropy fell to a fifth or less and the reward did not rise with it: points at mode collapse; confirm on the rollouts",
        ("tail -n 3 {run_dir}/rollouts/step_{step}/train/effective/traces.jsonl    # are the answers all alike?",
         "Go back to a checkpoint from before the fall, with a lower learning rate"), ("rollouts",)),
    # The tenfold is ours; 1.0 is where the default config begins to clip.
    Signature("grad:spike", "risk", (
        Rule("optim/grad_norm", "grown", 10.0, 1, "trainer"), Rule("optim/grad_norm", "above", 1.0, 1, "trainer")),
        "The gradient norm is ten times what it was: a spike may precede divergence",
        ("rlrun watch {run}    # does it come again?", "Where loss or reward goes with it: back to a checkpoint before it")),
    Signature("rollout:truncated", "risk", (Rule("is_truncated/mean", "at_least", 0.5, 3, "orchestrator"),),
        "Half of the rollouts or more were cut off in each of the last three steps: they can't reach an answer",
        ("Give them more room (seq_len, max_completion_tokens, max_turns), or ask for shorter answers",), ("rollouts",)),
    Signature("env:dying", "risk", (Rule(
        r"Worker \d+ \(pid=\d+\) died, restarting|Worker \d+ heartbeat timeout \([\d.]+s\), restarting", "lines", 3,
        source="env *"),),
        "Workers of an environment died or hung three times or more: points at its code or at memory; confirm on its log",
        ("grep -E 'died|heartbeat|ERROR' {run_dir}/logs/latest/envs/*/*.log | tail", "dmesg -T | grep -i oom")),
    Signature("weights:broadcast", "risk", (Rule(
        r"The route /init_broadcaster does not exist\. Skipping NCCL|Failed to update inference weights to step \d+"
        r"|Trainer did not broadcast v\d+ within|NIXL transfer timed out after"
        r"|timed out waiting for \d+ \S+ worker\(s\) in session"
        r"|(?:Server|Client) error '\d+ [^'\n]*' for url '[^'\n]*/(?:update_weights|load_lora_adapter|init_\w+|pause|resume)\b",
        "lines", 1, source="*"),),
        "New weights did not reach inference: it may go on with old ones, and the trainer with stale rollouts",
        ("tail -n 60 {run_dir}/logs/latest/inference.log    # the other half of the story",
         "grep -i broadcast {run_dir}/logs/latest/trainer.log | tail")),
    # Figures are ours: a few timeouts are normal as long as they do not make a share of the rollouts fail.
    Signature("inference:timeouts", "risk", (
        Rule(r"Trace failed in group [^\n]{0,400}?(?:[Tt]imed out|Timeout)"
             r"|Inference metrics poll failed: [^\n]{0,400}?Timeout", "lines", 5,
             source="orchestrator"),
        Rule("has_error/mean", "at_least", 0.05, 2, "orchestrator")),
        "Requests time out and a share of the rollouts fails meanwhile: points at an overloaded or hung inference server",
        ("curl -s http://localhost:8100/metrics | grep -E 'num_requests|cache_usage'    # waiting requests, a full cache?",
         "tail -n 60 {run_dir}/logs/latest/inference.log", "Lower the concurrency, or give inference more GPUs"), ("rollouts",)),
    Signature("ckpt:errors", "risk", (Rule(
        r"CheckpointException|Orchestrator checkpoint not found at|FileNotFoundError: Checkpoint not found at"
        r"|Couldn't fallback to using the master rank's dataloader checkpoint|Failed to remove \S*/checkpoints/"
        r"|inline_container\.cc", "lines", 1, source="*"),),
        "A checkpoint could not be written, read or removed",
        ("df -h {run_dir}/checkpoints; df -i {run_dir}/checkpoints", "rlrun status tells the newest one that is complete")),
    # Who waits for whom is told by the file of the monitor alone; half of the time is our figure.
    Signature("wait:orchestrator", "note", (Rule("time/wait_for_batch/share", "above", 0.5, 5, "metrics"),),
        "The trainer spends more than half of its steps waiting for rollouts: inference or the environments set the pace",
        ("More GPUs for inference, or fewer for the trainer",), ("rollouts",)),
    Signature("wait:trainer", "note", (Rule("time/wait_for_policy/share", "above", 0.5, 5, "metrics orchestrator"),),
        "The orchestrator spends more than half of its time waiting for new weights: the trainer sets the pace",
        ("More GPUs for the trainer, or fewer for inference",), ("rollouts",)),
)

GATES: Tuple[Gate, ...] = (
    Gate("gate:trainer", (Rule("loss/mean", "finite", source="trainer"),), "the loss is not a finite number", ("training",)),
    Gate("gate:grad", (Rule("optim/grad_norm", "finite", source="trainer"),), "the gradient norm is not a finite number",
         ("training",), False),
    Gate("gate:orchestrator", (Rule("reward/mean", "finite", source="orchestrator"),), "the reward is not a finite number",
         ("rollouts",)),
    Gate("gate:errors", (Rule("has_error/mean", "below", 1.0, source="orchestrator"),), "every rollout has failed",
         ("rollouts",), False),
)


def parse_step(source: str, line: str, wanted: Optional[Iterable[str]]) -> Optional[Point]:
    """The Point of one log line, None where it is no step line of this source. Seconds are those of the printed time.
    A line of an evaluation or a validation gives eval/ENV/… or val/loss and no training step."""
    keep = None if wanted is None else _make_filter(wanted)
    if source in _WAITS:
        return _parse_metrics(_WAITS[source], line, keep)
    clock, message = _unwrap(line)
    head = _TRAINING.match(message)
    if head and source != "evals":
        values, rounded, seconds = _read_parts(message[head.end():], "")
        if seconds is not None:
            values[STEP_SECONDS] = seconds
        return _make_point(int(head.group(1)), values, rounded, seconds, clock, True, keep)
    head = _EVALUATED.match(message) if source != "trainer" else None
    if head:
        values, rounded, seconds = _read_parts(message[head.end():], "eval/%s/" % head.group(1))
        return _make_point(int(head.group(2)), values, rounded, None, clock, False, keep)
    head = _VALIDATION.match(message) if source == "trainer" else None
    if head:
        values, rounded, seconds = _read_parts(message[head.end():], "")
        values = {"val/loss": values["loss/mean"]} if "loss/mean" in values else {}
        return _make_point(int(head.group(1)), values, ["val/loss"] if rounded else [], None, clock, False, keep)
    return None


def _make_filter(wanted: Iterable[str]) -> Callable[[str], bool]:
    exact = set(wanted)
    begins = tuple(key[:-1] for key in exact if key.endswith("*"))
    return lambda key: key in exact or (bool(begins) and key.startswith(begins))


def _make_point(step: int, values: Dict[str, float], rounded: Sequence[str], seconds: Optional[float], clock: str,
                is_training: bool, keep: Optional[Callable[[str], bool]]) -> Point:
    kept = values if keep is None else {key: value for key, value in values.items() if keep(key) or not math.isfinite(value)}
    return Point(step, kept, tuple(key for key in rounded if key in kept), seconds, 0, clock, is_training)


def _unwrap(line: str) -> Tuple[str, str]:
    """(time of day, message) of a line that says something good; two "" where it is another's. What a carriage return wrote over
    is left out, and of a message of several lines (JSON holds them in one) the first stays."""
    text = strip_colour(line).strip("\r\n \t").rpartition("\r")[2].strip()
    start = text.find('{"timestamp"')
    if 0 <= start < 40 and text.endswith("}"):
        entry = load_object(text[start:])
        stamp, message = entry.get("timestamp"), entry.get("message")
        if entry.get("level") != "SUCCESS" or not isinstance(message, str) or not isinstance(stamp, str):
            return "", ""
        match = _STAMP.match(stamp)
        return match.group(1) if match else "", strip_colour(message).split("\n")[0]
    match = _FRAME.match(text)
    return (match.group(1), match.group(2)) if match else ("", "")


def load_object(text: str) -> Dict[str, Any]:
    """The object that a JSON text holds, {} where it holds none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _read_parts(text: str, prefix: str) -> Tuple[Dict[str, float], List[str], Optional[float]]:
    """What stands between the bars: values by key, the keys whose 0 may be a rounded number, the seconds."""
    values: Dict[str, float] = {}
    rounded: List[str] = []
    seconds: Optional[float] = None
    for part in text.split("|"):
        part = part.strip()
        match = _TIME.match(part)
        if match:
            if seconds is None:
                seconds = sum(float(number) * _UNITS[unit] for number, unit in _TIME_PART.findall(match.group(1)))
            continue
        label, number = _split_part(part)
        if number:
            key = _KEYS.get(label, label.lower().replace(" ", "_").strip("."))
            values[prefix + key], is_rounded = _read_number(key, number)
            if is_rounded:
                rounded.append(prefix + key)
    return values, rounded, seconds


def _split_part(part: str) -> Tuple[str, Optional["re.Match[str]"]]:
    """(label, its number) of `Grad. Norm 0.1234` or `LR: 3.00e-06`; a part without both has None."""
    words = part.split(None, 5)
    for place in range(1, len(words)):
        match = _NUMBER.match(words[place])
        if match and (match.end() == len(words[place]) or words[place][match.end()] in "),"):
            return " ".join(words[:place]).rstrip(":"), match
    return "", None


def _read_number(key: str, number: "re.Match[str]") -> Tuple[float, bool]:
    value, of, percent = float(number.group(1)), number.group(2), bool(number.group(3))
    if key == "is_trainable/mean" and of:  # 120/128
        whole = float(of) if of.count(".") < 2 else 0.0
        return (value / whole if whole else 0.0), False
    is_rounded = value == 0 and (_ROUNDED.match(number.group(1)) is not None or (percent and "." in number.group(1)))
    return (value / 100.0 if percent and key in _FRACTIONS else value), is_rounded


def _parse_metrics(wait: str, line: str, keep: Optional[Callable[[str], bool]]) -> Optional[Point]:
    """{"step": 12, "time": 1787313601.2, "time/step": 3.2, "time/wait_for_batch": 1.1, …}, one line a row."""
    row = load_object(line.strip()) if line.lstrip().startswith("{") else {}
    step = row.get("step")
    if not isinstance(step, int) or not 0 <= step < 1e12 or not _is_number(row.get(wait)):
        return None
    names = row if keep is None else [key for key in row if keep(key)]
    values = {key: float(row[key]) for key in names if _is_number(row[key]) and abs(row[key]) < 1e300
              and key not in ("step", "time")}
    seconds = float(row[STEP_SECONDS]) if _is_number(row.get(STEP_SECONDS)) and 0 < row[STEP_SECONDS] < 1e9 else None
    if seconds and abs(row[wait]) < 1e9:
        values[wait + _SHARE] = row[wait] / seconds
    return _make_point(step, values, (), seconds, "", True, keep)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def quote_metric(line: str, key: str) -> str:
    """The words of a step line that tell its step and this metric; with another key, or none, its beginning."""
    text = strip_colour(line).strip("\r\n \t").rpartition("\r")[2].strip()
    if text.startswith("{") and '"timestamp"' not in text[:40]:
        return _quote_row(text, key)
    message = _unwrap(line)[1] or text
    parts = [part.strip() for part in message.split("|")]
    heads = 2 if parts[0] == "Validation" else 1
    head = " | ".join(parts[:heads])
    if key == STEP_SECONDS:
        shown = next((part for part in parts[heads:] if _TIME.match(part)), "")
    else:
        name = "loss/mean" if key == "val/loss" else key
        label = next((label for end, label in _LABELS.items() if name == end or name.endswith("/" + end)), "")
        shown = next((part for part in parts[heads:] if label and part.startswith(label) and _split_part(part)[0] == label), "")
    if not shown:
        return " | ".join(parts[:4])[:160]
    return head + (" | " if parts[heads] == shown else " | … | ") + shown


def _quote_row(text: str, key: str) -> str:
    names = [key[:-len(_SHARE)], STEP_SECONDS] if key.endswith(_SHARE) else [key]
    found = [match.group(0) for name in ["step"] + names
             for match in [re.search(r'"%s": ?[^,}]{1,40}' % re.escape(name), text)] if match]
    return ", … ".join(found) if found else text[:160]
