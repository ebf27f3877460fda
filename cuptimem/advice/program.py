"""The blocks of a recording as changes of the program edit them, and the peak of what an edit leaves."""

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from cuptimem.advice.positions import FOREVER as FOREVER
from cuptimem.advice.positions import GAP as GAP
from cuptimem.advice.readers import Life, Loader, Optimizer, Readers, without_mode
from cuptimem.advice.reductions import of_rows
from cuptimem.errors import core
from cuptimem.report.contents import Contributor
from cuptimem.report.lives import Lives
from cuptimem.report.stacks import Frame, Stack, user_frame

_COLLECTS = 3  # steps: of fewer, it is a batch that is fetched ahead, or a state that is handed on
_NUMBER = 4  # bytes
ROUNDING = 512  # of PyTorch's caching allocator
_LEAST = 512  # bytes: less is a number that a loop sums up
_SMALL = 1 << 20  # requests of more have a pool of their own, where as much may stay unsplit


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A block, or what a change makes of it. Blocks are compared by identity: an edit replaces what it changes."""

    birth: int
    end: int  # FOREVER: alive at the end of the recording
    bytes: int
    requested: int
    step: int
    end_step: int | None  # None: alive at the end
    of: Contributor

    @property
    def phase(self) -> str:
        return self.of.phase

    @property
    def category(self) -> str:
        return self.of.category

    @property
    def module(self) -> str | None:
        return self.of.qualified

    @property
    def saved_by(self) -> str | None:
        return self.of.saved_by

    @property
    def node(self) -> str | None:
        """The autograd node that made it."""
        return self.of.operator if self.of.phase == "backward" else None

    def ending(self, position: int) -> "Block":
        """It ends there, if it did not before."""
        return replace(self, end=min(self.end, position)) if position < self.end else self

    def alive(self, position: int) -> bool:
        return self.birth <= position < self.end


@dataclass(frozen=True, slots=True)
class Stretch:
    """A step of which every block is known. loop "": the time before the first step, or behind the last one."""

    step: int
    loop: str
    begin: int
    end: int
    peak: int
    nodes_made: int = 0
    nodes_run: int = 0

    def has(self, block: Block) -> bool:
        return self.begin < block.birth <= self.end


class Program:
    """What was recorded of one device; edits are lists of blocks that share most of them with it."""

    def __init__(
        self,
        lives: Lives,
        clock: str | None,
        garbage: frozenset[Stack] = frozenset(),
        types: frozenset[str] = frozenset(),
        readers: Readers | None = None,
    ) -> None:
        """garbage: stacks of which a collection freed blocks. types: of parameters at the peak, as far as known.
        readers: of that run; None: not known."""
        self.device, self.clock, self.garbage, self.types = lives.device, clock, garbage, types
        rows, contributors = lives.blocks, lives.contributors
        if readers is not None:
            contributors = tuple(without_mode(one) for one in contributors)
        columns = (rows.birth, rows.end, rows.bytes, rows.requested, rows.step, rows.end_step, rows.contributor)
        self.blocks = [
            Block(birth, FOREVER if end < 0 else end, size, asked, step, None if end < 0 else last, contributors[of])
            for birth, end, size, asked, step, last, of in zip(*columns, strict=True)
        ]
        marks = lives.steps
        bounds = (marks.step, marks.loop, marks.begin, marks.end, marks.peak, marks.nodes_made, marks.nodes_run)
        self.stretches = [
            Stretch(step, "" if loop < 0 else lives.loops[loop], begin, end, peak, made, ran)
            for step, loop, begin, end, peak, made, ran in zip(*bounds, strict=True)
        ]
        self._end_of = {one.step: one.end for one in self.stretches}
        self._base = core().edit_base(rows.birth, rows.end, rows.bytes)
        self._index = {id(block): i for i, block in enumerate(self.blocks)}
        self.peak, self.at = self.replay(self.blocks)
        self._stepped: tuple[Optimizer, ...] = readers.optimizers if readers is not None else ()
        self._loaders: tuple[Loader, ...] = readers.loaders if readers is not None else ()
        self.threads = readers.threads if readers is not None else 0  # that its device runs at once
        self.trainers = readers.trainers if readers is not None else {}
        self.sources = readers.sources if readers is not None else {}
        self.models = readers.models if readers is not None else ()
        self.zeroing = readers.zeroing if readers is not None else ()
        self._stacks: dict[int, Stack] = {}  # by identity of a contributor
        self.beside: Program | None = None  # the same program as a run with readers has it
        self.read, self.scratch = readers.lives(self.blocks) if readers is not None else ({}, {})  # by birth

    def life(self, block: Block) -> Life | None:
        """What read it and held it, where that is known. A change may have edited the block."""
        return self.read.get(block.birth)

    def replay(self, blocks: Iterable[Block]) -> tuple[int, int]:
        """The highest sum of these blocks, and the position at which it is first reached."""
        added = array("q")
        kept: set[int] = set()
        for block in blocks:
            index = self._index.get(id(block))
            if index is None:
                added.extend((block.birth, -1 if block.end == FOREVER else block.end, block.bytes))
            else:
                kept.add(index)
        removed = array("q", (i for i in range(len(self.blocks)) if i not in kept))
        size, position = core().edit_peak(self._base, removed, added)
        return size, position

    def step_end(self, step: int) -> int | None:
        """Where a step ends; None: it is not known."""
        return self._end_of.get(step)

    @cached_property
    def trained(self) -> frozenset[int]:
        """Steps in which a backward pass made blocks. Where optimizers count them, none steps behind the last one: a
        backward pass there is of an evaluation, as of forces."""
        counted = {one.step for one in self.steps} if self.clock == "optimizer" else None
        steps = {block.step for block in self.blocks if block.phase == "backward"}
        return frozenset(steps if counted is None else steps & counted)

    @cached_property
    def steps(self) -> list[Stretch]:
        return [one for one in self.stretches if one.loop]

    @cached_property
    def evaluated(self) -> frozenset[int]:
        """Steps of loops without a backward pass, where another loop has them. Of no other step is that known."""
        training = {one.loop for one in self.steps if one.step in self.trained}
        return frozenset(one.step for one in self.steps if training and one.loop not in training)

    @cached_property
    def peak_in_evaluation(self) -> bool:
        """Whether training could have a lower peak and the program would not."""
        where = next((one for one in self.stretches if one.begin <= self.at < one.end), None)
        if where is None or not self.trained:
            return False
        if where.loop:
            return where.step in self.evaluated
        # Behind the last step: an evaluation, or a step that did not end.
        made = [block for block in self.blocks if block.step == where.step >= 0 and block.alive(self.at)]
        return 2 * total(block for block in made if self.evaluates(block)) > total(made)

    @cached_property
    def evaluating(self) -> frozenset[Stack]:
        """Where evaluation makes blocks, or what comes behind the last step, and no step of training does."""
        training = {block.of.stack for block in self.blocks if block.step in self.trained}
        behind = {one.step for one in self.stretches if not one.loop and one.step >= 0} if training else set()
        others = self.evaluated | behind
        return frozenset(block.of.stack for block in self.blocks if block.step in others) - training

    @cached_property
    def collected(self) -> dict[int, tuple[int, int]]:
        """Contributors, by identity, of which the program keeps the blocks of all steps, as outputs in a list, with the
        most bytes that are let go of together, and the position at which all of these are there. More and smaller
        batches leave as much of them.

        A window of the last steps lets go of one step after the other; a list is cleared at once, or never. What is
        generated has no batches but the first.
        """
        # Of others are only those blocks there that last; the first has none before it.
        known = {one.step for one in self.steps[1:]}
        steps: dict[int, set[int]] = defaultdict(set)
        for block in of_category(self.blocks, "kept"):
            steps[id(block.of)] |= known & {block.step}
        generated = {of for of, mine in steps.items() if mine and len(mine) <= 2 * len(mine & self.generating)}
        return {of: full for of, full in self._kept("kept").items() if of not in generated}

    @cached_property
    def begins(self) -> dict[int, int]:
        """The first birth of each step, also of those that have no stretch."""
        found: dict[int, int] = {}
        for block in self.blocks:
            found.setdefault(block.step, block.birth)
        return found

    @cached_property
    def generating(self) -> frozenset[int]:
        """Steps that read what the step before made, as each token of an answer does. Only readers know."""
        of, found = self.beside or self, set()
        lists = of._kept("kept")
        for block in of_category(of.blocks, "kept", "activation", "temporary", "unknown"):
            following, behind = (of.begins.get(block.step + i, FOREVER) for i in (1, 2))
            is_result = id(block.of) in lists or block.of.stack in of.extended or block.requested <= _LEAST
            if block.step < 0 or is_result or (life := of.life(block)) is None or block.step in of.trained:
                continue
            if any(following < one.at < behind for one in life.reads):
                found.add(block.step + 1)
        return frozenset(found)

    @cached_property
    def unrun(self) -> frozenset[int]:
        """Steps whose nodes no backward pass ran."""
        return frozenset(one.step for one in self.steps if one.nodes_made and not one.nodes_run)

    @cached_property
    def graphs(self) -> frozenset[int]:
        """Contributors, by identity, of which the program keeps the blocks of all steps, but not for themselves: what
        it does keep of a step holds its graph."""
        unrun = {id(block.of) for block in self.blocks if block.step in self.unrun}
        return frozenset(self._kept("activation", "temporary", "input", "unknown")) | (unrun & self.collected.keys())

    def _kept(self, *categories: str) -> dict[int, tuple[int, int]]:
        made: dict[int, list[Block]] = {}
        for block in of_category(self.blocks, *categories):
            if block.step >= 0 and block.end_step != block.step:
                made.setdefault(id(block.of), []).append(block)
        found: dict[int, tuple[int, int]] = {}
        for of, some in made.items():
            sums: dict[int | None, tuple[int, int]] = {}
            for block in some:
                size, full = sums.get(block.end_step, (0, 0))
                sums[block.end_step] = size + block.requested, max(full, block.birth)
            steps = len({block.step for block in some})
            if steps >= _COLLECTS and 2 * len(sums.keys() - {None}) < steps:
                found[of] = max(sums.values())
        return found

    @cached_property
    def joined(self) -> frozenset[int]:
        """By birth: blocks as large as all of a list that was full by then, as torch.cat of it and what is made of
        that. What its line also makes of that size before is none."""
        full: dict[int, int] = {}
        for size, position in self.collected.values():
            full[size] = min(position, full.get(size, position))
        sized = [block for block in self.blocks if block.requested in full]
        before = {id(block.of) for block in sized if block.birth <= full[block.requested]}
        return frozenset(block.birth for block in sized if id(block.of) not in before)

    @cached_property
    def extended(self) -> frozenset[Stack]:
        """Where a result is made to which each step adds as much, as in `logits = torch.cat([logits, new])`.
        More and smaller batches leave as large a one. A cache of keys and values begins again with each answer."""
        made: dict[Stack, list[Block]] = {}
        for block in self.blocks:
            if block.step >= 0 and block.end_step != block.step:
                made.setdefault(block.of.stack, []).append(block)
        return frozenset(
            stack
            for stack, some in made.items()
            if len({block.step for block in some}) >= _COLLECTS
            and all(block.requested == (block.step - some[0].step + 1) * some[0].requested for block in some)
        )

    @cached_property
    def samples(self) -> int:
        """In a batch, as the first dimension of the most bytes of the steps' inputs has it; 0: no shapes are known."""
        return self._samples(one for one in of_category(self.blocks, "input") if not self.evaluates(one))

    @cached_property
    def evaluation_batches(self) -> frozenset[int]:
        """Samples in the batches of evaluations, by loop, which those of the steps have not. Only readers know."""
        of, inputs = self.beside or self, defaultdict[str, list[Block]](list)
        loops = {one.step: one.loop for one in of.stretches}
        for block in of_category(of.blocks, "input"):
            if of.evaluates(block):
                inputs[loops.get(block.step, "")].append(block)
        return frozenset(of._samples(made) for made in inputs.values()) - {0, of.samples}

    def evaluates(self, block: Block) -> bool:
        """Whether an evaluation makes it."""
        return block.step in self.evaluated or block.of.stack in self.evaluating

    def _samples(self, inputs: Iterable[Block]) -> int:
        sizes: Counter[int] = Counter()
        for block in inputs:
            life = self.life(block)
            if block.step >= 0 and life is not None and life.shape:
                sizes[life.shape[0]] += block.bytes
        return max(sizes, key=lambda one: sizes[one], default=0)

    @cached_property
    def pairs(self) -> dict[int, set[Stack]]:
        """Where blocks of all pairs of a batch's samples are made, by their size: of two that have a row for each
        sample, and no weights, or of such pairs."""
        of = {block.birth: block for block in self.blocks}
        found: set[int] = set()
        for birth, life in sorted(self.read.items()):
            sources = [one for one in life.inputs if one in self.read and len(self.read[one].shape) > 1]
            side = life.shape[0] if len(life.shape) > 1 and life.shape[0] == life.shape[1] else 0
            if side and side in (self.samples, 2 * self.samples) and sources:
                rows = all(
                    len(self.read[one].shape) == 2
                    and self.read[one].shape[0] == side != self.read[one].shape[1]  # else what is of it is square, too
                    and of[one].category != "parameter"
                    for one in sources
                )
                if rows or any(one in found for one in sources):
                    found.add(birth)
        stacks: dict[int, set[Stack]] = defaultdict(set)
        for birth in found:
            stacks[of[birth].requested].add(self.stack(of[birth]))
        return stacks

    @cached_property
    def sums(self) -> dict[int, dict[Stack, tuple[int, int]]]:
        """Where sums over rows have memory for themselves, by its size: the rows and columns."""
        of = {block.birth: block for block in self.blocks}
        found: dict[int, dict[Stack, tuple[int, int]]] = defaultdict(dict)
        for birth, made in self.scratch.items():
            block, sources = of[birth], [self.read[one] for one in made.inputs if one in self.read]
            columns = prod(made.shape)
            rows = prod(sources[0].shape) // columns if len(sources) == 1 and columns else 0
            if rows and of_rows(rows, columns, self.threads) == block.requested:
                found[block.requested][self.stack(block)] = rows, columns
        return found

    def sum_with(self, factor: float, block: Block, sizes: Container[int] | None = None) -> int | None:
        """What a sum has for itself with another number of rows; None: it is none, or none of as many bytes."""
        if self.beside is None or block.requested not in self.beside.sums:
            return None
        rows, columns = self.beside.sums[block.requested].get(self.stack(block), (0, 0))
        if not rows or (sizes is not None and _NUMBER * rows * columns not in sizes):
            return None
        return of_rows(max(1, round(factor * rows)), columns, self.beside.threads)

    def stack(self, block: Block) -> Stack:
        """As another run of the program has it, where modules have other addresses."""
        if (found := self._stacks.get(id(block.of))) is None:
            found = self._stacks[id(block.of)] = tuple(replace(one, module_address=0) for one in block.of.stack)
        return found

    @cached_property
    def parameter_sizes(self) -> frozenset[int]:
        return frozenset(block.requested for block in of_category(self.blocks, "parameter"))

    @cached_property
    def of_calls(self) -> frozenset[int]:
        """By birth: what modules' calls and autograd make, and, as far as readers know, what is computed from that."""
        found = {block.birth for block in self.blocks if block.phase in ("forward", "backward")}
        for birth, life in sorted(self.read.items()):
            if not found.isdisjoint(life.inputs):
                found.add(birth)
        # What steps that were not kept have left: from what it is computed is gone, a kept step shows it of the line.
        left = [block for block in self.blocks if block.category == "kept" and block.birth not in found]
        lines = {block.of.stack for block in self.blocks if block.birth in found} if left else set()
        return frozenset(found | {block.birth for block in left if block.of.stack in lines})

    @cached_property
    def called(self) -> frozenset[str]:
        """Classes of the modules that ran."""
        contributors = {id(block.of): block.of for block in self.blocks}
        return frozenset(name for one in contributors.values() for name in one.modules)

    @cached_property
    def births(self) -> list[int]:
        return [block.birth for block in self.blocks]

    def later_birth(self, position: int, count: int) -> int:
        """The position of the count-th birth behind one."""
        at = bisect_right(self.births, position) + count - 1
        return self.births[at] if at < len(self.births) else FOREVER

    @cached_property
    def backward_births(self) -> list[int]:
        return [block.birth for block in self.blocks if block.phase == "backward"]

    def backward_between(self, first: int, last: int) -> bool:
        return bisect_left(self.backward_births, first) != bisect_left(self.backward_births, last)

    def is_before_backward(self, block: Block) -> bool:
        """Whether a backward pass of its step came behind it."""
        end = self.step_end(block.step)
        return end is not None and self.backward_between(block.birth, end)

    @cached_property
    def optimizer_blocks(self) -> list[Block]:
        return [block for block in self.blocks if block.phase == "optimizer" and block.step >= 0]

    @cached_property
    def optimizer_frames(self) -> list[Frame]:
        """The user's lines in which an optimizer's step ran, that of most bytes at the peak, or in all, first. A step
        that makes no block (SGD without momentum) is known with readers alone: then one for each optimizer."""
        made = [(user_frame(one.of.origin or one.of.stack), one) for one in self.optimizer_blocks]
        lines = lines_of((frame, one.bytes) for frame, one in made)
        at_peak = lines_of((frame, one.bytes) for frame, one in made if one.alive(self.at))
        lines.sort(key=lambda line: not any(line.same_line(one) for one in at_peak[:1]))
        of = self.beside or self
        return lines or [one.steps for one in of._stepped]

    @property
    def optimizer_frame(self) -> Frame | None:
        """Where another optimizer is written: the line that makes the one with the most bytes. Where that is not known,
        or several step at one line, the line that steps."""
        steps = next(iter(self.optimizer_frames), None)
        seen = (self.beside or self)._stepped
        made = [one.made for one in seen if len(seen) == 1 or (steps is not None and one.steps.same_line(steps))]
        return made[0] if len(made) == 1 and made[0] is not None else steps

    def loader_frame(self, evaluation: bool = False) -> Frame | None:
        """Where a DataLoader of the steps' batch is made, or of the evaluation's; None: readers know of none."""
        of = self.beside or self
        if not evaluation:
            return next((one.made for one in of._loaders if one.batch == of.samples), None)
        samples = of._samples(one for one in of_category(of.blocks, "input") if of.evaluates(one))
        return next((one.made for one in reversed(of._loaders) if one.batch == samples), None)

    @property
    def no_optimizer(self) -> str:
        """Why there is no line where one steps."""
        if self.clock == "optimizer":
            return "the recording does not say where its optimizer steps: cuptimem advice --try finds out"
        return "no optimizer was seen"

    @cached_property
    def forward_frame(self) -> Frame | None:
        """The user's line whose forward pass leads to the most gradients."""
        made = (block for block in of_category(self.blocks, "gradient") if block.step >= 0)
        return next(iter(lines_of((call_line(block.of.stack), block.bytes) for block in made)), None)

    def with_bytes(self, block: Block, requested: int) -> Block:
        """The block for a request of another size.

        What the allocator leaves unsplit of a large one depends on what was free. For many blocks a share as large as
        the recorded one is nearer than none, or than all of it.
        """
        requested = max(requested, 1)
        unsplit = max(0, block.bytes - self.rounded(block.requested)) if requested > _SMALL else 0
        size = self.rounded(requested) + unsplit * requested // max(block.requested, 1)
        return replace(block, requested=requested, bytes=size)

    def rounded(self, requested: int) -> int:
        return requested if self.device == "cpu" else -(-requested // ROUNDING) * ROUNDING


def lines_of(sizes: Iterable[tuple[Frame | None, int]]) -> list[Frame]:
    """The lines, the one with the most bytes first."""
    sums: dict[Frame, int] = {}
    for frame, size in sizes:
        if frame is not None:
            place = next((one for one in sums if one.same_line(frame)), frame)
            sums[place] = sums.get(place, 0) + size
    return sorted(sums, key=lambda one: -sums[one])


def call_line(stack: Stack) -> Frame | None:
    """The user's line outside of every module's call: where the whole forward pass is called."""
    line = None
    for frame in reversed(stack):
        if frame.module is not None:
            break
        if not frame.is_library:
            line = frame
    return line or user_frame(stack)


def of_category(blocks: Sequence[Block], *categories: str) -> Iterator[Block]:
    return (block for block in blocks if block.category in categories)


def total(blocks: Iterable[Block]) -> int:
    return sum(block.bytes for block in blocks)


def inside(module: str | None, name: str) -> bool:
    return module is not None and (module == name or module.startswith(f"{name}."))
