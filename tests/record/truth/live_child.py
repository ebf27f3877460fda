"""One program under the oracle and cuptimem; at random check points three witnesses are compared. Prints JSON.

python live_child.py PROGRAM TRACE SEED POINTS [START]    START: begin to record at this check point (mid-run)
"""

import gc
import importlib
import json
import random
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "programs"), str(HERE.parents[2])]


def differences(ours: dict[int, int], theirs: dict[int, int]) -> dict[str, list[tuple[int, int, int]]]:
    """missing, extra, sizes: (address, our size, their size)."""
    return {
        "missing": [(a, 0, s) for a, s in theirs.items() if a not in ours],
        "extra": [(a, s, 0) for a, s in ours.items() if a not in theirs],
        "sizes": [(a, s, theirs[a]) for a, s in ours.items() if a in theirs and theirs[a] != s],
    }


def main() -> None:
    name, path, seed, wanted = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    start = int(sys.argv[5]) if len(sys.argv) > 5 else None
    import storages
    from oracle import Oracle

    program = importlib.import_module(name)
    oracle = Oracle()
    names: list[str] = []
    program.main(names.append)  # a bare run: how many points are there
    gc.collect()
    chosen = set(random.Random(seed).sample(range(0 if start is None else start + 1, len(names)), wanted))

    import replay

    import cuptimem
    from cuptimem import _core

    points: list[dict[str, object]] = []
    count = 0
    profile = cuptimem.profile(path)

    def compare(point: str) -> None:
        _core.capture_sync()
        trace = replay.live_set(path)
        below = oracle.live()
        entry: dict[str, object] = {
            "point": f"{count} {point}",
            "blocks": len(below),
            "bytes": sum(below.values()),
            "oracle": differences(trace, below),
        }
        if not point.startswith("inside"):
            entry["storages"] = differences(trace, storages.reachable())
        points.append(entry)

    def check(point: str) -> None:
        nonlocal count
        enabled = gc.isenabled()
        gc.disable()  # a collection between two witnesses would free tensors
        try:
            if count == start:
                profile.__enter__()
            if count in chosen:
                compare(point)
            count += 1
        finally:
            if enabled:
                gc.enable()

    if start is None:
        profile.__enter__()
    program.main(check)
    profile.__exit__(None, None, None)
    final = replay.replay(replay.rows(path), snapshot_peak=False)
    print(
        json.dumps(
            {
                "points": points,
                "count": count,
                "names": len(names),
                "overflow": oracle.totals()["overflow"],
                "seeded": sum(1 for b in final.born if b.seeded),
                "allocations": final.allocations,
                "unknown_frees": final.unknown_frees,
                "duplicates": final.duplicates,
                "lost": final.lost,
            }
        )
    )


if __name__ == "__main__":
    main()
