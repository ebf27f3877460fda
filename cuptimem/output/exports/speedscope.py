"""speedscope's JSON: a sampled profile per device and kind of contents, weights in bytes.

The format is speedscope's file-format-schema.json; stacks are lists of indexes, outermost first.
"""

import json

import cuptimem
from cuptimem.output.exports import Options, Written, events
from cuptimem.output.exports.stacked import COMPACTED, frames, label, opened
from cuptimem.output.text import words
from cuptimem.report.model import Contents
from cuptimem.report.stacks import Frame

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_WHAT = {
    "peak": "at the peak",
    "end": "at the end",
    "kept": "kept: allocated since the start, alive at the end",
    "allocated": "allocated in all",
    "temporary": "temporary: freed in the step that made it",
}


class _Frames:
    """speedscope's table of frames, each once."""

    def __init__(self) -> None:
        self.rows: list[dict[str, str | int]] = []
        self._at: dict[Frame | str, int] = {}

    def number(self, frame: Frame | str) -> int:
        known = self._at.get(frame)
        if known is None:
            known = self._at[frame] = len(self.rows)
            self.rows.append(_row(frame))
        return known


def _row(frame: Frame | str) -> dict[str, str | int]:
    if isinstance(frame, str):
        return {"name": frame}
    row: dict[str, str | int] = {"name": label(frame)}
    if not frame.truncated:
        row["file"] = events.text(frame.file)
    if frame.line > 0:
        row["line"] = frame.line
    if frame.column >= 0:
        row["col"] = frame.column + 1
    return row


def _profile(contents: Contents, table: _Frames) -> dict[str, object]:
    samples: list[list[int]] = []
    weights: list[int] = []
    for c in contents.contributors:
        samples.append([table.number(frame) for frame in frames(c)])
        weights.append(c.bytes)
    if contents.rest_bytes:
        samples.append([table.number(COMPACTED)])
        weights.append(contents.rest_bytes)
    return {
        "type": "sampled",
        "name": f"{events.text(contents.device)} {_WHAT[contents.what]}",
        "unit": "bytes",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": samples,
        "weights": weights,
    }


def write(trace: str, path: str, options: Options) -> Written:
    report, _, contents = opened(trace, options)
    table = _Frames()
    profiles = [_profile(one, table) for one in contents]
    notes = events.caveats(report)
    name = events.title(report) + (f" ({'; '.join(notes)})" if notes else "")
    head = {
        "$schema": SCHEMA,
        "name": events.text(name),
        "exporter": f"cuptimem@{cuptimem.__version__}",
        "activeProfileIndex": 0,
    }
    encode = json.JSONEncoder(separators=(",", ":")).encode
    with events.target(path, options) as file:
        file.write(encode(head)[:-1].encode() + b',"profiles":[')
        for number, profile in enumerate(profiles):
            file.write((b"," if number else b"") + encode(profile).encode())
        file.write(b'],"shared":{"frames":' + encode(table.rows).encode() + b"}}")
    return Written(
        path,
        events.size(path),
        words.plural(len(profiles), "profile"),
        "https://www.speedscope.app (drop it there)",
        notes,
    )
