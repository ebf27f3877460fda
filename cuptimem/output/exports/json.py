"""One JSON object a line: the recording, its steps, every allocation, stacks before the first line that has them."""

import json
from typing import Any

import cuptimem
from cuptimem.output.exports import Options, Written, events
from cuptimem.output.exports.events import Events
from cuptimem.output.exports.rows import Rows
from cuptimem.output.text import words

SCHEMA = 1


def write(trace: str, path: str, options: Options) -> Written:
    events.refuse(path, options)
    source = Events(trace, options)
    report, notes = source.report, events.caveats(source.report)
    encode = json.JSONEncoder(separators=(",", ":")).encode
    devices = [d for d in report.devices if source.device in (None, d.name)]
    count = 0
    with events.target(path, options) as file:

        def line(kind: str, fields: dict[str, Any]) -> None:
            file.write(encode({"kind": kind, **fields}).encode() + b"\n")

        line(
            "recording",
            {
                "schema": SCHEMA,
                "exporter": f"cuptimem {cuptimem.__version__}",
                "program": events.title(report),
                "state": report.state,
                "missing": notes,
                "start_realtime_ns": report.start_realtime_ns,
                "duration_ns": report.duration_ns,
            },
        )
        for d in devices:
            totals = {"start": d.start, "peak": d.peak.bytes, "end": d.end, "allocated": d.allocated, "freed": d.freed}
            line("device", {"device": events.text(d.name), **totals})
        for step in report.steps.to_dicts():
            if step["device"] in {d.name for d in devices}:
                line("step", step | {"loop": events.exact(step["loop"])})
        rows = Rows(source, events.exact)
        for row in rows:
            for number in rows.new:
                line("stack", {"id": number, "frames": _frames(source, number)})
            line("allocation", row)
            count += 1
    return Written(
        path, events.size(path), words.plural(count, "allocation"), "jq, pandas.read_json(lines=True)", notes
    )


def _frames(source: Events, number: int) -> list[dict[str, Any]]:
    return [
        {"file": events.exact(f.file), "line": f.line if f.line >= 0 else None, "function": events.exact(f.function)}
        for f in source.stack(number)
    ]
