"""Bad input, each a clear message and nothing changed: the issue's table, one test a row, and more of the same kinds."""
import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable, Dict, List

import pytest
from checkouts import add_config, build_checkout, write_fake_program
from e2e.scene import Found, Scene, details, fixes, hash_tree

BODY = (
    "PROJECT_NAME=toy\nEXP_NAME=mine\nTEMPLATE_MODULES=(runtime/process.env backend/k8s.env harbor/common.env verl/common.env)\n"
)
# A config outside of scripts/ tells its kind by the names that it sets.
OUTSIDE = "TRAINING_MODE=sync\n" + BODY


@pytest.fixture
def checkout(tmp_path: Path) -> str:
    return build_checkout(tmp_path / "checkout")


def has_no_traceback(done: "subprocess.CompletedProcess[str]") -> bool:
    return "Traceback" not in done.stdout + done.stderr and "rlrun: a bug" not in done.stderr


def refuse(done: "subprocess.CompletedProcess[str]", code: int, *words: str) -> None:
    """Exit code, a message on stderr with these words, nothing on stdout."""
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith("rlrun: ") and has_no_traceback(done) and done.stdout == ""
    for word in words:
        assert word in done.stderr, done.stderr


# ---- the command line

@pytest.mark.parametrize(
    "args, words",
    [
        ([], ["rlrun COMMAND --help"]),
        (["chek"], ["no command 'chek'", "rlrun check"]),
        (["--bogus"], ["no command"]),
        (["check", "--bogus"], ["--bogus"]),
        (["check", "--kin", "train"], ["--kin"]),
        (["check", "pinned", "warns"], ["one config"]),
        (["check", "--dry-run-timeout", "soon", "pinned"], ["--dry-run-timeout"]),
        (["check", "--dry-run-timeout", "nan", "pinned"], ["--dry-run-timeout"]),
        (["check", "--dry-run-timeout", "-1", "pinned"], ["--dry-run-timeout"]),
        (["check", "--dry-run-timeout", "0", "pinned"], ["--dry-run-timeout"]),
        (["check", "--dry-run-timeout", "inf", "pinned"], ["--dry-run-timeout"]),
        (["check", "--color", "pink", "pinned"], ["--color"]),
        (["check", "--yes", "pinned"], ["--yes"]),
        (["check", "--force", "pinned"], ["--force"]),
        (["runs", "a", "b"], ["b"]),
        (["check", "pinned", "--", "x=1"], ["no overrides"]),
        (["check", ""], ["no config was named"]),
        (["check", "\0x"], None),
        (["help", "check", "x"], None),
    ],
)
def test_command_line(run_pyz: Callable[..., "subprocess.CompletedProcess[str]"], shared_checkout: str, args: List[str],
                      words: List[str]) -> None:
    if "\0" in "".join(args):
        pytest.skip("no program can be given a NUL")
    done = run_pyz(args, cwd=shared_checkout)
    assert done.returncode == 2 and done.stdout == "" and has_no_traceback(done)
    for word in words or ():
        assert word in done.stderr


# ---- which checkout

def test_no_checkout(run_pyz, tmp_path: Path) -> None:
    refuse(run_pyz(["check", "demo"], cwd=tmp_path), 5, "no checkout", "--root")


@pytest.mark.parametrize("root", ["/no/such/folder", "/etc/passwd", "/", "", "\udcff"])
def test_root_that_is_no_checkout(run_pyz, tmp_path: Path, root: str) -> None:
    refuse(run_pyz(["check", "demo", "--root", root], cwd=tmp_path), 5, "no checkout")


def test_two_checkouts(run_pyz, checkout: str, tmp_path: Path) -> None:
    other = build_checkout(tmp_path / "other one")
    config = other + "/scripts/train/configs/pinned.env"
    done = run_pyz(["check", config], cwd=checkout)
    refuse(done, 2, checkout, other, "--root '%s'" % other)
    assert run_pyz(["configs"], cwd=checkout).returncode == 0


def test_two_checkouts_are_settled_by_root(run_pyz, checkout: str, tmp_path: Path) -> None:
    other = build_checkout(tmp_path / "other")
    done = run_pyz(["check", "%s/scripts/train/configs/pinned.env" % other, "--root", other, "-q"], cwd=checkout)
    assert done.returncode in (0, 1) and "SAFE TO RUN" in done.stdout


def test_deleted_working_directory(run_pyz, boxed, pyz: str, shared_checkout: str) -> None:
    script = 'cd "$(mktemp -d)" && rmdir "$PWD" && "$@"'
    done = boxed(["bash", "-c", script, "x", sys.executable, pyz, "check", "demo"])
    refuse(done, 5, "working directory no longer exists", "--root")
    done = boxed(["bash", "-c", script, "x", sys.executable, pyz, "check", "pinned", "--root", shared_checkout, "-q"])
    assert done.returncode == 0 and "YES" in done.stdout and has_no_traceback(done)


def test_deleted_working_directory_and_a_relative_path_of_the_file(boxed, pyz: str, shared_checkout: str) -> None:
    script = ('d=$(mktemp -d) && cp "$2" "$d/rlrun.pyz" && mkdir "$d/gone" && cd "$d/gone" && rmdir "$PWD" && '
              '"$1" ../rlrun.pyz "${@:3}"')
    words = ["bash", "-c", script, "x", sys.executable, pyz]
    done = boxed(words + ["check", "pinned", "--root", shared_checkout])
    assert done.returncode == 0 and "Launch: ../rlrun.pyz run " in done.stdout, done.stdout + done.stderr
    refuse(boxed(words + ["demo", "there"]), 5, "can't unpack to there")


def test_checkout_without_a_runner(run_pyz, checkout: str) -> None:
    os.unlink(checkout + "/scripts/train/train.sh")
    refuse(run_pyz(["check", "pinned"], cwd=checkout), 5, "no runner", "train.sh")


def test_runner_that_knows_no_dry_run(run_pyz, checkout: str) -> None:
    """It would launch."""
    Path(checkout, "scripts/train/train.sh").write_text("#!/bin/bash\ntouch launched\n")
    refuse(run_pyz(["check", "pinned"], cwd=checkout), 5, "without launching")
    assert not os.path.exists(checkout + "/launched")


def test_no_bash(run_pyz, clean_env: Dict[str, str], shared_checkout: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    clean_env["PATH"] = str(tmp_path / "empty")
    refuse(run_pyz(["check", "pinned"], cwd=shared_checkout), 5, "no bash on PATH")


def test_bash_that_can_not_start(run_pyz, fake_program, shared_checkout: str) -> None:
    fake_program("bash", "#!/no/such/interpreter\n")
    refuse(run_pyz(["check", "pinned"], cwd=shared_checkout), 5, "can't start")


def test_path_is_not_set(run_pyz, clean_env: Dict[str, str], shared_checkout: str) -> None:
    del clean_env["PATH"]
    done = run_pyz(["check", "pinned", "-q"], cwd=shared_checkout)
    assert done.returncode in (0, 1) and "SAFE TO RUN" in done.stdout


# ---- which config

def test_absent_config_is_listed(run_pyz, shared_checkout: str) -> None:
    done = run_pyz(["check", "demoo"], cwd=shared_checkout)
    refuse(done, 2, "no config demoo", "1.", "scripts/train/configs/demo.env")
    assert "_template" not in done.stderr


def test_no_config_at_all(run_pyz, shared_checkout: str) -> None:
    done = run_pyz(["check"], cwd=shared_checkout)
    refuse(done, 2, "no config was named", "scripts/eval/configs/demo_eval.env", "scripts/train/examples/first_run.env")


def test_ambiguous_config(run_pyz, checkout: str) -> None:
    add_config(checkout, "eval", "pinned", BODY)
    done = run_pyz(["check", "pinned"], cwd=checkout)
    refuse(done, 2, "several", "1. train", "2. eval")
    assert run_pyz(["check", "pinned", "--kind", "train", "-q"], cwd=checkout).returncode in (0, 1)
    assert run_pyz(["check", "train/configs/pinned", "-q"], cwd=checkout).returncode in (0, 1)


def test_template_is_no_config(run_pyz, shared_checkout: str) -> None:
    refuse(run_pyz(["check", "_template"], cwd=shared_checkout), 2, "no config _template")


def test_config_that_is_a_directory(run_pyz, shared_checkout: str) -> None:
    refuse(run_pyz(["check", "scripts/train/configs"], cwd=shared_checkout), 2, "is a directory")


@pytest.mark.parametrize("content", ["", "\n \n\t\n"])
def test_empty_config(run_pyz, checkout: str, content: str) -> None:
    add_config(checkout, "train", "void", content)
    refuse(run_pyz(["check", "void"], cwd=checkout), 2, "is empty")


def test_config_that_is_a_dangling_link(run_pyz, checkout: str) -> None:
    os.symlink("/no/such/file", checkout + "/scripts/train/configs/gone.env")
    refuse(run_pyz(["check", "scripts/train/configs/gone.env"], cwd=checkout), 2, "gone.env", "No such file")


def test_config_that_is_a_circle_of_links(run_pyz, checkout: str) -> None:
    os.symlink("round.env", checkout + "/scripts/train/configs/round.env")
    refuse(run_pyz(["check", "scripts/train/configs/round.env"], cwd=checkout), 2, "round.env")


def test_config_that_is_a_pipe(run_pyz, checkout: str) -> None:
    """Reading it would wait for ever, and it can be read only once."""
    os.mkfifo(checkout + "/scripts/train/configs/pipe.env")
    refuse(run_pyz(["check", "scripts/train/configs/pipe.env"], cwd=checkout, timeout=60), 2, "not a file")


def test_config_that_is_a_device(run_pyz, shared_checkout: str) -> None:
    refuse(run_pyz(["check", "/dev/zero", "--kind", "train"], cwd=shared_checkout, timeout=60), 2, "not a file")


def test_unreadable_config(scene: Scene) -> None:
    found = scene.run(["check", "pinned"], before="settle\nchmod 600 scripts/train/configs/pinned.env", prefix="$NOBODY")
    assert found.exit == 2 and "can't read the config" in found.err and "Permission denied" in found.err


def test_unknown_kind(run_pyz, shared_checkout: str) -> None:
    refuse(run_pyz(["check", "pinned", "--kind", "sft"], cwd=shared_checkout), 2, "no kind 'sft'", "train, eval, infer")
    refuse(run_pyz(["configs", "--kind", "sft"], cwd=shared_checkout), 2, "no kind 'sft'")


def test_kind_that_contradicts_the_path(run_pyz, shared_checkout: str) -> None:
    refuse(run_pyz(["check", "scripts/eval/configs/demo_eval.env", "--kind", "train"], cwd=shared_checkout), 2, "eval", "train")


def test_kind_that_nothing_tells(run_pyz, checkout: str, tmp_path: Path) -> None:
    config = tmp_path / "mine.env"
    config.write_text(BODY)
    refuse(run_pyz(["check", config], cwd=checkout), 2, "what kind of run", "--kind train|eval|infer")
    assert "YES" in run_pyz(["check", config, "--kind", "train", "-q"], cwd=checkout, is_boxed=True).stdout


def test_kind_that_the_names_tell_twice(run_pyz, checkout: str, tmp_path: Path) -> None:
    config = tmp_path / "mine.env"
    config.write_text("TRAINING_MODE=sync\nDATASET_PATH=/x\n# RESULTS_DIR=/only/a/comment\n" + BODY)
    done = run_pyz(["check", config], cwd=checkout)
    refuse(done, 2, "several kinds", "TRAINING_MODE", "DATASET_PATH")
    assert "infer" not in done.stderr.split("--kind")[0]


def test_kind_by_names(run_pyz, checkout: str, tmp_path: Path) -> None:
    config = tmp_path / "mine.env"
    config.write_text(OUTSIDE)
    assert "check — train" in run_pyz(["check", config], cwd=checkout).stdout


# ---- odd paths: what is printed for a shell must come through one

ODD = [
    "two words.env",
    "it's.env",
    'say "hi".env',
    "a$HOME.env",
    "back\\slash.env",
    "line\nbreak.env",
    "größe-模型.env",
    "-dash.env",
    "semi;colon&.env",
    "star*?.env",
    "#hash.env",
    "tab\t.env",
    "`date`.env",
    "~tilde.env",
    "not-utf8-\udcff.env",
    "a=b.env",
]


@pytest.mark.parametrize("name", ODD, ids=ascii)
def test_odd_config_names(scene: Scene, checkout: str, name: str) -> None:
    Path(checkout, "scripts/train/configs", name).write_text(BODY)
    found = scene.run(["check", "scripts/train/configs/" + name], root=checkout)
    assert found.exit == 0 and "SAFE TO RUN: ✓ YES — 0 blocking" in found.out, found.err
    line = next(line for line in (found.out.replace("line\nbreak", "line\0break")).split("\n") if line.startswith("Launch: "))
    words = shlex.split(line[len("Launch: "):].replace("\0", "\n"))
    assert os.fsencode(words[2]).endswith(os.fsencode(name)) or "\ufffd" in words[2] or "\\" in words[2]
    if "\udcff" not in name:
        assert words[2].lstrip("./") == "scripts/train/configs/" + name


@pytest.mark.parametrize("folder", ["two words", "it's", "a$b", "größe", "q\"q", "x;y"], ids=ascii)
def test_odd_checkout_paths(scene: Scene, tmp_path: Path, folder: str) -> None:
    root = build_checkout(tmp_path / folder)
    found = scene.check("pinned", root=root)
    assert found.blocking == [] and found.shape["root"] == root, found.err
    assert found.shape["plan"]["train_log"] == root + "/logs/pinned.log"


def test_config_in_a_folder_that_starts_with_a_dash(scene: Scene, checkout: str) -> None:
    os.mkdir(checkout + "/-x")
    Path(checkout, "-x/mine.env").write_text(OUTSIDE)
    assert scene.check("./-x/mine.env", root=checkout).blocking == []


# ---- what a config holds

def test_C1_crlf_in_one_line(scene: Scene, checkout: str) -> None:
    add_config(checkout, "train", "mine", "PROJECT_NAME=toy\nEXP_NAME=mine\r\n" + BODY.split("\n", 2)[2])
    found = scene.check("mine", root=checkout)
    told = details(found, "config:crlf")
    assert "line 2" in told and "EXP_NAME=mine\\r" in told and "\r" not in found.out.replace("\\r", "")
    assert "sed -i" in fixes(found, "config:crlf")


def test_C1_crlf_throughout(scene: Scene, checkout: str) -> None:
    add_config(checkout, "train", "mine", BODY.replace("\n", "\r\n"))
    found = scene.check("mine", root=checkout)
    assert found.exit == 1 and "preflight:died" in found.blocking and "config:crlf" in found.warnings


def test_C1_crlf_in_text_report(scene: Scene) -> None:
    found = scene.run(["check", "crlf"])
    assert "\r" not in found.out and "config:crlf" in found.out


def test_byte_order_mark(scene: Scene, checkout: str) -> None:
    add_config(checkout, "train", "mine", b"\xef\xbb\xbf" + BODY.encode())
    found = scene.check("mine", root=checkout)
    assert "config:bom" in found.warnings and "byte order mark" in details(found, "config:bom")
    add_config(checkout, "train", "mine", b"\xef\xbb\xbf" + OUTSIDE.encode())
    assert "config:bom" in scene.check("mine", root=checkout).warnings


@pytest.mark.parametrize(
    "line",
    [
        "MODEL_PATH=CHANGEME",
        "export TRAIN_FILES='/path/to/train.parquet'",
        "K8S_KUBECONFIG=CHANGE_ME",
        "HARBOR_NYDUS_MIRROR=YOUR_REGISTRY:5000",
    ],
)
def test_placeholder(scene: Scene, checkout: str, line: str) -> None:
    add_config(checkout, "train", "mine", "%s\n# MODEL_PATH=CHANGEME is the template's\n%s" % (line, BODY))
    found = scene.check("mine", root=checkout)
    assert details(found, "config:placeholder").count("\n") == 0 and "line 1" in details(found, "config:placeholder")


def test_config_of_somebody_else(scene: Scene) -> None:
    found = scene.check("pinned", before="settle\nchown 65534 scripts/train/configs/pinned.env")
    assert "belongs to nobody" in details(found, "config:foreign") and found.blocking == []
    found = scene.check("pinned", before="settle\nchmod 666 scripts/templates/verl/common.env")
    assert "verl/common.env is writable by everybody" in details(found, "config:foreign")
    found = scene.check("pinned", before="settle\nchmod 777 scripts/train/configs")
    assert "scripts/train/configs is writable by everybody" in details(found, "config:foreign")


def test_C3_values_are_the_runner_s_own(scene: Scene, checkout: str) -> None:
    """Bash reads the config, once, and rlrun never shows its own reading."""
    counter = checkout + "/counter"
    add_config(checkout, "train", "mine", BODY + (
        'A="x # y"\nB=x\\ y # comment\nC=${A}_z\nexport D=\'it\'"\'"\'s\'\nE=$(date +%%s)\necho once >>%s\nEXP_NAME="m # $C"\n'
        % shlex.quote(counter)))
    found = scene.check("mine", root=checkout)
    assert found.shape["plan"]["experiment"] == "m # x # y_z"
    assert Path(counter).read_text() == "once\n"


def test_C3_multi_line_values_make_no_names(scene: Scene) -> None:
    found = scene.check("spaces_value")
    assert found.blocking == [] and "two\\ words" in found.shape["plan"]["launch_command"]


def test_nul_byte_in_a_config(scene: Scene, checkout: str) -> None:
    add_config(checkout, "train", "mine", BODY.encode() + b"X=a\0b\n")
    found = scene.check("mine", root=checkout)
    assert found.shape["verdict"] in ("YES", "NO")


# ---- a dry run that misbehaves

def died(found: Found, *words: str) -> None:
    assert found.exit == 1 and found.blocking[0] == "preflight:died", found.shape.get("checks")
    for word in words:
        assert word in details(found, "preflight:died"), details(found, "preflight:died")


def test_dry_run_that_hangs(scene: Scene) -> None:
    found = scene.run([], command='"$PYTHON" "$PYZ" check hang --json --dry-run-timeout 0.5; code=$?; '
                                  'cat /proc/[0-9]*/cmdline | tr "\\0" " " >&2; exit $code')
    died(found, "no end within")
    assert "sleep 3600" not in found.err and "train.sh" not in found.err


def test_dry_run_that_ignores_sigterm(scene: Scene, checkout: str) -> None:
    add_config(checkout, "train", "mine", "trap '' TERM INT HUP\nsleep 4242\n" + BODY)
    found = scene.run([], root=checkout, command='"$PYTHON" "$PYZ" check mine --json --dry-run-timeout 0.3; code=$?; '
                                                 'cat /proc/[0-9]*/cmdline | tr "\\0" " " >&2; exit $code')
    died(found, "no end within")
    assert "sleep 4242" not in found.err


def test_dry_run_that_prints_50_mb(scene: Scene) -> None:
    died(scene.check("flood"), "more than")


def test_dry_run_that_prints_invalid_utf8(scene: Scene) -> None:
    found = scene.check("bad_utf8")
    assert found.blocking == [] and found.shape["plan"]["experiment"] == "bad_utf8"


def test_dry_run_that_leaves_a_child_on_its_pipe(scene: Scene) -> None:
    found = scene.run([], command='TOY_HOLD_SEC=599 "$PYTHON" "$PYZ" check holds_pipe --json; code=$?; '
                                  'cat /proc/[0-9]*/cmdline | tr "\\0" " " >&2; exit $code')
    assert (found.exit, found.blocking) == (0, []) and "sleep 599" not in found.err


def test_dry_run_that_dies_by_a_signal(scene: Scene) -> None:
    died(scene.check("killed"), "SIGKILL")


def test_dry_run_that_dies_of_bash(scene: Scene) -> None:
    found = scene.check("bash_error")
    died(found, "ended")
    assert "unexpected EOF" in found.shape["last_words"]


def test_dry_run_that_dies_before_the_preflight(scene: Scene) -> None:
    died(scene.check("died_early"))
    found = scene.run(["check", "died_early"])
    assert "no_such_module.env" in found.out and "SAFE TO RUN: ✗ NO" in found.out and "plan " not in found.out.split("\n")[0]


def test_dry_run_that_ends_well_but_says_nothing(scene: Scene, checkout: str) -> None:
    add_config(checkout, "train", "mine", "exit 0\n" + BODY)
    died(scene.check("mine", root=checkout), "ended 0")


def test_dry_run_that_clears_the_screen(scene: Scene, checkout: str) -> None:
    add_config(checkout, "train", "mine", "printf '\\033[2J\\033]0;x\\007\\rhello\\n'; exit 3\n" + BODY)
    found = scene.run(["check", "mine"], root=checkout)
    assert found.exit == 1 and not set("\x1b\x07\r") & set(found.out) and "hello" in found.out


def test_dry_run_reads_no_stdin(scene: Scene, checkout: str) -> None:
    add_config(checkout, "train", "mine", BODY + "read -r answer || answer=none\nEXP_NAME=got-$answer\n")
    found = scene.run([], root=checkout, command='echo typed | "$PYTHON" "$PYZ" check mine --json')
    assert found.shape["plan"]["experiment"] == "got-none"


def test_dry_run_with_fatal_lines_quotes_them(scene: Scene) -> None:
    found = scene.check("fatal")
    assert (found.exit, found.blocking) == (1, ["preflight:fatal"])
    assert "hermes" in details(found, "preflight:fatal")
    found = scene.run(["check", "fatal"])
    assert "1 blocking" in found.out and "Next steps" in found.out and "Launch:" not in found.out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_dry_run_is_ended(pyz: str, clean_env: Dict[str, str], checkout: str, number: int) -> None:
    """Exit 130, one line, and the dry run's group is gone."""
    add_config(checkout, "train", "mine", "echo $$ >%s/pid\nsleep 3599\n" % shlex.quote(checkout) + BODY)
    popen = subprocess.Popen([sys.executable, pyz, "check", "mine"], cwd=checkout, env=clean_env, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
                             preexec_fn=lambda: [signal.signal(one, signal.SIG_DFL) for one in (2, 15, 1)])
    await_(lambda: os.path.exists(checkout + "/pid") and Path(checkout, "pid").read_text().strip())
    popen.send_signal(number)
    out, err = popen.communicate(timeout=60)
    assert popen.returncode == 130 and out == "" and "interrupted; nothing was launched" in err and "Traceback" not in err
    group = int(Path(checkout, "pid").read_text())
    await_(lambda: not _is_group_alive(group))


def _is_group_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    return True


def await_(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# ---- streams and environment

def test_stdin_closed(scene: Scene) -> None:
    found = scene.run([], command='"$PYTHON" "$PYZ" check pinned --json <&-')
    assert (found.exit, found.blocking) == (0, [])


def test_all_streams_closed(scene: Scene) -> None:
    found = scene.run([], command='"$PYTHON" "$PYZ" check pinned <&- >&- 2>&-')
    assert (found.exit, found.out, found.err) == (0, "", "")


def test_stdout_closed_by_head(scene: Scene) -> None:
    found = scene.run([], command='set -o pipefail; { "$PYTHON" "$PYZ" check pinned; echo "code $?" >&2; } | head -1')
    assert "code 0" in found.err and "Traceback" not in found.err and "Broken pipe" not in found.err


def test_stdout_closed_at_once(scene: Scene) -> None:
    for words in ("check pinned", "configs", "probe", "check pinned --json", "--help", "version"):
        found = scene.run(
            [], command='{ await test ! -e /proc/self/fd/99; "$PYTHON" "$PYZ" %s; echo "code $?" >&2; } | true' % words
        )
        assert "code 0" in found.err and "Traceback" not in found.err and "Exception ignored" not in found.err, words


def test_stdout_closed_at_once_for_the_help_of_a_command(scene: Scene) -> None:
    found = scene.run(
        [], command='{ await test ! -e /proc/self/fd/99; "$PYTHON" "$PYZ" check --help; echo "code $?" >&2; } | true'
    )
    assert "code 0" in found.err and "Exception ignored" not in found.err


def test_stdout_on_a_full_disk(scene: Scene) -> None:
    found = scene.run([], command='"$PYTHON" "$PYZ" check pinned >/dev/full')
    assert "Traceback" not in found.err and "No space left" in found.err and found.exit == 5


def test_E3_c_locale(scene: Scene) -> None:
    found = scene.run([], command='env -i HOME="$HOME" PATH="$PATH" LC_ALL=C SP_SIZE=1 "$PYTHON" "$PYZ" check pinned')
    assert found.exit == 0 and "SAFE TO RUN: " in found.out and "YES" in found.out and "Traceback" not in found.err


@pytest.mark.parametrize("env", [{"LC_ALL": "C", "PYTHONIOENCODING": "ascii"}, {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0",
                                                                             "PYTHONUTF8": "0"},
                                 {"LC_ALL": "C.UTF-8", "PYTHONIOENCODING": "latin-1"}], ids=str)
def test_E3_ascii_output_with_an_umlaut_in_the_name(scene: Scene, checkout: str, env: Dict[str, str]) -> None:
    add_config(checkout, "train", "größe", BODY.replace("=mine", "=größe-▎—-模型"))
    found = scene.run(["check", "scripts/train/configs/größe.env"], root=checkout, env=env)
    if "PYTHONUTF8" in env:  # as Python 3.6 always is there: it can't name such a path
        assert found.exit == 5 and "LC_ALL" in found.err
        return
    assert found.exit == 0, found.err
    assert "run configuration" in found.out
    if env.get("PYTHONIOENCODING") != "latin-1":
        assert all(ord(letter) < 128 for letter in found.out)


def test_home_is_not_set(scene: Scene) -> None:
    found = scene.run([], command='env -u HOME "$PYTHON" "$PYZ" check pinned --json')
    assert (found.exit, found.blocking) == (0, [])


def test_empty_environment(scene: Scene) -> None:
    found = scene.run([], command='env -i "$PYTHON" "$PYZ" check pinned --json')
    assert found.exit in (0, 1) and found.shape["verdict"]


def test_E5_modules_of_the_library_s_names(scene: Scene, tmp_path: Path) -> None:
    """On PYTHONPATH and in the working directory; the runner still gets the operator's PYTHONPATH."""
    folder = tmp_path / "path"
    folder.mkdir()
    for module in ("json", "argparse", "signal", "subprocess", "typing", "platform", "logging", "hashlib", "re", "os"):
        (folder / (module + ".py")).write_text("raise SystemExit('shadowed: ' + __name__)\n")
    found = scene.run([], env={"P": str(folder)}, command=(
        'cd "$P"; PYTHONPATH="$P" "$PYTHON" "$PYZ" configs --root "$ROOT" --json'))
    assert found.exit == 0 and found.shape["configs"], found.err


def test_E5_pythonpath_reaches_the_runner(scene: Scene, checkout: str, tmp_path: Path) -> None:
    add_config(checkout, "train", "mine", BODY.replace("=mine", "=${PYTHONPATH%%:*}"))
    found = scene.check("mine", root=checkout, env={"PYTHONPATH": str(tmp_path)})
    assert found.blocking == [] and found.shape["plan"]["experiment"] == str(tmp_path)


@pytest.mark.parametrize("how", ["link", "renamed", "space", "read_only", "executed"])
def test_E7_the_file_wherever_it_lies(scene: Scene, tmp_path: Path, how: str) -> None:
    folder = tmp_path / ("with space" if how == "space" else "there")
    folder.mkdir()
    target = folder / ("rlrun" if how in ("renamed", "link") else "rlrun.pyz")
    if how == "link":
        os.symlink(scene.pyz, str(target))
    else:
        shutil.copy(scene.pyz, str(target))
        target.chmod(0o755)
    before = ""
    if how == "read_only":
        before = 'mount --bind "$F" "$F" && mount -o remount,ro,bind "$F"'
    command = '"$F/%s" check pinned' % target.name if how == "executed" else '"$PYTHON" "$F/%s" check pinned' % target.name
    found = scene.run([], before=before, command=command, env={"F": str(folder)})
    assert found.exit == 0, found.err
    line = next(line for line in found.out.split("\n") if line.startswith("Launch: "))
    words = shlex.split(line[len("Launch: "):])
    assert str(target) in words[:2]


# ---- git (C7), the root (C5), resuming (C9)

@pytest.mark.parametrize("script, words", [
    ("echo \"fatal: detected dubious ownership in repository at '/x'\" >&2; exit 128", "dubious ownership"),
    ("#!/no/such/interpreter", None), ("echo 'not a commit'", None), ("exit 1", None), ("kill -9 $$", None)])
def test_C7_git_that_fails(scene: Scene, script: str, words: str) -> None:
    write_fake_program(str(scene.fakes), "git", script)
    found = scene.check("pinned")
    assert (found.exit, found.shape["git"]["commit"]) == (0, None) and found.shape["git"]["reason"]
    assert words is None or words in found.shape["git"]["reason"]


def test_C7_no_git(scene: Scene, tmp_path: Path) -> None:
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    for name in ("bash", "python3", "env", "sort", "readlink", "dirname", "grep", "cat"):
        os.symlink(str(shutil.which(name, path="/usr/bin:/bin")), str(bin_ / name))
    found = scene.run([], command='PATH="$B" "$PYTHON" "$PYZ" check pinned --json', env={"B": str(bin_)})
    assert found.exit == 0 and found.shape["git"]["commit"] is None and found.shape["git"]["reason"]


def test_C5_through_links(scene: Scene, checkout: str, tmp_path: Path) -> None:
    """The checkout by a link, the config by a link from outside: one root, the real one."""
    os.symlink(checkout, str(tmp_path / "link"))
    os.symlink(checkout + "/scripts/train/configs/pinned.env", str(tmp_path / "mine.env"))
    by_link = scene.check(str(tmp_path / "link/scripts/train/configs/pinned.env"), root=checkout)
    from_outside = scene.run([], root=checkout, command='cd "%s/link" && "$PYTHON" "$PYZ" check "%s/mine.env" --json'
                                                        % (tmp_path, tmp_path))
    nowhere = scene.run([], root=checkout, command='cd / && "$PYTHON" "$PYZ" check "%s/mine.env" --json' % tmp_path)
    for found in (by_link, from_outside, nowhere):
        assert (found.shape["root"], found.shape["kind"], found.blocking) == (checkout, "train", []), found.err


def test_root_from_a_folder_inside(scene: Scene, checkout: str) -> None:
    found = scene.run([], root=checkout, command='cd scripts/train/configs && "$PYTHON" "$PYZ" check pinned.env --json')
    assert found.shape["root"] == checkout and found.shape["config"] == "scripts/train/configs/pinned.env"


def test_C9_resume_is_told(scene: Scene, checkout: str) -> None:
    folder = Path(checkout, "checkpoints/toy/pinned")
    folder.mkdir(parents=True)
    (folder / "latest_checkpointed_iteration.txt").write_text("40")
    found = scene.check("pinned", root=checkout)
    assert "step 40" in details(found, "resume:silent") and found.blocking == []


@pytest.mark.parametrize("content", [b"", b"\xff", b"forty", b"-1", b"0"])
def test_C9_odd_checkpoint_mark(scene: Scene, checkout: str, content: bytes) -> None:
    folder = Path(checkout, "checkpoints/toy/pinned")
    folder.mkdir(parents=True)
    (folder / "latest_checkpointed_iteration.txt").write_bytes(content)
    assert scene.check("pinned", root=checkout).exit == 0


def test_old_log_is_told(scene: Scene, checkout: str) -> None:
    os.mkdir(checkout + "/logs")
    Path(checkout, "logs/pinned.log").write_text("step:1\n")
    found = scene.check("pinned", root=checkout)
    assert "7 bytes" in details(found, "log:overwrite")
    text = scene.run(["check", "pinned"], root=checkout).out
    assert "--old-log keep" in text


def test_import_that_the_runner_needs(scene: Scene, checkout: str) -> None:
    shutil.rmtree(checkout + "/stubs/veomni")
    found = scene.check("pinned", root=checkout)
    assert found.blocking == ["import:missing"] and "veomni" in details(found, "import:missing")


def test_import_that_the_run_should_find(scene: Scene, checkout: str) -> None:
    shutil.rmtree(checkout + "/stubs/wandb")
    found = scene.check("pinned", root=checkout)
    assert found.blocking == [] and "wandb" in details(found, "import:degraded")


# ---- a check changes nothing

CONFIGS = [
    "pinned",
    "demo",
    "fatal",
    "died_early",
    "two_nodes",
    "secret",
    "flood",
    "holds_pipe",
    "off_repo_log",
    "demo_eval",
    "demo_infer",
    "bash_error",
]


def test_check_changes_nothing(scene: Scene, tmp_path: Path) -> None:
    root = build_checkout(tmp_path / "checkout", git=True)
    home = scene.env["HOME"]
    before = hash_tree(root), hash_tree(home)
    script = "".join('"$PYTHON" "$PYZ" check %s >/dev/null; ' % config for config in CONFIGS)
    scene.run([], root=root, command=script + '"$PYTHON" "$PYZ" check pinned --structure-only; "$PYTHON" "$PYZ" nodes two_nodes; '
              '"$PYTHON" "$PYZ" configs; "$PYTHON" "$PYZ" probe; "$PYTHON" "$PYZ" runs; ls -A /dev/shm >&2')
    after = hash_tree(root), hash_tree(home)
    assert [path for old, new in zip(before, after) for path in set(old) | set(new) if old.get(path) != new.get(path)] == []


def test_check_works_on_a_read_only_checkout(scene: Scene) -> None:
    found = scene.check("pinned", before='settle\nmount --bind "$ROOT" "$ROOT" && mount -o remount,ro,bind "$ROOT"; cd "$ROOT"')
    assert found.blocking == [] and "read-only" in details(found, "disk:unwritable")


# ---- the core under every Python; `check --json`, `run` and `runs` are in test_run_launch.py's whole life, `version`,
# `explain` and the help in test_build.py and test_explain.py

CORE = r"""
export LC_ALL=C
run() { env -i HOME="$HOME" PATH="$PATH" LC_ALL=C SP_SIZE=1 "$P" "$PYZ" "$@"; echo "code $?"; }
run check pinned
run check fatal
run check
run nodes two_nodes
run configs --json
run probe
"""
REST = r"""
run check pinned --json
run check demo_eval -q
run runs
run version
run explain gpu:foreign
run check --help
"""


def test_core_under_the_oldest_and_the_newest_python(scene: Scene, quicken: Callable[[str], str], edge_python: str) -> None:
    write_fake_program(str(scene.fakes), "hostname", "echo 10.0.0.5")
    write_fake_program(str(scene.fakes), "getent", 'echo "$2 node1"')
    found = scene.run([], command=CORE, env={"P": edge_python, "PYZ": quicken(edge_python)})
    codes = [line for line in found.out.split("\n") if line.startswith("code ")]
    assert codes == ["code %d" % code for code in (0, 1, 2, 0, 0, 0)], found.out + found.err
    assert "Traceback" not in found.out + found.err and "Warning" not in found.err
    assert "SAFE TO RUN" in found.out and ("3.6." not in edge_python or all(ord(letter) < 128 for letter in found.out))


def test_rest_under_the_oldest_and_the_newest_python(scene: Scene, pyz: str, edge_python: str) -> None:
    found = scene.run([], command=CORE.partition("run check")[0] + REST, env={"P": edge_python, "PYZ": pyz})
    assert found.out.split("\n").count("code 0") == 6, found.out + found.err
    assert "Traceback" not in found.out + found.err and "Warning" not in found.err
    assert "SAFE TO RUN" in found.out and ("3.6." not in edge_python or all(ord(letter) < 128 for letter in found.out))


def test_modes_of_the_file(pyz: str) -> None:
    assert os.stat(pyz).st_mode & stat.S_IXUSR
