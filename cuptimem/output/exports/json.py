"""One JSON object a line: the recording, its steps, every allocation, stacks before the first line that has them."""

import json
from typing import Any

import cuptimem
from cuptimem.output.exports import Options, Written, events
from cuptimem.output.exports.events import Events
from cuptimem.output.exports.rows import NUMBERS, WHENS, Layout, Rows
from cuptimem.output.text import words

SCHEMA = 1


_encode = json.JSONEncoder(separators=(",", ":")).encode


def write(trace: str, path: str, options: Options) -> Written:
    with events.target(path, options) as file:
        source = Events(trace, options)
        report, notes = source.report, events.caveats(source.report)
        devices = [d for d in report.devices if source.device in (None, d.name)]
        recording = {
            "schema": SCHEMA,
            "exporter": f"cuptimem {cuptimem.__version__}",
            "program": events.title(report),
            "state": report.state,
            "missing": notes,
            "start_realtime_ns": report.start_realtime_ns,
            "duration_ns": report.duration_ns,
        }
        file.write(_line("recording", recording))
        for d in devices:
            totals = {"start": d.start, "peak": d.peak.bytes, "end": d.end, "allocated": d.allocated, "freed": d.freed}
            file.write(_line("device", {"device": events.text(d.name), **totals}))
        names = {d.name for d in devices}
        for step in report.steps.to_dicts():
            if step["device"] in names:
                file.write(_line("step", step | {"loop": events.exact(step["loop"])}))
        rows = Rows(source, _layout(source), events.exact)
        for piece in rows:
            file.write(piece)
    return Written(
        path, events.size(path), words.plural(rows.count, "allocation"), "jq, pandas.read_json(lines=True)", notes
    )


def _line(kind: str, fields: dict[str, Any]) -> bytes:
    return _encode({"kind": kind, **fields}).encode() + b"\n"


def _layout(source: Events) -> Layout:
    def stacks(numbers: list[int]) -> bytes:
        return b"".join(_line("stack", {"id": number, "frames": _frames(source, number)}) for number in numbers)

    return Layout(
        head=lambda device: _members({"kind": "allocation", "device": device}) + _key("bytes"),
        about=lambda cells: b"," + _members(cells) + _key("thread"),
        stacks=stacks,
        gaps=tuple(map(_key, NUMBERS[1:])),
        none=b"null",
        ends=tuple(b"," + _members({"when": when}) + b"}\n" for when in WHENS),
    )


def _members(values: dict[str, Any]) -> bytes:
    """Of an object: with its begin where it has a kind."""
    text = _encode(values).encode()
    return text[:-1] if "kind" in values else text[1:-1]


def _key(name: str) -> bytes:
    return f',"{name}":'.encode()


def _frames(source: Events, number: int) -> list[dict[str, Any]]:
    return [
        {"file": events.exact(f.file), "line": f.line if f.line >= 0 else None, "function": events.exact(f.function)}
        for f in source.stack(number)
    ]
