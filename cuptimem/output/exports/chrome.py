"""Trace event JSON, for Perfetto, chrome://tracing and readers of torch.profiler's traces.

The format is Google's "Trace Event Format": counters (C), slices (X), asynchronous slices (b, e), instants (i), names
(M). Times are microseconds since the window began. What it has of a large recording is bounded: curves as the lowest
and the highest value of an interval, blocks and [memory] events from a size on that the file says.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import cuptimem
from cuptimem.output.exports import Options, Written, events
from cuptimem.output.exports.events import BLOCKS, Block, Events
from cuptimem.output.exports.stacked import label
from cuptimem.output.text import words
from cuptimem.report.model import Report

_BLOCKS_MOST = 50_000  # drawn where no size was asked for
_INTERVALS = 10_000  # of a curve
_FRAMES_SHOWN = 16
_LAUNCHES_KEPT = 1 << 17  # that wait for the record of their work
_STEPS_TRACK, _STREAMS_TRACK = 1, 1000
_DEVICE_TYPES = {"cpu": 0, "cuda": 1, "hip": 6, "xpu": 12}  # c10::DeviceType


class _Writer:
    """The list of events, one a line. later_us: by how much each is later than in its recording."""

    def __init__(self, file: IO[bytes], later_us: float = 0) -> None:
        self._file = file
        self._later_us = later_us
        self._encode = json.JSONEncoder(separators=(",", ":")).encode
        self.count = 0

    def add(self, event: dict[str, Any]) -> None:
        if self._later_us and event["ph"] != "M":
            event["ts"] += self._later_us
        self._file.write((",\n" if self.count else "").encode() + self._encode(event).encode())
        self.count += 1


class _Curve:
    """A counter whose every interval keeps its lowest, its highest and its last value, at their times."""

    def __init__(self, out: _Writer, pid: int, name: str, interval_ns: int) -> None:
        self._out, self._pid, self._name = out, pid, name
        self._interval = max(interval_ns, 1)
        self._at = -1
        self._kept: list[tuple[int, int]] = []  # of this interval: low, high, last

    def add(self, time_ns: int, value: int) -> None:
        at = time_ns // self._interval
        if at > self._at:
            self.flush()
            self._at = at
            self._kept = [(time_ns, value)] * 3
            return
        low, high, _ = self._kept
        self._kept = [
            (time_ns, value) if value < low[1] else low,
            (time_ns, value) if value > high[1] else high,
            (time_ns, value),
        ]

    def flush(self) -> None:
        for time_ns, value in sorted(dict.fromkeys(self._kept), key=lambda point: point[0]):
            self._out.add(
                {"ph": "C", "pid": self._pid, "name": self._name, "ts": _us(time_ns), "args": {"bytes": value}}
            )
        self._kept = []


def _us(time_ns: int) -> float:
    return time_ns / 1000


def _device_numbers(device: str) -> tuple[int, int]:
    """Type and index as PyTorch counts them; -1: there is only one, or none."""
    kind, _, index = device.partition(":")
    return _DEVICE_TYPES.get(kind, -1), int(index) if index.isdecimal() else -1


@dataclass(frozen=True, slots=True)
class Place:
    """Of one recording in a file of several: its label, its process's number, and what keeps its tracks apart."""

    label: str
    pid: int
    first_block: int
    later_ns: int


class _Export:
    def __init__(self, source: Events, out: _Writer, least: int, place: Place | None) -> None:
        self.source, self.out, self.least = source, out, least
        self.pid = pid_of(source.report) if place is None else place.pid
        self.label = "" if place is None else f"{place.label}: "
        self.interval = source.report.duration_ns // _INTERVALS
        self.curves: dict[str, _Curve] = {}
        self.live: dict[str, int] = {}
        self.reserved: dict[str, int] = {}
        self.open: dict[tuple[str, int], tuple[int, Block]] = {}  # what is drawn and alive
        self.drawn = self.first_block = 0 if place is None else place.first_block
        self.step: int | None = None
        self.streams: dict[int, tuple[str, int]] = {}  # correlation -> device, stream
        self.tracks: dict[tuple[str, int], int] = {}
        self.peaks = {peak.device: (peak.bytes, peak.time_ns) for peak in source.report.peaks}
        self.peaks_said: set[str] = set()
        self.stacks: dict[int, str] = {}

    def run(self) -> None:
        self._names()
        for event in self.source:
            kind = event[0]
            if kind in BLOCKS:
                self._block(Block._make(event))
            else:
                handler = getattr(self, f"_on_{kind}", None)
                if handler is not None:
                    handler(*event[1:])
        end = self.source.report.duration_ns
        for number, block in self.open.values():
            self._slice("e", end, number, block, {"alive at the end": True, "size": words.size(block.bytes)})
        for curve in self.curves.values():
            curve.flush()

    def _names(self) -> None:
        def name(what: str, tid: int, value: dict[str, Any]) -> None:
            self.out.add({"ph": "M", "pid": self.pid, "tid": tid, "name": what, "ts": 0, "args": value})

        name("process_name", 0, {"name": f"{self.label}{events.title(self.source.report)} (memory by cuptimem)"})
        name("process_labels", 0, {"labels": ", ".join(map(events.text, self.peaks)) or "no device"})
        if self.source.steps:
            name("thread_name", _STEPS_TRACK, {"name": "steps"})
            name("thread_sort_index", _STEPS_TRACK, {"sort_index": -1})
        for index, loop, begin, end in self.source.steps:
            self.out.add(
                {
                    "ph": "X",
                    "pid": self.pid,
                    "tid": _STEPS_TRACK,
                    "cat": "step",
                    "name": f"{events.text(loop)} {index}",
                    "ts": _us(begin),
                    "dur": _us(end - begin),
                    "args": {"step": index, "loop": events.text(loop)},
                }
            )

    def _counter(self, name: str, time_ns: int, value: int) -> None:
        curve = self.curves.get(name)
        if curve is None:
            curve = self.curves[name] = _Curve(self.out, self.pid, name, self.interval)
        curve.add(time_ns, value)

    def _block(self, block: Block) -> None:
        sign = -1 if block.kind == "free" else 1
        live = self.live[block.device] = self.live.get(block.device, 0) + sign * block.bytes
        if block.kind != "start" or block.time_ns == 0:
            self._counter(f"allocated {block.device}", block.time_ns, live)
        is_peak = (live, block.time_ns) == self.peaks.get(block.device) and block.device not in self.peaks_said
        if is_peak:
            self.peaks_said.add(block.device)
        if block.bytes >= self.least or is_peak:
            self._instant(block, sign * block.bytes, live)
        key = (block.device, block.address)
        if block.kind == "free":
            drawn = self.open.pop(key, None)
            if drawn is not None:
                self._slice("e", block.time_ns, *drawn, {"freed in step": self.step})
        elif block.bytes >= self.least:
            self.drawn += 1
            self.open[key] = (self.drawn, block)
            self._slice("b", block.time_ns, self.drawn, block, self._about(block))

    def _about(self, block: Block) -> dict[str, Any]:
        about: dict[str, Any] = {
            "size": words.size(block.bytes),
            "bytes": block.bytes,
            "line": self.source.where(block),
            "phase": block.phase,
            "category": block.category,
            "step": block.step,
            "address": hex(block.address),
            "thread": block.thread,
            "stack": self._stack(block.stack),
        }
        for key, name in (("operator", block.operator), ("module", block.module), ("saved by", block.saved_by)):
            if name:
                about[key] = events.text(name)
        return about

    def _stack(self, number: int) -> str:
        known = self.stacks.get(number)
        if known is None:
            frames = self.source.stack(number)
            lines = [label(frame) for frame in frames[:_FRAMES_SHOWN]]
            if len(frames) > _FRAMES_SHOWN:
                lines.append(f"({len(frames) - _FRAMES_SHOWN} more)")
            known = self.stacks[number] = "\n".join(lines)
        return known

    def _slice(self, ph: str, time_ns: int, number: int, block: Block, about: dict[str, Any]) -> None:
        self.out.add(
            {
                "ph": ph,
                "pid": self.pid,
                "tid": 0,
                "cat": f"blocks {block.device}",
                "id": number,
                "name": f"{block.device} {self.source.where(block)}",
                "ts": _us(time_ns),
                "args": about,
            }
        )

    def _instant(self, block: Block, size: int, live: int) -> None:
        kind, index = _device_numbers(block.device)
        self.out.add(
            {
                "ph": "i",
                "cat": "cpu_instant_event",
                "s": "t",
                "name": "[memory]",
                "pid": self.pid,
                "tid": block.thread,
                "ts": _us(block.time_ns),
                "args": {
                    "Total Reserved": self.reserved.get(block.device, 0),
                    "Total Allocated": live,
                    "Bytes": size,
                    "Device Id": index,
                    "Device Type": kind,
                    "Addr": block.address,
                },
            }
        )

    def _on_reserved(self, time_ns: int, device: str, size: int) -> None:
        self.reserved[device] = size
        self._counter(f"reserved {device}", time_ns, size)

    def _on_resident(self, time_ns: int, size: int) -> None:
        self._counter("resident memory", time_ns, size)

    def _on_step(self, time_ns: int, ended: int | None, begun: int | None) -> None:
        self.step = begun

    def _on_oom(self, time_ns: int, device: str, requested: int, allocated: int, stack: int, step: int | None) -> None:
        self.out.add(
            {
                "ph": "i",
                "s": "p",
                "cat": "oom",
                "pid": self.pid,
                "tid": 0,
                "name": f"{device} out of memory",
                "ts": _us(time_ns),
                "args": {"requested": requested, "allocated": allocated, "step": step, "stack": self._stack(stack)},
            }
        )

    def _on_launch(
        self, time_ns: int, device: str, correlation: int, stream: int, what: str, stack: int, thread: int
    ) -> None:
        while len(self.streams) >= _LAUNCHES_KEPT:
            del self.streams[next(iter(self.streams))]
        self.streams[correlation] = (device, stream)

    def _on_work(self, time_ns: int, device: str, duration: int, correlation: int, what: str, name: str | None) -> None:
        stream = self.streams.pop(correlation, (device, 0))[1]
        track = self.tracks.get((device, stream))
        if track is None:
            track = self.tracks[device, stream] = _STREAMS_TRACK + len(self.tracks)
            about = {"name": f"{device} stream {stream:#x}" if stream else f"{device} default stream"}
            self.out.add({"ph": "M", "pid": self.pid, "tid": track, "name": "thread_name", "ts": 0, "args": about})
        self.out.add(
            {
                "ph": "X",
                "pid": self.pid,
                "tid": track,
                "cat": what,
                "name": events.text(name) or what,
                "ts": _us(time_ns),
                "dur": _us(duration),
                "args": {"correlation": correlation},
            }
        )


def usable_least(sizes: Iterator[int], most: int = _BLOCKS_MOST) -> int:
    """The power of two from which on there are at most so many blocks; 0: of all sizes."""
    buckets = [0] * 65
    for size in sizes:
        buckets[min(size.bit_length(), 64)] += 1
    count = 0
    for bits in range(64, -1, -1):
        count += buckets[bits]
        if count > most:
            return 1 << bits
    return 0


def pid_of(report: Report) -> int:
    pid = report.environment.get("pid", "")
    return int(pid) if pid.isdecimal() and len(pid) < 10 else 1


def write(trace: str, path: str, options: Options) -> Written:
    events.refuse(path, options)
    source = Events(trace, options)
    with events.target(path, options) as file:
        count, drawn, notes = write_events(file, source, options)
    return Written(
        path,
        events.size(path),
        f"{words.plural(count, 'event')}, {words.plural(drawn, 'block')} drawn",
        "https://ui.perfetto.dev (open trace file) or chrome://tracing",
        notes,
    )


def write_events(
    file: IO[bytes], source: Events, options: Options, place: Place | None = None
) -> tuple[int, int, tuple[str, ...]]:
    """Events, blocks drawn, and what is not in it."""
    if options.least is not None:
        least = options.least
    elif source.report.allocations <= _BLOCKS_MOST:
        least = 0
    else:
        least = usable_least(event[4] for event in source if event[0] in ("start", "alloc"))
    notes = list(events.caveats(source.report))
    if least > 0:
        notes.insert(0, f"blocks below {words.size(least)} are in the counters only (--least changes that)")
    head = {
        "schemaVersion": 1,
        "displayTimeUnit": "ms",
        "deviceProperties": [],
        "baseTimeNanoseconds": source.report.start_realtime_ns,
        "otherData": {
            "exporter": f"cuptimem {cuptimem.__version__}",
            "state": source.report.state,
            "smallest block drawn, bytes": least,
            "missing": notes,
        },
    }
    file.write(json.dumps(head)[:-1].encode() + b',"traceEvents":[\n')
    export = _Export(source, _Writer(file, 0 if place is None else place.later_ns / 1000), least, place)
    export.run()
    file.write(b"\n]}\n")
    return export.out.count, export.drawn - export.first_block, tuple(notes)
