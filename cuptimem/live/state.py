"""What is known of a program at one moment while it runs, as plain frozen data."""

from collections.abc import Mapping
from dataclasses import dataclass

from cuptimem.report.stacks import Frame

UNKNOWN = "unknown"  # a category that only the future shows


@dataclass(frozen=True, slots=True)
class LiveLine:
    """What is alive of one line of the user's."""

    where: str  # the line, or why there is none
    frame: Frame | None
    bytes: int
    blocks: int
    categories: Mapping[str, int]  # bytes; UNKNOWN: not known yet
    judged: tuple[str, ...] = ()  # categories of the line at the peak of Verdict.peak_step, the largest first


@dataclass(frozen=True, slots=True)
class LiveStep:
    """A step that ended. Times are nanoseconds since the recording began."""

    number: int
    loop: str  # "training", "evaluation"
    begin_ns: int
    end_ns: int
    peak: int
    end: int  # alive at its end


@dataclass(frozen=True, slots=True)
class LiveDevice:
    """One device now. None is unknown."""

    device: str
    allocated: int
    blocks: int
    peak: int  # the most so far
    reserved: int | None  # by PyTorch's caching allocator
    used: int | None  # of the device, by all processes, when the driver was last asked
    total: int | None
    others: int | None  # used by other processes
    lines: tuple[LiveLine, ...]  # the largest first
    steps: tuple[LiveStep, ...]  # the last ones that ended, oldest first

    @property
    def categories(self) -> dict[str, int]:
        """Bytes alive now, the largest first; UNKNOWN: not known yet."""
        sums: dict[str, int] = {}
        for line in self.lines:
            for category, size in line.categories.items():
                sums[category] = sums.get(category, 0) + size
        return dict(sorted(sums.items(), key=lambda one: -one[1]))

    @property
    def headroom(self) -> int | None:
        """What the device could still give out, to any process, when the driver was last asked."""
        return None if self.total is None or self.used is None else self.total - self.used


@dataclass(frozen=True, slots=True)
class Growing:
    """A line that grows from step to step."""

    where: str
    bytes_per_step: float
    device: str | None  # None: graph nodes


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a reading of the whole recording has shown: at 2, 4, 8, 16, ... steps."""

    steps: int  # that had ended
    growth: int | None  # bytes a step; None: no verdict yet
    growing: tuple[Growing, ...]
    peaks: Mapping[str, Mapping[str, int]]  # by device: categories of its peak so far
    peak_steps: Mapping[str, int | None]  # the step of that peak
    lines: Mapping[tuple[str, str], tuple[str, ...]]  # by device and line: its categories then, the largest first


@dataclass(frozen=True, slots=True)
class LiveState:
    """A program, as far as its trace shows it. Made by following.Follower."""

    path: str
    pid: int | None
    script: str
    state: str  # "recording", "complete"; "recovered", "cut": it was killed
    reason: str  # why the recording ended early, or what the trace lacks; else ""
    process: str  # "runs", "is stopped", "waits for a device", "is gone", "unknown"
    time_ns: int  # wall clock of this state
    age_ns: int | None  # since the last event, of the program's clock; None: there was none
    events: int
    steps: int  # that ended
    step: int | None  # the one that goes on; None: there is no step yet, or the recording has ended
    phase: str  # the loop of the last step; "" before the first
    rate: float | None  # steps a second, of the last ones
    resident: int | None  # bytes of the process
    refused: int  # requests
    lost: int  # events
    devices: tuple[LiveDevice, ...]
    verdict: Verdict | None

    @property
    def ended(self) -> bool:
        return self.state != "recording"
