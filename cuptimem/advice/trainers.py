"""Changes as the settings of a trainer, which has the program's loop."""

from dataclasses import replace

from cuptimem.advice.program import Program
from cuptimem.advice.technique import Change
from cuptimem.report.stacks import Frame, Stack
from cuptimem.trainer_settings import TRAINERS, Trainer, trainer_of

_OPTIMIZER = ("fused", "sgd", "adam8bit", "factored")
_WHOLE = ("accumulate", "half_model")  # they change the loop, or the whole model, whichever line they are found at


def in_settings(program: Program, technique: str, change: Change) -> Change:
    """The change as a setting, at the line that makes the settings, or that leads to the loop; as it is where the
    trainer has no such setting, or what is changed is the program's own."""
    trainer, loop = _of(program, technique, change.frame)
    if trainer is None or technique not in trainer.settings or loop is None:
        return change
    is_loops = change.frame is not None and change.frame.same_line(loop)
    if not is_loops and technique not in _WHOLE:
        return change
    if technique == "checkpoint" and not change.write.startswith("model.gradient_checkpointing_enable()"):
        return change
    made = (program.beside or program).trainers.get(trainer.name)
    write = trainer.write(technique, made is not None)
    if program.beside is None and technique in _OPTIMIZER:  # a recording does not say who makes the optimizer
        write = f"{write}; where it is given an optimizer, {change.write}"
    return replace(change, frame=made or loop, write=write)


def _of(program: Program, technique: str, frame: Frame | None) -> tuple[Trainer | None, Frame | None]:
    """The trainer that runs backward passes and steps optimizers, of an evaluation any, and the program's line that
    leads to its loop: that frame, where one does."""
    of = {id(block.of): block.of for block in program.blocks if block.step >= 0}.values()
    trains = [one for one in of if one.phase in ("backward", "optimizer") or technique == "keep_evaluation"]
    stacks = (stack for one in trains for stack in (one.stack, one.origin))
    found = [(one, stack) for stack in stacks if (one := trainer_of(outer.file for outer in stack)) is not None]
    trainer = min((one for one, _ in found), key=TRAINERS.index, default=None)
    if trainer is None:
        return None, None
    loops = [_loop(trainer, stack) for one, stack in found if one is trainer]
    return trainer, next((one for one in loops if one is not None and frame and one.same_line(frame)), loops[0])


def _loop(trainer: Trainer, stack: Stack) -> Frame | None:
    outside = max(i for i, frame in enumerate(stack) if trainer.has(frame.file))
    return next((frame for frame in stack[outside:] if not frame.is_library), None)
