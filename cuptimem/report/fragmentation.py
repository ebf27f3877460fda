"""Memory that PyTorch's allocator has and cannot give out, as plain frozen data. Sizes are bytes, None is unknown."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cuptimem.errors import Error
from cuptimem.report.brief import Brief
from cuptimem.report.ledger import chosen
from cuptimem.report.stacks import Frame, Stack, user_frame
from cuptimem.words import size

if TYPE_CHECKING:
    from cuptimem.report.model import Report

MOMENTS = ("oom", "peak", "end")
SEGMENTS = 20  # that are listed at most (csrc/analysis/ledger.h)
SEGMENT_PINS = 8  # and stacks of each

# PyTorch's caching allocator: requests up to the one size take a segment of the other; larger ones are rounded.
_SMALL, _SMALL_SEGMENT = 1 << 20, 2 << 20
_LARGE, _LARGE_SEGMENT, _ROUND = 10 << 20, 20 << 20, 2 << 20


@dataclass(frozen=True, slots=True, repr=False)
class SegmentPin(Brief):
    """Blocks of one stack in one segment, which it cannot be given back without."""

    bytes: int
    count: int
    pinned: int  # of the segment, what they keep: all of it, of an expandable one the handles that they lie in
    stack: Stack
    stack_lost: bool = False

    @property
    def frame(self) -> Frame | None:
        """The user's line: see stacks.user_frame."""
        return user_frame(self.stack)


@dataclass(frozen=True, slots=True, repr=False)
class Range(Brief):
    """Addresses of an expandable segment with memory, and none in between without."""

    address: int
    size: int
    allocated: int
    largest_free: int


@dataclass(frozen=True, slots=True, repr=False)
class PinnedSegment(Brief):
    """Memory that PyTorch's allocator took from CUDA, partly in use: one cudaMalloc, or an expandable segment."""

    address: int
    size: int  # of memory
    allocated: int
    largest_free: int
    expandable: bool  # memory is mapped into it piece by piece
    addresses: int | None  # reserved for an expandable one; None: not known
    unmapped: int  # bytes of addresses between its ranges, without memory
    ranges_total: int
    ranges: tuple[Range, ...]  # of an expandable one, by address, at most a hundred
    pins: tuple[SegmentPin, ...]  # the most bytes first, at most eight


@dataclass(frozen=True, slots=True, repr=False)
class Pin(Brief):
    """What the blocks of one stack keep from being given back."""

    bytes: int  # their own
    count: int
    pinned: int  # of the partly used segments (of expandable ones: handles) that they lie in, each once
    segments: int
    stack: Stack
    stack_lost: bool = False

    @property
    def frame(self) -> Frame | None:
        """The user's line: see stacks.user_frame."""
        return user_frame(self.stack)


@dataclass(frozen=True, slots=True, repr=False)
class Fragmentation(Brief):
    """Reserved against allocated on one device at one moment."""

    device: str
    what: str  # "peak", "oom", "end"
    time_ns: int
    reserved: int
    allocated: int  # in blocks
    requested: int  # of that, asked for
    asked: int | None  # by the request that was refused; None but for "oom"
    too_small: int | None  # of `unused`, in pieces smaller than that; None but for "oom"
    largest_free_block: int  # in one segment
    free_on_device: int | None  # at the last quiet moment, with what this process took and gave back since
    largest_request: int | None  # that one with empty_cache_returns, or the largest free block: what would be served
    empty_cache_returns: int  # in segments without a live block
    expandable_returns: int  # the same were all segments expandable: free pages of partly used ones, too
    segments_total: int  # all of them
    segments: tuple[PinnedSegment, ...]  # the partly used ones with the most free bytes, at most twenty
    pins: tuple[Pin, ...]  # the most pinned bytes first, at most fifty

    def _summary(self) -> str:
        asked = "" if self.asked is None else f", {size(self.asked)} refused"
        sizes = f"{size(self.unused)} unused of {size(self.reserved)} reserved"
        return f"{self.device} at {self.what}: {sizes} in {self.segments_total} segments{asked}"

    @property
    def unused(self) -> int:
        """Reserved, and in no block."""
        return self.reserved - self.allocated

    @property
    def needed(self) -> int | None:
        """The segment that the refused request needs of the device, as PyTorch sizes it; None but for "oom"."""
        if self.asked is None:
            return None
        if self.asked <= _SMALL:
            return _SMALL_SEGMENT
        return _LARGE_SEGMENT if self.asked < _LARGE else -(-self.asked // _ROUND) * _ROUND

    @property
    def lacked(self) -> int | None:
        """What the device had too little for that, its cache emptied: 0 where it had enough. None: not known."""
        if self.needed is None or self.free_on_device is None:
            return None
        return max(0, self.needed - self.free_on_device - self.empty_cache_returns)


def ordered(rows: Iterable[Fragmentation]) -> tuple[Fragmentation, ...]:
    """The device with the most unused bytes first, and of each the moments in the order of MOMENTS."""
    every = tuple(rows)
    unused: dict[str, int] = {}
    for row in every:
        unused[row.device] = max(row.unused, unused.get(row.device, 0))
    return tuple(sorted(every, key=lambda row: (-unused[row.device], row.device, MOMENTS.index(row.what), row.time_ns)))


def pick(report: "Report", device: str | None, at: str | None) -> Fragmentation:
    """The one of a device and moment. Raises Error, with what there is, where there is none."""
    rows = report.fragmentations
    if not rows:
        raise Error(
            "no fragmentation in this recording: PyTorch kept no segments of a device (on the CPU, with "
            "cudaMallocAsync and without caching it has none)"
        )
    name = rows[0].device if device is None else chosen(rows, device, lambda row: row.device, "fragmentation").device
    rows = tuple(row for row in rows if row.device == name)
    for row in rows:
        if at in (None, row.what):
            return row
    there = ", ".join(dict.fromkeys(row.what for row in rows))
    raise Error(f"no fragmentation of {name} at {at!r} in this recording (there: {there})")
