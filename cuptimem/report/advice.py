"""Changes of a program that would lower its peak, as data."""

from dataclasses import dataclass
from typing import Literal

from cuptimem.displayed import Displayed
from cuptimem.report.brief import Brief
from cuptimem.report.leaks import Leak
from cuptimem.report.stacks import Frame

Confidence = Literal["exact", "good", "rough"]


@dataclass(frozen=True, slots=True, repr=False)
class Proposal(Brief):
    """One change. bytes: the predicted peak with it. frame: where to write it, None: no line is known.

    free: it is no slower, and equal up to rounding. confidence: "exact" (edited without a guess), "good" or "rough".
    """

    technique: str
    free: bool
    bytes: int
    saved: int
    frame: Frame | None
    write: str
    cost: str
    confidence: Confidence

    def _summary(self) -> str:
        return f"{self.technique}: {self.saved} bytes"


@dataclass(frozen=True, slots=True, repr=False)
class Rejected(Brief):
    """A change that was considered and is not proposed. bytes: the predicted peak, None: it does not apply."""

    technique: str
    reason: str
    bytes: int | None = None

    def _summary(self) -> str:
        return f"{self.technique}: {self.reason}"


@dataclass(frozen=True, slots=True, repr=False)
class LeakAtPeak(Brief):
    """A leak that has much of a peak, which is no change's to save. bytes: what it has of the peak."""

    bytes: int
    leak: Leak

    def _summary(self) -> str:
        return f"{self.bytes} bytes"


@dataclass(frozen=True, slots=True, repr=False)
class Advice(Displayed, Brief):
    """Of one device. proposals: free ones first, then trades, the largest saving first.

    leaks: those with a tenth of the peak or more.
    reason: why nothing could be predicted; "" if it was. note: why peak and step are not those of the recording, or
    that memory was refused at this peak; else "".
    """

    device: str
    peak: int
    step: int | None
    proposals: tuple[Proposal, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    reason: str = ""
    note: str = ""
    leaks: tuple[LeakAtPeak, ...] = ()

    def _summary(self) -> str:
        return f"{self.device}: {len(self.proposals)} proposals"

    def proposal(self, technique: str) -> Proposal | None:
        """The one of this technique; None: it is not proposed."""
        return next((one for one in self.proposals if one.technique == technique), None)


@dataclass(frozen=True, slots=True, repr=False)
class Estimate(Displayed, Brief):
    """The predicted peak of a device with several changes made together. notes: what a change did not find."""

    device: str
    peak: int
    bytes: int
    changes: tuple[tuple[str, str], ...]
    confidence: Confidence
    notes: tuple[str, ...] = ()

    def _summary(self) -> str:
        return f"{self.device}: {self.bytes} bytes instead of {self.peak}"


@dataclass(frozen=True, slots=True, repr=False)
class Plan(Displayed, Brief):
    """Changes with which the predicted peak of a device is within a budget, or none are enough: `fits`.

    changes: each with the peak that it gives together with those before it, and what it saves more than they do. tried:
    sets of changes. complete: all smaller sets were. step, note: as of Advice.
    """

    device: str
    peak: int
    step: int | None
    budget: int
    bytes: int
    changes: tuple[Proposal, ...]
    confidence: Confidence
    tried: int
    complete: bool
    note: str = ""

    def _summary(self) -> str:
        return f"{self.device}: {self.bytes} bytes instead of {self.peak}, budget {self.budget}"

    @property
    def fits(self) -> bool:
        return self.bytes <= self.budget
