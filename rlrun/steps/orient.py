"""Step 0: which checkout, which config, which kind. Never guessed: what is absent or ambiguous is listed."""
import os
import shlex
import stat
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

from ..errors import MACHINE, USAGE, OperatorError
from ..stacks import load_recognisers, load_stack
from ..values import Checkout, Config, Request


class Ambiguity(NamedTuple):
    """Why no single config was named, and the candidates to choose from."""

    message: str
    candidates: Tuple[Config, ...]


def find_checkout(root_option: str, config_word: str) -> Checkout:
    """The checkout by `--root`, else around the working directory, else around the config.

    Raises OperatorError: exit 5 where there is none, exit 2 where directory and config lie in two.
    """
    if root_option:
        try:
            root = os.path.realpath(root_option)
        except OSError:  # relative, to a folder that is gone
            raise OperatorError("the working directory no longer exists", "Name the checkout by its whole path.", MACHINE,
                                "no-checkout")
        found = _recognise(root)
        if not found:
            raise OperatorError("no checkout at %s" % root_option, "It is a checkout of none of: %s. Name the folder that "
                                "`git clone` made." % _titles(), MACHINE, "no-checkout")
        return found
    cwd = _read_cwd()
    around_cwd = _search_upward(cwd) if cwd else None
    around_config = None
    path = _existing_path(config_word, cwd)
    if path:
        around_config = _search_upward(os.path.dirname(os.path.abspath(path))) or _search_upward(
            os.path.dirname(os.path.realpath(path)))
    if around_cwd and around_config and around_cwd.root != around_config.root:
        raise OperatorError("two checkouts: the working directory is in %s, the config in %s"
                            % (around_cwd.root, around_config.root),
                            "Say which one launches: --root %s, or --root %s"
                            % (shlex.quote(around_cwd.root), shlex.quote(around_config.root)), USAGE, "two-checkouts")
    found = around_cwd or around_config
    if found:
        return found
    if not cwd:
        raise OperatorError("the working directory no longer exists", "cd to the checkout, or name it with --root DIR.",
                            MACHINE, "no-checkout")
    raise OperatorError("no checkout of %s around %s" % (_titles(), cwd),
                        "cd into the checkout, or name it: --root DIR", MACHINE, "no-checkout")


def _titles() -> str:
    return ", ".join(str(module.TITLE) for module in load_recognisers().values())


def _read_cwd() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""


def _recognise(directory: str) -> Optional[Checkout]:
    names = [name for name, module in load_recognisers().items() if module.is_checkout(directory)]
    if len(names) > 1:
        raise OperatorError("%s looks like a checkout of several systems: %s" % (directory, ", ".join(names)),
                            "Keep one checkout a folder.", USAGE, "two-checkouts")
    return Checkout(names[0], directory) if names else None


def _search_upward(directory: str) -> Optional[Checkout]:
    directory = os.path.realpath(directory)
    while True:
        found = _recognise(directory)
        if found or directory == os.path.dirname(directory):
            return found
        directory = os.path.dirname(directory)


def _existing_path(word: str, cwd: str) -> str:
    if not word or not (cwd or os.path.isabs(word)):
        return ""
    return word if os.path.exists(word) else ""


def find_config(checkout: Checkout, word: str, kind_option: str) -> "Tuple[Optional[Config], Optional[Ambiguity]]":
    """The config that `word` means, or why there is no single one. Raises OperatorError for a path that can't be a
    config (a directory, unreadable, empty) or a kind that contradicts it. Its kind is "" where nothing tells."""
    stack = load_stack(checkout.stack)
    if kind_option and kind_option not in stack.KINDS:
        raise OperatorError("%s has no kind %r" % (stack.TITLE, kind_option), "Kinds: %s" % ", ".join(stack.KINDS))
    if not word:
        return None, Ambiguity("no config was named", _of_kind(stack.list_configs(checkout.root), kind_option))
    path = _find_path(checkout.root, word)
    if path and not os.path.isdir(path):
        return _make_config(checkout, path, kind_option), None
    matches = stack.match_config(checkout.root, word)
    found = _of_kind(matches, kind_option)
    if len(matches) == 1 and not found:
        return _make_config(checkout, matches[0].path, kind_option), None  # refuses, and says why
    if len(found) == 1:
        return _make_config(checkout, found[0].path, kind_option), None
    if found:
        return None, Ambiguity("%s means several configs" % word, found)
    if path:
        raise OperatorError("%s is a directory, not a config" % word, "Name a file in it: `rlrun configs` lists them.",
                            USAGE, "config")
    return None, Ambiguity("no config %s" % word, _of_kind(_find_similar(stack, checkout.root, word), kind_option))


def _of_kind(configs: List[Config], kind: str) -> Tuple[Config, ...]:
    return tuple(config for config in configs if not kind or config.kind in (kind, ""))


def _find_path(root: str, word: str) -> str:
    candidates = [word] if os.path.isabs(word) else [word, os.path.join(root, word)]
    found = []
    for candidate in candidates:
        try:
            if os.path.lexists(candidate) and (os.path.isabs(candidate) or _read_cwd()):
                found.append(os.path.abspath(candidate))
        except (OSError, ValueError):  # ValueError: a NUL byte
            continue
    if len(found) > 1 and os.path.realpath(found[0]) != os.path.realpath(found[1]) and show_path(root, found[0]) == found[0] \
            and not any(os.path.isdir(one) for one in found):
        raise OperatorError("%s is two files: %s and %s" % (word, found[0], found[1]), "Name one by its whole path.", USAGE,
                            "config")
    return found[0] if found else ""


def _find_similar(stack: Any, root: str, word: str) -> List[Config]:
    import difflib
    configs: List[Config] = stack.list_configs(root)
    names = [os.path.basename(config.path) for config in configs]
    close = set(difflib.get_close_matches(os.path.basename(word), names, 8, 0.5))
    return [config for config in configs if os.path.basename(config.path) in close] or configs


def _make_config(checkout: Checkout, path: str, kind_option: str) -> Config:
    stack = load_stack(checkout.stack)
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe could be read once, and reading it may wait for ever
            raise OperatorError("%s is not a file: a config is read more than once" % path,
                                "Write it to a file first.", USAGE, "config")
        with open(path, "rb") as file:
            content = file.read(1 << 16)
    except OSError as error:
        raise OperatorError("can't read the config %s: %s" % (path, error.strerror),
                            "Whose file is it? ls -l %s" % shlex.quote(path), USAGE, "config")
    if not content.strip():
        raise OperatorError("the config %s is empty" % path, "Start from one that `rlrun configs` lists.", USAGE, "config")
    kind = stack.infer_kind(checkout.root, path) if not kind_option else kind_option
    if kind_option:
        _refuse_contradiction(stack, checkout.root, path, kind_option)
    shown = show_path(checkout.root, path)
    return Config(os.path.join(checkout.root, shown), shown, kind)  # one spelling, whichever way it was reached


def _refuse_contradiction(stack: Any, root: str, path: str, kind_option: str) -> None:
    try:
        told = stack.infer_kind(root, path)
    except OperatorError:
        return  # its names speak of several kinds: --kind is the answer
    if told and told != kind_option:
        raise OperatorError("%s is a config for %s, not for %s" % (path, told, kind_option),
                            "Leave --kind away, or name another config.", USAGE, "kind")


def show_path(root: str, path: str) -> str:
    """`path` relative to the checkout where it lies in it, otherwise as it is."""
    for candidate in (path, os.path.realpath(path)):
        for base in (root, os.path.realpath(root)):
            if candidate.startswith(base.rstrip("/") + "/"):
                return os.path.relpath(candidate, base)
    return path


def list_all(checkout: Checkout, kind_option: str) -> Tuple[Config, ...]:
    """All configs of a checkout, of one kind where `kind_option` names it."""
    stack = load_stack(checkout.stack)
    if kind_option and kind_option not in stack.KINDS:
        raise OperatorError("%s has no kind %r" % (stack.TITLE, kind_option), "Kinds: %s" % ", ".join(stack.KINDS))
    return _of_kind(stack.list_configs(checkout.root), kind_option)


def refuse_several(checkout: Checkout, words: Tuple[str, ...]) -> None:
    """Raises OperatorError (exit 2) for several configs where the stack takes one."""
    if len(words) > 1 and not load_stack(checkout.stack).TAKES_OVERRIDES:
        raise OperatorError("one config, not %d: %s" % (len(words), " ".join(words)), "A path with spaces needs quotes.", USAGE,
                            "usage")


def make_request(checkout: Checkout, configs: Sequence[Config], overrides: Tuple[str, ...], kind_option: str = "",
                 runner: str = "") -> Request:
    """The Request that the later steps work on: the configs are of one kind, told by any of them. Refuses overrides and
    --runner where the stack takes none, and configs of two kinds (exit 2)."""
    stack = load_stack(checkout.stack)
    if overrides and not stack.TAKES_OVERRIDES:
        raise OperatorError("%s takes no overrides after --: %s" % (stack.TITLE, " ".join(overrides)),
                            "Put the values into the config.", USAGE, "overrides")
    try:
        words = tuple(shlex.split(runner))
    except ValueError as error:
        raise OperatorError("--runner %r is no command line: %s" % (runner, error), "For example: --runner 'uv run'", USAGE,
                            "runner")
    if words and not stack.TAKES_RUNNER:
        raise OperatorError("%s has one runner, and takes no --runner" % stack.TITLE, "Leave it away.", USAGE, "runner")
    kinds = sorted({config.kind for config in configs if config.kind})
    if len(kinds) > 1 and not kind_option:
        told = ", ".join("%s (%s)" % (config.shown, config.kind) for config in configs if config.kind)
        raise OperatorError("these configs are of several kinds: %s" % told, "Say which: --kind %s" % "|".join(kinds), USAGE,
                            "kind")
    kind = kind_option or (kinds[0] if kinds else "")
    if not kind:
        raise OperatorError("can't tell what kind of run %s is" % configs[0].path, "Say it: --kind %s" % "|".join(stack.KINDS),
                            USAGE, "kind")
    return Request(checkout, configs[0]._replace(kind=kind), overrides, tuple(configs[1:]), words)
