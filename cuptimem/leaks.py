"""What grows: leaks and suspects, as plain frozen data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cuptimem.stacks import Frame, Stack, user_frame

# The rule (csrc/analysis/growth.h) wants births in six different steps after a warm-up of at least two.
STEPS_NEEDED = 8


def _place(frame: Frame | None, stack_lost: bool) -> str:
    if frame is not None:
        return frame.place
    return "(stack lost)" if stack_lost else "(no Python line)"


@dataclass(frozen=True, slots=True)
class LeakPart:
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


@dataclass(frozen=True, slots=True)
class Leak:
    """Something that grows from step to step, judged at the end of its loop's last step.

    In Report.leaks it is a verdict and `reason` is ""; in Report.suspects `reason` says why it is none: "few births",
    "stopped", "one epoch", "garbage", "growing steps", "events lost".
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


def from_row(row: Mapping[str, Any], stack_of: Callable[[int], Stack], lost_stack: int) -> Leak:
    """A leak or suspect of what the C core's analyze() returned."""
    return Leak(
        kind=row["kind"],
        device=row["device"],
        bytes=row["bytes"],
        count=row["count"],
        bytes_per_step=row["bytes_per_step"],
        count_per_step=row["count_per_step"],
        first_step=row["first_step"],
        last_step=row["last_step"],
        loop=row["loop"],
        stack=stack_of(row["stack"]),
        retained_at=stack_of(row["retained"]),
        parts=tuple(
            LeakPart(size, count, stack_of(stack_id), stack_id == lost_stack) for size, count, stack_id in row["parts"]
        ),
        signature=row["signature"],
        cause=row["cause"],
        confidence=row["confidence"],
        reason=row["reason"],
        stack_lost=row["stack"] == lost_stack,
    )
