"""prime-rl's resolved config as a plan: GPUs, ports, nodes, servers, the block."""
import os

import pytest
from checkouts import add_prime_config, build_prime_checkout
from hypothesis import given, settings
from hypothesis import strategies as st

from rlrun.errors import OperatorError
from rlrun.stacks import DryRunResult, prime, prime_plan
from rlrun.stacks.prime_plan import Resume, count_gpus, list_ports, read_topology, render_block, show_gpus
from rlrun.stacks.prime_rundir import RunDir
from rlrun.values import Checkout, Config, Outcome, Port, Request
from steps.made import make_machine

INFERENCE = {"server": {"port": 8000, "host": None}, "router": {"type": "vllm"}, "backend_port": 8100,
             "vllm": {"model": "m", "tensor_parallel_size": 2, "data_parallel_size": 1, "data_parallel_rpc_port": 13345}}
NO_RESUME = Resume(False, None, "")


def source(name, address=None):
    return {"name": None, "env": {"taskset": {"id": name}}, "serve": {"address": address}}


def rl(train=("a",), evals=(), **trainer):
    return {"trainer": trainer, "inference": INFERENCE, "orchestrator": {
        "env_server_base_port": 5000, "train": {"source": [source(name) for name in train]},
        "eval": {"source": [source(name) for name in evals]}}}


def change(data, place, value):
    """A copy with another value at a dotted place."""
    head, _, rest = place.partition(".")
    return dict(data, **{head: change(data.get(head) or {}, rest, value) if rest else value})


def ports(kind, data):
    return [(port.purpose, port.number) for port in list_ports(kind, data)]


@pytest.mark.parametrize("kind, data, counts", [
    ("evals", {}, (0, 0)), ("inference", INFERENCE, (2, 0)),
    ("inference", change(INFERENCE, "vllm.data_parallel_size", 4), (8, 0)),
    ("inference", change(change(INFERENCE, "vllm.data_parallel_size", 16), "vllm.data_parallel_size_local", 4), (8, 0)),
    ("inference", {}, (None, 0)), ("inference", {"vllm": {"tensor_parallel_size": 2}}, (None, 0)),
    ("rl", {"inference": {}, "deployment": {"num_infer_gpus": 6, "num_train_gpus": 2}}, (0, 2)),
    ("rl", {"inference": INFERENCE, "deployment": {"num_infer_gpus": 6, "num_train_gpus": 2}}, (6, 2)),
    ("rl", {"inference": None, "deployment": {"num_infer_gpus": 1, "num_train_gpus": 1}}, (0, 1)),
    ("rl", {"inference": INFERENCE}, (None, None)), ("rl", {}, (0, None)),
    ("sft", {"deployment": {"num_train_gpus": 8, "num_infer_gpus": 1}}, (0, 8)),
    ("sft", {"inference": INFERENCE, "deployment": {"num_train_gpus": 1, "num_infer_gpus": 1}}, (1, 1)),
    ("sft", {"inference": INFERENCE, "deployment": {"num_train_gpus": 1}}, (0, 1)),
    # where prime-rl's own code could not be asked, these are the words of a command line
    ("rl", {"inference": INFERENCE, "deployment": {"num_infer_gpus": "6", "num_train_gpus": "two"}}, (6, None)),
    ("rl", {"inference": INFERENCE, "deployment": {"num_infer_gpus": True, "num_train_gpus": "-1"}}, (None, None))])
def test_gpus(kind, data, counts):
    assert count_gpus(kind, data) == counts


@pytest.mark.parametrize("kind, counts, visible, shown", [
    ("rl", (1, 1), None, "inference GPU 0 · trainer GPU 1"), ("rl", (2, 6), None, "inference GPU 0,1 · trainer GPU 2-7"),
    ("rl", (1, 2), "4,5, 6,7", "inference GPU 4 · trainer GPU 5,6"), ("sft", (0, 2), "3,1", "trainer GPU 3,1"),
    ("rl", (1, 2), "4", "inference GPU 4 · trainer GPU none left"),
    ("rl", (1, 1), "", "inference GPU none left · trainer GPU none left"),
    ("rl", (1, 1), "GPU-8f,GPU-9e", "inference GPU GPU-8f · trainer GPU GPU-9e"), ("evals", (0, 0), "0", "none"),
    ("inference", (2, 0), "0,,1,", "inference GPU 0,1"),
    ("rl", (None, None), None, "inference GPUs unknown · trainer GPUs unknown"),
    ("rl", (0, None), None, "trainer GPUs unknown")])
def test_shown_gpus(kind, counts, visible, shown):
    assert show_gpus(kind, counts, visible) == shown


@pytest.mark.parametrize("kind, place, nodes", [
    ("rl", None, 1), ("rl", {}, 1), ("rl", {"type": "single_node", "num_train_nodes": 4}, 1),
    ("rl", {"type": "multi_node", "num_train_nodes": 2, "num_infer_nodes": 1, "num_infer_replicas": 3}, 5),
    ("rl", {"type": "multi_node", "num_train_nodes": 2, "num_infer_nodes": None, "num_infer_replicas": 1}, 2),
    ("rl", {"type": "multi_node", "num_train_nodes": 2, "num_infer_nodes": 0}, 2), ("rl", {"type": "multi_node"}, 1),
    ("sft", {"type": "multi_node", "num_train_nodes": 4, "num_infer_nodes": 0}, 4),
    ("inference", {"type": "multi_node", "num_nodes": 3}, 3), ("inference", {"type": "multi_node", "num_train_nodes": 3}, 1),
    ("inference", {"type": "disaggregated", "prefill_nodes_per_replica": 1, "num_prefill_replicas": 4,
                   "decode_nodes_per_replica": 2, "num_decode_replicas": 3}, 10),
    ("inference", {"type": "disaggregated"}, 2), ("evals", {"type": "multi_node", "num_nodes": 3}, 1),
    ("rl", {"type": "multi_node", "num_train_nodes": "2", "num_infer_nodes": "1", "num_infer_replicas": "2"}, 4),
    ("inference", {"type": "multi_node", "num_nodes": "x"}, 1)])
def test_nodes(kind, place, nodes):
    topology = read_topology(kind, {"deployment": place})
    assert topology.nodes == nodes and topology.head == topology.head_variable == ""


ROUTED = [("router", 8000), ("engine", 8100), ("router metrics", 29000)]


@pytest.mark.parametrize("data, found", [
    (INFERENCE, ROUTED), (dict(INFERENCE, router=None), [("engine", 8000)]),
    (change(INFERENCE, "vllm.data_parallel_size", 2), ROUTED + [("data-parallel RPC", 13345)]),
    (change(dict(INFERENCE, router=None), "vllm.data_parallel_size", "2"), [("engine", 8000), ("data-parallel RPC", 13345)]),
    (change(INFERENCE, "server.port", 50000), [("router", 50000), ("engine", 8100)]),  # 71000 is no port
    (change(INFERENCE, "server.port", 70000), [("engine", 8100)]), (change(INFERENCE, "server.port", 0), [("engine", 8100),
                                                                                                     ("router metrics", 21000)]),
    (change(INFERENCE, "server.port", "8001"), [("router", 8001), ("engine", 8100), ("router metrics", 29001)]),
    (change(INFERENCE, "server.port", None), [("engine", 8100)]), (dict(INFERENCE, backend_port=8000), ROUTED[:1] + ROUTED[2:]),
    (change(INFERENCE, "server.port", True), [("engine", 8100)]), ({}, []), ({"server": 5, "vllm": None}, [])])
def test_ports_of_a_server(data, found):
    assert ports("inference", data) == found
    assert ports("rl", {"inference": data}) == (found if data else [])
    assert ports("evals", {"inference": data}) == [] and ports("rl", {"inference": None}) == []


def test_env_servers_are_numbered_through_train_and_eval():
    assert ports("rl", rl(("a", "b"), ("c",)))[3:] == [("env server a", 5000), ("env server b", 5001), ("env server c", 5002)]
    data = rl()
    data["orchestrator"]["train"]["source"] = [source("a", "tcp://127.0.0.1:5000"), source("b"), source("c", "tcp://pod:1"),
        source("d")]
    assert ports("rl", data)[3:] == [("env server b", 5001), ("env server d", 5003)]
    evals = {"env_server_base_port": 6000, "source": [source("x"), source("y", ""), {"name": "own", "env": {}}]}
    assert ports("sft", {"eval": evals}) == [("env server x", 6000), ("env server own", 6002)]
    assert ports("evals", {"eval": evals, "model": "m"}) == [("env server x", 6000), ("env server own", 6002)]
    assert ports("sft", {"eval": dict(evals, env_server_base_port=65535)}) == [("env server x", 65535)]
    for broken in (None, {"source": None}, {"source": "x"}, {"source": [5]}, dict(evals, env_server_base_port=None)):
        assert ports("sft", {"eval": broken}) == []


@pytest.mark.parametrize("trainer, found", [
    ({"weight_broadcast": {"type": "nccl", "host": "localhost", "port": 29501}}, [("weight broadcast", 29501)]),
    ({"weight_broadcast": {"type": "nccl", "host": "0.0.0.0", "port": 29501}}, [("weight broadcast", 29501)]),
    ({"weight_broadcast": {"type": "nccl", "host": "node7", "port": 29501}}, []),
    ({"weight_broadcast": {"type": "filesystem", "host": "localhost", "port": 29501}}, []), ({"weight_broadcast": None}, []),
    ({"rollout_transport": {"type": "zmq", "host": "localhost", "port": 5555}}, [("rollout transport", 5555)]),
    ({"rollout_transport": {"type": "filesystem"}}, []), ({"metrics_server": {"port": 8899}}, [("trainer metrics", 8899)]),
    ({"metrics_server": None}, []), ({"metrics_server": {}}, []), ({"metrics_server": {"port": 65536}}, []),
    ({"weight_broadcast": {"type": "nccl", "host": "localhost", "port": 5000}, "metrics_server": {"port": 5000}},
     [("weight broadcast", 5000)])])
def test_ports_of_the_trainer(trainer, found):
    assert ports("rl", {"trainer": trainer}) == found == ports("sft", trainer)
    assert ports("evals", {"trainer": trainer}) == ports("inference", trainer) == []


@pytest.mark.parametrize("server, url", [
    ({"port": 8000}, "http://localhost:8000"), ({"port": 8000, "host": "0.0.0.0"}, "http://localhost:8000"),
    ({"port": 8000, "host": "::"}, "http://localhost:8000"), ({"port": 8000, "host": "::1"}, "http://[::1]:8000"),
    ({"port": 1, "host": "10.0.0.2"}, "http://10.0.0.2:1"), ({"port": None}, ""), ({}, ""), (None, ""),
    ({"port": "81"}, "http://localhost:81")])
def test_a_servers_address(server, url):
    assert prime_plan.find_server_url({"server": server}) == url


def test_the_server_that_is_asked():
    assert prime_plan.find_client_url("evals", {"eval": {"client": {"base_url": "http://a/v1"}}}) == "http://a/v1"
    data = {"orchestrator": {"model": {"client": {"base_url": "http://b/v1"}}}}
    assert prime_plan.find_client_url("rl", data) == "http://b/v1" and prime_plan.find_client_url("evals", data) == ""
    assert [url for url in ("http://localhost:1/v1", "http://127.0.0.1", "http://[::1]:8/x", "http://localhost.x/", "http://[",
        "", "x")
            if prime_plan.is_local_url(url)] == ["http://localhost:1/v1", "http://127.0.0.1", "http://[::1]:8/x"]


@pytest.mark.parametrize("kind", ["rl", "sft", "inference", "evals"])
def test_the_block_is_as_wide_as_lego_rls(kind):
    block = render_block(kind, [("config", "x.toml"), ("a long label indeed", "v"),
                                ("environments", "a\nb\x1b[1m"), ("empty", "")])
    lines = block.split("\n")
    assert len(lines[0]) == len(lines[-1]) == prime_plan.WIDTH == 70 and set(lines[-1]) == {"═"}
    assert lines[0].startswith("═") and " run configuration (%s) " % kind in lines[0] and lines[0].endswith("═")
    assert lines[1] == "  config       x.toml" and lines[3] == "  environments a\\nb\\x1b[1m"  # a config may be anybody's


def rows(kind, data, resume=NO_RESUME, run=None):
    found = prime_plan.make_rows(kind, data, resume, run)
    assert len({label for label, _ in found}) == len(found) and all(isinstance(value, str) and value for _, value in found)
    return dict(found)


def test_rows_of_rl():
    data = rl(("a", "b"), ("c",), model={"name": "o/M", "lora": {"rank": 16}}, max_steps=20, optim={"type": "adamw", "lr": 3e-6},
              scheduler={"type": "constant"}, ckpt={"interval": 10, "keep_last": 2},
              weight_broadcast={"type": "nccl", "host": "localhost", "port": 29501})
    data["orchestrator"].update(batch_size=128, group_size=16, seq_len=2048, algo={"type": "grpo"})
    data["orchestrator"]["eval"]["interval"] = 5
    data["orchestrator"]["train"]["sampling"] = {"max_completion_tokens": 128, "temperature": 0.0}
    data["monitors"] = {"wandb": {"project": "p", "name": None, "offline": True}}
    run = RunDir("/o/x", (), "/d/checkpoints", (), (), ())
    assert rows("rl", data, run=run) == {
        "model": "o/M  LoRA rank=16", "environments": "a, b  eval: c every 5 steps", "algorithm": "grpo",
        "batch": "128 rollouts/step = 8 prompts × 16", "context": "seq_len=2048  max_completion_tokens=128  temperature=0.0",
        "schedule": "max_steps=20", "optimizer": "adamw  lr=3e-06  constant", "broadcast": "nccl on localhost:29501",
        "checkpoints": "every 10 steps, the last 2 kept  in /d/checkpoints", "resume": "no: from the beginning",
        "wandb": "p / ?  offline"}
    data["orchestrator"].update(batch_size=None, token_batch_size=4096, group_size=3)
    data["trainer"].update(max_steps=None, ckpt=None, weight_broadcast={"type": "filesystem"}, model={"name": "m", "lora": None})
    found = rows("rl", dict(data, monitors={"wandb": None}), Resume(True, 7, "/o/x/checkpoints/step_7"), run)
    assert found["batch"] == "batch_size=None  token_batch_size=4096  group_size=3" and found["broadcast"] == "filesystem"
    assert (found["schedule"], found["checkpoints"], found["model"], found["wandb"]) == (
        "max_steps=none: it runs until it is stopped", "none are saved", "m", "off")
    assert found["resume"] == "from step 7  /o/x/checkpoints/step_7"
    assert "there is no checkpoint" in rows("rl", data, Resume(True, None, ""), run)["resume"]
    for size, group in ((0, 0), (7, 2), ("128", "16"), (True, None), (None, None)):
        data["orchestrator"].update(batch_size=size, group_size=group, token_batch_size=None)
        assert rows("rl", data)["batch"]


def test_rows_of_the_other_kinds():
    sft = {"model": {"name": "m"}, "data": {"name": None, "type": "fake", "batch_size": 8, "seq_len": 64}, "max_steps": 5,
           "optim": {"type": "adamw", "lr": 1e-5}, "ckpt": {"interval": None}, "eval": {"interval": 25, "source": [source("a")]},
           "monitors": {"wandb": {"project": "p", "name": "n"}}}
    found = rows("sft", sft)
    assert (found["data"], found["eval"], found["checkpoints"], found["wandb"]) == ("fake  batch=8", "a every 25 steps",
        "at the end",
                                                                                    "p / n")
    assert rows("inference", INFERENCE) == {"model": "m", "parallel": "tensor 2 × data 1",
        "context": "max_model_len=the model's own"}
    found = rows("evals", {"model": "m", "eval": {"num_examples": 8, "group_size": 1, "source": [source("a"), source("b")],
                                                  "client": {"base_url": "http://h:1/v1"}}})
    assert (found["model"], found["environments"], found["server"]) == ("m", "a, b", "http://h:1/v1")
    assert found["scale"] == "num_examples=8  group_size=1" and found["online"].startswith("no")


KEYS = st.sampled_from("""
    trainer orchestrator inference deployment eval train source env taskset id name model vllm server port router backend_port
    data_parallel_size data_parallel_rpc_port tensor_parallel_size num_train_gpus num_infer_gpus type num_nodes
    num_train_nodes num_infer_nodes num_infer_replicas env_server_base_port weight_broadcast rollout_transport metrics_server
    host monitors wandb ckpt interval batch_size group_size client base_url lora optim online serve address
    sampling data""".split())
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(-9, 99999), st.floats(), st.sampled_from([
    "", "8", "x", "None", "nccl", "zmq", "multi_node", "disaggregated", "localhost"]))
TABLES = st.recursive(LEAVES, lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(KEYS, inner, max_size=5)),
                      max_leaves=20)


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(["rl", "sft", "inference", "evals"]), st.dictionaries(KEYS, TABLES, max_size=6))
def test_any_table_is_told_somehow(kind, data):
    """Where prime-rl's own code could not be asked, a plan is made of what is written, and that may be anything."""
    counts = count_gpus(kind, data)
    assert all(count is None or isinstance(count, int) for count in counts)
    assert isinstance(read_topology(kind, data).nodes, int) and read_topology(kind, data).nodes >= 1
    assert all(isinstance(port, Port) and 0 < port.number < 65536 for port in list_ports(kind, data))
    text = render_block(kind, prime_plan.make_rows(kind, data, NO_RESUME, None))
    assert isinstance(text + show_gpus(kind, counts, None) + prime_plan.find_server_url(data) + prime_plan.find_client_url(kind,
        data), str)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    root = build_prime_checkout(tmp_path_factory.mktemp("toy") / "c")
    add_prime_config(root, "elsewhere", '[ckpt]\noutput_dir = "/data/ckpts"\n[trainer]\n[orchestrator]\n')
    add_prime_config(root, "more", '[run]\ndir = "d"\n[ckpt]\noutput_dir = "/data/more"\n')
    return root


def request(root, *overrides, name="configs/debug/elsewhere.toml", kind="rl"):
    return Request(Checkout("prime", root), Config("%s/%s" % (root, name), name, kind), overrides)


ENVIRON = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
SCRATCH = "/nonexistent/rlrun-check-7-00c0ffee00c0"


def order(root, words, **more):
    """The words of the dry run behind its config."""
    found = prime.plan_dry_run(request(root, *words.split(), **more), ENVIRON, False, SCRATCH)
    assert found.env["NEVER_CLEAN"] == "1" and found.argv[1] == "@"
    return " ".join(found.argv[3:])


SAFE = "--dry-run --output-dir %s/outputs --no-clean --no-resume --run.name " % SCRATCH
CKPT = " --ckpt.output-dir %s/checkpoints" % SCRATCH


@pytest.mark.parametrize("words, before, name, after", [
    ("", "", None, CKPT), ("--run.name n --clean", "", "n", CKPT), ("--resume.step 5 --x 1", "--x 1 ", None, CKPT),
    ("--output-dir /o --ckpt", "--ckpt ", None, CKPT), ("--ckpt.output-dir None", "", None, ""),
    ("--no-ckpt", "--no-ckpt ", None, ""),
    ("--output-dir /o @ configs/debug/more.toml", "@ configs/debug/more.toml ", None, " --run.dir {name}" + CKPT),
    ("--max-steps 5 @ configs/debug/more.toml", "@ configs/debug/more.toml --max-steps 5 ", None, " --run.dir {name}" + CKPT),
    ("--run.name n --run.dir d", "", "n", " --run.dir n" + CKPT), ("--no-dry-run", "", None, CKPT)])
def test_a_dry_run_is_kept_in_its_own_folder(checkout, words, before, name, after):
    found = order(checkout, words)
    name = name or "no-env--" + SCRATCH[-8:]
    assert found == before + SAFE + name + after.format(name=name)


def test_a_dry_run_of_a_server(checkout):
    found = order(checkout, "--output-dir /o --server.port 1", name="examples/basic/reverse-text/infer.toml", kind="inference")
    assert found == "--server.port 1 --dry-run --output-dir %s/outputs" % SCRATCH


@pytest.mark.parametrize("words, reason", [
    ("--dry-run", "overrides"), ("--dry-run true", "overrides"), ("--dry-run false", "overrides"), ("--run.name a/b", "run-name"),
    ("--run.name ..", "run-name"),
    ("--run.name", "run-name"), ("--run.dir ../x", "run-name"), ("@ nope.yaml --run.name a/b", "run-name")])
def test_words_that_are_refused(checkout, words, reason):
    with pytest.raises(OperatorError) as caught:
        order(checkout, words)
    assert caught.value.reason == reason and caught.value.code == 2 and caught.value.hint


@pytest.mark.parametrize("code", [0, 1])
@pytest.mark.parametrize("words", [
    "", "--ckpt.output-dir", "--ckpt.output-dir 5", "--output-dir", "--resume", "--resume.step x", "--resume.step \u00b2",
    "--resume None", "--clean x",
    "--deployment.num-train-gpus 2 --deployment.num-infer-gpus --inference", "--env-vars {} --trainer.env-vars x",
    "--inference.router --slurm",
    "--monitors.wandb --orchestrator 5", "--orchestrator.train.source x --model",
    "--inference.vllm.data-parallel-size 4 --inference.server.port 1"])
def test_a_plan_where_prime_rls_code_could_not_be_asked(checkout, tmp_path, words, code):
    """Out of what is written, with the command line's words in it; and where the runner refused them."""
    os.makedirs(str(tmp_path / "outputs/x/configs"))
    (tmp_path / "outputs/x/configs/trainer.json").write_text("{}")
    words += " --run.name x"
    result = DryRunResult(Outcome((), "ended", code, b"Dry run complete.", b"", 1.0), (), str(tmp_path), ())
    plan, preflight = prime.read_dry_run(request(checkout, *words.split()), result, ENVIRON, "20260801")
    assert preflight.died is bool(code) and bool(plan.block) is not bool(code)
    assert plan.gpu_count is None or isinstance(plan.gpu_count, int)
    machine = make_machine()
    assert all(check.detail for check in prime.judge_config(plan) + prime.judge_live(plan, machine))
