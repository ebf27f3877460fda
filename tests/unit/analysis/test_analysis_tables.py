"""A line's whole life against a plain account: alive at both ends, ever allocated, freed in the step that made it."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from craft import CUDA, SEEDED, STEP, WINDOW_CLOSE, WINDOW_OPEN, Trace
from hand_made import Analyze, shares
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cuptimem
from cuptimem.report.model import TABLES
from tests.event_kinds import ALLOC, FREE, SEED, TICK

STACKS = 6
ADDRESSES = st.integers(1, 10).map(lambda n: n * 64)
DEVICES = st.sampled_from([(0, -1), (0, -1), (CUDA, 0)])
OPERATION = st.one_of(
    st.tuples(st.just(ALLOC), ADDRESSES, st.integers(1, 999), st.integers(0, STACKS - 1), DEVICES),
    st.tuples(st.just(ALLOC), ADDRESSES, st.integers(1, 999), st.integers(0, STACKS - 1), DEVICES),
    st.tuples(st.just(FREE), ADDRESSES, st.just(0), st.just(0), DEVICES),
    st.tuples(st.just(FREE), ADDRESSES, st.just(0), st.just(0), DEVICES),
    st.tuples(st.just(TICK), st.just(1), st.just(STEP), st.just(0), st.just((0, -1))),
)
SEEDS = st.dictionaries(ADDRESSES, st.integers(1, 999), max_size=3)
Sums = dict[int | None, tuple[int, int]]  # of a stack: bytes, blocks; None: what was there before


class Account:
    """One device. Every block that ever was: stack, bytes, step of its birth and of its death, None for neither."""

    def __init__(self) -> None:
        self.blocks: list[list[Any]] = []
        self.at: dict[int, list[Any]] = {}
        self.above: Sums = {}  # allocated since the start, and alive when that had its highest sum
        self.peak_above_start = 0

    def born(self, address: int, size: int, stack: int | None, step: int | None) -> None:
        self.died(address, step)
        self.at[address] = [stack, size, step, None]
        self.blocks.append(self.at[address])
        made = self.sums(lambda block: block[0] is not None and block[3] is None)
        live = sum(bytes_ for bytes_, _ in made.values())
        if live > self.peak_above_start:
            self.peak_above_start, self.above = live, made

    def died(self, address: int, step: int | None) -> None:
        block = self.at.pop(address, None)
        if block is not None:
            block[3] = step

    def sums(self, chosen: Callable[[list[Any]], bool]) -> Sums:
        size, number = Counter[int | None](), Counter[int | None]()
        for block in filter(chosen, self.blocks):
            size[block[0]] += block[1]
            number[block[0]] += 1
        return {stack: (size[stack], number[stack]) for stack in size}

    def table(self, what: str, step: int | None, steps: int) -> Sums:
        """Steps are 1 to `steps`; 0 is before the first."""
        last = steps + 1

        def lives(block: list[Any], begin: int, end: int) -> bool:
            """Born before `begin`, and not dead before `end`."""
            return block[2] < begin and (block[3] is None or block[3] >= end)

        def asked(block: list[Any]) -> bool:
            return block[0] is not None and (step is None or block[2] == step)

        def in_step(block: list[Any]) -> bool:
            return asked(block) and 1 <= block[2] < last

        if what == "above":
            return self.above
        rules: dict[str, Callable[[list[Any]], bool]] = {
            "start": lambda b: b[0] is None if step is None else lives(b, step, step),
            "end": lambda b: b[3] is None if step is None else lives(b, step + 1, step + 1),
            "kept": lambda b: b[0] is not None and b[3] is None,
            "allocated": asked,
            "stepped": in_step,
            "temporary": lambda b: in_step(b) and b[3] == b[2],
        }
        return self.sums(rules[what])


def sums(rows: list[tuple[Any, ...]]) -> Sums:
    size, number = Counter[int | None](), Counter[int | None]()
    for bytes_, count, stack, _, phase, *_ in rows:
        key = None if phase == "before start" else stack
        size[key] += bytes_
        number[key] += count
    return {stack: (size[stack], number[stack]) for stack in size}


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=st.lists(OPERATION, max_size=100), seeds=SEEDS, chosen=st.integers(0, 5))
def test_against_a_plain_account(
    analyze: Analyze, operations: list[tuple[int, int, int, int, tuple[int, int]]], seeds: dict[int, int], chosen: int
) -> None:
    trace = Trace()
    accounts = {"cpu": Account(), "cuda:0": Account()}
    for address, size in seeds.items():
        trace.add(SEED, address, size)
        accounts["cpu"].born(address, size, None, 0)
    trace.mark(SEEDED)
    ticks = 0
    for kind, address, size, line, (device_type, index) in operations:
        trace.add(kind, address, size, trace.line(line), device=device_type, index=index)
        account = accounts["cpu" if device_type == 0 else "cuda:0"]
        # The first tick of prof.step() ends step 0, which begins with the recording.
        if kind == TICK:
            ticks += 1
        elif kind == ALLOC:
            account.born(address, size, trace.line(line), ticks + 1)
        else:
            account.died(address, ticks + 1)
    for step in [None, *([chosen % ticks] if ticks else [])]:
        report = analyze(trace, tables=TABLES, step=step)
        assert report["step_asked"] == step
        for device in report["devices"]:
            assert set(device["tables"]) == set(TABLES)
            for what, (rows, rest) in device["tables"].items():
                expected = accounts[device["device"]].table(what, None if step is None else step + 1, ticks)
                assert rest == (0, 0) and sums(rows) == expected, (what, step)
                assert [row[0] for row in rows] == sorted((row[0] for row in rows), reverse=True)
            if step is None:
                totals = {what: sum(row[0] for row in rows) for what, (rows, _) in device["tables"].items()}
                known = {"start": device["start"], "end": device["end"], "allocated": device["allocated"]}
                known |= {"above": accounts[device["device"]].peak_above_start, "kept": device["kept"]}
                assert device["above"][0] == known["above"]
                assert {what: totals[what] for what in known} == known
                assert sum(row[1] for row in device["tables"]["allocated"][0]) == device["allocations"]
            for row in report["steps"]:
                if step is not None and row["index"] == step and row["device"] == device["device"]:
                    totals = {what: sum(r[0] for r in rows) for what, (rows, _) in device["tables"].items()}
                    assert (totals["start"], totals["end"], totals["allocated"]) == (
                        row["start"],
                        row["end"],
                        row["allocated"],
                    )


def test_steps_count_from_the_end(analyze: Analyze, tmp_path: Path) -> None:
    t = Trace()
    for i in range(5):
        t.alloc(64 * (i + 1), 10 + i, t.line(i))
        t.tick(STEP, 1, t.line(99))
    assert [analyze(t, step=step)["step_asked"] for step in (-1, -5, 0, 4, None)] == [4, 0, 0, 4, None]
    for step in (-6, 5):
        with pytest.raises(cuptimem.Error, match=rf"the trace has no step {step}: it has steps 0 to 4 \(evaluation\)"):
            analyze(t, step=step)
    report = cuptimem.open(t.write(tmp_path / "a.cmem"), step=-2)
    assert report.step == report.peak.step == 3 and report.step_peak(-2).step == 3
    assert report.contents("stepped").bytes == report.contents("allocated").bytes == 13
    assert (report.contents("start").bytes, report.contents("end").bytes) == (10 + 11 + 12, 10 + 11 + 12 + 13)
    assert report.contents("end").step == 3
    with pytest.raises(cuptimem.Error, match="no contents 'middle': there are peak, start, end"):
        report.contents("middle")
    with pytest.raises(ValueError, match="no table 'middle'"):
        analyze(t, tables=["middle"])
    with pytest.raises(cuptimem.Error, match="has no step -1: it has no steps"):
        analyze(Trace(), step=-1)


def test_a_window_starts_with_what_was_there(analyze: Analyze) -> None:
    t = Trace()
    t.alloc(64, 100, t.line(1))
    t.mark(WINDOW_OPEN, 1)
    t.alloc(128, 20, t.line(2))
    t.free(64)
    t.alloc(256, 5, t.line(4))
    t.free(128)
    t.alloc(128, 20, t.line(2))
    t.free(256)
    t.mark(WINDOW_CLOSE, 1)
    t.alloc(192, 3, t.line(3))
    (device,) = analyze(t, window=1, tables=TABLES)["devices"]
    assert (device["peak"], device["above"][0], device["kept"]) == (120, 25, 20)
    found = {what: [(size, stack) for size, _, stack in shares(rows)] for what, (rows, _) in device["tables"].items()}
    assert found == {
        "start": [(100, t.line(1))],
        "end": [(20, t.line(2))],
        "above": [(20, t.line(2)), (5, t.line(4))],
        "kept": [(20, t.line(2))],
        "allocated": [(40, t.line(2)), (5, t.line(4))],
        "stepped": [],
        "temporary": [],
    }


def test_what_a_later_walk_found_was_made_before(analyze: Analyze) -> None:
    """Recording went off and on again within a step: nothing says when its blocks were made."""
    t = Trace()
    t.tick(STEP, 1, t.line(99))
    t.mark(SEEDED)
    t.alloc(64, 100, t.line(1))
    t.add(SEED, 128, 30)
    t.free(64)
    t.free(128)
    t.tick(STEP, 1, t.line(99))
    (device,) = analyze(t, tables=TABLES)["devices"]
    assert sums(device["tables"]["temporary"][0]) == {t.line(1): (100, 1)}
    assert sums(device["tables"]["allocated"][0])[t.line(1)] == (100, 1)
    assert sum(row[0] for row in device["tables"]["allocated"][0]) == device["allocated"]
