"""Live bytes over time by contributor, prepared for drawing: bounded, whatever the length of the recording.

Report.charts() asks the core for spans of the recording. Each span is divided into intervals of equal length (the last
may be shorter). Columns are array("q"): 64-bit integers, bytes or nanoseconds since the report's start.
"""

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cuptimem.report.brief import Brief

if TYPE_CHECKING:
    from cuptimem.report.model import Contributor

PHASES = ("other", "data", "forward", "backward", "optimizer")  # _core.PHASES; this module loads without the core
_END = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of the recording that is to be drawn, and how finely. end_ns None: to the end. device None: all."""

    begin_ns: int = 0
    end_ns: int | None = None
    intervals: int = 1024  # at most
    entries: int = 1 << 18  # at most, of Chart.entries
    blocks: int = 4096  # at most, of each kind in Chart
    device: str | None = None

    def row(self) -> tuple[int, int, int, int, int, str | None]:
        """As the core takes it."""
        end_ns = _END if self.end_ns is None else self.end_ns
        return self.begin_ns, end_ns, self.intervals, self.entries, self.blocks, self.device


@dataclass(frozen=True, slots=True, repr=False)
class Intervals(Brief):
    """A value for each interval of a chart.

    low, high: the fewest and the most live bytes. high_ns: when they were the most. reserved: the most that the
    allocator had, -1 unknown. allocated, freed: bytes. phases: allocations by phase, in the order of PHASES.
    """

    begin_ns: "array[int]"
    high_ns: "array[int]"
    low: "array[int]"
    high: "array[int]"
    reserved: "array[int]"
    allocated: "array[int]"
    freed: "array[int]"
    phases: "tuple[array[int], ...]"

    def _summary(self) -> str:
        return f"{len(self)}"

    def __len__(self) -> int:
        return len(self.begin_ns)


@dataclass(frozen=True, slots=True, repr=False)
class Entries(Brief):
    """A row for each contributor and interval in which it changed; sorted by contributor, then interval.

    high: the contributor's live bytes when the device had most in that interval (Intervals.high_ns). end: at the
    interval's end; that is what it has in later intervals, up to its next row. allocated, freed: bytes in the interval.
    A contributor has 0, or is part of the rest, before its first row. At every interval the contributors' bytes
    and the rest sum to Intervals.high: the rest is what is left.
    """

    contributor: "array[int]"
    interval: "array[int]"
    high: "array[int]"
    end: "array[int]"
    allocated: "array[int]"
    freed: "array[int]"

    def _summary(self) -> str:
        return f"{len(self.contributor)}"


@dataclass(frozen=True, slots=True, repr=False)
class Blocks(Brief):
    """Single allocations, by the time of their birth.

    begin_ns: -1 where the block was there before the span's recording. end_ns: -1 where it was alive at the
    recording's end. step, end_step: steps of birth and death, -1: none. contributor: index in Chart.contributors.
    """

    address: "array[int]"
    bytes: "array[int]"
    begin_ns: "array[int]"
    end_ns: "array[int]"
    contributor: "array[int]"
    step: "array[int]"
    end_step: "array[int]"

    def _summary(self) -> str:
        return f"{len(self)}"

    def __len__(self) -> int:
        return len(self.address)


@dataclass(frozen=True, slots=True, repr=False)
class Chart(Brief):
    """One device in one span.

    contributors: those with a row in entries or blocks; `bytes` is the most that each had at an interval's high,
    `count` the blocks that it made in the span. hidden: contributors that never had more than these bytes may be in the
    rest. blocks: all blocks of at least `least_block` bytes that were alive in the span, and all of at least
    `least_survivor` that were made in the recording and alive at its end; of those with a byte less, which are too
    many, a sample that is spread over time.
    """

    device: str
    span: int  # its number among those that were asked for
    begin_ns: int
    end_ns: int
    intervals: Intervals
    contributors: "tuple[Contributor, ...]"
    entries: Entries
    hidden: int
    blocks: Blocks
    least_block: int
    least_survivor: int

    def _summary(self) -> str:
        return f"{self.device}: {len(self.intervals)} intervals of {len(self.contributors)} contributors"

    def rest(self) -> "array[int]":
        """Bytes of no contributor at each interval's high."""
        left = array("q", self.intervals.high)
        rows = self.entries
        place, count = 0, len(rows.contributor)
        while place < count:
            contributor = rows.contributor[place]
            while place < count and rows.contributor[place] == contributor:
                interval = rows.interval[place]
                left[interval] -= rows.high[place]
                last = place + 1 < count and rows.contributor[place + 1] == contributor
                until = rows.interval[place + 1] if last else len(left)
                for later in range(interval + 1, until):
                    left[later] -= rows.end[place]
                place += 1
        return left
