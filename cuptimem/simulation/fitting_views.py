"""A program on several cards, or with several settings of the allocator, as one table."""

from collections.abc import Sequence

from cuptimem.output.text.blocks import Block, Column, Table, Text
from cuptimem.output.text.peak_views import lines_table
from cuptimem.output.text.words import plural, size
from cuptimem.simulation.fitting import Row
from cuptimem.simulation.views import interval

_LINES = 5
WORDS = {
    "fits": "fits",
    "fits with settings": "does not fit",
    "does not fit": "does not fit",
    "undecided": "undecided",
    "script failed": "the program failed",
}


def blocks(rows: Sequence[Row], settings: bool) -> list[Block]:
    what = "setting" if settings else "card"
    columns = [Column(what), *([] if settings else [Column("memory", True)])]
    columns += [Column("verdict", style="strong"), Column("free", True), Column("takes", True)]
    columns += [Column("reserved", True), Column("beside tensors", True)] if settings else []
    columns += [Column("known by")] if not settings else []
    cells = [_row(row, settings) for row in rows]
    if any(row[-1] for row in cells):
        columns.append(Column("because", flexible=True))
    table = Table(tuple(columns), tuple(row[: len(columns)] for row in cells))
    fitting = sum(row.verdict == "fits" for row in rows)
    title = f"It fits {'with' if settings else 'on'} {fitting} of {plural(len(rows), what)}"
    title += f" on {rows[0].case.setup.card.key} with {size(rows[0].case.setup.memory)}" if settings else ""
    said: list[Block] = [Text(title, "title"), Text(), table, *peak(rows), Text()]
    if any(row.by == "arithmetic" for row in rows):
        line = (
            "arithmetic: the card has clearly more or less memory than the program took on another of its architecture"
        )
        said.append(Text(line, hang=2, prose=True))
    said.append(Text("free: at the peak, with everything that is modelled at its high end", hang=2, prose=True))
    return said


def _row(row: Row, settings: bool) -> tuple[str, ...]:
    cells = [row.case.name, *([] if settings else [size(row.case.setup.memory)]), WORDS[row.verdict]]
    cells.append(room(row))
    cells.append(interval(row.takes))
    cells += _cache(row) if settings else [row.by]
    return (*cells, "" if row.verdict == "fits" else row.reason)


def room(row: Row) -> str:
    free = row.free
    return "" if free is None else size(free) if free >= 0 else f"{size(-free)} short"


def _cache(row: Row) -> list[str]:
    """What PyTorch reserved, and what of that was not in tensors; of a run that fitted."""
    one = row.simulation
    if one is None or row.verdict != "fits" or not one.devices:
        return ["", ""]
    fullest = max(one.devices, key=lambda device: device.used.low)
    if fullest.reserved is None:
        return ["not known", "not known"]
    beside = fullest.reserved.low - fullest.allocated.low
    return [interval(fullest.reserved), size(max(0, beside))]


def peak(rows: Sequence[Row]) -> list[Block]:
    """Of the first on which it fits, else of the first that was run."""
    for row in sorted(rows, key=lambda one: one.verdict != "fits"):
        found = None if row.simulation is None else row.simulation.peak
        if found is not None:
            title = f"What the peak is made of ({row.case.name}): {size(found.bytes)} in tensors"
            return [Text(), Text(title, "title"), *lines_table(found, _LINES)]
    return []
