"""One workload in one process, all recorders in turn: python -m benchmarks.worker WORKLOAD STEPS ROUNDS MODE...

In each round every mode runs one block of steps, in changing order; a recorder is started before and stopped after its
block, outside the time. So the modes see the same process, the same tensors and the same minute. Prints JSON.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import simulated, workloads
from benchmarks.driver import library, succeeded

MODES = ("bare", "cuptimem", "memray", "torch.profiler", "tracemalloc")
OPTIONS = {
    "cuptimem without driver": {"driver": False},
    "cuptimem with kernels": {"kernels": True},
    "cuptimem with operators": {"operators": True},
}
LOGGED = {"logged every 10 steps": 10, "logged every step": 1}  # what callbacks of trainers do, too
CALLBACK = "with the callback"
BARE_AGAIN = "bare again"  # of what two processes differ by without a recorder
EMPTY_CLIENT = "empty client"  # of CUPTI, called for what the driver level is: its cost is the simulated device's own
TRACEMALLOC_FRAMES = 25  # what its documentation uses where a traceback is wanted; its default of 1 names no caller


@functools.cache
def empty_client() -> Any:
    with tempfile.TemporaryDirectory(prefix="cuptimem-bench-") as folder:
        return library(Path(folder))


@contextlib.contextmanager
def recording(mode: str, folder: Path, number: int) -> Iterator[Any]:
    """The block runs under that recorder, which writes into folder."""
    if mode in ("bare", BARE_AGAIN):
        yield None
    elif mode == "cuptimem":
        import cuptimem

        with cuptimem.profile(folder / f"{number}.cmem") as prof:
            yield prof
    elif mode in OPTIONS:
        import cuptimem

        with cuptimem.profile(folder / f"{number}.cmem", **OPTIONS[mode]) as prof:
            yield prof
    elif mode in LOGGED:
        import cuptimem

        def ignored(figures: dict[str, int], step: int) -> None: ...

        with cuptimem.log(ignored, path=folder / f"{number}.cmem", every=LOGGED[mode], summary=False) as memory:
            workloads.after_step = memory.step
            try:
                yield None
            finally:
                workloads.after_step = None
    elif mode == CALLBACK:
        from cuptimem import integrations

        workloads.callbacks = lambda name: [getattr(integrations, name)(folder / f"{number}.cmem", summary=False)]
        try:
            yield None
        finally:
            workloads.callbacks = workloads.no_callbacks
    elif mode == EMPTY_CLIENT:
        client = empty_client()
        succeeded("subscribing", client.bench_subscribe(0, 1))
        try:
            yield None
        finally:
            succeeded("unsubscribing", client.bench_unsubscribe())
    elif mode == "memray":
        import memray

        with memray.Tracker(folder / f"{number}.bin"):
            yield None
    elif mode == "torch.profiler":
        import torch

        with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True, with_stack=True
        ):
            yield None
    elif mode == "tracemalloc":
        import tracemalloc

        tracemalloc.start(TRACEMALLOC_FRAMES)
        try:
            yield None
        finally:
            tracemalloc.stop()
    elif mode in simulated.RECORDER:
        import torch

        context, stacks = mode.split("/")
        torch.cuda.memory._record_memory_history("all", context=context, stacks=stacks, max_entries=100_000)
        try:
            yield None
        finally:
            torch.cuda.memory._record_memory_history(None)
    else:
        known = [*MODES, EMPTY_CLIENT, *OPTIONS, *LOGGED, CALLBACK, *simulated.RECORDER]
        raise SystemExit(f"unknown mode {mode}: {', '.join(known)}")


def main() -> None:
    name, steps, rounds, modes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
    run = {**workloads.WORKLOADS, **simulated.WORKLOADS}[name]()
    run(max(2, steps // 2))  # warm: caches, lazy imports, the optimizer's state
    thread = threading.Thread(target=run, args=(1,))  # the C library's shortcuts for one thread end here, for all modes
    thread.start()
    thread.join()
    found: dict[str, dict[str, list[float]]] = {mode: {"step": [], "cpu": []} for mode in modes}
    disk: dict[str, float] = {}
    order = random.Random(1)
    number = 0
    with tempfile.TemporaryDirectory(prefix="cuptimem-bench-") as temporary:
        folder = Path(temporary)
        for _ in range(rounds):
            for mode in order.sample(modes, len(modes)):
                number += 1
                gc.collect()
                with recording(mode, folder, number):
                    run(1)
                    cpu = time.process_time()
                    times = run(steps)
                    cpu = (time.process_time() - cpu) / steps
                found[mode]["step"].append(statistics.median(times))
                found[mode]["cpu"].append(cpu)
                for file in folder.iterdir():
                    disk[mode] = max(disk.get(mode, 0), file.stat().st_size)
                    os.unlink(file)
    print(json.dumps({"times": found, "disk": disk}))
    from cuptimem.record import backward_threads  # now: bare is without any of it

    backward_threads.wait()


if __name__ == "__main__":
    main()
