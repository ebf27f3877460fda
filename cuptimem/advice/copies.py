"""expand: copies along a new dimension, where a view reads the same."""

import ast
import re

from cuptimem.advice.program import Block, Program
from cuptimem.advice.technique import Change, Technique
from cuptimem.report.stacks import Stack, user_frame

# Nodes that need a tensor whose elements lie side by side: they would copy the view.
_COPIERS = ("BmmBackward0", "MmBackward0", "AddmmBackward0", "ConvolutionBackward0")
_COPYING = re.compile(r"aten\.(?:flatten|reshape|contiguous|clone|matmul|b?mm|addmm|baddbmm|linear|conv\w*)\.")


def _new_dimension(node: ast.expr) -> int | None:
    """The number of a dimension of length 1 that an expression adds: x.unsqueeze(1), x[:, None]."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "unsqueeze":
        argument = node.args[0] if len(node.args) == 1 else None
        return argument.value if isinstance(argument, ast.Constant) and isinstance(argument.value, int) else None
    if isinstance(node, ast.Subscript):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        new = [i for i, part in enumerate(parts) if isinstance(part, ast.Constant) and part.value is None]
        whole = all(isinstance(part, ast.Slice) and part.lower is part.upper is part.step is None
                    for i, part in enumerate(parts) if i not in new)  # fmt: skip
        return new[0] if len(new) == 1 and whole else None
    return None


def repeats_new_dimension(expression: str) -> bool:
    """Whether it is a repeat() along nothing but a dimension that it has just added."""
    try:
        node = ast.parse(expression.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return False
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "repeat"):
        return False
    added = _new_dimension(node.func.value)
    times = node.args
    if len(times) == 1 and isinstance(times[0], ast.Tuple | ast.List):
        times = times[0].elts
    several = [i for i, one in enumerate(times) if not (isinstance(one, ast.Constant) and one.value == 1)]
    return added is not None and 0 <= added < len(times) and several == [added]


def _repeats(program: Program) -> set[tuple[Stack, int]]:
    """Where readers saw a repeat() along nothing but dimensions of length 1, and of which sizes."""
    found = set()
    for block in program.blocks:
        life = program.life(block)
        if life is None or not life.operator.startswith("aten.repeat.") or len(life.inputs) != 1:
            continue
        source = program.read.get(life.inputs[0])
        if source is not None and source.shape and len(source.shape) <= len(life.shape):
            lengths = (1,) * (len(life.shape) - len(source.shape)) + source.shape
            if all(one in (1, made) for one, made in zip(lengths, life.shape, strict=True)):
                found.add((program.stack(block), block.requested))
    return found


def _copied(program: Program) -> set[Stack]:
    """Where a view would be copied by what reads it."""
    lives = ((block, program.life(block)) for block in program.blocks)
    return {
        program.stack(block)
        for block, life in lives
        if life is not None and any(_COPYING.match(one.operator) for one in life.reads)
    }


def expand(program: Program, blocks: list[Block], value: str) -> Change | str:
    copies: dict[int, Block] = {}
    repeats = _repeats(program.beside or program)
    for block in blocks:
        frame = user_frame(block.of.stack)
        if frame is None or block.node is not None or block.saved_by in _COPIERS:
            continue
        if (program.stack(block), block.requested) in repeats or repeats_new_dimension(frame.expression):
            copies[id(block)] = block
    if not copies:
        return "no repeat() of a dimension of length 1 is seen"
    copied = _copied(program.beside or program)
    copies = {key: block for key, block in copies.items() if program.stack(block) not in copied}
    if not copies:
        return "what reads it would copy a view"
    alive = [block for block in copies.values() if block.alive(program.at)] or list(copies.values())
    largest = max(alive, key=lambda one: one.bytes)
    edited = [block for block in blocks if id(block) not in copies]
    write = "expand() with -1 for each 1, for repeat(): where nothing writes into it"
    return Change(edited, user_frame(largest.of.stack), write)


EXPAND = Technique("expand", True, "good", expand)
