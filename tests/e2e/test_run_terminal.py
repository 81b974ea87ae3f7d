"""The questions at a real terminal: what is a yes, what is a no, where prompts appear, and that nothing hangs (S15)."""

import os
import shlex
import subprocess

import pytest

from . import box as b

QUESTION = "Launch with this configuration? [y/N] "
MODE = "Launch mode? [B]ackground (default) / [F]oreground "
WHICH = "Which one? "
INTERRUPT, END = "\x03", "\x04"


def answer(box, config, dialogue, *words, env=None, before=None):
    """Plays (prompt, what is typed) pairs; gives exit code, the text after the last prompt, and what was left behind."""
    session = b.open_rlrun(box, "run", config, *words, env=env or b.LONG, before=before)
    shown = ""
    for prompt, typed in dialogue:
        shown += b.expect(session, prompt)
        b.send(session, typed)
    code, text = b.finish(session)
    return {"code": code, "text": text, "before": shown,
            "traces": b.count_traces(box), "states": [row["state"] for row in b.list_runs(box)]}


# --- the one yes


def play_noes(box):
    words = ("--board", "leave")
    tries = {
        "Enter": ["\n"],
        "n": ["n\n"],
        "No": ["No\n"],
        "garbage twice": ["sure\n", "ok\n"],
        "ye": ["ye\n", "yess\n"],
        "Ctrl-D": [END],
        "Ctrl-D after letters": ["y" + END + END],
        "Ctrl-C": [INTERRUPT],
        "Ctrl-C after y": ["y" + INTERRUPT],
        "a blank y": ["\t \n"],
        "not UTF-8": ["\udcff\n", "\udcff\n"],
    }
    facts = {}
    for name, typed in tries.items():
        session = b.open_rlrun(box, "run", "demo", *words, env=b.LONG)
        for text in typed:
            b.expect(session, QUESTION)
            os.write(session.fd, text.encode("utf-8", "surrogateescape"))
        code, text = b.finish(session)
        facts[name] = {"code": code, "text": text}
    return {"tries": facts, "traces": b.count_traces(box)}


def test_all_but_a_yes_is_no_and_leaves_no_trace(play, root):
    facts = play(play_noes, root)
    assert len(facts["tries"]) == 11
    for name, told in facts["tries"].items():
        is_interrupt = name.startswith("Ctrl-C")
        assert told["code"] == (130 if is_interrupt else 3), name
        assert ("nothing was launched" if is_interrupt else "not launched") in told["text"], name
        assert "Traceback" not in told["text"] and "Launch mode" not in told["text"], name
    assert facts["traces"] == b.NOTHING


def play_yeses(box):
    facts = {}
    for typed, mode in (("Y", "b\n"), (" yes ", "nonsense\n[B]\n")):
        facts[typed] = answer(box, "demo", [(QUESTION, typed + "\n"), (MODE, mode)], "--board", "leave")
        b.end_runs()
    facts["second try"] = answer(box, "demo", [(QUESTION, "what\n"), (QUESTION, "y\n"), (MODE, "\n")], "--board", "leave")
    return facts


def test_y_and_yes_in_any_case_launch(play, root):
    facts = play(play_yeses, root)
    for typed, told in facts.items():
        assert told["code"] == 0 and "Launched (background)" in told["text"], typed
        assert told["states"][0] == "running", typed


def play_modes(box):
    return {
        "Ctrl-D": answer(box, "demo", [(QUESTION, "y\n"), (MODE, END)], "--board", "leave"),
        "Ctrl-C": answer(box, "demo", [(QUESTION, "y\n"), (MODE, INTERRUPT)], "--board", "leave"),
        "nonsense": answer(box, "demo", [(QUESTION, "y\n"), (MODE, "x\n"), (MODE, "y\n"), (MODE, "yes\n")], "--board", "leave"),
        "F": answer(box, "demo", [(QUESTION, "y\n"), (MODE, "F\n")], "--board", "leave", env=b.SHORT),
    }


def test_the_launch_mode_is_asked_and_no_mode_is_no_launch(play, root):
    facts = play(play_modes, root)
    for name in ("Ctrl-D", "Ctrl-C", "nonsense"):
        assert facts[name]["code"] == (130 if name == "Ctrl-C" else 3) and facts[name]["traces"] == b.NOTHING, name
    assert facts["F"]["code"] == 0 and "step:2 - " in facts["F"]["text"] and facts["F"]["states"] == ["ended 0"]


# --- board and old log


def play_board(box):
    served = os.path.join(box.folder, "served")
    os.mkdir(served)
    b.start_board(box, served)
    facts = {
        "stop": answer(box, "demo", [(WHICH, "3\n")]),
        "word": answer(box, "demo", [(WHICH, "stop\n")]),
        "Ctrl-D": answer(box, "demo", [(WHICH, END)]),
        "nonsense": answer(box, "demo", [(WHICH, "4\n"), (WHICH, "\n"), (WHICH, "y\n")]),
    }
    session = b.open_rlrun(box, "run", "demo", env=b.LONG)
    facts["question"] = b.expect(session, WHICH)
    b.send(session, "2\n")
    b.expect(session, QUESTION)
    b.send(session, "n\n")
    b.finish(session)
    facts["before"] = b.count_traces(box)
    facts["leave"] = answer(box, "demo", [(WHICH, "2\n"), (QUESTION, "y\n"), (MODE, "\n")])
    facts["left"] = os.listdir(served)
    b.end_runs()
    facts["link"] = answer(box, "demo", [(WHICH, "[1]\n"), (QUESTION, "y\n"), (MODE, "\n")])
    facts["linked"] = b.wait_for(lambda: os.listdir(served), "the link")
    facts["served"] = served
    return facts


def test_the_board_question_takes_1_2_or_3(play, root):
    facts = play(play_board, root)
    for name in ("stop", "word", "Ctrl-D", "nonsense"):
        assert facts[name]["code"] == 3 and "nothing was launched" in facts[name]["text"], name
        assert "--board link|leave" in facts[name]["text"], name
    assert facts["before"] == b.NOTHING
    question = facts["question"]
    assert "port=8090" in question and facts["served"] in question and "[1]" in question and "never appear" in question
    assert facts["leave"]["code"] == 0 and facts["left"] == []
    assert facts["link"]["code"] == 0 and len(facts["linked"]) == 1 and facts["linked"][0].endswith(".log")


def play_no_board(box):
    session = b.open_rlrun(box, "run", "demo", env=b.LONG)
    question = b.expect(session, WHICH)
    b.send(session, "1\n")
    again = b.expect(session, WHICH)
    b.send(session, "3\n")
    return {"question": question, "again": again, "end": b.finish(session)}


def test_without_a_board_there_is_nothing_to_link_into(play, root):
    facts = play(play_no_board, root)
    assert "no board runs on this machine" in facts["question"] and "[1]" not in facts["question"]
    assert facts["end"][0] == 3


def play_old_log(box):
    log = os.path.join(box.root, "logs/pinned.log")
    os.makedirs(os.path.dirname(log))
    facts = {}
    for name, typed in (("stop", "3\n"), ("Ctrl-D", END)):
        b.add_to_file(log, "the earlier run's words\n")
        facts[name] = answer(box, "pinned", [(WHICH, typed)], "--board", "leave")
    facts["untouched"] = b.read(log)
    facts["keep"] = answer(box, "pinned", [(WHICH, "1\n"), (QUESTION, "y\n")], "--board", "leave", "--background")
    record = os.path.join(box.root, "logs/rlrun", b.list_runs(box)[0]["id"])
    facts["kept"] = b.read(os.path.join(record, "earlier-pinned.log"))
    b.end_runs()
    facts["lose"] = answer(box, "pinned", [(WHICH, "2\n"), (QUESTION, "y\n")], "--board", "leave", "--background")
    record = os.path.join(box.root, "logs/rlrun", b.list_runs(box)[0]["id"])
    return dict(facts, lost=os.listdir(record), now=b.read(log))


def test_the_old_log_question_keeps_loses_or_stops(play, root):
    facts = play(play_old_log, root)
    for name in ("stop", "Ctrl-D"):
        assert (
            facts[name]["code"] == 3 and "--old-log keep|lose" in facts[name]["text"] and facts[name]["traces"]["records"] == 0
        )
    assert facts["untouched"] == facts["kept"] == "the earlier run's words\n" * 2
    assert facts["keep"]["code"] == facts["lose"]["code"] == 0
    assert not [name for name in facts["lost"] if name.startswith("earlier-")]
    assert "the earlier run's words" not in facts["now"]


# --- where the streams go


def play_streams(box, which):
    path = os.path.join(box.folder, "stream")

    def redirect():
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        for number in {"stdout": (1,), "stderr": (2,), "both": (1, 2)}[which]:
            os.dup2(fd, number)

    told = answer(box, "demo", [(QUESTION, "y\n"), (MODE, "\n")], "--board", "leave", before=redirect)
    return dict(told, file=b.read(path))


@pytest.mark.parametrize("which", ["stdout", "stderr", "both"])
def test_prompts_reach_the_terminal_wherever_the_streams_go(play, root, which):
    facts = play(play_streams, root, which=which)
    assert facts["code"] == 0 and facts["states"] == ["running"]
    shown = {"stdout": facts["text"], "stderr": facts["text"], "both": facts["file"]}[which]
    assert ("Launched (background)" in facts["file"]) == (which != "stderr")
    assert ("Launched (background)" in shown) == (which != "stdout")
    if which != "stdout":
        assert "run configuration (train)" in facts["before"] and "\x1b" not in facts["file"]  # the plan is where the question is


def play_odd_stdin(box):
    facts = {}
    line = " ".join(shlex.quote(word) for word in (box.python, box.pyz, "run", "demo", "--board", "leave"))
    for name, tail in (("null", "</dev/null"), ("closed", "<&-"), ("pipe", "< <(yes)"), ("nohup", "<&- >out 2>&1; cat out")):
        session = b.open_terminal(
            ["bash", "-c", "%s %s" % (line, tail) + ("" if name == "nohup" else "; exit $?")], b.make_env(box, b.LONG), box.root
        )
        facts[name] = b.finish(session)
    session = b.open_terminal(
        ["setsid", "-w", box.python, box.pyz, "run", "demo", "--board", "leave"], b.make_env(box, b.LONG), box.root
    )
    facts["setsid"] = b.finish(session)
    return {"tries": facts, "traces": b.count_traces(box)}


def test_S15_at_a_terminal_with_stdin_from_elsewhere_nothing_is_asked(play, root):
    facts = play(play_odd_stdin, root)
    for name, (code, text) in facts["tries"].items():
        assert code == (0 if name == "nohup" else 3) and "nobody can be asked here; nothing was launched" in text, name
        assert QUESTION not in text and "Traceback" not in text, name
    assert facts["traces"] == b.NOTHING


def play_background_job(box):
    shell = b.open_terminal(["bash", "--norc", "-i"], b.make_env(box, b.LONG, {"PS1": "$ "}), box.root)
    b.send(shell, "%s run demo --board leave & wait $!; echo code=$?\n" % shlex.join([box.python, box.pyz]))
    told = b.expect(shell, "code=3")
    b.send(shell, "exit\n")
    return {"told": told, "end": b.finish(shell)[0], "traces": b.count_traces(box)}


def test_a_background_job_neither_hangs_nor_takes_the_shells_input(play, root):
    facts = play(play_background_job, root)
    assert "nobody can be asked here" in facts["told"] and "Stopped" not in facts["told"]
    assert facts["traces"] == b.NOTHING


def play_window_closed(box):
    session = b.open_rlrun(box, "run", "demo", "--board", "leave", env=b.LONG)
    b.expect(session, QUESTION)
    os.close(session.fd)
    return {"code": b.wait_for(lambda: b.reap(session.pid), "its end")[0], "traces": b.count_traces(box)}


def test_a_window_that_is_closed_at_the_question_is_no(play, root):
    facts = play(play_window_closed, root)
    assert facts["code"] in (3, 130) and facts["traces"] == b.NOTHING


def play_reader_gone(box):
    digest = b.check(box, "demo", env=b.LONG)["digest"]
    script = "set -o pipefail; timeout 60 %s run demo --confirm %s --board leave 2>&1 | head -1; echo code=$?" % (
        shlex.join([box.python, box.pyz]),
        digest,
    )
    found = b.shell(box, script, env=b.LONG)
    substituted = subprocess.run(
        ["timeout", "60", "bash", "-c", 'x=$(%s runs 2>&1); echo "$x"' % shlex.join([box.python, box.pyz])],
        cwd=box.root,
        env=b.make_env(box),
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    return {"found": found, "runs": substituted.stdout.decode(), "rows": b.list_runs(box)}


def test_S7_a_reader_that_went_away_changes_nothing(play, root):
    facts = play(play_reader_gone, root)
    assert facts["found"][1].endswith("code=0\n") and facts["rows"][0]["state"] == "running"
    assert facts["runs"].splitlines()[1].startswith("running")
