"""Programs whose host memory is known: each cause with a clean twin. Run in a process of their own by the tests.

python programs.py NAME: reads its Dataset in two workers for some seconds, slowly enough to be sampled. Each worker
writes what /proc shows of itself, when it begins and when it has read everything, to worker-PID.json.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import torch
from torch.utils.data import DataLoader, Dataset

from tests.tools.host.ranks import until_sampled

ITEMS = 500_000  # of about 60 bytes: 30 MiB of Python objects
BATCH = 5_000


def private() -> int:
    """This process's private bytes, by the kernel."""
    rows = [line.split() for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]]
    return sum(int(row[1]) << 10 for row in rows if row[0] in ("Private_Clean:", "Private_Dirty:"))


class Reads(Dataset[int]):
    """Every worker stays for a while when it has read its part, so that a sample sees all that was copied."""

    rest = 0.0

    def __init__(self, seconds: float) -> None:
        self.pause = seconds / (ITEMS / BATCH / 2)
        self.begun = -1

    def __len__(self) -> int:
        return ITEMS

    def note(self, last: int) -> None:
        if self.begun < 0:
            self.begun = private()
        mine = Path(f"worker-{os.getpid()}.json")
        mine.write_text(json.dumps({"begun": self.begun, "end": private()}))
        if last >= ITEMS - BATCH - 1:
            time.sleep(self.rest)


class Listed(Reads):
    rest = 3.0

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.names = [f"image-{i:06}" for i in range(ITEMS)]
        self.few = [1, 2, 3]

    def __getitems__(self, indices: list[int]) -> list[int]:
        found = [len(self.names[i]) for i in indices]
        time.sleep(self.pause)
        self.note(indices[-1])
        return found


class InArray(Reads):
    """The clean twin: the same names in one array."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.names = numpy.array([f"image-{i:06}" for i in range(ITEMS)], dtype="S12")

    def __getitems__(self, indices: list[int]) -> list[int]:
        found = [len(self.names[i]) for i in indices]
        time.sleep(self.pause)
        self.note(indices[-1])
        return found


class Grows(InArray):
    """Each worker keeps 512 KiB of each batch: a step of two workers adds 256 KiB to one."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.kept: list[Any] = []

    def __getitems__(self, indices: list[int]) -> list[int]:
        self.kept.append(numpy.ones(1 << 19, dtype="u1"))
        self.kept[-1] += 1
        return super().__getitems__(indices)


class Pieces(Dataset[Any]):
    """Batches of 4 MiB, made in so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.pause = seconds

    def __len__(self) -> int:
        return 320

    def __getitems__(self, indices: list[int]) -> Any:
        time.sleep(self.pause)
        return torch.ones(len(indices), 1 << 20, dtype=torch.uint8)


def queued(workers: list[Any]) -> int:
    """Bytes in /dev/shm that they have made: open, or named by them."""
    found: dict[tuple[int, int], int] = {}
    for worker in workers:
        files = [*Path(f"/proc/{worker.pid}/fd").iterdir(), *Path("/dev/shm").glob(f"torch_{worker.pid}_*")]
        for file in files:
            try:
                link, what = os.readlink(file) if file.is_symlink() else str(file), file.stat()
            except FileNotFoundError:  # taken meanwhile
                continue
            if link.startswith("/dev/shm/"):
                found[what.st_dev, what.st_ino] = what.st_blocks * 512
    return sum(found.values())


def queue(pause: float, strategy: str) -> None:
    """80 batches. Two workers may have 8 of them, 32 MiB, ready. Writes at each step how many bytes there are. pause:
    of a worker, for each; without one the loop waits."""
    torch.multiprocessing.set_sharing_strategy(strategy)  # type: ignore[no-untyped-call]  # of PyTorch, without types
    loader = DataLoader(Pieces(pause), batch_size=4, num_workers=2, prefetch_factor=4, collate_fn=same)
    batches = iter(loader)
    seen = []
    model = torch.nn.Linear(4, 4)
    for _ in batches:
        model(torch.ones(4, 4)).sum().backward()
        seen.append(queued(batches._workers))  # type: ignore[attr-defined]  # of the iterator with workers
        if not pause and 20 <= len(seen) < 28:
            until_sampled()
    Path(f"loop-{os.getpid()}.json").write_text(json.dumps({"queued": seen}))


def same(batch: Any) -> Any:
    return batch


def slow_loop(seconds: float) -> None:
    queue(0, "file_descriptor")


def slow_loop_named(seconds: float) -> None:
    queue(0, "file_system")


def slow_workers(seconds: float) -> None:
    """The clean twin: what they make is taken at once."""
    queue(seconds / 40, "file_descriptor")


def reads(kind: type[Reads], seconds: float) -> None:
    dataset = kind(seconds)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in DataLoader(dataset, batch_size=BATCH, num_workers=2, collate_fn=len):
        model(torch.ones(4, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


READS: dict[str, Callable[[float], None]] = {
    "listed": partial(reads, Listed),
    "in-array": partial(reads, InArray),
    "grows": partial(reads, Grows),
}
QUEUES: dict[str, Callable[[float], None]] = {
    "slow-loop": slow_loop,
    "slow-loop-named": slow_loop_named,
    "slow-workers": slow_workers,
}

if __name__ == "__main__":
    {**READS, **QUEUES}[sys.argv[1]](float(sys.argv[2]))
