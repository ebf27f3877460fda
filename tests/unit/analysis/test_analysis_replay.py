"""Hand-made traces with known answers: curves, side notes, damage and interruption."""

from pathlib import Path

import pytest
from craft import BEFORE_START, CPU, CUDA, GRAIN, STEP, Trace
from hand_made import Analyze, only_device, training

from benchmarks.synthetic import write_synthetic
from tests.event_kinds import OOM, RESERVED, SAMPLE

# --- curves and side notes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("points", [2, 7, 100, 0])
def test_the_true_peak_is_in_the_timeline(analyze: Analyze, points: int) -> None:
    t = Trace()
    stack = t.line(1)
    for i in range(3000):
        size = 777_777 if i == 1234 else 100 + i % 50
        t.alloc(0x1000, size, stack, after=GRAIN * (1 + i * i % 900))
        t.free(0x1000)
    report = analyze(t, points=points)
    curve = only_device(report)["timeline"]
    assert len(curve) <= (points or 2048)
    assert max(top for _, _, top, _ in curve) == only_device(report)["peak"] == 777_777
    assert min(low for _, low, _, _ in curve) == 0
    times = [time for time, *_ in curve]
    assert times == sorted(set(times)) and times[-1] <= report["duration_ns"]


def test_reserved_totals(analyze: Analyze) -> None:
    t = Trace()
    cuda = {"device": CUDA, "index": 0}
    t.alloc(0x1000, 100, t.line(1), **cuda)
    t.add(RESERVED, 100, 2048, **cuda)
    t.add(RESERVED, 100, 512, after=1 << 22, **cuda)
    t.alloc(0x2000, 10, t.line(1))
    cuda_report, cpu = analyze(t)["devices"]
    assert cuda_report["reserved_peak"] == 2048 and cpu["reserved_peak"] is None
    assert [reserved for *_, reserved in cuda_report["timeline"]] == [2048, 512]
    assert all(reserved is None for *_, reserved in cpu["timeline"])


def test_reserved_at_the_end_of_each_step(analyze: Analyze) -> None:
    t = Trace()
    cuda = {"device": CUDA, "index": 0}
    t.alloc(0x1000, 100, t.line(1), **cuda)
    t.alloc(0x2000, 10, t.line(1))
    t.tick(STEP, 1, t.line(2))
    t.add(RESERVED, 100, 2048, **cuda)
    t.add(RESERVED, 100, 512, **cuda)
    t.tick(STEP, 1, t.line(2))
    t.add(RESERVED, 100, 1024, **cuda)  # the first event behind the step's end
    t.tick(STEP, 1, t.line(2))
    t.tick(STEP, 1, t.line(2))
    steps = analyze(t)["steps"]
    assert [step["reserved"] for step in steps if step["device"] == "cuda:0"] == [None, 512, 1024, 1024]
    assert [step["reserved"] for step in steps if step["device"] == "cpu"] == [None] * 4


def test_out_of_memory(analyze: Analyze) -> None:
    t = Trace()
    t.alloc(0x1000, 100, t.line(1))
    t.tick(STEP, 1, t.line(2))
    t.add(OOM, 100, 1 << 40, t.line(3))
    at = t.elapsed
    t.tick(STEP, 1, t.line(2))
    report = analyze(t)
    (oom,) = only_device(report)["ooms"]
    assert oom[:5] == (at, 1 << 40, 100, t.line(3), 1)
    assert report["stacks"][t.line(3)][0][:3] == ("train.py", "main", 3)


@pytest.mark.parametrize("told", [0, 2**64 - 1])
@pytest.mark.parametrize("device", [CPU, CUDA])
def test_out_of_memory_that_tells_no_total(analyze: Analyze, told: int, device: int) -> None:
    """What is alive then stands in its place; 0 is true where nothing is."""
    on = {"device": device, "index": -1 if device == CPU else 0}
    t = Trace()
    t.add(OOM, told, 1 << 41, t.line(3), **on)
    t.alloc(0x1000, 100, t.line(1), **on)
    t.alloc(0x2000, 40, t.line(1), **on)
    t.free(0x2000, **on)
    t.add(OOM, told, 1 << 40, t.line(3), **on)
    t.alloc(0x3000, 1000, t.line(1), **on)
    assert [row[1:3] for row in only_device(analyze(t))["ooms"]] == [(1 << 41, 0), (1 << 40, 100)]


def test_resident_memory(analyze: Analyze) -> None:
    t = Trace()
    t.alloc(0x1000, 100, t.line(1))
    for i in range(5000):
        t.add(SAMPLE, 1, 1000 + i if i != 3000 else 99_999, after=1 << 20, thread=0)
    rss = analyze(t, points=50)["rss"]
    assert len(rss) <= 50 and max(size for _, size in rss) == 99_999


def test_memory_in_use_beside_tensors_of_the_host(analyze: Analyze) -> None:
    t = Trace()
    t.alloc(0x1000, 100, t.line(1))
    t.alloc(0x1000, 10_000, t.line(1), device=CUDA, index=0)
    t.alloc(0x9000, 30, t.line(1), device=64, index=0)  # pinned
    t.add(SAMPLE, 2, 5000, thread=0, after=1 << 20)
    t.free(0x1000)
    t.add(SAMPLE, 2, 5000, thread=0, after=1 << 20)
    report = analyze(t)
    assert [size for _, size in report["rest"]] == [4870, 4970] and report["rss"] == []


def test_counts_and_meta(analyze: Analyze, tmp_path: Path) -> None:
    from cuptimem import _core

    t = Trace()
    t.alloc(0x1000, 100, t.line(1))
    t.alloc(0x2000, 100, t.line(1), thread=4)
    t.free(0x1000, thread=4)
    t.add(SAMPLE, 1, 1000, thread=0)  # the collector's: none of the program's threads
    report = _core.analyze(t.write(tmp_path / "t.cmem", meta={"torch": "2.13.0"}, per_batch=1, lost=5))
    assert report["schema"] == 3 and report["complete"] and report["state"] == "complete"
    assert (report["events"], report["allocations"], report["threads"]) == (4, 2, 2)
    assert report["meta"] == {"torch": "2.13.0"} and report["lost"]["events"] == 5
    assert report["duration_ns"] == t.elapsed
    assert report["start_realtime_ns"] == 10**9 + t.events[0].time


def test_batches_change_nothing(analyze: Analyze) -> None:
    t = Trace()
    training(t, 6)
    assert analyze(t, per_batch=3) == analyze(t, per_batch=1000)


# --- damage and interruption ----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [-1, 1 << 60])
def test_impossible_sizes_are_damage(analyze: Analyze, size: int) -> None:
    from cuptimem._core import Error

    t = Trace()
    t.alloc(0x1000, size, t.line(1))
    with pytest.raises(Error, match=r"^the trace is damaged: it has a block of an impossible size$"):
        analyze(t)


def test_sums_cannot_overflow(analyze: Analyze) -> None:
    from cuptimem._core import Error

    t = Trace()
    for i in range(40_000):
        t.alloc(0x1000 * (i + 1), 1 << 48, t.line(1))
    with pytest.raises(Error, match=r"^the trace is damaged"):
        analyze(t)


def test_too_many_devices_are_damage(analyze: Analyze) -> None:
    from cuptimem._core import Error

    t = Trace()
    for i in range(256):
        t.alloc(0x1000, 8, device=1 + i // 128, index=i % 128)
    assert len(analyze(t)["devices"]) == 256
    t.alloc(0x1000, 8, device=9, index=0)
    with pytest.raises(Error, match=r"^the trace is damaged: it names more than 256 devices$"):
        analyze(t)


def test_an_empty_trace(analyze: Analyze) -> None:
    report = analyze(Trace())
    assert report["devices"] == report["steps"] == report["survivors"] == [] and report["events"] == 0


def test_inherited_flags_in_the_wild_do_no_harm(analyze: Analyze) -> None:
    t = Trace()
    t.alloc(0x1000, 8, t.line(1))
    t.alloc(0x2000, 8, t.line(1), flags=BEFORE_START)
    assert only_device(analyze(t))["start"] == 16


def test_no_file(tmp_path: Path) -> None:
    from cuptimem import _core

    with pytest.raises(_core.Error) as caught:
        _core.analyze(str(tmp_path / "absent.cmem"))
    assert str(caught.value).count("\n") == 0 and "absent.cmem" in str(caught.value)


def test_progress_can_cancel_and_errors_come_through(tmp_path: Path) -> None:
    from cuptimem import _core

    path = str(tmp_path / "large.cmem")
    write_synthetic(path, 3_000_000)
    seen: list[float] = []

    def stop(share: float) -> bool:
        seen.append(share)
        return False

    with pytest.raises(KeyboardInterrupt):
        _core.analyze(path, progress=stop)
    assert len(seen) == 1 and 0 <= seen[0] <= 1

    def fail(share: float) -> bool:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        _core.analyze(path, progress=fail)
