"""keep_evaluation: results of an evaluation that wait on the device for its end."""

from collections import defaultdict
from collections.abc import Iterator

from cuptimem.advice.program import FOREVER, Block, Program, call_line, lines_of
from cuptimem.advice.technique import Change, Technique
from cuptimem.report.stacks import Stack

_LEAST = 5  # steps: fewer may be a pipeline's depth
_LARGE = 10  # times as many bytes: what a line beside it keeps is a count
_JOINED = 2  # results of steps in one, which a library's loop makes longer
_FORWARD_LIFE = 3  # births
_COST = "a copy to the host in each step"
_GRAPH = "the graph of the evaluation holds its values: no_grad comes first"
_KINDS = ("input", "kept", "activation", "temporary", "unknown")


def _by_line(program: Program, blocks: list[Block]) -> Iterator[list[Block]]:
    lines: dict[object, list[Block]] = defaultdict(list)
    for block in blocks:
        if block.category in _KINDS and block.node is None and not block.saved_by and block.step >= 0:
            lines[block.of.stack, block.module, block.phase].append(block)
    yield from lines.values()


def _together(program: Program, made: list[Block]) -> Iterator[list[Block]]:
    """One line's blocks, parted where the first of them had ended before the next was made, and by other steps: each
    evaluation for itself."""
    now: list[Block] = []
    end = 0
    for block in made:
        is_other = now and (
            block.birth >= end or block.step > now[-1].step + 1 or program.backward_between(now[-1].birth, block.birth)
        )
        if is_other:
            yield now
            now = []
        end = min(end, block.end) if now else block.end
        now.append(block)
    if now:
        yield now


def _waits(alive: list[Block]) -> bool:
    """Whether every step adds one, as large as the others."""
    steps = [block.step for block in alive]
    if len(set(steps)) < _LEAST:
        return False
    return len({block.requested for block in alive}) == 1 and max(steps) - min(steps) + 1 <= len(alive)


def _growing(program: Program, made: list[Block]) -> list[Block]:
    """A value that each step replaces by one longer by the same part: what came before, joined with its own. A module
    that does this has a cache, and the user's own line may read it in the next step: a library's loop is certain."""
    stack = made[0].of.stack
    caller = next((frame for frame in stack if not frame.is_plumbing), None)
    if caller is None or not caller.is_library or any(frame.module is not None for frame in stack):
        return []
    by_step = {block.step: block for block in made}
    for step, block in by_step.items():
        later = by_step.get(step + 1)
        part = later.requested - block.requested if later is not None else 0
        if later is None or part <= 0 or not block.birth < later.birth <= block.end:
            continue
        if block.requested % part == 0 and block.requested >= _JOINED * part:
            return [one for one in made if not program.backward_between(one.birth, one.end)]
    return []


def _is_read_with_others(program: Program, moved: list[Block]) -> bool:
    """Behind the step that made it, as far as readers know: on the host it could not be. What is made of results alone
    is on the host as well."""
    of = program.beside
    if of is None:
        return False
    stacks = {program.stack(block) for block in moved}
    # A step may end with the model's call, so that its results are read in the next one.
    later = {one.birth: of.begins.get(one.step + 2, FOREVER) for one in of.blocks if of.stack(one) in stacks}
    for life in sorted(of.read.values(), key=lambda one: one.birth):
        # A number may lie on either side.
        inputs = [one for one in life.inputs if one not in of.read or of.read[one].shape]
        since = min((later[one] for one in inputs if one in later), default=FOREVER)
        if all(one in later for one in inputs) and inputs:
            later.setdefault(life.birth, since)
        elif life.birth > since:
            return True
    return False


def keep_evaluation(program: Program, blocks: list[Block], value: str) -> Change | str:
    """What waits is copied to the host as soon as it is there; so is what joins it at the end made there."""
    if program.device == "cpu":
        return "it lies in host memory already"
    if any(one.step in program.unrun and one.begin <= program.at <= one.end for one in program.steps):
        return _GRAPH
    gone: dict[int, Block] = {}
    moved: list[Block] = []
    for made in _by_line(program, blocks):
        if growing := _growing(program, made):
            moved += growing
            gone |= {id(block): block.ending(block.birth) for block in growing}
            continue
        kept: list[Block] = []
        for waiting in _together(program, made):
            if not _waits(waiting):
                continue
            moved += waiting
            for block in waiting:
                gone[id(block)] = block.ending(program.later_birth(block.birth, _FORWARD_LIFE))
            # What no evaluation clears is joined with what those before it left.
            kept = [block for block in kept if block.end > waiting[-1].birth] + waiting
            joined = sum(block.requested for block in kept)
            for block in blocks:
                if waiting[-1].birth < block.birth and block.requested == joined and block.node is None:
                    gone[id(block)] = block.ending(block.birth)
    if not moved:
        return "nothing waits on the device from step to step"
    if any(block.step in program.unrun for block in moved):
        return _GRAPH
    if _is_read_with_others(program, moved):
        return "the device reads it later, with what is no result"
    sums: dict[Stack, int] = defaultdict(int)
    for block in moved:
        sums[block.of.stack] += block.bytes
    large = ((call_line(stack), size) for stack, size in sums.items() if _LARGE * size >= max(sums.values()))
    lines = lines_of(large)
    frame = lines[0] if lines else None
    write = f".cpu() behind what is kept in this line{''.join(f', and in line {one.line}' for one in lines[1:])}"
    edited = [gone.get(id(block), block) for block in blocks]
    return Change(edited, frame, write, _COST)


KEEP_EVALUATION = Technique(
    "keep_evaluation",
    False,
    "good",
    keep_evaluation,
    "what waits is not at the peak",
    costs="time",
    words=("eval_accumulation_steps=1 in TrainingArguments", _COST),
)
