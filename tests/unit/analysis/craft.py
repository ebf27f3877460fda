"""Traces made by hand: the events a test wants, through the real encoder, so that the answers are known."""

import ctypes
from collections.abc import Sequence
from pathlib import Path

from tests.build import build
from tests.event_kinds import (
    ALLOC,
    FREE,
    MARK,
    NODE_DONE,
    NODE_NEW,
    NODE_RUN,
    OPERATOR,
    TICK,
)

ROOT = Path(__file__).resolve().parents[3]
IN_NODE, NODE_STACK, BEFORE_START, DIRECT, WRITTEN = 1, 2, 4, 8, 16
STEP, OPTIMIZER, DATA, MODULE, BACKWARD = 1, 2, 3, 4, 5
WINDOW_OPEN, WINDOW_CLOSE, SEEDED = 1, 2, 3
CPU, CUDA = 0, 1
NO_SEQUENCE = 2**64 - 1
TORCH = "/venv/lib/python3.11/site-packages/torch/"
GRAIN = 1024  # ns between two events: the encoder rounds times down to 32

_FLAGS = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-fvisibility=default"]


def library(name: str, sources: Sequence[Path]) -> ctypes.CDLL:
    """A shared library of C files."""
    return ctypes.CDLL(str(build(name, sources, *_FLAGS)))


def encoder() -> ctypes.CDLL:
    """The real one, and what makes traces of it: Trace.library."""
    parts = [ROOT / "csrc/trace" / f"{name}.c" for name in ("encode", "writer", "crc32c")]
    return library("craft.so", [Path(__file__).with_name("craft.c"), *parts])


class Event(ctypes.Structure):
    _fields_ = [
        ("thread", ctypes.c_uint32),
        ("defined", ctypes.c_uint32),
        ("time", ctypes.c_uint64),
        ("address", ctypes.c_uint64),
        ("size", ctypes.c_int64),
        ("stack", ctypes.c_uint32),
        ("kind", ctypes.c_uint8),
        ("flags", ctypes.c_uint8),
        ("device_type", ctypes.c_uint8),
        ("device_index", ctypes.c_int8),
    ]


Frame = tuple[str, str, int] | tuple[str, str, int, int, str]


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _text(text: str) -> bytes:
    data = text.encode(errors="surrogateescape")
    return _varint(len(data)) + data


class Trace:
    """Collects definitions and events; every event is one GRAIN later than the one before unless told."""

    library: ctypes.CDLL  # set by conftest

    def __init__(self) -> None:
        self.definitions = bytearray()
        self.strings: dict[str, int] = {}
        self.codes: dict[tuple[str, str, int], int] = {}
        self.stacks: dict[tuple[Frame, ...], int] = {(): 0}
        self.names: dict[str, int] = {}
        self.events: list[Event] = []
        self.now = 1 << 20

    @property
    def elapsed(self) -> int:
        """time_ns of the newest event, as the reader gives it."""
        return int(self.events[-1].time - self.events[0].time)

    def _string(self, text: str) -> int:
        if text not in self.strings:
            self.definitions += bytes([1]) + _text(text)
            self.strings[text] = len(self.strings) + 1
        return self.strings[text]

    def name(self, text: str) -> int:
        if text not in self.names:
            self.definitions += bytes([4]) + _text(text)
            self.names[text] = len(self.names) + 1
        return self.names[text]

    def _code(self, file: str, function: str, line: int) -> int:
        key = (file, function, line)
        if key not in self.codes:
            file_id, function_id = self._string(file), self._string(function)
            # Long form, no line delta, one line, columns 4 to 9.
            table = bytes([0x80 | 14 << 3, 0, 0, 5, 10])
            self.definitions += bytes([2]) + _varint(file_id) + _varint(function_id) + _varint(line)
            self.definitions += _varint(len(table)) + table
            self.codes[key] = len(self.codes) + 1
        return self.codes[key]

    def stack(self, *frames: Frame) -> int:
        """Frames innermost first: (file, function, line), for a module's call (…, address, class)."""
        if frames not in self.stacks:
            parent = self.stack(*frames[1:])
            file, function, line = frames[0][:3]
            module, cls = frames[0][3:] if len(frames[0]) == 5 else (0, "")
            code = self._code(file, function, line)
            cls_id = self._string(cls) if cls else 0
            self.definitions += bytes([3]) + b"".join(map(_varint, (parent, code, 0, 0, module, cls_id)))
            self.stacks[frames] = len(self.stacks) + 1  # the empty one is there: ids start at 2
        return self.stacks[frames]

    def line(self, line: int, file: str = "train.py") -> int:
        """A stack of one frame."""
        return self.stack((file, "main", line))

    def add(
        self,
        kind: int,
        address: int = 0,
        size: int = 0,
        stack: int = 0,
        *,
        flags: int = 0,
        device: int = CPU,
        index: int = -1,
        thread: int = 1,
        after: int = GRAIN,
    ) -> None:
        self.now += after
        self.events.append(
            Event(thread, len(self.definitions), self.now, address, size, stack, kind, flags, device, index)
        )

    def alloc(self, address: int, size: int, stack: int = 0, **more: int) -> None:
        self.add(ALLOC, address, size, stack, **more)

    def free(self, address: int, size: int = 0, **more: int) -> None:
        self.add(FREE, address, size, **more)

    def tick(self, kind: int, obj: int, stack: int, **more: int) -> None:
        self.add(TICK, obj, kind, stack, **more)

    def mark(self, kind: int, argument: int = 0, **more: int) -> None:
        self.add(MARK, argument, kind, more.pop("stack", 0), **more)

    def node(self, sequence: int, stack: int, **more: int) -> None:
        self.add(NODE_NEW, sequence, 0, stack, **more)

    def run(
        self, sequence: int, creator: int, name: str = "N5torch8autograd9generated12MulBackward0E", **more: int
    ) -> None:
        self.add(NODE_RUN, sequence, creator, self.name(name), **more)

    def operator(self, name: str, **more: int) -> None:
        self.add(OPERATOR, stack=self.name(name) if name else 0, **more)

    def done(self, **more: int) -> None:
        self.add(NODE_DONE, **more)

    def write(
        self,
        path: Path,
        *,
        meta: dict[str, str] | None = None,
        per_batch: int = 1000,
        end: str | None = "",
        lost: int = 0,
        late: bool = False,
    ) -> str:
        pairs = [text.encode(errors="surrogateescape") for item in (meta or {}).items() for text in item]
        meta_array = (ctypes.c_char_p * (len(pairs) + 1))(*pairs, None)
        events = (Event * max(len(self.events), 1))(*self.events)
        self.library.craft.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
        self.library.craft.argtypes += [
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.c_size_t,
            ctypes.c_char_p,
            ctypes.c_uint64,
            ctypes.c_bool,
        ]
        status = self.library.craft(
            str(path).encode(),
            meta_array,
            bytes(self.definitions),
            len(self.definitions),
            events,
            len(self.events),
            per_batch,
            None if end is None else end.encode(errors="surrogateescape"),
            lost,
            late,
        )
        assert status == 0, status
        return str(path)
