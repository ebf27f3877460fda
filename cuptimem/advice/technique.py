"""What a technique is: a rule that edits the blocks of a program as the program would be with it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from cuptimem.advice.program import Block, Program
from cuptimem.advice.readers import Variable
from cuptimem.report.advice import Confidence
from cuptimem.report.stacks import Frame


@dataclass(frozen=True, slots=True)
class Change:
    """The blocks with it, where to write it, what to write, what it costs. is_sure: whether nothing is left for the
    user to find out, without which it is no free change. lines: all that what to write names, of no_grad."""

    blocks: list[Block]
    frame: Frame | None
    write: str
    cost: str = "none"
    note: str = ""  # what an estimate says beside it
    operators: tuple[tuple[str, int, str, str], ...] = ()  # in place: the file, the line, the operator and the operand
    is_sure: bool = True
    lines: tuple[Frame, ...] = ()
    variables: tuple[Variable, ...] = ()  # of release: those that it deletes
    value: str = ""  # with which what-if and a try do the same; "": that of the technique's name alone


# Of a program, its blocks (which another change may have edited) and a value that the user gave ("" for none); a text
# says why the technique does not apply.
Rule = Callable[[Program, list[Block], str], Change | str]


UNREAD = "a recording lacks what reads a block last: cuptimem advice --try has it"  # of one without readers

Costs = Literal["nothing", "time", "rounding", "learning"]
COSTS: tuple[Costs, ...] = ("nothing", "time", "rounding", "learning")  # the cheapest first
_CONFIDENCE: tuple[Confidence, ...] = ("exact", "good", "rough")


@dataclass(frozen=True, slots=True)
class Technique:
    """nothing: why it saves nothing where it applies. better: one that is proposed in its place where that saves as
    much. costs: of a trade, its kind. without: techniques with which it does not go together."""

    name: str
    free: bool
    confidence: Confidence
    rule: Rule
    nothing: str = "the peak is not where it acts"
    better: str = ""
    takes: str = ""  # what its value is; "" for none
    reads: bool = False  # readers make its rule another one
    unread: str = ""  # why a recording without readers is not enough to propose it
    costs: Costs = "nothing"
    without: tuple[str, ...] = ()
    words: tuple[str, str] = ("", "")  # what to write and the cost, where a try alone shows that it saves

    def excludes(self, other: "Technique") -> bool:
        return other.name in self.without or self.name in other.without


def worst(made: Iterable[Technique]) -> Confidence:
    """Of a prediction with all of these."""
    return max((one.confidence for one in made), key=_CONFIDENCE.index, default="exact")
