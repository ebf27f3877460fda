"""Traces made by hand of what only CUDA's allocators do: requested sizes, segments, totals, blocks without a device."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from craft import BEFORE_START, CUDA, DIRECT, SEEDED, STEP, WINDOW_CLOSE, WINDOW_OPEN, WRITTEN, Trace

from cuptimem import _core
from tests.event_kinds import (
    COMPACTED,
    COMPACTED_BLOCKS,
    FREE,
    HOST_READ,
    LOST,
    OOM,
    REQUESTED,
    RESERVED,
    SEED,
    SEGMENT_FREE,
    SEGMENT_NEW,
)

Analyze = Callable[..., dict[str, Any]]
FIRST: dict[str, int] = {"device": CUDA, "index": 0}
SECOND: dict[str, int] = {"device": CUDA, "index": 1}
UNTOLD: dict[str, int] = {"device": CUDA, "index": -1}
NOT_TOLD = 2**64 - 1


def by_name(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {device["device"]: device for device in report["devices"]}


def cuda(report: dict[str, Any]) -> dict[str, Any]:
    return by_name(report)["cuda:0"]


# --- requested sizes ----------------------------------------------------------------------------------


def test_what_of_the_peak_was_asked_for(analyze: Analyze) -> None:
    t = Trace()
    t.alloc(0x1000, 1024, t.line(1), **FIRST)
    t.add(REQUESTED, 0x1000, 1000, **FIRST)
    t.alloc(0x2000, 512, t.line(2), **FIRST)  # as large as was asked for
    t.alloc(0x3000, 512, t.line(3), **FIRST)
    t.add(REQUESTED, 0x3000, 1, **FIRST)  # the peak's own last block
    t.free(0x3000, 512, **FIRST)
    t.alloc(0x4000, 512, t.line(4), **FIRST)  # as high again, but later
    t.add(REQUESTED, 0x4000, 4, **FIRST)
    t.free(0x4000, 512, **FIRST)
    t.alloc(0x3000, 512, t.line(5), **FIRST)  # also where the peak's own last block was
    t.add(REQUESTED, 0x3000, 5, **FIRST)
    report = cuda(analyze(t))
    assert report["peak"] == 2048 and report["requested_peak"] == 1000 + 512 + 1


def test_where_nobody_tells_it_is_not_known(analyze: Analyze) -> None:
    t = Trace()
    t.alloc(0x1000, 1024, t.line(1), **FIRST)
    t.alloc(0x1000, 1024, t.line(1))
    report = by_name(analyze(t))
    assert report["cuda:0"]["requested_peak"] is report["cpu"]["requested_peak"] is None


@pytest.mark.parametrize(("address", "size"), [(0x9000, 10), (0x1000, 2000), (0x1000, -1)])
def test_a_requested_size_that_fits_no_block_changes_nothing(analyze: Analyze, address: int, size: int) -> None:
    t = Trace()
    t.alloc(0x1000, 1024, t.line(1), **FIRST)
    t.add(REQUESTED, address, size, **FIRST)
    t.add(REQUESTED, 0x1000, 5, **SECOND)  # of a device that is not there
    report = analyze(t)
    assert cuda(report)["requested_peak"] is None and list(by_name(report)) == ["cuda:0"]


def test_sizes_beyond_what_a_block_remembers(analyze: Analyze) -> None:
    t = Trace()
    t.alloc(0x1000, 1 << 47, t.line(1), **FIRST)
    t.add(REQUESTED, 0x1000, 0, **FIRST)
    assert cuda(analyze(t))["requested_peak"] == (1 << 47) - ((1 << 39) - 1)
    t = Trace()
    t.alloc(0x1000, 1 << 39, t.line(1), **FIRST)
    t.add(REQUESTED, 0x1000, 1, **FIRST)
    assert cuda(analyze(t))["requested_peak"] == 1


def test_seeds_have_requested_sizes_from_the_first_moment(analyze: Analyze) -> None:
    t = Trace()
    t.alloc(0x5000, 512, t.line(1), **FIRST)
    t.free(0x5000, 512, **FIRST)  # the peak, before the walk comes to the seeds
    for address, size, requested in ((0x1000, 1024, 1000), (0x2000, 2048, 2000)):
        t.add(SEED, address, size, **FIRST)
        t.alloc(0x100, 8, t.line(2), thread=2)  # other threads go on meanwhile
        t.free(0x100, thread=2)
        t.add(REQUESTED, address, requested, flags=BEFORE_START, **FIRST)
    t.mark(SEEDED)
    report = cuda(analyze(t))
    assert (report["start"], report["peak"]) == (3072, 3584)
    assert report["requested_peak"] == 3000 + 512


def test_a_seed_that_was_given_out_again_keeps_the_size_of_the_block(analyze: Analyze) -> None:
    t = Trace()
    t.alloc(0x1000, 512, t.line(1), **FIRST)
    t.add(REQUESTED, 0x1000, 500, **FIRST)
    t.add(SEED, 0x1000, 1024, **FIRST)  # the walk had seen another one there
    t.add(REQUESTED, 0x1000, 100, flags=BEFORE_START, **FIRST)
    t.mark(SEEDED)
    report = cuda(analyze(t))
    assert (report["start"], report["peak"], report["requested_peak"]) == (0, 512, 500)


# --- frees that tell no device ------------------------------------------------------------------------


def test_a_free_without_a_device_ends_the_block_wherever_it_is(analyze: Analyze) -> None:
    t = Trace()
    t.alloc(0x1000, 100, t.line(1), **FIRST)
    t.alloc(0x2000, 10, t.line(1), **SECOND)
    t.alloc(0x2000, 1, t.line(1))  # the CPU has addresses of its own
    t.free(0x2000, **UNTOLD)
    t.free(0x3000, **UNTOLD)
    report = analyze(t)
    ends = {name: device["end"] for name, device in by_name(report).items()}
    assert ends == {"cuda:0": 100, "cuda:1": 0, "cpu": 1}
    assert report["lost"]["unknown_frees"] == 1


@pytest.mark.parametrize("kind", [FREE, SEGMENT_FREE])
def test_one_before_the_walk_comes_to_the_block(analyze: Analyze, kind: int) -> None:
    t = Trace()
    t.add(kind, 0x1000, **UNTOLD)
    t.add(SEED, 0x1000, 100, flags=DIRECT, **SECOND)
    t.add(SEED, 0x2000, 10, flags=DIRECT, **SECOND)
    t.mark(SEEDED)
    device = by_name(analyze(t))["cuda:1"]
    assert (device["start"], device["end"], device["frees"]) == (110, 10, 1)


# --- segments -----------------------------------------------------------------------------------------


def test_segments_come_and_go(analyze: Analyze) -> None:
    t = Trace()
    t.add(SEGMENT_NEW, 0x10000, 2048, t.line(1), **FIRST)
    t.add(SEGMENT_NEW, 0x20000, 4096, t.line(1), **FIRST)
    t.add(SEGMENT_NEW, 0x30000, 1024, t.line(1), **SECOND)
    t.alloc(0x10000, 512, t.line(2), **FIRST)
    t.free(0x10000, 512, **FIRST)
    t.add(SEGMENT_FREE, 0x10000, **UNTOLD)
    t.add(SEGMENT_FREE, 0x70000, **UNTOLD)
    report = analyze(t)
    first, second = by_name(report)["cuda:0"], by_name(report)["cuda:1"]
    assert first["segments"] == {"count": 1, "bytes": 4096, "peak": 6144}
    assert second["segments"] == {"count": 1, "bytes": 1024, "peak": 1024}
    assert first["allocations"] == first["frees"] == 1 and report["lost"]["unknown_frees"] == 0
    assert cuda(analyze(one_block()))["segments"] is None


def one_block() -> Trace:
    t = Trace()
    t.alloc(0x1000, 100, t.line(1), **FIRST)
    return t


def test_a_segment_where_another_one_was_believed_replaces_it(analyze: Analyze) -> None:
    t = Trace()
    t.add(SEGMENT_NEW, 0x10000, 2048, t.line(1), **FIRST)
    t.add(SEGMENT_NEW, 0x10000, 4096, t.line(1), **SECOND)
    report = by_name(analyze(t))
    assert report["cuda:0"]["segments"] == {"count": 0, "bytes": 0, "peak": 2048}
    assert report["cuda:1"]["segments"] == {"count": 1, "bytes": 4096, "peak": 4096}


def test_the_walk_tells_segments_that_are_known_or_gone(analyze: Analyze) -> None:
    t = Trace()
    t.add(SEGMENT_NEW, 0x10000, 2048, t.line(1), **FIRST)
    t.add(SEGMENT_FREE, 0x20000, **UNTOLD)
    for address, size in ((0x10000, 2048), (0x20000, 4096), (0x30000, 8192)):
        t.add(SEGMENT_NEW, address, size, flags=BEFORE_START, **FIRST)
    t.mark(SEEDED)
    t.add(SEGMENT_NEW, 0x20000, 512, t.line(1), **FIRST)  # taken anew
    assert cuda(analyze(t))["segments"] == {"count": 3, "bytes": 2048 + 8192 + 512, "peak": 2048 + 8192 + 512}


def test_memory_that_is_a_block_itself(analyze: Analyze) -> None:
    t = Trace()
    t.add(SEGMENT_NEW, 0x20000, 2048, t.line(1), **FIRST)
    t.alloc(0x20000, 2048, t.line(1), **FIRST)
    t.alloc(0x1000, 100, t.line(2), flags=DIRECT, **SECOND)
    t.add(RESERVED, 2048, 2048, **FIRST)
    t.add(RESERVED, 0, 0, **SECOND)  # its total does not know of such blocks
    t.add(SEGMENT_FREE, 0x1000, **UNTOLD)
    t.add(SEGMENT_FREE, 0x20000, **UNTOLD)  # a cached block does not go with its segment
    report = analyze(t)
    first, second = by_name(report)["cuda:0"], by_name(report)["cuda:1"]
    assert first["end"] == 2048 and first["segments"]["count"] == 0
    assert (second["peak"], second["end"], second["frees"], second["segments"]) == (100, 0, 1, None)
    assert first["check"]["differ"] == second["check"]["differ"] == 0


@pytest.mark.parametrize("size", [-1, 1 << 60])
def test_a_segment_of_an_impossible_size_is_damage(analyze: Analyze, size: int) -> None:
    t = one_block()
    t.add(SEGMENT_NEW, 0x10000, size, t.line(1), **FIRST)
    with pytest.raises(_core.Error, match="impossible size"):
        analyze(t)


# --- the allocator's own totals -----------------------------------------------------------------------


def test_totals_that_agree(analyze: Analyze) -> None:
    t = Trace()
    for n in range(1, 6):
        t.alloc(n << 12, 512, t.line(1), **FIRST)
        t.add(RESERVED, n * 512, 1 << 20, **FIRST)
    assert cuda(analyze(t))["check"] == {"reported": 2560, "live": 2560, "checked": 5, "differ": 0}


def test_a_lost_free_shows(analyze: Analyze) -> None:
    t = Trace()
    t.alloc(0x1000, 512, t.line(1), **FIRST)
    t.add(RESERVED, 512, 1 << 20, **FIRST)
    t.add(LOST, 0, 1)  # its free
    t.alloc(0x2000, 1024, t.line(1), **FIRST)
    t.add(RESERVED, 1024, 1 << 20, **FIRST)
    t.add(RESERVED, 1024, 1 << 21, **FIRST)
    assert cuda(analyze(t))["check"] == {"reported": 1024, "live": 1536, "checked": 3, "differ": 2}


def test_what_a_compaction_left_out_is_no_difference(analyze: Analyze) -> None:
    t = Trace()
    tick = t.line(9)
    t.alloc(0x1000, 512, t.line(1), **FIRST)
    t.add(RESERVED, 512, 1 << 20, **FIRST)
    t.tick(STEP, 0, tick)
    t.add(RESERVED, 2048, 1 << 21, **FIRST)  # of blocks that came and went in this stretch
    t.add(COMPACTED_BLOCKS, 3, 1536, **FIRST)
    t.add(COMPACTED, 6, 0, index=-1)
    t.tick(STEP, 0, tick)
    t.add(RESERVED, 512, 1 << 20, **FIRST)
    t.tick(STEP, 0, tick)
    assert cuda(analyze(t))["check"] == {"reported": 512, "live": 512, "checked": 2, "differ": 0}


# --- others -------------------------------------------------------------------------------------------


def test_host_reads_by_stack_and_device(analyze: Analyze) -> None:
    t = Trace()
    one, other = t.line(1), t.line(2)
    for stack, device, size in ((one, FIRST, 4), (other, FIRST, 8), (other, FIRST, 8), (other, SECOND, 1)):
        t.add(HOST_READ, 0x1000, size, stack, **device)
    for _ in range(3):
        t.add(HOST_READ, 0x1000, 4, one, flags=WRITTEN, **FIRST)
    report = analyze(t)
    reads = [(read["device"], read["count"], read["bytes"], read["stack"]) for read in report["host_reads"]]
    assert reads[:3] == [("cuda:0", 2, 16, other), ("cuda:0", 1, 4, one), ("cuda:1", 1, 1, other)]
    assert reads[3:] == [("cuda:0", 3, 12, one)]
    assert [read["written"] for read in report["host_reads"]] == [False, False, False, True]
    assert {one, other} <= set(report["stacks"])


def test_a_refused_request_of_which_no_total_is_told(analyze: Analyze) -> None:
    t = one_block()
    t.add(OOM, NOT_TOLD, 1 << 40, t.line(2), **FIRST)
    [(_, requested, allocated, *_)] = cuda(analyze(t))["ooms"]
    assert (requested, allocated) == (1 << 40, 100)


def test_a_window_cut_out_says_the_same(analyze: Analyze, tmp_path: Path) -> None:
    t = Trace()
    t.add(SEED, 0x1000, 1024, **FIRST)
    t.add(REQUESTED, 0x1000, 1000, flags=BEFORE_START, **FIRST)
    t.add(SEGMENT_NEW, 0x10000, 4096, flags=BEFORE_START, **FIRST)
    t.mark(SEEDED)
    t.add(SEGMENT_NEW, 0x20000, 4096, t.line(1), **SECOND)
    addresses = itertools.count(0x2000, 0x1000)
    for device, size, requested, flags in (
        (FIRST, 512, 10, 0),
        (FIRST, 4096, 4096, DIRECT),
        (SECOND, 2048, 2000, 0),
        (SECOND, 512, 500, 0),
    ):
        address = next(addresses)
        t.alloc(address, size, t.line(2), flags=flags, **device)
        if requested != size:
            t.add(REQUESTED, address, requested, **device)
    t.add(RESERVED, 1536, 4096, **FIRST)
    t.mark(WINDOW_OPEN, 1)
    t.alloc(0x9000, 512, t.line(3), **FIRST)
    t.add(REQUESTED, 0x9000, 1, **FIRST)
    t.add(RESERVED, 2048, 4096, **FIRST)
    t.add(HOST_READ, 0x9000, 4, t.line(4), **FIRST)
    t.add(SEGMENT_FREE, 0x3000, **UNTOLD)  # the block that was not cached
    t.add(SEGMENT_FREE, 0x20000, **UNTOLD)
    t.mark(WINDOW_CLOSE, 1)
    source, cut = t.write(tmp_path / "whole.cmem"), tmp_path / "cut.cmem"
    _core.extract(source, str(cut), 1)
    keys = ("start", "peak", "end", "frees", "requested_peak", "segments")
    inside, own = by_name(_core.analyze(source, window=1)), by_name(_core.analyze(str(cut)))
    for name in ("cuda:0", "cuda:1"):
        assert [inside[name][key] for key in keys] == [own[name][key] for key in keys], name
    first, second = own["cuda:0"], own["cuda:1"]
    assert first["requested_peak"] == 1000 + 10 + 4096 + 1 and second["requested_peak"] == 2500
    assert first["check"]["differ"] == 0 and first["frees"] == 1
    assert first["segments"]["count"] == 1 and second["segments"] == {"count": 0, "bytes": 0, "peak": 4096}
    assert [read["count"] for read in _core.analyze(str(cut))["host_reads"]] == [1]
