"""Random programs of blocks, and a plain account of them: every block that ever was and every change, added up anew for
each answer. Slow, and nothing like the analysis."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from craft import CUDA, GRAIN, SEEDED, STEP, Trace
from hypothesis import strategies as st

from tests.event_kinds import ALLOC, FREE, SEED, TICK

STACKS = 6
LAST = (1 << 64) - 1
ADDRESSES = st.integers(1, 10).map(lambda n: n * 64)
SEEDS = st.dictionaries(ADDRESSES, st.integers(1, 999), max_size=4)
Sums = dict[int | None, tuple[int, int]]  # of a stack: bytes, blocks; None: what was there before
Shares = Counter[int | None]  # bytes

_DEVICES = st.sampled_from([(0, -1), (0, -1), (CUDA, 0)])
_AFTER = st.sampled_from([GRAIN, GRAIN, 5 * GRAIN, 40 * GRAIN])
_ALLOC = st.tuples(st.just(ALLOC), ADDRESSES, st.integers(1, 999), st.integers(0, STACKS - 1), _DEVICES, _AFTER)
_FREE = st.tuples(st.just(FREE), ADDRESSES, st.just(0), st.just(0), _DEVICES, _AFTER)
_TICK = st.tuples(st.just(TICK), st.just(1), st.just(STEP), st.just(0), st.just((0, -1)), _AFTER)
OPERATION = st.one_of(_ALLOC, _ALLOC, _FREE, _TICK)
Operation = tuple[int, int, int, int, tuple[int, int], int]


@dataclass
class Block:
    address: int
    size: int
    stack: int | None  # None: there before
    begin: int
    step: int  # 0: before the first
    end: int = -1
    end_step: int | None = None


@dataclass
class Heap:
    """One device."""

    live: dict[int, Block] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)
    changes: list[tuple[int, Block, int]] = field(default_factory=list)  # time, block, bytes
    ticks: list[int] = field(default_factory=list)  # times, of all devices
    first_step: int | None = None  # from 0: of its first block
    replaced: int = 0
    unknown: int = 0  # frees of nothing

    @property
    def total(self) -> int:
        return sum(block.size for block in self.live.values())

    def born(self, time: int, address: int, size: int, stack: int | None) -> None:
        step = 0 if stack is None else len(self.ticks) + 1
        self.replaced += self.died(time, address)
        self.live[address] = Block(address, size, stack, time, step)
        self.blocks.append(self.live[address])
        self.changes.append((time, self.live[address], size))
        if self.first_step is None:
            self.first_step = len(self.ticks)

    def died(self, time: int, address: int) -> bool:
        block = self.live.pop(address, None)
        if block is not None:
            block.end, block.end_step = time, len(self.ticks) + 1
            self.changes.append((time, block, -block.size))
        return block is not None

    def within(self, begin: int, end: int) -> list[int]:
        """Bytes of the changes of times begin to end - 1."""
        return [size for time, _, size in self.changes if begin <= time < end]

    def highest(
        self, begin: int = 0, end: int = LAST, of: Callable[[Block], bool] = lambda block: True
    ) -> tuple[int, int, int, Shares, Shares]:
        """Of times begin to end - 1: lowest and highest live bytes, when, by stack then and at the end."""
        shares = Shares()
        changes = [change for change in self.changes if of(change[1])]
        for time, block, size in changes:
            if time < begin:
                shares[block.stack] += size
        low = high = sum(shares.values())
        when, at_high = begin, Shares(shares)
        for time, block, size in changes:
            if begin <= time < end:
                shares[block.stack] += size
                low = min(low, sum(shares.values()))
                if sum(shares.values()) > high:
                    high, when, at_high = sum(shares.values()), time, Shares(shares)
        return low, high, when, +at_high, +shares


def sums(blocks: Iterable[Block]) -> Sums:
    size, number = Shares(), Shares()
    for block in blocks:
        size[block.stack] += block.size
        number[block.stack] += 1
    return {stack: (size[stack], number[stack]) for stack in size}


def sums_of_rows(rows: list[tuple[Any, ...]]) -> Sums:
    """The same of contributors."""
    size, number = Shares(), Shares()
    for bytes_, count, stack, _, phase, *_ in rows:
        key = None if phase == "before start" else stack
        size[key] += bytes_
        number[key] += count
    return {stack: (size[stack], number[stack]) for stack in size}


def play(trace: Trace, operations: Iterable[Operation], seeds: dict[int, int]) -> dict[str, Heap]:
    """Writes them to the trace; what each device had."""
    ticks: list[int] = []
    heaps = {name: Heap(ticks=ticks) for name in ("cpu", "cuda:0")}
    for address, size in seeds.items():
        trace.add(SEED, address, size)
        heaps["cpu"].born(-1, address, size, None)
    trace.mark(SEEDED)
    for kind, address, size, line, (device_type, index), after in operations:
        trace.add(kind, address, size, trace.line(line), device=device_type, index=index, after=after)
        heap = heaps["cpu" if device_type == 0 else "cuda:0"]
        if kind == TICK:  # the first one ends step 0, which begins with the recording
            ticks.append(trace.elapsed)
        elif kind == ALLOC:
            heap.born(trace.elapsed, address, size, trace.line(line))
        else:
            heap.unknown += not heap.died(trace.elapsed, address)
    return heaps
