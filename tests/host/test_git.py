"""The revision: real repositories, and a fake git first on PATH for what goes wrong."""
import hashlib
import os
import subprocess

import pytest

from rlrun.host import git

ODD = 'o d"d\nnäme'


def read_git(root, timeout_seconds=10):
    return git.finish_git(git.start_git(root), timeout_seconds)


@pytest.fixture(autouse=True)
def own_settings(tmp_path, monkeypatch):
    """No settings of this machine: a home of its own, and no variables of a git around us."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)


@pytest.fixture
def repo(tmp_path):
    root = tmp_path / "repo"
    root.mkdir()
    run_git(root, "init", "-q")
    run_git(root, "symbolic-ref", "HEAD", "refs/heads/work/x")
    for name in ("plain", "other", ODD):
        (root / name).write_text("one\n")
    commit(root)
    return root


def run_git(root, *words):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    return subprocess.check_output(["git", "-C", str(root)] + identity + list(words), universal_newlines=True).strip()


def commit(root):
    run_git(root, "add", "-A")
    run_git(root, "commit", "-qm", "x")


def use_fake_git(tmp_path, monkeypatch, body):
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "git").write_text("#!/bin/sh\n" + body)
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", "%s:%s" % (folder, os.environ["PATH"]))


def snapshot(root):
    """Digest and times of everything in a folder."""
    found = {}
    for folder, names, files in os.walk(str(root)):
        for name in names + files:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            content = b"" if os.path.isdir(path) else open(path, "rb").read()
            found[path] = (status.st_mtime, status.st_ino, hashlib.sha256(content).hexdigest())
    return found


def test_a_clean_checkout(repo):
    (repo / "untracked").write_text("")
    found = read_git(str(repo))
    assert found == (run_git(repo, "rev-parse", "HEAD"), "work/x", (), "", "")


def test_a_detached_head(repo):
    run_git(repo, "checkout", "-q", "--detach")
    assert read_git(str(repo)).branch == "detached"


def test_dirty_files_of_all_kinds(repo):
    (repo / ODD).write_text("two\n")
    (repo / "plain").unlink()
    (repo / "added").write_text("x")
    run_git(repo, "add", "added")
    run_git(repo, "mv", "other", "moved")
    found = read_git(str(repo))
    assert found.dirty == tuple(sorted(["added", "moved", "other", "plain", ODD]))
    assert len(found.dirty_digest) == 64 and found.reason == ""


def test_the_digest_follows_the_content_and_nothing_else(repo):
    lines = "".join("%d\n" % number for number in range(40))
    (repo / "plain").write_text(lines)
    commit(repo)
    (repo / "plain").write_text(lines.replace("20\n", "two\n"))
    first = read_git(str(repo))
    os.utime(str(repo / "other"), (1, 1))  # touched, the same
    run_git(repo, "config", "diff.noprefix", "true")
    run_git(repo, "config", "diff.context", "7")
    assert read_git(str(repo)) == first
    run_git(repo, "add", "plain")
    assert read_git(str(repo)).dirty_digest == first.dirty_digest
    (repo / "plain").write_text(lines.replace("20\n", "three\n"))
    assert read_git(str(repo)).dirty_digest not in ("", first.dirty_digest)


def test_binary_files_and_modes_count(repo):
    (repo / "plain").write_bytes(b"\0\1")
    first = read_git(str(repo)).dirty_digest
    (repo / "plain").write_bytes(b"\0\2")
    second = read_git(str(repo)).dirty_digest
    (repo / "plain").chmod(0o755)
    assert len({first, second, read_git(str(repo)).dirty_digest, ""}) == 4


def test_nothing_is_written_also_not_the_index(repo):
    (repo / "plain").write_text("two\n")
    os.utime(str(repo / "other"), (1, 1))  # plain `git diff` would refresh the index because of it
    before = snapshot(repo)
    read_git(str(repo))
    assert snapshot(repo) == before


def test_no_program_of_the_repository_is_run(repo):
    trace = repo.parent / "ran"
    program = repo.parent / "program"
    program.write_text("#!/bin/sh\ntouch '%s'\n" % trace)
    program.chmod(0o755)
    for key in ("core.fsmonitor", "diff.external", "core.pager", "diff.tc.textconv", "diff.tc.command"):
        run_git(repo, "config", key, str(program))
    hook = repo / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ntouch '%s'\n" % trace)
    hook.chmod(0o755)
    (repo / ".gitattributes").write_text("plain diff=tc\n")
    (repo / "plain").write_text("two\n")
    if trace.exists():
        trace.unlink()  # the settings above may have run it already
    assert read_git(str(repo)).dirty == ("plain",)
    assert not trace.exists()


def test_variables_of_a_surrounding_git_are_not_believed(repo, monkeypatch, tmp_path):
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "none"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "false")
    (repo / "plain").write_text("two\n")
    found = read_git(str(repo))
    assert (found.dirty, found.reason) == (("plain",), "")


def test_no_commit_yet(tmp_path):
    subprocess.check_call(["git", "init", "-q", str(tmp_path / "new")])
    found = read_git(str(tmp_path / "new"))
    assert (found.commit, found.reason) == ("", "no commit yet")


def test_no_repository(tmp_path):
    found = read_git(str(tmp_path / "home"))
    assert (found.commit, found.reason) == ("", "not a git repository")


@pytest.mark.parametrize("name", ["inner", "in:ner"])
def test_a_folder_inside_another_repository(repo, name):
    (repo / name).mkdir()
    found = read_git(str(repo / name))
    assert found.commit == ""
    assert found.reason == "not a repository of its own (it lies inside %s)" % os.path.realpath(str(repo))


def test_a_checkout_reached_by_a_link_and_a_linked_worktree(repo, tmp_path):
    os.symlink(str(repo), str(tmp_path / "link"))
    run_git(repo, "worktree", "add", "-q", "-b", "second", str(tmp_path / "tree"))
    assert read_git(str(tmp_path / "link")).branch == "work/x"
    assert read_git(str(tmp_path / "tree")).branch == "second"


def test_C7_dubious_ownership_for_real(repo):
    if os.geteuid() != 0:
        pytest.skip("needs root to give a repository away")
    for folder, _, files in os.walk(str(repo)):
        for name in [folder] + [os.path.join(folder, name) for name in files]:
            os.chown(name, 54321, -1)
    found = read_git(str(repo))
    if found.commit:
        pytest.skip("this git does not look at the owner")
    assert "dubious ownership" in found.reason
    assert "git config --global --add safe.directory %s" % os.path.realpath(str(repo)) in found.reason


@pytest.mark.parametrize("message", ["fatal: detected dubious ownership in repository at '/x'",
                                     "fatal: unsafe repository ('/x' is owned by someone else)"])
def test_C7_dubious_ownership_as_git_says_it(tmp_path, monkeypatch, message):
    use_fake_git(tmp_path, monkeypatch, 'echo "%s" >&2; exit 128\n' % message)
    found = read_git(str(tmp_path))
    assert found.commit == "" and "safe.directory" in found.reason


def test_C7_no_git_at_all(repo, monkeypatch):
    monkeypatch.setenv("PATH", str(repo))
    found = read_git(str(repo))
    assert (found.commit, found.reason) == ("", "git is not on PATH")


def test_C7_git_that_hangs(repo, tmp_path, monkeypatch):
    use_fake_git(tmp_path, monkeypatch, "exec sleep 100\n")
    found = read_git(str(repo), timeout_seconds=0.2)
    assert found.commit == "" and "no end within" in found.reason


def test_C7_a_git_that_fails_otherwise_is_quoted(repo, tmp_path, monkeypatch):
    use_fake_git(tmp_path, monkeypatch, "echo 'fatal: index file corrupt' >&2; exit 128\n")
    assert read_git(str(repo)).reason == "git ended 128: fatal: index file corrupt"


def test_a_diff_that_fails_keeps_the_commit(repo, tmp_path, monkeypatch):
    real = subprocess.check_output(["sh", "-c", "command -v git"], universal_newlines=True).strip()
    use_fake_git(tmp_path, monkeypatch, 'case " $* " in *" diff "*) echo bad >&2; exit 1;; esac; exec %s "$@"\n' % real)
    (repo / "plain").write_text("two\n")
    found = read_git(str(repo))
    assert found.commit and found.dirty == ("plain",) and found.dirty_digest == ""
    assert found.reason == "the diff could not be read: git ended 1: bad"


def test_an_answer_that_waited_longer_than_the_limit_still_counts(repo):
    handle = git.start_git(str(repo))
    handle.status.popen.wait()
    handle.diff.popen.wait()
    late = [running._replace(started=running.started - 1000) for running in (handle.status, handle.diff)]
    found = git.finish_git(handle._replace(status=late[0], diff=late[1]), timeout_seconds=10)
    assert found.branch == "work/x"
