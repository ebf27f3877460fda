"""Kernels beside the memory that waited for them, in words: the body of `cuptimem kernels`."""

from collections.abc import Sequence

from cuptimem.kernels import HeldBlocks, Kernels, KernelUse, short_name
from cuptimem.reporters.blocks import Block, Column, Table, Text
from cuptimem.reporters.ledger_views import prose, warning, where
from cuptimem.reporters.words import code, count, duration, function, plural, share, size

_LINE = (
    Column("line", flexible=True, keep_end=True),
    Column("function", flexible=True, optional=True),
    Column("code", flexible=True, optional=True, style="dim"),
)


def full(one: Kernels, top: int) -> list[Block]:
    """Where the time went; then the blocks that lived longer than they were used."""
    total = sum(name.ns for name in one.names)
    launched = f"{count(one.launches)} {'launch' if one.launches == 1 else 'launches'}"
    blocks: list[Block] = [
        Text(),
        Text(f"{launched}, {count(one.ran)} seen running, {_time(total)} in all", "title"),
    ]
    if one.dropped:
        if one.dropped == 1:
            blocks += warning("1 launch has no record of its work: when it ran is not known")
        else:
            blocks += warning(f"{count(one.dropped)} launches have no record of their work: when it ran is not known")
    if one.unlaunched:
        blocks += warning(f"{count(one.unlaunched)} of those that ran belong to no launch that was seen")
    if one.unrecorded:
        launches = "1 launch" if one.unrecorded == 1 else f"{count(one.unrecorded)} launches"
        blocks += prose(
            f"{launches} before CUPTI's records began, or with folded ones: what became of them is not known.", "dim"
        )
    if one.unjudged:
        blocks += warning(f"{plural(one.unjudged, 'block')} not judged: too many waited for records at a time")
    if one.names:
        columns = (
            Column("time", right=True, style="strong"),
            Column("share", right=True),
            Column("runs", right=True),
            Column("mean", right=True),
            Column("kernel", flexible=True),
        )
        rows = [
            (_time(n.ns), share(n.ns, total), count(n.count), _time(n.ns / max(1, n.count)), n.short)
            for n in one.names[:top]
        ]
        blocks.append(Table(columns, tuple(rows)))
        if len(one.names) > top:
            blocks.append(Text(f"  {plural(len(one.names) - top, 'more kernel')} not shown (-n)", "dim"))
    blocks += _uses("Allocated long before their first kernel", "waited", one.early, top)
    blocks += _uses("Freed long after their last kernel", "lingered", one.late, top)
    long = duration(one.wait_least_ns)
    if one.names and not (one.early or one.late):
        blocks += [Text(), *prose(f"No block was there {long} before any kernel, or {long} after the last.")]
    elif one.early or one.late:
        blocks += [
            Text(),
            *prose(
                f"Long is {long} or more here. Any work on the device counts, for nobody tells which blocks a kernel "
                "uses: the first launch after the allocation, the last before the free.",
                "dim",
            ),
        ]
    return blocks + _held(one.held, top)


def _time(ns: float) -> str:
    return f"{ns / 1000:.1f} µs" if ns < 1e6 else duration(round(ns))


def _uses(title: str, word: str, uses: Sequence[KernelUse], top: int) -> list[Block]:
    if not uses:
        return []
    columns = (
        Column("bytes", right=True, style="strong"),
        Column("blocks", right=True),
        Column(word, right=True),
        *_LINE[:2],
        Column("kernel", flexible=True),
    )
    rows = [
        (
            size(use.bytes),
            count(use.count),
            duration(use.wait_ns),
            where(use.frame, use.stack_lost),
            function(use.frame),
            short_name(use.kernel) or "(not known)",
        )
        for use in uses[:top]
    ]
    return [Text(), Text(title, "title"), Table(columns, tuple(rows))]


def _held(held: Sequence[HeldBlocks], top: int) -> list[Block]:
    if not held:
        return []
    columns = (
        Column("bytes", right=True, style="strong"),
        Column("blocks", right=True),
        Column("waited for stream"),
        *_LINE,
    )
    rows = [
        (
            size(one.bytes),
            count(one.count),
            f"{one.stream:#x}",
            where(one.frame, one.stack_lost),
            function(one.frame),
            code(one.frame),
        )
        for one in held[:top]
    ]
    return [Text(), Text("Freed, and held by record_stream", "title"), Table(columns, tuple(rows))]
