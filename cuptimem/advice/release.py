"""release: what a variable holds that nothing reads it for again, until it is bound again or its function returns."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import combinations

from cuptimem.advice.edits import Edits, worth
from cuptimem.advice.program import Block, Program
from cuptimem.advice.readers import Variable
from cuptimem.advice.technique import UNREAD, Change, Technique
from cuptimem.report.stacks import user_frame

_CATEGORIES = ("temporary", "activation", "input", "kept", "unknown")
_NEARLY = 0.9  # of what all variables save
_TRIED = 6  # variables of which every choice is tried; of more, one after the other is left out


def _is_late(block: Block, loops: dict[int, str]) -> bool:
    """Whether it is freed in the next step of its loop; steps of other loops may lie between (an evaluation)."""
    if block.end_step is None or block.step not in loops or block.end_step <= block.step:
        return False
    own = loops[block.step]
    return all(loops.get(step, own) != own for step in range(block.step + 1, block.end_step))


def release(program: Program, blocks: list[Block], value: str) -> Change | str:
    return _read(program, blocks) if program.read else _by_steps(program, blocks)


def _read(program: Program, blocks: list[Block]) -> Change | str:
    """It ends behind its last reader, with the graph that the variable alone held."""
    edited, chosen = released(program, blocks)
    if not chosen:
        return "no variable of the program holds at the peak what is not read again"
    first, *others = chosen
    also = [f", {one.name} behind {_statement(one, f'line {one.line}')}" for one in others]
    write = f"del {first.name} behind {_statement(first, 'this line')}{''.join(also)}"
    return Change(edited, first.frame, write, variables=tuple(chosen))


def released(program: Program, blocks: list[Block]) -> tuple[list[Block], list[Variable]]:
    """The blocks without what variables hold that are not read again, and these variables. What several hold ends with
    all of them."""
    held: dict[tuple[Variable, ...], Edits] = defaultdict(dict)
    for block in blocks:
        life = program.life(block)
        if life is None or life.without_variables >= life.end:
            continue
        until = ((one.variable, one.gone) for one in life.variables if one.gone > life.without_variables)
        variables = tuple(dict.fromkeys(one for one, _ in sorted(until, key=lambda one: -one[1]) if one is not None))
        held[variables][id(block)] = block, block.ending(life.without_variables)
    _, places = worth(program, blocks, held)
    chosen = list(dict.fromkeys(one for place in places for one in place))
    fewest = _fewest(chosen, lambda some: program.peak - program.replay(_without(blocks, held, some))[0])
    return _without(blocks, held, fewest), fewest


def _without(blocks: list[Block], held: Mapping[tuple[Variable, ...], Edits], some: list[Variable]) -> list[Block]:
    edits = {key: edit for place, made in held.items() if {*place} <= {*some} for key, edit in made.items()}
    return [edits[id(block)][1] or block if id(block) in edits else block for block in blocks]


def _fewest(chosen: list[Variable], saved: Callable[[list[Variable]], int]) -> list[Variable]:
    """Without those that add little: a row of two variables is followed, one of seven is not."""
    least = _NEARLY * saved(chosen)
    while len(chosen) > _TRIED:
        fewer = max(([one for one in chosen if one is not left] for left in chosen), key=saved)
        if saved(fewer) < least:
            return chosen
        chosen = fewer
    every = (list(some) for size in range(1, len(chosen)) for some in combinations(chosen, size))
    return next((some for some in every if saved(some) >= least), chosen)


def _statement(one: Variable, line: str) -> str:
    """The one behind which to delete it: of a line that begins a loop, the whole loop."""
    return f"the {one.statement} of {line}" if one.statement else line


def _by_steps(program: Program, blocks: list[Block]) -> Change | str:
    """Without readers: what a step made and only the next one of its loop frees ends with its own step, also the last
    one of a loop, which nothing binds again."""
    loops = {one.step: one.loop for one in program.steps}
    late = {block.of.stack for block in blocks if block.category in _CATEGORIES and _is_late(block, loops)}
    last: dict[object, int] = {}  # step of a stack
    for block in blocks:
        last[block.of.stack] = max(block.step, last.get(block.of.stack, 0))
    edited, gone = [], []
    for block in blocks:
        end = program.step_end(block.step)
        if end is None:  # of a step that is not kept: before the next one that is
            end = next((one.begin for one in program.stretches if one.step > block.step >= 0), None)
        is_late = block.of.stack in late and (_is_late(block, loops) or block.step == last[block.of.stack])
        if end is not None and end < block.end and is_late and block.category in _CATEGORIES:
            edited.append(block.ending(end))
            gone.append(block)
        else:
            edited.append(block)
    if not gone:
        return "nothing of a step is left in the next one"
    alive = [block for block in gone if block.alive(program.at)] or gone
    largest = max(alive, key=lambda one: one.bytes)
    return Change(edited, user_frame(largest.of.stack), "del what this line made, at the end of the iteration")


RELEASE = Technique("release", True, "good", release, reads=True, unread=UNREAD)
