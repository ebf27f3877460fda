"""Helpers of the programs that the tests of this folder run."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "truth"))

from replay import replay, rows

import cuptimem  # noqa: F401
from cuptimem import _core as core
from cuptimem.record import recorder  # noqa: F401


def say(**answer: object) -> None:
    print(json.dumps(answer), flush=True)


def tasks() -> list[str]:
    """The names of this process's kernel threads."""
    found = []
    for task in os.listdir("/proc/self/task"):
        try:
            found.append(Path(f"/proc/self/task/{task}/comm").read_text().strip())
        except OSError:  # has just ended
            continue
    return found


def ours(wanted: int) -> int:
    """How many threads have our name, once so many have: one that samples processes comes and goes, and has the name of
    the collector that starts it."""
    end = time.monotonic() + 60
    while (found := tasks().count("cuptimem")) != wanted and time.monotonic() < end:
        time.sleep(0.005)
    return found


def close_and_take() -> list[int]:
    """Closes every descriptor but the standard ones, and gives each number to a new file of the program's."""
    numbers = [int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2]
    os.closerange(3, 65536)
    for i, number in enumerate(numbers):
        file = os.open(f"theirs{i}", os.O_RDWR | os.O_CREAT)
        if file != number:
            os.dup2(file, number)
            os.close(file)
    return numbers


def wait_for_room() -> None:
    """Until there are rings and blocks for some hundred more threads: how soon a machine that is busy gives those of
    ended threads back is its own affair, and whoever needs more than there are meanwhile loses events."""
    counts = core.capture_counts()
    while counts["rings"] > 600 or counts["ring_blocks_used"] > 600:
        time.sleep(0.001)
        counts = core.capture_counts()


def heap(path: str) -> dict[str, Any]:
    """What is alive at the end of a trace, and whether every event fitted the ones before it."""
    result = replay(rows(path), snapshot_peak=False)
    return {
        "live": {address: block.size for address, block in result.live.items() if not block.seeded},
        "bytes": result.bytes,
        "allocations": result.allocations,
        "frees": result.frees,
        "unknown": result.unknown_frees,
        "duplicates": result.duplicates,
        "lost": result.lost,
    }


def storage(tensor: Any) -> tuple[int, int]:
    kept = tensor.untyped_storage()
    return kept.data_ptr(), kept.nbytes()
