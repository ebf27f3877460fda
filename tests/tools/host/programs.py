"""Programs whose host memory is known: each cause with a clean twin. Run in a process of their own by the tests.

python programs.py NAME: reads its Dataset in two workers for some seconds, slowly enough to be sampled. Each worker
writes what /proc shows of itself, when it begins and when it has read everything, to worker-PID.json.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy
import torch
from torch.utils.data import DataLoader, Dataset

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


PROGRAMS = {"listed": Listed, "in-array": InArray, "grows": Grows}


def main(name: str, seconds: float) -> None:
    dataset = PROGRAMS[name](seconds)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in DataLoader(dataset, batch_size=BATCH, num_workers=2, collate_fn=len):
        model(torch.ones(4, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
