"""What of the segments is held by blocks, and what could go back to the device."""

from typing import Any

from craft import WINDOW_OPEN, Trace
from driver_model import CUDA, HANDLE, MAPPED, PHYSICAL
from driver_model import RESERVED as ADDRESSES
from driver_parts import MIB, MORE, Analyze, moment, new

from tests import event_kinds
from tests.event_kinds import DRIVER_FREE, OOM, RESERVED, SEGMENT_NEW


def segment(t: Trace, address: int, size: int) -> None:
    t.add(SEGMENT_NEW, address, size, t.line(90), **CUDA)


def fragments(report: dict[str, Any], what: str) -> dict[str, Any]:
    (found,) = [row for row in report["fragmentation"] if row["what"] == what]
    return dict(found)


def test_segments_against_blocks(analyze: Analyze) -> None:
    t = Trace()
    segment(t, 0x10000000, 20 * MIB)
    segment(t, 0x20000000, 2 * MIB)
    segment(t, 0x30000000, 2 * MIB)
    t.alloc(0x10000000, 512, t.line(1), **CUDA)
    t.add(event_kinds.REQUESTED, 0x10000000, 500, **CUDA)
    t.alloc(0x10000000 + 5 * MIB, MIB, t.line(2), **CUDA)
    t.alloc(0x30000000, 2 * MIB, t.line(1), **CUDA)
    t.add(RESERVED, 0, 24 * MIB, **CUDA)
    moment(t, 30 * MIB, total=40 * MIB)
    t.add(OOM, 0, 15 * MIB, t.line(3), **CUDA)
    t.free(0x30000000, **CUDA)
    report = analyze(t)
    assert [row["what"] for row in report["fragmentation"]] == ["peak", "oom", "end"]
    oom = fragments(report, "oom")
    assert (oom["reserved"], oom["allocated"], oom["requested"]) == (24 * MIB, 3 * MIB + 512, 3 * MIB + 500)
    assert oom["largest_free_block"] == 14 * MIB and oom["asked"] == 15 * MIB
    assert oom["free_on_device"] == 10 * MIB and oom["largest_request"] == 14 * MIB
    assert oom["empty_cache_returns"] == 2 * MIB  # the empty one; of the large one, what no granule shares:
    assert oom["expandable_returns"] == 2 * MIB + (4 - 2) * MIB + (20 - 6) * MIB
    assert [(s["address"], s["size"], s["allocated"], s["largest_free"]) for s in oom["segments"]] == [
        (0x10000000, 20 * MIB, MIB + 512, 14 * MIB)
    ]
    assert [(p["bytes"], p["count"]) for p in oom["segments"][0]["pins"]] == [(MIB, 1), (512, 1)]
    assert [(p["bytes"], p["pinned"], p["segments"]) for p in oom["pins"]] == [(MIB, 20 * MIB, 1), (512, 20 * MIB, 1)]
    peak, end = fragments(report, "peak"), fragments(report, "end")
    assert (peak["free_on_device"], peak["largest_request"], peak["asked"]) == (None, None, None)
    assert end["empty_cache_returns"] == 4 * MIB and end["allocated"] == MIB + 512
    assert end["largest_request"] == 14 * MIB


def test_what_was_mapped_before_is_of_the_segment_that_later_mappings_extend(analyze: Analyze) -> None:
    t = Trace()
    already, torch = 0x20, 7

    def found(address: int) -> None:
        t.add(event_kinds.DRIVER_NEW, address, 2 * MIB, flags=MAPPED | already, **CUDA)
        t.add(MORE, 0, torch, flags=already)

    new(t, PHYSICAL, 0x7, 2 * MIB)
    new(t, MAPPED, 0x20000000, 2 * MIB)  # while the walk ran, which then finds it, too
    t.add(MORE, 0x7, HANDLE)
    for address in (0x10000000, 0x10200000, 0x20000000):
        found(address)
    t.alloc(0x10000000, 512, t.line(1), **CUDA)
    new(t, PHYSICAL, 0x8, 2 * MIB)
    new(t, MAPPED, 0x10400000, 2 * MIB)
    t.add(MORE, 0x8, HANDLE)
    t.alloc(0x10400000, MIB, t.line(2), **CUDA)
    t.alloc(0x20000000, MIB, t.line(2), **CUDA)
    t.add(DRIVER_FREE, 0x10200000, 2 * MIB, flags=MAPPED, **CUDA)
    moment(t, 30 * MIB)
    report = analyze(t)
    end = fragments(report, "end")
    assert (end["reserved"], end["allocated"]) == (6 * MIB, 2 * MIB + 512)
    ranges = {one["address"]: [(part["address"], part["size"]) for part in one["ranges"]] for one in end["segments"]}
    assert ranges == {
        0x10000000: [(0x10000000, 2 * MIB), (0x10400000, 2 * MIB)],
        0x20000000: [(0x20000000, 2 * MIB)],
    }


def test_an_expandable_segments_empty_mappings_can_go(analyze: Analyze) -> None:
    t = Trace()
    new(t, ADDRESSES, 0x10000000, 64 * MIB)
    for i in range(4):
        new(t, PHYSICAL, 0x7 + i, 2 * MIB)
        new(t, MAPPED, 0x10000000 + i * 2 * MIB, 2 * MIB)
        t.add(MORE, 0x7 + i, HANDLE)
    t.alloc(0x10000000 + MIB, 2 * MIB, t.line(1), **CUDA)
    end = fragments(analyze(t), "end")
    assert (end["reserved"], end["largest_free_block"], len(end["segments"])) == (8 * MIB, 5 * MIB, 1)
    assert end["empty_cache_returns"] == end["expandable_returns"] == 4 * MIB


def handles(t: Trace, first: int, count: int, size: int = 2 * MIB) -> None:
    for i in range(count):
        new(t, PHYSICAL, first * size + 1 + i, size)
        new(t, MAPPED, 0x10000000 + (first + i) * size, size)
        t.add(MORE, first * size + 1 + i, HANDLE)


def test_an_expandable_segment_is_one_with_its_gaps(analyze: Analyze) -> None:
    """Reserved 64 MiB, mapped 12: in use are the first, the fourth and the ninth piece of 2 MiB; two gaps."""
    t = Trace()
    new(t, ADDRESSES, 0x10000000, 64 * MIB)
    handles(t, 0, 6)
    handles(t, 8, 2)
    t.alloc(0x10000000, 2 * MIB, t.line(1), **CUDA)
    t.alloc(0x10000000 + 6 * MIB, MIB, t.line(2), **CUDA)
    t.alloc(0x10000000 + 17 * MIB, MIB // 2, t.line(2), **CUDA)
    t.add(DRIVER_FREE, 0x10000000 + 2 * MIB, 4 * MIB, flags=MAPPED, **CUDA)
    for handle in (2, 3):
        t.add(DRIVER_FREE, handle, 0, flags=PHYSICAL, **CUDA)
    end = fragments(analyze(t), "end")
    assert (end["reserved"], end["allocated"], end["segments_total"]) == (12 * MIB, 3 * MIB + MIB // 2, 1)
    (segment_,) = end["segments"]
    assert segment_["expandable"] and segment_["addresses"] == 64 * MIB
    assert (segment_["address"], segment_["size"], segment_["unmapped"]) == (0x10000000, 12 * MIB, 8 * MIB)
    assert [
        ((r["address"] - 0x10000000) // MIB, r["size"] // MIB, r["allocated"], r["largest_free"])
        for r in segment_["ranges"]
    ] == [(0, 2, 2 * MIB, 0), (6, 6, MIB, 5 * MIB), (16, 4, MIB // 2, 2 * MIB + MIB // 2)]
    assert end["largest_free_block"] == 5 * MIB
    assert end["empty_cache_returns"] == end["expandable_returns"] == 4 * MIB + 2 * MIB
    # What a line keeps: the handles that are partly used and it lies in.
    assert [(p["bytes"], p["pinned"], p["segments"]) for p in end["pins"]] == [
        (MIB + MIB // 2, 4 * MIB, 1),
        (2 * MIB, 0, 1),
    ]


def test_a_block_over_several_handles_keeps_them_all(analyze: Analyze) -> None:
    t = Trace()
    new(t, ADDRESSES, 0x10000000, 64 * MIB)
    handles(t, 0, 3)
    t.alloc(0x10000000 + MIB, 4 * MIB, t.line(1), **CUDA)
    t.alloc(0x10000000 + 5 * MIB, MIB // 2, t.line(1), **CUDA)
    end = fragments(analyze(t), "end")
    # Of the middle one nothing is left to give back.
    assert [(p["bytes"], p["count"], p["pinned"]) for p in end["pins"]] == [(4 * MIB + MIB // 2, 2, 4 * MIB)]
    assert end["empty_cache_returns"] == 0 and end["segments"][0]["pins"][0]["pinned"] == 4 * MIB


def test_two_reservations_side_by_side_are_two_segments(analyze: Analyze) -> None:
    t = Trace()
    new(t, ADDRESSES, 0x10000000, 4 * MIB)
    new(t, ADDRESSES, 0x10000000 + 4 * MIB, 4 * MIB)
    handles(t, 0, 4)
    for at in (0, 4):
        t.alloc(0x10000000 + at * MIB, MIB, t.line(1), **CUDA)
    end = fragments(analyze(t), "end")
    assert [(s["addresses"], s["size"], s["unmapped"]) for s in end["segments"]] == [(4 * MIB, 4 * MIB, 0)] * 2


def test_the_peak_of_reserved_bytes_is_the_first_of_its_height(analyze: Analyze) -> None:
    t = Trace()
    segment(t, 0x10000000, 2 * MIB)
    t.alloc(0x10000000, 512, t.line(1), **CUDA)
    t.add(RESERVED, 512, 2 * MIB, **CUDA)
    t.alloc(0x10001000, 512, t.line(1), **CUDA)
    t.add(RESERVED, 512, MIB, **CUDA)
    t.add(RESERVED, 512, 2 * MIB, **CUDA)
    assert fragments(analyze(t), "peak")["allocated"] == 512
    t.mark(WINDOW_OPEN, 1)
    t.free(0x10000000, **CUDA)
    assert fragments(analyze(t, window=1), "peak")["allocated"] == 1024
