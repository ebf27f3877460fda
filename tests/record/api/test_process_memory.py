"""The process beside its tensors, as programs make it grow or not."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

import cuptimem
from cuptimem import _core

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

MIB = 1 << 20
STEPS = 60
Step = Callable[[int], object]


def recorded(path: Path, step: Step) -> cuptimem.Report:
    with cuptimem.profile(path) as profile:
        for i in range(STEPS):
            step(i)
            time.sleep(0.011)  # at most a hundred samples a second are taken
            profile.step()
    return cuptimem.open(path)


def test_what_python_keeps_grows(tmp_path: Path) -> None:
    kept = []

    def step(_: int) -> object:
        kept.append(bytearray(b"x") * MIB)
        return torch.ones(1 << 20)

    growth = recorded(tmp_path / "a.cmem", step).process_growth
    assert growth is not None and 40 * MIB < growth.bytes < STEPS * MIB


def test_buffers_that_fill_and_sizes_that_change_do_not(tmp_path: Path) -> None:
    replay = torch.empty(STEPS, 1 << 18)
    array = memoryview(bytearray(STEPS * MIB))
    held: dict[int, bytearray] = {}

    def step(i: int) -> object:
        replay[i] = i
        array[i * MIB : (i + 1) * MIB] = b"y" * MIB
        held[i % 15] = bytearray(b"z") * (i % 7 * MIB)
        return torch.ones(i * 37 % 50 << 15).add(1)

    assert recorded(tmp_path / "a.cmem", step).process_growth is None


def test_malloc_is_not_asked_where_many_pieces_are_free(tmp_path: Path) -> None:
    """It looks at each: ten for a dead graph node."""
    one = torch.ones(1, requires_grad=True)

    def some(ticks: int) -> None:
        for _ in range(ticks):
            profile.step()
            time.sleep(0.011)

    with cuptimem.profile(tmp_path / "a.cmem") as profile:
        some(20)
        kept = [one * 2 for _ in range(20_000)]
        del kept
        _core.mark(_core.MARK_WALK)
        some(20)
    samples: list[list[int]] = [[], []]
    for row in _core.trace_dump(str(tmp_path / "a.cmem")):
        if row[0] == "mark" and row[4] == _core.MARK_WALK:
            samples.append([])
        elif row[0] == "sample" and row[3] == 3:  # what malloc has given out
            samples[-1].append(row[4])
    assert samples[-2] == [] and any(samples)
