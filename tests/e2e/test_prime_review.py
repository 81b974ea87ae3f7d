"""What a review of prime-rl's judgement found: each fault leaves a test here. Configs that only the runner reads, --clean
and links, what a live run lays claim to before it holds it, secrets, digests, control characters, huge numbers."""
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest
from checkouts import add_prime_config, build_prime_checkout, write_fake_program
from conftest import find_pythons

from e2e.scene import Found, Scene, details, fixes, hash_tree
from e2e.test_check_machine import act
from e2e.test_prime_bad_input import ELSEWHERE, make, says
from e2e.test_prime_launch import MODE, NAME, QUESTION, answer

from . import box as b

Run = Callable[..., "subprocess.CompletedProcess[str]"]
RL = "examples/basic/reverse-text/rl.toml"
LOADER = "packages/prime-rl-configs/src/prime_rl/utils/config.py"
SOURCE = "[[orchestrator.train.source]]\nenv.taskset.id = 'reverse-text'\n"
PLAIN = SOURCE + "[orchestrator]\n[trainer]\n[inference]\n[ckpt]\n"
CLEANS = "clean = true\n" + PLAIN + "[run]\nname = 'mine'\n"


@pytest.fixture
def root(tmp_path: Path) -> str:
    return build_prime_checkout(tmp_path / "prime")


def rewrite(root: str, name: str, old: str, new: str) -> None:
    """Changes one place of a file of the toy's."""
    text = Path(root, name).read_text()
    assert text.count(old) == 1, text.count(old)
    Path(root, name).write_text(text.replace(old, new))


def block_row(found: Found, label: str) -> str:
    """A row of the block."""
    return next(line[15:] for line in found.shape["configuration"].split("\n") if line[2:14].strip() == label)


# ---- a config that only the runner can read

def test_config_that_only_the_runner_reads_blocks_and_is_no_dry_run(own: Scene) -> None:
    """A byte order mark, which the toy's loader passes here: nobody knows then what its dry run would delete."""
    rewrite(own.root, LOADER, 'decode("utf-8")', 'decode("utf-8-sig")')
    kept, ckpt = (str(own.folder / name) for name in ("kept", "ckpt"))
    make(kept, "checkpoints/step_2/x", "rollouts/step_3/x", "broadcasts/step_3/x", "logs/attempt_1/trainer.log")
    make(ckpt, "checkpoints/step_2/x")
    make(own.root, "outputs/mine/rollouts/step_1/x")
    harm: Dict[str, Any] = {"clean": True, "run": {"dir": kept}, "ckpt": {"output_dir": ckpt}}
    rl = {"orchestrator": {"train": {"source": [{"env": {"taskset": {"id": "reverse-text"}}}]}}, "trainer": {}, "inference": {}}
    for name, table in (("rl", dict(rl, **harm)), ("sft", dict(harm, data={"type": "fake"})), ("part", harm), (
            "resumes", dict(rl, resume={"step": 2}, run={"dir": kept})), ("name", {"name": "mine", "dir": kept}), (
            "here", dict(rl, clean=True, output_dir="outputs", run={"name": "mine"}))):
        add_prime_config(own.root, "bom-%s.json" % name, b"\xef\xbb\xbf" + json.dumps(table).encode())
    folders = [own.root, str(own.folder / "kept"), str(own.folder / "ckpt")]
    before = [hash_tree(folder) for folder in folders]
    bom = "configs/debug/bom-%s.json"
    found = own.check_all([
        [bom % "rl", "--kind", "rl"], [bom % "sft", "--kind", "sft"],
        [RL, bom % "part"], [bom % "resumes", "--kind", "rl"], [bom % "here", "--kind", "rl"],
        [RL, "--", "--clean", "--run", "@", bom % "name"], [RL, "--", "--clean", "--run.name", "mine", "@", bom % "part"]])
    for one in found:
        says(one, "preflight:died")
        told = details(one, "preflight:died")
        assert "prime-rl reads this config, and here it can't be read" in told and "what a dry run of it would touch" in told
        assert "any parser" in fixes(one, "preflight:died") and "BOM" in one.shape["last_words"]
        assert one.shape["configuration"] == ""
    done = own.run(["run", bom % "rl", "--kind", "rl"])
    assert done.exit == 1 and "Preflight failed" in done.err
    assert [hash_tree(folder) for folder in folders] == before


def test_config_that_nobody_reads_is_told_in_the_runner_s_words(own: Scene) -> None:
    add_prime_config(own.root, "bom.json", b"\xef\xbb\xbf{}")
    before = hash_tree(own.root)
    found = own.check("configs/debug/bom.json", args=["--kind", "rl"])
    says(found, "preflight:died")
    assert found.shape["last_words"].startswith("╭─ Config file error") and "Invalid JSON" in found.shape["last_words"]
    assert hash_tree(own.root) == before


# ---- what a live run lays claim to before it holds it

# Behind it the runner looks like nothing that is known. A dry run passes.
WRAPPER = '''#!/bin/sh
case " $* " in *" --dry-run "*) exec .venv/bin/"$@" ;; esac
echo held
%s
'''


def launch_held(box: b.Box, config: str, *words: str) -> Dict[str, Any]:
    """Launches behind the wrapper and does not wait for what the run would say; its record's row."""
    options = ["--runner", os.path.join(box.folder, "wrapper")]
    place = words.index("--") if "--" in words else len(words)
    shape = b.check(box, config, *options, *words)
    with subprocess.Popen([box.python, box.pyz, "run", config, "--confirm", shape["digest"]] + options + list(words[:place])
                          + list(words[place:]), env=b.make_env(box), cwd=box.root, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as popen:
        def is_held() -> bool:
            return any(row["state"] == "running" and b.read(row["launch_log"]) == "held\n" for row in b.list_runs(box)) or \
                popen.poll() is not None
        b.wait_for(is_held, "the wrapper")
        popen.send_signal(signal.SIGINT)
        out = popen.communicate(timeout=b.LIMIT_SECONDS)[0].decode()
    return dict(b.list_runs(box)[0], code=popen.returncode, out=out)


def blockers(shape: Dict[str, Any]) -> Dict[str, List[str]]:
    found: Dict[str, List[str]] = {}
    for one in shape["checks"]:
        if one["status"] == "blocks":
            found.setdefault(one["name"], []).append(one["detail"])
    return found


def play_claims(box: b.Box) -> Dict[str, Any]:
    held = launch_held(box, "cleans")
    other = {"CUDA_VISIBLE_DEVICES": "4,5"}
    folder = os.path.join(box.root, "outputs/mine")
    moved = ELSEWHERE.split()
    facts = {"held": held, "absent": not os.path.exists(os.path.join(box.root, "outputs")),
             "looks": b.read("/proc/%d/cmdline" % held["runner"]["pid"])}
    facts["same"] = b.check(box, "cleans")
    facts["moved"] = b.check(box, "cleans", "--", *moved, env=other)
    facts["slurm"] = b.check(box, "cleans", "--", "--slurm")
    facts["renamed"] = b.check(box, "plain-rl", "--", "--run.name", "yours")
    facts["ckpt"] = b.check(box, "plain-rl", "--", "--run.name", "yours", "--ckpt.output-dir", "outputs/../outputs/mine", *moved,
                            env=other)
    facts["free"] = b.check(box, "plain-rl", "--", "--run.name", "yours", *moved, env=other)
    os.makedirs(folder)
    b.add_to_file(os.path.join(folder, "here"), "kept")
    done = b.rlrun(box, "run", "cleans", "--json", "--confirm", facts["moved"]["digest"], "--", *moved, env=other)
    facts["new"] = json.loads(done.out)
    facts["run"] = [done.code, facts["new"]["launched"], b.count_records(box), b.read(os.path.join(folder, "here"))]
    os.killpg(held["runner"]["pgid"], signal.SIGKILL)
    b.wait_for_end(box)
    facts["after"] = b.check(box, "cleans")
    return facts


def test_what_a_run_behind_an_unknown_wrapper_has_laid_claim_to(play, root, tmp_path) -> None:
    """Its directory is not there yet, its ports are not bound, its GPUs are empty, and no process looks like a run's."""
    write_fake_program(tmp_path, "wrapper", WRAPPER % "exec sleep 600")
    add_prime_config(root, "cleans", CLEANS)
    add_prime_config(root, "plain-rl", PLAIN)
    facts = play(play_claims, root)
    held = facts["held"]
    assert (held["code"], held["run_dir"]) == (0, os.path.join(root, "outputs/mine")), held["out"]
    assert facts["absent"] and facts["looks"] == "sleep\x00600\x00"
    who = "the run that pid %d began (%s)" % (held["runner"]["pid"], held["id"])
    same = blockers(facts["same"])
    assert same == {"port:conflict": same["port:conflict"], "gpu:foreign": ["GPU 0,1 is taken by " + who],
                    "job:running": ["%s is written to by %s" % (held["run_dir"], who)]}
    (ports,) = same["port:conflict"]
    assert ports.endswith("will be bound by " + who)
    assert all("%d (%s" % pair in ports for pair in ((8000, "router"), (8100, "engine"), (5000, "env server"), (29501, "weight"),
                                                     (5555, "rollout transport")))
    for name in ("moved", "ckpt", "new"):
        assert list(blockers(facts[name])) == ["job:running"] and who in blockers(facts[name])["job:running"][0], name
    submitted = blockers(facts["slurm"])
    assert set(submitted) - {"slurm:absent"} == {"job:running"} and who in submitted["job:running"][0]
    assert blockers(facts["renamed"]) == {name: same[name] for name in ("port:conflict", "gpu:foreign")}
    assert blockers(facts["free"]) == {}
    assert facts["run"] == [1, False, 1, "kept"]
    assert blockers(facts["after"]) == {}  # and then it may go
    assert [one["path"] for one in facts["after"]["plan"]["sweep"]["paths"]] == [held["run_dir"]]


ABOVE = [["cleans", "--", "--run.name", "yours", "--ckpt.output-dir", "outputs"], [
    "cleans", "--", "--output-dir", ".", "--run.name", "outputs"]]


def play_above(box: b.Box) -> List[Any]:
    held = launch_held(box, "cleans")
    os.makedirs(held["run_dir"])
    return [b.check(box, *words, *ELSEWHERE.split(), env={"CUDA_VISIBLE_DEVICES": "4,5"}) for words in ABOVE]


def test_clean_of_a_folder_that_a_live_run_s_directory_lies_in(play, root, tmp_path) -> None:
    write_fake_program(tmp_path, "wrapper", WRAPPER % "sleep 600; exit 1")
    add_prime_config(root, "cleans", CLEANS)
    for shape in play(play_above, root):
        assert [one["path"] for one in shape["plan"]["sweep"]["paths"]] == [root + "/outputs"]
        assert "job:running" in shape["blocking"], shape["plan"]["argv"]


def test_clean_of_a_folder_that_a_run_started_by_hand_lives_in(own: Scene) -> None:
    add_prime_config(own.root, "cleans", CLEANS)
    make(own.root, "outputs/mine/configs/rl.json")
    argv = [own.root + "/.venv/bin/python", own.root + "/.venv/bin/rl", "@", RL, "--run.name", "mine"]
    for found in own.check_all(ABOVE, before=act(argv=argv)):
        assert [one["path"] for one in found.shape["plan"]["sweep"]["paths"]] == [own.root + "/outputs"]
        assert "job:running" in found.blocking, found.shape["plan"]["argv"]


def test_run_that_has_written_nothing_yet_is_told_by_its_words(own: Scene) -> None:
    add_prime_config(own.root, "cleans", CLEANS)
    argv = [own.root + "/.venv/bin/python", own.root + "/.venv/bin/rl", "@", RL, "--run.name", "mine"]
    fresh, cleaned, resumed, submitted, other = own.check_all(
        [[RL, "--", "--run.name", "mine"], ["cleans"], [RL, "--", "--run.name", "mine", "--resume"],
         ["cleans", "--", "--slurm"], [RL, "--", "--run.name", "yours"]], before=act(argv=argv))
    for found, words in ((fresh, "write beside it"), (cleaned, "delete it under it"), (resumed, "write and delete beside it"), (
            submitted, "delete it under it")):
        assert "job:running" in found.blocking and words in details(found, "job:running"), words
        assert "%s/outputs/mine" % own.root in details(found, "job:running")
    says(other)


# ---- paths behind links

def test_directory_behind_a_link_and_dots_is_the_runner_s(own: Scene) -> None:
    """`..` behind a link is the folder above what it leads to."""
    elsewhere = own.folder / "elsewhere"
    make(str(elsewhere), "deep/x", "outx/mine/rollouts/step_1/x", "ck/checkpoints/step_3/x")
    os.symlink(str(elsewhere / "deep"), own.root + "/LINK")
    make(own.root, "outx/yours/rollouts/step_1/x", "ck2/checkpoints/step_3/x")
    real = os.path.realpath(str(elsewhere))
    words = ["--output-dir", "LINK/../outx", "--run.name"]
    used, fresh, ckpt, beside, resumed = own.check_all([
        [RL, "--"] + words + ["mine"], [RL, "--"] + words + ["yours"], [RL, "--", "--ckpt.output-dir", "LINK/../ck"],
        [RL, "--", "--ckpt.output-dir", "LINK/../ck2"], [RL, "--", "--resume.dir", "LINK/../ck/checkpoints/step_3"]])
    says(used, "run:exists")
    assert used.shape["plan"]["run_dir"] == block_row(used, "directory") == real + "/outx/mine"
    assert details(used, "run:exists").startswith(real + "/outx/mine is used by an earlier run (rollouts)")
    says(fresh)
    assert fresh.shape["plan"]["run_dir"] == real + "/outx/yours"
    says(ckpt, "run:exists")
    assert details(ckpt, "run:exists").startswith(real + "/ck/checkpoints holds an earlier run's checkpoints")
    says(beside)
    assert block_row(resumed, "resume") == "from step 3  %s/ck/checkpoints/step_3" % real
    said = subprocess.run([own.root + "/.venv/bin/rl", "@", RL] + words + ["mine"], cwd=own.root, env=own.env,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert said.returncode == 1 and b"LINK/../outx/mine' already contains artifacts" in said.stdout  # the runner sees it too


def test_clean_of_a_link_blocks_and_deletes_nothing(own: Scene) -> None:
    """The runner would have deleted some of it before it fails."""
    add_prime_config(own.root, "cleans", CLEANS)
    add_prime_config(own.root, "keeps", CLEANS.replace("[ckpt]\n", "[ckpt]\noutput_dir = 'ck'\n"))
    make(own.root, "real/checkpoints/step_1/x", "real-ck/checkpoints/step_1/x", "one/below/rollouts/step_1/x", "one/file")
    os.mkdir(own.root + "/outputs")
    for name, target in (("outputs/mine", "../real"), ("ck", "real-ck"), ("outputs/gone", "nowhere"), ("two", "one")):
        os.symlink(target, os.path.join(own.root, name))
    before = hash_tree(own.root)
    linked, ckpt, broken, file, below = own.check_all([
        ["cleans"], ["keeps", "--", "--run.name", "new"], ["cleans", "--", "--run.name", "gone"],
        ["cleans", "--", "--output-dir", "one", "--run.name", "file"],
        ["cleans", "--", "--output-dir", "two", "--run.name", "below"]])
    assert hash_tree(own.root) == before
    for found, path in ((linked, "outputs/mine"), (ckpt, "ck"), (broken, "outputs/gone")):
        says(found, "run:clean")
        assert details(found, "run:clean").startswith("%s/%s is a link" % (own.root, path)), path
    assert "run:clean" in file.blocking
    assert details(file, "run:clean") == own.root + "/one/file is no directory"
    says(below)  # a link above it is as good as a folder
    assert [one["path"] for one in below.shape["plan"]["sweep"]["paths"]] == [own.root + "/one/below"]


def test_clean_of_a_link_that_dots_lead_to(own: Scene) -> None:
    add_prime_config(own.root, "cleans", CLEANS)
    make(own.root, "real-ck/checkpoints/step_1/x", "outputs/mine/rollouts/step_1/x")
    os.symlink("real-ck", own.root + "/ck")
    (found,) = own.check_all([["cleans", "--", "--ckpt.output-dir", "outputs/../ck"]])
    says(found, "run:clean")


def play_clean_race(box: b.Box) -> Dict[str, Any]:
    folder, ckpt = os.path.join(box.root, "outputs/mine"), os.path.join(box.folder, "ckpt")

    def come(path: str) -> Callable[[], str]:
        def make_it() -> str:
            os.makedirs(path)
            b.add_to_file(os.path.join(path, "precious"), "kept")
            return "y\n"
        return make_it
    facts = {"run": answer(box, [(QUESTION, come(folder)), (MODE, "\n")], "cleans")}
    # Now it is there, and is named; then the other one comes.
    facts["ckpt"] = answer(box, [(QUESTION, come(ckpt)), (NAME, "mine\n"), (MODE, "\n")], "cleans", "--", "--ckpt.output-dir",
                           ckpt)
    return dict(facts, left=[b.read(os.path.join(path, "precious")) for path in (folder, ckpt)])


def test_clean_is_held_to_what_was_there_when_it_was_asked(play, root) -> None:
    add_prime_config(root, "cleans", CLEANS)
    facts = play(play_clean_race, root)
    for name in ("run", "ckpt"):
        told = facts[name]
        assert (told["code"], told["records"]) == (1, 0), told["text"]
        assert "the machine changed while you were asked; nothing was launched" in told["text"] and "run:clean" in told["text"]
        assert "was not there when this plan was made, and --clean would delete it" in told["text"]
    assert facts["left"] == ["kept", "kept"]


def test_used_checkpoint_folder_of_its_own_needs_another_one(own: Scene) -> None:
    """Another name of the run is no help there."""
    make(own.root, "ck/checkpoints/step_4/x")
    used, moved = own.check_all([[RL, "--", "--run.name", "new", "--ckpt.output-dir", name] for name in ("ck", "ck2")])
    says(used, "run:exists")
    assert "--ckpt.output-dir" in fixes(used, "run:exists") and "from step 4" in fixes(used, "run:exists")
    says(moved)


# ---- the dry run's result

def test_dry_run_that_says_nothing_at_its_log_level(own: Scene) -> None:
    """What it left behind counts, not its words."""
    rewrite(own.root, "src/prime_rl/process.py", 'def say(words, level="INFO"):\n',
            'def say(words, level="INFO"):\n    if os.environ.get("PRIME_LOG_LEVEL") == "warning" or "--log.level" in sys.argv:\n'
            '        return\n')
    configs = [RL, "sft", "infer"]
    lines = [[config] for config in configs] + [["PRIME_LOG_LEVEL=warning", config] for config in configs] + [
        [RL, "--", "--log.level", "warning"]]
    found = own.check_all(lines)
    loud, quiet, asked = found[:3], found[3:6], found[6]
    for one, other in zip(loud, quiet):
        assert "preflight:ok" in [check["name"] for check in other.shape["checks"]]
        assert (other.shape["verdict"], other.shape["digest"]) == ("YES", one.shape["digest"])
    says(asked)
    assert asked.shape["digest"] != loud[0].shape["digest"]


def test_resolved_config_of_an_earlier_run_can_be_checked(own: Scene) -> None:
    """It names the directories of that run: the dry run is given others, and that run stays as it is."""
    env = dict(own.env, TOY_LAYOUT="new")
    subprocess.run([own.root + "/.venv/bin/rl", "@", RL, "--dry-run", "--run.name", "old", "--ckpt.output-dir", own.root + "/ck"],
                   cwd=own.root, env=env, stdout=subprocess.DEVNULL, check=True)
    make(own.root, "outputs/old/rollouts/step_1/x", "ck/checkpoints/step_1/x")
    config = "outputs/old/configs/attempt_1/resolved/rl.json"
    data = json.loads(Path(own.root, config).read_text())
    assert data["trainer"]["output_dir"] == "outputs/old" and data["trainer"]["ckpt"]["output_dir"] == own.root + "/ck"
    before = hash_tree(own.root)
    new = ["--run.name", "new", "--run.dir", "new", "--ckpt.output-dir", "ck2", "--trainer.ckpt.output-dir", "ck2"]
    again, renamed, cleaned = own.check_all([
        [config, "--kind", "rl"], [config, "--kind", "rl", "--"] + new, [config, "--kind", "rl", "--", "--clean"]],
        env={"TOY_LAYOUT": "new"})
    assert hash_tree(own.root) == before
    says(again, "run:exists")
    says(renamed)
    assert renamed.shape["plan"]["run_dir"] == own.root + "/outputs/new" and block_row(renamed, "schedule") == "max_steps=20"
    says(cleaned)
    assert sorted(one["path"] for one in cleaned.shape["plan"]["sweep"]["paths"]) == [own.root + "/ck", own.root + "/outputs/old"]


def test_resolver_that_fails_without_a_word_on_the_config_is_a_warning(own: Scene) -> None:
    """prime-rl's own loading, asked beside the dry run, breaks down; the dry run itself does not."""
    add_prime_config(own.root, "cleans", CLEANS)
    make(own.root, "outputs/mine/rollouts/step_1/x")
    rewrite(own.root, ".venv/bin/python", "#!/bin/sh\n",
            '#!/bin/sh\ncase "$*" in *resolved.json*) echo "Segmentation fault" >&2; exit 3 ;; esac\n')
    before = hash_tree(own.root)
    found, used, cleaned, quick = own.check_all([[RL], [RL, "--", "--run.name", "mine"], ["cleans"], ["infer"]])
    assert hash_tree(own.root) == before
    for one in (found, cleaned, quick):
        says(one)
        assert "prime-rl's own code could not be asked for the whole config (ended 3)" in details(one, "preflight:warn")
        assert "preflight:warn" in one.warnings and one.shape["digest"]
    says(used, "run:exists")
    assert block_row(found, "model") == "toy/Reverse-Text-0.6B" and block_row(found, "schedule") == "max_steps=20"
    assert [one["path"] for one in cleaned.shape["plan"]["sweep"]["paths"]] == [own.root + "/outputs/mine"]


@pytest.mark.parametrize("layout", ["old", "new"])
def test_directory_of_a_run_whose_resolver_fails_is_not_the_dry_run_s(own: Scene, layout: str) -> None:
    """What the dry run writes down names the scratch folder that it was given."""
    rewrite(own.root, ".venv/bin/python", "#!/bin/sh\n", '#!/bin/sh\ncase "$*" in *resolved.json*) exit 3 ;; esac\n')
    make(own.root, "outputs/mine/rollouts/step_1/x", "ck/checkpoints/step_1/x")
    name = ["--", "--run.name", "mine"]
    lines = [[RL] + name, ["sft"] + name, ["slurm"] + name, ["sft"] + name + ["--clean", "--ckpt.output-dir", "ck"]]
    found = own.check_all(lines, env={"TOY_LAYOUT": layout})
    assert {one.shape["plan"]["run_dir"] for one in found} == {own.root + "/outputs/mine"}
    assert all("run:exists" in one.blocking for one in found[:3])
    assert [one["path"] for one in found[3].shape["plan"]["sweep"]["paths"]] == [own.root + "/ck", own.root + "/outputs/mine"]


# ---- secrets, names

KEYS = """
[run]
name = "None"
[orchestrator.model.client]
api_keys = ["listed-one-qqa", "listed-two-qqb"]
db_password = \"\"\"
triple-first-qqc
triple second qqd\"\"\"
[orchestrator.model.client.headers]
"X-API-Key" = "quoted-name-qqe"
'X-Auth-Token' = 'quoted-name-qqf'
"""
TYPED = ["--orchestrator.model.client.headers.X-API-Key", "typed-value-qqg", "--orchestrator.model.client.auth_token=typed-qqh",
         "--trainer.env-vars.HF_TOKEN", "typed-value-qqi"]
SECRET = "qq"


def play_secrets(box: b.Box) -> Dict[str, Any]:
    texts, digests = [], []
    for _ in range(2):
        done = b.rlrun(box, "check", "keys-rl", "--json", "--", *TYPED)
        texts.append(done.out + done.err)
        digests.append(json.loads(done.out)["digest"])
    for words in (["check", "keys-rl"], ["run", "keys-rl"], ["run", "keys-rl", "--confirm", "00000000"]):
        done = b.rlrun(box, *words, "--", *TYPED)
        texts.append(done.out + done.err)
    held = launch_held(box, "keys-rl", "--", *TYPED)
    texts.append(held["out"])
    texts.append(b.rlrun(box, "runs", held["id"]).out + b.rlrun(box, "runs", "--json").out)
    done = b.rlrun(box, "check", "keys-rl", "--", *TYPED)
    texts.append(done.out + done.err)
    files = {name: b.read(os.path.join(held["record"], name)) for name in os.listdir(held["record"])}
    return {"texts": texts, "digests": digests, "held": held, "files": files,
            "argv": b.read("/proc/%d/cmdline" % held["runner"]["pid"]).split("\0")}


def test_no_secret_of_a_config_is_shown_or_stored_and_a_name_none_is_no_name(play, root, tmp_path) -> None:
    write_fake_program(tmp_path, "wrapper", WRAPPER % 'read forever <"${0%/*}/pipe"')
    os.mkfifo(str(tmp_path / "pipe"))
    add_prime_config(root, "keys-rl", PLAIN + KEYS)
    facts = play(play_secrets, root)
    for number, text in enumerate(facts["texts"]):
        assert SECRET not in text, (number, text)
    assert {name for name, text in facts["files"].items() if SECRET in text} == set(), facts["files"]
    assert {"record.json", "command.txt", "configuration.txt", "config.toml"} <= set(facts["files"])
    assert "X-API-Key" in facts["files"]["config.toml"] and "<redacted>" in facts["files"]["config.toml"]
    assert "typed-value-qqg" in facts["argv"]  # the run itself gets it
    held = facts["held"]
    assert len(set(facts["digests"])) == 1 and held["code"] == 0, held["out"]  # the confirmed one was launched
    assert held["experiment"].startswith("reverse-text--") and facts["argv"][-3:-1] == ["--run.name", held["experiment"]]


def test_password_in_a_server_s_address(own: Scene) -> None:
    """It can't be asked from here, which is no reason to say that nobody is there."""
    url = "http://bob:pass-word-qq1@localhost:8000/v1"
    rewrite(own.root, "examples/basic/reverse-text/evals.toml", "http://localhost:8000/v1", url)
    add_prime_config(own.root, "external-rl", SOURCE + "[orchestrator]\n[trainer]\n")
    lines = [["evals"], ["evals", "--", "--eval.client.base-url", url + "/"],
             ["external-rl", "--", "--orchestrator.model.client.base-url", url]]
    found = own.check_all(lines)
    text = own.run([], command="\n".join('"$PYTHON" "$PYZ" check %s' % " ".join(words) for words in lines))
    for one in found:
        says(one)
        assert "server:unknown" in one.warnings and "user name" in details(one, "server:unknown")
        assert SECRET not in one.out + one.err
    assert SECRET not in text.out + text.err and text.out.count("bob:<redacted>@localhost") > 3


def test_each_of_several_values_of_a_secret_option(prime: Scene) -> None:
    words = [RL, "--", "--orchestrator.model.client.api-keys", "first-value-qq1", "second-value-qq2"]
    (found,) = prime.check_all([words])
    says(found, "preflight:died")  # the toy takes one value here
    text = prime.run(["check"] + words)
    assert [word for word in ("first-value-qq1", "second-value-qq2") if word in found.out + text.out + text.err] == []


# ---- the digest

def test_digest_changes_with_the_batch_script_s_template(own: Scene) -> None:
    """The toy has none: here it does as prime-rl, whose scripts come out of one."""
    rewrite(own.root, "src/prime_rl/launcher.py", 'slurm.pre_run_command or "", command',
            'open(slurm.template_path).read() if slurm.template_path else "", command')
    template = own.folder / "template.sh"  # named by the config: among the words it would count as a file
    add_prime_config(own.root, "templates", Path(own.root, "configs/debug/slurm.toml").read_text() + "template_path = '%s'\n"
                     % template)
    digests = []
    for text in ("module load cuda\n", "module load cuda\n", "module load cuda\nrm -rf /scratch/old\n", "module load cuda\n"):
        template.write_text(text)
        (found,) = own.check_all([["templates"]])
        digests.append(found.shape["digest"])
    assert digests[0] == digests[1] == digests[3] != digests[2]


def test_digest_of_a_path_with_an_umlaut_is_one_in_every_locale(run_pyz: Run, root: str, clean_env: Dict[str, str]) -> None:
    """An old Python in the C locale reads it as escaped bytes."""
    add_prime_config(root, "größe-rl", PLAIN)
    pythons = find_pythons()
    digests = {}
    for python, locale in ((pythons[0], "C"), (pythons[0], "C.UTF-8"), (pythons[-1], "C"), (pythons[-1], "C.UTF-8")):
        done = run_pyz(["check", "configs/debug/größe-rl.toml", "--json", "--", "--run.name", "x"], cwd=root,
                       python=python, env=dict(clean_env, LC_ALL=locale))
        digests[python, locale] = json.loads(done.stdout)["digest"]
    assert len(set(digests.values())) == 1, digests


# ---- what a config may hold

def test_control_characters_of_a_config_are_escaped(prime: Scene, own: Scene) -> None:
    add_prime_config(own.root, "foul-rl", '[model]\nname = "a\\u001b[2Jb\\nc"\n' + PLAIN.replace(
        SOURCE, SOURCE + 'name = "x\\r\\u202ey\\u0007"\n'))
    text, asked = (own.run([command, "foul-rl"]) for command in ("check", "run"))
    shape = own.check("foul-rl")
    assert asked.exit == 3
    for shown in (text.out, asked.out + asked.err, shape.shape["configuration"]):
        assert not set("\x1b\r\u202e\x07") & set(shown)
        assert "  model        a\\x1b[2Jb\\nc\n" in shown and "  environments x\\r\\u202ey\\x07\n" in shown
    look = (asked.out + asked.err).split("Worth double-checking")[1]
    assert " model      a\\x1b[2Jb" in look and " environments x\\r\\u202ey\\x07\n" in look


def test_huge_numbers_and_names_take_no_memory(boxed: Run, quick_pyz: str, shared_prime: str, clean_env: Dict[str, str]) -> None:
    def check(*words: str) -> "subprocess.CompletedProcess[str]":
        return boxed(["bash", "-c", 'ulimit -v 1500000; exec "$@"', "sh", sys.executable, quick_pyz, "check", RL, "--"] +
                     list(words), env=clean_env, cwd=shared_prime)
    done = check("--deployment.num-infer-gpus", "2000000000", "--deployment.gpus-per-node", "3000000000")
    (row,) = [line for line in done.stdout.split("\n") if line.startswith("  GPUs ")]
    assert done.returncode == 0 and row == "  GPUs         inference GPU 0-1999999999 · trainer GPU 2000000000", done.stderr
    name = "--" + ".".join("a" * 5000)
    for words in ([name, "3"], [name], [name + "=3"], ["--no-" + name[2:]]):
        done = check(*words)
        assert (done.returncode, done.stdout) == (2, "") and "an option with more than 50 dots" in done.stderr
        assert "Traceback" not in done.stderr and len(done.stderr) < 300


def test_identity_of_an_earlier_run_in_the_environment(prime: Scene) -> None:
    left, clean = prime.check_all([["PRL_RUN_ID=0123abcd", "WANDB_RUN_ID=xyz", RL], [RL]])
    says(left)
    assert "PRL_RUN_ID, WANDB_RUN_ID" in details(left, "env:inherited") and "0123abcd" not in left.out
    assert "--drop-env" in fixes(left, "env:inherited")
    assert "env:inherited" not in clean.warnings


def test_configs_on_both_sides_of_an_option(run_pyz: Run, shared_prime: str) -> None:
    shapes = [json.loads(run_pyz(["check"] + words, cwd=shared_prime).stdout) for words in (
        [RL, "--json", "configs/debug/plain.toml"], ["--json", RL, "configs/debug/plain.toml"],
        [RL, "--kind", "rl", "configs/debug/plain.toml", "--json"])]
    assert [shape["configs"] for shape in shapes] == [[RL, "configs/debug/plain.toml"]] * 3
    assert len({shape["digest"] for shape in shapes}) == 1
    done = run_pyz(["check", RL, "--jsn", "configs/debug/plain.toml"], cwd=shared_prime)
    assert done.returncode == 2 and "unrecognized arguments: --jsn" in done.stderr
