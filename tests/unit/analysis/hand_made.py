"""A training loop as a trace made by hand, and short ways to the rows of a report."""

from collections.abc import Callable
from typing import Any

from craft import DATA, OPTIMIZER, TORCH, Trace

from tests.event_kinds import OBJECT_NEW

Analyze = Callable[..., dict[str, Any]]


def only_device(report: dict[str, Any]) -> dict[str, Any]:
    (device,) = report["devices"]
    assert isinstance(device, dict)
    return device


def shares(rows: list[tuple[Any, ...]]) -> list[tuple[int, int, int]]:
    """By stack, the largest first: whatever the blocks of one are for."""
    sums: dict[int, tuple[int, int]] = {}
    for size, count, stack, *_ in rows:
        before = sums.get(stack, (0, 0))
        sums[stack] = (before[0] + size, before[1] + count)
    return sorted(((*both, stack) for stack, both in sums.items()), key=lambda row: -row[0])


def origins(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Contributors without what their blocks are for."""
    return [row[:6] for row in rows]


def step_rows(report: dict[str, Any]) -> list[tuple[int, ...]]:
    names = ("index", "start", "peak", "end", "allocated", "freed", "allocations")
    return [tuple(step[name] for name in names) for step in report["steps"]]


def training(t: Trace, steps: int) -> None:
    """Setup of 1000 bytes, then steps that peak at +300 and keep 10 bytes each."""
    optimizer = t.stack((TORCH + "optim/optimizer.py", "wrapper", 5), ("train.py", "main", 20))
    loader = t.stack((TORCH + "utils/data/dataloader.py", "__next__", 5), ("train.py", "main", 10))
    t.add(OBJECT_NEW, 0x77, 1, t.name("Linear"))
    t.alloc(0x1000, 1000, t.line(1))
    for i in range(steps):
        t.tick(DATA, 0x88, loader)
        t.alloc(0x2000, 200, t.line(11))
        t.alloc(0x3000, 100, t.line(12))
        t.alloc(0x10000 + 64 * i, 10, t.line(13))
        t.free(0x3000)
        t.tick(OPTIMIZER, 0x99, optimizer)
        t.free(0x2000)
