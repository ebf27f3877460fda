"""The process beside its tensors, as programs make it grow or not: each has the heap that importing PyTorch left."""

from collections.abc import Callable
from pathlib import Path

import pytest

import cuptimem
from cuptimem import _core
from cuptimem.output.text import leak_views
from tests.conftest import Result

pytestmark = pytest.mark.torch

MIB = 1 << 20
STEPS = 60
# At most a hundred samples a second are taken.
PROGRAM = """\
import time
import cuptimem, torch
from cuptimem import _core
from cuptimem.output.text import leak_views

MIB, STEPS = 1 << 20, 60
{before}

def ticks(count, step):
    for i in range(count):
        step(i)
        time.sleep(0.011)
        profile.step()

with cuptimem.profile("a.cmem") as profile:
    {body}
"""
KEEPS = """\
kept = []

def step(_):
    kept.append(bytearray(b"x") * MIB)
    return torch.ones(1 << 20)
"""
FILLS = """\
replay = torch.empty(STEPS, 1 << 18)
array = memoryview(bytearray(STEPS * MIB))
held = {}

def step(i):
    replay[i] = i
    array[i * MIB : (i + 1) * MIB] = b"y" * MIB
    held[i % 15] = bytearray(b"z") * (i % 7 * MIB)
    return torch.ones(i * 37 % 50 << 15).add(1)
"""
NODES = """\
    ticks(20, print)
    kept = [one * 2 for _ in range(20_000)]
    del kept
    _core.mark(_core.MARK_WALK)
    ticks(20, print)
"""


@pytest.fixture
def recorded(forked: Callable[..., Result], tmp_path: Path) -> Callable[[str, str], Path]:
    def record(before: str, body: str) -> Path:
        (tmp_path / "p.py").write_text(PROGRAM.format(before=before, body=body.strip()))
        done = forked("p.py")
        assert (done.code, done.err) == (0, "")
        return tmp_path / "a.cmem"

    return record


def test_what_python_keeps_grows(recorded: Callable[[str, str], Path]) -> None:
    growth = cuptimem.open(recorded(KEEPS, "ticks(STEPS, step)")).process_growth
    assert growth is not None and 40 * MIB < growth.bytes < STEPS * MIB


def test_buffers_that_fill_and_sizes_that_change_do_not(recorded: Callable[[str, str], Path]) -> None:
    assert cuptimem.open(recorded(FILLS, "ticks(STEPS, step)")).process_growth is None


def test_malloc_is_not_asked_where_many_pieces_are_free(recorded: Callable[[str, str], Path]) -> None:
    """It looks at each: ten for a dead graph node."""
    samples: list[list[int]] = [[], []]
    for row in _core.trace_dump(str(recorded("one = torch.ones(1, requires_grad=True)", NODES))):
        if row[0] == "mark" and row[4] == _core.MARK_WALK:
            samples.append([])
        elif row[0] == "sample" and row[3] == 3:  # what malloc has given out
            samples[-1].append(row[4])
    assert samples[-2] == [] and any(samples)


def test_growth_where_malloc_is_not_asked_is_said(recorded: Callable[[str, str], Path]) -> None:
    pieces = "junk = [bytes(600) for _ in range(160_000)]\nhalf = junk[::2]\ndel junk\n"
    report = cuptimem.open(recorded(pieces + KEEPS, "ticks(STEPS, lambda i: (step(i), time.sleep(0.03)))"))
    assert report.process_growth is None
    assert leak_views.line(report).startswith("no leak: 60 steps judged, no tensors grow, but the whole process by ")
