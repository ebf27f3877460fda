"""in_place: activation functions that saved their input for backward, though their output would do.

Only where nothing else can read the input: the layer before it stands in the same nn.Sequential, or in the argument of
the call itself. ReLU saves its output already, so it is no such function. Where readers are known, every elementwise
operator that is the last to read an input which autograd does not keep.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from cuptimem.advice.edits import Edits, worth
from cuptimem.advice.program import FOREVER, Block, Program
from cuptimem.advice.readers import Life
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
    return _read(program, blocks) if program.read else _by_frames(program, blocks)


# With an in-place variant that computes the same. Of the first ones autograd keeps the output where they are in place.
_KEEP_OUTPUT = frozenset({"leaky_relu", "elu", "hardtanh"})
_OPERATORS = re.compile(
    r"abs|add|addcdiv|addcmul|ceil|clamp|clamp_max|clamp_min|cos|div|elu|erf|exp|expm1|floor|hardsigmoid|hardswish|hardtanh"
    r"|leaky_relu|lerp|log|log1p|log2|masked_fill|mul|neg|pow|reciprocal|relu|remainder|round|rsqrt|sigmoid|silu|sin|sqrt"
    r"|sub|tanh"
)
_WITH_OPTION = ("leaky_relu", "elu", "hardtanh", "relu6", "relu", "silu", "hardswish", "hardsigmoid")
_OPTION_MODULES = (*_MODULES, "ReLU", "SiLU", "Hardswish", "Hardsigmoid")


def _read(program: Program, blocks: list[Block]) -> Change | str:
    """The output lies in the input, if that has no later reader and ends within the run: nothing read it again."""
    by_birth = {block.birth: block for block in blocks}
    places: dict[tuple[str, int], Edits] = defaultdict(dict)
    largest: dict[tuple[str, int], Block] = {}
    within: dict[int, Block] = {}  # the block in which an output lies, by the output's birth
    for output in blocks:
        life = program.life(output)
        name = _operator(life)
        frame = _editable(output)
        if life is None or frame is None or not _OPERATORS.fullmatch(name):
            continue
        inputs = (by_birth[birth] for birth in life.inputs if birth in by_birth)
        source = next((one for one in inputs if _is_unread(program.life(one), life, name, one, output)), None)
        if source is None:
            continue
        whole = within.get(source.birth, source)
        old, new = next((made[id(whole)] for made in places.values() if id(whole) in made), (whole, whole))
        within[output.birth] = whole
        place = frame.file, frame.line
        longer = replace(old, end=max(old.end if new is None else new.end, output.end))
        places[place] |= {id(whole): (whole, longer), id(output): (output, None)}
        if place not in largest or output.bytes > largest[place].bytes:
            largest[place] = output
    edited, chosen = worth(program, blocks, places)
    if not chosen:
        return "no elementwise operator at the peak is the last to read an input that autograd does not keep"
    output, *others = (largest[place] for place in chosen)
    also = [f"; line {frame.line}: {_say(program, other)}" for other in others if (frame := user_frame(other.of.stack))]
    return Change(edited, user_frame(output.of.stack), f"{_say(program, output)}{''.join(also)}")


def _operator(life: Life | None) -> str:
    return "" if life is None else life.operator.removeprefix("aten.").partition(".")[0]


def _editable(output: Block) -> Frame | None:
    """The user's line that calls the operator itself, or a function or module with an option for it."""
    for i, frame in enumerate(output.of.stack):
        if not frame.is_plumbing:
            return None if frame.is_library and not i else frame if not frame.is_library else None
        function = frame.function.rpartition(".")[2]
        if not (
            function in _WITH_OPTION or frame.file.endswith("/torch/_tensor.py") or frame.module in _OPTION_MODULES
        ):
            return None
    return None


def _is_unread(life: Life | None, by: Life, name: str, source: Block, output: Block) -> bool:
    """Whether the operator is the last reader of a source of the same size and type, which ends within the run."""
    if life is None or source.requested != output.requested or life.dtype != by.dtype or life.end >= FOREVER:
        return False
    if life.saved and (name not in _KEEP_OUTPUT or len(life.saved) > 1 or life.saved[0].number != by.number):
        return False
    return all(one.number <= by.number or (life.saved and one.node) for one in life.reads)


def _say(program: Program, output: Block) -> str:
    layer, name = _layer(output), _operator(program.life(output))
    if layer in _OPTION_MODULES or any(one.function.rpartition(".")[2] in _WITH_OPTION for one in output.of.stack[:2]):
        return _write(output, (output,))
    return f"{name}_(), which writes into its input, in the place of {name}: nothing reads that again"


def _by_frames(program: Program, blocks: list[Block]) -> Change | str:
    """Without readers."""
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
    if layer not in _OPTION_MODULES:
        return "inplace=True in the activation function's call"
    names = sorted({one.module for one in outputs if one.module and _layer(one) == layer})
    named = f": {', '.join(names[:_NAMED])}{', ...' * (len(names) > _NAMED)}" if names else ""
    return f"inplace=True where the {layer} is made that this line calls{named}"


IN_PLACE = Technique("in_place", True, "exact", in_place, reads=True)
