"""Long traces: the answers stay right, and memory follows live blocks, stacks and steps, not events."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from craft import ROOT, STEP, Trace
from leak_program import FINAL_BEGIN, FINAL_END

import cuptimem
from benchmarks.synthetic import write_synthetic
from cuptimem import _core
from tests.event_kinds import NODE_FREE, THREAD

_CHILD = """
import json, resource, sys
sys.path.insert(0, sys.argv[1])
from cuptimem import _core
_core.analyze(sys.argv[2])  # what the first call sets up does not count
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
report = _core.analyze(sys.argv[3])
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
cpu = report["devices"][0]
print(json.dumps({
    "grown": (after - before) * 1024, "events": report["events"], "steps": len(report["steps"]),
    "peak": cpu["peak"], "sum": sum(row[0] for row in cpu["contributors"]), "end": cpu["end"],
    "top": max(point[2] for point in cpu["timeline"]), "points": len(cpu["timeline"]),
    "backward": report["backward"], "lost": report["lost"],
}))
"""


def measured(small: str, large: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(ROOT), small, large], capture_output=True, text=True, check=True
    )
    result = json.loads(done.stdout)
    assert isinstance(result, dict)
    return result


@pytest.mark.parametrize("on", ["cuda", "scattered"])
def test_synthetic_driver_level(tmp_path: Path, on: str) -> None:
    """Blocks by the thousand come and go in their segments, and at the end each byte is where it was written."""
    path = str(tmp_path / "s.cmem")
    truth = write_synthetic(path, 150_000, 5, on)
    report = cuptimem.open(path)
    device = report.devices[0]
    assert (device.name, device.peak.bytes, device.end) == ("cuda:0", truth["peak_bytes"], truth["live_bytes"])
    assert report.events == truth["events"] and len(report.steps) == truth["steps"]
    assert device.segments is not None and device.segments.count == truth["segments"] > 50
    assert sum(len(timeline.points) for timeline in report.device_timelines) == truth["moments"]
    assert report.driver.mode == "callbacks"
    workspaces = 1 + (truth["steps"] - 1) // 16
    assert report.driver.allocations == truth["segments"] + workspaces
    assert report.driver.frees == workspaces - 1
    check = report.driver.record_check
    assert check.records == check.matched == report.driver.allocations + report.driver.frees
    assert (check.missing, check.differ, check.alone) == (0, 0, 0)
    assert [ledger.residual for ledger in report.ledgers] == [0, 0]
    end = report.ledgers[-1]
    known = truth["live_bytes"] - truth["seed_bytes"]  # the seeds lie in memory that no event told of
    assert end.what == "end" and end.tensors + end.rounding == known
    assert known + end.cached == device.segments.bytes
    assert [(line.library.rsplit("/")[-1], line.bytes) for line in end.driver] == [("libcublas.so.13", 8 << 20)]


def test_two_million_synthetic_events(tmp_path: Path) -> None:
    small, large = str(tmp_path / "small.cmem"), str(tmp_path / "large.cmem")
    write_synthetic(small, 10_000)
    truth = write_synthetic(large, 2_000_000)
    seen = measured(small, large)
    assert seen["events"] == truth["events"] and seen["steps"] == truth["steps"]
    assert seen["peak"] == seen["sum"] == seen["top"] == truth["peak_bytes"]
    assert seen["end"] == truth["live_bytes"]
    assert seen["backward"]["resolved"] == seen["backward"]["bytes"] > 0
    assert not any(seen["lost"].values())
    assert seen["points"] <= 2048
    # 1,322 steps of about 4 KiB each as Python objects, and buffers: far from 40 bytes an event.
    assert seen["grown"] < 16 << 20, seen["grown"]


@pytest.mark.parametrize("nodes_are_freed", [True, False])
def test_memory_does_not_follow_events(tmp_path: Path, nodes_are_freed: bool) -> None:
    """The same few blocks and nodes over and over: ten times the events, the same memory."""
    trace = Trace()
    trace.add(THREAD, 1, 11)
    stack = trace.line(1)
    for i in range(60_000):
        trace.node(i, stack)
        trace.alloc(0x1000 + 64 * (i % 50), 64, stack)
        trace.free(0x1000 + 64 * (i % 50))
        if nodes_are_freed:
            trace.add(NODE_FREE, i, 11)
    large = trace.write(tmp_path / "large.cmem", per_batch=20_000)
    del trace.events[20_000:]
    small = trace.write(tmp_path / "small.cmem", per_batch=20_000)
    seen = measured(small, large)
    # Without frees nodes may still run: 60,000 of them at 32 bytes, doubling included.
    assert seen["grown"] < (1 << 20 if nodes_are_freed else 6 << 20), seen["grown"]


def test_many_stacks_and_steps_together(tmp_path: Path) -> None:
    """A step looks only at the stacks that it touched, and still finds the ten largest of all."""
    trace = Trace()
    tick = trace.line(9)
    for i in range(4000):
        trace.alloc(0x100000 + 64 * i, 100 + i, trace.stack((f"f{i % 50}.py", "f", 10 + i)))
    trace.tick(STEP, 1, tick)
    for i in range(2000):
        trace.free(0x100000 + 64 * (3999 - i))
        trace.tick(STEP, 1, tick)
    steps = _core.analyze(trace.write(tmp_path / "t.cmem"))["steps"]
    assert len(steps) == 2001
    for step in steps[1:]:
        largest = 4099 - (step["index"] - 1)  # still there at the step's peak, which is its start
        assert [row[0] for row in step["contributors"]] == list(range(largest, largest - 10, -1))
        assert sum(row[0] for row in step["contributors"]) + step["rest"][0] == step["peak"]
        assert len(step["contributors"]) + step["rest"][1] == 4000 - (step["index"] - 1)


def test_verdicts_of_many_steps_stacks_and_survivors(tmp_path: Path) -> None:
    """A row per leak, found among many, in memory that follows what is alive."""
    trace = Trace()
    tick = trace.line(9)
    for i in range(12_000):
        trace.alloc(0x100000 + 128 * i, 1000, trace.line(1))
        trace.alloc(0x100040 + 128 * i, 8, trace.line(10 + i % 500))
        if i >= 1500:
            trace.free(0x100040 + 128 * (i - 1500))
        trace.tick(STEP, 1, tick)
    whole = trace.events
    trace.mark(FINAL_BEGIN, 1)
    trace.mark(FINAL_END)
    large = trace.write(tmp_path / "large.cmem", per_batch=20_000)
    trace.events = whole[:4000]
    small = trace.write(tmp_path / "small.cmem", per_batch=20_000)
    (row,) = _core.analyze(large)["leaks"]
    assert (row["bytes"], row["count"], row["bytes_per_step"]) == (12_000_000, 12_000, 1000.0)
    # 10,700 more live blocks (32 bytes, doubling), as many rows, 11,000 steps as Python objects.
    assert measured(small, large)["grown"] < 20 << 20
