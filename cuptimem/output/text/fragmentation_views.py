"""What PyTorch's allocator has and cannot give out, in words: the body of `cuptimem fragmentation`."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from cuptimem.output.text.blocks import CODE, FUNCTION, LINE, Block, Column, Table, Text
from cuptimem.output.text.ledger_views import prose, where
from cuptimem.output.text.words import code, count, duration, function, plural, share, size
from cuptimem.report.fragmentation import SEGMENT_PINS, SEGMENTS, Fragmentation, Pin, PinnedSegment, SegmentPin
from cuptimem.report.stacks import Frame

MOMENTS = {"oom": "when it refused", "peak": "at its most reserved", "end": "at the end"}


def full(rows: Sequence[Fragmentation], top: int, torch: str) -> list[Block]:
    """One after the other: the account, what keeps memory, where it lies. torch: its version, for the advice."""
    blocks: list[Block] = []
    for one in rows:
        blocks += [Text(), Text(_headline(one), "title"), *_account(one, variable(torch))]
        blocks += _pins(_kept(one), top)
        blocks += _segments(one, top)
        blocks += _expandable(one, top)
    return blocks


def _headline(one: Fragmentation) -> str:
    unused = f"{size(one.unused)} of {size(one.reserved)} reserved are in no block"
    return f"{one.device} {MOMENTS[one.what]}, {duration(one.time_ns)} after the start: {unused}"


def variable(torch: str) -> str:
    """What settings of the allocator are read from. 2.9 reads only part of them from the newer name."""
    version = re.match(r"(\d{1,9})\.(\d{1,9})", torch)
    old = version is not None and (int(version[1]), int(version[2])) < (2, 12)
    return "PYTORCH_CUDA_ALLOC_CONF" if old else "PYTORCH_ALLOC_CONF"


def _account(one: Fragmentation, variable: str) -> list[Block]:
    blocks: list[Block] = []
    if one.asked is not None:
        blocks += [Text(f"  asked for and refused   {size(one.asked):>11}", "warning")]
    unknown = "not known, for the device was not asked before"
    free = unknown if one.free_on_device is None else size(one.free_on_device)
    largest = "not known" if one.largest_request is None else size(one.largest_request)
    rounded = one.allocated - one.requested
    rounding = [("of that rounding", size(rounded), share(rounded, one.reserved))] if rounded else []
    rows = (
        ("in blocks", size(one.allocated), share(one.allocated, one.reserved)),
        *rounding,
        ("in no block", size(one.unused), share(one.unused, one.reserved)),
        ("largest piece of that", size(one.largest_free_block), share(one.largest_free_block, one.reserved)),
        ("free on the device", free, ""),
        ("largest request to fit", largest, ""),
    )
    blocks += [Text(f"  {name:<23} {value:>11}  {part:>5}".rstrip()) for name, value, part in rows]
    return blocks + _advice(one, variable)


def _advice(one: Fragmentation, variable: str) -> list[Block]:
    """What would come back, and by what."""
    said = []
    if one.empty_cache_returns:
        said.append(f"torch.cuda.empty_cache() would return {size(one.empty_cache_returns)}")
    if one.expandable_returns > one.empty_cache_returns:
        instead = ", with" if said else "torch.cuda.empty_cache() would return nothing; with"
        said.append(
            f"{instead} expandable segments {size(one.expandable_returns)} ({variable}=expandable_segments:True)"
        )
    if one.unused and not said:
        said.append("Nothing of that would come back: in every piece lies a block")
    blocks = prose("".join(said) + ".") if said else []
    if one.asked is None or one.free_on_device is None or one.largest_request is None:
        return blocks
    free = size(one.unused + one.free_on_device)
    if one.asked > one.unused + one.free_on_device:
        return blocks + prose(f"Only {free} were free in all: with no fragmentation it would have failed, too.")
    lacked = one.asked - one.largest_request
    if lacked > 0:
        return blocks + prose(
            f"Enough was free, {free} in all, but {size(lacked)} too little in one piece: fragmentation is what failed "
            "it."
        )
    return blocks + prose(f"Enough was free, {free} in all, as far as was seen: why it failed is not known.")


class _Kept(NamedTuple):
    """What the blocks of one line keep."""

    pinned: int
    bytes: int
    segments: int
    least: bool  # it may be more: not all of its segments are known
    frame: Frame | None
    stack_lost: bool


def _place(pin: Pin | SegmentPin) -> object:
    return pin.stack_lost if pin.frame is None else (pin.frame.file, pin.frame.line)


def _kept(one: Fragmentation) -> list[_Kept]:
    """By user line. A segment counts once for each, however many stacks of that line have blocks in it."""
    groups: dict[object, list[Pin]] = {}
    for pin in one.pins:
        groups.setdefault(_place(pin), []).append(pin)
    rows = []
    for place, pins in groups.items():
        listed = [segment for segment in one.segments if any(_place(pin) == place for pin in segment.pins)]
        pinned, segments, least = pins[0].pinned, pins[0].segments, False
        if len(pins) > 1:
            least = any(
                pin.segments != sum(any(part.stack == pin.stack for part in segment.pins) for segment in listed)
                for pin in pins
            )
            inside = [[pin.pinned for pin in segment.pins if _place(pin) == place] for segment in listed]
            # Of an expandable one: stacks of one line may keep the same handles, or others.
            least = least or any(
                segment.expandable and len(kept) > 1 for segment, kept in zip(listed, inside, strict=True)
            )
            pinned = max(sum(map(max, inside)), *(pin.pinned for pin in pins))
            segments = max(len(listed), *(pin.segments for pin in pins))
        own = sum(pin.bytes for pin in pins)
        rows.append(_Kept(pinned, own, segments, least, pins[0].frame, pins[0].stack_lost))
    return sorted(rows, key=lambda row: -row.pinned)


def _pins(pins: Sequence[_Kept], top: int) -> list[Block]:
    """The lines whose blocks keep segments from going back."""
    if not pins:
        return []
    rows = [
        (
            _at_least(pin.least) + size(pin.pinned),
            size(pin.bytes),
            _at_least(pin.least) + count(pin.segments),
            where(pin.frame, pin.stack_lost),
            function(pin.frame),
            code(pin.frame),
        )
        for pin in pins[:top]
    ]
    columns = (
        Column("keeps", right=True, style="strong"),
        Column("by own", right=True),
        Column("segments", right=True),
        LINE,
        FUNCTION,
        CODE,
    )
    blocks: list[Block] = [
        Text(),
        Text("What keeps segments from going back (a segment counts for each line in it)", "title"),
        Table(columns, tuple(rows)),
    ]
    if any(pin.least for pin in pins[:top]):
        blocks += prose(
            f"≥: at least. Of each segment the {SEGMENT_PINS} stacks with the most bytes are known, of no more "
            f"than {SEGMENTS} segments.",
            "dim",
        )
    if len(pins) > top:
        blocks.append(Text(f"  {plural(len(pins) - top, 'more line')} not shown (-n)", "dim"))
    return blocks


def _at_least(least: bool) -> str:
    return "≥ " if least else ""


def _segments(one: Fragmentation, top: int) -> list[Block]:
    if not one.segments:
        return []

    cells: dict[tuple[str, ...], int] = {}
    for segment in one.segments:
        pin = max(segment.pins, key=lambda pin: pin.bytes, default=None)
        blocks = sum(pin.count for pin in segment.pins)
        lines = len({_place(pin) for pin in segment.pins})
        more = f" +{lines - 1}" if lines > 1 else ""
        row = (
            size(segment.size - segment.allocated),
            size(segment.size),
            size(segment.largest_free),
            _at_least(len(segment.pins) >= SEGMENT_PINS) + count(blocks),
            "(no block)" if pin is None else where(pin.frame, pin.stack_lost) + more,
            "" if pin is None else function(pin.frame),
        )
        cells[row] = cells.get(row, 0) + 1
    rows = [(f"{count(number)} x", *row) for row, number in list(cells.items())[:top]]
    columns = (
        Column("", right=True),
        Column("unused", right=True, style="strong"),
        Column("of", right=True),
        Column("in one piece", right=True, optional=1),
        Column("blocks", right=True, optional=2),
        Column("lines", flexible=True, keep_end=True),
        FUNCTION,
    )
    title = f"Segments with the most unused bytes, of {count(one.segments_total)}"
    return [Text(), Text(title, "title"), Table(columns, tuple(rows))]


def _expandable(one: Fragmentation, top: int) -> list[Block]:
    """Where memory is mapped in the expandable ones, and where not."""
    segments = [segment for segment in one.segments if segment.expandable]
    if not segments:
        return []
    rows = [
        (
            hex(segment.address),
            "not known" if segment.addresses is None else size(segment.addresses),
            size(segment.size),
            size(segment.size - segment.allocated),
            count(segment.ranges_total - 1),
            size(segment.unmapped),
            picture(segment),
        )
        for segment in segments[:top]
    ]
    columns = (
        Column("at", optional=1),
        Column("addresses", right=True),
        Column("mapped", right=True, style="strong"),
        Column("unused", right=True),
        Column("gaps", right=True),
        Column("of", right=True),
        Column("memory #, none ., both +", flexible=True),
    )
    return [Text(), Text("Expandable segments, as memory is mapped into them", "title"), Table(columns, tuple(rows))]


def picture(segment: PinnedSegment, width: int = 24) -> str:
    """Its addresses to scale, from the first range to the last that is known."""
    ranges = [(one.address - segment.address, one.address + one.size - segment.address) for one in segment.ranges]
    whole = max((end for _, end in ranges), default=0)
    # A cell is `whole` units of a byte's width-th part.
    cells = [0] * width
    for begin, end in ranges:
        for i in range(begin * width // whole, min(width, -(-end * width // whole))):
            cells[i] += min(end * width, (i + 1) * whole) - max(begin * width, i * whole)
    drawn = "".join("#" if cell >= whole else "+" if cell else "." for cell in cells)
    return drawn + ("…" if segment.ranges_total > len(segment.ranges) else "")
