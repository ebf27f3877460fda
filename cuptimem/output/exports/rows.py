"""Every allocation as one row, for csv and json: written when the block is freed, or at the end.

The bytes of the rows that were allocated in the window (`when` is not "before start") sum to the report's `allocated`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from cuptimem.output.exports import events
from cuptimem.output.exports.events import BLOCKS, Block, Events

COLUMNS = (
    "device",
    "bytes",
    "requested",
    "count",
    "address",
    "time_ns",
    "freed_ns",
    "step",
    "freed_step",
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
    "thread",
    "when",
)


@dataclass(slots=True)
class _Alive:
    time_ns: int | None  # None: before the window
    step: int | None
    requested: int | None
    block: Block


class Rows:
    """Iterates over a trace once. Stacks that a row is the first to refer to are in `new` when it comes."""

    def __init__(self, source: Events, text: Callable[[str], str] = events.text) -> None:
        self.source = source
        self._text = text
        self.new: list[int] = []
        self._stacks: set[int] = set()
        self._alive: dict[tuple[str, int], _Alive] = {}
        self._step: int | None = None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for event in self.source:
            kind = event[0]
            if kind in BLOCKS:
                block = Block._make(event)
                key = (block.device, block.address)
                if kind == "free":
                    yield self._row(self._alive.pop(key), block)
                else:
                    time_ns = None if kind == "start" else block.time_ns
                    self._alive[key] = _Alive(time_ns, block.step, block.requested, block)
            elif kind == "requested":
                alive = self._alive.get((event[2], event[3]))
                if alive is not None:
                    alive.requested = event[4]
            elif kind == "step":
                self._step = event[3]
            elif kind == "folded":
                yield self._folded(*event[1:])
        for alive in self._alive.values():
            yield self._row(alive, None)

    def _row(self, alive: _Alive, freed: Block | None) -> dict[str, Any]:
        block = alive.block
        frame = self.source.user_frame(block.stack)
        self.new = [number for number in {block.stack, block.origin} if number not in self._stacks]
        self._stacks.update(self.new)
        return {
            "device": block.device,
            "bytes": block.bytes,
            "requested": alive.requested if freed is None else freed.requested,
            "count": 1,
            "address": block.address,
            "time_ns": alive.time_ns,
            "freed_ns": None if freed is None else freed.time_ns,
            "step": alive.step,
            "freed_step": None if freed is None else self._step,
            "phase": block.phase,
            "operator": _known(self._text, block.operator),
            "category": block.category,
            "module": _known(self._text, block.module),
            "saved_by": _known(self._text, block.saved_by),
            "file": None if frame is None else self._text(frame.file),
            "line": None if frame is None or frame.line < 0 else frame.line,
            "function": None if frame is None else self._text(frame.function),
            "where": self.source.where(block),
            "stack": block.stack,
            "origin": block.origin,
            "thread": block.thread,
            "when": "before start" if alive.time_ns is None else "allocated" if block.reported else "found",
        }

    def _folded(self, time_ns: int, device: str, count: int, size: int, thread: int) -> dict[str, Any]:
        self.new = []
        row: dict[str, Any] = dict.fromkeys(COLUMNS)
        row |= {"device": device, "bytes": size, "count": count, "freed_ns": time_ns, "step": self._step}
        return row | {"freed_step": self._step, "thread": thread, "where": "(folded)", "when": "folded"}


def _known(text: Callable[[str], str], name: str | None) -> str | None:
    return None if name is None else text(name)
