"""zero_grad_late, set_to_none: gradients that live where nothing needs them."""

from collections import defaultdict
from dataclasses import replace

from cuptimem.advice.program import Block, Program, of_category, total
from cuptimem.advice.technique import Change, Technique

_LATE = "optimizer.zero_grad() right behind this line, not before the next backward pass", "none"
_TO_NONE = "optimizer.zero_grad(set_to_none=True) right behind this line, in the place of what zeroes them", "none"
_AT_ZEROS = "zero_grad() without set_to_none=False, right behind optimizer.step()", "none"  # at the line that zeroes
_ENOUGH = 0.9  # of the gradients' bytes must be found again in a later step


def _why_not(program: Program, blocks: list[Block]) -> str:
    # With another clock a step may be one of several backward passes that accumulate.
    updated = {block.step for block in program.optimizer_blocks}
    if program.clock != "optimizer" and (program.clock != "step" or not program.trained <= updated):
        return "steps are not counted by an optimizer"
    if len(program.optimizer_frames) > 1:
        return "several optimizers: whose gradients they are is unknown"
    if not program.optimizer_frames:
        return program.no_optimizer
    return ""


def _waits(program: Program, block: Block) -> bool:
    """Whether a later step frees it, and until then no backward pass could have added to it."""
    end = program.step_end(block.step)
    if block.step < 0 or block.end_step is None or end is None or block.end <= end:
        return False
    between = range(block.step + 1, block.end_step)
    if any(program.step_end(step) is None or step in program.trained for step in between):
        return False
    return block.end_step > block.step and not program.backward_between(end, block.end)


def _after(program: Program, block: Block) -> int:
    """Where its step has ended for certain: its own end, else where the next step that was kept begins."""
    end = program.step_end(block.step)
    begins = (one.begin for one in program.stretches if one.step > block.step)
    return end if end is not None else min(begins, default=block.end)


def zero_grad_late(program: Program, blocks: list[Block], value: str) -> Change | str:
    """Gradients that a later step frees end with the step that made them; so do those of the last step."""
    if why := _why_not(program, blocks):
        return why
    gradients = [block for block in of_category(blocks, "gradient") if block.step >= 0]
    freed = {(block.of.stack, block.of.operator, block.requested) for block in gradients if _waits(program, block)}
    late = {
        id(block): _after(program, block)
        for block in gradients
        if (block.of.stack, block.of.operator, block.requested) in freed
        and not program.backward_between(_after(program, block), block.end)
    }
    if not late:
        return "gradients are gone by the next step"
    edited = [block.ending(late[id(block)]) if id(block) in late else block for block in blocks]
    return Change(edited, program.optimizer_frames[0], *_LATE)


def _lasting(program: Program, blocks: list[Block]) -> list[Block]:
    """Gradients that stay through a later step with a backward pass: they are zeroed, not freed."""
    trained = [(one.step, one.end) for one in program.steps if one.step in program.trained]

    def stays(block: Block) -> bool:
        return any(block.step < step and block.end > end for step, end in trained)

    return [block for block in of_category(blocks, "gradient") if block.step >= 0 and stays(block)]


def set_to_none(program: Program, blocks: list[Block], value: str) -> Change | str:
    """Gradients end with each step; in later ones the value that was added to each lives on in its place."""
    if why := _why_not(program, blocks):
        return why
    lasting = _lasting(program, blocks)
    if not lasting:
        return "gradients are set to None already"
    stay, steps = {id(block) for block in lasting}, {block.step for block in lasting}
    if any(
        id(one) not in stay and one.step in steps and one.end_step is not None
        for one in of_category(blocks, "gradient")
    ):
        return "gradients of the optimizer's parameters are set to None already"
    made: dict[int, Block] = {}
    first = {id(block) for block in lasting}
    for one in program.steps:
        earlier = [block for block in lasting if block.step < one.step]
        if one.step not in program.trained or not earlier:
            continue
        values = defaultdict(list)
        for block in blocks:
            if block.step == one.step and block.phase == "backward" and block.category == "temporary":
                values[block.of.stack, block.of.operator, block.requested].append(block)
        found = 0
        for gradient in earlier:
            same = values.get((gradient.of.stack, gradient.of.operator, gradient.requested))
            if same:
                block = same.pop(0)
                made[id(block)] = replace(block, end=max(block.end, one.end))
                found += block.bytes
        if found < _ENOUGH * total(earlier):
            return "gradients are not found again in later steps: what sets them is unknown"
    edited = []
    for block in blocks:
        end = program.step_end(block.step)
        if id(block) in first:
            edited.append(block.ending(end if end is not None else program.steps[0].begin))
        else:
            edited.append(made.get(id(block), block))
    lines = (program.beside or program).zeroing
    if len(lines) == 1:
        return Change(edited, lines[0], *_AT_ZEROS)
    return Change(edited, program.optimizer_frames[0], *_TO_NONE)


ZERO_GRAD_LATE = Technique(
    "zero_grad_late", True, "exact", zero_grad_late, "no gradient of the last step is alive at the peak", words=_LATE
)
SET_TO_NONE = Technique("set_to_none", True, "exact", set_to_none, "the peak has all gradients anyway", words=_TO_NONE)
