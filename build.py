#!/usr/bin/env python3
"""Builds dist/rlrun.pyz, the one file that ships: the same bytes from the same commit, on any Python from 3.8.

Comments, docstrings and wide indentation stay here: every start reads and compiles what the archive holds. Line numbers
stay the same.

Takes from the checkout what git tracks or would track; runs nothing but git. `python3 build.py [TARGET]`.
"""
import ast
import bz2
import hashlib
import io
import json
import os
import stat
import subprocess
import sys
import tokenize
import zipfile
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

ROOT = os.path.dirname(os.path.abspath(__file__))
SHEBANG = b"#!/usr/bin/env python3\n"
# Each toy checkout goes in whole, as one file. bzip2: its output is the same from every build of it, which zlib's is not.
DEMOS = {"lego": "tests/checkouts/lego/", "prime": "tests/checkouts/prime/"}
FIXED_DATE = (1980, 1, 1, 0, 0, 0)
FIXED_MODE = stat.S_IFREG | 0o644
UNIX = 3
ZIP_VERSION = 20
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def run_git(*arguments: str) -> Optional[bytes]:
    """Takes arguments of git; gives what it printed, or None where it failed or is absent."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}  # say, in a hook
    try:
        done = subprocess.run(["git", "--no-optional-locks", "-C", ROOT, *arguments], env=environ,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def is_repository() -> bool:
    """Whether this folder is the top of a git checkout; a source archive unpacked inside another one is not."""
    top = run_git("rev-parse", "--show-toplevel")
    return top is not None and os.path.realpath(os.fsdecode(top.rstrip(b"\n"))) == os.path.realpath(ROOT)


def list_sources(*folders: str) -> List[str]:
    """Takes folders of the checkout; gives the sorted relative paths of their files, without what git ignores."""
    found = None
    if is_repository():
        found = run_git("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *folders)
    if found is not None:
        paths = {os.fsdecode(path) for path in found.split(b"\0") if path}
    else:
        paths = set()
        for folder in folders:
            for where, names, files in os.walk(os.path.join(ROOT, folder)):
                names[:] = [name for name in names if name != "__pycache__"]
                paths.update(os.path.relpath(os.path.join(where, name), ROOT) for name in files)
    return sorted(path for path in paths if os.path.isfile(os.path.join(ROOT, path)))


def read_commit() -> str:
    """The commit that this is built from, `+dirty` where tracked files differ from it or shipped ones are not in it."""
    given = os.environ.get("SOURCE_COMMIT")
    if given:
        return given
    head = run_git("rev-parse", "HEAD") if is_repository() else None
    if head is None:
        return "unknown"
    changed = run_git("status", "--porcelain", "--untracked-files=no")
    added = run_git("ls-files", "--others", "--exclude-standard", "--", "rlrun", *DEMOS.values())
    return head.decode("ascii").strip() + ("+dirty" if changed or added else "")


def read_source(path: str) -> bytes:
    """The bytes of a file of the checkout."""
    with open(os.path.join(ROOT, path), "rb") as source:
        return source.read()


def strip_source(source: bytes, name: str, keeps_docstrings: bool = False) -> bytes:
    """A module without comments and docstrings, one space a level, each line of code where it was. Raises ValueError where
    it would mean another."""
    lines = source.split(b"\n")
    tree = ast.parse(source, name)
    for statement, is_alone in [] if keeps_docstrings else list(find_docstrings(tree)):
        first, last = statement.lineno - 1, statement.end_lineno - 1
        before, after = lines[first][:statement.col_offset], lines[last][statement.end_col_offset:].strip()
        if before.strip() or (after and not after.startswith(b"#")):
            continue  # it shares its line with code
        lines[first:last + 1] = [before + b"pass" if is_alone else b""] + [b""] * (last - first)
    stripped = "\n".join(shrink_lines(b"\n".join(lines))).encode("utf-8")
    if describe_code(source, keeps_docstrings) != describe_code(stripped, keeps_docstrings):
        raise ValueError("%s would change its meaning without comments and docstrings" % name)
    return stripped


def shrink_lines(source: bytes) -> List[str]:
    """The lines of a module without comments, each indented by one space a level, or none within brackets."""
    lines = source.decode("utf-8").split("\n")
    starts: Dict[int, int] = {}
    in_string: Set[int] = set()
    depth, is_start = 0, True
    for token in tokenize.tokenize(io.BytesIO(source).readline):
        row, column = token.start
        if token.type == tokenize.COMMENT:
            lines[row - 1] = lines[row - 1][:column].rstrip()
        elif token.type in (tokenize.INDENT, tokenize.DEDENT):
            depth += 1 if token.type == tokenize.INDENT else -1
        elif token.type == tokenize.NEWLINE:
            is_start = True
        elif token.type not in (tokenize.NL, tokenize.ENCODING):
            if is_start:
                starts[row] = depth
            is_start = False
            in_string.update(range(row + 1, token.end[0] + 1))
    return [line if row in in_string else " " * starts.get(row, 0) + line.lstrip(" ") for row, line in enumerate(lines, 1)]


def find_docstrings(tree: ast.AST) -> Iterator[Tuple[Any, bool]]:
    """The docstrings of a module, its classes and functions, each with whether nothing else is in that body."""
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            yield node.body[0], len(node.body) == 1 and not isinstance(node, ast.Module)


def describe_code(source: bytes, keeps_docstrings: bool) -> List[Any]:
    """What a module does and on which line, for a comparison: its syntax tree laid flat, without docstrings."""
    found: List[Any] = []
    left: List[Any] = [ast.parse(source)]
    while left:
        node = left.pop()
        if isinstance(node, list):
            found.append(len(node))
            left.extend(node)
        elif isinstance(node, ast.AST):
            if not keeps_docstrings and isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
                del node.body[0]
                if not node.body and not isinstance(node, ast.Module):
                    node.body.append(ast.Pass())
            found.append((type(node), 0 if isinstance(node, ast.Pass) else getattr(node, "lineno", 0)))
            left.extend([getattr(node, name, None) for name in node._fields])
        else:
            found.append(repr(node))  # 1, 1.0 and True are equal, and not the same
    return found


def collect_entries() -> Dict[str, bytes]:
    """All that goes into the archive, by name."""
    entries = {path: read_source(path) for path in list_sources("rlrun") if path.endswith((".py", ".txt"))}
    for path in entries:
        if path.endswith(".py"):  # the door says what it is also where nothing but the archive is at hand
            entries[path] = strip_source(entries[path], path, keeps_docstrings=path == "rlrun/__main__.py")
    entries["__main__.py"] = entries["rlrun/__main__.py"]
    for name, folder in DEMOS.items():
        entries["rlrun/demo_%s" % name] = pack_tree(folder)
    entries["rlrun/BUILD"] = read_commit().encode("utf-8") + b"\n"
    return entries


def pack_tree(folder: str) -> bytes:
    """All files of a folder of text files, as {path: [is it a program, text]}, compressed."""
    tree = {path[len(folder):]: [bool(os.stat(os.path.join(ROOT, path)).st_mode & stat.S_IXUSR),
                                 read_source(path).decode("utf-8")] for path in list_sources(folder)}
    return bz2.compress(json.dumps(tree, sort_keys=True).encode("ascii"))


def write_archive(target: str, entries: Dict[str, bytes]) -> None:
    """Writes the archive; nothing in it depends on when, where and by whom. Stored: zlib's output differs by build."""
    with open(target, "wb") as out:
        out.write(SHEBANG)
        with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
            for name in sorted(entries):
                info = zipfile.ZipInfo(name, FIXED_DATE)
                info.create_system = UNIX
                info.create_version = info.extract_version = ZIP_VERSION
                info.external_attr = FIXED_MODE << 16
                archive.writestr(info, entries[name])
    os.chmod(target, 0o755)


def main() -> int:
    """Builds, and prints path, size and sha256."""
    target = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else os.path.join(ROOT, "dist", "rlrun.pyz")
    os.makedirs(os.path.dirname(target), exist_ok=True)
    # A running rlrun.pyz must go on reading the old file, so the new one takes its place whole.
    temporary = "%s.%d.new" % (target, os.getpid())
    try:
        write_archive(temporary, collect_entries())
        os.replace(temporary, target)
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)
    with open(target, "rb") as built:
        content = built.read()
    print("%s  %d bytes  sha256 %s" % (target, len(content), hashlib.sha256(content).hexdigest()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
