"""Verdicts in loops that follow each other, and once per epoch."""

from collections.abc import Callable
from typing import Any

import pytest
from craft import MODULE
from leak_program import KEEP, Body, Program, cat, only, quiet, reasons


def epochs(
    count: int, batches: int, body: Body, *, evaluate: Body | None = None, both: Callable[[Program], None] | None = None
) -> Program:
    """Training with a data loader, and after each epoch an evaluation of as many batches."""
    p = Program()
    i = j = 0
    for _ in range(count):
        p.iterator(0x77)
        if both is not None:
            both(p)
        for _ in range(batches):
            p.ask(0x77)
            p.work()
            body(p, i)
            p.tick()
            i += 1
        p.ask(0x77)  # nothing more
        if evaluate is not None:
            p.iterator(0x88)
            for _ in range(batches):
                p.ask(0x88, 40)
                p.drop(p.new(640, 41))
                evaluate(p, j)
                j += 1
            p.ask(0x88, 40)
    return p


def rollouts(stretches: int, *, consumed: bool = False) -> Program:
    """Twelve updates, then 24 calls without a loader that keep a block each, and again. consumed: the updates that
    follow let go of them."""
    p = Program()
    for _ in range(stretches):
        while consumed and p.kept:
            p.drop(p.kept.pop())
        for _ in range(12):
            p.t.tick(MODULE, 0x55, p.t.line(20))
            p.work()
            p.tick()
        for _ in range(24):
            p.t.tick(MODULE, 0x55, p.t.line(40))
            p.drop(p.new(640, 41))
            p.kept.append(p.new(250))
    return p


def test_rollouts_that_the_next_updates_consume(verdicts: Callable[..., dict[str, Any]]) -> None:
    """What the last stretch keeps is its input."""
    assert quiet(verdicts(rollouts(3, consumed=True)))
    report = verdicts(rollouts(2, consumed=True))
    assert report["leaks"] == []


def test_rollouts_that_are_kept_from_stretch_to_stretch_leak(verdicts: Callable[..., dict[str, Any]]) -> None:
    row = only(verdicts(rollouts(3)))
    assert row["loop"] == "evaluation" and row["bytes_per_step"] == pytest.approx(250, rel=0.05)


def test_a_single_stretch_of_calls_is_no_epoch(verdicts: Callable[..., dict[str, Any]]) -> None:
    """Nothing says that the program goes on with something else."""
    assert only(verdicts(rollouts(1)))["loop"] == "evaluation"


def test_in_evaluation_only(verdicts: Callable[..., dict[str, Any]]) -> None:
    p = epochs(5, 12, lambda p, i: None, evaluate=lambda p, j: p.kept.append(p.new(250)))
    report = verdicts(p)
    assert {step["loop"] for step in report["steps"]} == {"training", "evaluation"}
    row = only(report)
    assert row["loop"] == "evaluation" and row["bytes_per_step"] == pytest.approx(250, rel=0.05)


def test_in_training_between_evaluations(verdicts: Callable[..., dict[str, Any]]) -> None:
    row = only(verdicts(epochs(5, 12, lambda p, i: p.kept.append(p.new(250)), evaluate=lambda p, j: None)))
    assert row["loop"] == "training" and row["bytes_per_step"] == pytest.approx(250, rel=0.05)
    assert row["count"] == 60


def test_judged_at_the_end_of_its_loop(verdicts: Callable[..., dict[str, Any]]) -> None:
    """The list dies while the other loop still runs: it was alive at its own loop's last boundary."""
    p = epochs(4, 10, lambda p, i: p.kept.append(p.new(250)), evaluate=lambda p, j: None)
    for address in p.kept:
        p.drop(address)
    p.kept = []
    for _ in range(30):
        p.ask(0x88, 40)
        p.drop(p.new(640, 41))
    assert only(verdicts(p))["loop"] == "training"


def test_one_epoch_cannot_tell(verdicts: Callable[..., dict[str, Any]]) -> None:
    report = verdicts(epochs(1, 40, lambda p, i: p.kept.append(p.new())))
    assert not report["leaks"] and reasons(report) == [(KEEP, "one epoch")]
    report = verdicts(epochs(1, 40, lambda p, i: cat(p, 400 * (i + 1))))
    assert not report["leaks"] and reasons(report) == [(KEEP, "one epoch")]


def test_two_epochs_can(verdicts: Callable[..., dict[str, Any]]) -> None:
    assert only(verdicts(epochs(2, 20, lambda p, i: p.kept.append(p.new()))))["bytes"] == 40_000
    assert only(verdicts(epochs(3, 16, lambda p, i: cat(p, 400 * (i + 1)))))["signature"] == "growing"


def test_a_list_per_epoch(verdicts: Callable[..., dict[str, Any]]) -> None:
    def clear(p: Program) -> None:
        for address in p.kept:
            p.drop(address)
        p.kept = []

    for count, batches in [(2, 20), (3, 16), (5, 12)]:
        p = epochs(count, batches, lambda p, i: p.kept.append(p.new()), both=clear)
        assert not verdicts(p)["leaks"]
        p = epochs(count, batches, lambda p, i, n=batches: cat(p, 400 * (i % n + 1)), both=clear)
        assert not verdicts(p)["leaks"]


def test_a_model_kept_per_epoch(verdicts: Callable[..., dict[str, Any]]) -> None:
    """Six births behind the warm-up are enough, whatever their rhythm."""

    def program(count: int) -> Program:
        return epochs(count, 8, lambda p, i: p.kept.append(p.new(40_000)) if i % 8 == 7 else None)

    row = only(verdicts(program(10)))
    assert row["bytes_per_step"] == pytest.approx(5_000, rel=0.05)
    report = verdicts(program(6))
    assert not report["leaks"] and reasons(report) == [(KEEP, "few births")]


def test_a_leak_that_begins_in_the_third_of_three_epochs(verdicts: Callable[..., dict[str, Any]]) -> None:
    """Two epochs ended without it: it is not kept until an epoch's end."""
    for make in (lambda p, i: p.kept.append(p.new(40_000)), lambda p, i: cat(p, 40_000 * (i - 37))):

        def body(p: Program, i: int, make: Body = make, begin: int = 38) -> None:
            if i >= begin:
                make(p, i)

        assert only(verdicts(epochs(3, 17, body)))["bytes_per_step"] == pytest.approx(40_000, rel=0.1)
        report = verdicts(epochs(2, 30, body))
        assert not report["leaks"] and reasons(report) == [(KEEP, "one epoch")]


def test_what_begins_with_the_last_epoch(verdicts: Callable[..., dict[str, Any]]) -> None:
    """It may be what only the last one is asked for."""
    report = verdicts(epochs(3, 20, lambda p, i: p.kept.append(p.new()) if i >= 40 else None))
    assert not report["leaks"] and reasons(report) == [(KEEP, "one epoch")]


def test_two_loaders_drawn_from_side_by_side_are_one_epoch(verdicts: Callable[..., dict[str, Any]]) -> None:
    p = Program()
    p.iterator(0x77)
    p.iterator(0x78)
    for _ in range(40):
        p.ask(0x77)
        p.ask(0x78)
        p.work()
        p.kept.append(p.new())
        p.tick()
    assert reasons(verdicts(p)) == [(KEEP, "one epoch")]
