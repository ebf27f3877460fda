"""collect: what only reference cycles hold until Python's collector comes."""

from cuptimem.advice.program import GAP, Block, Program
from cuptimem.advice.technique import Change, Technique
from cuptimem.report.stacks import user_frame

_WORDS = (
    "gc.collect() behind this line, or no cycle of references among the objects that hold it",
    "a walk over all objects in each step",
)


def collect(program: Program, blocks: list[Block], value: str) -> Change | str:
    """What a collection freed ends with the step that made it."""
    if not program.garbage:
        return "no collection freed anything"
    edited, gone = [], []
    for block in blocks:
        end = program.step_end(block.step) or block.birth + GAP  # of another step nothing else is known
        if block.of.stack in program.garbage and block.step >= 0 and end < block.end:
            edited.append(block.ending(end))
            gone.append(block)
        else:
            edited.append(block)
    if not gone:
        return "a collection freed nothing of an earlier step"
    frames = program.optimizer_frames
    frame = frames[0] if frames else user_frame(max(gone, key=lambda one: one.bytes).of.stack)
    return Change(edited, frame, *_WORDS)


COLLECT = Technique(
    "collect", False, "good", collect, "what collections freed is not at the peak", costs="time", words=_WORDS
)
