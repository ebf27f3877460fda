"""The ways to record the ranks of a job, each with two real processes: the planted difference is found."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import cuptimem
from tests.conftest import ROOT, clean_environment

pytestmark = [pytest.mark.torch, pytest.mark.costly]

PROGRAM = str(Path(__file__).parent / "start.py")
SPAWN = str(Path(__file__).parent / "spawn.py")
LAUNCH = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
RANK = "run-{rank}.cmem"
WAYS = {
    "torchrun": ([*LAUNCH, "-m", "cuptimem", "run", "-o", RANK, PROGRAM], {}, 0),
    "follow": (["-m", "cuptimem", "run", "--follow", "-o", RANK, *LAUNCH, PROGRAM], {}, 1),
    "variables": ([*LAUNCH, PROGRAM], {"CUPTIMEM": RANK, "CUPTIMEM_FOLLOW": "1"}, 1),
    "spawn": (["-m", "cuptimem", "run", "--follow", "-o", RANK, SPAWN, "store"], {}, 2),
}


def check(folder: Path, python: str, words: list[str], variables: dict[str, str], launchers: int) -> None:
    """Both ranks are recorded, and the second one's 4 MiB are named."""
    environment = {**clean_environment(), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **variables}
    done = subprocess.run([python, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = cuptimem.ranks(folder, jobs=1)
    assert [(one.rank, one.world) for one in found.ranks] == [(0, 2), (1, 2)], os.listdir(folder)
    assert {one.title for one in found.ranks} <= {"start.py", "spawn.py"}
    assert len(found.launchers) == launchers and not found.failed and not found.missing
    (difference,) = found.differences
    assert [found.label(at) for at in difference.ranks] == ["1"]
    assert difference.lines[0].name.endswith(("start.py:12", "spawn.py:16")) and difference.lines[0].more == 4 << 20


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=() if way == "follow" else pytest.mark.extended) for way in WAYS]
)
def test_both_ranks_are_recorded(way: str, tmp_path: Path) -> None:
    check(tmp_path, sys.executable, *WAYS[way])
