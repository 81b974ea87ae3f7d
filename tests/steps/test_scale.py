"""What a look costs where there is much to look at, counted in the files that it opens: never in seconds."""
import collections
import json
import os

import pytest

from rlrun.host import procs
from rlrun.steps import estimate, records

COUNT = 400


@pytest.fixture
def opened(monkeypatch):
    """How often each file's name was opened, by os.open."""
    found = collections.Counter()
    real = os.open

    def count(path, *words, **named):
        found[os.path.basename(os.fspath(path))] += 1
        return real(path, *words, **named)
    monkeypatch.setattr(os, "open", count)
    return found


@pytest.fixture
def checkout(tmp_path):
    """Many recorded launches, the oldest ten of the plan `aaaa0000`, and of these all but the oldest never started."""
    for number in range(COUNT):
        folder = tmp_path / records.FOLDER / ("20260101-%06d-train-x" % number)
        folder.mkdir(parents=True)
        is_wanted = number < 10
        record = {"id": folder.name, "digest": "aaaa0000" if is_wanted else "bbbb%04d" % number, "time_seconds": 1000.0 + number,
                  "kind": "train", "config": "x", "project": "p", "train_log": "", "argv": ["aaaa000"],
                  "runner": None if 0 < number < 10 else {"pid": 7, "start_ticks": 8, "pgid": 7, "keeper": 6}}
        (folder / "record.json").write_text(json.dumps(record))
        (folder / "exit.json").write_text(json.dumps({"status": 0, "duration_seconds": 5.0 + number}))
    return str(tmp_path)


def test_a_launched_plan_is_found_among_many_by_one_look_at_each(checkout, opened):
    found = records.find_launched(checkout, "aaaa0000")
    assert found is not None and found["id"] == "20260101-000000-train-x"
    assert opened["record.json"] == COUNT + 10 and opened["exit.json"] == 10 and sum(opened.values()) <= COUNT + 60
    assert records.find_launched(checkout, "aaaa000") is None, "a part of a digest, or a word of it elsewhere, is no digest"
    assert records.find_launched(checkout, "") is None


def test_a_guess_reads_the_newest_records_alone(checkout, opened):
    plan = collections.namedtuple("plan", "root kind config_shown project experiment train_log")(
        checkout, "train", "x", "p", "", "")
    assert estimate.estimate_run(plan) == 5.0 + COUNT - 1
    assert opened["record.json"] == estimate._RECORDS < COUNT
    opened.clear()
    assert estimate.find_project_logs(plan) == ()
    assert opened["record.json"] == estimate._RECORDS


def test_the_newest_of_many_are_read_alone(checkout, opened):
    assert [one["id"][9:15] for one in records.list_records(checkout, 3)] == ["000399", "000398", "000397"]
    assert opened["record.json"] == 3


def test_a_process_costs_two_files(tmp_path, opened):
    """Its stat and its command line; the user is its folder's."""
    row = "%d (sleep) S 1 1 1 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 12345 1 1 1"
    for pid in range(1, COUNT + 1):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(row % pid)
        (tmp_path / str(pid) / "cmdline").write_bytes(b"sleep\x00100\x00")
    (tmp_path / "uptime").write_text("1000.0 1.0\n")
    found = procs.read_processes(str(tmp_path))
    assert len(found) == COUNT and found[COUNT].argv == ("sleep", "100")
    assert opened == {"stat": COUNT, "cmdline": COUNT, "uptime": 1}
