"""Charts against a plain account: what each contributor had at each interval's highest moment, and which blocks."""

from array import array
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from craft import CUDA, GRAIN, Trace
from hand_made import Analyze, training
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plain_heap import LAST, OPERATION, SEEDS, Heap, Operation, play

import cuptimem
from cuptimem.report.chart import PHASES, Chart, Span
from tests.event_kinds import RESERVED


def columns(data: dict[str, Any]) -> dict[str, Any]:
    def column(raw: bytes) -> list[int]:
        found = array("q")
        found.frombytes(raw)
        return found.tolist()

    return {name: [column(c) for c in raw] if isinstance(raw, list) else column(raw) for name, raw in data.items()}


def values(chart: dict[str, Any], which: str) -> list[Counter[int | None]]:
    """What each stack has in each interval, from the entries alone."""
    rows = columns(chart["entries"])
    count = len(columns(chart["intervals"])["begin_ns"])
    found: list[Counter[int | None]] = [Counter() for _ in range(count)]
    last: dict[int, tuple[int, int]] = {}
    for i, contributor in enumerate(rows["contributor"]):
        interval = rows["interval"][i]
        if contributor in last:
            for between in range(last[contributor][0] + 1, interval):
                found[between][contributor] += last[contributor][1]
        found[interval][contributor] += rows[which][i]
        last[contributor] = (interval, rows["end"][i])
    for contributor, (interval, end) in last.items():
        for between in range(interval + 1, count):
            found[between][contributor] += end
    named: list[Counter[int | None]] = []
    for each in found:
        by_stack: Counter[int | None] = Counter()
        for contributor, size in each.items():
            _, _, stack, _, phase, *_ = chart["contributors"][contributor]
            by_stack[None if phase == "before start" else stack] += size
        named.append(+by_stack)
    return named


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    operations=st.lists(OPERATION, min_size=1, max_size=80),
    seeds=SEEDS,
    asked=st.lists(
        st.tuples(st.integers(0, 3000), st.integers(0, 3000), st.integers(1, 20), st.integers(0, 6)), max_size=2
    ),
)
def test_against_a_plain_account(
    analyze: Analyze,
    operations: list[Operation],
    seeds: dict[int, int],
    asked: list[tuple[int, int, int, int]],
) -> None:
    trace = Trace()
    accounts = play(trace, operations, seeds)
    end = trace.elapsed
    spans = [(0, LAST, 16, 1 << 20, 1 << 20)]
    spans += [
        (min(a, b) * GRAIN // 8, max(a, b) * GRAIN // 8, intervals, 1 << 20, blocks)
        for a, b, intervals, blocks in asked
    ]
    report = analyze(trace, charts=[*spans, *((*span, "cuda:0") for span in spans), (*spans[0], "cuda:7")])
    charts = report["charts"]
    of_all = [chart for chart in charts if chart["span"] < len(spans)]
    assert len(of_all) == len(spans) * len(report["devices"])
    for chart in of_all:
        check(chart, accounts[chart["device"]], spans[chart["span"]], end)
    alone = [chart | {"span": chart["span"] - len(spans)} for chart in charts[len(of_all) :]]
    assert alone == [chart for chart in of_all if chart["device"] == "cuda:0"]


def check(chart: dict[str, Any], account: Heap, span: tuple[int, int, int, int, int], end: int) -> None:
    asked_begin, asked_end, most, _, blocks = span
    last = min(asked_end, end)
    first = min(asked_begin, last)
    assert (chart["begin_ns"], chart["end_ns"]) == (first, last)
    intervals = columns(chart["intervals"])
    begins = intervals["begin_ns"]
    assert 1 <= len(begins) <= most and begins[0] == first and begins[-1] <= last
    assert all(b - a == begins[1] - begins[0] for a, b in zip(begins, begins[1:], strict=False))
    at_high, at_end = values(chart, "high"), values(chart, "end")
    for i, begin in enumerate(begins):
        until = begins[i + 1] if i + 1 < len(begins) else last + 1
        low, high, when, shares, ends = account.highest(begin, until)
        assert (intervals["low"][i], intervals["high"][i], intervals["high_ns"][i]) == (low, high, when)
        assert at_high[i] == shares
        assert at_end[i] == ends
        changes = account.within(begin, until)
        assert intervals["allocated"][i] == sum(size for size in changes if size > 0)
        assert intervals["freed"][i] == -sum(size for size in changes if size < 0)
    assert chart["hidden"] == 0
    check_blocks(chart, account, first, last, blocks)


def check_blocks(chart: dict[str, Any], account: Heap, first: int, last: int, limit: int) -> None:
    seen = [b for b in account.blocks if limit and b.begin <= last and (b.end == -1 or b.end >= first)]
    kept = [b for b in seen if b.end == -1 and b.stack is not None]
    least, least_kept = chart["least_block"], chart["least_survivor"]
    assert (least == 0) == (len(seen) <= limit) or limit == 0
    assert (least_kept == 0) == (len(kept) <= limit) or limit == 0
    rows = columns(chart["blocks"])
    found = set(zip(rows["address"], rows["bytes"], rows["begin_ns"], rows["end_ns"], strict=True))
    assert len(found) == len(rows["address"]) <= 2 * limit
    everything = {(b.address, b.size, b.begin, b.end) for b in seen}
    assert found <= everything
    assert found >= {(b.address, b.size, b.begin, b.end) for b in seen if b.size >= least}
    assert found >= {(b.address, b.size, b.begin, b.end) for b in kept if b.size >= least_kept}
    assert list(rows["begin_ns"]) == sorted(rows["begin_ns"])


def test_what_is_hidden_is_the_smallest_and_comes_back_when_it_grows(analyze: Analyze) -> None:
    trace = Trace()
    for line in range(20):
        for i in range(10):
            trace.alloc(0x1000 + 0x100 * line + i, 10 * (line + 1), trace.line(line))
    grown = 0
    for i in range(400):
        trace.alloc(0x100000 + i, 1000, trace.line(0))
        grown += 1000
    report = analyze(trace, charts=[(0, LAST, 50, 40, 0)])
    (chart,) = report["charts"]
    rows, intervals = columns(chart["entries"]), columns(chart["intervals"])
    assert len(rows["contributor"]) <= 40
    shown = {chart["contributors"][c][2] for c in rows["contributor"]}
    assert trace.line(0) in shown
    assert chart["hidden"] >= 10 * 10 * 2
    hidden = {trace.line(line) for line in range(20)} - shown
    assert hidden and all(
        10 * 10 * (line + 1) <= chart["hidden"] for line in range(1, 20) if trace.line(line) in hidden
    )
    last = values(chart, "high")[-1]
    assert last[trace.line(0)] == grown + 100
    assert sum(last.values()) <= intervals["high"][-1]


def test_ten_thousand_lines_keep_to_the_bound(analyze: Analyze) -> None:
    trace = Trace()
    for line in range(10_000):
        trace.alloc(0x1000 + 16 * line, 16, trace.line(line + 1))
    (chart,) = analyze(trace, charts=[(0, LAST, 1024, 500, 100)])["charts"]
    rows = columns(chart["entries"])
    assert len(rows["contributor"]) <= 500
    assert len(columns(chart["blocks"])["address"]) == 100  # the same are the largest and the survivors
    assert chart["least_block"] == 17 and chart["hidden"] == 16
    assert max(columns(chart["intervals"])["high"]) == 160_000


def test_of_equal_blocks_a_sample_is_spread_over_time(analyze: Analyze) -> None:
    """A thousand of one size, of which fifty are drawn: five in each tenth of them, give or take two."""
    trace = Trace()
    for i in range(1000):
        trace.alloc(0x1000 + 16 * i, 16, trace.line(1))
        trace.free(0x1000 + 16 * i)
    (chart,) = analyze(trace, charts=[(0, LAST, 100, 100, 50)])["charts"]
    addresses = columns(chart["blocks"])["address"]
    assert len(addresses) == 50 and chart["least_block"] == 17
    tenths = [sum((address - 0x1000) // 1600 == tenth for address in addresses) for tenth in range(10)]
    assert all(3 <= number <= 7 for number in tenths)


def test_reserved_bytes_and_phases(analyze: Analyze) -> None:
    trace = Trace()
    training(trace, 10)
    trace.add(RESERVED, 100, 5000, device=CUDA, index=0)
    trace.alloc(0x9000, 10, trace.line(1), device=CUDA, index=0)
    report = analyze(trace, charts=[(0, LAST, 8, 100, 100)])
    cpu, cuda = report["charts"]
    assert (cpu["device"], cuda["device"]) == ("cpu", "cuda:0")
    assert set(columns(cpu["intervals"])["reserved"]) == {-1}
    assert columns(cuda["intervals"])["reserved"][-1] == 5000
    phases = columns(cpu["intervals"])["phases"]
    assert len(phases) == len(PHASES) and sum(map(sum, phases)) == 31
    steps = columns(cpu["blocks"])
    lives = Counter(zip(steps["bytes"], steps["step"], steps["end_step"], strict=True))
    assert all(lives[100, step, step] == lives[200, step, step + 1] == 1 for step in range(1, 9))


@pytest.mark.parametrize(
    "spans",
    [
        [(0, 1, 1, 1, 1, "x" * 24)],
        [(0, 1, 0, 1, 1)],
        [(5, 1, 1, 1, 1)],
        [(0, 1, 1 << 17, 1, 1)],
        [(0, 1, 1, 1 << 29, 1)],
        [(0, 1, 1, 1, 1)] * 65,
    ],
)
def test_spans_out_of_range_are_refused(analyze: Analyze, spans: list[tuple[int, ...]]) -> None:
    trace = Trace()
    trace.alloc(64, 10)
    with pytest.raises(ValueError):
        analyze(trace, charts=spans)


@pytest.mark.parametrize("span", [(-1, LAST, 1, 1, 1), (0, LAST + 1, 1, 1, 1), (0, LAST, (1 << 64) + 1, 1, 1)])
def test_numbers_that_do_not_fit_are_refused(analyze: Analyze, span: tuple[int, ...]) -> None:
    trace = Trace()
    trace.alloc(64, 10)
    with pytest.raises(OverflowError):
        analyze(trace, charts=[span])


def test_report_charts(tmp_path: Path) -> None:
    trace = Trace()
    training(trace, 20)
    report = cuptimem.open(trace.write(tmp_path / "a.cmem"))
    whole, part = report.charts([Span(), Span(begin_ns=report.steps[3].begin_ns, end_ns=report.steps[4].end_ns)])
    assert isinstance(whole, Chart) and (whole.span, part.span) == (0, 1)
    assert max(whole.intervals.high) == report.peak.bytes
    assert sum(whole.intervals.allocated) == report.devices[0].allocated
    assert set(whole.rest()) == set(part.rest()) == {0}
    assert (part.begin_ns, part.end_ns) == (report.steps[3].begin_ns, report.steps[4].end_ns)
    assert max(part.intervals.high) == max(step.peak for step in report.steps[3:5])
    assert {c.where for c in whole.contributors} == {f"train.py:{line}" for line in (1, 11, 12, 13)}
