"""What CUDA itself gave out, and the account of a device that adds up, as plain frozen data.

All sizes are bytes. None is unknown: not reported, or it was not measured. A library is the file name of the one that
called CUDA ("libnccl.so.2"), "" where it is unknown; library_name has the name that people know it by.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from cuptimem.errors import Error
from cuptimem.report.brief import Brief, at, in_step, name
from cuptimem.report.libraries import library_name
from cuptimem.report.process import HOST
from cuptimem.report.stacks import Frame, Stack, user_frame
from cuptimem.words import size

if TYPE_CHECKING:
    from cuptimem.report.model import Report

PARTS = {
    "tensors": "tensors",
    "rounding": "rounding",
    "cached": "PyTorch's cache",
    "driver": "driver level",
    "driver rounding": "driver rounding",
    "pool slack": "pool slack",
    "context": "CUDA context",
    "others": "other processes",
    "host": "the host's memory",
    "page cache": "page cache",
    "residual": "residual",
}

_Row = TypeVar("_Row")


def chosen(rows: tuple[_Row, ...], name: str, name_of: Callable[[_Row], str], what: str) -> _Row:
    """The row of that device. Raises Error, with the devices there are, where there is none."""
    for row in rows:
        if name_of(row) in (name, f"{name}:0"):
            return row
    there = ", ".join(dict.fromkeys(name_of(row) for row in rows)) or "none"
    raise Error(f"no {what} of a device {name!r} in this recording (there: {there})")


def split_reason(reason: str) -> tuple[str, str]:
    """A reason of the driver level: the cause, and what to do about it, in the last parentheses; "" if nothing."""
    cause, parenthesis, fix = reason.rpartition(" (")
    return (cause, fix[:-1]) if parenthesis and fix.endswith(")") else (reason, "")


def missing(report: "Report", what: str) -> Error:
    """Why a recording has no ledger, or nothing else of the driver level, and what to do."""
    driver = report.driver
    if not driver.recorded:
        if all(device.name in HOST for device in report.devices):
            return Error(f"no {what} in this recording: the program allocated nothing on a CUDA device")
        why = f": {driver.reason}" if driver.reason else ""
        return Error(f"no {what} in this recording, for it has no driver level{why}")
    if driver.allocations == 0 and all(device.name in HOST for device in report.devices):
        return Error(f"no {what} in this recording: the program allocated nothing on a CUDA device")
    return Error(f"no {what} in this recording: its devices were never asked, for it ended too soon")


# -- the driver level ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, repr=False)
class DriverAllocations(Brief):
    """Driver-level memory of one kind, library and stack, alive together."""

    kind: str  # "device", "managed", "host", "registered", "async", "physical", "array", "ipc", "graph", ...
    library: str
    bytes: int
    count: int
    stack: Stack
    torch: bool = False  # PyTorch's allocator took it to carve tensors from it
    stack_lost: bool = False  # there was a stack, but no room to define it
    backward: bool = False  # in a backward: charged to the forward line of its autograd node, as blocks are

    @property
    def frame(self) -> Frame | None:
        """The user's line: see stacks.user_frame."""
        return user_frame(self.stack)

    @property
    def owner(self) -> str:
        """The library by the name that people know; "" where it is unknown."""
        return library_name(self.library)


@dataclass(frozen=True, slots=True, repr=False)
class DriverDevice(Brief):
    """What CUDA gave out of one device's memory, or of the host's, page-locked: at the end, and at most.

    Of a device this is memory alone: no addresses without memory, none that another process pays for.
    """

    name: str  # "cuda:0"; "host"
    bytes: int
    peak: int
    live: tuple[DriverAllocations, ...] = ()  # at the end, the largest first


@dataclass(frozen=True, slots=True)
class RecordCheck:
    """CUPTI's own records of memory against the events of the driver level. All counts."""

    records: int = 0
    matched: int = 0  # both say the same
    missing: int = 0  # an event without its record
    differ: int = 0  # both, with another address, size, device
    alone: int = 0  # a record without its event
    dropped: int = 0  # records that CUPTI threw away

    @property
    def agrees(self) -> bool:
        """Whether nothing speaks against the events. Where there are no records, nothing does."""
        return not (self.missing or self.differ or self.alone)


@dataclass(frozen=True, slots=True, repr=False)
class DriverLevel(Brief):
    """What was recorded below PyTorch, and how."""

    mode: str  # "callbacks" (CUPTI), "slots" (patched calls of the CUDA runtime only), "none", "unknown"
    reason: str  # why no better mode, or with "callbacks" what CUPTI does not give; "" if nothing lacks
    cupti: str = ""  # path and version of the libcupti that answered; "" without
    allocations: int = 0
    frees: int = 0
    unknown_frees: int = 0  # of memory that was given out before the recording
    failed_frees: int = 0  # that CUDA refused
    replaced: int = 0  # allocations at an address that was still taken: a free was not seen
    record_check: RecordCheck = RecordCheck()
    devices: tuple[DriverDevice, ...] = ()
    host: DriverDevice | None = None  # page-locked host memory; None without a driver level

    def _summary(self) -> str:
        if not self.recorded:
            return f"{self.mode}: {self.reason}"
        return f"{self.mode}: {self.allocations} allocations, {self.frees} frees, {len(self.devices)} devices"

    @property
    def recorded(self) -> bool:
        """Whether there is a driver level in the recording at all."""
        return self.mode != "none"

    def device(self, name: str) -> DriverDevice:
        """The device of that name ("cuda:0"; "cuda" is "cuda:0"). Raises Error where CUDA gave out nothing on it."""
        return chosen(self.devices, name, lambda device: device.name, "driver-level memory")


NOT_RECORDED = DriverLevel("none", "the cuptimem that made it had no driver level (record it again)")


@dataclass(frozen=True, slots=True)
class DeviceTimelinePoint:
    """One moment of a device as a whole."""

    time_ns: int
    used: int | None  # by everybody, as the driver says
    driver: int | None  # given out to this process at driver level
    reserved: int | None  # of that, by PyTorch's allocator
    allocated: int | None  # of that, in blocks


@dataclass(frozen=True, slots=True, repr=False)
class DeviceTimeline(Brief):
    """A device as a whole over time, thinned out to a few thousand points."""

    device: str
    points: tuple[DeviceTimelinePoint, ...]

    def _summary(self) -> str:
        return f"{self.device}: {len(self.points)} points"


# -- the ledger ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, repr=False)
class LedgerLine(Brief):
    """One line of a ledger.

    Lines of the part "driver" are memory of one kind, library and stack that is no segment of PyTorch's; of every
    other part there is one line at most.
    """

    part: str  # a key of PARTS
    bytes: int  # the residual's may be negative
    count: int | None = None  # allocations; None where it is no set of allocations
    kind: str = ""  # of "driver" as in DriverAllocations; of "context" "before" where it is no context alone
    library: str = ""
    stack: Stack | None = None
    stack_lost: bool = False  # there was a stack, but no room to define it
    backward: bool = False  # as of DriverAllocations

    def _summary(self) -> str:
        where = f" at {at(self.frame)}" if self.frame is not None else ""
        return f"{name(self.name)}: {size(self.bytes)}{where}"

    @property
    def name(self) -> str:
        """What it is, in words: "tensors", "NCCL", "(unknown)"."""
        if self.part != "driver":
            return "context and earlier" if self.kind == "before" else PARTS[self.part]
        return library_name(self.library) or "(unknown)"

    @property
    def frame(self) -> Frame | None:
        """The user's line: see stacks.user_frame."""
        return user_frame(self.stack or ())


@dataclass(frozen=True, slots=True, repr=False)
class Ledger(Brief):
    """Who has the used bytes of one device at one moment. The lines sum to `used`, exactly: else Error is raised.

    What is unknown (None) has no line; its bytes are in the residual, or in the context where they were there before
    the device's first quiet moment.
    """

    device: str
    what: str  # "peak", "end", "asked"
    time_ns: int  # when the driver was asked
    step: int | None
    quiet: bool  # nothing was given out or taken back while it was asked
    used: int  # by everybody: total less free
    total: int | None
    own: int | None  # this process's, as NVML sees it
    others: int | None  # other processes', as NVML sees it
    driver_reserved: int | None  # kept by driver and firmware, as NVML sees it: in neither total nor used
    pool_short: int  # less than is alive in them is what memory pools report: in the residual
    context_measured: bool  # the context was seen to be made: what was in use before it is not in `context`
    lines: tuple[LedgerLine, ...]

    def _summary(self) -> str:
        total = "" if self.total is None else f" of {size(self.total)}"
        largest = max(self.lines, key=lambda line: line.bytes, default=None)
        most = "" if largest is None else f", most {size(largest.bytes)} in {name(largest.name)}"
        return f"{self.device} at {self.what}{in_step(self.step)}: {size(self.used)} used{total}{most}"

    def __post_init__(self) -> None:
        said = sum(line.bytes for line in self.lines)
        if said != self.used:
            raise Error(f"the ledger of {self.device} does not add up: its lines have {said} bytes of {self.used} used")

    def of(self, part: str) -> int | None:
        """Bytes of one part (a key of PARTS); None where it is unknown."""
        lines = [line.bytes for line in self.lines if line.part == part]
        return sum(lines) if lines or part == "driver" else None

    @property
    def tensors(self) -> int:
        """Asked for by live blocks of PyTorch's."""
        return self.of("tensors") or 0

    @property
    def rounding(self) -> int:
        """What PyTorch's allocator gave these blocks beyond what was asked for."""
        return self.of("rounding") or 0

    @property
    def cached(self) -> int:
        """Taken from CUDA by PyTorch's allocator and in no block."""
        return self.of("cached") or 0

    @property
    def driver(self) -> tuple[LedgerLine, ...]:
        """What libraries and the program took from CUDA beside PyTorch's allocator, the largest first."""
        return tuple(line for line in self.lines if line.part == "driver")

    @property
    def driver_rounding(self) -> int:
        """Of the driver's pages that small allocations share, what is in none of these."""
        return self.of("driver rounding") or 0

    @property
    def pool_slack(self) -> int:
        """Held by CUDA's memory pools and not given out."""
        return self.of("pool slack") or 0

    @property
    def is_host_memory(self) -> bool:
        """Whether the device's memory is the machine's: what the machine uses is in `used`, too."""
        return self.host is not None

    @property
    def host(self) -> int | None:
        """What the machine's processes and kernel have, of a device whose memory is the machine's; else None."""
        return self.of("host")

    @property
    def page_cache(self) -> int | None:
        """The machine's page cache, of such a device: the kernel gives it back where memory is wanted; else None."""
        return self.of("page cache")

    @property
    def context(self) -> int | None:
        """In use, and nobody's, at the device's first quiet moment; None where there was none.

        That is the CUDA context with what the driver loaded until then; unless context_measured, also whatever there
        was before the driver level was recorded.
        """
        return self.of("context")

    @property
    def residual(self) -> int:
        """Used, and not accounted for; negative where more is accounted for than used."""
        return self.of("residual") or 0

    @property
    def libraries(self) -> dict[str, int]:
        """Bytes at driver level by library, in names that people know, the largest first."""
        sums: dict[str, int] = {}
        for line in self.driver:
            sums[line.name] = sums.get(line.name, 0) + line.bytes
        return dict(sorted(sums.items(), key=lambda item: (-item[1], item[0])))


def ordered(ledgers: Iterable[Ledger]) -> tuple[Ledger, ...]:
    """The fullest device first, and of each its peak before its end."""
    rows = tuple(ledgers)
    fullest: dict[str, int] = {}
    for row in rows:
        fullest[row.device] = max(row.used, fullest.get(row.device, 0))
    moments = ("peak", "end", "asked")
    return tuple(sorted(rows, key=lambda row: (-fullest[row.device], row.device, moments.index(row.what))))


def check_moment(report: "Report", seconds: float) -> None:
    """Raises Error where the recording has no such moment."""
    if not 0 <= seconds <= report.duration_ns / 1e9:
        raise Error(
            f"there is no moment {seconds:g} s in this recording: it ends after {report.duration_ns / 1e9:.1f} s"
        )


def pick(report: "Report", device: str | None, what: str) -> Ledger:
    """The ledger of one device and moment. Raises Error, with what there is, where there is none."""
    if not report.ledgers:
        raise missing(report, "ledger")
    if device is not None:
        device = chosen(report.ledgers, device, lambda row: row.device, "ledger").device
    for row in report.ledgers:
        if row.what == what and device in (None, row.device):
            return row
    if what == "asked":
        raise Error(f"no ledger before that moment: {device or 'no device'} had not been asked yet")
    raise Error(f"no ledger at {what!r}: it is 'peak', 'end', or seconds since the start")
