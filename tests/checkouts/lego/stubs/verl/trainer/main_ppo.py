"""Stand-in trainer: step lines in the real format, paced by TOY_* (see scripts/train/train.sh). Trains nothing."""
import os
import sys
import time

COLOUR = "\x1b[36m(TaskRunner pid=%d)\x1b[0m " % os.getpid()


def read_knob(name, default):
    return os.environ.get("TOY_" + name) or default


def say(text):
    print(COLOUR + text, flush=True)


def make_step_line(step, seconds, bad):
    values = (
        ("training/global_step", step),
        ("training/epoch", 0),
        ("actor/lr", "np.float64(%r)" % (0.0 if "lr" in bad else 1e-06)),
        ("actor/grad_norm", "nan" if "nan" in bad else "np.float64(0.31)"),
        ("actor/entropy", "np.float64(0.42)"),
        ("critic/rewards/mean", 0.0 if "reward" in bad else round(0.2 + 0.01 * step, 4)),
        ("num_turns/mean", "np.float64(31.5)"),
        ("training/rollout_actor_probs_pearson_corr", 0.75 if "pearson" in bad else 0.9991),
        ("trajectory_filter/invalid_ratio", 0.04),
        ("trajectory_filter/reason/env_setup_failed", "np.int64(0)"),
        ("response_length/mean", 5120.0),
        ("response_length/clip_ratio", 0.01),
        ("timing_s/step", seconds),
    )
    return " - ".join(["step:%d" % step] + ["%s:%s" % pair for pair in values])


def save_checkpoint(step):
    folder = os.path.join(os.environ["REPO_ROOT"], "checkpoints", os.environ["project_name"], os.environ["exp_name"])
    os.makedirs(os.path.join(folder, "global_step_%d" % step), exist_ok=True)
    with open(os.path.join(folder, "latest_checkpointed_iteration.txt"), "w") as out:
        out.write("%d" % step)


def train():
    steps = int(read_knob("STEPS", "3"))
    seconds = float(read_knob("STEP_SEC", "0.5"))
    fail_at = int(read_knob("FAIL_AT", "0"))
    save_every = int(read_knob("SAVE_EVERY", "0"))
    bad = read_knob("BAD", "").split(",")
    say("toy trainer: %d steps of %s s" % (steps, seconds))
    for step in range(1, steps + 1):
        time.sleep(seconds)
        print("\x1b[36m(vLLMHttpServer pid=%d)\x1b[0m generation throughput: 1234.5 tokens/s" % os.getpid(), flush=True)
        say(make_step_line(step, seconds, bad))
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
