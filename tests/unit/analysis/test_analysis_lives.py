"""Single blocks around the peaks, against a plain account of the same events."""

from array import array
from typing import Any

import pytest
from craft import CUDA, STEP, Trace
from hand_made import Analyze
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cuptimem import _core

GAP = 1 << 12
ADDRESSES = st.integers(1, 8).map(lambda n: n * 64)
DEVICES = st.sampled_from([(0, -1), (CUDA, 0)])
OPERATION = st.one_of(
    st.tuples(st.just("alloc"), ADDRESSES, st.integers(1, 99), DEVICES),
    st.tuples(st.just("free"), ADDRESSES, st.just(0), DEVICES),
    st.tuples(st.just("tick"), st.just(0), st.just(0), DEVICES),
)


def columns(row: dict[str, bytes]) -> dict[str, "array[int]"]:
    found = {}
    for name, data in row.items():
        found[name] = array("q")
        found[name].frombytes(data)
    return found


def peak(lives: dict[str, Any]) -> int:
    blocks = columns(lives["blocks"])
    base = _core.edit_base(blocks["birth"], blocks["end"], blocks["bytes"])
    return _core.edit_peak(base, array("q"), array("q"))[0]


def by_hand(operations: list[tuple[Any, ...]], device: tuple[int, int]) -> tuple[list[tuple[int, int, int]], list[int]]:
    """Birth, end, bytes of every block of a device in its own changes, and the changes before each tick."""
    alive: dict[int, int] = {}
    blocks: list[tuple[int, int, int]] = []
    ticks, now = [], 0

    def end(address: int) -> None:
        nonlocal now
        if address in alive:
            now += 1
            i = alive.pop(address)
            blocks[i] = (blocks[i][0], now * GAP, blocks[i][2])

    for what, address, size, of in operations:
        if what == "tick":
            ticks.append(now * GAP)
        elif of == device:
            end(address)
            if what == "alloc":
                now += 1
                alive[address] = len(blocks)
                blocks.append((now * GAP, -1, size))
    return blocks, ticks


@given(st.lists(OPERATION, max_size=70))
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_as_counted_by_hand(analyze: Analyze, operations: list[tuple[Any, ...]]) -> None:
    t = Trace()
    for what, address, size, (device, index) in operations:
        if what == "alloc":
            t.alloc(address, size, t.line(size % 5), device=device, index=index)
        elif what == "free":
            t.free(address, device=device, index=index)
        else:
            t.tick(STEP, 1, t.line(90))
    report = analyze(t, lives=True)
    peaks = {one["device"]: one["peak"] for one in report["devices"]}
    names = {"cpu": (0, -1), "cuda:0": (CUDA, 0)}
    for lives in report["lives"]:
        assert peak(lives) == peaks[lives["device"]]
        blocks, steps = columns(lives["blocks"]), columns(lives["steps"])
        expected, _ = by_hand(operations, names[lives["device"]])
        for begin, last, high in zip(steps["begin"], steps["end"], steps["peak"], strict=True):
            there = [one for one in expected if one[0] <= last and (one[1] < 0 or one[1] > begin)]
            found = zip(blocks["birth"], blocks["end"], blocks["bytes"], strict=True)
            assert [one for one in found if one[0] <= last and (one[1] < 0 or one[1] > begin)] == there
            at = {begin, *(one[0] for one in there if one[0] > begin)}
            sums = [sum(size for birth, end, size in there if birth <= x and (end < 0 or end > x)) for x in at]
            assert max(sums) == high


def test_not_asked_for(analyze: Analyze) -> None:
    t = Trace()
    t.alloc(64, 10)
    assert analyze(t)["lives"] == []


@pytest.mark.parametrize("high", [0, 2500, 4999])
def test_a_long_run_keeps_the_steps_around_its_peak(analyze: Analyze, high: int) -> None:
    t = Trace()
    t.alloc(64, 1000)
    t.tick(STEP, 1, t.line(9))
    for step in range(5000):
        t.alloc(128, 10, t.line(1))
        t.alloc(192, 500 if step == high else 20, t.line(2))
        t.free(192)
        t.free(128)
        t.tick(STEP, 1, t.line(9))
    (lives,) = analyze(t, lives=True)["lives"]
    blocks, steps = columns(lives["blocks"]), columns(lives["steps"])
    number = list(steps["step"])
    best = number[list(steps["peak"]).index(1510)]
    assert {best - 1, best, best + 1} <= {-1, *number}
    assert peak(lives) == 1510
    assert len(blocks["birth"]) < 30
    assert not lives["cut"]


def test_what_is_said_of_a_block(analyze: Analyze) -> None:
    t = Trace()
    t.alloc(64, 1000, t.line(1))
    t.tick(STEP, 1, t.line(9))
    t.alloc(128, 10, t.line(2))
    t.tick(STEP, 1, t.line(9))
    t.free(64)
    (lives,) = analyze(t, lives=True)["lives"]
    blocks = columns(lives["blocks"])
    assert list(blocks["birth"]) == [GAP, 2 * GAP]
    assert list(blocks["end"]) == [3 * GAP, -1]
    assert list(blocks["requested"]) == [1000, 10]
    assert list(blocks["end_step"]) == [columns(lives["steps"])["step"][-1], -1]
    assert [one[0:2] for one in lives["contributors"]] == [(1000, 1), (10, 1)]
