"""What only looks like a leak is not accused: state, queues, buffers, caches, checkpoints."""

import random
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from leak_program import KEEP, Program, only, quiet, reasons, train


@pytest.mark.parametrize("steps", [24, 48, 150])
def test_state_made_in_the_warm_up(verdicts: Callable[..., dict[str, Any]], steps: int) -> None:
    assert quiet(verdicts(train(steps, lambda p, i: p.kept.append(p.new(9000)) if i < 3 else None)))


@pytest.mark.parametrize("length", [1, 2, 5, 13, 30, 40, 47])
@pytest.mark.parametrize("reuse", [True, False])
def test_a_queue(verdicts: Callable[..., dict[str, Any]], length: int, reuse: bool) -> None:
    """deque(maxlen=...), also one that is full only just before the end."""
    queue: deque[int] = deque()

    def body(p: Program, i: int) -> None:
        queue.append(p.new())
        if len(queue) > length:
            p.drop(queue.popleft())

    assert quiet(verdicts(train(48, body, reuse=reuse)))


@pytest.mark.parametrize("length", [5, 20, 35])
@pytest.mark.parametrize("seed", range(5))
def test_a_buffer_that_replaces_at_random(verdicts: Callable[..., dict[str, Any]], length: int, seed: int) -> None:
    chance, buffer = random.Random(seed), list[int]()

    def body(p: Program, i: int) -> None:
        new = p.new()
        if len(buffer) < length:
            buffer.append(new)
        else:
            slot = chance.randrange(length)
            p.drop(buffer[slot])
            buffer[slot] = new

    assert not verdicts(train(60, body))["leaks"]


@pytest.mark.parametrize("period", [5, 16, 20, 23])
def test_a_list_that_is_cleared_now_and_then(verdicts: Callable[..., dict[str, Any]], period: int) -> None:
    """Epochs without a data loader, reports every so many steps, the collector's saw-tooth."""

    def body(p: Program, i: int) -> None:
        if i % period == 0:
            for address in p.kept:
                p.drop(address)
            p.kept = []
        p.kept.append(p.new())

    assert not verdicts(train(60, body))["leaks"]


def test_a_leak_beside_a_queue_on_the_same_stack(verdicts: Callable[..., dict[str, Any]]) -> None:
    queue: deque[int] = deque()

    def body(p: Program, i: int) -> None:
        p.new(500)
        queue.append(p.new(1000))
        if len(queue) > 6:
            p.drop(queue.popleft())

    row = only(verdicts(train(60, body)))
    assert row["bytes_per_step"] == pytest.approx(500, rel=0.1) and row["confidence"] == "medium"


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("steps", "shapes"), [(48, 16), (60, 12), (150, 40)])
def test_a_cache_that_fills(verdicts: Callable[..., dict[str, Any]], steps: int, shapes: int, seed: int) -> None:
    chance, cache = random.Random(seed), set[int]()

    def body(p: Program, i: int) -> None:
        shape = chance.randrange(shapes)
        if shape not in cache:
            cache.add(shape)
            p.new(64 * (shape + 1))

    report = verdicts(train(steps, body))
    assert not report["leaks"]
    assert all(reason in ("stopped", "few births") for _, reason in reasons(report))


def test_a_late_large_block_is_none(verdicts: Callable[..., dict[str, Any]]) -> None:
    assert quiet(verdicts(train(48, lambda p, i: p.new(1 << 20) if i == 30 else None)))


def test_a_checkpoint_that_replaces_the_one_before(verdicts: Callable[..., dict[str, Any]]) -> None:
    def body(p: Program, i: int) -> None:
        if i % 6 == 5:
            fresh = [p.new(4000, KEEP + k) for k in range(4)]
            for address in p.kept:
                p.drop(address)
            p.kept = fresh

    assert quiet(verdicts(train(90, body)))


def test_batches_fetched_ahead_by_another_thread(verdicts: Callable[..., dict[str, Any]]) -> None:
    queue: deque[int] = deque()
    sizes = random.Random(1)

    def body(p: Program, i: int) -> None:
        while len(queue) < 8:
            p.top += 64
            queue.append(p.top)
            p.t.alloc(p.top, 64 * sizes.randint(1, 40), p.t.line(KEEP), thread=2)
        p.t.free(queue.popleft(), thread=1)

    assert quiet(verdicts(train(60, body)))


def test_lengths_that_vary_and_batches_that_stay(verdicts: Callable[..., dict[str, Any]]) -> None:
    for seed in range(6):
        chance, p = random.Random(seed), Program()
        for _ in range(40):
            p.work(chance.randint(8, 200))
            p.tick()
        assert quiet(verdicts(p))
