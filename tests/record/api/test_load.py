"""Dataclasses of a report are made by their fields: every field is one of the core's table, or made on purpose."""

from dataclasses import fields

import pytest

from cuptimem import _core
from cuptimem.report import chart, fragmentation, kernels, leaks, ledger, load, model

MADE = {
    "Contributor": {"stack_lost"},
    "LiveTensor": {"dtype", "shape"},
    "OutOfMemory": {"device"},
    "Step": {"rest_bytes", "rest_count"},
    "Leak": {"stack_lost"},
    "Holder": {"put_at"},
    "LeakPart": {"stack_lost"},
    "DriverAllocations": {"stack_lost"},
    "SegmentPin": {"stack_lost"},
    "Pin": {"stack_lost"},
    "KernelUse": {"stack_lost"},
    "DeferredFrees": {"stack_lost"},
    "Ledger": {"lines"},
    "Device": {"peak_above_start"},
}
DATACLASSES = {
    model.Contributor: "contributor",
    model.LiveTensor: "tensor",
    model.OutOfMemory: "oom",
    model.TimelinePoint: "timeline_point",
    model.ResidentPoint: "resident_point",
    model.Segments: "segments",
    model.TotalsCheck: "check",
    model.HostRead: "host_read",
    model.KeptBlock: "kept_block",
    model.Device: "device",
    model.Step: "step",
    model.Survivor: "survivor",
    model.Backward: "backward",
    model.Compacted: "compacted",
    model.Lost: "lost",
    model.Clock: "clock",
    model.ClockChange: "clock_change",
    model.ClockPassed: "clock_passed",
    model.ClockRate: "clock_rate",
    leaks.Leak: "leak",
    leaks.LeakPart: "leak_part",
    leaks.Holder: "holder",
    ledger.DriverLevel: "driver",
    ledger.DriverDevice: "driver_device",
    ledger.DriverAllocations: "driver_allocations",
    ledger.Ledger: "ledger",
    ledger.DeviceTimeline: "device_timeline",
    ledger.DeviceTimelinePoint: "device_point",
    ledger.RecordCheck: "record_check",
    fragmentation.Fragmentation: "fragmentation",
    fragmentation.PinnedSegment: "segment",
    fragmentation.SegmentPin: "segment_pin",
    fragmentation.Pin: "pin",
    kernels.Kernels: "kernels",
    kernels.KernelTime: "kernel",
    kernels.KernelUse: "waiting_blocks",
    kernels.DeferredFrees: "deferred_frees",
    chart.Chart: "chart",
    chart.Intervals: "chart_intervals",
    chart.Entries: "chart_entries",
    chart.Blocks: "chart_blocks",
}


@pytest.mark.parametrize("kind", DATACLASSES, ids=lambda kind: str(kind.__name__))
def test_every_field_is_in_the_cores_table(kind: type) -> None:
    there = {name for name, _, _ in _core.fields()[DATACLASSES[kind]]}
    asked = {load._CORE_NAMES.get((kind, one.name), one.name) for one in fields(kind)}  # type: ignore[arg-type]
    assert asked - there == MADE.get(kind.__name__, set())
