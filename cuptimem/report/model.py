"""What a trace says, as plain frozen data.

All sizes are bytes (int), all times nanoseconds since the start of the trace, or of its window. Report objects can be
pickled, compared and kept; they need neither the trace nor torch. Stacks are tuples of Frame, innermost first.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from cuptimem.displayed import Displayed
from cuptimem.errors import Error, core
from cuptimem.report import brief, fragmentation, leaks, ledger, process, snapshots
from cuptimem.report.brief import Brief
from cuptimem.report.chart import Chart, Span
from cuptimem.report.contents import CATEGORIES as CATEGORIES
from cuptimem.report.contents import TABLES as TABLES
from cuptimem.report.contents import Contents as Contents
from cuptimem.report.contents import Contributor as Contributor
from cuptimem.report.contents import Line as Line
from cuptimem.report.contents import LiveTensor as LiveTensor
from cuptimem.report.contents import Peak as Peak
from cuptimem.report.contents import first_lines as first_lines
from cuptimem.report.contents import lines_of as lines_of
from cuptimem.report.cycles import classes_of, is_much
from cuptimem.report.fragmentation import Fragmentation
from cuptimem.report.held import HeldLine
from cuptimem.report.host import Host
from cuptimem.report.kernels import Kernels
from cuptimem.report.leaks import Leaks
from cuptimem.report.ledger import NOT_RECORDED, DeviceTimeline, DriverLevel, Ledger
from cuptimem.report.lives import Lives
from cuptimem.report.stacks import Frame, Stack, shown_file, user_frame
from cuptimem.words import plural, size

if TYPE_CHECKING:
    import pandas

    from cuptimem.output.exports import Written
    from cuptimem.output.exports.arrow import Allocations
    from cuptimem.output.text.blocks import Block
    from cuptimem.report.account import Account
    from cuptimem.report.advice import Advice


class Recorded(Protocol):
    """The part of a recording that a report is of, while its profile lives."""

    @property
    def source(self) -> tuple[str, object, int]: ...


@dataclass(frozen=True, slots=True, repr=False)
class OutOfMemory(Brief):
    """An allocation that a device refused.

    What was alive then is known of the first sixteen of a device, and of the one whose exception left the program or
    the profile. One made in backward is charged to the forward line of its autograd node, as a Contributor is.
    """

    device: str
    time_ns: int
    requested: int
    allocated: int
    stack: Stack
    step: int | None
    contributors: tuple[Contributor, ...] = ()  # alive then, the largest first
    escaped: bool = False  # its exception left the program or the profile; else the program caught it, or was killed
    reserved: int | None = None  # by the allocator, as last told where `memory` is None; None: it does not say
    origin: Stack = ()  # its own stack, where that is not `stack`
    operator: str | None = None  # the autograd node that ran
    memory: Fragmentation | None = None  # of PyTorch's segments then; None: none were known (the CPU has none)
    tensors: tuple[LiveTensor, ...] = ()  # alive then, the largest first; part of the contributors' bytes

    def _summary(self) -> str:
        where = f" at {brief.at(self.frame)}" if self.frame is not None else ""
        moment = f"{where}{brief.in_step(self.step)}"
        return f"{self.device}: {size(self.requested)} refused{moment}, {size(self.allocated)} allocated"

    @property
    def frame(self) -> Frame | None:
        """The user's line: see user_frame."""
        return user_frame(self.stack)

    @property
    def cached(self) -> int | None:
        """Reserved, and in no block."""
        if self.memory is not None:
            return self.memory.unused
        return None if self.reserved is None else max(0, self.reserved - self.allocated)

    @property
    def unknown(self) -> int:
        """Allocated, and in no contributor: compacted (Report.compacted), lost, or not asked for by tensors."""
        return self.allocated - sum(c.bytes for c in self.contributors)


@dataclass(frozen=True, slots=True)
class TimelinePoint:
    """Live bytes in one interval that begins at time_ns; reserved where the allocator keeps more than it gave out."""

    time_ns: int
    low: int
    high: int
    reserved: int | None


@dataclass(frozen=True, slots=True)
class ResidentPoint:
    """Memory of the process."""

    time_ns: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Segments:
    """What PyTorch's caching allocator took from CUDA and had not given back: at the end, and at most. An expandable
    segment is one, of the memory that is mapped into it.

    Not those of a program's own memory pools (torch.cuda.MemPool) that were there before the recording.
    """

    count: int
    bytes: int
    peak: int


@dataclass(frozen=True, slots=True)
class TotalsCheck:
    """The allocator's own total of bytes given out against the recorded heap, whenever it was reported.

    `reported` and `live` are of the last time that they differed, else of the last time.
    """

    reported: int
    live: int
    checked: int
    differ: int


@dataclass(frozen=True, slots=True, repr=False)
class HostRead(Brief):
    """A line that read values from a simulated device, where no kernel computes.

    written: the host had written them itself, so they are right unless a kernel would have changed them; else only a
    kernel would have computed them, and what was read are zeros.
    """

    device: str
    count: int
    bytes: int
    stack: Stack
    written: bool = False

    @property
    def frame(self) -> Frame | None:
        """The user's line: see user_frame."""
        return user_frame(self.stack)


@dataclass(frozen=True, slots=True, repr=False)
class KeptBlock(Brief):
    """A block that was allocated since the start and is alive at the end."""

    address: int
    bytes: int
    device: str
    stack: Stack
    step: int | None  # that it was made in; None: in none


@dataclass(frozen=True, slots=True)
class Garbage:
    """What Python's collections freed on a device: bytes that only reference cycles held until then."""

    collections: int  # those that freed any, without the one at the recording's end
    freed: int  # without what after_oom has of a program that refused memory has ended
    most: int  # by one of them, before the last step's end
    after_oom: int  # of what was alive at the last refused request, by the one at the end, too; 0 without one
    # Of the peak's bytes, those that collections behind it freed, up to the first full one (a later one frees what was
    # in use then), without what a line's last step before it made (which may have been in use, too).
    at_peak: int = 0
    contributors: tuple[Contributor, ...] = ()  # of at_peak, the largest first
    freed_contributors: tuple[Contributor, ...] = ()  # of freed and after_oom

    @property
    def line(self) -> Line | None:
        """The user's line that made most of what the peak had of it, else of all of it."""
        return next(iter(lines_of(self.contributors)), self.made)

    @property
    def made(self) -> Line | None:
        """The user's line that made most of it."""
        return next(iter(lines_of(self.freed_contributors)), None)


@dataclass(frozen=True, slots=True, repr=False)
class Device(Brief):
    """Totals of one device over the whole recording."""

    name: str
    start: int
    peak: Peak
    end: int
    allocations: int
    frees: int
    allocated: int
    freed: int
    reserved_peak: int | None
    timeline: tuple[TimelinePoint, ...]
    ooms: tuple[OutOfMemory, ...]  # the first 1,024, and the one that left
    requested_peak: int | None = None  # of the peak's bytes, those that were asked for; None: the allocator did not say
    # The highest sum of live blocks that were allocated since the start; a lower bound where Report.compacted.
    peak_above_start: int = 0
    kept: int = 0  # of those, what is alive at the end
    segments: Segments | None = None  # None: none were seen (other back ends, the CPU)
    check: TotalsCheck | None = None  # None: the allocator tells no totals
    tables: tuple[Contents, ...] = ()  # those that were asked for
    refused: int = 0  # requests: all of them
    garbage: Garbage | None = None

    def _summary(self) -> str:
        moments = f"{size(self.start)} at start, peak {size(self.peak.bytes)}{brief.in_step(self.peak.step)}"
        return f"{self.name}: {moments}, {size(self.end)} at end, {plural(self.allocations, 'allocation')}"


@dataclass(frozen=True, slots=True, repr=False)
class Step(Brief):
    """One step on one device."""

    index: int
    loop: str
    device: str
    begin_ns: int
    end_ns: int
    start: int
    peak: int
    peak_ns: int
    end: int
    allocated: int
    freed: int
    allocations: int
    contributors: tuple[Contributor, ...]  # the ten largest at the step's peak
    rest_bytes: int = 0
    rest_count: int = 0
    reserved: int | None = None  # by the allocator when the step ended; None: it does not say
    incomplete: bool = False  # it did not end: the last one, which an exception cut short

    def _summary(self) -> str:
        loop = "" if self.loop in ("", "training") else f" of {brief.name(self.loop)}"
        moments = f"{size(self.start)} at start, peak {size(self.peak)}, {size(self.end)} at end"
        cut = " (did not end)" if self.incomplete else ""
        return f"{self.index}{loop} on {self.device}{cut}: {moments}, {size(self.allocated)} allocated"


class Steps(Displayed, Brief, tuple[Step, ...]):
    """Steps in their order, an entry per step and device. The last one may be incomplete."""

    __slots__ = ()

    @property
    def ended(self) -> "Steps":
        """Those that ended: what rates, medians and comparisons are of."""
        return Steps(step for step in self if not step.incomplete) if self and self[-1].incomplete else self

    def _summary(self) -> str:
        steps = [step for step in self if isinstance(step, Step)]  # dataclasses.asdict() makes dictionaries of them
        if not steps:
            return f"{plural(len(self), 'row')}"
        highest = max(steps, key=lambda step: step.peak)
        number = len({step.index for step in steps if not step.incomplete})
        return (
            f"{plural(number, 'step')}, highest peak {size(highest.peak)} on {highest.device} in step {highest.index}"
        )

    def to_dicts(self) -> list[dict[str, Any]]:
        """One flat dictionary per step and device, numbers in bytes and nanoseconds."""
        return [{name: getattr(step, name) for name in _STEP_COLUMNS} for step in self]

    def to_pandas(self) -> "pandas.DataFrame":
        """The same as a data frame. Raises Error where pandas is not installed."""
        try:
            import pandas
        except ImportError:
            raise Error("pandas is not installed; use steps.to_dicts(), or install it: pip install pandas") from None
        return pandas.DataFrame(self.to_dicts(), columns=list(_STEP_COLUMNS))


_STEP_COLUMNS = (
    "index",
    "loop",
    "device",
    "begin_ns",
    "end_ns",
    "start",
    "peak",
    "peak_ns",
    "end",
    "allocated",
    "freed",
    "allocations",
    "reserved",
    "incomplete",
)


@dataclass(frozen=True, slots=True, repr=False)
class Survivor(Brief):
    """Blocks of one stack that outlived the step in which they were made and are alive at the end."""

    device: str
    bytes: int
    count: int
    first_step: int | None
    last_step: int | None
    stack: Stack

    def _summary(self) -> str:
        steps = "" if self.first_step is None else f" of steps {self.first_step} to {self.last_step}"
        return f"{self.device}: {brief.amount(self.bytes, self.count)}{steps}"


@dataclass(frozen=True, slots=True)
class Backward:
    """Bytes allocated while autograd ran, by how far they could be joined to a forward line."""

    bytes: int
    resolved: int
    accumulation: int
    unresolved: int


@dataclass(frozen=True, slots=True)
class Compacted:
    """The stretch of a recording past its bound (max_size) of which only sums, survivors and peaks were kept."""

    from_step: int  # the first and the last step of it; -1 = before the first
    to_step: int
    events: int  # left out, and counted


@dataclass(frozen=True, slots=True)
class Lost:
    """What the recording misses, in counts. All zero in a good one."""

    events: int = 0  # allocations and frees that found no room: the live bytes are then wrong by them
    stacks: int = 0  # stacks that could not be defined
    unknown_frees: int = 0  # frees of blocks made before recording, or by a hook that was not there yet
    replaced: int = 0  # allocations at an address that was still taken: a free went missing
    seeds_skipped: int = 0  # storages alive at the start that could not be looked at
    cut: int = 0  # stacks of more than 1,024 calls without their outer ones, names cut after 4,096 bytes
    unshown: int = 0  # references to stacks that are left out: all together they were too large for this file

    @property
    def heap_is_exact(self) -> bool:
        """Whether the live bytes can be trusted to the byte."""
        return self.events == 0 and self.replaced == 0


@dataclass(frozen=True, slots=True, repr=False)
class ClockChange(Brief):
    """From this step on, another clock counts."""

    step: int
    kind: str
    where: tuple[str, int, str] | None  # file, line, function
    loop: str


@dataclass(frozen=True, slots=True, repr=False)
class ClockPassed(Brief):
    """A better clock that ticked too rarely to count."""

    kind: str
    where: tuple[str, int, str] | None
    steps: int


@dataclass(frozen=True, slots=True, repr=False)
class ClockRate(Brief):
    """Several rounds of updates make an iteration: in one, an optimizer steps once at most."""

    updates: int  # rounds
    where: tuple[str, int, str] | None  # of the update that ends an iteration
    joined: bool  # a step is an iteration; else it is one round, for there are too few iterations


@dataclass(frozen=True, slots=True, repr=False)
class Clock(Brief):
    """What counts the steps: "step" (prof.step()), "optimizer", "backward", "data", "module"; None: nothing ticked."""

    kind: str | None
    where: tuple[str, int, str] | None
    changes: tuple[ClockChange, ...] = ()
    passed: ClockPassed | None = None
    rate: ClockRate | None = None

    def _summary(self) -> str:
        place = "" if self.where is None else f" at {brief.name(f'{shown_file(self.where[0])}:{self.where[1]}')}"
        return f"{self.kind}{place}" + (f", {len(self.changes)} changes" if self.changes else "")


@dataclass(frozen=True, repr=False)
class Report(Displayed, Brief):
    """Everything that a trace, or one window of it, says."""

    path: str | None  # None: the trace was a temporary file
    complete: bool  # the program itself ended the recording: it is all there (but see lost)
    state: str  # "complete", "recording" (still going on), "recovered" (killed, nothing lost), "cut" (tail missing)
    reason: str  # why the recording ended early, or what the file lacks; "" if neither
    environment: Mapping[str, str]
    start_realtime_ns: int  # nanoseconds since 1970
    duration_ns: int
    events: int
    allocations: int
    threads: int
    devices: tuple[Device, ...]
    steps: Steps
    clock: Clock
    survivors: tuple[Survivor, ...]
    backward: Backward
    resident: tuple[ResidentPoint, ...]
    leaks: Leaks  # verdicts, the most bytes a step first
    suspects: Leaks  # what grew, but is no verdict: each says why
    nodes: int | None  # nodes of the autograd graph alive at the last step's end; None: see nodes_reason
    nodes_reason: str  # why graph nodes were not counted, and are in no leak; "" if they were
    lost: Lost
    compacted: Compacted | None  # None: the recording has every event
    kept_blocks: tuple[KeptBlock, ...] = ()  # where the table "kept" was asked for: the first 65,536
    host_reads: tuple[HostRead, ...] = ()  # on a simulated device only, the most frequent first
    schema: int = field(default=1)
    driver: DriverLevel = NOT_RECORDED  # what was recorded below PyTorch; its mode and reason where nothing was
    ledgers: tuple[Ledger, ...] = ()  # of each device at its peak and at the end, the fullest device first
    fragmentations: tuple[Fragmentation, ...] = ()  # of each device at its peak, when it refused, at the end
    kernels: Kernels | None = None  # None: they were not recorded
    device_timelines: tuple[DeviceTimeline, ...] = ()
    # Address space that is private and writable, less what malloc keeps free and what tensors use: when a step clock
    # ticked, at most a hundred times a second.
    rest: tuple[ResidentPoint, ...] = ()
    window: int = 0  # which part of the file this is; 0: all of it
    step: int | None = None  # the devices' peaks and tables are of this step, not of the run
    code: tuple[str, ...] = ()  # installed packages that count as the user's own code, too
    held: tuple[HeldLine, ...] = ()  # who held the largest lines at the end, the most bytes first
    waiting: tuple[HeldLine, ...] = ()  # of these, what the collection at the end was to free: the cycles that held it
    drawn: tuple[Chart, ...] = ()  # where charts were asked for: see charts()
    lived: tuple[Lives, ...] = ()  # where single blocks were asked for: see lives()
    host: Host | None = None  # every process below the recorded one; None: no sample (less than half a second)
    # Of a profile without a path, once its block has ended: gives what has the temporary trace, as long as that is
    # there. Not in a pickle.
    recorded: "Callable[[], Recorded | None] | None" = field(default=None, compare=False, repr=False)

    @property
    def title(self) -> str:
        """What was recorded: the title of the recording, else the script's name, else the file's."""
        known = self.environment
        script = known.get("script", "") or self.path or ""
        return known.get("title", "") or os.path.basename(script) or "recording"

    def _summary(self) -> str:
        said = [f"{brief.name(self.title)}: {self._peak_said()}"]
        if self.steps:
            said.append(plural(len({step.index for step in self.steps.ended}), "step"))
        if refused := sum(device.refused for device in self.devices):
            said.append(f"{plural(refused, 'request')} refused")
        if self.leaks:
            rate = sum(leak.total_bytes_per_step for leak in self.leaks)
            said.append(f"{plural(len(self.leaks), 'leak')} of {size(round(rate))} a step")
        elif max(self.loops.values(), default=0) < leaks.STEPS_NEEDED:
            said.append("leaks not judged")
        elif self.process_growth is not None:
            said.append(f"no leak, but the process grows by {size(self.process_growth.bytes)}")
        else:
            said.append("no leak")
        if self.undecided:
            said.append(plural(len(self.undecided), "suspect"))
        return ", ".join(said if self.complete else [*said, self.state])

    @property
    def peaks(self) -> tuple[Peak, ...]:
        """The peak of each device: accelerators first, then the CPU; the highest first among equals."""
        return tuple(device.peak for device in self.devices)

    @property
    def peak(self) -> Peak:
        """The peak of the first device: the fullest accelerator, else the CPU.

        Raises Error if nothing was allocated while recording.
        """
        if not self.devices:
            raise Error("nothing was allocated while this was recorded: there is no peak")
        return self.devices[0].peak

    @property
    def undecided(self) -> Leaks:
        """The suspects that may well be leaks: this recording cannot tell."""
        return Leaks(suspect for suspect in self.suspects if suspect.undecided)

    def collected_after(self, oom: OutOfMemory) -> int:
        """What was alive at a refusal by reference cycles only, for collections behind it freed it. 0: unknown, too."""
        device = self.device(oom.device)
        known = device.garbage is not None and oom.escaped and oom is device.ooms[-1]
        return min(device.garbage.after_oom, oom.allocated) if known and device.garbage is not None else 0

    @property
    def sawtooth(self) -> Device | None:
        """The device on which the most garbage waited for Python's collector, where that is a share of its peak."""
        waited = [one for one in self.devices if one.garbage is not None and is_much(one.garbage.most, one.peak.bytes)]
        return max(waited, key=lambda one: one.garbage.most if one.garbage else 0, default=None)

    def collected_at_peak(self, contents: Contents) -> Garbage | None:
        """What a device's peak had of garbage, where that is a share of it; None of other moments, too."""
        device = self.device(contents.device)
        one = device.garbage
        return one if one and device.peak is contents and is_much(one.at_peak, contents.bytes) else None

    def cycles(self, device: str, line: Line | None = None) -> str:
        """The classes whose objects make the cycles that held most of this device's blocks, of this line's where it is
        known: "Episode and Env"; "": no search for holders has seen any."""
        frame = line.frame if line is not None else None
        sums: dict[str, int] = {}
        for row in (*self.waiting, *self.leaks, *self.suspects):
            if row.device == device and (frame is None or (row.frame is not None and row.frame.same_line(frame))):
                for one in row.holders:
                    made = classes_of(one.path)
                    sums[made] = sums.get(made, 0) + one.bytes * bool(made)
        return max(sums, key=lambda made: sums[made], default="")

    @cached_property
    def process_growth(self) -> process.ProcessGrowth | None:
        """How the whole process grows from step to step, where no tensor explains it; else None."""
        return process.growth(self)

    @property
    def loops(self) -> dict[str, int]:
        """How many steps of each loop ended, in the order of their first ones."""
        indexes: dict[str, set[int]] = {}
        for step in self.steps.ended:
            indexes.setdefault(step.loop, set()).add(step.index)
        return {loop: len(steps) for loop, steps in indexes.items()}

    @property
    def ooms(self) -> tuple[OutOfMemory, ...]:
        """Refused allocations of all devices in the order of time."""
        return tuple(sorted((oom for device in self.devices for oom in device.ooms), key=lambda oom: oom.time_ns))

    def _peak_said(self) -> str:
        if not self.devices:
            return "nothing was allocated"
        return f"peak {size(self.peak.bytes)} on {self.peak.device}{brief.in_step(self.peak.step)}"

    @property
    def oom_left(self) -> OutOfMemory | None:
        """The refused allocation whose exception left the program or the profile."""
        return next((oom for oom in self.ooms if oom.escaped), None)

    def device(self, name: str) -> Device:
        """The device of that name ("cpu", "cuda:0"; "cuda" is "cuda:0"). Raises Error if it is not in the report."""
        for device in self.devices:
            if device.name in (name, f"{name}:0"):
                return device
        known = ", ".join(device.name for device in self.devices) or "none"
        raise Error(f"no device {name!r} in this recording (there: {known})")

    def timeline(self, device: str) -> tuple[TimelinePoint, ...]:
        """Live bytes of a device over time."""
        return self.device(device).timeline

    def ledger(self, device: str | None = None, at: str | float | None = None) -> Ledger:
        """Who has the used bytes of a device (None: the fullest): its lines sum to what the driver says is used.

        at: "peak" (the default; of the used bytes), "end", or seconds since the start: the moment next to it at which
        the driver was asked (once the context's size is known, if it ever is). That one is read from the file again.
        Raises Error, one line, where the recording has no ledger (report.driver says why there is no driver level), no
        such device or no such moment.
        """
        if at is None or isinstance(at, str):
            if at not in (None, "peak", "end"):
                raise Error(f"no ledger at {at!r}: it is 'peak', 'end', or seconds since the start")
            return ledger.pick(self, device, at or "peak")
        ledger.pick(self, device, "peak")  # says what is missing before the file is read again
        ledger.check_moment(self, at)
        return ledger.pick(self._again(ledger_at_ns=round(at * 1e9)), device, "asked")

    def at_step(self, index: int) -> "Report":
        """The recording with the devices' peaks of one step (-1: the last), and all their contributors.

        The file is read again. Raises Error.
        """
        return self._again(step=index)

    def _again(self, **more: Any) -> "Report":
        """This report, with more in it than it was opened with."""
        from cuptimem.report import load

        path, source, window = self._trace()
        temporary = source is not None
        asked = {"step": self.step, **more}
        report = load.analyze(path, window=window, code=self.code, source=source, temporary=temporary, **asked)
        if not temporary and report.start_realtime_ns != self.start_realtime_ns:
            raise Error(f"{self.path} is another recording by now: open it again")
        return report

    def _trace(self) -> tuple[str, object, int]:
        """Its file, what to give the core for it (None: the file), and the window in it."""
        recorded = None if self.recorded is None else self.recorded()
        if recorded is not None:
            return recorded.source
        if self.path is None:
            raise Error(
                "this recording was a temporary file, gone with its profile: keep the profile, or give it a path "
                "(in a notebook: %%cuptimem -s FILE)"
            )
        return self.path, None, self.window

    def fragmentation(self, device: str | None = None, at: str | None = None) -> Fragmentation:
        """What PyTorch's allocator has of a device (None: the one with most unused) and cannot give out.

        at: "oom" (when the device refused), "peak" (of what was reserved), "end"; None: the first of them that there
        is. Raises Error where the recording has none, no such device or no such moment.
        """
        return fragmentation.pick(self, device, at)

    def contents(self, what: str = "peak", device: str | None = None) -> Contents:
        """What a device (None: the first one) held at the "peak", the "start" or the "end", or all that was ever
        "allocated", in "stepped" only in steps, or freed in the step that made it ("temporary").

        The file is read again unless the report was opened with that table. Raises Error.
        """
        if what != "peak" and what not in TABLES:
            raise Error(f"no contents {what!r}: there are peak, {', '.join(TABLES)}")
        if what in ("above", "kept") and self.step is not None:
            raise Error(f"{what!r} is of the whole recording: open it without a step")
        one = self.device(device) if device is not None else self.device(self.peak.device)
        if what == "peak":
            return one.peak
        for table in one.tables:
            if table.what == what:
                return table
        return self._again(tables=(what,)).contents(what, one.name)

    def account(self, device: str | None = None, depth: int | None = None) -> "Account":
        """What the peak of a device (None: the first one) is made of by module and category, in exact bytes.

        depth: a module counts for the first so many parts of its name. Raises Error.
        """
        from cuptimem.report import account

        return account.of_contents(self.contents("peak", device), depth)

    def charts(self, spans: Iterable[Span] = (Span(),)) -> tuple[Chart, ...]:
        """Live bytes over time by contributor: for each span (chart.Span), and in it for each device, one Chart.

        The file is read again, once for all spans. Raises Error.
        """
        return self._again(charts=tuple(spans)).drawn

    def lives(self, device: str | None = None) -> Lives:
        """The single blocks around the peaks of a device (None: the first one), of which advice is reckoned.

        The file is read again unless the report has them. Raises Error.
        """
        name = self.device(device).name if device is not None else self.peak.device
        found = next((one for one in self.lived if one.device == name), None)
        return found if found is not None else self._again(with_lives=True).lives(name)

    @property
    def advice(self) -> "Advice":
        """Changes of the program that would lower the peak of the first device, each with its predicted peak.

        The file is read again unless the report has its single blocks. Raises Error.
        """
        return self.advise()

    def advise(self, device: str | None = None) -> "Advice":
        """The same for a device (None: the first one)."""
        from cuptimem import advice

        return advice.advise(self, device)

    def show(self, path: str | os.PathLike[str] | None = None, *, open: bool = True) -> str:
        """Writes the timeline of `cuptimem timeline`, one HTML file, and opens it where there is a browser; its path.

        path: where to (None: a new file in the folder for temporary files, which stays there). Raises Error, one line;
        a file that is no page of cuptimem is not replaced.
        """
        from cuptimem.output.pages import show

        return show.timeline(self, None if path is None else os.fspath(path), open)

    def export(self, kind: str, path: str | os.PathLike[str] | None = None, **options: Any) -> "Written":
        """Writes the recording for another program, as `cuptimem export --to KIND` does.

        kind: of cuptimem.output.exports.FORMATS. path: None is beside the trace. options: of
        cuptimem.output.exports.Options, such as device and force. It is of the whole recording, where the report is
        of a step, too. Raises Error, one line.
        """
        from cuptimem.output import exports

        if path is None and self._trace()[1] is not None:
            raise Error("this recording is a temporary file: name the file to write")
        trace, window = self._same_trace()
        asked = exports.Options(**{"window": window, "code": self.code, **options})
        return exports.export(trace, kind, None if path is None else os.fspath(path), asked)

    def to_arrow(self, device: str | None = None) -> "Allocations":
        """Every allocation of a device (None: of all) as a row, for pyarrow, pandas, polars, DuckDB and what else reads
        the Arrow C stream interface: `pyarrow.table(report.to_arrow())`, `polars.DataFrame(report.to_arrow())`.

        The file is read again each time that the result is read. It is of the whole recording, where the report is of
        a step, too. Columns: docs/exports.md. Raises Error.
        """
        from cuptimem.output.exports import Options
        from cuptimem.output.exports.arrow import Allocations

        trace, window = self._same_trace()
        return Allocations(trace, Options(device=device, window=window, code=self.code))

    def _same_trace(self) -> tuple[str, int]:
        """The file and the window of this recording. Raises Error where another one is there by now."""
        trace, _, window = self._trace()
        if core().Reader(snapshots.trace_of(trace), window=window).start_realtime_ns != self.start_realtime_ns:
            raise Error(f"{trace} is another recording by now: open it again")
        return trace, window

    def step_peak(self, index: int, device: str | None = None) -> Peak:
        """The peak of one step with its ten largest contributors. -1 is the last that ended.

        Raises Error if there is none.
        """
        name = self.device(device).name if device is not None else None
        if index < 0 and (ended := self.steps.ended):
            index += 1 + max(step.index for step in ended)
        for step in self.steps:
            if step.index == index and (name is None or step.device == name):
                return Peak(
                    step.device,
                    step.peak,
                    step.peak_ns,
                    step.index,
                    step.contributors,
                    step.rest_bytes,
                    step.rest_count,
                    loops=self.peak.loops,
                )
        raise Error(f"no step {index} in this recording ({self._known_steps()})")

    def _known_steps(self) -> str:
        if not self.steps:
            return "no step clock ticked in it"
        return f"there: {min(s.index for s in self.steps)} to {max(s.index for s in self.steps)}"

    @cached_property
    def _blocks(self) -> "Sequence[Block]":
        from cuptimem.output.text import views

        return views.summary(self)

    def __str__(self) -> str:
        from cuptimem.output.text import terminal, text

        return text.render(self._blocks, terminal.width_of_output())

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in self.__dict__.items() if name not in ("_blocks", "process_growth")}
        return state | {"recorded": None}
