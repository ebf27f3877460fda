"""Verdicts: what leaks is named with its line and rate, from its first step or late, whatever was lost."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from craft import BEFORE_START, CUDA, WINDOW_CLOSE, WINDOW_OPEN
from leak_program import KEEP, NODE_BYTES, Program, forward, line_of, only, quiet, reasons, train

# --- signature (a): survivors of all ages ---------------------------------------------------------------------


@pytest.mark.parametrize("steps", [12, 24, 48, 200])
def test_a_block_in_every_step(verdicts: Callable[..., dict[str, Any]], steps: int) -> None:
    row = only(verdicts(train(steps, lambda p, i: p.kept.append(p.new(1000)))))
    assert (row["kind"], row["signature"], row["device"], row["cause"]) == ("bytes", "survivors", "cpu", "")
    assert (row["bytes"], row["count"], row["bytes_per_step"], row["count_per_step"]) == (
        1000 * steps,
        steps,
        1000.0,
        1.0,
    )
    assert (row["first_step"], row["last_step"], row["loop"]) == (0, steps - 1, "training")
    assert row["confidence"] == ("medium" if steps == 12 else "high")


def test_of_what_survives_only_the_last_steps_is_no_proof(verdicts: Callable[..., dict[str, Any]]) -> None:
    """Every block lives on into the next step, every fifth for ever: the last one is not counted."""

    def body(p: Program, i: int) -> None:
        if i % 5 != 1:
            for address in p.kept:
                p.drop(address)
        p.kept = [p.new(700)]

    row = only(verdicts(train(49, body)))  # steps 0, 5, 10, ... 45 stay
    assert (row["count"], row["bytes"], row["bytes_per_step"]) == (10, 7000, 140.0)


@pytest.mark.parametrize(("period", "steps"), [(2, 24), (5, 48), (7, 60), (30, 300)])
def test_a_slow_leak_has_its_rate_per_step(verdicts: Callable[..., dict[str, Any]], period: int, steps: int) -> None:
    def body(p: Program, i: int) -> None:
        if i % period == 0:
            p.kept.append(p.new(1000))

    row = only(verdicts(train(steps, body)))
    assert row["bytes_per_step"] == pytest.approx(1000 / period) and row["count_per_step"] == pytest.approx(1 / period)


def test_several_blocks_of_many_sizes_in_a_step(verdicts: Callable[..., dict[str, Any]]) -> None:
    sizes = random.Random(4)
    total = 0

    def body(p: Program, i: int) -> None:
        nonlocal total
        for _ in range(3):
            size = sizes.randint(100, 900)
            total += size
            p.kept.append(p.new(size))

    row = only(verdicts(train(90, body)))
    assert row["bytes"] == total and row["count_per_step"] == 3.0
    assert row["bytes_per_step"] == pytest.approx(total / 90, rel=0.1)


def test_two_leaks_and_what_belongs_to_neither(verdicts: Callable[..., dict[str, Any]]) -> None:
    def body(p: Program, i: int) -> None:
        p.new(100, KEEP)
        p.new(300, KEEP + 1, device=CUDA)

    report = verdicts(train(40, body))
    assert [(row["device"], line_of(report, row), row["bytes_per_step"]) for row in report["leaks"]] == [
        ("cuda:0", KEEP + 1, 300.0),
        ("cpu", KEEP, 100.0),
    ]


def test_before_the_first_step_and_after_the_last_there_is_no_leak(verdicts: Callable[..., dict[str, Any]]) -> None:
    p = Program()
    for _ in range(50):
        p.new()
    for _ in range(30):
        p.work()
        p.tick()
    for _ in range(50):
        p.new()
    assert quiet(verdicts(p))


def test_what_dies_behind_the_last_boundary_was_alive(verdicts: Callable[..., dict[str, Any]]) -> None:
    p = train(30, lambda p, i: p.kept.append(p.new()))
    for address in p.kept:
        p.drop(address)
    assert only(verdicts(p))["bytes"] == 30_000


# --- late, slow, stopped, few ---------------------------------------------------------------------------------


@pytest.mark.parametrize("begin", [10, 20, 26, 36])
def test_a_leak_that_begins_late(verdicts: Callable[..., dict[str, Any]], begin: int) -> None:
    row = only(verdicts(train(48, lambda p, i: p.new() if i >= begin else None)))
    assert row["bytes_per_step"] == 1000.0 and row["first_step"] == begin
    assert row["confidence"] == ("high" if begin < 20 else "medium")


def test_a_late_leak_behind_a_stray_survivor(verdicts: Callable[..., dict[str, Any]]) -> None:
    row = only(verdicts(train(60, lambda p, i: p.new() if i == 10 or i > 40 else None)))
    assert row["bytes_per_step"] == 1000.0


def test_a_leak_at_the_very_end_is_only_suspected(verdicts: Callable[..., dict[str, Any]]) -> None:
    report = verdicts(train(60, lambda p, i: p.new() if i > 53 else None))
    assert not report["leaks"] and reasons(report) == [(KEEP, "few births")]


def test_growth_that_stops(verdicts: Callable[..., dict[str, Any]]) -> None:
    report = verdicts(train(60, lambda p, i: p.new() if i < 30 else None))
    assert not report["leaks"] and reasons(report) == [(KEEP, "stopped")]


def test_few_births(verdicts: Callable[..., dict[str, Any]]) -> None:
    report = verdicts(train(48, lambda p, i: p.new() if i % 10 == 0 else None))
    assert not report["leaks"] and reasons(report) == [(KEEP, "few births")]
    assert quiet(verdicts(train(48, lambda p, i: p.new() if i in (15, 40) else None)))


def test_a_leak_in_one_branch(verdicts: Callable[..., dict[str, Any]]) -> None:
    for seed in range(6):
        chance = random.Random(seed)
        row = only(verdicts(train(150, lambda p, i, c=chance: p.new() if c.random() < 0.3 else None)))
        assert row["count_per_step"] == pytest.approx(row["count"] / 150, rel=0.15)


# --- what was lost --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lost", "leaks"), [(0, 1), (5, 1), (10, 0), (400, 0)])
def test_lost_events_may_explain_it(verdicts: Callable[..., dict[str, Any]], lost: int, leaks: int) -> None:
    report = verdicts(train(40, lambda p, i: p.new()), lost=lost)
    assert len(report["leaks"]) == leaks and reasons(report) == [(KEEP, "events lost")] * (1 - leaks)


def test_frees_that_went_missing(verdicts: Callable[..., dict[str, Any]]) -> None:
    p = train(40, lambda p, i: p.new())
    for address in range(0x10000, 0x10000 + 64 * 30, 64):
        p.t.alloc(address, 8, p.t.line(1))  # taken, says the trace
    report = verdicts(p)
    assert report["lost"]["replaced"] >= 25 and reasons(report) == [(KEEP, "events lost")]


# --- windows --------------------------------------------------------------------------------------------------


def test_a_window_sees_what_its_own_trace_says(tmp_path: Path) -> None:
    """Births before it are none of it; its steps count from its start."""
    from cuptimem import _core

    p = Program()
    for i in range(90):
        if i == 30:
            p.t.mark(WINDOW_OPEN, 1)
        if i == 70:
            p.collect_at_the_end([])
            p.t.mark(WINDOW_CLOSE, 1)
        p.work()
        p.new(1000)
        p.new(10, KEEP + 1) if i < 30 else p.drop(p.new(10, KEEP + 1))
        forward(p, keep=True)
        p.tick()
    source, target = p.t.write(tmp_path / "whole.cmem", meta={"nodes": "counted"}), str(tmp_path / "window.cmem")
    _core.extract(source, target, 1)
    seen = []
    for report in (_core.analyze(source, window=1), _core.analyze(target)):
        rows = []
        entries = report["leaks"] + report["suspects"]
        for row in entries + [kept for entry in entries for kept in entry["keeps"]]:
            frames = {key: tuple(map(tuple, report["stacks"][row[key]])) for key in ("stack", "retained") if row[key]}
            parts = [(size, count, tuple(map(tuple, report["stacks"][s]))) for size, count, s in row["parts"]]
            rows.append({**row, **frames, "parts": parts, "keeps": len(row["keeps"])})
        seen.append((rows, report["live_nodes"]))
    assert seen[0] == seen[1]
    rows, live = seen[0]
    assert [(row["kind"], row["bytes_per_step"]) for row in rows] == [("nodes", 3.0 * NODE_BYTES), ("bytes", 1000.0)]
    assert live == 3 * 40 and rows[1]["count"] == 40 and BEFORE_START == 4
