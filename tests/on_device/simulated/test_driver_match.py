"""The comparison itself (driver_match, driver_events) on made-up recordings and logs: it must see what is wrong."""

from typing import Any

import pytest

from tests.on_device.simulated import driver_events
from tests.on_device.simulated.device_log import Record
from tests.on_device.simulated.driver_events import Event
from tests.on_device.simulated.driver_match import Match, match

MIB = 1 << 20


def new(kind: str, address: int, size: int = 2 * MIB, **more: Any) -> Event:
    return Event(True, kind, address, size, more.pop("device", 0), 0, 1, **more)


def free(kind: str, address: int, size: int = -1, **more: Any) -> Event:
    return Event(False, kind, address, size, 0, 0, 1, **more)


def log(op: str, address: int, size: int = 2 * MIB, *, kind: str = "device", time: int = 0, extra: int = 0) -> Record:
    return Record(op, kind, 0, address, size, 0, 0, extra, time=time)


def test_equal_histories() -> None:
    found = match(
        [new("device", 1), free("", 1), new("managed", 1, 5), new("host", 7), free("host", 7), new("registered", 9)],
        [
            *(log("alloc", 1), log("free", 1), log("alloc", 1, 5, kind="managed")),
            *(log("host alloc", 7), log("host free", 7), log("host register", 9)),
            *(log("alloc", 4, kind="pool"), log("refused", 0)),
        ],
    )
    assert found.differ == []
    assert found.events == {"device": 1, "managed": 1, "host": 1, "registered": 1, "free": 2}
    assert found.records == {"memory": 3, "host": 2, "registered": 1}
    assert found.bytes(0) == 5 and found.bytes(1) == 0


@pytest.mark.parametrize(
    ("events", "records", "said"),
    [
        ([], [log("alloc", 16)], "memory 0x10, step 0: recorded nothing, the device new of 2097152 bytes"),
        ([new("device", 16)], [], "memory 0x10, step 0: recorded new of 2097152 bytes, the device nothing"),
        ([new("device", 16, 4)], [log("alloc", 16, 5)], "recorded new of 4 bytes, the device new of 5 bytes"),
        ([new("device", 16)], [log("alloc", 16), log("free", 16)], "step 1: recorded nothing, the device free of"),
        ([free("", 16)], [], "a free of something 0x10, which nobody was given"),
        ([new("device", 16), free("host", 16)], [log("alloc", 16)], "a free of host 0x10, which nobody was given"),
        ([new("device", 16, 8), free("", 16, 4)], [log("alloc", 16, 8), log("free", 16, 8)], "was freed with 4"),
        ([new("device", 16)] * 2, [log("alloc", 16)] * 2, "given out twice"),
        ([new("ipc", 16)], [], "ipc 0x10 was recorded, which the device's log does not have"),
        ([new("array", 16, 8)], [log("alloc", 16, 9, kind="array")], "array 0x10, step 0: recorded new of 8 bytes"),
        ([new("context", 16, 0)], [], "contexts: 1 recorded, 0 found, the device 0"),
        ([], [log("context", 0, kind="")], "contexts: 0 recorded, 0 found, the device 1"),
        ([new("context", 16, 0, already=True)], [], "contexts: 0 recorded, 1 found, the device 0"),
        ([new("context", 3, 0), free("context", 3)], [log("context", 0)], "context ends: recorded 1, the device 0"),
        (
            [new("context", 3, 0), new("device", 16), free("context", 3)],
            [log("context", 0), log("alloc", 16), log("context end", 0)],
            "memory 0x10, step 1: recorded free of 2097152 bytes, the device nothing",
        ),
        ([new("async", 16)], [log("alloc", 16)], "memory 0x10, step 0: recorded nothing"),
    ],
)  # fmt: skip
def test_what_differs_is_said(events: list[Event], records: list[Record], said: str) -> None:
    found = match(events, records)
    assert any(said in line for line in found.differ), found.differ


def test_a_failed_free_frees_nothing() -> None:
    found = match([new("device", 16), free("", 16, failed=1)], [log("alloc", 16)])
    assert (found.differ, found.events["failed"], found.bytes(0)) == ([], 1, 2 * MIB)


def test_what_was_there_before() -> None:
    records = [log("alloc", 16, time=5), log("alloc", 32, time=5), log("free", 16, time=20), log("alloc", 16, time=21)]
    assert match([free("", 16), new("device", 16)], records, since=10).differ == []
    assert match([new("device", 16)], records, since=10).differ != []


def test_a_context_s_end() -> None:
    """It takes what lives on its device in contexts; with another context there nobody knows what."""
    theirs = [log("context", 0), log("alloc", 16), log("alloc", 32, kind="array"), log("create", 48)]
    ours = [new("context", 3, 0), new("device", 16), new("array", 32), new("physical", 48)]
    end = [log("free", 16), log("free", 32, kind="array"), log("context end", 0)]
    found = match([*ours, new("device", 64, device=1), free("context", 3)], [*theirs, on_another(64), *end])
    assert found.differ == [] and found.live == {("handle", 48): (0, 2 * MIB), ("memory", 64): (1, 2 * MIB)}
    two = match([*ours, new("context", 4, 0), free("context", 4)], [*theirs, log("context", 0), log("context end", 0)])
    assert two.differ == [] and two.bytes(0) == 6 * MIB


def on_another(address: int) -> Record:
    return Record("alloc", "device", 1, address, 2 * MIB, 0, 0)


def virtual(release_first: bool) -> Match:
    """Two ranges of one handle, which is released before or after they are unmapped by one call."""
    ours = [
        new("reserved", 64, 8),
        new("physical", 3, 4),
        new("mapped", 64, 4, handle=3),
        new("mapped", 68, 4, handle=3),
    ]
    theirs = [
        *(log("reserve", 64, 8), log("create", 3, 4), log("map", 64, 4, extra=3), log("map", 68, 4, extra=3)),
        *(log("unmap", 64, 4), log("unmap", 68, 4), log("destroy", 3, 4), log("unreserve", 64, 8)),
    ]
    end = [free("physical", 3), free("mapped", 64, 8)]
    return match([*ours, *(end if release_first else end[::-1]), free("reserved", 64, 8)], theirs)


@pytest.mark.parametrize("release_first", [True, False])
def test_physical_memory_lives_until_it_is_unmapped_and_released(release_first: bool) -> None:
    found = virtual(release_first)
    assert found.differ == [] and found.live == {}
    assert found.events["free"] == 4


def test_a_reference_keeps_physical_memory() -> None:
    ours = [new("physical", 3, 4), new("reference", 3, 0), free("physical", 3)]
    assert match(ours, [log("create", 3, 4)]).differ == []
    assert match([*ours, free("physical", 3)], [log("create", 3, 4), log("destroy", 3, 4)]).differ == []
    assert match([*ours, free("physical", 3)], [log("create", 3, 4)]).differ != []


def test_an_unmapped_range_must_have_been_mapped() -> None:
    ours = [new("physical", 3, 4), new("mapped", 64, 4, handle=3), free("mapped", 64, 8)]
    found = match(ours, [log("create", 3, 4), log("map", 64, 4), log("unmap", 64, 4)])
    assert found.differ == ["8 bytes unmapped at 0x40, where 4 were mapped"]


FRAMES = (("a.py", 12, "f", 12, 0, 0, 0, None),)


def test_reading_events() -> None:
    """More is about its own thread's last event."""
    driver = driver_events.read(
        [
            ("driver_new", 50, 1, 16, 8, FRAMES, 1, 1, 0),
            ("driver_new", 40, 2, 32, 9, (), 5 | driver_events.BY_SLOT, 1, 1),
            ("driver_more", 50, 1, 77, driver_events.CORRELATION, None, 0, 0, 0),
            ("driver_more", 40, 2, 0, driver_events.LIBRARY, "libx.so", 0, 0, 0),
            ("driver_more", 40, 2, 5, driver_events.STREAM, None, 0, 0, 0),
            ("driver_record", 51, 3, 16, 8, "libc10_cuda.so", 0, 1, 0),
            ("driver_more", 51, 3, 77, driver_events.CORRELATION, None, 0, 1, 0),
            ("driver_free", 60, 1, 16, 0, 0, 0, 1, -1),
            ("alloc", 61, 1, 16, 8, FRAMES, 0, 1, 0),
            ("device", 62, 3, 1, 100, 0, 0, 1, 0),
            ("device", 62, 3, 6, 30, 0, driver_events.QUIET, 1, 0),
            ("end", "complete", None, None, 0, 0, 0),
        ]
    )
    second, first, third = driver.events
    assert (first.kind, first.line, first.correlation, first.library) == ("device", ("a.py", 12), 77, "")
    assert (second.kind, second.by_slot, second.library, second.stream) == ("async", True, "libx.so", 5)
    assert (third.new, third.kind, third.size) == (False, "", -1)
    assert driver_events.libraries(driver) == {0: "libx.so", 1: "libc10_cuda.so"}
    (moment,) = driver.moments
    assert (moment.quiet, moment.totals) == (True, {"total": 100, "used": 30})
    with pytest.raises(AssertionError, match="says more of nothing"):
        driver_events.read([("driver_more", 1, 1, 1, 1, None, 0, 0, 0)])
