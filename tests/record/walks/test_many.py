"""Which containers of an object have many Python objects, and about how many bytes."""

import sys
from typing import Any

import numpy
import pytest

from cuptimem.objects import many

N = 4000
STRINGS = [f"name-{i:06}" for i in range(N)]
SIZE = sum(map(sys.getsizeof, STRINGS))


class Holder:
    def __init__(self, **given: Any) -> None:
        self.__dict__.update(given)


def inside(**given: Any) -> list[tuple[str, int, int]]:
    return [(path, items, size) for path, _, items, size in many.inside(Holder(**given), "dataset")]


def test_a_list_of_strings() -> None:
    assert inside(names=STRINGS, few=[1, 2]) == [("dataset.names", N, SIZE)]


@pytest.mark.parametrize("kind", [tuple, set, frozenset])
def test_other_containers(kind: type) -> None:
    assert inside(names=kind(STRINGS)) == [("dataset.names", N, SIZE)]


def test_a_dictionary_counts_keys_and_values() -> None:
    values = [f"{i:06}-value" for i in range(N)]
    both = SIZE + sum(map(sys.getsizeof, values))
    assert inside(names=dict(zip(STRINGS, values, strict=True))) == [("dataset.names", N, both)]


def test_items_of_items() -> None:
    rows = [(f"name-{i:06}", 1000 + i) for i in range(N)]
    size = sum(sys.getsizeof(row) + sum(map(sys.getsizeof, row)) for row in rows)
    ((path, items, found),) = inside(rows=rows)
    assert (path, items) == ("dataset.rows", N) and abs(found - size) <= size // 100


def test_one_object_many_times_is_one() -> None:
    ((_, _, size),) = inside(names=["a long enough string"] * N)
    assert size <= N * 1  # a 256th of what different ones have


def test_arrays_have_no_objects() -> None:
    assert inside(names=numpy.array(STRINGS), numbers=numpy.arange(N)) == []


def test_inside_of_wrappers() -> None:
    inner = Holder(names=STRINGS)
    assert inside(dataset=inner) == [("dataset.dataset.names", N, SIZE)]
    assert inside(datasets=[Holder(), inner]) == [("dataset.datasets[1].names", N, SIZE)]


def test_cycles_and_depth_end() -> None:
    one = Holder(names=STRINGS)
    one.again = one  # type: ignore[attr-defined]
    assert len(many.inside(one, "dataset")) == 1
    deep = one
    for _ in range(9):
        deep = Holder(inner=deep)
    assert many.inside(deep, "dataset") == []


def test_no_code_of_the_program_runs() -> None:
    class Loud:
        def __getattribute__(self, name: str) -> Any:
            raise AssertionError

        def __sizeof__(self) -> int:
            raise AssertionError

        def __len__(self) -> int:
            raise AssertionError

    class Own(list[int]):
        def __len__(self) -> int:
            raise AssertionError

    ((path, _, size),) = inside(loud=Loud(), own=Own(range(N)), louds=[Loud() for _ in range(N)])
    assert path == "dataset.louds" and size == N * object.__sizeof__(Loud())
