"""no_grad: forward passes that build an autograd graph, which no backward pass runs."""

from collections import defaultdict

from cuptimem.advice.edits import Edits, worth
from cuptimem.advice.program import Block, Program, call_line
from cuptimem.advice.technique import Change, Technique
from cuptimem.report.stacks import Frame

_FORWARD_LIFE = 3  # births: how long a block is read in forward
_HELD = ("activation", "kept", "temporary")
_CARE = "care: no backward pass of this run asked for these gradients, code that it did not reach may"


def _carried(blocks: list[Block]) -> dict[int, int]:
    """Where what a line makes grows with each step, the program carries it on itself (a cache of keys): a block is
    needed until the line makes the next."""
    lines: dict[object, list[Block]] = defaultdict(list)
    for block in blocks:
        lines[block.of.stack, block.module].append(block)
    needed = {}
    for made in lines.values():
        by_step: dict[int, list[Block]] = defaultdict(list)
        for block in made:
            by_step[block.step].append(block)
        steps = sorted(by_step)
        for step, later in zip(steps, steps[1:], strict=False):
            for block, other in zip(by_step[step], by_step[later], strict=False):
                if other.requested > block.requested:
                    needed[id(block)] = other.birth
    return needed


def no_grad(program: Program, blocks: list[Block], value: str) -> Change | str:
    """What only the graph holds ends as soon as forward has read it."""
    return _read(program, blocks) if program.read else _by_steps(program, blocks)


def _read(program: Program, blocks: list[Block]) -> Change | str:
    """Also within a step that trains: what autograd saved, and no backward pass asked for. Sure is that where the
    source shows that none can ask for it later: that a run came to its end says nothing of one with other arguments."""
    lives = [(block, life) for block in blocks if (life := program.life(block)) is not None and life.saved]
    ran = [one for _, life in lives for one in life.saved if not one.is_unrun]
    trained = {frame for one in ran for frame in (*one.lines, *one.within)}
    unrun = [one for _, life in lives for one in life.saved if one.is_unrun]
    asked = {frame for one in unrun if ran and not one.is_needless for frame in one.lines}
    asked |= {frame for one in unrun for frame in one.within}  # a module may keep what it makes
    places: dict[Frame, Edits] = defaultdict(dict)
    for block, life in lives:
        if life.without_unrun >= life.end or block.phase == "backward":
            continue
        lines = next((*one.lines, *one.within) for one in life.saved if one.is_unrun)
        if (frame := next((one for one in lines if one not in trained), None)) is not None:
            places[frame][id(block)] = block, block.ending(life.without_unrun)
    needless = {frame: made for frame, made in places.items() if frame not in asked}
    edited, chosen = worth(program, blocks, places)
    if not chosen:
        return "no graph that no backward pass runs holds anything at the peak"
    sure, surely = worth(program, blocks, needless)
    peak = program.peak
    if is_sure := bool(surely) and 2 * (peak - program.replay(sure)[0]) >= peak - program.replay(edited)[0]:
        edited, chosen = sure, surely
    also = [f", and around line {frame.line}" for frame in chosen[1:]]
    write = f"with torch.no_grad(): around this line{''.join(also)}"
    return Change(edited, chosen[0], write, "none" if is_sure else _CARE, is_sure=is_sure, lines=tuple(chosen))


def _by_steps(program: Program, blocks: list[Block]) -> Change | str:
    """Without readers: of the steps of which no backward pass ran a node."""
    steps = program.unrun
    if not steps:
        behind = (one for one in program.stretches if not one.loop and one.step >= 0 and one.nodes_made > one.nodes_run)
        if any(one.begin <= program.at < one.end for one in behind):
            return "the graph at the peak is of no step that ended: whether a backward pass was to run it is unknown"
        return "no step builds a graph that no backward pass runs"
    held = [
        block
        for block in blocks
        if block.phase == "forward" and block.category in _HELD and not block.saved_by and block.step >= 0
        and (block.of.stack in program.evaluating or not program.backward_between(block.birth, block.end))
    ]  # fmt: skip
    made_in = {block.step for block in held}
    numbers = steps | {step for step in made_in if step not in program.trained and program.step_end(step) is None}
    held = [block for block in held if block.step in numbers]
    last = {block.step: block for block in held}  # the result: it has its own name
    carried = _carried(held)
    short: dict[int, Block] = {}
    for block in held:
        end = carried.get(id(block), program.later_birth(block.birth, _FORWARD_LIFE))
        if last[block.step] is not block and end < block.end:
            short[id(block)] = block.ending(end)
    if not short:
        return "the graph that no backward pass runs holds nothing"
    edited = [short.get(id(block), block) for block in blocks]
    alive = [block for block in held if id(block) in short and block.alive(program.at)] or held
    frame = call_line(max(alive, key=lambda one: one.bytes).of.stack)
    return Change(edited, frame, "with torch.no_grad(): around this line")


NO_GRAD = Technique("no_grad", True, "rough", no_grad, "what the graph holds is not at the peak", reads=True)
