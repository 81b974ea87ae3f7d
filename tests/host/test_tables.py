"""Config files as tables: this Python's tomllib, real interpreters for the rest, fake ones for the faults."""
import json
import math
import os
import sys

import pytest

from rlrun.host import tables
from rlrun.host.tables import Table

HAS_TOMLLIB = sys.version_info >= (3, 11)
# Stands for the yaml of a checkout: what its safe_load gives is what a JSON file would.
FAKE_YAML = """
import json
class Mark: line, column = 2, 4
class YAMLError(Exception): problem, problem_mark = "found character '%%' that\\n cannot start any token", Mark
def safe_load(text):
    if "broken" in text: raise YAMLError
    if "strange" in text: return {"set": {1}, 2: None, "same": [[1]] * 3}
    if "endless" in text:
        held = {}
        held["held"] = held
        return held
    if "laughs" in text:
        held = ["ha"] * 10
        for _ in range(9): held = [held] * 10
        return {"laughs": held}
    if "crash" in text: __import__("os").abort()
    return json.loads(text)
"""
FAKE_TOMLI = "import json\ndef loads(text): return dict(json.loads(text), parser='tomli')\n"


def make(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    return str(path)


def make_program(path, body):
    make(path, "#!/bin/sh\n" + body)
    path.chmod(0o755)
    return str(path)


def make_python(tmp_path, modules):
    """An interpreter with these modules and no tomllib of its own: a wrapper, as a venv may be one."""
    for name, text in modules.items():
        make(tmp_path / "lib" / (name + ".py"), text)
    make(tmp_path / "lib" / "tomllib.py", modules.get("tomllib", "raise ImportError"))
    return make_program(tmp_path / "bin" / "python", 'PYTHONPATH=%s exec %s "$@"\n' % (tmp_path / "lib", sys.executable))


def read_one(path, python="", **options):
    return tables.read_tables([path], python, **options)[path]


@pytest.fixture
def no_tomllib(monkeypatch):
    monkeypatch.setattr(tables, "_find_tomllib", lambda: None)


@pytest.mark.skipif(not HAS_TOMLLIB, reason="no tomllib in this Python")
def test_toml_by_this_python(tmp_path):
    path = make(tmp_path / "a.toml", 'max_steps = 20\r\nwhen = 2026-08-01T10:00:00Z\nlr = inf\n[model]\nname = "Qwé"\n'
                                     '[[source]]\nid = 1\n')
    assert read_one(path) == Table({"max_steps": 20, "when": "2026-08-01 10:00:00+00:00", "lr": math.inf,
                                    "model": {"name": "Qwé"}, "source": [{"id": 1}]}, "", False)


@pytest.mark.skipif(not HAS_TOMLLIB, reason="no tomllib in this Python")
@pytest.mark.parametrize("text, error", [
    ("a = 1\n\nbc = @", "Invalid value (at line 3, column 6)"), ("a = " + "[" * 5000 + "]" * 5000, "nested too deeply"),
    (".".join("a" * 150) + " = 1", "nested more than 100 deep"), (b"a = '\xff'", "not UTF-8")])
def test_bad_toml(tmp_path, text, error):
    assert read_one(make(tmp_path / "a.toml", text)) == Table(None, error, "nested" in error)


def test_json(tmp_path):
    path = make(tmp_path / "a.json", '{"a": [1, 2.5, null, true, "x"], "b": {"c": NaN}}')
    data, error, is_unparsed = read_one(path)
    assert data and math.isnan(data["b"].pop("c")) and data == {"a": [1, 2.5, None, True, "x"], "b": {}}
    assert not error and not is_unparsed


@pytest.mark.parametrize("text, error", [
    ("{1}", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"), ("[1]", "no table at its top"),
    ("null", "no table at its top"), ('{"a": ' + "[" * 150 + "]" * 150 + "}", "nested more than 100 deep"),
    (b'{"a": "\xfc"}', "not UTF-8")])
def test_bad_json(tmp_path, text, error):
    assert read_one(make(tmp_path / "a.json", text)) == Table(None, error, "nested" in error)


def test_nesting_without_end_is_an_error_of_the_file(tmp_path):
    table = read_one(make(tmp_path / "a.json", '{"a":' * 100000))
    assert table.data is None and "nested" in table.error and table.is_unparsed


def test_values_that_could_not_be_printed_are_made_printable(tmp_path):
    data = read_one(make(tmp_path / "a.json", '{"a\\ud800": "\\udc00", "n": %s, "ok": -12}' % ("9" * 5000))).data
    assert data == {"a?": "?", "n": "9" * 5000, "ok": -12}
    json.dumps(data, ensure_ascii=False).encode("utf-8")


@pytest.mark.skipif(not HAS_TOMLLIB, reason="no tomllib in this Python")
def test_an_integer_too_long_to_print_becomes_words(tmp_path):
    assert read_one(make(tmp_path / "a.toml", "n = 0x" + "f" * 5000)).data == {"n": "0x" + "f" * 5000}


def test_what_is_no_file_is_not_read(tmp_path):
    os.mkfifo(str(tmp_path / "pipe.toml"))
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "loop.toml").symlink_to(tmp_path / "loop.toml")
    make(tmp_path / "large.json", b" " * (tables.MAX_FILE_BYTES + 1))
    make(tmp_path / "a.env", "A=1")
    asked = [str(tmp_path / name) for name in ("pipe.toml", "folder.json", "none.toml", "loop.toml", "large.json", "a.env")]
    found = tables.read_tables(asked)
    assert [table.error for table in found.values()] == [
        "not a regular file", "not a regular file", "can't be read: No such file or directory",
        "can't be read: Too many levels of symbolic links", "more than 1 MiB", "not a .toml, .json, .yaml or .yml file"]
    assert not any(table.data for table in found.values())
    assert [os.path.basename(path) for path, table in found.items() if table.is_unparsed] == ["large.json"]
    assert read_one("a\0b.toml").error.startswith("can't be read: ")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path):
    path = make(tmp_path / "a.json", "{}")
    os.chmod(path, 0)
    assert read_one(path).error == "can't be read: Permission denied"


def test_the_largest_file_is_read(tmp_path):
    text = '{"a": "%s"}' % ("x" * (tables.MAX_FILE_BYTES - 9))
    assert read_one(make(tmp_path / "a.json", text)).data


def test_keys_are_the_paths_as_given_and_in_order(tmp_path, monkeypatch):
    make(tmp_path / "b.json", "{}")
    make(tmp_path / "a.json", "{}")
    monkeypatch.chdir(str(tmp_path))
    assert list(tables.read_tables(["b.json", "./a.json", "b.json"])) == ["b.json", "./a.json"]
    assert tables.read_tables([]) == {}


def test_without_a_parser_the_file_is_not_said_to_be_bad(tmp_path, no_tomllib):
    found = tables.read_tables([make(tmp_path / "a.toml", "a = 1"), make(tmp_path / "b.yml", "a: 1")])
    version = "Python %d.%d has none, and no other interpreter was found" % sys.version_info[:2]
    assert list(found.values()) == [Table(None, "no TOML parser: " + version, True),
                                    Table(None, "no YAML parser: " + version, True)]


@pytest.mark.skipif(not HAS_TOMLLIB, reason="no tomllib in this Python")
def test_toml_by_another_python(tmp_path, no_tomllib):
    paths = [make(tmp_path / "a.toml", "when = 2026-08-01\nlr = nan\n"), make(tmp_path / "b.toml", "a = @"),
             make(tmp_path / "c.toml", "a = " + "[" * 5000)]
    good, bad, deep = tables.read_tables(paths, sys.executable).values()
    assert good.data and good.data["when"] == "2026-08-01" and math.isnan(good.data["lr"])
    assert bad == Table(None, "Invalid value (at line 1, column 5)", False)
    assert deep == Table(None, "nested too deeply", True)


def test_toml_by_tomli(tmp_path, no_tomllib):
    python = make_python(tmp_path, {"tomli": FAKE_TOMLI})
    assert read_one(make(tmp_path / "a.toml", '{"a": 1}'), python).data == {"a": 1, "parser": "tomli"}


def test_an_interpreter_without_a_parser(tmp_path, no_tomllib):
    python = make_python(tmp_path, {"tomli": "raise ImportError", "yaml": "raise RuntimeError"})
    found = tables.read_tables([make(tmp_path / "a.toml", ""), make(tmp_path / "b.yaml", "a: 1")], python)
    assert list(found.values()) == [Table(None, "no TOML parser in %s (tomllib, tomli)" % python, True),
                                    Table(None, "no YAML parser in %s (yaml)" % python, True)]


def test_yaml(tmp_path):
    python = make_python(tmp_path, {"yaml": FAKE_YAML})
    paths = [make(tmp_path / (name + ".yaml"), text) for name, text in (
        ("good", '{"a": ["é", 1]}'), ("broken", "broken"), ("strange", "strange"), ("endless", "endless"),
        ("laughs", "laughs"), ("empty", "null"), ("big", '{"a": "%s"}' % ("\u00e9" * 100000)))]
    good, broken, strange, endless, laughs, empty, big = tables.read_tables(paths, python).values()
    assert good.data == {"a": ["é", 1]}
    assert broken == Table(None, "found character '%%' that cannot start any token (at line 3, column 5)", False)
    assert strange.data == {"set": "{1}", "2": None, "same": [[1]] * 3}
    assert endless == Table(None, "Circular reference detected", False)
    assert laughs == Table(None, "its references make it too large", False)
    assert empty == Table(None, "no table at its top", False)
    assert big.data == {"a": "\u00e9" * 100000}


def test_a_parser_that_crashes_takes_no_other_answer_away(tmp_path):
    python = make_python(tmp_path, {"yaml": FAKE_YAML})
    paths = [make(tmp_path / "a.yaml", '{"a": 1}'), make(tmp_path / "b.yaml", "crash")]
    good, crashed = tables.read_tables(paths, python).values()
    assert good.data == {"a": 1}
    assert crashed == Table(None, "%s gave no answer: killed by SIGABRT" % python, True)


@pytest.mark.parametrize("body, how", [
    ("exit 3\n", "ended 3"), ("echo '@@rlrun-tables@@ [0, \"table\", {'\n", "ended 0"), ("kill -9 $$\n", "killed by SIGKILL"),
    ("echo '@@rlrun-tables@@ [\"x\", 1, 2]'; echo '@@rlrun-tables@@ 5'\n", "ended 0"), (None, "could not start"),
    ("exec sleep 100\n", "no end within 0 s")])
def test_an_interpreter_that_does_not_answer(tmp_path, body, how):
    python = make_program(tmp_path / "python", body) if body else str(tmp_path / "none")
    table = read_one(make(tmp_path / "a.yaml", "a: 1"), python, timeout_seconds=0.2 if body and "sleep" in body else 60)
    assert table.data is None and table.is_unparsed and table.error.startswith("%s gave no answer: %s" % (python, how))


def test_no_path_is_in_the_command_line(tmp_path):
    """A runner's sweep kills by `vllm` in anybody's command line."""
    python = make_program(tmp_path / "python", "tr '\\0' ' ' </proc/$$/cmdline >%s\n" % (tmp_path / "seen"))
    read_one(make(tmp_path / "vllm.yaml", ""), python)
    assert "-B" in (tmp_path / "seen").read_text() and "vllm" not in (tmp_path / "seen").read_text()


def test_E5_modules_in_the_working_directory_are_not_imported(tmp_path, monkeypatch):
    python = make_python(tmp_path, {"yaml": FAKE_YAML})
    for name in ("json", "yaml", "tomllib", "tomli", "datetime", "encodings"):
        make(tmp_path / "cwd" / (name + ".py"), "raise SystemExit('imported')")
    monkeypatch.chdir(str(tmp_path / "cwd"))
    make(tmp_path / "cwd" / "a.yaml", '{"a": 1}')
    assert read_one("a.yaml", python).data == {"a": 1}


def test_reading_leaves_no_compiled_file_behind(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    python = make_python(tmp_path, {"yaml": FAKE_YAML})
    assert read_one(make(tmp_path / "a.yaml", "{}"), python).data == {}
    assert sorted(os.listdir(str(tmp_path / "lib"))) == ["tomllib.py", "yaml.py"]


def test_paths_that_are_not_ascii_or_not_even_text(tmp_path, monkeypatch):
    monkeypatch.setenv("LC_ALL", "C")
    python = make_python(tmp_path, {"yaml": FAKE_YAML})
    paths = [make(tmp_path / "prüfung.yaml", "{}"), make(tmp_path / "a\udcff.yaml", "{}"), make(tmp_path / "a\nb '\".yaml", "{}")]
    assert [table.data for table in tables.read_tables(paths, python).values()] == [{}, {}, {}]


def test_more_files_than_one_environment_holds(tmp_path):
    python = make_python(tmp_path, {"yaml": FAKE_YAML})
    paths = [make(tmp_path / ("%0200d.yaml" % number), '{"n": %d}' % number) for number in range(700)]
    assert [table.data for table in tables.read_tables(paths, python).values()] == [{"n": n} for n in range(700)]


def test_merge():
    low = {"a": {"x": 1, "y": [1, 2]}, "b": 1, "c": {"d": 1}}
    high = {"a": {"y": [3], "z": {"q": 1}}, "b": {"now": "a table"}, "c": None}
    assert tables.merge([low, high]) == {"a": {"x": 1, "y": [3], "z": {"q": 1}}, "b": {"now": "a table"}, "c": None}
    assert tables.merge([]) == {} and tables.merge([high]) == high


def test_merge_leaves_what_it_was_given():
    low = {"a": {"x": {"y": 1}}}
    merged = tables.merge([low, {"a": {"x": {"y": 2}}}])
    merged["a"]["x"]["z"] = 3
    assert low == {"a": {"x": {"y": 1}}}
    tables.merge([low])["a"]["new"] = 1
    assert low == {"a": {"x": {"y": 1}}}


@pytest.mark.parametrize("names, expected", [
    (("a", "b"), 1), (("a",), {"b": 1, "none": None}), (("a", "none"), None), (("a", "c"), "-"), (("a", "b", "c"), "-"),
    (("s", "x"), "-"), (("l", "0"), "-"), ((), {"a": {"b": 1, "none": None}, "s": "xyz", "l": [1]})])
def test_dig(names, expected):
    assert tables.dig({"a": {"b": 1, "none": None}, "s": "xyz", "l": [1]}, *names, default="-") == expected


def test_dig_in_what_is_no_table():
    assert tables.dig(None, "a") is None and tables.dig([1], "a", default=0) == 0
