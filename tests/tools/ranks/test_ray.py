"""A real local Ray (`make ray-test`): workers recorded by runtime_env, refused memory, ranks read by Ray's workers."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import cuptimem
from tests.conftest import ROOT, clean_environment
from tests.tools.ranks.test_reading import EXPECTED, traces

__all__ = ["traces"]

pytestmark = [pytest.mark.torch, pytest.mark.extended]

HERE = Path(__file__).parent
RAY = ROOT / "build/ray"


def start(folder: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    if not RAY.is_dir():
        pytest.skip("needs Ray: make ray-test")
    environment = clean_environment() | {
        "PYTHONPATH": f"{RAY}:{ROOT}",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_AUTH_MODE": "disabled",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, str(HERE / program), *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done


@pytest.mark.parametrize("name", ["run-{rank}.cmem", "run-{pid}.cmem"])
def test_workers_are_recorded_by_their_environment(name: str, tmp_path: Path) -> None:
    """They have their ranks long after they have started; Ray kills them at the end."""
    start(tmp_path, "ray_train.py", str(tmp_path / name))
    found = cuptimem.ranks(tmp_path, jobs=1)
    assert [(one.rank, one.world) for one in found.ranks] == [(0, 2), (1, 2)]
    assert not found.failed and not found.missing and found.launchers  # Ray's own workers
    (longer,) = found.differences
    assert [found.label(at) for at in longer.ranks] == ["1"] and longer.step == 7
    batch = next(row for row in longer.lines if row.name.endswith("ray_train.py:20"))
    assert (batch.bytes, batch.middle) == (
        4096 * 256 * 4,
        2 * 512 * 256 * 4,
    )  # there the step's first bytes: two batches


def test_refused_memory_is_said_where_the_driver_is(tmp_path: Path) -> None:
    done = start(tmp_path, "ray_oom.py")
    for name in ("actor", "run-1"):
        page = tmp_path / f"{name}.oom.txt"
        assert page.read_text().startswith("Out of memory on cpu: 3.6 PiB refused")
        assert f"cuptimem: what the memory was made of: {page}" in done.stdout  # of the exception that has arrived
    said = done.stdout + done.stderr  # Ray passes on what workers say
    assert f"out of memory in another rank: {tmp_path / 'run-1.oom.txt'}" in said


def test_ranks_are_read_by_rays_workers(traces: Path, tmp_path: Path) -> None:
    (traces / "run-05.cmem").write_bytes(b"something else")
    found = json.loads(start(tmp_path, "ray_read.py", str(traces)).stdout.splitlines()[-1])
    assert found["peaks"] == [list(one) for one in EXPECTED if one[0] != 5]
    ((path, why),) = found["failed"]
    assert path == str(traces / "run-05.cmem") and why.endswith("run-05.cmem: is not a cuptimem trace")
    assert (traces / "run-07.cmem.seen").exists()
