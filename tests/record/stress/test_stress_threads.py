"""Thousands of short threads: their rings are used again, nothing is lost, what is alive afterwards is exact."""

import pytest


@pytest.mark.torch
def test_short_threads_of_torch(forked, scale, keep):
    answer = forked(
        """
import random, threading, torch
total = int(sys.argv[1])
kept, lock = {}, threading.Lock()
def work(i):
    x = torch.empty(64 + i % 7)
    y = torch.empty(32)
    if i % 50 == 0:
        with lock: kept[i] = y
    del x
with cuptimem.profile("run.cmem"):
    done = 0
    while done < total:
        wait_for_room()
        batch = [threading.Thread(target=work, args=(done + k,)) for k in range(min(25, total - done))]
        for t in batch: t.start()
        for t in batch: t.join()
        done += len(batch)
    for i in list(kept)[::3]: del kept[i]
    core.capture_sync()
    counts = core.capture_counts()
    found = heap("run.cmem")
truth = dict(storage(y) for y in kept.values())
threads = len({r.thread for r in rows("run.cmem") if r.kind == "thread"})
say(counts=counts, same=found["live"] == truth, kept=len(truth), threads=threads, tasks=tasks(),
    **{k: found[k] for k in ("allocations", "frees", "unknown", "duplicates", "lost")})
""",
        scale(500, 10_000),
    )
    total = scale(500, 10_000)
    assert answer["same"] and answer["kept"] == total // 50 - -(-(total // 50) // 3)
    assert (answer["lost"], answer["unknown"], answer["duplicates"], answer["counts"]["lost_events"]) == (0, 0, 0, 0)
    assert answer["allocations"] == 2 * total and answer["threads"] >= total
    assert answer["counts"]["rings"] < 2048 and "cuptimem" not in answer["tasks"]
    keep(threads=total, events=answer["counts"]["events"], lost=answer["lost"], live_blocks=answer["kept"])


def test_short_threads_without_python(child, scale, keep):
    answer = child(
        """
import ctypes
total, pairs, batch = int(sys.argv[1]), 3, 50
published = 0
with cuptimem.profile("run.cmem"):
    for first in range(0, total, batch):
        wait_for_room()
        published += core.capture_emit(batch, pairs, first=first + 1)
    counts = core.capture_counts()
found = heap("run.cmem")
say(published=published, threads=len({r.thread for r in rows("run.cmem") if r.kind == "thread"}), counts=counts,
    tasks=tasks(), **{k: found[k] for k in ("allocations", "frees", "unknown", "duplicates", "lost", "bytes")})
""",
        scale(1500, 10_000),
    )
    total = scale(1500, 10_000)
    assert answer["published"] == 2 * 3 * total
    assert (answer["allocations"], answer["frees"], answer["bytes"]) == (3 * total, 3 * total, 0)
    assert (answer["lost"], answer["unknown"], answer["duplicates"]) == (0, 0, 0)
    assert answer["threads"] >= total and answer["counts"]["rings"] < 2048 and "cuptimem" not in answer["tasks"]
    keep(threads=total, events=answer["counts"]["events"], lost=answer["lost"])
