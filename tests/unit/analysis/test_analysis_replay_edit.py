"""Edited lives of blocks, beside a replay that sums at every position."""

from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuptimem import _core

Life = tuple[int, int, int]  # birth, end, bytes

LIVES = st.lists(
    st.tuples(st.integers(0, 40), st.integers(-1, 50), st.integers(0, 9)).map(
        lambda one: (one[0], -1 if one[1] < 0 else one[1], one[2])
    ),
    max_size=25,
)


def brute_force(lives: Sequence[Life]) -> tuple[int, int]:
    sums = [sum(size for birth, end, size in lives if birth <= at and (end < 0 or end > at)) for at in range(52)]
    return (max(sums), sums.index(max(sums))) if max(sums) else (0, 0)


def replay(lives: Sequence[Life], removed: Sequence[int] = (), added: Sequence[Life] = ()) -> tuple[int, int]:
    columns = [array("q", [life[i] for life in lives]) for i in range(3)]
    rows = array("q", [value for life in added for value in life])
    return _core.edit_peak(_core.edit_base(*columns), array("q", removed), rows)


@given(LIVES, LIVES, st.data())
@settings(max_examples=400, deadline=None)
def test_as_a_sum_at_every_position(lives: list[Life], added: list[Life], data: st.DataObject) -> None:
    removed = data.draw(st.lists(st.integers(0, len(lives) - 1), max_size=8)) if lives else []
    left = [life for i, life in enumerate(lives) if i not in removed]
    assert replay(lives, removed, added) == brute_force([*left, *added])


def test_an_end_comes_before_a_birth_at_its_position() -> None:
    assert replay([(0, 5, 3), (5, -1, 4)]) == (4, 5)


def test_nothing() -> None:
    assert replay([]) == (0, 0)
    assert replay([(0, -1, 7)], removed=[0]) == (0, 0)


def test_what_it_refuses() -> None:
    base = _core.edit_base(array("q", [0]), array("q", [-1]), array("q", [7]))
    for removed in (1, -1):
        with pytest.raises(IndexError):
            _core.edit_peak(base, array("q", [removed]), array("q"))
    with pytest.raises(ValueError, match="whole rows"):
        _core.edit_peak(base, array("q"), array("q", [1, 2]))
    with pytest.raises(ValueError, match="one length"):
        _core.edit_base(array("q", [0]), array("q"), array("q"))
    with pytest.raises(ValueError):
        _core.edit_peak(object(), array("q"), array("q"))
