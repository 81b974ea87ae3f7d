"""How the stand-in trainer falls sick: TOY_SICK's words, each from the step TOY_SICK_AT on. Owns the steps, and what ends say."""
import os
import sys
import time

FIRST = {"val": 0, "lr": 1, "pearson": 1, "reward": 1}  # where TOY_SICK_AT says nothing; the rest: 4
OLD = (os.environ.get("TOY_BAD") or "").split(",")  # an older knob: from the first step on
SICK = (os.environ.get("TOY_SICK") or "").split(",") + OLD
AT = os.environ.get("TOY_SICK_AT")
PID = os.getpid()
HERE = os.path.dirname(os.path.abspath(__file__))


def find_start(word):
    """The step from which it is sick so; None for never."""
    return None if word not in SICK else 1 if word in OLD else int(AT) if AT else FIRST.get(word, 4)


def count_sick(word, step):
    """For how many steps it has been sick so, this one among them."""
    return 0 if word not in SICK else max(0, step - find_start(word) + 1)


def list_steps(last):
    at = find_start("restart") or 1
    return list(range(1, at)) + list(range(max(1, at - 2), last + 1))


def write(text):
    os.write(1, text.encode("utf-8"))


def say(text, who, number=0):
    """Through ray's prefix, line by line."""
    for line in text.split("\n"):
        write("\x1b[36m(%s pid=%d)\x1b[0m %s\n" % (who, PID + number, line))


def say_worker_died(detail):
    write("\x1b[33m(raylet)\x1b[0m A worker died or was killed while executing a task by an unexpected system error. To "
          "troubleshoot the problem, check the logs for the dead worker. Worker PID: %d Worker exit type: SYSTEM_ERROR Worker "
          "exit detail: %s\n" % (PID + 3, detail))


def say_end_of_driver(error, actor, words):
    write("Error executing job with overrides: ['trainer.nnodes=1']\nTraceback (most recent call last):\n"
          '  File "%s/main_ppo.py", line 42, in main\n    run_ppo(config)\n'
          "ray.exceptions.RayTaskError(%s): ray::%s (pid=%d, ip=10.0.0.1)\n%s\n" % (HERE, error, actor, PID + 1, words))


def oom():
    say_end_of_driver("OutOfMemoryError", "WorkerDict.actor_rollout_update_actor()", (
        '  File "%s/dp_actor.py", line 512, in update_policy\n    loss.backward()\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.37 GiB. GPU 0 has a total capacity of 139.80 GiB of "
        "which 1.19 GiB is free. Including non-PyTorch memory, this process has 138.60 GiB memory in use.") % HERE)
    for rank in (1, 2, 3):
        say(time.strftime("[rank%d]:[W%%m%%d %%H:%%M:%%S.0 ProcessGroupNCCL.cpp:1496] Warning: WARNING: destroy_process_group() "
                          "was not called before program exit, which can leak resources." % rank), "WorkerDict", rank)
    say_worker_died("Worker exits because its owner has exited.")


def nccl():
    for words in (
            "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5012, OpType=_REDUCE_SCATTER_BASE, NumelIn=1048576, "
            "NumelOut=131072, Timeout(ms)=600000) ran for 600014 milliseconds before timing out.",
            "To avoid data inconsistency, we are taking the entire process down.\nterminate called after throwing an instance of "
            "'c10::DistBackendError'\n*** SIGABRT received at time=1 on cpu 12 ***"):
        for rank in (3, 0, 5):
            say(time.strftime("[rank%d]:[E%%m%%d %%H:%%M:%%S.0 ProcessGroupNCCL.cpp:629] [Rank %d] " % (rank, rank)) + words,
                "WorkerDict", rank)
    say_worker_died("Worker unexpectedly exits with a connection error code 2. End of file.")
    say_end_of_driver("ActorDiedError", "WorkerDict.actor_rollout_update_actor()",
                      "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.")


def trace():
    words = ('  File "%s/agent_loop.py", line 330, in generate_sequences\n    reply = json.loads(body)\n'
             "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)") % HERE
    say("Traceback (most recent call last):\n" + words, "AgentLoopWorker", 7)
    say("ray.exceptions.ActorDiedError: The actor died because its owner has died.", "WorkerDict", 1)
    say_worker_died("Worker exits because its owner has exited.")
    say_end_of_driver("JSONDecodeError", "AgentLoopWorker.generate_sequences()", words)


def fall(step, line):
    """What is due before this step's line: an end with its words, or silence for ever."""
    due = [word for word in ("oom", "nccl", "trace", "stall", "kill", "early") if step == find_start(word)]
    if "stall" in due:
        while True:
            time.sleep(3600)
    if "kill" in due:
        write(line[:len(line) // 2])
        os.kill(PID, 9)
    if "early" in due:
        say("[FullyAsyncTrainer] Detected termination signal (None), stopping sample collection. Collected 3/64 samples",
            "FullyAsyncTrainer")
        sys.exit(0)
    if due:
        globals()[due[0]]()
        sys.exit(1)
