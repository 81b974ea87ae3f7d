"""What Slurm says of a script before it is handed in: words as Slurm 22.05.8 printed them, and older ones."""
import os

import pytest

from rlrun.host import slurm_partition

PARTITION = (
    "PartitionName=gpu AllowGroups=ALL AllowAccounts=rl,ops AllowQos=ALL AllocNodes=ALL Default=YES QoS=N/A DefaultTime=NONE "
    "DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO MaxNodes=2 MaxTime=1-00:00:00 MinNodes=0 LLN=NO "
    "MaxCPUsPerNode=UNLIMITED Nodes=n[1-2] PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO "
    "OverTimeLimit=NONE PreemptMode=OFF State=UP TotalCPUs=2 TotalNodes=2 SelectTypeParameters=NONE JobDefaults=(null) "
    "DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED TRES=cpu=2,mem=2M,node=2,billing=2\n")
STARTS = "sbatch: Job 1 to start at 2026-11-30T06:45:01 using 2 processors on nodes n[1-2] in partition gpu\n"


@pytest.mark.parametrize("text, expected", [
    (STARTS, ("2026-11-30T06:45:01", "n[1-2]", "gpu", "")),
    ("sbatch: Job 65541 to start at 2016-11-30T06:45:01 using 32 processors on n[1-2]\n",
     ("2016-11-30T06:45:01", "n[1-2]", "", "")),
    ("sbatch: error: invalid partition specified: nowhere\nallocation failure: Invalid partition name specified\n",
     ("", "", "", "Invalid partition name specified")),
    ("allocation failure: Requested node configuration is not available\n",
     ("", "", "", "Requested node configuration is not available")),
    ("sbatch: error: Batch job submission failed: Invalid feature specification\n",
     ("", "", "", "Invalid feature specification")),
    ("sbatch: error: Invalid generic resource (gres) specification\n",
     ("", "", "", "Invalid generic resource (gres) specification")),
    ("sbatch: fatal: Could not establish a configuration source\n", ("", "", "", "Could not establish a configuration source")),
    ("sbatch: unrecognized option '--bogus'\nTry \"sbatch --help\" for more information\n",
     ("", "", "", "unrecognized option '--bogus'")),
    ("odd\n", ("", "", "", "odd")), ("", ("", "", "", ""))])
def test_parse_test(text, expected):
    assert tuple(slurm_partition.parse_test(text)) == expected


def test_parse_partitions():
    [found] = slurm_partition.parse_partitions("noise\n" + PARTITION)
    assert found == slurm_partition.Partition("gpu", "UP", "1-00:00:00", "", "2", "2", "rl,ops", "ALL", "ALL", True)
    assert slurm_partition.parse_partitions("") == ()


def test_nodes_that_take_no_job():
    text = "gpu|idle|n1\ngpu|drained|n2\ngpu|down*|n3\ngpu|drained*|n4\ncpu|mixed|n5\ncpu|allocated|n6\ngpu|idle~|n7\nx\n"
    assert slurm_partition.parse_nodes(text) == {"gpu": (("down", 1), ("drained", 2))}


@pytest.mark.parametrize("text, seconds", [
    ("90", 5400), ("12:30", 750), ("1:02:03", 3723), ("2-12", 216000), ("1-02:03", 93780), ("1-02:03:04", 93784), ("0", 0),
    ("UNLIMITED", None), ("", None), ("x", None), ("1:2:3:4", None), ("-1", None)])
def test_parse_time(text, seconds):
    assert slurm_partition.parse_time(text) == seconds


@pytest.mark.parametrize("text, count", [("2", 2), ("2-4", 2), ("2,4", 2), ("", None), ("x", None)])
def test_parse_node_count(text, count):
    assert slurm_partition.parse_node_count(text) == count


def test_asking(fake_program, clean_env, tmp_path):
    fake_program("sbatch", "[ \"$*\" = --test-only ] && [ \"$SBATCH_PARTITION\" = gpu ] && cat && "
                 "printf '%%s' '%s' >&2\n" % STARTS)
    fake_program("scontrol", "case \"$*\" in *config*) echo 'EnforcePartLimits       = ANY' ;; "
                 "*) printf '%%s' '%s' ;; esac\n" % PARTITION)
    fake_program("sinfo", "echo 'gpu|drained|n2'\n")
    before = os.listdir(str(tmp_path))
    told = slurm_partition.ask_submission("#!/bin/sh\n", dict(clean_env, SBATCH_PARTITION="gpu"), str(tmp_path), 10)
    assert told.test.nodes == "n[1-2]" and told.partitions[0].name == "gpu" and told.enforced and not told.reason
    assert told.unusable == {"gpu": (("drained", 1),)}
    assert os.listdir(str(tmp_path)) == before, "nothing is left behind"


def test_programs_that_hang_or_are_not_there(fake_program, clean_env, tmp_path):
    for name in ("sbatch", "scontrol", "sinfo"):
        fake_program(name, "exec sleep 100\n")
    told = slurm_partition.ask_submission("#!/bin/sh\n", clean_env, str(tmp_path), 0.2)
    assert told.test is None and told.partitions == () and "sbatch: no end within" in told.reason and not told.enforced


@pytest.mark.parametrize("words, expected", [
    ("Unable to contact slurm controller (connect failure)", True), ("Could not establish a configuration source", True),
    ("Socket timed out on send/recv operation", True), ("Invalid partition name specified", False)])
def test_of_the_controller(words, expected):
    assert slurm_partition.is_of_controller(words) is expected


@pytest.mark.parametrize("options, expected", [
    ({"gres": "gpu:4"}, 4), ({"gres": "gpu"}, 1), ({"gres": "gpu:h100:4(S:0-1)"}, 4), ({"gres": "disk:9,gpu:a:2,gpu:b:3"}, 5),
    ({"gres": "disk:9"}, None), ({"gres": "none"}, None), ({"gres": "gpu:4K"}, None), ({"gpus-per-node": "h100:8"}, 8),
    ({"gpus-per-task": "3"}, 3), ({"gpus": "16"}, 8), ({"gpus": "a:4,b:4"}, 4), ({"gpus-per-socket": "4"}, None), ({}, None)])
def test_the_gpus_of_a_node_that_are_asked_for(options, expected):
    found = slurm_partition.count_gpus(options, 2)
    assert (found[1] if found else None) == expected
