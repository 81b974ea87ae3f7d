"""A scene: a machine of its own (process table, network, shared memory) on which something lives, and rlrun looks at it.

    found = scene.check("pinned", before="act '{\"argv\": [\"vim\", \"x\"]}'")
    found.exit, found.blocking, found.warnings, details(found, "job:running")

`before` is a bash script that sets the scene. It has $ROOT (the checkout), $PYZ, $PYTHON, $SCENE (a folder) and these:

    act SPEC            a process of these looks (see actor.py), in the background; its pid is in $!
    await COMMAND…      waits until that succeeds; gives the scene up after a while
    has_argv PID WORD   does that process's command line hold this word?
    settle              moves checkout, pyz and fake programs to a folder that every user can read, and /tmp out of sight
    $NOBODY COMMAND…    runs it as the user nobody; AS=($NOBODY) makes later actors his

rlrun.pyz lies in a scene with its modules compiled beside their sources (`quick_pyz`): hundreds of scenes would else
spend half their time on that. The file as it ships is what test_build.py starts, and what `play(…, ships=True)` plays.

What runs in the scene must not have the words in its command line that rlrun looks for, so all paths are neutral.

    prime = scene._replace(root=build_shared_prime(folder))     the same on a checkout of prime-rl
    prime.check_all([["x"], ["y", "--", "--clean"]], before=…)  several checks of one scene, in its turn
"""
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import pytest
from checkouts import add_prime_config, build_checkout, build_prime_checkout

ACTOR = Path(__file__).resolve().parent / "actor.py"
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable

PRELUDE = r"""
set -u
acts=0
await() {
    local tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ "$tries" -lt 3000 ] || { echo "the scene gave up waiting for: $*" >&2; exit 99; }
        sleep 0.02
    done
}
has_argv() { tr '\0' ' ' <"/proc/$1/cmdline" 2>/dev/null | grep -qF -- "$2"; }
act() {
    local ready
    acts=$((acts + 1))
    ready=$SCENE/ready-$acts
    "${AS[@]}" "$PYTHON" -I -S "$ACTOR" "$ready" "$(printf %s "$1" | base64 -w 0)" "$PADDING" </dev/null >"$SCENE/act.out" 2>&1 &
    await test -s "$ready"
}
AS=(env)
NOBODY='setpriv --reuid=65534 --regid=65534 --clear-groups --'
settle() {
    mount -t tmpfs tmpfs /srv && chmod 755 /srv && cp -r "$ROOT" /srv/checkout && cp "$PYZ" /srv/tool.pyz &&
        cp "$ACTOR" /srv/actor.py && mkdir /srv/scene && chmod 1777 /srv/scene || exit 98
    [ ! -d "$FAKES" ] || { cp -r "$FAKES" /srv/fakes; PATH=/srv/fakes:$PATH; }
    chmod -R a+rX /srv
    ROOT=/srv/checkout PYZ=/srv/tool.pyz ACTOR=/srv/actor.py SCENE=/srv/scene
    mount -t tmpfs tmpfs /tmp && chmod 1777 /tmp || exit 98
    cd "$ROOT"
}
PADDING=$(printf '%0800d' 0)
"""


class Found(NamedTuple):
    """What rlrun said in a scene. `shape` is its JSON object, {} where it printed none."""

    exit: int
    shape: Dict[str, Any]
    out: str
    err: str

    @property
    def blocking(self) -> List[str]:
        return list(self.shape["blocking"])

    @property
    def warnings(self) -> List[str]:
        return list(self.shape["warnings"])


def details(found: Found, name: str) -> str:
    """The details of all checks of this name, a line each."""
    return "\n".join(check["detail"] for check in found.shape["checks"] if check["name"] == name)


def fixes(found: Found, name: str) -> str:
    return "\n".join(check["fix"] or "" for check in found.shape["checks"] if check["name"] == name)


class Scene(NamedTuple):
    """How to set one; made by the fixture of that name."""

    folder: Path
    fakes: Path
    root: str
    pyz: str
    env: Dict[str, str]
    boxed: Callable[..., Any]

    def check(self, config: str = "pinned", *, before: str = "", args: Sequence[str] = (), env: Optional[Dict[str, str]] = None,
              root: str = "", prefix: str = "") -> Found:
        """`rlrun check CONFIG --json` once the scene is set. `prefix`: bash words before the interpreter."""
        return self.run(["check", config, "--json"] + list(args), before=before, env=env, root=root, prefix=prefix)

    def run(self, args: Sequence[str], *, before: str = "", env: Optional[Dict[str, str]] = None, root: str = "",
            prefix: str = "", command: str = "") -> Found:
        """Any command line of rlrun; or `command`, a bash line, in its place."""
        number = len(list(self.folder.glob("scene-*.sh")))
        script = self.folder / ("scene-%d.sh" % number)
        words = " ".join("'%s'" % word.replace("'", "'\\''") for word in args)
        text = "%s\ncd \"$ROOT\"\n%s\n%s\n" % (PRELUDE, before, command or '%s "$PYTHON" "$PYZ" %s' % (prefix, words))
        script.write_bytes(os.fsencode(text))
        full = dict(self.env, SCENE=str(self.folder), ROOT=root or self.root, PYZ=self.pyz, PYTHON=PYTHON, ACTOR=str(ACTOR),
                    FAKES=str(self.fakes))
        full.update(env or {})
        done = self.boxed(["bash", str(script)], env=full, own_network=True)
        assert done.returncode not in (98, 99), done.stderr
        lines = done.stdout.strip().split("\n")
        shape = json.loads(lines[-1]) if lines[-1].startswith("{") else {}
        return Found(done.returncode, shape, done.stdout, done.stderr)

    def check_all(self, lines: Sequence[Sequence[str]], *, prefix: str = "", **options: Any) -> List[Found]:
        """`rlrun check … --json` for each of these words, one after the other in one scene. Words with a `=` in front of the
        config are environment."""
        commands = []
        for words in lines:
            count = next(number for number, word in enumerate(words) if "=" not in word)
            place = words.index("--") if "--" in words else len(words)
            quoted = [" ".join(map(shlex.quote, part)) for part in (words[:count], words[count:place], words[place:])]
            commands.append('%s env %s "$PYTHON" "$PYZ" check %s --json %s; echo "exit $?"' % tuple([prefix] + quoted))
        found = self.run([], command="\n".join(commands), **options)
        pairs = zip(*[iter(line for line in found.out.split("\n") if line.startswith(("{", "exit ")))] * 2)
        seen = [Found(int(code[5:]), json.loads(shape), shape, found.err) for shape, code in pairs]
        assert len(seen) == len(lines), found.out + found.err
        return seen


@pytest.fixture(scope="session")
def shared_checkout(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A toy checkout for tests that change nothing in it."""
    return build_checkout(tmp_path_factory.mktemp("shared") / "checkout")


@pytest.fixture
def scene(quick_pyz: str, shared_checkout: str, clean_env: Dict[str, str], boxed: Callable[..., Any], has_box: bool,
          tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Without a box the machine's own processes would be judged: then the test is skipped."""
    if not has_box:
        pytest.skip("needs root and unshare")
    folder = tmp_path_factory.mktemp("scene")  # tmp_path carries the test's name, and with it words that rlrun looks for
    fakes = folder / "fakes"
    fakes.mkdir()
    clean_env.update(PATH="%s:%s" % (fakes, clean_env["PATH"]), SP_SIZE="1")  # so that any number of GPUs will do
    return Scene(folder, fakes, shared_checkout, quick_pyz, clean_env, boxed)


# Stands in for uv: `uv run --no-sync COMMAND …` as it is, in the checkout; what it was asked goes to $UV_SEEN.
FAKE_UV = '''#!/usr/bin/env bash
printf '%q ' "$@" >>"${UV_SEEN:-/dev/null}"
[ "$1" = run ] || exit 97
shift
[ "$1" != --no-sync ] || shift
exec ".venv/bin/$1" "${@:2}"
'''
# Configs for what the toy's own do not show.
PRIME_CONFIGS = {
    "rl": "[orchestrator]\n[[orchestrator.train.source]]\nenv.taskset.id = 'reverse-text'\n[trainer]\n[inference]\n",
    "cleans": "clean = true\n[orchestrator]\n[[orchestrator.train.source]]\nenv.taskset.id = 'reverse-text'\n[trainer]\n"
              "[inference]\n[run]\nname = 'mine'\n",
    "resumes": "[resume]\n[orchestrator]\n[[orchestrator.train.source]]\nenv.taskset.id = 'reverse-text'\n[trainer]\n"
               "[inference]\n[run]\nname = 'mine'\n[ckpt]\n",
    "plain": "max_steps = 3\n",
    "big": "[orchestrator]\nbatch_size = 64\n",
    "my-sft": "max_steps = 4\n[model]\nname = 'toy/Tiny'\n",
    "both": "[orchestrator]\n[vllm]\n",
    "broken-rl": "max_steps = 5\n\n[trainer\n",
    "external": "[orchestrator]\n[[orchestrator.train.source]]\nenv.taskset.id = 'reverse-text'\n[trainer]\n",
}


def build_shared_prime(folder: Path) -> str:
    """A toy checkout of prime-rl with more configs, for tests that change nothing in it."""
    root = build_prime_checkout(folder)
    for name, text in PRIME_CONFIGS.items():
        add_prime_config(root, name, text)
    return str(root)


def hash_tree(root: str) -> Dict[str, Tuple[str, Any]]:
    """All below a folder: kind and mode, and bytes or link target. A folder's own times are left out."""
    found = {}
    for folder, folders, names in os.walk(root):
        for name in folders + names:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            if os.path.islink(path):
                found[path] = ("link", os.readlink(path))
            elif name in folders:
                found[path] = ("folder", status.st_mode)
            else:
                with open(path, "rb") as file:
                    found[path] = ("file", (status.st_mode, status.st_mtime_ns, file.read()))
    return found


@pytest.fixture(scope="session")
def shared_prime(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A toy checkout of prime-rl that no test changes."""
    return build_shared_prime(tmp_path_factory.mktemp("shared") / "checkout")


@pytest.fixture
def prime(scene: Scene, shared_prime: str) -> Scene:
    """The scene with that checkout."""
    return scene._replace(root=shared_prime)


@pytest.fixture
def own(scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """The scene with a checkout that of prime-rl that is this test's own."""
    return scene._replace(root=build_prime_checkout(tmp_path_factory.mktemp("own") / "checkout"))
