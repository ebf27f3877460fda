"""The smallest set of changes with which the predicted peak of a recording is within a budget."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from cuptimem.advice import recorded
from cuptimem.advice.catalogue import TECHNIQUES
from cuptimem.advice.program import FOREVER, Block, Program
from cuptimem.advice.technique import COSTS, Change, Technique, worst
from cuptimem.advice.trainers import in_settings
from cuptimem.errors import Error
from cuptimem.report.advice import Plan, Proposal
from cuptimem.report.model import Report

_WORK = 20_000_000  # blocks that are edited in all
_SETS = 4096


def fit(report: Report, budget: int, device: str | None = None) -> Plan:
    """The changes that bring the peak of a device (None: the first one) to at most so many bytes.

    No change of a dearer kind (technique.COSTS) is among them where cheaper kinds are enough, then they are as few as
    possible, then their peak is the lowest. Where none are enough: those with the lowest peak. Raises Error.
    """
    peak = report.device(device).peak if device is not None else report.peak
    lived = recorded.of(report, peak.device)
    if isinstance(lived, str):
        raise Error(f"nothing can be predicted: {lived}")
    program = lived.program
    search = _Search(program, budget)
    found = search.run()
    rows = tuple(_rows(program, found))
    changes = [one.technique for one in found]
    return Plan(
        peak.device,
        program.peak,
        lived.step,
        budget,
        rows[-1].bytes if rows else program.peak,
        rows,
        worst(changes),
        len(search.sizes),
        search.complete,
        lived.note,
    )


@dataclass(frozen=True, slots=True)
class _Made:
    """A technique beside those before it in a set."""

    technique: Technique
    change: Change


_Set = tuple[_Made, ...]


def _rows(program: Program, made: _Set) -> Iterator[Proposal]:
    """Each with the peak that it gives together with those before it."""
    before = program.peak
    for one in made:
        size, _ = program.replay(one.change.blocks)
        technique, change = one.technique, in_settings(program, one.technique.name, one.change)
        row = (change.frame, change.write, change.cost, technique.confidence)
        yield Proposal(technique.name, technique.free, size, before - size, *row)
        before = size


@dataclass(slots=True)
class _Search:
    program: Program
    budget: int
    complete: bool = True
    sizes: dict[tuple[str, ...], int] = field(default_factory=dict)  # of each set that was tried, its peak
    _best: tuple[int, int, _Set] | None = None  # of all that were tried: peak, number of changes, changes

    def run(self) -> _Set:
        """Those that fit, else those with the lowest peak."""
        if self.program.peak <= self.budget:
            return ()
        useful = [one for one in TECHNIQUES if not one.unread and self._acts(one)]
        for level in range(len(COSTS)):
            some = [one for one in useful if COSTS.index(one.costs) <= level]
            if len(some) and (found := self._smallest(some)) is not None:
                return found
        best = self._best
        return best[2] if best is not None and best[0] < self.program.peak else ()

    def _acts(self, technique: Technique) -> bool:
        """Whether it changes a block that is alive while there is more than the budget."""
        change = technique.rule(self.program, self.program.blocks, "")
        if isinstance(change, str):
            return False
        kept = {id(block) for block in change.blocks}
        above = list(_above(self.program, self.budget))
        gone = [block for block in self.program.blocks if id(block) not in kept]
        return any(block.birth < end and begin < block.end for block in gone for begin, end in above)

    def _smallest(self, some: Sequence[Technique]) -> _Set | None:
        greedy = self._greedy(some)
        most = len(some) if greedy is None else len(greedy)
        for number in range(1, most + 1):
            fitting = []
            for made, size in self._sets(some, number, (), self.program.blocks):
                if size <= self.budget:
                    fitting.append((size, made))
            if fitting:
                return min(fitting, key=lambda one: one[0])[1]
            if not self.complete:
                return greedy
        return greedy

    def _sets(
        self, some: Sequence[Technique], number: int, made: _Set, blocks: list[Block]
    ) -> Iterator[tuple[_Set, int]]:
        """All sets of so many, made in the order of the catalogue, as far as there is time for them."""
        for i, technique in enumerate(some[: len(some) - number + 1]):
            if (one := self._made(technique, made, blocks)) is None:
                continue
            more = (*made, one)
            if number > 1:
                yield from self._sets(some[i + 1 :], number - 1, more, one.change.blocks)
            elif (size := self._size(more)) is not None:
                yield more, size
            else:
                return

    def _greedy(self, some: Sequence[Technique]) -> _Set | None:
        """Always what lowers the peak most, until it fits; None: it does not."""
        chosen: list[Technique] = []
        size = self.program.peak
        while size > self.budget:
            found = []
            for one in some:
                wanted = sorted([*chosen, one], key=TECHNIQUES.index)
                made = self._all(wanted) if one not in chosen else None
                peak = self._size(made) if made is not None else None
                if made is not None and peak is not None:
                    found.append((peak, made))
            if not found:
                return None
            peak, made = min(found, key=lambda one: one[0])
            if peak >= size:
                return None
            size, chosen = peak, [one.technique for one in made]
        return self._all(chosen)

    def _all(self, wanted: Sequence[Technique]) -> _Set | None:
        made: _Set = ()
        blocks = self.program.blocks
        for technique in wanted:
            if (one := self._made(technique, made, blocks)) is None:
                return None
            made, blocks = (*made, one), one.change.blocks
        return made

    def _made(self, technique: Technique, before: _Set, blocks: list[Block]) -> _Made | None:
        if any(technique.excludes(one.technique) for one in before):
            return None
        change = technique.rule(self.program, blocks, "")
        return None if isinstance(change, str) else _Made(technique, change)

    def _size(self, made: _Set) -> int | None:
        """None: there is no time for it."""
        names = tuple(one.technique.name for one in made)
        if names in self.sizes:
            return self.sizes[names]
        if len(self.sizes) >= min(_SETS, max(64, _WORK // max(1, len(self.program.blocks)))):
            self.complete = False
            return None
        size, _ = self.program.replay(made[-1].change.blocks)
        self.sizes[names] = size
        if self._best is None or (size, len(made)) < self._best[:2]:
            self._best = size, len(made), made
        return size


def _above(program: Program, budget: int) -> Iterator[tuple[int, int]]:
    """Stretches in which there is more than that."""
    changes: dict[int, int] = {}
    for block in program.blocks:
        changes[block.birth] = changes.get(block.birth, 0) + block.bytes
        if block.end != FOREVER:
            changes[block.end] = changes.get(block.end, 0) - block.bytes
    size, begin = 0, None
    for position in sorted(changes):
        size += changes[position]
        if size > budget and begin is None:
            begin = position
        elif size <= budget and begin is not None:
            yield begin, position
            begin = None
    if begin is not None:
        yield begin, FOREVER
