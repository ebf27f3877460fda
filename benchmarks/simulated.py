"""Workloads on the simulated CUDA device. Kernels cost nothing there: what is left is Python, PyTorch, its allocator.

They run in .venv-cuda, which `make test` makes, with the device preloaded (see bench.on_device).
"""

from __future__ import annotations

import _thread
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

Steps = Callable[[int], list[float]]

DEPTHS = (30, 100)  # Python frames
# PyTorch's own recorder: whose stacks are kept (of what is alive; of allocations; of frees too) and what is in them.
RECORDER = ("state/python", "alloc/python", "all/python", "all/all")
RECORDER_DEFAULT = "all/all"
PAIRS = 2000


def pairs(frames: int) -> Steps:
    """One allocation on the device with its free under exactly that many Python frames: a step is 2,000 of them; times
    are per pair, in a thread that has no other frames."""
    import torch

    empty = torch.empty
    empty(1, device="cuda")
    times: list[float] = []
    failures: list[BaseException] = []
    done = _thread.allocate_lock()

    def deep(left: int, count: int) -> None:
        if left > 1:
            deep(left - 1, count)
            return
        try:
            for _ in range(100):  # the thread's first ones
                empty(1024, device="cuda")
            for _ in range(count):
                begin = time.thread_time_ns()
                for _ in range(PAIRS):
                    empty(1024, device="cuda")
                times.append((time.thread_time_ns() - begin) / PAIRS * 1e-9)
        except BaseException as error:
            failures.append(error)
        finally:
            done.release()

    def run(count: int) -> list[float]:
        times.clear()
        done.acquire()
        _thread.start_new_thread(deep, (frames, count))
        done.acquire()
        done.release()
        if failures:
            raise failures[0]
        return list(times)

    return run


def gpt2() -> Steps:
    """GPT-2 small's shape, 163 million parameters: batch 8 x 512, bfloat16 autocast, fused AdamW."""
    import torch

    from benchmarks.gpt import make

    with torch.device("cuda"):
        model = make(width=768, heads=12, layers=12, context=1024, vocabulary=50257)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    tokens = torch.zeros(8, 512, dtype=torch.long, device="cuda")

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(tokens, tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    def run(count: int) -> list[float]:
        found = []
        for _ in range(count):
            begin = time.perf_counter()
            step()
            found.append(time.perf_counter() - begin)
        return found

    return run


WORKLOADS: dict[str, Callable[[], Steps]] = {
    **{f"pairs_{frames}": lambda frames=frames: pairs(frames) for frames in DEPTHS},
    "gpt2": gpt2,
}

# steps in a block, rounds: as in workloads.SIZES
SIZES = {**{f"pairs_{frames}": (7, 45) for frames in DEPTHS}, "gpt2": (11, 55)}
QUICK = {**{f"pairs_{frames}": (3, 2) for frames in DEPTHS}, "gpt2": (2, 1)}

_ENTRY_TIME = struct.Struct("<QQ")  # cudasim/csrc/core/report.h: ns in entry points, calls of them
_ENTRY_AT = 88


def entry_points(steps: int) -> dict[str, float]:
    """Share of the GPT-2 step that is spent in the simulator's own entry points, counted at their entry and exit, and
    the process's resident memory."""
    import torch

    from benchmarks.probes import resident_kib

    report = Path(os.environ["CUPTIMEM_SIM_REPORT"])
    run = gpt2()
    run(5)
    before = _ENTRY_TIME.unpack_from(report.read_bytes(), _ENTRY_AT)
    begin = time.perf_counter_ns()
    times = run(steps)
    wall = time.perf_counter_ns() - begin
    after = _ENTRY_TIME.unpack_from(report.read_bytes(), _ENTRY_AT)
    return {
        "share": (after[0] - before[0]) / wall,
        "calls": (after[1] - before[1]) / steps,
        "step_s": sorted(times)[len(times) // 2],
        "resident_mib": resident_kib() / 1024,
        "peak_mib": torch.cuda.max_memory_allocated() / 2**20,
    }
