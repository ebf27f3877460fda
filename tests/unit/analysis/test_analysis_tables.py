"""A line's whole life against a plain account: alive at both ends, ever allocated, freed in the step that made it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from craft import SEEDED, STEP, WINDOW_CLOSE, WINDOW_OPEN, Trace
from hand_made import Analyze, shares
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plain_heap import OPERATION, SEEDS, Block, Heap, Operation, Sums, play, sums, sums_of_rows

import cuptimem
from cuptimem.report.model import TABLES
from tests.event_kinds import SEED


def table(heap: Heap, what: str, step: int | None) -> Sums:
    """Steps are counted from 1; 0 is before the first."""
    last = len(heap.ticks) + 1

    def lives(block: Block, begin: int) -> bool:
        """Born before that step, and not dead before it."""
        return block.step < begin and (block.end_step is None or block.end_step >= begin)

    def asked(block: Block) -> bool:
        return block.stack is not None and (step is None or block.step == step)

    def in_step(block: Block) -> bool:
        return asked(block) and 1 <= block.step < last

    if what == "above":
        _, _, when, _, _ = heap.highest(of=made_since)
        return sums(b for b in heap.blocks if made_since(b) and b.begin <= when and (b.end == -1 or b.end > when))
    rules: dict[str, Callable[[Block], bool]] = {
        "start": lambda b: b.stack is None if step is None else lives(b, step),
        "end": lambda b: b.end == -1 if step is None else lives(b, step + 1),
        "kept": lambda b: b.stack is not None and b.end == -1,
        "allocated": asked,
        "stepped": in_step,
        "temporary": lambda b: in_step(b) and b.end_step == b.step,
    }
    return sums(filter(rules[what], heap.blocks))


def made_since(block: Block) -> bool:
    return block.stack is not None


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=st.lists(OPERATION, max_size=100), seeds=SEEDS, chosen=st.integers(0, 5))
def test_against_a_plain_account(
    analyze: Analyze, operations: list[Operation], seeds: dict[int, int], chosen: int
) -> None:
    trace = Trace()
    accounts = play(trace, operations, seeds)
    ticks = len(accounts["cpu"].ticks)
    for step in [None, *([chosen % ticks] if ticks else [])]:
        report = analyze(trace, tables=TABLES, step=step)
        assert report["step_asked"] == step
        for device in report["devices"]:
            assert set(device["tables"]) == set(TABLES)
            for what, (rows, rest) in device["tables"].items():
                expected = table(accounts[device["device"]], what, None if step is None else step + 1)
                assert rest == (0, 0) and sums_of_rows(rows) == expected, (what, step)
                assert [row[0] for row in rows] == sorted((row[0] for row in rows), reverse=True)
            if step is None:
                totals = {what: sum(row[0] for row in rows) for what, (rows, _) in device["tables"].items()}
                known = {"start": device["start"], "end": device["end"], "allocated": device["allocated"]}
                known |= {"above": accounts[device["device"]].highest(of=made_since)[1], "kept": device["kept"]}
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
    assert sums_of_rows(device["tables"]["temporary"][0]) == {t.line(1): (100, 1)}
    assert sums_of_rows(device["tables"]["allocated"][0])[t.line(1)] == (100, 1)
    assert sum(row[0] for row in device["tables"]["allocated"][0]) == device["allocated"]
