"""Containers that have a bound and room below it: which blocks of them the trace is told of."""

import dataclasses
import functools
from collections import OrderedDict, deque, namedtuple
from pathlib import Path
from typing import Any

import pytest

import cuptimem
from cuptimem import _core

torch = pytest.importorskip("torch", reason="the torch-free run leaves these out")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("only_new_objects")]

FILLING = 9  # cm_mark_kind
Transition = namedtuple("Transition", "state reward")


@dataclasses.dataclass
class Sample:
    image: Any
    label: Any


def noted(path: Path) -> list[int]:
    """The addresses of the last look."""
    marks = [row[3] for row in _core.trace_dump(str(path)) if row[0] == "mark" and row[4] == FILLING]
    assert 0 in marks
    return marks[len(marks) - marks[::-1].index(0) :]


def tensors(number: int) -> list[Any]:
    return [torch.empty(100) for _ in range(number)]


def addresses(held: list[Any]) -> list[int]:
    return sorted(tensor.untyped_storage().data_ptr() for tensor in held)


def look(container: Any, folder: Path) -> list[int]:
    with cuptimem.profile(folder / "a.cmem", overwrite=True):
        assert container is not None
    return sorted(noted(folder / "a.cmem"))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda tensor: tensor,
        lambda tensor: Transition(tensor, 1.0),
        lambda tensor: {"state": tensor},
        lambda tensor: [tensor, 3],
        lambda tensor: (1, {"deep": tensor}),
        lambda tensor: Sample(tensor, 1),
        lambda tensor: tensor[2:7],
    ],
)
def test_a_deque_with_room(wrap: Any, tmp_path: Path) -> None:
    held = tensors(5)
    assert look(deque(map(wrap, held), maxlen=6), tmp_path) == addresses(held)


def test_a_list_with_places(tmp_path: Path) -> None:
    held = tensors(5)
    assert look([*held, *[None] * 8], tmp_path) == addresses(held)


def test_an_array_with_places(tmp_path: Path) -> None:
    """A replay memory: numpy.empty(capacity, dtype=object). The collector does not track it."""
    numpy = pytest.importorskip("numpy")
    held = tensors(5)
    memory = numpy.empty(100, dtype=object)
    for place, tensor in enumerate(held):
        memory[place] = Transition(tensor, 1.0)
    assert look({"memory": memory}, tmp_path) == addresses(held)
    full = memory[:5].copy()
    del memory
    assert look([numpy.zeros(100), full], tmp_path) == []


def cached(held: list[Any], bound: int | None) -> Any:
    of = functools.lru_cache(bound)(held.__getitem__)
    list(map(of, range(len(held))))
    return of


@pytest.mark.parametrize("bound", [128, 6])
def test_a_cache_with_room(bound: int, tmp_path: Path) -> None:
    held = tensors(5)
    assert look(cached(held, bound), tmp_path) == addresses(held)


def test_what_the_function_of_a_cache_keeps_has_no_bound(tmp_path: Path) -> None:
    held = tensors(5)

    def encode(i: int) -> Any:
        return held[i]

    encode.history = tensors(4)  # type: ignore[attr-defined]
    of = functools.lru_cache(128)(encode)
    list(map(of, range(len(held))))
    assert look(of, tmp_path) == addresses(held)


@pytest.mark.parametrize(
    "make",
    [
        lambda held: deque(held, maxlen=5),  # full
        lambda held: cached(held, 5),
        lambda held: cached(held, None),
        lambda held: deque(held),  # no bound
        lambda held: held,
        lambda held: [None, *held],
        lambda held: [*held, None],  # a list that None was added to
        lambda held: OrderedDict(enumerate(held)),
    ],
)
def test_others_are_not_told(make: Any, tmp_path: Path) -> None:
    assert look(make(tensors(5)), tmp_path) == []


class Property:
    """Attributes that run code."""

    def __init__(self, tensor: Any) -> None:
        self.held = tensor

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError("the program's code ran")


def test_no_code_of_the_program_runs(tmp_path: Path) -> None:
    held = tensors(5)
    assert look(deque(map(Property, held), maxlen=9), tmp_path) == addresses(held)


class Meta(type):
    def __eq__(cls, other: object) -> bool:
        raise AssertionError("the program's code ran")

    __hash__ = type.__hash__


class Odd(metaclass=Meta):
    """A class that compares itself, with a namespace of its own making."""

    @property
    def __dict__(self) -> Any:
        raise AssertionError("the program's code ran")


def test_odd_classes_are_left_alone(tmp_path: Path) -> None:
    held = tensors(5)
    assert look(deque([Odd(), *held], maxlen=9), tmp_path) == addresses(held)


def test_a_lazy_copy_stays_one(tmp_path: Path) -> None:
    held = tensors(5)
    with cuptimem.profile(tmp_path / "a.cmem"):
        copies = deque([torch._lazy_clone(tensor) for tensor in held], maxlen=9)
    assert noted(tmp_path / "a.cmem") == []
    assert all(torch._C._is_cow_tensor(tensor) for tensor in copies)


def test_large_containers_are_looked_at_in_part(tmp_path: Path) -> None:
    held = tensors(5)
    assert look([*held, *[None] * 10_000_000], tmp_path) == addresses(held)
    assert len(look(deque([1] * 100_000 + held, maxlen=200_000), tmp_path)) == 0


def test_tensors_without_memory(tmp_path: Path) -> None:
    held = tensors(4)
    sparse = torch.eye(3).to_sparse()
    meta = torch.empty(10, device="meta")
    assert look(deque([*held, sparse, meta, None, "x"], maxlen=99), tmp_path) == addresses(held)
