"""Single blocks around the peaks: births, ends, sizes. A changed program's peak is reckoned of them (cuptimem.advice).

Report.lives() asks the core for them. Columns are array("q"). Positions count the device's allocations and frees.
"""

from array import array
from bisect import bisect_right
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from cuptimem.report.brief import Brief

if TYPE_CHECKING:
    from cuptimem.report.model import Contributor


@dataclass(frozen=True, slots=True, repr=False)
class LifeBlocks(Brief):
    """Blocks by the position of their birth.

    birth: 0 where it was there before the recording. end: -1 where it was alive at its end. requested: its bytes
    without the allocator's rounding. contributor: index in Lives.contributors. step, end_step: as in LifeSteps.
    """

    birth: "array[int]"
    end: "array[int]"
    bytes: "array[int]"
    requested: "array[int]"
    contributor: "array[int]"
    step: "array[int]"
    end_step: "array[int]"

    def _summary(self) -> str:
        return f"{len(self)}"

    def __len__(self) -> int:
        return len(self.birth)


@dataclass(frozen=True, slots=True, repr=False)
class LifeSteps(Brief):
    """Stretches of time of which every block is there: the step with the highest peak of each loop, its neighbours, and
    the times around the steps.

    step: -1 is before the first, the number behind the last one is the tail. loop: index in Lives.loops, -1: none.
    begin, end: positions; a block of this stretch was born behind begin. peak: the most live bytes in it. nodes_made,
    nodes_run: nodes of the autograd graph that were created in it, and that a backward pass ran.
    """

    step: "array[int]"
    loop: "array[int]"
    begin: "array[int]"
    end: "array[int]"
    peak: "array[int]"
    nodes_made: "array[int]"
    nodes_run: "array[int]"

    def _summary(self) -> str:
        return f"{len(self.step)}"


@dataclass(frozen=True, slots=True, repr=False)
class Lives(Brief):
    """One device. cut: there were too many blocks, and the list ends early."""

    device: str
    cut: bool
    blocks: LifeBlocks
    contributors: "tuple[Contributor, ...]"
    steps: LifeSteps
    loops: tuple[str, ...] = ()

    def _summary(self) -> str:
        return f"{self.device}: {len(self.blocks)} blocks"

    def before(self, step: int) -> "Lives":
        """As if the recording had ended when this step began. The step must be among those whose blocks are there."""
        at = self.steps.step.index(step)
        begin, blocks = self.steps.begin[at], self.blocks
        born = bisect_right(blocks.birth, begin)
        there = LifeBlocks(*(getattr(blocks, column.name)[:born] for column in fields(blocks)))
        ends = array("q", (end if end <= begin else -1 for end in there.end))
        marks = LifeSteps(*(getattr(self.steps, column.name)[:at] for column in fields(self.steps)))
        return replace(self, blocks=replace(there, end=ends), steps=marks)
