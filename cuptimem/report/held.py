"""Who holds what is alive at the end of a recording, by the user's line, as plain frozen data."""

from collections.abc import Iterable
from dataclasses import dataclass

from cuptimem.report import brief
from cuptimem.report.brief import Brief
from cuptimem.report.cycles import CYCLE
from cuptimem.report.leaks import OTHERS, Holder
from cuptimem.report.stacks import Frame, Stack, user_frame


@dataclass(frozen=True, slots=True, repr=False)
class HeldLine(Brief):
    """What was allocated on a line since the start and is alive at the end, with its holders.

    Where an exception has ended the program or the profile, the functions that it left hold their variables still.
    """

    device: str
    stack: Stack  # one that leads to the line
    holders: tuple[Holder, ...]  # the most bytes first; with that of "others" they sum to what is alive

    def _summary(self) -> str:
        first = self.holders[0].path if self.holders else "nothing"
        return f"{brief.amount(self.bytes, self.count)} at {brief.where(self)} on {self.device}, by {brief.name(first)}"

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.holders)

    @property
    def count(self) -> int:
        return sum(one.count for one in self.holders)

    @property
    def frame(self) -> Frame | None:
        """The user's line: see stacks.user_frame."""
        return user_frame(self.stack)

    @property
    def where(self) -> str:
        """The user's line, or why there is none."""
        return self.frame.place if self.frame is not None else "(no Python line)"


def holders_of(lines: Iterable[HeldLine], frame: Frame | None) -> tuple[Holder, ...]:
    """Of a line, the most bytes first; () where nothing was searched, or nothing was alive."""
    if frame is None:
        return ()
    found = (one for line in lines if line.frame and line.frame.same_line(frame) for one in line.holders)
    return tuple(sorted(found, key=lambda one: (one.path == OTHERS, -one.bytes)))


def by_cycle(lines: Iterable[HeldLine]) -> tuple[tuple[HeldLine, ...], tuple[HeldLine, ...]]:
    """Those that have a holder beside reference cycles, and those that have none."""
    split: tuple[list[HeldLine], list[HeldLine]] = ([], [])
    for one in lines:
        split[all(holder.path.startswith(CYCLE) for holder in one.holders)].append(one)
    return tuple(split[0]), tuple(split[1])
