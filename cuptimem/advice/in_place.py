"""in_place: activation functions that saved their input for backward, though their output would do.

Only where nothing else can read the input: the layer before it stands in the same nn.Sequential, or in the argument of
the call itself. ReLU saves its output already, so it is no such function.
"""

import re
from collections.abc import Iterable
from dataclasses import replace

from cuptimem.advice.program import Block, Program
from cuptimem.advice.technique import Change, Technique
from cuptimem.report.stacks import Frame, user_frame

_NODES = ("LeakyReluBackward0", "EluBackward0", "HardtanhBackward0")
_MODULES = ("LeakyReLU", "ELU", "Hardtanh", "ReLU6")
_NAMED = 3
_FUNCTIONS = ("leaky_relu", "elu", "hardtanh", "relu6")
# Layers that need their input in backward, not the output that is overwritten.
_BEFORE = re.compile(r"^(?:Linear|Conv\w*|\w*BatchNorm\w*|GroupNorm|InstanceNorm\w*|LayerNorm)$")
_AHEAD = 16  # births: statistics of a norm may lie between the input and the output
_NEXT = 3  # of them that are large


def _function(block: Block) -> bool:
    return any(frame.function.split(".")[-1] in _FUNCTIONS for frame in block.of.stack[:2])


def _container(block: Block) -> tuple[Frame, ...]:
    """The stack from the nn.Sequential on that called the block's own module."""
    for i, frame in enumerate(block.of.stack):
        if frame.function == "Sequential.forward":
            inner = [one for one in block.of.stack[:i] if one.module is not None]
            return block.of.stack[i:] if len(inner) == 1 else ()
    return ()


def _layer(block: Block) -> str:
    return next((frame.module for frame in block.of.stack if frame.module is not None), "")


def _unread(source: Block, output: Block) -> bool:
    """Whether only the activation function can read its input."""
    if _BEFORE.match(_layer(source)) is None:
        return False
    if (around := _container(source)) and around == _container(output):
        return True
    one, other = user_frame(source.of.stack), user_frame(output.of.stack)
    if one is None or other is None or not one.same_line(other):
        return False
    return re.match(rf"[\w.]+\({re.escape(one.expression)}\s*[,)]", other.expression) is not None


def in_place(program: Program, blocks: list[Block], value: str) -> Change | str:
    forward = sorted((one for one in blocks if one.phase == "forward"), key=lambda one: one.birth)
    dropped: dict[int, Block] = {}
    longer: dict[int, Block] = {}
    largest: Block | None = None
    for i, source in enumerate(forward):
        if source.saved_by not in _NODES:
            continue
        large = [one for one in forward[i + 1 : i + _AHEAD] if one.bytes * 2 > source.bytes][:_NEXT]
        output = next((one for one in large if one.bytes == source.bytes and _function(one)), None)
        if output is not None and source.end > output.birth and _unread(source, output):
            dropped[id(output)] = output
            longer[id(source)] = replace(source, end=max(source.end, output.end))
            if largest is None or output.bytes > largest.bytes:
                largest = output
    if largest is None:
        return "no activation function saves an input that only it reads"
    edited = [longer.get(id(block), block) for block in blocks if id(block) not in dropped]
    return Change(edited, user_frame(largest.of.stack), _write(largest, dropped.values()))


def _write(largest: Block, outputs: Iterable[Block]) -> str:
    """The modules stand where they are made; the line that is known calls them, or a module around them."""
    layer = _layer(largest)
    if layer not in _MODULES:
        return "inplace=True in the activation function's call"
    names = sorted({one.module for one in outputs if one.module and _layer(one) == layer})
    named = f": {', '.join(names[:_NAMED])}{', ...' * (len(names) > _NAMED)}" if names else ""
    return f"inplace=True where the {layer} is made that this line calls{named}"


IN_PLACE = Technique("in_place", True, "exact", in_place)
