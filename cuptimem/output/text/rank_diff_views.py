"""Two recordings of a job on one screen: which ranks changed, and at which lines."""

from collections.abc import Iterable

from cuptimem.distributed.changes import Pair, RankChange, RanksDiff
from cuptimem.distributed.comparison import peak
from cuptimem.distributed.summary import RankSummary
from cuptimem.output.text import rank_views
from cuptimem.output.text.blocks import CODE, LINE, Block, Column, Table, Text
from cuptimem.output.text.words import plural, share, signed, size
from cuptimem.printable import printable

TOP = 16  # rows of the table
_EXPLAINED = 8  # changes
_LINES = 6  # of a change


def full(diff: RanksDiff, failed: Iterable[tuple[str, str]], top: int = TOP, lines: int = _LINES) -> list[Block]:
    blocks: list[Block] = [Text(title(diff), "title")]
    if diff.pairs:
        blocks += [Text(), table(diff, top)]
    if (left := len(diff.pairs) - top) > 0:
        blocks.append(Text(f"  {plural(left, 'more rank')}: --top", "dim"))
    for change in diff.changes[:_EXPLAINED]:
        blocks += [Text(), *_change(diff, change, lines)]
    if left := sum(len(one.ranks) for one in diff.changes[_EXPLAINED:]):
        blocks += [Text(), Text(f"{plural(left, 'more rank')} changed in other ways", "dim")]
    if not diff.changes and both(diff):
        blocks += [Text(), Text("The peak of no rank has changed by more than 1 %.")]
    return [*blocks, *_leaks(diff), *_apart(diff, failed)]


def both(diff: RanksDiff) -> list[Pair]:
    """The ranks that are in both."""
    return [pair for pair in diff.pairs if pair.before is not None and pair.after is not None]


def title(diff: RanksDiff) -> str:
    sides = [[one for one in side if one is not None] for side in _sides(diff)]
    if not diff.pairs:
        return "No rank is known in either"
    said = [
        f"{plural(len(side), 'rank')} {'of ' + printable(side[0].title) + ', ' if side else ''}"
        f"the fullest {size(max(map(peak, side), default=0))}"
        for side in sides
    ]
    return f"before: {said[0]}; after: {said[1]}"


def _sides(diff: RanksDiff) -> tuple[list[RankSummary | None], list[RankSummary | None]]:
    return [pair.before for pair in diff.pairs], [pair.after for pair in diff.pairs]


def order(diff: RanksDiff) -> list[Pair]:
    """What changed most first."""
    return sorted(diff.pairs, key=lambda pair: (-abs(pair.more), pair.rank))


def table(diff: RanksDiff, top: int) -> Table:
    columns = (
        Column("rank", right=True),
        Column("device", optional=3),
        Column("before", right=True),
        Column("after", right=True),
        Column("change", right=True, style="strong"),
        Column("at end before", right=True, optional=1),
        Column("after", right=True, optional=1),
        Column("process before", right=True, optional=2),
        Column("after", right=True, optional=2),
    )
    return Table(columns, tuple(row(pair) for pair in order(diff)[:top]))


def row(pair: Pair) -> tuple[str, ...]:
    sides = (pair.before, pair.after)
    devices = dict.fromkeys(one.own.name for one in sides if one is not None and one.own is not None)
    ends = ["" if one is None else size(0 if one.own is None else one.own.end) for one in sides]
    processes = ["" if one is None or one.resident is None else size(one.resident) for one in sides]
    return (
        str(pair.rank),
        ", ".join(devices),
        *("" if one is None else size(peak(one)) for one in sides),
        signed(pair.more) if pair.more else "",
        *ends,
        *processes,
    )


def ranks_of(diff: RanksDiff, ranks: Iterable[int]) -> str:
    chosen = sorted(ranks)
    return "every rank" if len(chosen) == len(both(diff)) > 1 else rank_views.named([str(rank) for rank in chosen])


def heading(diff: RanksDiff, change: RankChange) -> str:
    before = next(pair.before for pair in diff.pairs if pair.rank == change.ranks[0])
    was = 0 if before is None else peak(before)
    part = f" ({share(abs(change.bytes), was)})" if was and change.bytes else ""
    about = "about " if len(change.ranks) > 1 else ""
    said = f"{about}{signed(change.bytes)}{part}" if change.bytes else "as high, of something else"
    return f"{ranks_of(diff, change.ranks)}: {said}"


def rows(diff: RanksDiff, change: RankChange, most: int) -> list[tuple[str, ...]]:
    pair = next(pair for pair in diff.pairs if pair.rank == change.ranks[0])
    known = [one.own.peak.code for one in (pair.before, pair.after) if one is not None and one.own is not None]
    code = {line: text for some in known for line, text in some.items()}
    return [
        (signed(one.more), size(one.before), size(one.after), printable(one.name), printable(code.get(one.name, "")))
        for one in change.lines[:most]
    ]


def categories(change: RankChange) -> str:
    return ", ".join(f"{one.name} {signed(one.more)}" for one in change.categories[:3])


def _change(diff: RanksDiff, change: RankChange, lines: int) -> list[Block]:
    columns = (
        Column("  change", right=True, style="strong"),
        Column("before", right=True, optional=1),
        Column("after", right=True, optional=1),
        LINE,
        CODE,
    )
    blocks: list[Block] = [Text(heading(diff, change), "strong", hang=2), Text(f"  {categories(change)}", hang=4)]
    return [*blocks, Table(columns, tuple(rows(diff, change, lines)))]


def _leaks(diff: RanksDiff) -> list[Block]:
    every = len(both(diff))
    begun = [rank_views.grows(one.growth, [str(rank) for rank in sorted(one.ranks)], every) for one in diff.begun]
    ended = [rank_views.grows(one.growth, [str(rank) for rank in sorted(one.ranks)], every) for one in diff.ended]
    blocks: list[Block] = [Text(f"! a new leak {said}", "warning", hang=4) for said in begun]
    blocks += [Text(f"no more a leak {said}", hang=4) for said in ended]
    return [Text(), *blocks] if blocks else []


def _apart(diff: RanksDiff, failed: Iterable[tuple[str, str]]) -> list[Block]:
    blocks: list[Block] = []
    for side, name in ((0, "after"), (1, "before")):
        alone = [str(pair.rank) for pair in diff.pairs if (pair.before, pair.after)[side] is None]
        if alone:
            verb = "is" if len(alone) == 1 else "are"
            blocks.append(Text(f"! {rank_views.named(alone)} {verb} in {name} alone", "warning", hang=4))
    blocks += [
        Text(f"! {printable(path)}: its rank is not known, or another trace has it, too", "warning", hang=4)
        for path in diff.unjoined
    ]
    blocks += rank_views.unread(failed)
    return [Text(), *blocks] if blocks else []
