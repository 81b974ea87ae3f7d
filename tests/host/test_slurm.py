"""Slurm by fake programs whose output is what Slurm 22.05.8 printed (two nodes, with slurmdbd and without)."""
import os
import shutil

import pytest

from rlrun.host import slurm

QUEUE = """\
4_1|9|RUNNING|n1|0:24|UNLIMITED|None
4_2|4|PENDING||0:00|UNLIMITED|JobArrayTaskLimit
4_3|4|PENDING||0:00|UNLIMITED|JobArrayTaskLimit
6|6|PENDING||0:00|UNLIMITED|DependencyNeverSatisfied
11+0|11|PENDING||0:00|UNLIMITED|Resources
11+1|12|PENDING||0:00|UNLIMITED|Resources
7|7|RUNNING|n[1-2]|0:21|1:00|None
"""
ACCOUNTS = """\
32|32|FAILED|3:0|00:00:00|UNLIMITED|n1
33|33|COMPLETED|0:0|00:00:01|UNLIMITED|n[1-2]
35+0|35|PENDING|0:0|00:00:00|Partition_Limit|None assigned
37|37|CANCELLED by 0|0:0|00:01:38|UNLIMITED|n1
34_1|40|COMPLETED|0:0|00:00:00|UNLIMITED|n1
34_2|34|FAILED|0:9|00:00:00|UNLIMITED|n2
39|39|TIMEOUT|0:0|00:01:01|00:01:00|n2
"""
SHOWN = (
    "{ids} JobName={name} {het}UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=4294901759 Nice=0 Account=(null) "
    "QOS=(null) JobState={state} Reason={reason} Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode={exit} "
    "RunTime=00:00:24 TimeLimit=365-00:00:00 TimeMin=N/A SubmitTime=2026-11-29T20:25:58 EligibleTime=2026-11-29T20:25:58 "
    "AccrueTime=2026-11-29T20:25:58 StartTime=2026-11-29T20:25:58 EndTime=2026-11-29T20:26:22 Deadline=N/A SuspendTime=None "
    "SecsPreSuspend=0 LastSchedEval=2026-11-29T20:25:58 Scheduler=Backfill Partition=gpu AllocNode:Sid=localhost:31029 "
    "ReqNodeList=(null) ExcNodeList=(null) NodeList={nodes} BatchHost=n1 NumNodes=1 NumCPUs=1 NumTasks=1 CPUs/Task=1 "
    "ReqB:S:C:T=0:0:*:* TRES=cpu=1,node=1,billing=1 Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=* MinCPUsNode=1 "
    "MinMemoryNode=0 MinTmpDiskNode=0 Features=(null) DelayBoot=00:00:00 OverSubscribe=NO Contiguous=0 Licenses=(null) "
    "Network=(null) Command=(null) WorkDir=/tmp/sj StdErr=/tmp/sj/slurm-1.out StdIn=/dev/null StdOut=/tmp/sj/slurm-1.out Power= ")


def show(ids, state, exits, reason="None", nodes="n1", name="longjob", het=""):
    return SHOWN.format(ids=ids, state=state, exit=exits, reason=reason, nodes=nodes, name=name, het=het) + "\n"


NO_SACCT = "echo 'Slurm accounting storage is disabled' >&2; exit 1\n"
NO_SCONTROL = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1\n"
EMPTY = "exit 0\n"


@pytest.fixture
def fake_slurm(fake_program, tmp_path, clean_env):
    """Writes the three programs; each notes its arguments first. Gives what `calls()` reads back."""
    def write(squeue=EMPTY, sacct=NO_SACCT, scontrol=NO_SCONTROL):
        for name, body in (("squeue", squeue), ("sacct", sacct), ("scontrol", scontrol)):
            fake_program(name, "echo %s \"$@\" >>%s\n%s" % (name, tmp_path / "calls", body))

    def calls():
        path = tmp_path / "calls"
        return path.read_text().splitlines() if path.exists() else []
    write.calls = calls
    return write


def say(text):
    return "cat <<'END'\n%sEND\n" % text


def test_the_queue_answers_for_all_in_one_call(fake_slurm, clean_env):
    fake_slurm(squeue=say(QUEUE))
    found, why = slurm.read_jobs(["7", "6"], clean_env)
    assert found == {
        "7": slurm.Job("7", "RUNNING", "", "n[1-2]", None, None, "0:21", "1:00", "squeue"),
        "6": slurm.Job("6", "PENDING", "DependencyNeverSatisfied", "", None, None, "0:00", "UNLIMITED", "squeue")}
    assert not why and len(fake_slurm.calls()) == 1 and "7,6" in fake_slurm.calls()[0]


@pytest.mark.parametrize("asked, shown", [
    ("4", "4_1"), ("4_1", "4_1"), ("9", "4_1"), ("4_3", "4_3"), ("11", "11+0"), ("11+1", "11+1"), ("12", "11+1")])
def test_ids_of_arrays_and_of_heterogeneous_jobs(fake_slurm, clean_env, asked, shown):
    fake_slurm(squeue=say(QUEUE))
    assert slurm.read_jobs([asked], clean_env)[0][asked].id == shown


def test_a_single_unknown_id_fails_squeue_and_means_no_more_than_that(fake_slurm, clean_env):
    fake_slurm(squeue=NO_SCONTROL, sacct=say(ACCOUNTS))
    found, why = slurm.read_jobs(["32"], clean_env)
    assert found["32"] == slurm.Job("32", "FAILED", "", "n1", 3, None, "00:00:00", "UNLIMITED", "sacct") and not why


def test_where_one_unknown_id_fails_them_all_the_whole_queue_is_read(fake_slurm, clean_env):
    fake_slurm(squeue="case \"$*\" in *-j*) %s ;; esac\n%s" % (NO_SCONTROL.strip(), say(QUEUE)))
    found, why = slurm.read_jobs(["7", "99"], clean_env)
    assert list(found) == ["7"] and "disabled" in why


def test_what_has_left_the_queue_is_told_by_the_accounts(fake_slurm, clean_env):
    fake_slurm(squeue=say(QUEUE), sacct=say(ACCOUNTS))
    found, why = slurm.read_jobs(["7", "33", "37", "39", "34", "34_1"], clean_env)
    assert [(found[one].state, found[one].exit_code, found[one].signal) for one in ("7", "33", "37", "39", "34", "34_1")] == [
        ("RUNNING", None, None), ("COMPLETED", 0, None), ("CANCELLED", 0, None), ("TIMEOUT", 0, None), ("FAILED", None, 9),
        ("COMPLETED", 0, None)]
    assert found["34"].id == "34_2" and not why  # of an array's tasks it is the one that failed
    assert "33,37,39,34,34_1" in fake_slurm.calls()[1] and len(fake_slurm.calls()) == 2


def test_without_accounting_the_controller_remembers_for_some_minutes(fake_slurm, clean_env):
    fake_slurm(scontrol="[ \"$4\" = 1 ] || { %s; }\n%s" % (NO_SCONTROL.strip(), say(show("JobId=1", "CANCELLED", "0:15"))))
    found, why = slurm.read_jobs(["99", "1"], clean_env)
    assert found == {"1": slurm.Job("1", "CANCELLED", "", "n1", None, 15, "00:00:24", "365-00:00:00", "scontrol")}
    assert why == "sacct: Slurm accounting storage is disabled"
    assert slurm.read_jobs(["1"], clean_env)[1] == ""


def test_accounts_that_are_late_are_not_believed(fake_slurm, clean_env):
    """The queue has it no more, the data base has not heard of its end."""
    fake_slurm(sacct=say("1|1|RUNNING|0:0|00:00:20|UNLIMITED|n1\n"), scontrol=say(show("JobId=1", "COMPLETED", "0:0")))
    assert slurm.read_jobs(["1"], clean_env)[0]["1"].state == "COMPLETED"
    fake_slurm(sacct=say("1|1|RUNNING|0:0|00:00:20|UNLIMITED|n1\n"))
    assert slurm.read_jobs(["1"], clean_env)[0]["1"].source == "sacct"


@pytest.mark.parametrize("text, asked, expected", [
    (show("JobId=2", "FAILED", "3:0", "NonZeroExitCode", name="a b JobState=RUNNING Reason=x"), "2",
     ("2", "FAILED", "NonZeroExitCode", "n1", 3, None)),
    (show("JobId=4 ArrayJobId=4 ArrayTaskId=2-3%1 ArrayTaskThrottle=1", "CANCELLED", "0:0", "JobArrayTaskLimit", "") +
     show("JobId=9 ArrayJobId=4 ArrayTaskId=1 ArrayTaskThrottle=1", "CANCELLED", "143:0"), "4_1",
     ("4_1", "CANCELLED", "", "n1", 143, None)),
    (show("JobId=4 ArrayJobId=4 ArrayTaskId=2-3%1 ArrayTaskThrottle=1", "PENDING", "0:0", nodes=""), "4",
     ("4_[2-3%1]", "PENDING", "", "", None, None)),
    (show("JobId=12 HetJobId=11 HetJobOffset=1", "COMPLETED", "0:0", het="HetJobIdSet=11-12 "), "11+1",
     ("11+1", "COMPLETED", "", "n1", 0, None)),
    ("slurm is being upgraded\n\n" + show("JobId=5", "RUNNING", "0:0", nodes="(null)"), "5",
     ("5", "RUNNING", "", "", None, None))])
def test_what_scontrol_shows(fake_slurm, clean_env, text, asked, expected):
    fake_slurm(scontrol=say(text))
    assert slurm.read_jobs([asked], clean_env)[0][asked][:6] == expected


def test_a_controller_that_is_away_is_asked_once(fake_slurm, clean_env):
    fake_slurm(squeue="echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1\n",
               sacct=say(ACCOUNTS))
    found, why = slurm.read_jobs(["32"], clean_env)
    assert found["32"].source == "sacct" and why == "squeue: Unable to contact slurm controller (connect failure)"
    fake_slurm(squeue="exec sleep 100\n", sacct=(
        "echo 'sacct: error: slurm_persist_conn_open_without_init: failed to open persistent connection to host:localhost:"
        "16819: Connection refused' >&2\necho 'sacct: error: Problem talking to the database: Connection refused' >&2; exit 1\n"))
    assert slurm.read_jobs(["32"], clean_env, timeout_seconds=0.3) == (
        {}, "squeue: no end within 0 s; sacct: Problem talking to the database: Connection refused")
    assert not [call for call in fake_slurm.calls() if call.startswith("scontrol")]


def test_a_machine_without_slurm(clean_env, tmp_path):
    clean_env["PATH"] = str(tmp_path)
    assert slurm.read_jobs(["32"], clean_env) == ({}, "squeue is not on the PATH; sacct is not on the PATH")
    assert slurm.find_sbatch(clean_env) == ""


def test_find_sbatch(fake_program, clean_env):
    path = fake_program("sbatch", "exit 0\n")
    assert slurm.find_sbatch(clean_env) == path
    os.chmod(path, 0o644)
    assert slurm.find_sbatch(clean_env) == (shutil.which("sbatch", path="/usr/bin:/bin") or "")


def test_only_ids_reach_a_command_line(fake_slurm, clean_env):
    fake_slurm(squeue=say(QUEUE))
    bad = ["--help", "1,2", "4_[1-3]", "1;x", "", "1\n", " 1", "1_", "x"]
    assert slurm.read_jobs(bad, clean_env) == ({}, "; ".join("%r is no job id" % one for one in bad))
    assert not fake_slurm.calls()
    found, why = slurm.read_jobs(["-x", "7"], clean_env)
    assert list(found) == ["7"] and why == "'-x' is no job id"
    assert slurm.read_jobs([], clean_env) == ({}, "")


def test_settings_of_the_user_do_not_change_the_question(fake_slurm, clean_env):
    fake_slurm(squeue="[ -z \"$SQUEUE_STATES$SACCT_FORMAT\" ] && [ \"$SLURM_CONF\" = c ] && %s" % say(QUEUE))
    clean_env.update(SQUEUE_STATES="FAILED", SACCT_FORMAT="JobID", SLURM_CONF="c")
    assert "7" in slurm.read_jobs(["7"], clean_env)[0]


@pytest.mark.parametrize("noise", ["x|y\n", "|||||||\n", "CLUSTER: lab\n", "\xff\n", "7|7|RUNNING\n"])
def test_lines_that_are_no_job(fake_slurm, clean_env, noise):
    fake_slurm(squeue=say(noise + QUEUE), sacct=say(noise), scontrol=say(noise))
    assert list(slurm.read_jobs(["7", "99"], clean_env)[0]) == ["7"]


@pytest.mark.parametrize("state, expected", [
    ("COMPLETED", True), ("FAILED", True), ("CANCELLED by 1000", True), ("CANCELLED+", True), ("OUT_OF_ME+", True),
    ("TIMEOUT", True), ("NODE_FAIL", True), ("PREEMPTED", True), ("BOOT_FAIL", True), ("DEADLINE", True), ("RUNNING", False),
    ("PENDING", False), ("COMPLETING", False), ("CONFIGURING", False), ("SUSPENDED", False), ("REQUEUED", False), ("", False)])
def test_what_is_over(state, expected):
    assert slurm.is_over(state) is expected


@pytest.mark.parametrize("text, expected", [
    ("Submitted batch job 12\n", ("12",)), ("12:00:01  \x1b[32mSUCCESS\x1b[0m  Submitted batch job \x1b[1m12\x1b[0m\n", ("12",)),
    ("Submitted batch job 12 on cluster x\nSubmitted batch job 9\nSubmitted batch job 12\n", ("12", "9")),
    ("Submitted batch job x", ()), ("ReSubmitted batch job 5", ()), ("Submitted batch job 5x", ()), ("", ())])
def test_submitted(text, expected):
    assert slurm.parse_submitted(text) == expected


def test_directives():
    text = """#!/bin/bash

#SBATCH --job-name=prime-rl
#SBATCH --nodes=1
#SBATCH --nodes 2 --gres gpu:8
#SBATCH --exclusive -p cluster
#SBATCH\t-t 1-00:00:00 # a day
   #SBATCH --time=99
##SBATCH --time=98
# SBATCH --time=97
#SBATCH --output="/runs/a b/job_%j.log"
#SBATCH -HA team
   \t
#SBATCH -N4
set -e
#SBATCH --time=96
"""
    assert list(slurm.read_directives(text).items()) == [
        ("job-name", "prime-rl"), ("nodes", "4"), ("gres", "gpu:8"), ("exclusive", ""), ("partition", "cluster"),
        ("time", "1-00:00:00"), ("output", "/runs/a b/job_%j.log"), ("hold", ""), ("account", "team")]


@pytest.mark.parametrize("line, expected", [  # each seen with sbatch
    ("#SBATCH --job-name=a#b --nodes=2", {"job-name": "a"}), ("#SBATCH --nodes=2#c", {"nodes": "2"}),
    ("#SBATCH -J \\#x", {"job-name": "#x"}), ("#SBATCH -J 'it s'", {"job-name": "it s"}),
    ("#SBATCHx --nodes=2", {}),
    ("#SBATCH --job-name='open", {}), ("#SBATCH", {}), ("#SBATCH -", {}), ("#SBATCH word", {}),
    ("#SBATCH --nodes", {"nodes": ""}),
    ("#SBATCH --nodes -J x", {"nodes": "", "job-name": "x"}), ("#SBATCH -Z9", {"Z": "9"}), ("#SBATCH --mem=0\r", {"mem": "0"}),
    ("#SBATCH -N1\n#SBATCH hetjob\n#SBATCH -N2", {"nodes": "1"}),
    ("#SBATCH --exclusive=user -n 1", {"exclusive": "user", "ntasks": "1"})])
def test_one_directive(line, expected):
    assert slurm.read_directives("#!/bin/sh\n" + line + "\n") == expected


def test_directives_of_nothing():
    assert slurm.read_directives("") == {} and slurm.read_directives("echo\n#SBATCH -N 1\n") == {}


def test_directives_and_variables():
    text = "#!/bin/sh\n#SBATCH -p a -t 60 --nodes=2\n"
    asked = slurm.read_directives(text, {"SBATCH_PARTITION": "b", "SBATCH_TIMELIMIT": "5", "SBATCH_QOS": "", "SBATCH_NODES": "9",
                                         "PARTITION": "c"})
    assert asked == {"partition": "b", "time": "5", "nodes": "2"}, "what sbatch 22.05.8 made of it"
    assert slurm.read_directives(text, {}) == {"partition": "a", "time": "60", "nodes": "2"}


@pytest.mark.parametrize("pattern, job_id, name, expected", [
    ("/runs/job_%j.log", "12", "x", "/runs/job_12.log"), ("%x-%A-%%-%4j.out", "12", "rl", "rl-12-%-0012.out"),
    ("", "12", "", "slurm-12.out"),
    ("", "13_2", "", "slurm-13_2.out"), ("arr-%x-%A-%a-%4a.out", "13_2", "wrap", "arr-wrap-13-2-0002.out"),
    ("%j.out", "13_2", "", "%j.out"), ("%j-%A.out", "11+0", "", "11-11.out"), ("%j-%A.out", "11+1", "", "%j-11.out"),
    ("%x-%N-%u-%a.log", "12", "", "%x-%N-%u-%a.log"), ("q-\\%j-%j.log", "12", "", "q-%j-%j.log"),
    ("r\\\\-%j.log", "12", "", "r\\-%j.log"),
    ("%j", "nonsense", "", "%j"), ("100%", "12", "", "100%"), ("%x", "12", "a%j", "a%j"), ("%99j", "1", "", "0000000001")])
def test_output_patterns(pattern, job_id, name, expected):
    assert slurm.expand_output(pattern, job_id, name) == expected


@pytest.mark.parametrize("line, expected", [
    (show("JobId=9", "RUNNING", "0:0"), "/tmp/sj/slurm-1.out"),
    ("JobId=9 JobName=x StdIn=/dev/null StdOut=/a b/job_9.log\n", "/a b/job_9.log"),
    ("JobId=9 StdOut=/a b=c/x.log Power= TresPerNode=gres:gpu:8 \n", "/a b=c/x.log"),
    ("JobId=9 JobName=x\n", ""), ("", "")])
def test_output_path(fake_slurm, clean_env, line, expected):
    fake_slurm(scontrol="printf '%%s' '%s'\n" % line)
    assert slurm.read_output_path("9", clean_env) == expected
    assert slurm.read_output_path("-o", clean_env) == "" and len(fake_slurm.calls()) == 1


def test_jobs_by_their_script(fake_slurm, clean_env, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "run")
    rows = ["5|5|PENDING||0:00|1:00|Resources|%s/run/launcher/rl.sbatch" % tmp_path,
            "6|6|RUNNING|n1|0:10|1:00|None|%s/run2/rl.sbatch" % tmp_path, "7|7|RUNNING|n1|0:10|1:00|None|(null)"]
    fake_slurm(squeue="printf '%%s\\n' %s\n" % " ".join("'%s'" % row for row in rows))
    assert [(job.id, job.state) for job in slurm.find_jobs_in(str(tmp_path / "link"), clean_env)] == [("5", "PENDING")]
    assert [job.id for job in slurm.find_jobs_in(str(tmp_path / "run2"), clean_env)] == ["6"]
    fake_slurm(squeue="exit 1\n")
    assert slurm.find_jobs_in(str(tmp_path), clean_env) == ()


def test_only_the_newest_are_asked_for_one_by_one(fake_slurm, clean_env):
    fake_slurm()
    found, why = slurm.read_jobs([str(number) for number in range(1, 201)], clean_env)
    asked = [line.split()[-1] for line in fake_slurm.calls() if line.startswith("scontrol")]
    assert found == {} and asked == [str(number) for number in range(200, 150, -1)] and "newest 50" in why


def test_a_squeue_that_takes_its_time_is_not_waited_for_alone(fake_slurm, clean_env):
    fake_slurm(squeue="exec sleep 100\n", sacct=say(ACCOUNTS))
    found, why = slurm.read_jobs(["32", "7"], clean_env, timeout_seconds=0.6)
    assert found["32"].state == "FAILED" and "7" not in found and why.startswith("squeue: no end within")
    fake_slurm(squeue="sleep 0.3\n" + say(QUEUE), sacct="exec sleep 100\n")
    assert list(slurm.read_jobs(["7"], clean_env, timeout_seconds=1)[0]) == ["7"], "what was started beside it is ended"


def test_all_that_squeue_tells(fake_slurm, clean_env):
    fake_slurm(squeue=say("40|40|PENDING||0:00|5:00|Resources|gpu|4294901724|N/A|5:00\n"
                          "39|39|RUNNING|n[1-2]|0:02|UNLIMITED|None|gpu|4294901725|2026-11-30T06:45:04|UNLIMITED\n"))
    found, _ = slurm.read_jobs(["39", "40"], clean_env)
    assert found["40"][9:] == ("gpu", 4294901724, "", "5:00", None)
    assert found["39"][9:] == ("gpu", 4294901725, "2026-11-30T06:45:04", "UNLIMITED", None)


def test_by_whom_it_was_cancelled(fake_slurm, clean_env):
    fake_slurm(sacct=say("37|37|CANCELLED by 1000|0:0|00:01:38|UNLIMITED|n1\n"))
    assert slurm.read_jobs(["37"], clean_env)[0]["37"].by == 1000
