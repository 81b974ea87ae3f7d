"""Lists of hosts: as Slurm expands and folds them, back and forth, bounded."""
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlrun.text import hostlist

EXPANDED = [
    ("n1", "n1"),
    ("n[001-003]", "n001 n002 n003"),
    ("a[1-3,7],b", "a1 a2 a3 a7 b"),
    ("r[1-2]n[01-03]", "r1n01 r1n02 r1n03 r2n01 r2n02 r2n03"),
    ("n[1-2][3-4]", "n13 n14 n23 n24"),
    ("n[09-11]", "n09 n10 n11"),
    ("n[9-011]", "n9 n10 n11"),
    ("n[008-10]", "n008 n009 n010"),
    ("n[1,1]", "n1 n1"),
    (" a , b c,,", "a b c"),
    ("10.0.0.[5-6]", "10.0.0.5 10.0.0.6"),
    ("gpu-01.x.example", "gpu-01.x.example"),
    ("", ""),
]
FOLDED = ["b,a,n3,n1", "n1,n2,n3,n5", "n1,n2,a1,n3", "n09,n10", "n9,n10", "n1,n01", "n1,n1,n2", "n3,n2,n1", "r1n01,r1n02,r2n01",
          "n1-ib,n2-ib", "n5", "a,a", "n98,n99,n100", "n098,n099,n100", "n001,n2", "n0,n00", "n00,n01", "n1,n01,n2,n02",
          "n1.a.b,n2.a.b", "n1,b,n2", "10.0.0.5,10.0.0.6"]
HOSTS = st.lists(st.from_regex(r"[a-z]{1,2}(-?[0-9]{0,3}){0,2}\Z", fullmatch=True).filter(lambda host: not host.endswith("-")),
                 max_size=30)


@pytest.fixture(scope="module")
def scontrol(tmp_path_factory):
    program = shutil.which("scontrol")
    if not program:
        pytest.skip("no scontrol here")
    config = tmp_path_factory.mktemp("slurm") / "slurm.conf"
    config.write_text("ClusterName=x\nSlurmctldHost=localhost\nNodeName=localhost\n")
    return lambda word, text: subprocess.run(
        [program, "show", word, text], env={"SLURM_CONF": str(config)}, stdout=subprocess.PIPE, check=True
    ).stdout.decode().split()


@pytest.mark.parametrize("text, hosts", EXPANDED)
def test_expands(text, hosts):
    assert hostlist.expand(text) == tuple(hosts.split())


def test_a_suffix_and_an_ipv6_address():
    assert hostlist.expand("n[1-2]-ib,fd00::5") == ("n1-ib", "n2-ib", "fd00::5")


def test_as_slurm_does(scontrol):
    for text, hosts in EXPANDED:
        if text:
            assert scontrol("hostnames", text) == hosts.split(), text
    for text in FOLDED:
        assert scontrol("hostlist", text) == [hostlist.fold(text.split(","))], text


@given(HOSTS)
def test_there_and_back(hosts):
    assert hostlist.expand(hostlist.fold(hosts)) == tuple(hosts)


@pytest.mark.parametrize("text", ["n[3-1]", "n[1-2", "n[]", "n[1-]", "n[a-b]", "n1]", "n[[1-2]]", "n[1-2/2]", "n[ 1-2 ]", "-n1",
                                  "n1;x", "$(x)", "a/b", "n1:8", "n[0-999999999]", "n[1-9999][1-9999][1-9999]",
                                  "n[%s]" % ("9" * 40), "n[1-60000],m[1-60000]", "\u00fcber", "n1\x1b"])
def test_refuses_in_words(text):
    with pytest.raises(ValueError) as told:
        hostlist.expand(text)
    assert 10 < len(str(told.value)) < 200 and "\x1b" not in str(told.value)


def test_a_file_of_hosts():
    text = "# ours\n\nn1 slots=8\nn[2-3]  # two more\n  a,b\r\n"
    assert hostlist.parse_file(text) == ("n1", "n2", "n3", "a", "b")
    with pytest.raises(ValueError, match="line 2"):
        hostlist.parse_file("n1\nn[\n")
    with pytest.raises(ValueError, match="more than"):
        hostlist.parse_file("n[1-60000]\n" * 3)


def test_a_domain_of_all():
    for text in ("n[01-12].x.example", "n[1-2].x.example,a.x.example", "n[1-2],a.x.example", "10.0.0.[1-3]", "a.x.example", ""):
        hosts = hostlist.expand(text)
        assert hostlist.fold_for_people(hosts) == text and hostlist.expand(hostlist.fold_for_people(hosts)) == hosts


def test_a_thousand():
    hosts = hostlist.expand("n[0001-0500],r[1-5]n[001-100]")
    assert len(hosts) == 1000 and hostlist.fold(hosts) == "n[0001-0500]," + ",".join("r%dn[001-100]" % one for one in range(1, 6))
