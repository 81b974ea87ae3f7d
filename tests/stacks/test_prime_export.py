"""Converting a checkpoint: what RUN means, which tool reads and writes what, and what would be refused."""
import json
import os
import pickle
import sys
import types

import pytest
from checkouts import build_prime_checkout

from rlrun.errors import OperatorError
from rlrun.host import disks
from rlrun.stacks import DryRunResult, prime_dcp, prime_export
from rlrun.values import Checkout, Outcome, Request

RESULT = DryRunResult(Outcome((), "ended", 0, b"", b"", 0.0), (), "/nowhere", ())
ENVIRON = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}


def write(path, text=""):
    os.makedirs(os.path.dirname(str(path)), exist_ok=True)
    with open(str(path), "wb") as out:
        out.write(text if isinstance(text, bytes) else text.encode("utf-8"))
    return str(path)


@pytest.fixture
def root(tmp_path):
    return build_prime_checkout(tmp_path / "prime")


@pytest.fixture
def torch(monkeypatch):
    """Classes by the names and with the looks of torch's, so that what pickles them writes what torch writes."""
    def add(module, name, **members):
        if module not in sys.modules or not hasattr(sys.modules[module], "made_here"):
            made = types.ModuleType(module)
            made.made_here = True
            monkeypatch.setitem(sys.modules, module, made)
        base = members.pop("base", object)
        made = type(name, (base,), dict(members, __module__=module, __qualname__=name))
        setattr(sys.modules[module], name, made)
        return made

    def fill(made, **fields):
        found = made.__new__(made)
        found.__dict__.update(fields)
        return found
    for module in ("torch", "torch.distributed", "torch.distributed.checkpoint"):
        add(module, "Unused")
    metadata, files = "torch.distributed.checkpoint.metadata", "torch.distributed.checkpoint.filesystem"
    size = add("torch", "Size", base=tuple)
    size.__reduce__ = lambda self: (size, (tuple(self),))
    names = {name: add(metadata, name) for name in ("Metadata", "TensorStorageMetadata", "MetadataIndex", "BytesStorageMetadata")}
    stored = add(files, "_StorageInfo")

    def write_index(folder, tensors, pieces=()):
        """`tensors`: shape by name; `pieces`: (file, offset, length)."""
        held = {name: fill(names["TensorStorageMetadata"], properties=None, size=size(shape), chunks=[])
                for name, shape in tensors.items()}
        held["app.progress.step"] = fill(names["BytesStorageMetadata"])
        places = {fill(names["MetadataIndex"], fqn="x", offset=size((0,)), index=number):
                  fill(stored, relative_path=file, offset=offset, length=length)
                  for number, (file, offset, length) in enumerate(pieces)}
        index = fill(names["Metadata"], planner_data={"a": ("b",)}, state_dict_metadata=held, storage_data=places)
        write(os.path.join(folder, ".metadata"), pickle.dumps(index))
    return write_index


def make_run(root, name="one", steps=(10, 20), layout="configs/latest/resolved/trainer.json", config=None):
    folder = os.path.join(root, "outputs", name)
    write(os.path.join(folder, layout), json.dumps(config or {"model": {"name": "Qwen/Qwen3-0.6B", "lora": None}, "ckpt": {}}))
    for step in steps:
        for file in (".metadata", "__0_0.distcp"):
            write(os.path.join(folder, "checkpoints", "step_%d" % step, "trainer", file), "x")
    return folder


def make_weights(folder, config=None, shards=("model.safetensors",), index=()):
    write(os.path.join(str(folder), "config.json"), json.dumps(dict({"torch_dtype": "bfloat16"}, **(config or {}))))
    for name in shards:
        write(os.path.join(str(folder), name), "x" * 1000)
    if index:
        write(os.path.join(str(folder), "model.safetensors.index.json"), json.dumps({"weight_map": dict(enumerate(index))}))
    return str(folder)


FP8 = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}


def find(root, word, *, recorded=(), step=None, to="", ranks=1):
    return prime_export.find_export(Checkout("prime", root), word, recorded, step, to, ranks)


def plan(root, word, *, environ=None, **words):
    config, overrides, _ = find(root, word, **words)
    request = Request(Checkout("prime", root), config, overrides)
    order = prime_export.plan_check(request, environ or ENVIRON)
    assert order.argv == ()
    return prime_export.read_check(request, RESULT, environ or ENVIRON)[0]


def judge(found):
    return {check.name: check for check in prime_export.judge_live(found) + prime_export.judge_config(found)}


def blocking(found):
    return sorted(name for name, check in judge(found).items() if check.status == "blocks")


# --- what RUN means

def test_a_run_by_name_directory_step_and_record(root, tmp_path, monkeypatch):
    folder = make_run(root)
    monkeypatch.chdir(tmp_path)
    step = os.path.join(folder, "checkpoints", "step_20")
    expected = ("--from", step, "--step", "20", "--to", "bf16")
    for word in ("one", folder, "prime/outputs/one", "outputs/one", folder + "/", step, step + "/trainer"):
        config, words, shown = find(root, word)
        assert (words, shown) == (expected, folder), word
        assert config.shown == "outputs/one/configs/latest/resolved/trainer.json" and config.kind == "export"
    assert find(root, "20260802", recorded=[folder, folder])[1] == expected
    assert find(root, "one", step=10, to="fp8")[1][2:] == ("--step", "10", "--to", "fp8")


@pytest.mark.parametrize("layout", ["configs/latest/resolved/sft.json", "configs/attempt_2/resolved/trainer.json",
                                    "configs/resolved/trainer.json", "configs/trainer.json", "configs/sft.json"])
def test_every_layout_of_the_resolved_config(root, layout):
    make_run(root, layout=layout)
    assert find(root, "one")[0].path == os.path.join(root, "outputs/one", layout)
    assert blocking(plan(root, "one")) == []


def test_the_newest_complete_step_is_taken(root):
    folder = make_run(root, steps=(2, 10, 9))
    assert find(root, "one")[1][3] == "10"
    os.unlink(os.path.join(folder, "checkpoints/step_10/trainer/.metadata"))
    assert find(root, "one")[1][3] == "9"
    for step in (2, 9):
        os.unlink(os.path.join(folder, "checkpoints/step_%d/trainer/.metadata" % step))
    assert find(root, "one")[1][3] == "10"  # none is complete: the check tells so
    assert blocking(plan(root, "one")) == ["export:incomplete"]


def test_checkpoints_elsewhere(root, tmp_path):
    """ckpt.output_dir: the converters look for the config beside the checkpoints, and not in the run's directory."""
    other = make_run(str(tmp_path / "disk"), layout="nothing.json")
    make_run(root, steps=(), config={"model": {"lora": None}, "ckpt": {"output_dir": other}})
    found = plan(root, "one")
    assert found.own.source == os.path.join(other, "checkpoints/step_20") and found.run_dir == os.path.join(root, "outputs/one")
    assert "from beside the checkpoints" in judge(found)["export:incomplete"].detail
    write(os.path.join(other, "configs/trainer.json"), "{}")
    assert blocking(found) == []


@pytest.mark.parametrize("word,words,message", [
    ("", {}, "no run was named"), ("nix", {}, "no run is named nix"), ("one", {"step": 7}, "there are: 10 20"),
    ("x", {"recorded": ["/a", "/b"]}, "means several runs"), ("examples", {}, "is no run's directory"),
    ("bare", {}, "no checkpoint"),
    ("one/checkpoints/step_10", {"step": 20}, "is step 10, not 20")])
def test_what_names_nothing(root, word, words, message):
    make_run(root)
    make_run(root, "bare", steps=())
    with pytest.raises(OperatorError, match=message) as caught:
        find(root, os.path.join(root, "outputs", word) if "/" in word else word, **words)
    assert caught.value.code == 2
    if word in ("", "nix"):
        assert "\n  one" in caught.value.message and "bare" not in caught.value.message


@pytest.mark.parametrize("config,words,message", [
    ({}, {"to": "bf16"}, "is bfloat16 already"), (FP8, {"to": "fp8"}, "is fp8 already"), ({}, {"step": 1}, "--step is for"),
    ({}, {"ranks": 2}, "--ranks is for"), ({"quantization_config": {"quant_method": "awq"}}, {}, "quantized with awq"),
    ({"quantization_config": {"quant_method": "fp8", "scale_fmt": "ue8m0"}}, {}, "ue8m0")])
def test_weights_that_no_tool_converts(root, tmp_path, config, words, message):
    with pytest.raises(OperatorError, match=message) as caught:
        find(root, make_weights(tmp_path / "w", config), **words)
    assert caught.value.code == 2


# --- which tool, from where, to where

@pytest.mark.parametrize("source,to,tool,target", [
    ("dcp", "bf16", "convert_dcp_to_bf16", "/weights"), ("dcp", "fp8", "convert_dcp_to_fp8", "/weights-FP8"),
    ("bf16", "", "convert_bf16_to_fp8", "-FP8"), ("fp8", "", "convert_fp8_to_bf16", "-BF16")])
def test_the_tool_and_its_target(root, tmp_path, source, to, tool, target):
    make_run(root)
    word = "one" if source == "dcp" else make_weights(tmp_path / "w", FP8 if source == "fp8" else {})
    found = plan(root, word, to=to)
    folder = os.path.join(root, "outputs/one/checkpoints/step_20") if source == "dcp" else word
    assert found.argv == (os.path.join(root, ".venv/bin/python"), "tools/%s.py" % tool, folder)
    assert found.own.target == folder + target and found.own.target in found.block and found.own.target in found.write_dirs
    assert (found.is_short, found.has_board, found.takes_whole_box, found.ports, found.gpu_count) == (True, False, False, (), 1)
    assert blocking(found) == [] and ("export:sm120" in judge(found)) == (found.own.written == "fp8")
    assert "weights-FP8" not in found.block or "VLLM_DISABLED_KERNELS=Cutlass" in judge(found)["export:sm120"].fix


def test_a_link_is_followed_as_the_tool_follows_it(root, tmp_path):
    real = make_weights(tmp_path / "real")
    os.symlink(real, str(tmp_path / "link"))
    assert plan(root, str(tmp_path / "link")).own.target == real + "-FP8"


def test_uv_ranks_and_gpus(root, tmp_path):
    make_run(root)
    uv = write(tmp_path / "bin/uv", "#!/bin/sh\n")
    os.chmod(uv, 0o755)
    environ = dict(ENVIRON, PATH="%s:/usr/bin:/bin" % (tmp_path / "bin"), CUDA_VISIBLE_DEVICES="5,6,7")
    found = plan(root, "one", environ=environ, ranks=2)
    assert found.argv[:7] == ("uv", "run", "--no-sync", "torchrun", "--nproc-per-node", "2", "tools/convert_dcp_to_bf16.py")
    assert found.gpu_count == 2 and "GPU 5,6 " in found.block and found.environment["CUDA_VISIBLE_DEVICES"] == "5,6,7"
    weights = make_weights(tmp_path / "w")
    assert plan(root, weights, environ=dict(environ, CUDA_VISIBLE_DEVICES="")).gpu_count == 0
    assert plan(root, weights, environ=environ).argv[:4] == ("uv", "run", "--no-sync", "python")


def test_an_older_place_of_the_tools_and_none(root):
    make_run(root)
    for name in ("dcp_to_bf16", "bf16_to_fp8"):
        os.unlink(os.path.join(root, "tools/convert_%s.py" % name))
    found = plan(root, "one", to="fp8")  # that tool is there, and imports the other two
    assert blocking(found) == ["export:tool"] and found.own.missing == ("tools/convert_bf16_to_fp8.py",
                                                                         "tools/convert_dcp_to_bf16.py")
    write(os.path.join(root, "tools/converters/dcp_to_bf16.py"))
    assert plan(root, "one").argv[1] == "tools/converters/dcp_to_bf16.py"


def test_the_digest_does_not_know_of_newer_steps(root):
    folder = make_run(root)
    before = plan(root, "one")
    write(os.path.join(folder, "checkpoints/step_30/trainer/.metadata"))
    after = plan(root, "one", step=20)
    assert before.block == after.block and "newer: 30" in dict(after.second_look)["step"]


def test_no_environment(root):
    make_run(root)
    with pytest.raises(OperatorError) as caught:
        plan(root, "one", environ=dict(ENVIRON, UV_PROJECT_ENVIRONMENT="nowhere"))
    assert caught.value.code == 5


# --- what would be refused

def test_the_target(root):
    folder = make_run(root)
    found = plan(root, "one")
    target = os.path.join(folder, "checkpoints/step_20/weights")
    os.mkdir(target)
    assert blocking(found) == []
    write(target + "/tmp-rank0.safetensors")
    assert blocking(found) == ["export:target"] and "mv %s" % target in judge(found)["export:target"].fix
    os.unlink(target + "/tmp-rank0.safetensors")
    os.rmdir(target)
    os.symlink("/nowhere", target)
    assert blocking(found) == ["export:target"]


def test_lora(root, tmp_path, torch):
    make_run(root, config={"model": {"lora": {"rank": 8}}})
    assert blocking(plan(root, "one")) == ["export:lora"]
    folder = make_run(root, "two")
    torch(os.path.join(folder, "checkpoints/step_20/trainer"), {"app.model.q.lora_A.default": (4, 4)})
    assert "lora_A" in judge(plan(root, "two"))["export:lora"].detail
    weights = make_weights(tmp_path / "w")
    write(weights + "/adapter_config.json", "{}")
    assert blocking(plan(root, weights)) == ["export:lora"]


@pytest.mark.parametrize("change,word", [
    ("rm .metadata", "has not ended"), ("rm __0_0.distcp", "no shard"), ("add .metadata.tmp", "under way"),
    ("rm .", "can't be read")])
def test_an_incomplete_checkpoint(root, change, word):
    folder = make_run(root) + "/checkpoints/step_20/trainer"
    found = plan(root, "one")
    verb, name = change.split()
    if verb == "add":
        write(os.path.join(folder, name))
    else:
        for one in os.listdir(folder) if name == "." else [name]:
            os.unlink(os.path.join(folder, one))
        if name == ".":
            os.rmdir(folder)
    assert blocking(found) == ["export:incomplete"] and word in judge(found)["export:incomplete"].detail


def test_shards_that_the_index_names(root, torch):
    folder = make_run(root) + "/checkpoints/step_20/trainer"
    torch(folder, {"app.model.a": (2, 3)}, [("__0_0.distcp", 0, 1), ("__1_0.distcp", 0, 4), ("__1_0.distcp", 4, 96)])
    assert prime_dcp.read_shards(os.path.dirname(folder)).faults == ("__1_0.distcp is missing",)
    write(folder + "/__1_0.distcp", "x" * 99)
    assert prime_dcp.read_shards(os.path.dirname(folder)).faults == ("__1_0.distcp is cut short: 99 bytes of at least 100",)
    write(folder + "/__1_0.distcp", "x" * 100)
    assert blocking(plan(root, "one", step=20)) == []


def test_incomplete_weights(root, tmp_path):
    names = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
    weights = make_weights(tmp_path / "w", shards=names, index=names)
    found = plan(root, weights)
    assert blocking(found) == []
    os.unlink(os.path.join(weights, names[1]))
    assert judge(found)["export:incomplete"].detail == names[1] + " is missing"
    write(os.path.join(weights, names[1]))
    write(os.path.join(weights, "tmp-rank3-00001.safetensors"))
    assert "tmp-rank3" in judge(found)["export:incomplete"].detail


# --- room

def test_room_is_reckoned_from_the_index(root, torch):
    folder = make_run(root) + "/checkpoints/step_20/trainer"
    torch(folder, {"app.model.embed.weight": (100, 10), "app.model.l.weight": (10, 10), "app.model.lm_head.weight": (100, 10),
                   "app.optimizers.state.l.exp_avg": (10, 10)})
    assert plan(root, "one").own.room[:2] == (2 * 1100, 2 * 2100)  # the head goes where it is tied to the embeddings
    assert plan(root, "one", to="fp8").own.room[:2] == (1100, 4100 + 4100 // 50)


def test_room_is_an_estimate_without_an_index(root, tmp_path):
    write(make_run(root) + "/checkpoints/step_20/trainer/__0_0.distcp", "x" * 6000)
    for to, likely in (("bf16", 1000), ("fp8", 545)):
        room = plan(root, "one", to=to).own.room
        assert room.likely == likely and room.least < likely and "an estimate" in room.words and "can't be read" in room.words
    assert plan(root, make_weights(tmp_path / "a")).own.room.likely == 550
    assert plan(root, make_weights(tmp_path / "b", {"torch_dtype": "float32"})).own.room.likely == 275
    assert plan(root, make_weights(tmp_path / "c", FP8)).own.room.likely == 2000


@pytest.mark.parametrize("share,status", [(0.1, None), (0.98, "advisory"), (1.5, "blocks")])
def test_room_against_the_disk(root, torch, share, status):
    folder = make_run(root) + "/checkpoints/step_20/trainer"
    torch(folder, {"app.model.l.weight": (int(disks.read_disk(folder).free_bytes * share) // 2,)})
    check = judge(plan(root, "one")).get("export:room")
    assert (check.status if check else None) == status


# --- the index is read, and nothing in it acts

class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("data", [b"", b"\x80\x04.", b"cos\nsystem\n", b"x" * 100, pickle.dumps([1]),
                                  pickle.dumps({"a": 1}), b"P1\n."])
def test_a_broken_index(tmp_path, data):
    write(tmp_path / "trainer/.metadata", data)
    write(tmp_path / "trainer/__0_0.distcp", "x")
    shards = prime_dcp.read_shards(str(tmp_path))
    assert (shards.faults, shards.weights) == ((), None) and ".metadata" in shards.unread


def test_an_index_that_would_act(tmp_path):
    mark = str(tmp_path / "acted")
    write(tmp_path / "trainer/.metadata", pickle.dumps({"a": Evil(mark)}))
    prime_dcp.read_shards(str(tmp_path))
    assert not os.path.exists(mark)
    pickle.loads(pickle.dumps(Evil(mark)))
    assert os.path.exists(mark)  # else the test would show nothing
