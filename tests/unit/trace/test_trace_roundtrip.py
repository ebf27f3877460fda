"""What goes into the encoder comes out of the reader: every field, every order, every batch."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tracelib import (
    COMPLETE,
    NO_SEQUENCE,
    STACK_FIRST,
    Batch,
    Event,
    Reader,
    chunks_of,
    decode_batch,
    define_code,
    define_name,
    define_stack,
    define_string,
    end_chunk,
    meta_chunk,
    one_batch,
    write_file,
)

from tests.event_kinds import (
    ALLOC,
    DEFERRED_FREE,
    DRIVER_MORE,
    DRIVER_NEW,
    DRIVER_RECORD,
    FREE,
    HOLDER,
    HOLDER_PATH,
    HOST_READ,
    LABEL,
    LAUNCH,
    MARK,
    NODE_DONE,
    NODE_FREE,
    NODE_NEW,
    NODE_RUN,
    OBJECT_NEW,
    OOM,
    OPERATOR,
    REQUESTED,
    SEGMENT_NEW,
    TICK,
    WORK,
)

STACKS = 300
DEFINITIONS = (
    define_string("file.py")
    + define_string("f")
    + define_code(1, 2, 1, b"")
    + b"".join(define_stack(0, 1, i) for i in range(STACKS))
    + b"".join(define_name(f"N{i}") for i in range(STACKS + STACK_FIRST))
)

u64 = st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 1, 63, 64, 2**63 - 1, 2**63, 2**64 - 1]))
addresses = st.one_of(st.sampled_from([0x7F0000000000 + 64 * i for i in range(12)] + [0, 7]), u64)
sizes = st.one_of(
    st.sampled_from([0, 4, 64, 4096, 3_145_728, 2**61, -(2**61)]),
    st.integers(0, 1 << 40),
    st.integers(-(2**63), 2**63 - 1),
)
defined = st.one_of(st.sampled_from([0, 1, 2, 3, 200]), st.integers(0, STACKS + STACK_FIRST - 1))
sequences = st.one_of(st.integers(0, 40), st.just(NO_SEQUENCE), u64)
small = st.integers(0, 3)
# Kinds whose `stack` is an id that has to be defined.
REFER = {ALLOC, OOM, NODE_NEW, TICK, NODE_RUN, OBJECT_NEW, SEGMENT_NEW, HOST_READ, MARK}
REFER |= {DRIVER_NEW, DRIVER_MORE, DRIVER_RECORD, LAUNCH, WORK, LABEL, HOLDER, HOLDER_PATH, OPERATOR}


@st.composite
def event(draw: st.DrawFn, time: int) -> Event:
    kind = draw(
        st.one_of(
            st.sampled_from([ALLOC, ALLOC, FREE, FREE, NODE_NEW, NODE_RUN, NODE_DONE, NODE_FREE, REQUESTED]),
            st.integers(DRIVER_NEW, DEFERRED_FREE),
            st.integers(LABEL, OPERATOR),
            st.integers(1, 255),
        )
    )
    typical = draw(st.booleans())
    thread = draw(st.one_of(st.sampled_from([0, 1, 2, 258]), st.integers(0, 2**32 - 1)))
    flags, device = draw(st.sampled_from([(0, (0, -1)), (3, (0, -1)), (0, (1, 0)), (255, (255, 127))]))
    stack = draw(defined)
    address = draw(sequences if kind in (NODE_NEW, NODE_RUN, NODE_FREE) else addresses)
    size = draw(sizes)
    if typical:  # nothing in fields that this kind leaves unused
        if kind in (FREE, NODE_FREE, NODE_DONE):
            stack = 0
        if kind in (NODE_NEW, NODE_DONE):
            size = 0
        if kind == NODE_DONE:
            address = 0
    elif kind not in REFER:
        stack = draw(st.integers(0, 2**32 - 1))
    return Event(thread, time, kind, address, size, stack, flags, *device)


@st.composite
def batches(draw: st.DrawFn) -> list[list[Event]]:
    now = draw(st.one_of(st.just(10**15), u64))
    out = []
    for _ in range(draw(st.integers(1, 3))):
        batch = []
        for _ in range(draw(st.integers(0, 40))):
            step = draw(
                st.one_of(
                    st.integers(0, 20_000), st.sampled_from([223, 224, 8159, 8160, 1 << 40]), st.integers(-50_000, 0)
                )
            )
            now = (now + step) % 2**64
            batch.append(draw(event(now)))
        out.append(batch)
    return out


def shift_of(data: bytes) -> int:
    """The unit of time that the encoder chose: the first byte of the events section."""
    [(_, _, payload)] = chunks_of(b"\0" * 16 + data)
    at = 24
    fields = []
    for i in range(3):  # length of definitions, number of events, length of the section
        value = shift = 0
        while True:
            value |= (payload[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if payload[at - 1] < 0x80:
                break
        fields.append(value)
        at += value if i == 0 else 0
    assert fields[2] == 0 or payload[at] <= 6
    return payload[at] if fields[2] else 0


def quantised(event: Event, shift: int) -> Event:
    return event._replace(time=event.time >> shift << shift)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    batches=batches(),
    anchor=st.sampled_from([(10**15, 10**15, 0), (10**15, 4 * 10**14, 0), (0, 0, 0), (2**64 - 1, 5, 7)]),
)
def test_any_events_come_back(
    lib: Any, tmp_path: Path, batches: list[list[Event]], anchor: tuple[int, int, int]
) -> None:
    encoder = Batch(lib)
    chunks, expected = [meta_chunk(("a", "b"))], []
    for i, events in enumerate(batches):
        encoder.begin(*anchor)
        encoder.define(DEFINITIONS if i == 0 else b"")
        encoder.add(events)
        assert lib.cm_batch_events(encoder.handle) == len(events)
        data = encoder.finish()
        assert len(data) <= lib.cm_batch_size(encoder.handle)
        chunks.append(data)
        [(_, _, payload)] = chunks_of(b"\0" * 16 + data)
        assert decode_batch(payload) == [quantised(e, shift_of(data)) for e in events]
        expected += [quantised(e, shift_of(data)) for e in events]
    encoder.close()
    path = write_file(tmp_path / "t.cmem", [*chunks, end_chunk()])
    with Reader(lib, path) as reader:
        assert reader.events() == expected
        assert (reader.last, reader.state, reader.error) == (0, COMPLETE, "")
        reader.rewind()
        assert reader.events() == expected


def test_every_batch_starts_afresh(lib: Any) -> None:
    """The same events give the same bytes whatever was encoded before: a chunk decodes alone."""
    encoder = Batch(lib)
    events = [Event(1, 64 * i, ALLOC, 4096 + 64 * (i % 7), 512, 2 + i % 3) for i in range(100)]
    seen = set()
    for n in (3, 100, 17, 100, 0, 100):
        encoder.begin(0, 0, 0)
        encoder.add([e._replace(address=e.address + 999, thread=5) for e in events[:n]] if n != 100 else events)
        data = encoder.finish()
        if n == 100:
            seen.add(data)
    encoder.close()
    assert len(seen) == 1


def test_more_threads_than_slots_and_long_reuse(lib: Any, tmp_path: Path) -> None:
    """Predictors of a bounded size wrap around: more threads, blocks and names than they remember."""
    events = []
    for i in range(60_000):
        thread = i * 7 % 700
        events.append(Event(thread, i * 64, NODE_RUN, 5 * 10**6 - i, thread, 1 + i % 290))
        events.append(Event(thread, i * 64, ALLOC, 0x10000 + 64 * i, 64 * (i % 97), 2 + i % 290, i % 2))
        if i >= 20_000:  # farther back than the ring of recent blocks reaches
            events.append(Event(thread, i * 64, FREE, 0x10000 + 64 * (i - 20_000), 64 * ((i - 20_000) % 97) * (i % 2)))
        if i % 3 == 0:
            events.append(Event(thread, i * 64, FREE, 0x10000 + 64 * i))
    path = write_file(tmp_path / "t.cmem", [meta_chunk(), one_batch(lib, events, DEFINITIONS), end_chunk()])
    with Reader(lib, path) as reader:
        assert reader.events() == events


def test_fields_of_the_batch(lib: Any) -> None:
    """The outer layout as format.h says, read by other code."""
    batch = Batch(lib)
    batch.begin(1, 2, 3)
    batch.define(b"ab")
    batch.define(b"c")
    assert batch.cover(7, 300)
    assert batch.cover(0xFFFFF, 1)
    assert not batch.cover(0x100000, 1)
    batch.log(129)
    data = batch.finish()
    batch.close()
    [(_, kind, payload)] = chunks_of(b"\0" * 16 + data)
    assert kind == 2
    words = b"".join(n.to_bytes(8, "little") for n in (1, 2, 3))
    assert payload == words + b"\x03abc" + b"\0\0" + b"\x02" + b"\x07\xac\x02" + b"\xff\xff\x3f\x01" + b"\x81\x01"


@pytest.mark.parametrize(
    ("events", "section"),
    [
        # shift 5 (a clock in nanoseconds), switch to thread 1, ALLOC with all its fields, its FREE by age
        (
            [Event(1, 64, ALLOC, 0x40, 64, 4, 1, 2, -1), Event(1, 32 * 300, FREE, 0x40, 64, 0, 1, 2, -1)],
            "05 0701 b8 02 08 0102ff 05 02" + " 59 e04a 00 0102ff",
        ),
        # back to thread 0; a node; one without a sequence number; a time that steps back
        (
            [
                Event(0, 0, NODE_NEW, 1, 0, 0),
                Event(0, 320, NODE_RUN, NO_SEQUENCE, 7, 3),
                Event(0, 256, NODE_DONE),
                Event(0, 256, NODE_FREE, 9),
            ],
            "05 02 00" + " ab 0a 0e 03" + " 04 ff03" + " 45 00 12",
        ),
        # kinds without a short form, and a kind from the future
        ([Event(0, 0, 13, 1, 2), Event(0, 0, 200, 3, 0, 1)], "05 6e 00 06 02 04" + " fe c8 00 0a 06 02"),
    ],
)
def test_bytes_of_events(lib: Any, events: list[Event], section: str) -> None:
    """The event encoding byte by byte, as encode.h documents it: other readers may rely on it."""
    expected = bytes.fromhex(section)
    [(_, _, payload)] = chunks_of(b"\0" * 16 + one_batch(lib, events))
    assert payload[24] == 0  # no definitions
    assert payload[25] == len(events)
    assert payload[26] == len(expected)
    assert payload[27 : 27 + len(expected)].hex(" ") == expected.hex(" ")
