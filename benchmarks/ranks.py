"""What comparing the traces of many ranks takes: python -m benchmarks.ranks [1000]

One process records a small training as each of the ranks in turn. Planted: one rank has one longer batch, another one
keeps a tensor a step; both have to be found. Two processes read (--jobs 2).
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time

import cuptimem

STEPS = 16
JOBS = 2


def train(longer: bool, keeps: bool) -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters())
    kept: list[torch.Tensor] = []
    for step in range(STEPS):
        x = torch.randn(4096 if longer and step == 11 else 64, 64)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        if keeps:
            kept.append(torch.zeros(25_600))


def record(folder: str, count: int) -> None:
    os.environ["WORLD_SIZE"] = str(count)
    for rank in range(count):
        os.environ["RANK"] = str(rank)
        with cuptimem.profile(f"{folder}/run-{rank:04}.cmem", walks=False, holders=False, driver=False):
            train(rank == 2 * count // 3, rank == count // 3)


def read(folder: str, count: int) -> None:
    """In a process that has no PyTorch, as on the machine of who reads."""
    begun = time.monotonic()
    found = cuptimem.ranks(folder, jobs=JOBS)
    took = time.monotonic() - begun
    differ = [found.label(at) for one in found.differences for at in one.ranks]
    leaks = [found.label(at) for one in found.growths for at in one.ranks]
    assert len(found.ranks) == count and not found.failed and not found.missing
    assert differ[0] == str(2 * count // 3) and leaks == [str(count // 3)], (differ, leaks)
    own, readers = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    cpu = own.ru_utime + own.ru_stime + readers.ru_utime + readers.ru_stime
    with open("/proc/self/status", encoding="ascii") as file:  # ru_maxrss has that of the process before exec
        most = next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
    size = sum(os.path.getsize(f"{folder}/{name}") for name in os.listdir(folder))
    print(
        f"{count} traces, {size / 1e6:.0f} MB: {took:.1f} s by the clock, {cpu:.1f} s of CPU; "
        f"at most {most >> 10} MiB, and {readers.ru_maxrss >> 10} MiB each of {JOBS} readers"
    )


def main() -> None:
    if sys.argv[2:]:
        read(sys.argv[2], int(sys.argv[1]))
        return
    count = sys.argv[1] if sys.argv[1:] else "1000"
    with tempfile.TemporaryDirectory(prefix="cuptimem-bench-") as folder:
        record(folder, int(count))
        subprocess.run([sys.executable, "-m", "benchmarks.ranks", count, folder], check=True)


if __name__ == "__main__":
    main()
