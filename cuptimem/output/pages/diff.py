"""The page of `cuptimem diff A B -o`: two recordings side by side. The bytes are those of cuptimem/report/diff.py."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cuptimem.output.pages import page, stacks_data
from cuptimem.output.pages.flamegraph import ASSETS
from cuptimem.output.pages.heading import head
from cuptimem.output.text import diff_views
from cuptimem.output.text.words import count, function, plural, signed, size
from cuptimem.printable import printable
from cuptimem.report import diff
from cuptimem.report.diff import Change, DeviceDiff, Section
from cuptimem.report.model import Report
from cuptimem.report.stacks import Frame

ROWS = 1000  # of a table of changes; the others are summed
PLAIN = 50  # of a table that needs no script


def html(before: Report, after: Report, devices: Sequence[DeviceDiff], named: str | None = None) -> str:
    """before, after: opened with diff.TABLES. devices: diff.compare(). named: the device that is shown first."""
    heads = [head(report, "") for report in (before, after)]
    names = _names(before, after)
    stacks = _stacks(before, after)
    data = {
        "names": names,
        "named": named,
        "stacks": stacks,
        "devices": [_device(one, before, after) for one in devices],
    }
    return page.render(
        "diff.html",
        data,
        (*page.UPLOT, *ASSETS, "assets/diff.css", "assets/diff.js"),
        title=f"{names[0]} and {names[1]}: what changed",
        heading="What changed between two recordings",
        caveats=[
            f"{name}: {line}" for name, one in zip(("before", "after"), heads, strict=True) for line in one["caveats"]
        ],
        apart=list(filter(None, map(diff_views.apart, devices))),
        notes=stacks_data.merged_note(stacks),
        runs=[(name, " · ".join([one["heading"], *one["facts"]])) for name, one in zip(names, heads, strict=True)],
        totals=[_total(one.device, section) for one in devices for section in one.shown],
        tables=[_plain(one.device, section) for one in devices for section in one.shown if any(section.bytes)],
        empty=not any(any(section.bytes) for one in devices for section in one.shown),
    )


def _names(before: Report, after: Report) -> tuple[str, str]:
    """Of the files, as short as they differ."""
    paths = [report.path or "recording" for report in (before, after)]
    names = [os.path.basename(path) for path in paths]
    if names[0] == names[1] and paths[0] != paths[1]:
        names = [
            os.path.join(os.path.basename(os.path.dirname(os.path.abspath(path))), os.path.basename(path))
            for path in paths
        ]
    return printable(names[0]), printable(names[1])


def _stacks(before: Report, after: Report) -> dict[str, Any]:
    """Rows of both, where a line of the first that is in the second, too, is that line."""
    same = diff.places(before, after)
    there: dict[diff.Place, Frame] = {}
    for one in after.devices:
        for what in diff.SECTIONS:
            for contributor in after.contents(what, one.name).contributors:
                for frame in contributor.stack:
                    there.setdefault((frame.file, frame.line), frame)

    def of_before(frame: Frame) -> tuple[str, Frame]:
        place = same.get((frame.file, frame.line))
        if place is None:
            return "before", frame
        now = there[place]
        return "", replace(frame, file=now.file, line=now.line, text=now.text or frame.text)

    builder = stacks_data.Builder(canonical=of_before)
    for run, report in enumerate((before, after)):
        for one in report.devices:
            for what in ("peak", "end"):
                builder.add_contents(report.contents(what, one.name), run)
        builder.canonical = lambda frame: ("", frame)
    return builder.data()


def _device(one: DeviceDiff, before: Report, after: Report) -> dict[str, Any]:
    return {
        "device": one.device,
        "sections": [_section(section) for section in one.shown],
        "runs": [_curve(report, one.device) for report in (before, after)],
    }


def _curve(report: Report, device: str) -> dict[str, list[int]]:
    """Live bytes over time, and the peaks of steps."""
    points = next((d.timeline for d in report.devices if d.name == device), ())
    steps = [step for step in report.steps.ended if step.device == device]
    return {
        "time_ns": [point.time_ns for point in points],
        "high": [point.high for point in points],
        "step": [step.index for step in steps],
        "peak": [step.peak for step in steps],
    }


def _section(section: Section) -> dict[str, Any]:
    others = section.changes[ROWS:]
    return {
        "what": section.what,
        "key": f"{section.what} {stacks_data.short(section.loop)}".rstrip(),
        "title": _title(section),
        "bytes": section.bytes,
        "steps": section.steps,
        "rest": section.rest,
        "others": [len(others), *(sum(change.bytes[i] for change in others) for i in (0, 1))],
        "changes": [_change(section, change) for change in section.changes[:ROWS]],
    }


def _change(section: Section, change: Change) -> list[Any]:
    line = change.shown
    frame = line.frame
    return [
        change.kind,
        *change.bytes,
        *change.count,
        change.phase,
        stacks_data.short(line.where),
        stacks_data.short(function(frame)),
        stacks_data.short(frame.source) if frame is not None else "",
        _moved_from(change),
        stacks_data.short(diff_views.parts_in_a_line(section, change)),
    ]


def _title(section: Section) -> str:
    return stacks_data.short(diff_views.name(section)).capitalize()


def _moved_from(change: Change) -> str:
    if not change.moved or change.before is None:
        return ""
    return stacks_data.short(f"{change.before.where} {function(change.before.frame)}")


def _total(device: str, section: Section) -> tuple[str, str, str, str, str]:
    was, is_ = (round(value) for value in section.a_step(section.bytes))
    part = f"{100 * (is_ - was) / was:+.0f} %" if was and is_ != was else ""
    return f"{device} {stacks_data.short(diff_views.name(section))}", size(was), size(is_), signed(is_ - was), part


def _plain(device: str, section: Section) -> dict[str, Any]:
    """A table of what changed most, for readers without scripts; its rows sum to the whole."""

    def row(pair: tuple[int, int], kind: str, where: str, name: str, source: str, *below: str) -> tuple[Any, ...]:
        was, is_ = (round(value) for value in section.a_step(pair))
        return signed(is_ - was), size(was), size(is_), kind, where, name, source, list(filter(None, below))

    rows = []
    for change in section.changes[:PLAIN]:
        kind, _, _, _, _, _, where, name, source, moved_from, parts = _change(section, change)
        moved = moved_from and f"moved from {moved_from}"
        rows.append(row(change.bytes, kind, where, name, source, moved, parts))
    others = section.changes[PLAIN:]
    left = (sum(change.bytes[0] for change in others), sum(change.bytes[1] for change in others))
    if any(left):
        rows.append(row(left, "", f"({plural(len(others), 'more line')})", "", ""))
    if any(section.rest):
        rows.append(row(section.rest, "", "(compacted: no line kept)", "", ""))
    steps = (
        f", {count(section.steps[0])} steps before and {count(section.steps[1])} after"
        if section.what == "stepped" and not section.loop
        else ""
    )
    return {"title": f"{stacks_data.short(diff_views.title(section, device))}{steps}", "rows": rows}
