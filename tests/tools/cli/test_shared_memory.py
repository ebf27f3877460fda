"""What recordings take of shared memory: nothing before there is something to record, and little where it is small."""

import glob
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import cuptimem
from tests.conftest import Result, clean_environment

RUN = ("-m", "cuptimem", "run")
MIB = 1 << 20

# What of this process's memory lies in a ring's file.
MAPPED = """
import os
def mapped():
    with open("/proc/self/maps") as maps:
        return sorted({line.split()[-1] for line in maps if ".cuptimem-ring-" in line})
"""


def test_a_process_without_torch_has_no_ring(run, tmp_path: Path) -> None:
    rings = tmp_path / "rings"
    rings.mkdir()
    (tmp_path / "p.py").write_text(MAPPED + "import gc, json, time; gc.collect(); time.sleep(1.2); print(mapped())\n")
    done: Result = run(*RUN, "-o", "a.cmem", "p.py", env={"CUPTIMEM_RING_DIR": str(rings)})
    assert (done.code, done.out) == (0, "[]\n")
    report = cuptimem.open(tmp_path / "a.cmem")
    assert (report.state, report.environment["ring.place"], report.environment["ring.path"]) == ("complete", "none", "")
    assert list(rings.iterdir()) == []


def test_a_failed_import_makes_no_ring(run, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('half')")
    (tmp_path / "p.py").write_text(MAPPED + "try: import torch\nexcept ImportError as error: print(error, mapped())\n")
    done: Result = run(*RUN, "-o", "a.cmem", "p.py")
    assert (done.code, done.out) == (0, "half []\n")


@pytest.mark.parametrize("end", ["", "import signal; os.kill(os.getpid(), signal.SIGKILL)"], ids=["exit", "kill"])
def test_the_ring_comes_with_torch(run, tmp_path: Path, end: str) -> None:
    """... before the first allocation that is recorded: after a kill nothing of it is missing."""
    pytest.importorskip("torch")
    rings = tmp_path / "rings"
    rings.mkdir()
    program = "print(mapped(), flush=True)\nimport torch\nkept = [torch.ones(1000 + i) for i in range(500)]\n"
    (tmp_path / "p.py").write_text(MAPPED + program + "print(*mapped(), flush=True)\n" + end)
    done: Result = run(*RUN, "-o", "a.cmem", "p.py", env={"CUPTIMEM_RING_DIR": str(rings)})
    assert done.code == (-9 if end else 0)
    before, ring = done.out.splitlines()
    assert before == "[]" and os.path.dirname(ring) == str(rings)
    report = cuptimem.open(tmp_path / "a.cmem")
    assert report.state == ("recovered" if end else "complete")
    assert (report.environment["ring.path"], report.environment["ring.place"]) == (ring, "chosen")
    assert report.environment["ring.bytes"] == str(16 * MIB)
    (device,) = report.devices
    assert device.peak.bytes >= sum(4 * (1000 + i) for i in range(500)) and report.lost.events == 0


@pytest.fixture
def small_shared_memory() -> tuple[str, ...]:
    """Starts a program that sees 64 MiB of shared memory, as Docker gives it."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("mounting needs root and unshare")
    before = ("unshare", "-m", "sh", "-ec", 'mount -t tmpfs -o size=64m none /dev/shm; exec "$@"', "sh")
    if subprocess.run([*before, "true"], capture_output=True).returncode != 0:
        pytest.skip("this container may not make a mount namespace")
    return before


WORKERS = """
import os, sys, threading
import torch
from torch.utils.data import DataLoader, Dataset

most, stop = 0, threading.Event()

def watch():
    global most
    while not stop.wait(0.005):
        taken = 0
        for name in os.listdir("/dev/shm"):
            if not name.startswith(".cuptimem-ring-"): continue
            try: about = os.stat("/dev/shm/" + name)
            except FileNotFoundError: continue
            taken += max(about.st_size, about.st_blocks * 512)
        most = max(most, taken)

class Numbers(Dataset):
    def __len__(self): return 64
    def __getitem__(self, i): return torch.full((50_000,), float(i))

if __name__ == "__main__":
    watcher = threading.Thread(target=watch)
    watcher.start()
    sums = [int(batch.sum()) for batch in DataLoader(Numbers(), batch_size=4, num_workers=16)]
    stop.set()
    watcher.join()
    print(sum(sums), most)
"""


def test_sixteen_workers_in_64_mebibytes(python: str, small_shared_memory: tuple[str, ...], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "p.py").write_text(WORKERS)
    command = [*small_shared_memory, python, *RUN, "--follow", "-o", "a.cmem", "p.py"]
    done = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), cwd=tmp_path, timeout=600)
    assert done.returncode == 0, done.stderr
    total, most = map(int, done.stdout.split())
    assert total == sum(range(64)) * 50_000
    assert 4 * MIB <= most <= 16 * MIB
    reports = [cuptimem.open(path) for path in glob.glob(f"{tmp_path}/a*.cmem")]
    assert len(reports) == 17 and {report.state for report in reports} == {"complete"}
    assert sum(report.lost.events for report in reports) == 0
    assert {report.environment["ring.place"] for report in reports} == {"shared", "beside"}
