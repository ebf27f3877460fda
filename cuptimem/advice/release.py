"""release: what one step made and only the next one frees, because a name is bound again there."""

from cuptimem.advice.program import Block, Program
from cuptimem.advice.technique import Change, Technique
from cuptimem.report.stacks import user_frame

_CATEGORIES = ("temporary", "activation", "input", "kept", "unknown")


def release(program: Program, blocks: list[Block], value: str) -> Change | str:
    """It ends with its own step."""
    edited, gone = [], []
    for block in blocks:
        end = program.step_end(block.step)
        late = block.end_step is not None and block.step >= 0 and block.end_step == block.step + 1
        if late and end is not None and end < block.end and block.category in _CATEGORIES:
            edited.append(block.ending(end))
            gone.append(block)
        else:
            edited.append(block)
    if not gone:
        return "nothing of a step is left in the next one"
    alive = [block for block in gone if block.alive(program.at)] or gone
    largest = max(alive, key=lambda one: one.bytes)
    return Change(edited, user_frame(largest.of.stack), "del what this line made, at the end of the iteration")


# Only where it is asked for: the next step may read it (a prefetched batch, a state that is carried on).
RELEASE = Technique("release", True, "good", release, asked_only=True)
