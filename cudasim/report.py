"""Reads what the simulated device counted: the file of csrc/core/report.h, little-endian, fixed offsets."""

import glob
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass

_MAGIC, _VERSION = b"CUPTISIM", 1
_HEADER = struct.Struct("<8s10I2Q2q2I4Q")  # up to host_peak
_DEVICE = struct.Struct("<64s16Q4i")
_NOTE = struct.Struct("<II2Q64s")

UNDESCRIBED, REFUSED, MODELLED, LIMIT = 1, 2, 3, 4  # cm_sim_note_kind


class Damaged(ValueError):
    """A file is no report, or no whole one of this version; the text names it."""


@dataclass(frozen=True, slots=True)
class Counts:
    """One device of one process, bytes and calls."""

    index: int  # as the program numbers it
    ordinal: int  # of all the simulated devices: CUDA_VISIBLE_DEVICES may number them otherwise
    name: str
    total: int
    context: int
    now: int  # in use, context and libraries included; as the peak
    peak: int
    peak_library: int  # of the peak: what library handles held
    allocs: int
    refused: int
    limited: int  # refused by this machine's limits and not by the device's
    reads: int  # host reads that met simulated bytes
    read_bytes: int
    known_reads: int

    @property
    def touched(self) -> bool:
        """Whether the program used it at all."""
        return self.context > 0 or self.allocs > 0 or self.refused > 0


@dataclass(frozen=True, slots=True)
class Note:
    """A note of the device, of one of the kinds above."""

    kind: int
    name: str
    count: int
    bytes: int  # the largest number that came with it


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """What one process did to the devices."""

    pid: int
    devices: tuple[Counts, ...]
    notes: tuple[Note, ...]
    notes_dropped: int
    entry_ns: int  # 0 where it was not asked for
    entries: int
    host_peak: int  # pinned host memory

    @property
    def used(self) -> tuple[Counts, ...]:
        """The devices that the program touched."""
        return tuple(device for device in self.devices if device.touched)

    def of_kind(self, kind: int) -> tuple[Note, ...]:
        return tuple(note for note in self.notes if note.kind == kind)


def parse(data: bytes, name: str) -> DeviceReport:
    """A report file's contents. Raises Damaged, naming the file, where they are none of this version."""
    if len(data) < _HEADER.size or data[:8] != _MAGIC:
        raise Damaged(f"{name} is no report of the simulated device")
    (_, version, header, device_bytes, device_room, note_bytes, note_room, pid, devices, notes, dropped, *rest) = (
        _HEADER.unpack_from(data)
    )
    if version != _VERSION:
        raise Damaged(f"{name} has version {version}, this cudasim reads {_VERSION}: its parts do not belong together")
    if device_bytes < _DEVICE.size or note_bytes < _NOTE.size or devices > device_room or notes > note_room:
        raise Damaged(f"{name} is damaged: its header contradicts itself")
    if header + device_bytes * device_room + note_bytes * note_room > len(data):
        raise Damaged(f"{name} is cut off: {len(data)} bytes")
    entry_ns, entries, _, host_peak = rest[-4:]
    found = [_counts(data, header + index * device_bytes, index) for index in range(devices)]
    start = header + device_bytes * device_room
    said = [_note(data, start + index * note_bytes) for index in range(notes)]
    return DeviceReport(
        pid, tuple(found), tuple(one for one in said if one.kind), dropped, entry_ns, entries, host_peak
    )


def _counts(data: bytes, offset: int, index: int) -> Counts:
    name, *numbers = _DEVICE.unpack_from(data, offset)
    total, context, now, peak, peak_library, _, allocs, _, refused, _, _, limited, *counted = numbers[:16]
    reads, read_bytes, known, _ = counted
    return Counts(
        index,
        numbers[-1],
        _text(name),
        total,
        context,
        now,
        peak,
        peak_library,
        allocs,
        refused,
        limited,
        reads,
        read_bytes,
        known,
    )


def _note(data: bytes, offset: int) -> Note:
    kind, _, count, size, name = _NOTE.unpack_from(data, offset)
    return Note(kind, _text(name), count, size)


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode("utf-8", "replace")


def read(path: str) -> tuple[DeviceReport, ...]:
    """The reports of all processes that used the device: PATH, PATH.<pid>, ...; () if none did.

    A file that its process was only about to fill (no magic yet) is left out. Raises Damaged for such a one.
    """
    reports = []
    for name in sorted([path, *glob.glob(glob.escape(path) + ".*")]):
        try:
            with open(name, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            continue
        if data[:8].strip(b"\0"):
            reports.append(parse(data, os.path.basename(name)))
    return tuple(reports)


_SAID = {
    UNDESCRIBED: "not described, so it did nothing",
    REFUSED: "not supported",
    MODELLED: "an allowance, not measured",
    LIMIT: "a limit of this machine",
}


def lines(report: DeviceReport) -> list[str]:
    """The report for people."""
    devices = [
        f"process {report.pid}, device {one.index}, {one.name}: at most {one.peak:,} of {one.total:,} bytes in use, "
        f"with {one.context:,} of the context and {one.peak_library:,} of libraries; "
        f"{one.allocs:,} allocations, {one.refused:,} refused"
        for one in report.used
    ]
    notes = [
        f"  {note.name}: {_SAID.get(note.kind, 'noted')} ({note.count:,} times, {note.bytes:,} bytes)"
        for note in report.notes
    ]
    return devices + notes


def merged_notes(reports: Iterable[DeviceReport], kind: int) -> tuple[Note, ...]:
    """The notes of one kind of all processes, by name; counts add up, bytes are the largest."""
    found: dict[str, Note] = {}
    for report in reports:
        for note in report.of_kind(kind):
            other = found.get(note.name)
            found[note.name] = (
                note if other is None else Note(kind, note.name, note.count + other.count, max(note.bytes, other.bytes))
            )
    return tuple(sorted(found.values(), key=lambda note: (-note.bytes, -note.count, note.name)))
