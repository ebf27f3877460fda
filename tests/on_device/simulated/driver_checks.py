"""The driver level of a recording against the device's own log, PyTorch's segments, and what a program asked for.

Runs inside the program, as checks.py does. Any difference is an AssertionError that names the first thing that differs.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuptimem import _core
from tests.on_device.simulated import device_log, driver_events
from tests.on_device.simulated.driver_events import Driver
from tests.on_device.simulated.driver_match import Match, match

TORCH = "libc10_cuda.so"


@dataclass(frozen=True)
class Given:
    """What the program was given, at which of its lines."""

    kind: str
    address: int
    size: int
    line: int
    library: str
    python: bool = True
    """False: by a thread without Python, so no line."""


@dataclass
class Look:
    driver: Driver
    match: Match
    used: list[device_log.Used]
    pooled: list[int]
    """Of each device, bytes that its pools hold, by the device's log."""
    unfilled: list[int]
    """... that it gave up in whole units beyond what was asked for."""


def look(events: Sequence[tuple[Any, ...]], log: Path, report: Path, *, since: int = 0) -> Look:
    """AssertionError where driver level and log are not one to one, or their sums not what the device has in use."""
    driver = driver_events.read(events)
    records = device_log.records(log)
    found = match(driver.events, records, since=since)
    assert not found.differ, f"{len(found.differ)} histories differ; {'; '.join(found.differ[:3])}"
    used = device_log.report(report)
    pooled, unfilled = [], []
    for index, state in enumerate(used):
        live = Counter[str]()
        for record in records:
            if record.device == index and record.op in ("alloc", "free", "create", "destroy"):
                live[record.kind] += record.bytes if record.op in ("alloc", "create") else -record.bytes
        pooled.append(live["pool"])
        unfilled.append(state.used - state.context - sum(live.values()))
        given = found.bytes(index) + live["pool"]
        assert given + unfilled[-1] + state.context == state.used, (
            f"cuda:{index}: {given} bytes by the driver level, {unfilled[-1]} of units not filled and a context of "
            f"{state.context} are not the {state.used} that the device has in use"
        )
    return Look(driver, found, used, pooled, unfilled)


def owned(look_: Look, given: Sequence[Given], file: str) -> None:
    """Each of these is there with its size, the library that called CUDA, and the line that called the library. An
    address may have been given out several times."""
    libraries = driver_events.libraries(look_.driver)
    there: dict[tuple[str, int], list[tuple[int, str, tuple[str, int]]]] = {}
    for index, event in enumerate(look_.driver.events):
        if event.new:
            there.setdefault((event.kind, event.address), []).append((event.size, libraries[index], event.line))
    for one in given:
        expected = one.size, one.library, (file, one.line) if one.python else ("", 0)
        found = there.get((one.kind, one.address), [])
        assert expected in found, f"{one.kind} {one.address:#x}: {expected} was asked for, recorded {found}"


def all_have_libraries(look_: Look) -> Counter[str]:
    """How much was given out by which library; every one of them has one."""
    found: Counter[str] = Counter()
    for index, library in driver_events.libraries(look_.driver).items():
        event = look_.driver.events[index]
        if event.kind == "context":
            continue
        assert library, f"{event.kind} {event.address:#x} of {event.size} bytes has no library"
        found[library] += 1
    return found


def segments(look_: Look, snapshot: Sequence[dict[str, Any]], *, expandable: bool) -> int:
    """PyTorch's segments are driver allocations of its library, and no others are. Returns how many."""
    if expandable:
        mapped = {a: n for (space, a), (_, n) in look_.match.live.items() if space == "mapping"}
        for segment in snapshot:
            start, end = segment["address"], segment["address"] + segment["total_size"]
            inside = sum(n for a, n in mapped.items() if start <= a < end)
            assert inside == segment["total_size"], f"{inside} bytes mapped in a segment of {segment['total_size']}"
        return len(snapshot)
    libraries = driver_events.libraries(look_.driver)
    last = {event.address: index for index, event in enumerate(look_.driver.events) if event.new}
    mine = {
        address: size
        for (space, address), (_, size) in look_.match.live.items()
        if space == "memory" and libraries[last[address]] == TORCH
    }
    theirs = {segment["address"]: segment["total_size"] for segment in snapshot}
    assert mine == theirs, f"{len(mine)} driver allocations of {TORCH}, {len(theirs)} segments"
    return len(theirs)


def dump(trace: Path) -> list[tuple[Any, ...]]:
    """Of a recording that goes on or has ended."""
    return _core.trace_dump(str(trace))
