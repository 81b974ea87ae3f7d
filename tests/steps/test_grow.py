"""A run that is watched: an update makes of its logs what a first look would, whatever appears, vanishes or is replaced."""
import os
import subprocess
import sys
import textwrap

import pytest
from steps.made_runs import NOW, look, make_target, prime_step, step, steps, write_log

from rlrun.steps import examine, gather, grow

OOM = 'Traceback (most recent call last):\n  File "/x/y.py", line 3, in main\n    go()\nValueError: boom\n'


def append(path, text):
    with open(path, "ab") as file:
        file.write(text if isinstance(text, bytes) else text.encode())
    return path


def list_steps(growing, source="train"):
    return [point.step for point in growing.evidence.tracks[source].points]


def strip(evidence):
    """What must be the same whichever way it was read: points, ends of logs, outline."""
    return (evidence.outline, {name: track.points for name, track in evidence.tracks.items()},
            {name: (text.data, text.offset, text.first_line) for name, text in evidence.texts.items()})


def test_what_is_appended_is_read_as_a_first_look_reads_it(tmp_path):
    log = write_log(tmp_path / "e.log", steps(3, total=9))
    target = make_target({"train": log})
    growing = grow.start(target)
    for piece in (step(4), step(5)[:40], step(5)[40:], "noise\n\rbar\r" + step(6), "\n", OOM, ""):
        append(log, piece)
        growing = grow.update(growing, target)
        fresh = gather.read_evidence(target)
        assert {name: track.points for name, track in growing.evidence.tracks.items()} == {
            name: track.points for name, track in fresh.tracks.items()}
    assert strip(growing.evidence) == strip(gather.read_evidence(target))
    assert list_steps(growing) == [1, 2, 3, 4, 5, 6]


def test_the_trainers_log_appears_under_a_name_that_the_launch_log_stood_for(tmp_path):
    launch = write_log(tmp_path / "launch.log", "[config] /x/demo.env\n")
    before = make_target({"train": launch, "launch": launch}, launch_log=launch)
    growing = grow.start(before)
    own = write_log(tmp_path / "e.log", step(1))
    append(launch, step(1))
    after = before._replace(logs={"train": own, "launch": launch})
    growing = grow.update(growing, after)
    assert list_steps(growing) == [1] and growing.evidence.tracks["train"].path == own
    for number in (2, 3):
        for log in (own, launch):
            append(log, step(number))
        growing = grow.update(growing, after)
        assert list_steps(growing) == list(range(1, number + 1))


def test_a_log_that_vanishes_between_two_looks(tmp_path):
    logs = {"train": write_log(tmp_path / "e.log", steps(3)), "vllm": write_log(tmp_path / "e_vllm.log", OOM)}
    target = make_target(logs)
    growing = grow.start(target)
    os.remove(logs["vllm"])
    append(logs["train"], step(4) + OOM)
    growing = grow.update(growing, target)
    assert list_steps(growing) == [1, 2, 3, 4] and "vllm" not in growing.evidence.texts
    for state in ("live", "over", "unknown"):
        found = examine.examine(target._replace(state=state), growing.evidence, NOW)
        assert found.step == 4 and {quote.log for quote in found.errors} == {logs["train"]}
    os.remove(logs["train"])
    growing = grow.update(growing, target)
    assert examine.examine(target, growing.evidence, NOW).verdict == "unknown"
    write_log(logs["train"], steps(2))
    assert list_steps(grow.update(growing, target)) == [1, 2]


@pytest.mark.parametrize("how", ["truncated", "replaced"])
def test_a_log_that_begins_anew(tmp_path, how):
    log = write_log(tmp_path / "e.log", steps(9))
    target = make_target({"train": log})
    growing = grow.start(target)
    if how == "replaced":
        os.rename(log, log + ".1")
    write_log(log, steps(2) + ("noise\n" * 999 if how == "replaced" else ""))
    growing = grow.update(growing, target)
    assert list_steps(growing) == [1, 2]
    append(log, step(3))
    assert list_steps(grow.update(growing, target)) == [1, 2, 3]


def test_two_sources_in_one_log(tmp_path):
    """prime-rl's monitor writes the trainer's steps and the orchestrator's into one file."""
    log = write_log(tmp_path / "metrics.jsonl", "")
    target = make_target({"metrics": log, "metrics orchestrator": log}, kind="rl", stack="prime")
    growing = grow.start(target)
    append(log, '{"step": 1, "time/wait_for_batch": 2.0, "time/step": 4.0}\n'
                '{"step": 1, "time/wait_for_policy": 1.0, "time/step": 4.0}\n')
    growing = grow.update(growing, target)
    assert list_steps(growing, "metrics") == list_steps(growing, "metrics orchestrator") == [1]


def test_the_end_of_a_watched_run_is_looked_for_further_back(tmp_path):
    """Of a run that ended more is read: its first error may lie before much noise."""
    log = write_log(tmp_path / "e.log", steps(3))
    target = make_target({"train": log})
    growing = grow.start(target)
    append(log, OOM + "shutdown noise of no use\n" * 30000)
    growing = grow.update(growing, target)
    over = grow.update(growing, target._replace(state="over", pids=(), exit={"status": 1, "signal": None}))
    found = examine.examine(over.target, over.evidence, NOW)
    assert "ValueError: boom" in found.ending.first_error.text
    assert found.ending == look(over.target)[0].ending


def test_the_total_is_taken_up_when_it_is_told(tmp_path):
    log = write_log(tmp_path / "trainer.log", "12:00:00 INFO Initializing model (x)\n")
    target = make_target({"trainer": log}, kind="rl", stack="prime")
    growing = grow.start(target)
    assert growing.evidence.outline.total is None
    append(log, "12:00:01 INFO Starting training loop (max_steps=40)\n" + prime_step(1))
    growing = grow.update(growing, target._replace(logs={"trainer": log}))
    assert list_steps(growing, "trainer") == [1]


MEASURED = textwrap.dedent("""
    import resource, sys
    from steps.made_runs import make_target, step, steps, write_log
    from rlrun.steps import grow
    def peak():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    path, kind = sys.argv[1:]
    log = write_log(path, steps(3))
    target = make_target({"train": log})
    growing = grow.start(target)
    before = peak()
    line = b"some words of an agent, of no interest to anybody\\n"
    with open(log, "ab") as file:
        for _ in range(250 if kind == "leap" else 14):
            file.write(line * ((1 << 20) // len(line)))
        file.write(step(4).encode())
    growing = grow.update(growing, target)
    print([point.step for point in growing.evidence.tracks["train"].points][-1], peak() - before)
""")


@pytest.mark.parametrize("kind,most_mib", [("leap", 40), ("rounds", 40)])
def test_much_that_came_between_two_looks_takes_little_memory(tmp_path, kind, most_mib):
    """A watch that was stopped, a laptop asleep: 250 MiB at once; and 14 MiB, which are read on."""
    paths = os.pathsep.join([os.path.dirname(os.path.dirname(os.path.abspath(__file__))), os.getcwd()])
    path = str(tmp_path / "e.log")
    done = subprocess.run([sys.executable, "-c", MEASURED, path, kind], env={"PYTHONPATH": paths}, stdout=subprocess.PIPE,
                          check=True)
    os.remove(path)
    last, grown_kib = map(int, done.stdout.split())
    assert last == 4 and grown_kib < most_mib << 10
