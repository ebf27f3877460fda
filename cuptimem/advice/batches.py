"""batch, accumulate: blocks whose size follows the batch's."""

import re
from dataclasses import replace

from cuptimem.advice.program import GAP, Block, Program, of_category
from cuptimem.advice.technique import Change, Technique

_FIXED = (
    "parameter", "buffer", "gradient", "optimizer state", "before start", "loaded", "bucket", "workspace",
    "autocast cache", "unknown",
)  # fmt: skip
_SMALL = 512
_WEIGHTS = re.compile(r"^(?:Addmm|Mm|Convolution|Cudnn\w*|Embedding|Linear)Backward")


def scaled(program: Program, blocks: list[Block], factor: float) -> list[Block]:
    """What training makes for the batch grows with it; a node's temporary of exactly a parameter's size does not."""
    parameters = {block.bytes for block in of_category(blocks, "parameter", "gradient")}

    def fixed(block: Block) -> bool:
        if block.step < 0 or block.step in program.evaluated or block.of.stack in program.evaluating:
            return True  # evaluation has a batch of its own
        if block.category in _FIXED or block.phase == "optimizer" or block.requested <= _SMALL:
            return True
        return block.bytes in parameters and block.node is not None and _WEIGHTS.match(block.node) is not None

    return [block if fixed(block) else program.with_bytes(block, round(block.requested * factor)) for block in blocks]


def _factor(value: str) -> float | None:
    """x2, or 64:8: 64 in the place of 8."""
    if (found := re.fullmatch(r"[x*]?(\d+(?:\.\d+)?)(?::(\d+))?", value)) is None:
        return None
    if found[2] is None:
        return float(found[1]) if value[0] in "x*" and float(found[1]) > 0 else None
    return float(found[1]) / int(found[2]) if int(found[2]) and float(found[1]) else None


def batch(program: Program, blocks: list[Block], value: str) -> Change | str:
    factor = _factor(value)
    if factor is None:
        return "say how much larger the batch is: batch=x2, or batch=64:8 for 64 in the place of the recorded 8"
    if not program.steps:
        return "nothing was recorded in steps"
    note = "what does not follow the batch: parameters, gradients, states, workspaces, what was made outside of steps"
    return Change(scaled(program, blocks, factor), None, "another batch size", "it learns differently", note)


def accumulate(program: Program, blocks: list[Block], value: str) -> Change | str:
    """Smaller blocks; gradients are there from the step's start, and the value that is added beside each."""
    parts = int(value) if value.isdigit() and int(value) > 0 else 2
    frame = program.forward_frame
    if frame is None:
        return "no gradient was made in a step"
    if not value and any(one.step in program.evaluated and one.begin <= program.at < one.end for one in program.steps):
        return "the peak is in evaluation"
    edited: list[Block] = []
    begin = {one.step: one.begin for one in program.stretches}
    for block in scaled(program, blocks, 1 / parts):
        end = program.step_end(block.step)
        if block.category != "gradient" or block.phase != "backward" or block.step not in begin or end is None:
            edited.append(block)
            continue
        edited.append(replace(block, birth=begin[block.step] + 1, end=min(block.end, end)))
        edited.append(replace(block, end=min(block.end, block.birth + GAP + GAP // 2)))
    write = f"forward of this line and its backward pass for each of {parts} parts of the batch, then one step"
    return Change(edited, frame, write, f"{parts} times the launches")


BATCH = Technique("batch", False, "good", batch, asked_only=True)
ACCUMULATE = Technique("accumulate", False, "good", accumulate)
