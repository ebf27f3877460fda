"""Reading: states, damage, versions, what a killed process left behind, time."""

import ctypes
import os
import re
from pathlib import Path
from typing import Any

import pytest
from tracelib import (
    CHUNK_MAX,
    COMPLETE,
    CUT,
    LINES,
    RECORDING,
    RECOVERED,
    STACK_LOST,
    TAIL_ALIVE,
    TAIL_FOUND,
    Batch,
    Event,
    OpenError,
    Reader,
    batch_payload,
    chunk,
    chunks_of,
    define_code,
    define_name,
    define_stack,
    define_string,
    end_chunk,
    header,
    lines_chunk,
    meta_chunk,
    one_batch,
    varint,
    write_file,
)

from tests.event_kinds import ALLOC, FREE, LOST, NODE_RUN

DEFINITIONS = define_string("f.py") + define_string("f") + define_code(1, 2, 9, b"\xe8\x00")
DEFINITIONS += define_stack(0, 1, 0) + define_stack(2, 1, 0) + define_name("MulBackward0")


def some_events(n: int, start: int = 0) -> list[Event]:
    return [Event(i % 2, 64 * (start + i), ALLOC, 0x1000 + 64 * (start + i), 128 + i, 2 + i % 2) for i in range(n)]


def small_file(lib: Any) -> tuple[bytes, list[tuple[int, int]], list[Event]]:
    """A whole trace; the end of each chunk with how many events lie before it; the events."""
    events = some_events(24)
    parts = [
        meta_chunk(("pid", "1")),
        one_batch(lib, events[:10], DEFINITIONS),
        meta_chunk(("exit", "0")),
        one_batch(lib, events[10:], b""),
        end_chunk(24),
    ]
    data = header() + b"".join(parts)
    ends = [
        (at + 16 + len(payload), n) for (at, _, payload), n in zip(chunks_of(data), [0, 10, 10, 24, 24], strict=True)
    ]
    return data, ends, events


def test_every_truncation(lib: Any, tmp_path: Path) -> None:
    data, ends, events = small_file(lib)
    path = tmp_path / "t.cmem"
    for length in range(len(data) + 1):
        path.write_bytes(data[:length])
        if length < ends[0][0]:
            with pytest.raises(OpenError) as caught:
                Reader(lib, path)
            if length == 0:
                assert str(caught.value) == f"{path}: is empty, not a trace"
            else:
                assert "corrupt" in str(caught.value) or length < 16
            continue
        with Reader(lib, path) as reader:
            whole = max(n for end, n in ends if end <= length)
            assert reader.events() == events[:whole]
            assert reader.last == 0
            complete = length == len(data)
            assert reader.state == (COMPLETE if complete else CUT)
            assert bool(reader.error) != complete
            if not complete and length not in dict(ends):
                last = max(end for end, _ in ends if end <= length)
                assert f"byte {last}" in reader.error


def test_every_corrupt_byte(lib: Any, tmp_path: Path) -> None:
    """A wrong byte costs the events from its chunk on, and is said: it never changes one or goes unseen."""
    data, ends, events = small_file(lib)
    path = tmp_path / "t.cmem"
    for at in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            broken = bytearray(data)
            broken[at] ^= flip
            path.write_bytes(broken)
            if at < 8 or at in (8, 9) or 16 <= at < ends[0][0]:
                with pytest.raises(OpenError):
                    Reader(lib, path)
                continue
            with Reader(lib, path) as reader:
                got = reader.events()
                if at < 16:  # minor version and reserved bytes: any value is readable
                    assert (got, reader.state) == (events, COMPLETE)
                    continue
                before = max(n for end, n in ends if end <= at)
                assert got == events[:before]
                assert (reader.last, reader.state) == (0, CUT)
                assert "byte" in reader.error


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty, not a trace"),
        (b"C", "is corrupt: it ends inside its header"),
        (b"CUPTIMEM\x01\0\0\0\0\0\0", "is corrupt: it ends inside its header"),
        (b"\x7fELF" + bytes(100), "is not a cuptimem trace"),
        (b"{}", "is not a cuptimem trace"),
        (bytes(4096), "is not a cuptimem trace"),
        (header(), "is corrupt: its description (the meta chunk behind the header) is cut off or damaged"),
        (
            header() + end_chunk(),
            "is corrupt: its description (the meta chunk behind the header) is cut off or damaged",
        ),
        (
            header(7, 3),
            "has format version 7.3, this cuptimem reads versions up to 1.5: update cuptimem to open it",
        ),
        (header(0, 9), "is corrupt: it claims format version 0.9, which never was (this cuptimem reads 1.5)"),
    ],
)
def test_what_is_no_trace(lib: Any, tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "t.cmem"
    path.write_bytes(content)
    with pytest.raises(OpenError, match=f"^{re.escape(f'{path}: {message}')}$"):
        Reader(lib, path)


def test_what_is_no_file(lib: Any, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path, message in [
        (tmp_path, "is a directory, not a trace"),
        (tmp_path / "absent", "No such file or directory"),
        (fifo, "is not a regular file"),
        (Path("/dev/null"), "is not a regular file"),
    ]:
        with pytest.raises(OpenError, match=f"^{re.escape(f'{path}: {message}')}$"):
            Reader(lib, path)


def test_unreadable_file(lib: Any, tmp_path: Path) -> None:
    path = write_file(tmp_path / "t.cmem", [meta_chunk()])
    path.chmod(0)
    user = os.geteuid()
    if user == 0:  # who may read everything
        os.seteuid(65534)
    try:
        with pytest.raises(OpenError, match=f"^{re.escape(str(path))}: Permission denied$"):
            Reader(lib, path)
    finally:
        os.seteuid(user)


def test_newer_minor(lib: Any, tmp_path: Path) -> None:
    """Unknown chunks are skipped, unknown kinds of events pass through, more may follow in a chunk."""
    events = [Event(0, 0, 99, 5, 6, 7), *some_events(2)]
    batch = one_batch(lib, events, DEFINITIONS)
    [(_, _, payload)] = chunks_of(b"\0" * 16 + batch)
    parts = [
        chunk(9, b"?"),
        meta_chunk(("a", "b")),
        chunk(200, bytes(70_000)),
        chunk(2, payload + b"more"),
        end_chunk(),
    ]
    path = tmp_path / "t.cmem"
    path.write_bytes(header(1, 65535) + meta_chunk() + b"".join(parts))
    with Reader(lib, path) as reader:
        assert reader.events() == events
        assert reader.state == COMPLETE
        assert reader.meta() == {"a": "b"}


def test_meta_override_and_order(lib: Any, tmp_path: Path) -> None:
    parts = [
        meta_chunk(("b", "1"), ("a", "2"), ("b", "3")),
        one_batch(lib, some_events(1), DEFINITIONS),
        meta_chunk(("c", "4"), ("a", "é 5"), ("", "")),
        end_chunk(),
    ]
    with Reader(lib, write_file(tmp_path / "t.cmem", parts)) as reader:
        assert list(reader.meta().items()) == [("b", "3"), ("a", "2")]
        reader.read()
        expected = [("b", "3"), ("a", "é 5"), ("c", "4"), ("", "")]
        assert list(reader.meta().items()) == expected
        reader.rewind()
        reader.read()
        assert list(reader.meta().items()) == expected


def test_end_chunk_and_losses(lib: Any, tmp_path: Path) -> None:
    losses = [Event(0, 0, LOST, 0, 7), Event(1, 0, LOST, 0, 5), Event(1, 0, LOST, 0, -9)]
    parts = [meta_chunk(), one_batch(lib, losses)]
    with Reader(lib, write_file(tmp_path / "a.cmem", parts)) as reader:
        reader.read()
        assert (reader.lost, reader.reason, reader.state) == ((12, 0), "", CUT)
    with Reader(lib, write_file(tmp_path / "b.cmem", [*parts, end_chunk(3, 13, 4, "the disk is full")])) as reader:
        reader.read()
        assert (reader.lost, reader.reason, reader.state) == ((13, 4), "the disk is full", COMPLETE)
        reader.rewind()
        reader.read()
        assert reader.lost == (13, 4)
    with Reader(lib, write_file(tmp_path / "c.cmem", [*parts, end_chunk(reason="recovered")])) as reader:
        reader.read()
        assert reader.state == RECOVERED


# --- definitions -----------------------------------------------------------------------------------


def test_definitions(lib: Any, tmp_path: Path) -> None:
    table = bytes([0x80 | 0 << 3 | 1, 0x35, 0x80 | 11 << 3, 4, 9, 0x80 | 15 << 3])  # 2 units, 1 unit, none
    first = define_string("a.py") + define_string("C.f") + define_code(1, 2, 10, table) + define_stack(0, 1, 1)
    second = define_stack(2, 1, 2, 2, 0xABCD, 3) + define_stack(0, 0, 0, 1) + define_stack(4, 1, 3) + define_name("N")
    parts = [
        meta_chunk(),
        one_batch(lib, [], first),
        one_batch(lib, [], define_string("m.Block") + second),
        end_chunk(),
    ]
    with Reader(lib, write_file(tmp_path / "t.cmem", parts)) as reader:
        assert reader.frame(2) is None
        for _ in range(2):
            assert reader.read() == []
            assert lib.cm_reader_stack_count(reader.handle) == 4
            inner, outer, cut, unknown = (reader.frame(i) for i in (3, 2, 4, 5))
            assert inner is not None and outer is not None and cut is not None and unknown is not None
            assert (outer.file, outer.function, outer.first_line, outer.code) == (b"a.py", b"C.f", 10, 1)
            assert (outer.line, outer.end_line, outer.column, outer.end_column) == (10, 10, 3, 8)
            assert (outer.module, outer.module_class, outer.truncated) == (0, None, False)
            assert (inner.line, inner.column, inner.end_column) == (11, 4, 9)
            assert (inner.module, inner.module_class) == (0xABCD, b"m.Block")
            assert (cut.truncated, cut.file, cut.line) == (True, None, -1)
            assert (unknown.line, unknown.column, unknown.file) == (-1, -1, b"a.py")
            assert [reader.parent(i) for i in (2, 3, 4, 5, 0, 1, 6, 2**32 - 1)] == [0, 2, 0, 4, 0, 0, 0, 0]
            assert [reader.frame(i) for i in (0, 1, 6, 2**32 - 1)] == [None] * 4
            assert [reader.name(i) for i in (0, 1, 2, 2**32 - 1)] == [None, "N", None, None]
            reader.rewind()


def test_source_lines(lib: Any, tmp_path: Path) -> None:
    """Of a code's line; a text is given once, the first one of a line counts, and so in every pass."""
    first = define_string("a.py") + define_string("f") + define_code(1, 2, 10, b"\xe8\x00")
    first += define_code(1, 2, 11, b"\xe8\x00") + define_stack(0, 1, 0) + define_stack(2, 2, 0)
    parts = [
        meta_chunk(),
        lines_chunk((1, 10, 1, "too early: its code was not defined")),
        one_batch(lib, [], first),
        lines_chunk((1, 10, 2, "  x = f(\u20ac)"), (2, 12, 2, None), (3, 10, 1, None), (2**32 - 1, 0, 3, "")),
        lines_chunk((2, 11, 2, None), (1, 10, 1, None)),
        lines_chunk(),
        one_batch(lib, [], define_stack(0, 1, 7)),
        end_chunk(),
    ]
    with Reader(lib, write_file(tmp_path / "t.cmem", parts)) as reader:
        for _ in range(2):
            assert reader.read() == []
            assert reader.state == COMPLETE
            frames = [reader.frame(stack) for stack in (2, 3, 4)]
            text = "  x = f(\u20ac)".encode()
            assert [frame.text for frame in frames if frame] == [text, text, None]  # the last has no line
            reader.rewind()


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (varint(1) + b"\x01\x0a\x00", "a text that was not given before it"),
        (varint(1) + b"\x01\x0a\x02", "a text that was not given before it"),
        (varint(2) + b"\x01\x0a\x01\x01a" + b"\x01\x0b\x03\x01b", "a text that was not given before it"),
        (varint(2) + b"\x01\x0a\x01\x01a", "a text that was not given before it"),
        (varint(1) + b"\x01\x0a\x01\x05a", "longer than its chunk"),
        (varint(2**63) + b"\x01\x0a\x01\x01a", "a text that was not given before it"),
        (varint(1) + varint(2**32) + b"\x0a\x01\x01a", "a text that was not given before it"),
        (b"", "a chunk of source lines is damaged"),
        (b"\xff" * 11, "a chunk of source lines is damaged"),
    ],
)
def test_damaged_source_lines(lib: Any, tmp_path: Path, payload: bytes, message: str) -> None:
    parts = [meta_chunk(), one_batch(lib, some_events(3), DEFINITIONS), chunk(LINES, payload), end_chunk()]
    with Reader(lib, write_file(tmp_path / "t.cmem", parts)) as reader:
        for _ in range(2):
            assert len(reader.read()) == 3
            assert message in reader.error and reader.state == CUT
            reader.rewind()


@pytest.mark.parametrize(
    ("definitions", "message"),
    [
        (define_code(1, 2, 1, b""), "string"),
        (define_string("a") + define_code(1, 0, 1, b""), "string"),
        (define_string("a") + define_code(1, 2, 1, b"") + define_string("b"), "string"),
        (define_stack(0, 1, 0), "code"),
        (define_stack(0, 0, 0), "code"),
        (define_string("a") + define_code(1, 1, 1, b"") + define_stack(2, 1, 0), "parent"),
        (define_string("a") + define_code(1, 1, 1, b"") + define_stack(1, 1, 0), "parent"),
        (define_string("a") + define_code(1, 1, 1, b"") + define_stack(0, 1, 0, 0, 0, 2), "class"),
        (b"\x05", "unknown kind"),
        (b"\0", "unknown kind"),
        (b"\x01\x05abcd", "longer than its chunk"),
        (b"\x01" + varint(2**63) + b"a", "longer than its chunk"),
        (b"\x04" + b"\xff" * 11, "longer than its chunk"),
        (b"\x03\x00", "longer than its chunk"),
        (b"\x03" + varint(2**32) + bytes(5), "longer than its chunk"),
    ],
)
def test_damaged_definitions(lib: Any, tmp_path: Path, definitions: bytes, message: str) -> None:
    """Behind a right checksum: an error, after everything that came before."""
    good = one_batch(lib, some_events(3), DEFINITIONS)
    parts = [
        meta_chunk(),
        one_batch(lib, [Event(0, 0, FREE, 64)]),
        chunk(2, batch_payload(definitions=definitions)),
        good,
    ]
    with Reader(lib, write_file(tmp_path / "t.cmem", parts)) as reader:
        assert len(reader.read()) == 1
        assert (reader.last, reader.state) == (-1, CUT)
        assert message in reader.error
        assert reader.read() == []
        assert reader.last == -1


def test_undefined_references_in_events(lib: Any, tmp_path: Path) -> None:
    """They count as lost and never reach an index."""
    events = [Event(0, 0, ALLOC, 64, 1, 4), Event(0, 0, ALLOC, 64, 1, 3), Event(0, 0, ALLOC, 0, 0, 2**32 - 1)]
    events += [Event(0, 0, NODE_RUN, 1, 1, 1), Event(0, 0, NODE_RUN, 1, 1, 2)]
    parts = [meta_chunk(), one_batch(lib, events, DEFINITIONS), end_chunk(5, 0, 10)]
    with Reader(lib, write_file(tmp_path / "t.cmem", parts)) as reader:
        assert [e.stack for e in reader.events()] == [STACK_LOST, 3, STACK_LOST, 1, 0]
        assert reader.lost == (0, 13)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        bytes(23),
        batch_payload(count=1),
        batch_payload(count=0, section=b"\x05"),
        batch_payload(count=1, section=b"\x05"),
        batch_payload(count=1, section=b"\x05\x04"),
        batch_payload(count=1, section=b"\x15\x04\x00"),  # a unit of time that no clock has
        batch_payload(count=1, section=b"\x05\x04\x00\x04\x00"),  # more bytes than events
        batch_payload(count=2, section=b"\x05\x04\x00\x04"),
        batch_payload(count=2**63, section=b"\x05\x04\x00\x04\x00"),
        batch_payload(count=1, section=b"\x05\x41\x00\x00"),  # the block allocated last: there is none
        batch_payload(count=1, section=b"\x05\x40\x00\x00"),
        batch_payload(count=1, section=b"\x05\x29\x00\x00"),  # two sizes at once
        batch_payload(count=1, section=b"\x05\xc3\x00\x00"),
        batch_payload(count=1, section=b"\x05\x84\x00\x00"),
        batch_payload(count=1, section=b"\x05\x17\x01\x00"),
        batch_payload(count=1, section=b"\x05\x07\x01\x07\x02\x04\x00"),  # two thread switches
        batch_payload(count=1, section=b"\x05\x04\xff" + b"\x80" * 10 + b"\x01"),
        batch_payload(count=1, section=b"\x05\x04\xff" + b"\xff" * 9 + b"\x02"),
        batch_payload(count=1, section=b"\x05\x0e\x00\x10"),
        batch_payload(covers=[(2**20, 1)]),
        batch_payload()[:-2] + varint(2**40) + b"\0",
        batch_payload()[:-1],
        batch_payload()[:24] + varint(2**64 - 1),
        batch_payload()[:25] + b"\0" + varint(2**40) + b"\0",
    ],
)
def test_damaged_batches(lib: Any, tmp_path: Path, payload: bytes) -> None:
    parts = [meta_chunk(), one_batch(lib, some_events(3), DEFINITIONS), chunk(2, payload), end_chunk()]
    with Reader(lib, write_file(tmp_path / "t.cmem", parts)) as reader:
        assert reader.events()[:3] == some_events(3)
        assert (reader.last, reader.state) == (-1, CUT)
        assert reader.error


@pytest.mark.parametrize(
    "part",
    [
        chunk(1, varint(2**62)),
        chunk(1, varint(5000) + b"\0\0" * 5000),
        chunk(1, varint(1) + varint(2**40) + b"a"),
        chunk(1, b""),
        chunk(3, b"\0"),
        chunk(3, b"\0\0\0" + varint(2**50)),
    ],
)
def test_damaged_meta_and_end(lib: Any, tmp_path: Path, part: bytes) -> None:
    parts = [meta_chunk(), one_batch(lib, some_events(3), DEFINITIONS), part]
    with Reader(lib, write_file(tmp_path / "t.cmem", parts)) as reader:
        assert reader.events() == some_events(3)
        assert (reader.last, reader.state) == (-1, CUT)


@pytest.mark.parametrize("length", [CHUNK_MAX + 1, 2**32 - 1])
def test_chunks_beyond_the_bound(lib: Any, tmp_path: Path, length: int) -> None:
    parts = [meta_chunk(), chunk(2, b"x", length)]
    with Reader(lib, write_file(tmp_path / "t.cmem", parts)) as reader:
        assert reader.read() == []
        assert (reader.last, reader.state) == (0, CUT)
        assert "no chunk begins there" in reader.error


# --- a process that did not stop ---------------------------------------------------------------


RING_META = meta_chunk(("ring.path", "/dev/shm/ring"), ("ring.id", "0x1234567890abcdef"))


def covered(lib: Any, events: list[Event], covers: dict[int, int], log: int, definitions: bytes = b"") -> bytes:
    batch = Batch(lib)
    batch.begin(0, 0, 0)
    batch.define(definitions)
    batch.add(events)
    for ring, position in covers.items():
        assert batch.cover(ring, position)
    batch.log(log)
    data = batch.finish()
    batch.close()
    return data


def test_ring_file_takes_over(lib: Any, tmp_path: Path) -> None:
    events = some_events(12)
    first = covered(lib, events[:4], {0: 4, 5: 9}, 100, DEFINITIONS)
    second = covered(lib, events[4:8], {0: 6, 2: 1}, 120)
    tail = covered(lib, events[8:10], {}, 0, define_stack(3, 1, 0)) + covered(lib, events[10:], {}, 0)
    for partial in (b"", covered(lib, events, {0: 99}, 999)[:-5], b"CCH"):
        path = write_file(tmp_path / "t.cmem", [RING_META, first, second, partial])
        lib.double_orphan(TAIL_FOUND, tail, len(tail))
        with Reader(lib, path) as reader:
            assert reader.events() == events
            assert (reader.last, reader.state, reader.error) == (0, RECOVERED, "")
            assert (ctypes.c_char * 512).in_dll(lib, "double_path").value == b"/dev/shm/ring"
            assert ctypes.c_uint64.in_dll(lib, "double_id").value == 0x1234567890ABCDEF
            assert ctypes.c_uint64.in_dll(lib, "double_log").value == 120
            count = ctypes.c_size_t.in_dll(lib, "double_cover_count").value
            positions = list((ctypes.c_uint64 * 64).in_dll(lib, "double_cover"))[:count]
            assert positions[:6] == [6, 0, 1, 0, 0, 9] and not any(positions[6:])
            reader.rewind()
            assert reader.events() == events
            assert (reader.state, reader.parent(4)) == (RECOVERED, 3)
            assert ctypes.c_int.in_dll(lib, "double_calls").value == 1


def test_empty_and_damaged_tails(lib: Any, tmp_path: Path) -> None:
    events = some_events(4)
    path = write_file(tmp_path / "t.cmem", [RING_META, covered(lib, events[:2], {}, 0, DEFINITIONS)])
    good = covered(lib, events[2:], {}, 0)
    for tail, state, count in [
        (b"", RECOVERED, 2),
        (good[:-1], CUT, 2),
        (good + b"?" * 16, CUT, 4),
        (good + b"?", CUT, 4),
    ]:
        lib.double_orphan(TAIL_FOUND, tail, len(tail))
        with Reader(lib, path) as reader:
            for _ in range(2):
                assert reader.events() == events[:count]
                assert (reader.last, reader.state) == (0, state)
                assert ("ring file" in reader.error) == (state == CUT)
                reader.rewind()


def test_while_recording(lib: Any, tmp_path: Path) -> None:
    events = some_events(6)
    more = covered(lib, events[4:], {}, 0)
    path = write_file(tmp_path / "t.cmem", [RING_META, covered(lib, events[:4], {}, 0, DEFINITIONS), more[:20]])
    lib.double_orphan(TAIL_ALIVE, b"", 0)
    with Reader(lib, path) as reader:
        assert reader.events() == events[:4]
        assert (reader.last, reader.state, reader.error) == (0, RECORDING, "")
        with path.open("ab") as file:
            file.write(more[20:])
        reader.rewind()
        assert reader.events() == events[:4]  # one reader, one state of the file
    with Reader(lib, path) as reader:
        assert reader.events() == events


@pytest.mark.parametrize("answer", [0, TAIL_FOUND])
def test_process_that_ends_while_it_is_read(lib: Any, tmp_path: Path, answer: int) -> None:
    """The ring was gone, or free, only because the process had written the rest in the meantime."""
    events = some_events(6)
    path = write_file(tmp_path / "t.cmem", [RING_META, covered(lib, events[:4], {}, 0, DEFINITIONS)])
    rest = covered(lib, events[4:], {}, 0) + end_chunk(6)
    stale = covered(lib, events[4:], {}, 0)
    lib.double_orphan(answer, stale, len(stale))
    lib.double_orphan_grows(str(path).encode(), rest, len(rest))
    with Reader(lib, path) as reader:
        assert reader.events() == events
        assert reader.state == COMPLETE


def test_no_ring_file(lib: Any, tmp_path: Path) -> None:
    path = write_file(tmp_path / "t.cmem", [RING_META, covered(lib, some_events(2), {}, 0, DEFINITIONS)])
    with Reader(lib, path) as reader:
        assert len(reader.read()) == 2
        assert reader.state == CUT
        assert "ring file is not here" in reader.error


# --- time ------------------------------------------------------------------------------------------


def timed(lib: Any, tmp_path: Path, *batches: tuple[tuple[int, int, int], list[int]]) -> tuple[list[int], int]:
    encoder = Batch(lib)
    parts = [meta_chunk()]
    for anchor, times in batches:
        encoder.begin(*anchor)
        encoder.add([Event(0, t, FREE, 64 * i) for i, t in enumerate(times)])
        parts.append(encoder.finish())
    encoder.close()
    with Reader(lib, write_file(tmp_path / "t.cmem", [*parts, end_chunk()])) as reader:
        records = reader.read()
        assert (reader.last, reader.state) == (0, COMPLETE)
        first = [r.time_ns for r in records]
        reader.rewind()
        assert [r.time_ns for r in reader.read()] == first
        return first, int(lib.cm_reader_start_realtime_ns(reader.handle))


def test_time_is_piecewise_linear(lib: Any, tmp_path: Path) -> None:
    """2 ticks a nanosecond, then 1: the middle of each stretch is the middle of its time."""
    second = 10**9
    got, realtime = timed(
        lib,
        tmp_path,
        ((640 * second, 7 * second, 99 * second), []),
        ((642 * second, 8 * second, 100 * second), [641 * second, 642 * second]),
        ((643 * second, 9 * second, 101 * second), [642 * second + second // 2, 643 * second, 642 * second]),
    )
    wanted = [second // 2, second, second + second // 2, 2 * second, second]
    assert all(abs(a - b) <= 64 for a, b in zip(got, wanted, strict=True)), got
    assert realtime == 99 * second


def test_events_before_the_first_anchor(lib: Any, tmp_path: Path) -> None:
    """The first batch is drained after its events: they lie before its anchor, and none before 0."""
    ms = 10**6
    got, realtime = timed(
        lib,
        tmp_path,
        ((50_000 * ms, 900 * ms, 3000 * ms), [49_900 * ms, 49_850 * ms, 50_000 * ms]),
        ((50_500 * ms, 1100 * ms, 3200 * ms), [50_250 * ms]),
    )
    wanted = [20 * ms, 0, 60 * ms, 160 * ms]
    assert all(abs(a - b) <= 64 for a, b in zip(got, wanted, strict=True)), got
    assert abs(realtime - 2940 * ms) <= 64


def test_a_single_anchor(lib: Any, tmp_path: Path) -> None:
    got, _ = timed(lib, tmp_path, ((10**12, 10**12, 5), [10**12 - 3200, 10**12, 10**12 + 6400]))
    assert got == [0, 3200, 9600]
    # a counter that counts from boot, as the clock does
    got, _ = timed(lib, tmp_path, ((25 * 10**12, 10**13, 5), [25 * 10**12, 25 * 10**12 + 6400]))
    assert got == [0, 2560]


@pytest.mark.parametrize(
    "anchors",
    [
        [(5, 5, 5), (5, 5, 5)],
        [(2**64 - 1, 2**64 - 1, 2**64 - 1), (0, 0, 0)],
        [(0, 0, 0), (2**64 - 1, 2**64 - 1, 0), (1, 2**63, 9)],
        [(2**63, 0, 0), (2**63 + 1, 2**63, 0), (0, 2**64 - 1, 0)],
    ],
)
def test_nonsense_anchors(lib: Any, tmp_path: Path, anchors: list[tuple[int, int, int]]) -> None:
    times = [0, 1, 2**63 - 1, 2**63, 2**64 - 1]
    got, _ = timed(lib, tmp_path, *((anchor, times) for anchor in anchors))
    assert len(got) == len(times) * len(anchors)
    assert all(0 <= t < 2**63 for t in got)


def test_progress(lib: Any, tmp_path: Path) -> None:
    parts = [meta_chunk(), one_batch(lib, some_events(50), DEFINITIONS), one_batch(lib, some_events(50)), end_chunk()]
    with Reader(lib, write_file(tmp_path / "t.cmem", parts)) as reader:
        seen = [lib.cm_reader_progress(reader.handle)]
        while reader.read(10):
            seen.append(lib.cm_reader_progress(reader.handle))
        seen.append(lib.cm_reader_progress(reader.handle))
        assert seen == sorted(seen)
        assert 0 <= seen[0] < seen[1] < seen[-1] == 1
