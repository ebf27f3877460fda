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


@pytest.mark.torch
@pytest.mark.parametrize(
    "end",
    [
        pytest.param("", marks=pytest.mark.extended, id="exit"),
        pytest.param("import signal; os.kill(os.getpid(), signal.SIGKILL)", id="kill"),
    ],
)
def test_the_ring_comes_with_torch(run, tmp_path: Path, end: str) -> None:
    """... before the first allocation that is recorded: after a kill nothing of it is missing."""
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


def of_size(mib: int, filled: int = 0, traces: Path | None = None) -> tuple[str, ...]:
    """Starts a program that sees so much shared memory, and a folder for traces on which no ring may lie."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("mounting needs root and unshare")
    mounts = f"mount -t tmpfs -o size={mib}m none /dev/shm"
    if filled:
        mounts += f"; fallocate -l {filled}m /dev/shm/other"
    if traces is not None:  # as a network's file system is: of no kind that is known to keep mapped pages writable
        mounts += f"; mount -t ramfs none {traces}"
    before = ("unshare", "-m", "sh", "-ec", f'{mounts}; exec "$@"', "sh")
    if subprocess.run([*before, "true"], capture_output=True).returncode != 0:
        pytest.skip("this container may not make a mount namespace")
    return before


# At most 7 batches at once: 6 that three workers have prefetched, and the one in hand.
LOADER = """
import os, sys
import torch
from torch.utils.data import DataLoader, Dataset

size = int(sys.argv[1])

def taken():
    found = 0
    for name in os.listdir("/dev/shm"):
        if name.startswith(".cuptimem-ring-"):
            try: found += os.stat("/dev/shm/" + name).st_blocks * 512
            except FileNotFoundError: pass
    return found

class Numbers(Dataset):
    def __len__(self): return 12
    def __getitem__(self, i): return torch.full((size // 4,), float(i))

if __name__ == "__main__":
    seen = []
    for batch in DataLoader(Numbers(), batch_size=1, num_workers=3):
        seen.append((int(batch[0, -1]), taken()))
        del batch
    print(sum(number for number, _ in seen), max(bytes for _, bytes in seen))
"""


def load(python: str, before: tuple[str, ...], folder: Path, batch: int, *run: str) -> int:
    """Most bytes that rings took of shared memory while batches of so many bytes were loaded."""
    (folder / "p.py").write_text(LOADER)
    command = [*before, python, "-W", "ignore", *run, "p.py", str(batch)]
    done = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), cwd=folder, timeout=600)
    assert done.returncode == 0, done.stderr
    total, most = map(int, done.stdout.split())
    assert total == sum(range(12))
    return most


def skip_in_memory(folder: Path) -> None:
    if subprocess.run(["stat", "-f", "-c", "%T", str(folder)], capture_output=True, text=True).stdout == "tmpfs\n":
        pytest.skip("the folder for temporary files is in memory, too")


@pytest.mark.torch
@pytest.mark.parametrize("batch", [pytest.param(7, marks=pytest.mark.extended), 8])
def test_a_loader_that_nearly_fills_64_mebibytes(python: str, tmp_path: Path, batch: int) -> None:
    """... recorded as bare: rings take nothing of it, and what they hold survives a kill all the same."""
    skip_in_memory(tmp_path)
    before = of_size(64)
    assert load(python, before, tmp_path, batch * MIB) == 0
    assert load(python, before, tmp_path, batch * MIB, *RUN, "--follow", "-o", "a.cmem") == 0
    reports = [cuptimem.open(path) for path in glob.glob(f"{tmp_path}/a*.cmem")]
    assert len(reports) == 4 and {report.state for report in reports} == {"complete"}
    assert sum(report.lost.events for report in reports) == 0
    assert {report.environment["ring.place"] for report in reports} == {"beside"}


@pytest.mark.torch
@pytest.mark.parametrize(
    "mib, filled, local, taken",
    [
        pytest.param(16, 0, True, 0, marks=pytest.mark.extended),
        pytest.param(16, 0, False, 0, marks=pytest.mark.extended),
        pytest.param(32, 0, False, 0, marks=pytest.mark.extended),  # a sixteenth is no ring
        pytest.param(64, 0, False, 4 * MIB, marks=pytest.mark.extended),
        pytest.param(128, 0, True, 0, marks=pytest.mark.extended),
        pytest.param(128, 0, False, 8 * MIB, marks=pytest.mark.extended),
        (256, 0, True, 16 * MIB),  # one whole ring
        pytest.param(256, 100, True, 0, marks=pytest.mark.extended),  # a sixteenth of what is free
        (256, 40, False, 27 * MIB // 2),
        pytest.param(256, 200, False, 0, marks=pytest.mark.extended),
    ],
)
def test_rings_take_a_sixteenth(python: str, tmp_path: Path, mib: int, filled: int, local: bool, taken: int) -> None:
    """All together. They take it only whole, or where no ring may lie beside the trace."""
    (tmp_path / "traces").mkdir()
    if local:
        skip_in_memory(tmp_path)
    before = of_size(mib, filled, None if local else tmp_path / "traces")
    batch = (mib - filled) * MIB * 7 // 64 & ~4095
    assert load(python, before, tmp_path, batch, *RUN, "--follow", "-o", "traces/a.cmem") == taken


@pytest.mark.torch
def test_a_trace_in_shared_memory(python: str, tmp_path: Path) -> None:
    """A ring beside it would take as much of it as one in its place."""
    command = (*RUN, "--follow", "-o", "/dev/shm/a.cmem")
    assert load(python, of_size(64), tmp_path, 7 * MIB, *command) == 0
