"""Plain text: for pipes, files and print(report)."""

from collections.abc import Sequence
from dataclasses import replace

from cuptimem.reporters.blocks import Block, Table, Text

INDENT = GAP = "  "
NARROWEST = 6  # a flexible column keeps at least so many characters
_READABLE = 16  # ... and an optional one goes rather than to have fewer than so many,
_WIDE = 32  # all columns are cut to so many before one is cut further
_ENOUGH = 24  # with so many for each of the others


def render(blocks: Sequence[Block], width: int | None = None) -> str:
    """The blocks as lines; with a width, flexible columns are cut to fit it."""
    lines: list[str] = []
    for block in blocks:
        if isinstance(block, Text):
            lines.append(block.text)
        else:
            for number, table in enumerate(parts(block, width)):
                lines += [""] * (number > 0)
                lines.extend(INDENT + GAP.join(row) for row in layout(table, width))
    return "\n".join(line.rstrip() for line in lines)


def parts(table: Table, width: int | None) -> list[Table]:
    """What is shown of the table: one, or several below each other."""
    if width is None or not table.repeat:
        return [fit(table, width)]
    cells = _cells(table)
    wanted = [max(len(row[i]) for row in cells) for i in range(len(table.columns))]
    wanted = [min(w, _WIDE) if c.flexible else w for w, c in zip(wanted, table.columns, strict=True)]
    first = list(range(table.repeat))
    room = width - len(INDENT) - sum(wanted[i] + len(GAP) for i in first)
    bands: list[list[int]] = []
    left = 0
    for i in range(table.repeat, len(table.columns)):
        if not bands or wanted[i] > left:
            bands.append([*first])
            left = room
        bands[-1].append(i)
        left -= wanted[i] + len(GAP)
    return [_of_columns(_with_cells(table, band[table.repeat :]) if i else table, band) for i, band in enumerate(bands)]


def fit(table: Table, width: int | None) -> Table:
    """The table without the optional columns, from the last on, for which there is no room."""
    if width is None:
        return table
    kept: list[int] = []
    room = width - len(INDENT)
    for i in sorted(range(len(table.columns)), key=lambda i: table.columns[i].optional):
        column = table.columns[i]
        wanted = max(len(row[i]) for row in _cells(table))
        if column.flexible:
            wanted = min(wanted, _READABLE if column.optional else _ENOUGH)
        room -= wanted
        if room >= 0 or not column.optional:
            kept.append(i)
            room -= len(GAP)
        else:
            room += wanted
    kept.sort()
    return _of_columns(table, kept)


def _with_cells(table: Table, columns: Sequence[int]) -> Table:
    """Without the rows that have nothing in these columns."""
    return replace(table, rows=tuple(row for row in table.rows if any(row[i] for i in columns)))


def _of_columns(table: Table, kept: Sequence[int]) -> Table:
    return Table(tuple(table.columns[i] for i in kept), tuple(tuple(row[i] for i in kept) for row in table.rows))


def _cells(table: Table) -> list[tuple[str, ...]]:
    return [tuple(column.name for column in table.columns), *table.rows]


def layout(table: Table, width: int | None) -> list[list[str]]:
    """The heading and the rows, every cell as wide as its column."""
    rows = _cells(table)
    widths = [max(len(row[i]) for row in rows) for i in range(len(table.columns))]
    if width is not None:
        excess = len(INDENT) + sum(widths) + len(GAP) * (len(widths) - 1) - width
        for least in (_WIDE, NARROWEST):
            for i in reversed(range(len(widths))):
                if excess > 0 and table.columns[i].flexible:
                    taken = min(excess, max(0, widths[i] - least))
                    widths[i] -= taken
                    excess -= taken
    return [
        [
            cut(cell, size, column.keep_end).rjust(size)
            if column.right
            else cut(cell, size, column.keep_end).ljust(size)
            for cell, size, column in zip(row, widths, table.columns, strict=True)
        ]
        for row in rows
    ]


def cut(text: str, size: int, keep_end: bool = False) -> str:
    """At most size characters, the last (or first) an ellipsis where some are missing."""
    if len(text) <= size:
        return text
    return "…" + text[len(text) - size + 1 :] if keep_end else text[: max(0, size - 1)] + "…"
