import io
import os
import pty
import select
import subprocess
import sys

import pytest

from rlrun.text import terminal
from rlrun.text.terminal import Terminal

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LOUD = Terminal(color=False, is_quiet=False, is_json=False, is_interactive=False)
QUIET = LOUD._replace(is_quiet=True)
MAKE = "from rlrun.text import terminal as T; t = T.make_terminal('auto', False, False); "


def run_code(code, **options):
    options.setdefault("env", {"PYTHONPATH": ROOT, "LC_ALL": "C.UTF-8"})
    return subprocess.run([sys.executable, "-c", MAKE + code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def run_at_terminal(code, typed=b"", until=b"", env=(), redirect=""):
    """Runs code with a terminal as stdin, stdout and stderr; types once `until` was shown; gives (output, status)."""
    pid, fd = pty.fork()
    if pid == 0:
        command = '"$0" -c "$1" ' + redirect
        environ = dict({"PYTHONPATH": ROOT, "LC_ALL": "C.UTF-8", "TERM": "xterm", "PATH": "/usr/bin:/bin"}, **dict(env))
        os.execve("/bin/sh", ["sh", "-c", command, sys.executable, MAKE + code], environ)
    output = b""
    while True:
        if typed and until in output:
            os.write(fd, typed)
            typed = b""
        if not select.select([fd], [], [], 30)[0]:
            raise AssertionError("silent for 30 s after %r" % output)
        try:
            chunk = os.read(fd, 4096)
        except OSError:  # EIO: the other side is closed
            break
        if not chunk:
            break
        output += chunk
    os.close(fd)
    return output.decode("utf-8", "replace"), os.waitpid(pid, 0)[1]


def test_results_go_to_stdout_and_notes_to_stderr(capsys):
    terminal.print_result(LOUD, "result")
    terminal.print_note(LOUD, "note\n")
    terminal.print_note(QUIET, "silent")
    terminal.print_result(QUIET, "still")
    terminal.print_error(QUIET, "error")
    assert capsys.readouterr() == ("result\nstill\n", "note\nerror\n")


@pytest.mark.parametrize("encoding", ["ascii", "ascii:strict", "latin-1", "utf-8", "utf-16"])
def test_output_fits_the_stream(encoding):
    """E3"""
    done = run_code("T.print_result(t, '\\u2717 L\\xe4uf \\udce9 \\u258e'); T.print_note(t, '\\u2014')",
                    env={"PYTHONPATH": ROOT, "PYTHONIOENCODING": encoding, "LC_ALL": "C"})
    assert done.returncode == 0 and b"Traceback" not in done.stderr
    if encoding.startswith("ascii"):
        assert done.stdout == b"x L\\xe4uf \\xe9 |\n" and done.stderr == b"-\n"


@pytest.mark.parametrize("encoding,answers", [("ascii", b"True False False\n"), ("latin-1", b"True True False\n"),
                                              ("utf-8", b"True True True\n")])
def test_a_line_to_paste_is_known_to_fit(encoding, answers):
    done = run_code("print(T.can_print('a%'), T.can_print('L\xe4uf'), T.can_print('\u2014'))",
                    env={"PYTHONPATH": ROOT, "PYTHONIOENCODING": encoding, "LC_ALL": "C"})
    assert done.stdout == answers


def test_a_reader_that_left_changes_nothing():
    """`rlrun runs | head -1`"""
    code = "import sys\nfor n in range(20000): T.print_result(t, 'x' * 99)\nT.print_note(t, 'done'); sys.exit(3)"
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-c", MAKE + "\n" + code], stdout=writing, stderr=subprocess.PIPE,
                          env={"PYTHONPATH": ROOT})
    os.close(writing)
    assert (done.returncode, done.stderr) == (3, b"done\n")


def test_a_full_disk_is_said_once():
    code = ("\nimport sys\nfrom rlrun.errors import OperatorError\nfor _ in range(3):\n  try: T.print_result(t, 'x')\n"
            "  except OperatorError as error: sys.stderr.write('%d %s\\n' % (error.code, error.message))\n")
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", MAKE + code], stdout=full,
                              stderr=subprocess.PIPE, env={"PYTHONPATH": ROOT, "LC_ALL": "C.UTF-8"})
    assert done.returncode == 0
    assert done.stderr.decode() == "5 the output could not be written: No space left on device\n"


@pytest.mark.parametrize("closing", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_closed_at_the_start(closing):
    """S15"""
    code = MAKE + "T.print_result(t, 'r'); T.print_note(t, 'n'); assert T.ask(t, 'q?') is None; assert not t.is_interactive"
    done = subprocess.run(["/bin/sh", "-c", '"$0" -c "$1" ' + closing, sys.executable, code], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={"PYTHONPATH": ROOT})
    assert done.returncode == 0 and b"Traceback" not in done.stderr


def test_a_stream_closed_since(monkeypatch):
    stream = io.StringIO()
    stream.close()
    monkeypatch.setattr(sys, "stdout", stream)
    terminal.print_result(LOUD, "x")
    assert not terminal.make_terminal("auto", False, False).color


def test_paint():
    assert terminal.paint(LOUD._replace(color=True), "x", "red") == "\x1b[31mx\x1b[0m"
    assert terminal.paint(LOUD, "x", "red") == "x"
    assert terminal.paint(LOUD._replace(color=True), "", "red") == ""


@pytest.mark.parametrize("choice,env,is_colored", [
    ("auto", {}, True), ("auto", {"NO_COLOR": "1"}, False), ("auto", {"NO_COLOR": ""}, True), ("auto", {"TERM": "dumb"}, False),
    ("auto", {"TERM": ""}, False), ("never", {}, False), ("always", {"NO_COLOR": "1", "TERM": "dumb"}, True)])
def test_colour_at_a_terminal(choice, env, is_colored):
    output, _ = run_at_terminal("print(T.make_terminal(%r, False, False).color)" % choice, env=env)
    assert output.split() == [str(is_colored)]


def test_no_colour_in_a_pipe_nor_in_json():
    assert run_code("print(t.color, T.make_terminal('always', False, True).color)").stdout == b"False False\n"


def test_colour_for_the_terminal_does_not_reach_a_file(tmp_path):
    log = tmp_path / "log"
    run_at_terminal("T.print_note(t, T.paint(t, 'x', 'red'))", redirect="2>'%s'" % log)
    assert log.read_text() == "x\n"


def test_a_question_and_its_answer():
    output, status = run_at_terminal("print([t.is_interactive, T.ask(t, 'go? ')])", b"3f9c2a71\n", b"go? ")
    assert "[True, '3f9c2a71']" in output and status == 0


@pytest.mark.parametrize("typed", [b"\x04", b"ye\x04\x04"])
def test_the_end_of_input_is_no_answer(typed):
    output, status = run_at_terminal("print([T.ask(t, 'go? ')])", typed, b"go? ")
    assert "[None]" in output and status == 0


def test_ctrl_c_passes_through():
    code = "\ntry:\n    T.ask(t, 'go? ')\nexcept KeyboardInterrupt:\n    print('interrupted')"
    assert "interrupted" in run_at_terminal(code, b"\x03", b"go? ")[0]


def test_the_question_is_seen_with_stderr_in_a_file(tmp_path):
    output, _ = run_at_terminal("print([T.ask(t, 'go? ')])", b"yes\n", b"go? ", redirect="2>'%s'" % (tmp_path / "log"))
    assert "go? " in output and "['yes']" in output
    assert "go?" not in (tmp_path / "log").read_text()


def test_bytes_that_are_no_text_are_an_answer_all_the_same():
    assert "[True]" in run_at_terminal("print([T.ask(t, 'go? ').startswith('a')])", b"a\xff\n", b"go? ")[0]


@pytest.mark.parametrize("prefix", ["setsid -w", "timeout 20"])
def test_a_process_that_left_the_terminal_asks_nobody(prefix):
    """Its stdin is the terminal still, but what is typed there is meant for the shell."""
    code = "import subprocess, sys; subprocess.call(%r.split() + [sys.executable, '-c', %r])" % (
        prefix, MAKE + "print(t.is_interactive)")
    assert run_at_terminal(code)[0].split() == ["False"]


def test_no_terminal_no_question():
    assert run_code("print(t.is_interactive, T.ask(t, 'q? '))", stdin=subprocess.DEVNULL).stdout == b"False None\n"
