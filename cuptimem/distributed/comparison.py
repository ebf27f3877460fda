"""Why a rank needs more than the others. Ranks are compared with the one in the middle, at the same step: clocks of
several machines say nothing about who computes what at the same time, steps do."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from cuptimem.displayed import Displayed
from cuptimem.distributed.summary import Growth, Held, RankDevice, RankSummary
from cuptimem.report.brief import Brief
from cuptimem.report.process import HOST
from cuptimem.words import plural, signed, size

if TYPE_CHECKING:
    from cuptimem.output.text.blocks import Block

_SHARE = 100  # a difference of less than a hundredth of the middle's peak is none,
_LEAST = 64 << 10  # nor is one of fewer bytes
_NAMED = 8  # lines of a difference
_EXPLAINED = 8  # groups of ranks

HeldAt = Callable[[RankSummary, int], Held | None]  # what a rank's own device held at the peak of a step


@dataclass(frozen=True, slots=True, repr=False)
class Row(Brief):
    """Bytes of one name on both sides."""

    name: str
    bytes: int
    middle: int

    @property
    def more(self) -> int:
        return self.bytes - self.middle


@dataclass(frozen=True, slots=True, repr=False)
class Difference(Brief):
    """What ranks of one kind have more (or less) on their own device than the middle rank, and where.

    bytes: by how much the first of them differs. step: in which both are compared; None: at each one's peak. alone: in
    its usual step it is as the middle rank. The rows are those that differ, what differs most first.
    """

    ranks: tuple[int, ...]  # places in Ranks.ranks, what differs most first
    bytes: int
    step: int | None
    alone: bool
    categories: tuple[Row, ...]
    lines: tuple[Row, ...]
    batch: float | None = None

    def _summary(self) -> str:
        return f"{plural(len(self.ranks), 'rank')}, {signed(self.bytes)}"


@dataclass(frozen=True, slots=True, repr=False)
class Guest(Brief):
    """Bytes on a device that is another rank's own."""

    host: str
    device: str
    owner: int  # places in Ranks.ranks
    ranks: tuple[int, ...]
    bytes: int  # of all of them, each at its peak there
    lines: tuple[tuple[str, int], ...]  # the largest first
    used: int | None = None  # by everything on that device, at most, as any rank has seen it

    def _summary(self) -> str:
        return f"{size(self.bytes)} of {plural(len(self.ranks), 'rank')} on {self.device}"


@dataclass(frozen=True, slots=True, repr=False)
class Grows(Brief):
    """A leak, and the ranks that have it."""

    growth: Growth  # of the first of them
    ranks: tuple[int, ...]

    def _summary(self) -> str:
        return f"{self.growth._summary()}, {plural(len(self.ranks), 'rank')}"


@dataclass(frozen=True, repr=False)
class Ranks(Displayed, Brief):
    """The recordings of a job's ranks, compared. print() shows the table and the reasons."""

    ranks: tuple[RankSummary, ...]  # by rank
    middle: int  # the place of the rank with the median peak
    differences: tuple[Difference, ...]  # what differs most first
    unexplained: int  # ranks that differ, too, but were not looked into: more than eight kinds of difference
    guests: tuple[Guest, ...]
    growths: tuple[Grows, ...]
    missing: tuple[int, ...]  # ranks of the job without a trace
    failed: tuple[tuple[str, str], ...]  # traces that could not be read, and why
    launchers: tuple[str, ...] = ()  # traces of processes without a rank that allocated nothing: left out

    def _summary(self) -> str:
        return f"{plural(len(self.ranks), 'rank')}, {plural(len(self.differences), 'difference')}"

    def label(self, place: int) -> str:
        """ "3"; of what has no rank, or not its own, the file's name."""
        return self._labels[place]

    def own(self, place: int) -> RankDevice | None:
        return self.ranks[place].own

    def more(self, place: int) -> int:
        """Bytes of its peak above the middle rank's."""
        return peak(self.ranks[place]) - peak(self.ranks[self.middle])

    def differs(self, place: int) -> bool:
        return abs(self.more(place)) > bound(self.ranks[self.middle])

    @property
    def order(self) -> list[int]:
        """Places: first what differs, most of it first; then by rank."""
        return sorted(
            range(len(self.ranks)), key=lambda at: (not self.differs(at), -abs(self.more(at)) * self.differs(at))
        )

    @cached_property
    def _labels(self) -> list[str]:
        known = [one.rank for one in self.ranks]
        return [
            str(one.rank) if one.rank is not None and known.count(one.rank) == 1 else one.path.rsplit("/", 1)[-1]
            for one in self.ranks
        ]

    @cached_property
    def _blocks(self) -> "Sequence[Block]":
        from cuptimem.output.text import rank_views

        return rank_views.full(self)

    def __str__(self) -> str:
        from cuptimem.output.text import terminal, text

        return text.render(self._blocks, terminal.width_of_output())


def compare(found: Iterable[RankSummary], failed: Iterable[tuple[str, str]], held_at: HeldAt) -> Ranks:
    """held_at reads a rank's trace once more: at most eight times the middle rank's, and as often others'."""
    every = list(found)
    # `run --follow torchrun` records the launcher, too.
    launchers = [one for one in every if one.rank is None and one.own is None]
    if len(launchers) == len(every):
        launchers = []
    ranks = tuple(
        sorted(
            (one for one in every if one not in launchers),
            key=lambda one: (one.rank is None, one.rank or 0, one.started, one.path),
        )
    )
    middle = sorted(range(len(ranks)), key=lambda at: (peak(ranks[at]), at))[(len(ranks) - 1) // 2]
    least = bound(ranks[middle])
    outliers = [at for at in range(len(ranks)) if abs(peak(ranks[at]) - peak(ranks[middle])) > least]
    kinds = _kinds(ranks, sorted(outliers, key=lambda at: -abs(peak(ranks[at]) - peak(ranks[middle]))), least)
    known = {one.rank for one in ranks}
    world = max((one.world for one in ranks if one.world is not None), default=0)
    return Ranks(
        ranks,
        middle,
        tuple(_difference(ranks, kind, middle, least, held_at) for kind in kinds[:_EXPLAINED]),
        sum(len(kind) for kind in kinds[_EXPLAINED:]),
        tuple(_guests(ranks)),
        tuple(_grows(ranks)),
        tuple(number for number in range(world) if number not in known),
        tuple(failed),
        tuple(one.path for one in launchers),
    )


def peak(one: RankSummary) -> int:
    return 0 if one.own is None else one.own.peak.bytes


def bound(middle: RankSummary) -> int:
    return max(_LEAST, peak(middle) // _SHARE)


def _kinds(ranks: Sequence[RankSummary], outliers: Sequence[int], bound: int) -> list[tuple[int, ...]]:
    """Ranks that differ alike: by about as many bytes, in the same step, with the same line as the largest."""
    kinds: list[list[int]] = []
    for at in outliers:
        for kind in kinds:
            if _alike(ranks[kind[0]], ranks[at], bound):
                kind.append(at)
                break
        else:
            kinds.append([at])
    return [tuple(kind) for kind in kinds]


def _alike(one: RankSummary, other: RankSummary, bound: int) -> bool:
    if one.own is None or other.own is None:
        return one.own is other.own
    mine, its = one.own.peak, other.own.peak
    return abs(mine.bytes - its.bytes) <= bound and mine.step == its.step and _first(mine) == _first(its)


def _first(held: Held) -> str:
    return next(iter(held.lines), "")


def _difference(
    ranks: Sequence[RankSummary], kind: tuple[int, ...], middle: int, bound: int, held_at: HeldAt
) -> Difference:
    """At the step in which the one with the higher peak has it: there is the difference."""
    mine, its = ranks[kind[0]].own, ranks[middle].own
    if mine is None or its is None:
        return Difference(kind, peak(ranks[kind[0]]) - peak(ranks[middle]), None, False, (), ())
    here, there, step = mine.peak, its.peak, None
    if (higher := max(here, there, key=lambda held: held.bytes).step) is not None:
        both = [
            held if held.step == higher else held_at(ranks[at], higher)
            for held, at in ((here, kind[0]), (there, middle))
        ]
        if both[0] is not None and both[1] is not None:
            here, there, step = both[0], both[1], higher
    alone = mine.usual is not None and its.usual is not None and abs(mine.usual - its.usual) <= bound
    return Difference(
        kind,
        mine.peak.bytes - its.peak.bytes,
        step,
        alone and step is not None,
        _rows(here.categories, there.categories, _NAMED),
        _rows(here.lines, there.lines, _NAMED),
        _batch(here.inputs, there.inputs),
    )


def _batch(mine: Mapping[str, int], its: Mapping[str, int]) -> float | None:
    both = mine.keys() & its.keys()
    here, there = sum(mine[line] for line in both), sum(its[line] for line in both)
    return here / there if there and abs(here - there) * 20 > there else None


def _rows(mine: Mapping[str, int], its: Mapping[str, int], most: int) -> tuple[Row, ...]:
    rows = [Row(name, mine.get(name, 0), its.get(name, 0)) for name in dict.fromkeys([*mine, *its])]
    return tuple(sorted((row for row in rows if row.more), key=lambda row: -abs(row.more))[:most])


def _guests(ranks: Sequence[RankSummary]) -> Iterable[Guest]:
    """Accelerators by machine: a rank's own one that others have bytes on, too."""
    owners: dict[tuple[str, str], int] = {}
    for at, one in enumerate(ranks):
        if one.own is not None and one.own.name not in HOST:
            owners.setdefault((one.host, one.own.name), at)
    found: dict[tuple[str, str], list[tuple[int, RankDevice]]] = {}
    for at, one in enumerate(ranks):
        for device in one.devices:
            place = (one.host, device.name)
            if device is not one.own and place in owners:
                found.setdefault(place, []).append((at, device))
    for (host, name), guests in found.items():
        lines: dict[str, int] = {}
        for _, device in guests:
            for line, bytes in device.peak.lines.items():
                lines[line] = lines.get(line, 0) + bytes
        largest = sorted(lines.items(), key=lambda item: -item[1])[:_NAMED]
        seen = [one.used for rank in ranks if rank.host == host for one in rank.devices if one.name == name]
        yield Guest(
            host,
            name,
            owners[host, name],
            tuple(at for at, _ in guests),
            sum(device.peak.bytes for _, device in guests),
            tuple(largest),
            max((used for used in seen if used is not None), default=None),
        )


def _grows(ranks: Sequence[RankSummary]) -> Iterable[Grows]:
    return grouped((at, growth) for at, one in enumerate(ranks) for growth in one.growths)


def grouped(growths: Iterable[tuple[int, Growth]]) -> list[Grows]:
    """The same line of the same loop is the same leak."""
    found: dict[tuple[str, str, bool], list[tuple[int, Growth]]] = {}
    for at, growth in growths:
        found.setdefault((growth.line, growth.loop, growth.decided), []).append((at, growth))
    return [
        Grows(max((growth for _, growth in group), key=lambda one: one.bytes_per_step), tuple(at for at, _ in group))
        for group in sorted(found.values(), key=lambda group: (not group[0][1].decided, -group[0][1].bytes_per_step))
    ]
