"""Memory that malloc keeps after it was freed, with clean twins: small tensors stay between the freed ones.

python keeps.py NAME: loads and frees, then trains for longer than that took. In the end a forked child calls
malloc_trim and writes to child-PID.json what the kernel then says it has less: nothing of the process itself changes.
"""

import ctypes
import json
import os
import sys
import threading
import time
from pathlib import Path

import torch

PIECE, PIECES = 48 << 10, 4096  # 192 MiB; malloc maps nothing of such a size alone
kept: list[torch.Tensor] = []  # 64 KiB: what malloc frees between them it cannot join with the top
libc = ctypes.CDLL(None)


def resident() -> int:
    rows = [line.split() for line in Path("/proc/self/status").read_text().splitlines()]
    return sum(int(row[1]) << 10 for row in rows if row[0] == "RssAnon:")


def age() -> float:
    """Seconds since this process began, with what imports took: more than as much is trained, behind it."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def holes(count: int = PIECES) -> None:
    pieces = []
    for i in range(count):
        pieces.append(torch.ones(PIECE, dtype=torch.uint8))
        if i % 32 == 0:
            kept.append(torch.ones(512, dtype=torch.uint8))
    kept.append(torch.ones(512, dtype=torch.uint8))


def train(seconds: float, each: int = 0) -> None:
    """each: pieces that a step has, too."""
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        loss = model(torch.ones(4, 64)).sum()
        holes(each)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if each:
            kept.clear()


def note() -> None:
    """A child has its parent's pages, and returns its own view of them."""
    if (pid := os.fork()) == 0:
        before = resident()
        libc.malloc_trim(0)
        Path(f"child-{os.getpid()}.json").write_text(json.dumps({"returned": before - resident()}))
        os._exit(0)
    os.waitpid(pid, 0)


def loads() -> None:
    holes()
    train(2 + 1.5 * age())


def loads_in_threads() -> None:
    threads = [threading.Thread(target=holes, args=(PIECES // 8,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    train(2 + 1.5 * age())


def trims() -> None:
    """The program has given it back itself."""
    holes()
    libc.malloc_trim(0)
    train(2 + 1.5 * age())


def uses_again() -> None:
    """Each step has as much."""
    train(2 + 1.5 * age(), PIECES)


def has_large_ones() -> None:
    """What malloc maps alone it returns alone."""
    for _ in range(2):
        large = [torch.ones(48 << 20, dtype=torch.uint8) for _ in range(4)]
        del large
    train(2 + 1.5 * age())


CAUSES = {"loads": loads, "loads-in-threads": loads_in_threads}
CLEAN = {"trims": trims, "uses-again": uses_again, "has-large-ones": has_large_ones}

if __name__ == "__main__":
    {**CAUSES, **CLEAN}[sys.argv[1]]()
    note()
