"""The design's arrows: cli -> commands -> steps -> health, stacks -> host, text -> values. Held to by reading the source."""
import ast
import re
import sys
import tokenize
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Set, Tuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "rlrun"

# Highest first; a layer may import lower ones and itself, not the one beside it.
LAYERS = (("__main__",), ("cli",), ("commands",), ("steps",), ("health", "stacks"), ("host", "text"), ("values", "vitals"))
FOR_ALL = ("errors", "child", "about")  # errors and about import nothing, child only values
ONLY: Dict[str, Set[str]] = {"__main__": {"cli"}, "errors": set(), "about": set(), "child": {"values"}, "values": set(),
                             "vitals": set()}

# Modules that start or end processes, and who may.
PROCESS_MODULES = {"subprocess", "multiprocessing", "pty", "concurrent"}
PROCESS_CALLS = re.compile(r"os\.(?:system|popen|fork\w*|exec\w+|spawn\w+|posix_spawn\w*|kill|killpg)\Z")
MAY_START = {
    "rlrun/child.py": "the one way to run a program",
    "rlrun/steps/keeper.py": "os.fork: the keeper",
    "rlrun/steps/scope.py": "os.execvpe: becomes itself anew, in a systemd scope",
    "rlrun/steps/in_job.py": "os.killpg: hands a job's stop on to the runner that it started",
    "rlrun/commands/launched.py": "os.killpg: hands Ctrl-C on to a run in the foreground",
}
MAY_IMPORT_BY_NAME = {"rlrun/cli.py": "the table of commands", "rlrun/stacks/__init__.py": "the table of stacks"}
# In Python 3.6 and gone by 3.13; vermin finds what came later.
REMOVED = {"asynchat", "asyncore", "distutils", "imp", "smtpd", "cgi", "cgitb", "crypt", "pipes", "telnetlib", "nntplib"}

# What one training system is called may be known in stacks/ only.
FOREIGN_WORDS = re.compile(r"(?i:lego|harbor|(?<![a-z])verl(?![a-z])|raylet)|TRAIN_LOG|EXP_NAME")
MAY_NAME_SYSTEMS = {
    "rlrun/explain.txt": "words for people: an explanation names what it is about",
    "rlrun/text/explain.txt": "the same",
    "rlrun/commands/explain.txt": "the same",
}


class Import(NamedTuple):
    """One import: the file, the line, and the dotted name of the module that it reaches."""

    path: str
    line: int
    target: str


def list_modules() -> Dict[str, Path]:
    """Dotted name of every module under rlrun/, with its file."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = list(path.relative_to(ROOT).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = list_modules()


def read_tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def read_imports(name: str) -> Iterator[Import]:
    path = MODULES[name]
    shown = str(path.relative_to(ROOT))
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(read_tree(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(shown, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[:len(package.split(".")) - node.level + 1]
                base = ".".join(above + ([base] if base else []))
            for alias in node.names:
                inner = "%s.%s" % (base, alias.name)
                yield Import(shown, node.lineno, inner if inner in MODULES else base)


def read_code(path: Path) -> Iterator[Tuple[int, str]]:
    """Line and text of every name and string; comments and docstrings are left out: they give the reason, with its source."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    prose = {node.body[0].lineno for node in ast.walk(read_tree(path))
             if isinstance(node, documented) and ast.get_docstring(node) is not None}
    with open(str(path), "rb") as source:
        for token in tokenize.tokenize(source.readline):
            if token.type in (tokenize.NAME, tokenize.STRING) and token.start[0] not in prose:
                yield token.start[0], token.string


def name_layer(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def find_level(layer: str) -> int:
    return next(level for level, names in enumerate(LAYERS) if layer in names)


def read_own_imports(name: str) -> List[Import]:
    return [one for one in read_imports(name) if one.target == "rlrun" or one.target.startswith("rlrun.")]


def is_allowed(source: str, target: str) -> bool:
    if source in ONLY:
        return target in ONLY[source]
    if target in FOR_ALL or source == target:
        return True
    return find_level(source) < find_level(target)


@pytest.mark.parametrize("name", sorted(MODULES))
def test_arrows_point_down(name):
    layer = name_layer(name)
    wrong = []
    for one in read_own_imports(name):
        target = name_layer(one.target)
        if layer == "" or target == "" or not is_allowed(layer, target):
            wrong.append("%s:%d imports %s" % one)
    assert not wrong


def test_every_module_has_a_place():
    known = {name for names in LAYERS for name in names} | set(FOR_ALL) | {""}
    assert {name_layer(name) for name in MODULES} <= known


def test_no_circle():
    edges = {name: {one.target for one in read_own_imports(name)} - {name} for name in MODULES}
    done: Set[str] = set()
    path: List[str] = []

    def visit(name: str) -> None:
        if name in path:
            raise AssertionError("a circle: %s" % " -> ".join(path[path.index(name):] + [name]))
        if name in done:
            return
        path.append(name)
        for target in sorted(edges.get(name, ())):
            visit(target)
        path.pop()
        done.add(name)

    for name in sorted(edges):
        visit(name)


@pytest.mark.parametrize("name", sorted(MODULES))
def test_only_the_library_is_imported(name):
    library = set(getattr(sys, "stdlib_module_names", ())) or None
    for one in read_imports(name):
        top = one.target.split(".")[0]
        assert top not in REMOVED, "%s:%d %s" % one
        assert top == "rlrun" or library is None or top in library, "%s:%d %s" % one


@pytest.mark.parametrize("name", sorted(MODULES))
def test_only_child_runs_programs(name):
    path = str(MODULES[name].relative_to(ROOT))
    found = ["%s:%d import %s" % one for one in read_imports(name) if one.target.split(".")[0] in PROCESS_MODULES]
    if path != "rlrun/child.py":
        assert not found
    calls = []
    for node in ast.walk(read_tree(MODULES[name])):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if PROCESS_CALLS.match("%s.%s" % (node.value.id, node.attr)):
                calls.append("%s:%d %s.%s" % (path, node.lineno, node.value.id, node.attr))
        if isinstance(node, ast.ImportFrom) and node.module == "os":
            calls.extend("%s:%d os.%s" % (path, node.lineno, alias.name) for alias in node.names
                         if PROCESS_CALLS.match("os." + alias.name))
    assert path in MAY_START or not calls


@pytest.mark.parametrize("name", sorted(MODULES))
def test_imports_by_name_only_from_the_tables(name):
    path = str(MODULES[name].relative_to(ROOT))
    text = MODULES[name].read_text(encoding="utf-8")
    assert path in MAY_IMPORT_BY_NAME or not re.search(r"import_module|__import__|\bexec\(|\beval\(", text)


def test_no_training_system_is_known_outside_stacks():
    found = []
    for path in sorted(PACKAGE.rglob("*")):
        shown = str(path.relative_to(ROOT))
        if path.suffix not in (".py", ".txt") or shown.startswith("rlrun/stacks/") or shown in MAY_NAME_SYSTEMS:
            continue
        lines = read_code(path) if path.suffix == ".py" else enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        found.extend("%s:%d %s" % (shown, number, text.strip()[:100]) for number, text in lines if FOREIGN_WORDS.search(text))
    assert not found, "\n".join(found)


def test_exceptions_are_still_needed():
    for path in list(MAY_START) + list(MAY_IMPORT_BY_NAME):
        assert (ROOT / path).is_file(), "%s is gone: take it off the list" % path


def test_every_file_opens_with_what_it_owns_and_stays_short():
    for path in MODULES.values():
        assert ast.get_docstring(read_tree(path)), path
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 400, path
