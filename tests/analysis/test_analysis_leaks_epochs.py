"""Verdicts in loops that follow each other, and once per epoch."""

from collections.abc import Callable
from typing import Any

import pytest
from leak_program import KEEP, Body, Program, cat, only, reasons


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


def test_a_tensor_kept_per_epoch(verdicts: Callable[..., dict[str, Any]]) -> None:
    report = verdicts(epochs(10, 8, lambda p, i: p.kept.append(p.new(4)) if i % 8 == 7 else None))
    assert not report["leaks"] and reasons(report) == [(KEEP, "few births")]


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
