"""What an enclosing job leaves in the environment (E9, G13): what is told and dropped, and where RAY_ADDRESS leads."""
import socket

import pytest

from rlrun.host import inherited

JOB = {"SLURM_JOB_ID": "123", "SLURM_NTASKS": "1", "SLURM_NODELIST": "n1", "SLURM_CONF": "/etc/slurm.conf", "RANK": "0",
       "WORLD_SIZE": "8", "MASTER_PORT": "29500", "PMIX_RANK": "0", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2",
       "TORCHELASTIC_RUN_ID": "x"}
OWN = {"PATH": "/bin", "CUDA_VISIBLE_DEVICES": "0", "MASTER_ADDR": "n1", "LOCAL_RANK": "", "PMI_": ""}


def test_E9_variables_of_a_job_and_of_an_earlier_launcher():
    found = inherited.find_inherited(dict(JOB, **OWN))
    assert found.words == ("RANK", "WORLD_SIZE", "MASTER_PORT", "MASTER_ADDR", "PMIX_* (1 variable)",
                           "OMPI_COMM_WORLD_* (2 variables)", "TORCHELASTIC_* (1 variable)", "SLURM_* (3 variables, job 123)")


def test_E9_what_is_dropped_is_what_is_told_and_no_more():
    kept, dropped = inherited.drop(dict(JOB, WANDB_RUN_ID="abc", **OWN))
    assert kept == dict({name: value for name, value in OWN.items() if name != "MASTER_ADDR"}, SLURM_CONF="/etc/slurm.conf")
    assert dropped == dict({name: value for name, value in JOB.items() if name != "SLURM_CONF"}, WANDB_RUN_ID="abc",
                           MASTER_ADDR="n1")
    assert inherited.find_inherited(kept).words == ()
    assert inherited.describe_dropped(dropped).startswith("RANK, WORLD_SIZE") and "WANDB_RUN_ID" in inherited.describe_dropped(
        dropped)


@pytest.mark.parametrize("environ", [OWN, {"SLURM_CONF": "/etc/slurm.conf"}, {"SLURM_JOB_ID": ""}, {"MASTER_ADDR": "n1"}])
def test_E9_a_clean_shell_has_none(environ):
    assert inherited.find_inherited(environ).words == () and inherited.drop(environ) == (environ, {})


@pytest.fixture
def listener():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(4)
        yield server.getsockname()[1]


@pytest.mark.parametrize("form", ["127.0.0.1:%d", "ray://127.0.0.1:%d", "localhost:%d", " 127.0.0.1:%d "])
def test_G13_a_ray_that_answers_stays_and_is_told(listener, form):
    environ = {"RAY_ADDRESS": form % listener}
    assert inherited.drop(environ) == (environ, {})
    assert "would join that cluster" in inherited.find_inherited(environ).words[0]


def test_a_ray_address_that_answers_nowhere_is_dropped():
    with socket.socket() as server:  # bound and not listening: nobody else takes the port, and nobody answers
        server.bind(("127.0.0.1", 0))
        environ = {"RAY_ADDRESS": "127.0.0.1:%d" % server.getsockname()[1]}
        assert inherited.find_inherited(environ).words == ("RAY_ADDRESS (nothing answers there)",)
        assert inherited.drop(environ) == ({}, environ)
        assert inherited.describe_dropped(environ) == "RAY_ADDRESS (nothing answers there)"


@pytest.mark.parametrize("word", ["auto", "local", "host", "host:", ":6379", "1.2.3.4:99999", "a b:1", "-x:1", "ray://"])
def test_what_is_no_address_is_unknown_and_stays(word):
    environ = {"RAY_ADDRESS": word}
    assert inherited.drop(environ) == (environ, {})
    assert "is not known" in inherited.find_inherited(environ).words[0]
