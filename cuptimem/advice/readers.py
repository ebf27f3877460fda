"""What a run with `cuptimem.simulation.readers` says of each block: what made and read it, what held it until when.

It belongs to the recording of that run. What has another category there, for autograd's hooks are in use, is told by
recordings without readers.
"""

import json
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cuptimem.advice.positions import FOREVER, GAP
from cuptimem.report.stacks import Frame

if TYPE_CHECKING:
    from cuptimem.advice.program import Block
    from cuptimem.report.contents import Contributor
    from cuptimem.report.model import Report


@dataclass(frozen=True, slots=True)
class Variable:
    """It holds a block that it is not read for again. line: of the statement behind which it can be deleted; statement:
    the word that this begins with (for, if, ...), "" for one without a body."""

    name: str
    file: str
    function: str
    line: int
    statement: str

    @property
    def frame(self) -> Frame:
        return Frame(self.file, self.function, self.line)


@dataclass(frozen=True, slots=True)
class Read:
    """node: of autograd, that read it in backward; "" in forward. number: of the operator, in the order of the run.
    bytes: of the view that it was given; None: all of the block."""

    at: int
    operator: str
    node: str
    number: int
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """A tensor of Python's, from `made` to `gone`. variable: the only one that still holds it, from `unread` on. bytes:
    of a view of half of the block or less, which is large; None: of another tensor. seen: when a part was read last
    while anything but a view held this one."""

    made: int
    gone: int
    variable: Variable | None = None
    unread: int = FOREVER
    bytes: int | None = None
    seen: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """Views of so many bytes, of a large block, that one line of the program takes in so many calls. number: of the
    first operator that did."""

    bytes: int
    line: Frame
    calls: int
    number: int


@dataclass(frozen=True, slots=True)
class Saved:
    """By autograd. number: of the operator that came next, at position `made`. used: when a node asked for it, FOREVER:
    none did. bytes: of the tensor, which may be a view.

    by: the variable with which it went, where that held the graph alone. lines: of the program that led there, outside
    of calls of modules, the innermost first. drops: the variables of what they made, "" for none, if the program has no
    use for their gradients anywhere; None: that is not known. there: it went before the program came to another line.
    within: lines of the program in calls of modules, the outermost first. retained: the line of the backward pass that
    used it and kept it, if no other one used it again. also: other tensors whose graph has it, which
    are there when `by` is not read again.
    """

    number: int
    made: int
    used: int
    gone: int
    bytes: int
    is_contiguous: bool
    in_backward: bool
    by: Held | None
    lines: tuple[Frame, ...]
    drops: str | None = None
    there: bool = False
    within: tuple[Frame, ...] = ()
    also: tuple[Held, ...] = ()
    retained: Frame | None = None

    @property
    def until(self) -> int:
        """When autograd lets go of it, if variables do as soon as they are not read again."""
        if self.by is None:
            return self.gone
        others = (one.gone if one.variable is None else one.unread for one in self.also)
        return min(self.gone, max((self.by.unread, *others)))

    @property
    def is_needless(self) -> bool:
        """Whether no backward pass can run its node, on no branch that this run did not take."""
        if self.drops is None:
            return False
        holder = self.by.variable.name if self.by is not None and self.by.variable is not None else None
        return self.there or self.gone == FOREVER or holder in self.drops.split(",")

    @property
    def is_unrun(self) -> bool:
        """Whether no backward pass ran its node."""
        return self.used == FOREVER and not self.in_backward


@dataclass(frozen=True, slots=True)
class Cast:
    """To 32 bits, where it had them: in 16 bits a copy. It is read by operators from number first on, at position
    `made`, and before number `last`, at position `gone`, when the function that made it has returned."""

    first: int
    last: int
    made: int
    gone: int


@dataclass(frozen=True, slots=True)
class Narrowed:
    """Asked to have the type of another tensor: where that has 16 bits, operators from number first on read a copy in
    these, from position `made` on. saved: what autograd had saved of it before."""

    first: int
    made: int
    saved: int


@dataclass(frozen=True, slots=True)
class Operand:
    """Of the operator of a block, into which its variant in place could write: nothing reads its variables again.

    birth: of its block. name: of the variable, "" for none. argument: self or other, and words for that. grad: whether
    it requires grad. idle: whether nothing but variables that are not read again holds it when the next operator comes.
    """

    birth: int
    name: str
    argument: str
    words: str
    grad: bool
    idle: bool


@dataclass(frozen=True, slots=True)
class Scratch:
    """What an operator made for itself and freed: no tensor ever had it. number, inputs, shape: the operator's."""

    operator: str
    number: int
    inputs: tuple[int, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Optimizer:
    """The program's line at which it stepped first, and that at which it is made, where one led there."""

    steps: Frame
    made: Frame | None


@dataclass(frozen=True, slots=True)
class Loader:
    """A DataLoader: the samples of its batch, and the program's line at which it is made."""

    batch: int
    made: Frame


@dataclass(frozen=True, slots=True)
class Life:
    """Of one block. Moments are positions. inputs: births of the blocks that its operator read. next: of the operator
    behind that."""

    birth: int
    operator: str
    number: int
    dtype: str
    shape: tuple[int, ...]
    grad: bool  # whether autograd was on
    node: str
    inputs: tuple[int, ...]
    reads: tuple[Read, ...]
    held: tuple[Held, ...]
    saved: tuple[Saved, ...]
    into: tuple[Operand, ...]
    casts: tuple[Cast, ...]
    narrowed: Narrowed | None
    next: int
    parts: tuple[Part, ...] = ()

    @property
    def last_read(self) -> int:
        return max((one.at for one in self.reads), default=0)

    @property
    def handles(self) -> list[Held]:
        """Tensors of Python's but for those that a node was given which asked for it."""
        asked = min((one.used for one in self.saved), default=FOREVER)
        return [one for one in self.held if one.made < asked]

    @property
    def end(self) -> int:
        """When the last of its holders let go of it."""
        return max((self.last_read, *(one.gone for one in self.held), *(one.gone for one in self.saved)))

    @property
    def without_variables(self) -> int:
        """Its end if variables let go of it, and of graphs, as soon as they are not read again."""
        held = (one.gone if one.variable is None else one.unread for one in self.held)
        return max((self.last_read, *held, *(one.until for one in self.saved)))

    @property
    def without_unrun(self) -> int:
        """Its end without the graph that no backward pass runs."""
        saved = (one.gone for one in self.saved if not one.is_unrun)
        return max((self.last_read, *(one.gone for one in self.held), *saved))

    @property
    def without_retained(self) -> int:
        """Its end without graphs that a backward pass kept in vain."""
        saved = (one.gone if one.retained is None else one.used for one in self.saved)
        return max((self.last_read, *(one.gone for one in self.held), *saved))

    @property
    def variables(self) -> Iterator[Held]:
        yield from (one for one in self.held if one.variable is not None)
        for saved in self.saved:
            yield from (one for one in (saved.by, *saved.also) if one is not None and one.variable is not None)


# Of calls that go through a dispatch mode: PyTorch's own, around and in it.
_MODE = ("/torch/_ops.py", "/torch/_compile.py", "/torch/_dynamo/eval_frame.py")


def without_mode(of: "Contributor") -> "Contributor":
    """As a recording without the mode has it."""
    stack = of.stack
    while stack and stack[0].file.endswith(_MODE):
        stack = stack[1:]
    return of if stack is of.stack else replace(of, stack=stack)


_Place = tuple[tuple[Frame, ...], str | None, tuple[Frame, ...]]  # lines, drops and within of Saved


class Readers:
    """report: the recording of the run that wrote the file. Raises OSError or ValueError for one that there is not."""

    def __init__(self, report: "Report", path: str | os.PathLike[str]) -> None:
        self.report = report
        with open(path, encoding="utf-8") as file:
            self._log = json.load(file)
        self._begins = [one * GAP for one in self._log["begins"]]
        self.optimizers = tuple(
            Optimizer(Frame(*one["steps"]), Frame(*one["made"]) if one["made"] else None)
            for one in self._log["optimizers"]
        )
        self.threads: int = self._log.get("threads", 0)  # that the device runs at once
        self.loaders = tuple(Loader(size, Frame(*line)) for size, line in self._log["loaders"])
        self.models = tuple(
            Frame(*line) for line in self._log.get("models", ())
        )  # of transformers: where they are made
        self.zeroing = tuple(Frame(*line) for line in self._log.get("zeroing", ()))  # zero_grad(set_to_none=False)
        # By name: where the program makes its settings, or the trainer itself.
        self.trainers = {name: Frame(*line) for name, line in self._log.get("trainers", {}).items()}
        self._retained = [None if line is None else Frame(*line) for line in self._log.get("retained", ())]
        self.sources: dict[str, str] = self._log.get("sources", {})  # of the program, by file

    def lives(self, blocks: "list[Block]") -> tuple[dict[int, Life], dict[int, Scratch]]:
        """By birth: each block is that of its operator with the size of its storage, which ended as its holders did."""
        births = [block.birth for block in blocks]
        freed: dict[int, int] = {}  # birth of scratch memory: the row
        taken: dict[int, int] = {}  # index of a block: its row
        found: list[int | None] = []
        for row in self._log["blocks"]:
            first, last = row["begin"] * GAP, row["end"] * GAP
            candidates = range(bisect_right(births, first), bisect_right(births, last))
            freed |= {births[i]: len(found) for i in candidates if blocks[i].end <= last}
            fitting = (i for i in candidates if blocks[i].requested == row["bytes"] and blocks[i].end > last)
            index = next((i for i in fitting if i not in taken), None)
            if index is not None:
                taken[index] = len(found)
            found.append(index)
        variables = {
            one["dead"]["number"]: _held(one) for row in self._log["blocks"] for one in row["objects"] if one["dead"]
        }
        places = [_place(one) for one in self._log["places"]]
        graphs = _Graphs(self._log["blocks"], variables)

        def inputs(row: dict[str, Any]) -> tuple[int, ...]:
            return tuple(births[i] for one in row["inputs"] if (i := found[one]) is not None)

        lives = {}
        for index, number in taken.items():
            row = self._log["blocks"][number]
            into = tuple(
                Operand(births[i], one["name"], one["argument"], one["operand"], one["grad"], one["idle"])
                for one in row["into"]
                if (i := found[one["block"]]) is not None
            )
            casts = tuple(Cast(first, last, self._behind(first), self._behind(last)) for first, last in row["casts"])
            first, saved = row["narrowed"] or (0, 0)
            narrowed = Narrowed(first, self._behind(first), saved) if row["narrowed"] else None
            also = [graphs.of(number, one["by"]) for one in row["saved"]]
            kept = [self._retained[one["retained"]] if "retained" in one else None for one in row["saved"]]
            held = list(zip(also, kept, strict=True))
            life = _life(births[index], row, inputs(row), variables, places, into, casts, narrowed, held, self._behind)
            if self._explains(life, blocks[index]):
                lives[births[index]] = life
        made = ((birth, self._log["blocks"][number]) for birth, number in freed.items())
        return lives, {
            birth: Scratch(row["operator"], row["number"], inputs(row), tuple(row["shape"])) for birth, row in made
        }

    def _behind(self, number: int) -> int:
        """The position just behind the beginning of an operator."""
        return self._begins[number] + 1 if number < len(self._begins) else FOREVER

    def _explains(self, life: Life, block: "Block") -> bool:
        """Whether the block ended behind its last holder and before the next operator: nothing else held it."""
        if life.end >= FOREVER:
            return block.end >= FOREVER
        index = bisect_right(self._begins, life.end)
        return block.end <= (self._begins[index] if index < len(self._begins) else FOREVER)


class _Graphs:
    """Which tensors have a graph together with a variable: what one lets go of stays while another is there."""

    def __init__(self, rows: list[dict[str, Any]], variables: dict[str, Held]) -> None:
        self._rows, self._variables = rows, variables
        self._known: dict[str, list[tuple[Held, set[int]]]] = {}

    def of(self, row: int, by: str | None) -> tuple[Held, ...]:
        """Of what autograd saved of this row's block until that variable went: other tensors that were made of it."""
        if by not in self._variables:
            return ()
        if by not in self._known:
            self._known[by] = list(self._beside(by))
        return tuple(held for held, sources in self._known[by] if row in sources)

    def _beside(self, by: str) -> Iterator[tuple[Held, set[int]]]:
        mine = self._variables[by]
        for number, row in enumerate(self._rows):
            for one in row["objects"] if row["grad"] and not row["node"] else ():
                held = _held(one)
                if held.variable != mine.variable and held.made <= mine.unread < held.gone:
                    yield held, self._sources(number)

    def _sources(self, number: int) -> set[int]:
        """The rows of which one was made, as far as a graph leads: not through detach()."""
        found: set[int] = set()
        following = [number]
        while following:
            new = {one for one in self._rows[following.pop()]["graph"] if one not in found}
            found |= new
            following += new
        return found


def _position(count: int | None) -> int:
    """Just behind an event."""
    return FOREVER if count is None else count * GAP + 1


def _place(row: dict[str, Any]) -> _Place:
    lines, within = ([Frame(*one) for one in row[name]] for name in ("lines", "within"))
    return tuple(lines), row["drops"], tuple(reversed(within))


def _held(row: dict[str, Any]) -> Held:
    dead, between = row["dead"], (_position(row["made"]), _position(row["gone"]))
    if dead is None:
        return Held(*between, bytes=row.get("bytes"), seen=_position(row.get("seen", 0)))
    variable = Variable(dead["name"], dead["file"], dead["function"], dead["line"], dead["statement"])
    return Held(*between, variable, _position(dead["from"]), row.get("bytes"), _position(row.get("seen", 0)))


def _life(
    birth: int,
    row: dict[str, Any],
    inputs: tuple[int, ...],
    variables: dict[str, Held],
    places: list[_Place],
    into: tuple[Operand, ...],
    casts: tuple[Cast, ...],
    narrowed: Narrowed | None,
    held: list[tuple[tuple[Held, ...], Frame | None]],
    behind: Callable[[int], int],
) -> Life:
    return Life(
        birth,
        row["operator"],
        row["number"],
        row["dtype"],
        tuple(row["shape"]),
        row["grad"],
        row["node"],
        inputs,
        tuple(Read(_position(at), *others) for at, *others in row["reads"]),
        tuple(_held(one) for one in row["objects"]),
        tuple(
            Saved(
                one["number"],
                behind(one["number"]),
                _position(one["used"]),
                _position(one["gone"]),
                one.get("bytes", row["bytes"]),
                one.get("is_contiguous", True),
                one["by"] == "backward",
                variables.get(one["by"]),
                places[one["lines"]][0],
                places[one["lines"]][1],
                one["there"],
                places[one["lines"]][2],
                *others,
            )
            for one, others in zip(row["saved"], held, strict=True)
        ),
        into,
        casts,
        narrowed,
        behind(row["number"] + 1),
        tuple(Part(size, Frame(*line), *others) for size, line, *others in row.get("parts", ())),
    )
