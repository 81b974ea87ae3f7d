"""Folders that a team shares."""
import os
import stat

import pytest

from rlrun.host import files


@pytest.fixture(autouse=True)
def umask():
    old = os.umask(0o022)
    yield
    os.umask(old)


@pytest.mark.parametrize("above, made", [(0o755, 0o755), (0o775, 0o775), (0o2775, 0o2775), (0o1777, 0o1777), (0o777, 0o1777),
                                         (0o700, 0o755)])
def test_who_may_write_above_may_write_in_what_is_made(tmp_path, above, made):
    top = tmp_path / "logs"
    top.mkdir()
    top.chmod(above)
    files.make_folder(str(top / "rlrun" / "plans"))
    assert [stat.S_IMODE((top / name).stat().st_mode) for name in ("rlrun", "rlrun/plans")] == [made, made]
    assert stat.S_IMODE(top.stat().st_mode) == above, "what was there stays as it is"
    files.make_folder(str(top / "rlrun" / "plans"))


def test_a_file_in_the_way_is_an_error(tmp_path):
    (tmp_path / "logs").write_text("")
    with pytest.raises(OSError):
        files.make_folder(str(tmp_path / "logs" / "rlrun"))
