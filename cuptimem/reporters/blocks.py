"""What a view consists of, before any format is chosen: lines and tables of text."""

from dataclasses import dataclass
from typing import Literal

Style = Literal["", "title", "strong", "dim", "warning"]


@dataclass(frozen=True, slots=True)
class Text:
    """One line."""

    text: str = ""
    style: Style = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A table's column. Numbers stand right; the flexible one gives way when there is no room, at its end or, as a
    file:line must, at its beginning. An optional one goes altogether before the others are cut for it."""

    name: str
    right: bool = False
    flexible: bool = False
    keep_end: bool = False
    optional: bool = False
    style: Style = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells, as many as there are columns. repeat: where the columns do not fit, several tables below each
    other have them, and each begins with the first so many; 0: they are cut."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    repeat: int = 0


Block = Text | Table
