"""pprof's profile.proto: one sample per stack and labels, with blocks and bytes of each kind of contents as its values.

Fields have the numbers of github.com/google/pprof/proto/profile.proto. The message is written field by field, without a
protobuf library. Stacks are lists of locations, innermost first.
"""

from collections.abc import Iterable
from typing import IO

import cuptimem
from cuptimem.output.exports import Options, Written, events
from cuptimem.output.exports.stacked import COMPACTED, frames, opened
from cuptimem.output.text import words
from cuptimem.report.model import Contents, Contributor
from cuptimem.report.stacks import Frame

# Of Profile.
_SAMPLE_TYPE, _SAMPLE, _LOCATION, _FUNCTION, _STRING = 1, 2, 4, 5, 6
_TIME, _DURATION, _COMMENT, _DEFAULT = 9, 10, 13, 14

_Labels = tuple[tuple[str, str], ...]
_Key = tuple[tuple[int, ...], _Labels]


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # int64 is written as its two's complement
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value) if value else b""


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _packed(field: int, values: Iterable[int]) -> bytes:
    return _bytes(field, b"".join(map(_varint, values)))


class _Tables:
    """The tables that samples refer to: strings, functions and locations, each once."""

    def __init__(self) -> None:
        self._strings = {"": 0}
        self._functions: dict[tuple[str, str], int] = {}
        self._locations: dict[tuple[int, int, int], int] = {}

    def string(self, value: str) -> int:
        return self._strings.setdefault(value, len(self._strings))

    def location(self, frame: Frame | str) -> int:
        if isinstance(frame, str):
            key = (self._function(frame, ""), 0, 0)
        elif frame.truncated:
            key = (self._function("(deeper frames)", ""), 0, 0)
        else:
            function = self._function(events.text(frame.function), events.text(frame.file))
            key = (function, max(frame.line, 0), frame.column + 1)
        return self._locations.setdefault(key, len(self._locations) + 1)

    def _function(self, name: str, file: str) -> int:
        return self._functions.setdefault((name, file), len(self._functions) + 1)

    def write(self, file: IO[bytes]) -> None:
        for (function, line, column), number in self._locations.items():
            lines = _number(1, function) + _number(2, line) + _number(3, column)
            file.write(_bytes(_LOCATION, _number(1, number) + _bytes(4, lines)))
        for (name, path), number in self._functions.items():
            text = self.string(name)
            # No system_name: pprof would demangle it, and make nothing of `<module>`.
            fields = _number(1, number) + _number(2, text) + _number(4, self.string(path))
            file.write(_bytes(_FUNCTION, fields))
        for value in self._strings:
            file.write(_bytes(_STRING, value.encode()))


def _labels(device: str, of: Contributor | None) -> _Labels:
    named = {"device": device}
    if of is not None:
        named |= {"category": of.category, "phase": of.phase, "module": of.module or ""}
    return tuple((key, events.text(value)) for key, value in named.items() if value)


def _add(samples: dict[_Key, list[int]], contents: Contents, at: int, width: int, tables: _Tables) -> None:
    """A kind of contents: its blocks are value `at` of each sample, its bytes the next one."""
    rows = [
        (tuple(map(tables.location, reversed(frames(c)))), _labels(contents.device, c), c.count, c.bytes)
        for c in contents.contributors
    ]
    if contents.rest_bytes:
        where = (tables.location(COMPACTED),)
        rows.append((where, _labels(contents.device, None), contents.rest_count, contents.rest_bytes))
    for stack, labels, count, size in rows:
        values = samples.setdefault((stack, labels), [0] * width)
        values[at] += count
        values[at + 1] += size


def write(trace: str, path: str, options: Options) -> Written:
    report, kinds, all_contents = opened(trace, options)
    tables = _Tables()
    samples: dict[_Key, list[int]] = {}
    for contents in all_contents:
        _add(samples, contents, 2 * kinds.index(contents.what), 2 * len(kinds), tables)
    notes = events.caveats(report)
    string = tables.string
    with events.target(path, options) as file:
        for kind in kinds:
            for what, unit in (("objects", "count"), ("space", "bytes")):
                fields = _number(1, string(f"{kind}_{what}")) + _number(2, string(unit))
                file.write(_bytes(_SAMPLE_TYPE, fields))
        for (stack, labels), values in samples.items():
            pairs = (_bytes(3, _number(1, string(key)) + _number(2, string(value))) for key, value in labels)
            file.write(_bytes(_SAMPLE, _packed(1, stack) + _packed(2, values) + b"".join(pairs)))
        for note in (events.title(report), f"cuptimem {cuptimem.__version__}", *notes):
            file.write(_number(_COMMENT, string(note)))
        file.write(_number(_TIME, report.start_realtime_ns) + _number(_DURATION, report.duration_ns))
        if kinds:
            file.write(_number(_DEFAULT, string(f"{kinds[0]}_space")))
        tables.write(file)
    return Written(
        path,
        events.size(path),
        words.plural(len(samples), "stack"),
        "go tool pprof, Pyroscope, speedscope",
        notes,
    )
