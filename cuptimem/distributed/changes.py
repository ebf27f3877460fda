"""What changed between two recordings of a job, on which rank: each rank is compared with itself."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cuptimem.distributed.comparison import Grows, bound, grouped, peak
from cuptimem.distributed.summary import Growth, Held, RankSummary
from cuptimem.report.brief import Brief
from cuptimem.words import plural, signed

_NAMED = 8  # lines of a change


@dataclass(frozen=True, slots=True, repr=False)
class Pair(Brief):
    """One rank in both; None: it is not in that one."""

    rank: int
    before: RankSummary | None
    after: RankSummary | None

    def _summary(self) -> str:
        return f"rank {self.rank}: {signed(self.more)}"

    @property
    def more(self) -> int:
        """Bytes by which the peak of its own device rose; 0 where the rank is in one of them only."""
        if self.before is None or self.after is None:
            return 0
        return peak(self.after) - peak(self.before)


@dataclass(frozen=True, slots=True, repr=False)
class Moved(Brief):
    """Bytes of one name at both peaks."""

    name: str
    before: int
    after: int

    @property
    def more(self) -> int:
        return self.after - self.before

    def _summary(self) -> str:
        return f"{self.name} {signed(self.more)}"


@dataclass(frozen=True, slots=True, repr=False)
class RankChange(Brief):
    """What changed alike on some ranks, each compared with itself at its peak. The rows are those of the first."""

    ranks: tuple[int, ...]  # numbers, what changed most first
    bytes: int
    categories: tuple[Moved, ...]
    lines: tuple[Moved, ...]

    def _summary(self) -> str:
        return f"{plural(len(self.ranks), 'rank')}, {signed(self.bytes)}"


@dataclass(frozen=True, slots=True, repr=False)
class RanksDiff(Brief):
    """Two recordings of a job."""

    pairs: tuple[Pair, ...]  # by rank
    changes: tuple[RankChange, ...]  # what changed most first
    begun: tuple[Grows, ...]  # leaks of the second recording alone; their ranks are numbers
    ended: tuple[Grows, ...]  # of the first alone
    unjoined: tuple[str, ...]  # traces without a rank, or with one that another has, too

    def _summary(self) -> str:
        return f"{plural(len(self.pairs), 'rank')}, {plural(len(self.changes), 'change')}"


def compare(before: Iterable[RankSummary], after: Iterable[RankSummary]) -> RanksDiff:
    some = [list(before), list(after)]
    old, new = map(_by_rank, some)
    joined = {id(one) for known in (old, new) for one in known.values()}
    pairs = tuple(Pair(rank, old.get(rank), new.get(rank)) for rank in sorted(old.keys() | new.keys()))
    begun, ended = _leaks(pairs)
    unjoined = tuple(one.path for found in some for one in found if id(one) not in joined)
    return RanksDiff(pairs, tuple(_changes(pairs)), tuple(begun), tuple(ended), unjoined)


def _by_rank(ranks: Sequence[RankSummary]) -> dict[int, RankSummary]:
    known = Counter(one.rank for one in ranks)
    return {one.rank: one for one in ranks if one.rank is not None and known[one.rank] == 1}


def _changes(pairs: Sequence[Pair]) -> Iterable[RankChange]:
    """Ranks that changed by about as many bytes, most of them at the same line, changed alike."""
    kinds: list[list[RankChange]] = []
    for pair in sorted(pairs, key=lambda one: (-abs(one.more), one.rank)):
        if pair.before is None or pair.after is None:
            continue
        least = bound(pair.before)
        here = None if pair.before.own is None else pair.before.own.peak
        there = None if pair.after.own is None else pair.after.own.peak
        lines = _lines(here, there)
        # A peak of the same height may be made of something else.
        if abs(pair.more) <= least and not any(abs(row.more) > least for row in lines):
            continue
        one = RankChange((pair.rank,), pair.more, _rows(_sums(here), _sums(there)), lines)
        for kind in kinds:
            if abs(kind[0].bytes - one.bytes) <= least and _first(kind[0]) == _first(one):
                kind.append(one)
                break
        else:
            kinds.append([one])
    for kind in kinds:
        first = kind[0]
        yield RankChange(tuple(one.ranks[0] for one in kind), first.bytes, first.categories, first.lines)


def _first(one: RankChange) -> str:
    return one.lines[0].name if one.lines else ""


def _sums(held: Held | None) -> Mapping[str, int]:
    return {} if held is None else held.categories


def _lines(before: Held | None, after: Held | None) -> tuple[Moved, ...]:
    """By the line as it is in `after`."""
    old, new = ({} if held is None else held.lines for held in (before, after))
    if before is None or after is None:
        return _rows(old, new)
    now = _edited(before, after)
    renamed: dict[str, int] = {}
    for name, bytes in old.items():
        renamed[now.get(name, name)] = renamed.get(now.get(name, name), 0) + bytes
    return _rows(renamed, new)


def _edited(before: Held, after: Held) -> dict[str, str]:
    """Lines that an edit has moved: the same code, which stands once on either side."""
    texts = [{line: code for line, code in held.code.items() if code} for held in (before, after)]
    once = [{code for code, times in Counter(text.values()).items() if times == 1} for text in texts]
    there = {code: line for line, code in texts[1].items() if code in once[1]}
    return {line: there[code] for line, code in texts[0].items() if code in once[0] and code in there}


def _rows(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[Moved, ...]:
    rows = [Moved(name, before.get(name, 0), after.get(name, 0)) for name in dict.fromkeys([*after, *before])]
    return tuple(sorted((row for row in rows if row.more), key=lambda row: -abs(row.more))[:_NAMED])


def _leaks(pairs: Sequence[Pair]) -> tuple[list[Grows], list[Grows]]:
    """Those that have begun and those that have ended, each with the numbers of its ranks."""
    begun: list[tuple[int, Growth]] = []
    ended: list[tuple[int, Growth]] = []
    for pair in pairs:
        if pair.before is None or pair.after is None:
            continue
        old, new = pair.before.own, pair.after.own
        now = {} if old is None or new is None else _edited(old.peak, new.peak)
        were = {(now.get(one.line, one.line), one.loop): one for one in pair.before.growths if one.decided}
        are = {(one.line, one.loop): one for one in pair.after.growths if one.decided}
        begun += [(pair.rank, are[key]) for key in are if key not in were]
        ended += [(pair.rank, were[key]) for key in were if key not in are]
    return grouped(begun), grouped(ended)
