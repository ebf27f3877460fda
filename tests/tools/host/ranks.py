"""Two processes that need the same file of 96 MiB: each cause of a second copy, with a clean twin.

python ranks.py NAME: makes the file and starts both. Each writes what /proc shows that it has more of its own, and what
it has of the file's pages, to rank-PID.json.
"""

import io
import json
import mmap
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cuptimem import _core

PIECES, PIECE = 24, 4 << 20
FILE = Path("model.pt").absolute()
EVERY = 6  # pieces, after which a sample is waited for


def private() -> dict[str, int]:
    """Bytes that this process has alone, and what of these are changed pages of the file."""
    alone, of_file, inside = 0, 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        key, *values = line.split()
        if not key.endswith(":"):
            inside = line.endswith(FILE.name)
        elif key == "Anonymous:":
            alone += int(values[0]) << 10
            of_file += inside * int(values[0]) << 10
    return {"alone": alone, "of_file": of_file}


def until(good: Callable[[Any], bool]) -> None:
    """Waits for such a sample of the recording; those of the past count."""
    while not any(map(good, _core.tree_samples("a.cmem"))):
        time.sleep(0.05)


def until_sampled() -> None:
    since = time.time_ns()
    until(lambda sample: sample[0] > since and any(row[0] == os.getpid() for row in sample[5]))


class Slowly(io.FileIO):
    """A file on a slow disk."""

    left = EVERY * PIECE

    def readinto(self, buffer: Any) -> Any:
        self.left -= len(buffer)
        if self.left < 0:
            self.left = EVERY * PIECE
            until_sampled()
        return super().readinto(buffer)


def pieces() -> Iterator[bytes]:
    with open(FILE, "rb") as file:
        for i in range(PIECES):
            yield file.read(PIECE)
            if i % EVERY == EVERY - 1:
                until_sampled()


def loads() -> Any:
    import torch

    with Slowly(FILE) as file:
        return torch.load(file)


def reads() -> Any:
    return list(pieces())


def maps_and_writes() -> Any:
    with open(FILE, "rb") as file:
        weights = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    for at in range(0, len(weights), 4096):
        weights[at] = 1
    me = os.getpid()
    until(lambda sample: any(row[0] == me and row[3] >= 64 << 20 for row in sample[6] or ()))
    return weights


def maps() -> Any:
    import torch

    weights = torch.load(FILE, mmap=True)
    for weight in weights.values():
        weight.sum()
    until_sampled()
    return weights


def streams() -> Any:
    """Reads all of it, keeps none, and has 32 MiB of its own."""
    own = bytearray(b"x") * (32 << 20)
    for _ in pieces():
        continue
    return own


def inherits() -> Any:
    """What the parent has read, mapped before the fork."""
    total = sum(inherited[at] for at in range(0, len(inherited), 4096))
    until_sampled()
    return total


CAUSES: dict[str, Callable[[], Any]] = {"loads": loads, "reads": reads, "maps-and-writes": maps_and_writes}
CLEAN: dict[str, Callable[[], Any]] = {"maps": maps, "streams": streams, "inherits": inherits}
inherited = mmap.mmap(-1, 1)


def rank(name: str) -> None:
    until_sampled()
    before = private()
    kept = {**CAUSES, **CLEAN}[name]()
    after = private()
    Path(f"rank-{os.getpid()}.json").write_text(json.dumps({key: after[key] - before[key] for key in after}))
    until_sampled()
    del kept


def main(name: str) -> None:
    global inherited
    if name not in ("loads", "maps"):
        FILE.write_bytes(os.urandom(PIECE) * PIECES)
        if name == "inherits":
            inherited = mmap.mmap(-1, PIECE * PIECES)
            for piece in pieces():
                inherited.write(piece)
        ranks = [multiprocessing.get_context("fork").Process(target=rank, args=(name,)) for _ in range(2)]
        for one in ranks:
            one.start()
        for one in ranks:
            one.join()
        return
    import torch

    torch.save({str(i): torch.ones(PIECE, dtype=torch.uint8) for i in range(PIECES)}, FILE)
    command = [sys.executable, __file__, "rank", name]
    for started in [subprocess.Popen(command) for _ in range(2)]:
        started.wait()


if __name__ == "__main__":
    if sys.argv[1] == "rank":
        rank(sys.argv[2])
    else:
        main(sys.argv[1])
