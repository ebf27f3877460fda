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
        leaves = program.later_birth(block.birth, _FORWARD_LIFE)
        saved = block.category == "activation" and block.phase == "forward" and block.saved_by
        if saved and leaves < block.end - GAP and block.end < FOREVER:
            edited += [block.ending(leaves), replace(block, birth=block.end - GAP - 1)]
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


OFFLOAD = Technique("offload", False, "rough", offload, costs="time")
