"""Blocks summed by one property: lines, functions, modules, ..."""

from cuptimem.output.text.blocks import CODE, Block, Column, Table, Text
from cuptimem.output.text.part_views import under
from cuptimem.output.text.peak_views import left_out, when
from cuptimem.output.text.words import code, count, file, function, more, place, plural, share, size
from cuptimem.report.grouping import PLACES, Group, group
from cuptimem.report.model import Contents, first_lines


def full(contents: Contents, by: str, order: str, top: int, depth: int | None = None) -> list[Block]:
    """The rows, and what has none of its own."""
    rows = group(contents.contributors, by, order, depth)
    title = f"{contents.device}: {size(contents.bytes)} in {plural(contents.count, 'block')}, {when(contents)}"
    blocks: list[Block] = [Text(), Text(title, "title")]
    shown, others = first_lines(rows, top) if by in PLACES else (rows[:top], rows[top:])
    lines = by in ("line", "library-line")
    at_end = lines or by in ("file", "module")  # what tells most of a name
    cells = [
        (
            size(row.bytes),
            share(row.bytes, contents.bytes),
            count(row.count),
            size(row.bytes // max(1, row.count)),
            _key(row, by),
            code(row.frame) if lines else "",
            _called_from(row) if by == "library-line" else "",
        )
        for row in shown
    ]

    for bytes_, count_, name in left_out(others, contents, "row"):
        cells.append((size(bytes_), share(bytes_, contents.bytes), count(count_), "", name, "", ""))
    columns = (
        Column("live" if contents.what in ("peak", "start", "end") else "bytes", right=True, style="strong"),
        Column("share", right=True, optional=1),
        Column("blocks", right=True, optional=2),
        Column("mean", right=True, optional=3),
        Column(by, flexible=True, keep_end=at_end, least=0 if at_end else 32),
        CODE,
        Column("called from", flexible=True, keep_end=True, optional=4, least=16),
    )
    width = len(columns) if by == "library-line" else len(columns) - 1 if lines else len(columns) - 2
    parts = tuple(under(row, contents) for row in shown) if by == "line" else ()
    table = Table(columns[:width], tuple(cell[:width] for cell in cells), under=parts)
    return [*blocks, table] if cells else blocks


def _key(row: Group, by: str) -> str:
    if by == "stack":
        return " < ".join(map(place, row.contributors[0].stack)) or row.key
    if row.frame is None or by not in PLACES:
        return row.key
    if by == "function":
        return f"{function(row.frame)} ({file(row.frame)})"
    return file(row.frame) if by == "file" else place(row.frame)


def _called_from(row: Group) -> str:
    """The user's lines above it: the largest, and how many more."""
    places = list(
        dict.fromkeys(place(c.frame) for c in row.contributors if c.frame is not None and c.frame != row.frame)
    )
    return places[0] + more(len(places) - 1) if places else ""
