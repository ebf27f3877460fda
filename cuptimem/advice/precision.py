"""half_model: weights and all that is made with them in 16 bits."""

from cuptimem.advice.program import Block, Program, of_category
from cuptimem.advice.technique import Change, Technique
from cuptimem.report.stacks import Frame, Stack, user_frame

_SMALL = 512
_FOLLOWS = ("parameter", "buffer", "gradient", "optimizer state", "activation", "kept", "temporary", "bucket")


def _made_at(stack: Stack) -> Frame | None:
    """The user's line that makes the whole model: no __init__ around it."""
    for outer, inner in zip(stack[:0:-1], stack[-2::-1], strict=True):
        if not outer.is_library and inner.function.endswith("__init__"):
            return outer
    return user_frame(stack)


def half_model(program: Program, blocks: list[Block], value: str) -> Change | str:
    parameters = list(of_category(blocks, "parameter"))
    if not parameters:
        return "no parameter is seen"
    if any(of_category(blocks, "autocast cache")):
        return "autocast makes 16 bits of them already"
    edited = [
        program.with_bytes(block, block.requested // 2)
        if block.category in _FOLLOWS and block.requested > _SMALL
        else block
        for block in blocks
    ]
    frame = _made_at(max(parameters, key=lambda one: one.bytes).of.stack)
    cost = "numerics: weights of 16 bits hardly take small updates" if program.trained else "numerics"
    return Change(edited, frame, "model.to(torch.bfloat16), if it is float32, and its inputs", cost)


HALF_MODEL = Technique("half_model", False, "rough", half_model)
