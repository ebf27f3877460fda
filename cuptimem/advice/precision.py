"""half_model, single_precision: weights and all that is made with them, in half the bytes."""

from cuptimem.advice.data import is_cached
from cuptimem.advice.program import Block, Program, of_category
from cuptimem.advice.technique import Change, Technique
from cuptimem.report.stacks import Frame, Stack, function, user_frame

_SMALL = 512
_FOLLOWS = ("parameter", "buffer", "gradient", "optimizer state", "activation", "kept", "temporary", "bucket")


def _makes_module(frame: Frame, called: frozenset[str]) -> bool:
    """Whether it is the __init__ of a module, not of a trainer or a server that has one, be it a library's. called:
    classes of modules that ran; of a program that ran none, any may be."""
    owner, _, name = function(frame).rpartition(".")
    return name == "__init__" and (frame.is_plumbing or not called or owner.rpartition(".")[2] in called)


def _made_at(stack: Stack, called: frozenset[str]) -> Frame | None:
    """The user's line that makes the whole model: the one that moves it, or the outermost that makes a module."""
    users = user_frame(stack)
    if users is not None and (".to(" in users.text or ".cuda(" in users.text):
        return users
    for outer, inner in zip(stack[:0:-1], stack[-2::-1], strict=True):
        if not outer.is_library and _makes_module(inner, called):
            return outer
    return users


def _halved(program: Program, blocks: list[Block]) -> list[Block]:
    return [
        program.with_bytes(block, block.requested // 2)
        if block.category in _FOLLOWS and block.requested > _SMALL and not is_cached(program, block)
        else block
        for block in blocks
    ]


def _model_line(program: Program, blocks: list[Block]) -> Frame | None:
    """Of the largest parameter that no call made, as a lazy layer's are; else of the largest."""
    parameters = sorted(of_category(blocks, "parameter"), key=lambda one: (bool(one.of.modules), -one.bytes))
    return _made_at(parameters[0].of.stack, program.called) if parameters else None


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
    return Change(_halved(program, blocks), _model_line(program, blocks), write, cost)


def single_precision(program: Program, blocks: list[Block], value: str) -> Change | str:
    """Of a model of 64 bits all that is made with it has them, its inputs too. Data alone shows no type."""
    if program.types != {"float64"}:
        return "no parameter is float64" if program.types else "no parameter's type is known"
    edited = [
        program.with_bytes(block, block.requested // 2) if block.category == "input" else block
        for block in _halved(program, blocks)
    ]
    return Change(
        edited, _model_line(program, blocks), "float32 for the model, and for its inputs", "7 digits in the place of 16"
    )


HALF_MODEL = Technique("half_model", False, "rough", half_model, costs="rounding")
SINGLE_PRECISION = Technique("single_precision", False, "good", single_precision, costs="rounding")
