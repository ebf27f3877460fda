"""Growth of the process that no tensor explains: by resident memory and live bytes that are known."""

import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import cuptimem
from cuptimem.output import json
from cuptimem.output.text import leak_views, text, views
from cuptimem.report.load import from_dict
from tests.tools.cli import sample

MIB = 1 << 20
Make = Callable[..., cuptimem.Report]


def report_of(folder: Path, resident: Sequence[int], peaks: Sequence[int], ends: Sequence[int]) -> cuptimem.Report:
    """Of steps with these live bytes, the process as large at their ends."""
    raw = sample.analysis(folder)
    row = {**raw["steps"][0], "loop": "training"}
    raw["steps"] = [
        {**row, "index": i, "begin_ns": i * 1000, "end_ns": i * 1000 + 999, "peak": peak, "end": end}
        for i, (peak, end) in enumerate(zip(peaks, ends, strict=True))
    ]
    raw["rss"] = [(i * 1000 + 500, size) for i, size in enumerate(resident)]
    return from_dict("run.cmem", raw)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(resident: Sequence[int], peaks: Sequence[int] = (), ends: Sequence[int] = ()) -> cuptimem.Report:
        flat = [4 * MIB] * len(resident)
        return report_of(tmp_path, resident, peaks or flat, ends or [MIB] * len(resident))

    return made


STEADY = [300 * MIB + i * MIB for i in range(100)]


def test_it_is_the_headline_where_no_tensor_grows(make: Make) -> None:
    report = make(STEADY)
    growth = report.process_growth
    assert growth is not None
    assert (growth.first_step, growth.last_step, growth.stopped, growth.tensors) == (10, 99, None, 0)
    assert growth.begin == 310 * MIB and growth.end == 390 * MIB and growth.bytes == 80 * MIB
    said = leak_views.line(report)
    assert said.startswith("the process grows by 80.0 MiB that no tensor explains (steps 10 to 99, about +")
    assert said.endswith("no leak: 100 steps judged") and "nothing grows" not in said
    shown = text.render(views.summary(report), 120)
    assert "library's cache" in shown
    assert "whole process: 310.0 MiB (step 10) to 399.0 MiB (step 99), +1.0 MiB a step" in shown
    assert "but the process grows by 80.0 MiB" in repr(report)
    assert pickle.loads(pickle.dumps(report)) == report


def test_the_json_has_it(make: Make) -> None:
    row = json.summary(make(STEADY))["process_growth"]
    assert row["bytes"] == 80 * MIB and row["stopped"] is None and row == json.leaks(make(STEADY))["process_growth"]
    assert json.summary(make([300 * MIB] * 100))["process_growth"] is None


def test_growth_that_has_stopped_says_when(make: Make) -> None:
    growth = make([300 * MIB + min(i, 60) * MIB for i in range(100)]).process_growth
    assert growth is not None and growth.stopped == 55 and growth.bytes == 50 * MIB  # 55: nine tenths of it


@pytest.mark.parametrize(
    "resident",
    [
        [300 * MIB] * 100,
        [300 * MIB + (64 * MIB if i > 50 else 0) for i in range(100)],  # something was loaded
        [200 * MIB + min(i, 10) * 10 * MIB for i in range(100)],  # a warm-up
        [300 * MIB + i % 20 * 10 * MIB for i in range(100)],  # back to where it was, again and again
        [300 * MIB + i * MIB // 20 for i in range(100)],  # 5 MiB in all
        STEADY[:19],
    ],
)
def test_what_is_no_growth(make: Make, resident: list[int]) -> None:
    report = make(resident)
    assert report.process_growth is None and "process grows" not in leak_views.line(report)


def test_what_tensors_explain_is_none(make: Make) -> None:
    kept = [i * MIB for i in range(100)]
    assert make(STEADY, [4 * MIB + end for end in kept], kept).process_growth is None
    sizes = [4 * MIB + i * 37 % 97 * MIB for i in range(100)]  # glibc keeps what the largest batch needed
    assert make(STEADY, sizes).process_growth is None


def test_a_buffer_that_is_filled_explains_it(make: Make) -> None:
    """Pages of torch.empty() belong to the process once they are written to; a parameter's all are."""
    report = make(STEADY)
    (device,) = report.devices
    large = replace(device.peak.contributors[0], bytes=100 * MIB, count=1)
    kept = (replace(report.survivors[0], stack=large.stack),)
    for category, explains in (("unknown", True), ("parameter", False)):
        peak = replace(device.peak, contributors=(replace(large, category=category),))
        one = replace(report, devices=(replace(device, peak=peak),), survivors=kept)
        assert (one.process_growth is None) == explains
