"""Objects of `status --json` and `runs --json` as examples: a healthy run, a sick one, an ended one, a hostile one."""
import copy
import math
import random

RULE = "\u2550"
# Everything that a page must not pass on as it is.
NASTY = ('<script>document.title="ran"</script>"\'&<img src=x onerror=alert(1)>'
         '\x00\x1b[31m\u202eabc\u2066\ud800\x85\t\r\n]]>--></title></style>')
KEYS = ("critic/rewards/mean", "actor/grad_norm", "actor/lr", "training/rollout_actor_probs_pearson_corr", "num_turns/mean",
        "trajectory_filter/reason/env_setup_failed", "response_length/mean", "val-core/swe/acc/mean@1")


def make_points(key, last, seed=7):
    """Values that look like a run's, one a step, for one of KEYS."""
    dice = random.Random(seed + KEYS.index(key))
    points = []
    for step in range(1, last + 1):
        noise = dice.gauss(0, 1)
        value = {
            "critic/rewards/mean": 0.62 * (1 - math.exp(-step / 150.0)) + 0.035 * noise,
            "actor/grad_norm": abs(0.31 + 0.06 * noise) + (3.1 if step == 203 else 0),
            "actor/lr": 1e-06,
            "training/rollout_actor_probs_pearson_corr": 0.9990 + 0.0002 * noise,
            "num_turns/mean": 24 + 4 * math.sin(step / 60.0) + noise,
            "trajectory_filter/reason/env_setup_failed": float(max(0, int(dice.random() * 3 - 1))),
            "response_length/mean": 11800 + 14 * step + 900 * noise,
            "val-core/swe/acc/mean@1": 0.21 + 0.0004 * step + 0.01 * noise,
        }[key]
        if key.startswith("val-") and step % 20:
            continue
        points.append([step, round(value, 9)])
    return points


def make_metric(key, row, points, mark="pass", words="", source="train", label="", rounded=False):
    """One of `metrics`: the last of the points, the trend from the last twelve."""
    step, value = points[-1]
    return {"key": key, "label": label or key, "row": row, "source": source, "value": value, "step": step, "rounded": rounded,
            "mark": mark, "words": words, "trend": [value for _, value in points[-12:]]}


def make_healthy():
    """A run in the middle of its way, nothing wrong."""
    name = "qwen3-30b-swe-20261128-210412"
    logs = "/mnt/shared/trials/swe-agent/%s/logs" % name
    points = {key: make_points(key, 412) for key in KEYS}
    for key in KEYS:  # a stretch that the log does not tell
        points[key] = [pair for pair in points[key] if not 290 < pair[0] < 310]
    words = {KEYS[0]: ("reward", "not zero, rising"), KEYS[1]: ("grads", "of the size of the run's earlier steps"),
             KEYS[2]: ("grads", "as configured"), KEYS[3]: ("grads", "about 0.999: replayed routing is aligned"),
             KEYS[4]: ("traj", "tens of turns"), KEYS[5]: ("traj", "about 0"), KEYS[6]: ("traj", "not judged by itself"),
             KEYS[7]: ("val", "not zero")}
    metrics = [make_metric(key, words[key][0], points[key], "skipped" if key == KEYS[6] else "pass", words[key][1])
               for key in KEYS]
    block = "\n".join([
        RULE * 22 + " run configuration (train) " + RULE * 22,
        "  config      scripts/train/configs/fully_async_3nodes.env",
        "  experiment  project=swe-agent  exp=" + name,
        "  axes        fully_async · megatron · vllm · r3",
        "  model       /mnt/models/Qwen3-30B-A3B-Thinking [moe]",
        "  data        train=/mnt/data/swe-gym/train.parquet (2,438)  val=/mnt/data/swe-bench-verified/val.parquet (500)",
        "  topology    nodes=3  gpus/node=8  rollout=2  trainer=1  gen_tp=4  ppo_tp=4  ep=8  cp=2",
        "  batch       train=32  n=8  mini=32  micro/gpu=1",
        "  context     prompt=8192  response=65536  max_model_len=73728",
        "  algorithm   grpo  lr=1e-6  kl=0  clip=0.2/0.28",
        "  schedule    total_epochs=10  test_freq=20  save_freq=50",
        "  logs        train=%s/%s.log" % (logs, name), RULE * 71])
    return {
        "schema": 1, "command": "status", "exit": 0, "time": "2026-11-29T12:00:00Z", "verdict": "healthy",
        "conclusion": "Step 412 of 2000; every metric that is judged is as it should be, no known signature matched.",
        "run": {"id": "20261128T210412Z-train-fully_async_3nodes", "name": name, "stack": "Lego-RL", "kind": "train",
                "root": "/home/wei/src/rl", "state": "live", "user": "wei", "host": "gpu-node-07",
                "started_seconds": 1795899852.0, "elapsed_seconds": 53748.0, "pids": {"runner": [31877], "trainer": [34120]},
                "logs": {"train": "%s/%s.log" % (logs, name), "vllm": "%s/%s_vllm.log" % (logs, name)},
                "launch_log": "/home/wei/src/rl/logs/launch_20261128T210412Z.log",
                "run_dir": "/mnt/shared/trials/swe-agent/" + name,
                "siblings": ["/mnt/shared/trials/swe-agent/qwen3-30b-swe-20261128-210415"], "jobs": {"88123": "RUNNING"},
                "config": "scripts/train/configs/fully_async_3nodes.env", "digest": "3f9c2a71",
                "record": "/home/wei/src/rl/logs/rlrun/20261128T210412Z-train-fully_async_3nodes", "stop": "kill -INT -- -31877"},
        "progress": {"step": 412, "total": 2000, "total_from": "the log's own progress bar", "epoch": 2.06, "epochs": 10,
                     "stage": "training", "seconds_per_step": 128.4, "first_step_seconds": 391.0, "left_seconds": 203899.0,
                     "left_from": "the median of the last ten steps", "idle_seconds": 42.0,
                     "checkpoint": {"step": 400, "path": "/mnt/shared/ckpt/swe-agent/%s/global_step_400" % name,
                                    "incomplete": []},
                     "segments": [{"first": 1, "last": 412}], "missing_steps": 19},
        "metrics": metrics,
        "curves": [{"key": key, "label": key, "source": "train", "points": points[key]} for key in KEYS],
        "findings": [], "ending": None, "errors": [], "recommendations": [],
        "notes": ["Two directories of other nodes belong to this run; trials were counted in all of them."],
        "configuration": block}


def make_sick():
    """A run that should be stopped: two signatures matched, NaN, an error in the log, no total told."""
    shape = make_healthy()
    shape.update(verdict="recommend stopping", exit=1,
                 conclusion="Replayed routing is misaligned since step 96: what is trained on are corrupted log probabilities.")
    log = shape["run"]["logs"]["train"]
    for curve in shape["curves"]:
        points = [pair for pair in curve["points"] if pair[0] <= 131]
        key = curve["key"]
        if key == KEYS[3]:
            points = [[step, value if step < 96 else round(0.999 - 0.0071 * (step - 95) + 0.02 * math.sin(step), 6)]
                      for step, value in points]
        if key == KEYS[1]:
            points = [[step, "nan" if step in (119, 127, 128) else "inf" if step == 124 else round(value * (1 if step < 96 else
                       1.09 ** (step - 95)), 4)] for step, value in points]
        if key == KEYS[5]:
            points = [[step, value if step < 100 else float((step - 100) * 4 + step % 5)] for step, value in points]
        if key == KEYS[7]:
            points = points[:1]
        curve["points"] = points
    by_key = {curve["key"]: curve["points"] for curve in shape["curves"]}
    marks = {KEYS[3]: ("blocks", "below 0.99: replayed routing is misaligned"),
             KEYS[1]: ("advisory", "NaN at 3 of the last 12 steps"),
             KEYS[5]: ("advisory", "climbing over 30 steps: the environments can't start"), KEYS[2]: ("pass", "as configured")}
    for metric in shape["metrics"]:
        mark, words = marks.get(metric["key"], (metric["mark"], metric["words"]))
        metric.update(make_metric(metric["key"], metric["row"], by_key[metric["key"]], mark, words))
    shape["metrics"][-1].update(value=None, step=None, trend=[], mark="skipped", words="test_freq not reached yet")
    shape["progress"].update(step=131, total=None, total_from=None, left_seconds=None, left_from=None, epoch=0.65,
                             segments=[{"first": 1, "last": 118}, {"first": 101, "last": 131}], missing_steps=0, stage=None,
                             checkpoint={"step": 100, "path": "/mnt/shared/ckpt/swe-agent/global_step_100",
                                         "incomplete": ["/mnt/shared/ckpt/swe-agent/global_step_120"]})
    shape["findings"] = [
        {"name": "r3:misaligned", "severity": "stop",
         "words": "Recent steps train on log probabilities of other experts than rolled out.",
         "quotes": [{"log": log, "line": 20417, "offset": 9182734,
                     "text": "step:131 - training/rollout_actor_probs_pearson_corr:0.7371"}],
         "advice": ["Stop the run: what it has learned since step 96 is of no use.",
                    "Ask who changed the router replay settings between this run and the last healthy one."]},
        {"name": "env:avalanche", "severity": "risk", "words": "Environments that could not be set up climb from step to step.",
         "quotes": [{"log": log, "line": None, "offset": 9182734, "text": "trajectory_filter/reason/env_setup_failed:125"}],
         "advice": ["grep -c env_setup_failed " + log]}]
    shape["errors"] = [{"log": log, "line": 20391, "offset": 9170002,
                        "text": "RuntimeError: pod swe-4411-7 did not start in 600 s: ErrImagePull"}]
    shape["recommendations"] = ["kill -INT -- -31877 (the newest complete checkpoint is of step 100)",
                                "Ask the cluster's owner whether the registry of the task images can be reached from node 2.",
                                "rlrun check scripts/train/configs/fully_async_3nodes.env before the next launch"]
    return shape


def make_ended():
    """A run that died of a lack of GPU memory before its last step."""
    shape = make_healthy()
    log = shape["run"]["logs"]["train"]
    shape.update(verdict="ended", conclusion="Failed at step 37 of 2000 with exit status 1: out of memory on GPU 3.")
    shape["run"].update(state="over", pids={}, stop=None, jobs={})
    for curve in shape["curves"]:
        curve["points"] = [pair for pair in curve["points"] if pair[0] <= 37]
    for metric, curve in zip(shape["metrics"], shape["curves"]):
        metric.update(make_metric(metric["key"], metric["row"], curve["points"], metric["mark"], metric["words"]))
    shape["progress"].update(step=37, epoch=0.19, left_seconds=None, left_from=None, idle_seconds=30311.0, checkpoint=None,
                             missing_steps=0, segments=[{"first": 1, "last": 37}], stage=None)
    shape["ending"] = {"how": "failed", "status": 1, "signal": None,
                       "words": "A worker of the trainer ran out of GPU memory; the others then failed to reach it.",
                       "first_error": {"log": log, "line": 6120, "offset": 2811220, "text":
                                       "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.27 GiB. GPU 3 has a "
                                       "total capacity of 79.11 GiB of which 4.03 GiB is free."},
                       "advice": ["Lower the tokens per GPU in the config, or raise the context parallel size.",
                                  "rlrun explain memory"]}
    shape["errors"] = [dict(shape["ending"]["first_error"]),
                       {"log": log, "line": 6188, "offset": 2819001, "text":
                        "NCCL WARN Timeout: rank 11, ALLREDUCE, 1800000 ms (the peer on GPU 3 is gone)"}]
    return shape


def make_hostile():
    """Every text of a sick run replaced by what must not reach the page; names of keys too."""
    def spoil(value):
        if isinstance(value, str):
            return NASTY
        if isinstance(value, list):
            return [spoil(one) for one in value]
        return {key: spoil(one) for key, one in value.items()} if isinstance(value, dict) else value
    shape = spoil(make_sick())
    shape["run"].update(logs={NASTY: NASTY}, pids={NASTY: [1]}, jobs={NASTY: NASTY})
    shape["ending"] = spoil(make_ended()["ending"])
    return shape


def make_bare():
    """A run of which next to nothing is known."""
    return {"schema": 1, "command": "status", "exit": 0, "time": "2026-11-29T12:00:00Z", "verdict": "no step yet",
            "conclusion": "Waiting for nodes.",
            "run": {"id": None, "name": "x", "stack": "prime-rl", "kind": "rl", "root": None, "state": "unknown", "user": None,
                    "host": None, "started_seconds": None, "elapsed_seconds": None, "pids": {}, "logs": {}, "launch_log": None,
                    "run_dir": None, "siblings": [], "jobs": {}, "config": None, "digest": None, "record": None, "stop": None},
            "progress": {"step": None, "total": None, "total_from": None, "epoch": None, "epochs": None, "stage": "nodes 1 of 3",
                         "seconds_per_step": None, "first_step_seconds": None, "left_seconds": None, "left_from": None,
                         "idle_seconds": None, "checkpoint": None, "segments": [], "missing_steps": 0},
            "metrics": [], "curves": [], "findings": [], "ending": None, "errors": [], "recommendations": [], "notes": [],
            "configuration": None}


def make_big():
    """As much as the object may hold: 16 curves of 2000 points."""
    shape = make_healthy()
    dice = random.Random(3)
    shape["curves"] = [{"key": "metric/%d" % number, "label": "", "source": "train",
                        "points": [[step, dice.gauss(0, 10.0 ** number)] for step in range(1, 2001) if number % 4 or step % 3]}
                       for number in range(16)]
    return shape


def make_row(state, age_seconds, **changes):
    """One of `runs`."""
    row = {"id": "20261128T210412Z-train-fully_async_3nodes", "state": state, "exit": None, "age_seconds": age_seconds,
           "kind": "train", "config": "/home/wei/src/rl/scripts/train/configs/fully_async_3nodes.env",
           "experiment": "qwen3-30b-swe-20261128-210412", "user": "wei", "record": "/home/wei/src/rl/logs/rlrun/r",
           "digest": "3f9c2a71", "launch_log": "/home/wei/src/rl/logs/launch_20261128T210412Z.log",
           "train_log": "/mnt/shared/trials/swe-agent/qwen3-30b-swe-20261128-210412/logs/qwen3-30b-swe-20261128-210412.log",
           "runner": None, "run_dir": None, "left": [], "jobs": {}, "host": "gpu-node-07", "time": "2026-11-28T21:04:12Z"}
    return dict(row, **changes)


def make_runs():
    """An index with a launch in each state."""
    rows = [make_row("running", 53748), make_row("ended 0", 190000, kind="eval", config="/c/eval_swe.env", train_log=None),
            make_row("ended 1", 271000, experiment=None), make_row("killed by SIGKILL", 400000, user="alice", left=[4, 5]),
            make_row("lost", 900000), make_row("elsewhere (gpu-node-09)", 1200000), make_row("job 88123 out_of_memory", 1300000),
            make_row("job 88001 completed", 1400000), make_row("unreadable", None, kind="", config="", user="", launch_log=None,
                                                                train_log=None, experiment=None),
            make_row("not started", 1500000)]
    return {"schema": 1, "command": "runs", "root": "/home/wei/src/rl", "runs": copy.deepcopy(rows)}
