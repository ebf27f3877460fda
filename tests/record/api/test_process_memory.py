"""The process beside its tensors, as programs make it grow or not."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

import cuptimem

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
