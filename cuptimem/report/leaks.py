"""What grows: leaks and suspects, as plain frozen data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cuptimem.displayed import Displayed
from cuptimem.report import cycles
from cuptimem.report.brief import Brief, where
from cuptimem.report.stacks import Frame, Stack, user_frame
from cuptimem.words import size

if TYPE_CHECKING:
    from cuptimem.report.model import Report

# The rule (csrc/analysis/growth.h) wants births in six different steps after a warm-up of at least two.
STEPS_NEEDED = 8

UNDECIDED = (
    "few births",
    "one epoch",
    "no collection",
    "collections unknown",
    "late garbage",
    "freed behind the loop",
    "one pass",
    "carried on",
    "filling",
    "events lost",
)

OTHERS = "others"  # in place of a path: what the largest holders leave
# Paths without a name (referrers.Search.unnamed).
_NAMELESS = (cycles.CYCLE, "no Python object", "nothing in Python", "more objects than")
_BARE = " that no Python object refers to"

_ENDS_A_STEP = ("step", "optimizer", "backward")  # clocks whose tick is the end of a step


def _place(frame: Frame | None, stack_lost: bool) -> str:
    if frame is not None:
        return frame.place
    return "(stack lost)" if stack_lost else "(no Python line)"


@dataclass(frozen=True, slots=True, repr=False)
class Holder(Brief):
    """What kept blocks alive: the way from a name of the program's to them, and how much is behind it."""

    path: str  # "losses in train() → list[0:36]"; OTHERS: what is left of all that were judged
    count: int  # blocks, or graph nodes
    bytes: int  # of nodes: estimated
    step: int | None = None  # in which it was searched; None: in none, mostly at the end
    put_at: str = ""  # of a leak's: the line that puts them there, "train.py:30 in Trainer.log"; "" unknown

    @property
    def is_named(self) -> bool:
        """Whether the path begins at a name; else it says what is there instead of one."""
        return self.path != OTHERS and not (self.path.startswith(_NAMELESS) or _BARE in self.path)


@dataclass(frozen=True, slots=True, repr=False)
class LeakPart(Brief):
    """What one stack has to do with a leak that several lead to."""

    bytes: int  # of graph nodes: estimated
    count: int
    stack: Stack
    stack_lost: bool = False

    @property
    def frame(self) -> Frame | None:
        """The user's line: see stacks.user_frame."""
        return user_frame(self.stack)

    @property
    def where(self) -> str:
        """The user's line, or why there is none."""
        return _place(self.frame, self.stack_lost)


@dataclass(frozen=True, slots=True, repr=False)
class Leak(Displayed, Brief):
    """Something that grows from step to step, judged at the end of its loop's last step.

    In Report.leaks it is a verdict and `reason` is ""; in Report.suspects `reason` says why it is none. It may be one
    (UNDECIDED: see `undecided`), or it is none ("stopped", "garbage", "negligible"). What has
    one cause is one entry: `keeps` has what else grows for it.
    """

    kind: str  # "bytes": blocks of tensors; "nodes": nodes of the autograd graph
    device: str
    bytes: int  # alive then; of nodes an estimate
    count: int  # blocks or nodes
    bytes_per_step: float
    count_per_step: float  # 0 where older ones are replaced by larger ones
    first_step: int  # in which the first and the last of them were made
    last_step: int
    loop: str  # whose steps these are: "training", "evaluation", ...
    stack: Stack  # where they are made: of several stacks the one with the most bytes
    retained_at: Stack  # nodes: where the youngest survivor of each step was made, mostly the line that keeps them
    parts: tuple[LeakPart, ...]  # by stack, the largest first; they sum to bytes and count
    signature: str  # "survivors" of all ages, or a live set that keeps "growing" though its blocks are young
    cause: str  # "cycle": reference cycles, and no collection ran; else ""
    confidence: str  # "high", "medium", "low"
    reason: str
    stack_lost: bool = False  # there was a stack, but no room to define it
    backward: bool = False  # its blocks were made in backward
    total_bytes_per_step: float = 0.0  # with those of `keeps`
    # To the entry that it stands under, else "": "retained by the graph" (its line made nodes that are kept), "made in
    # the same steps" (as the kept graph, which may hold it), "grows with it" (in proportion: it is computed from it).
    relation: str = ""
    keeps: "tuple[Leak, ...]" = ()  # what stands under this, the most bytes a step first
    holders: tuple[Holder, ...] = ()  # when the recording ended, the most bytes first; empty: not searched, or gone

    def _summary(self) -> str:
        what = "graph nodes" if self.kind == "nodes" else f"bytes on {self.device}"
        verdict = self.reason or f"{self.confidence} confidence"
        return f"{_rate(self)}, {what}, steps {self.first_step} to {self.last_step}, {verdict}"

    @property
    def undecided(self) -> bool:
        """Whether it is a suspect that may well be a leak: the recording cannot tell."""
        return self.reason in UNDECIDED

    @property
    def bytes_estimated(self) -> bool:
        """Whether the bytes are an estimate: sizes of graph nodes are not measured."""
        return self.kind == "nodes"

    @property
    def made_frame(self) -> Frame | None:
        """The user's line on which the blocks or nodes are made."""
        return user_frame(self.stack)

    @property
    def frame(self) -> Frame | None:
        """The user's line to look at first: for nodes where they are retained, else where the blocks are made."""
        return user_frame(self.retained_at) or self.made_frame

    @property
    def library_frame(self) -> Frame | None:
        """The innermost frame of the making stack, where it is not the user's line itself."""
        return self.stack[0] if self.stack and self.stack[0] != self.made_frame else None

    @property
    def where(self) -> str:
        """The user's line (see frame), or why there is none."""
        return _place(self.frame, self.stack_lost)


class Leaks(Displayed, Brief, tuple[Leak, ...]):
    """Leaks or suspects, the most bytes a step first."""

    __slots__ = ()

    def _summary(self) -> str:
        leaks = [leak for leak in self if isinstance(leak, Leak)]  # dataclasses.asdict() makes dictionaries of them
        return f"{len(self)}, first {_rate(leaks[0])}" if leaks else f"{len(self)}"


def _rate(leak: Leak) -> str:
    """With what it keeps, as views have it: about 8.0 MiB a step at train.py:11"""
    about = "about " if leak.bytes_estimated else ""
    return f"{about}{size(round(leak.total_bytes_per_step or leak.bytes_per_step))} a step at {where(leak)}"


def made_behind(stack: Stack, clock: Mapping[str, Any] | None) -> bool:
    """Whether this happens behind the line that ends a step, in the same pass of the loop: `losses.append(loss)` below
    `optimizer.step()`. It belongs to the step that has just ended, to which a clock with `trailed` steps counts it."""
    if clock is None or clock["trailed"] or clock["kind"] not in _ENDS_A_STEP or clock["where"] is None:
        return False
    file, line, function = clock["where"]
    return any(frame.file == file and frame.function == function and frame.line > line for frame in stack)


def growth_so_far(report: "Report") -> tuple[Leak, ...] | None:
    """Of a program that goes on: what the report calls a leak, or would if Python's collector had run. None: no
    verdict."""
    waiting = [suspect for suspect in report.undecided if suspect.reason == "no collection"]
    if max(report.loops.values(), default=0) < STEPS_NEEDED or len(waiting) < len(report.undecided):
        return None
    return (*report.leaks, *waiting)


def growth_per_step(report: "Report") -> int | None:
    """Bytes a step of what grows so far. None: no verdict."""
    found = growth_so_far(report)
    return None if found is None else round(sum(leak.total_bytes_per_step for leak in found))
