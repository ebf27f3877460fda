"""Growth of the process that no tensor explains: by sizes that are known."""

import pickle
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import cuptimem
from cuptimem.output import json
from cuptimem.output.text import leak_views, text, views
from cuptimem.report.load import from_dict
from tests.tools.cli import sample

MIB = 1 << 20
Make = Callable[..., cuptimem.Report]


def report_of(folder: Path, resident: Sequence[int], rest: Sequence[int]) -> cuptimem.Report:
    """Of steps at whose ends the process has these bytes, and uses these beside tensors."""
    raw = sample.analysis(folder)
    row = {**raw["steps"][0], "loop": "training", "peak": 4 * MIB, "end": MIB}
    raw["steps"] = [{**row, "index": i, "begin_ns": i * 1000, "end_ns": i * 1000 + 999} for i in range(len(resident))]
    raw["rss"] = [(i * 1000 + 500, size) for i, size in enumerate(resident)]
    raw["rest"] = [(i * 1000 + 500, size) for i, size in enumerate(rest)]
    return from_dict("run.cmem", raw)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(resident: Sequence[int], rest: Sequence[int] = ()) -> cuptimem.Report:
        return report_of(tmp_path, resident, rest or resident)

    return made


STEADY = [300 * MIB + i * MIB for i in range(100)]


def test_it_is_the_headline_where_no_tensor_grows(make: Make) -> None:
    report = make(STEADY)
    growth = report.process_growth
    assert growth is not None
    assert (growth.first_step, growth.last_step, growth.tensors) == (10, 99, 0)
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


@pytest.mark.parametrize(
    "resident",
    [
        [300 * MIB] * 100,
        [300 * MIB + (64 * MIB if i > 50 else 0) for i in range(100)],  # something was loaded
        [200 * MIB + min(i, 10) * 10 * MIB for i in range(100)],  # a warm-up
        [300 * MIB + i % 20 * 10 * MIB for i in range(100)],  # back to where it was, again and again
        [300 * MIB + i * MIB // 20 for i in range(100)],  # 5 MiB in all
        [300 * MIB + min(i, 50) * MIB for i in range(100)],  # a cache that has filled
        STEADY[:19],
    ],
)
def test_what_is_no_growth(make: Make, resident: list[int]) -> None:
    report = make(resident)
    assert report.process_growth is None and "process grows" not in leak_views.line(report)


def test_it_is_what_is_in_use_and_what_the_process_has(make: Make) -> None:
    flat = [300 * MIB] * 100
    # Pages of an empty tensor are written to, or glibc keeps what was freed; a buffer that no one writes to.
    assert make(STEADY, flat).process_growth is None and make(flat, STEADY).process_growth is None
    half = [300 * MIB + i * MIB // 2 for i in range(100)]
    for resident, rest, begin, tensors in ((STEADY, half, 310, 40), (half, STEADY, 305, 0)):
        growth = make(resident, rest).process_growth
        assert growth is not None
        assert (growth.bytes, growth.begin, growth.tensors) == (40 * MIB, begin * MIB, tensors * MIB)
