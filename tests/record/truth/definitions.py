"""Stacks of a trace, read in plain Python from csrc/trace/format.h's description: a second reader for the tests.

Location tables are decoded by CPython itself: they are put into a code object, which is asked for its positions.
"""

import itertools
import struct
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

FIRST_STACK = 2


@dataclass(frozen=True)
class Frame:
    file: str
    function: str
    line: int | None
    first_line: int


class _Cursor:
    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def bytes(self) -> bytes:
        length = self.varint()
        self.at += length
        return self.data[self.at - length : self.at]


class _Code:
    def __init__(self, file: str, function: str, first_line: int, table: bytes) -> None:
        self.file, self.function, self.first_line, self.table = file, function, first_line, table
        self._lines: list[int | None] | None = None

    def line(self, offset: int) -> int | None:
        if self._lines is None:
            template: CodeType = (lambda: 0).__code__
            units = 1 << 12
            while True:  # the table says how many units it covers; more code than that is harmless
                code = template.replace(
                    co_code=bytes([9, 0]) * units, co_linetable=self.table, co_firstlineno=self.first_line
                )
                self._lines = [line for line, *_ in itertools.islice(code.co_positions(), units)]
                if len(self._lines) < units or units > (1 << 20):
                    break
                units *= 4
        return self._lines[offset] if offset < len(self._lines) else None


class Definitions:
    """What the whole chunks of a trace define. `stack(id)` lists frames, innermost first."""

    def __init__(self, path: Path) -> None:
        self.strings, self.names = [""], [""]
        self.codes: list[_Code | None] = [None]
        self.stacks: list[tuple[int, int, int, int]] = [(0, 0, 0, 0)] * FIRST_STACK
        data = path.read_bytes()
        at = 16
        while at + 16 <= len(data):
            magic, kind, _, _, length, _ = struct.unpack_from("<IBBHII", data, at)
            if magic != 0x4B484343 or at + 16 + length > len(data):
                break
            if kind == 2:
                cursor = _Cursor(data[at + 16 : at + 16 + length], 24)
                self._read(cursor.bytes())
            at += 16 + length

    def _read(self, log: bytes) -> None:
        cursor = _Cursor(log)
        while cursor.at < len(log):
            kind = log[cursor.at]
            cursor.at += 1
            if kind == 1:
                self.strings.append(cursor.bytes().decode("utf-8", "replace"))
            elif kind == 2:
                file, function, first = cursor.varint(), cursor.varint(), cursor.varint()
                self.codes.append(_Code(self.strings[file], self.strings[function], first, cursor.bytes()))
            elif kind == 3:
                parent, code, offset, flags = (cursor.varint() for _ in range(4))
                cursor.varint(), cursor.varint()
                assert parent < len(self.stacks) and code < len(self.codes), "a reference to what comes later"
                self.stacks.append((parent, code, offset, flags))
            elif kind == 4:
                self.names.append(cursor.bytes().decode("utf-8", "replace"))
            else:
                raise AssertionError(f"unknown definition kind {kind}")

    def stack(self, number: int) -> list[Frame]:
        frames = []
        while number >= FIRST_STACK:
            parent, code_id, offset, _ = self.stacks[number]
            code = self.codes[code_id]
            if code is not None:
                frames.append(Frame(code.file, code.function, code.line(offset), code.first_line))
            number = parent
        return frames
