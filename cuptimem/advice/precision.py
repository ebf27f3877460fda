"""half_model, single_precision: weights and all that is made with them, in half the bytes."""

from cuptimem.advice.data import is_cached
from cuptimem.advice.program import Block, Program, of_category
from cuptimem.advice.technique import Change, Technique
from cuptimem.report.stacks import Frame, Stack, user_frame

_SMALL = 512
_FOLLOWS = ("parameter", "buffer", "gradient", "optimizer state", "activation", "kept", "temporary", "bucket")


def _made_at(stack: Stack) -> Frame | None:
    """The user's line that makes the whole model: the one that moves it, or the outermost that makes a module."""
    users = user_frame(stack)
    if users is not None and (".to(" in users.text or ".cuda(" in users.text):
        return users
    for outer, inner in zip(stack[:0:-1], stack[-2::-1], strict=True):
        if not outer.is_library and inner.function.endswith("__init__"):
            return outer
    return users


def _halved(program: Program, blocks: list[Block]) -> list[Block]:
    return [
        program.with_bytes(block, block.requested // 2)
        if block.category in _FOLLOWS and block.requested > _SMALL and not is_cached(program, block)
        else block
        for block in blocks
    ]


def _model_line(blocks: list[Block]) -> Frame | None:
    most = max(of_category(blocks, "parameter"), key=lambda one: one.bytes, default=None)
    return None if most is None else _made_at(most.of.stack)


def half_model(program: Program, blocks: list[Block], value: str) -> Change | str:
    if next(of_category(blocks, "parameter"), None) is None:
        return "no parameter is seen"
    if any(of_category(blocks, "autocast cache")):
        return "autocast makes 16 bits of them already"
    if program.types and "float32" not in program.types:
        return f"its parameters are {' and '.join(sorted(program.types))}"
    doubt = "" if program.types == {"float32"} else ", where it is float32"
    cost = "numerics: weights of 16 bits hardly take small updates" if program.trained else "numerics"
    write = f"model.to(torch.bfloat16){doubt}, and its inputs"
    return Change(_halved(program, blocks), _model_line(blocks), write, cost)


def single_precision(program: Program, blocks: list[Block], value: str) -> Change | str:
    """Of a model of 64 bits all that is made with it has them, its inputs too. Data alone shows no type."""
    if program.types != {"float64"}:
        return "no parameter is float64" if program.types else "no parameter's type is known"
    edited = [
        program.with_bytes(block, block.requested // 2) if block.category == "input" else block
        for block in _halved(program, blocks)
    ]
    return Change(
        edited, _model_line(blocks), "float32 for the model, and for its inputs", "7 digits in the place of 16"
    )


HALF_MODEL = Technique("half_model", False, "rough", half_model, costs="rounding")
SINGLE_PRECISION = Technique("single_precision", False, "good", single_precision, costs="rounding")
