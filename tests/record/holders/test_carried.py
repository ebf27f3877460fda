"""Which names of a loop live for one pass: read from code, without running it."""

import sys
from collections.abc import Iterable
from typing import Any

from cuptimem.objects import carried


def here() -> frozenset[str] | None:
    return carried.of_one_pass(sys._getframe(1))


def test_what_the_next_pass_reads_is_carried() -> None:
    def train(batches: Iterable[int]) -> Any:
        hidden, total = None, 0
        for batch in batches:
            output, hidden = (batch, hidden), batch
            loss = output
            total += batch
            found = here()
            del output
        return found, loss, total

    found, *_ = train(range(2))
    assert found == {"batch", "output"}  # the loss and the sum are read behind the loop


def test_the_innermost_loop_counts() -> None:
    found = []
    for epoch in range(1):
        mean = epoch
        for batch in range(2):
            scaled = batch * mean
            sum((scaled,))
            found.append(here())
        found.append(here())
    assert found == [{"batch", "scaled"}] * 2 + [{"epoch", "mean", "batch", "scaled"}]


def test_while_and_comprehensions() -> None:
    left = 2
    while left:
        values = [item * left for item in range(3)]
        left -= 1
        found = here()
        del values
    assert found is not None and "left" not in found and "values" in found


def test_without_a_loop_nothing_is_known() -> None:
    value = 1
    assert here() is None and value
