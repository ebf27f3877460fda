"""Firefox Profiler's processed profile: a thread per device, with every allocation and free as nativeAllocations.

An allocation has its bytes as weight, a free the same bytes negative, and both the address: so the profiler finds what
was retained in the range that is shown. The format is that of version 48 (docs-developer/CHANGELOG-formats.md of
firefox-devtools/profiler), which the profiler upgrades. Columns of many rows go through temporary files.
"""

import json
import tempfile
from typing import IO, Any

import cuptimem
from cuptimem.output.exports import Options, Written, events
from cuptimem.output.exports.events import BLOCKS, Block, Events
from cuptimem.output.exports.spool import spool_folder
from cuptimem.output.exports.stacked import operator_text
from cuptimem.output.text import words
from cuptimem.report.stacks import Frame

PROCESSED, GECKO = 48, 29  # versions of the formats
_COLUMNS = ("time", "weight", "stack", "memoryAddress", "threadId")
_FLUSH = 1 << 16  # characters of a column
_COPY = 1 << 20
_INTERVAL = 1  # the phase of a marker with a begin and an end
_encode = json.JSONEncoder(separators=(",", ":")).encode


class _Column:
    """Numbers with commas, in a temporary file."""

    def __init__(self, folder: str) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (close() does)
        self._pieces: list[str] = []
        self._size = 0

    def add(self, text: str) -> None:
        self._pieces.append(text)
        self._size += len(text) + 1
        if self._size > _FLUSH:
            self._flush()
            self._pieces = [""]  # the next one begins with a comma

    def _flush(self) -> None:
        self._file.write(",".join(self._pieces).encode())
        self._pieces, self._size = [], 0

    def copy(self, file: IO[bytes]) -> None:
        self._flush()
        self._file.seek(0)
        while data := self._file.read(_COPY):
            file.write(data)

    def close(self) -> None:
        self._file.close()


class _Device:
    """The tables of a device's thread."""

    def __init__(self, folder: str) -> None:
        self.columns = {name: _Column(folder) for name in _COLUMNS}
        self.rows = 0
        self._strings: dict[str, int] = {}
        self._functions: dict[tuple[str, str], int] = {}
        self._frames: dict[tuple[int, int, int], int] = {}
        self._nodes: dict[tuple[int | None, int], int] = {}
        self._stacks: dict[Any, int] = {}

    def string(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings))

    def frame(self, frame: Frame | str) -> int:
        if isinstance(frame, str) or frame.truncated:
            function, line, column = (frame if isinstance(frame, str) else "(deeper frames)", ""), 0, 0
        else:
            function = (events.text(frame.function), events.text(frame.file))
            line, column = max(frame.line, 0), frame.column + 1
        number = self._functions.setdefault(function, len(self._functions))
        return self._frames.setdefault((number, line, column), len(self._frames))

    def stack(self, source: Events, block: Block) -> int:
        key = (block.stack, block.operator, block.phase, source.where(block))
        if key not in self._stacks:
            frames: list[Frame | str] = [*reversed(source.stack(block.stack))] or [source.where(block)]
            if block.operator:
                frames.append(operator_text(block.operator, block.phase))
            node: int | None = None
            for frame in frames:
                node = self._nodes.setdefault((node, self.frame(frame)), len(self._nodes))
            assert node is not None
            self._stacks[key] = node
        return self._stacks[key]

    def add(self, source: Events, block: Block) -> None:
        is_free = block.kind == "free"
        # Where a block was freed is not recorded.
        stack = "null" if is_free else str(self.stack(source, block))
        row = (_ms(block.time_ns), -block.bytes if is_free else block.bytes, stack, block.address, block.thread)
        for column, value in zip(self.columns.values(), row, strict=True):
            column.add(str(value))
        self.rows += 1

    def tables(self) -> dict[str, Any]:
        """Without the allocations. Strings come last, for the others add to them."""
        functions, frames, nodes = self._functions, self._frames, self._nodes
        none: list[None] = [None] * len(functions)
        made = {
            "funcTable": {
                "name": [self.string(name) for name, _ in functions],
                "isJS": [False] * len(functions),
                "relevantForJS": [False] * len(functions),
                "resource": [-1] * len(functions),
                "fileName": [self.string(file) if file else None for _, file in functions],
                "lineNumber": none,
                "columnNumber": none,
                "length": len(functions),
            },
            "frameTable": {
                "address": [-1] * len(frames),
                "inlineDepth": [0] * len(frames),
                "category": [0] * len(frames),
                "subcategory": [0] * len(frames),
                "func": [function for function, _, _ in frames],
                "nativeSymbol": [None] * len(frames),
                "innerWindowID": [0] * len(frames),
                "implementation": [None] * len(frames),
                "line": [line or None for _, line, _ in frames],
                "column": [column or None for _, _, column in frames],
                "length": len(frames),
            },
            "stackTable": {
                "frame": [frame for _, frame in nodes],
                "prefix": [prefix for prefix, _ in nodes],
                "category": [0] * len(nodes),
                "subcategory": [0] * len(nodes),
                "length": len(nodes),
            },
            "resourceTable": {"lib": [], "name": [], "host": [], "type": [], "length": 0},
            "nativeSymbols": {"libIndex": [], "address": [], "name": [], "functionSize": [], "length": 0},
        }
        return {**made, "stringArray": list(self._strings)}

    def close(self) -> None:
        for column in self.columns.values():
            column.close()


def _ms(time_ns: int) -> float:
    return time_ns / 1e6


def _markers(device: _Device, source: Events) -> dict[str, Any]:
    """The steps."""
    steps = source.steps
    return {
        "data": [None] * len(steps),
        "name": [device.string(f"{events.text(loop)} {index}") for index, loop, _, _ in steps],
        "startTime": [_ms(begin) for _, _, begin, _ in steps],
        "endTime": [_ms(end) for _, _, _, end in steps],
        "phase": [_INTERVAL] * len(steps),
        "category": [0] * len(steps),
        "length": len(steps),
    }


def _meta(source: Events, notes: tuple[str, ...]) -> dict[str, Any]:
    report = source.report
    return {
        "interval": 1,
        "startTime": report.start_realtime_ns / 1e6,
        "processType": 0,
        "categories": [{"name": "Other", "color": "grey", "subcategories": ["Other"]}],
        "product": events.title(report),
        "importedFrom": f"cuptimem {cuptimem.__version__}",
        "stackwalk": 0,
        "version": GECKO,
        "preprocessedProfileVersion": PROCESSED,
        "symbolicated": True,
        "markerSchema": [],
        "usesOnlyOneStackType": True,
        "sourceCodeIsNotOnSearchfox": True,
        "misc": "; ".join(notes),
    }


def _thread(name: str, number: int, device: _Device, source: Events) -> dict[str, Any]:
    markers = _markers(device, source)
    return {
        "processType": "default",
        "processStartupTime": 0,
        "processShutdownTime": None,
        "registerTime": 0,
        "unregisterTime": None,
        "pausedRanges": [],
        "name": events.text(name),
        "isMainThread": True,
        "pid": "1",
        "tid": number + 1,
        "samples": {"weightType": "samples", "weight": None, "eventDelay": [], "stack": [], "time": [], "length": 0},
        "markers": markers,
        **device.tables(),
    }


def _write_thread(file: IO[bytes], thread: dict[str, Any], device: _Device) -> None:
    file.write(_encode(thread)[:-1].encode() + b',"nativeAllocations":{"weightType":"bytes"')
    for name, column in device.columns.items():
        file.write(f',"{name}":['.encode())
        column.copy(file)
        file.write(b"]")
    file.write(f',"length":{device.rows}}}}}'.encode())


def write(trace: str, path: str, options: Options) -> Written:
    devices: dict[str, _Device] = {}
    folder = spool_folder(path)
    with events.target(path, options) as file:
        source = Events(trace, options)
        try:
            for event in source:
                if event[0] in BLOCKS:
                    block = Block._make(event)
                    if block.device not in devices:
                        devices[block.device] = _Device(folder)
                    devices[block.device].add(source, block)
            notes = events.caveats(source.report)
            if not devices:  # the profiler opens no profile without a thread
                devices["no allocations"] = _Device(folder)
            file.write(b'{"meta":' + _encode(_meta(source, notes)).encode() + b',"libs":[],"threads":[')
            for number, (name, device) in enumerate(devices.items()):
                file.write(b"," if number else b"")
                _write_thread(file, _thread(name, number, device, source), device)
            file.write(b"]}")
        finally:
            for device in devices.values():
                device.close()
    rows = sum(device.rows for device in devices.values())
    opens = "https://profiler.firefox.com (drop it there; choose Retained Memory in the call tree)"
    return Written(path, events.size(path), words.plural(rows, "event"), opens, notes)
