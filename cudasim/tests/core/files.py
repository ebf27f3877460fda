"""Reads the report and the log as cudasim/csrc/core/report.h describes them, by offsets: an independent reader."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

HEADER, DEVICE, NOTE, RECORD = 256, 256, 96, 64
ROOM, NOTES = 16, 256


@dataclass(frozen=True)
class Device:
    name: str
    counters: dict[str, int]
    capability: tuple[int, int]
    sms: int
    ordinal: int


@dataclass(frozen=True)
class Report:
    header: dict[str, int]
    devices: list[Device]
    notes: dict[tuple[int, str], tuple[int, int]]  # (kind, name): (count, bytes)


@dataclass(frozen=True)
class Record:
    time: int
    address: int
    bytes: int
    change: int
    used: int
    extra: int
    charged: int
    thread: int
    device: int
    op: int
    kind: int


def text(raw: bytes) -> str:
    return raw.split(b"\0")[0].decode()


def read_report(path: Path) -> Report:
    raw = path.read_bytes()
    assert len(raw) == HEADER + ROOM * DEVICE + NOTES * NOTE
    assert raw[:8] == b"CUPTISIM"
    version, *sizes = struct.unpack_from("<6I", raw, 8)
    assert version == 1 and sizes == [HEADER, DEVICE, ROOM, NOTE, NOTES]
    pid, count, notes, dropped = struct.unpack_from("<4I", raw, 32)
    started, copy_max, workspace, handle, lag, timing = struct.unpack_from("<QQqqII", raw, 48)
    entry_ns, entries, host, host_peak = struct.unpack_from("<4Q", raw, 88)
    header = {"pid": pid, "dropped": dropped, "started": started, "copy_max": copy_max, "workspace": workspace}
    header |= {"handle": handle, "lag": lag, "timing": timing, "entry_ns": entry_ns, "entries": entries}
    header |= {"host": host, "host_peak": host_peak}
    names = "total context used peak peak_library library allocs frees refused refused_least refused_used limited"
    names += " reads read_bytes known_reads known_bytes"
    devices = []
    for at in range(HEADER, HEADER + count * DEVICE, DEVICE):
        numbers = dict(zip(names.split(), struct.unpack_from("<16Q", raw, at + 64), strict=True))
        major, minor, sms, ordinal = struct.unpack_from("<4i", raw, at + 192)
        devices.append(Device(text(raw[at : at + 64]), numbers, (major, minor), sms, ordinal))
    begin = HEADER + ROOM * DEVICE
    found = {}
    for at in range(begin, begin + notes * NOTE, NOTE):
        kind, _, times, most = struct.unpack_from("<IIQQ", raw, at)
        found[kind, text(raw[at + 24 : at + 88])] = (times, most)
    assert not any(raw[begin + notes * NOTE :])
    return Report(header, devices, found)


def read_log(path: Path) -> list[Record]:
    raw = path.read_bytes()
    assert len(raw) % RECORD == 0
    return [Record(*fields) for fields in struct.iter_unpack("<3Qq3QIhBB", raw)]
