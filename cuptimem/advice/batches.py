"""batch, accumulate: blocks whose size follows the batch's."""

import re
from dataclasses import replace
from itertools import dropwhile

from cuptimem.advice.data import is_cached
from cuptimem.advice.loops import batch_line
from cuptimem.advice.program import GAP, Block, Program, call_line, of_category
from cuptimem.advice.technique import Change, Technique
from cuptimem.report.stacks import Frame, Stack, user_frame

_FIXED = (
    "parameter", "buffer", "gradient", "optimizer state", "before start", "loaded", "bucket", "autocast cache",
    "unknown",
)  # fmt: skip
_OF_WEIGHTS = ("parameter", "optimizer state", "before start", "loaded")  # what may have the size of a gradient
_SMALL = 512
_SHARE = 4
_LEAST = 0.02  # of the peak: less is no difference
_HALF = 0.5  # what is proposed where no batch is given
_WEIGHTS = re.compile(r"^(?:Addmm|Mm|Convolution|Cudnn\w*|Embedding|Linear)Backward")

MOST = 1_000_000  # times as large, or parts


def _sizes_of_weights(blocks: list[Block]) -> set[int]:
    """Empty: no parameter is known."""
    are_known = next(of_category(blocks, "parameter"), None) is not None
    return {block.requested for block in of_category(blocks, *_OF_WEIGHTS)} if are_known else set()


def scaled(
    program: Program, blocks: list[Block], factor: float, samples: bool = False, evaluation: bool = False
) -> list[Block]:
    """What training makes for the batch grows with it; a node's temporary of exactly a parameter's size does not, nor a
    parameter's copy in 16 bits. Autocast makes copies of activations, too.

    Outputs in a list, or joined to one tensor, are of as many samples as before. samples: the graphs that these hold,
    too. evaluation: what an evaluation makes, and not training, which has a batch of its own.
    """
    weights = _sizes_of_weights(blocks)
    # Others are of activations, of which a second derivative is made.
    gradients = [one for one in of_category(blocks, "gradient") if not weights or one.requested in weights]
    of_weights = [*of_category(blocks, "parameter"), *gradients]
    parameters, halves = {one.bytes for one in of_weights}, {one.requested // 2 for one in of_weights}

    def fixed(block: Block) -> bool:
        if block.step < 0 or program.evaluates(block) is not evaluation:
            return True
        if block.category == "gradient" and weights and block.requested not in weights:
            return False
        if block.category == "workspace":
            return block.end_step != block.step  # cuBLAS keeps its own; a convolution's is of its input's size
        if block.category == "autocast cache" and block.requested not in halves:
            return not halves  # no parameter is known
        if (
            block.category in _FIXED
            or block.phase == "optimizer"
            or block.requested <= _SMALL
            or is_cached(program, block)
            or (id(block.of) in program.collected and (samples or id(block.of) not in program.graphs))
            or (samples and id(block.of) in program.graphs)
            or block.birth in program.joined
            or block.of.stack in program.extended
        ):
            return True
        return block.bytes in parameters and block.node is not None and _WEIGHTS.match(block.node) is not None

    pairs = program.beside.pairs if program.beside is not None else {}

    def grown(block: Block) -> int:
        if (scratch := program.sum_with(factor, block)) is not None:
            return scratch
        is_of_pairs = block.requested in pairs and program.stack(block) in pairs[block.requested]
        return round(block.requested * (factor * factor if is_of_pairs else factor))

    return [block if fixed(block) else program.with_bytes(block, grown(block)) for block in blocks]


def _is_single(program: Program) -> bool:
    return program.beside is not None and program.beside.samples == 1


def _factor(value: str) -> tuple[float, int | None] | None:
    """x2, or 64:8: 64 in the place of 8, which comes second."""
    if (found := re.fullmatch(r"[x*]?(\d+(?:\.\d+)?)(?::(\d+))?", value)) is None:
        return None
    if found[2] is None and value[0] not in "x*":
        return None
    below = int(found[2] or 1)
    factor = float(found[1]) / below if below else 0
    return (factor, int(found[2]) if found[2] else None) if 0 < factor <= MOST else None


def batch(program: Program, blocks: list[Block], value: str) -> Change | str:
    given = _factor(value) if value else (_HALF, None)
    if given is None:
        return "say how much larger the batch is: batch=x2, or batch=64:8 for 64 in the place of the recorded 8"
    if not program.steps:
        return "nothing was recorded in steps"
    if not value and _is_single(program):
        return "the batch is a single sample"
    factor, size = given
    evaluation = program.peak_in_evaluation if not value else size in program.evaluation_batches
    edited = scaled(program, blocks, factor, evaluation=evaluation)
    peaks = [program.replay(one)[0] for one in (edited, scaled(program, blocks, factor, True, evaluation))]
    if max(peaks) - min(peaks) >= _LEAST * program.peak:
        return "the program keeps the graph of each iteration: whether other batches are more or fewer is not recorded"
    kept = "parameters, gradients, states, what cuBLAS keeps, what was made outside of steps"
    note = f"what does not follow the batch: {kept}"
    write = "another batch size" if value else f"half the batch{' of the evaluation' if evaluation else ''}"
    cost = "it learns differently" if program.trained and not evaluation else "twice the steps"
    return Change(edited, _input_line(program, blocks, evaluation), write, cost, note)


def _input_line(program: Program, blocks: list[Block], evaluation: bool) -> Frame | None:
    """Where the batch's size is given: the DataLoader's line, else that of the loop that has a step's first input of
    those that are not small beside the largest, as far as the source is known; without inputs, of where the most is
    made."""
    if (frame := program.loader_frame(evaluation)) is not None:
        return frame
    made = [one for one in blocks if one.step >= 0 and program.evaluates(one) is evaluation]
    every = list(of_category(made, "input"))
    known = {one.step for one in made} & {one.step for one in program.steps}  # of others only what lasts is there
    steps: dict[Stack, set[int]] = {}
    for one in every:
        steps.setdefault(one.of.stack, set()).update(known & {one.step})
    half = len(known) / 2  # optimizers by turns have a step each
    inputs = [one for one in every if len(steps[one.of.stack]) >= half]  # others are data of several steps
    others = [one for one in made if one.alive(program.at)] if evaluation else list(of_category(made, "gradient"))
    if inputs or not others:
        inputs = inputs or every
        most = max((one.bytes for one in inputs), default=0)
        of = min((one for one in inputs if _SHARE * one.bytes >= most), key=lambda one: one.birth, default=None)
        frame = None if of is None else user_frame(of.of.stack)
    else:
        of = max(others, key=lambda one: one.bytes)
        frame = call_line(of.of.stack) if evaluation else program.forward_frame
    if of is None or frame is None:
        return None
    outwards = dropwhile(lambda one: not one.same_line(frame), of.of.stack)
    return batch_line(outwards, (program.beside or program).sources) or frame


def parts_of(value: str, default: int) -> int | None:
    """A number of parts; None: it is none."""
    if not value:
        return default
    return int(value) if value.isascii() and value.isdecimal() and 2 <= int(value) <= MOST else None


def accumulate(program: Program, blocks: list[Block], value: str) -> Change | str:
    """Smaller blocks, but for what the program keeps of all parts; gradients are there from the step's start, and the
    value that is added beside each."""
    parts = parts_of(value, 2)
    if parts is None:
        return f"a batch has from 2 to {MOST} parts, not {value!r}"
    frame = program.forward_frame
    if frame is None:
        return "no gradient was made in a step"
    if not value and _is_single(program):
        return "the batch is a single sample"
    if not value and program.peak_in_evaluation:
        return "the peak is in evaluation"
    edited: list[Block] = []
    begin = {one.step: one.begin for one in program.stretches}
    weights = _sizes_of_weights(blocks)
    sizes: dict[int, set[int]] = {}
    for block in of_category(blocks, "kept"):
        sizes.setdefault(id(block.of), set()).add(block.requested)
    for whole, part in zip(blocks, scaled(program, blocks, 1 / parts), strict=True):
        is_of_all = whole.end_step is None or id(whole.of) in program.collected or len(sizes.get(id(whole.of), ())) > 2
        is_kept = (whole.category == "kept" and is_of_all) or id(whole.of) in program.graphs
        block = whole if is_kept else part  # else a state that is carried over
        is_brief = block.end_step == block.step + 1
        is_of_activation = is_brief and weights and block.requested not in weights  # of a second derivative
        if block.category != "gradient" or block.phase != "backward" or is_of_activation:
            edited.append(block)
            continue
        if is_brief:  # cleared before backward: then at the start of the step
            end = program.step_end(block.step) or begin.get(block.step + 1)
            block = block if end is None else block.ending(end)
        if block.step not in begin:
            edited.append(block)
            continue
        edited.append(replace(block, birth=begin[block.step] + 1))
        edited.append(replace(block, end=min(block.end, block.birth + GAP + GAP // 2)))
    write = f"forward of this line and its backward pass for each of {parts} parts of the batch, then one step"
    return Change(edited, frame, write, f"{parts} times the launches")


BATCH = Technique("batch", False, "good", batch, takes="a factor", costs="learning")
ACCUMULATE = Technique(
    "accumulate", False, "good", accumulate, takes="parts", costs="time", without=("step_in_backward",)
)
