"""Enough of YAML for the toy's configs: block mappings and lists, scalars, JSON in one line, comments of whole lines."""
import json
import re

# "name: value"
_PAIR = re.compile(r"([^\s:\"'\[{][^:]*):(?:\s+(.*))?$")


class YAMLError(ValueError):
    pass


def safe_load(text):
    text = text.decode("utf-8") if isinstance(text, bytes) else text
    lines = [(len(line) - len(line.lstrip()), line.strip()) for line in text.splitlines()
             if line.strip() and not line.lstrip().startswith(("#", "---"))]
    value = _read(lines, lines[0][0]) if lines else {}
    if lines:
        raise YAMLError("bad indentation: %s" % lines[0][1])
    return value


def _read(lines, indent):
    value = None
    while lines and lines[0][0] == indent:
        words = lines.pop(0)[1]
        if words.startswith("- "):
            value = value or []
            lines.insert(0, (indent + 2, words[2:].strip()))
            value.append(_read(lines, indent + 2) if _PAIR.match(lines[0][1]) else _scalar(lines.pop(0)[1]))
            continue
        match = _PAIR.match(words)
        if not match:
            raise YAMLError("could not find expected ':' in %s" % words)
        value = value or {}
        is_nested = match.group(2) is None and lines and (lines[0][0] > indent or lines[0] == (indent, "- "))
        value[match.group(1)] = _read(lines, lines[0][0]) if is_nested else _scalar(match.group(2))
    return value


def _scalar(word):
    try:
        return json.loads(word or "null")
    except ValueError:
        return word.strip("'")
