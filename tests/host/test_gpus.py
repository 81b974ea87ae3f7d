"""nvidia-smi: the parsers on what it prints on odd days, the queries against fake programs that are really run."""
import os
import signal
import stat
import time
from pathlib import Path
from typing import Callable, Dict, List, Optional

import pytest

from rlrun import child
from rlrun.host import gpus, procs
from rlrun.values import Gpu, GpuHolder

ROW = "0, GPU-aaaa, 00000000:07:00.0, NVIDIA H100 80GB HBM3, 61234, 81559, 97, 0"
H100 = Gpu(0, "GPU-aaaa", "00000000:07:00.0", "NVIDIA H100 80GB HBM3", 61234, 81559, 97, 0)
HOLDER = "GPU-aaaa, 41877, 61000, VLLM::Worker_TP0"
LOST = "Unable to determine the device handle for GPU 0000:5E:00.0: Unknown Error"
UNTOLD = ["[N/A]", "N/A", "[Not Supported]", "[Insufficient Permissions]", "[Unknown Error]", "[GPU requires reset]",
          ""]

MakeFake = Callable[..., Dict[str, str]]


@pytest.fixture
def make_fake(tmp_path: Path) -> MakeFake:
    """Puts a fake nvidia-smi first on the PATH of the environment that it gives; each call is noted in `calls`."""
    def make(on_gpus: str = "", on_holders: str = "", head: str = "") -> Dict[str, str]:
        program = tmp_path / "bin" / "nvidia-smi"
        program.parent.mkdir(exist_ok=True)
        lines = ["#!/bin/sh", "echo \"$@\" >> '%s'" % (tmp_path / "calls"), head, "case \"$1\" in",
                 "--query-gpu=*)", on_gpus or ":", ";;", "*)", on_holders or ":", ";;", "esac"]
        program.write_text("\n".join(lines) + "\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return dict(os.environ, PATH="%s:%s" % (program.parent, os.environ["PATH"]))
    return make


def say(*lines: str, code: int = 0) -> str:
    return "cat <<'END'\n%s\nEND\nexit %d" % ("\n".join(lines), code)


def read_calls(tmp_path: Path) -> List[str]:
    return (tmp_path / "calls").read_text().splitlines()


def make_gpu(index: int, uuid: str = "", name: str = "H100") -> Gpu:
    return Gpu(index, uuid or "GPU-%d" % index, "", name, None, None, None, None)


def has_ended(running: child.Running) -> bool:
    """Whether nothing lives in the group of a program any more; a SIGKILL takes a moment."""
    assert running.popen
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        members = [row for row in procs.read_processes().values() if row.pgid == running.popen.pid]
        if all(procs.is_dead(row) for row in members):
            return True
    return False


# ---- parse_gpus

@pytest.mark.parametrize("count", [1, 2, 8])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n", "\r\n \r\n"])
def test_G11_rows_of_any_number_and_line_end(count: int, end: str) -> None:
    rows = [ROW.replace("0, GPU-aaaa", "%d, GPU-%d" % (index, index)) for index in range(count)]
    found, lost = gpus.parse_gpus(end + end.join(rows) + end)
    assert found == tuple(H100._replace(index=index, uuid="GPU-%d" % index) for index in range(count))
    assert lost == ()


@pytest.mark.parametrize("untold", UNTOLD)
@pytest.mark.parametrize("column, name, unknown", [
    (1, "uuid", ""), (2, "bus_id", ""), (3, "name", ""), (4, "used_mib", None), (5, "total_mib", None),
    (6, "utilization_percent", None), (7, "ecc_errors", None)])
def test_G3_an_untold_value_is_unknown_and_never_0(untold: str, column: int, name: str, unknown: Optional[str]) -> None:
    fields = ROW.split(", ")
    fields[column] = untold
    (found,), _ = gpus.parse_gpus(", ".join(fields))
    assert found._asdict() == dict(H100._asdict(), **{name: unknown})


@pytest.mark.parametrize("index", UNTOLD[:-2] + ["", "GPU0"])
def test_G3_a_row_without_an_index_stands(index: str) -> None:
    row = ROW.replace("0, GPU", index + ", GPU")
    assert gpus.parse_gpus(row + "\n" + ROW) == ((H100._replace(index=-1), H100), ())
    assert gpus.find_unread(row + "\n" + ROW) == ()
    assert (gpus.show_index(H100._replace(index=-1)), gpus.show_index(H100)) == ("?", "0")


def test_G3_a_row_without_index_and_memory_stands() -> None:
    (found,), lost = gpus.parse_gpus("[N/A], GPU-aaaa, 0:1, H100, [N/A], [N/A], [N/A], [N/A]")
    assert (found.index, found.used_mib, lost) == (-1, None, ())


@pytest.mark.parametrize("line", [
    "WARNING: infoROM is corrupted at gpu 0000:00:1E.0", "0, GPU-aaaa, 0:1, H100, 4", "hello, world",
    "index, uuid, pci.bus_id, name, memory.used, memory.total, utilization.gpu, ecc", "Failed, because, of, this, and, that"])
def test_G3_a_line_that_is_no_row_does_not_vanish(make_fake: MakeFake, line: str) -> None:
    assert gpus.find_unread(ROW + "\n" + line + "\n") == (line,)
    for redirect in ("", ">&2"):
        on_holders = "echo '%s' %s" % (line, redirect) if line.count(",") < 3 else ""  # a row there hides its pid
        reading = gpus.finish_query(gpus.start_query(make_fake(
            "echo '%s' %s\n%s" % (line, redirect, say(ROW)), on_holders)))
        assert (reading.state, reading.gpus, reading.lost, reading.unread) == ("ok", (H100,), (), (line,))


def test_G3_what_a_failure_printed_is_its_reason_alone(make_fake: MakeFake) -> None:
    assert gpus.finish_query(gpus.start_query(make_fake(say("one", "two", code=9)))).unread == ()
    reading = gpus.finish_query(gpus.start_query(make_fake(say(ROW), say("Insufficient Permissions", code=4))))
    assert (reading.state, reading.unread) == ("failed", ())


@pytest.mark.parametrize("line", [
    LOST, "GPU 00000000:03:00.0: GPU requires reset", "GPU 0000:03:00.0 requires a reset.", "GPU is lost. Reboot the system"])
@pytest.mark.parametrize("redirect", ["", ">&2"])
def test_G7_a_line_that_asks_for_a_reset_is_a_lost_gpu(make_fake: MakeFake, line: str, redirect: str) -> None:
    reading = gpus.finish_query(gpus.start_query(make_fake("echo '%s' %s\n%s" % (line, redirect, say(ROW, code=15)))))
    assert (reading.state, reading.gpus, reading.lost, reading.unread) == ("ok", (H100,), (line,), ())


def test_units_that_were_not_asked_for() -> None:
    (found,), _ = gpus.parse_gpus("0, GPU-aaaa, 00000000:07:00.0, NVIDIA H100 80GB HBM3, 61234 MiB, 80 GiB, 97 %, 0")
    assert found == H100._replace(total_mib=81920)


@pytest.mark.parametrize("value", ["-1", "1e3", "12 bananas", "0x10", "MiB", "\u00b2", "9" * 5000])
def test_a_value_that_is_no_amount_is_unknown(value: str) -> None:
    (found,), _ = gpus.parse_gpus(ROW.replace("61234", value))
    assert found.used_mib is None


def test_a_name_with_commas() -> None:
    (found,), _ = gpus.parse_gpus(ROW.replace("H100 80GB", "H100, 80GB, 700W"))
    assert found == H100._replace(name="NVIDIA H100, 80GB, 700W HBM3")
    (found,), _ = gpus.parse_gpus("3, GPU-a, bus, A, 80, 10, 20", is_plain=True)
    assert (found.index, found.name, found.used_mib, found.total_mib) == (3, "A, 80", 10, 20)


@pytest.mark.parametrize("text", [
    "", "\n", "No devices were found\n", "NVIDIA-SMI has failed, because of, this, and, that, too",
    "Failed to initialize NVML: Driver/library version mismatch\n", "\x00\ufffd,,", "1, 2, 3",
    "\u00b2,,,,,,,", "9" * 5000 + ",,,,,,,"])
def test_text_without_rows_has_no_gpus(text: str) -> None:
    assert gpus.parse_gpus(text)[0] == ()


def test_G7_a_lost_gpu_does_not_shift_the_others() -> None:
    rows = [ROW.replace("0, GPU-aaaa", "%d, GPU-%d" % (index, index)) for index in (0, 1, 3)]
    found, lost = gpus.parse_gpus("\n".join(rows[:2] + [LOST] + rows[2:]))
    assert [gpu.index for gpu in found] == [0, 1, 3]
    assert lost == (LOST,)


def test_G7_a_row_that_says_lost_stands_and_is_named() -> None:
    row = "2, GPU-c, 00000000:5E:00.0, [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost]"
    assert gpus.parse_gpus(row) == ((Gpu(2, "GPU-c", "00000000:5E:00.0", "", None, None, None, None),), (row,))


def test_a_warning_beside_the_rows_is_no_lost_gpu() -> None:
    assert gpus.parse_gpus(ROW + "\nWARNING: infoROM is corrupted at gpu 0000:00:1E.0\n") == ((H100,), ())


# ---- parse_holders

def test_holders_by_row() -> None:
    assert gpus.parse_holders(HOLDER + "\r\n\r\nGPU-b, 7, [N/A], python3, -m, x\r\n") == (
        GpuHolder(41877, "GPU-aaaa", 61000, "VLLM::Worker_TP0"), GpuHolder(7, "GPU-b", None, "python3, -m, x"))


@pytest.mark.parametrize("untold", UNTOLD)
def test_G3_an_untold_value_of_a_holder_is_unknown(untold: str) -> None:
    assert gpus.parse_holders("%s, 5, %s, %s" % (untold, untold, untold)) == (GpuHolder(5, "", None, ""),)
    assert gpus.parse_holders("GPU-aaaa, %s, 61000, python3" % untold) == ()


@pytest.mark.parametrize("text", [
    "", "\n", "No running processes found\n", "No devices were found", LOST, ",,,", ",\u00b2,,"])
def test_text_without_rows_has_no_holders(text: str) -> None:
    assert gpus.parse_holders(text) == ()


# ---- the queries

def test_a_reading_of_gpus_and_holders(make_fake: MakeFake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", make_fake(say(ROW), say(HOLDER))["PATH"])
    reading = gpus.finish_query(gpus.start_query())
    assert reading == ("ok", "", (H100,), gpus.parse_holders(HOLDER), (), ())
    assert len(read_calls(tmp_path)) == 2


def test_G1_memory_in_use_and_no_holder_shown(make_fake: MakeFake) -> None:
    for answer in (":", say("No running processes found")):
        reading = gpus.finish_query(gpus.start_query(make_fake(say(ROW), answer)))
        assert (reading.state, reading.gpus[0].used_mib, reading.holders, reading.unread) == ("ok", 61234, (), ())


def test_both_queries_run_at_once(make_fake: MakeFake, tmp_path: Path) -> None:
    # Each waits for the other one's mark; one after the other they would never end.
    os.mkfifo(str(tmp_path / "fifo"))
    env = make_fake("echo go > '%s/fifo'\n" % tmp_path + say(ROW), "read x < '%s/fifo'\n" % tmp_path + say(HOLDER))
    assert gpus.finish_query(gpus.start_query(env)).state == "ok"


def test_a_caller_that_was_late_still_gets_the_answer(make_fake: MakeFake) -> None:
    query = gpus.start_query(make_fake(say(ROW), say(HOLDER)))
    for running in (query.gpus, query.holders):
        assert running.popen
        os.waitid(os.P_PID, running.popen.pid, os.WEXITED | os.WNOWAIT)
    assert gpus.finish_query(query, timeout_seconds=0.0).state == "ok"


def test_absent_program(tmp_path: Path) -> None:
    reading = gpus.finish_query(gpus.start_query({"PATH": str(tmp_path)}))
    assert (reading.state, reading.gpus, reading.holders) == ("absent", (), ())


def test_absent_program_behind_a_folder_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert gpus.finish_query(gpus.start_query({"PATH": "%s/file:%s" % (tmp_path, tmp_path)})).state == "absent"


def test_a_program_that_can_not_start_has_failed(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    reading = gpus.finish_query(gpus.start_query({"PATH": str(tmp_path)}))
    assert (reading.state, "could not start" in reading.reason) == ("failed", True)


@pytest.mark.parametrize("code", [0, 15, 255])
@pytest.mark.parametrize("redirect", ["", ">&2"])
def test_G7_the_rows_stand_whatever_the_exit_status(make_fake: MakeFake, code: int, redirect: str) -> None:
    env = make_fake("echo '%s' %s\n%s" % (LOST, redirect, say(ROW, code=code)), "echo '%s'; exit %d" % (LOST, code))
    reading = gpus.finish_query(gpus.start_query(env))
    assert (reading.state, reading.gpus, reading.lost) == ("ok", (H100,), (LOST,))


def test_G7_nothing_but_the_lost_gpu(make_fake: MakeFake) -> None:
    reading = gpus.finish_query(gpus.start_query(make_fake(say(LOST, code=255), say(LOST, code=255))))
    assert reading == ("failed", LOST, (), (), (LOST,), ())


@pytest.mark.parametrize("words, code", [
    ("No devices were found", 6), ("Failed to initialize NVML: Unknown Error", 255)])
@pytest.mark.parametrize("redirect", ["", ">&2"])
def test_a_failure_is_told_in_the_words_of_the_program(
        make_fake: MakeFake, words: str, code: int, redirect: str) -> None:
    env = make_fake(head="{ echo; echo '%s'; echo more; } %s; exit %d" % (words, redirect, code))
    reading = gpus.finish_query(gpus.start_query(env))
    assert (reading.state, reading.reason, reading.gpus) == ("failed", words, ())


@pytest.mark.parametrize("head, words", [
    ("exit 0", "ended 0 and printed nothing"), ("exit 9", "ended 9 and printed nothing"),
    ("kill -9 $$", "killed by SIGKILL"), ("exec cat /dev/zero", "printed more than")])
def test_a_failure_without_words_is_told_by_its_outcome(make_fake: MakeFake, head: str, words: str) -> None:
    reading = gpus.finish_query(gpus.start_query(make_fake(head=head)))
    assert (reading.state, words in reading.reason) == ("failed", True)


@pytest.mark.parametrize("answer, words", [
    (say("Insufficient Permissions", code=4), "Insufficient Permissions"),
    (say("GPU-aaaa, [Insufficient Permissions], [N/A], [N/A]"), "GPU-aaaa, [Insufficient Permissions]"),
    ("kill -9 $$", "killed by SIGKILL")])
def test_holders_that_could_not_be_read_are_not_none(make_fake: MakeFake, answer: str, words: str) -> None:
    reading = gpus.finish_query(gpus.start_query(make_fake(say(ROW), answer)))
    assert (reading.state, reading.gpus, words in reading.reason) == ("failed", (H100,), True)


@pytest.mark.parametrize("redirect", ["", ">&2"])
def test_an_older_driver_is_asked_again_with_plain_fields(make_fake: MakeFake, tmp_path: Path, redirect: str) -> None:
    refusal = "echo 'Field \"ecc.errors.uncorrected.volatile.total\" is not a valid field to query.' %s" % redirect
    env = make_fake("case \"$1\" in *ecc*) %s; exit 2;; esac\n%s" % (refusal, say(ROW[:-len(", 97, 0")])), say(HOLDER))
    reading = gpus.finish_query(gpus.start_query(env))
    assert (reading.state, reading.gpus) == ("ok", (H100._replace(utilization_percent=None, ecc_errors=None),))
    assert len(read_calls(tmp_path)) == 3


def test_a_driver_that_rejects_all_fields_is_asked_no_third_time(make_fake: MakeFake, tmp_path: Path) -> None:
    words = 'Field "x" is not a valid field to query.'
    reading = gpus.finish_query(gpus.start_query(make_fake(say(words, code=2), say(HOLDER))))
    assert (reading.state, reading.reason) == ("failed", words)
    assert len(read_calls(tmp_path)) == 3


@pytest.mark.parametrize("hang", ["exec sleep 1000", "trap '' TERM; while :; do sleep 1000; done",
                                  "sleep 1000 & trap '' TERM; sleep 1000"])
def test_G5_a_hang_is_ended_with_all_that_it_started(make_fake: MakeFake, hang: str) -> None:
    query = gpus.start_query(make_fake(head=hang))
    reading = gpus.finish_query(query, timeout_seconds=0.2)
    assert (reading.state, reading.gpus) == ("timeout", ())
    assert "no end within" in reading.reason
    for running in (query.gpus, query.holders):
        assert running.popen and running.popen.returncode is not None
        assert has_ended(running)


def test_G5_a_child_that_holds_stdout_does_not_hold_us(make_fake: MakeFake) -> None:
    env = make_fake("sleep 1000 &\n" + say(ROW), "sleep 1000 &\n" + say(HOLDER))
    assert gpus.finish_query(gpus.start_query(env)).state == "ok"


def test_G5_a_hang_of_the_process_query_alone_keeps_the_gpus(make_fake: MakeFake) -> None:
    reading = gpus.finish_query(gpus.start_query(make_fake(say(ROW), "exec sleep 1000")), timeout_seconds=3)
    assert (reading.state, reading.gpus, reading.reason.startswith("holders: ")) == ("timeout", (H100,), True)


def test_G5_an_interrupt_leaves_nothing_behind(make_fake: MakeFake) -> None:
    query = gpus.start_query(make_fake(head="exec sleep 1000"))
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(KeyboardInterrupt):
            gpus.finish_query(query)
    finally:
        signal.signal(signal.SIGALRM, before)
    for running in (query.gpus, query.holders):
        assert has_ended(running)


def test_G5_a_query_that_nobody_collects_can_be_ended(make_fake: MakeFake) -> None:
    query = gpus.start_query(make_fake(head="exec sleep 1000"))
    gpus.cancel_query(query)
    gpus.cancel_query(query)
    for running in (query.gpus, query.holders):
        assert has_ended(running)


# ---- the GPUs of a launch

def test_G9_mixed_models() -> None:
    assert gpus.is_mixed([make_gpu(0, name="A100"), make_gpu(1, name="T4")])
    assert not gpus.is_mixed([make_gpu(0), make_gpu(1), make_gpu(2, name="")])  # an untold name is no other model
    assert not gpus.is_mixed([])


@pytest.mark.parametrize("visible, expected", [
    (None, [0, 1, 2, 3]), ("", []), ("0", [0]), ("2,0", [2, 0]), (" 1 , 3 ", [1, 3]), ("0,1,", [0, 1]),
    ("0,7,1", [0]), ("-1", []), ("1,-1,2", [1]), ("all", []), ("NoDevFiles", []), ("0,x,1", [0]),
    ("1gpu2,+2", [1, 2]), ("0,0", []), ("1,2,1", []), ("99999999999999999999", []),
    ("GPU-0", [0]), ("GPU-3,GPU-1", [3, 1]), ("GPU-0,GPU-9,GPU-1", [0]), ("GPU-", []), ("GPU-0,1", [0]),
    ("0,GPU-1", [0]), ("GPU-2,GPU-2", []),
])
def test_G9_visible_devices_as_cuda_reads_them(visible: Optional[str], expected: List[int]) -> None:
    chosen = gpus.select_visible([make_gpu(index) for index in range(4)], visible)
    assert chosen is not None and [gpu.index for gpu in chosen] == expected


@pytest.mark.parametrize("visible", ["MIG-1234", "MIG-GPU-0/1/0", "0,MIG-1"])
def test_G3_mig_is_not_judged(visible: str) -> None:
    assert gpus.select_visible([make_gpu(0)], visible) is None


@pytest.mark.parametrize("visible, expected", [(None, [0, -1, 1]), ("1", [1]), ("-1", []), ("foo", []), ("GPU-?", [-1])])
def test_G3_no_word_means_the_gpu_whose_index_is_not_told(visible: Optional[str], expected: List[int]) -> None:
    chosen = gpus.select_visible([make_gpu(0), make_gpu(-1, "GPU-?"), make_gpu(1)], visible)
    assert chosen is not None and [gpu.index for gpu in chosen] == expected


def test_G7_an_index_beyond_a_lost_gpu_is_not_judged() -> None:
    left = [make_gpu(0), make_gpu(1), make_gpu(3)]
    assert gpus.select_visible(left, "3") is None
    assert gpus.select_visible(left, "2") is None
    assert gpus.select_visible(left, "1,0") == [left[1], left[0]]
    assert gpus.select_visible(left, "GPU-3") == [left[2]]
    assert gpus.select_visible([], "0") == []


@pytest.mark.parametrize("body, version", [
    (say("535.104.05", "535.104.05"), "535.104.05"), (say("550.90"), "550.90"), (say("[N/A]"), ""), ("exit 1", ""),
    (say("Failed to initialize NVML: Driver/library version mismatch", code=18), ""), ("exec sleep 60", "")])
def test_the_drivers_version(make_fake: MakeFake, body: str, version: str) -> None:
    assert gpus.finish_driver(gpus.start_driver(make_fake(on_gpus=body)), 0.5 if "sleep" in body else 20) == version


def test_no_driver_without_nvidia_smi() -> None:
    assert gpus.finish_driver(gpus.start_driver({"PATH": "/nonexistent"})) == ""
