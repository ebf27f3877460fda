"""Garbage that waits for its collection is no leak; what a collection leaves is one."""

from collections.abc import Callable
from typing import Any

import pytest
from leak_program import COLLECT_BEGIN, COLLECT_END, KEEP, Program, only, reasons, train


def test_garbage_that_waits(verdicts: Callable[..., dict[str, Any]]) -> None:
    p = train(40, lambda p, i: p.kept.append(p.new()))
    assert only(verdicts(p))  # without a collection it looks like a leak
    p.collect_at_the_end(p.kept)
    report = verdicts(p)
    assert not report["leaks"] and reasons(report) == [(KEEP, "garbage")]


def test_what_the_collection_leaves_is_a_leak(verdicts: Callable[..., dict[str, Any]]) -> None:
    p = train(40, lambda p, i: p.kept.append((p.new(1000), p.new(10))))
    p.collect_at_the_end([large for large, _ in p.kept])
    row = only(verdicts(p))
    assert (row["bytes"], row["count"], row["bytes_per_step"], row["cause"]) == (400, 40, 10.0, "")


@pytest.mark.parametrize(("full", "leaks"), [(400, False), (6, True)])
def test_a_buffer_that_was_full_before_the_first_step(
    verdicts: Callable[..., dict[str, Any]], full: int, leaks: bool
) -> None:
    """What the steps put in takes the place of what set-up had put in, on another stack of the same line."""
    p = Program(reuse=False)
    ring = [p.new(stack=p.t.stack(("train.py", "main", KEEP), ("train.py", "fill", 5))) for _ in range(full)]

    def body(p: Program, i: int) -> None:
        if ring:
            p.drop(ring.pop(0))
        p.kept.append(p.new(stack=p.t.stack(("train.py", "main", KEEP), ("train.py", "step", 6))))

    for i in range(40):
        body(p, i)
        p.work()
        p.tick()
    assert bool(verdicts(p)["leaks"]) == leaks


def test_cycles_with_the_collector_off(verdicts: Callable[..., dict[str, Any]]) -> None:
    p = train(40, lambda p, i: p.kept.append(p.new()))
    p.collect_at_the_end(p.kept, enabled=False)
    row = only(verdicts(p))
    assert (row["cause"], row["bytes"], row["bytes_per_step"], row["confidence"]) == ("cycle", 40_000, 1000.0, "high")


@pytest.mark.parametrize(("when", "leaks"), [(5, True), (20, True), (35, False)])
def test_a_program_that_collects_by_itself(verdicts: Callable[..., dict[str, Any]], when: int, leaks: bool) -> None:
    """The collector is off, gc.collect() is called once: what came before is gone then."""

    def body(p: Program, i: int) -> None:
        p.kept.append(p.new())
        if i == when:
            p.t.mark(COLLECT_BEGIN, 2)
            for address in p.kept:
                p.drop(address)
            p.kept = []
            p.t.mark(COLLECT_END, 2)

    p = train(60 if leaks else 40, body)
    p.collect_at_the_end(p.kept, enabled=False)
    assert [row["cause"] for row in verdicts(p)["leaks"]] == ["cycle"] * leaks


@pytest.mark.parametrize(("generation", "steps"), [(2, 35), (1, 35), (1, 28)])
def test_a_program_that_collects_every_20_steps(
    verdicts: Callable[..., dict[str, Any]], generation: int, steps: int
) -> None:
    """The collector is off; what waits for the next collection is no leak, of whatever generation that is."""

    def body(p: Program, i: int) -> None:
        if i == 20:
            p.t.mark(COLLECT_BEGIN, generation)
            for address in p.kept:
                p.drop(address)
            p.kept = []
            p.t.mark(COLLECT_END, generation)
        p.kept.append(p.new())

    p = train(steps, body)
    p.collect_at_the_end(p.kept, enabled=False)
    assert not verdicts(p)["leaks"]


def test_what_survived_a_full_collection_was_no_garbage(verdicts: Callable[..., dict[str, Any]]) -> None:
    """A list whose owner is part of a cycle and dies with the function: it was a leak while the loop ran."""

    def body(p: Program, i: int) -> None:
        p.kept.append(p.new())
        if i == 38:
            p.t.mark(COLLECT_BEGIN, 2)
            p.t.mark(COLLECT_END, 2)

    p = train(40, body)
    p.collect_at_the_end(p.kept)
    assert only(verdicts(p))["count"] == 38


def test_an_address_used_again_behind_the_boundary_is_another_block(verdicts: Callable[..., dict[str, Any]]) -> None:
    """What is made and collected behind the last step has nothing to do with the survivors there."""
    p = train(40, lambda p, i: p.kept.append(p.new()))
    for address in p.kept:
        p.drop(address)
    p.collect_at_the_end([p.new() for _ in range(40)])
    assert only(verdicts(p))["count"] == 40
