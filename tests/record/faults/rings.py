"""Ring files as a killed process leaves them (csrc/capture/ring_layout.h), with any count in them."""

import struct
from pathlib import Path

from tests.record.faults.traces import craft, tracelib

HEADER, PATH, TABLE, BLOCK, RING = 4608, 448, 2048, 16384, 128  # bytes, but TABLE: rings
BLOCK_EVENTS = BLOCK // 32 - 1
BYTES_LEAST = 1 << 20
ID = 77
MOST = 2**64 - 1
COUNTS = {"log_head": 128, "unowned_lost": 256}  # where they are in the header
OF_RING = {"head": 0, "lost": 8, "lost_at": 16, "lost_total": 24}


def beside(trace: Path) -> Path:
    """Where the ring of a crafted trace lies."""
    return trace.with_name(f".cuptimem-ring-{trace.name}")


def event(e: craft.Event) -> bytes:
    fields = (e.time, e.address, e.size, e.stack, e.kind, e.flags, e.device_type, e.device_index)
    return struct.pack("<QQqIBBBb", *fields)


class Image:
    """One ring file: a log of definitions, and blocks."""

    def __init__(self, log: bytes = b"", *, log_bytes: int = 0, blocks: int = 0) -> None:
        self.log_at = HEADER + TABLE * RING
        room = max(log_bytes, len(log), 64) + 4095 & ~4095
        self.blocks_at = self.log_at + room
        least = -(-(BYTES_LEAST - self.blocks_at) // BLOCK)
        self.blocks, self.used = max(blocks, least, 1), 0
        self.data = bytearray(self.blocks_at + self.blocks * BLOCK)
        total = len(self.data)
        struct.pack_into("<QIIII", self.data, 0, 0x31474E49524D4354, 1, TABLE, BLOCK, self.blocks)
        struct.pack_into("<QQQQQQ", self.data, 24, ID, total, HEADER, self.log_at, room, self.blocks_at)
        self.data[self.log_at : self.log_at + len(log)] = log
        self.count("log_head", len(log))
        self.covers: list[tuple[int, int]] = []  # what the trace says that it has: ring and position
        self.covered_log = 0

    def count(self, name: str, value: int) -> None:
        struct.pack_into("<Q", self.data, COUNTS[name], value)

    def ring(self, number: int, *, thread: int = 1, **counts: int) -> None:
        at = HEADER + number * RING
        struct.pack_into("<Ii", self.data, at + 32, thread, thread & 0x7FFFFFFF)
        for name, value in counts.items():
            struct.pack_into("<Q", self.data, at + OF_RING[name], value)

    def block(self, ring: int, base: int, events: bytes) -> None:
        """The next free block: of this ring, its first event at position `base`."""
        at = self.blocks_at + self.used * BLOCK
        struct.pack_into("<IIQ", self.data, at, ring + 1, self.used, base)
        self.data[at + 32 : at + 32 + len(events)] = events
        self.used += 1


def of_trace(trace: craft.Trace) -> Image:
    """All that the trace would hold, in rings: one for each of its threads, as far as there are rings."""
    threads: dict[int, list[bytes]] = {}
    for e in trace.events:
        if e.thread in threads or len(threads) < TABLE:
            threads.setdefault(e.thread, []).append(event(e))
    needed = sum(-(-len(events) // BLOCK_EVENTS) for events in threads.values())
    image = Image(bytes(trace.definitions), blocks=needed)
    for number, (thread, events) in enumerate(threads.items()):
        image.ring(number, thread=thread, head=len(events))
        for base in range(0, len(events), BLOCK_EVENTS):
            image.block(number, base, b"".join(events[base : base + BLOCK_EVENTS]))
    return image


def wild_counts(trace: craft.Trace) -> Image:
    """Every position and loss as high as it goes, blocks that lie far apart, and the log longer than it is."""
    events = [event(e) for e in trace.events]
    image = Image(bytes(trace.definitions))
    for number in range(TABLE):
        image.ring(number, thread=number, head=MOST, lost=MOST - number, lost_total=MOST, lost_at=MOST)
    for i in range(9):
        image.block(i % 7, i * (MOST // 9), b"".join(events[:BLOCK_EVENTS]))
    image.count("unowned_lost", MOST)
    image.covers = [(number, MOST - number) for number in range(0, TABLE, 3)] + [(1 << 19, MOST)]
    return image


def shared_positions(trace: craft.Trace) -> Image:
    """Blocks of one ring that begin one event after each other, or at the same one."""
    events = [event(e) for e in trace.events]
    image = Image(bytes(trace.definitions), blocks=64)
    image.ring(0, head=1 << 40)
    for i in range(image.blocks):
        image.block(0, i // 2, b"".join(events[i : i + BLOCK_EVENTS]))
    return image


def long_log(trace: craft.Trace) -> Image:
    """A log that is as long as its room and begins in the middle of a record: all after it is something else."""
    image = of_trace(trace)
    room = image.blocks_at - image.log_at
    image.covered_log = len(trace.definitions) // 2
    image.count("log_head", room + image.covered_log)
    return image


def all_of_it(trace: craft.Trace) -> Image:
    """The log and the blocks are the whole file, its header too."""
    image = of_trace(trace)
    total = len(image.data)
    struct.pack_into("<QQQ", image.data, 48, 0, total, 0)
    struct.pack_into("<I", image.data, 20, total // BLOCK)
    image.count("log_head", total)
    return image


def no_kinds(trace: craft.Trace) -> Image:
    """Events of kinds that no ring has."""
    image = of_trace(trace)
    for at in range(image.blocks_at, len(image.data), BLOCK):
        for i in range(BLOCK_EVENTS):
            image.data[at + 32 + i * 32 + 28] = (0, 16, 17, 31, 255)[i % 5]
    return image


WILD = {one.__name__: one for one in (wild_counts, shared_positions, long_log, all_of_it, no_kinds)}


def write(trace: Path, image: Image, meta: dict[str, str]) -> Path:
    """A trace without events that has what the image says, and beside it the ring."""
    path = beside(trace)
    name = str(trace).encode()
    image.data[PATH : PATH + len(name)] = name
    path.write_bytes(image.data)
    pairs = {**meta, "ring.id": str(ID), "ring.path": str(path)}
    batch = tracelib.batch_payload(anchor=(1 << 20, 1 << 20, 1 << 60), covers=image.covers, log=image.covered_log)
    chunks = (tracelib.meta_chunk(*pairs.items()), tracelib.chunk(tracelib.BATCH, batch))
    trace.write_bytes(tracelib.header() + b"".join(chunks))
    return trace
