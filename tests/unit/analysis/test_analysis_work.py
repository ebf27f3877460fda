"""Kernels and copies: their sums, and blocks that are freed long before or after the work that uses them."""

import craft
from craft import Trace
from driver_model import CUDA
from driver_parts import Analyze, work

from tests.event_kinds import DEFERRED_FREE, LAUNCH


def test_blocks_that_wait_for_work(analyze: Analyze) -> None:
    ms = 1_000_000
    t = Trace()
    t.add(LAUNCH, 0x5, 1, t.line(5), flags=1, **CUDA)
    begin = t.now
    t.alloc(0x1000, 512, t.line(1), **CUDA)  # used 20 ms later
    t.alloc(0x2000, 64, t.line(2), **CUDA)  # never used
    t.free(0x2000, after=15 * ms, **CUDA)
    t.alloc(0x3000, 128, t.line(3), **CUDA)  # used soon
    t.add(LAUNCH, 0x5, 2, t.line(5), flags=1, **CUDA)
    t.free(0x3000, after=40 * ms, **CUDA)  # 40 ms after the launch, 21 ms after its work
    t.free(0x1000, after=1000, **CUDA)
    t.add(LAUNCH, 0x5, 3, t.line(5), flags=1, **CUDA)  # of which no record comes
    work(t, 1, begin + 1024, 1000, "first")
    work(t, 2, begin + 20 * ms, 15 * ms, "second")
    found = analyze(t)["kernels"]
    assert (found["launches"], found["ran"], found["dropped"], found["unjudged"]) == (3, 2, 1, 0)
    assert found["wait_least_ns"] == 10 * ms
    assert [(k["name"], k["count"], k["ns"]) for k in found["names"]] == [("second", 1, 15 * ms), ("first", 1, 1000)]
    assert [(w["bytes"], w["count"], w["kernel"]) for w in found["early"]] == [(512, 1, "second")]
    assert abs(found["early"][0]["wait_ns"] - 20 * ms) < 10_000
    assert sorted((w["bytes"], w["count"], w["kernel"]) for w in found["late"]) == [
        (128, 1, "second"),
        (512, 1, "second"),
    ]
    assert found["deferred_frees"] == []


def test_kernels_beyond_the_list_are_in_the_sums(analyze: Analyze) -> None:
    t = Trace()
    t.add(LAUNCH, 0x5, 1, t.line(5), flags=1, **CUDA)
    for i in range(60):
        work(t, 1, t.now + i, 100 + i, f"kernel{i}")
    found = analyze(t)["kernels"]
    assert (len(found["names"]), found["names_total"]) == (50, 60)
    assert found["ns"] == sum(100 + i for i in range(60)) and found["names"][0]["ns"] == 159


def test_launches_before_the_first_record_are_not_missing(analyze: Analyze) -> None:
    t = Trace()
    for correlation in (1, 2, 3, 4):
        t.add(LAUNCH, 0x5, correlation, t.line(5), flags=1, **CUDA)
    begin = t.now
    work(t, 3, begin - 1024 + 100, 5)
    work(t, 77, begin, 5)
    work(t, 77, begin + 64, 5)  # two of one call
    found = analyze(t)["kernels"]
    assert (found["launches"], found["ran"]) == (4, 3)
    assert (found["unrecorded"], found["dropped"], found["unlaunched"]) == (2, 1, 2)


def test_work_may_be_told_before_its_launch(analyze: Analyze) -> None:
    """Two clocks are compared, and a launch is told when its stack is known. A graph's launch has several."""
    ms = 1_000_000
    t = Trace()
    t.add(LAUNCH, 0x5, 1, t.line(5), flags=1, **CUDA)
    t.alloc(0x1000, 512, t.line(1), **CUDA)
    work(t, 7, t.now + 30 * ms, 1000, "first")
    work(t, 7, t.now + 31 * ms, 1000, "second")
    work(t, 8, t.now + 31 * ms, 1000, "nobody's")
    t.add(LAUNCH, 0x5, 7, t.line(5), flags=1, after=32 * ms, **CUDA)
    found = analyze(t)["kernels"]
    assert (found["launches"], found["ran"], found["dropped"], found["unrecorded"]) == (2, 3, 0, 1)
    assert [(w["bytes"], w["count"], w["kernel"]) for w in found["early"]] == [(512, 1, "first")]
    assert abs(found["early"][0]["wait_ns"] - 30 * ms) < 10_000


def test_steps_say_how_long_a_wait_is(analyze: Analyze) -> None:
    t = Trace()
    t.alloc(0x1000, 1, t.line(1))
    for step in range(12):
        t.tick(craft.STEP, 0, t.line(1), after=50_000_000)
        t.add(LAUNCH, 0x5, step, t.line(5), flags=1, **CUDA)
    report = analyze(t)
    mean = sum(step["end_ns"] - step["begin_ns"] for step in report["steps"]) / 12
    assert len(report["steps"]) == 12 and abs(report["kernels"]["wait_least_ns"] - mean / 10) < 1000


def test_held_blocks(analyze: Analyze) -> None:
    t = Trace()
    for i in range(3):
        t.alloc(0x1000 * (i + 1), 100, t.line(1), **CUDA)
    for i in range(2):
        t.add(DEFERRED_FREE, 0x77, thread=2)
        if i == 0:
            t.free(0x3000, **CUDA)  # another thread's is another block
        t.free(0x1000 * (i + 1), thread=2, **CUDA)
    found = analyze(t)["kernels"]
    assert [(h["bytes"], h["count"], h["stream"]) for h in found["deferred_frees"]] == [(200, 2, 0x77)]
    assert found["launches"] == 0
