"""Traces whose pages are hard: what every view of them must survive."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "analysis"))

import craft
from craft import CUDA, GRAIN, SEEDED, STEP, Trace
from leak_program import COLLECT_BEGIN, COLLECT_END, FINAL_BEGIN, FINAL_END

from tests.event_kinds import OOM, RESERVED, SEED

HOSTILE = "</script><img src=x onerror=alert(1)>\u202e\u0000\n<!--{{7*7}}"


def training(steps: int = 12, *, ticks: bool = True, leak: bool = False, file: str = "train.py") -> Trace:
    """Parameters, and in each step activations of three lines that go again; with leak 512 bytes a step stay."""
    Trace.library = craft.encoder()
    trace = Trace()
    trace.add(SEED, 1 << 20, 4096)
    trace.mark(SEEDED)
    trace.alloc(1 << 21, 65536, trace.stack((file, "build", 3)))
    for step in range(steps):
        first = (3 << 21) + step * (1 << 20)
        for i, size in enumerate((8192, 16384, 1024)):
            module = (file, "forward", 10 + i, 0x1000 + i, f"Layer{i}")
            trace.alloc(first + i * 65536, size, trace.stack(module, (file, "main", 30)), after=50 * GRAIN)
        if leak:
            trace.alloc(first + 4 * 65536, 512, trace.stack((file, "keep", 40)))
        for i in range(3):
            trace.free(first + i * 65536, after=50 * GRAIN)
        if ticks:
            trace.tick(STEP, 1, trace.line(31, file))
    if leak:  # the collection that a recording ends with
        trace.mark(FINAL_BEGIN, 1, stack=trace.line(99, file))
        trace.mark(COLLECT_BEGIN, 2)
        trace.mark(COLLECT_END, 2)
        trace.mark(FINAL_END)
    return trace


def device() -> Trace:
    """A CUDA device that takes segments and refuses one allocation, beside the CPU."""
    trace = training(3)
    for i in range(6):
        trace.add(RESERVED, 0, (i + 1) << 21, device=CUDA, index=0)
        trace.alloc((1 << 40) + (i << 21), 1 << 20, trace.line(50 + i), device=CUDA, index=0)
    trace.add(OOM, 1 << 30, 6 << 20, trace.line(60), device=CUDA, index=0)
    trace.free(1 << 40, device=CUDA, index=0)
    return trace


def hostile() -> Trace:
    return training(3, file=f"/home/{HOSTILE}/{HOSTILE}{'x' * 100_000}.py")


def many_lines(lines: int) -> Trace:
    Trace.library = craft.encoder()
    trace = Trace()
    for i in range(lines):
        trace.alloc((1 << 30) + i * 4096, 64 + i % 1000, trace.line(i + 1, f"module{i % 50}.py"))
        if i % 3:
            trace.free((1 << 30) + i * 4096)
    return trace


def one_event() -> Trace:
    Trace.library = craft.encoder()
    trace = Trace()
    trace.alloc(4096, 1000, trace.line(1))
    return trace


def no_event() -> Trace:
    Trace.library = craft.encoder()
    trace = Trace()
    trace.mark(SEEDED)
    return trace
