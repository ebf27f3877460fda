"""Which of several places are worth a change: those whose blocks are at the peak, until that is elsewhere."""

from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

from cuptimem.advice.program import Block, Program

Edits = dict[int, tuple[Block, Block | None]]  # by id of a block: it, and what is in its place
Place = TypeVar("Place")

_LEAST = 0.01  # of the peak
_MOST = 4  # places, or lines with some


def worth(
    program: Program,
    blocks: list[Block],
    places: Mapping[Place, Edits],
    line: Callable[[Place], Hashable] = lambda _: _,
) -> tuple[list[Block], list[Place]]:
    """The blocks with the edits of the chosen places, the one with the most bytes first. line: where a place is."""
    chosen: list[Place] = []
    edits: Edits = {}
    edited = blocks
    while True:
        _, at = program.replay(edited)
        lines = {line(one) for one in chosen}
        left = [one for one in places if one not in chosen and (len(lines) < _MOST or line(one) in lines)]
        gains = {place: _gain(places[place], at) for place in left}
        best = max(gains, key=lambda one: gains[one], default=None)
        if best is None or gains[best] < _LEAST * program.peak:
            break
        chosen.append(best)
        for key, (old, new) in places[best].items():
            edits[key] = old, _later(edits[key][1] if key in edits else None, new)
        edited = [new for block in blocks if (new := edits.get(id(block), (block, block))[1]) is not None]
    return edited, chosen


def _later(one: Block | None, other: Block | None) -> Block | None:
    """Of what two places leave of a block: each needs it until then."""
    return one if one is not None and other is not None and one.end > other.end else other


def _gain(edits: Edits, at: int) -> int:
    before = sum(old.bytes for old, _ in edits.values() if old.alive(at))
    return before - sum(new.bytes for _, new in edits.values() if new is not None and new.alive(at))
