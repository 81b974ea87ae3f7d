"""Places in the queue, as Slurm 22.05.8 printed them."""
import pytest

from rlrun.host import slurm, slurm_queue

QUEUE = """\
40|40|gpu|4294901724
41|41|gpu|4294901723
42|42|cpu|4294901722
43|43|gpu,cpu|4294901723
44_1|44|gpu|0
"""


def make(job, state="PENDING"):
    return slurm.Job(job, state, "Resources", "", None, None, "0:00", "5:00", "squeue")


@pytest.fixture
def squeue(fake_program):
    def write(restarts="40                  1         \n", queue=QUEUE, last="exit 0"):
        fake_program("squeue", "case \"$*\" in *RestartCnt*) printf '%s' ;; *) printf '%s' ;; esac; %s\n" % (
            restarts, queue, last))
    return write


@pytest.mark.parametrize("job, expected", [
    ("40", (1, 4, 1)), ("41", (2, 4, None)), ("43", (3, 5, None)), ("42", (2, 2, None)), ("44_1", (4, 4, None)),
    ("99", (None, 0, None))])
def test_places(squeue, clean_env, job, expected):
    """By priority and, of equals, by age; a held one (priority 0) is last; who waits for two partitions stands in both."""
    squeue()
    assert slurm_queue.read_places([make(job)], clean_env, 5)[job] == slurm_queue.Place(*expected)


def test_what_runs_stands_nowhere_and_the_queue_is_not_asked(fake_program, clean_env, tmp_path):
    fake_program("squeue", "echo \"$*\" >>%s; echo '40  2'\n" % (tmp_path / "calls"))
    assert slurm_queue.read_places([make("40", "RUNNING")], clean_env, 5) == {"40": slurm_queue.Place(None, 0, 2)}
    assert len((tmp_path / "calls").read_text().splitlines()) == 1
    assert slurm_queue.read_places([], clean_env, 5) == {} and slurm_queue.read_places([make("--help")], clean_env, 5) == {}


def test_a_squeue_that_fails_or_hangs_tells_nothing(squeue, fake_program, clean_env):
    nothing = {"40": slurm_queue.Place(None, 0, None)}
    squeue(last="exit 1")
    assert slurm_queue.read_places([make("40")], clean_env, 5) == nothing
    fake_program("squeue", "exec sleep 100\n")
    assert slurm_queue.read_places([make("40")], clean_env, 0.2) == nothing


@pytest.mark.parametrize("text", ["", "x\n", "1|2|3\n", "1|x|gpu|5\n", "1|1|gpu|x\n", "1|1|gpu|%s\n" % ("9" * 60), "||||\n"])
def test_lines_that_are_no_job(text):
    assert slurm_queue.parse_queue(text) == [] and slurm_queue.parse_restarts(text) == {}


def test_what_lives_is_one_question(fake_program, clean_env, tmp_path):
    """squeue lists what is not over: who is left out, is over, and neither accounting nor the controller is asked again."""
    rows = "40|40|PENDING\n41|41|RUNNING\n42|42|COMPLETING\n43|43|COMPLETED\n" \
        "44_[2-3]|44|PENDING\n44_1|45|RUNNING\n7+1|8|RUNNING\nx\n"
    fake_program("squeue", "echo \"$*|$SQUEUE_STATES\" >>%s; printf '%%s' '%s'\n" % (tmp_path / "calls", rows))
    found = slurm_queue.read_live(["40", "41", "42", "43", "44", "7", "99", "-x"], dict(clean_env, SQUEUE_STATES="F"), 5)
    assert found == ({"40": "PENDING", "41": "RUNNING", "42": "COMPLETING", "44": "RUNNING", "7": "RUNNING"}, "")
    assert (tmp_path / "calls").read_text() == "-h --all -o %i|%A|%T|\n"
    assert slurm_queue.read_live(["-x"], clean_env, 5) == ({}, "")


def test_what_lives_where_slurm_does_not_tell(fake_program, clean_env, tmp_path):
    fake_program("squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1\n")
    found, reason = slurm_queue.read_live(["40"], clean_env, 5)
    assert found == {} and "Unable to contact" in reason
    fake_program("squeue", "exec sleep 60\n")
    assert slurm_queue.read_live(["40"], clean_env, 0.2) == ({}, "squeue: no end within 0 s")
    clean_env["PATH"] = str(tmp_path)
    found, reason = slurm_queue.read_live(["40"], clean_env, 5)
    assert found == {} and reason.startswith("squeue: could not start")


@pytest.mark.parametrize("stamp, is_forecast", [
    ("2026-11-30T07:00:00", True), ("6109-12-23T09:48:16", False), ("N/A", True), ("", True)])
def test_a_start_behind_a_job_without_a_limit_is_no_forecast(stamp, is_forecast):
    assert slurm_queue.is_foreseeable(stamp) is is_forecast
