"""Kernels beside the memory that waited for them, in words: the body of `cuptimem kernels`."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from cuptimem.output.text.blocks import CODE, FUNCTION, LINE, Block, Column, Table, Text
from cuptimem.output.text.ledger_views import prose, warning, where
from cuptimem.output.text.words import code, count, duration, function, plural, share, size
from cuptimem.report.kernels import DeferredFrees, Kernels, KernelTime, KernelUse, short_name

_Row = TypeVar("_Row")

_LINE = (LINE, FUNCTION, CODE)


def full(one: Kernels, top: int) -> list[Block]:
    """Where the time went; then the blocks that lived longer than they were used."""
    launched = f"{count(one.launches)} {'launch' if one.launches == 1 else 'launches'}"
    blocks: list[Block] = [
        Text(),
        Text(f"{launched}, {count(one.ran)} seen running, {_time(one.ns)} in all", "title"),
    ]
    if one.dropped:
        one_or_many = "launch has" if one.dropped == 1 else "launches have"
        blocks += warning(
            f"{count(one.dropped)} {one_or_many} no record of work: CUPTI lost it, or it only went into a CUDA graph"
        )
    if one.unlaunched:
        blocks += warning(f"{count(one.unlaunched)} of those that ran belong to no launch that was seen")
    if one.unrecorded:
        launches = "1 launch" if one.unrecorded == 1 else f"{count(one.unrecorded)} launches"
        blocks += prose(
            f"{launches} before CUPTI's records began, or with compacted ones: what became of them is not known.", "dim"
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
        groups = _alike(one.names, lambda name: name.short)
        timed = sorted(((sum(n.ns for n in group), sum(n.count for n in group), group) for group in groups), key=_most)
        rows = [
            (_time(ns), share(ns, one.ns), count(runs), _time(ns / max(1, runs)), _kernel(group))
            for ns, runs, group in timed[:top]
        ]
        blocks.append(Table(columns, tuple(rows)))
        left = one.names_total - sum(len(group) for _, _, group in timed[:top])
        if left:
            blocks.append(Text(f"  {plural(left, 'more kernel')} not shown (-n)", "dim"))
        if one.ran > one.launches:
            blocks += prose("A CUDA graph is one launch of many kernels.", "dim")
    blocks += _uses("Allocated long before their first kernel", "waited", one.early, top)
    blocks += _uses("Freed long after their last kernel", "lingered", one.late, top)
    long = duration(one.wait_least_ns)
    if one.names and not (one.early or one.late):
        blocks += [Text(), *prose(f"No block was there {long} before any kernel, or {long} after the last.")]
    elif one.early or one.late:
        blocks += [
            Text(),
            *prose(
                f"Long is {long} or more here. Any work on the device counts, for which blocks a kernel "
                "uses is not known: the first launch after the allocation, the last before the free.",
                "dim",
            ),
        ]
    return blocks + _deferred(one.deferred_frees, top)


def _time(ns: float) -> str:
    return f"{ns / 1000:.1f} µs" if ns < 1e6 else duration(round(ns))


def _alike(rows: Sequence[_Row], looks: Callable[[_Row], object]) -> list[list[_Row]]:
    """Those that would look the same, together."""
    groups: dict[object, list[_Row]] = {}
    for row in rows:
        groups.setdefault(looks(row), []).append(row)
    return list(groups.values())


def _most(row: tuple[int, int, object]) -> int:
    return -row[0]


def _kernel(group: Sequence[KernelTime]) -> str:
    """Templates of one name differ in arguments that are left out here."""
    return group[0].short if len(group) == 1 else f"{group[0].short}, {len(group)} of this name"


def _place(row: KernelUse | DeferredFrees) -> object:
    return row.stack_lost if row.frame is None else (row.frame.file, row.frame.line)


def _more(left: int) -> list[Block]:
    return [Text(f"  {plural(left, 'more line')} not shown (-n)", "dim")] if left > 0 else []


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
    groups = _alike(uses, _place)
    waits = sorted(
        ((sum(use.bytes for use in group), sum(use.count for use in group), group) for group in groups), key=_most
    )
    rows = []
    for total, blocks, group in waits[:top]:
        longest = max(group, key=lambda use: use.wait_ns)
        rows.append(
            (
                size(total),
                count(blocks),
                duration(longest.wait_ns),
                where(longest.frame, longest.stack_lost),
                function(longest.frame),
                short_name(longest.kernel) or "(not known)",
            )
        )
    return [Text(), Text(title, "title"), Table(columns, tuple(rows)), *_more(len(waits) - top)]


def _deferred(deferred: Sequence[DeferredFrees], top: int) -> list[Block]:
    if not deferred:
        return []
    columns = (
        Column("bytes", right=True, style="strong"),
        Column("blocks", right=True),
        Column("waited for stream"),
        *_LINE,
    )
    groups = _alike(deferred, lambda one: (_place(one), one.stream))
    largest = sorted(
        ((sum(one.bytes for one in group), sum(one.count for one in group), group[0]) for group in groups), key=_most
    )
    rows = [
        (
            size(total),
            count(blocks),
            f"{one.stream:#x}" if one.stream else "default",
            where(one.frame, one.stack_lost),
            function(one.frame),
            code(one.frame),
        )
        for total, blocks, one in largest[:top]
    ]
    table = Table(columns, tuple(rows))
    return [Text(), Text("Freed, and held by record_stream", "title"), table, *_more(len(largest) - top)]
