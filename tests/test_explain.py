"""`rlrun explain` and its text: every name that the source can emit is explained, and nothing else is."""
import ast
import json
import re
from pathlib import Path

import pytest

from rlrun import cli, errors
from rlrun.commands import explain

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted((ROOT / "rlrun").rglob("*.py"))
MAX_BYTES = 46 << 10  # as much as is read in one look through; each name has at most eight lines

# A name that the source puts together: every word that can stand in it.
BUILT = {
    "job:%s": ("job:runner", "job:trainer"),  # LiveRun.role of a run's top
    "gpu:%s": ("gpu:absent", "gpu:failed", "gpu:timeout"),  # GpuReading.state, if not ok
    "port:%d": ("port:N",),
    "disk:%s": ("disk:PATH",),
    "import:%s": ("import:MODULE",),
}
# The verdict's names in design.md which training systems raise that no source here launches yet.
FROM_THE_DESIGN = set()
OF_THE_DESIGN = FROM_THE_DESIGN | set(
    "preflight:fatal preflight:died job:running gpu:foreign gpu:mine gpu:unknown port:conflict import:missing "
    "sweep:foreign config:placeholder config:crlf config:foreign log:overwrite name:volatile host:address gpu:count gpu:ecc "
    "tp:kv-heads wandb:key env:inherited resume:silent session:ends limit:memlock limit:nofile secrets:in-log".split())
CHECK_NAME = re.compile(r"[a-z]+:[a-z-]+\Z")


def read_words(node):
    """The texts that an expression can give, as far as the source spells them out."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return {node.value}
    if isinstance(node, ast.IfExp):
        return read_words(node.body) | read_words(node.orelse)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return read_words(node.left)
    return set()  # a name that was made elsewhere, and is found there


def find_emitted():
    """(name, file:line) of every Check and Fact that the source makes, and of check names among the errors' reasons."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called = getattr(node.func, "id", getattr(node.func, "attr", ""))
            words = set()
            if called in ("Finding", "Signature", "Gate") and node.args:
                words = read_words(node.args[0])
            elif called in ("Check", "Fact") and len(node.args) > 1:
                words = read_words(node.args[1])
            elif called == "OperatorError" and len(node.args) > 3:
                words = {word for word in read_words(node.args[3]) if ":" in word}
            for word in words:
                for name in BUILT.get(word, (word,)):
                    yield name, "%s:%d" % (path.relative_to(ROOT), node.lineno)


EMITTED = dict(find_emitted())
ENTRIES = explain.read_entries()
BY_NAME = {entry.name: entry for entry in ENTRIES}
EXIT_NAMES = {"exit:%d" % code for code, _ in cli.EXIT_CODES} | {
    "exit:%d" % code for name, code in vars(errors).items() if name.isupper() and isinstance(code, int)}


def test_the_source_was_understood():
    """A name that this test can't see would stay unexplained."""
    assert len(EMITTED) > 60 and not [name for name in EMITTED if "%" in name]
    in_text = set()
    for path in SOURCES:
        for literal in re.findall(r'"(?:live|preflight|OK|WARN|INFO)", "([a-z][^"]*)"', path.read_text(encoding="utf-8")):
            in_text.update(BUILT.get(literal, (literal,)))
    assert in_text <= set(EMITTED)


@pytest.mark.parametrize("name", sorted(set(EMITTED) | OF_THE_DESIGN | EXIT_NAMES))
def test_every_name_has_an_explanation(name):
    assert name in BY_NAME, EMITTED.get(name, "design.md, errors.py or cli.EXIT_CODES")


def test_no_explanation_is_orphaned():
    assert set(BY_NAME) <= set(EMITTED) | FROM_THE_DESIGN | EXIT_NAMES
    assert len(BY_NAME) == len(ENTRIES)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_an_explanation_is_whole_and_short(entry):
    assert entry.status in ("blocks", "advisory", "pass", "fact", "health", "gate", "exit") and entry.means
    if entry.status == "blocks":
        assert entry.do, "what blocks says what to do"
    assert len(entry.means + entry.matters + entry.do) <= 8
    assert max(map(len, entry.means + entry.matters + entry.do)) <= 120


def test_the_status_is_that_of_the_source():
    """Blocking in the text is what some Check of that name blocks for; nothing else is."""
    blocking = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Check" and len(node.args) > 2:
                names, statuses = node.args[1:3]
                if isinstance(names, ast.IfExp) and isinstance(statuses, ast.IfExp):  # the two go together
                    pairs = ((names.body, statuses.body), (names.orelse, statuses.orelse))
                else:
                    pairs = ((names, statuses),)
                for name, status in pairs:
                    if "blocks" in read_words(status):
                        blocking |= read_words(name)
    assert {entry.name for entry in ENTRIES if entry.status == "blocks"} == blocking | FROM_THE_DESIGN


def test_the_text_stays_small():
    assert (ROOT / "rlrun" / "explain.txt").stat().st_size <= MAX_BYTES


def test_inherited_names_are_told_whole():
    from rlrun.host import inherited
    text = " ".join(BY_NAME["env:inherited"].means)
    families = tuple(family + "*" for family in inherited._FAMILIES) + ("SLURM_*", "RAY_ADDRESS", "MASTER_ADDR")
    for name in inherited._SINGLE_NAMES + inherited._SLURM_TELLING + inherited._SLURM_KEPT + inherited._IDENTITIES + families:
        assert re.search(r"(?<![A-Z_])%s(?![A-Z_])" % re.escape(name), text), name


@pytest.mark.parametrize("text", ["means: of no block", "[a:b] pass\nbut: unknown", "[a:b] pass\nno label", "[a:b] pass\n  lost"])
def test_a_broken_text_is_noticed(text):
    with pytest.raises(ValueError, match="line"):
        explain.parse_entries(text)


def names_of(word):
    return [entry.name for entry in explain.find_entries(ENTRIES, word)]


@pytest.mark.parametrize("word,names", [
    ("gpu:foreign", ["gpu:foreign"]), (" GPU:Foreign ", ["gpu:foreign"]), ("3", ["exit:3"]), ("exit:3", ["exit:3"]),
    ("03", ["exit:3"]), ("port:8265", ["port:N"]), ("port:N", ["port:N"]), ("disk:/data/x", ["disk:PATH"]),
    ("import:verl", ["import:MODULE"]),
    ("wandb", ["wandb:key"]), ("4242", []), ("\u00b2", []), ("9" * 5000, []),
    ("port:x", []), ("g", []), ("", []), ("exit:-1", []), ("x:3", [])])
def test_what_a_word_means(word, names):
    assert names_of(word) == names


def test_a_prefix_means_all_of_its_group():
    assert {"gpu:foreign", "gpu:mem", "gpu:ecc"} <= set(names_of("gpu")) == set(names_of("gpu:"))
    assert names_of("shm")[0] == "shm" and "shm:small" in names_of("shm")


def test_a_label_of_the_report_means_its_checks():
    from rlrun.text.report import ROWS
    assert {"port", "import"} <= set(ROWS)
    for name, label in ROWS.items():
        assert names_of(label) == names_of(name) != [] and names_of(" %s: " % label.upper()) == names_of(name)
    assert names_of("ports:8265") == ["port:N"] and names_of("imports:missing") == ["import:missing"]


# From here on it is the shipped file.

def test_every_name_is_explained_by_the_pyz(run_pyz):
    done = run_pyz(["explain", "--json"])
    report = json.loads(done.stdout)
    assert (done.returncode, done.stderr, report["schema"], report["command"]) == (0, "", 1, "explain")
    assert set(report["names"]) == set(BY_NAME)
    one = json.loads(run_pyz(["explain", "gpu:foreign", "--json"]).stdout)
    assert one == {"schema": 1, "command": "explain", "name": "gpu:foreign", "status": "blocks",
                   "means": " ".join(BY_NAME["gpu:foreign"].means), "matters": " ".join(BY_NAME["gpu:foreign"].matters),
                   "do": " ".join(BY_NAME["gpu:foreign"].do)}
    group = json.loads(run_pyz(["explain", "exit", "--json"]).stdout)
    assert set(group["names"]) == EXIT_NAMES and [one["name"] for one in group["entries"]] == group["names"]


def test_in_words(run_pyz, each_python):
    listing = run_pyz(["explain"], python=each_python)
    assert (listing.returncode, listing.stderr) == (0, "")
    assert all(entry.name in listing.stdout for entry in ENTRIES if entry.status != "exit")
    one = run_pyz(["explain", "3"], python=each_python)
    assert one.returncode == 0 and one.stdout.startswith("exit:3")
    assert "Not confirmed" in one.stdout and "--again" in one.stdout


def test_under_cron(run_pyz, clean_env):
    """E3: the C locale, and no terminal."""
    clean_env.update(LC_ALL="C", PYTHONIOENCODING="ascii")
    done = run_pyz(["explain", "gpu"], env=clean_env)
    assert done.returncode == 0 and done.stdout.isascii() and "gpu:foreign - blocks" in done.stdout


@pytest.mark.parametrize("word,close", [("gpu:foriegn", "gpu:foreign"), ("foreign", "sweep:foreign"),
                                        ("overwrite", "log:overwrite"), ("zzzz", "rlrun explain")])
def test_an_unknown_name(run_pyz, word, close):
    done = run_pyz(["explain", word])
    assert (done.returncode, done.stdout) == (2, "") and close in done.stderr
    report = json.loads(run_pyz(["explain", word, "--json"]).stdout)
    assert report["exit"] == 2 and close in report["hint"]
