"""prime-rl: its configs before the runner has seen them. What kind they are, what packages they need, where they point.

Only what must be known ahead of the dry run is read here; every value that a report shows comes from the runner. Files
are read by real parsers (host/tables.py). Source: pydantic-config's command line, prime-rl's docs (August 2026).
"""
import glob
import json
import os
import re
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from ..errors import USAGE, OperatorError
from ..host import tables
from ..text import redact
from ..text.secret_names import is_secret_name
from ..values import Config, Request

KINDS = ("rl", "sft", "inference", "evals")
ENDS = (".toml", ".yaml", ".yml", ".json")
_FOLDERS = ("examples", "configs")
# A word of a file's name that tells a kind: rl.toml, slim_sft.toml, infer.toml
_NAMES = {"rl": "rl", "sft": "sft", "infer": "inference", "inference": "inference", "eval": "evals", "evals": "evals"}
_WORDS = re.compile(r"[^a-z0-9]+")
# What a module of a taskset is looked for under before its own name (verifiers/v1/utils/loaders.py)
_BUILT_IN = "verifiers/v1/tasksets"
_LOCAL = ("deps/prime-envs/environments", "deps/verifiers/environments")
# Options that a check must not hand to the runner: what they name is deleted, or written to, by a dry run too.
UNSAFE = ("clean", "resume", "output_dir", "run.name", "run.dir", "ckpt.output_dir", "dry_run")
_MAX_CONFIGS = 2000
_MAX_PARTS = 50
# Words of a command line that are no text (pydantic_config/cli.py)
_LITERALS = {"None": None, "true": True, "True": True, "false": False, "False": False}


class Raw(NamedTuple):
    """The configs as they are written, merged from left to right, overrides on top as far as their names are looked up."""

    data: Dict[str, Any]
    options: Dict[str, Any]  # overrides by dotted name in snake case: text, True, False, or ["@", path]
    sources: Tuple[str, ...]  # all files, absolute
    error: str  # why a file could not be read, in its parser's words; the runner says it in its own
    is_unparsed: bool  # there was no parser for one of them


def find_python(root: str, environ: Dict[str, str]) -> str:
    """The interpreter of the checkout's environment, whether it is there or not."""
    return os.path.join(find_venv(root, environ), "bin", "python")


def find_venv(root: str, environ: Dict[str, str]) -> str:
    """The checkout's environment: uv's own rule."""
    return os.path.normpath(os.path.join(root, environ.get("UV_PROJECT_ENVIRONMENT") or ".venv"))


def read_raw(request: Request, python: str) -> Raw:
    """Reads all that the request names. `python`: the checkout's, for what this Python can't parse."""
    root = request.checkout.root
    options, further = read_options(request.overrides)
    paths = [config.path for config in (request.config,) + request.more] + [os.path.join(root, path) for path in further]
    nested = {name: os.path.normpath(os.path.join(root, value[1])) for name, value in options.items()
              if isinstance(value, list) and value[:1] == ["@"] and len(value) > 1}
    found = tables.read_tables(paths + sorted(nested.values()), python)
    data = tables.merge([found[path].data or {} for path in paths])
    for name, path in nested.items():
        data = tables.merge([data, _nest(name, found[path].data or {})])
    for name, value in options.items():
        is_bare_table = value is True and isinstance(tables.dig(data, *name.split(".")), dict)  # --ckpt takes nothing from [ckpt]
        if not isinstance(value, list) and not is_bare_table:
            data = tables.merge([data, _nest(name, _read_value(value))])
    data = _read_nulls(data)
    bad = [(path, found[path]) for path in paths + sorted(nested.values()) if found[path].error]
    words = "; ".join("%s: %s" % (path, one.error) for path, one in bad)
    return Raw(data, options, tuple(paths + sorted(nested.values())), words,
               any(one.is_unparsed for _, one in bad))


def _read_nulls(value: Any) -> Any:
    """TOML has no null, so prime-rl takes the word "None" for it, wherever it stands."""
    if isinstance(value, dict):
        return {name: _read_nulls(one) for name, one in value.items()}
    return None if value == "None" else value


def find_secrets(*data: Any) -> Tuple[str, ...]:
    """The texts that stand under a secret's name anywhere in these tables, and in lists and tables below such a name."""
    found: Dict[str, str] = {}
    waiting = [(one, False) for one in data]
    while waiting:
        value, is_secret = waiting.pop()
        if isinstance(value, dict):
            waiting += [(one, is_secret or is_secret_name(str(name).replace("-", "_"))) for name, one in value.items()]
        elif isinstance(value, list):
            waiting += [(one, is_secret) for one in value]
        elif is_secret and isinstance(value, str):
            for text in [value] + value.split():  # of an option that takes several
                found["SECRET_%d" % len(found)] = text
    return redact.find_secrets(found)


def _read_value(value: Any) -> Any:
    """An override's value, as far as it matters here: a literal, or a table or list in JSON (`--run '{"dir": "x"}'`)."""
    if not isinstance(value, str) or value[:1] not in ("{", "["):
        return _LITERALS.get(value, value)
    try:
        return json.loads(value)
    except (ValueError, RecursionError):  # the runner says so in its own words
        return value


def _nest(name: str, value: Any) -> Dict[str, Any]:
    for part in reversed(name.split(".")):
        value = {part: value}
    return dict(value)


def read_options(words: Sequence[str]) -> Tuple[Dict[str, Any], Tuple[str, ...]]:
    """(options by dotted snake-case name, paths of further `@ files`) of the words after `--`. The last one counts; of a name
    that is given bare, or without a value, the value is True, of `--no-name` False."""
    options: Dict[str, Any] = {}
    further: List[str] = []
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        if not word.startswith("--"):
            if word.startswith("@"):
                path = word[1:] or (words[place] if place < len(words) else "")
                place += 0 if word[1:] else 1
                further += [path] if path else []
            continue
        name, equals, value = word[2:].partition("=")
        values = [value] if equals else []
        while not equals and place < len(words) and not words[place].startswith("--") and (words[place] != "@" or not values):
            values.append(words[place])
            place += 1
        name = name.replace("-", "_")
        if name.count(".") > _MAX_PARTS:
            raise OperatorError("an option with more than %d dots: --%s…" % (_MAX_PARTS, name[:60]), "", USAGE, "overrides")
        if values and values[0].startswith("@"):
            options[name] = ["@", values[0][1:] or (values[1] if len(values) > 1 else "")]
        elif values:
            options[name] = values[0] if len(values) == 1 else " ".join(values)
        elif re.match(r"(.*\.)?no_", name):
            options[re.sub(r"(^|\.)no_", r"\1", name, count=1)] = False
        else:
            options[name] = True
    return options, tuple(further)


def strip_options(words: Sequence[str], names: Sequence[str]) -> Tuple[str, ...]:
    """The words without these options (dotted, snake case), their values, their negations, and what is below them. An `@ file`
    that belongs to no option comes first: behind a bare one it would become its table."""
    kept: List[str] = []
    files: List[str] = []
    is_dropped = False
    place = 0
    while place < len(words):
        word = words[place]
        if word == "@" and not (place and words[place - 1].startswith("--")):
            files += words[place:place + 2]
            is_dropped = False
            place += 2
            continue
        if word.startswith("--"):
            name = word[2:].partition("=")[0].replace("-", "_")
            plain = re.sub(r"(^|\.)no_", r"\1", name, count=1)
            is_dropped = any(one in names or one.startswith(tuple(other + "." for other in names)) for one in (name, plain))
        if not is_dropped:
            kept.append(word)
        place += 1
    return tuple(files + kept)


def tell_kinds(data: Dict[str, Any], path: str) -> Tuple[str, ...]:
    """The kinds that a config speaks of: by what it sets, else by its name. Empty where neither tells."""
    kinds = []
    if "orchestrator" in data or "trainer" in data:
        kinds.append("rl")
    elif "data" in data:
        kinds.append("sft")
    if "vllm" in data or "server" in data:
        kinds.append("inference")
    if "eval" in data and isinstance(data.get("model"), str):
        kinds.append("evals")
    by_name = tell_name(path)
    if kinds == ["sft"] and by_name == "rl":  # fake data of an rl run looks the same
        return ("rl", "sft")
    return tuple(kinds) or ((by_name,) if by_name else ())


def tell_name(path: str) -> str:
    """The kind that a file's name tells, "" where it tells none or two."""
    words = _WORDS.split(os.path.splitext(os.path.basename(path))[0].lower())
    kinds = {_NAMES[word] for word in words if word in _NAMES}
    return kinds.pop() if len(kinds) == 1 else ""


def list_configs(root: str, python: str) -> List[Config]:
    """The files under examples/ and configs/ that may be configs, folder by folder; the kind is "" where it can't be told."""
    paths = []
    for folder in _FOLDERS:
        for where, names, files in os.walk(os.path.join(root, folder)):
            names[:] = sorted(name for name in names if not name.startswith("."))
            paths += [os.path.join(where, name) for name in sorted(files) if name.endswith(ENDS) and not name.startswith(".")]
    found = tables.read_tables([path for path in paths[:_MAX_CONFIGS] if path.endswith(".toml")], python)
    configs = []
    for path in paths[:_MAX_CONFIGS]:
        table = found.get(path)
        kinds = tell_kinds((table.data if table else None) or {}, path)
        kind = kinds[0] if len(kinds) == 1 else tell_name(path) or (kinds[0] if kinds else "")
        configs.append(Config(path, os.path.relpath(path, root), kind))
    return configs


def list_environments(data: Dict[str, Any]) -> Tuple[str, ...]:
    """The taskset ids of all train and eval sources, each once, in order."""
    sources: List[Any] = []
    for place in (("orchestrator", "train"), ("orchestrator", "eval"), ("eval",)):
        found = tables.dig(data, *(place + ("source",)), default=[])
        sources += found if isinstance(found, list) else []
    ids = [tables.dig(source, "env", "taskset", "id", default="") for source in sources]
    return tuple(dict.fromkeys(one for one in ids if isinstance(one, str) and one))


def name_module(taskset: str) -> str:
    """The module that a taskset is imported as: `owner/Reverse-Text@1` is reverse_text (verifiers/v1/utils/loaders.py)."""
    return taskset.rsplit("/", 1)[-1].split("@", 1)[0].replace("-", "_").lower()


def is_built_in(root: str, venv: str, module: str) -> bool:
    """Does the taskset ship with verifiers?"""
    places = [os.path.join(glob.escape(venv), "lib*", "python*", "site-packages"),
              os.path.join(glob.escape(root), "deps", "verifiers")]
    return any(glob.glob(os.path.join(place, _BUILT_IN, name)) for place in places for name in (module, module + ".py"))


def describe_install(root: str, taskset: str) -> str:
    """What to do about an environment whose package is missing; names the local folder where there is one."""
    name = taskset.rsplit("/", 1)[-1].split("@", 1)[0]
    for folder in _LOCAL:
        for one in dict.fromkeys((name, name.replace("-", "_"), name.replace("_", "-"))):
            if os.path.isdir(os.path.join(root, folder, one)):
                return "It lies in %s/%s: uv sync --all-extras --package prime-rl --package %s" % (folder, one, one)
    return "Install its package: uv sync --all-extras --package prime-rl --package %s (or `uv pip install` where it is from " \
        "elsewhere); --all-extras keeps the accelerator packages." % name


def make_run_name(kind: str, data: Dict[str, Any], short_id: str) -> str:
    """A name in prime-rl's own pattern, `<envs>--<model>--<short id>` (sft: the dataset's), of what the configs tell."""
    words = []
    if kind == "sft":
        words.append(str(tables.dig(data, "data", "name", default="")).rsplit("/", 1)[-1])
    else:
        sources = tables.dig(data, "orchestrator", "train", "source", default=[])
        names = [source.get("name") or tables.dig(source, "env", "taskset", "id", default="")
                 for source in (sources if isinstance(sources, list) else []) if isinstance(source, dict)]
        words.append("+".join(dict.fromkeys(str(name).rsplit("/", 1)[-1] for name in names if name)) or "no-env")
    model = tables.dig(data, "model", "name", default="") or tables.dig(data, "trainer", "model", "name", default="")
    words.append(str(model).rstrip("/").rsplit("/", 1)[-1])
    name = "--".join(([word for word in words if word] or [kind]) + [short_id]).lower()
    return re.sub(r"[^a-z0-9._+-]+", "-", name)[-200:].lstrip("-.")
