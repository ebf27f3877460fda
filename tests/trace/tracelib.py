"""The C trace part through ctypes, and the outer file format once more in Python, so that both can be compared."""

from __future__ import annotations

import ctypes
import struct
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

ROOT = Path(__file__).resolve().parents[2]
TRACE = ROOT / "csrc" / "trace"
FLAGS = ["-std=gnu11", "-g", "-fno-strict-aliasing", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror"]

ALLOC, FREE, OOM, RESERVED, NODE_NEW, NODE_RUN, NODE_DONE, NODE_FREE = range(1, 9)
THREAD, TICK, OBJECT_NEW, SEED, MARK, LOST, SAMPLE = range(9, 16)
NO_SEQUENCE = 2**64 - 1
STACK_LOST = 1
STACK_FIRST = 2
COMPLETE, RECORDING, RECOVERED, CUT = range(4)
TAIL_NONE, TAIL_ALIVE, TAIL_FOUND = range(3)
META, BATCH, END = 1, 2, 3
MAGIC = 0x4B484343
CHUNK_MAX = 1 << 26


class Event(NamedTuple):
    thread: int
    time: int
    kind: int
    address: int = 0
    size: int = 0
    stack: int = 0
    flags: int = 0
    device_type: int = 0
    device_index: int = 0


class CEvent(ctypes.Structure):
    _fields_ = [
        ("time", ctypes.c_uint64),
        ("address", ctypes.c_uint64),
        ("size", ctypes.c_int64),
        ("stack", ctypes.c_uint32),
        ("kind", ctypes.c_uint8),
        ("flags", ctypes.c_uint8),
        ("device_type", ctypes.c_uint8),
        ("device_index", ctypes.c_int8),
    ]


class CRecord(ctypes.Structure):
    _fields_ = [("event", CEvent), ("thread", ctypes.c_uint32), ("time_ns", ctypes.c_uint64)]


class CFrame(ctypes.Structure):
    _fields_ = [
        ("file", ctypes.c_char_p),
        ("function", ctypes.c_char_p),
        ("line", ctypes.c_int),
        ("end_line", ctypes.c_int),
        ("column", ctypes.c_int),
        ("end_column", ctypes.c_int),
        ("first_line", ctypes.c_int),
        ("code", ctypes.c_uint32),
        ("module", ctypes.c_uint64),
        ("module_class", ctypes.c_char_p),
        ("truncated", ctypes.c_bool),
    ]


def compile_library(directory: Path) -> Any:
    target = directory / "libtrace.so"
    sources = [str(path) for path in sorted(TRACE.glob("*.c"))] + [str(Path(__file__).with_name("doubles.c"))]
    subprocess.run(["gcc", *FLAGS, "-O2", "-shared", "-fPIC", *sources, "-o", str(target)], check=True)
    lib = ctypes.CDLL(str(target))
    pointer, u32, u64, size = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_size_t
    text = ctypes.c_char_p
    for name, result, arguments in [
        ("cm_batch_new", pointer, []),
        ("cm_batch_free", None, [pointer]),
        ("double_begin", None, [pointer, u64, u64, u64]),
        ("double_add", size, [pointer, pointer, pointer, size]),
        ("cm_batch_add_definitions", ctypes.c_bool, [pointer, text, size]),
        ("cm_batch_add_cover", ctypes.c_bool, [pointer, u32, u64]),
        ("cm_batch_set_log_position", None, [pointer, u64]),
        ("cm_batch_size", size, [pointer]),
        ("cm_batch_events", u64, [pointer]),
        ("cm_batch_finish", ctypes.c_bool, [pointer, pointer, pointer]),
        ("cm_writer_create", ctypes.c_int, [text, ctypes.c_bool, pointer]),
        ("cm_writer_append_to", ctypes.c_int, [text, pointer]),
        ("cm_writer_meta", ctypes.c_int, [pointer, pointer]),
        ("cm_writer_chunk", ctypes.c_int, [pointer, text, size]),
        ("cm_writer_end", ctypes.c_int, [pointer, u64, u64, u64, text]),
        ("cm_writer_size", u64, [pointer]),
        ("cm_writer_close", ctypes.c_int, [pointer]),
        ("cm_reader_open", pointer, [text, pointer, size]),
        ("cm_reader_close", None, [pointer]),
        ("cm_reader_rewind", None, [pointer]),
        ("double_read", size, [pointer, pointer, size, pointer]),
        ("cm_reader_error", text, [pointer]),
        ("cm_reader_get_state", ctypes.c_int, [pointer]),
        ("cm_reader_end_reason", text, [pointer]),
        ("cm_reader_progress", ctypes.c_double, [pointer]),
        ("cm_reader_start_realtime_ns", u64, [pointer]),
        ("cm_reader_meta", text, [pointer, text]),
        ("cm_reader_meta_count", size, [pointer]),
        ("cm_reader_meta_at", None, [pointer, size, pointer, pointer]),
        ("cm_reader_lost_events", u64, [pointer]),
        ("cm_reader_lost_stacks", u64, [pointer]),
        ("cm_reader_stack_count", u32, [pointer]),
        ("cm_reader_stack_parent", u32, [pointer, u32]),
        ("cm_reader_stack_frame", ctypes.c_bool, [pointer, u32, pointer]),
        ("cm_reader_name", text, [pointer, u32]),
        ("cm_crc32c", u32, [u32, text, size]),
        ("cm_crc32c_portable", u32, [u32, text, size]),
        ("cm_linetable_find", ctypes.c_bool, [text, size, ctypes.c_int, u32, pointer]),
        ("double_orphan", None, [ctypes.c_int, text, size]),
        ("double_orphan_grows", None, [text, text, size]),
    ]:
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


# --- the outer format, once more ---------------------------------------------------------------


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return varint(len(data)) + data


def crc_table() -> list[int]:
    table = []
    for crc in range(256):
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


CRC_TABLE = crc_table()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def header(major: int = 1, minor: int = 0) -> bytes:
    return b"CUPTIMEM" + struct.pack("<HHI", major, minor, 0)


def chunk(kind: int, payload: bytes, length: int | None = None) -> bytes:
    head = struct.pack("<IBBHI", MAGIC, kind, 0, 0, len(payload) if length is None else length)
    return head + struct.pack("<I", crc32c(head + payload)) + payload


def meta_chunk(*pairs: tuple[str | bytes, str | bytes]) -> bytes:
    return chunk(META, varint(len(pairs)) + b"".join(text(key) + text(value) for key, value in pairs))


def end_chunk(events: int = 0, lost_events: int = 0, lost_stacks: int = 0, reason: str = "") -> bytes:
    return chunk(END, varint(events) + varint(lost_events) + varint(lost_stacks) + text(reason))


def batch_payload(
    *,
    anchor: tuple[int, int, int] = (1000, 1000, 5000),
    definitions: bytes = b"",
    count: int = 0,
    section: bytes = b"",
    covers: Sequence[tuple[int, int]] = (),
    log: int = 0,
) -> bytes:
    body = struct.pack("<QQQ", *anchor) + text(definitions) + varint(count) + text(section) + varint(len(covers))
    return body + b"".join(varint(ring) + varint(position) for ring, position in covers) + varint(log)


def define_string(value: str | bytes) -> bytes:
    return b"\x01" + text(value)


def define_code(file: int, function: int, first_line: int, table: bytes) -> bytes:
    return b"\x02" + varint(file) + varint(function) + varint(first_line) + text(table)


def define_stack(parent: int, code: int, offset: int, flags: int = 0, module: int = 0, name: int = 0) -> bytes:
    return b"\x03" + b"".join(map(varint, (parent, code, offset, flags, module, name)))


def define_name(value: str) -> bytes:
    return b"\x04" + text(value)


def chunks_of(data: bytes) -> list[tuple[int, int, bytes]]:
    """(offset, kind, payload) of every chunk of a whole, healthy file."""
    found = []
    at = 16
    while at < len(data):
        magic, kind, zero, zeros, length, checksum = struct.unpack_from("<IBBHII", data, at)
        payload = data[at + 16 : at + 16 + length]
        assert magic == MAGIC and zero == zeros == 0 and len(payload) == length
        assert crc32c(data[at : at + 12] + payload) == checksum
        found.append((at, kind, payload))
        at += 16 + length
    return found


# --- C objects -----------------------------------------------------------------------------------


class Batch:
    def __init__(self, lib: Any) -> None:
        self.lib = lib
        self.handle = ctypes.c_void_p(lib.cm_batch_new())
        assert self.handle

    def begin(self, ticks: int = 0, monotonic_ns: int = 0, realtime_ns: int = 0) -> None:
        self.lib.double_begin(self.handle, ticks, monotonic_ns, realtime_ns)

    def add(self, events: Sequence[Event]) -> None:
        n = len(events)
        threads = (ctypes.c_uint32 * n)(*(e.thread for e in events))
        items = (CEvent * n)()
        for item, e in zip(items, events, strict=True):
            for field in ("time", "address", "size", "stack", "kind", "flags", "device_type", "device_index"):
                setattr(item, field, getattr(e, field))
        assert self.lib.double_add(self.handle, threads, items, n) == n

    def define(self, records: bytes) -> None:
        assert self.lib.cm_batch_add_definitions(self.handle, records, len(records))

    def cover(self, ring: int, position: int) -> bool:
        return bool(self.lib.cm_batch_add_cover(self.handle, ring, position))

    def log(self, position: int) -> None:
        self.lib.cm_batch_set_log_position(self.handle, position)

    def finish(self) -> bytes:
        data, length = ctypes.c_void_p(), ctypes.c_size_t()
        assert self.lib.cm_batch_finish(self.handle, ctypes.byref(data), ctypes.byref(length))
        assert data.value is not None
        return ctypes.string_at(data.value, length.value)

    def close(self) -> None:
        self.lib.cm_batch_free(self.handle)


def one_batch(
    lib: Any, events: Sequence[Event], definitions: bytes = b"", anchor: tuple[int, int, int] = (0, 0, 0)
) -> bytes:
    batch = Batch(lib)
    batch.begin(*anchor)
    batch.define(definitions)
    batch.add(events)
    data = batch.finish()
    batch.close()
    return data


class OpenError(Exception):
    pass


@dataclass
class Record:
    event: Event  # its time is in ticks
    time_ns: int


class Reader:
    def __init__(self, lib: Any, path: Path) -> None:
        self.lib = lib
        error = ctypes.create_string_buffer(512)
        self.handle = ctypes.c_void_p(lib.cm_reader_open(str(path).encode(), error, 512))
        if not self.handle:
            message = error.value.decode()
            assert message and "\n" not in message
            raise OpenError(message)
        self.last = 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.lib.cm_reader_close(self.handle)

    def read(self, limit: int = 1 << 62) -> list[Record]:
        out: list[Record] = []
        records = (CRecord * 1024)()
        last = ctypes.c_int(1)
        while last.value == 1 and len(out) < limit:
            got = self.lib.double_read(self.handle, records, min(1024, limit - len(out)), ctypes.byref(last))
            for r in records[:got]:
                e = r.event
                event = Event(
                    r.thread, e.time, e.kind, e.address, e.size, e.stack, e.flags, e.device_type, e.device_index
                )
                out.append(Record(event, r.time_ns))
        self.last = last.value
        return out

    def events(self) -> list[Event]:
        return [record.event for record in self.read()]

    def rewind(self) -> None:
        self.lib.cm_reader_rewind(self.handle)

    @property
    def state(self) -> int:
        return int(self.lib.cm_reader_get_state(self.handle))

    @property
    def error(self) -> str:
        message: str = self.lib.cm_reader_error(self.handle).decode()
        assert "\n" not in message
        return message

    @property
    def reason(self) -> str:
        return str(self.lib.cm_reader_end_reason(self.handle).decode())

    @property
    def lost(self) -> tuple[int, int]:
        return self.lib.cm_reader_lost_events(self.handle), self.lib.cm_reader_lost_stacks(self.handle)

    def meta(self) -> dict[str, str]:
        out = {}
        for i in range(self.lib.cm_reader_meta_count(self.handle)):
            key, value = ctypes.c_char_p(), ctypes.c_char_p()
            self.lib.cm_reader_meta_at(self.handle, i, ctypes.byref(key), ctypes.byref(value))
            assert key.value is not None and value.value is not None
            assert self.lib.cm_reader_meta(self.handle, key.value) == value.value
            out[key.value.decode()] = value.value.decode()
        return out

    def frame(self, stack: int) -> CFrame | None:
        frame = CFrame()
        return frame if self.lib.cm_reader_stack_frame(self.handle, stack, ctypes.byref(frame)) else None

    def parent(self, stack: int) -> int:
        return int(self.lib.cm_reader_stack_parent(self.handle, stack))

    def name(self, name: int) -> str | None:
        found = self.lib.cm_reader_name(self.handle, name)
        return None if found is None else str(found.decode())


def write_file(path: Path, chunks: Iterable[bytes]) -> Path:
    path.write_bytes(header() + b"".join(chunks))
    return path
