"""Stand-in trainer: step lines in the real format, paced by TOY_* (see scripts/train/train.sh). Trains nothing."""
import math
import os
import sys
import time

from verl.trainer import sickness
from verl.trainer.sickness import count_sick

IS_ASYNC = "fully_async" in sys.argv[0]
NAME = "FullyAsyncTrainer" if IS_ASYNC else "TaskRunner"
TRIALS = 32


def read_knob(name, default):
    return os.environ.get("TOY_" + name) or default


def say(text):
    sickness.say(text, NAME)


def make_line(step, values):
    return " - ".join(["step:%d" % step] + ["%s:%s" % pair for pair in values])


def number(value):
    return "np.float64(%r)" % float("%.4g" % value)


def list_validation(step):
    """All zero, turns too, is what it is where no image of the validation set can be pulled."""
    good = 0 if count_sick("val", step) else 1
    return (("val-core/unknown/reward/mean@1", number(good * min(0.18 + 0.004 * step, 0.7))),
            ("val-aux/num_turns/min", 3 * good), ("val-aux/num_turns/max", 80 * good),
            ("val-aux/num_turns/mean", number(33.25 * good)))


def list_values(step, seconds, validation):
    wave = math.sin(step)
    collapse, starve, failed = (count_sick(word, step) for word in ("collapse", "starve", "avalanche"))
    failed = min(3 * failed * failed, TRIALS - 2)
    is_nan, is_alive = count_sick("nan", step), not count_sick("reward", step)
    values = [
        ("training/global_step", step),
        ("training/epoch", 0),
        ("actor/lr", "np.float64(%r)" % (0.0 if count_sick("lr", step) else 1e-06)),
        ("actor/grad_norm", "nan" if is_nan else number(0.029 if starve else 0.31 + 0.03 * wave)),
        ("actor/pg_loss", "np.float64(nan)" if is_nan else number(0.01 * wave)),
        ("actor/entropy", "np.float64(0.42)"),
        ("critic/rewards/mean", round(is_alive * min(0.2 + 0.01 * step, 0.8) * 0.6 ** collapse * (1 - failed / TRIALS), 4)),
        ("num_turns/mean", number(is_alive * (1.02 + 30 * 0.4 ** collapse if collapse else 31.5 + wave))),
        ("training/rollout_actor_probs_pearson_corr", 0.75 if count_sick("pearson", step) else 0.9991),
        ("rollout_corr/kl", 0.0009),
        ("trajectory_filter/invalid_ratio", round((failed + 1.28) / TRIALS, 4)),
        ("trajectory_filter/reason/env_setup_failed", "np.int64(%d)" % failed),
        ("trajectory_filter/reason/timeout", "np.int64(1)"),
        ("response_length/mean", 41800.0 if starve else 5120.0),
        ("response_length/clip_ratio", 0.03 if starve else 0.01),
    ]
    if IS_ASYNC:
        values += [("fully_async/processing_time/tp99", number(2.5 * seconds)), ("fully_async/count/dropped_stale_samples", 0)]
    return values + list(validation) + [("timing_s/step", round(9 * seconds, 3) if count_sick("slow", step) else seconds)]


def make_bar(done, total, seconds):
    """tqdm's, without a line's end: Training Progress:  33%|\u2588\u2588\u2588\u258e      | 2/6 [00:02<00:04,  1.00s/it]"""
    full, part = divmod(80 * done // total, 8)
    bar = "\u2588" * full + (chr(0x2590 - part) if part else "")
    return "Training Progress: %3d%%|%-10s| %d/%d [%02d:%02d<%02d:%02d, %5.2fs/it]\r" % (
        (100 * done // total, bar, done, total) + divmod(int(done * seconds), 60) + divmod(int((total - done) * seconds), 60)
        + (seconds,))


def save_checkpoint(step):
    folder = os.path.join(os.environ["REPO_ROOT"], "checkpoints", os.environ["project_name"], os.environ["exp_name"])
    os.makedirs(os.path.join(folder, "global_step_%d" % step), exist_ok=True)
    with open(os.path.join(folder, "latest_checkpointed_iteration.txt"), "w") as out:
        out.write("%d" % step)


def train():
    total = int(read_knob("STEPS", "3"))
    seconds = float(read_knob("STEP_SEC", "0.5"))
    fail_at = int(read_knob("FAIL_AT", "0"))
    save_every = int(read_knob("SAVE_EVERY", "0"))
    test_every = int(read_knob("TEST_FREQ", os.environ.get("TRAINER_TEST_FREQ") or "0"))
    say("toy trainer: %d steps of %s s\nTotal training steps: %d" % (total, seconds, total))
    if test_every and (read_knob("TEST_FREQ", "") or os.environ.get("TRAINER_VAL_BEFORE_TRAIN") == "True"):
        say(make_line(0, list_validation(0)))
    before = 0
    for step in sickness.list_steps(total):
        if step <= before:
            say("Setting global step to %d" % (step - 1))
        before = step
        time.sleep(seconds)
        validation = list_validation(step) if test_every and step % test_every == 0 else ()
        prefix = "\x1b[36m(%s pid=%d)\x1b[0m " % (NAME, os.getpid())
        line = prefix + make_line(step, list_values(step, seconds, () if IS_ASYNC else validation))
        sickness.say("generation throughput: 1234.5 tokens/s", "vLLMHttpServer")
        sickness.fall(step, line)
        sickness.write("".join(prefix + make_bar(done, total, seconds) for done in (step - 1, step)) + line + "\n")
        if IS_ASYNC and validation:
            say(make_line(step, validation))
        if save_every and step % save_every == 0:
            save_checkpoint(step)
        if step == fail_at:
            raise RuntimeError("toy failure after step %d" % step)
    say("toy trainer: done")


def main():
    try:
        train()
    except KeyboardInterrupt:
        try:
            say("SIGINT, winding down")
        except OSError:  # the same signal has ended tee, which read this
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(130)
    except RuntimeError:
        import traceback
        traceback.print_exc()
        sys.exit(int(read_knob("FAIL_EXIT", "1")))


if __name__ == "__main__":
    main()
