"""The digest: what is in it, what is not."""
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from steps.made import make_plan

from rlrun.steps import digest
from rlrun.values import Git

GIT = Git("c0ffee", "main", (), "", "")


def name(plan=None, git=GIT, gpus=("8 of all",), **given):
    return digest.make_fingerprint(plan or make_plan(**given), git, gpus).digest


def test_same_plan_same_digest():
    assert name() == name() and len(name()) == 8


@pytest.mark.parametrize("given", [
    {"kind": "eval"}, {"block": "another block"}, {"launch_command": "run that"}, {"overrides": ("a=b",)}, {"root": "/d"},
    {"environment": {"A": "2"}, "set_names": ("A",)}, {"argv": ("bash", "other.sh")}], ids=str)
def test_what_is_in_it(given):
    assert name(**given) != name()


@pytest.mark.parametrize(
    "given", [{"environment": {"A": "2"}}, {"second_look": (("a", "b"),)}, {"gates": ("x",)}, {"stage": "x"}], ids=str
)
def test_what_is_not(given):
    assert name(**given) == name()


def test_commit_dirty_files_and_gpus_are_in_it():
    assert len({name(), name(git=GIT._replace(commit="f00")), name(git=GIT._replace(dirty=("a",))),
                name(git=GIT._replace(dirty_digest="x")), name(gpus=("4 of all",)), name(git=GIT._replace(branch="other"))}) == 5


def test_bytes_of_every_source(tmp_path):
    (tmp_path / "a.env").write_text("1")
    plan = make_plan(sources=(str(tmp_path / "a.env"), str(tmp_path / "gone.env")))
    first = name(plan)
    (tmp_path / "a.env").write_text("2")
    second = name(plan)
    (tmp_path / "gone.env").write_text("")
    assert len({first, second, name(plan)}) == 3


def volatile_plan(stamp, seed="12345"):
    return make_plan(
        experiment="run-" + stamp,
        name_is_volatile=True,
        volatile_names=("EXP_NAME", "SEED"),
        set_names=("EXP_NAME", "SEED", "LOG"),
        environment={"EXP_NAME": "run-" + stamp, "SEED": seed, "LOG": "/c/logs/run-%s.log" % stamp},
        block="exp=run-%s seed=%s" % (stamp, seed),
        launch_command="run --name run-%s --seed=%s x" % (stamp, seed),
    )


def test_volatile_values_are_taken_out():
    assert name(volatile_plan("20260101-010101")) == name(volatile_plan("20260102-235959", seed="77"))


def test_a_short_volatile_number_takes_nothing_else_with_it():
    assert digest.drop_volatile("seed=7 n=70 S=7 7 17", [("7", "<S>")]) == "seed=7 n=70 S=<S> 7 17"
    assert digest.drop_volatile("seed=77 n=770 77", [("77", "<S>")]) == "seed=<S> n=770 77"


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=40), st.text(min_size=1, max_size=12))
def test_drop_volatile_takes_any_text(text, value):
    assert isinstance(digest.drop_volatile(text + value, [(value, "<V>")]), str)


def test_secrets_count_by_being_set():
    def with_key(value):
        return name(set_names=("WANDB_API_KEY",), environment={"WANDB_API_KEY": value})
    assert with_key("one") == with_key("two") != with_key("")


def test_secret_is_not_among_the_parts():
    parts = digest.make_fingerprint(
        make_plan(set_names=("WANDB_API_KEY",), environment={"WANDB_API_KEY": "s3cret"}), GIT, ()
    ).parts
    assert "s3cret" not in str(parts)


def test_bytes_that_are_no_text():
    assert len(name(block="\udcff", root="/c/\udcff")) == 8
