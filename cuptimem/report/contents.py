"""What was alive on a device at one moment, by contributor and by line, as plain frozen data."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from cuptimem.displayed import Displayed
from cuptimem.report import brief
from cuptimem.report.brief import Brief
from cuptimem.report.held import HeldLine
from cuptimem.report.stacks import Frame, Stack, library_line, user_frame
from cuptimem.words import size

# What a block is for; csrc/heap/category.h has the rules.
CATEGORIES = (
    "parameter",
    "buffer",
    "gradient",
    "optimizer state",
    "input",
    "loaded",
    "activation",
    "kept",
    "bucket",
    "autocast cache",
    "workspace",
    "temporary",
    "before start",
    "unknown",
)


@dataclass(frozen=True, slots=True, repr=False)
class Contributor(Brief):
    """Blocks alive together that came from one stack in one phase, and are of one category and module.

    A block made in backward is charged to the forward line of its autograd node: `stack` is that line's stack, `origin`
    the stack on which backward() was called.
    """

    bytes: int
    count: int
    stack: Stack
    phase: str  # "data", "forward", "backward", "optimizer", "other", "before start"
    operator: str | None = (
        None  # the autograd node that ran, "AddmmBackward0", else the operator where they are recorded
    )
    origin: Stack = ()
    stack_lost: bool = False  # there was a stack, but no room to define it
    category: str = "unknown"  # of CATEGORIES
    qualified: str | None = None  # the name of the module that owns it or made it: "encoder.layers.3.self_attn"
    saved_by: str | None = None  # of an activation: the autograd node that had saved it, "AddmmBackward0"

    def _summary(self) -> str:
        parts = dict.fromkeys((f"at {brief.where(self)}", self.phase, self.category))
        return f"{brief.amount(self.bytes, self.count)} {', '.join(parts)}"

    @property
    def frame(self) -> Frame | None:
        """The user's line: see user_frame."""
        return user_frame(self.stack)

    @property
    def library_frame(self) -> Frame | None:
        """The innermost frame, where it is not the user's line itself."""
        return self.stack[0] if self.stack and self.stack[0] != self.frame else None

    @property
    def library_line(self) -> Frame | None:
        """The library's line below the user's, outside PyTorch where there is one: see stacks.library_line."""
        return library_line(self.stack)

    @property
    def modules(self) -> tuple[str, ...]:
        """Classes of the modules whose calls the block was made in, outermost first."""
        return tuple(frame.module for frame in reversed(self.stack) if frame.module is not None)

    @property
    def module(self) -> str | None:
        """The module's qualified name; where no walk has seen it, the class of the innermost one that was called."""
        if self.qualified is not None:
            return self.qualified
        return next((frame.module for frame in self.stack if frame.module is not None), None)

    @property
    def where(self) -> str:
        """The user's line, or why there is none."""
        frame = self.frame
        if frame is not None:
            return frame.place
        if self.stack_lost:
            return "(stack lost)"
        if self.phase == "before start":
            return "(before start)"
        if self.operator == "AccumulateGrad":
            return "(gradient accumulation)"
        if self.category == "workspace":
            return "(a library's workspace)"
        return "(no Python line)"


@dataclass(frozen=True, slots=True, repr=False)
class Line(Brief):
    """All contributors of one line of the user's, whatever a library did below it: report.parts has that."""

    bytes: int
    count: int
    phase: str  # the one of most of the bytes
    where: str
    contributors: tuple[Contributor, ...]
    frame: Frame | None  # None: `where` says why

    def _summary(self) -> str:
        return f"{brief.amount(self.bytes, self.count)} at {brief.where(self)}, {self.phase}"

    @property
    def phases(self) -> tuple[str, ...]:
        """Those of its contributors, the one of most bytes first."""
        return _phases(self.contributors)


def _phases(contributors: Sequence[Contributor]) -> tuple[str, ...]:
    if len(contributors) == 1:  # of most lines, where there are many
        return (contributors[0].phase,)
    sums: dict[str, int] = {}
    for one in contributors:
        sums[one.phase] = sums.get(one.phase, 0) + one.bytes
    return tuple(sorted(sums, key=lambda phase: -sums[phase]))


class _Placed(Protocol):
    @property
    def frame(self) -> Frame | None: ...


_Row = TypeVar("_Row", bound=_Placed)


def first_lines(rows: Sequence[_Row], most: int) -> tuple[list[_Row], list[_Row]]:
    """(shown, others): so many lines, and behind them what has none; that is never among the others."""
    lines = [row for row in rows if row.frame is not None]
    return lines[:most] + [row for row in rows if row.frame is None], lines[most:]


def lines_of(contributors: Iterable[Contributor]) -> tuple[Line, ...]:
    """By line of the user's, the largest first; behind the lines what has none."""
    groups: dict[object, tuple[Frame | None, list[Contributor]]] = {}
    for contributor in contributors:
        frame = contributor.frame
        key = contributor.where if frame is None else (frame.file, frame.line)
        groups.setdefault(key, (frame, []))[1].append(contributor)
    lines = []
    for frame, group in groups.values():
        where = group[0].where if frame is None else frame.place
        size, count = sum(c.bytes for c in group), sum(c.count for c in group)
        lines.append(Line(size, count, _phases(group)[0], where, tuple(group), frame))
    return tuple(sorted(lines, key=lambda line: (line.frame is None, -line.bytes, line.where)))


# What Report.contents can be asked for beside the peak, and the core for.
TABLES = ("start", "end", "above", "kept", "allocated", "stepped", "temporary")


@dataclass(frozen=True, slots=True, repr=False)
class Contents(Displayed, Brief):
    """Blocks of one device, by contributor. The contributors' bytes and `rest_bytes` sum to `bytes`.

    what: "peak", or one of TABLES: alive at the start or at the end, alive at the peak above the start
    (Device.peak_above_start), allocated since the start and alive at the end ("kept"), all that was ever allocated, all
    that was allocated in steps, all that was freed in the step that made it. Of one step where `step` was asked for.
    """

    device: str
    bytes: int
    time_ns: int
    step: int | None  # None: no step clock ticked, the moment lies outside all steps, or it is about the whole run
    contributors: tuple[Contributor, ...]
    rest_bytes: int = 0  # without a stack: the trace is past its bound (Report.compacted), or keeps the largest only
    rest_count: int = 0
    what: str = "peak"
    loops: tuple[Frame, ...] = ()  # lines of the recording that only drive a library's loop: stacks.loop_lines
    held: tuple[HeldLine, ...] = ()  # of what is alive at the end: who holds the largest lines of this device

    def _summary(self) -> str:
        moment = brief.in_step(self.step) if self.what == "peak" else f", {self.what}"
        largest = f", most at {brief.where(max(self.lines, key=lambda line: line.bytes))}" if self.contributors else ""
        return f"{self.device}: {brief.amount(self.bytes, self.count)}{moment}{largest}"

    @property
    def count(self) -> int:
        """Blocks."""
        return sum(c.count for c in self.contributors) + self.rest_count

    @property
    def lines(self) -> tuple[Line, ...]:
        """The contributors by line of the user's."""
        return lines_of(self.contributors)


@dataclass(frozen=True, slots=True, repr=False)
class LiveTensor(Brief):
    """A block at a peak of which a walk over living objects has said what it is."""

    name: str | None  # "h.3.mlp.c_fc.weight", "exp_avg of h.3.mlp.c_fc.weight"; a gradient has its parameter's
    category: str  # of CATEGORIES
    bytes: int
    module: str | None  # the qualified name of the module that owns it
    dtype: str | None  # "float32"
    shape: tuple[int, ...] | None
    stack: Stack

    def _summary(self) -> str:
        kind = f" {self.dtype}{list(self.shape)}" if self.dtype is not None and self.shape is not None else ""
        return f"{brief.name(self.name or self.module or 'unnamed')}{kind}: {size(self.bytes)}, {self.category}"


@dataclass(frozen=True, slots=True, repr=False)
class Peak(Contents):
    """The moment with the most live bytes on one device, and what was alive then.

    A step's peak out of Report.steps keeps the ten largest contributors; `rest_bytes` and `rest_count` are the others.
    """

    tensors: tuple[LiveTensor, ...] = ()  # of the run's peak, the largest first; part of the contributors' bytes
