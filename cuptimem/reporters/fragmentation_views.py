"""What PyTorch's allocator has and cannot give out, in words: the body of `cuptimem fragmentation`."""

from collections.abc import Sequence

from cuptimem.fragmentation import Fragmentation, Pin, PinnedSegment, SegmentPin
from cuptimem.reporters.blocks import Block, Column, Table, Text
from cuptimem.reporters.ledger_views import prose, where
from cuptimem.reporters.words import code, count, duration, function, plural, share, size

_MOMENTS = {"oom": "when it refused", "peak": "at its most reserved", "end": "at the end"}


def full(rows: Sequence[Fragmentation], top: int) -> list[Block]:
    """One after the other: the account, what keeps memory, where it lies."""
    blocks: list[Block] = []
    for one in rows:
        blocks += [Text(), Text(_headline(one), "title"), *_account(one)]
        blocks += _pins(one.pins, top)
        blocks += _segments(one, top)
    return blocks


def _headline(one: Fragmentation) -> str:
    unused = f"{size(one.unused)} of {size(one.reserved)} reserved are in no block"
    return f"{one.device} {_MOMENTS[one.what]}, {duration(one.time_ns)} after the start: {unused}"


def _account(one: Fragmentation) -> list[Block]:
    blocks: list[Block] = []
    if one.asked is not None:
        blocks += [Text(f"  asked for and refused   {size(one.asked):>11}", "warning")]
    free = "not known" if one.free_on_device is None else size(one.free_on_device)
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
    return blocks + _advice(one)


def _advice(one: Fragmentation) -> list[Block]:
    """What would come back, and by what."""
    said = []
    if one.empty_cache_returns:
        said.append(f"torch.cuda.empty_cache() would return {size(one.empty_cache_returns)}")
    if one.expandable_returns > one.empty_cache_returns:
        instead = ", with" if said else "torch.cuda.empty_cache() would return nothing; with"
        said.append(
            f"{instead} expandable segments {size(one.expandable_returns)} "
            "(PYTORCH_ALLOC_CONF=expandable_segments:True)"
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


def _pins(pins: Sequence[Pin], top: int) -> list[Block]:
    """The lines whose blocks keep segments from going back."""
    if not pins:
        return []
    rows = [
        (
            size(pin.pinned),
            size(pin.bytes),
            count(pin.segments),
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
        Column("line", flexible=True, keep_end=True),
        Column("function", flexible=True, optional=True),
        Column("code", flexible=True, optional=True, style="dim"),
    )
    blocks: list[Block] = [
        Text(),
        Text("What keeps segments from going back (a segment counts for each line in it)", "title"),
        Table(columns, tuple(rows)),
    ]
    if len(pins) > top:
        blocks.append(Text(f"  {plural(len(pins) - top, 'more line')} not shown (-n)", "dim"))
    return blocks


def _segments(one: Fragmentation, top: int) -> list[Block]:
    if not one.segments:
        return []

    def pinned(segment: PinnedSegment) -> SegmentPin | None:
        return max(segment.pins, key=lambda pin: pin.bytes, default=None)

    cells: dict[tuple[str, ...], int] = {}
    for segment in one.segments:
        pin = pinned(segment)
        blocks = sum(pin.count for pin in segment.pins)
        more = f" +{len(segment.pins) - 1}" if len(segment.pins) > 1 else ""
        row = (
            size(segment.size - segment.allocated),
            size(segment.size),
            size(segment.largest_free),
            count(blocks),
            "(no block)" if pin is None else where(pin.frame, pin.stack_lost) + more,
            "" if pin is None else function(pin.frame),
        )
        cells[row] = cells.get(row, 0) + 1
    rows = [(f"{count(number)} x", *row) for row, number in list(cells.items())[:top]]
    columns = (
        Column("", right=True),
        Column("unused", right=True, style="strong"),
        Column("of", right=True),
        Column("in one piece", right=True),
        Column("blocks", right=True),
        Column("lines", flexible=True, keep_end=True),
        Column("function", flexible=True, optional=True),
    )
    title = f"Segments with the most unused bytes, of {count(one.segments_total)}"
    return [Text(), Text(title, "title"), Table(columns, tuple(rows))]
