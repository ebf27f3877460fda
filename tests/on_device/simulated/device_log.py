"""The simulated device's own log (CUPTIMEM_SIM_LOG) and report (CUPTIMEM_SIM_REPORT): what it gave out and took back.

Layouts: cudasim/csrc/core/report.h.
"""

import struct
from dataclasses import dataclass
from pathlib import Path

_RECORD = struct.Struct("<QQQqQQQIhBB")
_OPS = {
    1: "context",
    2: "alloc",
    3: "free",
    4: "reserve",
    5: "unreserve",
    6: "create",
    7: "destroy",
    8: "map",
    9: "unmap",
    10: "refused",
    11: "limited",
    12: "host alloc",
    13: "host free",
    14: "host register",
    15: "host unregister",
    16: "pool alloc",
    17: "pool free",
    18: "context end",
}
_KINDS = {0: "", 1: "device", 2: "pool", 3: "managed", 4: "mapped", 5: "library", 6: "array"}


@dataclass(frozen=True)
class Record:
    """One call that took effect. Bytes; `used` is the device's total after it."""

    op: str
    kind: str
    device: int
    address: int
    bytes: int
    change: int
    used: int
    extra: int = 0
    thread: int = 0
    time: int = 0
    """CLOCK_MONOTONIC, ns."""


def records(path: Path) -> list[Record]:
    data = path.read_bytes()
    assert len(data) % _RECORD.size == 0, f"{path} ends in the middle of a record"
    found = []
    for time, address, size, change, used, extra, _, thread, device, op, kind in _RECORD.iter_unpack(data):
        found.append(Record(_OPS[op], _KINDS[kind], device, address, size, change, used, extra, thread, time))
    return found


@dataclass(frozen=True)
class Used:
    """Of one device, bytes."""

    context: int
    used: int
    peak: int
    library: int


def report(path: Path) -> list[Used]:
    """The devices that the program sees."""
    data = path.read_bytes()
    assert data[:8] == b"CUPTISIM", f"{path} is no report"
    version, header, size, _, _, _, _, devices = struct.unpack_from("<8I", data, 8)
    assert version == 1, f"{path} has version {version}"
    found = []
    for index in range(devices):
        context, used, peak, _, library = struct.unpack_from("<5Q", data, header + index * size + 72)
        found.append(Used(context, used, peak, library))
    return found
