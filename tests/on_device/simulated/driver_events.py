"""The driver level of a recording, as _core.trace_dump returns it: who was given what by CUDA, and what records say."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

KINDS = (
    *("", "device", "managed", "host", "registered", "async", "physical", "reference", "imported", "reserved"),
    *("mapped", "array", "ipc", "external", "pool", "graph", "multicast", "context"),
)
KIND, RELEASE, BY_SLOT, QUIET, ALREADY = 0x1F, 0x80, 0x40, 0x80, 0x20
LIBRARY, CORRELATION, STREAM, HANDLE, FAILED, UTILIZED = range(1, 7)
TOTALS = {1: "total", 2: "own", 3: "others", 4: "pooled", 5: "reserved", 6: "used"}

Frame = tuple[Any, ...]  # file, line, function, ...


@dataclass(frozen=True)
class Event:
    """CUDA gave something out (new) or takes it back. `address` is a handle where the kind says so; bytes, -1 where a
    free does not tell."""

    new: bool
    kind: str
    address: int
    size: int
    device: int
    time: int
    thread: int
    frames: tuple[Frame, ...] = ()
    by_slot: bool = False
    already: bool = False
    """It was there before the recording and is only seen now."""
    library: str = ""
    correlation: int = 0
    stream: int = -1
    handle: int = 0
    failed: int = 0

    @property
    def line(self) -> tuple[str, int]:
        """File and line of the innermost Python frame; ("", 0) without one."""
        return (self.frames[0][0], self.frames[0][1]) if self.frames else ("", 0)


@dataclass(frozen=True)
class Record:
    """A MEMORY2 record."""

    release: bool
    address: int
    size: int
    library: str
    correlation: int
    time: int
    device: int


@dataclass(frozen=True)
class Moment:
    """What was recorded of one device at one time; bytes."""

    device: int
    time: int
    quiet: bool
    totals: dict[str, int]


@dataclass
class Driver:
    """In the order of the file, but for events, which are in the order of their time."""

    events: list[Event] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    pools: int = 0
    launches: list[tuple[int, int, tuple[Frame, ...], int]] = field(default_factory=list)
    """Correlation id, stream, frames, what was launched."""
    work: list[tuple[int, str, int]] = field(default_factory=list)
    """Correlation id, name, what ran."""
    deferred: int = 0


def read(events: Iterable[Sequence[Any]]) -> Driver:
    """AssertionError where a DRIVER_MORE follows nothing that it could be about."""
    found = Driver()
    last: dict[int, tuple[str, int]] = {}  # thread -> which list, where
    open_moments: dict[tuple[int, int], dict[str, int]] = {}
    for number, event in enumerate(events):
        if event[0] == "end":
            break
        name, time, thread, address, size, origin, flags, _, device = event
        if name in ("driver_new", "driver_free"):
            new = name == "driver_new"
            last[thread] = "event", len(found.events)
            frames = tuple(origin or ()) if new else ()
            known = size if new or size > 0 else -1
            kind, by_slot, already = KINDS[flags & KIND], bool(flags & BY_SLOT), bool(flags & ALREADY)
            found.events.append(Event(new, kind, address, known, device, time, thread, frames, by_slot, already))
        elif name == "driver_record":
            last[thread] = "record", len(found.records)
            found.records.append(Record(bool(flags & RELEASE), address, size, origin or "", 0, time, device))
        elif name == "pool":
            last[thread] = "pool", 0
            found.pools += 1
        elif name == "driver_more":
            assert thread in last, f"event {number} says more of nothing"
            which, at = last[thread]
            _more(found, which, at, size, address, origin or "")
        elif name == "launch":
            found.launches.append((size, address, tuple(origin or ()), flags))
        elif name == "work":
            found.work.append((address, origin or "", flags))
        elif name == "deferred_free":
            found.deferred += 1
        elif name == "device":
            moment = open_moments.setdefault((thread, device), {})
            moment[TOTALS[address]] = size
            if TOTALS[address] == "used":
                found.moments.append(Moment(device, time, bool(flags & QUIET), open_moments.pop((thread, device))))
    # A thread may have been stopped between the clock and the ring.
    found.events.sort(key=lambda event: event.time)
    return found


def _more(found: Driver, which: str, at: int, what: int, value: int, name: str) -> None:
    if which == "event":
        event = found.events[at]
        if what == LIBRARY:
            event = replace(event, library=name)
        elif what == CORRELATION:
            event = replace(event, correlation=value)
        elif what == STREAM:
            event = replace(event, stream=value)
        elif what == HANDLE:
            event = replace(event, handle=value)
        elif what == FAILED:
            event = replace(event, failed=value)
        else:
            raise AssertionError(f"an event has {what}")
        found.events[at] = event
    elif which == "record":
        if what == CORRELATION:
            found.records[at] = replace(found.records[at], correlation=value)
        else:
            assert what in (STREAM, HANDLE), f"a record has {what}"
    else:
        assert what in (UTILIZED, CORRELATION), f"a pool has {what}"


def libraries(driver: Driver) -> dict[int, str]:
    """By index of driver.events, the library of each NEW: as a record of its correlation id and address says, else as
    was found by unwinding; "" where nothing tells."""
    records = {(w.correlation, w.address): w.library for w in driver.records if not w.release}
    found = {}
    for index, event in enumerate(driver.events):
        if event.new:
            found[index] = records.get((event.correlation, event.address), "") or event.library
    return found
