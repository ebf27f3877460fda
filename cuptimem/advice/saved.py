"""offload: what forward saves for backward waits in host memory."""

from dataclasses import replace

from cuptimem.advice.program import FOREVER, GAP, Block, Program, call_line, total
from cuptimem.advice.technique import Change, Technique
from cuptimem.words import size

_FORWARD_LIFE = 3  # births


def offload(program: Program, blocks: list[Block], value: str) -> Change | str:
    if program.device == "cpu":
        return "what is saved lies in host memory already"
    edited, moved = [], []
    for block in blocks:
        leaves, back = _away(program, block)
        life = program.life(block)
        saved = block.category == "activation" and block.saved_by if life is None else life.saved
        if saved and block.phase == "forward" and leaves < back and block.end < FOREVER:
            edited += [block.ending(leaves), *([replace(block, birth=back)] if back < block.end else [])]
            moved.append(block)
        else:
            edited.append(block)
    if not moved:
        return "nothing is saved for backward"
    last = max(block.step for block in moved)
    there = total(block for block in moved if block.step == last)
    write = "with torch.autograd.graph.save_on_cpu(pin_memory=True): around this line"
    frame = call_line(max(moved, key=lambda one: one.bytes).of.stack)
    return Change(edited, frame, write, f"{size(there)} to the host and back in each step")


def _away(program: Program, block: Block) -> tuple[int, int]:
    """From when on it is on the host alone, and when it is back."""
    life = program.life(block)
    if life is None:
        return program.later_birth(block.birth, _FORWARD_LIFE), block.end - GAP - 1
    used = min((one.used for one in life.saved), default=FOREVER)
    read = (one.at for one in life.reads if one.at < used)
    return max((block.birth, *read, *(one.gone for one in life.held if one.made < used))), min(used, block.end)


OFFLOAD = Technique("offload", False, "rough", offload, costs="time", reads=True)
