"""clone_view: a small view that the program keeps, and with it the whole tensor."""

import re
from dataclasses import replace

from cuptimem.advice.program import FOREVER, Block, Program, lines_of
from cuptimem.advice.readers import Life, Part
from cuptimem.advice.technique import UNREAD, Change, Technique
from cuptimem.report.stacks import Frame

_HALF = 2
_WRITES = re.compile(r"aten\.\w*_\.")


def _whole(life: Life, following: int, size: int) -> int:
    """Until when something needs all of it. following: where the program has made the next of its kind, which is
    bound to the same name behind that."""
    reads = (one.at for one in life.reads if one.bytes is None or _HALF * one.bytes > size)
    views = {one.gone for one in life.held if one.bytes is not None}
    held = [one for one in life.held if one.bytes is None]
    # Where autograd has views, the whole tensor goes with the last one of them, whenever its name was bound again.
    known = [max(following + 1, one.seen) if one.gone in views else one.gone for one in held]
    return max((*reads, *known, *(one.gone for one in life.saved)))


def _part(life: Life, until: int) -> Part | None:
    """What alone is read behind that moment. A copy has nothing of what is written into the whole behind it, nor the
    whole of what is written into the copy."""
    largest = max((one.bytes or 0 for one in life.reads if one.at > until), default=0)
    taken = (one for one in life.parts if one.bytes >= largest > 0)
    part = min(taken, key=lambda one: one.bytes, default=None)
    is_written = part is not None and any(
        one.number > part.number and _WRITES.match(one.operator) for one in life.reads
    )
    return None if is_written else part


def clone_view(program: Program, blocks: list[Block], value: str) -> Change | str:
    """The whole ends where the program has made the next of its kind, and a copy of the part stays."""
    if not program.read:
        return UNREAD
    following: dict[int, int] = {}  # by birth: the birth of the next block of that line
    next_of: dict[object, int] = {}
    for block in reversed(blocks):
        following[block.birth] = next_of.get(block.of.stack, FOREVER)
        next_of[block.of.stack] = block.birth
    edits: dict[int, list[Block]] = {}
    taken: list[tuple[Frame | None, int]] = []
    for block in blocks:
        life = program.life(block)
        if life is None or not life.parts:
            continue
        until = _whole(life, following[block.birth], block.requested)
        part = _part(life, until) if until < block.end else None
        if part is None or _HALF * part.bytes * part.calls > block.requested:
            continue
        copy = program.with_bytes(block, part.bytes * part.calls)
        edits[id(block)] = [block.ending(until), replace(copy, birth=block.birth + 1)]
        taken.append((part.line, block.bytes))
    if not edits:
        return "no view of a part keeps a large tensor"
    lines = lines_of(taken)
    others = "".join(f", and in line {one.line}" for one in lines[1:])
    write = f".clone() of the part that this line takes{others}: a view keeps the whole tensor"
    edited = [one for block in blocks for one in edits.get(id(block), [block])]
    return Change(edited, lines[0], write, lines=tuple(lines))


CLONE_VIEW = Technique("clone_view", True, "good", clone_view, "the peak has the whole tensors anyway", reads=True)
