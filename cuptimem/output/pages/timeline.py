"""The timeline: a page with live bytes over time, and the data that its script draws.

The data is columns of numbers. Frames, stacks and contributors are in it once and referred to by number, as is
everything that a contributor is grouped by. Text from the trace is made printable and shortened here.
"""

import os
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from cuptimem.output.exports.perfetto import aligned
from cuptimem.output.pages import page as pages
from cuptimem.output.pages.heading import head, warnings
from cuptimem.output.text import advice_views, fragmentation_views, leak_views, ledger_views, peak_views, views
from cuptimem.output.text.clock_views import counted_by
from cuptimem.output.text.part_views import under
from cuptimem.output.text.words import count, duration, function, plural, share, shortened, signed, size
from cuptimem.report import grouping
from cuptimem.report.advice import Advice, Proposal
from cuptimem.report.chart import PHASES, Chart, Span
from cuptimem.report.fragmentation import Fragmentation, PinnedSegment
from cuptimem.report.leaks import Leak
from cuptimem.report.model import Contributor, Device, Report, Step, first_lines
from cuptimem.report.parts import drives_loop
from cuptimem.report.stacks import Frame, Stack, short_file, user_frame

SCRIPTS = (
    *pages.UPLOT,
    "assets/timeline.css",
    "assets/timeline-model.js",
    "assets/timeline-ink.js",
    "assets/timeline-strips.js",
    "assets/timeline-chart.js",
    "assets/timeline-blocks.js",
    "assets/timeline-table.js",
    "assets/timeline-keys.js",
    "assets/timeline.js",
)
ON_A_PAGE = ("assets/timeline-page.js",)
GROUPINGS = ("line", "function", "module", "category", "phase", "library")
NEIGHBOUR = 0.02  # without steps: of the recording, on each side of the peak, is drawn finely
FINE = 16  # devices, the fullest, whose peak is drawn finely
LEAST_INTERVALS = 64
LONGEST = 300  # characters of a text from the trace
_ROWS = 15  # of the peak's table below the picture
_STEPS = 10  # rows at each end of the table of steps


def page(report: Report, *, overview: Span | None = None, fine: Span | None = None) -> str:
    """The page, one HTML file. overview, fine: see data."""
    advised = advice_views.quick(report) if report.devices else None
    return pages.render(
        "timeline.html",
        data(report, overview=overview, fine=fine, advised=advised),
        (*SCRIPTS, *ON_A_PAGE),
        **head(report, "memory over time"),
        peaks=[_peak_table(device) for device in report.devices],
        leaks=[_leak_row(leak) for leak in report.leaks],
        suspects=[_leak_row(leak) for leak in report.suspects],
        ooms=[
            f"{oom.device}: asked for {size(oom.requested)} with {size(oom.allocated)} in use, "
            f"{duration(oom.time_ns)} after the start" + (f", at {clean(frame.place)}" if frame else "")
            for oom, frame in ((oom, user_frame(oom.stack)) for oom in report.ooms)
        ],
        advice=None if advised is None or not advised.proposals else _advice_table(advised),
        reserved=[_reserved_table(one) for one in report.fragmentations if one.segments],
        steps=[_steps_table(report, device) for device in report.devices if _steps_of(report, device.name)],
        counted=clean(counted_by(report.clock)) if report.clock.kind else "",
    )


def beside(first: Report, second: Report) -> str:
    """The page of two ranks: one timeline above the other, on one scale, aligned by the steps that both have."""
    reports = (first, second)
    begins = [{(step.loop, step.index): step.begin_ns for step in report.steps} for report in reports]
    later = aligned(begins)[1]
    heads = [head(report, "memory over time") for report in reports]
    names = [_name(report, one["heading"]) for report, one in zip(reports, heads, strict=True)]
    apart = [] if later is not None else ["they have no step in common: both begin together"]
    return pages.render(
        "timelines.html",
        {"beside": [{"data": data(first), "later": 0}, {"data": data(second), "later": later or 0}]},
        (*SCRIPTS, *ON_A_PAGE),
        title=f"{' and '.join(names)}: memory over time",
        heading=" and ".join(names),
        caveats=apart + [f"{name}: {line}" for name, one in zip(names, heads, strict=True) for line in one["caveats"]],
        names=names,
        rows=[one["facts"] for one in heads],
    )


def _name(report: Report, otherwise: str) -> str:
    rank = report.environment.get("rank", "")
    return clean(f"rank {rank}" if rank else otherwise)


def data(
    report: Report, *, overview: Span | None = None, fine: Span | None = None, advised: Advice | None = None
) -> dict[str, Any]:
    """What timeline.js draws. overview, fine: how finely, where not as usual; their times are not used."""
    tables = _Tables()
    whole = overview or Span()
    near = fine or Span()
    # All devices' charts together stay as large as those of a few.
    many = max(1, -(-len(report.devices) // FINE))

    def shared(finest: int) -> int:
        return min(finest, max(LEAST_INTERVALS, finest // many))

    spans = [Span(0, None, shared(whole.intervals), whole.entries // many, whole.blocks // many)]
    of_device: dict[str, list[int]] = {device.name: [0] for device in report.devices}
    training = around_steps(report)
    if training is not None:
        for numbers in of_device.values():
            numbers.append(len(spans))
        spans.append(Span(*training, shared(near.intervals), near.entries // many, near.blocks // many))
    for device in report.devices[:FINE]:
        stretch = around_peak(report, device, training)
        if stretch is not None:
            of_device[device.name].append(len(spans))
            spans.append(Span(*stretch, near.intervals, near.entries, near.blocks, device.name))
    charts = report.charts(spans) if report.devices else ()
    found = {(chart.span, chart.device): chart for chart in charts}
    leaks = [*report.leaks, *report.suspects]
    for number, leak in enumerate(report.leaks):
        for stack in _stacks_of(leak):
            tables.leaking.setdefault(tables.stack_class(stack), number)
    devices = []
    for device in report.devices:
        chosen = [found[number, device.name] for number in of_device[device.name] if (number, device.name) in found]
        devices.append(_device(report, device, [_chart(chart, tables) for chart in chosen]))
    listed = [_leak(leak, number < len(report.leaks), tables) for number, leak in enumerate(leaks)]
    for row, device in zip(devices, report.devices, strict=True):
        row["ooms"] = [
            {
                "time": oom.time_ns,
                "requested": oom.requested,
                "allocated": oom.allocated,
                "stack": tables.stack(oom.stack),
                "step": oom.step,
            }
            for oom in device.ooms
        ]
    return {
        "duration": report.duration_ns,
        "opening": list(training) if training is not None else None,
        "complete": report.complete,
        "caveats": warnings(views.caveats(report)),
        "compacted": _compacted(report),
        "counted": clean(counted_by(report.clock)) if report.clock.kind else "",
        "devices": devices,
        "resident": _columns(time=[p.time_ns for p in report.resident], bytes=[p.bytes for p in report.resident]),
        "host": _host(report),
        "leaks": listed,
        "advice": [] if advised is None else [_proposal(one, advised, tables) for one in advised.proposals],
        "adviceNote": "" if advised is None else clean(advised.note),
        "phases": list(PHASES),
        "stackedBy": _stacked_by(report),
        **tables.columns(),
    }


_CURVE = 2048  # points


def _host(report: Report) -> list[dict[str, Any]]:
    """Resident bytes of the processes below the recorded one, by role."""
    if report.host is None:
        return []
    made = []
    for role in dict.fromkeys(one.role for one in report.host.processes if one is not report.host.recorded):
        curve = report.host.curve(role)
        points = curve[:: 1 + len(curve) // _CURVE]
        made.append({"role": role, **_columns(time=[time for time, _ in points], bytes=[one for _, one in points])})
    return made


def _stacked_by(report: Report) -> str:
    """What tells most: modules where the line with most bytes drives a loop, else categories where any is known."""
    peak = max((device.peak for device in report.devices), key=lambda one: one.bytes, default=None)
    if peak is None or not peak.lines:
        return "line"
    if drives_loop(peak.lines[0], peak):
        return "module"
    return "category" if peak_views.knows_categories(peak.contributors) else "line"


def around_steps(report: Report) -> tuple[int, int] | None:
    """All steps and a little beside them, where they are a small part of the recording: imports often take longer."""
    if not report.steps:
        return None
    begin, end = min(step.begin_ns for step in report.steps), max(step.end_ns for step in report.steps)
    beside = (end - begin) // 20
    begin, end = max(0, begin - beside), min(report.duration_ns, end + beside)
    return (begin, end) if 0 < end - begin <= report.duration_ns // 2 else None


def around_peak(report: Report, device: Device, within: tuple[int, int] | None = None) -> tuple[int, int] | None:
    """What is drawn finely: the peak's step and those beside it; where no step has the peak, a part of the recording.

    None where that is more than half of what is drawn anyway: the recording, or `within` where it has the peak.
    """
    peak, end = device.peak, report.duration_ns
    steps = _steps_of(report, device.name)
    place = next((i for i, step in enumerate(steps) if peak.step is not None and step.index == peak.step), None)
    if place is not None:
        begin, last = steps[max(0, place - 1)].begin_ns, steps[min(len(steps) - 1, place + 1)].end_ns
    else:
        around = int(end * NEIGHBOUR)
        begin, last = max(0, peak.time_ns - around), min(end, peak.time_ns + around)
    begin, last = min(begin, peak.time_ns), max(last, min(end, peak.time_ns + 1))
    inside = within is not None and within[0] <= begin and last <= within[1]
    drawn = within[1] - within[0] if within is not None and inside else end
    return (begin, last) if 0 < last - begin <= drawn // 2 else None


def clean(text: str) -> str:
    """Text from a trace: on one line, printable, and not longer than anybody reads."""
    return shortened(text, LONGEST)


# -- what is referred to by number ---------------------------------------------------------------------------------


class _Tables:
    """Frames, stacks, groups and contributors, each once."""

    def __init__(self) -> None:
        self.leaking: dict[Hashable, int] = {}  # the class of a stack -> the verdict that it belongs to
        self._frames: dict[Frame, int] = {}
        self._stacks: dict[int, tuple[int, Stack]] = {}  # by id(): hashing long stacks takes time
        self._stack_rows: dict[tuple[int, ...], int] = {}
        self._classes: dict[int, tuple[Hashable, Stack]] = {}
        self._groups: dict[str, dict[Hashable, int]] = {name: {} for name in GROUPINGS}
        self._labels: dict[str, list[list[str]]] = {name: [] for name in GROUPINGS}
        self._contributors: dict[Hashable, int] = {}
        self._rows: list[list[Any]] = []

    def stack(self, stack: Stack) -> int:
        """-1: there is none."""
        if not stack:
            return -1
        known = self._stacks.get(id(stack))
        if known is None:
            row = tuple(self._frames.setdefault(frame, len(self._frames)) for frame in stack)
            known = self._stacks[id(stack)] = (self._stack_rows.setdefault(row, len(self._stack_rows)), stack)
        return known[0]

    def stack_class(self, stack: Stack) -> Hashable:
        """What stacks have in common that count as one for a leak: csrc/analysis/growth.h."""
        known = self._classes.get(id(stack))
        if known is None:
            key = tuple((frame.file, frame.function, frame.line) for frame in stack)
            known = self._classes[id(stack)] = (key, stack)
        return known[0]

    def contributor(self, one: Contributor) -> int:
        stacks = self.stack(one.stack), self.stack(one.origin)
        key = (*stacks, one.phase, one.operator, one.stack_lost, one.category, one.qualified, one.saved_by)
        number = self._contributors.get(key)
        if number is None:
            number = self._contributors[key] = len(self._rows)
            groups = [self._group(name, *group) for name, group in zip(GROUPINGS, _groups_of(one), strict=True)]
            leak = self.leaking.get(self.stack_class(one.stack), -1) if one.stack else -1
            self._rows.append([*stacks, clean(one.operator or ""), clean(one.saved_by or ""), leak, *groups])
        return number

    def group(self, grouping: str, frame: Frame | None) -> int:
        """Of a line; -1 where no contributor has it."""
        if frame is None:
            return -1
        return self._groups[grouping].get((frame.file, frame.line), -1)

    def _group(self, grouping: str, key: Hashable, describe: Callable[[], tuple[str, str]]) -> int:
        known = self._groups[grouping]
        if key not in known:
            known[key] = len(known)
            self._labels[grouping].append([clean(text) for text in describe()])
        return known[key]

    def columns(self) -> dict[str, Any]:
        files: dict[str, int] = {}
        frames = list(self._frames)
        names = ("stack", "origin", "operator", "savedBy", "leak", *GROUPINGS)
        return {
            "frames": _columns(
                file=[files.setdefault(clean(short_file(frame.file)), len(files)) for frame in frames],
                line=[frame.line for frame in frames],
                function=[clean(function(frame)) for frame in frames],
                source=[clean(frame.source) for frame in frames],
                module=[clean(frame.module or "") for frame in frames],
                library=[int(frame.is_library) for frame in frames],
            ),
            "files": list(files),
            "stacks": list(self._stack_rows),
            "contributors": {name: [row[i] for row in self._rows] for i, name in enumerate(names)},
            "groups": self._labels,
        }


_Group = tuple[Hashable, Callable[[], tuple[str, str]]]


def _groups_of(one: Contributor) -> tuple[_Group, ...]:
    """What a contributor is grouped under, for each of GROUPINGS: a key, and how it is called, with small print."""
    frame, path = one.frame, one.modules
    where = one.where if frame is None else ""
    below = one.library_line
    package = _package(below) if below is not None else where or "your code"
    line: _Group = (where, lambda: (where, ""))
    called = line
    if frame is not None:
        line = ((frame.file, frame.line), lambda: (frame.place, frame.source))
        called = ((frame.file, frame.function), lambda: (function(frame), short_file(frame.file)))
    name = one.qualified
    module: _Group = (path, lambda: (" › ".join(path[-2:]), " › ".join(path)) if path else (grouping.OUTSIDE, ""))
    if name is not None:
        module = (name, lambda: (name, name))
    return line, called, module, _named(one.category), _named(one.phase), _named(package)


def _named(text: str) -> _Group:
    return text, lambda: (text, "")


def _package(frame: Frame) -> str:
    """torch for torch/nn/modules/linear.py"""
    if not frame.is_library:
        return "your code"
    return short_file(frame.file).replace(os.sep, "/").split("/")[0].removesuffix(".py")


# -- columns -------------------------------------------------------------------------------------------------------


def _columns(**columns: Iterable[Any]) -> dict[str, list[Any]]:
    return {name: list(column) for name, column in columns.items()}


def _steps_up(values: Iterable[int]) -> list[int]:
    """The first value, then differences: short for what grows slowly."""
    rows = list(values)
    return [value - before for value, before in zip(rows, [0, *rows], strict=False)]


def _chart(chart: Chart, tables: _Tables) -> dict[str, Any]:
    at, rows, blocks = chart.intervals, chart.entries, chart.blocks
    numbers = [tables.contributor(one) for one in chart.contributors]
    return {
        "begin": chart.begin_ns,
        "end": chart.end_ns,
        "hidden": chart.hidden,
        "intervals": {
            "begin": _steps_up(at.begin_ns),
            "highTime": [moment - at.begin_ns[i] for i, moment in enumerate(at.high_ns)],
            "low": list(at.low),
            "high": list(at.high),
            "reserved": list(at.reserved),
            "allocated": list(at.allocated),
            "freed": list(at.freed),
            "phases": [list(column) for column in at.phases],
        },
        "contributors": numbers,
        "entries": {
            "contributor": _steps_up(rows.contributor),
            "interval": list(rows.interval),
            "high": list(rows.high),
            "end": list(rows.end),
            "allocated": list(rows.allocated),
            "freed": list(rows.freed),
        },
        "blocks": {
            "address": list(blocks.address),
            "bytes": list(blocks.bytes),
            "begin": list(blocks.begin_ns),
            "end": list(blocks.end_ns),
            "contributor": [numbers[one] for one in blocks.contributor],
            "step": list(blocks.step),
            "endStep": list(blocks.end_step),
        },
        "leastBlock": chart.least_block,
        "leastSurvivor": chart.least_survivor,
    }


def _device(report: Report, device: Device, charts: list[dict[str, Any]]) -> dict[str, Any]:
    steps = _steps_of(report, device.name)
    loops = list(dict.fromkeys(step.loop for step in steps))
    used = next((line.points for line in report.device_timelines if line.device == device.name), ())
    known = [point for point in used if point.used is not None]
    peak = device.peak
    return {
        "name": clean(device.name),
        "start": device.start,
        "end": device.end,
        "peak": {"bytes": peak.bytes, "time": peak.time_ns, "step": peak.step},
        "reservedPeak": device.reserved_peak,
        "charts": charts,
        "used": _columns(time=[p.time_ns for p in known], bytes=[p.used for p in known]),
        "loops": [clean(loop) for loop in loops],
        "steps": _columns(
            index=[step.index for step in steps],
            loop=[loops.index(step.loop) for step in steps],
            begin=_steps_up([step.begin_ns for step in steps]),
            length=[step.end_ns - step.begin_ns for step in steps],
            peak=[step.peak for step in steps],
        ),
    }


def _steps_of(report: Report, device: str) -> list[Step]:
    return [step for step in report.steps if step.device == device]


def _compacted(report: Report) -> dict[str, int] | None:
    """Where the trace has sums only. Its ends are those of steps; -1 where the trace does not say."""
    if report.compacted is None:
        return None
    begin, end = report.compacted.from_step, report.compacted.to_step
    times = {step.index: (step.begin_ns, step.end_ns) for step in report.steps}
    return {
        "begin": 0 if begin < 0 else times[begin][0] if begin in times else -1,
        "end": times[end][1] if end in times else -1,
        "events": report.compacted.events,
    }


def _stacks_of(leak: Leak) -> list[Stack]:
    own = [leak.stack, *(part.stack for part in leak.parts)] if leak.kind == "bytes" else []
    return [*(stack for stack in own if stack), *(stack for kept in leak.keeps for stack in _stacks_of(kept))]


def _leak(leak: Leak, verdict: bool, tables: _Tables) -> dict[str, Any]:
    line = tables.group("line", leak.frame)
    return {
        "verdict": verdict,
        "kind": leak.kind,
        "device": clean(leak.device),
        "bytes": leak.bytes,
        "alive": leak_views.alive(leak),
        "rate": leak.total_bytes_per_step or leak.bytes_per_step,
        "estimated": leak.bytes_estimated,
        "firstStep": leak.first_step,
        "lastStep": leak.last_step,
        "loop": clean(leak.loop),
        "where": clean(leak.where),
        "function": clean(function(leak.frame)),
        "source": clean(leak.frame.source) if leak.frame is not None else "",
        "reason": clean(leak.reason),
        "why": clean(leak_views.why(leak)),
        "line": line if line >= 0 else tables.group("line", leak.made_frame),
        "stack": tables.stack(leak.retained_at or leak.stack),
    }


def _proposal(one: Proposal, advised: Advice, tables: _Tables) -> dict[str, Any]:
    line = tables.group("line", one.frame)
    return {"device": clean(advised.device), "line": line, **_advice_row(one, advised)}


def _advice_row(one: Proposal, advised: Advice) -> dict[str, str]:
    return {
        "saves": advice_views.saving(one, advised.peak),
        "technique": one.technique,
        "where": "" if one.frame is None else clean(one.frame.place),
        "write": clean(one.write),
        "cost": clean(one.cost),
    }


# -- tables that need no script ------------------------------------------------------------------------------------


def _peak_table(device: Device) -> dict[str, Any]:
    peak = device.peak
    lines, others = first_lines(peak.lines, _ROWS)
    heading, kind = peak_views.kinds(peak)
    rows = [
        {
            "bytes": size(line.bytes),
            "exact": count(line.bytes),
            "share": share(line.bytes, peak.bytes),
            "blocks": count(line.count),
            "kind": kind(line),
            "where": clean(line.where),
            "function": clean(function(line.frame)),
            "source": clean(line.frame.source) if line.frame is not None else "",
            "parts": [clean(part) for part in under(line, peak)],
        }
        for line in lines
    ]
    left = peak.bytes - sum(line.bytes for line in lines)
    if left:
        words = f"({count(len(others))} more lines)" if others else "(without a line)"
        more = {"bytes": size(left), "exact": count(left), "share": share(left, peak.bytes), "where": words}
        rows.append({"blocks": "", "kind": "", "function": "", "source": "", "parts": [], **more})
    step = "" if peak.step is None else f" in step {peak.step},"
    return {
        "title": f"What the peak on {clean(device.name)} is made of",
        "caption": f"{size(peak.bytes)} ({count(peak.bytes)} bytes),{step} {duration(peak.time_ns)} after the start",
        "kind": heading,
        "rows": rows,
        "total": count(peak.bytes),
    }


def _advice_table(advised: Advice) -> dict[str, Any]:
    step = "" if advised.step is None else f" in step {advised.step}"
    note = f"; {clean(advised.note)}" if advised.note else ""
    return {
        "title": f"What would lower the peak on {clean(advised.device)}",
        "caption": f"{size(advised.peak)}{step}{note}. Predicted, each alone: savings do not add up.",
        "rows": [_advice_row(one, advised) for one in advised.proposals],
    }


def _reserved_table(one: Fragmentation) -> dict[str, Any]:
    """The partly used segments of a device at a moment, with their holes to scale."""
    return {
        "title": f"{clean(one.device)} {fragmentation_views.MOMENTS[one.what]}: what PyTorch's allocator holds",
        "caption": f"{size(one.unused)} of {size(one.reserved)} reserved are in no block, {duration(one.time_ns)} "
        f"after the start. Of {plural(one.segments_total, 'segment')} the partly used with the most unused bytes:",
        "rows": [_segment_row(segment) for segment in one.segments],
    }


def _segment_row(segment: PinnedSegment) -> dict[str, Any]:
    pin = max(segment.pins, key=lambda pin: pin.bytes, default=None)
    parts = segment.ranges if segment.expandable else (segment,)
    whole = parts[-1].address + parts[-1].size - segment.address if parts else 1
    return {
        "address": hex(segment.address),
        "size": size(segment.size),
        "unused": size(segment.size - segment.allocated),
        "largest": size(segment.largest_free),
        "gaps": f"{count(segment.ranges_total - 1)}, {size(segment.unmapped)}" if segment.unmapped else "",
        "where": "(no block)" if pin is None else clean(ledger_views.where(pin.frame, pin.stack_lost)),
        "parts": [
            {
                "left": f"{100 * (part.address - segment.address) / whole:.2f}",
                "width": f"{100 * part.size / whole:.2f}",
                "used": f"{100 * part.allocated / part.size:.0f}",
                "says": f"{size(part.allocated)} of {size(part.size)} in blocks",
            }
            for part in parts
        ],
    }


def _steps_table(report: Report, device: Device) -> dict[str, Any]:
    steps = _steps_of(report, device.name)
    rows: list[dict[str, str]] = []
    before = -1
    for place in _shown_steps(steps, device.peak.step):
        if left := place - before - 1:
            most = max(steps[before + 1 : place], key=lambda step: step.peak)
            rows.append({"left": f"{plural(left, 'more step')}, of at most {size(most.peak)}: cuptimem steps"})
        rows.append(_step_row(steps[place]))
        before = place
    return {"device": clean(device.name), "count": plural(len(steps), "step"), "rows": rows}


def _shown_steps(steps: Sequence[Step], peak: int | None) -> list[int]:
    """Places of the first, the last, and those about the peak's; of a gap of one that one, too."""
    last = len(steps) - 1
    places = {*range(_STEPS), *range(last - _STEPS + 1, last + 1)}
    for place, step in enumerate(steps):
        if step.index == peak:
            places.update(range(place - 1, place + 2))
    return [place for place in range(last + 1) if place in places or {place - 1, place + 1} <= places]


def _step_row(step: Step) -> dict[str, str]:
    return {
        "index": str(step.index),
        "loop": clean(step.loop),
        "begin": duration(step.begin_ns),
        "start": size(step.start),
        "peak": size(step.peak),
        "end": size(step.end),
        "change": signed(step.end - step.start),
        "allocated": size(step.allocated),
        "freed": size(step.freed),
    }


def _leak_row(leak: Leak) -> dict[str, str]:
    about = "about " if leak.bytes_estimated else ""
    return {
        "rate": f"{about}+{size(round(leak.total_bytes_per_step or leak.bytes_per_step))} a step",
        "alive": leak_views.alive(leak),
        "device": "graph nodes" if leak.kind == "nodes" else clean(leak.device),
        "where": clean(leak.where),
        "function": clean(function(leak.frame)),
        "source": clean(leak.frame.source) if leak.frame is not None else "",
        "steps": f"{count(leak.first_step)} to {count(leak.last_step)}",
        "why": clean(leak_views.why(leak)),
    }
