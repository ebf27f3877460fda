"""Threads whose calls of the allocator overlap. Prints JSON of what the trace and the oracle say.

python racing_child.py race TRACE      64 threads take and free blocks of random sizes, without the GIL
python racing_child.py held TRACE      one waits inside a call while another makes the peak
"""

import json
import sys
import threading
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[2])]

import replay  # noqa: E402
import torch  # noqa: E402
from oracle import Oracle, read_log  # noqa: E402

import cuptimem  # noqa: E402

THREADS, ROUNDS = 64, 3000
MIB = 1 << 20
ORACLE = Oracle()


@torch.jit.script
def churn(rounds: int, seed: int, most: int) -> int:
    """Runs without the GIL."""
    kept: list[torch.Tensor] = []
    for _ in range(rounds):
        seed = (seed * 1103515245 + 12345) % 2147483648
        if len(kept) > 8:
            kept.pop(seed % 8)
        kept.append(torch.empty(1 + seed % most, dtype=torch.uint8))
    return len(kept)


@torch.jit.script
def take_and_free(size: int) -> int:
    block = torch.empty(size, dtype=torch.uint8)
    return block.numel()


def race(path: str) -> dict[str, Any]:
    together = threading.Barrier(THREADS)

    def work(number: int) -> None:
        together.wait()
        churn(ROUNDS, number, 1 << 16)

    log = Path(path + ".log")
    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    with cuptimem.profile(path) as prof:
        base = ORACLE.live()
        ORACLE.reset()
        ORACLE.log_open(log)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        totals = ORACLE.totals()
    calls = read_log(log)
    trace = replay.replay(replay.rows(path), snapshot_peak=False)
    (device,) = prof.report.devices
    return {
        "sure": bounds(base, calls.entries, calls.threads),
        "oracle": totals,
        "calls": len(calls.entries),
        "peak": device.peak.bytes,
        "replay": [trace.peak, trace.bytes, trace.allocations, trace.frees],
        "end": device.end,
        "lost": [prof.report.lost.events, prof.report.lost.unknown_frees, prof.report.lost.replaced],
    }


def held(path: str) -> list[Any]:
    """The oracle's and the recorded peak, where 3 MiB are inside an allocation, and inside a free, as 5 are live."""
    found = []
    for where in (1, -1):
        thread = threading.Thread(target=take_and_free, args=(3 * MIB,))
        with cuptimem.profile(f"{path}{where}") as prof:
            ORACLE.hold(where, 3 * MIB)
            ORACLE.reset()
            thread.start()
            ORACLE.wait_for_hold()
            take_and_free(5 * MIB)
            ORACLE.release()
            thread.join()
            peak = ORACLE.totals()["peak"]
        (device,) = prof.report.devices
        found.append([peak, device.peak.bytes, device.end, device.allocations])
    return found


def bounds(base: dict[int, int], entries: list[tuple[int, int]], threads: list[int]) -> int:
    """The most bytes that are certainly recorded as live at one moment.

    A block may not be recorded yet until its thread's next call, and it may be recorded as freed from the call before
    its free on. Each thread frees only what it took.
    """
    sizes, blocks = dict(base), []
    for address, size in entries:
        blocks.append((address, size if size >= 0 else sizes.pop(address), size >= 0))
        if size >= 0:
            sizes[address] = size
    calls: dict[int, list[int]] = {}
    for i, thread in enumerate(threads):
        calls.setdefault(thread, []).append(i)
    changes = [0] * len(entries)  # of the bytes inside of calls, after each entry
    for own in calls.values():
        before = 0
        for i, following in zip(own, [*own[1:], None], strict=True):
            taken = blocks[i] if blocks[i][2] else None
            freed = blocks[following] if following is not None and not blocks[following][2] else None
            now = sum({block[0]: block[1] for block in (taken, freed) if block is not None}.values())
            changes[i] = now - before
            before = now
    live, inside, most = sum(base.values()), 0, 0
    for (_, size, is_taken), change in zip(blocks, changes, strict=True):
        live += size if is_taken else -size
        inside += change
        most = max(most, live - inside)
    return most


def main() -> None:
    for _ in range(3):  # until TorchScript has compiled them
        churn(9, 1, 9)
        take_and_free(9)
    print(json.dumps({"race": race, "held": held}[sys.argv[1]](sys.argv[2])))


if __name__ == "__main__":
    main()
