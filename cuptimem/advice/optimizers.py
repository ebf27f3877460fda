"""What an optimizer keeps, and what its step needs for a moment."""

import re
from bisect import bisect_right
from collections import defaultdict
from dataclasses import replace
from math import isqrt

from cuptimem.advice.program import GAP, Block, Program, of_category, total
from cuptimem.advice.technique import Change, Technique
from cuptimem.report.stacks import Stack

_ADAM = 1.5  # times the parameters' bytes: two values of each
_EIGHT_BIT_BLOCK = 256  # values that share a scale
_SMALL = 4096  # values: smaller states stay as they are in 8-bit optimizers
_NUMBER = 4  # bytes
# What a loop makes of each parameter: copies at once, and whether one stays until the next has all of its own.
_ADAM_LOOP = 2, True
_ADAFACTOR_LOOP = 1, True
_LOOP = 2, False  # of others at most
_IS_ADAM = re.compile(r"[/\\]torch[/\\]optim[/\\]adamw?\.py$")

_HAVE_FUSED = re.compile(r"[/\\]torch[/\\]optim[/\\](?:adam|adamw|sgd|adagrad)\.py$")
_IN_TORCH = re.compile(r"[/\\]torch[/\\]optim[/\\]")
_IS_LBFGS = re.compile(r"[/\\]torch[/\\]optim[/\\]lbfgs\.py$")  # which runs several backward passes in a step

# What to write, and its cost.
_SGD = "torch.optim.SGD without momentum and weight decay", "another optimizer: it learns differently"
_ADAM8BIT = "an 8-bit AdamW, such as bitsandbytes.optim.AdamW8bit", "states of 8 bits: numerics"
_FUSED = "fused=True for the optimizer of this line", "none"
_NO_FOREACH = "foreach=False for the optimizer of this line", "a launch for each parameter"
_IN_BACKWARD = (
    "step in Tensor.register_post_accumulate_grad_hook of each parameter",
    "no gradient clipping, scaling or accumulation",
)

_NO_STATE = "the optimizer keeps no state"
_SMALL_STATES = f"no state of the optimizer has more than {_SMALL:,} values"
_NO_TEMPORARY = "the optimizer's step makes nothing of size"


def _temporaries(program: Program, blocks: list[Block]) -> list[Block]:
    return [block for block in blocks if block.phase == "optimizer" and block.category == "temporary"]


def _all_in(blocks: list[Block], files: re.Pattern[str]) -> bool:
    """Whether all were made by optimizers of these files."""
    stacks = {block.of.origin or block.of.stack for block in blocks}
    return all(any(files.search(frame.file) for frame in stack) for stack in stacks)


def _without(blocks: list[Block], gone: list[Block]) -> list[Block]:
    ids = {id(block) for block in gone}
    return [block for block in blocks if id(block) not in ids]


def _large_states(blocks: list[Block]) -> list[Block] | str:
    states = list(of_category(blocks, "optimizer state"))
    large = [block for block in states if block.requested > _NUMBER * _SMALL]
    return large or (_SMALL_STATES if states else _NO_STATE)


def sgd(program: Program, blocks: list[Block], value: str) -> Change | str:
    state = list(of_category(blocks, "optimizer state"))
    if not state:
        return _NO_STATE
    edited = _without(blocks, state + _temporaries(program, blocks))
    return Change(edited, program.optimizer_frame, *_SGD)


def adam8bit(program: Program, blocks: list[Block], value: str) -> Change | str:
    state = _large_states(blocks)
    if isinstance(state, str):
        return state
    alive = [block for block in state if block.alive(program.at)]
    trained = {block.module for block in alive}  # a copy of the model, and what is frozen, have no state
    parameters = [one for one in of_category(blocks, "parameter") if one.alive(program.at) and one.module in trained]
    if not value and total(alive) < _ADAM * total(parameters):
        return "the optimizer keeps fewer than two values of each parameter"
    if not value and _all_in(state, _IS_LBFGS):
        return "the optimizer is far from an Adam"
    ids = {id(block) for block in state}
    edited = [
        replace(
            block, bytes=program.rounded(block.requested // 4) + program.rounded(block.requested // _EIGHT_BIT_BLOCK)
        )
        if id(block) in ids
        else block
        for block in _without(blocks, _temporaries(program, blocks))
    ]
    return Change(edited, program.optimizer_frame, *_ADAM8BIT)


def factored(program: Program, blocks: list[Block], value: str) -> Change | str:
    """Of a matrix's second moments a row and a column are kept, of its first ones nothing."""
    state = _large_states(blocks)
    if isinstance(state, str):
        return state
    ids = {id(block) for block in state}
    edited = [
        program.with_bytes(block, _NUMBER * 2 * isqrt(block.requested // _NUMBER)) if id(block) in ids else block
        for block in _without(blocks, _temporaries(program, blocks))
    ]
    edited += _loops(program, blocks, _ADAFACTOR_LOOP)
    return Change(edited, program.optimizer_frame, "torch.optim.Adafactor", "another optimizer: it learns differently")


def _sizes(blocks: list[Block]) -> list[int]:
    """Of what the optimizer trains, in its order: as its states are. A parameter may lie in a buffer with others."""
    lines: dict[Stack, list[Block]] = defaultdict(list)
    for block in of_category(blocks, "optimizer state"):
        lines[block.of.stack].append(block)
    of_one_line = max(lines.values(), key=total, default=list(of_category(blocks, "parameter")))
    return [block.requested for block in sorted(of_one_line, key=lambda one: one.birth)]


def _loops(program: Program, blocks: list[Block], loop: tuple[int, bool]) -> list[Block]:
    """What a loop over the parameters has for a moment, in the place of each step's temporaries."""
    copies, stays = loop
    temporaries, sizes = _temporaries(program, blocks), _sizes(blocks)
    pairs = zip(sizes, [0, *sizes], strict=False)
    most = max((copies * program.rounded(one) + stays * program.rounded(before) for one, before in pairs), default=0)
    made = []
    for step in {block.step for block in temporaries}:
        last = max((block for block in temporaries if block.step == step), key=lambda one: one.birth)
        made.append(replace(last, end=last.birth + GAP // 2, bytes=most))
    return made


def fused(program: Program, blocks: list[Block], value: str) -> Change | str:
    temporaries = _temporaries(program, blocks)
    if not temporaries:
        return _NO_TEMPORARY
    if not _all_in(temporaries, _HAVE_FUSED):
        return "the optimizer is none of PyTorch's that can be fused"
    return Change(_without(blocks, temporaries), program.optimizer_frame, *_FUSED)


def no_foreach(program: Program, blocks: list[Block], value: str) -> Change | str:
    if program.device == "cpu":
        return "on the CPU optimizers loop over the parameters anyway"
    temporaries = _temporaries(program, blocks)
    if not temporaries:
        return _NO_TEMPORARY
    if not _all_in(temporaries, _IN_TORCH):
        return "the optimizer is none of PyTorch's"
    loop = _ADAM_LOOP if _all_in(temporaries, _IS_ADAM) else _LOOP
    edited = _without(blocks, temporaries) + _loops(program, blocks, loop)
    return Change(edited, program.optimizer_frame, *_NO_FOREACH)


def _for_one(program: Program, blocks: list[Block], gradients: list[Block]) -> float:
    """What the step has for a moment, by the bytes of the gradients that it had."""
    temporaries = _temporaries(program, blocks)
    if program.device == "cpu" or not temporaries:
        return 0  # a loop over the parameters
    most, at = program.replay(temporaries)
    step = next(block.step for block in temporaries if block.alive(at))
    return most / max(total(block for block in gradients if block.step == step), most)


def _used(program: Program, gradients: list[Block]) -> dict[int, int]:
    """By identity of a gradient: the next birth behind its node, which may still need scratch memory, and behind what
    the same node of a module that is called again adds to it."""
    summands: dict[object, list[Block]] = defaultdict(list)
    for block in program.blocks:
        if block.phase == "backward" and block.module is not None:
            summands[block.step, block.node, block.module, block.requested].append(block)
    used = {}
    for gradient in gradients:
        later = bisect_right(program.births, gradient.birth)
        while later < len(program.blocks) and _is_of_node(program.blocks[later], gradient):
            later += 1
        behind = program.births[later - 1]
        added = summands[gradient.step, gradient.node, gradient.module, gradient.requested]
        until = (one.end for one in added if gradient.birth < one.birth and one.end < gradient.end)
        used[id(gradient)] = program.later_birth(max((behind, *until)), 1)
    return used


def _is_of_node(block: Block, gradient: Block) -> bool:
    is_same = (block.phase, block.node, block.module) == ("backward", gradient.node, gradient.module)
    return (is_same and block.module is not None) or block.category == "workspace"


def step_in_backward(program: Program, blocks: list[Block], value: str) -> Change | str:
    """The optimizer uses a gradient as soon as it is complete, with temporaries as large beside it."""
    if not program.optimizer_frames:
        return program.no_optimizer
    if len(program.optimizer_frames) > 1:
        return "several optimizers"
    gradients = [block for block in of_category(blocks, "gradient") if block.phase == "backward" and block.step >= 0]
    if not gradients:
        return "no gradient was made in a step"
    temporaries = _temporaries(program, blocks)
    if temporaries and _all_in(temporaries, _IS_LBFGS):
        return "the optimizer needs the gradients of all parameters at once"
    used = _used(program, gradients)
    edited = [block.ending(used.get(id(block), block.end)) for block in _without(blocks, temporaries)]
    needed = _for_one(program, blocks, gradients)
    for block in gradients if needed else ():
        size, end = program.rounded(round(needed * block.bytes)), min(used[id(block)], block.end)
        edited.append(replace(block, birth=end - GAP // 2, end=end, bytes=size))
    return Change(edited, program.optimizer_frames[0], *_IN_BACKWARD)


SGD = Technique("sgd", False, "exact", sgd, costs="learning", words=_SGD)
ADAM8BIT = Technique("adam8bit", False, "exact", adam8bit, costs="rounding", without=("sgd",), words=_ADAM8BIT)
FACTORED = Technique("factored", False, "good", factored, costs="learning", without=("sgd", "adam8bit"))
_ELSEWHERE = "the peak is not in the optimizer's step"
FUSED = Technique("fused", True, "exact", fused, _ELSEWHERE, words=_FUSED)
NO_FOREACH = Technique(
    "no_foreach", False, "good", no_foreach, _ELSEWHERE, better="fused", costs="time", words=_NO_FOREACH
)
STEP_IN_BACKWARD = Technique("step_in_backward", False, "good", step_in_backward, costs="time", words=_IN_BACKWARD)
