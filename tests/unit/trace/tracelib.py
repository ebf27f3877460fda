"""The C trace part through ctypes, and the outer file format once more in Python, so that both can be compared."""

import ctypes
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.build import build, rooms
from tests.event_kinds import (
    ALLOC,
    FREE,
    NODE_DONE,
    NODE_FREE,
    NODE_NEW,
    NODE_RUN,
    REQUESTED,
)

ROOT = Path(__file__).resolve().parents[3]
TRACE = ROOT / "csrc" / "trace"
FLAGS = ["-std=gnu11", "-g", "-fno-strict-aliasing", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror"]

NO_SEQUENCE = 2**64 - 1
STACK_LOST = 1
STACK_FIRST = 2
COMPLETE, RECORDING, RECOVERED, CUT = range(4)
TAIL_NONE, TAIL_ALIVE, TAIL_FOUND = range(3)
META, BATCH, END, LINES, TREE = 1, 2, 3, 4, 5
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
        ("text", ctypes.c_char_p),
    ]


def compile_library() -> Any:
    sources = [*rooms("base"), *TRACE.glob("*.c"), Path(__file__).with_name("doubles.c")]
    lib = ctypes.CDLL(str(build("libtrace.so", sources, *FLAGS, "-O2", "-shared", "-fPIC")))
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
        ("cm_writer_create", ctypes.c_int, [text, ctypes.c_bool, ctypes.c_uint, pointer]),
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


def header(major: int = 1, minor: int = 5) -> bytes:
    return b"CUPTIMEM" + struct.pack("<HHI", major, minor, 0)


def chunk(kind: int, payload: bytes, length: int | None = None) -> bytes:
    head = struct.pack("<IBBHI", MAGIC, kind, 0, 0, len(payload) if length is None else length)
    return head + struct.pack("<I", crc32c(head + payload)) + payload


def meta_chunk(*pairs: tuple[str | bytes, str | bytes]) -> bytes:
    return chunk(META, varint(len(pairs)) + b"".join(text(key) + text(value) for key, value in pairs))


def end_chunk(events: int = 0, lost_events: int = 0, lost_stacks: int = 0, reason: str = "") -> bytes:
    return chunk(END, varint(events) + varint(lost_events) + varint(lost_stacks) + text(reason))


def lines_chunk(*entries: tuple[int, int, int, str | bytes | None]) -> bytes:
    """Each: code, line, the number of its text, and the text where that is new."""
    rows = [varint(code) + varint(line) + varint(n) + (b"" if t is None else text(t)) for code, line, n, t in entries]
    return chunk(LINES, varint(len(rows)) + b"".join(rows))


def tree_chunk(
    realtime_ns: int,
    processes: Sequence[tuple[Any, ...]],
    files: Sequence[tuple[int, int, str]] | None,
    *,
    shm: tuple[int, int] = (1 << 30, 1 << 20),
    more: bytes = b"",
    open_files: Sequence[tuple[int, int, str]] | None = None,
) -> bytes:
    """The payload of a tree sample. A process: pid, parent, start, role, name, sizes in KiB of status, of the rollup.
    more: bytes behind these fields of each. open_files: None, as an older version has it."""

    def process(pid: int, parent: int, start: int, role: int, name: str, status: Any, rollup: Any) -> bytes:
        known = (status is not None) + 2 * (rollup is not None)
        sizes = b"".join(map(varint, [*(status or ()), *(rollup or ())]))
        return b"".join(map(varint, (pid, parent, start, role))) + text(name) + varint(known) + sizes + more

    def rows_of(rows: list[bytes]) -> bytes:
        return b"".join(varint(len(row)) + row for row in rows)

    rows = [process(*one) for one in processes]
    mapped, loaded = (
        [varint(pid) + varint(size) + text(path) + more for pid, size, path in of or ()] for of in (files, open_files)
    )
    return (
        struct.pack("<Q", realtime_ns)
        + b"".join(map(varint, (1000, *shm, 0, len(rows))))
        + rows_of(rows)
        + varint(0 if files is None else len(mapped) + 1)
        + rows_of(mapped)
        + (b"" if open_files is None else varint(len(loaded)) + rows_of(loaded))
    )


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


# --- events, as docs/trace-format.md describes them -----------------------------------------------

M32, M64 = 2**32 - 1, 2**64 - 1


class Bytes:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def u8(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.u8()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def svarint(self) -> int:
        n = self.varint()
        return n >> 1 ^ -(n & 1)

    def size(self) -> int:
        n = self.varint()
        rest = n >> 1
        value = rest >> 1 ^ -(rest & 1)
        return value * 64 if n & 1 else value

    def attributes(self) -> tuple[int, int, int]:
        flags, device, index = self.u8(), self.u8(), self.u8()
        return flags, device, index - 256 if index > 127 else index

    def block(self) -> "Bytes":
        length = self.varint()
        self.at += length
        return Bytes(self.data[self.at - length : self.at])


class ThreadState:
    def __init__(self) -> None:
        self.stack = self.node = self.size = self.name = self.name_before = 0
        self.context: int | None = None
        self.attributes: dict[int, tuple[int, int, int]] = {}
        self.sequence = {2: 0, 3: 0, 5: 0}
        self.creator: dict[tuple[int, bool], int] = {}


def decode_batch(payload: bytes) -> list[Event]:
    """The events of a batch, by a reader that shares nothing with the C one but the document."""
    outer = Bytes(payload)
    outer.at = 24
    outer.block()
    count = outer.varint()
    b = outer.block()
    if count == 0:
        return []
    shift = b.u8()
    time = struct.unpack_from("<Q", payload)[0] >> shift
    threads: dict[int, tuple[int, ThreadState]] = {}
    contexts: dict[int, dict[str, Any]] = {}
    free_contexts: dict[int, tuple[int, int, tuple[int, int, int]]] = {}
    names: dict[int, int] = {}
    other: dict[int, list[Any]] = {}
    allocs: list[tuple[int, int, tuple[int, int, int]]] = []
    frees: list[int] = []
    out: list[Event] = []
    none = (0, 0, 0)
    number = before = 0

    def state_of(thread: int) -> ThreadState:
        if thread % 256 not in threads or threads[thread % 256][0] != thread:
            threads[thread % 256] = (thread, ThreadState())
        return threads[thread % 256][1]

    def predicted_stack(t: ThreadState) -> int:
        following = None if t.context is None else contexts[t.context]["next"]
        return t.stack if following is None else following

    def enter(t: ThreadState, stack: int, k: int) -> dict[str, Any]:
        h = stack * 0x9E3779B97F4A7C15 & M64 ^ (t.size & M64) * 0xC2B2AE3D27D4EB4F & M64
        h ^= (2 * t.node + k) * 0x165667B19E3779F9 & M64
        h = (h ^ h >> 32) * 0xD6E8FEB86659FD93 & M64
        if t.context is not None:
            contexts[t.context]["next"] = stack
        t.context = (h >> 40) % 8192
        t.stack = stack
        fresh = {"address": 0, "size": 0, "attributes": t.attributes.get(0, none), "next": None}
        return contexts.setdefault(t.context, fresh)

    def sequence(t: ThreadState, tag: int) -> int:
        kind = tag & 7
        if tag & 0xC0 == 0x80:
            return NO_SEQUENCE
        t.sequence[kind] = (t.sequence[kind] + (b.svarint() if tag & 0xC0 else -1)) & M64
        return t.sequence[kind]

    def creating_thread(t: ThreadState, tag: int, address: int) -> int:
        key = (tag & 7, address == NO_SEQUENCE)
        if tag & 0x20:
            t.creator[key] = b.svarint()
        return t.creator.get(key, 0)

    def attributes(t: ThreadState, tag: int) -> tuple[int, int, int]:
        if tag & 0x10:
            t.attributes[tag & 7] = b.attributes()
        return t.attributes.get(tag & 7, none)

    for _ in range(count):
        tag = b.u8()
        if tag & 7 == 7:
            number, before = b.varint() if tag == 7 else before, number
            tag = b.u8()
        t = state_of(number)
        kind = tag >> 3
        if tag == 0xFE:
            kind = b.u8()
        d = b.u8()
        if d == 255:
            d = b.svarint()
        elif d >= 224:
            d = ((d - 224) << 8 | b.u8()) + 224
        time = (time + d) & M64
        ticks = time << shift & M64
        address = size = stack = 0
        if tag & 7 == 0:
            stack = predicted_stack(t)
            if tag & 0x08:
                stack = (stack + b.svarint()) & M32
            context = enter(t, stack, 0)
            attrs = b.attributes() if tag & 0x10 else context["attributes"]
            size = b.size() if tag & 0x20 else context["size"]
            last = allocs[-1][0] if allocs else 0
            if tag & 0xC0 == 0x00:
                address = context["address"]
            elif tag & 0xC0 == 0x40:
                address = frees[-1 - b.varint()]
            else:
                address = (last + b.svarint() * (64 if tag & 0xC0 == 0x80 else 1)) & M64
            context.update(address=address, size=size, attributes=attrs)
            t.attributes[0] = attrs
            t.size = size
            allocs.append((address, size, attrs))
            event = Event(number, ticks, ALLOC, address, size, stack, *attrs)
        elif tag & 7 == 1:
            last = frees[-1] if frees else 0
            attrs = t.attributes.get(1, none)
            c = M32 if t.context is None else t.context
            h = (last >> 4) * 0x9E3779B97F4A7C15 & M64 ^ c * 0xC2B2AE3D27D4EB4F & M64
            slot = (h >> 40) % 4096
            free_contexts.setdefault(slot, (0, 0, attrs))
            if tag & 0xC0 == 0:
                address, size, attrs = free_contexts[slot]
            elif tag & 0xC0 == 0x40:
                address, size, (_, *device) = allocs[-1 - b.varint()]
                attrs = (attrs[0], device[0], device[1])
            else:
                address = (last + b.svarint() * (64 if tag & 0xC0 == 0x80 else 1)) & M64
            if tag & 0x28 == 0x20:
                size = b.size()
            elif tag & 0x28 == 0:
                size = 0
            if tag & 0x10:
                attrs = b.attributes()
            free_contexts[slot] = (address, size, attrs)
            t.attributes[1] = attrs
            frees.append(address)
            event = Event(number, ticks, FREE, address, size, 0, *attrs)
        elif tag & 7 == 2:
            stack = predicted_stack(t)
            if tag & 0x08:
                stack = (stack + b.svarint()) & M32
            enter(t, stack, 1)
            attrs = attributes(t, tag)
            t.sequence[2] = (t.sequence[2] + (b.svarint() if tag & 0x20 else 1)) & M64
            event = Event(number, ticks, NODE_NEW, t.sequence[2], 0, stack, *attrs)
        elif tag & 7 == 3:
            address = sequence(t, tag)
            size = creating_thread(t, tag, address)
            slot = ((t.name * 0x9E3779B1 ^ t.name_before * 0x85EBCA77) & M32) >> 16
            slot %= 1024
            name = b.varint() if tag & 0x08 else names.get(slot, 0)
            names[slot] = name
            t.name, t.name_before, t.node = name, t.name, name
            event = Event(number, ticks, NODE_RUN, address, size, name, *attributes(t, tag))
        elif tag & 7 == 4:
            t.node = 0
            event = Event(number, ticks, NODE_DONE, 0, 0, 0, *attributes(t, tag))
        elif tag & 7 == 5:
            address = sequence(t, tag)
            size = creating_thread(t, tag, address)
            event = Event(number, ticks, NODE_FREE, address, size, 0, *attributes(t, tag))
        else:
            fields = b.u8()
            known = other.setdefault(kind % 32, [none, 0, 0, 0])
            if kind == REQUESTED:
                known[:3] = (0, *t.attributes.get(0, none)[1:]), allocs[-1][0] if allocs else 0, t.size
            if fields & 1:
                known[0] = b.attributes()
            if fields & 2:
                known[1] = (known[1] + b.svarint()) & M64
            if fields & 4:
                known[2] = (known[2] + b.svarint() + 2**63) % 2**64 - 2**63
            if fields & 8:
                known[3] = (known[3] + b.svarint()) & M32
            event = Event(number, ticks, kind, *known[1:], *known[0])
        out.append(event)
    assert b.at == len(b.data)
    return out
