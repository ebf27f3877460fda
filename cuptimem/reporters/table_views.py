"""Blocks summed by one property: lines, functions, modules, ..."""

from collections.abc import Iterable

from cuptimem.errors import Error
from cuptimem.report import Contents, Contributor
from cuptimem.reporters.blocks import Block, Column, Table, Text
from cuptimem.reporters.descent import line_to_leave, note
from cuptimem.reporters.peak_views import left_out, when
from cuptimem.reporters.words import code, count, function, more, plural, share, size
from cuptimem.stacks import Frame

GROUPINGS = ("line", "library-line", "function", "file", "module", "operator", "phase", "stack")
ORDERS = ("bytes", "blocks", "mean", "name")


class Row:
    """Contributors with one key."""

    __slots__ = ("bytes", "contributors", "count", "frame", "key")

    def __init__(self, key: str, contributors: list[Contributor], frame: Frame | None) -> None:
        self.key = key
        self.contributors = contributors
        self.frame = frame  # of the first one
        self.bytes = sum(c.bytes for c in contributors)
        self.count = sum(c.count for c in contributors)


def _frame(contributor: Contributor, by: str, below: Frame | None) -> Frame | None:
    """The frame that the key is about."""
    frame = contributor.frame
    if by == "library-line" or (frame is not None and below is not None and frame.same_line(below)):
        return contributor.library_line or frame
    return frame


def _key(contributor: Contributor, by: str, frame: Frame | None) -> str:
    if by in ("line", "library-line"):
        return frame.place if frame is not None else contributor.where
    if by == "function":
        return f"{function(frame)} ({frame.place.rsplit(':', 1)[0]})" if frame is not None else contributor.where
    if by == "file":
        return frame.place.rsplit(":", 1)[0] if frame is not None else contributor.where
    if by == "module":
        return " > ".join(contributor.modules) or "(no module)"
    if by == "operator":
        outside = "(before start)" if contributor.phase == "before start" else "(outside backward)"
        return contributor.operator or outside
    if by == "phase":
        return contributor.phase
    return " < ".join(f.place for f in contributor.stack) or contributor.where


def group(contributors: Iterable[Contributor], by: str, order: str, below: Frame | None = None) -> tuple[Row, ...]:
    """Sums by one of GROUPINGS, sorted by one of ORDERS; below: lines_of. Raises Error for another name."""
    if by not in GROUPINGS or order not in ORDERS:
        raise Error(f"cannot group by {by!r} or sort by {order!r}")
    groups: dict[str, list[Contributor]] = {}
    frames: dict[str, Frame | None] = {}
    for contributor in contributors:
        frame = _frame(contributor, by, below)
        key = _key(contributor, by, frame)
        groups.setdefault(key, []).append(contributor)
        frames.setdefault(key, frame)
    rows = [Row(key, members, frames[key]) for key, members in groups.items()]
    orders = {
        "bytes": lambda row: (-row.bytes, row.key),
        "blocks": lambda row: (-row.count, row.key),
        "mean": lambda row: (-row.bytes // max(1, row.count), row.key),
        "name": lambda row: (row.key,),
    }
    return tuple(sorted(rows, key=orders[order]))


def full(contents: Contents, by: str, order: str, top: int) -> list[Block]:
    """The rows, and what has none of its own."""
    left = line_to_leave(contents) if by == "line" else None
    rows = group(contents.contributors, by, order, left)
    title = f"{contents.device}: {size(contents.bytes)} in {plural(contents.count, 'block')}, {when(contents)}"
    blocks: list[Block] = [Text(), Text(title, "title")]
    if left is not None:
        blocks.append(note(contents, left))
    lines = by in ("line", "library-line")
    cells = [
        (
            size(row.bytes),
            share(row.bytes, contents.bytes),
            count(row.count),
            size(row.bytes // max(1, row.count)),
            row.key,
            code(row.frame) if lines else "",
            _called_from(row) if by == "library-line" else "",
        )
        for row in rows[:top]
    ]

    for bytes_, count_, name in left_out(rows[top:], contents, "row"):
        cells.append((size(bytes_), share(bytes_, contents.bytes), count(count_), "", name, "", ""))
    columns = (
        Column("live" if contents.what in ("peak", "start", "end") else "bytes", right=True, style="strong"),
        Column("share", right=True),
        Column("blocks", right=True),
        Column("mean", right=True),
        Column(by, flexible=True, keep_end=lines or by == "file"),
        Column("code", flexible=True, style="dim"),
        Column("called from", flexible=True, keep_end=True, optional=True),
    )
    shown = len(columns) if by == "library-line" else len(columns) - 1 if lines else len(columns) - 2
    table = Table(columns[:shown], tuple(cell[:shown] for cell in cells))
    return [*blocks, table] if cells else blocks


def _called_from(row: Row) -> str:
    """The user's lines above it: the largest, and how many more."""
    places = list(
        dict.fromkeys(c.frame.place for c in row.contributors if c.frame is not None and c.frame != row.frame)
    )
    return places[0] + more(len(places) - 1) if places else ""
