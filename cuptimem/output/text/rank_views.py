"""Ranks of one job on one screen: the outliers first, and why."""

from collections.abc import Iterable, Mapping, Sequence

from cuptimem.distributed.comparison import Difference, Grows, Guest, Ranks
from cuptimem.distributed.summary import Growth, RankSummary
from cuptimem.output.text.blocks import CODE, LINE, Block, Column, Table, Text
from cuptimem.output.text.words import count, plural, share, signed, size
from cuptimem.printable import printable

TOP = 16  # rows of the table
_LINES = 3  # of a difference
_CATEGORIES = 3
SHOWN = {
    "parameter": ("parameter", "buffer"),
    "gradient": ("gradient", "bucket"),
    "state": ("optimizer state",),
    "activation": ("activation", "autocast cache"),
    "kept": ("kept",),
    "input": ("input", "loaded"),
}


def full(ranks: Ranks, top: int = TOP) -> list[Block]:
    blocks: list[Block] = [Text(_title(ranks), "title"), Text(), _table(ranks, top)]
    if (left := len(ranks.ranks) - min(top, len(ranks.ranks))) > 0:
        differ = sum(ranks.differs(at) for at in ranks.order[top:])
        also = f", {count(differ)} of them differ" if differ else ", none of them differs"
        blocks.append(Text(f"  {plural(left, 'more rank')}{also}: --top", "dim"))
    for difference in ranks.differences:
        blocks += [Text(), *_difference(ranks, difference)]
    if ranks.unexplained:
        blocks += [Text(), Text(f"{plural(ranks.unexplained, 'more rank')} differ in other ways", "dim")]
    for guest in ranks.guests:
        blocks += [Text(), *_guest(ranks, guest)]
    decided = [one for one in ranks.growths if one.growth.decided]
    if decided:
        blocks.append(Text())
        blocks += [Text(f"! leak {_grows(ranks, one)}", "warning", hang=4) for one in decided]
    undecided = [one for one in ranks.growths if not one.growth.decided]
    if undecided:
        blocks.append(Text())
        blocks += [Text(f"? grows, maybe a leak: {_grows(ranks, one)}", hang=4) for one in undecided]
    if not ranks.differences and not ranks.unexplained and len(ranks.ranks) > 1:
        blocks += [Text(), Text("No rank differs from the middle one by more than 1 % of its peak.")]
    return [*blocks, *_missing(ranks)]


def _title(ranks: Ranks) -> str:
    middle = ranks.ranks[ranks.middle]
    steps = {sum(one.steps.values()) for one in ranks.ranks}
    titles = list(dict.fromkeys(one.title for one in ranks.ranks))
    said = [f"{plural(len(ranks.ranks), 'rank')} of {printable(titles[0])}{' and others' if len(titles) > 1 else ''}"]
    hosts = {one.host for one in ranks.ranks}
    if len(hosts) > 1:
        said.append(f"on {len(hosts)} machines")
    said.append(plural(min(steps), "step") if len(steps) == 1 else f"{count(min(steps))} to {count(max(steps))} steps")
    peak = middle.own.peak.bytes if middle.own is not None else 0
    return f"{', '.join(said)}; median peak {size(peak)} ({_ranks(ranks, [ranks.middle])})"


def _table(ranks: Ranks, top: int) -> Table:
    columns = (
        Column("rank", right=True),
        Column("device", optional=12),
        Column("peak", right=True, style="strong"),
        Column("to median", right=True),
        Column("step", right=True, optional=1),
        *(Column(name, right=True, optional=3 + place) for name, place in _by_spread(ranks).items()),
        Column("at end", right=True, optional=2),
        Column("reserved", right=True, optional=10),
        Column("device used", right=True, optional=11),
        Column("process", right=True, optional=13),
        Column("", flexible=True, style="warning"),
    )
    filled = [_row(ranks, at) for at in ranks.order[:top]]
    # A column that no rank has anything in says nothing.
    kept = [i for i, column in enumerate(columns) if i < 4 or any(row[i] not in ("", "0 B") for row in filled)]
    return Table(tuple(columns[i] for i in kept), tuple(tuple(row[i] for i in kept) for row in filled))


def _by_spread(ranks: Ranks) -> dict[str, int]:
    """The categories, each with its place: where there is little room, those in which ranks differ are shown."""
    sums = {name: [_category(one, name) for one in ranks.ranks] for name in SHOWN}
    order = sorted(SHOWN, key=lambda name: (min(sums[name]) - max(sums[name]), -max(sums[name])))
    return {name: order.index(name) for name in SHOWN}


def _category(one: RankSummary, name: str) -> int:
    return 0 if one.own is None else sum(one.own.peak.categories.get(part, 0) for part in SHOWN[name])


def _row(ranks: Ranks, at: int) -> tuple[str, ...]:
    one, own = ranks.ranks[at], ranks.own(at)
    if own is None:
        return (ranks.label(at), "", "0 B", signed(ranks.more(at)), *[""] * (5 + len(SHOWN)), _state(one))
    return (
        ranks.label(at),
        own.name,
        size(own.peak.bytes),
        signed(ranks.more(at)) if ranks.more(at) else "",
        "" if own.peak.step is None else str(own.peak.step),
        *(size(_category(one, name)) for name in SHOWN),
        size(own.end),
        "" if own.reserved is None else size(own.reserved),
        "" if own.used is None else size(own.used),
        "" if one.resident is None else size(one.resident),
        _state(one),
    )


def _state(one: RankSummary) -> str:
    if one.exception:
        return f"ended by {printable(one.exception)}"
    if one.refused:
        return f"{plural(one.refused, 'request')} refused"
    return {"complete": "", "recovered": "killed", "cut": "the trace's end is missing"}.get(one.state, one.state)


def _difference(ranks: Ranks, one: Difference) -> list[Block]:
    middle = ranks.ranks[ranks.middle].own
    part = f" ({share(abs(one.bytes), middle.peak.bytes)})" if middle is not None and middle.peak.bytes else ""
    if one.step is None:
        when = "each at its peak"
    else:
        when = f"in step {one.step}, in its other steps as the others" if one.alone else f"in step {one.step}"
    categories = ", ".join(f"{row.name} {signed(row.more)}" for row in one.categories[:_CATEGORIES])
    head = f"{_ranks(ranks, one.ranks)}: {signed(one.bytes)}{part} to {_ranks(ranks, [ranks.middle])}, {when}"
    blocks: list[Block] = [Text(head, "strong", hang=2)]
    if categories:
        blocks.append(Text(f"  {categories}", hang=4))
    if one.batch is not None:
        kind = "a larger batch, or longer samples" if one.batch > 1 else "a smaller batch, or shorter samples"
        blocks.append(Text(f"  {kind}: its input has {one.batch:.1f} times the bytes", hang=4))
    code = {**(middle.peak.code if middle else {}), **_own_code(ranks, one)}
    rows = [
        (signed(row.more), size(row.bytes), size(row.middle), printable(row.name), printable(code.get(row.name, "")))
        for row in one.lines[:_LINES]
    ]
    if rows:
        columns = (
            Column("  change", right=True, style="strong"),
            Column("its", right=True, optional=1),
            Column("median's", right=True, optional=1),
            LINE,
            CODE,
        )
        blocks.append(Table(columns, tuple(rows)))
    return blocks


def _own_code(ranks: Ranks, one: Difference) -> Mapping[str, str]:
    own = ranks.own(one.ranks[0])
    return own.peak.code if own is not None else {}


def _guest(ranks: Ranks, one: Guest) -> list[Block]:
    head = (
        f"{_ranks(ranks, one.ranks)}: {size(one.bytes)} in all on {one.device}, which is "
        f"{_ranks(ranks, [one.owner])}'s own"
    )
    lines = [f"  {size(bytes):>10}  {printable(name)}" for name, bytes in one.lines[:_LINES]]
    return [Text(f"! {head}", "warning", hang=4), *(Text(line) for line in lines)]


def _grows(ranks: Ranks, one: Grows) -> str:
    return grows(one.growth, [ranks.label(at) for at in sorted(one.ranks)], len(ranks.ranks))


def grows(growth: Growth, labels: Sequence[str], all: int) -> str:
    where = "on every rank" if len(labels) == all else f"on {named(labels)} only"
    loop = "" if growth.loop in ("", "training") else f" of {printable(growth.loop)}"
    held = f", held by {printable(growth.holder)}" if growth.holder else ""
    return f"{where}: {size(round(growth.bytes_per_step))} a step{loop} at {printable(growth.line)}{held}"


def _ranks(ranks: Ranks, places: Iterable[int]) -> str:
    return named([ranks.label(at) for at in sorted(places)])


def named(labels: Sequence[str]) -> str:
    """rank 3; ranks 0, 4 to 7 and 9"""
    if len(labels) == 1:
        return f"rank {labels[0]}" if labels[0].isdigit() else labels[0]
    parts: list[list[str]] = []
    for label in labels:
        if parts and label.isdigit() and parts[-1][-1].isdigit() and int(label) == int(parts[-1][-1]) + 1:
            parts[-1].append(label)
        else:
            parts.append([label])
    said = [part for run in parts for part in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else run)]
    more = f" and {len(said) - 8} more" if len(said) > 8 else ""
    shown = said[:8]
    return "ranks " + (
        ", ".join(shown) + more if more else ", ".join(shown[:-1]) + " and " * (len(shown) > 1) + shown[-1]
    )


def _missing(ranks: Ranks) -> list[Block]:
    blocks: list[Block] = []
    if ranks.missing:
        some = ", ".join(map(str, ranks.missing[:8])) + (
            f" and {len(ranks.missing) - 8} more" if len(ranks.missing) > 8 else ""
        )
        which = "rank" if len(ranks.missing) == 1 else "ranks"
        blocks.append(Text(f"! no trace of {which} {some}", "warning"))
    blocks += unread(ranks.failed)
    if ranks.launchers:
        left = plural(len(ranks.launchers), "trace")
        blocks.append(Text(f"{left} of processes without a rank, which allocated nothing, left out", "dim"))
    return [Text(), *blocks] if blocks else []


def unread(failed: Iterable[tuple[str, str]]) -> list[Block]:
    return [Text(f"! {printable(path)}: {printable(why)}", "warning", hang=4) for path, why in failed]
