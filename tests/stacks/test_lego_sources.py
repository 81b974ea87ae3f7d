"""What a config's text says before anything runs it."""
import os

import pytest

from rlrun.stacks.lego_sources import find_names, read_sources


def sources(tmp_path, text, environment=(), inherited=(), templates=()):
    (tmp_path / "c.env").write_text(text)
    return read_sources(
        str(tmp_path / "c.env"), [str(tmp_path / name) for name in templates], dict(environment), str(tmp_path), inherited
    )


@pytest.mark.parametrize(
    "text, names",
    [
        ("A=1\n", {"A"}),
        ("export A=1", {"A"}),
        ("declare -x A=1", {"A"}),
        ("  A=1 # B=2", {"A"}),
        ("# A=1\n#B=2\n", set()),
        (': "${A:=1}" "${B=2}"', {"A", "B"}),
        ("A=1; B=2", {"A", "B"}),
        ("A+=1", {"A"}),
        ("[ x ] && A=1", {"A"}),
        ("A=(x y)\n", {"A"}),
        ("echo A=1\n", set()),
        ("A=${B:-2}\n", {"A"}),
        ("A=x#y\n", {"A"}),
        ("export A=1 B='2 C=3' D=4", {"A", "B", "D"}),
        ("if x; then A=1; else B=2; fi", {"A", "B"}),
        ("case x in a) A=1 ;; esac", {"A"}),
        ("readonly -g A=1", {"A"}),
        ("f() { A=1; }", {"A"}),
        ("x || A=1", {"A"}),
        ('A="$(echo "B=2")"; C=3', {"A", "C"}),
        ('A="open\nB=2\n', {"A", "B"}),
        ("A=a\\ b B=2", {"A", "B"}),
        ("A='it\\' B=2", {"A", "B"}),
        ("A=${X:=3}\n", {"A", "X"}),
    ],
)
def test_names(text, names):
    assert find_names(text) == names


@pytest.mark.parametrize(
    "text, changing",
    [
        ("A=$(date +%s)\n", {"A"}),
        ("A=`date`\n", {"A"}),
        ("A=x-$RANDOM\n", {"A"}),
        ("A=${EPOCHSECONDS}\n", {"A"}),
        ("A=$$\n", {"A"}),
        ("A=$(uuidgen)\n", {"A"}),
        ("A=$(cat /proc/sys/kernel/random/uuid)\n", {"A"}),
        ("A=$(python3 -c 'import uuid; print(uuid.uuid4())')\n", {"A"}),
        ("A=$(date)\nB=x-$A\nC=${B}_z\n", {"A", "B", "C"}),
        ("A=$(date)\nA=fixed\n", set()),
        ("A=fixed\nA=$(date)\n", {"A"}),
        ("A=1\nB=$A\n", set()),
        ("# A=$(date)\n", set()),
        (': "${A:=$(date)}"\n', {"A"}),
        ('A=fixed\n: "${A:=$(date)}"\n', set()),
        ("A=${A:-$(date)}\n", {"A"}),
        ("A=$(date)\nA=$A-x\n", {"A"}),
        ("A=update_x\n", set()),
        (': "${A:=1}" "${B:=$(date)}"\n', {"B"}),
        (': "${A:=x-$(date +%s)}" "${B:=1}"\n', {"A"}),
        ("A=1 B=$(date)\n", {"B"}),
        ("A=x; B=$(date); C=y\n", {"B"}),
        ("A=x # $(date)\n", set()),
    ],
)
def test_what_changes_at_every_run(tmp_path, text, changing):
    assert set(sources(tmp_path, text).changing) == changing


def test_what_the_environment_gives_keeps_its_value(tmp_path):
    text = ': "${A:=$(date)}"\nB="${B:-$(date)}"\nC=$(date)\n'
    assert set(sources(tmp_path, text, inherited=["A", "B", "C"]).changing) == {"C"}


@pytest.mark.parametrize(
    "line",
    [
        'source "%s/b.env"',
        ". %s/b.env",
        "[ -f x ] && source '%s/b.env'",
        "if true; then source %s/b.env; fi",
        'source "$SITE/b.env"',
        'source "${SITE}/b.env" || true',
        'source "$(dirname "${BASH_SOURCE[0]}")/b.env"',
        "source b.env",
        'source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/b.env"',
        'source $(dirname $BASH_SOURCE)/b.env; C="${B}"',
    ],
)
def test_sourced_files_are_followed(tmp_path, line):
    (tmp_path / "b.env").write_text("B=$(date)\n")
    found = sources(tmp_path, (line % tmp_path if "%s" in line else line) + "\n", {"SITE": str(tmp_path)})
    assert found.files == (str(tmp_path / "c.env"), str(tmp_path / "b.env")) and found.unread == ()
    assert "B" in found.set_names and "B" in found.changing


@pytest.mark.parametrize("line, word", [('source "$(find_it)"', '"$(find_it)"'), ('source "$UNKNOWN/x.env"', '"$UNKNOWN/x.env"')])
def test_sourced_files_that_only_bash_could_find(tmp_path, line, word):
    assert sources(tmp_path, line + "\n").unread == (word,)


def test_a_sourced_file_that_is_not_there_is_one_that_was_tested_for(tmp_path):
    found = sources(tmp_path, "[ -f /no/such ] && source /no/such\n")
    assert found.unread == () and "/no/such" in found.files  # should it come, that is a change


@pytest.mark.parametrize("line", ['. "$SITE"/b.env', "source ~/b.env", "{ source b.env; }", "if source b.env; then :; fi",
                                  "! source b.env", "( . b.env )", "source 'b'.env", 'source b"."env', "source ${NONE:-b.env}",
                                  "builtin source b.env", "source -- b.env"])
def test_every_way_to_write_a_source(tmp_path, line):
    (tmp_path / "b.env").write_text("B=1\n")
    found = sources(tmp_path, line + "\n", {"SITE": str(tmp_path), "HOME": str(tmp_path)})
    assert found.files[1:] == (str(tmp_path / "b.env"),) and found.unread == ()


@pytest.mark.parametrize("text", ['for f in d e; do source "$f"; done\n', 'f=d; source $f; f=e; source $f\n', "source *.env\n",
                                  "source <(cat b.env)\n", "source {a,b}.env\n"])
def test_a_source_that_moves_is_told(tmp_path, text):
    assert sources(tmp_path, text, {"f": "e"}).unread


def test_what_is_sourced_counts_at_its_place(tmp_path):
    (tmp_path / "pin.site").write_text("EXP_NAME=fixedname\n")
    assert sources(tmp_path, "EXP_NAME=x-$(date +%s)\nsource pin.site\n").changing == ()
    assert sources(tmp_path, "source pin.site\nEXP_NAME=x-$(date +%s)\n").changing == ("EXP_NAME",)


@pytest.mark.parametrize("value", ["$(TZ=Asia/Shanghai date +%F)", "$(/bin/date)", "`env TZ=UTC date`", "$(command date)"])
def test_a_date_by_another_road(tmp_path, value):
    assert sources(tmp_path, "EXP_NAME=x-%s\n" % value).changing == ("EXP_NAME",)


def test_a_terminal_or_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(str(tmp_path / "pipe"))
    assert sources(tmp_path, "source /dev/stdin <<< 'A=1'\nsource pipe\n").unread == ("/dev/stdin", str(tmp_path / "pipe"))


def test_circles_end(tmp_path):
    (tmp_path / "b.env").write_text("source c.env\nB=1\n")
    assert len(sources(tmp_path, "source b.env\nsource c.env\nA=1\n").files) == 2


def test_templates_come_after_and_do_not_overrule(tmp_path):
    (tmp_path / "t.env").write_text(': "${A:=$(date)}" "${T:=1}"\n')
    found = sources(tmp_path, "A=fixed\n", templates=["t.env", "gone.env"])
    assert found.set_names == ("A", "T") and found.changing == () and found.unread == ()
    assert found.files == (str(tmp_path / "c.env"), str(tmp_path / "t.env"), str(tmp_path / "gone.env"))


def test_text_that_is_not_utf8(tmp_path):
    (tmp_path / "c.env").write_bytes(b"A=\xff\xfe\nB=1\n")
    assert read_sources(str(tmp_path / "c.env"), [], {}, str(tmp_path), []).set_names == ("A", "B")
