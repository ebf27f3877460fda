"""offload: what forward saves for backward waits in host memory."""

from dataclasses import replace

from cuptimem.advice.program import FOREVER, GAP, Block, Program, call_line, total
from cuptimem.advice.readers import Life
from cuptimem.advice.technique import Change, Technique
from cuptimem.words import size

_FORWARD_LIFE = 3  # births
_WORDS = (
    "with torch.autograd.graph.save_on_cpu(pin_memory=True): around this line",
    "to the host and back in each step",
)
_MODELS = ("parameter", "buffer")  # held by more than is followed from the operator that made it


def offload(program: Program, blocks: list[Block], value: str) -> Change | str:
    if program.device == "cpu":
        return "what is saved lies in host memory already"
    edited, moved = [], []
    for block in blocks:
        life = program.life(block)
        parts = _by_phases(program, block) if life is None else _read(program, block, life)
        edited += parts
        if parts[0].end < block.end:
            moved.append(block)
    if not moved:
        return "nothing is saved for backward"
    last = max(block.step for block in moved)
    there = total(block for block in moved if block.step == last)
    frame = call_line(max(moved, key=lambda one: one.bytes).of.stack)
    return Change(edited, frame, _WORDS[0], f"{size(there)} {_WORDS[1]}")


def _by_phases(program: Program, block: Block) -> list[Block]:
    """It is away from behind its neighbours until just before it ends."""
    leaves, back = program.later_birth(block.birth, _FORWARD_LIFE), block.end - GAP - 1
    is_saved = block.phase == "forward" and block.category == "activation" and block.saved_by
    if not is_saved or leaves >= back or block.end == FOREVER:
        return [block]
    return [block.ending(leaves), replace(block, birth=back)]


def _read(program: Program, block: Block, life: Life) -> list[Block]:
    """It ends with what else holds and reads it in forward. Each node that asks for it has a copy of its own. What is
    not contiguous becomes so on the device, on its way to the host."""
    if life.node or not life.saved:
        return [block]
    used = min(one.used for one in life.saved)
    ends = [one.at for one in life.reads if one.at < used] + [one.gone for one in life.handles]
    parts = [block if block.category in _MODELS else block.ending(max([block.birth, *ends]))]
    for one in life.saved:
        copy = program.with_bytes(block, one.bytes)
        if one.used < FOREVER:
            # Where the graph stays, each node that runs has a copy for itself.
            reads = [one.used + 1, *(read.at for read in life.reads if read.at >= one.used)]
            parts.append(replace(copy, birth=one.used, end=one.gone if one.in_backward else min(one.gone, max(reads))))
        if not one.is_contiguous:
            parts.append(replace(copy, birth=one.made, end=one.made + 1))
    return parts


OFFLOAD = Technique("offload", False, "rough", offload, costs="time", reads=True, words=_WORDS)
