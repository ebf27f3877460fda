"""retain_graph: graphs that a backward pass keeps, and none runs again."""

from collections import defaultdict

from cuptimem.advice.edits import Edits, worth
from cuptimem.advice.program import Block, Program
from cuptimem.advice.technique import UNREAD, Change, Technique
from cuptimem.report.stacks import Frame


def retain_graph(program: Program, blocks: list[Block], value: str) -> Change | str:
    """What autograd saved goes with the node that reads it, as without retain_graph=True."""
    if not program.read:
        return UNREAD
    places: dict[Frame, Edits] = defaultdict(dict)
    for block in blocks:
        life = program.life(block)
        if life is None or life.without_retained >= life.end:
            continue
        line = next(one.retained for one in life.saved if one.retained is not None)
        places[line][id(block)] = block, block.ending(life.without_retained)
    edited, chosen = worth(program, blocks, places)
    if not chosen:
        return "no backward pass keeps a graph at the peak that none runs again"
    also = "".join(f", and of line {one.line}" for one in chosen[1:])
    write = f"the backward pass of this line{also} without retain_graph=True: no other one ran that graph"
    return Change(edited, chosen[0], write, lines=tuple(chosen))


RETAIN_GRAPH = Technique("retain_graph", True, "good", retain_graph, reads=True, unread=UNREAD)
