"""Takes secrets out of text before it is shown or stored. Changes no line structure, reads no file, no environment."""
import json
import re
import shlex
from typing import Callable, Dict, List, Mapping, Match, Pattern, Sequence, Set, Tuple

from .secret_names import is_password_name, is_plain_value, is_secret_name
from .secret_shapes import LOGIN_OPTION, MARK, hide_password, hide_shapes

__all__ = ["MARK", "find_assigned_secrets", "find_secrets", "is_secret_name", "redact", "redact_config", "redact_words"]

MIN_SECRET_LENGTH = 8  # shorter values occur in ordinary text

# A value: quoted pieces glued together as a shell does, or one bare word that may hold backslash escapes
_QUOTED = r"""(?:\$?'[^'\n]*'|"(?:[^"\\\n]|\\.)*"|\\"[^"\n]*\\")"""
_BARE = r"""(?:\\.|[^\s"'\\])+"""
_VALUE = r"(?:%s(?:%s|\\.)*|%s)" % (_QUOTED, _QUOTED, _BARE)
_NAME = r"[A-Za-z_][A-Za-z0-9_.-]*"

# HF_TOKEN=abc   'DB_PASSWORD=two words'   --wandb-api-key=abc   +trainer.api_key=abc   api_key = "abc"
_ASSIGNMENT_HEAD = re.compile(
    r"(?P<name>(?<![A-Za-z0-9_.-])-{0,2}%s)(?P<equals>(?:\[\w*\])?\+?=|[ \t]+=[ \t]*(?!=))" % _NAME)
_ASSIGNMENT = re.compile(r"%s(?P<value>\([^()\n]*\)|%s)?" % (_ASSIGNMENT_HEAD.pattern, _VALUE))
# "api_key": "abc"   'HF_TOKEN': 'abc'   api_key: abc
_FIELD_HEAD = re.compile(
    r"""(?P<name>(?P<quote>["'])%s(?P=quote)|(?<![A-Za-z0-9_."'/:-])%s)(?P<equals>[ \t]*:[ \t]*)""" % (_NAME, _NAME))
_FIELD = re.compile(r"%s(?P<value>%s)" % (_FIELD_HEAD.pattern, _VALUE))
# --api-key VALUE
_OPTION_HEAD = re.compile(r"(?P<name>(?<![\w.-])--?[A-Za-z][\w.-]*)(?P<equals>[\"']?,?[ \t]+)")
_OPTION = re.compile(r"%s(?P<value>(?!-)%s)" % (_OPTION_HEAD.pattern, _VALUE))
# ${HF_TOKEN:-abc}   : "${HF_TOKEN:=abc}"
_DEFAULT = re.compile(r"(?P<name>\$\{\w+)(?P<equals>:?[-=+])(?P<value>[^}\n]+)")
# DB_PASSWORD="first line      (the quote ends on a later line: only looked for in configs)
_MANY_LINES = re.compile(
    r"""(?P<name>(?<![A-Za-z0-9_.-])%s)=(?P<value>"(?:[^"\\]|\\.)*"|'[^']*')""" % _NAME, re.DOTALL)
# …two words' and what a shell would glue to that quote
_TO_SINGLE_QUOTE = re.compile(r"((?:[^'\\\n]|\\[^\n])*\\?)'(%s*)" % _QUOTED)
_TO_DOUBLE_QUOTE = re.compile(r'((?:[^"\\\n]|\\.)*)"(%s*)' % _QUOTED)


def find_secrets(environ: Mapping[str, str]) -> Tuple[str, ...]:
    """Takes an environment; gives the values that must never be shown, longest first.

    Short and plain ones are left out, since taking `true` or `4096` out of every text would destroy it.
    """
    found: Set[str] = set()
    for name, value in environ.items():
        if is_secret_name(name) and not is_plain_value(name, value):
            found.update((value, value.strip()))
            # A key in PEM form is also printed line by line.
            found.update(line for line in value.split("\n") if len(line) >= 16 and not line.startswith("-----"))
        for in_address in re.findall(r"://[^\s/:@]*:([^\s/]+)@", value):
            if not is_plain_value("PASSWORD", in_address):
                found.add(in_address)
    return tuple(sorted((value for value in found if len(value) >= MIN_SECRET_LENGTH and not _is_number(value)
                         and MARK not in value), key=lambda value: (-len(value), value)))


def find_assigned_secrets(text: str) -> Tuple[str, ...]:
    """`find_secrets` for the text of a config: what it assigns literally to a secret name."""
    values: Dict[str, str] = {}
    for found in _ASSIGNMENT.finditer(text):
        name, value = found.group("name").lstrip("-"), found.group("value") or ""
        if "$" in value or not is_secret_name(name):
            continue
        try:
            value = " ".join(shlex.split(value))
        except ValueError:  # an open quote
            value = value.strip("\"'")
        if not is_plain_value(name, value):
            values["%s_%d" % (name, len(values))] = value
    return find_secrets(values)


def redact(text: str, secrets: Sequence[str] = ()) -> str:
    """Takes text and the secrets that are known; gives it with these, with all that looks like a secret, and with the
    value of every secret name replaced by `<redacted>`. Empty values, placeholders and references stay readable."""
    text = _replace_known(text, secrets)
    text = hide_shapes(text)
    text = _sub_each(_ASSIGNMENT_HEAD, _ASSIGNMENT, text, _hide_assignment)
    text = _DEFAULT.sub(_hide_default, text)
    text = _sub_each(_FIELD_HEAD, _FIELD, text, _hide_field)
    return _sub_each(_OPTION_HEAD, _OPTION, text, _hide_option)


def redact_words(argv: Sequence[str], secrets: Sequence[str] = ()) -> Tuple[str, ...]:
    """`redact` for an argv, where the value of `--api-key` is a word of its own, and so is curl's login."""
    words: List[str] = []
    is_value = has_curl = is_login = False
    for word in argv:
        if has_curl:
            option = LOGIN_OPTION.match(word)
            start = 0 if is_login else option.end() if option else len(word)
            is_login = bool(option) and start == len(word)
            word = word[:start] + hide_password(word[start:])
        has_curl = has_curl or "curl" in word
        if is_value and not word.startswith("-"):
            words.append(word if is_plain_value("PASSWORD", word) else MARK)
            continue  # and so the next: an option may take a list
        name, equals, value = word.partition("=")
        is_whole = bool(equals) and is_secret_name(name) and " " not in name and not is_plain_value(name, value)
        words.append(name + "=" + MARK if is_whole else redact(word, secrets))
        is_value = word.startswith("-") and not equals and " " not in word and is_secret_name(word)
    return tuple(words)


# API_TOKENS=(aaa111 bbb222)
_ARRAY = re.compile(r"(?m)^([ \t]*(?:(?:export|declare|typeset|readonly)[ \t]+(?:-\w+[ \t]+)*)?([A-Za-z_]\w*)\+?)=\(([^()]*)\)")


def redact_config(text: str, secrets: Sequence[str] = ()) -> str:
    """`redact` for the copy of a config: also values over several lines. Assignments in comments count as well."""
    return redact(_MANY_LINES.sub(_hide_many_lines, _ARRAY.sub(_hide_array, text)), secrets)


def _hide_array(found: Match[str]) -> str:
    name, words = found.group(2), found.group(3).split()
    is_secret = is_secret_name(name) or is_secret_name(name[:-1] if name.endswith("S") else name)
    if not is_secret or all(_is_number(word.strip("\"'")) for word in words):
        return found.group()
    return "%s=(%s)" % (found.group(1), MARK)


def _replace_known(text: str, secrets: Sequence[str]) -> str:
    forms: Set[str] = set()
    for secret in secrets:
        if secret and secret not in MARK:
            forms.update(_written_forms(secret))
    if not forms:
        return text
    longest_first = sorted(forms, key=lambda form: (-len(form), form))
    return re.sub("|".join(longest_first), lambda found: MARK + "\n" * found.group().count("\n"), text)


def _written_forms(secret: str) -> Set[str]:
    """Patterns for the secret as it is, and as bash's %q, a shell's quotes, JSON and a URL would write it."""
    if re.match(r"[A-Za-z0-9]+\Z", secret):
        return {secret}
    from urllib.parse import quote  # slow to import, and most secrets are plain
    written = [shlex.quote(secret), json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1],
               quote(secret, safe="", errors="replace"), quote(secret, errors="replace")]
    if written[0] != secret:
        written[0] = written[0][1:-1]
    # With or without a backslash before each sign that a shell may know.
    backslashed = re.sub(r"[\x21-\x2f\x3a-\x40\x5b-\x60\x7b-\x7e\s]",
                         lambda found: "\\\\?" + re.escape(found.group()), secret)
    return {re.escape(form) for form in [secret] + written if form} | {backslashed}


def _sub_each(head: Pattern[str], pattern: Pattern[str], text: str, hide: Callable[[Match[str]], Tuple[str, int]]) -> str:
    """Like `sub`, but `hide` gives what to show and how far it has read. A match that hides nothing (an empty text) is
    looked into, not skipped: the value of an innocent name may hold another assignment. `head`: the pattern up to the value,
    which is read for the names of secrets alone: `a=a=a=…` would be read anew from each name on."""
    pieces: List[str] = []
    copied = 0
    found = head.search(text)
    while found:
        position = found.end("equals")
        whole = pattern.match(text, found.start()) if is_secret_name(found.group("name").strip("\"'")) else None
        shown, end = hide(whole) if whole else ("", 0)
        if shown:
            pieces.append(text[copied:found.start()] + shown)
            copied = position = end
        found = head.search(text, position)
    return "".join(pieces) + text[copied:]


def _hide_assignment(found: Match[str]) -> Tuple[str, int]:
    name, value, text = found.group("name"), found.group("value") or "", found.string
    if not is_secret_name(name):
        return "", 0
    head, start = name + found.group("equals"), found.end("equals")
    before = text[found.start() - 1:found.start()]
    if before in ("'", '"') and before:
        # The whole word is quoted, so the value goes on to the closing quote and to what is glued to it.
        rest = (_TO_DOUBLE_QUOTE if before == '"' else _TO_SINGLE_QUOTE).match(text, start)
        if rest:
            is_plain = is_plain_value(name, rest.group(1)) and not rest.group(2)
            return ("", 0) if is_plain else (head + MARK + before, rest.end())
    if before in ("?", "&") and before:  # the query of an address
        value = value.split("&")[0]
    is_bare = bool(value) and value[0] not in "\"'($\\"
    line_start = text.rfind("\n", 0, found.start()) + 1
    if is_bare and is_password_name(name) and text[line_start:found.start()].strip() in ("", "export", "declare -x"):
        # A line of `env`, where nothing is quoted and a pass phrase may hold spaces.
        line_end = text.find("\n", start)
        value = text[start:] if line_end < 0 else text[start:line_end]
    if is_plain_value(name, _unquote(value)):
        return "", 0
    return head + _mark_value(value), start + len(value)


def _hide_field(found: Match[str]) -> Tuple[str, int]:
    name, value = found.group("name"), found.group("value")
    is_quoted_value = value[0] in "\"'"
    if not is_quoted_value:
        value = value.rstrip(",]})")
    if not is_secret_name(name.strip("\"'")) or is_plain_value(name, _unquote(value)):
        return "", 0
    # In prose (`invalid api_key: must be set`) what follows is a word; a secret has digits.
    if found.group("quote") or is_quoted_value or re.search("[0-9]", value) and len(value) >= MIN_SECRET_LENGTH:
        return name + found.group("equals") + _mark_value(value), found.start("value") + len(value)
    return "", 0


def _hide_option(found: Match[str]) -> Tuple[str, int]:
    name, value = found.group("name"), found.group("value")
    if not is_secret_name(name) or is_plain_value(name, _unquote(value)):
        return "", 0
    return name + found.group("equals") + _mark_value(value), found.end()


def _hide_default(found: Match[str]) -> str:
    name, value = found.group("name"), found.group("value")
    if not is_secret_name(name) or is_plain_value(name, value) or is_plain_value(name, value + "}"):
        return found.group()
    return name + found.group("equals") + MARK


def _hide_many_lines(found: Match[str]) -> str:
    name, value = found.group("name"), found.group("value")
    lines = value.count("\n")
    if not lines or not is_secret_name(name):
        return found.group()
    return "%s=%s%s%s%s" % (name, value[0], MARK, "\n" * lines, value[0])


def _unquote(value: str) -> str:
    is_one = len(value) > 1 and value[0] in "\"'" and value[-1] == value[0] and value.count(value[0]) == 2
    return value[1:-1] if is_one else value


def _mark_value(value: str) -> str:
    return value[0] + MARK + value[0] if _unquote(value) != value else MARK


def _is_number(value: str) -> bool:
    return bool(re.match(r"[-+]?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?\Z", value))
