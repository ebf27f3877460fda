"""A container's 64 MiB of shared memory: recording takes a sixteenth at most, and loses nothing for it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cuptimem
from tests.conftest import clean_environment

# extended: of data loaders tests/tools/cli/test_shared_memory.py has the same.
pytestmark = [pytest.mark.torch, pytest.mark.extended]
MIB = 1 << 20
PROGRAM = """\
import os, torch
children, (reading, writing) = [], os.pipe()
for _ in range(5):
    if (child := os.fork()) == 0:
        os.close(writing)
        kept = [torch.empty(1024, dtype=torch.uint8) for _ in range(3000)]
        os.read(reading, 1)  # all six record at once, and hold what shared memory they have
        raise SystemExit
    children.append(child)
kept = [torch.empty(1024, dtype=torch.uint8) for _ in range(3000)]
with open("/dev/shm/batch", "wb") as file:
    file.write(bytes(58 << 20))  # what data loaders need
print(os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize)
os.close(writing)
for child in children:
    os.waitpid(child, 0)
"""


@pytest.fixture
def small() -> list[str]:
    """What runs a shell's command where /dev/shm has 64 MiB."""
    command = ["unshare", "--mount", "sh", "-euc", 'mount -t tmpfs -o size=64m none /dev/shm; exec "$@"', "sh"]
    if shutil.which("unshare") is None or subprocess.run([*command, "true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("only root can give a process a /dev/shm of its own")
    return command


def test_six_processes_in_64_mib(small: list[str], tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text(PROGRAM)
    environment = {name: value for name, value in clean_environment().items() if name != "CUPTIMEM_RING_DIR"}
    words = [sys.executable, "-m", "cuptimem", "run", "--follow", "-q", "-o", "run.cmem", "s.py"]
    done = subprocess.run([*small, *words], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{64 * MIB}\n", "")
    reports = [cuptimem.open(path) for path in tmp_path.glob("*.cmem")]
    assert len(reports) == 6
    for report in reports:
        assert report.complete and report.lost.events == 0
        made = {c.count for c in report.contents("allocated", "cpu").contributors}
        assert 3000 in made
