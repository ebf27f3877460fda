"""checkpoint: modules that repeat give up what they save in forward, and make it again in backward."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from cuptimem.advice.program import GAP, Block, Program, inside, total
from cuptimem.advice.technique import Change, Technique
from cuptimem.report.stacks import Frame, Stack, user_frame

_FORWARD_LIFE = 3  # births: how long a block is read in forward
_CALL = "torch.utils.checkpoint.checkpoint(..., use_reentrant=False)"
_WORDS = f"{_CALL} around the call of each of the repeated blocks", "their forward again"
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)|^\d+(?=\.|$)")
_STAGE = re.compile(r"((?:.*\.)?[A-Za-z_]\w*?)\d+$")  # layer1 to layer4 of a ResNet


@dataclass(frozen=True, slots=True)
class _Call:
    """One call of a module in forward: its blocks by birth, and the first birth behind it."""

    blocks: list[Block]
    end: int


def _inner(block: Block, module: str) -> Stack:
    """The frames in the call of a module that the block was made in, so without the line that calls it."""
    depth, last = (block.module or "").count(".") - module.count("."), 0
    addresses: list[int] = []  # of modules in modules, the innermost first
    for i, frame in enumerate(block.of.stack):
        if frame.module_address and frame.module_address not in addresses:
            if len(addresses) > depth:
                break
            addresses.append(frame.module_address)
        if frame.module_address:
            last = i + 1
    return block.of.stack[:last]


def _is_called(block: Block, module: str) -> bool:
    """Whether a call of the module itself made it: not one of its modules that another method calls."""
    depth = (block.module or "").count(".") - module.count(".")
    return len({frame.module_address for frame in block.of.stack if frame.module_address}) > depth


def _begins_again(first: Block, block: Block, module: str) -> bool:
    """Whether a block is what a call of the module began with."""
    one, other = first.of, block.of
    if one is other:
        return True
    if (one.qualified, one.category, one.saved_by) != (other.qualified, other.category, other.saved_by):
        return False
    return _inner(first, module) == _inner(block, module) != ()


def _calls(program: Program, mine: Sequence[Block], module: str) -> Iterator[_Call]:
    """Births of a module's in a row: of one step, with no backward pass between, nor what a call begins with."""
    now: list[Block] = []
    for block in mine:
        is_next = now and (block.step != now[-1].step or _begins_again(now[0], block, module))
        if is_next or (now and program.backward_between(now[-1].birth, block.birth)):
            yield _Call(now, program.later_birth(now[-1].birth, 1))
            now = []
        now.append(block)
    if now:
        yield _Call(now, program.later_birth(now[-1].birth, 1))


def _again(call: _Call, backward: Sequence[Block], gone: set[int], is_one_of_several: bool) -> list[Block]:
    """What the call becomes; what it replaces is added to gone. backward: blocks of the module's, by birth; those of
    later calls come first."""
    lasting = [block for block in call.blocks if block.end > call.end]
    saved = [block for block in lasting if block.category == "activation"]
    if not saved:
        return []
    # What came behind the call reads its output, so of all that lives on, that ends first in backward.
    output = min(lasting, key=lambda one: one.end)
    rest = [block for block in saved if block is not output]
    if not rest:
        return []
    # Backward of the call begins with the first node of it: then its forward runs again.
    begin = call.blocks[0].birth
    ended = min(block.end for block in rest)
    births = [block.birth for block in backward if call.end < block.birth < ended]
    first = (births[-1] if is_one_of_several else births[0]) if births else ended
    at, span = first - GAP, call.end - begin + 1
    made_at = [block.birth for block in call.blocks]
    made = []
    for i, block in enumerate(call.blocks):
        again = at + 1 + (block.birth - begin) * (GAP - 2) // span
        if block.end <= call.end:
            made.append(replace(block, birth=again, end=at + 1 + (block.end - begin) * (GAP - 2) // span))
        elif block is not output and block.category == "activation":
            gone.add(id(block))
            later = made_at[i + _FORWARD_LIFE] if i + _FORWARD_LIFE < len(made_at) else call.end
            made += [replace(block, end=min(call.end, later)), replace(block, birth=again)]
    return made


def _without_saved(program: Program, call: _Call, gone: set[int]) -> list[Block]:
    """What the call becomes where no backward pass asks for it, as in an evaluation whose graph is kept. What it
    replaces is added to gone."""
    lasting = [block for block in call.blocks if block.end > call.end]
    # What the last graph before a backward pass of others keeps is a temporary, for no other forward followed.
    are_saved = call.blocks[0].step in program.unrun

    def is_saved(block: Block) -> bool:
        life = program.life(block)
        return block.category == "activation" or are_saved or (life is not None and bool(life.saved))

    saved = [block for block in lasting[:-1] if is_saved(block)]  # the last one is the output
    gone.update(map(id, saved))
    return [block.ending(call.end) for block in saved]


def edited(program: Program, blocks: list[Block], modules: Sequence[str]) -> list[Block]:
    """The blocks with calls of these modules checkpointed, none of which is inside another one."""
    gone: set[int] = set()
    made: list[Block] = []
    by_module: dict[str, list[Block]] = defaultdict(list)
    for block in blocks:
        if block.module and block.phase in ("forward", "backward"):
            by_module[block.module].append(block)
    for module in modules:
        lists = (some for name, some in by_module.items() if inside(name, module))
        there = sorted((block for some in lists for block in some), key=lambda one: one.birth)
        backward = [block for block in there if block.phase == "backward"]
        calls = list(_calls(program, [block for block in there if block.phase == "forward"], module))
        several = Counter(call.blocks[0].step for call in calls)
        for call in calls:
            step = call.blocks[0].step
            if program.is_before_backward(call.blocks[0]):
                mine = [block for block in backward if block.step == step]
                made += _again(call, mine, gone, several[step] > 1)
            elif any(_is_called(block, module) for block in call.blocks):
                made += _without_saved(program, call, gone)
    return [block for block in blocks if id(block) not in gone] + made


def levels(blocks: Sequence[Block], roots: frozenset[str] = frozenset()) -> dict[str, list[str]]:
    """Modules that repeat, by their name with * for the numbers: "blocks.*". Then those that are called again.

    roots: names of modules that are in no other one, which have those of their classes.
    """
    found: dict[str, set[str]] = defaultdict(set)
    for module in {block.module for block in blocks if block.category == "activation" and block.module}:
        for number in _NUMBER.finditer(module):
            name = module[: number.end()]
            found[_NUMBER.sub("*", name)].add(name)
    several = {pattern: sorted(names, key=_natural) for pattern, names in found.items() if len(names) > 1}
    return several | _stages(found, blocks) | {name: [name] for name in _called_again(blocks) - roots}


def _stages(numbered: Mapping[str, set[str]], blocks: Sequence[Block]) -> dict[str, list[str]]:
    """Modules with others in them whose names differ in a number at their end, and what repeats in all of these."""
    names = {block.module for block in blocks if block.category == "activation" and block.module}
    outer = _with_outer(name.rpartition(".")[0] for name in names if "." in name)
    every = _with_outer(block.module for block in blocks if block.module)  # also those that have parameters alone
    found: dict[str, list[str]] = defaultdict(list)
    for name in sorted(outer):
        if (stage := _STAGE.fullmatch(name)) is not None:
            found[stage[1]].append(name)
    levels = {}
    for stem, stages in found.items():
        inner = [f"{stage}.*" for stage in stages if f"{stage}.*" in numbered]
        members = [name for pattern in inner for name in numbered[pattern]]
        for patterns, wide, modules in ((stages, f"{stem}*", stages), (inner, f"{stem}*.*", members)):
            if len(patterns) > 1:
                modules = sorted(modules, key=_natural)
                levels[wide if _fitting(every, wide) == set(modules) else ",".join(patterns)] = modules
    return levels


def _called_again(blocks: Sequence[Block]) -> set[str]:
    """Outermost modules that are called again before a backward pass: what a call begins with is there again."""
    begins: dict[tuple[str, int], Block] = {}  # by name and step
    found: set[str] = set()
    for block in sorted(blocks, key=lambda one: one.birth):
        if block.category == "activation" and block.module:
            name = block.module.partition(".")[0]
            first = begins.setdefault((name, block.step), block)
            if first is not block and first.end > block.birth and _begins_again(first, block, name):
                found.add(name)
    return found


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in name.split(".")]


def matching(blocks: Sequence[Block], pattern: str) -> list[str]:
    """Modules whose names fit a pattern, or one of several with commas between them, the outermost ones only."""
    forward = _with_outer(block.module for block in blocks if block.phase == "forward" and block.module)
    return sorted(_fitting(forward, pattern), key=_natural)


def _with_outer(names: Iterable[str]) -> set[str]:
    """The names, and those of all modules around them."""
    return {".".join(name.split(".")[: i + 1]) for name in names for i in range(name.count(".") + 1)}


def _fitting(names: Iterable[str], pattern: str) -> set[str]:
    patterns = [one.strip() for one in pattern.split(",")]
    return {name for name in names for one in patterns if fnmatchcase(name, one) and name.count(".") == one.count(".")}


def _call_line(blocks: Sequence[Block], module: str, others: Sequence[str]) -> Frame | None:
    """The line that calls the module: it stands next to the outermost call that all of its stacks have, and no stack
    of another one."""

    def stacks(name: str) -> list[tuple[Frame, ...]]:
        return [one.of.stack for one in blocks if one.phase == "forward" and inside(one.module, name)]

    def addresses(stack: tuple[Frame, ...]) -> set[int]:
        return {frame.module_address for frame in stack if frame.module_address}

    mine = stacks(module)
    common = set.intersection(*map(addresses, mine)) if mine else set()
    for other in others:
        for stack in stacks(other):
            common -= addresses(stack)
    for stack in mine[:1]:
        outer = max((i for i, frame in enumerate(stack) if frame.module_address in common), default=None)
        if outer is not None:
            return next((frame for frame in stack[outer + 1 :] if not frame.is_plumbing), None)
    return user_frame(mine[0]) if mine else None


def _forward_again(program: Program, blocks: Sequence[Block], modules: Sequence[str]) -> int:
    """Percent of the bytes that forward writes in the last training step."""
    step = max(program.trained, default=None)
    forward = [one for one in blocks if one.phase == "forward" and one.step == step and program.is_before_backward(one)]
    mine = [one for one in forward if any(inside(one.module, name) for name in modules)]
    return round(100 * total(mine) / max(1, total(forward)))


def checkpoint(program: Program, blocks: list[Block], value: str) -> Change | str:
    if value and not (modules := matching(blocks, value)):
        return f"no module with activations is called {value}"
    pattern = value
    if not value:
        best = program.replay(blocks)[0]
        modules = []
        for name, level in levels(blocks, program.called).items():
            if (peak := program.replay(edited(program, blocks, level))[0]) < best:
                best, pattern, modules = peak, name, level
        if not modules:
            return "no modules repeat whose activations make the peak"
    others = modules[1:] or [one for one in matching(blocks, "*" + ".*" * modules[0].count(".")) if one != modules[0]]
    frame = _call_line(blocks, modules[0], others[:2])
    write = f"{_CALL} around the call of {pattern.replace(',', ', ')}"
    if frame is not None and frame.is_library:
        line = next((one.of.stack for one in blocks if one.phase == "forward" and inside(one.module, modules[0])), ())
        hint = "model.gradient_checkpointing_enable()" if "/transformers/" in frame.file else write
        write, frame = f"{hint}, called at {frame.place}" if hint == write else hint, user_frame(line)
    again = _forward_again(program, blocks, modules)
    cost = f"{again} % of forward again, by bytes" if again else _WORDS[1]
    return Change(edited(program, blocks, modules), frame, write, cost, value=pattern)


CHECKPOINT = Technique(
    "checkpoint", False, "good", checkpoint, takes="names of modules", reads=True, costs="time", words=_WORDS
)
