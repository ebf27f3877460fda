"""Every allocation as one row, for csv and json: written when the block is freed, or at the end.

The bytes of the rows that were allocated in the window (`when` is not "before start") sum to the report's `allocated`.
_core.Rows writes them; what the blocks of one origin have in common is put into cells here, once.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from cuptimem.errors import core
from cuptimem.output.exports import events
from cuptimem.output.exports.events import Events, Origin

# As csrc/exports/rows.h has them.
NUMBERS = ("bytes", "requested", "count", "address", "time_ns", "freed_ns", "step", "freed_step")
WHENS = ("allocated", "found", "before start", "compacted")
ABOUT = (
    "phase",
    "operator",
    "category",
    "module",
    "saved_by",
    "file",
    "line",
    "function",
    "where",
    "stack",
    "origin",
)
COLUMNS = ("device", *NUMBERS, *ABOUT, "thread", "when")


@dataclass(frozen=True, slots=True)
class Layout:
    """How a row of a format looks."""

    head: Callable[[str], bytes]  # the device: all before the bytes
    about: Callable[[dict[str, Any]], bytes]  # the cells ABOUT: all before the thread
    stacks: Callable[[list[int]], bytes]  # stacks that a row is the first to refer to: what comes before it
    gaps: tuple[bytes, ...]  # between NUMBERS
    none: bytes
    ends: tuple[bytes, ...]  # of WHENS


class Rows:
    """Iterates over a trace once, in pieces of many rows."""

    def __init__(self, source: Events, layout: Layout, text: Callable[[str], str] = events.text) -> None:
        self._source, self._layout, self._text = source, layout, text
        self._stacks: set[int] = set()
        self.count = 0

    def __iter__(self) -> Iterator[bytes]:
        layout, source = self._layout, self._source
        rows = core().Rows(source.start(), self._names, layout.gaps, layout.none, layout.ends, source.device)
        yield from source.formatted(rows)
        self.count = rows.count

    def _names(self, device: str, *about: Any) -> tuple[bytes, bytes, bytes]:
        layout = self._layout
        cells, new = self._cells(Origin(device, *about)) if about else (dict.fromkeys(ABOUT), [])
        if not about:
            cells["where"] = "(compacted)"
        return layout.stacks(new) if new else b"", layout.head(device), layout.about(cells)

    def _cells(self, origin: Origin) -> tuple[dict[str, Any], list[int]]:
        frame = self._source.user_frame(origin.stack)
        new = [number for number in {origin.stack, origin.origin} if number not in self._stacks]
        self._stacks.update(new)
        text = self._text
        cells = {
            "phase": origin.phase,
            "operator": _known(text, origin.operator),
            "category": origin.category,
            "module": _known(text, origin.module),
            "saved_by": _known(text, origin.saved_by),
            "file": None if frame is None else text(frame.file),
            "line": None if frame is None or frame.line < 0 else frame.line,
            "function": None if frame is None else text(frame.function),
            "where": self._source.where(origin),
            "stack": origin.stack,
            "origin": origin.origin,
        }
        return cells, new


def _known(text: Callable[[str], str], name: str | None) -> str | None:
    return None if name is None else text(name)
