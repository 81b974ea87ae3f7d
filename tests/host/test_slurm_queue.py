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
