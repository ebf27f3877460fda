"""fused_attention: softmax(q k) v written by hand keeps the whole matrix of scores, several times."""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile

from cuptimem.advice.program import Block, Program, inside
from cuptimem.advice.technique import Change, Technique
from cuptimem.report.stacks import Frame, Stack, user_frame

_PRODUCT = re.compile(r"@|matmul|bmm|einsum")
_SOFTMAXES, _MULTIPLIES = re.compile(r"aten\._?softmax\."), re.compile(r"aten\.(?:matmul|b?mm|einsum)\.")
_BATCHED, _SOFTMAX = "BmmBackward0", "SoftmaxBackward0"
_COST = "rounding; not where the weights themselves are read"
# Nodes of other layers of a module, whose values may have the size of the weights.
_LAYERS = re.compile(r"(?:Addmm|Mm|Gelu|Relu|LeakyRelu|Elu|Silu|Tanh|Sigmoid)Backward")
_NEAR = 3  # births: between the weights and what their dropout makes
_WEIGHT = (2, 4)  # bytes of a weight; dropout's mask has one for each


def _is_attention(made: list[Block]) -> bool:
    """Of the blocks of one module that are as large as what softmax saved: a product made the scores, and in backward
    a batched product and softmax each made a gradient of them."""
    nodes = {block.node for block in made if block.node is not None}
    if any(_is_in_pytorch(frame) for block in made if block.saved_by == _SOFTMAX for frame in block.of.stack):
        return True
    product = any(block.phase == "forward" and _is_product(block) for block in made)
    return product and {_BATCHED, _SOFTMAX} <= nodes and not _is_ambiguous(made)


def _is_product(block: Block) -> bool:
    """PyTorch may have lines of its own between that and the operator."""
    inner = takewhile(lambda one: one.is_plumbing, block.of.stack)
    line = next((one for one in block.of.stack if not one.is_plumbing), None)
    return any(_PRODUCT.search(one.expression) for one in (*inner, *([line] if line is not None else ())))


def _is_ambiguous(made: list[Block]) -> bool:
    """A product behind a step's last softmax is as large as the scores, too: the values are as wide as the sequence is
    long, and sizes do not tell one from the other."""
    last: dict[int, int] = {}
    for block in made:
        if block.saved_by == _SOFTMAX:
            last[block.step] = max(block.birth, last.get(block.step, block.birth))
    return any(
        block.phase == "forward" and block.birth > last.get(block.step, block.birth) and _is_product(block)
        for block in made
    )


def _dropped(
    program: Program, blocks: list[Block], sizes: set[tuple[str | None, int]], gone: set[int]
) -> Iterator[Block]:
    """What dropout of the weights makes beside them, mostly in its own module: a mask, the weights with zeros, their
    gradient."""
    softmax = [one for one in blocks if id(one) in gone and _SOFTMAX in (one.saved_by, one.node)]
    places: dict[str, list[int]] = defaultdict(list)
    for one in sorted(softmax, key=lambda one: one.birth):
        places[one.phase].append(bisect_left(program.births, one.birth))
    of = {size: [module for module, other in sizes if other == size] for _, size in sizes}
    for block in blocks:
        is_mask = block.saved_by is not None and "Dropout" in block.saved_by
        is_other = block.saved_by == _BATCHED or (block.node is not None and "Dropout" in block.node)
        if not (is_mask or is_other):
            continue
        as_weights = [width * block.requested for width in _WEIGHT] if is_mask else [block.requested]
        modules = [module for size in as_weights for module in of.get(size, ())]
        at, there = bisect_left(program.births, block.birth), places[block.phase]
        is_near = any(abs(one - at) <= _NEAR for one in there[max(0, bisect_left(there, at) - 1) :][:2])
        if is_near and any(module is not None and inside(block.module, module) for module in modules):
            yield block


def _at_once(blocks: list[Block], gone: set[int]) -> list[Block]:
    """One node makes the gradients of queries, keys and values, where backward of the weights' product began. Those of
    queries and keys are the next ones of a batched product behind softmax's."""
    began: dict[tuple[str | None, int], int] = {}
    awaited: dict[tuple[str | None, int], int] = {}
    edited: list[Block] = []
    for block in sorted(blocks, key=lambda one: one.birth):
        call = block.module, block.step
        if id(block) in gone:
            if block.node == _BATCHED:
                began[call] = block.birth
            elif block.node == _SOFTMAX:
                awaited[call] = 2
            continue
        if block.node == _BATCHED and call in began and awaited.get(call):
            awaited[call] -= 1
            block = replace(block, birth=began[call])
        edited.append(block)
    return edited


def fused_attention(program: Program, blocks: list[Block], value: str) -> Change | str:
    saved = [block for block in blocks if block.saved_by == _SOFTMAX]
    if not saved:
        return _in_inference(program, blocks)
    sizes = {(block.module, block.requested) for block in saved}
    made: dict[tuple[str | None, int], list[Block]] = defaultdict(list)
    for block in blocks:
        is_other = any(one is not None and _LAYERS.match(one) for one in (block.saved_by, block.node))
        is_alike = (block.module, block.requested) in sizes and not is_other
        if is_alike and block.category in ("activation", "temporary"):
            made[block.module, block.requested].append(block)
    gone = {id(block) for some in made.values() if _is_attention(some) for block in some}
    if not gone:
        return "what softmax saved is not seen to be attention, or what else is made there has its size"
    seen = {key for key, some in made.items() if id(some[0]) in gone}
    gone |= {id(block) for block in _dropped(program, blocks, seen, gone)}
    largest = max((block for block in saved if id(block) in gone), key=lambda one: one.bytes)
    return Change(_at_once(blocks, gone), *_place(program, largest.of.stack), _COST)


def _in_inference(program: Program, blocks: list[Block]) -> Change | str:
    """Where autograd keeps nothing, readers see a softmax whose weights are multiplied. Scores of their size come from
    a product of the same module, unlike those of a linear layer that chooses among experts."""
    if program.beside is None:
        return "no softmax is saved for backward"
    lives = ((block, program.beside.life(block)) for block in program.beside.blocks)
    sizes = {
        (block.module, block.requested)
        for block, life in lives
        if life is not None
        and _SOFTMAXES.match(life.operator)
        and any(_MULTIPLIES.match(one.operator) for one in life.reads)
    }
    alike = [one for one in blocks if (one.module, one.requested) in sizes and one.phase == "forward"]
    products = {(one.module, one.requested) for one in alike if _is_product(one)}
    gone = [one for one in alike if (one.module, one.requested) in products]
    if not gone:
        return "no weights of a softmax are multiplied with anything"
    ids = {id(block) for block in gone}
    largest = max(gone, key=lambda one: (one.alive(program.at), one.bytes))
    return Change([one for one in blocks if id(one) not in ids], *_place(program, largest.of.stack), _COST)


def _place(program: Program, stack: Stack) -> tuple[Frame | None, str]:
    """Where to write what."""
    if any(_is_in_pytorch(one) for one in stack):
        return user_frame(stack), "need_weights=False in the call of nn.MultiheadAttention"
    if any("/transformers/" in one.file for one in stack[:4]):
        models = (program.beside or program).models
        if len(models) == 1:
            return models[0], 'attn_implementation="sdpa" for the model of this line'
        return user_frame(stack), 'attn_implementation="sdpa" where the model is made'
    # PyTorch takes its plain one, which keeps the weights, where the last dimension is not contiguous.
    each = "each (batch, heads, length, width), contiguous in width"
    write = f"F.scaled_dot_product_attention(q, k, v), {each}, for softmax(q @ k) @ v"
    return user_frame(stack), write


def _is_in_pytorch(frame: Frame) -> bool:
    return frame.is_plumbing and frame.function == "multi_head_attention_forward"


_OF_LIBRARIES = 'the library\'s fused attention: attn_implementation="sdpa", fused_attn=True, need_weights=False'
FUSED_ATTENTION = Technique("fused_attention", True, "rough", fused_attention, words=(_OF_LIBRARIES, _COST))
