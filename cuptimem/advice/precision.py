"""half_model, single_precision: weights and all that is made with them, in half the bytes."""

import re
from collections.abc import Sequence
from dataclasses import replace
from math import prod

from cuptimem.advice.data import is_cached
from cuptimem.advice.program import Block, Program, of_category
from cuptimem.advice.readers import Cast, Life, Narrowed, Saved, Scratch
from cuptimem.advice.technique import Change, Technique
from cuptimem.report.stacks import Frame, Stack, function, user_frame

_SMALL = 512
_DIGITS = "7 digits in the place of 16"
_PRODUCTS = re.compile(r"mm\b|conv|linear|attention|lstm|gru|rnn|norm")  # they take operands of one type
_SUMS = re.compile(r"^aten\.(?:nan)?(?:sum|mean|var|var_mean|std|std_mean|prod|linalg_vector_norm)\.")
_FOLLOWS = ("parameter", "buffer", "gradient", "optimizer state", "activation", "kept", "temporary", "bucket")


def _makes_module(frame: Frame, called: frozenset[str]) -> bool:
    """Whether it is the __init__ of a module, not of a trainer or a server that has one, be it a library's. called:
    classes of modules that ran; of a program that ran none, any may be."""
    owner, _, name = function(frame).rpartition(".")
    return name == "__init__" and (frame.is_plumbing or not called or owner.rpartition(".")[2] in called)


def _made_at(stack: Stack, called: frozenset[str], models: Sequence[Frame]) -> Frame | None:
    """The user's line that makes the whole model: the one that moves it, or the outermost that makes a module. Where a
    library moves it, that of the only model of transformers."""
    users = user_frame(stack)
    if users is not None and (".to(" in users.text or ".cuda(" in users.text):
        return users
    for outer, inner in zip(stack[:0:-1], stack[-2::-1], strict=True):
        if not outer.is_library and _makes_module(inner, called):
            return outer
    return models[0] if len(models) == 1 else users


def _halved(program: Program, blocks: list[Block], of: str) -> list[Block]:
    """of: the type that shrinks, where types are known. Of float32 the copies in 32 bits that a library makes stay."""
    copies = _Copies(program) if of == "float32" else None
    is_model = of == "float32" or program.types == {of}
    edited: list[Block] = []
    for block in blocks:
        life = program.life(block)
        follows = block.category in _FOLLOWS or (block.category == "input" and block.step >= 0 and life is not None)
        # What cuBLAS keeps has a size of its own; what a convolution takes is of its input's size.
        follows = follows or (block.category == "workspace" and block.end_step == block.step)
        if life is not None:
            follows = life.dtype == of and (follows or of == "float64")
        follows = follows and (life is not None or is_model)
        half = program.with_bytes(block, block.requested // 2)
        # Of 64 bits all data becomes smaller, not just what the model computes.
        follows = follows and (of == "float64" or block.category != "kept" or _is_of_weights(program, block))
        scratch = program.scratch.get(block.birth)
        if not follows or block.requested <= _SMALL or is_cached(program, block):
            edited.append(block)
        elif copies is not None and scratch is not None:
            edited += copies.scratch(block, half, scratch)
        else:
            edited += [half] if copies is None or life is None else copies.made(block, half, life)
    return edited


def _is_of_weights(program: Program, block: Block) -> bool:
    """Whether it is computed from weights, as outputs are and a replay buffer's states are not: by a module's call or
    what autograd runs, with readers also of what these made; or it has a parameter's size, as a copy has."""
    return block.birth in program.of_calls or block.requested in program.parameter_sizes


class _Copies:
    """What has 32 bits in a model of 16: copies that a library asks for, and what is computed from these until the
    function that asked returns."""

    def __init__(self, program: Program) -> None:
        self._lives = program.read
        self._wide: dict[int, Cast] = {}  # the cast that a block's operator read, by the block's birth
        for birth in sorted(self._lives):
            if (cast := self._inherited(self._lives[birth])) is not None:
                self._wide[birth] = cast

    def _inherited(self, life: Life) -> Cast | None:
        """Operands are promoted, but for products: these take one type. Nor does a gradient widen what it meets."""
        sources = (self._lives[one] for one in life.inputs if one in self._lives)
        large = [one for one in sources if one.dtype == "float32" and 4 * prod(one.shape) > _SMALL]
        casts = [cast for one in large if (cast := self._read(one, life)) is not None]
        takes_one = life.node or _PRODUCTS.search(life.operator)
        if not casts or (takes_one and len(casts) < len(large)):
            return None
        return max(casts, key=lambda one: one.last)

    def _read(self, source: Life, by: Life) -> Cast | None:
        """The cast in which an operator reads what another one has made."""
        made = self._wide.get(source.birth)
        if made is not None and source.node:
            return made
        for cast in (*source.casts, *([made] if made is not None else [])):
            narrowed = source.narrowed if cast is made else None
            is_wide = narrowed is None or by.number < narrowed.first
            saved = _saved(source, cast)[: None if narrowed is None else narrowed.saved]
            if saved if by.node else cast.first <= by.number < cast.last and is_wide:
                return cast
        return None

    def scratch(self, block: Block, half: Block, made: Scratch) -> list[Block]:
        """Sums are of 32 bits. What made a part contiguous is not there where a copy in 32 bits is made of that."""
        sources = [self._lives[one] for one in made.inputs if one in self._lives]
        copied = [one for one in sources if any(cast.first <= made.number < cast.last for cast in one.casts)]
        if _SUMS.search(made.operator):
            return [block]
        if any(block.requested < 4 * prod(one.shape) for one in copied):
            return []
        return [block if copied or any(one.birth in self._wide for one in sources) else half]

    def made(self, block: Block, half: Block, life: Life) -> list[Block]:
        whole = self._wide.get(block.birth)
        if whole is None:
            copies = [(one.made, end) for one in life.casts if (end := _until(life, one)) > one.made]
            ends = (_beside(life, life.casts), *(one.gone for one in life.handles), *(made for made, _ in copies))
            return [half.ending(max(ends)), *(replace(block, birth=made, end=end) for made, end in copies)]
        if life.narrowed is not None and not life.node:
            return _narrowing(block, half, life, life.narrowed, whole)
        if life.node or _beside(life, [whole]) <= whole.gone:
            return [block]
        return [block.ending(max(whole.gone, _until(life, whole))), replace(half, birth=whole.gone)]


def _narrowing(block: Block, half: Block, life: Life, narrowed: Narrowed, whole: Cast) -> list[Block]:
    """What the copy in 16 bits leaves of the block, and that copy."""
    held = max((one.gone for one in life.handles), default=0)
    ends = {True: [min(held, whole.gone)], False: [held] if held > whole.gone else []}  # by whether it has 32 bits
    for i, saved in enumerate(life.saved):
        ends[i < narrowed.saved].append(saved.gone)
    for read in life.reads:
        if not read.node:
            ends[read.number < narrowed.first].append(read.at)
    end = max(ends[False], default=0)
    return [block.ending(max(ends[True])), *([replace(half, birth=narrowed.made, end=end)] if end else [])]


def _saved(life: Life, cast: Cast) -> list[Saved]:
    return [one for one in life.saved if cast.first <= one.number <= cast.last]


def _until(life: Life, cast: Cast) -> int:
    """The end of the copy."""
    reads = (one.at for one in life.reads if not one.node and cast.first <= one.number < cast.last)
    return max((*reads, *(one.gone for one in _saved(life, cast))), default=0)


def _beside(life: Life, casts: Sequence[Cast]) -> int:
    """The last use that the copies do not serve."""
    of_copies = {id(saved) for one in casts for saved in _saved(life, one)}
    reads = (one.at for one in life.reads if not one.node and not any(c.first <= one.number < c.last for c in casts))
    return max((*reads, *(one.gone for one in life.saved if id(one) not in of_copies)), default=0)


def _model_line(program: Program, blocks: list[Block]) -> Frame | None:
    """Of the largest parameter at the peak that no call made, as a lazy layer's are; else of the largest."""

    def rank(one: Block) -> tuple[bool, bool, int]:
        return bool(one.of.modules), not one.alive(program.at), -one.bytes

    largest = min(of_category(blocks, "parameter"), key=rank, default=None)
    models = (program.beside or program).models
    return _made_at(largest.of.stack, program.called, models) if largest is not None else None


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
    return Change(_halved(program, blocks, "float32"), _model_line(program, blocks), write, cost)


def single_precision(program: Program, blocks: list[Block], value: str) -> Change | str:
    """All of 64 bits: of a model that has them, its inputs too; else, where types are known, of what meets its 32."""
    edited = _halved(program, blocks, "float64")
    if program.types == {"float64"}:
        if not program.read:
            edited = [program.with_bytes(one, one.requested // 2) if one.category == "input" else one for one in edited]
        write = "float32 for the model, and for its inputs"
        return Change(edited, _model_line(program, blocks), write, _DIGITS)
    if not program.read:
        return "no parameter is float64" if program.types else "no parameter's type is known"
    begin = [one for one in blocks if (life := program.life(one)) is not None and _begins(program, life)]
    if not begin:
        return "nothing has 64 bits"
    frame = user_frame(max(begin, key=lambda one: one.bytes).of.stack)
    return Change(edited, frame, "float32 of what is made here", _DIGITS)


def _begins(program: Program, life: Life) -> bool:
    """Whether it has 64 bits, and nothing from which it was made."""
    sources = (program.read[one].dtype for one in life.inputs if one in program.read)
    return life.dtype == "float64" and "float64" not in sources


HALF_MODEL = Technique("half_model", False, "rough", half_model, costs="rounding", reads=True)
SINGLE_PRECISION = Technique("single_precision", False, "good", single_precision, costs="rounding", reads=True)
