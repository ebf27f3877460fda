"""The driver level: whose an allocation is, PyTorch's or somebody else's, and what lives as long as what."""

from typing import Any

import craft
import pytest
from craft import DIRECT, Trace
from driver_model import ASYNC, CONTEXT, CUDA, DEV, FAILED, HANDLE, LIBRARY, MAPPED, PHYSICAL
from driver_model import RESERVED as ADDRESSES
from driver_parts import MIB, MORE, Analyze, bytes_of, free, moment, new, only

from tests.event_kinds import SEGMENT_FREE


def torch_of(report: dict[str, Any]) -> set[tuple[str, bool]]:
    return {(row["kind"], row["torch"]) for device in report["driver"]["devices"] for row in device["live"]}


@pytest.mark.parametrize(
    ("library", "torch"),
    [("/x/libc10_cuda.so", True), ("libtorch_cuda.so", True), ("/x/libc10.so", False), ("/libtorch/libnccl.so", False)],
)
def test_pytorchs_libraries(analyze: Analyze, library: str, torch: bool) -> None:
    t = Trace()
    new(t, DEV, 0x10000, 100)
    t.add(MORE, 0, LIBRARY, t.name(library))
    assert torch_of(analyze(t)) == {("device", torch)}


def test_a_block_taken_from_cuda_for_itself(analyze: Analyze) -> None:
    t = Trace()
    new(t, DEV, 0x10000, 1024)
    t.alloc(0x10000, 1024, t.line(1), flags=DIRECT, **CUDA)
    t.alloc(0x90000, 64, t.line(1), flags=DIRECT, **CUDA)  # its allocation was before the driver level was on
    moment(t, 2000)
    end = only(analyze(t))
    assert (end["tensors"], end["cached"], end["driver"]) == (1088, 0, [])
    free(t, 0, 0x10000)
    free(t, 0, 0x90000)
    for address in (0x10000, 0x90000):
        t.add(SEGMENT_FREE, address, device=craft.CUDA, index=-1)
    moment(t, 2000)
    report = analyze(t)
    assert (only(report)["tensors"], bytes_of(report), report["driver"]["unknown_frees"]) == (0, 0, 0)
    assert report["driver"]["allocations"] == 1 and report["driver"]["frees"] == 2


def test_an_address_given_out_again_before_its_block_was_told_free(analyze: Analyze) -> None:
    t = Trace()
    new(t, DEV, 0x10000, 1024)
    t.alloc(0x10000, 1024, t.line(1), flags=DIRECT, **CUDA)
    free(t, 0, 0x10000)
    new(t, DEV, 0x10000, 512, thread=2)  # at once, to another thread
    t.add(SEGMENT_FREE, 0x10000, device=craft.CUDA, index=-1)
    moment(t, 2000)
    end = only(analyze(t))
    assert (end["tensors"], [line["bytes"] for line in end["driver"]]) == (0, [512])


def test_memory_that_is_told_late(analyze: Analyze) -> None:
    """Threads are merged by time: a block may come before the allocation that it lies in."""
    t = Trace()
    new(t, CONTEXT, 0xC0, 0)
    t.alloc(0x10000, 256, t.line(1), **CUDA)
    new(t, ASYNC, 0x10000, 256)
    moment(t, 300)
    end = only(analyze(t))
    assert (end["tensors"], end["driver"], end["context"]) == (256, [], 44)


def test_handles_live_until_released_and_mapped_nowhere(analyze: Analyze) -> None:
    t = Trace()
    new(t, ADDRESSES, 0x400000, 16 * MIB)
    new(t, PHYSICAL, 0x7, 2 * MIB)
    for at in (0x400000, 0x600000):
        new(t, MAPPED, at, 2 * MIB)
        t.add(MORE, 0x7, HANDLE)
    free(t, PHYSICAL, 0x7)
    assert bytes_of(analyze(t)) == 2 * MIB
    free(t, MAPPED, 0x400000, 2 * MIB)
    assert bytes_of(analyze(t)) == 2 * MIB
    free(t, MAPPED, 0x600000, MIB)  # a part
    assert bytes_of(analyze(t)) == 2 * MIB
    free(t, MAPPED, 0x400000, 16 * MIB)
    report = analyze(t)
    assert bytes_of(report) == 0 and torch_of(report) == {("reserved", False)}
    t.add(MORE, 1, FAILED)
    report = analyze(t)
    assert bytes_of(report) == 2 * MIB
    assert [row["bytes"] for row in report["driver"]["devices"][0]["live"]] == [16 * MIB, 2 * MIB, MIB]


def test_an_expandable_segment_without_its_reservation(analyze: Analyze) -> None:
    """The recording began after it was reserved: mappings that follow each other are one."""
    t = Trace()
    for i in range(2):
        new(t, PHYSICAL, 0x7 + i, 2 * MIB)
        new(t, MAPPED, 0x400000 + i * 2 * MIB, 2 * MIB)
        t.add(MORE, 0x7 + i, HANDLE)
    t.alloc(0x400000, 3 * MIB, t.line(1), **CUDA)
    moment(t, 5 * MIB)
    end = only(analyze(t))
    assert (end["tensors"], end["cached"], end["driver"], end["context"]) == (3 * MIB, MIB, [], MIB)
