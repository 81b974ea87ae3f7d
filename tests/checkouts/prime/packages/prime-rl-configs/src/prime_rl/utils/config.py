"""Config files and flags merged left to right and checked against a table of fields.

A field is a default value (its type is the field's), a type (required), a table of fields, [such a table] for a list of
them, Opt of any of these, or Union. "*" in a table lets any other key pass.
"""
import copy
import json
import os
import sys

MISSING = object()


class Opt:
    def __init__(self, of, on=False):
        self.of, self.on = of, on


class Need(Opt):
    pass


class Union:
    def __init__(self, default, **kinds):
        self.default, self.kinds = default, {kind: dict(fields, type=kind) for kind, fields in kinds.items()}


class ConfigFileError(Exception):
    pass


class Invalid(Exception):
    """What is wrong with a whole table: its place, the words."""


class BaseConfig:
    """A checked config; its kind is made by FIELDS, prepare (before the check) and finish (after it)."""

    def __init__(self, data):
        self.data = data

    def __getattr__(self, name):
        if name == "data" or name not in self.data:
            raise AttributeError(name)
        value = self.data[name]
        return BaseConfig(value) if isinstance(value, dict) else value

    def model_dump(self, mode="python", exclude=()):
        return copy.deepcopy({name: value for name, value in self.data.items() if name not in exclude})


def join(*parts):
    """A path as pathlib spells it."""
    path = os.path.join(*parts)
    return "/" * path.startswith("/") + "/".join(name for name in path.split("/") if name not in ("", ".")) or "."


def dig(data, path, default=None):
    for name in path.split("."):
        if not isinstance(data, dict) or name not in data:
            return default
        data = data[name]
    return data


def fill(data, path, value):
    """Sets what is not set, below a top-level table that is there."""
    *names, last = path.split(".")
    for place, name in enumerate(names):
        data = data.setdefault(name, {}) if place else data.get(name)
        if not isinstance(data, dict):
            return
    data.setdefault(last, value)


def merge(one, other):
    merged = dict(one)
    for name, value in other.items():
        both = isinstance(value, dict) and isinstance(merged.get(name), dict)
        merged[name] = merge(merged[name], value) if both else value
    return merged


def check(field, value, where, errors):
    """The value as the field wants it, defaults filled in; what is wrong goes to `errors`."""
    if isinstance(field, Opt):
        if value is MISSING:
            if isinstance(field, Need):
                errors.append((where, "Field required", None))
            value = {} if field.on else None
        if value is None or value == "None":
            return None
        field = field.of
    if isinstance(field, Union):
        kind = value.get("type", field.default) if isinstance(value, dict) else field.default
        if kind not in field.kinds:
            errors.append((where, "Input tag %r found using 'type' does not match any of the expected tags: %s" % (
                kind, ", ".join(map(repr, field.kinds))), None))
            return value
        field, where = field.kinds[kind], where + [kind]
    if isinstance(field, dict) and field:
        value = {} if value is MISSING else value
        if not isinstance(value, dict):
            errors.append((where, "Input should be a valid dictionary", value))
            return value
        found = {name: check(inner, value.get(name, MISSING), where + [name], errors)
                 for name, inner in field.items() if name != "*"}
        for name in value:
            if name not in field and "*" not in field:
                errors.append((where + [name], "Extra inputs are not permitted", value[name]))
            found.setdefault(name, value[name])
        return found
    is_list = isinstance(field, list) and field and isinstance(field[0], dict)
    if value is MISSING:
        if isinstance(field, type):
            errors.append((where, "Field required", None))
        return [] if is_list else None if isinstance(field, type) else copy.deepcopy(field)
    if is_list and isinstance(value, list):
        return [check(field[0], held, where + [str(place)], errors) for place, held in enumerate(value)]
    return _convert(field if isinstance(field, type) else type(field), value, where, errors)


def _convert(kind, value, where, errors):
    words = str(value).lower()
    if kind is bool and words in ("true", "false"):
        return words == "true"
    try:
        if kind in (int, float) and (isinstance(value, str) or kind(value) == value):
            return kind(value)
    except (TypeError, ValueError):
        pass
    if isinstance(value, kind):
        return value
    noun = {bool: "boolean", int: "integer", float: "number", str: "string", list: "list", dict: "dictionary"}[kind]
    why = {bool: ", unable to interpret input", int: ", unable to parse string as an integer",
           float: ", unable to parse string as a number"}.get(kind, "") if isinstance(value, str) else ""
    errors.append((where, "Input should be a valid " + noun + why, value))
    return value


def cli(cls, args=None):
    """A config of this class from the command line; what is wrong with it ends the program with a box and status 1."""
    errors = []
    try:
        data = read_words(cls.FIELDS, sys.argv[1:] if args is None else args)
        cls.prepare(data)
        data = check(cls.FIELDS, data, [], errors)
        if not errors:
            cls.finish(data)
            return cls(data)
    except ConfigFileError as error:
        _print_box(str(error))
    except Invalid as error:
        errors.append((list(filter(None, error.args[0].split("."))), "Value error, " + error.args[1], None))
    if errors:
        lines = ["Failed to validate config:", "-", "%d validation error%s for %s" % (
            len(errors), "s" * (len(errors) > 1), cls.__name__)]
        for where, message, value in errors:
            got = "" if value is None or isinstance(value, (dict, list)) else " (got %r)" % (value,)
            lines += ["--" + ".".join(where).replace("_", "-") if where else "<root>", message + got]
        _print_box("\n".join(lines))
    return sys.exit(1)


def read_words(fields, words):
    root, nested, flags, words = {}, {}, {}, list(words)
    while words:
        word = words.pop(0)
        if word == "@":
            if not words:
                raise ConfigFileError("@ must be followed by a config file path")
            root = merge(root, load(words.pop(0)))
            continue
        if not word.startswith("--"):
            raise ConfigFileError("Unrecognized arguments: %s" % word)
        name, equals, value = word[2:].partition("=")
        path = name.replace("-", "_").split(".")
        field, into = find(fields, path), flags
        if field is MISSING and path[0].startswith("no_"):
            path[0] = path[0][3:]
            value = False if isinstance(find(fields, path), bool) else None
        elif equals:
            value = json.loads(value) if value[:1] in ("{", "[") else value
        elif isinstance(field, bool):
            value = True
        elif words and words[0].startswith("@"):
            value, into = load(words.pop(0)[1:] or words.pop(0)), nested
        elif not words or words[0].startswith("--"):
            value = True if field is MISSING else {}
        elif field is list or isinstance(field, list) and not words[0].startswith("["):
            value = []
            while words and not words[0].startswith("--"):
                value.append(words.pop(0))
        else:
            value = words.pop(0)
            value = json.loads(value) if value[:1] in ("{", "[") else value
        for name in path[:-1]:
            into[name] = into = into[name] if isinstance(into.get(name), dict) else {}
        if value != {} or not isinstance(into.get(path[-1]), dict):
            into[path[-1]] = value
    return merge(merge(root, nested), flags)


def find(field, path):
    """The field that a flag names, or MISSING."""
    for name in path:
        field = field.of if isinstance(field, Opt) else field
        tables = field.kinds.values() if isinstance(field, Union) else [field]
        field = next((table[name] for table in tables if isinstance(table, dict) and name in table), MISSING)
    return field.of if isinstance(field, Opt) and not isinstance(field.of, (dict, Union)) else field


def load(path):
    """A config file as a table."""
    kind = "JSON" if path.endswith(".json") else "YAML" if path.endswith((".yaml", ".yml")) else "TOML"
    try:
        with open(path, "rb") as file:
            text = file.read().decode("utf-8")
        if kind == "JSON":
            return json.loads(text)
        if kind == "YAML":
            import yaml
            return yaml.safe_load(text)
        try:
            import tomllib
        except ImportError:
            import tomli as tomllib
        return tomllib.loads(text)
    except FileNotFoundError:
        raise ConfigFileError("Config file not found: %s" % path)
    except ValueError as error:
        raise ConfigFileError("Invalid %s in %s: %s" % (kind, path, error))


def _print_box(text):
    import textwrap
    width = max(40, int(os.environ.get("COLUMNS") or 80))
    rows = [row for line in text.split("\n") for row in (
        ["\u2500" * (width - 4)] if line == "-" else textwrap.wrap(line, width - 4) or [""])]
    lines = ["\u256d\u2500 Config file error " + "\u2500" * (width - 22) + "\u256e"]
    lines += ["\u2502 %s \u2502" % row.ljust(width - 4) for row in rows] + ["\u2570" + "\u2500" * (width - 2) + "\u256f", ""]
    os.write(2, "\n".join(lines).encode("utf-8"))
