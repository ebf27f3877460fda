"""Verdicts hold whatever the numbers are."""

import random
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from leak_program import Program, only

pytestmark = pytest.mark.costly
SETTINGS = settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@SETTINGS
@given(
    steps=st.integers(12, 400),
    size=st.integers(1, 300),
    rate=st.integers(1, 3),
    every=st.integers(1, 9),
    chunk=st.integers(1, 40),
    scale=st.integers(1, 1000),
    seed=st.integers(0, 10**6),
)
def test_no_bounded_buffer_is_accused(
    verdicts: Callable[..., dict[str, Any]],
    steps: int,
    size: int,
    rate: int,
    every: int,
    chunk: int,
    scale: int,
    seed: int,
) -> None:
    """First in, first out, of any length and rate, that drops one or many at a time once it is full."""
    assume(rate * (steps // every) > size)  # one that is never full is a leak as far as it was seen
    queue: deque[int] = deque()
    p, chance = Program(), random.Random(seed)
    for i in range(steps):
        p.drop(p.new(64, 20))
        p.end(p.node(20))
        for _ in range(rate if i % every == 0 else 0):
            queue.append(p.new(scale * chance.randint(1, 4)))
        if len(queue) > size:
            for _ in range(min(max(chunk, len(queue) - size), len(queue))):
                p.drop(queue.popleft())
        p.tick()
    assert not verdicts(p)["leaks"]


@SETTINGS
@given(
    period=st.integers(1, 40),
    births=st.integers(9, 60),
    begin=st.integers(0, 30),
    rest=st.integers(0, 39),
    size=st.integers(1, 10**9),
    count=st.integers(1, 3),
)
def test_a_constant_leak_is_found_with_its_exact_rate(
    verdicts: Callable[..., dict[str, Any]], period: int, births: int, begin: int, rest: int, size: int, count: int
) -> None:
    p = Program()
    steps = begin % period + (births - 1) * period + 1 + rest % period
    assume(steps >= 12)
    for i in range(steps):
        p.drop(p.new(64, 20))
        p.end(p.node(20))
        for _ in range(count if i % period == begin % period else 0):
            p.new(size)
        p.tick()
    row = only(verdicts(p))
    assert row["bytes_per_step"] == pytest.approx(count * size / period, rel=1e-9)
    assert (row["count"], row["bytes"]) == (count * births, count * births * size)


@SETTINGS
@given(
    steps=st.integers(30, 300),
    begin=st.floats(0.0, 0.75),
    size=st.integers(1, 10**6),
    noise=st.integers(1000, 10**7),
    seed=st.integers(0, 10**6),
)
def test_a_late_leak_is_found_under_any_noise(
    verdicts: Callable[..., dict[str, Any]], steps: int, begin: float, size: int, noise: int, seed: int
) -> None:
    """Batches of any size that stay until the next step, in front of a leak from any moment on."""
    p, chance = Program(), random.Random(seed)
    first, last = int(begin * steps), 0
    for i in range(steps):
        if last:
            p.drop(last)
        last = p.new(chance.randint(1, noise), 20)
        p.end(p.node(20))
        if i >= first:
            p.new(size)
        p.tick()
    row = only(verdicts(p))
    assert row["bytes_per_step"] == size and row["count"] == steps - first


@SETTINGS
@given(
    steps=st.integers(24, 200),
    size=st.integers(1, 60),
    seed=st.integers(0, 10**6),
)
def test_no_full_random_buffer_is_accused(
    verdicts: Callable[..., dict[str, Any]], steps: int, size: int, seed: int
) -> None:
    """One that replaces a random entry, and has been full for a third of the time."""
    assume(size <= steps * 2 // 3)
    chance, buffer, p = random.Random(seed), list[int](), Program()
    for _ in range(steps):
        p.drop(p.new(64, 20))
        p.end(p.node(20))
        buffer.append(p.new())
        if len(buffer) > size:
            p.drop(buffer.pop(chance.randrange(len(buffer))))
        p.tick()
    assert not verdicts(p)["leaks"]
