"""What moved between two plans: each move told once, by the name that people know, and no secret among them."""
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from rlrun.steps.moves import Content, compare, describe, shape

CONFIG = "/c/configs/train.env"


def content(config="", dirty=None, texts=None, **parts):
    """A plan of one config; `a_b` names the part `a b`."""
    named = {name.replace("_", " ", 1): text for name, text in parts.items()}
    named.setdefault("root", "/c")
    named["file " + CONFIG] = str(hash(config))
    return Content(named, {CONFIG: config} if texts is None else texts, dirty or {})


def words(old, new):
    return describe(compare(old, new))


def test_a_line_is_told_by_its_key_and_nothing_repeats_it():
    old, new = [content("TRAIN_BATCH=%s\nMODEL=a\n" % value, environment_TRAIN_BATCH=value,
                        block="  batch        %s prompts  mini=8\n  lr           1" % value,
                        launch_command=json.dumps(["python", "data.batch=" + value, "x=the %s" % value]))
                for value in ("64", "128")]
    assert words(old, new) == ["configs/train.env: TRAIN_BATCH=64 → TRAIN_BATCH=128"]
    assert shape(compare(old, new)) == [{"field": "configs/train.env", "old": "TRAIN_BATCH=64", "new": "TRAIN_BATCH=128",
                                         "change": "changed"}]


def test_what_a_file_does_not_tell_is_told_beside_it():
    old = content("A=1\n", environment_A="1", environment_B="1", block="  batch        1 x = 32")
    new = content("A=2\n", environment_A="2", environment_B="2", block="  batch        2 x = 64")
    assert words(old, new) == ["configs/train.env: A=1 → A=2", "environment B changed: 1 → 2",
                               "block: batch changed: 1 x = 32 → 2 x = 64"]
    assert words(content("A=$X\n", environment_A="1"), content("A=$Y\n", environment_A="2")) == [
        "configs/train.env: A=$X → A=$Y", "environment A changed: 1 → 2"]


def test_lines_that_come_go_and_change_their_section():
    old = content("[trainer]\nlr = 1\n\n[inference]\nlr = 1\n# old words\n")
    new = content("[trainer]\nlr = 1\n\n[inference]\nlr = 2  # faster\n# new words\nseed = 3\n")
    assert words(old, new) == ["configs/train.env [inference]: lr = 1 → lr = 2  # faster",
                               "configs/train.env [inference]: a new line seed = 3",
                               "configs/train.env: # old words → # new words"]
    assert words(content("export A=1\nB=1\nB=2\n"), content("B=1\nB=3\n")) == [
        "configs/train.env: without the line export A=1", "configs/train.env: B=2 → B=3"]
    assert words(content('A=1\n: "${B:=6}"\n', environment_B="6"), content('A=1\n: "${B:=7}"\n', environment_B="7")) == [
        'configs/train.env: : "${B:=6}" → : "${B:=7}"']


def test_white_space_order_and_line_ends_are_told_as_such():
    assert words(content("A=1\n"), content("A=1  \n")) == ["configs/train.env: the white space of A=1 changed"]
    assert "its lines are in another order" in words(content("A=1\nB=2"), content("B=2\nA=1"))[0]
    assert words(content("A=1\n\nB=2\n"), content("\nA=1\nB=3\n\n")) == ["configs/train.env: B=2 → B=3"], "empty lines are none"
    assert "white space" in words(content("A=1\n"), content("A=1\r\n"))[0]
    assert words(content("A=a\x1b[2Jb\n"), content("A=c\n")) == ["configs/train.env: A=a\\x1b[2Jb → A=c"]


def test_a_secret_changes_without_a_value():
    old = content("API_KEY=<redacted>\n", texts={CONFIG: "API_KEY=<redacted>\n"})
    new = content("another hash", texts={CONFIG: "API_KEY=<redacted>\n"})
    assert words(old, new) == ["configs/train.env changed in a secret value"]
    moves = compare(content("API_KEY=\nA=1"), content("API_KEY=hunter22\nWANDB_API_KEY=hunter33\nA=1"))
    assert describe(moves) == ["configs/train.env: API_KEY changed", "configs/train.env: WANDB_API_KEY is new"]
    moves += compare(content(environment_HF_TOKEN="set"), content(environment_HF_TOKEN="empty"))
    assert describe(moves)[-1] == "environment HF_TOKEN changed: it was set, and is empty now"
    moves += compare(content(overrides='["--api-key=hunter44"]'), content(overrides='["--api-key", "hunter55"]'))
    assert "hunter" not in str(moves) and {(move["old"], move["new"]) for move in shape(moves)} == {(None, None)}
    both = content(overrides='["--api-key=<redacted>"]', argv='["x", "--api-key=<redacted>"]')
    assert words(both, both) == ["overrides changed in a secret value"]


def test_words_of_a_command():
    old = content(overrides='["--max-steps", "3", "--lr=1", "--gone"]', argv='["rl", "--max-steps", "3", "--lr=1", "--gone"]')
    new = content(overrides='["--max-steps", "5", "--lr=2", "--added"]', argv='["rl", "--max-steps", "5", "--lr=2", "--added"]')
    assert words(old, new) == ["overrides changed: --max-steps 3 → --max-steps 5", "overrides changed: --lr=1 → --lr=2",
                               "overrides is gone: --gone", "overrides is new: --added"]
    assert words(content(argv="no list"), content(argv='["a"]')) == ['argv changed: no list → ["a"]']


def test_files_that_come_go_and_can_not_be_read():
    old, new = content("A=1\n"), content("A=2\n", texts={})
    assert words(old, new) == ["file configs/train.env changed"]
    other = Content({"root": "/c", "file /c/other.env": "0" * 64}, {}, {})
    assert words(old, other) == ["file configs/train.env is gone", "file other.env is new"]
    gone = Content({"root": "/c", "file " + CONFIG: "absent"}, {}, {})
    assert words(old, gone) == ["file configs/train.env changed: it is absent now"]


def test_revision_gpus_and_deleted_paths():
    old = content(kind="train", commit="a" * 40, gpus="8 of all", deleted_paths="/x/* /y", script_job="0" * 64)
    new = content(kind="eval", commit="b" * 40, gpus="4 of 0,1,2,3", deleted_paths="/x/* /z /w", script_job="1" * 64)
    assert words(old, new) == ["kind changed: train → eval", "gpus changed: 8 of all → 4 of 0,1,2,3", "script job changed",
                               "commit changed: %s → %s" % ("a" * 12, "b" * 12), "deleted paths is gone: /y",
                               "deleted paths is new: /z", "deleted paths is new: /w"]


def test_modified_files_are_told_by_name_and_once():
    parts = {"dirty_files": "x 1"}, {"dirty_files": "y 2"}
    assert words(content(dirty={"a": "1", "b": "1", "c": "1"}, **parts[0]),
                 content(dirty={"b": "2", "c": "1", "d": "1"}, **parts[1])) == [
        "modified file d is new", "modified file a is gone (it is not modified any more)", "modified file b changed"]
    name = CONFIG[3:]
    assert words(content("A=1", dirty={}, **parts[0]), content("A=2", dirty={name: "1"}, **parts[1])) == [
        "configs/train.env: A=1 → A=2"]
    assert words(content(dirty={"a": "", "b": ""}, **parts[0]), content(dirty={"a": "1", "b": "1"}, **parts[1])) == [
        "modified files changed in one or more of: a b"]
    assert words(content(dirty={"a": "1"}, **parts[0]), content(dirty={"a": "1"}, **parts[1])) == [
        "modified files changed in their mode or their state"]


def test_of_what_only_a_hash_is_known_is_said_no_more_than_that_it_changed():
    """As a record keeps long parts. A ruled line of the block says nothing either."""
    hashed = {name: "sha256:" + "0" * 16 for name in ("block", "launch_command", "argv")}
    full = dict(block="=" * 60 + "\n  axes         1 x 8\n" + "=" * 60, launch_command='["a", "b"]', argv='["a"]')
    assert words(content(**hashed), content(**full)) == ["the run configuration changed"]
    assert shape(compare(content(**hashed), content(**full)))[0]["change"] == "changed"
    assert words(content(), content(**full)) == ["the run configuration changed"], "nor where there is not even that"
    assert words(content("A=1", **hashed), content("A=2", **full)) == ["configs/train.env: A=1 → A=2"]
    assert words(content(environment_B="1", **hashed), content(environment_B="2", **full)) == ["environment B changed: 1 → 2"]
    assert words(content(overrides='["--lr=1"]', **hashed), content(overrides='["--lr=2"]', **full)) == [
        "overrides changed: --lr=1 → --lr=2"]
    hashed.update(overrides=hashed["argv"], deleted_paths=hashed["argv"], commit=hashed["argv"])
    full.update(overrides='["--lr=2"]', deleted_paths="/x/* /y", commit="b" * 40)
    assert words(content(**hashed), content(**full)) == ["overrides changed", "commit changed", "deleted paths changed"]
    ruled = dict(full, block=full["block"].replace("=", "-").replace("1 x 8", "2 x 8"))
    assert words(content(**full), content(**ruled)) == ["block: axes changed: 1 x 8 → 2 x 8"]


def test_a_checkout_that_was_copied_is_one_move():
    old = Content({"root": "/old", "file /old/x": "1" * 64, "block": "  config       /old/x and /older", "argv": '["/old/x"]'},
                  {"/old/x": "A=1"}, {})
    new = Content({"root": "/new", "file /new/x": "1" * 64, "block": "  config       /new/x and /older", "argv": '["/new/x"]'},
                  {"/new/x": "A=1"}, {})
    assert words(old, new) == ["root changed: /old → /new"]


def test_many_moves_are_cut_and_long_values_show_where_they_differ():
    texts = ["".join("K%d=%d\n" % (number, value) for number in range(30)) for value in (1, 2)]
    told = words(content(texts[0]), content(texts[1]))
    assert len(told) == 13 and told[-1] == "configs/train.env: … and 18 more"
    long = "x" * 500
    line = words(content("A=%s1\n" % long), content("A=%s2\n" % long))[0]
    assert "1 → …" in line and line.endswith("x2") and len(line) < 250
    told = words(content(**{"environment_V%d" % number: "1" for number in range(60)}),
                 content(**{"environment_V%d" % number: "2" for number in range(60)}))
    assert len(told) == 41 and "and 20 more" in told[-1]


def test_long_and_repeating_texts_are_compared_too():
    """Each would take hours by way of a quadratic comparison; a plan's file may be anybody's."""
    for text in ("=" * 60000, "[" * 60000, "a " * 30000, "\n" * 60000, "A=1\n" * 15000, "A=" + " " * 60000 + "#",
                 "  x" + " y" * 30000):
        old = content(text, argv=json.dumps(text.split()), block=text, environment_A=text, deleted_paths=text)
        new = content("B=1\n" + text + "x", argv=json.dumps((text + " x").split()), block="x" + text)
        assert any("B=1" in line for line in words(old, new)) and "environment A is gone" in str(words(old, new))


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=60), st.text(max_size=60))
def test_any_two_texts_can_be_compared(one, other):
    told = words(content(one, block=one, argv=one, commit=one), content(other, block=other, argv=other, commit=other))
    assert bool(told) == (one != other) and not any("\n" in line or "\x1b" in line for line in told)


def test_of_a_job_the_options_and_lines_that_moved_are_told_once():
    script = "#!/bin/sh\n#SBATCH --nodes=2\n%seach=(srun --nodes=2%s)\nexit\n"
    old = Content({"Slurm options": "nodes=2  exclusive", "batch script": script % ("", "")}, {}, {})
    new = Content({"Slurm options": "nodes=2  exclusive  time=3",
                   "batch script": script % ("#SBATCH --time=3\n", " -v")}, {}, {})
    assert describe(compare(old, new)) == [
        "Slurm option is new: time=3", "batch script changed: each=(srun --nodes=2) → each=(srun --nodes=2 -v)"]
    assert describe(compare(old, Content({}, {}, {}))) == ["Slurm options is gone", "batch script is gone"]
