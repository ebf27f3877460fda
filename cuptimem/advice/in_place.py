"""in_place: activation functions that saved their input for backward, though their output would do.

Only where nothing that is known can read the input: the layer before it stands in the same nn.Sequential, or in the
argument of the call itself. ReLU saves its output already, so it is no such function. Where readers are known, every
elementwise operator that is the last to read an input which autograd does not keep.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from cuptimem.advice.edits import Edits, worth
from cuptimem.advice.program import FOREVER, Block, Program
from cuptimem.advice.readers import Life, Operand
from cuptimem.advice.technique import UNREAD, Change, Technique
from cuptimem.report.stacks import Frame, user_frame

# No free change: code that the run did not come to may keep the input, in ways that no source shows (a hook, a helper).
_COST = "care: what else reads the input, in code that this run did not reach, reads the result"
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
    return _called(block)[0]


def _called(block: Block) -> tuple[str, int]:
    """The innermost module: its class and its address."""
    frames = ((one.module, one.module_address) for one in block.of.stack if one.module is not None)
    return next(frames, ("", 0))


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


_Place = tuple[str, int, str]  # a line, and an operator that it calls


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
    """The output lies in the input, if nothing can read that later and it ends within the run. A line that calls the
    operator several times has none of them where one of them must stay."""
    by_birth = {block.birth: block for block in blocks}
    places: dict[_Place, Edits] = defaultdict(dict)
    largest: dict[_Place, tuple[Block, Operand]] = {}
    within: dict[int, Block] = {}  # the block in which an output lies, by the output's birth
    stay: set[_Place | str | None] = set()
    modules: dict[_Place, set[str | None]] = defaultdict(set)  # one that two lines call is in place for both
    kept: set[int] = set()  # outputs that autograd keeps where they lie in their inputs, by birth
    for output in blocks:
        life = program.life(output)
        is_made = output.phase != "backward" and output.birth not in program.scratch
        frame = _editable(output) if is_made else None
        if frame is None:
            continue
        place = frame.file, frame.line, _operator(life)  # "": of all that the line calls nothing is known
        into = None if life is None else _into(program, life, output, by_birth)
        module = output.module if _layer(output) in _OPTION_MODULES else None
        if into is None or into.birth in kept:
            if life is None or into is not None or not _is_cut_short(life, by_birth):
                stay |= {place, module}
            continue
        modules[place].add(module)
        source = by_birth[into.birth]
        if (of := program.life(source)) is not None and of.saved:
            kept.add(output.birth)
        whole = within.get(source.birth, source)
        old, new = next((made[id(whole)] for made in places.values() if id(whole) in made), (whole, whole))
        within[output.birth] = whole
        longer = replace(old, end=max(old.end if new is None else new.end, output.end))
        places[place] |= {id(whole): (whole, longer), id(output): (output, None)}
        if place not in largest or output.bytes > largest[place][0].bytes:
            largest[place] = output, into
    stay.discard(None)
    surely = {place: made for place, made in places.items() if not {place, (*place[:2], ""), *modules[place]} & stay}
    edited, chosen = worth(program, blocks, surely, lambda place: place[:2])
    if not chosen:
        return "no elementwise operator at the peak is surely the last to read an input that autograd does not keep"
    said: dict[tuple[str, int], list[str]] = defaultdict(list)
    for place in chosen:
        said[place[:2]].append(_say(program, *largest[place], modules[place]))
    first, *others = [(line, ", and ".join(words)) for (_, line), words in said.items()]
    also = [f"; line {line}: {words}" for line, words in others]
    operators = tuple((*place, largest[place][1].argument) for place in chosen)
    frame = user_frame(largest[chosen[0]][0].of.stack)
    return Change(edited, frame, f"{first[1]}{''.join(also)}", _COST, operators=operators)


def _operator(life: Life | None) -> str:
    return "" if life is None else life.operator.removeprefix("aten.").partition(".")[0]


def _editable(output: Block) -> Frame | None:
    """The user's line that calls the operator itself, or a function or module with an option for it. A Sequential
    between lets go of what it gives to the next layer."""
    for i, frame in enumerate(output.of.stack):
        if not frame.is_plumbing:
            return None if frame.is_library and not i else frame if not frame.is_library else None
        if frame.file.endswith("/torch/nn/modules/module.py"):
            continue  # the call of a module
        owner, _, function = frame.function.rpartition(".")
        of_tensor = frame.file.endswith("/torch/_tensor.py") and not function.startswith("__r")  # 1 / x: no operand
        has_option = function in _WITH_OPTION or owner in _OPTION_MODULES or frame.module in _OPTION_MODULES
        if not (has_option or of_tensor or (i and frame.function == "Sequential.forward")):
            return None
    return None


def _into(program: Program, life: Life, output: Block, by_birth: dict[int, Block]) -> Operand | None:
    """The operand in whose place the output could lie."""
    name = _operator(life)
    if not _OPERATORS.fullmatch(name):
        return None
    for one in life.into:
        source = by_birth.get(one.birth)
        of = program.life(source) if source is not None else None
        if source is None or of is None or not _is_unread(of, life, name, one):
            continue
        # What the call itself made on the way, as autocast's copies, is no operand of the user's.
        is_outside = _called(source) != _called(output) or user_frame(source.of.stack) != user_frame(output.of.stack)
        if (one.name or is_outside) and _is_of_one_function(source, output):
            return one
    return None


def _is_of_one_function(source: Block, output: Block) -> bool:
    """What a caller gave to the function, another caller may read again; a function that has returned may keep it."""
    frames = user_frame(source.of.stack), user_frame(output.of.stack)
    return len({(one.file, one.function) for one in frames if one is not None}) == 1 and None not in frames


def _is_cut_short(life: Life, by_birth: dict[int, Block]) -> bool:
    """Whether the run ended before an operand did."""
    sources = (by_birth.get(one.birth) for one in life.into)
    return any(one is not None and one.end >= FOREVER for one in sources)


def _is_unread(source: Life, by: Life, name: str, operand: Operand) -> bool:
    """Whether the operator is its last reader, and nothing but variables that are dead holds it then."""
    is_held = any(one.made <= by.next < min(one.gone, one.unread) for one in source.held)
    if source.end >= FOREVER or (is_held and not operand.idle):
        return False
    if source.saved:
        keeps_output = name in _KEEP_OUTPUT and operand.grad and len(source.saved) == 1
        if not keeps_output or source.saved[0].number != by.number:
            return False
    return all(one.number <= by.number or (source.saved and one.node) for one in source.reads)


def _say(program: Program, output: Block, into: Operand, modules: set[str | None]) -> str:
    layer, name = _layer(output), _operator(program.life(output))
    if layer in _OPTION_MODULES or any(one.function.rpartition(".")[2] in _WITH_OPTION for one in output.of.stack[:2]):
        return _write(output, modules)
    if into.name:
        return f"{into.name}.{name}_(), which writes into {into.name}, in the place of {name}: nothing reads that again"
    return f"{name}_(), which writes into {into.words}, in the place of {name}: nothing reads that again"


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
    return Change(
        edited,
        user_frame(largest.of.stack),
        _write(largest, {one.module for one in dropped.values() if _layer(one) == _layer(largest)}),
        _COST,
    )


def _write(largest: Block, modules: Iterable[str | None]) -> str:
    """The modules stand where they are made; the line that is known calls them, or a module around them."""
    layer = _layer(largest)
    if layer not in _OPTION_MODULES:
        return "inplace=True in the activation function's call"
    names = sorted(one for one in modules if one)
    named = f": {', '.join(names[:_NAMED])}{', ...' * (len(names) > _NAMED)}" if names else ""
    return f"inplace=True where the {layer} is made that this line calls{named}"


IN_PLACE = Technique("in_place", False, "exact", in_place, reads=True, unread=UNREAD)
