"""Slurm's programs, faked: first on PATH, and in the words of Slurm 22.05.8."""
import os

import pytest

UNKNOWN = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1\n"
AWAY = "echo 'error: Unable to contact slurm controller' >&2; exit 1\n"


@pytest.fixture
def slurm(fake_program, clean_env, monkeypatch):
    """Writes the fakes; what asks finds them by the environment."""
    def write(squeue=UNKNOWN, sacct=AWAY, scontrol=UNKNOWN):
        for name, body in (("squeue", squeue), ("sacct", sacct), ("scontrol", scontrol)):
            fake_program(name, body)
    for name in list(os.environ):
        monkeypatch.delenv(name)
    for name, value in clean_env.items():
        monkeypatch.setenv(name, value)
    return write
