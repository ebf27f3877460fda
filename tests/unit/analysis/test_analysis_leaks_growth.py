"""Verdicts on a live set that grows: one ever larger block."""

import random
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from leak_program import KEEP, Program, cat, only, quiet, train


@pytest.mark.parametrize("steps", [20, 48, 64, 65, 128, 500])
def test_one_ever_larger_block(verdicts: Callable[..., dict[str, Any]], steps: int) -> None:
    row = only(verdicts(train(steps, lambda p, i: cat(p, 400 * (i + 1)))))
    assert row["signature"] == "growing" and row["confidence"] == "medium"
    assert row["bytes_per_step"] == pytest.approx(400.0) and (row["count"], row["bytes"]) == (1, 400 * steps)
    assert row["first_step"] == 0


def test_a_large_block_of_the_last_step_is_no_growth(verdicts: Callable[..., dict[str, Any]]) -> None:
    """`out, (h, c) = lstm(x, states)`: h is kept, c lives four steps, out is larger and dies in the next step."""
    states: list[int] = []

    def body(p: Program, i: int) -> None:
        p.new()
        states.append(p.new())
        for address in p.kept:
            p.drop(address)
        p.kept = [p.new(24_000)]
        if len(states) > 4:
            p.drop(states.pop(0))

    row = only(verdicts(train(60, body)))
    assert row["bytes_per_step"] == pytest.approx(1000, rel=0.05)


def test_one_larger_block_every_few_steps(verdicts: Callable[..., dict[str, Any]]) -> None:
    row = only(verdicts(train(60, lambda p, i: cat(p, 400 * (i + 5)) if i % 5 == 0 else None)))
    assert row["signature"] == "growing" and row["bytes_per_step"] == pytest.approx(400, rel=0.1)


def test_a_list_that_is_copied_with_each_addition(verdicts: Callable[..., dict[str, Any]]) -> None:
    def body(p: Program, i: int) -> None:
        fresh = [p.new(100) for _ in range(i + 1)]
        for address in p.kept:
            p.drop(address)
        p.kept = fresh

    row = only(verdicts(train(40, body)))
    assert row["signature"] == "growing" and row["bytes_per_step"] == pytest.approx(100)


def test_a_larger_block_from_late_on(verdicts: Callable[..., dict[str, Any]]) -> None:
    row = only(verdicts(train(60, lambda p, i: cat(p, 400 * max(i - 30, 1)))))
    assert row["bytes_per_step"] == pytest.approx(400)


@pytest.mark.parametrize(("made", "taken", "rate"), [(3, 1, 2000), (3, 2, 1000), (5, 3, 2000)])
@pytest.mark.parametrize("steps", [30, 60, 400])
def test_a_queue_that_falls_behind(
    verdicts: Callable[..., dict[str, Any]], steps: int, made: int, taken: int, rate: int
) -> None:
    """Its oldest leave it, so that none of what is alive is older than what was freed."""
    queue: deque[int] = deque()

    def body(p: Program, i: int) -> None:
        queue.extend(p.new() for _ in range(made))
        for _ in range(taken):
            p.drop(queue.popleft())

    row = only(verdicts(train(steps, body)))
    assert row["bytes_per_step"] == pytest.approx(rate, rel=0.15) and row["confidence"] == "medium"


@pytest.mark.parametrize("cleared", [None, 3])
def test_a_window_of_growing_sizes_is_no_queue_that_falls_behind(
    verdicts: Callable[..., dict[str, Any]], cleared: int | None
) -> None:
    """deque(maxlen=10) of longer and longer sequences, which the rest of the program makes, too; also one that a dry
    run has filled."""
    queue, p = deque[int](), Program()
    for i in range(60):
        p.work(8 + 4 * i)
        queue.append(p.new(400 * (i + 1)))
        while len(queue) > (0 if i == cleared else 10):
            p.drop(queue.popleft())
        p.tick()
    assert not verdicts(p)["leaks"]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("made", "bound"), [(1, 10**6), (2, 25)])
def test_a_queue_that_drifts_by_chance(
    verdicts: Callable[..., dict[str, Any]], made: int, bound: int, seed: int
) -> None:
    """As many are taken as are made in the mean, or more are made until the queue is full."""
    queue, chance = deque[int](), random.Random(seed)

    def body(p: Program, i: int) -> None:
        for _ in range(chance.choice((0, made, 2 * made))):
            if len(queue) < bound:
                queue.append(p.new())
        for _ in range(min(len(queue), chance.choice((0, made, 2 * made)))):
            p.drop(queue.popleft())

    assert not verdicts(train(60, body))["leaks"]


@pytest.mark.parametrize("start", [1, 8, 32])
@pytest.mark.parametrize("rise", [1, 2, 5])
def test_a_curriculum_is_not_accused_of_its_last_batch(
    verdicts: Callable[..., dict[str, Any]], start: int, rise: int
) -> None:
    p = Program()
    for i in range(48):
        p.work(start + rise * i)
        p.tick()
    assert quiet(verdicts(p))


def test_a_growing_block_in_a_curriculum_of_constant_batches(verdicts: Callable[..., dict[str, Any]]) -> None:
    """What is computed from the growing block grows with it; the model's own lines do not."""

    def body(p: Program, i: int) -> None:
        cat(p, 400 * (i + 1))
        p.drop(p.new(400 * (i + 1), KEEP + 1))

    only(verdicts(train(48, body)))


def test_batches_that_grow_by_less_are_no_reason(verdicts: Callable[..., dict[str, Any]]) -> None:
    """The block doubles, the batches grow by a fifth."""
    p = Program()
    for i in range(48):
        p.work(200 + i)
        cat(p, 40_000 + 1_000 * i)
        p.tick()
    only(verdicts(p))


def test_a_block_that_is_cut_back(verdicts: Callable[..., dict[str, Any]]) -> None:
    assert quiet(verdicts(train(60, lambda p, i: cat(p, 400 * (i % 20 + 1)))))
    assert quiet(verdicts(train(60, lambda p, i: cat(p, 400 * (min(i, 30) + 1)))))
