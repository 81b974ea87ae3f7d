"""prime-rl's configs before its runner has seen them: words after `--`, kinds, environments, the run's name."""
import json
import os
import re
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlrun.host import tables
from rlrun.stacks import prime_config
from rlrun.stacks.prime_config import make_run_name, read_options, strip_options, tell_kinds, tell_name
from rlrun.values import Checkout, Config, Request

UNSAFE = prime_config.UNSAFE


@pytest.mark.parametrize("words, options", [
    ("", {}), ("--max-steps 5", {"max_steps": "5"}), ("--max_steps 5", {"max_steps": "5"}), ("--max-steps=5", {"max_steps": "5"}),
    ("--max-steps=", {"max_steps": ""}), ("--a=b=c", {"a": "b=c"}), ("--clean", {"clean": True}),
    ("--no-clean", {"clean": False}),
    ("--clean --bench", {"clean": True, "bench": True}), ("--clean false", {"clean": "false"}),
    ("--trainer.optim.lr 1e-5", {"trainer.optim.lr": "1e-5"}), ("--trainer.model.seq-len 7", {"trainer.model.seq_len": "7"}),
    ("--no-trainer.model.compile", {"trainer.model.compile": False}), ("--trainer.no-x", {"trainer.x": False}),
    ("--note 5", {"note": "5"}), ("--no-x 5", {"no_x": "5"}), ("--notes", {"notes": True}),
    ("--x -1", {"x": "-1"}), ("--x -1e-3 --y", {"x": "-1e-3", "y": True}), ("--a 1 2 3", {"a": "1 2 3"}), ("--a 0.7 -0.3 --b 1",
                                                                                                     {"a": "0.7 -0.3", "b": "1"}),
    ("--x 1 --x 2", {"x": "2"}), ("--x 1 --no-x", {"x": False}), ("--no-x --x", {"x": True}),
    ("-- --x 1", {"": True, "x": "1"}), ("-- 5", {"": "5"}), ("stray --x 1", {"x": "1"}),
    ("--model @ m.toml", {"model": ["@", "m.toml"]}), ("--model @m.toml", {"model": ["@", "m.toml"]}),
    ("--model @", {"model": ["@", ""]}), ("--trainer.model @ m.toml --x 1", {"trainer.model": ["@", "m.toml"], "x": "1"}),
    ("--a @b c", {"a": ["@", "b"]}), ("--a b @c", {"a": "b @c"})])
def test_options(words, options):
    assert read_options(words.split()) == (options, ())


@pytest.mark.parametrize("words, options, further", [
    ("@ a.toml", {}, ("a.toml",)), ("@a.toml", {}, ("a.toml",)), ("@ a.toml @ b.toml", {}, ("a.toml", "b.toml")), ("@", {}, ()),
    ("@ a.toml --x 1", {"x": "1"}, ("a.toml",)),
    # behind a value it is a config of its own, behind a name it is that table's (pydantic_config/cli.py, _process_args)
    ("--x 1 @ a.toml", {"x": "1"}, ("a.toml",)), ("--x 1 @ a.toml --y", {"x": "1", "y": True}, ("a.toml",)),
    ("--a 1 2 @ a.toml", {"a": "1 2"}, ("a.toml",)), ("--m @ m.toml @ a.toml", {"m": ["@", "m.toml"]}, ("a.toml",)),
    ("--m @m.toml @ a.toml", {"m": ["@", "m.toml"]}, ("a.toml",)), ("--x=1 @ a.toml", {"x": "1"}, ("a.toml",))])
def test_further_configs(words, options, further):
    assert read_options(words.split()) == (options, further)


def test_values_with_spaces_and_signs():
    words = ["--wandb.name", "my run", "--filter", "[1, 2]", "--x=a b", "--env", '{"A": "1"}', "--empty", ""]
    assert read_options(words)[0] == {"wandb.name": "my run", "filter": "[1, 2]", "x": "a b", "env": '{"A": "1"}', "empty": ""}
    assert strip_options(["--run.name", "a b", "--x", "c d"], UNSAFE) == ("--x", "c d")


@pytest.mark.parametrize("words, kept", [
    ("--clean", ""), ("--clean --x 1", "--x 1"), ("--x 1 --clean", "--x 1"), ("--no-clean --x", "--x"),
    ("--clean true --x", "--x"),
    ("--clean=true --x", "--x"), ("--cleaner 1", "--cleaner 1"), ("--trainer.clean", "--trainer.clean"),
    ("--resume", ""), ("--resume.step 5 --x", "--x"), ("--resume.step=5 --x", "--x"), ("--no-resume --x", "--x"),
    ("--resume.dir /a/step_5", ""), ("--resume None --x", "--x"), ("--resume-x 5", "--resume-x 5"),
    ("--output-dir /x --y 1", "--y 1"), ("--output_dir /x --y 1", "--y 1"), ("--output-dir=/x --y 1", "--y 1"),
    ("--run.name n --run.dir d --run.note t", "--run.note t"), ("--run @ r.toml", "--run @ r.toml"),
    ("--ckpt.output-dir /x --ckpt.interval 5", "--ckpt.interval 5"), ("--ckpt", "--ckpt"), ("--dry-run --x", "--x"),
    ("--no-dry-run", ""), ("--slurm --x -1", "--slurm --x -1"), ("--a 1 2 3", "--a 1 2 3"), ("@ a.toml", "@ a.toml"),
    ("--clean @ c.toml --x", "--x"), ("--output-dir /x @ a.toml --y", "@ a.toml --y"), ("--output-dir /x @ a.toml", "@ a.toml"),
    ("@ a.toml --clean @ c.toml", "@ a.toml"), ("--clean true @ a.toml", "@ a.toml"),
    ("--ckpt --output-dir /x @ a.toml", "@ a.toml --ckpt"), ("--x 1 @ a.toml @ b.toml", "@ a.toml @ b.toml --x 1"), ("@", "@")])
def test_words_that_a_check_must_not_hand_on(words, kept):
    assert strip_options(words.split(), UNSAFE) == tuple(kept.split())


NAMES = st.sampled_from(["clean", "no-clean", "resume", "resume.step", "output-dir", "output_dir", "run.name", "run.dir",
    "dry-run",
                         "max-steps", "trainer.optim.lr", "ckpt.output-dir", "ckpt", "no-ckpt", "model"])
VALUES = st.lists(st.one_of(st.sampled_from(["5", "-1", "true", "a b", "/x", "None"]), st.text(max_size=3).filter(
    lambda text: not text.startswith(("--", "@")))), max_size=2)
FILES = st.sampled_from([[], ["@", "a.toml"]])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(NAMES, VALUES, FILES), max_size=5))
def test_what_is_kept_reads_as_before(parts):
    """No unsafe option is left, and nothing else is lost: a config file behind one is not."""
    words = [word for name, values, file in parts for word in ["--" + name] + values + file]
    options, further = read_options(words)
    kept, still = read_options(strip_options(words, UNSAFE))

    def is_unsafe(name):
        name = re.sub("^no_", "", name)  # --no-clean 5, which the runner refuses
        return name in UNSAFE or name.startswith(tuple(one + "." for one in UNSAFE))
    assert not [name for name in kept if is_unsafe(name)] and further == still
    assert kept == {name: value for name, value in options.items() if not is_unsafe(name)}


RL = {"orchestrator": {}, "trainer": {}, "model": {"name": "m"}}


@pytest.mark.parametrize("data, path, kinds", [
    (RL, "math.toml", ("rl",)), ({"orchestrator": {}}, "x.toml", ("rl",)), ({"trainer": {}}, "sft.toml", ("rl",)),
    (dict(RL, inference={}, slurm={}, deployment={}, ckpt={}), "swe.toml", ("rl",)), (dict(RL, data={}), "x.toml", ("rl",)),
    ({"data": {}, "model": {}}, "start.toml", ("sft",)),
    ({"data": {}, "model": {}, "eval": {}, "inference": {}}, "sft.toml", ("sft",)),
    ({"data": {"type": "fake"}, "model": {}}, "rl.toml", ("rl", "sft")),
    ({"data": {}, "eval": {}, "model": {}}, "e.toml", ("sft",)),
    ({"vllm": {"model": "m"}}, "pd.toml", ("inference",)), ({"server": {}}, "x.toml", ("inference",)),
    ({"vllm": {}, "deployment": {}, "slurm": {}, "router": {}}, "pd-llmd.toml", ("inference",)),
    ({"eval": {"source": []}, "model": "m"}, "swe.toml", ("evals",)), ({"eval": {}, "model": {"name": "m"}}, "x.toml", ()),
    (dict(RL, vllm={}), "x.toml", ("rl", "inference")), ({"data": {}, "server": {}}, "x.toml", ("sft", "inference")),
    ({"vllm": {}, "eval": {}, "model": "m"}, "x.toml", ("inference", "evals")),
    ({"slurm": {}}, "slim_sft.toml", ("sft",)), ({}, "rl.toml", ("rl",)), ({}, "infer.toml", ("inference",)), ({}, "x.toml", ()),
    ({}, "rl/x.toml", ())])
def test_kinds(data, path, kinds):
    assert tell_kinds(data, "/c/examples/" + path) == kinds


@pytest.mark.parametrize("name, kind", [
    ("rl", "rl"), ("RL", "rl"), ("slim_sft", "sft"), ("my-sft-2", "sft"), ("infer", "inference"), ("inference.big", "inference"),
    ("eval", "evals"), ("evals", "evals"), ("url", ""), ("rl_sft", ""), ("infer-inference", "inference"), ("eval_rl", ""),
    ("", ""),
    ("prl", ""), ("sftrl", "")])
def test_names(name, kind):
    assert tell_name("/rl/sft/%s.toml" % name) == kind


def write(root, name, text):
    path = os.path.join(str(root), name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as out:
        out.write(text if isinstance(text, str) else json.dumps(text))
    return path


def read(root, *overrides, configs=("a.json",)):
    made = [Config(os.path.join(str(root), name), name, "rl") for name in configs]
    return prime_config.read_raw(Request(Checkout("prime", str(root)), made[0], overrides, tuple(made[1:])), sys.executable)


def test_all_files_of_a_request_from_left_to_right(tmp_path):
    for name, held in (("a", {"x": 1, "model": {"name": "a", "n": 1}, "ckpt": {"output_dir": "/d", "interval": 1}}),
                       ("b", {"x": 2, "model": {"name": "b"}}), ("c", {"model": {"name": "c", "c": 1}}), ("n", {"name": "n"})):
        write(tmp_path, name + ".json", held)
    raw = read(tmp_path, "--y", "5", "@", "c.json", configs=("a.json", "b.json"))
    assert raw.data == {"x": 2, "y": "5", "model": {"name": "c", "n": 1, "c": 1}, "ckpt": {"output_dir": "/d", "interval": 1}}
    assert raw.sources == tuple(str(tmp_path / name) for name in ("a.json", "b.json", "c.json")) and not raw.error
    raw = read(tmp_path, "--model", "@", "n.json", "@", "b.json", "--model.k", "1")
    assert raw.data["model"] == {"name": "n", "n": 1, "k": "1"}  # a table's file comes after all whole ones
    assert raw.sources == tuple(str(tmp_path / name) for name in ("a.json", "b.json", "n.json"))


@pytest.mark.parametrize("words, ckpt", [
    ("--ckpt", {"output_dir": "/d"}), ("--ckpt.interval 5 --ckpt", {"output_dir": "/d", "interval": "5"}), ("--no-ckpt", False),
    ("--ckpt None", None), ("--ckpt.output-dir /e", {"output_dir": "/e"}), ("--ckpt.output-dir None", {"output_dir": None}),
    ("--ckpt.weights-only true", {"output_dir": "/d", "weights_only": True})])
def test_a_bare_table_keeps_what_is_in_it(tmp_path, words, ckpt):
    """Else its output_dir would be overlooked, and a dry run would write there."""
    write(tmp_path, "a.json", {"ckpt": {"output_dir": "/d"}})
    assert read(tmp_path, *words.split()).data == {"ckpt": ckpt}


def test_files_that_cant_be_read(tmp_path):
    write(tmp_path, "a.toml", "x = [")
    raw = read(tmp_path, "@", "none.json", configs=("a.toml",))
    assert raw.data == {} and not raw.is_unparsed
    assert str(tmp_path / "a.toml") in raw.error and str(tmp_path / "none.json") in raw.error
    write(tmp_path, "b.yaml", "x: 1\n")
    broken = tables.read_tables([str(tmp_path / "b.yaml")], "/nonexistent/python")
    assert broken[str(tmp_path / "b.yaml")].is_unparsed
    assert read(tmp_path, "--model", "@", configs=("a.toml",)).data == {"model": {}}


def test_the_listing_of_a_checkout(tmp_path):
    for name, text in (("examples/b/rl.toml", "[trainer]"), ("examples/a/sft.toml", ""), ("examples/z.toml", "[data]"),
                       ("configs/evals.json", "{"), ("configs/x.yaml", "trainer: {}"), ("configs/rl.yml", "a: [" * 9),
                       ("configs/.rl.toml", ""), ("configs/.git/rl.toml", ""), ("configs/rl.txt", ""), ("docs/rl.toml", ""),
                       ("configs/broken_rl.toml", "[["), ("configs/what.toml", "x = 1"), ("configs/fake/rl.toml", "[data]")):
        write(tmp_path, name, text)
    found = [(config.shown, config.kind) for config in prime_config.list_configs(str(tmp_path), "")]
    assert found == [("examples/z.toml", "sft"), ("examples/a/sft.toml", "sft"), ("examples/b/rl.toml", "rl"),
                     ("configs/broken_rl.toml", "rl"), ("configs/evals.json", "evals"), ("configs/rl.yml", "rl"),
                     ("configs/what.toml", ""), ("configs/x.yaml", ""), ("configs/fake/rl.toml", "rl")]
    assert prime_config.list_configs(str(tmp_path / "none"), "") == []


def source(taskset=None, **more):
    return dict({"env": {"taskset": {"id": taskset}}} if taskset else {}, **more)


def test_environments():
    data = {"orchestrator": {"train": {"source": [source("a"), source("b-c"), source("a"), {}, 5, {"env": 1},
        source("", name="n")]},
                             "eval": {"source": [source("owner/d@1"), source("b-c")]}}, "eval": {"source": [source("e")]}}
    assert prime_config.list_environments(data) == ("a", "b-c", "owner/d@1", "e")
    for broken in ({}, {"eval": 1}, {"eval": {"source": {}}}, {"orchestrator": {"train": [1]}}, {"orchestrator": None}):
        assert prime_config.list_environments(broken) == ()


@pytest.mark.parametrize("taskset, module", [
    ("reverse-text", "reverse_text"), ("owner/Reverse-Text@1", "reverse_text"), ("a/b/C", "c"), ("math", "math"), ("x@1@2", "x"),
    ("Wordle_v2", "wordle_v2")])
def test_modules(taskset, module):
    assert prime_config.name_module(taskset) == module


def test_what_ships_with_verifiers(tmp_path):
    root, venv = str(tmp_path / "c[1]"), str(tmp_path / "c[1]/.venv")
    write(venv, "lib/python3.12/site-packages/verifiers/v1/tasksets/echo.py", "")
    write(root, "deps/verifiers/verifiers/v1/tasksets/harbor/__init__.py", "")
    assert [name for name in ("echo", "harbor", "other") if prime_config.is_built_in(root, venv, name)] == ["echo", "harbor"]
    assert not prime_config.is_built_in(str(tmp_path), str(tmp_path / "v"), "echo")


def test_what_to_do_about_a_missing_environment(tmp_path):
    line = "uv sync --all-extras --package prime-rl --package %s"
    assert line % "wordle" in prime_config.describe_install(str(tmp_path), "owner/wordle@3")
    write(tmp_path, "deps/verifiers/environments/color_codeword/pyproject.toml", "")
    write(tmp_path, "deps/prime-envs/environments/wordle/pyproject.toml", "")
    assert prime_config.describe_install(str(tmp_path), "wordle") == \
        "It lies in deps/prime-envs/environments/wordle: " + line % "wordle"
    assert prime_config.describe_install(str(tmp_path), "color-codeword") == \
        "It lies in deps/verifiers/environments/color_codeword: " + line % "color_codeword"


@pytest.mark.parametrize("environ, venv", [({}, "/c/.venv"), ({"UV_PROJECT_ENVIRONMENT": ""}, "/c/.venv"),
                                           ({"UV_PROJECT_ENVIRONMENT": "env/x"}, "/c/env/x"),
                                           ({"UV_PROJECT_ENVIRONMENT": "../e"}, "/e"), ({"UV_PROJECT_ENVIRONMENT": "/v"}, "/v")])
def test_the_environment_of_a_checkout(environ, venv):
    assert prime_config.find_venv("/c", environ) == venv
    assert prime_config.find_python("/c", environ) == venv + "/bin/python"


def rl(*sources, **more):
    return dict({"orchestrator": {"train": {"source": list(sources)}}}, **more)


@pytest.mark.parametrize("kind, data, name", [
    ("rl", rl(source("reverse-text"), model={"name": "PrimeIntellect/Qwen3-0.6B-SFT"}), "reverse-text--qwen3-0.6b-sft--0a1b2c3d"),
    ("rl", rl(source("a"), source("b", name="Big"), source("a"), trainer={"model": {"name": "M"}}), "a+big--m--0a1b2c3d"),
    ("rl", rl(source("owner/a-b"), model={"name": "/data/w/"}), "a-b--w--0a1b2c3d"),
    ("rl", {}, "no-env--0a1b2c3d"), ("rl", rl(5, {}, model={"name": ""}), "no-env--0a1b2c3d"),
    ("rl", {"orchestrator": {"train": {"source": "x"}}, "model": "m"}, "no-env--0a1b2c3d"),
    ("sft", {"data": {"name": "org/Data"}, "model": {"name": "o/M"}}, "data--m--0a1b2c3d"), ("sft", {}, "sft--0a1b2c3d"),
    ("sft", {"model": {"name": "o/M"}}, "m--0a1b2c3d"), ("inference", {"vllm": {}}, "no-env--0a1b2c3d"),
    ("rl", rl(source(name="a b/c d:e\n"), model={"name": "x'y$(z)"}), "c-d-e---x-y-z---0a1b2c3d"),
    ("sft", {"data": {"name": "\u00c4\u4e2d"}, "model": {"name": "..m"}}, "----..m--0a1b2c3d".lstrip("-."))])
def test_run_names(kind, data, name):
    assert make_run_name(kind, data, "0a1b2c3d") == name


def test_a_long_run_name_keeps_its_end():
    name = make_run_name("rl", rl(*(source("environment-%d" % number) for number in range(40)), model={"name": "m"}), "0a1b2c3d")
    assert len(name) <= 200 and name.endswith("+environment-39--m--0a1b2c3d")


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["rl", "sft"]), st.text(max_size=12), st.text(max_size=12),
    st.text("0123456789abcdef", min_size=8, max_size=8))
def test_a_run_name_is_always_a_directorys(kind, name, model, short):
    """And no option, no hidden file, nothing that a shell takes apart."""
    made = make_run_name(kind, dict(rl(source(name=name)), data={"name": name}, model={"name": model}), short)
    assert re.match(r"[a-z0-9_+][a-z0-9._+-]*\Z", made) and made.endswith(short) and len(made) <= 200
