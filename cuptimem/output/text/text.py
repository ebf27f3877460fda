"""Plain text: for pipes, files and print(report)."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from cuptimem.output.text.blocks import ENOUGH_CODE, TAIL, Block, Column, Table, Text
from cuptimem.output.text.cells import cell_len, cut
from cuptimem.printable import printable

INDENT = GAP = "  "
PROSE = 79  # columns: the narrowest usual terminal, and wide enough to read
_PROSE_LEAST = 24  # an indent leaves so many columns to further lines
NARROWEST = 6  # a column of text keeps at least so many columns,
_READABLE = 16  # and more if all have so many
_NAME = 40  # of a flexible column, beside columns that would else stand below it
_UNDER = 52  # columns that what stands under a row has at least, of a screen that has so many

_UNIT = re.compile(r"(?<=\d) (?=(?:[KMGT]i)?B\b|ms\b|s\b|%)")
_PART = re.compile(r"(?P<sizes> *(?:of which)? +[\d.]+ \w+ +\d+ %  )(?P<name>.*?)(?:  .*)?")
_GLUE = "\u00a0"  # a space that no line is broken at


def render(blocks: Sequence[Block], width: int | None = None) -> str:
    """The blocks as lines; with a width of 40 or more, none is longer than that."""
    found: list[str] = []
    for block in blocks:
        if isinstance(block, Text):
            found += lines(block, width)
            continue
        found += table_lines(shown(block, width), width)
    return "\n".join(line.rstrip() for line in found)


# -- lines ---------------------------------------------------------------------------------------------------------


def lines(block: Text, width: int | None) -> list[str]:
    """What is shown of the line: one, or several below each other."""
    text = printable(block.text)
    room = min(width or PROSE, PROSE) if block.prose else width
    if room is None or cell_len(text) <= room:
        return [text]
    if block.cut:
        return [_cut_part(text, room)]
    indent = len(text) - len(text.lstrip(" "))
    hang = min(indent + 2 if block.hang is None else block.hang, max(room // 2, room - _PROSE_LEAST))
    return _wrapped(text, room, hang, block.breaks, block.whole)


def _cut_part(text: str, room: int) -> str:
    """Of a part of a line its name's end stays, for it says most; the place behind it goes first."""
    part = _PART.fullmatch(text)
    if part is None:
        return cut(text, room)
    sizes, name = part["sizes"], part["name"]
    return sizes + cut(name, room - cell_len(sizes), keep_end=not name.startswith("("))


def _wrapped(text: str, width: int, hang: int, breaks: str, whole: bool) -> list[str]:
    found: list[str] = []
    line = ""
    for piece in _pieces(text, width - hang, breaks, whole):
        if line.strip() and cell_len((line + piece).rstrip()) > width:
            found.append(line.rstrip())
            line = " " * hang
        line += piece
    return [*found, line.rstrip()]


def _pieces(text: str, room: int, breaks: str, whole: bool = False) -> Iterator[str]:
    """The text in parts that are as wide as the room at most, each with the spaces behind it. whole: but for words."""
    indent = text[: len(text) - len(text.lstrip(" "))]
    rest = text[len(indent) :]
    if breaks:
        items = re.split(f"(?<={breaks})", rest)
    else:
        items = [item.replace(_GLUE, " ") for item in re.findall(r"[^ ]+ *", _UNIT.sub(_GLUE, rest))]
    yield indent
    for item in items:
        if whole or cell_len(item.rstrip()) <= room:
            yield item
        elif breaks:
            yield from _pieces(item, room, "")
        else:
            at = 0
            while at < len(item):
                part = cut(item[at : at + room], room, mark="")
                yield part
                at += len(part)


# -- tables --------------------------------------------------------------------------------------------------------


def shown(table: Table, width: int | None) -> Table:
    """What is shown of the table."""
    table = replace(table, rows=tuple(tuple(map(_clean, row, table.columns)) for row in table.rows))
    if width is None or not table.first:
        return fit(table, width)
    wanted = [min(w, _NAME) if c.flexible else w for w, c in zip(_natural(table), table.columns, strict=True)]
    if sum(wanted) + len(GAP) * len(wanted) <= width:
        return fit(table, width)
    names = [column.name for column in table.columns[table.first :]]
    rows = [zip(names, row[table.first :], strict=True) for row in table.rows]
    shown = (", ".join(f"{name} {cell}" for name, cell in row if cell) for row in rows)
    under = tuple((INDENT + text,) if text else () for text in shown)
    return fit(replace(_of_columns(table, range(table.first)), under=under), width)


def _clean(cell: str, column: Column) -> str:
    text, tail, code = cell.partition(TAIL) if column.tail else (cell, "", "")
    return printable(text) + (tail and tail + printable(code))


def fit(table: Table, width: int | None) -> Table:
    """The table without the optional columns for which there is no room or nothing to show, nor others for which there
    is none at all."""
    table = _of_columns(
        table, [i for i, c in enumerate(table.columns) if not c.optional or any(row[i] for row in table.rows)]
    )
    if width is None:
        return table
    needed = _needed(table, width)
    room = width - len(INDENT) + len(GAP)
    kept: list[int] = []
    for i in sorted(range(len(needed)), key=lambda i: table.columns[i].optional):
        if not table.columns[i].optional or needed[i] + len(GAP) <= room:
            kept.append(i)
            room -= needed[i] + len(GAP)
    kept.sort()
    least = [needed[i] if table.columns[i].right else min(needed[i], NARROWEST) for i in kept]
    while len(kept) > 1 and sum(least) + len(GAP) * (len(kept) - 1) > width - len(INDENT):
        kept.pop()
        least.pop()
    return _of_columns(table, kept)


def _of_columns(table: Table, kept: Sequence[int]) -> Table:
    columns = tuple(table.columns[i] for i in kept)
    return Table(columns, tuple(tuple(row[i] for i in kept) for row in table.rows), under=table.under)


def _natural(table: Table) -> list[int]:
    """How wide each column would be."""
    cells = [tuple(column.name for column in table.columns), *table.rows]
    return [max(cell_len(row[i].replace(TAIL, GAP)) for row in cells) for i in range(len(table.columns))]


def _needed(table: Table, width: int) -> list[int]:
    """How wide each column must be before an optional one gets room: a file:line is whole, or has half of the width
    where that cannot be."""
    columns = table.columns
    needed = [
        min(natural, column.least) if column.flexible and column.least else natural
        for natural, column in zip(_natural(table), columns, strict=True)
    ]
    required = [len(GAP) + one for one, column in zip(needed, columns, strict=True) if not column.optional]
    if sum(required) <= width - len(INDENT) + len(GAP):
        return needed
    return [min(one, width // 2) if column.keep_end else one for one, column in zip(needed, columns, strict=True)]


def layout(table: Table, width: int | None) -> list[list[str]]:
    """The heading and the rows, every cell as wide as its column."""
    widths = _natural(table)
    if width is not None:
        widths = _widths(table, widths, width)
    rows = [tuple(column.name for column in table.columns), *table.rows]
    return [
        [_padded(cell, size, column) for cell, size, column in zip(row, widths, table.columns, strict=True)]
        for row in rows
    ]


def table_lines(table: Table, width: int | None) -> list[str]:
    """The same as lines of text, with what stands under the rows."""
    found: list[str] = []
    for number, cells in enumerate(layout(table, width)):
        found.append(INDENT + GAP.join(cells))
        found += under(table, cells, number, width)
    return found


def under(table: Table, cells: Sequence[str], number: int, width: int | None) -> list[str]:
    """What stands under the row with these cells. number: 1 is the first below the heading."""
    if not 0 < number <= len(table.under):
        return []
    first = next((i for i, column in enumerate(table.columns) if column.flexible), 0)
    left = sum(cell_len(cell) + len(GAP) for cell in cells[:first])
    indent = " " * (len(INDENT) + (left if width is None else max(0, min(left, width - len(INDENT) - _UNDER))))
    found: list[str] = []
    for line in table.under[number - 1]:
        found += lines(Text(indent + line, breaks=", ", cut=_PART.fullmatch(line) is not None), width)
    return found


def _widths(table: Table, natural: list[int], width: int) -> list[int]:
    """Each column gets what it needs; what is left goes to the required ones first. Where there is less, text gives
    way: what is cut at its end before a file:line, and every column is readable before one is not."""
    widths = _needed(table, width)
    columns = table.columns
    room = width - len(INDENT) - len(GAP) * (len(widths) - 1)
    for i in sorted(range(len(widths)), key=lambda i: columns[i].optional):
        widths[i] += min(natural[i] - widths[i], max(0, room - sum(widths)))
    order = sorted(
        range(len(widths)), key=lambda i: (not columns[i].flexible, columns[i].keep_end, -columns[i].optional)
    )
    for least in (_READABLE, NARROWEST, 1):
        for i in order:
            if not columns[i].right or least == 1:
                widths[i] -= max(0, min(widths[i] - least, sum(widths) - room))
    return widths


def _padded(cell: str, size: int, column: Column) -> str:
    if column.tail and TAIL in cell:
        text, _, code = cell.partition(TAIL)
        room = size - cell_len(text + GAP)
        cell = text + GAP + cut(code, room) if room >= min(ENOUGH_CODE, cell_len(code)) else text
    # What stands for a line and is none, as "(23 more lines)", keeps its beginning.
    shown = cut(cell, size, column.keep_end and not cell.startswith("("))
    spaces = " " * (size - cell_len(shown))
    return spaces + shown if column.right else shown + spaces
