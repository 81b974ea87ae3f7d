"""Enough of TOML for the toy's configs, where Python has no tomllib: no dates, no multi-line strings."""
import json
import re

_SPACE = re.compile(r"[ \t]*")
_GAP = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"(?!")|\'[^\'\n]*\'(?!\')')
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"(true|false)|[+-]?(?:(0|[1-9][\d_]*)(?![\d_.eE])|(?:\d[\d_]*(?:\.[\d_]+)?(?:[eE][+-]?\d+)?|inf|nan))")


class TOMLDecodeError(ValueError):
    pass


class _Reader:
    def __init__(self, text):
        self.text, self.at = text.replace("\r\n", "\n"), 0

    def fail(self, words):
        line, column = self.text.count("\n", 0, self.at) + 1, self.at - self.text.rfind("\n", 0, self.at)
        raise TOMLDecodeError("%s (at %s)" % (words, "line %d, column %d" % (line, column)
                                              if self.at < len(self.text) else "end of document"))

    def take(self, pattern):
        match = pattern.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return match

    def sees(self, word):
        found = self.text.startswith(word, self.at)
        self.at += len(word) * found
        return found

    def read_string(self):
        match = self.take(_STRING)
        word = match and match.group()
        return word and (json.loads(word) if word[0] == '"' else word[1:-1])

    def read_key(self):
        names = []
        while not names or self.sees("."):
            self.take(_SPACE)
            name = self.read_string()
            match = None if name is not None else self.take(_BARE)
            if name is None and not match:
                self.fail("Invalid statement")
            names.append(match.group() if match else name)
            self.take(_SPACE)
        return names

    def read_pair(self, table):
        *names, last = self.read_key()
        if not self.sees("="):
            self.fail("Expected '=' after a key in a key/value pair")
        self.take(_SPACE)
        value = self.read_value()
        for name in names:
            table = table.setdefault(name, {})
        if last in table:
            self.fail("Cannot overwrite a value")
        table[last] = value

    def read_value(self):
        text = self.read_string()
        if text is not None:
            return text
        if self.sees("["):
            values = []
            self.read_items("]", _GAP, lambda: values.append(self.read_value()), "Unclosed array")
            return values
        if self.sees("{"):
            table = {}
            self.read_items("}", _SPACE, lambda: self.read_pair(table), "Unclosed inline table")
            return table
        match = self.take(_SCALAR)
        if not match:
            self.fail("Invalid value")
        word = match.group().replace("_", "")
        return word == "true" if match.group(1) else int(word) if match.group(2) else float(word)

    def read_items(self, end, gap, read, words):
        self.take(gap)
        while not self.sees(end):
            read()
            self.take(gap)
            if not self.sees(",") and not self.text.startswith(end, self.at):
                self.fail(words)
            self.take(gap)

    def read_header(self, root):
        end, words = ("]]", "an array") if self.sees("[") else ("]", "a table")
        *names, last = self.read_key()
        if not self.sees(end):
            self.fail("Expected '%s' at the end of %s declaration" % (end, words))
        for name in names:
            root = root.setdefault(name, {})
            root = root[-1] if isinstance(root, list) else root
        if end == "]":
            return root.setdefault(last, {})
        root.setdefault(last, []).append({})
        return root[last][-1]


def loads(text):
    reader = _Reader(text)
    root = table = {}
    reader.take(_GAP)
    while reader.at < len(reader.text):
        if reader.sees("["):
            table = reader.read_header(root)
        else:
            reader.read_pair(table)
        reader.take(_SPACE)
        if reader.text[reader.at:reader.at + 1] not in ("", "#", "\n"):
            reader.fail("Expected newline or end of document after a statement")
        reader.take(_GAP)
    return root
