"""How a run falls sick: TOY_SICK's words (see README), each from the step TOY_SICK_AT on. Owns the numbers and the last words."""
import os
import resource
import sys
import time

from prime_rl.process import STEP_SEC, say, wait_for

FIRST = ("truncated", "wait_orchestrator", "wait_trainer")  # from step 1 where TOY_SICK_AT says nothing; the rest: 4
SICK = os.environ.get("TOY_SICK", "").split(",")
AT = int(os.environ.get("TOY_SICK_AT") or 0)


def find_start(word):
    return 0 if word not in SICK else AT or (1 if word in FIRST else 4)


def count_sick(word, step):
    """For how many steps it has been sick so, this one among them."""
    return max(0, step - find_start(word) + 1) if word in SICK else 0


def die(function, error, words, file="orchestrator/orchestrator"):
    """As clean_exit does it: loguru's traceback under one line, and exit 1."""
    say('Fatal error in %s\nTraceback (most recent call last):\n\n> File "/app/src/prime_rl/%s.py", line 600, in %s\n\n%s: %s' % (
        function, file, function, error, words), "ERROR")
    sys.exit(1)


def list_trainer_values(step):
    """Entropy, mismatch KL, gradient norm, seconds of the step, of these waiting."""
    kl, entropy, grad = (count_sick(word, step) for word in ("kl", "entropy", "grad"))
    values = [0.4567 * 0.3 ** entropy, 0.0008 * 6.0 ** min(kl, 5), 9.5 * min(grad, 20) or 0.1234]
    if count_sick("nan", step):
        values = [float("nan")] * 3
    waits, works = count_sick("wait_orchestrator", step), count_sick("wait_trainer", step)
    return values + [62.0 if waits else 95.0 if works else 0.0, 55.0 if waits else 0.0]


def fall_trainer(step):
    """What is due before the trainer's step line. True: it ends well here."""
    oom, nccl, kill = (find_start(word) == step for word in ("oom", "nccl", "kill"))
    if oom:
        die("train", "torch.OutOfMemoryError", (
            "CUDA out of memory. Tried to allocate 2.37 GiB. GPU 0 has a total capacity of 79.11 GiB of which 1.19 GiB is free. "
            "Including non-PyTorch memory, this process has 77.90 GiB memory in use."), "trainer/rl/train")
    for rank in (1, 0) * nccl:
        head = time.strftime("[rank%d]:[E%%m%%d %%H:%%M:%%S.0 ProcessGroupNCCL.cpp:629] [Rank %d] " % (rank, rank))
        os.write(1, (head + "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=812, OpType=ALLREDUCE, NumelIn=1, "
                     "NumelOut=1, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.\n" + head + "To avoid data "
                     "inconsistency, we are taking the entire process down.\n").encode())
    if nccl:
        os.write(1, b"terminate called after throwing an instance of 'c10::DistBackendError'\n")
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.abort()
    if kill:
        os.write(1, time.strftime("%%H:%%M:%%S SUCCESS Step %d |   3.2s | Loss 0.01" % step).encode())
        os.kill(os.getpid(), 9)
    return find_start("early") == step


def fall_orchestrator(step, name, size, engine, folder):
    """What is due before the orchestrator's step line. True: it ends well here."""
    due = [word for word in ("stall", "trace", "broadcast", "early", "empty") if find_start(word) == step]
    while "stall" in due:
        time.sleep(3600)
    if due and step > 1:  # the trainer has told of the step before
        wait_for("%s/broadcasts/step_%d/STABLE" % (folder, step - 1))
    if count_sick("wait_trainer", step) and step > 2:
        say("Pausing dispatcher to prevent orchestrator from racing from trainer. Waiting for new policy...")
        say("Holding batch %d until the trainer publishes policy v%d (currently v%d)" % (step, step - 2, step - 3))
        say("Resuming dispatcher")
    if count_sick("wait_orchestrator", step):
        say("Train batch 3/%d (%.1f%%); 12 inflight episodes (train=12, eval=0)" % (size, 300.0 / size))
    if count_sick("errors", step):
        say("Trace failed in group 7f3a (%s) \u2014 SandboxError: sandbox not ready after 120s" % name, "WARNING")
    if count_sick("envdie", step):
        say("Episode task failed in group 7f3a (%s): RemoteError('env server worker exited')" % name, "WARNING")
    for count in range(1, 11) if "empty" in due else ():
        time.sleep(STEP_SEC)
        say("Step %d: empty train batch after %d finalized episodes (consecutive empty batches: %d/10)" % (
            step, size, count), "WARNING")
    if "broadcast" in due:
        say("Updating policy in-flight to v%d" % (step - 1))
    if due and due != ["early"]:
        say("Orchestrator interrupted after 3m 4s \u2014 forcing cleanup (not a clean exit)", "WARNING")
        say("Orchestrator cleanup complete (forced).", "WARNING")
    if "empty" in due:
        die("run_orchestrator", "RuntimeError", "10 consecutive empty train batches \u2014 check algorithm credit and task "
            "difficulty.")
    if "broadcast" in due:
        die("run_orchestrator", "httpx.HTTPStatusError", "Server error '500 Internal Server Error' for url '%s/update_weights'"
            % engine, "utils/client")
    if "trace" in due:
        die("run_orchestrator", "KeyError", "'reward'")
    if "early" in due:
        say("Pipeline drained, exiting main loop")
        say("Orchestrator step loop done in 3m 4s", "SUCCESS")
    return "early" in due


def list_orchestrator_values(step):
    """Seconds of the step, of these waiting for a policy, and the shares of errors and of truncated ones."""
    waits, works = count_sick("wait_trainer", step), count_sick("wait_orchestrator", step)
    error = 85.0 if count_sick("errors", step) else 12.5 if count_sick("envdie", step) else 0.0
    return (95.0 if waits else 62.0 if works else STEP_SEC, 88.0 if waits else 0.0, "%.1f%%" % error,
            "90.0%" if count_sick("truncated", step) else "0.0%")


def end_worker(worker, start_another):
    """As verifiers tells it: the worker its error (from v1 on), the router that it died and is replaced (before v1)."""
    say("Env server failed\nTraceback (most recent call last):\n\nOSError: [Errno 24] Too many open files", "ERROR")
    os.kill(worker, 9)
    os.waitpid(worker, 0)
    say("Worker 0 (pid=%d) died, restarting" % worker, "WARNING")
    start_another()
