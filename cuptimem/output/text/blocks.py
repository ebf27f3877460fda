"""What a view consists of, before any format is chosen: lines and tables of text.

Text may have anything in it: each format makes it harmless."""

from dataclasses import dataclass
from typing import Literal

Style = Literal["", "title", "strong", "dim", "warning"]

TAIL = "\t"


@dataclass(frozen=True, slots=True)
class Text:
    """One line. Where there is no room it is broken: behind breaks, a regular expression of
    fixed width, if there is one, else between words; hang: the indent
    of its other lines. prose: there is never more room than can be read. cut: it loses its end instead.
    whole: a word is not broken but wider than the room: paths and commands to copy."""

    text: str = ""
    style: Style = ""
    hang: int | None = None
    breaks: str = ""
    prose: bool = False
    cut: bool = False
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """A table's column. Numbers stand right; the flexible ones give way when there is no room, at their end or, as a
    file:line must, at their beginning. One with a number in optional is there only where each column has enough: those
    with small numbers come first. least: how wide a flexible one is at least, if it has so much to show. tail: its
    cells may end in TAIL and code, which is left out where little of it could be shown."""

    name: str
    right: bool = False
    flexible: bool = False
    keep_end: bool = False
    optional: int = 0
    least: int = 0
    tail: bool = False
    style: Style = ""


ENOUGH_CODE = 24  # less of a line of code says nothing

LINE = Column("line", flexible=True, keep_end=True)
CODE = Column("code", flexible=True, optional=1, least=ENOUGH_CODE, style="dim")
FUNCTION = Column("function", flexible=True, optional=9, least=16)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells, as many as there are columns. first: where the columns do not fit, only the first so many are
    columns, and the others stand under each row with their names; 0: they are cut. under: of the first rows, lines of
    text that stand under each, from its first flexible column on."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    first: int = 0
    under: tuple[tuple[str, ...], ...] = ()


Block = Text | Table
