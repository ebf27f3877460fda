"""From a report to what svg.py draws: columns, and the lines with most bytes as layers."""

from array import array
from collections.abc import Sequence

from cuptimem.notebook.svg import COLUMNS, LAYERS, REST, Layer, Picture
from cuptimem.output.text.words import code, where
from cuptimem.report.chart import Chart, Intervals
from cuptimem.report.model import Contributor, Device, Report

_STEADY = "(before start)"  # Contributor.where
_VISIBLE = 50  # a line with less than such a part of the peak, and nothing at it, is no layer


def of_timeline(report: Report, device: Device) -> Picture:
    """Without lines, for a report whose recording is not there any more."""
    points = device.timeline
    kept = _columns([point.high for point in points])
    total = [points[i].high for i in kept]
    return Picture(
        device.name,
        0,
        report.duration_ns,
        _beginnings([point.time_ns for point in points], kept),
        total,
        [Layer("all", total, device.peak.bytes)],
        [-1 if points[i].reserved is None else points[i].reserved or 0 for i in kept],
        device.peak.bytes,
        device.peak.time_ns,
        device.peak.step,
        report.steps,
    )


def of_chart(report: Report, device: Device, chart: Chart) -> Picture:
    """Stacked by line: the largest at the device's peak, and what is left."""
    intervals = chart.intervals
    kept = _columns(intervals.high)
    at = _interval_at(intervals, device.peak.time_ns)
    lines = [_name(contributor) for contributor in chart.contributors]
    named = _largest(chart, lines, at, device.peak.bytes // _VISIBLE)[:LAYERS]
    named.sort(key=lambda name: name != _STEADY)  # below what grows
    sums = _by_line(chart, lines, named)
    rest = array("q", intervals.high)
    for values in sums.values():
        for i, value in enumerate(values):
            rest[i] -= value
    layers = [Layer(name, [sums[name][i] for i in kept], sums[name][at]) for name in named]
    if any(rest):
        layers.append(Layer(REST, [rest[i] for i in kept], rest[at]))
    return Picture(
        device.name,
        chart.begin_ns,
        chart.end_ns,
        _beginnings(intervals.begin_ns, kept),
        [intervals.high[i] for i in kept],
        layers,
        [intervals.reserved[i] for i in kept],
        device.peak.bytes,
        device.peak.time_ns,
        device.peak.step,
        report.steps,
    )


def _columns(highs: Sequence[int]) -> list[int]:
    """One interval for each column: the one with the most bytes of those that share it."""
    most = len(highs)
    if most <= COLUMNS:
        return list(range(most))
    edges = [column * most // COLUMNS for column in range(COLUMNS + 1)]
    return [max(range(a, b), key=lambda i: highs[i]) for a, b in zip(edges, edges[1:], strict=False)]


def _beginnings(times: Sequence[int], kept: Sequence[int]) -> list[int]:
    """Where the columns begin, whichever of its intervals each one shows."""
    most = len(times)
    if most <= COLUMNS:
        return [times[i] for i in kept]
    return [times[column * most // COLUMNS] for column in range(len(kept))]


def _name(contributor: Contributor) -> str:
    frame = contributor.frame
    return f"{where(contributor)}  {code(frame)}" if frame is not None else contributor.where


def _largest(chart: Chart, lines: Sequence[str], at: int, least: int) -> list[str]:
    """Lines, those with the most bytes at this interval's high first; then those that have the most elsewhere, if that
    is more than `least`."""
    there: dict[str, int] = dict.fromkeys(lines, 0)
    rows = chart.entries
    for place, contributor in enumerate(rows.contributor):
        interval = rows.interval[place]
        follows = place + 1 < len(rows.contributor) and rows.contributor[place + 1] == contributor
        if interval <= at and (not follows or rows.interval[place + 1] > at):
            there[lines[contributor]] += rows.high[place] if interval == at else rows.end[place]
    most: dict[str, int] = {}
    for name, contributor_ in zip(lines, chart.contributors, strict=True):
        most[name] = max(most.get(name, 0), contributor_.bytes)
    shown = [name for name in there if there[name] or most[name] > least]
    return sorted(shown, key=lambda name: (-there[name], -most[name], name))


def _by_line(chart: Chart, lines: Sequence[str], named: Sequence[str]) -> "dict[str, array[int]]":
    """Bytes of these lines at every interval's high."""
    number = len(chart.intervals)
    sums = {name: array("q", bytes(8 * number)) for name in named}
    rows = chart.entries
    for place, contributor in enumerate(rows.contributor):
        values = sums.get(lines[contributor])
        if values is None:
            continue
        interval = rows.interval[place]
        values[interval] += rows.high[place]
        follows = place + 1 < len(rows.contributor) and rows.contributor[place + 1] == contributor
        if rows.end[place]:
            for later in range(interval + 1, rows.interval[place + 1] if follows else number):
                values[later] += rows.end[place]
    return sums


def _interval_at(intervals: Intervals, time_ns: int) -> int:
    """The one whose high is the device's peak."""
    best = 0
    for i, begin in enumerate(intervals.begin_ns):
        if begin > time_ns:
            break
        best = i
    return best
