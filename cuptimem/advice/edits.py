"""Which of several places are worth a change: those whose blocks are at the peak, until that is elsewhere."""

from collections.abc import Mapping
from typing import TypeVar

from cuptimem.advice.program import Block, Program

Edits = dict[int, tuple[Block, Block | None]]  # by id of a block: it, and what is in its place
Place = TypeVar("Place")

_LEAST = 0.01  # of the peak
_MOST = 4  # places


def worth(program: Program, blocks: list[Block], places: Mapping[Place, Edits]) -> tuple[list[Block], list[Place]]:
    """The blocks with the edits of the chosen places, the one with the most bytes first."""
    chosen: list[Place] = []
    edits: Edits = {}
    edited = blocks
    while len(chosen) < _MOST:
        _, at = program.replay(edited)
        gains = {place: _gain(made, at) for place, made in places.items() if place not in chosen}
        best = max(gains, key=lambda one: gains[one], default=None)
        if best is None or gains[best] < _LEAST * program.peak:
            break
        chosen.append(best)
        edits.update(places[best])
        edited = [new for block in blocks if (new := edits.get(id(block), (block, block))[1]) is not None]
    return edited, chosen


def _gain(edits: Edits, at: int) -> int:
    before = sum(old.bytes for old, _ in edits.values() if old.alive(at))
    return before - sum(new.bytes for _, new in edits.values() if new is not None and new.alive(at))
