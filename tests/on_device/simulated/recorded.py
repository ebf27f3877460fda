"""What cuptimem recorded, replayed event by event without cuptimem's own analysis."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

CUDA = 1  # c10::DeviceType
DIRECT = 8  # CM_EVF_DIRECT
NO_DEVICE = -1  # the device of a free that is the address's own


@dataclass
class Block:
    size: int
    requested: int
    direct: bool
    """Taken from CUDA for itself: in none of the caching allocator's totals."""


@dataclass
class Device:
    """One device after the events replayed so far. Bytes."""

    live: dict[int, Block] = field(default_factory=dict)
    segments: dict[int, int] = field(default_factory=dict)
    allocated: int = 0
    direct: int = 0
    """Of them, taken from CUDA for themselves."""
    peak: int = 0
    segment_bytes: int = 0
    segment_peak: int = 0
    reserved: list[tuple[int, int]] = field(default_factory=list)
    """Each change of the reserved total as the allocator reported it: allocated and reserved."""
    history: list[tuple[str, int, int]] = field(default_factory=list)
    """alloc, free with the requested size, segment_alloc, segment_free with the segment's: action, address, size."""
    stacks: list[tuple[Any, ...] | None] = field(default_factory=list)
    """Of each alloc in history."""
    unknown_frees: int = 0
    disagreed: list[str] = field(default_factory=list)
    """Where the allocator reported another sum of what it has given out than the blocks recorded so far have."""
    ooms: list[int] = field(default_factory=list)

    def alloc(self, address: int, block: Block) -> None:
        assert address not in self.live, f"a block at {address:#x} was given out twice"
        self.live[address] = block
        self.allocated += block.size
        self.direct += block.size if block.direct else 0
        self.peak = max(self.peak, self.allocated)

    def free(self, address: int) -> Block | None:
        block = self.live.pop(address, None)
        if block is None:
            self.unknown_frees += 1
        else:
            self.allocated -= block.size
            self.direct -= block.size if block.direct else 0
        return block


# What PyTorch's allocators do; the driver level is driver_events.py's.
PYTORCHS = {"alloc", "seed", "free", "segment_new", "segment_free", "reserved", "oom"}


def _where(devices: dict[int, Device], address: int) -> int:
    for index, device in devices.items():
        if address in device.live or address in device.segments:
            return index
    return NO_DEVICE


def replay(events: list[tuple[Any, ...]]) -> tuple[dict[int, Device], tuple[Any, ...]]:
    """CUDA devices by index, from what _core.trace_dump returned, and its last tuple."""
    *records, end = events
    assert end[0] == "end", "the dump was cut short"
    requested: dict[int, int] = {}  # index of an alloc -> bytes asked for: behind it, by the same thread
    last: dict[int, int] = {}
    for index, event in enumerate(records):
        kind, _, thread, address, size = event[:5]
        if kind in ("alloc", "seed"):
            last[thread] = index
        elif kind == "requested":
            alloc = last[thread]
            assert records[alloc][3] == address, f"the size asked for at {address:#x} follows another block"
            assert alloc not in requested, f"the size asked for at {address:#x} was recorded twice"
            requested[alloc] = size
    # A thread may have been stopped between the clock and the ring.
    order = sorted(range(len(records)), key=lambda index: records[index][1])
    devices: dict[int, Device] = defaultdict(Device)
    for index in order:
        kind, _, _, address, size, origin, flags, device_type, device_index = records[index]
        if device_type != CUDA or kind not in PYTORCHS:
            continue
        if device_index == NO_DEVICE:
            device_index = _where(devices, address)
        device = devices[device_index]
        if kind in ("alloc", "seed"):
            block = Block(size, requested.get(index, size), bool(flags & DIRECT))
            device.alloc(address, block)
            if kind == "alloc":
                device.history.append(("alloc", address, block.requested))
                device.stacks.append(origin)
        elif kind == "free" or (kind == "segment_free" and address in device.live):
            freed = device.free(address)
            device.history.append(("free", address, freed.requested if freed else size))
        elif kind == "segment_new":
            assert address not in device.segments, f"a segment at {address:#x} was given out twice"
            device.segments[address] = size
            device.segment_bytes += size
            device.segment_peak = max(device.segment_peak, device.segment_bytes)
            device.history.append(("segment_alloc", address, size))
        elif kind == "segment_free":
            bytes_freed = device.segments.pop(address, 0)
            device.unknown_frees += bytes_freed == 0
            device.segment_bytes -= bytes_freed
            device.history.append(("segment_free", address, bytes_freed))
        elif kind == "reserved":
            if not device.reserved or device.reserved[-1][1] != size:  # at times it is reported again
                device.reserved.append((address, size))
            if address != device.allocated - device.direct:
                said = f"the allocator has given out {address} bytes, recorded are {device.allocated - device.direct}"
                device.disagreed.append(said)
        elif kind == "oom":
            device.ooms.append(size)
    return dict(devices), end
