"""What the e2e tests share: `play` runs a scenario, a function of the test's own module, inside a box.

The lock and the detection of runs are machine-wide, so every scenario gets its own process table, mounts and network.
Inside, nothing but e2e/box.py and the module itself is needed; the facts come back as JSON.
"""
import json
import sys
from pathlib import Path

import pytest
from checkouts import build_checkout
from e2e.scene import own, prime, scene, shared_checkout, shared_prime  # noqa: F401  (fixtures of what does not launch)

TESTS = Path(__file__).resolve().parent.parent


@pytest.fixture
def root(tmp_path):
    """A toy checkout that is this test's own."""
    return build_checkout(tmp_path / "lego")


@pytest.fixture
def play(has_box, boxed, pyz, quicken, clean_env, tmp_path, shared_folder):
    """play(scenario, root, python=, ships=, env=, **given) -> what `scenario(box, **given)` returned.

    Without `python` it is the Python of the tests. rlrun.pyz is compiled for it, or, with `ships`, as it ships.
    """
    if not has_box:
        pytest.skip("a launch concerns the whole machine: needs root and unshare for a box")

    def run(scenario, root, *, python=sys.executable, ships=False, env=None, timeout=180, **given):
        told = tmp_path / "told.json"
        told.write_text(json.dumps({
            "module": scenario.__module__, "function": scenario.__name__, "given": given,
            "box": {"root": str(root), "python": python, "pyz": pyz if ships else quicken(python),
                    "env": dict(clean_env, **(env or {})), "folder": str(tmp_path)}}), encoding="utf-8")
        done = boxed([sys.executable, "-m", "e2e.box", told], own_network=True, timeout=timeout, env={
            "PYTHONPATH": str(TESTS), "PYTHONPYCACHEPREFIX": str(shared_folder / "bytecode"), "PATH": "/usr/bin:/bin",
            "LC_ALL": "C.UTF-8"})
        assert done.returncode == 0, "%s\n%s" % (done.stdout[-4000:], done.stderr[-8000:])
        return json.loads(done.stdout.split("\n=== facts ===\n")[-1])
    return run
