"""What one rank's recording says, in a few kilobytes whatever the size of the trace: this is what travels."""

import os
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cuptimem.report.brief import Brief
from cuptimem.report.load import analyze
from cuptimem.report.model import Contents, Line, Report, Step
from cuptimem.report.parts import drives_loop, parts_of
from cuptimem.report.process import HOST
from cuptimem.words import size

_LINES = 64  # of a moment, the largest; the others are one sum
_INPUTS = ("input", "loaded")
_CODE = 160  # characters of a line's code


@dataclass(frozen=True, slots=True, repr=False)
class Held(Brief):
    """What a device of a rank held at one moment. Sums of bytes by name; `others` is what `lines` left out."""

    bytes: int
    step: int | None
    loop: str  # of that step
    categories: Mapping[str, int]
    lines: Mapping[str, int]  # by line of the user's; of one that only drives a library's loop, by module below it
    others: int
    inputs: Mapping[str, int]  # by line: bytes of batches and of what was loaded
    code: Mapping[str, str]  # of the lines: what stands there

    def _summary(self) -> str:
        return f"{size(self.bytes)} in step {self.step}, {', '.join(self.categories)}"


@dataclass(frozen=True, slots=True, repr=False)
class RankDevice(Brief):
    """One device of a rank."""

    name: str
    peak: Held
    end: int
    usual: int | None  # the median peak of the steps of the peak's loop; None: the peak lies in no step
    reserved: int | None  # by the allocator, at most; None: it does not say
    used: int | None  # of the device, by everything, at most; None: no driver level

    def _summary(self) -> str:
        return f"{self.name}: {size(self.peak.bytes)}"


@dataclass(frozen=True, slots=True, repr=False)
class Growth(Brief):
    """A leak of a rank."""

    line: str
    loop: str
    bytes_per_step: float
    holder: str  # "" where none is named
    decided: bool  # False: it may be one, the recording cannot tell

    def _summary(self) -> str:
        return f"{size(round(self.bytes_per_step))} a step at {self.line}"


@dataclass(frozen=True, slots=True, repr=False)
class RankSummary(Brief):
    """One rank's recording."""

    path: str
    rank: int | None  # None: it was recorded outside of a launcher
    world: int | None
    host: str
    title: str
    started: int  # nanoseconds since 1970
    state: str  # Report.state
    exception: str  # which ended the program; "" if none did
    steps: Mapping[str, int]  # by loop
    devices: tuple[RankDevice, ...]  # accelerators first, the fullest first
    growths: tuple[Growth, ...]
    resident: int | None  # bytes of the whole process, at most
    refused: int  # requests for memory

    def _summary(self) -> str:
        return f"rank {self.rank}: {', '.join(one._summary() for one in self.devices)}"

    @property
    def own(self) -> RankDevice | None:
        """The device it works on: its fullest accelerator, else the CPU. None: nothing was allocated."""
        return next((one for one in self.devices if one.name not in HOST), next(iter(self.devices), None))


def summarize(path: str, code: Iterable[str] | None = None) -> RankSummary:
    """Reads a trace. Raises Error."""
    return of_report(analyze(path, code=code), path)


def held_at(report: Report, step: int, device: str) -> Held | None:
    """What a device held at the peak of a step; the file is read again. None: nothing of the device is known of it."""
    if not any(row.index == step and row.device == device for row in report.steps):
        return None
    again = report.at_step(step)
    return _held(again, again.contents("peak", device))


def of_report(report: Report, path: str, rank: int | None = None, world: int | None = None) -> RankSummary:
    """rank, world: where they are known otherwise than from the recording."""
    known = report.environment
    return RankSummary(
        path,
        _number(known.get("rank", "")) if rank is None else rank,
        _number(known.get("world_size", "")) if world is None else world,
        known.get("host", ""),
        os.path.basename(report.title),
        report.start_realtime_ns,
        report.state,
        known.get("exception", ""),
        report.loops,
        tuple(_device(report, peak) for peak in report.peaks if peak.bytes > 0),
        tuple(_growths(report)),
        max((point.bytes for point in report.resident), default=None),
        sum(device.refused for device in report.devices),
    )


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


def _device(report: Report, peak: Contents) -> RankDevice:
    device = report.device(peak.device)
    held = _held(report, peak)
    peaks = [row.peak for row in report.steps.ended if row.device == device.name and row.loop == held.loop]
    used = [ledger.used for ledger in report.ledgers if ledger.device == device.name and ledger.used is not None]
    return RankDevice(
        device.name,
        held,
        device.end,
        statistics.median_low(peaks) if peaks and held.step is not None else None,
        device.reserved_peak,
        max(used, default=None),
    )


def _held(report: Report, contents: Contents) -> Held:
    step = next((row for row in report.steps if row.index == contents.step), None)
    categories: dict[str, int] = {}
    for one in contents.contributors:
        categories[one.category] = categories.get(one.category, 0) + one.bytes
    lines: dict[str, int] = {}
    code: dict[str, str] = {}
    inputs: dict[str, int] = {}
    for line in contents.lines:
        if (batch := sum(one.bytes for one in line.contributors if one.category in _INPUTS)) and len(inputs) < _LINES:
            inputs[line.where] = batch
        for name, bytes in _rows(line, contents):
            lines[name] = lines.get(name, 0) + bytes
            if line.frame is not None and line.frame.source:
                code[name] = line.frame.source.strip()[:_CODE]
    largest = sorted(lines, key=lambda name: (-lines[name], name))[:_LINES]
    return Held(
        contents.bytes,
        contents.step,
        step.loop if isinstance(step, Step) else "",
        dict(sorted(categories.items(), key=lambda item: (-item[1], item[0]))),
        {name: lines[name] for name in largest},
        contents.bytes - sum(lines[name] for name in largest),
        inputs,
        {name: code[name] for name in largest if name in code},
    )


def _rows(line: Line, contents: Contents) -> list[tuple[str, int]]:
    if drives_loop(line, contents) and (parts := parts_of(line, by_module=True)):
        return [(f"{part.name} ({line.where})", part.bytes) for part in parts]
    return [(line.where, line.bytes)]  # the same on every machine: two parts of the file's path


def _growths(report: Report) -> Iterable[Growth]:
    for leak in (*report.leaks, *report.undecided):
        named = next((holder.path for holder in leak.holders if holder.is_named), "")
        yield Growth(leak.where, leak.loop, leak.total_bytes_per_step, named, not leak.reason)
