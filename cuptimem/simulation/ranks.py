"""The ranks of a distributed program: those that differ are run, one after the other, and the others said to be as one.

A rank's place is its coordinates in the program's device mesh, without one its number; an axis that spans machines is
two: the machine, and the place in it (LOCAL_RANK). Along each axis the first two places, the middle and the last one
are run, and what lies between two that differ is halved until neighbours stand beside each other. What lies between two
equal ones is taken to be like them, if the first of it is. Where several axes have places that differ, each combination
is run. The last rank of all is run in any case: where it is not as the axes say, nothing is said of ranks that were not
run.
"""

import itertools
import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cuptimem.simulation import fitting
from cuptimem.simulation.fitting import Case, Row
from cuptimem.simulation.launch import Setup
from cuptimem.simulation.world import MESH, NEEDS, World

MOST = 64  # runs of ranks; what is not decided then is not known

Ask = Callable[[int], Row]


@dataclass(frozen=True, slots=True)
class Ranks:
    """Ranks of which one answer is given."""

    ranks: tuple[int, ...]
    run: tuple[int, ...]  # of them
    row: Row | None  # of the first that was run; None: nothing is known


def of_program(setup: Setup, size: int, ranks: Sequence[int] | None, ask: fitting.Ask) -> tuple[Ranks, ...]:
    """ranks: those to run; None: all that differ."""
    with tempfile.TemporaryDirectory(prefix="cuptimem-ranks-") as folder:
        world = World(0, size, setup.devices, folder)

        def run(rank: int, waiting: tuple[int, ...] = ()) -> Row:
            """What it waits for is sent by runs of other ranks; those that wait for it have run as far as they can."""
            while True:
                one = replace(world, rank=rank)
                one.forget(NEEDS)
                row = fitting.asked(case := Case(f"rank {rank}", replace(setup, world=one)), ask(case))
                needed = one.noted(NEEDS)
                if row.verdict != "script failed" or not needed or needed[0] in waiting:
                    return row
                sent = world.sent()
                sender = run(needed[0], (*waiting, rank))
                if world.sent() == sent:  # it sends nothing more, however often it runs
                    failed = sender.verdict == "script failed" and needed[0] not in waiting
                    return replace(row, reason=f"rank {needed[0]} sends no object: {sender.reason}") if failed else row

        return of_some(ranks, run) if ranks else of_all(size, run, lambda: world.noted(MESH), setup.devices)


def exit_code(found: Sequence[Ranks]) -> int:
    """As fitting.exit_code; a rank of which nothing is known is undecided."""
    code = fitting.exit_code([one.row for one in found if one.row is not None])
    return 4 if code == 0 and any(one.row is None for one in found) else code


def of_some(ranks: Sequence[int], ask: Ask) -> tuple[Ranks, ...]:
    """Those ranks alone; ends where the program failed."""
    rows: dict[int, Row] = {}
    for rank in ranks:
        rows[rank] = ask(rank)
        if rows[rank].verdict == "script failed":
            break
    return _grouped(rows, dict(zip(rows, rows, strict=True)))


def of_all(size: int, ask: Ask, shape: Callable[[], Sequence[int]], devices: int | None = None) -> tuple[Ranks, ...]:
    """shape: of the program's device mesh, known once a rank has run; () where it has none. devices: of a machine."""
    search = _Search(size, ask, shape, devices or size)
    try:
        return _grouped(search.rows, search.representatives())
    except _Failed:
        return _grouped(search.rows, dict(zip(search.rows, search.rows, strict=True)))


class _Failed(Exception):
    """The program failed as some rank."""


class _Search:
    def __init__(self, size: int, ask: Ask, shape: Callable[[], Sequence[int]], devices: int) -> None:
        self._size, self._ask = size, ask
        self.rows: dict[int, Row] = {}
        self._run(0)
        found = tuple(shape())
        self._shape = _by_machines(found if math.prod(found) == size else (size,), devices)

    def representatives(self) -> dict[int, int | None]:
        """For each rank one that was run and stands for it; None: none does."""
        axes = [self._axis(number) for number in range(len(self._shape))]
        differing = [sorted({one for one in axis if one is not None}) for axis in axes]
        if math.prod(map(len, differing)) + len(self.rows) <= MOST:
            for place in itertools.product(*differing):
                self._run(self._rank(place))
        self._run(self._size - 1)
        found = {rank: self._stand_in(rank, axes) for rank in range(self._size)}
        stand_in = found[self._size - 1]
        if stand_in is None or _answer(self.rows[stand_in]) != _answer(self.rows[self._size - 1]):
            found = dict.fromkeys(found)
        return found | {rank: rank for rank in self.rows}

    def _axis(self, number: int) -> list[int | None]:
        """For each place of an axis one that was run and stands for it, with all other coordinates at 0."""
        length = self._shape[number]
        run: dict[int, Row] = {}

        def at(place: int) -> Row:
            run[place] = self._run(self._rank([place if axis == number else 0 for axis in range(len(self._shape))]))
            return run[place]

        start = sorted({0, min(1, length - 1), length // 2, length - 1})
        waiting = list(itertools.pairwise(start))
        for place in start:
            at(place)
        while waiting and len(self.rows) < MOST:
            low, high = waiting.pop(0)
            if high - low == 1:
                continue
            equal = _answer(run[low]) == _answer(run[high])
            middle = low + 1 if equal else (low + high) // 2  # between two that are equal it may be every other one
            if not equal or _answer(at(middle)) != _answer(run[low]):
                at(middle)
                waiting += [(low, middle), (middle, high)]
        first: dict[object, int] = {}
        for place in sorted(run):
            first.setdefault(_answer(run[place]), place)
        known: list[int | None] = [None] * length
        for low, high in itertools.pairwise(sorted(run)):
            if _answer(run[low]) == _answer(run[high]):
                known[low:high] = [first[_answer(run[low])]] * (high - low)
        for place, row in run.items():
            known[place] = first[_answer(row)]
        return known

    def _run(self, rank: int) -> Row:
        if rank not in self.rows:
            self.rows[rank] = self._ask(rank)
            if self.rows[rank].verdict == "script failed":
                raise _Failed
        return self.rows[rank]

    def _rank(self, place: Sequence[int]) -> int:
        rank = 0
        for coordinate, length in zip(place, self._shape, strict=True):
            rank = rank * length + coordinate
        return rank

    def _stand_in(self, rank: int, axes: Sequence[Sequence[int | None]]) -> int | None:
        place = []
        for axis in reversed(axes):
            rank, coordinate = divmod(rank, len(axis))
            stand_in = axis[coordinate]
            if stand_in is None:
                return None
            place.append(stand_in)
        found = self._rank(place[::-1])
        return found if found in self.rows else None


def _by_machines(shape: Sequence[int], devices: int) -> tuple[int, ...]:
    """The shape with an axis that spans machines as two, where so many devices are a machine."""
    stride, parts = 1, []
    for length in reversed(shape):
        inner, rest = divmod(devices, stride)
        if rest == 0 and 1 < inner < length and length % inner == 0:
            parts += [inner, length // inner]
        else:
            parts.append(length)
        stride *= length
    return tuple(parts[::-1])


def _answer(row: Row) -> object:
    """What two ranks have alike that are said to be equal."""
    one = row.simulation
    devices = () if one is None else tuple((device.allocated, device.reserved, device.used) for device in one.devices)
    return row.verdict, row.takes, devices


def _grouped(rows: dict[int, Row], representatives: dict[int, int | None]) -> tuple[Ranks, ...]:
    groups: dict[object, list[int]] = {}
    for rank in sorted(representatives):
        stand_in = representatives[rank]
        groups.setdefault(None if stand_in is None else _answer(rows[stand_in]), []).append(rank)
    found = []
    for answer, ranks in groups.items():
        run = tuple(rank for rank in ranks if rank in rows)
        found.append(Ranks(tuple(ranks), run, None if answer is None else rows[run[0]]))
    failed = [one for one in found if one.row is not None and one.row.verdict == "script failed"]
    return (*(one for one in found if one not in failed), *failed)


def in_words(ranks: Sequence[int]) -> str:
    """0, 1, 2, 5 as "0-2, 5"."""
    parts: list[str] = []
    for _, group in itertools.groupby(enumerate(ranks), key=lambda pair: pair[1] - pair[0]):
        numbers = [number for _, number in group]
        parts.append(str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}")
    return ", ".join(parts)
